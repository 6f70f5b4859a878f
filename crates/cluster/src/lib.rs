//! Jobs on a fabric.
pub mod calendar;
pub mod coupler;
pub mod placement;
pub mod scheduler;
pub mod variation;
