//! What a run cost and why it was no faster: always counted, for two looks at a clock per window and thread.

use std::time::{Duration, Instant};

/// Of all runs of one executor. Counts are the same for any number of threads; durations are of the wall clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunStatistics {
    /// Conservative windows.
    pub windows: u64,
    /// Events handled.
    pub events: u64,
    /// Mail handed over.
    pub mail: u64,
    /// Events of the busiest thread, summed over windows: with events of equal cost and free barriers the run takes as
    /// long as these. Depends on threads.
    pub critical_events: u64,
    /// Times that processes changed hands.
    pub redeals: u64,
    /// Windows that the caller's thread did alone because that was faster.
    pub windows_alone: u64,
    /// Duration of the runs.
    pub elapsed: Duration,
    /// One per thread, the caller's first.
    pub threads: Vec<ThreadStatistics>,
}

/// Of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadStatistics {
    /// Events handled.
    pub events: u64,
    /// Time in processes and their mail.
    pub busy: Duration,
    /// Time at the barrier, and for the caller's thread also with the control of the run.
    pub waiting: Duration,
}

impl ThreadStatistics {
    /// What came after `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            events: self.events - earlier.events,
            busy: self.busy.saturating_sub(earlier.busy),
            waiting: self.waiting.saturating_sub(earlier.waiting),
        }
    }
}

impl RunStatistics {
    /// Mean events a window.
    pub fn events_per_window(&self) -> f64 {
        ratio(self.events as f64, self.windows as f64)
    }

    /// Share of all threads' time that was spent at the barrier, from 0 to 1.
    pub fn barrier_share(&self) -> f64 {
        let sum = |of: fn(&ThreadStatistics) -> Duration| -> f64 {
            self.threads.iter().map(|thread| of(thread).as_secs_f64()).sum()
        };
        let waiting = sum(|thread| thread.waiting);
        ratio(waiting, waiting + sum(|thread| thread.busy))
    }

    /// Speed-up that the windows allow: events over those of the busiest thread, window by window.
    pub fn parallelism(&self) -> f64 {
        ratio(self.events as f64, self.critical_events as f64)
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The instant of the wall clock.
#[allow(clippy::disallowed_methods, reason = "statistics tell the wall clock; no result depends on it")]
pub(super) fn now() -> Instant {
    Instant::now()
}
