//! The shape of a log, as distributions, and jobs drawn from it.
//!
//! Three things are kept: the share of each GPU count; the durations of jobs of like counts, and the gaps between
//! submissions, both as quantiles. A draw inverts: a uniform number falls between two quantiles and is interpolated,
//! in the logarithm where both are positive, since spans of jobs go over six decades. Counts, durations and gaps are
//! drawn apart: what a log knows of bursts, days and weeks is not kept.

use windtunnel_kernel::{RandomStream, math};

use super::LoggedJob;

/// Probabilities at which quantiles are fitted: closer where the tail is.
const GRID: [f64; 23] = [
    0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97,
    0.98, 0.99, 0.999, 1.0,
];

/// Jobs of a class are too few to have quantiles of their own.
const FEW: usize = 200;

/// A distribution of spans, by its quantiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiles {
    /// (probability, seconds), both rising; the first at 0, the last at 1.
    pub points: Vec<(f64, f64)>,
}

impl Quantiles {
    /// Of `values`, of which there is at least one.
    fn fit(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        let at = |p: f64| {
            let place = p * last as f64;
            let (low, part) = (place.floor() as usize, place - place.floor());
            values[low] + part * (values[(low + 1).min(last)] - values[low])
        };
        Self { points: GRID.iter().map(|&p| (p, at(p))).collect() }
    }

    /// The value at `p`, between 0 and 1.
    pub fn at(&self, p: f64) -> f64 {
        let above = self.points.partition_point(|&(q, _)| q <= p).clamp(1, self.points.len() - 1);
        let ((p0, x0), (p1, x1)) = (self.points[above - 1], self.points[above]);
        let part = if p1 > p0 { ((p - p0) / (p1 - p0)).clamp(0.0, 1.0) } else { 0.0 };
        if x0 > 0.0 { x0 * math::exp(part * math::ln(x1 / x0)) } else { x0 + part * (x1 - x0) }
    }
}

/// Jobs of like GPU counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// (GPUs, share of all jobs).
    pub gpus: Vec<(u32, f64)>,
    /// How long they run.
    pub durations: Quantiles,
}

/// A distribution of jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Jobs by GPU count.
    pub classes: Vec<Class>,
    /// Between submissions.
    pub gaps: Quantiles,
}

impl Shape {
    /// Of the jobs of a log, in order of submission; `None` if they are fewer than two.
    pub fn fit(jobs: &[LoggedJob]) -> Option<Self> {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let gaps: Vec<f64> = jobs.windows(2).map(|pair| seconds(pair[1].submit - pair[0].submit)).collect();
        if gaps.is_empty() {
            return None;
        }
        let mut counts: Vec<u32> = jobs.iter().map(|job| job.gpus).collect();
        counts.sort_unstable();
        let mut classes: Vec<Class> = Vec::new();
        let mut open: Vec<(u32, f64)> = Vec::new();
        let mut members = 0;
        let mut rest = counts.as_slice();
        while let [gpus, ..] = rest {
            let same = rest.partition_point(|count| count == gpus);
            open.push((*gpus, same as f64 / jobs.len() as f64));
            members += same;
            rest = &rest[same..];
            // The few largest go with those before them.
            if members >= FEW && (rest.len() >= FEW || rest.is_empty()) || rest.is_empty() {
                let of = |job: &&LoggedJob| open.iter().any(|&(gpus, _)| gpus == job.gpus);
                let spans = jobs.iter().filter(of).map(|job| seconds(job.duration)).collect();
                classes.push(Class { gpus: std::mem::take(&mut open), durations: Quantiles::fit(spans) });
                members = 0;
            }
        }
        Some(Self { classes, gaps: Quantiles::fit(gaps) })
    }

