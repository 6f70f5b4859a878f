//! Collectives as NCCL does them: which algorithm and protocol its tuner takes, and how long that takes on a machine.
//!
//! Two things are kept apart. The [`tuner`] is NCCL's own estimate, from NCCL's own constants ([`prior`]); it knows nothing
//! of a system's real latencies and decides by what it believes, as NCCL does. [`time`] is what then happens: the chosen
//! algorithm and protocol under the constants of a system ([`Constants`]), priors or fitted (`windtunnel calibrate
//! collectives`).
//!
//! Life cycle: a [`Hardware`] (from a topology) and a [`Layout`] (how many scale-up domains, how many ranks in each) make
//! a [`Communicator`] with [`Settings`]; [`Communicator::choose`] and [`Communicator::time`] answer for any collective and
//! size in a few hundred operations, without a table.
//! Invariants: pure functions; a time grows with the size except where the choice changes, as NCCL's does.
//! Failure modes: [`NcclError`] where the settings leave no algorithm for a collective.
//!
//! Sources: NCCL `src/graph/tuning.cc` (latencies, bandwidths, correction of trees; by version, tags v2.14.3-1 to
//! v2.23.4-1), `src/graph/search.cc` (channels), `src/enqueue.cc` (chunks), `src/device/prims_simple.h` (slices), at
//! github.com/NVIDIA/nccl@5067397c2676; facts only. Hu et al. 2025, arXiv:2507.04786, sections 3 to 5 (protocols,
//! channels, pipelining).

#[cfg(test)]
pub(crate) mod hosts;
mod kinds;
mod library;
mod prior;
mod settings;
mod sites;
mod steps;
#[cfg(test)]
mod tests;
mod time;
mod tuner;
mod version;

use serde::Deserialize;

pub use self::kinds::{Kinds, MOST_KINDS};
pub use self::library::{Cost, Library, Machine, Rule};
pub use self::settings::{Settings, SettingsError};
pub use self::sites::{Distances, Sites, Wires};
pub(crate) use self::steps::SWITCH_CHANNELS;
pub use self::steps::{Step, Steps};
pub use self::time::Constants;
pub use self::tuner::{Choice, Estimate};
pub use self::version::Version;

/// What is computed; sizes are counted as nccl-tests does (see [`super::CollectiveKind`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// All-reduce.
    AllReduce,
    /// All-gather.
    AllGather,
    /// Reduce-scatter.
    ReduceScatter,
    /// Broadcast.
    Broadcast,
    /// Reduce.
    Reduce,
    /// All-to-all, by grouped sends and receives.
    #[serde(alias = "alltoall")]
    AllToAll,
    /// Every rank sends to the next and receives from the one before.
    #[serde(alias = "sendrecv")]
    SendReceive,
}

/// An algorithm of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Double binary tree between hosts, chains inside.
    Tree,
    /// Rings.
    Ring,
    /// Switches of the network sum; every GPU talks to its NIC.
    CollnetDirect,
    /// Switches of the network sum; a chain inside the host.
    CollnetChain,
    /// Switches inside the host sum (NVLink SHARP).
    Nvls,
    /// NVLink SHARP inside, tree between hosts.
    NvlsTree,
    /// Parallel aggregated trees.
    Pat,
    /// Grouped sends and receives: no algorithm to choose.
    PointToPoint,
}

impl Algorithm {
    /// Whether switches sum: NVLink's, or the network's.
    pub const fn sums_in_switches(self) -> bool {
        matches!(self, Self::CollnetDirect | Self::CollnetChain | Self::Nvls | Self::NvlsTree)
    }

    /// Whether the network's switches are those that do.
    pub const fn sums_in_network(self) -> bool {
        matches!(self, Self::CollnetDirect | Self::CollnetChain)
    }

    /// Those the tuner chooses from, in NCCL's order.
    pub const ALL: [Self; 7] = [
        Self::Tree,
        Self::Ring,
        Self::CollnetDirect,
        Self::CollnetChain,
        Self::Nvls,
        Self::NvlsTree,
        Self::Pat,
    ];

    /// NCCL's name for it, as `NCCL_ALGO` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Ring => "ring",
            Self::CollnetDirect => "collnetdirect",
            Self::CollnetChain => "collnetchain",
            Self::Nvls => "nvls",
            Self::NvlsTree => "nvlstree",
            Self::Pat => "pat",
            Self::PointToPoint => "point_to_point",
        }
    }
}

/// A wire protocol of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// 4 bytes of flag for 4 of data.
    LL,
    /// 8 bytes of flag for 120 of data.
    LL128,
    /// Chunks guarded by a fence.
    Simple,
}

