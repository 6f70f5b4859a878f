//! Whether enough of a job was seen to know its rate: how far the mean of its iterations may be off, and for how long that may
//! stand for those that are not simulated.
//!
//! Jobs that share links meet again and again in another order, so their iterations differ for good: no number of them
//! holds for every group of jobs. The error of a mean over a series whose neighbours depend on one another comes from means
//! of batches (Law and Kelton, Simulation Modeling and Analysis, 4th ed., section 9.5.3). Batches have to be long enough to
//! be nearly independent, and how long that is nobody knows beforehand: two jobs slip past each other within a few iterations
//! or within thirty. So they are taken of as many iterations as an episode has at least, twice as many, four times as many
//! and so on, and the largest error counts.
//!
//! What is to be known is the time of the job, not that of an iteration. Episodes are off independently of each other, so if
//! one that takes the part p of a job's time is off by no more than tolerance / sqrt(p), their sum, where the errors of
//! parts p add in squares as (p · tolerance)² / p, is off by no more than the tolerance.

use windtunnel_kernel::Span;

/// How long an episode in which jobs meet is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Enough {
    /// Iterations of the slowest job after the first, at least; the shortest batch has as many.
    pub batch: u32,
    /// How far the time of a job may be off, with a confidence of 95%.
    pub tolerance: f64,
    /// Iterations of the slowest job after the first, at most.
    pub most: u32,
}

/// Batches that are needed to judge by longer ones than the shortest.
const BATCHES: usize = 4;

impl Enough {
    /// How far the mean of `iterations` (those after the first, in order) may be off from that of a series of which they are
    /// part, over that mean: half the 95% confidence interval. While there is one batch, iterations stand for batches.
    /// `None` while there is nothing to compare.
    pub fn error(&self, iterations: impl Iterator<Item = Span>) -> Option<f64> {
        let all: Vec<f64> = iterations.map(|span| span.ps() as f64).collect();
        let shortest = self.batch.max(1) as usize;
        if all.len() < 2 * shortest {
            return half_width(&all, 1);
        }
        let longer = (1..usize::BITS).map(|doublings| shortest << doublings);
        let longer = longer.take_while(|batch| all.len() / batch >= BATCHES);
        let errors = std::iter::once(shortest).chain(longer).filter_map(|batch| half_width(&all, batch));
        errors.reduce(f64::max)
    }

    /// How long an episode may last in which a job's mean iteration is off by `error`, if the job takes `life` in all.
    pub fn good_for(&self, error: f64, life: Span) -> Span {
        if error <= self.tolerance || self.tolerance >= 1.0 {
            return Span::MAX;
        }
        let ratio = self.tolerance / error;
        Span::from_ps((life.ps() as f64 * ratio * ratio) as u64)
    }
}

