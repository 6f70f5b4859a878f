//! Layouts laid out and priced.

use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use serde_json::Value;
use windtunnel_kernel::Bytes;
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::fabric::FabricParts;
use windtunnel_plan::inputs::Inputs;
use windtunnel_topology::{LinkId, LoadBalancer};
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::collectives::nccl::Library;
use windtunnel_workload::estimate::pass::Runs;
use windtunnel_workload::estimate::{
    Course, Ends, Gathering, LANES, Reducing, Sheet, StagePrice, Times, Tolls, pair, price,
};
use windtunnel_workload::generate::{ChunkWork, Clip, Layout, Reshard, Role, with_costs};
use windtunnel_workload::model::{Architecture, Chunk, KernelModel, ModelKind, Resident, Training};
use windtunnel_workload::schedules::flexible::default_run_length;
use windtunnel_workload::schedules::{
    Placement, Schedule, ScheduleError, ScheduleName, ScheduleSettings, Shape,
};

use super::super::context::Context;
use super::super::experts::dispatcher;
use super::super::framework::Framework;
use super::super::kernels::kernels;
use super::super::model::{Transformer, model_sheet};
use super::super::told::says_nothing_of_software;
use super::super::{fabric, nccl};
use super::choice::{Answer, Choice};
use super::tariff::{Rates, Tariffs, Ways};
use crate::load::from_yaml;
use crate::schema::{Job, ModelJob, Parallelism, Scenario};

/// Bytes of the norm of a gradient.
const NORM: Bytes = Bytes::new(4);

/// A chunk's layers as far as its price depends on them: how many, of which kinds, and which ends of the model.
type Layers = (u32, u64, bool, bool);

/// What a chunk's work depends on beside its layers: settings, tp, cp, ep, micro-batch.
type WorkKey = (u32, u32, u32, u32, u64, Layers);

/// What depends on the layout's sizes alone: tp, cp, ep, pp, dp, replicate, order, two directions.
type GridKey = ([u32; 6], String, bool);

/// A course by its schedule, pipeline ranks, micro-batches, and what it gathers and reduces.
type CourseKey = (String, u32, u32, Gathering, Reducing);

/// Prices of a job's layouts.
pub struct Estimator {
    scenario: Scenario,
    source: String,
    inputs: Inputs,
    index: usize,
    fabric: FabricParts,
    ideal: bool,
    slow: FxHashMap<LinkId, f64>,
    speed: f64,
    architecture: Architecture,
    libraries: [Option<Library>; Dimension::ALL.len()],
    parallelisms: FxHashMap<String, Parallelism>,
    trainings: FxHashMap<String, (u32, ModelJob)>,
    kernels: FxHashMap<(u32, u64), Rc<KernelModel>>,
    works: FxHashMap<WorkKey, Rc<ChunkWork>>,
    tariffs: FxHashMap<GridKey, Rc<Tariffs>>,
    courses: FxHashMap<CourseKey, Rc<Course>>,
}

/// A layout that fits its model, with the prices of its stages.
struct Laid {
    layout: Layout,
    training: Training,
    chunks: Vec<Chunk>,
    /// By stage.
    prices: Vec<Rc<StagePrice>>,
    optimisers: Vec<f64>,
    placement: Placement,
    tariffs: Rc<Tariffs>,
    keys: Vec<CourseKey>,
    /// Rounds by which the step is longer than the first course; the second is one longer.
    rounds: f64,
    tokens: u64,
    flops: f64,
    peak: f64,
}

