//! What is kept of a run: bytes and utilisation of links, completion times of flows, and records of flows.
//!
//! Memory is bounded by what exists, not by what happened: a link that carried something has at most [`BINS`] bins, whose
//! width doubles when the run outgrows them; completion times are exact up to 2^20 flows and a histogram beyond.

use windtunnel_kernel::{Bytes, EndpointId, Span, Time};
use windtunnel_topology::PathClass;

use super::instant::Instant;

/// Most bins of a link.
pub const BINS: usize = 128;
/// Width of the bins at first: 2^20 ticks, about a microsecond of picoseconds.
const FIRST_WIDTH_LOG2: u32 = 20;

/// Volume carried in each interval of 2^`width_log2` ticks.
#[derive(Clone, Debug)]
struct Bins {
    width_log2: u32,
    volume: [f64; BINS],
}

impl Bins {
    /// Merges pairs until `tick` has a bin.
    fn reach(&mut self, tick: u64) {
        while (tick >> self.width_log2) >= BINS as u64 {
            for bin in 0..BINS / 2 {
                self.volume[bin] = self.volume[2 * bin] + self.volume[2 * bin + 1];
            }
            self.volume[BINS / 2..].fill(0.0);
            self.width_log2 += 1;
        }
    }

    fn add(&mut self, rate: f64, from: Instant, to: Instant) {
        self.reach(to.tick());
        let last = (to.tick() >> self.width_log2) as usize;
        let mut bin = (from.tick() >> self.width_log2) as usize;
        let mut from = from;
        while bin < last {
            let edge = Instant::at((bin as u64 + 1) << self.width_log2);
            self.volume[bin] += rate * edge.since(from);
            from = edge;
            bin += 1;
        }
        self.volume[bin] += rate * to.since(from);
    }
}

#[derive(Clone, Debug)]
struct LinkState {
    since: Instant,
    volume: f64,
    bins: Option<Box<Bins>>,
}

/// What each link carried: the integral of its rate, credited whenever the rate changes.
#[derive(Clone, Debug)]
pub struct LinkMeter {
    links: Vec<LinkState>,
}

impl LinkMeter {
    pub(super) fn new(links: usize, now: Instant) -> Self {
        Self { links: vec![LinkState { since: now, volume: 0.0, bins: None }; links] }
    }

    /// `link` had the rate `rate` from its last credit to `now`.
    #[inline]
    pub(super) fn credit(&mut self, link: usize, rate: f64, now: Instant) {
        let state = &mut self.links[link];
        let from = std::mem::replace(&mut state.since, now);
        if rate > 0.0 && now > from {
            state.volume += rate * now.since(from);
            let empty = || Box::new(Bins { width_log2: FIRST_WIDTH_LOG2, volume: [0.0; BINS] });
            state.bins.get_or_insert_with(empty).add(rate, from, now);
        }
    }

    /// Volume that `link` carried, in capacity × ticks.
    pub fn volume(&self, link: usize) -> f64 {
        self.links[link].volume
    }

    /// The common width of all bins, as the logarithm of ticks: the widest of any link.
    pub fn width_log2(&self) -> u32 {
        let widths = self.links.iter().filter_map(|link| Some(link.bins.as_ref()?.width_log2));
        widths.max().unwrap_or(FIRST_WIDTH_LOG2)
    }

    /// Volume that `link` carried in each interval of 2^`width_log2` ticks, which must be at least its own width; `None`
    /// if it carried nothing. Bins past the last with traffic are left out.
    pub fn bins(&self, link: usize, width_log2: u32) -> Option<Vec<f64>> {
        let bins = self.links[link].bins.as_ref()?;
        let pairs = 1usize << (width_log2 - bins.width_log2).min(BINS.trailing_zeros());
        let mut sums: Vec<f64> = bins.volume.chunks(pairs).map(|chunk| chunk.iter().sum()).collect();
        let used = sums.iter().rposition(|&sum| sum > 0.0).map_or(0, |last| last + 1);
        sums.truncate(used);
        Some(sums)
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
        self.sum_ps += u128::from(time.0) * u128::from(times);
        self.max = self.max.max(time);
        if self.histogram.is_empty() && self.exact.len() as u64 + times <= EXACT as u64 {
            self.exact.extend(std::iter::repeat_n(time.0, times as usize));
            return;
        }
        if self.histogram.is_empty() {
            self.histogram = vec![0; bucket(u64::MAX) + 1];
            for time in std::mem::take(&mut self.exact) {
                self.histogram[bucket(time)] += 1;
            }
        }
        self.histogram[bucket(time.0)] += times;
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
            Some(Span(time))
        } else {
            let mut seen = 0;
            let index = self.histogram.iter().position(|&count| {
                seen += count;
                seen >= rank
            })?;
            Some(Span(upper_edge(index)).min(self.max))
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
            statistics.add(Span(time));
        }
        let exact = |times: &[u64], percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
        let mut head = times[..EXACT].to_vec();
        head.sort_unstable();
        assert_eq!(statistics.percentile(50), Some(Span(exact(&head, 50))));
        assert_eq!(statistics.percentile(99), Some(Span(exact(&head, 99))));
        for &time in &times[EXACT..] {
            statistics.add(Span(time));
        }
        times.sort_unstable();
        for percent in [1, 50, 99, 100] {
            let (found, exact) = (statistics.percentile(percent as u32).unwrap().0, exact(&times, percent));
            assert!(found >= exact && found - exact <= exact / 128, "{percent}: {found} {exact}");
        }
        assert_eq!(statistics.max(), times.last().map(|&time| Span(time)));
        assert_eq!(statistics.count(), times.len() as u64);
    }

    #[test]
    fn bins_merge_and_keep_the_sum() {
        let mut meter = LinkMeter::new(2, Instant::ZERO);
        let (mut now, mut random) = (Instant::ZERO, RandomStream::new(2, "bins", 0));
        for step in 0..500 {
            now = now.after(random.uniform() * 3e6);
            meter.credit(0, f64::from(step % 3), now);
        }
        let width = meter.width_log2();
        let bins = meter.bins(0, width).unwrap();
        assert!(bins.len() <= BINS && width > FIRST_WIDTH_LOG2);
        let sum: f64 = bins.iter().sum();
        assert!((sum / meter.volume(0) - 1.0).abs() < 1e-12);
        assert_eq!(bins.len() as u64, (now.tick() >> width) + 1);
        assert_eq!(meter.bins(1, width), None);
    }
}
