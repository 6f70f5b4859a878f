//! The rules of dragonfly and dragonfly+ against searches, whole and broken; and what is known of their sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::{Hop, Legality, check_faults, check_routes, check_rule, check_wiring, search, targets};
use proptest::prelude::*;
use windtunnel_kernel::{BitRate, Span};
use windtunnel_topology::{
    CableSpec, DirectSpec, DragonflyPlusSpec, DragonflyRouting, DragonflySpec, Itinerary, Peer, PortSet,
    SwitchId, Topology, TopologyError, TopologySpec, choose_hashed, flow_hash,
};

const RATE: BitRate = BitRate::from_gbps(100);

fn dragonfly(groups: u32, routers: u32, global_links: u32) -> DragonflySpec {
    let mut local = CableSpec::new(RATE);
    let mut global = CableSpec::new(RATE);
    (local.length_mm, global.length_mm) = (5_000, 50_000);
    let mut direct = DirectSpec::new(RATE);
    direct.router_latency = Span::from_ns(100);
    let routing = DragonflyRouting::Minimal;
    DragonflySpec { direct, groups, routers, global_links, local, global, routing }
}

fn plus(groups: u32, leaves: u32, spines: u32, global_links: u32) -> DragonflyPlusSpec {
    let DragonflySpec { direct, local, global, routing, .. } = dragonfly(1, 1, 0);
    DragonflyPlusSpec { direct, groups, leaves, spines, global_links, local, global, routing }
}

trait AsTopology {
    fn topology(self) -> TopologySpec;
}

impl AsTopology for DragonflySpec {
    fn topology(self) -> TopologySpec {
        TopologySpec::Dragonfly(self)
    }
}

impl AsTopology for DragonflyPlusSpec {
    fn topology(self) -> TopologySpec {
        TopologySpec::DragonflyPlus(self)
    }
}

fn build(spec: impl AsTopology) -> Topology {
    Topology::new(&spec.topology()).expect("a valid spec")
}

fn group(topology: &Topology, switch: SwitchId) -> u32 {
    topology.coordinates(switch)[0]
}

/// At most one global link: state 1 once it is behind.
fn one_global(topology: &Topology, state: u32, hop: Hop) -> Option<u32> {
    if group(topology, hop.at) == group(topology, hop.next) { Some(state) } else { (state == 0).then_some(1) }
}

/// Up, at most one global link, down. A packet that begins on a spine without a cable to the destination's group first
/// goes down to any leaf.
fn up_global_down(topology: &Topology, state: u32, hop: Hop) -> Option<u32> {
    const START: u32 = 0;
    const CLIMBED: u32 = 1;
    const CROSSED: u32 = 2;
    const DESCENDED: u32 = 3;
    let goal = group(topology, hop.to);
    let cabled = || {
        (0..topology.ports(hop.at)).any(|port| {
            matches!(topology.peer(hop.at, port), Some(Peer::Switch { switch, .. })
                if group(topology, switch) == goal)
        })
    };
    if topology.tier(hop.next) > topology.tier(hop.at) {
        (state == START).then_some(CLIMBED)
    } else if topology.tier(hop.next) == topology.tier(hop.at) {
        matches!(state, START | CLIMBED).then_some(CROSSED)
    } else if state == START && !cabled() {
        Some(START)
    } else {
        (state != DESCENDED).then_some(DESCENDED)
    }
}

/// Sizes of a dragonfly of one kind or the other, with a share of the groups that fit and any routing.
fn sizes(holders: u32, ports: u32) -> impl Strategy<Value = (u32, u32, u32)> {
    (1..=holders, 0..=ports, 0.0..=1.0f64).prop_map(move |(holders, ports, share)| {
        let fit = f64::from((holders * ports).min(8));
        (1 + (share * fit).round() as u32, holders, ports)
    })
}

fn routing() -> impl Strategy<Value = DragonflyRouting> {
    prop::sample::select(vec![DragonflyRouting::Minimal, DragonflyRouting::Valiant, DragonflyRouting::UgalL])
}

fn dragonflies() -> impl Strategy<Value = TopologySpec> {
    (sizes(5, 6), routing(), 1..=2u32, 1..=2u32).prop_map(
        |((groups, routers, ports), routing, hosts, nics)| {
            let mut spec = dragonfly(groups, routers, ports);
            (spec.routing, spec.direct.hosts_per_router) = (routing, hosts);
            (spec.direct.host.gpus, spec.direct.host.nics) = (nics, nics);
            spec.topology()
        },
    )
}

