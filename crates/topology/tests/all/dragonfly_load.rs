//! How the ways of a dragonfly share the load: Valiant's waypoints, UGAL's choice by queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{break_some, conserved};
use windtunnel_kernel::{BitRate, EndpointId, NicId, RandomStream};
use windtunnel_topology::{
    CableSpec, Detour, DirectSpec, DragonflyPlusSpec, DragonflyRouting, DragonflySpec, Forwarder, Itinerary,
    LinkId, LinkTier, LoadBalancer, Node, Peer, Policy, Reach, Route, SwitchId, Target, Topology,
    TopologySpec, flow_hash,
};

const RATE: BitRate = BitRate::from_gbps(100);

/// p = h = 2, a = 4: 9 groups, 36 routers.
fn dragonfly(routing: DragonflyRouting, groups: u32) -> Topology {
    let mut direct = DirectSpec::new(RATE);
    direct.hosts_per_router = 2;
    let cable = CableSpec::new(RATE);
    let spec =
        DragonflySpec { direct, groups, routers: 4, global_links: 2, local: cable, global: cable, routing };
    Topology::new(&TopologySpec::Dragonfly(spec)).expect("a valid spec")
}

/// Groups of 3 leaves and 3 spines of 2 global cables.
fn plus(routing: DragonflyRouting, groups: u32) -> Topology {
    let (direct, cable) = (DirectSpec::new(RATE), CableSpec::new(RATE));
    let spec = DragonflyPlusSpec {
        direct,
        groups,
        leaves: 3,
        spines: 3,
        global_links: 2,
        local: cable,
        global: cable,
        routing,
    };
    Topology::new(&TopologySpec::DragonflyPlus(spec)).expect("a valid spec")
}

/// Asserts that `found` of `draws` draws of chance `chance` are within five standard deviations.
fn assert_binomial(found: u32, draws: u32, chance: f64, what: &str) {
    let mean = f64::from(draws) * chance;
    let off = f64::from(found) - mean;
    assert!(off * off <= 25.0 * mean * (1.0 - chance), "{what}: {found} of {draws}, expected {mean}");
}

fn hash(target: &Target, entropy: u32) -> u64 {
    flow_hash(1, 0, u64::from(target.nic), entropy)
}

/// Every router (of a dragonfly+ leaf) but both ends is as likely a waypoint.
#[test]
fn waypoints_are_uniform_over_the_third_routers() {
    for (topology, routers) in
        [(dragonfly(DragonflyRouting::Valiant, 9), 36), (plus(DragonflyRouting::Valiant, 5), 15)]
    {
        let (from, target) = (SwitchId(0), topology.target(topology.nics() - 1, 0));
        let draws = 20_000;
        let mut counts: BTreeMap<SwitchId, u32> = BTreeMap::new();
        for entropy in 0..draws {
            let itinerary = topology.enter(from, &target, hash(&target, entropy), |_| 0);
            *counts.entry(itinerary.waypoint().expect("a third router")).or_default() += 1;
        }
        let others = (0..routers).map(SwitchId).filter(|&router| router != from && router != target.switch);
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), others.collect::<Vec<_>>());
        for (waypoint, count) in counts {
            let name = topology.node_name(Node::Switch(waypoint));
            assert_binomial(count, draws, 1.0 / f64::from(routers - 2), &name);
        }
    }
}

