//! Schedulers, placements and localities by name.

use windtunnel_cluster::placement::{BuiltIn, Locality, Placement};
use windtunnel_cluster::scheduler;
use windtunnel_kernel::Span;
use windtunnel_plan::error::InputError;

use super::names::find;
use crate::schema::Cluster;

/// Time slices that are shorter would be an event each for nothing: no job does an iteration in them.
const SHORTEST_SLICE: Span = Span::from_us(1_000);

/// Refuses what no scheduler can do.
pub(super) fn check(cluster: &Cluster, source: &str) -> Result<(), InputError> {
    let at = |key: &str| format!("{source}: cluster.{key}");
    let scheduler: &scheduler::BuiltIn = find(&cluster.scheduler, at("scheduler")).map_err(|error| {
        match called_elsewhere(&cluster.scheduler) {
            Some(hint) => InputError { hint: Some(hint.to_owned()), ..error },
            None => error,
        }
    })?;
    if cluster.regions == 0 {
        return Err(InputError::new(at("regions"), "expected at least 1 region, found 0"));
    }
    if cluster.regions > 1 && !scheduler.knows_regions {
        let message =
            format!("scheduler `{}` knows one region, found {}", cluster.scheduler, cluster.regions);
        return Err(InputError::new(at("regions"), message).hint("`cluster.scheduler: mast` knows several"));
    }
    let tolerance = cluster.episodes.tolerance;
    if !(0.0..=1.0).contains(&tolerance) {
        let message = format!("expected a part between 0 and 1, found {tolerance}");
        let hint =
            "0.02 looks until each mean iteration is known to 2%, 1 never looks longer than `iterations`";
        return Err(InputError::new(at("episodes.tolerance"), message).hint(hint));
    }
    if cluster.slice.0.ps() == 0 {
        return Err(InputError::new(at("slice"), "a time slice has to last some time, found 0"));
    }
    if cluster.slice.0 < SHORTEST_SLICE {
        let message =
            format!("expected a time slice of at least {SHORTEST_SLICE}, found {}", cluster.slice.0);
        let hint = "a slice lasts for some iterations; every one costs a decision";
        return Err(InputError::new(at("slice"), message).hint(hint));
    }
    if cluster.slice_rows == 0 {
        return Err(InputError::new(at("slice_rows"), "expected at least 1 row, found 0"));
    }
    Ok(())
}

/// What other programs' name for a scheduler is here.
fn called_elsewhere(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace(['/', '_', ' '], "-");
    let name = name.strip_prefix("sched-").unwrap_or(&name);
    Some(match name {
        "backfill" | "easy-backfill" | "easy-backfilling" | "bf" | "maui" => {
            "Slurm's `sched/backfill`, as its default has it, is nearest to `easy`; `conservative` reserves for every job"
        }
        "conservative-backfill" | "conservative-backfilling" => "`conservative` is the name here",
        "builtin" | "fifo" => "Slurm's `sched/builtin`, first in, first out, is `fcfs`",
        "srtf" | "shortest" | "shortest-job-first" => "shortest first is `sjf`",
        "preempt" | "preemption" => "`priority` stops jobs of lower priority",
        _ => return None,
    })
}

/// The placement named `name`.
pub(super) fn placement(name: &str, place: &str) -> Result<&'static dyn Placement, InputError> {
    find::<&BuiltIn>(name, format!("{place}.placement")).map(|built_in| built_in.placement)
}

/// The locality named `name`.
pub(super) fn locality(name: &str, place: &str) -> Result<Locality, InputError> {
    find(name, format!("{place}.locality"))
}
