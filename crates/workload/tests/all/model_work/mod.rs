//! A rank's work against closed forms: FLOPs, bytes, parameters, and measured kernels.

mod operations;
mod optimiser;
mod prediction;

use std::ops::Range;
use std::path::Path;

use windtunnel_kernel::{Bytes, Span};
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::generate::{Overlap, Piece};
use windtunnel_workload::model::{
    Architecture, AttentionKernel, Chunk, ContextExchange, Dispatcher, Dtype, Gemm, GpuSheet, KernelModel,
    KernelProfile, ModelKind, ModelSheet, Recompute, Training, compute_time,
};

fn data(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(file)).unwrap()
}

fn gpu(name: &str) -> KernelModel {
    kernels(name, Dtype::Bf16, KernelProfile::default())
}

fn kernels(name: &str, compute: Dtype, profile: KernelProfile) -> KernelModel {
    let sheet = GpuSheet::parse(&data(&format!("gpus/{name}.yaml"))).unwrap();
    KernelModel::new(&sheet, compute, Dtype::Bf16, profile).unwrap()
}

fn model(name: &str) -> Architecture {
    match ModelSheet::parse(&data(&format!("models/{name}.json"))).unwrap().kind {
        ModelKind::Transformer(model) => model,
        ModelKind::Dlrm(_) => panic!("{name} is no transformer"),
    }
}

fn middle(layers: Range<u32>) -> Chunk {
    Chunk { layers, embedding: false, head: false }
}

/// (axis, kind, bytes) of the collectives of a list.
fn collectives(pieces: &[Piece]) -> Vec<(Dimension, CollectiveKind, u64)> {
    pieces
        .iter()
        .filter_map(|piece| match *piece {
            Piece::Collective { axis, kind, bytes, .. } => Some((axis, kind, bytes.get())),
            _ => None,
        })
        .collect()
}

fn sum(pieces: &[Piece], axis: Dimension) -> u64 {
    collectives(pieces).iter().filter(|entry| entry.0 == axis).map(|entry| entry.2).sum()
}

/// arXiv:2104.04473 eq. 3: 96Bslh²(1 + s/6h + V/16lh) with full recomputation, where the output layer is not recomputed.
#[test]
fn gpt_flops_equal_the_megatron_formula() {
    for (name, tp) in [("megatron-1.7b", 1u64), ("megatron-7.5b", 4), ("megatron-145.6b", 8)] {
        let mut training = Training::new(model(name), 2048);
        training.micro_batch = 2;
        training.tp = tp;
        training.attention = AttentionKernel::Unfused;
        training.recompute = Recompute::Full;
        training.check().unwrap();
        let (l, h) = (u64::from(training.architecture.layers), training.architecture.hidden);
        let (b, s, v) = (2u64, 2048u64, 51200u64);
        let flops = training.chunk(&Chunk::whole(l as u32), &gpu("a100-80")).flops;
        let expected = 96 * b * s * l * h * h + 16 * b * s * s * l * h + 6 * b * s * v * h;
        assert_eq!((flops.forward + flops.backward + flops.recomputed) * tp, expected, "{name}");
        assert_eq!(flops.recomputed * tp, 24 * b * s * l * h * h + 4 * b * s * s * l * h, "{name}");
    }
}

/// Over all ranks, forward and backward are 6N + 12LHQT per token, with N the multiplied parameters less norms and biases.
#[test]
fn llama_flops_equal_the_palm_formula() {
    let architecture = model("llama3-8b");
    let norms = 4096 * (2 * 32 + 1);
    let mut training = Training::new(architecture.clone(), 8192);
    (training.tp, training.cp, training.sequence_parallel) = (4, 2, true);
    for causal in [false, true] {
        training.causal = causal;
        let flops = training.chunk(&Chunk::whole(32), &gpu("h100-sxm")).flops;
        let expected = architecture.model_flops_per_token(8192, causal) - 6 * norms;
        assert_eq!((flops.forward + flops.backward) * 8, expected * 8192, "causal {causal}");
        // Flash attention's fifth product: half of the forward's two.
        assert_eq!(flops.recomputed * 8, 8192 * architecture.attention_flops_per_token(8192, causal) / 2);
    }
}

