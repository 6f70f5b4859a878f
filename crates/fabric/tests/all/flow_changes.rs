//! Links that change in mid-run under flows: closed forms, and against packets.

use std::sync::Arc;

use crate::networks::{arrivals, message};
use windtunnel_fabric::flow::{FlowNetwork, FlowSettings};
use windtunnel_fabric::packet::transport::Nscc;
use windtunnel_fabric::packet::{
    FabricPart, Impairments, PacketNetwork, PacketSettings, PartChange, PartState,
};
use windtunnel_fabric::reroute::Rerouter;
use windtunnel_fabric::{Arrival, Network};
use windtunnel_kernel::{BitRate, Bytes, EndpointId, NicId, Span, Time};
use windtunnel_topology::{
    ClosSpec, Forwarder, HostSpec, LinkId, LoadBalancer, Names, Policy, Route, Tier, Topology, TopologySpec,
};

const RATE: BitRate = BitRate::from_gbps(400);
const MTU: Bytes = Bytes::new(4_160);
const HEADER: Bytes = Bytes::new(64);

/// Two leaves of 4 hosts and 4 spines, cables of 100 ns.
fn two_leaves() -> Arc<Topology> {
    let near = |tier: Tier| Tier { length_mm: 20_000, ..tier };
    let tiers = vec![near(Tier::new(4, RATE)), near(Tier::new(2, RATE))];
    let spec = ClosSpec::new(8, HostSpec::new(1, 1, RATE), tiers);
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("two tiers"))
}

fn flows(topology: &Arc<Topology>, changes: &[PartChange]) -> FlowNetwork {
    let settings =
        FlowSettings { mtu: MTU, header: HEADER, observe_links: true, ..crate::common::jumbo_flows() };
    let rerouter = Rerouter::shared(Forwarder::new(topology.clone(), Policy::default()));
    let mut network =
        FlowNetwork::new(topology.clone(), settings).expect("settings that work").rerouted(rerouter);
    network.change(&Impairments { changes: changes.to_vec(), ..Impairments::default() });
    network
}

/// When each message arrives, by its number.
fn ends(network: &mut impl Network, messages: &[(u32, u32, u64)]) -> Vec<u64> {
    for (number, &(from, to, bytes)) in (0..).zip(messages) {
        network.depart(Time::ZERO, message(number, from, to, bytes));
    }
    let mut ends = vec![0; messages.len()];
    for (at, arrival) in arrivals(network) {
        let Arrival::Message { message } = arrival else { panic!("no group runs") };
        ends[message as usize] = at.ps();
    }
    ends
}

fn change(us: u64, part: FabricPart, state: PartState, convergence: Span) -> PartChange {
    let at = Time::from_ps(us * 1_000_000);
    PartChange { at, known: at + convergence, part, state }
}

/// Picoseconds of a message of whole packets at full rate, and its latency.
fn alone(topology: &Topology, from: u32, to: u32, bytes: u64) -> (u64, u64) {
    let packets = bytes.div_ceil(MTU.get() - HEADER.get());
    let mut route = Route::new();
    topology.route(LoadBalancer::Ecmp, 0, EndpointId(from), EndpointId(to), NicId(0), 0, &mut route);
    (RATE.serialise(Bytes::new(bytes + packets * HEADER.get())).ps(), route.latency.ps())
}

/// The link that leads into the spine that a message takes, and the one that leads out of it.
fn spine_links(topology: &Topology, from: u32, to: u32) -> [LinkId; 2] {
    let mut route = Route::new();
    topology.route(LoadBalancer::Ecmp, 0, EndpointId(from), EndpointId(to), NicId(0), 0, &mut route);
    [route.links[1].0, route.links[2].0]
}

/// A quarter of the rate for 30 µs costs 3/4 of them.
#[test]
fn a_link_that_slows_down_delays_what_it_carries() {
    let topology = two_leaves();
    let bytes = 1_000 * 4_096;
    let (time, latency) = alone(&topology, 0, 4, bytes);
    let part = FabricPart::Cable(spine_links(&topology, 0, 4)[0]);
    let changes = [
        change(20, part, PartState::Rate(0.25), Span::ZERO),
        change(50, part, PartState::Rate(1.0), Span::ZERO),
    ];
    let mut network = flows(&topology, &changes);
    // Another pair on the leaf is not touched.
    let found = ends(&mut network, &[(0, 4, bytes), (1, 2, bytes)]);
    let (other, near) = alone(&topology, 1, 2, bytes);
    assert!(found[0].abs_diff(time + latency + 22_500_000) <= 2, "{found:?}");
    assert!(found[1].abs_diff(other + near) <= 2, "{found:?}");
    // What links carried is exact across changes.
    let usage = network.link_usage().expect("links are observed").links;
    let carried = usage.iter().find(|usage| usage.link == spine_links(&topology, 0, 4)[0]);
    let wire = (bytes + 1_000 * HEADER.get()) as f64;
    assert!((carried.expect("it is used").bytes / wire - 1.0).abs() < 1e-9);
}

