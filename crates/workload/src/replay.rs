//! Executes the programs of a job over a machine: owns dependency counters, the collectives in flight and
//! the ready set, and never a clock.
//!
//! Life cycle: [`Replay::new`] checks the workload and resolves its collectives; for each rank and iteration
//! [`Replay::begin`] resets the rank's operations and submits those without prerequisites; the machine's notices come
//! back through [`Replay::started`] and [`Replay::finished`], which release what waited, until `finished` (or `begin`)
//! says that the rank's iteration has ended. Ranks begin their next iteration when the caller says, each for itself.
//!
//! Invariants: an operation is submitted once an iteration, with `ready` = the latest of its prerequisites' ends
//! (`requires`) and starts (`irequires`) and of the iteration's begin; what one notice releases is submitted sends first,
//! then receives, calcs and collectives, in program order within each, as LogGOPSim does. A tag of a collective's
//! message holds communicator, sequence over all iterations, lane and round, so that collectives never cross-match. A
//! coupled collective is one [`Machine::join`]; its end is told through `finished` to every member.
//!
//! State is 32 bytes an operation of a rank that has begun, 32 bytes a round of a collective in flight, and nothing is
//! allocated or hashed in the steady state.
//!
//! Failure modes: [`ReplayError`] before anything runs; afterwards only a machine that runs dry, which
//! [`Replay::stuck`] explains.

mod collective;
mod prepare;
mod stuck;
#[cfg(test)]
mod tests;

pub use prepare::{Connections, Coupling, Exchanges, ReplayError};
pub use stuck::StuckOperation;

use std::sync::Arc;

use prefetch_index::prefetch_index;
use windtunnel_kernel::{Id, RankId, Span, Tag, Time};

use crate::collectives::{Plan, SizeRule, Tuner};
use crate::machine::{Join, Machine, Outgoing, Token};
use crate::program::{CommSlot, OpKind, Operation, Peer, Program, Workload};
use collective::{Collectives, Entry, MESSAGE};
use prepare::{Prepared, order, tag_base};

/// No operation: what releases an operation without prerequisites.
pub const ITERATION_START: u32 = u32::MAX;

/// How a workload is replayed.
#[derive(Clone)]
pub struct ReplayOptions {
    /// Distinguishes the job's messages from other jobs' for load balancers.
    pub job: u64,
    /// Where collectives may run coupled.
    pub coupling: Coupling,
    /// How all-to-alls run.
    pub exchanges: Exchanges,
    /// What messages outside communicators go by.
    pub connections: Connections,
    /// Of each rank, the scale-up domain in which it stands; `None` where ranks fill domains in order, which is what
    /// [`CollectiveSpec::domain`](crate::collectives::CollectiveSpec::domain) says then, and it does not matter which domains.
    pub homes: Option<Arc<[u32]>>,
    /// What `Algorithm::Auto` stands for.
    pub tuner: Arc<dyn Tuner + Send + Sync>,
    /// Whether there are several iterations. A message outside communicators then follows that of the same operation in the
    /// iteration before, as what is sent from one buffer does. Without, a rank that only sends would have all iterations under way at
    /// once, to share its NIC, and they would end together.
    pub repeats: bool,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            job: 0,
            coupling: Coupling::default(),
            exchanges: Exchanges::default(),
            connections: Connections::default(),
            homes: None,
            tuner: Arc::new(SizeRule),
            repeats: false,
        }
    }
}

impl std::fmt::Debug for ReplayOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplayOptions")
            .field("job", &self.job)
            .field("coupling", &self.coupling)
            .finish_non_exhaustive()
    }
}

/// What is known of an operation in the iteration in hand, or the last one if none is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRecord {
    /// When its last prerequisite let it go, so far; the iteration's begin without prerequisites.
    pub ready: Time,
    /// When it ended, [`Time::NEVER`] before.
    pub finish: Time,
    /// As the machine told it: for a computation its own start, for a receive the instant its sender started, for a coupled
    /// collective the group's start. For a collective by steps `ready` plus the longest wait in one round for a peer that had not begun to send
    /// (the sum over rounds would count transfers that overlap the wait), so that in either form `remote` − `ready` is
    /// time lost to a late member.
    pub remote: Time,
    /// The operation whose end or start released it last, [`ITERATION_START`] if none.
    pub cause: u32,
}

