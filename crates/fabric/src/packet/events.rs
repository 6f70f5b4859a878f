//! The event loop: what kinds of events there are, their order, and what each does.

use windtunnel_kernel::Time;
use windtunnel_kernel::queue::{EventKey, EventOrder};

use super::crossing::Gone;
use super::engine::{Completion, Engine};
use super::foresight::Ways;
use super::packets::{Kind, NONE, flag};
use super::telemetry::Hop;
use super::transport::Transport;

/// What kind of event but a port's (see [`Key`]): at an instant those of ports come first, the first packet on a port's
/// cable having reached the far end.
pub(super) mod class {
    /// A NIC port may have something to send.
    pub const WAKE: u32 = 1;
    /// A transport's own timer.
    pub const TIMER: u32 = 2;
    /// Something in flight may be lost.
    pub const SILENCE: u32 = 3;
    /// A message is handed over.
    pub const START: u32 = 4;
    /// Something is due at a switch's port that no packet's arrival brings about.
    pub const TOUCH: u32 = 5;
    /// A pause frame reaches the port that it is for; its name is twice the queue, and one more for a pause.
    pub const PAUSE: u32 = 7;
    /// A queue may have been paused for too long: after all that may end its pause.
    pub const CHECK: u32 = 14;
    /// Something changes that was known ahead: by its number, after all else at that instant.
    pub const CHANGE: u32 = 15;
    /// A NIC port may grant credit.
    pub const CREDIT: u32 = 8;
    /// Members of a reduction at a NIC port begin, or may wait in vain; its name is where the run is kept.
    pub const REDUCE: u32 = 9;
    /// Sums leave a switch's unit; named by its first port.
    pub const SUM: u32 = 10;
}

/// Order of events but ports': time, class, port, and for queue pairs the count that names one at its NIC port. Each has
/// at most one event of a class at an instant (several equal ones of a NIC or queue pair mean the same), so this order is
/// total and knows nothing of processes, nor of the places that things lie in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key(u128);

/// Ports are numbered in so many bits of a key.
pub(super) const PORT_BITS: u32 = 28;

impl Key {
    /// Of a port or a NIC port.
    #[inline]
    pub(super) const fn new(time: u64, class: u32, port: u32) -> Self {
        Self::named(time, class, port, 0)
    }

    /// Of the queue pair that is called `name` at its NIC port.
    #[inline]
    pub(super) const fn named(time: u64, class: u32, port: u32, name: u32) -> Self {
        Self((time as u128) << 64 | (class as u128) << (32 + PORT_BITS) | (port as u128) << 32 | name as u128)
    }

    #[inline]
    const fn class(self) -> u32 {
        (self.0 as u64 >> (32 + PORT_BITS)) as u32
    }

    #[inline]
    const fn port(self) -> u32 {
        (self.0 >> 32) as u32 & ((1 << PORT_BITS) - 1)
    }

    #[inline]
    const fn name(self) -> u32 {
        self.0 as u32
    }
}

impl EventOrder for Key {
    #[inline]
    fn time(self) -> Time {
        Time((self.0 >> 64) as u64)
    }

    #[inline]
    fn before(self, other: Self) -> bool {
        self.0 < other.0
    }
}

impl<T: Transport> Engine<T> {
    /// Handles events up to `limit`, at most `budget` and the rest of an instant begun, until messages have completed;
    /// these are appended. Returns the instant reached: that of the last event, or `limit` if there is no more before.
    pub fn run(&mut self, limit: Time, budget: u64, done: &mut Vec<Completion>) -> Time {
        let mut left = budget;
        while left > 0 && self.done.is_empty() && !self.has_halted() && self.step(limit.0) {
            left -= 1;
        }
        if left == 0 || !self.done.is_empty() {
            let instant = limit.0.min(self.clock);
            while !self.has_halted() && self.step(instant) {}
        }
        done.extend(self.done.drain(..).map(|(_, completion)| completion));
        // Nobody waits at the horizon itself: an engine that runs dry before it stays at its last event.
        if self.next_time() > limit && limit < Time::HORIZON && done.is_empty() {
            self.clock = self.clock.max(limit.0);
        }
        Time(self.clock)
    }

