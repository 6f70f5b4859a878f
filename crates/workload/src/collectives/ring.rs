//! Rings and pipelined chains (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", JPDC 2009): index i sends to i + 1 only.

use windtunnel_kernel::registry::Entry;

use super::CollectiveKind;
use super::method::{Arrangement, Method, Rings};
use super::parts::{Part, Round, Sink, back};
use super::plan::{CoupledShape, Plan, chunks};
use super::traffic::Traffic;

/// Round `round` of n − 1 of a reduce-scatter: block b starts at b + 1 and gathers its sum on the way round to b.
pub(super) fn reduce_scatter(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    sink.send((index + 1) % n, Part::one(back(index, round + 1, n), n));
    sink.receive(back(index, 1, n), Part::one(back(back(index, 1, n), round + 1, n), n));
}

/// Round `round` of n − 1 of an all-gather: block b goes round from b.
pub(super) fn all_gather(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    sink.send((index + 1) % n, Part::one(back(index, round, n), n));
    sink.receive(back(index, 1, n), Part::one(back(index, round + 1, n), n));
}

/// Round `round` of chunks + n − 2 of a chain: the index at `position` of n forwards chunk k in round k + position.
///
/// A broadcast's chain starts at the root (position 0), a reduce's ends there (position n − 1).
pub(super) fn chain(n: u32, index: u32, position: u32, chunks: u32, round: u32, sink: &mut impl Sink) {
    if position + 1 < n && (position..position + chunks).contains(&round) {
        sink.send((index + 1) % n, Part::one(round - position, chunks));
    }
    if position > 0 && (position - 1..position - 1 + chunks).contains(&round) {
        sink.receive(back(index, 1, n), Part::one(round + 1 - position, chunks));
    }
}

/// One ring over the group, or a pipelined chain.
pub(super) struct Ring;

impl Method for Ring {
    const ENTRY: Entry = Entry::new("ring", "ring");
    const KINDS: &'static [CollectiveKind] = &[
        CollectiveKind::AllReduce,
        CollectiveKind::AllGather,
        CollectiveKind::ReduceScatter,
        CollectiveKind::Broadcast { root: 0 },
        CollectiveKind::Reduce { root: 0 },
    ];
    const RINGS: Rings = Rings::One;
    const WHOLE_DOMAINS: bool = false;
    const IN_TURN: bool = false;
    const SUMS: bool = false;

    fn settle(_: &mut Plan) {}

    fn rounds(plan: &Plan, _: u32) -> Arrangement {
        let n = plan.members();
        match plan.kind() {
            CollectiveKind::AllReduce => Arrangement::of(2 * (n - 1)),
            CollectiveKind::Broadcast { .. } | CollectiveKind::Reduce { .. } => {
                let chunks = chunks(plan.bytes());
                Arrangement { chunks, ..Arrangement::of(chunks + n - 2) }
            }
            _ => Arrangement::of(n - 1),
        }
    }

    fn emit(plan: &Plan, index: u32, _: u32, round: u32, sink: &mut impl Sink) {
        let n = plan.members();
        match plan.kind() {
            CollectiveKind::Broadcast { root } => {
                chain(n, index, back(index, root, n), plan.chunks(), round, sink);
            }
            CollectiveKind::Reduce { root } => {
                chain(n, index, back(index, root + 1, n), plan.chunks(), round, sink);
            }
            CollectiveKind::AllReduce if round >= n - 1 => all_gather(n, index, round - (n - 1), sink),
            CollectiveKind::AllReduce | CollectiveKind::ReduceScatter => {
                reduce_scatter(n, index, round, sink);
            }
            _ => all_gather(n, index, round, sink),
        }
    }

    fn exchange(_: &Plan, _: u32, _: u32, _: &mut Round) {}

    fn coupled(plan: &Plan) -> Option<CoupledShape> {
        let n = plan.members();
        match plan.kind() {
            CollectiveKind::Broadcast { root } | CollectiveKind::Reduce { root } => {
                // A pipeline with fewer chunks takes more than 1% longer to fill.
                let fills = u64::from(n - 2) * 100 <= u64::from(plan.chunks());
                let first =
                    if matches!(plan.kind(), CollectiveKind::Reduce { .. }) { root + 1 } else { root };
                let edge = |position| ((first + position) % n, (first + position + 1) % n, 1);
                let edges = (0..n - 1).map(edge).collect();
                fills.then_some(CoupledShape { edges, bytes: plan.bytes(), steps: n - 1 })
            }
            _ => Some(CoupledShape::ring(plan)),
        }
    }

    fn traffic(plan: &Plan) -> Option<Traffic> {
        let (n, bytes) = (plan.members(), plan.bytes());
        Some(match plan.kind() {
            // Each chunk passes each edge.
            CollectiveKind::Broadcast { .. } | CollectiveKind::Reduce { .. } => {
                Traffic { messages: plan.chunks().into(), bytes: bytes.into() } * u128::from(n - 1)
            }
            // In each round each block that has a byte goes one hop.
            _ => {
                let blocks = u128::from(n).min(bytes.into());
                Traffic { messages: blocks, bytes: bytes.into() } * plan.rounds(0).into()
            }
        })
    }
}
