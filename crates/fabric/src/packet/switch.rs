//! Switches: routing, admission to the shared buffer, marking, queueing.

use prefetch_index::prefetch_index;
use windtunnel_kernel::random::combine;
use windtunnel_topology::SwitchId;

use super::buffer::mask;
use super::engine::{Dispatched, Engine};
use super::fabric::Fabric;
use super::link::Marking;
use super::packets::{Kind, NONE, Packet, flag};
use super::port::DATA;
use super::settings::Balancer;
use super::telemetry::RECORD;
use super::transport::{Feature, Transport};

/// Sets the draws of marks apart from others.
const MARK: u64 = 0x6563_6e00;
/// And those of trimming.
const TRIM: u64 = 0x7472_696d;

/// 32 random bits for what may happen to a packet as it joins the queue of port `p`.
fn draw(seed: u64, p: u32, packet: &Packet) -> u32 {
    let seed = combine(seed, u64::from(p) << 32 | u64::from(packet.to));
    (combine(seed, packet.joined ^ u64::from(packet.sequence) << 48) >> 32) as u32
}

/// Whether a queue of `depth` bytes at port `p` marks a packet.
#[inline]
fn marks(marking: &Marking, seed: u64, p: u32, packet: &Packet, depth: u32) -> bool {
    marking.marks(depth, || draw(seed ^ MARK, p, packet))
}

impl<T: Transport> Engine<T> {
    /// A packet that came by port `p` is at the end of the pipeline of `switch`.
    #[inline]
    pub(super) fn forward(&mut self, p: u32, switch: u32, id: u32, now: u64) {
        let mut egress = self.packets[id].joined as u32;
        if self.queues.on {
            // It stands on no cable until it is sent on.
            self.packets[id].next_time = u64::from(p);
        }
        if egress == NONE {
            let Some(found) = self.find_hop(p, switch, id, now) else { return };
            egress = found;
        }
        if self.fabric.ports[egress as usize].down {
            self.drop_down(egress, id);
            return;
        }
        self.enqueue(egress, id, now);
    }

    /// The port by which a packet that came by `from` leaves `switch`, where more than its hash decides; `None` if the switch has taken it in or
    /// dropped it.
    fn find_hop(&mut self, from: u32, switch: u32, id: u32, now: u64) -> Option<u32> {
        let packet = &mut self.packets[id];
        if packet.flags & flag::REDUCED != 0 {
            self.reduce(switch, id, now);
            return None;
        }
        let (at, first) = (SwitchId(switch), self.fabric.switches[switch as usize].first);
        if self.settings.balancer.sees_ports() {
            let egress = self.choose_port(from, switch, id, now);
            if egress.is_none() {
                self.drop_unled(first, id);
            }
            return egress;
        }
        let hash = match self.settings.balancer {
            Balancer::Flowlet { gap } => self.lead.balance.flowlet(switch, packet.hash, now, gap),
            _ => packet.hash,
        };
        let fresh = packet.flags & flag::FRESH != 0;
        packet.flags &= !flag::FRESH;
        let to = packet.to;
        if fresh && self.lead.rules.is_empty() {
            self.show_queues(switch, to, hash, now);
        }
        let packet = &mut self.packets[id];
        let target = &self.fabric.targets[to as usize];
        let held = |port: u32| u64::from(self.fabric.ports[(first + port) as usize].held);
        if let Some(forwarder) = &mut self.lead.forwarder {
            if fresh {
                packet.itinerary = forwarder.enter(at, target, hash, held);
            }
            let Ok(hop) = forwarder.next_hop(at, target, packet.itinerary, hash) else {
                self.drop_unled(first, id);
                return None;
            };
            packet.itinerary = hop.itinerary;
            return Some(first + hop.port);
        }
        if let Some(rule) = self.lead.rules.get(switch as usize) {
            // By flowlets.
            return Some(first + rule.next_hop(target, hash));
        }
        if fresh {
            packet.itinerary = self.fabric.topology.enter(at, target, hash, held);
        }
        let (port, itinerary) = self.fabric.topology.next_hop(at, target, packet.itinerary, hash);
        packet.itinerary = itinerary;
        Some(first + port)
    }

    /// A packet has no next hop: only what is down can be the cause, from the start or since.
    #[cold]
    fn drop_unled(&mut self, p: u32, id: u32) {
        if self.changes.last > 0 {
            self.account.totals.link_down += 1;
        }
        self.drop_packet(p, id);
    }

