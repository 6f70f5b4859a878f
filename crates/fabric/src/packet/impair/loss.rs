//! Losses in bursts.

use windtunnel_kernel::math;
use windtunnel_kernel::random::combine;

/// Sets the draws apart from others.
const BURST: u64 = 0x6275_7273;

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// So many of all packets, 0 to 1.
    Packets(f64),
    /// So many of all bits are wrong, 0 to 1, and a packet with one of them.
    Bits(f64),
}

impl Share {
    const fn number(self) -> f64 {
        let (Self::Packets(share) | Self::Bits(share)) = self;
        share
    }

    /// Share of packets of `wire` bytes.
    pub fn of(self, wire: u16) -> f64 {
        match self {
            Self::Packets(share) => share,
            // Small shares would drown beside 1 in 1 - (1 - b)^n.
            Self::Bits(b) => {
                let log = if b < 1e-4 { -(b + b * b / 2.0 + b * b * b / 3.0) } else { math::ln(1.0 - b) };
                let x = -8.0 * f64::from(wire) * log;
                if x < 1e-3 { x - x * x / 2.0 + x * x * x / 6.0 } else { 1.0 - math::exp(-x) }
            }
        }
    }
}

/// A link that is good or bad. The chain starts in its stationary state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Chance that a good link is bad for the next packet.
    pub to_bad: f64,
    /// Chance that a bad one is good again: bad times last 1 / `to_good` packets on average.
    pub to_good: f64,
    /// Lost while good.
    pub good: Share,
    /// Lost while bad.
    pub bad: Share,
}

impl GilbertElliott {
    /// Losses that know nothing of one another.
    pub const fn independent(share: Share) -> Self {
        Self { to_bad: 0.0, to_good: 1.0, good: share, bad: share }
    }

    /// Everything is lost in bad times, nothing else: a share of `rate` on average, in bursts of `length` ≥ 1 packets on
    /// average. A bad time begins with chance `rate / (1 - rate) / length`, which must not exceed 1.
    pub fn bursts(rate: f64, length: f64) -> Self {
        let to_good = 1.0 / length;
        let to_bad = if rate < 1.0 { to_good * rate / (1.0 - rate) } else { f64::INFINITY };
        Self { to_bad, to_good, good: Share::Packets(0.0), bad: Share::Packets(1.0) }
    }

    /// Share of time that it is bad.
    pub fn bad_share(&self) -> f64 {
        let sum = self.to_bad + self.to_good;
        if sum > 0.0 { self.to_bad / sum } else { 0.0 }
    }

    /// Share of packets of `wire` bytes that it loses in the long run.
    pub fn mean(&self, wire: u16) -> f64 {
        let bad = self.bad_share();
        bad * self.bad.of(wire) + (1.0 - bad) * self.good.of(wire)
    }

    pub(super) const fn shares(&self) -> [(&'static str, f64); 4] {
        [
            ("impairments.to_bad", self.to_bad),
            ("impairments.to_good", self.to_good),
            ("impairments.good", self.good.number()),
            ("impairments.bad", self.bad.number()),
        ]
    }
}

/// The state of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    model: GilbertElliott,
    seed: u64,
    seen: u64,
    bad: bool,
}

impl Chain {
    /// Number `place` of the link's chains.
    pub(super) fn new(model: GilbertElliott, seed: u64, link: u32, place: usize) -> Self {
        let seed = combine(combine(seed ^ BURST, u64::from(link)), place as u64);
        Self { model, seed, seen: 0, bad: unit(combine(seed, u64::MAX)) < model.bad_share() }
    }

    /// Whether the next packet, of `wire` bytes, is lost.
    pub(super) fn loses(&mut self, wire: u16) -> bool {
        let (lost, turn) = (combine(self.seed, 2 * self.seen), combine(self.seed, 2 * self.seen + 1));
        self.seen += 1;
        let model = &self.model;
        let (share, leave) = if self.bad { (model.bad, model.to_good) } else { (model.good, model.to_bad) };
        self.bad ^= unit(turn) < leave;
        unit(lost) < share.of(wire)
    }
}

/// 64 random bits as a number from 0 to below 1.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / 9_007_199_254_740_992.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean over the seeds, and half the width of its 99% interval by Student's t with 19 degrees of freedom.
    fn interval(samples: &[f64]) -> (f64, f64) {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        let variance = samples.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0);
        (mean, 2.861 * math::sqrt(variance / n))
    }

    /// Over 20 seeds the mean loss is that of the stationary chain, and bad times last 1 / `to_good` packets.
    #[test]
    fn losses_and_bursts_have_the_means_of_the_chain() {
        for (rate, length) in [(0.01, 10.0), (0.2, 3.0), (0.001, 1.0)] {
            let model = GilbertElliott::bursts(rate, length);
            let (mut rates, mut lengths) = (Vec::new(), Vec::new());
            for seed in 0..20 {
                let mut chain = Chain::new(model, seed, 5, 0);
                let lost: Vec<bool> = (0..400_000).map(|_| chain.loses(4_160)).collect();
                let count = lost.iter().filter(|&&lost| lost).count();
                let bursts =
                    lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() + usize::from(lost[0]);
                rates.push(count as f64 / lost.len() as f64);
                lengths.push(count as f64 / bursts as f64);
            }
            let (mean, half) = interval(&rates);
            assert!((mean - rate).abs() < half, "{rate} in {length}: {mean} ± {half}");
            let (mean, half) = interval(&lengths);
            assert!((mean - length).abs() < half.max(1e-9), "{rate} in {length}: bursts of {mean} ± {half}");
            assert!((model.mean(64) - rate).abs() < 1e-12);
        }
    }

    #[test]
    fn bits_add_up_to_packets() {
        // By the exact expression where it has digits to spare, and by its first term where it has none.
        for (b, wire) in [(1e-6, 4_160), (1e-3, 64), (0.5, 1)] {
            let exact = 1.0 - math::pow(1.0 - b, 8.0 * f64::from(wire));
            assert!((Share::Bits(b).of(wire) / exact - 1.0).abs() < 1e-9, "{b}");
        }
        assert!((Share::Bits(1e-15).of(4_160) / 33_280e-15 - 1.0).abs() < 1e-9);
        let [none, all] = [0.0, 1.0].map(Share::Bits);
        assert_eq!([none.of(9_000), all.of(1)], [0.0, 1.0]);
    }

    #[test]
    fn draws_belong_to_the_link() {
        let model = GilbertElliott::independent(Share::Packets(0.5));
        let draws = |seed, link| -> Vec<bool> {
            let mut chain = Chain::new(model, seed, link, 0);
            (0..64).map(|_| chain.loses(64)).collect()
        };
        assert_eq!(draws(1, 2), draws(1, 2));
        assert!(draws(1, 2) != draws(1, 3) && draws(1, 2) != draws(2, 2));
    }
}
