//! What `network:` means: from the scenario's keys to what each network model is told.
//!
//! All keys are checked here, whatever the fidelity and also for `--explain`: a scenario whose packets could not run is
//! refused before anybody trusts its flows. [`NetworkPlan`] is the result; the rest of a run reads it and never the keys.
//! What depends on the fidelity is listed in [`meet`].

mod backend;
mod implied;
mod message;
mod parameters;
mod paths;
mod queues;
mod recovery;
pub mod transport;
mod until;

use windtunnel_fabric::balancers::BALANCERS;
use windtunnel_fabric::coding::Coding;
use windtunnel_fabric::packet::transport::{Dcqcn, Endpoint, Recovery};
use windtunnel_fabric::packet::{
    Background, Balancer, BufferSettings, ChosenRoute, Impairments, MOST_PORTS, PacketError, PacketSettings,
    ParallelSettings, TrimSettings,
};
use windtunnel_fabric::reduction::ReductionSettings;
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_plan::fabric::FabricParts;
use windtunnel_plan::inputs::Inputs;
use windtunnel_plan::modules::Modules;
use windtunnel_plan::network_plan::{Chosen, NetworkPlan, PacketPlan};
use windtunnel_plan::troubles::Troubles;
use windtunnel_topology::LinkId;

pub use self::paths::unsimulated;
use self::queues::{Switching, switching};
pub(super) use self::recovery::coding_of;
use super::marks::{Marks, marked_tiers, marking};
use super::names::list;
use super::reduce;
use super::watch::Watching;
use crate::schema::{Fidelity, Network, Scenario};

/// What the scenario says beside `network:` and packets feel.
pub struct Around<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The fabric.
    pub fabric: &'a FabricParts,
    /// Links that run at a part of their rate.
    pub slow_links: Vec<(LinkId, f64)>,
    /// Shared buffers of switches by tier.
    pub buffers: Vec<BufferSettings>,
    /// Paths that hosts choose.
    pub routes: Vec<ChosenRoute>,
    /// What is looked at packet by packet.
    pub watching: Watching,
    /// What the program brings along.
    pub modules: &'a Modules,
    /// What the longest path asks of marking.
    pub marks: &'a Marks,
}

/// Checks `network:` and everything about it.
///
/// # Errors
/// [`InputError`] for a name that is not known, a number out of range, keys that exclude one another, and settings that
/// cannot work on the fabric.
pub fn plan(around: Around<'_>, source: &str, base: &Inputs) -> Result<NetworkPlan, InputError> {
    let network = &around.scenario.network;
    if network.header.0 >= network.mtu.0 {
        let message =
            format!("`mtu` ({} B) must exceed `header` ({} B)", network.mtu.0.get(), network.header.0.get());
        return Err(InputError::new(format!("{source}: network.mtu"), message)
            .hint("the MTU counts the whole packet, header included"));
    }
    let reduction = reduce::settings(network, source)?;
    let message = message::plan(network, source)?;
    let backend = network.backend.as_ref().map(|given| backend::plan(given, base));
    let balancer = network.load_balancer.of.flows;
    let (mtu, header) = (network.mtu.0, network.header.0);
    let packet = packet(around, reduction, source)?;
    let (exchange, connections) = (network.exchange, network.connections.0);
    let coding = coding_of(network);
    Ok(NetworkPlan {
        mtu,
        header,
        coding,
        balancer,
        reduction,
        message,
        packet,
        exchange,
        connections,
        backend,
    })
}