fn pluses() -> impl Strategy<Value = TopologySpec> {
    (sizes(4, 6), routing(), 1..=4u32, 1..=2u32).prop_map(
        |((groups, spines, ports), routing, leaves, hosts)| {
            let mut spec = plus(groups, leaves, spines, ports);
            (spec.routing, spec.direct.hosts_per_router) = (routing, hosts);
            spec.topology()
        },
    )
}

/// All there is to say without faults.
fn whole(topology: &Topology, legal: Legality) {
    check_wiring(topology);
    numbers_have_no_gap(topology);
    check_rule(topology, legal);
    choices_are_those_of_the_set(topology);
    check_routes(topology, 10);
    let hops = |(from, to): (SwitchId, SwitchId)| {
        search(topology, legal, &BTreeSet::new(), from, to).expect("a legal path").1
    };
    let ends: Vec<SwitchId> = targets(topology).into_keys().collect();
    let pairs = ends.iter().flat_map(|&from| ends.iter().map(move |&to| (from, to)));
    let longest = pairs.map(hops).max().unwrap_or(0);
    // The GPUs of a host are joined inside it.
    let expected = if topology.hosts() == 1 { 0 } else { longest + 2 };
    assert_eq!(topology.summary().diameter_links, expected);
}

/// There are as many links as cabled ports and NICs.
fn numbers_have_no_gap(topology: &Topology) {
    let ports = (0..topology.switches()).map(SwitchId);
    let cabled = ports
        .flat_map(|switch| (0..topology.ports(switch)).filter_map(move |port| topology.peer(switch, port)))
        .count();
    let inside = if topology.scale_up_size() > 1 { 2 * topology.endpoints() as usize } else { 0 };
    assert_eq!(topology.link_count(), inside + cabled + topology.nics() as usize);
}

