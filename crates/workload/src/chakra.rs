//! Workloads as MLCommons Chakra execution traces (schema 0.0.4, Protocol Buffers), for other simulators: one file a rank.
//!
//! `STEM.et` becomes `STEM.0.et`, `STEM.1.et`, …, each a stream of messages with their lengths before them, and
//! `STEM.comm_groups.json`, which says the members of each communicator by the `pg_name` of its collectives. Chakra's times are whole
//! microseconds: what is shorter than half of one has none. It has no dependency on a start: what may begin when another operation
//! has begun waits for what that one waits for.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use windtunnel_kernel::RankId;

use crate::collectives::{CollectiveKind, CollectiveSpec};
use crate::output::write_beside;
use crate::{OpKind, Workload};

const COMP: u64 = 4;
const SEND: u64 = 5;
const RECEIVE: u64 = 6;
const COLLECTIVE: u64 = 7;

fn varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn number(field: u64, value: u64, into: &mut Vec<u8>) {
    varint(field << 3, into);
    varint(value, into);
}

fn bytes(field: u64, content: &[u8], into: &mut Vec<u8>) {
    varint(field << 3 | 2, into);
    varint(content.len() as u64, into);
    into.extend_from_slice(content);
}

/// An attribute: its name, and a field of the oneof behind it (9 a 64-bit number, 27 a truth value).
fn attribute(name: &str, field: u64, value: u64, into: &mut Vec<u8>) {
    let mut content = Vec::new();
    bytes(1, name.as_bytes(), &mut content);
    number(field, value, &mut content);
    bytes(10, &content, into);
}

fn text_attribute(name: &str, value: &str, into: &mut Vec<u8>) {
    let mut content = Vec::new();
    bytes(1, name.as_bytes(), &mut content);
    bytes(29, value.as_bytes(), &mut content);
    bytes(10, &content, into);
}

/// Chakra's number of a collective, and its `comm_size` on a rank: of an all-gather the rank's own part.
fn collective(spec: &CollectiveSpec, index: u32, members: u64) -> (u64, u64, Option<u32>) {
    let whole = spec.bytes.get();
    match spec.kind {
        CollectiveKind::AllReduce => (0, whole, None),
        CollectiveKind::Reduce { root } => (1, whole, Some(root)),
        CollectiveKind::AllGather => (2, whole / members.max(1), None),
        CollectiveKind::Broadcast { root } => (5, whole, Some(root)),
        CollectiveKind::AllToAll => (6, whole, None),
        CollectiveKind::AllToAllV => {
            let n = members as usize;
            let row = spec.matrix.as_deref().and_then(|matrix| matrix.chunks(n.max(1)).nth(index as usize));
            (6, row.map_or(whole / members.max(1), |row| row.iter().sum()), None)
        }
        CollectiveKind::ReduceScatter => (7, whole, None),
        CollectiveKind::Barrier => (9, 0, None),
    }
}

