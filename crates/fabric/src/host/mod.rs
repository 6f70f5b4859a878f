//! The host model: stream clocks, NIC clocks and the tag matcher, the same at every fidelity.
//!
//! Semantics are those of LogGOPSim (Hoefler, Schneider, Lumsdaine, "LogGOPSim: simulating large-scale applications in
//! the LogGOPS model", HPDC'10), reproduced to the integer. For an endpoint there is a clock per compute stream and, per
//! NIC, one for sending and one for receiving; a clock says when its resource is free again.
//!
//! | event at t | starts when free | then held until |
//! |---|---|---|
//! | computation | its stream | t + duration |
//! | send of s bytes | its stream, the sending side of its NIC | t + o + (s-1)·O; t + g + (s-1)·G |
//! | message at its receiver | the *sender's* stream and NIC numbers there | t + o + max((s-1)·O, (s-1)·G); t + g + (s-1)·G |
//! | receive | at once | costs nothing: its message does |
//!
//! Where endpoints of a host have fewer NICs than they are ([`SharedNics`]), messages that leave the host hold the clocks of a
//! NIC that several endpoints use, and only these; those inside it hold clocks of their endpoints as before.
//!
//! 0 bytes count as 1. A message leaves at (start of the send) + o and is then the [`Network`]'s; with LogGOPS its first
//! byte arrives L later. A message of at most S bytes is eager: its send is over when its overhead is. A longer one is a
//! rendezvous, as is one that asks for it ([`SendRequest::waits`](crate::SendRequest::waits)): its send is over when the
//! receiver matches it. [`Receiver::Free`] is the variant of ATLAHS, [`Receiver::Aside`] one whose stream goes on while bytes come in.
//!
//! **Order.** Events are handled one by one in the order (time, insertion number). What is released by an event is
//! inserted right after it, and a blocked operation keeps its number when it tries again.
//!
//! **Waiting.** LogGOPSim puts a blocked operation back into the global queue for the instant F at which its resources
//! will be free, so n operations waiting for one NIC cost n² attempts. Here the blocked operations of one group (same
//! endpoint, kind, stream, NIC, shared or not: the same F at any moment) wait in a line ordered by insertion number, and only its head
//! has an event, at (F, its number). The results are equal, because (a) clocks never go back, so F never falls; (b) in
//! the re-queueing form every blocked operation of the group has been tried before F and then waits at F, so at instant
//! F all of them stand in the queue in order of their numbers and the lowest is tried first; (c) a failed attempt
//! changes nothing but its own place. If the head starts, F grows, and the others would fail in turn and meet again at
//! the new F, where the next head's event is; if F has grown by an operation of another group (same stream or NIC), the
//! head fails and is put off to the new F as all would be. An operation that is not blocked when it is first tried
//! starts, whatever waits in its line: had a waiting one a lower number it would have been tried before. A late comer
//! with a lower number than the head becomes the head; the old head's event is recognised as out of date by its
//! (time, number). `tests/all/requeueing_reference.rs` compares with the literal form on random programs.
//!
//! **Differences from LogGOPSim**, where it breaks causality or counts wrong: what waits for an operation becomes ready
//! at that operation's end, also on another stream (LogGOPSim: at its start, relying on the common stream's clock);
//! `irequires` never release into the past; 0 bytes cost as 1 byte instead of wrapping around; the size of a message, for
//! eager or rendezvous too, is its sender's, whatever its receive says.
//!
//! **Failure modes.** A receive without a message, or a message without a receive, never ends; when
//! [`next_time`](crate::Fabric::next_time) is [`Time::NEVER`] such operations are listed by [`Host::stuck`]. Requests with a stream, NIC
//! or endpoint outside the [`HostSpec`], or ready before the clock, are defects of the caller and panic.

mod abandon;
mod costs;
mod fabric;
mod matcher;
mod operations;
mod stuck;
mod waiting;

use windtunnel_kernel::queue::{EventQueue, Sequenced};
use windtunnel_kernel::{EndpointId, NicId, Span, Time};

pub use self::costs::{Costs, Holds, LogGops, PathClassOf, Receiver, SharedNics, lock_step};
use self::matcher::Matcher;
use self::operations::{Operation, Operations, RENDEZVOUS, State};
pub use self::stuck::{Stuck, StuckKind};
use self::waiting::{Group, Waiting};
use crate::{Arrival, Departure, Network, Notice, NoticeKind, Received, Ticket};

