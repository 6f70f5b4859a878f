//! The operations DAG of a rank, and the ranks of a job.
//!
//! A [`Program`] is immutable and shared: ranks that do the same work with other peers (all data-parallel replicas of a
//! pipeline stage) share one program and differ only in their communicators, so memory grows with the number of
//! distinct programs and not with ranks × operations. Edges are stored at the prerequisite, as in GOAL's binary form.
//!
//! Life cycle: [`ProgramBuilder`] collects operations and edges, [`ProgramBuilder::finish`] freezes them and refuses
//! a cycle. Invariants: every edge joins two operations of the same program; the graph is acyclic.

use rustc_hash::FxHashMap;
use windtunnel_kernel::{Bytes, NicId, RankId, Span, StreamId, Tag};

use crate::collectives::CollectiveSpec;

/// A communicator slot of a program; each rank binds it to one of the job's communicators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommSlot(pub u16);

/// The stream on which the host launches kernels: beside the GPU's, 0 for computation and 1 to 5 for communication.
pub const HOST_STREAM: StreamId = StreamId(6);

windtunnel_kernel::named! {
    /// What an operation is for: the dimension under which its exposed time is booked. The order is that of the result keys.
    #[derive(Default, PartialOrd, Ord, Hash)]
    pub enum Dimension: "traffic class" {
        Tp = "tp", "tensor parallelism";
        Cp = "cp", "context parallelism";
        Ep = "ep", "expert parallelism";
        Pp = "pp", "pipeline parallelism";
        Dp = "dp", "data parallelism";
        /// Computation included.
        #[default]
        Other = "other", "anything else: plain collectives, flows, GOAL files";
    }
}

/// The other end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A rank of the job.
    Rank(RankId),
    /// The `index`-th member of the communicator bound to a slot.
    Member(CommSlot, u32),
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Computes for a time on a stream.
    Calc {
        /// Time on an unvaried machine.
        duration: Span,
        /// Stream occupied.
        stream: StreamId,
    },
    /// Sends a message.
    Send {
        /// Receiver.
        peer: Peer,
        /// Payload; 0 counts as 1.
        bytes: Bytes,
        /// Tag.
        tag: Tag,
        /// Stream held for the overhead.
        stream: StreamId,
        /// NIC used.
        nic: NicId,
    },
    /// Receives a message; its size is the sender's.
    Receive {
        /// Sender, or any.
        peer: Option<Peer>,
        /// Tag, or any.
        tag: Option<Tag>,
        /// Stream.
        stream: StreamId,
    },
    /// Takes part in a collective on a communicator.
    Collective {
        /// Communicator slot.
        comm: CommSlot,
        /// Index into [`Program::specs`].
        spec: u32,
        /// Position among the collectives of this slot in one iteration; equal on all members.
        sequence: u32,
        /// Stream held for its messages' overheads.
        stream: StreamId,
    },
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub kind: OpKind,
    /// What it is for.
    pub dimension: Dimension,
    /// Index into [`Program::labels`]; 0 is the empty label.
    pub label: u32,
}

/// Adjacency in compressed rows: the targets of `i` are `targets[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    offsets: Vec<u32>,
    targets: Vec<u32>,
}

impl Edges {
    /// From (source, target) pairs over `n` nodes; the targets of a source keep their order.
    pub fn new(n: usize, pairs: &[(u32, u32)]) -> Self {
        if pairs.is_empty() {
            return Self::default();
        }
        let mut offsets = vec![0u32; n + 1];
        for &(source, _) in pairs {
            offsets[source as usize + 1] += 1;
        }
        for i in 0..n {
            offsets[i + 1] += offsets[i];
        }
        let mut next = offsets.clone();
        let mut targets = vec![0u32; pairs.len()];
        for &(source, target) in pairs {
            let slot = &mut next[source as usize];
            targets[*slot as usize] = target;
            *slot += 1;
        }
        Self { offsets, targets }
    }

    /// From ready-made rows: `offsets` has one entry more than there are nodes, or both are empty.
    pub fn from_rows(offsets: Vec<u32>, targets: Vec<u32>) -> Self {
        Self { offsets, targets }
    }

    /// Targets of `source`.
    #[inline]
    pub fn of(&self, source: u32) -> &[u32] {
        if self.offsets.is_empty() {
            return &[];
        }
        &self.targets[self.offsets[source as usize] as usize..self.offsets[source as usize + 1] as usize]
    }

    /// Number of edges.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there is no edge.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }
}

/// The operations of a rank in one iteration and what each waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Operations in file or program order.
    pub ops: Vec<Operation>,
    /// Edges to operations released when the source has finished (`requires`).
    pub requires: Edges,
    /// Edges to operations released when the source has started (`irequires`).
    pub irequires: Edges,
    /// Number of prerequisites of each operation.
    pub prerequisites: Vec<u32>,
    /// Collectives named by operations.
    pub specs: Vec<CollectiveSpec>,
    /// Labels; the first is empty.
    pub labels: Vec<String>,
}

