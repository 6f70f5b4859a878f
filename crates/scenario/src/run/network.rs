//! The fabric of each fidelity: the host model's costs and the network behind it.

use std::sync::Arc;

use windtunnel_fabric::flow::{FlowNetwork, FlowSettings};
use windtunnel_fabric::host::{Costs, Host, HostSpec, LogGops, Receiver};
use windtunnel_fabric::message::Latency;
use windtunnel_kernel::{BitRate, Bytes, EndpointId, NicId, Span};
use windtunnel_topology::{LoadBalancer, PathClass, Route, Topology};

use windtunnel_workload::{OpKind, Workload};

use crate::assemble::Assembled;
use crate::assemble::fabric::FabricParts;
use crate::error::InputError;
use crate::schema::{LoadBalancerName, ReceiverName, Scenario};

/// Messages of every size are sent without waiting for their receiver, as NCCL's and RDMA writes are.
const EAGER: Bytes = Bytes(u64::MAX);

/// The topology's name for the scenario's.
pub const fn balancer(name: LoadBalancerName) -> LoadBalancer {
    match name {
        LoadBalancerName::Ecmp => LoadBalancer::Ecmp,
        LoadBalancerName::DestinationModulo => LoadBalancer::DestinationModulo,
        LoadBalancerName::Spray => LoadBalancer::Spray,
        LoadBalancerName::Ideal => LoadBalancer::Ideal,
    }
}

/// The flow model on the scenario's fabric.
///
/// # Errors
/// [`InputError`] when packets leave no room for payload.
pub fn flow(
    assembled: &Assembled,
    spec: HostSpec,
    balancer: LoadBalancer,
    observe: bool,
    records: bool,
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
        observe_links: observe,
        records,
    };
    let slow = assembled.slow_links.as_slice();
    let network = FlowNetwork::with_rates(parts.topology.clone(), settings, slow)
        .map_err(|error| InputError::new("network.mtu", error.to_string()))?;
    let costs = Costs::uniform(LogGops { eager_limit: EAGER, ..LogGops::default() });
    Ok(Host::new(spec, costs, network))
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
        None => by_class(scenario, parts),
    };
    let costs = costs.with_receiver(receiver);
    Ok(Host::new(spec, costs.clone(), Latency::new(costs).observed(records)))
}

/// One parameter set per [`PathClass`]: L is the path's latency, G the slower end's time per byte with its header.
fn by_class(scenario: &Scenario, parts: &FabricParts) -> Costs {
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
        gap_per_byte: sample.map_or(0, |sample| femtoseconds_per_byte(sample.rate, mtu, mtu - header)),
        overhead_per_byte: 0,
        eager_limit: EAGER,
    };
    let samples = samples(topology);
    let classes = vec![
        inside(None),
        inside(samples[PathClass::ScaleUp as usize]),
        outside(samples[PathClass::SameLeaf as usize]),
        outside(samples[PathClass::SamePod as usize]),
        outside(samples[PathClass::Beyond as usize]),
        outside(samples[PathClass::OtherBuilding as usize]),
    ];
    let shape = topology.clone();
    Costs::by_class(classes, Arc::new(move |from, to| shape.path_class(from, to) as usize))
}

/// A path of a class.
#[derive(Clone, Copy, Debug)]
struct Sample {
    latency: Span,
    rate: BitRate,
}

/// The longest latency and slowest end link seen of each class, from endpoint 0 to its own host, to every power of two
/// of hosts and to the last one.
fn samples(topology: &Topology) -> [Option<Sample>; 6] {
    let mut found: [Option<Sample>; 6] = [None; 6];
    let per_host = topology.endpoints_per_host();
    let near = 1..per_host;
    let far = (0..32).map(|power| 1u32 << power).take_while(|host| *host < topology.hosts());
    let last = topology.hosts().saturating_sub(1);
    let hosts = far.chain([last]).map(|host| host * per_host);
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

/// Streams and NICs that the jobs use.
pub fn spec_of(assembled: &Assembled, jobs: impl Iterator<Item = usize>) -> HostSpec {
    let endpoints = assembled.fabric.topology.endpoints();
    let none = HostSpec { endpoints, streams: 1, nics: 1 };
    jobs.map(|job| host_spec(&assembled.jobs[job].workload, endpoints)).fold(none, |sum, spec| HostSpec {
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
