//! Memory by hand, by published equations and tables, and instant by instant.

use super::*;
use crate::model::Architecture;
use crate::model::dtype::Dtype;

fn gpt(hidden: u64, layers: u64, heads: u64) -> Training {
    let json = format!(
        r#"{{"model_type":"gpt2","n_embd":{hidden},"n_layer":{layers},"n_head":{heads},"n_positions":2048,
        "vocab_size":51200}}"#
    );
    let mut training = Training::new(Architecture::from_config(&json).unwrap(), 2048);
    training.attention = AttentionKernel::Unfused;
    training.dropout = true;
    training
}

/// arXiv:2205.05198 equations 1, 2, 4, 6 and table 2, for GPT-3 175B (s = 2048, b = 1, h = 12288, a = 96, t = 8).
#[test]
fn a_gpt_layer_stores_what_the_equations_say() {
    let (s, b, h, a) = (2048u64, 1u64, 12288u64, 96u64);
    let sbh = s * b * h;
    let mut training = gpt(h, 96, a);
    let stored = |training: &Training| training.layer_activation_bytes(0).get();
    assert_eq!(stored(&training), sbh * 34 + 5 * a * s * s * b, "equation 1");
    training.tp = 8;
    assert_eq!(stored(&training), sbh * 10 + sbh * 24 / 8 + 5 * a * s * s * b / 8, "equation 2");
    training.sequence_parallel = true;
    assert_eq!(stored(&training), (sbh * 34 + 5 * a * s * s * b) / 8, "equation 4");
    training.recompute = Recompute::Selective;
    assert_eq!(stored(&training), sbh * 34 / 8, "equation 6");
    training.recompute = Recompute::Full;
    assert_eq!(stored(&training), 2 * sbh / 8);
    training.sequence_parallel = false;
    assert_eq!(stored(&training), 2 * sbh, "table 2, full recomputation");
}

/// arXiv:2205.05198 §5: 5as/h is 80 for GPT-3 and 64 for MT-NLG 530B, so that selective recomputation saves 70% and
/// 65% of the activations.
#[test]
fn selective_recomputation_saves_the_published_shares() {
    for (hidden, layers, heads, published) in [(12288, 96, 96, 0.70), (20480, 105, 128, 0.65)] {
        let mut training = gpt(hidden, layers, heads);
        training.tp = 8;
        training.sequence_parallel = true;
        let all = training.layer_activation_bytes(0).get() as f64;
        training.recompute = Recompute::Selective;
        let saved = 1.0 - training.layer_activation_bytes(0).get() as f64 / all;
        assert!((saved - published).abs() < 0.005, "{saved}");
    }
}

/// Equation 5 for the first pipeline rank under 1F1B: sbhL/t (34 + 5as/(ht)) in all, plus the embedding's dropout.
#[test]
fn the_first_stage_holds_all_layers_worth() {
    let mut training = gpt(12288, 96, 96);
    (training.tp, training.sequence_parallel) = (8, true);
    let chunk = Chunk { layers: 0..12, embedding: true, head: false };
    let memory = training.memory(&[Resident { chunk, in_flight: 8 }], &Sharding::default());
    let (s, h, a) = (2048u64, 12288u64, 96u64);
    assert_eq!(memory.activations.get(), 96 * (34 * s * h + 5 * a * s * s) / 8 + 8 * s * h / 8);
    let extra =
        training.chunk_activation_bytes(&Chunk { layers: 95..96, embedding: false, head: true }).get()
            - training.layer_activation_bytes(95).get();
    assert_eq!(extra, 4 * s * h / 8 + 4 * s * 51200 / 8, "4sbh/t (1 + v/h)");
}

/// 7.5 billion parameters over 64 ranks: 120 GB, 31.4 GB, 16.6 GB, 1.9 GB (Rajbhandari et al. 2020, figure 1).
#[test]
fn zero_stages_give_the_published_bytes() {
    let training = gpt(4096, 36, 32);
    let resident = [Resident { chunk: Chunk::whole(36), in_flight: 0 }];
    let parameters = training.architecture.parameters() as f64;
    for (stage, published) in [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)] {
        let sharding = Sharding {
            zero: Zero::stage(stage).unwrap(),
            shards: 64,
            expert_shards: 64,
            ..Sharding::default()
        };
        let memory = training.memory(&resident, &sharding);
        let state = (memory.weights + memory.gradients + memory.optimiser).get() as f64;
        assert!((state / parameters * 7.5 - published).abs() < 0.05, "stage {stage}: {state}");
    }
}

