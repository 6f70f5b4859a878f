//! The packet network with its transport chosen at run time: one call through a table of functions covers thousands of
//! events, and inside everything is resolved.
//!
//! A transport of another crate joins as a [`NetworkOf`], which every [`Transport`](transport::Transport) is.

use std::sync::Arc;

use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::executor::RunStatistics;
use windtunnel_kernel::{Bytes, EndpointId, Span, Time};
use windtunnel_topology::{Forwarder, LinkId, Topology};

use super::background::BackgroundUse;
use super::dispatch::Delivery;
use super::network::{PacketNetwork, PacketNetworkError};
use super::reorder::Reordering;
use super::sample::QueueSample;
use super::settings::{PacketError, PacketSettings};
use super::statistics::PortReport;
use super::totals::Counters;
use super::transport;
use crate::flow::{CompletionTimes, FlowNetwork, FlowRecord};
use crate::model::{Abandon, Arrival, CoupledId, Departure, Network};
use crate::reroute::SharedRerouter;

/// What a packet network of any transport lets itself be asked.
pub trait PacketModel: Network + Abandon {
    /// Makes all counters exact at `at`, an instant that has been reached: see [`Engines::catch_up`](super::Engines).
    fn catch_up(&mut self, at: Time);
    /// Keeps a digest of the events of `focus`'s span from now on.
    fn keep_digest(&mut self, focus: &EventDigest);
    /// The digest kept.
    fn digest(&self) -> Option<EventDigest>;
    /// What threads cost; `None` in one process.
    fn run_statistics(&self) -> Option<&RunStatistics>;
    /// Totals so far.
    fn totals(&self) -> Counters;
    /// Data packets and control packets sent over a link, over all links.
    fn packet_hops(&self) -> (u64, u64);
    /// Sum over data packets of the time between joining a queue and the start of transmission.
    fn queueing(&self) -> Span;
    /// What each port with traffic saw until now, by link.
    fn port_reports(&self) -> Vec<PortReport>;
    /// Time that queues of ports were paused until now, over all ports.
    fn paused(&self) -> Span;
    /// Links whose pauses wait for one another: the run is over. Empty while there are none.
    fn pause_cycle(&self) -> Vec<LinkId>;
    /// NICs of a queue pair that has heard nothing for so long that the run is over: sender and receiver.
    fn silent_pair(&self) -> Option<[u32; 2]>;
    /// Whether a packet of a message that somebody waits for was dropped, and nothing sends it again.
    fn has_lost_for_good(&self) -> bool;
    /// Why the run cannot go on, in words: a message that no queue pair can number.
    fn fault(&self) -> Option<&str>;
    /// What queue pairs held out of order until now.
    fn reordering(&self) -> Reordering;
    /// What a dispatcher counted, by its own names; `None` without one.
    fn tally(&self) -> Option<transport::Tally>;
    /// What arrived under a dispatcher, by intervals of 10 µs.
    fn deliveries(&self) -> Vec<Delivery>;
    /// What background traffic came to, if there is any.
    fn background(&self) -> Option<&BackgroundUse>;
    /// Appends the samples of queues since the last call.
    fn take_samples(&mut self, samples: &mut Vec<QueueSample>);
    /// Completion times of messages outside scale-up domains.
    fn completion_times(&self) -> &CompletionTimes;
    /// Messages arrived.
    fn messages(&self) -> u64;
    /// Payload arrived.
    fn bytes_delivered(&self) -> u64;
    /// Appends the records of the messages that arrived since the last call.
    fn take_records(&mut self, records: &mut Vec<FlowRecord>);
    /// The flows inside scale-up domains.
    fn inside(&mut self) -> &mut FlowNetwork;
    /// See [`PacketNetwork::expect_changes`].
    fn expect_changes(&mut self);
    /// See [`PacketNetwork::change_paths`].
    fn change_paths(&mut self, forwarder: &Forwarder);
}

impl<T: transport::Transport> PacketModel for PacketNetwork<T> {
    fn fault(&self) -> Option<&str> {
        self.fault()
    }

    fn catch_up(&mut self, at: Time) {
        self.engine_mut().catch_up(at);
    }

    fn keep_digest(&mut self, focus: &EventDigest) {
        self.engine_mut().keep_digest(focus);
    }

    fn digest(&self) -> Option<EventDigest> {
        self.engine().digest()
    }

    fn run_statistics(&self) -> Option<&RunStatistics> {
        self.engine().statistics()
    }

    fn totals(&self) -> Counters {
        self.engine().totals()
    }

    fn packet_hops(&self) -> (u64, u64) {
        self.engine().packet_hops()
    }

