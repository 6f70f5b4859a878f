//! Turns what a shard reports into rows: iterations, their critical paths, and the operations of watched ranks.

use std::ops::Range;
use std::sync::Arc;

use windtunnel_cluster::explain::{Breakdown, Category, Segment};
use windtunnel_cluster::shard::{IterationEnd, Observer};
use windtunnel_kernel::{EndpointId, RankId, Span, Tag, Time};
use windtunnel_plan::jobs::{JobPlan, Work};
use windtunnel_workload::replay::Replay;
use windtunnel_workload::{Dimension, OpKind, Operation, Peer, Program};

use super::clock::Origin;
use super::paths::PathNames;
use crate::table::{Batch, Column, TableSink};

/// An iteration of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Iteration {
    /// Number within the job.
    pub number: u64,
    /// Start, in picoseconds of the episode's [`Origin`].
    pub start_ps: u64,
    /// End.
    pub finish_ps: u64,
    /// By how much that is later than the mean of its ranks' ends.
    pub lag_ps: u64,
    /// Ranks that did it.
    pub ranks: u32,
    /// The rank that ended it.
    pub critical_rank: u32,
    /// Where the time went; unknown at job fidelity.
    pub breakdown: Option<Breakdown>,
    /// Whether it is taken from an episode that was simulated before.
    pub reused: bool,
    /// How many iterations of the job it stands for: 1 for itself, less if it was not done from its begin to its end, more if it
    /// stands for some that were not simulated.
    pub weight: f64,
    /// Whether it ended before its episode did.
    pub ended: bool,
    /// Whether it was done from its begin to its end.
    pub whole: bool,
}

#[cfg(test)]
impl Iteration {
    /// Of one rank that does nothing, whole.
    pub(super) const fn plain(number: u64, start_ps: u64, finish_ps: u64) -> Self {
        Self {
            number,
            start_ps,
            finish_ps,
            lag_ps: 0,
            ranks: 1,
            critical_rank: 0,
            breakdown: None,
            reused: false,
            weight: 1.0,
            ended: true,
            whole: true,
        }
    }
}

impl Iteration {
    /// As a shard whose clock is the run's tells of it, one that stands for itself.
    pub(crate) fn of(end: &IterationEnd) -> Self {
        Self {
            number: end.iteration,
            start_ps: end.start.ps(),
            finish_ps: end.finish.ps(),
            lag_ps: end.lag.ps(),
            ranks: 0,
            critical_rank: end.path.rank.0,
            breakdown: None,
            reused: false,
            weight: 1.0,
            ended: true,
            whole: true,
        }
    }

    /// Length in picoseconds.
    pub(crate) fn span_ps(&self) -> u64 {
        self.finish_ps - self.start_ps
    }
}

/// Has each of an episode's `iterations` stand for what its job did of it in the span `worked`, and those from number `lasting` on
/// for what it did beyond them too, all alike, where it did `done` iterations in all. The job did so as it was simulated, and then at
/// the mean of those: weighed so, weights sum to the iterations done, and iterations to the span worked.
pub(crate) fn weigh(iterations: &mut [Iteration], worked: Range<u64>, lasting: usize, done: Option<f64>) {
    for iteration in &mut *iterations {
        let (begin, end) = (iteration.start_ps.max(worked.start), iteration.finish_ps.min(worked.end));
        iteration.ended = iteration.finish_ps <= worked.end;
        iteration.whole = iteration.ended && iteration.start_ps >= worked.start;
        let part = || end.saturating_sub(begin) as f64 / (iteration.span_ps() as f64).max(1.0);
        iteration.weight = if iteration.whole { 1.0 } else { part() };
    }
    let simulated: f64 = iterations.iter().map(|iteration| iteration.weight).sum();
    let rest = done.map_or(0.0, |done| done - simulated);
    let beyond = iterations.last().is_some_and(|last| last.finish_ps < worked.end);
    // Less is of roundings.
    if beyond && rest > 1e-9 * simulated.max(1.0) {
        let each = rest / (iterations.len() - lasting) as f64;
        iterations[lasting..].iter_mut().for_each(|iteration| iteration.weight += each);
    }
}

