//! A block on the residual stream, forward and backward: attention or a feed-forward layer in this rank's share.
//!
//! A block is *replicated down projections* (latent attention only), *column-parallel* GEMMs on gathered tokens, a middle
//! (attention or activation), and a *row-parallel* GEMM. With sequence parallelism (Korthikanti et al. 2022, §4.2.2) the
//! tokens are all-gathered before the columns and reduce-scattered after the row; backward the duals, and the input is
//! gathered again for the weight gradient. Without it an all-reduce stands after the row and, backward, after the columns.
//!
//! Sources: Shoeybi et al. 2019 (tensor parallelism), Liu et al. 2023 (ring attention), Dao 2023 (flash attention).

use super::architecture::Attention;
use super::chunk::Part;
use super::dtype::Dtype;
use super::emit::Emit;
use super::kernels::{AttentionShape, Gemm, Streaming};
use super::training::{AttentionKernel, ContextExchange, Recompute, Training};
use crate::collectives::CollectiveKind;
use crate::generate::Overlap;
use crate::program::Dimension;

/// Matrices of scores in whose multiples Megatron's kernel of a masked softmax takes them.
const SOFTMAX_BLOCK: u64 = 4;

/// Bytes a number of the operations that stand for it: conversion to 32 bits, scaling, masking, softmax, conversion back.
const SOFTMAX_PARTS: [u64; 5] = [6, 8, 9, 8, 6];

/// And backward: conversion, the gradients of softmax (its result is read too), mask and scale, conversion back.
const SOFTMAX_GRADIENT_PARTS: [u64; 5] = [6, 12, 9, 8, 6];

/// What stands between the column-parallel and the row-parallel GEMM.
#[derive(Clone, Copy)]
pub(super) enum Middle {
    /// Of the keys that a query sees; 0: all.
    Attention {
        window: u64,
    },
    Activation {
        width: u64,
    },
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
    pub(super) row: u64,
}

impl Training {
    /// Attention of layer `layer`.
    pub(super) fn attention_block(&self, layer: u32) -> Block {
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
        Block {
            label: "attention",
            down,
            gather,
            columns,
            middle: Middle::Attention { window: self.architecture.window_of(layer) },
            row,
        }
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
        emit.gather_over_tp("tp all-gather", tokens * block.gather, self.precision.compute, emit.before());
        for &(inner, outer) in &block.columns {
            emit.gemm(block.label, Gemm::new(tokens, outer, inner));
            if matches!(block.middle, Middle::Attention { .. }) {
                self.adapters(emit, inner, outer, true);
            }
        }
        self.middle_forward(emit, block);
        if matches!(block.middle, Middle::Attention { .. }) {
            self.adapters(emit, block.row, hidden, true);
        }
        emit.gemm_before_sum(block.label, Gemm::new(tokens, hidden, block.row), self.tp);
        emit.sum_over_tp("tp reduce", tokens * hidden, emit.after());
        if residual && self.architecture.post_norms {
            emit.stream(block.label, Streaming::Norm, self.residual_tokens(), hidden, 2);
        }
        if residual {
            self.residual_stream(emit, block.label, 3);
        }
    }

    /// Addition of a block's result to the residual stream or its gradient: activations read and written, and the
    /// dropout mask of one byte.
    pub(super) fn residual_stream(&self, emit: &mut Emit<'_>, label: &'static str, passes: u64) {
        let (rows, hidden) = (self.residual_tokens(), self.architecture.hidden);
        let mask = if self.dropout { rows * hidden } else { 0 };
        let bytes = self.precision.activations.bytes(rows * hidden * passes) + mask;
        emit.stream_bytes(label, Streaming::Residual, rows, hidden, bytes);
    }

    fn middle_forward(&self, emit: &mut Emit<'_>, block: &Block) {
        match block.middle {
            Middle::Attention { window } => {
                emit.stream(block.label, Streaming::Rotary, self.tokens(), self.rotated(), 2);
                self.exchange_keys(emit);
                self.core_forward(emit, window);
            }
            Middle::Activation { width } => {
                let ups = self.architecture.dense.ups();
                emit.stream(block.label, Streaming::Activation, self.tokens(), width, ups + 1);
            }
        }
    }