impl Estimator {
    /// Of job number `index` of a scenario; on an `ideal` fabric only NICs are shared.
    ///
    /// # Errors
    /// [`InputError`] for what is wrong with the scenario whatever the layout.
    pub fn new(
        scenario: Scenario,
        source: &str,
        inputs: &Inputs,
        index: usize,
        ideal: bool,
    ) -> Result<Self, InputError> {
        let mut evidence = EvidenceList::default();
        let topology = fabric::resolve(&scenario.topology, source, "topology", inputs)?;
        let parts = fabric::fabric(&topology, scenario.network.load_balancer.hash.of(), &mut evidence)?;
        let at = format!("{source}: jobs[{index}]");
        if scenario.network.header.0 >= scenario.network.mtu.0 {
            return Err(InputError::new(format!("{source}: network.mtu"), "`mtu` must exceed `header`"));
        }
        let job: Job = scenario.jobs.list().get(index).cloned().ok_or_else(|| {
            let found = scenario.jobs.list().len();
            InputError::new(
                format!("{source}: jobs"),
                format!("there is no job number {index}: there are {found}"),
            )
        })?;
        let context =
            Context { scenario: &scenario, fabric: &parts, storage: None, base: inputs, place: &at };
        let named = job.workload.as_ref().and_then(|workload| workload.model.clone());
        let Some(model) = named else {
            return Err(InputError::new(
                format!("{at}.workload"),
                "expected a `model`, for only a model has layouts",
            ));
        };
        if parts.gpu.is_none() {
            let error =
                InputError::new(&at, "a model needs to know its GPU, but `topology.host.gpu` is missing");
            return Err(error.hint("for example `gpu: H100-SXM`"));
        }
        let ModelKind::Transformer(architecture) =
            model_sheet(&model, &context, &format!("{at}.workload.model"))?.kind
        else {
            return Err(InputError::new(at, "expected a transformer, for only those have layouts"));
        };
        let libraries = nccl::libraries(&job, &context, &mut evidence)?;
        let slow = parts.bus_links().collect();
        let everywhere = |rule: &&crate::schema::SpeedRule| rule.host.is_none() && rule.gpu.is_none();
        let speed = scenario.variation.speeds.iter().filter(everywhere).map(|rule| rule.speed).product();
        Ok(Self {
            source: source.to_owned(),
            inputs: inputs.clone(),
            index,
            fabric: parts,
            ideal,
            slow,
            speed,
            architecture,
            libraries,
            scenario,
            parallelisms: FxHashMap::default(),
            trainings: FxHashMap::default(),
            kernels: FxHashMap::default(),
            works: FxHashMap::default(),
            tariffs: FxHashMap::default(),
            courses: FxHashMap::default(),
        })
    }

    /// Answers for each of `choices`, in their order.
    pub fn answers(&mut self, choices: &[Choice]) -> Vec<Answer> {
        let mut answers = vec![Answer::default(); choices.len()];
        let mut laid: Vec<Option<Laid>> = Vec::with_capacity(choices.len());
        for (choice, answer) in choices.iter().zip(&mut answers) {
            laid.push(match self.lay(choice) {
                Ok(laid) => Some(laid),
                Err(error) => {
                    answer.refused = Some(error.to_string());
                    None
                }
            });
        }
        // Those of one course side by side, in the order of their courses' first appearance.
        let mut groups: BTreeMap<&CourseKeyOrder, Vec<(usize, usize)>> = BTreeMap::new();
        let ordered: Vec<Vec<CourseKeyOrder>> = laid
            .iter()
            .map(|laid| laid.iter().flat_map(|laid| laid.keys.iter().map(order_of)).collect())
            .collect();
        for (at, keys) in ordered.iter().enumerate() {
            for (part, key) in keys.iter().enumerate() {
                groups.entry(key).or_default().push((at, part));
            }
        }
        let mut ends: Vec<Vec<Ends>> = laid
            .iter()
            .map(|laid| laid.as_ref().map_or_else(Vec::new, |laid| vec![Ends::default(); laid.keys.len()]))
            .collect();
        for members in groups.values() {
            let (first, part) = members[0];
            let key = laid[first].as_ref().expect("it has a course").keys[part].clone();
            let course = Rc::clone(&self.courses[&key]);
            for together in members.chunks(LANES) {
                let mut sheet = Sheet::new(&course);
                for (lane, &(at, _)) in together.iter().enumerate() {
                    laid[at].as_ref().expect("it has a course").write(&course, &mut sheet, lane);
                }
                for (&(at, part), found) in together.iter().zip(course.run(&sheet, together.len())) {
                    ends[at][part] = found;
                }
            }
        }
        let capacity = self.fabric.gpu.as_ref().map_or(Bytes::ZERO, |gpu| gpu.memory.value);
        for ((laid, ends), answer) in laid.iter().zip(&ends).zip(&mut answers) {
            let Some(laid) = laid else { continue };
            let course = &self.courses[&laid.keys[0]];
            laid.answer(course, ends, answer);
            answer.capacity_bytes = capacity.get();
        }
        answers
    }

