//! The flow model as a [`Network`]: a message is routed, becomes a flow of its wire bytes, and arrives one latency after
//! its last byte has left the bottleneck.
//!
//! **Life cycle of a message.** [`Network::depart`] takes a request, which waits if its instant lies ahead; at that instant
//! it is routed and starts as a flow, together with all others of the instant; when the flow ends, its arrival is booked;
//! when the clock gets there, [`Network::advance`] reports it. A coupled group goes the same way as one flow.
//!
//! Messages on one queue pair (equal sender, receiver and entropy, [`Departure::ordered`]) are sent one after the other: the
//! next starts when the last byte of the one before has left the bottleneck. Were they flows of their own, a rank that
//! catches up with a ring would share its NIC among all the rounds it is behind, and its neighbour would get the first
//! of them last.
//!
//! **Wire bytes** = payload + headers of ceil(payload / (mtu − header)) packets beyond the scale-up domain; `mtu` counts
//! the whole packet. Inside the domain there are no headers. A coupled group counts headers if any of its edges leaves
//! the domain.
//!
//! **Memory** is bounded by live messages, the coupled groups prepared, and 128 bins per link with traffic if observed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{Bytes, EndpointId, NicId, Span, Time};
use windtunnel_topology::{LinkId, LoadBalancer, PathClass, Route, Topology};

use super::change::Changes;
use super::instant::Instant;
use super::observe::{CompletionTimes, FlowRecord};
use super::system::{CapacityError, FlowSystem};
use crate::model::{Arrival, CoupledId, Departure, Network};
use crate::reduction::{ReductionSettings, Tree, Turns};
use crate::reroute::{self, SharedRerouter};

/// Volume of a byte: capacities are in bit/s and ticks in ps, so that both are exact.
const VOLUME_PER_BYTE: f64 = 8e12;

/// How messages become flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowSettings {
    /// Choice among equal-cost paths.
    pub balancer: LoadBalancer,
    /// Seed of that choice.
    pub seed: u64,
    /// Size of a full packet, its header included.
    pub mtu: Bytes,
    /// Header of a packet.
    pub header: Bytes,
    /// Latency of both NICs of a path together, added beyond the scale-up domain.
    pub nic_latency: Span,
    /// What switches can sum.
    pub reduction: ReductionSettings,
    /// Keep bytes and utilisation of links.
    pub observe_links: bool,
    /// Keep a record of each flow until [`FlowNetwork::take_records`].
    pub records: bool,
}

impl Default for FlowSettings {
    /// ECMP with seed 0, packets of 9000 B with headers of 66 B, nothing kept.
    fn default() -> Self {
        Self {
            balancer: LoadBalancer::Ecmp,
            seed: 0,
            mtu: Bytes(9_000),
            header: Bytes(66),
            nic_latency: Span::ZERO,
            reduction: ReductionSettings::default(),
            observe_links: false,
            records: false,
        }
    }
}

/// Why there is no network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FlowNetworkError {
    /// No room for payload.
    #[error("`mtu` is {} B, expected more than `header`: {} B", mtu.0, header.0)]
    Mtu {
        /// The packet.
        mtu: Bytes,
        /// Its header.
        header: Bytes,
    },
    /// A link without capacity.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
}

/// What a link carried: see [`FlowNetwork::link_usage`].
#[derive(Clone, Debug, PartialEq)]
pub struct LinkUsage {
    /// Which.
    pub link: LinkId,
    /// Wire bytes over the whole run.
    pub bytes: f64,
    /// Wire bytes in each bin; later ones are empty.
    pub bins: Vec<f64>,
}

/// Pairs of an exchange that are one flow.
#[derive(Clone, Debug)]
struct Part {
    links: Vec<(u32, f64)>,
    class: PathClass,
    /// Pairs whose bytes it carries.
    pairs: u64,
}

