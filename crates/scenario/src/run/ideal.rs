//! A job's iteration time on an ideal fabric, for comparison: alone, and no path inside the fabric shared.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_cluster::shard::{IterationEnd, Observer, Shard, ShardJob};
use windtunnel_cluster::variation::Variation;
use windtunnel_kernel::{EndpointId, RankId, Span, Time};
use windtunnel_topology::LoadBalancer;
use windtunnel_workload::collectives::{Form, Plan};
use windtunnel_workload::replay::Replay;
use windtunnel_workload::{OpKind, Workload};

use super::drive::Pace;
use super::episode::stuck_failure;
use super::{RunOptions, fold, network};
use crate::assemble::{Assembled, JobPlan, Work};
use crate::error::{Failure, InputError};
use crate::schema::{ExchangeName, Fidelity};
use crate::table::ProgressSink;

/// Messages up to which a job that trains no model is compared unless the scenario says otherwise: below it the second
/// simulation goes unnoticed, above it the traffic is the experiment and would be simulated twice.
const FEW: u64 = 1 << 12;

/// Whether `plan` is simulated on an ideal fabric: always at job fidelity, which knows nothing else; otherwise as
/// `results.ideal` says, or if that is left out, where it costs little or several jobs need it to draw their phases.
fn wanted(assembled: &Assembled, plan: &JobPlan) -> bool {
    if plan.duration.is_some() {
        return false;
    }
    if assembled.scenario.fidelity == Fidelity::Job {
        return true;
    }
    let default = || plan.model.is_some() || assembled.jobs.len() > 1 || messages(plan) <= FEW;
    assembled.scenario.results.ideal.unwrap_or_else(default)
}

/// Messages of an iteration; a coupled collective counts as one per member. Counts no further than [`FEW`].
fn messages(plan: &JobPlan) -> u64 {
    let workload = &plan.work.workload;
    let of_program = |program: u32| {
        let program = &workload.programs[program as usize];
        program.ops.iter().filter(|op| matches!(op.kind, OpKind::Send { .. })).count() as u64
    };
    let mut sum = 0;
    for &program in &workload.program_of {
        sum += of_program(program);
        if sum > FEW {
            return sum;
        }
    }
    for group in &workload.communicators {
        let Some(&first) = group.ranks.first() else { continue };
        let (program, members) = (workload.program(first), group.ranks.len() as u64);
        for op in &program.ops {
            let OpKind::Collective { comm, spec, .. } = op.kind else { continue };
            let of = &workload.communicators[workload.binding(first, comm).communicator as usize];
            if !std::ptr::eq(of, group) {
                continue;
            }
            let spec = &program.specs[spec as usize];
            // One that cannot be planned is told by the run.
            let Ok(plan) = Plan::new(spec, members as u32) else { continue };
            let coupled = plan.coupled().is_some() && spec.form != Form::Steps;
            let each = if coupled || plan.is_empty() {
                1
            } else {
                u64::from(plan.lanes()) * u64::from(plan.rounds(0))
            };
            sum += members * each;
            if sum > FEW {
                return sum;
            }
        }
    }
    sum
}

/// Iteration times on an ideal fabric: every job alone, no path inside the fabric shared.
pub struct IdealTimes {
    /// By job: each number of ranks that it can have, first the one that it asks for.
    times: Vec<Vec<(usize, Option<Span>)>>,
}

/// Remembers the ends of iterations.
#[derive(Default)]
struct Ends(Vec<Time>);

impl Observer for Ends {
    fn rank_iteration(&mut self, _: usize, _: RankId, _: u64, _: &Replay) {}

    fn iteration(&mut self, _: usize, end: &IterationEnd, _: &Replay) {
        self.0.push(end.finish);
    }
}

impl IdealTimes {
    /// Simulates up to two iterations of each job for which that is wanted.
    ///
    /// # Errors
    /// [`Failure`] when the job's operations never end or the run is stopped.
    pub fn of(
        assembled: &Assembled,
        options: &RunOptions,
        progress: &mut dyn ProgressSink,
    ) -> Result<Self, Failure> {
        // Jobs of a source share their workloads.
        let mut known: FxHashMap<*const Workload, Option<Span>> = FxHashMap::default();
        let mut time = |plan: &JobPlan, work: &Arc<Work>| {
            if !wanted(assembled, plan) {
                return Ok(None);
            }
            let workload = Arc::as_ptr(&work.workload);
            if let Some(&time) = known.get(&workload) {
                return Ok(time);
            }
            let iterations = if plan.lasts.is_some() { 2 } else { plan.iterations.min(2) };
            let time = ideal_time(assembled, options, (plan, work), iterations, progress)?;
            known.insert(workload, time);
            Ok::<_, Failure>(time)
        };
        let mut times = Vec::with_capacity(assembled.jobs.len());
        for plan in &assembled.jobs {
            let one = |work: &Arc<Work>| Ok((work.ranks(), time(plan, work)?));
            times.push(plan.works().map(one).collect::<Result<_, Failure>>()?);
        }
        Ok(Self { times })
    }

    /// Of a job on as many GPUs as it asks for; `None` if it was not simulated.
    pub fn of_job(&self, job: usize) -> Option<Span> {
        self.times[job][0].1
    }

    /// Of a job on `ranks` GPUs; `None` if it was not simulated there.
    pub fn of_job_on(&self, job: usize, ranks: usize) -> Option<Span> {
        self.times[job].iter().find(|&&(of, _)| of == ranks)?.1
    }
}

fn ideal_time(
    assembled: &Assembled,
    options: &RunOptions,
    (plan, work): (&JobPlan, &Arc<Work>),
    iterations: u64,
    progress: &mut dyn ProgressSink,
) -> Result<Option<Span>, Failure> {
    let spec = network::spec_of(assembled, std::iter::once(work));
    let fabric = network::flow(assembled, spec, LoadBalancer::Ideal, false, false, None)?;
    let variation = Variation::none();
    let mut shard = Shard::new(fabric, spec.endpoints, &variation, Ends::default());
    let placement: Vec<EndpointId> = (0..work.ranks() as u32).map(EndpointId).collect();
    let folded = fold::fold(assembled, work, &placement, LoadBalancer::Ideal);
    let job = ShardJob {
        number: 0,
        workload: work.workload.clone(),
        own: placement.len(),
        placement: placement.into(),
        iterations,
        replayed: 0,
        awaited: true,
        start: Time::ZERO,
        done_before: 0,
        simulated: folded.map_or_else(|| Arc::from([]), |folded| folded.simulated),
    };
    if assembled.scenario.network.exchange == ExchangeName::Hosts {
        shard.exchange_whole();
    }
    shard.enter(job).map_err(|error| InputError::new(&options.source, error.to_string()))?;
    shard.stop_after(iterations);
    shard.keep_rings_coupled();
    let mut pace = Pace::new();
    while shard.handle(1 << 14) {
        if pace.due() && !progress.progress(None, 0.0, 0) {
            return Ok(None);
        }
    }
    // A job that gets stuck is told by the run itself, with the operations at fault; job fidelity has no other run.
    if assembled.scenario.fidelity == Fidelity::Job && !shard.satisfied() {
        let beyond = shard.is_beyond();
        return Err(stuck_failure(&[&plan.name], &shard.stuck(), beyond));
    }
    let ends = &shard.observer_mut().0;
    Ok(match ends.as_slice() {
        [only] => Some(*only - Time::ZERO),
        [.., before, last] => Some(*last - *before),
        [] => None,
    })
}
