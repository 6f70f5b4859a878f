//! Opening and closing queue pairs: their ways through the fabric, the places of their halves, and when these are free
//! again.

use windtunnel_topology::{LinkId, SwitchId};

use super::balance::Recycler;
use super::engine::{CreditOf, Engine, PairPlan, PlanesOf};
use super::handles::{OpenRequest, QueuePair};
use super::memory::Memories;
use super::message::{Arrivals, NO_MESSAGE};
use super::packets::{NONE, flag};
use super::queue_settings::Color;
use super::rack::Rack;
use super::receiver::Receiver;
use super::sender::Turn;
use super::sender::{Resend, Sender};
use super::settings::Balancer;
use super::transport::{Dispatcher, Endpoint, Feature, MemoryOf, News, Recovery, Transport};

impl<T: Transport> Engine<T> {
    /// Opens a queue pair.
    pub fn open(&mut self, request: &OpenRequest<'_>) -> QueuePair {
        self.open_on(request, None)
    }

    /// [`Self::open`] on a plane of the NIC; `None`: the one that the entropy chooses. A route given decides before it.
    pub fn open_on(&mut self, request: &OpenRequest<'_>, wish: Option<u32>) -> QueuePair {
        if self.pairs.is_to_settle() {
            let mut retired = self.pairs.take_retired();
            retired.retain(|&QueuePair { sender, receiver, .. }| {
                let silent = self.is_silent(receiver, self.pairs.sent_and_gone(sender));
                if silent {
                    let place = self.pairs.close_sender(sender);
                    let (back, lengths) = self.close_receiver(receiver);
                    self.lead.paths.take_up(place, back, lengths);
                    self.forget_pair([0, sender]);
                }
                !silent
            });
            self.pairs.put_retired(retired);
        }
        let mut plan = self.plan(request, wish);
        for way in [0, 1] {
            self.find_way(&mut plan, request, way, self.timeline.now());
        }
        let places = self.lay(&plan);
        let (sender, receiver) = (self.open_sender(&plan, places), self.open_receiver(&plan, places));
        self.pairs.introduce(sender, receiver);
        self.pairs.meet(receiver, sender);
        let pair = QueuePair { sender, receiver, homes: [0; 2] };
        self.note_pair(pair, &plan);
        pair
    }

    /// Works out by which ports a queue pair goes; its ways are still to be found.
    pub(super) fn plan(&mut self, request: &OpenRequest<'_>, wish: Option<u32>) -> PairPlan {
        let OpenRequest { from, to, entropy, keep, route } = *request;
        let seed = self.settings.seed;
        let there = self.fabric.topology.flow_hash(seed, from, to, entropy);
        let back = self.fabric.topology.flow_hash(seed, to, from, entropy);
        let planes = self.fabric.topology.planes();
        let plane_of = |nic: u32, route: &[LinkId]| {
            let &first = route.first()?;
            (0..planes).find(|&plane| self.fabric.topology.nic_link(nic, plane) == first)
        };
        let plane = plane_of(from, route[0]);
        // The way back may lead through another plane where the host has chosen it.
        let plane_back = plane_of(to, route[1]);
        let plane = plane.unwrap_or_else(|| match &mut self.lead.forwarder {
            Some(forwarder) if !forwarder.is_whole() => forwarder.plane(from, to, there).unwrap_or(0),
            _ => wish.unwrap_or_else(|| self.fabric.topology.plane(there)),
        });
        let mirrored = self.mirrors();
        let plane_back = if mirrored { plane } else { plane_back.unwrap_or(plane) };
        let ports = [from * planes + plane, to * planes + plane];
        let ports_back = [to * planes + plane_back, from * planes + plane_back];
        // Otherwise every packet asks the topology anew.
        let led = Self::is_dispatched() && !mirrored;
        let fixed = (self.settings.has_fixed_paths() && self.lead.forwarder.is_none() && !led)
            || !route[0].is_empty();
        let paths = [Vec::new(), Vec::new()];
        let by_path = self.settings.balancer.numbers();
        let hashes = if by_path && Memories::<MemoryOf<T::Endpoint>>::KEPT {
            [(from, to), (to, from)].map(|(from, to)| self.fabric.topology.flow_hash(seed, from, to, 0))
        } else {
            [there, back]
        };
        PairPlan { ports: [ports, ports_back], paths, hashes, fixed, keep, entropy }
    }

    /// Finds the way there (0) or back (1), for an opening at `now`; the first switch of it lives here.
    pub(super) fn find_way(&mut self, plan: &mut PairPlan, request: &OpenRequest<'_>, way: usize, now: u64) {
        if way == 1 && plan.fixed && self.mirrors() {
            plan.paths[1] = self.mirror(plan);
            return;
        }
        let links = request.route[way];
        let (ports, hash) = (plan.ports[way], plan.hashes[way]);
        plan.paths[way] =
            if links.is_empty() { self.walk(ports, hash, now) } else { self.fabric.along(links) };
    }

    /// Whether what goes back takes the links of what comes.
    fn mirrors(&self) -> bool {
        Self::is_dispatched() && self.dispatcher.is_symmetric()
    }

    /// Egress ports of the way back over the links of the way there.
    fn mirror(&self, plan: &PairPlan) -> Vec<u32> {
        let there = &plan.paths[0];
        let between = there[..there.len() - 1].iter().rev();
        between.chain([&plan.ports[0][0]]).map(|&port| self.fabric.reverse(port)).collect()
    }

