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

use prefetch_index::prefetch_index;

use super::packets::{NONE, Packets};
use super::port::List;
use super::transport::{Bucket, Line, Lines, MOST_LINES, Order};

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

/// A port with its lines: what most hops look at is its first cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
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
    lines: [Waiting; MOST_LINES],
}

/// A line of a layout, as a hop asks for it.
#[derive(Clone, Copy, Debug)]
struct Law {
    packets: u32,
    bytes: u32,
    mark_above: u32,
    order: Order,
    /// A token's time, and that of all but one of a full bucket; both 0 where there is no bucket, whose line may always start.
    interval: u64,
    rest: u64,
}

impl Law {
    fn new(line: &Line) -> Self {
        let Line { packets, bytes, bucket, mark_above, order } = *line;
        let (interval, rest) = bucket.map_or((0, 0), |Bucket { interval, depth }| {
            (interval.ps(), u64::from(depth.saturating_sub(1)) * interval.ps())
        });
        Self { packets, bytes, mark_above, order, interval, rest }
    }
}

/// What may start at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Serve(usize),
    /// A bucket lets something start then.
    Wait(u64),
    Nothing,
}

/// A layout.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    laws: [Law; MOST_LINES],
    /// Bytes that may wait in all lines together.
    shared: u32,
}

impl Rule {
    fn new(lines: &Lines) -> Self {
        let mut laws = [Law::new(&Line::default()); MOST_LINES];
        for (law, line) in laws.iter_mut().zip(&lines.lines) {
            *law = Law::new(line);
        }
        Self { laws, shared: lines.shared.unwrap_or(u32::MAX) }
    }
}

/// See the module page.
#[derive(Clone, Debug, Default)]
pub(super) struct PortLines {
    rules: Vec<Rule>,
    /// Lines of a port.
    pub count: usize,
    pub places: Vec<Place>,
}

impl PortLines {
    /// Empty lines, `count` at each port, laid out by `rules`; `kinds` are those of the ports.
    pub(super) fn new(rules: &[Lines], count: usize, kinds: impl Iterator<Item = u16>) -> Self {
        let empty = Waiting { list: List::EMPTY, packets: 0, bytes: 0, full_at: 0 };
        let lines = [empty; MOST_LINES];
        let place = |rule| Place { since: 0, touch: u64::MAX, waiting: 0, some: 0, rule, lines };
        Self { rules: rules.iter().map(Rule::new).collect(), count, places: kinds.map(place).collect() }
    }

    /// Lays out port `p` by the rule of the links of `kind`. What its buckets lack is so many tokens still, which come at the new rate, and
    /// nothing keeps on waiting for the time that the old one had it wait for.
    pub(super) fn lay_anew(&mut self, p: u32, kind: u16, now: u64) {
        let place = &mut self.places[p as usize];
        let [old, new] = [place.rule, kind].map(|rule| &self.rules[usize::from(rule)].laws);
        for ((line, old), new) in place.lines.iter_mut().zip(old).zip(new) {
            let lacks = line.full_at.saturating_sub(now);
            if lacks > 0 && old.interval != 0 {
                let time = u128::from(lacks) * u128::from(new.interval) / u128::from(old.interval);
                line.full_at = now + u64::try_from(time).unwrap_or(u64::MAX / 2);
            }
        }
        place.rule = kind;
        place.since = place.since.min(now);
    }

    /// Has port `p` brought from memory, with its first line.
    #[inline]
    pub(super) fn prefetch(&self, p: u32) {
        prefetch_index(&self.places, p as usize);
    }

    /// The first packet that waits at port `p`, if there is such a port.
    #[inline]
    pub(super) fn head(&self, p: u32) -> Option<u32> {
        let place = self.places.get(p as usize)?;
        Some(place.lines[place.some.trailing_zeros() as usize % MOST_LINES].list.head)
    }

    /// Bytes that wait at a port.
    #[inline]
    pub(super) fn waiting(&self, p: u32) -> u32 {
        self.places[p as usize].waiting
    }

    /// Port `p` with its layout: each is looked up once a call.
    #[inline]
    pub(super) fn at(&mut self, p: u32) -> (&mut Place, &Rule) {
        let place = &mut self.places[p as usize];
        let rule = &self.rules[usize::from(place.rule)];
        (place, rule)
    }

    /// Which line of port `p` is served at `start`.
    #[inline]
    pub(super) fn choose(&self, p: u32, start: u64) -> Choice {
        let place = &self.places[p as usize];
        place.choose(&self.rules[usize::from(place.rule)], start)
    }
}

