//! Why a layout does not become programs.

use super::Axis;
use crate::program::ProgramError;
use crate::schedules::ScheduleError;

fn names(order: &[Axis]) -> String {
    order.iter().map(|axis| axis.name()).collect::<Vec<_>>().join(", ")
}

/// Why a layout does not become programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// A degree is 0.
    #[error("`{axis}` is 0\n\nhint: 1 leaves a dimension out")]
    ZeroDegree {
        /// Name of the axis.
        axis: &'static str,
    },
    /// `order` does not name every axis once.
    #[error("`order: [{}]` does not name `{}`\n\nhint: it names tp, cp, ep, pp and dp once each, innermost first", names(.order), missing.name())]
    Order {
        /// The order found.
        order: [Axis; 5],
        /// The first axis missing.
        missing: Axis,
    },
    /// More ranks than the generator lays out.
    #[error("tp · cp · ep · pp · dp = {world} ranks, more than {}", Self::MOST_RANKS)]
    TooManyRanks {
        /// Product of the degrees.
        world: u64,
    },
    /// Kinds of GPUs on which a pipeline rank would exchange by other groups.
    #[error("pipeline rank {rank} exchanges by other groups on GPUs of another kind")]
    Kinds {
        /// Pipeline rank.
        rank: u32,
    },
    /// No such ZeRO stage.
    #[error("`zero: {found}` is not a ZeRO stage\n\nhint: 0 (DDP), 1, 2 or 3 (FSDP)")]
    Zero {
        /// Value found.
        found: u8,
    },
    /// The replicas do not divide the data-parallel ranks.
    #[error(
        "`replicate: {replicate}` does not divide `dp: {dp}`\n\nhint: each replica shards over dp / replicate ranks"
    )]
    Replicate {
        /// R.
        replicate: u32,
        /// dp.
        dp: u32,
    },
    /// Replicas of what is not sharded.
    #[error(
        "`replicate: {replicate}` with `zero: 0`, which shards nothing\n\nhint: leave `replicate` out, or set `zero` to 1, 2 or 3"
    )]
    ReplicateWithoutShards {
        /// R.
        replicate: u32,
    },
    /// Gradients that are reduced more than once a step cannot wait for its end.
    #[error(
        "`overlap_gradients: false` with `zero: {zero}` and gradients reduced in every pass\n\nhint: that is for ZeRO 0 to 2 \
         with `reduce: last`"
    )]
    LateReduction {
        /// The ZeRO stage.
        zero: u8,
    },
    /// The batch does not divide.
    #[error(
        "a global batch of {global_batch} is not a multiple of micro_batch · ep · dp = {micro_batch} · {replicas}\n\nhint: \
         every replica takes the same number of micro-batches"
    )]
    Batch {
        /// Global batch, sequences.
        global_batch: u64,
        /// Micro-batch, sequences.
        micro_batch: u64,
        /// ep · dp.
        replicas: u64,
    },
    /// More chunks or micro-batches than a tag can tell apart.
    #[error("{chunks} chunks and {microbatches} micro-batches, at most 2047 and 1048575 fit a message tag")]
    Tags {
        /// Chunks a rank.
        chunks: u16,
        /// Micro-batches.
        microbatches: u32,
    },
    /// The stages do not match the placement.
    #[error("{found} stages were described, the schedule places {expected}")]
    Stages {
        /// Stages given.
        found: usize,
        /// Stages placed.
        expected: u32,
    },
    /// A stage lacks the pieces of a pass that the schedule runs.
    #[error("stage {stage} has no pieces for its `{pass}` pass, which schedule `{schedule}` runs")]
    MissingPass {
        /// Stage.
        stage: u32,
        /// Name of the list.
        pass: &'static str,
        /// Name of the schedule.
        schedule: &'static str,
    },
    /// A unit marker is out of range or doubled.
    #[error("the `{pass}` pass of stage {stage} marks unit {unit} of {units}{}", if *.doubled { " twice" } else { "" })]
    Unit {
        /// Stage.
        stage: u32,
        /// Name of the list.
        pass: &'static str,
        /// Unit marked.
        unit: u32,
        /// Units of the stage.
        units: u32,
        /// Whether it had been marked before.
        doubled: bool,
    },
    /// A wait without a collective before it, or two collectives under one id.
    #[error("the `{pass}` pass of stage {stage} {} id {id}", if *.doubled { "issues two collectives under" } else { "waits for a collective never issued under" })]
    Async {
        /// Stage.
        stage: u32,
        /// Name of the list.
        pass: &'static str,
        /// Id.
        id: u32,
        /// Whether it was issued twice.
        doubled: bool,
    },
    /// An all-to-all-v has no sizes here.
    #[error("the `{pass}` pass of stage {stage} names an all-to-all-v, whose sizes a piece cannot carry")]
    Matrix {
        /// Stage.
        stage: u32,
        /// Name of the list.
        pass: &'static str,
    },
    /// A collective of a pass over ranks that do not run the pass together.
    #[error(
        "the `{pass}` pass of stage {stage} names a collective over `{axis}`\n\nhint: a pass runs on one pipeline rank; `tp`, `cp`, `ep` and `dp` groups stay inside it"
    )]
    Axis {
        /// Stage.
        stage: u32,
        /// Name of the list.
        pass: &'static str,
        /// Name of the axis.
        axis: &'static str,
    },
    /// The schedule refused.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The program is not one; a defect of the generator.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl GenerateError {
    /// Most ranks laid out.
    pub const MOST_RANKS: u64 = 1 << 24;
}
