//! Which GPUs a job gets.
//!
//! A placement is asked with what is free and what a job needs, and answers GPUs in rank order, or nothing if no legal
//! choice exists: too few free, or not where [`Locality`] wants them. Then the free GPUs are stranded. It changes
//! nothing, and its answer is a function of what it is given: equal choices fall to the lowest number, a draw is keyed
//! by the job. It does not look at every GPU or host: [`FreeSet`] keeps hosts in buckets by what is free on them.

mod built_in;
mod packed;
mod rail;
mod random;
mod spread;
mod topology;

use windtunnel_kernel::registry::Listed;

pub use built_in::{BuiltIn, Locality, Need, Placement};
pub use packed::Packed;
pub use rail::RailAware;
pub use random::Random;
pub use spread::Spread;
pub use topology::TopologyAware;

/// The placements that come along, in the order in which they are listed.
pub const PLACEMENTS: [&BuiltIn; 5] =
    [&packed::PACKED, &spread::SPREAD, &rail::RAIL, &topology::TOPOLOGY, &random::RANDOM];

windtunnel_kernel::table! { BuiltIn: "placement", PLACEMENTS }

/// The placement named `name`.
pub fn by_name(name: &str) -> Option<&'static dyn Placement> {
    <&BuiltIn>::by_name(name).map(|built_in| built_in.placement)
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::{EndpointId, RandomStream};

    use super::*;
    use crate::free::{FreeSet, Locator};

    /// Four hosts a leaf, four leaves a pod.
    struct Fours;

    impl Locator for Fours {
        fn leaf(&self, host: u32) -> u32 {
            host / 4
        }

        fn pod(&self, host: u32) -> u32 {
            host / 16
        }
    }

    /// Whether some choice is legal, found the slow way.
    fn legal(free: &FreeSet, need: Need) -> bool {
        let by_host: Vec<u32> = (0..free.host_count()).map(|host| free.free_on(host)).collect();
        let sums =
            |size: usize| -> Vec<u32> { by_host.chunks(size).map(|hosts| hosts.iter().sum()).collect() };
        match need.locality {
            Locality::Anywhere => free.count() >= need.gpus,
            Locality::FewestHosts => {
                let (whole, rest) = (need.gpus / free.per_host(), need.gpus % free.per_host());
                let mut counts = by_host;
                counts.sort_unstable();
                let full = counts.iter().filter(|&&count| count == free.per_host()).count() as u32;
                let left = &counts[..counts.len() - whole.min(full) as usize];
                full >= whole && (rest == 0 || left.last().is_some_and(|&most| most >= rest))
            }
            Locality::Leaf => sums(4).into_iter().any(|sum| sum >= need.gpus),
            Locality::Pod => sums(16).into_iter().any(|sum| sum >= need.gpus),
        }
    }

    #[test]
    fn every_placement_finds_legal_gpus_whenever_there_are_some() {
        let mut stream = RandomStream::new(1, "placements", 0);
        let mut free = FreeSet::of_hosts(0, 32, 8).grouped(&Fours);
        let mut held: Vec<Vec<EndpointId>> = Vec::new();
        for step in 0..6_000u64 {
            if !held.is_empty() && stream.below(100) < 45 {
                free.give(&held.swap_remove(stream.below(held.len() as u64) as usize));
                continue;
            }
            let gpus = 1 + stream.below(if step % 7 == 0 { 150 } else { 12 }) as u32;
            let locality = Locality::ALL[stream.below(4) as usize];
            let need = Need { gpus, locality, key: step };
            let placement = PLACEMENTS[stream.below(5) as usize].placement;
            let found = placement.place(&free, need);
            // Rails may be short of GPUs where hosts are not.
            if placement.name() != "rail-aware" {
                assert_eq!(found.is_some(), legal(&free, need), "{} {need:?}", placement.name());
            }
            let Some(found) = found else { continue };
            assert_eq!(found.len(), gpus as usize);
            assert!(free.are_free(&found));
            let mut hosts: Vec<u32> = found.iter().map(|gpu| gpu.0 / 8).collect();
            hosts.sort_unstable();
            hosts.dedup();
            match locality {
                Locality::Anywhere => {}
                Locality::FewestHosts => assert_eq!(hosts.len() as u32, gpus.div_ceil(8)),
                Locality::Leaf => assert_eq!(hosts[0] / 4, hosts[hosts.len() - 1] / 4),
                Locality::Pod => assert_eq!(hosts[0] / 16, hosts[hosts.len() - 1] / 16),
            }
            free.take(&found);
            assert_eq!(free.iter().count(), free.count() as usize);
            held.push(found);
        }
    }
}
