//! What phases take.
//!
//! ```text
//! round = messages · (latency + exposed · disturbance + wire + rendezvous) + (ports - 1) · post + ports · (split + register)
//!       + bytes / ports · busiest link + reduced / reduction + copied / copy
//! time  = rounds + buffers / (copy or fresh)
//! ```
//!
//! Where a rank sends several messages in a round only the first waits for the wire. Rounds that follow one another along
//! a ring wait for its links in turn, so that their mean counts, single rounds for the longest. A message below the eager
//! limit is copied at both ends, which costs as much of a rendezvous as it is part of the limit.
//!
//! On switches a message beyond that limit is spread over the host's `rails`, of which its ranks get `share`, in jobs on most
//! of the machine's leaves `share_wide` (measured; why is not known). A message that stays in its host is copied by a core
//! (`inside`).
//!
//! Buffers ([`super::buffers`]) that the allocator keeps cost what is copied into them. From 32 MiB on, the largest that
//! glibc's keeps (`mallopt(3)`: M_MMAP_THRESHOLD), memory is mapped in every call and filled page by page (`fresh`), under
//! locks that the ranks of a host contend for (the square root of their number, as measured on hosts of 1, 4 and 32).
//! Segments let a reduction run beside the next transfer.
//!
//! On a torus every segment is put by itself, buffers are made known to the interfaces (`fresh` beyond the cache), and a tree
//! that reduces whole vectors serves its ports one after another. Exchanges wait for both ways in every round; down a tree,
//! or up one, a message is but passed on (`forward`), and the ports' messages are posted once, before its first round. A
//! broadcast's segments follow one another down the tree, and where receivers announce their buffers a sender first hears of
//! them and the trees of further ports are worked out for every pair of ranks (`plan`).
//!
//! Permutations move block by block (`block`). Three vectors (the caller's, what comes in, what results) in the cache are
//! reduced there.
//!
//! Other jobs' messages and the noise of more hosts delay the slowest message of a round: the more, the more leaves of the
//! job are not its own (`disturbance`).

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::algorithms::{Pattern, Phase, phases};
use super::buffers::{buffers, put_buffer};
use super::fabric::{Fabric, Load};
use super::{Algorithm, Collective, MpiError, Question};

/// What a system's measurements decide. Times in seconds, rates in bytes per second, shares of a link's rate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Constants {
    /// A round: a message sent and the partner's received, the wire apart.
    pub latency: f64,
    /// A further round of a tree on a torus, where messages go one way.
    pub forward: f64,
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
    /// Share of a link's rate, or of a host's ports, that long messages get.
    pub share: f64,
    /// Share of a host's ports in a job on most leaves of the machine.
    pub share_wide: f64,
    /// Rate at which a core copies a message to another rank of its host.
    pub inside: f64,
    /// Share of what leaves and groups exchange.
    pub share_fabric: f64,
    /// Reduction of vectors that fit the cache.
    pub reduction: f64,
    /// Reduction of longer ones.
    pub reduction_memory: f64,
    /// Copies.
    pub copy: f64,
    /// Copies into memory mapped anew.
    pub fresh: f64,
    /// Bytes that fit the cache.
    pub cache: f64,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            latency: 1.5e-6,
            forward: 1e-6,
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
            share_wide: 0.9,
            inside: 8e9,
            share_fabric: 0.5,
            reduction: 8e9,
            reduction_memory: 4e9,
            copy: 6e9,
            fresh: 2.5e9,
            cache: 32e6,
        }
    }
}

