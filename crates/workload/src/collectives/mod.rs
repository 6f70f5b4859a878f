//! Collectives as pure functions: (specification, group size, own index, lane, round) → messages of that round.
//!
//! Nothing is expanded ahead: a rank holds one round counter per lane. A *lane* is a sequence of rounds; lanes advance
//! independently. In a lane, up to `depth` rounds are in flight: round r starts when all rounds up to r − depth are
//! complete (their receives arrived, their sends done locally). Dependent algorithms (ring, recursive) have depth 1;
//! direct ones have the number of outstanding messages.

use windtunnel_kernel::Bytes;

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
    /// Inside the scale-up domain first, then between domains.
    Hierarchical,
}

/// How the edges of a collective are simulated (DESIGN §4).
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
#[derive(Clone, Debug, PartialEq)]
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