    fn context<'a>(&'a self, place: &'a str) -> Context<'a> {
        Context { scenario: &self.scenario, fabric: &self.fabric, storage: None, base: &self.inputs, place }
    }

    /// The settings of a choice: number and value.
    fn training(&mut self, choice: &Choice, job: &Job) -> Result<(u32, ModelJob), InputError> {
        let text = choice.training.as_ref().map(Value::to_string).unwrap_or_default();
        if let Some((number, known)) = self.trainings.get(&text) {
            return Ok((*number, known.clone()));
        }
        let at = format!("{}: jobs[{}].workload.training", self.source, self.index);
        let own = || job.workload.as_ref().and_then(|workload| workload.training.clone()).unwrap_or_default();
        let read = if choice.training.is_some() { from_yaml(&text, &at)? } else { own() };
        let number = self.trainings.len() as u32;
        self.trainings.insert(text, (number, read.clone()));
        Ok((number, read))
    }

    fn parallelism(&mut self, choice: &Choice, job: &Job) -> Result<Parallelism, InputError> {
        let Some(given) = &choice.parallelism else { return Ok(job.parallelism.clone().unwrap_or_default()) };
        let text = given.to_string();
        if let Some(known) = self.parallelisms.get(&text) {
            return Ok(known.clone());
        }
        let at = format!("{}: jobs[{}].parallelism", self.source, self.index);
        let read: Parallelism = serde_path_to_error::deserialize(given)
            .map_err(|error| InputError::new(format!("{at}.{}", error.path()), error.inner().to_string()))?;
        self.parallelisms.insert(text, read.clone());
        Ok(read)
    }

