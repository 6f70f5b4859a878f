//! Jobs: what each does, where its operations come from, and which ranks are watched.

use std::sync::Arc;

use windtunnel_cluster::life::Life;
use windtunnel_kernel::{CalendarTime, RankId, StreamId};
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::fabric::FabricParts;
use windtunnel_plan::inputs::Inputs;
use windtunnel_plan::jobs::{JobPlan, ModelFacts, Work};
use windtunnel_plan::load::Load;
use windtunnel_plan::origin::Origin;
use windtunnel_workload::collectives::{CollectiveSpec, Plan, Whole, neighbours};
use windtunnel_workload::program::{Binding, Communicator};
use windtunnel_workload::{CommSlot, Dimension, ProgramBuilder, Workload};

use super::sources::{self, Asked};
use super::storage::StoragePlan;
use super::{elastic, nccl, operations, policies};
use crate::schema::{
    CalendarSpan, CollectiveJob, Fidelity, Job, Jobs, Name, OperationsTable, Scenario, WorkloadSource,
};

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

/// Builds a job.
///
/// # Errors
/// [`InputError`] with the path of the key at fault.
pub fn plan(job: &Job, context: &Context<'_>, evidence: &mut EvidenceList) -> Result<JobPlan, InputError> {
    let place = context.place;
    if job.iterations == 0 {
        return Err(InputError::new(format!("{place}.iterations"), "expected at least 1 iteration, found 0"));
    }
    let placement = policies::placement(&job.placement, place)?;
    let locality = policies::locality(&job.locality, place)?;
    let built = build(job, context, evidence)?;
    let (ranks, gpus) = (built.workload.ranks(), context.gpus() as usize);
    if ranks > gpus {
        return Err(InputError::new(
            place,
            format!("the job has {ranks} ranks, but the topology has {gpus} GPUs"),
        )
        .hint("raise `topology.hosts`, or lower the job's parallelism"));
    }
    let (mut loading, mut load) = (None, None);
    if let Some(data) = &job.data {
        let (alone, hosts) =
            operations::loading(data, context.storage, &context.fabric.topology, ranks as u32, place)?;
        loading = Some(alone);
        load = context
            .storage
            .filter(|_| !hosts.is_empty())
            .and_then(|storage| storage.load(data.bytes.0.get(), &hosts, ranks as u32));
    }
    let region = job.data.as_ref().and_then(|data| data.region);
    let cluster = &context.scenario.cluster;
    let life = operations::life(job.checkpoint.as_ref(), job.restart, loading, region, cluster, place)?;
    let (elastic, resized) = elastic::sizes(job, ranks as u32, load.as_ref(), context, evidence)?;
    if let Some(duration) = job.duration {
        operations::check_length(
            duration.0.ns_ceil(),
            job.iterations,
            ranks as u32,
            elastic.as_ref(),
            &life,
            place,
        )?;
    }
    let warnings = built.warnings.clone();
    let model = built.model.clone();
    Ok(JobPlan {
        name: job.name.clone(),
        work: Arc::new(built.into_work(load, context)),
        resized,
        iterations: job.iterations,
        submit: CalendarTime::from_ns(job.submit.0),
        placement,
        locality,
        priority: job.priority,
        duration: job.duration.map(|duration| duration.0),
        estimate: job.estimate.map(|estimate| estimate.0),
        deadline: deadline(job, place)?,
        life: Life { elastic, ..life },
        samples: job.workload.as_ref().and_then(|workload| workload.global_batch),
        lasts: None,
        line: 0,
        origin: Origin::default(),
        model,
        warnings,
    })
}

pub(super) fn build(
    job: &Job,
    context: &Context<'_>,
    evidence: &mut EvidenceList,
) -> Result<Built, InputError> {
    let place = format!("{}.workload", context.place);
    let Some(source) = &job.workload else { return timed(job, context) };
    if job.gpus.is_some() {
        let message = "the workload says how many GPUs the job needs";
        return Err(InputError::new(format!("{}.gpus", context.place), message));
    }
    let of = sources::asked_for(source, &place)?;
    let mut built = built_from(of, source, job, context, evidence)?;
    nccl::equip(&mut built.workload, job, context, evidence)?;
    Ok(built)
}

