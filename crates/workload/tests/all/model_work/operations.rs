//! What a framework adds to the kernels of a model: launches, single experts, losses by operations, recomputation.

use windtunnel_kernel::Span;
use windtunnel_workload::Dimension;
use windtunnel_workload::generate::Piece;
use windtunnel_workload::model::{
    AttentionKernel, Chunk, Dtype, Gemm, Graphs, KernelModel, KernelProfile, Recompute, Streaming, Training,
    Window, compute_time,
};

use super::{collectives, gpu, kernels, middle, model};

/// Every unit of every pass begins with what its kernels and collectives take to launch, and nothing else changes.
#[test]
fn launches_stand_before_what_they_launch() {
    let kernels = gpu("a100-80");
    let mut training = Training::new(model("megatron-7.5b"), 2048);
    (training.tp, training.recompute) = (4, Recompute::Full);
    let chunk = Chunk { layers: 0..3, embedding: true, head: true };
    let without = training.chunk(&chunk, &kernels).work;
    training.dispatch = Span::from_ps(1_000);
    let with = training.chunk(&chunk, &kernels).work;
    let launches = |pieces: &[Piece]| -> Vec<u64> {
        let launch =
            |piece: &Piece| if let Piece::Launch { span, .. } = piece { Some(span.ps()) } else { None };
        pieces.iter().filter_map(launch).collect()
    };
    for (before, after) in [
        (&without.forward, &with.forward),
        (&without.backward, &with.backward),
        (&without.backward_weight, &with.backward_weight),
    ] {
        let rest: Vec<Piece> =
            after.iter().filter(|piece| !matches!(piece, Piece::Launch { .. })).copied().collect();
        assert_eq!(&rest, before);
        for unit in after.split(|piece| matches!(piece, Piece::UnitDone(_))).filter(|unit| !unit.is_empty()) {
            assert!(matches!(unit[0], Piece::Launch { .. }), "{unit:?}");
        }
    }
    // A layer forward: 2 norms, 2 residual additions, 4 projections, attention, rotary or not, activation; 2 all-reduces.
    let forward = launches(&with.forward);
    let collectives = |pieces: &[Piece]| collectives(pieces).len() as u64;
    assert_eq!(forward.len(), 5);
    assert!(forward[1..4].iter().all(|&launch| launch == forward[1]), "equal layers");
    let kernels = forward[1] / 1_000 - 2;
    assert!((10..=14).contains(&kernels), "{kernels} kernels a layer");
    assert!(forward.iter().sum::<u64>() / 1_000 > collectives(&with.forward));
    // Embedding with its sum and norm, final norm, logits, loss: a few kernels; ten more around each end of the model.
    assert!((11..=14).contains(&(forward[0] / 1_000)), "{forward:?}");
    assert!((14..=24).contains(&(forward[4] / 1_000)), "{forward:?}");
    // Backward with recomputation: the forward again, and two GEMMs for each.
    let backward = launches(&with.backward);
    assert!(backward[1] > 2 * forward[1] && backward[1] < 4 * forward[1], "{backward:?} {forward:?}");
}

