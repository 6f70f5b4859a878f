//! Published thresholds of marking, each for the speed of its paper and in proportion for others.

use windtunnel_kernel::registry::Entry;

/// Thresholds of one source.
#[derive(Debug, PartialEq)]
pub struct EcnProfile {
    /// Its name and a line about it.
    pub entry: Entry,
    /// Rate of the port that they are for.
    pub gbps: u64,
    /// Bytes up to which no packet is marked.
    pub kmin: u64,
    /// Bytes above which every packet is marked.
    pub kmax: u64,
    /// Probability there.
    pub pmax: f64,
}

const STANDARD: EcnProfile = EcnProfile {
    entry: Entry::new("standard", "from 150 KB to 450 KB at 400 Gbps, all at the end: 3 to 9 us of queue"),
    gbps: 400,
    kmin: 150_000,
    kmax: 450_000,
    pmax: 1.0,
};

const DCQCN: EcnProfile = EcnProfile {
    entry: Entry::new(
        "dcqcn",
        "from 5 KB to 200 KB at 40 Gbps, 1% there: Zhu et al., \"Congestion control for large-scale RDMA deployments\", \
         SIGCOMM 2015, deployed parameters",
    ),
    gbps: 40,
    kmin: 5_000,
    kmax: 200_000,
    pmax: 0.01,
};

const HPCC: EcnProfile = EcnProfile {
    entry: Entry::new(
        "hpcc",
        "from 100 KB to 400 KB at 25 Gbps, 20% there, in proportion to the rate: Li et al., \"HPCC\", SIGCOMM 2019, section \
         5.1, and its simulator",
    ),
    gbps: 25,
    kmin: 100_000,
    kmax: 400_000,
    pmax: 0.2,
};

const DCTCP: EcnProfile = EcnProfile {
    entry: Entry::new(
        "dctcp",
        "all above 65 packets of 1,500 B at 10 Gbps: Alizadeh et al., \"Data center TCP (DCTCP)\", SIGCOMM 2010, section 3.4",
    ),
    gbps: 10,
    kmin: 97_500,
    kmax: 97_500,
    pmax: 1.0,
};

impl Default for &EcnProfile {
    fn default() -> Self {
        &STANDARD
    }
}

/// All.
pub(crate) const ECN_PROFILES: [&EcnProfile; 4] = [&STANDARD, &DCQCN, &HPCC, &DCTCP];

windtunnel_kernel::table! { EcnProfile: "profile of marking", ECN_PROFILES }
