//! Close together in the fabric: the fewest crossings of spines, then best fit.

use windtunnel_kernel::EndpointId;
use windtunnel_kernel::registry::Entry;

use super::packed::fill;
use super::{BuiltIn, Need, Placement};
use crate::free::{FreeSet, Groups};

/// On one leaf if one suffices, the tightest; else in the tightest pod that suffices, on its emptiest leaves; else on the
/// emptiest pods. Within a leaf as packed.
#[derive(Clone, Copy, Debug)]
pub struct TopologyAware;

pub(super) const TOPOLOGY: BuiltIn = BuiltIn {
    entry: Entry::new("topology-aware", "the fewest crossings of spines, then packed"),
    placement: &TopologyAware,
};

impl Placement for TopologyAware {
    fn name(&self) -> &'static str {
        TOPOLOGY.entry.name
    }

    fn asks_for_groups(&self) -> bool {
        true
    }

    fn fits_by_count(&self) -> bool {
        true
    }

    fn anywhere(&self, free: &FreeSet, need: Need) -> Option<Vec<EndpointId>> {
        if free.count() < need.gpus {
            return None;
        }
        let mut found = Vec::with_capacity(need.gpus as usize);
        let Some(groups) = free.groups() else {
            // A part of the fabric, chosen already.
            fill(free, need.gpus, &mut found);
            return Some(found);
        };
        if let Some(leaf) = groups.best_leaf(need.gpus) {
            fill(&free.part(groups.hosts_of_leaf(leaf)), need.gpus, &mut found);
        } else if let Some(pod) = groups.best_pod(need.gpus) {
            over_leaves(free, groups, pod, need.gpus, &mut found);
        } else {
            let mut left = need.gpus;
            let mut pods = groups.pods_by_free();
            while left > 0 {
                let (most, pod) = pods.next().expect("the pods' free GPUs sum to the cluster's");
                if most > left {
                    // The last one: the tightest that has not been used, and every used one had more.
                    let pod = groups.best_pod(left).unwrap_or(pod);
                    over_leaves(free, groups, pod, left, &mut found);
                    break;
                }
                over_leaves(free, groups, pod, most, &mut found);
                left -= most;
            }
        }
        Some(found)
    }
}

/// Appends `gpus` of a pod: from its emptiest leaves, the last part from the tightest one that suffices.
fn over_leaves(free: &FreeSet, groups: &Groups, pod: u32, gpus: u32, found: &mut Vec<EndpointId>) {
    let mut leaves: Vec<(u32, u32)> =
        groups.leaves_of_pod(pod).iter().map(|&leaf| (groups.free_of_leaf(leaf), leaf)).collect();
    leaves.sort_unstable_by_key(|&(free, leaf)| (std::cmp::Reverse(free), leaf));
    let mut left = gpus;
    let mut at = 0;
    while left > 0 {
        let (most, mut leaf) = leaves[at];
        if most >= left {
            let tight = leaves[at..].iter().filter(|&&(free, _)| free >= left);
            leaf = tight.min_by_key(|&&(free, leaf)| (free, leaf)).map_or(leaf, |&(_, leaf)| leaf);
        }
        let taken = most.min(left);
        fill(&free.part(groups.hosts_of_leaf(leaf)), taken, found);
        left -= taken;
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::free::Locator;

    struct Pairs;

    impl Locator for Pairs {
        fn leaf(&self, host: u32) -> u32 {
            host / 2
        }

        fn pod(&self, host: u32) -> u32 {
            host / 4
        }
    }

    fn hosts(free: &FreeSet, gpus: u32) -> Vec<u32> {
        let found = TopologyAware.place(free, Need::of(gpus)).expect("enough are free");
        assert_eq!(found.len(), gpus as usize);
        let mut hosts: Vec<u32> = found.iter().map(|gpu| gpu.0 / 4).collect();
        hosts.dedup();
        hosts
    }

    #[test]
    fn the_tightest_leaf_then_the_tightest_pod() {
        // Eight hosts of four GPUs: leaves {0,1} {2,3} | {4,5} {6,7}.
        let mut free = FreeSet::new(32, 4).grouped(&Pairs);
        assert_eq!(hosts(&free, 8), [0, 1]);
        free.take(&[EndpointId(8)]);
        // Leaf 1 has 7 left, the tightest for 6; 12 fit pod 0 with 15 better than pod 1 with 16.
        assert_eq!(hosts(&free, 7), [3, 2]);
        assert_eq!(hosts(&free, 12), [0, 1, 3]);
        assert_eq!(hosts(&free, 16), [4, 5, 6, 7]);
        assert_eq!(hosts(&free, 20).len(), 5);
        assert_eq!(hosts(&free, 31).len(), 8);
    }
}
