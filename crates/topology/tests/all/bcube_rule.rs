//! BCube's minimal rule against searches, whole and broken.

use std::sync::Arc;

use crate::support::{
    Hop, anything, check_dense, check_faults, check_routes, check_rule, check_spread, check_wiring, longest,
    narrowest_cut, targets,
};
use proptest::prelude::*;
use windtunnel_kernel::{BitRate, Span};
use windtunnel_topology::{
    BCubeSpec, CableSpec, DirectSpec, Node, PathClass, SwitchId, Topology, TopologyError, TopologySpec,
};

const RATE: BitRate = BitRate::from_gbps(100);

fn spec(ports: u32, levels: u32) -> BCubeSpec {
    let direct = DirectSpec {
        nic: CableSpec { length_mm: 0, ..CableSpec::new(BitRate::from_gbps(10_000)) },
        router_latency: Span::from_ns(900),
        ..DirectSpec::new(RATE)
    };
    let cable = CableSpec { length_mm: 5_000, ..CableSpec::new(RATE) };
    BCubeSpec { direct, ports, levels, cable, switch_latency: Span::from_ns(300) }
}

fn build(spec: BCubeSpec) -> Topology {
    Topology::new(&TopologySpec::BCube(spec)).unwrap()
}

/// Digits of a server, digit 0 first.
fn digits(server: u32, ports: u32, levels: u32) -> Vec<u32> {
    (0..levels).map(|level| server / ports.pow(level) % ports).collect()
}

/// From a server to a switch of a level in whose digit the ends differ; from a switch to the server that then has it.
/// Which level a switch has is read off the two servers on its first ports: they differ in that digit.
fn corrections(ports: u32, levels: u32) -> impl Fn(&Topology, u32, Hop) -> Option<u32> {
    move |topology, _, hop| {
        let to = digits(hop.to.0, ports, levels);
        let level = |switch: SwitchId| {
            let member = |port| match topology.peer(switch, port) {
                Some(windtunnel_topology::Peer::Switch { switch, .. }) => digits(switch.0, ports, levels),
                other => panic!("a server, found {other:?}"),
            };
            let (a, b) = (member(0), member(1));
            let differing: Vec<usize> = (0..a.len()).filter(|&level| a[level] != b[level]).collect();
            assert_eq!(differing.len(), 1, "servers on a switch differ in one digit");
            differing[0]
        };
        let servers = topology.hosts();
        let legal = if hop.at.0 < servers {
            let level = level(hop.next);
            digits(hop.at.0, ports, levels)[level] != to[level]
        } else {
            let level = level(hop.at);
            digits(hop.next.0, ports, levels)[level] == to[level]
        };
        legal.then_some(0)
    }
}

/// Up to 32 servers.
fn sizes() -> impl Strategy<Value = (u32, u32)> {
    prop::sample::select(vec![(2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (4, 2), (5, 2), (7, 1)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn wiring_rule_and_routes_hold((ports, levels) in sizes(), nics in 1..=2u32) {
        let mut spec = spec(ports, levels);
        spec.direct.host.nics = nics;
        let topology = build(spec);
        check_wiring(&topology);
        check_dense(&topology);
        check_routes(&topology, 20);
        check_rule(&topology, &corrections(ports, levels));
        // The shortest of the legal paths are the shortest of all, from servers on.
        prop_assert_eq!(longest(&topology, &anything), 2 * levels);
        prop_assert_eq!(topology.summary().diameter_links, 2 * levels + 2);
    }

    #[test]
    fn repairs_hold((ports, levels) in sizes(), seed: u64, percent in 1..30u64) {
        check_faults(&Arc::new(build(spec(ports, levels))), &corrections(ports, levels), seed, percent);
    }
}

#[test]
fn no_cut_into_halves_is_narrower() {
    for (ports, levels) in [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1), (5, 1), (7, 1)] {
        let topology = build(spec(ports, levels));
        let housed: Vec<SwitchId> = targets(&topology).into_keys().collect();
        let narrowest = narrowest_cut(&topology, &housed);
        assert_eq!(topology.summary().bisection.bps(), narrowest, "BCube({ports}, {levels})");
    }
}

#[test]
fn published_sizes_hold() {
    // Guo et al., §3.1: BCube_1 of n = 4 has 16 servers and two levels of 4 switches.
    let small = build(spec(4, 2)).summary();
    assert_eq!((small.hosts, small.switches), (16, 16 + 8));
    // §1: a BCube_3 of mini-switches with 8 ports has 4,096 servers; 4 levels of 512 switches.
    let large = build(spec(8, 4)).summary();
    assert_eq!((large.hosts, large.switches), (4_096, 4_096 + 4 * 512));
    assert_eq!(large.tiers.iter().map(|tier| tier.switches).collect::<Vec<_>>(), [4_096, 512, 512, 512, 512]);
    assert_eq!(large.links, 2 * 4_096 + 2 * 4 * 4_096);
    // A diameter of k + 1 servers: as many times two cables, and the NICs' own.
    assert_eq!(large.diameter_links, 8 + 2);
    // One cable of every server of a half.
    assert_eq!(large.bisection.bps(), 2_048 * RATE.bps());
}

#[test]
fn corrections_start_evenly_at_every_level() {
    let topology = build(spec(4, 3));
    let to = topology.target(63, 0);
    check_spread(&topology, SwitchId(0), &to, 3);
    check_spread(&topology, SwitchId(0b11), &to, 2);
}

#[test]
fn places_and_classes_follow_the_digits() {
    let topology = build(spec(4, 3));
    let address = topology.address(27);
    assert_eq!((address.pod, address.rack, address.host), (1, 6, 3));
    let class = |a: u32, b: u32| {
        topology.path_class(windtunnel_kernel::EndpointId(a), windtunnel_kernel::EndpointId(b))
    };
    assert_eq!(
        [class(0, 16), class(0, 17), class(0, 21)],
        [PathClass::SameLeaf, PathClass::SamePod, PathClass::Beyond]
    );
    let name = |switch| topology.node_name(Node::Switch(SwitchId(switch)));
    assert_eq!([name(27), name(64), name(64 + 16 + 5)], ["server27", "level0-0", "level1-5"]);
}

#[test]
fn wrong_specs_are_refused_with_the_nearest_right_one() {
    let error = |spec: BCubeSpec| {
        let error = Topology::new(&TopologySpec::BCube(spec)).unwrap_err();
        (error.path(), error.to_string(), error.hint())
    };
    let least = "expected `ports` to be at least 2, found 1".to_owned();
    assert_eq!(error(spec(1, 3)), ("ports".to_owned(), least, None));
    assert_eq!(error(spec(4, 0)).0, "levels");
    let mut two = spec(4, 2);
    two.direct.hosts_per_router = 2;
    let message = "expected one host for each server, found 2".to_owned();
    let hint = "every host is a server: give it more `gpus` or `nics` instead".to_owned();
    assert_eq!(error(two), ("hosts_per_router".to_owned(), message, Some(hint)));
    let large = Topology::new(&TopologySpec::BCube(spec(8, 40))).unwrap_err();
    // 8^9 servers have 9 x 2 x 8^9 links.
    assert_eq!(large, TopologyError::Oversize { path: "levels".to_owned(), found: u64::MAX, fit: 9 });
    assert_eq!(large.hint().unwrap(), "`levels: 9` is the largest that fits");
    assert!(Topology::new(&TopologySpec::BCube(spec(8, 9))).is_ok());
    assert!(Topology::new(&TopologySpec::BCube(spec(8, 10))).is_err());
}
