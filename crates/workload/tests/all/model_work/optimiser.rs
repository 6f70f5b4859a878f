//! Steps of optimisers: state, traffic, and Muon's products against shapes written down by hand.

use windtunnel_kernel::{Bytes, Span};
use windtunnel_workload::model::{
    Chunk, Dtype, Gemm, KernelModel, Matrices, Optimiser, Resident, Sharding, Streaming, Training, Zero,
};

use super::{gpu, middle, model};

fn under(name: &str, optimiser: Optimiser) -> Training {
    let mut training = Training::new(model(name), 4096);
    training.optimiser = optimiser;
    training
}

fn parameters(matrices: &[Matrices]) -> u64 {
    matrices.iter().map(Matrices::parameters).sum()
}

/// Newton and Schulz for one matrix, written out: five steps of three products.
fn orthogonal(rows: u64, columns: u64, kernels: &KernelModel) -> Span {
    let (m, n) = (rows.min(columns), rows.max(columns));
    let mut time = Span::ZERO;
    for _ in 0..5 {
        for (left, right, inner) in [(m, m, n), (m, m, m), (m, n, m)] {
            time += kernels.gemm(Gemm::new(left, right, inner), Dtype::Bf16, Dtype::Bf16);
        }
    }
    time
}

/// All of a layer but its vectors: norms, biases and gates of one feature.
#[test]
fn matrices_are_all_of_a_layer_but_vectors() {
    // (model, layer, vectors of dense parts, vectors of a routed expert)
    let known = [
        ("llama3-8b", 0, 2 * 4096, 0),
        ("gpt3-175b", 5, 2 * 2 * 12288 + (3 * 12288 + 12288) + (4 * 12288 + 12288), 0),
        // Norms, those of queries and keys.
        ("qwen3-30b-a3b", 0, 2 * 2048 + 2 * 128, 0),
        // Norms, those of the compressed query and key; in a sparse layer the correction of each expert.
        ("deepseek-v3", 0, 2 * 7168 + 1536 + 512, 0),
        ("deepseek-v3", 60, 2 * 7168 + 1536 + 512 + 256, 0),
        // Norms, biases of attention and of the router; of an expert those of gate, value and output.
        ("gpt-oss-120b", 3, 2 * 2880 + (64 + 2 * 8) * 64 + 2880 + 128, 2 * 2880 + 2880),
    ];
    for (name, layer, vectors, of_expert) in known {
        let training = under(name, Optimiser::Muon);
        let (dense, routed) = training.layer_parameters_on_rank(layer);
        let (matrices, of_experts) = training.matrices(layer);
        assert_eq!(parameters(&matrices), dense - vectors, "{name}");
        let experts = training.architecture.experts.map_or(0, |experts| experts.routed);
        assert_eq!(
            parameters(&of_experts),
            routed - if routed > 0 { experts * of_expert } else { 0 },
            "{name}"
        );
        assert!(matrices.iter().chain(&of_experts).all(|one| one.own == one.rows * one.columns), "{name}");
    }
    // Over tensor-parallel and expert ranks each rank has its part, and shapes stay whole.
    let mut training = under("deepseek-v3", Optimiser::Muon);
    (training.tp, training.ep, training.expert_tp, training.sequence_parallel) = (4, 8, 1, true);
    let (matrices, of_experts) = training.matrices(60);
    let (dense, routed) = training.layer_parameters_on_rank(60);
    assert_eq!(parameters(&matrices), dense - (2 * 7168 + 1536 + 512 + 256));
    assert_eq!(parameters(&of_experts), routed);
    let alone = under("deepseek-v3", Optimiser::Muon).matrices(60);
    let shapes = |list: &[Matrices]| list.iter().map(|one| (one.rows, one.columns)).collect::<Vec<_>>();
    assert_eq!(shapes(&matrices), shapes(&alone.0));
    assert_eq!(of_experts.iter().map(|one| one.count).sum::<u64>(), 3 * 256 / 8);
}

