//! From a scenario file to a result: the schema, its checks, the assembled run, and the tables.
//!
//! Stages are types: text → [`schema::Scenario`] ([`load`]) → [`assemble::Assembled`] → rows and summary ([`run`]). The
//! bindings call [`api`] and nothing else.

pub mod api;
pub mod assemble;
mod budget;
pub mod cost;
pub mod error;
pub mod error_bands;
pub mod inputs;
pub mod load;
pub mod modules;
pub mod run;
pub mod schema;
pub mod sheets;
pub mod table;