impl Place {
    /// Which line is served at `start`.
    #[inline]
    pub(super) fn choose(&self, rule: &Rule, start: u64) -> Choice {
        let (mut some, mut earliest) = (self.some, u64::MAX);
        while some != 0 {
            // Never more than the last, which spares a look at the bounds.
            let line = some.trailing_zeros() as usize % MOST_LINES;
            some &= some - 1;
            let Law { interval, rest, .. } = rule.laws[line];
            let may = self.lines[line].full_at.saturating_sub(rest);
            if interval == 0 || may <= start {
                return Choice::Serve(line);
            }
            earliest = earliest.min(may);
        }
        if earliest == u64::MAX { Choice::Nothing } else { Choice::Wait(earliest) }
    }

    /// Takes the packet of a line off whose turn it is at `start`, with its token: the packet, and its bytes.
    #[inline]
    pub(super) fn take(&mut self, rule: &Rule, line: usize, start: u64, packets: &mut Packets) -> (u32, u32) {
        let Law { interval, order, .. } = rule.laws[line];
        let waiting = &mut self.lines[line];
        if interval != 0 {
            waiting.full_at = waiting.full_at.max(start) + interval;
        }
        let id = match order {
            Order::Come => {
                let id = waiting.list.pop(packets);
                packets.prefetch(waiting.list.head);
                id
            }
            Order::Least => waiting.take_least(packets),
        };
        let wire = u32::from(packets[id].wire);
        self.left(line, wire);
        (id, wire)
    }

    /// Whether a line has room for a packet of `wire` bytes by itself.
    #[inline]
    pub(super) fn has_room(&self, rule: &Rule, line: usize, wire: u32) -> bool {
        let (waiting, law) = (&self.lines[line], &rule.laws[line]);
        waiting.packets < law.packets && waiting.bytes + wire <= law.bytes
    }

    /// Whether more waits in all lines together than may.
    #[inline]
    pub(super) fn is_over(&self, rule: &Rule) -> bool {
        self.waiting > rule.shared
    }

    /// Lets a packet of `wire` bytes through a port that is free and where nothing waits, with its token: as if it joined its line and were
    /// taken off at once. Whether it is to be marked; `None` if it may not start now, or has no room.
    #[inline]
    pub(super) fn pass(&mut self, rule: &Rule, line: usize, wire: u32, now: u64) -> Option<bool> {
        let law = &rule.laws[line];
        if law.packets == 0 || wire > law.bytes || wire > rule.shared {
            return None;
        }
        if law.interval != 0 {
            let full_at = &mut self.lines[line].full_at;
            if full_at.saturating_sub(law.rest) > now {
                return None;
            }
            *full_at = (*full_at).max(now) + law.interval;
        }
        self.since = now;
        Some(wire > law.mark_above)
    }

    /// Puts a packet of `wire` bytes at the end of a line; whether it is to be marked.
    #[inline]
    pub(super) fn push(
        &mut self,
        rule: &Rule,
        line: usize,
        (id, wire): (u32, u32),
        packets: &mut Packets,
    ) -> bool {
        let waiting = &mut self.lines[line];
        waiting.list.push(id, packets);
        waiting.packets += 1;
        waiting.bytes += wire;
        let bytes = waiting.bytes;
        self.waiting += wire;
        self.some |= 1 << line;
        bytes > rule.laws[line].mark_above
    }

    /// The packet that goes where all lines together hold too much: the last of the lowest priority, or of the greatest rank.
    pub(super) fn worst(&mut self, rule: &Rule, packets: &mut Packets) -> u32 {
        let line = 7 - self.some.leading_zeros() as usize;
        let order = rule.laws[line].order;
        let waiting = &mut self.lines[line];
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
        self.left(line, u32::from(packets[id].wire));
        id
    }

    /// A packet waits no longer in a line.
    #[inline]
    fn left(&mut self, line: usize, wire: u32) {
        let waiting = &mut self.lines[line];
        waiting.packets -= 1;
        waiting.bytes -= wire;
        self.waiting -= wire;
        if waiting.packets == 0 {
            self.some &= !(1 << line);
        }
    }
}

impl Waiting {
    /// Takes the first packet off of the queue pair whose packet has the least rank.
    fn take_least(&mut self, packets: &mut Packets) -> u32 {
        let (mut best, mut at) = (self.list.head, packets[self.list.head].next);
        while at != NONE {
            if packets[at].detail < packets[best].detail {
                best = at;
            }
            at = packets[at].next;
        }
        let flow = packets[best].flow;
        remove(&mut self.list, packets, |packet| packet.flow == flow)
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
