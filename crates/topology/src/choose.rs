//! The choice among equal-cost ports: one pure function, used by every fidelity, the command line and the C library.
//!
//! The mixer is `windtunnel_kernel::random::combine` (the SplitMix64 finaliser, Stafford's variant 13), folded over
//! seed, source NIC, destination NIC and entropy, in this order; the switch comes last, so that the first four are
//! hashed once a route ([`flow_hash`]). Every switch draws anew, so choices at successive tiers are independent (no
//! hash polarisation). The 64 bits are reduced to `n` by multiply-shift (Lemire, "Fast random integer generation in an
//! interval", TOMACS 2019): the bias is below n / 2^64.
//!
//! A flow hash may also be that of another family ([`EcmpHash`](crate::EcmpHash)): it then carries a mark in its upper 24 bits, by
//! which every function here knows it, and the mixer's own hashes never have that mark.
//!
//! The known answers of the tests come from an independent implementation; a change of them is a change of every
//! hashed path.

use windtunnel_kernel::mix64;
use windtunnel_kernel::random::{combine, combine_scattered, scatter};

use crate::hash::{choose_tagged, is_tagged, untagged};

/// The part of a choice that all switches of a route share.
#[inline]
pub const fn flow_hash(seed: u64, src_nic: u64, dst_nic: u64, entropy: u32) -> u64 {
    untagged(combine(combine(combine(mix64(seed), src_nic), dst_nic), entropy as u64))
}

/// The choice of `switch` among `n` equal ports for a flow of the given [`flow_hash`], in 0..n.
#[inline]
pub const fn choose_hashed(flow_hash: u64, switch: u64, n: u32) -> u32 {
    draw(flow_hash, switch, n as u64) as u32
}

/// What chooses a plane, in place of a switch number: the sending NIC.
const PLANE: u64 = u64::MAX;

/// The plane that a sending NIC takes for a flow of the given [`flow_hash`], of `n`: no switch's choice, and so a draw of the mixer
/// whatever family switches hash by.
#[inline]
pub(crate) const fn choose_plane(flow_hash: u64, n: u32) -> u32 {
    multiply_shift(combine(flow_hash, PLANE), n as u64) as u32
}

/// The choice of `switch` from 0..n.
#[inline]
const fn draw(flow_hash: u64, switch: u64, n: u64) -> u64 {
    if is_tagged(flow_hash) {
        return choose_tagged(flow_hash, scatter(switch), n);
    }
    multiply_shift(combine(flow_hash, switch), n)
}

/// The same, given `scatter(switch)` of the kernel's hash.
#[inline]
pub(crate) const fn choose_scattered(flow_hash: u64, switch: u64, n: u32) -> u32 {
    if is_tagged(flow_hash) {
        return choose_tagged(flow_hash, switch, n as u64) as u32;
    }
    multiply_shift(combine_scattered(flow_hash, switch), n as u64) as u32
}

/// The choice of `switch` among `n` equal ports, in 0..n (0 if `n` is 0): a pure function of its arguments.
///
/// NICs are counted over the whole cluster; `entropy` stands for (job, communicator, channel, queue pair).
#[inline]
pub const fn choose(seed: u64, switch: u64, src_nic: u64, dst_nic: u64, entropy: u32, n: u32) -> u32 {
    choose_hashed(flow_hash(seed, src_nic, dst_nic, entropy), switch, n)
}

/// The choice of `switch` among ports with weights, given as their running sums: port i is chosen with probability
/// (`cumulative[i]` - `cumulative[i-1]`) / last. With unit weights it equals [`choose`].
///
/// # Panics
/// If `cumulative` is empty or ends in zero; it must not decrease.
#[inline]
pub fn choose_weighted(
    seed: u64,
    switch: u64,
    src_nic: u64,
    dst_nic: u64,
    entropy: u32,
    cumulative: &[u64],
) -> u32 {
    choose_weighted_hashed(flow_hash(seed, src_nic, dst_nic, entropy), switch, cumulative)
}

