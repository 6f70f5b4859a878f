//! How a job spends its time on GPUs besides working: loading, checkpoints, restarts, and what they save.
//!
//! A job that gets GPUs first pays what it owes (a checkpoint that it wrote as it was preempted, loading its data, its
//! restart), then works; every so long it stops for the time that a checkpoint takes to write. What it had done when a
//! write began is safe once that write has ended. An interrupted job goes back to there; without a checkpoint to its
//! beginning. There is no write at the end.
//!
//! All of it is a closed form of the time since the start ([`Segment`]), so a month of checkpoints costs nothing and the
//! two drivers cannot disagree. Sums are integers: of a job's time on GPUs every nanosecond is one of loading, restart,
//! checkpoint or work ([`Parts`]).

mod segment;
mod sizes;

pub use segment::{Parts, Segment, State};
pub use sizes::Sizes;

/// When a job writes checkpoints, and what each costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Work between the end of one write and the begin of the next.
    pub every: Every,
    /// Nanoseconds of a write, in which the job does not work.
    pub write: u64,
}

/// A stretch of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// So many nanoseconds, at least 1.
    Time(u64),
    /// So many iterations, at least 1; only a driver that knows iterations can tell when they are done.
    Iterations(u64),
}

/// What a job pays in the course of its life, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Its checkpoints; `None`: an interruption costs all work.
    pub checkpoint: Option<Checkpoint>,
    /// Before it goes on after it was stopped or interrupted.
    pub restart: u64,
    /// On top if it goes on on other GPUs than it had.
    pub migration: u64,
    /// Before it first starts: its data come from elsewhere. An estimate where a network tells.
    pub loading: u64,
    /// The region where its data are, in which it does not load.
    pub data_region: Option<u32>,
    /// The numbers of GPUs that it can do with; `None`: those that it was asked for.
    pub elastic: Option<Sizes>,
}

/// Time of a load that nothing is known of: longer than anything, with room to add to.
pub const UNKNOWN: u64 = u64::MAX / 4;

/// What a waiting job pays before it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Debts {
    /// Its data come from elsewhere.
    pub loads: bool,
    /// It was stopped, and its GPUs know it no longer.
    pub restarts: bool,
    /// It wrote a checkpoint as it was stopped.
    pub wrote: bool,
}

impl Debts {
    pub(crate) const FRESH: Self = Self { loads: true, restarts: false, wrote: false };
    pub(crate) const NONE: Self = Self { loads: false, restarts: false, wrote: false };
}

impl Life {
    /// Whether it saves its work now and then, and pauses for that.
    pub const fn saves(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// What a job that owes `debts` pays before it works, where its data are `away`; `moves`: on other GPUs than it had.
    pub(crate) fn pause(&self, debts: Debts, away: bool, moves: bool) -> Parts {
        let only = |paid: bool, ns: u64| if paid { ns } else { 0 };
        Parts {
            loading: only(debts.loads && away, self.loading),
            restart: only(debts.restarts, self.restart) + only(moves, self.migration),
            checkpoint: only(debts.wrote, self.write()),
            work: 0,
        }
    }

    /// Nanoseconds of work between writes, where that is known; for ever if there are none.
    pub(crate) fn interval(&self) -> u64 {
        match self.checkpoint {
            Some(Checkpoint { every: Every::Time(ns), .. }) => ns.max(1),
            _ => u64::MAX,
        }
    }

    /// Nanoseconds of a write.
    pub(crate) fn write(&self) -> u64 {
        self.checkpoint.map_or(0, |checkpoint| checkpoint.write)
    }
}

/// The lives of all jobs.
#[derive(Clone, Debug)]
pub enum Lives {
    /// All alike.
    Same(Life),
    /// By job, in order of submission.
    Each(Vec<Life>),
}

impl Default for Lives {
    fn default() -> Self {
        Self::Same(Life::default())
    }
}

impl Lives {
    /// Of job number `job`.
    pub fn of(&self, job: usize) -> &Life {
        match self {
            Self::Same(life) => life,
            Self::Each(lives) => &lives[job],
        }
    }

    /// Whether any job is elastic.
    pub fn any_elastic(&self) -> bool {
        match self {
            Self::Same(life) => life.elastic.is_some(),
            Self::Each(lives) => lives.iter().any(|life| life.elastic.is_some()),
        }
    }
}
