//! How ranks go from one iteration to the next: where they start, stop, and wait for the slowest.

use windtunnel_fabric::Fabric;
use windtunnel_kernel::{RankId, Time};

use super::Shard;
use super::running::{IterationEnd, Observer, Open, Running, ShardJob};
use crate::explain::{self, CriticalPath};

/// Iterations by which a rank may be ahead of the slowest of its job. A rank that waits for nobody (one that only sends, or
/// has nothing to do) would otherwise begin all of them at once, each of which is held in memory until its messages have
/// arrived. Longer than what any episode is judged by, so it is only met where every iteration is simulated.
pub(super) const RUN_AHEAD: u64 = 512;

impl<F: Fabric, O: Observer> Shard<'_, F, O> {
    /// Starts the ranks of `job` at `at`.
    pub(super) fn start(&mut self, job: usize, at: Time) {
        let running = &mut self.jobs[job];
        running.last_end = at;
        running.began.fill(at);
        running.exchanges.begin(at);
        let ShardJob { placement, own, .. } = &running.job;
        for (endpoint, rank) in placement.iter().take(*own).zip(0..) {
            self.rank_at[endpoint.0 as usize] = rank;
        }
        for rank in (0..placement.len() as u32).map(RankId) {
            if self.jobs[job].job.is_simulated(rank) {
                self.begin(job, rank, at);
            }
        }
    }

    /// Whether nothing more comes of `job`.
    pub(super) fn is_over(&self, job: usize) -> bool {
        let running = &self.jobs[job];
        running.gone || running.ended == running.job.iterations
    }

    /// Starts jobs that waited for one that is over since `at`.
    fn let_start(&mut self, at: Time) {
        let waiting = std::mem::take(&mut self.waiting);
        let (free, waiting): (Vec<usize>, Vec<usize>) = waiting
            .into_iter()
            .partition(|&job| self.jobs[job].before.iter().all(|&other| self.is_over(other as usize)));
        self.waiting = waiting;
        for job in free {
            let start = self.jobs[job].job.start.max(at);
            self.start(job, start);
        }
    }

    /// When `job` ended its last iteration; `None` while it goes on.
    pub fn finished(&self, job: usize) -> Option<Time> {
        let running = &self.jobs[job];
        (running.ended == running.job.iterations).then_some(running.last_end)
    }

    /// Lets the ranks of `job` stop once they have ended `iterations`, more than any of them has, until [`Self::release`].
    pub fn hold_after(&mut self, job: usize, iterations: u64) {
        self.jobs[job].hold = iterations;
    }

    /// When the last rank of `job` stopped where they were to; `None` before.
    pub fn held(&self, job: usize) -> Option<Time> {
        let running = &self.jobs[job];
        (running.held.len() == running.ranks).then_some(running.last_end)
    }

    /// Lets the ranks of `job`, all of which have stopped, go on at `at`.
    pub fn release(&mut self, job: usize, at: Time) {
        let running = &mut self.jobs[job];
        running.hold = u64::MAX;
        // What they waited for is no part of their next iteration.
        running.last_end = at;
        let mut held = std::mem::take(&mut running.held);
        held.sort_unstable();
        for rank in held {
            self.begin(job, rank, at);
        }
    }

    /// Iterations that some rank of `job` has begun.
    pub fn begun(&self, job: usize) -> u64 {
        let running = &self.jobs[job];
        running.iteration.iter().max().map_or(0, |&most| (most + 1).min(running.job.iterations))
    }

    /// Iterations that all ranks of `job` have ended.
    pub fn ended(&self, job: usize) -> u64 {
        self.jobs[job].ended
    }

    /// Of these those whose ends are no later than `at`; the last one may be known ahead.
    pub fn ended_by(&self, job: usize, at: Time) -> u64 {
        let running = &self.jobs[job];
        running.ended - u64::from(running.ended > 0 && running.last_end > at)
    }

    pub(super) fn begin(&mut self, job: usize, rank: RankId, at: Time) {
        let mut next = Some(at);
        // A rank with nothing to do ends as it begins.
        while let Some(at) = next.take() {
            self.jobs[job].began[rank.0 as usize] = at;
            if self.with(job, rank, |replay, machine| replay.begin(rank, at, machine)) {
                next = self.iteration_done(job, rank);
            }
        }
    }

    /// A rank has ended its iteration, and begins the next if it may.
    pub(super) fn go_on(&mut self, job: usize, rank: RankId) {
        if let Some(at) = self.iteration_done(job, rank) {
            self.begin(job, rank, at);
        }
    }

    /// Takes note that a rank has ended its iteration; when it begins the next, if it is to do that now.
    fn iteration_done(&mut self, job: usize, rank: RankId) -> Option<Time> {
        let running = &mut self.jobs[job];
        let at = running.replay.iteration_finish(rank);
        let iteration = running.iteration[rank.0 as usize];
        self.observer.rank_iteration(job, rank, iteration, &running.replay);
        let position = (iteration - running.ended) as usize;
        while running.open.len() <= position {
            running.open.push_back(Open { ranks: 0, latest: Time::ZERO, sum: 0, path: None });
        }
        let open = &mut running.open[position];
        open.ranks += 1;
        open.sum += u128::from(at.ps());
        let critical =
            open.path.as_ref().is_none_or(|path| at > open.latest || (at == open.latest && rank < path.rank));
        if critical {
            let program = running.job.workload.program(rank);
            let began = running.began[rank.0 as usize];
            let segments = explain::walk(program, began, at, |op| running.replay.record(rank, op));
            open.latest = at;
            open.path = Some(CriticalPath { rank, segments });
        }
        let ranks = running.ranks;
        // Iterations end in order: a rank does one after the other.
        while running.open.front().is_some_and(|open| open.ranks == ranks) {
            let open = running.open.pop_front().expect("the front was just seen");
            let mut path = open.path.expect("an iteration that a rank ended has a path");
            explain::clip(&mut path.segments, running.last_end);
            let (start, finish) = (running.last_end, open.latest);
            let lag = finish - Time::from_ps((open.sum / ranks as u128) as u64);
            let end = IterationEnd { iteration: running.ended, start, finish, lag, path };
            self.observer.iteration(job, &end, &running.replay);
            running.ended += 1;
            running.last_end = open.latest;
            running.exchanges.iteration(open.latest);
        }
        self.satisfied_now = self.satisfied();
        let running = &mut self.jobs[job];
        running.iteration[rank.0 as usize] += 1;
        let next = iteration + 1;
        let may = next < running.ended + RUN_AHEAD;
        let wait = if next == running.hold {
            running.held.push(rank);
            true
        } else if next < running.job.iterations && !may {
            running.ahead.push((rank, at));
            true
        } else {
            next >= running.job.iterations
        };
        self.let_follow(job);
        if !self.waiting.is_empty() && self.is_over(job) {
            let at = self.jobs[job].last_end.max(self.fabric.now());
            self.let_start(at);
        }
        (!wait).then_some(at)
    }

    /// Lets ranks go on that were too far ahead and are no longer.
    fn let_follow(&mut self, job: usize) {
        let running = &mut self.jobs[job];
        if running.ahead.is_empty() {
            return;
        }
        let most = running.ended + RUN_AHEAD;
        let Running { ahead, iteration, .. } = running;
        let free: Vec<(RankId, Time)> =
            ahead.extract_if(.., |(rank, _)| iteration[rank.0 as usize] < most).collect();
        let now = self.fabric.now();
        for (rank, at) in free {
            self.begin(job, rank, at.max(now));
        }
    }
}
