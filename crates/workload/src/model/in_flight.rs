//! What the backward pass of one layer holds for a moment, beyond everything stored.
//!
//! A layer is gone through backwards, its second block before its attention. Three instants of the block take turns:
//!
//! | instant | is there besides | is gone already |
//! |---|---|---|
//! | its second product is done | the gradient of its result, gathered over tensor-parallel ranks, and that of its inner features | |
//! | its activation is done | gradients of inner features, before and after it | the second product's input |
//! | its first product is done | the gradient of its input, and the input itself, which was gathered again | all inner features, whose gradients have their place |
//!
//! and a fourth is attention's, when the whole block is gone and a stored matrix of scores has its gradient beside it. The gradient of the
//! residual stream is always there. What is recomputed is there from the block on, but for scores alone (selective), which only
//! attention needs.
//!
//! That gathered tokens are held whole and not a rank's share of them is what Korthikanti et al. 2022 (arXiv:2205.05198 §4.2.2) gather
//! again for; the order of a linear layer's two gradients is that of github.com/NVIDIA/Megatron-LM core_v0.15.0
//! `LinearWithGradAccumulationAndAsyncCommunication.backward`.

use super::architecture::LayerKind;
use super::training::{AttentionKernel, Recompute, Training};

impl Training {
    /// Bytes beyond everything stored at the fullest instant of the backward pass of layer `layer` of a chunk that begins with `first`.
    pub(super) fn layer_transient(&self, layer: u32, first: u32) -> u64 {
        let whole = self.stored_by_layer(layer, false);
        self.transient_beside(layer, whole.saturating_sub(self.kept_of_layer(layer, first)))
    }

    /// The same where `anew` bytes of the layer are recomputed.
    pub(super) fn transient_beside(&self, layer: u32, anew: u64) -> u64 {
        let before_attention = if self.recompute == Recompute::Selective { 0 } else { anew };
        let block = before_attention + self.block_gradients(layer);
        let attention = (anew + self.score_gradients()).saturating_sub(self.stored_by_block(layer));
        self.precision.activations.bytes(self.residual_tokens() * self.architecture.hidden)
            + block.max(attention)
    }

    /// Gradients of a layer's second block at their fullest, in bytes, less what the block has given up by then.
    fn block_gradients(&self, layer: u32) -> u64 {
        let model = &self.architecture;
        let tokens = self.tokens();
        match (model.layer_kind(layer), &model.experts) {
            (LayerKind::Sparse, Some(experts)) => {
                let (routed, _) = self.expert_tokens(experts);
                // Tokens and results of experts are copies of the residual stream's, which no product gathers again.
                self.gradients_of(routed, experts.width / self.expert_tp, true, false)
            }
            _ => {
                let gathered = self.gathers_over_tp();
                self.gradients_of(tokens, model.dense.width / self.tp, gathered, gathered && self.regather)
            }
        }
    }

    /// Of a block of `rows` tokens and `width` inner features; `apart`: the gradient of its result is not that of the
    /// residual stream; `again`: its input is gathered again.
    fn gradients_of(&self, rows: u64, width: u64, apart: bool, again: bool) -> u64 {
        let ups = self.architecture.dense.ups();
        let activation = |count: u64| self.precision.activations.bytes(count);
        let factor = |count: u64| self.precision.compute.bytes(count);
        let (inner, outer) = (rows * width, rows * self.architecture.hidden);
        let given = |is_so: bool, bytes: u64| if is_so { bytes } else { 0 };
        let second = given(apart, activation(outer)) + activation(inner);
        let between = (activation(inner) + activation(ups * inner)).saturating_sub(factor(inner));
        let first = (activation(outer) + given(again, factor(outer))).saturating_sub(factor(inner));
        second.max(between).max(first)
    }

    /// The gradient of a stored matrix of scores, in bytes; none where attention is one kernel.
    fn score_gradients(&self) -> u64 {
        match self.attention {
            AttentionKernel::Flash => 0,
            AttentionKernel::Unfused => {
                let queries = self.micro_batch * self.local_heads() * (self.sequence / self.cp);
                self.precision.activations.bytes(queries * self.sequence)
            }
        }
    }

    /// Whether products take tokens that were gathered over tensor-parallel ranks.
    pub(super) fn gathers_over_tp(&self) -> bool {
        self.sequence_parallel && self.tp > 1
    }
}
