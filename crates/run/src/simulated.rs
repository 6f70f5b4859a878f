//! What a simulation of an episode saw.

use std::sync::Arc;

use windtunnel_cluster::calendar::Certainty;

use super::clock::Origin;
use super::recorder::{Held, Iteration};

/// What a simulation saw.
pub(crate) struct Simulated {
    /// Its beginning.
    pub origin: Origin,
    /// Iterations by job of the episode.
    pub seen: Vec<Vec<Iteration>>,
    /// Rows of them.
    pub held: Vec<Held>,
    /// Iterations that some rank of each job has begun.
    pub begun: Vec<u64>,
    /// How far it went: iterations of the slowest job, with the first.
    pub until: u64,
    /// For how long what was seen of each job is good; `None`: however long.
    pub certainty: Vec<Certainty>,
    /// Links beyond scale-up domains that carried anything, in order, with their mean bytes per second.
    pub used: Arc<[(u32, f64)]>,
    /// Whether the progress sink stopped it.
    pub cancelled: bool,
}
