//! Closed forms of the host model: incast, rendezvous, coupled groups, path classes, and its manners with a network.

use std::sync::Arc;

use crate::common::{replay, ring};
use proptest::prelude::*;
use windtunnel_fabric::host::{Costs, Host, HostSpec, LogGops, Receiver};
use windtunnel_fabric::message::Latency;
use windtunnel_fabric::{
    Arrival, CoupledId, Departure, Fabric, Network, Notice, NoticeKind, SendRequest, Ticket,
};
use windtunnel_kernel::{Bytes, EndpointId, NicId, Span, StreamId, Tag, Time};

/// A 400 Gbps NIC: L = 1 us, o = 10 ns, g = 5 ns, G = 0.02 ns/B.
const FAST: LogGops = LogGops {
    latency: Span::from_ns(1_000),
    overhead: Span::from_ns(10),
    gap: Span::from_ns(5),
    gap_per_byte: 20_000,
    overhead_per_byte: 0,
    eager_limit: Bytes::new(65_535),
};

fn hosts(endpoints: u32, costs: &Costs) -> Host<Latency> {
    Host::new(HostSpec { endpoints, streams: 1, nics: 1 }, costs.clone(), Latency::new(costs.clone()))
}

fn message(to: u32, bytes: u64, tag: u64) -> SendRequest {
    let (stream, nic) = (StreamId(0), NicId(0));
    SendRequest {
        stream,
        nic,
        to: EndpointId(to),
        bytes: Bytes::new(bytes),
        tag: Tag(tag),
        class: 0,
        entropy: 0,
        line: 0,
        waits: false,
    }
}

fn drain(fabric: &mut impl Fabric) -> Vec<Notice> {
    let mut notices = Vec::new();
    while fabric.next_time() != Time::NEVER {
        fabric.step(&mut notices);
    }
    notices
}

fn incast(receiver: Receiver) -> Time {
    let mut host = hosts(101, &Costs::uniform(FAST).with_receiver(receiver));
    for sender in 1..=100 {
        host.send(Time::ZERO, EndpointId(sender), Ticket(0), message(0, 2_000_000, 0));
        host.post_receive(
            Time::ZERO,
            EndpointId(0),
            Ticket(0),
            StreamId(0),
            Some(EndpointId(sender)),
            Some(Tag(0)),
        );
    }
    drain(&mut host);
    host.finish_times()[0]
}

#[test]
fn an_incast_takes_its_line_rate() {
    // o + L until the first byte, then 100 times o + 1,999,999 B at 0.02 ns/B.
    assert_eq!(incast(Receiver::Held), Time::from_ps(1_010_000 + 100 * (10_000 + 39_999_980)));
}

#[test]
fn a_free_receiver_beats_its_line_rate() {
    // The last byte of all 100 comes at o + (s-1)·G + L; each then takes g + o.
    assert_eq!(incast(Receiver::Free), Time::from_ps(1_010_000 + 39_999_980 + 100 * 15_000));
}

/// The sender of a rendezvous waits for the match, the sender of an eager message does not; a receive learns when its
/// sender began.
#[test]
fn a_rendezvous_ends_with_its_match() {
    for (bytes, rendezvous) in [(65_535, false), (65_536, true)] {
        let mut host = hosts(2, &Costs::uniform(FAST));
        host.send(Time::from_ps(300), EndpointId(0), Ticket(1), message(1, bytes, 4));
        host.post_receive(
            Time::from_ps(9_000_000),
            EndpointId(1),
            Ticket(2),
            StreamId(0),
            Some(EndpointId(0)),
            Some(Tag(4)),
        );
        let (sent, waited_for) = if rendezvous {
            (Time::from_ps(9_000_000), Time::from_ps(9_000_000))
        } else {
            (Time::from_ps(10_300), Time::from_ps(300))
        };
        let ends: Vec<_> = drain(&mut host)
            .into_iter()
            .filter_map(|notice| match notice.kind {
                NoticeKind::Finished { remote } => Some((notice.ticket.0, notice.at, remote)),
                NoticeKind::Started => None,
            })
            .collect();
        assert_eq!(
            ends,
            [(1, sent, waited_for), (2, Time::from_ps(9_000_000), Time::from_ps(300))],
            "{bytes} bytes"
        );
        assert_eq!(host.finish_times()[0], sent);
    }
}

#[test]
fn each_class_of_path_has_its_parameters() {
    let near = LogGops { latency: Span::from_ps(7), overhead: Span::from_ps(2), ..LogGops::default() };
    let far = LogGops { latency: Span::from_ps(100), overhead: Span::from_ps(30), ..LogGops::default() };
    let same_host = |a: EndpointId, b: EndpointId| usize::from(a.0 / 2 != b.0 / 2);
    let costs = Costs::by_class(vec![near, far], Arc::new(same_host));
    for (to, expected) in [(1, 2 + 7 + 2), (2, 30 + 100 + 30)] {
        let mut host = hosts(4, &costs);
        host.send(Time::ZERO, EndpointId(0), Ticket(0), message(to, 1, 0));
        host.post_receive(Time::ZERO, EndpointId(to), Ticket(0), StreamId(0), None, None);
        drain(&mut host);
        assert_eq!(host.finish_times()[to as usize], Time::from_ps(expected));
    }
}

