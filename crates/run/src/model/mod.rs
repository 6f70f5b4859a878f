//! The models of a run: hosts over a network of the plan's fidelity, opened here and nowhere else.
//!
//! [`open`] gives every fidelity the same value, hosts over a boxed [`Network`], so what drives them, takes rows off them and
//! reads their [observations](windtunnel_fabric::Observations) does not know which it is. A fidelity that cannot do what is
//! asked of it is refused before that, by whoever asks.

mod costs;

use std::sync::Arc;

use windtunnel_backend::{BackendNetwork, BackendSettings};
use windtunnel_fabric::Network;
use windtunnel_fabric::coding::Coding;
use windtunnel_fabric::flow::{FlowNetwork, FlowSettings};
use windtunnel_fabric::host::{Host, HostSpec};
use windtunnel_fabric::message::Latency;
use windtunnel_fabric::packet::PacketSettings;
use windtunnel_fabric::reroute::{Rerouter, SharedRerouter};
use windtunnel_kernel::CalendarTime;
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, InputError};
use windtunnel_plan::jobs::Work;
use windtunnel_plan::network_plan::BackendPlan;
use windtunnel_plan::settings::Fidelity;
use windtunnel_topology::{Forwarder, LinkId, LoadBalancer, Topology};
use windtunnel_workload::{OpKind, Workload};

pub(crate) use self::costs::shares_nics;
use super::RunOptions;

/// Hosts over a network of whatever fidelity.
pub(crate) type Hosts = Host<Box<dyn Network>>;

/// What is asked of a model.
pub(crate) struct Opening<'a> {
    /// Streams and NICs of the hosts.
    pub spec: HostSpec,
    /// When its time zero is.
    pub start: CalendarTime,
    /// What has failed by then.
    pub faults: Option<&'a Forwarder>,
    /// Whether more may fail, or be mended, while it runs.
    pub changes: bool,
    /// Whether a record of each message is kept.
    pub records: bool,
    /// Whether one replica stands for several: no path inside the fabric can be a bottleneck then.
    pub folded: bool,
}

/// A model, ready to run.
pub(crate) struct Opened {
    /// Hosts with nothing to do.
    pub hosts: Hosts,
    /// Who knows the ways around what has failed, if anything has or will.
    pub rerouter: Option<SharedRerouter>,
}

/// Opens the model of the plan's fidelity.
///
/// # Errors
/// [`Failure`] for what a model refuses only on the fabric as it then is, and for a library that does not open.
///
/// # Panics
/// At job fidelity, which simulates no network.
pub(crate) fn open(plan: &Plan, options: &RunOptions, opening: &Opening<'_>) -> Result<Opened, Failure> {
    let &Opening { spec, start, faults, changes, records, folded } = opening;
    let mut rerouter = faults.cloned().map(Rerouter::shared);
    let (costs, mut network): (_, Box<dyn Network>) = match plan.fidelity {
        Fidelity::Job => unreachable!("job fidelity simulates no network"),
        Fidelity::Message => {
            let costs = costs::of(plan, spec, rerouter.as_ref());
            let network = Latency::new(costs.clone()).observed(records, plan.fabric.topology.clone());
            (costs, Box::new(network))
        }
        Fidelity::Flow => {
            let impairments = plan.troubles.impairments.clone().since(start.network_time());
            impairments.check().map_err(|error| {
                InputError::new(format!("{}: impairments", options.source), error.to_string())
            })?;
            if rerouter.is_none() && plan.troubles.impairments.moves_paths() {
                let whole = Forwarder::new(plan.fabric.topology.clone(), plan.troubles.impairments.policy);
                rerouter = Some(Rerouter::shared(whole));
            }
            let balancer = if folded { LoadBalancer::Ideal } else { plan.network.balancer };
            let slow = &plan.network.packet.settings.slow_links;
            let observing = Observing { links: true, records };
            let mut network = flow(plan, spec, slow, balancer, plan.network.coding, observing, false)?;
            if let Some(rerouter) = &rerouter {
                network = network.rerouted(rerouter.clone());
            }
            network.change(&impairments);
            (costs::free(), Box::new(network))
        }
        Fidelity::Packet => match &plan.network.backend {
            Some(given) => (costs::free(), backend(plan, options, given, records)?),
            None => (costs::free(), packet(plan, spec, options, start, rerouter.as_ref(), records)?),
        },
    };
    if changes {
        network.expect_changes();
    }
    if let Some(digests) = &options.digests {
        network.keep_digest(&digests.lock().expect("no holder panics").next());
    }
    Ok(Opened { hosts: Host::new(spec, costs, network), rerouter })
}

