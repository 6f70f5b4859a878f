//! What phases take.
//!
//! ```text
//! round = messages · (latency + exposed · disturbance + wire + rendezvous) + (ports - 1) · post + ports · (split + register)
//!       + bytes / ports · busiest link + reduced / reduction + copied / copy + buffered / (copy or fresh)
//! ```
//!
//! Where a rank sends several messages in a round only the first waits for the wire. Rounds that follow one another along
//! a ring wait for its links in turn, so that their mean counts, single rounds for the longest. A message below the eager
//! limit is copied at both ends, which costs as much of a rendezvous as it is part of the limit. Segments let a reduction
//! run beside the next transfer; on a torus every one is put by itself. There a tree that reduces whole vectors serves its
//! ports one after another; a broadcast's segments follow one another down the tree, and where receivers announce their
//! buffers a sender first hears of them and the trees of further ports are worked out for every pair of ranks (`plan`).
//! Permutations move block by block (`block`). Three vectors (the caller's, what comes in, what results) in the cache are
//! reduced and copied there; memory asked for anew beyond is filled page by page (`fresh`), under locks that the ranks of
//! a host contend for (the square root of their number, as measured on hosts of 1, 4 and 32).
//!
//! Other jobs' messages and the noise of more hosts delay the slowest message of a round: the more, the more leaves of the
//! job are not its own (`disturbance`).

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::algorithms::{Pattern, Phase, phases};
use super::fabric::{Fabric, Load};
use super::{Algorithm, Collective, MpiError, Question};

/// What a system's measurements decide. Times in seconds, rates in bytes per second, shares of a link's rate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Constants {
    /// A round: a message sent and the partner's received, the wire apart.
    pub latency: f64,
    /// A round more for each leaf that other jobs send over, too.
    pub disturbance: f64,
    /// Each further message of a round.
    pub message: f64,
    /// Each segment of a message on a torus.
    pub segment: f64,
    /// A pair of ranks of an announced broadcast over a torus, for each further port.
    pub plan: f64,
    /// Each block of a permutation, for each port.
    pub block: f64,
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
    /// Copies into memory asked for anew, beyond the cache.
    pub fresh: f64,
    /// Bytes that fit the cache.
    pub cache: f64,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            latency: 1.5e-6,
            disturbance: 0.02e-6,
            message: 0.5e-6,
            segment: 0.5e-6,
            plan: 20e-12,
            block: 25e-9,
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
            fresh: 2.5e9,
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
        let ways = self.ways(fabric);
        let loaded: Vec<(Phase, Load)> = phases
            .into_iter()
            .map(|phase| {
                let load = *loads.entry(phase.pattern).or_insert_with(|| fabric.load(phase.pattern, ways));
                (phase, load)
            })
            .collect();
        Ok(constants.iter().map(|constants| self.under(fabric, &loaded, constants)).collect())
    }

    /// Ports that send at once.
    fn ways(&self, fabric: &Fabric) -> u32 {
        let whole = matches!(self.algorithm, Algorithm::BineWhole | Algorithm::Binomial);
        let torus = matches!(fabric, Fabric::Torus { .. });
        if torus && whole && self.collective == Collective::Reduce { 1 } else { self.ports }
    }

    fn under(&self, fabric: &Fabric, phases: &[(Phase, Load)], constants: &Constants) -> f64 {
        let mut time = 0.0;
        let (ports, ways) = (f64::from(self.ports), f64::from(self.ways(fabric)));
        let torus = matches!(fabric, Fabric::Torus { .. });
        // An all-reduce of halving vectors makes a buffer of each round known to the interfaces.
        let registers = self.collective == Collective::AllReduce && self.algorithm != Algorithm::Ring;
        let parts = constants.split + if registers { constants.register } else { 0.0 };
        let cached = 3.0 * self.bytes <= constants.cache;
        let rate = if cached { constants.reduction } else { constants.reduction_memory };
        let reduction = (1.0 / rate).max(fabric.reduction());
        let fill = if cached { 1.0 / constants.copy } else { fabric.together().sqrt() / constants.fresh };
        let tree = torus && self.collective == Collective::Broadcast && self.algorithm == Algorithm::Bine;
        let announced = tree && self.announced;
        for (i, (phase, load)) in phases.iter().enumerate() {
            let each = phase.bytes / phase.messages.max(1.0);
            let mut round = if phase.messages > 0.0 {
                let (delayed, wire) = if phase.rounds > 1.0 {
                    (load.away, load.usual)
                } else {
                    (load.away.ceil(), load.latency)
                };
                constants.latency * if announced { 2.0 } else { 1.0 }
                    + fabric.exposed() * constants.disturbance * delayed
                    + wire
                    + (phase.messages - 1.0) * constants.message * if torus { ports } else { 1.0 }
                    + (ports - 1.0) * constants.post
                    + (each / ports / constants.eager.max(1.0)).min(1.0) * constants.rendezvous
                    + if torus && phase.bytes < self.bytes { ports * parts } else { 0.0 }
            } else {
                0.0
            };
            let beyond = load.beyond * phase.active;
            // Of the ranks of a host few may send.
            let own = (load.network * phase.active).max(load.single);
            let busiest = if torus {
                own.max(beyond) / constants.share
            } else {
                (own / constants.share).max(beyond / constants.share_fabric).max(load.memory)
            };
            let sent = phase.bytes / ways * busiest;
            let reduced = phase.reduced * reduction;
            round += if torus {
                let cut = self.segment > 0.0 && !(tree && i > 0);
                let segments = if cut { phase.bytes / self.segment } else { 0.0 };
                sent + reduced + segments * constants.segment
            } else if self.segment > 0.0 && phase.bytes > self.segment {
                let first = self.segment / phase.bytes;
                sent.max(reduced)
                    + first * sent.min(reduced)
                    + (phase.bytes / self.segment - 1.0) * constants.message
            } else {
                sent + reduced
            };
            time += phase.rounds * (round + phase.copied / constants.copy + phase.buffered * fill);
        }
        let ranks = fabric.ranks() as f64;
        if announced {
            time += constants.plan * (ports - 1.0) * ranks * ranks;
        }
        if self.permute {
            time += self.bytes / constants.copy + constants.block * ports * ranks;
        }
        time
    }
}
