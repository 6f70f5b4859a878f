//! From a model and a parallelism layout to programs.
//!
//! [`generate`] takes a [`Layout`] and what each stage does ([`ChunkWork`], from a model or by hand) and returns one
//! program per pipeline rank, shared by all ranks that differ only in their tensor, context, expert and data coordinates;
//! peers are communicator members. Life cycle: the layout is checked, the schedule built, pieces compiled once per stage
//! ([`passes`]), each pipeline rank emitted ([`emit`]), communicators cut from the grid of ranks ([`grid`]).
//!
//! Invariants: passes run in the schedule's order; communication runs on its own stream (0 compute, 1 tp, 2 cp, 3 ep,
//! 4 pp, 5 dp) and is exposed only where something waits for it; all members of a communicator name its collectives in the
//! same order. Failure modes: a layout, schedule or stage that does not fit is a [`GenerateError`].
//!
//! Sources: Megatron-LM (Narayanan et al. 2021; Korthikanti et al. 2022), PyTorch DDP (Li et al. 2020), ZeRO (Rajbhandari
//! et al. 2020), FSDP (Zhao et al. 2023), Llama 3 (Grattafori et al. 2024 §3.3).

pub(crate) mod emit;
mod error;
mod grid;
mod layout;
pub(crate) mod passes;
mod pieces;
mod sharding;

pub use emit::{message_tag, stream_of};
pub use error::GenerateError;
pub use grid::{Coordinates, Grid, Groups, Role};
pub use layout::{Axis, Clip, CollectiveChoice, GradientReduce, Layout, Reshard};
pub use pieces::{ChunkWork, Overlap, Piece};

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{RankId, Span};

use crate::program::{Binding, Communicator, Dimension, Program, Workload};
use crate::schedules::{Costs, Schedule, ScheduleSettings, Shape};

/// A generated job.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Programs, communicators and ranks.
    pub workload: Workload,
    /// Numbering of ranks.
    pub grid: Grid,
    /// The pipeline schedule; its rank is the `pp` coordinate, which is also the number of the program.
    pub schedule: Schedule,
    /// The groups behind [`Workload::communicators`], in the order of their first use.
    pub groups: Vec<GroupSet>,
}

/// Communicators of one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSet {
    /// What they are for.
    pub role: Role,
    /// First of them in [`Workload::communicators`].
    pub first: u32,
    /// Number of them.
    pub count: u32,
    /// Members of each.
    pub size: u32,
    /// Members of one scale-up domain that stand next to each other.
    pub domain: u32,
}

/// Programs of all ranks for one step of `layout` with `stages[s]` the work of stage s on any of its ranks.
///
/// # Errors
/// [`GenerateError`] when layout, schedule and stages do not fit each other.
pub fn generate(layout: &Layout, stages: &[ChunkWork]) -> Result<Generated, GenerateError> {
    generate_on(layout, &[Kind { stages, overlap_slowdown: layout.overlap_slowdown }])
}

/// What the stages do on one kind of GPU.
#[derive(Clone, Copy, Debug)]
pub struct Kind<'a> {
    /// By number.
    pub stages: &'a [ChunkWork],
    /// As [`Layout::overlap_slowdown`].
    pub overlap_slowdown: f64,
}

/// The same for ranks on GPUs of several kinds: program k · pp + p is that of pipeline rank p on the k-th of `kinds`. Ranks are of the
/// first; whoever places them gives each the program of its kind ([`Workload::on_kinds`]). All kinds exchange the same, in the same
/// order: the schedule is made by what passes cost on the first.
///
/// # Errors
/// As [`generate`], and [`GenerateError::Kinds`] if kinds exchange differently.
pub fn generate_on(layout: &Layout, kinds: &[Kind<'_>]) -> Result<Generated, GenerateError> {
    let stages = kinds.first().map_or(&[][..], |kind| kind.stages);
    layout.check()?;
    let (chunks, microbatches) = (layout.schedule.chunks(), layout.microbatches);
    if chunks > emit::TAG_LIMITS.0 || microbatches > emit::TAG_LIMITS.1 {
        return Err(GenerateError::Tags { chunks, microbatches });
    }
    let schedule = Schedule::new(
        &with_costs(&layout.schedule, &stages.iter().collect::<Vec<_>>()),
        layout.pp,
        microbatches,
    )?;
    let placement = schedule.placement;
    if stages.len() != placement.stages() as usize {
        return Err(GenerateError::Stages { found: stages.len(), expected: placement.stages() });
    }
    let grid = Grid::new(layout);
    let mut groups = GroupCache { layout, schedule: &schedule, grid: &grid, known: FxHashMap::default() };
    for role in [Role::Tp, Role::Cp, Role::Ep, Role::Pp, Role::Data, Role::Replicate, Role::Tied, Role::World]
    {
        groups.cut(role);
    }
    for half in 0..=u16::from(placement.shape == Shape::Bidirectional) {
        groups.cut(Role::Shard(half));
        groups.cut(Role::ExpertShard(half));
    }
    let mut emitted = Vec::with_capacity(kinds.len() * layout.pp as usize);
    for kind in kinds {
        let own = Layout { overlap_slowdown: kind.overlap_slowdown, ..layout.clone() };
        let passes = compile(&own, &schedule, kind.stages)?;
        for rank in 0..layout.pp {
            let domain = |role| groups.domain(role);
            let made = emit::emit(&own, &schedule, kind.stages, &passes, &domain, rank)?;
            // A rank binds its slots once, whatever it runs on.
            if emitted.get(rank as usize).is_some_and(|first: &emit::Emitted| first.slots != made.slots) {
                return Err(GenerateError::Kinds { rank });
            }
            emitted.push(made);
        }
    }
    let (sets, workload) = bind(emitted, &grid, &groups);
    Ok(Generated { workload, grid, schedule, groups: sets })
}

/// The settings of a schedule with what its passes compute on the mean stage, where its order is searched for by costs and none are given.
pub fn with_costs<'a>(settings: &'a ScheduleSettings, stages: &[&ChunkWork]) -> Cow<'a, ScheduleSettings> {
    if !settings.is_searched() || settings.costs.is_some() || stages.is_empty() {
        return Cow::Borrowed(settings);
    }
    let mean = |pass: fn(&ChunkWork) -> &Vec<Piece>| {
        let all: Span = stages.iter().flat_map(|work| pass(work)).map(Piece::computed).sum();
        Span::from_ps(all.ps() / stages.len() as u64)
    };
    let apart =
        |span: Span| Span::from_ps((span.ps() as f64 * (1.0 + settings.split_overhead)).round() as u64);
    let costs = Costs::new(
        mean(|work| &work.forward),
        apart(mean(|work| &work.backward_input)),
        apart(mean(|work| &work.backward_weight)),
    );
    Cow::Owned(ScheduleSettings { costs: Some(costs), ..settings.clone() })
}

