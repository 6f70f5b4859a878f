//! What a receiver that gives tokens knows of what is sent to it: which packets have come, and which tokens are out.

use std::ops::Range;

use super::dispatch::Landed;
use crate::packet::message::Arrivals;

/// See the module page. Packets are counted over all messages of a flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    /// Packets that are known to be sent, and those that have come.
    pub limit: u32,
    pub arrived: u32,
    /// The first packet that has not come, and those that have beyond it.
    pub expected: u32,
    pub beyond: Arrivals,
    /// Tokens given, and one more than the highest of them that data brought back.
    pub given: u32,
    pub seen: u32,
    /// The packet after the last one that a token named.
    pub at: u32,
}

impl Received {
    /// A packet has come.
    pub(super) fn take(&mut self, data: &Landed) {
        if data.fresh {
            self.arrived += 1;
            if data.sequence >= data.expected {
                self.beyond.mark(self.expected, data.sequence);
            }
            self.beyond.clear_range(self.expected, data.expected.min(self.beyond.end));
            self.expected = data.expected;
        }
        self.seen = self.seen.max(data.rank);
    }

    /// Packets to come: none where a message was given up after more had arrived than it still is.
    pub(super) fn left(&self) -> u32 {
        self.limit.saturating_sub(self.arrived)
    }

    /// Tokens that are out.
    pub(super) fn out(&self) -> u32 {
        self.given.saturating_sub(self.seen)
    }

    /// The first of some packets that has not come.
    pub(super) fn missing(&self, mut packets: Range<u32>) -> Option<u32> {
        packets.find(|&at| at >= self.expected && !self.beyond.has(at))
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::Time;

    use super::*;

    fn landed(sequence: u32, expected: u32, rank: u32, fresh: bool) -> Landed {
        let (now, flow, base, bits, whole, marked, path) = (Time::ZERO, 0, 0, 0, false, false, 0);
        Landed { now, flow, sequence, rank, fresh, expected, base, bits, whole, marked, path }
    }

    #[test]
    fn what_is_missing_is_what_has_not_come() {
        let mut got = Received { limit: 6, given: 4, ..Received::default() };
        got.take(&landed(0, 1, 1, true));
        got.take(&landed(3, 1, 3, true));
        // A copy counts for nothing but its token.
        got.take(&landed(3, 1, 4, false));
        assert_eq!((got.left(), got.out(), got.expected), (4, 0, 1));
        assert_eq!(got.missing(0..6), Some(1));
        assert_eq!(got.missing(3..6), Some(4));
        assert_eq!(got.missing(3..4), None);
    }
}
