//! Work of one rank for one chunk of the model: computations and collectives in program order.
//!
//! A layer is two blocks on the residual stream (`block.rs`); a sparse layer's second block is: router,
//! dispatch all-to-all, grouped GEMMs, combine all-to-all, with the shared experts as an ordinary block.
//!
//! Sizes of collectives are counted as [`CollectiveKind`] says. Adjacent computations are one piece, unless a collective
//! is split with one of them.
//!
//! Sources: Shoeybi et al. 2019 (vocabulary-parallel loss: three all-reduces of one number a token), Korthikanti et al. 2022
//! (recomputation), Lepikhin et al. 2020 (experts).

use windtunnel_kernel::Bytes;

use super::architecture::{Attention, LayerKind};
use super::chunk::{Chunk, ChunkCost, Flops, Part, Units};
use super::dtype::Dtype;
use super::emit::Emit;
use super::kernels::{Gemm, KernelModel, Streaming};
use super::training::{Recompute, Training};
use crate::collectives::CollectiveKind;
use crate::generate::{ChunkWork, Overlap};
use crate::program::Dimension;

/// Bytes a logit of each operation of Megatron-LM's loss (github.com/NVIDIA/Megatron-LM v2.5, `megatron/mpu/
/// cross_entropy.py`): logits of 16 bits converted to 32; maximum; subtraction; exponential; sum; division by it.
const LOSS_FORWARD: [u64; 6] = [2 + 4, 4, 4 + 4, 4 + 4, 4, 4 + 4];

/// And backward: multiplied with the gradient of the loss, converted back.
const LOSS_BACKWARD: [u64; 2] = [4 + 4, 4 + 2];

impl Training {
    /// The work of `chunk`, whose ranks run `kernels`. Call [`Training::check`] first.
    pub fn chunk(&self, chunk: &Chunk, kernels: &KernelModel) -> ChunkCost {
        let pass = |f: &dyn Fn(&mut Emit<'_>)| {
            let mut emit = Emit::new(self, kernels);
            f(&mut emit);
            emit
        };
        let units = Units::new(chunk, self.predictions);
        let forward = pass(&|emit| self.forward(emit, chunk, &units));
        let fused = pass(&|emit| self.backward(emit, chunk, &units, Part::Both));
        let input = pass(&|emit| self.backward(emit, chunk, &units, Part::Input));
        let weight = pass(&|emit| self.backward(emit, chunk, &units, Part::Weight));
        let flops = Flops {
            forward: forward.flops,
            backward: fused.flops - fused.recomputed,
            recomputed: fused.recomputed,
        };
        let sent = self.residual_tokens() * self.architecture.hidden;
        let sent = if self.slices_between_stages() { sent.div_ceil(self.tp) } else { sent };
        let mut work = ChunkWork {
            forward: forward.list,
            backward: fused.list,
            backward_input: input.list,
            backward_weight: weight.list,
            send_bytes: Bytes::new(self.precision.activations.bytes(sent)),
            ..ChunkWork::default()
        };
        self.sizes(chunk, kernels, &mut work);
        ChunkCost { work, flops }
    }

    /// Parameter and gradient bytes by unit, and the optimiser step.
    fn sizes(&self, chunk: &Chunk, kernels: &KernelModel, work: &mut ChunkWork) {
        let (dense, experts) = self.trained(chunk);
        let sized = |counts: &[u64], dtype: Dtype| {
            counts.iter().map(|&count| Bytes::new(dtype.bytes(count))).collect()
        };
        work.parameter_bytes = sized(&dense, self.precision.parameters);
        work.gradient_bytes = sized(&dense, self.precision.gradients);
        if self.architecture.experts.is_some() {
            work.expert_parameter_bytes = sized(&experts, self.precision.parameters);
            work.expert_gradient_bytes = sized(&experts, self.precision.gradients);
        }
        work.optimiser = self.optimiser_step(chunk, kernels);
    }

    /// Dense parameters and those of experts that have gradients, by unit.
    pub(super) fn trained(&self, chunk: &Chunk) -> (Vec<u64>, Vec<u64>) {
        let mut dense = Vec::new();
        let mut experts = Vec::new();
        if chunk.embedding {
            dense.push(self.embedding_parameters_on_rank());
            experts.push(0);
        }
        for layer in chunk.layers.clone() {
            let (shared, routed) = self.layer_parameters_on_rank(layer);
            dense.push(shared);
            experts.push(routed);
        }
        if chunk.head {
            let (shared, routed) = self.prediction_parameters_on_rank();
            for _ in 0..self.predictions {
                dense.push(shared);
                experts.push(routed);
            }
            dense.push(self.head_parameters_on_rank(chunk.embedding));
            experts.push(0);
        }
        if let Some(rank) = self.lora_rank {
            // Adapters alone have gradients, and alone are gathered after a step.
            let adapters = self.adapter_parameters(rank);
            let ends = usize::from(chunk.embedding)..usize::from(chunk.embedding) + chunk.layers.len();
            for (unit, count) in dense.iter_mut().enumerate() {
                *count = if ends.contains(&unit) { adapters } else { 0 };
            }
            experts.fill(0);
        }
        (dense, experts)
    }

