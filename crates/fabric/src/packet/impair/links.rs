//! Links that lose packets, and changes of links in mid-run.

use windtunnel_kernel::Time;
use windtunnel_kernel::random::combine;
use windtunnel_topology::{Forwarder, LinkId};

use super::changes::{Step, links_of};
use super::loss::Chain;
use super::{FabricPart, PartState};
use crate::packet::engine::Engine;
use crate::packet::fabric::Changed;
use crate::packet::packets::{NONE, Packet, flag};
use crate::packet::port::{CONTROL, DATA};
use crate::packet::timeline::Class;
use crate::packet::transport::Transport;

/// Sets the draws of losses apart from others.
const LOSS: u64 = 0x6c6f_7373;

impl<T: Transport> Engine<T> {
    /// Sets up what the settings say. `kinds` are those of links whose rate changes, by the change's number and link.
    pub(in crate::packet) fn build_impairments(&mut self, kinds: &Changed) {
        let impairments = std::mem::take(&mut self.settings.impairments);
        for &(link, model) in &impairments.losses {
            let Some(port) = self.fabric.port_of(link) else { continue };
            let chains = self.changes.chains.entry(port).or_default();
            chains.push(Chain::new(model, self.settings.seed, link.0, chains.len()));
        }
        let mut steps = Vec::new();
        for (number, change) in impairments.changes.iter().enumerate() {
            if matches!(change.state, PartState::Rate(_)) {
                let ports = links_of(&self.fabric.topology, change.part)
                    .into_iter()
                    .filter_map(|link| Some((self.fabric.port_of(link)?, kinds[&(number, link)])));
                steps.push((change.at, Step::Kinds(ports.collect())));
                continue;
            }
            steps.push((change.at, Step::Turn(change.part, change.state == PartState::Down)));
            steps.push((change.known.max(change.at), Step::Converge));
        }
        for (place, (at, step)) in (0..).zip(steps) {
            self.timeline.schedule(at.ps(), Class::Change, place);
            self.changes.last = self.changes.last.max(at.ps());
            self.changes.steps.push(Some(step));
        }
        self.settings.impairments = impairments;
    }

    /// From `at` on, which lies ahead, packets go where `forwarder` says, which every switch knows at once, and what it says is out
    /// carries nothing.
    pub(in crate::packet) fn lead_from(&mut self, at: Time, forwarder: &Forwarder) {
        let place = self.changes.steps.len() as u32;
        self.changes.steps.push(Some(Step::Lead(Box::new(forwarder.clone()))));
        self.changes.last = self.changes.last.max(at.ps());
        self.timeline.schedule(at.ps(), Class::Change, place);
    }

    /// Something changes. Every process carries it out: on the ports that it owns, on the cables that lead to it, and on what
    /// its packets are led by.
    #[cold]
    pub(in crate::packet) fn change(&mut self, place: u32, now: u64) {
        let Some(step) = self.changes.steps[place as usize].take() else { return };
        match step {
            Step::Converge => {
                if let Some(forwarder) = &mut self.lead.forwarder {
                    forwarder.converge();
                }
            }
            Step::Kinds(kinds) => {
                for (port, kind) in kinds {
                    if self.owns(port) {
                        self.settle_port(port, now);
                    }
                    self.fabric.ports[port as usize].kind = kind;
                    self.lay_line_anew(port, now);
                }
            }
            Step::Lead(forwarder) => {
                let dead: Vec<bool> = (0..self.fabric.topology.link_count() as u32)
                    .map(|link| forwarder.is_dead(LinkId(link)))
                    .collect();
                self.lead.lead_by(*forwarder);
                for (link, dead) in (0..).map(LinkId).zip(dead) {
                    if let Some(port) = self.fabric.port_of(link) {
                        self.turn(port, dead, now);
                    }
                }
            }
            Step::Turn(part, down) => {
                let Some(forwarder) = &mut self.lead.forwarder else { return };
                match (part, down) {
                    (FabricPart::Cable(link), true) => forwarder.fail_cable(link),
                    (FabricPart::Cable(link), false) => forwarder.recover_cable(link),
                    (FabricPart::Switch(switch), true) => forwarder.fail_switch(switch),
                    (FabricPart::Switch(switch), false) => forwarder.recover_switch(switch),
                }
                for link in links_of(&self.fabric.topology, part) {
                    // Another part may hold it down too.
                    let down = self.lead.forwarder.as_ref().is_some_and(|forwarder| forwarder.is_dead(link));
                    if let Some(port) = self.fabric.port_of(link) {
                        self.turn(port, down, now);
                    }
                }
            }
        }
    }

