//! Shapes hidden in graphs are found whatever the order of nodes and cables, and only where they are.

use crate::import_common::{Place, Stream, clos_cables, clos_graph, grid_graph, shuffled};
use proptest::prelude::*;
use windtunnel_kernel::{BitRate, Span};
use windtunnel_topology::graph::{ClosPlace, Recognised, recognise, recognise_clos, recognise_torus};
use windtunnel_topology::{ClosSpec, GraphSpec, HostSpec, NodeKind, Tier, Topology, TopologySpec};

/// Maps every cable of `graph` to the shape and compares with the cables of `found`.
fn assert_same_cables(graph: &GraphSpec, found: &ClosSpec, places: &[ClosPlace]) {
    let place = |node: u32| match places[node as usize] {
        ClosPlace::Host(host) => Place::Host(host),
        ClosPlace::Switch { plane, tier, block, index } => {
            Place::Switch(plane, u32::from(tier), block, index)
        }
    };
    let tier = |place: Place| match place {
        Place::Host(_) => 0,
        Place::Switch(_, tier, ..) => tier + 1,
    };
    let mut mapped: Vec<_> = graph
        .links
        .iter()
        .map(|link| {
            let (a, b) = (place(link.a), place(link.b));
            let (low, high) = if tier(a) < tier(b) { (a, b) } else { (b, a) };
            (low, high, link.rate.bps(), link.latency.ps())
        })
        .collect();
    mapped.sort_unstable();
    let mut due = clos_cables(found);
    due.sort_unstable();
    assert_eq!(mapped, due);
}

