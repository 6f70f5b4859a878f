//! EASY backfill (Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995): first come, first served, and the head of the
//! queue has a reservation: the *shadow* time at which enough GPUs will be free, and the *extra* ones that it leaves over
//! then. Another job goes before if it fits now and either gives its GPUs back by the shadow time or is content with the
//! extra ones. Ends are those that estimates promise; a job that is overdue may end at any moment.
//!
//! A pass goes through the queue once: what did not fit before does not fit after another start. A job is found by
//! [`Classes`], the shadow by [`Profile`]; neither looks at every job.

use rustc_hash::FxHashMap;

use super::classes::Classes;
use super::{Absence, Decision, Profile, Scheduler};
use crate::cluster::{Cluster, JobId, Running};

/// The EASY scheduler.
#[derive(Clone, Debug)]
pub struct Easy {
    waiting: Classes,
    /// Free GPUs from now on, if nothing more is started.
    profile: Profile,
    /// Expected release of each running job.
    until: FxHashMap<JobId, u64>,
    pass: Pass,
}

/// How far a pass through the queue has come; it begins anew when the clock moves.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    now: u64,
    /// Where to look on; 0 is before the first job.
    from: JobId,
    /// The head has no legal GPUs now.
    blocked: Option<JobId>,
}

impl Easy {
    /// On `endpoints` GPUs.
    pub fn new(endpoints: u32) -> Self {
        Self {
            waiting: Classes::new(),
            profile: Profile::new(endpoints),
            until: FxHashMap::default(),
            pass: Pass::default(),
        }
    }

    /// When the head will start, and what it then leaves over.
    fn shadow(&self, head: JobId, cluster: &Cluster<'_>) -> (u64, u32) {
        let (now, gpus) = (cluster.now(), i64::from(cluster.job(head).gpus));
        if self.pass.blocked == Some(head) {
            // Enough is free, but nowhere legal: until something ends nothing can be said.
            let later = self.profile.first_with(now, self.profile.at(now) + 1);
            return (later.unwrap_or(now), 0);
        }
        let shadow = self.profile.first_with(now, gpus).unwrap_or(now);
        (shadow, (self.profile.at(shadow) - gpus).max(0) as u32)
    }
}

impl Scheduler for Easy {
    fn name(&self) -> &'static str {
        "easy"
    }

    fn queued(&mut self, job: JobId, cluster: &Cluster<'_>) {
        self.waiting.insert(job, cluster.job(job).gpus, cluster.expected_hold(job));
    }

    fn started(&mut self, job: JobId, cluster: &Cluster<'_>) {
        let gpus = cluster.job(job).gpus;
        self.waiting.remove(job, gpus);
        let release = cluster.expected_release(job);
        // An elastic job may have got others.
        let has = cluster.running_job(job).map_or(0, |running| running.placement.len() as i64);
        self.profile.add(cluster.now(), release, -has);
        self.until.insert(job, release);
    }

    fn released(&mut self, job: JobId, running: &Running, cluster: &Cluster<'_>) {
        let until = self.until.remove(&job).expect("it ran");
        if until > cluster.now() {
            self.profile.add(cluster.now(), until, running.placement.len() as i64);
        }
        self.pass = Pass::default();
    }

    fn lost(&mut self, absence: &Absence, _: &Cluster<'_>) {
        self.profile.add(absence.from, absence.until, -(absence.gpus.len() as i64));
    }

    fn regained(&mut self, absence: &Absence, _: &Cluster<'_>) {
        if absence.until > absence.from {
            self.profile.add(absence.from, absence.until, absence.gpus.len() as i64);
        }
        self.pass = Pass::default();
    }

    fn decide(&mut self, cluster: &Cluster<'_>) -> Option<Decision> {
        let head = cluster.queue().head()?;
        if self.pass.now != cluster.now() {
            self.profile.advance(cluster.now());
            self.pass = Pass { now: cluster.now(), ..Pass::default() };
        }
        let free = cluster.free();
        if free == 0 {
            return None;
        }
        if cluster.job(head).gpus <= free && self.pass.blocked != Some(head) {
            return Some(Decision::Start { job: head, region: 0 });
        }
        let (shadow, extra) = self.shadow(head, cluster);
        let from = self.pass.from.max(JobId(head.0 + 1));
        let job = self.waiting.first(from, free, shadow - cluster.now(), extra)?;
        self.pass.from = JobId(job.0 + 1);
        Some(Decision::Start { job, region: 0 })
    }

    fn refused(&mut self, job: JobId, cluster: &Cluster<'_>) {
        if cluster.queue().head() == Some(job) {
            self.pass.blocked = Some(job);
        }
    }
}

/// The first job of the queue that fits is started, whoever waits before it.
#[derive(Clone, Debug, Default)]
pub struct FirstFit {
    waiting: Classes,
    pass: Pass,
}

impl FirstFit {
    /// Nothing waits.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Scheduler for FirstFit {
    fn name(&self) -> &'static str {
        "first-fit"
    }

    fn queued(&mut self, job: JobId, cluster: &Cluster<'_>) {
        self.waiting.insert(job, cluster.job(job).gpus, 0);
    }

    fn started(&mut self, job: JobId, cluster: &Cluster<'_>) {
        self.waiting.remove(job, cluster.job(job).gpus);
    }

    fn released(&mut self, _: JobId, _: &Running, _: &Cluster<'_>) {
        self.pass = Pass::default();
    }

    fn regained(&mut self, _: &Absence, _: &Cluster<'_>) {
        self.pass = Pass::default();
    }

    fn decide(&mut self, cluster: &Cluster<'_>) -> Option<Decision> {
        if self.pass.now != cluster.now() {
            self.pass = Pass { now: cluster.now(), ..Pass::default() };
        }
        let free = cluster.free();
        let job = self.waiting.first(self.pass.from, free, 0, free)?;
        self.pass.from = JobId(job.0 + 1);
        Some(Decision::Start { job, region: 0 })
    }

    fn refused(&mut self, _: JobId, _: &Cluster<'_>) {}
}
