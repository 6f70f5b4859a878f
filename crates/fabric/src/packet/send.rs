//! The sending half of a queue pair: opening, messages, packets, acknowledgements, losses.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Bytes, Span, Time};
use windtunnel_topology::{Itinerary, LinkId, SwitchId, flow_hash};

use super::balance::Recycler;
use super::credit::Spent;
use super::engine::{Engine, OpenRequest, Plan, QueuePair, class};
use super::message::{Arrivals, Incoming, NO_MESSAGE, Outgoing};
use super::nic::Turn;
use super::packets::{Kind, NONE, Packet, flag};
use super::receive::Receiver;
use super::settings::Balancer;
use super::transport::{Ack, Loss, LossKind, Nack, PathChoice, PathFacts, Recovery, Transport};

/// Losses show by time alone.
const BY_TIME: Recovery = Recovery::Selective { reorder: u32::MAX };

/// Time-outs in a row after which a queue pair will never be heard, if nothing is to change any more.
const HOPELESS: u8 = 64;

/// The sending half.
#[derive(Clone, Debug)]
pub(super) struct Sender<F> {
    pub cc: F,
    /// What is hashed with the path number, or the place of its path.
    hash: u64,
    /// Earliest start of the next packet.
    pub eligible: u64,
    /// From the last packet's transmission to there, and the packet's size.
    gap: u64,
    last_wire: u16,
    /// Bytes sent, those that the receiver has counted, and those taken for lost.
    sent: u64,
    received: u64,
    lost: u64,
    /// Last sign of progress, and silence allowed from there.
    heard: u64,
    /// Its NIC port, and the other's.
    pub port: u32,
    to: u32,
    /// Next on its NIC port's ring.
    pub after: u32,
    /// First packet not known to have arrived, next new one, and one more than the last there is.
    una: u32,
    next: u32,
    limit: u32,
    /// Packets to be sent again, but for those known to have arrived.
    again: u32,
    again_end: u32,
    /// Single packets to be sent again besides.
    resend: Resend,
    /// Packets before this one were sent at `checked` or earlier, but for `resent`.
    checkpoint: u32,
    checked: u64,
    resent: Vec<u32>,
    /// Messages: the one being sent, the first not acknowledged, the last.
    sending: u32,
    oldest: u32,
    last: u32,
    /// What it is called at its NIC port: how many were opened there before.
    pub name: u32,
    /// The receiving half.
    pub peer_slot: u32,
    /// Data packets sent, and control packets that are no more: see [`Engine::is_silent`].
    pub data_sent: u32,
    pub control_gone: u32,
    /// Packets sent, for path numbers.
    round: u32,
    /// When the transport's timer is due, and when silence is looked for.
    timer: u64,
    watch: u64,
    pub turn: Turn,
    flags: u8,
    /// Data queue of its packets.
    pub queue: u8,
    pub keep: bool,
    /// What its host's clock is behind the whole picoseconds counted.
    rest: u64,
    /// Whether the last packet sent is answered at once.
    asked: bool,
    /// Used once, and done.
    pub retired: bool,
    /// Nobody waits for what it sends.
    pub aside: bool,
    /// Times in a row that nothing was heard.
    silent: u8,
    /// Arrived beyond `una`.
    beyond: Arrivals,
    /// Path numbers to be used again, if the balancer is REPS.
    recycler: Option<Box<Recycler>>,
}

