//! The engine: what there is, how it is built from a topology, and the event loop.

use std::sync::Arc;

use prefetch_index::prefetch_index;
use rustc_hash::{FxHashMap, FxHashSet};
use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::queue::{Agenda, CalendarQueue, EventKey, EventOrder};
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_topology::{Forwarder, LinkId, Node, Peer, SwitchId, SwitchRule, Target, Topology};

use super::balance::Balance;
use super::credit::Credits;
use super::crossing::{Crossing, Gone};
use super::impair::{Changes, Clocks, PartState, links_of};
use super::link::{LinkFacts, LinkKind};
use super::message::{Incoming, Outgoing, Slots};
use super::nic::NicPort;
use super::packets::{Kind, NONE, Packets, flag};
use super::port::{Far, List, Port};
use super::queues::Queues;
use super::receive::{Feedbacks, Receiver};
use super::reorder::Reordering;
use super::sample::Sampler;
use super::send::{Paths, Sender};
use super::settings::{Forwarding, PacketError, PacketSettings};
use super::statistics::{PortCounters, PortReport};
use super::switch::Switch;
use super::telemetry::{Hop, Telemetry};
use super::transport::{Recovery, Transport};

/// What kind of event but a port's (see [`Key`]): at an instant those of ports come first, the first packet on a port's
/// cable having reached the far end.
pub(super) mod class {
    /// A NIC port may have something to send.
    pub const WAKE: u32 = 1;
    /// A transport's own timer.
    pub const TIMER: u32 = 2;
    /// Something in flight may be lost.
    pub const SILENCE: u32 = 3;
    /// A message is handed over.
    pub const START: u32 = 4;
    /// Something is due at a switch's port that no packet's arrival brings about.
    pub const TOUCH: u32 = 5;
    /// A queue may have been paused for too long.
    pub const CHECK: u32 = 6;
    /// A pause frame reaches the port that it is for; its name is twice the queue, and one more for a pause.
    pub const PAUSE: u32 = 7;
    /// Something changes that was known ahead: by its number, after all else at that instant.
    pub const CHANGE: u32 = 15;
    /// A NIC port may grant credit.
    pub const CREDIT: u32 = 8;
}

/// Order of events but ports': time, class, port, and for queue pairs the count that names one at its NIC port. Each has
/// at most one event of a class at an instant (several equal ones of a NIC or queue pair mean the same), so this order is
/// total and knows nothing of processes, nor of the places that things lie in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key(u128);

/// More ports than a core's own caches hold.
const LARGE: usize = 1 << 14;

/// Ports are numbered in so many bits of a key.
const PORT_BITS: u32 = 28;

impl Key {
    /// Of a port or a NIC port.
    #[inline]
    pub(super) const fn new(time: u64, class: u32, port: u32) -> Self {
        Self::named(time, class, port, 0)
    }

    /// Of the queue pair that is called `name` at its NIC port.
    #[inline]
    pub(super) const fn named(time: u64, class: u32, port: u32, name: u32) -> Self {
        Self((time as u128) << 64 | (class as u128) << (32 + PORT_BITS) | (port as u128) << 32 | name as u128)
    }

    #[inline]
    const fn class(self) -> u32 {
        (self.0 as u64 >> (32 + PORT_BITS)) as u32
    }

    #[inline]
    const fn port(self) -> u32 {
        (self.0 >> 32) as u32 & ((1 << PORT_BITS) - 1)
    }

    #[inline]
    const fn name(self) -> u32 {
        self.0 as u32
    }
}

impl EventOrder for Key {
    #[inline]
    fn time(self) -> Time {
        Time((self.0 >> 64) as u64)
    }

    #[inline]
    fn before(self, other: Self) -> bool {
        self.0 < other.0
    }
}

/// Between which NICs a queue pair is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRequest<'a> {
    /// Sender, counted over all hosts.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// What the load balancer hashes.
    pub entropy: u32,
    /// Whether it stays open for more messages; otherwise it closes after its first.
    pub keep: bool,
    /// The links to take there and back, chosen by the host; empty: the balancer chooses.
    pub route: [&'a [LinkId]; 2],
}