    fn forward(&self, emit: &mut Emit<'_>, chunk: &Chunk, units: &Units) {
        if chunk.embedding && emit.whole("embedding", "embedding_forward", self.tokens()) {
            emit.done(Units::EMBEDDING);
        } else if chunk.embedding {
            emit.beside_the_model();
            self.look_up(emit);
            emit.done(Units::EMBEDDING);
        } else {
            emit.gather_slices();
        }
        for layer in chunk.layers.clone() {
            self.layer_forward(emit, layer);
            emit.done(units.layer(layer));
        }
        if chunk.head {
            for module in 0..self.predictions {
                self.prediction_forward(emit);
                emit.done(units.prediction(module));
            }
            // Once for the model and once for each module.
            for _ in 0..=self.predictions {
                self.head_forward(emit);
            }
            emit.done(units.head());
        }
    }

    /// Norm, output projection and loss.
    fn head_forward(&self, emit: &mut Emit<'_>) {
        let hidden = self.architecture.hidden;
        if !emit.whole("head", "head_forward", self.tokens()) {
            let vocabulary = self.local_vocabulary();
            emit.stream("head", Streaming::Norm, self.residual_tokens(), hidden, 2);
            emit.gather_over_tp(
                "head all-gather",
                self.tokens() * hidden,
                self.precision.activations,
                emit.before(),
            );
            emit.of_width(vocabulary, |emit| {
                emit.gemm_in(
                    "head",
                    Gemm::new(self.tokens(), vocabulary, hidden),
                    self.precision.activations,
                );
            });
            emit.beside_the_model();
            if self.fused_loss {
                // Read the logits for the maximum, read and write them for exponentials and sums (in 32 bits).
                emit.stream_bytes("loss", Streaming::CrossEntropy, self.tokens(), vocabulary, {
                    4 * 3 * self.tokens() * vocabulary
                });
            } else {
                self.loss_by_parts(emit, &LOSS_FORWARD);
            }
            for label in ["loss maximum", "loss target", "loss sum"] {
                emit.collective(
                    Dimension::Tp,
                    CollectiveKind::AllReduce,
                    4 * self.tokens(),
                    label,
                    Overlap::None,
                );
            }
        }
    }

    /// Operations over the logits, each of which moves so many bytes a logit. Those over one number a token are left out.
    fn loss_by_parts(&self, emit: &mut Emit<'_>, moved: &[u64]) {
        let (tokens, vocabulary) = (self.tokens(), self.local_vocabulary());
        for bytes in moved {
            let bytes = bytes * tokens * vocabulary;
            emit.stream_bytes("loss", Streaming::CrossEntropyPart, tokens, vocabulary, bytes);
        }
    }

    fn backward(&self, emit: &mut Emit<'_>, chunk: &Chunk, units: &Units, part: Part) {
        let tokens = self.tokens();
        if chunk.head {
            for _ in 0..=self.predictions {
                self.head_backward(emit, part);
            }
            part.finish(emit, units.head());
            for module in (0..self.predictions).rev() {
                self.prediction_backward(emit, part);
                part.finish(emit, units.prediction(module));
            }
        } else if part.input() {
            emit.gather_slices();
        }
        for layer in chunk.layers.clone().rev() {
            self.layer_backward(emit, layer, chunk.layers.start, part);
            part.finish(emit, units.layer(layer));
        }
        if chunk.embedding {
            let measured = part.weight() && emit.whole("embedding", "embedding_backward", tokens);
            if part.weight() && self.lora_rank.is_none() && !measured {
                self.table_gradients(emit);
            }
            part.finish(emit, Units::EMBEDDING);
        }
    }

    /// Tokens become rows of the embedding's table.
    pub(super) fn look_up(&self, emit: &mut Emit<'_>) {
        let (tokens, hidden) = (self.tokens(), self.architecture.hidden);
        // Rows are read and written; where tables are split, tokens without a row here are written as zeros.
        emit.stream("embedding", Streaming::Embedding, tokens, hidden, 2);
        emit.sum_over_tp("embedding reduce", tokens * hidden, Overlap::None);
    }

    /// Gradients of the table's rows that were looked up, added to those of the micro-batches before.
    pub(super) fn table_gradients(&self, emit: &mut Emit<'_>) {
        let (tokens, hidden) = (self.tokens(), self.architecture.hidden);
        if self.sequence_parallel {
            let format = self.precision.activations;
            emit.gather_over_tp("embedding all-gather", tokens * hidden, format, Overlap::None);
        }
        emit.stream("embedding", Streaming::Embedding, tokens, hidden, 3);
        emit.add_table_gradients(self.local_vocabulary(), hidden);
    }