/// A job of the episode as the recorder sees it.
#[derive(Clone)]
pub(crate) struct Watched {
    /// Index of the job in the scenario.
    pub job: usize,
    /// What its rows say since when they count iterations: the episode; where there is one alone, the stay of the job.
    pub episode: u32,
    /// What it does on as many GPUs as it has.
    pub work: Arc<Work>,
    /// GPU of each rank.
    pub placement: Vec<EndpointId>,
    /// It loads its data: the lengths of its requests are kept, but no rows.
    pub loading: bool,
    /// Its phase, a device of the simulation: rows are told without it.
    pub phase: Span,
    /// Iterations done before the episode.
    pub done_before: u64,
    /// Iteration (of the episode) whose operations are written.
    pub operations_of: u64,
    /// Whether the rank's operations are written, by rank.
    pub ranks: Vec<bool>,
}

/// Collects rows of an episode and hands them to the sink.
pub(crate) struct Recorder<'a> {
    plans: &'a [JobPlan],
    /// By job of the shard.
    watched: Vec<Watched>,
    names: PathNames<'a>,
    sink: &'a mut dyn TableSink,
    /// Start of the episode.
    origin: Origin,
    /// By job of the shard.
    iterations: &'a mut Vec<Vec<Iteration>>,
    /// Whether critical paths are written.
    paths: bool,
    /// Rows that stand only if the episode lasts as long.
    held: &'a mut Vec<Held>,
    /// The first failure of the sink.
    failure: Option<String>,
}

/// Rows about an iteration, kept until it is known whether the episode lasted to its end.
#[derive(Debug)]
pub(crate) struct Held {
    /// Job of the episode, and which of its iterations there.
    pub of: (usize, u64),
    /// End of the iteration, in picoseconds of the episode's [`Origin`].
    pub finish_ps: u64,
    /// Table.
    pub table: &'static str,
    /// Rows.
    pub batch: Batch,
}