/// Why a program cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The dependencies form a cycle through the named operations.
    #[error("operations depend on each other in a cycle: {}", .0.iter().map(u32::to_string).collect::<Vec<_>>().join(" -> "))]
    Cycle(Vec<u32>),
    /// An edge names an operation that does not exist.
    #[error("an edge names operation {0} of {1}")]
    MissingOperation(u32, usize),
}

/// Collects the operations of a [`Program`].
#[derive(Clone, Debug, Default)]
pub struct ProgramBuilder {
    program: Program,
    requires: Vec<(u32, u32)>,
    irequires: Vec<(u32, u32)>,
    sequences: Vec<u32>,
    label_index: FxHashMap<String, u32>,
}

impl ProgramBuilder {
    /// An empty program.
    pub fn new() -> Self {
        let mut builder = Self::default();
        builder.label("");
        builder
    }

    /// Appends an operation and returns its index.
    pub fn push(&mut self, kind: OpKind, dimension: Dimension, label: u32) -> u32 {
        let index = self.program.ops.len() as u32;
        self.program.ops.push(Operation { kind, dimension, label });
        index
    }

    /// Appends a computation on `stream`.
    pub fn calc(&mut self, duration: Span, stream: StreamId, label: u32) -> u32 {
        self.push(OpKind::Calc { duration, stream }, Dimension::Other, label)
    }

    /// Appends a collective on `comm`; its sequence number is the next of that slot.
    pub fn collective(
        &mut self,
        comm: CommSlot,
        spec: CollectiveSpec,
        dimension: Dimension,
        stream: StreamId,
        label: u32,
    ) -> u32 {
        let spec = self.spec(spec);
        let slot = usize::from(comm.0);
        if self.sequences.len() <= slot {
            self.sequences.resize(slot + 1, 0);
        }
        let sequence = self.sequences[slot];
        self.sequences[slot] += 1;
        self.push(OpKind::Collective { comm, spec, sequence, stream }, dimension, label)
    }

    /// The index of `spec`, added if it is new.
    pub fn spec(&mut self, spec: CollectiveSpec) -> u32 {
        let specs = &mut self.program.specs;
        let index = specs.iter().position(|known| *known == spec).unwrap_or_else(|| {
            specs.push(spec);
            specs.len() - 1
        });
        index as u32
    }

    /// The index of `text` among the labels, added if it is new.
    pub fn label(&mut self, text: &str) -> u32 {
        if let Some(&index) = self.label_index.get(text) {
            return index;
        }
        let index = self.program.labels.len() as u32;
        self.program.labels.push(text.to_owned());
        self.label_index.insert(text.to_owned(), index);
        index
    }

    /// `op` is released only after `prerequisite` has finished.
    pub fn requires(&mut self, op: u32, prerequisite: u32) {
        self.requires.push((prerequisite, op));
    }

    /// `op` is released only after `prerequisite` has started.
    pub fn irequires(&mut self, op: u32, prerequisite: u32) {
        self.irequires.push((prerequisite, op));
    }

    /// Number of operations so far.
    pub fn len(&self) -> usize {
        self.program.ops.len()
    }

    /// Whether there is no operation yet.
    pub fn is_empty(&self) -> bool {
        self.program.ops.is_empty()
    }

    /// Freezes the program.
    ///
    /// # Errors
    /// [`ProgramError`] on a cycle or an edge to an operation that does not exist.
    pub fn finish(self) -> Result<Program, ProgramError> {
        let mut program = self.program;
        let n = program.ops.len();
        program.prerequisites = vec![0; n];
        for &(source, target) in self.requires.iter().chain(&self.irequires) {
            if let Some(&missing) = [source, target].iter().find(|&&op| op as usize >= n) {
                return Err(ProgramError::MissingOperation(missing, n));
            }
            program.prerequisites[target as usize] += 1;
        }
        program.requires = Edges::new(n, &self.requires);
        program.irequires = Edges::new(n, &self.irequires);
        program.check_acyclic()?;
        Ok(program)
    }
}

impl Program {
    /// Number of collectives of one iteration on each slot.
    pub fn collectives_per_slot(&self) -> Vec<u32> {
        let mut counts = Vec::new();
        for op in &self.ops {
            if let OpKind::Collective { comm, .. } = op.kind {
                let slot = usize::from(comm.0);
                if counts.len() <= slot {
                    counts.resize(slot + 1, 0);
                }
                counts[slot] += 1;
            }
        }
        counts
    }

    /// Refuses a cycle and names one.
    ///
    /// # Errors
    /// [`ProgramError::Cycle`] with the operations of a cycle in order.
    pub fn check_acyclic(&self) -> Result<(), ProgramError> {
        let n = self.ops.len();
        let mut left = self.prerequisites.clone();
        let mut ready: Vec<u32> = (0..n as u32).filter(|&op| left[op as usize] == 0).collect();
        let mut done = 0;
        while let Some(op) = ready.pop() {
            done += 1;
            for &next in self.requires.of(op).iter().chain(self.irequires.of(op)) {
                left[next as usize] -= 1;
                if left[next as usize] == 0 {
                    ready.push(next);
                }
            }
        }
        if done == n { Ok(()) } else { Err(ProgramError::Cycle(self.find_cycle(&left))) }
    }

