//! What is asked of a layout, and what is answered.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// What of the job is different; what is left out stays as the scenario has it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Choice {
    /// The whole section of the job.
    pub parallelism: Option<Value>,
    /// The whole section of its workload.
    pub training: Option<Value>,
    /// Sequences of a micro-batch.
    pub micro_batch: Option<u64>,
    /// Sequences of an iteration.
    pub global_batch: Option<u64>,
    /// Layers of each stage, instead of `training.layers_per_stage`; null: equal ones.
    #[serde(deserialize_with = "given")]
    pub layers_per_stage: Option<Option<Vec<u32>>>,
    /// Whether layers are shared out by the speeds of the GPUs instead, the embedding and the head counted.
    pub balanced: bool,
}

impl Choice {
    /// Whether all but the layers of stages is as in `other`.
    pub(super) fn differs_in_layers_only(&self, other: &Self) -> bool {
        let Self { parallelism, training, micro_batch, global_batch, layers_per_stage: _, balanced: _ } =
            self;
        *micro_batch == other.micro_batch
            && *global_batch == other.global_batch
            && *parallelism == other.parallelism
            && *training == other.training
    }
}

/// Tells a null from what is left out.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// How closely an answer follows the exchanges of a step; each takes longer than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// All passes along one line. Where they would have to be followed with exchanges beside them, this is the least that they take, to 3%.
    Line,
    /// Where pipeline ranks share links, their gathers, reductions and messages are followed over time.
    Apart,
    /// So are exchanges of tensor, context and expert parallelism.
    #[default]
    Close,
}

/// What a layout takes.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
pub struct Answer {
    /// Why it cannot be laid out so; null if it can.
    pub refused: Option<String>,
    /// Seconds of an iteration.
    pub iteration_s: Option<f64>,
    /// Whether the step may take longer (and 3% less at most): exchanges beside its passes were not followed.
    pub least: bool,
    /// Of these: computations of the busiest pipeline rank.
    pub compute_s: f64,
    /// What tensor, context and expert parallelism make it wait inside its passes.
    pub inside_s: f64,
    /// What data parallelism adds to its passes and after them, the optimiser included.
    pub data_s: f64,
    /// The rest: the pipeline's bubble, and messages between stages.
    pub pipeline_s: f64,
    /// Bytes of the fullest GPU.
    pub memory_bytes: u64,
    /// Bytes that a GPU has.
    pub capacity_bytes: u64,
    /// Micro-batches that go through each pipeline.
    pub micro_batches: u32,
    /// Seconds of an iteration that a GPU waits on average, for replicas of its stage are slower.
    pub held_s: f64,
    /// Layers of each stage, if they were to be shared out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<u32>>,
    /// FLOPs of the model in an iteration over what the GPUs could do in that time.
    pub mfu: f64,
    /// Tokens in a second.
    pub tokens_per_s: f64,
}
