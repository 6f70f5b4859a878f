//! A model's kernels on each kind of GPU that a fabric has, and what follows from where a job's ranks may lie.

use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_workload::model::{GpuSheet, KernelModel};

use super::context::Context;
use super::kernels::kernels;
use crate::schema::ModelJob;
use crate::schema::jobs::ProfileFiles;

/// A kind of GPU with its kernels.
pub(super) struct OnGpu<'a> {
    pub gpu: &'a GpuSheet,
    pub kernels: KernelModel,
}

/// Kernels of a job of `ranks` on each kind of GPU, in their order. A kind on which none of its ranks can lie need not be able to train
/// it: it has the kernels of the first.
///
/// # Errors
/// [`InputError`] at the key at fault.
pub(super) fn on_gpus<'a>(
    settings: &ModelJob,
    ranks: u64,
    context: &Context<'a>,
    place: &str,
    evidence: &mut EvidenceList,
) -> Result<Vec<OnGpu<'a>>, InputError> {
    let gpus = &context.fabric.kinds;
    check_profiles(settings, context, place)?;
    let mut found: Vec<OnGpu<'a>> = Vec::with_capacity(gpus.count());
    for (kind, sheet) in gpus.sheets().iter().enumerate() {
        let among = if context.on_first { gpus.among_first(ranks, kind as u8) } else { ranks };
        if among == 0
            && let Some(first) = found.first()
        {
            found.push(OnGpu { gpu: sheet, kernels: first.kernels.clone() });
            continue;
        }
        // Of a kind on which no rank can lie only the first is asked for, and that as if one could.
        let kernels = kernels(settings, sheet, among.max(1), context, place, evidence)?;
        found.push(OnGpu { gpu: sheet, kernels });
    }
    Ok(found)
}

/// Refuses kernels of a GPU that there is not.
fn check_profiles(settings: &ModelJob, context: &Context<'_>, place: &str) -> Result<(), InputError> {
    let Some(ProfileFiles::BySheet(files)) = &settings.profile else { return Ok(()) };
    let names: Vec<&str> = context.fabric.kinds.sheets().iter().map(|sheet| sheet.name.as_str()).collect();
    let Some(stranger) =
        files.keys().find(|name| !names.iter().any(|known| known.eq_ignore_ascii_case(name)))
    else {
        return Ok(());
    };
    let error =
        InputError::new(format!("{place}.training.profile.{stranger}"), "no GPU here has such a sheet");
    Err(match nearest(stranger, names.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("there are `{}`", names.join("`, `"))),
    })
}

/// The kinds of GPUs on which ranks of each of `stages` pipeline ranks may lie, ascending, by what `stage_of` says of each rank.
pub(super) fn kinds_by_stage(
    stages: u32,
    ranks: u32,
    context: &Context<'_>,
    stage_of: impl Fn(u32) -> u32,
) -> Vec<Vec<usize>> {
    let Some(kinds) = context.kinds_of(ranks) else {
        return vec![(0..context.fabric.kinds.count()).collect(); stages as usize];
    };
    let mut found: Vec<Vec<usize>> = vec![Vec::new(); stages as usize];
    for (rank, &kind) in kinds.iter().enumerate() {
        let of = &mut found[stage_of(rank as u32) as usize];
        if let Err(at) = of.binary_search(&usize::from(kind)) {
            of.insert(at, usize::from(kind));
        }
    }
    found
}
