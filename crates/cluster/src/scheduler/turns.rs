//! Whose reservation is to come, and whose turn it is: what both kinds of conservative backfill keep of waiting jobs.

use std::collections::BTreeSet;

use crate::view::{JobId, View};

/// The waiting jobs, each of which has a reservation or had one.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    /// Reservations to come, by time and order.
    reserved: BTreeSet<(u64, JobId)>,
    /// Jobs whose time has come.
    due: BTreeSet<JobId>,
    /// (the clock, the next one of those to try).
    pass: (u64, JobId),
}

impl Turns {
    pub(super) const fn new() -> Self {
        Self { reserved: BTreeSet::new(), due: BTreeSet::new(), pass: (0, JobId(0)) }
    }

    /// `job` is to begin at `start`.
    pub(super) fn reserve(&mut self, start: u64, job: JobId) {
        self.reserved.insert((start, job));
    }

    /// Gives up all reservations to come: their jobs, in order of submission.
    pub(super) fn give_up(&mut self) -> Vec<JobId> {
        let mut jobs: Vec<JobId> =
            std::mem::take(&mut self.reserved).into_iter().map(|(_, job)| job).collect();
        jobs.sort_unstable();
        jobs
    }

    /// `job`, which was to begin at `start`, begins; whether that is before its time.
    pub(super) fn started(&mut self, job: JobId, start: Option<u64>) -> bool {
        !self.due.remove(&job) && start.is_some_and(|start| self.reserved.remove(&(start, job)))
    }

    /// Something has changed at `now`: every job whose time has come may be tried again.
    pub(super) fn look_again(&mut self, now: u64) {
        self.pass = (now, JobId(0));
    }

    /// The first job in order of submission whose time has come, for which enough GPUs are free and which was not tried at this
    /// instant.
    pub(super) fn next(&mut self, cluster: &dyn View) -> Option<JobId> {
        let now = cluster.now();
        if self.pass.0 != now {
            self.look_again(now);
        }
        while let Some(&(start, job)) = self.reserved.first().filter(|(start, _)| *start <= now) {
            self.reserved.remove(&(start, job));
            self.due.insert(job);
        }
        let free = cluster.free();
        let job = self.due.range(self.pass.1..).copied().find(|&job| cluster.job(job).gpus <= free)?;
        self.pass.1 = JobId(job.0 + 1);
        Some(job)
    }

    /// When the first reservation begins.
    pub(super) fn first(&self) -> Option<u64> {
        self.reserved.first().map(|&(start, _)| start)
    }
}
