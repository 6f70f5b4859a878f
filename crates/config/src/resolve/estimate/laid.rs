//! A layout that has been priced: its step.

use std::rc::Rc;

use windtunnel_kernel::Bytes;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::estimate::{
    Course, Crowded, Ends, Gathering, Leaving, Of, Part, Reducing, Sheet, Side, StagePrice, Times, Tolls,
    drained, pair,
};
use windtunnel_workload::generate::{Clip, Layout, Reshard, Role};
use windtunnel_workload::model::{Architecture, Chunk};
use windtunnel_workload::schedules::{Placement, Schedule, Shape};

use super::choice::{Answer, Depth};
use super::courses::CourseId;
use super::lie::Lie;
use super::prepared::Prepared;
use super::tariff::Tariffs;

/// Bytes of the norm of a gradient.
const NORM: Bytes = Bytes::new(4);

/// Exchanges of all pipeline ranks at once are followed over time where they are slower by more than this than those of one.
const CROWDED: f64 = 1.01;

/// A chunk's layers as far as its price depends on them: how many, of which kinds, and which ends of the model.
pub(super) type Layers = (u32, u64, bool, bool);

/// A layout that fits its model, with the prices of its stages.
pub(super) struct Laid {
    pub prepared: Rc<Prepared>,
    /// By stage.
    pub prices: Vec<Rc<StagePrice>>,
    pub optimisers: Vec<f64>,
    pub courses: Vec<CourseId>,
    /// Rounds by which the step is longer than the first course; the second is one longer.
    pub rounds: f64,
    pub walk: Walk,
    /// Of the pipeline rank that has least left, and what its smallest GPU has.
    pub memory: (Bytes, Bytes),
    /// Where each stage lies.
    pub lies: Vec<Lie>,
    /// By how much of their time the GPUs of each pipeline rank wait for its slowest; none where all are as fast.
    pub waits: Vec<f64>,
    /// Layers of each stage, if they were to be shared out.
    pub layers: Option<Vec<u32>>,
}

/// How a step is worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// Along a course, side by side with others.
    Line,
    /// The same of a step that is to be followed, as if parameters were at hand in time and ranks shared no links.
    /// Followed it takes no less, but for 3%: a line lets gradients leave a little later than they do.
    Least,
    /// Passes and exchanges together.
    Followed,
    /// Exchanges inside passes too.
    Close,
}

/// Messages are followed where they hold a link that several share for more than this part of the computations of a micro-batch.
const SHARED: f64 = 0.15;
/// The same of a link that exchanges inside passes take.
const BESIDE: f64 = 0.03;

/// How the step of `layout` is worked out, whose stages take `prices`, where answers are wanted at `depth`.
pub(super) fn walk_of(
    layout: &Layout,
    placement: Placement,
    tariffs: &Tariffs,
    prices: &[Rc<StagePrice>],
    depth: Depth,
) -> Walk {
    if layout.schedule.name.overlaps() || placement.shape == Shape::Bidirectional {
        return Walk::Line;
    }
    let close = depth == Depth::Close;
    let followed = if depth == Depth::Line { Walk::Least } else { Walk::Followed };
    let [mut between, mut beside] = [0.0; 2];
    if layout.pp > 1 {
        let chunks = u32::from(placement.chunks);
        let sides: Vec<[Side; 2]> = (0..layout.pp).map(|rank| tariffs.sides(rank, prices[0].send)).collect();
        let work = |class: u32| {
            let down = class >= Of::Down.class(0, layout.pp);
            sides[(class % layout.pp) as usize][usize::from(down)].busy * f64::from(chunks)
        };
        let of_rank = |rank: u32| -> f64 {
            let stages = (0..chunks).map(|chunk| &prices[placement.stage(rank, chunk as u16) as usize]);
            let split = layout.schedule.name.splits_backward();
            stages
                .map(|found| found.passes.iter().sum::<f64>() - if split { found.passes[1] } else { 0.0 })
                .sum()
        };
        let busiest = (0..layout.pp).map(of_rank).fold(f64::MIN_POSITIVE, f64::max);
        [between, beside] = tariffs.shares.held(&work).map(|held| held / busiest);
    }
    match layout.zero {
        _ if close && beside > BESIDE => Walk::Close,
        3 if close && tariffs.shares.meets() => Walk::Close,
        3 => followed,
        _ if between > SHARED => followed,
        _ => Walk::Line,
    }
}

impl Laid {
    fn stage(&self, rank: u32, chunk: u32) -> usize {
        self.prepared.placement.stage(rank, chunk as u16) as usize
    }

    /// Whether data-parallel exchanges of its pipeline ranks have to share links.
    fn is_crowded(&self) -> bool {
        self.prepared.tariffs.shares.crowd() > CROWDED
    }

    /// Whether its passes and exchanges are followed together: parameters are gathered throughout, or messages meet others on links.
    pub(super) fn is_followed(&self) -> bool {
        !matches!(self.walk, Walk::Line | Walk::Least)
    }

    /// The ends of a step that is followed.
    pub(super) fn follow(&self, schedule: &Schedule) -> Ends {
        self.crowded(schedule, |crowded| crowded.run())
    }

