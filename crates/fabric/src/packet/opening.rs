//! Opening and closing queue pairs: their ways through the fabric, the places of their halves, and when these are free
//! again.

use rustc_hash::FxHashMap;
use windtunnel_kernel::{Bytes, Span};
use windtunnel_topology::{LinkId, SwitchId};

use super::balance::Recycler;
use super::engine::{Engine, OpenRequest, Plan, QueuePair};
use super::message::{Arrivals, NO_MESSAGE};
use super::nic::Turn;
use super::packets::{NONE, flag};
use super::queue_settings::Color;
use super::rack::Rack;
use super::receive::Receiver;
use super::sender::{Resend, Sender};
use super::settings::Balancer;
use super::transport::{PathFacts, Recovery, Transport};

/// Egress ports of paths worked out ahead, one after another; equal lengths use places again.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    ports: Vec<u32>,
    free: FxHashMap<u32, Vec<u32>>,
}

impl Paths {
    fn insert(&mut self, path: &[u32]) -> u32 {
        if let Some(place) = self.free.get_mut(&(path.len() as u32)).and_then(Vec::pop) {
            self.ports[place as usize..place as usize + path.len()].copy_from_slice(path);
            return place;
        }
        self.ports.extend_from_slice(path);
        (self.ports.len() - path.len()) as u32
    }

    fn release(&mut self, place: u32, len: u32) {
        self.free.entry(len).or_default().push(place);
    }
}

impl std::ops::Index<u32> for Paths {
    type Output = u32;

    #[inline]
    fn index(&self, place: u32) -> &u32 {
        &self.ports[place as usize]
    }
}

impl<T: Transport> Engine<T> {
    /// Opens a queue pair.
    pub fn open(&mut self, request: &OpenRequest<'_>) -> QueuePair {
        self.open_on(request, None)
    }

    /// [`Self::open`] on a plane of the NIC; `None`: the one that the entropy chooses. A route given decides before it.
    pub fn open_on(&mut self, request: &OpenRequest<'_>, wish: Option<u32>) -> QueuePair {
        if self.is_to_settle() {
            let mut retired = self.take_retired();
            retired.retain(|&QueuePair { sender, receiver, .. }| {
                let silent = self.is_silent(receiver, self.sent_and_gone(sender));
                if silent {
                    let place = self.close_sender(sender);
                    let (back, lengths) = self.close_receiver(receiver);
                    self.take_up(place, back, lengths);
                }
                !silent
            });
            self.put_retired(retired);
        }
        let mut plan = self.plan(request, wish);
        for way in [0, 1] {
            self.find_way(&mut plan, request, way, self.clock);
        }
        let places = self.lay(&plan);
        let (sender, receiver) = (self.open_sender(&plan, places), self.open_receiver(&plan, places));
        self.introduce(sender, receiver);
        self.meet(receiver, sender);
        QueuePair { sender, receiver, homes: [0; 2] }
    }

    /// Works out by which ports a queue pair goes; its ways are still to be found.
    pub(super) fn plan(&mut self, request: &OpenRequest<'_>, wish: Option<u32>) -> Plan {
        let OpenRequest { from, to, entropy, keep, route } = *request;
        let seed = self.settings.seed;
        let there = self.topology.flow_hash(seed, from, to, entropy);
        let back = self.topology.flow_hash(seed, to, from, entropy);
        let planes = self.topology.planes();
        let plane_of = |nic: u32, route: &[LinkId]| {
            let &first = route.first()?;
            (0..planes).find(|&plane| self.topology.nic_link(nic, plane) == first)
        };
        let plane = plane_of(from, route[0]);
        // The way back may lead through another plane where the host has chosen it.
        let plane_back = plane_of(to, route[1]);
        let plane = plane.unwrap_or_else(|| match &mut self.forwarder {
            Some(forwarder) => forwarder.plane(from, to, there).unwrap_or(0),
            None => wish.unwrap_or_else(|| self.topology.plane(there)),
        });
        let plane_back = plane_back.unwrap_or(plane);
        let ports = [from * planes + plane, to * planes + plane];
        let ports_back = [to * planes + plane_back, from * planes + plane_back];
        // Otherwise every packet asks the topology anew.
        let fixed = (self.settings.has_fixed_paths() && self.forwarder.is_none()) || !route[0].is_empty();
        let paths = [Vec::new(), Vec::new()];
        Plan { ports: [ports, ports_back], paths, hashes: [there, back], fixed, keep }
    }

