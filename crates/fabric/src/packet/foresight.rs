//! What the next events will need, brought from memory while the event in hand is dealt with.
//!
//! A packet left the caches a microsecond ago, and a large fabric's ports do not fit. The agenda knows whose the next events
//! are: a port is fetched twelve events ahead, the first packet on its cable nine, and six ahead the port that the packet will
//! join. Where nothing but the packet and the switch decide that, it was worked out as the packet went on the cable, when it
//! was in hand ([`Ways`](super::lead::Ways)), and the packet carries it. At the end of its way the half of its queue pair is fetched, and in a
//! large fabric the NIC port there. Three events ahead comes, in a large fabric, what these point to: packets that wait, bitmaps; and
//! what follows the first packet that waits last.
//!
//! Of events that are not a port's the next is known as the last is taken, and often the one after it, some port events ahead: NIC
//! ports that are to wake or to grant are fetched then, in two steps as well.
//!
//! **Invariant.** What a packet on a cable carries is what the switch would find as it arrives: it comes from tables that no
//! run changes.

use prefetch_index::prefetch_index;

use super::engine::Engine;
use super::packets::{Kind, NONE, Packet};
use super::timeline::Key;
use super::transport::{Dispatcher, Transport};

/// More ports than a core's first caches hold, with what waits there.
const LARGE: usize = 1 << 12;

impl<T: Transport> Engine<T> {
    /// Has what the next events will be about brought from memory.
    #[inline]
    pub(super) fn look_ahead(&mut self) {
        let Some([first, third, sixth, ninth, twelfth]) = self.timeline.ahead([0, 2, 5, 8, 11]) else {
            return;
        };
        let ports = &self.fabric.ports[..];
        prefetch_index(ports, twelfth as usize);
        self.packets.prefetch(ports[ninth as usize].flight.head);
        let port = &ports[sixth as usize];
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
            self.foresee_start_of(sixth);
            self.foresee_queue(third);
            self.foresee_next(first);
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
            self.foresee_nic(packet.to);
            self.foresee_credit(packet);
            if packet.kind == Kind::Ack {
                self.pairs.feedbacks.prefetch(packet.detail);
            }
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

    /// Fetches what will start as the last packet on a port's cable comes.
    #[inline]
    fn foresee_start_of(&self, p: u32) {
        let port = &self.fabric.ports[p as usize];
        if port.flight.head != port.flight.tail {
            return;
        }
        for list in &port.waiting {
            self.packets.prefetch_any(list.head);
        }
        if port.owner == NONE {
            prefetch_index(&self.pairs.nics, p as usize);
        }
    }

    /// Fetches what the first packet on a port's cable leads to: packets that it will be queued behind, or that will start before,
    /// and at the end of its way the bitmaps of its queue pair.
    #[inline]
    fn foresee_queue(&self, p: u32) {
        let port = &self.fabric.ports[p as usize];
        if port.owner == NONE
            && port.flight.head == port.flight.tail
            && let Some(nic) = self.pairs.nics.get(p as usize)
            && let Some(sender) = nic.ready.first().and_then(|flow| self.pairs.senders.get(flow as usize))
        {
            sender.prefetch();
        }
        let Some(packet) = self.packets.get(port.flight.head) else { return };
        if port.far.as_switch().is_none() {
            self.foresee_bitmaps(packet);
        } else if let Some(egress) = self.fabric.ports.get(packet.joined as u32 as usize) {
            self.packets.prefetch_any(egress.flight.tail);
            for list in &egress.waiting {
                self.packets.prefetch_any(list.head);
                self.packets.prefetch_any(list.tail);
            }
        }
    }

    /// Fetches the second of the packets that will start before the first one on a port's cable is queued.
    #[inline]
    fn foresee_next(&self, p: u32) {
        let port = &self.fabric.ports[p as usize];
        if port.far.as_switch().is_some()
            && let Some(packet) = self.packets.get(port.flight.head)
            && let Some(egress) = self.fabric.ports.get(packet.joined as u32 as usize)
            && let Some(head) = self.packets.get(egress.next_up())
        {
            self.packets.prefetch_any(head.next);
        }
    }

    /// Fetches what is known of the packets of a queue pair out of order, and the message of the next ones.
    #[inline]
    fn foresee_bitmaps(&self, packet: &Packet) {
        let (flow, sequence) = (packet.flow as usize, packet.sequence);
        if packet.kind.goes_back() {
            if let Some(sender) = self.pairs.senders.get(flow) {
                self.pairs.outgoing.prefetch(sender.oldest);
                sender.beyond.prefetch(sequence);
                sender.resend.marked.prefetch(sender.resend.from);
            }
        } else if let Some(receiver) = self.pairs.receivers.get(flow) {
            receiver.beyond.prefetch(sequence);
        }
    }

    /// Fetches a NIC port.
    #[inline]
    fn foresee_nic(&self, p: u32) {
        prefetch_index(&self.pairs.nics, p as usize);
        if let Some(port) = self.fabric.ports.get(p as usize) {
            prefetch_index(std::slice::from_ref(port), 0);
            prefetch_index(std::slice::from_ref(&port.counters), 0);
        }
    }

    /// Fetches what is kept of a queue pair's credit where a packet goes.
    #[inline]
    fn foresee_credit(&self, packet: &Packet) {
        let Some(credits) = self.credits.get() else { return };
        if packet.kind.goes_back() {
            credits.prefetch_purse(packet.flow);
        } else {
            credits.prefetch_account(packet.flow);
            credits.prefetch_pacer(packet.to);
        }
    }

    /// Has what the next events will be about that are not a port's brought from memory.
    #[inline]
    pub(super) fn look_ahead_of_others(&mut self) {
        if self.fabric.ports.len() <= LARGE {
            return;
        }
        let Some(next) = self.timeline.other_ahead(0).map(Key::port) else { return };
        if self.timeline.has_foreseen(next) {
            self.foresee_nic_turn(next);
        } else {
            self.foresee_other(next);
        }
        if let Some(after) = self.timeline.other_ahead(1).map(Key::port) {
            self.foresee_other(after);
            self.timeline.foresee(after);
        }
    }

    /// Fetches port `p` and, if it is a NIC's, what is kept of it.
    #[inline]
    fn foresee_other(&self, p: u32) {
        self.foresee_nic(p);
        if let Some(credits) = self.credits.get() {
            credits.prefetch_pacer(p);
        }
    }

    /// Fetches what has its turn at NIC port `p`, which has been fetched: the queue pair that is granted credit and the one that sends.
    #[inline]
    fn foresee_nic_turn(&self, p: u32) {
        let Some(nic) = self.pairs.nics.get(p as usize) else { return };
        let port = &self.fabric.ports[p as usize];
        self.packets.prefetch_any(port.next_up());
        self.packets.prefetch_any(port.flight.tail);
        if let Some(sender) = nic.ready.first().and_then(|flow| self.pairs.senders.get(flow as usize)) {
            sender.prefetch();
        }
        if let Some(credits) = self.credits.get()
            && let Some(flow) = credits.next(p)
        {
            credits.prefetch_account(flow);
            if let Some(receiver) = self.pairs.receivers.get(flow as usize) {
                receiver.prefetch();
            }
        }
    }
}
