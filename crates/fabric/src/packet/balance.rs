//! Balancers that look at more than a hash: flowlets, the least loaded egress, recycled path numbers.
//!
//! **Flowlets** (LetFlow: Vanini et al., "Let It Flow", NSDI 2017): a switch keeps, for each of [`BUCKETS`] hashes of flows,
//! when the last packet passed; one that comes after a gap may take another path, which is drawn, and the packets
//! behind it follow. Here the draw joins the hash that the next hop is chosen by, so faults, weights and itineraries are
//! respected by the choice itself.
//!
//! **Adaptive**: every switch puts each packet on that of the equal-cost ports that holds the fewest bytes, the packet in
//! service counted whole. Among equals the first one from a drawn place on is taken, so an idle port ends the search.
//!
//! A balancer of another crate ([`SwitchBalancer`](super::transport::SwitchBalancer)) is asked in the place of the search.
//!
//! **Round robin**: packets that come to a switch by one port take the equal-cost ports in turn, notes and acknowledgements too, from a
//! drawn one on.
//!
//! **REPS** (Bonato et al., "REPS: Recycled Entropy Packet Spraying", 2024, algorithm 1): the sender keeps up to eight path
//! numbers whose acknowledgement came unmarked and takes the oldest for its next packet; without any it draws one. A
//! time-out freezes it: until some round trips later it goes round the numbers that it has, used or not, instead of
//! drawing. Then as many are drawn as packets fill the path. Where an acknowledgement answers n packets, it names the path of
//! one: the number counts for as many as came unmarked, in turn with the others.
//!
//! **Invariants.** Choices depend on the switch's own state, or the queue pair's own, and on time alone.

use rustc_hash::FxHashMap;
use windtunnel_kernel::Span;
use windtunnel_kernel::random::combine;
use windtunnel_topology::PortSet;

use super::transport::{BalancerPort, PathFacts};

/// Hashes of flows that a switch tells apart: the 64 K entries of LetFlow's table.
const BUCKETS: u64 = 1 << 16;

/// Path numbers that a sender keeps.
pub(super) const KEPT: usize = 8;

/// Round trips on an idle path for which a time-out keeps a sender from drawing new path numbers.
const FROZEN: u64 = 8;

/// Set the draws apart from others.
const FLOWLET: u64 = 0x666c_6574;
const REPS: u64 = 0x7265_7073;

/// What switches remember for balancing.
#[derive(Clone, Debug, Default)]
pub(super) struct Balance {
    /// By switch and bucket.
    flowlets: FxHashMap<(u32, u16), Flowlet>,
    /// The turn of the last packet that took a port in turn, by the port that it came by; the first is drawn.
    pub turns: Vec<u32>,
    /// Used again from one packet to the next.
    pub ports: PortSet,
    pub known: Vec<BalancerPort>,
}

/// Packets of a bucket that follow one another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flowlet {
    last: u64,
    draw: u64,
}

impl Balance {
    /// The hash by which a packet of the flow `hash` that passes `switch` now chooses its port.
    pub(super) fn flowlet(&mut self, switch: u32, hash: u64, now: u64, gap: Span) -> u64 {
        let bucket = (combine(hash, FLOWLET) % BUCKETS) as u16;
        let fresh = || Flowlet { last: now, draw: combine(combine(FLOWLET, u64::from(switch)), now) };
        let flowlet = self.flowlets.entry((switch, bucket)).or_insert_with(fresh);
        if now - flowlet.last > gap.ps() {
            *flowlet = fresh();
        }
        flowlet.last = now;
        combine(hash, flowlet.draw)
    }
}

/// The path numbers of a sender.
#[derive(Clone, Debug)]
pub(super) struct Recycler {
    kept: [(u16, u16); KEPT],
    /// Where the next one goes, how many may be used, and how many there ever were.
    head: u8,
    valid: u8,
    filled: u8,
    /// Where a frozen sender is in its round.
    round: u8,
    /// Nothing is drawn before, once something was kept; `None` when not frozen.
    frozen: Option<u64>,
    /// Numbers to be drawn before any is used again.
    explore: u32,
    drawn: u32,
    /// Packets that fill the path, and how long to stay frozen.
    fill: u32,
    span: u64,
    seed: u64,
}

impl Recycler {
    pub(super) fn new(seed: u64, path: &PathFacts) -> Self {
        Self {
            kept: [(0, 0); KEPT],
            head: 0,
            valid: 0,
            filled: 0,
            round: 0,
            frozen: None,
            explore: 0,
            drawn: 0,
            fill: (path.bdp / u64::from(path.mtu.max(1))) as u32,
            span: path.base_rtt.ps() * FROZEN,
            seed: combine(seed, REPS),
        }
    }