/// State of an operation of a rank.
#[derive(Clone, Copy, Debug)]
struct OpState {
    ready: Time,
    finish: Time,
    remote: Time,
    cause: u32,
    /// Prerequisites still missing.
    left: u32,
}

/// Operations whose state fills a cache line.
const BESIDE: usize = 64 / size_of::<OpState>();

/// State of a rank.
#[derive(Clone, Debug)]
struct RankState {
    /// Empty until the rank's first iteration.
    ops: Vec<OpState>,
    /// Operations that have not ended.
    remaining: u32,
    /// Iterations begun.
    begun: u32,
    start: Time,
    finish: Time,
}

/// The programs of all ranks of a job, under way.
#[derive(Debug)]
pub struct Replay {
    prepared: Arc<Prepared>,
    ranks: Vec<RankState>,
    collectives: Collectives,
    /// Operations released by the notice in hand.
    ready: Vec<u32>,
    running: usize,
}

impl Replay {
    /// Checks `workload` and resolves its collectives.
    ///
    /// # Errors
    /// [`ReplayError`] when a peer, program, binding or communicator does not exist, when members of a communicator
    /// disagree on its collectives, or when a collective does not fit its group.
    pub fn new(workload: Arc<Workload>, options: &ReplayOptions) -> Result<Self, ReplayError> {
        Ok(Self::over(Arc::new(Prepared::new(workload, options)?)))
    }

    /// Another replay of the same checked workload with nothing begun, for another shard's ranks: a rank that never
    /// begins costs a few words.
    pub fn fork(&self) -> Self {
        Self::over(Arc::clone(&self.prepared))
    }

    fn over(prepared: Arc<Prepared>) -> Self {
        let idle =
            RankState { ops: Vec::new(), remaining: 0, begun: 0, start: Time::ZERO, finish: Time::ZERO };
        Self {
            ranks: vec![idle; prepared.workload.ranks()],
            collectives: Collectives::new(&prepared),
            prepared,
            ready: Vec::new(),
            running: 0,
        }
    }

    /// The workload replayed.
    pub fn workload(&self) -> &Arc<Workload> {
        &self.prepared.workload
    }

    /// Starts the next iteration of `rank` at `at`; returns whether it has ended already.
    ///
    /// # Panics
    /// If the rank's last iteration has not ended.
    pub fn begin(&mut self, rank: RankId, at: Time, machine: &mut impl Machine) -> bool {
        let prepared = &*self.prepared;
        let program = prepared.workload.program(rank);
        let state = &mut self.ranks[rank.index()];
        assert!(state.remaining == 0, "rank {rank} begins an iteration within another");
        let fresh = |&left: &u32| OpState {
            ready: at,
            finish: Time::NEVER,
            remote: Time::ZERO,
            cause: ITERATION_START,
            left,
        };
        state.ops.clear();
        state.ops.reserve_exact(program.ops.len());
        state.ops.extend(program.prerequisites.iter().map(fresh));
        state.remaining = program.ops.len() as u32;
        state.begun += 1;
        (state.start, state.finish) = (at, at);
        self.running += 1;
        let roots = &prepared.programs[prepared.workload.program_of[rank.index()] as usize].roots;
        self.ready.extend_from_slice(roots);
        let mut step = self.step(rank, machine);
        step.submit_released();
        self.ended(rank)
    }

    /// The machine began what `token` stands for at `at`.
    pub fn started(&mut self, rank: RankId, token: Token, at: Time, machine: &mut impl Machine) {
        if token.0 & MESSAGE != 0 {
            return;
        }
        let mut step = self.step(rank, machine);
        let op = token.0;
        // A collective has started when it is submitted.
        if step.program.irequires.of(op).is_empty() || matches!(step.kind(op), OpKind::Collective { .. }) {
            return;
        }
        step.release(op, at, step.program.irequires.of(op));
        step.submit_released();
    }

