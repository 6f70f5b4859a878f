//! Jobs on a fabric: the calendar that starts and ends them, the shard in which they run, and where their time went.
//!
//! Here the two halves meet: a workload's replay asks its [`windtunnel_workload::Machine`], and [`shard::Shard`] answers
//! with a [`windtunnel_fabric::Fabric`]. One job is a cluster with one job and takes the same path as many:
//! [`cluster::Cluster`] holds who waits, who runs and what is free, and carries out what a [`scheduler`] decides and a
//! [`placement`] finds. Two drivers tell it how long jobs take: [`by_duration::run`] knows durations (job fidelity);
//! [`calendar::run`] asks an [`calendar::EpisodeRunner`] (in the scenario crate), which builds a fabric for each stretch
//! of constant conditions and puts the running jobs on a shard.

#![warn(unreachable_pub)]

pub mod by_duration;
pub mod calendar;
pub mod cluster;
pub mod coupler;
pub mod explain;
pub mod faults;
pub mod free;
pub mod life;
pub mod log;
pub mod placement;
mod queue;
pub mod scheduler;
pub mod shard;
pub mod variation;
pub mod view;
