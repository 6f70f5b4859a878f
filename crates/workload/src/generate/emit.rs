//! The program of one pipeline rank.
//!
//! The rank's passes follow one another on the compute stream in the schedule's order; a pass is a *lane*, and the two
//! members of an overlapped pair are two lanes whose steps are interleaved by the share of computation done, so that the
//! exchanges of one run beside the computation of the other. Inside a lane everything waits for the lane's *tail*, the
//! operations that end what has been emitted so far; computation is held back and merged until something hangs on it.
//!
//! Collectives of one communicator run one after another in program order, as NCCL serialises them.
//!
//! Where launching takes time the host's launches are a chain of their own on [`HOST_STREAM`], one for each unit: a pass waits
//! for its launch to begin, and ends after it.
//!
//! Receives are posted a pass or more ahead, sends leave as soon as a pass ends and are awaited by nobody. Parameters are
//! gathered ahead of their use, gradients leave in buckets as their units complete, and the optimiser waits for all.

mod sharded;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use windtunnel_kernel::{Bytes, NicId, Span, StreamId, Tag};

use super::grid::{Role, tied_ranks};
use super::passes::{Exchange, Pass, Step};
use super::sharding::{Gathers, Load, Planner};
use super::{ChunkWork, Clip, GenerateError, Layout};
use crate::collectives::{CollectiveKind, CollectiveSpec};
use crate::program::{CommSlot, Dimension, HOST_STREAM, OpKind, Peer, Program, ProgramBuilder};
use crate::schedules::{Action, ActionKind, Placement, Schedule, Shape};

/// The compiled passes of a stage.
#[derive(Clone, Debug, Default)]
pub(super) struct StagePasses {
    pub passes: [Pass; 4],
}

/// Operations that something waits for.
type Tail = SmallVec<[u32; 4]>;

/// Bit of an operation in a tail that need only have started: a launch by the host.
const STARTED: u32 = 1 << 31;

/// Bytes of the norm of a gradient: one 32-bit float.
const NORM: Bytes = Bytes::new(4);

/// The stream of a dimension: 0 compute, 1 tp, 2 cp, 3 ep, 4 pp, 5 dp and everything else.
pub const fn stream_of(dimension: Dimension) -> StreamId {
    StreamId(match dimension {
        Dimension::Tp => 1,
        Dimension::Cp => 2,
        Dimension::Ep => 3,
        Dimension::Pp => 4,
        Dimension::Dp | Dimension::Other => 5,
    })
}

/// Tag of a message between stages: direction, the sender's chunk, micro-batch.
pub const fn message_tag(gradient: bool, chunk: u16, microbatch: u32) -> Tag {
    Tag((gradient as u64) << 31 | (chunk as u64) << 20 | microbatch as u64)
}

/// Largest chunk number and micro-batch count that [`message_tag`] holds.
pub(super) const TAG_LIMITS: (u16, u32) = (1 << 11, 1 << 20);

/// What is emitted: a program and the roles of its slots.
pub(super) struct Emitted {
    pub program: Program,
    pub slots: Vec<Role>,
}

