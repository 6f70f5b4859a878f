//! What is trained and how it is laid out: the settings from which work, memory and FLOPs follow.
//!
//! A [`Training`] is checked once ([`Training::check`]); afterwards every division is exact, except that tables and
//! heads with fewer rows than tensor-parallel ranks are padded or replicated as Megatron does: the vocabulary up to a
//! multiple of tp, key/value heads to at least one per rank.

use windtunnel_kernel::Span;

use super::architecture::{Architecture, Attention, LayerKind};
use super::dtype::Dtype;

/// What the backward pass computes again instead of storing (Korthikanti et al. 2022, arXiv:2205.05198).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Recompute {
    /// Nothing, beyond what flash attention itself recomputes.
    #[default]
    None,
    /// The core of attention (scores, softmax, weighted sum).
    Selective,
    /// What is between the products of a layer, and every second of these: the projections of keys, of attention's
    /// output and of the gate (torchtitan's selective checkpointing by operation).
    Operations,
    /// Every layer, from its input.
    Full,
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AttentionKernel {
    /// One kernel that stores no scores (Dao 2023).
    #[default]
    Flash,
    /// Two batched products with a stored score matrix and a softmax between (Megatron before flash attention). Skips
    /// nothing under a causal mask.
    Unfused,
}

/// How context-parallel ranks see each other's keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ContextExchange {
    /// Around a ring while attention to the block at hand runs (ring attention, Liu et al. 2023).
    #[default]
    Ring,
    /// All-gathered before attention (Llama 3, arXiv:2407.21783 §3.3.2).
    AllGather,
}

/// A dispatcher of tokens to experts that sends none twice to a scale-up domain or to a GPU ([`crate::collectives::dispatcher`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatcher {
    /// SMs that carry tokens.
    pub sms: u32,
    /// Domains that a token's experts are on at most; 0: any.
    pub domains: u32,
}

/// Which kernels CUDA graphs hold: the host launches a graph at once, and the others one by one ([`Training::dispatch`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Graphs {
    /// None.
    #[default]
    None,
    /// All but those of routed experts, whose shapes depend on the tokens that come (Megatron-Core's scopes `attn`,
    /// `moe_router` and `moe_preprocess`).
    Layers,
    /// All.
    All,
}

/// Number formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Factors of the layers' GEMMs.
    pub compute: Dtype,
    /// Activations between kernels, and on the wire.
    pub activations: Dtype,
    /// Parameters as computed with and gathered.
    pub parameters: Dtype,
    /// Gradients as stored and reduced.
    pub gradients: Dtype,
    /// Gradients of a micro-batch that are kept beside those to which they are added; none where the product adds.
    pub added_gradients: Option<Dtype>,
}

impl Default for Precision {
    fn default() -> Self {
        Self {
            compute: Dtype::Bf16,
            activations: Dtype::Bf16,
            parameters: Dtype::Bf16,
            gradients: Dtype::Bf16,
            added_gradients: None,
        }
    }
}

/// How weights follow from gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Optimiser {
    /// Adam or `AdamW`.
    #[default]
    Adam,
    /// Muon for the matrices of layers, Adam for everything else.
    Muon,
}

/// Modules of multi-token prediction that are worth the name: published models have one, Gloeckle et al. 2024 (arXiv:2404.19737)
/// try seven.
const MOST_PREDICTIONS: u32 = 16;

/// Bytes a number of [`Training::permute_traffic`] that no program moves.
const MOST_PERMUTE_TRAFFIC: f64 = 1000.0;

