//! Runs a plan: episodes on a fabric, their rows, and the summary.
//!
//! Life cycle: [`execute`] asks for each job's ideal iteration time, sends the jobs through the cluster's calendar, whose
//! episodes are simulated by [`FabricRunner`], and puts the summary together. Rows leave through the sink as they come.
//! A run that its progress sink stops returns what there is, marked partial. Failure modes: operations that can never
//! end, told with what each waits for; a sink that refuses rows.

#![warn(unreachable_pub)]

mod clock;
mod cluster;
mod drive;
mod episode;
mod exchanged;
mod faults;
mod finish;
mod fold;
pub mod gate;
mod heat;
mod ideal;
pub mod journal;
mod judge;
mod kept;
pub mod machine;
mod memo;
mod model;
pub mod native;
mod options;
mod origins;
mod paths;
mod payload;
mod periods;
mod placements;
mod record;
mod recorder;
mod runner;
mod simulated;
mod stage;
mod stream;
mod stuck;
mod subscriber;
mod summary;
pub mod table;
mod threads;
mod trouble;
mod usage;
mod variation;
mod watched;
mod whole;

use windtunnel_cluster::calendar::{self, JobRequest, Settings};
use windtunnel_cluster::cluster::{JobId, Listener};
use windtunnel_cluster::free::Locator;
use windtunnel_kernel::{CalendarTime, Span};
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, JobName};
use windtunnel_plan::jobs::JobPlan;
use windtunnel_plan::places::Places;
use windtunnel_plan::settings::{Fidelity, Phase};
use windtunnel_plan::stream::asks_for_groups;
use windtunnel_plan::upkeep::UpkeepPlan;

pub use self::drive::Pace;
use self::episode::Stop;
use self::finish::{Ended, Observed, alone, by_duration};
use self::gate::Told;
use self::heat::{Congestion, Heat};
use self::ideal::IdealTimes;
pub use self::model::host_spec;
pub use self::options::{Digests, RunOptions};
use self::runner::FabricRunner;
use self::subscriber::Subscriber;
use crate::table::{ProgressSink, TableSink};

/// The engine's version, and a number for the sources that it was built from: results of one build are those of another one only
/// if this is the same.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("WINDTUNNEL_BUILD"));

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
        return by_duration(plan, stream, options, sink, progress);
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
            let fit = CalendarTime::from_ns(lasts).exact_ps().unsigned_abs() / u128::from(one.ps().max(1));
            job_plan.iterations = u64::try_from(fit).unwrap_or(u64::MAX).max(1);
        }
    }
    Some(filled)
}

/// Whether a run is one simulation from its first job to its last, without episodes: `full` of several jobs.
pub fn is_whole(plan: &Plan, full: bool) -> bool {
    full && plan.jobs.len() > 1 && plan.fidelity != Fidelity::Job
}

/// What is left once ideal times are known, or on their way.
fn simulated(
    plan: &Plan,
    options: &RunOptions,
    ideal: &IdealTimes<'_>,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<serde_json::Value, Failure> {
    let requests = requests(plan, ideal);
    let placements: Vec<_> = plan.jobs.iter().map(|job_plan| job_plan.placement).collect();
    let localities: Vec<_> = plan.jobs.iter().map(|job_plan| job_plan.locality).collect();
    let places = asks_for_groups(&placements, &localities).then(|| Places::of(&plan.fabric.topology));
    let upkeep = plan.upkeep.as_ref().map(UpkeepPlan::as_upkeep);
    let given = calendar::in_order(&requests);
    let name = |job: JobId| plan.jobs[given[job.0 as usize]].name.clone();
    let told = options.gate.as_deref().map(|gate| Told { plan, gate, name: &name });
    let settings = Settings {
        upkeep: upkeep.as_ref(),
        locator: places.as_ref().map(|places| places as &dyn Locator),
        listener: told.as_ref().map(|told| told as &dyn Listener),
        ..settings(plan, options, ideal)
    };
    let named =
        |failure: Failure| failure.named(|job| job_name(plan, &options.source, given[job.0 as usize], job));
    let mut scheduler = cluster::scheduler(plan);
    let whole = is_whole(plan, options.full);
    let (mut heat, mut congestion) = (Heat::default(), Congestion::new(ideal));
    let (histories, record, episodes, cancelled) = if whole {
        let (histories, record, cancelled) =
            whole::run(plan, options, &requests, &settings, scheduler.as_mut(), sink, progress)
                .map_err(named)?;
        (histories, record, None, cancelled)
    } else {
        let mut subscribers: [&mut dyn Subscriber; 2] = [&mut heat, &mut congestion];
        let mut runner = FabricRunner::new(plan, options, ideal, sink, &mut *progress, &mut subscribers);
        let (histories, outcome) = calendar::run(&requests, &settings, scheduler.as_mut(), &mut runner);
        let cancelled = match outcome {
            Ok(()) => false,
            Err(Stop::Cancelled) => true,
            Err(Stop::Failed(failure)) => return Err(named(failure)),
        };
        let (record, episodes) = runner.finish(histories.end)?;
        (histories, record, Some(episodes), cancelled)
    };
    let cancelled = !ideal.settle(progress) || cancelled;
    let least = ideal.least(plan, options, &histories, progress)?;
    let ended = Ended { plan, options, ideal, histories, record, cancelled, least };
    let observed = episodes.filter(|_| plan.fidelity != Fidelity::Job);
    let observed =
        observed.map(|episodes| Observed { episodes, heat, congestion: congestion.into_periods() });
    ended.tell(observed, sink)
}

/// The jobs as the cluster's calendar takes them.
fn requests(plan: &Plan, ideal: &IdealTimes<'_>) -> Vec<JobRequest> {
    let one = |(job, job_plan): (usize, &JobPlan)| JobRequest {
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
    };
    plan.jobs.iter().enumerate().map(one).collect()
}

/// The rules of the calendar, without what the caller keeps: upkeep, places and a listener.
fn settings<'a>(plan: &'a Plan, options: &RunOptions, ideal: &IdealTimes<'_>) -> Settings<'a> {
    let (cluster, fidelity) = (&plan.cluster, plan.fidelity);
    let (queue, ends) = plan.source.as_ref().map_or((None, None), |source| (source.queue, source.ends));
    // Stopped before it began.
    let ends = if ideal.is_stopped() { Some(0) } else { ends };
    Settings {
        endpoints: plan.fabric.topology.endpoints(),
        endpoints_per_host: plan.fabric.topology.endpoints_per_host(),
        storage: &plan.storage_hosts,
        episode_iterations: if options.full { u32::MAX } else { cluster.episodes.iterations },
        draw_phases: cluster.episodes.phase == Phase::Drawn,
        carry_below: if options.full || fidelity == Fidelity::Job {
            0
        } else {
            judge::carry_below(&cluster.episodes)
        },
        iterates: fidelity != Fidelity::Job,
        reaction_delay: cluster.reaction_delay,
        upkeep: None,
        regions: cluster.regions,
        locator: None,
        seed: plan.seed,
        queue,
        ends,
        listener: None,
    }
}

/// What messages call a job that has a plan.
fn job_name(plan: &Plan, source: &str, job: usize, number: JobId) -> JobName {
    let place = if plan.is_drawn() { format!("{source}: jobs") } else { format!("{source}: jobs[{job}]") };
    let name = &plan.jobs[job].name;
    JobName { place, name: format!("job `{name}`"), numbered: format!("job {number} (`{name}`)") }
}
