//! Runs a plan: episodes on a fabric, their rows, and the summary.
//!
//! Life cycle: [`execute`] asks for each job's ideal iteration time, sends the jobs through the cluster's calendar, whose
//! episodes are simulated by [`FabricRunner`], and puts the summary together. Rows leave through the sink as they come.
//! A run that its progress sink stops returns what there is, marked partial. Failure modes: operations that can never
//! end, told with what each waits for; a sink that refuses rows.

mod clock;
mod cluster;
mod drive;
mod episode;
mod exchanged;
mod faults;
mod fold;
pub mod gate;
mod heat;
mod ideal;
pub mod journal;
pub mod machine;
mod memo;
pub mod native;
mod network;
mod origins;
mod paths;
mod payload;
mod placements;
mod recorder;
mod runner;
mod stream;
mod stuck;
mod summary;
pub mod table;
mod threads;
mod usage;
mod verdict;
mod whole;

use std::sync::{Arc, Mutex};

use windtunnel_backend::Library;
use windtunnel_cluster::calendar::{self, JobRequest, Settings};
use windtunnel_cluster::cluster::{JobId, Listener};
use windtunnel_cluster::free::Locator;
use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::{CalendarTime, Span, Time, memory};
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, JobName};
use windtunnel_plan::evidence::EvidenceRow;
use windtunnel_plan::inputs::Input;
use windtunnel_plan::jobs::JobPlan;
use windtunnel_plan::operations::OperationsPlan;
use windtunnel_plan::places::Places;
use windtunnel_plan::settings::{Fidelity, Phase};
use windtunnel_plan::stream::{JobStream, asks_for_groups};

use self::cluster::ClusterUse;
pub use self::drive::Pace;
use self::episode::Stop;
use self::gate::{Gate, Told};
use self::ideal::IdealTimes;
use self::journal::Journal;
use self::machine::Stopwatch;
use self::native::Native;
pub use self::network::host_spec;
use self::placements::Placements;
use self::runner::FabricRunner;
use self::summary::{FlowSummary, JobState, JobSummary, NetworkSummary, RunFigures};
use crate::table::{Column, ProgressSink, TableSink};

/// The engine's version, and a number for the sources that it was built from: results of one build are those of another one only
/// if this is the same.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("WINDTUNNEL_BUILD"));

/// What a caller asks of a run besides the scenario.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Name of the scenario's file, for messages.
    pub source: String,
    /// SHA-256 of the scenario's text, overrides and inputs.
    pub sha256: String,
    /// The files and sheets that it names.
    pub inputs: Vec<Input>,
    /// Simulate every iteration.
    pub full: bool,
    /// Runs since the scenario's text was taken: a user waits for the plan too.
    pub watch: Stopwatch,
    /// Threads; `None`: as many as there are, where it is worth it.
    pub threads: Option<usize>,
    /// Where digests of events go, if anybody wants them.
    pub digests: Option<Arc<Mutex<Digests>>>,
    /// Who moves the run's clock; `None`: it goes as fast as it can.
    pub gate: Option<Arc<Gate>>,
    /// What keeps the run's episodes, should it be killed.
    pub journal: Option<Arc<Journal>>,
    /// Which native code of the scenario may run.
    pub native: Native,
    /// The network model of a library, once it is loaded.
    pub library: Option<Library>,
}

impl RunOptions {
    /// Threads that a run may have.
    pub fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        self.threads.unwrap_or_else(cores)
    }
}

/// Digests of the events of a run at packet fidelity, one for each episode.
#[derive(Clone, Debug, Default)]
pub struct Digests {
    /// All events of all episodes, or those of a span of one.
    pub focus: Option<(usize, EventDigest)>,
    /// What was found.
    pub found: Vec<EventDigest>,
}

impl Digests {
    /// What the next episode is to keep.
    fn next(&self) -> EventDigest {
        match &self.focus {
            None => EventDigest::new(),
            Some((episode, focus)) if *episode == self.found.len() => focus.clone(),
            Some(_) => EventDigest::focused(Time::NEVER, Time::NEVER),
        }
    }
}