    /// Handles the next event if it is not after `bound`.
    #[inline]
    pub(super) fn step(&mut self, bound: u64) -> bool {
        // Events of ports come first at an instant.
        if let Some((Time(time), port)) = self.agenda.pop_until(Time(bound.min(self.soon))) {
            self.turn_to(time);
            self.look_ahead();
            self.port_event(port, time);
        } else if self.soon <= bound && self.soon != u64::MAX {
            self.turn_to(self.soon);
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
        self.clock = time;
    }

    /// Starts everything whose turn has come by `at`, to which the engine has run: what the counters tell then does not
    /// depend on when ports were last looked at.
    pub fn catch_up(&mut self, at: Time) {
        self.sample_before(at.0);
        self.clock = self.clock.max(at.0);
        for p in 0..self.ports.len() as u32 {
            self.settle_port(p, at.0);
        }
    }

    /// Counts an event, and adds it to the digest if one is kept, with a hash of what it was about.
    #[inline]
    fn note(&mut self, key: Key, effect: impl FnOnce(&Self) -> u64) {
        self.totals.events += 1;
        if self.digest.is_some() {
            let effect = effect(self);
            let (time, class) = (key.time(), key.class() as u8);
            let key = EventKey { time, class, receiver: key.port(), sender: key.name(), count: 0 };
            if let Some(digest) = &mut self.digest {
                digest.record(key, effect);
            }
        }
    }

    /// The first event that is not a port's.
    fn handle(&mut self) {
        let Some((key, ())) = self.queue.pop() else { return };
        self.soon = self.queue.peek().map_or(u64::MAX, |next| next.time().0);
        let (time, port) = (key.time().0, key.port());
        match key.class() {
            class::WAKE => self.wake(port, time),
            class::START => {
                self.note(key, |_| 0);
                self.start_messages(port, time);
            }
            class::TOUCH => self.touched(port, time),
            class::CHECK => self.check_pause(port, time),
            class::PAUSE => {
                self.note(key, |_| 0);
                self.pause_event(port, key.name(), time);
            }
            class::CHANGE => {
                if self.is_first() {
                    self.note(key, |_| 0);
                }
                self.change(port, time);
            }
            class::REDUCE => {
                self.note(key, |_| 0);
                self.reduce_event(port, key.name(), time);
            }
            class::SUM => {
                self.note(key, |_| 0);
                self.sum_event(port, time);
            }
            class::CREDIT => {
                self.note(key, |_| 0);
                self.grant(port, time);
            }
            class => {
                // One that is done has no timers.
                let Some(&flow) = self.named.get(&(port, key.name())) else { return };
                // What is in flight then does not depend on when the port was last looked at.
                self.pull(port, time);
                self.note(key, |engine| engine.senders[flow as usize].in_flight());
                if class == class::TIMER { self.timer(flow, time) } else { self.silence(flow, time) }
            }
        }
    }

    /// Schedules an event that is not a port's.
    #[inline]
    pub(super) fn schedule(&mut self, time: u64, class: u32, port: u32) {
        self.schedule_key(Key::new(time, class, port));
    }

    #[inline]
    pub(super) fn schedule_key(&mut self, key: Key) {
        self.soon = self.soon.min(key.time().0);
        self.queue.push(key, ());
    }

    /// An event of the sending half `flow`.
    #[inline]
    pub(super) fn schedule_flow(&mut self, time: u64, class: u32, flow: u32) {
        let sender = &self.senders[flow as usize];
        self.schedule_key(Key::named(time, class, sender.port, sender.name));
    }

    /// The first packet on the cable of port `p` reaches the far end, or a transmission ends that was overtaken by its
    /// own header.
    #[inline]
    fn port_event(&mut self, p: u32, now: u64) {
        let port = &mut self.ports[p as usize];
        let (far, kind) = (port.far, port.kind);
        let (arrived, more) = port.land(&self.packets, now);
        port.armed = more;
        if more {
            let next = port.reaches;
            self.agenda.push(p, Time(next));
        }
        // While a packet is on the cable, what waits is started in time by its event, or by whoever touches the port. A stage
        // of another crate may know more than its port, and is asked as soon as can be.
        if !more || self.queues.on || T::STAGED {
            self.refill(p, now);
        }
        if arrived == NONE {
            return;
        }
        self.note(Key::new(now, 0, p), |engine| engine.packets[arrived].digest());
        if self.kinds[usize::from(kind)].fragile && self.perishes(p, arrived, kind, now) {
            return;
        }
        match far.as_switch() {
            Some(switch) => self.forward(p, switch, arrived, now),
            None => self.deliver(p, arrived, now),
        }
    }

    /// Starts what waits at port `p`, whose cable has nothing more on it, and sees to it that the port has an event if
    /// something still waits.
    fn refill(&mut self, p: u32, now: u64) {
        if self.ports[p as usize].owner == NONE {
            self.pull(p, now);
        } else if self.queues.on {
            self.serve(p, now);
            self.send_frames(now);
        } else if self.ports[p as usize].waits() {
            self.advance(p, now);
            let port = &mut self.ports[p as usize];
            if !port.armed && port.waits() {
                port.armed = true;
                let next = port.free_at;
                self.agenda.push(p, Time(next));
            }
        }
    }

    /// Starts the transmission of a packet on a port that is free at `start`.
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub(super) fn begin(&mut self, p: u32, id: u32, start: u64) {
        let Self { ports, packets, kinds, agenda, paths, rules, switches, targets, simple, .. } = &mut *self;
        let (port, packets) = (&mut ports[p as usize], packets.slots());
        let packet = &mut packets[id as usize];
        let kind = &kinds[usize::from(port.kind)];
        let reaches = port.transmit(packet, kind, start);
        let rules = if *simple { &rules[..] } else { &[] };
        packet.joined = u64::from(Ways { paths, rules, switches, targets }.onwards(packet, port.far));
        if !T::TELEMETRY && !port.away {
            if port.launch(id, reaches, packets) {
                agenda.push(p, Time(reaches));
            }
            return;
        }
        let away = port.away;
        if T::TELEMETRY {
            self.tell(p, id, start);
        }
        if away {
            self.export(p, id, start, reaches);
        } else {
            self.launch(p, id, reaches);
        }
    }

    /// Puts a packet on the cable of port `p`, behind those that are there.
    #[inline]
    pub(super) fn launch(&mut self, p: u32, id: u32, reaches: u64) {
        if self.ports[p as usize].launch(id, reaches, self.packets.slots()) {
            self.agenda.push(p, Time(reaches));
        }
    }

    /// Writes what port `p` looks like into a data packet whose transmission begins at `start`.
    fn tell(&mut self, p: u32, id: u32, start: u64) {
        let port = &self.ports[p as usize];
        let packet = &self.packets[id];
        if port.owner == NONE || packet.kind != Kind::Data {
            return;
        }
        let hop = Hop {
            port: p,
            queue: port.held - u32::from(packet.wire),
            sent: port.counters.bytes,
            at: Time(start),
            rate: self.kinds[usize::from(port.kind)].rate,
        };
        self.telemetry.push(id, hop);
    }

    /// A packet leaves the network without arriving.
    #[cold]
    pub(super) fn drop_packet(&mut self, p: u32, id: u32) {
        self.totals.drops += 1;
        let counters = &mut self.ports[p as usize].counters;
        counters.drops += 1;
        if self.packets[id].kind.is_control() {
            counters.control_drops += 1;
        }
        self.discard(id);
    }

    /// Forgets a packet whose loss has been counted.
    pub(super) fn discard(&mut self, id: u32) {
        let packet = self.packets[id];
        if packet.kind == Kind::Ack {
            self.feedbacks.release(packet.detail);
        }
        self.packets.release(id);
        if packet.flags & flag::REDUCED != 0 {
            return;
        }
        let gone = Gone { half: packet.flow, back: packet.kind.goes_back() };
        let home = self.home(packet.to);
        match &mut self.crossing {
            Some(crossing) if crossing.number != home => crossing.gone.push((home, gone)),
            _ => self.count_gone(gone),
        }
    }
}
