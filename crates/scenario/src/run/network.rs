//! The fabric of each fidelity: the host model's costs and the network behind it.

use std::sync::Arc;

use windtunnel_backend::{BackendNetwork, BackendSettings, Library};
use windtunnel_fabric::flow::{FlowNetwork, FlowSettings};
use windtunnel_fabric::host::{Costs, Host, HostSpec, LogGops, Receiver, SharedNics};
use windtunnel_fabric::message::Latency;
use windtunnel_fabric::packet::transport::{Dcqcn, Transport};
use windtunnel_fabric::packet::{
    Balancer, Forwarding, PacketError, PacketModel, PacketSettings, ParallelSettings, TrimSettings,
};
use windtunnel_fabric::reroute::{Rerouter, SharedRerouter, lock};
use windtunnel_kernel::{BitRate, Bytes, EndpointId, NicId, Span, Time};
use windtunnel_topology::{Forwarder, LoadBalancer, PathClass, Route, Topology};

use windtunnel_workload::{OpKind, Workload};

use super::chosen::{self, Chosen};
use crate::assemble::fabric::FabricParts;
use crate::assemble::marks::marking;
use crate::assemble::reduce;
use crate::assemble::{Assembled, Work};
use crate::error::InputError;
use crate::schema::{Backend, ForwardingName, LoadBalancerName, ReceiverName, Scenario};

use super::queues::{Switching, switching};

/// Messages of every size are sent without waiting for their receiver, as NCCL's and RDMA writes are.
const EAGER: Bytes = Bytes(u64::MAX);

/// The topology's name for the scenario's.
pub const fn balancer(name: LoadBalancerName) -> LoadBalancer {
    match name {
        LoadBalancerName::Ecmp | LoadBalancerName::Flowlet => LoadBalancer::Ecmp,
        LoadBalancerName::DestinationModulo => LoadBalancer::DestinationModulo,
        LoadBalancerName::Spray | LoadBalancerName::Adaptive | LoadBalancerName::Reps => LoadBalancer::Spray,
        LoadBalancerName::Ideal => LoadBalancer::Ideal,
    }
}

/// Routes around what has failed, with an account of their own; `None` where nothing has.
pub fn rerouter(faults: Option<&Forwarder>) -> Option<SharedRerouter> {
    faults.cloned().map(Rerouter::shared)
}

/// The same, also where paths change in mid-run.
pub fn moving_rerouter(assembled: &Assembled, faults: Option<&Forwarder>) -> Option<SharedRerouter> {
    let impairments = &assembled.troubles.impairments;
    let whole = || Forwarder::new(assembled.fabric.topology.clone(), impairments.policy);
    let moves = impairments.moves_paths();
    rerouter(faults).or_else(|| moves.then(|| Rerouter::shared(whole())))
}

/// The flow model on the scenario's fabric, around what has failed.
///
/// # Errors
/// [`InputError`] when packets leave no room for payload.
pub fn flow(
    assembled: &Assembled,
    spec: HostSpec,
    balancer: LoadBalancer,
    observe: bool,
    records: bool,
    rerouter: Option<&SharedRerouter>,
) -> Result<Host<FlowNetwork>, InputError> {
    let (scenario, parts) = (&assembled.scenario, &assembled.fabric);
    let settings = FlowSettings {
        balancer,
        seed: scenario.seed,
        mtu: scenario.network.mtu.0,
        header: scenario.network.header.0,
        // Host constants are latency here (DESIGN §5): what a message costs the processors of both ends delays it, but
        // does not space it from the next. Message rates are the message model's subject.
        nic_latency: parts.nic_latency + parts.overhead * 2,
        reduction: reduce::settings(&scenario.network),
        alone: assembled.jobs.len() == 1,
        observe_links: observe,
        records,
    };
    let slow = assembled.all_slow_links();
    let network = FlowNetwork::with_rates(parts.topology.clone(), settings, &slow)
        .map_err(|error| InputError::new("network.mtu", error.to_string()))?;
    let network = match rerouter {
        Some(rerouter) => network.rerouted(rerouter.clone()),
        None => network,
    };
    let costs = Costs::uniform(LogGops { eager_limit: EAGER, ..LogGops::default() });
    Ok(Host::new(spec, costs, network))
}

