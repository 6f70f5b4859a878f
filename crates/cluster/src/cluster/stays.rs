//! Stays of jobs on GPUs, from a start to the end or stop that follows: what a chart of jobs over hosts shows.
//!
//! Kept only if asked for, since a job that is stopped again and again has many; whoever asks takes them off as they come.

use windtunnel_kernel::EndpointId;

use super::{Cluster, JobId, Running, View};

/// A job on the same GPUs for a time above 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Which.
    pub job: JobId,
    /// When it got them, in nanoseconds.
    pub start: u64,
    /// When it lost them; `None` while it has them.
    pub until: Option<u64>,
    /// GPU of each rank.
    pub placement: Vec<EndpointId>,
}

impl Cluster<'_> {
    /// From now on stays are kept until [`Self::take_stays`].
    pub fn keep_stays(&mut self) {
        self.stays.get_or_insert_default();
    }

    /// Stays that are over, in the order in which they ended, and not taken yet; none if they are not kept.
    pub fn take_stays(&mut self) -> Vec<Stay> {
        self.stays.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Stays that go on, in order of submission.
    pub fn open_stays(&self) -> Vec<Stay> {
        let open = |running: &Running| Stay {
            job: running.job,
            start: self.started(running.job),
            until: None,
            placement: running.placement.clone(),
        };
        let mut stays: Vec<Stay> = self.running.iter().map(open).collect();
        stays.sort_by_key(|stay| stay.job);
        stays
    }

    /// The stay of a job that just got off its GPUs.
    pub(super) fn note_stay(&mut self, running: &Running) {
        let (start, until) = (self.started(running.job), self.now);
        if let Some(stays) = self.stays.as_mut().filter(|_| until > start) {
            let placement = running.placement.clone();
            stays.push(Stay { job: running.job, start, until: Some(until), placement });
        }
    }
}
