//! Computation of one GPU as that of another: by class of kernel, which its label tells.

use windtunnel_kernel::{RankId, Span};

use super::scale::{Scale, times};
use crate::{OpKind, Workload};

windtunnel_kernel::named! {
    /// What bounds a computation.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Class: "class of kernel" {
        Product = "products", "matrix products, convolutions and attention: by the peak rate";
        Memory = "memory", "all else that a GPU computes: by the bandwidth of its memory";
        Host = "host", "what the host does and waits of it, communication, and marks of steps: as it is";
    }
}

/// Parts of the names of kernels that are products, in small letters.
const PRODUCTS: [&str; 9] = ["gemm", "nvjet", "cutlass", "cublas", "matmul", "conv", "flash", "fmha", "sdpa"];
/// Kernels that have such a part in their name and are none.
const NONE: [&str; 4] = ["convert", "reduce_kernel", "splitkreduce", "elementwise_kernel"];
/// What importers call the host's part, and delays of launches.
const HOST: [&str; 4] = ["host", "wait of the host", "before the recording", "launch"];

/// The class of a label.
pub fn class_of(label: &str) -> Class {
    let small = label.to_ascii_lowercase();
    if HOST.contains(&small.as_str())
        || small.ends_with(" begin")
        || small.ends_with(" end")
        || ["nccl", "rccl"].iter().any(|part| small.contains(part))
    {
        Class::Host
    } else if PRODUCTS.iter().any(|part| small.contains(part))
        && !NONE.iter().any(|part| small.contains(part))
    {
        Class::Product
    } else {
        Class::Memory
    }
}

/// What was made of the computations of a class, over all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rescaled {
    /// Which.
    pub class: Class,
    /// By what.
    pub factor: f64,
    /// How many.
    pub count: u64,
    /// Their time before, all together.
    pub before: Span,
}

/// Multiplies products by `products` and what memory bounds by `memory`, but for labels that `except` has a rule for.
pub fn rescale(workload: &mut Workload, products: f64, memory: f64, except: &Scale) -> [Rescaled; 3] {
    let factors = [products, memory, 1.0];
    let mut told = [0, 1, 2].map(|place| Rescaled {
        class: Class::ALL[place],
        factor: factors[place],
        count: 0,
        before: Span::from_ps(0),
    });
    let classes: Vec<Vec<Option<usize>>> = workload
        .programs
        .iter()
        .map(|program| {
            let class = |label: &String| match except.rule_for(label) {
                Some(_) => None,
                None => Class::ALL.iter().position(|class| *class == class_of(label)),
            };
            program.labels.iter().map(class).collect()
        })
        .collect();
    for rank in (0..workload.ranks() as u32).map(RankId) {
        let classes = &classes[workload.program_of[rank.0 as usize] as usize];
        for op in &workload.program(rank).ops {
            if let (OpKind::Calc { duration, .. }, Some(class)) = (op.kind, classes[op.label as usize]) {
                let row = &mut told[class];
                row.count += 1;
                row.before = Span::from_ps(row.before.ps().saturating_add(duration.ps()));
            }
        }
    }
    for (program, classes) in workload.programs.iter_mut().zip(&classes) {
        for op in &mut program.ops {
            if let (OpKind::Calc { duration, .. }, Some(class)) = (&mut op.kind, classes[op.label as usize]) {
                *duration = Span::from_ps(times(duration.ps(), factors[class]));
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::{Class, class_of};

    #[test]
    fn labels_tell_classes() {
        for (label, class) in [
            ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", Class::Product),
            ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_tn", Class::Product),
            ("void cutlass::Kernel2<cutlass_80_tensorop>", Class::Product),
            ("volta_sgemm_128x64_nn", Class::Product),
            ("implicit_convolve_sgemm", Class::Product),
            ("void pytorch_flash::flash_fwd_kernel<…>", Class::Product),
            ("fmha_cutlassF_bf16_aligned", Class::Product),
            ("void cublasLt::splitKreduce_kernel<32, 16>", Class::Memory),
            ("void at::native::vectorized_elementwise_kernel<4>", Class::Memory),
            ("convert_fp8", Class::Memory),
            ("", Class::Memory),
            ("host", Class::Host),
            ("ProfilerStep#1 begin", Class::Host),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", Class::Host),
        ] {
            assert_eq!(class_of(label), class, "{label}");
        }
    }
}