    /// Starts everything at a port whose turn has come.
    pub(in crate::packet) fn settle_port(&mut self, p: u32, now: u64) {
        if !self.fabric.is_of_switch(p) {
            self.pull(p, now);
        } else if Self::has_lines() {
            self.serve_line(p, now);
        } else if self.queues.on {
            self.touched(p, now);
        } else if self.fabric.ports[p as usize].waits() {
            self.advance(p, now);
        }
    }

    /// Port `p` goes down or comes up. Where it belongs to another process, only what is on its cable matters here.
    fn turn(&mut self, p: u32, down: bool, now: u64) {
        if self.fabric.ports[p as usize].down == down {
            return;
        }
        if !self.owns(p) {
            self.fabric.ports[p as usize].down = down;
            if down {
                self.doom(p);
            }
            return;
        }
        if !down {
            let port = &mut self.fabric.ports[p as usize];
            port.down = false;
            port.free_at = port.free_at.max(now);
            if self.queues.on {
                self.queues_up(p, now);
            }
            self.settle_port(p, now);
            return;
        }
        self.settle_port(p, now);
        self.fabric.ports[p as usize].down = true;
        self.doom(p);
        if Self::has_lines() {
            // A NIC keeps what its dispatcher has given it: nobody would tell the dispatcher that it is gone.
            if self.fabric.is_of_switch(p) {
                self.clear_lines(p, now);
            }
            return;
        }
        if self.queues.on {
            self.queues_down(p, now);
            return;
        }
        loop {
            let port = &mut self.fabric.ports[p as usize];
            let list = if port.waiting[CONTROL].is_empty() {
                &mut port.waiting[DATA]
            } else {
                &mut port.waiting[CONTROL]
            };
            if list.is_empty() {
                break;
            }
            let id = list.pop(&self.packets);
            self.drop_down(p, id);
        }
        self.fabric.ports[p as usize].counters.headers = 0;
        if self.fabric.is_of_switch(p) {
            let port = &self.fabric.ports[p as usize];
            let held = if port.free_at > now { port.in_service } else { 0 };
            self.fabric.hold(p, held);
        }
    }

    /// Counts what is on the cable of port `p` as lost; it is forgotten as it reaches the far end. Of an away port that is what
    /// has left in this window, which waits for its end; what left before is on the cable half at the far end.
    fn doom(&mut self, p: u32) {
        let (mut id, mut lost, mut notes) = (self.fabric.ports[p as usize].flight.head, 0, 0);
        // One that an earlier change has doomed is counted.
        let mut doom = |packet: &mut Packet| {
            let fresh = u32::from(packet.flags & flag::DOOMED == 0);
            lost += fresh;
            notes += fresh * u32::from(packet.kind.is_control());
            packet.flags |= flag::DOOMED;
        };
        while id != NONE {
            let packet = &mut self.packets[id];
            doom(packet);
            id = packet.next;
        }
        if self.fabric.ports[p as usize].away {
            self.leaving(p).for_each(doom);
        }
        self.account.totals.drops += u64::from(lost);
        self.account.totals.control_drops += u64::from(notes);
        self.account.totals.link_down += u64::from(lost);
        self.fabric.ports[p as usize].counters.drops += lost;
        self.fabric.ports[p as usize].counters.control_drops += notes;
    }

    /// A packet meets a link that is down.
    #[cold]
    pub(in crate::packet) fn drop_down(&mut self, p: u32, id: u32) {
        self.account.totals.link_down += 1;
        self.drop_packet(p, id);
    }

    /// Whether the packet `id` that reaches the far end of port `p` now is lost on the way; it is gone then.
    #[cold]
    pub(in crate::packet) fn perishes(&mut self, p: u32, id: u32, kind: u16, now: u64) -> bool {
        if self.packets[id].flags & flag::DOOMED != 0 {
            self.hear_loss(p, id);
            self.discard(id);
            return true;
        }
        if let Some(chains) = self.changes.chains.get_mut(&p) {
            let wire = self.packets[id].wire;
            // Every chain sees every packet.
            let lost = chains.iter_mut().fold(false, |lost, chain| chain.loses(wire) | lost);
            if lost {
                self.account.totals.corrupted += 1;
                self.drop_packet(p, id);
                return true;
            }
        }
        // No two packets reach the far end at one instant.
        let share = self.fabric.kinds[usize::from(kind)].loss;
        let lost = share != 0 && combine(combine(self.settings.seed ^ LOSS, u64::from(p)), now) < share;
        if lost {
            self.account.totals.corrupted += 1;
            self.drop_packet(p, id);
        }
        lost
    }
}
