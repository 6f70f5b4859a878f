//! Jobs as they are written.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use windtunnel_cluster::placement::{BuiltIn, Locality};
use windtunnel_workload::collectives::{Algorithm, CollectiveSpec, Form, Whole};
use windtunnel_workload::generate::{Axis, Layout};
use windtunnel_workload::schedules::ScheduleName;

use super::name::Name;
use super::quantity::{CalendarSpan, Duration, Size};
use super::upkeep::{CheckpointRule, DataRule, Dues, ElasticRule};

/// A job.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Name; unique among the jobs.
    pub name: String,
    /// What it does; may be left out at job fidelity where `gpus` and `duration` are given.
    #[serde(default)]
    pub workload: Option<WorkloadSource>,
    /// How a model is laid out over ranks.
    #[serde(default)]
    pub parallelism: Option<Parallelism>,
    /// Which GPUs it gets.
    #[serde(default = "packed")]
    #[schemars(with = "Name<&'static BuiltIn>")]
    pub placement: String,
    /// Iterations to run.
    #[serde(default = "one")]
    pub iterations: u64,
    /// When it is submitted.
    #[serde(default = "at_once")]
    pub submit: CalendarSpan,
    /// Time the job takes (job fidelity); the network is not asked.
    #[serde(default)]
    pub duration: Option<Duration>,
    /// GPUs of a job without a workload.
    #[serde(default)]
    pub gpus: Option<u32>,
    /// Higher goes first (`priority` and `mast` schedulers).
    #[serde(default)]
    pub priority: i32,
    /// How close together its GPUs must be.
    #[serde(default = "anywhere")]
    #[schemars(with = "Name<Locality>")]
    pub locality: String,
    /// How long the scheduler expects it to run; its duration, or iterations on an ideal fabric, if left out.
    #[serde(default)]
    pub estimate: Option<Duration>,
    /// By when it should have ended, from its submission. Nothing stops it; the results say how late it is, and the scheduler
    /// `edf` goes by it.
    #[serde(default)]
    pub deadline: Option<CalendarSpan>,
    /// How it saves its work; an interruption costs all of it if left out.
    #[serde(default)]
    pub checkpoint: Option<CheckpointRule>,
    /// What it pays when it goes on after it was stopped or interrupted; `cluster.restart` if left out.
    #[serde(default)]
    pub restart: Option<Duration>,
    /// What it loads before it first starts; nothing if left out.
    #[serde(default)]
    pub data: Option<DataRule>,
    /// How many GPUs it can do with; those that it asks for if left out.
    #[serde(default)]
    pub elastic: Option<ElasticRule>,
}

impl Job {
    /// What it pays on its way.
    pub fn dues(&self) -> Dues<'_> {
        Dues { checkpoint: self.checkpoint.as_ref(), restart: self.restart, data: self.data.as_ref() }
    }
}

pub(super) fn anywhere() -> String {
    "anywhere".to_owned()
}

pub(super) fn packed() -> String {
    "packed".to_owned()
}

const fn one() -> u64 {
    1
}

const fn at_once() -> CalendarSpan {
    CalendarSpan(0)
}

/// What a job does: exactly one of the keys `model`, `goal`, `file`, `collective` and `flows`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSource {
    /// A model by name or as a path of a `config.json`, trained.
    #[serde(default)]
    pub model: Option<String>,
    /// Sequences per iteration, over all replicas.
    #[serde(default)]
    pub global_batch: Option<u64>,
    /// Sequences per micro-batch.
    #[serde(default)]
    pub micro_batch: Option<u64>,
    /// Tokens per sequence.
    #[serde(default)]
    pub sequence: Option<u64>,
    /// How the model is trained and computed.
    #[serde(default)]
    pub training: Option<ModelJob>,
    /// A GOAL file, text or binary.
    #[serde(default)]
    pub goal: Option<String>,
    /// A hand-written workload in JSON lines, or one in the compact form (`.wtw`) as `windtunnel import` writes it.
    #[serde(default)]
    pub file: Option<String>,
    /// One collective over all ranks.
    #[serde(default)]
    pub collective: Option<CollectiveJob>,
    /// Independent messages.
    #[serde(default)]
    pub flows: Option<FlowsJob>,
}

