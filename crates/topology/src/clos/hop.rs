//! The next hop from one switch of a Clos network, with what depends on the switch alone worked out beforehand.
//!
//! The rule asks for the tier, plane, block and index of a switch, by searches and divisions, and only then for the
//! destination. A simulator that forwards packet after packet at the same few switches keeps the first half.

use std::hint::select_unpredictable;

use windtunnel_kernel::random::scatter;

use super::Clos;
use crate::choose::choose_scattered;
use crate::divide::Divisor;
use crate::port::Target;

/// What a switch of a Clos network knows: [`Topology::next_hop`](crate::Topology::next_hop) from there in a few
/// instructions. Some 50 bytes.
#[derive(Clone, Copy, Debug)]
pub struct SwitchRule {
    /// The switch's part of its choices.
    scattered: u64,
    /// Leaves below a child.
    below: Divisor,
    /// Leaves below: the first one and how many.
    first_leaf: u32,
    leaves: u32,
    /// Parallel links to a child; 0 for a leaf, whose children are NICs.
    bundle: u32,
    /// Uplinks: the first one and how many.
    first_up: u32,
    up: u32,
}

impl SwitchRule {
    /// The port that a packet of a flow of the given [`flow_hash`](crate::flow_hash) takes. `to` lies in the plane of
    /// the switch.
    #[inline]
    pub fn next_hop(&self, to: &Target, flow_hash: u64) -> u32 {
        // Up or down, and whether there is a choice, differs from packet to packet: all of it is worked out, and nothing
        // branches. Of one or no port the choice is 0.
        let leaf = to.switch.0.wrapping_sub(self.first_leaf);
        let down = leaf < self.leaves;
        let below = self.below.quotient(leaf).wrapping_mul(self.bundle);
        let below = select_unpredictable(self.bundle == 0, to.port, below);
        let first = select_unpredictable(down, below, self.first_up);
        let count = select_unpredictable(down, self.bundle, self.up);
        first + choose_scattered(flow_hash, self.scattered, count)
    }
}

impl Clos {
    pub(crate) fn switch_rule(&self, switch: u32) -> SwitchRule {
        let at = self.at(switch);
        let leaves = self.levels[at.tier].leaves.get();
        let before = at.block * leaves;
        let below = at.tier.checked_sub(1);
        SwitchRule {
            scattered: scatter(u64::from(switch)),
            below: below.map_or(Divisor::new(1), |tier| self.levels[tier].leaves),
            first_leaf: at.plane * self.levels[0].switches + before,
            // The last block may not be full.
            leaves: leaves.min(self.levels[0].switches - before),
            bundle: below.map_or(0, |tier| self.stages[tier].bundle),
            first_up: self.ports_down(at.tier),
            up: self.stages.get(at.tier).map_or(0, |stage| stage.uplinks.get()),
        }
    }
}
