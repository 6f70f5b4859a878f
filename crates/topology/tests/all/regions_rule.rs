//! Buildings of Clos networks joined at the top against searches and closed forms, whole and broken.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{Hop, check_faults, check_routes, check_rule, check_wiring};
use proptest::prelude::*;
use windtunnel_kernel::{BitRate, EndpointId, NicId, Span};
use windtunnel_topology::{
    BuildingSpec, CableSpec, CrossSpec, DEFAULT_PROPAGATION_PS_PER_M, HostAddress, HostSpec, Itinerary,
    LinkId, LinkTier, LoadBalancer, Node, PathClass, Peer, PortSet, RegionsSpec, Route, SwitchId, Tier,
    Topology, TopologyError, TopologySpec, flow_hash,
};

const RATE: BitRate = BitRate::from_gbps(400);

/// Cables between buildings on the shortest way from one to another, from the cables there are.
fn distances(topology: &Topology) -> Vec<Vec<u32>> {
    let building = |switch| topology.coordinates(switch)[0] as usize;
    let count = 1 + (0..topology.switches()).map(|switch| building(SwitchId(switch))).max().unwrap_or(0);
    let mut distance = vec![vec![u32::MAX / 2; count]; count];
    for at in (0..topology.switches()).map(SwitchId) {
        distance[building(at)][building(at)] = 0;
        for port in 0..topology.ports(at) {
            if let Some(Peer::Switch { switch, .. }) = topology.peer(at, port)
                && building(switch) != building(at)
            {
                distance[building(at)][building(switch)] = 1;
            }
        }
    }
    for by in 0..count {
        for from in 0..count {
            for to in 0..count {
                distance[from][to] = distance[from][to].min(distance[from][by] + distance[by][to]);
            }
        }
    }
    distance
}

/// Up, then over cables between buildings, each nearer by one, then down.
fn up_cross_down(distance: &[Vec<u32>], topology: &Topology, state: u32, hop: Hop) -> Option<u32> {
    let building = |switch| topology.coordinates(switch)[0] as usize;
    let (at, next, to) = (building(hop.at), building(hop.next), building(hop.to));
    if at != next {
        return (state < 2 && distance[next][to] < distance[at][to]).then_some(1);
    }
    if topology.tier(hop.next) > topology.tier(hop.at) { (state == 0).then_some(0) } else { Some(2) }
}

fn cable(length_mm: u64) -> CableSpec {
    CableSpec { length_mm, loss: 1e-6, ..CableSpec::new(RATE) }
}

fn building(name: &str, hosts: u32, ports: &[u32]) -> BuildingSpec {
    let tiers = ports.iter().map(|&ports| Tier::new(ports, RATE)).collect();
    BuildingSpec { name: name.to_owned(), region: 0, hosts, tiers, scale_up: None }
}

fn regions(buildings: Vec<BuildingSpec>, cross: &[(u32, u32, u32)]) -> RegionsSpec {
    let cross = cross.iter().map(|&(a, b, count)| {
        let length_mm = 1_000_000 * u64::from(1 + a + b);
        CrossSpec { between: [a, b], count, cable: cable(length_mm) }
    });
    let cross = cross.collect();
    let host = HostSpec::new(1, 1, RATE);
    RegionsSpec { host, buildings, cross, propagation_ps_per_m: DEFAULT_PROPAGATION_PS_PER_M }
}

fn build(spec: RegionsSpec) -> Topology {
    Topology::new(&TopologySpec::Regions(spec)).expect("a valid spec")
}

