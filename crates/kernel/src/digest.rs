//! A running digest of the events of a run, equal for any partition and any order of threads, and the first time at
//! which two runs differ.
//!
//! An event is mixed with what it did into a word of 128 bits; words are *added* (modulo 2^128) in the bucket of the
//! event's virtual time. A sum does not know the order of its terms, so processes keep a digest each, and these merge to
//! the same whatever the partition. (That processes handled their events in the order of keys is told by what the events
//! did: a model feeds a hash of the state it left, or of what it sent.)
//!
//! **Memory is bounded**: a log has at most [`BUCKETS`] buckets. When time runs past the last, neighbours are added up
//! and the width doubles, so a log of a whole run says to 1/4096 where two runs part; a second run of each with a log
//! that is [focused](EventDigest::focused) on this span says it to 1/4096 of the span, and so on to the picosecond in
//! few runs. The final width is a function of the latest event, so it does not know the partition either.
//!
//! **Collisions**: two different multisets of events have equal sums with probability 2^-128 under a random mixer; the
//! mixer here is meant against accidents, not against an adversary.

use crate::queue::EventKey;
use crate::random::mix64;
use crate::units::{Span, Time};

/// Most buckets of a log.
pub const BUCKETS: usize = 1 << 12;

/// Events of a span of virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    sum: u128,
    events: u64,
}

impl Bucket {
    fn add(&mut self, other: Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.events += other.events;
    }
}

/// The digest of the events of a run from some time on. See the module page.
#[derive(Clone, Debug)]
pub struct EventDigest {
    begin: Time,
    end: Time,
    /// A bucket is 2^shift ps wide.
    shift: u32,
    /// Up to the last that has events.
    buckets: Vec<Bucket>,
}

/// Where two digests part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// All before is equal.
    pub from: Time,
    /// The first difference is before this time.
    pub to: Time,
    /// Events of either run in between.
    pub events: [u64; 2],
}

impl EventDigest {
    /// A digest of all events.
    pub fn new() -> Self {
        Self::focused(Time::ZERO, Time::NEVER)
    }

    /// A digest of the events from `from` to before `to`.
    pub fn focused(from: Time, to: Time) -> Self {
        Self { begin: from, end: to, shift: 0, buckets: Vec::new() }
    }

    /// A digest of what two runs differ in first, finer than the one that found it.
    pub fn on(divergence: &Divergence) -> Self {
        Self::focused(divergence.from, divergence.to)
    }

    /// Adds an event; `effect` is a hash of what it did.
    #[inline]
    pub fn record(&mut self, key: EventKey, effect: u64) {
        if key.time < self.begin || key.time >= self.end {
            return;
        }
        let offset = key.time.ps() - self.begin.ps();
        let mut index = (offset >> self.shift) as usize;
        if index >= self.buckets.len() {
            self.reach(offset);
            index = (offset >> self.shift) as usize;
        }
        self.buckets[index].add(Bucket { sum: word(key, effect), events: 1 });
    }

    /// Widens the buckets until there is one for `offset`.
    #[cold]
    fn reach(&mut self, offset: u64) {
        while offset >> self.shift >= BUCKETS as u64 {
            self.widen();
        }
        self.buckets.resize((offset >> self.shift) as usize + 1, Bucket::default());
    }

    fn widen(&mut self) {
        self.shift += 1;
        let half = self.buckets.len().div_ceil(2);
        for index in 0..half {
            let mut sum = self.buckets[2 * index];
            if let Some(&odd) = self.buckets.get(2 * index + 1) {
                sum.add(odd);
            }
            self.buckets[index] = sum;
        }
        self.buckets.truncate(half);
    }

