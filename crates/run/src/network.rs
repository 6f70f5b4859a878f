//! The fabric of each fidelity: the host model's costs and the network behind it.

use std::sync::Arc;

use windtunnel_backend::{BackendNetwork, BackendSettings, Library};
use windtunnel_fabric::flow::{FlowNetwork, FlowSettings};
use windtunnel_fabric::host::{Costs, Host, HostSpec, LogGops, Receiver, SharedNics};
use windtunnel_fabric::message::Latency;
use windtunnel_fabric::packet::{PacketModel, PacketSettings};
use windtunnel_fabric::reroute::{Rerouter, SharedRerouter, lock};
use windtunnel_kernel::{BitRate, Bytes, EndpointId, NicId, Span, Time};
use windtunnel_plan::Plan;
use windtunnel_plan::error::InputError;
use windtunnel_plan::jobs::Work;
use windtunnel_plan::network::BackendPlan;
use windtunnel_topology::{Forwarder, LinkId, LoadBalancer, PathClass, Route, Topology};
use windtunnel_workload::{OpKind, Workload};

/// Messages of every size are sent without waiting for their receiver, as NCCL's and RDMA writes are.
const EAGER: Bytes = Bytes(u64::MAX);

/// Routes around what has failed, with an account of their own; `None` where nothing has.
pub fn rerouter(faults: Option<&Forwarder>) -> Option<SharedRerouter> {
    faults.cloned().map(Rerouter::shared)
}

/// The same, also where paths change in mid-run.
pub fn moving_rerouter(plan: &Plan, faults: Option<&Forwarder>) -> Option<SharedRerouter> {
    let impairments = &plan.troubles.impairments;
    let whole = || Forwarder::new(plan.fabric.topology.clone(), impairments.policy);
    let moves = impairments.moves_paths();
    rerouter(faults).or_else(|| moves.then(|| Rerouter::shared(whole())))
}

/// The flow model on the scenario's fabric, around what has failed.
///
/// # Errors
/// [`InputError`] when packets leave no room for payload.
pub fn flow(
    plan: &Plan,
    spec: HostSpec,
    balancer: LoadBalancer,
    observe: bool,
    records: bool,
    rerouter: Option<&SharedRerouter>,
) -> Result<Host<FlowNetwork>, InputError> {
    let slow = &plan.network.packet.settings.slow_links;
    let network = flow_network(plan, slow, balancer, (observe, records), false)?;
    let network = match rerouter {
        Some(rerouter) => network.rerouted(rerouter.clone()),
        None => network,
    };
    Ok(Host::new(spec, free(), network))
}

/// The flow model where no link inside the fabric is shared and none has failed; those of NICs may be `slow`, and latency may come
/// first.
///
/// # Errors
/// As [`flow`].
pub fn ideal(
    plan: &Plan,
    spec: HostSpec,
    slow: &[(LinkId, f64)],
    latency_first: bool,
) -> Result<Host<FlowNetwork>, InputError> {
    let network = flow_network(plan, slow, LoadBalancer::Ideal, (false, false), latency_first)?;
    Ok(Host::new(spec, free(), network))
}

/// Hosts that cost a message nothing.
fn free() -> Costs {
    Costs::uniform(LogGops { eager_limit: EAGER, ..LogGops::default() })
}

fn flow_network(
    plan: &Plan,
    slow: &[(LinkId, f64)],
    balancer: LoadBalancer,
    (observe, records): (bool, bool),
    latency_first: bool,
) -> Result<FlowNetwork, InputError> {
    let (told, parts) = (&plan.network, &plan.fabric);
    let settings = FlowSettings {
        balancer,
        seed: plan.seed,
        mtu: told.mtu,
        header: told.header,
        // Host constants are latency here: what a message costs the processors of both ends delays it, but
        // does not space it from the next. Message rates are the message model's subject.
        nic_latency: parts.nic_latency + parts.overhead * 2,
        reduction: told.reduction,
        alone: plan.jobs.len() == 1,
        latency_first,
        observe_links: observe,
        records,
    };
    FlowNetwork::with_rates(parts.topology.clone(), settings, slow)
        .map_err(|error| InputError::new("network.mtu", error.to_string()))
}

/// NICs that are worth a thread.
const NICS_PER_THREAD: usize = 64;

