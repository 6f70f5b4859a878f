//! The calendar of a cluster: jobs arrive, wait, run in episodes and end (DESIGN §7).
//!
//! An episode begins at each change of the running set. Its runner simulates the running jobs for a few iterations;
//! from the mean of those after the warm-up the calendar knows when the next job ends, and goes there at once. Work left
//! is kept in 2^-64 iterations, so the same changes give the same times whatever the machine. Calendar times round up to
//! a nanosecond.
//!
//! A job alone is a cluster with one job and goes the same way; if its iterations fit into one episode, nothing is
//! extrapolated.

use windtunnel_kernel::{CalendarTime, EndpointId, RandomStream, Span, Time};

use crate::placement::{FreeSet, Placement};
use crate::scheduler::{Scheduler, Waiting};

/// A job as it is submitted.
#[derive(Clone)]
pub struct JobRequest {
    /// GPUs that it needs.
    pub gpus: usize,
    /// Iterations to do.
    pub iterations: u64,
    /// When it is submitted.
    pub submit: CalendarTime,
    /// How its GPUs are chosen.
    pub placement: &'static dyn Placement,
    /// Its iteration time on an ideal fabric, from which its phase is drawn.
    pub ideal_iteration: Span,
}

/// How the cluster is run.
pub struct Settings {
    /// Number of GPUs.
    pub endpoints: u32,
    /// Of which on each host.
    pub endpoints_per_host: u32,
    /// Iterations simulated in an episode after the warm-up one.
    pub episode_iterations: u32,
    /// Whether jobs enter an episode at a drawn phase.
    pub draw_phases: bool,
    /// From a job's end to the next decision.
    pub reaction_delay: Span,
    /// Seed.
    pub seed: u64,
}

/// A job in an episode.
#[derive(Clone, Debug)]
pub struct EpisodeJob {
    /// Index of the job.
    pub job: usize,
    /// GPU of each rank.
    pub placement: Vec<EndpointId>,
    /// When it enters, from the episode's start.
    pub start: Time,
    /// Iterations after which it has ended.
    pub left: u64,
    /// Iterations that it had done before, rounded down.
    pub done_before: u64,
}

/// What an episode's simulation saw of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpisodeJobResult {
    /// End of each iteration, from the episode's start.
    pub ends: Vec<Time>,
}

/// Simulates episodes.
pub trait EpisodeRunner {
    /// Why it cannot go on.
    type Error;
    /// Simulates `jobs` until each has done `iterations` iterations or all it has left. The others go on meanwhile.
    ///
    /// # Errors
    /// Whatever stops the run; the calendar passes it on.
    fn run(
        &mut self,
        start: CalendarTime,
        jobs: &[EpisodeJob],
        iterations: u64,
    ) -> Result<Vec<EpisodeJobResult>, Self::Error>;

    /// The episode just simulated lasted `span` of network time; what was simulated beyond it never happened.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn lasted(&mut self, span: Span) -> Result<(), Self::Error>;
}

/// A job's way through the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobHistory {
    /// When it was submitted.
    pub submit: CalendarTime,
    /// When it first got its GPUs.
    pub start: Option<CalendarTime>,
    /// When it ended.
    pub finish: Option<CalendarTime>,
    /// Its GPUs.
    pub placement: Vec<EndpointId>,
    /// Whether its time was extrapolated beyond simulated iterations.
    pub extrapolated: bool,
}

/// Iterations in 2^-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Work(u128);

impl Work {
    const ONE: u128 = 1 << 64;

    fn iterations(count: u64) -> Self {
        Self(u128::from(count) << 64)
    }

    fn ceil(self) -> u64 {
        self.0.div_ceil(Self::ONE) as u64
    }

    /// Time for it at `iteration` per iteration, rounded up.
    fn at(self, iteration: Span) -> Span {
        let (whole, part) = (self.0 >> 64, self.0 & (Self::ONE - 1));
        let ps = whole * u128::from(iteration.0) + (part * u128::from(iteration.0)).div_ceil(Self::ONE);
        Span(ps as u64)
    }

    /// Work done in `span` at `iteration` per iteration, rounded down.
    fn done_in(span: Span, iteration: Span) -> Self {
        let (span, iteration) = (u128::from(span.0), u128::from(iteration.0.max(1)));
        Self(((span / iteration) << 64) + (((span % iteration) << 64) / iteration))
    }
}

struct Running {
    job: usize,
    placement: Vec<EndpointId>,
    left: Work,
}

/// Runs `jobs` to their end.
///
/// # Errors
/// The runner's.
pub fn run<R: EpisodeRunner>(
    jobs: &[JobRequest],
    settings: &Settings,
    scheduler: &mut dyn Scheduler,
    runner: &mut R,
) -> Result<Vec<JobHistory>, R::Error> {
    let mut cluster = Cluster::new(jobs, settings);
    loop {
        cluster.admit(scheduler);
        if cluster.running.is_empty() {
            match cluster.next_event() {
                Some(at) => cluster.now = at,
                None => return Ok(cluster.histories),
            }
            continue;
        }
        let episode = cluster.episode();
        let results = runner.run(cluster.now, &episode, u64::from(settings.episode_iterations) + 1)?;
        let rates: Vec<Rate> = episode.iter().zip(&results).map(|(job, seen)| Rate::of(job, seen)).collect();
        let lasted = cluster.run_episode(&rates, scheduler);
        runner.lasted(lasted)?;
    }
}

