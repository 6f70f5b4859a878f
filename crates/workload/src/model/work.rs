//! Work of one rank for one chunk of the model: computations and collectives in program order.
//!
//! A layer is two blocks on the residual stream; a block is *replicated down projections* (latent attention only),
//! *column-parallel* GEMMs on gathered tokens, a middle (attention or activation), and a *row-parallel* GEMM. With
//! sequence parallelism (Korthikanti et al. 2022, §4.2.2) the tokens are all-gathered before the columns and
//! reduce-scattered after the row; backward the duals, and the input is gathered again for the weight gradient. Without
//! it an all-reduce stands after the row and, backward, after the columns. A sparse layer's second block is: router,
//! dispatch all-to-all, grouped GEMMs, combine all-to-all, with the shared experts as an ordinary block.
//!
//! Sizes of collectives are counted as [`CollectiveKind`] says. Adjacent computations are one piece, unless a collective
//! is split with one of them.
//!
//! Sources: Shoeybi et al. 2019 (tensor parallelism, vocabulary-parallel loss: three all-reduces of one number a token),
//! Korthikanti et al. 2022 (sequence parallelism, recomputation), Liu et al. 2023 (ring attention), Lepikhin et al. 2020
//! (experts), Dao 2023 (flash attention).

use windtunnel_kernel::{Bytes, Span};

use super::architecture::{Attention, LayerKind};
use super::emit::Emit;
use super::kernels::{AttentionShape, Gemm, KernelModel, Streaming};
use super::sheets::Dtype;
use super::training::{AttentionKernel, ContextExchange, Recompute, Training};
use crate::collectives::CollectiveKind;
use crate::generate::{ChunkWork, Overlap, Piece};
use crate::program::Dimension;

/// The layers of one chunk, and whether it holds the ends of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Layers, half open.
    pub layers: std::ops::Range<u32>,
    /// Whether the embedding is here.
    pub embedding: bool,
    /// Whether the final norm, the output projection and the loss are here.
    pub head: bool,
}

impl Chunk {
    /// The whole model.
    pub fn whole(layers: u32) -> Self {
        Self { layers: 0..layers, embedding: true, head: true }
    }

    /// Chunks of the given numbers of layers, in stage order; the embedding on the first, the head on the last. `None`
    /// unless the numbers add up to `layers`.
    pub fn split(layers: u32, per_stage: &[u32]) -> Option<Vec<Self>> {
        let mut first = 0u32;
        let mut chunks = Vec::with_capacity(per_stage.len());
        for (stage, &count) in per_stage.iter().enumerate() {
            let end = first.checked_add(count)?;
            chunks.push(Self {
                layers: first..end,
                embedding: stage == 0,
                head: stage + 1 == per_stage.len(),
            });
            first = end;
        }
        (first == layers && !chunks.is_empty()).then_some(chunks)
    }
}

/// Multiplications and additions of one micro-batch on this rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flops {
    /// Forward pass.
    pub forward: u64,
    /// Backward pass, recomputation apart.
    pub backward: u64,
    /// Recomputed forward work.
    pub recomputed: u64,
}

/// A chunk's work and its FLOPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkCost {
    /// What the generator runs.
    pub work: ChunkWork,
    /// FLOPs of one micro-batch.
    pub flops: Flops,
}

/// What stands between the column-parallel and the row-parallel GEMM.
#[derive(Clone, Copy)]
pub(super) enum Middle {
    Attention,
    Activation { width: u64 },
}

/// A block on the residual stream, in this rank's share.
pub(super) struct Block {
    label: &'static str,
    /// Replicated projections (inner, outer features) on residual tokens.
    down: Vec<(u64, u64)>,
    /// Features gathered over the sequence before the columns.
    gather: u64,
    /// Column-parallel projections (inner, local outer features).
    columns: Vec<(u64, u64)>,
    middle: Middle,
    /// Local inner features of the row-parallel projection to `hidden`.
    row: u64,
}

