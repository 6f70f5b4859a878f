//! A model and a layout as a workload: layers over stages, work over pieces, pieces over ranks.

use serde_json::{Value, json};
use windtunnel_kernel::{Bytes, RankId, Span};
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::jobs::ModelFacts;
use windtunnel_workload::generate::{
    Axis, ChunkWork, Clip, CollectiveChoice, GradientReduce, Kind, Layout, Reshard, generate_on,
};
use windtunnel_workload::model::{
    Architecture, AttentionKernel, Chunk, ChunkCost, ContextExchange, Dispatcher, DlrmTraining, Evidence,
    GpuSheet, Graphs, Memory, MemoryVerdict, ModelKind, ModelSheet, Optimiser, Recompute, Resident, Sharding,
    Training, Zero, compute_time,
};
use windtunnel_workload::schedules::{Schedule, ScheduleName, ScheduleSettings};

use super::context::{Built, Context};
use super::experts::dispatcher;
use super::framework::Framework;
use super::kernels::precision;
use super::names::choice;
use super::on_gpus::{OnGpu, kinds_by_stage, on_gpus};
use super::told::{NO_FRAMEWORK, assumed, kind_of, says_nothing_of_software};
use crate::schema::jobs::CollectiveSettings;
use crate::schema::{Job, MemoryPolicy, ModelJob, Parallelism, WorkloadSource};
use crate::sheets;

/// Micro-batches of an iteration at most: each is computations and messages of its own on every rank.
const MOST_MICROBATCHES: u32 = 1 << 20;

/// Bytes of a gradient bucket where nobody says: what Megatron-LM takes for 40 million 16-bit gradients.
const BUCKET: u64 = 80_000_000;

/// Builds the workload of a job that trains `name`.
///
/// # Errors
/// [`InputError`] with the path of the key at fault.
pub fn build(
    name: &str,
    source: &WorkloadSource,
    job: &Job,
    context: &Context<'_>,
    evidence: &mut EvidenceList,
) -> Result<Built, InputError> {
    let place = format!("{}.workload", context.place);
    let sheet = model_sheet(name, context, &format!("{place}.model"))?;
    evidence.add(&format!("model {}", sheet.name), sheet.evidence.name(), &sheet.source);
    let gpu = context.fabric.gpu.as_deref().ok_or_else(|| {
        InputError::new(
            format!("{place}.model"),
            "a model needs to know its GPU, but `topology.host.gpu` is missing",
        )
        .hint("for example `gpu: H100-SXM`")
    })?;
    let mut training = source.training.clone().unwrap_or_default();
    let mut parallelism = job.parallelism.clone();
    let is_transformer = matches!(sheet.kind, ModelKind::Transformer(_));
    let untold = is_transformer && says_nothing_of_software(&training);
    let name = Framework::name_of(&training, parallelism.as_ref())
        .filter(|_| is_transformer || training.framework.is_some())
        .map(str::to_owned);
    if untold {
        let taken = name.as_ref().map_or_else(|| NO_FRAMEWORK.to_owned(), |name| assumed(name));
        evidence.add("framework", "inferred", &taken);
    }
    if let Some(name) = name {
        let framework = Framework::read(&name, context, &place)?;
        parallelism = Some(framework.complete(&mut training, parallelism.unwrap_or_default(), evidence));
    }
    let gpus = parallelism.as_ref().map_or_else(|| u64::from(context.gpus()), ranks);
    let on = on_gpus(&training, gpus, context, &place, evidence)?;
    let dispatcher = dispatcher(&training, &place, evidence)?;
    let need = |value: Option<u64>, key: &str| match value {
        Some(0) => Err(InputError::new(format!("{place}.{key}"), "expected at least 1, found 0")),
        Some(value) => Ok(value),
        None => Err(InputError::new(format!("{place}.{key}"), format!("a model needs `{key}`"))),
    };
    let global_batch = need(source.global_batch, "global_batch")?;
    match sheet.kind {
        ModelKind::Dlrm(architecture) => {
            let ranks = match &parallelism {
                Some(parallelism) => parallelism.dp,
                None => context.gpus(),
            };
            let precision = precision(&training, &place)?.compute;
            let domain = context.fabric.topology.scale_up_size();
            let dlrm = DlrmTraining { architecture, global_batch, ranks, lookups: 1, precision, domain };
            if context.fabric.kinds.differ() {
                let message = "recommendation models on GPUs of several data sheets are not modelled";
                return Err(InputError::new(format!("{place}.model"), message)
                    .hint("leave `host.gpu` out of `topology.buildings`, or train a transformer"));
            }
            let workload =
                dlrm.workload(&on[0].kernels).map_err(|error| InputError::new(&place, error.to_string()))?;
            Ok(Built::plain(workload))
        }
        ModelKind::Transformer(architecture) => {
            let parallelism = parallelism.unwrap_or_default();
            let rms = architecture.norm == windtunnel_workload::model::Norm::Rms;
            let apart = training.fused == Some(false);
            let mut on = on;
            for one in on.iter_mut().filter(|_| apart) {
                one.kernels = one.kernels.clone().separately(rms);
            }
            let job = Transformer {
                name: sheet.name,
                sequence: need(source.sequence, "sequence")?,
                micro_batch: need(source.micro_batch.or(Some(1)), "micro_batch")?,
                global_batch,
                settings: training,
                untold,
                parallelism,
                gpu,
                dispatcher,
                place: context.place,
            };
            job.build(architecture, &on, context)
        }
    }
}

