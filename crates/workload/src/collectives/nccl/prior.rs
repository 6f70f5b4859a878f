//! NCCL's own constants: latencies in microseconds, bandwidths in GB/s, as in `tuning.cc` of a version.

use super::{Algorithm, Architecture, Protocol, Version};

/// [LL, LL128, Simple].
pub(super) type ByProtocol = [f64; 3];

/// Where a hop goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// Scale-up link.
    NvLink,
    /// PCIe inside the host.
    Pci,
    /// Network.
    Net,
}

/// `baseLatencies`: what a collective costs before its first hop.
pub(super) fn base(algorithm: Algorithm, version: Version) -> ByProtocol {
    use Algorithm as A;
    let early = !version.since(18, 0);
    match algorithm {
        A::Tree if early => [4.4, 4.4, 0.0],
        A::Ring if early => [3.6, 10.0, 8.4],
        A::Tree => [6.8, 14.0, if version.since(23, 0) { 8.4 } else { 0.0 }],
        A::Ring => [6.6, 14.0, 8.4],
        A::Pat => [8.0, 8.0, 8.0],
        A::Nvls if early => [0.0, 0.0, 40.0],
        A::Nvls | A::NvlsTree if !version.since(19, 0) => [0.0, 0.0, 23.0],
        _ => [0.0; 3],
    }
}

/// Whether trees under Simple are believed to be slow: 28 us a hop of whatever kind, from 2.19 to 2.22 and up to 2.18.1.
const fn doubts_trees(version: Version) -> bool {
    !version.since(18, 3) || version.since(19, 0) && !version.since(23, 0)
}

/// `hwLatencies`: what a hop costs.
pub(super) fn hop(hop: Hop, algorithm: Algorithm, version: Version) -> ByProtocol {
    use Algorithm as A;
    let early = !version.since(18, 0);
    let tree = |known| if doubts_trees(version) { 28.0 } else { known };
    let sums = match () {
        () if !version.since(19, 0) => 0.0,
        () if !version.since(21, 0) => 23.0,
        () => 25.0,
    };
    match (hop, algorithm) {
        (Hop::NvLink, A::Tree) => [if early { 0.52 } else { 0.6 }, 1.25, tree(4.0)],
        (Hop::NvLink, A::Ring) => [if early { 0.47 } else { 0.6 }, 1.9, 3.4],
        (Hop::NvLink | Hop::Pci, A::CollnetDirect) => [0.0, 0.0, 3.7],
        (Hop::NvLink | Hop::Pci, A::CollnetChain) => [0.0, 0.0, 2.8],
        (Hop::NvLink, A::Nvls | A::NvlsTree) => [0.0, 0.0, sums],
        (Hop::Pci, A::Tree) => [1.0, 1.9, tree(if version.since(23, 0) { 4.0 } else { 6.0 })],
        (Hop::Pci, A::Ring) => [1.0, 2.5, 5.7],
        (Hop::NvLink | Hop::Pci, A::Pat) => [0.0, 0.0, 4.0],
        (Hop::Net, A::Tree) => [5.0, 8.5, tree(14.0)],
        (Hop::Net, A::Ring) => [2.7, 4.0, if early { 9.6 } else { 14.0 }],
        (Hop::Net, A::CollnetDirect) => [0.0, 0.0, 31.0],
        (Hop::Net, A::CollnetChain) => [0.0, 0.0, 30.0],
        (Hop::Net, A::Nvls) => [0.0, 0.0, 18.0],
        (Hop::Net, A::NvlsTree) => [0.0, 0.0, 20.9],
        (Hop::Net, A::Pat) => [0.0, 0.0, 14.0],
        _ => [0.0; 3],
    }
}

/// Generation as a version's tables know it: the first ones take what is not Ampere for Volta.
const fn known(architecture: Architecture, version: Version) -> Architecture {
    match architecture {
        Architecture::Hopper | Architecture::Blackwell if !version.since(18, 0) => Architecture::Volta,
        Architecture::Blackwell if !version.since(25, 0) => Architecture::Hopper,
        other => other,
    }
}