/// NICs that are worth a thread.
const NICS_PER_THREAD: usize = 64;

/// The packet model on the scenario's fabric, around what has failed.
///
/// # Errors
/// As [`packet_settings`]; `start` is when time zero of the network is, from the run's start. Buffers too small for a switch's ports.
pub fn packet(
    assembled: &Assembled,
    spec: HostSpec,
    source: &str,
    records: bool,
    rerouter: Option<&SharedRerouter>,
    start: Time,
    threads: Option<usize>,
) -> Result<Host<Box<dyn PacketModel>>, InputError> {
    let (transport, mut settings) = packet_settings(assembled, source, records)?;
    settings.parallel.threads = threads.unwrap_or_else(|| {
        // A process for a few NICs has too little to do in a window.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        cores.min(assembled.fabric.topology.nics() as usize / NICS_PER_THREAD).max(1)
    });
    settings.impairments = settings.impairments.since(start);
    for background in &mut settings.background {
        *background = background.clone().since(start);
    }
    let network = transport
        .of
        .network(assembled.fabric.topology.clone(), settings, rerouter.cloned())
        .map_err(|error| InputError::new(format!("{source}: network"), error.to_string()))?;
    let costs = Costs::uniform(LogGops { eager_limit: EAGER, ..LogGops::default() });
    Ok(Host::new(spec, costs, network))
}

/// The library that `network.backend` names.
///
/// # Errors
/// [`InputError`] for one that cannot be used, or a scenario with what it is not told of.
pub fn library(assembled: &Assembled, given: &Backend, source: &str) -> Result<Library, InputError> {
    let parts = &assembled.fabric;
    let place = |key: &str| format!("{source}: network.backend.{key}");
    if parts.faults.is_some() {
        let message = "a model of one's own is not told what has failed";
        return Err(InputError::new(place("library"), message).hint("leave `topology.failed` out"));
    }
    if assembled.storage.as_ref().is_some_and(|storage| !storage.slow.is_empty()) {
        let message = "a model of one's own is not told how fast storage hosts read";
        return Err(InputError::new(place("library"), message).hint("leave `cluster.storage.rate` out"));
    }
    if let Some((link, _)) = assembled.slow_links.first() {
        let name = parts.topology.link_name(*link);
        let message = format!("a model of one's own is not told what is slow, `{name}` among others");
        return Err(InputError::new(place("library"), message).hint("leave `variation.nics` out"));
    }
    if parts.bus_links().next().is_some() {
        let message = "a model of one's own is not told of a bus that is slower than the NIC";
        return Err(InputError::new(place("library"), message).hint("leave `topology.host.nic_bus.rate` out"));
    }
    let network = &assembled.troubles;
    if !network.impairments.losses.is_empty()
        || !network.impairments.changes.is_empty()
        || !network.background.is_empty()
    {
        let message = "a model of one's own is not told what goes wrong";
        return Err(InputError::new(place("library"), message).hint("leave `impairments` out"));
    }
    Library::load(&assembled.base.join(&given.library))
        .map_err(|error| InputError::new(place("library"), error.to_string()))
}

/// The model that `network.backend` names.
///
/// # Errors
/// [`InputError`] for a library that cannot be used, or a model that does not open.
pub fn backend(
    assembled: &Assembled,
    spec: HostSpec,
    given: &Backend,
    source: &str,
    records: bool,
) -> Result<Host<BackendNetwork>, InputError> {
    let (scenario, parts) = (&assembled.scenario, &assembled.fabric);
    let place = |key: &str| format!("{source}: network.backend.{key}");
    let library = library(assembled, given, source)?;
    let settings = BackendSettings {
        seed: scenario.seed,
        mtu: scenario.network.mtu.0,
        header: scenario.network.header.0,
        parameters: serde_json::Value::from(given.parameters.clone()).to_string(),
        // As in the other models.
        nic_latency: parts.nic_latency + parts.overhead * 2,
        records,
    };
    let network = BackendNetwork::new(library, parts.topology.clone(), &settings)
        .map_err(|error| InputError::new(place("parameters"), error.to_string()))?;
    let costs = Costs::uniform(LogGops { eager_limit: EAGER, ..LogGops::default() });
    Ok(Host::new(spec, costs, network))
}