/// The worst case of Kim et al., §4.1: all of a group send to the next. Minimal routing puts everything on the one cable
/// between them; Valiant's shares it over all global cables of the group in proportion to the waypoints behind them.
#[test]
fn valiant_spreads_what_minimal_routing_puts_on_one_cable() {
    let load = |routing| {
        let topology = dragonfly(routing, 9);
        let group = |switch: SwitchId| topology.coordinates(switch)[0];
        let (mut leaving, mut route, flows) = (BTreeMap::<u32, u32>::new(), Route::new(), 40_000);
        for flow in 0..flows {
            let (from, to) = (EndpointId(flow % 8), EndpointId(8 + flow / 8 % 8));
            topology.route(LoadBalancer::Ecmp, 1, from, to, NicId(0), flow, &mut route);
            let first = route.links.iter().find(|&&(link, _)| topology.link(link).tier == LinkTier::Global);
            let (link, _) = *first.expect("between groups");
            let (Node::Switch(out), Node::Switch(into)) = topology.link_ends(link) else {
                panic!("a global link joins routers");
            };
            assert_eq!(group(out), 0);
            *leaving.entry(group(into)).or_default() += 1;
        }
        (leaving, flows)
    };
    let (minimal, flows) = load(DragonflyRouting::Minimal);
    assert_eq!(minimal, BTreeMap::from([(1, flows)]));
    let (valiant, flows) = load(DragonflyRouting::Valiant);
    assert_eq!(valiant.keys().copied().collect::<Vec<_>>(), (1..9).collect::<Vec<_>>());
    for (group, count) in valiant {
        // 34 waypoints: 4 in each third group; behind the cable to group 1 the 3 others of either end's group.
        let behind = if group == 1 { 6.0 } else { 4.0 };
        assert_binomial(count, flows, behind / 34.0, &format!("to group {group}"));
    }
}

/// Equal ports share the flows within the binomial bound: 4 cables between two groups, one on every router.
#[test]
fn equal_ports_share_the_flows() {
    let topology = dragonfly(DragonflyRouting::Minimal, 3);
    let mut sets = windtunnel_topology::PortSet::new();
    for to in [8, 15, 16, 23] {
        let target = topology.target(to, 0);
        for at in (0..4).map(SwitchId) {
            topology.equal_cost(at, &target, Itinerary::DIRECT, &mut sets);
            let draws = 4_000;
            let mut counts: BTreeMap<u32, u32> = sets.iter().map(|port| (port, 0)).collect();
            for entropy in 0..draws {
                let (port, _) = topology.next_hop(at, &target, Itinerary::DIRECT, hash(&target, entropy));
                *counts.get_mut(&port).expect("one of the set") += 1;
            }
            for (port, count) in counts {
                assert_binomial(count, draws, 1.0 / f64::from(sets.len()), &format!("port {port}"));
            }
        }
    }
}

/// Hops between two switches, following a flow.
fn hops(topology: &Topology, mut at: SwitchId, target: &Target, hash: u64) -> u64 {
    let mut hops = 0;
    while at != target.switch {
        let (port, _) = topology.next_hop(at, target, Itinerary::DIRECT, hash);
        let Some(Peer::Switch { switch, .. }) = topology.peer(at, port) else { panic!("not there yet") };
        (at, hops) = (switch, hops + 1);
    }
    hops
}

/// UGAL-L sends a packet by the waypoint exactly where queue × hops of the minimal path is the greater.
#[test]
fn ugal_weighs_the_queues_it_is_shown_by_hops() {
    for (ugal, valiant) in [
        (dragonfly(DragonflyRouting::UgalL, 9), dragonfly(DragonflyRouting::Valiant, 9)),
        (plus(DragonflyRouting::UgalL, 5), plus(DragonflyRouting::Valiant, 5)),
    ] {
        let from = SwitchId(0);
        let mut decided = [0; 2];
        for entropy in 0..400 {
            let target = ugal.target(ugal.nics() - 1 - entropy % (ugal.nics() / 2), 0);
            let hash = hash(&target, entropy);
            assert_eq!(ugal.enter(from, &target, hash, |_| 0), Itinerary::DIRECT, "empty: minimal");
            assert_eq!(ugal.enter(from, &target, hash, |_| 9), Itinerary::DIRECT, "a waypoint is no nearer");
            let itinerary = valiant.enter(from, &target, hash, |_| 0);
            let waypoint = itinerary.waypoint().expect("a third router");
            let via = ugal.target(
                (0..ugal.nics()).find(|&nic| ugal.attachment(nic, 0).0 == waypoint).expect("a host"),
                0,
            );
            let (first, _) = ugal.next_hop(from, &target, Itinerary::DIRECT, hash);
            let (around, _) = ugal.next_hop(from, &target, itinerary, hash);
            let minimal = hops(&ugal, from, &target, hash);
            let longer = hops(&ugal, from, &via, hash) + hops(&ugal, waypoint, &target, hash);
            for waiting in [0, 1, 1_000, u64::MAX] {
                for other in [0, 1, minimal, longer, 500, 2_000, u64::MAX] {
                    let queue = |port| match port {
                        port if port == first => waiting,
                        port if port == around => other,
                        _ => panic!("port {port} of {from:?} is on neither path"),
                    };
                    let other = if first == around { waiting } else { other };
                    let better =
                        u128::from(waiting) * u128::from(minimal) <= u128::from(other) * u128::from(longer);
                    let expected = if better { Itinerary::DIRECT } else { itinerary };
                    assert_eq!(ugal.enter(from, &target, hash, queue), expected);
                    decided[usize::from(better)] += 1;
                }
            }
            // At the very balance it stays, one byte above it leaves.
            if first != around {
                let balance = |extra| move |port| if port == first { longer + extra } else { minimal };
                assert_eq!(ugal.enter(from, &target, hash, balance(0)), Itinerary::DIRECT);
                assert_eq!(ugal.enter(from, &target, hash, balance(1)), itinerary);
            }
        }
        assert!(decided.iter().all(|&count| count > 1_000), "{decided:?}");
    }
}

