//! Mail on its last step: sorted by key, and handed to a process.
//!
//! Times are sorted first, by bucket: mail of a window lies within a few windows, evenly enough, so that most of a sort
//! is one counting pass. Events of one instant are then sorted by their whole key. What is sorted is 16 bytes, the
//! envelopes stay where they are.

use super::process::{Envelope, Process};
use crate::queue::EventKey;

/// Mail for one process on its way in, from any number of senders; kept for its allocations.
pub(super) struct Inbox<M> {
    mail: Vec<Option<Envelope<M>>>,
    /// Time in the high half, place in `mail` in the low.
    order: Vec<u128>,
    sorter: Sorter,
}

impl<M> Inbox<M> {
    pub(super) const fn new() -> Self {
        Self { mail: Vec::new(), order: Vec::new(), sorter: Sorter::new() }
    }

    /// Moves `mail` in.
    pub(super) fn collect(&mut self, mail: &mut Vec<Envelope<M>>) {
        for envelope in mail.drain(..) {
            self.order.push(u128::from(envelope.key.time.ps()) << 64 | self.mail.len() as u128);
            self.mail.push(Some(envelope));
        }
    }

    /// Hands all mail to `process` in the order of keys and returns how much it was; the first key found twice is an
    /// error.
    pub(super) fn deliver<P: Process<Message = M>>(&mut self, process: &mut P) -> Result<u64, EventKey> {
        // Keys are unique: the order does not depend on which process posted first. Times alone are sorted first; they
        // are small, and seldom equal.
        self.sorter.sort(&mut self.order);
        let mail = &mut self.mail;
        let key = |&place: &u128| mail[place as u64 as usize].as_ref().map(|envelope| envelope.key);
        let mut repeated = None;
        for instant in self.order.chunk_by_mut(|a, b| a >> 64 == b >> 64).filter(|instant| instant.len() > 1)
        {
            instant.sort_unstable_by_key(key);
            let equal = |pair: &&[u128]| key(&pair[0]) == key(&pair[1]);
            if let Some(pair) = instant.windows(2).find(equal) {
                repeated = pair.first().and_then(key);
                break;
            }
        }
        let count = self.order.len() as u64;
        if repeated.is_none() {
            for &place in &self.order {
                if let Some(envelope) = mail[place as u64 as usize].take() {
                    process.receive(envelope);
                }
            }
        }
        self.order.clear();
        self.mail.clear();
        repeated.map_or(Ok(count), Err)
    }
}

/// Sorts numbers whose high halves are spread over a span; kept for its allocations.
struct Sorter {
    sorted: Vec<u128>,
    /// Start of each bucket, and the end of the last.
    starts: Vec<u32>,
}

impl Sorter {
    /// Below, a plain sort is as fast.
    const FEW: usize = 32;

    const fn new() -> Self {
        Self { sorted: Vec::new(), starts: Vec::new() }
    }

    fn sort(&mut self, numbers: &mut Vec<u128>) {
        if numbers.len() < Self::FEW || numbers.len() > u32::MAX as usize {
            numbers.sort_unstable();
            return;
        }
        let high = |number: u128| (number >> 64) as u64;
        let (least, most) = numbers
            .iter()
            .fold((u64::MAX, 0), |(least, most), &number| (least.min(high(number)), most.max(high(number))));
        // As many buckets as numbers, or up to twice.
        let bits = numbers.len().ilog2() + 1;
        let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(bits);
        let bucket = |number: u128| ((high(number) - least) >> shift) as usize;
        self.starts.clear();
        self.starts.resize((1 << bits) + 1, 0);
        for &number in &*numbers {
            self.starts[bucket(number)] += 1;
        }
        // Ends of buckets, which the scatter from behind makes starts.
        let mut end = 0;
        for start in &mut self.starts {
            end += *start;
            *start = end;
        }
        self.sorted.clear();
        self.sorted.resize(numbers.len(), 0);
        for &number in numbers.iter().rev() {
            let place = &mut self.starts[bucket(number)];
            *place -= 1;
            self.sorted[*place as usize] = number;
        }
        for bounds in self.starts.windows(2) {
            // A bucket that holds all, where one piece of mail is far ahead, costs what a plain sort does.
            if bounds[1] - bounds[0] > 1 {
                self.sorted[bounds[0] as usize..bounds[1] as usize].sort_unstable();
            }
        }
        std::mem::swap(numbers, &mut self.sorted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buckets_sort(
            raw in prop::collection::vec((prop_oneof![0..1_000u64, 5_000_000..6_000_000u64, any::<u64>()], any::<u64>()), 0..300),
            narrow: bool,
        ) {
            let number = |&(high, low): &(u64, u64)| u128::from(if narrow { high % 977 } else { high }) << 64 | u128::from(low);
            let mut numbers: Vec<u128> = raw.iter().map(number).collect();
            let mut expected = numbers.clone();
            expected.sort_unstable();
            let mut sorter = Sorter::new();
            sorter.sort(&mut numbers);
            prop_assert_eq!(&numbers, &expected);
            // Again, with what is left of the first.
            numbers.reverse();
            sorter.sort(&mut numbers);
            prop_assert_eq!(&numbers, &expected);
        }
    }
}