#[test]
fn experts_add_top_k_times_their_flops() {
    let architecture = model("mixtral-8x7b");
    let norms = 4096 * (2 * 32 + 1);
    let mut training = Training::new(architecture.clone(), 4096);
    (training.tp, training.expert_tp, training.ep, training.sequence_parallel) = (2, 2, 4, true);
    training.causal = false;
    training.check().unwrap();
    let flops = training.chunk(&Chunk::whole(32), &gpu("h100-sxm")).flops;
    // The output projection and attention are split over tp, routed tokens too: two ranks make one replica.
    let expected = architecture.model_flops_per_token(4096, false) - 6 * norms;
    assert_eq!((flops.forward + flops.backward) * 2, expected * 4096);
}

#[test]
fn parameters_over_all_ranks_are_the_models() {
    for name in ["llama3-70b", "mixtral-8x7b", "deepseek-v3", "qwen3-235b-a22b", "gpt3-175b"] {
        let architecture = model(name);
        let layers = architecture.layers;
        let mut training = Training::new(architecture.clone(), 4096);
        let whole = training.chunk(&Chunk::whole(layers), &gpu("h100-sxm")).work;
        let total: u64 =
            whole.parameter_bytes.iter().chain(&whole.expert_parameter_bytes).map(|bytes| bytes.get()).sum();
        assert_eq!(total, 2 * architecture.parameters(), "{name}");
        // Split over tensor, expert and unequal pipeline stages: what is replicated is norms, biases after the row,
        // routers and compressed projections, which sharding by tp leaves whole.
        let experts = architecture.experts.is_some();
        (training.tp, training.sequence_parallel) = (4, true);
        (training.ep, training.expert_tp) = if experts { (8, 4) } else { (1, 1) };
        training.check().unwrap();
        let stages = [layers / 3 - 1, layers / 3, layers - 2 * (layers / 3) + 1];
        let chunks = Chunk::split(layers, &stages).unwrap();
        let (mut dense, mut routed) = (0, 0);
        for chunk in &chunks {
            let work = training.chunk(chunk, &gpu("h100-sxm")).work;
            dense += work.parameter_bytes.iter().map(|bytes| bytes.get()).sum::<u64>();
            routed += work.expert_parameter_bytes.iter().map(|bytes| bytes.get()).sum::<u64>();
        }
        let all_experts: u64 = (0..layers).map(|layer| architecture.layer_parameters(layer).experts).sum();
        assert_eq!(routed * 4 * training.ep, 2 * all_experts, "{name}");
        let shared = architecture.parameters() - all_experts;
        assert!(dense * 4 >= 2 * shared && dense * 4 < 2 * shared + shared, "{name}: {dense}");
    }
}

/// Llama-3-70B, sequence 8192, tp 8 with sequence parallelism: by Korthikanti et al. §4.2.2, forward one all-gather and one
/// reduce-scatter of sbh around each block; backward the duals and the gather for the weight gradients.
#[test]
fn tensor_parallel_bytes_by_hand() {
    let mut training = Training::new(model("llama3-70b"), 8192);
    (training.tp, training.sequence_parallel) = (8, true);
    let kernels = gpu("h100-sxm");
    let work = training.chunk(&middle(1..2), &kernels).work;
    let sbh = 2 * 8192 * 8192;
    let gather = (Dimension::Tp, CollectiveKind::AllGather, sbh);
    let scatter = (Dimension::Tp, CollectiveKind::ReduceScatter, sbh);
    assert_eq!(collectives(&work.forward), [gather, scatter, gather, scatter]);
    assert_eq!(collectives(&work.backward), [gather, gather, scatter, gather, gather, scatter]);
    assert_eq!(collectives(&work.backward_input), [gather, scatter, gather, scatter]);
    assert_eq!(collectives(&work.backward_weight), [gather, gather]);
    assert_eq!(work.send_bytes, Bytes::new(sbh / 8));
    training.sequence_parallel = false;
    let work = training.chunk(&middle(1..2), &kernels).work;
    let sum = (Dimension::Tp, CollectiveKind::AllReduce, sbh);
    assert_eq!(collectives(&work.forward), [sum, sum]);
    assert_eq!(collectives(&work.backward), [sum, sum]);
    assert_eq!(collectives(&work.backward_weight), []);
    assert_eq!(work.send_bytes, Bytes::new(sbh));
    // In slices between stages (arXiv:2104.04473 §4.1), with a gather at each pass's start.
    training.scatter_gather = true;
    let work = training.chunk(&middle(1..2), &kernels).work;
    assert_eq!(collectives(&work.forward), [gather, sum, sum]);
    assert_eq!(collectives(&work.backward), [gather, sum, sum]);
    assert_eq!(work.send_bytes, Bytes::new(sbh / 8));
    training.scatter_gather = false;
    // Full recomputation repeats the forward's collectives before each layer's own.
    training.recompute = Recompute::Full;
    assert_eq!(collectives(&training.chunk(&middle(1..2), &kernels).work.backward), [sum, sum, sum, sum]);
    training.tp = 1;
    assert_eq!(collectives(&training.chunk(&middle(1..2), &kernels).work.backward), []);
}