    /// Adds the digest of another process of the same run, of the same span.
    ///
    /// # Panics
    /// If the spans differ.
    pub fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        self.align(&mut other);
        if self.buckets.len() < other.buckets.len() {
            std::mem::swap(&mut self.buckets, &mut other.buckets);
        }
        for (bucket, &more) in self.buckets.iter_mut().zip(&other.buckets) {
            bucket.add(more);
        }
    }

    /// Brings two digests to one width.
    fn align(&mut self, other: &mut Self) {
        assert_eq!((self.begin, self.end), (other.begin, other.end), "digests of one span");
        while self.shift < other.shift {
            self.widen();
        }
        while other.shift < self.shift {
            other.widen();
        }
    }

    /// The digest of all events: equal runs have equal values.
    pub fn value(&self) -> u128 {
        self.total().sum
    }

    /// Number of events.
    pub fn events(&self) -> u64 {
        self.total().events
    }

    fn total(&self) -> Bucket {
        self.buckets.iter().fold(Bucket::default(), |mut total, &bucket| {
            total.add(bucket);
            total
        })
    }

    /// Width of a bucket: how exactly a divergence is known.
    pub fn resolution(&self) -> Span {
        Span::from_ps(1 << self.shift)
    }

    /// The first span in which two runs differ, each given as the merged digest of its processes.
    ///
    /// # Panics
    /// If the digests are of different spans.
    pub fn first_divergence(&self, other: &Self) -> Option<Divergence> {
        let (mut one, mut two) = (self.clone(), other.clone());
        one.align(&mut two);
        let at = |digest: &Self, index: usize| digest.buckets.get(index).copied().unwrap_or_default();
        let index = (0..one.buckets.len().max(two.buckets.len()))
            .find(|&index| at(&one, index) != at(&two, index))?;
        let from = self.begin.ps() + ((index as u64) << one.shift);
        let to = from.saturating_add(1 << one.shift).min(self.end.ps());
        let events = [at(&one, index).events, at(&two, index).events];
        Some(Divergence { from: Time::from_ps(from), to: Time::from_ps(to), events })
    }
}

impl Default for EventDigest {
    fn default() -> Self {
        Self::new()
    }
}

impl Divergence {
    /// Whether the instant is known to the picosecond, so that a further run tells no more.
    pub fn is_instant(&self) -> bool {
        self.to.ps() - self.from.ps() <= 1
    }
}

