//! Lines of ports, where a [`Dispatcher`](super::transport::Dispatcher) lays them out: what waits, by strict priority and token buckets.
//!
//! **Life cycle.** As [`queues`](super::queues): a switch's port is advanced lazily, a packet joins its line after everything has started
//! whose turn came, and an event of the port's own ([`Class::Touch`](super::timeline::Class::Touch)) starts what waits when nothing is on the cable. A NIC's port acts at
//! once, by [`dispatch`](super::dispatch).
//!
//! **Invariants.** `waiting` is the sum of the bytes of a port's lines; the packet on the wire is in none of them. A bucket of depth d with
//! a token each τ holds d - (full_at - t) / τ tokens at t.
//!
//! **Failure modes.** None: a packet that finds no room is dropped and counted at its port.

use super::packets::{NONE, Packets};
use super::port::List;
use super::transport::{Bucket, Lines, Order};

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
pub(super) struct Place {
    /// Nothing that waits starts before.
    pub since: u64,
    /// Earliest event that only touches the port.
    pub touch: u64,
    pub waiting: u32,
    /// Lines in which something waits: a bit for each.
    pub some: u8,
    /// Its layout.
    pub rule: u16,
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
    pub count: usize,
    /// By port, then line.
    each: Vec<Waiting>,
    pub places: Vec<Place>,
}

impl PortLines {
    /// Empty lines, `count` at each port, laid out by `rules`; `kinds` are those of the ports.
    pub(super) fn new(
        rules: Vec<(u16, bool, Lines)>,
        count: usize,
        kinds: impl ExactSizeIterator<Item = u16>,
    ) -> Self {
        let empty = Waiting { list: List::EMPTY, packets: 0, bytes: 0, full_at: 0 };
        let place = |rule| Place { since: 0, touch: u64::MAX, waiting: 0, some: 0, rule };
        Self { rules, count, each: vec![empty; kinds.len() * count], places: kinds.map(place).collect() }
    }

    /// Lays out port `p` by the rule of the links of `kind`.
    pub(super) fn lay_anew(&mut self, p: u32, kind: u16) {
        self.places[p as usize].rule = kind;
    }

    pub(super) fn rule(&self, p: u32) -> &Lines {
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
    pub(super) fn has_room(&self, p: u32, line: usize, wire: u32) -> bool {
        let (waiting, rule) = (&self.each[p as usize * self.count + line], &self.rule(p).lines[line]);
        waiting.packets < rule.packets && waiting.bytes + wire <= rule.bytes
    }

    /// Lets a packet of `wire` bytes through a port that is free and where nothing waits, with its token: as if it joined its line and were
    /// taken off at once. Whether it is to be marked; `None` if it may not start now, or has no room.
    #[inline]
    pub(super) fn pass(&mut self, p: u32, line: usize, wire: u32, now: u64) -> Option<bool> {
        let place = &mut self.places[p as usize];
        let rule = &self.rules[usize::from(place.rule)].2;
        let law = &rule.lines[line];
        if law.packets == 0 || wire > law.bytes || rule.shared.is_some_and(|shared| wire > shared) {
            return None;
        }
        if let Some(Bucket { interval, depth }) = law.bucket {
            let full_at = &mut self.each[p as usize * self.count + line].full_at;
            if full_at.saturating_sub(u64::from(depth - 1) * interval.ps()) > now {
                return None;
            }
            *full_at = (*full_at).max(now) + interval.ps();
        }
        place.since = now;
        Some(wire > law.mark_above)
    }

    /// Puts a packet at the end of a line; whether it is to be marked.
    #[inline]
    pub(super) fn push(&mut self, p: u32, line: usize, id: u32, packets: &mut Packets) -> bool {
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
    pub(super) fn worst(&mut self, p: u32, packets: &mut Packets) -> u32 {
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
pub(super) fn remove(
    list: &mut List,
    packets: &mut Packets,
    wanted: impl Fn(&super::packets::Packet) -> bool,
) -> u32 {
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