    /// Lays down the paths of a queue pair, where they are fixed: what its packets carry there and back.
    pub(super) fn lay(&mut self, plan: &PairPlan) -> [u64; 2] {
        if plan.fixed {
            [0, 1].map(|way| u64::from(self.lead.paths.insert(&plan.paths[way])))
        } else {
            plan.hashes
        }
    }

    pub(super) fn open_sender(&mut self, plan: &PairPlan, places: [u64; 2]) -> u32 {
        let [port, to] = plan.ports[0];
        let sizes = self.settings.packet_sizes();
        let mut facts = self.fabric.facts(sizes, port, &plan.paths[0], plan.ports[1][0], &plan.paths[1]);
        let planes = self.fabric.topology.planes();
        let spreads = !plan.fixed && PlanesOf::<T>::ask(|| ()).is_some();
        facts.planes = if spreads { planes } else { 1 };
        let sender = Sender {
            cc: self.endpoint.open(&facts),
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
            rack: (self.endpoint.recovery() == Recovery::Rack).then(|| {
                let trims = facts.planes > 1 && self.settings.trimming.is_some();
                let slack = facts.queue.filter(|_| trims).unwrap_or_default();
                let spreads = !plan.fixed && self.settings.balancer.spreads();
                Box::new(Rack::new(facts.base_rtt.ps(), spreads, slack.ps()))
            }),
            sending: NO_MESSAGE,
            oldest: NO_MESSAGE,
            last: NO_MESSAGE,
            name: 0,
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
        let unasked = CreditOf::<T>::ask(|| self.endpoint.unasked(&sender.cc));
        let slot = self.pairs.open_sender(sender);
        self.pairs.open_legs(slot, planes, spreads);
        self.pairs.memories.open(slot, (port / planes, to / planes));
        self.remember(slot, &News::Opened(&facts));
        if let (Some(credits), Some(unasked)) = (self.credits.get_mut(), unasked) {
            credits.open_sender(slot, unasked);
        }
        if let Some(telemetry) = self.telemetry.get_mut() {
            telemetry.open(slot);
        }
        self.dispatch_opened(slot, plan);
        slot
    }

    pub(super) fn open_receiver(&mut self, plan: &PairPlan, places: [u64; 2]) -> u32 {
        let [port, to] = plan.ports[1];
        let lengths = [plan.paths[0].len() as u32, plan.paths[1].len() as u32];
        let receiver = Receiver::new(port, to, places[1], plan.flags(), lengths);
        let slot = self.pairs.open_receiver(receiver);
        if let Some(credits) = self.credits.get_mut() {
            let [from, back] = plan.ports.map(|[port, _]| port);
            let most_idle = if credits.grants_idle() {
                let sizes = self.settings.packet_sizes();
                let facts = self.fabric.facts(sizes, from, &plan.paths[0], back, &plan.paths[1]);
                self.endpoint.unasked(&self.endpoint.open(&facts))
            } else {
                0
            };
            credits.open_receiver(slot, most_idle);
        }
        self.dispatch_accepted(slot, plan);
        slot
    }

    /// Says of an open queue pair that nobody waits for what it sends.
    pub fn set_aside(&mut self, pair: QueuePair) {
        self.pairs.set_sender_aside(pair.sender);
        self.pairs.set_receiver_aside(pair.receiver);
    }

    /// Gives an open queue pair its traffic class, before its first message: its packets take that class's queue.
    pub fn classify(&mut self, pair: QueuePair, class: u8) {
        let queue = self.queue_of_class(class);
        let color = self.color_of_class(class);
        self.pairs.classify(pair.sender, queue, color);
        self.dispatch_classify(pair.sender, class);
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
        self.pairs.receivers[pair.receiver as usize].lengths[0] + 1
    }

    /// Egress ports on the way from one NIC port to another that the hash chooses at `now`.
    pub(super) fn walk(&mut self, [from, to]: [u32; 2], hash: u64, now: u64) -> Vec<u32> {
        let mut at = self.fabric.leaf(from);
        self.show_queues(at, to, hash, now);
        let target = self.fabric.targets[to as usize];
        let first = self.fabric.switches[at as usize].first;
        let held = |port: u32| u64::from(self.fabric.ports[(first + port) as usize].held);
        let mut itinerary = self.fabric.topology.enter(SwitchId(at), &target, hash, held);
        let mut path = Vec::with_capacity(8);
        loop {
            let (port, next) = self.fabric.topology.next_hop(SwitchId(at), &target, itinerary, hash);
            itinerary = next;
            let egress = self.fabric.switches[at as usize].first + port;
            path.push(egress);
            match self.fabric.ports[egress as usize].far.as_switch() {
                Some(switch) => at = switch,
                None => return path,
            }
        }
    }

    /// Whether a queue pair that is done has nothing left in the network, and nothing more is to be granted to it.
    pub(super) fn is_silent(&self, receiver: u32, sent_and_gone: [u32; 2]) -> bool {
        let granted = self.credits.get().is_some_and(|credits| credits.is_queued(receiver));
        !granted && self.pairs.is_silent(receiver, sent_and_gone)
    }

    /// Frees the place of a receiving half; what its packets carried, and the lengths of both ways.
    pub(super) fn close_receiver(&mut self, receiver: u32) -> (u64, [u32; 2]) {
        self.pairs.close_receiver(receiver, &mut self.account.reordering)
    }
}

impl PairPlan {
    fn flags(&self) -> u8 {
        if self.fixed { flag::ROUTED } else { flag::FRESH }
    }
}
