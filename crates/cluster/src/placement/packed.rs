//! Best fit: neighbouring ranks share a host, and hosts are filled before others are broken into.

use windtunnel_kernel::EndpointId;
use windtunnel_kernel::registry::Entry;

use super::{BuiltIn, Need, Placement};
use crate::free::FreeSet;

/// Whole hosts first; what is left goes to the host with the fewest free GPUs that suffice.
#[derive(Clone, Copy, Debug)]
pub struct Packed;

pub(super) const PACKED: BuiltIn = BuiltIn {
    entry: Entry::new("packed", "whole hosts first, then the host with the fewest free GPUs that suffice"),
    placement: &Packed,
};

impl Placement for Packed {
    fn name(&self) -> &'static str {
        PACKED.entry.name
    }

    fn fits_by_count(&self) -> bool {
        true
    }

    fn anywhere(&self, free: &FreeSet, need: Need) -> Option<Vec<EndpointId>> {
        let mut found = Vec::with_capacity(need.gpus as usize);
        fill(free, need.gpus, &mut found);
        (found.len() == need.gpus as usize).then_some(found)
    }
}

/// Appends `gpus` GPUs, or all there are: while no host suffices the fullest one, then the tightest that does.
pub(super) fn fill(free: &FreeSet, gpus: u32, found: &mut Vec<EndpointId>) {
    let per_host = free.per_host();
    // Hosts are used up from the front of their buckets: up to here in each.
    let mut used = vec![0; per_host as usize + 1];
    let next = |used: &[u32], count: u32| free.bucket(count).next(used[count as usize]);
    let mut left = gpus;
    while left > 0 {
        let tight = (left..=per_host).find_map(|count| next(&used, count).map(|host| (host, count)));
        let fullest = || {
            (1..left.min(per_host + 1)).rev().find_map(|count| next(&used, count).map(|host| (host, count)))
        };
        let Some((host, count)) = tight.or_else(fullest) else { return };
        let taken = left.min(count);
        free.append(host, taken, found);
        used[count as usize] = host + 1;
        left -= taken;
    }
}

/// Whole hosts, and the rest on one.
pub(super) fn fewest_hosts(free: &FreeSet, gpus: u32) -> Option<Vec<EndpointId>> {
    let per_host = free.per_host();
    let (whole, rest) = (gpus / per_host, gpus % per_host);
    let full = free.bucket(per_host);
    let spare = full.len().checked_sub(whole)?;
    let rest_fits = rest == 0 || spare > 0 || (rest..per_host).any(|count| !free.bucket(count).is_empty());
    if !rest_fits {
        return None;
    }
    let mut found = Vec::with_capacity(gpus as usize);
    fill(free, gpus, &mut found);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(found: Option<Vec<EndpointId>>) -> Vec<u32> {
        found.unwrap_or_default().iter().map(|gpu| gpu.0).collect()
    }

    #[test]
    fn hosts_are_filled_before_others_are_broken_into() {
        let mut free = FreeSet::new(16, 4);
        assert_eq!(numbers(Packed.place(&free, Need::of(6))), [0, 1, 2, 3, 4, 5]);
        free.take(&[EndpointId(0), EndpointId(4), EndpointId(5)]);
        // Free: 3, 2, 4, 4.
        assert_eq!(numbers(Packed.place(&free, Need::of(2))), [6, 7]);
        assert_eq!(numbers(Packed.place(&free, Need::of(3))), [1, 2, 3]);
        assert_eq!(numbers(Packed.place(&free, Need::of(4))), [8, 9, 10, 11]);
        assert_eq!(numbers(Packed.place(&free, Need::of(6))), [8, 9, 10, 11, 6, 7]);
        assert_eq!(numbers(Packed.place(&free, Need::of(13))).len(), 13);
        assert_eq!(Packed.place(&free, Need::of(14)), None);
    }

    #[test]
    fn fewest_hosts_strands_what_does_not_suffice() {
        let mut free = FreeSet::new(8, 4);
        free.take(&[EndpointId(0), EndpointId(4)]);
        assert_eq!(fewest_hosts(&free, 4), None);
        assert_eq!(numbers(fewest_hosts(&free, 3)), [1, 2, 3]);
    }
}