/// Vocabulary-parallel loss: three all-reduces of one 32-bit number a token.
#[test]
fn the_ends_of_the_model_by_hand() {
    let mut training = Training::new(model("llama3-70b"), 8192);
    (training.tp, training.sequence_parallel) = (8, true);
    let chunk = Chunk { layers: 79..80, embedding: false, head: true };
    let kernels = gpu("h100-sxm");
    let work = training.chunk(&chunk, &kernels).work;
    let loss = (Dimension::Tp, CollectiveKind::AllReduce, 4 * 8192);
    assert_eq!(collectives(&work.forward)[5..], [loss, loss, loss]);
    assert_eq!(work.parameter_bytes[1].get(), 2 * (8192 + 128_256 / 8 * 8192));
    let first = training.chunk(&Chunk { layers: 0..0, embedding: true, head: false }, &kernels).work;
    assert_eq!(
        collectives(&first.forward),
        [(Dimension::Tp, CollectiveKind::ReduceScatter, 2 * 8192 * 8192)]
    );
    assert_eq!(first.parameter_bytes, [Bytes::new(2 * 128_256 / 8 * 8192)]);
}

/// Keys and values of 8 heads of 128 over tp 8: one head each, K and V, the whole sequence.
#[test]
fn context_parallel_bytes_follow_the_key_heads() {
    let mut training = Training::new(model("llama3-70b"), 131_072);
    (training.tp, training.cp, training.sequence_parallel) = (8, 4, true);
    training.check().unwrap();
    let kernels = gpu("h100-sxm");
    let bytes = 2 * 131_072 * 2 * 128;
    for context in [ContextExchange::Ring, ContextExchange::AllGather] {
        training.context = context;
        let work = training.chunk(&middle(0..1), &kernels).work;
        assert_eq!(sum(&work.forward, Dimension::Cp), bytes);
        assert_eq!(sum(&work.backward, Dimension::Cp), 2 * bytes);
        let position = work
            .forward
            .iter()
            .position(|piece| matches!(piece, Piece::Collective { axis: Dimension::Cp, .. }));
        let Piece::Collective { overlap, .. } = work.forward[position.unwrap()] else { unreachable!() };
        match context {
            // The computation split with the ring is attention alone.
            ContextExchange::Ring => {
                assert_eq!(overlap, Overlap::WithNext { chunks: 4 });
                let Piece::Calc { label, duration } = work.forward[position.unwrap() + 1] else { panic!() };
                assert_eq!(label, "attention");
                let flops = 2.0 * 8.0 * 32_768.0 * 131_072.0 * 256.0 / 2.0;
                let time = flops / (989.4e12 * 0.623) + 2e-6;
                assert!((duration.seconds() / time - 1.0).abs() < 1e-9, "{duration}");
                assert!(matches!(work.forward[position.unwrap() + 2], Piece::Calc { .. }));
            }
            ContextExchange::AllGather => assert_eq!(overlap, Overlap::None),
        }
    }
}