/// A model, a batch and a layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// The model.
    pub architecture: Architecture,
    /// Tokens of a sequence.
    pub sequence: u64,
    /// Sequences of a micro-batch.
    pub micro_batch: u64,
    /// Tensor-parallel ranks.
    pub tp: u64,
    /// Context-parallel ranks.
    pub cp: u64,
    /// Expert-parallel ranks.
    pub ep: u64,
    /// Tensor-parallel ranks of one expert: `tp`, or 1.
    pub expert_tp: u64,
    /// Whether norms and residuals are split along the sequence over the tensor-parallel ranks.
    pub sequence_parallel: bool,
    /// Number formats.
    pub precision: Precision,
    /// Whether a rank adds each micro-batch's gradients to whole ones of those before: where these are not scattered at once.
    pub adds_gradients: bool,
    /// What is recomputed.
    pub recompute: Recompute,
    /// Layers of each chunk that [`Recompute::Full`] is for, the first ones; the others keep everything. Absent: all.
    pub recompute_layers: Option<u32>,
    /// Modules of multi-token prediction that are trained beside the model, on the last stage (`prediction.rs`).
    pub predictions: u32,
    /// Rank of the low-rank adapters beside attention's projections, which alone are trained (Hu et al. 2021,
    /// arXiv:2106.09685); absent: the model itself is trained.
    pub lora_rank: Option<u64>,
    /// Whether the input of a column-parallel projection is gathered again for its weight gradient (Korthikanti et al.
    /// 2022, §4.2.2) instead of being kept.
    pub regather: bool,
    /// Whether what the products of a layer take from other tensor-parallel ranks travels in the products' format
    /// ([`Dtype::scaled_bytes`]), not in that of activations.
    pub narrow_gathers: bool,
    /// How attention is computed.
    pub attention: AttentionKernel,
    /// Whether flash attention skips the masked half of the scores.
    pub causal: bool,
    /// Whether dropout masks are stored.
    pub dropout: bool,
    /// How keys and values travel between context-parallel ranks.
    pub context: ContextExchange,
    /// Tokens an expert takes, as a multiple of the mean: buffers are padded to it and what exceeds it is dropped.
    /// Absent: nothing is dropped or padded.
    pub capacity_factor: Option<f64>,
    /// Tokens of the busiest expert rank over the mean, without a capacity factor.
    pub imbalance: f64,
    /// Share of the experts' all-to-alls that runs behind the computations of another micro-batch and takes no time of its
    /// own: below 1, and 0 where micro-batches follow one another.
    pub hidden_exchange: f64,
    /// Bytes that putting tokens in the order of the experts moves beyond reading and writing each copy, for each number of a copy
    /// forward, and twice as many backward.
    pub permute_traffic: f64,
    /// What takes tokens to experts and back; absent: an all-to-all with a copy for each chosen expert.
    pub dispatcher: Option<Dispatcher>,
    /// Whether the shared experts are computed while tokens are on their way.
    pub overlap_shared: bool,
    /// Pieces into which a GEMM next to a tensor-parallel collective is split so that both overlap; 1: not split.
    pub overlap_chunks: u32,
    /// Whether, in a fused backward pass, the tensor-parallel collectives of a layer's input run beside the GEMM that
    /// does not need them.
    pub overlap_backward: bool,
    /// Without sequence parallelism: whether a tensor-parallel rank hands only its slice of the activation to the next
    /// stage, which gathers the slices (Narayanan et al. 2021, arXiv:2104.04473 §4.1).
    pub scatter_gather: bool,
    /// Time of the host to launch a kernel of this model or a collective; a framework that interprets (eager PyTorch) launches
    /// several for each. Zero: the GPU is never kept waiting.
    pub dispatch: Span,
    /// Mean time by which a rank's host comes late to a tensor-parallel collective, whose n ranks wait n times as long: rare
    /// delays of single ranks add up. Zero: hosts are on time.
    pub straggle: Span,
    /// Which kernels the host need not launch one by one.
    pub graphs: Graphs,
    /// Whether the products of a rank's experts are one kernel; otherwise the host launches one for each expert
    /// (Transformer Engine's grouped linear layer), and tokens are put in the order of the local experts after they have
    /// come and before they go.
    pub fused_experts: bool,
    /// Whether those kernels also hold what stands between the products: the first one limits, gates and weighs what it computes
    /// and writes it for the second, converted; the gradient of the second's factor becomes that of the first's result on
    /// its way (Transformer Engine's fused grouped MLP, cuDNN's grouped GEMM with GLU). Needs [`Self::fused_experts`].
    pub fused_expert_mlp: bool,
    /// Whether tokens of experts that are not fused are copied to and from padded buffers where factors are narrow formats:
    /// not if whoever routes or sends them pads them.
    pub padded_experts: bool,
    /// Whether element-wise operations are one kernel each; otherwise what they hand on is kept for the backward pass too.
    pub fused: bool,
    /// Whether the loss is one kernel over the logits; otherwise it is a kernel for each operation, and their 32-bit copies are
    /// alive at once (Megatron-LM; PyTorch without a compiler around the loss).
    pub fused_loss: bool,
    /// Bytes that the framework holds besides: contexts, communication buffers.
    pub reserved: u64,
    /// How weights follow from gradients.
    pub optimiser: Optimiser,
    /// Ranks over which the optimiser state of dense parameters is sharded; 1: none.
    pub optimiser_shards: u64,
    /// The same for expert parameters.
    pub expert_optimiser_shards: u64,
}

