//! NIC ports that a [`Dispatcher`] leads: what it is told, and what it has sent.
//!
//! **Life cycle.** A message, an arrival or the port's timer is a call of the dispatcher, whose outbox is then posted: each parcel becomes a
//! packet in a line of the port. The port starts what may start, asks the dispatcher for more when nothing waits, and wakes up when it is
//! free again.
//!
//! **Invariants.** A NIC port acts at the instant of each event, so a transmission begins at the clock. Each half of a queue pair has a
//! number at its port by the order of opening, which is the only name that the dispatcher knows. What one half sent the other counts as
//! gone, as for all queue pairs.
//!
//! **Failure modes.** A port with a timer that nothing has reached for [`SILENCE`] ends the run.

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Span, Time};
use windtunnel_topology::Itinerary;

use super::desks::{Delivery, Desk, Half, INTERVAL, put};
use super::engine::{Dispatched, Engine, PairPlan};
use super::error::PacketError;
use super::lines::{Choice, LINE_BITS};
use super::message::NO_MESSAGE;
use super::packets::{Kind, NONE, Packet, flag};
use super::port::DATA;
use super::settings::Balancer;
use super::timeline::Class;
use super::transport::{
    Dispatcher, FabricFacts, Feature, FlowFacts, Heard, Joined, Landed, Load, NicFacts, Note, Parcel,
    SILENCE, Sent, Transport,
};

impl Packet {
    /// What a dispatcher has put into it, of a note.
    #[inline]
    fn note(&self) -> Note {
        Note { kind: self.queue >> LINE_BITS, a: self.sequence, b: self.detail, c: self.stamp }
    }

    /// What a dispatcher has put into it.
    #[inline]
    pub(super) fn load(&self) -> Load {
        if self.kind == Kind::Data { Load::Data(self.sequence) } else { Load::Note(self.note()) }
    }
}

/// Set in a waiting packet's note of whose it is if it goes back.
const BACK: u64 = 1 << 32;

impl<T: Transport> Engine<T> {
    /// Makes the desks of all NIC ports, and the lines of all ports.
    ///
    /// # Errors
    /// [`PacketError`] for settings that the dispatcher refuses.
    pub(super) fn build_dispatch(&mut self) -> Result<(), PacketError> {
        if !Self::has_lines() {
            return Ok(());
        }
        let refuse = |found: String| PacketError::Dispatch { transport: T::NAME, found };
        if self.settings.pfc.is_some() {
            return Err(refuse(
                "its ports have queues of its own, which no pauses stop; leave `pfc` out".to_owned(),
            ));
        }
        if self.settings.trimming.is_some() {
            return Err(refuse("nobody would heed a header; leave `trimming` out".to_owned()));
        }
        let fabric = self.fabric_facts();
        self.dispatcher.check(&fabric).map_err(refuse)?;
        self.lay_lines(&fabric);
        let Some(dispatch) = self.dispatch.get_mut() else { return Ok(()) };
        for port in 0..self.fabric.nic_ports() {
            let mut desk = Desk::default();
            self.dispatcher.open_nic(&mut desk.state, &NicFacts { port, seed: self.settings.seed, fabric });
            dispatch.desks.push(desk);
        }
        Ok(())
    }

