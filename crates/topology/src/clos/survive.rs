//! The rule of a Clos network with faults, by arithmetic on the dead uplinks.
//!
//! A path from leaf S to leaf L that turns at tier T is a string of digits `c_0 … c_{T-1}`: at tier t it uses uplink
//! digit `c_t` of the switch with index w = `c_0` + `width_1` `c_1` + … in the block of S, and comes down through the
//! switch of the same index in the block of L by the same digit. So a digit is usable where the cable lives in both
//! blocks, and the sets that a breadth-first search would find follow from the rows of dead uplinks of the two chains of
//! blocks alone. Turning above the lowest common block cannot help: such a path contains the digits of a lower one.

use super::Clos;
use super::rule::At;
use crate::faults::Dead;
use crate::port::PortSet;

/// Two leaves of a plane, from and to; a switch on the way stands for the leaf below it.
struct Pair<'a> {
    clos: &'a Clos,
    dead: &'a Dead,
    plane: u32,
    from_leaf: u32,
    to_leaf: u32,
    /// Tier at which paths turn.
    turn: usize,
}

impl Pair<'_> {
    /// Whether uplink `q` of switch `index` in the block of a leaf lives.
    #[inline]
    fn lives(&self, tier: usize, leaf: u32, index: u32, q: u32) -> bool {
        let (clos, block) = (self.clos, self.clos.block_of(tier, leaf));
        let switch = clos.number(At { tier, plane: self.plane, block, index });
        !self.dead.port(switch, clos.ports_down(tier) + q)
    }

    /// Living parallel cables of digit `digit` of switch `index` in the block of a leaf.
    fn cables(&self, tier: usize, leaf: u32, index: u32, digit: u32) -> u64 {
        let stage = &self.clos.stages[tier];
        let parallels = 0..stage.bundle;
        parallels.filter(|k| self.lives(tier, leaf, index, digit + stage.parents.get() * k)).count() as u64
    }

    /// Paths from the switch `index` of tier `tier` up to the turn and down to that tier again; stops at `enough`.
    fn paths(&self, tier: usize, index: u32, enough: u64) -> u64 {
        if tier == self.turn {
            return 1;
        }
        let mut sum = 0;
        for digit in 0..self.clos.stages[tier].parents.get() {
            sum += self.by_digit(tier, index, digit, enough)
                * self.cables(tier, self.from_leaf, index, digit).min(enough);
            if sum >= enough {
                break;
            }
        }
        sum
    }

    /// Paths that take `digit`, per living uplink of it.
    fn by_digit(&self, tier: usize, index: u32, digit: u32, enough: u64) -> u64 {
        let down = self.cables(tier, self.to_leaf, index, digit);
        if down == 0 || self.cables(tier, self.from_leaf, index, digit) == 0 {
            return 0;
        }
        down * self.paths(tier + 1, index + self.clos.levels[tier].width.get() * digit, enough)
    }

    /// Whether the way down from switch `index` of tier `tier` to the leaf lives.
    fn descends(&self, tier: usize, index: u32) -> bool {
        (0..tier).all(|lower| {
            let (digit, rest) = self.clos.levels[lower].width.split(index);
            let digit = self.clos.stages[lower].parents.remainder(digit);
            self.cables(lower, self.to_leaf, rest, digit) > 0
        })
    }
}

impl Clos {
    /// See [`crate::shape::Shape::surviving`].
    pub(super) fn surviving_ports(
        &self,
        dead: &Dead,
        at: u32,
        to: u32,
        ports: &mut PortSet,
        mut weights: Option<&mut Vec<u64>>,
    ) {
        if dead.switch(to) || dead.switch(at) {
            return;
        }
        let (at, to_leaf) = (self.at(at), self.leaf(to));
        let from_leaf = at.block.saturating_mul(self.levels[at.tier].leaves.get());
        let turn = self.turn(from_leaf, to_leaf).max(at.tier);
        let pair = Pair { clos: self, dead, plane: at.plane, from_leaf, to_leaf, turn };
        if !pair.descends(at.tier, at.index) {
            return;
        }
        if turn == at.tier {
            let stage = &self.stages[at.tier - 1];
            let child = self.block_of(at.tier - 1, to_leaf) - at.block * stage.radix.get();
            let (digit, index) = self.levels[at.tier - 1].width.split(at.index);
            for parallel in 0..stage.bundle {
                if pair.lives(at.tier - 1, to_leaf, index, digit + stage.parents.get() * parallel) {
                    ports.push(child * stage.bundle + parallel);
                    if let Some(weights) = weights.as_deref_mut() {
                        weights.push(1);
                    }
                }
            }
            return;
        }
        let stage = &self.stages[at.tier];
        let enough = if weights.is_some() { u64::MAX } else { 1 };
        for q in 0..stage.uplinks.get() {
            if !pair.lives(at.tier, from_leaf, at.index, q) {
                continue;
            }
            let paths = pair.by_digit(at.tier, at.index, stage.parents.remainder(q), enough);
            if paths > 0 {
                ports.push(self.ports_down(at.tier) + q);
                if let Some(weights) = weights.as_deref_mut() {
                    weights.push(paths);
                }
            }
        }
    }
}
