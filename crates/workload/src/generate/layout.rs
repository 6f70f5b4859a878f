//! How a job is laid out over its ranks.
//!
//! World = tp · cp · ep · pp · dp. A rank's number is the mixed-radix number of its coordinates with `order[0]` fastest;
//! with `order` ending in `pp` the pipeline is outermost (PP-out), ending in `dp` the replicas are (DP-out).
//!
//! Convention for data: expert-parallel ranks hold different experts and different data, so attention and other dense
//! layers see ep · dp replicas of the data and cp slices of each sequence. Dense gradients are reduced over all ranks of
//! equal (tp, pp), cp · ep · dp of them; expert gradients over those of equal (tp, ep, pp), cp · dp of them.
//! Micro-batches M = global batch / (micro-batch · ep · dp).
//!
//! `replicate` R splits dp into R replicas of dp / R (HSDP): parameters are sharded inside a replica (over cp · ep · dp / R
//! ranks), and the shards of a gradient are summed across replicas. Replica k holds the dp coordinates from k · dp / R on,
//! so with dp outermost the replicas are the outermost halves, quarters, … of the machine.

use windtunnel_kernel::Bytes;

use super::GenerateError;
use crate::collectives::{Algorithm, CollectiveKind, CollectiveSpec, Form};
use crate::program::Dimension;
use crate::schedules::ScheduleSettings;

windtunnel_kernel::named! {
    /// A dimension of parallelism; in the order of coordinates.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Axis: "dimension of parallelism" {
        Tp = "tp", "tensor";
        Cp = "cp", "context";
        Ep = "ep", "expert";
        Pp = "pp", "pipeline";
        Dp = "dp", "data";
    }
}

impl Axis {
    /// The dimension under which its communication is booked.
    pub const fn dimension(self) -> Dimension {
        match self {
            Self::Tp => Dimension::Tp,
            Self::Cp => Dimension::Cp,
            Self::Ep => Dimension::Ep,
            Self::Pp => Dimension::Pp,
            Self::Dp => Dimension::Dp,
        }
    }
}

/// When gathered parameters are given up again (ZeRO-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Reshard {
    /// Kept from the first forward to the end of the step (Llama 3: FSDP without resharding).
    Never,
    /// Kept while consecutive forwards, or consecutive backwards, of the rank are of the same chunk (a run of the
    /// flexible schedules), gathered again for the next run.
    PerRun,
    /// Given up after every pass.
    #[default]
    PerPass,
}

/// When sharded gradients are reduced (ZeRO-2 and 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum GradientReduce {
    /// Once, in the last micro-batch's backward.
    #[default]
    LastMicrobatch,
    /// In every micro-batch's backward.
    EveryMicrobatch,
}

/// How the norm of all gradients is formed before the optimiser step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Clip {
    /// Not at all.
    #[default]
    Off,
    /// One small all-reduce per axis: tensor, pipeline, and data where gradients are sharded.
    PerAxis,
    /// One small all-reduce over all ranks.
    World,
}

/// How the collectives of a dimension are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveChoice {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Form.
    pub form: Form,
    /// Messages a rank may have outstanding in a direct collective.
    pub outstanding: u32,
}

impl Default for CollectiveChoice {
    fn default() -> Self {
        Self { algorithm: Algorithm::Auto, form: Form::Auto, outstanding: CollectiveSpec::OUTSTANDING }
    }
}