/// What a collective that runs beside computations adds to them, as a share.
pub(super) fn overlap_slowdown(gpu: &GpuSheet) -> f64 {
    gpu.overlap_slowdown.as_ref().map_or(0.0, |figure| figure.value.0 - 1.0)
}

/// GPUs of a layout.
fn ranks(layout: &Parallelism) -> u64 {
    let axes = [layout.tp, layout.cp, layout.ep, layout.pp, layout.dp];
    axes.into_iter().fold(1, |product: u64, axis| product.saturating_mul(u64::from(axis)))
}

/// Whether the sheet `name` is of a recommendation model.
///
/// # Errors
/// [`InputError`] if there is no such sheet.
pub fn is_dlrm(name: &str, context: &Context<'_>) -> Result<bool, InputError> {
    let sheet = model_sheet(name, context, &format!("{}.workload.model", context.place))?;
    Ok(matches!(sheet.kind, ModelKind::Dlrm(_)))
}

pub(super) fn model_sheet(name: &str, context: &Context<'_>, place: &str) -> Result<ModelSheet, InputError> {
    let text = sheets::find("models", name, context.base, place)?;
    if let Ok(sheet) = ModelSheet::parse(&text.text) {
        return Ok(sheet);
    }
    // A plain `config.json`.
    let is_sheet = text.text.contains("\"config\"") || text.text.contains("config:");
    if !is_sheet {
        let architecture = Architecture::from_config(&text.text)
            .map_err(|error| InputError::new(&text.source, error.to_string()))?;
        return Ok(ModelSheet {
            name: text.name,
            evidence: Evidence::DataSheet,
            source: text.source,
            parameters: None,
            kind: ModelKind::Transformer(architecture),
        });
    }
    ModelSheet::parse(&text.text).map_err(|error| InputError::new(&text.source, error.to_string()))
}

/// A transformer with everything that lays it out.
pub(super) struct Transformer<'a> {
    pub(super) name: String,
    pub(super) sequence: u64,
    pub(super) micro_batch: u64,
    pub(super) global_batch: u64,
    pub(super) settings: ModelJob,
    /// Whether the job leaves open which software trains it.
    pub(super) untold: bool,
    pub(super) parallelism: Parallelism,
    /// The first kind of GPU.
    pub(super) gpu: &'a GpuSheet,
    pub(super) dispatcher: Option<Dispatcher>,
    pub(super) place: &'a str,
}

