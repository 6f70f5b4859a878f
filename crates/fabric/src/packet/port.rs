//! An egress port with its cable: see `docs/packet-model.md`, "One event per hop".

use std::hint::select_unpredictable;

use windtunnel_kernel::Bytes;

use super::link::LinkKind;
use super::packets::{NONE, Packet, Packets};
use super::statistics::PortCounters;

/// Places of the two classes of what waits.
pub(super) const DATA: usize = 0;
pub(super) const CONTROL: usize = 1;

/// A first-in-first-out list through the slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub head: u32,
    pub tail: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    #[inline]
    pub(super) const fn is_empty(self) -> bool {
        self.head == NONE
    }

    /// Puts a packet at the end.
    #[inline]
    pub(super) fn push(&mut self, id: u32, packets: &mut Packets) {
        self.push_among(id, packets.slots());
    }

    /// The same. Whether others wait is anybody's guess, so nothing branches on it: alone, a packet follows itself for a
    /// moment.
    #[inline]
    pub(super) fn push_among(&mut self, id: u32, packets: &mut [Packet]) {
        let alone = self.head == NONE;
        let last = select_unpredictable(alone, id, self.tail);
        self.head = select_unpredictable(alone, id, self.head);
        packets[last as usize].next = id;
        packets[id as usize].next = NONE;
        self.tail = id;
    }

    /// Puts at the end what is linked elsewhere: `link` has the one before it, if any, point to `id`.
    #[inline]
    pub(super) fn append(&mut self, id: u32, link: impl FnOnce(u32)) {
        if self.is_empty() {
            self.head = id;
        } else {
            link(self.tail);
        }
        self.tail = id;
    }

    /// Takes the first packet off a list that has one.
    #[inline]
    pub(super) fn pop(&mut self, packets: &Packets) -> u32 {
        let id = self.head;
        self.head = packets[id].next;
        id
    }
}

/// The far end of a port's cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Far(u32);

impl Far {
    const NIC: u32 = 1 << 31;

    pub(super) const fn switch(switch: u32) -> Self {
        Self(switch)
    }

    pub(super) const fn nic() -> Self {
        Self(Self::NIC)
    }

    /// The switch, if it is one.
    #[inline]
    pub(super) const fn as_switch(self) -> Option<u32> {
        if self.0 & Self::NIC == 0 { Some(self.0) } else { None }
    }
}

/// A port: its hot state in one cache line, its counters in the next, which comes with it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub(super) struct Port {
    /// End of the last transmission that began.
    pub free_at: u64,
    /// When the first packet on the cable reaches the far end.
    pub reaches: u64,
    /// On the cable or being sent, in order of arrival.
    pub flight: List,
    /// What waits: [`DATA`] and [`CONTROL`].
    pub waiting: [List; 2],
    /// Bytes that wait, and those of the packet in service as last known: held in the buffer.
    pub held: u32,
    /// Of them the packet in service.
    pub in_service: u32,
    pub far: Far,
    /// Switch that it belongs to, [`NONE`] for a NIC's.
    pub owner: u32,
    /// Place among the kinds of links.
    pub kind: u16,
    /// Whether it has an event; of one that is away whether it is looked at when the window ends.
    pub armed: bool,
    /// Whether the far end lives in another process: what is sent is posted.
    pub away: bool,
    /// Whether its link is down.
    pub down: bool,
    pub counters: PortCounters,
}

impl Port {
    pub(super) const fn new(far: Far, owner: u32, kind: u16) -> Self {
        Self {
            free_at: 0,
            reaches: 0,
            flight: List::EMPTY,
            waiting: [List::EMPTY; 2],
            held: 0,
            in_service: 0,
            far,
            owner,
            kind,
            armed: false,
            away: false,
            down: false,
            counters: PortCounters::NEW,
        }
    }

    #[inline]
    pub(super) const fn waits(&self) -> bool {
        // All bits of [`NONE`] are set.
        self.waiting[DATA].head & self.waiting[CONTROL].head != NONE
    }

    /// Whether the turn of something that waits has come by `now`.
    #[expect(clippy::needless_bitwise_bool, reason = "one branch is seldom foreseen, two even less")]
    #[inline]
    pub(super) const fn is_due(&self, now: u64) -> bool {
        self.waits() & (self.free_at <= now)
    }

    /// The packet whose turn is next, [`NONE`] if nothing waits.
    #[inline]
    pub(super) const fn next_up(&self) -> u32 {
        let class = if self.waiting[CONTROL].is_empty() { DATA } else { CONTROL };
        self.waiting[class].head
    }

    /// Takes the packet off whose turn is next, control before data; something waits.
    #[inline]
    pub(super) fn pop(&mut self, packets: &[Packet]) -> u32 {
        let class = usize::from(!self.waiting[CONTROL].is_empty());
        let list = &mut self.waiting[class];
        let id = list.head;
        let packet = &packets[id as usize];
        list.head = packet.next;
        self.counters.headers -= u32::from(packet.wire) * class as u32;
        id
    }

