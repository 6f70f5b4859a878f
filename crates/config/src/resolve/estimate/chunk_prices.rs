//! What chunks of a job's layouts compute and cost, each worked out once for all layouts that share its sizes.
//!
//! Life cycle: filled as layouts are priced, and emptied ([`ChunkPrices::clear`]) once it is much. Invariant: what is kept follows
//! from its key alone, so an answer does not depend on what was asked before.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_workload::estimate::pass::Runs;
use windtunnel_workload::estimate::price;
use windtunnel_workload::generate::{ChunkWork, GenerateError, Layout};
use windtunnel_workload::model::{Chunk, GpuSheet, KernelModel, Training, compute_time};

use super::super::model::overlap_slowdown;
use super::balance::Loads;
use super::laid::{Layers, layers_of};
use super::lie::{Group, Lie, waits};
use super::prepared::{Kit, LayoutKey, Pace, Prepared, Priced};
use super::tariff::Tariffs;

/// What a chunk's work depends on beside its layers: kernels and the kind of GPU, tp, cp, ep, micro-batch, and whether gradients are added to those of
/// micro-batches before, which depends on the ZeRO stage.
type WorkKey = (Kit, u8, u32, u32, u32, u64, bool, Layers);

/// What a chunk's prices depend on.
type PriceKey = (LayoutKey, Layers, Pace);

/// Works, their lengths and their prices, by chunk.
pub(super) struct ChunkPrices {
    /// By how much collectives slow computations down, by kind of GPU.
    slowdowns: Vec<f64>,
    /// What a chunk computes for a micro-batch, in picoseconds.
    spans: FxHashMap<WorkKey, f64>,
    works: FxHashMap<WorkKey, Rc<ChunkWork>>,
    prices: FxHashMap<PriceKey, Priced>,
}

impl ChunkPrices {
    /// Nothing yet, on GPUs of these kinds.
    pub(super) fn new(kinds: &[Arc<GpuSheet>]) -> Self {
        Self {
            slowdowns: kinds.iter().map(|gpu| overlap_slowdown(gpu)).collect(),
            spans: FxHashMap::default(),
            works: FxHashMap::default(),
            prices: FxHashMap::default(),
        }
    }

    /// Works and prices that are kept.
    pub(super) fn len(&self) -> usize {
        self.works.len() + self.prices.len()
    }

    /// Lets go of all.
    pub(super) fn clear(&mut self) {
        self.works.clear();
        self.spans.clear();
        self.prices.clear();
    }

    /// What layers, the embedding and the head compute for a micro-batch, forwards and backwards.
    pub(super) fn loads(
        &mut self,
        kit: (Kit, u8),
        layout: &Layout,
        training: &Training,
        model: &KernelModel,
    ) -> Loads {
        let all = training.architecture.layers;
        let mut of = |layers: std::ops::Range<u32>, embedding: bool, head: bool| {
            let work = self.work(kit, layout, training, model, &Chunk { layers, embedding, head });
            (compute_time(&work.forward) + compute_time(&work.backward)).ps() as f64
        };
        let layers: Vec<f64> = (0..all).map(|layer| of(layer..layer + 1, false, false)).collect();
        let embedding = of(0..1, true, false) - layers[0];
        let head = of(all - 1..all, false, true) - layers[all as usize - 1];
        Loads { layers, embedding, head }
    }

    /// What a chunk computes for a micro-batch on GPUs of `kind`, in picoseconds.
    fn span(
        &mut self,
        (kit, kind): (Kit, u8),
        layout: &Layout,
        training: &Training,
        models: &[KernelModel],
        chunk: &Chunk,
    ) -> f64 {
        let layers = layers_of(&training.architecture, chunk);
        let (adds, micro_batch) = (training.adds_gradients, training.micro_batch);
        let key = (kit, kind, layout.tp, layout.cp, layout.ep, micro_batch, adds, layers);
        if let Some(&known) = self.spans.get(&key) {
            return known;
        }
        let work = self.work((kit, kind), layout, training, &models[usize::from(kind)], chunk);
        let span = (compute_time(&work.forward) + compute_time(&work.backward)).ps() as f64;
        self.spans.insert(key, span);
        span
    }

