//! Collectives as pure functions: (specification, group size, own index, lane, round) → messages of that round.
//!
//! Nothing is expanded ahead: a rank holds one round counter per lane. A *lane* is a sequence of rounds; lanes advance
//! independently. In a lane, up to `depth` rounds are in flight: round r starts when all rounds up to r − depth are
//! complete (their receives arrived, their sends done locally). Dependent algorithms (ring, recursive) have depth 1;
//! direct ones have the number of outstanding messages.
//!
//! Life cycle: a [`CollectiveSpec`] is what an operation names; [`Plan::new`] resolves it for a group (algorithm, chunks,
//! depth) and [`Plan::round`] answers for any rank and round in O(log n), without a table.
//! Invariants: a send of round r in lane l has its receive in round r of lane l at the peer, with the same bytes, and
//! there is at most one message from a to b in a round of a lane; a buffer is cut into blocks that differ by at most one
//! byte and sum to it exactly; no message is empty (a barrier's signal has one byte).
//! Failure modes: [`CollectiveError`] when an algorithm does not compute a kind, or does not fit the group.

mod all_to_all;
mod binomial;
mod bruck;
mod hierarchical;
mod in_network;
pub mod mpi;
mod multi_ring;
pub mod nccl;
mod parts;
mod pat;
mod plan;
mod recursive;
mod ring;
#[cfg(test)]
mod tests;
mod traffic;
mod tree;
mod tuner;

pub use in_network::Meeting;
pub use parts::Round;
pub use plan::{CollectiveError, CoupledShape, MAX_LANES, Plan};
pub use traffic::Traffic;
pub use tuner::{OneByOne, SizeRule, Tuner};

use windtunnel_kernel::math::gcd;
use windtunnel_kernel::{Bytes, RankId};

/// What a collective computes. `bytes` of a [`CollectiveSpec`] are counted as nccl-tests does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectiveKind {
    /// Every rank ends with the sum of all buffers; `bytes` = buffer of a rank.
    AllReduce,
    /// Every rank ends with all shares; `bytes` = the whole result, n shares.
    AllGather,
    /// Every rank ends with its share of the sum; `bytes` = buffer of a rank, n shares.
    ReduceScatter,
    /// Every rank ends with the root's buffer; `bytes` = that buffer.
    Broadcast {
        /// Index of the root in the group.
        root: u32,
    },
    /// The root ends with the sum; `bytes` = buffer of a rank.
    Reduce {
        /// Index of the root in the group.
        root: u32,
    },
    /// Every rank sends a share to each; `bytes` = buffer of a rank, n shares, its own included.
    AllToAll,
    /// Every rank sends its own sizes: see [`CollectiveSpec::matrix`].
    AllToAllV,
    /// Nobody leaves before all have come; no payload.
    Barrier,
}

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Algorithm {
    /// Chosen by a simple size rule.
    #[default]
    Auto,
    /// Ring.
    Ring,
    /// Two complementary binary trees, each half of the data, pipelined in chunks.
    DoubleBinaryTree,
    /// Recursive halving and doubling (Rabenseifner); also the recursive doubling all-gather and halving reduce-scatter.
    Recursive,
    /// Bruck's algorithm.
    Bruck,
    /// NCCL's parallel aggregated trees.
    Pat,
    /// Binomial tree.
    Binomial,
    /// Every pair at once, at most `outstanding` in flight.
    Direct,
    /// Pair by pair in n − 1 rounds.
    Pairwise,
    /// NCCL's rings, as many at once as a scale-up domain has members.
    MultiRing,
    /// Inside the scale-up domain first, then between domains.
    Hierarchical,
    /// Switches sum: SHARP between hosts, NVLS inside a scale-up domain.
    InNetwork,
}

/// How the edges of a collective are simulated (docs/architecture.md, Coupled groups).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Form {
    /// Coupled where that agrees with the step-by-step form, by steps elsewhere.
    #[default]
    Auto,
    /// One rate for all edges; all ranks finish together.
    Coupled,
    /// Message by message.
    Steps,
}

