//! What can be known before anything runs: that every operation's peer, communicator and collective exist and agree.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Id, RankId};

use super::ReplayOptions;
use crate::collectives::nccl::Distances;
use crate::collectives::{CollectiveError, CollectiveSpec, Form, MAX_LANES, Plan, Rings, neighbours_at};
use crate::program::{CommSlot, OpKind, Peer, Program, Workload};

/// Bits of a collective's tag: 1 (collective), communicator, sequence (cyclic), lane, round.
const COMMUNICATOR_BITS: u32 = 20;
const SEQUENCE_BITS: u32 = 20;
const ROUND_BITS: u32 = 20;
const LANE_BITS: u32 = MAX_LANES.ilog2();

/// In place of a lane: messages outside collectives.
const POINT_TO_POINT: u64 = u32::MAX as u64;

/// Why a workload cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A rank names a program that does not exist.
    #[error("rank {rank} runs program {program}, but there are {programs} programs")]
    Program {
        /// Rank.
        rank: u32,
        /// Program named.
        program: u32,
        /// Programs there are.
        programs: usize,
    },
    /// An operation uses a communicator slot that its rank does not bind.
    #[error("rank {rank} uses communicator slot {slot}, but binds {bound}")]
    Unbound {
        /// Rank.
        rank: u32,
        /// Slot.
        slot: u16,
        /// Slots bound.
        bound: usize,
    },
    /// A binding does not say where its rank stands.
    #[error(
        "rank {rank} binds slot {slot} as member {index} of communicator {communicator}, which it is not"
    )]
    NotMember {
        /// Rank.
        rank: u32,
        /// Slot.
        slot: u16,
        /// Index claimed.
        index: u32,
        /// Communicator, by number.
        communicator: u32,
    },
    /// A message to or from nobody.
    #[error("{operation} of rank {rank} names {peer}, but there are {count}")]
    Peer {
        /// Rank.
        rank: u32,
        /// Operation, as people name it.
        operation: String,
        /// What it names.
        peer: String,
        /// How many there are.
        count: usize,
    },
    /// The sequence numbers of a slot's collectives are not 0, 1, 2, ….
    #[error(
        "collectives of slot {slot} in program {program} must be numbered from 0 on: number {sequence} of {count}"
    )]
    Sequence {
        /// Program.
        program: usize,
        /// Slot.
        slot: u16,
        /// Number that is repeated or too large.
        sequence: u32,
        /// Collectives of the slot.
        count: usize,
    },
    /// Two slots of a rank run collectives on one communicator.
    #[error("rank {rank} runs collectives on communicator `{communicator}` through two slots")]
    TwoSlots {
        /// Rank.
        rank: u32,
        /// Communicator.
        communicator: String,
    },
    /// Members of a communicator disagree on a collective.
    #[error(
        "ranks {first} and {second} disagree on collective {sequence} of communicator `{communicator}`: {expected} \
         against {found}"
    )]
    Mismatch {
        /// Communicator.
        communicator: String,
        /// Position among its collectives of an iteration.
        sequence: usize,
        /// A member.
        first: u32,
        /// What it runs.
        expected: String,
        /// Another.
        second: u32,
        /// What that one runs.
        found: String,
    },
    /// A collective does not fit its group.
    #[error("communicator `{communicator}`: {error}")]
    Collective {
        /// Communicator.
        communicator: String,
        /// Why.
        error: CollectiveError,
    },
    /// More of something than tags or tokens can number.
    #[error("too many {what}: {found}, at most {limit}")]
    TooMany {
        /// What.
        what: &'static str,
        /// Number found.
        found: u64,
        /// Limit.
        limit: u64,
    },
}

/// How collectives that could run coupled are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Coupling {
    /// Coupled wherever edges advance together, in two levels ring by ring.
    #[default]
    Anywhere,
    /// The same, but several rings by steps: their messages queue at their members' ends (message fidelity).
    ExceptSeveralRings,
    /// Coupled only where the whole group stands in one scale-up domain (packet fidelity).
    InsideDomain,
    /// Always by steps.
    Never,
}