/// Why a layout does not fit a model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LayoutError {
    /// Something is not a multiple of what divides it.
    #[error("`{by}`: {divisor} does not divide the {what}: {whole}\n\nhint: {}", near(*divisor, *whole))]
    NotDivisible {
        /// The setting.
        by: &'static str,
        /// Its value.
        divisor: u64,
        /// What it divides.
        what: &'static str,
        /// How many there are.
        whole: u64,
    },
    /// A setting is out of range.
    #[error("`{setting}`: expected {expected}, found `{found}`")]
    OutOfRange {
        /// The setting.
        setting: &'static str,
        /// What was due.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// Tensor parallelism without sequence parallelism would send every token to its expert once per rank.
    #[error(
        "experts with `tp`: {0} need sequence parallelism\n\nhint: set `sequence_parallel: true`, or `tp: 1`"
    )]
    ExpertsNeedSequenceParallel(u64),
}

/// The divisors of `whole` next to a number that is none.
fn near(divisor: u64, whole: u64) -> String {
    let divides = |n: &u64| whole.is_multiple_of(*n);
    let below = (1..divisor.min(whole + 1)).rev().find(divides).unwrap_or(1);
    match (divisor + 1..=whole).find(divides) {
        Some(above) => format!("{below} and {above} do"),
        None => format!("{below} does"),
    }
}

fn divides(by: &'static str, divisor: u64, what: &'static str, whole: u64) -> Result<(), LayoutError> {
    if whole.is_multiple_of(divisor) {
        Ok(())
    } else {
        Err(LayoutError::NotDivisible { by, divisor, what, whole })
    }
}

impl Training {
    /// One sequence per micro-batch on one rank, everything else at its default.
    pub fn new(architecture: Architecture, sequence: u64) -> Self {
        Self {
            architecture,
            sequence,
            micro_batch: 1,
            tp: 1,
            cp: 1,
            ep: 1,
            expert_tp: 1,
            sequence_parallel: false,
            precision: Precision::default(),
            adds_gradients: true,
            recompute: Recompute::None,
            recompute_layers: None,
            predictions: 0,
            lora_rank: None,
            regather: true,
            narrow_gathers: false,
            attention: AttentionKernel::Flash,
            causal: true,
            dropout: false,
            context: ContextExchange::Ring,
            capacity_factor: None,
            imbalance: 1.0,
            hidden_exchange: 0.0,
            permute_traffic: 0.0,
            dispatcher: None,
            overlap_shared: false,
            overlap_chunks: 1,
            overlap_backward: true,
            scatter_gather: false,
            dispatch: Span::ZERO,
            straggle: Span::ZERO,
            graphs: Graphs::None,
            fused_experts: true,
            fused_expert_mlp: false,
            padded_experts: true,
            fused: true,
            fused_loss: true,
            reserved: 0,
            optimiser: Optimiser::Adam,
            optimiser_shards: 1,
            expert_optimiser_shards: 1,
        }
    }

