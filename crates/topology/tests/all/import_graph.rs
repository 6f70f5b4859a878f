//! An explicit graph as a topology: wiring, shortest paths and repairs against searches, and its figures.

use std::sync::Arc;

use crate::import_common::{clos_graph, grid_graph, shuffled};
use crate::support::{anything, check_faults, check_routes, check_rule, check_wiring};
use proptest::prelude::*;
use windtunnel_kernel::{BitRate, EndpointId, NicId, Span};
use windtunnel_topology::graph::{recognise_clos, recognise_torus};
use windtunnel_topology::{
    CableSpec, ClosSpec, Dimension, DirectSpec, GraphLink, GraphNode, GraphSpec, HostSpec, LoadBalancer,
    NodeKind, Route, Tier, Topology, TopologySpec, TorusRouting, TorusSpec,
};

prop_compose! {
    /// A tree of switches with chords, some cables parallel, and hosts of one or two NICs.
    fn a_graph()(
        parents in prop::collection::vec(0u32..100, 1..10),
        chords in prop::collection::vec((0u32..100, 0u32..100), 0..14),
        hosts in prop::collection::vec((0u32..100, 0u32..100), 1..8),
        nics in 1u32..3,
        seed in any::<u64>(),
    ) -> GraphSpec {
        let count = parents.len() as u32;
        let node = |name: String, kind| GraphNode { name, kind, tier: None };
        let mut nodes: Vec<GraphNode> = (0..count).map(|n| node(format!("s{n}"), NodeKind::Switch)).collect();
        let mut ends: Vec<(u32, u32)> = (1..count).map(|n| (n, parents[n as usize] % n)).collect();
        ends.extend(chords.iter().map(|&(a, b)| (a % count, b % count)).filter(|(a, b)| a != b));
        for (number, &(first, second)) in hosts.iter().enumerate() {
            nodes.push(node(format!("h{number}"), NodeKind::Host));
            ends.extend([first, second][..nics as usize].iter().map(|at| (count + number as u32, at % count)));
        }
        let link = |(number, &(a, b)): (usize, &(u32, u32))| GraphLink {
            a,
            b,
            rate: BitRate::from_gbps(100 + number as u64 % 2),
            latency: Span::from_ps(number as u64),
            loss: 0.0,
        };
        let links = ends.iter().enumerate().map(link).collect();
        shuffled(&GraphSpec { nodes, links, host: None, source: "graph".to_owned() }, seed)
    }
}

fn topology(graph: &GraphSpec) -> Topology {
    Topology::new(&TopologySpec::Graph(graph.clone())).expect("a sound graph")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn wiring_rule_and_routes_hold(graph in a_graph()) {
        let topology = topology(&graph);
        check_wiring(&topology);
        check_rule(&topology, &anything);
        check_routes(&topology, 20);
    }

    #[test]
    fn repairs_hold(graph in a_graph(), seed: u64, percent in 1..40u64) {
        check_faults(&Arc::new(topology(&graph)), &anything, seed, percent);
    }

    #[test]
    fn a_clos_as_a_graph_has_the_figures_of_the_clos(k in 1u32..5, seed: u64) {
        let spec = ClosSpec::fat_tree(2 * k, BitRate::from_gbps(100));
        let by_table = topology(&shuffled(&clos_graph(&spec), seed));
        let by_rule = Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree");
        let (table, rule) = (by_table.summary(), by_rule.summary());
        prop_assert_eq!(table.switches, rule.switches);
        prop_assert_eq!(table.links, rule.links);
        prop_assert_eq!(table.diameter_links, rule.diameter_links);
        let tiers = |summary: &windtunnel_topology::TopologySummary| {
            summary.tiers.iter().map(|tier| tier.switches).collect::<Vec<_>>()
        };
        prop_assert_eq!(tiers(&table), tiers(&rule));
        // Whichever hosts are in the first half: it does not block.
        let hosts = u64::from(by_rule.hosts());
        prop_assert_eq!(table.bisection, BitRate::from_gbps(100 * (hosts / 2)));
    }
}

/// Latencies of the routes of one endpoint to all others.
fn latencies(topology: &Topology) -> Vec<Span> {
    let mut route = Route::new();
    let to = |to: u32| {
        topology.route(LoadBalancer::Ecmp, 1, EndpointId(0), EndpointId(to), NicId(0), 0, &mut route);
        route.latency
    };
    (0..topology.endpoints()).map(to).collect()
}