impl Transformer<'_> {
    fn at(&self, key: &str) -> String {
        format!("{}.{key}", self.place)
    }

    /// On the kinds of GPUs that there are, the first of which is [`Self::gpu`].
    fn build(
        &self,
        architecture: Architecture,
        on: &[OnGpu<'_>],
        context: &Context<'_>,
    ) -> Result<Built, InputError> {
        let layout = self.layout(&architecture, context)?;
        let training = self.training(architecture, &layout)?;
        let schedule = Schedule::new(&layout.schedule, layout.pp, layout.microbatches)
            .map_err(|error| InputError::new(self.at("parallelism.schedule"), error.to_string()))?;
        let chunks = self.chunks(&training.architecture, schedule.placement.stages())?;
        let cost = |one: &OnGpu<'_>| -> Vec<ChunkCost> {
            chunks.iter().map(|chunk| training.chunk(chunk, &one.kernels)).collect()
        };
        let costs: Vec<Vec<ChunkCost>> = on.iter().map(cost).collect();
        let stages: Vec<Vec<ChunkWork>> =
            costs.iter().map(|costs| costs.iter().map(|cost| cost.work.clone()).collect()).collect();
        let kinds: Vec<Kind<'_>> = on
            .iter()
            .zip(&stages)
            .map(|(one, stages)| Kind { stages, overlap_slowdown: overlap_slowdown(one.gpu) })
            .collect();
        let mut layout = layout;
        let share = chunks.iter().map(|chunk| training.kept_share(chunk)).fold(0.0, f64::max);
        layout.schedule.kept = Some(share);
        let generated = generate_on(&layout, &kinds)
            .map_err(|error| InputError::new(self.at("parallelism"), error.to_string()))?;
        let sharding = Self::sharding(&layout);
        let memory: Vec<Memory> = (0..layout.pp)
            .map(|rank| memory_of(&training, &generated.schedule, &chunks, rank, &sharding))
            .collect();
        let mut warnings = Vec::new();
        let grid = &generated.grid;
        let ranks = generated.workload.ranks() as u32;
        let coordinates = |rank: u32| grid.coordinates(RankId(rank));
        let lies = kinds_by_stage(layout.pp, ranks, context, |rank| coordinates(rank).pp);
        let least =
            |kinds: &Vec<usize>| kinds.iter().map(|&kind| on[kind].gpu).min_by_key(|gpu| gpu.memory.value);
        let rooms: Vec<&GpuSheet> = lies.iter().map(|kinds| least(kinds).unwrap_or(self.gpu)).collect();
        let verdict = self.check_memory(&training, &memory, &rooms, &sharding, context, &mut warnings)?;
        let pipeline = (0..ranks)
            .filter(|&rank| {
                let at = coordinates(rank);
                at.tp == 0 && at.cp == 0 && at.ep == 0 && at.dp == 0
            })
            .map(RankId)
            .collect();
        let tokens = self.global_batch * self.sequence;
        let compute = training.precision.compute;
        let peak = |one: &OnGpu<'_>| one.gpu.peak.of(compute).map_or(0.0, |figure| figure.value.0);
        let mut used: Vec<usize> = lies.iter().flatten().copied().collect();
        used.sort_unstable();
        used.dedup();
        let model = ModelFacts {
            tokens,
            flops: training.model_flops_per_token(false) as f64 * tokens as f64,
            peak_flops: on.iter().map(peak).collect(),
            memory: verdict,
            // Nobody has measured how far jobs on GPUs of several kinds are off.
            expected_error: match used.as_slice() {
                &[kind] => crate::error_bands::of(
                    kind_of(&training, on[kind].gpu, self.untold),
                    &crate::error_bands::Job {
                        gpu: &on[kind].gpu.name,
                        gpus: u64::from(ranks),
                        sequence: self.sequence,
                    },
                    context.base,
                ),
                _ => Value::Null,
            },
            explanation: self.explanation(
                &training,
                &layout,
                &chunks,
                &costs,
                (&lies, on),
                &memory,
                &generated,
            ),
        };
        let first_replica = |rank: u32| {
            let at = coordinates(rank);
            grid.rank(windtunnel_workload::generate::Coordinates { dp: 0, ..at })
        };
        Ok(Built {
            first_replica: if layout.dp > 1 { (0..ranks).map(first_replica).collect() } else { Vec::new() },
            stages: (0..ranks).map(|rank| coordinates(rank).pp).collect(),
            workload: generated.workload,
            pipeline,
            model: Some(model),
            warnings,
            kinds: on.len() as u32,
        })
    }

    pub(super) fn layout(
        &self,
        architecture: &Architecture,
        context: &Context<'_>,
    ) -> Result<Layout, InputError> {
        let given = &self.parallelism;
        let order: Vec<Axis> = given.order.iter().map(|axis| axis.0).collect();
        let order: [Axis; 5] = order.try_into().map_err(|order: Vec<Axis>| {
            InputError::new(
                self.at("parallelism.order"),
                format!("expected each of tp, cp, ep, dp and pp once, found {} names", order.len()),
            )
        })?;
        let reduce = choice(
            given.reduce.as_deref(),
            &self.at("parallelism.reduce"),
            &[("last", GradientReduce::LastMicrobatch), ("every", GradientReduce::EveryMicrobatch)],
            // FSDP and DeepSpeed keep no whole gradients unless they are told to (`no_sync`).
            if given.zero == Some(3) {
                GradientReduce::EveryMicrobatch
            } else {
                GradientReduce::LastMicrobatch
            },
        )?;
        let reshard = choice(
            given.reshard.as_deref(),
            &self.at("parallelism.reshard"),
            &[("never", Reshard::Never), ("per_run", Reshard::PerRun), ("per_pass", Reshard::PerPass)],
            Reshard::default(),
        )?;
        let clip = choice(
            given.clip.as_deref(),
            &self.at("parallelism.clip"),
            &[("off", Clip::Off), ("per_axis", Clip::PerAxis), ("world", Clip::World)],
            Clip::default(),
        )?;
        let collective = |settings: &CollectiveSettings| CollectiveChoice {
            algorithm: settings.algorithm.0,
            form: settings.form.0,
            outstanding: settings.outstanding,
        };
        let of = &given.collectives;
        let other = CollectiveSettings::default();
        let by_dimension = [&of.tp, &of.cp, &of.ep, &other, &of.dp, &other];
        let gradient_bits = precision(&self.settings, &self.at("workload"))?.gradients.bits();
        let shared = architecture.tied_embeddings || self.settings.multi_token_prediction.unwrap_or(0) > 0;
        let embedding = architecture.vocabulary.div_ceil(u64::from(given.tp.max(1))) * architecture.hidden;
        let mut layout = Layout {
            tp: given.tp,
            cp: given.cp,
            ep: given.ep,
            pp: given.pp,
            dp: given.dp,
            replicate: given.replicate,
            zero: given.zero.unwrap_or(0),
            order,
            schedule: self.schedule()?,
            bucket_bytes: given.bucket.map_or(Bytes::new(BUCKET), |size| size.0),
            overlap_gradients: given.overlap_gradients.unwrap_or(true),
            whole_sums: given.whole_sums.unwrap_or(false),
            blocking_exchange: given.blocking_exchange.unwrap_or(false),
            prefetch: given.prefetch.unwrap_or(1),
            reshard,
            reduce,
            clip,
            tied_embedding: (shared && given.pp > 1).then_some(Bytes::new(embedding * gradient_bits / 8)),
            domain: context.fabric.topology.scale_up_size(),
            collectives: by_dimension.map(collective),
            overlap_slowdown: overlap_slowdown(self.gpu),
            ..Layout::default()
        };
        let at = self.at("parallelism");
        layout.check().map_err(|error| InputError::new(&at, error.to_string()))?;
        layout.microbatches = layout
            .microbatches_of(self.global_batch, self.micro_batch)
            .map_err(|error| InputError::new(self.at("workload.global_batch"), error.to_string()))?;
        if layout.microbatches > MOST_MICROBATCHES {
            let message = format!(
                "{} micro-batches go through every pipeline in an iteration, expected at most {MOST_MICROBATCHES}",
                layout.microbatches
            );
            return Err(InputError::new(self.at("workload.global_batch"), message)
                .hint("a larger `micro_batch`, or more replicas (`dp`)"));
        }
        Ok(layout)
    }

    fn schedule(&self) -> Result<ScheduleSettings, InputError> {
        let given = &self.parallelism.schedule;
        let name: ScheduleName =
            given.name.parse().map_err(|error: windtunnel_workload::schedules::ScheduleError| {
                InputError::new(self.at("parallelism.schedule.name"), error.to_string())
            })?;
        Ok(ScheduleSettings {
            chunks: given.chunks,
            run_length: given.run_length,
            warm_up: given.warm_up,
            w_delay: given.w_delay,
            memory_cap: given.memory_cap,
            split_overhead: self.settings.split_overhead.unwrap_or(0.0),
            ..ScheduleSettings::new(name)
        })
    }

    pub(super) fn training(
        &self,
        architecture: Architecture,
        layout: &Layout,
    ) -> Result<Training, InputError> {
        let settings = &self.settings;
        let at = |key: &str| self.at(&format!("workload.training.{key}"));
        let recompute = choice(
            settings.recompute.as_deref(),
            &at("recompute"),
            &[
                ("none", Recompute::None),
                ("selective", Recompute::Selective),
                ("operations", Recompute::Operations),
                ("full", Recompute::Full),
            ],
            Recompute::None,
        )?;
        let attention = choice(
            settings.attention.as_deref(),
            &at("attention"),
            &[
                ("flash", AttentionKernel::Flash),
                ("flash1", AttentionKernel::Flash),
                ("flash2", AttentionKernel::Flash),
                ("flash3", AttentionKernel::Flash),
                ("unfused", AttentionKernel::Unfused),
            ],
            AttentionKernel::Flash,
        )?;
        let context = choice(
            settings.context_exchange.as_deref(),
            &at("context_exchange"),
            &[("ring", ContextExchange::Ring), ("all_gather", ContextExchange::AllGather)],
            ContextExchange::Ring,
        )?;
        let graphs = choice(
            settings.graphs.as_deref(),
            &at("graphs"),
            &[("none", Graphs::None), ("layers", Graphs::Layers), ("all", Graphs::All)],
            Graphs::None,
        )?;
        let optimiser = choice(
            settings.optimizer.as_deref(),
            &at("optimizer"),
            &[("adam", Optimiser::Adam), ("muon", Optimiser::Muon)],
            Optimiser::Adam,
        )?;
        let shards = Self::sharding(layout);
        let training = Training {
            micro_batch: self.micro_batch,
            tp: u64::from(layout.tp),
            cp: u64::from(layout.cp),
            ep: u64::from(layout.ep),
            expert_tp: u64::from(settings.expert_tp.unwrap_or(layout.tp)),
            sequence_parallel: settings.sequence_parallel.unwrap_or(true) && layout.tp > 1,
            precision: precision(settings, &self.at("workload"))?,
            adds_gradients: shards.zero < Zero::Parameters || shards.whole_gradients,
            recompute,
            recompute_layers: settings.recompute_layers,
            predictions: settings.multi_token_prediction.unwrap_or(0),
            lora_rank: settings.lora_rank,
            regather: settings.regather.unwrap_or(true),
            narrow_gathers: settings.narrow_gathers.unwrap_or(false),
            attention,
            causal: settings.causal.unwrap_or(true) && attention == AttentionKernel::Flash,
            dropout: settings.dropout.unwrap_or(false),
            context,
            capacity_factor: settings.capacity_factor,
            imbalance: settings.expert_imbalance.unwrap_or(1.0),
            hidden_exchange: settings.hidden_exchange.unwrap_or(0.0),
            dispatcher: self.dispatcher,
            overlap_shared: settings.overlap_shared.unwrap_or(false),
            overlap_chunks: settings.overlap_chunks.unwrap_or(1),
            overlap_backward: settings.overlap_backward.unwrap_or(true),
            scatter_gather: settings.scatter_gather,
            fused: settings.fused.unwrap_or(true),
            fused_loss: settings.fused_loss.unwrap_or(true),
            reserved: settings.reserved.map_or(0, |size| size.0.get()),
            graphs,
            fused_experts: settings.fused_experts.unwrap_or(true),
            fused_expert_mlp: settings.fused_expert_mlp.unwrap_or(false),
            padded_experts: settings.padded_experts.unwrap_or(true),
            dispatch: settings.dispatch.map_or(Span::ZERO, |duration| duration.0),
            straggle: settings.straggle.map_or(Span::ZERO, |duration| duration.0),
            optimiser,
            optimiser_shards: if layout.zero > 0 { shards.shards } else { 1 },
            expert_optimiser_shards: if layout.zero > 0 { shards.expert_shards } else { 1 },
            ..Training::new(architecture, self.sequence)
        };
        training.check().map_err(|error| InputError::new(self.at("parallelism"), error.to_string()))?;
        Ok(training)
    }

    pub(super) fn sharding(layout: &Layout) -> Sharding {
        let replicas = u64::from(layout.cp) * u64::from(layout.dp) / u64::from(layout.replicate.max(1));
        Sharding {
            zero: Zero::stage(layout.zero).unwrap_or_default(),
            shards: replicas * u64::from(layout.ep),
            expert_shards: replicas,
            gathered_units: u64::from(layout.prefetch) + 1,
            stays_gathered: layout.reshard == Reshard::Never,
            whole_gradients: layout.reduce == GradientReduce::LastMicrobatch && layout.microbatches > 1,
        }
    }

    /// Chunks of the model, one for each of `stages` (see [`chunks`]).
    pub(super) fn chunks(&self, architecture: &Architecture, stages: u32) -> Result<Vec<Chunk>, InputError> {
        chunks(self.settings.layers_per_stage.as_deref(), architecture, stages, || self.place.to_owned())
    }

    /// The fullest rank's memory as JSON; refuses or warns as the scenario says. `rooms` is the smallest GPU of each pipeline rank.
    fn check_memory(
        &self,
        training: &Training,
        memory: &[Memory],
        rooms: &[&GpuSheet],
        sharding: &Sharding,
        context: &Context<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Value, InputError> {
        // What is missing, or negative what is left.
        let missing = |stage: usize, memory: &Memory| {
            i128::from(memory.total().get()) - i128::from(rooms[stage].memory.value.get())
        };
        let (stage, fullest) = memory
            .iter()
            .enumerate()
            .max_by_key(|(stage, memory)| (missing(*stage, memory), std::cmp::Reverse(*stage)))
            .expect("a pipeline has at least one rank");
        let (gpu, capacity) = (rooms[stage], rooms[stage].memory.value);
        if let MemoryVerdict::Exceeds { missing, hint } = training.memory_verdict(fullest, capacity, sharding)
        {
            let gib = |bytes: Bytes| bytes.get() as f64 / f64::from(1u32 << 30);
            let message = format!(
                "pipeline rank {stage} needs {:.1} GiB, but a {} has {:.1} GiB: {:.1} GiB missing (weights {:.1}, gradients \
                 {:.1}, optimiser {:.1}, activations {:.1}, buffers {:.1})",
                gib(fullest.total()),
                gpu.name,
                gib(capacity),
                gib(missing),
                gib(fullest.weights),
                gib(fullest.gradients),
                gib(fullest.optimiser),
                gib(fullest.activations),
                gib(fullest.buffers),
            );
            match context.scenario.memory {
                MemoryPolicy::Refuse => {
                    return Err(InputError::new(self.place, message)
                        .hint(format!("{hint}, or set `memory: warn` to run it all the same")));
                }
                MemoryPolicy::Warn => warnings.push(format!("{}: {message}", self.place)),
                MemoryPolicy::Ignore => {}
            }
        }
        let mut json = memory_json(fullest);
        json["total"] = json!(fullest.total().get());
        json["capacity"] = json!(capacity.get());
        Ok(json)
    }

    fn explanation(
        &self,
        training: &Training,
        layout: &Layout,
        chunks: &[Chunk],
        costs: &[Vec<ChunkCost>],
        (lies, on): (&[Vec<usize>], &[OnGpu<'_>]),
        memory: &[Memory],
        generated: &windtunnel_workload::generate::Generated,
    ) -> Value {
        let seconds = |pieces: &[windtunnel_workload::generate::Piece]| compute_time(pieces).seconds();
        // The slowest GPU sets the pace of its stage.
        let pace = |stage: usize, kind: usize| {
            let work = &costs[kind][stage].work;
            compute_time(&work.forward) + compute_time(&work.backward)
        };
        let placement = generated.schedule.placement;
        let kinds_of = |stage: usize| {
            let mut found: Vec<usize> = placement
                .holders(stage as u32)
                .iter()
                .flat_map(|&(rank, _)| lies[rank as usize].clone())
                .collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        let stages: Vec<Value> = chunks
            .iter()
            .enumerate()
            .map(|(stage, chunk)| {
                let kinds = kinds_of(stage);
                let slowest =
                    kinds.iter().copied().max_by_key(|&kind| (pace(stage, kind), std::cmp::Reverse(kind)));
                let cost = &costs[slowest.unwrap_or(0)][stage];
                let mut told = json!({
                    "stage": stage,
                    "layers": [chunk.layers.start, chunk.layers.end],
                    "embedding": chunk.embedding,
                    "head": chunk.head,
                    "forward_compute_s": seconds(&cost.work.forward),
                    "backward_compute_s": seconds(&cost.work.backward),
                    "forward_flops": cost.flops.forward,
                    "backward_flops": cost.flops.backward,
                    "recomputed_flops": cost.flops.recomputed,
                    "parameter_bytes": cost.work.parameter_bytes.iter().map(|bytes| bytes.get()).sum::<u64>()
                        + cost.work.expert_parameter_bytes.iter().map(|bytes| bytes.get()).sum::<u64>(),
                    "send_bytes": cost.work.send_bytes.get(),
                    "activation_bytes": training.chunk_activation_bytes(chunk).get(),
                });
                if on.len() > 1 {
                    told["gpus"] = kinds.iter().map(|&kind| on[kind].gpu.name.as_str()).collect();
                }
                told
            })
            .collect();
        let ranks: Vec<Value> = memory
            .iter()
            .enumerate()
            .map(|(rank, memory)| {
                let mut json = memory_json(memory);
                json["total"] = json!(memory.total().get());
                json["pipeline_rank"] = json!(rank);
                json["peak_in_flight"] = json!(generated.schedule.peak_in_flight(rank as u32));
                json
            })
            .collect();
        let groups: Vec<Value> = generated
            .groups
            .iter()
            .map(|group| json!({"role": group.role.name(), "groups": group.count, "size": group.size}))
            .collect();
        json!({
            "name": self.name,
            "parameters": training.architecture.parameters(),
            "active_parameters": training.architecture.active_parameters(),
            "layers": training.architecture.layers,
            "micro_batches": layout.microbatches,
            "schedule": layout.schedule.name.name(),
            "stages": stages,
            "memory_by_pipeline_rank": ranks,
            "communicators": groups,
        })
    }
}

fn memory_json(memory: &Memory) -> Value {
    json!({
        "weights": memory.weights.get(),
        "gradients": memory.gradients.get(),
        "optimiser": memory.optimiser.get(),
        "activations": memory.activations.get(),
        "buffers": memory.buffers.get(),
    })
}

/// Memory of the GPUs of a pipeline rank; activations as the schedule keeps them.
fn memory_of(
    training: &Training,
    schedule: &Schedule,
    chunks: &[Chunk],
    rank: u32,
    sharding: &Sharding,
) -> Memory {
    let held: Vec<&Chunk> = (0..schedule.placement.chunks)
        .map(|chunk| &chunks[schedule.placement.stage(rank, chunk) as usize])
        .collect();
    let resident: Vec<Resident> =
        held.iter().map(|chunk| Resident { chunk: (*chunk).clone(), in_flight: 1 }).collect();
    let mut memory = training.memory(&resident, sharding);
    let whole: Vec<u64> = held.iter().map(|chunk| training.chunk_activation_bytes(chunk).get()).collect();
    let kept: Vec<u64> = (whole.iter().zip(&held))
        .map(|(whole, chunk)| (*whole as f64 * training.kept_share(chunk)).ceil() as u64)
        .collect();
    memory.activations = Bytes::new(schedule.peak_activation(rank, &whole, &kept));
    memory
}

/// Layers of each stage: as given, or equal; where two are short of that, the first and the last stage hold one less
/// each, beside the embedding and the head (Llama 3, §3.3.2). Errors are of the job at `place`.
pub(super) fn chunks(
    given: Option<&[u32]>,
    architecture: &Architecture,
    stages: u32,
    place: impl Fn() -> String,
) -> Result<Vec<Chunk>, InputError> {
    let at = || format!("{}.workload.training.layers_per_stage", place());
    let equal;
    let per_stage = if let Some(given) = given {
        if given.len() != stages as usize {
            let message =
                format!("there are {stages} stages (pp × chunks), but {} numbers of layers", given.len());
            return Err(InputError::new(at(), message));
        }
        given
    } else {
        let most = architecture.layers.div_ceil(stages);
        let missing = most * stages - architecture.layers;
        if !(missing == 0 || missing == 2 && stages > 2) {
            let message =
                format!("{stages} stages (pp × chunks) do not divide the layers: {}", architecture.layers);
            return Err(InputError::new(format!("{}.parallelism.pp", place()), message).hint(format!(
                "choose `pp` and `schedule.chunks` whose product divides {}, or name the layers of each stage in \
                 `workload.training.layers_per_stage`",
                architecture.layers
            )));
        }
        let mut all = vec![most; stages as usize];
        if missing == 2 {
            all[0] -= 1;
            all[stages as usize - 1] -= 1;
        }
        equal = all;
        &equal
    };
    Chunk::split(architecture.layers, per_stage).ok_or_else(|| {
        let sum: u64 = per_stage.iter().map(|&layers| u64::from(layers)).sum();
        let layers = architecture.layers;
        let message = format!("{sum} layers are spread over the stages, but the model has {layers}");
        InputError::new(at(), message)
    })
}
