//! Ports with [lines](super::lines): how packets join them, and when they are served.

use super::engine::{Dispatched, Engine};
use super::lines::{Choice, LINE_BITS, PortLines};
use super::packets::{Kind, Packet, flag};
use super::port::DATA;
use super::timeline::Class;
use super::transport::{Dispatcher, FabricFacts, Feature, LinePort, MOST_LINES, Transport};

/// The line of a packet at ports with `count` of them.
#[inline]
fn line_of(packet: &Packet, count: usize) -> usize {
    let last = count - 1;
    let own = packet.flags & flag::REDUCED == 0;
    let line = if own { usize::from(packet.queue & ((1 << LINE_BITS) - 1)).min(last) } else { last };
    // Never more than the last, which spares looks at the bounds.
    line % MOST_LINES
}

impl<T: Transport> Engine<T> {
    /// Lays out the lines of all ports.
    pub(super) fn lay_lines(&mut self, facts: &FabricFacts) {
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let mut rules = Vec::new();
        for kind in &self.fabric.kinds {
            rules.push(self.dispatcher.lines(&LinePort { rate: kind.rate, nic: !kind.ecn_allowed }, facts));
        }
        let count = rules.first().map_or(0, |rule| rule.lines.len());
        assert!(
            (1..=MOST_LINES).contains(&count) && rules.iter().all(|rule| rule.lines.len() == count),
            "every port has the same number of lines"
        );
        let kinds = self.fabric.ports.iter().map(|port| port.kind);
        dispatch.lines = PortLines::new(&rules, count, kinds);
    }

    /// The kind of port `p` has changed, and with it its rate and its tokens: what waits may start at another time than was foreseen.
    pub(super) fn lay_line_anew(&mut self, p: u32, now: u64) {
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        dispatch.lines.lay_anew(p, self.fabric.ports[p as usize].kind, now);
        if dispatch.lines.places[p as usize].some == 0 || !self.owns(p) {
            return;
        }
        if self.fabric.is_of_switch(p) {
            self.serve_line(p, now);
        } else {
            self.wake_waiting_desk(p, now);
        }
    }

    /// A packet joins its line at port `p`, if there is room.
    pub(super) fn push_line(&mut self, p: u32, id: u32, now: u64) {
        let Self { dispatch, packets, fabric, account, .. } = &mut *self;
        let Some(dispatch) = dispatch.get_mut() else { return };
        let packet = &mut packets[id];
        packet.joined = now;
        let (wire, line) = (u32::from(packet.wire), line_of(packet, dispatch.lines.count));
        let (place, rule) = dispatch.lines.at(p);
        if !place.has_room(rule, line, wire) {
            self.drop_packet(p, id);
            return;
        }
        let port = &mut fabric.ports[p as usize];
        if place.push(rule, line, (id, wire), packets) {
            packets[id].flags |= flag::MARKED;
            account.totals.marks += 1;
            port.counters.marks += 1;
        }
        let worst = place.is_over(rule).then(|| place.worst(rule, packets));
        place.since = now;
        port.held = place.waiting + if port.free_at > now { port.in_service } else { 0 };
        port.counters.deepest = port.counters.deepest.max(port.held);
        if let Some(worst) = worst {
            self.drop_packet(p, worst);
        }
    }

    /// A packet has come to a switch's port.
    pub(super) fn join_line(&mut self, p: u32, id: u32, now: u64) {
        self.packets[id].keep_waited();
        self.serve_line(p, now);
        if self.stage_takes(p, id, now) {
            return;
        }
        if self.packets[id].kind == Kind::Trimmed {
            // Its header would mean nothing to a dispatcher.
            self.drop_packet(p, id);
            return;
        }
        if !self.pass_line(p, id, now) {
            self.push_line(p, id, now);
            self.serve_line(p, now);
        }
    }

    /// Starts a packet that has come to a switch's port at once, where nothing is before it; whether it has started, or was dropped by
    /// the stage. Most hops are such, and lines cost more than the rest of one.
    #[inline]
    fn pass_line(&mut self, p: u32, id: u32, now: u64) -> bool {
        let Self { dispatch, packets, fabric, account, .. } = &mut *self;
        let Some(dispatch) = dispatch.get_mut() else { return false };
        let count = dispatch.lines.count;
        let ((place, rule), port) = (dispatch.lines.at(p), &mut fabric.ports[p as usize]);
        if place.some != 0 || port.free_at > now || port.down {
            return false;
        }
        let packet = &mut packets[id];
        let wire = u32::from(packet.wire);
        let Some(marks) = place.pass(rule, line_of(packet, count), wire, now) else { return false };
        packet.joined = now;
        if marks {
            packet.flags |= flag::MARKED;
            account.totals.marks += 1;
            port.counters.marks += 1;
        }
        port.held = wire;
        port.counters.deepest = port.counters.deepest.max(wire);
        if self.stage_drops(p, id, now, |_| 0) {
            self.drop_packet(p, id);
        } else {
            self.begin(p, id, now);
        }
        true
    }

