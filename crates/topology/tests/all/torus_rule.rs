//! Dimension order and minimal-adaptive routing in tori and meshes against searches, whole and broken.

use std::sync::Arc;

use crate::support::{
    Hop, anything, check_dense, check_faults, check_routes, check_rule, check_spread, check_wiring,
    distances, longest, narrowest_cut, targets,
};
use proptest::prelude::*;
use windtunnel_kernel::{BitRate, Span};
use windtunnel_topology::{
    CableSpec, Dimension, DirectSpec, LinkTier, SwitchId, Topology, TopologyError, TopologySpec,
    TorusRouting, TorusSpec,
};

const RATE: BitRate = BitRate::from_gbps(100);

fn dimension(size: u32, wrap: bool, links: u32) -> Dimension {
    Dimension { size, wrap, links, cable: CableSpec::new(RATE) }
}

/// NICs are fast enough not to narrow a bisection.
fn spec(dimensions: Vec<Dimension>, routing: TorusRouting) -> TorusSpec {
    let direct = DirectSpec { nic: CableSpec::new(BitRate::from_gbps(100_000)), ..DirectSpec::new(RATE) };
    TorusSpec { direct, dimensions, routing }
}

fn cube(size: u32, dimensions: usize, wrap: bool) -> TorusSpec {
    spec(vec![dimension(size, wrap, 1); dimensions], TorusRouting::DimensionOrder)
}

fn build(spec: TorusSpec) -> Topology {
    Topology::new(&TopologySpec::Torus(spec)).unwrap()
}

/// The shorter way round in the first dimension in which the ends differ, up where both are equal.
fn dimension_order(spec: &TorusSpec) -> impl Fn(&Topology, u32, Hop) -> Option<u32> {
    let dimensions = spec.dimensions.clone();
    move |topology, _, hop| {
        let [at, next, to] = [hop.at, hop.next, hop.to].map(|switch| topology.coordinates(switch));
        let first = (0..at.len()).find(|&d| at[d] != to[d])?;
        let Dimension { size, wrap, .. } = dimensions[first];
        // Steps up until `to`, and down: without end in a mesh if they lead out of it.
        let walk = |step: i64| {
            let (mut digit, mut steps) = (i64::from(at[first]), 0);
            while digit != i64::from(to[first]) {
                digit += step;
                steps += 1;
                if wrap {
                    digit = digit.rem_euclid(i64::from(size));
                } else if digit < 0 || digit == i64::from(size) {
                    return None;
                }
            }
            Some(steps)
        };
        let step = match (walk(1), walk(-1)) {
            (Some(up), Some(down)) if up <= down => 1,
            (Some(_), None) => 1,
            _ => -1,
        };
        let mut expected = at.clone();
        expected[first] = (i64::from(at[first]) + step).rem_euclid(i64::from(size)) as u32;
        (next == expected).then_some(0)
    }
}

/// Any path of least length.
fn minimal(topology: &Topology) -> impl Fn(&Topology, u32, Hop) -> Option<u32> {
    let steps = distances(topology);
    move |_, _, hop| {
        let [at, next, to] = [hop.at, hop.next, hop.to].map(|switch| switch.0 as usize);
        (steps[next][to] < steps[at][to]).then_some(0)
    }
}

