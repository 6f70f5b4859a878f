//! A job on a shard: what is asked of it, how far its ranks have come, and who hears of that.

use std::collections::VecDeque;
use std::sync::Arc;

use windtunnel_kernel::{EndpointId, RankId, Span, Time};
use windtunnel_workload::Workload;
use windtunnel_workload::replay::Replay;

use super::exchanges::Exchanges as Merging;
use crate::coupler::Coupler;
use crate::explain::CriticalPath;

/// A job as a shard runs it.
#[derive(Clone, Debug)]
pub struct ShardJob {
    /// Its number in the run: part of what load balancers hash.
    pub number: u64,
    /// What it does.
    pub workload: Arc<Workload>,
    /// GPU of each rank.
    pub placement: Arc<[EndpointId]>,
    /// The first so many ranks stand on GPUs of their own; those after them where other jobs' ranks may stand too, and
    /// receive nothing there but from ranks of the first kind.
    pub own: usize,
    /// Iterations to run before its ranks stop.
    pub iterations: u64,
    /// Of these the first so many are no part of what [`Shard::stop_after`](super::Shard::stop_after) asks for.
    pub redone: u64,
    /// Whether anything is asked of it: what is not runs as long as the others do.
    pub awaited: bool,
    /// When its ranks start.
    pub start: Time,
    /// Iterations done before this shard began; part of the key of its noise.
    pub done_before: u64,
    /// Whether each rank is simulated; empty: all are. A rank that is not stands for an equal one that is, so every
    /// collective that has members of both kinds must run coupled (folding).
    pub simulated: Arc<[bool]>,
}

impl ShardJob {
    pub(super) fn is_simulated(&self, rank: RankId) -> bool {
        self.simulated.get(rank.0 as usize).copied().unwrap_or(true)
    }
}

/// An iteration that all ranks have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IterationEnd {
    /// Which, counted from 0 within the shard.
    pub iteration: u64,
    /// End of the iteration before (the job's start for the first).
    pub start: Time,
    /// End of the last rank.
    pub finish: Time,
    /// By how much that is later than the mean of all ranks' ends.
    pub lag: Span,
    /// Where the time between the two went.
    pub path: CriticalPath,
}

/// What a run tells its observer, in a fixed order.
pub trait Observer {
    /// A rank of `job` has ended `iteration`; its operations' records can be read until it starts the next.
    fn rank_iteration(&mut self, job: usize, rank: RankId, iteration: u64, replay: &Replay);
    /// All ranks of `job` have.
    fn iteration(&mut self, job: usize, end: &IterationEnd, replay: &Replay);
}

/// Iterations of a job that some rank has not ended yet.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) ranks: usize,
    pub(super) latest: Time,
    /// Of the ends of its ranks, in picoseconds.
    pub(super) sum: u128,
    pub(super) path: Option<CriticalPath>,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) job: ShardJob,
    pub(super) replay: Replay,
    pub(super) coupler: Coupler,
    pub(super) exchanges: Merging,
    /// Number of simulated ranks.
    pub(super) ranks: usize,
    /// Jobs that were on its GPUs as it entered.
    pub(super) before: Vec<u32>,
    /// Ranks on endpoints that it shares, by endpoint.
    pub(super) shared: Vec<(EndpointId, RankId)>,
    /// Simulated members of each communicator.
    pub(super) members: Vec<u32>,
    /// Iteration of each rank.
    pub(super) iteration: Vec<u64>,
    /// Open iterations from `ended` on.
    pub(super) open: VecDeque<Open>,
    pub(super) ended: u64,
    pub(super) last_end: Time,
    /// Start of each rank's iteration.
    pub(super) began: Vec<Time>,
    /// Iterations after which its ranks stop until they are released.
    pub(super) hold: u64,
    /// Ranks that have stopped there.
    pub(super) held: Vec<RankId>,
    /// Ranks that are [`RUN_AHEAD`](super::iterations::RUN_AHEAD) iterations ahead of the slowest, and since when, in the order in which they came.
    pub(super) ahead: Vec<(RankId, Time)>,
    /// It was taken off before its end.
    pub(super) gone: bool,
}

impl Running {
    /// Iterations after which it has been seen enough.
    pub(super) fn enough(&self, enough: u64) -> u64 {
        if self.job.awaited { self.job.iterations.min(enough.saturating_add(self.job.redone)) } else { 0 }
    }
}