    /// A packet joins the queue of a port, or starts if the port is free.
    #[expect(clippy::inline_always, reason = "once a hop; a call costs a third of what it does")]
    #[inline(always)]
    pub(super) fn enqueue(&mut self, p: u32, id: u32, now: u64) {
        if Dispatched::<T>::ask(|| self.join_line(p, id, now)).is_some() {
            return;
        }
        if self.queues.on {
            self.join(p, id, now);
            return;
        }
        if self.fabric.ports[p as usize].is_due(now) {
            self.start_waiting(p, now);
        }
        if self.stage_takes(p, id, now) {
            return;
        }
        if self.telemetry.get().is_some()
            && self.fabric.is_of_switch(p)
            && self.packets[id].kind == Kind::Data
        {
            let packet = &mut self.packets[id];
            packet.wire = packet.wire.saturating_add(RECORD);
        }
        // Whether it is known exactly what the switch holds: it is found out for a packet that would be refused otherwise.
        let mut exact = false;
        loop {
            // Everything that a hop looks at more than once is looked up once.
            let Self { fabric, packets, settings, account, .. } = &mut *self;
            let Fabric { ports, switches, kinds, .. } = fabric;
            let (port, packets) = (&mut ports[p as usize], packets.slots());
            let packet = &mut packets[id as usize];
            packet.joined = now;
            let (control, wire) = (packet.kind.is_control(), u32::from(packet.wire));
            let idle = port.free_at <= now;
            let before = if idle { 0 } else { port.held };
            let held = before + wire;
            if let Some(switch) = switches.get_mut(port.owner as usize) {
                let kind = &kinds[usize::from(port.kind)];
                // Control packets meet no thresholds of data.
                let exempt = mask(control) as u32;
                if held > kind.trim | exempt && held - port.counters.headers > kind.trim {
                    self.trim(p, id, now);
                    return;
                }
                if switch.is_limited() {
                    if idle {
                        switch.change(port.held, 0);
                        port.held = 0;
                    }
                    if !switch.admits(before, held, control) {
                        if exact {
                            self.refuse(p, id, now);
                            return;
                        }
                        let owner = port.owner;
                        self.refresh(owner, now);
                        exact = true;
                        continue;
                    }
                    switch.change(before, held);
                }
                if held > kind.mark_above | exempt && marks(&kind.ecn, settings.seed, p, packet, held) {
                    port.counters.marks += 1;
                    account.totals.marks += 1;
                    packet.flags |= flag::MARKED;
                }
            }
            port.held = held;
            port.counters.deepest = port.counters.deepest.max(held);
            if !idle {
                port.counters.headers += wire & mask(control) as u32;
                port.waiting[usize::from(control)].push_among(id, packets);
                if !port.armed {
                    self.arm(p);
                }
                return;
            }
            break;
        }
        if self.stage_drops(p, id, now, |_| 0) {
            self.fabric.hold(p, 0);
            self.drop_packet(p, id);
            return;
        }
        self.begin(p, id, now);
    }

    /// Something waits at port `p`, which has no event: it is away, or the header of the packet in service has left its cable.
    #[cold]
    fn arm(&mut self, p: u32) {
        let port = &mut self.fabric.ports[p as usize];
        if port.away {
            self.look_later(p);
            return;
        }
        port.armed = true;
        let next = port.free_at;
        self.timeline.arm(p, next);
    }

    /// A packet finds no room on port `p`.
    #[cold]
    fn refuse(&mut self, p: u32, id: u32, now: u64) {
        if self.settings.trimming.is_some() && !self.packets[id].kind.is_control() {
            self.trim(p, id, now);
        } else {
            self.drop_packet(p, id);
        }
    }

    /// A data packet finds no room on port `p`: its payload is cut, and its header waits with control packets. With
    /// probability 1/2 that happens to the last packet that waits, and the one that comes takes its place, so that flows
    /// whose packets arrive in step do not lose all of them (Handley et al., SIGCOMM'17, §3.1).
    #[cold]
    fn trim(&mut self, p: u32, id: u32, now: u64) {
        let port = &self.fabric.ports[p as usize];
        let data = port.waiting[DATA];
        let packet = &self.packets[id];
        let seed = combine(self.settings.seed ^ TRIM, u64::from(p) << 32 | u64::from(packet.to));
        let draw = combine(seed, now ^ u64::from(packet.sequence) << 48);
        if !data.is_empty() && draw >> 63 == 1 {
            let tail = data.tail;
            let held = port.held - u32::from(self.packets[tail].wire) + u32::from(packet.wire);
            self.packets.exchange(id, tail);
            if let Some(telemetry) = self.telemetry.get_mut() {
                telemetry.exchange(id, tail);
            }
            self.fabric.hold(p, held);
            let ecn = self.fabric.kind(p).ecn;
            if held > ecn.kmin && !ecn.at_dequeue {
                self.mark(p, tail, held);
            }
        }
        self.trim_to_header(p, id, now);
    }