impl<F> Sender<F> {
    /// Whether there is anything to send.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.again < self.again_end || self.next < self.limit || self.resend.count > 0
    }

    /// The same, once what has arrived meanwhile is struck from what is to be sent again.
    #[inline]
    pub(super) fn finds_more(&mut self) -> bool {
        while self.again < self.again_end && (self.again < self.una || self.beyond.has(self.again)) {
            self.again += 1;
        }
        while self.resend.count > 0 {
            let sequence = self.resend.first();
            if sequence >= self.una && !self.beyond.has(sequence) {
                break;
            }
            self.resend.take(sequence);
        }
        self.has_more()
    }

    /// Earliest start of the next packet by the pace that holds from `now` on: of what was left to wait, the same part.
    #[inline]
    pub(super) fn repace(&mut self, now: u64, gap: impl FnOnce(&F, u16) -> u64) -> u64 {
        if self.eligible > now {
            let gap = gap(&self.cc, self.last_wire);
            let left = u128::from(self.eligible - now) * u128::from(gap) / u128::from(self.gap.max(1));
            (self.eligible, self.gap) = (now + left as u64, gap);
        }
        self.eligible.max(now)
    }

    /// Whether it waits for this instant.
    #[inline]
    pub(super) fn is_paced_to(&self, instant: u64, name: u32) -> bool {
        self.turn == Turn::Paced && self.eligible == instant && self.name == name
    }

    /// Whether it has something to send, and nothing on its way.
    #[inline]
    fn is_idle_with_more(&self) -> bool {
        self.una == self.next && self.has_more()
    }

    /// The receiver has given a sign of life.
    #[inline]
    pub(super) fn heard(&mut self, now: u64) {
        self.heard = now;
    }

    #[inline]
    pub(super) fn in_flight(&self) -> u64 {
        self.sent.saturating_sub(self.received + self.lost)
    }
}

/// A set of packets to be sent again.
#[derive(Clone, Debug, Default)]
struct Resend {
    marked: Arrivals,
    /// Packets in it.
    count: u32,
    /// No packet of it is before this one.
    from: u32,
}

impl Resend {
    /// Whether `sequence`, which is not before `base`, was not in it.
    fn add(&mut self, base: u32, sequence: u32) -> bool {
        if self.count == 0 {
            (self.marked.end, self.from) = (0, sequence);
        }
        let new = self.marked.mark(base.min(self.from), sequence);
        self.count += u32::from(new);
        self.from = self.from.min(sequence);
        new
    }

    fn has(&self, sequence: u32) -> bool {
        self.count > 0 && self.marked.has(sequence)
    }

    /// The lowest of a set that is not empty.
    fn first(&mut self) -> u32 {
        while !self.marked.has(self.from) {
            self.from += 1;
        }
        self.from
    }

    fn take(&mut self, sequence: u32) {
        self.marked.clear(sequence);
        self.count -= 1;
    }

