//! The GPUs that are free, host by host.
//!
//! A bit per GPU; hosts in buckets by how many of theirs are free, and by which rails; GPUs free per leaf and pod where
//! placements ask for them. A change costs a few words per host that it touches, and "the host with the fewest free
//! GPUs that suffice" a look at each bucket, however large the cluster.
//!
//! Invariant: a host is in exactly one bucket, that of its count; `count` is the sum of the counts. A GPU that is taken
//! twice or given back twice is a defect of the caller.

mod bits;
mod groups;

use std::sync::Arc;

use windtunnel_kernel::EndpointId;

pub use bits::BitSet;
pub use groups::{Groups, Locator};

/// Which host a number within the set stands for.
#[derive(Clone, Debug)]
enum Hosts {
    From(u32),
    Listed(Arc<[u32]>),
}

/// The free GPUs of some hosts of equal size.
#[derive(Clone, Debug)]
pub struct FreeSet {
    hosts: Hosts,
    per_host: u32,
    /// Words of a host's mask.
    stride: usize,
    masks: Vec<u64>,
    counts: Vec<u32>,
    /// Hosts with exactly i free GPUs.
    buckets: Vec<BitSet>,
    /// Hosts whose GPU i is free.
    rails: Vec<BitSet>,
    count: u32,
    groups: Option<Groups>,
}

impl FreeSet {
    /// All `endpoints` free, `per_host` of them on each host.
    pub fn new(endpoints: u32, per_host: u32) -> Self {
        Self::of_hosts(0, endpoints / per_host.max(1), per_host)
    }

    /// Hosts `first..first + hosts`, all free.
    pub fn of_hosts(first: u32, hosts: u32, per_host: u32) -> Self {
        let mut set = Self::empty(Hosts::From(first), hosts, per_host);
        for host in 0..hosts {
            set.fill(host, |_| true);
        }
        set
    }

    /// With an eye on leaves and pods.
    pub fn grouped(mut self, locator: &dyn Locator) -> Self {
        let Hosts::From(first) = self.hosts else { return self };
        self.groups = Some(Groups::new(locator, first, self.host_count(), self.per_host));
        self
    }

    /// What is free on `hosts`, numbers within this set, as a set of its own.
    pub fn part(&self, hosts: &[u32]) -> Self {
        let named: Arc<[u32]> = hosts.iter().map(|&host| self.host_id(host)).collect();
        let mut part = Self::empty(Hosts::Listed(named), hosts.len() as u32, self.per_host);
        for (place, &host) in hosts.iter().enumerate() {
            part.fill(place as u32, |gpu| self.is_free(host, gpu));
        }
        part
    }

    fn empty(hosts: Hosts, count: u32, per_host: u32) -> Self {
        let stride = per_host.div_ceil(64) as usize;
        Self {
            hosts,
            per_host,
            stride,
            masks: vec![0; count as usize * stride],
            counts: vec![0; count as usize],
            buckets: vec![BitSet::new(count); per_host as usize + 1],
            rails: vec![BitSet::new(count); per_host as usize],
            count: 0,
            groups: None,
        }
    }

    fn fill(&mut self, host: u32, free: impl Fn(u32) -> bool) {
        for gpu in (0..self.per_host).filter(|&gpu| free(gpu)) {
            self.masks[host as usize * self.stride + gpu as usize / 64] |= 1 << (gpu % 64);
            self.rails[gpu as usize].insert(host);
            self.counts[host as usize] += 1;
        }
        self.count += self.counts[host as usize];
        self.buckets[self.counts[host as usize] as usize].insert(host);
    }

    /// Number of free GPUs.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Number of GPUs.
    pub fn total(&self) -> u32 {
        self.host_count() * self.per_host
    }

    /// Number of hosts.
    pub fn host_count(&self) -> u32 {
        self.counts.len() as u32
    }

    /// GPUs of a host.
    pub const fn per_host(&self) -> u32 {
        self.per_host
    }

    /// Hosts with exactly `count` free GPUs.
    pub fn bucket(&self, count: u32) -> &BitSet {
        &self.buckets[count as usize]
    }

    /// Hosts whose GPU number `gpu` is free.
    pub fn rail(&self, gpu: u32) -> &BitSet {
        &self.rails[gpu as usize]
    }

    /// Leaves and pods, if placements ask for them.
    pub const fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    /// Free GPUs of a host.
    pub fn free_on(&self, host: u32) -> u32 {
        self.counts[host as usize]
    }

    /// Whether GPU `gpu` of `host` is free.
    pub fn is_free(&self, host: u32, gpu: u32) -> bool {
        self.masks[host as usize * self.stride + gpu as usize / 64] >> (gpu % 64) & 1 == 1
    }

