//! From an [`Algorithm`] to its [`Method`]: whoever has a plan asks the algorithm, and is answered by the algorithm's own file.

use windtunnel_kernel::registry::{Entry, Listed};

use super::algorithm::{Algorithm, algorithms};
use super::kind::CollectiveKind;
use super::method::{Arrangement, Method, Rings};
use super::parts::{Round, Sink};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;
use super::{all_to_all, binomial, bruck, hierarchical, in_network, multi_ring};
use super::{pat, recursive, ring, tree, tuner};

/// Answers for each line of the table.
macro_rules! dispatched {
    ($($(#[$attribute:meta])* $member:ident: $method:ty;)+) => {
        impl Algorithm {
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

algorithms!(dispatched);

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
