//! The rule of a Clos network with faults, by arithmetic on the dead uplinks.
//!
//! A path from leaf S to leaf L that turns at tier T is a string of digits `c_0 … c_{T-1}`: at tier t it uses uplink
//! digit `c_t` of the switch with index w = `c_0` + `width_1` `c_1` + … in the block of S, and comes down through the
//! switch of the same index in the block of L by the same digit. So a digit is usable where the cable lives in both
//! blocks, and the sets that a breadth-first search would find follow from the rows of dead uplinks of the two chains of
//! blocks alone. Turning above the lowest common block cannot help: such a path contains the digits of a lower one.
//!
//! Digits are looked at 64 at a time: the dead ones of S and of L are words, and'ed with each other. Whether a digit
//! that lives in both survives further up takes a search over the blocks above, which is nearly always spared: if the
//! switches of a tier of S's block and of L's block, failed ones aside, have together fewer dead digits than there are
//! digits, then every pair of them has one in common, and it leads to switches that have not failed. So the tally keeps,
//! for every block above the leaves, the most dead digits of any switch of it; and first of all whether this decides
//! for all pairs of blocks.
//!
//! A failed switch needs no word of its own here: all its ports are dead, and those of its neighbours towards it.

use super::rule::At;
use super::{Clos, Level};
use crate::faults::row::{nth_zero, ones};
use crate::faults::{Dead, DeadPart};
use crate::port::PortSet;

/// A switch of a plane and a leaf. A switch on the way stands for the first leaf below it.
struct Pair<'a> {
    clos: &'a Clos,
    dead: DeadPart<'a>,
    at: At,
    from_leaf: u32,
    to_leaf: u32,
    /// Tier at which paths turn.
    turn: usize,
}

/// Up to 64 digits of a tier from a multiple of 64 on.
#[derive(Clone, Copy)]
struct Digits {
    first: u32,
    count: u32,
}

impl Clos {
    /// All digits of a tier.
    #[inline]
    fn digits(&self, tier: usize) -> impl Iterator<Item = Digits> + use<> {
        let parents = self.stages[tier].parents.get();
        (0..parents.div_ceil(64))
            .map(move |word| Digits { first: 64 * word, count: (parents - 64 * word).min(64) })
    }

    /// Of the dead uplinks of a switch, those of parallel cable `parallel` of some digits.
    #[inline]
    fn dead_cables(&self, dead: DeadPart, switch: u32, tier: usize, parallel: u32, digits: Digits) -> u64 {
        let first = self.levels[tier].ports_down + self.stages[tier].parents.get() * parallel + digits.first;
        dead.bits(switch, first, digits.count)
    }

    /// Digits of a switch without a living cable.
    #[inline]
    fn dead_digits(&self, dead: DeadPart, switch: u32, tier: usize, digits: Digits) -> u64 {
        let mut lost = self.dead_cables(dead, switch, tier, 0, digits);
        for parallel in 1..self.stages[tier].bundle {
            lost &= self.dead_cables(dead, switch, tier, parallel, digits);
        }
        lost
    }

    /// Living cables of a digit.
    #[inline]
    pub(super) fn living(&self, dead: DeadPart, switch: u32, tier: usize, digit: u32) -> u64 {
        let digits = Digits { first: digit, count: 1 };
        (0..self.stages[tier].bundle).map(|k| 1 - self.dead_cables(dead, switch, tier, k, digits)).sum()
    }

    /// See [`crate::shape::Shape::tally`]: 1 if all blocks are calm, or 0; then for every block of the tiers that are
    /// neither leaves nor the top, the most dead digits of a switch that has not failed.
    pub(crate) fn dead_tally(&self, dead: &Dead, first_switch: u32) -> Vec<u32> {
        let part = dead.part(first_switch, 0);
        let mut tally = vec![1];
        for tier in 1..self.stages.len() {
            let level = &self.levels[tier];
            let dead_digits = |switch: u32| {
                if dead.row(first_switch + switch).is_empty() || dead.switch(first_switch + switch) {
                    return 0;
                }
                self.digits(tier)
                    .map(|digits| self.dead_digits(part, switch, tier, digits).count_ones())
                    .sum()
            };
            for block in 0..self.planes * level.blocks {
                let first = level.first_switch + block * level.width.get();
                let worst = (first..first + level.width.get()).map(dead_digits).max().unwrap_or(0);
                tally[0] &= u32::from(2 * worst < self.stages[tier].parents.get());
                tally.push(worst);
            }
        }
        tally
    }