    /// The machine ended what `token` stands for at `at`; `remote` is when the other side began. Returns whether the
    /// rank's iteration ended with it.
    pub fn finished(
        &mut self,
        rank: RankId,
        token: Token,
        at: Time,
        remote: Time,
        machine: &mut impl Machine,
    ) -> bool {
        let mut step = self.step(rank, machine);
        if token.0 & MESSAGE == 0 {
            step.complete(token.0, at, remote);
        } else {
            let end = step.collectives.finished(step.prepared, token, at, remote, step.machine);
            let Some(end) = end else { return false };
            step.complete_collective(end);
        }
        step.submit_released();
        self.ended(rank)
    }

    /// Has brought from memory what [`Self::finished`] will need of `rank`, `token` being of an operation: of very many ranks no
    /// cache holds the state, and who knows the next ones need not wait for each.
    #[inline]
    pub fn foresee(&self, rank: RankId, token: Token) {
        if let Some(state) = self.ranks.get(rank.index()) {
            prefetch_index(&state.ops, token.0 as usize);
            // What waits for it mostly stands behind it.
            prefetch_index(&state.ops, token.0 as usize + BESIDE);
        }
    }

    /// Runs by steps, from `at` on, the collective for which `rank` had joined with `token`: for a caller that finds
    /// its members' arrivals too far apart for one group. Every member must be told.
    ///
    /// Returns whether the rank's iteration ended with it.
    pub fn run_by_steps(&mut self, rank: RankId, token: Token, at: Time, machine: &mut impl Machine) -> bool {
        let mut step = self.step(rank, machine);
        step.start_steps(token.0, at);
        step.submit_released();
        self.ended(rank)
    }

    /// Whether an iteration of `rank` is under way.
    pub fn is_running(&self, rank: RankId) -> bool {
        self.ranks[rank.index()].remaining > 0
    }

    /// Number of ranks with an iteration under way.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Iterations that `rank` has completed.
    pub fn iterations_done(&self, rank: RankId) -> u32 {
        let state = &self.ranks[rank.index()];
        state.begun - u32::from(state.remaining > 0)
    }

    /// Iterations so far of the slowest of the ranks that `counts`, the one in hand by the part of its operations that has
    /// ended, and a collective by the part of its rounds: how far a run is. Looks at every rank.
    pub fn slowest(&self, counts: impl Fn(RankId) -> bool) -> f64 {
        let operations = |rank: usize| self.ranks[rank].ops.len().max(1) as f64;
        let of_rank = |(rank, state): (usize, &RankState)| {
            f64::from(state.begun) - f64::from(state.remaining) / operations(rank)
        };
        let mut done: Vec<f64> = self.ranks.iter().enumerate().map(of_rank).collect();
        for slot in self.collectives.slots.iter().filter(|slot| slot.active) {
            let rank = slot.rank.index();
            done[rank] += slot.done(&self.prepared.plans[slot.plan as usize].plan) / operations(rank);
        }
        let counted = done.into_iter().enumerate().filter(|&(rank, _)| counts(RankId::from_index(rank)));
        counted.map(|(_, done)| done).reduce(f64::min).unwrap_or(0.0)
    }

    /// Begin of the iteration in hand, or of the last one.
    pub fn iteration_start(&self, rank: RankId) -> Time {
        self.ranks[rank.index()].start
    }

    /// Latest end of an operation in the iteration in hand or, if none is, the end of the last one.
    pub fn iteration_finish(&self, rank: RankId) -> Time {
        self.ranks[rank.index()].finish
    }

    /// What is known of operation `op` of `rank` in the iteration in hand, or the last one if none is.
    ///
    /// # Panics
    /// If the rank has begun no iteration or has no such operation.
    #[inline]
    pub fn record(&self, rank: RankId, op: u32) -> OpRecord {
        let OpState { ready, finish, remote, cause, .. } = self.ranks[rank.index()].ops[op as usize];
        OpRecord { ready, finish, remote, cause }
    }

    /// The resolved collective that a join stands for.
    pub fn plan(&self, join: &Join) -> &Plan {
        &self.prepared.plans[self.plan_number(join) as usize].plan
    }