    /// Ends of a line no sooner than exchanges with data-parallel peers can end, where they are a bound.
    pub(super) fn bound(&self, schedule: &Schedule, ends: &mut Ends) {
        let exchanged = self.crowded(schedule, |crowded| crowded.exchanged());
        for ((passes, reduced), [gathers, all]) in
            ends.passes.iter_mut().zip(&mut ends.reduced).zip(exchanged)
        {
            *passes = passes.max(gathers);
            *reduced = reduced.max(all);
        }
    }

    fn crowded<T>(&self, schedule: &Schedule, of: impl FnOnce(Crowded<'_>) -> T) -> T {
        let (gathering, reducing) = exchanges(&self.prepared.layout);
        // What is gathered once a step is asked for at its start.
        let (gathering, prefetch) = match self.prepared.layout.zero {
            0 => (Gathering::None, 0),
            3 => (gathering, self.prepared.layout.prefetch as usize),
            _ => (Gathering::Once, usize::MAX),
        };
        let chunks = u32::from(self.prepared.placement.chunks);
        let stages = (0..schedule.ranks()).flat_map(|rank| (0..chunks).map(move |chunk| (rank, chunk)));
        let prices: Vec<&StagePrice> =
            stages.map(|(rank, chunk)| &*self.prices[self.stage(rank, chunk)]).collect();
        let side = |side: Side| Part { latency: side.latency, work: side.busy };
        let sides: Vec<[Part; 2]> = (0..schedule.ranks())
            .map(|rank| self.prepared.tariffs.sides(rank, self.prices[0].send).map(side))
            .collect();
        of(Crowded {
            schedule,
            gathering,
            reducing,
            prefetch,
            prices: &prices,
            sides: &sides,
            shares: if self.walk == Walk::Close {
                self.prepared.tariffs.close()
            } else {
                &self.prepared.tariffs.shares
            },
        })
    }

    /// When each bucket of parameters that a step gathers once has come, by rank and in the order of their use.
    pub(super) fn gathered(&self, course: &Course) -> Vec<Vec<f64>> {
        let asked: Vec<Vec<Leaving>> = (0..course.ranks())
            .map(|rank| {
                let chunks = course.entered(rank).iter();
                let buckets = chunks.flat_map(|&chunk| &self.prices[self.stage(rank, chunk)].gathers);
                buckets.map(|bucket| Leaving { parts: bucket.parts, ..Leaving::default() }).collect()
            })
            .collect();
        if self.is_crowded()
            && self.walk == Walk::Line
            && self.prepared.placement.shape != Shape::Bidirectional
        {
            return drained(&self.prepared.tariffs.shares, &asked);
        }
        let queued = |list: &Vec<Leaving>| {
            let all = list.iter().map(|bucket| bucket.parts[0].alone() + bucket.parts[1].alone());
            all.scan(0.0, |end, toll| {
                *end += toll;
                Some(*end)
            })
            .collect()
        };
        asked.iter().map(queued).collect()
    }

    /// Writes what `rank` takes into `lane` of `sheet`, whose parameters come as `gathered` says ([`Self::gathered`]).
    pub(super) fn write(&self, course: &Course, sheet: &mut Sheet, lane: usize, rank: u32, gathered: &[f64]) {
        let split = self.prepared.layout.schedule.name.splits_backward();
        let gathering = exchanges(&self.prepared.layout).0;
        let mut ends = gathered.iter();
        for &chunk in course.entered(rank) {
            let found = &self.prices[self.stage(rank, chunk)];
            let mut bound = 0.0f64;
            for (bucket, end) in found.gathers.iter().zip(&mut ends) {
                bound = bound.max(end + bucket.after);
            }
            let other = if course.chunks() > 1 { 1 - chunk.min(1) } else { chunk };
            let paired = if self.prepared.layout.schedule.name.overlaps() {
                pair(
                    &self.prepared.layout,
                    found,
                    &self.prices[self.stage(rank, other)],
                    &self.prepared.tariffs.at(self.lies[self.stage(rank, chunk)]),
                )
            } else {
                0.0
            };
            let gathered = if self.walk == Walk::Least { found.passes } else { found.gathered };
            let [forward, backward, input, weight] = gathered;
            let mut passes = found.passes;
            if gathering == Gathering::EachPass {
                passes[3] = weight;
            }
            let times = Times {
                passes,
                hosts: found.hosts,
                gathered: [forward, backward, input],
                pair: paired,
                bound,
                reduced: found.reduced[usize::from(split)],
                reduce: found.reduce,
            };
            sheet.stage(lane, rank, chunk, &times);
        }
        let [up, down] = self.prepared.tariffs.sides(rank, self.prices[0].send);
        sheet.sides(lane, rank, up, down);
    }

    pub(super) fn answer(&self, course: &Course, ends: &[Ends], answer: &mut Answer) {
        let first = self.finish(course, &ends[0]);
        let whole = match ends.get(1) {
            Some(second) => first + self.rounds * (self.finish(course, second) - first),
            None => first,
        };
        let chunks = 0..course.chunks();
        let split = self.prepared.layout.schedule.name.splits_backward();
        let kinds: &[usize] = if split { &[0, 2, 3] } else { &[0, 1] };
        let batches = f64::from(self.prepared.layout.microbatches);
        let share = if self.prepared.placement.shape == Shape::Bidirectional { 0.5 } else { 1.0 };
        let of = |rank: u32, take: &dyn Fn(&StagePrice, usize) -> f64| -> f64 {
            let stages = chunks.clone().map(|chunk| &self.prices[self.stage(rank, chunk)]);
            stages.map(|found| kinds.iter().map(|&kind| take(found, kind)).sum::<f64>()).sum::<f64>()
                * batches
                * share
        };
        let computes: Vec<f64> =
            (0..course.ranks()).map(|rank| of(rank, &|found, kind| found.computes[kind])).collect();
        let busiest = (0..course.ranks())
            .max_by(|&a, &b| computes[a as usize].total_cmp(&computes[b as usize]))
            .unwrap_or(0);
        let compute = computes[busiest as usize];
        let passes = of(busiest, &|found, kind| found.paced(kind));
        let gathering = exchanges(&self.prepared.layout).0;
        let last = ends[0].passes.iter().copied().fold(0.0, f64::max);
        let waits = match ends[0].waited.get(busiest as usize) {
            Some(waited) => waited * whole / first.max(1.0),
            None if gathering == Gathering::EachPass => {
                of(busiest, &|found, kind| found.gathered[kind] - found.passes[kind])
            }
            None => 0.0,
        };
        let after = (first - last).max(0.0);
        let seconds = 1e-12;
        answer.iteration_s = Some(whole * seconds);
        answer.least = self.walk == Walk::Least;
        answer.compute_s = compute * seconds;
        answer.inside_s = (passes - compute).max(0.0) * seconds;
        answer.data_s = (waits + after) * seconds;
        answer.pipeline_s = (whole - passes.max(compute) - waits - after).max(0.0) * seconds;
        let held: f64 = self.waits.iter().zip(&computes).map(|(waits, computes)| computes * waits).sum();
        answer.held_s = held / f64::from(course.ranks()) * seconds;
        answer.layers.clone_from(&self.layers);
        answer.memory_bytes = self.memory.0.get();
        answer.capacity_bytes = self.memory.1.get();
        answer.micro_batches = self.prepared.layout.microbatches;
        answer.mfu = if self.prepared.peak > 0.0 {
            self.prepared.flops / (whole * seconds) / self.prepared.peak
        } else {
            0.0
        };
        answer.tokens_per_s = self.prepared.tokens as f64 / (whole * seconds);
    }

    /// The end of a step whose passes ended at `ends`.
    fn finish(&self, course: &Course, ends: &Ends) -> f64 {
        let layout = &self.prepared.layout;
        // Of groups over several pipeline ranks.
        let rates = &self.prepared.tariffs.at(Lie::default());
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
        let drains = self.is_crowded() && layout.zero < 3 && (late || self.walk == Walk::Line);
        if drains && self.prepared.placement.shape != Shape::Bidirectional {
            for (last, end) in last.iter_mut().zip(self.reduced(course, ends)) {
                *last = last.max(end);
            }
        }
        if let Some(bytes) = layout.tied_embedding
            && ranks > 1
            && self.prepared.placement.shape == Shape::Loop
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

    /// When the last gradients of each rank are reduced, over links that ranks share.
    fn reduced(&self, course: &Course, ends: &Ends) -> Vec<f64> {
        let split = usize::from(self.prepared.layout.schedule.name.splits_backward());
        let asked: Vec<Vec<Leaving>> = (0..course.ranks())
            .map(|rank| {
                let mut asked = Vec::new();
                for chunk in 0..course.chunks() {
                    let end = if self.prepared.layout.overlap_gradients {
                        ends.completed[(rank * course.chunks() + chunk) as usize]
                    } else {
                        ends.passes[rank as usize]
                    };
                    let leaving = &self.prices[self.stage(rank, chunk)].leaving[split];
                    asked.extend(leaving.iter().map(|it| Leaving { at: (end + it.at).max(0.0), ..*it }));
                }
                asked.sort_by(|a, b| a.at.total_cmp(&b.at));
                asked
            })
            .collect();
        let ends = drained(&self.prepared.tariffs.shares, &asked);
        ends.iter().map(|ends| ends.iter().copied().fold(0.0, f64::max)).collect()
    }
}

/// What goes on beside the passes of a step.
pub(super) fn exchanges(layout: &Layout) -> (Gathering, Reducing) {
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

pub(super) fn layers_of(architecture: &Architecture, chunk: &Chunk) -> Layers {
    let kinds = chunk.layers.clone().fold(0, |hash, layer| {
        let kind = architecture.window_of(layer) << 1 | architecture.layer_kind(layer) as u64;
        windtunnel_kernel::random::combine(hash, kind)
    });
    (chunk.layers.end - chunk.layers.start, kinds, chunk.embedding, chunk.head)
}
