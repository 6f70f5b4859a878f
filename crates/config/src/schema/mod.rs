//! The scenario file as it is written: every key, its type, its default. The doc comments are the descriptions in
//! `windtunnel schema` and docs/scenario.md.
//!
//! Nothing here is checked beyond types and units; [`crate::resolve()`] turns a [`Scenario`] into a plan.

pub mod explore;
pub mod impairments;
pub mod job_source;
pub mod jobs;
mod load_balancer;
mod name;
pub mod quantity;
pub mod queues;
mod recovery;
mod reduction;
pub mod topology;
mod transport;
pub mod upkeep;
mod watch;

use std::collections::BTreeMap;

pub use impairments::{
    BackgroundRule, BadTimes, BitErrorRule, DownRule, DriftRule, Impairments, Links, LossRule, SlowRule,
};
pub use job_source::{JobKind, JobSource, Jobs, PriorityShare, ScaleJobs};
pub use jobs::{
    CollectiveJob, FlowPattern, FlowsJob, Job, ModelJob, Parallelism, ScheduleJob, WorkloadSource,
};
pub use load_balancer::{EcmpKeys, LoadBalancer};
pub use name::Name;
pub use quantity::{CalendarSpan, Duration, Length, Price, Rate, Size};
pub use queues::{ClassColors, ColorProfile, ColorProfiles, DropProfile, Meter, Pfc, Queue, Trimming};
pub use recovery::{RecoveryKeys, SelectiveKeys};
pub use reduction::Reduction;
use schemars::JsonSchema;
use serde::Deserialize;
pub use topology::{
    Building, BuildingHost, CableKind, ClosTier, CrossLinks, GraphFile, Host, KEYS, MeshDimension, NicBus,
    Rails, ScaleUp, ShapeKey, SheetChoice, SwitchSettings, TopologyFile,
};
use windtunnel_fabric::host::Receiver;
use windtunnel_fabric::packet::{Discipline, Forwarding, MarkAt, Pull};
use windtunnel_fabric::wire;
pub use windtunnel_plan::settings::{Episodes, ExchangeName, Fidelity, FlowsTable, Fold, MemoName, Phase};
use windtunnel_workload::replay::Connections;

use self::transport::{LawNames, TransportNames};
use self::upkeep::{FaultRule, MaintenanceWindow, SpareHosts, StorageHosts};
pub use self::watch::{PacketCapture, PairRule, PairsOverTime};
use crate::ecn_profiles::EcnProfile;

/// A scenario: a fabric, the jobs on it, and how closely to look.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Version of the file format; 1.
    pub windtunnel: u32,
    /// Name of the scenario; the run's folder carries it.
    pub name: String,
    /// Seed of every random stream.
    #[serde(default)]
    pub seed: u64,
    /// How closely the network is simulated.
    pub fidelity: Fidelity,
    /// The fabric and its hosts.
    pub topology: TopologyFile,
    /// How packets and flows behave on it.
    #[serde(default)]
    pub network: Network,
    /// What goes wrong on the fabric, and traffic of others.
    #[serde(default)]
    pub impairments: Impairments,
    /// The jobs: a list, or where they come from (a log, or the shape of one).
    pub jobs: Jobs,
    /// How the jobs share the machine.
    #[serde(default)]
    pub cluster: Cluster,
    /// How hosts differ from their data sheets.
    #[serde(default)]
    pub variation: Variation,
    /// What to do when a rank does not fit its GPU's memory.
    #[serde(default)]
    pub memory: MemoryPolicy,
    /// Whether replicas that are equal by symmetry are simulated once.
    #[serde(default)]
    pub fold: Fold,
    /// Which tables are written.
    #[serde(default)]
    pub results: Results,
    /// What hours and energy cost, for the dollars of a run.
    #[serde(default)]
    pub prices: Prices,
    /// What `windtunnel explore` searches.
    pub explore: Option<explore::Explore>,
}

