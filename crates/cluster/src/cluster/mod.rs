//! The cluster itself: jobs that wait and run, GPUs that are free, and a clock that goes from event to event.
//!
//! Life cycle of a job: submitted ([`Cluster::advance`] reaches its time) → waits → runs, when the scheduler decides so
//! and the placement finds GPUs → perhaps stopped by the scheduler, or interrupted by a fault or maintenance, and waits
//! again → ended ([`Cluster::end`]). Its GPUs can be given away again `reaction_delay` after its end or interruption; those
//! of a stopped job at once. What a job pays on its way and what an interruption undoes, [`crate::life`] says.
//!
//! The cluster knows nothing of how long a job takes: whoever drives it does, and calls [`Cluster::end`]. Two drivers
//! exist: [`crate::by_duration`], where durations are given, and [`crate::calendar`], where episodes on a fabric tell them.
//! What a scheduler expects is a job's estimate.
//!
//! Order within an instant: what comes back, fails and is drained, then submissions, then ends (by the driver), then GPUs
//! that come free, then decisions until the scheduler has no more. Nothing is scanned per event: costs depend on what an event touches.
//!
//! Invariants: a job is waiting, running or ended; a GPU is with one job, on its way, free, or out; the ledger's sums are
//! GPUs × time. Failure modes: a decision that cannot be carried out ([`ClusterError`]), which only a scheduler of a
//! user's own can make; a job that is interrupted again and again before it has written a checkpoint.

mod elastic;
mod error;
mod ledger;
mod listener;
mod machine;
mod notify;
mod records;
mod stays;
mod upkeep;
mod view;

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{CalendarTime, EndpointId};

pub use error::ClusterError;
pub use ledger::{GpuTime, JobTime, Ledger};
pub use listener::{Happening, Listener};
pub use machine::Machine;
pub use records::{FaultRecord, Reason, Tally};
pub use stays::Stay;

pub use crate::queue::Queue;
pub use crate::view::{Job, JobId, Running, View};

use self::machine::empty_region;
use crate::faults::Outages;
use crate::free::FreeSet;
use crate::life::{Debts, Parts, Segment, State};
use crate::placement::{Locality, Placement};
use crate::scheduler::{Decision, Scheduler};

/// Interruptions in a row without progress after which a job is given up.
const HOPELESS: u32 = 10_000;

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The job runs.
    Started(JobId),
    /// The job was stopped and waits again; it keeps its work in a checkpoint.
    Stopped(JobId),
    /// The job was stopped and waits again; it keeps its work in the memory of its GPUs.
    Suspended(JobId),
    /// The job lost its GPUs; it goes back to its last checkpoint.
    Interrupted(JobId),
}

const NEVER: u64 = u64::MAX;

/// The last instant to which the clock goes, in nanoseconds: half of what its 64 bits hold (292 years), since what is expected of jobs is
/// added to it.
pub const LAST: u64 = u64::MAX / 2;

/// How far a job has come.
#[derive(Clone, Copy, Debug)]
struct Status {
    /// When it was submitted; [`NEVER`] if it has not been.
    submitted: u64,
    /// When it first got GPUs; [`NEVER`] if it has not.
    first_start: u64,
    /// When it got those that it has.
    start: u64,
    /// Work done before the present segment and not undone.
    done: u64,
    /// Of it safe in a checkpoint.
    kept: u64,
    /// What became of its time so far, that of the present segment not counted.
    time: JobTime,
    place: Place,
    /// Interruptions since work was last safe.
    futile: u32,
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not submitted yet.
    Ahead,
    Waiting(Debts),
    /// At this place in the list of running jobs.
    Running(u32),
    /// Interrupted, until the cluster reacts.
    Away(Debts),
    Ended,
}

/// See the module page.
pub struct Cluster<'a> {
    jobs: &'a [Job],
    machine: &'a Machine<'a>,
    now: u64,
    /// Jobs submitted so far.
    submitted: usize,
    queue: Queue,
    status: Vec<Status>,
    running: Vec<Running>,
    /// What each of the running jobs does when.
    segments: Vec<Segment>,
    regions: Vec<FreeSet>,
    /// Whether leaves and pods are kept count of.
    grouped: bool,
    /// Whether every job fits as soon as enough GPUs are free.
    by_count: bool,
    /// GPUs of ended and interrupted jobs, from when on they can be given away, in order of time.
    releases: VecDeque<(u64, JobId, Running)>,
    ledger: Ledger,
    changes: Vec<Change>,
    /// Whether those have been told.
    told: bool,
    /// GPUs that stopped jobs had, where moving costs something.
    left: FxHashMap<JobId, Vec<EndpointId>>,
    /// GPUs in whose memory suspended jobs are, and how these go on there.
    memory: BTreeMap<JobId, (Vec<EndpointId>, Segment)>,
    /// What is out; `None` if nothing ever is.
    outages: Option<Outages>,
    log: records::Log,
    /// Whether any job is elastic.
    elastic: bool,
    /// A job that gets nowhere.
    hopeless: Option<JobId>,
    /// Stays that are over; `None` if nobody asks for them.
    stays: Option<Vec<Stay>>,
}