/// DeepEP carries DeepSeek-V3's tokens, the shared expert is computed on their way: the same work in another order.
#[test]
fn tokens_are_routed_and_shared_experts_computed_meanwhile() {
    let mut training = Training::new(model("deepseek-v3"), 4096);
    training.ep = 64;
    let kernels = gpu("h100-sxm");
    let plain = training.chunk(&middle(3..4), &kernels).work;
    training.dispatcher = Some(Dispatcher { sms: 24, domains: 4 });
    training.overlap_shared = true;
    let work = training.chunk(&middle(3..4), &kernels).work;
    for (pass, before) in [(&work.forward, &plain.forward), (&work.backward, &plain.backward)] {
        assert_eq!(compute_time(pass), compute_time(before));
        assert_eq!(collectives(pass), collectives(before));
        let ways: Vec<(bool, Overlap)> = pass
            .iter()
            .filter_map(|piece| match *piece {
                Piece::Collective { axis: Dimension::Ep, routing: Some(routing), overlap, .. } => {
                    assert_eq!(
                        (routing.experts, routing.top_k, routing.domains, routing.sms),
                        (256, 8, 4, 24)
                    );
                    Some((routing.combine, overlap))
                }
                _ => None,
            })
            .collect();
        assert!(matches!(ways[..], [(false, Overlap::Async(_)), (true, Overlap::None)]), "{ways:?}");
        // Something is computed between the exchange and what waits for it.
        let sent =
            pass.iter().position(|piece| matches!(piece, Piece::Collective { axis: Dimension::Ep, .. }));
        let rest = &pass[sent.unwrap() + 1..];
        let waits = rest.iter().position(|piece| matches!(piece, Piece::Wait(_))).unwrap();
        assert!(rest[..waits].iter().any(|piece| matches!(piece, Piece::Calc { .. })));
    }
}

/// DeepSeek-V3 with 4,096 tokens a rank: each token is sent to 8 experts; tp 1, ep 64.
#[test]
fn expert_parallel_bytes_by_hand() {
    let mut training = Training::new(model("deepseek-v3"), 4096);
    training.ep = 64;
    training.check().unwrap();
    let kernels = gpu("h100-sxm");
    let dispatch = (Dimension::Ep, CollectiveKind::AllToAll, 4096 * 8 * 7168 * 2);
    let work = training.chunk(&middle(3..4), &kernels).work;
    assert_eq!(collectives(&work.forward), [dispatch, dispatch]);
    assert_eq!(collectives(&work.backward), [dispatch, dispatch]);
    assert_eq!(collectives(&training.chunk(&middle(2..3), &kernels).work.forward), []);
    let balanced = compute_time(&work.forward);
    training.imbalance = 1.5;
    let uneven = training.chunk(&middle(3..4), &kernels).work;
    // The busiest rank receives as much more as it computes.
    let more = (Dimension::Ep, CollectiveKind::AllToAll, 4096 * 8 * 7168 * 2 * 3 / 2);
    assert_eq!(collectives(&uneven.forward), [more, more]);
    assert!(compute_time(&uneven.forward) > balanced);
    training.capacity_factor = Some(1.25);
    let padded = training.chunk(&middle(3..4), &kernels).work;
    assert_eq!(sum(&padded.forward, Dimension::Ep), 2 * 4096 * 8 * 7168 * 2 * 5 / 4);
    // 256/64 experts of 3·7168·2048 parameters a rank.
    assert_eq!(padded.expert_parameter_bytes, [Bytes::new(2 * 4 * 3 * 7168 * 2048)]);
}

