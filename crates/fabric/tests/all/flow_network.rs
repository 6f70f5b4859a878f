//! The flow model over a topology, against closed forms.

use std::sync::Arc;

use crate::networks::{self, arrivals};
use windtunnel_fabric::flow::{FlowNetwork, FlowNetworkError, FlowSettings};
use windtunnel_fabric::{Arrival, Departure, FlowRecord, LinkBytes, Network};
use windtunnel_kernel::{BitRate, Bytes, EndpointId, NicId, RandomStream, Span, Time};
use windtunnel_topology::{
    ClosSpec, HostSpec, LoadBalancer, PathClass, Route, ScaleUpSpec, Tier, Topology, TopologySpec,
};

const RATE: BitRate = BitRate::from_gbps(400);

/// 16 hosts of 4 GPUs and NICs under two tiers; 800 Gbit/s and 250 ns inside a host.
fn topology() -> Arc<Topology> {
    let scale_up = ScaleUpSpec { size: None, rate: BitRate::from_gbps(800), latency: Span::from_ns(250) };
    let host = HostSpec { gpus: 4, nics: 4, rails: false, scale_up };
    let mut tiers = vec![Tier::new(16, RATE), Tier::new(32, RATE)];
    for tier in &mut tiers {
        tier.length_mm = 30_000;
        tier.switch_latency = Span::from_ns(200);
    }
    let spec = TopologySpec::Clos(ClosSpec::new(16, host, tiers));
    Arc::new(Topology::new(&spec).expect("a valid topology"))
}

fn settings() -> FlowSettings {
    FlowSettings {
        balancer: LoadBalancer::Ideal,
        observe_links: true,
        records: true,
        ..crate::common::jumbo_flows()
    }
}

fn network(settings: FlowSettings) -> FlowNetwork {
    FlowNetwork::new(topology(), settings).expect("valid settings")
}

fn message(number: u32, from: u32, to: u32, bytes: u64) -> Departure {
    Departure { class: 3, entropy: number, ..networks::message(number, from, to, bytes) }
}

fn latency(from: u32, to: u32) -> (Span, PathClass) {
    let mut route = Route::new();
    topology().route(LoadBalancer::Ideal, 0, EndpointId(from), EndpointId(to), NicId(0), 0, &mut route);
    (route.latency, route.class)
}

/// Payload and one header per started 8934 bytes of it.
fn wire(bytes: u64) -> Bytes {
    Bytes::new(bytes + bytes.div_ceil(8_934) * 66)
}

#[test]
fn an_unloaded_message_takes_serialisation_and_latency_to_the_picosecond() {
    for (from, to) in [(0, 1), (0, 5), (0, 63), (17, 3)] {
        for bytes in [1, 64, 8_934, 8_935, 1 << 20, 123_456_789, 10_000_000_019] {
            let mut network = network(settings());
            let at = Time::from_ps(12_345);
            network.depart(at, message(7, from, to, bytes));
            let (latency, class) = latency(from, to);
            let expected = if class == PathClass::ScaleUp {
                BitRate::from_gbps(800).serialise(Bytes::new(bytes))
            } else {
                RATE.serialise(wire(bytes))
            };
            let found = arrivals(&mut network);
            assert_eq!(
                found,
                [(at + expected + latency, Arrival::Message { message: 7 })],
                "{from} {to} {bytes}"
            );
            // Those of messages inside a domain are not kept.
            let kept = Some(expected + latency).filter(|_| class != PathClass::ScaleUp);
            assert_eq!(network.delivered().times.max(), kept);
        }
    }
}

