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
pub mod dispatcher;
mod hierarchical;
mod in_network;
mod method;
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
pub use method::{Algorithm, Rings};
pub use parts::Round;
pub use plan::{CollectiveError, CoupledShape, MAX_LANES, Plan};
pub use traffic::Traffic;
pub use tuner::{OneByOne, SizeRule, Tuner};

use windtunnel_kernel::math::gcd;
use windtunnel_kernel::registry::{Entry, Listed};
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

windtunnel_kernel::named! {
    /// How the edges of a collective are simulated (docs/architecture.md, Coupled groups).
    #[derive(Default, Hash)]
    pub enum Form: "form" {
        #[default]
        Auto = "auto", "coupled where that agrees with the step-by-step form, by steps elsewhere";
        Coupled = "coupled", "one rate for all edges; all ranks finish together";
        Steps = "steps", "message by message";
    }
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
    /// NCCL, where it runs: it decides an algorithm that is left open, and how long that takes.
    pub library: Option<nccl::Library>,
    /// All-to-all only: what it carries are tokens' copies for experts, and a dispatcher that sends none twice does it.
    pub routing: Option<dispatcher::Routing>,
    /// All-to-all-v only: bytes from group index i to j at `matrix[i * n + j]`.
    pub matrix: Option<std::sync::Arc<[u64]>>,
}

impl CollectiveKind {
    /// All, in the order in which they are listed, with rank 0 for roots.
    pub const ALL: [Self; 8] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast { root: 0 },
        Self::Reduce { root: 0 },
        Self::AllToAll,
        Self::AllToAllV,
        Self::Barrier,
    ];

    /// Its name in a scenario, and a line about it.
    const fn described(self) -> &'static Entry {
        match self {
            Self::AllReduce => const { &Entry::new("all_reduce", "all-reduce") },
            Self::AllGather => const { &Entry::new("all_gather", "all-gather") },
            Self::ReduceScatter => const { &Entry::new("reduce_scatter", "reduce-scatter") },
            Self::Broadcast { .. } => const { &Entry::new("broadcast", "broadcast from rank 0") },
            Self::Reduce { .. } => const { &Entry::new("reduce", "reduce to rank 0") },
            Self::AllToAll => const { &Entry::new("all_to_all", "all-to-all") },
            Self::AllToAllV => const { &Entry::new("all_to_all_v", "all-to-all with a size for each pair") },
            Self::Barrier => const { &Entry::new("barrier", "barrier") },
        }
    }

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

    /// Its place in [`Self::ALL`].
    const fn number(self) -> usize {
        match self {
            Self::AllReduce => 0,
            Self::AllGather => 1,
            Self::ReduceScatter => 2,
            Self::Broadcast { .. } => 3,
            Self::Reduce { .. } => 4,
            Self::AllToAll => 5,
            Self::AllToAllV => 6,
            Self::Barrier => 7,
        }
    }

    /// Whether its messages are no parts of one buffer that is passed on.
    const fn is_exchange(self) -> bool {
        matches!(self, Self::AllToAll | Self::AllToAllV | Self::Barrier)
    }
}

/// A collective that a scenario may ask for whole, with one size: any but the all-to-all-v. Roots are rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole(pub CollectiveKind);

impl Listed for CollectiveKind {
    const WHAT: &'static str = "collective";
    const ALL: &'static [Self] = &Self::ALL;
    const NAMES: &'static [&'static str] = &{
        let mut names = [""; Self::ALL.len()];
        let mut place = 0;
        while place < names.len() {
            names[place] = Self::ALL[place].described().name;
            place += 1;
        }
        names
    };

    fn entry(self) -> &'static Entry {
        self.described()
    }
}

impl Listed for Whole {
    const WHAT: &'static str = "collective";
    const ALL: &'static [Self] = &{
        let mut all = [Self(CollectiveKind::Barrier); CollectiveKind::ALL.len() - 1];
        let (mut place, mut from) = (0, 0);
        while place < all.len() {
            if !matches!(CollectiveKind::ALL[from], CollectiveKind::AllToAllV) {
                all[place] = Self(CollectiveKind::ALL[from]);
                place += 1;
            }
            from += 1;
        }
        all
    };
    const NAMES: &'static [&'static str] = &{
        let mut names = [""; CollectiveKind::ALL.len() - 1];
        let mut place = 0;
        while place < names.len() {
            names[place] = Self::ALL[place].0.described().name;
            place += 1;
        }
        names
    };

    fn entry(self) -> &'static Entry {
        self.0.described()
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
            library: None,
            routing: None,
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
