//! Jobs, ready to run.

use std::sync::Arc;

use serde_json::{Value, json};
use windtunnel_cluster::life::Life;
use windtunnel_cluster::placement::{Locality, Placement};
use windtunnel_kernel::{CalendarTime, EndpointId, RankId, Span};
use windtunnel_workload::Workload;

use crate::kinds::{GpuKinds, Programs};
use crate::load::Load;
use crate::origin::Origin;

/// What is known of a job that trains a model.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// Tokens per iteration.
    pub tokens: u64,
    /// Model FLOPs per iteration (the numerator of MFU).
    pub flops: f64,
    /// Peak rate of a GPU in FLOP/s at the training precision, by kind.
    pub peak_flops: Vec<f64>,
    /// How far iterations of this kind were from measured ones on the validation board; null where it has none.
    pub expected_error: Value,
    /// Bytes per GPU by use, of the rank that needs most, with `total` and `capacity`.
    pub memory: Value,
    /// Layers, bytes, FLOPs and memory per pipeline rank, for `--explain`.
    pub explanation: Value,
}

impl ModelFacts {
    /// The mean peak rate of the GPUs at `placement`, in FLOP/s.
    pub fn peak_at(&self, gpus: &GpuKinds, placement: &[EndpointId]) -> f64 {
        let of = |gpu: &EndpointId| self.peak_flops.get(usize::from(gpus.of(*gpu))).copied().unwrap_or(0.0);
        match self.peak_flops.as_slice() {
            [one] => *one,
            _ if placement.is_empty() => self.peak_flops.first().copied().unwrap_or(0.0),
            _ => placement.iter().map(of).sum::<f64>() / placement.len() as f64,
        }
    }

    /// Bytes that the fullest GPU holds.
    pub fn memory_total(&self) -> Option<u64> {
        self.memory.get("total").and_then(Value::as_u64)
    }
}

/// What a job does in an iteration, over one number of ranks.
#[derive(Clone)]
pub struct Work {
    /// Operations of its ranks.
    pub workload: Arc<Workload>,
    /// Pipeline stage of each rank; empty if all are of stage 0.
    pub stages: Vec<u32>,
    /// The rank with the same place in the first data-parallel replica, by rank; empty if the job has no replicas.
    pub first_replica: Vec<RankId>,
    /// Ranks whose operations are written.
    pub watched: Vec<RankId>,
    /// What it loads over the network before its first start.
    pub load: Option<Load>,
    /// Its programs by kinds of GPUs.
    pub programs: Programs,
}

impl Work {
    /// The operations of its ranks at `placement`, on the GPUs that stand there.
    pub fn workload_at(&self, gpus: &GpuKinds, placement: &[EndpointId]) -> Arc<Workload> {
        self.programs.at(&self.workload, gpus, placement)
    }

    /// The same with its ranks at `placement`.
    pub fn at(self: &Arc<Self>, gpus: &GpuKinds, placement: &[EndpointId]) -> Arc<Self> {
        let workload = self.workload_at(gpus, placement);
        if Arc::ptr_eq(&workload, &self.workload) {
            return self.clone();
        }
        Arc::new(Self { workload, ..(**self).clone() })
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.workload.ranks()
    }

    /// Pipeline stage of `rank`.
    pub fn stage_of(&self, rank: RankId) -> u32 {
        self.stages.get(rank.0 as usize).copied().unwrap_or(0)
    }
}

/// A job, ready to run.
#[derive(Clone)]
pub struct JobPlan {
    /// Name.
    pub name: String,
    /// What it does on as many GPUs as it asks for.
    pub work: Arc<Work>,
    /// The same over other numbers of GPUs; none unless the job is elastic and there is a network.
    pub resized: Vec<Arc<Work>>,
    /// Iterations.
    pub iterations: u64,
    /// When it is submitted.
    pub submit: CalendarTime,
    /// How its GPUs are chosen.
    pub placement: &'static dyn Placement,
    /// How close together they must be.
    pub locality: Locality,
    /// Higher goes first.
    pub priority: i32,
    /// How long it takes, at job fidelity.
    pub duration: Option<Span>,
    /// How long a scheduler expects it to run, if the scenario says so.
    pub estimate: Option<Span>,
    /// Nanoseconds from its submission in which it should have ended; [`u64::MAX`]: whenever it does.
    pub deadline: u64,
    /// What it pays on its way, and what of its work is safe.
    pub life: Life,
    /// The model that it trains.
    pub model: Option<ModelFacts>,
    /// Sequences or samples per iteration.
    pub samples: Option<u64>,
    /// Do as many iterations as fit in so many nanoseconds on an ideal fabric, instead of `iterations`.
    pub lasts: Option<u64>,
    /// Line of the log; 0 if it is not from one.
    pub line: u32,
    /// What the log says of it beside.
    pub origin: Origin,
    /// Notes for the user.
    pub warnings: Vec<String>,
}

impl JobPlan {
    /// Number of ranks that it asks for.
    pub fn ranks(&self) -> usize {
        self.work.ranks()
    }

    /// What would run, for `--explain`.
    pub(crate) fn explanation(&self) -> Value {
        let workload = &self.work.workload;
        json!({
            "name": self.name,
            "ranks": self.ranks(),
            "programs": workload.programs.len(),
            "operations": workload.operations(),
            "resized": self.resized.iter().map(|work| work.ranks()).collect::<Vec<_>>(),
            "communicators": workload.communicators.len(),
            "model": self.model.as_ref().map(|model| model.explanation.clone()),
            "memory": self.model.as_ref().map(|model| model.memory.clone()),
            "warnings": self.warnings,
        })
    }

    /// Takes the operations of `other`, a job that does the same, wherever both have as many ranks.
    pub fn share(&mut self, other: &Self) {
        for own in std::iter::once(&mut self.work).chain(&mut self.resized) {
            if let Some(known) = other.works().find(|known| known.ranks() == own.ranks()) {
                *own = Arc::new(Work {
                    workload: known.workload.clone(),
                    programs: known.programs.clone(),
                    ..(**own).clone()
                });
            }
        }
    }

    /// What it does over every number of ranks, first the one that it asks for.
    pub fn works(&self) -> impl Iterator<Item = &Arc<Work>> {
        std::iter::once(&self.work).chain(&self.resized)
    }

    /// What it does over `ranks`; where that is not known, over those that it asks for.
    pub fn work_of(&self, ranks: usize) -> &Arc<Work> {
        self.works().find(|work| work.ranks() == ranks).unwrap_or(&self.work)
    }
}