struct Cluster<'a> {
    jobs: &'a [JobRequest],
    settings: &'a Settings,
    now: CalendarTime,
    /// Jobs not yet submitted, the next one last.
    arrivals: Vec<usize>,
    queue: Vec<Waiting>,
    running: Vec<Running>,
    free: FreeSet,
    /// GPUs of ended jobs, from when on they can be given away, in order of time.
    releases: std::collections::VecDeque<(CalendarTime, Vec<EndpointId>)>,
    histories: Vec<JobHistory>,
}

impl<'a> Cluster<'a> {
    fn new(jobs: &'a [JobRequest], settings: &'a Settings) -> Self {
        let history = |job: &JobRequest| JobHistory {
            submit: job.submit,
            start: None,
            finish: None,
            placement: Vec::new(),
            extrapolated: false,
        };
        let mut arrivals: Vec<usize> = (0..jobs.len()).collect();
        arrivals.sort_by_key(|&job| std::cmp::Reverse((jobs[job].submit, job)));
        Self {
            jobs,
            settings,
            now: CalendarTime(0),
            arrivals,
            queue: Vec::new(),
            running: Vec::new(),
            free: FreeSet::new(settings.endpoints, settings.endpoints_per_host),
            releases: std::collections::VecDeque::new(),
            histories: jobs.iter().map(history).collect(),
        }
    }

    /// The next arrival or release.
    fn next_event(&self) -> Option<CalendarTime> {
        let arrival = self.arrivals.last().map(|&job| self.jobs[job].submit);
        let release = self.releases.front().map(|(at, _)| *at);
        arrival.into_iter().chain(release).min()
    }

    /// Takes in what has arrived or been released by now and starts jobs; returns whether any started.
    fn admit(&mut self, scheduler: &mut dyn Scheduler) -> bool {
        while let Some(&job) = self.arrivals.last().filter(|&&job| self.jobs[job].submit <= self.now) {
            self.arrivals.pop();
            self.queue.push(Waiting { job, gpus: self.jobs[job].gpus });
        }
        while self.releases.front().is_some_and(|(at, _)| *at <= self.now) {
            let (_, endpoints) = self.releases.pop_front().expect("the front was just seen");
            self.free.give(&endpoints);
        }
        let picked = scheduler.pick(&self.queue, self.free.count());
        let mut started = Vec::new();
        for position in picked {
            let job = self.queue[position].job;
            let Some(placement) = self.jobs[job].placement.place(&self.free, self.jobs[job].gpus) else {
                continue;
            };
            self.free.take(&placement);
            self.histories[job].start = Some(self.now);
            self.histories[job].placement.clone_from(&placement);
            self.running.push(Running { job, placement, left: Work::iterations(self.jobs[job].iterations) });
            started.push(job);
        }
        self.queue.retain(|waiting| !started.contains(&waiting.job));
        !started.is_empty()
    }

    fn episode(&self) -> Vec<EpisodeJob> {
        self.running
            .iter()
            .map(|entry| enter(self.jobs, self.settings, entry, self.running.len(), self.now))
            .collect()
    }

    /// Goes to the next change of the running set: the first job to end, or an arrival or release that starts one.
    /// Returns how long that took.
    fn run_episode(&mut self, rates: &[Rate], scheduler: &mut dyn Scheduler) -> Span {
        let begin = self.now;
        let ends: Vec<Span> =
            self.running.iter().zip(rates).map(|(entry, rate)| rate.time_for(entry.left)).collect();
        let first = *ends.iter().min().expect("some job is running");
        let lasting = self.running.len();
        while let Some(event) = self.next_event().filter(|at| at.0 - begin.0 < first.ns_ceil()) {
            self.now = event;
            if self.admit(scheduler) {
                let elapsed = Span((event.0 - begin.0) * 1_000);
                self.progress(&rates[..lasting], elapsed);
                return elapsed;
            }
        }
        self.progress(&rates[..lasting], first);
        for (position, end) in ends.iter().enumerate().rev().filter(|(_, end)| **end == first) {
            let entry = self.running.remove(position);
            let finish = CalendarTime(begin.0 + end.ns_ceil());
            self.histories[entry.job].finish = Some(finish);
            let release = CalendarTime(finish.0 + self.settings.reaction_delay.ns_ceil());
            self.releases.push_back((release, entry.placement));
        }
        self.now = CalendarTime(begin.0 + first.ns_ceil());
        first
    }

    /// Takes the work of `elapsed` off the first `rates.len()` running jobs.
    fn progress(&mut self, rates: &[Rate], elapsed: Span) {
        for (entry, rate) in self.running.iter_mut().zip(rates) {
            self.histories[entry.job].extrapolated |= elapsed > rate.simulated;
            entry.left = Work(entry.left.0.saturating_sub(rate.done_by(elapsed).0).max(1));
        }
    }
}