/// The short cut to a choice is the choice among the set.
fn choices_are_those_of_the_set(topology: &Topology) {
    let mut ports = PortSet::new();
    for (&to, target) in &targets(topology) {
        for at in (0..topology.switches()).map(SwitchId).filter(|&at| at != to) {
            topology.equal_cost(at, target, Itinerary::DIRECT, &mut ports);
            for entropy in 0..4 {
                let hash = flow_hash(9, u64::from(at.0), u64::from(target.nic), entropy);
                let expected = ports.nth(choose_hashed(hash, u64::from(at.0), ports.len()));
                assert_eq!(topology.next_hop(at, target, Itinerary::DIRECT, hash).0, expected);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_dragonfly_holds(spec in dragonflies()) {
        whole(&Topology::new(&spec).expect("a valid spec"), &one_global);
    }

    #[test]
    fn a_dragonfly_plus_holds(spec in pluses()) {
        whole(&Topology::new(&spec).expect("a valid spec"), &up_global_down);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_dragonfly_is_repaired(spec in dragonflies(), seed: u64, percent in 1..40u64) {
        check_faults(&Arc::new(Topology::new(&spec).expect("a valid spec")), &one_global, seed, percent);
    }

    #[test]
    fn a_dragonfly_plus_is_repaired(spec in pluses(), seed: u64, percent in 1..40u64) {
        check_faults(&Arc::new(Topology::new(&spec).expect("a valid spec")), &up_global_down, seed, percent);
    }
}

/// Kim et al., ISCA'08, figure 5: p = h = 2, a = 4 gives 72 nodes in 9 groups; §3.1: routers of 64 ports (p = h = 16,
/// a = 32) give more than 256K nodes; N = a p (a h + 1), diameter 3 and every router's ports in use.
#[test]
fn sizes_are_those_published() {
    for (p, a, h, nodes) in [(2, 4, 2, 72), (16, 32, 16, 262_656)] {
        let mut spec = dragonfly(a * h + 1, a, h);
        spec.direct.hosts_per_router = p;
        let topology = build(spec);
        assert_eq!(topology.hosts(), nodes);
        assert_eq!(topology.ports(SwitchId(0)), p + a - 1 + h);
        if nodes < 1_000 {
            let summary = topology.summary();
            assert_eq!((summary.diameter_links, summary.tiers[0].ports_down_unused), (5, 0));
        }
    }
    // Shpiner et al., HiPINEB'17: routers of k ports, half of a leaf's to hosts, half of a spine's to other groups, give
    // k^2/4 hosts a group and k^2/4 + 1 groups.
    let k = 8;
    let mut spec = plus(k * k / 4 + 1, k / 2, k / 2, k / 2);
    spec.direct.hosts_per_router = k / 2;
    let topology = build(spec);
    assert_eq!(topology.hosts(), k * k / 4 * (k * k / 4 + 1));
    assert!((0..topology.switches()).all(|switch| topology.ports(SwitchId(switch)) == k));
    assert_eq!(topology.summary().diameter_links, 5);
}

/// 4 routers of 3 global ports are 12 channels: 2 copies to each of 5 other groups leave 2 a group without a cable.
#[test]
fn the_incomplete_copy_is_left_uncabled_and_counted() {
    let summary = build(dragonfly(6, 4, 3)).summary();
    let router = &summary.tiers[0];
    assert_eq!((router.name.as_str(), router.switches, router.ports_down_unused), ("router", 24, 6 * 2));
    let summary = build(plus(6, 2, 4, 3)).summary();
    assert_eq!(summary.tiers.iter().map(|tier| tier.ports_down_unused).collect::<Vec<_>>(), [0, 6 * 2]);
}

/// Router 0 of group 0 and router 0 of group 1 when every router has a cable to each of 2 other groups: the own cable
/// competes with a neighbour's only where it lands on the destination.
#[test]
fn own_cables_compete_with_those_that_land_on_the_destination() {
    // Channels of group 0: j = 0, 2, 4 lead to group 1, on routers 0, 0, 1; they land on channels 1, 3, 5 of group 1,
    // on routers 0, 1, 1.
    let topology = build(dragonfly(3, 2, 3));
    let target = |switch| targets(&topology)[&SwitchId(switch)];
    let (mut ports, nics, locals) = (PortSet::new(), 1, 1);
    let mut found = |at, to| {
        topology.equal_cost(SwitchId(at), &target(to), Itinerary::DIRECT, &mut ports);
        ports.iter().collect::<Vec<_>>()
    };
    let global = |channel: u32| nics + locals + channel;
    assert_eq!(found(0, 2), [global(0)]);
    assert_eq!(found(0, 3), [global(2)]);
    // Router 1's own cable lands on router 1; router 0 has one that lands on the destination.
    assert_eq!(found(1, 2), [nics, global(4 - 3)]);
    assert_eq!(found(1, 3), [global(4 - 3)]);
}

#[test]
fn impossible_sizes_are_refused_with_the_nearest_valid_ones() {
    let refused = |spec: TopologySpec| {
        let error = Topology::new(&spec).expect_err("an impossible size");
        (error.path(), error.to_string(), error.hint().unwrap_or_default())
    };
    let (path, message, hint) = refused(dragonfly(14, 4, 3).topology());
    assert_eq!(path, "groups");
    assert_eq!(message, "expected at most 13 groups, found 14: 4 routers of 3 global links a group");
    assert_eq!(hint, "`global_links: 4` reaches 14 groups");
    assert_eq!(refused(plus(14, 2, 4, 3).topology()).1, message.replace("routers", "spines"));
    for (spec, path) in [
        (dragonfly(0, 4, 2), "groups"),
        (dragonfly(2, 0, 2), "routers"),
        (dragonfly(2, 1 << 16, 1 << 16), "global_links"),
        (dragonfly(1 << 15, 1 << 15, 1), "groups"),
        (dragonfly(1, 1 << 17, 1), "routers"),
    ] {
        assert_eq!(refused(spec.topology()).0, path);
    }
    let changed = |change: fn(&mut DragonflySpec)| {
        let mut spec = dragonfly(2, 2, 1);
        change(&mut spec);
        refused(spec.topology()).0
    };
    assert_eq!(changed(|spec| spec.direct.host.rails = true), "host.rails");
    assert_eq!(changed(|spec| spec.direct.hosts_per_router = 0), "hosts_per_router");
    assert_eq!(changed(|spec| spec.direct.nic.rate = BitRate::ZERO), "nic.rate");
    assert_eq!(changed(|spec| spec.local.rate = BitRate::ZERO), "local.rate");
    assert_eq!(changed(|spec| spec.global.loss = 1.5), "global.loss");
    assert_eq!(changed(|spec| spec.global.length_mm = u64::MAX), "global");
    assert_eq!(changed(|spec| spec.direct.router_latency = Span::MAX), "nic");
    assert_eq!(refused(plus(2, 0, 1, 1).topology()).0, "leaves");
    assert_eq!(refused(plus(2, 1, 0, 1).topology()).0, "spines");
    // The size named is the largest that fits.
    let error = Topology::new(&dragonfly(1 << 15, 1 << 15, 1).topology()).expect_err("too large");
    let TopologyError::Oversize { fit, .. } = error else { panic!("{error}") };
    assert!(Topology::new(&dragonfly(fit, 1 << 15, 1).topology()).is_ok(), "{fit}");
    assert!(Topology::new(&dragonfly(fit + 1, 1 << 15, 1).topology()).is_err(), "{fit}");
    let error = Topology::new(&dragonfly(14, 4, 3).topology()).expect_err("too many groups");
    assert!(matches!(error, TopologyError::TooManyGroups { groups: 14, .. }));
}

/// The greatest flow between the hosts of the first half of the groups and the others (of a single group: of its
/// routers), in bit/s, by augmenting paths.
fn greatest_flow(topology: &Topology) -> u64 {
    let groups = group(topology, SwitchId(topology.switches() - 1)) + 1;
    let routers = targets(topology).len() as u32;
    let half = if groups > 1 { groups / 2 } else { routers / 2 };
    let first = |switch| if groups > 1 { group(topology, switch) < half } else { switch.0 < half };
    let (source, sink) = (topology.switches(), topology.switches() + 1);
    let mut room: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for switch in (0..topology.switches()).map(SwitchId) {
        for port in 0..topology.ports(switch) {
            let Some(peer) = topology.peer(switch, port) else { continue };
            let link = topology.out_link(switch, port).expect("cabled");
            let pair = match peer {
                Peer::Switch { switch: far, .. } => (switch.0, far.0),
                Peer::Nic { .. } if first(switch) => (source, switch.0),
                Peer::Nic { .. } => (switch.0, sink),
            };
            *room.entry(pair).or_default() += topology.link(link).rate.bps();
        }
    }
    let mut flow = 0;
    loop {
        let mut before = BTreeMap::from([(source, source)]);
        let mut front = vec![source];
        while let Some(at) = front.pop() {
            for (&(_, next), &left) in room.range((at, 0)..=(at, u32::MAX)) {
                if left > 0 && !before.contains_key(&next) {
                    before.insert(next, at);
                    front.push(next);
                }
            }
        }
        if !before.contains_key(&sink) {
            return flow;
        }
        let path = std::iter::successors(Some(sink), |at| Some(before[at]).filter(|_| *at != source));
        let nodes: Vec<u32> = path.collect();
        let pairs: Vec<(u32, u32)> = nodes.windows(2).map(|pair| (pair[1], pair[0])).collect();
        let least = pairs.iter().map(|pair| room[pair]).min().expect("a path has a link");
        for &(from, to) in &pairs {
            *room.get_mut(&(from, to)).expect("has room") -= least;
            *room.entry((to, from)).or_default() += least;
        }
        flow += least;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With local cables that are no bottleneck, the bisection is what can flow.
    #[test]
    fn bisection_is_the_greatest_flow((groups, routers, ports) in sizes(5, 4), hosts in 1..=6u32) {
        let fast = BitRate::from_bps(RATE.bps() * 1_000);
        let mut spec = dragonfly(groups, routers, ports);
        spec.direct.hosts_per_router = hosts;
        if groups > 1 {
            spec.local.rate = fast;
        }
        prop_assume!(groups * routers > 1);
        let topology = build(spec);
        prop_assert_eq!(topology.summary().bisection.bps(), greatest_flow(&topology));
    }

    /// Of a dragonfly+ too; local cables as slow as the others may be a bottleneck where spines lack global ones.
    #[test]
    fn bisection_of_a_dragonfly_plus_bounds_the_flow(
        (groups, spines, ports) in sizes(3, 4), leaves in 1..=3u32, hosts in 1..=6u32, fast in any::<bool>()
    ) {
        let mut spec = plus(groups, leaves, spines, ports);
        spec.direct.hosts_per_router = hosts;
        if groups > 1 && fast {
            spec.local.rate = BitRate::from_bps(RATE.bps() * 1_000);
        }
        prop_assume!(groups * leaves > 1);
        let topology = build(spec);
        let (bisection, flow) = (topology.summary().bisection.bps(), greatest_flow(&topology));
        if fast || groups == 1 {
            prop_assert_eq!(bisection, flow);
        } else {
            prop_assert!(bisection >= flow, "{} {}", bisection, flow);
        }
    }
}
