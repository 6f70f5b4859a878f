//! When a job whose every iteration is simulated writes checkpoints.
//!
//! Between episodes a write begins when it is due, in mid-iteration. Here ranks stop at the end of the iteration that any of
//! them has begun by then, the write takes its time once the last one has, and all go on together. There is none after the
//! last iteration.

use windtunnel_cluster::life::{Checkpoint, Every, Life};
use windtunnel_cluster::shard::{Observer, Shard};
use windtunnel_fabric::Fabric;
use windtunnel_kernel::Time;

/// See the module page.
pub(super) struct Writes {
    checkpoint: Option<Checkpoint>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It works, and nothing is due before its end.
    Works,
    /// It works until then, with so many iterations done on these GPUs at the begin.
    Since { at: u64, done: u64 },
    /// A write is due then.
    Due { at: u64 },
    /// Its ranks stop after so many iterations on these GPUs.
    Stops { after: u64 },
    /// It writes until then; so many iterations are safe afterwards.
    Writes { until: u64, done: u64 },
}

impl Writes {
    /// Of a job that begins to work at `ready` nanoseconds.
    pub(super) fn new(life: &Life, ready: u64) -> Self {
        Self { checkpoint: life.checkpoint, state: State::Since { at: ready, done: 0 } }
    }

    /// When something is to be done, if that is known.
    pub(super) const fn next(&self) -> Option<u64> {
        match self.state {
            State::Due { at } | State::Writes { until: at, .. } => Some(at),
            _ => None,
        }
    }

    /// Whether ranks stop, so that the shard knows when it can write.
    pub(super) const fn stops(&self) -> bool {
        matches!(self.state, State::Stops { .. })
    }

    /// It works from now on, with `left` iterations to do in all since it got its GPUs; whether it writes checkpoints.
    pub(super) fn begin<F: Fabric, O: Observer>(
        &mut self,
        shard: &mut Shard<'_, F, O>,
        place: usize,
        left: u64,
    ) -> bool {
        let (Some(checkpoint), State::Since { at, done }) = (self.checkpoint, self.state) else {
            return false;
        };
        self.state = match checkpoint.every {
            Every::Time(ns) => State::Due { at: at.saturating_add(ns.max(1)) },
            Every::Iterations(count) => stop(shard, place, done.saturating_add(count.max(1)), left),
        };
        true
    }

    /// Lets ranks stop where a write is due at `now`; whether a write begins, for all of them have.
    pub(super) fn start<F: Fabric, O: Observer>(
        &mut self,
        shard: &mut Shard<'_, F, O>,
        place: usize,
        left: u64,
        now: u64,
    ) -> bool {
        match (self.state, self.checkpoint) {
            (State::Due { at }, _) if at <= now => {
                self.state = stop(shard, place, shard.begun(place), left);
                false
            }
            (State::Stops { after }, Some(checkpoint)) => {
                let ready = shard.held(place).is_some_and(|at| at.since(Time::ZERO).ns_ceil() <= now);
                if ready {
                    self.state = State::Writes { until: now + 1 + checkpoint.write, done: after };
                }
                ready
            }
            _ => false,
        }
    }

    /// Iterations on these GPUs that are safe from `now` on, if a write ends now; it has to [begin](Self::begin) again.
    pub(super) fn end(&mut self, now: u64) -> Option<u64> {
        let State::Writes { until, done } = self.state else { return None };
        if until > now {
            return None;
        }
        self.state = State::Since { at: now, done };
        Some(done)
    }
}

fn stop<F: Fabric, O: Observer>(shard: &mut Shard<'_, F, O>, place: usize, after: u64, left: u64) -> State {
    if after >= left {
        return State::Works;
    }
    shard.hold_after(place, after);
    State::Stops { after }
}