/// What carries out collectives whose algorithm is left open.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Collectives {
    /// What decides: `nccl` where `topology.host.gpu` names GPUs, `size` elsewhere, if left out.
    pub tuner: Option<jobs::TunerName>,
    /// A system of `data/systems`, or a path, of which NCCL has the constants, the environment and the plug-in; those of the
    /// nearest kin (GPU generation and NIC) if left out.
    pub system: Option<String>,
    /// NCCL's environment, such as `{NCCL_ALGO: ring, NCCL_PROTO: simple}`.
    pub environment: BTreeMap<String, String>,
}

/// How packets and flows behave on the fabric.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Largest packet on the wire, header included.
    pub mtu: Size,
    /// Header bytes of each packet.
    pub header: Size,
    /// How a path is chosen among equal ones. If left out: `ecmp`, but `spray` for packets of `dcsim`, `phost`, `pfabric`, `dcpim`,
    /// `homa` and `sird`, which were published so.
    pub load_balancer: LoadBalancer,
    /// Transport protocol (packet fidelity), the usual combination of a `congestion` law and a `recovery`. If left out: `dctcp`, or
    /// what goes with `congestion`. `hpcc` needs `telemetry`, `ndp` `trimming`. A program of one's own may bring more, whose names are
    /// any text.
    #[schemars(with = "Option<TransportNames>")]
    pub transport: Option<String>,
    /// Law by which senders answer congestion, in place of that of the `transport` (packet fidelity).
    #[schemars(with = "Option<LawNames>")]
    pub congestion: Option<String>,
    /// Parameters of the `transport`, or of the `congestion` law (packet fidelity): those that `docs/transports.md` names for it, or, where the program
    /// brings it along, whatever it takes.
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Who chooses path numbers for `load_balancer: spray`: a module that the program brings along (packet fidelity). If
    /// left out, the transport does, or they are taken in turn.
    pub path_chooser: Option<Module>,
    /// A stage of every switch, which may mark, drop, trim or re-queue packets, or its queue discipline, which chooses the data
    /// queue that goes next: a module that the program brings along (packet fidelity).
    pub stage: Option<Module>,
    /// Who chooses among a switch's equal-cost ports for `load_balancer: adaptive`: a module that the program brings along
    /// (packet fidelity). If left out, the port with the fewest bytes.
    pub switch_balancer: Option<Module>,
    /// A network model of one's own in place of the packet model: a shared library (packet fidelity).
    pub backend: Option<Backend>,
    /// Size of acknowledgements and other control packets (packet fidelity).
    pub control: Size,
    /// Data packets of a queue pair that one acknowledgement answers (packet fidelity).
    pub ack_every: u32,
    /// When a switch passes a packet on (packet fidelity).
    pub forwarding: Name<Forwarding>,
    /// Path numbers that `load_balancer: spray` goes round and `reps` draws from, a power of two (packet fidelity).
    pub paths: u32,
    /// Paths that hosts choose for themselves, before any balancer (packet fidelity).
    pub routes: Vec<RouteRule>,
    /// Pause after which `load_balancer: flowlet` may choose another path (packet fidelity).
    pub flowlet_gap: Duration,
    /// Packets that a queue pair may have from the first not acknowledged to the last sent (packet fidelity). If left out:
    /// with `dcqcn` and packets that spread (`spray`, `adaptive`, `reps`) what the NIC's sheet says, else 512; otherwise no
    /// limit.
    pub in_flight: Option<u32>,
    /// Queue pairs over which each message is spread (packet fidelity).
    pub queue_pairs: u32,
    /// Bytes that a queue pair may have in flight, for `congestion: none`, which alone takes the key (packet fidelity); no
    /// limit if left out.
    pub window: Option<Size>,
    /// How losses are mended (packet fidelity). If left out: `rack` where packets take many paths (`spray`, `adaptive`, `reps`)
    /// and the transport would take what they overtake for lost; otherwise as `docs/transports.md` has it for the transport.
    pub recovery: Option<RecoveryKeys>,
    /// Trimming: switches cut packets for which they have no room to their headers (packet fidelity). If left out, these
    /// are dropped; `{}` trims where the shared buffer refuses.
    pub trimming: Option<Trimming>,
    /// Whether switches write into packets what they see of queues and links, for `hpcc` (packet fidelity).
    pub telemetry: bool,
    /// When queues mark packets (packet fidelity).
    pub ecn: Ecn,
    /// Tiers of the links whose queues mark, such as `[leaf-up, leaf-down]`, which leaves out the ports that lead to hosts (packet
    /// fidelity). If left out: the queues of all switches.
    pub ecn_on: Vec<String>,
    /// Shared buffers of switches by tier, from the hosts up; the last holds for all tiers above (packet fidelity). If
    /// left out, queues have no limit and nothing is lost; with `pfc`, switches have the buffer of a data sheet.
    pub buffers: Vec<Buffer>,
    /// Data queues of each port of each switch, at most 8 (packet fidelity). If left out: one for all traffic.
    pub queues: Vec<Queue>,
    /// Which of the `queues` of equal priority goes next (packet fidelity).
    pub discipline: Name<Discipline>,
    /// Which queue pair of a NIC sends next: in turn, or by the `queues` of their traffic (packet fidelity).
    pub nic_pull: Name<Pull>,
    /// The color of traffic, by which `queues` may mark and drop it (packet fidelity).
    pub colors: ClassColors,
    /// Priority flow control of lossless queues (packet fidelity); `{}` takes all defaults. None if left out.
    pub pfc: Option<Pfc>,
    /// What switches can sum, for `algorithm: in_network` (flow and packet fidelity); `{}` takes all defaults. Nothing if left
    /// out.
    pub reduction: Option<Reduction>,
    /// Least time without a sign of arrival after which a transport sends again; its round trips may make it longer (packet
    /// fidelity). If left out, the transport's own, 15 us to 1 ms; RDMA adapters take 67 ms (4.096 us × 2^14) by default.
    pub timeout: Option<Duration>,
    /// Over how many processes a run is spread (packet fidelity). No result depends on it.
    pub parallel: Parallel,
    /// How all-to-alls between scale-up domains are simulated (flow fidelity; message and packet fidelity have every message).
    /// `summary.json` says what was merged, and what that may change (`network.exchanges`).
    pub exchange: ExchangeName,
    /// What messages outside communicators go by, such as those of a GOAL file or of a recorded MPI program (flow and packet fidelity;
    /// message fidelity knows no connections).
    pub connections: Name<Connections>,
    /// What carries out collectives whose algorithm is left open.
    pub collectives: Collectives,
    /// LogGOPS parameters (message fidelity); what is left out comes from the topology and the data sheets, per class.
    pub loggops: Option<LogGops>,
    /// For how long a message occupies its receiver (message fidelity): `held` is LogGOPS; `free` is as ATLAHS does, and breaks
    /// line rate; `aside` is how flows and packets have it.
    pub receiver: Name<Receiver>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            mtu: Size(wire::MTU),
            header: Size(wire::HEADER),
            load_balancer: LoadBalancer::default(),
            transport: None,
            congestion: None,
            parameters: serde_json::Map::new(),
            path_chooser: None,
            stage: None,
            switch_balancer: None,
            backend: None,
            control: Size(wire::CONTROL),
            ack_every: wire::ACK_EVERY,
            forwarding: Name::default(),
            paths: 64,
            routes: Vec::new(),
            flowlet_gap: Duration(windtunnel_kernel::Span::from_ps(10_000_000)),
            in_flight: None,
            queue_pairs: 1,
            window: None,
            recovery: None,
            trimming: None,
            telemetry: false,
            ecn: Ecn::default(),
            ecn_on: Vec::new(),
            buffers: Vec::new(),
            queues: Vec::new(),
            discipline: Name::default(),
            nic_pull: Name::default(),
            colors: ClassColors::default(),
            pfc: None,
            reduction: None,
            timeout: None,
            parallel: Parallel::default(),
            exchange: ExchangeName::default(),
            connections: Name::default(),
            collectives: Collectives::default(),
            loggops: None,
            receiver: Name::default(),
        }
    }
}

