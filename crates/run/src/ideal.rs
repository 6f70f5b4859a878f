//! A job's iteration time on an ideal fabric, for comparison: alone, and no path inside the fabric shared.
//!
//! Nothing that a run simulates depends on the ideal time of its only job, so with a thread to spare the two go beside each other.
//! Several jobs' times are simulated before the run, shared out to threads. What comes out is the same.

mod alone;
mod wanted;

use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustc_hash::FxHashMap;
use windtunnel_cluster::calendar::Histories;
use windtunnel_cluster::variation::{Noise, Variation};
use windtunnel_kernel::{CalendarTime, EndpointId, Span};
use windtunnel_plan::Plan;
use windtunnel_plan::error::Failure;
use windtunnel_plan::jobs::{JobPlan, Work};
use windtunnel_plan::settings::Fidelity;
use windtunnel_workload::Workload;

pub(crate) use self::alone::{Flows, On, Took};
use self::alone::{Watch, counted};
use self::wanted::{goes_by_few_messages, wanted};
use super::RunOptions;
use super::journal::Journal;
use super::memo::Names;
use super::variation::variation;
use crate::table::{Phase, ProgressSink};

/// By job: each number of ranks that it can have, first the one that it asks for.
type Times = Vec<Vec<(usize, Option<Span>)>>;

/// How often one thread looks what the others have done.
const LOOK: Duration = Duration::from_millis(200);

/// Iteration times on an ideal fabric: every job alone on the first hosts, all of which are as written, none
/// slow.
#[derive(Default)]
pub(crate) struct IdealTimes<'a> {
    times: OnceCell<Times>,
    /// What simulates them meanwhile.
    beside: Option<Beside<'a>>,
    /// Whether the sink has stopped them before the run began.
    stopped: bool,
}

/// A simulation of the ideal times beside the run's own.
struct Beside<'a> {
    outcome: mpsc::Receiver<Result<Option<Times>, Failure>>,
    failed: OnceCell<Failure>,
    stopped: Cell<bool>,
    told: &'a Told,
}

/// What threads tell each other.
#[derive(Default)]
struct Told {
    stop: AtomicBool,
    /// Part that is done, in millionths.
    done: AtomicU64,
    events: AtomicU64,
}

impl Told {
    /// To be called by who works; `false` if it is to stop.
    fn tell(&self, done: f64, events: u64) -> bool {
        self.done.store((done * 1e6) as u64, Ordering::Relaxed);
        self.events.store(events, Ordering::Relaxed);
        !self.stop.load(Ordering::Relaxed)
    }

    fn done(&self) -> f64 {
        self.done.load(Ordering::Relaxed) as f64 / 1e6
    }
}

