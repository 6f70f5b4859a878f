//! Jobs: what each does, where its operations come from, and which ranks are watched.

use std::sync::Arc;

use windtunnel_cluster::cluster::LAST;
use windtunnel_cluster::life::Life;
use windtunnel_kernel::CalendarTime;
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::jobs::JobPlan;
use windtunnel_plan::origin::Origin;

use super::context::Context;
use super::work::build;
use super::{elastic, policies, upkeep};
use crate::schema::{CalendarSpan, Job};

/// Builds a job.
///
/// # Errors
/// [`InputError`] with the path of the key at fault.
pub fn plan(job: &Job, context: &Context<'_>, evidence: &mut EvidenceList) -> Result<JobPlan, InputError> {
    let place = context.place;
    if job.iterations == 0 {
        return Err(InputError::new(format!("{place}.iterations"), "expected at least 1 iteration, found 0"));
    }
    if job.submit.0 > LAST {
        let message = format!(
            "expected a time within the 292 years that the calendar counts, found {} years",
            job.submit.0 / YEAR
        );
        return Err(InputError::new(format!("{place}.submit"), message));
    }
    let placement = policies::placement(&job.placement, place)?;
    let locality = policies::locality(&job.locality, place)?;
    let built = build(job, context, evidence)?;
    let (ranks, gpus) = (built.workload.ranks(), context.gpus() as usize);
    if ranks > gpus {
        return Err(InputError::new(
            place,
            format!("the job has {ranks} ranks, but the topology has {gpus} GPUs"),
        )
        .hint("raise `topology.hosts`, or lower the job's parallelism"));
    }
    let (mut loading, mut load) = (None, None);
    if let Some(data) = &job.data {
        let (alone, hosts) =
            upkeep::loading(data, context.storage, &context.fabric.topology, ranks as u32, place)?;
        loading = Some(alone);
        load = context
            .storage
            .filter(|_| !hosts.is_empty())
            .and_then(|storage| storage.load(data.bytes.0.get(), &hosts, ranks as u32));
    }
    let life = upkeep::life(job.dues(), loading, &context.scenario.cluster, place)?;
    let (elastic, resized) = elastic::sizes(job, ranks as u32, load.as_ref(), context, evidence)?;
    if let Some(duration) = job.duration {
        upkeep::check_length(
            duration.0.ns_ceil(),
            job.iterations,
            ranks as u32,
            elastic.as_ref(),
            &life,
            place,
        )?;
    }
    let warnings = built.warnings.clone();
    let model = built.model.clone();
    Ok(JobPlan {
        name: job.name.clone(),
        work: Arc::new(built.into_work(load, context)),
        resized,
        iterations: job.iterations,
        submit: CalendarTime::from_ns(job.submit.0),
        placement,
        locality,
        priority: job.priority,
        duration: job.duration.map(|duration| duration.0),
        estimate: job.estimate.map(|estimate| estimate.0),
        deadline: deadline(job, place)?,
        life: Life { elastic, ..life },
        samples: job.workload.as_ref().and_then(|workload| workload.global_batch),
        lasts: None,
        line: 0,
        origin: Origin::default(),
        model,
        warnings,
    })
}

/// In nanoseconds.
const YEAR: u64 = 365 * 86_400 * 1_000_000_000;

/// Nanoseconds in which a job should have ended.
fn deadline(job: &Job, place: &str) -> Result<u64, InputError> {
    match job.deadline {
        None => Ok(u64::MAX),
        Some(CalendarSpan(0)) => {
            let at = format!("{place}.deadline");
            Err(InputError::new(at, "expected a time above 0 from the submission, found 0"))
        }
        Some(deadline) => Ok(deadline.0),
    }
}
