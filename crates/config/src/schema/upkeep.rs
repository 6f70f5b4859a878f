//! What fails, is drained and is kept back; and what jobs do about it.

use schemars::JsonSchema;
use serde::Deserialize;
use windtunnel_cluster::faults::{Class, Leave};

use super::name::Name;
use super::quantity::{CalendarSpan, Duration, Rate, Size};

/// What fails: exactly one of the keys `class`, `like` and `log`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// All components of a class.
    #[serde(default)]
    #[schemars(with = "Option<Name<Class>>")]
    pub class: Option<String>,
    /// Mean time between the faults of one component, from the end of a repair.
    #[serde(default)]
    pub mtbf: Option<CalendarSpan>,
    /// How the time to a fault is distributed.
    #[serde(default)]
    pub distribution: LifetimeName,
    /// Shape of `weibull`: below 1 failures get rarer with age, above 1 more frequent.
    #[serde(default)]
    pub shape: Option<f64>,
    /// Of `cable` only those of NICs.
    #[serde(default)]
    pub access: bool,
    /// Published rates by cause: a sheet of `data/faults`, such as `llama3`.
    #[serde(default)]
    pub like: Option<String>,
    /// Factor of those rates.
    #[serde(default)]
    pub scale: Option<f64>,
    /// A CSV file with the columns `time_s`, `component` (`host3`, `host3/gpu1`, `host3/nic0`, `leaf0`, `leaf0 -> spine1`,
    /// `rack2`, `pod0`, `software host3/gpu1`) and `repair_s`.
    #[serde(default)]
    pub log: Option<String>,
    /// Leave out rows of the log with holes.
    #[serde(default)]
    pub lenient: bool,
    /// Mean time of a repair; with `like` in place of the sheet's. Software needs none.
    #[serde(default)]
    pub repair: Option<CalendarSpan>,
    /// How the time of a repair is distributed.
    #[serde(default)]
    pub repair_distribution: RepairName,
    /// Coefficient of variation of `lognormal` repairs; 1 if left out.
    #[serde(default)]
    pub repair_cv: Option<f64>,
}

/// Distribution of the time to a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LifetimeName {
    /// Without memory.
    #[default]
    Exponential,
    /// By age, with a `shape`.
    Weibull,
}

/// Distribution of the time of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepairName {
    /// Always the mean.
    #[default]
    Fixed,
    /// Without memory.
    Exponential,
    /// Mostly short, at times very long.
    Lognormal,
}

/// A part that is taken out of service for a while.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceWindow {
    /// What: a host, GPU, NIC, switch, cable, rack or pod by name, as in a log of faults.
    pub part: String,
    /// When it begins.
    pub at: CalendarSpan,
    /// How long it lasts.
    #[serde(rename = "for")]
    pub lasts: CalendarSpan,
    /// Nothing new is placed there from so long before.
    #[serde(default = "at_once")]
    pub notice: CalendarSpan,
    /// What becomes of the jobs there.
    #[serde(default)]
    pub jobs: Name<Leave>,
}

const fn at_once() -> CalendarSpan {
    CalendarSpan(0)
}

/// Hosts kept back until others fail: the last ones of the cluster.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpareHosts {
    /// How many.
    pub hosts: u32,
    /// How long it takes until one is ready: cold spares. At once if left out: hot ones.
    #[serde(default = "at_once")]
    pub delay: CalendarSpan,
}

/// Hosts that hold data and compute nothing: their GPUs are no job's, and counted nowhere.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageHosts {
    /// Which, such as `[host62, host63]`.
    pub hosts: Vec<String>,
    /// How fast each of them reads; as fast as its NICs send if left out, or more than they do.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// What a GPU asks for at a time, while another such request is on its way.
    #[serde(default = "request")]
    pub request: Size,
}

const fn request() -> Size {
    Size(windtunnel_kernel::Bytes::new(64 << 20))
}

/// Checkpoints of a job: `every` or `iterations`, and `write`, or `bytes` and `rate`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointRule {
    /// Time of work between two.
    #[serde(default)]
    pub every: Option<CalendarSpan>,
    /// Iterations between two.
    #[serde(default)]
    pub iterations: Option<u64>,
    /// Time of a write, in which the job does not work.
    #[serde(default)]
    pub write: Option<CalendarSpan>,
    /// What the job writes, all its ranks together.
    #[serde(default)]
    pub bytes: Option<Size>,
    /// How fast it writes.
    #[serde(default)]
    pub rate: Option<Rate>,
}

/// What a job pays on its way, as it is written of it, or of its source.
#[derive(Clone, Copy, Debug)]
pub struct Dues<'a> {
    /// To save its work; nothing, and an interruption costs all of it, if left out.
    pub checkpoint: Option<&'a CheckpointRule>,
    /// When it goes on after it was stopped or interrupted; `cluster.restart` if left out.
    pub restart: Option<Duration>,
    /// Before it first starts.
    pub data: Option<&'a DataRule>,
}

/// How many GPUs a job can do with. At job fidelity fewer make it slower in proportion; with a network a job that trains a
/// `model` is laid out anew, over fewer or more data-parallel replicas and the same global batch.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElasticRule {
    /// The fewest.
    pub min: u32,
    /// The most; those that it asks for if left out.
    #[serde(default)]
    pub max: Option<u32>,
}

/// How many GPUs each job of a source can do with, relative to those that it asks for.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElasticShares {
    /// Share that suffices, above 0 and at most 1; the number is rounded up.
    pub min: f64,
    /// Multiple that is of use, 1 or more; the number is rounded down, and no more than there are.
    #[serde(default = "as_asked")]
    pub max: f64,
}

const fn as_asked() -> f64 {
    1.0
}

/// What a job loads before it starts: from storage hosts over the network, or at a `rate`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataRule {
    /// How much, all its ranks together.
    pub bytes: Size,
    /// The storage hosts that have it, such as `[host62, host63]`; all of `cluster.storage` if left out, and no `rate` given.
    #[serde(default)]
    pub from: Option<Vec<String>>,
    /// How fast, whoever else loads: no network is asked.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// The region where it is already: a job that starts there loads nothing.
    #[serde(default)]
    pub region: Option<u32>,
}