/// How a job is laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Tensor-parallel degree.
    pub tp: u32,
    /// Context-parallel degree.
    pub cp: u32,
    /// Expert-parallel degree.
    pub ep: u32,
    /// Pipeline-parallel degree.
    pub pp: u32,
    /// Data-parallel degree besides ep.
    pub dp: u32,
    /// Replicas R of the sharded model (HSDP); divides dp.
    pub replicate: u32,
    /// ZeRO stage: 0 all-reduces gradients (DDP); 1 and 2 reduce-scatter them and gather parameters once a step; 3
    /// shards parameters as well (FSDP).
    pub zero: u8,
    /// Axes, innermost first.
    pub order: [Axis; 5],
    /// Pipeline schedule.
    pub schedule: ScheduleSettings,
    /// Micro-batches a pipeline works through in a step, M.
    pub microbatches: u32,
    /// Gradients and, under ZeRO-1 and 2, parameters travel in buckets closed when they hold at least this much.
    pub bucket_bytes: Bytes,
    /// ZeRO-3: units gathered ahead of the one in use.
    pub prefetch: u32,
    /// ZeRO-3: when parameters are given up.
    pub reshard: Reshard,
    /// ZeRO-2 and 3: when gradients are reduced.
    pub reduce: GradientReduce,
    /// Gradient norm.
    pub clip: Clip,
    /// Gradient bytes of an embedding shared by the first and the last stage, summed between their ranks.
    pub tied_embedding: Option<Bytes>,
    /// Whether gradients leave in buckets beside the backward pass; otherwise each chunk's go whole after the last pass,
    /// as Megatron-LM's local DDP did (ZeRO 0 to 2, reduced once a step).
    pub overlap_gradients: bool,
    /// Passes ahead of its own at which a receive is posted; 0 posts it when the pass before has ended.
    pub receive_ahead: u32,
    /// Whether under ZeRO 1 every rank gets the whole sum of the gradients, of which it needs its shard (nanotron).
    pub whole_sums: bool,
    /// Whether the host waits for each exchange between stages before it launches on, as Megatron-LM did with
    /// `torch.cuda.synchronize`; matters where launches take time ([`Piece::Launch`](super::Piece::Launch)).
    pub blocking_exchange: bool,
    /// GPUs of one scale-up domain; ranks fill domains in order.
    pub domain: u32,
    /// How collectives are done, by [`Dimension::ALL`].
    pub collectives: [CollectiveChoice; 6],
    /// Share by which computation slows while a collective of its own pass runs beside it.
    pub overlap_slowdown: f64,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            tp: 1,
            cp: 1,
            ep: 1,
            pp: 1,
            dp: 1,
            replicate: 1,
            zero: 0,
            order: [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp],
            schedule: ScheduleSettings::default(),
            microbatches: 1,
            // Megatron-LM's default of 40 M elements, in bf16.
            bucket_bytes: Bytes::new(80_000_000),
            prefetch: 1,
            reshard: Reshard::default(),
            reduce: GradientReduce::default(),
            clip: Clip::default(),
            tied_embedding: None,
            overlap_gradients: true,
            receive_ahead: 1,
            whole_sums: false,
            blocking_exchange: false,
            domain: 1,
            collectives: [CollectiveChoice::default(); 6],
            overlap_slowdown: 0.0,
        }
    }
}

impl Layout {
    /// Degree of `axis`.
    pub const fn degree(&self, axis: Axis) -> u32 {
        match axis {
            Axis::Tp => self.tp,
            Axis::Cp => self.cp,
            Axis::Ep => self.ep,
            Axis::Pp => self.pp,
            Axis::Dp => self.dp,
        }
    }

    /// Micro-batches of a pipeline: global batch / (micro-batch · ep · dp).
    ///
    /// # Errors
    /// [`GenerateError::Batch`] if it does not divide.
    pub fn microbatches_of(&self, global_batch: u64, micro_batch: u64) -> Result<u32, GenerateError> {
        let replicas = u64::from(self.ep) * u64::from(self.dp);
        let each = micro_batch.saturating_mul(replicas);
        if each == 0 || global_batch == 0 || !global_batch.is_multiple_of(each) {
            return Err(GenerateError::Batch { global_batch, micro_batch, replicas });
        }
        u32::try_from(global_batch / each).map_err(|_| GenerateError::Batch {
            global_batch,
            micro_batch,
            replicas,
        })
    }

    /// Checks what can be checked without stages or schedule and returns the number of ranks.
    ///
    /// # Errors
    /// [`GenerateError`] naming the field that is wrong.
    pub fn check(&self) -> Result<u32, GenerateError> {
        let mut world = 1u64;
        for axis in Axis::ALL {
            if self.degree(axis) == 0 {
                return Err(GenerateError::ZeroDegree { axis: axis.name() });
            }
            if !self.order.contains(&axis) {
                return Err(GenerateError::Order { order: self.order, missing: axis });
            }
            world = world.saturating_mul(u64::from(self.degree(axis)));
        }
        if world > GenerateError::MOST_RANKS {
            return Err(GenerateError::TooManyRanks { world });
        }
        if self.zero > 3 {
            return Err(GenerateError::Zero { found: self.zero });
        }
        if self.replicate == 0 || !self.dp.is_multiple_of(self.replicate) {
            return Err(GenerateError::Replicate { replicate: self.replicate, dp: self.dp });
        }
        if self.replicate > 1 && self.zero == 0 {
            return Err(GenerateError::ReplicateWithoutShards { replicate: self.replicate });
        }
        if !self.overlap_gradients && (self.zero == 3 || self.reduces_always()) {
            return Err(GenerateError::LateReduction { zero: self.zero });
        }
        Ok(world as u32)
    }

    /// How gradients are summed over replicas: whole for each of them, or shard by shard.
    pub fn gradient_sum(&self) -> CollectiveKind {
        if self.zero == 0 || self.zero == 1 && self.whole_sums {
            CollectiveKind::AllReduce
        } else {
            CollectiveKind::ReduceScatter
        }
    }

    /// Whether every micro-batch's gradients are reduced.
    pub fn reduces_always(&self) -> bool {
        self.zero >= 2 && self.reduce == GradientReduce::EveryMicrobatch
    }
}
