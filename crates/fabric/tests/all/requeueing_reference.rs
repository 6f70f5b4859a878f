//! The host model equals a literal re-queueing simulator: one global list, blocked operations put back with their
//! insertion number, matching by linear search, a coupled group as the steps of a ring of two. Slow and obvious, on random
//! programs full of ties.

use std::sync::Arc;

use crate::common::{Goal, Kind, Op, replay, ring};
use proptest::prelude::*;
use windtunnel_fabric::host::{Costs, Host, HostSpec, LogGops, Receiver, SharedNics, Stuck, StuckKind};
use windtunnel_fabric::message::Latency;
use windtunnel_fabric::{CoupledId, Fabric, Notice, NoticeKind, SendRequest, Ticket};
use windtunnel_kernel::{Bytes, EndpointId, Span, StreamId, Tag, Time};

#[derive(Clone, Copy, PartialEq)]
enum What {
    Calc(Span),
    Send,
    Message,
    Receive,
    /// The end of a coupled group.
    Coupled,
}

#[derive(Clone, Copy)]
struct Item {
    time: Time,
    number: u64,
    what: What,
    endpoint: EndpointId,
    ticket: Ticket,
    stream: u8,
    nic: u8,
    /// Source of a receive, receiver of a message.
    peer: Option<EndpointId>,
    tag: Option<Tag>,
    bytes: Bytes,
    started: Time,
    taken: Time,
}

struct Literal {
    costs: LogGops,
    receiver: Receiver,
    now: Time,
    number: u64,
    handled: u64,
    queue: Vec<Item>,
    streams: Vec<[Time; 4]>,
    sending: Vec<[Time; 4]>,
    receiving: Vec<[Time; 4]>,
    /// Endpoints of a host, if its endpoints share its NICs: their clocks are behind those of all endpoints.
    host: Option<usize>,
    posted: Vec<Vec<Item>>,
    unexpected: Vec<Vec<Item>>,
    /// The greatest weight of an edge of each group.
    groups: Vec<u64>,
    /// Coupled groups under way, by the instant of their end and in the order in which they were started.
    runs: Vec<Item>,
}

fn fits(receive: &Item, message: &Item) -> bool {
    receive.peer.is_none_or(|source| source == message.endpoint)
        && receive.tag.is_none_or(|tag| Some(tag) == message.tag)
}