/// One to four buildings of one to three tiers in two regions, joined in a chain and by further cables.
fn specs() -> impl Strategy<Value = RegionsSpec> {
    let tiers = (prop::collection::vec((1..=2u32, 1..=2u32), 0..=2), 1..=2u32, 1..=4u32);
    let buildings = prop::collection::vec((tiers, 0..=1u32), 1..=4);
    let cables = prop::collection::vec((0..4u32, 0..4u32, 1..=9u32), 0..=3);
    (buildings, prop::collection::vec(1..=12u32, 3), cables, 1..=2u32).prop_map(
        |(buildings, chain, cables, nics)| {
            let count = buildings.len() as u32;
            let mut host = HostSpec::new(1, nics, RATE);
            host.rails = nics == 2 && buildings.iter().all(|((above, ..), _)| !above.is_empty());
            let buildings =
                buildings.into_iter().enumerate().map(|(index, ((above, spread, hosts), region))| {
                    let mut tiers = vec![Tier::new(2 * nics, RATE)];
                    // Fewer or more uplinks than ports down make tops of other numbers.
                    if !above.is_empty() {
                        tiers[0].oversubscription = f64::from(spread);
                    }
                    for &(ports, bundle) in &above {
                        let bundle = if tiers.len() == 1 && spread == 2 { 1 } else { bundle };
                        let mut tier = Tier::new(2 * ports * bundle, RATE);
                        tier.bundle = bundle;
                        tiers.push(tier);
                    }
                    let hosts = if above.is_empty() { hosts.min(2) } else { hosts };
                    BuildingSpec { name: format!("building{index}"), region, hosts, tiers, scale_up: None }
                });
            let mut spec = regions(Vec::new(), &[]);
            (spec.host, spec.buildings) = (host, buildings.collect());
            let mut entries: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            for (index, &cables) in chain.iter().enumerate().take(count as usize - 1) {
                entries.insert((index as u32, index as u32 + 1), cables);
            }
            for (a, b, cables) in cables {
                let (a, b) = (a % count, b % count);
                if a != b {
                    entries.entry((a.min(b), a.max(b))).or_insert(cables);
                }
            }
            spec.cross = entries
                .into_iter()
                .map(|((a, b), count)| CrossSpec { between: [b, a], count, cable: cable(1_000) })
                .collect();
            spec
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 4_000, ..ProptestConfig::with_cases(160) })]

    #[test]
    fn wiring_rule_and_routes_hold(spec in specs()) {
        let Ok(topology) = Topology::new(&TopologySpec::Regions(spec)) else { return Err(TestCaseError::reject("sizes")) };
        let distance = distances(&topology);
        check_wiring(&topology);
        check_rule(&topology, &|topology, state, hop| up_cross_down(&distance, topology, state, hop));
        check_routes(&topology, 20);
        // No number of a link goes without a cable.
        let cabled = |switch| {
            let ports = 0..topology.ports(switch);
            ports.filter(|&port| topology.out_link(switch, port).is_some()).count()
        };
        let links: usize = (0..topology.switches()).map(|switch| cabled(SwitchId(switch))).sum();
        prop_assert_eq!(links + topology.nics() as usize, topology.link_count());
    }

    #[test]
    fn repairs_hold(spec in specs(), seed: u64, percent in 1..40u64) {
        let Ok(topology) = Topology::new(&TopologySpec::Regions(spec)) else { return Err(TestCaseError::reject("sizes")) };
        let distance = distances(&topology);
        let legal = |topology: &Topology, state, hop| up_cross_down(&distance, topology, state, hop);
        check_faults(&Arc::new(topology), &legal, seed, percent);
    }
}

