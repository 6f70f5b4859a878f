//! `--full` with several jobs: one network from the first job's start to the last one's end, every iteration simulated.
//!
//! The shard runs up to the cluster's next event; a job that ends on the way stops it there, and the cluster reacts after
//! its delay, as between episodes. Jobs enter the network as it then is. What fast-forwarding comes to is measured
//! against this.
//!
//! A job that is interrupted or stopped vanishes from the network in mid-iteration, with all that it had under way, and enters
//! again at the iteration after the last one that is safe. Where cables or switches go out or come back, what is under way goes
//! on by the paths that there are. Checkpoints are written between iterations ([`writes`]).
//!
//! Failure modes: a scheduler that suspends jobs in the memory of their GPUs, in mid-iteration; a span beyond what picoseconds can
//! count.

mod writes;

use windtunnel_cluster::calendar::timeline::Timeline;
use windtunnel_cluster::calendar::{EpisodeJob, Histories, JobHistory, JobRequest, Settings};
use windtunnel_cluster::cluster::{Change, Cluster, FaultRecord, JobId};
use windtunnel_cluster::scheduler::Scheduler;
use windtunnel_cluster::shard::{Shard, ShardJob};
use windtunnel_fabric::Fabric;
use windtunnel_fabric::flow::FlowNetwork;
use windtunnel_fabric::host::Host;
use windtunnel_fabric::reroute::{SharedRerouter, lock};
use windtunnel_kernel::{CalendarTime, EndpointId, RandomStream, Span, Time};

use self::writes::Writes;
use super::RunOptions;
use super::drive::Pace;
use super::episode::{Record, Stop, stuck_failure, variation, watch};
use super::network;
use super::paths::PathNames;
use super::recorder::Recorder;
use super::usage;
use crate::assemble::Assembled;
use crate::error::{Failure, InputError};
use crate::schema::{ExchangeName, Fidelity};
use crate::table::{ProgressSink, TableSink};

/// Picoseconds that the network can count, with room for a message's way.
const LONGEST: u64 = 200 * 86_400 * 1_000_000_000;

/// Iterations whose rows are held back at most.
const HELD: usize = 1 << 12;

/// A job on the shard.
struct Running {
    id: JobId,
    /// Index of the job.
    job: usize,
    /// Its place on the shard.
    place: usize,
    placement: Vec<EndpointId>,
    /// Iterations that it had done before it entered.
    before: u64,
    writes: Writes,
}

