//! The fabric as it is written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::quantity::{Duration, Length, Rate};

/// A fabric: a shape with its keys, or `file` alone.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologyFile {
    /// A file whose root is a topology, relative to the scenario's folder; no other key beside it.
    #[serde(default)]
    pub file: Option<String>,
    /// Which shape.
    #[serde(default)]
    pub shape: Option<ShapeName>,
    /// Number of hosts.
    #[serde(default)]
    pub hosts: Option<u32>,
    /// Tiers from the hosts upwards.
    #[serde(default)]
    pub tiers: Vec<ClosTier>,
    /// The hosts.
    #[serde(default)]
    pub host: Option<Host>,
    /// Copies of the switch fabric; each NIC has one port on every plane at an equal part of its rate.
    #[serde(default = "one")]
    pub planes: u32,
    /// Switch constants.
    #[serde(default)]
    pub switch: SwitchSettings,
}

const fn one() -> u32 {
    1
}

/// Which shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShapeName {
    /// Folded Clos of any number of tiers.
    Clos,
}

/// One tier of a Clos; its rate and length are of the links below its switches.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClosTier {
    /// Ports of a switch towards the hosts; at the first tier hosts (with rails) or NICs per leaf.
    pub ports_down: u32,
    /// Capacity below over capacity above a switch; 1 is non-blocking. Has no meaning at the top tier.
    #[serde(default = "unity")]
    pub oversubscription: f64,
    /// Rate of the links below.
    pub rate: Rate,
    /// Cable length of the links below.
    #[serde(default = "no_length")]
    pub length: Length,
    /// Parallel links between a switch and each switch above.
    #[serde(default = "one")]
    pub bundle: u32,
}

const fn unity() -> f64 {
    1.0
}

const fn no_length() -> Length {
    Length(0)
}

/// A host: its GPUs, NICs and scale-up domain.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// GPU data sheet.
    #[serde(default)]
    pub gpu: Option<String>,
    /// GPUs per host.
    #[serde(default = "one")]
    pub gpus: u32,
    /// NICs per host.
    #[serde(default = "one")]
    pub nics: u32,
    /// NIC data sheet.
    #[serde(default)]
    pub nic: Option<String>,
    /// Whether NIC i of every host goes to the leaf of rail i.
    #[serde(default)]
    pub rails: bool,
    /// The links between the GPUs of a host; from the GPU's data sheet if left out.
    #[serde(default)]
    pub scale_up: Option<ScaleUp>,
    /// Time from a message's request to its first byte on the NIC; from the NIC's data sheet if left out.
    #[serde(default)]
    pub overhead: Option<Duration>,
}

/// The scale-up domain (NVLink, NVSwitch, xGMI).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleUp {
    /// Rate of a GPU in each direction.
    pub rate: Rate,
    /// Latency between two GPUs.
    #[serde(default)]
    pub latency: Option<Duration>,
}

/// Switch constants.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchSettings {
    /// Time through a switch without queueing.
    pub latency: Duration,
    /// Propagation delay per metre of cable.
    pub delay_per_metre: Duration,
}

impl Default for SwitchSettings {
    fn default() -> Self {
        Self {
            latency: Duration(windtunnel_kernel::Span::from_ns(500)),
            delay_per_metre: Duration(windtunnel_kernel::Span::from_ns(5)),
        }
    }
}
