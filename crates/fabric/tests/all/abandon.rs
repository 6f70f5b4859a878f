//! Endpoints that stop in mid-run: what is left of the others' flows, and that nothing of the gone comes back.

use std::sync::Arc;

use windtunnel_fabric::flow::{FlowNetwork, FlowSettings};
use windtunnel_fabric::host::{Costs, Host, HostSpec, LogGops};
use windtunnel_fabric::packet::{NetworkOf, PacketSettings, ParallelSettings, TransportChoice, TrimSettings};
use windtunnel_fabric::reroute::{Rerouter, lock};
use windtunnel_fabric::{Fabric, Network, Notice, NoticeKind, SendRequest, Ticket};
use windtunnel_kernel::{BitRate, Bytes, EndpointId, NicId, RandomStream, Span, StreamId, Tag, Time};
use windtunnel_topology::{ClosSpec, Forwarder, Names, Policy, Tier, Topology, TopologySpec};

const RATE: BitRate = BitRate::from_gbps(400);
const SIZE: u64 = 1 << 24;

/// Two leaves of 4 hosts under a spine as fast as one of them, or under several.
fn topology(spines: u32) -> Arc<Topology> {
    let tiers =
        vec![Tier { oversubscription: f64::from(4 / spines), ..Tier::new(4, RATE) }, Tier::new(2, RATE)];
    let spec = ClosSpec::new(8, windtunnel_topology::HostSpec::new(1, 1, RATE), tiers);
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("two tiers"))
}

fn settings() -> FlowSettings {
    FlowSettings { mtu: Bytes::new(9_000), header: Bytes::ZERO, ..crate::common::jumbo_flows() }
}

fn host<N: Network>(network: N) -> Host<N> {
    let spec = HostSpec { endpoints: 8, streams: 1, nics: 1 };
    let costs = LogGops { eager_limit: Bytes::MAX, ..LogGops::default() };
    Host::new(spec, Costs::uniform(costs), network)
}

fn shared() -> Host<FlowNetwork> {
    host(FlowNetwork::new(topology(1), settings()).expect("settings that work"))
}

/// Sends `bytes` from one host to another, which waits for it; the receive's ticket is the send's and 1.
fn transfer<N: Network>(host: &mut Host<N>, at: Time, from: u32, to: u32, bytes: u64, ticket: u64) {
    let (stream, nic, tag) = (StreamId(0), NicId(0), Tag(7));
    let request = SendRequest {
        stream,
        nic,
        to: EndpointId(to),
        bytes: Bytes::new(bytes),
        tag,
        class: 0,
        entropy: 0,
        line: 1,
        waits: false,
    };
    host.send(at, EndpointId(from), Ticket(ticket), request);
    host.post_receive(at, EndpointId(to), Ticket(ticket + 1), stream, Some(EndpointId(from)), Some(tag));
}

/// Handles what happens before `until`; the notices.
fn run<N: Network>(host: &mut Host<N>, until: Time) -> Vec<Notice> {
    let mut notices = Vec::new();
    host.stop_at(until);
    while host.next_time() < until {
        host.step(&mut notices);
    }
    notices
}

/// Handles everything; if `with` others, whose tickets are from 10,000 on, they vanish at `at` and are not heard of afterwards.
fn run_without_others<N: Network>(host: &mut Host<N>, at: Time, with: bool) -> Vec<Notice> {
    let mut notices = run(host, at);
    if with {
        host.abandon(at, &[4, 5, 6, 7].map(EndpointId), &|_| false);
    }
    let before = notices.len();
    notices.extend(run(host, Time::NEVER));
    assert!(notices[before..].iter().all(|notice| notice.ticket.0 < 10_000));
    assert_eq!(host.stuck(), []);
    notices
}

fn end(notices: &[Notice], ticket: u64) -> Option<Time> {
    let ends = |notice: &&Notice| {
        notice.ticket == Ticket(ticket) && matches!(notice.kind, NoticeKind::Finished { .. })
    };
    notices.iter().find(ends).map(|notice| notice.at)
}

/// Picoseconds of `bytes` at the full rate.
fn span(bytes: f64) -> f64 {
    bytes * 8e12 / RATE.bps() as f64
}

#[test]
fn what_is_left_of_a_flow_goes_on_alone() {
    // Hosts 0 and 1 share the one cable up to send to the other leaf.
    let alone = {
        let mut host = shared();
        transfer(&mut host, Time::ZERO, 0, 4, SIZE, 10);
        end(&run(&mut host, Time::NEVER), 11).expect("it arrives")
    };
    let latency = alone.ps() as f64 - span(SIZE as f64);
    for part in [0.25, 0.5, 1.5] {
        let mut host = shared();
        transfer(&mut host, Time::ZERO, 0, 4, SIZE, 10);
        transfer(&mut host, Time::ZERO, 1, 5, SIZE, 20);
        // More of the other's than a queue pair sends at once, and a computation.
        transfer(&mut host, Time::ZERO, 1, 5, SIZE, 30);
        host.calc(Time::ZERO, EndpointId(5), Ticket(40), StreamId(0), Span::from_ps(1 << 50));
        let at = Time::from_ps((span(SIZE as f64) * part) as u64);
        let mut notices = run(&mut host, at);
        host.abandon(at, &[EndpointId(1), EndpointId(5)], &|_| false);
        notices.extend(run(&mut host, Time::NEVER));
        // Half the rate up to there, the whole of it for the rest.
        let expected = at.ps() as f64 + span(SIZE as f64) - at.ps() as f64 / 2.0 + latency;
        let found = end(&notices, 11).expect("it arrives").ps() as f64;
        assert!((found - expected).abs() < 10.0, "{part}: {found}, expected {expected}");
        assert!([21, 31].iter().all(|&gone| end(&notices, gone).is_none()));
        assert_eq!(host.stuck(), []);
    }
}