/// How a model is trained and computed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelJob {
    /// Framework whose habits stand for the keys that are left out here and in `parallelism`: `megatron`, `nemo`, `fsdp`,
    /// `deepspeed`, `torchtitan`, `foundry`, `nanotron`, `levanter`, or a file of one; `none` has no habits. If left out, and
    /// with it `profile`, `dispatch`, `compute_share`, `fused`, `fused_loss`, `attention`, `gradients` and `graphs`: `fsdp` where
    /// `parallelism` has `zero: 3` and neither `tp`, `pp` nor `ep`, else `megatron`.
    pub framework: Option<String>,
    /// Activations recomputed in the backward pass: `none`, `selective` (attention), `operations` (what is between the
    /// products of a layer, and every second of these, as torchtitan's selective checkpointing) or `full`.
    pub recompute: Option<String>,
    /// Layers of each stage that `recompute: full` is for, the first ones; all if left out.
    pub recompute_layers: Option<u32>,
    /// Modules of multi-token prediction that are trained beside the model (DeepSeek V3 trains 1): each predicts one token further
    /// ahead by a layer of its own and the model's embedding and output projection, on the last stage. None if left out, also
    /// where the model's file names some.
    pub multi_token_prediction: Option<u32>,
    /// Rank of low-rank adapters beside attention's projections, which alone are trained.
    pub lora_rank: Option<u64>,
    /// Gather a column-parallel projection's input again for its weight gradient, as Megatron does; on unless `false`.
    pub regather: Option<bool>,
    /// Gather the input and the gradients of a layer's tensor-parallel products in the format of the products, where that is
    /// narrower than the activations', as Transformer Engine does; off if left out.
    pub narrow_gathers: Option<bool>,
    /// Element-wise operations fused into one kernel each; on unless `false` (PyTorch without a compiler).
    pub fused: Option<bool>,
    /// Compute the loss in one kernel; on unless `false` (Megatron-LM's own loss, and PyTorch without a compiler around the loss:
    /// an operation after another, with 32-bit copies of the logits).
    pub fused_loss: Option<bool>,
    /// Memory of a GPU that the framework holds besides: contexts, communication buffers.
    pub reserved: Option<Size>,
    /// Share of the sheet's compute rates that the GPU sustains in training, where its power is limited; `sustained` of the
    /// sheet if left out.
    pub compute_share: Option<f64>,
    /// Mean by which a GPU of the job takes longer than the fastest of its kind, as a share: the slowest sets the pace of all. `spread`
    /// of the sheet if left out; 0 for equal GPUs.
    pub speed_spread: Option<f64>,
    /// Sequence parallelism with tensor parallelism; on unless `false`.
    pub sequence_parallel: Option<bool>,
    /// `bf16`, `fp16`, `fp8` or `fp4`.
    pub precision: Option<String>,
    /// Format in which parameters are kept and gathered: `fp32`, `bf16`, `fp16` or `fp8`; that of activations if left out.
    pub parameters: Option<String>,
    /// Bytes per element of the gradient reduction: `bf16` or `fp32`.
    pub gradients: Option<String>,
    /// Format of a micro-batch's own gradients where they are kept beside those to which they are added: `bf16` or `fp16`; `none`
    /// (the product adds, as Megatron's) if left out.
    pub added_gradients: Option<String>,
    /// `flash` (the GPU's own fast kernel: FlashAttention-3 on Hopper, where `flash3` says the same), `flash2`
    /// (FlashAttention-2, also where the sheet has a newer kernel's rates), `flash1` (half of that), or `unfused` (stored
    /// scores, as Megatron before flash attention).
    pub attention: Option<String>,
    /// Skip the masked half of attention's scores; on unless `false`.
    pub causal: Option<bool>,
    /// Drop out: masks are stored, and read and written by the residual additions and by unfused attention.
    pub dropout: Option<bool>,
    /// How context-parallel ranks see each other's keys and values: `ring` or `all_gather`.
    pub context_exchange: Option<String>,
    /// Without sequence parallelism: hand only a slice of the activation to the next stage, which gathers them.
    pub scatter_gather: bool,
    /// Chunks in which a GEMM next to a tensor-parallel collective overlaps with it; 1 is no overlap.
    pub overlap_chunks: Option<u32>,
    /// Run the backward tensor-parallel collective of a layer's input beside the GEMM of its weight gradient; on unless
    /// `false` (Megatron-LM before October 2021).
    pub overlap_backward: Option<bool>,
    /// Time of the host to launch one kernel of the model, for frameworks that interpret: small models wait for it. If left
    /// out, the host is always ahead.
    pub dispatch: Option<Duration>,
    /// Mean time by which the host of one rank comes late to a tensor-parallel collective, because something else wants its
    /// processors: a collective of n ranks waits n times as long. None if left out; matters with `dispatch`.
    pub straggle: Option<Duration>,
    /// What CUDA graphs hold, so that the host need not launch it kernel by kernel: `none`, `layers` (all but routed experts)
    /// or `all`; matters with `dispatch`.
    pub graphs: Option<String>,
    /// Products of a rank's experts in one kernel; on unless `false` (a launch for each expert, and tokens put in the order of
    /// the local experts).
    pub fused_experts: Option<bool>,
    /// Gate, limits, weights and conversions inside the kernels of the experts' products (Transformer Engine's fused grouped
    /// MLP); off if left out. Needs `fused_experts`.
    pub fused_expert_mlp: Option<bool>,
    /// Copy the tokens of experts in 8 or 4 bits to padded buffers and back, where they are not fused; on unless `false` (the
    /// router or the dispatcher pads).
    pub padded_experts: Option<bool>,
    /// How weights follow from gradients: `adam` (also AdamW), or `muon` (the matrices of layers by Muon, all else by Adam); `adam` if
    /// left out.
    pub optimizer: Option<String>,
    /// Relative extra time of a backward pass that is split in input and weight gradients.
    pub split_overhead: Option<f64>,
    /// Share of the experts' all-to-alls that runs behind computations of another micro-batch and takes no time, from 0 to
    /// below 1 (Megatron-Core's `overlap_moe_expert_parallel_comm`); 0 if left out.
    pub hidden_exchange: Option<f64>,
    /// Bytes that putting tokens in the order of the experts moves beyond reading and writing each copy, for each feature of a copy
    /// forward, and twice as many backward; 0 if left out. About 32 where XLA scatters them and derives the gradient.
    pub permute_traffic: Option<f64>,
    /// What takes tokens to experts and back: `all_to_all` sends a copy for each chosen expert; `deepep` (also HybridEP) sends a
    /// token once to a scale-up domain and once to a GPU there. `all_to_all` if left out.
    pub dispatcher: Option<String>,
    /// SMs that `deepep` takes to carry tokens; 20 if left out, as in DeepEP and Megatron-Core (`moe_deepep_num_sms`).
    pub dispatcher_sms: Option<u32>,
    /// Scale-up domains that a token's experts are on at most (DeepSeek-V3's node-limited routing: 4); any if left out. It matters
    /// with `deepep`.
    pub routing_domains: Option<u32>,
    /// Compute shared experts while tokens are on their way (Megatron-Core's `moe_shared_expert_overlap`); off if left out.
    pub overlap_shared: Option<bool>,
    /// Largest over mean load of an expert-parallel rank, in tokens received and computed.
    pub expert_imbalance: Option<f64>,
    /// Tokens that an expert takes, as a multiple of the mean; without it nothing is dropped or padded.
    pub capacity_factor: Option<f64>,
    /// Tensor-parallel ranks of one expert: tp, or 1.
    pub expert_tp: Option<u32>,
    /// Layers of each pipeline stage in stage order (stages = pp × chunks); equal parts if left out.
    pub layers_per_stage: Option<Vec<u32>>,
    /// File of measured kernels that overrides the roofline; where buildings differ in their GPUs, one by the name of each data sheet,
    /// such as `{H100-SXM: h100.csv, A100-80: a100.csv}`.
    pub profile: Option<ProfileFiles>,
    /// How constants given here are known, by key (`compute_share`, `dispatch`, `straggle`), for the evidence of the results; one that is
    /// not here counts as inferred.
    pub evidence: BTreeMap<String, ConstantEvidence>,
}