/// Runs `plan` and returns `summary.json`.
///
/// # Errors
/// [`Failure`] for input that shows its fault only here, operations that never end, or a sink that refuses rows.
pub fn execute(
    plan: &Plan,
    options: &RunOptions,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<serde_json::Value, Failure> {
    let mut options = options.clone();
    // Before the ideal runs, which may take long.
    if let (Some(backend), Fidelity::Packet) = (&plan.network.backend, plan.fidelity) {
        options.library = Some(options.native.load(backend, &options.source)?);
    }
    let options = &options;
    if let Some(stream) = &plan.stream {
        return replayed(plan, stream, options, sink, progress);
    }
    if let Some(line) = threads::no_help(plan, options) {
        progress.remark(&line);
    }
    if ideal::goes_beside(plan, options) {
        progress.phase(table::Phase::Simulating);
        return ideal::beside(plan, options, |ideal| simulated(plan, options, ideal, sink, progress));
    }
    let ideal = ideal::before(plan, options, progress)?;
    progress.phase(table::Phase::Simulating);
    match filled(plan, &ideal) {
        Some(filled) => simulated(&filled, options, &ideal, sink, progress),
        None => simulated(plan, options, &ideal, sink, progress),
    }
}

/// `plan` with as many iterations of each job as fit into the time that it is to last; `None` if no job has such a time.
fn filled(plan: &Plan, ideal: &IdealTimes<'_>) -> Option<Plan> {
    plan.jobs.iter().find(|job_plan| job_plan.lasts.is_some())?;
    let mut filled = plan.clone();
    for (job, job_plan) in filled.jobs.iter_mut().enumerate() {
        if let (Some(lasts), Some(one)) = (job_plan.lasts, ideal.of_job(job)) {
            let fit = u128::from(lasts) * 1_000 / u128::from(one.0.max(1));
            job_plan.iterations = u64::try_from(fit).unwrap_or(u64::MAX).max(1);
        }
    }
    Some(filled)
}

/// What is left once ideal times are known, or on their way.
fn simulated(
    plan: &Plan,
    options: &RunOptions,
    ideal: &IdealTimes<'_>,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<serde_json::Value, Failure> {
    let (watch, fidelity) = (options.watch, plan.fidelity);
    let requests: Vec<JobRequest> = plan
        .jobs
        .iter()
        .enumerate()
        .map(|(job, job_plan)| JobRequest {
            gpus: job_plan.ranks(),
            iterations: job_plan.iterations,
            submit: job_plan.submit,
            placement: job_plan.placement,
            ideal_iteration: ideal.of_job(job).unwrap_or(Span::ZERO),
            estimate: job_plan.estimate.or_else(|| alone(job_plan, ideal, job)).unwrap_or(Span::ZERO),
            deadline: job_plan.deadline,
            priority: job_plan.priority,
            locality: job_plan.locality,
            life: job_plan.life.clone(),
            loads: job_plan.work.load.as_ref().map(|load| load.requests),
        })
        .collect();
    let cluster = &plan.cluster;
    let placements: Vec<_> = plan.jobs.iter().map(|job_plan| job_plan.placement).collect();
    let localities: Vec<_> = plan.jobs.iter().map(|job_plan| job_plan.locality).collect();
    let places = asks_for_groups(&placements, &localities).then(|| Places::of(&plan.fabric.topology));
    let operations = plan.operations.as_ref().map(OperationsPlan::as_operations);
    let (queue, ends) = plan.source.as_ref().map_or((None, None), |source| (source.queue, source.ends));
    let given = calendar::in_order(&requests);
    let name = |job: JobId| plan.jobs[given[job.0 as usize]].name.clone();
    let told = options.gate.as_deref().map(|gate| Told { plan, gate, name: &name });
    // Stopped before it began.
    let ends = if ideal.is_stopped() { Some(0) } else { ends };
    let settings = Settings {
        endpoints: plan.fabric.topology.endpoints(),
        endpoints_per_host: plan.fabric.topology.endpoints_per_host(),
        storage: &plan.storage_hosts,
        episode_iterations: if options.full { u32::MAX } else { cluster.episodes.iterations },
        draw_phases: cluster.episodes.phase == Phase::Drawn,
        carry_below: if options.full || fidelity == Fidelity::Job {
            0
        } else {
            verdict::carry_below(&cluster.episodes)
        },
        iterates: fidelity != Fidelity::Job,
        reaction_delay: cluster.reaction_delay,
        operations: operations.as_ref(),
        regions: cluster.regions,
        locator: places.as_ref().map(|places| places as &dyn Locator),
        seed: plan.seed,
        queue,
        ends,
        listener: told.as_ref().map(|told| told as &dyn Listener),
    };
    let named =
        |failure: Failure| failure.named(|job| job_name(plan, &options.source, given[job.0 as usize], job));
    let mut scheduler = cluster::scheduler(plan);
    let whole = options.full && requests.len() > 1 && fidelity != Fidelity::Job;
    let (histories, mut record, story, cancelled) = if whole {
        let (histories, record, cancelled) =
            whole::run(plan, options, &requests, &settings, scheduler.as_mut(), sink, progress)
                .map_err(named)?;
        (histories, record, None, cancelled)
    } else {
        let mut runner = FabricRunner::new(plan, options, ideal, sink, &mut *progress);
        let (histories, outcome) = calendar::run(&requests, &settings, scheduler.as_mut(), &mut runner);
        let cancelled = match outcome {
            Ok(()) => false,
            Err(Stop::Cancelled) => true,
            Err(Stop::Failed(failure)) => return Err(named(failure)),
        };
        let (record, story) = runner.finish(histories.end)?;
        (histories, record, Some(story), cancelled)
    };
    let cancelled = !ideal.settle(progress) || cancelled;
    let least = ideal.least(plan, options, &histories, progress)?;
    let jobs: Vec<serde_json::Value> = plan
        .jobs
        .iter()
        .zip(&histories.jobs)
        .enumerate()
        .filter(|(_, (_, history))| history.submit.is_some() || requests.len() == 1)
        .map(|(job, (job_plan, history))| {
            let start = history.start.or(record.started[job]);
            JobSummary {
                job_plan,
                state: match (history.finish, start) {
                    (Some(_), _) => JobState::Finished,
                    (None, Some(_)) => JobState::Interrupted,
                    (None, None) if requests.len() == 1 => JobState::Interrupted,
                    (None, None) => JobState::Waiting,
                },
                iterations: &record.iterations[job],
                ideal_ps: least[job].map(|span| span.0),
                submit: history.submit.or_else(|| settings.queue.is_none().then_some(job_plan.submit)),
                start,
                finish: history.finish,
                time: history.time,
                variance: history.variance,
                worked_ns: history.worked,
                done: history.done.total() as f64 / (1_u128 << 64) as f64,
                undone: history.undone.total() as f64 / (1_u128 << 64) as f64,
            }
            .to_json()
        })
        .collect();
    sink.rows("jobs", summary::jobs_table(&jobs)).map_err(Failure::sink)?;
    if let Some(operations) = &plan.operations {
        let name = |job: JobId| plan.jobs[histories.given[job.0 as usize]].name.clone();
        let rows = faults::batch(&histories.faults, &operations.plant, &name);
        if let Some(rows) = rows {
            sink.rows("faults", rows).map_err(Failure::sink)?;
        }
    }
    let ended = histories.jobs.iter().filter_map(|history| history.finish).max();
    let end = if cancelled { CalendarTime(record.simulated_ns).max(histories.end) } else { histories.end };
    let mut usage = ClusterUse {
        gpu_time: histories.gpu_time,
        makespan_ns: ended.unwrap_or(end).0,
        jobs: jobs.len() as u64,
        tallies: histories.tallies.clone(),
        log: plan.log.clone(),
        ..ClusterUse::default()
    };
    for (job, history) in histories.jobs.iter().enumerate() {
        if let (Some(submit), Some(start), Some(finish)) = (history.submit, history.start, history.finish) {
            let job_plan = &plan.jobs[job];
            let alone = alone(job_plan, ideal, job).map(Span::ns_ceil);
            let late = cluster::late(submit.0, finish.0, job_plan.deadline);
            usage.ended([submit.0, start.0, finish.0], alone, late, history.time);
            usage.samples +=
                job_plan.samples.map_or(0.0, |samples| samples as f64 * job_plan.iterations as f64);
        }
    }
    for stay in &histories.stays {
        let job = histories.given[stay.job.0 as usize];
        if histories.jobs[job].finish.is_some() {
            let until = stay.until.unwrap_or(histories.end.0);
            usage.sampled_gpu_ns += u128::from(until - stay.start) * stay.placement.len() as u128;
        }
    }
    usage.over_time(&histories.timeline);
    if requests.len() > 1 {
        let rows = cluster::usage_rows(&histories.timeline, cluster::computing(plan));
        sink.rows("usage", rows).map_err(Failure::sink)?;
        let name = |job: JobId| plan.jobs[histories.given[job.0 as usize]].name.clone();
        let mut rows = Placements::of_all(settings.endpoints_per_host);
        histories.stays.iter().for_each(|stay| rows.add(stay, &name));
        sink.rows("placements", rows.batch(Column::Text)).map_err(Failure::sink)?;
    }
    if let Some(story) = story.filter(|_| fidelity != Fidelity::Job) {
        usage.episodes = story.episodes;
        usage.congested(&story.congestion);
        if requests.len() > 1 && fidelity == Fidelity::Flow {
            sink.rows("heat", story.heat.rows(&plan.fabric.topology)).map_err(Failure::sink)?;
            let rows = heat::congestion_rows(&story.congestion, &plan.jobs);
            sink.rows("congestion", rows).map_err(Failure::sink)?;
        }
    }
    if fidelity != Fidelity::Job {
        let sent = payload::of(plan, &histories.jobs, cancelled.then_some(&record.iterations));
        let count = |count: u128| Some(u64::try_from(count).unwrap_or(u64::MAX));
        let network = &mut record.network;
        (network.messages, network.bytes_delivered) = (count(sent.kept.messages), count(sent.kept.bytes));
        (network.undone_messages, network.undone_bytes) =
            (count(sent.undone.messages), count(sent.undone.bytes));
    }
    // Jobs of a source are rows of their table.
    let jobs = if plan.is_drawn() { Vec::new() } else { jobs };
    let partial = cancelled;
    let figures = RunFigures {
        scenario: plan.name.clone(),
        sha256: options.sha256.clone(),
        inputs: options.inputs.clone(),
        seed: plan.seed,
        fidelity: fidelity.name(),
        partial,
        fold: record.fold,
        simulated_ns: end.0,
        wall_time_s: watch.wall_seconds(),
        cpu_time_s: watch.cpu_seconds(),
        events: record.events,
        packet_hops: record.packet_hops,
        peak_memory_bytes: memory::peak(),
        peak_rss_bytes: machine::peak_rss_bytes(),
    };
    Ok(summary::summary(
        &figures,
        jobs,
        &record.network,
        &record.flows,
        usage.into_json(),
        &evidence(plan, options),
    ))
}

/// What the results rest on.
fn evidence(plan: &Plan, options: &RunOptions) -> Vec<EvidenceRow> {
    let mut evidence = plan.evidence.clone();
    if let (Some(library), Some(backend)) = (&options.library, &plan.network.backend) {
        let file = format!("`{}`", backend.written);
        evidence.add(&format!("network model {}", library.name()), "given", &file);
    }
    evidence.rows().to_vec()
}

/// How long a job takes where nothing waits and nothing is shared, if that is known.
fn alone(job_plan: &JobPlan, ideal: &IdealTimes<'_>, job: usize) -> Option<Span> {
    let iterations = || ideal.of_job(job).and_then(|span| span.0.checked_mul(job_plan.iterations)).map(Span);
    job_plan.duration.or_else(iterations)
}

/// What messages call a job that has a plan.
fn job_name(plan: &Plan, source: &str, job: usize, number: JobId) -> JobName {
    let place = if plan.is_drawn() { format!("{source}: jobs") } else { format!("{source}: jobs[{job}]") };
    let name = &plan.jobs[job].name;
    JobName { place, name: format!("job `{name}`"), numbered: format!("job {number} (`{name}`)") }
}

/// Runs the jobs of a log, or of the shape of one.
fn replayed(
    plan: &Plan,
    stream: &JobStream,
    options: &RunOptions,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<serde_json::Value, Failure> {
    let streamed = stream::run(plan, stream, options, sink, progress)?;
    let figures = RunFigures {
        scenario: plan.name.clone(),
        sha256: options.sha256.clone(),
        inputs: options.inputs.clone(),
        seed: plan.seed,
        fidelity: plan.fidelity.name(),
        partial: !streamed.replayed.complete,
        fold: 1,
        simulated_ns: streamed.replayed.end.0,
        wall_time_s: options.watch.wall_seconds(),
        cpu_time_s: options.watch.cpu_seconds(),
        events: streamed.replayed.events,
        packet_hops: None,
        peak_memory_bytes: memory::peak(),
        peak_rss_bytes: machine::peak_rss_bytes(),
    };
    Ok(summary::summary(
        &figures,
        Vec::new(),
        &NetworkSummary::default(),
        &FlowSummary::default(),
        streamed.usage.into_json(),
        &evidence(plan, options),
    ))
}
