//! What a network delivered: messages, payload, completion times and records, counted by every model in the same way.
//!
//! A model has one [`Account`] and calls it where something arrives. [`Delivered`] is what the run's summary reads, and the
//! records, if they are kept, are the rows of the tables `flows` and `messages`.
//!
//! Memory is bounded by what exists, not by what happened: completion times are exact up to 2^20 messages and a histogram
//! beyond, and whoever drives the network takes the records between two advances.

use windtunnel_kernel::{Bytes, EndpointId, Span, Time};
use windtunnel_topology::PathClass;

/// What arrived.
#[derive(Clone, Debug, Default)]
pub struct Delivered {
    /// Messages.
    pub messages: u64,
    /// Their payload, that of all edges of coupled groups included.
    pub bytes: u64,
    /// Completion times of the messages from one scale-up domain to another, from leaving the NIC to the arrival of the last byte.
    pub times: CompletionTimes,
}

impl Delivered {
    /// Adds messages that stayed inside scale-up domains, and so have no completion times.
    #[must_use]
    pub fn with_inside(mut self, inside: &Self) -> Self {
        debug_assert_eq!(inside.times.count(), 0, "inside a domain no completion times are kept");
        self.messages += inside.messages;
        self.bytes += inside.bytes;
        self
    }
}

/// Counts what arrives: see the module page.
#[derive(Clone, Debug, Default)]
pub struct Account {
    delivered: Delivered,
    /// Not yet taken; `None` if none are kept.
    records: Option<Vec<FlowRecord>>,
}

impl Account {
    /// Nothing so far; `records` says whether records are kept.
    pub fn new(records: bool) -> Self {
        Self { delivered: Delivered::default(), records: records.then(Vec::new) }
    }

    /// What arrived so far.
    pub const fn delivered(&self) -> &Delivered {
        &self.delivered
    }

    /// A message of `bytes` has arrived. `took` is its completion time if it came from another scale-up domain.
    #[inline]
    pub fn message(&mut self, bytes: Bytes, took: Option<Span>) {
        self.delivered.messages += 1;
        self.delivered.bytes += bytes.get();
        if let Some(took) = took {
            self.delivered.times.add(took);
        }
    }

    /// A coupled group has ended, whose edges carried `bytes` together and stood for so many messages.
    pub fn group(&mut self, messages: u64, bytes: Bytes) {
        self.delivered.messages += messages;
        self.delivered.bytes += bytes.get();
    }

    /// So many messages between scale-up domains took as long; they are counted already.
    pub fn took(&mut self, time: Span, messages: u64) {
        self.delivered.times.add_times(time, messages);
    }

    /// Keeps a record, if records are kept.
    #[inline]
    pub fn record(&mut self, record: impl FnOnce() -> FlowRecord) {
        if let Some(records) = &mut self.records {
            records.push(record());
        }
    }

    /// Records that wait to be taken.
    pub fn records_waiting(&self) -> usize {
        self.records.as_ref().map_or(0, Vec::len)
    }

    /// Appends the records kept since the last call, in the order of their arrivals.
    pub fn take_records(&mut self, records: &mut Vec<FlowRecord>) {
        if let Some(kept) = &mut self.records {
            records.append(kept);
        }
    }

    /// Takes over the records of an account that counts a part of the same network.
    pub fn take_over(&mut self, part: &mut Self) {
        if let Some(records) = &mut self.records {
            part.take_records(records);
        }
    }
}

/// A flow that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// Sender; of a coupled group that of its first edge.
    pub source: EndpointId,
    /// Receiver; of a coupled group that of its first edge.
    pub destination: EndpointId,
    /// 1, or the number of edges of a coupled group.
    pub edges: u32,
    /// Payload, of all edges.
    pub bytes: Bytes,
    /// When it left its NIC.
    pub start: Time,
    /// When its last byte arrived.
    pub finish: Time,
    /// Traffic class.
    pub class: u8,
    /// How far it went.
    pub path: PathClass,
    /// Links it used: along its path, or all that it was spread over.
    pub hops: u16,
}

/// Completion times, exact for this many.
const EXACT: usize = 1 << 20;
/// Buckets of the histogram per octave, as a logarithm: a percentile from it is at most 1/128 too large.
const SUB_LOG2: u32 = 7;

