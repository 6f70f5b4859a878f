//! Which ports are dead: the sparse overlay that all repairs read.

use std::collections::BTreeSet;

use super::row::ones;
use crate::any_shape::each;
use crate::link::LinkId;
use crate::port::SwitchId;
use crate::shape::{Far, Shape};
use crate::topology::Topology;

/// Failed cables and switches, and what follows for ports.
///
/// A port is dead if its cable or the switch at either end failed; both ends agree. Memory: four bytes a switch once
/// something failed, and a few words for every switch with a dead port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dead {
    /// The lower of a cable's two links.
    cables: BTreeSet<LinkId>,
    switches: BTreeSet<u32>,
    /// Of each switch where its row begins in `words`, 0 without dead ports.
    slots: Vec<u32>,
    /// Rows of equal length one after another, a bit for every dead port. The first one is empty for ever.
    words: Vec<u64>,
    /// Words of a row.
    stride: u32,
    /// Switches with a row, in the order of their rows.
    owners: Vec<u32>,
    /// See [`Shape::tally`].
    tally: Vec<u32>,
}

/// Dead ports of consecutive switches, counted from 0: of a part of a fabric that has a rule of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadPart<'a> {
    slots: &'a [u32],
    words: &'a [u64],
    /// The part's share of [`Shape::tally`]; empty before it was made.
    pub(crate) tally: &'a [u32],
}

impl DeadPart<'_> {
    /// Dead ports `first..first + count` of a switch, 1 to 64 of them: a bit each. Without a branch that depends on
    /// whether there are any.
    #[inline]
    pub(crate) fn bits(&self, switch: u32, first: u32, count: u32) -> u64 {
        let row = self.slots.get(switch as usize).copied().unwrap_or(0);
        let (word, shift) = ((row + first / 64) as usize, first % 64);
        let at = |word: usize| self.words.get(word).copied().unwrap_or(0);
        let mut bits = at(word) >> shift;
        if shift + count > 64 {
            bits |= at(word + 1) << (64 - shift);
        }
        bits & ones(count)
    }
}

impl Dead {
    /// The switches from `first` on, with the tally from `tally` on.
    #[inline]
    pub(crate) fn part(&self, first: u32, tally: usize) -> DeadPart<'_> {
        DeadPart {
            slots: self.slots.get(first as usize..).unwrap_or(&[]),
            words: &self.words,
            tally: self.tally.get(tally..).unwrap_or(&[]),
        }
    }

    /// Has the shape count what its repairs ask for again and again.
    pub(crate) fn count<S: Shape>(&mut self, shape: &S) {
        self.tally = shape.tally(self);
    }

    /// Nothing failed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.cables.is_empty() && self.switches.is_empty()
    }

    /// Dead ports of a switch, a bit each from port 0 of the first word on; missing words are zero.
    #[inline]
    pub(crate) fn row(&self, switch: u32) -> &[u64] {
        match self.slots.get(switch as usize) {
            None | Some(0) => &[],
            Some(&row) => &self.words[row as usize..][..self.stride as usize],
        }
    }

    /// Switches with dead ports, and their [rows](Self::row); those that have recovered may still be among them. In the
    /// order in which they first failed.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u32, &[u64])> {
        self.owners.iter().map(|&switch| (switch, self.row(switch)))
    }

    /// Whether the cable of a port is dead.
    #[inline]
    pub(crate) fn port(&self, switch: u32, port: u32) -> bool {
        self.row(switch).get(port as usize / 64).is_some_and(|word| word >> (port % 64) & 1 == 1)
    }

    /// Whether a switch itself failed.
    #[inline]
    pub(crate) fn switch(&self, switch: u32) -> bool {
        !self.switches.is_empty() && self.switches.contains(&switch)
    }

    /// Whether the cable of a link failed.
    pub(crate) fn cable(&self, topology: &Topology, link: LinkId) -> bool {
        !self.cables.is_empty() && self.cables.contains(&canonical(topology, link))
    }

    /// Failed cables, by the lower of their two links, in order.
    pub(crate) fn cables(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.cables.iter().copied()
    }

    /// Failed switches in order.
    pub(crate) fn switches(&self) -> impl Iterator<Item = SwitchId> + '_ {
        self.switches.iter().map(|&switch| SwitchId(switch))
    }

    /// Marks a cable as failed, or not; returns whether that is new.
    pub(crate) fn set_cable(&mut self, topology: &Topology, link: LinkId, failed: bool) -> bool {
        let cable = canonical(topology, link);
        let new = if failed { self.cables.insert(cable) } else { self.cables.remove(&cable) };
        let source = |link| topology.link_source(link);
        if new && let Some((switch, port)) = source(link).or_else(|| source(topology.reverse(link))) {
            self.refresh(topology, switch.0, port);
        }
        new
    }

    /// Marks a switch as failed, or not; returns whether that is new.
    pub(crate) fn set_switch(&mut self, topology: &Topology, switch: SwitchId, failed: bool) -> bool {
        let new = if failed { self.switches.insert(switch.0) } else { self.switches.remove(&switch.0) };
        if new {
            (0..topology.ports(switch)).for_each(|port| self.refresh(topology, switch.0, port));
        }
        new
    }

    /// Works out anew whether a port and its peer are dead.
    fn refresh(&mut self, topology: &Topology, switch: u32, port: u32) {
        let far = each!(&topology.shape, shape => shape.peer(switch, port));
        let link = topology.out_link(SwitchId(switch), port);
        let failed = link.is_some_and(|link| self.cable(topology, link)) || self.switch(switch);
        match far {
            None => {}
            Some(Far::Nic { .. }) => self.set_port(topology, switch, port, failed),
            Some(Far::Switch { switch: peer, port: peer_port }) => {
                let dead = failed || self.switch(peer);
                self.set_port(topology, switch, port, dead);
                self.set_port(topology, peer, peer_port, dead);
            }
        }
    }

    fn set_port(&mut self, topology: &Topology, switch: u32, port: u32, dead: bool) {
        if self.slots.is_empty() {
            let switches = topology.switches();
            let ports = (0..switches).map(|switch| topology.ports(SwitchId(switch))).max().unwrap_or(0);
            self.slots = vec![0; switches as usize];
            self.stride = ports.div_ceil(64).max(1);
            self.words = vec![0; self.stride as usize];
        }
        let row = &mut self.slots[switch as usize];
        if *row == 0 {
            if !dead {
                return;
            }
            *row = self.words.len() as u32;
            self.words.extend((0..self.stride).map(|_| 0));
            self.owners.push(switch);
        }
        let word = &mut self.words[(*row + port / 64) as usize];
        let bit = 1 << (port % 64);
        *word = if dead { *word | bit } else { *word & !bit };
    }
}

/// The lower of the two links of a cable.
fn canonical(topology: &Topology, link: LinkId) -> LinkId {
    link.min(topology.reverse(link))
}
