//! Reorder buffers: what a receiver holds that came before its turn.
//!
//! A queue pair holds the packets that arrived beyond the first one missing, until that one comes. What a NIC would need to
//! keep them is observed, and nothing is refused for it. Bytes are those on the wire. With go-back-N nothing is held.

/// What the receiving half of a queue pair holds, and the most it ever held.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    packets: u32,
    bytes: u32,
    most_packets: u32,
    most_bytes: u32,
    /// Those that are not full: sequence and size. The last ones of messages, so there are few.
    short: Vec<(u32, u16)>,
}

impl Held {
    /// A packet of `wire` bytes came early; a full one has `full`.
    pub(super) fn take(&mut self, sequence: u32, wire: u16, full: u16) {
        self.packets += 1;
        self.bytes += u32::from(wire);
        self.most_packets = self.most_packets.max(self.packets);
        self.most_bytes = self.most_bytes.max(self.bytes);
        if wire != full {
            self.short.push((sequence, wire));
        }
    }

    /// Its turn has come.
    pub(super) fn give(&mut self, sequence: u32, full: u16) {
        let place = self.short.iter().position(|&(short, _)| short == sequence);
        let wire = place.map_or(full, |place| self.short.swap_remove(place).1);
        self.packets -= 1;
        self.bytes -= u32::from(wire);
    }
}

/// Reorder buffers over queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reordering {
    /// Most packets that a queue pair held at once.
    pub most_packets: u64,
    /// Most bytes.
    pub most_bytes: u64,
    /// Queue pairs by the most packets that they held: none, then from 2^(i-1) to 2^i - 1 in place i.
    pub queue_pairs: [u64; 33],
}

impl Default for Reordering {
    fn default() -> Self {
        Self { most_packets: 0, most_bytes: 0, queue_pairs: [0; 33] }
    }
}

impl Reordering {
    /// Counts a queue pair.
    pub(super) fn add(&mut self, held: &Held) {
        self.most_packets = self.most_packets.max(u64::from(held.most_packets));
        self.most_bytes = self.most_bytes.max(u64::from(held.most_bytes));
        self.queue_pairs[(32 - held.most_packets.leading_zeros()) as usize] += 1;
    }

    /// Counts those that another part of the network saw.
    pub fn merge(&mut self, other: &Self) {
        self.most_packets = self.most_packets.max(other.most_packets);
        self.most_bytes = self.most_bytes.max(other.most_bytes);
        for (sum, more) in self.queue_pairs.iter_mut().zip(other.queue_pairs) {
            *sum += more;
        }
    }

    /// Most packets that `percent` of the queue pairs held: the upper end of their place, or the maximum if that is less.
    pub fn percentile(&self, percent: u32) -> u64 {
        let total: u64 = self.queue_pairs.iter().sum();
        let rank = (total * u64::from(percent)).div_ceil(100);
        let mut sum = 0;
        let place = self.queue_pairs.iter().position(|&count| {
            sum += count;
            sum >= rank
        });
        place.map_or(0, |place| (1u64 << place) - 1).min(self.most_packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Packets in any order, some of them short: at every step the sum over those that came beyond the first missing.
        #[test]
        fn what_is_held_is_what_came_early(order in Just((0..60u32).collect::<Vec<_>>()).prop_shuffle()) {
            let wire = |sequence: u32| if sequence % 7 == 6 { 100 + sequence as u16 } else { 4_160 };
            let (mut held, mut came, mut expected, mut most) = (Held::default(), vec![false; 61], 0, (0, 0));
            for sequence in order {
                came[sequence as usize] = true;
                if sequence == expected {
                    expected += 1;
                    while came[expected as usize] {
                        held.give(expected, 4_160);
                        expected += 1;
                    }
                } else {
                    held.take(sequence, wire(sequence), 4_160);
                }
                let early = || (expected..60).filter(|&sequence| came[sequence as usize]);
                let bytes: u32 = early().map(|sequence| u32::from(wire(sequence))).sum();
                most = (most.0.max(early().count() as u32), most.1.max(bytes));
                prop_assert_eq!((held.packets, held.bytes), (early().count() as u32, bytes));
                prop_assert_eq!((held.most_packets, held.most_bytes), most);
            }
            prop_assert!(held.short.is_empty());
        }
    }

    #[test]
    fn percentiles_are_upper_ends_of_places() {
        let mut reordering = Reordering::default();
        for most_packets in [0, 0, 1, 3, 100] {
            reordering.add(&Held { most_packets, ..Held::default() });
        }
        assert_eq!([40, 60, 80, 100].map(|percent| reordering.percentile(percent)), [0, 1, 3, 100]);
    }
}
