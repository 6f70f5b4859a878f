//! The two traits of this crate: [`Fabric`], what a run drives, and [`Network`], what a fidelity implements.
//!
//! A [`Network`] is everything that a run asks of a fidelity: it takes messages, has a clock, may lose what its hosts have given
//! up and learn of other paths in mid-run, and tells what it saw. Only the first two are asked of every network; the rest
//! has a default that says "nothing of the kind". A `Box<dyn Network>` is a network too (`boxed.rs`).

use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::{Bytes, EndpointId, NicId, Span, StreamId, Tag, Time, define_id};
use windtunnel_topology::Forwarder;

use crate::account::FlowRecord;
use crate::observations::Observations;
use crate::packet::{CapturedPacket, PairSample, QueueSample};

define_id! {
    /// Edges prepared for coupled execution: see [`Fabric::prepare_coupled`].
    pub struct CoupledId;
}

/// An exchange all of whose messages have one rate: see [`Fabric::prepare_in_step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InStep {
    /// The group, whose unit edge is a pair of members; of one step.
    pub group: CoupledId,
    /// By how much the last member has all at most later than another: paths differ in length.
    pub spread: Span,
}

/// The caller's own name for a request; handed back unchanged in its notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// Stream of the sender held for the overhead; the receiver's stream and NIC of the same numbers take it.
    pub stream: StreamId,
    /// NIC of the sender.
    pub nic: NicId,
    /// Receiver.
    pub to: EndpointId,
    /// Payload; 0 counts as 1.
    pub bytes: Bytes,
    /// Tag to be matched.
    pub tag: Tag,
    /// Traffic class, for accounting and queues: the caller's numbering.
    pub class: u8,
    /// What the load balancer hashes.
    pub entropy: u32,
    /// The queue pair it goes by, which sends one message after the other: those of equal sender, receiver, entropy and line go by
    /// one. Load balancers do not know it. 0: a connection of its own.
    pub line: u16,
    /// Whether the send is over only when the receiver has the message, however short it is.
    pub waits: bool,
}

/// What became known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// It began at `at`.
    Started,
    /// It ended (a send: locally complete) at `at`. `remote` is when what it waited for began: for a receive the instant
    /// its sender started to send, for a coupled group its start, for a computation or an eager send its own start.
    Finished {
        /// See above.
        remote: Time,
    },
}

/// An answer to a request. Notices come in a deterministic order; `at` may lie ahead of the clock, because an end is
/// told as soon as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whose request.
    pub endpoint: EndpointId,
    /// Which.
    pub ticket: Ticket,
    /// What became known.
    pub kind: NoticeKind,
    /// When.
    pub at: Time,
}

