//! Messages under way and the bitmaps of packets out of order.

use prefetch_index::prefetch_index;
use windtunnel_kernel::Time;

use super::packets::NONE;
use crate::coding::{self, Coding};

/// A message at its sender, from the request to the last acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub bytes: u64,
    pub sizes: Sizes,
    /// First packet.
    pub first: u32,
    pub packets: u32,
    pub flow: u32,
    /// The next one of the queue pair.
    pub next: u32,
}

/// A message at its receiver, from the request to its report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    /// The caller's name.
    pub token: u64,
    pub bytes: u64,
    /// When it is handed over.
    pub start: Time,
    pub packets: u32,
    /// Of these, up to the last one of data: with them it is whole.
    pub needed: u32,
    /// The next one of the queue pair.
    pub next: u32,
}

/// Messages; places are used again.
#[derive(Clone, Debug)]
pub(super) struct Slots<M> {
    slots: Vec<M>,
    free: Vec<u32>,
}

impl<M> Default for Slots<M> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<M> Slots<M> {
    pub(super) fn insert(&mut self, message: M) -> u32 {
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = message;
            return id;
        }
        self.slots.push(message);
        self.slots.len() as u32 - 1
    }

    pub(super) fn release(&mut self, id: u32) {
        self.free.push(id);
    }

    /// Has the place of a message brought from memory, if there is one.
    #[inline]
    pub(super) fn prefetch(&self, id: u32) {
        prefetch_index(&self.slots, id as usize);
    }

    /// Messages there are, in the order of their places.
    pub(super) fn live(&self) -> impl Iterator<Item = &M> {
        let free: rustc_hash::FxHashSet<u32> = self.free.iter().copied().collect();
        let live = (0u32..).zip(&self.slots).filter(move |(id, _)| !free.contains(id));
        live.map(|(_, message)| message)
    }
}

impl<M> std::ops::Index<u32> for Slots<M> {
    type Output = M;

    #[inline]
    fn index(&self, id: u32) -> &M {
        &self.slots[id as usize]
    }
}

impl<M> std::ops::IndexMut<u32> for Slots<M> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut M {
        &mut self.slots[id as usize]
    }
}

/// What the packets of a message carry: all as much but the last one of data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The last one of data.
    last: u32,
    /// What that carries, and what the others do.
    tail: u32,
    full: u32,
}

impl Sizes {
    /// Of a message of `bytes`, at least 1, of whose packets a full one carries `payload`.
    pub(super) fn new(bytes: u64, payload: u64, coding: Option<Coding>) -> Self {
        let data = bytes.div_ceil(payload);
        let packets = coding::packets(bytes, payload, coding) as u32;
        let needed = coding.map_or(packets, |coding| coding.needed(packets));
        let tail = bytes - (data - 1) * payload;
        // Parity is as long as the longest packet of its block.
        Self { last: needed - 1, tail: tail as u32, full: payload.min(bytes) as u32 }
    }

    /// Payload bytes of packet `index`.
    #[inline]
    pub(super) fn payload_of(self, index: u32) -> u64 {
        u64::from(if index == self.last { self.tail } else { self.full })
    }
}

impl Outgoing {
    /// Payload bytes of its packet `sequence`.
    #[inline]
    pub(super) fn payload_of(&self, sequence: u32) -> u64 {
        self.sizes.payload_of(sequence - self.first)
    }

    #[inline]
    pub(super) fn holds(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.first) < self.packets
    }
}

/// A place that is no message.
pub(super) const NO_MESSAGE: u32 = NONE;

/// Which packets from a moving base on have arrived. A ring of bits, doubled when a packet lies beyond.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    words: Vec<u64>,
    /// One more than the highest packet marked since the ring was empty.
    pub end: u32,
}

impl Arrivals {
    #[inline]
    fn place(&self, sequence: u32) -> (usize, u64) {
        ((sequence >> 6) as usize & (self.words.len() - 1), 1 << (sequence & 63))
    }

    /// Has the place of `sequence` brought from memory.
    #[inline]
    pub(super) fn prefetch(&self, sequence: u32) {
        if !self.words.is_empty() {
            prefetch_index(&self.words, self.place(sequence).0);
        }
    }

    /// Whether `sequence` is marked; `base` is the lowest that may be.
    #[inline]
    pub(super) fn has(&self, sequence: u32) -> bool {
        if sequence >= self.end || self.words.is_empty() {
            return false;
        }
        let (word, bit) = self.place(sequence);
        self.words[word] & bit != 0
    }

    /// Marks `sequence` ≥ `base`; `false` if it was.
    pub(super) fn mark(&mut self, base: u32, sequence: u32) -> bool {
        let room = ((sequence - base) >> 6) as usize + 2;
        if room > self.words.len() {
            self.grow(base, room.next_power_of_two().max(4));
        }
        self.end = self.end.max(sequence + 1);
        let (word, bit) = self.place(sequence);
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        new
    }

    /// Marks those of the 128 packets from `from` on whose bits are set, none of them below `base`.
    #[inline]
    pub(super) fn mark_bits(&mut self, base: u32, from: u32, bits: u128) {
        self.mark_half(base, from, bits as u64);
        let high = (bits >> u64::BITS) as u64;
        if high != 0 {
            self.mark_half(base, from + u64::BITS, high);
        }
    }

