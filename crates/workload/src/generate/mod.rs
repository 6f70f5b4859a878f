//! From a model and a parallelism layout to programs.

pub mod pieces;

pub use pieces::{ChunkWork, Overlap, Piece};
