//! Full meshes against searches and closed forms, whole and broken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::{
    self, Hop, anything, break_some, check_faults, check_routes, check_rule, check_wiring, search,
};
use proptest::prelude::*;
use windtunnel_kernel::{BitRate, EndpointId, NicId, RandomStream, Span};
use windtunnel_topology::{
    CableSpec, Dimension, DirectSpec, Forwarder, FullMeshSpec, Itinerary, LinkTier, LoadBalancer,
    MeshRouting, Node, PathClass, Peer, Policy, PortSet, Reach, Route, SwitchId, Topology, TopologyError,
    TopologySpec, flow_hash,
};

const RATE: BitRate = BitRate::from_gbps(400);

/// A hop corrects one digit that is still wrong.
fn minimal(topology: &Topology, _: u32, hop: Hop) -> Option<u32> {
    let wrong = |switch| {
        let (ours, goal) = (topology.coordinates(switch), topology.coordinates(hop.to));
        ours.iter().zip(&goal).filter(|(ours, goal)| ours != goal).count()
    };
    (wrong(hop.next) + 1 == wrong(hop.at)).then_some(0)
}

fn dimension(size: u32, links: u32) -> Dimension {
    Dimension { size, wrap: false, links, cable: CableSpec::new(RATE) }
}

fn mesh(dimensions: &[Dimension], routing: MeshRouting) -> FullMeshSpec {
    FullMeshSpec { direct: DirectSpec::new(RATE), dimensions: dimensions.to_vec(), routing }
}

fn build(spec: FullMeshSpec) -> Topology {
    Topology::new(&TopologySpec::FullMesh(spec)).expect("a valid spec")
}

