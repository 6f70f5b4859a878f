//! Two levels: domains of m neighbours in the group (a scale-up domain) and, for each local index, the m-th part of the
//! data between the g domains, each over its own rail (Jia et al., "Highly scalable deep learning training system with
//! mixed-precision", 2018, §4.3; NCCL's and RCCL's hierarchical schemes).
//!
//! The n = g·m blocks of the group are seen as a table of g rows and m columns. Inside a domain, rings work on columns
//! (all blocks of one local index); between domains, on one column's blocks. A reduce-scatter goes in then out, an
//! all-gather out then in, an all-reduce in, out and in again.
//!
//! By messages each step of a ring is a round. By rings ([`Levels::by_rings`]) each ring is one round without messages, in which its
//! members meet: their edges advance together, as those of a ring over the whole group do.

use windtunnel_kernel::registry::Entry;

use super::method::{Arrangement, Method, Rings};
use super::parts::{Meeting, Part, Round, Sink};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;
use super::{Algorithm, CollectiveKind, SizeRule, all_to_all, recursive, ring};

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    AllReduce,
    AllGather,
    ReduceScatter,
}

/// A resolved two-level scheme.
#[derive(Clone, Copy)]
pub(super) struct Levels {
    pub task: Task,
    /// Members of a domain.
    pub inner: u32,
    /// Domains.
    pub outer: u32,
    /// Ring or (powers of two only) recursive between domains; or a meeting, in one round without messages.
    pub between: Algorithm,
    /// Whether a ring is one round.
    pub by_rings: bool,
}

impl Levels {
    fn outer_rounds(self) -> u32 {
        let phases = if self.task == Task::AllReduce { 2 } else { 1 };
        match self.between {
            Algorithm::InNetwork => 1,
            _ if self.by_rings => 1,
            Algorithm::Recursive => phases * self.outer.ilog2(),
            _ => phases * (self.outer - 1),
        }
    }

    fn inner_rounds(self) -> u32 {
        if self.by_rings { 1 } else { self.inner - 1 }
    }

    /// Rounds in all.
    pub(super) fn rounds(self) -> u32 {
        let inside = if self.task == Task::AllReduce { 2 } else { 1 };
        inside * self.inner_rounds() + self.outer_rounds()
    }

    /// The ring of member `index` in round `round` of `bytes`, by rings.
    pub(super) fn meeting(self, bytes: u64, index: u32, round: u32) -> Meeting {
        let Self { inner, outer, task, .. } = self;
        let (domain, local) = (index / inner, index % inner);
        let between = u32::from(task != Task::AllGather);
        let carried = |steps: u32, bytes: u64, n: u32| {
            (u128::from(steps) * u128::from(bytes)).div_ceil(u128::from(n)) as u64
        };
        if round == between {
            let steps = if task == Task::AllReduce { 2 * (outer - 1) } else { outer - 1 };
            let column = Part { first: local, step: inner, count: outer, blocks: inner * outer };
            let bytes = carried(steps, column.bytes(bytes), outer);
            Meeting { first: local, stride: inner, count: outer, bytes, steps, ring: true }
        } else {
            let steps = inner - 1;
            let bytes = carried(steps, bytes, inner);
            Meeting { first: domain * inner, stride: 1, count: inner, bytes, steps, ring: true }
        }
    }

    /// Round `round` of `index`.
    pub(super) fn round(self, index: u32, round: u32, sink: &mut impl Sink) {
        if self.by_rings {
            return;
        }
        let (domain, local) = (index / self.inner, index % self.inner);
        let (inside, between) = (self.inner_rounds(), self.outer_rounds());
        let (before, after) = match self.task {
            Task::AllReduce => (inside, inside),
            Task::ReduceScatter => (inside, 0),
            Task::AllGather => (0, inside),
        };
        if round < before {
            let sink = &mut Inside { levels: self, domain, sink };
            ring::reduce_scatter(self.inner, local, round, sink);
        } else if round < before + between {
            let sink = &mut Between { levels: self, local, sink };
            self.outer_round(domain, round - before, sink);
        } else if round < before + between + after {
            let sink = &mut Inside { levels: self, domain, sink };
            ring::all_gather(self.inner, local, round - before - between, sink);
        }
    }

    fn outer_round(self, domain: u32, round: u32, sink: &mut impl Sink) {
        let n = self.outer;
        if self.between == Algorithm::InNetwork {
            return;
        }
        match (self.task, self.between) {
            (Task::AllReduce, Algorithm::Recursive) => recursive::all_reduce(n, domain, round, sink),
            (Task::ReduceScatter, Algorithm::Recursive) => recursive::reduce_scatter(n, domain, round, sink),
            (Task::AllGather, Algorithm::Recursive) => recursive::all_gather(n, domain, round, sink),
            (Task::AllReduce, _) if round >= n - 1 => ring::all_gather(n, domain, round - (n - 1), sink),
            (Task::AllReduce | Task::ReduceScatter, _) => ring::reduce_scatter(n, domain, round, sink),
            (Task::AllGather, _) => ring::all_gather(n, domain, round, sink),
        }
    }
}