/// Whether a dimension has groups of more than one in `layout`.
pub(crate) fn is_active(layout: &Layout, dimension: Dimension) -> bool {
    match dimension {
        Dimension::Tp => layout.tp > 1,
        Dimension::Cp => layout.cp > 1,
        Dimension::Ep => layout.ep > 1,
        Dimension::Dp => layout.cp * layout.ep * layout.dp > 1,
        // Not inside a pipeline rank: refused when compiled.
        Dimension::Pp | Dimension::Other => true,
    }
}

/// Compiles the passes that the schedule runs.
fn compile(
    layout: &Layout,
    schedule: &Schedule,
    stages: &[ChunkWork],
) -> Result<Vec<emit::StagePasses>, GenerateError> {
    let active = |dimension| is_active(layout, dimension);
    let mut runs = vec![[false; 4]; stages.len()];
    for rank in 0..schedule.ranks() {
        for action in schedule.actions(rank) {
            runs[schedule.placement.stage(rank, action.chunk) as usize][action.kind as usize] = true;
        }
    }
    let compile = |(index, work): (usize, &ChunkWork)| {
        let (stage, units) = (index as u32, work.units() as u32);
        let compiler = passes::Compiler { stage, units, active: &active, slowdown: layout.overlap_slowdown };
        let lists = [
            ("forward", &work.forward, 1.0),
            ("backward", &work.backward, 1.0),
            ("backward_input", &work.backward_input, 1.0 + layout.schedule.split_overhead),
            ("backward_weight", &work.backward_weight, 1.0 + layout.schedule.split_overhead),
        ];
        let mut compiled = emit::StagePasses::default();
        for (kind, (pass, pieces, scale)) in lists.into_iter().enumerate() {
            if !runs[index][kind] {
                continue;
            }
            if pieces.is_empty() {
                return Err(GenerateError::MissingPass { stage, pass, schedule: schedule.name.name() });
            }
            compiled.passes[kind] = compiler.compile(pieces, pass, scale)?;
        }
        Ok(compiled)
    };
    stages.iter().enumerate().map(compile).collect()
}

/// Groups by role, cut once.
struct GroupCache<'a> {
    layout: &'a Layout,
    schedule: &'a Schedule,
    grid: &'a Grid,
    known: FxHashMap<Role, Groups>,
}

impl GroupCache<'_> {
    fn cut(&mut self, role: Role) {
        let placement = self.schedule.placement;
        if role.size(self.layout, placement) > 1 {
            let groups = Groups::new(role, self.layout, self.grid, placement);
            self.known.insert(role, groups);
        }
    }

    fn domain(&self, role: Role) -> u32 {
        self.known.get(&role).map_or(1, |groups| groups.domain)
    }
}

/// Ranks with their programs and communicators.
fn bind(emitted: Vec<emit::Emitted>, grid: &Grid, groups: &GroupCache) -> (Vec<GroupSet>, Workload) {
    let mut workload = Workload::default();
    let mut sets: Vec<GroupSet> = Vec::new();
    for role in emitted.iter().flat_map(|emitted| &emitted.slots) {
        if sets.iter().any(|set| set.role == *role) {
            continue;
        }
        let cut = &groups.known[role];
        let first = workload.communicators.len() as u32;
        let (count, size) = (cut.members.len() as u32, cut.members[0].len() as u32);
        sets.push(GroupSet { role: *role, first, count, size, domain: cut.domain });
        workload.communicators.extend(cut.members.iter().enumerate().map(|(index, ranks)| Communicator {
            name: format!("{}[{index}]", role.name()),
            ranks: ranks.clone(),
        }));
    }
    let slots: Vec<Vec<(u32, &Groups)>> = emitted
        .iter()
        .map(|emitted| {
            let of = |role: &Role| {
                let first = sets.iter().find(|set| set.role == *role).map_or(0, |set| set.first);
                (first, &groups.known[role])
            };
            emitted.slots.iter().map(of).collect()
        })
        .collect();
    let mut bindings: Vec<Binding> = Vec::new();
    for rank in (0..grid.ranks()).map(RankId) {
        let program = grid.coordinates(rank).pp;
        bindings.clear();
        bindings.extend(slots[program as usize].iter().map(|(first, cut)| {
            let (group, index) = cut.place[rank.0 as usize].expect("a slot is used by members only");
            Binding { communicator: first + group, index }
        }));
        workload.add_rank(program, &bindings);
    }
    workload.programs = emitted.into_iter().map(|emitted| emitted.program).collect::<Vec<Program>>();
    (sets, workload)
}

#[cfg(test)]
mod tests;
