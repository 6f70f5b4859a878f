//! What is exported and read again is the graph that was.

use crate::import_common::{clos_graph, grid_graph, shuffled};
use proptest::prelude::*;
use windtunnel_kernel::{BitRate, Span};
use windtunnel_topology::export::{edge_list, graphml, htsim, htsim_clos, ns3};
use windtunnel_topology::import::{Format, Imported, detect, import};
use windtunnel_topology::{
    ClosSpec, Defaults, GraphLink, GraphNode, GraphSpec, HostSpec, NodeKind, ScaleUpSpec, Tier,
};

fn read(text: &str, expected: Format) -> GraphSpec {
    assert_eq!(detect("graph", text), Ok(expected), "{text}");
    match import(expected, "graph", text, &Defaults::default()) {
        Ok(Imported::Graph(graph)) => graph,
        other => panic!("expected a graph, found {other:?} in\n{text}"),
    }
}

prop_compose! {
    /// A connected graph of switches with hosts, some cables parallel, with odd names, rates and latencies.
    fn a_graph()(
        switches in proptest::collection::vec((0u32..100, any::<bool>()), 1..8),
        hosts in proptest::collection::vec((0u32..100, 1u64..u64::MAX, 0u64..1 << 50), 1..8),
        chords in proptest::collection::vec((0u32..100, 0u32..100, 1u64..1 << 45, 0u64..1 << 40, 0u32..3), 0..12),
        odd in any::<bool>(),
    ) -> GraphSpec {
        let count = switches.len() as u32;
        let mut nodes = Vec::new();
        let mut links = Vec::new();
        for (number, &(parent, tiered)) in switches.iter().enumerate() {
            let name = if odd { format!("#s, \"{number}\" & <{number}>") } else { format!("s{number}") };
            nodes.push(GraphNode { name, kind: NodeKind::Switch, tier: tiered.then_some(number as u8) });
            if number > 0 {
                let (a, b) = (number as u32, parent % number as u32);
                links.push(GraphLink { a, b, rate: BitRate::from_bps(7), latency: Span::ZERO, loss: 0.1 });
            }
        }
        for (number, &(at, rate, latency)) in hosts.iter().enumerate() {
            nodes.push(GraphNode { name: format!("h{number}"), kind: NodeKind::Host, tier: None });
            let (a, b) = (count + number as u32, at % count);
            links.push(GraphLink { a, b, rate: BitRate::from_bps(rate), latency: Span::from_ps(latency), loss: 0.0 });
        }
        for &(a, b, rate, latency, parallel) in &chords {
            let (a, b) = (a % count, b % count);
            if a != b {
                let link = GraphLink { a, b, rate: BitRate::from_bps(rate), latency: Span::from_ps(latency), loss: 1e-6 };
                links.extend(std::iter::repeat_n(link, parallel as usize + 1));
            }
        }
        GraphSpec { nodes, links, host: None, source: "graph".to_owned() }
    }
}

/// Nodes in the order in which links name them, and equal parallel links together: how an edge list sees a graph.
fn in_order_of_links(graph: &GraphSpec) -> GraphSpec {
    let mut number = vec![u32::MAX; graph.nodes.len()];
    let mut nodes = Vec::new();
    let mut links: Vec<GraphLink> = Vec::new();
    let pair = |link: &GraphLink| (link.a.min(link.b), link.a.max(link.b));
    for (index, link) in graph.links.iter().enumerate() {
        if graph.links[..index].iter().any(|earlier| pair(earlier) == pair(link)) {
            continue;
        }
        links.extend(graph.links[index..].iter().filter(|later| pair(later) == pair(link)).map(|_| *link));
    }
    for link in &mut links {
        for end in [&mut link.a, &mut link.b] {
            let new = &mut number[*end as usize];
            if *new == u32::MAX {
                *new = nodes.len() as u32;
                nodes.push(graph.nodes[*end as usize].clone());
            }
            *end = *new;
        }
    }
    GraphSpec { nodes, links, ..graph.clone() }
}

