//! Priority flow control: what each ingress holds, pause frames, the watchdog, and pauses that wait for one another.
//!
//! **Life cycle.** A lossless packet is charged to its ingress: the far end of the port it came by, which names it. Up to
//! xoff it takes shared buffer. One that does not fit goes to the ingress's headroom, and a pause frame leaves by the port
//! of the same cable, before all that waits there, after what is in service. Its event, `PAUSE` at the upstream port, is
//! all that the other end learns: that port starts nothing of the queue from that instant on (a service that begins at it
//! is not stopped). What is sent gives its bytes back, headroom first; when headroom is empty and the rest is down to xon,
//! a frame that resumes goes the same way.
//!
//! **Exactness.** Bytes are given back when a port is touched, which may be late, so what is known is an upper bound. An
//! ingress that the bound would pause has the switch's ports served first; and as long as a switch pauses any ingress,
//! each of its ports has an event at the end of its transmission, so a resume leaves when bytes are given back.
//!
//! **Invariants.** Sums over queues and ingresses of a switch's lossless bytes are equal. `pausing` lists the ingresses
//! with `paused`. Pause frames of one cable arrive in the order in which they were decided.
//!
//! **Control packets** are no ingress's. What paused senders have sent may fill the shared part for long, so where there are pauses
//! every port keeps room for some of them aside; without, acknowledgements would be lost of data that are not.
//!
//! **Failure modes.** Headroom set below what the cable needs drops packets (counted as drops of the egress). Pauses that
//! wait for one another in a cycle end the run, unless a watchdog breaks them.
//!
//! IEEE 802.1Qbb-2011; Guo et al., "RDMA over commodity Ethernet at scale", SIGCOMM 2016 (deadlocks, watchdog); Hu et al.,
//! "Deadlocks in datacenter networks: why do they form, and how to avoid them", HotNets 2016.

use std::collections::BTreeMap;

use windtunnel_kernel::Bytes;
use windtunnel_topology::LinkId;

use super::buffer::Switch;
use super::engine::Engine;
use super::packets::NONE;
use super::pauses::{Frame, Limit, Paused, Pauses};
use super::port::CONTROL;
use super::queues::Queues;
use super::statistics::PauseCounters;
use super::timeline::{Class, Key};
use super::transport::Transport;

impl Queues {
    /// Takes shared buffer of `switch` for a packet if its ingress may hold it.
    fn fits(&mut self, switch: &mut Switch, queue: usize, upstream: u32, wire: u16) -> bool {
        let place = self.place(upstream, queue);
        let Some(guard) = &self.guard else { return false };
        let reserve = self.rules[queue].reserve;
        let ingress = &mut self.ingress[place];
        let held = ingress.shared + u32::from(wire);
        let (had, has) = (ingress.shared.saturating_sub(reserve), held.saturating_sub(reserve));
        let more = u64::from(has - had);
        let free = switch.free();
        let counted = match guard.xoff {
            Limit::Bytes(_) => held,
            Limit::Share(_) => has,
        };
        if has > 0 && (u64::from(counted) > guard.xoff(free) || more > free) {
            return false;
        }
        ingress.shared = held;
        switch.used += more;
        true
    }

    /// Time after which it is looked up whether a pause can end; `None` where none is looked at.
    pub(super) fn patience(&self) -> Option<u64> {
        let guard = self.guard.as_ref()?;
        guard.settings.watchdog.is_none().then_some(guard.settings.patience.ps())
    }

    /// Whether a queue of port `p` has been paused for long.
    pub(super) fn is_paused_for_long(&self, p: u32, now: u64) -> bool {
        let Some(patience) = self.patience() else { return false };
        let paused = self.stations[p as usize].paused;
        (0..self.count).any(|queue| {
            paused & 1 << queue != 0 && self.each[self.place(p, queue)].paused_at + patience <= now
        })
    }

    /// These pauses wait for one another: the run is over.
    pub(super) fn end_by(&mut self, cycle: Vec<Paused>) {
        if let Some(guard) = &mut self.guard {
            guard.cycle = cycle;
        }
    }

