//! What jobs run on: the machine with its rules.

use windtunnel_kernel::{EndpointId, Span};

use super::Listener;
use crate::faults::Upkeep;
use crate::free::{FreeSet, Locator};
use crate::life::Lives;
use crate::placement::Placement;

/// What jobs run on, and by which rules.
pub struct Machine<'a> {
    /// Number of GPUs.
    pub endpoints: u32,
    /// Of which on each host.
    pub endpoints_per_host: u32,
    /// Hosts that hold data and compute nothing, in ascending order: their GPUs are nobody's and counted nowhere.
    pub storage: &'a [u32],
    /// Regions of equally many hosts; a job runs in one.
    pub regions: u32,
    /// From a job's end until its GPUs can be given away.
    pub reaction_delay: Span,
    /// What jobs pay on their way, and what of their work is safe.
    pub lives: Lives,
    /// What fails and is drained; `None`: nothing.
    pub upkeep: Option<&'a Upkeep<'a>>,
    /// Seed of random placements.
    pub seed: u64,
    /// Jobs that wait at most: the next one due is submitted when one of them starts.
    pub queue: Option<u32>,
    /// Placements that jobs may ask for.
    pub placements: Vec<&'a dyn Placement>,
    /// Leaves and pods; needed if a placement or a job asks for them.
    pub locator: Option<&'a dyn Locator>,
    /// Who hears what happens.
    pub listener: Option<&'a dyn Listener>,
}

impl Machine<'_> {
    pub(super) fn hosts(&self) -> u32 {
        self.endpoints / self.endpoints_per_host
    }

    /// GPUs that jobs may get.
    pub(super) fn gpus(&self) -> u32 {
        self.endpoints - self.storage.len() as u32 * self.endpoints_per_host
    }

    pub(super) fn region_count(&self) -> u32 {
        self.regions.clamp(1, self.hosts().max(1))
    }
}

/// A region of `machine`, all free but the storage hosts; regions are as equal as whole hosts allow.
pub(super) fn empty_region(machine: &Machine<'_>, grouped: bool, region: u32) -> FreeSet {
    let bound = |region: u32| {
        (u64::from(machine.hosts()) * u64::from(region) / u64::from(machine.region_count())) as u32
    };
    let (first, end) = (bound(region), bound(region + 1));
    let free = FreeSet::of_hosts(first, end - first, machine.endpoints_per_host);
    let mut free = match machine.locator {
        Some(locator) if grouped => free.grouped(locator),
        _ => free,
    };
    for host in machine.storage.iter().filter(|&&host| (first..end).contains(&host)) {
        let gpus = host * machine.endpoints_per_host..(host + 1) * machine.endpoints_per_host;
        free.take(&gpus.map(EndpointId).collect::<Vec<_>>());
    }
    free
}