/// An open queue pair: where its halves lie. Places are used again after it has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueuePair {
    pub(super) sender: u32,
    pub(super) receiver: u32,
    /// Processes of the two.
    pub(super) homes: [u32; 2],
}

/// What is worked out for a queue pair before its halves are opened.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// NIC ports from which and to which packets go, there and back.
    pub ports: [[u32; 2]; 2],
    /// Egress ports on the ways there and back, and what is hashed on them.
    pub paths: [Vec<u32>; 2],
    pub hashes: [u64; 2],
    /// Whether all packets take these paths; otherwise each asks the topology anew.
    pub fixed: bool,
    pub keep: bool,
}

/// A message whose last byte has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The caller's name for it.
    pub token: u64,
    /// When.
    pub at: Time,
    /// When it was handed over.
    pub start: Time,
    /// Payload.
    pub bytes: Bytes,
}

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events handled: arrivals of packets anywhere, starts, timers, grants and pauses, but none that only keep a port
    /// going.
    pub events: u64,
    /// Data packets that arrived, also those not wanted.
    pub data_packets: u64,
    /// Acknowledgements that arrived.
    pub acknowledgements: u64,
    /// Packets refused for lack of room or lost on a cable.
    pub drops: u64,
    /// Of them those lost on a cable that works.
    pub corrupted: u64,
    /// Of them those that were on a link that went down, waited for it, or met it.
    pub link_down: u64,
    /// Data packets cut to their headers for lack of room.
    pub trims: u64,
    /// PULLs that receivers sent, and the bytes that these granted.
    pub grants: u64,
    /// See `grants`.
    pub credit: u64,
    /// Data packets marked.
    pub marks: u64,
    /// Data packets sent again.
    pub retransmissions: u64,
    /// Data packets that arrived before an earlier one.
    pub reordered: u64,
    /// Times that silence was taken for loss.
    pub timeouts: u64,
    /// Payload of messages completed.
    pub bytes_delivered: u64,
    /// Times that a queue of a port was paused.
    pub pauses: u64,
}

/// Ports, switches, NICs, queue pairs and packets, and their events.
#[derive(Clone, Debug)]
pub struct Engine<T: Transport> {
    pub(super) topology: Arc<Topology>,
    /// Next hops where something has failed.
    pub(super) forwarder: Option<Forwarder>,
    pub(super) settings: PacketSettings,
    pub(super) transport: T,
    pub(super) clock: u64,
    /// Events of ports: by time, then port.
    pub(super) agenda: Agenda,
    /// All other events, and when the first of them is.
    pub(super) queue: CalendarQueue<(), Key>,
    soon: u64,
    pub(super) kinds: Vec<LinkKind>,
    /// Of every switch, where the topology has them; else none.
    pub(super) rules: Vec<SwitchRule>,
    /// NICs' first (nic · planes + plane), then switch by switch.
    pub(super) ports: Vec<Port>,
    pub(super) switches: Vec<Switch>,
    pub(super) nics: Vec<NicPort>,
    /// Several data queues a port, and pauses; off where there are none.
    pub(super) queues: Queues,
    /// Where packets to a NIC port leave the fabric.
    pub(super) targets: Vec<Target>,
    pub(super) packets: Packets,
    /// Messages at their senders and at their receivers.
    pub(super) outgoing: Slots<Outgoing>,
    pub(super) incoming: Slots<Incoming>,
    /// Halves of queue pairs: control packets name the sending one, data packets the receiving one.
    pub(super) senders: Vec<Sender<T::Flow>>,
    pub(super) receivers: Vec<Receiver<T::Peer>>,
    pub(super) free_senders: Vec<u32>,
    pub(super) free_receivers: Vec<u32>,
    /// Place of the sending half called so at its NIC port, while it is not done.
    pub(super) named: FxHashMap<(u32, u32), u32>,
    /// Queue pairs that are done, but may have packets left in the network; looked through when there are so many.
    pub(super) retired: Vec<QueuePair>,
    pub(super) settle_at: usize,
    pub(super) feedbacks: Feedbacks,
    pub(super) paths: Paths,
    pub(super) balance: Balance,
    pub(super) changes: Changes,
    pub(super) clocks: Clocks,
    pub(super) sampler: Sampler,
    /// Something that somebody waits for was lost, and nobody sends it again.
    pub(super) lost_for_good: bool,
    /// A queue pair between these NICs will never be heard.
    pub(super) given_up: Option<[u32; 2]>,
    /// Of the queue pairs closed.
    pub(super) reordering: Reordering,
    pub(super) credits: Credits,
    pub(super) telemetry: Telemetry,
    /// With the port whose packet completed it.
    pub(super) done: Vec<(u32, Completion)>,
    pub(super) totals: Counters,
    /// What joins it to the other processes, if there are any.
    pub(super) crossing: Option<Box<Crossing>>,
    pub(super) digest: Option<Box<EventDigest>>,
}