fn packet(around: Around<'_>, reduction: ReductionSettings, source: &str) -> Result<PacketPlan, InputError> {
    let Around { scenario, fabric, slow_links, buffers, routes, watching, modules, marks } = around;
    let network = &scenario.network;
    let place = |key: &str| format!("{source}: network.{key}");
    let implied = implied::implied(network, fabric, source)?;
    let transport = transport::transport(implied.as_ref().unwrap_or(network), modules, source)?;
    let balancer = paths::beside(network, &transport);
    if network.parallel.processes == Some(0) {
        return Err(InputError::new(place("parallel.processes"), "expected at least 1 process, found 0"));
    }
    let Switching { queues, discipline, classes, colors, pull, pfc } = switching(network, marks, source)?;
    let settings = PacketSettings {
        // The run says, of programs that do not.
        nics: 1,
        seed: scenario.seed,
        mtu: network.mtu.0,
        header: network.header.0,
        control: network.control.0,
        ack_every: network.ack_every,
        forwarding: network.forwarding.0,
        balancer,
        buffers,
        ecn: Some(marking(&network.ecn, marks)),
        ecn_on: marked_tiers(&network.ecn_on, &fabric.topology, source)?,
        trimming: network.trimming.as_ref().map(|trimming| TrimSettings {
            queue: trimming.queue.map(|queue| queue.0),
            rate: trimming.rate.map(|rate| rate.0),
        }),
        telemetry: network.telemetry,
        coding: coding_of(network),
        queue_pairs: network.queue_pairs,
        in_flight: in_flight(network, fabric, balancer, &transport),
        // As in the flow model.
        nic_latency: fabric.nic_latency + fabric.overhead * 2,
        slow_links,
        queues,
        discipline,
        classes,
        colors,
        pull,
        pfc,
        reduction,
        parallel: ParallelSettings {
            processes: network.parallel.processes.map(|processes| processes as usize),
            threshold: network.parallel.zeta.map(|zeta| zeta.0),
            ..ParallelSettings::default()
        },
        routes,
        impairments: Impairments::default(),
        background: Vec::new(),
        until: None,
        sample_every: scenario.results.queues.map(|every| every.0),
        watch: watching.watch,
        capture: watching.capture,
        records: false,
    };
    check(&settings, source)?;
    transport.of.check(&settings).map_err(|error| {
        let key = if network.congestion.is_some() { "congestion" } else { "transport" };
        let refused = InputError::new(place(key), error.to_string());
        match error {
            PacketError::Needs { key: "trimming", .. } => {
                refused.hint("set `network.trimming: {queue: 64 KB}`")
            }
            PacketError::Needs { key: "telemetry", .. } => refused.hint("set `network.telemetry: true`"),
            PacketError::Unanswered { .. } => refused.hint("set `network.ack_every` to 1 or more"),
            PacketError::Coded { .. } => InputError::new(place("recovery"), error.to_string())
                .hint("leave `recovery` out, or choose another transport, such as `dcqcn` or `swift`"),
            PacketError::Mends { .. } => InputError::new(place("recovery"), error.to_string())
                .hint("expected `timer`, `selective` or `rack`"),
            _ => refused,
        }
    })?;
    on_switches(&settings, &transport, fabric, source)?;
    Ok(PacketPlan { transport, settings })
}

fn check(settings: &PacketSettings, source: &str) -> Result<(), InputError> {
    settings.check().map_err(|error| InputError::new(format!("{source}: network"), error.to_string()))
}

/// Whether buffers, queues and pauses work on the switches that there are: what the packet model refuses when it is built.
/// Nothing else that it refuses depends on the switches, and it is not built where none of these keys is given.
fn on_switches(
    settings: &PacketSettings,
    transport: &Chosen,
    fabric: &FabricParts,
    source: &str,
) -> Result<(), InputError> {
    let plain = settings.buffers.is_empty() && settings.queues.is_empty() && settings.pfc.is_none();
    if plain || fabric.topology.link_count() >= MOST_PORTS {
        return Ok(());
    }
    // One process: how many there are decides nothing.
    let settings = PacketSettings { parallel: ParallelSettings::default(), ..settings.clone() };
    let built = transport.of.network(fabric.topology.clone(), settings, None);
    built.map(drop).map_err(|error| InputError::new(format!("{source}: network"), error.to_string()))
}

/// Refuses background traffic that leaves no room for its own acknowledgements: its queues would grow for ever, and no job
/// beside it would end. A NIC sends what it offers and what it answers.
fn answers_fit(settings: &PacketSettings, source: &str) -> Result<(), InputError> {
    if !settings.acknowledges() {
        return Ok(());
    }
    let payload = settings.payload();
    let share = |background: &Background| {
        let wire = background.sizes.mean_wire(payload, settings.header.get());
        // Headers over header bytes are packets; without any, a message is one at least.
        let bytes = background.sizes.mean_wire(payload, 0);
        let packets =
            if settings.header.get() > 0 { (wire - bytes) / settings.header.get() as f64 } else { 1.0 };
        let answers = (packets / f64::from(settings.ack_every)).max(1.0) * settings.control.get() as f64;
        background.load * (wire + answers) / wire
    };
    for (index, background) in settings.background.iter().enumerate() {
        let share = share(background);
        if share >= 1.0 {
            let message = format!(
                "messages this small at this load fill {share:.2} of every NIC, their acknowledgements included, expected \
                 less than 1"
            );
            return Err(InputError::new(format!("{source}: impairments.background[{index}].load"), message)
                .hint("larger messages, or a lower `load`"));
        }
    }
    Ok(())
}

