//! What a job is resolved in, and what its source of work gives.

use std::sync::Arc;

use windtunnel_kernel::RankId;
use windtunnel_plan::fabric::FabricParts;
use windtunnel_plan::inputs::Inputs;
use windtunnel_plan::jobs::{ModelFacts, Work};
use windtunnel_plan::load::Load;
use windtunnel_workload::Workload;

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
}

impl Context<'_> {
    /// GPUs of the hosts that compute.
    pub fn gpus(&self) -> u32 {
        let topology = &self.fabric.topology;
        let storage = self.storage.map_or(0, |storage| storage.hosts.len() as u32);
        topology.endpoints() - storage * topology.endpoints_per_host()
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
        Work { workload, stages: self.stages, first_replica: self.first_replica, watched, load }
    }
}