/// Half the 95% confidence interval of the mean of `series`, over that mean, from its batches.
fn half_width(series: &[f64], batch: usize) -> Option<f64> {
    let batches = series.len() / batch;
    if batches < 2 {
        return None;
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    // What does not fill a batch is of the beginning.
    let means: Vec<f64> = series[series.len() - batches * batch..].chunks(batch).map(mean).collect();
    let middle = mean(&means);
    let squares: f64 = means.iter().map(|value| (value - middle) * (value - middle)).sum();
    Some(student(batches - 1) * (squares / (batches * (batches - 1)) as f64).sqrt() / middle)
}

/// The 97.5% quantile of Student's t: tabulated up to four degrees of freedom, then the expansion of Abramowitz and
/// Stegun 26.7.5 to two terms, which is within 1% from there on.
fn student(degrees: usize) -> f64 {
    const FEW: [f64; 4] = [12.706, 4.303, 3.182, 2.776];
    const NORMAL: f64 = 1.96;
    const TERMS: [f64; 2] = [2.372, 2.823];
    let n = degrees as f64;
    FEW.get(degrees.saturating_sub(1)).copied().unwrap_or(NORMAL + TERMS[0] / n + TERMS[1] / (n * n))
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::RandomStream;

    use super::*;

    const ENOUGH: Enough = Enough { batch: 3, tolerance: 0.02, most: 400 };

    fn error(spans: &[u64]) -> Option<f64> {
        ENOUGH.error(spans.iter().map(|&span| Span::from_ps(span)))
    }

    #[test]
    fn equal_iterations_are_known_at_once_and_one_is_not() {
        assert_eq!(error(&[100, 100, 100]), Some(0.0));
        assert_eq!((error(&[]), error(&[100])), (None, None));
        // Two batches of equal means, however their members differ; the first is left over.
        assert_eq!(error(&[999, 80, 100, 120, 120, 80, 100]), Some(0.0));
        // Three iterations: 4.303 · sqrt(2/3 / 2) · 1.
        assert!((error(&[99, 100, 101]).unwrap() - 0.04303 * (1.0f64 / 3.0).sqrt()).abs() < 1e-5);
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        for (degrees, quantile) in [(1, 12.706), (4, 2.776), (5, 2.571), (7, 2.365), (15, 2.131), (60, 2.000)]
        {
            assert!((student(degrees) / quantile - 1.0).abs() < 0.012, "{degrees}: {}", student(degrees));
        }
    }

    /// A mean may be off by the more the shorter its episode is; over episodes the squares add up to the tolerance's.
    #[test]
    fn episodes_that_are_off_as_far_as_they_may_are_together_off_by_the_tolerance() {
        let life = Span::from_ps(1_000_000_000);
        assert_eq!(ENOUGH.good_for(0.02, life), Span::MAX);
        assert_eq!(ENOUGH.good_for(0.04, life), Span::from_ps(250_000_000));
        let parts = [0.5, 0.3, 0.15, 0.05];
        let squares = parts.map(|part: f64| {
            let off = 0.02 / part.sqrt();
            assert!(ENOUGH.good_for(off * 0.999, life).ps() as f64 > part * life.ps() as f64);
            assert!((ENOUGH.good_for(off * 1.001, life).ps() as f64) < part * life.ps() as f64);
            (part * off) * (part * off)
        });
        assert!((squares.iter().sum::<f64>().sqrt() - 0.02).abs() < 1e-12);
        let never = Enough { tolerance: 1.0, ..ENOUGH };
        assert_eq!(never.good_for(7.0, life), Span::MAX);
    }

    /// Part of 400 series of this mean of which a stretch is off by more than `error` says.
    fn missed(
        mean: f64,
        length: usize,
        series: impl Fn(&mut RandomStream, usize) -> Vec<f64>,
        error: impl Fn(&[f64]) -> Option<f64>,
    ) -> f64 {
        let missed = (0..400).filter(|&seed| {
            let all = series(&mut RandomStream::new(seed, "series", 0), length);
            let found = all.iter().sum::<f64>() / length as f64;
            (found - mean).abs() > error(&all).expect("there are many") * found
        });
        missed.count() as f64 / 400.0
    }

    fn judged(all: &[f64]) -> Option<f64> {
        ENOUGH.error(all.iter().map(|&value| Span::from_ps(value as u64)))
    }

    #[test]
    fn errors_are_those_of_independent_draws() {
        let uniform = |random: &mut RandomStream, length: usize| -> Vec<f64> {
            (0..length).map(|_| 80_000.0 + random.below(40_001) as f64).collect()
        };
        assert!(missed(100_000.0, 24, uniform, judged) < 0.07);
        assert!(missed(100_000.0, 200, uniform, judged) < 0.05);
    }

    /// A job that slips past another one, now ahead and now behind: what one iteration meets the next ten meet too.
    #[test]
    fn errors_are_those_of_iterations_that_depend_on_one_another() {
        let slips = |random: &mut RandomStream, length: usize| -> Vec<f64> {
            let mut phase = random.uniform();
            let mut one = || {
                phase = (phase + 0.06 * random.normal()).rem_euclid(1.0);
                if phase < 0.5 { 110_000.0 } else { 90_000.0 }
            };
            (0..length).map(|_| one()).collect()
        };
        // Batches of three take one stay for many draws.
        let short = missed(100_000.0, 400, slips, |all| half_width(all, 3));
        let long = missed(100_000.0, 400, slips, judged);
        assert!(short > 0.3 && long < 0.15, "{short} {long}");
    }
}
