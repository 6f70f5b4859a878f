//! Reduction in the network, as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Duration, Rate};

/// Switches that sum what hosts send (`algorithm: in_network`; SHARP, SwitchML).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reduction {
    /// Packets' payloads that a switch can hold sums of. SwitchML uses 512 at 100 Gbps (Sapio et al., NSDI 2021).
    pub slots: u32,
    /// Reductions that a switch takes at once, each with an equal part of the slots; others wait for one to end.
    pub operations: u32,
    /// From the last contribution to its sum, beside the switch's own latency. If left out, that latency once more, as of a
    /// Quantum switch (inferred; makers state none).
    pub latency: Duration,
    /// Rate of payload at which a switch sums; that of its links if left out, as SHARP's streaming aggregation does.
    pub rate: Option<Rate>,
}

impl Default for Reduction {
    fn default() -> Self {
        let windtunnel_fabric::reduction::ReductionSettings { slots, operations, latency, rate } =
            windtunnel_fabric::reduction::ReductionSettings::default();
        Self { slots, operations, latency: Duration(latency), rate: rate.map(Rate) }
    }
}
