//! What a scenario chooses without reference to anything else: keys whose words are the same in the file and in the engine.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;
use windtunnel_kernel::Span;

/// How closely the network is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fidelity {
    /// No network: a job takes iterations × its ideal-fabric iteration time.
    Job,
    /// LogGOPS.
    Message,
    /// Weighted max-min sharing of links.
    Flow,
    /// Every packet.
    Packet,
}

impl Fidelity {
    /// The key's value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Message => "message",
            Self::Flow => "flow",
            Self::Packet => "packet",
        }
    }
}

/// How an all-to-all is simulated at flow fidelity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeName {
    /// As one flow where a bound says that this hardly matters: where all messages have one rate, members come together, and no
    /// other job meets this one. Message by message elsewhere.
    #[default]
    Auto,
    /// Message by message, as its algorithm says.
    Messages,
    /// Whole, whatever it changes: it begins when its last member has come, one flow for each pair of NICs, and ends for all with the last of
    /// them. For jobs of whole hosts with a NIC each these are the flows between hosts of Arcadia.
    Hosts,
}

/// How much of each stretch of constant conditions is simulated.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Episodes {
    /// Iterations simulated after a warm-up one, by the slowest job; the rest go on at their mean.
    pub iterations: u32,
    /// Where jobs meet their iterations differ for good: more are simulated until the time of each job, as far as it depends on
    /// their mean, is off by no more than this part of it, with a confidence of 95%. 1 never asks for more.
    pub tolerance: f64,
    /// Iterations simulated to that end at once, at most; `iterations` if those are more.
    pub max_iterations: u32,
    /// Whether jobs enter an episode at a drawn phase of their iteration or all at once.
    pub phase: Phase,
    /// When the result of an episode is taken for another's (flow fidelity, without variation).
    pub memo: MemoName,
}

/// When the result of an episode is taken for another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoName {
    /// Where simulating it could give nothing else: the same jobs on the same GPUs, or one job on other GPUs of one host.
    #[default]
    Exact,
    /// Also where jobs of the same workloads lie alike over hosts, leaves and pods. An approximation: paths that are
    /// hashed collide elsewhere, and phases differ.
    Symmetric,
    /// Never.
    Off,
}

impl Default for Episodes {
    fn default() -> Self {
        Self {
            iterations: 3,
            tolerance: 0.02,
            max_iterations: 400,
            phase: Phase::Drawn,
            memo: MemoName::Exact,
        }
    }
}

/// Phase at which jobs enter an episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Drawn from (seed, jobs that meet, job) within the job's ideal iteration time, for jobs of short iterations once those of
    /// long ones have entered. A job alone starts at once.
    #[default]
    Drawn,
    /// All at once.
    Aligned,
}

/// Whether replicas that are equal by symmetry are simulated once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    /// Where workload, placement and fabric are symmetric.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Whether flows are written one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowsTable {
    /// Up to 2^20 rows.
    #[default]
    Auto,
    /// All.
    All,
    /// None.
    None,
}

/// Which tables are written, and what is simulated for them.
#[derive(Clone, Debug)]
pub struct ResultsPlan {
    /// Flows (flow fidelity) and messages (message fidelity).
    pub flows: FlowsTable,
    /// How often queues are sampled; `None`: never.
    pub queues: Option<Span>,
    /// Whether queue pairs are looked at over time.
    pub queue_pairs: bool,
    /// Whether packets are captured.
    pub packets: bool,
    /// Whether jobs are simulated on an ideal fabric too; `None`: where that goes unnoticed.
    pub ideal: Option<bool>,
}

/// How jobs share the machine.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// Name of the scheduler.
    pub scheduler: String,
    /// Length of a time slice.
    pub slice: Span,
    /// Jobs that share a GPU in turn, at most.
    pub slice_rows: u32,
    /// Parts of equally many hosts, of which each job runs in one.
    pub regions: u32,
    /// From an event of the cluster until the scheduler acts on it.
    pub reaction_delay: Span,
    /// How much of each stretch of constant conditions is simulated.
    pub episodes: Episodes,
}

/// GPUs that are slower or faster than their sheet.
#[derive(Clone, Debug)]
pub struct SpeedPlan {
    /// Numbers of the hosts.
    pub hosts: Range<u32>,
    /// GPU of the host; `None`: all.
    pub gpu: Option<u32>,
    /// Speed relative to the sheet.
    pub speed: f64,
    /// From when on; `None`: from the start.
    pub from: Option<Span>,
}

/// Where jobs come from that nobody lists.
#[derive(Clone, Debug)]
pub struct SourcePlan {
    /// The log, as the scenario names it; `None`: they are drawn.
    pub log: Option<String>,
    /// Jobs that wait at most.
    pub queue: Option<u32>,
    /// Jobs after whose end the run is over.
    pub ends: Option<u64>,
}