    /// Times that queues of port `p` were paused until `now`, for how long, and packets dropped for it.
    pub(super) fn paused_at(&self, p: u32, now: u64) -> PauseCounters {
        let Some(station) = self.stations.get(p as usize) else { return PauseCounters::default() };
        let open = (0..self.count)
            .filter(|queue| station.paused & 1 << queue != 0)
            .map(|queue| now - self.each[self.place(p, queue)].paused_at);
        PauseCounters {
            pauses: u64::from(station.pauses),
            paused: station.paused_for + open.sum::<u64>(),
            dropped: u64::from(station.dropped),
        }
    }

    /// Whether pauses wait for one another, so that the run is over.
    #[inline]
    pub(super) fn are_stuck(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| !guard.cycle.is_empty())
    }
}

impl<T: Transport> Engine<T> {
    /// Takes room for a lossless packet at its ingress; pauses its sender if that is headroom.
    pub(super) fn admit_ingress(&mut self, p: u32, queue: usize, upstream: u32, wire: u16, now: u64) -> bool {
        // What a switch sends of a reduction came by no port.
        if upstream == NONE {
            return true;
        }
        let owner = self.fabric.ports[p as usize].owner;
        if self.queues.fits(&mut self.fabric.switches[owner as usize], queue, upstream, wire) {
            return true;
        }
        self.refresh_queues(owner, now);
        if self.queues.fits(&mut self.fabric.switches[owner as usize], queue, upstream, wire) {
            return true;
        }
        let place = self.queues.place(upstream, queue);
        let limit = self.queues.guard.as_ref().map_or(0, |guard| guard.headroom[upstream as usize]);
        let ingress = &mut self.queues.ingress[place];
        let room = ingress.headroom + u32::from(wire) <= limit;
        if room {
            ingress.headroom += u32::from(wire);
        }
        if !ingress.paused {
            ingress.paused = true;
            let queue = queue as u8;
            self.queues.frames.push(Frame { upstream, queue, pause: true });
            self.queues.pausing[owner as usize].push((upstream, queue));
            if self.queues.pausing[owner as usize].len() == 1 {
                for port in self.fabric.ports_of(owner) {
                    self.look_again(port, now);
                }
            }
        }
        room
    }

    /// A lossless packet is held no longer.
    pub(super) fn release_ingress(&mut self, owner: usize, queue: usize, upstream: u32, wire: u16, now: u64) {
        if upstream == NONE {
            return;
        }
        let place = self.queues.place(upstream, queue);
        let reserve = self.queues.rules[queue].reserve;
        let ingress = &mut self.queues.ingress[place];
        let from_headroom = ingress.headroom.min(u32::from(wire));
        ingress.headroom -= from_headroom;
        let before = ingress.shared.saturating_sub(reserve);
        ingress.shared -= u32::from(wire) - from_headroom;
        self.fabric.switches[owner].used -= u64::from(before - ingress.shared.saturating_sub(reserve));
        self.resume_all(owner, now);
    }

    /// Resumes the ingresses of a switch that may go on.
    #[inline]
    pub(super) fn resume_all(&mut self, owner: usize, now: u64) {
        if self.queues.pausing[owner].is_empty() {
            return;
        }
        self.resume_some(owner, now);
    }

    fn resume_some(&mut self, owner: usize, _now: u64) {
        let Queues { guard, ingress, pausing, frames, count, .. } = &mut self.queues;
        let Some(guard) = guard else { return };
        let xon = guard.xon(self.fabric.switches[owner].free());
        pausing[owner].retain(|&(upstream, queue)| {
            let state = &mut ingress[upstream as usize * *count + usize::from(queue)];
            let goes_on = state.headroom == 0 && (u64::from(state.shared) <= xon || state.shared == 0);
            if goes_on {
                state.paused = false;
                frames.push(Frame { upstream, queue, pause: false });
            }
            !goes_on
        });
    }

    /// Sends the pause frames that have been decided, in that order.
    #[inline]
    pub(super) fn send_frames(&mut self, now: u64) {
        let mut sent = 0;
        while let Some(&frame) = self.queues.frames.get(sent) {
            sent += 1;
            self.send_frame(frame, now);
        }
        self.queues.frames.clear();
    }