/// Edges routed once.
#[derive(Clone, Debug)]
struct Group {
    /// Of an exchange: its flows, which share no rate; then `links` is what they load together.
    parts: Vec<Part>,
    /// Links in order with the sum of weight × share over the edges.
    links: Vec<(u32, f64)>,
    /// The heaviest edge counts as one flow.
    weight: f64,
    latency: Span,
    class: PathClass,
    /// Nothing joins the ends of an edge.
    severed: bool,
    /// The edges, or of a reduction its members, and the entropy, where routes may change.
    origin: Option<Box<Origin>>,
    /// Of a reduction: its tree, and the least rate at which its switches let it go on, in bits of payload per second.
    tree: Option<(Arc<Tree>, f64)>,
    edges: u32,
    total_weight: u64,
    ends: (EndpointId, EndpointId),
}

/// What a group was prepared from.
#[derive(Clone, Debug)]
struct Origin {
    edges: Vec<(EndpointId, EndpointId, u32)>,
    members: Vec<EndpointId>,
    entropy: u32,
}

/// What a request is about.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Message { message: u32, nic: NicId, entropy: u32, ordered: bool },
    Coupled { run: u32, group: CoupledId },
}

/// A message or a run of a group, from its request to its arrival.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    subject: Subject,
    from: EndpointId,
    to: EndpointId,
    bytes: Bytes,
    start: Time,
    /// From the end of the flow to the arrival.
    latency: Span,
    class: u8,
    path: PathClass,
    hops: u16,
    /// The transfer that follows on the same queue pair, [`NONE`] if none waits.
    next: u32,
    /// Flows of it that have not ended; 1 but for exchanges.
    flows: u32,
}

impl Transfer {
    /// The queue pair it goes by, if messages are sent on it one after the other.
    fn queue_pair(&self) -> Option<(u32, u32, u32)> {
        match self.subject {
            Subject::Message { entropy, ordered: true, .. } => Some((self.from.0, self.to.0, entropy)),
            _ => None,
        }
    }
}

/// No transfer.
const NONE: u32 = u32::MAX;

/// The flow model over a topology.
#[derive(Debug)]
pub struct FlowNetwork {
    pub(super) topology: Arc<Topology>,
    /// Asked for routes instead of the topology where something has failed.
    pub(super) rerouter: Option<SharedRerouter>,
    settings: FlowSettings,
    /// Of each link, in bit/s.
    pub(super) rates: Vec<f64>,
    /// Links that run at a part of their rate from the start.
    slow: Vec<(LinkId, f64)>,
    pub(super) changes: Changes,
    pub(super) system: FlowSystem,
    pub(super) clock: Time,
    transfers: Vec<Transfer>,
    free: Vec<u32>,
    /// Last transfer on each queue pair that sends or waits.
    queue_pairs: FxHashMap<(u32, u32, u32), u32>,
    /// Requests that lie ahead: instant, order of request, transfer.
    waiting: BinaryHeap<Reverse<(Time, u64, u32)>>,
    requests: u64,
    /// Arrivals booked: instant, kind and id as the host model names it, transfer.
    arrivals: BinaryHeap<Reverse<(Time, u64, u32)>>,
    groups: Vec<Group>,
    turns: Turns,
    /// Runs whose turn has come.
    admitted: Vec<u32>,
    route: Route,
    ended: Vec<u64>,
    /// Transfers whose last byte has left in the advance in hand.
    left: Vec<u32>,
    completion: CompletionTimes,
    records: Vec<FlowRecord>,
    messages: u64,
    coupled_runs: u64,
    exchange_flows: u64,
    bytes_delivered: u64,
}

impl FlowNetwork {
    /// An idle network at time zero.
    ///
    /// # Errors
    /// [`FlowNetworkError`] if packets have no room for payload or a link has no capacity.
    pub fn new(topology: Arc<Topology>, settings: FlowSettings) -> Result<Self, FlowNetworkError> {
        Self::with_rates(topology, settings, &[])
    }

