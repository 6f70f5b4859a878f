//! What is kept of links: the bytes that each carried, and when.
//!
//! Memory is bounded by what exists, not by what happened: a link that carried something has at most [`BINS`] bins, whose
//! width doubles when the run outgrows them.

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

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_kernel::RandomStream;

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
