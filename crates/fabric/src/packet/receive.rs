//! The receiving half of a queue pair.

use windtunnel_kernel::{Bytes, Time};
use windtunnel_topology::Itinerary;

use super::engine::{Dispatched, Engine, PlanesOf, ProbesOf};
use super::handles::Completion;
use super::message::{Incoming, NO_MESSAGE};
use super::packets::{Kind, NONE, Packet, flag};
use super::receiver::Feedback;
use super::settings::Balancer;
use super::telemetry::Telemetry;
use super::transport::{Arrived, Endpoint, Feature, Recovery, Transport};

impl<T: Transport> Engine<T> {
    /// A packet has reached its NIC.
    #[inline]
    pub(super) fn deliver(&mut self, p: u32, id: u32, now: u64) {
        if Dispatched::<T>::ask(|| self.hand_in(p, id, now)) == Some(true) {
            return;
        }
        match self.packets[id].kind {
            Kind::Data => self.receive(p, id, now),
            Kind::Ack => self.acknowledged(id, now),
            Kind::Notify => self.notified(id, now),
            Kind::Trimmed => self.trimmed(id, now),
            Kind::Nack => self.nacked(id, now),
            Kind::Pull => self.pulled(id, now),
            Kind::Sum => self.summed(p, id, now),
            // Goes no further than a switch.
            Kind::Contribution => self.discard(id),
            Kind::Probe | Kind::Scout => self.probed(id, now),
            Kind::Reply => self.replied(id, now),
        }
    }

    fn receive(&mut self, p: u32, id: u32, now: u64) {
        let packet = self.packets[id];
        let flow = packet.flow;
        self.packets.release(id);
        if let Some(telemetry) = self.telemetry.get_mut() {
            telemetry.set_aside(id);
        }
        self.account.totals.data_packets += 1;
        let receiver = &mut self.pairs.receivers[flow as usize];
        receiver.data_gone += 1;
        let sequence = packet.sequence;
        let marked = packet.flags & flag::MARKED != 0;
        let out_of_order = sequence > receiver.expected;
        let mut now_or_never = packet.flags & flag::ASKS != 0;
        let mut asks = false;
        let full = self.settings.mtu.get() as u16;
        let in_order_only = self.endpoint.recovery() == Recovery::GoBackN;
        if out_of_order && !in_order_only && receiver.overflows(sequence) && self.settings.acknowledges() {
            self.answer(&packet, false, now);
        }
        // Restored before it came: its sender knows it as arrived.
        let late = self.settings.coding.is_some() && self.pairs.is_late(flow, sequence);
        let receiver = &mut self.pairs.receivers[flow as usize];
        let fresh = if sequence == receiver.expected {
            receiver.expected += 1;
            while receiver.beyond.has(receiver.expected) {
                receiver.beyond.clear(receiver.expected);
                receiver.held.give(receiver.expected, full);
                receiver.expected += 1;
            }
            true
        } else if !out_of_order {
            // A copy: the sender does not know yet that it has arrived.
            now_or_never |= !late;
            false
        } else {
            self.account.totals.reordered += 1;
            if in_order_only {
                asks = receiver.asked != receiver.expected;
                receiver.asked = receiver.expected;
                false
            } else {
                let new = receiver.beyond.mark(receiver.expected, sequence);
                if new {
                    receiver.held.take(sequence, packet.wire, full);
                    (receiver.low, receiver.high) = (receiver.low.min(sequence), receiver.high.max(sequence));
                }
                new
            }
        };
        // What the hops wrote was not sent.
        let wire = packet.wire - self.telemetry.get().map_or(0, Telemetry::wire);
        if (fresh || !in_order_only) && !late {
            receiver.received += u64::from(wire);
            receiver.copied = receiver.copied.wrapping_add(if fresh { 0 } else { u32::from(wire) });
        }
        if let Some(coding) = self.settings.coding.filter(|_| fresh) {
            now_or_never |= self.pairs.restore(coding, flow, sequence, &self.settings);
        }
        let receiver = &mut self.pairs.receivers[flow as usize];
        receiver.pending += 1;
        receiver.marked += u16::from(marked);
        let arrived = Arrived { now: Time::from_ps(now), sequence, wire, marked, out_of_order };
        let answer = self.endpoint.on_data(&mut receiver.peer, &arrived);
        let reply = ProbesOf::<T>::ask(|| self.endpoint.reply(&mut receiver.peer, &arrived)).flatten();
        if fresh
            && self.pairs.receivers[flow as usize].expected >= self.pairs.receivers[flow as usize].whole_at
        {
            now_or_never = true;
            self.report(p, flow, now);
        }
        self.credit_for(&packet, false, now);
        let every = self.settings.ack_every;
        let pending = u32::from(self.pairs.receivers[flow as usize].pending);
        if every > 0 && (pending >= every || now_or_never || asks || answer.acknowledge) {
            self.answer(&packet, asks, now);
        }
        if answer.notify {
            self.send_back(&packet, Kind::Notify, NONE, 0, now);
        }
        if let Some(reply) = reply {
            self.send_reply(&packet, reply, now);
        }
    }