windtunnel_kernel::named! {
    /// What messages outside communicators go by.
    #[derive(Default)]
    pub enum Connections: "connections" {
        #[default]
        Message = "message", "each by a connection of its own, which begins with a fresh window; of a job of several iterations, each after that of the same operation before";
        Pair = "pair", "those from one rank to another by one connection, one after the other, as between the processes of an MPI program: a window has grown with the messages before, and what comes behind a long message waits for it";
    }
}

/// How all-to-alls between scale-up domains are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Exchanges {
    /// Message by message.
    #[default]
    ByMessage,
    /// Those whose messages all begin at once ask the machine ([`Machine::join`](crate::Machine::join)), the others go message
    /// by message.
    InStep,
    /// All of them as one group ([`Plan::exchange`]).
    Whole,
}

/// A collective of a group, resolved.
#[derive(Debug)]
pub(super) struct GroupPlan {
    pub plan: Plan,
    pub coupled: bool,
    /// Whether the specification says so.
    pub forced: bool,
    /// Whether it joins as [`Exchanges::InStep`] has it.
    pub in_step: bool,
    /// Which of [`Prepared::windows`] its window has.
    pub class: u32,
}

/// What is fixed about a program.
#[derive(Debug)]
pub(super) struct ProgramInfo {
    /// Operations without prerequisites in the order in which they are submitted.
    pub roots: Vec<u32>,
}

/// A checked workload with its collectives resolved; shared by all replays of a job.
#[derive(Debug)]
pub(super) struct Prepared {
    pub workload: Arc<Workload>,
    pub programs: Vec<ProgramInfo>,
    pub plans: Vec<GroupPlan>,
    /// Distinct sizes of a collective's window (lanes × depth).
    pub windows: Vec<u32>,
    /// Hash of job and communicator.
    pub entropies: Vec<u64>,
    /// Hash of the job, for messages outside communicators.
    pub job_entropy: u64,
    /// Whether there are several iterations.
    pub repeats: bool,
    /// Whether messages from one rank to another share a connection.
    pub by_pair: bool,
    /// Of each communicator: its collectives of one iteration, as an index into `sequences`.
    of_communicator: Vec<u32>,
    /// Distinct sequences of plans.
    sequences: Vec<Vec<u32>>,
}

/// Submission order of operations that become ready at once: LogGOPSim's.
pub(super) fn order(kind: &OpKind) -> u8 {
    match kind {
        OpKind::Send { .. } => 0,
        OpKind::Receive { .. } => 1,
        OpKind::Calc { .. } => 2,
        OpKind::Collective { .. } => 3,
    }
}

/// Tag of a collective's messages, but for lane and round.
pub(super) fn tag_base(communicator: u32, sequence: u64) -> u64 {
    let sequence = sequence & ((1 << SEQUENCE_BITS) - 1);
    1 << 63
        | u64::from(communicator) << (SEQUENCE_BITS + LANE_BITS + ROUND_BITS)
        | sequence << (LANE_BITS + ROUND_BITS)
}

/// Lane and round of a tag.
pub(super) fn tag_step(lane: u32, round: u32) -> u64 {
    u64::from(lane) << ROUND_BITS | u64::from(round)
}

/// How people name an operation: index and label.
pub(super) fn name_operation(program: &Program, op: u32) -> String {
    let label = &program.labels.get(program.ops[op as usize].label as usize).map_or("", |label| label);
    if label.is_empty() { format!("operation {op}") } else { format!("operation {op} (`{label}`)") }
}

impl Prepared {
    /// Collectives of one iteration of `communicator`.
    #[inline]
    pub(super) fn collectives(&self, communicator: u32) -> &[u32] {
        &self.sequences[self.of_communicator[communicator as usize] as usize]
    }

    /// What load balancers hash of a collective's messages: (job, communicator, lane), never message or time.
    #[inline]
    pub(super) fn collective_entropy(&self, communicator: u32, lane: u32) -> u32 {
        combine(self.entropies[communicator as usize], u64::from(lane)) as u32
    }

