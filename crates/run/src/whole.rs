//! `--full` with several jobs: one network from the first job's start to the last one's end, every iteration simulated.
//!
//! The shard runs up to the cluster's next event; a job that ends on the way stops it there, and the cluster reacts after
//! its delay, as between episodes. Jobs enter the network as it then is. What fast-forwarding comes to is measured
//! against this.
//!
//! A job that is interrupted or stopped vanishes from the network in mid-iteration, with all that it had under way, and enters
//! again at the iteration after the last one that is safe. Where cables or switches go out or come back, what is under way goes
//! on by the paths that there are; packets on them are lost, and sent again when their transport finds out. Checkpoints are written between iterations ([`writes`]).
//!
//! At packet fidelity a network runs on by itself for as long as nothing arrives; it is told where the cluster's next event is, and
//! stops there.
//!
//! Failure modes: a scheduler that suspends jobs in the memory of their GPUs, in mid-iteration; reductions by switches that may be
//! interrupted, at packet fidelity; a span beyond what picoseconds can count.

mod writes;

use windtunnel_cluster::calendar::timeline::Timeline;
use windtunnel_cluster::calendar::{EpisodeJob, Histories, JobHistory, JobRequest, Settings};
use windtunnel_cluster::cluster::{Change, Cluster, FaultRecord, JobId, View};
use windtunnel_cluster::life::{Life, UNKNOWN};
use windtunnel_cluster::scheduler::Scheduler;
use windtunnel_cluster::shard;
use windtunnel_fabric::reroute::lock;
use windtunnel_fabric::{Fabric, Network};
use windtunnel_kernel::{CalendarTime, EndpointId, Span, Time};
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, InputError, Why};
use windtunnel_plan::jobs::JobPlan;
use windtunnel_plan::settings::Fidelity;
use windtunnel_topology::LoadBalancer;

use self::writes::Writes;
use super::RunOptions;
use super::clock::Origin;
use super::drive::Pace;
use super::episode::Stop;
use super::model::{self, Opening};
use super::paths::PathNames;
use super::record::Record;
use super::recorder::{Iteration, Recorder};
use super::stage::{Stage, shard_job, watch};
use super::variation::variation;
use crate::table::{ProgressSink, TableSink};

/// Iterations whose rows are held back at most.
const HELD: usize = 1 << 12;

/// A job on the shard.
struct Running {
    id: JobId,
    /// Index of the job.
    job: usize,
    /// Its place on the shard.
    place: usize,
    /// It loads its data, and has not begun to work.
    loading: bool,
    placement: Vec<EndpointId>,
    /// Iterations that it had done before it entered.
    before: u64,
    writes: Writes,
}

/// A job that was on the shard at some time, in one place of it for each stay on GPUs.
struct Entered {
    /// Index of the job.
    job: usize,
    /// It only loaded its data there.
    loading: bool,
    /// On how many GPUs.
    gpus: usize,
    /// When it was taken off before its end.
    left: Option<Time>,
}