    /// Draws `count` jobs, the first at 0, from `seed`.
    ///
    /// # Errors
    /// The number of jobs that are submitted before the calendar's nanoseconds have more than 64 bits, if there are no more.
    pub fn draw(&self, count: usize, seed: u64) -> Result<Vec<LoggedJob>, u64> {
        let total: f64 = self.classes.iter().flat_map(|class| &class.gpus).map(|(_, share)| share).sum();
        let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;
        let mut submit = 0u64;
        (0..count as u64)
            .map(|index| {
                let mut stream = RandomStream::new(seed, "jobs", index);
                let (class, gpus) = self.pick(stream.uniform() * total);
                let duration = nanoseconds(class.durations.at(stream.uniform())).max(1);
                let gap = nanoseconds(self.gaps.at(stream.uniform()));
                if index > 0 {
                    submit = submit.checked_add(gap).ok_or(index)?;
                }
                Ok(LoggedJob { submit, duration, estimate: None, gpus, priority: 0, line: 0 })
            })
            .collect()
    }

    /// The class and count at which the shares sum to `target`.
    fn pick(&self, target: f64) -> (&Class, u32) {
        let mut sum = 0.0;
        let all = self.classes.iter().flat_map(|class| class.gpus.iter().map(move |entry| (class, entry)));
        let mut last = None;
        for (class, &(gpus, share)) in all {
            sum += share;
            last = Some((class, gpus));
            if sum > target {
                break;
            }
        }
        last.expect("a shape has classes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_has_the_shape_it_was_drawn_from() {
        // Lognormal spans and exponential gaps, one job in five large and long.
        let mut stream = RandomStream::new(1, "shape", 0);
        let mut submit = 0;
        let log: Vec<LoggedJob> = (0..20_000)
            .map(|_| {
                submit += (stream.exponential() * 60e9) as u64;
                let large = stream.uniform() < 0.2;
                let duration = (math::exp(6.0 + stream.normal()) * if large { 10e9 } else { 1e9 }) as u64;
                LoggedJob {
                    submit,
                    duration,
                    estimate: None,
                    gpus: if large { 16 } else { 1 },
                    priority: 0,
                    line: 0,
                }
            })
            .collect();
        let shape = Shape::fit(&log).expect("there are gaps");
        assert_eq!(shape.classes.len(), 2);
        let drawn = shape.draw(20_000, 7).expect("two weeks");
        assert_eq!(Ok(&drawn), shape.draw(20_000, 7).as_ref());
        let mean = |jobs: &[LoggedJob], gpus: u32| {
            let of: Vec<f64> =
                jobs.iter().filter(|job| job.gpus == gpus).map(|job| job.duration as f64).collect();
            (of.len() as f64, of.iter().sum::<f64>() / of.len() as f64)
        };
        for gpus in [1, 16] {
            let ((n, asked), (m, found)) = (mean(&log, gpus), mean(&drawn, gpus));
            assert!(
                (n / m - 1.0).abs() < 0.05 && (asked / found - 1.0).abs() < 0.06,
                "{gpus}: {n} {m} {asked} {found}"
            );
        }
        let span = |jobs: &[LoggedJob]| jobs[jobs.len() - 1].submit as f64;
        assert!((span(&log) / span(&drawn) - 1.0).abs() < 0.05);
    }

    /// Two gaps of 300 years are more than 584.
    #[test]
    fn jobs_beyond_what_can_be_counted_are_not_drawn() {
        let same = |seconds: f64| Quantiles { points: vec![(0.0, seconds), (1.0, seconds)] };
        let classes = vec![Class { gpus: vec![(1, 1.0)], durations: same(1.0) }];
        let shape = Shape { classes, gaps: same(300.0 * 365.0 * 86_400.0) };
        assert_eq!(shape.draw(2, 1).map(|jobs| jobs.len()), Ok(2));
        assert_eq!(shape.draw(4, 1), Err(2));
    }

    #[test]
    fn quantiles_are_met_and_between_them_logarithms_are_linear() {
        let quantiles = Quantiles { points: vec![(0.0, 0.0), (0.5, 10.0), (1.0, 1_000.0)] };
        assert_eq!((quantiles.at(0.0), quantiles.at(0.25), quantiles.at(0.5)), (0.0, 5.0, 10.0));
        assert!((quantiles.at(0.75) - 100.0).abs() < 1e-9 && (quantiles.at(1.0) - 1_000.0).abs() < 1e-9);
    }
}