/// A micro-batch's gradients pass through memory to be added: the product reads and writes sums where it would write its result, and a
/// kernel of its own reads that besides. Bytes are those of the weights' gradients, at the sheet's share of the bandwidth.
#[test]
fn gradients_of_micro_batches_are_added() {
    let kernels = gpu("a100-80");
    let mut training = Training::new(model("megatron-7.5b"), 2048);
    training.tp = 4;
    let (layers, hidden) = (3, training.architecture.hidden);
    let chunk = Chunk { layers: 0..layers, embedding: false, head: false };
    // Projections of a layer: 12 h² over four ranks (equation 2 of arXiv:2104.04473, less biases and norms).
    let weights = u64::from(layers) * 12 * hidden * hidden / 4;
    let bandwidth = 2039e9 * 0.79;
    let mut took = |adds: bool, gradients: Dtype, added: Option<Dtype>| {
        training.adds_gradients = adds;
        (training.precision.gradients, training.precision.added_gradients) = (gradients, added);
        let work = training.chunk(&chunk, &kernels).work;
        (compute_time(&work.backward).seconds(), compute_time(&work.backward_weight).seconds(), work.forward)
    };
    let (both, weight, forward) = took(false, Dtype::Bf16, None);
    for (gradients, added, bytes, launches) in [
        // Sums read and written, less the result that is not.
        (Dtype::Bf16, None, 2 * 2 - 2, 0),
        (Dtype::Fp32, None, 2 * 4 - 2, 0),
        (Dtype::Fp32, Some(Dtype::Bf16), 2 * 4 + 2, 4),
        (Dtype::Fp16, Some(Dtype::Fp16), 2 * 2 + 2, 4),
    ] {
        let expected = (bytes * weights) as f64 / bandwidth + f64::from(launches * layers) * 2e-6;
        let (with, with_weight, with_forward) = took(true, gradients, added);
        assert!((with - both - expected).abs() < 1e-9 + 1e-6 * expected, "{with} {both} {expected}");
        assert!((with_weight - weight - expected).abs() < 1e-9 + 1e-6 * expected, "{with_weight} {weight}");
        assert_eq!(with_forward, forward);
    }
    // Adapters alone have gradients, and these are small.
    training.lora_rank = Some(16);
    training.adds_gradients = true;
    let adapters = training.chunk(&chunk, &kernels).work.backward;
    training.adds_gradients = false;
    assert_eq!(training.chunk(&chunk, &kernels).work.backward, adapters);
}

/// Logits whose rows are not multiples of 16 bytes take longer, by as much for each halving of what can be loaded at once.
#[test]
fn logits_of_an_odd_vocabulary_are_slow() {
    let kernels = gpu("a100-80");
    let head = Chunk { layers: 0..0, embedding: false, head: true };
    let took = |vocabulary: u64| {
        let mut architecture = model("megatron-7.5b");
        architecture.vocabulary = vocabulary;
        let work = Training::new(architecture, 2048).chunk(&head, &kernels).work;
        [&work.forward, &work.backward].map(|pieces| compute_time(pieces).seconds())
    };
    let (aligned, odd) = (took(50_264), took(50_257));
    for (aligned, odd) in aligned.into_iter().zip(odd) {
        // Three halvings of 0.47 each, on the products alone.
        assert!((1.5..2.5).contains(&(odd / aligned)), "{odd} {aligned}");
    }
    let [forward, _] = took(50_260);
    assert!(aligned[0] < forward && forward < odd[0], "one halving");
}

/// Transformer Engine's grouped linear layer: a product forward and two backward for each local expert and projection.
#[test]
fn experts_that_are_not_fused_are_launched_one_by_one() {
    let kernels = gpu("h100-sxm");
    let mut training = Training::new(model("qwen3-30b-a3b"), 4096);
    (training.ep, training.dispatch, training.graphs) = (8, Span::from_ps(1_000), Graphs::Layers);
    let chunk = Chunk { layers: 0..1, embedding: false, head: false };
    let launched = |training: &Training| {
        let work = training.chunk(&chunk, &kernels).work;
        let of = |pieces: &[Piece]| -> Vec<(u64, bool)> {
            let launch = |piece: &Piece| match piece {
                Piece::Launch { span, waits } => Some((span.ps() / 1_000, *waits)),
                _ => None,
            };
            pieces.iter().filter_map(launch).collect()
        };
        (of(&work.forward), of(&work.backward))
    };
    let (forward, backward) = launched(&training);
    // Graphs hold all but the experts: one stretch of launches, for which the host waits forward.
    let ([(one, true)], [(back, false)]) = (&forward[..], &backward[..]) else {
        panic!("{forward:?} {backward:?}");
    };
    training.fused_experts = false;
    let (forward, backward) = launched(&training);
    // 128 experts over 8 ranks; the tokens are also put in order twice.
    assert_eq!(forward[0], (one + 2 * 15 + 2, true));
    assert_eq!(backward[0], (back + 4 * 15 + 2, false));
    // Padded buffers have no tokens to count, and whole graphs nothing to launch.
    training.capacity_factor = Some(1.0);
    assert_eq!(launched(&training).0, [(one + 2 * 15 + 2, false)]);
    training.graphs = Graphs::All;
    assert_eq!(launched(&training), (vec![], vec![]));
}

