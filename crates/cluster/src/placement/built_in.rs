//! What every placement is: the trait, what it is asked, and what is said of those that come along.

use windtunnel_kernel::EndpointId;
use windtunnel_kernel::registry::Entry;

use super::packed;
use crate::free::FreeSet;

windtunnel_kernel::named! {
    /// How close together a job's GPUs must be.
    #[derive(Default, PartialOrd, Ord, Hash)]
    pub enum Locality: "locality" {
        #[default]
        Anywhere = "anywhere", "anywhere";
        FewestHosts = "fewest-hosts", "on as few hosts as possible: whole hosts, and the rest on one";
        Leaf = "leaf", "on one leaf";
        Pod = "pod", "in one pod";
    }
}

impl Locality {
    /// Whether leaves and pods have to be known.
    pub const fn asks_for_groups(self) -> bool {
        matches!(self, Self::Leaf | Self::Pod)
    }
}

/// What a job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// GPUs, at least 1.
    pub gpus: u32,
    /// How close together.
    pub locality: Locality,
    /// Hash of seed, job and start, for random choices.
    pub key: u64,
}

impl Need {
    /// `gpus` anywhere.
    pub const fn of(gpus: u32) -> Self {
        Self { gpus, locality: Locality::Anywhere, key: 0 }
    }

    /// The same without a wish for closeness.
    const fn anywhere(self) -> Self {
        Self { locality: Locality::Anywhere, ..self }
    }
}

/// Chooses GPUs for a job.
pub trait Placement: Send + Sync {
    /// Name in a scenario.
    fn name(&self) -> &'static str;

    /// Whether leaves and pods have to be known.
    fn asks_for_groups(&self) -> bool {
        false
    }

    /// Whether what it gives is free and enough for certain; otherwise the cluster looks.
    fn is_trusted(&self) -> bool {
        true
    }

    /// Whether it finds GPUs wherever they are as soon as enough are free: then a number of free GPUs says whether a job fits, and
    /// schedulers need not ask.
    fn fits_by_count(&self) -> bool {
        false
    }

    /// What went wrong in it, once something has: the run ends there. For placements that are not of this program.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Free GPUs in rank order, wherever they are; `None` if no choice is legal.
    fn anywhere(&self, free: &FreeSet, need: Need) -> Option<Vec<EndpointId>>;

    /// Free GPUs in rank order as `need` wants them; `None` if no choice is legal.
    fn place(&self, free: &FreeSet, need: Need) -> Option<Vec<EndpointId>> {
        if free.count() < need.gpus {
            return None;
        }
        match need.locality {
            Locality::Anywhere => self.anywhere(free, need),
            // Whole hosts and one rest: nothing is left to choose but which hosts.
            Locality::FewestHosts => packed::fewest_hosts(free, need.gpus),
            Locality::Leaf => {
                let groups = free.groups()?;
                let leaf = groups.best_leaf(need.gpus)?;
                self.anywhere(&free.part(groups.hosts_of_leaf(leaf)), need.anywhere())
            }
            Locality::Pod => {
                let groups = free.groups()?;
                let pod = groups.best_pod(need.gpus)?;
                self.anywhere(&free.part(groups.hosts_of_pod(pod)), need.anywhere())
            }
        }
    }
}

/// A placement that comes along, and what is said of it. It stands in the placement's own file.
pub struct BuiltIn {
    /// Its name and a line about it.
    pub entry: Entry,
    /// The placement.
    pub placement: &'static dyn Placement,
}
