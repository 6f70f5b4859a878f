//! Packets of endpoints' own on their way: see [`transport::Probe`](super::transport::Probe).

use windtunnel_kernel::{Span, Time};
use windtunnel_topology::Itinerary;

use super::engine::{Engine, ProbesOf};
use super::packets::{Kind, NONE, Packet, flag};
use super::port::DATA;
use super::transport::{Endpoint, Feature, Lane, News, Probe, Probed, Replied, Reply, Transport};

impl<T: Transport> Engine<T> {
    /// A message has joined sending half `flow`, whose ports have been pulled to `now`.
    #[inline]
    pub(super) fn tell_of_message(&mut self, flow: u32, bytes: u64, now: u64) {
        self.endpoint.on_message(&mut self.pairs.senders[flow as usize].cc, Time::from_ps(now), bytes);
        self.rearm(flow, now);
    }

    /// Sends what a sending half wants to send of its own, as it is asked after every call.
    #[inline]
    pub(super) fn send_probes(&mut self, flow: u32, now: u64) {
        while let Some(probe) = ProbesOf::<T>::ask(|| self.next_probe(flow, now)).flatten() {
            self.send_probe(flow, &probe, now);
        }
    }

    fn next_probe(&mut self, flow: u32, now: u64) -> Option<Probe> {
        let sender = &mut self.pairs.senders[flow as usize];
        if sender.retired {
            return None;
        }
        self.endpoint.probe(&mut sender.cc, Time::from_ps(now))
    }

    fn send_probe(&mut self, flow: u32, probe: &Probe, now: u64) {
        let &Probe { kind, value, path, plane, bytes, lane } = probe;
        let hash = self.pairs.senders[flow as usize].hash_of(path, self.settings.balancer);
        let planes = self.fabric.topology.planes();
        let leg = self.pairs.leg_on(flow, plane, planes);
        let port = self.pairs.senders[leg as usize].port;
        let sender = &mut self.pairs.senders[flow as usize];
        sender.data_sent += 1;
        let packet = Packet {
            hash,
            joined: now,
            stamp: now,
            next: NONE,
            flow: sender.peer_slot,
            sequence: u32::from(kind),
            detail: value,
            to: sender.to - sender.to % planes + port % planes,
            itinerary: Itinerary::DIRECT,
            wire: bytes.max(self.settings.control.get() as u16),
            path,
            kind: if lane == Lane::Control { Kind::Probe } else { Kind::Scout },
            flags: sender.flags,
            queue: sender.queue,
            color: sender.color,
            ..Packet::default()
        };
        let id = self.packets.insert(packet);
        if let Some(telemetry) = self.telemetry.get_mut() {
            telemetry.begin(id);
        }
        self.account.totals.probes += 1;
        if lane == Lane::Control {
            self.send_control(port, id, now);
        } else if self.fabric.ports[port as usize].down {
            self.drop_down(port, id);
        } else {
            self.fabric.ports[port as usize].waiting[DATA].push(id, &mut self.packets);
            self.pull(port, now);
        }
    }

    /// A probe has reached its receiving half.
    pub(super) fn probed(&mut self, id: u32, now: u64) {
        let packet = self.packets[id];
        self.packets.release(id);
        self.account.totals.notices += 1;
        let receiver = &mut self.pairs.receivers[packet.flow as usize];
        receiver.data_gone += 1;
        let probed = Probed {
            now: Time::from_ps(now),
            sent: Time::from_ps(packet.stamp),
            kind: packet.sequence as u8,
            value: packet.detail,
            path: packet.path,
            marked: packet.flags & flag::MARKED != 0,
        };
        let reply = ProbesOf::<T>::ask(|| self.endpoint.on_probe(&mut receiver.peer, &probed)).flatten();
        if let Some(reply) = reply {
            self.send_reply(&packet, reply, now);
        }
    }

    /// Sends a reply back to where `cause` came from.
    pub(super) fn send_reply(&mut self, cause: &Packet, reply: Reply, now: u64) {
        let more = reply.bytes.saturating_sub(self.settings.control.get() as u16);
        self.account.totals.probes += 1;
        self.send_to_sender(
            Packet {
                stamp: cause.stamp,
                flow: cause.flow,
                sequence: u32::from(reply.kind),
                detail: reply.value,
                to: cause.to,
                wire: more,
                path: cause.path,
                kind: Kind::Reply,
                flags: cause.flags & flag::MARKED,
                ..Packet::default()
            },
            now,
        );
    }

    /// A reply has come back to its sending half.
    pub(super) fn replied(&mut self, id: u32, now: u64) {
        let packet = self.packets[id];
        let Some(flow) = self.answered(id, now) else { return };
        let replied = Replied {
            now: Time::from_ps(now),
            kind: packet.sequence as u8,
            value: packet.detail,
            rtt: Span::from_ps(now - packet.stamp),
            path: packet.path,
            plane: packet.to % self.fabric.topology.planes(),
            echo: packet.flags & flag::MARKED != 0,
        };
        self.endpoint.on_reply(&mut self.pairs.senders[flow as usize].cc, &replied);
        self.remember(flow, &News::Replied(&replied));
        self.rearm(flow, now);
        self.ready(flow, now);
    }
}
