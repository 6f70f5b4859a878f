//! Everything that a run needs, as one value.
//!
//! Life cycle: `config` makes a [`Plan`] of a scenario, which it consumes; a run reads it. Nothing here knows how a scenario is
//! written. Invariants: every value is checked and defaulted, for every fidelity; what only another fidelity needs may be
//! absent. Failure modes are those of making it ([`InputError`]) and of running it ([`Failure`]).

#![warn(unreachable_pub)]

pub mod error;
pub mod evidence;
pub mod fabric;
pub mod inputs;
pub mod jobs;
pub mod kinds;
pub mod load;
pub mod modules;
pub mod network_plan;
pub mod origin;
pub mod places;
pub mod plant;
pub mod settings;
pub mod stream;
pub mod troubles;
pub mod upkeep;

use std::ops::Range;

use serde_json::{Value, json};
use windtunnel_cluster::variation::Noise;
use windtunnel_topology::LinkId;

pub use self::error::{Failure, InputError};
use self::evidence::EvidenceList;
use self::fabric::FabricParts;
use self::inputs::Inputs;
use self::jobs::JobPlan;
use self::modules::Modules;
use self::network_plan::NetworkPlan;
use self::origin::LogAccount;
use self::settings::{ClusterPlan, Fidelity, Fold, ResultsPlan, SourcePlan, SpeedPlan};
use self::stream::JobStream;
use self::troubles::Troubles;
use self::upkeep::UpkeepPlan;

/// Everything that a run needs.
#[derive(Clone)]
pub struct Plan {
    /// Name of the scenario.
    pub name: String,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// How closely the network is simulated.
    pub fidelity: Fidelity,
    /// Whether replicas that are equal by symmetry are simulated once.
    pub fold: Fold,
    /// The fabric.
    pub fabric: FabricParts,
    /// What messages, flows and packets are told of it.
    pub network: NetworkPlan,
    /// How jobs share the machine.
    pub cluster: ClusterPlan,
    /// The jobs, if they are listed, or drawn with something to do.
    pub jobs: Vec<JobPlan>,
    /// Where the jobs come from, if they are not listed.
    pub source: Option<SourcePlan>,
    /// The jobs, if they are no more than durations.
    pub stream: Option<JobStream>,
    /// What became of the rows of their log, if they come from one.
    pub log: Option<LogAccount>,
    /// Noise of computations.
    pub noise: Noise,
    /// GPUs that are slower or faster than their sheet.
    pub speeds: Vec<SpeedPlan>,
    /// Hosts whose NICs run at a part of their rate.
    pub slow_nics: Vec<Range<u32>>,
    /// What goes wrong on the fabric.
    pub troubles: Troubles,
    /// What fails, is drained and is kept back; `None`: nothing.
    pub upkeep: Option<UpkeepPlan>,
    /// Hosts that hold data and compute nothing, in ascending order.
    pub storage_hosts: Vec<u32>,
    /// Links that run at a part of their rate, besides those of storage hosts and buses.
    pub slow_links: Vec<(LinkId, f64)>,
    /// Which tables are written.
    pub results: ResultsPlan,
    /// What the results rest on.
    pub evidence: EvidenceList,
    /// What the program brings along.
    pub modules: Modules,
    /// The files and sheets that it was made from.
    pub inputs: Inputs,
}

impl Plan {
    /// Whether nobody lists the jobs.
    pub const fn is_drawn(&self) -> bool {
        self.source.is_some()
    }

    /// What would run, for `--explain`.
    pub fn explanation(&self) -> Value {
        let jobs: Vec<Value> = self.jobs.iter().map(JobPlan::explanation).collect();
        let topology = &self.fabric.topology;
        let mut told =
            json!({"hosts": topology.hosts(), "gpus": topology.endpoints(), "links": topology.link_count()});
        if self.fabric.kinds.differ() {
            let names = self.fabric.kinds.sheets().iter().map(|sheet| sheet.name.as_str());
            told["gpu_sheets"] = names.collect();
        }
        json!({
            "scenario": self.name,
            "fidelity": self.fidelity.name(),
            "topology": told,
            "jobs": jobs,
            "drawn": self.stream.as_ref().map(JobStream::explanation),
            "evidence": self.evidence.rows(),
        })
    }
}