/// The packet model on the scenario's fabric, around what has failed.
///
/// `start` is when time zero of the network is, from the run's start.
///
/// # Errors
/// [`InputError`] for what the model refuses only on the fabric as it then is.
pub fn packet(
    plan: &Plan,
    spec: HostSpec,
    source: &str,
    records: bool,
    rerouter: Option<&SharedRerouter>,
    start: Time,
    threads: Option<usize>,
) -> Result<Host<Box<dyn PacketModel>>, InputError> {
    let told = &plan.network.packet;
    let mut settings = PacketSettings { records, ..told.settings.clone() };
    settings.parallel.threads = threads.unwrap_or_else(|| {
        // A process for a few NICs has too little to do in a window.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        cores.min(plan.fabric.topology.nics() as usize / NICS_PER_THREAD).max(1)
    });
    settings.impairments = settings.impairments.since(start);
    for background in &mut settings.background {
        *background = background.clone().since(start);
    }
    let network = told
        .transport
        .of
        .network(plan.fabric.topology.clone(), settings, rerouter.cloned())
        .map_err(|error| InputError::new(format!("{source}: network"), error.to_string()))?;
    Ok(Host::new(spec, free(), network))
}

/// The model that `network.backend` names.
///
/// # Errors
/// [`InputError`] for a model that does not open.
pub fn backend(
    plan: &Plan,
    spec: HostSpec,
    library: Library,
    given: &BackendPlan,
    source: &str,
    records: bool,
) -> Result<Host<BackendNetwork>, InputError> {
    let (told, parts) = (&plan.network, &plan.fabric);
    let settings = BackendSettings {
        seed: plan.seed,
        mtu: told.mtu,
        header: told.header,
        parameters: given.parameters.clone(),
        // As in the other models.
        nic_latency: parts.nic_latency + parts.overhead * 2,
        records,
    };
    let network = BackendNetwork::new(library, parts.topology.clone(), &settings).map_err(|error| {
        InputError::new(format!("{source}: network.backend.parameters"), error.to_string())
    })?;
    Ok(Host::new(spec, free(), network))
}

/// The message model on the scenario's fabric: `network.loggops` for all pairs, or parameters per class of path from the
/// topology and the data sheets.
pub fn message(
    plan: &Plan,
    spec: HostSpec,
    records: bool,
    rerouter: Option<&SharedRerouter>,
) -> Host<Latency> {
    let (told, parts) = (&plan.network, &plan.fabric);
    let costs = match told.message.loggops {
        Some(given) => Costs::uniform(given),
        None => with_nics(by_class(plan, rerouter, told.balancer), &parts.topology, spec),
    };
    let costs = costs.with_receiver(told.message.receiver);
    Host::new(spec, costs.clone(), Latency::new(costs).observed(records, parts.topology.scale_up_size()))
}

/// The same where no link inside the fabric is slower than NICs, hosts cost a message nothing, and go on while bytes come in: one
/// message after the other, as packets may go.
pub fn in_turn(plan: &Plan, spec: HostSpec) -> Host<Latency> {
    let free = |class: &LogGops| LogGops { overhead: Span::ZERO, gap: Span::ZERO, ..*class };
    let costs = by_class(plan, None, LoadBalancer::Ideal).map(free);
    let costs = with_nics(costs, &plan.fabric.topology, spec).with_receiver(Receiver::Aside);
    Host::new(spec, costs.clone(), Latency::new(costs))
}

/// `costs` of hosts whose GPUs may share NICs.
fn with_nics(costs: Costs, topology: &Topology, spec: HostSpec) -> Costs {
    match shared_nics(topology, spec.nics) {
        Some(shared) => costs.with_shared_nics(shared),
        None => costs,
    }
}

/// Whether GPUs of a host share NICs.
pub fn shares_nics(topology: &Topology) -> bool {
    topology.nics_per_host() < topology.endpoints_per_host()
}

/// Which NIC each GPU has, of `nics` that its programs name, where GPUs share them; the paths beyond the scale-up domain use it.
fn shared_nics(topology: &Topology, nics: u16) -> Option<SharedNics> {
    let of = |gpu: u32| (0..nics).map(move |nic| topology.nic(EndpointId(gpu), NicId(nic as u8)));
    shares_nics(topology).then(|| SharedNics {
        from_class: 2,
        count: topology.hosts() * topology.nics_per_host(),
        of: (0..topology.endpoints()).flat_map(of).collect(),
    })
}

/// Classes of path that [`Costs`] tells apart at most.
const CLASSES: usize = 256;

/// Latencies that are told apart beyond the scale-up domain at most; the rest are taken as the next longer one.
const LATENCIES: usize = CLASSES - 8;

/// Pairs of hosts that are looked at to learn which latencies there are.
const SAMPLED: u32 = 1 << 14;

