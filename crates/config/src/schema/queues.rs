//! Data queues and pauses of switches, as they are written.

use schemars::JsonSchema;
use serde::Deserialize;
use windtunnel_fabric::packet::{Color, PfcSettings};
use windtunnel_workload::Dimension;

use super::{Duration, Ecn, Name, Rate, Size};

/// A data queue of every port of every switch.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// What it is called in messages.
    pub name: String,
    /// Traffic that it takes; what no queue names goes to the first one.
    #[serde(default)]
    pub classes: Vec<Name<Dimension>>,
    /// Queues of higher priority go first.
    #[serde(default)]
    pub priority: u8,
    /// Share among queues of equal priority (`wrr`, `dwrr`).
    #[serde(default = "one")]
    pub weight: u32,
    /// It sends at no more than this rate (token bucket); no limit if left out.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Depth of the token bucket; two packets if left out.
    #[serde(default)]
    pub burst: Option<Size>,
    /// Buffer kept for it at each port; of a lossless queue at each ingress.
    #[serde(default)]
    pub reserve: Option<Size>,
    /// Its own dynamic threshold; that of the buffer if left out.
    #[serde(default)]
    pub alpha: Option<f64>,
    /// Whether `pfc` pauses it, rather than that it drops.
    #[serde(default = "yes")]
    pub lossless: bool,
    /// Its own marking; `network.ecn` if left out.
    #[serde(default)]
    pub ecn: Option<Ecn>,
    /// It drops at random as it grows (WRED), for traffic that heeds no marks.
    #[serde(default)]
    pub red: Option<DropProfile>,
    /// Profiles of its own for packets of a color; the queue's `ecn` and `red` where they are left out.
    #[serde(default)]
    pub colors: ColorProfiles,
    /// Colors its packets by what each NIC has sent of them, at the switch that the NIC is cabled to; without, they keep the
    /// color of their traffic (`network.colors`).
    #[serde(default)]
    pub meter: Option<Meter>,
}

/// Profiles by color.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ColorProfiles {
    /// Of green packets.
    pub green: ColorProfile,
    /// Of yellow packets.
    pub yellow: ColorProfile,
    /// Of red packets.
    pub red: ColorProfile,
}

/// What packets of a color meet in a queue.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ColorProfile {
    /// Marking.
    pub ecn: Option<Ecn>,
    /// Drops at random.
    pub red: Option<DropProfile>,
}

/// A meter: with `ebs` that of RFC 2697 (single rate), with `pir` and `pbs` that of RFC 2698 (two rates).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Meter {
    /// Committed rate.
    pub cir: Rate,
    /// Committed burst.
    pub cbs: Size,
    /// Excess burst.
    #[serde(default)]
    pub ebs: Option<Size>,
    /// Peak rate.
    #[serde(default)]
    pub pir: Option<Rate>,
    /// Peak burst.
    #[serde(default)]
    pub pbs: Option<Size>,
}

/// The color of a job's traffic by what it is sent for; green where it is left out.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClassColors {
    /// Tensor parallelism.
    pub tp: Name<Color>,
    /// Context parallelism.
    pub cp: Name<Color>,
    /// Expert parallelism.
    pub ep: Name<Color>,
    /// Pipeline parallelism.
    pub pp: Name<Color>,
    /// Data parallelism.
    pub dp: Name<Color>,
    /// Anything else.
    pub other: Name<Color>,
}

/// How a queue drops at random as it grows. Sizes hold for a port of `rate` and grow in proportion.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DropProfile {
    /// Rate of a port that the sizes are for.
    #[serde(default = "rate")]
    pub rate: Rate,
    /// No packet is dropped up to here.
    pub kmin: Size,
    /// Every packet is dropped above.
    pub kmax: Size,
    /// Probability at `kmax`.
    #[serde(default = "certain")]
    pub pmax: f64,
}

/// Priority flow control (IEEE 802.1Qbb): a switch pauses the senders of a lossless queue before it must drop.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pfc {
    /// An ingress that holds so many bytes pauses its sender; a share of what is free (`alpha`) if left out.
    pub xoff: Option<Size>,
    /// The same as so many times what is free of the shared buffer. If neither is given: 0.125.
    pub alpha: Option<f64>,
    /// It resumes it when it holds no more than this.
    pub xon: Option<Size>,
    /// The same as so much below xoff. If neither is given: two packets.
    pub xon_offset: Option<Size>,
    /// Buffer of each ingress for what is under way when it pauses its sender; sized from its cable if left out.
    pub headroom: Option<Size>,
    /// From a pause frame's arrival to its effect, beside the switch's own latency. IEEE 802.3 allows 905 × 512 bit times at
    /// 400 Gbps (1,158 ns).
    pub response: Duration,
    /// Size of a pause frame.
    pub frame: Size,
    /// A queue that has been paused for so long drops what waits and comes until it is resumed; never if left out.
    pub watchdog: Option<Duration>,
    /// A queue that has been paused for so long has it looked up whether pauses wait for one another in a cycle, which
    /// ends the run.
    pub deadlock_after: Duration,
}

impl Default for Pfc {
    /// As the engine's: thresholds and headroom that are left out go by the size of packets, ports and cables.
    fn default() -> Self {
        let PfcSettings { response, frame, patience, watchdog, .. } = PfcSettings::default();
        Self {
            xoff: None,
            alpha: None,
            xon: None,
            xon_offset: None,
            headroom: None,
            response: Duration(response),
            frame: Size(frame),
            watchdog: watchdog.map(Duration),
            deadlock_after: Duration(patience),
        }
    }
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

const fn certain() -> f64 {
    1.0
}

const fn rate() -> Rate {
    Rate(windtunnel_kernel::BitRate::from_gbps(400))
}

/// When a packet is cut to its header, which goes on before all data.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Trimming {
    /// Bytes of data that each port (with `queues`: each of its queues) of a switch may hold; if left out, what the shared
    /// buffer allows.
    pub queue: Option<Size>,
    /// Rate of a port that `queue` is for; it grows in proportion. The same for all ports if left out.
    pub rate: Option<Rate>,
}