#[test]
fn endpoints_begin_anew_after_they_have_stopped() {
    let mut host = shared();
    transfer(&mut host, Time::ZERO, 0, 4, SIZE, 10);
    // Host 2 has sent what host 6 does not expect yet; host 3 waits for what never comes.
    let request = SendRequest {
        stream: StreamId(0),
        nic: NicId(0),
        to: EndpointId(6),
        bytes: Bytes::new(8),
        tag: Tag(7),
        class: 0,
        entropy: 0,
        line: 1,
        waits: false,
    };
    host.send(Time::ZERO, EndpointId(2), Ticket(20), request);
    host.post_receive(Time::ZERO, EndpointId(6), Ticket(30), StreamId(0), Some(EndpointId(2)), Some(Tag(9)));
    host.calc(Time::ZERO, EndpointId(2), Ticket(40), StreamId(0), Span::from_ps(1 << 50));
    let at = Time::from_ps(100_000_000);
    run(&mut host, at);
    host.abandon(at, &[EndpointId(2), EndpointId(6)], &|_| false);
    // The same tag again: the message of before is not taken for this one, and streams are free.
    transfer(&mut host, at, 2, 6, 1 << 10, 50);
    let notices = run(&mut host, Time::NEVER);
    let end = end(&notices, 51).expect("it arrives");
    assert!(end > at && end.ps() < at.ps() + 10_000_000, "{end}");
    assert!(notices.iter().all(|notice| notice.ticket.0 < 20 || notice.ticket.0 >= 50));
    assert_eq!(host.stuck(), []);
}

#[test]
fn others_hear_the_same_as_without_them() {
    for seed in 0..40 {
        // Hosts of the two leaves never meet.
        let programme = |with: bool| {
            let mut host = shared();
            let mut stream = RandomStream::new(seed, "abandon", 0);
            let mut up_to = |most: u64| stream.below(most + 1);
            for ticket in 0..30 {
                let (from, to, bytes) = (up_to(3) as u32, up_to(2) as u32, 1 + up_to(SIZE));
                let to = if to >= from { to + 1 } else { to };
                transfer(&mut host, Time::ZERO, from, to, bytes, 100 + 2 * ticket);
                let at = EndpointId(from);
                host.calc(Time::ZERO, at, Ticket(1_000 + ticket), StreamId(0), Span::from_ps(up_to(1 << 28)));
                if with {
                    transfer(&mut host, Time::ZERO, 4 + from, 4 + to, bytes / 2 + 1, 10_000 + 2 * ticket);
                }
            }
            let at = Time::from_ps(1 + up_to(1 << 30));
            let notices = run_without_others(&mut host, at, with);
            let mine = notices.into_iter().filter(|notice| notice.ticket.0 < 10_000);
            mine.map(|notice| (notice.ticket, notice.at, notice.kind)).collect::<Vec<_>>()
        };
        let (with, without) = (programme(true), programme(false));
        assert_eq!(with.len(), without.len(), "seed {seed}");
        // What a flow still carries is rounded once more as it is put back.
        let near = |(a, b): (&(Ticket, Time, NoticeKind), &(Ticket, Time, NoticeKind))| {
            a.0 == b.0 && a.1.ps().abs_diff(b.1.ps()) <= 2
        };
        assert!(with.iter().zip(&without).all(near), "seed {seed}");
    }
}

#[test]
fn an_exchange_goes_on_by_other_paths() {
    // Four spines; hosts 0 to 3 exchange with each other and the other leaf until two spines go out, then by the other two.
    let topology = topology(4);
    let rerouter = Rerouter::shared(Forwarder::new(topology.clone(), Policy::default()));
    let network = FlowNetwork::new(topology.clone(), settings()).expect("settings that work");
    let mut network = network.rerouted(rerouter.clone());
    network.expect_changes();
    let mut host = host(network);
    let members: Vec<EndpointId> = (0..8).map(EndpointId).collect();
    let group = host.prepare_exchange(&members, 3);
    let alone = host.coupled_span(group, Bytes::new(SIZE), 1);
    host.start_coupled(Time::ZERO, EndpointId(0), Ticket(1), group, Bytes::new(SIZE), 1, 0);
    let at = Time::from_ps(alone.ps() / 2);
    let mut notices = run(&mut host, at);
    host.advance_to(at);
    let mut broken = Forwarder::new(topology.clone(), Policy::default());
    for spine in ["spine0", "spine1"] {
        broken.fail_switch(Names::new(&topology).switch(spine).expect("there is one"));
    }
    broken.converge();
    *lock(&rerouter).forwarder_mut() = broken;
    host.network_mut().paths_changed();
    notices.extend(run(&mut host, Time::NEVER));
    let end = end(&notices, 1).expect("it ends");
    // 16 flows leave each leaf, by four cables up to then and by two from then on.
    let least = at.ps() as f64 + (span(16.0 * SIZE as f64) - 4.0 * at.ps() as f64) / 2.0;
    assert!(end.ps() as f64 >= least, "{end}, at least {least}");
    assert!(end > Time::ZERO + alone, "{end}, alone {alone}");
    assert_eq!(host.network().delivered().bytes, 8 * 7 * SIZE);
    assert_eq!(host.network().exchange_flows(), 8 * 7);
}

