//! The packet model as a [`Network`]: what leaves a scale-up domain goes through the [`Engine`](super::Engine), what stays inside is a
//! flow, at every fidelity.
//!
//! A message departs from its NIC at the instant given, on the queue pair of its sender, receiver, NIC and entropy if it
//! is ordered, otherwise on one of its own that closes when it is done. It arrives with its last packet, plus the latency
//! of both NICs.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Bytes, EndpointId, NicId, Span, Time};
use windtunnel_topology::{Forwarder, LinkId, LoadBalancer, PathClass, Route, Topology};

use super::background::{BackgroundUse, Generator};
use super::ears::CapturedPacket;
use super::engines::Engines;
use super::error::PacketError;
use super::handles::{Completion, OpenRequest, QueuePair};
use super::pair_series::PairSample;
use super::reduce::{Ended, Front};
use super::sampler::QueueSample;
use super::settings::{Balancer, PacketSettings};
use super::transport::Transport;
use crate::account::{Account, Delivered, FlowRecord};
use crate::flow::{FlowNetwork, FlowNetworkError, FlowSettings};
use crate::model::{Arrival, CoupledId, Departure, Network};
use crate::observations::{Observations, PacketUse, Trouble, Work};
use crate::reroute::{SharedRerouter, lock};

/// Background traffic is drawn for so long ahead.
const AHEAD: Span = Span::from_ps(16_000_000);

/// Set in the tokens of background traffic.
pub(super) const BACKGROUND: u64 = 1 << 63;

/// The message of somebody who has gone.
pub(super) const NOBODY: u32 = u32::MAX;

/// Events handled before the caller is asked again.
const BUDGET: u64 = 1 << 12;

/// A message outside scale-up domains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    pub(super) message: u32,
    from: EndpointId,
    to: EndpointId,
    class: u8,
    /// Queue pairs that still send parts of it.
    pub(super) parts: u32,
    bytes: u64,
    hops: u16,
}

/// NICs, switches and packets over a topology.
#[derive(Debug)]
pub struct PacketNetwork<T: Transport> {
    topology: Arc<Topology>,
    pub(super) engine: Engines<T>,
    /// Traffic inside scale-up domains.
    pub(super) inside: FlowNetwork,
    balancer: Balancer,
    moves_paths: bool,
    seed: u64,
    rerouter: Option<SharedRerouter>,
    nic_latency: Span,
    /// Payload of a full packet, and queue pairs that share a message.
    payload: u64,
    queue_pairs: u32,
    nics: u8,
    reductions: Front,
    /// What comes from outside scale-up domains.
    account: Account,
    background: Option<Generator>,
    /// Background traffic has been handed over up to here.
    drawn: Time,
    /// Paths chosen by hosts, by sender and receiver.
    chosen: FxHashMap<(u32, u32), Vec<Vec<LinkId>>>,
    /// Queue pairs that stay open.
    pub(super) pairs: FxHashMap<(u32, u32, u32, u16, u8), QueuePair>,
    pub(super) messages: Vec<Outside>,
    pub(super) free: Vec<u32>,
    pub(super) clock: Time,
    done: Vec<Completion>,
    /// Between the NIC and the host.
    pub(super) handed: VecDeque<Completion>,
    /// When what is under way is given up; [`Time::NEVER`] once it has been, and where it is not.
    until: Time,
    /// Why the run cannot go on.
    fault: Option<String>,
}

/// What is said of a message with more packets than a queue pair numbers.
pub fn too_long(bytes: Bytes, packets: u64) -> String {
    format!(
        "a message of {} B has {packets} packets on one queue pair, expected fewer than 2^32\n\nhint: send it in several \
         messages or over more `network.queue_pairs`; `fidelity: flow` has no packets",
        bytes.get()
    )
}

/// Why there is no network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PacketNetworkError {
    /// Settings that cannot work.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// Scale-up links that cannot.
    #[error(transparent)]
    Flow(#[from] FlowNetworkError),
}