    fn send_frame(&mut self, frame: Frame, now: u64) {
        let by = self.queues.stations[frame.upstream as usize].reverse;
        self.serve(by, now);
        let Some(guard) = &self.queues.guard else { return };
        let (size, response) = (guard.settings.frame.get() as u16, guard.settings.response.ps());
        let port = &mut self.fabric.ports[by as usize];
        let kind = &self.fabric.kinds[usize::from(port.kind)];
        port.free_at = port.free_at.max(now) + kind.serialise(size);
        port.counters.bytes += u64::from(size);
        let heeded = port.free_at + kind.delay + response;
        self.look_again(by, now);
        let name = u32::from(frame.queue) << 1 | u32::from(frame.pause);
        if self.fabric.ports[by as usize].away {
            self.export_frame(by, now, (heeded, frame.upstream, name));
        } else {
            self.timeline.schedule_key(Key::named(heeded, Class::Pause, frame.upstream, name));
        }
    }

    /// A pause or resume has reached port `p`; `name` says which of what queue.
    pub(super) fn pause_event(&mut self, p: u32, name: u32, now: u64) {
        let (queue, pause) = ((name >> 1) as usize, name & 1 == 1);
        if self.fabric.ports[p as usize].down {
            return;
        }
        let nic = !self.fabric.is_of_switch(p);
        if nic {
            self.pull(p, now);
        } else {
            self.serve(p, now);
        }
        let place = self.queues.place(p, queue);
        let station = &mut self.queues.stations[p as usize];
        let bit = 1u8 << queue;
        if (station.paused & bit != 0) == pause {
            // Said again after its link was down.
            self.send_frames(now);
            return;
        }
        if pause {
            station.paused |= bit;
            station.pauses += 1;
            self.queues.each[place].paused_at = now;
            self.account.totals.pauses += 1;
            let Some(guard) = &self.queues.guard else { return };
            match guard.settings.watchdog {
                Some(patience) if !nic => self.timeline.schedule(now + patience.ps(), Class::Touch, p),
                Some(_) => {}
                None => {
                    let due = now + guard.settings.patience.ps();
                    self.check_later(due, p);
                }
            }
        } else {
            station.paused &= !bit;
            station.dropping &= !bit;
            station.paused_for += now - self.queues.each[place].paused_at;
            station.since = now;
            if nic {
                self.unpark(p, now);
                return;
            }
            self.serve(p, now);
        }
        self.send_frames(now);
    }

    /// The link of port `p` goes down: what waits is lost, and its pauses are over.
    pub(super) fn queues_down(&mut self, p: u32, now: u64) {
        for queue in 0..self.queues.count {
            let place = self.queues.place(p, queue);
            let paused_at = self.queues.each[place].paused_at;
            let station = &mut self.queues.stations[p as usize];
            if station.paused & 1 << queue != 0 {
                station.paused_for += now - paused_at;
            }
        }
        let station = &mut self.queues.stations[p as usize];
        (station.paused, station.dropping) = (0, 0);
        if !self.fabric.is_of_switch(p) {
            while !self.fabric.ports[p as usize].waiting[CONTROL].is_empty() {
                let id = self.fabric.ports[p as usize].waiting[CONTROL].pop(&self.packets);
                self.drop_down(p, id);
            }
            self.unpark(p, now);
            return;
        }
        for lane in 0..=self.queues.count {
            loop {
                let list = match self.queues.count - lane {
                    0 => &mut self.fabric.ports[p as usize].waiting[CONTROL],
                    _ => &mut self.queues.each[p as usize * self.queues.count + lane].waiting,
                };
                if list.is_empty() {
                    break;
                }
                let id = list.pop(&self.packets);
                let packet = &self.packets[id];
                let (upstream, wire) = (packet.next_time as u32, packet.wire);
                self.give_up(p, lane, upstream, wire, now);
                self.drop_down(p, id);
            }
        }
        self.look_again(p, now);
        self.send_frames(now);
    }