    /// Finds the way there (0) or back (1), for an opening at `now`; the first switch of it lives here.
    pub(super) fn find_way(&mut self, plan: &mut Plan, request: &OpenRequest<'_>, way: usize, now: u64) {
        let links = request.route[way];
        let (ports, hash) = (plan.ports[way], plan.hashes[way]);
        plan.paths[way] = if links.is_empty() { self.walk(ports, hash, now) } else { self.along(links) };
    }

    /// The switch to which a NIC port leads.
    pub(super) fn leaf(&self, nic_port: u32) -> u32 {
        self.ports[nic_port as usize].far.as_switch().expect("a NIC's cable leads to a switch")
    }

    /// Lays down the paths of a queue pair, where they are fixed: what its packets carry there and back.
    pub(super) fn lay(&mut self, plan: &Plan) -> [u64; 2] {
        if plan.fixed {
            [0, 1].map(|way| u64::from(self.paths.insert(&plan.paths[way])))
        } else {
            plan.hashes
        }
    }

    /// Takes the paths at `place` and `back` up again, of these lengths; none if it had none.
    pub(super) fn take_up(&mut self, place: Option<u64>, back: u64, [len, len_back]: [u32; 2]) {
        if let Some(place) = place {
            self.paths.release(place as u32, len);
            self.paths.release(back as u32, len_back);
        }
    }

    pub(super) fn open_sender(&mut self, plan: &Plan, places: [u64; 2]) -> u32 {
        let [port, to] = plan.ports[0];
        let facts = self.facts(port, &plan.paths[0], plan.ports[1][0], &plan.paths[1]);
        let sender = Sender {
            cc: self.transport.open(&facts),
            hash: places[0],
            eligible: 0,
            gap: 0,
            last_wire: 0,
            sent: 0,
            received: 0,
            lost: 0,
            heard: 0,
            port,
            to,
            after: NONE,
            una: 0,
            next: 0,
            limit: 0,
            again: 0,
            again_end: 0,
            resend: Resend::default(),
            checkpoint: 0,
            checked: 0,
            copied: 0,
            resent: Vec::new(),
            rack: (self.transport.recovery() == Recovery::Rack).then(|| {
                Box::new(Rack::new(facts.base_rtt.0, !plan.fixed && self.settings.balancer.spreads()))
            }),
            sending: NO_MESSAGE,
            oldest: NO_MESSAGE,
            last: NO_MESSAGE,
            name: self.nics[port as usize].opened,
            peer_slot: NONE,
            data_sent: 0,
            control_gone: 0,
            round: 0,
            timer: u64::MAX,
            watch: u64::MAX,
            turn: Turn::Idle,
            flags: plan.flags(),
            queue: 0,
            color: Color::Green,
            keep: plan.keep,
            rest: 0,
            asked: true,
            unasked: 0,
            retired: false,
            aside: false,
            silent: 0,
            beyond: Arrivals::default(),
            recycler: match self.settings.balancer {
                Balancer::Reps { .. } if !plan.fixed => Some(Box::new(Recycler::new(plan.hashes[0], &facts))),
                _ => None,
            },
        };
        let unasked = if T::CREDITED { self.transport.unasked(&sender.cc) } else { 0 };
        let name = (port, sender.name);
        self.nics[port as usize].opened += 1;
        let slot = match self.free_senders.pop() {
            Some(slot) => {
                self.senders[slot as usize] = sender;
                slot
            }
            None => {
                self.senders.push(sender);
                self.senders.len() as u32 - 1
            }
        };
        self.named.insert(name, slot);
        if T::CREDITED {
            self.credits.open_sender(slot, unasked);
        }
        if T::TELEMETRY {
            self.telemetry.open(slot);
        }
        slot
    }

