//! Packets and their slab.

use std::hint::select_unpredictable;

use prefetch_index::prefetch_index;
use windtunnel_kernel::random::combine;
use windtunnel_topology::Itinerary;

use super::queue_settings::Color;

/// No packet, port, queue pair or message.
pub(super) const NONE: u32 = u32::MAX;

/// What a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Payload.
    #[default]
    Data,
    /// Acknowledgement: `sequence` is the next expected, `detail` a [`Feedback`](super::receiver::Feedback).
    Ack,
    /// Notification of congestion.
    Notify,
    /// What a switch left of a data packet for which it had no room: its header.
    Trimmed,
    /// A trimmed packet has arrived: `sequence` says which.
    Nack,
    /// Credit: `stamp` is all that was granted so far, in bytes.
    Pull,
    /// A segment on its way up a reduction tree: `hash` is the run's number, `flow` where it is kept, `sequence` the segment,
    /// `detail` the node that it goes to and `path` the child of that node from which it comes.
    Contribution,
    /// The sum of a segment on its way down: as above, `detail` being the node or member that it goes to.
    Sum,
    /// An endpoint's own, to the receiving half: `sequence` is its kind, `detail` what it says.
    Probe,
    /// The same, in a data queue.
    Scout,
    /// An endpoint's own, to the sending half: as above.
    Reply,
}

impl Kind {
    /// As tables have it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Ack => "ack",
            Self::Notify => "cnp",
            Self::Trimmed => "trimmed",
            Self::Nack => "nack",
            Self::Pull => "pull",
            Self::Contribution => "contribution",
            Self::Sum => "sum",
            Self::Probe => "probe",
            Self::Scout => "scout",
            Self::Reply => "reply",
        }
    }

    /// Whether it waits in the control class.
    #[inline]
    pub(super) const fn is_control(self) -> bool {
        !matches!(self, Self::Data | Self::Contribution | Self::Sum | Self::Scout)
    }

    /// Whether it goes from the receiving half to the sending one.
    #[inline]
    pub(super) const fn goes_back(self) -> bool {
        matches!(self, Self::Ack | Self::Notify | Self::Nack | Self::Pull | Self::Reply)
    }

    /// Whether it is an endpoint's own.
    #[inline]
    pub(super) const fn is_own(self) -> bool {
        matches!(self, Self::Probe | Self::Scout | Self::Reply)
    }
}

/// Bits of [`Packet::flags`].
pub(super) mod flag {
    /// Congestion experienced.
    pub(crate) const MARKED: u8 = 1;
    /// To be acknowledged at once: it is the last of its message, or fills a window of fewer packets than are
    /// answered together.
    pub(crate) const ASKS: u8 = 2;
    /// `hash` is a place in the engine's paths, not a hash.
    pub(crate) const ROUTED: u8 = 4;
    /// Has not met a switch.
    pub(crate) const FRESH: u8 = 8;
    /// Trimmed at the port that leads to its receiver.
    pub(crate) const LAST_HOP: u8 = 16;
    /// Of a data packet, which has no use for [`LAST_HOP`]: sent after a time-out for want of credit, so a PULL may have been
    /// lost.
    pub(crate) const RESCUES: u8 = 16;
    /// The sender has nothing more to send.
    pub(crate) const FINAL: u8 = 32;
    /// Of a reduction: switches take it in.
    pub(crate) const REDUCED: u8 = 64;
    /// Its link has gone down: it is forgotten as it reaches the far end.
    pub(crate) const DOOMED: u8 = 128;
}

/// A packet: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct Packet {
    /// Of the flow and the path number; with [`flag::ROUTED`] where the next egress port stands in the paths.
    pub hash: u64,
    /// When the next packet on the cable reaches the far end; of one that waits where ports have queues, the port by
    /// which it came. Where ports have lines, the upper half of one that waits at a switch is [`Self::waited`].
    pub next_time: u64,
    /// When it joined the queue it stands in; of one on a cable, the port by which it leaves the switch at the far end, or
    /// [`NONE`] where that is the switch's to find; then the upper half is [`Self::waited`] where ports have lines.
    pub joined: u64,
    /// When its transmission at the sender began; of an acknowledgement that of the data packet that caused it.
    pub stamp: u64,
    /// Next on its list.
    pub next: u32,
    /// Half of the queue pair that it goes to: of data the receiving one, of control the sending one.
    pub flow: u32,
    /// Place in the queue pair's packets.
    pub sequence: u32,
    /// Of an acknowledgement the place of its feedback.
    pub detail: u32,
    /// Port of the NIC it goes to: nic · planes + plane.
    pub to: u32,
    /// What the topology lets it carry.
    pub itinerary: Itinerary,
    /// Bytes on the wire.
    pub wire: u16,
    /// Path number.
    pub path: u16,
    pub kind: Kind,
    pub flags: u8,
    /// Data queue in which it waits.
    pub queue: u8,
    /// What profiles of that queue it meets.
    pub color: Color,
}