/// The flow model where no link inside the fabric is shared, none has failed, and nothing is lost, so nobody sends parity; links of
/// NICs may be `slow`, and latency may come first.
///
/// # Errors
/// [`InputError`] when packets leave no room for payload.
pub(crate) fn ideal(
    plan: &Plan,
    spec: HostSpec,
    slow: &[(LinkId, f64)],
    latency_first: bool,
) -> Result<Hosts, InputError> {
    let nothing = Observing { links: false, records: false };
    let network = flow(plan, spec, slow, LoadBalancer::Ideal, None, nothing, latency_first)?;
    Ok(Host::new(spec, costs::free(), Box::new(network)))
}

/// The message model where no link inside the fabric is slower than NICs, hosts cost a message nothing, and go on while bytes come
/// in: one message after the other, as packets may go.
pub(crate) fn in_turn(plan: &Plan, spec: HostSpec) -> Hosts {
    let costs = costs::in_turn(plan, spec);
    Host::new(spec, costs.clone(), Box::new(Latency::new(costs)))
}

/// What a flow network keeps of what it sees.
#[derive(Clone, Copy)]
struct Observing {
    links: bool,
    records: bool,
}

/// NICs over which a message spreads: all that its GPU has, unless the programs name them.
fn nics_of_a_message(topology: &Topology, spec: HostSpec) -> u8 {
    if spec.nics > 1 { 1 } else { u8::try_from(topology.nics_per_endpoint()).unwrap_or(u8::MAX) }
}

fn flow(
    plan: &Plan,
    spec: HostSpec,
    slow: &[(LinkId, f64)],
    balancer: LoadBalancer,
    coding: Option<Coding>,
    observing: Observing,
    latency_first: bool,
) -> Result<FlowNetwork, InputError> {
    let (told, parts) = (&plan.network, &plan.fabric);
    let settings = FlowSettings {
        balancer,
        seed: plan.seed,
        mtu: told.mtu,
        header: told.header,
        coding,
        // Host constants are latency here: what a message costs the processors of both ends delays it, but
        // does not space it from the next. Message rates are the message model's subject.
        nic_latency: parts.nic_latency + parts.overhead * 2,
        reduction: told.reduction,
        alone: plan.jobs.len() == 1,
        nics: nics_of_a_message(&parts.topology, spec),
        latency_first,
        observe_links: observing.links,
        records: observing.records,
    };
    FlowNetwork::with_rates(parts.topology.clone(), settings, slow)
        .map_err(|error| InputError::new("network.mtu", error.to_string()))
}

/// NICs that are worth a thread.
const NICS_PER_THREAD: usize = 64;

fn packet(
    plan: &Plan,
    spec: HostSpec,
    options: &RunOptions,
    start: CalendarTime,
    rerouter: Option<&SharedRerouter>,
    records: bool,
) -> Result<Box<dyn Network>, InputError> {
    let told = &plan.network.packet;
    let nics = nics_of_a_message(&plan.fabric.topology, spec);
    let mut settings = PacketSettings { records, nics, ..told.settings.clone() };
    settings.parallel.threads = options.threads.unwrap_or_else(|| {
        // A process for a few NICs has too little to do in a window.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        cores.min(plan.fabric.topology.nics() as usize / NICS_PER_THREAD).max(1)
    });
    settings.impairments = settings.impairments.since(start.network_time());
    for background in &mut settings.background {
        *background = background.clone().since(start.network_time());
    }
    let network = told.transport.of.network(plan.fabric.topology.clone(), settings, rerouter.cloned());
    network.map_err(|error| InputError::new(format!("{}: network", options.source), error.to_string()))
}

/// The model that `network.backend` names.
fn backend(
    plan: &Plan,
    options: &RunOptions,
    given: &BackendPlan,
    records: bool,
) -> Result<Box<dyn Network>, InputError> {
    let (told, parts) = (&plan.network, &plan.fabric);
    let library = options.library.clone().expect("loaded before the first episode");
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
        InputError::new(format!("{}: network.backend.parameters", options.source), error.to_string())
    })?;
    Ok(Box::new(network))
}

/// Streams and NICs that jobs use for their `works`.
pub(crate) fn spec_of<'a>(plan: &Plan, works: impl Iterator<Item = &'a Arc<Work>>) -> HostSpec {
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