/// What the packet model is told.
///
/// # Errors
/// [`InputError`] for an unknown transport, or settings that cannot work on any fabric.
pub fn packet_settings(
    assembled: &Assembled,
    source: &str,
    records: bool,
) -> Result<(Chosen, PacketSettings), InputError> {
    let (scenario, parts) = (&assembled.scenario, &assembled.fabric);
    let network = &scenario.network;
    let place = |key: &str| format!("{source}: network.{key}");
    let transport = chosen::transport(assembled, source)?;
    let balancer = match network.load_balancer.name {
        LoadBalancerName::Ecmp => Balancer::Ecmp,
        LoadBalancerName::DestinationModulo => Balancer::DestinationModulo,
        LoadBalancerName::Spray => Balancer::Spray { paths: network.paths },
        LoadBalancerName::Flowlet => Balancer::Flowlet { gap: network.flowlet_gap.0 },
        LoadBalancerName::Adaptive => Balancer::Adaptive,
        LoadBalancerName::Reps => Balancer::Reps { paths: network.paths },
        LoadBalancerName::Ideal => {
            let message = "`ideal` shares no path inside the fabric, but packets take real ones";
            return Err(InputError::new(place("load_balancer"), message)
                .hint("expected `ecmp`, `destination_modulo`, `spray`, `flowlet`, `adaptive` or `reps`"));
        }
    };
    if network.parallel.processes == Some(0) {
        return Err(InputError::new(place("parallel.processes"), "expected at least 1 process, found 0"));
    }
    let Switching { queues, discipline, classes, colors, pull, pfc } =
        switching(network, &assembled.marks, source)?;
    let settings = PacketSettings {
        seed: scenario.seed,
        mtu: network.mtu.0,
        header: network.header.0,
        control: network.control.0,
        ack_every: network.ack_every,
        forwarding: match network.forwarding {
            ForwardingName::StoreAndForward => Forwarding::StoreAndForward,
            ForwardingName::CutThrough => Forwarding::CutThrough,
        },
        balancer,
        buffers: assembled.buffers.clone(),
        ecn: Some(marking(&network.ecn, &assembled.marks)),
        trimming: network
            .trimming
            .as_ref()
            .map(|trimming| TrimSettings { queue: trimming.queue.map(|queue| queue.0) }),
        telemetry: network.telemetry,
        queue_pairs: network.queue_pairs,
        in_flight: in_flight(assembled, balancer, &transport),
        // As in the flow model.
        nic_latency: parts.nic_latency + parts.overhead * 2,
        slow_links: assembled.all_slow_links(),
        queues,
        discipline,
        classes,
        colors,
        pull,
        pfc,
        reduction: reduce::settings(network),
        parallel: ParallelSettings {
            processes: network.parallel.processes.map(|processes| processes as usize),
            threshold: network.parallel.zeta.map(|zeta| zeta.0),
            ..ParallelSettings::default()
        },
        routes: assembled.routes.clone(),
        impairments: assembled.troubles.impairments.clone(),
        background: assembled.troubles.background.clone(),
        sample_every: scenario.results.queues.map(|every| every.0),
        records,
    };
    settings.check().map_err(|error| InputError::new(format!("{source}: network"), error.to_string()))?;
    let needs = transport.of.check(&settings);
    needs.map_err(|error| {
        let refused = InputError::new(place("transport"), error.to_string());
        match error {
            PacketError::Needs { key: "trimming", .. } => {
                refused.hint("set `network.trimming: {queue: 64 KB}`")
            }
            PacketError::Needs { key: "telemetry", .. } => refused.hint("set `network.telemetry: true`"),
            _ => refused,
        }
    })?;
    Ok((transport, settings))
}

/// Packets that a queue pair of RoCE tracks where its NIC's sheet does not say: those of ConnectX-6.
const TRACKED: u32 = 512;