/// Runs `jobs` to their end; if the progress sink stops it, as far as it came.
pub(crate) fn run(
    plan: &Plan,
    options: &RunOptions,
    jobs: &[JobRequest],
    settings: &Settings<'_>,
    scheduler: &mut dyn Scheduler,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<(Histories, Record, bool), Failure> {
    // What always is out; and where more may go out, a rerouter in any case.
    let moves = plan.upkeep.as_ref().filter(|upkeep| upkeep.changes_fabric());
    check(plan, moves.is_some())?;
    let moving = moves.map(|upkeep| upkeep.plant.forwarder(&[]));
    let opening = Opening {
        spec: model::spec_of(plan, plan.jobs.iter().flat_map(JobPlan::works)),
        start: CalendarTime::ZERO,
        faults: moving.as_ref().or(plan.fabric.faults.as_ref()),
        changes: moves.is_some(),
        records: false,
        folded: false,
    };
    let opened = model::open(plan, options, &opening)?;
    let (order, machine) = windtunnel_cluster::calendar::order(jobs, settings);
    let mut cluster = Cluster::new(&order.jobs, &machine);
    cluster.check_room()?;
    cluster.keep_stays();
    let variation = variation(plan, CalendarTime::ZERO);
    let (mut seen, mut held) = (Vec::new(), Vec::new());
    let (topology, balancer) = (&plan.fabric.topology, plan.network.balancer);
    let names = PathNames::new(topology, plan.fabric.faults.clone(), balancer, plan.seed);
    let recorder = Recorder::new(&plan.jobs, names, sink, Origin::RUN, &mut seen, &mut held, false);
    let mut whole = Whole {
        plan,
        options,
        settings,
        jobs,
        given: &order.given,
        stage: Stage::set(plan, options, opened, &variation, recorder, jobs.len()),
        fabric: 0,
        running: Vec::new(),
        entered: Vec::new(),
        safe: vec![0; jobs.len()],
        undone: vec![0; jobs.len()],
        faults: Vec::new(),
        histories: vec![JobHistory::default(); jobs.len()],
        timeline: Timeline::default(),
        ended: 0,
    };
    let cancelled = match whole.run(&mut cluster, scheduler, progress) {
        Ok(()) => false,
        Err(Stop::Cancelled) => true,
        Err(Stop::Failed(failure)) => return Err(failure),
    };
    let mut record = Record::new(jobs.len());
    record.simulated_ns = cluster.now();
    let Told { histories, entered, undone, faults, timeline } = whole.tell(&mut record)?;
    let histories = histories_of(&mut cluster, &order.given, histories, timeline, faults, settings);
    Ok((put_together(histories, &mut record, entered, undone, seen), record, cancelled))
}

/// Refuses what is not simulated from end to end; `moves`: cables or switches may go out.
fn check(plan: &Plan, moves: bool) -> Result<(), Failure> {
    let refused = |message: &str| Err(InputError::new("--full", message).into());
    let moved_twice = moves && plan.troubles.impairments.moves_paths();
    match plan.fidelity {
        Fidelity::Flow if moved_twice => refused(
            "cables and switches fail or are drained by `cluster` or by `impairments` at `fidelity: flow`, not by both",
        ),
        Fidelity::Packet if plan.network.backend.is_some() => {
            refused("several jobs are not simulated from end to end by a model of one's own")
        }
        Fidelity::Packet if moved_twice => refused(
            "cables and switches fail or are drained by `cluster` or by `impairments` at `fidelity: packet`, not by both",
        ),
        Fidelity::Packet if moves && balancer_is_fixed(plan) => refused(
            "`load_balancer: destination_modulo` has one path for a pair, but cables or switches fail or are drained",
        ),
        Fidelity::Packet if reduces(plan) && plan.upkeep.is_some() => {
            refused("reductions in the network are not interrupted at `fidelity: packet`, and jobs may be")
        }
        Fidelity::Flow | Fidelity::Packet => Ok(()),
        Fidelity::Job | Fidelity::Message => {
            refused("several jobs are simulated from end to end at `fidelity: flow` and `packet` only")
        }
    }
}

/// Whether a pair keeps its path though it has failed.
fn balancer_is_fixed(plan: &Plan) -> bool {
    plan.network.balancer == LoadBalancer::DestinationModulo
}

/// Whether any collective is one of switches.
fn reduces(plan: &Plan) -> bool {
    let specs = plan
        .jobs
        .iter()
        .flat_map(|job_plan| &job_plan.work.workload.programs)
        .flat_map(|program| &program.specs);
    specs.into_iter().any(|spec| spec.algorithm.sums())
}

/// What a whole run leaves behind, but for the iterations.
struct Told {
    histories: Vec<JobHistory>,
    entered: Vec<Entered>,
    undone: Vec<u64>,
    faults: Vec<FaultRecord>,
    timeline: Timeline,
}

/// What became of the cluster's jobs; what they did is [put in](put_together).
fn histories_of(
    cluster: &mut Cluster<'_>,
    given: &[usize],
    mut jobs: Vec<JobHistory>,
    mut timeline: Timeline,
    faults: Vec<FaultRecord>,
    settings: &Settings<'_>,
) -> Histories {
    for (place, &job) in given.iter().enumerate() {
        jobs[job].submit = cluster.submitted_at(JobId(place as u32));
        jobs[job].time = cluster.job_time(JobId(place as u32));
    }
    timeline.until(cluster.now(), cluster.gpu_states());
    let mut stays = cluster.take_stays();
    stays.append(&mut cluster.open_stays());
    Histories {
        jobs,
        given: given.to_vec(),
        gpu_time: cluster.gpu_time(),
        faults,
        tallies: settings.upkeep.map(|_| cluster.tallies().collect()).unwrap_or_default(),
        end: CalendarTime::from_ns(cluster.now()),
        timeline,
        stays,
    }
}

/// Puts the iterations `seen` of each stay, and what was undone of each job, into the histories and the record.
fn put_together(
    mut histories: Histories,
    record: &mut Record,
    entered: Vec<Entered>,
    undone: Vec<u64>,
    seen: Vec<Vec<Iteration>>,
) -> Histories {
    for (started, history) in record.started.iter_mut().zip(&histories.jobs) {
        *started = history.start;
    }
    for (entry, mut iterations) in entered.iter().zip(seen) {
        // Ends may have been known before the job was taken off.
        let left_ps = entry.left.map_or(u64::MAX, windtunnel_kernel::Time::ps);
        iterations.truncate(iterations.partition_point(|iteration| iteration.finish_ps <= left_ps));
        let work = (iterations.len() as u128) << 64;
        let history = &mut histories.jobs[entry.job];
        if entry.loading {
            history.loaded.add(entry.gpus, work);
            continue;
        }
        let worked: u64 = iterations.iter().map(Iteration::span_ps).sum();
        history.worked += Span::from_ps(worked).ns_ceil();
        history.done.add(entry.gpus, work);
        record.iterations[entry.job].append(&mut iterations);
    }
    for (history, undone) in histories.jobs.iter_mut().zip(undone) {
        history.done.undo(u128::from(undone) << 64, &mut history.undone);
    }
    histories
}

/// A whole run under way.
struct Whole<'a> {
    plan: &'a Plan,
    options: &'a RunOptions,
    settings: &'a Settings<'a>,
    jobs: &'a [JobRequest],
    given: &'a [usize],
    stage: Stage<'a>,
    /// Changes of the fabric that the network knows of.
    fabric: u64,
    running: Vec<Running>,
    /// The job at each place of the shard.
    entered: Vec<Entered>,
    /// Iterations of each job that no interruption undoes.
    safe: Vec<u64>,
    /// Those that interruptions undid.
    undone: Vec<u64>,
    faults: Vec<FaultRecord>,
    histories: Vec<JobHistory>,
    timeline: Timeline,
    ended: u64,
}