/// Where nobody knows queues, UGAL is minimal.
#[test]
fn routes_without_queues_are_minimal() {
    let (ugal, minimal) = (dragonfly(DragonflyRouting::UgalL, 9), dragonfly(DragonflyRouting::Minimal, 9));
    let (mut a, mut b) = (Route::new(), Route::new());
    for flow in 0..200 {
        let (from, to) = (EndpointId(flow % 72), EndpointId(flow * 7 % 72));
        for balancer in LoadBalancer::ALL {
            ugal.route(balancer, 1, from, to, NicId(0), flow, &mut a);
            minimal.route(balancer, 1, from, to, NicId(0), flow, &mut b);
            assert_eq!(a, b);
        }
    }
}

/// Between the only two routers there is no third.
#[test]
fn two_routers_have_no_waypoint() {
    let (direct, cable) = (DirectSpec::new(RATE), CableSpec::new(RATE));
    for routing in [DragonflyRouting::Valiant, DragonflyRouting::UgalL] {
        let spec = DragonflySpec {
            direct,
            groups: 2,
            routers: 1,
            global_links: 1,
            local: cable,
            global: cable,
            routing,
        };
        let topology = Topology::new(&TopologySpec::Dragonfly(spec)).expect("a valid spec");
        assert_eq!(topology.enter(SwitchId(0), &topology.target(1, 0), 5, |_| 7), Itinerary::DIRECT);
    }
}

/// Routes by waypoints around faults join end to end over living links, also where a waypoint has to be left out.
#[test]
fn waypoint_routes_survive_faults() {
    for topology in [dragonfly(DragonflyRouting::Valiant, 9), plus(DragonflyRouting::Valiant, 5)] {
        let topology = Arc::new(topology);
        let mut draws = RandomStream::new(4, "faults", 0);
        for percent in [2, 20, 50] {
            let policy = Policy { detour: Detour::Allow, weighted: false };
            let mut forwarder = Forwarder::new(Arc::clone(&topology), policy);
            break_some(&mut forwarder, &mut draws, percent);
            forwarder.converge();
            let (mut route, mut arrived) = (Route::new(), 0);
            for flow in 0..400 {
                let mut draw = || EndpointId(draws.below(u64::from(topology.endpoints())) as u32);
                let (from, to) = (draw(), draw());
                for balancer in [LoadBalancer::Ecmp, LoadBalancer::Spray] {
                    let reach = forwarder.route(balancer, 2, from, to, NicId(0), flow, &mut route);
                    if let Err(reach) = reach {
                        assert_eq!(reach, Reach::Unreachable);
                        assert!(percent > 20, "{percent}% leave every pair joined");
                        continue;
                    }
                    arrived += 1;
                    assert!(route.links.iter().all(|&(link, _)| !forwarder.is_dead(link)));
                    conserved(&topology, &route);
                    if balancer == LoadBalancer::Ecmp {
                        let links: Vec<LinkId> = route.links.iter().map(|&(link, _)| link).collect();
                        for pair in links.windows(2) {
                            assert_eq!(topology.link_ends(pair[0]).1, topology.link_ends(pair[1]).0);
                        }
                    }
                }
            }
            assert!(arrived > 100, "{arrived} at {percent}%");
        }
    }
}