    /// What load balancers hash of a message outside collectives: (job, communicator if any).
    #[inline]
    pub(super) fn message_entropy(&self, rank: RankId, peer: Peer) -> u32 {
        let group = match peer {
            Peer::Rank(_) => self.job_entropy,
            Peer::Member(slot, _) => self.entropies[self.workload.binding(rank, slot).communicator as usize],
        };
        combine(group, POINT_TO_POINT) as u32
    }

    /// Checks `workload` and resolves its collectives.
    pub(super) fn new(workload: Arc<Workload>, options: &ReplayOptions) -> Result<Self, ReplayError> {
        limit("communicators", workload.communicators.len() as u64, 1 << COMMUNICATOR_BITS)?;
        check_ranks(&workload)?;
        let mut names = Names::default();
        let runs = names.programs(&workload)?;
        let agreed = agree(&workload, &names, &runs)?;
        let job_entropy = combine(0, options.job);
        let mut prepared = Self {
            programs: workload.programs.iter().map(|program| ProgramInfo { roots: roots(program) }).collect(),
            plans: Vec::new(),
            windows: Vec::new(),
            entropies: (0..workload.communicators.len() as u64)
                .map(|communicator| combine(job_entropy, communicator))
                .collect(),
            job_entropy,
            repeats: options.repeats,
            by_pair: options.connections == Connections::Pair,
            of_communicator: Vec::new(),
            sequences: vec![Vec::new()],
            workload,
        };
        prepared.resolve(&names, &agreed, options)?;
        Ok(prepared)
    }

    /// One plan for each (specification, group size, place), one list for each (run of collectives, group size, place). Places are
    /// the specification's own unless ranks stand elsewhere than it takes for granted.
    fn resolve(
        &mut self,
        names: &Names,
        agreed: &[Option<u32>],
        options: &ReplayOptions,
    ) -> Result<(), ReplayError> {
        let workload = Arc::clone(&self.workload);
        let mut plans: FxHashMap<(u32, u32, Place), u32> = FxHashMap::default();
        let mut lists: FxHashMap<(u32, u32, Place), u32> = FxHashMap::default();
        for (communicator, &run) in workload.communicators.iter().zip(agreed) {
            let Some(run) = run else {
                self.of_communicator.push(0);
                continue;
            };
            let n = communicator.ranks.len() as u32;
            let run_of = &names.runs[run as usize];
            let place = options.homes.as_ref().map_or_else(Place::default, |homes| {
                let home = |rank: RankId| homes[rank.index()];
                let sites = run_of
                    .iter()
                    .find_map(|&spec| names.specs[spec as usize].library.as_ref()?.0.sites.as_ref());
                let kinds = run_of
                    .iter()
                    .find_map(|&spec| names.specs[spec as usize].library.as_ref()?.0.kinds.as_ref());
                Place {
                    domain: Some(neighbours_at([&communicator.ranks[..]], home)),
                    distances: sites.map(|sites| sites.distances(&communicator.ranks, home)),
                    kinds: kinds
                        .map_or(0, |kinds| kinds.among(communicator.ranks.iter().map(|&rank| home(rank)))),
                }
            });
            if let Some(&list) = lists.get(&(run, n, place)) {
                self.of_communicator.push(list);
                continue;
            }
            let mut list = Vec::new();
            for &spec in run_of {
                let known = plans.get(&(spec, n, place)).copied();
                let plan = if let Some(plan) = known {
                    plan
                } else {
                    let mut own = names.specs[spec as usize].clone();
                    own.domain = place.domain.unwrap_or(own.domain);
                    own.distances = place.distances.or(own.distances);
                    own.library = own.library.map(|library| library.among(place.kinds));
                    let resolved = self.resolve_one(&own, n, options).map_err(|error| {
                        ReplayError::Collective { communicator: communicator.name.clone(), error }
                    })?;
                    limit("rounds of a collective", u64::from(resolved.plan.rounds(0)), 1 << ROUND_BITS)?;
                    self.plans.push(resolved);
                    plans.insert((spec, n, place), self.plans.len() as u32 - 1);
                    self.plans.len() as u32 - 1
                };
                list.push(plan);
            }
            self.sequences.push(list);
            lists.insert((run, n, place), self.sequences.len() as u32 - 1);
            self.of_communicator.push(self.sequences.len() as u32 - 1);
        }
        Ok(())
    }