#[test]
fn nics_add_their_latency_once_a_message_and_once_a_step_outside_the_host() {
    let nic_latency = Span::from_ns(700);
    let ends = |nic_latency| {
        let mut network = network(FlowSettings { nic_latency, ..settings() });
        let edge = |from, to| (EndpointId(from), EndpointId(to), 1);
        let group = network.prepare_coupled(&[edge(0, 8), edge(8, 0)], 0);
        network.depart(Time::ZERO, message(1, 0, 1, 1_000));
        network.depart(Time::ZERO, message(2, 4, 40, 1_000));
        network.start_coupled(Time::from_ps(1 << 40), 3, group, Bytes::new(1_000), 6, 0);
        let span = network.coupled_span(group, Bytes::new(1_000), 6);
        let arrived = arrivals(&mut network);
        assert_eq!(
            arrived[2],
            (Time::from_ps(1 << 40) + span, Arrival::Coupled { run: 3 }),
            "alone: its span"
        );
        [arrived[0].0, arrived[1].0, arrived[2].0]
    };
    let (without, with) = (ends(Span::ZERO), ends(nic_latency));
    assert_eq!(with, [without[0], without[1] + nic_latency, without[2] + nic_latency * 6]);
}

#[test]
fn a_message_to_oneself_arrives_at_once() {
    let mut network = network(settings());
    network.depart(Time::ZERO, message(1, 4, 4, 1 << 30));
    network.depart(Time::from_ps(50), message(2, 4, 4, 1));
    let arrived = |at, message| (Time::from_ps(at), Arrival::Message { message });
    assert_eq!(arrivals(&mut network), [arrived(0, 1), arrived(50, 2)]);
}

#[test]
fn an_incast_shares_the_receiver_s_link_and_arrives_in_id_order() {
    let mut network = network(settings());
    for id in (0..10).rev() {
        network.depart(Time::from_ps(1_000), message(id, 8 + 4 * id, 0, 893_400));
    }
    // All leave the receiver's link at once; then each takes its own latency.
    let left = Time::from_ps(1_000) + RATE.serialise(Bytes::new(wire(893_400).get() * 10));
    let mut expected: Vec<(Time, u32)> = (0..10).map(|id| (left + latency(8 + 4 * id, 0).0, id)).collect();
    expected.sort_unstable();
    let expected: Vec<_> =
        expected.into_iter().map(|(at, message)| (at, Arrival::Message { message })).collect();
    assert_eq!(arrivals(&mut network), expected);
    assert!(network.solves() <= 2, "one start and one end: {} solves", network.solves());
}

#[test]
fn a_coupled_ring_takes_what_its_formula_says() {
    // 16 ranks, one per host: 2 (n - 1) steps, each edge carries 2 (n - 1)/n of the buffer.
    let (n, buffer) = (16u64, 1u64 << 30);
    let mut network = network(settings());
    let edges: Vec<_> =
        (0..16).map(|rank| (EndpointId(rank * 4), EndpointId((rank + 1) % 16 * 4), 1)).collect();
    let group = network.prepare_coupled(&edges, 0);
    let (bytes, steps) = (2 * (n - 1) * buffer / n, 2 * (n - 1) as u32);
    network.start_coupled(Time::from_ps(500), 9, group, Bytes::new(bytes), steps, 0);
    // Edges of one rate: a block passes each in turn, so a step takes their mean latency.
    let round: u64 = edges.iter().map(|&(from, to, _)| latency(from.0, to.0).0.ps()).sum();
    let expected = Time::from_ps(500)
        + RATE.serialise(wire(bytes))
        + Span::from_ps(round.div_ceil(n)) * u64::from(steps);
    assert_eq!(arrivals(&mut network), [(expected, Arrival::Coupled { run: 9 })]);
    assert_eq!(network.delivered().bytes, bytes * n);
    assert_eq!(network.coupled_runs(), 1);

    // Step by step on the same network: within 1%.
    let mut network = self::network(settings());
    let mut at = Time::from_ps(500);
    for _ in 0..steps {
        for rank in 0..16 {
            network.depart(at, message(rank, rank * 4, (rank + 1) % 16 * 4, buffer / n));
        }
        at = arrivals(&mut network).last().unwrap().0;
    }
    let error = at.since(Time::from_ps(500)).seconds() / expected.since(Time::from_ps(500)).seconds() - 1.0;
    assert!(error.abs() < 0.01, "{error}");
}