    #[expect(clippy::too_many_lines, reason = "the steps of a run's own layout, one after another")]
    fn lay(&mut self, choice: &Choice) -> Result<Laid, InputError> {
        let place = format!("{}: jobs[{}]", self.source, self.index);
        let at = format!("{place}.workload");
        let job = self.scenario.jobs.list()[self.index].clone();
        let Some(source) = job.workload.clone() else {
            return Err(InputError::new(at, "a layout needs a model"));
        };
        let (number, mut settings) = self.training(choice, &job)?;
        let mut parallelism = self.parallelism(choice, &job)?;
        if let Some(layers) = &choice.layers_per_stage {
            settings.layers_per_stage.clone_from(layers);
        }
        let mut evidence = EvidenceList::default();
        let untold = says_nothing_of_software(&settings);
        if let Some(framework) = Framework::of(&settings, &self.context(&place), &at)? {
            parallelism = framework.complete(&mut settings, parallelism, &mut evidence);
        }
        let axes = [parallelism.tp, parallelism.cp, parallelism.ep, parallelism.pp, parallelism.dp];
        let gpus = axes.into_iter().fold(1, |product: u64, axis| product.saturating_mul(u64::from(axis)));
        let have = u64::from(self.fabric.topology.endpoints());
        if gpus > have {
            let message = format!("the job has {gpus} ranks, but the topology has {have} GPUs");
            return Err(InputError::new(&place, message));
        }
        let gpu = self.fabric.gpu.clone().expect("it was asked for before");
        let known = self.kernels.get(&(number, gpus)).cloned();
        let model = if let Some(known) = known {
            known
        } else {
            let context = self.context(&place);
            let made = kernels(&settings, &gpu, gpus, &context, &at, &mut evidence)?;
            let rms = self.architecture.norm == windtunnel_workload::model::Norm::Rms;
            let made = Rc::new(if settings.fused == Some(false) { made.separately(rms) } else { made });
            self.kernels.insert((number, gpus), Rc::clone(&made));
            made
        };
        let need = |value: Option<u64>, key: &str| match value {
            Some(0) => Err(InputError::new(format!("{at}.{key}"), "expected at least 1, found 0")),
            Some(value) => Ok(value),
            None => Err(InputError::new(format!("{at}.{key}"), format!("a model needs `{key}`"))),
        };
        let transformer = Transformer {
            name: String::new(),
            sequence: need(source.sequence, "sequence")?,
            micro_batch: need(choice.micro_batch.or(source.micro_batch).or(Some(1)), "micro_batch")?,
            global_batch: need(choice.global_batch.or(source.global_batch), "global_batch")?,
            dispatcher: dispatcher(&settings, &at, &mut evidence)?,
            settings,
            untold,
            parallelism,
            gpu: &gpu,
            kernels: KernelModel::clone(&model),
            place: &place,
        };
        let layout = transformer.layout(&self.architecture, &self.context(&place))?;
        let training = transformer.training(self.architecture.clone(), &layout)?;
        let shape = match layout.schedule.name {
            ScheduleName::DualPipe => Shape::Bidirectional,
            name if name.is_v() => Shape::V,
            _ => Shape::Loop,
        };
        let placement = Placement { shape, ranks: layout.pp, chunks: layout.schedule.chunks() };
        let (rounds, keys) = if layout.schedule.is_searched() {
            // Such a search is told what passes cost, as the generator tells it.
            let chunks = transformer.chunks(&training.architecture, placement.stages())?;
            let works: Vec<_> =
                chunks.iter().map(|chunk| self.work(number, &layout, &training, &model, chunk)).collect();
            let stages: Vec<&ChunkWork> = works.iter().map(AsRef::as_ref).collect();
            let mut schedule = with_costs(&layout.schedule, &stages).into_owned();
            let share = chunks.iter().map(|chunk| training.kept_share(chunk)).fold(0.0, f64::max);
            schedule.kept = Some(share);
            self.courses_of(&layout, &schedule, &place)?
        } else {
            self.courses_of(&layout, &layout.schedule, &place)?
        };
        let chunks = transformer.chunks(&training.architecture, placement.stages())?;
        let tariffs = self.tariffs(&layout, placement);
        let runs = Runs {
            whole: !layout.schedule.name.splits_backward(),
            split: layout.schedule.name.splits_backward() || layout.schedule.name.overlaps(),
        };
        let crowd = tariffs.crowd();
        let mut own: FxHashMap<Layers, (Rc<StagePrice>, f64)> = FxHashMap::default();
        let mut prices = Vec::with_capacity(chunks.len());
        let mut optimisers = Vec::with_capacity(chunks.len());
        for (stage, chunk) in chunks.iter().enumerate() {
            let layers = layers_of(&training.architecture, chunk);
            #[expect(
                clippy::map_entry,
                reason = "what is inserted may fail, and asks for the works of others"
            )]
            if !own.contains_key(&layers) {
                let work = self.work(number, &layout, &training, &model, chunk);
                let at = |together| {
                    let rates = Rates { tariffs: &tariffs, sharded: layout.zero == 3, together };
                    price(&layout, stage as u32, &work, runs, &rates)
                        .map_err(|error| InputError::new(format!("{place}.parallelism"), error.to_string()))
                };
                let mut found = at(0.0)?;
                if layout.zero == 3 && crowd > 1.01 {
                    // Of all pipeline ranks as many exchange at once as each does so of its time.
                    let kinds: &[usize] = if runs.split { &[0, 2, 3] } else { &[0, 1] };
                    let round: f64 = kinds.iter().map(|&kind| found.gathered[kind]).sum();
                    let busy = if round > 0.0 { (found.exchanging / round).min(1.0) } else { 0.0 };
                    let together = ((crowd * busy - 1.0) / (crowd - 1.0)).clamp(0.0, 1.0);
                    if together > 0.0 {
                        found = at(together)?;
                    }
                }
                found.slow(self.speed);
                let optimiser = training.optimiser(chunk, &model).ps() as f64 / self.speed;
                own.insert(layers, (Rc::new(found), optimiser));
            }
            let (found, optimiser) = &own[&layers];
            prices.push(Rc::clone(found));
            optimisers.push(*optimiser);
        }
        let tokens = transformer.global_batch * transformer.sequence;
        let peak = gpu.peak.of(training.precision.compute).map_or(0.0, |figure| figure.value.0);
        Ok(Laid {
            flops: training.architecture.model_flops_per_token(transformer.sequence, false) as f64
                * tokens as f64,
            tokens,
            peak: peak * gpus as f64,
            layout,
            training,
            chunks,
            prices,
            optimisers,
            placement,
            tariffs,
            keys,
            rounds,
        })
    }

    /// What a chunk does, worked out once for all layouts that share its sizes.
    fn work(
        &mut self,
        settings: u32,
        layout: &Layout,
        training: &Training,
        model: &KernelModel,
        chunk: &Chunk,
    ) -> Rc<ChunkWork> {
        let layers = layers_of(&training.architecture, chunk);
        let key = (settings, layout.tp, layout.cp, layout.ep, training.micro_batch, layers);
        Rc::clone(self.works.entry(key).or_insert_with(|| Rc::new(training.chunk(chunk, model).work)))
    }

    /// The courses of a layout with `schedule`: one, or two of which the second is a round longer, and how many rounds the step is longer
    /// than the first.
    fn courses_of(
        &mut self,
        layout: &Layout,
        schedule: &ScheduleSettings,
        place: &str,
    ) -> Result<(f64, Vec<CourseKey>), InputError> {
        let refused = |error: ScheduleError| {
            InputError::new(format!("{place}.parallelism.schedule"), error.to_string())
        };
        let (settled, rounds) = settle(layout);
        let (gathering, reducing) = exchanges(layout);
        let long = rounds > 0.0;
        let microbatches =
            if long { vec![settled, settled + round(layout)] } else { vec![layout.microbatches] };
        let mut keys = Vec::with_capacity(microbatches.len());
        for microbatches in microbatches {
            let mut schedule = schedule.clone();
            if long && schedule.run_length.is_none() && has_runs(&schedule) {
                schedule.run_length = Some(default_run_length(layout.pp, layout.microbatches));
            }
            let key: CourseKey = (format!("{schedule:?}"), layout.pp, microbatches, gathering, reducing);
            if !self.courses.contains_key(&key) {
                let built = Schedule::new(&schedule, layout.pp, microbatches).map_err(refused)?;
                self.courses.insert(key.clone(), Rc::new(Course::new(&built, gathering, reducing)));
            }
            keys.push(key);
        }
        Ok((rounds, keys))
    }

    fn tariffs(&mut self, layout: &Layout, placement: Placement) -> Rc<Tariffs> {
        let sizes = [layout.tp, layout.cp, layout.ep, layout.pp, layout.dp, layout.replicate];
        let order = format!("{:?} {} {:?}", layout.order, layout.clip as u8, layout.tied_embedding.is_some());
        let key: GridKey = (sizes, order, placement.shape == Shape::Bidirectional);
        if let Some(known) = self.tariffs.get(&key) {
            return Rc::clone(known);
        }
        let network = &self.scenario.network;
        let ways = Ways {
            topology: &self.fabric.topology,
            balancer: if self.ideal { LoadBalancer::Ideal } else { network.load_balancer.of.flows },
            seed: self.scenario.seed,
            slow: &self.slow,
            nic_latency: self.fabric.nic_latency + self.fabric.overhead * 2,
            mtu: network.mtu.0.get(),
            header: network.header.0.get(),
        };
        let made = Rc::new(Tariffs::new(layout, placement, &self.libraries, &ways));
        self.tariffs.insert(key, Rc::clone(&made));
        made
    }
}

