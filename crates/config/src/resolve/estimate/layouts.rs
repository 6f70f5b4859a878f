//! Layouts laid out and priced.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::Value;
use windtunnel_kernel::Bytes;
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::fabric::FabricParts;
use windtunnel_plan::inputs::Inputs;
use windtunnel_topology::{LinkId, LoadBalancer};
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::nccl::Library;
use windtunnel_workload::estimate::pass::Runs;
use windtunnel_workload::estimate::{Ends, LANES, Scratch, Sheet, StagePrice};
use windtunnel_workload::generate::{ChunkWork, Layout, Role, with_costs};
use windtunnel_workload::model::{Architecture, GpuSheet, KernelModel, ModelKind, Training};
use windtunnel_workload::schedules::{Placement, ScheduleName, ScheduleSettings, Shape};

use super::super::context::Context;
use super::super::experts::dispatcher;
use super::super::framework::Framework;
use super::super::model::{Transformer, chunks, model_sheet};
use super::super::network::coding_of;
use super::super::on_gpus::{OnGpu, on_gpus};
use super::super::told::says_nothing_of_software;
use super::super::{fabric, nccl, variation};
use super::balance::{Loads, balanced};
use super::choice::{Answer, Choice, Depth};
use super::chunk_prices::{ChunkPrices, runs};
use super::courses::{CourseId, Courses};
use super::laid::{Laid, Layers, Walk, layers_of, walk_of};
use super::lie::Group;
use super::memory::fullest;
use super::prepared::{Kit, LayoutKey, Pace, Prepared};
use super::tariff::{Between, Tariffs, Ways, Wire};
use crate::load::from_yaml;
use crate::schema::{Job, ModelJob, Parallelism, Scenario};

/// Kernels by kind of GPU, and their number.
type Kernels = (Kit, Rc<[KernelModel]>);

/// What depends on the layout's sizes alone: tp, cp, ep, pp, dp, replicate, order, two directions.
type GridKey = ([u32; 6], String, bool);

/// Works and prices of chunks that are kept likewise, at most.
const KEPT_PRICES: usize = 1 << 16;

/// Tariffs of sizes that are kept likewise, at most.
const KEPT_TARIFFS: usize = 1 << 10;

