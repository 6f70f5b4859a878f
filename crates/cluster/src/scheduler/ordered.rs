//! Jobs in a fixed order, the head of which blocks the rest: first come, first served; shortest first; smallest first.

use std::collections::BTreeSet;

use super::{Absence, Decision, Scheduler};
use crate::cluster::{Cluster, Job, JobId, Running};

/// Starts jobs in order of a key, ties by submission.
#[derive(Clone, Debug)]
pub struct Ordered {
    name: &'static str,
    /// The key; `None` is the order of submission, for which the cluster's own queue serves.
    key: Option<fn(&Job) -> u64>,
    waiting: BTreeSet<(u64, JobId)>,
    /// The head has no legal GPUs until some come free.
    blocked: Option<JobId>,
}

impl Ordered {
    /// First come, first served.
    pub const fn fcfs() -> Self {
        Self { name: "fcfs", key: None, waiting: BTreeSet::new(), blocked: None }
    }

    /// Shortest job first, by estimate; a job that has begun is not stopped.
    pub fn sjf() -> Self {
        Self { name: "sjf", key: Some(|job| job.estimate), ..Self::fcfs() }
    }

    /// Fewest GPUs first.
    pub fn smallest() -> Self {
        Self { name: "smallest", key: Some(|job| u64::from(job.gpus)), ..Self::fcfs() }
    }
}

impl Scheduler for Ordered {
    fn name(&self) -> &'static str {
        self.name
    }

    fn queued(&mut self, job: JobId, cluster: &Cluster<'_>) {
        if let Some(key) = self.key {
            self.waiting.insert((key(cluster.job(job)), job));
        }
    }

    fn started(&mut self, job: JobId, cluster: &Cluster<'_>) {
        if let Some(key) = self.key {
            self.waiting.remove(&(key(cluster.job(job)), job));
        }
    }

    fn released(&mut self, _: JobId, _: &Running, _: &Cluster<'_>) {
        self.blocked = None;
    }

    fn regained(&mut self, _: &Absence, _: &Cluster<'_>) {
        self.blocked = None;
    }

    fn decide(&mut self, cluster: &Cluster<'_>) -> Option<Decision> {
        let job = self.head(cluster)?;
        let fits = cluster.job(job).gpus <= cluster.free() && self.blocked != Some(job);
        fits.then_some(Decision::Start { job, region: 0 })
    }

    fn refused(&mut self, job: JobId, _: &Cluster<'_>) {
        self.blocked = Some(job);
    }

    fn head(&self, cluster: &Cluster<'_>) -> Option<JobId> {
        match self.key {
            Some(_) => self.waiting.first().map(|&(_, job)| job),
            None => cluster.queue().head(),
        }
    }
}