    /// Refuses a layout that does not divide the model.
    ///
    /// # Errors
    /// [`LayoutError`] with the setting and the numbers.
    pub fn check(&self) -> Result<(), LayoutError> {
        let range = |setting, expected, found: String| LayoutError::OutOfRange { setting, expected, found };
        for (setting, value) in [
            ("tp", self.tp),
            ("cp", self.cp),
            ("ep", self.ep),
            ("sequence", self.sequence),
            ("micro_batch", self.micro_batch),
            ("overlap_chunks", u64::from(self.overlap_chunks)),
            ("optimiser_shards", self.optimiser_shards),
            ("expert_optimiser_shards", self.expert_optimiser_shards),
        ] {
            if value == 0 {
                return Err(range(setting, "at least 1", "0".to_owned()));
            }
        }
        let model = &self.architecture;
        if self.predictions > MOST_PREDICTIONS {
            return Err(range("multi_token_prediction", "at most 16 modules", self.predictions.to_string()));
        }
        if self.predictions > 0 && self.lora_rank.is_some() {
            return Err(range("multi_token_prediction", "0 with `lora_rank`", self.predictions.to_string()));
        }
        if self.optimiser == Optimiser::Muon && self.lora_rank.is_some() {
            return Err(range("optimizer", "`adam` with `lora_rank`", "muon".to_owned()));
        }
        if self.predictions > 0 {
            divides("tp", self.tp, "features of the model", model.hidden)?;
        }
        // FLOPs of a pass stay exact in 64 bits.
        let tokens = self.sequence as f64 * self.micro_batch as f64;
        let width = model.attention.heads() as f64
            * (model.attention.query_dim() as f64 + model.attention.value_dim() as f64);
        let modules = f64::from(self.predictions);
        let beside = (model.prediction_parameters() + model.vocabulary * model.hidden) as f64;
        let flops = 8.0 * (model.parameters() as f64 + modules * beside) * tokens
            + 8.0 * (f64::from(model.layers) + modules) * width * tokens * self.sequence as f64;
        if flops > 1.8e19 {
            let found = format!("{} × {}", self.sequence, self.micro_batch);
            return Err(range("sequence × micro_batch", "at most 1.8e19 FLOPs in a micro-batch", found));
        }
        divides("tp", self.tp, "attention heads", model.attention.heads())?;
        let kv = model.attention.kv_heads();
        if !self.tp.is_multiple_of(kv) {
            divides("tp", self.tp, "key and value heads", kv)?;
        }
        divides("tp", self.tp, "features of the feed-forward block", model.dense.width)?;
        divides("cp", self.cp, "tokens of a sequence", self.sequence)?;
        if self.sequence_parallel {
            divides("tp", self.tp, "tokens of a context-parallel rank", self.sequence / self.cp)?;
        }
        if !(self.imbalance >= 1.0 && self.imbalance.is_finite()) {
            return Err(range("imbalance", "a number of at least 1", self.imbalance.to_string()));
        }
        if self.cp > 1 && self.attention == AttentionKernel::Unfused {
            return Err(range(
                "attention",
                "flash attention under context parallelism",
                "unfused".to_owned(),
            ));
        }
        if self.fused_expert_mlp && !self.fused_experts {
            return Err(range("fused_expert_mlp", "false without `fused_experts`", "true".to_owned()));
        }
        if !(0.0..=MOST_PERMUTE_TRAFFIC).contains(&self.permute_traffic) {
            let found = self.permute_traffic.to_string();
            return Err(range("permute_traffic", "bytes from 0 to 1,000", found));
        }
        if !(0.0..1.0).contains(&self.hidden_exchange) {
            return Err(range(
                "hidden_exchange",
                "a share from 0 to below 1",
                self.hidden_exchange.to_string(),
            ));
        }
        if let Some(factor) = self.capacity_factor
            && !(factor > 0.0 && factor.is_finite())
        {
            return Err(range("capacity_factor", "a positive number", factor.to_string()));
        }
        match &model.experts {
            Some(experts) => {
                divides("ep", self.ep, "experts", experts.routed)?;
                if self.expert_tp != 1 && self.expert_tp != self.tp {
                    return Err(range("expert_tp", "1, or the value of `tp`", self.expert_tp.to_string()));
                }
                divides("expert_tp", self.expert_tp, "features of an expert", experts.width)?;
                divides("tp", self.tp, "features of the shared experts", experts.shared_width)?;
                if self.tp > 1 && !self.sequence_parallel {
                    return Err(LayoutError::ExpertsNeedSequenceParallel(self.tp));
                }
            }
            None if self.ep > 1 => {
                return Err(range("ep", "1, because the model has no experts", self.ep.to_string()));
            }
            None => {}
        }
        Ok(())
    }

    /// Tokens of a micro-batch that a context-parallel rank holds.
    pub const fn tokens(&self) -> u64 {
        self.micro_batch * (self.sequence / self.cp)
    }

    /// Tokens of which this rank keeps the residual stream.
    pub const fn residual_tokens(&self) -> u64 {
        if self.sequence_parallel { self.tokens() / self.tp } else { self.tokens() }
    }

    /// Whether activations between stages travel in slices that the next stage gathers.
    pub const fn slices_between_stages(&self) -> bool {
        self.scatter_gather && !self.sequence_parallel && self.tp > 1
    }

    /// Query heads on this rank.
    pub const fn local_heads(&self) -> u64 {
        self.architecture.attention.heads() / self.tp
    }

    /// Key and value heads on this rank, at least one.
    pub fn local_kv_heads(&self) -> u64 {
        (self.architecture.attention.kv_heads() / self.tp).max(1)
    }

    /// Vocabulary rows on this rank, padded to a multiple of tp.
    pub const fn local_vocabulary(&self) -> u64 {
        self.architecture.vocabulary.div_ceil(self.tp)
    }

