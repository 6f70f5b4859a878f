//! Next hops towards one destination, by search: for shapes whose repairs have no formula, and for pairs that only a
//! detour joins.
//!
//! First the legal hops ([`Shape::may_follow`]) over living cables are searched breadth first from the destination
//! backwards: every switch that is reached has a legal path, and its ports towards switches one step nearer begin the
//! shortest. Then the search goes on over any living cable from all switches reached so far, nearest first: what is
//! reached only now is joined by a detour. A packet on a detour comes nearer with every hop until it meets a switch with
//! a legal path, which it then follows: no loop.

use std::collections::VecDeque;

use super::dead::Dead;
use crate::port::PortSet;
use crate::shape::{Far, Shape};

const LEGAL: u8 = 0;
const DETOUR: u8 = 1;
const UNREACHED: u8 = 2;

/// Equal-cost ports of every switch towards one switch.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Words of a switch.
    words: usize,
    /// A bit for every port.
    masks: Vec<u64>,
    state: Vec<u8>,
}

/// What there is from a switch to the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Legal,
    Detour,
    None,
}

impl Field {
    /// Searches from `to` over what is not `dead`.
    pub(crate) fn search<S: Shape>(shape: &S, dead: &Dead, to: u32, max_ports: u32) -> Self {
        let switches = shape.switches() as usize;
        let words = max_ports.div_ceil(64).max(1) as usize;
        let mut field = Self { words, masks: vec![0; switches * words], state: vec![UNREACHED; switches] };
        let mut distance = vec![u32::MAX; switches];
        let mut queue = VecDeque::new();
        if dead.switch(to) {
            return field;
        }
        (distance[to as usize], field.state[to as usize]) = (0, LEGAL);
        queue.push_back(to);
        // Those with a legal path, nearest first: where the detours start from.
        let mut reached = Vec::new();
        while let Some(near) = queue.pop_front() {
            reached.push(near);
            for (far, port) in living_neighbours(shape, dead, near) {
                let next = distance[near as usize] + 1;
                // Shorter ways are found first: a later one cannot be as short.
                if distance[far as usize] >= next && far != to && shape.may_follow(far, port, to) {
                    if distance[far as usize] == u32::MAX {
                        queue.push_back(far);
                    }
                    distance[far as usize] = next;
                    field.state[far as usize] = LEGAL;
                    field.set(far, port);
                }
            }
        }
        // Steps to the nearest switch with a legal path, that path not counted: as a switch joins the detour it must
        // come nearer to where legal paths begin.
        let mut steps = vec![0u32; switches];
        queue.extend(reached);
        while let Some(near) = queue.pop_front() {
            for (far, port) in living_neighbours(shape, dead, near) {
                let (at, next) = (far as usize, steps[near as usize] + 1);
                if field.state[at] == UNREACHED {
                    (field.state[at], steps[at]) = (DETOUR, next);
                    queue.push_back(far);
                }
                if field.state[at] == DETOUR && steps[at] == next {
                    field.set(far, port);
                }
            }
        }
        field
    }

    /// Appends the equal-cost ports of `at`.
    pub(crate) fn ports(&self, at: u32, ports: &mut PortSet) -> Way {
        let first = at as usize * self.words;
        for (word, &mask) in self.masks[first..first + self.words].iter().enumerate() {
            let mut left = mask;
            while left != 0 {
                ports.push(word as u32 * 64 + left.trailing_zeros());
                left &= left - 1;
            }
        }
        match self.state[at as usize] {
            LEGAL => Way::Legal,
            DETOUR => Way::Detour,
            _ => Way::None,
        }
    }

    fn set(&mut self, switch: u32, port: u32) {
        self.masks[switch as usize * self.words + port as usize / 64] |= 1 << (port % 64);
    }

    /// Bytes that a field takes.
    pub(crate) fn bytes(switches: u32, max_ports: u32) -> usize {
        switches as usize * (max_ports.div_ceil(64).max(1) as usize * 8 + 1)
    }
}

/// Switches with a living cable to `near`, and their ports to it.
fn living_neighbours<S: Shape>(shape: &S, dead: &Dead, near: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..shape.ports(near)).filter_map(move |port| match shape.peer(near, port) {
        Some(Far::Switch { switch, port: back }) if !dead.port(near, port) => Some((switch, back)),
        _ => None,
    })
}