/// GB/s of a channel between hosts that the search tries, the highest first (`search.cc`).
pub(super) fn speed(architecture: Architecture, most: f64) -> f64 {
    const EARLY: &[f64] = &[
        48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.4, 1.2, 0.24,
        0.12,
    ];
    const HOPPER: &[f64] =
        &[48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24, 0.12];
    const BLACKWELL: &[f64] = &[
        96.0, 86.0, 80.0, 48.0, 45.1, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4,
        1.2, 0.24, 0.12,
    ];
    let tried = match architecture {
        Architecture::Volta | Architecture::Ampere => EARLY,
        Architecture::Hopper => HOPPER,
        Architecture::Blackwell => BLACKWELL,
    };
    tried.iter().copied().find(|&speed| speed <= most).unwrap_or(0.12)
}

/// Share of a ring's bandwidth that LL is believed to reach.
pub(super) fn ring_ll_share(version: Version, several_domains: bool, sums: bool) -> f64 {
    match () {
        () if version.since(21, 0) => 0.5,
        () if several_domains || sums => 0.25,
        () => 1.0 / 3.0,
    }
}

/// Index of the columns of bandwidths: one host, two, more.
const fn column(domains: u32) -> usize {
    match domains {
        0 | 1 => 0,
        2 => 1,
        _ => 2,
    }
}

/// `llMaxBws`: by generation inside one domain; between hosts what the processor lets through counts (`tuning.cc`: the
/// second row for AMD's, else the first).
pub(super) fn ll_most(architecture: Architecture, amd: bool, domains: u32, version: Version) -> f64 {
    const ROWS: [[f64; 3]; 4] =
        [[39.0, 39.0, 20.4], [87.7, 22.5, 19.0], [141.0, 45.0, 35.0], [282.0, 90.0, 70.0]];
    let row = match known(architecture, version) {
        _ if domains > 1 => usize::from(amd),
        Architecture::Volta => 0,
        Architecture::Ampere => 1,
        Architecture::Hopper if !version.since(21, 0) => 1,
        Architecture::Hopper => 2,
        Architecture::Blackwell => 3,
    };
    ROWS[row][column(domains)]
}

/// `perChMaxRingLL128Bws`.
pub(super) fn ring_ll128_per_channel(architecture: Architecture, version: Version) -> f64 {
    match known(architecture, version) {
        Architecture::Volta | Architecture::Ampere => 20.0,
        Architecture::Hopper => 36.7,
        Architecture::Blackwell => 40.0,
    }
}

/// `perChMaxTreeLL128Bws`.
pub(super) fn tree_ll128_per_channel(architecture: Architecture, domains: u32, version: Version) -> f64 {
    let by = match known(architecture, version) {
        Architecture::Volta | Architecture::Ampere => [20.0, 20.0, 20.0],
        Architecture::Hopper => [36.7, 36.7, if version.since(18, 3) { 29.0 } else { 36.7 }],
        Architecture::Blackwell => [55.6, 31.67, 20.0],
    };
    by[column(domains)]
}

/// `perChMaxTreeBws`.
pub(super) fn tree_per_channel(architecture: Architecture, domains: u32, version: Version) -> f64 {
    let by = match known(architecture, version) {
        Architecture::Volta => [26.5, 18.5, 10.0],
        Architecture::Ampere => [24.0, 23.6, 17.8],
        Architecture::Hopper => [38.7, 41.4, if version.since(18, 3) { 36.0 } else { 33.0 }],
        Architecture::Blackwell => [70.0, 42.8, 24.0],
    };
    by[column(domains)]
}

/// `nvlsEfficiency`.
pub(super) fn nvls_efficiency(architecture: Architecture) -> f64 {
    match architecture {
        Architecture::Blackwell => 0.74,
        _ => 0.85,
    }
}

/// What the tuner takes off a tree's bandwidth: `treeCorrectionFactor` by powers of two from 64 B.
pub(super) fn tree_correction(protocol: Protocol, bytes: u64) -> f64 {
    const LL: [u8; 24] = [10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10];
    const LL128: [u8; 24] = [10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10, 10];
    const SIMPLE: [u8; 24] = [9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9, 9];
    let at = (bytes >> 6).max(1).ilog2() as usize;
    let by = match protocol {
        Protocol::LL => LL,
        Protocol::LL128 => LL128,
        Protocol::Simple => SIMPLE,
    };
    by.get(at).map_or(1.0, |&tenths| f64::from(tenths) / 10.0)
}
