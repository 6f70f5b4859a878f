//! The optimiser's step: what it reads, writes and computes, and the state that it keeps.
//!
//! Adam (Kingma and Ba 2014; with decoupled weight decay, Loshchilov and Hutter 2017) keeps a master weight and two moments in 32
//! bits. Muon (Jordan et al. 2024; at scale Liu et al. 2025, arXiv:2502.16982 algorithm 1) keeps a master weight and one
//! moment of every matrix of a layer, and makes the moment's singular values equal by Newton-Schulz steps in 16 bits; embeddings,
//! the head, norms, biases and gates of one feature stay Adam's, as in Megatron-Core.
//!
//! A matrix is made orthogonal whole: ranks that hold parts of it by tensor parallelism each compute all of it
//! (Megatron-Core's `muon_tp_mode: duplicated`), and ranks among which state is sharded share the matrices out. What they
//! send for it beyond the gradients and weights that Adam sends too, moments over tensor-parallel ranks, is not counted.

use windtunnel_kernel::Span;

use super::architecture::{Attention, LayerKind};
use super::chunk::Chunk;
use super::dtype::Dtype;
use super::kernels::{Gemm, KernelModel, Streaming};
use super::prediction::JOINED;
use super::training::{Optimiser, Training};

/// Bytes a parameter that Adam reads and writes beside gradient and weight: master weight and two moments, in 32 bits.
const ADAM_MOVED: u64 = 24;

/// The same for Muon: master weight and one moment, then the moment in 16 bits, written, scaled to norm one, and read as the step.
const MUON_MOVED: u64 = 16 + 2 + 4 + 2;

/// Bytes a parameter that Adam keeps.
const ADAM_STATE: u64 = 12;

/// The same for Muon.
const MUON_STATE: u64 = 8;

/// Newton-Schulz steps: five in Jordan's program, and in Megatron-Core unless told otherwise (`muon_num_ns_steps`).
const STEPS: u64 = 5;

/// Equal matrices of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrices {
    /// How many there are on a rank, whole or in part.
    pub count: u64,
    /// Rows of a whole one.
    pub rows: u64,
    /// Columns of a whole one.
    pub columns: u64,
    /// Numbers of one that this rank has.
    pub own: u64,
}

impl Matrices {
    fn new(count: u64, rows: u64, columns: u64, own: u64) -> Self {
        Self { count, rows, columns, own }
    }

    /// Numbers of all of them on this rank.
    pub const fn parameters(&self) -> u64 {
        self.count * self.own
    }
}

impl Training {
    /// The matrices of layer `layer` on this rank, of dense parts and of routed experts.
    pub fn matrices(&self, layer: u32) -> (Vec<Matrices>, Vec<Matrices>) {
        let model = &self.architecture;
        let mut dense = self.attention_matrices();
        let mut routed = Vec::new();
        match (model.layer_kind(layer), &model.experts) {
            (LayerKind::Sparse, Some(experts)) => {
                dense.push(Matrices::new(1, experts.routed, model.hidden, experts.routed * model.hidden));
                if experts.shared_width > 0 {
                    dense.extend(self.block_matrices(1, experts.shared_width, self.tp));
                }
                routed.extend(self.block_matrices(experts.routed / self.ep, experts.width, self.expert_tp));
            }
            _ => dense.extend(self.block_matrices(1, model.dense.width, self.tp)),
        }
        (dense, routed)
    }

    fn attention_matrices(&self) -> Vec<Matrices> {
        let hidden = self.architecture.hidden;
        let share = self.local_heads();
        match self.architecture.attention {
            Attention::Grouped { heads, kv_heads, head_dim, .. } => vec![
                Matrices::new(1, heads * head_dim, hidden, share * head_dim * hidden),
                Matrices::new(2, kv_heads * head_dim, hidden, self.local_kv_heads() * head_dim * hidden),
                Matrices::new(1, hidden, heads * head_dim, hidden * share * head_dim),
            ],
            Attention::Latent { heads, query_rank, kv_rank, nope_dim, rope_dim, value_dim } => {
                let query = nope_dim + rope_dim;
                let from = query_rank.unwrap_or(hidden);
                let mut found = vec![Matrices::new(1, heads * query, from, share * query * from)];
                if let Some(rank) = query_rank {
                    found.push(Matrices::new(1, rank, hidden, rank * hidden));
                }
                let (compressed, both) = (kv_rank + rope_dim, nope_dim + value_dim);
                found.push(Matrices::new(1, compressed, hidden, compressed * hidden));
                found.push(Matrices::new(1, heads * both, kv_rank, share * both * kv_rank));
                found.push(Matrices::new(1, hidden, heads * value_dim, hidden * share * value_dim));
                found
            }
        }
    }

