//! What is out, GPU by GPU, and why.
//!
//! A GPU is available if it is with no job nor on its way from one, has not failed, is not being drained, is no spare, and
//! its host computes.
//! Causes are counted, as several may hold at once; of those the first of busy, failed, draining is what its time counts as.

use std::collections::{BTreeMap, BTreeSet};

use windtunnel_kernel::EndpointId;

use super::{Agenda, Component, Spares, Upkeep};
use crate::cluster::{JobId, Machine};

/// What is known of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    /// The job that has it.
    pub job: Option<JobId>,
    /// With a job, or on its way from one.
    pub held: bool,
    /// Faults that hold.
    pub failed: u16,
    /// Windows of maintenance that hold.
    pub draining: u16,
    /// Kept back.
    pub spare: bool,
    /// Of a host that holds data: no job's.
    pub storage: bool,
    /// When the last of its causes ends, as far as is known.
    pub until: u64,
    /// Until when the scheduler knows it to be gone; 0 if it does not.
    pub told: u64,
}

impl Out {
    const IN: Self = Self {
        job: None,
        held: false,
        failed: 0,
        draining: 0,
        spare: false,
        storage: false,
        until: 0,
        told: 0,
    };

    /// Whether nothing but a job keeps it from being given away.
    pub const fn is_in_service(&self) -> bool {
        self.failed == 0 && self.draining == 0 && !self.spare && !self.storage
    }

    /// Whether it can be given away.
    pub const fn is_available(&self) -> bool {
        self.is_in_service() && !self.held
    }

    /// Counts as (failed, draining).
    const fn counts(&self) -> (bool, bool) {
        let free = self.job.is_none() && !self.storage;
        (free && self.failed > 0, free && self.failed == 0 && self.draining > 0)
    }
}

/// Why a GPU is cut off: how its time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Failed,
    Draining,
}

/// The state of faults and maintenance.
pub struct Outages {
    pub(crate) agenda: Agenda,
    gpus: Vec<Out>,
    failed: u64,
    draining: u64,
    /// Cables and switches that are out: why, and until when as far as is known, for each cause.
    fabric: BTreeMap<Component, Vec<(Cause, u64)>>,
    /// GPUs that these cut off.
    cut: BTreeMap<EndpointId, Cause>,
    /// Changes of the fabric so far.
    pub(crate) changes: u64,
    /// Cold spares that are being readied.
    pub(crate) called: u32,
    /// Spare hosts that are up for use, the last first.
    pub(crate) pool: Vec<u32>,
    /// Hosts that were replaced and are not whole yet.
    replaced: BTreeSet<u32>,
    /// What notice was given of and has not ended.
    pub(crate) known: BTreeMap<u32, Known>,
    per_host: u32,
}

/// What notice was given of.
pub(crate) struct Known {
    pub(crate) gpus: Vec<EndpointId>,
    /// Jobs that moved away, and the first of them.
    pub(crate) moved: u32,
    pub(crate) job: Option<JobId>,
}

impl Outages {
    /// Nothing is out but the spares, and the storage hosts for good.
    pub fn new(upkeep: &Upkeep<'_>, machine: &Machine<'_>) -> Self {
        let per_host = machine.endpoints_per_host;
        let mut gpus = vec![Out::IN; machine.endpoints as usize];
        let Spares { hosts, .. } = upkeep.spares;
        let computes = |host: &u32| machine.storage.binary_search(host).is_err();
        // The lowest is used first.
        let pool: Vec<u32> =
            (0..machine.endpoints / per_host).rev().filter(computes).take(hosts as usize).collect();
        let mut keep = |hosts: &[u32], by: fn(&mut Out)| {
            for gpu in hosts.iter().flat_map(|&host| host * per_host..(host + 1) * per_host) {
                let out = &mut gpus[gpu as usize];
                by(out);
                (out.until, out.told) = (u64::MAX, u64::MAX);
            }
        };
        keep(&pool, |out| out.spare = true);
        keep(machine.storage, |out| out.storage = true);
        Self {
            agenda: Agenda::new(upkeep, machine.seed),
            gpus,
            failed: 0,
            draining: 0,
            fabric: BTreeMap::new(),
            cut: BTreeMap::new(),
            changes: 0,
            called: 0,
            pool,
            replaced: BTreeSet::new(),
            known: BTreeMap::new(),
            per_host,
        }
    }

    /// What is known of a GPU.
    pub fn of(&self, gpu: EndpointId) -> &Out {
        &self.gpus[gpu.0 as usize]
    }

    /// Changes what is known of a GPU; returns it as it was and is.
    pub(crate) fn change(&mut self, gpu: EndpointId, by: impl FnOnce(&mut Out)) -> (Out, Out) {
        let out = &mut self.gpus[gpu.0 as usize];
        let before = *out;
        by(out);
        let after = *out;
        let ((a, b), (c, d)) = (before.counts(), after.counts());
        self.failed = self.failed + u64::from(c) - u64::from(a);
        self.draining = self.draining + u64::from(d) - u64::from(b);
        (before, after)
    }