impl Protocol {
    /// All, in NCCL's order.
    pub const ALL: [Self; 3] = [Self::LL, Self::LL128, Self::Simple];

    /// NCCL's name for it, as `NCCL_PROTO` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LL => "ll",
            Self::LL128 => "ll128",
            Self::Simple => "simple",
        }
    }
}

/// A generation of GPUs as the tuner tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Compute capability 7.
    Volta,
    /// 8.
    Ampere,
    /// 9.
    Hopper,
    /// 10.
    Blackwell,
}

/// What a scale-up domain and its network can do.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Generation.
    pub architecture: Architecture,
    /// Payload that a GPU sends over scale-up links, bytes per second one way.
    pub scale_up: f64,
    /// Whether the scale-up switch sums (NVLink SHARP).
    #[serde(default)]
    pub scale_up_sums: bool,
    /// GPUs that a scale-up link joins: all of a domain if left out. Pairs joined by bridges go over PCIe beyond.
    #[serde(default)]
    pub scale_up_ranks: Option<u32>,
    /// Payload between GPUs of a domain that no scale-up link joins, bytes per second one way.
    #[serde(default)]
    pub host_link: f64,
    /// What a GPU's memory moves, bytes per second, as measured in streams.
    pub memory: f64,
    /// NICs of a domain.
    pub nics: u32,
    /// Rate of a NIC as its sheet has it, bytes per second one way, the fabric's oversubscription taken off.
    pub nic: f64,
    /// Most that the fabric carries between two domains as these lie, bytes per second one way; 0 if it carries all that
    /// their NICs send.
    #[serde(default)]
    pub uplink: f64,
    /// Whether ways between the ranks' domains leave a leaf that lets out less than a NIC sends.
    #[serde(default)]
    pub slow_leaf: bool,
    /// Bytes per second of a channel between hosts that NCCL's search finds where it is less than the NICs' speed; 0 if it
    /// is theirs.
    #[serde(default)]
    pub channel_speed: f64,
    /// Whether the search finds no balanced trees between hosts, which would take half of their bandwidth to a second GPU,
    /// so that the tuner takes a share off.
    #[serde(default)]
    pub simple_trees: bool,
    /// Whether the host's processor is AMD's, as the tuner asks.
    #[serde(default)]
    pub amd: bool,
    /// GPUs of a whole domain, which share its NICs evenly.
    pub gpus: u32,
    /// Time between two hosts' NICs, seconds: cables and switches; a number where it is the same for all hops.
    pub wire: Wires,
    /// Whether NCCL lets LL128 go between hosts: NIC and GPU under one PCIe switch.
    pub ll128_between: bool,
    /// Whether the network's switches sum (SHARP).
    #[serde(default)]
    pub network_sums: bool,
}

impl Hardware {
    /// The same where hops are as long as `distances` say.
    fn over(&self, distances: Distances) -> Self {
        Self { wire: distances.into(), ..self.clone() }
    }

    /// The same with links at `share` of their rates.
    fn slowed(&self, share: f64) -> Self {
        Self {
            scale_up: self.scale_up * share,
            host_link: self.host_link * share,
            nic: self.nic * share,
            uplink: self.uplink * share,
            channel_speed: self.channel_speed * share,
            ..self.clone()
        }
    }
}

/// How the ranks of a communicator lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Scale-up domains.
    pub domains: u32,
    /// Ranks in each.
    pub ranks: u32,
    /// Ranks that one process drives, one launch after another.
    #[serde(default = "one")]
    pub ranks_per_process: u32,
}

const fn one() -> u32 {
    1
}

impl Layout {
    /// All ranks.
    pub const fn members(self) -> u32 {
        self.domains * self.ranks
    }
}

/// Ranks on a machine, under settings.
#[derive(Clone, Debug)]
pub struct Communicator<'a> {
    /// The machine.
    pub hardware: &'a Hardware,
    /// Where the ranks are.
    pub layout: Layout,
    /// NCCL's environment.
    pub settings: &'a Settings,
}

/// Nothing can be predicted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NcclError {
    /// `NCCL_ALGO` and `NCCL_PROTO` leave nothing.
    #[error(
        "no algorithm is left for {function:?} of {ranks} ranks on {domains} scale-up domains\n\n\
         hint: NCCL falls back to `NCCL_ALGO=ring` and `NCCL_PROTO=simple`; allow them"
    )]
    NothingLeft {
        /// What was to be computed.
        function: Function,
        /// Ranks.
        ranks: u32,
        /// Domains.
        domains: u32,
    },
}
