//! How long Ultra Ethernet's senders wait for a sign of a packet before they send it again.
//!
//! The specification leaves the time to the configuration (`RTO_Init_Time`); htsim's default (uet-htsim 40ccb05) is
//! 15 µs and six full queues at line rate: of two classes on three hops of an incast. With its default queues of one
//! bandwidth–delay product a queue is a base RTT. Fewer than that are taken for that many, so that shallow queues do not
//! bring the time below the path's. Where queues have no limit nothing is dropped for lack of room, and the time follows the
//! path: at least 4 of the last round trips seen, as with [`Dcqcn`](super::Dcqcn) (RFC 6298 lets it follow likewise).

use windtunnel_kernel::Span;

use super::PathFacts;

/// Full queues that a packet may meet there and its answer back.
const QUEUES: u64 = 6;
/// Last round trips waited for at least, where queues have no limit.
const ROUNDS: u64 = 4;

/// Of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Patience {
    least: Span,
    /// Round trips waited for, and the last one.
    rounds: u64,
    last: Span,
}

impl Patience {
    /// `base` and what six full queues of `path` take.
    pub(super) fn new(base: Span, path: &PathFacts) -> Self {
        let queue = path.queue.unwrap_or(Span::ZERO).max(path.base_rtt);
        let rounds = if path.queue.is_none() { ROUNDS } else { 0 };
        Self { least: base + queue * QUEUES, rounds, last: Span::ZERO }
    }

    /// An answer came after `rtt`.
    #[inline]
    pub(super) fn heard(&mut self, rtt: Span) {
        self.last = rtt;
    }

    #[inline]
    pub(super) fn timeout(&self) -> Span {
        self.least.max(self.last * self.rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;

    #[test]
    fn full_queues_are_waited_for() {
        let (base, path) = (Span::from_us(15), path(400, 12));
        let timeout = |queue: Option<u64>, rtt| {
            let mut patience = Patience::new(base, &PathFacts { queue: queue.map(Span::from_us), ..path });
            patience.heard(Span::from_us(rtt));
            patience.timeout()
        };
        // Shallow: six base RTTs, as htsim's queues of one bandwidth–delay product have it; deep: six times the queue.
        let expected = [(Some(4), 20, 87), (Some(12), 500, 87), (Some(100), 500, 615)];
        for (queue, rtt, us) in expected.into_iter().chain([(None, 12, 87), (None, 500, 2_000)]) {
            assert_eq!(timeout(queue, rtt), Span::from_us(us), "{queue:?} {rtt}");
        }
    }
}
