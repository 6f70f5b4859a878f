//! From a scenario as it is written to a plan: the fabric, the jobs' workloads, and what they rest on.

mod buffers;
mod context;
mod drawn;
mod elastic;
pub mod estimate;
mod experts;
pub mod fabric;
pub mod flows;
mod framework;
pub mod impair;
pub mod jobs;
mod kernels;
mod limits;
pub mod marks;
pub mod model;
mod model_told;
mod model_training;
mod names;
mod nccl;
pub mod network;
mod on_gpus;
mod policies;
mod prices;
pub mod reduce;
mod routes;
pub mod source;
pub mod sources;
pub mod storage;
mod told;
pub mod upkeep;
mod variation;
mod watch;
mod wires;
mod work;

use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::inputs::Inputs;
use windtunnel_plan::jobs::JobPlan;
use windtunnel_plan::modules::Modules;
use windtunnel_plan::settings::{ClusterPlan, ResultsPlan, SourcePlan};
use windtunnel_plan::{InputError, Plan};

use self::marks::Marks;
use crate::schema::{Cluster, Fidelity, Job, Jobs, MemoName, Scenario};

/// Checks `scenario` and makes everything of it that a run needs; `source` is its file's name, `base` where
/// files are, and `modules` what the program brings along.
///
/// # Errors
/// [`InputError`] with the path of the key at fault.
pub fn resolve(
    scenario: Scenario,
    source: &str,
    base: &Inputs,
    modules: Modules,
    progress: &mut dyn FnMut(f64),
) -> Result<Plan, InputError> {
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
    prices::check(&scenario.prices, source)?;
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
    let uneven = variation::check(&scenario.variation, &fabric.topology, source)?;
    variation::check_constants(&scenario, source)?;
    let slow_disks = storage.iter().flat_map(|storage| &storage.slow);
    let routes = routes::routes(&scenario, &fabric.topology, source)?;
    let watching = watch::watching(&scenario, &fabric.topology, source)?;
    // Before the jobs, which may take long.
    let around = network::Around {
        scenario: &scenario,
        fabric: &fabric,
        slow_links: fabric.slow_links(uneven.links.iter().chain(slow_disks).copied()),
        buffers,
        routes,
        watching,
        modules: &modules,
        marks: &marks,
    };
    let mut network = network::plan(around, source, base)?;
    let on_first = context::lies_on_first(&scenario, &modules);
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
        let context =
            context::Context { scenario: &scenario, fabric: &fabric, storage, base, place: &place, on_first };
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
            let context = context::Context {
                scenario: &scenario,
                fabric: &fabric,
                storage,
                base,
                place: &place,
                on_first,
            };
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
        let context =
            context::Context { scenario: &scenario, fabric: &fabric, storage, base, place: &place, on_first };
        plans = drawn::plans(jobs, &drawn, &context, &mut evidence)?;
    }
    limits::messages(&scenario, &fabric.topology, &network, &plans, source)?;
    limits::samples(&scenario, &fabric.topology, network.mtu, source)?;
    reduce::check(&scenario, &network.reduction, &fabric, &plans, source, &mut evidence)?;
    let noise = variation::noise(&scenario.variation, source)?;
    let troubles = impair::troubles(&scenario, &fabric, source, base, &mut evidence)?;
    let upkeep = upkeep::upkeep(&scenario, &fabric, bare, source, base, &mut evidence)?;
    let endpoints = fabric.topology.endpoints();
    let holding = storage.as_ref().map_or(0, |storage| storage.hosts.len() as u32);
    let gpus = endpoints - holding * fabric.topology.endpoints_per_host();
    limits::events(&scenario, &plans, stream.as_ref(), upkeep.as_ref(), gpus, source)?;
    network::meet(&mut network, &scenario, &fabric, &troubles, source, &mut evidence)?;
    if scenario.fidelity == Fidelity::Packet {
        let warnings = marks::tell(&scenario.network, &marks, &mut evidence);
        if let Some(plan) = plans.first_mut() {
            plan.warnings.extend(warnings);
        }
    } else if network.backend.is_none()
        && let Some(plan) = plans.first_mut()
    {
        plan.warnings.extend(network::unsimulated(&scenario.network, scenario.fidelity.name()));
    }
    for plan in &plans {
        for spec in plan.work.workload.programs.iter().flat_map(|program| &program.specs) {
            let algorithm = format!("algorithm `{}`", spec.algorithm.name());
            evidence.add(&format!("collective {}", spec.kind.name()), "given", &algorithm);
        }
    }
    if let Some(placement) = modules.own_placement() {
        evidence.add(&format!("placement {}", placement.name()), "given", OWN);
        for plan in &mut plans {
            plan.placement = placement;
        }
        if let Some(stream) = &mut stream {
            stream.placement = placement;
        }
    }
    if let Some(own) = modules.make_scheduler() {
        evidence.add(&format!("scheduler {}", own.name()), "given", OWN);
    }
    let Scenario { name, seed, fidelity, fold, cluster, results, jobs, .. } = scenario;
    if stream.is_none() && cluster.episodes.memo == MemoName::Symmetric {
        let source = "groups of jobs that lie alike over hosts, leaves and pods count as equal";
        evidence.add("episodes", "inferred", source);
    }
    Ok(Plan {
        name,
        seed,
        fidelity,
        fold,
        fabric,
        network,
        cluster: cluster_plan(cluster),
        jobs: plans,
        source: match jobs {
            Jobs::List(_) => None,
            Jobs::Source(source) => {
                Some(SourcePlan { log: source.log, queue: source.queue, ends: source.ends })
            }
        },
        stream,
        log,
        noise,
        speeds: uneven.speeds,
        slow_nics: uneven.nics,
        troubles,
        upkeep,
        storage_hosts: storage.map_or_else(Vec::new, |storage| storage.hosts),
        slow_links: uneven.links,
        results: ResultsPlan {
            flows: results.flows,
            queues: results.queues.map(|every| every.0),
            queue_pairs: results.queue_pairs.is_some(),
            packets: results.packets.is_some(),
            ideal: results.ideal,
        },
        evidence,
        modules,
        inputs: base.clone(),
    })
}

/// Where a class that a program hands over comes from.
const OWN: &str = "a class of the user's own";

fn cluster_plan(cluster: Cluster) -> ClusterPlan {
    let Cluster { scheduler, slice, slice_rows, regions, reaction_delay, episodes, .. } = cluster;
    ClusterPlan { scheduler, slice: slice.0, slice_rows, regions, reaction_delay: reaction_delay.0, episodes }
}