    /// The same of 64 packets.
    fn mark_half(&mut self, base: u32, from: u32, bits: u64) {
        let shift = from & 63;
        self.mark_word(base, from - shift, bits << shift);
        if shift > 0 {
            self.mark_word(base, (from - shift).saturating_add(64), bits >> (64 - shift));
        }
    }

    /// The same for `from` a multiple of 64.
    fn mark_word(&mut self, base: u32, from: u32, bits: u64) {
        if bits == 0 {
            return;
        }
        let highest = from + bits.ilog2();
        self.mark(base, highest);
        let (word, _) = self.place(from);
        self.words[word] |= bits;
    }

    /// Forgets all from `from` to before `to`, which were marked or may be.
    pub(super) fn clear_range(&mut self, from: u32, to: u32) {
        let mut at = from;
        while at < to && !self.words.is_empty() {
            let stop = to.min((at | 63) + 1);
            let (word, _) = self.place(at);
            self.words[word] &= !(u64::MAX >> (64 - (stop - at)) << (at & 63));
            at = stop;
        }
    }

    /// Forgets `sequence`.
    #[inline]
    pub(super) fn clear(&mut self, sequence: u32) {
        if !self.words.is_empty() {
            let (word, bit) = self.place(sequence);
            self.words[word] &= !bit;
        }
    }

    /// 128 bits from `from` on, which is not before what was cleared.
    #[inline]
    pub(super) fn bits(&self, from: u32) -> u128 {
        let low = self.word_at(from);
        match from.checked_add(u64::BITS) {
            Some(next) if next < self.end => u128::from(low) | u128::from(self.word_at(next)) << u64::BITS,
            _ => u128::from(low),
        }
    }

    /// The same of 64 bits.
    #[inline]
    pub(super) fn word_at(&self, from: u32) -> u64 {
        let shift = from & 63;
        let low = self.word(from - shift) >> shift;
        if shift > 0 { low | self.word((from - shift).saturating_add(64)) << (64 - shift) } else { low }
    }

    /// 64 bits from `from` (a multiple of 64) on.
    #[inline]
    fn word(&self, from: u32) -> u64 {
        if self.words.is_empty() || from >= self.end { 0 } else { self.words[self.place(from).0] }
    }

    #[cold]
    fn grow(&mut self, base: u32, words: usize) {
        let old = std::mem::replace(&mut self.words, vec![0; words]);
        if old.is_empty() {
            return;
        }
        for sequence in base..self.end {
            let bit = 1 << (sequence & 63);
            if old[(sequence >> 6) as usize & (old.len() - 1)] & bit != 0 {
                let (word, bit) = self.place(sequence);
                self.words[word] |= bit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any order of arrivals within a window: what is marked is what a set holds, and the base moves over it.
        #[test]
        fn arrivals_are_a_set(order in prop::collection::vec(0..700u32, 1..400)) {
            let (mut arrivals, mut set, mut base) = (Arrivals::default(), std::collections::BTreeSet::new(), 0);
            for sequence in order {
                if sequence < base {
                    continue;
                }
                prop_assert_eq!(arrivals.mark(base, sequence), set.insert(sequence));
                while arrivals.has(base) {
                    arrivals.clear(base);
                    prop_assert!(set.remove(&base));
                    base += 1;
                }
                for probe in base..710 {
                    prop_assert_eq!(arrivals.has(probe), set.contains(&probe));
                }
            }
        }
    }

    proptest! {
        /// 128 packets at a time, from any on, are packets one by one.
        #[test]
        fn words_are_their_bits(base in 0..300u32, lots in prop::collection::vec((0..400u32, any::<u128>()), 1..8), to in 0..700u32) {
            let (mut one, mut other) = (Arrivals::default(), Arrivals::default());
            for (above, bits) in lots {
                let from = base + above;
                one.mark_bits(base, from, bits);
                for bit in (0..128).filter(|bit| bits >> bit & 1 == 1) {
                    other.mark(base, from + bit);
                }
            }
            prop_assert_eq!(one.end, other.end);
            one.clear_range(base, to.min(one.end));
            (base..to.min(other.end)).for_each(|sequence| other.clear(sequence));
            for probe in base..one.end + 140 {
                prop_assert_eq!(one.has(probe), other.has(probe), "{}", probe);
                let bits = (0..128).filter(|&bit| other.has(probe + bit)).map(|bit| 1 << bit).sum::<u128>();
                prop_assert_eq!(one.bits(probe), bits, "{}", probe);
                prop_assert_eq!(one.word_at(probe), bits as u64, "{}", probe);
            }
        }
    }

    #[test]
    fn the_last_packet_is_short() {
        let sizes = Sizes::new(10_000, 4_096, None);
        let message = Outgoing { bytes: 10_000, sizes, first: 5, packets: 3, flow: 0, next: NONE };
        assert_eq!([5, 6, 7].map(|sequence| message.payload_of(sequence)), [4_096, 4_096, 1_808]);
        assert!(!message.holds(4) && message.holds(7) && !message.holds(8));
    }

    #[test]
    fn parity_is_as_long_as_a_full_packet() {
        let coding = Coding::new(2, 1).ok();
        let of = |bytes, packets: u32| {
            let sizes = Sizes::new(bytes, 1_000, coding);
            (0..packets).map(|index| sizes.payload_of(index)).collect::<Vec<_>>()
        };
        assert_eq!(of(2_500, 5), [1_000, 1_000, 1_000, 500, 1_000]);
        assert_eq!(of(8, 2), [8, 8]);
    }
}