/// How many of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Endpoints.
    pub endpoints: u32,
    /// Compute streams of each, 1 to 256.
    pub streams: u16,
    /// NICs of each, 1 to 256.
    pub nics: u16,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// An operation is tried for the first time, or a message has arrived.
    Operation(u32),
    /// The head of a line is tried again.
    Head(u32),
    /// A coupled group has ended.
    Coupled(u32),
}

/// A running coupled group.
#[derive(Clone, Copy, Debug)]
struct Run {
    leader: EndpointId,
    ticket: Ticket,
    start: Time,
    /// Abandoned: nobody is told of its end.
    gone: bool,
}

/// The host model over a network: see the module page.
#[derive(Clone, Debug)]
pub struct Host<N> {
    network: N,
    costs: Costs,
    spec: HostSpec,
    now: Time,
    handled: u64,
    /// Insertion number of the next operation.
    number: u64,
    queue: EventQueue<Event, Sequenced>,
    operations: Operations,
    waiting: Waiting,
    /// When each stream of each endpoint is free, and each NIC for sending and for receiving; shared ones are behind the others.
    stream_free: Vec<Time>,
    send_free: Vec<Time>,
    receive_free: Vec<Time>,
    matchers: Vec<Matcher>,
    /// Place in the order of posting and arrival of the next receive or message.
    order: u64,
    wildcards: bool,
    runs: Vec<Run>,
    free_runs: Vec<u32>,
    /// What the network said last, unless something has changed since.
    network_next: Option<Time>,
    arrivals: Vec<Arrival>,
    /// See [`Host::stop_at`].
    horizon: Time,
}

impl<N: Network> Host<N> {
    /// Hosts with nothing to do, at time zero.
    ///
    /// # Panics
    /// If the spec has no stream or NIC, or more than 256, or other ones than the shared NICs are given for.
    pub fn new(spec: HostSpec, costs: Costs, network: N) -> Self {
        assert!((1..=256).contains(&spec.streams), "between 1 and 256 streams, found {}", spec.streams);
        assert!((1..=256).contains(&spec.nics), "between 1 and 256 NICs, found {}", spec.nics);
        let endpoints = spec.endpoints as usize;
        let (streams, nics) = (usize::from(spec.streams), usize::from(spec.nics));
        let shared = costs.shared_nics().map_or(0, |shared| shared.count as usize);
        if let Some(shared) = costs.shared_nics() {
            assert!(
                shared.of.len() == endpoints * nics,
                "{} shared NICs of {endpoints} × {nics}",
                shared.of.len()
            );
        }
        Self {
            network,
            costs,
            spec,
            now: Time::ZERO,
            handled: 0,
            number: 0,
            queue: EventQueue::new(),
            operations: Operations::new(),
            waiting: Waiting::new(endpoints),
            stream_free: vec![Time::ZERO; endpoints * streams],
            send_free: vec![Time::ZERO; endpoints * nics + shared],
            receive_free: vec![Time::ZERO; endpoints * nics + shared],
            matchers: vec![Matcher::default(); endpoints],
            order: 0,
            wildcards: false,
            runs: Vec::new(),
            free_runs: Vec::new(),
            network_next: None,
            arrivals: Vec::new(),
            horizon: Time::HORIZON,
        }
    }

    /// A network that goes on for as long as nothing arrives stops here: its caller has something to say to it then.
    pub fn stop_at(&mut self, horizon: Time) {
        self.horizon = horizon.min(Time::HORIZON);
    }

    /// The network.
    pub fn network(&self) -> &N {
        &self.network
    }

    /// The network, to be changed between steps.
    pub fn network_mut(&mut self) -> &mut N {
        self.network_next = None;
        &mut self.network
    }

    /// Of each endpoint, when the last of its streams is free: its finish time once nothing is left to do.
    pub fn finish_times(&self) -> Vec<Time> {
        let latest = |clocks: &[Time]| clocks.iter().copied().max().unwrap_or_default();
        self.stream_free.chunks_exact(usize::from(self.spec.streams)).map(latest).collect()
    }

    /// What still waits for the other side, by endpoint: receives in order of posting, then messages in order of arrival.
    pub fn stuck(&self) -> Vec<Stuck> {
        stuck::list(&self.operations)
    }

