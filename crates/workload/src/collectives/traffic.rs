//! What a collective sends: messages and bytes of all members together, as the form by steps sends them.
//!
//! Closed forms where members × rounds may be many, of which the others have a few dozen. Blocks without a byte are no message.

use std::iter::Sum;
use std::ops::{Add, Mul};

use super::Round;
use super::plan::Plan;

/// Messages, and the payload that they carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages.
    pub messages: u128,
    /// Bytes.
    pub bytes: u128,
}

impl Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { messages: self.messages + other.messages, bytes: self.bytes + other.bytes }
    }
}

impl Mul<u128> for Traffic {
    type Output = Self;

    fn mul(self, times: u128) -> Self {
        Self { messages: self.messages * times, bytes: self.bytes * times }
    }
}

impl Sum for Traffic {
    fn sum<I: Iterator<Item = Self>>(traffic: I) -> Self {
        traffic.fold(Self::default(), Add::add)
    }
}

impl Plan {
    /// What all members together send. A vector that switches sum counts as a message of each member that hands it over.
    pub fn traffic(&self) -> Traffic {
        if self.is_empty() {
            return Traffic::default();
        }
        self.closed_form().unwrap_or_else(|| self.listed())
    }

    /// Message by message.
    fn listed(&self) -> Traffic {
        let (mut sum, mut out) = (Traffic::default(), Round::new());
        for (index, lane) in
            (0..self.members()).flat_map(|index| (0..self.lanes()).map(move |lane| (index, lane)))
        {
            for round in 0..self.rounds(lane) {
                self.round(index, lane, round, &mut out);
                let met = self.meeting(index, round).map(|meeting| meeting.bytes);
                for bytes in out.sends.iter().map(|&(_, bytes)| bytes).chain(met) {
                    sum = sum + Traffic { messages: 1, bytes: bytes.into() };
                }
            }
        }
        sum
    }

    fn closed_form(&self) -> Option<Traffic> {
        self.algorithm().traffic(self)
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::Bytes;

    use super::super::{Algorithm, CollectiveKind, CollectiveSpec};
    use super::*;

    const KINDS: [CollectiveKind; 7] = [
        CollectiveKind::AllReduce,
        CollectiveKind::AllGather,
        CollectiveKind::ReduceScatter,
        CollectiveKind::Broadcast { root: 1 },
        CollectiveKind::Reduce { root: 0 },
        CollectiveKind::AllToAll,
        CollectiveKind::Barrier,
    ];

    #[test]
    fn closed_forms_are_what_is_sent() {
        let mut closed = 0;
        for kind in KINDS {
            for &algorithm in kind.algorithms() {
                for (n, domain) in [(2, 1), (3, 1), (4, 2), (8, 4), (12, 3), (13, 1)] {
                    for bytes in [1, 5, 12, 13, 1000, 4096, 3 << 20] {
                        let spec = CollectiveSpec {
                            algorithm,
                            domain,
                            ..CollectiveSpec::new(kind, Bytes::new(bytes))
                        };
                        let Ok(plan) = Plan::new(&spec, n) else { continue };
                        let Some(form) = plan.closed_form().filter(|_| !plan.is_empty()) else { continue };
                        assert_eq!(
                            form,
                            plan.listed(),
                            "{kind:?} {algorithm:?} of {n}, domains of {domain}, {bytes} B"
                        );
                        closed += 1;
                    }
                }
            }
        }
        assert!(closed > 300, "{closed}");
    }

    /// Textbook counts.
    #[test]
    fn a_ring_sends_each_block_around_twice() {
        let of = |kind, algorithm, n: u32| {
            let spec = CollectiveSpec { algorithm, ..CollectiveSpec::new(kind, Bytes::new(1 << 20)) };
            let Traffic { messages, bytes } = Plan::new(&spec, n).unwrap().traffic();
            (messages, bytes)
        };
        let size = 1 << 20;
        assert_eq!(of(CollectiveKind::AllReduce, Algorithm::Ring, 8), (2 * 8 * 7, 2 * 7 * size));
        assert_eq!(of(CollectiveKind::AllGather, Algorithm::Ring, 8), (8 * 7, 7 * size));
        assert_eq!(of(CollectiveKind::AllToAll, Algorithm::Direct, 8), (8 * 7, 7 * size));
        // Rabenseifner: log2 n rounds of halves, and back.
        assert_eq!(of(CollectiveKind::AllReduce, Algorithm::Recursive, 8), (2 * 8 * 3, 2 * 7 * size));
        assert_eq!(of(CollectiveKind::Broadcast { root: 0 }, Algorithm::Binomial, 8), (7, 7 * size));
    }
}