    /// What a dispatcher may know of the fabric. Delays and hops are the largest from a few NICs to all others: the first, the last, and
    /// those a third and half of the way.
    fn fabric_facts(&mut self) -> FabricFacts {
        let (nics, planes) = (self.fabric.topology.nics(), self.fabric.topology.planes());
        let (mut propagation, mut hops) = (0, 1);
        let mut sources = vec![0, nics / 3, nics / 2, nics - 1];
        sources.dedup();
        for &from in &sources {
            for to in (0..nics).filter(|&to| to != from) {
                let ways = [[from, to], [to, from]].map(|[from, to]| {
                    let path = self.walk([from * planes, to * planes], 0, 0);
                    let first = self.fabric.kind(from * planes).delay;
                    (
                        first + path.iter().map(|&p| self.fabric.kind(p).delay).sum::<u64>(),
                        1 + path.len() as u32,
                    )
                });
                propagation = propagation.max(ways[0].0 + ways[1].0);
                hops = hops.max(ways[0].1).max(ways[1].1);
            }
        }
        let queues = &self.settings.queues;
        let mut priorities: Vec<u8> = queues.iter().map(|queue| queue.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        FabricFacts {
            rate: self.fabric.kind(0).rate,
            mtu: self.settings.mtu.get() as u32,
            header: self.settings.header.get() as u32,
            control: self.settings.control.get() as u32,
            propagation: Span::from_ps(propagation),
            hops,
            buffer: self.buffer_of_ports(),
            paths: match self.settings.balancer {
                Balancer::Spray { paths } | Balancer::Source { paths } | Balancer::Reps { paths } => paths,
                Balancer::Ecmp | Balancer::DestinationModulo => 1,
                Balancer::Flowlet { .. } | Balancer::Adaptive | Balancer::RoundRobin => 1 << 16,
            },
            priorities: priorities.len() as u32,
            nic_ports: self.fabric.nic_ports(),
        }
    }

    /// A sending half has been opened.
    pub(super) fn dispatch_opened(&mut self, slot: u32, plan: &PairPlan) {
        let [port, peer] = plan.ports[0];
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let desk = &mut dispatch.desks[port as usize];
        let flow = desk.sends.len() as u32;
        desk.sends.push(slot);
        put(&mut dispatch.senders, slot, Half { number: flow, note: plan.entropy, class: 0 });
        self.dispatcher.open(&mut desk.state, &FlowFacts { flow, peer });
    }

    /// A receiving half has been opened.
    pub(super) fn dispatch_accepted(&mut self, slot: u32, plan: &PairPlan) {
        let [port, peer] = plan.ports[1];
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let desk = &mut dispatch.desks[port as usize];
        let flow = desk.receives.len() as u32;
        desk.receives.push(slot);
        put(&mut dispatch.receivers, slot, Half { number: flow, note: 0, class: 0 });
        self.dispatcher.accept(&mut desk.state, &FlowFacts { flow, peer });
    }

    /// A sending half has a traffic class.
    pub(super) fn dispatch_classify(&mut self, sender: u32, class: u8) {
        if let Some(dispatch) = self.dispatch.get_mut() {
            dispatch.senders[sender as usize].class = class;
        }
    }

    /// A half is given up, at port `p`.
    pub(super) fn dispatch_abandon(&mut self, p: u32, slot: u32, back: bool) {
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let half = if back { dispatch.receivers[slot as usize] } else { dispatch.senders[slot as usize] };
        self.dispatcher.abandon(&mut dispatch.desks[p as usize].state, half.number, back);
    }

    /// A message joins its queue pair at port `p`.
    pub(super) fn dispatch_message(&mut self, message: u32, p: u32, now: u64) {
        let flow = self.pairs.join(message);
        let sender = &mut self.pairs.senders[flow as usize];
        sender.next = sender.limit;
        let outgoing = self.pairs.outgoing[message];
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let half = dispatch.senders[flow as usize];
        let desk = &mut dispatch.desks[p as usize];
        desk.heard = now;
        let joined = Joined {
            now: Time::from_ps(now),
            flow: half.number,
            first: outgoing.first,
            packets: outgoing.packets,
            group: u64::from(half.class) << 32 | u64::from(half.note),
        };
        self.dispatcher.on_message(&mut desk.state, &joined, &mut dispatch.outbox);
    }

    /// NIC port `p` sends what its dispatcher wants sent now.
    pub(super) fn dispatch_port(&mut self, p: u32, now: u64) {
        loop {
            self.post(p, now);
            let port = &self.fabric.ports[p as usize];
            if port.down {
                break;
            }
            if port.free_at > now {
                self.wake_waiting_desk(p, now);
                break;
            }
            let Some(dispatch) = self.dispatch.get_mut() else { return };
            let (place, rule) = dispatch.lines.at(p);
            match place.choose(rule, now) {
                Choice::Serve(line) => {
                    let (id, _) = place.take(rule, line, now, &mut self.packets);
                    self.begin_at_desk(p, id, now);
                }
                choice => {
                    if !port.waiting[DATA].is_empty() {
                        let id = self.fabric.ports[p as usize].waiting[DATA].pop(&self.packets);
                        self.begin(p, id, now);
                        continue;
                    }
                    let desk = &mut dispatch.desks[p as usize];
                    let next =
                        self.dispatcher.next(&mut desk.state, Time::from_ps(now), &mut dispatch.outbox);
                    if let Some(parcel) = next {
                        if let Some(id) = self.make_parcel(p, &parcel, now) {
                            self.begin_at_desk(p, id, now);
                        }
                        continue;
                    }
                    if !dispatch.outbox.parcels.is_empty() {
                        continue;
                    }
                    if let Choice::Wait(until) = choice {
                        self.wake_desk(p, until);
                    }
                    break;
                }
            }
        }
        self.rearm_desk(p, now);
        self.foresee_sends(p);
    }

    /// Sees to it that NIC port `p`, which is busy or where something waits, is woken when it may start something if nothing reaches it
    /// before.
    #[inline]
    pub(super) fn wake_waiting_desk(&mut self, p: u32, now: u64) {
        let Some(dispatch) = self.dispatch.get() else { return };
        let port = &self.fabric.ports[p as usize];
        let mut at = port.free_at.max(now);
        if self.pairs.nics[p as usize].wake <= at {
            return;
        }
        if !T::Dispatcher::PULLS && port.waiting[DATA].is_empty() {
            match dispatch.lines.choose(p, at) {
                Choice::Serve(_) => {}
                Choice::Wait(until) => at = until,
                Choice::Nothing => return,
            }
        }
        self.wake_desk(p, at);
    }

    fn wake_desk(&mut self, p: u32, at: u64) {
        if self.pairs.nics[p as usize].asks_to_wake(at) {
            self.timeline.schedule(at, Class::Wake, p);
        }
    }

    /// Sees to it that the dispatcher's timer has an event.
    fn rearm_desk(&mut self, p: u32, now: u64) {
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let desk = &mut dispatch.desks[p as usize];
        let Some(due) = self.dispatcher.timer(&desk.state).map(Time::ps) else { return };
        let due = due.max(now);
        if desk.timer.is_none_or(|known| known > due) {
            desk.timer = Some(due);
            self.timeline.schedule(due, Class::Dispatch, p);
        }
    }

    /// The time of a timer has come.
    pub(super) fn dispatch_due(&mut self, p: u32, now: u64) {
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let desk = &mut dispatch.desks[p as usize];
        if desk.timer.is_none_or(|known| known > now) {
            return;
        }
        desk.timer = None;
        if self.dispatcher.timer(&desk.state).is_some_and(|due| due.ps() <= now) {
            if now - desk.heard > SILENCE.ps() {
                let waits = |&&slot: &&u32| {
                    let sender = &self.pairs.senders[slot as usize];
                    sender.port == p && sender.una < sender.limit
                };
                let to =
                    desk.sends.iter().find(waits).map_or(p, |&slot| self.pairs.senders[slot as usize].to);
                let nics = [p, to].map(|port| self.fabric.nic_of(port));
                self.account.give_up(nics);
                return;
            }
            self.account.note(|| super::timeline::Key::new(now, Class::Dispatch, p).told(), || 0);
            self.dispatcher.on_timer(&mut desk.state, Time::from_ps(now), &mut dispatch.outbox);
        }
        self.dispatch_port(p, now);
    }

    /// Makes packets of what the outbox holds, and lets them join their lines.
    fn post(&mut self, p: u32, now: u64) {
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        if !dispatch.outbox.known.is_empty() {
            for (flow, below) in std::mem::take(&mut dispatch.outbox.known) {
                self.known_to_have_arrived(p, flow, below);
            }
        }
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        if dispatch.outbox.parcels.is_empty() {
            return;
        }
        let mut parcels = std::mem::take(&mut dispatch.outbox.parcels);
        for parcel in &parcels {
            if let Some(id) = self.make_parcel(p, parcel, now) {
                self.push_line(p, id, now);
            }
        }
        parcels.clear();
        if let Some(dispatch) = self.dispatch.get_mut() {
            dispatch.outbox.parcels = parcels;
        }
    }

    /// All packets below `below` of a queue pair have arrived.
    fn known_to_have_arrived(&mut self, p: u32, flow: u32, below: u32) {
        let Some(dispatch) = self.dispatch.get() else { return };
        let slot = dispatch.desks[p as usize].sends[flow as usize];
        let sender = &mut self.pairs.senders[slot as usize];
        if below > sender.una && !sender.retired {
            sender.una = below;
            self.strike(slot);
        }
    }

    /// The packet of a parcel; `None` if its queue pair has no such packet any more.
    fn make_parcel(&mut self, p: u32, parcel: &Parcel, now: u64) -> Option<u32> {
        let dispatch = self.dispatch.get()?;
        let desk = &dispatch.desks[p as usize];
        let mut packet = Packet {
            joined: now,
            next: NONE,
            next_time: u64::from(parcel.flow) | if parcel.back { BACK } else { 0 },
            itinerary: Itinerary::DIRECT,
            path: parcel.path,
            queue: parcel.line,
            ..Packet::default()
        };
        match parcel.load {
            Load::Data(sequence) => {
                let slot = desk.sends[parcel.flow as usize];
                let mut id = self.pairs.senders[slot as usize].oldest;
                while id != NO_MESSAGE && !self.pairs.outgoing[id].holds(sequence) {
                    id = self.pairs.outgoing[id].next;
                }
                if id == NO_MESSAGE || parcel.back {
                    return None;
                }
                let payload = self.pairs.outgoing[id].payload_of(sequence);
                packet.wire = (payload + self.settings.header.get()) as u16;
                (packet.kind, packet.sequence, packet.detail) = (Kind::Data, sequence, parcel.rank);
            }
            Load::Note(Note { kind, a, b, c }) => {
                packet.kind = if parcel.back { Kind::Reply } else { Kind::Probe };
                (packet.sequence, packet.detail, packet.stamp) = (a, b, c);
                packet.wire = self.settings.control.get() as u16;
                packet.queue |= kind << LINE_BITS;
                self.account.totals.probes += 1;
            }
        }
        let (hash, flags);
        if parcel.back {
            let receiver = &mut self.pairs.receivers[desk.receives[parcel.flow as usize] as usize];
            (hash, packet.to, flags) = receiver.address();
            packet.flow = receiver.peer_slot;
            receiver.control_sent += 1;
        } else {
            let sender = &mut self.pairs.senders[desk.sends[parcel.flow as usize] as usize];
            (hash, packet.to, flags) = (sender.hash, sender.to, sender.flags);
            packet.flow = sender.peer_slot;
            sender.data_sent += 1;
            sender.sent += if packet.kind == Kind::Data { u64::from(packet.wire) } else { 0 };
        }
        packet.flags |= flags;
        packet.hash = if flags & flag::ROUTED == 0 { combine(hash, u64::from(parcel.path)) } else { hash };
        Some(self.packets.insert(packet))
    }

    /// Begins a transmission at NIC port `p`, and tells its dispatcher.
    fn begin_at_desk(&mut self, p: u32, id: u32, now: u64) {
        let packet = &mut self.packets[id];
        if packet.flags & flag::REDUCED != 0 {
            self.begin(p, id, now);
            return;
        }
        let whose = packet.next_time;
        let data = packet.kind == Kind::Data;
        if data {
            packet.stamp = now;
        }
        let load = packet.load();
        let path = packet.path;
        let wire = u32::from(packet.wire);
        self.begin(p, id, now);
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        self.fabric.ports[p as usize].held = dispatch.lines.waiting(p) + wire;
        dispatch.sent += u64::from(data);
        let sent = Sent { now: Time::from_ps(now), flow: whose as u32, back: whose & BACK != 0, load, path };
        self.dispatcher.on_sent(&mut dispatch.desks[p as usize].state, &sent, &mut dispatch.outbox);
    }

    /// A packet has reached its NIC by the switch's port `p`; whether a dispatcher has taken it.
    pub(super) fn hand_in(&mut self, p: u32, id: u32, now: u64) -> bool {
        let packet = self.packets[id];
        if !matches!(packet.kind, Kind::Data | Kind::Probe | Kind::Reply) {
            return false;
        }
        self.packets.release(id);
        let Packet { flow: slot, to, path, .. } = packet;
        let marked = packet.flags & flag::MARKED != 0;
        if packet.kind == Kind::Data {
            self.land(p, &packet, marked, now);
        } else {
            self.account.totals.notices += 1;
            let back = packet.kind == Kind::Reply;
            if back {
                self.pairs.senders[slot as usize].control_gone += 1;
            } else {
                self.pairs.receivers[slot as usize].data_gone += 1;
            }
            let Some(dispatch) = self.dispatch.get_mut() else { return true };
            let half = if back { dispatch.senders[slot as usize] } else { dispatch.receivers[slot as usize] };
            let note = packet.note();
            let heard = Heard { now: Time::from_ps(now), flow: half.number, back, note, path, marked };
            let desk = &mut dispatch.desks[to as usize];
            desk.heard = now;
            self.dispatcher.on_note(&mut desk.state, &heard, &mut dispatch.outbox);
        }
        self.dispatch_port(to, now);
        true
    }

    /// A data packet has reached its NIC.
    fn land(&mut self, p: u32, packet: &Packet, marked: bool, now: u64) {
        let &Packet { flow: slot, sequence, wire, path, to, .. } = packet;
        self.account.totals.data_packets += 1;
        let full = self.settings.mtu.get() as u16;
        let receiver = &mut self.pairs.receivers[slot as usize];
        receiver.data_gone += 1;
        let (fresh, early) = receiver.file(sequence, wire, full);
        let (expected, whole) = receiver.progress();
        self.account.totals.reordered += u64::from(early);
        if whole {
            self.report(p, slot, now);
        }
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let half = &mut dispatch.receivers[slot as usize];
        let late = sequence + 1 < half.note;
        half.note = half.note.max(sequence + 1);
        let base = expected.max(half.note.saturating_sub(u64::BITS));
        let bits = self.pairs.receivers[slot as usize].beyond_from(base);
        let number = half.number;
        let delay = now - packet.stamp;
        let place = (now / INTERVAL) as usize;
        if dispatch.deliveries.len() <= place {
            dispatch.deliveries.resize(place + 1, Delivery::default());
        }
        let delivery = &mut dispatch.deliveries[place];
        delivery.bytes += if fresh { u64::from(wire) } else { 0 };
        delivery.packets += 1;
        delivery.late += u64::from(late);
        delivery.delay += delay;
        delivery.queueing += packet.waited();
        dispatch.longest = dispatch.longest.max(delay);
        let landed = Landed {
            now: Time::from_ps(now),
            flow: number,
            sequence,
            rank: packet.detail,
            fresh,
            expected,
            base,
            bits,
            whole,
            marked,
            path,
        };
        let desk = &mut dispatch.desks[to as usize];
        desk.heard = now;
        self.dispatcher.on_data(&mut desk.state, &landed, &mut dispatch.outbox);
    }

    /// Whether NIC ports have a dispatcher.
    #[inline]
    pub(super) fn is_dispatched() -> bool {
        Dispatched::<T>::ask(|| ()).is_some()
    }
}