/// Pairwise different distances, and what each cable loses, reach the links.
#[test]
fn cables_keep_their_length_and_loss() {
    let mut spec = regions(
        vec![building("a", 8, &[2, 2, 4]), building("b", 8, &[4, 2]), building("c", 4, &[4])],
        &[(0, 1, 4), (1, 2, 6), (0, 2, 3)],
    );
    for (index, cross) in spec.cross.iter_mut().enumerate() {
        cross.cable = CableSpec {
            rate: BitRate::from_gbps(800),
            length_mm: 10_000_000 * (index as u64 + 1),
            loss: 1e-5 * (index + 1) as f64,
        };
    }
    let topology = build(spec);
    let mut found: BTreeMap<(u32, u32), Vec<LinkId>> = BTreeMap::new();
    for link in (0..topology.link_count() as u32).map(LinkId) {
        if topology.link(link).tier == LinkTier::CrossBuilding {
            let (Node::Switch(a), Node::Switch(b)) = topology.link_ends(link) else { panic!("switches") };
            let ends = [a, b].map(|switch| topology.coordinates(switch)[0]);
            found.entry((ends[0], ends[1])).or_default().push(link);
        }
    }
    for (index, (pair, count)) in [((0, 1), 4), ((1, 2), 6), ((0, 2), 3)].into_iter().enumerate() {
        for pair in [pair, (pair.1, pair.0)] {
            assert_eq!(found[&pair].len(), count);
            for &link in &found[&pair] {
                let info = topology.link(link);
                // 10 km take 50 us.
                assert_eq!(info.propagation, Span::from_ps(50_000_000 * (index as u64 + 1)));
                assert_eq!((info.rate, info.loss), (BitRate::from_gbps(800), 1e-5 * (index + 1) as f64));
            }
        }
    }
    let names: Vec<String> = found[&(1, 2)].iter().map(|&link| topology.link_name(link)).collect();
    // The four top switches of b and the one of c: cables 0 and 4 join the same two.
    assert_eq!(names[..2], ["b/spine0 -> c/leaf0 #0", "b/spine1 -> c/leaf0 #0"]);
    assert_eq!(names[4], "b/spine0 -> c/leaf0 #1");
    assert_eq!(topology.path_class(EndpointId(0), EndpointId(8)), PathClass::OtherBuilding);
    assert_eq!(topology.path_class(EndpointId(8), EndpointId(9)), PathClass::SameLeaf);
    // Two cables up, one across, one down, and those of the NICs.
    let mut route = Route::new();
    topology.route(LoadBalancer::Ecmp, 1, EndpointId(0), EndpointId(8), NicId(0), 0, &mut route);
    assert_eq!((route.links.len(), route.class), (2 + 2 + 1 + 1, PathClass::OtherBuilding));
    assert_eq!(topology.summary().diameter_links, 2 + 2 + 1 + 1);
    assert_eq!(topology.summary().diameter_latency, Span::from_ps(150_000_000));
}

/// With fewer cables than top switches only those that have one are climbed to.
#[test]
fn nobody_climbs_in_vain() {
    // 4 x 4 top switches in each, cables on the first six.
    let topology =
        build(regions(vec![building("a", 64, &[4, 4, 8]), building("b", 64, &[4, 4, 8])], &[(0, 1, 6)]));
    let target = topology.target(64, 0);
    let mut ports = PortSet::new();
    let mut count = |address: &[u32]| {
        let at = topology.switch_at(address).expect("there");
        topology.equal_cost(at, &target, Itinerary::DIRECT, &mut ports);
        ports.iter().collect::<Vec<u32>>()
    };
    assert_eq!(count(&[0, 0, 3, 0]), [4, 5, 6, 7]);
    // Switch w of a pod leads to the top switches w, w + 4, w + 8, w + 12: of those below 6 to two or to one.
    assert_eq!(count(&[0, 1, 0, 0]), [4, 5]);
    assert_eq!(count(&[0, 1, 0, 1]), [4, 5]);
    assert_eq!(count(&[0, 1, 0, 2]), [4]);
    assert_eq!(count(&[0, 2, 0, 5]), [8]);
    // No packet climbs to the others; one left there by faults that are over goes back down to any of four pods.
    assert_eq!(count(&[0, 2, 0, 6]), [0, 1, 2, 3]);
    // With more cables than top switches some have two.
    let topology = build(regions(vec![building("a", 16, &[4, 4]), building("b", 16, &[4, 4])], &[(0, 1, 6)]));
    let target = topology.target(16, 0);
    topology.equal_cost(
        topology.switch_at(&[0, 1, 0, 1]).expect("there"),
        &target,
        Itinerary::DIRECT,
        &mut ports,
    );
    assert_eq!(ports.iter().collect::<Vec<u32>>(), [4, 5]);
    let mut uses: BTreeMap<LinkId, u32> = BTreeMap::new();
    let mut route = Route::new();
    for entropy in 0..40_000 {
        topology.route(LoadBalancer::Ecmp, 1, EndpointId(0), EndpointId(16), NicId(0), entropy, &mut route);
        let cross = route.links.iter().find(|(link, _)| topology.link(*link).tier == LinkTier::CrossBuilding);
        *uses.entry(cross.expect("one").0).or_default() += 1;
    }
    // A quarter of the flows on each top switch, in halves where it has two cables; deviations of 87 and 66.
    let mut counts: Vec<u32> = uses.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts.len(), 6);
    assert!(counts[..4].iter().all(|count| count.abs_diff(5_000) < 5 * 66), "{counts:?}");
    assert!(counts[4..].iter().all(|count| count.abs_diff(10_000) < 5 * 87), "{counts:?}");
}

