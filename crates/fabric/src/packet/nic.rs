//! NIC ports: queue pairs are asked for packets, round robin or by their queues, when the port is free.
//!
//! Like a switch's port, a NIC's is advanced lazily: [`Engine::pull`] starts, in order, everything that could start by
//! now. Whatever changes what a queue pair may send (an acknowledgement, a message, a timer) happens between two pulls:
//! before it, so that what came earlier is settled by the old state; after it, to use the new one.

use std::cmp::Reverse;

use windtunnel_kernel::Time;

use super::engine::{Dispatched, Engine, PlanesOf};
use super::pairs::Pairs;
use super::port::{CONTROL, DATA};
use super::sender::Turn;
use super::timeline::Class;
use super::transport::{Endpoint, Feature, MemoryOf, Transport};

/// What has become of the turn of contributions.
enum Pulled {
    /// One has been sent.
    Sent,
    /// Nothing may be sent before.
    Later(u64),
    /// It is the ring's, or pauses stop them.
    Yields,
}

impl<T: Transport> Engine<T> {
    /// Lets NIC port `p` start everything whose turn has come by `now`; where queue pairs take all planes, the ports of these too.
    #[inline]
    pub(super) fn pull(&mut self, p: u32, now: u64) {
        if Dispatched::<T>::ask(|| self.dispatch_port(p, now)).is_some() {
            return;
        }
        if PlanesOf::<T>::ask(|| self.pull_planes(p, now)).is_none() {
            let later = self.start_by(p, now);
            self.wake_at(p, later);
        }
    }

    /// Sees to it that NIC port `p` is pulled at `later`, if anything may start then.
    #[inline]
    pub(super) fn wake_at(&mut self, p: u32, later: u64) {
        // With a packet on the cable the port's own event comes in time.
        if later != u64::MAX
            && self.fabric.ports[p as usize].flight.is_empty()
            && self.pairs.nics[p as usize].wake > later
        {
            self.pairs.nics[p as usize].wake = later;
            self.timeline.schedule(later, Class::Wake, p);
        }
    }

    /// Starts everything at NIC port `p` whose turn has come by `now`; when the next thing may start, `u64::MAX` if nothing may.
    pub(super) fn start_by(&mut self, p: u32, now: u64) -> u64 {
        if self.fabric.ports[p as usize].down {
            return u64::MAX;
        }
        loop {
            let port = &mut self.fabric.ports[p as usize];
            if !port.waiting[CONTROL].is_empty() {
                if port.free_at > now {
                    break port.free_at;
                }
                let (start, id) = (port.free_at, port.waiting[CONTROL].pop(&self.packets));
                self.begin(p, id, start);
                continue;
            }
            let free_at = port.free_at;
            if !port.waiting[DATA].is_empty() {
                match self.pull_reduction(p, now) {
                    Pulled::Sent => continue,
                    Pulled::Later(start) => break start,
                    Pulled::Yields => {}
                }
            }
            let nic = &mut self.pairs.nics[p as usize];
            let mut start = free_at.max(nic.since);
            if nic.ready.is_empty() {
                while let Some(&Reverse((earliest, name, flow))) = nic.paced.peek()
                    && !self.pairs.senders[flow as usize].is_paced_to(earliest, name)
                {
                    nic.paced.pop();
                }
                match nic.paced.peek() {
                    Some(&Reverse((earliest, ..))) => start = start.max(earliest),
                    None => break u64::MAX,
                }
            }
            if start > now {
                break start;
            }
            while let Some(&Reverse((earliest, name, flow))) = nic.paced.peek()
                && earliest <= start
            {
                nic.paced.pop();
                if self.pairs.senders[flow as usize].is_paced_to(earliest, name) {
                    // Several may be due: if the first is blocked, the next one does not send before its instant either.
                    nic.since = nic.since.max(earliest);
                    self.pairs.senders[flow as usize].turn = Turn::Ready;
                    nic.ready.push(flow, &mut self.pairs.senders);
                }
            }
            let leg = nic.ready.pop(&self.pairs.senders);
            if self.queues.on && self.queues.stops(p, self.pairs.senders[leg as usize].queue) {
                self.pairs.senders[leg as usize].turn = Turn::Parked;
                self.queues.parked[p as usize].push(leg);
                continue;
            }
            let flow = self.pairs.lead(leg);
            if !self.pairs.senders[flow as usize].finds_more() {
                self.pairs.senders[leg as usize].turn = Turn::Idle;
                continue;
            }
            if !self.may_send(flow) || !self.may_take_plane(flow, leg, start) {
                self.pairs.senders[leg as usize].turn = Turn::Blocked;
                continue;
            }
            let pace = self.pairs.pace(flow);
            let id = self.make_packet(flow, leg, start);
            self.begin(p, id, start);
            self.pairs.hand_pace(flow, leg, pace);
            let sender = &mut self.pairs.senders[flow as usize];
            let nic = &mut self.pairs.nics[p as usize];
            nic.ready.sent(sender.queue);
            let more = sender.has_more();
            let sender = &mut self.pairs.senders[leg as usize];
            if !more {
                sender.turn = Turn::Idle;
            } else if sender.eligible > start {
                sender.turn = Turn::Paced;
                nic.paced.push(Reverse((sender.eligible, sender.name, leg)));
            } else {
                nic.ready.push(leg, &mut self.pairs.senders);
            }
        }
    }