/// Picoseconds in a unit of [`Packet::waited`], as a shift.
const WAIT_BITS: u32 = 8;

impl Packet {
    /// Of one on a cable, where ports have lines: for how long it has waited at switches so far, in picoseconds to the nearest 256.
    #[inline]
    pub(super) const fn waited(&self) -> u64 {
        (self.joined >> 32) << WAIT_BITS
    }

    /// It joins a switch's line: what it has waited so far is kept.
    #[inline]
    pub(super) const fn keep_waited(&mut self) {
        self.next_time = (self.next_time & NONE as u64) | (self.joined >> 32) << 32;
    }

    /// What [`Self::joined`] is to say of that on the cable, as the packet leaves a switch's line at `start`.
    #[inline]
    pub(super) const fn waited_by(&self, start: u64) -> u64 {
        let more = (start.saturating_sub(self.joined) + (1 << (WAIT_BITS - 1))) >> WAIT_BITS;
        let sum = (self.next_time >> 32) + more;
        (if sum > NONE as u64 { NONE as u64 } else { sum }) << 32
    }

    /// A hash of what it says, not of where it lies.
    pub(super) fn digest(&self) -> u64 {
        let bits = u64::from(self.wire) << 32 | u64::from(self.kind as u8) << 8 | u64::from(self.flags);
        let path = u64::from(self.to) << 32 | u64::from(self.path);
        let bits = if self.kind.is_own() { combine(bits, u64::from(self.detail)) } else { bits };
        combine(combine(u64::from(self.sequence), bits), combine(path, self.stamp))
    }
}

/// All packets there are; places are used again, the last freed first.
#[derive(Clone, Debug, Default)]
pub(super) struct Packets {
    slots: Vec<Packet>,
    /// A stack beside the places: which come next is known without a look at them.
    free: Vec<u32>,
}

impl Packets {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub(super) fn insert(&mut self, packet: Packet) -> u32 {
        let Some(id) = self.free.pop() else {
            self.slots.push(packet);
            return self.slots.len() as u32 - 1;
        };
        self.slots[id as usize] = packet;
        id
    }

    #[inline]
    pub(super) fn release(&mut self, id: u32) {
        self.free.push(id);
    }

    /// Has the place brought from memory that the packet after `ahead` others will take.
    #[inline]
    pub(super) fn prefetch_free(&self, ahead: usize) {
        if let Some(&id) = self.free.len().checked_sub(ahead + 1).and_then(|top| self.free.get(top)) {
            prefetch_index(&self.slots, id as usize);
        }
    }

    /// Exchanges what two places hold but for their places on lists.
    pub(super) fn exchange(&mut self, one: u32, other: u32) {
        let next = (self[one].next, self[other].next);
        self.slots.swap(one as usize, other as usize);
        (self[one].next, self[other].next) = next;
    }

    /// A packet, if there is one.
    #[inline]
    pub(super) fn get(&self, id: u32) -> Option<&Packet> {
        self.slots.get(id as usize)
    }

    /// All places, for who looks at one again and again.
    #[inline]
    pub(super) fn slots(&mut self) -> &mut [Packet] {
        &mut self.slots
    }

    /// Has a packet brought from memory, if there is one.
    #[inline]
    pub(super) fn prefetch(&self, id: u32) {
        prefetch_index(&self.slots, id as usize);
    }

    /// The same where it is anybody's guess whether there is one: an address of nothing would be looked up in vain.
    #[inline]
    pub(super) fn prefetch_any(&self, id: u32) {
        let id = select_unpredictable((id as usize) < self.slots.len(), id, 0);
        prefetch_index(&self.slots, id as usize);
    }

    /// Packets in the network.
    pub(super) fn live(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }
}

impl std::ops::Index<u32> for Packets {
    type Output = Packet;

    #[inline]
    fn index(&self, id: u32) -> &Packet {
        &self.slots[id as usize]
    }
}

impl std::ops::IndexMut<u32> for Packets {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut Packet {
        &mut self.slots[id as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_a_cache_line() {
        assert_eq!(size_of::<Packet>(), 64);
    }

    #[test]
    fn places_are_used_again() {
        let mut packets = Packets::new();
        let ids: Vec<u32> =
            (0..3).map(|sequence| packets.insert(Packet { sequence, ..Packet::default() })).collect();
        packets.release(ids[1]);
        packets.release(ids[0]);
        assert_eq!([packets.insert(Packet::default()), packets.insert(Packet::default())], [ids[0], ids[1]]);
        assert_eq!((packets.live(), packets[ids[2]].sequence), (3, 2));
    }
}
