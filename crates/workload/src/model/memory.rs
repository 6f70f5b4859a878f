//! Memory of one rank: weights, gradients, optimiser, activations, buffers.
//!
//! Model state follows ZeRO (Rajbhandari et al. 2020, §5): weights and gradients in the formats of
//! [`super::training::Precision`], and 12 bytes a parameter for the 32-bit master weight and Adam's two moments.
//! Activations are counted tensor by tensor as Korthikanti et al. 2022 (arXiv:2205.05198 §4) do, so that an unfused GPT
//! layer gives their sbh(10 + 24/t + 5as/(ht)) (eq. 2), with sequence parallelism sbh(34/t + 5as/(ht)) (eq. 4),
//! selectively recomputed 34sbh/t (eq. 6), and fully recomputed 2sbh, divided by t where the input is split. Allocator
//! fragmentation, the CUDA context and NCCL's own buffers are not counted.

use std::fmt;

use windtunnel_kernel::Bytes;

use super::architecture::{Attention, LayerKind};
use super::chunk::Chunk;
use super::training::{AttentionKernel, Recompute, Training};

/// ZeRO stages (Rajbhandari et al. 2020).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Zero {
    /// Plain data parallelism.
    #[default]
    None,
    /// Optimiser state is sharded.
    Optimiser,
    /// And gradients.
    Gradients,
    /// And parameters (FSDP).
    Parameters,
}

impl Zero {
    /// The stage numbered as in the paper.
    pub const fn stage(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Optimiser),
            2 => Some(Self::Gradients),
            3 => Some(Self::Parameters),
            _ => None,
        }
    }
}

/// How model state is sharded, and how far units are gathered ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    /// Stage.
    pub zero: Zero,
    /// Ranks over which dense state is sharded.
    pub shards: u64,
    /// Ranks over which expert state is sharded.
    pub expert_shards: u64,
    /// Units gathered at once under [`Zero::Parameters`]: the one in use and those fetched ahead.
    pub gathered_units: u64,
    /// Whether parameters stay gathered between micro-batches ([`Zero::Parameters`]).
    pub stays_gathered: bool,
    /// Whether gradients add up whole over several micro-batches before they are reduced.
    pub whole_gradients: bool,
}

impl Default for Sharding {
    fn default() -> Self {
        Self {
            zero: Zero::None,
            shards: 1,
            expert_shards: 1,
            gathered_units: 2,
            stays_gathered: false,
            whole_gradients: false,
        }
    }
}

/// A chunk a rank holds, and for how many micro-batches its activations are alive at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// The chunk.
    pub chunk: Chunk,
    /// Micro-batches in flight at the peak.
    pub in_flight: u64,
}

/// Memory of one rank at the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Parameters as stored.
    pub weights: Bytes,
    /// Gradients as stored.
    pub gradients: Bytes,
    /// Master weights and moments.
    pub optimiser: Bytes,
    /// Activations kept for the backward pass.
    pub activations: Bytes,
    /// What is alive only for a moment: gathered units, what a layer computes anew, gradients on their way through it, messages between
    /// stages, logits' gradients.
    pub buffers: Bytes,
}

impl Memory {
    /// All.
    pub fn total(&self) -> Bytes {
        self.weights + self.gradients + self.optimiser + self.activations + self.buffers
    }
}

/// What the head needs for a moment in a micro-batch, and what it holds until its backward pass is over, in bytes.
#[derive(Clone, Copy, Debug)]
struct HeadTransient {
    /// Beside the logits while the loss is computed.
    loss: u64,
    /// Of the gradient of the logits, which takes their place.
    gradient: u64,
    /// Of the logits as they are stored.
    logits: u64,
    /// Of all that its backward pass reads, the logits among it.
    stored: u64,
}