/// Buildings in a row: transit over the top switches of the middle one.
#[test]
fn transit_stays_at_the_top() {
    let row = |first, second| {
        let buildings =
            vec![building("a", 16, &[4, 4]), building("b", 64, &[4, 4, 8]), building("c", 16, &[4, 4])];
        Topology::new(&TopologySpec::Regions(regions(buildings, &[(0, 1, first), (1, 2, second)])))
    };
    let topology = row(16, 16).expect("every top switch of b has a cable each way");
    let mut route = Route::new();
    for entropy in 0..50 {
        topology.route(LoadBalancer::Ecmp, 1, EndpointId(0), EndpointId(80), NicId(0), entropy, &mut route);
        let tiers: Vec<LinkTier> = route.links.iter().map(|&(link, _)| topology.link(link).tier).collect();
        use LinkTier::{CrossBuilding, Down, NicDown, NicUp, Up};
        assert_eq!(tiers, [NicUp, Up(0), CrossBuilding, CrossBuilding, Down(0), NicDown]);
    }
    // Six cables arrive at six top switches of b: as many must lead on.
    assert!(row(6, 6).is_ok());
    let error = row(6, 5).expect_err("top switch 5 of b has no cable to c");
    assert_eq!(error.path(), "cross[0].count");
    assert_eq!(
        error.to_string(),
        "expected cables on to building `c` from all 6 top switches of `b` that those of `a` lead to, found some from 5"
    );
    assert!(error.hint().expect("a hint").contains("at least 6 cables"));
}

#[test]
fn addresses_tell_regions_and_buildings() {
    let mut spec = regions(
        vec![building("a", 8, &[2, 4]), building("b", 8, &[2, 2, 2]), building("c", 6, &[2, 4])],
        &[(0, 1, 4), (1, 2, 4), (0, 2, 4)],
    );
    spec.buildings[1].region = 7;
    let topology = build(spec);
    let address = |nic| topology.address(nic);
    assert_eq!(address(3), HostAddress { region: 0, building: 0, pod: 0, rack: 1, host: 1, nic: 0 });
    assert_eq!(address(8 + 5), HostAddress { region: 7, building: 0, pod: 1, rack: 2, host: 1, nic: 0 });
    assert_eq!(address(16), HostAddress { region: 0, building: 1, pod: 0, rack: 0, host: 0, nic: 0 });
    assert_eq!(topology.node_name(Node::Switch(topology.attachment(16, 0).0)), "c/leaf0");
    assert_eq!(topology.nic_at(HostAddress { building: 2, ..address(16) }), None);
}

/// The buildings of table 3 of the scale-across explorer, small: 8 leaves of 16 GPUs a pod, `devices` GPUs a building.
/// The published ratios are relative to an unpublished default; here 1:1 inside the buildings of A and 1:2 in those of
/// B, and 1:4 between buildings, the default of the paper's testbed.
fn table_3(inside: f64, devices: u32) -> RegionsSpec {
    let mut tiers = [16, 8, 8].map(|ports| Tier::new(ports, RATE)).to_vec();
    tiers[1].oversubscription = inside;
    let building = |name: &str| BuildingSpec {
        name: name.to_owned(),
        region: 0,
        hosts: devices,
        tiers: tiers.clone(),
        scale_up: None,
    };
    // 10 km, 50 us.
    let cross = CrossSpec { between: [0, 1], count: devices / 4, cable: cable(10_000_000) };
    RegionsSpec {
        host: HostSpec::new(1, 1, RATE),
        buildings: vec![building("east"), building("west")],
        cross: vec![cross],
        propagation_ps_per_m: DEFAULT_PROPAGATION_PS_PER_M,
    }
}

