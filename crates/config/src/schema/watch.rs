//! What is looked at packet by packet.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Duration, Links};

/// Two NICs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairRule {
    /// The sending NIC, such as `host0/nic0`.
    pub from: String,
    /// The receiving NIC.
    pub to: String,
}

/// Queue pairs that are looked at over time, for the table `queue_pairs` (packet fidelity).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairsOverTime {
    /// From one look to the next, such as `1 us`; at least 1 ns.
    pub every: Duration,
    /// Between which NICs: every queue pair between two of them is looked at.
    pub pairs: Vec<PairRule>,
}

/// Packets that are captured, for the table `packets`, of which `windtunnel pcap` makes a file for Wireshark (packet fidelity).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PacketCapture {
    /// Queue pairs between these NICs: their packets, there and back, on every link.
    #[serde(default)]
    pub pairs: Vec<PairRule>,
    /// Links: every packet on them.
    pub on: Option<Links>,
    /// Packets kept at most, the first ones; a warning says how many more there were.
    #[serde(default = "packets")]
    pub limit: u64,
}

const fn packets() -> u64 {
    100_000
}
