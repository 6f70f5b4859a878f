//! Which thread holds which process.
//!
//! The load of a process is the number of events it handled and mail it took, decayed by half at every look: it is known
//! for nothing, and unlike a clock on a shared machine it tells the work and not the neighbours. Processes are moved
//! when the busiest thread has had more than 9/8 of a fair share and a new deal, longest first to the least loaded
//! thread (Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 17(2), 1969: at most 4/3 of the
//! best), would take at least a twentieth off the busiest. No result depends on it.

/// Windows between two looks.
const PERIOD: u64 = 64;

/// The first look comes early: the first deal knows no loads.
const FIRST: u64 = 8;

/// Whether loads are looked at after `windows` windows.
pub(super) fn due(windows: u64) -> bool {
    windows == FIRST || windows.is_multiple_of(PERIOD)
}

/// Thread of each process before anything is known: neighbours together, as partitions number them.
pub(super) fn first_deal(processes: usize, threads: usize) -> Vec<u32> {
    (0..processes).map(|process| (process * threads / processes) as u32).collect()
}

/// A better deal of processes with `loads` than `owners`, if it is worth moving.
pub(super) fn redeal(loads: &[u64], owners: &[u32], threads: usize) -> Option<Vec<u32>> {
    let now = busiest(loads, owners, threads);
    let total: u64 = loads.iter().sum();
    if now * threads as u64 * 8 <= total * 9 {
        return None;
    }
    let better = deal(loads, owners, threads);
    (busiest(loads, &better, threads) * 20 <= now * 19).then_some(better)
}

/// Longest processing time first; among equally loaded threads the one that has the process now.
fn deal(loads: &[u64], owners: &[u32], threads: usize) -> Vec<u32> {
    let mut order: Vec<usize> = (0..loads.len()).collect();
    order.sort_by_key(|&process| std::cmp::Reverse(loads[process]));
    let mut sums = vec![0u64; threads];
    let mut better = owners.to_vec();
    for process in order {
        let thread = (0..threads)
            .min_by_key(|&thread| (sums[thread], thread != owners[process] as usize))
            .expect("there is a thread");
        sums[thread] += loads[process];
        better[process] = thread as u32;
    }
    better
}

/// Load of the busiest thread.
fn busiest(loads: &[u64], owners: &[u32], threads: usize) -> u64 {
    let mut sums = vec![0u64; threads];
    for (load, &owner) in loads.iter().zip(owners) {
        sums[owner as usize] += load;
    }
    sums.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn balanced_processes_stay() {
        assert_eq!(redeal(&[10, 10, 10, 10], &[0, 0, 1, 1], 2), None);
        assert_eq!(redeal(&[11, 10, 10, 10], &[0, 0, 1, 1], 2), None);
        // One process is the whole load: nothing to gain.
        assert_eq!(redeal(&[100, 0, 0, 0], &[0, 0, 1, 1], 2), None);
        assert_eq!(redeal(&[0, 0], &[0, 0], 2), None);
    }

    #[test]
    fn drifted_processes_move() {
        assert_eq!(redeal(&[30, 30, 1, 1], &[0, 0, 1, 1], 2), Some(vec![0, 1, 1, 0]));
        assert_eq!(first_deal(5, 2), [0, 0, 0, 1, 1]);
        assert_eq!(first_deal(2, 2), [0, 1]);
    }

    proptest! {
        /// Graham's bound, against what no deal can beat: the mean and the longest process.
        #[test]
        fn a_deal_is_within_the_bound(loads in prop::collection::vec(0..1000u64, 1..40), threads in 1..6usize, seed: u64) {
            let owners: Vec<u32> =
                (0..loads.len() as u64).map(|p| (crate::mix64(seed ^ p) % threads as u64) as u32).collect();
            let dealt = deal(&loads, &owners, threads);
            let total: u64 = loads.iter().sum();
            let longest = *loads.iter().max().unwrap();
            // List scheduling: the last process on the busiest thread began before the mean.
            let most = busiest(&loads, &dealt, threads);
            prop_assert!(most <= total.div_ceil(threads as u64) + longest);
            prop_assert!(most >= longest.max(total.div_ceil(threads as u64)));
            if let Some(better) = redeal(&loads, &owners, threads) {
                prop_assert!(busiest(&loads, &better, threads) < busiest(&loads, &owners, threads));
            }
        }
    }
}
