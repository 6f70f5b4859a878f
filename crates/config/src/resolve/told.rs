//! What a job tells of its software, and of which kind its prediction is: by kind errors were observed (`data/errors`).

use windtunnel_workload::model::{Dtype, Evidence, GpuSheet, Training};

use crate::schema::{ModelJob, Parallelism};

/// What a job is taken to run on that says `framework: none` and none of what one does.
pub(super) const NO_FRAMEWORK: &str = "`none`: fused kernels, a host that is always ahead, gradients reduced beside the backward pass, as tuned software \
     does";

/// What most people run that lay a job out as `parallelism` does: PyTorch FSDP where parameters are sharded, and no layer, stage or
/// expert is split besides; else Megatron-LM.
pub(super) fn ordinary(parallelism: Option<&Parallelism>) -> &'static str {
    let sharded_alone =
        |layout: &Parallelism| layout.zero == Some(3) && [layout.tp, layout.ep, layout.pp] == [1; 3];
    if parallelism.is_some_and(sharded_alone) { "fsdp" } else { "megatron" }
}

/// What the evidence says of a job that leaves its software open, and is taken to run on framework `name`.
pub(super) fn assumed(name: &str) -> String {
    format!(
        "none is named: `{name}`, as most people run who lay a job out so; `workload.training.framework` says which it is, `none` \
         that it is tuned"
    )
}

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
