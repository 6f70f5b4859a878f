//! A specification resolved for a group: algorithm, chunks, rounds.

use std::sync::Arc;

use windtunnel_kernel::{Bytes, Span};

use super::all_to_all::Sizes;
use super::hierarchical::{Levels, Task};
use super::in_network::{self, Meeting};
use super::method::Arrangement;
use super::parts::{Part, Sink, Weigh, share};
use super::{Algorithm, CollectiveKind, CollectiveSpec, Form, Round, SizeRule, Tuner};

/// No plan has more lanes.
pub const MAX_LANES: u32 = 8;

/// Messages that a rank has in flight at least where NCCL sends to all others: more would take memory and tell nothing.
const SENDS_AT_ONCE: u32 = 512;

/// Chunk of a pipelined tree or chain: a step of NCCL's default buffer (4 MiB in 8 steps).
const CHUNK: u64 = 512 << 10;
/// Chunks get longer before there are more of them.
const MAX_CHUNKS: u64 = 1024;

/// Number of chunks in which a tree or chain passes on `bytes`.
pub(super) fn chunks(bytes: u64) -> u32 {
    bytes.div_ceil(CHUNK).clamp(1, MAX_CHUNKS) as u32
}

/// Why a specification does not fit a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// The algorithm does not compute the kind.
    #[error("`{}` does not compute {}, expected one of {}", .algorithm.name(), .kind.name(), names(*.kind))]
    Unsupported {
        /// What is to be computed.
        kind: CollectiveKind,
        /// How.
        algorithm: Algorithm,
    },
    /// The group is not made of whole domains.
    #[error(
        "{} by `{}` needs a group of whole scale-up domains: {n} members, {domain} a domain\n\n\
         hint: use `ring` or another of {}", .kind.name(), .algorithm.name(), names(*.kind)
    )]
    Domain {
        /// What is to be computed.
        kind: CollectiveKind,
        /// How.
        algorithm: Algorithm,
        /// Group size.
        n: u32,
        /// Members of a domain.
        domain: u32,
    },
    /// The root is not a member.
    #[error("the root of a {} must be a member: index {root} of {n}", .kind.name())]
    Root {
        /// What is to be computed.
        kind: CollectiveKind,
        /// Index of the root.
        root: u32,
        /// Group size.
        n: u32,
    },
    /// An all-to-all-v without as many sizes as pairs.
    #[error("an all-to-all-v of {n} members needs {} sizes, found {found}", u64::from(*.n) * u64::from(*.n))]
    Matrix {
        /// Group size.
        n: u32,
        /// Sizes given.
        found: usize,
    },
    /// A group without members, a domain of 0 or no message outstanding.
    #[error("{what} must be at least 1")]
    Zero {
        /// What is zero.
        what: &'static str,
    },
    /// `Form::Coupled` for a collective whose edges do not advance together.
    #[error(
        "{} by `{}` cannot run coupled: its edges do not advance together\n\nhint: use form `auto` or `steps`",
        .kind.name(), .algorithm.name()
    )]
    NotCoupled {
        /// What is to be computed.
        kind: CollectiveKind,
        /// How.
        algorithm: Algorithm,
    },
}

fn names(kind: CollectiveKind) -> String {
    let names: Vec<String> = kind.algorithms().iter().map(|known| format!("`{}`", known.name())).collect();
    names.join(", ")
}

/// A collective whose edges advance together, as one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoupledShape {
    /// (from, to, weight) by index in the group.
    pub edges: Vec<(u32, u32, u32)>,
    /// What an edge of weight 1 carries in all.
    pub bytes: u64,
    /// Dependent steps, each along an edge.
    pub steps: u32,
}

/// A resolved collective: a few words, shared by all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    kind: CollectiveKind,
    algorithm: Algorithm,
    n: u32,
    bytes: u64,
    domain: u32,
    /// Algorithm between domains, where there are any.
    between: Algorithm,
    /// Whether each ring of two levels is one round.
    by_rings: bool,
    chunks: u32,
    depth: u32,
    rounds: u32,
    lanes: u32,
    matrix: Option<Arc<[u64]>>,
    /// What passes before the first byte.
    before: Span,
    /// Payload of an edge of the coupled form where NCCL's model says it.
    edge: Option<u64>,
    /// Of edges inside domains and between them, whether the latter are busy all the time.
    between_bound: bool,
    /// Whether only those edges count that are busy all the time.
    one_by_one: bool,
}