    #[inline]
    fn stream_clock(&self, endpoint: EndpointId, stream: u8) -> usize {
        assert!(u16::from(stream) < self.spec.streams, "stream {stream} of {}", self.spec.streams);
        endpoint.0 as usize * usize::from(self.spec.streams) + usize::from(stream)
    }

    /// The clock of a message's NIC at `endpoint`, and whether other endpoints have it too.
    #[inline]
    fn nic_clock(&self, endpoint: EndpointId, message: &Operation) -> (usize, bool) {
        let Operation { nic, path, .. } = *message;
        assert!(u16::from(nic) < self.spec.nics, "NIC {nic} of {}", self.spec.nics);
        let own = endpoint.0 as usize * usize::from(self.spec.nics) + usize::from(nic);
        match self.costs.shared_nics() {
            Some(shared) if path >= shared.from_class => {
                (self.send_free.len() - shared.count as usize + shared.of[own] as usize, true)
            }
            _ => (own, false),
        }
    }

    /// When what the operation needs next is free, and its group.
    #[inline]
    fn needs(&self, operation: &Operation) -> (Time, Group) {
        let Operation { stream, nic, .. } = *operation;
        let (endpoint, side, nics) = match operation.state {
            State::Calc => {
                let group = Group { endpoint: operation.endpoint, needs: [0, stream, 0] };
                return (self.stream_free[self.stream_clock(operation.endpoint, stream)], group);
            }
            State::Message => (EndpointId(operation.peer), 2, &self.receive_free),
            _ => (operation.endpoint, 1, &self.send_free),
        };
        let (clock, shared) = self.nic_clock(endpoint, operation);
        let free = self.stream_free[self.stream_clock(endpoint, stream)].max(nics[clock]);
        (free, Group { endpoint, needs: [side + 2 * u8::from(shared), stream, nic] })
    }

    /// Takes the insertion number of a request.
    #[inline]
    fn next_number(&mut self, ready: Time) -> u64 {
        assert!(ready >= self.now, "a request is ready at {ready}, before the clock at {}", self.now);
        self.number += 1;
        self.number
    }

    /// Puts a computation or a send where it is tried as soon as it is ready.
    #[inline]
    fn insert(&mut self, ready: Time, operation: Operation) {
        let (free, group) = self.needs(&operation);
        let number = operation.number;
        let id = self.operations.insert(operation);
        // It would be tried with the others of its line, behind them.
        if ready <= free.max(self.now) && self.waiting.line(group).is_some() {
            self.waiting.join(group, number, id, free);
        } else {
            self.queue.push(Sequenced { time: ready.max(free), number }, Event::Operation(id));
        }
    }

    /// Tries an event. Returns whether something happened.
    #[inline]
    fn handle(&mut self, key: Sequenced, event: Event, notices: &mut Vec<Notice>) -> bool {
        match event {
            Event::Operation(id) => {
                let operation = self.operations[id];
                match operation.state {
                    State::Receive => {
                        self.post(id, notices);
                        return true;
                    }
                    State::Gone => {
                        self.operations.release(id);
                        return false;
                    }
                    _ => {}
                }
                let (free, group) = self.needs(&operation);
                if free > self.now {
                    if let Some(line) = self.waiting.join(group, operation.number, id, free) {
                        self.queue
                            .push(Sequenced { time: free, number: operation.number }, Event::Head(line));
                    }
                    return false;
                }
                self.start(id, operation, notices);
            }
            Event::Head(line) => {
                let Some(id) = self.waiting.head(line, key.time, key.number) else { return false };
                let operation = self.operations[id];
                if operation.state == State::Gone {
                    self.operations.release(id);
                    if let Some(number) = self.waiting.take(line, self.now) {
                        self.queue.push(Sequenced { time: self.now, number }, event);
                    }
                    return false;
                }
                let (free, _) = self.needs(&operation);
                if free > self.now {
                    self.waiting.put_off(line, free);
                    self.queue.push(Sequenced { time: free, number: key.number }, event);
                    return false;
                }
                self.start(id, operation, notices);
                // All of a line need the same.
                let due = self.needs(&operation).0.max(self.now);
                if let Some(number) = self.waiting.take(line, due) {
                    self.queue.push(Sequenced { time: due, number }, event);
                }
            }
            Event::Coupled(run) => {
                let Run { leader, ticket, start, gone } = self.runs[run as usize];
                self.free_runs.push(run);
                if gone {
                    return false;
                }
                let kind = NoticeKind::Finished { remote: start };
                notices.push(Notice { endpoint: leader, ticket, kind, at: self.now });
            }
        }
        true
    }