impl<'a> Cluster<'a> {
    /// An empty cluster at time 0.
    ///
    /// # Panics
    /// If `jobs` are not in order of submission.
    pub fn new(jobs: &'a [Job], machine: &'a Machine<'a>) -> Self {
        assert!(jobs.is_sorted_by_key(|job| job.submit), "jobs are in order of submission");
        let grouped = machine.placements.iter().any(|placement| placement.asks_for_groups())
            || jobs.iter().any(|job| job.locality.asks_for_groups());
        let by_count = jobs.iter().all(|job| job.locality == Locality::Anywhere)
            && machine.placements.iter().all(|placement| placement.fits_by_count());
        let regions =
            (0..machine.region_count()).map(|region| empty_region(machine, grouped, region)).collect();
        let status = Status {
            submitted: NEVER,
            first_start: NEVER,
            start: 0,
            done: 0,
            kept: 0,
            time: JobTime::default(),
            place: Place::Ahead,
            futile: 0,
        };
        let outages = machine.upkeep.map(|upkeep| Outages::new(upkeep, machine));
        let mut cluster = Self {
            jobs,
            machine,
            now: 0,
            submitted: 0,
            queue: Queue::new(jobs.len()),
            status: vec![status; jobs.len()],
            running: Vec::new(),
            segments: Vec::new(),
            regions,
            grouped,
            by_count,
            releases: VecDeque::new(),
            ledger: Ledger::new(u64::from(machine.gpus())),
            changes: Vec::new(),
            told: false,
            left: FxHashMap::default(),
            memory: BTreeMap::new(),
            outages,
            log: records::Log::default(),
            elastic: machine.lives.any_elastic(),
            hopeless: None,
            stays: None,
        };
        cluster.keep_spares();
        cluster
    }

    /// Refuses jobs that find no legal GPUs even in the empty cluster.
    ///
    /// # Errors
    /// [`ClusterError::NoRoom`] for the first of them.
    pub fn check_room(&self) -> Result<(), ClusterError> {
        let mut known = FxHashSet::default();
        for (index, job) in self.jobs.iter().enumerate() {
            let (id, Job { gpus, locality, placement, .. }) = (JobId(index as u32), *job);
            let fits = !known.insert((gpus, locality, placement))
                || (0..self.regions.len() as u32).any(|region| self.place(id, region).is_some());
            self.check_placement(id)?;
            if !fits {
                return Err(ClusterError::NoRoom { job: id, gpus, locality });
            }
        }
        Ok(())
    }

    /// What `job` does when, if it starts now: on `onto`, or, as one expects it, elsewhere.
    fn opening(&self, job: JobId, debts: Debts, onto: Option<&Running>) -> Segment {
        let (life, status) = (self.machine.lives.of(job.0 as usize), &self.status[job.0 as usize]);
        let left = self.left.get(&job);
        let moves = left.is_some_and(|left| onto.is_none_or(|onto| onto.placement != *left));
        let away =
            life.data_region.is_none() || onto.is_none_or(|onto| life.data_region != Some(onto.region));
        let pause = life.pause(debts, away, moves);
        let every = life.interval();
        let first = every.saturating_sub(status.done - status.kept).max(1);
        Segment { begin: self.now, pause, first, every, write: life.write() }
    }

    /// What random choices of the job's next start are drawn from.
    fn placement_key(&self, job: JobId) -> u64 {
        let starts = self.status[job.0 as usize].time.starts;
        combine(self.machine.seed, u64::from(job.0) << 32 | u64::from(starts))
    }

    /// GPU-time so far.
    pub fn gpu_time(&self) -> GpuTime {
        let mut ledger = self.ledger.clone();
        for (running, segment) in self.running.iter().zip(&self.segments) {
            ledger.spend(&segment.at(self.now).parts, running.placement.len() as u64);
        }
        ledger.time()
    }

    /// GPU-time by state so far; of `busy` the parts of jobs that run are not told apart yet.
    pub const fn gpu_states(&self) -> GpuTime {
        self.ledger.time()
    }