/// Seconds of computation forward and backward of one layer of routed experts, nothing else around it.
fn seconds_of_layer(training: &Training, kernels: &KernelModel) -> (f64, f64) {
    let work = training.chunk(&middle(0..1), kernels).work;
    (compute_time(&work.forward).seconds(), compute_time(&work.backward).seconds())
}

/// Bytes that memory moves at 85% of 3.35 TB/s, and 2 us for each kernel, as H100's sheet has it.
fn moved(bytes: u64, kernels: u64) -> f64 {
    bytes as f64 / (3.35e12 * 0.85) + 2e-6 * kernels as f64
}

fn near(found: f64, due: f64) {
    assert!((found - due).abs() < 1e-9 + 1e-6 * due, "{found} s, due {due} s");
}

/// Megatron-Core 0.15, experts.py: `t + b * p` for each expert and `cat`, `clamp` of both halves and `cat`.
#[test]
fn biases_and_limits_of_single_experts_move_what_their_operations_read_and_write() {
    let kernels = gpu("h100-sxm");
    let mut with = Training::new(model("gpt-oss-120b"), 4096);
    (with.ep, with.fused_experts) = (8, false);
    let mut without = with.clone();
    let experts = without.architecture.experts.as_mut().unwrap();
    (experts.bias, experts.limited) = (false, false);
    let (forward, backward) = seconds_of_layer(&with, &kernels);
    let (plain_forward, plain_backward) = seconds_of_layer(&without, &kernels);
    // 4 copies of 4,096 tokens, 2,880 features inside and outside.
    let numbers = 4 * 4096 * 2880;
    near(forward - plain_forward, moved((2 + 6 + 4) * numbers + (4 + 4 + 8) * numbers, 6));
    near(backward - plain_backward, moved((4 + 2 + 4 + 2) * numbers + (8 + 14 + 8) * numbers, 11));
    // One fused kernel has them in registers.
    (with.fused_experts, without.fused_experts) = (true, true);
    assert_eq!(seconds_of_layer(&with, &kernels), seconds_of_layer(&without, &kernels));
}

/// In 8 bits tokens are copied to a padded buffer and back, and converted expert by expert, unless experts are fused.
#[test]
fn single_experts_in_eight_bits_are_padded_and_converted_one_by_one() {
    let kernels = kernels("h100-sxm", Dtype::Fp8, KernelProfile::default());
    let mut training = Training::new(model("qwen3-30b-a3b"), 4096);
    (training.ep, training.precision.compute) = (8, Dtype::Fp8);
    let fused = seconds_of_layer(&training, &kernels);
    (training.fused_experts, training.padded_experts) = (false, false);
    let single = seconds_of_layer(&training, &kernels);
    // 8 copies of 4,096 tokens, put in the order of 16 local experts and back.
    let copied = 2 * 2 * 8 * 4096 * 2048;
    // Two products forward, four backward, on four streams: the starts of 15 further products take the time of four.
    // Three conversions for each expert and product but those of weights; one of them stands in the fused time.
    let (product, conversion) = (15u64.div_ceil(4), 3 * 16 - 1);
    // 2,048 rows an expert, 2,048 features and 768 inner ones: products of their own, and those of a fused kernel.
    let slower = |shapes: &[[u64; 3]]| -> f64 {
        let times = shapes.iter().map(|&[m, n, k]| {
            let gemm = Gemm { m, n, k, batch: 16 };
            let single = kernels.gemm(gemm, Dtype::Fp8, Dtype::Bf16).seconds();
            single - kernels.gemm_of_experts(gemm, Dtype::Fp8, Dtype::Bf16).seconds()
        });
        times.sum()
    };
    let forward = slower(&[[2048, 1536, 2048], [2048, 2048, 768]]);
    let backward = slower(&[[2048, 768, 2048], [768, 2048, 2048], [2048, 2048, 1536], [2048, 1536, 2048]]);
    near(single.0 - fused.0, forward + moved(2 * copied, 2) + moved(0, 2 * product + 2 * conversion));
    near(single.1 - fused.1, backward + moved(2 * copied, 2) + moved(0, 4 * product + 2 * conversion));
    training.padded_experts = true;
    let padded = seconds_of_layer(&training, &kernels);
    near(padded.0 - single.0, moved(2 * copied, 2));
    near(padded.1 - single.1, moved(2 * copied, 2));
    // Buffers of a fixed size are padded already; 16 bits need no padding.
    training.capacity_factor = Some(1.0);
    near(seconds_of_layer(&training, &kernels).0, single.0);
    training.precision.compute = Dtype::Bf16;
    let bf16 = gpu("h100-sxm");
    let unpadded = Training { padded_experts: false, ..training.clone() };
    assert_eq!(seconds_of_layer(&training, &bf16), seconds_of_layer(&unpadded, &bf16));
}

