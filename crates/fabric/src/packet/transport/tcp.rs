//! What the TCPs have in common: the retransmission time-out and the rule of one reduction per window.

use windtunnel_kernel::Span;

use super::PathFacts;

/// Retransmission time-out (RFC 6298), from delays in µs: RTTVAR ← ¾ RTTVAR + ¼ |SRTT − R|, SRTT ← ⅞ SRTT + ⅛ R,
/// RTO = SRTT + 4 RTTVAR, doubled for each in a row (§5.5). The first sample is the idle path's, where a TCP of the
/// Internet, which knows nothing, waits a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rto {
    smoothed: f32,
    variation: f32,
    doublings: u8,
}

impl Rto {
    pub(super) fn new(path: &PathFacts) -> Self {
        let rtt = path.base_rtt.0 as f32 / 1e6;
        Self { smoothed: rtt, variation: rtt / 2.0, doublings: 0 }
    }

    /// Something new was acknowledged. Stamps tell copies apart, so each is a sample (RFC 6298 §3).
    pub(super) fn sample(&mut self, rtt: Span) {
        let rtt = rtt.0 as f32 / 1e6;
        self.variation += ((self.smoothed - rtt).abs() - self.variation) / 4.0;
        self.smoothed += (rtt - self.smoothed) / 8.0;
        self.doublings = 0;
    }

    pub(super) fn expired(&mut self) {
        self.doublings = (self.doublings + 1).min(10);
    }

    /// At least `least`.
    pub(super) fn span(&self, least: Span) -> Span {
        let us = self.smoothed + 4.0 * self.variation;
        Span(((f64::from(us) * 1e6) as u64).max(least.0) << self.doublings)
    }
}

/// One reduction for each window of packets: `recover` of RFC 6582.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Episode {
    /// Next new packet at the last reduction.
    recover: u32,
    /// Whether packets from before it are not yet answered.
    pub active: bool,
}

impl Episode {
    /// All packets before `expected` have arrived.
    #[inline]
    pub(super) fn acknowledged(&mut self, expected: u32) {
        self.active &= expected < self.recover;
    }

    /// Whether a sign of congestion about packet `sequence` is news; then it begins, with `next` the next new packet.
    pub(super) fn begins(&mut self, sequence: u32, next: u32) -> bool {
        let news = sequence >= self.recover;
        if news {
            (self.recover, self.active) = (next, true);
        }
        news
    }

    /// Everything was lost: later signs about packets before `next` are no news, and the window grows meanwhile.
    pub(super) fn forget(&mut self, next: u32) {
        (self.recover, self.active) = (next, false);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;

    /// RFC 6298 by hand: 10 µs, then 18 µs: RTTVAR ¾ · 5 + ¼ · 8 = 5.75, SRTT 11, RTO 34 µs.
    #[test]
    fn the_time_out_follows_delay_and_variation() {
        let mut rto = Rto::new(&path(100, 10));
        assert_eq!(rto.span(Span::ZERO), Span::from_us(30));
        rto.sample(Span::from_us(18));
        assert_eq!(rto.span(Span::ZERO), Span::from_us(34));
        rto.expired();
        rto.expired();
        assert_eq!(
            [rto.span(Span::ZERO), rto.span(Span::from_us(100))],
            [Span::from_us(136), Span::from_us(400)]
        );
        rto.sample(Span::from_us(11));
        assert_eq!(rto.span(Span::from_us(100)), Span::from_us(100));
    }

    #[test]
    fn a_window_has_one_reduction() {
        let mut episode = Episode::default();
        assert!(episode.begins(3, 20) && !episode.begins(19, 25));
        episode.acknowledged(19);
        assert!(episode.active);
        episode.acknowledged(20);
        assert!(!episode.active && episode.begins(20, 40));
        episode.forget(50);
        assert!(!episode.active && !episode.begins(49, 60) && episode.begins(50, 60));
    }
}
