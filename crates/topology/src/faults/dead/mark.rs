//! How a fabric's cables and switches are marked as failed, and what follows for their ports.
//!
//! Shapes read [`Dead`] and stand above it; what marks it asks a whole topology and stands above the shapes.

use super::Dead;
use crate::any_shape::each;
use crate::link::LinkId;
use crate::port::SwitchId;
use crate::shape::{Far, Shape};
use crate::topology::Topology;

impl Dead {
    /// Has the shape count what its repairs ask for again and again.
    pub(crate) fn count<S: Shape>(&mut self, shape: &S) {
        self.tally = shape.tally(self);
    }

    /// Whether the cable of a link failed.
    pub(crate) fn cable(&self, topology: &Topology, link: LinkId) -> bool {
        !self.cables.is_empty() && self.cables.contains(&canonical(topology, link))
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