/// One to four dimensions of up to five routers, at most 40 in all.
fn specs() -> impl Strategy<Value = TorusSpec> {
    let dimensions = prop::collection::vec((1..=5u32, any::<bool>(), 1..=2u32), 1..=4);
    (dimensions, any::<bool>(), 1..=2u32, 1..=2u32).prop_map(|(sizes, adaptive, hosts, nics)| {
        let mut room = 40;
        let fit = |(size, wrap, links): (u32, bool, u32)| {
            let size = size.min(room);
            room /= size;
            dimension(size, wrap, links)
        };
        let routing = if adaptive { TorusRouting::MinimalAdaptive } else { TorusRouting::DimensionOrder };
        let mut spec = spec(sizes.into_iter().map(fit).collect(), routing);
        spec.direct.hosts_per_router = hosts;
        spec.direct.host.nics = nics;
        spec.direct.nic.length_mm = 2_000;
        spec.direct.router_latency = Span::from_ns(300);
        for (index, dimension) in spec.dimensions.iter_mut().enumerate() {
            dimension.cable.length_mm = 1_000 * (index as u64 + 1);
        }
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn wiring_rule_and_routes_hold(spec in specs()) {
        let topology = build(spec.clone());
        check_wiring(&topology);
        check_dense(&topology);
        check_routes(&topology, 20);
        if spec.routing == TorusRouting::MinimalAdaptive {
            check_rule(&topology, &anything);
            check_rule(&topology, &minimal(&topology));
        } else {
            check_rule(&topology, &dimension_order(&spec));
        }
        let summary = topology.summary();
        // A single host has nobody to talk to.
        let links = if topology.hosts() == 1 { 0 } else { longest(&topology, &anything) + 2 };
        prop_assert_eq!(summary.diameter_links, links);
        prop_assert_eq!(summary.links, topology.link_count() as u64);
    }

    #[test]
    fn repairs_hold(spec in specs(), seed: u64, percent in 1..30u64) {
        let topology = Arc::new(build(spec.clone()));
        if spec.routing == TorusRouting::MinimalAdaptive {
            check_faults(&topology, &minimal(&topology), seed, percent);
        } else {
            check_faults(&topology, &dimension_order(&spec), seed, percent);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Of equal cables; straight through an even size, bent through odd ones.
    #[test]
    fn no_cut_into_halves_is_narrower(
        sizes in prop::collection::vec((1..=5u32, any::<bool>()), 1..=3),
        nic_gbps in prop::sample::select(vec![10u64, 100_000]),
    ) {
        let mut room = 12;
        let fit = |(size, wrap): (u32, bool)| {
            let size = size.min(room);
            room /= size;
            dimension(size, wrap, 1)
        };
        let mut spec = spec(sizes.into_iter().map(fit).collect(), TorusRouting::DimensionOrder);
        spec.direct.nic.rate = BitRate::from_gbps(nic_gbps);
        let topology = build(spec);
        let housed: Vec<SwitchId> = targets(&topology).into_keys().collect();
        let nics = housed.len() as u64 / 2 * nic_gbps * 1_000_000_000;
        prop_assert_eq!(topology.summary().bisection.bps(), narrowest_cut(&topology, &housed).min(nics));
    }
}

#[test]
fn published_sizes_hold() {
    // TPU v4 (Jouppi et al., ISCA'23): 4,096 chips as a torus of 16 x 16 x 16.
    let tpu = build(cube(16, 3, true)).summary();
    assert_eq!((tpu.switches, tpu.links, tpu.diameter_links), (4_096, 2 * 4_096 + 6 * 4_096, 24 + 2));
    // 2 k^(n-1) channels each way (Dally, Towles, §5.2.1).
    assert_eq!(tpu.bisection.bps(), 2 * 16 * 16 * RATE.bps());
    // Fugaku (Ajima et al., Cluster'18): Tofu D, 24 x 23 x 24 x 2 x 3 x 2, the fourth and last without wrap.
    let wrapped = [true, true, true, false, true, false];
    let sizes = [24, 23, 24, 2, 3, 2];
    let tofu = sizes.iter().zip(wrapped).map(|(&size, wrap)| dimension(size, wrap, 1)).collect();
    let topology = build(spec(tofu, TorusRouting::DimensionOrder));
    let tofu = topology.summary();
    assert_eq!((tofu.switches, tofu.diameter_links), (158_976, 12 + 11 + 12 + 1 + 1 + 1 + 2));
    // Ten cables of a node: six in the large dimensions, 1 + 2 + 1 in the small ones.
    assert_eq!(topology.ports(SwitchId(0)), 10 + 1);
    // An odd mesh of 3 x 3 x 3 is bisected by (3^3 - 1) / (3 - 1) cables.
    assert_eq!(build(cube(3, 3, false)).summary().bisection.bps(), 13 * RATE.bps());
}

#[test]
fn a_dimension_of_two_has_one_neighbour() {
    for wrap in [false, true] {
        let topology =
            build(spec(vec![dimension(2, wrap, 3), dimension(1, wrap, 2)], TorusRouting::default()));
        assert_eq!(topology.ports(SwitchId(1)), 3 + 1);
        assert_eq!(topology.link_count(), 2 * 3 + 2 * 2);
        let to = topology.target(0, 0);
        check_spread(&topology, SwitchId(1), &to, 3);
    }
}

#[test]
fn adaptive_routing_spreads_over_dimensions_and_cables() {
    let dimensions = vec![dimension(4, true, 2), dimension(5, false, 1), dimension(4, true, 1)];
    let topology = build(spec(dimensions, TorusRouting::MinimalAdaptive));
    // Half round in the first (both ways, two cables each), one step in the second, one in the third.
    let to = topology.target(topology.switch_at(&[2, 1, 3]).unwrap().0, 0);
    check_spread(&topology, topology.switch_at(&[0, 0, 0]).unwrap(), &to, 4 + 1 + 1);
}

#[test]
fn names_places_and_tiers_are_the_coordinates() {
    let topology = build(cube(4, 3, true));
    let router = topology.switch_at(&[3, 0, 1]).unwrap();
    assert_eq!(topology.node_name(windtunnel_topology::Node::Switch(router)), "router3.0.1");
    let address = topology.address(router.0);
    assert_eq!((address.pod, address.rack, address.host), (3, 3 * 16 + 1, 0));
    let link = topology.out_link(router, 2).unwrap();
    assert_eq!(topology.link(link).tier, LinkTier::Dimension(1));
    assert_eq!(topology.link_name(link), "router3.0.1 -> router3.1.1");
}

#[test]
fn wrong_specs_are_refused_with_the_nearest_right_one() {
    let error = |spec: TorusSpec| {
        let error = Topology::new(&TopologySpec::Torus(spec)).unwrap_err();
        (error.path(), error.to_string(), error.hint())
    };
    let zero = |path: &str| (path.to_owned(), format!("expected `{path}` to be at least 1, found 0"), None);
    assert_eq!(error(spec(vec![], TorusRouting::default())), zero("dimensions"));
    assert_eq!(error(cube(0, 2, true)), zero("dimensions[0].size"));
    assert_eq!(
        error(spec(vec![dimension(3, true, 0)], TorusRouting::default())),
        zero("dimensions[0].links")
    );
    let mut slow = cube(3, 2, true);
    slow.dimensions[1].cable.rate = BitRate::ZERO;
    assert_eq!(error(slow), zero("dimensions[1].cable.rate"));
    let mut nobody = cube(3, 2, true);
    nobody.direct.hosts_per_router = 0;
    assert_eq!(error(nobody), zero("hosts_per_router"));
    let mut rails = cube(3, 2, true);
    rails.direct.host.rails = true;
    assert_eq!(Topology::new(&TopologySpec::Torus(rails)).unwrap_err(), TopologyError::DirectRails);
    let mut lossy = cube(3, 2, true);
    lossy.direct.nic.loss = 1.5;
    let message = "expected `nic.loss` to be from 0 to 1, found 1.5".to_owned();
    assert_eq!(error(lossy), ("nic.loss".to_owned(), message, None));
    let mut far = cube(4, 2, true);
    far.dimensions[1].cable.length_mm = u64::MAX;
    assert_eq!(error(far).0, "dimensions[1].cable");
    // A thousand years of steps, each short.
    let mut far = cube(1_000, 2, true);
    far.dimensions[0].cable.length_mm = 10_000_000_000_000_000;
    assert_eq!(error(far).0, "dimensions[0].cable");
    let many = spec(vec![dimension(1, true, 1); 256], TorusRouting::default());
    assert_eq!(error(many).0, "dimensions");
    // What the hint says is accepted, and one more is not.
    for large in [cube(2_000, 3, true), cube(2_000, 3, false), cube(u32::MAX, 4, true)] {
        let TopologyError::Oversize { path, fit, .. } =
            Topology::new(&TopologySpec::Torus(large.clone())).unwrap_err()
        else {
            panic!("too large")
        };
        assert_eq!(path, "dimensions[0].size");
        let mut fitting = large;
        if fitting.dimensions.len() == 3 {
            fitting.dimensions[0].size = fit;
            assert!(Topology::new(&TopologySpec::Torus(fitting.clone())).is_ok());
            fitting.dimensions[0].size = fit + 1;
            assert!(Topology::new(&TopologySpec::Torus(fitting)).is_err());
        }
    }
}
