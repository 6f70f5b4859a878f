//! MPI collectives by name: rounds of an algorithm with a published definition, on a fabric with a placement.
//!
//! An [`Algorithm`] is written down as phases ([`algorithms`]): who sends to whom, how much, what is reduced and copied,
//! how often. A [`Fabric`] answers for a pattern of senders and receivers how far the farthest message goes and how many
//! share the busiest link ([`fabric`]); [`Question::times`] adds up.
//!
//! Life cycle: a [`Question`] (collective, algorithm, bytes, placement) and [`Constants`] give seconds.
//! Invariants: pure; patterns of equal kind are walked once per question, in O(ranks).
//! Failure modes: [`MpiError`] for an algorithm that does not compute a collective.
//!
//! Sources: Thakur, Rabenseifner, Gropp 2005 (recursive doubling and halving, Rabenseifner, ring, binomial); Bruck et al.
//! 1997; Chen et al. 2005 (neighbour exchange); Loch, Koslovski 2021 (Sparbit); De Sensi et al. 2025, arXiv:2508.17311
//! (Bine trees); Chan et al. 2007 (binomial trees). What they allocate and copy: libbine at
//! github.com/HLC-Lab/pico@413bc5d0f98f, Open MPI's `coll/base`; facts only.

mod algorithms;
mod buffers;
mod fabric;
#[cfg(test)]
mod tests;
mod time;

use serde::Deserialize;

pub use self::fabric::Fabric;
pub use self::time::Constants;

/// What is computed; `bytes` is the whole vector of a rank (all-gather and all-to-all: all shares together).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// All-reduce.
    AllReduce,
    /// All-gather.
    AllGather,
    /// Reduce-scatter.
    ReduceScatter,
    /// Broadcast.
    Broadcast,
    /// Reduce.
    Reduce,
    /// Gather.
    Gather,
    /// Scatter.
    Scatter,
    /// All-to-all.
    AllToAll,
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Ring.
    Ring,
    /// Recursive doubling: whole vectors (all-reduce), growing blocks (all-gather).
    RecursiveDoubling,
    /// Recursive halving, far partners first.
    RecursiveHalving,
    /// Recursive halving of the vector with near partners first.
    DistanceDoubling,
    /// Rabenseifner's: reduce-scatter by halving, all-gather by doubling.
    Rabenseifner,
    /// Bruck's.
    Bruck,
    /// Pairs of neighbours exchange two blocks.
    NeighbourExchange,
    /// Sparbit: a logarithm of rounds, far ones first, every block a message of its own.
    Sparbit,
    /// Bine tree on whole vectors.
    BineWhole,
    /// Bine tree with halving vectors.
    Bine,
    /// Bine tree with halving vectors, every block a message of its own.
    BineBlocks,
    /// The same on any even number of ranks, none of which stands beside.
    BineBlocksEven,
    /// Bine tree with halving vectors, two messages a round.
    BineTwoBlocks,
    /// Binomial tree.
    Binomial,
    /// The root and everyone, or everyone and everyone, at once.
    Linear,
    /// Pair by pair.
    Pairwise,
    /// Scatter, then all-gather by doubling.
    ScatterAllgather,
    /// Scatter, then all-gather by a ring.
    ScatterRing,
}

/// A collective to be timed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// What.
    pub collective: Collective,
    /// How.
    pub algorithm: Algorithm,
    /// The whole vector.
    pub bytes: f64,
    /// Messages are cut into segments of so many bytes, which overlap with their reduction; 0 if they are not.
    #[serde(default)]
    pub segment: f64,
    /// Network interfaces over which every message is spread.
    #[serde(default = "one")]
    pub ports: u32,
    /// Whether a permutation of the vector is needed before or after.
    #[serde(default)]
    pub permute: bool,
    /// Whether receivers announce their buffers in every call, where one-sided puts know no others.
    #[serde(default)]
    pub announced: bool,
}

const fn one() -> u32 {
    1
}

/// Nothing can be predicted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpiError {
    /// No such algorithm for the collective.
    #[error("`{algorithm:?}` does not compute {collective:?}")]
    Unsupported {
        /// What.
        collective: Collective,
        /// How.
        algorithm: Algorithm,
    },
    /// A placement without ranks, or of one.
    #[error("expected at least 2 ranks, found {ranks}")]
    Ranks {
        /// Ranks.
        ranks: usize,
    },
}