/// Packets of the transport of this name, in as many processes.
fn packets(name: &str, processes: usize) -> Host<Box<dyn Network>> {
    let settings = PacketSettings {
        nic_latency: Span::from_ns(800),
        telemetry: name == "hpcc",
        trimming: ["ndp", "uec"].contains(&name).then(TrimSettings::default),
        parallel: ParallelSettings { processes: Some(processes), ..ParallelSettings::default() },
        ..crate::common::even_packets()
    };
    let transport = TransportChoice::by_name(name).expect("a transport");
    host(transport.network(topology(1), settings, None).expect("settings that work"))
}

#[test]
fn packets_of_others_hear_the_same_as_without_them() {
    for (number, name) in TransportChoice::NAMES.into_iter().enumerate() {
        for seed in 0..6 {
            let processes = 1 + seed as usize % 2;
            // Hosts of the two leaves never meet.
            let programme = |with: bool| {
                let mut host = packets(name, processes);
                let mut stream = RandomStream::new(seed, "abandon-packets", number as u64);
                let mut up_to = |most: u64| stream.below(most + 1);
                let mut others = Vec::new();
                for ticket in 0..12 {
                    let (from, to, bytes) = (up_to(3) as u32, up_to(2) as u32, 1 + up_to(1 << 20));
                    let to = if to >= from { to + 1 } else { to };
                    transfer(&mut host, Time::ZERO, from, to, bytes, 100 + 2 * ticket);
                    others.push((4 + from, 4 + to, bytes));
                }
                for (ticket, &(from, to, bytes)) in others.iter().enumerate().filter(|_| with) {
                    transfer(&mut host, Time::ZERO, from, to, bytes, 10_000 + 2 * ticket as u64);
                }
                let at = Time::from_ps(1 + up_to(1 << 27));
                let notices = run_without_others(&mut host, at, with);
                let mine = |notice: &Notice| notice.ticket.0 < 10_000;
                if with {
                    // The same ways again, on queue pairs of their own.
                    let again = host.now();
                    for (ticket, &(from, to, bytes)) in others.iter().enumerate() {
                        transfer(&mut host, again, from, to, bytes, 20_000 + 2 * ticket as u64);
                    }
                    let later = run(&mut host, Time::NEVER);
                    for ticket in 0..others.len() as u64 {
                        assert!(end(&later, 20_001 + 2 * ticket).is_some(), "{name}, seed {seed}");
                    }
                }
                let ends = notices.into_iter().filter(mine);
                ends.map(|notice| (notice.ticket, notice.at, notice.kind)).collect::<Vec<_>>()
            };
            let (mut with, mut without) = (programme(true), programme(false));
            with.sort_unstable_by_key(|(ticket, at, _)| (*at, *ticket));
            without.sort_unstable_by_key(|(ticket, at, _)| (*at, *ticket));
            assert_eq!(with, without, "{name}, seed {seed}");
        }
    }
}

#[test]
fn packets_that_stay_get_the_whole_link() {
    for name in ["none", "dctcp", "eqds", "uec"] {
        let mut host = packets(name, 1);
        let bytes = 1 << 22;
        transfer(&mut host, Time::ZERO, 0, 4, bytes, 10);
        let alone = end(&run(&mut host, Time::NEVER), 11).expect("it arrives");
        let mut host = packets(name, 1);
        transfer(&mut host, Time::ZERO, 0, 4, bytes, 10);
        transfer(&mut host, Time::ZERO, 1, 5, bytes, 20);
        let at = Time::from_ps(span(bytes as f64) as u64 / 2);
        let mut notices = run(&mut host, at);
        host.abandon(at, &[EndpointId(1), EndpointId(5)], &|_| false);
        notices.extend(run(&mut host, Time::NEVER));
        // Half the rate up to there, the whole of it for the rest: a quarter longer, but for how two windows share at first and that
        // they have to grow again. Without a window all that the other has sent at its NIC's rate, half of its
        // message, is in the queue before.
        let found = end(&notices, 11).expect("it arrives").ps() as f64 / alone.ps() as f64;
        let expected = match name {
            "none" => 1.45..1.5,
            _ => 1.2..1.45,
        };
        assert!(expected.contains(&found), "{name}: {found}");
        assert!(end(&notices, 21).is_none());
    }
}
