//! Leaves and pods: which hosts stand together, and how much of each group is free.

use std::collections::BTreeSet;

/// Where hosts stand; asked once per host.
pub trait Locator {
    /// Number of the leaf (a switch, or with rails a group of them) on which `host` is.
    fn leaf(&self, host: u32) -> u32;
    /// Number of the pod (the hosts that reach each other without the top tier) in which `host` is.
    fn pod(&self, host: u32) -> u32;
}

/// The groups of one level, and how many GPUs of each are free.
#[derive(Clone, Debug)]
struct Level {
    /// Group of each host.
    of: Vec<u32>,
    /// Hosts of each group in order.
    hosts: Vec<Vec<u32>>,
    free: Vec<u32>,
    /// (free GPUs, group).
    by_free: BTreeSet<(u32, u32)>,
}

impl Level {
    fn new(numbers: impl Iterator<Item = u32>, per_host: u32) -> Self {
        // Numbers may have gaps: groups are counted in the order of their first hosts.
        let mut known = rustc_hash::FxHashMap::default();
        let (mut of, mut hosts) = (Vec::new(), Vec::<Vec<u32>>::new());
        for (host, number) in numbers.enumerate() {
            let group = *known.entry(number).or_insert_with(|| {
                hosts.push(Vec::new());
                hosts.len() as u32 - 1
            });
            of.push(group);
            hosts[group as usize].push(host as u32);
        }
        let free: Vec<u32> = hosts.iter().map(|hosts| hosts.len() as u32 * per_host).collect();
        let by_free = free.iter().enumerate().map(|(group, &free)| (free, group as u32)).collect();
        Self { of, hosts, free, by_free }
    }

    fn change(&mut self, host: u32, to: impl FnOnce(u32) -> u32) {
        let group = self.of[host as usize];
        let free = &mut self.free[group as usize];
        self.by_free.remove(&(*free, group));
        *free = to(*free);
        self.by_free.insert((*free, group));
    }

    /// Of the groups with at least `gpus` free the one with the fewest.
    fn best_fit(&self, gpus: u32) -> Option<u32> {
        self.by_free.range((gpus, 0)..).next().map(|&(_, group)| group)
    }
}

/// The leaves and pods of a set of hosts, numbered from 0 in it.
#[derive(Clone, Debug)]
pub struct Groups {
    leaves: Level,
    pods: Level,
    /// Leaves of each pod.
    leaves_of: Vec<Vec<u32>>,
}

impl Groups {
    /// The groups of hosts `first..first + hosts`, all of whose GPUs are free.
    pub fn new(locator: &dyn Locator, first: u32, hosts: u32, per_host: u32) -> Self {
        let range = first..first + hosts;
        let leaves = Level::new(range.clone().map(|host| locator.leaf(host)), per_host);
        let pods = Level::new(range.map(|host| locator.pod(host)), per_host);
        let mut leaves_of = vec![Vec::new(); pods.hosts.len()];
        for (leaf, hosts) in leaves.hosts.iter().enumerate() {
            leaves_of[pods.of[hosts[0] as usize] as usize].push(leaf as u32);
        }
        Self { leaves, pods, leaves_of }
    }

    /// `gpus` of `host` are taken.
    pub(super) fn take(&mut self, host: u32, gpus: u32) {
        self.leaves.change(host, |free| free - gpus);
        self.pods.change(host, |free| free - gpus);
    }

    /// `gpus` of `host` are given back.
    pub(super) fn give(&mut self, host: u32, gpus: u32) {
        self.leaves.change(host, |free| free + gpus);
        self.pods.change(host, |free| free + gpus);
    }

    /// Of the leaves with at least `gpus` free the one with the fewest.
    pub fn best_leaf(&self, gpus: u32) -> Option<u32> {
        self.leaves.best_fit(gpus)
    }

    /// Of the pods with at least `gpus` free the one with the fewest.
    pub fn best_pod(&self, gpus: u32) -> Option<u32> {
        self.pods.best_fit(gpus)
    }

    /// Hosts of a leaf.
    pub fn hosts_of_leaf(&self, leaf: u32) -> &[u32] {
        &self.leaves.hosts[leaf as usize]
    }

    /// Hosts of a pod.
    pub fn hosts_of_pod(&self, pod: u32) -> &[u32] {
        &self.pods.hosts[pod as usize]
    }

    /// Free GPUs of a leaf.
    pub fn free_of_leaf(&self, leaf: u32) -> u32 {
        self.leaves.free[leaf as usize]
    }

    /// Pods with the most free GPUs first.
    pub fn pods_by_free(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.pods.by_free.iter().rev().copied()
    }

    /// Leaves of a pod.
    pub fn leaves_of_pod(&self, pod: u32) -> &[u32] {
        &self.leaves_of[pod as usize]
    }
}