    /// The next submission, release, fault, repair, or begin or end of maintenance.
    pub fn next_event(&self) -> Option<u64> {
        // One that comes to a full queue waits for a start, which is an event of its own.
        let room = self.machine.queue.is_none_or(|most| self.queue.len() < most as usize);
        let submission = self.jobs.get(self.submitted).filter(|_| room).map(|job| job.submit.ns());
        let release = self.releases.front().map(|(at, ..)| *at);
        let trouble = self.outages.as_ref().and_then(|outages| outages.agenda.next());
        submission.into_iter().chain(release).chain(trouble).min()
    }

    /// Whether jobs wait though all that could happen to them has: nothing runs, is on its way or will be submitted, and
    /// nothing is out.
    pub fn is_stuck(&self) -> bool {
        let whole = self.outages.as_ref().is_none_or(Outages::is_whole);
        let quiet = self.running.is_empty() && self.releases.is_empty() && self.submitted == self.jobs.len();
        whole && quiet && !self.queue.is_empty()
    }

    /// Refuses a step of the clock beyond its last instant.
    ///
    /// # Errors
    /// [`ClusterError::Outlasts`] with a job that is not over then.
    pub fn check_time(&self, now: u64) -> Result<(), ClusterError> {
        let open = self.running.first().map(|running| running.job).or_else(|| self.queue.head());
        match open.filter(|_| now > LAST) {
            Some(job) => Err(ClusterError::Outlasts { job }),
            None => Ok(()),
        }
    }

    /// Goes to `now` and takes in what happens by then: faults and maintenance, then what is submitted. Jobs that this
    /// interrupts are among the changes of the next [`Self::decide`].
    pub fn advance(&mut self, now: u64, scheduler: &mut dyn Scheduler) {
        if let Some(listener) = self.machine.listener.filter(|_| now > self.now) {
            listener.goes_to(CalendarTime::from_ns(now));
        }
        self.forget_told();
        self.ledger.until(now);
        self.now = now;
        let known = self.log.len();
        self.operate(scheduler);
        self.notify_of_faults(known);
        self.submit(scheduler);
    }

    /// Takes in what is due, as long as there is room in the queue.
    fn submit(&mut self, scheduler: &mut dyn Scheduler) {
        let most = self.machine.queue.map_or(usize::MAX, |most| most as usize);
        while self.queue.len() < most
            && self.jobs.get(self.submitted).is_some_and(|job| job.submit.ns() <= self.now)
        {
            let job = JobId(self.submitted as u32);
            self.submitted += 1;
            self.queue.join(job);
            let status = &mut self.status[job.0 as usize];
            (status.place, status.submitted) = (Place::Waiting(Debts::FRESH), self.now);
            self.notify(Happening::Submitted(job));
            scheduler.queued(job, self);
        }
    }

    /// `job`, which runs, has ended now.
    pub fn end(&mut self, job: JobId) {
        let (running, _) = self.vacate(job);
        self.status[job.0 as usize].place = Place::Ended;
        self.notify(Happening::Ended(job));
        self.releases.push_back((self.now + self.machine.reaction_delay.ns_ceil(), job, running));
    }

    /// From now on a running job writes its first checkpoint after `first` nanoseconds of work and others every `every`:
    /// its driver knows how fast it works.
    pub fn replan(&mut self, job: JobId, first: u64, every: u64) {
        let Place::Running(place) = self.status[job.0 as usize].place else { return };
        self.settle(place as usize);
        let (_, rest) = self.segments[place as usize].split(self.now);
        self.segments[place as usize] = Segment { first: first.max(1), every: every.max(1), ..rest };
    }

    /// A running job that loads its data has `left` nanoseconds of that before it: its driver, which moves them over a
    /// network, knows.
    pub fn reload(&mut self, job: JobId, left: u64) {
        let Place::Running(place) = self.status[job.0 as usize].place else { return };
        self.settle(place as usize);
        let (_, mut rest) = self.segments[place as usize].split(self.now);
        rest.pause.loading = left;
        self.segments[place as usize] = rest;
    }

    fn forget_told(&mut self) {
        if std::mem::take(&mut self.told) {
            self.changes.clear();
        }
    }

