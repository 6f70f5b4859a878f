//! The engine: what there is, and how it is built from a topology.

use std::sync::Arc;

use windtunnel_kernel::Span;
use windtunnel_topology::{Forwarder, LinkId, Topology};

use super::account::Account;
use super::border::Crossing;
use super::credit::Credits;
use super::desks::Dispatch;
use super::ears::Ears;
use super::error::PacketError;
use super::fabric::Fabric;
use super::impair::{Changes, Clocks};
use super::lead::Lead;
use super::packets::Packets;
use super::pairs::Pairs;
use super::queues::Queues;
use super::reduce::Reductions;
use super::sampler::Sampler;
use super::settings::PacketSettings;
use super::telemetry::Telemetry;
use super::timeline::Timeline;
use super::transport::{Dispatcher, Endpoint, Kept, SwitchPolicy, Transport, Uses};

/// What is worked out for a queue pair before its halves are opened.
#[derive(Clone, Debug)]
pub(super) struct PairPlan {
    /// NIC ports from which and to which packets go, there and back.
    pub ports: [[u32; 2]; 2],
    /// Egress ports on the ways there and back, and what is hashed on them.
    pub paths: [Vec<u32>; 2],
    pub hashes: [u64; 2],
    /// Whether all packets take these paths; otherwise each asks the topology anew.
    pub fixed: bool,
    pub keep: bool,
    /// What the load balancer hashes.
    pub entropy: u32,
}

type UsesOf<T> = <<T as Transport>::Endpoint as Endpoint>::Uses;
pub(super) type CreditOf<T> = <UsesOf<T> as Uses>::Credit;
pub(super) type TelemetryOf<T> = <UsesOf<T> as Uses>::Telemetry;
pub(super) type ProbesOf<T> = <UsesOf<T> as Uses>::Probes;
pub(super) type PlanesOf<T> = <UsesOf<T> as Uses>::Planes;
/// Whether switches ask their policy about packets at queues, and about ports.
pub(super) type AtQueues<T> = <<T as Transport>::Policy as SwitchPolicy>::Queues;
pub(super) type AtPorts<T> = <<T as Transport>::Policy as SwitchPolicy>::Ports;

/// Whether NIC ports have a dispatcher.
pub(super) type Dispatched<T> = <<T as Transport>::Dispatcher as Dispatcher>::Used;
/// What a dispatcher keeps of a NIC port.
pub(super) type NicOf<T> = <<T as Transport>::Dispatcher as Dispatcher>::Nic;

/// Ports, switches, NICs, queue pairs and packets, and their events. Each field is an owner with a file of its own, which keeps its
/// invariants; what stands here is what several of them do together.
#[derive(Clone, Debug)]
pub struct Engine<T: Transport> {
    pub(super) settings: PacketSettings,
    /// What NICs do, and what switches do beside the settings.
    pub(super) endpoint: T::Endpoint,
    pub(super) policy: T::Policy,
    pub(super) dispatcher: T::Dispatcher,
    pub(super) timeline: Timeline,
    pub(super) fabric: Fabric,
    pub(super) lead: Lead,
    /// Several data queues a port, and pauses; off where there are none.
    pub(super) queues: Queues,
    pub(super) changes: Changes,
    pub(super) packets: Packets,
    pub(super) pairs: Pairs<T::Endpoint>,
    pub(super) credits: Kept<CreditOf<T>, Credits>,
    pub(super) telemetry: Kept<TelemetryOf<T>, Telemetry>,
    pub(super) reductions: Reductions,
    /// NIC ports that a dispatcher leads, and the lines of all ports.
    pub(super) dispatch: Kept<Dispatched<T>, Dispatch<NicOf<T>>>,
    pub(super) account: Account,
    /// What joins it to the other processes, if there are any.
    pub(super) crossing: Option<Box<Crossing>>,
}

impl<T: Transport> Engine<T> {
    /// An idle network at time zero.
    ///
    /// # Errors
    /// [`PacketError`] for settings that cannot work on this topology.
    pub fn new(
        topology: Arc<Topology>,
        mut settings: PacketSettings,
        transport: T,
    ) -> Result<Self, PacketError> {
        settings.check()?;
        settings.in_flight = settings.tracked();
        let (endpoint, policy, dispatcher) = transport.parts();
        settings.check_for(&endpoint)?;
        let (fabric, changed) = Fabric::new(topology.clone(), &settings)?;
        let ports = fabric.ports.len();
        let impairments = &settings.impairments;
        let around = || Forwarder::new(topology.clone(), impairments.policy);
        let around = impairments.moves_paths().then(around);
        let mut engine = Self {
            timeline: Timeline::new(ports),
            lead: Lead::new(&topology, settings.balancer, around),
            queues: Queues::default(),
            changes: Changes::default(),
            packets: Packets::new(),
            pairs: Pairs::new(fabric.nic_ports(), Clocks::new(topology.nics(), &impairments.clocks)),
            credits: Kept::default(),
            telemetry: Kept::default(),
            reductions: Reductions::default(),
            dispatch: Kept::default(),
            account: Account::new(
                Sampler::new(
                    settings.sample_every.map(Span::ps),
                    ports as u32,
                    settings.watch.as_ref().map(|watch| watch.every.ps()),
                ),
                Ears::new(&settings, &fabric),
            ),
            crossing: None,
            fabric,
            settings,
            endpoint,
            policy,
            dispatcher,
        };
        engine.build_impairments(&changed);
        engine.build_queues()?;
        engine.build_dispatch()?;
        if let Some(credits) = engine.credits.get_mut() {
            let (scheme, fabric) = (engine.endpoint.credit(engine.settings.mtu.get() as u32), &engine.fabric);
            let rates = (0..fabric.nic_ports()).map(|port| fabric.kind(port).rate.bps());
            *credits = Credits::new(scheme, rates, engine.settings.seed);
        }
        Ok(engine)
    }

    /// What `forwarder` says has failed is out from the start: packets that find their way at every switch go around it, those that
    /// cannot go on are dropped, and nothing is begun on its cables. Queue pairs with one path are opened with a route that does.
    pub fn reroute(&mut self, forwarder: Forwarder) {
        for link in (0..self.fabric.topology.link_count() as u32).map(LinkId) {
            if let Some(port) = self.fabric.port_of(link).filter(|_| forwarder.is_dead(link)) {
                self.fabric.ports[port as usize].down = true;
            }
        }
        self.lead.lead_by(forwarder);
    }
}