    /// The matrices of `blocks` feed-forward blocks of `width` inner features, over `tp` ranks.
    fn block_matrices(&self, blocks: u64, width: u64, tp: u64) -> [Matrices; 2] {
        let (hidden, own) = (self.architecture.hidden, self.architecture.hidden * (width / tp));
        [
            Matrices::new(blocks * self.architecture.dense.ups(), width, hidden, own),
            Matrices::new(blocks, hidden, width, own),
        ]
    }

    /// All matrices of `chunk` that Muon steps, of dense parts and of routed experts; none under Adam.
    fn stepped(&self, chunk: &Chunk) -> (Vec<Matrices>, Vec<Matrices>) {
        if self.optimiser == Optimiser::Adam {
            return (Vec::new(), Vec::new());
        }
        let modules = if chunk.head { self.predictions } else { 0 };
        let layers = chunk.layers.clone().chain((0..modules).map(|_| self.predicting_layer()));
        let (mut dense, routed): (Vec<_>, Vec<_>) = layers.map(|layer| self.matrices(layer)).unzip();
        if modules > 0 {
            let hidden = self.architecture.hidden;
            let own = JOINED * hidden * hidden.div_ceil(self.tp);
            dense.push(vec![Matrices::new(u64::from(modules), hidden, JOINED * hidden, own)]);
        }
        (dense.concat(), routed.concat())
    }

    /// Parameters of `chunk` on this rank that Muon steps, of dense parts and of routed experts.
    fn stepped_parameters(&self, chunk: &Chunk) -> (u64, u64) {
        let count = |matrices: Vec<Matrices>| matrices.iter().map(Matrices::parameters).sum();
        let (dense, routed) = self.stepped(chunk);
        (count(dense), count(routed))
    }

    /// Bytes of state of a rank with `parameters` after sharding, where `resident` chunks are sharded over so many ranks: dense
    /// parts over `shards`, routed experts over `expert_shards`.
    pub(super) fn optimiser_bytes<'a>(
        &self,
        parameters: u64,
        resident: impl Iterator<Item = &'a Chunk>,
        (shards, expert_shards): (u64, u64),
    ) -> u64 {
        let (dense, routed) = resident
            .map(|chunk| self.stepped_parameters(chunk))
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let stepped = dense.div_ceil(shards) + routed.div_ceil(expert_shards);
        ADAM_STATE * parameters - (ADAM_STATE - MUON_STATE) * stepped
    }

    /// The optimiser's step of `chunk`: gradients are read and weights written, state is read and written.
    pub fn optimiser_step(&self, chunk: &Chunk, kernels: &KernelModel) -> Span {
        let parts = chunk.layers.len() as u64
            + u64::from(chunk.embedding)
            + u64::from(chunk.head) * (1 + u64::from(self.predictions));
        if let Some(time) = kernels.whole("optimiser_layer", self.architecture.hidden, self.tp, 0) {
            return time * parts;
        }
        let (dense, experts) = self.trained(chunk);
        let share = |(of_dense, of_experts): (u64, u64)| {
            of_dense.div_ceil(self.optimiser_shards) + of_experts.div_ceil(self.expert_optimiser_shards)
        };
        let owned = share((dense.iter().sum(), experts.iter().sum()));
        let of_matrices = share(self.stepped_parameters(chunk));
        let (stepped, routed) = self.stepped(chunk);
        let bytes = self.precision.gradients.bytes(owned)
            + ADAM_MOVED * (owned - of_matrices)
            + MUON_MOVED * of_matrices
            + self.precision.parameters.bytes(owned);
        kernels.streaming(Streaming::Optimiser, owned, 1, bytes)
            + self.orthogonal(&stepped, self.optimiser_shards, kernels)
            + self.orthogonal(&routed, self.expert_optimiser_shards, kernels)
    }

    /// Time of the Newton-Schulz steps of `matrices`, shared out among `ranks`: the rank with most has their share, and one matrix
    /// at least.
    fn orthogonal(&self, matrices: &[Matrices], ranks: u64, kernels: &KernelModel) -> Span {
        let format = self.precision.activations;
        let (mut all, mut longest) = (Span::ZERO, Span::ZERO);
        for one in matrices.iter().filter(|one| one.count > 0) {
            let time = newton_schulz(one.rows.min(one.columns), one.rows.max(one.columns), format, kernels);
            all += time * one.count;
            longest = longest.max(time);
        }
        longest.max(Span::from_seconds_ceil(all.seconds() / ranks as f64))
    }
}

/// Time for a matrix X of `m` by `n`, m at most n: in each step A = X Xᵀ, B = b A + c A A, X = a X + B X, whose sums are part of
/// the products.
fn newton_schulz(m: u64, n: u64, format: Dtype, kernels: &KernelModel) -> Span {
    let product = |gemm| kernels.gemm(gemm, format, format);
    (product(Gemm::new(m, m, n)) + product(Gemm::new(m, m, m)) + product(Gemm::new(m, n, m))) * STEPS
}