    fn clear(&mut self) {
        while self.count > 0 {
            let sequence = self.first();
            self.take(sequence);
        }
    }
}

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
        let there = flow_hash(seed, u64::from(from), u64::from(to), entropy);
        let back = flow_hash(seed, u64::from(to), u64::from(from), entropy);
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
            resent: Vec::new(),
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
            keep: plan.keep,
            rest: 0,
            asked: true,
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
            self.credits.open_receiver(slot);
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
        self.senders[pair.sender as usize].queue = queue;
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
        }
    }

    /// Hands a message of `bytes` over to a queue pair at `at`, not before the clock; `token` comes back in its
    /// [`Completion`].
    pub fn send(&mut self, at: Time, pair: QueuePair, bytes: Bytes, token: u64) {
        let message = self.incoming_of(at, bytes, token);
        self.expect(pair.receiver, message);
        self.hand_over(at, pair.sender, &message);
    }

    /// A message as its receiver is told of it.
    pub(super) fn incoming_of(&self, at: Time, bytes: Bytes, token: u64) -> Incoming {
        let bytes = bytes.0.max(1);
        let packets =
            u32::try_from(self.settings.packets(Bytes(bytes))).expect("a message of fewer than 2^32 packets");
        Incoming { token, bytes, start: at, packets, next: NO_MESSAGE }
    }

    /// Hands a message over to a sending half.
    pub(super) fn hand_over(&mut self, at: Time, flow: u32, message: &Incoming) {
        let &Incoming { bytes, packets, .. } = message;
        let message = self.outgoing.insert(Outgoing { bytes, first: 0, packets, flow, next: NO_MESSAGE });
        let port = self.senders[flow as usize].port;
        let nic = &mut self.nics[port as usize];
        nic.starts.push(Reverse((at.0, nic.handed, message)));
        nic.handed += 1;
        self.schedule(at.0, class::START, port);
    }

    /// Messages whose time has come join their queue pairs.
    pub(super) fn start_messages(&mut self, p: u32, now: u64) {
        while let Some(&Reverse((at, _, message))) = self.nics[p as usize].starts.peek()
            && at <= now
        {
            self.nics[p as usize].starts.pop();
            self.start_message(message, now);
        }
    }

    /// A message joins its queue pair.
    fn start_message(&mut self, id: u32, now: u64) {
        let flow = self.outgoing[id].flow;
        let port = self.senders[flow as usize].port;
        self.pull(port, now);
        let sender = &mut self.senders[flow as usize];
        let message = &mut self.outgoing[id];
        message.first = sender.limit;
        sender.limit += message.packets;
        if sender.oldest == NO_MESSAGE {
            sender.oldest = id;
        } else {
            let last = sender.last;
            self.outgoing[last].next = id;
        }
        if sender.sending == NO_MESSAGE {
            sender.sending = id;
        }
        sender.last = id;
        if T::CREDITED {
            let Outgoing { packets, bytes, .. } = self.outgoing[id];
            let headers = u64::from(packets) * self.settings.header.0;
            self.credits.purses[flow as usize].backlog += bytes + headers;
        }
        if sender.una == sender.next {
            sender.heard = now;
            if T::CREDITED {
                self.credits.restart(flow, sender.next);
                self.watch(flow, now);
            }
        }
        self.ready(flow, now);
    }

    /// Whether the window lets a queue pair with something to send do so.
    ///
    /// A window that has shrunk below what is in flight may leave fewer packets there than the receiver answers
    /// together, and both would wait: then one more goes out that asks for an answer.
    #[inline]
    pub(super) fn may_send(&self, flow: u32) -> bool {
        let sender = &self.senders[flow as usize];
        if T::CREDITED && self.credits.purses[flow as usize].credit <= 0 {
            return false;
        }
        let in_flight = sender.in_flight();
        let full = self.settings.mtu.0;
        if sender.next - sender.una >= self.settings.in_flight && sender.again >= sender.again_end {
            return false;
        }
        in_flight == 0
            || in_flight + full <= self.transport.window(&sender.cc)
            || (!sender.asked && in_flight < full * u64::from(self.settings.ack_every))
    }

    /// The next packet of a queue pair that has one, transmitted from `start` on.
    pub(super) fn make_packet(&mut self, flow: u32, start: u64) -> u32 {
        let payload = self.settings.payload();
        let sender = &mut self.senders[flow as usize];
        let fresh = sender.again >= sender.again_end && sender.resend.count == 0;
        let (sequence, message) = if fresh {
            (sender.next, sender.sending)
        } else {
            let sequence = if sender.again < sender.again_end {
                sender.again += 1;
                sender.again - 1
            } else {
                let sequence = sender.resend.first();
                sender.resend.take(sequence);
                sequence
            };
            if self.transport.recovery() == BY_TIME {
                sender.resent.push(sequence);
            }
            self.totals.retransmissions += 1;
            let mut id = sender.oldest;
            while !self.outgoing[id].holds(sequence) {
                id = self.outgoing[id].next;
            }
            (sequence, id)
        };
        let facts = self.outgoing[message];
        let last = sequence + 1 == facts.first + facts.packets;
        if fresh {
            sender.next += 1;
            if last {
                sender.sending = facts.next;
            }
        }
        let wire = (facts.payload_of(sequence, payload) + self.settings.header.0) as u16;
        let (hash, path) = match self.settings.balancer {
            _ if sender.flags & flag::ROUTED != 0 => (sender.hash, 0),
            Balancer::Spray { paths } => {
                let choice = PathChoice { now: Time(start), round: sender.round, paths, hash: sender.hash };
                let path = self.transport.path(&mut sender.cc, &choice);
                let path = path.unwrap_or_else(|| choice.in_turn(sender.round));
                (combine(sender.hash, u64::from(path)), path)
            }
            Balancer::Reps { paths } => {
                let path = sender.recycler.as_mut().map_or(0, |recycler| recycler.next(paths));
                (combine(sender.hash, u64::from(path)), path)
            }
            _ => (sender.hash, 0),
        };
        sender.round = sender.round.wrapping_add(1);
        sender.sent += u64::from(wire);
        sender.data_sent += 1;
        self.transport.on_send(&mut sender.cc, Time(start), wire);
        let gap = self.transport.gap(&sender.cc, wire).0;
        (sender.gap, sender.last_wire) = (gap, wire);
        sender.eligible = start
            + if self.clocks.are_right() {
                gap
            } else {
                let nic = sender.port / self.topology.planes();
                self.clocks.real(nic, gap, &mut sender.rest)
            };
        // More than the receiver answers together in flight, and some answer will come.
        let (full, in_flight) = (self.settings.mtu.0, sender.in_flight());
        let few = in_flight < full * u64::from(self.settings.ack_every);
        let most = sender.next - sender.una >= self.settings.in_flight;
        sender.asked = last || most || (few && in_flight + full > self.transport.window(&sender.cc));
        let packet = Packet {
            hash,
            next_time: 0,
            joined: start,
            stamp: start,
            next: NONE,
            flow: sender.peer_slot,
            sequence,
            detail: NONE,
            to: sender.to,
            itinerary: Itinerary::DIRECT,
            wire,
            path,
            kind: Kind::Data,
            flags: sender.flags | if sender.asked { flag::ASKS } else { 0 },
            queue: sender.queue,
        };
        if sender.watch == u64::MAX && self.transport.recovery() != Recovery::None {
            (sender.checkpoint, sender.checked) = (sequence, start);
            sender.resent.clear();
            sender.heard = sender.heard.max(start);
            sender.watch = (sender.heard + self.transport.timeout(&sender.cc).0).max(self.clock);
            let due = sender.watch;
            self.schedule_flow(due, class::SILENCE, flow);
        }
        if last && self.settings.ack_every == 0 {
            // Nothing will be heard: what has been sent is done with.
            let sender = &mut self.senders[flow as usize];
            sender.una = sender.next;
            self.strike(flow);
        }
        let id = self.packets.insert(packet);
        if T::TELEMETRY {
            self.telemetry.begin(id);
        }
        if T::CREDITED {
            self.pay(flow, id, fresh);
        }
        id
    }

    /// Takes what data packet `id`, which is about to be sent, costs, and writes into it what its sender asks for.
    fn pay(&mut self, flow: u32, id: u32, fresh: bool) {
        let (mtu, sender, packet) =
            (self.settings.mtu.0, &self.senders[flow as usize], &mut self.packets[id]);
        let last = !sender.has_more();
        let again = u64::from(sender.resend.count + sender.again_end - sender.again) * mtu;
        let sent = Spent { sequence: packet.sequence, wire: packet.wire, fresh, last, again };
        let (asked, empty) = self.credits.spend(flow, mtu, &sent);
        packet.detail = asked;
        packet.flags |= if empty { flag::ASKS } else { 0 } | if last { flag::FINAL } else { 0 };
    }

    /// An acknowledgement has come back.
    pub(super) fn acknowledged(&mut self, id: u32, now: u64) {
        let packet = self.packets[id];
        let flow = packet.flow;
        let feedback = self.feedbacks.take(packet.detail);
        self.totals.acknowledgements += 1;
        self.packets.release(id);
        if T::TELEMETRY {
            self.telemetry.set_aside(id);
        }
        let sender = &mut self.senders[flow as usize];
        sender.control_gone += 1;
        if sender.retired {
            return;
        }
        let port = sender.port;
        if T::TELEMETRY {
            self.telemetry.read(flow);
        }
        self.pull(port, now);
        let sender = &mut self.senders[flow as usize];
        let bytes = feedback.received.saturating_sub(sender.received);
        sender.received = sender.received.max(feedback.received);
        let expected = packet.sequence;
        if expected > sender.una {
            for sequence in sender.una..expected.min(sender.beyond.end) {
                sender.beyond.clear(sequence);
            }
            sender.una = expected;
        }
        if bytes > 0 {
            sender.heard = now;
            sender.silent = 0;
        }
        if T::CREDITED {
            self.credits.heard(flow);
        }
        let mut bits = feedback.bits;
        while bits != 0 {
            let sequence = feedback.base + bits.trailing_zeros();
            bits &= bits - 1;
            if sequence >= sender.una && sequence < sender.next {
                sender.beyond.mark(sender.una, sequence);
            }
        }
        let ack = Ack {
            now: Time(now),
            bytes,
            packets: u32::from(feedback.packets),
            marked: u32::from(feedback.marked),
            expected,
            next: sender.next,
            rtt: Span(now - packet.stamp),
            echo: feedback.echo,
            path: packet.path,
            in_flight: sender.in_flight(),
        };
        if let Some(recycler) = &mut sender.recycler {
            recycler.heard(packet.path, feedback.echo, feedback.packets - feedback.marked, now);
        }
        if T::TELEMETRY {
            let (before, hops) = self.telemetry.told(flow);
            self.transport.on_hops(&mut sender.cc, &ack, before, hops);
        }
        self.transport.on_ack(&mut sender.cc, &ack);
        match self.transport.recovery() {
            Recovery::GoBackN if feedback.asks => self.go_back(flow, now, LossKind::Gap),
            Recovery::None | Recovery::GoBackN => {}
            Recovery::Selective { reorder } => self.find_gaps(flow, now, reorder),
        }
        if T::CREDITED && self.senders[flow as usize].is_idle_with_more() {
            self.credits.restart(flow, self.senders[flow as usize].next);
            self.watch(flow, now);
        }
        self.strike(flow);
        self.rearm(flow, now);
        self.ready(flow, now);
    }

    /// Forgets messages that are known to have arrived; a queue pair that is used once is done with its own.
    fn strike(&mut self, flow: u32) {
        let sender = &mut self.senders[flow as usize];
        while sender.oldest != NO_MESSAGE {
            let message = self.outgoing[sender.oldest];
            if message.first + message.packets > sender.una {
                return;
            }
            self.outgoing.release(sender.oldest);
            sender.oldest = message.next;
        }
        if !sender.keep && !sender.retired && sender.una >= sender.limit {
            sender.retired = true;
            sender.beyond = Arrivals::default();
            sender.recycler = None;
            self.named.remove(&(sender.port, sender.name));
            let (receiver, to) = (sender.peer_slot, sender.to);
            let homes = [self.crossing.as_ref().map_or(0, |crossing| crossing.number), self.home(to)];
            self.retired.push(QueuePair { sender: flow, receiver, homes });
        }
    }

    /// A packet has arrived without its payload.
    pub(super) fn nacked(&mut self, id: u32, now: u64) {
        let Packet { flow, sequence, path, flags, .. } = self.packets[id];
        self.packets.release(id);
        let sender = &mut self.senders[flow as usize];
        sender.control_gone += 1;
        if sender.retired {
            return;
        }
        let port = sender.port;
        self.pull(port, now);
        if T::CREDITED {
            self.credits.nacked(flow, self.settings.mtu.0);
        }
        let sender = &mut self.senders[flow as usize];
        sender.heard = now;
        // It may have been sent again meanwhile, after a time-out.
        let known = sequence < sender.una
            || sender.beyond.has(sequence)
            || (sender.again..sender.again_end).contains(&sequence)
            || sender.resend.has(sequence);
        if !known {
            sender.resend.add(sender.una, sequence);
            let bytes = self.wire_bytes(flow, std::iter::once(sequence));
            let sender = &mut self.senders[flow as usize];
            sender.lost = (sender.lost + bytes).min(sender.sent.saturating_sub(sender.received));
            let nack = Nack {
                now: Time(now),
                sequence,
                next: sender.next,
                bytes,
                path,
                echo: flags & flag::MARKED != 0,
                last_hop: flags & flag::LAST_HOP != 0,
                in_flight: sender.in_flight(),
            };
            self.transport.on_nack(&mut sender.cc, &nack);
        }
        self.rearm(flow, now);
        self.ready(flow, now);
    }

    /// Bytes on the wire of packets of a queue pair in rising order, none of them acknowledged in order.
    fn wire_bytes(&self, flow: u32, sequences: impl Iterator<Item = u32>) -> u64 {
        let (payload, header) = (self.settings.payload(), self.settings.header.0);
        let mut id = self.senders[flow as usize].oldest;
        let mut sum = 0;
        for sequence in sequences {
            while !self.outgoing[id].holds(sequence) {
                id = self.outgoing[id].next;
            }
            sum += self.outgoing[id].payload_of(sequence, payload) + header;
        }
        sum
    }

    /// A notification of congestion has come.
    pub(super) fn notified(&mut self, id: u32, now: u64) {
        let flow = self.packets[id].flow;
        self.packets.release(id);
        let sender = &mut self.senders[flow as usize];
        sender.control_gone += 1;
        if sender.retired {
            return;
        }
        let port = sender.port;
        self.pull(port, now);
        let sender = &mut self.senders[flow as usize];
        self.transport.on_notify(&mut sender.cc, Time(now));
        // A packet already paced keeps its time: DCQCN's increases act from one transmission to the next, and a cut that
        // acted in between would outweigh them.
        let waits = sender.turn == Turn::Paced;
        self.rearm(flow, now);
        if !waits {
            self.ready(flow, now);
        }
    }

    /// Marks as lost what lies `reorder` packets or more before the highest that has arrived.
    fn find_gaps(&mut self, flow: u32, now: u64, reorder: u32) {
        let sender = &mut self.senders[flow as usize];
        let Some(end) = sender.beyond.end.checked_sub(reorder) else { return };
        let from = sender.una.max(sender.again_end);
        let missing = |&sequence: &u32| !sender.beyond.has(sequence) && !sender.resend.has(sequence);
        if !(from..end).any(|sequence| missing(&sequence)) {
            return;
        }
        let sender = &self.senders[flow as usize];
        let missing = |&sequence: &u32| !sender.beyond.has(sequence) && !sender.resend.has(sequence);
        let bytes = self.wire_bytes(flow, (from..end).filter(missing));
        let sender = &mut self.senders[flow as usize];
        sender.lost = (sender.lost + bytes).min(sender.sent - sender.received);
        if sender.again >= sender.again_end {
            sender.again = from;
        }
        sender.again_end = end;
        let (sequence, next) = (from, sender.next);
        let loss = Loss { now: Time(now), kind: LossKind::Gap, sequence, next, bytes };
        self.transport.on_loss(&mut sender.cc, &loss);
    }

    /// Everything from the first packet missing on is sent again.
    fn go_back(&mut self, flow: u32, now: u64, kind: LossKind) {
        let sender = &mut self.senders[flow as usize];
        let bytes = sender.in_flight();
        sender.lost = sender.sent - sender.received.min(sender.sent);
        (sender.again, sender.again_end) = (sender.una, sender.next);
        sender.resend.clear();
        let loss = Loss { now: Time(now), kind, sequence: sender.una, next: sender.next, bytes };
        self.transport.on_loss(&mut sender.cc, &loss);
    }

    /// Sees to it that a sender without credit does not wait for ever for a PULL that was lost.
    fn watch(&mut self, flow: u32, now: u64) {
        let sender = &mut self.senders[flow as usize];
        if sender.watch == u64::MAX && self.credits.purses[flow as usize].credit <= 0 {
            sender.heard = now;
            sender.watch = now + self.transport.timeout(&sender.cc).0;
            let due = sender.watch;
            self.schedule_flow(due, class::SILENCE, flow);
        }
    }

    /// Looks whether anything was heard since the watch was set.
    pub(super) fn silence(&mut self, flow: u32, now: u64) {
        let sender = &mut self.senders[flow as usize];
        if sender.watch != now {
            return;
        }
        let waits = T::CREDITED && sender.has_more();
        if sender.una == sender.next && !waits {
            // Nothing is under way; the next packet sets the watch again.
            sender.watch = u64::MAX;
            return;
        }
        let mut patience = self.transport.timeout(&sender.cc).0;
        if T::CREDITED {
            patience = self.credits.patience(flow, sender.in_flight(), patience);
        }
        let due = sender.heard + patience;
        if due > now {
            // With a gap that no later packet shows, progress elsewhere must not hide it.
            let aged = self.transport.recovery() == BY_TIME && now >= sender.checked + patience;
            sender.watch = due;
            self.schedule_flow(due, class::SILENCE, flow);
            if aged {
                self.find_aged(flow, now);
            }
            return;
        }
        let port = sender.port;
        self.pull(port, now);
        self.totals.timeouts += 1;
        let sender = &mut self.senders[flow as usize];
        sender.silent = sender.silent.saturating_add(1);
        if sender.silent >= HOPELESS && !sender.aside && now >= self.changes.last {
            let planes = self.topology.planes();
            self.given_up = Some([sender.port / planes, sender.to / planes]);
            if let Some(crossing) = &self.crossing {
                crossing.calls(now);
            }
            return;
        }
        if let Some(recycler) = &mut self.senders[flow as usize].recycler {
            recycler.failed(now);
        }
        self.go_back(flow, now, LossKind::Timeout);
        if T::CREDITED {
            self.credits.rescue(flow);
        }
        let sender = &mut self.senders[flow as usize];
        sender.heard = now;
        (sender.checkpoint, sender.checked) = (sender.una, now);
        let due = now + self.transport.timeout(&sender.cc).0;
        sender.watch = due;
        self.schedule_flow(due, class::SILENCE, flow);
        self.rearm(flow, now);
        self.ready(flow, now);
    }

    /// Takes for lost what was sent a time-out ago and is not known to have arrived.
    fn find_aged(&mut self, flow: u32, now: u64) {
        let sender = &mut self.senders[flow as usize];
        sender.resent.sort_unstable();
        let resent = std::mem::take(&mut sender.resent);
        let waiting = sender.again..sender.again_end;
        let (from, end) = (sender.una, sender.checkpoint);
        (sender.checkpoint, sender.checked) = (sender.next, now);
        let aged = |sequence: &u32| {
            !sender.beyond.has(*sequence)
                && !waiting.contains(sequence)
                && !sender.resend.has(*sequence)
                && resent.binary_search(sequence).is_err()
        };
        let aged: Vec<u32> = (from..end).filter(aged).collect();
        let Some(&sequence) = aged.first() else { return };
        let port = sender.port;
        self.pull(port, now);
        self.totals.timeouts += 1;
        let bytes = self.wire_bytes(flow, aged.iter().copied());
        let sender = &mut self.senders[flow as usize];
        for sequence in aged {
            sender.resend.add(sender.una, sequence);
        }
        sender.lost = (sender.lost + bytes).min(sender.sent.saturating_sub(sender.received));
        let loss = Loss { now: Time(now), kind: LossKind::Timeout, sequence, next: sender.next, bytes };
        self.transport.on_loss(&mut sender.cc, &loss);
        self.rearm(flow, now);
        self.ready(flow, now);
    }

    /// The transport's timer.
    pub(super) fn timer(&mut self, flow: u32, now: u64) {
        let sender = &mut self.senders[flow as usize];
        if sender.timer != now {
            return;
        }
        let port = sender.port;
        self.pull(port, now);
        let sender = &mut self.senders[flow as usize];
        sender.timer = u64::MAX;
        self.transport.on_timer(&mut sender.cc, Time(now));
        self.rearm(flow, now);
        self.ready(flow, now);
    }

    /// Sets the transport's timer to what it says.
    #[inline]
    pub(super) fn rearm(&mut self, flow: u32, now: u64) {
        let sender = &mut self.senders[flow as usize];
        let Some(Time(due)) = self.transport.timer(&sender.cc) else { return };
        let due = due.max(now);
        if sender.timer != due {
            sender.timer = due;
            self.schedule_flow(due, class::TIMER, flow);
        }
    }

    /// Whether so many queue pairs are done that it is worth looking which of them have nothing left in the network.
    pub(super) fn is_to_settle(&self) -> bool {
        self.retired.len() > self.settle_at
    }

    pub(super) fn take_retired(&mut self) -> Vec<QueuePair> {
        std::mem::take(&mut self.retired)
    }

    /// Those that still have.
    pub(super) fn put_retired(&mut self, retired: Vec<QueuePair>) {
        self.settle_at = 2 * retired.len();
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