/// Prices of a job's layouts.
pub struct Estimator {
    scenario: Scenario,
    source: String,
    inputs: Inputs,
    index: usize,
    fabric: FabricParts,
    ideal: bool,
    depth: Depth,
    /// Whether a layout that does not fit is not timed, and the room of a GPU, if it is not all that it has.
    fitting: bool,
    room: Option<Bytes>,
    slow: FxHashMap<LinkId, f64>,
    /// Speeds of GPUs relative to their sheet; none where all run as it says.
    speeds: Vec<f64>,
    architecture: Architecture,
    libraries: [Option<Library>; Dimension::ALL.len()],
    parallelisms: FxHashMap<String, Parallelism>,
    trainings: FxHashMap<String, (u32, ModelJob)>,
    frameworks: FxHashMap<String, Rc<Framework>>,
    /// By settings and GPUs.
    kernels: FxHashMap<(u32, u64), Kernels>,
    chunks: ChunkPrices,
    tariffs: FxHashMap<GridKey, Rc<Tariffs>>,
    between: RefCell<Between>,
    courses: Courses,
    /// The choice before without its layers: those that differ in nothing else are often asked one after the other.
    last: Option<Rc<Prepared>>,
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
        let context = Context {
            scenario: &scenario,
            fabric: &parts,
            storage: None,
            base: inputs,
            place: &at,
            on_first: true,
        };
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
        let uneven = variation::check(&scenario.variation, &parts.topology, source)?;
        let slow = parts.slow_links(uneven.links.iter().copied()).into_iter().collect();
        let speeds = uneven.by_gpu(&parts.topology);
        let chunks = ChunkPrices::new(parts.kinds.sheets());
        Ok(Self {
            source: source.to_owned(),
            inputs: inputs.clone(),
            index,
            fabric: parts,
            ideal,
            depth: Depth::Close,
            fitting: false,
            room: None,
            slow,
            speeds,
            architecture,
            libraries,
            scenario,
            parallelisms: FxHashMap::default(),
            trainings: FxHashMap::default(),
            frameworks: FxHashMap::default(),
            kernels: FxHashMap::default(),
            chunks,
            tariffs: FxHashMap::default(),
            between: RefCell::default(),
            courses: Courses::default(),
            last: None,
        })
    }

    /// How closely exchanges are followed.
    pub const fn set_depth(&mut self, depth: Depth) {
        self.depth = depth;
    }

    /// If `fitting`, layouts that need more than `room` of a GPU (all that it has, if none is said) are told their memory and no time.
    pub fn set_fitting(&mut self, fitting: bool, room: Option<Bytes>) {
        (self.fitting, self.room) = (fitting, room);
    }

    /// Lets go of what choices of one list share once it is much.
    fn forget(&mut self) {
        if self.chunks.len() > KEPT_PRICES || self.tariffs.len() > KEPT_TARIFFS {
            self.chunks.clear();
            self.tariffs.clear();
            self.last = None;
        }
        if self.courses.forget() {
            self.last = None;
        }
    }

    /// Answers for each of `choices`, in their order.
    pub fn answers(&mut self, choices: &[Choice]) -> Vec<Answer> {
        self.forget();
        let mut answers = vec![Answer::default(); choices.len()];
        let mut laid: Vec<Option<Laid>> = Vec::with_capacity(choices.len());
        for (choice, answer) in choices.iter().zip(&mut answers) {
            laid.push(match self.lay(choice) {
                Ok(Outcome::Laid(laid)) => Some(*laid),
                Ok(Outcome::TooLarge((memory, capacity), layers)) => {
                    answer.layers = layers;
                    answer.memory_bytes = memory.get();
                    answer.capacity_bytes = capacity.get();
                    None
                }
                Err(error) => {
                    answer.refused = Some(error.to_string());
                    None
                }
            });
        }
        let ends = self.ends(&laid);
        for ((laid, ends), answer) in laid.iter().zip(&ends).zip(&mut answers) {
            let Some(laid) = laid else { continue };
            laid.answer(self.courses.course(laid.courses[0]), ends, answer);
        }
        answers
    }

    /// When the ranks of each layout end, for each of its courses: those of one course side by side.
    fn ends(&self, all: &[Option<Laid>]) -> Vec<Vec<Ends>> {
        let mut ends: Vec<Vec<Ends>> = all
            .iter()
            .map(|laid| laid.as_ref().map_or_else(Vec::new, |laid| vec![Ends::default(); laid.courses.len()]))
            .collect();
        let mut groups: BTreeMap<CourseId, Vec<(&Laid, usize, usize)>> = BTreeMap::new();
        for (at, laid) in all.iter().enumerate() {
            let Some(laid) = laid else { continue };
            for (part, &course) in laid.courses.iter().enumerate() {
                if laid.is_followed() {
                    ends[at][part] = laid.follow(self.courses.schedule(course));
                } else {
                    groups.entry(course).or_default().push((laid, at, part));
                }
            }
        }
        let mut scratch = Scratch::default();
        for (&id, members) in &groups {
            let course = self.courses.course(id);
            // Written over by the next layouts: all that is read of a lane is written for each.
            let mut sheet = Sheet::new(course);
            for together in members.chunks(LANES) {
                let gathered: Vec<_> = together.iter().map(|(laid, ..)| laid.gathered(course)).collect();
                // Rank by rank: a row of the sheet has all lanes, and stays at hand until it is full.
                for rank in 0..course.ranks() {
                    for (lane, ((laid, ..), gathered)) in together.iter().zip(&gathered).enumerate() {
                        laid.write(course, &mut sheet, lane, rank, &gathered[rank as usize]);
                    }
                }
                for (&(laid, at, part), mut found) in
                    together.iter().zip(course.run(&sheet, together.len(), &mut scratch))
                {
                    if laid.walk == Walk::Least {
                        laid.bound(self.courses.schedule(id), &mut found);
                    }
                    ends[at][part] = found;
                }
            }
        }
        ends
    }

    fn context<'a>(&'a self, place: &'a str) -> Context<'a> {
        Context {
            scenario: &self.scenario,
            fabric: &self.fabric,
            storage: None,
            base: &self.inputs,
            place,
            on_first: true,
        }
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

    /// The framework `name`, read once.
    fn framework(&mut self, name: &str, place: &str, at: &str) -> Result<Rc<Framework>, InputError> {
        if let Some(known) = self.frameworks.get(name) {
            return Ok(Rc::clone(known));
        }
        let read = Rc::new(Framework::read(name, &self.context(place), at)?);
        self.frameworks.insert(name.to_owned(), Rc::clone(&read));
        Ok(read)
    }

    /// All of a choice but the layers of its stages.
    fn prepared(&mut self, choice: &Choice) -> Result<Rc<Prepared>, InputError> {
        if let Some(last) = self.last.as_ref().filter(|last| choice.differs_in_layers_only(&last.asked)) {
            return Ok(Rc::clone(last));
        }
        let prepared = Rc::new(self.prepare(choice)?);
        self.last = Some(Rc::clone(&prepared));
        Ok(prepared)
    }

    fn prepare(&mut self, choice: &Choice) -> Result<Prepared, InputError> {
        let place = self.place();
        let at = format!("{place}.workload");
        let job = self.scenario.jobs.list()[self.index].clone();
        let Some(source) = job.workload.clone() else {
            return Err(InputError::new(at, "a layout needs a model"));
        };
        let (number, mut settings) = self.training(choice, &job)?;
        let mut parallelism = self.parallelism(choice, &job)?;
        let mut evidence = EvidenceList::default();
        let untold = says_nothing_of_software(&settings);
        let name = Framework::name_of(&settings, Some(&parallelism)).map(str::to_owned);
        // Settings of one number that leave the framework open differ by the one that is ordinary for the layout.
        let number = 2 * number + u32::from(untold && name.as_deref() == Some("fsdp"));
        if let Some(name) = name {
            let framework = self.framework(&name, &place, &at)?;
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
        let (kit, models) = if let Some(known) = known {
            known
        } else {
            let context = self.context(&place);
            let rms = self.architecture.norm == windtunnel_workload::model::Norm::Rms;
            let apart = settings.fused == Some(false);
            let separately = |one: OnGpu<'_>| if apart { one.kernels.separately(rms) } else { one.kernels };
            let made = on_gpus(&settings, gpus, &context, &at, &mut evidence)?;
            let made: Rc<[KernelModel]> = made.into_iter().map(separately).collect();
            let made = (self.kernels.len() as Kit, made);
            self.kernels.insert((number, gpus), made.clone());
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
        let tariffs = self.tariffs(&layout, placement);
        let courses = if layout.schedule.is_searched() {
            None
        } else {
            Some(self.courses.of(&layout, &layout.schedule, &place)?)
        };
        let tokens = transformer.global_batch * transformer.sequence;
        let kinds = &self.fabric.kinds;
        let peak_of = |(kind, gpu): (usize, &Arc<GpuSheet>)| {
            let each = gpu.peak.of(training.precision.compute).map_or(0.0, |figure| figure.value.0);
            each * kinds.among_first(gpus, kind as u8) as f64
        };
        let peak = kinds.sheets().iter().enumerate().map(peak_of).sum();
        let memory = |kind: u8| kinds.sheets()[usize::from(kind)].memory.value;
        let smallest = |groups: &Vec<Group>| groups.iter().map(|group| memory(group.kind)).min();
        let rooms = match tariffs.groups.as_slice() {
            ranks if kinds.differ() => ranks.iter().filter_map(smallest).collect(),
            _ => vec![gpu.memory.value],
        };
        Ok(Prepared {
            flops: training.model_flops_per_token(false) as f64 * tokens as f64,
            tokens,
            peak,
            rooms,
            key: neutral(kit, &layout, placement, &training),
            kit,
            models,
            layers_per_stage: transformer.settings.layers_per_stage,
            layout,
            training,
            placement,
            tariffs,
            courses,
            held: RefCell::default(),
            priced: RefCell::default(),
            asked: choice.clone(),
        })
    }

    fn place(&self) -> String {
        format!("{}: jobs[{}]", self.source, self.index)
    }

    fn lay(&mut self, choice: &Choice) -> Result<Outcome, InputError> {
        let prepared = self.prepared(choice)?;
        let Prepared { layout, training, placement, tariffs, models, kit, .. } = &*prepared;
        let (kit, placement) = (*kit, *placement);
        let balanced = choice.balanced.then(|| {
            let loads: Vec<Loads> = (0..models.len())
                .map(|kind| self.chunks.loads((kit, kind as u8), layout, training, &models[kind]))
                .collect();
            let speed =
                |group: &Group| group.speed * loads[0].layer() / loads[usize::from(group.kind)].layer();
            let slowest = |groups: &Vec<Group>| groups.iter().map(speed).fold(f64::INFINITY, f64::min);
            let speeds: Vec<f64> = tariffs.groups.iter().map(slowest).collect();
            balanced(&loads[0], placement, &speeds)
        });
        let given = match (&balanced, &choice.layers_per_stage) {
            (Some(balanced), _) => Some(balanced),
            (None, Some(asked)) => asked.as_ref(),
            (None, None) => prepared.layers_per_stage.as_ref(),
        };
        let chunks =
            chunks(given.map(Vec::as_slice), &training.architecture, placement.stages(), || self.place())?;
        let kinds: Vec<Layers> =
            chunks.iter().map(|chunk| layers_of(&training.architecture, chunk)).collect();
        let (rounds, courses) = if let Some(courses) = &prepared.courses {
            courses.clone()
        } else {
            // Such a search is told what passes cost, as the generator tells it.
            let works: Vec<_> = chunks
                .iter()
                .map(|chunk| self.chunks.work((kit, 0), layout, training, &models[0], chunk))
                .collect();
            let stages: Vec<&ChunkWork> = works.iter().map(AsRef::as_ref).collect();
            let mut schedule = with_costs(&layout.schedule, &stages).into_owned();
            let share = chunks.iter().map(|chunk| training.kept_share(chunk)).fold(0.0, f64::max);
            schedule.kept = Some(share);
            let place = self.place();
            self.courses.of(layout, &schedule, &place)?
        };
        let memory = fullest(self.courses.course(courses[0]), &prepared, &chunks, &kinds, &prepared.rooms);
        let room = match self.room {
            // A budget that all GPUs have is one for all; a smaller GPU keeps to what it has.
            Some(room) if self.fabric.kinds.differ() => room.min(memory.1),
            given => given.unwrap_or(memory.1),
        };
        if self.fitting && memory.0 > room {
            return Ok(Outcome::TooLarge(memory, balanced));
        }
        let mut prices = Vec::with_capacity(chunks.len());
        let mut optimisers = Vec::with_capacity(chunks.len());
        let mut paces: Vec<Pace> = Vec::with_capacity(chunks.len());
        for (stage, (chunk, &layers)) in chunks.iter().zip(&kinds).enumerate() {
            let groups = tariffs.at_stage(placement, stage as u32);
            let pace = self.chunks.pace(&groups, kit, layout, training, models, chunk);
            paces.push(pace);
            let known = prepared.priced.borrow().get(&(layers, pace)).cloned();
            let priced = if let Some(known) = known {
                known
            } else {
                let of = (stage as u32, chunk);
                let made = self.chunks.priced(
                    (prepared.key.clone(), layers, pace),
                    layout,
                    training,
                    models,
                    of,
                    tariffs,
                );
                let made = made.map_err(|error| {
                    InputError::new(format!("{}.parallelism", self.place()), error.to_string())
                })?;
                prepared.priced.borrow_mut().insert((layers, pace), made.clone());
                made
            };
            prices.push(priced.0);
            optimisers.push(priced.1);
        }
        let walk = walk_of(layout, placement, tariffs, &prices, self.depth);
        if walk == Walk::Close {
            let mut close: FxHashMap<(Layers, Pace), Rc<StagePrice>> = FxHashMap::default();
            for (stage, (price, chunk)) in prices.iter_mut().zip(&chunks).enumerate() {
                let of = (kinds[stage], paces[stage]);
                if let Some(known) = close.get(&of) {
                    *price = Rc::clone(known);
                    continue;
                }
                let (lie, _) = paces[stage];
                let model = &models[usize::from(lie.slowest)];
                let work = self.chunks.work((kit, lie.slowest), layout, training, model, chunk);
                let mut made = StagePrice::clone(price);
                made.close(&self.chunks.on_kind(layout, lie.slowest), &work, &tariffs.at(lie));
                *price = Rc::new(made);
                close.insert(of, Rc::clone(price));
            }
        }
        let waits = self.chunks.waits(&prepared, &chunks);
        let lies = paces.iter().map(|&(lie, _)| lie).collect();
        let laid = Laid {
            prices,
            optimisers,
            courses,
            rounds,
            walk,
            memory,
            lies,
            waits,
            layers: balanced,
            prepared,
        };
        Ok(Outcome::Laid(Box::new(laid)))
    }

    fn tariffs(&mut self, layout: &Layout, placement: Placement) -> Rc<Tariffs> {
        let sizes = [layout.tp, layout.cp, layout.ep, layout.pp, layout.dp, layout.replicate];
        // A V has the first and the last stage on one rank, where nobody is asked to agree.
        let tied = layout.tied_embedding.is_some() && Role::Tied.size(layout, placement) > 1;
        let order = format!("{:?} {} {tied}", layout.order, layout.clip as u8);
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
            wire: Wire {
                mtu: network.mtu.0,
                header: network.header.0,
                coding: coding_of(network).filter(|_| !self.ideal),
            },
            between: &self.between,
            speeds: &self.speeds,
            gpus: &self.fabric.kinds,
        };
        let made = Rc::new(Tariffs::new(layout, placement, &self.libraries, &ways));
        self.tariffs.insert(key, Rc::clone(&made));
        made
    }
}

/// What became of a choice.
enum Outcome {
    Laid(Box<Laid>),
    /// What it needs and what there is, and its layers if they were to be shared out.
    TooLarge((Bytes, Bytes), Option<Vec<u32>>),
}

/// All of a layout that the prices of its chunks depend on: the schedule counts by the passes that it runs.
fn neutral(kit: Kit, layout: &Layout, placement: Placement, training: &Training) -> LayoutKey {
    let Runs { whole, split } = runs(layout);
    let schedule =
        ScheduleSettings { split_overhead: layout.schedule.split_overhead, ..ScheduleSettings::default() };
    let layout = Layout { schedule, microbatches: 1, ..layout.clone() };
    // Whether gradients are added depends on the number of micro-batches, which prices do not otherwise.
    let passes = [whole, split, placement.shape == Shape::Bidirectional, training.adds_gradients];
    (kit, training.micro_batch, Rc::from(format!("{layout:?} {passes:?}")))
}
