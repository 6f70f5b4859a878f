//! NCCL's own constants: latencies in microseconds, bandwidths in GB/s, as in `tuning.cc`.

use super::{Algorithm, Architecture, Protocol};

/// [LL, LL128, Simple].
pub type ByProtocol = [f64; 3];

/// Where a hop goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// Scale-up link.
    NvLink,
    /// PCIe inside the host.
    Pci,
    /// Network.
    Net,
}

/// `baseLatencies`: what a collective costs before its first hop.
pub fn base(algorithm: Algorithm) -> ByProtocol {
    match algorithm {
        Algorithm::Tree => [6.8, 14.0, 8.4],
        Algorithm::Ring => [6.6, 14.0, 8.4],
        Algorithm::Pat => [8.0, 8.0, 8.0],
        _ => [0.0; 3],
    }
}

/// `hwLatencies`: what a hop costs.
pub fn hop(hop: Hop, algorithm: Algorithm) -> ByProtocol {
    use Algorithm as A;
    match (hop, algorithm) {
        (Hop::NvLink, A::Tree) => [0.6, 1.25, 4.0],
        (Hop::NvLink, A::Ring) => [0.6, 1.9, 3.4],
        (Hop::NvLink | Hop::Pci, A::CollnetDirect) => [0.0, 0.0, 3.7],
        (Hop::NvLink | Hop::Pci, A::CollnetChain) => [0.0, 0.0, 2.8],
        (Hop::NvLink, A::Nvls | A::NvlsTree) => [0.0, 0.0, 25.0],
        (Hop::Pci, A::Tree) => [1.0, 1.9, 4.0],
        (Hop::Pci, A::Ring) => [1.0, 2.5, 5.7],
        (Hop::NvLink | Hop::Pci, A::Pat) => [0.0, 0.0, 4.0],
        (Hop::Net, A::Tree) => [5.0, 8.5, 14.0],
        (Hop::Net, A::Ring) => [2.7, 4.0, 14.0],
        (Hop::Net, A::CollnetDirect) => [0.0, 0.0, 31.0],
        (Hop::Net, A::CollnetChain) => [0.0, 0.0, 30.0],
        (Hop::Net, A::Nvls) => [0.0, 0.0, 18.0],
        (Hop::Net, A::NvlsTree) => [0.0, 0.0, 20.9],
        (Hop::Net, A::Pat) => [0.0, 0.0, 14.0],
        _ => [0.0; 3],
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
pub fn ll_most(architecture: Architecture, amd: bool, domains: u32) -> f64 {
    const ROWS: [[f64; 3]; 4] =
        [[39.0, 39.0, 20.4], [87.7, 22.5, 19.0], [141.0, 45.0, 35.0], [282.0, 90.0, 70.0]];
    let row = match architecture {
        _ if domains > 1 => usize::from(amd),
        Architecture::Volta => 0,
        Architecture::Ampere => 1,
        Architecture::Hopper => 2,
        Architecture::Blackwell => 3,
    };
    ROWS[row][column(domains)]
}

/// `perChMaxRingLL128Bws`.
pub fn ring_ll128_per_channel(architecture: Architecture) -> f64 {
    match architecture {
        Architecture::Volta | Architecture::Ampere => 20.0,
        Architecture::Hopper => 36.7,
        Architecture::Blackwell => 40.0,
    }
}

/// `perChMaxTreeLL128Bws`.
pub fn tree_ll128_per_channel(architecture: Architecture, domains: u32) -> f64 {
    let by = match architecture {
        Architecture::Volta | Architecture::Ampere => [20.0, 20.0, 20.0],
        Architecture::Hopper => [36.7, 36.7, 29.0],
        Architecture::Blackwell => [55.6, 31.67, 20.0],
    };
    by[column(domains)]
}

/// `perChMaxTreeBws`.
pub fn tree_per_channel(architecture: Architecture, domains: u32) -> f64 {
    let by = match architecture {
        Architecture::Volta => [26.5, 18.5, 10.0],
        Architecture::Ampere => [24.0, 23.6, 17.8],
        Architecture::Hopper => [38.7, 41.4, 36.0],
        Architecture::Blackwell => [70.0, 42.8, 24.0],
    };
    by[column(domains)]
}

/// `nvlsEfficiency`.
pub fn nvls_efficiency(architecture: Architecture) -> f64 {
    match architecture {
        Architecture::Blackwell => 0.74,
        _ => 0.85,
    }
}

/// What the tuner takes off a tree's bandwidth: `treeCorrectionFactor` by powers of two from 64 B.
pub fn tree_correction(protocol: Protocol, bytes: u64) -> f64 {
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
