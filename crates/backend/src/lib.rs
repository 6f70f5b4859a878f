//! Networks of others under Windtunnel's jobs: shared libraries that implement `include/windtunnel_fabric.h`.
//!
//! **Life cycle.** [`Library::load`] opens a shared library and checks its table of functions; [`BackendNetwork::new`]
//! opens a model on a topology and drives it as a [`windtunnel_fabric::Network`]; dropping it closes the model, and the
//! library once no model of it is left.
//!
//! **Invariants.** A model is used by one thread at a time. It is advanced to an instant that it named itself, and told
//! of departures not before any of these. What it says is checked: after a fault it is asked nothing more.
//!
//! **Failure modes.** A library that cannot be loaded, lacks the function or a part of the table, or is of another
//! version, and a model that does not open, are [`LoadError`]s. A model that goes back in time, invents messages, stands
//! still or reports a failure leaves a text in `BackendNetwork::fault` and the run ends with it. What cannot be caught
//! is a library that breaks the rules of memory: it runs in this process.

#![warn(unreachable_pub)]

mod abi;
mod backend_network;
mod library;

pub use backend_network::{BackendNetwork, BackendSettings};
pub use library::{Library, LoadError};