impl<T: Transport> PacketNetwork<T> {
    /// An idle network at time zero.
    ///
    /// # Errors
    /// [`PacketNetworkError`] for settings that cannot work on this topology.
    pub fn new(
        topology: Arc<Topology>,
        settings: PacketSettings,
        transport: T,
    ) -> Result<Self, PacketNetworkError> {
        let inside = FlowNetwork::new(
            topology.clone(),
            FlowSettings::inside(settings.seed, settings.mtu, settings.header, settings.records),
        )?;
        let reductions = Front::new(&settings);
        let (balancer, seed, nic_latency) = (settings.balancer, settings.seed, settings.nic_latency);
        let (payload, queue_pairs, nics) = (settings.payload(), settings.queue_pairs, settings.nics);
        let account = Account::new(settings.records);
        let background = Generator::new(&topology, &settings);
        let mut chosen: FxHashMap<(u32, u32), Vec<Vec<LinkId>>> = FxHashMap::default();
        for route in &settings.routes {
            chosen.entry((route.from, route.to)).or_default().push(route.links.clone());
        }
        let moves_paths = settings.impairments.moves_paths();
        let until = settings.until.map_or(Time::NEVER, |until| Time::ZERO + until);
        Ok(Self {
            engine: Engines::new(topology.clone(), settings, transport, nic_latency)?,
            topology,
            inside,
            balancer,
            moves_paths,
            seed,
            rerouter: None,
            nic_latency,
            payload,
            queue_pairs,
            nics,
            reductions,
            account,
            background,
            drawn: Time::ZERO,
            chosen,
            pairs: FxHashMap::default(),
            messages: Vec::new(),
            free: Vec::new(),
            clock: Time::ZERO,
            done: Vec::new(),
            handed: VecDeque::new(),
            until,
            fault: None,
        })
    }

    /// Routes around what has failed. A message between NICs that nothing joins never arrives: its rerouter tells.
    #[must_use]
    pub fn rerouted(mut self, rerouter: SharedRerouter) -> Self {
        let forwarder = lock(&rerouter).forwarder().clone();
        self.engine = self.engine.rerouted(&forwarder);
        self.rerouter = Some(rerouter);
        self
    }

    /// Why the run cannot go on, or brings no more of what is awaited.
    fn trouble(&self) -> Option<Trouble> {
        if let Some(fault) = &self.fault {
            return Some(Trouble::Fault(fault.clone()));
        }
        let cycle = self.engine.pause_cycle();
        if !cycle.is_empty() {
            return Some(Trouble::PauseCycle(cycle));
        }
        let silent = self.engine.silent_pair().map(Trouble::SilentPair);
        silent.or_else(|| self.engine.has_lost_for_good().then_some(Trouble::LostForGood))
    }

    /// Whether one queue pair would have to number more `packets` of a message than it can, which is the run's end.
    fn is_too_long(&mut self, bytes: Bytes, packets: u64) -> bool {
        let long = packets > u64::from(u32::MAX);
        if long && self.fault.is_none() {
            self.fault = Some(too_long(bytes, packets));
        }
        long
    }

    /// Whether a path joins both ends, in both directions.
    fn joined(&self, departure: &Departure) -> bool {
        let Some(shared) = &self.rerouter else { return true };
        let Departure { from, to, nic, entropy, .. } = *departure;
        let (mut rerouter, mut route) = (lock(shared), Route::new());
        [(from, to), (to, from)].into_iter().all(|(from, to)| {
            rerouter.route(LoadBalancer::Ecmp, self.seed, from, to, nic, entropy, &mut route).is_some()
        })
    }

    /// The NICs by which a message goes: all of its GPU that a path joins to the other end; none if it has no way.
    fn nics_of(&self, departure: &Departure) -> SmallVec<[NicId; 8]> {
        let mut nics: SmallVec<[NicId; 8]> =
            (0..self.nics).map(|other| NicId(departure.nic.0.wrapping_add(other))).collect();
        if let Some(shared) = self.rerouter.as_ref().filter(|_| self.nics > 1) {
            let Departure { from, to, entropy, .. } = *departure;
            let (mut rerouter, mut route) = (lock(shared), Route::new());
            let mut leads = |from, to, nic| {
                let forwarder = rerouter.forwarder_mut();
                forwarder.route(LoadBalancer::Ecmp, self.seed, from, to, nic, entropy, &mut route).is_ok()
            };
            nics.retain(|&mut nic| leads(from, to, nic) && leads(to, from, nic));
            if nics.is_empty() {
                nics.push(departure.nic);
            }
        }
        nics.retain(|&mut nic| self.joined(&Departure { nic, ..*departure }));
        nics
    }

    /// The engine, for what it counted.
    pub fn engine(&self) -> &Engines<T> {
        &self.engine
    }

    /// What background traffic came to, if there is any.
    pub fn background(&self) -> Option<&BackgroundUse> {
        self.background.as_ref().map(|background| &background.account)
    }