/// A pass on its way.
struct Lane {
    action: Action,
    tail: Tail,
    /// The message this pass waits for; gathers do not.
    input: Option<u32>,
    held: Option<(Span, &'static str)>,
    issued: SmallVec<[(u32, u32); 4]>,
    /// The host's last launch for this pass.
    launch: Option<u32>,
    bucket: Load,
    /// Whether this pass completes gradients that are reduced now.
    reduces: bool,
}

/// Emits the program of pipeline rank `rank`.
pub(super) fn emit(
    layout: &Layout,
    schedule: &Schedule,
    stages: &[ChunkWork],
    passes: &[StagePasses],
    domain_of: &dyn Fn(Role) -> u32,
    rank: u32,
) -> Result<Emitted, GenerateError> {
    let placement = schedule.placement;
    let mut emitter = Emitter {
        layout,
        placement,
        rank,
        stages,
        passes,
        domain_of,
        builder: ProgramBuilder::new(),
        slots: Vec::new(),
        last_on: Vec::new(),
        alone: true,
        labels: FxHashMap::default(),
        gathers: Gathers::default(),
        late: Vec::new(),
        gathered: Vec::new(),
        entry: 0,
        launch: None,
    };
    emitter.run(schedule);
    let Emitter { builder, slots, .. } = emitter;
    Ok(Emitted { program: builder.finish()?, slots })
}

struct Emitter<'a> {
    layout: &'a Layout,
    placement: Placement,
    rank: u32,
    stages: &'a [ChunkWork],
    passes: &'a [StagePasses],
    domain_of: &'a dyn Fn(Role) -> u32,
    builder: ProgramBuilder,
    slots: Vec<Role>,
    /// Last collective on each slot, and whether everything emitted from now on comes after it anyway.
    last_on: Vec<(u32, bool)>,
    /// Whether the current pass runs alone.
    alone: bool,
    labels: FxHashMap<(ActionKind, u16, u32, &'static str), u32>,
    gathers: Gathers,
    /// Gradients by chunk that are reduced after the last pass.
    late: Vec<Load>,
    /// Operations of the gathers emitted so far.
    gathered: Vec<SmallVec<[u32; 2]>>,
    /// Entries into units emitted so far.
    entry: usize,
    /// The host's last launch.
    launch: Option<u32>,
}

impl<'a> Emitter<'a> {
    fn run(&mut self, schedule: &Schedule) {
        let actions = schedule.actions(self.rank);
        let groups: Vec<&[Action]> = {
            let mut rest = actions;
            std::iter::from_fn(|| {
                let first = rest.first()?;
                let (group, after) = rest.split_at(1 + usize::from(first.paired));
                rest = after;
                Some(group)
            })
            .collect()
        };
        let orders: Vec<Vec<(usize, usize)>> = groups.iter().map(|group| self.interleave(group)).collect();
        self.plan(&groups, &orders);
        if self.layout.zero < 3 {
            self.gather_up_to(u32::MAX, &Tail::new());
        }
        let mut last_gradient = vec![0; usize::from(self.placement.chunks)];
        for (index, action) in actions.iter().enumerate() {
            if matches!(action.kind, ActionKind::Backward | ActionKind::BackwardWeight) {
                last_gradient[usize::from(action.chunk)] = index;
            }
        }
        let always = self.layout.reduces_always();
        let mut starts: Vec<Tail> = Vec::with_capacity(groups.len());
        let mut tail = Tail::new();
        let mut index = 0;
        for (position, (group, order)) in groups.iter().zip(&orders).enumerate() {
            starts.push(tail.clone());
            let posted = position
                .checked_sub(self.layout.receive_ahead as usize)
                .map(|position| starts[position].clone())
                .unwrap_or_default();
            self.alone = group.len() == 1;
            let mut lanes: SmallVec<[Lane; 2]> = SmallVec::new();
            for &action in *group {
                let gradient = matches!(action.kind, ActionKind::Backward | ActionKind::BackwardWeight);
                let mut lane = Lane {
                    action,
                    tail: tail.clone(),
                    input: self.receive(action, &posted),
                    held: None,
                    issued: SmallVec::new(),
                    launch: None,
                    bucket: Load { chunk: action.chunk, ..Load::default() },
                    reduces: gradient && (always || last_gradient[usize::from(action.chunk)] == index),
                };
                lane.tail.extend(lane.input);
                lanes.push(lane);
                index += 1;
            }
            for &(lane, step) in order {
                let pass = self.pass(lanes[lane].action);
                self.step(&mut lanes[lane], &pass.steps[step]);
            }
            tail.clear();
            for lane in &mut lanes {
                self.close(lane);
                for &op in &lane.tail {
                    if !tail.contains(&op) {
                        tail.push(op);
                    }
                }
            }
            // Every exchange of a pass has been awaited by its end.
            self.alone = true;
            self.join(&[Role::Tp, Role::Cp, Role::Ep, Role::Data]);
        }
        self.reduce_late(&tail);
        self.finish_step(tail);
    }

    fn stage(&self, chunk: u16) -> usize {
        self.placement.stage(self.rank, chunk) as usize
    }

    fn pass(&self, action: Action) -> &'a Pass {
        &self.passes[self.stage(action.chunk)].passes[action.kind as usize]
    }

    /// (lane, step) in the order of emission: lanes advance by the share of their computation that is done.
    fn interleave(&self, group: &[Action]) -> Vec<(usize, usize)> {
        let lanes: SmallVec<[&Pass; 2]> = group.iter().map(|&action| self.pass(action)).collect();
        let [first, second] = lanes[..] else {
            return (0..lanes[0].steps.len()).map(|step| (0, step)).collect();
        };
        let total = |pass: &Pass| u128::from(pass.progress.last().map_or(0, |span| span.ps())).max(1);
        let mut order = Vec::with_capacity(first.steps.len() + second.steps.len());
        let (mut a, mut b) = (0, 0);
        while a < first.steps.len() || b < second.steps.len() {
            let behind =
                |pass: &Pass, at: usize, other: &Pass| u128::from(pass.progress[at].ps()) * total(other);
            let take_first = b == second.steps.len()
                || a < first.steps.len() && behind(first, a, second) <= behind(second, b, first);
            if take_first {
                order.push((0, a));
                a += 1;
            } else {
                order.push((1, b));
                b += 1;
            }
        }
        order
    }