    /// The number of that plan: equal collectives of groups of equal size share it, so a coupled shape may be prepared
    /// once for each (communicator, number).
    pub fn plan_number(&self, join: &Join) -> u32 {
        let run = self.prepared.collectives(join.communicator);
        run[(join.sequence % run.len() as u64) as usize]
    }

    /// Whether the collective that a join stands for was asked to run coupled, whatever its members' arrivals.
    pub fn is_forced(&self, join: &Join) -> bool {
        self.prepared.plans[self.plan_number(join) as usize].forced
    }

    /// All-to-alls that never asked the machine: their plans, and how often one has run.
    pub fn exchanges_by_message(&self) -> impl Iterator<Item = (&Plan, u64)> {
        let runs = self.prepared.plans.iter().zip(&self.collectives.stepped);
        runs.map(|(group, &members)| (&group.plan, members.div_ceil(u64::from(group.plan.members()))))
    }

    /// What load balancers hash of a collective's messages on `communicator` in lane 0, and of its coupled group.
    pub fn collective_entropy(&self, communicator: u32) -> u32 {
        self.prepared.collective_entropy(communicator, 0)
    }

    /// What load balancers hash of a message between `rank` and `peer`.
    pub fn message_entropy(&self, rank: RankId, peer: Peer) -> u32 {
        self.prepared.message_entropy(rank, peer)
    }

    /// What the machine may be waiting for when it has run dry: operations submitted and not ended, by rank and operation.
    pub fn stuck(&self) -> Vec<StuckOperation> {
        stuck::find(self)
    }

    /// The send of `rank` that `token` stands for, as waiting for its receive; `None` for a message of a collective.
    pub fn unreceived(&self, rank: RankId, token: Token) -> Option<StuckOperation> {
        if token.0 & MESSAGE != 0 {
            return None;
        }
        stuck::send(self, rank, token.0)
    }

    fn step<'a, M: Machine>(&'a mut self, rank: RankId, machine: &'a mut M) -> Step<'a, M> {
        let prepared = &*self.prepared;
        Step {
            program: prepared.workload.program(rank),
            prepared,
            state: &mut self.ranks[rank.index()],
            collectives: &mut self.collectives,
            ready: &mut self.ready,
            rank,
            machine,
        }
    }

    fn ended(&mut self, rank: RankId) -> bool {
        let ended = self.ranks[rank.index()].remaining == 0;
        self.running -= usize::from(ended);
        ended
    }
}

/// One notice to one rank.
struct Step<'a, M> {
    prepared: &'a Prepared,
    program: &'a Program,
    state: &'a mut RankState,
    collectives: &'a mut Collectives,
    ready: &'a mut Vec<u32>,
    rank: RankId,
    machine: &'a mut M,
}

