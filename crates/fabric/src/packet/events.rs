//! The event loop: what each kind of event does.

use windtunnel_kernel::Time;
use windtunnel_kernel::queue::EventOrder;

use super::border::Gone;
use super::engine::{Dispatched, Engine};
use super::fabric::Fabric;
use super::handles::Completion;
use super::packets::{Kind, NONE, flag};
use super::telemetry::Hop;
use super::timeline::{Class, Key};
use super::transport::{Feature, Transport};

impl<T: Transport> Engine<T> {
    /// Handles events up to `limit`, at most `budget` and the rest of an instant begun, until messages have completed;
    /// these are appended. Returns the instant reached: that of the last event, or `limit` if there is no more before.
    pub fn run(&mut self, limit: Time, budget: u64, done: &mut Vec<Completion>) -> Time {
        let mut left = budget;
        while left > 0 && !self.account.has_news() && !self.has_halted() && self.step(limit.ps()) {
            left -= 1;
        }
        if left == 0 || self.account.has_news() {
            let instant = limit.ps().min(self.timeline.now());
            while !self.has_halted() && self.step(instant) {}
        }
        done.extend(self.account.news().map(|(_, completion)| completion));
        // Nobody waits at the horizon itself: an engine that runs dry before it stays at its last event.
        if self.next_time() > limit && limit < Time::HORIZON && done.is_empty() {
            self.timeline.reach(limit.ps());
        }
        self.now()
    }

    /// Handles the next event if it is not after `bound`.
    #[inline]
    pub(super) fn step(&mut self, bound: u64) -> bool {
        // Events of ports come first at an instant.
        if let Some((time, port)) = self.timeline.pop_port(bound) {
            self.turn_to(time);
            self.look_ahead();
            self.port_event(port, time);
        } else if let Some(time) = self.timeline.other_by(bound) {
            self.turn_to(time);
            self.handle();
        } else {
            return false;
        }
        true
    }

    /// The clock goes to the instant of an event.
    #[inline]
    fn turn_to(&mut self, time: u64) {
        self.sample_before(time);
        self.timeline.turn_to(time);
    }

    /// Starts everything whose turn has come by `at`, to which the engine has run: what the counters tell then does not
    /// depend on when ports were last looked at.
    pub fn catch_up(&mut self, at: Time) {
        self.sample_before(at.ps());
        self.timeline.reach(at.ps());
        for p in 0..self.fabric.ports.len() as u32 {
            self.settle_port(p, at.ps());
        }
    }

    /// Counts an event that is not a port's.
    #[inline]
    fn note(&mut self, key: Key) {
        self.account.note(|| key.told(), || 0);
    }

    /// The first event that is not a port's.
    fn handle(&mut self) {
        let Some(key) = self.timeline.pop_other() else { return };
        self.look_ahead_of_others();
        let (time, port) = (key.time().ps(), key.port());
        match key.class() {
            // What only keeps a port going is not counted.
            Class::Wake => self.wake(port, time),
            Class::Touch => match Dispatched::<T>::ask(|| self.touch_line(port, time)) {
                Some(()) => {}
                None => self.touched(port, time),
            },
            Class::Dispatch => self.dispatch_due(port, time),
            Class::Check => self.check_pause(port, time),
            Class::Timer => {
                if let Some(flow) = self.timed(key) {
                    self.timer(flow, time);
                }
            }
            Class::Silence => {
                if let Some(flow) = self.timed(key) {
                    self.silence(flow, time);
                }
            }
            Class::Start => {
                self.note(key);
                self.start_messages(port, time);
            }
            Class::Pause => {
                self.note(key);
                self.pause_event(port, key.name(), time);
            }
            Class::Change => {
                if self.is_first() {
                    self.note(key);
                }
                self.change(port, time);
            }
            Class::Reduce => {
                self.note(key);
                self.reduce_event(port, key.name(), time);
            }
            Class::Sum => {
                self.note(key);
                self.sum_event(port, time);
            }
            Class::Credit => {
                self.note(key);
                self.grant(port, time);
            }
        }
    }

    /// The sending half that an event of a timer is for; one that is done has no timers.
    fn timed(&mut self, key: Key) -> Option<u32> {
        let flow = self.pairs.named(key.port(), key.name())?;
        // What is in flight then does not depend on when the port was last looked at.
        self.pull_for(flow, key.time().ps());
        let sender = &self.pairs.senders[flow as usize];
        self.account.note(|| key.told(), || sender.in_flight());
        Some(flow)
    }

    /// An event of the sending half `flow`.
    #[inline]
    pub(super) fn schedule_flow(&mut self, time: u64, class: Class, flow: u32) {
        let sender = &self.pairs.senders[flow as usize];
        self.timeline.schedule_key(Key::named(time, class, sender.port, sender.name));
    }