/// Transformer Engine's fused grouped MLP: tokens are converted once for the product and the weights' gradient (2 bytes read, twice
/// 1 written), what is between the products never leaves the kernels but for what the backward pass needs.
#[test]
fn a_fused_mlp_of_experts_converts_its_tokens_once_and_gates_on_its_way() {
    let kernels = kernels("h100-sxm", Dtype::Fp8, KernelProfile::default());
    let mut apart = Training::new(model("qwen3-30b-a3b"), 4096);
    (apart.ep, apart.precision.compute) = (8, Dtype::Fp8);
    let whole = Training { fused_expert_mlp: true, ..apart.clone() };
    // 8 copies of 4,096 tokens, 2,048 features and 768 inner ones.
    let (outer, inner) = (8 * 4096 * 2048, 8 * 4096 * 768);
    let (apart_seconds, whole_seconds) =
        (seconds_of_layer(&apart, &kernels), seconds_of_layer(&whole, &kernels));
    // Forward: two conversions of 3 bytes and a gate of 6; or one of 4, and 2 on the way.
    let forward = moved(3 * outer + (6 + 3) * inner, 3) - moved(4 * outer + 2 * inner, 1);
    near(apart_seconds.0 - whole_seconds.0, forward);
    // Backward: four conversions, two of them of inner features and one of both halves, and a gate of 10 bytes; or one of 4,
    // and on the way both halves read in 16 bits and written twice in 8, where the inner gradient was written in 16.
    let backward = moved(6 * outer + (3 + 6 + 10) * inner, 5) - moved(4 * outer + (4 + 4 - 2) * inner, 1);
    near(apart_seconds.1 - whole_seconds.1, backward);
    // In 16 bits nothing is converted; what the gate moves is left.
    let bf16 = gpu("h100-sxm");
    let apart = Training { precision: Training::new(model("qwen3-30b-a3b"), 4096).precision, ..apart };
    let whole = Training { fused_expert_mlp: true, ..apart.clone() };
    let forward = seconds_of_layer(&apart, &bf16).0 - seconds_of_layer(&whole, &bf16).0;
    near(forward, moved(6 * inner, 1) - moved(2 * inner, 0));
    let single = Training { fused_experts: false, ..whole };
    let refused = single.check().unwrap_err().to_string();
    assert!(refused.starts_with("`fused_expert_mlp`: expected false without `fused_experts`"), "{refused}");
}

/// Megatron-LM v2.5, mpu/cross_entropy.py: 38 bytes a logit in 6 operations forward and 14 in 2 backward, where one kernel
/// takes 12 and 8.
#[test]
fn a_loss_by_operations_moves_what_each_reads_and_writes() {
    let kernels = gpu("h100-sxm");
    let mut training = Training::new(model("megatron-1.7b"), 1024);
    let head = Chunk { layers: 0..0, embedding: false, head: true };
    let seconds = |training: &Training| {
        let work = training.chunk(&head, &kernels).work;
        (compute_time(&work.forward).seconds(), compute_time(&work.backward).seconds())
    };
    let fused = seconds(&training);
    training.fused_loss = false;
    let parts = seconds(&training);
    let logits = 1024 * training.local_vocabulary();
    near(parts.0 - fused.0, moved(26 * logits, 5));
    near(parts.1 - fused.1, moved(6 * logits, 1));
}