/// [`choose_weighted`] for a flow of the given [`flow_hash`].
///
/// # Panics
/// As [`choose_weighted`].
#[inline]
pub fn choose_weighted_hashed(flow_hash: u64, switch: u64, cumulative: &[u64]) -> u32 {
    let total = *cumulative.last().expect("a choice needs at least one port");
    assert!(total > 0, "a choice needs a port with a weight");
    let draw = draw(flow_hash, switch, total);
    cumulative.partition_point(|&sum| sum <= draw) as u32
}

/// Maps 64 random bits to 0..n.
#[inline]
const fn multiply_shift(bits: u64, n: u64) -> u64 {
    ((bits as u128 * n as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by an independent implementation (arbitrary-precision integers, masked to 64 bits).
    #[test]
    fn known_answers() {
        let n = [1, 2, 32, 1000, u32::MAX];
        type Arguments = (u64, u64, u64, u64, u32);
        let cases: [(Arguments, u64, [u32; 5]); 8] = [
            ((0, 0, 0, 0, 0), 0x2ec2_d802_8324_a300, [0, 0, 5, 182, 784521218]),
            ((1, 0, 0, 1, 0), 0x7d77_887f_6e44_a29a, [0, 0, 15, 490, 2104985726]),
            ((1, 7, 1000, 2000, 3), 0xbe9e_f3f4_f603_7211, [0, 1, 23, 744, 3198088180]),
            ((2, 7, 1000, 2000, 3), 0xd606_0403_777f_3c3d, [0, 1, 26, 836, 3590718466]),
            ((1, 8, 1000, 2000, 3), 0x2311_ef55_c4a1_a891, [0, 0, 4, 136, 588377941]),
            ((1, 7, 2000, 1000, 3), 0x8b0b_4149_8d45_6fa7, [0, 1, 17, 543, 2332770633]),
            ((1, 7, 1000, 2000, 4), 0x917f_44cd_9de0_a7d7, [0, 1, 18, 568, 2441037005]),
            (
                (u64::MAX, u64::MAX, u64::MAX, u64::MAX, u32::MAX),
                0xf0c4_f109_975e_1580,
                [0, 1, 30, 940, 4039438600],
            ),
        ];
        for ((seed, switch, src, dst, entropy), bits, answers) in cases {
            assert_eq!(combine(flow_hash(seed, src, dst, entropy), switch), bits);
            assert_eq!(n.map(|n| choose(seed, switch, src, dst, entropy, n)), answers);
        }
    }

    /// Chi-squared over 64 ports: mean 63, standard deviation 11.2.
    #[test]
    fn choices_are_uniform_and_independent_between_switches() {
        let flows = 64_000u32;
        let mut ports = [0u32; 64];
        let mut pairs = [0u32; 64];
        for flow in 0..flows {
            ports[choose(1, 5, u64::from(flow % 250), u64::from(flow / 250), 0, 64) as usize] += 1;
            let (first, second) = (choose(1, 5, 1, 2, flow, 8), choose(1, 6, 1, 2, flow, 8));
            pairs[(first * 8 + second) as usize] += 1;
        }
        for counts in [ports, pairs] {
            let expected = f64::from(flows) / 64.0;
            let square = |n: u32| (f64::from(n) - expected) * (f64::from(n) - expected);
            let chi: f64 = counts.iter().map(|&n| square(n) / expected).sum();
            assert!((25.0..110.0).contains(&chi), "{chi}");
        }
    }

    #[test]
    fn weights_are_kept_and_unit_weights_are_the_plain_choice() {
        let units: Vec<u64> = (1..=17).collect();
        let mut counts = [0u32; 3];
        for entropy in 0..40_000 {
            assert_eq!(choose_weighted(3, 1, 2, 9, entropy, &units), choose(3, 1, 2, 9, entropy, 17));
            counts[choose_weighted(3, 1, 2, 9, entropy, &[1, 1, 4]) as usize] += 1;
        }
        assert_eq!(counts[1], 0, "a port of weight 0 is never chosen");
        assert!((i64::from(counts[0]) - 10_000).abs() < 400, "{counts:?}");
    }
}
