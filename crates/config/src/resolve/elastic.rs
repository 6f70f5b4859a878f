//! Elastic jobs: over which numbers of GPUs each can be laid out, and what it does there.
//!
//! Without a network a job is as much slower as it has fewer GPUs, and any number between its bounds will do. With one, what its
//! ranks do is known only if it is laid out: a job of a `model` changes its size by whole data-parallel replicas and keeps its
//! global batch, so that an iteration stays the same step of training, and numbers of GPUs over which the batch cannot be split
//! evenly, or whose memory does not suffice, are none of its sizes.

use std::sync::Arc;

use windtunnel_cluster::life::Sizes;
use windtunnel_cluster::scheduler::BuiltIn;
use windtunnel_kernel::registry::Listed;
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::jobs::Work;
use windtunnel_plan::load::Load;

use super::context::Context;
use super::model;
use super::work::build;
use crate::schema::upkeep::{ElasticRule, ElasticShares};
use crate::schema::{Fidelity, Job};

/// The numbers of GPUs that `job`, which asks for `asked` and loads `load` there, can do with, and what it does on the others where
/// a network has to know.
///
/// # Errors
/// [`InputError`] for bounds that leave the job no room, and for what cannot be elastic.
pub(super) fn sizes(
    job: &Job,
    asked: u32,
    load: Option<&Load>,
    context: &Context<'_>,
    evidence: &mut EvidenceList,
) -> Result<(Option<Sizes>, Vec<Arc<Work>>), InputError> {
    let Some(rule) = &job.elastic else { return Ok((None, Vec::new())) };
    let (least, most) = bounds(rule, asked, context)?;
    if context.scenario.fidelity == Fidelity::Job {
        return Ok((Some(Sizes::Between(least, most)), Vec::new()));
    }
    let place = format!("{}.elastic", context.place);
    let Some(name) = job.workload.as_ref().and_then(|source| source.model.as_deref()) else {
        let message = "what this job does is given for all of its ranks, and for no other number of them";
        return Err(InputError::new(place, message).hint(
            "jobs that train a `model` are laid out anew; at `fidelity: job` every job can be elastic",
        ));
    };
    let layout = job.parallelism.clone().unwrap_or_default();
    let replica =
        if model::is_dlrm(name, context)? { 1 } else { layout.tp * layout.cp * layout.ep * layout.pp };
    let (mut sizes, mut works, mut refusal) = (vec![asked], Vec::new(), None);
    for dp in least.div_ceil(replica)..=most / replica {
        let ranks = dp * replica;
        if ranks == asked {
            continue;
        }
        let parallelism = Some(crate::schema::Parallelism { dp, ..layout.clone() });
        match build(&Job { parallelism, ..job.clone() }, context, evidence) {
            Ok(built) => {
                sizes.push(ranks);
                works.push(Arc::new(built.into_work(load.map(|load| load.onto(ranks)), context)));
            }
            Err(error) => refusal = refusal.or(Some((ranks, error))),
        }
    }
    if works.is_empty() {
        let message = format!(
            "the job can be laid out over no other number of GPUs from {least} to {most} than {asked}"
        );
        let hint = match refusal {
            Some((ranks, error)) => format!("on {ranks}: {}", error.message),
            None => format!("a replica has {replica} GPUs, and a job changes its size by whole ones"),
        };
        return Err(InputError::new(place, message).hint(hint));
    }
    sizes.sort_unstable();
    Ok((Some(Sizes::Only(sizes.into())), works))
}

/// The fewest and the most GPUs.
fn bounds(rule: &ElasticRule, asked: u32, context: &Context<'_>) -> Result<(u32, u32), InputError> {
    let at = |key: &str| format!("{}.elastic{key}", context.place);
    check_scheduler(context, &at(""))?;
    if rule.min == 0 || rule.min > asked {
        let message = format!("expected 1 to the {asked} GPUs that the job asks for, found {}", rule.min);
        return Err(InputError::new(at(".min"), message));
    }
    let (max, gpus) = (rule.max.unwrap_or(asked), context.gpus());
    if max < asked || max > gpus {
        let message =
            format!("expected the {asked} GPUs that the job asks for to the {gpus} there are, found {max}");
        return Err(InputError::new(at(".max"), message));
    }
    Ok((rule.min, max))
}

fn check_scheduler(context: &Context<'_>, place: &str) -> Result<(), InputError> {
    let name = &context.scenario.cluster.scheduler;
    if <&BuiltIn>::by_name(name).is_none_or(|scheduler| scheduler.knows_elastic) {
        return Ok(());
    }
    let message = format!("scheduler `{name}` lays jobs out by the GPUs that they ask for");
    Err(InputError::new(place, message).hint("all others take jobs that change their size"))
}

/// Checks the bounds that jobs of a source have in common.
///
/// # Errors
/// [`InputError`] for shares that leave jobs no room.
pub(super) fn check(shares: &ElasticShares, context: &Context<'_>) -> Result<(), InputError> {
    let at = |key: &str| format!("{}.elastic{key}", context.place);
    check_scheduler(context, &at(""))?;
    if !(shares.min > 0.0 && shares.min <= 1.0) {
        let message =
            format!("expected a share of each job's GPUs above 0 and at most 1, found {}", shares.min);
        return Err(InputError::new(at(".min"), message));
    }
    if !(shares.max >= 1.0 && shares.max.is_finite()) {
        let message = format!("expected a multiple of each job's GPUs, 1 or more, found {}", shares.max);
        return Err(InputError::new(at(".max"), message));
    }
    Ok(())
}

/// The bounds of a job of a source that asks for `asked` of `gpus` GPUs.
pub(super) fn of_shares(shares: &ElasticShares, asked: u32, gpus: u32) -> ElasticRule {
    let min = (f64::from(asked) * shares.min).ceil() as u32;
    let max = (f64::from(asked) * shares.max).floor() as u32;
    ElasticRule { min: min.clamp(1, asked), max: Some(max.clamp(asked, gpus.max(asked))) }
}
