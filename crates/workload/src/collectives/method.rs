//! What an algorithm is: all that the rest asks of one stands in its own file, as its [`Method`].

use windtunnel_kernel::registry::Entry;

use super::kind::CollectiveKind;
use super::parts::{Round, Sink};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;

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