/// Runs `jobs` to their end; if the progress sink stops it, as far as it came.
pub fn run(
    assembled: &Assembled,
    options: &RunOptions,
    jobs: &[JobRequest],
    settings: &Settings<'_>,
    scheduler: &mut dyn Scheduler,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<(Histories, Record, bool), Failure> {
    let scenario = &assembled.scenario;
    if scenario.fidelity != Fidelity::Flow {
        let message = "several jobs are simulated from end to end at `fidelity: flow` only";
        return Err(InputError::new("--full", message).into());
    }
    let (order, machine) = windtunnel_cluster::calendar::order(jobs, settings);
    let mut cluster = Cluster::new(&order.jobs, &machine);
    cluster.check_room()?;
    cluster.keep_stays();
    let spec = network::spec_of(assembled, 0..jobs.len());
    let balancer = network::balancer(scenario.network.load_balancer);
    // What always is out; and where more may go out, a rerouter in any case.
    let plan = assembled.operations.as_ref().filter(|plan| plan.changes_fabric());
    let moving = plan.map(|plan| plan.plant.forwarder(&[]));
    let rerouter = network::rerouter(moving.as_ref().or(assembled.fabric.faults.as_ref()));
    let mut fabric = network::flow(assembled, spec, balancer, true, false, rerouter.as_ref())?;
    if plan.is_some() {
        fabric.network_mut().expect_changes();
    }
    let variation = variation(assembled, CalendarTime(0));
    let (mut seen, mut held) = (Vec::new(), Vec::new());
    let names =
        PathNames::new(&assembled.fabric.topology, assembled.fabric.faults.clone(), balancer, scenario.seed);
    let recorder = Recorder::new(&assembled.jobs, names, sink, 0, &mut seen, &mut held, false);
    let mut shard = Shard::new(fabric, spec.endpoints, &variation, recorder);
    shard.keep_rings_coupled();
    if scenario.network.exchange == ExchangeName::Hosts {
        shard.exchange_whole();
    }
    let mut whole = Whole {
        assembled,
        options,
        settings,
        jobs,
        given: &order.given,
        shard,
        rerouter,
        fabric: 0,
        running: Vec::new(),
        entered: Vec::new(),
        safe: vec![0; jobs.len()],
        faults: Vec::new(),
        histories: vec![JobHistory::default(); jobs.len()],
        timeline: Timeline::default(),
        ended: 0,
    };
    let outcome = whole.run(&mut cluster, scheduler, progress);
    let cancelled = match outcome {
        Ok(()) => false,
        Err(Stop::Cancelled) => true,
        Err(Stop::Failed(failure)) => return Err(failure),
    };
    let topology = &assembled.fabric.topology;
    let mut record = Record::new(jobs.len());
    let end = whole.shard.fabric().now();
    record.events = whole.shard.fabric().events();
    record.simulated_ns = cluster.now();
    let flow = whole.shard.fabric_mut().network_mut();
    record.counts.solves = flow.solves();
    record.counts.flows = flow.messages() + flow.coupled_runs() + flow.exchange_flows();
    record.counts.simulated = 1;
    record.network.messages = Some(flow.messages());
    record.network.bytes_delivered = Some(flow.bytes_delivered());
    let (links, loads) = usage::links(flow, topology, 0, Span(end.0));
    record.network.links_most_loaded = loads;
    whole.shard.observer_mut().rows("links", links);
    whole.shard.observer_mut().release();
    if let Some(failure) = whole.shard.observer_mut().failure() {
        return Err(Failure::Run(failure.to_owned()));
    }
    let Whole { mut histories, mut timeline, entered, faults, .. } = whole;
    let given = &order.given;
    for (place, &job) in given.iter().enumerate() {
        histories[job].submit = cluster.submitted_at(JobId(place as u32));
        histories[job].time = cluster.job_time(JobId(place as u32));
        record.started[job] = histories[job].start;
    }
    for (&job, iterations) in entered.iter().zip(seen) {
        record.iterations[job].extend(iterations);
    }
    timeline.until(cluster.now(), cluster.gpu_states());
    let end = CalendarTime(cluster.now());
    let mut stays = cluster.take_stays();
    stays.append(&mut cluster.open_stays());
    let histories = Histories {
        jobs: histories,
        given: given.clone(),
        gpu_time: cluster.gpu_time(),
        faults,
        tallies: settings.operations.map(|_| cluster.tallies().collect()).unwrap_or_default(),
        end,
        timeline,
        stays,
    };
    Ok((histories, record, cancelled))
}

struct Whole<'a> {
    assembled: &'a Assembled,
    options: &'a RunOptions,
    settings: &'a Settings<'a>,
    jobs: &'a [JobRequest],
    given: &'a [usize],
    shard: Shard<'a, Host<FlowNetwork>, Recorder<'a>>,
    rerouter: Option<SharedRerouter>,
    /// Changes of the fabric that the network knows of.
    fabric: u64,
    running: Vec<Running>,
    /// The job at each place of the shard.
    entered: Vec<usize>,
    /// Iterations of each job that no interruption undoes.
    safe: Vec<u64>,
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
            let wake = scheduler.wakes(cluster).filter(|&at| at > cluster.now());
            let waits = wake.is_some() || !cluster.is_stuck();
            let write = self.running.iter().filter_map(|running| running.writes.next()).min();
            let event = cluster.next_event().into_iter().chain(wake).filter(|_| waits).chain(write).min();
            let Some(now) = self.until(event, &mut steps, &mut pace, cluster, progress)? else {
                let stuck = self.shard.stuck();
                let jobs: Vec<EpisodeJob> = self.entered.iter().map(|&job| placeless(job)).collect();
                return Err(Stop::Failed(stuck_failure(self.assembled, &jobs, &stuck)));
            };
            if now > LONGEST {
                let message = "the network counts no further than 200 days: leave `--full` out, or run less";
                return Err(Stop::Failed(Failure::Run(message.to_owned())));
            }
            // What is written by now is safe from what fails now.
            self.resume(now);
            self.advance(now, cluster, scheduler);
            self.finish(cluster);
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
                let end = self.shard.finished(running.place);
                end.or_else(|| running.writes.stops().then(|| self.shard.held(running.place)).flatten())
            };
            let known = self.running.iter().filter_map(of).map(|at| Span(at.0).ns_ceil().max(cluster.now()));
            let next = known.chain(event).min();
            if self.shard.next_event() >= next.map_or(Time::NEVER, |at| Time(at.saturating_mul(1_000))) {
                return Ok(next);
            }
            self.shard.handle(1);
            *steps = steps.wrapping_add(1);
            if steps.is_multiple_of(1 << 12) {
                if self.shard.observer_mut().held() > HELD {
                    self.shard.observer_mut().release();
                }
                if pace.due() {
                    let fraction = (self.ended as f64 + self.shard.progress()) / self.jobs.len() as f64;
                    let now = Span(self.shard.fabric().now().0).seconds();
                    let events = self.shard.fabric().events();
                    if !progress.progress(Some(fraction.min(1.0)), now, events) {
                        return Err(Stop::Cancelled);
                    }
                }
            }
            if let Some(failure) = self.shard.observer_mut().failure() {
                return Err(Stop::Failed(Failure::Run(failure.to_owned())));
            }
        }
    }

    fn advance(&mut self, now: u64, cluster: &mut Cluster<'_>, scheduler: &mut dyn Scheduler) {
        cluster.advance(now, scheduler);
        self.faults.extend(cluster.take_faults());
        self.timeline.until(now, cluster.gpu_states());
    }

    fn finish(&mut self, cluster: &mut Cluster<'_>) {
        let (shard, now) = (&self.shard, cluster.now());
        let due = |running: &mut Running| {
            // What fails at this instant goes first.
            let ended = shard.finished(running.place).is_some_and(|at| Span(at.0).ns_ceil() <= now);
            ended && cluster.running_job(running.id).is_some()
        };
        let ended: Vec<Running> = self.running.extract_if(.., due).collect();
        for running in ended {
            self.histories[running.job].finish = Some(CalendarTime(now));
            cluster.end(running.id);
            self.ended += 1;
        }
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
        let now = Time(now * 1_000);
        if kept {
            self.safe[running.job] = running.before + self.shard.ended_by(running.place, now);
        }
        self.shard.forget(running.place);
        self.shard.fabric_mut().abandon(now, &running.placement);
    }

    /// Tells the network of cables and switches that went out or came back.
    fn lay_paths(&mut self, cluster: &Cluster<'_>) {
        let changes = cluster.fabric_changes();
        let known = std::mem::replace(&mut self.fabric, changes);
        let (Some(plan), Some(rerouter)) = (&self.assembled.operations, &self.rerouter) else { return };
        if known == changes || !plan.changes_fabric() {
            return;
        }
        let mut forwarder = plan.plant.forwarder(&cluster.fabric_out());
        forwarder.converge();
        let scenario = &self.assembled.scenario;
        let balancer = network::balancer(scenario.network.load_balancer);
        let topology = &self.assembled.fabric.topology;
        let names = PathNames::new(topology, Some(forwarder.clone()), balancer, scenario.seed);
        self.shard.observer_mut().rename_paths(names);
        *lock(rerouter).forwarder_mut() = forwarder;
        let host = self.shard.fabric_mut();
        host.advance_to(Time(cluster.now() * 1_000));
        host.network_mut().paths_changed();
    }

    fn enter(&mut self, id: JobId, cluster: &mut Cluster<'_>) -> Result<(), Stop> {
        let Some(running) = cluster.running_job(id) else { return Ok(()) };
        if self.running.iter().any(|running| running.id == id) {
            return Ok(());
        }
        let placement = running.placement.clone();
        let job = self.given[id.0 as usize];
        let plan = &self.assembled.jobs[job];
        let before = self.safe[job];
        let ready = cluster.now() + cluster.segment(id).expect("it runs").pause.total();
        let first = self.histories[job].start.is_none();
        let phase = if self.settings.draw_phases && first {
            // As between episodes, so that both begin alike.
            let span = self.jobs[job].ideal_iteration.0.max(1);
            Span(RandomStream::new(self.settings.seed, "episode-phase", job as u64).below(span))
        } else {
            Span::ZERO
        };
        let phase = if self.running.is_empty() { Span::ZERO } else { phase };
        let iterations = self.jobs[job].iterations - before;
        let watched = EpisodeJob {
            placement: placement.clone(),
            left: iterations,
            done_before: before,
            ..placeless(job)
        };
        self.shard.observer_mut().enter(watch(&watched, plan, u64::MAX));
        let shard_job = ShardJob {
            number: job as u64,
            workload: plan.workload.clone(),
            placement: placement.clone().into(),
            iterations,
            start: Time(ready * 1_000) + phase,
            done_before: before,
            simulated: [].into(),
        };
        let place = self.shard.enter(shard_job).map_err(|error| {
            let place = format!("{}: job `{}`", self.options.source, plan.name);
            InputError::new(place, error.to_string())
        })?;
        self.histories[job].start = cluster.first_start(id);
        self.entered.push(job);
        let writes = Writes::new(&self.jobs[job].life, ready);
        let mut running = Running { id, job, place, placement, before, writes };
        if running.writes.begin(&mut self.shard, place, iterations) {
            // When it writes, the shard shows.
            cluster.replan(id, u64::MAX, u64::MAX);
        }
        self.running.push(running);
        Ok(())
    }

    /// Lets jobs go on whose checkpoints are written.
    fn resume(&mut self, now: u64) {
        for running in &mut self.running {
            if let Some(iterations) = running.writes.end(now) {
                self.safe[running.job] = running.before + iterations;
                self.shard.release(running.place, Time(now * 1_000));
                let left = self.jobs[running.job].iterations - running.before;
                running.writes.begin(&mut self.shard, running.place, left);
            }
        }
    }

    /// Lets jobs stop for checkpoints that are due, and write those for which they have stopped.
    fn write(&mut self, cluster: &mut Cluster<'_>) {
        let now = cluster.now();
        for running in &mut self.running {
            let left = self.jobs[running.job].iterations - running.before;
            if running.writes.start(&mut self.shard, running.place, left, now) {
                // A nanosecond of work, as every write has some before it.
                cluster.replan(running.id, 1, u64::MAX);
            }
        }
    }
}

fn placeless(job: usize) -> EpisodeJob {
    EpisodeJob { job, placement: Vec::new(), start: Time::ZERO, phase: Span::ZERO, left: 1, done_before: 0 }
}
