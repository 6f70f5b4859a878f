//! The shape of a transformer and its exact parameter count.
//!
//! Life cycle: read from a `config.json` ([`super::config`]) or built in code, then immutable. Invariants: every width is
//! positive; a layer is either dense or a mixture of experts ([`Architecture::layer_kind`]). Counts are those of the
//! published checkpoints: biases, norms, routers and shared experts included, rotary tables and caches not.
//!
//! Sources: Vaswani et al. 2017 (attention), Ainslie et al. 2023 (GQA), Shazeer 2020 (gated feed-forward),
//! DeepSeek-AI 2024, arXiv:2405.04434 §2.1 (latent attention) and arXiv:2412.19437 §2.1 (shared and routed experts,
//! multi-token prediction), Narayanan et al. 2021, arXiv:2104.04473 eq. 2 (GPT).

/// Layer normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Root mean square: a scale per feature.
    Rms,
    /// Mean and variance: a scale and a shift per feature.
    Layer,
}

impl Norm {
    /// Parameters of a norm over `width` features.
    pub const fn parameters(self, width: u64) -> u64 {
        match self {
            Self::Rms => width,
            Self::Layer => 2 * width,
        }
    }
}

/// Norms of queries and keys before they meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    None,
    /// One scale a feature of a head, the same for all heads (Qwen 3, Gemma 3).
    Head,
    /// One scale a feature of all heads (OLMo 2).
    Whole,
}

impl QkNorm {
    /// Parameters of both norms, where there are `heads` of queries and `kv_heads` of keys with `head_dim` features.
    pub const fn parameters(self, norm: Norm, heads: u64, kv_heads: u64, head_dim: u64) -> u64 {
        match self {
            Self::None => 0,
            Self::Head => 2 * norm.parameters(head_dim),
            Self::Whole => norm.parameters(heads * head_dim) + norm.parameters(kv_heads * head_dim),
        }
    }
}

/// Attention of every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Multi-head (`kv_heads == heads`), grouped-query or multi-query attention.
    Grouped {
        /// Query heads.
        heads: u64,
        /// Key and value heads.
        kv_heads: u64,
        /// Features of a head.
        head_dim: u64,
        /// Whether the query, key and value projections have biases.
        qkv_bias: bool,
        /// Whether the output projection has a bias.
        output_bias: bool,
        /// Norms of queries and keys.
        qk_norm: QkNorm,
    },
    /// Multi-head latent attention (DeepSeek V2 and V3).
    Latent {
        /// Heads.
        heads: u64,
        /// Rank of the compressed query; absent: a full projection.
        query_rank: Option<u64>,
        /// Rank of the compressed keys and values.
        kv_rank: u64,
        /// Features of a head without position.
        nope_dim: u64,
        /// Rotary features of a head; those of the key are shared by all heads.
        rope_dim: u64,
        /// Features of a value head.
        value_dim: u64,
    },
}

impl Attention {
    /// Query heads.
    pub const fn heads(&self) -> u64 {
        match *self {
            Self::Grouped { heads, .. } | Self::Latent { heads, .. } => heads,
        }
    }

    /// Key and value heads that tensor parallelism may divide.
    pub const fn kv_heads(&self) -> u64 {
        match *self {
            Self::Grouped { kv_heads, .. } => kv_heads,
            Self::Latent { heads, .. } => heads,
        }
    }

    /// Features of a query (and key) head in the score product.
    pub const fn query_dim(&self) -> u64 {
        match *self {
            Self::Grouped { head_dim, .. } => head_dim,
            Self::Latent { nope_dim, rope_dim, .. } => nope_dim + rope_dim,
        }
    }

    /// Features of a value head.
    pub const fn value_dim(&self) -> u64 {
        match *self {
            Self::Grouped { head_dim, .. } => head_dim,
            Self::Latent { value_dim, .. } => value_dim,
        }
    }