    /// Starts what has all it needs.
    #[inline]
    fn start(&mut self, id: u32, operation: Operation, notices: &mut Vec<Notice>) {
        match operation.state {
            State::Calc => self.start_calc(id, &operation, notices),
            State::Send => self.start_send(id, &operation, notices),
            _ => self.receive(id, &operation, notices),
        }
    }

    #[inline]
    fn start_calc(&mut self, id: u32, operation: &Operation, notices: &mut Vec<Notice>) {
        let end = self.now + Span::from_ps(operation.amount);
        let stream = self.stream_clock(operation.endpoint, operation.stream);
        self.stream_free[stream] = end;
        self.operations.release(id);
        let notice = |kind, at| Notice { endpoint: operation.endpoint, ticket: operation.ticket, kind, at };
        notices.extend([
            notice(NoticeKind::Started, self.now),
            notice(NoticeKind::Finished { remote: self.now }, end),
        ]);
    }

    fn start_send(&mut self, id: u32, operation: &Operation, notices: &mut Vec<Notice>) {
        let costs = self.costs.of_class(usize::from(operation.path));
        let holds = costs.holds(operation.bytes(), self.costs.receiver());
        let rendezvous = operation.has(RENDEZVOUS) || operation.bytes() > costs.eager_limit;
        let (from, to) = (operation.endpoint, EndpointId(operation.peer));
        let (stream, nic) = (self.stream_clock(from, operation.stream), self.nic_clock(from, operation).0);
        let end = self.now + holds.send_stream;
        self.stream_free[stream] = end;
        self.send_free[nic] = self.now + holds.send_nic;

        let message = &mut self.operations[id];
        message.state = State::Message;
        message.started = self.now;
        message.mark(RENDEZVOUS, rendezvous);
        let departure = Departure {
            message: id,
            from,
            to,
            nic: NicId(operation.nic),
            bytes: operation.bytes(),
            class: operation.class,
            entropy: operation.entropy,
            line: operation.line,
        };
        let at = self.now + holds.departure;
        if let Some(arrival) = self.network.known_arrival(at, &departure) {
            self.arrive(arrival, id);
        } else {
            self.network.depart(at, departure);
            self.network_next = None;
        }

        let notice = |kind, at| Notice { endpoint: from, ticket: operation.ticket, kind, at };
        notices.push(notice(NoticeKind::Started, self.now));
        if !rendezvous {
            notices.push(notice(NoticeKind::Finished { remote: self.now }, end));
        }
    }

    /// Message `id` will reach its receiver at `time`.
    #[inline]
    fn arrive(&mut self, time: Time, id: u32) {
        self.number += 1;
        self.operations[id].number = self.number;
        self.queue.push(Sequenced { time, number: self.number }, Event::Operation(id));
    }

    /// The receiver takes message `id` in.
    fn receive(&mut self, id: u32, message: &Operation, notices: &mut Vec<Notice>) {
        let to = EndpointId(message.peer);
        let holds =
            self.costs.of_class(usize::from(message.path)).holds(message.bytes(), self.costs.receiver());
        let (stream, nic) = (self.stream_clock(to, message.stream), self.nic_clock(to, message).0);
        let taken = self.now + holds.whole;
        self.stream_free[stream] = self.now + holds.receive_stream;
        self.receive_free[nic] = self.now + holds.receive_nic;

        self.network.received(&Received {
            from: message.endpoint,
            to,
            bytes: message.bytes(),
            start: message.started,
            finish: taken.max(self.receive_free[nic]),
            class: message.class,
        });
        self.order += 1;
        self.operations[id].number = self.order;
        self.operations[id].taken = taken;
        match self.matchers[to.0 as usize].arrive(id, &mut self.operations) {
            Some(receive) => self.complete(receive, id, notices),
            None => self.operations[id].state = State::Unexpected,
        }
    }

