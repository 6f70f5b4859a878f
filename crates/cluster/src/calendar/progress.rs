//! How far jobs come: work left in iterations, exactly, and the rate at which an episode showed it to be done.

use windtunnel_kernel::{CalendarTime, Span, Time};

use super::{Episode, EpisodeJob, EpisodeJobResult};
use crate::life::Segment;

/// Iterations in 2^-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
        whole * u128::from(iteration.ps()) + (part * u128::from(iteration.ps())).div_ceil(Self::ONE)
    }

    /// Nanoseconds for it at `iteration` per iteration.
    pub(super) fn time_at(self, iteration: Span) -> u64 {
        CalendarTime::from_exact_ps(self.at(iteration)).ns()
    }

    /// What is left after `done`; a job that has not ended has some.
    pub(super) fn less(self, done: Self) -> Self {
        Self(self.0.saturating_sub(done.0).max(1))
    }

    /// Work done in `ps` at `iteration` per iteration, rounded down.
    fn done_in(ps: u128, iteration: Span) -> Self {
        let iteration = u128::from(iteration.ps().max(1));
        Self(((ps / iteration) << 64) + (((ps % iteration) << 64) / iteration))
    }
}

/// The first of the iterations with these ends whose mean is the pace of those that were not simulated: those that begin after the
/// first, and after all jobs of the group have `entered`; the last one if there is none.
pub fn lasting(ends: &[Time], entered: Time) -> usize {
    (ends.partition_point(|&end| end < entered) + 1).min(ends.len().saturating_sub(1))
}

/// How a job advances in an episode: as simulated from the instant on at which its group had gathered, while that reaches, then at
/// its mean. Phases are a device of the simulation, so what is done before that instant does not count, nor the time until then.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// Picoseconds of the simulation before the episode's start, by the clock of this job.
    gathered: u64,
    /// Begin of the first iteration, in the simulation as all that follows.
    start: Time,
    /// Ends of the iterations that were simulated.
    ends: Vec<Time>,
    /// Done when the job's pause is over, since when it counts; of one that is redone, when its present iteration began.
    before: Work,
    /// Iterations of the simulation that were done before.
    redone: u64,
    /// Mean of the iterations that begin after the first, and after all jobs of the group have entered (of the last one if
    /// there is none).
    pub(super) mean: Span,
    /// By what part of it that may be off, with a confidence of 95%, as far as that is known.
    error: Option<f64>,
    /// Whether other jobs are or were in the episode.
    shared: bool,
    /// By how much a rerun has missed where the present iteration began.
    missed: Span,
}

/// Which of the iterations with `ends` in a rerun that `job` is in began next to when its present one did.
pub fn nearest(job: &EpisodeJob, ends: &[Time]) -> usize {
    let after = ends.partition_point(|&end| end < job.boundary);
    let before = if after == 0 { job.start } else { ends[after - 1] };
    let to = |begin: Time| begin.ps().abs_diff(job.boundary.ps());
    match ends.get(after) {
        Some(&next) if to(next) < to(before) => after + 1,
        _ => after,
    }
}

impl Rate {
    /// Of `job`, a member of `episode`.
    pub(super) fn of(job: &EpisodeJob, seen: &EpisodeJobResult, episode: &Episode) -> Self {
        let (ends, entered) = (seen.ends.clone(), episode.entered());
        let mean = match ends[..] {
            [] => Span::from_ps(1),
            [only] => only - job.start,
            [.., last] => {
                let first = lasting(&ends, entered);
                Span::from_ps((last - ends[first - 1]).ps().div_ceil((ends.len() - first) as u64))
            }
        };
        let gathered = episode.gathered().ps();
        let mut rate = Self { gathered, start: job.start, ends, redone: job.redone, mean, ..Self::default() };
        rate.error = seen.certainty.error;
        rate.shared = episode.jobs.len() + episode.rerun.as_ref().map_or(0, |rerun| rerun.gone.len()) > 1;
        if episode.rerun.is_some() {
            // Its present iteration began then, by the clock of what was. That of the rerun may have drifted: the iteration
            // that began next to it stands for it.
            let present = nearest(job, &rate.ends);
            let (begin, _) = rate.iteration(present);
            rate.gathered = (begin + gathered).saturating_sub(job.boundary.ps());
            rate.missed = Span::from_ps(begin.abs_diff(job.boundary.ps()));
            rate.redone = present as u64;
            rate.before = Work::iterations(rate.redone);
            return rate;
        }
        let before = rate.until(u128::from(job.pause().ps()) + u128::from(gathered));
        Self { before, ..rate }
    }