/// Of several different parallel cables the first only.
fn equal_parallels(graph: &GraphSpec) -> GraphSpec {
    let mut links: Vec<GraphLink> = Vec::new();
    for link in &graph.links {
        let same = |known: &GraphLink| {
            (known.a.min(known.b), known.a.max(known.b)) == (link.a.min(link.b), link.a.max(link.b))
        };
        match links.iter().find(|known| same(known)) {
            Some(known)
                if (known.rate, known.latency, known.loss) != (link.rate, link.latency, link.loss) => {}
            _ => links.push(*link),
        }
    }
    GraphSpec { links, ..graph.clone() }
}

fn without_parallels(graph: &GraphSpec) -> GraphSpec {
    let mut links: Vec<GraphLink> = Vec::new();
    for link in &graph.links {
        let same = |known: &GraphLink| {
            (known.a.min(known.b), known.a.max(known.b)) == (link.a.min(link.b), link.a.max(link.b))
        };
        if !links.iter().any(same) {
            links.push(*link);
        }
    }
    GraphSpec { links, ..graph.clone() }
}

proptest! {
    #[test]
    fn graphml_keeps_everything(graph in a_graph()) {
        prop_assert_eq!(graph.check(), Ok(()));
        prop_assert_eq!(read(&graphml(&graph), Format::GraphMl), graph);
    }

    #[test]
    fn an_edge_list_keeps_cables_and_names(graph in a_graph()) {
        let graph = in_order_of_links(&equal_parallels(&graph));
        prop_assert_eq!(read(&edge_list(&graph).expect("equal parallels"), Format::EdgeList), graph);
    }

    #[test]
    fn ns3_text_keeps_cables_and_kinds(graph in a_graph()) {
        let mut graph = without_parallels(&graph);
        for (number, node) in graph.nodes.iter_mut().enumerate() {
            (node.name, node.tier) = (number.to_string(), None);
        }
        prop_assert_eq!(read(&ns3(&graph).expect("no parallels"), Format::Ns3), graph);
    }

    #[test]
    fn simai_text_keeps_servers(servers in 1u32..5, gpus in 2u32..5, ports in 1u32..3, scale_up in any::<bool>()) {
        // GPU g of every server is at leaf g; with two ports also at leaf g + 1, round.
        let mut nodes: Vec<GraphNode> = (0..servers)
            .map(|server| GraphNode { name: format!("server{server}"), kind: NodeKind::Host, tier: None })
            .collect();
        let first = servers * gpus + if scale_up { servers } else { 0 };
        for switch in 0..=gpus {
            let name = (first + switch).to_string();
            nodes.push(GraphNode { name, kind: NodeKind::Switch, tier: None });
        }
        let link = |a, b| GraphLink { a, b, rate: BitRate::from_gbps(400), latency: Span::from_ns(500), loss: 0.0 };
        let mut links = Vec::new();
        for server in 0..servers {
            for port in 0..gpus * ports {
                links.push(link(server, servers + (port / ports + port % ports) % gpus));
            }
        }
        links.extend((0..gpus).map(|leaf| link(servers + leaf, servers + gpus)));
        let size = if scale_up { None } else { Some(1) };
        let rate = if scale_up { BitRate::from_gbps(2_880) } else { BitRate::ZERO };
        let latency = if scale_up { Span::from_ps(50_002) } else { Span::ZERO };
        let scale_up = ScaleUpSpec { size, rate, latency };
        let host = HostSpec { gpus, nics: gpus * ports, rails: false, scale_up };
        let graph = GraphSpec { nodes, links, host: Some(host), source: "graph".to_owned() };
        prop_assert_eq!(read(&ns3(&graph).expect("even hosts"), Format::Ns3), graph);
    }

    #[test]
    fn htsim_keeps_every_clos_that_it_can_say(
        hosts in 1u32..4,
        leaves in 1u32..4,
        pods in 0u32..4,
        ups in (1u32..4, 1u32..4),
        bundles in (1u32..3, 1u32..3),
        ratios in (1u32..4, 1u32..4),
    ) {
        let gbps = BitRate::from_gbps(100);
        let mut tiers = vec![Tier::new(hosts, gbps), Tier::new(leaves * bundles.0, gbps)];
        tiers[1].bundle = bundles.0;
        // Uplinks of a whole oversubscription: down / ratio where that is whole, 1 to 1 elsewhere.
        let mut join = |lower: usize, parents: u32, bundle: u32, ratio: u32| {
            let down = parents * bundle * ratio;
            tiers[lower].ports_down = tiers[lower].ports_down.div_ceil(down) * down;
            tiers[lower].oversubscription = f64::from(tiers[lower].ports_down) / f64::from(parents * bundle);
        };
        join(0, ups.0, bundles.0, ratios.0);
        let mut count = tiers[0].ports_down * leaves;
        if pods > 0 {
            let down = ups.1 * bundles.1 * ratios.1;
            let leaves = leaves.div_ceil(down) * down;
            tiers[1].ports_down = leaves * bundles.0;
            tiers[1].oversubscription = f64::from(leaves * bundles.0) / f64::from(ups.1 * bundles.1);
            let mut top = Tier::new(pods * bundles.1, gbps);
            top.bundle = bundles.1;
            tiers.push(top);
            count = tiers[0].ports_down * leaves * pods;
        }
        for (number, tier) in tiers.iter_mut().enumerate() {
            tier.length_mm = 200 * (number as u64 + 1);
            tier.switch_latency = Span::from_ns(number as u64);
        }
        let spec = ClosSpec::new(count, HostSpec::new(1, 1, gbps), tiers);
        let text = htsim_clos(&spec, "clos").expect("sizes that htsim can say");
        let again = import(Format::Htsim, "clos", &text, &Defaults::default());
        prop_assert_eq!(again, Ok(Imported::Clos(spec)), "{}", text);
    }
}