/// From so many bytes on the allocator maps memory anew in every call.
const MAPPED: f64 = 33_554_432.0;

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
        let torus = matches!(fabric, Fabric::Torus { .. });
        let mut time = if torus {
            self.put(fabric, phases, constants)
        } else {
            let rounds =
                phases.iter().map(|(phase, load)| phase.rounds * self.round(fabric, phase, load, constants));
            rounds.sum::<f64>() + self.buffered(fabric, constants)
        };
        if self.permute {
            let blocks = f64::from(self.ports) * fabric.ranks() as f64;
            time += self.bytes / constants.copy + constants.block * blocks;
        }
        time
    }

    fn reduction(&self, fabric: &Fabric, constants: &Constants) -> f64 {
        let rate = if self.cached(constants) { constants.reduction } else { constants.reduction_memory };
        (1.0 / rate).max(fabric.reduction())
    }

    /// Whether the caller's vector, what comes in and what results fit the cache.
    fn cached(&self, constants: &Constants) -> bool {
        3.0 * self.bytes <= constants.cache
    }

    /// A round over switches.
    fn round(&self, fabric: &Fabric, phase: &Phase, load: &Load, constants: &Constants) -> f64 {
        let each = phase.bytes / phase.messages.max(1.0);
        let (delayed, wire) =
            if phase.rounds > 1.0 { (load.away, load.usual) } else { (load.away.ceil(), load.latency) };
        let start = constants.latency
            + fabric.exposed() * constants.disturbance * delayed
            + wire
            + (phase.messages - 1.0) * constants.message
            + (each / constants.eager.max(1.0)).min(1.0) * constants.rendezvous;
        let rails = if each > constants.eager { fabric.rails() } else { 1.0 };
        let share = if fabric.wide() { constants.share_wide } else { constants.share };
        // Of the ranks of a host few may send.
        let own = (load.network * phase.active).max(load.single) / (rails * share);
        let beyond = load.beyond * phase.active / constants.share_fabric;
        let inside = load.memory.max(if load.stays { 1.0 / constants.inside } else { 0.0 });
        let sent = phase.bytes * own.max(beyond).max(inside);
        let reduced = phase.reduced * self.reduction(fabric, constants);
        let moved = if self.segment > 0.0 && phase.bytes > self.segment {
            let first = self.segment / phase.bytes;
            sent.max(reduced)
                + first * sent.min(reduced)
                + (phase.bytes / self.segment - 1.0) * constants.message
        } else {
            sent + reduced
        };
        start + moved + phase.copied / constants.copy
    }

    /// Buffers of a library over sends and receives.
    fn buffered(&self, fabric: &Fabric, constants: &Constants) -> f64 {
        let ranks = fabric.ranks() as f64;
        let (own, copied) = buffers(self.collective, self.algorithm, self.bytes, ranks, self.segment > 0.0);
        // Of a gather's or a scatter's ranks few have much to hold.
        let rooted = matches!(self.collective, Collective::Gather | Collective::Scatter);
        let contended = if rooted { 1.0 } else { fabric.together().sqrt() };
        let each = own.iter().map(|buffer| {
            if buffer.asked >= MAPPED {
                buffer.written * contended / constants.fresh
            } else if buffer.copied {
                buffer.written / constants.copy
            } else {
                0.0
            }
        });
        each.sum::<f64>() + copied / constants.copy
    }

    /// Rounds of one-sided puts over a torus.
    fn put(&self, fabric: &Fabric, phases: &[(Phase, Load)], constants: &Constants) -> f64 {
        let (ports, ways) = (f64::from(self.ports), f64::from(self.ways(fabric)));
        // An all-reduce of halving vectors makes a buffer of each round known to the interfaces.
        let registers = self.collective == Collective::AllReduce && self.algorithm != Algorithm::Ring;
        let parts = constants.split + if registers { constants.register } else { 0.0 };
        let reduction = self.reduction(fabric, constants);
        let fill = if self.cached(constants) { constants.copy } else { constants.fresh };
        let bine = self.algorithm == Algorithm::Bine;
        let tree = self.collective == Collective::Broadcast && bine;
        let announced = tree && self.announced;
        let rooted = matches!(self.collective, Collective::Gather | Collective::Scatter) && bine;
        let one_way = rooted || tree && !announced;
        let mut time = put_buffer(self.collective, self.algorithm, self.bytes) / fill;
        for (i, (phase, load)) in phases.iter().enumerate() {
            let each = phase.bytes / phase.messages.max(1.0);
            let passed_on = one_way && i > 0;
            let wire = if phase.rounds > 1.0 { load.usual } else { load.latency };
            let mut round = if passed_on {
                constants.forward
            } else {
                constants.latency * if announced { 2.0 } else { 1.0 } + (ports - 1.0) * constants.post
            };
            round += wire
                + (phase.messages - 1.0) * constants.message * ports
                + (each / ports / constants.eager.max(1.0)).min(1.0) * constants.rendezvous
                + if phase.bytes < self.bytes { ports * parts } else { 0.0 };
            // Of the ranks of a host few may send.
            let own = (load.network * phase.active).max(load.single);
            let busiest = own.max(load.beyond * phase.active) / constants.share;
            let cut = self.segment > 0.0 && !(tree && i > 0);
            let segments = if cut { phase.bytes / self.segment } else { 0.0 };
            round += phase.bytes / ways * busiest + phase.reduced * reduction + segments * constants.segment;
            time += phase.rounds * (round + phase.copied / constants.copy);
        }
        if announced {
            let ranks = fabric.ranks() as f64;
            time += constants.plan * (ports - 1.0) * ranks * ranks;
        }
        time
    }
}
