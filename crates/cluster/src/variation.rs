//! How ranks differ from their data sheets: speeds, thermal caps and the noise of each computation.
//!
//! A factor multiplies a computation's duration. It is a pure function of (seed, endpoint, operation, iteration) and of
//! the start of the episode, never of the order in which events happen. Noise has mean 1: a normal or lognormal of mean
//! 1, or measured samples over their mean.

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{EndpointId, RandomStream, Time, math};

/// Distribution of the factor of one computation; its mean is 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Noise {
    /// Always 1.
    None,
    /// Normal with this coefficient of variation, cut symmetrically to [0.1, 1.9] so that the mean stays 1.
    Normal(f64),
    /// Lognormal with this coefficient of variation: exp(σ·z − σ²/2), σ² = ln(1 + cv²).
    Lognormal(f64),
    /// One of these factors with equal chance; their mean is 1.
    Measured(Vec<f64>),
}

impl Noise {
    /// Measured durations (or factors), divided by their mean.
    pub fn measured(samples: &[f64]) -> Self {
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        Self::Measured(samples.iter().map(|sample| sample / mean).collect())
    }

    fn factor(&self, stream: &mut RandomStream) -> f64 {
        match self {
            Self::None => 1.0,
            Self::Normal(cv) => (1.0 + cv * stream.normal()).clamp(0.1, 1.9),
            Self::Lognormal(cv) => {
                let variance = math::ln(1.0 + cv * cv);
                math::exp(math::sqrt(variance) * stream.normal() - variance / 2.0)
            }
            Self::Measured(factors) => factors[stream.below(factors.len() as u64) as usize],
        }
    }
}

/// Speed of an endpoint from an instant on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SpeedStep {
    from: Time,
    /// Duration factor, 1 / speed.
    factor: f64,
}

/// The factors of all endpoints.
#[derive(Clone, Debug)]
pub struct Variation {
    seed: u64,
    noise: Noise,
    /// Steps of each endpoint in time order; empty if no endpoint has any.
    speeds: Vec<Vec<SpeedStep>>,
    /// Duration factor of each endpoint's clock; empty if all are right.
    clocks: Vec<f64>,
}

impl Variation {
    /// No variation at all.
    pub fn none() -> Self {
        Self::new(0, Noise::None)
    }

    /// Noise keyed by `seed`.
    pub fn new(seed: u64, noise: Noise) -> Self {
        Self { seed, noise, speeds: Vec::new(), clocks: Vec::new() }
    }

    /// Runs `endpoint` (of `endpoints`) at `speed` times its sheet's from `from` on; steps at later instants replace
    /// earlier ones, steps at the same instant multiply.
    pub fn set_speed(&mut self, endpoints: u32, endpoint: EndpointId, from: Time, speed: f64) {
        if self.speeds.is_empty() {
            self.speeds = vec![Vec::new(); endpoints as usize];
        }
        let steps = &mut self.speeds[endpoint.0 as usize];
        match steps.iter_mut().find(|step| step.from == from) {
            Some(step) => step.factor /= speed,
            None => steps.push(SpeedStep { from, factor: 1.0 / speed }),
        }
        steps.sort_by_key(|step| step.from);
    }

    /// Lets the clock of `endpoint` (of `endpoints`) run at `pace` times the right one: all its computations take 1 / pace
    /// as long, whatever its speed.
    pub fn set_clock(&mut self, endpoints: u32, endpoint: EndpointId, pace: f64) {
        if self.clocks.is_empty() {
            self.clocks = vec![1.0; endpoints as usize];
        }
        self.clocks[endpoint.0 as usize] = 1.0 / pace;
    }

    /// Whether every factor is 1.
    pub fn is_none(&self) -> bool {
        self.noise == Noise::None && self.speeds.is_empty() && self.clocks.is_empty()
    }