/// Files of measured kernels.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ProfileFiles {
    /// Of all GPUs.
    One(String),
    /// By data sheet; a GPU that is not among them has its sheet's times.
    BySheet(BTreeMap<String, String>),
}

impl ProfileFiles {
    /// The file of a GPU's kernels.
    pub fn of(&self, gpu: &str) -> Option<&str> {
        match self {
            Self::One(file) => Some(file),
            Self::BySheet(files) => {
                files.iter().find(|(name, _)| name.eq_ignore_ascii_case(gpu)).map(|(_, file)| file.as_str())
            }
        }
    }
}

impl JsonSchema for ProfileFiles {
    fn schema_name() -> Cow<'static, str> {
        "ProfileFiles".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "object"], "additionalProperties": { "type": "string" } })
    }

    fn inline_schema() -> bool {
        true
    }
}

/// How a constant of the scenario is known.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConstantEvidence {
    /// `measured`, `calibrated`, `data sheet` or `inferred`.
    pub kind: String,
    /// Where it is from, or what it was calibrated on.
    pub source: String,
}

/// How a model is laid out over ranks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Parallelism {
    /// Tensor parallelism.
    pub tp: u32,
    /// Context parallelism.
    pub cp: u32,
    /// Expert parallelism.
    pub ep: u32,
    /// Pipeline parallelism.
    pub pp: u32,
    /// Data parallelism; dense layers are replicated over ep × dp.
    pub dp: u32,
    /// Dimensions from the innermost (neighbouring ranks) to the outermost.
    pub order: Vec<Name<Axis>>,
    /// ZeRO stage: 0 is DDP, 3 is FSDP; the framework's, or 0, if left out.
    pub zero: Option<u8>,
    /// Replicas of the ZeRO shards (HSDP).
    pub replicate: u32,
    /// Pipeline schedule.
    pub schedule: ScheduleJob,
    /// Size of a DDP or ZeRO gradient bucket; 80 MB if neither this nor the framework says.
    pub bucket: Option<Size>,
    /// Reduce gradients beside the backward pass; `false` reduces them whole, after the last pass (ZeRO 0 to 2). On if neither
    /// this nor the framework says.
    pub overlap_gradients: Option<bool>,
    /// Sum gradients whole on every rank under ZeRO 1 (an all-reduce), though each needs its shard alone; off if neither this nor
    /// the framework says.
    pub whole_sums: Option<bool>,
    /// Whether the host waits for each exchange between stages before it launches on (early Megatron-LM); matters with
    /// `training.dispatch`. Off if neither this nor the framework says.
    pub blocking_exchange: Option<bool>,
    /// Layers gathered ahead by FSDP; 1 if neither this nor the framework says.
    pub prefetch: Option<u32>,
    /// Reduce gradients after `every` micro-batch or after the `last` (ZeRO 2 and 3), for which they add up whole, as under
    /// PyTorch's `no_sync`; `every` with `zero: 3`, `last` otherwise, if left out.
    pub reduce: Option<String>,
    /// When FSDP gives gathered parameters up: `never`, `per_run` or `per_pass`.
    pub reshard: Option<String>,
    /// How the gradient norm is formed: `off`, `per_axis` or `world`.
    pub clip: Option<String>,
    /// How the collectives of each dimension are done.
    pub collectives: DimensionCollectives,
}

