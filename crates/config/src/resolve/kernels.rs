//! What a job's kernels take: number formats, a profile of one's own, the attention kernel, and the pace that the slowest GPU keeps.

use windtunnel_kernel::math::largest_of_exponentials;
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_workload::model::{Dtype, Evidence, GpuSheet, KernelModel, KernelProfile, Precision};

use super::context::Context;
use super::names::choice;
use crate::schema::ModelJob;
use crate::sheets;

/// FlashAttention reaches about half of what its second version does (Dao 2023, arXiv:2307.08691, abstract: "around 2x
/// speedup").
const FLASH1: f64 = 0.5;

/// Number formats of a job's parts.
///
/// # Errors
/// [`InputError`] at the key that names no format.
pub(super) fn precision(settings: &ModelJob, place: &str) -> Result<Precision, InputError> {
    let at = |key: &str| format!("{place}.training.{key}");
    let (compute, storage) = choice(
        settings.precision.as_deref(),
        &at("precision"),
        &[
            ("bf16", (Dtype::Bf16, Dtype::Bf16)),
            ("fp16", (Dtype::Fp16, Dtype::Fp16)),
            ("fp8", (Dtype::Fp8, Dtype::Bf16)),
            ("fp4", (Dtype::Fp4, Dtype::Bf16)),
        ],
        (Dtype::Bf16, Dtype::Bf16),
    )?;
    let gradients = choice(
        settings.gradients.as_deref(),
        &at("gradients"),
        &[("bf16", Dtype::Bf16), ("fp16", Dtype::Fp16), ("fp32", Dtype::Fp32)],
        storage,
    )?;
    let parameters = choice(
        settings.parameters.as_deref(),
        &at("parameters"),
        &[("bf16", Dtype::Bf16), ("fp16", Dtype::Fp16), ("fp32", Dtype::Fp32), ("fp8", Dtype::Fp8)],
        storage,
    )?;
    let added_gradients = match settings.added_gradients.as_deref() {
        None | Some("none") => None,
        found => Some(choice(
            found,
            &at("added_gradients"),
            &[("bf16", Dtype::Bf16), ("fp16", Dtype::Fp16)],
            storage,
        )?),
    };
    Ok(Precision { compute, activations: storage, parameters, gradients, added_gradients })
}

/// Kernel times of `gpu` for a job of `gpus` GPUs, from its settings, its framework's and the sheet.
///
/// # Errors
/// [`InputError`] at the key at fault.
pub(super) fn kernels(
    settings: &ModelJob,
    gpu: &GpuSheet,
    gpus: u64,
    context: &Context<'_>,
    place: &str,
    evidence: &mut EvidenceList,
) -> Result<KernelModel, InputError> {
    let profile = match settings.profile.as_ref().and_then(|files| files.of(&gpu.name)) {
        None => KernelProfile::default(),
        Some(file) => {
            let path = context.base.join(file);
            let name = path.display().to_string();
            let text = sheets::read(&path, &format!("{place}.training.profile"))?;
            evidence.add("kernel times", "measured", &name);
            KernelProfile::parse(&text).map_err(|error| InputError::new(&name, error.to_string()))?
        }
    };
    let precision = precision(settings, place)?;
    let mut model = KernelModel::new(gpu, precision.compute, precision.activations, profile)
        .map_err(|error| InputError::new(format!("{place}.training.precision"), error.to_string()))?;
    model = model.sustained(pace(settings, gpu, gpus, place)?);
    if let (None, Some(narrow)) = (settings.compute_share, &gpu.sustained_fp4) {
        let wide = gpu.sustained.as_ref().map_or(1.0, |figure| figure.value.0);
        model = model.products_in_4_bits(narrow.value.0 / wide);
    }
    constants(settings, place, evidence)?;
    let kind = settings.attention.as_deref();
    if let (Some("flash1" | "flash2"), Some(figure)) = (kind, &gpu.efficiency.flash2) {
        model = model.attention_up_to(figure.value.0);
    }
    if kind == Some("flash1") {
        // Of the second version, unless the sheet knows better.
        let share = match (&gpu.efficiency.flash1, &gpu.efficiency.flash2) {
            (Some(first), Some(second)) => first.value.0 / second.value.0,
            _ => FLASH1,
        };
        model = model.attention_at(share);
    }
    Ok(model)
}

/// Share of the sheet's compute rates that the slowest of `gpus` GPUs sustains: the others wait for it. Most GPUs run at the clock of
/// their kind, and few fall far behind it: what a GPU takes longer is exponential, so that the largest of n grows by as much with
/// every doubling. `spread` is counted from one GPU, whose own delay is in the sustained share.
fn pace(settings: &ModelJob, gpu: &GpuSheet, gpus: u64, place: &str) -> Result<f64, InputError> {
    let of = |given: Option<f64>, sheet: Option<f64>, other: f64| given.or(sheet).unwrap_or(other);
    let share = of(settings.compute_share, gpu.sustained.as_ref().map(|figure| figure.value.0), 1.0);
    if !(share > 0.0 && share <= 1.5) {
        let message = format!("expected a share above 0 and at most 1.5, found `{share}`");
        return Err(InputError::new(format!("{place}.training.compute_share"), message));
    }
    let spread = of(settings.speed_spread, gpu.spread.as_ref().map(|figure| figure.value.0), 0.0);
    if !(0.0..=0.2).contains(&spread) {
        let message = format!("expected a share from 0 to 0.2, found `{spread}`");
        return Err(InputError::new(format!("{place}.training.speed_spread"), message));
    }
    let slowest = largest_of_exponentials(gpus.max(1)) - 1.0;
    Ok(share / (1.0 + spread * slowest))
}

/// How the constants that the scenario gives are known.
fn constants(settings: &ModelJob, place: &str, evidence: &mut EvidenceList) -> Result<(), InputError> {
    let given = [
        ("compute_share", settings.compute_share.is_some()),
        ("dispatch", settings.dispatch.is_some()),
        ("straggle", settings.straggle.is_some()),
    ];
    for (key, known) in &settings.evidence {
        let at = format!("{place}.training.evidence.{key}");
        if !given.iter().any(|&(name, here)| name == key && here) {
            let names = given.map(|(name, _)| name);
            let error = InputError::new(at, format!("no constant `{key}` is given in `training`"));
            return Err(match nearest(key, names) {
                Some(near) if near != key => error.hint(format!("did you mean `{near}`?")),
                _ => error.hint(format!("there are `{}`", names.join("`, `"))),
            });
        }
        let kinds = [Evidence::Measured, Evidence::Calibrated, Evidence::DataSheet, Evidence::Inferred];
        choice(Some(&known.kind), &format!("{at}.kind"), &kinds.map(|kind| (kind.name(), kind)), kinds[3])?;
    }
    for (key, _) in given.into_iter().filter(|(_, here)| *here) {
        let (kind, source) = match settings.evidence.get(key) {
            Some(known) => (known.kind.as_str(), known.source.as_str()),
            None => (Evidence::Inferred.name(), "the scenario, which names no source"),
        };
        evidence.add(&format!("training.{key}"), kind, source);
    }
    Ok(())
}