    /// The header of a packet has arrived whose payload a switch has cut.
    fn trimmed(&mut self, id: u32, now: u64) {
        let packet = self.packets[id];
        self.packets.release(id);
        self.account.totals.notices += 1;
        let receiver = &mut self.pairs.receivers[packet.flow as usize];
        receiver.data_gone += 1;
        // Where packets must come in order it is a loss like others.
        if matches!(self.endpoint.recovery(), Recovery::Selective { .. } | Recovery::Rack) {
            let known = packet.sequence < receiver.expected || receiver.beyond.has(packet.sequence);
            self.credit_for(&packet, !known, now);
            if !known {
                self.send_back(&packet, Kind::Nack, NONE, 0, now);
            }
            // What has arrived before is not kept waiting for the copy of a packet that asks for an answer.
            let asks =
                packet.flags & flag::ASKS != 0 && self.pairs.receivers[packet.flow as usize].pending > 0;
            if known || asks {
                self.answer(&packet, false, now);
            }
        }
    }

    /// The credit that the arrival of a data packet asks for, whole or `trimmed` and not known before.
    #[inline]
    fn credit_for(&mut self, packet: &Packet, trimmed: bool, now: u64) {
        if self.credits.get().is_none() {
            return;
        }
        let receiver = &mut self.pairs.receivers[packet.flow as usize];
        receiver.seen = receiver.seen.max(packet.sequence + 1);
        if packet.flags & flag::FINAL != 0 {
            receiver.ended = receiver.ended.max(packet.sequence + 1);
        }
        let over = receiver.expected == receiver.ended && receiver.seen == receiver.ended;
        let port = receiver.port;
        self.want(packet, port, trimmed, now);
        if let Some(credits) = self.credits.get_mut().filter(|_| over) {
            credits.satisfied(packet.flow);
        }
    }

    /// Reports the messages of a queue pair that are whole, in order; port `p` brought the last packet missing.
    pub(super) fn report(&mut self, p: u32, flow: u32, now: u64) {
        loop {
            let receiver = &mut self.pairs.receivers[flow as usize];
            if receiver.expected < receiver.whole_at {
                return;
            }
            let id = receiver.delivering;
            let Incoming { token, bytes, start, packets, next, .. } = self.pairs.incoming[id];
            let first = receiver.reported;
            receiver.reported += packets;
            receiver.delivering = next;
            receiver.whole_at = match next {
                NO_MESSAGE => u32::MAX,
                next => receiver.reported + self.pairs.incoming[next].needed,
            };
            self.pairs.incoming.release(id);
            if self.settings.coding.is_some() {
                self.pairs.reported(flow, first, packets, bytes);
            }
            self.account
                .complete(p, Completion { token, at: Time::from_ps(now), start, bytes: Bytes::new(bytes) });
            if let Some(crossing) = &self.crossing {
                crossing.calls(now);
            }
        }
    }

