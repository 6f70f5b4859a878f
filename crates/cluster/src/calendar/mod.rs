//! The calendar of a cluster whose jobs' durations a fabric tells: they run in episodes (DESIGN §7).
//!
//! The driver of [`Cluster`] at the fidelities with a network, and of single jobs at all.
//! An episode begins at each change of the running set. Its runner simulates the running jobs for a few iterations;
//! from the mean of those after the warm-up the calendar knows when the next job ends, and goes there at once. Work left
//! is kept in 2^-64 iterations, so the same changes give the same times whatever the machine. Calendar times round up to
//! a nanosecond.
//!
//! Loading, restarts and checkpoints pause a job in an episode ([`crate::life`]); what its pause leaves free others do not
//! notice, as an episode's rates are those of jobs that work. An interrupted job goes back to the work that it had done as
//! its last finished checkpoint began. A fault in the fabric begins an episode anew.
//!
//! A job alone is a cluster with one job and goes the same way; if its iterations fit into one episode, nothing is
//! extrapolated.

mod progress;

use windtunnel_kernel::{CalendarTime, EndpointId, RandomStream, Span, Time};

use self::progress::{Rate, Work};
use crate::cluster::{
    Change, Cluster, ClusterError, FaultRecord, GpuTime, Job, JobId, JobTime, Machine, Reason, Tally,
};
use crate::faults::{Component, Operations};
use crate::free::Locator;
use crate::life::{Checkpoint, Every, Life, Lives, Segment};
use crate::placement::{Locality, Placement};
use crate::scheduler::Scheduler;

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
    /// How long a scheduler expects it to run.
    pub estimate: Span,
    /// Higher goes first, where the scheduler looks at it.
    pub priority: i32,
    /// How close together its GPUs must be.
    pub locality: Locality,
    /// What it pays on its way, and what of its work is safe.
    pub life: Life,
}

/// How the cluster is run.
pub struct Settings<'a> {
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
    /// What fails and is drained.
    pub operations: Option<&'a Operations<'a>>,
    /// Regions of equally many hosts; a job runs in one.
    pub regions: u32,
    /// Leaves and pods.
    pub locator: Option<&'a dyn Locator>,
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
    type Error: From<ClusterError>;
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

    /// From the next episode on these cables and switches are out, and no others but those that always are.
    fn fabric(&mut self, out: &[Component]) {
        let _ = out;
    }
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
    /// The GPUs that it had last.
    pub placement: Vec<EndpointId>,
    /// Stops and interruptions on the way, and what they cost.
    pub time: JobTime,
    /// Whether its time was extrapolated beyond simulated iterations.
    pub extrapolated: bool,
}

/// What became of the jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histories {
    /// By job, in the order in which they were given.
    pub jobs: Vec<JobHistory>,
    /// Of each job in order of submission, its place in that order.
    pub given: Vec<usize>,
    /// GPU-time until the last job's end.
    pub gpu_time: GpuTime,
    /// Faults and maintenance in order.
    pub faults: Vec<FaultRecord>,
    /// What those of each kind did; empty if nothing can fail.
    pub tallies: Vec<(Reason, Tally)>,
}

/// Runs `jobs` to their end.
///
/// # Errors
/// The runner's, or the cluster's as one of these.
pub fn run<R: EpisodeRunner>(
    jobs: &[JobRequest],
    settings: &Settings<'_>,
    scheduler: &mut dyn Scheduler,
    runner: &mut R,
) -> Result<Histories, R::Error> {
    let order = Order::of(jobs, settings);
    let mut calendar = Calendar::new(jobs, settings, &order);
    calendar.cluster.check_room()?;
    calendar.advance(0, scheduler);
    calendar.admit(scheduler)?;
    loop {
        if calendar.running.is_empty() {
            match calendar.next_event(scheduler) {
                Some(at) => {
                    calendar.advance(at, scheduler);
                    calendar.admit(scheduler)?;
                }
                None => return Ok(calendar.into_histories()),
            }
            continue;
        }
        let episode = calendar.episode();
        let now = CalendarTime(calendar.cluster.now());
        if let Some(out) = calendar.changed_fabric() {
            runner.fabric(&out);
        }
        let results = runner.run(now, &episode, u64::from(settings.episode_iterations) + 1)?;
        let rates: Vec<Rate> = episode.iter().zip(&results).map(|(job, seen)| Rate::of(job, seen)).collect();
        calendar.plan_checkpoints(&rates);
        let lasted = calendar.run_episode(&rates, scheduler)?;
        runner.lasted(lasted)?;
    }
}

