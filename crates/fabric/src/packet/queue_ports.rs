//! Ports with [several queues](super::queues): how packets join them, and when they are served.

use super::buffer::share;
use super::engine::Engine;
use super::packets::Kind;
use super::port::CONTROL;
use super::queues::Choice;
use super::telemetry::RECORD;
use super::timeline::Class;
use super::transport::Transport;

/// Sets the draws of trimming apart from others.
const CUT: u64 = 0x6375_7400;

/// Sets the draws of early drops apart from others.
const EARLY: u64 = 0x7265_6400;

impl<T: Transport> Engine<T> {
    /// A packet that came by `upstream` joins a queue of a switch's port: [`Engine::enqueue`] where there are queues.
    pub(super) fn join(&mut self, p: u32, id: u32, now: u64) {
        self.find_place(p, id, now);
        self.send_frames(now);
    }

    fn find_place(&mut self, p: u32, id: u32, now: u64) {
        self.serve(p, now);
        if self.stage_takes(p, id, now) {
            return;
        }
        let packet = &mut self.packets[id];
        packet.joined = now;
        if self.telemetry.get().is_some() && packet.kind == Kind::Data {
            packet.wire = packet.wire.saturating_add(RECORD);
        }
        let wire = packet.wire;
        let upstream = packet.next_time as u32;
        let lane = self.queues.lane(packet);
        if lane < self.queues.count {
            packet.color = self.queues.meters.color(upstream, lane, wire, now, packet.color);
        }
        let color = packet.color;
        let dropping = self.queues.stations[p as usize].dropping;
        if lane < self.queues.count && dropping & 1 << lane != 0 {
            self.queues.stations[p as usize].dropped += 1;
            self.drop_packet(p, id);
            return;
        }
        if lane < self.queues.count && self.drops_early(p, lane, id) {
            self.drop_packet(p, id);
            return;
        }
        if self.is_too_long(p, lane, wire) {
            self.cut(p, lane, id, now);
            return;
        }
        if !self.admit(p, lane, upstream, wire, now) {
            if self.settings.trimming.is_some() && self.may_drop(lane) {
                self.cut(p, lane, id, now);
            } else {
                self.drop_packet(p, id);
            }
            return;
        }
        let port = &mut self.fabric.ports[p as usize];
        port.held += u32::from(wire);
        port.counters.deepest = port.counters.deepest.max(port.held);
        if lane < self.queues.count {
            let place = self.queues.place(p, lane);
            let queue = &mut self.queues.each[place];
            queue.held += u32::from(wire);
            let depth = queue.held;
            let marking = self.queues.marking[self.queues.profile(port.kind, lane, color)];
            if !marking.at_dequeue && depth > marking.kmin {
                self.mark_by(p, id, depth, &marking);
            }
            self.queues.each[place].waiting.push(id, &mut self.packets);
        } else {
            port.waiting[CONTROL].push(id, &mut self.packets);
        }
        self.queues.stations[p as usize].since = now;
        self.serve(p, now);
    }

    /// Whether the queue's drop profile takes a packet.
    fn drops_early(&self, p: u32, lane: usize, id: u32) -> bool {
        if self.queues.red.is_empty() {
            return false;
        }
        let packet = &self.packets[id];
        let red =
            &self.queues.red[self.queues.profile(self.fabric.ports[p as usize].kind, lane, packet.color)];
        let depth = self.queues.each[self.queues.place(p, lane)].held + u32::from(packet.wire);
        red.marks(depth, || self.draw(EARLY, p, packet))
    }

    /// Whether packets of a lane are dropped, or trimmed, where they find no room: data that no pauses keep.
    fn may_drop(&self, lane: usize) -> bool {
        lane < self.queues.count && !(self.queues.rules[lane].lossless && self.queues.guard.is_some())
    }

    /// Whether a packet would make its queue longer than trimming lets it be.
    fn is_too_long(&self, p: u32, lane: usize, wire: u16) -> bool {
        let limit = self.fabric.kind(p).trim;
        limit != u32::MAX
            && self.may_drop(lane)
            && self.queues.each[self.queues.place(p, lane)].held + u32::from(wire) > limit
    }

