//! From a scenario as it is written to a plan: the only room that knows how scenarios are written.
//!
//! Stages are types: text → [`schema::Scenario`] ([`load`]) → [`windtunnel_plan::Plan`] ([`resolve()`]), which consumes it. Every
//! key is checked on the way, whatever the fidelity. Failure mode: [`windtunnel_plan::InputError`], with file, key and hint.

#![warn(unreachable_pub)]

mod budget;
pub mod cost;
pub mod derive;
mod ecn_profiles;
mod error_bands;
pub mod load;
pub mod resolve;
pub mod schema;
pub mod sheets;

pub use resolve::resolve;
