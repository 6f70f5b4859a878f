//! Lines of ports, where a [`Dispatcher`] lays them out: what waits, by strict priority and token buckets.
//!
//! **Life cycle.** As [`queues`](super::queues): a switch's port is advanced lazily, a packet joins its line after everything has started
//! whose turn came, and an event of the port's own ([`Class::Touch`]) starts what waits when nothing is on the cable. A NIC's port acts at
//! once, by [`dispatch`](super::dispatch).
//!
//! **Invariants.** `waiting` is the sum of the bytes of a port's lines; the packet on the wire is in none of them. A bucket of depth d with
//! a token each τ holds d - (full_at - t) / τ tokens at t.
//!
//! **Failure modes.** None: a packet that finds no room is dropped and counted at its port.

use windtunnel_kernel::Bytes;

use super::engine::{Dispatched, Engine};
use super::packets::{Kind, NONE, Packets, flag};
use super::port::{DATA, List};
use super::timeline::Class;
use super::transport::{
    Bucket, Dispatcher, FabricFacts, Feature, LinePort, Lines, MOST_LINES, Order, Transport,
};

/// Bits of a packet's queue that name its line; above them stands the kind of a note.
pub(super) const LINE_BITS: u32 = 3;

/// A line of a port.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    list: List,
    packets: u32,
    bytes: u32,
    /// When its bucket is full.
    full_at: u64,
}

/// A port.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Nothing that waits starts before.
    since: u64,
    /// Earliest event that only touches the port.
    touch: u64,
    waiting: u32,
    /// Lines in which something waits: a bit for each.
    some: u8,
    /// Its layout.
    rule: u16,
}

/// What may start at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Serve(usize),
    /// A bucket lets something start then.
    Wait(u64),
    Nothing,
}

/// See the module page.
#[derive(Clone, Debug, Default)]
pub(super) struct PortLines {
    /// Layouts by kind of link and by whether the port is a NIC's.
    rules: Vec<(u16, bool, Lines)>,
    /// Lines of a port.
    count: usize,
    /// By port, then line.
    each: Vec<Waiting>,
    places: Vec<Place>,
}

impl PortLines {
    fn rule(&self, p: u32) -> &Lines {
        &self.rules[usize::from(self.places[p as usize].rule)].2
    }

    #[inline]
    fn bucket(&self, p: u32, line: usize) -> Option<Bucket> {
        self.rule(p).lines[line].bucket
    }

    /// Bytes that wait at a port.
    #[inline]
    pub(super) fn waiting(&self, p: u32) -> u32 {
        self.places[p as usize].waiting
    }

    /// Which line is served at `start`.
    #[inline]
    pub(super) fn choose(&self, p: u32, start: u64) -> Choice {
        let (mut some, mut earliest) = (self.places[p as usize].some, u64::MAX);
        while some != 0 {
            let line = some.trailing_zeros() as usize;
            some &= some - 1;
            let Some(Bucket { interval, depth }) = self.bucket(p, line) else { return Choice::Serve(line) };
            let full_at = self.each[p as usize * self.count + line].full_at;
            let may = full_at.saturating_sub(u64::from(depth - 1) * interval.ps());
            if may <= start {
                return Choice::Serve(line);
            }
            earliest = earliest.min(may);
        }
        if earliest == u64::MAX { Choice::Nothing } else { Choice::Wait(earliest) }
    }

    /// Takes the packet of a line off whose turn it is at `start`, with its token.
    #[inline]
    pub(super) fn take(&mut self, p: u32, line: usize, start: u64, packets: &mut Packets) -> u32 {
        let (bucket, order) = (self.bucket(p, line), self.rule(p).lines[line].order);
        let waiting = &mut self.each[p as usize * self.count + line];
        if let Some(Bucket { interval, .. }) = bucket {
            waiting.full_at = waiting.full_at.max(start) + interval.ps();
        }
        let id = match order {
            Order::Come => waiting.list.pop(packets),
            Order::Least => {
                let (mut best, mut at) = (waiting.list.head, packets[waiting.list.head].next);
                while at != NONE {
                    if packets[at].detail < packets[best].detail {
                        best = at;
                    }
                    at = packets[at].next;
                }
                let flow = packets[best].flow;
                remove(&mut waiting.list, packets, |packet| packet.flow == flow)
            }
        };
        self.left(p, line, u32::from(packets[id].wire));
        id
    }