impl Literal {
    fn new(ranks: usize, costs: LogGops, receiver: Receiver, host: Option<usize>) -> Self {
        let clocks = || vec![[Time::ZERO; 4]; 2 * ranks];
        Self {
            costs,
            receiver,
            now: Time::ZERO,
            number: 0,
            handled: 0,
            queue: Vec::new(),
            streams: clocks(),
            sending: clocks(),
            receiving: clocks(),
            host,
            posted: vec![Vec::new(); ranks],
            unexpected: vec![Vec::new(); ranks],
            groups: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Whose NICs a message uses at `endpoint`.
    fn owner(&self, endpoint: usize, item: &Item) -> usize {
        let to = item.peer.expect("a message has a receiver").0 as usize;
        match self.host {
            Some(size) if item.endpoint.0 as usize / size != to / size => self.posted.len() + endpoint / size,
            _ => endpoint,
        }
    }

    fn free(&self, item: &Item) -> Time {
        let of =
            |clocks: &[[Time; 4]], endpoint: EndpointId, i: u8| clocks[endpoint.0 as usize][usize::from(i)];
        match item.what {
            What::Calc(_) | What::Receive => of(&self.streams, item.endpoint, item.stream),
            What::Send => {
                let owner = EndpointId(self.owner(item.endpoint.0 as usize, item) as u32);
                of(&self.streams, item.endpoint, item.stream).max(of(&self.sending, owner, item.nic))
            }
            What::Message => {
                let to = item.peer.expect("a message has a receiver");
                let owner = EndpointId(self.owner(to.0 as usize, item) as u32);
                of(&self.streams, to, item.stream).max(of(&self.receiving, owner, item.nic))
            }
            What::Coupled => item.time,
        }
    }

    fn insert(&mut self, ready: Time, item: Item) {
        self.number += 1;
        let time = ready.max(self.free(&item));
        self.queue.push(Item { time, number: self.number, ..item });
    }

    fn item(what: What, endpoint: EndpointId, ticket: Ticket) -> Item {
        Item {
            time: Time::ZERO,
            number: 0,
            what,
            endpoint,
            ticket,
            stream: 0,
            nic: 0,
            peer: None,
            tag: None,
            bytes: Bytes::new(1),
            started: Time::ZERO,
            taken: Time::ZERO,
        }
    }

    fn complete(&mut self, receive: Item, message: Item, notices: &mut Vec<Notice>) {
        if message.bytes > self.costs.eager_limit {
            let from = message.endpoint.0 as usize;
            let clock = &mut self.streams[from][usize::from(message.stream)];
            *clock = self.now.max(*clock);
            let owner = self.owner(from, &message);
            let clock = &mut self.sending[owner][usize::from(message.nic)];
            *clock = self.now.max(*clock);
            notices.push(Notice {
                endpoint: message.endpoint,
                ticket: message.ticket,
                kind: NoticeKind::Finished { remote: self.now },
                at: self.now,
            });
        }
        notices.push(Notice {
            endpoint: receive.endpoint,
            ticket: receive.ticket,
            kind: NoticeKind::Finished { remote: message.started },
            at: self.now.max(message.taken),
        });
    }

    /// (s - 1)·G and (s - 1)·O, written out.
    fn wire_and_copy(&self, bytes: Bytes) -> (Span, Span) {
        let product = |fs: u64| Span::from_ps(((bytes.get() - 1) * fs).div_ceil(1_000));
        (product(self.costs.gap_per_byte), product(self.costs.overhead_per_byte))
    }

    fn handle(&mut self, item: Item, notices: &mut Vec<Notice>) {
        let now = self.now;
        let endpoint = item.endpoint.0 as usize;
        let (stream, nic) = (usize::from(item.stream), usize::from(item.nic));
        let (wire, copy) = self.wire_and_copy(item.bytes);
        let LogGops { latency, overhead, gap, .. } = self.costs;
        let notice = |kind, at| Notice { endpoint: item.endpoint, ticket: item.ticket, kind, at };
        match item.what {
            What::Calc(duration) => {
                let end = now + duration;
                self.streams[endpoint][stream] = end;
                notices.extend([
                    notice(NoticeKind::Started, now),
                    notice(NoticeKind::Finished { remote: now }, end),
                ]);
            }
            What::Send => {
                let end = now + overhead + copy;
                self.streams[endpoint][stream] = end;
                let owner = self.owner(endpoint, &item);
                self.sending[owner][nic] = now + gap + wire;
                let arrival = match self.receiver {
                    Receiver::Held | Receiver::Aside => now + overhead + latency,
                    Receiver::Free => end + latency + wire,
                };
                self.number += 1;
                let message =
                    Item { what: What::Message, time: arrival, number: self.number, started: now, ..item };
                self.queue.push(message);
                notices.push(notice(NoticeKind::Started, now));
                if item.bytes <= self.costs.eager_limit {
                    notices.push(notice(NoticeKind::Finished { remote: now }, end));
                }
            }
            What::Message => {
                let to = item.peer.expect("a message has a receiver").0 as usize;
                let (held, nic_held, whole) = match self.receiver {
                    Receiver::Held => (overhead + wire.max(copy), gap + wire, overhead + wire.max(copy)),
                    Receiver::Free => (gap + overhead + copy, gap, gap + overhead + copy),
                    Receiver::Aside => (overhead + copy, gap + wire, overhead + wire.max(copy)),
                };
                self.streams[to][stream] = now + held;
                let owner = self.owner(to, &item);
                self.receiving[owner][nic] = now + nic_held;
                let message = Item { taken: now + whole, ..item };
                match self.posted[to].iter().position(|receive| fits(receive, &message)) {
                    Some(at) => {
                        let receive = self.posted[to].remove(at);
                        self.complete(receive, message, notices);
                    }
                    None => self.unexpected[to].push(message),
                }
            }
            What::Receive => {
                notices.push(notice(NoticeKind::Started, now));
                match self.unexpected[endpoint].iter().position(|message| fits(&item, message)) {
                    Some(at) => {
                        let message = self.unexpected[endpoint].remove(at);
                        self.complete(item, message, notices);
                    }
                    None => self.posted[endpoint].push(item),
                }
            }
            What::Coupled => notices.push(notice(NoticeKind::Finished { remote: item.started }, now)),
        }
    }

    fn stuck(&self) -> Vec<Stuck> {
        let mut all = Vec::new();
        for endpoint in (0..self.posted.len()).map(|i| EndpointId(i as u32)) {
            for receive in &self.posted[endpoint.0 as usize] {
                let kind =
                    StuckKind::Receive { ticket: receive.ticket, source: receive.peer, tag: receive.tag };
                all.push(Stuck { endpoint, kind });
            }
            for message in &self.unexpected[endpoint.0 as usize] {
                let kind = StuckKind::Message {
                    from: message.endpoint,
                    ticket: message.ticket,
                    tag: message.tag.unwrap_or_default(),
                    bytes: message.bytes,
                    sender_waits: message.bytes > self.costs.eager_limit,
                };
                all.push(Stuck { endpoint, kind });
            }
        }
        all
    }
}

impl Fabric for Literal {
    fn now(&self) -> Time {
        self.now
    }

    fn calc(&mut self, ready: Time, at: EndpointId, ticket: Ticket, stream: StreamId, duration: Span) {
        self.insert(ready, Item { stream: stream.0, ..Self::item(What::Calc(duration), at, ticket) });
    }

    fn send(&mut self, ready: Time, from: EndpointId, ticket: Ticket, request: SendRequest) {
        let item = Item {
            stream: request.stream.0,
            nic: request.nic.0,
            peer: Some(request.to),
            tag: Some(request.tag),
            bytes: Bytes::new(request.bytes.get().max(1)),
            ..Self::item(What::Send, from, ticket)
        };
        self.insert(ready, item);
    }

    fn post_receive(
        &mut self,
        ready: Time,
        at: EndpointId,
        ticket: Ticket,
        stream: StreamId,
        source: Option<EndpointId>,
        tag: Option<Tag>,
    ) {
        let item = Item { stream: stream.0, peer: source, tag, ..Self::item(What::Receive, at, ticket) };
        self.insert(ready, item);
    }

    /// As far as one message between the first member and another.
    fn prepare_reduction(&mut self, members: &[EndpointId], _: u32) -> CoupledId {
        self.groups.push(u64::from(members.len() > 1));
        CoupledId(self.groups.len() as u32 - 1)
    }

    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], _: u32) -> CoupledId {
        self.groups.push(edges.iter().map(|&(.., weight)| u64::from(weight)).max().unwrap_or(0));
        CoupledId(self.groups.len() as u32 - 1)
    }