/// A course's key as something that has an order.
type CourseKeyOrder = (String, u32, u32, u8, u8);

fn order_of(key: &CourseKey) -> CourseKeyOrder {
    (key.0.clone(), key.1, key.2, key.3 as u8, key.4 as u8)
}

fn layers_of(architecture: &Architecture, chunk: &Chunk) -> Layers {
    let kinds = chunk.layers.clone().fold(0, |hash, layer| {
        windtunnel_kernel::random::combine(hash, architecture.layer_kind(layer) as u64)
    });
    (chunk.layers.end - chunk.layers.start, kinds, chunk.embedding, chunk.head)
}

/// Whether the order of passes depends on the run length.
fn has_runs(schedule: &ScheduleSettings) -> bool {
    schedule.chunks() > 1
        && matches!(schedule.name, ScheduleName::Interleaved | ScheduleName::Zb1p | ScheduleName::DoraPp)
}

/// Micro-batches after which the pipeline does the same again.
fn round(layout: &Layout) -> u32 {
    if has_runs(&layout.schedule) {
        layout.schedule.run_length.unwrap_or_else(|| default_run_length(layout.pp, layout.microbatches))
    } else {
        (2 * layout.pp).max(2)
    }
}

/// Micro-batches of a step that is long enough to have settled, and how many rounds more the step has; no rounds if it is short.
fn settle(layout: &Layout) -> (u32, f64) {
    let (all, round) = (layout.microbatches, round(layout));
    let few = all % round + round * (4 * layout.pp).div_ceil(round).max(2);
    if all <= few + 2 * round { (all, 0.0) } else { (few, f64::from(all - few) / f64::from(round)) }
}

