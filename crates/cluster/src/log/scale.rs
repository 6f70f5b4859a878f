//! Logs fitted to another cluster: more GPUs a job, longer runs, other arrivals.

use super::LoggedJob;

/// How the jobs of a log are changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Each job's GPUs are multiplied by this and rounded up.
    pub gpus: f64,
    /// And no more than these.
    pub max_gpus: Option<u32>,
    /// Each job's duration and estimate are multiplied by this.
    pub duration: f64,
    /// No duration or estimate is longer than this, in nanoseconds.
    pub max_duration: u64,
    /// Arrivals come so many times as fast.
    pub arrivals: f64,
    /// Instead: arrivals come so fast that the GPU-time asked for is this part of the cluster's until the last of them.
    pub load: Option<f64>,
}

impl Default for Scale {
    fn default() -> Self {
        Self { gpus: 1.0, max_gpus: None, duration: 1.0, max_duration: u64::MAX, arrivals: 1.0, load: None }
    }
}

impl Scale {
    /// Changes `jobs`, which are in order of submission, for a cluster of `endpoints` GPUs. The order stays.
    pub fn apply(&self, jobs: &mut [LoggedJob], endpoints: u32) {
        let times =
            |ns: u64, factor: f64| if factor == 1.0 { ns } else { (ns as f64 * factor).round() as u64 };
        for job in &mut *jobs {
            if self.gpus != 1.0 {
                job.gpus = ((f64::from(job.gpus) * self.gpus).ceil() as u32).max(1);
            }
            job.gpus = job.gpus.min(self.max_gpus.unwrap_or(u32::MAX));
            job.duration = times(job.duration, self.duration).clamp(1, self.max_duration);
            job.estimate =
                job.estimate.map(|estimate| times(estimate, self.duration).clamp(1, self.max_duration));
            job.submit = times(job.submit, 1.0 / self.arrivals);
        }
        let Some(load) = self.load else { return };
        let asked: u128 = jobs.iter().map(|job| u128::from(job.duration) * u128::from(job.gpus)).sum();
        let last = jobs.last().map_or(0, |job| job.submit);
        if last == 0 {
            return;
        }
        let span = (asked as f64 / (load * f64::from(endpoints))).round() as u64;
        for job in jobs {
            job.submit = (u128::from(job.submit) * u128::from(span) / u128::from(last)) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_stretches_the_arrivals() {
        let job = |submit, duration, gpus| LoggedJob {
            submit,
            duration,
            estimate: Some(duration),
            gpus,
            priority: 0,
            line: 0,
        };
        let mut jobs = [job(0, 600, 1), job(10, 200, 5), job(40, 400, 200)];
        let scale =
            Scale { gpus: 2.0, max_gpus: Some(16), duration: 0.5, load: Some(0.5), ..Scale::default() };
        scale.apply(&mut jobs, 8);
        assert_eq!(jobs.map(|job| (job.gpus, job.duration)), [(2, 300), (10, 100), (16, 200)]);
        // 600 + 1,000 + 3,200 GPU-ns over 8 GPUs at a half: 1,200 ns.
        assert_eq!(jobs.map(|job| job.submit), [0, 300, 1_200]);
        assert_eq!(jobs[2].estimate, Some(200));
    }
}
