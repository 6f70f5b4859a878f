//! What a stage does, as pieces in program order: the language in which a model speaks to the generator.
//!
//! A list of pieces is one pass over a chunk for one micro-batch. [`Piece::UnitDone`] closes the pieces of one
//! data-parallel unit (a layer, the embedding, the head): in a forward list it marks where the unit's parameters are no
//! longer read, in a backward list where its gradients are complete. Pieces after the last marker belong to no unit;
//! a unit without a marker is read from the first piece on and complete with the last.

use windtunnel_kernel::{Bytes, Span};

use crate::collectives::CollectiveKind;
use crate::collectives::dispatcher::Routing;
use crate::program::Dimension;

/// How a collective stands to its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Overlap {
    /// In line: nothing else of this pass runs meanwhile (Megatron's tensor parallelism by default).
    #[default]
    None,
    /// Split with the [`Piece::Calc`] that follows into `chunks`; chunk i of the computation needs chunk i of the data
    /// (all-gather, then GEMM).
    WithNext {
        /// Number of chunks, at least 1.
        chunks: u32,
    },
    /// Split with the [`Piece::Calc`] before it into `chunks`; chunk i of the data needs chunk i of the computation
    /// (GEMM, then reduce-scatter).
    WithPrevious {
        /// Number of chunks, at least 1.
        chunks: u32,
    },
    /// Issued here and awaited by [`Piece::Wait`] with the same id, at the latest by the end of the pass.
    Async(u32),
}

/// One piece of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Computation on the compute stream.
    Calc {
        /// Time on an unvaried machine.
        duration: Span,
        /// Name for people.
        label: &'static str,
    },
    /// A collective in the group of `axis` that this rank belongs to; nothing if the group has one member.
    Collective {
        /// Axis of the group: tensor, context, expert or data (all ranks with the same dense parameters); the others
        /// are refused, since a pass runs on one pipeline rank.
        axis: Dimension,
        /// What it computes.
        kind: CollectiveKind,
        /// Size as [`CollectiveKind`] counts it.
        bytes: Bytes,
        /// How the tokens are routed that it carries, where a dispatcher sends none twice.
        routing: Option<Routing>,
        /// Name for people.
        label: &'static str,
        /// How it stands to its neighbours.
        overlap: Overlap,
    },
    /// What follows needs the collective issued with [`Overlap::Async`] under this id.
    Wait(u32),
    /// The host needs this long to launch the kernels that follow, up to the next of these. It launches in program order
    /// and runs ahead of the GPU: they start no sooner than the host has come to them, and what comes after the pass no
    /// sooner than the last is launched. If it waits, it begins when the GPU has come here.
    Launch {
        /// Time of the host.
        span: Span,
        /// Whether the host waits for what comes before.
        waits: bool,
    },
    /// The pieces of this unit end here.
    UnitDone(u32),
}

impl Piece {
    /// Time that it keeps the compute stream of an unvaried machine.
    pub const fn computed(&self) -> Span {
        match self {
            Self::Calc { duration, .. } => *duration,
            _ => Span::ZERO,
        }
    }
}

/// What one rank does for one pipeline stage (one chunk of a pipeline rank).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkWork {
    /// Forward pass of one micro-batch.
    pub forward: Vec<Piece>,
    /// Backward pass with both gradients, recomputation first where it is asked for.
    pub backward: Vec<Piece>,
    /// Gradient of the input only (split schedules), recomputation included.
    pub backward_input: Vec<Piece>,
    /// Gradient of the weights only (split schedules).
    pub backward_weight: Vec<Piece>,
    /// Bytes of the dense weights of each unit, in forward order, as this rank holds them before data-parallel sharding.
    pub parameter_bytes: Vec<Bytes>,
    /// Bytes of the dense gradients of each unit as they are reduced.
    pub gradient_bytes: Vec<Bytes>,
    /// Bytes of the expert weights of each unit, shared over the expert-data group; empty if there are no experts.
    pub expert_parameter_bytes: Vec<Bytes>,
    /// Bytes of the expert gradients of each unit; empty if there are no experts.
    pub expert_gradient_bytes: Vec<Bytes>,
    /// Activation handed to the next stage per micro-batch by this rank (its tensor- and context-parallel slice); the
    /// gradient that comes back has the same size.
    pub send_bytes: Bytes,
    /// Optimiser step of this stage's parameters on this rank.
    pub optimiser: Span,
}

impl ChunkWork {
    /// Number of data-parallel units: the longest of the four size lists.
    pub fn units(&self) -> usize {
        [
            &self.parameter_bytes,
            &self.gradient_bytes,
            &self.expert_parameter_bytes,
            &self.expert_gradient_bytes,
        ]
        .iter()
        .map(|sizes| sizes.len())
        .max()
        .unwrap_or(0)
    }
}