#[test]
fn table_3_of_the_scale_across_explorer() {
    let default = 640;
    let rows = [
        ("A1", 1.0, default),
        ("A2", 2.0, default),
        ("A3", 4.0, default),
        ("A4", 1.0, default * 8 / 10),
        ("B1", 2.0, default),
        ("B2", 1.0, default),
        ("B3", 4.0, default),
        ("B4", 2.0, default * 3 / 4),
    ];
    for (name, inside, devices) in rows {
        let topology = build(table_3(inside, devices));
        let summary = topology.summary();
        assert_eq!(topology.hosts(), 2 * devices, "{name}");
        let pods = devices.div_ceil(16 * 8);
        let uplinks = (8.0 / inside) as u32;
        let counts: Vec<u64> = summary.tiers.iter().map(|tier| tier.switches).collect();
        // As many leaves as GPUs fill; 16 switches a pod, one for every uplink of a leaf; 16 groups at the top.
        let expected = [devices / 16, pods * 16, 16 * uplinks].map(|of_one| 2 * u64::from(of_one));
        assert_eq!(counts, expected, "{name}");
        assert_eq!(
            summary.bisection,
            BitRate::from_bps(RATE.bps() * u64::from(devices / 4)),
            "{name}: 1:4 of the GPUs' rate"
        );
        assert_eq!(summary.diameter_links, 2 + 5, "{name}");
        assert_eq!(summary.diameter_latency, Span::from_ps(50_000_000), "{name}");
        let cross = (0..topology.link_count() as u32).map(LinkId);
        let cross = cross.filter(|&link| topology.link(link).tier == LinkTier::CrossBuilding).count();
        assert_eq!(cross as u32, 2 * devices / 4, "{name}");
    }
}

#[test]
fn a_million_endpoints_in_eight_buildings() {
    let host = HostSpec { rails: true, ..HostSpec::new(8, 8, RATE) };
    let buildings = (0..8).map(|number| building(&format!("b{number}"), 16_384, &[64, 32, 64])).collect();
    let pairs = (0..8).flat_map(|a| (0..a).map(move |b| (b, a, 512))).collect::<Vec<_>>();
    let mut spec = regions(buildings, &pairs);
    spec.host = host;
    let topology = build(spec);
    assert_eq!(topology.endpoints(), 1 << 20);
    let mut route = Route::new();
    topology.route(LoadBalancer::Ecmp, 1, EndpointId(0), EndpointId((1 << 20) - 1), NicId(0), 0, &mut route);
    assert_eq!(route.links.len(), 7);
    let hash = flow_hash(1, 0, (1 << 20) - 1, 0);
    let (port, _) = topology.next_hop(
        topology.attachment(0, 0).0,
        &topology.target((1 << 20) - 1, 0),
        Itinerary::DIRECT,
        hash,
    );
    assert_eq!(topology.out_link(topology.attachment(0, 0).0, port), Some(route.links[1].0));
}

