//! Multi-token prediction: modules behind the last layer, each of which predicts one token further ahead.
//!
//! Module k takes what the module before it gives (the first: the last layer) and the embedding of the token that follows, norms both,
//! joins them, projects 2h features to h, and runs one layer of the model's last kind. Norm, projection to the vocabulary and loss
//! are those of the head, which is used once more for each module; the embedding's table is the first stage's, held again by the
//! last one if there are several, whose gradients both add up.
//!
//! Sources: DeepSeek-AI 2024, arXiv:2412.19437 §2.2 (equations 21 to 23); what crosses tensor-parallel ranks as in
//! github.com/NVIDIA/Megatron-LM core_v0.15.0, core/transformer/multi_token_prediction.py: the projection is column-parallel, its
//! result is gathered on every rank and, with sequence parallelism, cut along the sequence again. There the modules stand on
//! the last stage.

use super::architecture::Architecture;
use super::chunk::Part;
use super::emit::Emit;
use super::kernels::{Gemm, Streaming};
use super::training::{Recompute, Training};
use crate::collectives::CollectiveKind;
use crate::generate::Overlap;
use crate::program::Dimension;

/// Features that the projection joins, as a multiple of the model's: the token's embedding and what stands before.
pub(super) const JOINED: u64 = 2;

/// Norms of a module beside those of its layer: of both that are joined, and the one before the head.
const NORMS: u64 = 3;

const LABEL: &str = "multi-token prediction";

impl Architecture {
    /// Parameters of one module of multi-token prediction, without the embedding and the output projection, which are the model's.
    pub fn prediction_parameters(&self) -> u64 {
        let layer = self.layer_parameters(self.layers.saturating_sub(1)).total();
        layer + JOINED * self.hidden * self.hidden + NORMS * self.norm.parameters(self.hidden)
    }

    /// Forward and backward FLOPs a token of one module: six for each parameter it is multiplied with, those of the output projection
    /// among them, and attention of one layer.
    pub fn prediction_flops_per_token(&self, sequence: u64, causal: bool) -> u64 {
        let idle = self.idle_parameters(self.layers.saturating_sub(1));
        let products = self.prediction_parameters() - idle + self.vocabulary * self.hidden;
        let attention = self.layer_attention_flops_per_token(self.layers.saturating_sub(1), sequence, causal);
        6 * products + 3 * attention
    }
}

impl Training {
    /// The layer that a module is like: the model's last.
    pub(super) fn predicting_layer(&self) -> u32 {
        self.architecture.layers.saturating_sub(1)
    }

    /// Model FLOPs a token, forward and backward, the modules of multi-token prediction among them.
    pub fn model_flops_per_token(&self, causal: bool) -> u64 {
        let modules = u64::from(self.predictions);
        self.architecture.model_flops_per_token(self.sequence, causal)
            + modules * self.architecture.prediction_flops_per_token(self.sequence, causal)
    }

    /// Dense parameters and those of experts of one module on this rank.
    pub fn prediction_parameters_on_rank(&self) -> (u64, u64) {
        let (dense, experts) = self.layer_parameters_on_rank(self.predicting_layer());
        let hidden = self.architecture.hidden;
        let own =
            JOINED * hidden * hidden.div_ceil(self.tp) + NORMS * self.architecture.norm.parameters(hidden);
        (dense + own, experts)
    }

    /// Whether a module is computed again in the backward pass: wherever all layers are.
    pub(super) fn recomputes_prediction(&self) -> bool {
        self.recompute == Recompute::Full && self.recompute_layers.is_none()
    }

    /// Bytes that a module keeps for its backward pass, per micro-batch.
    pub(super) fn prediction_activation_bytes(&self) -> u64 {
        let own = self.residual_tokens() * self.architecture.hidden;
        // What both norms take in.
        let inputs = self.precision.activations.bytes(JOINED * own);
        if self.recomputes_prediction() { inputs } else { inputs + self.prediction_inside_bytes() }
    }

    /// Bytes of a module beyond what its norms take in: what they give, and what its layer keeps.
    pub(super) fn prediction_inside_bytes(&self) -> u64 {
        let own = self.residual_tokens() * self.architecture.hidden;
        let layer = match self.recompute {
            Recompute::Full => self.stored_by_layer(self.predicting_layer(), false),
            _ => self.layer_activation_bytes(self.predicting_layer()).get(),
        };
        self.precision.compute.bytes(JOINED * own) + layer
    }

    /// Input of a module's projection and the gradient of its output, with those of its layer, in bytes.
    pub(super) fn kept_by_prediction(&self) -> u64 {
        let own = self.residual_tokens() * self.architecture.hidden;
        self.precision.activations.bytes((JOINED + 1) * own) + self.kept_by_layer(self.predicting_layer())
    }

    pub(super) fn prediction_forward(&self, emit: &mut Emit<'_>) {
        let (own, hidden) = (self.residual_tokens(), self.architecture.hidden);
        self.look_up(emit);
        self.join_and_project(emit);
        if self.sequence_parallel && self.tp > 1 {
            // The rank's part of the sequence is read and written.
            emit.stream(LABEL, Streaming::Residual, own, hidden, 2);
        }
        self.layer_forward(emit, self.predicting_layer());
    }

    fn join_and_project(&self, emit: &mut Emit<'_>) {
        let (tokens, own, hidden) = (self.tokens(), self.residual_tokens(), self.architecture.hidden);
        for _ in 0..JOINED {
            emit.stream(LABEL, Streaming::Norm, own, hidden, 2);
        }
        emit.stream(LABEL, Streaming::Residual, own, JOINED * hidden, 2);
        emit.gather_over_tp("tp all-gather", tokens * JOINED * hidden, self.precision.compute, Overlap::None);
        emit.gemm(LABEL, Gemm::new(tokens, hidden.div_ceil(self.tp), JOINED * hidden));
        self.gather_whole(emit);
    }

    /// All features, or all tokens, of what the projection gives, or of its gradient, on every tensor-parallel rank.
    fn gather_whole(&self, emit: &mut Emit<'_>) {
        let bytes = self.precision.activations.bytes(self.tokens() * self.architecture.hidden);
        emit.collective(
            Dimension::Tp,
            CollectiveKind::AllGather,
            bytes,
            "prediction all-gather",
            Overlap::None,
        );
    }

    pub(super) fn prediction_backward(&self, emit: &mut Emit<'_>, part: Part) {
        let (own, hidden) = (self.residual_tokens(), self.architecture.hidden);
        if part.input() && self.recomputes_prediction() {
            emit.recompute(|emit| self.join_and_project(emit));
        }
        self.layer_gradients(emit, self.predicting_layer(), self.recomputes_prediction(), part);
        if part.input() && self.sequence_parallel {
            self.gather_whole(emit);
        }
        let columns = [(JOINED * hidden, hidden.div_ceil(self.tp))];
        self.column_gradients(emit, part, LABEL, JOINED * hidden, &columns, self.precision.compute);
        if part.input() {
            // Each half of the gradient is cut out and goes through its norm.
            emit.stream(LABEL, Streaming::Residual, own, JOINED * hidden, 2);
            for _ in 0..JOINED {
                emit.stream(LABEL, Streaming::Norm, own, hidden, 3);
            }
        }
        if part.weight() {
            self.table_gradients(emit);
        }
    }
}
