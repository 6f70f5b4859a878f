//! Parallel aggregated trees (Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
//! arXiv:2506.20252; NCCL 2.23): n binomial trees, one per block, shifted against each other so that every index sends to
//! one peer per round, farthest first in an all-gather. The blocks of a round travel as one message, which makes
//! ⌈log2 n⌉ rounds for any n; NCCL splits a message that exceeds its staging buffer, which is not modelled.

use windtunnel_kernel::registry::Entry;

use super::CollectiveKind;
use super::method::{Arrangement, Method, Rings};
use super::parts::{Part, Round, Sink, back, log2_ceil};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;

/// The blocks that cross `distance`, as held by the index of block `first`: those of the indices that lie an even
/// multiple of `distance` behind and whose tree reaches on.
fn crossing(n: u32, first: u32, distance: u32) -> Part {
    let count = (n - distance).div_ceil(2 * distance);
    Part { first, step: back(0, (2 * distance) % n, n), count, blocks: n }
}

/// All-gather, round `round` of `levels` = ⌈log2 n⌉.
pub(super) fn all_gather(n: u32, levels: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let distance = 1 << (levels - 1 - round);
    let from = back(index, distance, n);
    sink.send((index + distance) % n, crossing(n, index, distance));
    sink.receive(from, crossing(n, from, distance));
}

/// Reduce-scatter: the all-gather run backwards.
pub(super) fn reduce_scatter(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let distance = 1 << round;
    let to = back(index, distance, n);
    sink.send(to, crossing(n, to, distance));
    sink.receive((index + distance) % n, crossing(n, index, distance));
}

/// NCCL's parallel aggregated trees.
pub(super) struct Pat;

impl Method for Pat {
    const ENTRY: Entry = Entry::new("pat", "parallel aggregated trees");
    const KINDS: &'static [CollectiveKind] = &[CollectiveKind::AllGather, CollectiveKind::ReduceScatter];
    const RINGS: Rings = Rings::None;
    const WHOLE_DOMAINS: bool = false;
    const IN_TURN: bool = false;
    const SUMS: bool = false;

    fn settle(_: &mut Plan) {}

    fn rounds(plan: &Plan, _: u32) -> Arrangement {
        Arrangement::of(log2_ceil(plan.members()))
    }

    fn emit(plan: &Plan, index: u32, _: u32, round: u32, sink: &mut impl Sink) {
        match plan.kind() {
            CollectiveKind::ReduceScatter => reduce_scatter(plan.members(), index, round, sink),
            _ => all_gather(plan.members(), plan.rounds(0), index, round, sink),
        }
    }

    fn exchange(_: &Plan, _: u32, _: u32, _: &mut Round) {}

    fn coupled(_: &Plan) -> Option<CoupledShape> {
        None
    }

    fn traffic(_: &Plan) -> Option<Traffic> {
        None
    }
}