#[test]
fn errors_say_what_was_expected_and_found() {
    let valid = || regions(vec![building("a", 16, &[4, 4]), building("b", 16, &[4, 4])], &[(0, 1, 4)]);
    assert!(Topology::new(&TopologySpec::Regions(valid())).is_ok());
    let fail = |change: &dyn Fn(&mut RegionsSpec)| {
        let mut spec = valid();
        change(&mut spec);
        let error = Topology::new(&TopologySpec::Regions(spec)).expect_err("an invalid spec");
        (error.path(), error.to_string())
    };
    let path = |change: &dyn Fn(&mut RegionsSpec)| fail(change).0;
    assert_eq!(path(&|spec| spec.buildings.clear()), "buildings");
    assert_eq!(path(&|spec| spec.buildings[1].hosts = 0), "buildings[1].hosts");
    assert_eq!(path(&|spec| spec.host.nics = 0), "host.nics");
    assert_eq!(path(&|spec| spec.cross[0].count = 0), "cross[0].count");
    assert_eq!(path(&|spec| spec.cross[0].cable.rate = BitRate::ZERO), "cross[0].cable.rate");
    assert_eq!(path(&|spec| spec.cross[0].cable.loss = -0.1), "cross[0].cable.loss");
    assert_eq!(path(&|spec| spec.cross[0].cable.length_mm = u64::MAX), "cross[0].cable");
    assert_eq!(
        fail(&|spec| spec.buildings[1].tiers[0].oversubscription = 3.0),
        (
            "buildings[1].tiers[0].oversubscription".to_owned(),
            "building `b`: expected a whole number of uplinks in tier 0, found 1.3333333333333333: 4 ports of 400 Gbps \
             over 3 times 400 Gbps"
                .to_owned()
        )
    );
    assert_eq!(
        fail(&|spec| spec.buildings[1].name = "a".to_owned()),
        (
            "buildings[1].name".to_owned(),
            "expected buildings of different names, found `a` for both 0 and 1".to_owned()
        )
    );
    assert_eq!(
        fail(&|spec| spec.cross[0].between = [0, 2]),
        (
            "cross[0].between".to_owned(),
            "expected cables between two of the 2 buildings, numbered from 0, found 0 and 2".to_owned()
        )
    );
    assert_eq!(path(&|spec| spec.cross[0].between = [1, 1]), "cross[0].between");
    assert_eq!(path(&|spec| spec.cross.push(spec.cross[0])), "cross[1].between");
    assert_eq!(
        fail(&|spec| spec.cross.clear()),
        ("cross".to_owned(), "expected cables on some way from building `b` to `a`, found none".to_owned())
    );
    let error = TopologyError::CrossTwice { index: 1, other: 0 };
    assert_eq!(error.hint().as_deref(), Some("add up the counts of the two"));
}

/// Buildings may join the GPUs of their hosts by links of their own; all else goes by those of all hosts.
#[test]
fn scale_up_links_of_a_building_are_its_own() {
    let (slow, far) = (BitRate::from_gbps(100), Span::from_ns(900));
    let mut spec = regions(vec![building("a", 2, &[4, 4]), building("b", 1, &[4, 4])], &[(0, 1, 2)]);
    spec.host = HostSpec::new(4, 4, RATE);
    let alike = Topology::new(&TopologySpec::Regions(spec.clone())).unwrap();
    spec.buildings[1].scale_up = Some((slow, far));
    let topology = Topology::new(&TopologySpec::Regions(spec.clone())).unwrap();
    assert_eq!(topology.scale_ups(), [(RATE, Span::ZERO), (slow, far)]);
    assert_eq!(alike.scale_ups(), [alike.scale_up()]);
    let mut route = Route::new();
    for (from, to, rate, latency) in [(0, 3, RATE, Span::ZERO), (4, 5, RATE, Span::ZERO), (8, 11, slow, far)]
    {
        topology.route(LoadBalancer::Ecmp, 0, EndpointId(from), EndpointId(to), NicId(0), 0, &mut route);
        assert_eq!((route.class, route.latency), (PathClass::ScaleUp, latency));
        assert!(route.links.iter().all(|&(link, _)| topology.link(link).rate == rate));
    }
    // Beyond hosts nothing differs.
    let mut other = Route::new();
    topology.route(LoadBalancer::Ecmp, 0, EndpointId(0), EndpointId(9), NicId(0), 0, &mut route);
    alike.route(LoadBalancer::Ecmp, 0, EndpointId(0), EndpointId(9), NicId(0), 0, &mut other);
    assert_eq!((route.latency, &route.links), (other.latency, &other.links));
    spec.buildings[0].scale_up = Some((BitRate::ZERO, far));
    let error = Topology::new(&TopologySpec::Regions(spec)).unwrap_err();
    assert!(error.to_string().contains("buildings[0].host.scale_up.rate"), "{error}");
}
