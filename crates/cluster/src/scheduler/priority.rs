//! Highest priority first, with preemption: the head of the queue may stop running jobs of lower priority, those of the
//! lowest first and of these the latest started, as many as it needs. They keep their work, wait at their old place, and
//! pay a restart. Within a priority first come, first served; the head blocks the rest.

use std::collections::{BTreeMap, BTreeSet};

use super::policy::{Absence, BuiltIn, Decision, Scheduler};
use crate::view::{JobId, Running, View};

type Order = std::cmp::Reverse<i32>;

pub(super) const PRIORITY: BuiltIn =
    BuiltIn::new("priority", "highest priority first; stops running jobs of lower priority", |_| {
        Box::new(Priority::new())
    });

/// The GPUs of a priority's running jobs, and those jobs with the GPUs of each, the latest started first.
type Level = (u64, BTreeMap<(std::cmp::Reverse<u64>, JobId), u64>);

/// Running jobs by priority, the first to stop first.
#[derive(Clone, Debug, Default)]
pub(super) struct Victims {
    by_priority: BTreeMap<i32, Level>,
}

impl Victims {
    /// `job` runs.
    pub(super) fn insert(&mut self, job: JobId, cluster: &dyn View) {
        let known = cluster.job(job);
        let (gpus, jobs) = self.by_priority.entry(known.priority).or_default();
        // An elastic job may have got others than it asked for.
        let has = cluster.running_job(job).map_or(0, |running| running.placement.len() as u64);
        *gpus += has;
        jobs.insert((std::cmp::Reverse(cluster.started(job)), job), has);
    }

    /// `job` runs no longer; no effect if it does not run.
    pub(super) fn remove(&mut self, job: JobId, cluster: &dyn View) {
        let known = cluster.job(job);
        let Some((gpus, jobs)) = self.by_priority.get_mut(&known.priority) else { return };
        if let Some(had) = jobs.remove(&(std::cmp::Reverse(cluster.started(job)), job)) {
            *gpus -= had;
        }
    }

    /// GPUs of jobs below `priority`.
    pub(super) fn gpus_below(&self, priority: i32) -> u64 {
        self.by_priority.range(..priority).map(|(_, (gpus, _))| gpus).sum()
    }

    /// Jobs below `priority` in the order in which they are stopped.
    pub(super) fn all_below(&self, priority: i32) -> impl Iterator<Item = JobId> + '_ {
        self.by_priority.range(..priority).flat_map(|(_, (_, jobs))| jobs.keys().map(|&(_, job)| job))
    }

    /// The lowest priority that runs.
    pub(super) fn lowest(&self) -> Option<i32> {
        self.by_priority.iter().find(|(_, (_, jobs))| !jobs.is_empty()).map(|(&priority, _)| priority)
    }

    /// The job below `priority` to stop first.
    pub(super) fn first_below(&self, priority: i32) -> Option<JobId> {
        let mut lower = self.by_priority.range(..priority);
        lower.find_map(|(_, (_, jobs))| jobs.keys().next().map(|&(_, job)| job))
    }
}

/// The priority scheduler.
#[derive(Clone, Debug, Default)]
pub struct Priority {
    waiting: BTreeSet<(Order, JobId)>,
    running: Victims,
    /// The head has no legal GPUs now.
    blocked: Option<JobId>,
}

impl Priority {
    /// Nothing waits.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Scheduler for Priority {
    fn name(&self) -> &'static str {
        PRIORITY.entry.name
    }

    fn queued(&mut self, job: JobId, cluster: &dyn View) {
        self.waiting.insert((std::cmp::Reverse(cluster.job(job).priority), job));
    }

    fn started(&mut self, job: JobId, cluster: &dyn View) {
        self.waiting.remove(&(std::cmp::Reverse(cluster.job(job).priority), job));
        self.running.insert(job, cluster);
    }

    fn released(&mut self, job: JobId, _: &Running, cluster: &dyn View) {
        self.running.remove(job, cluster);
        self.blocked = None;
    }

    fn regained(&mut self, _: &Absence, _: &dyn View) {
        self.blocked = None;
    }

    fn decide(&mut self, cluster: &dyn View) -> Option<Decision> {
        let job = self.head(cluster)?;
        let known = cluster.job(job);
        let free = cluster.free();
        if known.gpus <= free && self.blocked != Some(job) {
            return Some(Decision::Start { job, region: 0 });
        }
        // A job that has ended holds its GPUs until the cluster has reacted, and cannot be stopped.
        let victim = self.running.first_below(known.priority)?;
        if cluster.running_job(victim).is_none() {
            self.running.remove(victim, cluster);
            return self.decide(cluster);
        }
        let enough = u64::from(free) + self.running.gpus_below(known.priority) >= u64::from(known.gpus);
        enough.then_some(Decision::Preempt { job: victim })
    }

    fn refused(&mut self, job: JobId, _: &dyn View) {
        self.blocked = Some(job);
    }

    fn head(&self, _: &dyn View) -> Option<JobId> {
        self.waiting.first().map(|&(_, job)| job)
    }

    fn may_shrink(&self, giver: JobId, head: JobId, cluster: &dyn View) -> bool {
        cluster.job(giver).priority <= cluster.job(head).priority
    }
}