/// OpenAI's model card of August 2025, table 1: 116.83 billion parameters, 114.71 of them in experts and
/// routers.
#[test]
fn gpt_oss_has_the_parameters_of_its_card() {
    let model = model("gpt-oss-120b");
    let billions = |count: u64| (count as f64 / 1e7).round() / 100.0;
    let sparse = |layer| {
        let parameters = model.layer_parameters(layer);
        parameters.experts + parameters.router
    };
    let sparse: u64 = (0..model.layers).map(sparse).sum();
    assert_eq!((billions(model.parameters()), billions(sparse)), (116.83, 114.71));
}

#[test]
fn what_is_hidden_of_an_exchange_is_not_waited_for() {
    let kernels = gpu("h100-sxm");
    let mut training = Training::new(model("qwen3-30b-a3b"), 4096);
    training.ep = 8;
    let chunk = Chunk { layers: 0..1, embedding: false, head: false };
    let bytes = |training: &Training| -> u64 {
        let sent = |piece: &Piece| match piece {
            Piece::Collective { axis: Dimension::Ep, bytes, .. } => bytes.get(),
            _ => 0,
        };
        training.chunk(&chunk, &kernels).work.forward.iter().map(sent).sum()
    };
    let whole = bytes(&training);
    assert_eq!(whole, 2 * 2 * 4096 * 8 * 2048);
    training.hidden_exchange = 0.25;
    assert_eq!(bytes(&training), whole * 3 / 4);
    training.hidden_exchange = 1.0;
    assert!(training.check().unwrap_err().to_string().starts_with("`hidden_exchange`: expected a share"));
}

/// Bytes for each feature of each copy, forward once and backward twice, at the sheet's share of the bandwidth.
#[test]
fn tokens_put_in_order_by_detours_pass_through_memory() {
    let kernels = gpu("h100-sxm");
    let mut training = Training::new(model("qwen3-30b-a3b"), 4096);
    training.ep = 8;
    let chunk = middle(0..2);
    let time = |training: &Training| {
        let work = training.chunk(&chunk, &kernels).work;
        (compute_time(&work.forward), compute_time(&work.backward))
    };
    let before = time(&training);
    training.permute_traffic = 32.0;
    let after = time(&training);
    let bytes = 32 * 4096 * 8 * 2048;
    let moved = kernels.streaming(Streaming::Permute, 4096 * 8, 2048, bytes);
    assert_eq!(after.0 - before.0, moved * 2);
    let backward = kernels.streaming(Streaming::Permute, 4096 * 8, 2048, 2 * bytes);
    assert_eq!(after.1 - before.1, backward * 2);
    for wrong in [-1.0, f64::NAN, 1e9] {
        training.permute_traffic = wrong;
        let refused = training.check().unwrap_err().to_string();
        assert!(refused.starts_with("`permute_traffic`: expected bytes from 0 to 1,000"), "{refused}");
    }
}

/// Hu et al. 2021: frozen weights have no gradients, so the backward pass multiplies once for the forward's once; adapters of
/// rank r beside a projection from a to b features add 6r(a + b) per token.
#[test]
fn adapters_save_the_weight_gradients() {
    let mut training = Training::new(model("llama3-8b"), 1024);
    let kernels = gpu("h100-sxm");
    let chunk = middle(0..4);
    let whole = training.chunk(&chunk, &kernels);
    training.lora_rank = Some(16);
    let adapted = training.chunk(&chunk, &kernels);
    let attention = 4 * 1024 * training.architecture.attention_flops_per_token(1024, true) / 32;
    let adapters = 4 * 1024 * 2 * 16 * (4096 + 6144 + 4096 + 4096);
    assert_eq!(adapted.flops.forward, whole.flops.forward + adapters);
    // Attention's backward is twice its forward as before; the products' is once.
    let products = whole.flops.forward - attention;
    assert_eq!(adapted.flops.backward, products + 2 * attention + 2 * adapters);
    let gradients: u64 = adapted.work.gradient_bytes.iter().map(|bytes| bytes.get()).sum();
    assert_eq!(gradients, 4 * 2 * 16 * (4096 + 6144 + 4096 + 4096));
    assert!(adapted.work.optimiser < whole.work.optimiser);
}