/// Statistics of flow completion times.
#[derive(Clone, Debug, Default)]
pub struct CompletionTimes {
    count: u64,
    sum_ps: u128,
    max: Span,
    exact: Vec<u64>,
    /// Counts per bucket once `exact` has overflowed.
    histogram: Vec<u64>,
}

impl CompletionTimes {
    /// Adds one.
    #[inline]
    pub fn add(&mut self, time: Span) {
        self.add_times(time, 1);
    }

    /// Adds `times` of one duration.
    pub fn add_times(&mut self, time: Span, times: u64) {
        self.count += times;
        self.sum_ps += u128::from(time.ps()) * u128::from(times);
        self.max = self.max.max(time);
        if self.histogram.is_empty() && self.exact.len() as u64 + times <= EXACT as u64 {
            self.exact.extend(std::iter::repeat_n(time.ps(), times as usize));
            return;
        }
        if self.histogram.is_empty() {
            self.histogram = vec![0; bucket(u64::MAX) + 1];
            for time in std::mem::take(&mut self.exact) {
                self.histogram[bucket(time)] += 1;
            }
        }
        self.histogram[bucket(time.ps())] += times;
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean in seconds; `None` without flows.
    pub fn mean_seconds(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ps as f64 / self.count as f64 / 1e12)
    }

    /// The longest, always exact.
    pub fn max(&self) -> Option<Span> {
        (self.count > 0).then_some(self.max)
    }

    /// The least time that at least `percent` per cent of the flows do not exceed (nearest rank); `None` without flows.
    /// Exact up to 2^20 flows; beyond, the upper edge of a bucket of a log-linear histogram (128 buckets an octave): not
    /// below the exact value, and less than 1/128 above it.
    pub fn percentile(&self, percent: u32) -> Option<Span> {
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1) as u64;
        if self.count == 0 {
            None
        } else if self.histogram.is_empty() {
            let mut times = self.exact.clone();
            let (_, &mut time, _) = times.select_nth_unstable(rank as usize - 1);
            Some(Span::from_ps(time))
        } else {
            let mut seen = 0;
            let index = self.histogram.iter().position(|&count| {
                seen += count;
                seen >= rank
            })?;
            Some(Span::from_ps(upper_edge(index)).min(self.max))
        }
    }
}

/// Bucket of `value`: its own below 2^8, then 2^7 an octave.
fn bucket(value: u64) -> usize {
    let octave = value.max(1).ilog2().saturating_sub(SUB_LOG2);
    ((octave as usize) << SUB_LOG2) + (value >> octave) as usize
}

/// Largest value of bucket `index`.
fn upper_edge(index: usize) -> u64 {
    let octave = (index >> SUB_LOG2).saturating_sub(1);
    let start = ((index - (octave << SUB_LOG2)) as u64) << octave;
    start + ((1 << octave) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_kernel::RandomStream;

    #[test]
    fn buckets_tile_the_integers() {
        for index in 0..=bucket(u64::MAX) {
            let edge = upper_edge(index);
            assert_eq!(bucket(edge), index);
            assert!(edge == u64::MAX || bucket(edge + 1) == index + 1, "{index}");
        }
    }

    #[test]
    fn percentiles_beyond_two_to_the_twenty_stay_within_their_bucket() {
        let mut random = RandomStream::new(1, "fct", 0);
        let mut times: Vec<u64> =
            (0..(EXACT as u64 + 1_000)).map(|_| 1_000 + random.below(1 << 40)).collect();
        let mut statistics = CompletionTimes::default();
        for &time in &times[..EXACT] {
            statistics.add(Span::from_ps(time));
        }
        let exact = |times: &[u64], percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
        let mut head = times[..EXACT].to_vec();
        head.sort_unstable();
        assert_eq!(statistics.percentile(50), Some(Span::from_ps(exact(&head, 50))));
        assert_eq!(statistics.percentile(99), Some(Span::from_ps(exact(&head, 99))));
        for &time in &times[EXACT..] {
            statistics.add(Span::from_ps(time));
        }
        times.sort_unstable();
        for percent in [1, 50, 99, 100] {
            let (found, exact) =
                (statistics.percentile(percent as u32).unwrap().ps(), exact(&times, percent));
            assert!(found >= exact && found - exact <= exact / 128, "{percent}: {found} {exact}");
        }
        assert_eq!(statistics.max(), times.last().map(|&time| Span::from_ps(time)));
        assert_eq!(statistics.count(), times.len() as u64);
    }
}