    /// Starts a transmission of `packet` at `start`; when it reaches the far end's queue.
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub(super) fn transmit(&mut self, packet: &Packet, kind: &LinkKind, start: u64) -> u64 {
        let wire = packet.wire;
        let end = start + kind.serialise(wire);
        self.free_at = end;
        self.in_service = u32::from(wire);
        let data = u64::from(!packet.kind.is_control());
        let counters = &mut self.counters;
        counters.bytes += u64::from(wire);
        // Bytes times picoseconds: 64 bits of them are an hour of a packet.
        let held = (u128::from(wire) * u128::from(end - packet.joined)) >> 10;
        counters.held = counters.held.saturating_add(held as u64);
        counters.packets += data;
        counters.control += 1 - data;
        counters.waited = counters.waited.saturating_add(start.wrapping_sub(packet.joined) * data);
        kind.reaches(start, end, wire)
    }

    /// What the port has counted by `at`: a packet is counted whole as its transmission begins, and of one that is on its way out
    /// this leaves out the bytes that leave after `at`, with the time for which they are held then. So no port sends more than
    /// its rate times the time.
    pub(super) fn counted_by(&self, at: u64, kind: &LinkKind) -> PortCounters {
        let mut counters = self.counters;
        let left = self.free_at.saturating_sub(at);
        if left > 0 && self.in_service > 0 {
            let wire = u64::from(self.in_service);
            let whole = kind.rate.serialise(Bytes::new(wire)).ps().max(1);
            // A port that is kept busy by something else than this packet sends none of it so far.
            let later = (u128::from(wire) * u128::from(left.min(whole))).div_ceil(u128::from(whole)) as u64;
            counters.bytes = counters.bytes.saturating_sub(later);
            let unheld = (u128::from(wire) * u128::from(left)) >> 10;
            counters.held = counters.held.saturating_sub(unheld as u64);
        }
        counters
    }

    /// Puts a packet on the cable behind those that are there; whether the port needs an event for it.
    #[inline]
    pub(super) fn launch(&mut self, id: u32, reaches: u64, packets: &mut [Packet]) -> bool {
        packets[id as usize].next = NONE;
        let tail = std::mem::replace(&mut self.flight.tail, id);
        if self.flight.is_empty() {
            self.flight.head = id;
            self.reaches = reaches;
            return !std::mem::replace(&mut self.armed, true);
        }
        let last = &mut packets[tail as usize];
        last.next = id;
        last.next_time = reaches;
        false
    }

    /// Takes the packet off the cable that reaches the far end now, or [`NONE`]; whether another follows.
    #[inline]
    pub(super) fn land(&mut self, packets: &Packets, now: u64) -> (u32, bool) {
        let mut arrived = NONE;
        if let Some(packet) = packets.get(self.flight.head)
            && self.reaches == now
        {
            arrived = self.flight.head;
            self.flight.head = packet.next;
            self.reaches = packet.next_time;
        }
        (arrived, !self.flight.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::BitRate;

    use super::*;
    use crate::packet::link::LinkFacts;
    use crate::packet::packets::Packet;
    use crate::packet::settings::PacketSettings;

    #[test]
    fn a_port_is_two_cache_lines() {
        assert_eq!((size_of::<Port>(), std::mem::offset_of!(Port, counters)), (128, 64));
    }

    /// At 400 Gbps a byte takes 20 ps: 1,000 bytes that begin at 5,000 end at 25,000.
    #[test]
    fn what_leaves_later_is_not_counted_yet() {
        let facts = LinkFacts {
            rate: BitRate::from_gbps(400),
            delay: 0,
            cut_through: false,
            loss: 0.0,
            of_switch: true,
            marks: true,
            impaired: false,
        };
        let kind = LinkKind::new(&facts, &PacketSettings::default());
        let mut port = Port::new(Far::nic(), NONE, 0);
        let packet = Packet { wire: 1_000, joined: 0, ..Packet::default() };
        port.transmit(&packet, &kind, 5_000);
        let bytes = |at: u64| port.counted_by(at, &kind).bytes;
        assert_eq!([5_000, 5_020, 15_000, 24_999, 25_000, 90_000].map(bytes), [0, 1, 500, 999, 1_000, 1_000]);
        // Held from 0 on, for 15,000 of the 25,000 ps.
        let held = [15_000, 25_000].map(|at| port.counted_by(at, &kind).held);
        assert_eq!(held[1] - held[0], (1_000 * 10_000) >> 10);
    }

    #[test]
    fn lists_keep_their_order() {
        let (mut packets, mut list) = (Packets::new(), List::EMPTY);
        for _ in 0..3 {
            let id = packets.insert(Packet::default());
            list.push(id, &mut packets);
        }
        assert_eq!([list.pop(&packets), list.pop(&packets), list.pop(&packets)], [0, 1, 2]);
        assert!(list.is_empty());
    }
}
