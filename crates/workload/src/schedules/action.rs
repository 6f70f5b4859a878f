//! What a pipeline rank does next: one pass of one micro-batch over one chunk.

use std::fmt;

/// What an action computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionKind {
    /// Forward pass, F.
    Forward,
    /// Both gradients, B.
    Backward,
    /// Gradient of the input, I (dx).
    BackwardInput,
    /// Gradient of the weights, W (dw).
    BackwardWeight,
}

impl ActionKind {
    /// The letter of the literature.
    pub const fn letter(self) -> char {
        match self {
            Self::Forward => 'F',
            Self::Backward => 'B',
            Self::BackwardInput => 'I',
            Self::BackwardWeight => 'W',
        }
    }
}

/// One pass of one micro-batch over one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action {
    /// What it computes.
    pub kind: ActionKind,
    /// Chunk of the rank.
    pub chunk: u16,
    /// Micro-batch, counted over the whole step.
    pub microbatch: u32,
    /// Runs together with the next action of the list (the overlapped pairs of DualPipe).
    pub paired: bool,
}

impl Action {
    /// An action that runs alone.
    pub const fn new(kind: ActionKind, chunk: u16, microbatch: u32) -> Self {
        Self { kind, chunk, microbatch, paired: false }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}.{}", self.kind.letter(), self.chunk, self.microbatch)
    }
}
