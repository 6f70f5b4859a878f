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

    /// Time for it at `iteration` per iteration, rounded up.
    fn at(self, iteration: Span) -> Span {
        let (whole, part) = (self.0 >> 64, self.0 & (Self::ONE - 1));
        let ps = whole * u128::from(iteration.0) + (part * u128::from(iteration.0)).div_ceil(Self::ONE);
        Span(ps as u64)
    }

    /// What is left after `done`; a job that has not ended has some.
    pub(super) fn less(self, done: Self) -> Self {
        Self(self.0.saturating_sub(done.0).max(1))
    }

    /// Work done in `span` at `iteration` per iteration, rounded down.
    fn done_in(span: Span, iteration: Span) -> Self {
        let (span, iteration) = (u128::from(span.0), u128::from(iteration.0.max(1)));
        Self(((span / iteration) << 64) + (((span % iteration) << 64) / iteration))
    }
}

/// How a job advances in an episode: as simulated while that reaches, at its mean afterwards.
pub(super) struct Rate {
    start: Time,
    ends: Vec<Time>,
    /// Mean of the iterations after the first (of the only one if there is one).
    pub(super) mean: Span,
    /// How far the simulation saw this job.
    pub(super) simulated: Span,
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
        Self { start: job.start, ends, mean, simulated: last - Time::ZERO }
    }

    /// Time from the episode's start until `work` is done.
    pub(super) fn time_for(&self, work: Work) -> Span {
        let needed = work.ceil() as usize;
        if work.0.is_multiple_of(Work::ONE) && needed <= self.ends.len() {
            return self.ends[needed - 1] - Time::ZERO;
        }
        // An entry in mid-iteration, or more work than was simulated: at the mean from the job's entry on.
        let seen = Work::iterations(self.ends.len() as u64);
        if work > seen {
            self.simulated + Work(work.0 - seen.0).at(self.mean)
        } else {
            (self.start - Time::ZERO) + work.at(self.mean)
        }
    }

    /// Work done `span` after the episode's start.
    pub(super) fn done_by(&self, span: Span) -> Work {
        let whole = self.ends.partition_point(|&end| end - Time::ZERO <= span);
        let since = match whole {
            0 => self.start,
            n => self.ends[n - 1],
        };
        // An iteration on its way that was simulated to its end is done in the time that it took.
        let iteration = self.ends.get(whole).map_or(self.mean, |&end| end - since);
        Work(Work::iterations(whole as u64).0 + Work::done_in(Time(span.0).since(since), iteration).0)
    }
}

impl Rate {
    /// Time from the episode's start until `work` is done, with the writes on the way.
    pub(super) fn end_of(&self, work: Work, segment: &Segment) -> Span {
        let net = self.time_for(work);
        let worked = net.ns_ceil().saturating_sub(segment.pause.total());
        net + Span::from_ns(segment.writes_before(worked) * segment.write)
    }

    /// Of the time since the episode's start, that in which no write that began since paused the job; and the same for
    /// the begin of the last write that has finished, if one has.
    pub(super) fn net(elapsed: Span, segment: &Segment) -> (Span, Option<Span>) {
        let state = segment.at(segment.begin + elapsed.0 / 1_000);
        let entry = segment.pause.total();
        let writes = state.parts.pauses().saturating_sub(entry);
        let safe = state.kept.map(|kept| Span::from_ns(entry + kept));
        (Span(elapsed.0 - writes * 1_000), safe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_first_iteration_is_not_done_before_its_end() {
        // The first iteration takes 110, disturbed by a job that ends at 90; the others 40.
        let job = EpisodeJob { job: 0, placement: vec![], start: Time(10), left: 3, done_before: 0 };
        let seen = EpisodeJobResult { ends: vec![Time(120), Time(160), Time(200)] };
        let rate = Rate::of(&job, &seen);
        assert_eq!(rate.mean, Span(40));
        assert_eq!(rate.done_by(Span(65)), Work(Work::ONE / 2));
        assert_eq!(rate.done_by(Span(120)), Work::iterations(1));
        assert_eq!(rate.done_by(Span(140)), Work(Work::ONE * 3 / 2));
        assert_eq!(rate.done_by(Span(240)), Work::iterations(4));
    }
}
