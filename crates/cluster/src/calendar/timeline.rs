//! The cluster over time: what its GPUs did and how many jobs waited, in bins of equal length.
//!
//! Everything that is counted is constant between two instants, so a bin's sums are exact however the instants lie. When
//! the bins run out two become one: a run of any length takes at most [`BINS`] of them, at least half of them used.

use crate::cluster::GpuTime;

/// Bins at most.
pub const BINS: usize = 512;

/// Length of a bin at first, in nanoseconds.
const FIRST: u64 = 1_000_000;

/// Sums over a bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// GPU-nanoseconds.
    pub gpu_time: GpuTime,
    /// Waiting jobs × nanoseconds.
    pub waiting: u128,
    /// Running jobs × nanoseconds.
    pub running: u128,
    /// Free GPUs on hosts that are not wholly free × nanoseconds.
    pub broken: u128,
}

/// See the module page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    width: u64,
    bins: Vec<Bin>,
    now: u64,
    seen: GpuTime,
    waiting: u64,
    running: u64,
    broken: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        let seen = GpuTime::default();
        Self { width: FIRST, bins: Vec::new(), now: 0, seen, waiting: 0, running: 0, broken: 0 }
    }
}

/// What part of `sums` falls in the `part` of `whole` nanoseconds that begins `from` in; exact over all parts.
fn share(sum: u128, from: u64, part: u64, whole: u64) -> u128 {
    if part == whole {
        return sum;
    }
    // The product of a sum of GPU-time over a century and that century has more than 128 bits.
    let whole = u128::from(whole);
    let (quotient, rest) = (sum / whole, sum % whole);
    let upto = |ns: u64| quotient * u128::from(ns) + rest * u128::from(ns) / whole;
    upto(from + part) - upto(from)
}

impl Timeline {
    /// Nothing has changed until `now`; `total` is all GPU-time until then.
    pub fn until(&mut self, now: u64, total: GpuTime) {
        let begun = self.now;
        let whole = now - begun;
        if whole == 0 {
            return;
        }
        while now > self.width.saturating_mul(BINS as u64) {
            self.halve();
        }
        while self.now < now {
            let index = (self.now / self.width) as usize;
            let until = now.min((index as u64 + 1).saturating_mul(self.width));
            let (from, part) = (self.now - begun, until - self.now);
            if self.bins.len() <= index {
                self.bins.resize(index + 1, Bin::default());
            }
            let bin = &mut self.bins[index];
            let (sum, seen) = (&mut bin.gpu_time, &self.seen);
            sum.busy += share(total.busy - seen.busy, from, part, whole);
            sum.idle += share(total.idle - seen.idle, from, part, whole);
            sum.stranded += share(total.stranded - seen.stranded, from, part, whole);
            sum.failed += share(total.failed - seen.failed, from, part, whole);
            sum.draining += share(total.draining - seen.draining, from, part, whole);
            sum.lost += share(total.lost - seen.lost, from, part, whole);
            bin.waiting += u128::from(part) * u128::from(self.waiting);
            bin.running += u128::from(part) * u128::from(self.running);
            bin.broken += u128::from(part) * u128::from(self.broken);
            self.now = until;
        }
        self.seen = total;
    }

    /// From now on so many jobs wait and run, and so many GPUs are free on hosts that are not wholly free.
    pub fn jobs(&mut self, waiting: u64, running: u64, broken: u64) {
        (self.waiting, self.running, self.broken) = (waiting, running, broken);
    }

    /// Length of a bin in nanoseconds, and the bins; the last may be cut off at [`Self::end`].
    pub fn bins(&self) -> (u64, &[Bin]) {
        (self.width, &self.bins)
    }

    /// Where it ends.
    pub const fn end(&self) -> u64 {
        self.now
    }

    fn halve(&mut self) {
        self.width = self.width.saturating_mul(2);
        let pair = |pair: &[Bin]| {
            let mut sum = pair[0];
            if let Some(more) = pair.get(1) {
                sum.gpu_time.busy += more.gpu_time.busy;
                sum.gpu_time.idle += more.gpu_time.idle;
                sum.gpu_time.stranded += more.gpu_time.stranded;
                sum.gpu_time.failed += more.gpu_time.failed;
                sum.gpu_time.draining += more.gpu_time.draining;
                sum.gpu_time.lost += more.gpu_time.lost;
                sum.waiting += more.waiting;
                sum.running += more.running;
                sum.broken += more.broken;
            }
            sum
        };
        self.bins = self.bins.chunks(2).map(pair).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred years in one step, and all that 64 bits count, of as many GPUs as there can be.
    #[test]
    fn centuries_of_many_gpus_are_shared_out_exactly() {
        for end in [100 * 365 * 86_400_000_000_000, u64::MAX / 2, u64::MAX] {
            let mut timeline = Timeline::default();
            let total =
                |ns: u64| GpuTime { busy: u128::from(ns) * u128::from(u32::MAX), ..GpuTime::default() };
            timeline.until(1, total(1));
            timeline.until(end, total(end));
            let (width, bins) = timeline.bins();
            assert!(bins.len() <= BINS && bins.len() > BINS / 4, "{}", bins.len());
            assert_eq!(bins.iter().map(|bin| bin.gpu_time.busy).sum::<u128>(), total(end).busy);
            for bin in &bins[..bins.len() - 1] {
                assert!(bin.gpu_time.busy.abs_diff(total(width).busy) <= 2, "{bin:?}");
            }
        }
    }

    #[test]
    fn sums_are_exact_whatever_the_bins() {
        let mut timeline = Timeline::default();
        let (mut total, mut now, mut waited) = (GpuTime::default(), 0u64, 0u128);
        let mut waiting = 0;
        for step in 1..2_000u64 {
            let passed = step * step % 977 * 31_337 + 1;
            now += passed;
            total.busy += u128::from(passed) * u128::from(step % 7);
            total.idle += u128::from(passed) * u128::from(7 - step % 7);
            waited += u128::from(passed) * u128::from(waiting);
            timeline.until(now, total);
            waiting = step % 11;
            timeline.jobs(waiting, 1, 0);
        }
        let (width, bins) = timeline.bins();
        assert!(bins.len() <= BINS && bins.len() > BINS / 4, "{}", bins.len());
        assert_eq!(bins.iter().map(|bin| bin.gpu_time.busy).sum::<u128>(), total.busy);
        assert_eq!(bins.iter().map(|bin| bin.waiting).sum::<u128>(), waited);
        for bin in &bins[..bins.len() - 1] {
            // Seven GPUs; a share is rounded once at each end.
            let off = bin.gpu_time.total().abs_diff(7 * u128::from(width));
            assert!(off < 2_000, "{off}");
        }
    }
}