    /// Walks prerequisites backwards among the operations never released until one repeats.
    fn find_cycle(&self, left: &[u32]) -> Vec<u32> {
        let n = self.ops.len() as u32;
        let mut before = vec![u32::MAX; left.len()];
        for op in (0..n).filter(|&op| left[op as usize] > 0) {
            for &next in self.requires.of(op).iter().chain(self.irequires.of(op)) {
                before[next as usize] = op;
            }
        }
        let mut at = (0..n).find(|&op| left[op as usize] > 0).unwrap_or(0);
        for _ in 0..n {
            at = before[at as usize];
        }
        let mut cycle = vec![at];
        let mut op = before[at as usize];
        while op != at {
            cycle.push(op);
            op = before[op as usize];
        }
        cycle.reverse();
        // The same cycle is named the same way wherever the walk entered it.
        let first = (0..cycle.len()).min_by_key(|&i| cycle[i]).unwrap_or(0);
        cycle.rotate_left(first);
        cycle.push(cycle[0]);
        cycle
    }
}

/// The members of a communicator in group order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Communicator {
    /// Name for people, such as `dp[3]`.
    pub name: String,
    /// Members in group order.
    pub ranks: Vec<RankId>,
}

/// One rank's place in a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Index into [`Workload::communicators`].
    pub communicator: u32,
    /// The rank's own position in it.
    pub index: u32,
}

/// The programs of a job's ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// Distinct programs.
    pub programs: Vec<Program>,
    /// Program of each rank.
    pub program_of: Vec<u32>,
    /// Communicators.
    pub communicators: Vec<Communicator>,
    /// Slot bindings of all ranks, rank-major: rank r's are `bindings[binding_offsets[r]..binding_offsets[r + 1]]`.
    pub bindings: Vec<Binding>,
    /// See [`Self::bindings`].
    pub binding_offsets: Vec<u32>,
}

impl Workload {
    /// A workload in which each rank has its own program and there is no communicator.
    pub fn from_programs(programs: Vec<Program>) -> Self {
        let n = programs.len() as u32;
        Self {
            programs,
            program_of: (0..n).collect(),
            binding_offsets: vec![0; n as usize + 1],
            ..Self::default()
        }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.program_of.len()
    }

    /// The same with ranks on GPUs of the `kinds` that `kind_of` says, whose programs follow one another: as many for each as there are
    /// programs in all over `kinds`.
    #[must_use]
    pub fn on_kinds(&self, kinds: u32, kind_of: impl Fn(RankId) -> u32) -> Self {
        let each = self.programs.len() as u32 / kinds.max(1);
        let program = |(rank, &program): (usize, &u32)| program % each + kind_of(RankId(rank as u32)) * each;
        Self { program_of: self.program_of.iter().enumerate().map(program).collect(), ..self.clone() }
    }

    /// Program of `rank`.
    #[inline]
    pub fn program(&self, rank: RankId) -> &Program {
        &self.programs[self.program_of[rank.0 as usize] as usize]
    }

    /// Binding of `slot` at `rank`.
    #[inline]
    pub fn binding(&self, rank: RankId, slot: CommSlot) -> Binding {
        self.bindings[self.binding_offsets[rank.0 as usize] as usize + usize::from(slot.0)]
    }

    /// The rank that `peer` stands for at `rank`.
    #[inline]
    pub fn resolve(&self, rank: RankId, peer: Peer) -> RankId {
        match peer {
            Peer::Rank(rank) => rank,
            Peer::Member(slot, index) => {
                self.communicators[self.binding(rank, slot).communicator as usize].ranks[index as usize]
            }
        }
    }

    /// Appends a rank that runs program `program` with `bindings`, one per slot.
    pub fn add_rank(&mut self, program: u32, bindings: &[Binding]) -> RankId {
        if self.binding_offsets.is_empty() {
            self.binding_offsets.push(0);
        }
        self.program_of.push(program);
        self.bindings.extend_from_slice(bindings);
        self.binding_offsets.push(self.bindings.len() as u32);
        RankId(self.program_of.len() as u32 - 1)
    }

    /// Total number of operations over all ranks.
    pub fn operations(&self) -> u64 {
        self.program_of.iter().map(|&program| self.programs[program as usize].ops.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_named_in_order() {
        let mut builder = ProgramBuilder::new();
        let ops: Vec<u32> = (0..4).map(|_| builder.calc(Span::from_ps(1), StreamId(0), 0)).collect();
        builder.requires(ops[1], ops[0]);
        builder.requires(ops[2], ops[1]);
        builder.requires(ops[3], ops[2]);
        builder.requires(ops[1], ops[3]);
        let error = builder.finish().unwrap_err();
        assert_eq!(error.to_string(), "operations depend on each other in a cycle: 1 -> 2 -> 3 -> 1");
    }

    #[test]
    fn edges_keep_their_order() {
        let edges = Edges::new(3, &[(2, 0), (0, 2), (0, 1)]);
        assert_eq!((edges.of(0), edges.of(1), edges.of(2)), (&[2, 1][..], &[][..], &[0][..]));
    }
}