impl IdealTimes<'_> {
    /// Of a job on as many GPUs as it asks for; `None` if it was not simulated, or is being simulated.
    pub(crate) fn of_job(&self, job: usize) -> Option<Span> {
        self.times.get()?[job][0].1
    }

    /// Of a job on `ranks` GPUs; `None` if it was not simulated there.
    pub(crate) fn of_job_on(&self, job: usize, ranks: usize) -> Option<Span> {
        self.times.get()?[job].iter().find(|&&(of, _)| of == ranks)?.1
    }

    /// Whether the sink has stopped them before the run began.
    pub(crate) const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Waits for what is simulated beside the run; `false` if the sink stops it.
    pub(crate) fn settle(&self, progress: &mut dyn ProgressSink) -> bool {
        let Some(Beside { outcome, failed, stopped, told }) = &self.beside else { return !self.stopped };
        if self.times.get().is_some() || failed.get().is_some() || stopped.get() {
            return !stopped.get();
        }
        let mut waits = false;
        loop {
            match outcome.recv_timeout(LOOK) {
                Ok(Ok(Some(times))) => drop(self.times.set(times)),
                Ok(Ok(None)) => stopped.set(true),
                Ok(Err(failure)) => drop(failed.set(failure)),
                // It has panicked, which is told where it was begun.
                Err(RecvTimeoutError::Disconnected) => {}
                Err(RecvTimeoutError::Timeout) => {
                    if !waits {
                        progress.phase(Phase::Ideal);
                        waits = true;
                    }
                    let events = told.events.load(Ordering::Relaxed);
                    if !progress.progress(Some(told.done()), 0.0, events) {
                        told.stop.store(true, Ordering::Relaxed);
                    }
                    continue;
                }
            }
            return !stopped.get();
        }
    }

    /// The least that an iteration of each job takes where nothing is shared: on the first hosts, or where it was, there also as
    /// its computations vary, and for packets message by message; so that no fabric is faster than this one. Jobs that have not
    /// ended, and those of a source, are not looked at again.
    ///
    /// # Errors
    /// What a simulation of a job alone says, such as operations that can never start.
    pub(crate) fn least(
        &self,
        plan: &Plan,
        options: &RunOptions,
        histories: &Histories,
        progress: &mut dyn ProgressSink,
    ) -> Result<Vec<Option<Span>>, Failure> {
        let mut least: Vec<Option<Span>> = (0..plan.jobs.len()).map(|job| self.of_job(job)).collect();
        if plan.fidelity == Fidelity::Job || plan.is_drawn() {
            return Ok(least);
        }
        let none = Variation::none();
        let packets = plan.fidelity == Fidelity::Packet;
        let forms = |job_plan: &JobPlan| match packets {
            true => [Flows::Same, Flows::Steps, Flows::StepsLate, Flows::Turns].as_slice(),
            // Coupled collectives are groups of flows, and none of them comes before another one.
            false if goes_by_few_messages(job_plan) => &[Flows::Same, Flows::Turns],
            false => &[Flows::Same],
        };
        let mut known: FxHashMap<(*const Workload, u64, Vec<u64>), Option<Span>> = FxHashMap::default();
        let mut varied = vec![false; plan.jobs.len()];
        for stay in &histories.stays {
            let job = histories.given[stay.job.0 as usize];
            if least[job].is_none() || histories.jobs[job].finish.is_none() {
                continue;
            }
            let job_plan = &plan.jobs[job];
            let forms = forms(job_plan);
            let work = job_plan.work_of(stay.placement.len());
            let placement = stay.placement.as_slice();
            let mut time = |variation: &Variation, skip: usize| {
                let mut best = None;
                for &form in &forms[skip..] {
                    let on = On { job, work, placement, variation, slow: &[], form };
                    let mut watch = |_: f64, seconds, events| progress.progress(None, seconds, events);
                    let Some(Took(time)) = on.time(plan, options, &mut watch)? else { return Ok(None) };
                    best = shorter(best, time);
                }
                Ok::<_, Failure>(best)
            };
            let pattern = pattern(plan, placement);
            // As flows the first hosts are known.
            let first = pattern == self::pattern(plan, &first_hosts(placement.len()));
            let what = (Arc::as_ptr(&work.workload), counted(plan, job_plan), pattern);
            let here = match known.get(&what) {
                Some(&here) => here,
                None => *known.entry(what).or_insert(time(&none, usize::from(first))?),
            };
            least[job] = shorter(least[job], here);
            // What is slow may let other messages go first and so end a job sooner (Graham, "Bounds on multiprocessing timing
            // anomalies", SIAM J. Appl. Math. 1969). It is rare, so the speeds are asked only of a run that was faster.
            let faster = || !plan.speeds.is_empty() && pace(plan, histories, job) < least[job];
            if !varied[job] && (may_be_faster(plan) || faster()) {
                varied[job] = true;
                let variation = variation(plan, CalendarTime::from_ns(stay.start));
                least[job] = shorter(least[job], time(&variation, 0)?);
            }
        }
        Ok(least)
    }
}

/// What an iteration of `job` took on the whole; `None` if it has not ended.
fn pace(plan: &Plan, histories: &Histories, job: usize) -> Option<Span> {
    histories.jobs[job].finish?;
    let worked_ps = CalendarTime::from_ns(histories.jobs[job].worked).exact_ps();
    u64::try_from(worked_ps / i128::from(plan.jobs[job].iterations.max(1))).ok().map(Span::from_ps)
}