/// The jobs as the cluster knows them: in order of submission.
struct Order<'a> {
    jobs: Vec<Job>,
    /// Index of each as it was given.
    given: Vec<usize>,
    machine: Machine<'a>,
}

impl<'a> Order<'a> {
    fn of(requests: &[JobRequest], settings: &Settings<'a>) -> Self {
        let mut given: Vec<usize> = (0..requests.len()).collect();
        given.sort_by_key(|&job| (requests[job].submit, job));
        let mut placements: Vec<&'static dyn Placement> = Vec::new();
        let mut job = |&index: &usize| {
            let request = &requests[index];
            let known = placements.iter().position(|placement| placement.name() == request.placement.name());
            let placement = known.unwrap_or_else(|| {
                placements.push(request.placement);
                placements.len() - 1
            });
            Job {
                submit: request.submit,
                estimate: request.estimate.ns_ceil().max(1),
                gpus: request.gpus as u32,
                priority: request.priority,
                locality: request.locality,
                placement: placement as u8,
            }
        };
        let jobs = given.iter().map(&mut job).collect();
        let machine = Machine {
            endpoints: settings.endpoints,
            endpoints_per_host: settings.endpoints_per_host,
            regions: settings.regions,
            reaction_delay: settings.reaction_delay,
            lives: Lives::Each(given.iter().map(|&job| requests[job].life).collect()),
            operations: settings.operations,
            seed: settings.seed,
            placements: placements.into_iter().map(|placement| placement as &dyn Placement).collect(),
            locator: settings.locator,
        };
        Self { jobs, given, machine }
    }
}

/// A job in the present episode.
struct Entry {
    id: JobId,
    placement: Vec<EndpointId>,
    /// What it does when from the episode's begin on.
    segment: Segment,
}

struct Calendar<'a> {
    requests: &'a [JobRequest],
    settings: &'a Settings<'a>,
    given: &'a [usize],
    cluster: Cluster<'a>,
    /// In the order in which they started.
    running: Vec<Entry>,
    /// Of each job, in order of submission.
    left: Vec<Work>,
    /// What was left as its last finished checkpoint began.
    left_safe: Vec<Work>,
    /// Changes of the fabric that the runner knows of.
    fabric: u64,
    faults: Vec<FaultRecord>,
    histories: Vec<JobHistory>,
    /// Jobs that have not ended.
    unfinished: usize,
}

impl<'a> Calendar<'a> {
    fn new(requests: &'a [JobRequest], settings: &'a Settings<'a>, order: &'a Order<'a>) -> Self {
        let history = |job: &JobRequest| JobHistory {
            submit: job.submit,
            start: None,
            finish: None,
            placement: Vec::new(),
            time: JobTime::default(),
            extrapolated: false,
        };
        let left: Vec<Work> =
            order.given.iter().map(|&job| Work::iterations(requests[job].iterations)).collect();
        Self {
            requests,
            settings,
            given: &order.given,
            cluster: Cluster::new(&order.jobs, &order.machine),
            running: Vec::new(),
            left_safe: left.clone(),
            left,
            fabric: 0,
            faults: Vec::new(),
            histories: requests.iter().map(history).collect(),
            unfinished: requests.len(),
        }
    }

    fn into_histories(mut self) -> Histories {
        for (place, &job) in self.given.iter().enumerate() {
            self.histories[job].time = self.cluster.job_time(JobId(place as u32));
        }
        let tallies = self.settings.operations.map(|_| self.cluster.tallies().collect());
        Histories {
            jobs: self.histories,
            given: self.given.to_vec(),
            gpu_time: self.cluster.gpu_time(),
            faults: self.faults,
            tallies: tallies.unwrap_or_default(),
        }
    }

    /// What is out, if the runner does not know it.
    fn changed_fabric(&mut self) -> Option<Vec<Component>> {
        let changes = self.cluster.fabric_changes();
        let known = std::mem::replace(&mut self.fabric, changes);
        (known != changes).then(|| self.cluster.fabric_out())
    }

    /// The next arrival, release, or instant at which the scheduler wants to be asked.
    fn next_event(&self, scheduler: &dyn Scheduler) -> Option<u64> {
        let wake = scheduler.wakes(&self.cluster).filter(|&at| at > self.cluster.now());
        // Once all jobs have ended, nobody waits for their GPUs.
        let waits = wake.is_some() || !self.cluster.is_stuck();
        self.cluster.next_event().into_iter().chain(wake).min().filter(|_| self.unfinished > 0 && waits)
    }

    fn advance(&mut self, now: u64, scheduler: &mut dyn Scheduler) {
        self.cluster.advance(now, scheduler);
        self.faults.extend(self.cluster.take_faults());
    }

