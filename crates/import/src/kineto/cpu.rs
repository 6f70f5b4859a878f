//! Collectives of the CPU (gloo's), which no kernel carries out: their annotations are the operations.

use super::calls::Arguments;
use super::trace::{DeviceOp, Trace};

/// Where no device ran, annotated collectives are the operations, a stream for each thread.
pub(crate) fn collectives(trace: &mut Trace) {
    let size = u64::from(trace.world.unwrap_or(1));
    let rank = trace.rank;
    let annotations = std::mem::take(&mut trace.annotations);
    for annotation in annotations {
        let name = trace.names[annotation.name as usize].clone();
        // NCCL's are launches of kernels that were not recorded.
        if name.starts_with("nccl:") {
            trace.annotations.push(annotation);
            continue;
        }
        // One without a shape keeps its time: its size is nowhere.
        let bytes = annotation.dims.as_ref().map(|dims| dims.elements.saturating_mul(dims.element_bytes));
        let call = name.split_once(':').map_or(name.clone(), |(_, call)| call.to_owned());
        let (sends, receives) = (call == "send", call.starts_with("recv"));
        let peer = annotation.peer.filter(|&peer| rank.is_none_or(|rank| i64::from(rank) != peer));
        trace.arguments.push(Arguments {
            collective: Some(if receives { "recv".to_owned() } else { call }),
            dtype: Some("byte".to_owned()),
            sent: bytes,
            received: bytes,
            group_name: Some("world".to_owned()),
            group_size: Some(size),
            destination: peer.filter(|_| sends),
            source: peer.filter(|_| receives),
            ..Arguments::default()
        });
        let stream = ("cpu".to_owned(), i64::from(annotation.thread));
        let known = trace.streams.iter().position(|known| *known == stream);
        let stream = known.unwrap_or_else(|| {
            trace.streams.push(stream);
            trace.streams.len() - 1
        });
        trace.device.push(DeviceOp {
            stream: stream as u32,
            start: annotation.start,
            end: annotation.end,
            correlation: -1,
            name: annotation.name,
            arguments: Some(trace.arguments.len() as u32 - 1),
            copy: false,
            bytes: 0,
        });
    }
}