    /// Length of [`Self::dead_tally`].
    pub(crate) fn tally_len(&self) -> usize {
        let above = self.levels.len().saturating_sub(1);
        let blocks = |level: &Level| (self.planes * level.blocks) as usize;
        1 + self.levels[..above].iter().skip(1).map(blocks).sum::<usize>()
    }

    #[inline]
    fn pair<'a>(&'a self, dead: DeadPart<'a>, at: u32, to: u32) -> Pair<'a> {
        let (at, to_leaf) = (self.at(at), self.leaf(to));
        let from_leaf = at.block.saturating_mul(self.levels[at.tier].leaves.get());
        let mut turn = at.tier;
        while self.block_of(turn, from_leaf) != self.block_of(turn, to_leaf) {
            turn += 1;
        }
        Pair { clos: self, dead, at, from_leaf, to_leaf, turn }
    }

    /// [`crate::shape::Shape::pick_surviving`], where `draw` chooses among so many.
    #[inline]
    pub(crate) fn pick_surviving_by(
        &self,
        dead: DeadPart,
        at: u32,
        to: u32,
        draw: impl FnOnce(u32) -> u32,
    ) -> Option<u32> {
        let pair = self.pair(dead, at, to);
        if !pair.descends() {
            return None;
        }
        let tier = pair.at.tier;
        if pair.turn == tier {
            let (first, bundle) = pair.down_ports();
            if bundle <= 64 {
                let lost = dead.bits(at, first, bundle);
                let living = bundle - lost.count_ones();
                return (living > 0)
                    .then(|| first + nth_zero(lost, if bundle == 1 { 0 } else { draw(living) }));
            }
        } else if let stage = &self.stages[tier]
            && stage.bundle == 1
            && stage.parents.get() <= 64
        {
            let digits = Digits { first: 0, count: stage.parents.get() };
            let lost = pair.lost_above(digits) | self.dead_cables(dead, at, tier, 0, digits);
            let living = digits.count - lost.count_ones();
            return (living > 0).then(|| self.levels[tier].ports_down + nth_zero(lost, draw(living)));
        }
        let mut ports = PortSet::new();
        pair.ports(at, &mut ports, None);
        (!ports.is_empty()).then(|| ports.nth(draw(ports.len())))
    }

    /// See [`crate::shape::Shape::surviving`].
    pub(crate) fn surviving_ports(
        &self,
        dead: DeadPart,
        at: u32,
        to: u32,
        ports: &mut PortSet,
        weights: Option<&mut Vec<u64>>,
    ) {
        let pair = self.pair(dead, at, to);
        if pair.descends() {
            pair.ports(at, ports, weights);
        }
    }
}