    /// GPUs without a job that are out of order, and that are kept free for maintenance.
    pub const fn counts(&self) -> (u64, u64) {
        (self.failed, self.draining)
    }

    /// Whether no GPU is out but the spares, and none of these is being readied.
    pub fn is_whole(&self) -> bool {
        self.counts() == (0, 0) && self.called == 0
    }

    /// Cables and switches that are out, in order.
    pub fn fabric(&self) -> impl Iterator<Item = Component> + '_ {
        self.fabric.keys().copied()
    }

    /// A cable or switch goes out until `until`; returns whether the fabric has changed.
    pub(crate) fn fabric_out(&mut self, component: Component, cause: Cause, until: u64) -> bool {
        let causes = self.fabric.entry(component).or_default();
        causes.push((cause, until));
        let changed = causes.len() == 1;
        self.changes += u64::from(changed);
        changed
    }

    /// A cable or switch comes back from one of its causes; returns whether the fabric has changed.
    pub(crate) fn fabric_back(&mut self, component: Component, cause: Cause) -> bool {
        let Some(causes) = self.fabric.get_mut(&component) else { return false };
        if let Some(place) = causes.iter().position(|&(why, _)| why == cause) {
            causes.remove(place);
        }
        let changed = causes.is_empty();
        if changed {
            self.fabric.remove(&component);
        }
        self.changes += u64::from(changed);
        changed
    }

    /// Why the fabric is not whole, and until when as far as is known.
    pub(crate) fn fabric_cause(&self) -> (Cause, u64) {
        let causes = || self.fabric.values().flatten();
        let failed = causes().any(|&(cause, _)| cause == Cause::Failed);
        let until = causes().map(|&(_, until)| until).max().unwrap_or(0);
        (if failed { Cause::Failed } else { Cause::Draining }, until)
    }

    /// GPUs newly cut off, and those no longer, each with why: by what is out now. What goes out may be the end of some cuts and
    /// what comes back the begin of others, as the part that the rest are cut off from is the largest.
    pub(crate) fn cuts(
        &mut self,
        upkeep: &Upkeep<'_>,
        cause: Cause,
    ) -> (Vec<EndpointId>, Vec<(EndpointId, Cause)>) {
        let out: Vec<Component> = self.fabric().collect();
        let now = if out.is_empty() { Vec::new() } else { upkeep.plant.cut_off(&out) };
        let fresh: Vec<EndpointId> = now.iter().copied().filter(|gpu| !self.cut.contains_key(gpu)).collect();
        let back: Vec<(EndpointId, Cause)> = self
            .cut
            .iter()
            .filter(|(gpu, _)| now.binary_search(gpu).is_err())
            .map(|(&g, &c)| (g, c))
            .collect();
        for (gpu, _) in &back {
            self.cut.remove(gpu);
        }
        self.cut.extend(fresh.iter().map(|&gpu| (gpu, cause)));
        (fresh, back)
    }

    /// GPUs that are cut off by what is out, in order.
    pub(crate) fn cut(&self) -> impl Iterator<Item = EndpointId> + '_ {
        self.cut.keys().copied()
    }

    /// Whether a GPU is cut off by what is out.
    pub(crate) fn is_cut(&self, gpu: EndpointId) -> bool {
        self.cut.contains_key(&gpu)
    }

    /// GPUs of a host.
    pub(crate) fn gpus_of(&self, host: u32) -> impl Iterator<Item = EndpointId> + use<> {
        (host * self.per_host..(host + 1) * self.per_host).map(EndpointId)
    }

    pub(crate) fn is_replaced(&self, host: u32) -> bool {
        self.replaced.contains(&host)
    }

    pub(crate) fn set_replaced(&mut self, host: u32, replaced: bool) {
        if replaced {
            self.replaced.insert(host);
        } else {
            self.replaced.remove(&host);
        }
    }

    /// Whether a host is kept back, or being readied.
    pub(crate) fn is_spare(&self, host: u32) -> bool {
        self.gpus[(host * self.per_host) as usize].spare
    }

    /// Takes the first spare that works.
    pub(crate) fn draw_spare(&mut self) -> Option<u32> {
        let works = |&host: &u32| {
            self.gpus_of(host).all(|gpu| {
                let out = self.of(gpu);
                out.failed == 0 && out.draining == 0 && !out.held
            })
        };
        let place = self.pool.iter().rposition(works)?;
        Some(self.pool.remove(place))
    }

    pub(crate) fn add_spare(&mut self, host: u32) {
        let place = self.pool.partition_point(|&known| known > host);
        self.pool.insert(place, host);
    }
}
