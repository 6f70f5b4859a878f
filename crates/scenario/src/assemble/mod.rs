//! From a scenario as it is written to one that can run: the fabric, the jobs' workloads, and what they rest on.

mod buffers;
mod drawn;
mod elastic;
pub mod evidence;
pub mod fabric;
pub mod flows;
pub mod impair;
pub mod jobs;
mod limits;
pub mod marks;
pub mod model;
mod nccl;
pub mod network;
pub mod operations;
pub mod origin;
pub mod plant;
mod policies;
pub mod reduce;
mod routes;
pub mod source;
pub mod storage;
mod variation;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use windtunnel_backend::Library;
use windtunnel_cluster::life::Life;
use windtunnel_cluster::placement::{Locality, Placement};
use windtunnel_cluster::variation::Noise;
use windtunnel_kernel::{CalendarTime, RankId, Span};
use windtunnel_topology::LinkId;
use windtunnel_workload::Workload;

use self::evidence::EvidenceList;
use self::fabric::FabricParts;
use self::impair::Troubles;
use self::marks::Marks;
use self::network::NetworkPlan;
use self::operations::OperationsPlan;
use self::origin::{LogAccount, Origin};
use self::source::JobStream;
use self::storage::{Load, StoragePlan};
use crate::error::InputError;
use crate::inputs::Inputs;
use crate::modules::Modules;
use crate::schema::{Fidelity, Job, Jobs, Scenario};

/// What is known of a job that trains a model.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// Tokens per iteration.
    pub tokens: u64,
    /// Model FLOPs per iteration (the numerator of MFU).
    pub flops: f64,
    /// Peak rate of a GPU in FLOP/s at the training precision.
    pub peak_flops: f64,
    /// What kind of prediction the iteration time is ([`crate::error_bands`]).
    pub kind: &'static str,
    /// Bytes per GPU by use, of the rank that needs most, with `total` and `capacity`.
    pub memory: Value,
    /// Layers, bytes, FLOPs and memory per pipeline rank, for `--explain`.
    pub explanation: Value,
}

impl ModelFacts {
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
}

impl Work {
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

