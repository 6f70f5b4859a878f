//! Ranks on rails: with a leaf per rail, traffic between GPUs of one number stays below it.

use windtunnel_kernel::EndpointId;
use windtunnel_kernel::registry::Entry;

use super::packed::fill;
use super::{BuiltIn, Need, Placement};
use crate::free::FreeSet;

/// Rank r on a GPU of number r modulo the GPUs of a host.
///
/// A job that one host takes goes to the tightest, as packed: its traffic needs no rail. Of a larger one whole hosts
/// come first, then hosts are filled from several jobs' leftovers, each rank on its rail. It may find nothing while
/// enough is free, on the wrong rails.
#[derive(Clone, Copy, Debug)]
pub struct RailAware;

pub(super) const RAIL: BuiltIn = BuiltIn {
    entry: Entry::new(
        "rail-aware",
        "rank r on GPU r modulo the GPUs of a host, so that ranks in step share a rail",
    ),
    placement: &RailAware,
};

impl Placement for RailAware {
    fn name(&self) -> &'static str {
        RAIL.entry.name
    }

    fn anywhere(&self, free: &FreeSet, need: Need) -> Option<Vec<EndpointId>> {
        let per_host = free.per_host();
        let mut found = Vec::with_capacity(need.gpus as usize);
        if (need.gpus..=per_host).any(|count| !free.bucket(count).is_empty()) {
            fill(free, need.gpus, &mut found);
            return Some(found);
        }
        let whole = (need.gpus / per_host).min(free.bucket(per_host).len());
        let hosts = free.bucket(per_host).iter().take(whole as usize);
        for host in hosts {
            free.append(host, per_host, &mut found);
        }
        // Hosts below this are given away whole.
        let full = free.bucket(per_host);
        let beyond = full.iter().nth(whole as usize);
        let mut next = vec![0; per_host as usize];
        for rank in found.len() as u32..need.gpus {
            let gpu = rank % per_host;
            let from = &mut next[gpu as usize];
            let host = loop {
                let host = free.rail(gpu).next(*from)?;
                *from = host + 1;
                let given_away = free.free_on(host) == per_host && beyond.is_none_or(|first| host < first);
                if !given_away {
                    break host;
                }
            };
            found.push(free.endpoint(host, gpu));
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_step_share_a_rail() {
        let mut free = FreeSet::new(16, 4);
        // Host 0 has GPUs 2 and 3 left, host 1 has 0 and 1, hosts 2 and 3 are whole.
        free.take(&[0, 1, 6, 7].map(EndpointId));
        let found = RailAware.place(&free, Need::of(12)).expect("each rail has three");
        assert_eq!(
            found.iter().map(|gpu| gpu.0).collect::<Vec<_>>(),
            [8, 9, 10, 11, 12, 13, 14, 15, 4, 5, 2, 3]
        );
        free.take(&[4].map(EndpointId));
        assert_eq!(RailAware.place(&free, Need::of(11)), None, "rail 0 has two left");
        assert_eq!(RailAware.place(&free, Need::of(2)), Some(vec![EndpointId(2), EndpointId(3)]));
    }
}
