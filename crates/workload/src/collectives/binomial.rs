//! Binomial trees: the whole buffer, ⌈log2 n⌉ rounds, the root's farthest child first.

use super::parts::{Part, Sink, back};

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