/// torchtitan's selective checkpointing: projections of keys, of attention's output and of the gate are computed twice.
#[test]
fn operations_recompute_every_second_product() {
    let mut training = Training::new(model("llama3-8b"), 1024);
    let chunk = middle(0..2);
    let kernels = gpu("h100-sxm");
    let plain = training.chunk(&chunk, &kernels);
    let all = training.layer_activation_bytes(0);
    training.recompute = Recompute::Operations;
    let again = training.chunk(&chunk, &kernels);
    let products = 2 * 2 * 1024 * 4096 * (1024 + 4096 + 14336);
    assert_eq!(again.flops.recomputed - plain.flops.recomputed, products);
    assert_eq!(again.flops.backward, plain.flops.backward);
    let kept = training.layer_activation_bytes(0).get();
    // Input, queries, values, attention with its sums, and the results of the two other products of the feed-forward block.
    assert_eq!(kept, 1024 * (2 * (4096 + 4096 + 1024 + 4096 + 4096 + 14336) + 4 * 32));
    assert!(kept < all.get());
}

#[test]
fn only_the_first_layers_are_recomputed_where_a_number_is_given() {
    let mut training = Training::new(model("llama3-8b"), 1024);
    training.recompute = Recompute::Full;
    let kernels = gpu("h100-sxm");
    let chunk = middle(8..12);
    let recomputed = |training: &Training| training.chunk(&chunk, &kernels).flops.recomputed;
    let all = recomputed(&training);
    training.recompute_layers = Some(0);
    let none = recomputed(&training);
    training.recompute_layers = Some(1);
    assert_eq!(4 * (recomputed(&training) - none), all - none);
    let (one, bytes) =
        (training.chunk_activation_bytes(&chunk).get(), training.layer_activation_bytes(8).get());
    training.recompute = Recompute::None;
    assert_eq!(one, bytes + 3 * training.layer_activation_bytes(9).get());
}

/// A measured layer takes the place of its kernels and of its collectives.
#[test]
fn measured_layers_take_the_place_of_their_kernels() {
    let profile = "kernel,m,n,k,dtype,time\n\
        layer_forward,1024,4096,4,bf16,1 ms\nlayer_backward,1024,4096,4,bf16,2 ms\n\
        head_forward,1024,4096,4,bf16,5 ms\nhead_backward,1024,4096,4,bf16,7 ms\noptimiser_layer,4096,4,0,bf16,3 ms\n";
    let kernels = kernels("h100-sxm", Dtype::Bf16, KernelProfile::parse(profile).unwrap());
    let mut training = Training::new(model("llama3-8b"), 1024);
    training.tp = 4;
    let chunk = Chunk { layers: 29..32, embedding: false, head: true };
    let work = training.chunk(&chunk, &kernels).work;
    assert_eq!(compute_time(&work.forward), Span::from_us(8_000));
    assert_eq!(compute_time(&work.backward), Span::from_us(13_000));
    assert_eq!(work.optimiser, Span::from_us(12_000));
    assert_eq!(collectives(&work.forward), []);
    training.tp = 2;
    assert_ne!(compute_time(&training.chunk(&chunk, &kernels).work.forward), Span::from_us(8_000));
}

/// A share of the compute rates lengthens what they bound and nothing else; separate kernels what memory bounds.
#[test]
fn shares_and_separate_kernels_lengthen_what_they_bound() {
    let kernels = gpu("h100-sxm");
    let half = kernels.clone().sustained(0.5);
    let gemm = Gemm::new(8192, 8192, 8192);
    let launch = Span::from_us(2);
    // By a curve all of a large product is computation; by tiles, all but the part of memory's time that is not hidden.
    for (name, low) in [("mi300x", 2.0 - 1e-6), ("h100-sxm", 1.95)] {
        let kernels = gpu(name);
        let half = kernels.clone().sustained(0.5);
        let (whole, slower) =
            (kernels.gemm(gemm, Dtype::Bf16, Dtype::Bf16), half.gemm(gemm, Dtype::Bf16, Dtype::Bf16));
        let ratio = (slower - launch).seconds() / (whole - launch).seconds();
        assert!((low..2.0 + 1e-6).contains(&ratio), "{name}: {ratio}");
    }
    let norm = |kernels: &KernelModel| kernels.streaming(Streaming::Norm, 8192, 8192, 4 * 8192 * 8192);
    assert_eq!(norm(&kernels), norm(&half));
    let separate = (norm(&kernels.clone().separately(true)) - launch).seconds();
    assert!((separate / (norm(&kernels) - launch).seconds() - 10.0).abs() < 1e-6);
    assert_eq!(norm(&kernels.clone().separately(false)), norm(&kernels));
}