    fn start_coupled(
        &mut self,
        start: Time,
        leader: EndpointId,
        ticket: Ticket,
        group: CoupledId,
        bytes: Bytes,
        steps: u32,
        _: u8,
    ) {
        let time = start + self.coupled_span(group, bytes, steps);
        self.runs.push(Item { time, started: start, ..Self::item(What::Coupled, leader, ticket) });
        // Stable.
        self.runs.sort_by_key(|run| run.time);
    }

    /// Two ranks pass each other the share of a step, and what has come is passed on, in each of the steps.
    fn coupled_span(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span {
        let weight = self.groups[group.0 as usize];
        if weight == 0 || steps == 0 {
            return Span::ZERO;
        }
        let bytes = bytes.get().div_ceil(u64::from(steps)) * weight;
        let eager = LogGops { eager_limit: Bytes::MAX, ..self.costs };
        let mut ends = Self::new(2, eager, self.receiver, None);
        let last = replay(&ring(2, steps, bytes), &mut ends).iter().map(|notice| notice.at).max();
        last.unwrap_or(Time::ZERO).since(Time::ZERO)
    }

    fn unreceived(&self) -> Vec<(EndpointId, Ticket)> {
        let messages = self.unexpected.iter().flatten();
        messages.map(|message| (message.endpoint, message.ticket)).collect()
    }

    fn next_time(&mut self) -> Time {
        let times = self.queue.iter().chain(self.runs.first()).map(|item| item.time);
        times.min().unwrap_or(Time::NEVER)
    }

    fn step(&mut self, notices: &mut Vec<Notice>) {
        loop {
            // What the network tells of an instant it tells before what hosts do then, or after all of it.
            let queued = self.queue.iter().map(|item| item.time).min().unwrap_or(Time::NEVER);
            let ended = self.runs.first().map_or(Time::NEVER, |run| run.time);
            if ended <= queued && (ended > self.now || ended < queued) {
                while let Some(run) = self.runs.first().copied().filter(|run| run.time == ended) {
                    self.runs.remove(0);
                    self.insert(ended, run);
                }
            }
            let order = |&i: &usize| (self.queue[i].time, self.queue[i].number);
            let Some(first) = (0..self.queue.len()).min_by_key(order) else { return };
            let item = &mut self.queue[first];
            self.now = item.time;
            let item = *item;
            let free = if item.what == What::Receive { self.now } else { self.free(&item) };
            if free > self.now {
                self.queue[first].time = free;
                continue;
            }
            self.queue.swap_remove(first);
            self.handled += 1;
            self.handle(item, notices);
            return;
        }
    }

    fn events(&self) -> u64 {
        self.handled
    }
}

/// Parameters small enough that ties and zeros abound, in whole nanoseconds or not.
fn parameters() -> impl Strategy<Value = LogGops> {
    let span = || prop_oneof![Just(0), 1..6u64, 1_000..4_000u64].prop_map(Span::from_ps);
    let rate = || prop_oneof![Just(0u64), 500..2_500u64, Just(1_000_000)];
    (span(), span(), span(), rate(), rate(), 0..6u64).prop_map(
        |(latency, overhead, gap, byte_gap, byte_overhead, limit)| LogGops {
            latency,
            overhead,
            gap,
            gap_per_byte: byte_gap,
            overhead_per_byte: byte_overhead,
            eager_limit: Bytes::new(limit),
        },
    )
}

type Draw = (u8, u8, u8, u8, u64, (u8, u8), (prop::sample::Index, prop::sample::Index));

/// Random operations; most sends get a receive, some of them wild, at a random place; edges point forward.
fn program(
    ranks: u32,
    draws: &[Draw],
    edges: &[(u8, prop::sample::Index, prop::sample::Index, bool)],
) -> Goal {
    let mut goal = Goal { ranks: vec![Vec::new(); ranks as usize] };
    for &(kind, rank, peer, wild, amount, (stream, nic), (at, other)) in draws {
        let (rank, peer) = (u32::from(rank) % ranks, u32::from(peer) % ranks);
        let tag = amount % 2;
        let mut put = |rank: u32, index: &prop::sample::Index, op| {
            let ops = &mut goal.ranks[rank as usize];
            let place = index.index(ops.len() + 1);
            ops.insert(place, op);
        };
        if kind % 3 == 0 {
            let calc = Kind::Calc { ns: amount % 4 };
            let (weight, steps) = (u32::from(nic % 3), u32::from(stream % 5));
            let coupled =
                Kind::Coupled { to: peer, weight, bytes: amount % 50, steps, reduces: wild % 4 == 0 };
            put(rank, &at, Op::new(if kind % 2 == 0 { calc } else { coupled }, stream % 3, 0));
            continue;
        }
        put(rank, &at, Op::new(Kind::Send { to: peer, bytes: amount % 9, tag }, stream % 3, nic % 2));
        let from = (wild & 1 == 0).then_some(rank);
        let tag = (wild & 6 != 0).then_some(tag);
        if wild % 16 != 15 {
            put(peer, &other, Op::new(Kind::Receive { from, tag }, (stream % 3 + (wild >> 6)) % 3, 0));
        }
    }
    for &(rank, a, b, at_start) in edges {
        let rank = u32::from(rank) as usize % ranks as usize;
        let n = goal.ranks[rank].len();
        if n > 1 {
            let (a, b) = (a.index(n) as u32, b.index(n) as u32);
            if a != b {
                goal.edge(rank, a.min(b), a.max(b), at_start);
            }
        }
    }
    goal
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_500) })]

    #[test]
    fn every_notice_is_the_same(
        costs in parameters(),
        receiver in prop_oneof![Just(Receiver::Held), Just(Receiver::Free), Just(Receiver::Aside)],
        ranks in 1..5u32,
        host in prop::option::of(1..3u32),
        draws in prop::collection::vec(any::<Draw>(), 0..60),
        edges in prop::collection::vec(any::<(u8, prop::sample::Index, prop::sample::Index, bool)>(), 0..60),
    ) {
        let goal = program(ranks, &draws, &edges);
        let size = host;
        let both = match size {
            None => Costs::uniform(costs),
            Some(size) => {
                let class = move |from: EndpointId, to: EndpointId| usize::from(from.0 / size != to.0 / size);
                let of = (0..ranks).flat_map(|rank| [rank / size * 2, rank / size * 2 + 1]).collect();
                let shared = SharedNics { from_class: 1, count: 2 * ranks.div_ceil(size), of };
                Costs::by_class(vec![costs; 2], Arc::new(class)).with_shared_nics(shared)
            }
        };
        let both = both.with_receiver(receiver);
        let mut host = Host::new(HostSpec { endpoints: ranks, streams: 3, nics: 2 }, both.clone(), Latency::new(both));
        let mut literal = Literal::new(ranks as usize, costs, receiver, size.map(|size| size as usize));
        let (fast, slow) = (replay(&goal, &mut host), replay(&goal, &mut literal));
        prop_assert_eq!(fast, slow);
        prop_assert_eq!(host.events(), literal.events());
        prop_assert_eq!(host.stuck(), literal.stuck());
        prop_assert_eq!(host.unreceived(), literal.unreceived());
        let clocks = literal.streams.iter().take(ranks as usize);
        let finish: Vec<Time> = clocks.map(|clocks| *clocks.iter().max().expect("clocks")).collect();
        prop_assert_eq!(host.finish_times(), finish);
    }

    /// Non-overtaking: messages of one pair and tag match their receives in order, however long they wait.
    #[test]
    fn many_messages_of_one_pair_wait_in_order(costs in parameters(), sizes in prop::collection::vec(0..9u64, 1..80)) {
        let mut goal = Goal { ranks: vec![Vec::new(), Vec::new()] };
        for &bytes in &sizes {
            goal.ranks[0].push(Op::new(Kind::Send { to: 1, bytes, tag: 7 }, 0, 0));
            goal.ranks[1].push(Op::new(Kind::Receive { from: Some(0), tag: Some(7) }, 0, 0));
        }
        let both = Costs::uniform(costs);
        let mut host = Host::new(HostSpec { endpoints: 2, streams: 1, nics: 1 }, both.clone(), Latency::new(both));
        let mut literal = Literal::new(2, costs, Receiver::Held, None);
        let log = replay(&goal, &mut host);
        prop_assert_eq!(&log, &replay(&goal, &mut literal));
        // Receives end in the order of their posting, each with its own message.
        let ends = log.iter().filter(|n| n.endpoint == EndpointId(1) && n.kind != NoticeKind::Started);
        let tickets: Vec<u64> = ends.map(|notice| notice.ticket.0).collect();
        prop_assert_eq!(tickets, (0..sizes.len() as u64).collect::<Vec<_>>());
    }
}
