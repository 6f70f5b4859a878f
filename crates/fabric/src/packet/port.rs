//! An egress port with its cable: see `docs/packet-model.md`, "One event per hop".

use super::packets::{NONE, Packets};
use super::statistics::PortCounters;

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

    #[inline]
    pub(super) fn push(&mut self, id: u32, packets: &mut Packets) {
        packets[id].next = NONE;
        if self.head == NONE {
            self.head = id;
        } else {
            packets[self.tail].next = id;
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
    /// Data that waits.
    pub data: List,
    /// Control packets that wait.
    pub control: List,
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
            data: List::EMPTY,
            control: List::EMPTY,
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
        self.data.head != NONE || self.control.head != NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::packets::Packet;

    #[test]
    fn a_port_is_two_cache_lines() {
        assert_eq!((size_of::<Port>(), std::mem::offset_of!(Port, counters)), (128, 64));
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
