//! Free GPUs drawn, as a scheduler without an eye for the fabric gives them.

use rustc_hash::FxHashSet;
use windtunnel_kernel::registry::Entry;
use windtunnel_kernel::{EndpointId, RandomStream};

use super::{BuiltIn, Need, Placement};
use crate::free::FreeSet;

/// Each set of free GPUs with equal chance, drawn from the job's key.
#[derive(Clone, Copy, Debug)]
pub struct Random;

pub(super) const RANDOM: BuiltIn =
    BuiltIn { entry: Entry::new("random", "free GPUs drawn by job"), placement: &Random };

impl Placement for Random {
    fn name(&self) -> &'static str {
        RANDOM.entry.name
    }

    fn fits_by_count(&self) -> bool {
        true
    }

    fn anywhere(&self, free: &FreeSet, need: Need) -> Option<Vec<EndpointId>> {
        if free.count() < need.gpus {
            return None;
        }
        let mut stream = RandomStream::new(need.key, "placement", 0);
        // A try hits with the chance that a GPU is free and not drawn yet.
        let spare = free.count() - need.gpus;
        if spare >= free.total() / 8 {
            let mut drawn = FxHashSet::default();
            let mut found = Vec::with_capacity(need.gpus as usize);
            while found.len() < need.gpus as usize {
                let gpu = stream.below(u64::from(free.total())) as u32;
                let (host, local) = (gpu / free.per_host(), gpu % free.per_host());
                if free.is_free(host, local) && drawn.insert(gpu) {
                    found.push(free.endpoint(host, local));
                }
            }
            return Some(found);
        }
        let mut all: Vec<EndpointId> = free.iter().collect();
        for place in 0..need.gpus as usize {
            let other = place + stream.below((all.len() - place) as u64) as usize;
            all.swap(place, other);
        }
        all.truncate(need.gpus as usize);
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_even_and_keyed() {
        let mut free = FreeSet::new(16, 4);
        free.take(&[EndpointId(3), EndpointId(9)]);
        for gpus in [2, 13] {
            let mut hits = [0u32; 16];
            for key in 0..4_000 {
                let need = Need { key, ..Need::of(gpus) };
                let found = Random.place(&free, need).expect("14 are free");
                assert_eq!(Random.place(&free, need).as_ref(), Some(&found));
                for gpu in &found {
                    hits[gpu.0 as usize] += 1;
                }
            }
            assert_eq!((hits[3], hits[9]), (0, 0));
            let mean = 4_000.0 * f64::from(gpus) / 14.0;
            // Five standard deviations of a binomial.
            let bound = 5.0 * windtunnel_kernel::math::sqrt(mean * (1.0 - f64::from(gpus) / 14.0));
            for (gpu, &hit) in hits.iter().enumerate().filter(|(gpu, _)| ![3, 9].contains(gpu)) {
                assert!((f64::from(hit) - mean).abs() < bound, "{gpus} GPU {gpu}: {hit} of {mean}");
            }
        }
    }
}