    /// [`Engine::trim`] where there are queues: the packet that comes is cut, or with probability 1/2 the last of its queue,
    /// if it is as long.
    #[cold]
    fn cut(&mut self, p: u32, lane: usize, id: u32, now: u64) {
        let waiting = self.queues.each[self.queues.place(p, lane)].waiting;
        let packet = &self.packets[id];
        if !waiting.is_empty()
            && self.packets[waiting.tail].wire == packet.wire
            && self.draw(CUT, p, packet) >> 31 == 1
        {
            self.packets.exchange(id, waiting.tail);
            if let Some(telemetry) = self.telemetry.get_mut() {
                telemetry.exchange(id, waiting.tail);
            }
        }
        self.trim_to_header(p, id, now);
    }

    /// Whether there is room; then it is taken.
    fn admit(&mut self, p: u32, lane: usize, upstream: u32, wire: u16, now: u64) -> bool {
        if lane < self.queues.count && self.queues.rules[lane].lossless && self.queues.guard.is_some() {
            return self.admit_ingress(p, lane, upstream, wire, now);
        }
        if self.take(p, lane, wire) {
            return true;
        }
        self.refresh_queues(self.fabric.ports[p as usize].owner, now);
        self.take(p, lane, wire)
    }

    /// Takes room for a packet that may be dropped: within the queue's reserve, or the port's, or as the dynamic threshold
    /// allows. Control packets need room alone.
    fn take(&mut self, p: u32, lane: usize, wire: u16) -> bool {
        let switch = &mut self.fabric.switches[self.fabric.ports[p as usize].owner as usize];
        let station = &mut self.queues.stations[p as usize];
        let wire = u32::from(wire);
        let more = match self.queues.rules.get(lane) {
            Some(rule) => {
                let held = self.queues.each[p as usize * self.queues.count + lane].held;
                (held + wire).saturating_sub(rule.reserve) - held.saturating_sub(rule.reserve)
            }
            None => wire,
        };
        let (had, has) = (switch.excess(station.over), switch.excess(station.over + more));
        if switch.is_limited() && has > had {
            let alpha = match self.queues.rules.get(lane) {
                Some(rule) => Some((rule, rule.alpha.unwrap_or(switch.alpha))),
                None => None,
            };
            let free = switch.free();
            if has - had > free {
                return false;
            }
            if let Some((rule, alpha)) = alpha {
                let held = self.queues.each[p as usize * self.queues.count + lane].held + wire;
                let own = u64::from(held.saturating_sub(rule.reserve)).min(has);
                if own > share(free, alpha) {
                    return false;
                }
            }
        }
        station.over += more;
        switch.used += has - had;
        true
    }

    /// Starts everything on a switch's port whose turn has come by `now`, and gives back what has been sent. Resumes that
    /// this brings about are for [`Engine::send_frames`].
    pub(super) fn serve(&mut self, p: u32, now: u64) {
        self.start_all(p, now);
        self.look_again(p, now);
    }

    fn start_all(&mut self, p: u32, now: u64) {
        loop {
            self.give_back(p, now);
            let port = &mut self.fabric.ports[p as usize];
            let station = &mut self.queues.stations[p as usize];
            let start = port.free_at.max(station.since);
            if start > now {
                return;
            }
            if !port.waiting[CONTROL].is_empty() {
                let id = port.waiting[CONTROL].pop(&self.packets);
                self.begin_service(p, id, self.queues.count, start);
                continue;
            }
            let wanted = self.stage_choice(p, start);
            let choice = match wanted {
                Some(queue) => Choice::Serve(queue),
                None => self.queues.choose(p, start, &self.packets),
            };
            match choice {
                Choice::Nothing => return,
                Choice::Wait(until) => self.queues.stations[p as usize].since = until,
                Choice::Serve(queue) => {
                    let place = self.queues.place(p, queue);
                    let id = self.queues.each[place].waiting.pop(&self.packets);
                    let depth = self.queues.each[place].held;
                    let (kind, color) = (self.fabric.ports[p as usize].kind, self.packets[id].color);
                    let marking = self.queues.marking[self.queues.profile(kind, queue, color)];
                    if marking.at_dequeue && depth > marking.kmin {
                        self.mark_by(p, id, depth, &marking);
                    }
                    let (wire, upstream) = (self.packets[id].wire, self.packets[id].next_time as u32);
                    let rest = |engine: &Self| engine.fabric.ports[p as usize].held - u32::from(wire);
                    if self.stage_drops(p, id, start, rest) {
                        self.give_up(p, queue, upstream, wire, now);
                        self.drop_packet(p, id);
                        continue;
                    }
                    self.begin_service(p, id, queue, start);
                }
            }
        }
    }

