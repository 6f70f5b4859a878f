//! Model architectures, and what a rank computes, moves and stores for them.
//!
//! A model is an [`Architecture`], read from a HuggingFace `config.json` or a data sheet. A [`Training`] adds batch,
//! layout and formats; from it follow, per rank and chunk of layers, the work as pieces for the generator
//! ([`Training::chunk`]), memory ([`Training::memory`]) and FLOPs. Kernel times come from a [`KernelModel`] over a
//! [`GpuSheet`]. Recommendation models have their own generator ([`dlrm`]).

pub mod architecture;
mod block;
pub mod chunk;
pub mod config;
pub mod curve;
pub mod dlrm;
mod dtype;
mod emit;
pub mod figure;
pub mod flash;
pub mod flops;
mod in_flight;
mod kept;
pub mod kernels;
pub mod memory;
pub mod optimiser;
mod prediction;
pub mod profile;
pub mod sheets;
mod sparse;
pub mod tiles;
pub mod training;
pub mod work;

pub use architecture::{
    Architecture, Attention, Experts, FeedForward, LayerKind, LayerParameters, Norm, QkNorm, Window,
};
pub use chunk::{Chunk, ChunkCost, Flops, compute_time};
pub use config::{ConfigError, MODEL_TYPES};
pub use curve::{Curve, CurveError};
pub use dlrm::{DlrmArchitecture, DlrmError, DlrmTraining};
pub use dtype::Dtype;
pub use figure::{Dollars, Evidence, Figure, FlopRate, Millimetres, Share, Watts};
pub use flash::Flash;
pub use flops::model_flops_utilisation;
pub use kernels::{AttentionShape, Gemm, KernelError, KernelModel, Streaming};
pub use memory::{Memory, MemoryHint, MemoryVerdict, Resident, Sharding, Zero};
pub use optimiser::Matrices;
pub use profile::{KernelProfile, ProfileError};
pub use sheets::{
    ByFormat, Fitted, GpuSheet, Kernels, ModelKind, ModelSheet, NicSheet, OpticsKind, OpticsSheet,
    SheetError, SwitchSheet,
};
pub use tiles::{Device, ExpertShape, Rows, Tiles};
pub use training::{
    AttentionKernel, ContextExchange, Dispatcher, Graphs, LayoutError, Optimiser, Precision, Recompute,
    Training,
};