prop_compose! {
    fn a_clos()(
        hosts in 1u32..40,
        nics in 1u32..4,
        rails in any::<bool>(),
        planes in 1u32..3,
        leaf in 1u32..5,
        pods in proptest::collection::vec((1u32..4, 1u32..4, 1u32..3), 0..4),
        length in 0u64..5,
    ) -> ClosSpec {
        let mut host = HostSpec::new(1, nics, BitRate::from_gbps(100 * u64::from(planes)));
        host.rails = rails && nics > 1;
        let mut tiers = vec![Tier::new(if host.rails { leaf } else { leaf * nics }, host.scale_up.rate)];
        tiers[0].length_mm = length;
        let mut blocks = 1;
        for (number, &(radix, parents, bundle)) in pods.iter().enumerate() {
            let mut tier = Tier::new(radix * bundle, BitRate::from_gbps(100));
            (tier.bundle, tier.length_mm) = (bundle, 1_000 * number as u64);
            let below = tiers.last_mut().expect("tier 0");
            below.oversubscription = f64::from(below.ports_down) / f64::from(parents * bundle);
            tiers.push(tier);
            blocks *= radix;
        }
        let groups = if host.rails { blocks / nics } else { blocks };
        let most = groups * leaf;
        // A top that joins a single leaf group of more rails than it has room for is no Clos: one group at least.
        let hosts = if most == 0 { 0 } else { 1 + hosts % most };
        let mut spec = ClosSpec::new(hosts, host, tiers);
        spec.planes = planes;
        spec
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_clos_is_found_in_any_order(spec in a_clos(), seed in any::<u64>()) {
        prop_assume!(spec.hosts > 0);
        prop_assume!(Topology::new(&TopologySpec::Clos(spec.clone())).is_ok());
        let graph = clos_graph(&spec);
        // A tier above a single block may leave the planes of a fabric, or a rail, in parts: no such graph is asked for.
        prop_assume!(graph.check().is_ok());
        prop_assume!(!spec.host.rails || parts_without_hosts(&graph) == spec.planes as usize);
        prop_assume!(!spec.host.rails || groups_fit_blocks(&spec));
        let graph = shuffled(&graph, seed);
        let (found, map) = recognise_clos(&graph).expect("a Clos is found");
        prop_assert_eq!(found.hosts, spec.hosts);
        assert_same_cables(&graph, &found, &map.places);
        prop_assert!(Topology::new(&TopologySpec::Clos(found)).is_ok());
    }

    #[test]
    fn a_clos_with_two_cables_swapped_is_not_taken_for_one(seed in any::<u64>()) {
        let mut graph = shuffled(&clos_graph(&ClosSpec::fat_tree(4, BitRate::from_gbps(100))), seed);
        let mut stream = Stream(seed);
        let switch = |node: u32| graph.nodes[node as usize].kind == NodeKind::Switch;
        let between: Vec<usize> =
            (0..graph.links.len()).filter(|&link| switch(graph.links[link].a) && switch(graph.links[link].b)).collect();
        let (first, second) = (between[stream.below(between.len())], between[stream.below(between.len())]);
        let (b, d) = (graph.links[first].b, graph.links[second].b);
        (graph.links[first].b, graph.links[second].b) = (d, b);
        prop_assume!(graph.check().is_ok());
        if let Some((found, map)) = recognise_clos(&graph) {
            // A swap may lead to the same fat tree by other names: then the proof holds.
            assert_same_cables(&graph, &found, &map.places);
        }
    }

    #[test]
    fn every_grid_is_found_in_any_order(
        dims in proptest::collection::vec((2u32..7, any::<bool>()), 1..4),
        hosts in 1u32..3,
        seed in any::<u64>(),
    ) {
        let (sizes, wrap): (Vec<u32>, Vec<bool>) = dims.into_iter().unzip();
        let graph = shuffled(&grid_graph(&sizes, &wrap, hosts), seed);
        let (found, map) = recognise_torus(&graph).expect("a grid is found");
        prop_assert_eq!(found.direct.hosts_per_router, hosts);
        // The cables of the grid found are those of the graph.
        let sizes: Vec<u32> = found.dimensions.iter().rev().map(|dimension| dimension.size).collect();
        // A ring of two is a line of two with two cables.
        let wrap: Vec<bool> =
            found.dimensions.iter().rev().map(|dimension| dimension.wrap || dimension.links == 2).collect();
        let again = grid_graph(&sizes, &wrap, hosts);
        let routers: u32 = sizes.iter().product();
        let number = |node: u32| match graph.nodes[node as usize].kind {
            NodeKind::Switch => map.numbers[node as usize],
            NodeKind::Host => routers + map.numbers[node as usize],
        };
        let ends = |a: u32, b: u32| (a.min(b), a.max(b));
        let mut mapped: Vec<_> = graph.links.iter().map(|link| ends(number(link.a), number(link.b))).collect();
        let mut due: Vec<_> = again.links.iter().map(|link| ends(link.a, link.b)).collect();
        mapped.sort_unstable();
        due.sort_unstable();
        prop_assert_eq!(mapped, due);
    }
}

/// Whether the leaves of a group are never partly in one block and partly in another that holds more of a third.
fn groups_fit_blocks(spec: &ClosSpec) -> bool {
    let mut leaves = 1;
    spec.tiers[1..].iter().all(|tier| {
        leaves *= tier.ports_down / tier.bundle;
        leaves % spec.host.nics == 0 || spec.host.nics.is_multiple_of(leaves)
    })
}

fn parts_without_hosts(graph: &GraphSpec) -> usize {
    let mut part: Vec<usize> = (0..graph.nodes.len()).collect();
    fn root(part: &mut [usize], mut node: usize) -> usize {
        while part[node] != node {
            node = part[node];
        }
        node
    }
    let host = |node: u32| graph.nodes[node as usize].kind == NodeKind::Host;
    for link in graph.links.iter().filter(|link| !host(link.a) && !host(link.b)) {
        let (a, b) = (root(&mut part, link.a as usize), root(&mut part, link.b as usize));
        part[a] = b;
    }
    (0..part.len()).filter(|&node| part[node] == node && !host(node as u32)).count()
}

#[test]
fn shapes_are_named() {
    let name = |graph: &GraphSpec| recognise(graph).map(|found| found.describe());
    let gbps = BitRate::from_gbps(100);
    assert_eq!(name(&clos_graph(&ClosSpec::fat_tree(4, gbps))).as_deref(), Some("4-ary fat tree"));
    let two = vec![Tier::new(4, gbps), Tier::new(4, gbps)];
    assert_eq!(
        name(&clos_graph(&ClosSpec::new(16, HostSpec::new(1, 1, gbps), two))).as_deref(),
        Some("leaf-spine")
    );
    assert_eq!(name(&grid_graph(&[5, 3], &[true, true], 1)).as_deref(), Some("3 x 5 torus"));
    assert_eq!(name(&grid_graph(&[5, 3], &[false, false], 1)).as_deref(), Some("3 x 5 mesh"));
    assert_eq!(name(&grid_graph(&[6], &[true], 1)).as_deref(), Some("ring of 6"));
    assert_eq!(name(&grid_graph(&[4, 4], &[true, true], 1)).as_deref(), Some("4 x 4 torus"));
}

#[test]
fn a_grid_in_its_own_order_keeps_its_numbers() {
    let graph = grid_graph(&[4, 3, 5], &[true, true, false], 2);
    let (found, map) = recognise_torus(&graph).expect("a grid");
    // The innermost dimension is the last one of a spec.
    let sizes: Vec<(u32, bool)> =
        found.dimensions.iter().map(|dimension| (dimension.size, dimension.wrap)).collect();
    assert_eq!(sizes, [(5, false), (3, true), (4, true)]);
    assert_eq!(map.numbers[..60], (0..60).collect::<Vec<u32>>());
    assert_eq!(found.dimensions[0].cable.rate, BitRate::from_gbps(102));
    assert_eq!(found.dimensions[0].cable.length_mm * found.direct.propagation_ps_per_m, 10_000 * 1_000);
    assert_eq!((found.direct.hosts_per_router, found.direct.host.nics), (2, 1));
}

#[test]
fn a_fat_tree_in_its_own_order_is_its_own_spec() {
    let spec = ClosSpec::fat_tree(8, BitRate::from_gbps(400));
    let (found, map) = recognise_clos(&clos_graph(&spec)).expect("a Clos");
    assert_eq!(found, ClosSpec { host: found.host, ..spec });
    for host in 0..128 {
        assert_eq!(map.places[host as usize], ClosPlace::Host(host));
    }
}

#[test]
fn what_differs_in_one_cable_is_no_shape() {
    let changes: [fn(&mut windtunnel_topology::GraphLink); 3] = [
        |link| link.rate = BitRate::from_gbps(1),
        |link| link.latency = Span::from_ns(11),
        |link| link.loss = 1e-6,
    ];
    for change in changes {
        let mut graph = clos_graph(&ClosSpec::fat_tree(4, BitRate::from_gbps(100)));
        change(&mut graph.links[20]);
        assert_eq!(recognise_clos(&graph), None);
        let mut graph = grid_graph(&[5, 4], &[true, true], 1);
        change(&mut graph.links[30]);
        assert_eq!(recognise_torus(&graph), None);
    }
    let mut cut = grid_graph(&[5, 4], &[true, true], 1);
    cut.links.pop();
    assert_eq!(recognise(&cut), None);
    let mut cut = clos_graph(&ClosSpec::fat_tree(4, BitRate::from_gbps(100)));
    cut.links.pop();
    assert_eq!(recognise(&cut), None);
}

#[test]
fn other_shapes_are_not_taken_for_one() {
    // The Petersen graph, a complete graph, and a ring with a chord.
    let petersen: Vec<(u32, u32)> =
        (0..5).flat_map(|i| [(i, (i + 1) % 5), (i, i + 5), (i + 5, (i + 2) % 5 + 5)]).collect();
    let complete = (0..6).flat_map(|a| (0..a).map(move |b| (b, a))).collect();
    let chord = (0..8).map(|i| (i, (i + 1) % 8)).chain([(0, 4)]).collect();
    for (routers, edges) in [(10, petersen), (6, complete), (8, chord)] {
        let mut graph = grid_graph(&[routers], &[false], 1);
        let link = graph.links[0];
        graph.links.truncate(routers as usize);
        graph.links.extend(edges.iter().map(|&(a, b)| windtunnel_topology::GraphLink { a, b, ..link }));
        assert_eq!(graph.check(), Ok(()));
        let found = recognise(&graph);
        assert!(found.is_none(), "{found:?}");
    }
    assert!(matches!(recognise(&grid_graph(&[3], &[true], 1)), Some(Recognised::Torus(..))));
}
