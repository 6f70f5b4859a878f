//! Where a packet goes first: Valiant's waypoint, or UGAL's choice between it and the minimal path.
//!
//! The waypoint is drawn by the flow's hash, uniformly among the routers with hosts other than both ends; each leg is
//! minimal (Valiant, SIAM J. Comput. 1982, as BookSim 2 has it for dragonflies). UGAL-L (Kim et al., ISCA'08, §4)
//! compares, where the packet enters and by that router's queues alone, q · H of the two: the bytes waiting at the first
//! port times the hops. A tie goes to the minimal path, which an empty fabric therefore takes, and so does whoever knows
//! no queues.

use crate::choose::choose_hashed;
use crate::shape::Shape;
use crate::spec::DragonflyRouting;

/// What draws the waypoint, in place of a switch number. The planes' is one above.
const WAYPOINT: u64 = u64::MAX - 1;

/// A waypoint among the switches `0..n`, neither `from` nor `to`; `None` if there is no third.
#[inline]
fn drawn(hash: u64, n: u32, from: u32, to: u32) -> Option<u32> {
    if n < 3 {
        return None;
    }
    let draw = choose_hashed(hash, WAYPOINT, n - 2);
    let (low, high) = (from.min(to), from.max(to));
    // Counted without the ends.
    let draw = draw + u32::from(draw >= low);
    Some(draw + u32::from(draw >= high))
}

/// See [`Shape::waypoint`]. Hosts hang on the switches `0..n`, `hops` apart.
#[inline]
pub(super) fn waypoint<S: Shape>(
    shape: &S,
    routing: DragonflyRouting,
    n: u32,
    (from, to, hash): (u32, u32, u64),
    hops: impl Fn(u32, u32) -> u32,
    queue: impl Fn(u32) -> u64,
) -> Option<u32> {
    match routing {
        DragonflyRouting::Minimal => None,
        DragonflyRouting::Valiant => drawn(hash, n, from, to),
        DragonflyRouting::UgalL => {
            let waypoint = drawn(hash, n, from, to)?;
            let waiting = |goal| u128::from(queue(shape.pick(from, goal, hash)));
            let minimal = waiting(to) * u128::from(hops(from, to));
            let around = waiting(waypoint) * u128::from(hops(from, waypoint) + hops(waypoint, to));
            (minimal > around).then_some(waypoint)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_kernel::mix64;

    #[test]
    fn every_third_switch_is_drawn_and_no_end() {
        for (from, to) in [(0, 1), (4, 2), (3, 4), (0, 4)] {
            let drawn: std::collections::BTreeSet<u32> =
                (0..200).filter_map(|flow| drawn(mix64(flow), 5, from, to)).collect();
            let expected = (0..5).filter(|&switch| switch != from && switch != to);
            assert_eq!(drawn.into_iter().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
        assert_eq!(drawn(7, 2, 0, 1), None);
    }
}