impl Plan {
    /// Resolves `spec` for a group of `n`, `Auto` by [`SizeRule`].
    ///
    /// # Errors
    /// [`CollectiveError`] when the algorithm does not compute the kind or does not fit the group.
    pub fn new(spec: &CollectiveSpec, n: u32) -> Result<Self, CollectiveError> {
        Self::with_tuner(spec, n, &SizeRule)
    }

    /// Resolves `spec` for a group of `n`, `Auto` by `tuner`.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn with_tuner(spec: &CollectiveSpec, n: u32, tuner: &dyn Tuner) -> Result<Self, CollectiveError> {
        for (what, value) in
            [("the size of a group", n), ("`domain`", spec.domain), ("`outstanding`", spec.outstanding)]
        {
            if value == 0 {
                return Err(CollectiveError::Zero { what });
            }
        }
        let (kind, mut bytes) = (spec.kind, spec.bytes.get());
        if let CollectiveKind::Broadcast { root } | CollectiveKind::Reduce { root } = kind
            && root >= n
        {
            return Err(CollectiveError::Root { kind, root, n });
        }
        if kind == CollectiveKind::AllToAllV {
            let found = spec.matrix.as_ref().map_or(0, |matrix| matrix.len());
            if found as u64 != u64::from(n) * u64::from(n) {
                return Err(CollectiveError::Matrix { n, found });
            }
        }
        let mut algorithm = spec.algorithm;
        let open = algorithm == Algorithm::Auto && spec.form != Form::Steps;
        let cost = spec
            .library
            .as_ref()
            .filter(|_| open && n.is_multiple_of(spec.domain.min(n)))
            .and_then(|library| library.0.cost_of(spec, n));
        if let Some(cost) = &cost {
            algorithm = cost.algorithm;
        } else if let Some(routing) = spec.routing {
            bytes = routing.buffer(bytes, n / spec.domain.min(n), n);
        }
        if algorithm == Algorithm::Auto && n > 1 {
            algorithm = tuner.choose(spec, n);
        }
        if algorithm == Algorithm::Auto {
            algorithm = SizeRule.choose(spec, n);
        }
        if !algorithm.computes(kind) {
            return Err(CollectiveError::Unsupported { kind, algorithm });
        }
        let mut plan = Self {
            kind,
            algorithm,
            n,
            bytes,
            domain: spec.domain.min(n),
            between: Algorithm::Ring,
            by_rings: false,
            chunks: 1,
            depth: 1,
            rounds: 0,
            lanes: 1,
            matrix: spec.matrix.clone(),
            before: cost.as_ref().map_or(Span::ZERO, |cost| cost.before),
            edge: cost.as_ref().map(|cost| cost.edge),
            between_bound: cost.as_ref().is_some_and(|cost| cost.between),
            one_by_one: false,
        };
        if let Some(cost) = &cost
            && kind == CollectiveKind::AllToAll
        {
            plan.bytes = cost.bytes;
            // Its messages bring the latency of their path themselves.
            let path = spec.library.as_ref().map_or(Span::ZERO, |library| library.0.latency[1]);
            if spec.domain < n {
                plan.before = Span::from_ps(plan.before.ps().saturating_sub(path.ps()));
            }
        }
        if algorithm.wants_whole_domains() && !n.is_multiple_of(plan.domain) {
            return Err(CollectiveError::Domain { kind, algorithm, n, domain: plan.domain });
        }
        algorithm.settle(&mut plan);
        // NCCL posts its grouped sends together.
        let together = if cost.is_some() { n.min(SENDS_AT_ONCE) } else { 1 };
        plan.set_rounds(spec.outstanding.max(together));
        Ok(plan)
    }

    /// Where NCCL's model says what it takes, but no edges advance together: by `tuner`'s algorithm message by message, with
    /// as many bytes, after what of NCCL's launch and hops the messages' own latency leaves.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn by_steps(spec: &CollectiveSpec, n: u32, tuner: &dyn Tuner) -> Result<Self, CollectiveError> {
        let cost = spec.library.as_ref().and_then(|library| library.0.cost_of(spec, n));
        let (Some(cost), Some(library)) = (cost, &spec.library) else {
            return Self::with_tuner(spec, n, tuner);
        };
        let alone =
            CollectiveSpec { library: None, routing: None, bytes: Bytes::new(cost.bytes), ..spec.clone() };
        let mut plan = Self::with_tuner(&alone, n, tuner)?;
        let steps = u64::from(plan.rounds) / u64::from(plan.depth.max(1));
        let own = library.0.latency[usize::from(spec.domain < n)].ps();
        plan.before = Span::from_ps(cost.before.ps().saturating_sub(steps * own));
        Ok(plan)
    }

    /// Is done by another algorithm after all.
    pub(super) fn becomes(&mut self, algorithm: Algorithm) {
        self.algorithm = algorithm;
    }

    /// Goes between domains by `algorithm`.
    pub(super) fn goes_between(&mut self, algorithm: Algorithm) {
        self.between = algorithm;
    }

    fn set_rounds(&mut self, outstanding: u32) {
        let sized = !matches!(self.kind, CollectiveKind::AllToAllV | CollectiveKind::Barrier);
        if self.n == 1 || sized && self.bytes == 0 {
            return;
        }
        let Arrangement { lanes, rounds, depth, chunks } = self.algorithm.rounds(self, outstanding);
        (self.lanes, self.rounds, self.depth, self.chunks) = (lanes, rounds, depth, chunks);
    }

    /// Whether there are several domains of several members.
    pub(super) fn has_levels(&self) -> bool {
        self.domain > 1 && self.domain < self.n
    }

    /// The same with each ring of its two levels as one group of edges that advance together; `None` if it has no levels or other than
    /// rings.
    #[must_use]
    pub fn by_rings(mut self) -> Option<Self> {
        let rings = self.algorithm == Algorithm::Hierarchical
            && matches!(
                self.kind,
                CollectiveKind::AllReduce | CollectiveKind::AllGather | CollectiveKind::ReduceScatter
            )
            && self.between == Algorithm::Ring;
        if !rings || !self.has_levels() || self.is_empty() {
            return None;
        }
        self.by_rings = true;
        self.rounds = self.levels().rounds();
        Some(self)
    }

    /// What `index` does together with others in round `round`, in place of messages.
    #[inline]
    pub fn meeting(&self, index: u32, round: u32) -> Option<Meeting> {
        if self.by_rings {
            return Some(self.levels().meeting(self.bytes, index, round));
        }
        if !self.algorithm.sums() {
            return None;
        }
        // A part of no bytes needs none.
        self.meeting_of(index, round).map(|(meeting, _)| meeting).filter(|meeting| meeting.bytes > 0)
    }

    /// The same, with the part of the vector that it is about.
    pub(super) fn meeting_of(&self, index: u32, round: u32) -> Option<(Meeting, Part)> {
        if self.has_levels() && round != self.domain - 1 {
            return None;
        }
        Some(in_network::meeting(self.n, self.domain, self.bytes, index))
    }

    /// Whether a member's send is over only when its receiver has the message, as with MPI's blocking sends of long messages: where a
    /// member sends in several rounds and receives in none between, they would otherwise leave at once and share its NIC.
    pub fn sends_in_turn(&self) -> bool {
        self.algorithm.sends_in_turn()
    }

    /// Group size.
    pub fn members(&self) -> u32 {
        self.n
    }

    /// Bytes, counted as [`CollectiveKind`] says.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Members of a scale-up domain that stand next to each other.
    pub(super) const fn domain(&self) -> u32 {
        self.domain
    }

    /// Chunks in which a tree or chain passes them on, in each lane.
    pub(super) const fn chunks(&self) -> u32 {
        self.chunks
    }

    /// What it computes.
    pub fn kind(&self) -> CollectiveKind {
        self.kind
    }

    /// The algorithm chosen; never `Auto`.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// What passes before its first byte: launch, hops and waits of NCCL, the latency of a path among them.
    pub fn before(&self) -> Span {
        self.before
    }

    /// The same where a member's links are busy one after another (LogGOPS): NCCL keeps those inside and between domains
    /// busy at once, so only those count that are busy all the time.
    #[must_use]
    pub fn one_by_one(mut self) -> Self {
        self.one_by_one = true;
        self
    }

    /// Whether NCCL's model says what it takes.
    pub fn by_library(&self) -> bool {
        self.edge.is_some()
    }

    /// Whether no message is sent (one member, no bytes): it ends when it starts.
    pub fn is_empty(&self) -> bool {
        self.rounds == 0
    }

    /// Number of lanes, at most [`MAX_LANES`].
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Rounds of a lane, the same for all members.
    pub fn rounds(&self, lane: u32) -> u32 {
        debug_assert!(lane < self.lanes);
        self.rounds
    }

    /// Rounds of a lane in flight at most.
    pub fn depth(&self, lane: u32) -> u32 {
        debug_assert!(lane < self.lanes);
        self.depth
    }

    /// Writes the messages of `index` in round `round` of `lane` to `out`.
    pub fn round(&self, index: u32, lane: u32, round: u32, out: &mut Round) {
        out.clear();
        if self.kind.is_exchange() {
            self.algorithm.exchange(self, index, round, out);
        } else {
            self.emit(index, lane, round, &mut Weigh { bytes: self.lane_bytes(lane), out });
        }
    }

    /// What each member of an all-to-all has for each other.
    pub(super) fn sizes(&self) -> Sizes<'_> {
        match &self.matrix {
            Some(matrix) if self.kind == CollectiveKind::AllToAllV => Sizes::Matrix { matrix, n: self.n },
            _ => Sizes::Equal { bytes: self.bytes, n: self.n },
        }
    }

    /// The bytes whose parts travel in `lane`.
    fn lane_bytes(&self, lane: u32) -> u64 {
        share(self.bytes, self.lanes, lane)
    }

    pub(super) fn levels(&self) -> Levels {
        let task = match self.kind {
            CollectiveKind::AllGather => Task::AllGather,
            CollectiveKind::ReduceScatter => Task::ReduceScatter,
            _ => Task::AllReduce,
        };
        Levels {
            task,
            inner: self.domain,
            outer: self.n / self.domain,
            between: self.between,
            by_rings: self.by_rings,
        }
    }

    /// Tells `sink` what `index` sends and receives; not for exchanges and barriers.
    #[inline]
    pub(super) fn emit(&self, index: u32, lane: u32, round: u32, sink: &mut impl Sink) {
        self.algorithm.emit(self, index, lane, round, sink);
    }

    /// Of an all-to-all: what each member has for each other, if it is to run as one exchange instead of by rounds.
    pub fn exchange(&self) -> Option<u64> {
        let whole = self.kind == CollectiveKind::AllToAll && !self.is_empty();
        whole.then(|| self.bytes.div_ceil(u64::from(self.n)))
    }

    /// The same for one whose messages all begin as their sender comes: directly to every member, no message waiting for another.
    /// What a message carries, and whether that is what each does (the last ones have a byte less where the buffer is no multiple).
    pub fn at_once(&self) -> Option<(u64, bool)> {
        let direct = self.algorithm == Algorithm::Direct && self.depth == self.rounds;
        let even = self.bytes.is_multiple_of(u64::from(self.n));
        self.exchange().filter(|_| direct).map(|bytes| (bytes, even))
    }

    /// Whether every member has something of its own for every other.
    pub fn is_exchange(&self) -> bool {
        matches!(self.kind, CollectiveKind::AllToAll | CollectiveKind::AllToAllV) && !self.is_empty()
    }

    /// The group of edges that advance together, `None` where they do not: rings, one or several; chains with at least 100 chunks for
    /// each member but two (the pipeline's filling is then under 1%); inside one scale-up domain also equal direct and
    /// pairwise exchanges, whose pairs share the members' ports evenly.
    pub fn coupled(&self) -> Option<CoupledShape> {
        if self.is_empty() {
            return None;
        }
        match (self.algorithm.coupled(self), self.edge) {
            (Some(mut shape), Some(bytes)) => {
                if self.one_by_one && self.algorithm == Algorithm::MultiRing {
                    let crosses = |&(from, to, _): &(u32, u32, u32)| from / self.domain != to / self.domain;
                    shape.edges.retain(|edge| crosses(edge) == self.between_bound);
                }
                Some(CoupledShape { bytes, steps: 1, ..shape })
            }
            // A chain that is too short for its edges to advance together by itself.
            (None, Some(bytes)) if self.algorithm == Algorithm::Ring => {
                Some(CoupledShape { bytes, steps: 1, ..CoupledShape::ring(self) })
            }
            (shape, _) => shape,
        }
    }
}

impl CoupledShape {
    /// One ring over all members, which pass on what the plan's rounds do.
    pub(super) fn ring(plan: &Plan) -> Self {
        let (n, steps) = (plan.members(), plan.rounds(0));
        let bytes = (u128::from(steps) * u128::from(plan.bytes())).div_ceil(u128::from(n)) as u64;
        Self { edges: (0..n).map(|index| (index, (index + 1) % n, 1)).collect(), bytes, steps }
    }

    /// All pairs of a scale-up domain's members, where each has as much for every other.
    pub(super) fn pairs(plan: &Plan) -> Option<Self> {
        let n = plan.members();
        if plan.domain() < n || plan.kind() == CollectiveKind::AllToAllV {
            return None;
        }
        let from = |index| (1..n).map(move |offset| (index, (index + offset) % n, 1));
        Some(Self {
            edges: (0..n).flat_map(from).collect(),
            bytes: plan.bytes().div_ceil(u64::from(n)),
            steps: (n - 1).div_ceil(plan.depth(0)),
        })
    }
}