    /// Where a stage lies that is computed on `groups`, and the speed of the slowest of these.
    pub(super) fn pace(
        &mut self,
        groups: &[Group],
        kit: Kit,
        layout: &Layout,
        training: &Training,
        models: &[KernelModel],
        chunk: &Chunk,
    ) -> Pace {
        let mut slowest = (Lie { kinds: Lie::kinds_of(groups), slowest: 0 }, 1.0f64.to_bits(), 0.0);
        for group in groups {
            let takes = self.span((kit, group.kind), layout, training, models, chunk) / group.speed;
            if takes > slowest.2 {
                slowest = (Lie { slowest: group.kind, ..slowest.0 }, group.speed.to_bits(), takes);
            }
        }
        (slowest.0, slowest.1)
    }

    /// By how much of their time the GPUs of each pipeline rank wait for its slowest, whose chunks are these by stage.
    pub(super) fn waits(&mut self, prepared: &Prepared, chunks: &[Chunk]) -> Vec<f64> {
        let Prepared { layout, training, placement, tariffs, models, kit, .. } = prepared;
        let mut found = Vec::with_capacity(tariffs.groups.len());
        for (rank, groups) in tariffs.groups.iter().enumerate() {
            let mut takes = vec![0.0; models.len()];
            for chunk in 0..placement.chunks {
                let chunk = &chunks[placement.stage(rank as u32, chunk) as usize];
                for group in groups {
                    takes[usize::from(group.kind)] +=
                        self.span((*kit, group.kind), layout, training, models, chunk);
                }
            }
            found.push(waits(groups, |kind| takes[usize::from(kind)]));
        }
        found
    }

    /// `layout` on GPUs of `kind`, whose collectives slow down computations by what its sheet says.
    pub(super) fn on_kind<'a>(&self, layout: &'a Layout, kind: u8) -> Cow<'a, Layout> {
        match self.slowdowns.get(usize::from(kind)) {
            Some(&overlap_slowdown) if kind > 0 => Cow::Owned(Layout { overlap_slowdown, ..layout.clone() }),
            _ => Cow::Borrowed(layout),
        }
    }

    /// What a chunk's passes take, and its optimiser: worked out once for all layouts whose schedules run the same passes.
    pub(super) fn priced(
        &mut self,
        key: PriceKey,
        layout: &Layout,
        training: &Training,
        models: &[KernelModel],
        (stage, chunk): (u32, &Chunk),
        tariffs: &Tariffs,
    ) -> Result<Priced, GenerateError> {
        if let Some(known) = self.prices.get(&key) {
            return Ok(known.clone());
        }
        let (lie, speed) = (key.2.0, f64::from_bits(key.2.1));
        let model = &models[usize::from(lie.slowest)];
        let work = self.work((key.0.0, lie.slowest), layout, training, model, chunk);
        let own = self.on_kind(layout, lie.slowest);
        let found = price(&own, stage, &work, runs(layout), speed, &tariffs.at(lie))?;
        let optimiser = training.optimiser_step(chunk, model).ps() as f64 / speed;
        let made = (Rc::new(found), optimiser);
        self.prices.insert(key, made.clone());
        Ok(made)
    }

    /// What a chunk does, worked out once for all layouts that share its sizes.
    pub(super) fn work(
        &mut self,
        (kit, kind): (Kit, u8),
        layout: &Layout,
        training: &Training,
        model: &KernelModel,
        chunk: &Chunk,
    ) -> Rc<ChunkWork> {
        let layers = layers_of(&training.architecture, chunk);
        let adds = training.adds_gradients;
        let key = (kit, kind, layout.tp, layout.cp, layout.ep, training.micro_batch, adds, layers);
        Rc::clone(self.works.entry(key).or_insert_with(|| Rc::new(training.chunk(chunk, model).work)))
    }
}

/// Which passes a layout's schedule runs.
pub(super) fn runs(layout: &Layout) -> Runs {
    let name = layout.schedule.name;
    Runs { whole: !name.splits_backward(), split: name.splits_backward() || name.overlaps() }
}