    /// Iterations of the simulation that were done before what it tells of.
    pub(super) const fn redone(&self) -> u64 {
        self.redone
    }

    /// When the last simulated iteration ended, in picoseconds.
    fn last(&self) -> u64 {
        self.ends.last().unwrap_or(&self.start).ps()
    }

    /// When the iteration after `whole` simulated ones begins, and how long it takes.
    fn iteration(&self, whole: usize) -> (u64, Span) {
        let begin = if whole == 0 { self.start } else { self.ends[whole - 1] };
        (begin.ps(), self.ends.get(whole).map_or(self.mean, |&end| end - begin))
    }

    /// Where its iterations began `ns` after the episode's start and before, but after `first` of the simulation and not long
    /// before `since`: calls `mark` with each begin, in picoseconds from the episode's start. The work left at the last of them, if
    /// `left` was when the episode began; `None` if it has not begun to work.
    pub(super) fn boundaries(
        &self,
        ns: u64,
        first: u64,
        since: i128,
        left: Work,
        mut mark: impl FnMut(i128),
    ) -> Option<Work> {
        let now = CalendarTime::from_ns(ns).exact_ps().unsigned_abs() + u128::from(self.gathered);
        if now < u128::from(self.start.ps()) {
            return None;
        }
        let (simulated, last, mean) = (self.ends.len() as u64, self.last(), self.mean.ps().max(1));
        let begin = |iteration: u64| match iteration.checked_sub(simulated) {
            None => u128::from(self.iteration(iteration as usize).0),
            Some(after) => u128::from(last) + u128::from(after) * u128::from(mean),
        };
        let present = if now < u128::from(last) {
            self.ends.partition_point(|&end| u128::from(end.ps()) <= now) as u64
        } else {
            simulated + u64::try_from((now - u128::from(last)) / u128::from(mean)).unwrap_or(u64::MAX >> 1)
        };
        // Of a million iterations those at the end are enough.
        let shown = since + i128::from(self.gathered) - i128::from(last);
        let skipped = if shown > 0 { simulated + (shown as u128 / u128::from(mean)) as u64 } else { 0 };
        for iteration in first.max(skipped.min(present))..=present {
            mark(begin(iteration) as i128 - i128::from(self.gathered));
        }
        Some(Work((left.0 + self.before.0).saturating_sub(Work::iterations(present).0).max(1)))
    }

    /// Work done in the simulation until `ps`.
    fn until(&self, ps: u128) -> Work {
        let whole = self.ends.partition_point(|&end| u128::from(end.ps()) <= ps);
        let (begin, iteration) = self.iteration(whole);
        let part = Work::done_in(ps.saturating_sub(u128::from(begin)), iteration);
        Work(Work::iterations(whole as u64).0 + part.0)
    }

    /// Variance of the time that the job takes for what it does within `ns` after the episode's start, in square nanoseconds;
    /// `ideal` is its iteration where nobody is in its way.
    ///
    /// Iterations of jobs that meet are a sample: in a run of all of them, where they meet at other points, they are another one. Of a
    /// mean of n iterations with a standard error e, the n of another such sample differ by √2·e, m more by √(1 + n/m)·e. Those of a
    /// job alone are what they are as far as they were simulated.
    pub(super) fn variance(&self, ns: u64, ideal: Span) -> f64 {
        let (ns, mean) = (ns as f64, self.mean.ps().max(1) as f64);
        let missed = self.missed.ps() as f64 / 1e3;
        if !self.shared {
            let simulated = self.last().saturating_sub(self.gathered) as f64 / 1e3;
            let beyond = (ns - simulated).max(0.0);
            let off = self.error.unwrap_or(0.0) / NORMAL_95 * beyond;
            return off * off + missed * missed;
        }
        // The interval of a few iterations that differ is wide, but others do no more to a job than make it this much longer.
        let any = ((1.0 - ideal.ps() as f64 / mean).max(0.0) / f64::sqrt(12.0)).max(NOISE);
        let (error, n) = match self.error.map(|error| error / NORMAL_95) {
            Some(error) if error <= any => (error, self.ends.len() as f64),
            _ => (any, 1.0),
        };
        let m = (ns * 1e3 / mean).max(1.0);
        let sample = (n / m) * (1.0 + (m / n).max(1.0));
        let off = error * ns;
        off * off * sample + missed * missed
    }

    /// Whether `ns` after the episode's start lies beyond what was simulated of the job.
    pub(super) fn is_extrapolated(&self, ns: u64) -> bool {
        ns > Span::from_ps(self.last().saturating_sub(self.gathered)).ns_ceil()
    }

