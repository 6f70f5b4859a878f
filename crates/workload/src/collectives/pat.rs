//! Parallel aggregated trees (Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
//! arXiv:2506.20252; NCCL 2.23): n binomial trees, one per block, shifted against each other so that every index sends to
//! one peer per round, farthest first in an all-gather. The blocks of a round travel as one message, which makes
//! ⌈log2 n⌉ rounds for any n; NCCL splits a message that exceeds its staging buffer, which is not modelled.

use super::parts::{Part, Sink, back};

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
