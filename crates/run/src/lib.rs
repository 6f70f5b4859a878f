//! Runs an assembled scenario: episodes on a fabric, their rows, and the summary.
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
mod heat;
mod ideal;
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
use windtunnel_cluster::cluster::JobId;
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
use self::ideal::IdealTimes;
use self::machine::Stopwatch;
use self::native::Native;
pub use self::network::host_spec;
use self::placements::Placements;
use self::runner::FabricRunner;
use self::summary::{FlowSummary, JobState, JobSummary, NetworkSummary, RunFigures};
use crate::table::{Column, ProgressSink, TableSink};

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
    /// Runs since the scenario's text was taken: a user waits for the assembling too.
    pub watch: Stopwatch,
    /// Threads; `None`: as many as there are, where it is worth it.
    pub threads: Option<usize>,
    /// Where digests of events go, if anybody wants them.
    pub digests: Option<Arc<Mutex<Digests>>>,
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

/// Runs `assembled` and returns `summary.json`.
///
/// # Errors
/// [`Failure`] for input that shows its fault only here, operations that never end, or a sink that refuses rows.
pub fn execute(
    assembled: &Plan,
    options: &RunOptions,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<serde_json::Value, Failure> {
    let mut options = options.clone();
    // Before the ideal runs, which may take long.
    if let (Some(backend), Fidelity::Packet) = (&assembled.network.backend, assembled.fidelity) {
        options.library = Some(options.native.load(backend, &options.source)?);
    }
    let options = &options;
    if let Some(stream) = &assembled.stream {
        return replayed(assembled, stream, options, sink, progress);
    }
    if let Some(line) = threads::no_help(assembled, options) {
        progress.remark(&line);
    }
    if ideal::goes_beside(assembled, options) {
        progress.phase(table::Phase::Simulating);
        return ideal::beside(assembled, options, |ideal| {
            simulated(assembled, options, ideal, sink, progress)
        });
    }
    let ideal = ideal::before(assembled, options, progress)?;
    progress.phase(table::Phase::Simulating);
    match filled(assembled, &ideal) {
        Some(filled) => simulated(&filled, options, &ideal, sink, progress),
        None => simulated(assembled, options, &ideal, sink, progress),
    }
}

/// `assembled` with as many iterations of each job as fit into the time that it is to last; `None` if no job has such a time.
fn filled(assembled: &Plan, ideal: &IdealTimes<'_>) -> Option<Plan> {
    assembled.jobs.iter().find(|plan| plan.lasts.is_some())?;
    let mut filled = assembled.clone();
    for (job, plan) in filled.jobs.iter_mut().enumerate() {
        if let (Some(lasts), Some(one)) = (plan.lasts, ideal.of_job(job)) {
            let fit = u128::from(lasts) * 1_000 / u128::from(one.0.max(1));
            plan.iterations = u64::try_from(fit).unwrap_or(u64::MAX).max(1);
        }
    }
    Some(filled)
}

/// What is left once ideal times are known, or on their way.
fn simulated(
    assembled: &Plan,
    options: &RunOptions,
    ideal: &IdealTimes<'_>,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<serde_json::Value, Failure> {
    let (watch, fidelity) = (options.watch, assembled.fidelity);
    let requests: Vec<JobRequest> = assembled
        .jobs
        .iter()
        .enumerate()
        .map(|(job, plan)| JobRequest {
            gpus: plan.ranks(),
            iterations: plan.iterations,
            submit: plan.submit,
            placement: plan.placement,
            ideal_iteration: ideal.of_job(job).unwrap_or(Span::ZERO),
            estimate: plan.estimate.or_else(|| alone(plan, ideal, job)).unwrap_or(Span::ZERO),
            deadline: plan.deadline,
            priority: plan.priority,
            locality: plan.locality,
            life: plan.life.clone(),
            loads: plan.work.load.as_ref().map(|load| load.requests),
        })
        .collect();
    let cluster = &assembled.cluster;
    let placements: Vec<_> = assembled.jobs.iter().map(|plan| plan.placement).collect();
    let localities: Vec<_> = assembled.jobs.iter().map(|plan| plan.locality).collect();
    let places = asks_for_groups(&placements, &localities).then(|| Places::of(&assembled.fabric.topology));
    let operations = assembled.operations.as_ref().map(OperationsPlan::as_operations);
    let (queue, ends) = assembled.source.as_ref().map_or((None, None), |source| (source.queue, source.ends));
    // Stopped before it began.
    let ends = if ideal.is_stopped() { Some(0) } else { ends };
    let settings = Settings {
        endpoints: assembled.fabric.topology.endpoints(),
        endpoints_per_host: assembled.fabric.topology.endpoints_per_host(),
        storage: &assembled.storage_hosts,
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
        seed: assembled.seed,
        queue,
        ends,
    };
    let named = |failure: Failure| {
        failure.named(|job| {
            job_name(assembled, &options.source, calendar::in_order(&requests)[job.0 as usize], job)
        })
    };
    let mut scheduler = cluster::scheduler(assembled);
    let whole = options.full && requests.len() > 1 && fidelity != Fidelity::Job;
    let (histories, mut record, story, cancelled) = if whole {
        let (histories, record, cancelled) =
            whole::run(assembled, options, &requests, &settings, scheduler.as_mut(), sink, progress)
                .map_err(named)?;
        (histories, record, None, cancelled)
    } else {
        let mut runner = FabricRunner::new(assembled, options, ideal, sink, &mut *progress);
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
    let least = ideal.least(assembled, options, &histories, progress)?;
    let jobs: Vec<serde_json::Value> = assembled
        .jobs
        .iter()
        .zip(&histories.jobs)
        .enumerate()
        .filter(|(_, (_, history))| history.submit.is_some() || requests.len() == 1)
        .map(|(job, (plan, history))| {
            let start = history.start.or(record.started[job]);
            JobSummary {
                plan,
                state: match (history.finish, start) {
                    (Some(_), _) => JobState::Finished,
                    (None, Some(_)) => JobState::Interrupted,
                    (None, None) if requests.len() == 1 => JobState::Interrupted,
                    (None, None) => JobState::Waiting,
                },
                iterations: &record.iterations[job],
                ideal_ps: least[job].map(|span| span.0),
                submit: history.submit.or_else(|| settings.queue.is_none().then_some(plan.submit)),
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
    sink.rows("jobs", summary::jobs_table(&jobs)).map_err(Failure::Run)?;
    if let Some(plan) = &assembled.operations {
        let name = |job: JobId| assembled.jobs[histories.given[job.0 as usize]].name.clone();
        let rows = faults::batch(&histories.faults, &plan.plant, &name);
        if let Some(rows) = rows {
            sink.rows("faults", rows).map_err(Failure::Run)?;
        }
    }
    let ended = histories.jobs.iter().filter_map(|history| history.finish).max();
    let end = if cancelled { CalendarTime(record.simulated_ns).max(histories.end) } else { histories.end };
    let mut usage = ClusterUse {
        gpu_time: histories.gpu_time,
        makespan_ns: ended.unwrap_or(end).0,
        jobs: jobs.len() as u64,
        tallies: histories.tallies.clone(),
        log: assembled.log.clone(),
        ..ClusterUse::default()
    };
    for (job, history) in histories.jobs.iter().enumerate() {
        if let (Some(submit), Some(start), Some(finish)) = (history.submit, history.start, history.finish) {
            let plan = &assembled.jobs[job];
            let alone = alone(plan, ideal, job).map(Span::ns_ceil);
            let late = cluster::late(submit.0, finish.0, plan.deadline);
            usage.ended([submit.0, start.0, finish.0], alone, late, history.time);
            usage.samples += plan.samples.map_or(0.0, |samples| samples as f64 * plan.iterations as f64);
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
        let rows = cluster::usage_rows(&histories.timeline, cluster::computing(assembled));
        sink.rows("usage", rows).map_err(Failure::Run)?;
        let name = |job: JobId| assembled.jobs[histories.given[job.0 as usize]].name.clone();
        let mut rows = Placements::of_all(settings.endpoints_per_host);
        histories.stays.iter().for_each(|stay| rows.add(stay, &name));
        sink.rows("placements", rows.batch(Column::Text)).map_err(Failure::Run)?;
    }
    if let Some(story) = story.filter(|_| fidelity != Fidelity::Job) {
        usage.episodes = story.episodes;
        usage.congested(&story.congestion);
        if requests.len() > 1 && fidelity == Fidelity::Flow {
            sink.rows("heat", story.heat.rows(&assembled.fabric.topology)).map_err(Failure::Run)?;
            let rows = heat::congestion_rows(&story.congestion, &assembled.jobs);
            sink.rows("congestion", rows).map_err(Failure::Run)?;
        }
    }
    if fidelity != Fidelity::Job {
        let sent = payload::of(assembled, &histories.jobs, cancelled.then_some(&record.iterations));
        let count = |count: u128| Some(u64::try_from(count).unwrap_or(u64::MAX));
        let network = &mut record.network;
        (network.messages, network.bytes_delivered) = (count(sent.kept.messages), count(sent.kept.bytes));
        (network.undone_messages, network.undone_bytes) =
            (count(sent.undone.messages), count(sent.undone.bytes));
    }
    // Jobs of a source are rows of their table.
    let jobs = if !assembled.is_drawn() { jobs } else { Vec::new() };
    let partial = cancelled;
    let figures = RunFigures {
        scenario: assembled.name.clone(),
        sha256: options.sha256.clone(),
        inputs: options.inputs.clone(),
        seed: assembled.seed,
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
        &evidence(assembled, options),
    ))
}

/// What the results rest on.
fn evidence(assembled: &Plan, options: &RunOptions) -> Vec<EvidenceRow> {
    let mut evidence = assembled.evidence.clone();
    if let (Some(library), Some(backend)) = (&options.library, &assembled.network.backend) {
        let file = format!("`{}`", backend.written);
        evidence.add(&format!("network model {}", library.name()), "given", &file);
    }
    evidence.rows().to_vec()
}

/// How long a job takes where nothing waits and nothing is shared, if that is known.
fn alone(plan: &JobPlan, ideal: &IdealTimes<'_>, job: usize) -> Option<Span> {
    let iterations = || ideal.of_job(job).and_then(|span| span.0.checked_mul(plan.iterations)).map(Span);
    plan.duration.or_else(iterations)
}

/// What messages call a job that has a plan.
fn job_name(assembled: &Plan, source: &str, job: usize, number: JobId) -> JobName {
    let place =
        if assembled.is_drawn() { format!("{source}: jobs") } else { format!("{source}: jobs[{job}]") };
    let name = &assembled.jobs[job].name;
    JobName { place, name: format!("job `{name}`"), numbered: format!("job {number} (`{name}`)") }
}

/// Runs the jobs of a log, or of the shape of one.
fn replayed(
    assembled: &Plan,
    stream: &JobStream,
    options: &RunOptions,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<serde_json::Value, Failure> {
    let streamed = stream::run(assembled, stream, &options.source, sink, progress)?;
    let figures = RunFigures {
        scenario: assembled.name.clone(),
        sha256: options.sha256.clone(),
        inputs: options.inputs.clone(),
        seed: assembled.seed,
        fidelity: assembled.fidelity.name(),
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
        &evidence(assembled, options),
    ))
}
