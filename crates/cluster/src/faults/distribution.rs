//! Times to a fault and of a repair.
//!
//! Exponential: no memory. Weibull with shape k and scale λ, mean λ·Γ(1 + 1/k): failures get rarer with age for k < 1 (infant
//! mortality), more frequent for k > 1 (wear). Log-normal repairs by their mean and coefficient of variation c: σ² = ln(1 + c²),
//! μ = ln(mean) − σ²/2. Drawn times are rounded to nanoseconds and at least one.

use windtunnel_kernel::{RandomStream, math};

/// Longest time drawn: a hundred years and more, so that sums of a few fit in 64 bits.
const LONGEST: f64 = 4e18;

/// Time to a component's next fault, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lifetime {
    /// Without memory.
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// With age.
    Weibull {
        /// k.
        shape: f64,
        /// λ.
        scale: f64,
    },
}

impl Lifetime {
    /// A Weibull distribution by its mean.
    pub fn weibull(mean: f64, shape: f64) -> Self {
        Self::Weibull { shape, scale: mean / gamma(1.0 + 1.0 / shape) }
    }

    /// Its mean in nanoseconds.
    pub fn mean(self) -> f64 {
        match self {
            Self::Exponential { mean } => mean,
            Self::Weibull { shape, scale } => scale * gamma(1.0 + 1.0 / shape),
        }
    }

    /// Draws one.
    pub fn draw(self, stream: &mut RandomStream) -> u64 {
        let drawn = stream.exponential();
        whole(match self {
            Self::Exponential { mean } => mean * drawn,
            Self::Weibull { shape, scale } => scale * math::pow(drawn, 1.0 / shape),
        })
        .max(1)
    }
}

/// Time of a repair, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Repair {
    /// Always the same.
    Fixed(u64),
    /// Without memory.
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// Mostly short, at times very long.
    LogNormal {
        /// Of the logarithm.
        mu: f64,
        /// Of the logarithm.
        sigma: f64,
    },
}

impl Repair {
    /// Its mean in nanoseconds.
    pub fn mean(self) -> f64 {
        match self {
            Self::Fixed(ns) => ns as f64,
            Self::Exponential { mean } => mean,
            Self::LogNormal { mu, sigma } => math::exp(mu + sigma * sigma / 2.0),
        }
    }

    /// A log-normal distribution by its mean and coefficient of variation.
    pub fn log_normal(mean: f64, cv: f64) -> Self {
        let variance = math::ln(1.0 + cv * cv);
        Self::LogNormal { mu: math::ln(mean) - variance / 2.0, sigma: math::sqrt(variance) }
    }

    /// Draws one.
    pub fn draw(self, stream: &mut RandomStream) -> u64 {
        match self {
            Self::Fixed(ns) => ns,
            Self::Exponential { mean } => whole(mean * stream.exponential()).max(1),
            Self::LogNormal { mu, sigma } => whole(math::exp(mu + sigma * stream.normal())).max(1),
        }
    }
}

fn whole(ns: f64) -> u64 {
    ns.min(LONGEST).round() as u64
}

/// Γ(x) for x > 0 by Lanczos' approximation (g = 7, nine terms), to some 1e-14 of it.
pub fn gamma(x: f64) -> f64 {
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        return std::f64::consts::PI / (math::sin(std::f64::consts::PI * x) * gamma(1.0 - x));
    }
    let x = x - 1.0;
    let sum = (1..9).fold(TERMS[0], |sum, i| sum + TERMS[i] / (x + i as f64));
    let t = x + 7.5;
    math::sqrt(2.0 * std::f64::consts::PI) * math::pow(t, x + 0.5) * math::exp(-t) * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_at_integers_and_halves() {
        for (x, expected) in [(1.0, 1.0), (2.0, 1.0), (5.0, 24.0), (11.0, 3_628_800.0)] {
            assert!((gamma(x) / expected - 1.0).abs() < 1e-13, "{x}: {}", gamma(x));
        }
        assert!((gamma(0.5) / math::sqrt(std::f64::consts::PI) - 1.0).abs() < 1e-13);
        // Γ(1/4), DLMF 5.17 and Abramowitz and Stegun 6.1.10.
        assert!((gamma(0.25) / 3.625_609_908_221_908 - 1.0).abs() < 1e-13);
    }

    /// Mean and standard deviation of many draws.
    fn moments(draw: impl Fn(&mut RandomStream) -> u64) -> (f64, f64) {
        const COUNT: usize = 200_000;
        let values: Vec<f64> =
            (0..COUNT as u64).map(|i| draw(&mut RandomStream::new(7, "moments", i)) as f64).collect();
        let mean = values.iter().sum::<f64>() / COUNT as f64;
        let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / COUNT as f64;
        (mean, math::sqrt(variance))
    }

    #[test]
    fn draws_have_the_moments_of_their_distribution() {
        let near = |(mean, deviation): (f64, f64), expected: (f64, f64)| {
            // Five standard errors of the mean.
            let bound = 5.0 * expected.1 / math::sqrt(200_000.0);
            assert!((mean - expected.0).abs() < bound, "{mean} {expected:?}");
            assert!((deviation / expected.1 - 1.0).abs() < 0.05, "{deviation} {expected:?}");
        };
        near(moments(|s| Lifetime::Exponential { mean: 1e12 }.draw(s)), (1e12, 1e12));
        for shape in [0.7, 1.0, 2.5] {
            let (a, b) = (gamma(1.0 + 1.0 / shape), gamma(1.0 + 2.0 / shape));
            let deviation = 1e12 * math::sqrt(b / (a * a) - 1.0);
            near(moments(|s| Lifetime::weibull(1e12, shape).draw(s)), (1e12, deviation));
        }
        near(moments(|s| Repair::log_normal(1e12, 0.5).draw(s)), (1e12, 0.5e12));
        assert_eq!(Repair::Fixed(17).draw(&mut RandomStream::new(1, "x", 0)), 17);
    }
}