/// Bytes beyond everything stored at the instant that needs most. Three take turns: the loss; the head's backward pass, when the
/// gradient of the logits has replaced them; and that of a layer (`moment`), when what the head stored is gone. The latter two fill a
/// unit's gradients (`unit`).
fn transient(head: Option<HeadTransient>, moment: u64, unit: u64) -> u64 {
    let Some(head) = head else { return moment + unit };
    let layer = (moment + unit).saturating_sub(head.stored);
    head.loss.max((head.gradient + unit).saturating_sub(head.logits)).max(layer)
}

/// Whether a rank fits its GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryVerdict {
    /// It fits.
    Fits {
        /// What is left.
        spare: Bytes,
    },
    /// It does not.
    Exceeds {
        /// What is missing.
        missing: Bytes,
        /// What would help most.
        hint: MemoryHint,
    },
}

/// What to change when a rank does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryHint {
    /// Recompute selectively.
    RecomputeSelective,
    /// Recompute fully.
    RecomputeFull,
    /// Raise the ZeRO stage.
    Zero,
    /// Raise tensor parallelism.
    Tensor,
    /// Raise pipeline parallelism.
    Pipeline,
    /// Raise expert parallelism.
    Expert,
    /// Raise context parallelism or lower the micro-batch.
    Context,
}

impl fmt::Display for MemoryHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RecomputeSelective => "set `recompute: selective`",
            Self::RecomputeFull => "set `recompute: full`",
            Self::Zero => "raise `zero`, so that data-parallel ranks share the model state",
            Self::Tensor => "raise `tp`",
            Self::Pipeline => "raise `pp`",
            Self::Expert => "raise `ep`",
            Self::Context => "raise `cp`, or lower `micro_batch`",
        })
    }
}

impl Training {
    /// Bytes that a layer keeps for its backward pass, per micro-batch, under [`Training::recompute`].
    pub fn layer_activation_bytes(&self, layer: u32) -> Bytes {
        Bytes::new(match self.recompute {
            Recompute::Full => {
                self.precision.activations.bytes(self.residual_tokens() * self.architecture.hidden)
            }
            Recompute::Operations => self.stored_by_operations(layer),
            _ => self.stored_by_layer(layer, self.recompute == Recompute::Selective),
        })
    }

    /// Bytes that a layer keeps under [`Recompute::Operations`]: its input, and the results of its other products, of
    /// attention and of the sums over tensor-parallel ranks.
    fn stored_by_operations(&self, layer: u32) -> u64 {
        let model = &self.architecture;
        let activation = |count: u64| self.precision.activations.bytes(count);
        let (tokens, own, hidden) = (self.tokens(), self.residual_tokens(), model.hidden);
        let attention = &model.attention;
        let kept = self.local_heads() * (attention.query_dim() + attention.value_dim())
            + self.local_kv_heads() * attention.value_dim();
        let sums = if self.tp > 1 { 2 * activation(own * hidden) } else { activation(own * hidden) };
        let block = match (model.layer_kind(layer), &model.experts) {
            (LayerKind::Sparse, Some(experts)) => {
                let (routed, _) = self.expert_tokens(experts);
                activation(routed * (hidden + model.dense.ups() * experts.width / self.expert_tp))
                    + activation(own * experts.top_k * hidden)
                    + activation(tokens * model.dense.ups() * experts.shared_width / self.tp)
            }
            _ => activation(tokens * model.dense.width / self.tp),
        };
        activation(own * hidden) + activation(tokens * kept) + 4 * tokens * self.local_heads() + sums + block
    }