fn rank_file(workload: &Workload, rank: RankId, names: &[String], out: &mut dyn Write) -> io::Result<()> {
    let program = workload.program(rank);
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); program.ops.len()];
    for source in 0..program.ops.len() as u32 {
        for &target in program.requires.of(source) {
            before[target as usize].push(source);
        }
    }
    for source in 0..program.ops.len() as u32 {
        for &target in program.irequires.of(source) {
            let of_source = before[source as usize].clone();
            let of_target = &mut before[target as usize];
            of_target.extend(of_source);
            of_target.sort_unstable();
            of_target.dedup();
        }
    }
    let mut message = |content: &[u8]| {
        let mut length = Vec::new();
        varint(content.len() as u64, &mut length);
        out.write_all(&length)?;
        out.write_all(content)
    };
    let mut version = Vec::new();
    bytes(1, b"0.0.4", &mut version);
    message(&version)?;
    for (at, op) in program.ops.iter().enumerate() {
        let mut node = Vec::new();
        number(1, at as u64 + 1, &mut node);
        let label = &program.labels[op.label as usize];
        let mut attributes = Vec::new();
        attribute("is_cpu_op", 27, 0, &mut attributes);
        let (kind, name, micros, stream) = match op.kind {
            OpKind::Calc { duration, stream } => {
                (COMP, "compute", (duration.ps() + 500_000) / 1_000_000, stream)
            }
            OpKind::Send { peer, bytes, tag, stream, .. } => {
                let peer = workload.resolve(rank, peer);
                attribute("comm_size", 9, bytes.get().max(1), &mut attributes);
                attribute("comm_src", 9, u64::from(rank.0), &mut attributes);
                attribute("comm_dst", 9, u64::from(peer.0), &mut attributes);
                attribute("comm_tag", 9, tag.0, &mut attributes);
                (SEND, "send", 0, stream)
            }
            OpKind::Receive { peer, tag, stream } => {
                let Some(peer) = peer else {
                    return Err(io::Error::other(format!(
                        "rank {}: a receive from any rank, which Chakra cannot say",
                        rank.0
                    )));
                };
                let peer = workload.resolve(rank, peer);
                // The size is the sender's; the schema wants one.
                attribute("comm_size", 9, 1, &mut attributes);
                attribute("comm_src", 9, u64::from(peer.0), &mut attributes);
                attribute("comm_dst", 9, u64::from(rank.0), &mut attributes);
                attribute("comm_tag", 9, tag.map_or(0, |tag| tag.0), &mut attributes);
                (RECEIVE, "receive", 0, stream)
            }
            OpKind::Collective { comm, spec, stream, .. } => {
                let binding = workload.binding(rank, comm);
                let members = workload.communicators[binding.communicator as usize].ranks.len() as u64;
                let spec = &program.specs[spec as usize];
                let (kind, size, root) = collective(spec, binding.index, members);
                attribute("comm_type", 9, kind, &mut attributes);
                attribute("comm_size", 9, size, &mut attributes);
                text_attribute("pg_name", &names[binding.communicator as usize], &mut attributes);
                if let Some(root) = root {
                    attribute("root_rank", 9, u64::from(root), &mut attributes);
                }
                (COLLECTIVE, spec.kind.name(), 0, stream)
            }
        };
        attribute("stream", 9, u64::from(stream.0), &mut attributes);
        bytes(2, if label.is_empty() { name } else { label }.as_bytes(), &mut node);
        number(3, kind, &mut node);
        if !before[at].is_empty() {
            let mut packed = Vec::new();
            for &source in &before[at] {
                varint(u64::from(source) + 1, &mut packed);
            }
            bytes(5, &packed, &mut node);
        }
        number(7, micros, &mut node);
        node.extend(attributes);
        message(&node)?;
    }
    Ok(())
}

/// Writes the traces beside `out` (`STEM.et`) and returns their paths, the communicators' last.
///
/// # Errors
/// Where a file cannot be written, or an operation cannot be said in Chakra.
pub fn write(workload: &Workload, out: &Path) -> io::Result<Vec<PathBuf>> {
    let stem = out.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    // Names may be shared by groups of other ranks; with its number each is one of its own.
    let names: Vec<String> =
        workload.communicators.iter().enumerate().map(|(at, group)| format!("{}#{at}", group.name)).collect();
    let mut paths = Vec::new();
    for rank in (0..workload.ranks() as u32).map(RankId) {
        let path = out.with_file_name(format!("{stem}.{}.et", rank.0));
        write_beside(&path, |file| rank_file(workload, rank, &names, file))?;
        paths.push(path);
    }
    let groups: BTreeMap<&str, Vec<u32>> = names
        .iter()
        .zip(&workload.communicators)
        .map(|(name, group)| (name.as_str(), group.ranks.iter().map(|rank| rank.0).collect()))
        .collect();
    let path = out.with_file_name(format!("{stem}.comm_groups.json"));
    let text = serde_json::to_string(&groups).map_err(io::Error::other)?;
    write_beside(&path, |file| file.write_all(text.as_bytes()))?;
    paths.push(path);
    Ok(paths)
}