    /// Lets the scheduler decide.
    fn admit(&mut self, scheduler: &mut dyn Scheduler) -> Result<(), ClusterError> {
        let changes = self.cluster.decide(scheduler)?.to_vec();
        self.apply(&changes);
        Ok(())
    }

    fn apply(&mut self, changes: &[Change]) {
        for &change in changes {
            match change {
                Change::Started(id) => {
                    // One that was stopped again within the instant has no GPUs.
                    let Some(running) = self.cluster.running_job(id) else { continue };
                    if self.running.iter().any(|entry| entry.id == id) {
                        continue;
                    }
                    let history = &mut self.histories[self.given[id.0 as usize]];
                    history.start = self.cluster.first_start(id);
                    history.placement.clone_from(&running.placement);
                    let placement = running.placement.clone();
                    let segment = *self.cluster.segment(id).expect("it runs");
                    self.running.push(Entry { id, placement, segment });
                }
                Change::Stopped(id) | Change::Suspended(id) | Change::Interrupted(id) => {
                    self.running.retain(|entry| entry.id != id);
                    let (left, safe) = (&mut self.left[id.0 as usize], &mut self.left_safe[id.0 as usize]);
                    match change {
                        Change::Stopped(_) => *safe = *left,
                        Change::Interrupted(_) => *left = *safe,
                        _ => {}
                    }
                }
            }
        }
    }

    fn episode(&mut self) -> Vec<EpisodeJob> {
        let now = self.cluster.now();
        for entry in &mut self.running {
            entry.segment = self.cluster.segment(entry.id).expect("it runs").split(now).1;
        }
        self.running.iter().map(|entry| self.enter(entry)).collect()
    }

    fn enter(&self, entry: &Entry) -> EpisodeJob {
        let (index, now) = (self.given[entry.id.0 as usize], self.cluster.now());
        let job = &self.requests[index];
        let phase = if self.settings.draw_phases && self.running.len() > 1 {
            let entity = index as u64 ^ now.rotate_left(32);
            let span = job.ideal_iteration.0.max(1);
            RandomStream::new(self.settings.seed, "episode-phase", entity).below(span)
        } else {
            0
        };
        let left = self.left[entry.id.0 as usize].ceil();
        EpisodeJob {
            job: index,
            placement: entry.placement.clone(),
            start: Time(entry.segment.pause.total() * 1_000 + phase),
            left,
            done_before: job.iterations - left,
        }
    }

    /// Goes to the next change of the running set: the first job to end, or an event at which the scheduler starts or
    /// stops one. Returns how long that took.
    fn run_episode(&mut self, rates: &[Rate], scheduler: &mut dyn Scheduler) -> Result<Span, ClusterError> {
        let begin = self.cluster.now();
        let left = |entry: &Entry| self.left[entry.id.0 as usize];
        let ends: Vec<Span> = self
            .running
            .iter()
            .zip(rates)
            .map(|(entry, rate)| rate.end_of(left(entry), &entry.segment))
            .collect();
        let first = *ends.iter().min().expect("some job is running");
        while let Some(event) = self.next_event(scheduler).filter(|at| at - begin < first.ns_ceil()) {
            self.advance(event, scheduler);
            let changes = self.cluster.decide(scheduler)?.to_vec();
            if !changes.is_empty() || self.cluster.fabric_changes() != self.fabric {
                let elapsed = Span((event - begin) * 1_000);
                self.progress(rates, elapsed);
                self.apply(&changes);
                return Ok(elapsed);
            }
        }
        self.progress(rates, first);
        let end = begin + first.ns_ceil();
        self.advance(end, scheduler);
        let mut ended = ends.iter().map(|&end| end == first);
        let mut gone = Vec::new();
        self.running.retain(|entry| {
            // What fails at this instant goes first.
            let ends = ended.next().unwrap_or(false) && self.cluster.running_job(entry.id).is_some();
            gone.extend(ends.then_some(entry.id));
            !ends
        });
        for id in gone {
            self.histories[self.given[id.0 as usize]].finish = Some(CalendarTime(end));
            self.cluster.end(id);
            self.unfinished -= 1;
        }
        self.admit(scheduler)?;
        Ok(first)
    }

    /// Takes the work of `elapsed` off the running jobs.
    fn progress(&mut self, rates: &[Rate], elapsed: Span) {
        for (entry, rate) in self.running.iter().zip(rates) {
            let id = entry.id.0 as usize;
            let (net, safe) = Rate::net(elapsed, &entry.segment);
            self.histories[self.given[id]].extrapolated |= net > rate.simulated;
            if let Some(safe) = safe {
                self.left_safe[id] = self.left[id].less(rate.done_by(safe));
            }
            self.left[id] = self.left[id].less(rate.done_by(net));
        }
    }