    /// The first packet on the cable of port `p` reaches the far end, or a transmission ends that was overtaken by its
    /// own header.
    #[inline]
    fn port_event(&mut self, p: u32, now: u64) {
        let port = &mut self.fabric.ports[p as usize];
        let (far, kind) = (port.far, port.kind);
        let (arrived, more) = port.land(&self.packets, now);
        port.armed = more;
        if more {
            let next = port.reaches;
            self.timeline.arm(p, next);
        }
        // While a packet is on the cable, what waits is started in time by its event, or by whoever touches the port. A stage
        // of another crate may know more than its port, and is asked as soon as can be.
        if !more || self.queues.on || Self::asks_stage() {
            self.refill(p, now);
        }
        if arrived == NONE {
            return;
        }
        self.account.totals.events += 1;
        if self.account.ears.is_some() {
            self.hear(p, arrived, now);
        }
        if self.fabric.kinds[usize::from(kind)].fragile {
            if self.perishes(p, arrived, kind, now) {
                return;
            }
            if self.account.ears.is_some() {
                self.hear_of(p, arrived, now);
            }
        }
        match far.as_switch() {
            Some(switch) => self.forward(p, switch, arrived, now),
            None => self.deliver(p, arrived, now),
        }
    }

    /// Starts what waits at port `p`, whose cable has nothing more on it, and sees to it that the port has an event if
    /// something still waits.
    fn refill(&mut self, p: u32, now: u64) {
        if Dispatched::<T>::ask(|| ()).is_some() {
            // A NIC's port wakes up by itself.
            if self.fabric.is_of_switch(p) {
                self.serve_line(p, now);
            }
            return;
        }
        if !self.fabric.is_of_switch(p) {
            self.pull(p, now);
        } else if self.queues.on {
            self.serve(p, now);
            self.send_frames(now);
        } else if self.fabric.ports[p as usize].waits() {
            self.advance(p, now);
            let port = &mut self.fabric.ports[p as usize];
            if !port.armed && port.waits() {
                port.armed = true;
                let next = port.free_at;
                self.timeline.arm(p, next);
            }
        }
    }

    /// Starts the transmission of a packet on a port that is free at `start`.
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub(super) fn begin(&mut self, p: u32, id: u32, start: u64) {
        let Self { fabric, packets, timeline, lead, telemetry, .. } = &mut *self;
        let Fabric { ports, kinds, switches, targets, .. } = fabric;
        let (port, packets) = (&mut ports[p as usize], packets.slots());
        let packet = &mut packets[id as usize];
        let kind = &kinds[usize::from(port.kind)];
        let reaches = port.transmit(packet, kind, start);
        let waited = if Self::has_lines() && port.owner != NONE { packet.waited_by(start) } else { 0 };
        packet.joined = u64::from(lead.ways(switches, targets).onwards(packet, port.far)) | waited;
        if telemetry.get().is_none() && !port.away {
            if port.launch(id, reaches, packets) {
                timeline.arm(p, reaches);
            }
            return;
        }
        let away = port.away;
        self.tell(p, id, start);
        if away {
            self.export(p, id, start, reaches);
        } else {
            self.launch(p, id, reaches);
        }
    }

    /// Puts a packet on the cable of port `p`, behind those that are there.
    #[inline]
    pub(super) fn launch(&mut self, p: u32, id: u32, reaches: u64) {
        if self.fabric.ports[p as usize].launch(id, reaches, self.packets.slots()) {
            self.timeline.arm(p, reaches);
        }
    }

    /// Writes what port `p` looks like into a data packet whose transmission begins at `start`.
    fn tell(&mut self, p: u32, id: u32, start: u64) {
        let Some(telemetry) = self.telemetry.get_mut() else { return };
        let port = &self.fabric.ports[p as usize];
        let packet = &self.packets[id];
        if port.owner == NONE || packet.kind != Kind::Data {
            return;
        }
        let hop = Hop {
            port: p,
            queue: port.held - u32::from(packet.wire),
            sent: port.counters.bytes,
            at: Time::from_ps(start),
            rate: self.fabric.kind(p).rate,
        };
        telemetry.push(id, hop);
    }

    /// A packet leaves the network without arriving.
    #[cold]
    pub(super) fn drop_packet(&mut self, p: u32, id: u32) {
        self.account.totals.drops += 1;
        let counters = &mut self.fabric.ports[p as usize].counters;
        counters.drops += 1;
        if self.packets[id].kind.is_control() {
            counters.control_drops += 1;
            self.account.totals.control_drops += 1;
        }
        self.hear_loss(p, id);
        self.discard(id);
    }

    /// Forgets a packet whose loss has been counted.
    pub(super) fn discard(&mut self, id: u32) {
        let packet = self.packets[id];
        if packet.kind == Kind::Ack {
            self.pairs.feedbacks.release(packet.detail);
        }
        self.packets.release(id);
        if packet.flags & flag::REDUCED != 0 {
            return;
        }
        let (back, own) = (packet.kind.goes_back(), packet.kind.is_own());
        let gone = Gone { half: packet.flow, back, own };
        let home = self.home(packet.to);
        match &mut self.crossing {
            Some(crossing) if crossing.number != home => crossing.gone.push((home, gone)),
            _ => self.count_gone(gone),
        }
    }
}
