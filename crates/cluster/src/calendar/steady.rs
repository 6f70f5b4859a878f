//! Whether enough of a job was seen to know its rate: how far the mean of its iterations may be off.
//!
//! Jobs that share links meet again and again in another order, so their iterations differ for good: no number of them
//! holds for every group of jobs. The error of a mean over a series whose neighbours depend on one another comes from means
//! of batches (Law and Kelton, Simulation Modeling and Analysis, 4th ed., section 9.5.3): batches long enough to be nearly
//! independent, here of as many iterations as an episode has at least.

use windtunnel_kernel::Span;

/// How long an episode in which jobs meet is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Enough {
    /// Iterations of the slowest job after the first, at least; a batch has as many.
    pub batch: u32,
    /// Standard error of each job's mean iteration, over that mean, from which on it is known.
    pub tolerance: f64,
    /// Iterations of the slowest job after the first, at most.
    pub most: u32,
}

impl Enough {
    /// Whether the mean of `iterations` (those after the first, in order) is known. While there is one batch, all of
    /// them lie within the tolerance of their mean; afterwards the standard error of the mean of batches does.
    pub fn is_known(&self, iterations: impl ExactSizeIterator<Item = Span>) -> bool {
        let batch = self.batch.max(1) as usize;
        let all: Vec<f64> = iterations.map(|span| span.0 as f64).collect();
        let batches = all.len() / batch;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        if all.is_empty() {
            return false;
        }
        if batches < 2 {
            let (low, high) =
                all.iter().fold((f64::MAX, 0.0_f64), |(low, high), &span| (low.min(span), high.max(span)));
            return high - low <= self.tolerance * mean(&all);
        }
        // What does not fill a batch is of the beginning.
        let kept = &all[all.len() - batches * batch..];
        let means: Vec<f64> = kept.chunks(batch).map(mean).collect();
        let middle = mean(&means);
        let squares: f64 = means.iter().map(|value| (value - middle) * (value - middle)).sum();
        let error = (squares / (batches * (batches - 1)) as f64).sqrt();
        error <= self.tolerance * middle
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::RandomStream;

    use super::*;

    fn known(enough: &Enough, spans: &[u64]) -> bool {
        enough.is_known(spans.iter().map(|&span| Span(span)))
    }

    #[test]
    fn equal_iterations_are_known_after_one_batch_and_unequal_ones_are_not() {
        let enough = Enough { batch: 3, tolerance: 0.02, most: 48 };
        assert!(known(&enough, &[100, 101, 100]));
        assert!(!known(&enough, &[100, 103, 100]));
        assert!(!known(&enough, &[]));
        // Two batches of equal means, however their members differ; the first is left over.
        assert!(known(&enough, &[999, 80, 100, 120, 120, 80, 100]));
        // Means 100 and 106: standard error 3 of 103.
        assert!(!known(&enough, &[100, 100, 100, 106, 106, 106]));
        assert!(known(&Enough { tolerance: 0.03, ..enough }, &[100, 100, 100, 106, 106, 106]));
    }

    #[test]
    fn independent_draws_stop_where_their_standard_error_says() {
        // Uniform between 80 and 120: a standard deviation of 11.5%, so 1% takes about 133 of them.
        let enough = Enough { batch: 3, tolerance: 0.01, most: u32::MAX };
        let mut needed = 0;
        for seed in 0..100 {
            let mut random = RandomStream::new(seed, "uniform", 0);
            let mut spans = Vec::new();
            while !known(&enough, &spans) {
                spans.extend((0..3).map(|_| 80_000 + random.below(40_001)));
            }
            needed += spans.len();
        }
        // Looking after each batch stops somewhat early.
        assert!((60..=133).contains(&(needed / 100)), "{}", needed / 100);
    }
}