    /// Tells the cluster when jobs write whose checkpoints are due after so many iterations.
    fn plan_checkpoints(&mut self, rates: &[Rate]) {
        for (entry, rate) in self.running.iter_mut().zip(rates) {
            let id = entry.id.0 as usize;
            let life = self.requests[self.given[id]].life;
            let Some(Checkpoint { every: Every::Iterations(count), .. }) = life.checkpoint else { continue };
            let pause = entry.segment.pause;
            // A write under way keeps all that is done.
            let since =
                if pause.checkpoint > 0 { 0 } else { self.left_safe[id].0.saturating_sub(self.left[id].0) };
            let due = Work(Work::iterations(count).0.saturating_sub(since).max(1));
            let first = rate.time_for(due).ns_ceil().saturating_sub(pause.total());
            let every = (rate.mean * count).ns_ceil();
            self.cluster.replan(entry.id, first, every);
            entry.segment = *self.cluster.segment(entry.id).expect("it runs");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Packed;
    use crate::scheduler::Ordered;

    /// Each job takes its own fixed time per iteration, times the number of jobs that run.
    struct Fixed(Vec<Span>);

    impl EpisodeRunner for Fixed {
        type Error = ClusterError;

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
            estimate: Span::from_us(iterations),
            priority: 0,
            locality: Locality::Anywhere,
            life: Life::default(),
        }
    }

    fn settings() -> Settings<'static> {
        Settings {
            endpoints: 8,
            endpoints_per_host: 8,
            episode_iterations: 3,
            draw_phases: false,
            reaction_delay: Span::from_us(1_000),
            operations: None,
            regions: 1,
            locator: None,
            seed: 1,
        }
    }

    #[test]
    fn one_job_that_fits_an_episode_is_not_extrapolated() {
        let histories =
            run(&[job(8, 3, 0)], &settings(), &mut Ordered::fcfs(), &mut Fixed(vec![Span::from_us(2)]))
                .unwrap()
                .jobs;
        assert_eq!((histories[0].finish, histories[0].extrapolated), (Some(CalendarTime(6_000)), false));
        let histories = run(
            &[job(8, 1_000_000, 5)],
            &settings(),
            &mut Ordered::fcfs(),
            &mut Fixed(vec![Span::from_us(2)]),
        )
        .unwrap()
        .jobs;
        assert_eq!(
            (histories[0].finish, histories[0].extrapolated),
            (Some(CalendarTime(2_000_000_005)), true)
        );
    }

    #[test]
    fn jobs_that_share_slow_each_other_until_one_ends() {
        let spans = vec![Span::from_us(10), Span::from_us(10)];
        let jobs = [job(4, 100, 0), job(4, 300, 0)];
        let histories = run(&jobs, &settings(), &mut Ordered::fcfs(), &mut Fixed(spans)).unwrap().jobs;
        // Both at 20 us until the first has done 100; the other has 200 left, at 10 us.
        assert_eq!(histories[0].finish, Some(CalendarTime(2_000_000)));
        assert_eq!(histories[1].finish, Some(CalendarTime(2_000_000 + 2_000_000)));
    }

    #[test]
    fn a_job_waits_for_its_gpus_and_starts_after_the_reaction_delay() {
        let spans = vec![Span::from_us(10), Span::from_us(10)];
        let jobs = [job(8, 10, 0), job(8, 10, 50)];
        let histories = run(&jobs, &settings(), &mut Ordered::fcfs(), &mut Fixed(spans)).unwrap().jobs;
        assert_eq!(histories[1].start, Some(CalendarTime(100_000 + 1_000_000)));
        assert_eq!(histories[1].finish, Some(CalendarTime(1_100_000 + 100_000)));
    }

    #[test]
    fn work_is_conserved_across_a_change() {
        let spans = vec![Span::from_us(7), Span::from_us(7)];
        let jobs = [job(4, 1_000, 0), job(4, 10, 3_333_333)];
        let histories = run(&jobs, &settings(), &mut Ordered::fcfs(), &mut Fixed(spans)).unwrap().jobs;
        // Alone 7 us an iteration, together 14 us while the second job lasts.
        assert_eq!(histories[1].finish, Some(CalendarTime(3_333_333 + 140_000)));
        let total = 7_000_000 + 70_000;
        let finish = histories[0].finish.expect("it ends").0;
        assert!((total..=total + 2).contains(&finish), "{finish} {total}");
    }
}
