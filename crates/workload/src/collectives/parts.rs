//! How a buffer is cut into blocks, and the messages of a round.
//!
//! A buffer of S bytes in k blocks: the first S mod k blocks have one byte more than the others. Algorithms name what a
//! message carries as an arithmetic progression of blocks; its bytes follow in closed form, so no list of blocks exists.

use smallvec::SmallVec;

/// The messages of one rank in one round of a lane: (peer's index in the group, bytes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Messages to send.
    pub sends: SmallVec<[(u32, u64); 4]>,
    /// Messages to receive.
    pub receives: SmallVec<[(u32, u64); 4]>,
}

impl Round {
    /// An empty round.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the rank has nothing to do in it.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.sends.len() + self.receives.len()
    }

    pub(super) fn clear(&mut self) {
        self.sends.clear();
        self.receives.clear();
    }

    /// Adds a message to send; an empty one is left out, one to the peer of the last one joins it.
    pub(super) fn send(&mut self, to: u32, bytes: u64) {
        add(&mut self.sends, to, bytes);
    }

    /// Adds a message to receive, likewise.
    pub(super) fn receive(&mut self, from: u32, bytes: u64) {
        add(&mut self.receives, from, bytes);
    }
}

/// What some members do together in place of a round's messages: a reduction by switches, or all steps of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Meeting {
    /// Its members by index in the group: `first`, then every `stride`-th, `count` of them.
    pub first: u32,
    /// See `first`.
    pub stride: u32,
    /// See `first`.
    pub count: u32,
    /// What a member's link carries each way.
    pub bytes: u64,
    /// Dependent steps, each of which costs the latency once.
    pub steps: u32,
    /// Whether it loads the links of a ring from each member to the next, as a scale-up domain's switch that sums loads its members'
    /// links; else the switches of the fabric sum.
    pub ring: bool,
}

impl Meeting {
    /// Its members by index in the group.
    pub fn members(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |number| self.first + number * self.stride)
    }
}

fn add(messages: &mut SmallVec<[(u32, u64); 4]>, peer: u32, bytes: u64) {
    match messages.last_mut() {
        Some((known, sum)) if *known == peer => *sum += bytes,
        _ if bytes > 0 => messages.push((peer, bytes)),
        _ => {}
    }
}

/// The blocks (first + j · step) mod blocks for j < count, of a buffer cut into `blocks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub first: u32,
    pub step: u32,
    pub count: u32,
    pub blocks: u32,
}

impl Part {
    /// `count` blocks from `first` on, round the end.
    pub(super) fn range(first: u32, count: u32, blocks: u32) -> Self {
        Self { first, step: 1, count, blocks }
    }

    /// One block.
    pub(super) fn one(block: u32, blocks: u32) -> Self {
        Self::range(block, 1, blocks)
    }

    /// The whole buffer.
    pub(super) fn whole() -> Self {
        Self::range(0, 1, 1)
    }

    /// Its size when the buffer has `bytes`.
    ///
    /// Block b is one byte longer if b < extra. For x < n, \[x < extra\] = 1 − ⌊(x + n − extra) / n⌋, hence the number of
    /// longer blocks is count + Σ⌊(first + j·step) / n⌋ − Σ⌊(first + j·step + n − extra) / n⌋: two floor sums.
    pub(super) fn bytes(self, bytes: u64) -> u64 {
        let n = u64::from(self.blocks);
        let (base, extra) = (bytes / n, bytes % n);
        let (first, step, count) = (u64::from(self.first), u64::from(self.step), u64::from(self.count));
        let longer = match (extra, self.count) {
            (0, _) | (_, 0) => 0,
            (_, 1) => u64::from(first % n < extra),
            _ => count + floor_sum(count, n, step, first) - floor_sum(count, n, step, first + n - extra),
        };
        base * count + longer
    }
}

/// Σ over j < count of ⌊(a·j + b) / m⌋, by Euclid's algorithm on (m, a): O(log m).
fn floor_sum(mut count: u64, mut m: u64, mut a: u64, mut b: u64) -> u64 {
    let mut sum = 0;
    loop {
        if a >= m {
            sum += count * (count - 1) / 2 * (a / m);
            a %= m;
        }
        if b >= m {
            sum += count * (b / m);
            b %= m;
        }
        let top = a * count + b;
        if top < m {
            return sum;
        }
        (count, b) = (top / m, top % m);
        (m, a) = (a, m);
    }
}

/// Block `block` of `bytes` in `blocks`.
pub(super) fn share(bytes: u64, blocks: u32, block: u32) -> u64 {
    Part::one(block, blocks).bytes(bytes)
}

/// What an algorithm's messages are told to: bytes for a replay, contents for a test.
pub(super) trait Sink {
    fn send(&mut self, to: u32, part: Part);
    fn receive(&mut self, from: u32, part: Part);
}

/// Turns parts of a buffer of `bytes` into the messages of a round.
pub(super) struct Weigh<'a> {
    pub bytes: u64,
    pub out: &'a mut Round,
}

impl Sink for Weigh<'_> {
    fn send(&mut self, to: u32, part: Part) {
        self.out.send(to, part.bytes(self.bytes));
    }

    fn receive(&mut self, from: u32, part: Part) {
        self.out.receive(from, part.bytes(self.bytes));
    }
}

/// ⌈log2 n⌉.
pub(super) fn log2_ceil(n: u32) -> u32 {
    u32::BITS - (n.max(1) - 1).leading_zeros()
}

/// (index + n − distance) mod n, for distance ≤ n.
pub(super) fn back(index: u32, distance: u32, n: u32) -> u32 {
    (index + n - distance) % n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_differ_by_a_byte_and_sum_to_the_buffer() {
        for blocks in 1..20u32 {
            for bytes in 0..60u64 {
                let sizes: Vec<u64> = (0..blocks).map(|block| share(bytes, blocks, block)).collect();
                assert_eq!(sizes.iter().sum::<u64>(), bytes);
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
                for first in 0..blocks {
                    for step in 0..blocks {
                        for count in 0..=blocks {
                            let part = Part { first, step, count, blocks };
                            let slow: u64 =
                                (0..count).map(|j| sizes[((first + j * step) % blocks) as usize]).sum();
                            assert_eq!(part.bytes(bytes), slow, "{part:?} of {bytes}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn logarithms_round_up() {
        let values: Vec<u32> = [1, 2, 3, 4, 5, 8, 9, 1 << 31].into_iter().map(log2_ceil).collect();
        assert_eq!(values, [0, 1, 2, 2, 3, 3, 4, 31]);
    }
}