    fn resolve_one(
        &mut self,
        spec: &CollectiveSpec,
        n: u32,
        options: &ReplayOptions,
    ) -> Result<GroupPlan, CollectiveError> {
        let mut plan = Plan::with_tuner(spec, n, &*options.tuner)?;
        let allowed = match options.coupling {
            Coupling::Anywhere => true,
            Coupling::ExceptSeveralRings => plan.by_library() || plan.algorithm().rings() != Rings::Several,
            Coupling::InsideDomain => spec.domain >= n,
            Coupling::Never => false,
        };
        if !allowed && plan.by_library() && !plan.is_exchange() {
            plan = Plan::by_steps(spec, n, &*options.tuner)?;
        }
        if options.coupling == Coupling::ExceptSeveralRings {
            plan = plan.one_by_one();
        }
        let together = plan.coupled().is_some();
        let in_step = options.exchanges == Exchanges::InStep
            && !together
            && spec.form == Form::Auto
            && plan.at_once().is_some();
        let whole = options.exchanges == Exchanges::Whole && plan.exchange().is_some();
        let coupled = allowed && spec.form != Form::Steps && (together || in_step || whole);
        let rings = options.coupling == Coupling::Anywhere && spec.form != Form::Steps && !coupled;
        if let Some(rings) = rings.then(|| plan.clone().by_rings()).flatten() {
            plan = rings;
        } else if allowed && spec.form == Form::Coupled && !coupled && !plan.is_empty() {
            return Err(CollectiveError::NotCoupled { kind: plan.kind(), algorithm: plan.algorithm() });
        }
        let window = if plan.is_empty() { 0 } else { plan.lanes() * plan.depth(0) };
        let known = self.windows.iter().position(|&size| size == window);
        let class = known.unwrap_or_else(|| {
            self.windows.push(window);
            self.windows.len() - 1
        });
        // The flows of an exchange begin together, however its members come.
        let forced = spec.form == Form::Coupled || plan.coupled().is_none() || plan.by_library();
        Ok(GroupPlan { plan, coupled, forced, in_step, class: class as u32 })
    }
}

/// Where the ranks of a group stand, as their plan depends on it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Place {
    /// See [`CollectiveSpec::domain`].
    domain: Option<u32>,
    /// See [`CollectiveSpec::distances`].
    distances: Option<Distances>,
    /// See [`Library::among`](crate::collectives::nccl::Library::among); 0 where GPUs do not differ.
    kinds: u64,
}

fn limit(what: &'static str, found: u64, limit: u64) -> Result<(), ReplayError> {
    if found > limit { Err(ReplayError::TooMany { what, found, limit }) } else { Ok(()) }
}

fn roots(program: &Program) -> Vec<u32> {
    let is_root = |op: &u32| program.prerequisites[*op as usize] == 0;
    let mut roots: Vec<u32> = (0..program.ops.len() as u32).filter(is_root).collect();
    roots.sort_by_key(|&op| order(&program.ops[op as usize].kind));
    roots
}

/// What a program asks of the ranks that run it: operation index of its largest peer, and of each slot's use.
#[derive(Default)]
struct Demands {
    /// Largest rank named, and by which operation.
    rank: Option<(u32, u32)>,
    /// Largest member index named through each slot and by which operation; `None` for a slot used only by collectives.
    slots: Vec<Option<(u32, u32)>>,
}

impl Demands {
    fn of(program: &Program) -> Self {
        let mut demands = Self::default();
        for (op, operation) in (0..).zip(&program.ops) {
            match operation.kind {
                OpKind::Send { peer, .. } | OpKind::Receive { peer: Some(peer), .. } => match peer {
                    Peer::Rank(rank) => demands.rank = demands.rank.max(Some((rank.0, op))),
                    Peer::Member(slot, member) => {
                        let used = demands.slot(slot);
                        *used = (*used).max(Some((member, op)));
                    }
                },
                OpKind::Collective { comm, .. } => {
                    demands.slot(comm);
                }
                OpKind::Receive { peer: None, .. } | OpKind::Calc { .. } => {}
            }
        }
        demands
    }