    /// Features of queries and keys that are rotated; none with learned positions.
    pub(super) fn rotated(&self) -> u64 {
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

    /// A stored matrix of scores holds all keys, those outside a window masked; only one kernel for all skips them.
    fn attention_shape(&self, window: u64) -> AttentionShape {
        let attention = &self.architecture.attention;
        let skips = self.causal && self.attention == AttentionKernel::Flash;
        AttentionShape {
            batch: self.micro_batch,
            heads: self.local_heads(),
            kv_heads: self.local_kv_heads(),
            queries: self.sequence / self.cp,
            keys: self.sequence,
            query_dim: attention.query_dim(),
            value_dim: attention.value_dim(),
            causal: skips,
            window: if skips && window < self.sequence { window } else { 0 },
        }
    }

    fn core_forward(&self, emit: &mut Emit<'_>, window: u64) {
        let shape = self.attention_shape(window);
        match self.attention {
            AttentionKernel::Flash => emit.attention_forward(&shape),
            AttentionKernel::Unfused => {
                let batch = shape.batch * shape.heads;
                let scores = Gemm { m: shape.queries, n: shape.keys, k: shape.query_dim, batch };
                emit.gemm_in("attention", scores, self.precision.activations);
                // Softmax reads and writes the scores; dropout reads them again, writes them and a mask of one byte.
                self.softmax(emit, [batch, shape.queries, shape.keys], 2 * 2, &SOFTMAX_PARTS);
                let sums = Gemm { m: shape.queries, n: shape.value_dim, k: shape.keys, batch };
                emit.gemm_in("attention", sums, self.precision.activations);
            }
        }
    }

    /// Masked softmax over `batch` stored matrices of scores, and its dropout; `fused` are the bytes a number of one kernel, `parts`
    /// those of each of several. Megatron's one kernel takes four rows of scores to a block, and only whole blocks: where the
    /// matrices are no multiple of four, PyTorch's operations stand for it (github.com/NVIDIA/Megatron-LM v2.5,
    /// megatron/model/fused_softmax.py, `is_kernel_available`), as do those of code without fused kernels everywhere.
    fn softmax(&self, emit: &mut Emit<'_>, [batch, queries, keys]: [u64; 3], fused: u64, parts: &[u64]) {
        let numbers = batch * queries * keys;
        let dropout = if self.dropout { 2 * 2 + 1 } else { 0 };
        let mut kernel = |bytes| {
            emit.stream_bytes("attention", Streaming::Softmax, batch * queries, keys, numbers * bytes);
        };
        match parts.split_last() {
            Some((last, first)) if self.fused && !batch.is_multiple_of(SOFTMAX_BLOCK) => {
                for &bytes in first {
                    kernel(bytes);
                }
                kernel(last + dropout);
            }
            _ => kernel(fused + dropout),
        }
    }

    fn core_backward(&self, emit: &mut Emit<'_>, window: u64) {
        let shape = self.attention_shape(window);
        match self.attention {
            AttentionKernel::Flash => emit.attention_backward(&shape),
            AttentionKernel::Unfused => {
                if self.recompute == Recompute::Selective {
                    emit.recompute(|emit| self.core_forward(emit, window));
                }
                let batch = shape.batch * shape.heads;
                let (m, n) = (shape.queries, shape.keys);
                let dtype = self.precision.activations;
                // Gradients of values and of probabilities, then of queries and of keys.
                emit.gemm_in("attention", Gemm { m: n, n: shape.value_dim, k: m, batch }, dtype);
                emit.gemm_in("attention", Gemm { m, n, k: shape.value_dim, batch }, dtype);
                self.softmax(emit, [batch, m, n], 2 * 3, &SOFTMAX_GRADIENT_PARTS);
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
                if self.architecture.post_norms {
                    emit.stream(block.label, Streaming::Norm, own, hidden, 3);
                }
            }
            if self.sequence_parallel {
                emit.gather_over_tp("tp all-gather", tokens * hidden, self.precision.compute, emit.before());
            }
            emit.gemm(block.label, Gemm::new(row.m, row.k, row.n));
        }
        if part.weight() && self.lora_rank.is_none() {
            let gemm = Gemm::new(row.k, row.n, row.m);
            emit.weight_gradient(block.label, gemm, self.precision.compute);
        }
        let adapted = matches!(block.middle, Middle::Attention { .. }) && part.input();
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
                let gemm = Gemm::new(inner, outer, own);
                emit.weight_gradient(block.label, gemm, self.precision.compute);
            }
        }
        if residual && part.input() {
            emit.stream(block.label, Streaming::Norm, own, hidden, 3);
        }
    }

    fn middle_backward(&self, emit: &mut Emit<'_>, block: &Block) {
        match block.middle {
            Middle::Attention { window } => {
                self.exchange_keys(emit);
                self.core_backward(emit, window);
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
    pub(super) fn column_gradients(
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
            .then(|| emit.gather_over_tp_beside("tp re-gather", numbers, dtype, beside))
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
                emit.weight_gradient(label, Gemm::new(inner, outer, tokens), dtype);
            }
        }
        emit.wait(reduced);
    }
}