/// What goes on beside the passes of a step.
fn exchanges(layout: &Layout) -> (Gathering, Reducing) {
    let gathering = match (layout.zero, layout.reshard) {
        (3, Reshard::Never) => Gathering::Once,
        (3, Reshard::PerRun) => Gathering::EachRun,
        (3, Reshard::PerPass) => Gathering::EachPass,
        _ => Gathering::None,
    };
    let reducing = match () {
        () if !layout.overlap_gradients => Reducing::Late,
        () if layout.reduces_always() => Reducing::Every,
        () => Reducing::Last,
    };
    (gathering, reducing)
}

impl Laid {
    fn stage(&self, rank: u32, chunk: u32) -> usize {
        self.placement.stage(rank, chunk as u16) as usize
    }

    /// Writes its prices into `lane` of `sheet`.
    fn write(&self, course: &Course, sheet: &mut Sheet, lane: usize) {
        let split = self.layout.schedule.name.splits_backward();
        let gathering = exchanges(&self.layout).0;
        let rates = Rates { tariffs: &self.tariffs, sharded: self.layout.zero == 3, together: 0.0 };
        for rank in 0..course.ranks() {
            let mut gathered = 0.0;
            for &chunk in course.entered(rank) {
                let found = &self.prices[self.stage(rank, chunk)];
                let mut bound = 0.0f64;
                for (toll, after) in &found.gathers {
                    gathered += toll;
                    bound = bound.max(gathered + after);
                }
                let other = if course.chunks() > 1 { 1 - chunk.min(1) } else { chunk };
                let paired = if self.layout.schedule.name.overlaps() {
                    pair(&self.layout, found, &self.prices[self.stage(rank, other)], &rates)
                } else {
                    0.0
                };
                let [forward, backward, input, weight] = found.gathered;
                let mut passes = found.passes;
                if gathering == Gathering::EachPass {
                    passes[3] = weight;
                }
                let times = Times {
                    passes,
                    gathered: [forward, backward, input],
                    pair: paired,
                    bound,
                    reduced: found.reduced[usize::from(split)],
                    reduce: found.reduce,
                };
                sheet.stage(lane, rank, chunk, &times);
            }
            let [up, down] = self.tariffs.sides(rank, self.prices[0].send);
            sheet.sides(lane, rank, up, down);
        }
    }

    fn answer(&self, course: &Course, ends: &[Ends], answer: &mut Answer) {
        let first = self.finish(course, &ends[0]);
        let whole = match ends.get(1) {
            Some(second) => first + self.rounds * (self.finish(course, second) - first),
            None => first,
        };
        let chunks = 0..course.chunks();
        let split = self.layout.schedule.name.splits_backward();
        let kinds: &[usize] = if split { &[0, 2, 3] } else { &[0, 1] };
        let batches = f64::from(self.layout.microbatches);
        let share = if self.placement.shape == Shape::Bidirectional { 0.5 } else { 1.0 };
        let of = |rank: u32, take: &dyn Fn(&StagePrice, usize) -> f64| -> f64 {
            let stages = chunks.clone().map(|chunk| &self.prices[self.stage(rank, chunk)]);
            stages.map(|found| kinds.iter().map(|&kind| take(found, kind)).sum::<f64>()).sum::<f64>()
                * batches
                * share
        };
        let computes = |rank: u32| of(rank, &|found, kind| found.computes[kind]);
        let busiest = (0..course.ranks()).max_by(|&a, &b| computes(a).total_cmp(&computes(b))).unwrap_or(0);
        let compute = computes(busiest);
        let passes = of(busiest, &|found, kind| found.passes[kind]);
        let gathering = exchanges(&self.layout).0;
        let waits = of(busiest, &|found, kind| {
            if gathering == Gathering::EachPass { found.gathered[kind] - found.passes[kind] } else { 0.0 }
        });
        let last = ends[0].passes.iter().copied().fold(0.0, f64::max);
        let after = (first - last).max(0.0);
        let seconds = 1e-12;
        answer.iteration_s = Some(whole * seconds);
        answer.compute_s = compute * seconds;
        answer.inside_s = (passes - compute).max(0.0) * seconds;
        answer.data_s = (waits + after) * seconds;
        answer.pipeline_s = (whole - passes.max(compute) - waits - after).max(0.0) * seconds;
        answer.memory_bytes = self.memory(course).get();
        answer.micro_batches = self.layout.microbatches;
        answer.mfu = if self.peak > 0.0 { self.flops / (whole * seconds) / self.peak } else { 0.0 };
        answer.tokens_per_s = self.tokens as f64 / (whole * seconds);
    }