    /// Sends an acknowledgement for what has arrived since the last, caused by `cause`.
    fn answer(&mut self, cause: &Packet, asks: bool, now: u64) {
        let receiver = &mut self.pairs.receivers[cause.flow as usize];
        let (base, bits) = receiver.told();
        let feedback = Feedback {
            received: receiver.received,
            copied: receiver.copied,
            bits,
            base,
            packets: receiver.pending,
            marked: receiver.marked,
            echo: cause.flags & flag::MARKED != 0,
            asks,
        };
        (receiver.pending, receiver.marked) = (0, 0);
        let detail = self.pairs.feedbacks.insert(feedback);
        let echo = self.telemetry.get().map_or(0, Telemetry::wire);
        self.send_back(cause, Kind::Ack, detail, echo, now);
    }

    /// Sends a control packet back to where `cause` came from, `echo` bytes larger than others.
    fn send_back(&mut self, cause: &Packet, kind: Kind, detail: u32, echo: u16, now: u64) {
        let (sequence, flags) = match kind {
            Kind::Nack => (cause.sequence, cause.flags & (flag::MARKED | flag::LAST_HOP)),
            _ => (self.pairs.receivers[cause.flow as usize].expected, 0),
        };
        let Packet { flow, stamp, path, to, .. } = *cause;
        let wire = echo;
        self.send_to_sender(
            Packet { stamp, flow, sequence, detail, to, wire, path, kind, flags, ..Packet::default() },
            now,
        );
    }

    /// Sends what was granted in all.
    pub(super) fn send_pull(&mut self, flow: u32, granted: u64, now: u64) {
        let path = match self.settings.balancer {
            Balancer::Spray { paths } | Balancer::Source { paths } => {
                (granted / self.settings.mtu.get() % u64::from(paths)) as u16
            }
            _ => 0,
        };
        let kind = Kind::Pull;
        let to = self.pairs.receivers[flow as usize].port;
        self.send_to_sender(
            Packet { stamp: granted, flow, detail: NONE, to, path, kind, ..Packet::default() },
            now,
        );
    }

    /// Sends a control packet of the receiving half `flow`: what is given and its address, in `wire` bytes more than others. `to` is
    /// the port by which the packet came that caused it: where queue pairs take all planes it goes back by that one.
    pub(super) fn send_to_sender(&mut self, packet: Packet, now: u64) {
        let slot = packet.flow;
        let receiver = &self.pairs.receivers[slot as usize];
        let hash = match self.settings.balancer {
            _ if receiver.flags & flag::ROUTED != 0 => receiver.hash,
            balancer if balancer.numbers() => balancer.path_hash(receiver.hash, packet.path),
            _ => receiver.hash,
        };
        let ways = [receiver.port, receiver.to];
        let back = PlanesOf::<T>::ask(|| {
            let planes = self.fabric.topology.planes();
            let plane = packet.to % planes;
            let spreads = receiver.flags & flag::ROUTED == 0;
            spreads.then(|| ways.map(|port| port - port % planes + plane))
        });
        let [port, to] = back.flatten().unwrap_or(ways);
        let packet = Packet {
            hash,
            flow: receiver.peer_slot,
            joined: now,
            next: NONE,
            to,
            itinerary: Itinerary::DIRECT,
            wire: self.settings.control.get() as u16 + packet.wire,
            flags: packet.flags | receiver.flags,
            ..packet
        };
        self.pairs.receivers[slot as usize].control_sent += 1;
        let id = self.packets.insert(packet);
        if let Some(telemetry) = self.telemetry.get_mut().filter(|_| packet.kind == Kind::Ack) {
            telemetry.echo(id);
        }
        // It may leave at once, for another process.
        self.send_control(port, id, now);
    }
}