    pub(super) fn open_receiver(&mut self, plan: &Plan, places: [u64; 2]) -> u32 {
        let [port, to] = plan.ports[1];
        let lengths = [plan.paths[0].len() as u32, plan.paths[1].len() as u32];
        let receiver = Receiver::new(port, to, places[1], plan.flags(), lengths);
        let slot = match self.free_receivers.pop() {
            Some(slot) => {
                self.receivers[slot as usize] = receiver;
                slot
            }
            None => {
                self.receivers.push(receiver);
                self.receivers.len() as u32 - 1
            }
        };
        if T::CREDITED {
            let [from, back] = plan.ports.map(|[port, _]| port);
            let most_idle = if self.credits.grants_idle() {
                let facts = self.facts(from, &plan.paths[0], back, &plan.paths[1]);
                self.transport.unasked(&self.transport.open(&facts))
            } else {
                0
            };
            self.credits.open_receiver(slot, most_idle);
        }
        slot
    }

    /// Tells a sending half its peer.
    pub(super) fn introduce(&mut self, sender: u32, receiver: u32) {
        self.senders[sender as usize].peer_slot = receiver;
    }

    /// Tells a receiving half its peer.
    pub(super) fn meet(&mut self, receiver: u32, sender: u32) {
        self.receivers[receiver as usize].peer_slot = sender;
    }

    /// Says of an open queue pair that nobody waits for what it sends.
    pub fn set_aside(&mut self, pair: QueuePair) {
        self.set_sender_aside(pair.sender);
        self.set_receiver_aside(pair.receiver);
    }

    pub(super) fn set_sender_aside(&mut self, sender: u32) {
        self.senders[sender as usize].aside = true;
    }

    pub(super) fn set_receiver_aside(&mut self, receiver: u32) {
        self.receivers[receiver as usize].aside = true;
    }

    /// Gives an open queue pair its traffic class, before its first message: its packets take that class's queue.
    pub fn classify(&mut self, pair: QueuePair, class: u8) {
        let queue = self.queue_of_class(class);
        let color = self.color_of_class(class);
        let sender = &mut self.senders[pair.sender as usize];
        (sender.queue, sender.color) = (queue, color);
    }

    /// A number for the data queue and the color of a traffic class together.
    pub fn lane_of_class(&self, class: u8) -> u8 {
        self.queue_of_class(class) | (self.color_of_class(class) as u8) << 3
    }

    /// The color of a traffic class.
    fn color_of_class(&self, class: u8) -> Color {
        self.settings.colors.get(usize::from(class)).copied().unwrap_or_default()
    }

    /// The data queue of a traffic class.
    pub fn queue_of_class(&self, class: u8) -> u8 {
        self.settings.classes.get(usize::from(class)).copied().unwrap_or(0)
    }

    /// Links from the sender to the receiver of an open queue pair.
    pub fn links(&self, pair: QueuePair) -> u32 {
        self.receivers[pair.receiver as usize].lengths[0] + 1
    }

    /// Egress ports on the way from one NIC port to another that the hash chooses at `now`.
    fn walk(&mut self, [from, to]: [u32; 2], hash: u64, now: u64) -> Vec<u32> {
        let mut at = self.leaf(from);
        self.show_queues(at, to, hash, now);
        let target = self.targets[to as usize];
        let first = self.switches[at as usize].first;
        let held = |port: u32| u64::from(self.ports[(first + port) as usize].held);
        let mut itinerary = self.topology.enter(SwitchId(at), &target, hash, held);
        let mut path = Vec::with_capacity(8);
        loop {
            let (port, next) = self.topology.next_hop(SwitchId(at), &target, itinerary, hash);
            itinerary = next;
            let egress = self.switches[at as usize].first + port;
            path.push(egress);
            match self.ports[egress as usize].far.as_switch() {
                Some(switch) => at = switch,
                None => return path,
            }
        }
    }

    /// Egress ports of the links of a path, the first of which leaves a NIC.
    fn along(&self, links: &[LinkId]) -> Vec<u32> {
        let port = |&link: &LinkId| {
            let (switch, port) = self.topology.link_source(link)?;
            Some(self.switches[switch.0 as usize].first + port)
        };
        links[1..].iter().filter_map(port).collect()
    }