/// How the packet model is spread over processes, which run on `--threads`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Parallel {
    /// Processes at most; as many as threads if left out.
    pub processes: Option<u32>,
    /// ζ: NICs and switches that a cable of less delay joins, its far end's pipeline included, share a process. Chosen by
    /// the delays there are if left out.
    pub zeta: Option<Duration>,
}

/// A module that the program brings along.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Module {
    /// The name that it is registered under.
    pub name: String,
    /// Handed to it as they are written.
    #[serde(default)]
    pub parameters: serde_json::Map<String, serde_json::Value>,
}

/// A shared library with a network model, built with `windtunnel_fabric.h`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// The library's file, relative to the scenario's. It runs in this process, and only with `--allow-native`.
    pub library: String,
    /// Handed to it as JSON.
    #[serde(default)]
    pub parameters: serde_json::Map<String, serde_json::Value>,
}

/// A path that a host chooses. Rules for one pair of NICs are taken in turn by its queue pairs; the way back goes by the same
/// cables unless a rule of its own says otherwise.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteRule {
    /// The sending NIC, such as `host0/nic0`.
    pub from: String,
    /// The receiving NIC.
    pub to: String,
    /// The switches on the way, from the sender's leaf to the receiver's, such as `[leaf0, spine1, leaf2]`.
    pub via: Vec<String>,
}

