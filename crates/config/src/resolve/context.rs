//! What a job is resolved in, and what its source of work gives.

use std::sync::Arc;

use windtunnel_kernel::{EndpointId, RankId};
use windtunnel_plan::fabric::FabricParts;
use windtunnel_plan::inputs::Inputs;
use windtunnel_plan::jobs::{ModelFacts, Work};
use windtunnel_plan::kinds::Programs;
use windtunnel_plan::load::Load;
use windtunnel_plan::modules::Modules;
use windtunnel_workload::Workload;

use super::policies;
use super::storage::StoragePlan;
use crate::schema::{Jobs, OperationsTable, Scenario};

/// Ranks watched of a job without a pipeline.
const WATCHED: usize = 64;

/// What a job stands in.
pub struct Context<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The fabric.
    pub fabric: &'a FabricParts,
    /// The hosts that hold data.
    pub storage: Option<&'a StoragePlan>,
    /// Folder of relative paths.
    pub base: &'a Inputs,
    /// The job's place for messages.
    pub place: &'a str,
    /// Whether the job is sure to lie on the first GPUs, one rank after the other.
    pub on_first: bool,
}

/// Whether the only job of `scenario` is sure to lie on the first GPUs: it is packed, and nothing is kept back or fails.
pub(super) fn lies_on_first(scenario: &Scenario, modules: &Modules) -> bool {
    let cluster = &scenario.cluster;
    let Jobs::List(jobs) = &scenario.jobs else { return false };
    let [job] = jobs.as_slice() else { return false };
    let upheld = cluster.faults.is_empty() && cluster.maintenance.is_empty() && cluster.spares.is_none();
    let packed = policies::placement(&job.placement, "").is_ok_and(|placement| placement.name() == "packed");
    let own = modules.own_placement().is_some() || modules.make_scheduler().is_some();
    packed
        && upheld
        && !own
        && cluster.storage.is_none()
        && cluster.regions < 2
        && cluster.scheduler != "gang"
}

impl Context<'_> {
    /// GPUs of the hosts that compute.
    pub fn gpus(&self) -> u32 {
        let topology = &self.fabric.topology;
        let storage = self.storage.map_or(0, |storage| storage.hosts.len() as u32);
        topology.endpoints() - storage * topology.endpoints_per_host()
    }

    /// The kinds of GPUs on which ranks of a job of `ranks` may lie: by rank where that is known, else `None`.
    pub fn kinds_of(&self, ranks: u32) -> Option<Vec<u8>> {
        let gpus = &self.fabric.kinds;
        if !gpus.differ() {
            return Some(vec![0; ranks as usize]);
        }
        self.on_first.then(|| (0..ranks).map(|rank| gpus.of(EndpointId(rank))).collect())
    }
}

/// What a source of work gives.
pub struct Built {
    /// Operations.
    pub workload: Workload,
    /// Pipeline stage by rank; empty if there is only one.
    pub stages: Vec<u32>,
    /// The rank with the same place in the first data-parallel replica, by rank; empty if there are no replicas.
    pub first_replica: Vec<RankId>,
    /// One rank per stage of the first replica; empty: the first ranks.
    pub pipeline: Vec<RankId>,
    /// What is known of the model.
    pub model: Option<ModelFacts>,
    /// Notes for the user.
    pub warnings: Vec<String>,
    /// Kinds of GPUs for which the workload has programs, one kind after the other; 1 if they are the same for all.
    pub kinds: u32,
}

impl Built {
    /// Without a model.
    pub fn plain(workload: Workload) -> Self {
        Self {
            workload,
            stages: Vec::new(),
            first_replica: Vec::new(),
            pipeline: Vec::new(),
            model: None,
            warnings: Vec::new(),
            kinds: 1,
        }
    }

    /// What the ranks do after their `load`, and which of them are watched.
    pub fn into_work(self, load: Option<Load>, context: &Context<'_>) -> Work {
        let ranks = self.workload.ranks();
        let drawn = matches!(context.scenario.jobs, Jobs::Source(_));
        let watched = match context.scenario.results.operations {
            OperationsTable::All => (0..ranks as u32).map(RankId).collect(),
            OperationsTable::None => Vec::new(),
            // Of a few listed jobs, not of thousands.
            OperationsTable::Pipeline if drawn => Vec::new(),
            OperationsTable::Pipeline if self.pipeline.is_empty() => {
                (0..ranks.min(WATCHED) as u32).map(RankId).collect()
            }
            OperationsTable::Pipeline => self.pipeline,
        };
        let workload = Arc::new(self.workload);
        let programs = Programs::of_kinds(self.kinds);
        Work { workload, stages: self.stages, first_replica: self.first_replica, watched, load, programs }
    }
}