/// Packets that a queue pair of RoCE tracks where its NIC's sheet does not say: those of ConnectX-6.
const TRACKED: u32 = 512;

/// Packets that a queue pair may have under way.
fn in_flight(network: &Network, fabric: &FabricParts, balancer: Balancer, transport: &Chosen) -> u32 {
    let roce = transport.name == Dcqcn::NAME;
    let sheet = fabric.nic.as_ref().and_then(|nic| nic.in_flight.as_ref());
    let tracked = sheet.map_or(TRACKED, |figure| u32::try_from(figure.value).unwrap_or(u32::MAX));
    let default = if roce && balancer.spreads() { tracked } else { u32::MAX };
    network.in_flight.unwrap_or(default)
}

/// Where constants of transports come from.
const PUBLISHED: &str = "parameters of its paper or specification";

/// Meets what goes wrong on the fabric and the fidelity, the only things that may refuse at one fidelity what another
/// runs: packets take real paths, a network model of one's own is not told what goes wrong, and impairments reach
/// packets only where packets are simulated.
///
/// # Errors
/// [`InputError`] for what does not go together.
pub fn meet(
    plan: &mut NetworkPlan,
    scenario: &Scenario,
    fabric: &FabricParts,
    troubles: &Troubles,
    source: &str,
    evidence: &mut EvidenceList,
) -> Result<(), InputError> {
    plan.packet.settings.until = until::until(scenario, plan.backend.is_some(), source)?;
    if let Some(backend) = &plan.backend {
        let slow = &plan.packet.settings.slow_links;
        backend::meet(backend, scenario, fabric, slow, troubles, source)?;
    }
    if scenario.fidelity != Fidelity::Packet || plan.backend.is_some() {
        return Ok(());
    }
    let balancer = scenario.network.load_balancer.of;
    if balancer.packets.is_none() {
        let name = balancer.entry.name;
        let message = format!("`{name}` shares no path inside the fabric, but packets take real ones");
        let real = BALANCERS.iter().filter(|known| known.packets.is_some());
        let known = list(real.map(|known| known.entry.name), "or");
        return Err(InputError::new(format!("{source}: network.load_balancer"), message)
            .hint(format!("expected {known}")));
    }
    paths::keep_to(&scenario.network, &plan.packet.transport, source)?;
    let settings = &mut plan.packet.settings;
    settings.impairments = troubles.impairments.clone();
    settings.background.clone_from(&troubles.background);
    check(settings, source)?;
    answers_fit(settings, source)?;
    testify(&plan.packet, &scenario.network, evidence);
    Ok(())
}

/// Adds what a run with this transport rests on.
fn testify(packet: &PacketPlan, network: &Network, evidence: &mut EvidenceList) {
    let named = network.transport.is_some() || network.congestion.is_some();
    let kind = if named { "given" } else { "inferred" };
    let own = "brought along by the program";
    let keys: Vec<&str> = network.parameters.keys().map(String::as_str).collect();
    let source = match (packet.transport.own, keys.join("`, `")) {
        (true, _) => own.to_owned(),
        (false, keys) if keys.is_empty() => PUBLISHED.to_owned(),
        (false, keys) => format!("{PUBLISHED}, but for `{keys}`"),
    };
    evidence.add(&format!("transport {}", packet.transport.name), kind, &source);
    if let Some(recovery) = packet.transport.recovery {
        let given = network.recovery.is_some() || network.parameters.contains_key("reorder");
        let (kind, source) = match (given, recovery) {
            (true, _) => ("given", "the scenario"),
            (false, Recovery::Rack) if packet.settings.balancer.spreads() => {
                ("inferred", "packets take many paths, and overtake one another")
            }
            (false, _) => ("inferred", "what goes with the transport"),
        };
        let mut words = recovery::words(recovery);
        if let Some([data, parity]) = packet.settings.coding.map(Coding::sizes) {
            words = format!("erasure coding of {data} + {parity} packets, beyond it {words}");
        }
        evidence.add(&format!("recovery {words}"), kind, source);
    }
    for (what, module) in [
        ("path chooser", &network.path_chooser),
        ("stage", &network.stage),
        ("switch balancer", &network.switch_balancer),
    ] {
        if let Some(module) = module {
            evidence.add(&format!("{what} {}", module.name), "given", own);
        }
    }
}