/// Collects the kinds of links; there are few.
struct Kinds<'a> {
    settings: &'a PacketSettings,
    facts: Vec<(u64, u64, bool, u64, bool, bool)>,
    found: Vec<LinkKind>,
}

impl Kinds<'_> {
    fn of(&mut self, facts: &LinkFacts) -> u16 {
        let key =
            (facts.rate.0, facts.delay, facts.cut_through, facts.loss.to_bits(), facts.marks, facts.impaired);
        if let Some(place) = self.facts.iter().rposition(|known| *known == key) {
            return place as u16;
        }
        self.facts.push(key);
        self.found.push(LinkKind::new(facts, self.settings));
        u16::try_from(self.found.len() - 1).expect("fewer than 2^16 kinds of links")
    }
}

impl Counters {
    /// Adds those of another process.
    pub(super) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.data_packets += other.data_packets;
        self.acknowledgements += other.acknowledgements;
        self.drops += other.drops;
        self.corrupted += other.corrupted;
        self.link_down += other.link_down;
        self.trims += other.trims;
        self.grants += other.grants;
        self.marks += other.marks;
        self.retransmissions += other.retransmissions;
        self.reordered += other.reordered;
        self.timeouts += other.timeouts;
        self.bytes_delivered += other.bytes_delivered;
        self.pauses += other.pauses;
    }
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
        if settings.ack_every == 0 {
            // Nothing would ever be known to have arrived.
            settings.in_flight = u32::MAX;
        }
        settings.check_for::<T>()?;
        if settings.ack_every == 0 && transport.recovery() != Recovery::None {
            return Err(PacketError::Unanswered { transport: T::NAME });
        }
        let planes = topology.planes();
        let nic_ports = topology.nics() * planes;
        assert!(topology.link_count() < 1 << PORT_BITS, "fewer than 2^{PORT_BITS} ports");
        let mut switches = Vec::with_capacity(topology.switches() as usize);
        let mut next = nic_ports;
        for number in 0..topology.switches() {
            let count = topology.ports(SwitchId(number));
            let tier = topology.tier(SwitchId(number));
            switches.push(Switch::new(next, count, tier, &settings.buffers)?);
            next += count;
        }
        let mut engine = Self {
            kinds: Vec::new(),
            rules: (0..topology.switches())
                .map_while(|number| topology.switch_rule(SwitchId(number)))
                .collect(),
            ports: Vec::with_capacity(next as usize),
            switches,
            nics: vec![NicPort::default(); nic_ports as usize],
            targets: Vec::with_capacity(nic_ports as usize),
            packets: Packets::new(),
            outgoing: Slots::default(),
            incoming: Slots::default(),
            senders: Vec::new(),
            receivers: Vec::new(),
            free_senders: Vec::new(),
            free_receivers: Vec::new(),
            named: FxHashMap::default(),
            retired: Vec::new(),
            settle_at: 0,
            feedbacks: Feedbacks::default(),
            paths: Paths::default(),
            balance: Balance::default(),
            changes: Changes::default(),
            clocks: Clocks::new(topology.nics(), &settings.impairments.clocks),
            lost_for_good: false,
            given_up: None,
            sampler: Sampler::new(settings.sample_every.map(|every| every.0), next),
            reordering: Reordering::default(),
            credits: Credits::default(),
            telemetry: Telemetry::default(),
            done: Vec::new(),
            totals: Counters::default(),
            crossing: None,
            digest: None,
            clock: 0,
            agenda: Agenda::new(next as usize),
            queue: CalendarQueue::new(),
            soon: u64::MAX,
            forwarder: None,
            queues: Queues::default(),
            topology,
            settings,
            transport,
        };
        engine.build();
        engine.build_queues()?;
        if T::CREDITED {
            let scheme = engine.transport.credit(engine.settings.mtu.0 as u32);
            let rates = engine.ports[..nic_ports as usize].iter();
            let rates = rates.map(|port| engine.kinds[usize::from(port.kind)].rate.0);
            engine.credits = Credits::new(scheme, rates);
        }
        Ok(engine)
    }

    /// The same fabric with what `forwarder` says has failed: packets that find their way at every switch go around it,
    /// and those that cannot go on are dropped. Queue pairs with one path are opened with a route that does.
    #[must_use]
    pub fn rerouted(mut self, forwarder: Forwarder) -> Self {
        self.forwarder = Some(forwarder);
        self
    }

    fn build(&mut self) {
        let topology = self.topology.clone();
        let mut kinds = Kinds { settings: &self.settings, facts: Vec::new(), found: Vec::new() };
        // Where a switch may pass packets on from their header: it must not have a port that could run dry.
        let cut = self.settings.forwarding == Forwarding::CutThrough;
        let fastest = |switch: u32| {
            let switch = SwitchId(switch);
            let links = (0..topology.ports(switch)).filter_map(|port| topology.out_link(switch, port));
            links.map(|link| topology.link(link).rate).max()
        };
        let fastest: Vec<_> = if cut { (0..topology.switches()).map(fastest).collect() } else { Vec::new() };
        let mut slow = self.settings.slow_links.clone();
        slow.sort_by_key(|&(link, _)| link);
        let part = |link: LinkId| -> f64 {
            let first = slow.partition_point(|&(other, _)| other < link);
            slow[first..].iter().take_while(|&&(other, _)| other == link).map(|&(_, part)| part).product()
        };
        let impairments = &self.settings.impairments;
        let turned = impairments.changes.iter().filter(|change| !matches!(change.state, PartState::Rate(_)));
        let mut impaired: Vec<LinkId> = turned.flat_map(|change| links_of(&topology, change.part)).collect();
        impaired.extend(impairments.losses.iter().map(|&(link, _)| link));
        impaired.sort_unstable();
        let mut kind_of = |id: LinkId, far: Far, marks: bool, share: f64| {
            let link = topology.link(id);
            let rate = match part(id) * share {
                1.0 => link.rate,
                part => BitRate(((link.rate.0 as f64 * part) as u64).max(1)),
            };
            let cut_through =
                far.as_switch().is_some_and(|switch| cut && fastest[switch as usize] <= Some(rate));
            let impaired = impaired.binary_search(&id).is_ok();
            kinds.of(&LinkFacts {
                rate,
                delay: link.latency.0,
                cut_through,
                loss: link.loss,
                marks,
                impaired,
            })
        };
        let planes = topology.planes();
        for nic in 0..topology.nics() {
            for plane in 0..planes {
                let target = topology.target(nic, plane);
                let far = Far::switch(target.switch.0);
                self.ports.push(Port::new(
                    far,
                    NONE,
                    kind_of(topology.nic_link(nic, plane), far, false, 1.0),
                ));
                self.targets.push(target);
            }
        }
        for number in 0..topology.switches() {
            let switch = SwitchId(number);
            for port in 0..topology.ports(switch) {
                let far = match topology.peer(switch, port) {
                    Some(Peer::Switch { switch, .. }) => Far::switch(switch.0),
                    Some(Peer::Nic { .. }) | None => Far::nic(),
                };
                let kind = topology.out_link(switch, port).map_or(0, |link| kind_of(link, far, true, 1.0));
                self.ports.push(Port::new(far, number, kind));
            }
        }
        let mut changed = FxHashMap::default();
        for (number, change) in impairments.changes.iter().enumerate() {
            let PartState::Rate(share) = change.state else { continue };
            for link in links_of(&topology, change.part) {
                let (from, to) = topology.link_ends(link);
                let far = match to {
                    Node::Switch(SwitchId(switch)) => Far::switch(switch),
                    _ => Far::nic(),
                };
                changed.insert((number, link), kind_of(link, far, matches!(from, Node::Switch(_)), share));
            }
        }
        self.kinds = kinds.found;
        self.build_impairments(&changed);
    }

    /// The clock: the instant of the last event.
    pub fn now(&self) -> Time {
        Time(self.clock)
    }

    /// Time of the next event, [`Time::NEVER`] if there is none.
    #[inline]
    pub fn next_time(&mut self) -> Time {
        if self.has_halted() {
            return Time::NEVER;
        }
        self.agenda.next_time().min(Time(self.soon))
    }

    /// Totals so far.
    pub fn totals(&self) -> Counters {
        self.totals
    }

    /// Most queue pairs that were open at once: places are used again.
    pub fn places(&self) -> usize {
        self.senders.len()
    }

    /// Packets in the network.
    pub fn packets_live(&self) -> u32 {
        self.packets.live()
    }

    /// Data packets and control packets sent over a link, over all links.
    pub fn packet_hops(&self) -> (u64, u64) {
        self.ports.iter().fold((0, 0), |(data, control), port| {
            (data + port.counters.packets, control + port.counters.control)
        })
    }

    /// Sum over data packets of the time between joining a queue and the start of transmission.
    pub fn queueing(&self) -> Span {
        Span(self.ports.iter().map(|port| port.counters.waited).sum())
    }

    /// Whether a message that somebody waits for can never arrive: without recovery, or by a queue pair that has heard
    /// nothing for long. In the second case the engine has stopped.
    pub fn is_hopeless(&self) -> bool {
        self.lost_for_good || self.has_halted()
    }

    /// NICs of a queue pair that has heard nothing for so long that the engine has stopped: sender and receiver.
    pub fn silent_pair(&self) -> Option<[u32; 2]> {
        self.given_up
    }

    /// What queue pairs held out of order until now.
    pub fn reordering(&self) -> Reordering {
        let mut sum = self.reordering;
        let free: FxHashSet<u32> = self.free_receivers.iter().copied().collect();
        for (_, receiver) in (0..).zip(&self.receivers).filter(|(place, _)| !free.contains(place)) {
            receiver.count_held(&mut sum);
        }
        sum
    }

    /// What each port with traffic saw until now, by link.
    pub fn port_reports(&self) -> Vec<PortReport> {
        self.reports_of(|port| self.ports[port as usize].counters)
    }

    /// Reports of the counters that `counters` gives for each port.
    pub(super) fn reports_of(&self, counters: impl Fn(u32) -> PortCounters) -> Vec<PortReport> {
        let span = Span(self.clock);
        let nics = self.nics.len() as u32;
        let wired = (0..self.ports.len() as u32).filter(|&port| port < nics || self.has_link(port));
        let report = |port: u32| {
            let station = self.queues.stations.get(port as usize);
            PortReport {
                pauses: station.map_or(0, |station| u64::from(station.pauses)),
                paused: Span(self.paused_for(port)),
                watchdog_drops: station.map_or(0, |station| u64::from(station.dropped)),
                ..counters(port).report(self.link_of(port), span)
            }
        };
        let mut reports: Vec<PortReport> = wired
            .map(report)
            .filter(|report| report.bytes > 0 || report.drops > 0 || report.pauses > 0)
            .collect();
        reports.sort_by_key(|report| report.link);
        reports
    }

    /// Time that queues of ports were paused until now, over all ports.
    pub fn paused(&self) -> Span {
        Span((0..self.queues.stations.len() as u32).map(|port| self.paused_for(port)).sum())
    }

    /// The link that leaves a port.
    pub(super) fn link_of(&self, port: u32) -> LinkId {
        let owner = self.ports[port as usize].owner;
        if owner == NONE {
            let planes = self.topology.planes();
            return self.topology.nic_link(port / planes, port % planes);
        }
        let local = port - self.switches[owner as usize].first;
        self.topology.out_link(SwitchId(owner), local).expect("a port with a cable")
    }

    /// Whether a switch's port has a cable.
    fn has_link(&self, port: u32) -> bool {
        let owner = self.ports[port as usize].owner;
        let local = port - self.switches[owner as usize].first;
        self.topology.out_link(SwitchId(owner), local).is_some()
    }

    /// Whether pauses wait for one another, or a queue pair will never be heard, and the run is over.
    #[inline]
    pub(super) fn has_halted(&self) -> bool {
        self.given_up.is_some() || self.queues.guard.as_ref().is_some_and(|guard| !guard.cycle.is_empty())
    }

    /// Messages that have not arrived: the caller's names, in no order that means anything.
    pub fn unfinished(&self) -> Vec<u64> {
        self.incoming.live().map(|message| message.token).collect()
    }

    /// Handles events up to `limit`, at most `budget` and the rest of an instant begun, until messages have completed;
    /// these are appended. Returns the instant reached: that of the last event, or `limit` if there is no more before.
    pub fn run(&mut self, limit: Time, budget: u64, done: &mut Vec<Completion>) -> Time {
        let mut left = budget;
        while !self.has_halted() {
            let stop = left == 0 || !self.done.is_empty();
            let bound = if stop { limit.0.min(self.clock) } else { limit.0 };
            if !self.step(bound) {
                break;
            }
            left = left.saturating_sub(1);
        }
        done.extend(self.done.drain(..).map(|(_, completion)| completion));
        if self.next_time() > limit && limit != Time::NEVER && done.is_empty() {
            self.clock = self.clock.max(limit.0);
        }
        Time(self.clock)
    }

    /// Handles the next event if it is not after `bound`.
    #[inline]
    pub(super) fn step(&mut self, bound: u64) -> bool {
        // Events of ports come first at an instant.
        if let Some((Time(time), port)) = self.agenda.pop_until(Time(bound.min(self.soon))) {
            self.turn_to(time);
            self.touch();
            self.port_event(port, time);
        } else if self.soon <= bound && self.soon != u64::MAX {
            self.turn_to(self.soon);
            self.handle();
        } else {
            return false;
        }
        true
    }

    /// The clock goes to the instant of an event.
    #[inline]
    fn turn_to(&mut self, time: u64) {
        if time > self.sampler.due {
            self.sample(time);
        }
        self.clock = time;
    }

    /// Starts everything whose turn has come by `at`, to which the engine has run: what the counters tell then does not
    /// depend on when ports were last looked at.
    pub fn catch_up(&mut self, at: Time) {
        self.clock = self.clock.max(at.0);
        for p in 0..self.ports.len() as u32 {
            self.settle_port(p, at.0);
        }
    }

    /// Counts an event, and adds it to the digest if one is kept, with a hash of what it was about.
    #[inline]
    fn note(&mut self, key: Key, effect: impl FnOnce(&Self) -> u64) {
        self.totals.events += 1;
        if self.digest.is_some() {
            let effect = effect(self);
            let (time, class) = (key.time(), key.class() as u8);
            let key = EventKey { time, class, receiver: key.port(), sender: key.name(), count: 0 };
            if let Some(digest) = &mut self.digest {
                digest.record(key, effect);
            }
        }
    }

    /// Has what the next events will be about brought from memory, while the event in hand is dealt with: a packet left the
    /// caches a microsecond ago, and a large fabric's ports do not fit.
    #[inline]
    fn touch(&self) {
        if let Some(port) = self.agenda.upcoming(2) {
            prefetch_index(&self.ports, port as usize);
            prefetch_index(std::slice::from_ref(&self.ports[port as usize].counters), 0);
        }
        if let Some(port) = self.agenda.upcoming(1) {
            let port = &self.ports[port as usize];
            self.packets.prefetch(port.flight.head);
            self.packets.prefetch(port.flight.tail);
            self.packets.prefetch(port.data.head);
        }
        if self.ports.len() > LARGE
            && let Some(port) = self.agenda.upcoming(0)
        {
            self.foresee(port);
        }
    }

    /// Has what the first packet on a port's cable will meet at the far end brought from memory.
    #[inline]
    fn foresee(&self, port: u32) {
        let port = &self.ports[port as usize];
        let Some(packet) = self.packets.get(port.flight.head) else { return };
        match port.far.as_switch() {
            None if packet.kind.is_control() => prefetch_index(&self.senders, packet.flow as usize),
            None => prefetch_index(&self.receivers, packet.flow as usize),
            Some(_) if packet.flags & flag::ROUTED != 0 => {
                prefetch_index(&self.ports, self.paths[packet.hash as u32] as usize);
            }
            Some(switch) => {
                let Some(rule) = self.rules.get(switch as usize) else { return };
                let hop = rule.next_hop(&self.targets[packet.to as usize], packet.hash);
                prefetch_index(&self.ports, (self.switches[switch as usize].first + hop) as usize);
            }
        }
    }

    /// The first event that is not a port's.
    fn handle(&mut self) {
        let Some((key, ())) = self.queue.pop() else { return };
        self.soon = self.queue.peek().map_or(u64::MAX, |next| next.time().0);
        let (time, port) = (key.time().0, key.port());
        match key.class() {
            class::WAKE => self.wake(port, time),
            class::START => {
                self.note(key, |_| 0);
                self.start_messages(port, time);
            }
            class::TOUCH => self.touched(port, time),
            class::CHECK => self.check_pause(port, time),
            class::PAUSE => {
                self.note(key, |_| 0);
                self.pause_event(port, key.name(), time);
            }
            class::CHANGE => {
                self.note(key, |_| 0);
                self.change(port, time);
            }
            class::CREDIT => {
                self.note(key, |_| 0);
                self.grant(port, time);
            }
            class => {
                // One that is done has no timers.
                let Some(&flow) = self.named.get(&(port, key.name())) else { return };
                self.note(key, |engine| engine.senders[flow as usize].in_flight());
                if class == class::TIMER { self.timer(flow, time) } else { self.silence(flow, time) }
            }
        }
    }

    /// Schedules an event that is not a port's.
    #[inline]
    pub(super) fn schedule(&mut self, time: u64, class: u32, port: u32) {
        self.schedule_key(Key::new(time, class, port));
    }

    #[inline]
    pub(super) fn schedule_key(&mut self, key: Key) {
        self.soon = self.soon.min(key.time().0);
        self.queue.push(key, ());
    }

    /// An event of the sending half `flow`.
    #[inline]
    pub(super) fn schedule_flow(&mut self, time: u64, class: u32, flow: u32) {
        let sender = &self.senders[flow as usize];
        self.schedule_key(Key::named(time, class, sender.port, sender.name));
    }

    /// The first packet on the cable of port `p` reaches the far end, or a transmission ends that was overtaken by its
    /// own header.
    #[inline]
    fn port_event(&mut self, p: u32, now: u64) {
        let port = &mut self.ports[p as usize];
        let (far, kind, owner) = (port.far, port.kind, port.owner);
        let mut arrived = NONE;
        if !port.flight.is_empty() && port.reaches == now {
            arrived = port.flight.head;
            let packet = &self.packets[arrived];
            if packet.next == NONE {
                port.flight = List::EMPTY;
            } else {
                port.flight.head = packet.next;
                port.reaches = packet.next_time;
            }
        }
        if port.flight.is_empty() {
            port.armed = false;
        } else {
            let next = port.reaches;
            self.agenda.push(p, Time(next));
        }
        if owner == NONE {
            self.pull(p, now);
        } else if self.queues.on {
            self.serve(p, now);
            self.send_frames(now);
        } else if self.ports[p as usize].waits() {
            self.advance(p, now);
            let port = &mut self.ports[p as usize];
            if !port.armed && port.waits() {
                port.armed = true;
                let next = port.free_at;
                self.agenda.push(p, Time(next));
            }
        }
        if arrived == NONE {
            return;
        }
        self.note(Key::new(now, 0, p), |engine| engine.packets[arrived].digest());
        if self.kinds[usize::from(kind)].fragile && self.perishes(p, arrived, kind, now) {
            return;
        }
        match far.as_switch() {
            Some(switch) => {
                if self.queues.on {
                    // It stands on no cable until it is sent on.
                    self.packets[arrived].next_time = u64::from(p);
                }
                self.forward(switch, arrived, now);
            }
            None => self.deliver(p, arrived, now),
        }
    }

    /// Starts the transmission of a packet on a port that is free at `start`.
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub(super) fn begin(&mut self, p: u32, id: u32, start: u64) {
        let port = &mut self.ports[p as usize];
        let kind = &self.kinds[usize::from(port.kind)];
        let packet = &mut self.packets[id];
        let wire = packet.wire;
        let end = start + kind.serialise(wire);
        let reaches = kind.reaches(start, end, wire);
        port.free_at = end;
        port.in_service = u32::from(wire);
        let counters = &mut port.counters;
        counters.bytes += u64::from(wire);
        counters.held += (u64::from(wire) * (end - packet.joined)) >> 10;
        if packet.kind == Kind::Data {
            counters.packets += 1;
            counters.waited += start - packet.joined;
        } else {
            counters.control += 1;
        }
        let away = port.away;
        if T::TELEMETRY {
            self.tell(p, id, start);
        }
        if away {
            self.post(p, id, start, reaches);
        } else {
            self.launch(p, id, reaches);
        }
    }

    /// Puts a packet on the cable of port `p`, behind those that are there.
    #[expect(clippy::inline_always, reason = "as above")]
    #[inline(always)]
    pub(super) fn launch(&mut self, p: u32, id: u32, reaches: u64) {
        let port = &mut self.ports[p as usize];
        self.packets[id].next = NONE;
        if port.flight.is_empty() {
            port.flight.head = id;
            port.reaches = reaches;
            if !port.armed {
                port.armed = true;
                self.agenda.push(p, Time(reaches));
            }
        } else {
            let last = &mut self.packets[port.flight.tail];
            last.next = id;
            last.next_time = reaches;
        }
        port.flight.tail = id;
    }

    /// Writes what port `p` looks like into a data packet whose transmission begins at `start`.
    fn tell(&mut self, p: u32, id: u32, start: u64) {
        let port = &self.ports[p as usize];
        let packet = &self.packets[id];
        if port.owner == NONE || packet.kind != Kind::Data {
            return;
        }
        let hop = Hop {
            port: p,
            queue: port.held - u32::from(packet.wire),
            sent: port.counters.bytes,
            at: Time(start),
            rate: self.kinds[usize::from(port.kind)].rate,
        };
        self.telemetry.push(id, hop);
    }

    /// A packet leaves the network without arriving.
    #[cold]
    pub(super) fn drop_packet(&mut self, p: u32, id: u32) {
        self.totals.drops += 1;
        let counters = &mut self.ports[p as usize].counters;
        counters.drops += 1;
        if self.packets[id].kind.is_control() {
            counters.control_drops += 1;
        }
        self.discard(id);
    }

    /// Forgets a packet whose loss has been counted.
    pub(super) fn discard(&mut self, id: u32) {
        let packet = self.packets[id];
        if packet.kind == Kind::Ack {
            self.feedbacks.release(packet.detail);
        }
        self.packets.release(id);
        let gone = Gone { half: packet.flow, back: packet.kind.goes_back() };
        let home = self.home(packet.to);
        match &mut self.crossing {
            Some(crossing) if crossing.number != home => crossing.gone.push((home, gone)),
            _ => self.count_gone(gone),
        }
    }
}
