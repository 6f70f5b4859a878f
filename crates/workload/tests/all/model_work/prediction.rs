//! Multi-token prediction against published numbers and closed forms.

use super::{collectives, gpu, model};
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::model::{Chunk, Recompute, Resident, Sharding, Training, Zero, compute_time};

/// DeepSeek-AI, README of DeepSeek-V3: its module has 11.5 billion parameters of its own, beside 0.9 for the embedding and 0.9 for
/// the output head, which are the model's.
#[test]
fn deepseeks_module_has_the_published_parameters() {
    let architecture = model("deepseek-v3");
    let billions = |count: u64| count as f64 / 1e9;
    assert_eq!(architecture.prediction_layers, 1);
    assert!((billions(architecture.prediction_parameters()) - 11.5).abs() < 0.15);
    assert!((billions(architecture.vocabulary * architecture.hidden) - 0.9).abs() < 0.05);
}

/// A module adds six operations a token for each parameter in its products, once more the output projection, and attention of one
/// layer: by a dense model without parallelism, to the operation.
#[test]
fn a_module_adds_a_layer_a_projection_and_the_head() {
    let architecture = model("llama3-8b");
    let mut training = Training::new(architecture.clone(), 8192);
    training.causal = false;
    let chunk = Chunk::whole(32);
    let kernels = gpu("h100-sxm");
    let plain = training.chunk(&chunk, &kernels);
    for modules in [1, 3] {
        training.predictions = modules;
        training.check().unwrap();
        let with = training.chunk(&chunk, &kernels);
        let (h, v, s) = (4096u64, 128_256u64, 8192u64);
        let layer = architecture.layer_parameters(31).total() - 2 * h;
        let attention = 3 * architecture.attention_flops_per_token(s, false) / 32;
        let added = u64::from(modules) * s * (6 * (layer + 2 * h * h + v * h) + attention);
        let all = |cost: &windtunnel_workload::model::ChunkCost| cost.flops.forward + cost.flops.backward;
        assert_eq!(all(&with) - all(&plain), added);
        // What is counted for utilisation has norms besides, as the model's own count has.
        let counted = training.model_flops_per_token(false) - architecture.model_flops_per_token(s, false);
        assert_eq!(counted * s - added, u64::from(modules) * 6 * 5 * h * s);
        assert!(compute_time(&with.work.forward) > compute_time(&plain.work.forward));
    }
}

/// Each module is a unit of gradients between the last layer and the head, and units are as many as their sizes.
#[test]
fn modules_are_units_of_gradients() {
    let mut training = Training::new(model("deepseek-v3"), 4096);
    (training.tp, training.ep, training.sequence_parallel) = (2, 64, true);
    let kernels = gpu("h100-sxm");
    let last = Chunk { layers: 57..61, embedding: false, head: true };
    let plain = training.chunk(&last, &kernels).work;
    training.predictions = 2;
    training.check().unwrap();
    let work = training.chunk(&last, &kernels).work;
    assert_eq!(work.gradient_bytes.len(), plain.gradient_bytes.len() + 2);
    let (dense, experts) = training.prediction_parameters_on_rank();
    for module in [4, 5] {
        assert_eq!(work.gradient_bytes[module].get(), 2 * dense);
        assert_eq!(work.expert_gradient_bytes[module].get(), 2 * experts);
    }
    // The table of the first stage is here again.
    let table = 129_280 / 2 * 7168;
    assert_eq!(work.gradient_bytes[6].get() - plain.gradient_bytes[4].get(), 2 * table);
    let done = |list: &[windtunnel_workload::generate::Piece]| {
        list.iter()
            .filter_map(|piece| match piece {
                windtunnel_workload::generate::Piece::UnitDone(unit) => Some(*unit),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(done(&work.forward), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(done(&work.backward), [6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(done(&work.backward_weight), [6, 5, 4, 3, 2, 1, 0]);
    // Stages without the head do not change.
    let middle = Chunk { layers: 30..34, embedding: false, head: false };
    let with = training.chunk(&middle, &kernels);
    training.predictions = 0;
    assert_eq!(with, training.chunk(&middle, &kernels));
}

/// Forward with sequence parallelism a module gathers 2h features of every token, and h of the projection's result, besides what
/// its layer, the embedding and the head exchange.
#[test]
fn tensor_parallel_bytes_of_a_module_by_hand() {
    let mut training = Training::new(model("llama3-8b"), 8192);
    (training.tp, training.sequence_parallel) = (4, true);
    let kernels = gpu("h100-sxm");
    let chunk = Chunk { layers: 28..32, embedding: false, head: true };
    let sums = |training: &Training, kind| {
        let list = training.chunk(&chunk, &kernels).work.forward;
        collectives(&list)
            .iter()
            .filter(|found| found.0 == Dimension::Tp && found.1 == kind)
            .map(|found| found.2)
            .sum::<u64>()
    };
    let gathered = sums(&training, CollectiveKind::AllGather);
    let scattered = sums(&training, CollectiveKind::ReduceScatter);
    training.predictions = 1;
    let sbh = 2 * 8192 * 4096;
    // Two around the layer's blocks, one before the head.
    assert_eq!(sums(&training, CollectiveKind::AllGather) - gathered, sbh * (2 + 1 + 2 + 1));
    // The embedding and both blocks.
    assert_eq!(sums(&training, CollectiveKind::ReduceScatter) - scattered, sbh * 3);
}

/// A module keeps what its norms take in and give, its layer's tensors, and logits of its own; recomputed, what its norms take in and
/// the logits with the head's inputs.
#[test]
fn memory_of_a_module_by_hand() {
    let mut training = Training::new(model("llama3-8b"), 8192);
    let chunk = Chunk { layers: 28..32, embedding: false, head: true };
    let memory = |training: &Training| {
        let resident = [Resident { chunk: chunk.clone(), in_flight: 1 }];
        training.memory(&resident, &Sharding { zero: Zero::None, ..Sharding::default() })
    };
    for recompute in [Recompute::None, Recompute::Full] {
        training.recompute = recompute;
        training.predictions = 0;
        let plain = memory(&training);
        training.predictions = 1;
        let with = memory(&training);
        let (s, h, v) = (8192u64, 4096u64, 128_256u64);
        let head = 2 * 2 * s * h + 4 * s * v;
        let inside = match recompute {
            Recompute::Full => 0,
            _ => 2 * 2 * s * h + training.layer_activation_bytes(31).get(),
        };
        assert_eq!(
            (with.activations - plain.activations).get(),
            2 * 2 * s * h + inside + head,
            "{recompute:?}"
        );
        let parameters = training.architecture.prediction_parameters() + v * h;
        assert_eq!((with.weights - plain.weights).get(), 2 * parameters);
        assert_eq!((with.optimiser - plain.optimiser).get(), 12 * parameters);
    }
}

#[test]
fn what_cannot_be_predicted_with_is_refused() {
    let mut training = Training::new(model("llama3-8b"), 8192);
    training.predictions = 17;
    assert_eq!(
        training.check().unwrap_err().to_string(),
        "`multi_token_prediction`: expected at most 16 modules, found `17`"
    );
    (training.predictions, training.lora_rank) = (1, Some(16));
    assert!(training.check().unwrap_err().to_string().contains("0 with `lora_rank`"));
}