/// A network with its hosts, at some fidelity, as one shard.
///
/// Requests may be made at any time with `ready` not before [`Fabric::now`]; [`Fabric::step`] moves the clock. Of two
/// requests that become possible at the same instant and need the same resource, the one made first comes first.
pub trait Fabric {
    /// The clock: the instant of the last step.
    fn now(&self) -> Time;
    /// Occupies a stream for `duration` from the first instant, not before `ready`, at which it is free.
    fn calc(&mut self, ready: Time, at: EndpointId, ticket: Ticket, stream: StreamId, duration: Span);
    /// Sends a message.
    fn send(&mut self, ready: Time, from: EndpointId, ticket: Ticket, request: SendRequest);
    /// Posts a receive; `None` matches any source or tag.
    fn post_receive(
        &mut self,
        ready: Time,
        at: EndpointId,
        ticket: Ticket,
        stream: StreamId,
        source: Option<EndpointId>,
        tag: Option<Tag>,
    );
    /// Routes the edges `(from, to, weight)` of a coupled group once. While a group runs, edge e carries
    /// `weight_e × rate` for one common rate.
    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> CoupledId;
    /// Prepares a reduction in the network: every member sends its vector up a tree of switches that sum, and receives the
    /// sum ([`crate::reduction`]). It is started as a coupled group is, of one step, with the vector's size.
    fn prepare_reduction(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId;
    /// Routes an exchange in which every member has as much for every other, once: a group for [`Fabric::start_coupled`]
    /// whose unit edge is a pair of members. At flow fidelity the pairs that go from one NIC to another are one flow, and
    /// the flows are free of each other, or all one flow where a job alone gets one rate for all anyway; elsewhere all pairs are coupled.
    fn prepare_exchange(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        self.prepare_coupled(&pairs(members), entropy)
    }
    /// The same for an exchange whose messages, one for each pair of members and all begun at once, have one rate where nobody else
    /// sends, so that they end together. `None` if they have not, or nobody knows: the fidelity has no rates, or they will change.
    fn prepare_in_step(&mut self, members: &[EndpointId], entropy: u32) -> Option<InStep> {
        let _ = (members, entropy);
        None
    }
    /// Runs a prepared group from `start`: its unit edge carries `bytes`, in `steps` dependent steps, each along an edge, whose
    /// latency it costs where blocks do not wait for a link anyway. Its end is told to `leader` as the end of `ticket`.
    fn start_coupled(
        &mut self,
        start: Time,
        leader: EndpointId,
        ticket: Ticket,
        group: CoupledId,
        bytes: Bytes,
        steps: u32,
        class: u8,
    );
    /// Time that such a run takes on an idle fabric.
    fn coupled_span(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span;
    /// Time of the next event, [`Time::NEVER`] if none. None is later than [`Time::HORIZON`].
    fn next_time(&mut self) -> Time;
    /// Whether something would happen after [`Time::HORIZON`] that never will, once no event is left.
    fn is_beyond(&mut self) -> bool {
        false
    }
    /// Handles one event and appends what became known; an event may make nothing known.
    ///
    /// The order of the events of an instant is the order in which they were caused, so a caller that wants the order of
    /// LogGOPSim makes all requests that follow from the notices of one call before the next: by ascending endpoint,
    /// for each its sends, then its receives, then its computations.
    fn step(&mut self, notices: &mut Vec<Notice>);
    /// Number of events handled so far.
    fn events(&self) -> u64;
    /// Sends whose message has arrived and that nobody receives, by receiver and then in order of arrival: sender and
    /// ticket of each.
    fn unreceived(&self) -> Vec<(EndpointId, Ticket)>;
}

/// Every ordered pair of `members`, once.
pub(crate) fn pairs(members: &[EndpointId]) -> Vec<(EndpointId, EndpointId, u32)> {
    let others =
        |&from: &EndpointId| members.iter().filter(move |&&to| to != from).map(move |&to| (from, to, 1));
    members.iter().flat_map(others).collect()
}

/// A message that leaves its NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The host model's name for the message.
    pub message: u32,
    /// Sender.
    pub from: EndpointId,
    /// Receiver.
    pub to: EndpointId,
    /// NIC of the sender.
    pub nic: NicId,
    /// Payload, at least 1.
    pub bytes: Bytes,
    /// Traffic class.
    pub class: u8,
    /// What the load balancer hashes.
    pub entropy: u32,
    /// The queue pair it goes by, which sends one message after the other: those of equal sender, receiver, entropy and line go by
    /// one. Load balancers do not know it. 0: a connection of its own.
    pub line: u16,
}

/// A message whose last byte has arrived, or a coupled group that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A message.
    Message {
        /// The host model's name for it.
        message: u32,
    },
    /// A coupled group.
    Coupled {
        /// The host model's name for the run of the group.
        run: u32,
    },
}

/// A message that its receiver has taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Sender.
    pub from: EndpointId,
    /// Receiver.
    pub to: EndpointId,
    /// Payload, at least 1.
    pub bytes: Bytes,
    /// When its send started.
    pub start: Time,
    /// When the receiver has it whole.
    pub finish: Time,
    /// Traffic class.
    pub class: u8,
}