/// The shorter of two times, as far as they are known.
fn shorter(a: Option<Span>, b: Option<Span>) -> Option<Span> {
    a.into_iter().chain(b).min()
}

/// Whether computations may take less than on a machine without variation: by luck, or on GPUs faster than their data sheet.
fn may_be_faster(plan: &Plan) -> bool {
    plan.noise != Noise::None || plan.speeds.iter().any(|rule| rule.speed > 1.0)
}

/// As many GPUs as `ranks`, from the first on.
fn first_hosts(ranks: usize) -> Vec<EndpointId> {
    (0..ranks as u32).map(EndpointId).collect()
}

/// What of a placement counts where no link inside the fabric is shared: in a Clos whose GPUs share hosts, leaves and pods;
/// elsewhere all of it.
fn pattern(plan: &Plan, placement: &[EndpointId]) -> Vec<u64> {
    if plan.fabric.topology.shape_name() != "clos" {
        return placement.iter().map(|gpu| u64::from(gpu.0)).collect();
    }
    let mut names = Names::default();
    placement.iter().map(|&gpu| names.of(plan, gpu)).collect()
}

/// Whether the ideal run can go beside the run's own, which then must not ask for its result before it ends: with several jobs
/// the times order their phases, and with operations or a scheduler of one's own they are what a job is expected to take.
pub(crate) fn goes_beside(plan: &Plan, options: &RunOptions) -> bool {
    let [job_plan] = plan.jobs.as_slice() else { return false };
    options.workers() > 1
        && plan.fidelity != Fidelity::Job
        && wanted(plan, job_plan)
        && job_plan.lasts.is_none()
        && job_plan.resized.is_empty()
        && plan.upkeep.is_none()
        && plan.modules.make_scheduler().is_none()
}

/// The ideal times of all jobs for which they are wanted, simulated before the run; `None` if the sink stops it.
///
/// # Errors
/// [`Failure`] when a job's operations never end.
pub(crate) fn before(
    plan: &Plan,
    options: &RunOptions,
    progress: &mut dyn ProgressSink,
) -> Result<IdealTimes<'static>, Failure> {
    let journal = options.journal.as_deref();
    if let Some(times) = journal.map(Journal::ideal::<Times>).transpose()?.flatten() {
        return Ok(IdealTimes { times: OnceCell::from(times), beside: None, stopped: false });
    }
    let mut begun = false;
    let mut watch = |done: f64, seconds: f64, events: u64| {
        if !begun {
            progress.phase(Phase::Ideal);
            begun = true;
        }
        progress.progress(Some(done), seconds, events)
    };
    let times = simulate(plan, options, &mut watch)?;
    if let (Some(journal), Some(times)) = (journal, &times) {
        journal.keep_ideal(times);
    }
    let stopped = times.is_none();
    Ok(IdealTimes { times: times.map_or_else(OnceCell::new, OnceCell::from), beside: None, stopped })
}