#[test]
fn a_fat_tree_goes_to_htsim_from_a_graph() {
    let mut spec = ClosSpec::fat_tree(4, BitRate::from_gbps(100));
    spec.tiers.iter_mut().for_each(|tier| tier.length_mm = 200);
    let text = htsim(&shuffled(&clos_graph(&spec), 7)).expect("a fat tree");
    let again = import(Format::Htsim, "clos", &text, &Defaults::default());
    assert_eq!(again, Ok(Imported::Clos(spec)));
}

#[test]
fn what_a_format_cannot_say_is_told() {
    let error = htsim(&grid_graph(&[5, 5], &[true, true], 1)).unwrap_err();
    assert_eq!(error.to_string(), "expected a leaf-spine or a fat tree for htsim, found another shape");
    let mut spec = ClosSpec::fat_tree(4, BitRate::from_gbps(100));
    let error = htsim_clos(&spec, "x").unwrap_err();
    assert!(error.to_string().contains("of a link at least 1"), "{error}");
    spec.tiers.iter_mut().for_each(|tier| tier.length_mm = 200);
    spec.planes = 2;
    assert!(htsim_clos(&spec, "x").unwrap_err().to_string().contains("found 1 on 2"));
    spec.planes = 1;
    spec.hosts = 15;
    assert!(htsim_clos(&spec, "x").unwrap_err().to_string().contains("multiples of 4"));
    (spec.hosts, spec.tiers[0].ports_down, spec.tiers[0].oversubscription) = (12, 3, 1.5);
    assert!(htsim_clos(&spec, "x").unwrap_err().to_string().contains("a whole number for htsim, found 1.5"));

    let mut graph = grid_graph(&[2], &[true], 1);
    assert!(ns3(&graph).unwrap_err().to_string().contains("found two between `r1` and `r0`"));
    graph.links[2].rate = BitRate::from_bps(1);
    let error = edge_list(&graph).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected parallel links to be equal in an edge list, found different ones between `r1` and `r0`"
    );
    assert_eq!(error.hint().as_deref(), Some("GraphML keeps them apart"));
}
