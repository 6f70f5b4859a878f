//! What became of the jobs.

use windtunnel_kernel::CalendarTime;

use super::timeline::Timeline;
use crate::cluster::{FaultRecord, GpuTime, JobTime, Reason, Stay, Tally};

/// A job's way through the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobHistory {
    /// When it was submitted; `None` if the run ended before.
    pub submit: Option<CalendarTime>,
    /// When it first got its GPUs.
    pub start: Option<CalendarTime>,
    /// When it ended.
    pub finish: Option<CalendarTime>,
    /// Stops and interruptions on the way, and what they cost.
    pub time: JobTime,
    /// Nanoseconds in which it did iterations, also such as an interruption undid.
    pub worked: u64,
    /// Iterations done and not undone, by how many GPUs it did them on.
    pub done: Done,
    /// Those that interruptions undid.
    pub undone: Done,
    /// Requests for its data.
    pub loaded: Done,
    /// Whether its time was extrapolated beyond simulated iterations.
    pub extrapolated: bool,
    /// Variance of its time by what was not simulated, in square nanoseconds.
    pub variance: f64,
}

/// Work by the number of GPUs on which it was done, in 2^-64 iterations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done(Vec<(usize, u128)>);

impl Done {
    /// Adds `work` on so many GPUs.
    pub fn add(&mut self, gpus: usize, work: u128) {
        match self.0.iter_mut().find(|(known, _)| *known == gpus) {
            Some((_, sum)) => *sum += work,
            None => self.0.push((gpus, work)),
        }
    }

    /// Takes back `work` that was added on so many GPUs.
    pub(super) fn take(&mut self, gpus: usize, work: u128) {
        if let Some((_, sum)) = self.0.iter_mut().find(|(known, _)| *known == gpus) {
            *sum = sum.saturating_sub(work);
        }
    }

    /// Moves `work` to what was `undone`, of those numbers of GPUs first that came last.
    pub fn undo(&mut self, mut work: u128, undone: &mut Self) {
        for (gpus, sum) in self.0.iter_mut().rev() {
            let part = work.min(*sum);
            *sum -= part;
            work -= part;
            undone.add(*gpus, part);
        }
    }

    /// Numbers of GPUs, and the work done on each.
    pub fn parts(&self) -> impl Iterator<Item = (usize, u128)> {
        self.0.iter().copied()
    }

    /// All together.
    pub fn total(&self) -> u128 {
        self.0.iter().map(|&(_, work)| work).sum()
    }
}

/// What became of the jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Histories {
    /// By job, in the order in which they were given.
    pub jobs: Vec<JobHistory>,
    /// Of each job in order of submission, its place in that order.
    pub given: Vec<usize>,
    /// GPU-time until the end.
    pub gpu_time: GpuTime,
    /// Faults and maintenance in order.
    pub faults: Vec<FaultRecord>,
    /// What those of each kind did; empty if nothing can fail.
    pub tallies: Vec<(Reason, Tally)>,
    /// Where it ended.
    pub end: CalendarTime,
    /// The cluster over time.
    pub timeline: Timeline,
    /// Who was where: stays in the order in which they ended, then those that the end cuts off.
    pub stays: Vec<Stay>,
}
