//! What is kept of links: the bytes that each carried, and when.
//!
//! Memory is bounded by what exists, not by what happened: a link that carried something has at most [`BINS`] bins, whose
//! width doubles when the run outgrows them. All links together have at most [`CELLS`]: where more carry something than have
//! room, each keeps half as many bins of twice the width, and so on.

use super::instant::Instant;

/// Most bins of a link; a power of two.
pub const BINS: usize = 128;
/// Most bins of all links together, 8 bytes each: 2^18 links have all of theirs, 2^22 have 8.
const CELLS: usize = 1 << 25;
/// Bins that a link keeps however many others there are.
const FEWEST: usize = 2;
/// Width of the bins at first: 2^20 ticks, about a microsecond of picoseconds.
const FIRST_WIDTH_LOG2: u32 = 20;

/// Volume carried in each interval of 2^`width_log2` ticks.
#[derive(Clone, Debug)]
struct Bins {
    width_log2: u32,
    volume: Box<[f64]>,
}

impl Bins {
    fn new(count: usize) -> Self {
        Self { width_log2: FIRST_WIDTH_LOG2, volume: vec![0.0; count].into() }
    }

    /// Adds up pairs: bins of twice the width fill the first half.
    fn merge(&mut self) {
        let half = self.volume.len() / 2;
        for bin in 0..half {
            self.volume[bin] = self.volume[2 * bin] + self.volume[2 * bin + 1];
        }
        self.volume[half..].fill(0.0);
        self.width_log2 += 1;
    }

    /// Keeps half as many bins of twice the width.
    fn halve(&mut self) {
        self.merge();
        self.volume = self.volume[..self.volume.len() / 2].into();
    }

    /// Merges pairs until `tick` has a bin.
    fn reach(&mut self, tick: u64) {
        while (tick >> self.width_log2) >= self.volume.len() as u64 {
            self.merge();
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
    bins: Option<Bins>,
}

/// What each link carried: the integral of its rate, credited whenever the rate changes.
#[derive(Clone, Debug)]
pub struct LinkMeter {
    links: Vec<LinkState>,
    /// Links that carried something.
    used: usize,
    /// Bins of each of them.
    each: usize,
    /// See [`CELLS`].
    cells: usize,
}

impl LinkMeter {
    pub(super) fn new(links: usize, now: Instant) -> Self {
        Self::within(CELLS, links, now)
    }

    /// A meter of at most so many `cells`, two for each link at least.
    fn within(cells: usize, links: usize, now: Instant) -> Self {
        let links = vec![LinkState { since: now, volume: 0.0, bins: None }; links];
        Self { links, used: 0, each: BINS, cells }
    }

    /// `link` had the rate `rate` from its last credit to `now`.
    #[inline]
    pub(super) fn credit(&mut self, link: usize, rate: f64, now: Instant) {
        let state = &mut self.links[link];
        let from = std::mem::replace(&mut state.since, now);
        if rate > 0.0 && now > from {
            state.volume += rate * now.since(from);
            if let Some(bins) = &mut state.bins {
                bins.add(rate, from, now);
            } else {
                self.first(link, rate, from, now);
            }
        }
    }

    /// What a link carries for the first time; others make room for it.
    #[cold]
    fn first(&mut self, link: usize, rate: f64, from: Instant, now: Instant) {
        self.used += 1;
        while self.used * self.each > self.cells && self.each > FEWEST {
            self.each /= 2;
            for bins in self.links.iter_mut().filter_map(|link| link.bins.as_mut()) {
                bins.halve();
            }
        }
        self.links[link].bins.insert(Bins::new(self.each)).add(rate, from, now);
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
        let pairs = 1usize << (width_log2 - bins.width_log2).min(self.each.trailing_zeros());
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

    /// Links that begin to carry while others do, in a meter with room for all bins and in one with room for few: the few are
    /// sums of the many.
    #[test]
    fn many_links_keep_fewer_bins_of_the_same_bytes() {
        const LINKS: usize = 40;
        let roomy = LinkMeter::new(LINKS, Instant::ZERO);
        let tight = LinkMeter::within(LINKS * 9, LINKS, Instant::ZERO);
        let [roomy, tight] = [roomy, tight].map(|mut meter| {
            let (mut now, mut random) = (Instant::ZERO, RandomStream::new(3, "bins", 0));
            for step in 0..2_000 {
                now = now.after(random.uniform() * 3e6);
                let link = random.below((1 + step as u64 / 40).min(LINKS as u64)) as usize;
                meter.credit(link, 1.0 + f64::from(step % 3), now);
            }
            meter
        });
        assert_eq!((roomy.each, tight.each), (BINS, 8));
        let (wide, narrow) = (tight.width_log2(), roomy.width_log2());
        assert!(wide > narrow);
        for link in 0..LINKS {
            let few = tight.bins(link, wide).unwrap();
            let many = roomy.bins(link, wide).unwrap();
            assert!(few.len() <= 8);
            assert_eq!(few.len(), many.len());
            assert!(few.iter().zip(&many).all(|(a, b)| (a - b).abs() <= 1e-9 * (1.0 + b)));
        }
    }
}