    /// What has arrived, also inside scale-up domains. Completion times are those of messages between them, from their
    /// departure to the last byte's arrival.
    pub fn delivered(&self) -> Delivered {
        self.account.delivered().clone().with_inside(self.inside.delivered())
    }

    /// The queue pair of part `part` of a message. Parts take the planes of their NIC in turn.
    fn open(&mut self, at: Time, departure: &Departure, entropy: u32, part: u64) -> QueuePair {
        let Departure { from, to, nic, line, class, .. } = *departure;
        let ordered = line > 0;
        let (source, sink) = (self.topology.nic(from, nic), self.topology.nic(to, nic));
        let key = (source, sink, entropy, line, self.engine.lane_of_class(class));
        if ordered && let Some(&pair) = self.pairs.get(&key) {
            return pair;
        }
        let balancer = match self.balancer {
            Balancer::DestinationModulo => LoadBalancer::DestinationModulo,
            _ => LoadBalancer::Ecmp,
        };
        let routed = match self.balancer {
            Balancer::DestinationModulo => true,
            Balancer::Ecmp => self.rerouter.is_some() && !self.moves_paths,
            _ => false,
        };
        let mut route = Route::new();
        let mut links = |from, to| -> Vec<LinkId> {
            match &self.rerouter {
                _ if !routed => return Vec::new(),
                Some(shared) => {
                    lock(shared).route(balancer, self.seed, from, to, nic, entropy, &mut route);
                }
                None => self.topology.route(balancer, self.seed, from, to, nic, entropy, &mut route),
            }
            route.links.iter().map(|&(link, _)| link).collect()
        };
        let (mut there, mut back) = (links(from, to), links(to, from));
        if !self.chosen.is_empty() {
            let of = |from, to| {
                let paths = self.chosen.get(&(from, to))?;
                Some(&paths[((u64::from(departure.entropy) + part) % paths.len() as u64) as usize])
            };
            let reversed = |path: &Vec<LinkId>| -> Vec<LinkId> {
                path.iter().rev().map(|&link| self.topology.reverse(link)).collect()
            };
            let (forth, own) = (of(source, sink), of(sink, source));
            if let Some(path) = forth {
                there.clone_from(path);
            }
            if let Some(path) = own.cloned().or_else(|| forth.map(reversed)) {
                back = path;
            }
        }
        let request = OpenRequest { from: source, to: sink, entropy, keep: ordered, route: [&there, &back] };
        let planes = self.topology.planes();
        let plane = (planes > 1 && self.queue_pairs > 1).then(|| {
            let hash = self.topology.flow_hash(self.seed, source, sink, departure.entropy);
            let first = self.topology.plane(hash);
            ((u64::from(first) + part) % u64::from(planes)) as u32
        });
        let pair = self.engine.open_on(at, &request, plane);
        self.engine.classify(pair, class);
        if ordered {
            self.pairs.insert(key, pair);
        }
        pair
    }

    /// When background traffic is to be handed over next.
    fn horizon(&self) -> Time {
        match self.background {
            Some(_) if !self.engine.is_hopeless() => self.drawn.max(self.clock),
            _ => Time::NEVER,
        }
    }

    /// Whether nothing is under way that somebody waits for.
    fn is_quiet(&mut self) -> bool {
        self.messages.len() == self.free.len()
            && self.reductions.is_idle()
            && self.inside.next_time() == Time::NEVER
    }

    /// When what is under way is to be given up next.
    fn stop(&mut self) -> Time {
        if self.until == Time::NEVER || self.is_quiet() { Time::NEVER } else { self.until.max(self.clock) }
    }

    /// Hands over the background traffic of the next while, once the clock has come to the end of the last.
    fn draw_background(&mut self) {
        let Some(background) = &mut self.background else { return };
        if self.clock < self.drawn || self.engine.is_hopeless() {
            return;
        }
        self.drawn = Time::from_ps((self.clock.ps() / AHEAD.ps() + 1) * AHEAD.ps());
        while let Some(begin) = background.begin(&self.topology, self.drawn) {
            let entropy = combine(u64::from(begin.kind), u64::from(begin.number)) as u32;
            let route: [&[LinkId]; 2] = [&[], &[]];
            let request = OpenRequest { from: begin.from, to: begin.to, entropy, keep: false, route };
            let pair = self.engine.open(self.clock, &request);
            self.engine.set_aside(pair);
            self.engine.send(begin.at.max(self.clock), pair, begin.bytes, BACKGROUND);
        }
    }