impl Training {
    /// The work of `chunk`, whose ranks run `kernels`. Call [`Training::check`] first.
    pub fn chunk(&self, chunk: &Chunk, kernels: &KernelModel) -> ChunkCost {
        let pass = |f: &dyn Fn(&mut Emit<'_>)| {
            let mut emit = Emit::new(self, kernels);
            f(&mut emit);
            emit
        };
        let units = Units::new(chunk);
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
            send_bytes: Bytes(self.precision.activations.bytes(sent)),
            ..ChunkWork::default()
        };
        self.sizes(chunk, kernels, &mut work);
        ChunkCost { work, flops }
    }

    /// Parameter and gradient bytes by unit, and the optimiser step.
    fn sizes(&self, chunk: &Chunk, kernels: &KernelModel, work: &mut ChunkWork) {
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
            dense.push(self.head_parameters_on_rank(chunk.embedding));
            experts.push(0);
        }
        let sized =
            |counts: &[u64], dtype: Dtype| counts.iter().map(|&count| Bytes(dtype.bytes(count))).collect();
        work.parameter_bytes = sized(&dense, self.precision.parameters);
        work.gradient_bytes = sized(&dense, self.precision.gradients);
        if self.architecture.experts.is_some() {
            work.expert_parameter_bytes = sized(&experts, self.precision.parameters);
            work.expert_gradient_bytes = sized(&experts, self.precision.gradients);
        }
        if let Some(rank) = self.lora_rank {
            // Adapters alone have gradients, and alone are gathered after a step.
            let adapters = self.adapter_parameters(rank);
            let ends = usize::from(chunk.embedding)..usize::from(chunk.embedding) + chunk.layers.len();
            for (unit, count) in dense.iter_mut().enumerate() {
                *count = if ends.contains(&unit) { adapters } else { 0 };
            }
            experts.fill(0);
            work.parameter_bytes = sized(&dense, self.precision.parameters);
            work.gradient_bytes = sized(&dense, self.precision.gradients);
            if self.architecture.experts.is_some() {
                work.expert_parameter_bytes = sized(&experts, self.precision.parameters);
                work.expert_gradient_bytes = sized(&experts, self.precision.gradients);
            }
        }
        let owned = dense.iter().sum::<u64>().div_ceil(self.optimiser_shards)
            + experts.iter().sum::<u64>().div_ceil(self.expert_optimiser_shards);
        // Adam reads the gradient, and reads and writes master weight and two moments in 32 bits; it writes the weight.
        let bytes =
            self.precision.gradients.bytes(owned) + 24 * owned + self.precision.parameters.bytes(owned);
        let parts = chunk.layers.len() as u64 + u64::from(chunk.embedding) + u64::from(chunk.head);
        let measured = kernels.whole("optimiser_layer", self.architecture.hidden, self.tp, 0);
        work.optimiser = match measured {
            Some(time) => time * parts,
            None => kernels.streaming(Streaming::Optimiser, owned, 1, bytes),
        };
    }

    fn forward(&self, emit: &mut Emit<'_>, chunk: &Chunk, units: &Units) {
        let hidden = self.architecture.hidden;
        if chunk.embedding && emit.whole("embedding", "embedding_forward", self.tokens()) {
            emit.done(Units::EMBEDDING);
        } else if chunk.embedding {
            // Rows are read and written; where tables are split, tokens without a row here are written as zeros.
            emit.stream("embedding", Streaming::Embedding, self.tokens(), hidden, 2);
            emit.sum_over_tp("embedding reduce", self.tokens() * hidden, Overlap::None);
            emit.done(Units::EMBEDDING);
        } else {
            emit.gather_slices();
        }
        for layer in chunk.layers.clone() {
            self.layer_forward(emit, layer);
            emit.done(units.layer(layer));
        }
        if chunk.head && emit.whole("head", "head_forward", self.tokens()) {
            emit.done(units.head());
        } else if chunk.head {
            let vocabulary = self.local_vocabulary();
            emit.stream("head", Streaming::Norm, self.residual_tokens(), hidden, 2);
            emit.gather_over_tp("head all-gather", self.tokens() * hidden, emit.before());
            emit.gemm_in("head", Gemm::new(self.tokens(), vocabulary, hidden), self.precision.activations);
            // Read the logits for the maximum, read and write them for exponentials and sums (in 32 bits).
            emit.stream_bytes("loss", Streaming::CrossEntropy, self.tokens(), vocabulary, {
                4 * 3 * self.tokens() * vocabulary
            });
            for label in ["loss maximum", "loss target", "loss sum"] {
                emit.collective(
                    Dimension::Tp,
                    CollectiveKind::AllReduce,
                    4 * self.tokens(),
                    label,
                    Overlap::None,
                );
            }
            emit.done(units.head());
        }
    }

    fn backward(&self, emit: &mut Emit<'_>, chunk: &Chunk, units: &Units, part: Part) {
        let hidden = self.architecture.hidden;
        let (tokens, residual) = (self.tokens(), self.residual_tokens());
        if chunk.head && part.input() && emit.whole("head", "head_backward", tokens) {
            part.finish(emit, units.head());
        } else if chunk.head {
            let gemm = Gemm::new(tokens, self.local_vocabulary(), hidden);
            if part.input() {
                // Exponentials become gradients in place.
                emit.stream_bytes("loss", Streaming::CrossEntropy, tokens, self.local_vocabulary(), {
                    8 * tokens * self.local_vocabulary()
                });
            }
            self.column_gradients(
                emit,
                part,
                "head",
                hidden,
                &[(hidden, gemm.n)],
                self.precision.activations,
            );
            if part.input() {
                emit.stream("head", Streaming::Norm, residual, hidden, 3);
            }
            part.finish(emit, units.head());
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
                if self.sequence_parallel {
                    emit.gather_over_tp("embedding all-gather", tokens * hidden, Overlap::None);
                }
                emit.stream("embedding", Streaming::Embedding, tokens, hidden, 3);
            }
            part.finish(emit, Units::EMBEDDING);
        }
    }

    fn layer_forward(&self, emit: &mut Emit<'_>, layer: u32) {
        if emit.whole("layer", "layer_forward", self.tokens()) {
            return;
        }
        self.block_forward(emit, &self.attention_block(), true);
        if let (LayerKind::Sparse, Some(experts)) =
            (self.architecture.layer_kind(layer), &self.architecture.experts)
        {
            self.sparse_forward(emit, experts);
        } else {
            self.block_forward(emit, &self.feed_forward_block(self.architecture.dense.width, "mlp"), true);
        }
    }

    fn layer_backward(&self, emit: &mut Emit<'_>, layer: u32, first: u32, part: Part) {
        if part.input() {
            if self.recomputes_layer(layer, first) {
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
        self.block_backward(emit, &self.attention_block(), part, true);
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
        emit.gemm("attention", Gemm::new(tokens, hidden, self.attention_block().row));
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
    fn adapters(&self, emit: &mut Emit<'_>, inner: u64, outer: u64, forward: bool) {
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

    fn attention_block(&self) -> Block {
        let hidden = self.architecture.hidden;
        let heads = self.local_heads();
        let row = heads * self.architecture.attention.value_dim();
        let (down, gather, columns) = match self.architecture.attention {
            Attention::Grouped { head_dim, .. } => {
                let qkv = (heads + 2 * self.local_kv_heads()) * head_dim;
                (vec![], hidden, vec![(hidden, qkv)])
            }
            Attention::Latent { query_rank, kv_rank, nope_dim, rope_dim, value_dim, .. } => {
                let query = heads * (nope_dim + rope_dim);
                let keys = (kv_rank, heads * (nope_dim + value_dim));
                match query_rank {
                    Some(rank) => (
                        vec![(hidden, rank), (hidden, kv_rank + rope_dim)],
                        rank + kv_rank + rope_dim,
                        vec![(rank, query), keys],
                    ),
                    None => (
                        vec![(hidden, kv_rank + rope_dim)],
                        hidden + kv_rank + rope_dim,
                        vec![(hidden, query), keys],
                    ),
                }
            }
        };
        Block { label: "attention", down, gather, columns, middle: Middle::Attention, row }
    }

    pub(super) fn feed_forward_block(&self, width: u64, label: &'static str) -> Block {
        let hidden = self.architecture.hidden;
        let local = width / self.tp;
        Block {
            label,
            down: vec![],
            gather: hidden,
            columns: vec![(hidden, self.architecture.dense.ups() * local)],
            middle: Middle::Activation { width: local },
            row: local,
        }
    }

    /// A block forward; `residual` adds the norm before and the addition after.
    pub(super) fn block_forward(&self, emit: &mut Emit<'_>, block: &Block, residual: bool) {
        let hidden = self.architecture.hidden;
        let tokens = self.tokens();
        if residual {
            emit.stream(block.label, Streaming::Norm, self.residual_tokens(), hidden, 2);
        }
        for &(inner, outer) in &block.down {
            emit.gemm(block.label, Gemm::new(self.residual_tokens(), outer, inner));
            emit.stream(block.label, Streaming::Norm, self.residual_tokens(), outer, 2);
        }
        emit.gather_over_tp("tp all-gather", tokens * block.gather, emit.before());
        for &(inner, outer) in &block.columns {
            emit.gemm(block.label, Gemm::new(tokens, outer, inner));
            if matches!(block.middle, Middle::Attention) {
                self.adapters(emit, inner, outer, true);
            }
        }
        self.middle_forward(emit, block);
        if matches!(block.middle, Middle::Attention) {
            self.adapters(emit, block.row, hidden, true);
        }
        emit.gemm_before_sum(block.label, Gemm::new(tokens, hidden, block.row), self.tp);
        emit.sum_over_tp("tp reduce", tokens * hidden, emit.after());
        if residual {
            self.residual_stream(emit, block.label, 3);
        }
    }

    /// Addition of a block's result to the residual stream or its gradient: activations read and written, and the
    /// dropout mask of one byte.
    fn residual_stream(&self, emit: &mut Emit<'_>, label: &'static str, passes: u64) {
        let (rows, hidden) = (self.residual_tokens(), self.architecture.hidden);
        let mask = if self.dropout { rows * hidden } else { 0 };
        let bytes = self.precision.activations.bytes(rows * hidden * passes) + mask;
        emit.stream_bytes(label, Streaming::Residual, rows, hidden, bytes);
    }

    fn middle_forward(&self, emit: &mut Emit<'_>, block: &Block) {
        match block.middle {
            Middle::Attention => {
                emit.stream(block.label, Streaming::Rotary, self.tokens(), self.rotated(), 2);
                self.exchange_keys(emit);
                self.core_forward(emit);
            }
            Middle::Activation { width } => {
                let ups = self.architecture.dense.ups();
                emit.stream(block.label, Streaming::Activation, self.tokens(), width, ups + 1);
            }
        }
    }

    /// Features of queries and keys that are rotated; none with learned positions.
    fn rotated(&self) -> u64 {
        if self.architecture.positions > 0 {
            return 0;
        }
        match self.architecture.attention {
            Attention::Grouped { head_dim, .. } => (self.local_heads() + self.local_kv_heads()) * head_dim,
            Attention::Latent { rope_dim, .. } => (self.local_heads() + 1) * rope_dim,
        }
    }

    /// Keys and values of a whole sequence on this rank's heads, in features.
    fn key_value_features(&self) -> u64 {
        let attention = &self.architecture.attention;
        self.local_kv_heads() * (attention.query_dim() + attention.value_dim())
    }

    fn exchange_keys(&self, emit: &mut Emit<'_>) {
        if self.cp == 1 {
            return;
        }
        let bytes =
            self.precision.activations.bytes(self.micro_batch * self.sequence * self.key_value_features());
        emit.collective(
            Dimension::Cp,
            CollectiveKind::AllGather,
            bytes,
            "cp keys and values",
            self.ring_before(),
        );
    }

    /// Ring attention hides each block of keys and values behind the attention to the one before.
    fn ring_before(&self) -> Overlap {
        match self.context {
            ContextExchange::Ring => Overlap::WithNext { chunks: self.cp as u32 },
            ContextExchange::AllGather => Overlap::None,
        }
    }

    fn attention_shape(&self) -> AttentionShape {
        let attention = &self.architecture.attention;
        AttentionShape {
            batch: self.micro_batch,
            heads: self.local_heads(),
            kv_heads: self.local_kv_heads(),
            queries: self.sequence / self.cp,
            keys: self.sequence,
            query_dim: attention.query_dim(),
            value_dim: attention.value_dim(),
            causal: self.causal && self.attention == AttentionKernel::Flash,
        }
    }

    fn core_forward(&self, emit: &mut Emit<'_>) {
        let shape = self.attention_shape();
        match self.attention {
            AttentionKernel::Flash => emit.attention_forward(&shape),
            AttentionKernel::Unfused => {
                let batch = shape.batch * shape.heads;
                let scores = Gemm { m: shape.queries, n: shape.keys, k: shape.query_dim, batch };
                emit.gemm_in("attention", scores, self.precision.activations);
                // Softmax reads and writes the scores; dropout reads them again, writes them and a mask of one byte.
                let numbers = batch * shape.queries * shape.keys;
                let masks = if self.dropout { 2 * 2 + 1 } else { 0 };
                emit.stream_bytes("attention", Streaming::Softmax, batch * shape.queries, shape.keys, {
                    numbers * (2 * 2 + masks)
                });
                let sums = Gemm { m: shape.queries, n: shape.value_dim, k: shape.keys, batch };
                emit.gemm_in("attention", sums, self.precision.activations);
            }
        }
    }

    fn core_backward(&self, emit: &mut Emit<'_>) {
        let shape = self.attention_shape();
        match self.attention {
            AttentionKernel::Flash => emit.attention_backward(&shape),
            AttentionKernel::Unfused => {
                if self.recompute == Recompute::Selective {
                    emit.recompute(|emit| self.core_forward(emit));
                }
                let batch = shape.batch * shape.heads;
                let (m, n) = (shape.queries, shape.keys);
                let dtype = self.precision.activations;
                // Gradients of values and of probabilities, then of queries and of keys.
                emit.gemm_in("attention", Gemm { m: n, n: shape.value_dim, k: m, batch }, dtype);
                emit.gemm_in("attention", Gemm { m, n, k: shape.value_dim, batch }, dtype);
                let numbers = batch * m * n;
                let masks = if self.dropout { 2 * 2 + 1 } else { 0 };
                emit.stream_bytes("attention", Streaming::Softmax, batch * m, n, numbers * (2 * 3 + masks));
                emit.gemm_in("attention", Gemm { m, n: shape.query_dim, k: n, batch }, dtype);
                emit.gemm_in("attention", Gemm { m: n, n: shape.query_dim, k: m, batch }, dtype);
            }
        }
    }

    pub(super) fn block_backward(&self, emit: &mut Emit<'_>, block: &Block, part: Part, residual: bool) {
        let hidden = self.architecture.hidden;
        let (tokens, own) = (self.tokens(), self.residual_tokens());
        let row = Gemm::new(tokens, hidden, block.row);
        if part.input() {
            if residual {
                self.residual_stream(emit, block.label, 2);
            }
            if self.sequence_parallel {
                emit.gather_over_tp("tp all-gather", tokens * hidden, emit.before());
            }
            emit.gemm(block.label, Gemm::new(row.m, row.k, row.n));
        }
        if part.weight() && self.lora_rank.is_none() {
            emit.gemm(block.label, Gemm::new(row.k, row.n, row.m));
        }
        let adapted = matches!(block.middle, Middle::Attention) && part.input();
        if adapted {
            self.adapters(emit, block.row, hidden, false);
        }
        if part.input() {
            self.middle_backward(emit, block);
        }
        if adapted {
            for &(inner, outer) in &block.columns {
                self.adapters(emit, inner, outer, false);
            }
        }
        self.column_gradients(emit, part, block.label, block.gather, &block.columns, self.precision.compute);
        for &(inner, outer) in &block.down {
            if part.input() {
                emit.stream(block.label, Streaming::Norm, own, outer, 3);
                emit.gemm(block.label, Gemm::new(own, inner, outer));
            }
            if part.weight() && self.lora_rank.is_none() {
                emit.gemm(block.label, Gemm::new(inner, outer, own));
            }
        }
        if residual && part.input() {
            emit.stream(block.label, Streaming::Norm, own, hidden, 3);
        }
    }

    fn middle_backward(&self, emit: &mut Emit<'_>, block: &Block) {
        match block.middle {
            Middle::Attention => {
                self.exchange_keys(emit);
                self.core_backward(emit);
                if self.cp > 1 {
                    let numbers = self.micro_batch * self.sequence * self.key_value_features();
                    let overlap = match self.context {
                        ContextExchange::Ring => Overlap::WithPrevious { chunks: self.cp as u32 },
                        ContextExchange::AllGather => Overlap::None,
                    };
                    let bytes = self.precision.activations.bytes(numbers);
                    emit.collective(
                        Dimension::Cp,
                        CollectiveKind::ReduceScatter,
                        bytes,
                        "cp key and value gradients",
                        overlap,
                    );
                }
                emit.stream(block.label, Streaming::Rotary, self.tokens(), self.rotated(), 2);
            }
            Middle::Activation { width } => {
                let ups = self.architecture.dense.ups();
                emit.stream(block.label, Streaming::Activation, self.tokens(), width, 1 + 2 * ups);
            }
        }
    }

    /// Gradients of column-parallel projections. Fused, the input is gathered beside the first GEMM and its gradient
    /// reduced beside the second (Megatron's linear layer).
    fn column_gradients(
        &self,
        emit: &mut Emit<'_>,
        part: Part,
        label: &'static str,
        gather: u64,
        columns: &[(u64, u64)],
        dtype: Dtype,
    ) {
        let tokens = self.tokens();
        let numbers = tokens * gather;
        let beside = self.overlap_backward && part == Part::Both && self.tp > 1;
        // Frozen weights have no gradients for which the input is needed.
        let trained = self.lora_rank.is_none();
        let gathered = (part.weight() && self.sequence_parallel && self.regather && trained)
            .then(|| emit.gather_over_tp_beside("tp re-gather", numbers, beside))
            .flatten();
        if part.input() {
            for &(inner, outer) in columns {
                emit.gemm_in(label, Gemm::new(tokens, inner, outer), dtype);
            }
        }
        let reduced =
            part.input().then(|| emit.sum_over_tp_beside("tp reduce gradient", numbers, beside)).flatten();
        emit.wait(gathered);
        if part.weight() && trained {
            for &(inner, outer) in columns {
                emit.gemm_in(label, Gemm::new(inner, outer, tokens), dtype);
            }
        }
        emit.wait(reduced);
    }
}

/// Numbers of the data-parallel units of a chunk, in forward order.
struct Units {
    first_layer: u32,
    layers: u32,
    embedding: u32,
}

impl Units {
    /// The embedding comes first where there is one.
    const EMBEDDING: u32 = 0;

    fn new(chunk: &Chunk) -> Self {
        Self {
            first_layer: chunk.layers.start,
            layers: chunk.layers.end - chunk.layers.start,
            embedding: u32::from(chunk.embedding),
        }
    }

    const fn layer(&self, layer: u32) -> u32 {
        self.embedding + layer - self.first_layer
    }

    const fn head(&self) -> u32 {
        self.embedding + self.layers
    }
}

/// Which gradients a backward list computes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Both,
    Input,
    Weight,
}

impl Part {
    pub(super) fn input(self) -> bool {
        self != Self::Weight
    }

    pub(super) fn weight(self) -> bool {
        self != Self::Input
    }

    /// Marks a unit's gradients complete where they are.
    fn finish(self, emit: &mut Emit<'_>, unit: u32) {
        if self.weight() {
            emit.done(unit);
        } else {
            emit.launched();
        }
    }
}

/// Total computation of a list, for people and tests.
pub fn compute_time(pieces: &[Piece]) -> Span {
    pieces
        .iter()
        .map(|piece| match piece {
            Piece::Calc { duration, .. } => *duration,
            _ => Span::ZERO,
        })
        .sum()
}