    /// The receive `id` is posted.
    fn post(&mut self, id: u32, notices: &mut Vec<Notice>) {
        self.order += 1;
        self.operations[id].number = self.order;
        let Operation { endpoint, ticket, .. } = self.operations[id];
        notices.push(Notice { endpoint, ticket, kind: NoticeKind::Started, at: self.now });
        match self.matchers[endpoint.0 as usize].post(id, &mut self.operations) {
            Some(message) => self.complete(id, message, notices),
            None => self.operations[id].state = State::Posted,
        }
    }

    /// A receive and its message have met.
    fn complete(&mut self, receive: u32, id: u32, notices: &mut Vec<Notice>) {
        let message = self.operations[id];
        if message.has(RENDEZVOUS) {
            let from = message.endpoint;
            let (stream, nic) = (self.stream_clock(from, message.stream), self.nic_clock(from, &message).0);
            self.stream_free[stream] = self.stream_free[stream].max(self.now);
            self.send_free[nic] = self.send_free[nic].max(self.now);
            let kind = NoticeKind::Finished { remote: self.now };
            notices.push(Notice { endpoint: from, ticket: message.ticket, kind, at: self.now });
        }
        let Operation { endpoint, ticket, .. } = self.operations[receive];
        let kind = NoticeKind::Finished { remote: message.started };
        notices.push(Notice { endpoint, ticket, kind, at: message.taken.max(self.now) });
        self.operations.release(id);
        self.operations.release(receive);
    }

    /// From the first wildcard on, unexpected messages are kept where wildcards find them.
    #[cold]
    fn expect_wildcards(&mut self) {
        self.wildcards = true;
        self.matchers.iter_mut().for_each(Matcher::expect_wildcards);
        for id in 0..self.operations.slots().len() as u32 {
            let operation = &self.operations[id];
            if operation.state == State::Unexpected {
                self.matchers[operation.peer as usize].index_for_wildcards(id, &self.operations);
            }
        }
    }

    /// Lets the network move on from its event at `next`, not beyond `limit`, and queues what arrives; how far it came.
    fn run_network(&mut self, next: Time, limit: Time) -> Time {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let to = self.network.run(next, limit, &mut arrivals);
        self.network_next = None;
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Message { message } => self.arrive(to, message),
                Arrival::Coupled { run } => {
                    self.number += 1;
                    self.queue.push(Sequenced { time: to, number: self.number }, Event::Coupled(run));
                }
            }
        }
        self.arrivals = arrivals;
        to
    }

    #[inline]
    fn queue_time(&self) -> Time {
        self.queue.peek().map_or(Time::NEVER, |key| key.time)
    }

    /// When the network has something next. Asked only when the instant has no event left, so that all departures of an
    /// instant are one batch to the network.
    #[inline]
    fn network_time(&mut self) -> Time {
        match self.network_next {
            Some(time) => time,
            None => *self.network_next.insert(self.network.next_time()),
        }
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::{Bytes, StreamId, Tag};

    use super::*;
    use crate::message::Latency;
    use crate::{Fabric, SendRequest};

    /// However long a run is, it holds no more than what is going on.
    #[test]
    fn memory_is_bounded_by_state() {
        let costs = Costs::uniform(LogGops {
            latency: Span::from_ps(30),
            overhead: Span::from_ps(5),
            gap: Span::from_ps(9),
            ..LogGops::default()
        });
        let spec = HostSpec { endpoints: 2, streams: 1, nics: 1 };
        let mut host = Host::new(spec, costs.clone(), Latency::new(costs));
        let mut notices = Vec::new();
        for round in 0..2_000 {
            let now = host.now();
            for tag in (0..3).map(|i| Tag(3 * round + i)) {
                let (stream, nic, to) = (StreamId(0), NicId(0), EndpointId(1));
                let request = SendRequest {
                    stream,
                    nic,
                    to,
                    bytes: Bytes::new(8),
                    tag,
                    class: 0,
                    entropy: 0,
                    line: 0,
                    waits: false,
                };
                host.send(now, EndpointId(0), Ticket(0), request);
                host.post_receive(
                    now,
                    to,
                    Ticket(1),
                    stream,
                    Some(EndpointId(0)),
                    (round % 2 == 0).then_some(tag),
                );
            }
            while host.next_time() != Time::NEVER {
                host.step(&mut notices);
            }
            assert_eq!(notices.len(), 12);
            notices.clear();
        }
        assert_eq!(host.operations.slots().len(), 6);
        assert_eq!(host.stuck(), []);
        assert!(host.queue.is_empty());
    }
}
