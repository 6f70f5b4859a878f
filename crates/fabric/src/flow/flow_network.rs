//! The flow model as a [`Network`]: a message is routed, becomes a flow of its wire bytes, and arrives one latency after
//! its last byte has left the bottleneck.
//!
//! **Life cycle of a message.** [`Network::depart`] takes a request, which waits if its instant lies ahead; at that instant
//! it is routed and starts as a flow, together with all others of the instant; when the flow ends, its arrival is booked;
//! when the clock gets there, [`Network::advance`] reports it. A coupled group goes the same way as one flow.
//!
//! Messages on one queue pair (equal sender, receiver, entropy and line, [`Departure::line`]) are sent one after the other: the
//! next starts when the last byte of the one before has left the bottleneck. Were they flows of their own, a rank that
//! catches up with a ring would share its NIC among all the rounds it is behind, and its neighbour would get the first
//! of them last.
//!
//! **Wire bytes** = payload + headers of ceil(payload / (mtu − header)) packets beyond the scale-up domain, and parity where messages are
//! coded ([`crate::coding`]); `mtu` counts the whole packet. Inside the domain there are no headers. A coupled group counts headers if
//! any of its edges leaves the domain.
//!
//! **Memory** is bounded by live messages, the coupled groups prepared, and 128 bins per link with traffic if observed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{Bytes, EndpointId, Span, Time};
use windtunnel_topology::{Forwarder, LinkId, PathClass, Route, Topology};

use super::change::Changes;
use super::groups::Group;
use super::instant::Instant;
use super::settings::{FlowNetworkError, FlowSettings};
use super::system::FlowSystem;
use super::transfer::{NONE, Subject, Transfer, slot_of};
use crate::account::{Account, Delivered, FlowRecord};
use crate::coding;
use crate::model::{Arrival, CoupledId, Departure, InStep, Network};
use crate::observations::{LinkBytes, LinkUsage, Observations, Work};
use crate::reduction::Turns;
use crate::reroute::SharedRerouter;

/// Volume of a byte: capacities are in bit/s and ticks in ps, so that both are exact.
pub(super) const VOLUME_PER_BYTE: f64 = 8e12;

/// The flow model over a topology.
#[derive(Debug)]
pub struct FlowNetwork {
    pub(super) topology: Arc<Topology>,
    /// Asked for routes instead of the topology where something has failed.
    pub(super) rerouter: Option<SharedRerouter>,
    pub(super) settings: FlowSettings,
    /// Of each link, in bit/s.
    pub(super) rates: Vec<f64>,
    /// Links that run at a part of their rate from the start.
    slow: Vec<(LinkId, f64)>,
    pub(super) changes: Changes,
    pub(super) system: FlowSystem,
    pub(super) clock: Time,
    pub(super) transfers: Vec<Transfer>,
    pub(super) free: Vec<u32>,
    /// Last transfer on each queue pair that sends or waits.
    pub(super) queue_pairs: FxHashMap<(u32, u32, u32, u16), u32>,
    /// Requests that lie ahead: instant, order of request, transfer.
    pub(super) waiting: BinaryHeap<Reverse<(Time, u64, u32)>>,
    pub(super) requests: u64,
    /// Arrivals booked: instant, kind and id as the host model names it, transfer.
    pub(super) arrivals: BinaryHeap<Reverse<(Time, u64, u32)>>,
    pub(super) groups: Vec<Group>,
    pub(super) turns: Turns,
    /// Runs whose turn has come.
    pub(super) admitted: Vec<u32>,
    pub(super) route: Route,
    ended: Vec<u64>,
    /// Transfers whose last byte has left in the advance in hand.
    left: Vec<u32>,
    pub(super) account: Account,
    pub(super) coupled_runs: u64,
    pub(super) exchange_flows: u64,
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
        let mut capacities: Vec<f64> =
            links.map(|link| topology.link(LinkId(link)).rate.bps() as f64).collect();
        for &(link, part) in parts {
            capacities[link.0 as usize] *= part;
        }
        let mut system = FlowSystem::new(&capacities)?;
        let account = Account::new(settings.records);
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
            account,
            coupled_runs: 0,
            exchange_flows: 0,
        })
    }

    /// With failed parts: `rerouter` is asked for routes and keeps account of them. A message, and a coupled group, of
    /// a pair that nothing joins never arrives.
    #[must_use]
    pub fn rerouted(self, rerouter: SharedRerouter) -> Self {
        Self { rerouter: Some(rerouter), ..self }
    }

    /// What has arrived.
    pub fn delivered(&self) -> &Delivered {
        self.account.delivered()
    }

    /// Runs of coupled groups ended.
    pub fn coupled_runs(&self) -> u64 {
        self.coupled_runs
    }

    /// Flows of exchanges begun: see [`Network::prepare_exchange`].
    pub fn exchange_flows(&self) -> u64 {
        self.exchange_flows
    }

    /// Solves of the max-min system so far.
    pub fn solves(&self) -> u64 {
        self.system.solves()
    }

    /// The account of what arrives, for a network that has this one inside.
    pub fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }

    /// What each link with traffic has carried until now; `None` unless links are observed.
    pub fn link_usage(&mut self) -> Option<LinkBytes> {
        // Nothing happens between the last event and the clock: what flows still carry is credited up to the clock.
        self.system.advance(Instant::at(self.clock.ps()));
        let meter = self.system.meter()?;
        let width = meter.width_log2();
        let usage = |link: u32| {
            let bins = meter.bins(link as usize, width)?;
            Some(LinkUsage {
                link: LinkId(link),
                bytes: meter.volume(link as usize) / VOLUME_PER_BYTE,
                bins: bins.into_iter().map(|volume| volume / VOLUME_PER_BYTE).collect(),
            })
        };
        let links = (0..self.topology.link_count() as u32).filter_map(usage).collect();
        Some(LinkBytes { width: Span::from_ps(1 << width), links })
    }

    /// Bytes on the wire for `payload` over a path of `class`.
    pub(super) fn wire_bytes(&self, payload: Bytes, class: PathClass) -> u64 {
        let FlowSettings { mtu, header, coding, .. } = self.settings;
        if class > PathClass::ScaleUp {
            coding::wire_bytes(payload.get(), mtu, header, coding)
        } else {
            payload.get()
        }
    }

    /// Rate of a link before any change.
    pub(super) fn nominal(&self, link: u32) -> f64 {
        let slow = self.slow.iter().filter(|(other, _)| other.0 == link);
        slow.fold(self.topology.link(LinkId(link)).rate.bps() as f64, |rate, &(_, part)| rate * part)
    }
}