impl Plan {
    /// Its two levels.
    pub(super) fn levels(&self) -> Levels {
        let task = match self.kind() {
            CollectiveKind::AllGather => Task::AllGather,
            CollectiveKind::ReduceScatter => Task::ReduceScatter,
            _ => Task::AllReduce,
        };
        Levels {
            task,
            inner: self.domain(),
            outer: self.members() / self.domain(),
            between: self.between(),
            by_rings: self.goes_by_rings(),
        }
    }
}

/// Inside a domain: block c of m is column c.
struct Inside<'a, S> {
    levels: Levels,
    domain: u32,
    sink: &'a mut S,
}

impl<S> Inside<'_, S> {
    fn map(&self, peer: u32, part: Part) -> (u32, Part) {
        let Levels { inner, outer, .. } = self.levels;
        debug_assert_eq!(part.count, 1, "rings move one column at a time");
        let column = Part { first: part.first, step: inner, count: outer, blocks: inner * outer };
        (self.domain * inner + peer, column)
    }
}

impl<S: Sink> Sink for Inside<'_, S> {
    fn send(&mut self, to: u32, part: Part) {
        let (to, part) = self.map(to, part);
        self.sink.send(to, part);
    }

    fn receive(&mut self, from: u32, part: Part) {
        let (from, part) = self.map(from, part);
        self.sink.receive(from, part);
    }
}

/// Between domains: block r of g is row r of the column `local`.
struct Between<'a, S> {
    levels: Levels,
    local: u32,
    sink: &'a mut S,
}

impl<S> Between<'_, S> {
    fn map(&self, peer: u32, part: Part) -> (u32, Part) {
        let Levels { inner, outer, .. } = self.levels;
        debug_assert_eq!(part.blocks, outer, "blocks between domains are rows");
        let rows = Part {
            first: part.first * inner + self.local,
            step: part.step * inner,
            count: part.count,
            blocks: inner * outer,
        };
        (peer * inner + self.local, rows)
    }
}

impl<S: Sink> Sink for Between<'_, S> {
    fn send(&mut self, to: u32, part: Part) {
        let (to, part) = self.map(to, part);
        self.sink.send(to, part);
    }

    fn receive(&mut self, from: u32, part: Part) {
        let (from, part) = self.map(from, part);
        self.sink.receive(from, part);
    }
}

/// Inside the domains and between them in turn.
pub(super) struct Hierarchical;

impl Method for Hierarchical {
    const ENTRY: Entry = Entry::new("hierarchical", "inside the scale-up domain first");
    const KINDS: &'static [CollectiveKind] = &[
        CollectiveKind::AllReduce,
        CollectiveKind::AllGather,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllToAll,
        CollectiveKind::AllToAllV,
    ];
    const RINGS: Rings = Rings::None;
    const WHOLE_DOMAINS: bool = true;
    const IN_TURN: bool = false;
    const SUMS: bool = false;

    fn settle(plan: &mut Plan) {
        let (inner, outer) = (u64::from(plan.domain()), plan.members() / plan.domain());
        plan.goes_between(SizeRule::between_domains(plan.bytes() / inner, outer));
    }

    fn rounds(plan: &Plan, outstanding: u32) -> Arrangement {
        let (n, inner) = (plan.members(), plan.domain());
        if !matches!(plan.kind(), CollectiveKind::AllToAll | CollectiveKind::AllToAllV) {
            return Arrangement::of(plan.levels().rounds());
        }
        let depth = outstanding.min((inner - 1).max(n / inner - 1));
        Arrangement { depth, ..Arrangement::of(all_to_all::hierarchical_rounds(n, inner, depth)) }
    }

    fn emit(plan: &Plan, index: u32, _: u32, round: u32, sink: &mut impl Sink) {
        plan.levels().round(index, round, sink);
    }

    fn exchange(plan: &Plan, index: u32, round: u32, out: &mut Round) {
        all_to_all::hierarchical(plan.sizes(), plan.domain(), plan.depth(0), index, round, out);
    }

    fn coupled(plan: &Plan) -> Option<CoupledShape> {
        match plan.kind() {
            CollectiveKind::AllToAll => CoupledShape::pairs(plan),
            CollectiveKind::AllToAllV => None,
            _ => (plan.domain() >= plan.members()).then(|| CoupledShape::ring(plan)),
        }
    }

    fn traffic(_: &Plan) -> Option<Traffic> {
        None
    }
}