    fn plan(&mut self, groups: &[&[Action]], orders: &[Vec<(usize, usize)>]) {
        let mut planner = Planner::new(self.layout, self.placement.chunks);
        for (group, order) in groups.iter().zip(orders) {
            let needs: SmallVec<[bool; 2]> =
                group.iter().map(|action| planner.starts(action.kind, action.chunk)).collect();
            for &(lane, step) in order {
                let action = group[lane];
                if let Step::Enter(units) = &self.pass(action).steps[step] {
                    let work = &self.stages[self.stage(action.chunk)];
                    planner.enters(needs[lane], action.chunk, work, units);
                }
            }
        }
        self.gathers = planner.finish();
    }

    fn requires_all(&mut self, op: u32, tail: &[u32]) {
        for &prerequisite in tail {
            match prerequisite & STARTED {
                0 => self.builder.requires(op, prerequisite),
                _ => self.builder.irequires(op, prerequisite & !STARTED),
            }
        }
    }

    /// The slot of `role`, or nothing if its group has one member.
    fn slot(&mut self, role: Role) -> Option<CommSlot> {
        if role.size(self.layout, self.placement) < 2 {
            return None;
        }
        let slot = self.slots.iter().position(|&known| known == role).unwrap_or_else(|| {
            self.slots.push(role);
            self.last_on.push((0, true));
            self.slots.len() - 1
        });
        Some(CommSlot(slot as u16))
    }

    /// A collective after `tail` and after the one before it on its communicator.
    fn collective(&mut self, exchange: Exchange, bytes: Bytes, tail: &[u32]) -> Option<u32> {
        let slot = self.slot(exchange.role)?;
        let choice = self.layout.collectives[exchange.dimension as usize];
        let spec = CollectiveSpec {
            algorithm: choice.algorithm,
            form: choice.form,
            outstanding: choice.outstanding,
            domain: (self.domain_of)(exchange.role),
            routing: exchange.routing,
            ..CollectiveSpec::new(exchange.kind, bytes)
        };
        let label = self.builder.label(exchange.label);
        let op =
            self.builder.collective(slot, spec, exchange.dimension, stream_of(exchange.dimension), label);
        self.requires_all(op, tail);
        let (before, joined) = std::mem::replace(&mut self.last_on[usize::from(slot.0)], (op, false));
        if !joined && !tail.contains(&before) {
            self.builder.requires(op, before);
        }
        Some(op)
    }

    /// The last collectives of `roles` are prerequisites of all that follows, if this pass runs alone.
    fn join(&mut self, roles: &[Role]) {
        if self.alone {
            for (role, last) in self.slots.iter().zip(&mut self.last_on) {
                last.1 |= roles.contains(role);
            }
        }
    }

    fn calc(&mut self, lane: &Lane, duration: Span, label: &'static str) -> u32 {
        let Action { kind, chunk, microbatch, .. } = lane.action;
        let builder = &mut self.builder;
        let label = *self.labels.entry((kind, chunk, microbatch, label)).or_insert_with(|| {
            let space = if label.is_empty() { "" } else { " " };
            builder.label(&format!("{}{chunk}.{microbatch}{space}{label}", kind.letter()))
        });
        self.builder.calc(duration, StreamId(0), label)
    }

    /// Emits the computation held back.
    fn flush(&mut self, lane: &mut Lane) {
        if let Some((duration, label)) = lane.held.take() {
            let op = self.calc(lane, duration, label);
            self.requires_all(op, &lane.tail);
            lane.tail.clear();
            lane.tail.push(op);
        }
    }