/// When queues mark packets (RED on the instantaneous queue). Sizes hold for a port of `rate` and grow in proportion. Those of a
/// profile also grow with the longest path, where its bandwidth-delay product asks for more (`docs/transports.md`); `kmin` and `kmax`
/// that are written hold as they are.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ecn {
    /// Published thresholds; the other keys change them one by one.
    pub profile: Name<&'static EcnProfile>,
    /// Rate of a port that the sizes are for.
    pub rate: Option<Rate>,
    /// No packet is marked up to here.
    pub kmin: Option<Size>,
    /// Every packet is marked above.
    pub kmax: Option<Size>,
    /// Probability at `kmax`.
    pub pmax: Option<f64>,
    /// Where.
    pub at: Name<MarkAt>,
}

/// The shared buffer of a switch.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// All of it.
    pub size: Size,
    /// Dynamic threshold: a port may hold up to so many times what is free of the shared part.
    #[serde(default = "one")]
    pub alpha: f64,
    /// Kept for each port alone.
    #[serde(default)]
    pub reserve: Option<Size>,
}

const fn one() -> f64 {
    1.0
}

/// LogGOPS parameters, one set for all pairs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case, reason = "the field's names for the parameters")]
pub struct LogGops {
    /// Latency.
    pub L: Duration,
    /// Overhead on the processor per message.
    pub o: Duration,
    /// Gap between messages of a NIC.
    pub g: Duration,
    /// Gap per byte in nanoseconds, a decimal such as `0.02`.
    pub G: f64,
    /// Overhead per byte in nanoseconds, a decimal.
    #[serde(default)]
    pub O: f64,
    /// Largest message that is sent eagerly.
    pub S: Size,
}

/// How the jobs share the machine.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// Which waiting jobs are started, and which running ones stopped.
    #[schemars(with = "Name<&'static windtunnel_cluster::scheduler::BuiltIn>")]
    pub scheduler: String,
    /// How much of each constant stretch is simulated.
    pub episodes: Episodes,
    /// Delay from something simulated (a job's end) to the cluster's reaction.
    pub reaction_delay: Duration,
    /// What a job that was preempted or interrupted pays when it goes on. A preempted one keeps the work that it has done.
    pub restart: Duration,
    /// What it pays on top if it goes on on other GPUs.
    pub migration: Duration,
    /// What fails.
    pub faults: Vec<FaultRule>,
    /// What is taken out of service, and when.
    pub maintenance: Vec<MaintenanceWindow>,
    /// Hosts that take the place of those that fail; none if left out.
    pub spares: Option<SpareHosts>,
    /// Hosts from which jobs load their data over the network; none if left out.
    pub storage: Option<StorageHosts>,
    /// Parts of equally many hosts; each job runs in one (`scheduler: mast`).
    pub regions: u32,
    /// Length of a time slice (`scheduler: gang`).
    pub slice: Duration,
    /// Jobs that share a GPU in turn, at most (`scheduler: gang`).
    pub slice_rows: u32,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            scheduler: "fcfs".to_owned(),
            episodes: Episodes::default(),
            reaction_delay: Duration(windtunnel_kernel::Span::from_ps(1_000_000_000)),
            restart: Duration(windtunnel_kernel::Span::ZERO),
            migration: Duration(windtunnel_kernel::Span::ZERO),
            faults: Vec::new(),
            maintenance: Vec::new(),
            spares: None,
            storage: None,
            regions: 1,
            slice: Duration(windtunnel_kernel::Span::from_us(600_000_000)),
            slice_rows: 4,
        }
    }
}