    /// The end of a step whose passes ended at `ends`.
    fn finish(&self, course: &Course, ends: &Ends) -> f64 {
        let layout = &self.layout;
        let rates = Rates { tariffs: &self.tariffs, sharded: layout.zero == 3, together: 0.0 };
        let ranks = course.ranks();
        let reduce = |rank: u32| -> f64 {
            (0..course.chunks()).map(|chunk| self.prices[self.stage(rank, chunk)].reduce).sum()
        };
        let late = !layout.overlap_gradients;
        let mut last: Vec<f64> = (0..ranks)
            .map(|rank| {
                let (passes, reduced) = (ends.passes[rank as usize], ends.reduced[rank as usize]);
                if late { passes + reduce(rank) } else { passes.max(reduced) }
            })
            .collect();
        let crowd = self.tariffs.crowd();
        if crowd > 1.01 && layout.zero < 3 {
            // What stays inside a replica has its links for itself.
            let work = |rank: u32, chunk: u32| {
                let found = &self.prices[self.stage(rank, chunk)];
                if layout.replicate > 1 { found.across } else { found.reduce }
            };
            let queues: Vec<Vec<(f64, f64)>> = (0..ranks)
                .map(|rank| {
                    let chunks = 0..course.chunks();
                    let mut queue: Vec<(f64, f64)> = chunks
                        .map(|chunk| {
                            let left = ends.left[(rank * course.chunks() + chunk) as usize];
                            let from = if late { ends.passes[rank as usize] } else { left };
                            // Inside replicas it has begun before.
                            let found = &self.prices[self.stage(rank, chunk)];
                            (
                                from.max(0.0) + found.reduce - work(rank, chunk).min(found.reduce),
                                work(rank, chunk),
                            )
                        })
                        .collect();
                    queue.sort_by(|a, b| a.0.total_cmp(&b.0));
                    queue
                })
                .collect();
            for (last, end) in last.iter_mut().zip(shared(&queues, crowd)) {
                *last = last.max(end);
            }
        }
        if let Some(bytes) = layout.tied_embedding
            && ranks > 1
            && self.placement.shape == Shape::Loop
        {
            let both = last[0].max(last[ranks as usize - 1]);
            let end = both + rates.toll(Role::Tied, CollectiveKind::AllReduce, bytes, None);
            last[0] = end;
            last[ranks as usize - 1] = end;
        }
        let toll = |role| rates.toll(role, CollectiveKind::AllReduce, NORM, None);
        match layout.clip {
            Clip::Off => {}
            Clip::World => {
                let latest = last.iter().copied().fold(0.0, f64::max);
                last.fill(latest + toll(Role::World));
            }
            Clip::PerAxis => {
                let latest = last.iter().copied().fold(0.0, f64::max);
                let data = if layout.zero > 0 { toll(Role::Shard(0)) } else { 0.0 };
                last.fill(latest + toll(Role::Tp) + toll(Role::Pp) + data);
            }
        }
        (0..ranks)
            .map(|rank| {
                let step: f64 =
                    (0..course.chunks()).map(|chunk| self.optimisers[self.stage(rank, chunk)]).sum();
                last[rank as usize] + step
            })
            .fold(0.0, f64::max)
    }