    /// Gives back GPUs that have come free by now, then does what the scheduler decides; returns what changed since the
    /// last call.
    ///
    /// # Errors
    /// [`ClusterError`] for a decision that makes no sense.
    pub fn decide(&mut self, scheduler: &mut dyn Scheduler) -> Result<&[Change], ClusterError> {
        self.forget_told();
        while self.releases.front().is_some_and(|(at, ..)| *at <= self.now) {
            let (_, job, running) = self.releases.pop_front().expect("the front was just seen");
            let again = match self.status[job.0 as usize].place {
                Place::Away(debts) => Some(debts),
                _ => None,
            };
            if let Some(debts) = again {
                self.status[job.0 as usize].place = Place::Waiting(debts);
                self.queue.rejoin(job);
            }
            self.hand_back(job, &running, scheduler);
            if again.is_some() {
                scheduler.queued(job, self);
            }
        }
        if let Some(job) = self.hopeless {
            return Err(ClusterError::Hopeless { job, times: HOPELESS });
        }
        self.carry_out(scheduler)?;
        while self.elastic && self.stretch(scheduler) {
            self.carry_out(scheduler)?;
        }
        let stranded = scheduler.head(self).is_some_and(|head| self.is_stranded(head));
        self.ledger.strand(if stranded { u64::from(self.free()) } else { 0 });
        self.told = true;
        Ok(&self.changes)
    }

    /// Does what the scheduler decides.
    fn carry_out(&mut self, scheduler: &mut dyn Scheduler) -> Result<(), ClusterError> {
        while let Some(decision) = scheduler.decide(self) {
            match decision {
                Decision::Start { job, region } => {
                    self.check_waiting(job, scheduler.name())?;
                    let regions = self.regions.len();
                    if region as usize >= regions {
                        let scheduler = scheduler.name();
                        return Err(ClusterError::NoRegion { scheduler, job, region, regions });
                    }
                    let placement = self.place(job, region);
                    self.check_placement(job)?;
                    match placement {
                        Some(placement) if !self.placement_of(job).is_trusted() => {
                            self.check_given(job, &placement, region)?;
                            self.start(job, Running { job, placement, region }, scheduler);
                        }
                        Some(placement) => self.start(job, Running { job, placement, region }, scheduler),
                        None => scheduler.refused(job, self),
                    }
                }
                Decision::StartOn { job, placement, region } => {
                    self.check_waiting(job, scheduler.name())?;
                    self.check_free(job, &placement, region, scheduler.name())?;
                    self.start(job, Running { job, placement, region }, scheduler);
                }
                Decision::Preempt { job } => self.stop(job, true, scheduler)?,
                Decision::Suspend { job } => self.stop(job, false, scheduler)?,
            }
        }
        // Schedulers ask placements too.
        let placements = self.machine.placements.iter().find_map(|placement| placement.failure());
        scheduler.failure().or(placements).map_or(Ok(()), |message| Err(ClusterError::Policy(message)))
    }

    /// Whether `head` would fit the free total, but nowhere legally.
    fn is_stranded(&self, head: JobId) -> bool {
        self.free() >= self.job(head).gpus
            && (0..self.regions.len() as u32).all(|region| self.place(head, region).is_none())
    }

    fn placement_of(&self, job: JobId) -> &dyn Placement {
        self.machine.placements[usize::from(self.job(job).placement)]
    }

    /// Refuses to go on after a placement of a user's own has failed.
    fn check_placement(&self, job: JobId) -> Result<(), ClusterError> {
        self.placement_of(job).failure().map_or(Ok(()), |message| Err(ClusterError::Policy(message)))
    }

    /// Refuses GPUs that a placement of a user's own should not have given.
    fn check_given(&self, job: JobId, given: &[EndpointId], region: u32) -> Result<(), ClusterError> {
        let placement = self.placement_of(job).name();
        self.check_free(job, given, region, placement).map_err(|error| match error {
            ClusterError::WrongCount { job, found, expected, .. } => {
                ClusterError::GivenCount { placement, job, found, expected }
            }
            ClusterError::Taken { job, gpu, .. } => ClusterError::GivenTaken { placement, job, gpu },
            other => other,
        })
    }

    fn check_waiting(&self, job: JobId, scheduler: &'static str) -> Result<(), ClusterError> {
        match self.status.get(job.0 as usize).map(|status| status.place) {
            Some(Place::Waiting(_)) => Ok(()),
            _ => Err(ClusterError::NotWaiting { scheduler, job }),
        }
    }

    fn check_free(
        &self,
        job: JobId,
        placement: &[EndpointId],
        region: u32,
        scheduler: &'static str,
    ) -> Result<(), ClusterError> {
        let expected = self.job(job).gpus;
        if placement.len() != expected as usize {
            return Err(ClusterError::WrongCount { scheduler, job, found: placement.len(), expected });
        }
        let free = self.regions.get(region as usize);
        let mut sorted = placement.to_vec();
        sorted.sort_unstable();
        let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        let taken = placement.iter().copied().find(|&gpu| !free.is_some_and(|free| free.are_free(&[gpu])));
        match twice.or(taken) {
            Some(gpu) => Err(ClusterError::Taken { scheduler, job, gpu }),
            None => Ok(()),
        }
    }