    /// Dense and expert parameters of layer `layer` on this rank, before data-parallel sharding.
    pub fn layer_parameters_on_rank(&self, layer: u32) -> (u64, u64) {
        let model = &self.architecture;
        let (hidden, tp) = (model.hidden, self.tp);
        let whole = model.layer_parameters(layer);
        let attention = match model.attention {
            Attention::Grouped { head_dim, qkv_bias, output_bias, qk_norm, .. } => {
                let qkv = (self.local_heads() + 2 * self.local_kv_heads()) * head_dim;
                hidden * qkv
                    + u64::from(qkv_bias) * qkv
                    + self.local_heads() * head_dim * hidden
                    + u64::from(output_bias) * hidden
                    + qk_norm.parameters(model.norm, self.local_heads(), self.local_kv_heads(), head_dim)
            }
            // The down projections and the norms of the compressed vectors are on every rank.
            Attention::Latent { query_rank, kv_rank, nope_dim, rope_dim, value_dim, .. } => {
                let heads = self.local_heads();
                let query_width = heads * (nope_dim + rope_dim);
                let query = match query_rank {
                    Some(rank) => hidden * rank + model.norm.parameters(rank) + rank * query_width,
                    None => hidden * query_width,
                };
                query
                    + hidden * (kv_rank + rope_dim)
                    + model.norm.parameters(kv_rank)
                    + kv_rank * heads * (nope_dim + value_dim)
                    + heads * value_dim * hidden
            }
        };
        let block = |width: u64, tp: u64, bias: bool| {
            let local = width / tp;
            (model.dense.ups() + 1) * hidden * local + u64::from(bias) * (model.dense.ups() * local + hidden)
        };
        let bias = model.dense.bias;
        match (model.layer_kind(layer), &model.experts) {
            (LayerKind::Sparse, Some(experts)) => {
                let shared = if experts.shared_width > 0 {
                    block(experts.shared_width, tp, bias) + u64::from(experts.shared_gate) * hidden
                } else {
                    0
                };
                let routed = experts.routed / self.ep * block(experts.width, self.expert_tp, experts.bias);
                (attention + whole.norms + whole.router + shared, routed)
            }
            _ => (attention + whole.norms + block(model.dense.width, tp, bias), 0),
        }
    }

    /// Embedding parameters on a rank of the first stage.
    pub const fn embedding_parameters_on_rank(&self) -> u64 {
        (self.local_vocabulary() + self.architecture.positions) * self.architecture.hidden
    }

    /// Final norm, output projection and, for multi-token prediction, embedding on a rank of the last stage; a tied table is
    /// stored again unless that rank holds the embedding too (`with_embedding`), and so is that of the modules.
    pub const fn head_parameters_on_rank(&self, with_embedding: bool) -> u64 {
        let norm = self.architecture.norm.parameters(self.architecture.hidden);
        let table = self.local_vocabulary() * self.architecture.hidden;
        match (self.architecture.tied_embeddings, with_embedding) {
            (true, true) => norm,
            (false, false) if self.predictions > 0 => norm + 2 * table,
            _ => norm + table,
        }
    }

    /// Parameters of the adapters of a layer on this rank: two factors for queries, keys and values together, two for
    /// attention's output.
    pub(super) fn adapter_parameters(&self, rank: u64) -> u64 {
        let attention = &self.architecture.attention;
        let queries = self.local_heads() * attention.query_dim();
        let keys = self.local_kv_heads() * (attention.query_dim() + attention.value_dim());
        let row = self.local_heads() * attention.value_dim();
        rank * (self.architecture.hidden + queries + keys + row + self.architecture.hidden)
    }

    /// Whether layer `layer` of a chunk that begins with `first` is recomputed whole.
    pub(super) fn recomputes_layer(&self, layer: u32, first: u32) -> bool {
        self.recompute == Recompute::Full && self.recompute_layers.is_none_or(|count| layer - first < count)
    }

    /// Whether the host waits for the GPU before it launches a layer's experts, because it has to know how many tokens each
    /// of them has: where none are dropped or padded and no graph holds the experts.
    pub(super) fn counts_tokens(&self) -> bool {
        self.capacity_factor.is_none() && self.graphs != Graphs::All && self.dispatch > Span::ZERO
    }

    /// Whether GEMM factors are converted to a narrower format first.
    pub(super) fn casts(&self) -> bool {
        self.precision.compute.bits() < self.precision.activations.bits()
    }
}