/// Two flows share a NIC's link that halves: both take twice as long from then on.
#[test]
fn shares_are_solved_anew() {
    let topology = two_leaves();
    let bytes = 500 * 4_096;
    let (time, near) = alone(&topology, 1, 3, bytes);
    let last = Names::new(&topology).link("leaf0 -> host3/nic0").expect("a link");
    let changes = [change(40, FabricPart::Cable(last), PartState::Rate(0.5), Span::ZERO)];
    let found = ends(&mut flows(&topology, &changes), &[(1, 3, bytes), (2, 3, bytes)]);
    let expected = 40_000_000 + 2 * (2 * time - 40_000_000) + near;
    assert!(found.iter().all(|end| end.abs_diff(expected) <= 4), "{found:?}, expected {expected}");
}

/// A NIC's cable that is down for 30 µs holds what needs it; a spine's lets flows go another way as soon as that is known.
#[test]
fn links_that_go_down_hold_flows_until_there_is_a_way() {
    let topology = two_leaves();
    let bytes = 1_000 * 4_096;
    let (time, latency) = alone(&topology, 0, 4, bytes);
    let nic = Names::new(&topology).link("leaf1 -> host4/nic0").expect("a link");
    let none = Span::ZERO;
    let changes = [
        change(20, FabricPart::Cable(nic), PartState::Down, none),
        change(50, FabricPart::Cable(nic), PartState::Up, none),
    ];
    let found = ends(&mut flows(&topology, &changes), &[(0, 4, bytes)]);
    assert!(found[0].abs_diff(time + latency + 30_000_000) <= 2, "{found:?}");
    // The leaf itself sees its own cable fail: nothing waits.
    let [up, down] = spine_links(&topology, 0, 4);
    let late = Span::from_us(10);
    let changes = [change(20, FabricPart::Cable(up), PartState::Down, late)];
    let found = ends(&mut flows(&topology, &changes), &[(0, 4, bytes)]);
    assert!(found[0].abs_diff(time + latency) <= 2, "{found:?}");
    // Of a cable beyond the spine it learns 10 µs later.
    let changes = [change(20, FabricPart::Cable(down), PartState::Down, late)];
    let found = ends(&mut flows(&topology, &changes), &[(0, 4, bytes)]);
    assert!(found[0].abs_diff(time + latency + 10_000_000) <= 2, "{found:?}");
}

/// Coupled groups and reductions go on over the links as they are.
#[test]
fn groups_are_solved_and_routed_anew() {
    let topology = two_leaves();
    let bytes = Bytes::new(1_000 * 4_096);
    let cable = FabricPart::Cable(spine_links(&topology, 0, 4)[0]);
    for reduction in [false, true] {
        let run = |changes: &[PartChange]| {
            let mut network = flows(&topology, changes);
            let group = if reduction {
                network.prepare_reduction(&[0, 1, 4, 5].map(EndpointId), 0)
            } else {
                network.prepare_coupled(
                    &[(EndpointId(0), EndpointId(4), 1), (EndpointId(4), EndpointId(0), 1)],
                    0,
                )
            };
            network.start_coupled(Time::ZERO, 0, group, bytes, 1, 0);
            arrivals(&mut network).first().expect("it ends").0.ps()
        };
        let whole = run(&[]);
        let nics = FabricPart::Switch(topology.attachment(0, 0).0);
        let slow = [
            change(20, nics, PartState::Rate(0.5), Span::ZERO),
            change(40, nics, PartState::Rate(1.0), Span::ZERO),
        ];
        assert!(run(&slow).abs_diff(whole + 10_000_000) <= 4);
        let down = [change(20, cable, PartState::Down, Span::ZERO)];
        assert!(run(&down).abs_diff(whole) <= 4, "another spine");
    }
}

/// Messages that collide nowhere, a link that slows down and one that goes down at the sender's leaf: flows and packets agree
/// within 3%. What flows do not see is the time-out of the packets that were on the cable, 20 µs or so, so the message is long.
#[test]
fn flows_and_packets_agree() {
    let topology = two_leaves();
    let bytes = 64 << 20;
    let [up, _] = spine_links(&topology, 0, 4);
    let slow = [
        change(50, FabricPart::Cable(up), PartState::Rate(0.5), Span::ZERO),
        change(200, FabricPart::Cable(up), PartState::Rate(1.0), Span::ZERO),
    ];
    let down = [change(50, FabricPart::Cable(up), PartState::Down, Span::from_us(10))];
    for changes in [&slow[..], &down[..]] {
        let flow = ends(&mut flows(&topology, changes), &[(0, 4, bytes)])[0] as f64;
        let impairments = Impairments { changes: changes.to_vec(), ..Impairments::default() };
        let settings =
            PacketSettings { mtu: MTU, header: HEADER, impairments, ..crate::common::even_packets() };
        let mut packets =
            PacketNetwork::new(topology.clone(), settings, Nscc::default()).expect("settings that work");
        let packet = ends(&mut packets, &[(0, 4, bytes)])[0] as f64;
        assert!((packet / flow - 1.0).abs() < 0.03, "packets {packet}, flows {flow}");
    }
}