fn built_from(
    of: &sources::Source,
    source: &WorkloadSource,
    job: &Job,
    context: &Context<'_>,
    evidence: &mut EvidenceList,
) -> Result<Built, InputError> {
    let place = format!("{}.workload", context.place);
    if source.model.is_none() {
        let model_only = [
            ("global_batch", source.global_batch.is_some()),
            ("micro_batch", source.micro_batch.is_some()),
            ("sequence", source.sequence.is_some()),
            ("training", source.training.is_some()),
        ];
        if let Some((key, _)) = model_only.iter().find(|(_, given)| *given) {
            return Err(InputError::new(format!("{place}.{key}"), format!("`{key}` belongs to a `model`")));
        }
        if job.parallelism.is_some() {
            let at = format!("{}.parallelism", context.place);
            return Err(InputError::new(at, "`parallelism` lays out a `model`, but the workload names none"));
        }
    }
    (of.read)(&Asked { written: source, job, context, place: &place }, evidence)
}

/// Nanoseconds in which a job should have ended.
fn deadline(job: &Job, place: &str) -> Result<u64, InputError> {
    match job.deadline {
        None => Ok(u64::MAX),
        Some(CalendarSpan(0)) => {
            let at = format!("{place}.deadline");
            Err(InputError::new(at, "expected a time above 0 from the submission, found 0"))
        }
        Some(deadline) => Ok(deadline.0),
    }
}

/// A job of which only size and duration are known.
fn timed(job: &Job, context: &Context<'_>) -> Result<Built, InputError> {
    let at = |key: &str| format!("{}.{key}", context.place);
    if context.scenario.fidelity != Fidelity::Job || job.duration.is_none() {
        return Err(InputError::new(context.place, "`workload` is missing")
            .hint("at `fidelity: job`, `gpus` and `duration` do instead"));
    }
    let gpus = job.gpus.ok_or_else(|| {
        InputError::new(at("gpus"), "a job without a workload says how many GPUs it needs")
            .hint("such as `gpus: 64`")
    })?;
    if gpus == 0 {
        return Err(InputError::new(at("gpus"), "expected at least 1 GPU, found 0"));
    }
    // Refused before it is built: the number may be a slip.
    if gpus > context.gpus() {
        let message = format!("the job needs {gpus} GPUs, but the topology has {}", context.gpus());
        return Err(InputError::new(at("gpus"), message).hint("raise `topology.hosts`"));
    }
    let program = ProgramBuilder::new().finish().expect("no operations depend on none");
    let mut workload = Workload { programs: vec![program], ..Workload::default() };
    for _ in 0..gpus {
        workload.add_rank(0, &[]);
    }
    Ok(Built::plain(workload))
}

/// A job of one collective.
pub(super) fn collective_workload(
    job: &CollectiveJob,
    context: &Context<'_>,
    place: &str,
) -> Result<Workload, InputError> {
    let ranks = job.ranks.unwrap_or_else(|| context.gpus());
    if ranks == 0 {
        return Err(InputError::new(format!("{place}.ranks"), "expected at least 1 rank, found 0"));
    }
    let Name(Whole(kind)) = job.kind;
    let mut spec = CollectiveSpec::new(kind, job.bytes.0);
    spec.algorithm = job.algorithm.0;
    spec.form = job.form.0;
    spec.outstanding = job.outstanding;
    let members: Vec<RankId> = (0..ranks).map(RankId).collect();
    spec.domain = neighbours([members.as_slice()], context.fabric.topology.scale_up_size());
    Plan::new(&spec, ranks).map_err(|error| InputError::new(place, error.to_string()))?;
    let mut builder = ProgramBuilder::new();
    let label = builder.label(kind.name());
    builder.collective(CommSlot(0), spec, Dimension::Other, StreamId(0), label);
    let mut workload =
        Workload { programs: vec![builder.finish().expect("one operation")], ..Workload::default() };
    let members = (0..ranks).map(RankId).collect();
    workload.communicators.push(Communicator { name: "world".to_owned(), ranks: members });
    for index in 0..ranks {
        workload.add_rank(0, &[Binding { communicator: 0, index }]);
    }
    Ok(workload)
}