    /// Bytes of all tensors of a layer that its backward pass reads; without the scores if these are recomputed.
    pub(super) fn stored_by_layer(&self, layer: u32, without_scores: bool) -> u64 {
        let model = &self.architecture;
        let activation = |count: u64| self.precision.activations.bytes(count);
        let factor = |count: u64| self.precision.compute.bytes(count);
        let (tokens, own, hidden) = (self.tokens(), self.residual_tokens(), model.hidden);
        let mask = if self.dropout { own * hidden } else { 0 };

        // Input of the norm, its output, queries with keys and values, scores, weighted sum, mask after the projection.
        let mut bytes = activation(own * hidden) + mask;
        bytes += match model.attention {
            Attention::Grouped { head_dim, .. } => {
                factor(self.kept_inputs() * hidden)
                    + activation(tokens * (self.local_heads() + 2 * self.local_kv_heads()) * head_dim)
            }
            Attention::Latent { query_rank, kv_rank, rope_dim, .. } => {
                let compressed = query_rank.unwrap_or(0) + kv_rank + rope_dim;
                let heads =
                    self.local_heads() * (2 * model.attention.query_dim() + model.attention.value_dim());
                // The compressed vectors before and after their norms, then the heads.
                factor(own * hidden)
                    + activation(own * compressed)
                    + factor(self.kept_inputs() * compressed)
                    + activation(tokens * heads)
            }
        };
        let scores = self.micro_batch * self.local_heads() * (self.sequence / self.cp) * self.sequence;
        bytes += match self.attention {
            AttentionKernel::Flash => 4 * tokens * self.local_heads(),
            AttentionKernel::Unfused if without_scores => 0,
            AttentionKernel::Unfused if self.dropout => 2 * activation(scores) + scores,
            AttentionKernel::Unfused => activation(scores),
        };
        bytes += factor(tokens * self.local_heads() * model.attention.value_dim());
        if !self.fused && self.rotated() > 0 {
            // Queries, keys and values are put in the order of the kernel, and queries and keys are rotated, each in a copy.
            let heads = self.local_heads() * model.attention.query_dim();
            let keys = self.local_kv_heads() * (model.attention.query_dim() + model.attention.value_dim());
            bytes += activation(tokens * (heads + keys + self.rotated()));
        }

        // Input of the second norm; inputs of norms after both blocks.
        bytes += activation(own * hidden * (1 + 2 * u64::from(model.post_norms))) + mask;
        bytes + self.stored_by_block(layer)
    }

    /// Bytes of the tensors of a layer's second block that its backward pass reads, from the output of its norm on.
    pub(super) fn stored_by_block(&self, layer: u32) -> u64 {
        let model = &self.architecture;
        let activation = |count: u64| self.precision.activations.bytes(count);
        let factor = |count: u64| self.precision.compute.bytes(count);
        let (tokens, own, hidden) = (self.tokens(), self.residual_tokens(), model.hidden);
        // A gate that is not one kernel with its product keeps its own value too.
        let gated = u64::from(!self.fused && model.dense.gated);
        let block = |rows: u64, width: u64| {
            activation(rows * (model.dense.ups() + gated) * width) + factor(rows * width)
        };
        match (model.layer_kind(layer), &model.experts) {
            (LayerKind::Sparse, Some(experts)) => {
                let (routed, _) = self.expert_tokens(experts);
                let width = experts.width / self.expert_tp;
                let shared = experts.shared_width / self.tp;
                // Norm output (shared with the shared experts), logits and probabilities in 32 bits, permuted tokens,
                // the experts' tensors, and their outputs for the gradient of the probabilities.
                factor(own * hidden)
                    + 8 * own * experts.routed
                    + factor(routed * hidden)
                    + block(routed, width)
                    + activation(own * experts.top_k * hidden)
                    + block(tokens, shared)
            }
            _ => factor(self.kept_inputs() * hidden) + block(tokens, model.dense.width / self.tp),
        }
    }

    /// Tokens of the input of a column-parallel product as it is kept: this rank's, or all that were gathered where they are not
    /// gathered again.
    fn kept_inputs(&self) -> u64 {
        if self.gathers_over_tp() && !self.regather { self.tokens() } else { self.residual_tokens() }
    }