    /// As [`Self::new`], with links that run at a part of their rate; a link named twice at the product.
    ///
    /// # Errors
    /// As [`Self::new`]; a part of zero leaves a link without capacity.
    pub fn with_rates(
        topology: Arc<Topology>,
        settings: FlowSettings,
        parts: &[(LinkId, f64)],
    ) -> Result<Self, FlowNetworkError> {
        let FlowSettings { mtu, header, .. } = settings;
        if mtu <= header {
            return Err(FlowNetworkError::Mtu { mtu, header });
        }
        let links = 0..topology.link_count() as u32;
        let mut capacities: Vec<f64> = links.map(|link| topology.link(LinkId(link)).rate.0 as f64).collect();
        for &(link, part) in parts {
            capacities[link.0 as usize] *= part;
        }
        let mut system = FlowSystem::new(&capacities)?;
        let rates = capacities;
        if settings.observe_links {
            system.observe_links();
        }
        Ok(Self {
            topology,
            rerouter: None,
            settings,
            rates,
            slow: parts.to_vec(),
            changes: Changes::default(),
            system,
            clock: Time::ZERO,
            transfers: Vec::new(),
            free: Vec::new(),
            queue_pairs: FxHashMap::default(),
            waiting: BinaryHeap::new(),
            requests: 0,
            arrivals: BinaryHeap::new(),
            groups: Vec::new(),
            turns: Turns::default(),
            admitted: Vec::new(),
            route: Route::new(),
            ended: Vec::new(),
            left: Vec::new(),
            completion: CompletionTimes::default(),
            records: Vec::new(),
            messages: 0,
            coupled_runs: 0,
            exchange_flows: 0,
            bytes_delivered: 0,
        })
    }

    /// With failed parts: `rerouter` is asked for routes and keeps account of them. A message, and a coupled group, of
    /// a pair that nothing joins never arrives.
    #[must_use]
    pub fn rerouted(self, rerouter: SharedRerouter) -> Self {
        Self { rerouter: Some(rerouter), ..self }
    }

    /// Completion times of the messages that have arrived: from leaving the NIC to the last byte's arrival.
    pub fn completion_times(&self) -> &CompletionTimes {
        &self.completion
    }

    /// Messages arrived.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Runs of coupled groups ended.
    pub fn coupled_runs(&self) -> u64 {
        self.coupled_runs
    }

    /// Flows of exchanges begun: see [`Network::prepare_exchange`].
    pub fn exchange_flows(&self) -> u64 {
        self.exchange_flows
    }

    /// Payload arrived, that of all edges of coupled groups included.
    pub fn bytes_delivered(&self) -> u64 {
        self.bytes_delivered
    }

    /// Solves of the max-min system so far.
    pub fn solves(&self) -> u64 {
        self.system.solves()
    }

    /// Records not yet taken. They are bounded by the caller, who takes them between two advances.
    pub fn records_waiting(&self) -> usize {
        self.records.len()
    }

    /// Appends the records of the flows ended since the last call, in the order of their arrivals.
    pub fn take_records(&mut self, records: &mut Vec<FlowRecord>) {
        records.append(&mut self.records);
    }

    /// The width of the bins, and what each link with traffic has carried until now, in link order; nothing unless
    /// links are observed.
    pub fn link_usage(&mut self) -> (Span, Vec<LinkUsage>) {
        // Nothing happens between the last event and the clock: what flows still carry is credited up to the clock.
        self.system.advance(Instant::at(self.clock.0));
        let Some(meter) = self.system.meter() else { return (Span::ZERO, Vec::new()) };
        let width = meter.width_log2();
        let usage = |link: u32| {
            let bins = meter.bins(link as usize, width)?;
            Some(LinkUsage {
                link: LinkId(link),
                bytes: meter.volume(link as usize) / VOLUME_PER_BYTE,
                bins: bins.into_iter().map(|volume| volume / VOLUME_PER_BYTE).collect(),
            })
        };
        (Span(1 << width), (0..self.topology.link_count() as u32).filter_map(usage).collect())
    }

    /// Bytes on the wire for `payload` over a path of `class`.
    fn wire_bytes(&self, payload: Bytes, class: PathClass) -> u64 {
        let FlowSettings { mtu, header, .. } = self.settings;
        let packets = payload.0.div_ceil(mtu.0 - header.0);
        payload.0 + if class > PathClass::ScaleUp { packets * header.0 } else { 0 }
    }

