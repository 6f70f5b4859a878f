//! The median of what was heard last, in place of the last alone: "MSwift" and "MNSCC" (arXiv 2509.07907).
//!
//! Where packets are sprayed and a few paths are congested, the last acknowledgement is that of a congested path now and then, and a law
//! that answers each cuts as if all paths were. The median of the last eight round trips, and whether half of them were marked, says
//! what most paths are like. The paper does not publish its number of samples; eight are the packets after which NSCC applies its
//! increases.

use windtunnel_kernel::Span;

/// Samples kept.
pub(super) const KEPT: usize = 8;

/// The last round trips of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recent {
    /// In ns, beside whether they were marked.
    samples: [u32; KEPT],
    marks: u8,
    next: u8,
    kept: u8,
}

impl Recent {
    /// Takes a sample in; the upper median of those kept, and whether at least half of them were marked.
    pub(super) fn median(&mut self, rtt: Span, marked: bool) -> (Span, bool) {
        let place = usize::from(self.next);
        self.samples[place] = u32::try_from(rtt.ps() / 1_000).unwrap_or(u32::MAX);
        self.marks = self.marks & !(1 << place) | u8::from(marked) << place;
        self.next = (self.next + 1) % KEPT as u8;
        self.kept = (self.kept + 1).min(KEPT as u8);
        let kept = usize::from(self.kept);
        let mut sorted = self.samples;
        sorted[..kept].sort_unstable();
        let median = u64::from(sorted[kept / 2]) * 1_000;
        (Span::from_ps(median), 2 * self.marks.count_ones() >= u32::from(self.kept) && self.marks != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One congested path of four moves the last sample, and not the median.
    #[test]
    fn few_congested_paths_do_not_count() {
        let mut recent = Recent::default();
        let mut heard = Vec::new();
        for turn in 0..16 {
            let congested = turn % 4 == 3;
            heard.push(recent.median(Span::from_us(if congested { 90 } else { 10 }), congested));
        }
        assert!(heard[8..].iter().all(|&sample| sample == (Span::from_us(10), false)), "{heard:?}");
        let all = (0..8).map(|_| recent.median(Span::from_us(90), true)).last();
        assert_eq!(all, Some((Span::from_us(90), true)));
    }
}
