//! Bruck's algorithms (Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in
//! multiport message-passing systems", TPDS 1997) and the dissemination barrier (Hensgen, Finkel, Manber, 1988), which is
//! the same pattern with empty blocks. All take ⌈log2 n⌉ rounds for any n.

use windtunnel_kernel::registry::Entry;

use super::CollectiveKind;
use super::method::{Arrangement, Method, Rings};
use super::parts::{Part, Round, Sink, back, log2_ceil};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;

/// All-gather: in round s an index that holds the 2^s blocks from its own on passes them 2^s back.
pub(super) fn all_gather(n: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let distance = 1 << round;
    let count = distance.min(n - distance);
    let from = (index + distance) % n;
    sink.send(back(index, distance, n), Part::range(index, count, n));
    sink.receive(from, Part::range(from, count, n));
}

/// All-to-all: in round s every block whose remaining way (destination − holder) has bit s goes 2^s on.
pub(super) fn all_to_all(n: u32, bytes: u64, index: u32, round: u32, out: &mut Round) {
    let distance = 1 << round;
    let from = back(index, distance, n);
    out.send((index + distance) % n, moved(n, bytes, index, round));
    out.receive(from, moved(n, bytes, from, round));
}

/// Bytes that `index` passes on in round `round`.
///
/// A block with way w = h · 2^s + low (h odd, low < 2^s, w < n) has gone `low` already, so it stands at `index` with
/// destination index + h · 2^s: 2^s blocks for each h, fewer for the last if n cuts it.
fn moved(n: u32, bytes: u64, index: u32, round: u32) -> u64 {
    let unit = 1u32 << round;
    let odd_units = (n - 1 - unit) / (2 * unit) + 1;
    let last = unit + (odd_units - 1) * 2 * unit;
    let in_last = (n - last).min(unit);
    let first = (index + unit) % n;
    let whole = Part { first, step: 2 * unit, count: odd_units - 1, blocks: n };
    whole.bytes(bytes) * u64::from(unit) + Part::one((index + last) % n, n).bytes(bytes) * u64::from(in_last)
}

/// Barrier: in round s a one-byte signal to index + 2^s.
pub(super) fn barrier(n: u32, index: u32, round: u32, out: &mut Round) {
    let distance = 1 << round;
    out.send((index + distance) % n, 1);
    out.receive(back(index, distance, n), 1);
}

/// Bruck's all-gather and all-to-all, and the barrier.
pub(super) struct Bruck;

impl Method for Bruck {
    const ENTRY: Entry = Entry::new("bruck", "Bruck");
    const KINDS: &'static [CollectiveKind] =
        &[CollectiveKind::AllGather, CollectiveKind::AllToAll, CollectiveKind::Barrier];
    const RINGS: Rings = Rings::None;
    const WHOLE_DOMAINS: bool = false;
    const IN_TURN: bool = false;
    const SUMS: bool = false;

    fn settle(_: &mut Plan) {}

    fn rounds(plan: &Plan, _: u32) -> Arrangement {
        Arrangement::of(log2_ceil(plan.members()))
    }

    fn emit(plan: &Plan, index: u32, _: u32, round: u32, sink: &mut impl Sink) {
        all_gather(plan.members(), index, round, sink);
    }

    fn exchange(plan: &Plan, index: u32, round: u32, out: &mut Round) {
        match plan.kind() {
            CollectiveKind::Barrier => barrier(plan.members(), index, round, out),
            _ => all_to_all(plan.members(), plan.bytes(), index, round, out),
        }
    }

    fn coupled(_: &Plan) -> Option<CoupledShape> {
        None
    }

    fn traffic(_: &Plan) -> Option<Traffic> {
        None
    }
}
