//! What happens to computations and messages: one host model for every fidelity, and the network models behind one
//! trait. It knows nothing of jobs or dependency graphs.
//!
//! [`Fabric`] is what a run drives. [`host`] implements it once, over a [`Network`]: `message` (LogGOPS) and `flow`
//! (max-min) and `packet` differ only in what happens between a message leaving its NIC and its arrival.

#![warn(unreachable_pub)]

pub mod account;
pub mod balancers;
mod boxed;
pub mod coding;
pub mod flow;
pub mod host;
pub mod message;
pub mod model;
pub mod observations;
pub mod packet;
pub mod reduction;
pub mod reroute;
pub mod wire;

pub use account::{Account, CompletionTimes, Delivered, FlowRecord};
pub use model::{
    Arrival, CoupledId, Departure, Fabric, InStep, Network, Notice, NoticeKind, Received, SendRequest, Ticket,
};
pub use observations::{LinkBytes, LinkUsage, Observations, PacketUse, Trouble, Work};
