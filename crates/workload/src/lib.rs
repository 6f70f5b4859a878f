//! What a job does: operations and their dependencies, collectives, GOAL files, model generators and pipeline
//! schedules. It knows nothing of networks: a [`replay`] hands its ready operations to a [`machine::Machine`] and is told
//! when they start and finish; it never owns a clock.

#![warn(unreachable_pub)]

pub mod chakra;
pub mod collectives;
pub mod compact;
pub mod decompose;
pub mod edit;
pub mod estimate;
pub mod generate;
pub mod goal;
pub mod handwritten;
pub mod lower;
pub mod machine;
pub mod model;
mod output;
pub mod program;
pub mod replay;
pub mod schedules;
mod traffic;

pub use machine::{Machine, Outgoing, Token};
pub use program::{CommSlot, Dimension, OpKind, Operation, Peer, Program, ProgramBuilder, Workload};
