//! What the TCPs have in common: the retransmission time-out, the rule of one reduction per window, and how the first slow start
//! ends.

use windtunnel_kernel::{Bytes, Span};

use super::{Ack, PathFacts};

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
        let rtt = path.base_rtt.ps() as f32 / 1e6;
        Self { smoothed: rtt, variation: rtt / 2.0, doublings: 0 }
    }

    /// Something new was acknowledged. Stamps tell copies apart, so each is a sample (RFC 6298 §3).
    pub(super) fn sample(&mut self, rtt: Span) {
        let rtt = rtt.ps() as f32 / 1e6;
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
        Span::from_ps(((f64::from(us) * 1e6) as u64).max(least.ps()) << self.doublings)
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

/// Which time-outs hold ssthresh: those of data that a time-out has sent again before (RFC 5681 §3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expiries {
    /// Next new packet at the last one.
    next: u32,
}

impl Expiries {
    /// A time-out about `sequence`, the first packet missing, with `next` the next new one. Whether it is the first of this data.
    pub(super) fn is_first(&mut self, sequence: u32, next: u32) -> bool {
        let first = sequence >= self.next;
        self.next = next;
        first
    }
}

/// HyStart++ (RFC 9406): the first slow start ends where round trips grow, before a queue overflows.
///
/// In rounds of a window each, with at least 8 samples: a round whose least round trip is above the last one's by the threshold begins
/// *conservative slow start*, which grows by a quarter; after 5 rounds of it congestion avoidance begins, and where the least round
/// trip falls below that of its first round slow start goes on.
///
/// **Ours.** The threshold is an eighth of the last round's least round trip, at most 16 ms, as the RFC has it, but at least what 16 full
/// packets take at line rate where it has 4 ms, which is longer than any path of a data centre. What an acknowledgement adds has no
/// limit (L = ∞): the port spreads what it lets go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HyStart {
    /// Last packet of the round, and one more.
    end: u32,
    samples: u32,
    /// Least round trips in µs: of the round before, of this one, and of the round that began conservative slow start; infinite
    /// where not known.
    last: f32,
    current: f32,
    baseline: f32,
    /// The least threshold.
    least: f32,
    /// Rounds of conservative slow start, begun ones too.
    rounds: u8,
}

impl HyStart {
    const SAMPLES: u32 = 8;
    const ROUNDS: u8 = 5;
    const DIVISOR: f32 = 8.0;
    const GROWTH: f64 = 0.25;
    const MOST: f32 = 16_000.0;
    const PACKETS: u64 = 16;

    pub(super) fn new(path: &PathFacts) -> Self {
        let least = path.rate.serialise(Bytes::new(u64::from(path.mtu) * Self::PACKETS));
        let unknown = f32::INFINITY;
        Self {
            end: 0,
            samples: 0,
            last: unknown,
            current: unknown,
            baseline: unknown,
            least: least.ps() as f32 / 1e6,
            rounds: 0,
        }
    }

    /// An acknowledgement in the first slow start: by how much of what it acknowledges the window grows, `None` where slow start is
    /// over.
    pub(super) fn heard(&mut self, ack: &Ack) -> Option<f64> {
        if ack.expected > self.end {
            self.end = ack.next;
            (self.last, self.current, self.samples) = (self.current, f32::INFINITY, 0);
            if self.rounds > 0 {
                self.rounds += 1;
            }
            if self.rounds > Self::ROUNDS {
                return None;
            }
        }
        self.current = self.current.min(ack.rtt.ps() as f32 / 1e6);
        self.samples += 1;
        if self.samples >= Self::SAMPLES {
            if self.rounds > 0 {
                if self.current < self.baseline {
                    (self.rounds, self.baseline) = (0, f32::INFINITY);
                }
            } else if self.last.is_finite() {
                let threshold = (self.last / Self::DIVISOR).min(Self::MOST).max(self.least);
                if self.current >= self.last + threshold {
                    (self.rounds, self.baseline) = (1, self.current);
                }
            }
        }
        Some(if self.rounds > 0 { Self::GROWTH } else { 1.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, path};
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

    /// RFC 9406 §4.2 by hand: rounds of 10 samples, 1,000 µs, then 1,124 and 1,125 µs: the threshold is an eighth, 125 µs. Five rounds
    /// of a quarter, the one in which they began among them; shorter round trips lead back.
    #[test]
    fn slow_start_ends_where_round_trips_grow() {
        let mut start = HyStart::new(&path(100, 1_000));
        let mut next = 0;
        let mut round = |start: &mut HyStart, rtt: u64| -> Vec<Option<f64>> {
            let (from, end) = (next, next + 10);
            next = end;
            (1..=10)
                .map(|n| start.heard(&Ack { expected: from + n, next: end, ..ack(0, rtt, 1, 0) }))
                .collect()
        };
        for (rtt, last) in [(1_000, 1.0), (1_124, 1.0), (1_264, 1.0)] {
            assert_eq!(round(&mut start, rtt)[9], Some(last), "{rtt}");
        }
        let found = round(&mut start, 1_422);
        assert_eq!((found[6], found[7]), (Some(1.0), Some(0.25)), "the eighth sample shows it");
        assert_eq!(round(&mut start, 1_421)[9], Some(1.0), "below the baseline");
        assert_eq!(round(&mut start, 1_600)[9], Some(0.25));
        for _ in 0..4 {
            assert_eq!(round(&mut start, 1_600), [Some(0.25); 10]);
        }
        assert_eq!(round(&mut start, 1_600)[0], None, "five rounds are over");
    }

    #[test]
    fn data_that_timed_out_before_is_no_first() {
        let mut expiries = Expiries::default();
        assert!(expiries.is_first(0, 50) && !expiries.is_first(0, 50) && !expiries.is_first(49, 60));
        assert!(!expiries.is_first(59, 60) && expiries.is_first(60, 70));
    }
}