/// A collective as an operation names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CollectiveSpec {
    /// What it computes.
    pub kind: CollectiveKind,
    /// How.
    pub algorithm: Algorithm,
    /// Size, counted as [`CollectiveKind`] says.
    pub bytes: Bytes,
    /// Form.
    pub form: Form,
    /// Messages a rank may have outstanding in a direct collective.
    pub outstanding: u32,
    /// Members of one scale-up domain that stand next to each other in the group (1 if none do).
    pub domain: u32,
    /// All-to-all-v only: bytes from group index i to j at `matrix[i * n + j]`.
    pub matrix: Option<std::sync::Arc<[u64]>>,
}

impl CollectiveKind {
    /// The field's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::Broadcast { .. } => "broadcast",
            Self::Reduce { .. } => "reduce",
            Self::AllToAll => "all-to-all",
            Self::AllToAllV => "all-to-all-v",
            Self::Barrier => "barrier",
        }
    }

    /// The algorithms that compute it, `Auto` apart.
    pub const fn algorithms(self) -> &'static [Algorithm] {
        match self {
            Self::AllReduce => &[
                Algorithm::Ring,
                Algorithm::DoubleBinaryTree,
                Algorithm::Recursive,
                Algorithm::MultiRing,
                Algorithm::Hierarchical,
                Algorithm::InNetwork,
            ],
            Self::AllGather => &[
                Algorithm::Ring,
                Algorithm::Recursive,
                Algorithm::Bruck,
                Algorithm::Pat,
                Algorithm::Direct,
                Algorithm::MultiRing,
                Algorithm::Hierarchical,
            ],
            Self::ReduceScatter => &[
                Algorithm::Ring,
                Algorithm::Recursive,
                Algorithm::Pat,
                Algorithm::Direct,
                Algorithm::MultiRing,
                Algorithm::Hierarchical,
            ],
            Self::Broadcast { .. } | Self::Reduce { .. } => {
                &[Algorithm::Ring, Algorithm::Binomial, Algorithm::DoubleBinaryTree]
            }
            Self::AllToAll => {
                &[Algorithm::Direct, Algorithm::Pairwise, Algorithm::Bruck, Algorithm::Hierarchical]
            }
            Self::AllToAllV => &[Algorithm::Direct, Algorithm::Pairwise, Algorithm::Hierarchical],
            Self::Barrier => &[Algorithm::Bruck],
        }
    }
}

impl Algorithm {
    /// All, in the order of the documentation.
    pub const ALL: [Self; 12] = [
        Self::Auto,
        Self::Ring,
        Self::DoubleBinaryTree,
        Self::Recursive,
        Self::Bruck,
        Self::Pat,
        Self::Binomial,
        Self::Direct,
        Self::Pairwise,
        Self::MultiRing,
        Self::Hierarchical,
        Self::InNetwork,
    ];

    /// The name under which a scenario chooses it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ring => "ring",
            Self::DoubleBinaryTree => "double_binary_tree",
            Self::Recursive => "recursive",
            Self::Bruck => "bruck",
            Self::Pat => "pat",
            Self::Binomial => "binomial",
            Self::Direct => "direct",
            Self::Pairwise => "pairwise",
            Self::MultiRing => "multi_ring",
            Self::Hierarchical => "hierarchical",
            Self::InNetwork => "in_network",
        }
    }
}

impl CollectiveSpec {
    /// A collective of `kind` over `bytes` with everything else at its default.
    pub fn new(kind: CollectiveKind, bytes: Bytes) -> Self {
        Self {
            kind,
            algorithm: Algorithm::Auto,
            bytes,
            form: Form::Auto,
            outstanding: 64,
            domain: 1,
            matrix: None,
        }
    }
}

/// The [`CollectiveSpec::domain`] of `groups` alike where ranks fill scale-up domains of `gpus` in order: the greatest common
/// divisor of the lengths of all stretches of neighbours that share a domain.
pub fn neighbours<'a>(groups: impl IntoIterator<Item = &'a [RankId]>, gpus: u32) -> u32 {
    let gpus = gpus.max(1);
    let mut common = 0;
    for group in groups {
        for stretch in group.chunk_by(|a, b| a.0 / gpus == b.0 / gpus) {
            common = gcd(common, stretch.len() as u64);
        }
    }
    common.max(1) as u32
}
