//! Jobs in a fixed order, the head of which blocks the rest: first come, first served; shortest first; smallest first; earliest
//! deadline first.

use std::collections::BTreeSet;

use super::policy::{Absence, BuiltIn, Decision, Scheduler};
use crate::view::{JobId, Running, View};

pub(super) const FCFS: BuiltIn =
    BuiltIn::new("fcfs", "first come, first served; the head of the queue blocks the rest", |_| {
        Box::new(Ordered::fcfs())
    });
pub(super) const SJF: BuiltIn =
    BuiltIn::new("sjf", "shortest job first; the head blocks the rest", |_| Box::new(Ordered::sjf()));
pub(super) const SMALLEST: BuiltIn = BuiltIn::new(
    "smallest",
    "fewest GPUs first; the head blocks the rest",
    |_| Box::new(Ordered::smallest()),
);
pub(super) const EDF: BuiltIn =
    BuiltIn::new("edf", "earliest deadline first, those without one last; the head blocks the rest", |_| {
        Box::new(Ordered::edf())
    });

/// Starts jobs in order of a key, ties by submission.
#[derive(Clone, Debug)]
pub struct Ordered {
    name: &'static str,
    /// The key; `None` is the order of submission, for which the cluster's own queue serves.
    key: Option<fn(JobId, &dyn View) -> u64>,
    waiting: BTreeSet<(u64, JobId)>,
    /// The head has no legal GPUs until some come free.
    blocked: Option<JobId>,
}

impl Ordered {
    /// First come, first served.
    pub const fn fcfs() -> Self {
        Self { name: FCFS.entry.name, key: None, waiting: BTreeSet::new(), blocked: None }
    }

    /// Shortest job first, by estimate; a job that has begun is not stopped.
    pub fn sjf() -> Self {
        Self { name: SJF.entry.name, key: Some(|job, cluster| cluster.job(job).estimate), ..Self::fcfs() }
    }

    /// Fewest GPUs first.
    pub fn smallest() -> Self {
        Self {
            name: SMALLEST.entry.name,
            key: Some(|job, cluster| u64::from(cluster.job(job).gpus)),
            ..Self::fcfs()
        }
    }

    /// Earliest deadline first (Liu and Layland, "Scheduling algorithms for multiprogramming in a hard-real-time environment", JACM
    /// 20(1), 1973, without stopping what runs); jobs without one after all others.
    pub fn edf() -> Self {
        Self {
            name: EDF.entry.name,
            key: Some(|job, cluster| cluster.deadline_of(job).unwrap_or(u64::MAX)),
            ..Self::fcfs()
        }
    }
}

impl Scheduler for Ordered {
    fn name(&self) -> &'static str {
        self.name
    }

    fn queued(&mut self, job: JobId, cluster: &dyn View) {
        if let Some(key) = self.key {
            self.waiting.insert((key(job, cluster), job));
        }
    }

    fn started(&mut self, job: JobId, cluster: &dyn View) {
        if let Some(key) = self.key {
            self.waiting.remove(&(key(job, cluster), job));
        }
    }

    fn released(&mut self, _: JobId, _: &Running, _: &dyn View) {
        self.blocked = None;
    }

    fn regained(&mut self, _: &Absence, _: &dyn View) {
        self.blocked = None;
    }

    fn decide(&mut self, cluster: &dyn View) -> Option<Decision> {
        let job = self.head(cluster)?;
        let fits = cluster.job(job).gpus <= cluster.free() && self.blocked != Some(job);
        fits.then_some(Decision::Start { job, region: 0 })
    }

    fn refused(&mut self, job: JobId, _: &dyn View) {
        self.blocked = Some(job);
    }

    fn head(&self, cluster: &dyn View) -> Option<JobId> {
        match self.key {
            Some(_) => self.waiting.first().map(|&(_, job)| job),
            None => cluster.queue().head(),
        }
    }
}
