//! scenario
pub mod assemble;
pub mod error;
pub mod load;
pub mod schema;
pub mod table;