    fn push(&mut self, path: u16, uses: u16) {
        self.kept[usize::from(self.head)] = (path, uses);
        self.head = (self.head + 1) % KEPT as u8;
        self.valid = (self.valid + 1).min(KEPT as u8);
        self.filled = (self.filled + 1).min(KEPT as u8);
    }

    /// The path number of the next packet, one of `paths`.
    pub(super) fn next(&mut self, paths: u32) -> u16 {
        let stuck = self.valid == 0 && (self.frozen.is_none() || self.filled == 0);
        if self.explore > 0 || stuck {
            self.explore = self.explore.saturating_sub(1);
            self.drawn = self.drawn.wrapping_add(1);
            return (combine(self.seed, u64::from(self.drawn)) & u64::from(paths - 1)) as u16;
        }
        let kept = KEPT as u8;
        if self.valid == 0 {
            // Frozen: all that were ever kept, in turn.
            self.round = (self.round + 1) % self.filled;
            return self.kept[usize::from(self.round)].0;
        }
        let (path, uses) = self.kept[usize::from((self.head + kept - self.valid) % kept)];
        self.valid -= 1;
        if uses > 1 {
            self.push(path, uses - 1);
        }
        path
    }

    /// An acknowledgement for `clean` packets without a mark, the one that caused it (`marked` or not) by `path`.
    pub(super) fn heard(&mut self, path: u16, marked: bool, clean: u16, now: u64) {
        if marked {
            return;
        }
        self.push(path, clean.max(1));
        if self.frozen.is_some_and(|until| now > until) {
            self.frozen = None;
            self.explore = self.fill;
        }
    }

    /// Nothing was heard for long.
    pub(super) fn failed(&mut self, now: u64) {
        if self.frozen.is_none() && self.explore == 0 {
            self.frozen = Some(now + self.span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use windtunnel_kernel::BitRate;

    fn recycler() -> Recycler {
        let path = PathFacts {
            rate: BitRate::from_gbps(400),
            base_rtt: Span::from_us(10),
            bdp: 500_000,
            mtu: 4_160,
            hops: 4,
            planes: 1,
            queue: None,
        };
        Recycler::new(7, &path)
    }

    proptest! {
        /// As long as packets follow one another within the gap, nothing changes; after it a new draw is made.
        #[test]
        fn a_flowlet_is_not_split(gaps in prop::collection::vec(0..2_000_000u64, 1..200), hash: u64) {
            let gap = Span::from_us(1);
            let (mut balance, mut now) = (Balance::default(), 5);
            let mut last = balance.flowlet(3, hash, now, gap);
            for wait in gaps {
                now += wait;
                let next = balance.flowlet(3, hash, now, gap);
                prop_assert_eq!(next == last, wait <= gap.ps());
                last = next;
            }
        }

        /// What REPS takes is what a list of the numbers that came back unmarked would give, oldest first; of more than
        /// eight the oldest is forgotten.
        #[test]
        fn recycled_numbers_are_a_queue(steps in prop::collection::vec((any::<bool>(), 0..64u16, any::<bool>()), 1..300)) {
            let (mut reps, mut list) = (recycler(), std::collections::VecDeque::new());
            for (send, path, marked) in steps {
                if send {
                    let found = reps.next(64);
                    match list.pop_front() {
                        Some(expected) => prop_assert_eq!(found, expected),
                        None => prop_assert!(found < 64),
                    }
                } else {
                    reps.heard(path, marked, 1, 0);
                    if !marked {
                        if list.len() == KEPT {
                            list.pop_front();
                        }
                        list.push_back(path);
                    }
                }
            }
        }
    }

    #[test]
    fn a_frozen_sender_draws_nothing_until_it_thaws() {
        let mut reps = recycler();
        for path in [5, 9] {
            reps.heard(path, false, 1, 0);
        }
        reps.failed(100);
        let taken: Vec<u16> = (0..6).map(|_| reps.next(65_536)).collect();
        assert!(taken.iter().all(|path| [5, 9].contains(path)), "{taken:?}");
        // 80 µs later it draws as many as fill the path: 120.
        reps.heard(5, false, 1, 100 + 80_000_001);
        let drawn: Vec<u16> = (0..120).map(|_| reps.next(65_536)).collect();
        assert!(drawn.iter().filter(|path| ![5, 9].contains(path)).count() >= 118);
        assert_eq!(reps.next(65_536), 5, "and then what came back");
    }

    #[test]
    fn a_number_counts_for_all_packets_that_its_acknowledgement_answers() {
        let mut reps = recycler();
        reps.heard(1, false, 3, 0);
        reps.heard(2, false, 2, 0);
        reps.heard(3, true, 0, 0);
        let taken: Vec<u16> = (0..5).map(|_| reps.next(64)).collect();
        assert_eq!(taken, [1, 2, 1, 2, 1]);
    }
}