impl Default for Parallelism {
    fn default() -> Self {
        let Layout { tp, cp, ep, pp, dp, order, replicate, .. } = Layout::default();
        Self {
            tp,
            cp,
            ep,
            pp,
            dp,
            order: order.map(Name).to_vec(),
            zero: None,
            replicate,
            schedule: ScheduleJob::default(),
            bucket: None,
            overlap_gradients: None,
            whole_sums: None,
            blocking_exchange: None,
            prefetch: None,
            reduce: None,
            reshard: None,
            clip: None,
            collectives: DimensionCollectives::default(),
        }
    }
}

/// How the collectives of each dimension are done.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DimensionCollectives {
    /// Tensor.
    pub tp: CollectiveSettings,
    /// Context.
    pub cp: CollectiveSettings,
    /// Expert.
    pub ep: CollectiveSettings,
    /// Data.
    pub dp: CollectiveSettings,
}

/// How a collective is done.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CollectiveSettings {
    /// Algorithm; chosen by size if left out.
    pub algorithm: Name<Algorithm>,
    /// How its edges are simulated.
    pub form: Name<Form>,
    /// Messages a rank may have in flight in a direct collective.
    pub outstanding: u32,
    /// What decides where the algorithm is left out; that of `network.collectives` if left out.
    pub tuner: Option<TunerName>,
    /// NCCL's environment beside that of `network.collectives`, such as `{NCCL_ALGO: ring}`.
    pub environment: BTreeMap<String, String>,
}