    /// Parameters for `hidden` features, norms inside the attention included.
    pub const fn parameters(&self, hidden: u64, norm: Norm) -> u64 {
        match *self {
            Self::Grouped { heads, kv_heads, head_dim, qkv_bias, output_bias, qk_norm } => {
                let qkv = (heads + 2 * kv_heads) * head_dim;
                hidden * qkv
                    + (qkv_bias as u64) * qkv
                    + heads * head_dim * hidden
                    + (output_bias as u64) * hidden
                    + qk_norm.parameters(norm, heads, kv_heads, head_dim)
            }
            Self::Latent { heads, query_rank, kv_rank, nope_dim, rope_dim, value_dim } => {
                let query_width = heads * (nope_dim + rope_dim);
                let query = match query_rank {
                    Some(rank) => hidden * rank + norm.parameters(rank) + rank * query_width,
                    None => hidden * query_width,
                };
                let kv = hidden * (kv_rank + rope_dim)
                    + norm.parameters(kv_rank)
                    + kv_rank * heads * (nope_dim + value_dim);
                query + kv + heads * value_dim * hidden
            }
        }
    }
}

/// A feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedForward {
    /// Inner features.
    pub width: u64,
    /// Whether it is gated (SwiGLU): two up projections instead of one.
    pub gated: bool,
    /// Whether its projections have biases.
    pub bias: bool,
}

impl FeedForward {
    /// Up projections: 2 if gated.
    pub const fn ups(&self) -> u64 {
        1 + self.gated as u64
    }

    /// Parameters for `hidden` features.
    pub const fn parameters(&self, hidden: u64) -> u64 {
        (self.ups() + 1) * hidden * self.width + (self.bias as u64) * (self.ups() * self.width + hidden)
    }
}

/// The mixture of experts of a sparse layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Routed experts.
    pub routed: u64,
    /// Routed experts a token visits.
    pub top_k: u64,
    /// Inner features of a routed expert.
    pub width: u64,
    /// Inner features of all shared experts together; 0: none.
    pub shared_width: u64,
    /// Whether the shared expert's output is gated by a projection to one feature (Qwen 2 MoE).
    pub shared_gate: bool,
    /// Whether the router has a bias per expert (DeepSeek V3's load-balancing correction, GPT-OSS).
    pub router_bias: bool,
    /// Whether the projections of a routed expert have biases (GPT-OSS).
    pub bias: bool,
    /// Whether gate and value are limited before they meet (GPT-OSS's `swiglu_limit`).
    pub limited: bool,
    /// Leading dense layers.
    pub first_dense: u32,
    /// One layer in `every` is sparse, counted from the first after the dense ones.
    pub every: u32,
}

/// A sliding window (Beltagy et al. 2020, arXiv:2004.05150).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Keys that a query sees, its own included.
    pub keys: u64,
    /// Which layers have it, one entry a layer.
    pub layers: Vec<bool>,
}

/// Whether a layer's feed-forward block is dense or a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// One feed-forward block for all tokens.
    Dense,
    /// Routed experts, and shared ones if there are any.
    Sparse,
}

/// A transformer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Architecture {
    /// The `model_type` it was read from.
    pub model_type: String,
    /// Features of the residual stream.
    pub hidden: u64,
    /// Layers.
    pub layers: u32,
    /// Rows of the embedding table.
    pub vocabulary: u64,
    /// Rows of a learned position table; 0: rotary.
    pub positions: u64,
    /// Attention of every layer.
    pub attention: Attention,
    /// The sliding window of some layers, or of all.
    pub window: Option<Window>,
    /// Feed-forward block of a dense layer.
    pub dense: FeedForward,
    /// Experts of the sparse layers.
    pub experts: Option<Experts>,
    /// Norms.
    pub norm: Norm,
    /// Whether what a block gives is normalised too before it is added to the residual stream (Gemma 2 and 3).
    pub post_norms: bool,
    /// Whether the output projection shares the embedding table.
    pub tied_embeddings: bool,
    /// Modules of multi-token prediction that a checkpoint may carry beside the model; not part of [`Self::parameters`], and
    /// trained where [`super::Training::predictions`] says so.
    pub prediction_layers: u32,
}