    /// Bytes of the fullest pipeline rank.
    fn memory(&self, course: &Course) -> Bytes {
        let sharding = Transformer::sharding(&self.layout);
        let mut known: FxHashMap<Layers, (u64, u64)> = FxHashMap::default();
        let mut same: FxHashMap<Vec<Layers>, Bytes> = FxHashMap::default();
        let mut fullest = Bytes::ZERO;
        for rank in 0..course.ranks() {
            let held: Vec<&Chunk> =
                (0..course.chunks()).map(|chunk| &self.chunks[self.stage(rank, chunk)]).collect();
            let layers: Vec<Layers> =
                held.iter().map(|chunk| layers_of(&self.training.architecture, chunk)).collect();
            let sizes: (Vec<u64>, Vec<u64>) = held
                .iter()
                .zip(&layers)
                .map(|(chunk, layers)| {
                    *known.entry(*layers).or_insert_with(|| {
                        let whole = self.training.chunk_activation_bytes(chunk).get();
                        (whole, (whole as f64 * self.training.kept_share(chunk)).ceil() as u64)
                    })
                })
                .unzip();
            let state = *same.entry(layers).or_insert_with(|| {
                let resident: Vec<Resident> =
                    held.iter().map(|chunk| Resident { chunk: (*chunk).clone(), in_flight: 0 }).collect();
                self.training.memory(&resident, &sharding).total()
            });
            fullest = fullest.max(state + Bytes::new(course.peak(rank, &sizes.0, &sizes.1)));
        }
        fullest
    }
}

/// When queues end whose tasks (arrival, work) go one after the other, on links that carry one queue as fast as its work says and
/// all of them at once `crowd` times slower.
fn shared(queues: &[Vec<(f64, f64)>], crowd: f64) -> Vec<f64> {
    let all = queues.len() as f64;
    let mut next = vec![0usize; queues.len()];
    let mut left: Vec<f64> = queues.iter().map(|queue| queue.first().map_or(0.0, |task| task.1)).collect();
    let mut ends = vec![0.0f64; queues.len()];
    let mut now = 0.0f64;
    loop {
        let arrival = |at: usize| queues[at].get(next[at]).map(|task| task.0);
        let active: Vec<usize> =
            (0..queues.len()).filter(|&at| arrival(at).is_some_and(|arrival| arrival <= now)).collect();
        let coming =
            (0..queues.len()).filter_map(arrival).filter(|&at| at > now).fold(f64::INFINITY, f64::min);
        if active.is_empty() {
            if coming.is_infinite() {
                return ends;
            }
            now = coming;
            continue;
        }
        let rate = (all / (crowd * active.len() as f64)).min(1.0);
        let soonest = active.iter().map(|&at| now + left[at] / rate).fold(f64::INFINITY, f64::min);
        let until = soonest.min(coming);
        for &at in &active {
            if now + left[at] / rate <= until {
                ends[at] = until;
                next[at] += 1;
                left[at] = queues[at].get(next[at]).map_or(0.0, |task| task.1);
            } else {
                left[at] -= (until - now) * rate;
            }
        }
        now = until;
    }
}

#[cfg(test)]
mod tests {
    use super::shared;

    #[test]
    fn queues_share_what_all_of_them_have() {
        let of = |tasks: &[&[(f64, f64)]], crowd| {
            shared(&tasks.iter().map(|queue| queue.to_vec()).collect::<Vec<_>>(), crowd)
        };
        // Alone each takes its work; two at once on links for one take twice as long.
        assert_eq!(of(&[&[(0.0, 10.0)], &[(20.0, 10.0)]], 2.0), [10.0, 30.0]);
        assert_eq!(of(&[&[(0.0, 10.0)], &[(0.0, 10.0)]], 2.0), [20.0, 20.0]);
        assert_eq!(of(&[&[(0.0, 10.0)], &[(5.0, 10.0)]], 2.0), [15.0, 20.0]);
        assert_eq!(of(&[&[(0.0, 10.0)], &[(0.0, 10.0)]], 1.0), [10.0, 10.0]);
        // The second task of a queue waits for the first, and for its own arrival.
        assert_eq!(of(&[&[(0.0, 10.0), (5.0, 10.0), (50.0, 1.0)]], 1.0), [51.0]);
    }
}