    /// Follows background traffic, to which nothing was owed meanwhile, up to `at`.
    fn catch_up(&mut self, at: Time) {
        let mut nothing = Vec::new();
        while self.background.is_some() && self.clock < at {
            self.run(self.clock, at, &mut nothing);
        }
        debug_assert!(nothing.is_empty(), "nobody waits for background traffic");
    }

    /// A reduction has ended.
    fn reduced(&mut self, ended: &Ended, at: Time) -> Arrival {
        let &Ended { run, from, to, members, bytes, class, start } = ended;
        let bytes = bytes * u64::from(members);
        self.account.group(0, bytes);
        self.account.record(|| FlowRecord {
            source: from,
            destination: to,
            edges: members,
            bytes,
            start,
            finish: at,
            class,
            path: PathClass::Beyond,
            hops: 0,
        });
        Arrival::Coupled { run }
    }

    /// A message has reached its host.
    fn report(&mut self, completion: &Completion, at: Time, arrivals: &mut Vec<Arrival>) {
        if completion.token & BACKGROUND != 0 {
            if let Some(background) = &mut self.background {
                background.arrived(completion.bytes, at.since(completion.start));
            }
            return;
        }
        if Front::owns(completion.token) {
            if let Some(ended) = self.reductions.completed(&mut self.engine, completion.token, at) {
                arrivals.push(self.reduced(&ended, at));
            }
            return;
        }
        let slot = completion.token as u32;
        let outside = &mut self.messages[slot as usize];
        outside.parts -= 1;
        if outside.parts > 0 {
            return;
        }
        let Outside { message, from, to, class, bytes, hops, .. } = *outside;
        self.free.push(slot);
        if message == NOBODY {
            return;
        }
        self.account.message(Bytes::new(bytes), Some(at.since(completion.start)));
        self.account.record(|| FlowRecord {
            source: from,
            destination: to,
            edges: 1,
            bytes: Bytes::new(bytes),
            start: completion.start,
            finish: at,
            class,
            path: self.topology.path_class(from, to),
            hops,
        });
        arrivals.push(Arrival::Message { message });
    }
}