    /// Contributions to reductions wait on the port's own list, and take turns with the ring: one packet each.
    #[cold]
    fn pull_reduction(&mut self, p: u32, now: u64) -> Pulled {
        let port = &self.fabric.ports[p as usize];
        if port.free_at > now {
            return Pulled::Later(port.free_at);
        }
        let head = &self.packets[port.waiting[DATA].head];
        let start = port.free_at.max(head.joined).max(self.pairs.nics[p as usize].resumed);
        if self.queues.on && self.queues.stops(p, head.queue) {
            return Pulled::Yields;
        }
        let nic = &mut self.pairs.nics[p as usize];
        while let Some(&Reverse((earliest, name, flow))) = nic.paced.peek()
            && !self.pairs.senders[flow as usize].is_paced_to(earliest, name)
        {
            nic.paced.pop();
        }
        let ring = !nic.ready.is_empty() && nic.since <= start
            || nic.paced.peek().is_some_and(|&Reverse((earliest, ..))| earliest <= start);
        if ring && std::mem::take(&mut nic.yields) {
            return Pulled::Yields;
        }
        nic.yields = true;
        let id = self.fabric.ports[p as usize].waiting[DATA].pop(&self.packets);
        self.begin(p, id, start);
        Pulled::Sent
    }

    /// Whether a queue pair sends on the plane of a leg whose port is free. The last that could is not refused while nothing is under way.
    #[inline]
    fn may_take_plane(&mut self, flow: u32, leg: u32, start: u64) -> bool {
        PlanesOf::<T>::ask(|| {
            let Pairs { senders, memories, .. } = &mut self.pairs;
            let plane = senders[leg as usize].port % self.fabric.topology.planes();
            let (state, now) = (&mut senders[flow as usize].cc, Time::from_ps(start));
            let takes = match memories.of(flow) {
                Some(memory) => self.endpoint.takes_plane(memory, state, plane, now),
                None => self.endpoint.takes_plane(&mut MemoryOf::<T::Endpoint>::default(), state, plane, now),
            };
            // With nothing under way nobody would ask again.
            takes
                || (self.pairs.senders[flow as usize].in_flight() == 0
                    && !self.pairs.stands(flow, Some(leg), |port| !self.fabric.ports[port as usize].down))
        })
        .unwrap_or(true)
    }

    /// A leg of a queue pair that waited for something may have its turn again. Its port has been pulled to `now`.
    pub(super) fn ready_leg(&mut self, leg: u32, flow: u32, now: u64) {
        let own = &self.pairs.senders[leg as usize];
        let (p, turn, before, wire) = (own.port, own.turn, own.eligible, own.last_wire);
        let sender = &mut self.pairs.senders[flow as usize];
        if matches!(turn, Turn::Ready | Turn::Parked) || !sender.has_more() {
            return;
        }
        // Its pace may have changed since its last packet.
        let eligible = if leg == flow {
            sender.repace(now, |flow, wire| self.endpoint.gap(flow, wire).ps())
        } else {
            let gap = self.endpoint.gap(&sender.cc, wire).ps();
            self.pairs.senders[leg as usize].repace(now, |_, _| gap)
        };
        let sender = &mut self.pairs.senders[leg as usize];
        sender.eligible = eligible;
        if turn == Turn::Paced && eligible == before {
            return;
        }
        let nic = &mut self.pairs.nics[p as usize];
        nic.since = now;
        if eligible > now {
            sender.turn = Turn::Paced;
            nic.paced.push(Reverse((eligible, sender.name, leg)));
        } else {
            sender.turn = Turn::Ready;
            nic.ready.push(leg, &mut self.pairs.senders);
        }
        self.pull(p, now);
    }

    /// Gives the queue pairs of NIC port `p` that were stopped by a pause their turns back; those whose queue is still
    /// paused lose them again.
    pub(super) fn unpark(&mut self, p: u32, now: u64) {
        self.pairs.nics[p as usize].resumed = now;
        let parked = std::mem::take(&mut self.queues.parked[p as usize]);
        for flow in parked {
            // A queue pair closed and opened again meanwhile waits for nothing.
            if self.pairs.senders[flow as usize].turn == Turn::Parked {
                self.pairs.senders[flow as usize].turn = Turn::Blocked;
                let lead = self.pairs.lead(flow);
                self.ready_leg(flow, lead, now);
            }
        }
        self.pull(p, now);
    }

    pub(super) fn wake(&mut self, p: u32, now: u64) {
        if self.pairs.nics[p as usize].wake == now {
            self.pairs.nics[p as usize].wake = u64::MAX;
            self.pull(p, now);
        }
    }

    /// A control packet leaves by NIC port `p`, before all data that waits.
    pub(super) fn send_control(&mut self, p: u32, id: u32, now: u64) {
        self.pull(p, now);
        self.packets[id].joined = now;
        let port = &mut self.fabric.ports[p as usize];
        if port.down {
            self.drop_down(p, id);
            return;
        }
        if port.free_at <= now && port.waiting[CONTROL].is_empty() {
            self.begin(p, id, now);
            return;
        }
        port.waiting[CONTROL].push(id, &mut self.packets);
        if port.flight.is_empty() {
            self.pull(p, now);
        }
    }
}
