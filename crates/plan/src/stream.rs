//! Many jobs, each a number of GPUs for a time.

use serde_json::{Value, json};
use windtunnel_cluster::cluster::Job;
use windtunnel_cluster::life::Lives;
use windtunnel_cluster::log::Facts;
use windtunnel_cluster::placement::{Locality, Placement};

use crate::origin::LogAccount;

/// Many jobs, in order of submission.
#[derive(Clone)]
pub struct JobStream {
    /// As the cluster takes them.
    pub jobs: Vec<Job>,
    /// How long each runs, in nanoseconds.
    pub durations: Vec<u64>,
    /// Line of the log of each; empty if they are drawn.
    pub lines: Vec<u32>,
    /// What the log says of each beside its size and times.
    pub facts: Facts,
    /// What became of the rows of the log; `None` if there is none.
    pub log: Option<LogAccount>,
    /// How the GPUs of each are chosen.
    pub placement: &'static dyn Placement,
    /// What each pays on its way, and what of its work is safe.
    pub lives: Lives,
    /// Jobs that wait at most.
    pub queue: Option<u32>,
}

impl JobStream {
    /// What the jobs are, for `--explain`.
    pub fn explanation(&self) -> Value {
        let gpu_seconds: f64 = self
            .jobs
            .iter()
            .zip(&self.durations)
            .map(|(job, &ns)| f64::from(job.gpus) * ns as f64 / 1e9)
            .sum();
        json!({
            "jobs": self.jobs.len(),
            "gpu_seconds": gpu_seconds,
            "last_submit_s": self.jobs.last().map(|job| job.submit.ns() as f64 / 1e9),
            "largest_gpus": self.jobs.iter().map(|job| job.gpus).max(),
            "placement": self.placement.name(),
            "skipped": self.log.as_ref().map(LogAccount::skipped),
            "log": self.log.as_ref().map(LogAccount::to_json),
        })
    }
}

/// Whether leaves and pods have to be known.
pub fn asks_for_groups(placements: &[&'static dyn Placement], localities: &[Locality]) -> bool {
    placements.iter().any(|placement| placement.asks_for_groups())
        || localities.iter().any(|locality| locality.asks_for_groups())
}
