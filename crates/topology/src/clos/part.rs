//! A Clos network as a part of a larger fabric, which is joined to it at the top switches.
//!
//! A path that leaves goes up to some top switch x, one that arrives comes down from some top switch y; there is one way
//! from a switch to each top switch above it, up to parallel cables, and one down from a top switch to each leaf. The
//! top switches that lead on are the first few (`reach` of them): from switch w of a tier, uplink digit c leads to the
//! top switches w + `width` (c + …), the lowest of which is w + `width` · c, so it leads on if that is below `reach`.

use windtunnel_kernel::Span;

use super::Clos;
use crate::faults::DeadPart;

/// Uplinks of a switch that lead on: of each of `bundle` groups of `parents` ports from `first` on, the first `digits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uplinks {
    pub(crate) first: u32,
    pub(crate) digits: u32,
    pub(crate) parents: u32,
    pub(crate) bundle: u32,
}

impl Uplinks {
    pub(crate) fn len(self) -> u32 {
        self.digits * self.bundle
    }

    /// Port number `index` in ascending order; there are so many.
    #[inline]
    pub(crate) fn nth(self, index: u32) -> u32 {
        if self.digits == self.parents {
            return self.first + index;
        }
        self.first + index / self.digits * self.parents + index % self.digits
    }
}

/// The paths that leave a part, with its dead ports.
pub(crate) struct Ascent<'a, F> {
    pub(crate) clos: &'a Clos,
    pub(crate) dead: DeadPart<'a>,
    pub(crate) reach: u32,
    /// Paths that are enough: counts need not be exact beyond.
    pub(crate) enough: u64,
    /// Paths that go on from a top switch.
    pub(crate) beyond: F,
}

impl<F: Fn(u32) -> u64> Ascent<'_, F> {
    /// Calls `found` for every living uplink of switch `at`, below the top, that begins a path, with the number of such.
    pub(crate) fn ports(&self, at: u32, mut found: impl FnMut(u32, u64)) {
        let (clos, place) = (self.clos, self.clos.at(at));
        let leaf = place.block * clos.levels[place.tier].leaves.get();
        let uplinks = clos.uplinks_towards(at, self.reach);
        let width = clos.levels[place.tier].width.get();
        // A digit's paths are the same by all its parallel cables.
        let above = |digit| self.paths(leaf, place.tier + 1, place.index + width * digit);
        let above: Vec<u64> = (0..uplinks.digits).map(above).collect();
        for parallel in 0..uplinks.bundle {
            for digit in 0..uplinks.digits {
                let port = uplinks.first + uplinks.parents * parallel + digit;
                if above[digit as usize] > 0 && self.dead.bits(at, port, 1) == 0 {
                    found(port, above[digit as usize]);
                }
            }
        }
    }

    /// Paths from switch `index` of the block of a leaf.
    fn paths(&self, leaf: u32, tier: usize, index: u32) -> u64 {
        let clos = self.clos;
        if tier == clos.stages.len() {
            return (self.beyond)(index);
        }
        let level = &clos.levels[tier];
        let switch = level.first_switch + clos.block_of(tier, leaf) * level.width.get() + index;
        let mut sum = 0u64;
        for digit in 0..clos.uplinks_towards(switch, self.reach).digits {
            let cables = clos.living(self.dead, switch, tier, digit);
            if cables > 0 {
                let above = self.paths(leaf, tier + 1, index + level.width.get() * digit);
                sum = sum.saturating_add(cables.saturating_mul(above));
                if sum >= self.enough {
                    break;
                }
            }
        }
        sum.min(self.enough)
    }
}

/// For a network of one plane.
impl Clos {
    /// Number of the first top switch, and how many there are.
    pub(crate) fn tops(&self) -> (u32, u32) {
        let top = self.levels.last().expect("a Clos has a tier");
        (top.first_switch, top.switches)
    }

    /// Ports down of a top switch, used or not.
    pub(crate) fn top_ports(&self) -> u32 {
        self.ports_down(self.stages.len())
    }

    /// Tiers.
    pub(crate) fn tiers(&self) -> usize {
        self.levels.len()
    }

    /// The uplinks of a switch below the top that lead to one of the first `reach` top switches.
    #[inline]
    pub(crate) fn uplinks_towards(&self, at: u32, reach: u32) -> Uplinks {
        let at = self.at(at);
        let (width, stage) = (self.levels[at.tier].width, &self.stages[at.tier]);
        let parents = stage.parents.get();
        let digits = width.quotient(reach.saturating_sub(at.index) + width.get() - 1).min(parents);
        Uplinks { first: self.ports_down(at.tier), digits, parents, bundle: stage.bundle }
    }

    /// Ports down of a switch above the leaves that have a cable; they are the first.
    pub(crate) fn children(&self, at: u32) -> u32 {
        let at = self.at(at);
        let stage = &self.stages[at.tier - 1];
        let below = self.levels[at.tier - 1].blocks - at.block * stage.radix.get();
        below.min(stage.radix.get()) * stage.bundle
    }

    /// Living paths from top switch `index` down to a leaf.
    pub(crate) fn descents(&self, dead: DeadPart, mut index: u32, leaf: u32) -> u64 {
        let mut paths = 1u64;
        for tier in (0..self.stages.len()).rev() {
            let (digit, below) = self.levels[tier].width.split(index);
            index = below;
            let switch =
                self.levels[tier].first_switch + self.block_of(tier, leaf) * self.levels[tier].width.get();
            paths = paths.saturating_mul(self.living(dead, switch + index, tier, digit));
            if paths == 0 {
                break;
            }
        }
        paths
    }

    /// Latency from a leaf, its own delay not counted, to a switch of tier `turn`, and from there down to a leaf.
    pub(crate) fn climb_and_descent(&self, turn: usize) -> (Span, Span) {
        let levels = || self.levels[..=turn].windows(2);
        let climb = levels().map(|pair| pair[1].propagation + pair[1].delay).sum();
        (climb, levels().map(|pair| pair[1].propagation + pair[0].delay).sum())
    }
}