/// Edges of a ring that share a link, and so differ in latency: 2 leaves of 4 hosts with one cable to a spine, the order of the ring such
/// that 2 or 4 of its 8 edges go over the spine. Coupled it takes what its steps take one by one, each block as soon as the one before has
/// come: what waits for the shared cable pays no latency beside.
#[test]
fn a_coupled_ring_over_shared_links_takes_what_its_steps_take() {
    let tier = |ports, oversubscription, length_mm| Tier {
        oversubscription,
        length_mm,
        switch_latency: Span::from_ns(200),
        ..Tier::new(ports, RATE)
    };
    for length_mm in [30_000, 60_000] {
        let spec =
            ClosSpec::new(8, HostSpec::new(1, 1, RATE), vec![tier(4, 4.0, 2_000), tier(2, 1.0, length_mm)]);
        let topology = Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("two leaves"));
        let settings = FlowSettings { balancer: LoadBalancer::Ecmp, ..settings() };
        let network = || FlowNetwork::new(topology.clone(), settings).expect("valid settings");
        for order in [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 4, 5, 2, 3, 6, 7]] {
            for block in [100_000, 1_000_000] {
                let steps = 14_u32;
                let mut coupled = network();
                let edges: Vec<_> =
                    (0..8).map(|at| (EndpointId(order[at]), EndpointId(order[(at + 1) % 8]), 1)).collect();
                let group = coupled.prepare_coupled(&edges, 0);
                coupled.start_coupled(Time::ZERO, 1, group, Bytes::new(block * u64::from(steps)), steps, 0);
                let whole = arrivals(&mut coupled).last().expect("it ends").0;

                // Message `step · 8 + edge` of each edge goes once the one before has reached its sender, after its own.
                let mut network = network();
                let send = |network: &mut FlowNetwork, at, step: u32, edge: usize| {
                    let (from, to, _) = edges[edge];
                    let number = step * 8 + edge as u32;
                    let line = edge as u16 + 1;
                    network
                        .depart(at, Departure { entropy: 0, line, ..message(number, from.0, to.0, block) });
                };
                for edge in 0..8 {
                    send(&mut network, Time::ZERO, 0, edge);
                }
                let (mut last, mut found) = (Time::ZERO, Vec::new());
                while network.next_time() != Time::NEVER {
                    let next = network.next_time();
                    last = network.run(next, Time::NEVER, &mut found);
                    for arrival in found.drain(..) {
                        let Arrival::Message { message } = arrival else { unreachable!("messages alone") };
                        let (step, edge) = (message / 8, message as usize % 8);
                        if step + 1 < steps {
                            send(&mut network, last, step + 1, (edge + 1) % 8);
                        }
                    }
                }
                let error = whole.ps() as f64 / last.ps() as f64 - 1.0;
                assert!(
                    error.abs() < 0.02,
                    "{length_mm} mm, {order:?}, {block} B: {whole:?}, by steps {last:?}"
                );
            }
        }
    }
}

#[test]
fn a_weighted_coupled_group_is_held_back_by_its_heaviest_edge() {
    let mut network = network(settings());
    let edge = |from, to, weight| (EndpointId(from), EndpointId(to), weight);
    // Inside a host: GPU 0 sends 3 parts to 1 and 1 part to 2: its port carries 4 units.
    let group = network.prepare_coupled(&[edge(0, 1, 3), edge(0, 2, 1)], 0);
    network.start_coupled(Time::ZERO, 1, group, Bytes::new(1_000_000), 1, 0);
    let expected = Time::ZERO + BitRate::from_gbps(800).serialise(Bytes::new(4_000_000)) + Span::from_ns(250);
    assert_eq!(arrivals(&mut network), [(expected, Arrival::Coupled { run: 1 })]);
    // Beside it a message on the same port gets as much as the heavier edge: 3/7 of the port.
    network.start_coupled(expected, 2, group, Bytes::new(3_000_000), 1, 0);
    network.depart(expected, message(5, 0, 1, 3_000_000));
    let (at, first) = arrivals(&mut network)[0];
    assert_eq!(first, Arrival::Message { message: 5 });
    assert_eq!(at, expected + BitRate::from_gbps(800).serialise(Bytes::new(7_000_000)) + Span::from_ns(250));
}