/// What happens between a message leaving its NIC and its arrival.
pub trait Network {
    /// A message was taken in; for a network that keeps account of messages and not of what carries them.
    #[inline]
    fn received(&mut self, message: &Received) {
        let _ = message;
    }
    /// The arrival of a message that departs at `at`, if it is settled already because nothing can contend with it: the
    /// host model then spares the network the message. A network gives an answer for every message or for none.
    #[inline]
    fn known_arrival(&self, at: Time, departure: &Departure) -> Option<Time> {
        let _ = (at, departure);
        None
    }
    /// A message departs at `at`, not before any instant the network has advanced to.
    fn depart(&mut self, at: Time, departure: Departure);
    /// See [`Fabric::prepare_coupled`].
    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> CoupledId;
    /// See [`Fabric::prepare_reduction`].
    fn prepare_reduction(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId;
    /// See [`Fabric::prepare_exchange`].
    fn prepare_exchange(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        self.prepare_coupled(&pairs(members), entropy)
    }
    /// See [`Fabric::prepare_in_step`].
    fn prepare_in_step(&mut self, members: &[EndpointId], entropy: u32) -> Option<InStep> {
        let _ = (members, entropy);
        None
    }
    /// See [`Fabric::start_coupled`]; `run` comes back in [`Arrival::Coupled`].
    fn start_coupled(&mut self, at: Time, run: u32, group: CoupledId, bytes: Bytes, steps: u32, class: u8);
    /// See [`Fabric::coupled_span`].
    fn coupled_span(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span;
    /// Time of the next arrival (or internal event), [`Time::NEVER`] if none.
    fn next_time(&mut self) -> Time;
    /// Advances to `to` (at most [`Network::next_time`]) and appends what arrives then, in a deterministic order.
    fn advance(&mut self, to: Time, arrivals: &mut Vec<Arrival>);
    /// Whether something is under way that arrives after [`Time::HORIZON`], once nothing is left to come before.
    fn is_beyond(&mut self) -> bool {
        self.next_time() != Time::NEVER
    }
    /// Advances to `next`, which [`Network::next_time`] has just said, and on over as many events as it likes, until
    /// something arrives, not beyond `limit`; returns how far it came. A network with many events between arrivals does
    /// better than one event a call.
    #[inline]
    fn run(&mut self, next: Time, limit: Time, arrivals: &mut Vec<Arrival>) -> Time {
        let _ = limit;
        self.advance(next, arrivals);
        next
    }
    /// Takes what `gone` says of off the network, as of the instant that it has advanced to: it will not arrive, and loads no
    /// link. Returns what that was; `None` from a network that cannot.
    fn abandon(&mut self, gone: &dyn Fn(Arrival) -> bool) -> Option<Vec<Arrival>> {
        let _ = gone;
        None
    }
    /// Paths may change at any time from now on: see [`Network::change_paths`].
    fn expect_changes(&mut self) {}
    /// From the present on paths are as `forwarder` has them, which the network's rerouter knows already.
    fn change_paths(&mut self, forwarder: &Forwarder) {
        let _ = forwarder;
    }
    /// Keeps a digest of the events of `focus`'s span from now on, if the network has events that are told apart.
    fn keep_digest(&mut self, focus: &EventDigest) {
        let _ = focus;
    }
    /// What went wrong inside, in words: the run cannot go on.
    fn fault(&self) -> Option<&str> {
        None
    }
    /// Events handled inside the network so far, for those who watch.
    fn events(&self) -> u64 {
        0
    }
    /// What it saw until `at`, an instant that it has advanced to or one before the present: totals since the beginning.
    fn observe(&mut self, at: Time) -> Observations {
        let _ = at;
        Observations::default()
    }
    /// Appends the records of messages kept since the last call.
    fn take_records(&mut self, records: &mut Vec<FlowRecord>) {
        let _ = records;
    }
    /// Appends the samples of queues since the last call.
    fn take_samples(&mut self, samples: &mut Vec<QueueSample>) {
        let _ = samples;
    }

    /// Appends what watched queue pairs looked like since the last call, by time; nothing where no packets are followed.
    fn take_pair_samples(&mut self, samples: &mut Vec<PairSample>) {
        let _ = samples;
    }

    /// Appends the packets captured since the last call, by time; how many were left out so far because the limit is reached.
    fn take_captured(&mut self, captured: &mut Vec<CapturedPacket>) -> u64 {
        let _ = captured;
        0
    }
}