    /// The rate at which the switches of a tree let a reduction go on, in bits of payload per second: a window of segments in
    /// a round trip, or what they can sum.
    fn reduction_rate(&self, round_trip: Span) -> f64 {
        let FlowSettings { mtu, header, reduction, .. } = self.settings;
        let window = u64::from(reduction.window()) * (mtu.0 - header.0) * 8;
        let by_window = window as f64 / round_trip.seconds().max(1e-12);
        reduction.rate.map_or(by_window, |rate| by_window.min(rate.0 as f64))
    }

    /// How much longer a reduction of `bytes` takes than its links alone would ask for, because its switches hold it back;
    /// nothing for other groups.
    fn held_back(&self, group: CoupledId, bytes: Bytes) -> Span {
        let group = &self.groups[group.0 as usize];
        let Some((_, rate)) = group.tree else { return Span::ZERO };
        let volume = self.wire_bytes(bytes, group.class) as f64 * 8.0;
        let seconds = |&(link, load): &(u32, f64)| load * volume / self.rates[link as usize];
        let by_links = group.links.iter().map(seconds).fold(0.0, f64::max);
        let by_switches = bytes.0 as f64 * 8.0 / rate;
        Span::from_seconds_ceil((by_switches - by_links).max(0.0))
    }

    /// From the last byte's leaving the bottleneck to its arrival, over the route just asked for.
    fn route_latency(&self) -> Span {
        let Route { latency, class, .. } = self.route;
        if class > PathClass::ScaleUp { latency + self.settings.nic_latency } else { latency }
    }

    /// Takes a request: it starts now, or waits.
    fn request(&mut self, transfer: Transfer) {
        debug_assert!(transfer.start >= self.clock, "a request in the past: {transfer:?} at {}", self.clock);
        let slot = self.free.pop().unwrap_or(self.transfers.len() as u32);
        if slot as usize == self.transfers.len() {
            self.transfers.push(transfer);
        } else {
            self.transfers[slot as usize] = transfer;
        }
        if transfer.start <= self.clock {
            self.enqueue(slot);
        } else {
            self.waiting.push(Reverse((transfer.start, self.requests, slot)));
            self.requests += 1;
        }
    }

    /// Starts a transfer, or lets it wait for those before it on its queue pair.
    fn enqueue(&mut self, slot: u32) {
        if let Some(pair) = self.transfers[slot as usize].queue_pair()
            && let Some(last) = self.queue_pairs.insert(pair, slot)
        {
            self.transfers[last as usize].next = slot;
        } else {
            self.begin(slot, false);
        }
    }

    /// Starts what waits behind a transfer whose last byte has left.
    fn dequeue(&mut self, slot: u32) {
        let transfer = self.transfers[slot as usize];
        let Some(pair) = transfer.queue_pair() else { return };
        if transfer.next == NONE {
            self.queue_pairs.remove(&pair);
        } else {
            self.begin(transfer.next, false);
        }
    }

    /// Lays the route of a message over `self.route`; `false` if nothing joins its ends.
    #[inline]
    fn lay(&mut self, from: EndpointId, to: EndpointId, nic: NicId, entropy: u32) -> bool {
        let FlowSettings { balancer, seed, .. } = self.settings;
        let route = &mut self.route;
        match &self.rerouter {
            None => {
                self.topology.route(balancer, seed, from, to, nic, entropy, route);
                true
            }
            Some(rerouter) => {
                let mut rerouter = reroute::lock(rerouter);
                if self.changes.steps.is_empty() {
                    return rerouter.route(balancer, seed, from, to, nic, entropy, route).is_some();
                }
                // It may yet be joined.
                rerouter.forwarder_mut().route(balancer, seed, from, to, nic, entropy, route).is_ok()
            }
        }
    }

    /// Routes a transfer and starts its flow at the clock; a reduction waits for its turn unless it is `admitted`.
    fn begin(&mut self, slot: u32, admitted: bool) {
        if let Subject::Coupled { group, .. } = self.transfers[slot as usize].subject
            && let Some((tree, _)) = &self.groups[group.0 as usize].tree
            && !admitted
            && !self.turns.enter(slot, tree, self.settings.reduction.operations)
        {
            return;
        }
        self.put_on_links(slot, None);
    }