impl Default for CollectiveSettings {
    fn default() -> Self {
        Self {
            algorithm: Name(Algorithm::Auto),
            form: Name(Form::Auto),
            outstanding: outstanding(),
            tuner: None,
            environment: BTreeMap::new(),
        }
    }
}

/// Pipeline schedule.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleJob {
    /// Which.
    #[schemars(with = "Name<ScheduleName>")]
    pub name: String,
    /// Model chunks per rank; the schedule's own number if left out.
    pub chunks: Option<u16>,
    /// Contiguous micro-batches of one stage (flexible pipeline parallelism); pp if left out.
    pub run_length: Option<u32>,
    /// Forwards ahead per rank of distance from the last one.
    pub warm_up: Option<u32>,
    /// Input gradients that pass before the first weight gradient.
    pub w_delay: Option<u32>,
    /// Activations of chunks that a rank may hold at once (`zbv`, `zb-2p`; chunks × pp and 2 × pp if left out). With it `zbv` is searched
    /// for by the costs of its passes, as `zb-2p` always is.
    pub memory_cap: Option<u32>,
}

impl Default for ScheduleJob {
    fn default() -> Self {
        Self {
            name: "1f1b".to_owned(),
            chunks: None,
            run_length: None,
            warm_up: None,
            w_delay: None,
            memory_cap: None,
        }
    }
}

/// One collective over all ranks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectiveJob {
    /// Which.
    pub kind: Name<Whole>,
    /// Algorithm; chosen by size if left out.
    #[serde(default)]
    pub algorithm: Name<Algorithm>,
    /// Size as nccl-tests counts it.
    pub bytes: Size,
    /// Number of ranks; all GPUs if left out.
    #[serde(default)]
    pub ranks: Option<u32>,
    /// How its edges are simulated.
    #[serde(default)]
    pub form: Name<Form>,
    /// Messages a rank may have in flight in a direct collective.
    #[serde(default = "outstanding")]
    pub outstanding: u32,
    /// What decides where the algorithm is left out; that of `network.collectives` if left out.
    #[serde(default)]
    pub tuner: Option<TunerName>,
    /// NCCL's environment beside that of `network.collectives`, such as `{NCCL_ALGO: ring, NCCL_PROTO: simple}`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
}

/// What chooses an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TunerName {
    /// A simple rule by size; what it takes is what its messages take.
    Size,
    /// NCCL's (or RCCL's) own, with what its protocols, launches and hops cost.
    Nccl,
}

const fn outstanding() -> u32 {
    CollectiveSpec::OUTSTANDING
}

/// Independent messages, all at once or as a file says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowsJob {
    /// Who sends to whom.
    #[serde(default)]
    pub pattern: Option<FlowPattern>,
    /// Payload of each message.
    #[serde(default)]
    pub bytes: Option<Size>,
    /// Payload drawn uniformly between `bytes` and this.
    #[serde(default)]
    pub bytes_to: Option<Size>,
    /// Number of ranks; all GPUs if left out.
    #[serde(default)]
    pub ranks: Option<u32>,
    /// A connection matrix (`.cm`) or a table with the columns source, destination, bytes and start_ps (`.csv`).
    #[serde(default)]
    pub file: Option<String>,
    /// When the job ends: flows that are still under way are given up then and count as done (packet fidelity, one job of one
    /// iteration). Flows too large to end before it have no end. If left out, all flows are waited for.
    #[serde(default)]
    pub until: Option<Duration>,
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FlowPattern {
    /// Each rank to one other, each from one other, drawn from the seed.
    Permutation,
    /// All ranks to rank 0.
    Incast,
    /// Rank 0 to all ranks.
    Outcast,
    /// Each rank to every other.
    AllToAll,
    /// Each rank to the next.
    Ring,
}