/// How hosts differ from their data sheets. All factors are mean-preserving and keyed by (seed, rank, operation).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Variation {
    /// Variation of each computation.
    pub kernel_noise: Option<KernelNoise>,
    /// GPUs or hosts that are slower or faster than their sheet.
    pub speeds: Vec<SpeedRule>,
    /// NICs that run at a part of their rate.
    pub nics: Vec<NicRule>,
}

/// Random variation of each computation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelNoise {
    /// `normal`, `lognormal`, or `measured` (factors drawn from a list).
    pub distribution: NoiseName,
    /// Coefficient of variation (standard deviation over mean).
    #[serde(default)]
    pub cv: f64,
    /// Measured durations or factors to draw from; divided by their mean.
    #[serde(default)]
    pub samples: Vec<f64>,
}

/// Distribution of kernel noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoiseName {
    /// Normal, cut at a tenth of the mean.
    Normal,
    /// Lognormal.
    Lognormal,
    /// Drawn from `samples`.
    Measured,
}

/// A host or GPU that is slower or faster than its sheet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpeedRule {
    /// `regions`: name of a building, all of whose hosts are meant; no `host` beside it.
    #[serde(default)]
    pub building: Option<String>,
    /// Host number; all hosts if left out.
    pub host: Option<u32>,
    /// GPU of the host; all of them if left out.
    pub gpu: Option<u32>,
    /// Speed relative to the sheet; 0.5 doubles every computation.
    pub speed: f64,
    /// From when on (a thermal cap); from the start if left out.
    #[serde(default)]
    pub from: Option<Duration>,
}

/// NICs that run at a part of their rate.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NicRule {
    /// `regions`: name of a building, all of whose hosts are meant; no `host` beside it.
    #[serde(default)]
    pub building: Option<String>,
    /// Host number; all hosts if left out.
    pub host: Option<u32>,
    /// NIC of the host; all of them if left out.
    pub nic: Option<u32>,
    /// Rate relative to the sheet.
    pub rate: f64,
}

/// What to do when a rank does not fit its GPU's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryPolicy {
    /// Refuse the scenario.
    #[default]
    Refuse,
    /// Run and warn.
    Warn,
    /// Run.
    Ignore,
}

/// Which tables are written.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Results {
    /// Operations of which ranks: of one pipeline, of all, or none.
    pub operations: OperationsTable,
    /// Flows (flow fidelity) and messages (message fidelity): `auto` writes them up to 2^20 rows.
    pub flows: FlowsTable,
    /// How often queues are sampled for the table `queues` (packet fidelity), such as `10 us`; at least 1 ns. Never if left out.
    pub queues: Option<Duration>,
    /// Queue pairs over time: windows, rates, bytes in flight and round trips (packet fidelity); none if left out.
    pub queue_pairs: Option<PairsOverTime>,
    /// Packets to capture (packet fidelity); none if left out.
    pub packets: Option<PacketCapture>,
    /// Whether the same job on an ideal fabric is simulated for comparison. If left out: jobs that train a model, and
    /// other jobs of up to 4,096 messages.
    pub ideal: Option<bool>,
}

/// What hours and energy cost, for the dollars of a run (`cost` of its summary, docs/results.md). No time depends on it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// Rent of a GPU for an hour, such as `2.50 USD`, with its host, fabric and energy. If left out, the fabric and the GPUs are
    /// bought by their sheets' prices and written off evenly, and energy is paid for.
    pub gpu_hour: Option<Price>,
    /// A kilowatt-hour; `0.08 USD` if left out.
    pub kwh: Option<Price>,
    /// Years over which what is bought is written off; 5 if left out.
    pub years: Option<f64>,
}

/// Ranks whose operations are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationsTable {
    /// One rank per pipeline stage of the first replica; all ranks of a job without a layout, up to 64.
    #[default]
    Pipeline,
    /// Every rank.
    All,
    /// None.
    None,
}