/// Split lists do what the fused one does, and units are complete once, in reverse order.
#[test]
fn split_backward_is_the_fused_one() {
    for name in ["llama3-8b", "mixtral-8x7b", "deepseek-v3", "megatron-1.7b"] {
        let mut training = Training::new(model(name), 2048);
        (training.tp, training.sequence_parallel) = (2, true);
        training.expert_tp = if training.architecture.experts.is_some() { 2 } else { 1 };
        training.check().unwrap();
        let chunk = Chunk { layers: 0..5, embedding: true, head: true };
        let work = training.chunk(&chunk, &gpu("h100-sxm")).work;
        let split = compute_time(&work.backward_input) + compute_time(&work.backward_weight);
        assert_eq!(split, compute_time(&work.backward), "{name}");
        let axes = [Dimension::Tp, Dimension::Ep, Dimension::Cp];
        for axis in axes {
            let split = sum(&work.backward_input, axis) + sum(&work.backward_weight, axis);
            assert_eq!(split, sum(&work.backward, axis), "{name} {axis:?}");
        }
        for (list, order) in [
            (&work.forward, (0..7).collect::<Vec<u32>>()),
            (&work.backward, (0..7).rev().collect()),
            (&work.backward_weight, (0..7).rev().collect()),
            (&work.backward_input, vec![]),
        ] {
            let done: Vec<u32> = list
                .iter()
                .filter_map(|piece| if let Piece::UnitDone(unit) = piece { Some(*unit) } else { None })
                .collect();
            assert_eq!(done, order, "{name}");
        }
        assert_eq!(work.units(), 7);
        let mut open = Vec::new();
        for piece in &work.backward {
            match piece {
                Piece::Collective { overlap: Overlap::Async(id), .. } => open.push(*id),
                Piece::Wait(id) => {
                    let position = open.iter().position(|known| known == id).expect("issued before");
                    open.remove(position);
                }
                _ => {}
            }
        }
        assert!(open.is_empty(), "{name}: {open:?}");
    }
}

/// A collective split with a GEMM has that GEMM, and nothing else, beside it; more chunks never make the GEMM faster.
#[test]
fn a_split_gemm_stands_alone() {
    let mut training = Training::new(model("llama3-70b"), 8192);
    (training.tp, training.sequence_parallel) = (8, true);
    let kernels = gpu("h100-sxm");
    let whole = compute_time(&training.chunk(&middle(0..1), &kernels).work.forward);
    training.overlap_chunks = 4;
    let work = training.chunk(&middle(0..1), &kernels).work;
    assert!(compute_time(&work.forward) >= whole);
    let gemm = |m, n, k| kernels.gemm(Gemm::new(m, n, k), Dtype::Bf16, Dtype::Bf16) * 4;
    let parts =
        [gemm(2048, 1280, 8192), gemm(2048, 8192, 1024), gemm(2048, 7168, 8192), gemm(2048, 8192, 3584)];
    let mut found = Vec::new();
    for (position, piece) in work.forward.iter().enumerate() {
        if let Piece::Collective { overlap, .. } = piece {
            let beside = match overlap {
                Overlap::WithNext { chunks: 4 } => work.forward[position + 1],
                Overlap::WithPrevious { chunks: 4 } => work.forward[position - 1],
                other => panic!("{other:?}"),
            };
            let Piece::Calc { duration, .. } = beside else { panic!("{beside:?}") };
            found.push(duration);
        }
    }
    assert_eq!(found, parts);
}

#[test]
fn narrow_formats_halve_the_time_of_large_gemms() {
    let sheet = kernels("h100-sxm", Dtype::Fp8, KernelProfile::default());
    // Measured by TensorRT-LLM: 5,810 us in bf16 and 3,572 us in fp8, of which converting the left factor takes 610 us
    // (github.com/ai-dynamo/aiconfigurator@095f58a, H100).
    let gemm = Gemm::new(16384, 8192, 16384);
    for (dtype, measured) in [(Dtype::Bf16, 5.81e-3), (Dtype::Fp8, 2.962e-3)] {
        let time = sheet.gemm(gemm, dtype, Dtype::Bf16).seconds();
        assert!((time / measured - 1.0).abs() < 0.1, "{}: {time}", dtype.name());
    }
    let v100 = GpuSheet::parse(&data("gpus/v100.yaml")).unwrap();
    let error = KernelModel::new(&v100, Dtype::Bf16, Dtype::Bf16, KernelProfile::default()).unwrap_err();
    assert_eq!(error.to_string(), "`V100` has no rate for `bf16`\n\nhint: it has `fp32`, `fp16`");
}

#[test]
fn a_profile_overrides_the_roofline() {
    let text = "kernel,m,n,k,dtype,time\ngemm,4096,1280,8192,bf16,1 ms\n";
    let profile = KernelProfile::parse(text).unwrap();
    let kernels = kernels("h100-sxm", Dtype::Bf16, profile);
    assert_eq!(kernels.gemm(Gemm::new(4096, 1280, 8192), Dtype::Bf16, Dtype::Bf16), Span::from_us(1_000));
    assert!(kernels.gemm(Gemm::new(4096, 1281, 8192), Dtype::Bf16, Dtype::Bf16) < Span::from_us(300));
}