    fn start(&mut self, job: JobId, running: Running, scheduler: &mut dyn Scheduler) {
        let debts = match self.status[job.0 as usize].place {
            Place::Waiting(debts) => debts,
            _ => Debts::NONE,
        };
        let segment = match self.memory.remove(&job) {
            Some((there, rest)) if there == running.placement => Segment { begin: self.now, ..rest },
            // Out of the memory of its GPUs it moves as one that was preempted.
            Some(_) => {
                let debts = self.keep(job, debts.loads);
                self.change(Change::Stopped(job));
                self.opening(job, debts, Some(&running))
            }
            None => self.opening(job, debts, Some(&running)),
        };
        self.left.remove(&job);
        self.queue.leave(job);
        self.regions[running.region as usize].take(&running.placement);
        self.ledger.occupy(running.placement.len() as u64);
        let status = &mut self.status[job.0 as usize];
        status.first_start = status.first_start.min(self.now);
        status.start = self.now;
        status.time.starts += 1;
        status.place = Place::Running(self.running.len() as u32);
        self.hold(job, &running.placement);
        self.running.push(running);
        self.segments.push(segment);
        self.change(Change::Started(job));
        scheduler.started(job, self);
        self.submit(scheduler);
    }

    fn stop(
        &mut self,
        job: JobId,
        restarts: bool,
        scheduler: &mut dyn Scheduler,
    ) -> Result<(), ClusterError> {
        if self.status.get(job.0 as usize).is_none() || self.running_job(job).is_none() {
            return Err(ClusterError::NotRunning { scheduler: scheduler.name(), job });
        }
        let rest = self.segment(job).expect("it runs").split(self.now).1;
        let (running, pause) = self.vacate(job);
        let loads = pause.loading > 0;
        let debts = if restarts {
            self.keep(job, loads)
        } else {
            self.memory.insert(job, (running.placement.clone(), rest));
            Debts { loads, ..Debts::NONE }
        };
        self.remember(job, &running);
        self.status[job.0 as usize].place = Place::Waiting(debts);
        self.queue.rejoin(job);
        self.change(if restarts { Change::Stopped(job) } else { Change::Suspended(job) });
        self.hand_back(job, &running, scheduler);
        scheduler.queued(job, self);
        Ok(())
    }

    /// `job`, which was stopped, has all its work in a checkpoint; what it owes when it goes on, its data too if it still `loads`
    /// them.
    fn keep(&mut self, job: JobId, loads: bool) -> Debts {
        let life = self.machine.lives.of(job.0 as usize);
        let status = &mut self.status[job.0 as usize];
        let wrote = status.done > status.kept && life.saves();
        status.kept = status.done;
        Debts { loads, restarts: true, wrote }
    }

    /// Where a stopped job was, if it pays for going elsewhere.
    fn remember(&mut self, job: JobId, running: &Running) {
        if self.machine.lives.of(job.0 as usize).migration > 0 {
            self.left.insert(job, running.placement.clone());
        }
    }

    /// Adds up what a running job has done since its segment began; where it stands.
    fn settle(&mut self, place: usize) -> State {
        let (job, gpus) = (self.running[place].job, self.running[place].placement.len() as u64);
        let state = self.segments[place].at(self.now);
        let asked = u64::from(self.job(job).gpus);
        let status = &mut self.status[job.0 as usize];
        if let Some(kept) = state.kept {
            status.kept = status.done + elastic::done_in(kept, gpus, asked);
            status.futile = 0;
        }
        status.done += elastic::done_in(state.parts.work, gpus, asked);
        status.time.spend(&state.parts);
        self.ledger.spend(&state.parts, gpus);
        state
    }

    /// Takes `job` off the running ones and adds up its time; returns also what is left of its pause.
    fn vacate(&mut self, job: JobId) -> (Running, Parts) {
        let Place::Running(place) = self.status[job.0 as usize].place else {
            unreachable!("only a running job ends or stops: {job}");
        };
        let place = place as usize;
        self.ledger.until(self.now);
        let pause = self.settle(place).pause;
        let running = self.running.swap_remove(place);
        self.segments.swap_remove(place);
        self.note_stay(&running);
        if let Some(moved) = self.running.get(place) {
            self.status[moved.job.0 as usize].place = Place::Running(place as u32);
        }
        self.ledger.vacate(running.placement.len() as u64);
        self.leave(&running.placement);
        (running, pause)
    }
}
