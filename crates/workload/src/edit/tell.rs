//! What a workload consists of: collectives by kind and size, computation by label, and who sends how much to whom.

use std::collections::BTreeMap;

use windtunnel_kernel::{RankId, Span};

use crate::lower::{LowerError, to_messages};
use crate::{OpKind, Workload};

/// Collectives that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// What they compute.
    pub kind: &'static str,
    /// What they are for.
    pub dimension: &'static str,
    /// Members of a communicator.
    pub members: u64,
    /// Size of each.
    pub bytes: u64,
    /// How many, each once whatever its members.
    pub count: u64,
}

/// Totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Collectives, the most bytes first.
    pub collectives: Vec<Collected>,
    /// Computation by label: label, how many, all of them together; the longest first.
    pub computation: Vec<(String, u64, Span)>,
    /// Busy time by stream, over all ranks.
    pub streams: Vec<(u8, Span)>,
}

/// Counts.
pub fn tell(workload: &Workload) -> Told {
    let mut collectives: BTreeMap<(&'static str, &'static str, u64, u64), u64> = BTreeMap::new();
    let mut computation: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut streams: BTreeMap<u8, u64> = BTreeMap::new();
    for rank in (0..workload.ranks() as u32).map(RankId) {
        let program = workload.program(rank);
        for op in &program.ops {
            match op.kind {
                OpKind::Calc { duration, stream } => {
                    let sum = computation.entry(&program.labels[op.label as usize]).or_default();
                    *sum = (sum.0 + 1, sum.1.saturating_add(duration.ps()));
                    let busy = streams.entry(stream.0).or_default();
                    *busy = busy.saturating_add(duration.ps());
                }
                OpKind::Collective { comm, spec, .. } => {
                    let binding = workload.binding(rank, comm);
                    // Once for all members: on the first.
                    if binding.index == 0 {
                        let members =
                            workload.communicators[binding.communicator as usize].ranks.len() as u64;
                        let spec = &program.specs[spec as usize];
                        let key = (spec.kind.name(), op.dimension.name(), members, spec.bytes.get());
                        *collectives.entry(key).or_default() += 1;
                    }
                }
                OpKind::Send { .. } | OpKind::Receive { .. } => {}
            }
        }
    }
    let mut collectives: Vec<Collected> = collectives
        .into_iter()
        .map(|((kind, dimension, members, bytes), count)| Collected {
            kind,
            dimension,
            members,
            bytes,
            count,
        })
        .collect();
    collectives.sort_by_key(|row| std::cmp::Reverse(u128::from(row.bytes) * u128::from(row.count)));
    let mut computation: Vec<(String, u64, Span)> = computation
        .into_iter()
        .map(|(label, (count, sum))| (label.to_owned(), count, Span::from_ps(sum)))
        .collect();
    computation.sort_by(|a, b| b.2.ps().cmp(&a.2.ps()).then_with(|| a.0.cmp(&b.0)));
    let streams = streams.into_iter().map(|(stream, busy)| (stream, Span::from_ps(busy))).collect();
    Told { collectives, computation, streams }
}

/// Bytes from each rank to each, row by row: messages, and those that collectives consist of.
///
/// # Errors
/// [`LowerError`] for a collective that its algorithm does not compute.
pub fn matrix(workload: &Workload) -> Result<Vec<u64>, LowerError> {
    let messages = to_messages(workload, |_| {})?;
    let n = messages.ranks();
    let mut matrix = vec![0u64; n * n];
    for rank in (0..n as u32).map(RankId) {
        for op in &messages.program(rank).ops {
            if let OpKind::Send { peer, bytes, .. } = op.kind {
                let cell = &mut matrix[rank.0 as usize * n + messages.resolve(rank, peer).0 as usize];
                *cell = cell.saturating_add(bytes.get());
            }
        }
    }
    Ok(matrix)
}
