//! What programs call: one run, its explanation, and what a scenario may say.
//!
//! Text → plan is `config`'s, plan → results is `run`'s. The bindings call [`api`] and nothing else.

#![warn(unreachable_pub)]

pub mod api;

pub use windtunnel_config::{load, schema};
pub use windtunnel_plan::{error, modules};
pub use windtunnel_run::table;