    fn head_backward(&self, emit: &mut Emit<'_>, part: Part) {
        let hidden = self.architecture.hidden;
        let (tokens, residual) = (self.tokens(), self.residual_tokens());
        if !(part.input() && emit.whole("head", "head_backward", tokens)) {
            let gemm = Gemm::new(tokens, self.local_vocabulary(), hidden);
            if part.input() {
                if self.fused_loss {
                    // Exponentials become gradients in place.
                    emit.stream_bytes("loss", Streaming::CrossEntropy, tokens, self.local_vocabulary(), {
                        8 * tokens * self.local_vocabulary()
                    });
                } else {
                    self.loss_by_parts(emit, &LOSS_BACKWARD);
                }
            }
            emit.of_width(gemm.n, |emit| {
                let dtype = self.precision.activations;
                self.column_gradients(emit, part, "head", hidden, &[(hidden, gemm.n)], dtype);
            });
            if part.input() {
                emit.stream("head", Streaming::Norm, residual, hidden, 3);
            }
        }
    }

    pub(super) fn layer_forward(&self, emit: &mut Emit<'_>, layer: u32) {
        if emit.whole("layer", "layer_forward", self.tokens()) {
            return;
        }
        self.block_forward(emit, &self.attention_block(layer), true);
        if let (LayerKind::Sparse, Some(experts)) =
            (self.architecture.layer_kind(layer), &self.architecture.experts)
        {
            self.sparse_forward(emit, experts);
        } else {
            self.block_forward(emit, &self.feed_forward_block(self.architecture.dense.width, "mlp"), true);
        }
    }

    fn layer_backward(&self, emit: &mut Emit<'_>, layer: u32, first: u32, part: Part) {
        self.layer_gradients(emit, layer, self.recomputes_layer(layer, first), part);
    }

    /// The backward pass of a layer like `layer`, which is computed again first if it is `recomputed` whole.
    pub(super) fn layer_gradients(&self, emit: &mut Emit<'_>, layer: u32, recomputed: bool, part: Part) {
        if part.input() {
            if recomputed {
                emit.recompute(|emit| self.layer_forward(emit, layer));
            } else if self.recompute == Recompute::Operations {
                emit.recompute(|emit| self.operations_again(emit, layer));
            }
        }
        // Measured whole, both gradients at once.
        if part.input() && emit.whole("layer", "layer_backward", self.tokens()) {
            return;
        }
        if let (LayerKind::Sparse, Some(experts)) =
            (self.architecture.layer_kind(layer), &self.architecture.experts)
        {
            self.sparse_backward(emit, experts, part);
        } else {
            let block = self.feed_forward_block(self.architecture.dense.width, "mlp");
            self.block_backward(emit, &block, part, true);
        }
        self.block_backward(emit, &self.attention_block(layer), part, true);
    }

    /// What [`Recompute::Operations`] computes again of a layer. Sums over ranks are kept, and the gathered inputs are
    /// gathered once, for the weight gradients.
    fn operations_again(&self, emit: &mut Emit<'_>, layer: u32) {
        let (tokens, own, hidden) = (self.tokens(), self.residual_tokens(), self.architecture.hidden);
        emit.stream("attention", Streaming::Norm, own, hidden, 2);
        if let Attention::Grouped { head_dim, .. } = self.architecture.attention {
            emit.gemm("attention", Gemm::new(tokens, self.local_kv_heads() * head_dim, hidden));
        }
        emit.stream("attention", Streaming::Rotary, tokens, self.rotated(), 2);
        emit.gemm("attention", Gemm::new(tokens, hidden, self.attention_block(layer).row));
        self.residual_stream(emit, "attention", 3);
        emit.stream("mlp", Streaming::Norm, own, hidden, 2);
        let ups = self.architecture.dense.ups();
        match (self.architecture.layer_kind(layer), &self.architecture.experts) {
            (LayerKind::Sparse, Some(experts)) => {
                let (rows, _) = self.expert_tokens(experts);
                emit.stream("experts", Streaming::Activation, rows, experts.width / self.expert_tp, ups + 1);
            }
            _ => {
                let width = self.architecture.dense.width / self.tp;
                if self.architecture.dense.gated {
                    emit.gemm("mlp", Gemm::new(tokens, width, hidden));
                }
                emit.stream("mlp", Streaming::Activation, tokens, width, ups + 1);
            }
        }
    }

    /// Products with the adapters of a projection from `inner` to `outer` features, in the activations' format.
    pub(super) fn adapters(&self, emit: &mut Emit<'_>, inner: u64, outer: u64, forward: bool) {
        let Some(rank) = self.lora_rank else { return };
        let (tokens, dtype) = (self.tokens(), self.precision.activations);
        let mut product = |m, n, k| emit.gemm_in("adapters", Gemm::new(m, n, k), dtype);
        if forward {
            product(tokens, rank, inner);
            product(tokens, outer, rank);
        } else {
            product(tokens, rank, outer);
            product(tokens, inner, rank);
            product(rank, outer, tokens);
            product(inner, rank, tokens);
        }
    }
}
