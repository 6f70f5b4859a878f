//! Job fidelity for many jobs: no fabric and no episodes, a row per job as it ends and per stay on a host.

use windtunnel_cluster::by_duration::{Ended, Observer, Outcome, RunError, run as run_by_duration};
use windtunnel_cluster::cluster::{ClusterError, FaultRecord, JobId, JobTime, Listener, Machine, Stay};
use windtunnel_cluster::free::Locator;
use windtunnel_kernel::CalendarTime;
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, InputError, JobName};
use windtunnel_plan::origin::Origin;
use windtunnel_plan::places::Places;
use windtunnel_plan::plant::FabricPlant;
use windtunnel_plan::stream::{JobStream, asks_for_groups};
use windtunnel_plan::upkeep::UpkeepPlan;

use super::RunOptions;
use super::cluster::{ClusterUse, computing, late, scheduler, slowdown, usage_rows};
use super::drive::Pace;
use super::faults;
use super::gate::{Gate, Told};
use super::placements::Placements;
use crate::table::{Batch, Column, ProgressSink, TableSink};

/// Rows that leave together.
const ROWS: usize = 1 << 16;

/// What a run came to.
pub(crate) struct Streamed {
    /// Of the cluster.
    pub usage: ClusterUse,
    /// Events, and whether all jobs ended.
    pub outcome: Outcome,
}

/// Replays the jobs of the scenario's source.
///
/// # Errors
/// [`Failure`] for a job that fits nowhere, or a sink that refuses rows.
pub(crate) fn run(
    plan: &Plan,
    stream: &JobStream,
    options: &RunOptions,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<Streamed, Failure> {
    let name = |job: JobId| job.0.to_string();
    let told = options.gate.as_deref().map(|gate| Told { plan, gate, name: &name });
    let topology = &plan.fabric.topology;
    let cluster = &plan.cluster;
    let localities: Vec<_> = stream.jobs.first().map(|job| job.locality).into_iter().collect();
    let places = asks_for_groups(&[stream.placement], &localities).then(|| Places::of(topology));
    let upkeep = plan.upkeep.as_ref().map(UpkeepPlan::as_upkeep);
    let machine = Machine {
        endpoints: topology.endpoints(),
        endpoints_per_host: topology.endpoints_per_host(),
        storage: &plan.storage_hosts,
        regions: cluster.regions,
        reaction_delay: cluster.reaction_delay,
        lives: stream.lives.clone(),
        upkeep: upkeep.as_ref(),
        seed: plan.seed,
        queue: stream.queue,
        placements: vec![stream.placement],
        locator: places.as_ref().map(|places| places as &dyn Locator),
        listener: told.as_ref().map(|told| told as &dyn Listener),
    };
    let mut scheduler = scheduler(plan);
    let usage = ClusterUse { jobs: stream.jobs.len() as u64, log: plan.log.clone(), ..ClusterUse::default() };
    let plant = plan.upkeep.as_ref().map(|upkeep| &upkeep.plant);
    let (rows, faults, pace) = (Rows::default(), Vec::new(), Pace::new());
    let gpus = stream.jobs.iter().map(|job| job.gpus);
    let placements = Placements::of_some(machine.endpoints_per_host, topology.hosts(), gpus);
    let gate = options.gate.as_deref();
    let mut watcher = Watcher { stream, sink, progress, usage, rows, placements, plant, faults, pace, gate };
    let outcome =
        run_by_duration(&stream.jobs, &stream.durations, &machine, scheduler.as_mut(), &mut watcher);
    let outcome = outcome.map_err(|error| failure(&error, plan, stream, &options.source))?;
    watcher.flush().map_err(Failure::sink)?;
    let over_time = usage_rows(&outcome.timeline, computing(plan));
    watcher.sink.rows("usage", over_time).map_err(Failure::sink)?;
    let mut usage = watcher.usage;
    usage.over_time(&outcome.timeline);
    usage.gpu_time = outcome.gpu_time;
    usage.tallies.clone_from(&outcome.tallies);
    usage.makespan_ns = outcome.end.ns();
    Ok(Streamed { usage, outcome })
}

fn failure(error: &RunError, plan: &Plan, stream: &JobStream, source: &str) -> Failure {
    let error = match error {
        RunError::Cluster(error) => error.clone(),
        RunError::Observer(message) => return Failure::sink(message.clone()),
    };
    let fits_nowhere = matches!(error, ClusterError::NoRoom { .. });
    let log = plan.source.as_ref().and_then(|source| source.log.as_deref());
    let failure = Failure::from(error).named(|job| {
        let name = match (log, stream.lines.get(job.0 as usize)) {
            (Some(log), Some(line)) => format!("job {job} ({log}:{line})"),
            _ => format!("job {job}"),
        };
        JobName { place: format!("{source}: jobs"), numbered: name.clone(), name }
    });
    match failure {
        Failure::Input(InputError { place, message, .. }) if fits_nowhere => {
            let hint = "lower `scale.max_gpus`, loosen `locality`, or have fewer `cluster.regions`";
            InputError::new(place, message).hint(hint).into()
        }
        other => other,
    }
}

/// Rows of jobs on their way out.
#[derive(Default)]
struct Rows {
    job: Vec<u64>,
    line: Vec<u32>,
    gpus: Vec<u32>,
    priority: Vec<f64>,
    submit: Vec<f64>,
    start: Vec<f64>,
    finish: Vec<f64>,
    duration: Vec<f64>,
    waiting: Vec<f64>,
    slowdown: Vec<f64>,
    late: Vec<f64>,
    time: Vec<JobTime>,
    origin: Vec<Origin>,
}

impl Rows {
    fn batch(self) -> Batch {
        let count = self.job.len();
        let mut batch = Batch::default()
            .with("job", Column::U64(self.job))
            .with("line", Column::U32(self.line))
            .with("state", Column::repeated("finished", count))
            .with("gpus", Column::U32(self.gpus))
            .with("priority", Column::F64(self.priority))
            .with("submit_s", Column::F64(self.submit))
            .with("start_s", Column::F64(self.start))
            .with("finish_s", Column::F64(self.finish))
            .with("duration_s", Column::F64(self.duration))
            .with("waiting_s", Column::F64(self.waiting))
            .with("slowdown", Column::F64(self.slowdown))
            .with("late_s", Column::F64(self.late))
            .with("preemptions", Column::U32(self.time.iter().map(JobTime::stops).collect()))
            .with("interruptions", Column::U32(self.time.iter().map(|time| time.interruptions).collect()));
        for (place, name) in JobTime::NAMES.into_iter().enumerate() {
            batch =
                batch.with(name, Column::F64(self.time.iter().map(|time| time.seconds()[place]).collect()));
        }
        super::origins::columns(batch, &self.origin)
    }
}

struct Watcher<'a> {
    stream: &'a JobStream,
    sink: &'a mut dyn TableSink,
    progress: &'a mut dyn ProgressSink,
    usage: ClusterUse,
    rows: Rows,
    placements: Placements<u64>,
    plant: Option<&'a FabricPlant>,
    faults: Vec<FaultRecord>,
    pace: Pace,
    gate: Option<&'a Gate>,
}

