//! Receivers that grant less where the fabric is congested: what share of its rate a NIC port grants, by the marks and trims of what
//! arrives there ([`Restraint`]).
//!
//! **Life cycle.** Each NIC port counts what arrives: packets, those marked, those trimmed, and of these those trimmed before the last
//! hop. At the end of each interval, of 3/4 to 5/4 of the stated length by a draw of its own lest ports act together, the mean
//! share of marks becomes the mean of itself and the interval's, and the port's rate falls or rises by it. No event is scheduled:
//! intervals that have ended are gone through when something arrives or is granted, in which time nothing could have been counted.
//!
//! **Invariants.** The rate stays within the least one and 1. What a port does depends on what arrived there, and when, alone.

use windtunnel_kernel::random::combine;

use super::transport::Restraint;

/// Weight of the newest interval's marks in their mean.
const GAIN: f64 = 0.5;
/// Intervals in which nothing came that are gone through: by then marks are forgotten, and the rate has long risen.
pub(super) const IDLE: u32 = 4_096;

/// State of a NIC port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restrained {
    /// Share of what it may grant.
    pub rate: f64,
    /// Mean share of packets marked.
    mean: f64,
    arrived: u32,
    marked: u32,
    trimmed: u32,
    /// Of those trimmed, not at the last hop.
    within: u32,
    /// Increases in a row.
    rises: u32,
    /// End of the present interval, and how many have ended.
    end: u64,
    intervals: u64,
    /// Of its draws.
    seed: u64,
}

/// A data packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub marked: bool,
    pub trimmed: bool,
    pub last_hop: bool,
}

impl Restrained {
    /// A port whose draws follow from `seed`.
    pub(super) fn new(rule: &Restraint, seed: u64) -> Self {
        let mut port = Self {
            rate: 1.0,
            mean: 0.0,
            arrived: 0,
            marked: 0,
            trimmed: 0,
            within: 0,
            rises: 0,
            end: 0,
            intervals: 0,
            seed,
        };
        port.begin(rule);
        port
    }

    fn begin(&mut self, rule: &Restraint) {
        let draw = (combine(self.seed, self.intervals) >> 11) as f64 / (1u64 << 53) as f64;
        self.end += ((0.75 + draw / 2.0) * rule.interval.ps() as f64) as u64 + 1;
        self.intervals += 1;
    }

    /// Counts a packet that arrives at `now`.
    pub(super) fn saw(&mut self, rule: &Restraint, now: u64, packet: Seen) {
        self.advance(rule, now);
        self.arrived += 1;
        self.marked += u32::from(packet.marked && !packet.trimmed);
        self.trimmed += u32::from(packet.trimmed);
        self.within += u32::from(packet.trimmed && !packet.last_hop);
    }

    /// Goes through the intervals that have ended by `now`.
    pub(super) fn advance(&mut self, rule: &Restraint, now: u64) {
        for _ in 0..IDLE {
            if now < self.end {
                return;
            }
            self.adjust(rule);
            self.begin(rule);
        }
        self.end = now;
        self.begin(rule);
    }

    fn adjust(&mut self, rule: &Restraint) {
        let whole = self.arrived - self.trimmed;
        let share = if whole == 0 { 0.0 } else { f64::from(self.marked) / f64::from(whole) };
        self.mean += GAIN * (share - self.mean);
        let mut falls = false;
        if rule.heeds_trims && self.within > 0 {
            self.rate -= f64::from(self.within) / f64::from(self.arrived);
            falls = true;
        }
        if self.mean > rule.target {
            self.rate *= 1.0 - (self.mean - rule.target) * rule.decrease;
            falls = true;
        }
        if falls {
            self.rises = 0;
        } else {
            let doubled = if rule.heeds_trims && self.marked == 0 { self.rises.min(30) } else { 0 };
            self.rate += rule.increase * f64::from(1u32 << doubled);
            self.rises += 1;
        }
        self.rate = self.rate.clamp(rule.least, 1.0);
        (self.arrived, self.marked, self.trimmed, self.within) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::Span;

    use super::*;

    const RULE: Restraint = Restraint {
        least: 0.1,
        interval: Span::from_us(16),
        target: 0.3,
        increase: 0.05,
        decrease: 0.75,
        heeds_trims: false,
    };
    const PLAIN: Seen = Seen { marked: false, trimmed: false, last_hop: false };

    /// `count` packets in each of `intervals`, all alike.
    fn after(rule: &Restraint, intervals: u64, seen: Seen) -> Restrained {
        let mut port = Restrained::new(rule, 7);
        for _ in 0..intervals {
            let end = port.end;
            (0..10).for_each(|at| port.saw(rule, end - 100 + at, seen));
            port.advance(rule, end);
        }
        port
    }

    /// All marked: g = 1/2, 3/4, …; the first intervals by hand, and then down to the least rate.
    #[test]
    fn marks_bring_the_rate_down_to_the_least() {
        let marked = Seen { marked: true, ..PLAIN };
        let first = 1.0 - 0.2 * 0.75;
        assert!((after(&RULE, 1, marked).rate - first).abs() < 1e-12);
        assert!((after(&RULE, 2, marked).rate - first * (1.0 - 0.45 * 0.75)).abs() < 1e-12);
        let mut low = after(&RULE, 40, marked);
        assert_eq!(low.rate, 0.1);
        // Nothing comes any more: one interval until marks are forgotten, then a twentieth each.
        let (later, before) = (low.end + 12 * 20_000_000, low.intervals);
        low.advance(&RULE, later);
        let risen = 0.1 + 0.05 * (low.intervals - before - 1) as f64;
        assert!((low.rate - risen).abs() < 1e-9 && risen < 1.0, "{} {risen}", low.rate);
        low.advance(&RULE, u64::MAX / 4);
        assert_eq!(low.rate, 1.0);
    }

    #[test]
    fn trims_within_the_fabric_count_where_they_are_heeded() {
        let cut = |last_hop| Seen { trimmed: true, last_hop, ..PLAIN };
        assert_eq!(after(&RULE, 3, cut(false)).rate, 1.0);
        let heeds = Restraint { heeds_trims: true, increase: 0.01, ..RULE };
        assert_eq!(after(&heeds, 1, cut(false)).rate, 0.1);
        assert_eq!(after(&heeds, 3, cut(true)).rate, 1.0);
        // Without marks it rises by 1, 2, 4, … hundredths.
        let mut port = Restrained { rate: 0.2, ..Restrained::new(&heeds, 7) };
        (0..3).for_each(|_| port.advance(&heeds, port.end));
        assert!((port.rate - 0.27).abs() < 1e-12, "{}", port.rate);
    }

    /// Ends of intervals differ from port to port, and stay within 3/4 and 5/4.
    #[test]
    fn ports_do_not_act_together() {
        let ends: Vec<u64> = (0..64).map(|seed| Restrained::new(&RULE, seed).end).collect();
        assert!(ends.iter().all(|&end| (12_000_000..=20_000_001).contains(&end)));
        let spread = ends.iter().max().zip(ends.iter().min()).map_or(0, |(most, least)| most - least);
        assert!(spread > 6_000_000, "{spread}");
    }
}
