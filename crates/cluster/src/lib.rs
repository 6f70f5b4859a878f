//! Jobs on a fabric.
pub mod coupler;
pub mod variation;
