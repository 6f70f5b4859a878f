//! A chunk of a model: which layers it holds, the units of its gradients, and what a micro-batch costs it.

use windtunnel_kernel::Span;

use super::emit::Emit;
use crate::generate::{ChunkWork, Piece};

/// The layers of one chunk, and whether it holds the ends of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Layers, half open.
    pub layers: std::ops::Range<u32>,
    /// Whether the embedding is here.
    pub embedding: bool,
    /// Whether the final norm, the output projection and the loss are here.
    pub head: bool,
}

impl Chunk {
    /// The whole model.
    pub fn whole(layers: u32) -> Self {
        Self { layers: 0..layers, embedding: true, head: true }
    }

    /// Chunks of the given numbers of layers, in stage order; the embedding on the first, the head on the last. `None`
    /// unless the numbers add up to `layers`.
    pub fn split(layers: u32, per_stage: &[u32]) -> Option<Vec<Self>> {
        let mut first = 0u32;
        let mut chunks = Vec::with_capacity(per_stage.len());
        for (stage, &count) in per_stage.iter().enumerate() {
            let end = first.checked_add(count)?;
            chunks.push(Self {
                layers: first..end,
                embedding: stage == 0,
                head: stage + 1 == per_stage.len(),
            });
            first = end;
        }
        (first == layers && !chunks.is_empty()).then_some(chunks)
    }
}

/// Multiplications and additions of one micro-batch on this rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flops {
    /// Forward pass.
    pub forward: u64,
    /// Backward pass, recomputation apart.
    pub backward: u64,
    /// Recomputed forward work.
    pub recomputed: u64,
}

/// A chunk's work and its FLOPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkCost {
    /// What the generator runs.
    pub work: ChunkWork,
    /// FLOPs of one micro-batch.
    pub flops: Flops,
}

/// Numbers of the data-parallel units of a chunk, in forward order.
pub(super) struct Units {
    first_layer: u32,
    layers: u32,
    embedding: u32,
    predictions: u32,
}

impl Units {
    /// The embedding comes first where there is one.
    pub(super) const EMBEDDING: u32 = 0;

    /// Modules of multi-token prediction, of which there are `predictions`, stand between the last layer and the head.
    pub(super) fn new(chunk: &Chunk, predictions: u32) -> Self {
        Self {
            first_layer: chunk.layers.start,
            layers: chunk.layers.end - chunk.layers.start,
            embedding: u32::from(chunk.embedding),
            predictions: if chunk.head { predictions } else { 0 },
        }
    }

    pub(super) const fn layer(&self, layer: u32) -> u32 {
        self.embedding + layer - self.first_layer
    }

    pub(super) const fn prediction(&self, module: u32) -> u32 {
        self.embedding + self.layers + module
    }

    pub(super) const fn head(&self) -> u32 {
        self.prediction(self.predictions)
    }
}

/// Which gradients a backward list computes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Both,
    Input,
    Weight,
}

impl Part {
    pub(super) fn input(self) -> bool {
        self != Self::Weight
    }

    pub(super) fn weight(self) -> bool {
        self != Self::Input
    }

    /// Marks a unit's gradients complete where they are.
    pub(super) fn finish(self, emit: &mut Emit<'_>, unit: u32) {
        if self.weight() {
            emit.done(unit);
        } else {
            emit.launched();
        }
    }
}

/// Total computation of a list, for people and tests.
pub fn compute_time(pieces: &[Piece]) -> Span {
    pieces
        .iter()
        .map(|piece| match piece {
            Piece::Calc { duration, .. } => *duration,
            _ => Span::ZERO,
        })
        .sum()
}
