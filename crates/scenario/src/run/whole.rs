//! `--full` with several jobs: one network from the first job's start to the last one's end, every iteration simulated.
//!
//! The shard runs up to the cluster's next event; a job that ends on the way stops it there, and the cluster reacts after
//! its delay, as between episodes. Jobs enter the network as it then is. What fast-forwarding comes to is measured
//! against this.
//!
//! Failure modes: a scheduler that stops running jobs, whose messages under way belong to nobody; a span beyond what
//! picoseconds can count.

use windtunnel_cluster::calendar::timeline::Timeline;
use windtunnel_cluster::calendar::{EpisodeJob, Histories, JobHistory, JobRequest, Settings};
use windtunnel_cluster::cluster::{Change, Cluster, JobId};
use windtunnel_cluster::life::Life;
use windtunnel_cluster::scheduler::Scheduler;
use windtunnel_cluster::shard::{Shard, ShardJob};
use windtunnel_fabric::Fabric;
use windtunnel_fabric::flow::FlowNetwork;
use windtunnel_fabric::host::Host;
use windtunnel_kernel::{CalendarTime, RandomStream, Span, Time};

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
    /// Its place on the shard.
    place: usize,
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
    if assembled.operations.is_some() || jobs.iter().any(|job| job.life != Life::default()) {
        let message = "what fails, is drained, loaded, saved or restarted is known between episodes only";
        return Err(InputError::new("--full", message)
            .hint("leave it out of the scenario, or `--full`")
            .into());
    }
    let (order, machine) = windtunnel_cluster::calendar::order(jobs, settings);
    let mut cluster = Cluster::new(&order.jobs, &machine);
    cluster.check_room()?;
    cluster.keep_stays();
    let spec = network::spec_of(assembled, 0..jobs.len());
    let balancer = network::balancer(scenario.network.load_balancer);
    let rerouter = network::rerouter(assembled.fabric.faults.as_ref());
    let fabric = network::flow(assembled, spec, balancer, true, false, rerouter.as_ref())?;
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
        running: Vec::new(),
        entered: Vec::new(),
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
    let Whole { mut histories, mut timeline, entered, .. } = whole;
    let given = &order.given;
    for (place, &job) in given.iter().enumerate() {
        histories[job].submit = cluster.submitted_at(JobId(place as u32));
        histories[job].time = cluster.job_time(JobId(place as u32));
        record.started[job] = histories[job].start;
    }
    for (&job, iterations) in entered.iter().zip(seen) {
        record.iterations[job] = iterations;
    }
    timeline.until(cluster.now(), cluster.gpu_states());
    let end = CalendarTime(cluster.now());
    let mut stays = cluster.take_stays();
    stays.append(&mut cluster.open_stays());
    let histories = Histories {
        jobs: histories,
        given: given.clone(),
        gpu_time: cluster.gpu_time(),
        faults: Vec::new(),
        tallies: Vec::new(),
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
    running: Vec<Running>,
    /// The job at each place of the shard.
    entered: Vec<usize>,
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
            let event = cluster.next_event().into_iter().chain(wake).min();
            let limit = event.map_or(Time::NEVER, |at| Time(at.saturating_mul(1_000)));
            let Some(now) = self.until(limit, &mut steps, &mut pace, cluster, progress)?.or(event) else {
                let stuck = self.shard.stuck();
                let jobs: Vec<EpisodeJob> = self.entered.iter().map(|&job| placeless(job)).collect();
                return Err(Stop::Failed(stuck_failure(self.assembled, &jobs, &stuck)));
            };
            if now > LONGEST {
                let message = "the network counts no further than 200 days: leave `--full` out, or run less";
                return Err(Stop::Failed(Failure::Run(message.to_owned())));
            }
            self.advance(now, cluster, scheduler);
            self.finish(cluster);
            self.admit(cluster, scheduler)?;
        }
        Ok(())
    }

    /// Runs the network up to `limit`, which lies in the future; the nanosecond at which a job ended before, if one did.
    fn until(
        &mut self,
        limit: Time,
        steps: &mut u32,
        pace: &mut Pace,
        cluster: &Cluster<'_>,
        progress: &mut dyn ProgressSink,
    ) -> Result<Option<u64>, Stop> {
        while self.shard.next_event() < limit {
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
            let ends = self.running.iter().filter_map(|running| self.shard.finished(running.place)).max();
            if let Some(end) = ends {
                // An end may be known before the clock gets there; the calendar goes to whole nanoseconds.
                return Ok(Some(Span(end.0).ns_ceil().max(cluster.now())));
            }
        }
        Ok(None)
    }

    fn advance(&mut self, now: u64, cluster: &mut Cluster<'_>, scheduler: &mut dyn Scheduler) {
        cluster.advance(now, scheduler);
        self.timeline.until(now, cluster.gpu_states());
    }

    fn finish(&mut self, cluster: &mut Cluster<'_>) {
        let shard = &self.shard;
        for running in self.running.extract_if(.., |running| shard.finished(running.place).is_some()) {
            self.histories[self.given[running.id.0 as usize]].finish = Some(CalendarTime(cluster.now()));
            cluster.end(running.id);
            self.ended += 1;
        }
    }

    fn admit(&mut self, cluster: &mut Cluster<'_>, scheduler: &mut dyn Scheduler) -> Result<(), Stop> {
        let changes = cluster.decide(scheduler)?.to_vec();
        for change in changes {
            match change {
                Change::Started(id) => self.enter(id, cluster)?,
                Change::Stopped(_) | Change::Suspended(_) | Change::Interrupted(_) => {
                    let message = format!(
                        "scheduler `{}` stops a running job, whose messages `--full` cannot take back",
                        scheduler.name()
                    );
                    return Err(Stop::Failed(InputError::new("--full", message).into()));
                }
            }
        }
        let (waiting, running) = (cluster.queue().len() as u64, self.running.len() as u64);
        self.timeline.jobs(waiting, running, cluster.broken_free());
        Ok(())
    }

    fn enter(&mut self, id: JobId, cluster: &Cluster<'_>) -> Result<(), Stop> {
        let Some(running) = cluster.running_job(id) else { return Ok(()) };
        let job = self.given[id.0 as usize];
        let plan = &self.assembled.jobs[job];
        let now = Time(cluster.now() * 1_000);
        let phase = if self.settings.draw_phases {
            // As between episodes, so that both begin alike.
            let span = self.jobs[job].ideal_iteration.0.max(1);
            Span(RandomStream::new(self.settings.seed, "episode-phase", job as u64).below(span))
        } else {
            Span::ZERO
        };
        let phase = if self.running.is_empty() { Span::ZERO } else { phase };
        let episode_job = EpisodeJob {
            placement: running.placement.clone(),
            left: self.jobs[job].iterations,
            ..placeless(job)
        };
        self.shard.observer_mut().enter(watch(&episode_job, plan, u64::MAX));
        let shard_job = ShardJob {
            number: job as u64,
            workload: plan.workload.clone(),
            placement: running.placement.clone().into(),
            iterations: self.jobs[job].iterations,
            start: now + phase,
            done_before: 0,
            simulated: [].into(),
        };
        let place = self.shard.enter(shard_job).map_err(|error| {
            let place = format!("{}: job `{}`", self.options.source, plan.name);
            InputError::new(place, error.to_string())
        })?;
        self.histories[job].start = cluster.first_start(id);
        self.entered.push(job);
        self.running.push(Running { id, place });
        Ok(())
    }
}

fn placeless(job: usize) -> EpisodeJob {
    EpisodeJob { job, placement: Vec::new(), start: Time::ZERO, phase: Span::ZERO, left: 1, done_before: 0 }
}