    /// Factor of operation `operation` of `endpoint` in `iteration`, started at `at`.
    #[inline]
    pub fn factor(&self, endpoint: EndpointId, operation: u32, iteration: u64, at: Time) -> f64 {
        if self.is_none() {
            return 1.0;
        }
        let speed = self.speeds.get(endpoint.0 as usize).map_or(1.0, |steps| {
            steps.iter().rev().find(|step| step.from <= at).map_or(1.0, |step| step.factor)
        });
        let speed = speed * self.clocks.get(endpoint.0 as usize).copied().unwrap_or(1.0);
        if self.noise == Noise::None {
            return speed;
        }
        let entity = combine(combine(u64::from(endpoint.0), u64::from(operation)), iteration);
        speed * self.noise.factor(&mut RandomStream::new(self.seed, "kernel-noise", entity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clocks that differ by 150 parts in a million count computations that differ by as much, at every speed.
    #[test]
    fn clocks_scale_computations() {
        let mut variation = Variation::none();
        variation.set_clock(3, EndpointId(0), 1.0 + 50e-6);
        variation.set_clock(3, EndpointId(1), 1.0 - 100e-6);
        variation.set_speed(3, EndpointId(1), Time::from_ps(5), 0.5);
        let factor = |endpoint: u32, at: u64| variation.factor(EndpointId(endpoint), 0, 0, Time::from_ps(at));
        assert!(!variation.is_none());
        assert_eq!([factor(0, 0), factor(2, 9)], [1.0 / (1.0 + 50e-6), 1.0]);
        assert_eq!([factor(1, 4), factor(1, 5)], [1.0 / (1.0 - 100e-6), 2.0 / (1.0 - 100e-6)]);
    }

    fn moments(noise: Noise) -> (f64, f64) {
        let variation = Variation::new(7, noise);
        let n = 100_000u32;
        let factors: Vec<f64> =
            (0..n).map(|op| variation.factor(EndpointId(op % 64), op / 64, 0, Time::ZERO)).collect();
        let mean = factors.iter().sum::<f64>() / f64::from(n);
        let variance = factors.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / f64::from(n);
        (mean, math::sqrt(variance) / mean)
    }

    #[test]
    fn noise_preserves_the_mean_and_has_its_cv() {
        for noise in [Noise::Normal(0.1), Noise::Lognormal(0.1)] {
            let (mean, cv) = moments(noise.clone());
            assert!((mean - 1.0).abs() < 0.002 && (cv - 0.1).abs() < 0.002, "{noise:?}: {mean} {cv}");
        }
        let (mean, cv) = moments(Noise::measured(&[9.0, 11.0]));
        assert!((mean - 1.0).abs() < 0.002 && (cv - 0.1).abs() < 0.002, "{mean} {cv}");
    }

    /// The same kernel takes another time on every rank, in every iteration, and the same one when asked again.
    #[test]
    fn noise_is_drawn_for_each_rank_and_iteration() {
        let variation = Variation::new(7, Noise::Normal(0.1));
        let factor =
            |rank: u32, iteration| variation.factor(EndpointId(rank), 5, iteration, Time::ZERO).to_bits();
        let mut drawn: Vec<u64> = (0..16).flat_map(|rank| (0..4).map(move |i| factor(rank, i))).collect();
        assert_eq!(factor(3, 2), drawn[3 * 4 + 2]);
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 64);
    }

    #[test]
    fn a_thermal_cap_acts_from_its_instant_on() {
        let mut variation = Variation::none();
        variation.set_speed(2, EndpointId(1), Time::from_ps(1_000), 0.5);
        assert_eq!(variation.factor(EndpointId(1), 0, 0, Time::from_ps(999)), 1.0);
        assert_eq!(variation.factor(EndpointId(1), 0, 0, Time::from_ps(1_000)), 2.0);
        assert_eq!(variation.factor(EndpointId(0), 0, 0, Time::from_ps(1_000)), 1.0);
    }

    #[test]
    fn a_factor_depends_on_its_key_alone() {
        let variation = Variation::new(1, Noise::Lognormal(0.3));
        let factor =
            |endpoint, op, iteration| variation.factor(EndpointId(endpoint), op, iteration, Time::ZERO);
        assert_eq!(factor(3, 5, 2), factor(3, 5, 2));
        assert_ne!(factor(3, 5, 2), factor(3, 5, 1));
        assert_ne!(factor(3, 5, 2), factor(5, 3, 2));
    }
}
