//! Two clocks: the calendar of a run in nanoseconds, and the picoseconds of tables.
//!
//! Columns in picoseconds hold 213 days. Rows of what begins in the first [`FIRST`] days count from the run's start; later
//! ones from midnight of the day on which their episode begins, which the column `origin_s` beside them says, in whole
//! seconds since the run's start. An instant is always `origin_s` and the picoseconds together, exact for 584 years.

use windtunnel_kernel::{CalendarTime, Span};

/// Nanoseconds of a day.
const DAY: u64 = 86_400 * 1_000_000_000;

/// What begins by then is counted from the run's start: there are 113 days left for it to last.
const FIRST: u64 = 100 * DAY;

/// Where an episode begins: the day that its picoseconds count from, and the picoseconds since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Nanoseconds from the run's start to the zero of its picoseconds; whole seconds where there are rows.
    pub(crate) epoch: u64,
    /// From there to the episode's start.
    pub ps: u64,
}

impl Origin {
    /// Of what begins with the run.
    pub(crate) const RUN: Self = Self { epoch: 0, ps: 0 };

    /// Of what begins at `start`.
    pub(crate) const fn of(start: CalendarTime) -> Self {
        let epoch = if start.ns() < FIRST { 0 } else { start.ns() / DAY * DAY };
        Self { epoch, ps: CalendarTime::from_ns(start.ns() - epoch).network_time().ps() }
    }

    /// Of what begins at `start` and has no rows: its picoseconds count from there, and all 213 days are left.
    pub(crate) const fn at(start: CalendarTime) -> Self {
        Self { epoch: start.ns(), ps: 0 }
    }

    /// Seconds from the run's start to the zero of its picoseconds.
    pub(crate) const fn seconds(self) -> u64 {
        self.epoch / 1_000_000_000
    }

    /// The nanosecond of the run in which, or at whose begin, an instant in its picoseconds lies.
    pub(crate) const fn calendar_ns(self, ps: u64) -> u64 {
        self.epoch.saturating_add(Span::from_ps(ps).ns_ceil())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Origin and picoseconds together are the instant, whatever the year, and a span of 113 days still fits.
        #[test]
        fn an_instant_is_its_origin_and_its_picoseconds(start in any::<u64>()) {
            let origin = Origin::of(CalendarTime::from_ns(start));
            let sum = u128::from(origin.seconds()) * 1_000_000_000_000 + u128::from(origin.ps);
            prop_assert_eq!(sum, u128::from(start) * 1_000);
            prop_assert_eq!(origin.calendar_ns(origin.ps), start);
            prop_assert!(origin.ps <= u64::MAX - 113 * DAY * 1_000);
        }
    }

    #[test]
    fn the_first_hundred_days_count_from_the_start() {
        assert_eq!(
            Origin::of(CalendarTime::from_ns(99 * DAY + 7)),
            Origin { epoch: 0, ps: (99 * DAY + 7) * 1_000 }
        );
        let late = Origin::of(CalendarTime::from_ns(303 * DAY + 7));
        assert_eq!((late.seconds() / 86_400, late.ps), (303, 7_000));
    }
}