    /// Nanoseconds from the episode's start until `work` is done, rounded up.
    pub(super) fn time_for(&self, work: Work) -> u64 {
        let work = Work(self.before.0 + work.0);
        let whole = self.ends.len().min((work.0 >> 64) as usize);
        let (begin, iteration) = self.iteration(whole);
        let at = u128::from(begin) + Work(work.0 - Work::iterations(whole as u64).0).at(iteration);
        CalendarTime::from_exact_ps(at.saturating_sub(u128::from(self.gathered))).ns()
    }

    /// The end of the iteration that is under way `ns` after the episode's start, and the work done by then.
    pub(super) fn end_after(&self, ns: u64) -> (u64, Work) {
        let all = self.before.0 + self.done_by(ns).0;
        // A nanosecond into an iteration is a rounding.
        let all = all.saturating_sub(Work::done_in(u128::from(ROUNDED), self.mean).0);
        let work = Work(all.div_ceil(Work::ONE) * Work::ONE - self.before.0);
        (self.time_for(work), work)
    }

    /// Work done `ns` after the episode's start.
    pub(super) fn done_by(&self, ns: u64) -> Work {
        let all = self.until(CalendarTime::from_ns(ns).exact_ps().unsigned_abs() + u128::from(self.gathered));
        Work(all.0.saturating_sub(self.before.0))
    }
}

/// Half the width of the interval that has 95% of a normal distribution, in standard deviations.
pub const NORMAL_95: f64 = 1.96;

/// Standard error that a job's own noise may make of a mean.
const NOISE: f64 = 0.01;

/// Picoseconds of work that roundings come to.
const CUT: u128 = 100;

/// Nanoseconds of work that roundings may come to.
const ROUNDED: u64 = 1_000;

impl Rate {
    /// Nanoseconds from the episode's start until `work` is done, with the writes on the way.
    pub(super) fn end_of(&self, work: Work, segment: &Segment) -> u64 {
        let net = self.net_of(work);
        // Work is rounded at every change; a write that is due as the job ends is not made for a remnant of it.
        let worked = net.saturating_sub(segment.pause.total() + ROUNDED);
        net.saturating_add(segment.writes_before(worked).saturating_mul(segment.write))
    }

    /// The same without the writes.
    pub(super) fn net_of(&self, work: Work) -> u64 {
        self.time_for(self.unrounded(work))
    }

