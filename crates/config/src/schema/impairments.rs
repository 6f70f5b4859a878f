//! What goes wrong in a network, and what else is on it, as it is written.

use schemars::JsonSchema;
use serde::Deserialize;
use windtunnel_fabric::packet::Partners;

use super::{Duration, Name, Size};

/// What goes wrong on the fabric, and traffic of others. Losses, links that fail in mid-run and background traffic need
/// packet fidelity. Times count from the run's start.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Impairments {
    /// Links that lose packets, each for itself or in bursts.
    pub loss: Vec<LossRule>,
    /// Links with bit errors: a packet with one is lost.
    pub bit_errors: Vec<BitErrorRule>,
    /// Cables and switches that go down in mid-run.
    pub down: Vec<DownRule>,
    /// Cables, or all cables of switches, that slow down in mid-run.
    pub slow: Vec<SlowRule>,
    /// From a link's going down or coming up until every switch knows; the switches at its ends know at once. If left
    /// out: 1 ms.
    pub convergence: Option<Duration>,
    /// Hosts' clocks that are fast or slow: pacing and computations follow them.
    pub drift: Vec<DriftRule>,
    /// Traffic that no job waits for, with the transport of the jobs.
    pub background: Vec<BackgroundRule>,
}

/// One or more links.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a tier, a link, a switch or `all`, or a list of these")]
pub enum Links {
    /// A tier such as `leaf-up` (`nic-up`, `nic-down`, `leaf-down`, …), a link such as `leaf0 -> spine1`, a switch (all
    /// its links, both ways), or `all`.
    One(String),
    /// Several of these.
    Many(Vec<String>),
}

impl Links {
    /// What is named.
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        }
    }
}

/// Links that lose packets.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LossRule {
    /// Which: a tier such as `leaf-up`, a link such as `leaf0 -> spine1` in that direction, a switch, `all`, or a list.
    pub on: Links,
    /// Share of packets lost in the long run.
    pub rate: f64,
    /// Packets in a row that are lost together, on average (Gilbert); if left out, losses know nothing of one another.
    #[serde(default)]
    pub burst: Option<f64>,
}

/// Links with bit errors.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BitErrorRule {
    /// Which: as in `loss`.
    pub on: Links,
    /// Share of bits that are wrong.
    pub rate: f64,
    /// Bad times in which more bits are (Gilbert-Elliott).
    #[serde(default)]
    pub bad: Option<BadTimes>,
}

/// Times in which a link is bad.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BadTimes {
    /// Share of bits that are wrong then.
    pub rate: f64,
    /// Packets from one such time to the next, on average.
    pub every: f64,
    /// Packets that it lasts, on average.
    pub length: f64,
}

/// A part of the fabric that goes down.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DownRule {
    /// A cable such as `leaf0 -> spine1` (both directions) or a switch such as `spine0`, as in `topology.failed`.
    pub part: String,
    /// When.
    pub at: Duration,
    /// When it works again; never if left out.
    #[serde(default)]
    pub until: Option<Duration>,
}

/// A part of the fabric that slows down.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowRule {
    /// A cable such as `leaf0 -> spine1` (both directions) or a switch (all its cables).
    pub part: String,
    /// Part of its rate that is left.
    pub rate: f64,
    /// When.
    pub at: Duration,
    /// When it is as fast as before; never if left out.
    #[serde(default)]
    pub until: Option<Duration>,
}

/// Clocks that drift.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DriftRule {
    /// Host number; all hosts if left out.
    #[serde(default)]
    pub host: Option<u32>,
    /// Parts in a million by which its clock is fast; below 0: slow.
    #[serde(default)]
    pub ppm: Option<f64>,
    /// In place of `ppm`: each host's drift is drawn, evenly between this many parts in a million slow and fast.
    #[serde(default)]
    pub within_ppm: Option<f64>,
}

/// Traffic that no job waits for: flows of drawn sizes that begin as a Poisson process at every NIC.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackgroundRule {
    /// Flow sizes: `websearch`, `fb-hadoop`, `ali-storage`, `vl2`, `homa-w1`, `homa-w2`, `homa-w3`, `homa-w4`, or a file whose lines
    /// have a size in bytes and the share of flows up to it (0 to 1, or in per cent).
    #[serde(default)]
    pub sizes: Option<String>,
    /// In place of `sizes`: all flows are this large.
    #[serde(default)]
    pub bytes: Option<Size>,
    /// Share of each NIC's rate that it sends, headers included.
    pub load: f64,
    /// To whom.
    #[serde(default)]
    pub pairs: Name<Partners>,
    /// When it begins.
    #[serde(default)]
    pub from: Option<Duration>,
    /// When the last flow begins; never if left out.
    #[serde(default)]
    pub until: Option<Duration>,
}