#[test]
fn links_carry_the_wire_bytes_and_records_tell_of_every_flow() {
    let mut network = network(FlowSettings { balancer: LoadBalancer::Spray, ..settings() });
    let mut random = RandomStream::new(1, "traffic", 0);
    let mut total = 0u64;
    for id in 0..500 {
        let (from, step) = (random.below(64) as u32, random.below(15) as u32 + 1);
        let bytes = 1 + random.below(1 << 22);
        total += bytes;
        network
            .depart(Time::from_ps(random.below(1 << 30)), message(id, from, (from + 4 * step) % 64, bytes));
    }
    let arrived = arrivals(&mut network);
    assert!(arrived.is_sorted_by_key(|&(at, _)| at));
    assert_eq!((arrived.len(), network.delivered().messages, network.delivered().bytes), (500, 500, total));
    let mut records: Vec<FlowRecord> = Vec::new();
    network.take_records(&mut records);
    assert_eq!((records.len(), network.account_mut().records_waiting()), (500, 0));
    let topology = topology();
    let (mut up, mut down) = (0.0, 0.0);
    let LinkBytes { width, links: usage } = network.link_usage().expect("links are observed");
    for link in &usage {
        let carried: f64 = link.bins.iter().sum();
        assert!((carried - link.bytes).abs() < 1e-6 * link.bytes && link.bins.len() <= 128);
        let most = topology.link(link.link).rate.bytes_per_second() * width.seconds();
        assert!(link.bins.iter().all(|&bytes| bytes <= most * (1.0 + 1e-9)), "a bin above the link's rate");
        match topology.link(link.link).tier.name().as_ref() {
            "nic-up" => up += link.bytes,
            "nic-down" => down += link.bytes,
            _ => (),
        }
    }
    let sent: u64 = records.iter().map(|record| wire(record.bytes.get()).get()).sum();
    for carried in [up, down] {
        assert!((carried / sent as f64 - 1.0).abs() < 1e-9, "{carried} of {sent}");
    }
    for record in records {
        let alone =
            RATE.serialise(wire(record.bytes.get())) + latency(record.source.0, record.destination.0).0;
        assert!(record.finish.since(record.start) >= alone && record.class == 3 && record.hops >= 2);
    }
}

#[test]
fn packets_without_room_for_payload_are_refused() {
    let error = FlowNetwork::new(topology(), FlowSettings { mtu: Bytes::new(66), ..settings() }).unwrap_err();
    assert_eq!(error, FlowNetworkError::Mtu { mtu: Bytes::new(66), header: Bytes::new(66) });
    assert_eq!(error.to_string(), "`mtu` is 66 B, expected more than `header`: 66 B");
}

/// Messages of one queue pair follow each other at full rate; of two they share.
#[test]
fn a_queue_pair_sends_one_message_after_the_other() {
    let settings = FlowSettings { header: Bytes::ZERO, ..crate::common::jumbo_flows() };
    let ends = |ordered: bool, pairs: u32| {
        let mut network = network(settings);
        for id in 0..4 {
            let line = u16::from(ordered);
            let departure = Departure { entropy: id % pairs, line, ..message(id, 0, 9, 1_000_000) };
            network.depart(Time::ZERO, departure);
        }
        arrivals(&mut network).into_iter().map(|(at, _)| at).collect::<Vec<_>>()
    };
    let (alone, together) = (ends(true, 1), ends(false, 1));
    let step = alone[1] - alone[0];
    assert!(alone.windows(2).all(|pair| pair[1] - pair[0] == step), "{alone:?}");
    // The first is through after a quarter of the time that all need together, and the last ends with them.
    assert_eq!(together, vec![together[0]; 4]);
    assert_eq!(alone[3], together[0]);
    assert_eq!(together[0] - alone[0], step * 3);
    // Two queue pairs halve the rate of each: two and two end together.
    let two = ends(true, 2);
    assert_eq!((two[0], two[2], two[3]), (two[1], alone[3], alone[3]));
}
