//! scenario
pub mod error;
pub mod load;
pub mod schema;