    /// Starts everything on a switch's port whose turn has come by `now`, and sees to it that it is touched when the next turn comes.
    #[expect(clippy::inline_always, reason = "once or twice a hop, and most find nothing to start")]
    #[inline(always)]
    pub(super) fn serve_line(&mut self, p: u32, now: u64) {
        let Some(dispatch) = self.dispatch.get() else { return };
        let (place, port) = (&dispatch.lines.places[p as usize], &self.fabric.ports[p as usize]);
        // It is touched by what is on its cable.
        let later = port.free_at.max(place.since) > now && !port.flight.is_empty();
        if place.some != 0 && !later {
            self.serve_waiting(p, now);
        }
    }

    /// The same, where something waits.
    fn serve_waiting(&mut self, p: u32, now: u64) {
        loop {
            let Self { dispatch, packets, fabric, .. } = &mut *self;
            let Some(dispatch) = dispatch.get_mut() else { return };
            let ((place, rule), port) = (dispatch.lines.at(p), &fabric.ports[p as usize]);
            if place.some == 0 {
                return;
            }
            let start = port.free_at.max(place.since);
            if start > now || port.down {
                break;
            }
            match place.choose(rule, start) {
                Choice::Serve(line) => {
                    let (id, wire) = place.take(rule, line, start, packets);
                    let held = place.waiting;
                    if self.stage_drops(p, id, start, |_| held) {
                        self.drop_packet(p, id);
                        continue;
                    }
                    self.fabric.ports[p as usize].held = held + wire;
                    self.begin(p, id, start);
                }
                Choice::Wait(until) => place.since = until,
                Choice::Nothing => break,
            }
        }
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let place = &mut dispatch.lines.places[p as usize];
        let port = &self.fabric.ports[p as usize];
        if place.some != 0 && port.flight.is_empty() && !port.down {
            let due = port.free_at.max(place.since);
            if place.touch > due || place.touch < now {
                place.touch = due;
                self.timeline.schedule(due, Class::Touch, p);
            }
        }
    }

    /// Something is due at a switch's port; whether it has lines.
    pub(super) fn touch_line(&mut self, p: u32, now: u64) {
        if let Some(dispatch) = self.dispatch.get_mut() {
            let place = &mut dispatch.lines.places[p as usize];
            if place.touch <= now {
                place.touch = u64::MAX;
            }
        }
        self.serve_line(p, now);
    }

    /// Whether ports have lines.
    #[inline]
    pub(super) fn has_lines() -> bool {
        Dispatched::<T>::ask(|| ()).is_some()
    }

    /// The link of port `p` has gone down: what waits at it is lost.
    pub(super) fn clear_lines(&mut self, p: u32, now: u64) {
        loop {
            let Some(dispatch) = self.dispatch.get_mut() else { return };
            let (place, rule) = dispatch.lines.at(p);
            if place.some == 0 {
                break;
            }
            let id = place.worst(rule, &mut self.packets);
            self.drop_down(p, id);
        }
        let port = &mut self.fabric.ports[p as usize];
        port.held = if port.free_at > now { port.in_service } else { 0 };
        while !self.fabric.ports[p as usize].waiting[DATA].is_empty() {
            let id = self.fabric.ports[p as usize].waiting[DATA].pop(&self.packets);
            self.drop_down(p, id);
        }
    }

    /// What a port of a switch may hold by the settings: its share of the smallest buffer there is.
    pub(super) fn buffer_of_ports(&self) -> Option<u32> {
        let shares = self.settings.buffers.iter().zip(0u8..).filter_map(|(buffer, tier)| {
            let of_tier = |&number: &u32| {
                let number = windtunnel_topology::SwitchId(number);
                self.fabric.topology.tier(number) == tier
            };
            let switch = (0..self.fabric.switches.len() as u32).find(of_tier)?;
            let size = buffer.size.get();
            Some(size / u64::from(self.fabric.switches[switch as usize].count.max(1)))
        });
        shares.min().map(|share| u32::try_from(share).unwrap_or(u32::MAX))
    }
}
