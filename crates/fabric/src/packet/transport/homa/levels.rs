//! Which priority what is sent unasked has: Homa's §3.4, from the sizes of the messages that a receiver has got.
//!
//! **Rule.** Of P levels the highest U carry what is sent unasked, where U/P is its share of all that arrives. Their cutoffs divide it so that
//! each level carries as many packets, the shortest messages on the highest. A receiver works this out anew after every few messages, and
//! tells its senders with each grant and acknowledgement.
//!
//! **Codes.** A size in packets has a code of 8 bits: three bits of mantissa below the exponent, so that a code stands for sizes within an
//! eighth. Messages that fit one packet have one code: a dispatcher sees packets, not bytes.

/// Messages after which what is known counts half.
const MEMORY: u32 = 4_096;

/// A size in packets, to within an eighth.
pub(super) const fn code(packets: u32) -> u8 {
    let packets = if packets == 0 { 1 } else { packets };
    let exponent = packets.ilog2();
    ((exponent << 3) + (((packets as u64) << 3 >> exponent) & 7) as u32) as u8
}

/// Levels of what is sent unasked: how many, and the largest code of each but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    pub count: u8,
    cutoffs: [u8; 6],
}

impl Levels {
    /// One level for all sizes.
    pub(super) const fn even(count: u8) -> Self {
        Self { count, cutoffs: [0; 6] }
    }

    /// The level of a message of so many packets, 0 being the highest.
    pub(super) fn of(self, packets: u32) -> u8 {
        let inner = &self.cutoffs[..usize::from(self.count).saturating_sub(1).min(6)];
        inner.iter().take_while(|&&cutoff| code(packets) > cutoff).count() as u8
    }

    /// In the low 56 bits of a note.
    pub(super) fn packed(self) -> u64 {
        let low = self.cutoffs.iter().rev().fold(0, |all, &cutoff| all << 8 | u64::from(cutoff));
        low << 8 | u64::from(self.count)
    }

    /// The same, read again.
    pub(super) fn unpacked(note: u64) -> Self {
        let mut cutoffs = [0; 6];
        for (place, cutoff) in (1u32..).zip(&mut cutoffs) {
            *cutoff = (note >> (8 * place)) as u8;
        }
        Self { count: note as u8, cutoffs }
    }
}

/// What a receiver has got: packets sent unasked by the code of their message, and all packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    unasked: Vec<u64>,
    all: u64,
    messages: u32,
}

impl Sizes {
    /// A message has arrived, `unasked` of whose `packets` were sent without a grant. Whether it is time to work out the levels anew.
    pub(super) fn count(&mut self, packets: u32, unasked: u32, every: u32) -> bool {
        self.unasked.resize(256, 0);
        self.unasked[usize::from(code(packets))] += u64::from(unasked);
        self.all += u64::from(packets);
        self.messages += 1;
        if self.messages.is_multiple_of(MEMORY) {
            self.unasked.iter_mut().for_each(|sum| *sum /= 2);
            self.all /= 2;
        }
        self.messages.is_multiple_of(every)
    }

    /// Levels of `all` for what has arrived; `given` says how many are for what is sent unasked.
    pub(super) fn levels(&self, all: u32, given: Option<u32>) -> Levels {
        let unasked: u64 = self.unasked.iter().sum();
        let share = (2 * u64::from(all) * unasked + self.all) / (2 * self.all).max(1);
        let count = given.unwrap_or((share as u32).clamp(1, all - 1)).min(7);
        let mut levels = Levels::even(count as u8);
        let (mut below, mut level) = (0, 0);
        for (code, &packets) in (0u8..=255).zip(&self.unasked) {
            below += packets;
            // The last code of a level is the one that fills it.
            while level + 1 < count && below * u64::from(count) >= unasked * u64::from(level + 1) {
                levels.cutoffs[level as usize] = code;
                level += 1;
            }
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_grow_with_sizes() {
        assert_eq!([1, 2, 3, 8, 9, 16, 17, 18].map(code), [0, 8, 12, 24, 25, 32, 32, 33]);
        assert!((1..100_000u32).all(|size| code(size) <= code(size + 1)));
        assert_eq!(code(u32::MAX), 31 * 8 + 7);
    }

    /// Four sizes that carry as many packets each, all unasked: 7 of 8 levels, and with four of them one for each size.
    #[test]
    fn levels_carry_alike() {
        let mut sizes = Sizes::default();
        for (packets, messages) in [(1, 64), (4, 16), (16, 4), (64, 1)] {
            (0..messages).for_each(|_| _ = sizes.count(packets, packets, 64));
        }
        assert_eq!(sizes.levels(8, None).count, 7);
        let levels = sizes.levels(8, Some(4));
        assert_eq!([1, 2, 4, 5, 16, 18, 64, 1_000].map(|size| levels.of(size)), [0, 1, 1, 2, 2, 3, 3, 3]);
        assert_eq!(Levels::unpacked(levels.packed() | 5 << 56), levels);
    }

    /// An eighth of what arrives is sent unasked: one level of eight.
    #[test]
    fn the_share_of_levels_is_that_of_packets() {
        let mut sizes = Sizes::default();
        (0..64).for_each(|_| _ = sizes.count(800, 100, 64));
        assert_eq!(sizes.levels(8, None), Levels::even(1));
        (0..64).for_each(|_| _ = sizes.count(100, 100, 64));
        // 128 · 100 of 64 · 900.
        assert_eq!(sizes.levels(8, None).count, 2);
    }
}
