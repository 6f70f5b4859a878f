//! The engine: what there is, and how it is built from a topology.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::queue::{Agenda, CalendarQueue};
use windtunnel_kernel::{BitRate, Bytes, Time};
use windtunnel_topology::{Forwarder, LinkId, Node, Peer, SwitchId, SwitchRule, Target, Topology};

use super::balance::Balance;
use super::credit::Credits;
use super::crossing::Crossing;
use super::events::Key;
use super::impair::{Changes, Clocks, PartState, links_of};
use super::link::{LinkFacts, LinkKind};
use super::message::{Incoming, Outgoing, Slots};
use super::nic::NicPort;
use super::opening::Paths;
use super::packets::{NONE, Packets};
use super::port::{Far, Port};
use super::queues::Queues;
use super::receive::{Feedbacks, Receiver};
use super::reduce::Reductions;
use super::reorder::Reordering;
use super::sample::Sampler;
use super::sender::Sender;
use super::settings::{Forwarding, MOST_PORTS, PacketError, PacketSettings};
use super::switch::Switch;
use super::telemetry::Telemetry;
use super::totals::Counters;
use super::transport::Transport;

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
    pub(super) soon: u64,
    pub(super) kinds: Vec<LinkKind>,
    /// Of every switch, where the topology has them; else none.
    pub(super) rules: Vec<SwitchRule>,
    /// See [`Self::is_simple`].
    pub(super) simple: bool,
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
    /// Queue pairs that are done or were reset, with senders that may stand on a ring.
    pub(super) leaving: Vec<QueuePair>,
    pub(super) feedbacks: Feedbacks,
    pub(super) paths: Paths,
    pub(super) balance: Balance,
    pub(super) reductions: Reductions,
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
        settings.check_for(&transport)?;
        let planes = topology.planes();
        let nic_ports = topology.nics() * planes;
        if topology.link_count() >= MOST_PORTS {
            return Err(PacketError::Ports { found: topology.link_count() });
        }
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
            simple: false,
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
            leaving: Vec::new(),
            feedbacks: Feedbacks::default(),
            paths: Paths::default(),
            balance: Balance::default(),
            reductions: Reductions::default(),
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
        engine.simple = engine.is_simple();
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
        self.lead_by(forwarder);
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
}
