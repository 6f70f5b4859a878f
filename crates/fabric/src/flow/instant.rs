//! Solver time: whole ticks and a fraction, so that a departure keeps its place between two ticks however long the run.
//!
//! A double of picoseconds loses the picosecond after 2.5 hours. Here the integer part is exact for 213 days and the
//! fraction keeps 52 bits, so spans between nearby instants lose nothing to their distance from zero.
//!
//! Departures are snapped to a grid of 1/256 tick ([`Instant::snapped_after`]): what ends at one instant but for the
//! rounding of doubles ends at the very same one, whatever else happens then.

use windtunnel_kernel::Time;

/// An instant: `tick + fraction` ticks since the start, `0 <= fraction < 1`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Default)]
pub struct Instant {
    tick: u64,
    fraction: f64,
}

impl Instant {
    /// The start.
    pub const ZERO: Self = Self { tick: 0, fraction: 0.0 };
    /// Later than every event.
    pub const NEVER: Self = Self { tick: u64::MAX, fraction: 0.0 };

    /// The instant `tick + fraction`; `fraction` must lie in [0, 1).
    pub fn new(tick: u64, fraction: f64) -> Self {
        debug_assert!((0.0..1.0).contains(&fraction), "a fraction of a tick: {fraction}");
        Self { tick, fraction }
    }

    /// A whole tick.
    #[inline]
    pub const fn at(tick: u64) -> Self {
        Self { tick, fraction: 0.0 }
    }

    /// Whole ticks.
    pub const fn tick(self) -> u64 {
        self.tick
    }

    /// The rest.
    pub const fn fraction(self) -> f64 {
        self.fraction
    }

    /// This instant and `ticks` (not negative) more; [`Self::NEVER`] where it does not fit.
    #[inline]
    pub fn after(self, ticks: f64) -> Self {
        // What is too long for 64 bits becomes 2^64 - 1, and so does every sum that is.
        let whole = ticks as u64;
        let fraction = self.fraction + (ticks - whole as f64);
        let carry = fraction >= 1.0;
        let tick = self.tick.saturating_add(whole).saturating_add(u64::from(carry));
        // One more is what a notice may round up to.
        if tick >= u64::MAX - 1 {
            return Self::NEVER;
        }
        Self { tick, fraction: if carry { fraction - 1.0 } else { fraction } }
    }

    /// Ticks since `earlier`; negative if that is later.
    #[inline]
    pub fn since(self, earlier: Self) -> f64 {
        let fraction = self.fraction - earlier.fraction;
        match self.tick.checked_sub(earlier.tick) {
            Some(ticks) => ticks as f64 + fraction,
            None => fraction - (earlier.tick - self.tick) as f64,
        }
    }

    /// This instant and `ticks` more, to the nearest 1/256 tick. Where `ticks` is so long that doubles err by more than
    /// that (beyond 2^42 ticks, four seconds of picoseconds), to the nearest 1/16, 1/2 or whole tick.
    #[inline]
    pub fn snapped_after(self, ticks: f64) -> Self {
        const LONG: [f64; 3] = [(1u64 << 42) as f64, (1u64 << 46) as f64, (1u64 << 49) as f64];
        let steps = if ticks < LONG[0] {
            256.0
        } else if ticks < LONG[1] {
            16.0
        } else if ticks < LONG[2] {
            2.0
        } else {
            1.0
        };
        let exact = self.after(ticks);
        if exact == Self::NEVER {
            return Self::NEVER;
        }
        let fraction = (exact.fraction * steps + 0.5).floor() / steps;
        if fraction >= 1.0 { Self::at(exact.tick + 1) } else { Self { tick: exact.tick, fraction } }
    }

    /// The notice: rounded up to a tick.
    #[inline]
    pub fn notice(self) -> Time {
        if self == Self::NEVER {
            Time::NEVER
        } else {
            Time::from_ps(self.tick + u64::from(self.fraction > 0.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_the_fraction_far_from_zero() {
        let far = Instant::at(17_000_000_000_000_000_000 >> 2);
        let later = far.after(0.75).after(0.75);
        assert_eq!((later.tick(), later.fraction()), (far.tick() + 1, 0.5));
        assert_eq!(later.since(far), 1.5);
        assert_eq!(far.since(later), -1.5);
    }

    #[test]
    fn a_notice_rounds_up_but_not_by_dust() {
        let start = Instant::at(7);
        assert_eq!(start.snapped_after(0.3).notice(), Time::from_ps(8));
        assert_eq!(start.snapped_after(2.000_001), Instant::at(9));
        assert_eq!(start.snapped_after(1.999_999), Instant::at(9));
        assert_eq!(start.snapped_after(1e14 + 0.02), Instant::at(100_000_000_000_007));
        assert_eq!(start.snapped_after(1e14 + 0.5).notice(), Time::from_ps(100_000_000_000_008));
        assert_eq!(Instant::NEVER.notice(), Time::NEVER);
        assert_eq!(start.snapped_after(1e30), Instant::NEVER);
    }

    /// 106 days are 2^63 ps, and 53 days 2^62.
    #[test]
    fn spans_of_months_keep_their_sign_and_their_end() {
        let day = 86_400_000_000_000_000u64;
        for days in [50, 54, 105, 107, 185, 200, 213] {
            let later = Instant::ZERO.after((days * day) as f64);
            assert_eq!(later, Instant::at(days * day), "{days} d");
            assert_eq!(later.since(Instant::ZERO), (days * day) as f64);
            assert_eq!(Instant::ZERO.since(later), -((days * day) as f64));
            assert_eq!(later.after(1_000.0).since(later), 1_000.0);
        }
        assert_eq!(Instant::at(200 * day).after((14 * day) as f64), Instant::NEVER);
        assert_eq!(Instant::ZERO.after(214.0 * day as f64), Instant::NEVER);
    }
}