/// One parameter set per kind of path: L is the path's latency, G the time per byte, with its header, of the slowest link on it.
///
/// In a Clos a [`PathClass`] is a kind. Elsewhere paths of one class differ in length (the hops of a torus, the distances
/// of buildings), and with faults in every shape: there every latency is a kind of its own.
fn by_class(plan: &Plan, rerouter: Option<&SharedRerouter>, balancer: LoadBalancer) -> Costs {
    let (parts, seed) = (&plan.fabric, plan.seed);
    let topology = &parts.topology;
    let (mtu, header) = (plan.network.mtu.0, plan.network.header.0);
    let inside = |sample: Option<Sample>| LogGops {
        latency: sample.map_or(Span::ZERO, |sample| sample.latency),
        gap_per_byte: sample.map_or(0, |sample| femtoseconds_per_byte(sample.rate, 1, 1)),
        eager_limit: EAGER,
        ..LogGops::default()
    };
    let outside = |sample: Option<Sample>| LogGops {
        latency: sample.map_or(Span::ZERO, |sample| sample.latency) + parts.nic_latency,
        overhead: parts.overhead,
        gap: parts.gap,
        gap_per_byte: sample.map_or(0, |sample| {
            let rate = parts.bus.map_or(sample.rate, |bus| bus.min(sample.rate));
            femtoseconds_per_byte(rate, mtu, mtu - header)
        }),
        overhead_per_byte: 0,
        eager_limit: EAGER,
    };
    let samples = samples(topology, balancer);
    // A class that no path from endpoint 0 is of costs as much as the furthest that one is.
    let furthest =
        samples.iter().skip(PathClass::SameLeaf as usize).flatten().max_by_key(|sample| sample.latency);
    let beyond = |class: PathClass| outside(samples[class as usize].or(furthest.copied()));
    if rerouter.is_none() && topology.shape_name() == "clos" {
        let classes = vec![
            inside(None),
            inside(samples[PathClass::ScaleUp as usize]),
            beyond(PathClass::SameLeaf),
            beyond(PathClass::SamePod),
            beyond(PathClass::Beyond),
            beyond(PathClass::OtherBuilding),
        ];
        let shape = topology.clone();
        return Costs::by_class(classes, Arc::new(move |from, to| shape.path_class(from, to) as usize));
    }
    let router = Router { topology: topology.clone(), seed, rerouter: rerouter.cloned() };
    let latencies = router.latencies();
    let rate = samples.iter().skip(PathClass::SameLeaf as usize).flatten().map(|sample| sample.rate).min();
    let mut classes = vec![inside(None), inside(samples[PathClass::ScaleUp as usize])];
    let beyond = |&latency: &Span| outside(rate.map(|rate| Sample { latency, rate }));
    classes.extend(latencies.iter().map(beyond));
    let class_of = move |from, to| match router.path(from, to) {
        None | Some((PathClass::Local, _)) => 0,
        Some((PathClass::ScaleUp, _)) => 1,
        Some((_, latency)) => {
            2 + latencies.partition_point(|known| *known < latency).min(latencies.len() - 1)
        }
    };
    Costs::by_class(classes, Arc::new(class_of))
}

/// Asks for the paths of pairs, around what has failed.
struct Router {
    topology: Arc<Topology>,
    seed: u64,
    rerouter: Option<SharedRerouter>,
}

impl Router {
    /// Class and latency of a pair's path; `None` if there is none.
    fn path(&self, from: EndpointId, to: EndpointId) -> Option<(PathClass, Span)> {
        let mut route = Route::new();
        match &self.rerouter {
            None => self.topology.route(LoadBalancer::Ecmp, self.seed, from, to, NicId(0), 0, &mut route),
            Some(rerouter) => {
                let mut rerouter = lock(rerouter);
                rerouter.route(LoadBalancer::Ecmp, self.seed, from, to, NicId(0), 0, &mut route)?;
            }
        }
        Some((route.class, route.latency))
    }