    /// A packet waits no longer in a line.
    #[inline]
    fn left(&mut self, p: u32, line: usize, wire: u32) {
        let waiting = &mut self.each[p as usize * self.count + line];
        waiting.packets -= 1;
        waiting.bytes -= wire;
        let place = &mut self.places[p as usize];
        place.waiting -= wire;
        if waiting.packets == 0 {
            place.some &= !(1 << line);
        }
    }

    /// Whether a line has room for a packet of `wire` bytes by itself.
    #[inline]
    fn has_room(&self, p: u32, line: usize, wire: u32) -> bool {
        let (waiting, rule) = (&self.each[p as usize * self.count + line], &self.rule(p).lines[line]);
        waiting.packets < rule.packets && waiting.bytes + wire <= rule.bytes
    }

    /// Puts a packet at the end of a line; whether it is to be marked.
    #[inline]
    fn push(&mut self, p: u32, line: usize, id: u32, packets: &mut Packets) -> bool {
        let wire = u32::from(packets[id].wire);
        let waiting = &mut self.each[p as usize * self.count + line];
        waiting.list.push(id, packets);
        waiting.packets += 1;
        waiting.bytes += wire;
        let bytes = waiting.bytes;
        let place = &mut self.places[p as usize];
        place.waiting += wire;
        place.some |= 1 << line;
        bytes > self.rule(p).lines[line].mark_above
    }

    /// The packet that goes where all lines together hold too much: the last of the lowest priority, or of the greatest rank.
    fn worst(&mut self, p: u32, packets: &mut Packets) -> u32 {
        let line = 7 - self.places[p as usize].some.leading_zeros() as usize;
        let order = self.rule(p).lines[line].order;
        let waiting = &mut self.each[p as usize * self.count + line];
        let mut worst = waiting.list.head;
        let mut at = worst;
        while at != NONE {
            if order == Order::Come || packets[at].detail >= packets[worst].detail {
                worst = at;
            }
            at = packets[at].next;
        }
        let mut left = worst;
        let id = remove_id(&mut waiting.list, packets, &mut left);
        self.left(p, line, u32::from(packets[id].wire));
        id
    }
}

/// Takes the first packet off a list that is wanted; there is one.
fn remove(list: &mut List, packets: &mut Packets, wanted: impl Fn(&super::packets::Packet) -> bool) -> u32 {
    let mut id = list.head;
    while !wanted(&packets[id]) {
        id = packets[id].next;
    }
    remove_id(list, packets, &mut id)
}

/// Takes a packet off the list that it is on.
fn remove_id(list: &mut List, packets: &mut Packets, id: &mut u32) -> u32 {
    let (id, mut before, mut at) = (*id, NONE, list.head);
    while at != id {
        (before, at) = (at, packets[at].next);
    }
    let next = packets[id].next;
    if before == NONE {
        list.head = next;
    } else {
        packets[before].next = next;
    }
    if next == NONE {
        list.tail = before;
    }
    id
}

impl<T: Transport> Engine<T> {
    /// Lays out the lines of all ports.
    pub(super) fn lay_lines(&mut self, facts: &FabricFacts) {
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let mut rules = Vec::new();
        for (number, kind) in (0u16..).zip(&self.fabric.kinds) {
            let nic = !kind.ecn_allowed;
            rules.push((number, nic, self.dispatcher.lines(&LinePort { rate: kind.rate, nic }, facts)));
        }
        let count = rules.first().map_or(0, |(.., lines)| lines.lines.len());
        assert!(
            (1..=MOST_LINES).contains(&count) && rules.iter().all(|(.., lines)| lines.lines.len() == count),
            "every port has the same number of lines"
        );
        let empty = Waiting { list: List::EMPTY, packets: 0, bytes: 0, full_at: 0 };
        let place = |port: &super::port::Port| Place {
            since: 0,
            touch: u64::MAX,
            waiting: 0,
            some: 0,
            rule: port.kind,
        };
        dispatch.lines = PortLines {
            rules,
            count,
            each: vec![empty; self.fabric.ports.len() * count],
            places: self.fabric.ports.iter().map(place).collect(),
        };
    }