    /// Bytes that layer `layer` of a chunk that begins with `first` keeps: all, where others of the chunk alone are recomputed.
    pub(super) fn kept_of_layer(&self, layer: u32, first: u32) -> u64 {
        if self.recompute == Recompute::Full && !self.recomputes_layer(layer, first) {
            self.stored_by_layer(layer, false)
        } else {
            self.layer_activation_bytes(layer).get()
        }
    }

    /// Bytes that `chunk` keeps for its backward pass per micro-batch, ends of the model included.
    pub fn chunk_activation_bytes(&self, chunk: &Chunk) -> Bytes {
        let own = self.residual_tokens() * self.architecture.hidden;
        let first = chunk.layers.start;
        let stored = |layer| self.kept_of_layer(layer, first);
        let mut bytes: u64 = chunk.layers.clone().map(stored).sum();
        if chunk.embedding && self.dropout {
            bytes += own;
        }
        if chunk.head {
            let modules = u64::from(self.predictions);
            bytes +=
                modules * self.prediction_activation_bytes() + (1 + modules) * self.head_activation_bytes();
        }
        Bytes::new(bytes)
    }

    /// Memory at the peak of a rank that holds `resident` chunks.
    pub fn memory(&self, resident: &[Resident], sharding: &Sharding) -> Memory {
        let (mut dense, mut routed) = (0u64, 0u64);
        let mut largest = 0u64;
        let mut memory = Memory::default();
        let together = |wanted: fn(&Chunk) -> bool| resident.iter().any(|held| wanted(&held.chunk));
        let mut moment = 0u64;
        for held in resident {
            let chunk = &held.chunk;
            let mut alike = None;
            for layer in chunk.layers.clone() {
                let (shared, experts) = self.layer_parameters_on_rank(layer);
                dense += shared;
                routed += experts;
                largest = largest.max(shared + experts);
                // Layers of one kind are alike: the first of a run stands for all.
                let like =
                    (self.architecture.layer_kind(layer), self.recomputes_layer(layer, chunk.layers.start));
                if alike.replace(like) != Some(like) {
                    moment = moment.max(self.layer_transient(layer, chunk.layers.start));
                }
            }
            if chunk.embedding {
                dense += self.embedding_parameters_on_rank();
                largest = largest.max(self.embedding_parameters_on_rank());
            }
            if chunk.head {
                let (shared, experts) = self.prediction_parameters_on_rank();
                for _ in 0..self.predictions {
                    dense += shared;
                    routed += experts;
                    largest = largest.max(shared + experts);
                    let anew = if self.recomputes_prediction() { self.prediction_inside_bytes() } else { 0 };
                    moment = moment.max(self.transient_beside(self.predicting_layer(), anew));
                }
                let head = self.head_parameters_on_rank(together(|chunk| chunk.embedding));
                dense += head;
                largest = largest.max(head);
            }
            memory.activations += self.chunk_activation_bytes(chunk) * held.in_flight;
        }
        let sharded = |by: Zero| {
            let (shards, expert_shards) =
                if sharding.zero >= by { (sharding.shards, sharding.expert_shards) } else { (1, 1) };
            dense.div_ceil(shards) + routed.div_ceil(expert_shards)
        };
        memory.weights = Bytes::new(self.precision.parameters.bytes(sharded(Zero::Parameters)));
        if sharding.zero == Zero::Parameters && sharding.stays_gathered {
            memory.weights += Bytes::new(self.precision.parameters.bytes(dense + routed));
        }
        if let Some(rank) = self.lora_rank {
            let layers: usize = resident.iter().map(|held| held.chunk.layers.len()).sum();
            let adapters = self.adapter_parameters(rank) * layers as u64;
            memory.weights += Bytes::new(self.precision.activations.bytes(adapters));
            (dense, routed) = (adapters, 0);
            largest = largest.min(adapters);
        }
        let sharded = |by: Zero| {
            let (shards, expert_shards) =
                if sharding.zero >= by { (sharding.shards, sharding.expert_shards) } else { (1, 1) };
            dense.div_ceil(shards) + routed.div_ceil(expert_shards)
        };
        // Gradients that add up whole are given to the shards unit by unit, whose own are then all there is.
        let whole = sharding.zero >= Zero::Gradients && sharding.whole_gradients;
        let held = if whole { dense + routed } else { sharded(Zero::Gradients) };
        let beside = self.precision.added_gradients.map_or(0, |format| format.bytes(dense + routed));
        memory.gradients = Bytes::new(self.precision.gradients.bytes(held) + beside);
        let among =
            if sharding.zero >= Zero::Optimiser { (sharding.shards, sharding.expert_shards) } else { (1, 1) };
        let chunks = resident.iter().map(|held| &held.chunk);
        memory.optimiser = Bytes::new(self.optimiser_bytes(sharded(Zero::Optimiser), chunks, among));

        let mut buffers = self.reserved;
        if sharding.zero == Zero::Parameters && !sharding.stays_gathered {
            buffers += sharding.gathered_units * self.precision.parameters.bytes(largest);
        }
        if !(together(|chunk| chunk.embedding) && together(|chunk| chunk.head)) {
            // One activation and one gradient on their way in each direction.
            buffers +=
                2 * self.precision.activations.bytes(self.residual_tokens() * self.architecture.hidden);
        }
        // A unit's gradients are laid out anew to be scattered.
        let unit = if sharding.zero >= Zero::Gradients { self.precision.gradients.bytes(largest) } else { 0 };
        let head = together(|chunk| chunk.head).then(|| self.head_transient());
        memory.buffers = Bytes::new(buffers + transient(head, moment, unit));
        memory
    }