impl Watcher<'_> {
    fn flush(&mut self) -> Result<(), String> {
        if let Some(plant) = self.plant {
            let faults = std::mem::take(&mut self.faults);
            if let Some(batch) = faults::batch(&faults, plant, &|job| job.0.to_string()) {
                self.sink.rows("faults", batch)?;
            }
        }
        if self.placements.len() > 0 {
            self.sink.rows("placements", self.placements.batch(Column::U64))?;
        }
        let rows = std::mem::take(&mut self.rows);
        if rows.job.is_empty() { Ok(()) } else { self.sink.rows("jobs", rows.batch()) }
    }
}

impl Observer for Watcher<'_> {
    fn ended(&mut self, ended: &Ended) -> Result<(), String> {
        let index = ended.job.0 as usize;
        let (job, duration) = (&self.stream.jobs[index], self.stream.durations[index]);
        let (submit, start, finish) = (ended.submit.ns(), ended.start.ns(), ended.finish.ns());
        let late = late(submit, finish, job.deadline);
        self.usage.ended([submit, start, finish], Some(duration), late, ended.time);
        let seconds = |ns: u64| ns as f64 / 1e9;
        let rows = &mut self.rows;
        rows.job.push(u64::from(ended.job.0));
        rows.line.push(self.stream.lines.get(index).copied().unwrap_or(0));
        rows.gpus.push(job.gpus);
        rows.priority.push(f64::from(job.priority));
        rows.submit.push(seconds(submit));
        rows.start.push(seconds(start));
        rows.finish.push(seconds(finish));
        rows.duration.push(seconds(duration));
        rows.waiting.push(seconds(start - submit));
        rows.slowdown.push(slowdown(submit, finish, duration));
        rows.late.push(late.map_or(f64::NAN, seconds));
        rows.time.push(ended.time);
        rows.origin.push(Origin::of(&self.stream.facts, index));
        if rows.job.len() == ROWS { self.flush() } else { Ok(()) }
    }

    fn fault(&mut self, record: &FaultRecord) -> Result<(), String> {
        self.faults.push(*record);
        if self.faults.len() == ROWS { self.flush() } else { Ok(()) }
    }

    fn wants_stays(&self) -> bool {
        true
    }

    fn stay(&mut self, stay: &Stay) -> Result<(), String> {
        self.placements.add(stay, &|job: JobId| u64::from(job.0));
        if self.placements.len() >= ROWS { self.flush() } else { Ok(()) }
    }

    fn progress(&mut self, ended: u64, now: CalendarTime, events: u64) -> bool {
        if self.gate.is_some_and(Gate::is_closed) {
            return false;
        }
        if !self.pace.due() {
            return true;
        }
        let fraction = ended as f64 / self.stream.jobs.len() as f64;
        self.progress.progress(Some(fraction), now.ns() as f64 / 1e9, events)
    }
}
