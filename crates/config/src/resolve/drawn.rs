//! Jobs of a source with operations: GPUs and durations are the source's, the rest is drawn from its `workloads`.
//!
//! A workload is laid out once for each number of GPUs and shared by all jobs of that size, so a month of jobs costs what
//! its distinct sizes do.

use windtunnel_kernel::{CalendarTime, RandomStream, Span};
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::origin::Origin;
use windtunnel_plan::stream::JobStream;

use super::context::Context;
use super::jobs;
use super::{JobPlan, elastic, model};
use crate::schema::{JobKind, JobSource, WorkloadSource};

/// A kind laid out over a number of GPUs; `None` if it does not fit them.
struct Laid {
    kind: usize,
    gpus: u32,
    plan: Option<JobPlan>,
}

/// The jobs of `stream` with what they do.
///
/// # Errors
/// [`InputError`] with the key at fault, or for a job that no workload fits.
pub(super) fn plans(
    source: &JobSource,
    stream: &JobStream,
    context: &Context<'_>,
    evidence: &mut EvidenceList,
) -> Result<Vec<JobPlan>, InputError> {
    let kinds = &source.workloads;
    check(kinds, context.place)?;
    let mut laid: Vec<Laid> = Vec::new();
    let mut plans = Vec::with_capacity(stream.jobs.len());
    for (index, (job, &duration)) in stream.jobs.iter().zip(&stream.durations).enumerate() {
        for (kind, of) in kinds.iter().enumerate() {
            if !laid.iter().any(|known| known.kind == kind && known.gpus == job.gpus) {
                let place = format!("{}.workloads[{kind}]", context.place);
                let context = Context { place: &place, ..*context };
                let plan = lay(of, source, job.gpus, &context, evidence)?;
                laid.push(Laid { kind, gpus: job.gpus, plan });
            }
        }
        let fitting: Vec<(&JobKind, &JobPlan)> = laid
            .iter()
            .filter(|known| known.gpus == job.gpus)
            .filter_map(|known| known.plan.as_ref().map(|plan| (&kinds[known.kind], plan)))
            .collect();
        let Some((kind, plan)) = draw(&fitting, context.scenario.seed, index as u64) else {
            let plural = if job.gpus == 1 { "" } else { "s" };
            let message = format!("no workload fits a job of {} GPU{plural}", job.gpus);
            return Err(InputError::new(format!("{}.workloads", context.place), message)
                .hint("a model fits where its tp × cp × ep × pp divides the GPUs"));
        };
        plans.push(JobPlan {
            name: format!("{}-{index}", kind.name),
            submit: CalendarTime::from_ns(job.submit.ns()),
            priority: job.priority,
            estimate: Some(Span::from_ns(job.estimate)),
            deadline: job.deadline,
            lasts: kind.iterations.is_none().then_some(duration),
            line: stream.lines.get(index).copied().unwrap_or(0),
            origin: Origin::of(&stream.facts, index),
            ..plan.clone()
        });
    }
    Ok(plans)
}

fn check(kinds: &[JobKind], place: &str) -> Result<(), InputError> {
    for (index, kind) in kinds.iter().enumerate() {
        let at = |key: &str| format!("{place}.workloads[{index}].{key}");
        if kinds[..index].iter().any(|other| other.name == kind.name) {
            return Err(InputError::new(at("name"), format!("`{}` names two workloads", kind.name)));
        }
        if !(kind.share > 0.0 && kind.share.is_finite()) {
            let message = format!("expected a number above 0, found {}", kind.share);
            return Err(InputError::new(at("share"), message));
        }
        if kind.workload.global_batch.is_some() {
            let message = "jobs of a source differ in their GPUs: say `batch_per_replica` instead";
            return Err(InputError::new(at("workload.global_batch"), message));
        }
        match (&kind.workload.model, kind.batch_per_replica) {
            (Some(_), None) => {
                return Err(InputError::new(at("batch_per_replica"), "a model needs `batch_per_replica`"));
            }
            (None, Some(_)) => {
                return Err(InputError::new(
                    at("batch_per_replica"),
                    "`batch_per_replica` belongs to a `model`",
                ));
            }
            _ => {}
        }
        if kind.parallelism.as_ref().is_some_and(|parallelism| parallelism.dp != 1) {
            let message = "`dp` follows from the GPUs of each job";
            return Err(InputError::new(at("parallelism.dp"), message).hint("leave it out"));
        }
    }
    Ok(())
}

/// One of `fitting` by its share.
fn draw<'a>(
    fitting: &[(&'a JobKind, &'a JobPlan)],
    seed: u64,
    job: u64,
) -> Option<(&'a JobKind, &'a JobPlan)> {
    let total: f64 = fitting.iter().map(|(kind, _)| kind.share).sum();
    let target = RandomStream::new(seed, "job-kind", job).uniform() * total;
    let mut sum = 0.0;
    let drawn = fitting.iter().find(|(kind, _)| {
        sum += kind.share;
        sum > target
    });
    drawn.or(fitting.last()).copied()
}

/// `kind` over `gpus`, if it fits them.
fn lay(
    kind: &JobKind,
    source: &JobSource,
    gpus: u32,
    context: &Context<'_>,
    evidence: &mut EvidenceList,
) -> Result<Option<JobPlan>, InputError> {
    let mut workload: WorkloadSource = kind.workload.clone();
    let mut parallelism = kind.parallelism.clone();
    if let Some(name) = &workload.model {
        let mut layout = parallelism.unwrap_or_default();
        let plain = model::is_dlrm(name, context)?;
        let replica = if plain { 1 } else { layout.tp * layout.cp * layout.ep * layout.pp };
        if replica == 0 || !gpus.is_multiple_of(replica) {
            return Ok(None);
        }
        layout.dp = gpus / replica;
        // Dense layers are replicated over experts too.
        let replicas = if plain { gpus } else { layout.dp * layout.ep };
        workload.global_batch = kind.batch_per_replica.map(|batch| batch * u64::from(replicas));
        parallelism = Some(layout);
    }
    if let Some(collective) = &mut workload.collective {
        collective.ranks = Some(gpus);
    }
    if let Some(flows) = &mut workload.flows {
        flows.ranks = Some(gpus);
    }
    let elastic = source.elastic.as_ref().map(|shares| elastic::of_shares(shares, gpus, context.gpus()));
    let job = source.job(kind, workload, parallelism, elastic);
    let plan = jobs::plan(&job, context, evidence)?;
    Ok((plan.ranks() == gpus as usize).then_some(plan))
}