impl<T: Transport> Network for PacketNetwork<T> {
    fn depart(&mut self, at: Time, departure: Departure) {
        let Departure { message, from, to, bytes, class, .. } = departure;
        if self.background.is_some() && self.is_quiet() {
            self.catch_up(at);
        }
        if self.topology.path_class(from, to) <= PathClass::ScaleUp {
            self.inside.depart(at, departure);
            return;
        }
        let nics = self.nics_of(&departure);
        if nics.is_empty() {
            return;
        }
        // Whole packets to each queue pair, the first ones one more where they do not divide.
        let packets = bytes.get().max(1).div_ceil(self.payload);
        let parts = packets.min(u64::from(self.queue_pairs).max(nics.len() as u64));
        if self.is_too_long(bytes, packets.div_ceil(parts)) {
            return;
        }
        let outside = Outside { message, from, to, class, parts: parts as u32, bytes: bytes.get(), hops: 0 };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.messages[slot as usize] = outside;
                slot
            }
            None => {
                self.messages.push(outside);
                self.messages.len() as u32 - 1
            }
        };
        let mut left = bytes.get();
        for part in 0..parts {
            let entropy = self.topology.hash().part(departure.entropy, part as u32);
            let departure = Departure { nic: nics[part as usize % nics.len()], ..departure };
            let pair = self.open(at, &departure, entropy, part);
            let share = (packets / parts + u64::from(part < packets % parts)) * self.payload;
            let size = share.min(left);
            left -= size;
            self.messages[slot as usize].hops = self.engine.links(pair) as u16;
            self.engine.send(at, pair, Bytes::new(size), u64::from(slot));
        }
    }

    fn prepare_reduction(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        self.reductions.prepare(&self.topology, self.rerouter.as_ref(), self.seed, members, entropy)
    }

    /// Groups run inside scale-up domains only.
    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> CoupledId {
        self.inside.prepare_coupled(edges, entropy)
    }

    fn start_coupled(&mut self, at: Time, run: u32, group: CoupledId, bytes: Bytes, steps: u32, class: u8) {
        if self.background.is_some() && self.is_quiet() {
            self.catch_up(at);
        }
        if Front::is_one(group) {
            if self.is_too_long(bytes, bytes.get().div_ceil(self.payload)) {
                return;
            }
            self.reductions.start(&mut self.engine, at, run, group, bytes, class);
            return;
        }
        self.inside.start_coupled(at, run, group, bytes, steps, class);
    }

    fn coupled_span(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span {
        if Front::is_one(group) {
            return self.reductions.span(group, bytes);
        }
        self.inside.coupled_span(group, bytes, steps)
    }

    fn next_time(&mut self) -> Time {
        if self.background.is_some() && self.is_quiet() {
            return Time::NEVER;
        }
        let horizon = self.horizon();
        let handed = self.handed.front().map_or(Time::NEVER, |completion| completion.at + self.nic_latency);
        let stop = self.stop();
        self.engine
            .next_time()
            .min(self.inside.next_time())
            .min(handed)
            .min(horizon)
            .min(stop)
            .max(self.clock)
    }

    fn advance(&mut self, to: Time, arrivals: &mut Vec<Arrival>) {
        while self.run(self.clock, to, arrivals) < to {}
    }

    fn run(&mut self, _: Time, limit: Time, arrivals: &mut Vec<Arrival>) -> Time {
        self.draw_background();
        let inside = self.inside.next_time();
        let handed = self.handed.front().map_or(Time::NEVER, |completion| completion.at + self.nic_latency);
        let stop = self.stop();
        let bound = limit.min(inside).min(handed).min(self.horizon()).min(stop);
        let mut reached = bound;
        if self.engine.next_time() <= bound {
            let mut done = std::mem::take(&mut self.done);
            reached = self.engine.run(bound, BUDGET, &mut done);
            for completion in done.drain(..) {
                if self.nic_latency == Span::ZERO {
                    self.report(&completion, completion.at, arrivals);
                } else {
                    self.handed.push_back(completion);
                }
            }
            self.done = done;
        }
        if inside == reached {
            self.inside.advance(reached, arrivals);
            // Now: when records are taken depends on how far the engines run at a time, and that on how many they are. Of one
            // instant those inside scale-up domains come first.
            self.account.take_over(self.inside.account_mut());
        }
        while let Some(&completion) = self.handed.front()
            && completion.at + self.nic_latency <= reached
        {
            self.handed.pop_front();
            self.report(&completion, reached, arrivals);
        }
        self.clock = reached;
        if reached == stop && stop != Time::NEVER {
            self.until = Time::NEVER;
            self.inside.advance(reached, arrivals);
            arrivals.extend(self.take_gone(&|_| true));
        }
        reached
    }

    fn abandon(&mut self, gone: &dyn Fn(Arrival) -> bool) -> Option<Vec<Arrival>> {
        Some(self.take_gone(gone))
    }

    /// No queue pair is bound to a path from now on.
    fn expect_changes(&mut self) {
        self.moves_paths = true;
    }

    /// Right after the present packets go where `forwarder` says, and what is on links that are out is lost.
    fn change_paths(&mut self, forwarder: &Forwarder) {
        self.engine.lead_from(self.clock + Span::from_ps(1), forwarder);
    }

    fn keep_digest(&mut self, focus: &EventDigest) {
        self.engine.keep_digest(focus);
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    fn events(&self) -> u64 {
        self.engine.totals().events
    }

    fn observe(&mut self, at: Time) -> Observations {
        self.engine.catch_up(at);
        let engine = &self.engine;
        let totals = engine.totals();
        let packets = PacketUse {
            totals,
            queueing: engine.queueing(),
            ports: engine.port_reports(),
            reordering: engine.reordering(),
            background: self.background().cloned(),
            tally: engine.tally(),
            deliveries: engine.deliveries(),
            uncaptured: engine.uncaptured(),
        };
        let work = Work {
            events: totals.events,
            packet_hops: Some(engine.packet_hops()),
            digest: engine.digest(),
            ..Work::default()
        };
        Observations {
            delivered: Some(self.delivered()),
            links: None,
            packets: Some(Box::new(packets)),
            work,
            trouble: self.trouble(),
        }
    }

    fn take_records(&mut self, records: &mut Vec<FlowRecord>) {
        self.account.take_records(records);
    }

    fn take_samples(&mut self, samples: &mut Vec<QueueSample>) {
        self.engine.take_samples(samples);
    }

    fn take_pair_samples(&mut self, samples: &mut Vec<PairSample>) {
        self.engine.take_pair_samples(samples);
    }

    fn take_captured(&mut self, captured: &mut Vec<CapturedPacket>) -> u64 {
        self.engine.take_captured(self.clock, captured)
    }
}
