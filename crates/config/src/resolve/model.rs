//! A model and a layout as a workload: layers over stages, work over pieces, pieces over ranks.

use serde_json::Value;
use windtunnel_kernel::{Bytes, RankId};
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::jobs::ModelFacts;
use windtunnel_workload::generate::{
    Axis, ChunkWork, Clip, CollectiveChoice, GradientReduce, Kind, Layout, Reshard, generate_on,
};
use windtunnel_workload::model::{
    Architecture, Chunk, ChunkCost, Dispatcher, DlrmTraining, Evidence, GpuSheet, Memory, ModelKind,
    ModelSheet,
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
use crate::schema::{Job, ModelJob, Parallelism, WorkloadSource};
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
    pub(super) fn at(&self, key: &str) -> String {
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
            .map(|rank| Self::memory_of(&training, &generated.schedule, &chunks, rank, &sharding))
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

    /// Chunks of the model, one for each of `stages` (see [`chunks`]).
    pub(super) fn chunks(&self, architecture: &Architecture, stages: u32) -> Result<Vec<Chunk>, InputError> {
        chunks(self.settings.layers_per_stage.as_deref(), architecture, stages, || self.place.to_owned())
    }
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
