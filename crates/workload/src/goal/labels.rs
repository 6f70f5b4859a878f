//! The labels of one rank: an open-addressing table that is emptied by counting up a generation, so that a rank costs
//! nothing but its own labels, and that allocates nothing per label.
//!
//! Labels that differ in their last character only, such as `l120` to `l129`, share a block of 16 slots: files number
//! their labels in order, so neighbours in the file are neighbours in the table and large ranks stay in the cache.

/// A label and the operation it names.
struct Entry {
    /// First eight bytes, zero-padded: decides nearly every comparison.
    head: u64,
    start: u32,
    length: u32,
    operation: u32,
    /// Line of the definition, counted from the rank's own first line.
    line: u32,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u16,
    /// Some bits of the hash, so that strangers are passed by without a look at their entry.
    tag: u16,
    entry: u32,
}

/// Labels of the rank that is being read.
pub(super) struct Labels {
    slots: Vec<Slot>,
    generation: u16,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

/// The first eight bytes of `label`, zero-padded; shorter ones by loads that overlap, without a copy.
#[inline]
fn head(label: &[u8]) -> u64 {
    let length = label.len();
    if let Some(first) = label.first_chunk::<8>() {
        return u64::from_le_bytes(*first);
    }
    if let (Some(first), Some(last)) = (label.first_chunk::<4>(), label.last_chunk::<4>()) {
        let last = u64::from(u32::from_le_bytes(*last));
        return u64::from(u32::from_le_bytes(*first)) | last << (8 * (length - 4));
    }
    let byte = |at: usize| u64::from(label[at]) << (8 * at);
    if length == 0 { 0 } else { byte(0) | byte(length / 2) | byte(length - 1) }
}

/// Hash of all but the last character.
#[inline]
fn hash(label: &[u8], head: u64) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let last = label.len() - 1;
    let first = if last < 8 { head & ((1 << (8 * last)) - 1) } else { head };
    let mut state = first.wrapping_mul(FACTOR);
    if last > 8 {
        for chunk in label[8..last].chunks(8) {
            state = (state.rotate_left(23) ^ self::head(chunk)).wrapping_mul(FACTOR);
        }
    }
    (state ^ (state >> 29)).wrapping_mul(FACTOR)
}

/// Where the search for a label starts, before the table's mask, and its tag.
#[inline]
fn place(label: &[u8], head: u64) -> (usize, u16) {
    let hash = hash(label, head);
    ((hash >> 32 << 4) as usize | usize::from(label[label.len() - 1] & 15), hash as u16)
}

impl Labels {
    pub(super) fn new() -> Self {
        Self { slots: vec![Slot::default(); 64], generation: 1, entries: Vec::new(), bytes: Vec::new() }
    }

    /// Forgets all labels.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        if self.generation == u16::MAX {
            self.slots.fill(Slot::default());
            self.generation = 0;
        }
        self.generation += 1;
    }

    fn text(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.start as usize..(entry.start + entry.length) as usize]
    }

    #[inline]
    fn matches(&self, entry: &Entry, label: &[u8], head: u64) -> bool {
        entry.head == head
            && entry.length as usize == label.len()
            && (label.len() <= 8 || self.text(entry)[8..] == label[8..])
    }

    /// Position of the slot that holds `label` or where it belongs, its tag, and its entry if there is one.
    #[inline]
    fn probe(&self, label: &[u8], head: u64) -> (usize, u16, Option<u32>) {
        let mask = self.slots.len() - 1;
        let (start, tag) = place(label, head);
        let mut at = start & mask;
        loop {
            let slot = self.slots[at];
            if slot.generation != self.generation {
                return (at, tag, None);
            }
            if slot.tag == tag && self.matches(&self.entries[slot.entry as usize], label, head) {
                return (at, tag, Some(slot.entry));
            }
            at = (at + 1) & mask;
        }
    }

    /// Operation of `label`.
    #[inline]
    pub(super) fn find(&self, label: &[u8]) -> Option<u32> {
        let head = head(label);
        // A dependency mostly follows the operation it belongs to.
        if let Some(last) = self.entries.last()
            && self.matches(last, label, head)
        {
            return Some(last.operation);
        }
        self.probe(label, head).2.map(|entry| self.entries[entry as usize].operation)
    }

    /// Names `operation`; `Err` with the line of the first definition if the label is taken.
    #[inline]
    pub(super) fn define(&mut self, label: &[u8], operation: u32, line: u32) -> Result<(), u32> {
        let head = head(label);
        let (slot, tag, known) = self.probe(label, head);
        if let Some(known) = known {
            return Err(self.entries[known as usize].line);
        }
        let start = self.keep(label);
        self.slots[slot] = Slot { generation: self.generation, tag, entry: self.entries.len() as u32 };
        self.entries.push(Entry { head, start, length: label.len() as u32, operation, line });
        if self.entries.len() * 2 > self.slots.len() {
            self.grow();
        }
        Ok(())
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 4;
        self.slots.clear();
        self.slots.resize(size, Slot::default());
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            let (start, tag) = place(self.text(entry), entry.head);
            let mask = size - 1;
            let mut at = start & mask;
            while self.slots[at].generation == self.generation {
                at = (at + 1) & mask;
            }
            self.slots[at] = Slot { generation: self.generation, tag, entry: index as u32 };
        }
    }

    /// Stores bytes that live as long as the rank, returns where.
    pub(super) fn keep(&mut self, label: &[u8]) -> u32 {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(label);
        start
    }

    /// Bytes stored by [`Self::keep`].
    pub(super) fn kept(&self, start: u32, length: u32) -> &[u8] {
        &self.bytes[start as usize..(start + length) as usize]
    }

    /// Bytes stored so far; must stay below 2^32.
    pub(super) fn stored(&self) -> usize {
        self.bytes.len()
    }

    /// (label, operation, line) in order of definition.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.entries.iter().map(|entry| {
            let text = std::str::from_utf8(self.text(entry)).expect("labels are ASCII by the scanner");
            (text, entry.operation, entry.line)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_across_growth_and_generations() {
        let mut labels = Labels::new();
        for rank in 0..3u32 {
            labels.clear();
            for i in 0..5_000u32 {
                let name = format!("operation_{i}");
                assert_eq!(labels.find(name.as_bytes()), None);
                assert_eq!(labels.define(name.as_bytes(), i + rank, i), Ok(()));
            }
            for i in 0..5_000u32 {
                assert_eq!(labels.find(format!("operation_{i}").as_bytes()), Some(i + rank));
            }
            assert_eq!(labels.define(b"operation_7", 0, 9), Err(7));
            assert_eq!(labels.find(b"operation_"), None);
        }
    }

    #[test]
    fn heads_are_the_padded_bytes() {
        let label = b"abcdefghijk";
        for length in 0..=label.len() {
            let mut padded = [0; 8];
            let n = length.min(8);
            padded[..n].copy_from_slice(&label[..n]);
            assert_eq!(head(&label[..length]), u64::from_le_bytes(padded), "{length}");
        }
    }

    #[test]
    fn a_short_label_is_not_its_padded_self() {
        let mut labels = Labels::new();
        labels.define(b"a", 1, 1).unwrap();
        assert_eq!(labels.find(b"a\0"), None);
    }
}