    /// Starts again what was taken out: so much of a transfer's volume per weight is left.
    pub(super) fn go_on(&mut self, slot: u32, volume: f64) {
        self.put_on_links(slot, Some(volume));
    }

    /// Starts a transfer's flow at the clock, whole or what is `left` of it, by the route that it has now; without one it is
    /// held until something changes.
    fn put_on_links(&mut self, slot: u32, left: Option<f64>) {
        let transfer = self.transfers[slot as usize];
        let at = Instant::at(self.clock.0);
        match transfer.subject {
            Subject::Message { nic, entropy, .. } => {
                if !self.lay(transfer.from, transfer.to, nic, entropy) {
                    self.hold(slot, left);
                    return;
                }
                let (latency, class) = (self.route_latency(), self.route.class);
                let state = &mut self.transfers[slot as usize];
                (state.latency, state.path, state.hops) = (latency, class, self.route.links.len() as u16);
                let whole = || self.wire_bytes(transfer.bytes, class) as f64 * VOLUME_PER_BYTE;
                let volume = left.unwrap_or_else(whole);
                if self.route.links.is_empty() {
                    self.arrive(slot, self.clock);
                    self.dequeue(slot);
                } else {
                    let path = self.route.links.iter().map(|&(link, share)| (link.0, share));
                    self.system.start(at, volume, 1.0, path, u64::from(slot));
                }
            }
            Subject::Coupled { group, .. } => {
                let group = &self.groups[group.0 as usize];
                if group.severed {
                    self.hold(slot, left);
                    return;
                }
                for part in &group.parts {
                    let payload = Bytes(transfer.bytes.0 * part.pairs);
                    let volume = self.wire_bytes(payload, part.class) as f64 * VOLUME_PER_BYTE;
                    self.system.start(at, volume, 1.0, part.links.iter().copied(), u64::from(slot));
                }
                self.exchange_flows += group.parts.len() as u64;
                if !group.parts.is_empty() {
                    return;
                }
                let whole = || self.wire_bytes(transfer.bytes, group.class) as f64 * VOLUME_PER_BYTE;
                let volume = left.map_or_else(whole, |left| left * group.weight);
                if group.links.is_empty() {
                    self.arrive(slot, self.clock);
                } else {
                    self.system.start(at, volume, group.weight, group.links.iter().copied(), u64::from(slot));
                }
            }
        }
    }

    /// A transfer has no way: it waits for a change, if any is to come.
    fn hold(&mut self, slot: u32, left: Option<f64>) {
        if !self.is_to_change() {
            return;
        }
        let transfer = &self.transfers[slot as usize];
        let (class, weight) = match transfer.subject {
            Subject::Message { .. } => (PathClass::Beyond, 1.0),
            Subject::Coupled { group, .. } => {
                let group = &self.groups[group.0 as usize];
                (group.class.max(PathClass::SameLeaf), group.weight)
            }
        };
        let whole = || self.wire_bytes(transfer.bytes, class) as f64 * VOLUME_PER_BYTE / weight;
        let volume = left.unwrap_or_else(whole);
        self.changes.held.push((slot, volume));
    }

    /// Rate of a link before any change.
    pub(super) fn nominal(&self, link: u32) -> f64 {
        let slow = self.slow.iter().filter(|(other, _)| other.0 == link);
        slow.fold(self.topology.link(LinkId(link)).rate.0 as f64, |rate, &(_, part)| rate * part)
    }

    /// Routes all groups anew, after paths have changed.
    pub(super) fn lay_groups(&mut self) {
        for number in 0..self.groups.len() {
            let Some(origin) = self.groups[number].origin.take() else { continue };
            let laid = if origin.members.is_empty() {
                self.lay_edges(&origin.edges, origin.entropy)
            } else {
                self.lay_tree(&origin.members, origin.entropy)
            };
            // A run under way keeps its turns at the switches where it began.
            let tree = self.groups[number].tree.take();
            let known = &mut self.groups[number];
            *known = Group { origin: Some(origin), ..laid };
            if tree.is_some() {
                known.tree = tree;
            }
        }
    }

