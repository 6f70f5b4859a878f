//! Rings and pipelined chains (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", JPDC 2009): index i sends to i + 1 only.

use super::parts::{Part, Sink, back};

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
