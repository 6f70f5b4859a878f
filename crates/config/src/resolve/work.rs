//! What a job does: its operations from where it says that they come from, or none where only its size and duration are known.

use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_workload::{ProgramBuilder, Workload};

use super::context::{Built, Context};
use super::nccl;
use super::sources::{self, Asked};
use crate::schema::{Fidelity, Job, WorkloadSource};

pub(super) fn build(
    job: &Job,
    context: &Context<'_>,
    evidence: &mut EvidenceList,
) -> Result<Built, InputError> {
    let place = format!("{}.workload", context.place);
    let Some(source) = &job.workload else { return timed(job, context) };
    if job.gpus.is_some() {
        let message = "the workload says how many GPUs the job needs";
        return Err(InputError::new(format!("{}.gpus", context.place), message));
    }
    let of = sources::asked_for(source, &place)?;
    let mut built = built_from(of, source, job, context, evidence)?;
    nccl::equip(&mut built.workload, job, context, evidence)?;
    Ok(built)
}

fn built_from(
    of: &sources::Source,
    source: &WorkloadSource,
    job: &Job,
    context: &Context<'_>,
    evidence: &mut EvidenceList,
) -> Result<Built, InputError> {
    let place = format!("{}.workload", context.place);
    if source.model.is_none() {
        let model_only = [
            ("global_batch", source.global_batch.is_some()),
            ("micro_batch", source.micro_batch.is_some()),
            ("sequence", source.sequence.is_some()),
            ("training", source.training.is_some()),
        ];
        if let Some((key, _)) = model_only.iter().find(|(_, given)| *given) {
            return Err(InputError::new(format!("{place}.{key}"), format!("`{key}` belongs to a `model`")));
        }
        if job.parallelism.is_some() {
            let at = format!("{}.parallelism", context.place);
            return Err(InputError::new(at, "`parallelism` lays out a `model`, but the workload names none"));
        }
    }
    (of.read)(&Asked { written: source, job, context, place: &place }, evidence)
}

/// A job of which only size and duration are known.
fn timed(job: &Job, context: &Context<'_>) -> Result<Built, InputError> {
    let at = |key: &str| format!("{}.{key}", context.place);
    if context.scenario.fidelity != Fidelity::Job || job.duration.is_none() {
        return Err(InputError::new(context.place, "`workload` is missing")
            .hint("at `fidelity: job`, `gpus` and `duration` do instead"));
    }
    let gpus = job.gpus.ok_or_else(|| {
        InputError::new(at("gpus"), "a job without a workload says how many GPUs it needs")
            .hint("such as `gpus: 64`")
    })?;
    if gpus == 0 {
        return Err(InputError::new(at("gpus"), "expected at least 1 GPU, found 0"));
    }
    // Refused before it is built: the number may be a slip.
    if gpus > context.gpus() {
        let message = format!("the job needs {gpus} GPUs, but the topology has {}", context.gpus());
        return Err(InputError::new(at("gpus"), message).hint("raise `topology.hosts`"));
    }
    let program = ProgramBuilder::new().finish().expect("no operations depend on none");
    let mut workload = Workload { programs: vec![program], ..Workload::default() };
    for _ in 0..gpus {
        workload.add_rank(0, &[]);
    }
    Ok(Built::plain(workload))
}
