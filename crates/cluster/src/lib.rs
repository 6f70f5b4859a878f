//! Jobs on a fabric: the calendar that starts and ends them, the shard in which they run, and where their time went.
//!
//! Here the two halves meet: a workload's replay asks its [`windtunnel_workload::Machine`], and [`shard::Shard`] answers
//! with a [`windtunnel_fabric::Fabric`]. One job is a cluster with one job and takes the same path as many:
//! [`calendar::run`] decides when jobs run, an [`calendar::EpisodeRunner`] (in the scenario crate) builds a fabric for
//! each stretch of constant conditions and puts the running jobs on a shard.

pub mod calendar;
pub mod coupler;
pub mod explain;
pub mod placement;
pub mod scheduler;
pub mod shard;
pub mod variation;