/// Parameters of one layer by what shards them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerParameters {
    /// Attention with its inner norms.
    pub attention: u64,
    /// The norms of the residual stream.
    pub norms: u64,
    /// Dense feed-forward block, or the shared experts with their gate.
    pub feed_forward: u64,
    /// Router.
    pub router: u64,
    /// All routed experts.
    pub experts: u64,
}

impl LayerParameters {
    /// All.
    pub const fn total(&self) -> u64 {
        self.attention + self.norms + self.feed_forward + self.router + self.experts
    }
}

impl Architecture {
    /// Whether layer `layer` (from 0) is sparse.
    pub fn layer_kind(&self, layer: u32) -> LayerKind {
        match self.experts {
            Some(experts)
                if layer >= experts.first_dense
                    && (layer - experts.first_dense + 1).is_multiple_of(experts.every.max(1)) =>
            {
                LayerKind::Sparse
            }
            _ => LayerKind::Dense,
        }
    }

    /// Norms of the residual stream in a layer: one before each of the two blocks, or one after too.
    const fn norms_of_layer(&self) -> u64 {
        2 + 2 * self.post_norms as u64
    }

    /// Keys that a query sees in layer `layer`; 0: all.
    pub fn window_of(&self, layer: u32) -> u64 {
        let here = |window: &&Window| window.layers.get(layer as usize).copied().unwrap_or(false);
        self.window.as_ref().filter(here).map_or(0, |window| window.keys)
    }

    /// Feed-forward block of one routed expert.
    pub fn expert_block(&self, experts: &Experts) -> FeedForward {
        FeedForward { width: experts.width, bias: experts.bias, ..self.dense }
    }

    /// Parameters of layer `layer`.
    pub fn layer_parameters(&self, layer: u32) -> LayerParameters {
        let mut parameters = LayerParameters {
            attention: self.attention.parameters(self.hidden, self.norm),
            norms: self.norms_of_layer() * self.norm.parameters(self.hidden),
            ..LayerParameters::default()
        };
        match (self.layer_kind(layer), &self.experts) {
            (LayerKind::Sparse, Some(experts)) => {
                parameters.router = experts.routed * (self.hidden + u64::from(experts.router_bias));
                parameters.experts = experts.routed * self.expert_block(experts).parameters(self.hidden);
                if experts.shared_width > 0 {
                    let shared = FeedForward { width: experts.shared_width, ..self.dense };
                    parameters.feed_forward =
                        shared.parameters(self.hidden) + u64::from(experts.shared_gate) * self.hidden;
                }
            }
            _ => parameters.feed_forward = self.dense.parameters(self.hidden),
        }
        parameters
    }

    /// Parameters of the token and position tables.
    pub fn embedding_parameters(&self) -> u64 {
        (self.vocabulary + self.positions) * self.hidden
    }

    /// Parameters of the output projection that are its own: none if tied.
    pub fn head_parameters(&self) -> u64 {
        if self.tied_embeddings { 0 } else { self.vocabulary * self.hidden }
    }

    /// All parameters, prediction layers apart.
    pub fn parameters(&self) -> u64 {
        let layers: u64 = (0..self.layers).map(|layer| self.layer_parameters(layer).total()).sum();
        self.embedding_parameters() + layers + self.norm.parameters(self.hidden) + self.head_parameters()
    }

    /// Parameters a token passes through: routed experts count by the `top_k` it visits.
    pub fn active_parameters(&self) -> u64 {
        let idle: u64 = (0..self.layers).map(|layer| self.idle_parameters(layer)).sum();
        self.parameters() - idle
    }

    /// Parameters of layer `layer` that a token does not pass through: those of the experts it does not visit.
    pub(super) fn idle_parameters(&self, layer: u32) -> u64 {
        match (self.layer_kind(layer), &self.experts) {
            (LayerKind::Sparse, Some(experts)) => {
                (experts.routed - experts.top_k) * self.expert_block(experts).parameters(self.hidden)
            }
            _ => 0,
        }
    }
}
