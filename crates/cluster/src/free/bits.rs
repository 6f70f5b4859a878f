//! A set of small numbers with a first and a next member: a bit each, and a summary bit per 64 of them.

/// Numbers below a bound fixed at the start.
#[derive(Clone, Debug)]
pub struct BitSet {
    words: Vec<u64>,
    /// Bit i: word i is not zero.
    summary: Vec<u64>,
    len: u32,
}

impl BitSet {
    /// The empty set of numbers below `bound`.
    pub fn new(bound: u32) -> Self {
        let words = (bound as usize).div_ceil(64);
        Self { words: vec![0; words], summary: vec![0; words.div_ceil(64)], len: 0 }
    }

    /// Number of members.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no member.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `item`, which is not in the set.
    pub fn insert(&mut self, item: u32) {
        let word = item as usize / 64;
        debug_assert_eq!(self.words[word] >> (item % 64) & 1, 0, "{item} is in the set already");
        self.words[word] |= 1 << (item % 64);
        self.summary[word / 64] |= 1 << (word % 64);
        self.len += 1;
    }

    /// Takes out `item`, which is in the set.
    pub fn remove(&mut self, item: u32) {
        let word = item as usize / 64;
        debug_assert_eq!(self.words[word] >> (item % 64) & 1, 1, "{item} is not in the set");
        self.words[word] &= !(1 << (item % 64));
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
        self.len -= 1;
    }

    /// The least member that is at least `from`.
    pub fn next(&self, from: u32) -> Option<u32> {
        let word = from as usize / 64;
        let here = *self.words.get(word)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(word as u32 * 64 + here.trailing_zeros());
        }
        let from_word = word + 1;
        let mut block = from_word / 64;
        let mut summary = *self.summary.get(block)? & (u64::MAX << (from_word % 64));
        while summary == 0 {
            block += 1;
            summary = *self.summary.get(block)?;
        }
        let word = block as u32 * 64 + summary.trailing_zeros();
        Some(word * 64 + self.words[word as usize].trailing_zeros())
    }

    /// Members in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.next(0), |&item| self.next(item + 1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use windtunnel_kernel::RandomStream;

    use super::*;

    #[test]
    fn it_agrees_with_an_ordered_set() {
        let (mut bits, mut plain) = (BitSet::new(10_000), BTreeSet::new());
        let mut stream = RandomStream::new(1, "bits", 0);
        for step in 0..20_000u32 {
            // Dense, then sparse: both paths of the search.
            let item = stream.below(if step < 10_000 { 300 } else { 10_000 }) as u32;
            if plain.remove(&item) {
                bits.remove(item);
            } else {
                plain.insert(item);
                bits.insert(item);
            }
            let from = stream.below(10_000) as u32;
            assert_eq!(bits.next(from), plain.range(from..).next().copied());
        }
        assert_eq!(bits.len() as usize, plain.len());
        assert!(bits.iter().eq(plain.iter().copied()));
    }
}