    /// The kind of port `p` has changed, and with it its rate.
    pub(super) fn lay_line_anew(&mut self, p: u32) {
        if let Some(dispatch) = self.dispatch.get_mut() {
            dispatch.lines.places[p as usize].rule = self.fabric.ports[p as usize].kind;
        }
    }

    /// A packet joins its line at port `p`; whether it is there, and not dropped.
    pub(super) fn push_line(&mut self, p: u32, id: u32, now: u64) {
        let Some(dispatch) = self.dispatch.get_mut() else { return };
        let lines = &mut dispatch.lines;
        let packet = &mut self.packets[id];
        packet.joined = now;
        let (wire, last) = (u32::from(packet.wire), lines.count - 1);
        let line = if packet.flags & flag::REDUCED == 0 {
            usize::from(packet.queue & ((1 << LINE_BITS) - 1)).min(last)
        } else {
            last
        };
        if !lines.has_room(p, line, wire) {
            self.drop_packet(p, id);
            return;
        }
        let marks = lines.push(p, line, id, &mut self.packets);
        let over = lines.rule(p).shared.is_some_and(|shared| lines.waiting(p) > shared);
        let worst = over.then(|| lines.worst(p, &mut self.packets));
        lines.places[p as usize].since = now;
        let held = lines.waiting(p);
        if marks {
            self.packets[id].flags |= flag::MARKED;
            self.account.totals.marks += 1;
            self.fabric.ports[p as usize].counters.marks += 1;
        }
        let port = &mut self.fabric.ports[p as usize];
        port.held = held + if port.free_at > now { port.in_service } else { 0 };
        port.counters.deepest = port.counters.deepest.max(port.held);
        if let Some(worst) = worst {
            self.drop_packet(p, worst);
        }
    }

    /// A packet has come to a switch's port.
    pub(super) fn join_line(&mut self, p: u32, id: u32, now: u64) {
        self.serve_line(p, now);
        if self.stage_takes(p, id, now) {
            return;
        }
        if self.packets[id].kind == Kind::Trimmed {
            // Its header would mean nothing to a dispatcher.
            self.drop_packet(p, id);
            return;
        }
        self.push_line(p, id, now);
        self.serve_line(p, now);
    }

    /// Starts everything on a switch's port whose turn has come by `now`, and sees to it that it is touched when the next turn comes.
    pub(super) fn serve_line(&mut self, p: u32, now: u64) {
        loop {
            let Some(dispatch) = self.dispatch.get_mut() else { return };
            let lines = &mut dispatch.lines;
            if lines.places[p as usize].some == 0 {
                return;
            }
            let port = &self.fabric.ports[p as usize];
            let start = port.free_at.max(lines.places[p as usize].since);
            if start > now || port.down {
                break;
            }
            match lines.choose(p, start) {
                Choice::Serve(line) => {
                    let id = lines.take(p, line, start, &mut self.packets);
                    let held = lines.waiting(p);
                    if self.stage_drops(p, id, start, |_| held) {
                        self.drop_packet(p, id);
                        continue;
                    }
                    self.fabric.ports[p as usize].held = held + u32::from(self.packets[id].wire);
                    self.begin(p, id, start);
                }
                Choice::Wait(until) => lines.places[p as usize].since = until,
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
            if dispatch.lines.places[p as usize].some == 0 {
                break;
            }
            let id = dispatch.lines.worst(p, &mut self.packets);
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