/// Packets that a queue pair may have under way.
fn in_flight(assembled: &Assembled, balancer: Balancer, transport: &Chosen) -> u32 {
    let roce = transport.name == Dcqcn::NAME;
    let spreads = matches!(balancer, Balancer::Spray { .. } | Balancer::Adaptive | Balancer::Reps { .. });
    let sheet = assembled.fabric.nic.as_ref().and_then(|nic| nic.in_flight.as_ref());
    let tracked = sheet.map_or(TRACKED, |figure| u32::try_from(figure.value).unwrap_or(u32::MAX));
    let default = if roce && spreads { tracked } else { u32::MAX };
    assembled.scenario.network.in_flight.unwrap_or(default)
}

/// The message model on the scenario's fabric: `network.loggops` for all pairs, or parameters per class of path from the
/// topology and the data sheets.
///
/// # Errors
/// [`InputError`] for parameters out of range.
pub fn message(
    assembled: &Assembled,
    spec: HostSpec,
    source: &str,
    records: bool,
    rerouter: Option<&SharedRerouter>,
) -> Result<Host<Latency>, InputError> {
    let (scenario, parts) = (&assembled.scenario, &assembled.fabric);
    let receiver = match scenario.network.receiver {
        ReceiverName::Held => Receiver::Held,
        ReceiverName::Free => Receiver::Free,
    };
    let costs = match &scenario.network.loggops {
        Some(given) => {
            let per_byte = |key: &str, value: f64| {
                let femtoseconds = value * 1e6;
                if (0.0..1e15).contains(&femtoseconds) {
                    return Ok(femtoseconds.round() as u64);
                }
                let place = format!("{source}: network.loggops.{key}");
                Err(InputError::new(place, format!("expected nanoseconds per byte from 0 on, found {value}")))
            };
            Costs::uniform(LogGops {
                latency: given.L.0,
                overhead: given.o.0,
                gap: given.g.0,
                gap_per_byte: per_byte("G", given.G)?,
                overhead_per_byte: per_byte("O", given.O)?,
                eager_limit: given.S.0,
            })
        }
        None => match shared_nics(&parts.topology, spec.nics) {
            Some(shared) => by_class(scenario, parts, rerouter).with_shared_nics(shared),
            None => by_class(scenario, parts, rerouter),
        },
    };
    let costs = costs.with_receiver(receiver);
    Ok(Host::new(spec, costs.clone(), Latency::new(costs).observed(records)))
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

/// One parameter set per kind of path: L is the path's latency, G the slower end's time per byte with its header.
///
/// In a Clos a [`PathClass`] is a kind. Elsewhere paths of one class differ in length (the hops of a torus, the distances
/// of buildings), and with faults in every shape: there every latency is a kind of its own.
fn by_class(scenario: &Scenario, parts: &FabricParts, rerouter: Option<&SharedRerouter>) -> Costs {
    let topology = &parts.topology;
    let (mtu, header) = (scenario.network.mtu.0.0, scenario.network.header.0.0);
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
    let samples = samples(topology);
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
    let router = Router { topology: topology.clone(), seed: scenario.seed, rerouter: rerouter.cloned() };
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

/// The longest latency and slowest end link seen of each class, from endpoint 0 to its own host, and to every GPU of each power of
/// two of hosts and of the last one: with rails a GPU's class of path is that of its number too.
fn samples(topology: &Topology) -> [Option<Sample>; 6] {
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
        topology.route(LoadBalancer::Ideal, 0, from, to, NicId(0), 0, &mut route);
        let Some(rate) = route.links.iter().map(|&(link, _)| topology.link(link).rate).min() else {
            continue;
        };
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
pub fn spec_of<'a>(assembled: &Assembled, works: impl Iterator<Item = &'a Arc<Work>>) -> HostSpec {
    let endpoints = assembled.fabric.topology.endpoints();
    let none = HostSpec { endpoints, streams: 1, nics: 1 };
    works.map(|work| host_spec(&work.workload, endpoints)).fold(none, |sum, spec| HostSpec {
        endpoints,
        streams: sum.streams.max(spec.streams),
        nics: sum.nics.max(spec.nics),
    })
}

/// Streams and NICs that the programs use.
pub(crate) fn host_spec(workload: &Workload, endpoints: u32) -> HostSpec {
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