    fn step(&mut self, lane: &mut Lane, step: &Step) {
        match step {
            Step::Calc { duration, label } => match &mut lane.held {
                Some((held, name)) => {
                    *held += *duration;
                    if name != label {
                        *name = "";
                    }
                }
                none => *none = Some((*duration, label)),
            },
            Step::Inline(exchange) => {
                self.flush(lane);
                if let Some(op) = self.collective(*exchange, exchange.bytes, &lane.tail) {
                    lane.tail.clear();
                    lane.tail.push(op);
                    self.join(&[exchange.role]);
                }
            }
            Step::Split { before, duration, label, after } => {
                self.flush(lane);
                self.split(lane, *before, *duration, label, *after);
                for (exchange, _) in [before, after].into_iter().flatten() {
                    self.join(&[exchange.role]);
                }
            }
            Step::Issue(id, exchange) => {
                self.flush(lane);
                let op = self.collective(*exchange, exchange.bytes, &lane.tail);
                lane.issued.extend(op.map(|op| (*id, op)));
            }
            Step::Wait(id) => {
                self.flush(lane);
                if let Some(position) = lane.issued.iter().position(|(known, _)| known == id) {
                    let (_, op) = lane.issued.remove(position);
                    lane.tail.push(op);
                }
            }
            Step::Launch { span, waits } => self.launch(lane, *span, *waits),
            Step::Enter(_) => self.enter(lane),
            Step::Leave(units) => self.leave(lane, units),
        }
    }

    /// The host launches what follows on the lane, after what it launched before. Where it waits for each exchange between
    /// stages, a pass is launched once its input is here and the pass before has ended.
    fn launch(&mut self, lane: &mut Lane, span: Span, waits: bool) {
        self.flush(lane);
        let label = self.builder.label("launch");
        let op = self.builder.calc(span, HOST_STREAM, label);
        if let Some(before) = self.launch {
            self.builder.requires(op, before);
        }
        if waits || lane.launch.is_none() && self.layout.blocking_exchange {
            self.requires_all(op, &lane.tail);
        }
        self.launch = Some(op);
        lane.launch = Some(op);
        lane.tail.retain(|op| *op & STARTED == 0);
        lane.tail.push(op | STARTED);
    }

    /// A computation in n parts beside its neighbours: part j needs the share (j + 1) / n of what comes before it, and
    /// chunk i of k of what comes after needs the share (i + 1) / k of the parts.
    fn split(
        &mut self,
        lane: &mut Lane,
        before: Option<(Exchange, u32)>,
        duration: Span,
        label: &'static str,
        after: Option<(Exchange, u32)>,
    ) {
        let chunks = |side: Option<(Exchange, u32)>| side.map_or(1, |(_, chunks)| chunks);
        let parts = chunks(before).max(chunks(after));
        let incoming: Vec<u32> = before
            .into_iter()
            .flat_map(|(exchange, chunks)| (0..chunks).map(move |chunk| (exchange, chunk, chunks)))
            .filter_map(|(exchange, chunk, chunks)| {
                self.collective(exchange, Bytes::new(share(exchange.bytes.get(), chunk, chunks)), &lane.tail)
            })
            .collect();
        let entry = lane.tail.clone();
        let (mut outgoing, mut sent) = (0, None);
        for part in 0..parts {
            let op = self.calc(lane, Span::from_ps(share(duration.ps(), part, parts)), label);
            if part == 0 {
                self.requires_all(op, &entry);
            } else {
                self.requires_all(op, &lane.tail);
            }
            if !incoming.is_empty() {
                let needed = ((part + 1) * incoming.len() as u32).div_ceil(parts) - 1;
                self.builder.requires(op, incoming[needed as usize]);
            }
            lane.tail.clear();
            lane.tail.push(op);
            if let Some((exchange, chunks)) = after {
                while outgoing < chunks && ((outgoing + 1) * parts).div_ceil(chunks) <= part + 1 {
                    let bytes = Bytes::new(share(exchange.bytes.get(), outgoing, chunks));
                    sent = self.collective(exchange, bytes, &lane.tail);
                    outgoing += 1;
                }
            }
        }
        // The last chunk of the exchange waits for the last part and for the chunks before it.
        if let Some(op) = sent {
            lane.tail.clear();
            lane.tail.push(op);
        }
    }

