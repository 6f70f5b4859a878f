//! Why a schedule cannot be built.

use super::{Action, ScheduleName};

/// Why a schedule cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No schedule of this name.
    #[error(
        "unknown schedule: `{found}`\n\nhint: one of {}",
        ScheduleName::ALL.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    )]
    UnknownName {
        /// The text found.
        found: String,
    },
    /// Nothing to schedule.
    #[error(
        "a pipeline needs at least one rank, one chunk and one micro-batch, found {ranks} ranks, {chunks} chunks and \
         {microbatches} micro-batches"
    )]
    Empty {
        /// Pipeline ranks.
        ranks: u32,
        /// Chunks a rank.
        chunks: u16,
        /// Micro-batches.
        microbatches: u32,
    },
    /// The schedule is defined for other numbers of chunks.
    #[error("schedule `{name}` takes {expected} chunks a rank, found {found}\n\nhint: {hint}")]
    Chunks {
        /// Which schedule.
        name: ScheduleName,
        /// Chunks found.
        found: u16,
        /// Chunks it takes.
        expected: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The run length does not fit the ranks and micro-batches.
    #[error(
        "run length {run_length} does not fit {ranks} pipeline ranks and {microbatches} micro-batches: {reason}\n\nhint: \
         {hint}"
    )]
    RunLength {
        /// N.
        run_length: u32,
        /// P.
        ranks: u32,
        /// M.
        microbatches: u32,
        /// What is wrong.
        reason: &'static str,
        /// What to do.
        hint: String,
    },
    /// Too few micro-batches, or a number that does not divide.
    #[error(
        "schedule `{name}` on {ranks} ranks takes {expected} micro-batches, found {found}\n\nhint: {hint}"
    )]
    Microbatches {
        /// Which schedule.
        name: ScheduleName,
        /// P.
        ranks: u32,
        /// M found.
        found: u32,
        /// What it takes.
        expected: String,
        /// What to do.
        hint: String,
    },
    /// The number of pipeline ranks does not fit.
    #[error("schedule `{name}` takes an even number of pipeline ranks, found {found}\n\nhint: use {} or {}", found - 1, found + 1)]
    OddRanks {
        /// Which schedule.
        name: ScheduleName,
        /// P.
        found: u32,
    },
    /// The memory cap leaves no room for one micro-batch on all chunks.
    #[error(
        "a cap of {cap} live chunk activations holds less than one micro-batch on {chunks} chunks\n\nhint: \
         `memory_cap` is at least {chunks}"
    )]
    MemoryCap {
        /// Cap found.
        cap: u32,
        /// Chunks a rank.
        chunks: u16,
    },
    /// A pass is missing, doubled or out of range.
    #[error("pipeline rank {rank} runs {action} {count} times, expected {expected}")]
    Incomplete {
        /// Pipeline rank.
        rank: u32,
        /// The pass.
        action: Action,
        /// Times found.
        count: u8,
        /// Times expected.
        expected: u8,
    },
    /// The lists wait for each other.
    #[error(
        "the schedule deadlocks: pipeline rank {rank} waits at {action} (action {position})\n\nhint: a run length of at \
         least the number of pipeline ranks and a larger `warm_up` avoid it"
    )]
    Deadlock {
        /// First pipeline rank that is stuck.
        rank: u32,
        /// Action it waits at.
        action: Action,
        /// Position in the rank's list.
        position: usize,
    },
}