/// Calls `run` with ideal times that are simulated meanwhile, by another thread: see [`IdealTimes::settle`].
///
/// # Errors
/// Those of the ideal run, as if it had come first, and of `run`.
pub(crate) fn beside<R>(
    plan: &Plan,
    options: &RunOptions,
    run: impl FnOnce(&IdealTimes<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let told = Told::default();
    std::thread::scope(|scope| {
        let (told, (sender, outcome)) = (&told, mpsc::channel());
        scope.spawn(move || {
            let mut watch = |done: f64, _: f64, events: u64| told.tell(done, events);
            // Nobody listens where the run has been stopped.
            drop(sender.send(simulate(plan, options, &mut watch)));
        });
        let _stops = Stops(told);
        let beside = Beside { outcome, failed: OnceCell::new(), stopped: Cell::new(false), told };
        let mut ideal = IdealTimes { times: OnceCell::new(), beside: Some(beside), stopped: false };
        let outcome = run(&ideal);
        told.stop.store(true, Ordering::Relaxed);
        let mut failed = None;
        if let Some(beside) = &mut ideal.beside {
            failed = beside.failed.take().or_else(|| beside.outcome.recv().ok().and_then(Result::err));
        }
        failed.map_or(outcome, Err)
    })
}

/// Stops the other thread however this one leaves: a scope waits for its threads.
struct Stops<'a>(&'a Told);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Simulates some iterations of each job for which that is wanted; `None` if it is stopped.
fn simulate(plan: &Plan, options: &RunOptions, watch: &mut Watch<'_>) -> Result<Option<Times>, Failure> {
    // Jobs of a source share their workloads.
    let mut known: FxHashMap<(*const Workload, u64), usize> = FxHashMap::default();
    let mut tasks: Vec<(usize, &Arc<Work>)> = Vec::new();
    let mut places: Vec<Vec<(usize, Option<usize>)>> = Vec::with_capacity(plan.jobs.len());
    for (job, job_plan) in plan.jobs.iter().enumerate() {
        let mut of_plan = Vec::new();
        for work in job_plan.works() {
            let task = wanted(plan, job_plan).then(|| {
                let what = (Arc::as_ptr(&work.workload), counted(plan, job_plan));
                *known.entry(what).or_insert_with(|| {
                    tasks.push((job, work));
                    tasks.len() - 1
                })
            });
            of_plan.push((work.ranks(), task));
        }
        places.push(of_plan);
    }
    let Some(found) = all(plan, options, &tasks, watch)? else { return Ok(None) };
    let time = |(ranks, task): (usize, Option<usize>)| (ranks, task.and_then(|task| found[task].0));
    Ok(Some(places.into_iter().map(|works| works.into_iter().map(time).collect()).collect()))
}

/// Simulates `tasks`, on as many threads as the run may have.
fn all(
    plan: &Plan,
    options: &RunOptions,
    tasks: &[(usize, &Arc<Work>)],
    watch: &mut Watch<'_>,
) -> Result<Option<Vec<Took>>, Failure> {
    let count = tasks.len();
    let threads = options.workers().min(count);
    if threads <= 1 {
        let mut found = Vec::with_capacity(count);
        for (index, &task) in tasks.iter().enumerate() {
            let mut part =
                |done: f64, seconds, events| watch((index as f64 + done) / count as f64, seconds, events);
            let Some(time) = ideal_time(plan, options, task, &mut part)? else { return Ok(None) };
            found.push(time);
        }
        return Ok(Some(found));
    }
    let told: Vec<Told> = (0..count).map(|_| Told::default()).collect();
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut outcomes: Vec<Option<Result<Option<Took>, Failure>>> = (0..count).map(|_| None).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, told) = (sender.clone(), &next, &told);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&task) = tasks.get(index) else { break };
                    let mut watch = |done: f64, _: f64, events: u64| told[index].tell(done, events);
                    let outcome = ideal_time(plan, options, task, &mut watch);
                    told[index].done.store(1_000_000, Ordering::Relaxed);
                    // The receiver waits until all senders have gone.
                    drop(sender.send((index, outcome)));
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok((index, outcome)) => outcomes[index] = Some(outcome),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let done: f64 = told.iter().map(Told::done).sum();
                    let events = told.iter().map(|told| told.events.load(Ordering::Relaxed)).sum();
                    if !watch(done / count as f64, 0.0, events) {
                        for told in &told {
                            told.stop.store(true, Ordering::Relaxed);
                        }
                    }
                }
            }
        }
    });
    // As if one had come after the other.
    outcomes.into_iter().map(|outcome| outcome.expect("every task was taken by a thread")).collect()
}

/// Iteration time of a job on the first hosts; `None` if it is stopped.
fn ideal_time(
    plan: &Plan,
    options: &RunOptions,
    (job, work): (usize, &Arc<Work>),
    watch: &mut Watch<'_>,
) -> Result<Option<Took>, Failure> {
    let (placement, variation) = (first_hosts(work.ranks()), Variation::none());
    let on = On { job, work, placement: &placement, variation: &variation, slow: &[], form: Flows::Same };
    on.time(plan, options, watch)
}