/// One to four dimensions of at most 24 routers, with parallel cables and several hosts and NICs.
fn specs() -> impl Strategy<Value = FullMeshSpec> {
    let dimensions = prop::collection::vec((1..=5u32, 1..=3u32), 1..=4);
    (dimensions, 1..=2u32, 1..=2u32, any::<bool>()).prop_map(|(sizes, hosts, nics, detours)| {
        let mut routers = 1;
        let dimensions = sizes.into_iter().enumerate().map(|(index, (size, links))| {
            let size = if routers * size > 24 { 1 } else { size };
            routers *= size;
            let cable = CableSpec { length_mm: 1_000 * (index as u64 + 1), ..CableSpec::new(RATE) };
            Dimension { size, wrap: false, links, cable }
        });
        let mut direct = DirectSpec::new(RATE);
        (direct.hosts_per_router, direct.host.nics, direct.router_latency) =
            (hosts, nics, Span::from_ps(300_000));
        let routing = if detours { MeshRouting::OneDetour } else { MeshRouting::Minimal };
        FullMeshSpec { direct, dimensions: dimensions.collect(), routing }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn wiring_rule_and_routes_hold(spec in specs()) {
        let topology = build(spec);
        check_wiring(&topology);
        check_rule(&topology, &minimal);
        check_routes(&topology, 20);
        // No number of a link between switches, nor of any other, goes without a cable.
        let cabled = |switch| {
            let ports = 0..topology.ports(switch);
            ports.filter(|&port| topology.out_link(switch, port).is_some()).count()
        };
        let links: usize = (0..topology.switches()).map(|switch| cabled(SwitchId(switch))).sum();
        prop_assert_eq!(links + topology.nics() as usize, topology.link_count());
    }

    #[test]
    fn repairs_hold(spec in specs(), seed: u64, percent in 1..40u64) {
        check_faults(&Arc::new(build(spec)), &minimal, seed, percent);
    }

    /// Weights are the numbers of surviving minimal paths, counted from the destination backwards.
    #[test]
    fn weights_count_paths(spec in specs(), seed: u64, percent in 1..40u64) {
        let topology = Arc::new(build(spec));
        let policy = Policy { weighted: true, ..Policy::default() };
        let mut forwarder = Forwarder::new(Arc::clone(&topology), policy);
        let dead = break_some(&mut forwarder, &mut RandomStream::new(seed, "faults", 0), percent);
        forwarder.converge();
        let mut ports = PortSet::new();
        for (&to, target) in &support::targets(&topology) {
            let mut known = BTreeMap::from([(to, 1u64)]);
            for at in (0..topology.switches()).map(SwitchId).filter(|&at| at != to) {
                let (reach, _) = forwarder.equal_cost(at, target, Itinerary::DIRECT, &mut ports);
                if reach != Reach::Legal || forwarder.weights().is_empty() {
                    continue;
                }
                let mut sum = 0;
                for (port, &weight) in ports.iter().zip(forwarder.weights()) {
                    let Some(Peer::Switch { switch, .. }) = topology.peer(at, port) else { unreachable!() };
                    sum += paths(&topology, &dead, switch, to, &mut known);
                    prop_assert_eq!(weight, sum);
                }
            }
        }
    }

    /// With equal cables and as many NICs as never bind, no cut in halves is less.
    #[test]
    fn bisection_is_the_least_cut(sizes in prop::collection::vec(2..=4u32, 1..=3), links in 1..=2u32) {
        let routers: u32 = sizes.iter().product();
        prop_assume!(routers <= 16);
        let mut spec = mesh(&sizes.iter().map(|&size| dimension(size, links)).collect::<Vec<_>>(), MeshRouting::Minimal);
        spec.direct.hosts_per_router = 64;
        let topology = build(spec);
        let cables = |half: u32| {
            let part = |switch: u32| half >> switch & 1 == 1;
            let leave = |switch: u32| {
                (0..topology.ports(SwitchId(switch)))
                    .filter(|&port| matches!(topology.peer(SwitchId(switch), port),
                        Some(Peer::Switch { switch, .. }) if !part(switch.0)))
                    .count() as u64
            };
            (0..routers).filter(|&switch| part(switch)).map(leave).sum::<u64>()
        };
        let halves = (0..1u32 << routers).filter(|half| half.count_ones() == routers / 2);
        let least = halves.map(cables).min().expect("there is a half");
        prop_assert_eq!(topology.summary().bisection.bps(), least * RATE.bps());
    }
}

/// Minimal paths over living cables.
fn paths(
    topology: &Topology,
    dead: &BTreeSet<windtunnel_topology::LinkId>,
    at: SwitchId,
    to: SwitchId,
    known: &mut BTreeMap<SwitchId, u64>,
) -> u64 {
    if let Some(&count) = known.get(&at) {
        return count;
    }
    let mut count = 0;
    for port in 0..topology.ports(at) {
        let Some(Peer::Switch { switch: next, .. }) = topology.peer(at, port) else { continue };
        let lives = !dead.contains(&topology.out_link(at, port).expect("cabled"));
        if lives && minimal(topology, 0, Hop { at, next, to }).is_some() {
            count += paths(topology, dead, next, to, known);
        }
    }
    known.insert(at, count);
    count
}

/// A flow's way in is drawn uniformly among the direct one and all third routers of a dimension that differs; from
/// there the way is minimal, so it is one hop longer.
#[test]
fn detours_are_uniform_and_one_hop_longer() {
    let topology = build(mesh(&[dimension(4, 1), dimension(3, 2), dimension(5, 1)], MeshRouting::OneDetour));
    let from = topology.switch_at(&[1, 2, 0]).expect("there");
    let to = topology.switch_at(&[3, 2, 4]).expect("there");
    let (a, b) = (EndpointId(from.0), EndpointId(to.0));
    let target = topology.target(to.0, 0);
    let expected: BTreeSet<Option<SwitchId>> = [[0, 2, 0], [2, 2, 0], [1, 2, 1], [1, 2, 2], [1, 2, 3]]
        .iter()
        .map(|address| topology.switch_at(address))
        .chain([None])
        .collect();
    let mut counts: BTreeMap<Option<SwitchId>, u32> = BTreeMap::new();
    let flows = 60_000;
    let mut route = Route::new();
    for entropy in 0..flows {
        let hash = flow_hash(1, u64::from(a.0), u64::from(b.0), entropy);
        let waypoint = topology.enter(from, &target, hash, |_| 0).waypoint();
        *counts.entry(waypoint).or_default() += 1;
        if entropy < 600 {
            topology.route(LoadBalancer::Ecmp, 1, a, b, NicId(0), entropy, &mut route);
            assert_eq!(route.links.len(), 2 + 2 + usize::from(waypoint.is_some()));
        }
    }
    assert_eq!(counts.keys().copied().collect::<BTreeSet<_>>(), expected);
    // Binomial: standard deviation sqrt(60,000 · 1/6 · 5/6) = 91.
    assert!(counts.values().all(|&count| count.abs_diff(flows / 6) < 5 * 91), "{counts:?}");
    // Routers of a dimension of two have no third one.
    let pair = build(mesh(&[dimension(2, 1)], MeshRouting::OneDetour));
    let hashes = (0..1_000).map(|entropy| flow_hash(1, 0, 1, entropy));
    let mut ways = hashes.map(|hash| pair.enter(SwitchId(0), &pair.target(1, 0), hash, |_| 0));
    assert!(ways.all(|way| way == Itinerary::DIRECT));
}

/// Equal-cost ports are chosen within the binomial bound, parallel cables each for itself.
#[test]
fn choices_spread_evenly() {
    let topology = build(mesh(&[dimension(3, 3), dimension(4, 1)], MeshRouting::Minimal));
    let (from, to) = (SwitchId(0), topology.switch_at(&[2, 3]).expect("there"));
    let target = topology.target(to.0, 0);
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for entropy in 0..40_000 {
        let (port, _) = topology.next_hop(from, &target, Itinerary::DIRECT, flow_hash(9, 0, 11, entropy));
        *counts.entry(port).or_default() += 1;
    }
    assert_eq!(counts.len(), 4);
    // Standard deviation sqrt(40,000 · 1/4 · 3/4) = 87.
    assert!(counts.values().all(|&count| count.abs_diff(10_000) < 5 * 87), "{counts:?}");
}

/// A HyperX of two dimensions with its closed forms (Ahn et al., SC'09, §3): diameter = dimensions, bisection =
/// least of links · size · routers / 4.
#[test]
fn hyperx_has_its_sizes() {
    let mut spec = mesh(&[dimension(8, 2), dimension(6, 3)], MeshRouting::Minimal);
    spec.direct.hosts_per_router = 16;
    let topology = build(spec);
    let summary = topology.summary();
    assert_eq!((topology.switches(), topology.hosts()), (48, 768));
    assert_eq!(summary.diameter_links, 2 + 2);
    assert_eq!(summary.bisection, BitRate::from_bps(RATE.bps() * (2 * 8) * 48 / 4));
    assert_eq!(topology.link_count(), 2 * 768 + 48 * (7 * 2 + 5 * 3));
    assert_eq!(topology.ports(SwitchId(5)), 7 * 2 + 5 * 3 + 16);
    let link = topology.out_link(SwitchId(13), 3).expect("cabled");
    assert_eq!(topology.link_name(link), "router2.1 -> router1.1 #1");
    assert_eq!(topology.link(link).tier, LinkTier::Dimension(0));
    assert_eq!(topology.node_name(Node::Switch(SwitchId(13))), "router2.1");
}

/// UB-Mesh-Pod (Liao et al. 2025, §3.2): racks are 8 x 8 NPUs in two dimensions, 4 x 4 racks in two more: 1,024 NPUs,
/// at most four hops apart.
#[test]
fn a_ub_mesh_pod_has_its_sizes() {
    let sizes = [4, 4, 8, 8].map(|size| dimension(size, 1));
    let topology = build(mesh(&sizes, MeshRouting::OneDetour));
    assert_eq!(topology.hosts(), 1_024);
    assert_eq!(topology.summary().diameter_links, 4 + 2);
    assert_eq!(topology.ports(SwitchId(0)), 3 + 3 + 7 + 7 + 1);
    let class = |a: &[u32], b: &[u32]| {
        let [a, b] = [a, b].map(|address| EndpointId(topology.switch_at(address).expect("there").0));
        topology.path_class(a, b)
    };
    assert_eq!(class(&[1, 2, 3, 4], &[1, 2, 7, 0]), PathClass::SamePod);
    assert_eq!(class(&[1, 2, 3, 4], &[1, 3, 3, 4]), PathClass::Beyond);
    let address = topology.address(topology.switch_at(&[1, 2, 3, 4]).expect("there").0);
    assert_eq!((address.pod, address.rack), (6, 6 * 64 + 3 * 8 + 4));
}

/// A minimal path that is left is used though all others are dead; without one a detour is.
#[test]
fn the_last_minimal_path_is_found() {
    let topology = Arc::new(build(mesh(&[dimension(3, 1); 3], MeshRouting::Minimal)));
    let at = |digits: [u32; 3]| topology.switch_at(&digits).expect("there");
    let between = |a, b| {
        let port = (0..topology.ports(a))
            .find(|&port| matches!(topology.peer(a, port), Some(Peer::Switch { switch, .. }) if switch == b));
        topology.out_link(a, port.expect("neighbours")).expect("cabled")
    };
    let mut forwarder = Forwarder::new(Arc::clone(&topology), Policy { weighted: true, ..Policy::default() });
    // Only 000 -> 010 -> 110 -> 111 is left: the others lose their last or their first hop.
    for (a, b) in [([0, 1, 1], [1, 1, 1]), ([1, 0, 1], [1, 1, 1]), ([0, 0, 0], [1, 0, 0])] {
        forwarder.fail_cable(between(at(a), at(b)));
    }
    forwarder.converge();
    let target = topology.target(at([1, 1, 1]).0, 0);
    let mut ports = PortSet::new();
    let (reach, _) = forwarder.equal_cost(at([0, 0, 0]), &target, Itinerary::DIRECT, &mut ports);
    assert_eq!((reach, ports.len(), forwarder.weights()), (Reach::Legal, 1, &[1][..]));
    let next = topology.peer(at([0, 0, 0]), ports.nth(0));
    assert!(matches!(next, Some(Peer::Switch { switch, .. }) if switch == at([0, 1, 0])), "{next:?}");
    forwarder.fail_cable(between(at([1, 1, 0]), at([1, 1, 1])));
    forwarder.converge();
    let (reach, _) = forwarder.equal_cost(at([0, 0, 0]), &target, Itinerary::DIRECT, &mut ports);
    assert_eq!(reach, Reach::Detour);
    let dead: BTreeSet<_> =
        forwarder.failed_cables().flat_map(|link| [link, topology.reverse(link)]).collect();
    assert!(search(&topology, &anything, &dead, at([0, 0, 0]), at([1, 1, 1])).is_some());
}

#[test]
fn errors_say_what_was_expected_and_found() {
    let fail = |change: &dyn Fn(&mut FullMeshSpec)| {
        let mut spec = mesh(&[dimension(4, 1), dimension(4, 1)], MeshRouting::Minimal);
        change(&mut spec);
        let error = Topology::new(&TopologySpec::FullMesh(spec)).expect_err("an invalid spec");
        (error.path(), error.to_string(), error)
    };
    let path = |change: &dyn Fn(&mut FullMeshSpec)| fail(change).0;
    assert_eq!(path(&|spec| spec.dimensions.clear()), "dimensions");
    assert_eq!(path(&|spec| spec.dimensions[1].size = 0), "dimensions[1].size");
    assert_eq!(path(&|spec| spec.dimensions[1].links = 0), "dimensions[1].links");
    assert_eq!(path(&|spec| spec.dimensions[0].cable.rate = BitRate::ZERO), "dimensions[0].cable.rate");
    assert_eq!(path(&|spec| spec.dimensions[0].cable.loss = 1.5), "dimensions[0].cable.loss");
    assert_eq!(path(&|spec| spec.dimensions[0].cable.length_mm = u64::MAX), "dimensions[0].cable");
    assert_eq!(path(&|spec| spec.direct.host.rails = true), "host.rails");
    assert_eq!(path(&|spec| spec.direct.hosts_per_router = 0), "hosts_per_router");
    let (path, message, _) = fail(&|spec| spec.dimensions = vec![dimension(2, 1); 9]);
    assert_eq!(
        (path.as_str(), message.as_str()),
        ("dimensions", "expected a topology of fewer than 9 dimensions, found 9",)
    );
    let (path, _, error) = fail(&|spec| spec.dimensions[1].size = 1 << 31);
    assert_eq!(path, "dimensions[1].size");
    let TopologyError::Oversize { fit, .. } = error else { panic!("{error:?}") };
    // The nearest valid size is valid, the next one is not.
    let sized = |size| {
        let mut spec = mesh(&[dimension(4, 1), dimension(4, 1)], MeshRouting::Minimal);
        spec.dimensions[1].size = size;
        Topology::new(&TopologySpec::FullMesh(spec))
    };
    assert!(sized(fit).is_ok() && sized(fit + 1).is_err());
}

#[test]
fn a_million_endpoints() {
    let mut spec = mesh(&[dimension(16, 1), dimension(16, 1), dimension(64, 1)], MeshRouting::OneDetour);
    (spec.direct.hosts_per_router, spec.direct.host.gpus, spec.direct.host.nics) = (8, 8, 8);
    let topology = build(spec);
    assert_eq!(topology.endpoints(), 1 << 20);
    let mut route = Route::new();
    topology.route(LoadBalancer::Ecmp, 1, EndpointId(0), EndpointId((1 << 20) - 1), NicId(0), 0, &mut route);
    assert!((5..=6).contains(&route.links.len()));
}
