//! What a collective computes.

use windtunnel_kernel::registry::{Entry, Listed};

/// What a collective computes. `bytes` of a [`CollectiveSpec`](super::CollectiveSpec) are counted as nccl-tests does.
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
    /// Every rank sends its own sizes: see [`CollectiveSpec::matrix`](super::CollectiveSpec::matrix).
    AllToAllV,
    /// Nobody leaves before all have come; no payload.
    Barrier,
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
    pub(super) const fn number(self) -> usize {
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
    pub(super) const fn is_exchange(self) -> bool {
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