/// Of Llama 3 8B by hand: queries and output 4,096 by 4,096, keys and values 1,024, three of 14,336.
#[test]
fn muon_adds_newton_schulz_and_saves_a_moment() {
    let kernels = gpu("h100-sxm");
    let layers = 4;
    let step = |optimiser, shards| {
        let mut training = under("llama3-8b", optimiser);
        training.optimiser_shards = shards;
        training.optimiser_step(&middle(0..layers), &kernels)
    };
    let matrices = 4096 * 4096 * 2 + 2 * 1024 * 4096 + 3 * 4096 * 14336;
    let vectors = 2 * 4096;
    let moved = |of_matrices: u64, of_vectors: u64| {
        let all = u64::from(layers) * (matrices + vectors);
        let bytes = u64::from(layers) * (of_matrices * matrices + of_vectors * vectors) + 4 * all;
        kernels.streaming(Streaming::Optimiser, all, 1, bytes)
    };
    assert_eq!(step(Optimiser::Adam, 1), moved(24, 24));
    let mut products = Span::ZERO;
    for (count, rows, columns) in [(2, 4096, 4096), (2, 1024, 4096), (2, 14336, 4096), (1, 4096, 14336)] {
        products += orthogonal(rows, columns, &kernels) * (count * u64::from(layers));
    }
    let muon = step(Optimiser::Muon, 1);
    let off = muon.seconds() / (moved(24, 24) + products).seconds() - 1.0;
    assert!(off.abs() < 1e-9, "{off}");
    // Ranks share the matrices out, down to one.
    let shared = step(Optimiser::Muon, 4).seconds() / muon.seconds();
    assert!((shared - 0.25).abs() < 1e-3, "{shared}");
    let largest = orthogonal(4096, 14336, &kernels);
    let many = step(Optimiser::Muon, 100_000);
    assert!(many > largest && many < largest + Span::from_us(20), "{many:?}");
    // Two experts more on a rank are six matrices more.
    let mut routed = under("mixtral-8x7b", Optimiser::Muon);
    (routed.ep, routed.expert_optimiser_shards) = (4, 1);
    let before = routed.optimiser_step(&middle(0..1), &kernels);
    routed.ep = 2;
    let after = routed.optimiser_step(&middle(0..1), &kernels);
    assert!(after > before + orthogonal(4096, 14336, &kernels) * 5, "{before:?} {after:?}");
}

/// 8 bytes a parameter of a matrix and 12 of everything else, sharded as Adam's are.
#[test]
fn muon_keeps_one_moment_of_matrices() {
    let chunk = Chunk { layers: 0..32, embedding: true, head: true };
    let held = [Resident { chunk, in_flight: 1 }];
    let matrices = 32 * (4096 * 4096 * 2 + 2 * 1024 * 4096 + 3 * 4096 * 14336);
    for (zero, shards) in [(Zero::None, 1), (Zero::Optimiser, 8)] {
        let sharding = Sharding { zero, shards, ..Sharding::default() };
        let bytes = |optimiser| under("llama3-8b", optimiser).memory(&held, &sharding);
        let (adam, muon) = (bytes(Optimiser::Adam), bytes(Optimiser::Muon));
        assert_eq!(adam.optimiser - muon.optimiser, Bytes::new(4 * matrices / shards));
        assert_eq!(adam.optimiser, Bytes::new(12 * 8_030_261_248 / shards));
        let rest = |memory: windtunnel_workload::model::Memory| memory.total() - memory.optimiser;
        assert_eq!(rest(adam), rest(muon));
    }
    let mut adapted = under("llama3-8b", Optimiser::Muon);
    adapted.lora_rank = Some(16);
    let refused = adapted.check().unwrap_err().to_string();
    assert!(refused.starts_with("`optimizer`: expected `adam` with `lora_rank`"), "{refused}");
}