/// What products in 4 bits sustain is their own: those in 8 and 16 bits and attention stay as they are.
#[test]
fn products_in_4_bits_have_a_share_of_their_own() {
    for name in ["gb200", "mi355x"] {
        let kernels = kernels(name, Dtype::Fp4, KernelProfile::default()).sustained(0.5);
        let again = kernels.clone().products_in_4_bits(2.0);
        let gemm = Gemm::new(8192, 16384, 16384);
        let time = |kernels: &KernelModel, dtype| kernels.gemm(gemm, dtype, Dtype::Bf16).seconds();
        let gained = time(&kernels, Dtype::Fp4) / time(&again, Dtype::Fp4);
        assert!((1.7..2.0 + 1e-6).contains(&gained), "{name}: {gained}");
        assert_eq!(time(&kernels, Dtype::Fp8), time(&again, Dtype::Fp8));
        assert_eq!(time(&kernels, Dtype::Bf16), time(&again, Dtype::Bf16));
    }
}

/// Gathers of a layer travel in the format of its products with a scale a block, reductions and what is beside the layers in that
/// of activations: 8,192 numbers of 4 bits and 512 scales are 4,608 B, of 8 bits and 256 scales 8,448, of 16 bits 16,384.
#[test]
fn what_products_take_may_travel_in_their_format() {
    let kernels = |dtype| kernels("gb200", dtype, KernelProfile::default());
    let layers = Chunk { layers: 0..2, embedding: false, head: false };
    let ends = Chunk { layers: 0..0, embedding: true, head: true };
    for (dtype, bytes) in [(Dtype::Bf16, 16_384), (Dtype::Fp8, 8_448), (Dtype::Fp4, 4_608)] {
        let mut training = Training::new(model("llama3-8b"), 1024);
        (training.tp, training.sequence_parallel, training.precision.compute) = (4, true, dtype);
        let of = |training: &Training, chunk| training.chunk(chunk, &kernels(dtype)).work;
        let (wide, wide_ends) = (of(&training, &layers), of(&training, &ends));
        training.narrow_gathers = true;
        let narrow = of(&training, &layers);
        assert_eq!(of(&training, &ends), wide_ends);
        let pairs = [(&wide.forward, &narrow.forward), (&wide.backward, &narrow.backward)];
        let mut gathers = 0;
        for (before, after) in pairs.iter().flat_map(|(wide, narrow)| wide.iter().zip(narrow.iter())) {
            let (
                Piece::Collective { label, bytes: wide, .. },
                Piece::Collective { label: same, bytes: narrow, .. },
            ) = (before, after)
            else {
                assert_eq!(before, after);
                continue;
            };
            assert_eq!(label, same);
            let of_layer = matches!(*label, "tp all-gather" | "tp re-gather");
            gathers += usize::from(of_layer);
            let expected = if of_layer { wide.get() / 16_384 * bytes } else { wide.get() };
            assert_eq!(narrow.get(), expected, "{dtype:?} {label}");
        }
        // Two blocks a layer: one gather forward, the gradient's and the input's backward.
        assert_eq!(gathers, 2 * 2 * 3);
    }
}

