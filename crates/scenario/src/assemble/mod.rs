//! From a scenario as it is written to one that can run.
pub mod flows;