    fn begin_service(&mut self, p: u32, id: u32, lane: usize, start: u64) {
        let packet = &self.packets[id];
        let (wire, upstream) = (packet.wire, packet.next_time as u32);
        if lane < self.queues.count {
            self.queues.spend(p, lane, start, wire);
        }
        self.begin(p, id, start);
        let ends = self.fabric.ports[p as usize].free_at;
        let station = &mut self.queues.stations[p as usize];
        (station.ends, station.wire, station.lane, station.upstream) = (ends, wire, lane as u8, upstream);
    }

    /// Gives back the bytes of a transmission that has ended.
    fn give_back(&mut self, p: u32, now: u64) {
        let station = &mut self.queues.stations[p as usize];
        if station.wire == 0 || station.ends > now {
            return;
        }
        let (wire, lane, upstream) = (station.wire, usize::from(station.lane), station.upstream);
        station.wire = 0;
        self.give_up(p, lane, upstream, wire, now);
    }

    /// A packet is held no longer at port `p`.
    pub(super) fn give_up(&mut self, p: u32, lane: usize, upstream: u32, wire: u16, now: u64) {
        let owner = self.fabric.ports[p as usize].owner as usize;
        let wide = u32::from(wire);
        self.fabric.ports[p as usize].held -= wide;
        let mut less = wide;
        if lane < self.queues.count {
            let place = self.queues.place(p, lane);
            let held = &mut self.queues.each[place].held;
            *held -= wide;
            let rule = self.queues.rules[lane];
            if rule.lossless && self.queues.guard.is_some() {
                self.release_ingress(owner, lane, upstream, wire, now);
                return;
            }
            let after = *held;
            less = (after + wide).saturating_sub(rule.reserve) - after.saturating_sub(rule.reserve);
        }
        let station = &mut self.queues.stations[p as usize];
        let switch = &mut self.fabric.switches[owner];
        let before = switch.excess(station.over);
        station.over -= less;
        switch.used -= before - switch.excess(station.over);
        self.resume_all(owner, now);
    }

    /// Sees to it that a port is touched when something is due that no packet's arrival brings about: a start with nothing
    /// on the cable, or, where an ingress waits for it, any start and any end of a transmission: a bucket may let one begin
    /// and end before what is on the cable arrives.
    pub(super) fn look_again(&mut self, p: u32, now: u64) {
        let port = &self.fabric.ports[p as usize];
        let station = &self.queues.stations[p as usize];
        let waited_for = !self.queues.pausing[port.owner as usize].is_empty();
        let mut due = u64::MAX;
        if (port.flight.is_empty() || waited_for)
            && (!port.waiting[CONTROL].is_empty() || self.queues.has_startable(p))
        {
            due = port.free_at.max(station.since);
        }
        if station.wire != 0 && waited_for {
            due = due.min(station.ends);
        }
        if due != u64::MAX && (station.touch > due || station.touch < now) {
            self.queues.stations[p as usize].touch = due;
            self.timeline.schedule(due, Class::Touch, p);
        }
    }

    /// Something is due at a switch's port.
    pub(super) fn touched(&mut self, p: u32, now: u64) {
        let station = &mut self.queues.stations[p as usize];
        if station.touch <= now {
            station.touch = u64::MAX;
        }
        self.serve(p, now);
        self.watch_pause(p, now);
        self.send_frames(now);
    }

    /// Advances all ports of a switch, so that what it holds is exact.
    pub(super) fn refresh_queues(&mut self, switch: u32, now: u64) {
        for p in self.fabric.ports_of(switch) {
            if self.fabric.ports[p as usize].held > 0 {
                self.serve(p, now);
            }
        }
    }
}
