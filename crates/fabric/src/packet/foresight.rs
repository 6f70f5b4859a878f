//! What the next events will need, brought from memory while the event in hand is dealt with.
//!
//! A packet left the caches a microsecond ago, and a large fabric's ports do not fit. The agenda knows whose the next events
//! are: a port is fetched three events ahead, the first packet on its cable two, and one ahead that packet's next hop is
//! worked out, where nothing but the packet and the switch decide it, and the port fetched that it will join. The hop is kept
//! until the packet arrives, so it is worked out once. At the end of its way the half of its queue pair is fetched, and in a
//! large fabric the NIC port there.
//!
//! **Invariant.** A hop is kept for a packet at the head of a cable, and taken when it lands, whatever then becomes of it: a
//! place in the slab that is used again finds none.

use prefetch_index::prefetch_index;
use windtunnel_topology::Forwarder;

use super::engine::Engine;
use super::packets::{NONE, Packet, flag};
use super::settings::Balancer;
use super::transport::Transport;

/// More ports than a core's first caches hold, with what waits there.
const LARGE: usize = 1 << 12;

/// Hops kept: more than there are events looked ahead, so that they seldom meet.
const KEPT: usize = 16;

/// Packets and the ports by which they will leave the switch that they reach next.
#[derive(Clone, Debug)]
pub(super) struct Foresight {
    hops: [(u32, u32); KEPT],
}

impl Foresight {
    pub(super) const fn new() -> Self {
        Self { hops: [(NONE, NONE); KEPT] }
    }

    #[inline]
    fn put(&mut self, packet: u32, egress: u32) {
        self.hops[packet as usize % KEPT] = (packet, egress);
    }

    #[inline]
    fn see(&self, packet: u32) -> Option<u32> {
        let (known, egress) = self.hops[packet as usize % KEPT];
        (known == packet).then_some(egress)
    }

    /// The port for a packet that has landed, if it was foreseen.
    #[inline]
    pub(super) fn take(&mut self, packet: u32) -> Option<u32> {
        let hop = &mut self.hops[packet as usize % KEPT];
        if hop.0 != packet {
            return None;
        }
        hop.0 = NONE;
        Some(hop.1)
    }
}

impl<T: Transport> Engine<T> {
    /// Packets go where `forwarder` says.
    pub(super) fn lead_by(&mut self, forwarder: Forwarder) {
        self.forwarder = Some(forwarder);
        self.simple = false;
    }

    /// Whether a packet and the switch alone decide its next hop, as long as nothing leads packets around what has failed.
    pub(super) fn is_simple(&self) -> bool {
        !self.rules.is_empty()
            && self.forwarder.is_none()
            && !matches!(self.settings.balancer, Balancer::Flowlet { .. } | Balancer::Adaptive)
    }

    /// The port by which a packet leaves `switch`, where that is simple.
    #[expect(clippy::inline_always, reason = "once a hop, and a call costs as much")]
    #[inline(always)]
    pub(super) fn simple_hop(&self, switch: u32, id: u32) -> u32 {
        let packet = &self.packets[id];
        let rule = &self.rules[switch as usize];
        let hop = rule.next_hop(&self.targets[packet.to as usize], packet.hash);
        self.switches[switch as usize].first + hop
    }

    /// Has what the next events will be about brought from memory.
    #[inline]
    pub(super) fn look_ahead(&mut self) {
        let Some([first, second, third, fourth]) = self.agenda.ahead() else { return };
        prefetch_index(&self.ports, fourth as usize);
        self.packets.prefetch(self.ports[third as usize].flight.head);
        self.foresee(second);
        if self.ports.len() > LARGE {
            self.foresee_queue(first);
        }
    }

    /// Works out where the first packet on a port's cable will go, and fetches that.
    #[inline]
    fn foresee(&mut self, port: u32) {
        let port = &self.ports[port as usize];
        let id = port.flight.head;
        let Some(packet) = self.packets.get(id) else { return };
        let egress = match port.far.as_switch() {
            _ if packet.flags & flag::REDUCED != 0 => return,
            None => return self.foresee_end(packet),
            Some(_) if packet.flags & flag::ROUTED != 0 => self.paths[packet.hash as u32],
            Some(switch) if self.simple => {
                let egress = self.simple_hop(switch, id);
                self.foresight.put(id, egress);
                egress
            }
            Some(_) => return,
        };
        prefetch_index(&self.ports, egress as usize);
        if let Some(port) = self.ports.get(egress as usize) {
            prefetch_index(std::slice::from_ref(&port.counters), 0);
        }
    }

    /// Fetches what the end of its way will be about: the half of the queue pair, and the NIC port by which that answers or
    /// sends on.
    #[inline]
    fn foresee_end(&self, packet: &Packet) {
        if packet.kind.is_control() {
            if let Some(sender) = self.senders.get(packet.flow as usize) {
                sender.prefetch();
            }
        } else if let Some(receiver) = self.receivers.get(packet.flow as usize) {
            receiver.prefetch();
        }
        if self.ports.len() > LARGE {
            prefetch_index(&self.nics, packet.to as usize);
            prefetch_index(&self.ports, packet.to as usize);
        }
    }

    /// Fetches the packets that the first one on a port's cable will be queued behind, or that will start before.
    #[inline]
    fn foresee_queue(&self, port: u32) {
        let port = &self.ports[port as usize];
        let id = port.flight.head;
        let Some(packet) = self.packets.get(id) else { return };
        let egress = if packet.flags & (flag::ROUTED | flag::REDUCED) == flag::ROUTED {
            port.far.as_switch().map(|_| self.paths[packet.hash as u32])
        } else {
            self.foresight.see(id)
        };
        if let Some(egress) = egress {
            let egress = &self.ports[egress as usize];
            self.packets.prefetch(egress.flight.tail);
            for list in &egress.waiting {
                self.packets.prefetch(list.head);
                self.packets.prefetch(list.tail);
            }
        }
    }
}