    /// The link of port `p` comes up. If what came by its cable still pauses the sender there, `p` says so again, as it
    /// does all the time.
    pub(super) fn queues_up(&mut self, p: u32, now: u64) {
        let station = &mut self.queues.stations[p as usize];
        station.since = now;
        let upstream = station.reverse;
        if self.queues.guard.is_none() || !self.fabric.is_of_switch(p) {
            return;
        }
        for queue in 0..self.queues.count {
            if self.queues.ingress[self.queues.place(upstream, queue)].paused {
                self.queues.frames.push(Frame { upstream, queue: queue as u8, pause: true });
            }
        }
        self.send_frames(now);
    }

    /// Drops what waits in queues of port `p` that have been paused for too long.
    pub(super) fn watch_pause(&mut self, p: u32, now: u64) {
        let Some(limit) = self.queues.guard.as_ref().and_then(|guard| guard.settings.watchdog) else {
            return;
        };
        let limit = limit.ps();
        for queue in 0..self.queues.count {
            let place = self.queues.place(p, queue);
            let bit = 1u8 << queue;
            let station = &mut self.queues.stations[p as usize];
            let due = self.queues.each[place].paused_at.saturating_add(limit) <= now;
            if station.paused & !station.dropping & bit == 0 || !due {
                continue;
            }
            station.dropping |= bit;
            while !self.queues.each[place].waiting.is_empty() {
                let id = self.queues.each[place].waiting.pop(&self.packets);
                let packet = &self.packets[id];
                let (upstream, wire) = (packet.next_time as u32, packet.wire);
                self.queues.stations[p as usize].dropped += 1;
                self.give_up(p, queue, upstream, wire, now);
                self.drop_packet(p, id);
            }
        }
    }

    /// A queue of port `p` may have been paused for long: if its pause cannot end any more, the run does.
    pub(super) fn check_pause(&mut self, p: u32, now: u64) {
        if !self.queues.is_paused_for_long(p, now) {
            return;
        }
        let cycle = self.pauses().cycle();
        if cycle.is_empty() {
            self.check_later(now + self.queues.patience().unwrap_or(0), p);
        } else {
            self.queues.end_by(cycle);
        }
    }

    /// What this process knows of pauses.
    pub(super) fn pauses(&self) -> Pauses {
        let count = self.queues.count;
        let mut pauses = Pauses::default();
        let Some(guard) = &self.queues.guard else { return pauses };
        for (p, station) in (0u32..).zip(&self.queues.stations) {
            for queue in (0..count).filter(|queue| station.paused & 1 << queue != 0) {
                let mut came: BTreeMap<Paused, u64> = BTreeMap::new();
                let mut id = self.queues.each[self.queues.place(p, queue)].waiting.head;
                while id != NONE {
                    let packet = &self.packets[id];
                    *came.entry((packet.next_time as u32, packet.queue)).or_default() +=
                        u64::from(packet.wire);
                    id = packet.next;
                }
                pauses.waits.insert((p, queue as u8), (self.fabric.ports[p as usize].owner, came));
            }
        }
        for (switch, pausing) in self.queues.pausing.iter().enumerate() {
            for &(upstream, queue) in pausing {
                let ingress = self.queues.ingress[self.queues.place(upstream, usize::from(queue))];
                let shared = self.fabric.switches[switch].shared;
                pauses.held.insert((upstream, queue), (switch as u32, shared, ingress));
            }
        }
        pauses.guard = Some(guard.clone());
        pauses
    }

    /// Links whose pauses wait for one another, each for the next and the last for the first: nothing on them moves any
    /// more, and the engine has stopped. Empty while there are none.
    pub fn pause_cycle(&self) -> Vec<LinkId> {
        let cycle = self.queues.guard.iter().flat_map(|guard| &guard.cycle);
        cycle.map(|&(p, _)| self.fabric.link_of(p)).collect()
    }

    /// The headroom of the far end of each link to a switch, in bytes; empty without PFC.
    pub fn headrooms(&self) -> Vec<(LinkId, Bytes)> {
        let Some(guard) = &self.queues.guard else { return Vec::new() };
        let ingress =
            (0u32..).zip(&guard.headroom).filter(|&(p, _)| self.queues.stations[p as usize].reverse != NONE);
        ingress
            .filter(|&(p, _)| self.fabric.ports[p as usize].far.as_switch().is_some())
            .map(|(p, &bytes)| (self.fabric.link_of(p), Bytes::new(u64::from(bytes))))
            .collect()
    }
}