    /// The links of a coupled group's edges.
    fn lay_edges(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> Group {
        let mut links = Vec::new();
        let (mut latency, mut class, mut severed) = (Span::ZERO, PathClass::Local, false);
        for &(from, to, weight) in edges {
            severed |= !self.lay(from, to, NicId(0), entropy);
            latency = latency.max(self.route_latency());
            class = class.max(self.route.class);
            if weight > 0 {
                links.extend(
                    self.route.links.iter().map(|&(link, share)| (link.0, share * f64::from(weight))),
                );
            }
        }
        // Stable, so that the shares of a link are summed in the order of the edges.
        links.sort_by_key(|&(link, _)| link);
        links.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        links.shrink_to_fit();
        let heaviest = edges.iter().map(|&(.., weight)| weight).max().unwrap_or(0).max(1);
        Group {
            parts: Vec::new(),
            links,
            weight: 1.0 / f64::from(heaviest),
            latency,
            class,
            severed,
            origin: None,
            tree: None,
            edges: edges.len() as u32,
            total_weight: edges.iter().map(|&(.., weight)| u64::from(weight)).sum(),
            ends: edges.first().map_or_else(Default::default, |&(from, to, _)| (from, to)),
        }
    }

    /// The links of a reduction's tree.
    fn lay_tree(&mut self, members: &[EndpointId], entropy: u32) -> Group {
        let (topology, seed) = (&self.topology, self.settings.seed);
        let tree = match &self.rerouter {
            None => Tree::new(topology, None, seed, members, entropy),
            Some(rerouter) => {
                let mut forwarder = reroute::lock(rerouter).forwarder().clone();
                Tree::new(topology, Some(&mut forwarder), seed, members, entropy)
            }
        };
        let severed = tree.is_none();
        let tree = tree.unwrap_or_default();
        let mut links: Vec<(u32, f64)> = tree.links(topology).iter().map(|link| (link.0, 1.0)).collect();
        links.sort_by_key(|&(link, _)| link);
        links.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        let sums = self.settings.reduction;
        let (up, switches) = tree.climb(topology);
        let trip = up + sums.latency * u64::from(switches) + tree.descent(topology);
        // A segment goes through every link whole.
        let full = self.settings.mtu.0 as f64 * 8.0;
        let packet = links.iter().map(|&(link, _)| full / self.rates[link as usize]).fold(0.0, f64::max);
        let packets = Span::from_seconds_ceil(packet * f64::from(2 * switches));
        let rate = self.reduction_rate(trip + packets);
        let latency = trip + self.settings.nic_latency;
        Group {
            parts: Vec::new(),
            links,
            weight: 1.0,
            latency,
            class: PathClass::Beyond,
            severed,
            origin: None,
            tree: Some((Arc::new(tree), rate)),
            edges: members.len() as u32,
            total_weight: members.len() as u64,
            ends: (members[0], members[members.len() - 1]),
        }
    }

    /// Books the arrival of a transfer whose last byte left at `left`.
    fn arrive(&mut self, slot: u32, left: Time) {
        let transfer = &self.transfers[slot as usize];
        let name = match transfer.subject {
            Subject::Message { message, .. } => u64::from(message),
            Subject::Coupled { run, .. } => 1 << 32 | u64::from(run),
        };
        self.arrivals.push(Reverse((left + transfer.latency, name, slot)));
    }

    /// Reports an arrival.
    fn report(&mut self, at: Time, slot: u32) -> Arrival {
        let transfer = self.transfers[slot as usize];
        self.free.push(slot);
        let (arrival, bytes, edges) = match transfer.subject {
            Subject::Message { message, .. } => {
                self.messages += 1;
                self.completion.add(at.since(transfer.start));
                (Arrival::Message { message }, transfer.bytes, 1)
            }
            Subject::Coupled { run, group, .. } => {
                let group = &self.groups[group.0 as usize];
                if let Some((tree, _)) = &group.tree {
                    self.turns.leave(tree, self.settings.reduction.operations, &mut self.admitted);
                }
                self.coupled_runs += 1;
                (Arrival::Coupled { run }, transfer.bytes * group.total_weight, group.edges)
            }
        };
        self.bytes_delivered += bytes.0;
        if self.settings.records {
            self.records.push(FlowRecord {
                source: transfer.from,
                destination: transfer.to,
                edges,
                bytes,
                start: transfer.start,
                finish: at,
                class: transfer.class,
                path: transfer.path,
                hops: transfer.hops,
            });
        }
        arrival
    }
}

/// The shares of each link summed up, in the order in which they come.
fn summed(mut links: Vec<(u32, f64)>) -> Vec<(u32, f64)> {
    // Stable, so that the shares of a link are summed in that order.
    links.sort_by_key(|&(link, _)| link);
    links.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    links.shrink_to_fit();
    links
}

impl Network for FlowNetwork {
    fn depart(&mut self, at: Time, departure: Departure) {
        let Departure { message, from, to, nic, bytes, class, entropy, ordered } = departure;
        self.request(Transfer {
            subject: Subject::Message { message, nic, entropy, ordered },
            from,
            to,
            bytes,
            start: at,
            latency: Span::ZERO,
            class,
            path: PathClass::Local,
            hops: 0,
            next: NONE,
            flows: 1,
        });
    }