    /// `work` without what roundings have added to it, a picosecond or two whenever it was cut: a job that would end with a
    /// nanosecond must not end with the next, when others, or its own reservation, have gone by.
    fn unrounded(&self, work: Work) -> Work {
        let whole = work.0 & (Work::ONE - 1) == 0;
        if whole { work } else { work.less(Work::done_in(CUT, self.mean)) }
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
    use windtunnel_kernel::RandomStream;

    use super::super::Certainty;
    use super::*;

    fn job(start: u64, phase: u64) -> EpisodeJob {
        let (start, phase) = (Time::from_ps(start), Span::from_ps(phase));
        EpisodeJob {
            job: 0,
            placement: vec![],
            start,
            phase,
            left: 30,
            done_before: 0,
            loading: false,
            age: Span::ZERO,
            redone: 0,
            boundary: start,
        }
    }

    /// Of a job that enters at `start`, of which `phase`, in a group whose last member does at `entered` and that has gathered at
    /// `gathered`.
    fn rate(start: u64, phase: u64, ends: Vec<Time>, entered: u64, gathered: u64) -> Rate {
        let jobs = vec![job(start, phase), job(entered, 0), job(gathered, gathered)];
        let seen = EpisodeJobResult { ends, certainty: Certainty::default() };
        Rate::of(
            &job(start, phase),
            &seen,
            &Episode { number: 0, jobs, horizon: Span::from_ps(1), rerun: None },
        )
    }

    #[test]
    fn a_remnant_of_work_is_no_reason_for_a_checkpoint() {
        let ends = [50_000_000, 100_000_000].map(Time::from_ps).to_vec();
        let rate = rate(0, 0, ends, 0, 0);
        let (pause, write) = (crate::life::Parts::default(), 7_000);
        let segment = Segment { begin: 0, pause, first: 100_000, every: 100_000, write };
        assert!((100_000..=100_001).contains(&rate.end_of(Work(2 * Work::ONE + 1), &segment)));
        assert_eq!(rate.end_of(Work::iterations(3), &segment), 157_000);
    }

    #[test]
    fn work_that_is_cut_and_goes_on_ends_with_its_nanosecond() {
        let segment = Segment {
            begin: 0,
            pause: crate::life::Parts::default(),
            first: u64::MAX,
            every: u64::MAX,
            write: 0,
        };
        for seed in 0..1_000 {
            let mut random = RandomStream::new(seed, "cuts", 0);
            let duration = 1_000_000 + random.below(1 << 50);
            let rate = rate(0, 0, vec![Time::from_ps(duration * 1_000)], 0, 0);
            let (mut left, mut passed) = (Work::iterations(1), 0);
            for _ in 0..random.below(20) {
                let until = 1 + random.below((duration - passed) / 2);
                // From its begin on: what was left before is not simulated again.
                left = left.less(Work::done_in(u128::from(until) * 1_000, rate.mean));
                passed += until;
                let rest = Rate { ends: Vec::new(), mean: rate.mean, ..Rate::default() };
                assert_eq!(passed + rest.end_of(left, &segment), duration, "{seed}");
                if duration - passed < 1_000 {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_slow_first_iteration_is_not_done_before_its_end() {
        // The first iteration takes 110, disturbed by a job that ends at 90; the others 40 (all ns).
        let ends = [120_000, 160_000, 200_000].map(Time::from_ps).to_vec();
        let rate = rate(10_000, 0, ends, 10_000, 0);
        assert_eq!(rate.mean, Span::from_ps(40_000));
        assert_eq!(rate.done_by(65), Work(Work::ONE / 2));
        assert_eq!(rate.done_by(120), Work::iterations(1));
        assert_eq!(rate.done_by(140), Work(Work::ONE * 3 / 2));
        assert_eq!(rate.done_by(240), Work::iterations(4));
        assert_eq!(rate.time_for(Work::iterations(4)), 240);
    }

    #[test]
    fn iterations_before_the_last_job_enters_tell_nothing_of_the_rate() {
        // Another job enters at 45: iterations of 20 become ones of 30.
        let ends: Vec<Time> = [20_000, 40_000, 65_000, 95_000, 125_000].map(Time::from_ps).to_vec();
        let mean = |ends: &[Time], entered| rate(0, 0, ends.to_vec(), entered, 0).mean;
        assert_eq!(mean(&ends, 45_000), Span::from_ps(30_000));
        // Where none has begun since, the last one is what is known.
        assert_eq!(mean(&ends[..3], 45_000), Span::from_ps(25_000));
        assert_eq!(mean(&ends, 0), Span::from_ps(26_250));
    }

    #[test]
    fn a_phase_takes_no_time_and_what_is_done_before_all_have_entered_does_not_count() {
        // The last to enter does so at 50, in the midst of the first iteration.
        let ends = [70_000, 110_000].map(Time::from_ps).to_vec();
        let rate = rate(30_000, 30_000, ends.clone(), 50_000, 50_000);
        assert_eq!(rate.before, Work(Work::ONE / 2));
        for (ns, halves) in [(0, 0), (20, 1), (40, 2), (60, 3), (100, 5), (400, 20)] {
            assert_eq!(rate.done_by(ns), Work(Work::ONE / 2 * halves), "{ns}");
            assert_eq!(rate.time_for(Work(Work::ONE / 2 * halves)), ns);
        }
        assert!(rate.is_extrapolated(61) && !rate.is_extrapolated(60));
        // The same after a pause of 20, over which the others go on.
        let paused =
            self::rate(50_000, 30_000, [90_000, 130_000].map(Time::from_ps).to_vec(), 50_000, 50_000);
        for (ns, halves) in [(0, 0), (19, 0), (40, 1), (60, 2), (80, 3)] {
            assert_eq!(paused.done_by(ns), Work(Work::ONE / 2 * halves), "{ns}");
        }
    }

    #[test]
    fn the_time_of_some_work_is_when_it_is_done() {
        for seed in 0..2_000 {
            let mut random = RandomStream::new(seed, "rates", 0);
            let phase = random.below(50_000_000);
            let start = random.below(100_000_000) + phase;
            let mut at = start;
            let mut one = || {
                at += 1_000 + random.below(90_000_000);
                Time::from_ps(at)
            };
            let ends = (0..=seed % 6).map(|_| one()).collect();
            let entered = start + random.below(200_000_000);
            let rate = rate(start, phase, ends, entered, phase + random.below(100_000_000));
            let work = Work(u128::from(1 + random.below(12 << 16)) << 48);
            let at = rate.time_for(work);
            // Divisions round down by a few 2^-64 of an iteration.
            assert!(rate.done_by(at).0 + 4 >= work.0, "{seed}: {rate:?} {work:?}");
            assert!(at == 0 || rate.done_by(at - 1) < work, "{seed}: {rate:?} {work:?}");
        }
    }
}
