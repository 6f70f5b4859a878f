//! Next hops towards one destination, by search: for shapes whose repairs have no formula, and for pairs that only a
//! detour joins.
//!
//! First the legal hops ([`Shape::may_follow`]) over living cables are searched breadth first from the destination
//! backwards: every switch that is reached has a legal path, and its ports towards switches one step nearer begin the
//! shortest. Then the search goes on over any living cable from all switches reached so far, nearest first: what is
//! reached only now is joined by a detour. A packet on a detour comes nearer with every hop until it meets a switch with
//! a legal path, which it then follows: no loop.

use super::dead::Dead;
use crate::port::PortSet;
use crate::shape::{Far, Shape};

/// What there is from a switch to the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    Legal,
    Detour,
    #[default]
    None,
}

/// The work space of searches, and what the last one found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    /// Words of a switch.
    words: usize,
    /// A bit for every port.
    masks: Vec<u64>,
    ways: Vec<Way>,
    /// Hops to the destination; of detours, to the nearest switch with a legal path.
    steps: Vec<u32>,
    /// Switches in the order in which they were reached.
    reached: Vec<u32>,
}

impl Search {
    /// For a shape.
    pub(crate) fn new<S: Shape>(shape: &S) -> Self {
        let ports = (0..shape.switches()).map(|switch| shape.ports(switch)).max().unwrap_or(1);
        Self { words: ports.div_ceil(64).max(1) as usize, ..Self::default() }
    }

    /// Searches from `to` over what is not `dead`.
    pub(crate) fn run<S: Shape>(&mut self, shape: &S, dead: &Dead, to: u32) {
        let switches = shape.switches() as usize;
        self.steps.clear();
        self.steps.resize(switches, u32::MAX);
        self.masks.clear();
        self.masks.resize(switches * self.words, 0);
        self.ways.clear();
        self.ways.resize(switches, Way::None);
        self.reached.clear();
        if dead.switch(to) {
            return;
        }
        (self.steps[to as usize], self.ways[to as usize]) = (0, Way::Legal);
        self.reached.push(to);
        let mut next = 0;
        while let Some(&near) = self.reached.get(next) {
            next += 1;
            let step = self.steps[near as usize] + 1;
            for (far, port) in living_neighbours(shape, dead, near) {
                let known = self.steps[far as usize];
                // Shorter ways are found first: a later one cannot be as short.
                if known >= step && far != to && shape.may_follow(far, port, to) {
                    if known == u32::MAX {
                        (self.steps[far as usize], self.ways[far as usize]) = (step, Way::Legal);
                        self.reached.push(far);
                    }
                    self.set(far, port);
                }
            }
        }
        if self.reached.len() < switches {
            self.go_on(shape, dead);
        }
    }

    /// From all switches with a legal path, nearest first, over any cable. Steps are counted from them, the legal path
    /// not: as a switch joins the detour it must come nearer to where legal paths begin.
    fn go_on<S: Shape>(&mut self, shape: &S, dead: &Dead) {
        self.reached.iter().for_each(|&switch| self.steps[switch as usize] = 0);
        let mut next = 0;
        while let Some(&near) = self.reached.get(next) {
            next += 1;
            let step = self.steps[near as usize] + 1;
            for (far, port) in living_neighbours(shape, dead, near) {
                let at = far as usize;
                if self.ways[at] == Way::None {
                    (self.ways[at], self.steps[at]) = (Way::Detour, step);
                    self.reached.push(far);
                }
                if self.ways[at] == Way::Detour && self.steps[at] == step {
                    self.set(far, port);
                }
            }
        }
    }

    /// Of every switch a bit for each equal-cost port, and the kind of way that they begin.
    pub(crate) fn found(&self) -> impl Iterator<Item = (&[u64], Way)> {
        self.masks.chunks_exact(self.words).zip(self.ways.iter().copied())
    }

    fn set(&mut self, switch: u32, port: u32) {
        self.masks[switch as usize * self.words + port as usize / 64] |= 1 << (port % 64);
    }
}

/// The ports whose bits are set.
pub(crate) fn ports_of(mask: &[u64]) -> PortSet {
    let mut ports = PortSet::new();
    for (word, &mask) in mask.iter().enumerate() {
        let mut left = mask;
        while left != 0 {
            ports.push(word as u32 * 64 + left.trailing_zeros());
            left &= left - 1;
        }
    }
    ports
}

/// Switches with a living cable to `near`, and their ports to it.
fn living_neighbours<S: Shape>(shape: &S, dead: &Dead, near: u32) -> impl Iterator<Item = (u32, u32)> {
    let row = dead.row(near);
    let lives = move |port: u32| row.get(port as usize / 64).is_none_or(|word| word >> (port % 64) & 1 == 0);
    (0..shape.ports(near)).filter_map(move |port| match shape.peer(near, port) {
        Some(Far::Switch { switch, port: back }) if lives(port) => Some((switch, back)),
        _ => None,
    })
}