impl Pair<'_> {
    /// Switch `index` in the block of a leaf.
    #[inline]
    fn switch(&self, tier: usize, leaf: u32, index: u32) -> u32 {
        let block = self.clos.block_of(tier, leaf);
        self.clos.number(At { tier, plane: self.at.plane, block, index })
    }

    /// Whether the way down lives from where a path that turns above comes back to this tier, or for a switch at the
    /// turn, from the switch below.
    #[inline]
    fn descends(&self) -> bool {
        let mut index = self.at.index;
        let mut tier = self.at.tier;
        if tier == self.turn {
            tier -= 1;
            index = self.clos.levels[tier].width.remainder(index);
        }
        while tier > 0 {
            tier -= 1;
            let (digit, below) = self.clos.levels[tier].width.split(index);
            let digits = Digits { first: digit, count: 1 };
            let switch = self.switch(tier, self.to_leaf, below);
            if self.clos.dead_digits(self.dead, switch, tier, digits) != 0 {
                return false;
            }
            index = below;
        }
        true
    }

    /// Ports down towards the leaf of a switch at the turn: the first and how many.
    #[inline]
    fn down_ports(&self) -> (u32, u32) {
        let stage = &self.clos.stages[self.turn - 1];
        let child = self.clos.block_of(self.turn - 1, self.to_leaf) - self.at.block * stage.radix.get();
        (child * stage.bundle, stage.bundle)
    }

    /// Of some digits at the switch, those by which no path comes back, whatever the switch's own cables.
    #[inline]
    fn lost_above(&self, digits: Digits) -> u64 {
        let (clos, tier, index) = (self.clos, self.at.tier, self.at.index);
        let mut lost = clos.dead_digits(self.dead, self.switch(tier, self.to_leaf, index), tier, digits);
        if tier + 1 < self.turn && !self.is_calm(tier + 1) {
            let mut left = ones(digits.count) & !lost;
            while left != 0 {
                let digit = left.trailing_zeros();
                if !self.survives(tier + 1, index + clos.levels[tier].width.get() * (digits.first + digit)) {
                    lost |= 1 << digit;
                }
                left &= left - 1;
            }
        }
        lost
    }

    /// Whether from `tier` on upwards any two switches that have not failed, of both blocks and of the same index, have
    /// a digit in common.
    #[inline]
    fn is_calm(&self, tier: usize) -> bool {
        if self.dead.tally.first() == Some(&1) {
            return true;
        }
        let mut first = 1;
        for middle in 1..self.turn {
            let level = &self.clos.levels[middle];
            let worst = |leaf| {
                let block = self.at.plane * level.blocks + self.clos.block_of(middle, leaf);
                self.dead.tally.get(first + block as usize).copied()
            };
            if middle >= tier {
                let dead = worst(self.from_leaf).zip(worst(self.to_leaf));
                if dead.is_none_or(|(up, down)| up + down >= self.clos.stages[middle].parents.get()) {
                    return false;
                }
            }
            first += (self.clos.planes * level.blocks) as usize;
        }
        true
    }

    /// Digits of switch `index` that live in both blocks.
    fn common(&self, tier: usize, index: u32, digits: Digits) -> u64 {
        let dead = |leaf| self.clos.dead_digits(self.dead, self.switch(tier, leaf, index), tier, digits);
        ones(digits.count) & !(dead(self.from_leaf) | dead(self.to_leaf))
    }

    /// Whether a path goes up from switch `index` of tier `tier` and comes down to that tier again.
    fn survives(&self, tier: usize, index: u32) -> bool {
        if tier == self.turn {
            return true;
        }
        let sure = self.is_calm(tier + 1);
        self.clos.digits(tier).any(|digits| {
            let mut left = self.common(tier, index, digits);
            while left != 0 {
                let above = self.clos.levels[tier].width.get() * (digits.first + left.trailing_zeros());
                if sure || self.survives(tier + 1, index + above) {
                    return true;
                }
                left &= left - 1;
            }
            false
        })
    }

    /// How many paths [`Self::survives`] speaks of.
    fn paths(&self, tier: usize, index: u32) -> u64 {
        if tier == self.turn {
            return 1;
        }
        let clos = self.clos;
        let last = tier + 1 == self.turn && clos.stages[tier].bundle == 1;
        let mut sum = 0;
        for digits in clos.digits(tier) {
            let mut left = self.common(tier, index, digits);
            if last {
                sum += u64::from(left.count_ones());
                continue;
            }
            while left != 0 {
                let digit = digits.first + left.trailing_zeros();
                let cables = |leaf| clos.living(self.dead, self.switch(tier, leaf, index), tier, digit);
                let above = self.paths(tier + 1, index + clos.levels[tier].width.get() * digit);
                sum += cables(self.from_leaf) * cables(self.to_leaf) * above;
                left &= left - 1;
            }
        }
        sum
    }

    /// Appends the ports that begin a path, of switch number `at`, which [`Self::descends`].
    fn ports(&self, at: u32, ports: &mut PortSet, mut weights: Option<&mut Vec<u64>>) {
        let (clos, At { tier, index, .. }) = (self.clos, self.at);
        if self.turn == tier {
            let (first, bundle) = self.down_ports();
            for port in (first..first + bundle).filter(|&port| self.dead.bits(at, port, 1) == 0) {
                ports.push(port);
                if let Some(weights) = weights.as_deref_mut() {
                    weights.push(1);
                }
            }
            return;
        }
        let stage = &clos.stages[tier];
        for parallel in 0..stage.bundle {
            for digits in clos.digits(tier) {
                let lost = self.lost_above(digits) | clos.dead_cables(self.dead, at, tier, parallel, digits);
                let mut left = ones(digits.count) & !lost;
                while left != 0 {
                    let digit = digits.first + left.trailing_zeros();
                    ports.push(clos.levels[tier].ports_down + stage.parents.get() * parallel + digit);
                    if let Some(weights) = weights.as_deref_mut() {
                        let down =
                            clos.living(self.dead, self.switch(tier, self.to_leaf, index), tier, digit);
                        weights
                            .push(down * self.paths(tier + 1, index + clos.levels[tier].width.get() * digit));
                    }
                    left &= left - 1;
                }
            }
        }
    }
}