/// Megatron's kernel of a masked softmax takes stored scores of four matrices to a block (`is_kernel_available`): one rank of
/// 16 with one sequence has two, and PyTorch converts, scales, masks, normalises and converts back, forward and backward.
#[test]
fn softmax_of_no_whole_block_is_several_kernels() {
    let kernels = gpu("a100-80");
    let layer = |tp: u64, micro_batch: u64, recompute: Recompute, fused: bool| {
        let mut training = Training::new(model("megatron-7.5b"), 1024);
        (training.tp, training.micro_batch, training.recompute) = (tp, micro_batch, recompute);
        (training.attention, training.fused) = (AttentionKernel::Unfused, fused);
        training.dispatch = Span::from_ps(1_000);
        let work = training.chunk(&Chunk { layers: 0..1, embedding: false, head: false }, &kernels).work;
        let launches = |pieces: &[Piece]| -> u64 {
            let spans = pieces.iter().filter_map(|piece| match piece {
                Piece::Launch { span, .. } => Some(span.ps() / 1_000),
                _ => None,
            });
            spans.sum()
        };
        ([launches(&work.forward), launches(&work.backward)], compute_time(&work.forward))
    };
    // 32 heads: 4 on a rank are one block, 2 are none, 2 of each of two sequences are one.
    let (whole, _) = layer(8, 1, Recompute::None, true);
    let (none, slow) = layer(16, 1, Recompute::None, true);
    assert_eq!([none[0] - whole[0], none[1] - whole[1]], [4, 4]);
    let (two, _) = layer(16, 2, Recompute::None, true);
    assert_eq!(two, whole);
    // Recomputation launches the forward's once more.
    let recomputed = layer(16, 1, Recompute::Full, true).0[1] - layer(8, 1, Recompute::Full, true).0[1];
    assert_eq!(recomputed, 8);
    // Code without fused kernels is counted by `separately`.
    let (separate, fast) = layer(16, 1, Recompute::None, false);
    assert_eq!(separate, whole);
    // 37 bytes a score for 4: 33 more, besides four kernels' starts.
    let scores = 2.0 * 1024.0 * 1024.0;
    let more = (slow - fast).seconds() - 4.0 * kernels.launch().seconds();
    let expected = 33.0 * scores / (2039e9 * 0.79);
    assert!((more / expected - 1.0).abs() < 1e-3, "{more} {expected}");
}

/// Gemma's norms after both blocks: two reads or writes of the residual stream each forward, three backward, and their inputs are kept.
#[test]
fn norms_after_blocks_read_and_write_the_residual_stream() {
    let kernels = gpu("h100-sxm");
    let plain = Training::new(model("llama3-8b"), 4096);
    let mut with = plain.clone();
    with.architecture.post_norms = true;
    let ((forward, backward), before) =
        (seconds_of_layer(&with, &kernels), seconds_of_layer(&plain, &kernels));
    let numbers = 2 * 4096 * 4096;
    near(forward - before.0, moved(2 * 2 * numbers, 2));
    near(backward - before.1, moved(2 * 3 * numbers, 2));
    let kept = |training: &Training| training.layer_activation_bytes(0).get();
    assert_eq!(kept(&with) - kept(&plain), 2 * numbers);
}

/// A query of a window sees no more than that many keys, in time and in FLOPs; a window that holds the sequence is none.
#[test]
fn a_window_is_computed_no_further_than_it_reaches() {
    let kernels = gpu("h100-sxm");
    let layer = |keys: u64| {
        let mut training = Training::new(model("llama3-8b"), 8192);
        training.architecture.window = (keys > 0).then(|| Window { keys, layers: vec![true; 32] });
        let (forward, backward) = seconds_of_layer(&training, &kernels);
        (forward, backward, training.architecture.attention_flops_per_token(8192, true))
    };
    let (none, whole, short, shorter) = (layer(0), layer(8192), layer(2048), layer(128));
    assert_eq!(none, whole);
    assert!(short.0 < none.0 && shorter.0 < short.0 && short.1 < none.1 && shorter.1 < short.1);
    // Of 8,192 queries the first 2,048 see 1, 2, 3 ... keys and the others 2,048, where without a window the mean is 4,096.
    let seen = 2048.0 - 2048.0 * 2048.0 / (2.0 * 8192.0);
    assert!((short.2 as f64 / none.2 as f64 - seen / 4096.0).abs() < 1e-9);
}
