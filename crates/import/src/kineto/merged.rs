//! Files that were merged from those of several ranks: one trace is one rank's, and a kernel must not go to another's.
//!
//! `Rank` of a collective is no rank of the process: PyTorch writes the place in the group there, for broadcast, reduce, gather and
//! scatter that of the root, and for messages that of the other. So only two places of one rank in one group tell.

use rustc_hash::FxHashMap;

use super::calls::Arguments;
use super::communication::is_communication;
use super::trace::Trace;
use crate::error::ImportError;

const HINT: &str = "this file was merged from several: give the files that it was made of";
/// Kernels of one stream overlap by no more than this.
const SLACK: i64 = 2_000;

/// Refuses what several ranks recorded.
pub(crate) fn refuse(
    members: &[(String, Vec<u8>)],
    trace: &Trace,
    processes: &[String],
) -> Result<(), ImportError> {
    let refused =
        |found: String| Err(ImportError::new(&trace.file, "the trace of one rank", found).hint(HINT));
    let said: Vec<u64> = members
        .iter()
        .filter(|(key, _)| key == "distributedInfo")
        .filter_map(|(_, text)| serde_json::from_slice::<serde_json::Value>(text).ok()?["rank"].as_u64())
        .collect();
    if let Some(other) = said.iter().find(|&&rank| rank != said[0]) {
        return refused(format!("`distributedInfo` of ranks {} and {other}", said[0]));
    }
    let mut places: FxHashMap<(&Option<String>, &Option<Vec<u32>>), i64> = FxHashMap::default();
    for said in &trace.arguments {
        let (true, Some(place)) = (names_own_place(said), said.rank) else { continue };
        let first = *places.entry((&said.group_name, &said.group_ranks)).or_insert(place);
        if first != place {
            let group = said.group_name.as_deref().unwrap_or("");
            return refused(format!("ranks {first} and {place} of group `{group}`"));
        }
    }
    if processes.len() < 2 {
        return Ok(());
    }
    let mut devices: Vec<&str> = trace.streams.iter().map(|(device, _)| device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    if devices.len() > 1 {
        return refused(format!("launches of {} processes on {} devices", processes.len(), devices.len()));
    }
    // Kernels of one process on one stream are one behind the other: where two at once communicate there, each has its own process.
    let mut calls: Vec<(u32, i64, i64)> = trace
        .device
        .iter()
        .filter(|op| is_communication(trace, op))
        .map(|op| (op.stream, op.start, op.end))
        .collect();
    calls.sort_unstable();
    let overlap = calls.windows(2).any(|pair| pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2 - SLACK);
    if overlap {
        return refused(format!(
            "launches of {} processes whose collectives overlap on one stream",
            processes.len()
        ));
    }
    Ok(())
}

/// Whether `Rank` is the recorded rank's own place in the group.
fn names_own_place(said: &Arguments) -> bool {
    let name = said.collective.as_deref().unwrap_or("").trim_start_matches('_').to_ascii_lowercase();
    ["allreduce", "allgather", "reduce_scatter", "all_to_all", "alltoall", "barrier"]
        .iter()
        .any(|own| name.starts_with(own))
}