    /// The latencies of paths beyond the scale-up domain in ascending order: of all pairs of hosts if there are few, else
    /// of pairs at every distance in host numbers. Never empty.
    fn latencies(&self) -> Vec<Span> {
        let (hosts, per_host) = (self.topology.hosts(), self.topology.endpoints_per_host());
        // Asking here is no use of a pair: the account starts when the run does.
        let asked = self.rerouter.as_ref().map(|rerouter| lock(rerouter).clone());
        let froms = (SAMPLED / hosts.max(1)).clamp(1, hosts);
        let mut found: Vec<Span> = Vec::new();
        for from in (0..froms).map(|index| (u64::from(index) * u64::from(hosts) / u64::from(froms)) as u32) {
            let step = (hosts / SAMPLED).max(1);
            for to in (0..hosts).step_by(step as usize) {
                // Every GPU of a host in turn, so that paths from rail to rail are among them.
                let gpu = (from + to) % per_host;
                let (from, to) = (EndpointId(from * per_host), EndpointId(to * per_host + gpu));
                let path = self.path(from, to).filter(|(class, _)| *class > PathClass::ScaleUp);
                found.extend(path.map(|(_, latency)| latency));
            }
            found.sort_unstable();
            found.dedup();
        }
        if let (Some(rerouter), Some(asked)) = (&self.rerouter, asked) {
            *lock(rerouter) = asked;
        }
        if found.is_empty() {
            found.push(Span::ZERO);
        }
        // Of too many every so many-th, the longest always among them.
        let step = found.len().div_ceil(LATENCIES);
        let kept = found.iter().rev().step_by(step).rev().copied();
        kept.collect()
    }
}

/// A path of a class.
#[derive(Clone, Copy, Debug)]
struct Sample {
    latency: Span,
    rate: BitRate,
}

/// The longest latency and the rate of the slowest link, under `balancer`, seen of each class, from endpoint 0 to its own host, and to every GPU of each power of
/// two of hosts and of the last one: with rails a GPU's class of path is that of its number too.
fn samples(topology: &Topology, balancer: LoadBalancer) -> [Option<Sample>; 6] {
    let mut found: [Option<Sample>; 6] = [None; 6];
    let per_host = topology.endpoints_per_host();
    let near = 1..per_host;
    let far = (0..32).map(|power| 1u32 << power).take_while(|host| *host < topology.hosts());
    let last = topology.hosts().saturating_sub(1);
    let gpus = |host: u32| (0..per_host).map(move |gpu| host * per_host + gpu);
    let hosts = far.chain([last]).flat_map(gpus);
    let mut route = Route::new();
    for to in near.chain(hosts).filter(|&to| to > 0) {
        let (from, to) = (EndpointId(0), EndpointId(to));
        // A link behind the NIC, where messages take one path or parts of all, may be slower than it.
        topology.route(balancer, 0, from, to, NicId(0), 0, &mut route);
        let part =
            |&(link, share): &(LinkId, f64)| topology.link(link).rate.0 as f64 / share.max(f64::MIN_POSITIVE);
        let behind = route.links.iter().map(part).fold(f64::INFINITY, f64::min);
        topology.route(LoadBalancer::Ideal, 0, from, to, NicId(0), 0, &mut route);
        let Some(rate) = route.links.iter().map(|&(link, _)| topology.link(link).rate).min() else {
            continue;
        };
        let rate = if behind < rate.0 as f64 { BitRate(behind as u64) } else { rate };
        let class = &mut found[route.class as usize];
        let longer = class.is_none_or(|known| route.latency > known.latency);
        if longer {
            *class = Some(Sample { latency: route.latency, rate });
        }
    }
    found
}

/// Time per payload byte at `rate` when `wire` bytes carry `payload`.
fn femtoseconds_per_byte(rate: BitRate, wire: u64, payload: u64) -> u64 {
    let numerator = 8 * 1_000_000_000_000_000u128 * u128::from(wire);
    numerator.div_ceil(u128::from(rate.0) * u128::from(payload)) as u64
}

/// Streams and NICs that jobs use for their `works`.
pub fn spec_of<'a>(plan: &Plan, works: impl Iterator<Item = &'a Arc<Work>>) -> HostSpec {
    let endpoints = plan.fabric.topology.endpoints();
    let none = HostSpec { endpoints, streams: 1, nics: 1 };
    works.map(|work| host_spec(&work.workload, endpoints)).fold(none, |sum, spec| HostSpec {
        endpoints,
        streams: sum.streams.max(spec.streams),
        nics: sum.nics.max(spec.nics),
    })
}

/// Streams and NICs that the programs use.
pub fn host_spec(workload: &Workload, endpoints: u32) -> HostSpec {
    let (mut streams, mut nics) = (1, 1);
    for op in workload.programs.iter().flat_map(|program| &program.ops) {
        let (stream, nic) = match op.kind {
            OpKind::Send { stream, nic, .. } => (stream, nic.0),
            OpKind::Calc { stream, .. }
            | OpKind::Receive { stream, .. }
            | OpKind::Collective { stream, .. } => (stream, 0),
        };
        streams = streams.max(u16::from(stream.0) + 1);
        nics = nics.max(u16::from(nic) + 1);
    }
    HostSpec { endpoints, streams, nics }
}