    /// Each edge leaves by its sender's first NIC.
    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> CoupledId {
        let mut group = self.lay_edges(edges, entropy);
        if self.is_to_change() {
            group.origin = Some(Box::new(Origin { edges: edges.to_vec(), members: Vec::new(), entropy }));
        }
        self.groups.push(group);
        CoupledId(self.groups.len() as u32 - 1)
    }

    /// The links of the tree, each with one vector up and the sum down.
    fn prepare_reduction(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        let mut group = self.lay_tree(members, entropy);
        if self.is_to_change() {
            group.origin = Some(Box::new(Origin { edges: Vec::new(), members: members.to_vec(), entropy }));
        }
        self.groups.push(group);
        CoupledId(self.groups.len() as u32 - 1)
    }

    /// The flows of members that share a NIC go by its first member's. Where links are to change, all pairs are coupled:
    /// what is left of a group is laid anew as a whole.
    fn prepare_exchange(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        if self.is_to_change() {
            return self.prepare_coupled(&crate::model::pairs(members), entropy);
        }
        let topology = Arc::clone(&self.topology);
        let size = topology.scale_up_size();
        let domain = |member: EndpointId| {
            if size > 1 { member.0 / size } else { topology.nic(member, NicId(0)) }
        };
        let mut nics: Vec<(u32, EndpointId, u64)> = Vec::new();
        let mut place: FxHashMap<u32, usize> = FxHashMap::default();
        for &member in members {
            let nic = topology.nic(member, NicId(0));
            let at = *place.entry(nic).or_insert(nics.len());
            match nics.get_mut(at) {
                Some((.., count)) => *count += 1,
                None => nics.push((nic, member, 1)),
            }
        }
        let (mut parts, mut latency, mut class, mut severed) =
            (Vec::new(), Span::ZERO, PathClass::Local, false);
        for &(_, from, senders) in &nics {
            for &(_, to, receivers) in &nics {
                if domain(from) == domain(to) {
                    continue;
                }
                severed |= !self.lay(from, to, NicId(0), entropy);
                latency = latency.max(self.route_latency());
                class = class.max(self.route.class);
                let links = self.route.links.iter().map(|&(link, share)| (link.0, share)).collect();
                parts.push(Part { links, class: self.route.class, pairs: senders * receivers });
            }
        }
        // Inside a domain pairs share its ports evenly and are one flow: that of a pair, with multiplicities.
        let mut inside: Vec<EndpointId> = members.to_vec();
        inside.sort_unstable();
        for group in inside.chunk_by(|&a, &b| domain(a) == domain(b)).filter(|group| group.len() > 1) {
            let mut links = Vec::new();
            for &from in group {
                for &to in group.iter().filter(|&&to| to != from) {
                    severed |= !self.lay(from, to, NicId(0), entropy);
                    latency = latency.max(self.route_latency());
                    class = class.max(self.route.class);
                    links.extend(self.route.links.iter().map(|&(link, share)| (link.0, share)));
                }
            }
            let links = summed(links);
            parts.push(Part { links, class: PathClass::ScaleUp, pairs: 1 });
        }
        parts.retain(|part| !part.links.is_empty());
        let loads = parts
            .iter()
            .flat_map(|part| part.links.iter().map(|&(link, share)| (link, share * part.pairs as f64)));
        let links = summed(loads.collect());
        let members = members.len() as u64;
        self.groups.push(Group {
            edges: parts.len() as u32,
            parts,
            origin: None,
            tree: None,
            links,
            weight: 1.0,
            latency,
            class,
            severed,
            total_weight: members * members.saturating_sub(1),
            ends: nics.first().zip(nics.last()).map_or_else(Default::default, |(a, b)| (a.1, b.1)),
        });
        CoupledId(self.groups.len() as u32 - 1)
    }

