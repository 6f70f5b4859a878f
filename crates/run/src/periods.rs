//! Periods in which jobs were congested, each with its cause.

use std::collections::BTreeMap;

/// Why a job is congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its own flows meet.
    Own,
    /// The newest job of its group.
    Job(usize),
}

/// A job's time of congestion, with one cause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Period {
    /// Which.
    pub job: usize,
    /// From when, in nanoseconds.
    pub from: u64,
    /// Until when.
    pub until: u64,
    /// Why.
    pub cause: Cause,
    /// Iteration time over that on an ideal fabric, at its worst.
    pub slowdown: f64,
}

/// Periods, those of a job that follow each other joined.
#[derive(Debug, Default)]
pub(super) struct Periods {
    /// The last period of each job, which may go on.
    open: BTreeMap<usize, Period>,
    closed: Vec<Period>,
}

impl Periods {
    /// `job` was congested from `from` to `until`; goes on a period that ended at `from`.
    pub(super) fn add(&mut self, period: Period) {
        if let Some(known) = self.open.get_mut(&period.job) {
            if known.until == period.from && known.cause == Cause::Own && period.cause != Cause::Own {
                // It met itself already; what came on top is another period.
            } else if known.until == period.from {
                known.until = period.until;
                known.slowdown = known.slowdown.max(period.slowdown);
                return;
            }
        }
        self.closed.extend(self.open.insert(period.job, period));
    }

    /// All by their beginning.
    pub(super) fn into_sorted(self) -> Vec<Period> {
        let mut periods = self.closed;
        periods.extend(self.open.into_values());
        periods.sort_by_key(|period| (period.from, period.job));
        periods
    }
}