    /// Ends a pass: the last bucket, exchanges nobody waited for, and the message to the next stage.
    fn close(&mut self, lane: &mut Lane) {
        self.flush(lane);
        self.reduce(lane);
        lane.tail.retain(|op| *op & STARTED == 0);
        lane.tail.extend(lane.launch);
        lane.tail.extend(lane.issued.drain(..).map(|(_, op)| op));
        let Action { kind, chunk, microbatch, .. } = lane.action;
        let (to, gradient) = match kind {
            ActionKind::Forward => (self.placement.next(self.rank, chunk), false),
            ActionKind::Backward | ActionKind::BackwardInput => {
                (self.placement.previous(self.rank, chunk), true)
            }
            ActionKind::BackwardWeight => (None, false),
        };
        let Some((to, to_chunk)) = to.filter(|&(to, _)| to != self.rank) else { return };
        let slot = self.slot(Role::Pp).expect("another rank makes the pipeline longer than one");
        // What crosses between two stages is the output of the earlier one, in both directions.
        let earlier = if gradient { self.placement.stage(to, to_chunk) as usize } else { self.stage(chunk) };
        let label = self.builder.label(if gradient { "gradient" } else { "activation" });
        let send = OpKind::Send {
            peer: Peer::Member(slot, to),
            bytes: self.stages[earlier].send_bytes,
            tag: message_tag(gradient, chunk, microbatch),
            stream: stream_of(Dimension::Pp),
            nic: NicId(0),
        };
        let op = self.builder.push(send, Dimension::Pp, label);
        self.requires_all(op, &lane.tail);
    }

    /// The receive of what `action` needs from another rank, posted after `posted`.
    fn receive(&mut self, action: Action, posted: &Tail) -> Option<u32> {
        let (from, gradient) = match action.kind {
            ActionKind::Forward => (self.placement.previous(self.rank, action.chunk), false),
            ActionKind::Backward | ActionKind::BackwardInput => {
                (self.placement.next(self.rank, action.chunk), true)
            }
            ActionKind::BackwardWeight => (None, false),
        };
        let (from, chunk) = from.filter(|&(from, _)| from != self.rank)?;
        let slot = self.slot(Role::Pp).expect("another rank makes the pipeline longer than one");
        let label = self.builder.label(if gradient { "gradient" } else { "activation" });
        let receive = OpKind::Receive {
            peer: Some(Peer::Member(slot, from)),
            tag: Some(message_tag(gradient, chunk, action.microbatch)),
            stream: stream_of(Dimension::Pp),
        };
        let op = self.builder.push(receive, Dimension::Pp, label);
        self.requires_all(op, posted);
        Some(op)
    }

    /// What follows the last pass: tied embeddings, the gradient norm, the optimiser.
    fn finish_step(&mut self, mut tail: Tail) {
        for (slot, role) in self.slots.iter().enumerate() {
            if matches!(role, Role::Shard(_) | Role::ExpertShard(_) | Role::Replicate) {
                let (op, _) = self.last_on[slot];
                if !tail.contains(&op) {
                    tail.push(op);
                }
            }
        }
        let mut then = |emitter: &mut Self, role, dimension, bytes, label| {
            let exchange =
                Exchange { role, dimension, kind: CollectiveKind::AllReduce, bytes, routing: None, label };
            if let Some(op) = emitter.collective(exchange, bytes, &tail) {
                tail.clear();
                tail.push(op);
            }
        };
        let tied = tied_ranks(self.placement).is_some_and(|ends| ends.contains(&self.rank));
        if let Some(bytes) = self.layout.tied_embedding.filter(|_| tied) {
            then(self, Role::Tied, Dimension::Pp, bytes, "all-reduce tied embedding");
        }
        let norm = "all-reduce gradient norm";
        match self.layout.clip {
            Clip::Off => {}
            Clip::World => then(self, Role::World, Dimension::Other, NORM, norm),
            Clip::PerAxis => {
                then(self, Role::Tp, Dimension::Tp, NORM, norm);
                then(self, Role::Pp, Dimension::Pp, NORM, norm);
                if self.layout.zero > 0 {
                    // Where stages live on two ranks a rank is in two shard groups: use the pipeline rank's own group.
                    let both = self.placement.shape == Shape::Bidirectional;
                    let role = if both { Role::Data } else { Role::Shard(0) };
                    then(self, role, Dimension::Dp, NORM, norm);
                }
            }
        }
        let optimiser: Span =
            (0..self.placement.chunks).map(|chunk| self.stages[self.stage(chunk)].optimiser).sum();
        if optimiser > Span::ZERO {
            let label = self.builder.label("optimiser");
            let op = self.builder.calc(optimiser, StreamId(0), label);
            self.requires_all(op, &tail);
        }
    }
}

/// Share `index` of `total` in `parts` parts that differ by at most one.
pub(crate) fn share(total: u64, index: u32, parts: u32) -> u64 {
    let at = |index: u32| (total as u128 * index as u128 / parts as u128) as u64;
    at(index + 1) - at(index)
}
