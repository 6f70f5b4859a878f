//! What the next events will need, brought from memory while the event in hand is dealt with.
//!
//! A packet left the caches a microsecond ago, and a large fabric's ports do not fit. The agenda knows whose the next events
//! are: a port is fetched four events ahead, the first packet on its cable three, and one ahead the port that the packet will
//! join. Where nothing but the packet and the switch decide that, it was worked out as the packet went on the cable, when it
//! was in hand ([`Ways`](super::lead::Ways)), and the packet carries it. At the end of its way the half of its queue pair is fetched, and in a
//! large fabric the NIC port there.
//!
//! **Invariant.** What a packet on a cable carries is what the switch would find as it arrives: it comes from tables that no
//! run changes.

use prefetch_index::prefetch_index;

use super::engine::Engine;
use super::packets::Packet;
use super::transport::{Dispatcher, Transport};

/// More ports than a core's first caches hold, with what waits there.
const LARGE: usize = 1 << 12;

impl<T: Transport> Engine<T> {
    /// Has what the next events will be about brought from memory.
    #[inline]
    pub(super) fn look_ahead(&mut self) {
        let Some([first, second, _, fourth, fifth]) = self.timeline.ahead() else { return };
        let ports = &self.fabric.ports[..];
        prefetch_index(ports, fifth as usize);
        self.packets.prefetch(ports[fourth as usize].flight.head);
        let port = &ports[second as usize];
        if let Some(packet) = self.packets.get(port.flight.head) {
            if port.far.as_switch().is_none() {
                self.foresee_end(packet);
            } else if let Some(egress) = ports.get(packet.joined as u32 as usize) {
                prefetch_index(std::slice::from_ref(egress), 0);
                prefetch_index(std::slice::from_ref(&egress.counters), 0);
                if let Some(dispatch) = self.dispatch.get() {
                    dispatch.lines.prefetch(packet.joined as u32);
                }
            }
        }
        self.foresee_start(first);
        if ports.len() > LARGE {
            self.foresee_queue(first);
        }
    }

    /// Fetches what the end of its way will be about: the half of the queue pair, and the NIC port by which that answers or
    /// sends on.
    #[inline]
    fn foresee_end(&self, packet: &Packet) {
        if packet.kind.goes_back() {
            if let Some(sender) = self.pairs.senders.get(packet.flow as usize) {
                if Self::is_dispatched() {
                    sender.prefetch_front();
                } else {
                    sender.prefetch();
                }
            }
        } else if let Some(receiver) = self.pairs.receivers.get(packet.flow as usize) {
            receiver.prefetch();
        }
        self.foresee_desk(packet);
        if self.fabric.ports.len() > LARGE {
            prefetch_index(&self.pairs.nics, packet.to as usize);
            prefetch_index(&self.fabric.ports, packet.to as usize);
        }
    }

    /// Has the dispatcher of the NIC port at the end of its way fetch what it keeps.
    #[inline]
    fn foresee_desk(&self, packet: &Packet) {
        let Some(dispatch) = self.dispatch.get() else { return };
        let back = packet.kind.goes_back();
        let halves = if back { &dispatch.senders } else { &dispatch.receivers };
        if let Some(half) = halves.get(packet.flow as usize)
            && let Some(desk) = dispatch.desks.get(packet.to as usize)
        {
            self.dispatcher.foresee(&desk.state, half.number, back, &packet.load());
        }
    }

    /// Fetches what is asked of queue pairs at NIC port `p` that its dispatcher means to send for before long.
    #[inline]
    pub(super) fn foresee_sends(&mut self, p: u32) {
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let desk = &dispatch.desks[p as usize];
        for (flow, data) in dispatch.outbox.soon.drain(..) {
            if let Some(sender) =
                desk.sends.get(flow as usize).and_then(|&slot| self.pairs.senders.get(slot as usize))
            {
                sender.prefetch_front();
                if data {
                    self.pairs.outgoing.prefetch(sender.oldest);
                }
            }
        }
    }

    /// Fetches the packet that starts as the first one on a port's cable comes, where ports have lines.
    #[inline]
    fn foresee_start(&self, port: u32) {
        if let Some(dispatch) = self.dispatch.get()
            && let Some(packet) = self.packets.get(self.fabric.ports[port as usize].flight.head)
            && let Some(head) = dispatch.lines.head(packet.joined as u32)
        {
            self.packets.prefetch(head);
        }
    }

    /// Fetches the packets that the first one on a port's cable will be queued behind, or that will start before.
    #[inline]
    fn foresee_queue(&self, port: u32) {
        let port = &self.fabric.ports[port as usize];
        if port.far.as_switch().is_some()
            && let Some(packet) = self.packets.get(port.flight.head)
            && let Some(egress) = self.fabric.ports.get(packet.joined as u32 as usize)
        {
            self.packets.prefetch(egress.flight.tail);
            for list in &egress.waiting {
                self.packets.prefetch(list.head);
                self.packets.prefetch(list.tail);
            }
        }
    }
}