    fn slot(&mut self, slot: CommSlot) -> &mut Option<(u32, u32)> {
        let slot = usize::from(slot.0);
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        &mut self.slots[slot]
    }
}

/// Every rank has its program, its bindings and its peers.
fn check_ranks(workload: &Workload) -> Result<(), ReplayError> {
    let demands: Vec<Demands> = workload.programs.iter().map(Demands::of).collect();
    for program in &workload.programs {
        limit("operations in a program", program.ops.len() as u64, 1 << 31)?;
    }
    for (rank, &program) in (0u32..).zip(&workload.program_of) {
        let Some(asked) = demands.get(program as usize) else {
            let programs = demands.len();
            return Err(ReplayError::Program { rank, program, programs });
        };
        let nobody = |op, peer, count| ReplayError::Peer {
            rank,
            operation: name_operation(&workload.programs[program as usize], op),
            peer,
            count,
        };
        if let Some((peer, op)) = asked.rank
            && peer as usize >= workload.ranks()
        {
            return Err(nobody(op, format!("rank {peer}"), workload.ranks()));
        }
        let bound = bindings(workload, rank);
        if bound.len() < asked.slots.len() {
            return Err(ReplayError::Unbound { rank, slot: bound.len() as u16, bound: bound.len() });
        }
        for ((slot, used), binding) in (0u16..).zip(&asked.slots).zip(bound) {
            let group = workload.communicators.get(binding.communicator as usize);
            let group = group.filter(|group| group.ranks.get(binding.index as usize) == Some(&RankId(rank)));
            let Some(group) = group else {
                let (index, communicator) = (binding.index, binding.communicator);
                return Err(ReplayError::NotMember { rank, slot, index, communicator });
            };
            if let Some((member, op)) = *used
                && member as usize >= group.ranks.len()
            {
                return Err(nobody(op, format!("member {member} of `{}`", group.name), group.ranks.len()));
            }
        }
    }
    Ok(())
}

fn bindings(workload: &Workload, rank: u32) -> &[crate::program::Binding] {
    match workload.binding_offsets.get(rank as usize..rank as usize + 2) {
        Some(&[from, to]) => &workload.bindings[from as usize..to as usize],
        _ => &[],
    }
}

/// Distinct specifications and distinct runs of them, by number.
#[derive(Default)]
struct Names {
    specs: Vec<CollectiveSpec>,
    spec_numbers: FxHashMap<CollectiveSpec, u32>,
    runs: Vec<Vec<u32>>,
    run_numbers: FxHashMap<Vec<u32>, u32>,
}

impl Names {
    /// Of each program and slot: the run of its collectives in one iteration, `None` if it has none.
    fn programs(&mut self, workload: &Workload) -> Result<Vec<Vec<Option<u32>>>, ReplayError> {
        let one = |(number, program): (usize, &Program)| {
            let specs: Vec<u32> = program.specs.iter().map(|spec| self.spec(spec)).collect();
            let counts = program.collectives_per_slot();
            let mut slots: Vec<Vec<u32>> = counts.iter().map(|&n| vec![u32::MAX; n as usize]).collect();
            for operation in &program.ops {
                if let OpKind::Collective { comm, spec, sequence, .. } = operation.kind {
                    let run = &mut slots[usize::from(comm.0)];
                    let count = run.len();
                    match run.get_mut(sequence as usize) {
                        Some(place) if *place == u32::MAX => *place = specs[spec as usize],
                        _ => {
                            let slot = comm.0;
                            return Err(ReplayError::Sequence { program: number, slot, sequence, count });
                        }
                    }
                }
            }
            Ok(slots.into_iter().map(|run| (!run.is_empty()).then(|| self.run(run))).collect())
        };
        workload.programs.iter().enumerate().map(one).collect()
    }

    fn spec(&mut self, spec: &CollectiveSpec) -> u32 {
        if let Some(&number) = self.spec_numbers.get(spec) {
            return number;
        }
        self.specs.push(spec.clone());
        let number = self.specs.len() as u32 - 1;
        self.spec_numbers.insert(spec.clone(), number);
        number
    }