impl Whole<'_> {
    fn run(
        &mut self,
        cluster: &mut Cluster<'_>,
        scheduler: &mut dyn Scheduler,
        progress: &mut dyn ProgressSink,
    ) -> Result<(), Stop> {
        let enough = self.settings.ends.unwrap_or(u64::MAX).min(self.jobs.len() as u64);
        self.advance(0, cluster, scheduler);
        self.admit(cluster, scheduler)?;
        let mut pace = Pace::new();
        let mut steps = 0u32;
        while self.ended < enough {
            if self.options.gate.as_ref().is_some_and(|gate| gate.is_closed()) {
                return Err(Stop::Cancelled);
            }
            // Faults may come so fast that the network never gets to a step between them.
            self.say(&mut pace, progress)?;
            let wake = scheduler.wakes(cluster).filter(|&at| at > cluster.now());
            let waits = wake.is_some() || !cluster.is_stuck();
            let write = self.running.iter().filter_map(|running| running.writes.next()).min();
            let event = cluster.next_event().into_iter().chain(wake).filter(|_| waits).chain(write).min();
            let Some(now) = self.until(event, &mut steps, &mut pace, cluster, progress)? else {
                return Err(Stop::Failed(self.stuck()));
            };
            if CalendarTime::from_ns(now).network_time() > Time::HORIZON {
                let message = "the network counts no further than 200 days: leave `--full` out, or run less";
                return Err(Stop::Failed(Failure::Run(Why::Horizon, message.to_owned())));
            }
            // What is written by now is safe from what fails now.
            self.resume(now);
            self.advance(now, cluster, scheduler);
            self.finish(cluster)?;
            self.admit(cluster, scheduler)?;
            self.write(cluster);
        }
        Ok(())
    }

    /// Runs the network up to the `event`, the end of a job, or the instant at which one can write a checkpoint, whichever comes
    /// first; `None` if none of them does.
    fn until(
        &mut self,
        event: Option<u64>,
        steps: &mut u32,
        pace: &mut Pace,
        cluster: &Cluster<'_>,
        progress: &mut dyn ProgressSink,
    ) -> Result<Option<u64>, Stop> {
        loop {
            // Ends of iterations may be known before the clock gets there; the calendar goes to whole nanoseconds.
            let of = |running: &Running| {
                let end = self.stage.shard.finished(running.place);
                end.or_else(|| running.writes.stops().then(|| self.stage.shard.held(running.place)).flatten())
            };
            let known = self
                .running
                .iter()
                .filter_map(of)
                .map(|at| Span::from_ps(at.ps()).ns_ceil().max(cluster.now()));
            let next = known.chain(event).min();
            let due = next.map_or(Time::NEVER, |at| CalendarTime::from_ns(at).network_time());
            if self.stage.shard.next_event() >= due {
                return Ok(next);
            }
            self.stage.shard.fabric_mut().stop_at(due);
            self.stage.shard.step();
            *steps = steps.wrapping_add(1);
            if steps.is_multiple_of(1 << 12) {
                if self.stage.shard.observer_mut().held() > HELD {
                    self.stage.shard.observer_mut().release();
                }
                self.say(pace, progress)?;
            }
            if let Some(failure) = self.stage.shard.observer_mut().failure() {
                return Err(Stop::Failed(Failure::sink(failure.to_owned())));
            }
        }
    }

    /// Tells how far the run is, if it is time to.
    fn say(&self, pace: &mut Pace, progress: &mut dyn ProgressSink) -> Result<(), Stop> {
        if !pace.due() {
            return Ok(());
        }
        let fraction = (self.ended as f64 + self.stage.shard.progress()) / self.jobs.len() as f64;
        let now = Span::from_ps(self.stage.shard.fabric().now().ps()).seconds();
        let events = self.stage.shard.fabric().events();
        if progress.progress(Some(fraction.min(1.0)), now, events) { Ok(()) } else { Err(Stop::Cancelled) }
    }

    /// Why no event is left though jobs have not ended.
    fn stuck(&mut self) -> Failure {
        let now = self.stage.shard.fabric().now();
        let network = self.stage.observe(now);
        if let Some(failure) = self.stage.failure(&network) {
            return failure;
        }
        let name = |entry: &Entered| self.plan.jobs[entry.job].name.as_str();
        let names: Vec<&str> = self.entered.iter().map(name).collect();
        self.stage.stuck(&network, &names, false).expect("not complete")
    }

    /// Hands over what was seen once nothing more is run: the network's part to `record`, rows to the sink.
    fn tell(mut self, record: &mut Record) -> Result<Told, Failure> {
        let end = self.stage.shard.fabric().now();
        record.events = self.stage.shard.fabric().events();
        record.counts.simulated = 1;
        let network = self.stage.observe(end);
        self.stage.traffic(&network, record, 0, Span::from_ps(end.ps()), true);
        self.stage.end(&network, record, 0..self.entered.len());
        self.stage.shard.observer_mut().release();
        if let Some(failure) = self.stage.shard.observer_mut().failure() {
            return Err(Failure::sink(failure.to_owned()));
        }
        let Self { histories, entered, undone, faults, timeline, .. } = self;
        Ok(Told { histories, entered, undone, faults, timeline })
    }

    fn advance(&mut self, now: u64, cluster: &mut Cluster<'_>, scheduler: &mut dyn Scheduler) {
        cluster.advance(now, scheduler);
        self.faults.extend(cluster.take_faults());
        self.timeline.until(now, cluster.gpu_states());
    }

    /// Ends jobs whose last iteration has; those whose data are there go to work.
    fn finish(&mut self, cluster: &mut Cluster<'_>) -> Result<(), Stop> {
        let (shard, now) = (&self.stage.shard, cluster.now());
        let due = |running: &mut Running| {
            // What fails at this instant goes first.
            let ended =
                shard.finished(running.place).is_some_and(|at| Span::from_ps(at.ps()).ns_ceil() <= now);
            ended && cluster.running_job(running.id).is_some()
        };
        let ended: Vec<Running> = self.running.extract_if(.., due).collect();
        for running in ended {
            if running.loading {
                cluster.reload(running.id, 0);
                self.enter(running.id, cluster)?;
                continue;
            }
            self.histories[running.job].finish = Some(CalendarTime::from_ns(now));
            cluster.end(running.id);
            self.ended += 1;
        }
        Ok(())
    }

    fn admit(&mut self, cluster: &mut Cluster<'_>, scheduler: &mut dyn Scheduler) -> Result<(), Stop> {
        let changes = cluster.decide(scheduler)?.to_vec();
        let starts = |change: &Change| matches!(change, Change::Started(_));
        let first = changes.iter().position(starts).unwrap_or(changes.len());
        for &change in &changes[..first] {
            self.carry_out(change, cluster, scheduler.name())?;
        }
        self.lay_paths(cluster);
        for &change in &changes[first..] {
            self.carry_out(change, cluster, scheduler.name())?;
        }
        let (waiting, running) = (cluster.queue().len() as u64, self.running.len() as u64);
        self.timeline.jobs(waiting, running, cluster.broken_free());
        Ok(())
    }

    fn carry_out(&mut self, change: Change, cluster: &mut Cluster<'_>, scheduler: &str) -> Result<(), Stop> {
        match change {
            Change::Started(id) => self.enter(id, cluster),
            Change::Stopped(id) => {
                self.leave(id, true, cluster.now());
                Ok(())
            }
            Change::Interrupted(id) => {
                self.leave(id, false, cluster.now());
                Ok(())
            }
            Change::Suspended(_) => {
                let message = format!(
                    "scheduler `{scheduler}` suspends jobs in mid-iteration, which `--full` cannot do"
                );
                Err(Stop::Failed(InputError::new("--full", message).into()))
            }
        }
    }

    /// Takes a job off its GPUs; it goes on after the last iteration that it has ended if that was `kept`.
    fn leave(&mut self, id: JobId, kept: bool, now: u64) {
        // One that was started at this instant never entered.
        let Some(place) = self.running.iter().position(|running| running.id == id) else { return };
        let running = self.running.remove(place);
        let now = CalendarTime::from_ns(now).network_time();
        let done = running.before + self.stage.shard.ended_by(running.place, now);
        match (running.loading, kept) {
            (true, _) => {}
            (false, true) => self.safe[running.job] = done,
            (false, false) => self.undone[running.job] += done - self.safe[running.job],
        }
        self.entered[running.place].left = Some(now);
        self.stage.shard.observer_mut().undo(running.place, now);
        self.stage.shard.forget(running.place);
        let gone = |ticket| shard::is_of(ticket, running.place);
        self.stage.shard.fabric_mut().abandon(now, &running.placement, &gone);
    }

    /// Tells the network of cables and switches that went out or came back.
    fn lay_paths(&mut self, cluster: &Cluster<'_>) {
        let changes = cluster.fabric_changes();
        let known = std::mem::replace(&mut self.fabric, changes);
        let (Some(upkeep), Some(rerouter)) = (&self.plan.upkeep, &self.stage.rerouter) else {
            return;
        };
        if known == changes || !upkeep.changes_fabric() {
            return;
        }
        let mut forwarder = upkeep.plant.forwarder(&cluster.fabric_out());
        forwarder.converge();
        let balancer = self.plan.network.balancer;
        let topology = &self.plan.fabric.topology;
        let names = PathNames::new(topology, Some(forwarder.clone()), balancer, self.plan.seed);
        self.stage.shard.observer_mut().rename_paths(names);
        *lock(rerouter).forwarder_mut() = forwarder.clone();
        let host = self.stage.shard.fabric_mut();
        host.advance_to(CalendarTime::from_ns(cluster.now()).network_time());
        host.network_mut().change_paths(&forwarder);
    }

    fn enter(&mut self, id: JobId, cluster: &mut Cluster<'_>) -> Result<(), Stop> {
        let Some(running) = cluster.running_job(id) else { return Ok(()) };
        if self.running.iter().any(|running| running.id == id) {
            return Ok(());
        }
        let placement = running.placement.clone();
        let job = self.given[id.0 as usize];
        let job_plan = &self.plan.jobs[job];
        let pause = cluster.segment(id).expect("it runs").pause;
        if let Some(load) = job_plan.work.load.as_ref().filter(|_| pause.loading > 0) {
            return self.enter_loading(id, placement, load.requests, cluster);
        }
        let before = self.safe[job];
        let ready = cluster.now() + pause.total();
        let iterations = self.jobs[job].iterations - before;
        let watched = EpisodeJob {
            placement: placement.clone(),
            left: iterations,
            done_before: before,
            ..placeless(job)
        };
        let place =
            self.put_on(&EpisodeJob { start: CalendarTime::from_ns(ready).network_time(), ..watched })?;
        self.histories[job].start = cluster.first_start(id);
        self.entered.push(Entered { job, loading: false, gpus: placement.len(), left: None });
        let writes = Writes::new(&self.jobs[job].life, ready);
        let mut running = Running { id, job, place, loading: false, placement, before, writes };
        if running.writes.begin(&mut self.stage.shard, place, iterations) {
            // When it writes, the shard shows.
            cluster.replan(id, u64::MAX, u64::MAX);
        }
        self.running.push(running);
        Ok(())
    }

    /// The data of a job, which has GPUs, are on their way to them.
    fn enter_loading(
        &mut self,
        id: JobId,
        placement: Vec<EndpointId>,
        requests: u64,
        cluster: &mut Cluster<'_>,
    ) -> Result<(), Stop> {
        let (job, now) = (self.given[id.0 as usize], cluster.now());
        let loads = EpisodeJob {
            placement: placement.clone(),
            start: CalendarTime::from_ns(now).network_time(),
            left: requests,
            loading: true,
            ..placeless(job)
        };
        let place = self.put_on(&loads)?;
        // How long it takes, the shard shows.
        cluster.reload(id, UNKNOWN);
        self.histories[job].start = cluster.first_start(id);
        self.entered.push(Entered { job, loading: true, gpus: placement.len(), left: None });
        let writes = Writes::new(&Life::default(), now);
        self.running.push(Running { id, job, place, loading: true, placement, before: 0, writes });
        Ok(())
    }

    /// Puts a job on the shard; its place there.
    fn put_on(&mut self, job: &EpisodeJob) -> Result<usize, Stop> {
        let alike = |entry: &&Entered| entry.job == job.job && entry.loading == job.loading;
        let stay = self.entered.iter().filter(alike).count() as u32;
        self.stage.shard.observer_mut().enter(watch(self.plan, job, u64::MAX, stay));
        Ok(self.stage.enter(job, shard_job(self.plan, job))?)
    }

    /// Lets jobs go on whose checkpoints are written.
    fn resume(&mut self, now: u64) {
        for running in &mut self.running {
            if let Some(iterations) = running.writes.end(now) {
                self.safe[running.job] = running.before + iterations;
                self.stage.shard.release(running.place, CalendarTime::from_ns(now).network_time());
                let left = self.jobs[running.job].iterations - running.before;
                running.writes.begin(&mut self.stage.shard, running.place, left);
            }
        }
    }

    /// Lets jobs stop for checkpoints that are due, and write those for which they have stopped.
    fn write(&mut self, cluster: &mut Cluster<'_>) {
        let now = cluster.now();
        for running in &mut self.running {
            let left = self.jobs[running.job].iterations - running.before;
            if running.writes.start(&mut self.stage.shard, running.place, left, now) {
                // A nanosecond of work, as every write has some before it.
                cluster.replan(running.id, 1, u64::MAX);
            }
        }
    }
}

fn placeless(job: usize) -> EpisodeJob {
    EpisodeJob {
        job,
        placement: Vec::new(),
        start: Time::ZERO,
        phase: Span::ZERO,
        left: 1,
        done_before: 0,
        loading: false,
        age: Span::ZERO,
        redone: 0,
        boundary: Time::ZERO,
    }
}