    /// What is alive at the head only for a moment, and what it gives back.
    fn head_transient(&self) -> HeadTransient {
        let logits = self.tokens() * self.local_vocabulary();
        let gradient = self.precision.activations.bytes(logits);
        HeadTransient {
            // Beside the logits in 32 bits: those of the product, and where the loss is not one kernel the logarithms of
            // probabilities, and their gradient before it is that of the logits.
            loss: gradient + if self.fused_loss { 0 } else { 8 * logits },
            gradient,
            logits: 4 * logits,
            stored: self.head_activation_bytes(),
        }
    }

    /// Bytes that the head keeps for its backward pass: inputs of the norm and of the projection, and logits in 32 bits.
    fn head_activation_bytes(&self) -> u64 {
        let inputs = (self.residual_tokens() + self.kept_inputs()) * self.architecture.hidden;
        self.precision.activations.bytes(inputs) + 4 * self.tokens() * self.local_vocabulary()
    }

    /// Compares `memory` with a GPU of `capacity` and, where it does not fit, says what would help most.
    pub fn memory_verdict(&self, memory: &Memory, capacity: Bytes, sharding: &Sharding) -> MemoryVerdict {
        let total = memory.total();
        if total <= capacity {
            return MemoryVerdict::Fits { spare: capacity - total };
        }
        let state = memory.weights + memory.gradients + memory.optimiser;
        let hint = if memory.activations + memory.buffers > state {
            match (self.recompute, self.attention) {
                (Recompute::None, AttentionKernel::Unfused) => MemoryHint::RecomputeSelective,
                (Recompute::Full, _) => MemoryHint::Context,
                _ => MemoryHint::RecomputeFull,
            }
        } else if sharding.zero < Zero::Parameters && sharding.shards > 1 {
            MemoryHint::Zero
        } else if self.architecture.experts.is_some_and(|experts| self.ep < experts.routed) {
            MemoryHint::Expert
        } else if self.tp < 8 && self.tp < self.architecture.attention.kv_heads() {
            MemoryHint::Tensor
        } else {
            MemoryHint::Pipeline
        };
        MemoryVerdict::Exceeds { missing: total - capacity, hint }
    }
}

#[cfg(test)]
mod tests;
