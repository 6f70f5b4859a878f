//! What an algorithm is: all that the rest asks of one stands in its own file, and the table of them is a line each.

use windtunnel_kernel::registry::{Entry, Listed};

use super::parts::{Round, Sink};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;
use super::{CollectiveKind, all_to_all, binomial, bruck, hierarchical, in_network, multi_ring, pat};
use super::{recursive, ring, tree, tuner};

/// Rounds of a plan, and how they are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrangement {
    /// Sequences of rounds that advance independently.
    pub lanes: u32,
    /// Rounds of each lane.
    pub rounds: u32,
    /// Rounds of a lane in flight at most.
    pub depth: u32,
    /// Chunks in which a tree or chain passes on the bytes of a lane.
    pub chunks: u32,
}

impl Arrangement {
    /// One lane of rounds, one at a time.
    pub(super) const fn of(rounds: u32) -> Self {
        Self { lanes: 1, rounds, depth: 1, chunks: 1 }
    }
}

/// The rings of which a coupled form is made, whose edges have one rate however their members come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rings {
    /// It is no ring over the whole group.
    None,
    /// One.
    One,
    /// Several at once.
    Several,
}

/// An algorithm. Nothing has a default: whoever writes one has to say it.
pub(super) trait Method {
    /// Its name in a scenario, and a line about it.
    const ENTRY: Entry;
    /// What it computes, whatever the root.
    const KINDS: &'static [CollectiveKind];
    /// The rings of its coupled form.
    const RINGS: Rings;
    /// Whether a group has to be of whole scale-up domains.
    const WHOLE_DOMAINS: bool;
    /// Whether a member's send is over only when its receiver has the message: see [`Plan::sends_in_turn`].
    const IN_TURN: bool;

    /// Whether switches sum.
    const SUMS: bool;

    /// Settles what depends on the group, before rounds are counted.
    fn settle(plan: &mut Plan);

    /// Rounds of a group of two or more with something to send; `outstanding` messages of a member may be under way.
    fn rounds(plan: &Plan, outstanding: u32) -> Arrangement;

    /// Tells `sink` what `index` sends and receives, of kinds that pass on parts of a buffer.
    fn emit(plan: &Plan, index: u32, lane: u32, round: u32, sink: &mut impl Sink);

    /// Writes what `index` sends and receives, of all-to-alls and barriers.
    fn exchange(plan: &Plan, index: u32, round: u32, out: &mut Round);

    /// The group of edges that advance together, if they do.
    fn coupled(plan: &Plan) -> Option<CoupledShape>;

    /// What all members together send, where there is a closed form.
    fn traffic(plan: &Plan) -> Option<Traffic>;
}