impl<M: Machine> Step<'_, M> {
    fn kind(&self, op: u32) -> &OpKind {
        &self.program.ops[op as usize].kind
    }

    /// Tells those that waited for `op` that it ended (or started) at `at`.
    #[inline]
    fn release(&mut self, op: u32, at: Time, waiting: &[u32]) {
        for &next in waiting {
            let state = &mut self.state.ops[next as usize];
            if at > state.ready || state.cause == ITERATION_START {
                state.ready = state.ready.max(at);
                state.cause = op;
            }
            state.left -= 1;
            if state.left == 0 {
                self.ready.push(next);
            }
        }
    }

    #[inline]
    fn complete(&mut self, op: u32, at: Time, remote: Time) {
        let state = &mut self.state.ops[op as usize];
        debug_assert!(state.finish == Time::NEVER, "operation {op} of rank {} ended twice", self.rank);
        state.finish = at;
        state.remote = remote;
        self.state.remaining -= 1;
        self.state.finish = self.state.finish.max(at);
        self.release(op, at, self.program.requires.of(op));
    }

    fn complete_collective(&mut self, end: collective::End) {
        let ready = self.state.ops[end.op as usize].ready;
        self.complete(end.op, end.at, ready + end.waited);
    }

    /// Submits what has been released, and what that releases in turn (an empty collective ends when it starts).
    fn submit_released(&mut self) {
        if let [op] = self.ready[..] {
            self.ready.clear();
            self.submit(op);
        }
        while !self.ready.is_empty() {
            let batch = self.ready.len();
            let ops = &self.program.ops;
            self.ready.sort_unstable_by_key(|&op| (order(&ops[op as usize].kind), op));
            for at in 0..batch {
                self.submit(self.ready[at]);
            }
            self.ready.drain(..batch);
        }
    }

    fn submit(&mut self, op: u32) {
        let Operation { kind, dimension, .. } = self.program.ops[op as usize];
        let ready = self.state.ops[op as usize].ready;
        let (rank, token) = (self.rank, Token(op));
        let workload = &*self.prepared.workload;
        match kind {
            OpKind::Calc { duration, stream } => self.machine.calc(ready, rank, token, stream, duration),
            OpKind::Send { peer, bytes, tag, stream, nic } => {
                let to = workload.resolve(rank, peer);
                let entropy = self.prepared.message_entropy(rank, peer);
                let line = match peer {
                    Peer::Member(..) => 1,
                    Peer::Rank(_) if self.prepared.by_pair => 1,
                    // Of very many operations some share one.
                    Peer::Rank(_) if self.prepared.repeats => 2 + (op % (1 << 15)) as u16,
                    Peer::Rank(_) => 0,
                };
                let message =
                    Outgoing { stream, nic, to, bytes, tag, dimension, entropy, line, waits: false };
                self.machine.send(ready, rank, token, message);
            }
            OpKind::Receive { peer, tag, stream } => {
                let source = peer.map(|peer| workload.resolve(rank, peer));
                self.machine.post_receive(ready, rank, token, stream, source, tag);
            }
            OpKind::Collective { comm, spec, sequence, .. } => {
                self.release(op, ready, self.program.irequires.of(op));
                self.submit_collective(op, comm, spec, sequence);
            }
        }
    }

    fn submit_collective(&mut self, op: u32, comm: CommSlot, spec: u32, sequence: u32) {
        let dimension = self.program.ops[op as usize].dimension;
        let ready = self.state.ops[op as usize].ready;
        let communicator = self.prepared.workload.binding(self.rank, comm).communicator;
        let run = self.prepared.collectives(communicator);
        let group = &self.prepared.plans[run[sequence as usize] as usize];
        // A coupled group waits when all have come.
        let waits = !group.plan.is_empty() && (!group.coupled || group.in_step);
        let ready = if waits { ready + group.plan.before() } else { ready };
        if group.plan.is_empty() {
            self.complete_collective(collective::End { op, at: ready, waited: Span::ZERO });
        } else if group.coupled {
            let (sequence, in_step) = (self.over_iterations(sequence, run.len()), group.in_step);
            let join = Join { communicator, sequence, spec, dimension, in_step };
            self.machine.join(ready, self.rank, Token(op), join);
        } else {
            if group.plan.is_exchange() {
                self.collectives.stepped[run[sequence as usize] as usize] += 1;
            }
            self.start_steps(op, ready);
        }
    }

    fn start_steps(&mut self, op: u32, at: Time) {
        let Operation { kind: OpKind::Collective { comm, sequence, stream, .. }, dimension, .. } =
            self.program.ops[op as usize]
        else {
            unreachable!("only a collective joins");
        };
        let binding = self.prepared.workload.binding(self.rank, comm);
        let run = self.prepared.collectives(binding.communicator);
        let entry = Entry {
            rank: self.rank,
            op,
            plan: run[sequence as usize],
            communicator: binding.communicator,
            index: binding.index,
            tag: tag_base(binding.communicator, self.over_iterations(sequence, run.len())),
            stream,
            dimension,
        };
        if let Some(end) = self.collectives.start(self.prepared, entry, at, self.machine) {
            self.complete_collective(end);
        }
    }

    fn over_iterations(&self, sequence: u32, each: usize) -> u64 {
        u64::from(self.state.begun - 1) * each as u64 + u64::from(sequence)
    }
}

/// The tag as a [`StuckOperation`] names it.
fn name_tag(tag: Option<Tag>) -> String {
    tag.map_or_else(|| "any tag".to_owned(), |tag| format!("tag {}", tag.0))
}