proptest! {
    #[test]
    fn a_topology_unrolled_keeps_its_paths_and_is_recognised(
        nics in 1u32..4,
        rails in any::<bool>(),
        planes in 1u32..3,
        groups in 2u32..4,
        spines in 1u32..3,
        delay in 0u64..3,
    ) {
        let gbps = BitRate::from_gbps(100 * u64::from(planes));
        let mut host = HostSpec::new(nics, nics, gbps);
        host.rails = rails && nics > 1;
        let (ports, leaves) = if host.rails { (2, nics * groups) } else { (2 * nics, groups) };
        let mut tiers = vec![Tier::new(ports, gbps), Tier::new(leaves, BitRate::from_gbps(100))];
        tiers[0].oversubscription = f64::from(ports) / f64::from(spines);
        for (number, tier) in tiers.iter_mut().enumerate() {
            (tier.length_mm, tier.switch_latency) = (1_000 + 200 * number as u64, Span::from_ns(delay));
        }
        let mut spec = ClosSpec::new(2 * groups, host, tiers);
        spec.planes = planes;
        let by_rule = Topology::new(&TopologySpec::Clos(spec.clone())).expect("a Clos");
        let graph = GraphSpec::unrolled(&by_rule);
        prop_assert_eq!(graph.check(), Ok(()));
        prop_assert_eq!(latencies(&topology(&graph)), latencies(&by_rule));
        let (found, _) = recognise_clos(&graph).expect("the Clos");
        prop_assert_eq!((found.hosts, found.planes), (spec.hosts, spec.planes));
        let inside = |host: HostSpec| (host.gpus, host.nics, host.rails);
        prop_assert_eq!(inside(found.host), inside(spec.host));
        // A single GPU has no scale-up network.
        prop_assert!(nics == 1 || found.host.scale_up == spec.host.scale_up);
        let again = Topology::new(&TopologySpec::Clos(found)).expect("the Clos");
        prop_assert_eq!(latencies(&again), latencies(&by_rule));
    }
}

#[test]
fn a_ring_is_cut_twice() {
    let topology = topology(&grid_graph(&[6], &[true], 1));
    assert_eq!(topology.summary().bisection, BitRate::from_gbps(2 * 100));
    assert_eq!(topology.summary().diameter_links, 3 + 2);
    assert_eq!(topology.shape_name(), "graph");
}

#[test]
fn graphs_that_cannot_be_routed_are_refused() {
    let fault = |graph: &GraphSpec| {
        let error = Topology::new(&TopologySpec::Graph(graph.clone())).expect_err("a fault");
        format!("{}: {error} ({})", error.path(), error.hint().unwrap_or_default())
    };
    let mut graph = grid_graph(&[4], &[true], 1);
    graph.links.push(GraphLink { a: 4, b: 1, ..graph.links[0] });
    assert_eq!(
        fault(&graph),
        "grid: expected 2 links at every host, the links of `h0`, found 1 at `h1` (every link of a host is a NIC, and \
         all hosts are alike: leave the others out)"
    );
    graph.host = Some(HostSpec::new(2, 2, BitRate::from_gbps(1)));
    assert!(
        fault(&graph)
            .starts_with("grid: expected 2 links at every host, the NICs of a host, found 1 at `h1`")
    );
    // Two planes, and a host that names them in the other order.
    let mut spec = ClosSpec::new(
        4,
        HostSpec::new(1, 1, BitRate::from_gbps(100)),
        vec![Tier::new(4, BitRate::from_gbps(100))],
    );
    spec.planes = 2;
    let mut graph = clos_graph(&spec);
    graph.links.swap(0, 4);
    assert_eq!(
        fault(&graph),
        "clos: expected switches that join link 0 of `host0` and of `host1`, found none: without the hosts they are in \
         different parts (hosts do not forward: list the links of every host in the order of its planes or rails)"
    );
    let mut direct = grid_graph(&[3], &[true], 1);
    direct.links.push(GraphLink { a: 3, b: 4, ..direct.links[0] });
    direct.links.push(GraphLink { a: 5, b: 0, ..direct.links[0] });
    assert!(fault(&direct).contains("found `h0` -- `h1` between hosts, which do not forward"));
    let mut split = grid_graph(&[4], &[false], 1);
    split.links.remove(5);
    assert!(fault(&split).starts_with("grid: expected one connected graph, found 2 parts: one of 4 nodes"));
}

proptest! {
    #[test]
    fn a_torus_unrolled_is_recognised_as_one_of_the_same_figures(
        dims in prop::collection::vec((2u32..6, any::<bool>(), 1u32..3), 1..4),
        hosts in 1u32..3,
        nics in 1u32..3,
        seed: u64,
    ) {
        let gbps = BitRate::from_gbps(100);
        let mut direct = DirectSpec::new(gbps);
        (direct.hosts_per_router, direct.host) = (hosts, HostSpec::new(nics, nics, gbps));
        let dimension = |&(size, wrap, links): &(u32, bool, u32)| Dimension {
            size,
            wrap: wrap && size > 2,
            links,
            cable: CableSpec { rate: gbps, length_mm: 2_000, loss: 1e-6 },
        };
        let dimensions = dims.iter().map(dimension).collect();
        let spec = TorusSpec { direct, dimensions, routing: TorusRouting::MinimalAdaptive };
        let by_rule = Topology::new(&TopologySpec::Torus(spec)).expect("a torus");
        let graph = shuffled(&GraphSpec::unrolled(&by_rule), seed);
        let found = recognise_torus(&graph).expect("a torus").0;
        let again = Topology::new(&TopologySpec::Torus(found)).expect("a torus");
        let figures = |topology: &Topology| {
            let summary = topology.summary();
            (summary.hosts, summary.switches, summary.links, summary.diameter_links, summary.diameter_latency)
        };
        prop_assert_eq!(figures(&again), figures(&by_rule));
        prop_assert_eq!(figures(&topology(&graph)), figures(&by_rule));
    }
}