    /// Appends the first `gpus` free GPUs of `host`.
    pub fn append(&self, host: u32, gpus: u32, to: &mut Vec<EndpointId>) {
        let base = self.host_id(host) * self.per_host;
        let free = (0..self.per_host).filter(|&gpu| self.is_free(host, gpu));
        to.extend(free.take(gpus as usize).map(|gpu| EndpointId(base + gpu)));
    }

    /// GPU `gpu` of `host`.
    pub fn endpoint(&self, host: u32, gpu: u32) -> EndpointId {
        EndpointId(self.host_id(host) * self.per_host + gpu)
    }

    /// Free GPUs in order.
    pub fn iter(&self) -> impl Iterator<Item = EndpointId> + '_ {
        (0..self.host_count()).filter(|&host| self.counts[host as usize] > 0).flat_map(move |host| {
            (0..self.per_host)
                .filter(move |&gpu| self.is_free(host, gpu))
                .map(move |gpu| self.endpoint(host, gpu))
        })
    }

    /// Whether all of `endpoints` are of this set and free.
    pub fn are_free(&self, endpoints: &[EndpointId]) -> bool {
        endpoints.iter().all(|&endpoint| {
            let (host, gpu) = (self.host_of(endpoint), endpoint.0 % self.per_host);
            host.is_some_and(|host| self.is_free(host, gpu))
        })
    }

    /// Takes `endpoints`, which are free.
    pub fn take(&mut self, endpoints: &[EndpointId]) {
        self.change(endpoints, false);
    }

    /// Gives `endpoints` back.
    pub fn give(&mut self, endpoints: &[EndpointId]) {
        self.change(endpoints, true);
    }

    fn host_id(&self, host: u32) -> u32 {
        match &self.hosts {
            Hosts::From(first) => first + host,
            Hosts::Listed(hosts) => hosts[host as usize],
        }
    }

    /// Number within the set of the host of `endpoint`; only whole ranges of hosts are changed.
    fn host_of(&self, endpoint: EndpointId) -> Option<u32> {
        let Hosts::From(first) = self.hosts else { return None };
        (endpoint.0 / self.per_host).checked_sub(first).filter(|&host| host < self.host_count())
    }

    fn change(&mut self, endpoints: &[EndpointId], free: bool) {
        let mut rest = endpoints;
        while let Some(&first) = rest.first() {
            let host = self.host_of(first).expect("the GPU is of this set");
            let same = rest.iter().take_while(|gpu| gpu.0 / self.per_host == first.0 / self.per_host).count();
            for endpoint in &rest[..same] {
                let gpu = endpoint.0 % self.per_host;
                debug_assert_ne!(
                    self.is_free(host, gpu),
                    free,
                    "GPU {endpoint} is taken or given back twice"
                );
                self.masks[host as usize * self.stride + gpu as usize / 64] ^= 1 << (gpu % 64);
                if free {
                    self.rails[gpu as usize].insert(host);
                } else {
                    self.rails[gpu as usize].remove(host);
                }
            }
            let gpus = same as u32;
            let before = self.counts[host as usize];
            let after = if free { before + gpus } else { before - gpus };
            self.counts[host as usize] = after;
            self.buckets[before as usize].remove(host);
            self.buckets[after as usize].insert(host);
            if let Some(groups) = &mut self.groups {
                if free {
                    groups.give(host, gpus);
                } else {
                    groups.take(host, gpus);
                }
            }
            rest = &rest[same..];
        }
        let gpus = endpoints.len() as u32;
        self.count = if free { self.count + gpus } else { self.count - gpus };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_rails_and_counts_follow_every_change() {
        let mut free = FreeSet::of_hosts(2, 3, 72);
        assert_eq!((free.total(), free.count(), free.bucket(72).len()), (216, 216, 3));
        let taken = [EndpointId(3 * 72 + 70), EndpointId(3 * 72 + 71), EndpointId(2 * 72)];
        free.take(&taken);
        assert_eq!((free.count(), free.bucket(70).next(0), free.bucket(71).next(0)), (213, Some(1), Some(0)));
        assert_eq!((free.rail(71).next(0), free.rail(0).next(0)), (Some(0), Some(1)));
        assert!(!free.are_free(&taken[..1]) && free.are_free(&[EndpointId(4 * 72)]));
        assert!(!free.are_free(&[EndpointId(0)]), "a host of another set");
        free.give(&taken);
        assert_eq!((free.count(), free.bucket(72).len(), free.iter().count()), (216, 3, 216));
    }

    #[test]
    fn a_part_keeps_the_numbers_of_its_hosts() {
        let mut free = FreeSet::of_hosts(10, 4, 2);
        free.take(&[EndpointId(26)]);
        let part = free.part(&[1, 3]);
        assert_eq!(part.iter().map(|gpu| gpu.0).collect::<Vec<_>>(), [22, 23, 27]);
    }
}
