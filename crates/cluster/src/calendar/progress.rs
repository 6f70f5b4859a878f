//! How far jobs come: work left in iterations, exactly, and the rate at which an episode showed it to be done.

use windtunnel_kernel::{Span, Time};

use super::{EpisodeJob, EpisodeJobResult};
use crate::life::Segment;

/// Iterations in 2^-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Work(pub(super) u128);

impl Work {
    pub(super) const ONE: u128 = 1 << 64;

    pub(super) fn iterations(count: u64) -> Self {
        Self(u128::from(count) << 64)
    }

    pub(super) fn ceil(self) -> u64 {
        self.0.div_ceil(Self::ONE) as u64
    }

    /// Picoseconds for it at `iteration` per iteration, rounded up.
    fn at(self, iteration: Span) -> u128 {
        let (whole, part) = (self.0 >> 64, self.0 & (Self::ONE - 1));
        whole * u128::from(iteration.0) + (part * u128::from(iteration.0)).div_ceil(Self::ONE)
    }

    /// What is left after `done`; a job that has not ended has some.
    pub(super) fn less(self, done: Self) -> Self {
        Self(self.0.saturating_sub(done.0).max(1))
    }

    /// Work done in `ps` at `iteration` per iteration, rounded down.
    fn done_in(ps: u128, iteration: Span) -> Self {
        let iteration = u128::from(iteration.0.max(1));
        Self(((ps / iteration) << 64) + (((ps % iteration) << 64) / iteration))
    }
}

/// How a job advances in an episode: as simulated while that reaches; afterwards at its mean, as if it had entered
/// without a phase.
#[derive(Debug, Default)]
pub(super) struct Rate {
    start: Time,
    phase: Span,
    ends: Vec<Time>,
    /// Mean of the iterations after the first (of the only one if there is one).
    pub(super) mean: Span,
    /// How far the simulation saw this job.
    simulated: Span,
}

impl Rate {
    pub(super) fn of(job: &EpisodeJob, seen: &EpisodeJobResult) -> Self {
        let ends = seen.ends.clone();
        let last = ends.last().copied().unwrap_or(job.start);
        let mean = match ends.len() {
            0 => Span(1),
            1 => last - job.start,
            n => Span((last - ends[0]).0.div_ceil(n as u64 - 1)),
        };
        Self { start: job.start, phase: job.phase, ends, mean, simulated: last - Time::ZERO }
    }

    /// Whether `ns` after the episode's start lies beyond what was simulated of the job.
    pub(super) fn is_extrapolated(&self, ns: u64) -> bool {
        ns > self.simulated.ns_ceil()
    }

    /// Nanoseconds from the episode's start until `work` is done, rounded up.
    pub(super) fn time_for(&self, work: Work) -> u64 {
        let simulated = u128::from(self.simulated.0);
        let needed = work.ceil() as usize;
        let ps = if work.0.is_multiple_of(Work::ONE) && needed <= self.ends.len() {
            u128::from((self.ends[needed - 1] - Time::ZERO).0)
        } else {
            // An entry in mid-iteration, or more work than was simulated: at the mean.
            let seen = Work::iterations(self.ends.len() as u64);
            if work > seen {
                let ahead = u128::from(self.phase.0);
                simulated.max((simulated + Work(work.0 - seen.0).at(self.mean)).saturating_sub(ahead))
            } else {
                u128::from(self.start.0) + work.at(self.mean)
            }
        };
        u64::try_from(ps.div_ceil(1_000)).unwrap_or(u64::MAX)
    }

    /// Work done `ns` after the episode's start.
    pub(super) fn done_by(&self, ns: u64) -> Work {
        let ps = u128::from(ns) * 1_000;
        let whole = self.ends.partition_point(|&end| u128::from(end.0) <= ps);
        let since = match whole {
            0 => self.start,
            n => self.ends[n - 1],
        };
        let passed = ps.saturating_sub(u128::from(since.0));
        let (passed, iteration) = match self.ends.get(whole) {
            // An iteration on its way that was simulated to its end is done in the time that it took.
            Some(&end) => (passed, end - since),
            None => (passed + u128::from(self.phase.0), self.mean),
        };
        Work(Work::iterations(whole as u64).0 + Work::done_in(passed, iteration).0)
    }
}

/// Nanoseconds of work that roundings may come to.
const ROUNDED: u64 = 1_000;

impl Rate {
    /// Nanoseconds from the episode's start until `work` is done, with the writes on the way.
    pub(super) fn end_of(&self, work: Work, segment: &Segment) -> u64 {
        let net = self.time_for(work);
        // Work is rounded at every change; a write that is due as the job ends is not made for a remnant of it.
        let worked = net.saturating_sub(segment.pause.total() + ROUNDED);
        net.saturating_add(segment.writes_before(worked).saturating_mul(segment.write))
    }

    /// Of the nanoseconds since the episode's start, those in which no write that began since paused the job; and the same
    /// for the begin of the last write that has finished, if one has.
    pub(super) fn net(elapsed: u64, segment: &Segment) -> (u64, Option<u64>) {
        let state = segment.at(segment.begin + elapsed);
        let entry = segment.pause.total();
        let writes = state.parts.pauses().saturating_sub(entry);
        (elapsed - writes, state.kept.map(|kept| entry + kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(start: u64, phase: u64) -> EpisodeJob {
        let (start, phase) = (Time(start), Span(phase));
        EpisodeJob { job: 0, placement: vec![], start, phase, left: 30, done_before: 0 }
    }

    #[test]
    fn a_remnant_of_work_is_no_reason_for_a_checkpoint() {
        let ends = [50_000_000, 100_000_000].map(Time).to_vec();
        let rate = Rate::of(&job(0, 0), &EpisodeJobResult { ends });
        let (pause, write) = (crate::life::Parts::default(), 7_000);
        let segment = Segment { begin: 0, pause, first: 100_000, every: 100_000, write };
        assert!((100_000..=100_001).contains(&rate.end_of(Work(2 * Work::ONE + 1), &segment)));
        assert_eq!(rate.end_of(Work::iterations(3), &segment), 157_000);
    }

    #[test]
    fn a_slow_first_iteration_is_not_done_before_its_end() {
        // The first iteration takes 110, disturbed by a job that ends at 90; the others 40 (all ns).
        let ends = [120_000, 160_000, 200_000].map(Time).to_vec();
        let rate = Rate::of(&job(10_000, 0), &EpisodeJobResult { ends });
        assert_eq!(rate.mean, Span(40_000));
        assert_eq!(rate.done_by(65), Work(Work::ONE / 2));
        assert_eq!(rate.done_by(120), Work::iterations(1));
        assert_eq!(rate.done_by(140), Work(Work::ONE * 3 / 2));
        assert_eq!(rate.done_by(240), Work::iterations(4));
        assert_eq!(rate.time_for(Work::iterations(4)), 240);
    }

    #[test]
    fn a_phase_holds_work_up_while_simulated_and_not_beyond() {
        let ends = [70_000, 110_000].map(Time).to_vec();
        let rate = Rate::of(&job(30_000, 30_000), &EpisodeJobResult { ends });
        assert_eq!(rate.done_by(20), Work(0));
        assert_eq!(rate.done_by(90), Work(Work::ONE * 3 / 2));
        assert_eq!(rate.done_by(400), Work::iterations(10));
        assert_eq!(rate.time_for(Work::iterations(10)), 400);
        // Half an iteration beyond the simulated span, caught up at once.
        assert_eq!(rate.time_for(Work(Work::ONE * 5 / 2)), 110);
    }
}
