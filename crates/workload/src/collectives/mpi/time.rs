//! What phases take.
//!
//! ```text
//! round = messages · (latency + wire [+ rendezvous beyond the eager limit]) + (ports - 1) · post + ports · (split + register)
//!       + bytes / ports · busiest link + reduced / reduction + copied / copy
//! ```
//!
//! Where a rank sends several messages in a round only the first waits for the wire. Segments let a reduction run beside
//! the next transfer.

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::algorithms::{Pattern, Phase, phases};
use super::fabric::{Fabric, Load};
use super::{Collective, MpiError, Question};

/// What a system's measurements decide. Times in seconds, rates in bytes per second, shares of a link's rate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Constants {
    /// A round: a message sent and the partner's received, the wire apart.
    pub latency: f64,
    /// Each further message of a round.
    pub message: f64,
    /// Bytes up to which a message is sent without asking.
    pub eager: f64,
    /// What a message costs more beyond.
    pub rendezvous: f64,
    /// Each further port of a round.
    pub post: f64,
    /// What a port of a torus costs in a round of parts of a vector.
    pub split: f64,
    /// What a port costs more in a round of an all-reduce of halving vectors: memory made known to it.
    pub register: f64,
    /// Share of a link's rate that a long message gets.
    pub share: f64,
    /// Share of what leaves and groups exchange.
    pub share_fabric: f64,
    /// Reduction of vectors that fit the cache.
    pub reduction: f64,
    /// Reduction of longer ones.
    pub reduction_memory: f64,
    /// Copies.
    pub copy: f64,
    /// Bytes that fit the cache.
    pub cache: f64,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            latency: 1.5e-6,
            message: 0.5e-6,
            eager: 8192.0,
            rendezvous: 2e-6,
            post: 1e-6,
            split: 0.0,
            register: 0.0,
            share: 0.9,
            share_fabric: 0.5,
            reduction: 8e9,
            reduction_memory: 4e9,
            copy: 6e9,
            cache: 32e6,
        }
    }
}

impl Question {
    /// Seconds on `fabric` under each of `constants`.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn times(&self, fabric: &Fabric, constants: &[Constants]) -> Result<Vec<f64>, MpiError> {
        let ranks = fabric.ranks();
        if ranks < 2 {
            return Err(MpiError::Ranks { ranks });
        }
        let phases = phases(self.collective, self.algorithm, self.bytes, &fabric.sides())?;
        let mut loads: FxHashMap<Pattern, Load> = FxHashMap::default();
        let loaded: Vec<(Phase, Load)> = phases
            .into_iter()
            .map(|phase| {
                let load =
                    *loads.entry(phase.pattern).or_insert_with(|| fabric.load(phase.pattern, self.ports));
                (phase, load)
            })
            .collect();
        Ok(constants.iter().map(|constants| self.under(fabric, &loaded, constants)).collect())
    }

    fn under(&self, fabric: &Fabric, phases: &[(Phase, Load)], constants: &Constants) -> f64 {
        let mut time = 0.0;
        let ports = f64::from(self.ports);
        let torus = matches!(fabric, Fabric::Torus { .. });
        // An all-reduce of halving vectors makes a buffer of each round known to the interfaces.
        let parts =
            constants.split + if self.collective == Collective::AllReduce { constants.register } else { 0.0 };
        let rate =
            if self.bytes > constants.cache { constants.reduction_memory } else { constants.reduction };
        let reduction = (1.0 / rate).max(fabric.reduction());
        for (phase, load) in phases {
            let each = phase.bytes / phase.messages.max(1.0);
            let mut round = if phase.messages > 0.0 {
                constants.latency
                    + load.latency
                    + (phase.messages - 1.0) * constants.message
                    + (ports - 1.0) * constants.post
                    + if each / ports > constants.eager { constants.rendezvous } else { 0.0 }
                    + if torus && phase.bytes < self.bytes { ports * parts } else { 0.0 }
            } else {
                0.0
            };
            let beyond = load.beyond * phase.active;
            let busiest = if torus {
                load.network.max(beyond) / constants.share
            } else {
                (load.network / constants.share).max(beyond / constants.share_fabric).max(load.memory)
            };
            let sent = phase.bytes / ports * busiest;
            let reduced = phase.reduced * reduction;
            round += if self.segment > 0.0 && phase.bytes > self.segment {
                let first = self.segment / phase.bytes;
                sent.max(reduced)
                    + first * sent.min(reduced)
                    + (phase.bytes / self.segment - 1.0) * constants.message
            } else {
                sent + reduced
            };
            time += phase.rounds * (round + phase.copied / constants.copy);
        }
        if self.permute {
            time += self.bytes / constants.copy;
        }
        time
    }
}
