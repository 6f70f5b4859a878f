//! A specification resolved for a group: algorithm, chunks, rounds.
//!
//! What a plan is stands here, below the algorithms, which read it. How it is made, and what it answers by asking its
//! algorithm, stands in `resolve.rs`, above them.

mod resolve;

use std::sync::Arc;

use windtunnel_kernel::Span;

use super::algorithm::Algorithm;
use super::kind::CollectiveKind;

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
    /// Is done by another algorithm after all.
    pub(super) fn becomes(&mut self, algorithm: Algorithm) {
        self.algorithm = algorithm;
    }

    /// Goes between domains by `algorithm`.
    pub(super) fn goes_between(&mut self, algorithm: Algorithm) {
        self.between = algorithm;
    }

    /// Whether there are several domains of several members.
    pub(super) fn has_levels(&self) -> bool {
        self.domain > 1 && self.domain < self.n
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

    /// Bytes from each member to each, where every pair has its own.
    pub(super) fn matrix(&self) -> Option<&[u64]> {
        self.matrix.as_deref()
    }

    /// The algorithm between domains, where there are any.
    pub(super) const fn between(&self) -> Algorithm {
        self.between
    }

    /// Whether each ring of its two levels is one round.
    pub(super) const fn goes_by_rings(&self) -> bool {
        self.by_rings
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