    /// Takes the operations of `other`, a job that does the same, wherever both have as many ranks.
    fn share(&mut self, other: &Self) {
        for own in std::iter::once(&mut self.work).chain(&mut self.resized) {
            if let Some(known) = other.works().find(|known| known.ranks() == own.ranks()) {
                *own = Arc::new(Work { workload: known.workload.clone(), ..(**own).clone() });
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

/// A scenario that can run.
pub struct Assembled {
    /// As it was written.
    pub scenario: Scenario,
    /// The fabric.
    pub fabric: FabricParts,
    /// What messages, flows and packets are told of it.
    pub network: NetworkPlan,
    /// The jobs, if they are listed.
    pub jobs: Vec<JobPlan>,
    /// The jobs, if they come from a log or the shape of one.
    pub stream: Option<JobStream>,
    /// What became of the rows of their log, if they come from one.
    pub log: Option<LogAccount>,
    /// Noise of computations.
    pub noise: Noise,
    /// What goes wrong on the fabric.
    pub troubles: Troubles,
    /// What fails, is drained and is kept back; `None`: nothing.
    pub operations: Option<OperationsPlan>,
    /// The hosts that hold data.
    pub storage: Option<StoragePlan>,
    /// Links that run at a part of their rate, besides those of storage hosts and buses.
    pub slow_links: Vec<(LinkId, f64)>,
    /// What the results rest on.
    pub evidence: EvidenceList,
    /// What the program brings along.
    pub modules: Modules,
    /// The files and sheets that it was built from.
    pub inputs: Inputs,
    /// The library of `network.backend`, once a run has loaded it with the caller's consent.
    pub library: Option<Library>,
}

/// Checks `scenario` and builds everything that a run needs; `source` is its file's name, `base` the folder of relative
/// paths, and `modules` what the program brings along.
///
/// # Errors
/// [`InputError`] with the path of the key at fault.
pub fn assemble(
    scenario: Scenario,
    source: &str,
    base: &Path,
    modules: Modules,
    progress: &mut dyn FnMut(f64),
) -> Result<Assembled, InputError> {
    let base = &Inputs::of(base);
    let at = |key: &str| format!("{source}: {key}");
    if scenario.windtunnel != 1 {
        let found =
            format!("`windtunnel` is the version of the format, found {}, expected 1", scenario.windtunnel);
        return Err(InputError::new(at("windtunnel"), found));
    }
    if scenario.name.trim().is_empty() {
        return Err(InputError::new(at("name"), "expected a name, found an empty text"));
    }
    if matches!(&scenario.jobs, Jobs::List(jobs) if jobs.is_empty()) {
        return Err(InputError::new(at("jobs"), "there is no job"));
    }
    policies::check(&scenario.cluster, source)?;
    let mut evidence = EvidenceList::default();
    let mut topology = fabric::resolve(&scenario.topology, source, "topology", base)?;
    let bare = source::needs_no_network(&scenario) && fabric::without_switches(&mut topology.keys);
    let fabric = fabric::fabric(&topology, scenario.network.load_balancer.hash.of(), &mut evidence)?;
    limits::fabric(&scenario, &fabric.topology, source)?;
    let buffers = {
        // Read at every fidelity, so that what is wrong is told, but packets alone rest on them.
        let (mut unused, packets) = (EvidenceList::default(), scenario.fidelity == Fidelity::Packet);
        let evidence = if packets { &mut evidence } else { &mut unused };
        buffers::buffers(&scenario.network, &fabric.topology, &topology, source, evidence)?
    };
    let marks = match scenario.fidelity {
        Fidelity::Packet => Marks::new(&scenario.network, &fabric.topology, &buffers),
        _ => Marks::default(),
    };
    let storage = storage::storage(&scenario, &fabric.topology, source, &mut evidence)?;
    let slow_links = variation::check(&scenario.variation, &fabric.topology, source)?;
    let routes = routes::routes(&scenario, &fabric.topology, source)?;
    // Before the jobs, which may take long.
    let around = network::Around {
        scenario: &scenario,
        fabric: &fabric,
        slow_links: all_slow_links(&slow_links, storage.as_ref(), &fabric),
        buffers,
        routes,
        modules: &modules,
        marks: &marks,
    };
    let mut network = network::plan(around, source, base)?;
    let mut plans: Vec<JobPlan> = Vec::new();
    // The fabric counts as one job.
    let parts = scenario.jobs.list().len() as f64 + 1.0;
    for (index, job) in scenario.jobs.list().iter().enumerate() {
        progress((index as f64 + 1.0) / parts);
        let place = at(&format!("jobs[{index}]"));
        if job.name.trim().is_empty() {
            return Err(InputError::new(format!("{place}.name"), "expected a name, found an empty text"));
        }
        if plans.iter().any(|plan| plan.name == job.name) {
            return Err(InputError::new(format!("{place}.name"), format!("`{}` names two jobs", job.name)));
        }
        let storage = storage.as_ref();
        let context = jobs::Context { scenario: &scenario, fabric: &fabric, storage, base, place: &place };
        let mut plan = jobs::plan(job, &context, &mut evidence)?;
        // Jobs that do the same share their operations, and episodes know them as the same.
        let same = |other: &Job| format!("{:?} {:?}", other.workload, other.parallelism);
        let earlier = &scenario.jobs.list()[..index];
        if job.workload.is_some()
            && let Some(known) = earlier.iter().position(|other| same(other) == same(job))
        {
            plan.share(&plans[known]);
        }
        plans.push(plan);
    }
    let mut stream = match &scenario.jobs {
        Jobs::List(_) => None,
        Jobs::Source(jobs) => {
            let place = at("jobs");
            let storage = storage.as_ref();
            let context =
                jobs::Context { scenario: &scenario, fabric: &fabric, storage, base, place: &place };
            Some(source::stream(jobs, &context, &mut evidence)?)
        }
    };
    let log = stream.as_ref().and_then(|stream| stream.log.clone());
    if let Jobs::Source(jobs) = &scenario.jobs
        && !jobs.workloads.is_empty()
        && let Some(drawn) = stream.take()
    {
        let place = at("jobs");
        let storage = storage.as_ref();
        let context = jobs::Context { scenario: &scenario, fabric: &fabric, storage, base, place: &place };
        plans = drawn::plans(jobs, &drawn, &context, &mut evidence)?;
    }
    limits::messages(&scenario, &fabric.topology, &network, &plans, source)?;
    reduce::check(&scenario, &network.reduction, &fabric, &plans, source, &mut evidence)?;
    let noise = variation::noise(&scenario.variation, source)?;
    let troubles = impair::troubles(&scenario, &fabric, source, base, &mut evidence)?;
    let operations = operations::operations(&scenario, &fabric, bare, source, base, &mut evidence)?;
    network.meet(&scenario, &fabric, &troubles, source, &mut evidence)?;
    if scenario.fidelity == Fidelity::Packet {
        let warnings = marks::tell(&scenario.network, &marks, &mut evidence);
        if let Some(plan) = plans.first_mut() {
            plan.warnings.extend(warnings);
        }
    }
    Ok(Assembled {
        scenario,
        fabric,
        network,
        jobs: plans,
        stream,
        log,
        noise,
        troubles,
        operations,
        storage,
        slow_links,
        evidence,
        modules,
        inputs: base.clone(),
        library: None,
    })
}

/// All links that run at a part of their rate, each once: the product of what slows it down, if what joins a NIC to its host is
/// not slower still.
fn all_slow_links(
    varied: &[(LinkId, f64)],
    storage: Option<&StoragePlan>,
    fabric: &FabricParts,
) -> Vec<(LinkId, f64)> {
    let storage = storage.iter().flat_map(|storage| &storage.slow);
    let mut parts: BTreeMap<LinkId, f64> = BTreeMap::new();
    for &(link, part) in varied.iter().chain(storage) {
        *parts.entry(link).or_insert(1.0) *= part;
    }
    for (link, share) in fabric.bus_links() {
        let part = parts.entry(link).or_insert(1.0);
        *part = part.min(share);
    }
    parts.into_iter().collect()
}

impl Assembled {
    /// Hosts that hold data and compute nothing, in ascending order.
    pub fn storage_hosts(&self) -> &[u32] {
        self.storage.as_ref().map_or(&[], |storage| &storage.hosts)
    }

    /// What would run, for `--explain`.
    pub fn explanation(&self) -> Value {
        let jobs: Vec<Value> = self
            .jobs
            .iter()
            .map(|plan| {
                let workload = &plan.work.workload;
                json!({
                    "name": plan.name,
                    "ranks": plan.ranks(),
                    "programs": workload.programs.len(),
                    "operations": workload.operations(),
                    "resized": plan.resized.iter().map(|work| work.ranks()).collect::<Vec<_>>(),
                    "communicators": workload.communicators.len(),
                    "model": plan.model.as_ref().map(|model| model.explanation.clone()),
                    "memory": plan.model.as_ref().map(|model| model.memory.clone()),
                    "warnings": plan.warnings,
                })
            })
            .collect();
        let topology = &self.fabric.topology;
        json!({
            "scenario": self.scenario.name,
            "fidelity": self.scenario.fidelity.name(),
            "topology": {"hosts": topology.hosts(), "gpus": topology.endpoints(), "links": topology.link_count()},
            "jobs": jobs,
            "drawn": self.stream.as_ref().map(JobStream::explanation),
            "evidence": self.evidence.rows(),
        })
    }
}