    fn run(&mut self, run: Vec<u32>) -> u32 {
        if let Some(&number) = self.run_numbers.get(&run) {
            return number;
        }
        self.runs.push(run.clone());
        let number = self.runs.len() as u32 - 1;
        self.run_numbers.insert(run, number);
        number
    }

    fn describe(&self, run: Option<u32>, sequence: usize) -> String {
        let spec = run.and_then(|run| self.runs[run as usize].get(sequence));
        spec.map_or_else(
            || "no collective".to_owned(),
            |&spec| {
                let CollectiveSpec { kind, algorithm, bytes, form, outstanding, domain, matrix, .. } =
                    &self.specs[spec as usize];
                let root = match kind {
                    crate::collectives::CollectiveKind::Broadcast { root }
                    | crate::collectives::CollectiveKind::Reduce { root } => format!(" with root {root}"),
                    _ => String::new(),
                };
                let sizes = matrix.as_ref().map_or(String::new(), |sizes| {
                    format!(
                        ", sizes summing to {} B",
                        sizes.iter().map(|&size| u128::from(size)).sum::<u128>()
                    )
                });
                format!(
                    "{}{root} of {} B ({}, form {form:?}, outstanding {outstanding}, domain {domain}{sizes})",
                    kind.name(),
                    bytes.get(),
                    algorithm.name()
                )
            },
        )
    }
}

/// Of each communicator: the run on which all its members agree.
fn agree(
    workload: &Workload,
    names: &Names,
    runs: &[Vec<Option<u32>>],
) -> Result<Vec<Option<u32>>, ReplayError> {
    let groups = &workload.communicators;
    // The first rank that ran collectives there, and what.
    let mut agreed: Vec<Option<(u32, u32)>> = vec![None; groups.len()];
    let mut members = vec![0; groups.len()];
    let mut last: Vec<u32> = vec![u32::MAX; groups.len()];
    let mismatch = |communicator: usize, a: (u32, Option<u32>), b: (u32, Option<u32>)| {
        let run = |run: Option<u32>| run.map_or(&[][..], |run| &names.runs[run as usize]);
        let (left, right) = (run(a.1), run(b.1));
        let differs = |&at: &usize| left.get(at) != right.get(at);
        let sequence = (0..left.len().max(right.len())).find(differs).unwrap_or(0);
        ReplayError::Mismatch {
            communicator: groups[communicator].name.clone(),
            sequence,
            first: a.0,
            expected: names.describe(a.1, sequence),
            second: b.0,
            found: names.describe(b.1, sequence),
        }
    };
    for (rank, &program) in (0u32..).zip(&workload.program_of) {
        for (&run, binding) in runs[program as usize].iter().zip(bindings(workload, rank)) {
            let Some(run) = run else { continue };
            let at = binding.communicator as usize;
            if last[at] == rank {
                return Err(ReplayError::TwoSlots { rank, communicator: groups[at].name.clone() });
            }
            last[at] = rank;
            members[at] += 1;
            match agreed[at] {
                None => agreed[at] = Some((rank, run)),
                Some((first, known)) if known != run => {
                    return Err(mismatch(at, (first, Some(known)), (rank, Some(run))));
                }
                Some(_) => {}
            }
        }
    }
    for (at, group) in groups.iter().enumerate() {
        if let Some((first, run)) = agreed[at]
            && members[at] != group.ranks.len()
        {
            let runs_it = |rank: RankId| {
                let program = workload.program_of.get(rank.index());
                let bound = bindings(workload, rank.0);
                program.is_some_and(|&program| {
                    let slots = runs[program as usize].iter().zip(bound);
                    slots
                        .into_iter()
                        .any(|(run, binding)| run.is_some() && binding.communicator as usize == at)
                })
            };
            let absent = group.ranks.iter().find(|&&rank| !runs_it(rank)).copied().unwrap_or(group.ranks[0]);
            return Err(mismatch(at, (first, Some(run)), (absent.0, None)));
        }
    }
    Ok(agreed.into_iter().map(|entry| entry.map(|(_, run)| run)).collect())
}
