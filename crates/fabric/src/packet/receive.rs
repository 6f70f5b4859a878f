//! The receiving half of a queue pair.

use windtunnel_kernel::Time;
use windtunnel_kernel::random::combine;
use windtunnel_topology::Itinerary;

use super::engine::Engine;
use super::message::{Arrivals, NO_MESSAGE};
use super::packets::{Kind, NONE, Packet, flag};
use super::settings::Balancer;
use super::transport::{Arrived, Recovery, Transport};

/// The receiving half.
#[derive(Clone, Debug)]
pub(super) struct Receiver<P> {
    peer: P,
    /// What is hashed on the way back, or the place of that path.
    hash: u64,
    /// Bytes that have arrived (with go-back-N: in order).
    received: u64,
    /// Next packet without a gap.
    expected: u32,
    /// Its NIC port, and the sender's.
    port: u32,
    to: u32,
    /// First message not reported.
    pub delivering: u32,
    /// Data packets not yet answered, and those marked.
    pending: u16,
    marked: u16,
    /// The gap already asked for, with go-back-N.
    asked: u32,
    flags: u8,
    /// Switches on the ways there and back.
    pub lengths: [u32; 2],
    beyond: Arrivals,
}

impl<P: Default> Receiver<P> {
    pub(super) fn new(port: u32, to: u32, hash: u64, flags: u8, lengths: [u32; 2]) -> Self {
        Self {
            peer: P::default(),
            hash,
            received: 0,
            expected: 0,
            port,
            to,
            delivering: NO_MESSAGE,
            pending: 0,
            marked: 0,
            asked: NONE,
            flags,
            lengths,
            beyond: Arrivals::default(),
        }
    }

    /// Gives up what it holds; the place of its path, and the lengths of both.
    pub(super) fn close(&mut self) -> (u64, [u32; 2]) {
        self.beyond = Arrivals::default();
        (self.hash, self.lengths)
    }
}

/// What an acknowledgement carries beside the next packet expected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Feedback {
    /// Bytes that have arrived at the receiver in all.
    pub received: u64,
    /// Packets arrived out of order, from `base` on.
    pub bits: u64,
    pub base: u32,
    /// Data packets that it answers, and those marked.
    pub packets: u16,
    pub marked: u16,
    /// Whether the packet that caused it was marked.
    pub echo: bool,
    /// Whether it asks for the packet expected.
    pub asks: bool,
}

/// Feedback on its way; places are used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Feedbacks {
    slots: Vec<Feedback>,
    free: Vec<u32>,
}

impl Feedbacks {
    #[inline]
    fn insert(&mut self, feedback: Feedback) -> u32 {
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = feedback;
            return id;
        }
        self.slots.push(feedback);
        self.slots.len() as u32 - 1
    }

    #[inline]
    pub(super) fn take(&mut self, id: u32) -> Feedback {
        self.free.push(id);
        self.slots[id as usize]
    }

    pub(super) fn release(&mut self, id: u32) {
        self.free.push(id);
    }
}

impl<T: Transport> Engine<T> {
    /// A packet has reached its NIC.
    #[inline]
    pub(super) fn deliver(&mut self, id: u32, now: u64) {
        match self.packets[id].kind {
            Kind::Data => self.receive(id, now),
            Kind::Ack => self.acknowledged(id, now),
            Kind::Notify => self.notified(id, now),
        }
    }

    fn receive(&mut self, id: u32, now: u64) {
        let packet = self.packets[id];
        let flow = packet.flow;
        self.totals.data_packets += 1;
        let receiver = &mut self.receivers[flow as usize];
        let sequence = packet.sequence;
        let marked = packet.flags & flag::MARKED != 0;
        let out_of_order = sequence > receiver.expected;
        let mut now_or_never = packet.flags & flag::ASKS != 0;
        let mut asks = false;
        let in_order_only = self.transport.recovery() == Recovery::GoBackN;
        let fresh = if sequence == receiver.expected {
            receiver.expected += 1;
            while receiver.beyond.has(receiver.expected) {
                receiver.beyond.clear(receiver.expected);
                receiver.expected += 1;
            }
            true
        } else if !out_of_order {
            // A copy: the sender does not know yet that it has arrived.
            now_or_never = true;
            false
        } else {
            self.totals.reordered += 1;
            if in_order_only {
                asks = receiver.asked != receiver.expected;
                receiver.asked = receiver.expected;
                false
            } else {
                receiver.beyond.mark(receiver.expected, sequence)
            }
        };
        if fresh || !in_order_only {
            receiver.received += u64::from(packet.wire);
        }
        receiver.pending += 1;
        receiver.marked += u16::from(marked);
        let arrived = Arrived { now: Time(now), sequence, wire: packet.wire, marked, out_of_order };
        let answer = self.transport.on_data(&mut receiver.peer, &arrived);
        if fresh {
            let message = &mut self.messages[packet.detail];
            message.missing -= 1;
            if message.missing == 0 {
                now_or_never = true;
                self.report(flow, now);
            }
        }
        let every = self.settings.ack_every;
        let pending = u32::from(self.receivers[flow as usize].pending);
        if every > 0 && (pending >= every || now_or_never || asks || answer.acknowledge) {
            self.answer(&packet, asks, now);
        }
        if answer.notify {
            self.send_back(&packet, Kind::Notify, NONE, now);
        }
        self.release(id, flow);
    }

    /// Reports the messages of a queue pair that are whole, in order.
    fn report(&mut self, flow: u32, now: u64) {
        loop {
            let receiver = &mut self.receivers[flow as usize];
            let id = receiver.delivering;
            if id == NO_MESSAGE || self.messages[id].missing > 0 {
                return;
            }
            receiver.delivering = self.messages[id].next;
            self.complete(id, now);
        }
    }

    /// Sends an acknowledgement for what has arrived since the last, caused by `cause`.
    fn answer(&mut self, cause: &Packet, asks: bool, now: u64) {
        let receiver = &mut self.receivers[cause.flow as usize];
        let base = receiver.expected.max(cause.sequence) & !63;
        let feedback = Feedback {
            received: receiver.received,
            bits: receiver.beyond.word(base),
            base,
            packets: receiver.pending,
            marked: receiver.marked,
            echo: cause.flags & flag::MARKED != 0,
            asks,
        };
        (receiver.pending, receiver.marked) = (0, 0);
        let detail = self.feedbacks.insert(feedback);
        self.send_back(cause, Kind::Ack, detail, now);
    }

    /// Sends a control packet back to where `cause` came from.
    fn send_back(&mut self, cause: &Packet, kind: Kind, detail: u32, now: u64) {
        let receiver = &self.receivers[cause.flow as usize];
        let hash = match self.settings.balancer {
            Balancer::Spray { .. } => combine(receiver.hash, u64::from(cause.path)),
            _ => receiver.hash,
        };
        let packet = Packet {
            hash,
            next_time: 0,
            joined: now,
            stamp: cause.stamp,
            next: NONE,
            flow: cause.flow,
            sequence: receiver.expected,
            detail,
            to: receiver.to,
            itinerary: Itinerary::DIRECT,
            wire: self.settings.control.0 as u16,
            path: cause.path,
            kind,
            flags: receiver.flags,
        };
        let port = receiver.port;
        self.senders[cause.flow as usize].alive += 1;
        let id = self.packets.insert(packet);
        self.send_control(port, id, now);
    }
}
