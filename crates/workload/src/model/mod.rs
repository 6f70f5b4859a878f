//! Model architectures, and what a rank computes, moves and stores for them.

pub mod architecture;
pub mod config;

pub use architecture::{Architecture, Attention, Experts, FeedForward, LayerKind, LayerParameters, Norm};
pub use config::{ConfigError, MODEL_TYPES};