/// By hand: Llama-3-8B, s = 8192, tp = 8 with sequence parallelism, flash, bf16.
#[test]
fn a_llama_layer_stores_its_tensors() {
    let json = r#"{"model_type":"llama","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
        "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":128256}"#;
    let mut training = Training::new(Architecture::from_config(json).unwrap(), 8192);
    (training.tp, training.sequence_parallel) = (8, true);
    let s = 8192u64;
    let by_hand = 4 * (2 * s * 4096 / 8)    // two norm inputs and outputs, split
        + 2 * s * (4 + 2) * 128             // 4 query heads, 1 key, 1 value
        + 4 * s * 4                         // log-sum-exp
        + 2 * s * 4 * 128                   // weighted sum
        + 2 * s * 3 * 14336 / 8; // gate, up, and their product
    assert_eq!(training.layer_activation_bytes(0), Bytes::new(by_hand));
    training.precision.compute = Dtype::Fp8;
    let narrower = 2 * (s * 4096 / 8) + s * 4 * 128 + s * 14336 / 8;
    assert_eq!(training.layer_activation_bytes(0), Bytes::new(by_hand - narrower));
}

/// Tensors of a layer in the order in which its backward pass gives them up, and what it has besides at each instant, by hand:
/// (bytes given up, bytes held besides). The layer is GPT's, or has a gate, on a tensor-parallel rank's share.
fn instants(training: &Training, tokens: u64, tp: u64, recompute: Recompute) -> Vec<(u64, u64)> {
    let model = &training.architecture;
    let (hidden, width, ups) = (model.hidden, model.dense.width, model.dense.ups());
    let (own, inner) = (tokens * hidden / tp, tokens * width / tp);
    let gathered = if tp > 1 { 2 * tokens * hidden } else { 0 };
    let kept = if tp > 1 && !training.regather { gathered } else { 2 * own };
    let again = if tp > 1 && training.regather { gathered } else { 0 };
    let scores = match training.attention {
        AttentionKernel::Flash => 0,
        AttentionKernel::Unfused => 2 * training.sequence * tokens * training.local_heads(),
    };
    let late = if recompute == Recompute::Selective { scores } else { 0 };
    let residual = 2 * own;
    vec![
        // The gradient of the result, and of the inner features.
        (0, residual + gathered + 2 * inner),
        // The second product's input goes; gradients of the first one's results come.
        (2 * inner, residual + 2 * inner + 2 * ups * inner),
        // Those results go, their gradients stay; the gradient of the input, and the input, come.
        (2 * ups * inner, residual + 2 * ups * inner + 2 * tokens * hidden + again),
        // The norm's output goes; then attention's scores have their gradient.
        (kept, residual + late + scores),
    ]
}