impl Network for FlowNetwork {
    fn depart(&mut self, at: Time, departure: Departure) {
        let Departure { message, from, to, nic, bytes, class, entropy, line } = departure;
        let first = self.settings.latency_first && self.lay(from, to, nic, entropy);
        let at = if first { at + self.route_latency() } else { at };
        self.request(Transfer {
            subject: Subject::Message { message, nic, entropy, line },
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

    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> CoupledId {
        self.group_of_edges(edges, entropy)
    }

    fn prepare_reduction(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        self.group_of_tree(members, entropy)
    }

    fn prepare_exchange(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        self.group_of_exchange(members, entropy)
    }

    fn prepare_in_step(&mut self, members: &[EndpointId], entropy: u32) -> Option<InStep> {
        self.group_in_step(members, entropy)
    }

    fn start_coupled(&mut self, at: Time, run: u32, group: CoupledId, bytes: Bytes, steps: u32, class: u8) {
        let latency = self.step_latency(group, bytes, steps) + self.held_back(group, bytes);
        let edges = &self.groups[group.0 as usize];
        let transfer = Transfer {
            subject: Subject::Coupled { run, group },
            from: edges.ends.0,
            to: edges.ends.1,
            bytes,
            start: at,
            latency,
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
        Span::from_seconds_ceil(slowest)
            + self.step_latency(group, bytes, steps)
            + self.held_back(group, bytes)
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

    /// A flow whose end does not fit in 64 bits has no next event at all.
    fn is_beyond(&mut self) -> bool {
        self.system.live() > 0 || self.next_time() != Time::NEVER
    }

    fn advance(&mut self, to: Time, arrivals: &mut Vec<Arrival>) {
        debug_assert!(to >= self.clock, "the clock stands at {}, not before {to}", self.clock);
        self.clock = to;
        let mut ended = std::mem::take(&mut self.ended);
        let mut left = std::mem::take(&mut self.left);
        while let Some(batch) = self.system.depart(to, &mut ended) {
            for token in ended.drain(..) {
                let slot = slot_of(token);
                let transfer = &mut self.transfers[slot as usize];
                transfer.flows -= 1;
                if transfer.flows == 0 {
                    self.arrive(slot, batch.notice);
                    left.push(slot);
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

    fn abandon(&mut self, gone: &dyn Fn(Arrival) -> bool) -> Option<Vec<Arrival>> {
        Some(self.take_gone(gone))
    }

    fn expect_changes(&mut self) {
        self.expect_other_paths();
    }

    fn change_paths(&mut self, _: &Forwarder) {
        self.paths_changed();
    }

    fn observe(&mut self, _: Time) -> Observations {
        // First: what is asked for links may be solved for them.
        let links = self.link_usage();
        let delivered = self.account.delivered();
        let work = Work {
            solves: self.system.solves(),
            flows: delivered.messages + self.coupled_runs + self.exchange_flows,
            ..Work::default()
        };
        Observations { delivered: Some(delivered.clone()), links, work, ..Observations::default() }
    }

    fn take_records(&mut self, records: &mut Vec<FlowRecord>) {
        self.account.take_records(records);
    }
}