    fn facts(&self, port: u32, path: &[u32], port_back: u32, back: &[u32]) -> PathFacts {
        let kind = |port: u32| &self.kinds[usize::from(self.ports[port as usize].kind)];
        let (mtu, control) = (self.settings.mtu.0 as u16, self.settings.control.0 as u16);
        let unloaded = |first: u32, rest: &[u32], wire: u16| {
            let hops = std::iter::once(first).chain(rest.iter().copied());
            let mut last = (0, 0);
            for hop in hops {
                let kind = kind(hop);
                let start = last.0;
                let end = start + kind.serialise(wire);
                last = (kind.reaches(start, end, wire), end + kind.delay);
            }
            last.1
        };
        let base_rtt = unloaded(port, path, mtu) + unloaded(port_back, back, control);
        let rate = kind(port).rate;
        let bits = u128::from(base_rtt) * u128::from(rate.0);
        PathFacts {
            rate,
            base_rtt: Span(base_rtt),
            bdp: bits.div_ceil(8_000_000_000_000) as u64,
            mtu: u32::from(mtu),
            hops: 1 + path.len() as u32,
            queue: path
                .iter()
                .map(|&p| self.longest_wait(p))
                .try_fold(Span::ZERO, |most, wait| Some(most.max(wait?))),
        }
    }

    /// What a data packet waits for at a switch's port that holds all the data that it may alone: until it trims, else by the
    /// dynamic threshold.
    fn longest_wait(&self, p: u32) -> Option<Span> {
        let port = &self.ports[p as usize];
        let kind = &self.kinds[usize::from(port.kind)];
        let limit = self.switches[port.owner as usize].most_alone();
        let trim = Some(u64::from(kind.trim)).filter(|_| kind.trim != u32::MAX);
        let bytes = limit.into_iter().chain(trim).min()?;
        Some(kind.rate.serialise(Bytes(bytes)))
    }

    /// Whether so many queue pairs are done that it is worth looking which of them have nothing left in the network.
    pub(super) fn is_to_settle(&self) -> bool {
        self.retired.len() + self.leaving.len() > self.settle_at
    }

    pub(super) fn take_retired(&mut self) -> Vec<QueuePair> {
        self.retire_left();
        std::mem::take(&mut self.retired)
    }

    /// Those that still have.
    pub(super) fn put_retired(&mut self, retired: Vec<QueuePair>) {
        self.settle_at = 2 * (retired.len() + self.leaving.len());
        self.retired = retired;
    }

    /// Data packets sent, and control packets that are no more.
    pub(super) fn sent_and_gone(&self, sender: u32) -> [u32; 2] {
        let sender = &self.senders[sender as usize];
        [sender.data_sent, sender.control_gone]
    }

    /// Whether a queue pair that is done has nothing left in the network: what one half sent, the other has counted as
    /// gone. Nothing that happens depends on when this is asked, for a sending half that is done lets pass what still
    /// comes, and a receiving half answers it, however long they keep their places.
    pub(super) fn is_silent(&self, receiver: u32, [data_sent, control_gone]: [u32; 2]) -> bool {
        let granted = T::CREDITED && self.credits.is_queued(receiver);
        let receiver = &self.receivers[receiver as usize];
        !granted && receiver.data_gone == data_sent && receiver.control_sent == control_gone
    }

    /// Frees the place of a sending half; where its packets' path lies, if they have one.
    pub(super) fn close_sender(&mut self, sender: u32) -> Option<u64> {
        self.free_senders.push(sender);
        let sender = &self.senders[sender as usize];
        (sender.flags & flag::ROUTED != 0).then_some(sender.hash)
    }

    /// Frees the place of a receiving half; what its packets carried, and the lengths of both ways.
    pub(super) fn close_receiver(&mut self, receiver: u32) -> (u64, [u32; 2]) {
        self.free_receivers.push(receiver);
        self.receivers[receiver as usize].close(&mut self.reordering)
    }
}

impl Plan {
    fn flags(&self) -> u8 {
        if self.fixed { flag::ROUTED } else { flag::FRESH }
    }
}
