//! Which ports are dead: the sparse overlay that all repairs read.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::link::LinkId;
use crate::port::SwitchId;
use crate::shape::{Far, Shape, each};
use crate::topology::Topology;

/// Failed cables and switches, and what follows for ports.
///
/// A port between switches is dead if its cable or the switch at either end failed; both ends agree. Memory: four bytes
/// a switch once something failed, and a few words for every switch with a dead port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dead {
    /// The lower of a cable's two links.
    cables: BTreeSet<LinkId>,
    switches: BTreeSet<u32>,
    /// Of each switch one more than its place in `rows`, 0 without dead ports.
    slots: Vec<u32>,
    /// A bit for every dead port.
    rows: Vec<SmallVec<[u64; 2]>>,
    /// The switch of each row.
    owners: Vec<u32>,
}

impl Dead {
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
            Some(&slot) => &self.rows[slot as usize - 1],
        }
    }

    /// Switches with dead ports, and their [rows](Self::row); those that have recovered may still be among them. In the
    /// order in which they first failed.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u32, &[u64])> {
        self.owners.iter().copied().zip(self.rows.iter().map(SmallVec::as_slice))
    }

    /// Whether the cable of a port between switches is dead.
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
        if new && let Some((switch, port)) = topology.link_source(link) {
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
        let Some(Far::Switch { switch: peer, port: peer_port }) = far else { return };
        let link = topology.out_link(SwitchId(switch), port);
        let failed = link.is_some_and(|link| self.cable(topology, link));
        let dead = failed || self.switch(switch) || self.switch(peer);
        for (switch, port) in [(switch, port), (peer, peer_port)] {
            self.set_port(topology, switch, port, dead);
        }
    }

    fn set_port(&mut self, topology: &Topology, switch: u32, port: u32, dead: bool) {
        if self.slots.is_empty() {
            self.slots = vec![0; topology.switches() as usize];
        }
        let slot = &mut self.slots[switch as usize];
        if *slot == 0 {
            if !dead {
                return;
            }
            let words = topology.ports(SwitchId(switch)).div_ceil(64) as usize;
            self.rows.push(SmallVec::from_elem(0, words));
            self.owners.push(switch);
            *slot = self.rows.len() as u32;
        }
        let word = &mut self.rows[*slot as usize - 1][port as usize / 64];
        let bit = 1 << (port % 64);
        *word = if dead { *word | bit } else { *word & !bit };
    }
}

/// The lower of the two links of a cable.
fn canonical(topology: &Topology, link: LinkId) -> LinkId {
    link.min(topology.reverse(link))
}