/// Declares [`Algorithm`]: a line for each, with the type that is its [`Method`].
macro_rules! algorithms {
    ($($(#[$attribute:meta])* $member:ident: $method:ty;)+) => {
        /// How a collective is done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        pub enum Algorithm {
            $(#[doc = concat!("See `", stringify!($method), "`.")] $(#[$attribute])* $member,)+
        }

        impl Algorithm {
            /// All, in the order in which they are listed.
            pub const ALL: [Self; [$(stringify!($member)),+].len()] = [$(Self::$member),+];

            /// Its name in a scenario.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$member => <$method as Method>::ENTRY.name,)+
                }
            }

            /// What it computes, whatever the root.
            pub const fn kinds(self) -> &'static [CollectiveKind] {
                match self {
                    $(Self::$member => <$method as Method>::KINDS,)+
                }
            }

            /// The rings of its coupled form.
            pub const fn rings(self) -> Rings {
                match self {
                    $(Self::$member => <$method as Method>::RINGS,)+
                }
            }

            /// Whether a group has to be of whole scale-up domains.
            pub(super) const fn wants_whole_domains(self) -> bool {
                match self {
                    $(Self::$member => <$method as Method>::WHOLE_DOMAINS,)+
                }
            }

            /// Whether switches sum.
            pub const fn sums(self) -> bool {
                match self {
                    $(Self::$member => <$method as Method>::SUMS,)+
                }
            }

            pub(super) const fn sends_in_turn(self) -> bool {
                match self {
                    $(Self::$member => <$method as Method>::IN_TURN,)+
                }
            }

            pub(super) fn settle(self, plan: &mut Plan) {
                match self {
                    $(Self::$member => <$method as Method>::settle(plan),)+
                }
            }

            pub(super) fn rounds(self, plan: &Plan, outstanding: u32) -> Arrangement {
                match self {
                    $(Self::$member => <$method as Method>::rounds(plan, outstanding),)+
                }
            }

            #[inline]
            pub(super) fn emit(self, plan: &Plan, index: u32, lane: u32, round: u32, sink: &mut impl Sink) {
                match self {
                    $(Self::$member => <$method as Method>::emit(plan, index, lane, round, sink),)+
                }
            }

            #[inline]
            pub(super) fn exchange(self, plan: &Plan, index: u32, round: u32, out: &mut Round) {
                match self {
                    $(Self::$member => <$method as Method>::exchange(plan, index, round, out),)+
                }
            }

            pub(super) fn coupled(self, plan: &Plan) -> Option<CoupledShape> {
                match self {
                    $(Self::$member => <$method as Method>::coupled(plan),)+
                }
            }

            pub(super) fn traffic(self, plan: &Plan) -> Option<Traffic> {
                match self {
                    $(Self::$member => <$method as Method>::traffic(plan),)+
                }
            }
        }

        impl Listed for Algorithm {
            const WHAT: &'static str = "algorithm";
            const ALL: &'static [Self] = &Self::ALL;
            const NAMES: &'static [&'static str] = &[$(<$method as Method>::ENTRY.name),+];

            fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$member => const { &<$method as Method>::ENTRY },)+
                }
            }
        }
    };
}

algorithms! {
    #[default]
    Auto: tuner::Auto;
    Ring: ring::Ring;
    DoubleBinaryTree: tree::DoubleBinaryTree;
    Recursive: recursive::Recursive;
    Bruck: bruck::Bruck;
    Pat: pat::Pat;
    Binomial: binomial::Binomial;
    Direct: all_to_all::Direct;
    Pairwise: all_to_all::Pairwise;
    MultiRing: multi_ring::MultiRing;
    Hierarchical: hierarchical::Hierarchical;
    InNetwork: in_network::InNetwork;
}

impl Algorithm {
    /// Whether it computes `kind`.
    pub const fn computes(self, kind: CollectiveKind) -> bool {
        let kinds = self.kinds();
        let mut place = 0;
        while place < kinds.len() {
            if kinds[place].number() == kind.number() {
                return true;
            }
            place += 1;
        }
        false
    }
}

/// The algorithms of each kind, by the kind's number, and how many there are.
static OF_KIND: [([Algorithm; Algorithm::ALL.len()], usize); CollectiveKind::ALL.len()] = {
    let mut all = [([Algorithm::Auto; Algorithm::ALL.len()], 0); CollectiveKind::ALL.len()];
    let mut kind = 0;
    while kind < all.len() {
        let mut algorithm = 0;
        while algorithm < Algorithm::ALL.len() {
            if Algorithm::ALL[algorithm].computes(CollectiveKind::ALL[kind]) {
                all[kind].0[all[kind].1] = Algorithm::ALL[algorithm];
                all[kind].1 += 1;
            }
            algorithm += 1;
        }
        kind += 1;
    }
    all
};

impl CollectiveKind {
    /// The algorithms that compute it, [`Algorithm::Auto`] apart, in the order in which they are listed.
    pub fn algorithms(self) -> &'static [Algorithm] {
        let (algorithms, count) = &OF_KIND[self.number()];
        &algorithms[..*count]
    }
}