/// Rows by table, each table's in order: one large batch costs far less than many of a row.
pub(crate) fn together(held: impl IntoIterator<Item = Held>) -> Vec<(&'static str, Batch)> {
    let mut tables: Vec<(&'static str, Batch)> = Vec::new();
    for Held { table, batch, .. } in held {
        match tables.iter_mut().find(|(known, _)| *known == table) {
            Some((_, kept)) => kept.append(batch),
            None => tables.push((table, batch)),
        }
    }
    tables
}

impl<'a> Recorder<'a> {
    /// A recorder for an episode that starts at `origin`; `paths`: critical paths are written.
    pub(crate) fn new(
        plans: &'a [JobPlan],
        names: PathNames<'a>,
        sink: &'a mut dyn TableSink,
        origin: Origin,
        iterations: &'a mut Vec<Vec<Iteration>>,
        held: &'a mut Vec<Held>,
        paths: bool,
    ) -> Self {
        iterations.clear();
        Self { plans, watched: Vec::new(), names, sink, origin, iterations, paths, held, failure: None }
    }

    /// Another job enters the shard.
    pub(crate) fn enter(&mut self, watched: Watched) {
        self.watched.push(watched);
        self.iterations.push(Vec::new());
    }

    /// Iterations so far, by job.
    pub(crate) fn iterations(&self) -> &[Vec<Iteration>] {
        self.iterations
    }

    /// Links have other names from now on, as paths have changed.
    pub(crate) fn rename_paths(&mut self, names: PathNames<'a>) {
        self.names = names;
    }

    /// What is held back of iterations of that job of the shard that end after `at` never happened.
    pub(crate) fn undo(&mut self, job: usize, at: Time) {
        let until_ps = self.at(at).saturating_sub(self.watched[job].phase.ps());
        self.held.retain(|held| held.of.0 != job || held.finish_ps <= until_ps);
    }

    /// Batches of rows held back.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Hands on the rows held back: what they tell will not be undone.
    pub(crate) fn release(&mut self) {
        for (table, batch) in together(std::mem::take(self.held)) {
            self.rows(table, batch);
        }
    }

    /// Why the sink stopped taking rows, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn at(&self, time: Time) -> u64 {
        self.origin.ps.saturating_add(time.ps())
    }

    /// Where rows of that job of the shard put an instant.
    fn told(&self, job: usize, time: Time) -> u64 {
        self.at(time) - self.watched[job].phase.ps()
    }

    /// Hands rows of `table` to the sink, unless it has failed before.
    pub(crate) fn rows(&mut self, table: &'static str, batch: Batch) {
        if self.failure.is_none() && !batch.is_empty() {
            self.failure = self.sink.rows(table, batch).err();
        }
    }

    fn critical_path(
        &mut self,
        job: usize,
        (iteration, number): (u64, u64),
        rank: RankId,
        segments: &[Segment],
        replay: &Replay,
    ) {
        let finish_ps = segments.last().map_or(0, |last| self.told(job, last.finish));
        let watched = &self.watched[job];
        let job_plan = &self.plans[watched.job];
        let program = watched.work.workload.program(rank);
        let label = |segment: &Segment| match program.ops.get(segment.op as usize) {
            Some(op) => program.labels[op.label as usize].as_str(),
            None => "",
        };
        let links = |segment: &Segment| match segment.category {
            Category::Exposed(_) => {
                self.names.of(replay, &watched.placement, rank, &program.ops[segment.op as usize])
            }
            _ => String::new(),
        };
        let n = segments.len();
        let links: Vec<String> = segments.iter().map(links).collect();
        // Rows are held back for many iterations: texts, which repeat, are kept once.
        let batch = Batch::default()
            .with("job", Column::repeated(&job_plan.name, n))
            .with("episode", Column::U32(vec![watched.episode; n]))
            .with("iteration", Column::U64(vec![number; n]))
            .with("step", Column::U32((0..n as u32).collect()))
            .with("rank", Column::U32(vec![rank.0; n]))
            .with("label", Column::named(segments.iter().map(label)))
            .with("category", Column::named(segments.iter().map(|s| s.category.name())))
            .with("start_ps", Column::U64(segments.iter().map(|s| self.told(job, s.start)).collect()))
            .with("finish_ps", Column::U64(segments.iter().map(|s| self.told(job, s.finish)).collect()))
            .with("links", Column::named(links.iter().map(String::as_str)))
            .with("origin_s", Column::U64(vec![self.origin.seconds(); n]));
        self.held.push(Held { of: (job, iteration), finish_ps, table: "critical_path", batch });
    }
}

