//! All-reduce by the network: switches sum what members send and send the sum back (SHARP between hosts, NVLS inside a
//! scale-up domain), so a member sends its vector once and receives it once.
//!
//! | group | rounds |
//! |---|---|
//! | no two members in one domain | one meeting of all |
//! | inside one domain of m | one meeting of all, by the domain's switch |
//! | whole domains of m | rings inside each, that leave every member the sum of an m-th; one meeting for each local index, across the domains; rings inside each |
//!
//! A *meeting* takes the place of a round's messages: its members hand over what they have, and all get the sum when it is
//! there. Inside a domain each of the m members owns an m-th of the vector, has the switch sum it (`multimem.ld_reduce`: all
//! m parts of every member's vector leave it) and store the sum to all (`multimem.st`: an m-th more leaves it), so that a
//! member's link carries (m + 1) / m vectors each way, in two dependent steps.

use windtunnel_kernel::registry::Entry;

use super::method::{Arrangement, Method, Rings};
use super::parts::{Meeting, Part, Round, Sink};
use super::plan::{CoupledShape, Plan};
use super::traffic::Traffic;
use super::{Algorithm, CollectiveKind};

/// The meeting of member `index` in the round in which its domain of `inner` meets others, and what of the vector it is about.
fn meeting(n: u32, inner: u32, bytes: u64, index: u32) -> (Meeting, Part) {
    let all = Meeting { first: 0, stride: 1, count: n, bytes, steps: 1, ring: false };
    if inner >= n {
        let bytes = bytes + bytes.div_ceil(u64::from(n));
        return (Meeting { bytes, steps: 2, ring: true, ..all }, Part::whole());
    }
    if inner == 1 {
        return (all, Part::whole());
    }
    let local = index % inner;
    let column = Part { first: local, step: inner, count: n / inner, blocks: n };
    let meeting =
        Meeting { first: local, stride: inner, count: n / inner, bytes: column.bytes(bytes), ..all };
    (meeting, column)
}

impl Plan {
    /// What `index` does together with others in round `round`, with the part of the vector that it is about.
    pub(super) fn meeting_of(&self, index: u32, round: u32) -> Option<(Meeting, Part)> {
        if self.has_levels() && round != self.domain() - 1 {
            return None;
        }
        Some(meeting(self.members(), self.domain(), self.bytes(), index))
    }
}

/// Switches sum.
pub(super) struct InNetwork;

impl Method for InNetwork {
    const ENTRY: Entry = Entry::new(
        "in_network",
        "switches sum (all-reduce): those of the fabric (`network.reduction`), or of a scale-up domain",
    );
    const KINDS: &'static [CollectiveKind] = &[CollectiveKind::AllReduce];
    const RINGS: Rings = Rings::None;
    const WHOLE_DOMAINS: bool = true;
    const IN_TURN: bool = false;
    const SUMS: bool = true;

    fn settle(plan: &mut Plan) {
        plan.goes_between(Algorithm::InNetwork);
    }

    fn rounds(plan: &Plan, _: u32) -> Arrangement {
        Arrangement::of(if plan.has_levels() { plan.levels().rounds() } else { 1 })
    }

    fn emit(plan: &Plan, index: u32, _: u32, round: u32, sink: &mut impl Sink) {
        if plan.has_levels() {
            plan.levels().round(index, round, sink);
        }
    }

    fn exchange(_: &Plan, _: u32, _: u32, _: &mut Round) {}

    fn coupled(_: &Plan) -> Option<CoupledShape> {
        None
    }

    fn traffic(_: &Plan) -> Option<Traffic> {
        None
    }
}