    fn queueing(&self) -> Span {
        self.engine().queueing()
    }

    fn port_reports(&self) -> Vec<PortReport> {
        self.engine().port_reports()
    }

    fn paused(&self) -> Span {
        self.engine().paused()
    }

    fn pause_cycle(&self) -> Vec<LinkId> {
        self.engine().pause_cycle()
    }

    fn silent_pair(&self) -> Option<[u32; 2]> {
        self.engine().silent_pair()
    }

    fn has_lost_for_good(&self) -> bool {
        self.engine().has_lost_for_good()
    }

    fn reordering(&self) -> Reordering {
        self.engine().reordering()
    }

    fn tally(&self) -> Option<transport::Tally> {
        self.engine().tally()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.engine().deliveries()
    }

    fn background(&self) -> Option<&BackgroundUse> {
        self.background()
    }

    fn take_samples(&mut self, samples: &mut Vec<QueueSample>) {
        self.engine_mut().take_samples(samples);
    }

    fn completion_times(&self) -> &CompletionTimes {
        self.completion_times()
    }

    fn messages(&self) -> u64 {
        self.messages()
    }

    fn bytes_delivered(&self) -> u64 {
        self.bytes_delivered()
    }

    fn take_records(&mut self, records: &mut Vec<FlowRecord>) {
        self.take_records(records);
    }

    fn inside(&mut self) -> &mut FlowNetwork {
        self.inside()
    }

    fn expect_changes(&mut self) {
        self.expect_changes();
    }

    fn change_paths(&mut self, forwarder: &Forwarder) {
        self.change_paths(forwarder);
    }
}

impl Abandon for Box<dyn PacketModel> {
    fn abandon(&mut self, gone: &dyn Fn(Arrival) -> bool) -> Vec<Arrival> {
        (**self).abandon(gone)
    }
}

impl Network for Box<dyn PacketModel> {
    fn depart(&mut self, at: Time, departure: Departure) {
        (**self).depart(at, departure);
    }

    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> CoupledId {
        (**self).prepare_coupled(edges, entropy)
    }

    fn prepare_reduction(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        (**self).prepare_reduction(members, entropy)
    }

    fn start_coupled(&mut self, at: Time, run: u32, group: CoupledId, bytes: Bytes, steps: u32, class: u8) {
        (**self).start_coupled(at, run, group, bytes, steps, class);
    }

    fn coupled_span(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span {
        (**self).coupled_span(group, bytes, steps)
    }

    fn next_time(&mut self) -> Time {
        (**self).next_time()
    }

    fn advance(&mut self, to: Time, arrivals: &mut Vec<Arrival>) {
        (**self).advance(to, arrivals);
    }

    fn is_beyond(&mut self) -> bool {
        (**self).is_beyond()
    }

    fn run(&mut self, next: Time, limit: Time, arrivals: &mut Vec<Arrival>) -> Time {
        (**self).run(next, limit, arrivals)
    }
}

/// A transport of any crate, as what builds the network that it is compiled into.
pub trait NetworkOf: std::fmt::Debug + Send + Sync {
    /// The idle network of this transport, around what has failed.
    ///
    /// # Errors
    /// [`PacketNetworkError`] for settings that cannot work on this topology.
    fn network(
        &self,
        topology: Arc<Topology>,
        settings: PacketSettings,
        rerouter: Option<SharedRerouter>,
    ) -> Result<Box<dyn PacketModel>, PacketNetworkError>;

    /// # Errors
    /// [`PacketError`] where `settings` lack what this transport needs of switches.
    fn check(&self, settings: &PacketSettings) -> Result<(), PacketError>;
}

impl<T: transport::Transport> NetworkOf for T {
    fn network(
        &self,
        topology: Arc<Topology>,
        settings: PacketSettings,
        rerouter: Option<SharedRerouter>,
    ) -> Result<Box<dyn PacketModel>, PacketNetworkError> {
        boxed(topology, settings, self.clone(), rerouter)
    }

    fn check(&self, settings: &PacketSettings) -> Result<(), PacketError> {
        settings.check_for(self.endpoint())
    }
}

fn boxed<T: transport::Transport>(
    topology: Arc<Topology>,
    settings: PacketSettings,
    transport: T,
    rerouter: Option<SharedRerouter>,
) -> Result<Box<dyn PacketModel>, PacketNetworkError> {
    let network = PacketNetwork::new(topology, settings, transport)?;
    Ok(Box::new(match rerouter {
        Some(rerouter) => network.rerouted(rerouter),
        None => network,
    }))
}
