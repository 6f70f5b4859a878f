//! What a run tells whoever wants to know, as it becomes known.
//!
//! The runner simulates episodes, or remembers them, and tells its subscribers of each when it is known and when it is over. It
//! knows nothing of what they make of it: [`Heat`](super::heat::Heat) sums up what links carried, and
//! [`Congestion`](super::heat::Congestion) for how long jobs were slowed. Whoever begins the run makes them, and reads them
//! when it is over. Nothing that a subscriber does changes the run.
//!
//! Rows have a [`TableSink`](crate::table::TableSink) and progress a [`ProgressSink`](crate::table::ProgressSink), which may
//! refuse the one and stop the other.

use windtunnel_cluster::calendar::EpisodeJob;

use super::recorder::Iteration;

/// Something that became known.
pub(crate) enum Event<'a> {
    /// What the jobs of an episode do in it.
    Known(&'a Known<'a>),
    /// An episode is over.
    Over(&'a Over<'a>),
}

/// An episode as it was simulated, or as one like it was.
pub(crate) struct Known<'a> {
    /// Number of the episode.
    pub number: u32,
    /// Its jobs, the newest last.
    pub jobs: &'a [EpisodeJob],
    /// Their iterations.
    pub iterations: &'a [Vec<Iteration>],
    /// Where it begins with a rerun: when the last of its jobs had entered it, in picoseconds of its iterations. What was before
    /// was with others.
    pub entered_ps: Option<u64>,
    /// Mean iteration of a job alone on the fabric as it is, in picoseconds, where that is known.
    pub alone: &'a dyn Fn(usize) -> Option<f64>,
}

/// The time that an episode lasted.
pub(crate) struct Over<'a> {
    /// Number of the episode.
    pub number: u32,
    /// From when, in nanoseconds.
    pub from: u64,
    /// Until when.
    pub until: u64,
    /// Links beyond scale-up domains that carried anything, with their mean bytes per second.
    pub used: &'a [(u32, f64)],
}

/// Hears of a run.
pub(crate) trait Subscriber {
    /// Events come in the order in which they become known.
    fn hear(&mut self, event: &Event<'_>);
}