/// One micro-batch through a whole model, instant by instant: what is stored grows, the loss comes, and tensor by tensor it is
/// given up again. The largest of these sums is what a rank needs beside its model state.
#[test]
fn the_peak_is_the_fullest_instant_of_a_micro_batch() {
    let recomputes = [Recompute::None, Recompute::Selective, Recompute::Full];
    let models = [(1024, 4, 1, false), (4096, 8, 1, false), (4096, 2, 16, true), (12288, 2, 1, false)];
    for (hidden, layers, batch, gated) in models {
        for (recompute, attention, fused_loss, tp, regather) in [
            (0, AttentionKernel::Flash, true, 1, true),
            (0, AttentionKernel::Flash, false, 1, true),
            (0, AttentionKernel::Unfused, true, 1, true),
            (1, AttentionKernel::Unfused, true, 4, true),
            (2, AttentionKernel::Flash, true, 1, true),
            (2, AttentionKernel::Flash, true, 8, true),
            (2, AttentionKernel::Flash, true, 8, false),
            (2, AttentionKernel::Unfused, true, 1, true),
            (2, AttentionKernel::Unfused, false, 2, true),
        ] {
            let recompute = recomputes[recompute];
            let mut training = gpt(hidden, layers, 32);
            training.architecture.dense.gated = gated;
            (training.micro_batch, training.recompute) = (batch, recompute);
            (training.fused_loss, training.attention, training.dropout) = (fused_loss, attention, false);
            (training.tp, training.sequence_parallel, training.regather) = (tp, tp > 1, regather);
            for zero in [Zero::None, Zero::Gradients] {
                let sharding = Sharding { zero, shards: 8, expert_shards: 8, ..Sharding::default() };
                let chunk = Chunk::whole(layers as u32);
                let memory = training.memory(&[Resident { chunk, in_flight: 1 }], &sharding);

                let (tokens, vocabulary) = (2048 * batch, 51200 / tp);
                let input = 2 * tokens * hidden / tp;
                let whole = training.stored_by_layer(0, recompute == Recompute::Selective);
                let (kept, anew) = match recompute {
                    Recompute::Full => (input, whole - input),
                    _ => (whole, 0),
                };
                let (dense, _) = training.layer_parameters_on_rank(0);
                let largest = dense
                    .max(training.embedding_parameters_on_rank())
                    .max(training.head_parameters_on_rank(true));
                let unit = if zero == Zero::Gradients { 2 * largest } else { 0 };
                let loss = tokens * vocabulary * if fused_loss { 2 } else { 10 };
                let inputs = input + if tp > 1 && !regather { tp * input } else { input };
                let mut stored = layers * kept + inputs + 4 * tokens * vocabulary;
                let mut fullest = stored + loss;
                stored -= 4 * tokens * vocabulary;
                fullest = fullest.max(stored + 2 * tokens * vocabulary + unit);
                stored -= inputs;
                for _ in 0..layers {
                    let mut layer = stored + anew;
                    for (gone, besides) in instants(&training, tokens, tp, recompute) {
                        layer -= gone;
                        fullest = fullest.max(layer + besides + unit);
                    }
                    stored -= kept;
                }
                let found = (memory.activations + memory.buffers).get();
                assert_eq!(stored, 0);
                assert_eq!(
                    found, fullest,
                    "{hidden} {layers} {batch} {recompute:?} {attention:?} {fused_loss} {tp} {regather} {zero:?}"
                );
            }
        }
    }
}

/// Gradients that add up whole are not held by the shards besides: ZeRO-3 that reduces once a step needs what ZeRO-1 does for
/// them, and what reduces every micro-batch holds a share, and one unit on its way.
#[test]
fn whole_gradients_are_held_once() {
    let training = gpt(4096, 36, 32);
    let resident = [Resident { chunk: Chunk::whole(36), in_flight: 1 }];
    let of = |zero, whole_gradients| {
        let sharding =
            Sharding { zero, shards: 64, expert_shards: 64, whole_gradients, ..Sharding::default() };
        training.memory(&resident, &sharding).gradients.get()
    };
    let whole = 2 * training.architecture.parameters();
    assert_eq!(of(Zero::Optimiser, false), whole);
    assert_eq!(of(Zero::Parameters, true), whole);
    assert_eq!(of(Zero::Parameters, false), whole.div_ceil(64));
}

#[test]
fn the_hint_names_what_helps() {
    let mut training = gpt(12288, 96, 96);
    let chunk = Chunk::whole(96);
    let capacity = Bytes::new(80_000_000_000);
    let sharding = Sharding::default();
    let memory = training.memory(&[Resident { chunk: chunk.clone(), in_flight: 1 }], &sharding);
    let MemoryVerdict::Exceeds { hint, missing } = training.memory_verdict(&memory, capacity, &sharding)
    else {
        panic!("3 TB fit 80 GB");
    };
    assert_eq!((hint, missing), (MemoryHint::Tensor, memory.total() - capacity));
    training.micro_batch = 32;
    let memory = training.memory(&[Resident { chunk, in_flight: 1 }], &sharding);
    let verdict = training.memory_verdict(&memory, capacity, &sharding);
    assert!(
        matches!(verdict, MemoryVerdict::Exceeds { hint: MemoryHint::RecomputeSelective, .. }),
        "{verdict:?}"
    );
    assert!(matches!(
        training.memory_verdict(&Memory::default(), capacity, &sharding),
        MemoryVerdict::Fits { spare } if spare == Bytes::new(80_000_000_000)
    ));
}