/// An event as a word: two multiplications of 64 × 64 bits, folded, with every field in both.
#[inline]
fn word(key: EventKey, effect: u64) -> u128 {
    const A: u64 = 0x9e37_79b9_7f4a_7c15;
    const B: u64 = 0xbf58_476d_1ce4_e5b9;
    let fold = |x: u64, y: u64| {
        let product = u128::from(x) * u128::from(y);
        product as u64 ^ (product >> 64) as u64
    };
    let entities = u64::from(key.receiver) << 32 | u64::from(key.sender);
    let count = key.count.rotate_left(8) ^ u64::from(key.class);
    let front = fold(key.time.ps() ^ A, entities ^ B);
    let back = fold(count ^ B, effect ^ A);
    let low = mix64(front ^ back.rotate_left(32));
    let high = mix64(front.rotate_left(17).wrapping_add(back) ^ low ^ effect);
    u128::from(high) << 64 | u128::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(time: u64, entity: u32, count: u64) -> EventKey {
        EventKey {
            time: Time::from_ps(time),
            receiver: entity,
            sender: entity ^ 1,
            count,
            ..EventKey::default()
        }
    }

    fn events() -> impl Strategy<Value = Vec<(EventKey, u64)>> {
        let time = prop_oneof![0..100u64, 0..10_000u64, 0..100_000_000u64, any::<u64>().prop_map(|t| t >> 1)];
        prop::collection::vec((time, 0..4u32, any::<u64>()), 1..200).prop_map(|raw| {
            (0..).zip(raw).map(|(count, (time, entity, effect))| (key(time, entity, count), effect)).collect()
        })
    }

    fn digest(events: &[(EventKey, u64)]) -> EventDigest {
        let mut digest = EventDigest::new();
        for &(key, effect) in events {
            digest.record(key, effect);
        }
        digest
    }

    /// Runs again with finer and finer logs until the instant is known.
    fn search(one: &[(EventKey, u64)], two: &[(EventKey, u64)]) -> (Option<Divergence>, u32) {
        let again = |events: &[(EventKey, u64)], mut digest: EventDigest| {
            for &(key, effect) in events {
                digest.record(key, effect);
            }
            digest
        };
        let mut found = digest(one).first_divergence(&digest(two));
        let mut runs = 1;
        while let Some(divergence) = found.filter(|found| !found.is_instant()) {
            let (a, b) = (again(one, EventDigest::on(&divergence)), again(two, EventDigest::on(&divergence)));
            found = a.first_divergence(&b);
            runs += 1;
        }
        (found, runs)
    }

    proptest! {
        #[test]
        fn neither_order_nor_partition_matter(events in events(), seed: u64, parts in 1..5usize) {
            let whole = digest(&events);
            prop_assert_eq!(whole.events(), events.len() as u64);
            let mut shuffled: Vec<_> = events.clone();
            shuffled.sort_by_key(|(key, _)| mix64(seed ^ key.count));
            let mut sum = EventDigest::new();
            for part in 0..parts {
                let own = |(key, _): &&(EventKey, u64)| mix64(seed ^ u64::from(key.receiver)) as usize % parts == part;
                sum.merge(&digest(&shuffled.iter().filter(own).copied().collect::<Vec<_>>()));
            }
            prop_assert_eq!(sum.value(), whole.value());
            prop_assert_eq!(sum.resolution(), whole.resolution());
            prop_assert_eq!(sum.first_divergence(&whole), None);
        }

        #[test]
        fn the_first_difference_is_found(events in events(), which: prop::sample::Index, change in 0..4u8) {
            let mut other = events.clone();
            let (changed, _) = events[which.index(events.len())];
            let at = other.iter().position(|(key, _)| *key == changed).unwrap();
            match change {
                0 => drop(other.remove(at)),
                1 => other[at].1 ^= 1,
                2 => other[at].0.class ^= 1,
                _ => other[at].0.count += 1 << 20,
            }
            // And all that comes after is different, too.
            for (key, effect) in &mut other {
                if key.time > changed.time {
                    *effect = mix64(*effect);
                }
            }
            let (found, runs) = search(&events, &other);
            let found = found.expect("the runs differ");
            prop_assert_eq!((found.from, found.to), (changed.time, Time::from_ps(changed.time.ps() + 1)));
            prop_assert!(runs <= 6, "{} runs", runs);
            prop_assert_eq!(search(&events, &events).0, None);
        }
    }

    #[test]
    fn a_log_is_bounded_and_an_event_moved_in_time_is_seen() {
        let mut long = EventDigest::new();
        for count in 0..100_000 {
            long.record(key(count * 1_000_000, 1, count), count);
        }
        assert!(long.buckets.len() <= BUCKETS && long.buckets.len() > BUCKETS / 4);
        assert_eq!(long.events(), 100_000);
        let early = digest(&[(key(5, 0, 0), 1), (key(9, 0, 1), 1)]);
        let late = digest(&[(key(6, 0, 0), 1), (key(9, 0, 1), 1)]);
        let found = early.first_divergence(&late).unwrap();
        assert_eq!(found, Divergence { from: Time::from_ps(5), to: Time::from_ps(6), events: [1, 0] });
    }

    /// No field may be lost in the mixer: each changes about half of all bits.
    #[test]
    fn every_field_counts() {
        let base = key(1_000, 6, 3);
        let changes: [fn(&mut EventKey); 5] = [
            |key| key.time = Time::from_ps(key.time.ps() ^ 1),
            |key| key.class ^= 1,
            |key| key.receiver ^= 1,
            |key| key.sender ^= 1,
            |key| key.count ^= 1,
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut other = base;
            change(&mut other);
            let bits = (word(base, 7) ^ word(other, 7)).count_ones();
            assert!((40..=88).contains(&bits), "field {index}: {bits} bits");
        }
        let bits = (word(base, 7) ^ word(base, 6)).count_ones();
        assert!((40..=88).contains(&bits), "effect: {bits} bits");
        // Swapped entities are another event.
        let swapped = EventKey { receiver: base.sender, sender: base.receiver, ..base };
        assert_ne!(word(base, 7), word(swapped, 7));
    }
}
