//! What a job tells of its software, and of which kind its prediction is: by kind errors were observed (`data/errors`).

use windtunnel_workload::model::{Dtype, Evidence, GpuSheet, Training};

use crate::schema::ModelJob;

/// What a job is taken to run on that names no framework and none of what one does.
pub(super) const NO_FRAMEWORK: &str = "none is named: fused kernels, a host that is always ahead, gradients reduced beside the backward pass, as tuned \
     software does; `workload.training.framework` says which it is";

/// Whether `settings` leave everything open that depends on the software. Whether that is right is not known, so the errors of
/// such a job are those of rows that were told as little.
pub(super) fn says_nothing_of_software(settings: &ModelJob) -> bool {
    settings.framework.as_deref().is_none_or(|name| name == "none")
        && settings.profile.is_none()
        && settings.dispatch.is_none()
        && settings.compute_share.is_none()
        && settings.fused.is_none()
        && settings.fused_loss.is_none()
        && settings.attention.is_none()
        && settings.gradients.is_none()
        && settings.graphs.is_none()
}

/// What kind of prediction this is, by which errors were observed (`data/errors/training.json`).
pub(super) fn kind_of(training: &Training, gpu: &GpuSheet, untold: bool) -> &'static str {
    let narrow = matches!(training.precision.compute, Dtype::Fp8 | Dtype::Fp4);
    if training.lora_rank.is_some() {
        "adapters"
    } else if training.architecture.experts.is_some() {
        "experts"
    } else if untold {
        "no framework named"
    } else if measured(gpu, narrow) {
        "dense, kernels measured"
    } else {
        "dense, kernels inferred"
    }
}

/// Whether products of `gpu` were measured in narrow formats, or in 16 bits.
fn measured(gpu: &GpuSheet, narrow: bool) -> bool {
    let curve = match &gpu.efficiency.gemm_fp8 {
        Some(curve) if narrow => curve,
        _ => &gpu.efficiency.gemm,
    };
    let tiles = gpu
        .kernels
        .as_ref()
        .and_then(|kernels| if narrow { kernels.gemm.fp8.as_ref() } else { kernels.gemm.bf16.as_ref() });
    let evidence = tiles.map_or(curve.evidence, |found| found.evidence);
    matches!(evidence, Evidence::Measured | Evidence::Calibrated)
}