    fn start_coupled(&mut self, at: Time, run: u32, group: CoupledId, bytes: Bytes, steps: u32, class: u8) {
        let delay = self.held_back(group, bytes);
        let edges = &self.groups[group.0 as usize];
        let transfer = Transfer {
            subject: Subject::Coupled { run, group },
            from: edges.ends.0,
            to: edges.ends.1,
            bytes,
            start: at,
            latency: edges.latency * u64::from(steps) + delay,
            class,
            path: edges.class,
            hops: edges.links.len().min(usize::from(u16::MAX)) as u16,
            next: NONE,
            flows: edges.parts.len().max(1) as u32,
        };
        self.request(transfer);
    }

    fn coupled_span(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span {
        let edges = &self.groups[group.0 as usize];
        let volume = self.wire_bytes(bytes, edges.class) as f64 * 8.0;
        let seconds = |&(link, multiplicity): &(u32, f64)| multiplicity * volume / self.rates[link as usize];
        let slowest = edges.links.iter().map(seconds).fold(0.0, f64::max);
        Span::from_seconds_ceil(slowest) + edges.latency * u64::from(steps) + self.held_back(group, bytes)
    }

    fn next_time(&mut self) -> Time {
        let of = |top: Option<&Reverse<(Time, u64, u32)>>| top.map_or(Time::NEVER, |&Reverse((at, ..))| at);
        let flows = self.system.next_departure().map_or(Time::NEVER, |batch| batch.notice);
        // Changes alone keep nothing going.
        let idle = self.system.live() == 0
            && self.changes.held.is_empty()
            && self.waiting.is_empty()
            && self.arrivals.is_empty();
        let change = if idle { Time::NEVER } else { self.changes.next() };
        flows.min(change).min(of(self.waiting.peek())).min(of(self.arrivals.peek())).max(self.clock)
    }

    fn advance(&mut self, to: Time, arrivals: &mut Vec<Arrival>) {
        debug_assert!(to >= self.clock, "the clock stands at {}, not before {to}", self.clock);
        self.clock = to;
        let mut ended = std::mem::take(&mut self.ended);
        let mut left = std::mem::take(&mut self.left);
        while let Some(batch) = self.system.depart(to, &mut ended) {
            for token in ended.drain(..) {
                let transfer = &mut self.transfers[token as usize];
                transfer.flows -= 1;
                if transfer.flows == 0 {
                    self.arrive(token as u32, batch.notice);
                    left.push(token as u32);
                }
            }
        }
        for slot in left.drain(..) {
            self.dequeue(slot);
        }
        (self.ended, self.left) = (ended, left);
        self.apply_changes();
        while let Some(&Reverse((at, _, slot))) = self.waiting.peek().filter(|Reverse((at, ..))| *at <= to) {
            debug_assert_eq!(at, to, "an advance beyond the next event");
            self.waiting.pop();
            self.enqueue(slot);
        }
        while let Some(&Reverse((at, _, slot))) = self.arrivals.peek().filter(|Reverse((at, ..))| *at <= to) {
            self.arrivals.pop();
            let arrival = self.report(at, slot);
            arrivals.push(arrival);
        }
        let mut admitted = std::mem::take(&mut self.admitted);
        for slot in admitted.drain(..) {
            self.begin(slot, true);
        }
        self.admitted = admitted;
    }
}