fn last(notices: &[Notice]) -> Time {
    notices.iter().map(|notice| notice.at).max().expect("something happened")
}

fn parameters() -> impl Strategy<Value = LogGops> {
    let span = || (0..5_000u64).prop_map(Span::from_ps);
    (span(), span(), span(), 0..40_000u64, 0..40_000u64, 0..200u64).prop_map(
        |(latency, overhead, gap, wire, copy, limit)| LogGops {
            latency,
            overhead,
            gap,
            gap_per_byte: wire,
            overhead_per_byte: copy,
            eager_limit: Bytes::new(limit),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_coupled_ring_equals_its_steps(
        costs in parameters(),
        receiver in prop_oneof![Just(Receiver::Held), Just(Receiver::Free), Just(Receiver::Aside)],
        ranks in 2..9u32,
        steps in 1..12u32,
        bytes in 1..200u64,
    ) {
        let costs = Costs::uniform(costs).with_receiver(receiver);
        let by_steps = last(&replay(&ring(ranks, steps, bytes), &mut hosts(ranks, &costs)));
        let mut host = hosts(ranks, &costs);
        let edges: Vec<_> = (0..ranks).map(|rank| (EndpointId(rank), EndpointId((rank + 1) % ranks), 1)).collect();
        let group = host.prepare_coupled(&edges, 0);
        let start = Time::from_ps(500);
        host.start_coupled(start, EndpointId(1), Ticket(9), group, Bytes::new(bytes * u64::from(steps)), steps, 0);
        let end = Time::from_ps(start.ps() + by_steps.ps());
        let expected = Notice {
            endpoint: EndpointId(1),
            ticket: Ticket(9),
            kind: NoticeKind::Finished { remote: start },
            at: end,
        };
        prop_assert_eq!(drain(&mut host), [expected]);
    }

    /// A network that tells of arrivals when they happen gives the same times as one that knows them ahead.
    #[test]
    fn arrivals_known_late_or_early_are_the_same(costs in parameters(), ranks in 2..9u32, bytes in 1..200u64) {
        let goal = ring(ranks, 5, bytes);
        let costs = Costs::uniform(costs);
        let mut early = hosts(ranks, &costs);
        let spec = HostSpec { endpoints: ranks, streams: 1, nics: 1 };
        let mut late = Host::new(spec, costs.clone(), Late::new(&costs));
        prop_assert_eq!(replay(&goal, &mut early).len(), replay(&goal, &mut late).len());
        prop_assert_eq!(early.finish_times(), late.finish_times());
    }
}

/// What a network is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Depart(Time),
    NextTime,
    Advance(Time),
}

/// The latency model without its foresight; remembers what it is asked.
struct Late {
    inner: Latency,
    calls: Vec<Call>,
}

impl Late {
    fn new(costs: &Costs) -> Self {
        Self { inner: Latency::new(costs.clone()), calls: Vec::new() }
    }
}

impl Network for Late {
    fn depart(&mut self, at: Time, departure: Departure) {
        self.calls.push(Call::Depart(at));
        self.inner.depart(at, departure);
    }

    fn prepare_reduction(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        self.inner.prepare_reduction(members, entropy)
    }
    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> CoupledId {
        self.inner.prepare_coupled(edges, entropy)
    }

    fn start_coupled(&mut self, at: Time, run: u32, group: CoupledId, bytes: Bytes, steps: u32, class: u8) {
        self.inner.start_coupled(at, run, group, bytes, steps, class);
    }

    fn coupled_span(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span {
        self.inner.coupled_span(group, bytes, steps)
    }

    fn next_time(&mut self) -> Time {
        self.calls.push(Call::NextTime);
        self.inner.next_time()
    }

    fn advance(&mut self, to: Time, arrivals: &mut Vec<Arrival>) {
        self.calls.push(Call::Advance(to));
        self.inner.advance(to, arrivals);
    }
}

/// All departures of an instant reach the network before it is asked for its next event: one batch for a solver.
#[test]
fn departures_of_an_instant_are_one_batch() {
    let costs = Costs::uniform(LogGops { latency: Span::from_ps(40), ..LogGops::default() });
    let spec = HostSpec { endpoints: 8, streams: 1, nics: 1 };
    let mut host = Host::new(spec, costs.clone(), Late::new(&costs));
    for rank in 0..8 {
        host.send(Time::from_ps(5), EndpointId(rank), Ticket(0), message((rank + 1) % 8, 10, 0));
        host.post_receive(Time::ZERO, EndpointId(rank), Ticket(1), StreamId(0), None, Some(Tag(0)));
    }
    drain(&mut host);
    let departures = [Call::Depart(Time::from_ps(5)); 8];
    let calls = &host.network().calls;
    let first = calls.iter().position(|&call| call == departures[0]).expect("a departure");
    assert_eq!(calls[first..first + 8], departures);
    assert_eq!(calls[first + 8..], [Call::NextTime, Call::Advance(Time::from_ps(45)), Call::NextTime]);
    assert_eq!(host.finish_times(), [Time::from_ps(45); 8]);
}
