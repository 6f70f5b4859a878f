//! Binomial trees: the whole buffer, ⌈log2 n⌉ rounds, the root's farthest child first.

use windtunnel_kernel::registry::Entry;

use super::CollectiveKind;
use super::method::{Arrangement, Method, Rings};
use super::parts::{Part, Round, Sink, back, log2_ceil};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;

/// Broadcast from `root`, round `round` of `levels` = ⌈log2 n⌉.
pub(super) fn broadcast(n: u32, root: u32, levels: u32, index: u32, round: u32, sink: &mut impl Sink) {
    let distance = 1 << (levels - 1 - round);
    match edge(n, root, index, distance) {
        Some((true, peer)) => sink.send(peer, Part::whole()),
        Some((false, peer)) => sink.receive(peer, Part::whole()),
        None => {}
    }
}

/// Reduce to `root`: the broadcast run backwards.
pub(super) fn reduce(n: u32, root: u32, index: u32, round: u32, sink: &mut impl Sink) {
    match edge(n, root, index, 1 << round) {
        Some((true, peer)) => sink.receive(peer, Part::whole()),
        Some((false, peer)) => sink.send(peer, Part::whole()),
        None => {}
    }
}

/// The edge of length `distance` at `index`: whether it is the parent's end, and the other end.
fn edge(n: u32, root: u32, index: u32, distance: u32) -> Option<(bool, u32)> {
    let place = back(index, root, n);
    match place % (2 * distance) {
        0 if place + distance < n => Some((true, (index + distance) % n)),
        offset if offset == distance => Some((false, back(index, distance, n))),
        _ => None,
    }
}

/// A tree that hands on the whole buffer.
pub(super) struct Binomial;

impl Method for Binomial {
    const ENTRY: Entry = Entry::new("binomial", "binomial tree");
    const KINDS: &'static [CollectiveKind] =
        &[CollectiveKind::Broadcast { root: 0 }, CollectiveKind::Reduce { root: 0 }];
    const RINGS: Rings = Rings::None;
    const WHOLE_DOMAINS: bool = false;
    const IN_TURN: bool = true;
    const SUMS: bool = false;

    fn settle(_: &mut Plan) {}

    fn rounds(plan: &Plan, _: u32) -> Arrangement {
        Arrangement::of(log2_ceil(plan.members()))
    }

    fn emit(plan: &Plan, index: u32, _: u32, round: u32, sink: &mut impl Sink) {
        match plan.kind() {
            CollectiveKind::Reduce { root } => reduce(plan.members(), root, index, round, sink),
            CollectiveKind::Broadcast { root } => {
                broadcast(plan.members(), root, plan.rounds(0), index, round, sink);
            }
            _ => {}
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