#[test]
fn layouts_that_do_not_divide_are_refused() {
    let mut training = Training::new(model("llama3-70b"), 8192);
    training.tp = 24;
    assert_eq!(
        training.check().unwrap_err().to_string(),
        "`tp`: 24 does not divide the attention heads: 64\n\nhint: 16 and 32 do"
    );
    training.tp = 1;
    training.ep = 2;
    assert_eq!(
        training.check().unwrap_err().to_string(),
        "`ep`: expected 1, because the model has no experts, found `2`"
    );
    let endless = Training::new(model("llama3-70b"), 1 << 40).check().unwrap_err().to_string();
    assert!(endless.starts_with("`sequence × micro_batch`: expected at most 1.8e19 FLOPs"), "{endless}");
    let mut training = Training::new(model("mixtral-8x7b"), 8192);
    training.ep = 3;
    assert_eq!(
        training.check().unwrap_err().to_string(),
        "`ep`: 3 does not divide the experts: 8\n\nhint: 2 and 4 do"
    );
    (training.ep, training.tp) = (8, 2);
    assert!(
        training
            .check()
            .unwrap_err()
            .to_string()
            .starts_with("experts with `tp`: 2 need sequence parallelism")
    );
    assert_eq!(Chunk::split(80, &[20, 20, 20]), None);
}

/// The curves of the sheets against every measured projection they were read from: half are within 5% (A100) and 7%
/// (H100), for at least 1,024 tokens.
#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn gemm_times_are_near_the_measured_ones() {
    use std::io::Read;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/compute_profiles");
    // No constant is fitted on these rows (the curves that tiles replaced were: 5% each). Vidur's kernels ran for long, those
    // of the fit were short; what a GPU sustains is one number for each.
    for (gpu_name, file, sustained, limit) in [
        ("a100-80", "vidur_a100_Meta-Llama-3-8B_mlp.csv.gz", 0.9, 0.06),
        ("a100-80", "vidur_a100_Meta-Llama-3-70B_mlp.csv.gz", 0.9, 0.05),
        ("h100-sxm", "vidur_h100_Llama-2-70b-hf_mlp.csv.gz", 0.88, 0.07),
    ] {
        let bytes = std::fs::read(root.join(file)).expect("recorded times");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().unwrap().split(',').collect();
        let column = |name: &str| header.iter().position(|known| *known == name).unwrap();
        let columns =
            ["n_head", "n_kv_head", "n_embd", "n_expanded_embd", "num_tokens", "num_tensor_parallel_workers"]
                .map(column);
        let kernels = gpu(gpu_name).sustained(sustained);
        let mut errors = Vec::new();
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let [heads, kv, hidden, ffn, tokens, tp] =
                columns.map(|column| cells[column].parse::<u64>().unwrap());
            if tokens < 1024 {
                continue;
            }
            let qkv = (heads / tp + 2 * (kv / tp).max(1)) * (hidden / heads);
            for (name, n, k) in [
                ("attn_pre_proj", qkv, hidden),
                ("attn_post_proj", hidden, hidden / tp),
                ("mlp_up_proj", 2 * ffn / tp, hidden),
                ("mlp_down_proj", hidden, ffn / tp),
            ] {
                let measured: f64 =
                    cells[column(&format!("time_stats.{name}.median"))].parse::<f64>().unwrap() * 1e-3;
                let predicted = kernels.gemm(Gemm::new(tokens, n, k), Dtype::Bf16, Dtype::Bf16).seconds();
                errors.push((predicted / measured - 1.0).abs());
            }
        }
        errors.sort_by(f64::total_cmp);
        let (median, p95) = (errors[errors.len() / 2], errors[errors.len() * 95 / 100]);
        println!("{file}: {} projections, error median {median:.3}, p95 {p95:.3}", errors.len());
        assert!(errors.len() > 1000 && median < limit, "{file}: {median}");
    }
}