impl Observer for Recorder<'_> {
    fn rank_iteration(&mut self, job: usize, rank: RankId, iteration: u64, replay: &Replay) {
        let watched = &self.watched[job];
        if iteration != watched.operations_of || !watched.ranks[rank.0 as usize] {
            return;
        }
        let job_plan = &self.plans[watched.job];
        let program = watched.work.workload.program(rank);
        let n = program.ops.len();
        let records: Vec<_> = (0..n as u32).map(|op| replay.record(rank, op)).collect();
        let start = |(record, op): (&windtunnel_workload::replay::OpRecord, &Operation)| match op.kind {
            OpKind::Send { .. } => record.ready,
            _ => record.remote.max(record.ready).min(record.finish),
        };
        let ops = &program.ops;
        let names = program.labels.iter().map(String::as_str);
        let labels = Column::coded(names, ops.iter().map(|op| op.label));
        let dimensions = Dimension::ALL.map(Dimension::name);
        let workload = &watched.work.workload;
        let peer = |peer: Option<Peer>| peer.map(|peer| u64::from(workload.resolve(rank, peer).0));
        let batch = Batch::default()
            .with("job", Column::repeated(&job_plan.name, n))
            .with("rank", Column::U32(vec![rank.0; n]))
            .with("stage", Column::U32(vec![watched.work.stage_of(rank); n]))
            .with("episode", Column::U32(vec![watched.episode; n]))
            .with("iteration", Column::U64(vec![watched.done_before + iteration; n]))
            .with("operation", Column::U32((0..n as u32).collect()))
            .with("label", labels)
            .with("kind", Column::coded(KINDS, ops.iter().map(kind)))
            .with("dimension", Column::coded(dimensions, ops.iter().map(|op| op.dimension as u32)))
            .with("stream", Column::U32(ops.iter().map(stream).collect()))
            .with(
                "ready_ps",
                Column::U64(records.iter().map(|record| self.told(job, record.ready)).collect()),
            )
            .with(
                "start_ps",
                Column::U64(records.iter().zip(ops).map(|pair| self.told(job, start(pair))).collect()),
            )
            .with(
                "finish_ps",
                Column::U64(records.iter().map(|record| self.told(job, record.finish)).collect()),
            )
            .with("bytes", Column::U64(ops.iter().map(|op| bytes(program, op)).collect()))
            .with("peer", Column::sparse(ops.iter().map(|op| peer(message(op).0))))
            .with("tag", Column::sparse(ops.iter().map(|op| message(op).1.map(|tag| tag.0))))
            .with("origin_s", Column::U64(vec![self.origin.seconds(); n]));
        self.rows("operations", batch);
    }

    fn iteration(&mut self, job: usize, end: &IterationEnd, replay: &Replay) {
        let watched = &self.watched[job];
        let number = watched.done_before + end.iteration;
        let breakdown = Breakdown::of(&end.path.segments);
        let row = Iteration {
            number,
            start_ps: self.at(end.start),
            finish_ps: self.at(end.finish),
            ranks: watched.placement.len() as u32,
            breakdown: Some(breakdown),
            ..Iteration::of(end)
        };
        self.iterations[job].push(row);
        if watched.loading {
            return;
        }
        let one = |value: u64| Column::U64(vec![value]);
        let mut batch = Batch::default()
            .with("job", Column::Text(vec![self.plans[watched.job].name.clone()]))
            .with("episode", Column::U32(vec![watched.episode]))
            .with("iteration", one(number))
            .with("start_ps", one(self.told(job, end.start)))
            .with("finish_ps", one(self.told(job, end.finish)))
            .with("critical_rank", Column::U32(vec![row.critical_rank]))
            .with("compute_ps", one(breakdown.compute));
        const EXPOSED: [&str; 6] = [
            "exposed_tp_ps",
            "exposed_cp_ps",
            "exposed_ep_ps",
            "exposed_pp_ps",
            "exposed_dp_ps",
            "exposed_other_ps",
        ];
        for (name, value) in EXPOSED.into_iter().zip(breakdown.exposed) {
            batch = batch.with(name, one(value));
        }
        let batch = batch
            .with("bubble_ps", one(breakdown.bubble))
            .with("straggler_ps", one(breakdown.straggler))
            .with("host_ps", one(breakdown.host))
            .with("origin_s", one(self.origin.seconds()));
        let of = (job, end.iteration);
        self.held.push(Held { of, finish_ps: self.told(job, end.finish), table: "iterations", batch });
        if self.paths {
            self.critical_path(job, (end.iteration, number), end.path.rank, &end.path.segments, replay);
        }
    }
}

/// Kinds of operations as tables name them.
const KINDS: [&str; 4] = ["calc", "send", "receive", "collective"];

/// Index into [`KINDS`].
fn kind(op: &Operation) -> u32 {
    match op.kind {
        OpKind::Calc { .. } => 0,
        OpKind::Send { .. } => 1,
        OpKind::Receive { .. } => 2,
        OpKind::Collective { .. } => 3,
    }
}

/// The peer and the tag of a message; a receive may take any.
fn message(op: &Operation) -> (Option<Peer>, Option<Tag>) {
    match op.kind {
        OpKind::Send { peer, tag, .. } => (Some(peer), Some(tag)),
        OpKind::Receive { peer, tag, .. } => (peer, tag),
        OpKind::Calc { .. } | OpKind::Collective { .. } => (None, None),
    }
}

fn stream(op: &Operation) -> u32 {
    let (OpKind::Calc { stream, .. }
    | OpKind::Send { stream, .. }
    | OpKind::Receive { stream, .. }
    | OpKind::Collective { stream, .. }) = op.kind;
    u32::from(stream.0)
}

fn bytes(program: &Program, op: &Operation) -> u64 {
    match op.kind {
        OpKind::Send { bytes, .. } => bytes.get(),
        OpKind::Collective { spec, .. } => program.specs[spec as usize].bytes.get(),
        OpKind::Calc { .. } | OpKind::Receive { .. } => 0,
    }
}