fn enter(
    jobs: &[JobRequest],
    settings: &Settings,
    entry: &Running,
    running: usize,
    now: CalendarTime,
) -> EpisodeJob {
    let job = &jobs[entry.job];
    let start = if settings.draw_phases && running > 1 {
        let entity = entry.job as u64 ^ now.0.rotate_left(32);
        let span = job.ideal_iteration.0.max(1);
        Time(RandomStream::new(settings.seed, "episode-phase", entity).below(span))
    } else {
        Time::ZERO
    };
    let left = entry.left.ceil();
    EpisodeJob {
        job: entry.job,
        placement: entry.placement.clone(),
        start,
        left,
        done_before: job.iterations - left,
    }
}

/// How a job advances in an episode: as simulated while that reaches, at its mean afterwards.
struct Rate {
    start: Time,
    ends: Vec<Time>,
    /// Mean of the iterations after the first (of the only one if there is one).
    mean: Span,
    /// How far the simulation saw this job.
    simulated: Span,
}

impl Rate {
    fn of(job: &EpisodeJob, seen: &EpisodeJobResult) -> Self {
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
    fn time_for(&self, work: Work) -> Span {
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
    fn done_by(&self, span: Span) -> Work {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Packed;
    use crate::scheduler::Fcfs;

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

    /// Each job takes its own fixed time per iteration, times the number of jobs that run.
    struct Fixed(Vec<Span>);

    impl EpisodeRunner for Fixed {
        type Error = std::convert::Infallible;

        fn run(
            &mut self,
            _: CalendarTime,
            jobs: &[EpisodeJob],
            iterations: u64,
        ) -> Result<Vec<EpisodeJobResult>, Self::Error> {
            let count = jobs.len() as u64;
            let result = |job: &EpisodeJob| {
                let span = self.0[job.job] * count;
                EpisodeJobResult {
                    ends: (1..=iterations.min(job.left)).map(|i| job.start + span * i).collect(),
                }
            };
            Ok(jobs.iter().map(result).collect())
        }

        fn lasted(&mut self, _: Span) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    fn job(gpus: usize, iterations: u64, submit_ns: u64) -> JobRequest {
        JobRequest {
            gpus,
            iterations,
            submit: CalendarTime(submit_ns),
            placement: &Packed,
            ideal_iteration: Span::from_us(1),
        }
    }

    fn settings() -> Settings {
        Settings {
            endpoints: 8,
            endpoints_per_host: 8,
            episode_iterations: 3,
            draw_phases: false,
            reaction_delay: Span::from_us(1_000),
            seed: 1,
        }
    }

    #[test]
    fn one_job_that_fits_an_episode_is_not_extrapolated() {
        let histories =
            run(&[job(8, 3, 0)], &settings(), &mut Fcfs, &mut Fixed(vec![Span::from_us(2)])).unwrap();
        assert_eq!((histories[0].finish, histories[0].extrapolated), (Some(CalendarTime(6_000)), false));
        let histories =
            run(&[job(8, 1_000_000, 5)], &settings(), &mut Fcfs, &mut Fixed(vec![Span::from_us(2)])).unwrap();
        assert_eq!(
            (histories[0].finish, histories[0].extrapolated),
            (Some(CalendarTime(2_000_000_005)), true)
        );
    }

    #[test]
    fn jobs_that_share_slow_each_other_until_one_ends() {
        let spans = vec![Span::from_us(10), Span::from_us(10)];
        let jobs = [job(4, 100, 0), job(4, 300, 0)];
        let histories = run(&jobs, &settings(), &mut Fcfs, &mut Fixed(spans)).unwrap();
        // Both at 20 us until the first has done 100; the other has 200 left, at 10 us.
        assert_eq!(histories[0].finish, Some(CalendarTime(2_000_000)));
        assert_eq!(histories[1].finish, Some(CalendarTime(2_000_000 + 2_000_000)));
    }

    #[test]
    fn a_job_waits_for_its_gpus_and_starts_after_the_reaction_delay() {
        let spans = vec![Span::from_us(10), Span::from_us(10)];
        let jobs = [job(8, 10, 0), job(8, 10, 50)];
        let histories = run(&jobs, &settings(), &mut Fcfs, &mut Fixed(spans)).unwrap();
        assert_eq!(histories[1].start, Some(CalendarTime(100_000 + 1_000_000)));
        assert_eq!(histories[1].finish, Some(CalendarTime(1_100_000 + 100_000)));
    }

    #[test]
    fn work_is_conserved_across_a_change() {
        let spans = vec![Span::from_us(7), Span::from_us(7)];
        let jobs = [job(4, 1_000, 0), job(4, 10, 3_333_333)];
        let histories = run(&jobs, &settings(), &mut Fcfs, &mut Fixed(spans)).unwrap();
        // Alone 7 us an iteration, together 14 us while the second job lasts.
        assert_eq!(histories[1].finish, Some(CalendarTime(3_333_333 + 140_000)));
        let total = 7_000_000 + 70_000;
        let finish = histories[0].finish.expect("it ends").0;
        assert!((total..=total + 2).contains(&finish), "{finish} {total}");
    }
}