    /// Cuts the payload of a packet, whose header goes on as a control packet.
    pub(super) fn trim_to_header(&mut self, p: u32, id: u32, now: u64) {
        if self.packets[id].flags & flag::REDUCED != 0 || self.packets[id].kind.is_own() {
            // Its header would mean nothing to anybody.
            self.drop_packet(p, id);
            return;
        }
        let last_hop = self.fabric.ports[p as usize].far.as_switch().is_none();
        self.hear_trim(p, id, now);
        self.account.totals.trims += 1;
        self.fabric.ports[p as usize].counters.trims += 1;
        let header = self.settings.header.get() as u16;
        let packet = &mut self.packets[id];
        packet.kind = Kind::Trimmed;
        packet.wire = packet.wire.min(header);
        packet.flags = packet.flags & !flag::RESCUES | if last_hop { flag::LAST_HOP } else { 0 };
        self.enqueue(p, id, now);
    }

    /// Starts everything on a switch's port whose turn has come by `now`.
    #[inline]
    pub(super) fn advance(&mut self, p: u32, now: u64) {
        if self.fabric.ports[p as usize].is_due(now) {
            self.start_waiting(p, now);
        }
    }

    /// The same, where there is something.
    fn start_waiting(&mut self, p: u32, now: u64) {
        loop {
            self.start_next(p);
            if !self.fabric.ports[p as usize].is_due(now) {
                return;
            }
        }
    }

    /// Starts the packet whose turn is next on a switch's port where something waits, when the port is free.
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub(super) fn start_next(&mut self, p: u32) {
        let Self { fabric, packets, .. } = &mut *self;
        let Fabric { ports, switches, kinds, .. } = fabric;
        let (port, packets) = (&mut ports[p as usize], packets.slots());
        let id = port.pop(packets);
        // What may start after it is known now, and wanted next.
        prefetch_index(&*packets, port.next_up() as usize);
        let (start, before) = (port.free_at, port.held);
        let held = before - port.in_service;
        port.held = held;
        if let Some(switch) = switches.get_mut(port.owner as usize)
            && switch.is_limited()
        {
            switch.change(before, held);
        }
        let ecn = &kinds[usize::from(port.kind)].ecn;
        if ecn.at_dequeue && held > ecn.kmin && packets[id as usize].kind == Kind::Data {
            self.mark(p, id, held);
        }
        let rest = |engine: &Self| held - u32::from(engine.packets[id].wire);
        if self.stage_drops(p, id, start, rest) {
            let rest = rest(self);
            self.fabric.ports[p as usize].in_service = 0;
            self.fabric.hold(p, rest);
            self.drop_packet(p, id);
            return;
        }
        self.begin(p, id, start);
    }

    /// Marks a data packet if the draw says so.
    fn mark(&mut self, p: u32, id: u32, depth: u32) {
        let marking = self.fabric.kind(p).ecn;
        self.mark_by(p, id, depth, &marking);
    }

    /// The same, by thresholds of a queue's own.
    pub(super) fn mark_by(&mut self, p: u32, id: u32, depth: u32, marking: &Marking) {
        let packet = &mut self.packets[id];
        if marks(marking, self.settings.seed, p, packet, depth) {
            self.fabric.ports[p as usize].counters.marks += 1;
            self.account.totals.marks += 1;
            packet.flags |= flag::MARKED;
        }
    }

    /// 32 random bits for what may happen to a packet as it joins a queue.
    pub(super) fn draw(&self, what: u64, p: u32, packet: &Packet) -> u32 {
        draw(self.settings.seed ^ what, p, packet)
    }

    /// Makes what the ports of a switch hold exact if its shape asks for that to send a packet on its way.
    #[inline]
    pub(super) fn show_queues(&mut self, switch: u32, to: u32, hash: u64, now: u64) {
        let asked = std::cell::Cell::new(false);
        let nothing = |_| {
            asked.set(true);
            0
        };
        self.fabric.topology.enter(SwitchId(switch), &self.fabric.targets[to as usize], hash, nothing);
        if asked.get() {
            if self.queues.on {
                self.refresh_queues(switch, now);
            } else {
                self.refresh(switch, now);
            }
        }
    }

    /// Advances all ports of a switch, so that what it holds is exact.
    #[cold]
    fn refresh(&mut self, switch: u32, now: u64) {
        for p in self.fabric.ports_of(switch) {
            if self.fabric.ports[p as usize].held > 0 {
                self.advance(p, now);
                if self.fabric.ports[p as usize].free_at <= now {
                    self.fabric.hold(p, 0);
                }
            }
        }
    }
}
