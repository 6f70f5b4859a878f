//! Graphs made from the definitions of the shapes, node by node, and a shuffle: what importers and the recognition of
//! shapes are compared with.

use windtunnel_kernel::{BitRate, Span};
use windtunnel_topology::{ClosSpec, GraphLink, GraphNode, GraphSpec, NodeKind};

/// A host or a switch (plane, tier, block, index) of a Clos.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Host(u32),
    Switch(u32, u32, u32, u32),
}

/// Ends and properties of a cable of a Clos, lower end first.
pub type Cable = (Place, Place, u64, u64);

/// Every cable of a Clos, by the definition in the docs of `ClosSpec`: a switch at the top of a lower block has `bundle`
/// links to each of its own group of switches of the block above.
pub fn clos_cables(spec: &ClosSpec) -> Vec<Cable> {
    let mut cables = Vec::new();
    let latency = |tier: usize| spec.tiers[tier].length_mm * spec.propagation_ps_per_m / 1_000;
    let ports = spec.tiers[0].ports_down;
    let (group, leaves_per_group) =
        if spec.host.rails { (ports, spec.host.nics) } else { (ports / spec.host.nics, 1) };
    let leaves = spec.hosts.div_ceil(group) * leaves_per_group;
    for plane in 0..spec.planes {
        let port_rate = spec.tiers[0].rate.bps() / u64::from(spec.planes);
        for host in 0..spec.hosts {
            for nic in 0..spec.host.nics {
                let leaf = host / group * leaves_per_group + if spec.host.rails { nic } else { 0 };
                cables.push((Place::Host(host), Place::Switch(plane, 0, leaf, 0), port_rate, latency(0)));
            }
        }
        let (mut blocks, mut width) = (leaves, 1);
        for upper in 1..spec.tiers.len() {
            let (down, up) = (&spec.tiers[upper - 1], &spec.tiers[upper]);
            let rate = if upper == 1 { port_rate } else { down.rate.bps() };
            let uplinks =
                f64::from(down.ports_down) * rate as f64 / (down.oversubscription * up.rate.bps() as f64);
            let parents = uplinks.round() as u32 / up.bundle;
            let radix = up.ports_down / up.bundle;
            for block in 0..blocks {
                for index in 0..width {
                    for parent in 0..parents {
                        for _ in 0..up.bundle {
                            let above =
                                Place::Switch(plane, upper as u32, block / radix, index + width * parent);
                            let below = Place::Switch(plane, upper as u32 - 1, block, index);
                            cables.push((below, above, up.rate.bps(), latency(upper)));
                        }
                    }
                }
            }
            blocks = blocks.div_ceil(radix);
            width *= parents;
        }
    }
    cables
}

/// The graph of a Clos: hosts first, then switches in the order of cables.
pub fn clos_graph(spec: &ClosSpec) -> GraphSpec {
    let mut places: Vec<Place> = (0..spec.hosts).map(Place::Host).collect();
    let cables = clos_cables(spec);
    let mut switches: Vec<Place> = cables
        .iter()
        .flat_map(|cable| [cable.0, cable.1])
        .filter(|place| matches!(place, Place::Switch(..)))
        .collect();
    switches.sort_unstable();
    switches.dedup();
    places.append(&mut switches);
    let node = |place: &Place| match *place {
        Place::Host(host) => GraphNode { name: format!("host{host}"), kind: NodeKind::Host, tier: None },
        Place::Switch(plane, tier, block, index) => GraphNode {
            name: format!("switch{plane}.{tier}.{block}.{index}"),
            kind: NodeKind::Switch,
            tier: Some(tier as u8),
        },
    };
    let number = |place: Place| places.binary_search(&place).expect("every place has been listed") as u32;
    let links = cables.iter().map(|&(a, b, rate, latency)| GraphLink {
        a: number(a),
        b: number(b),
        rate: BitRate::from_bps(rate),
        latency: Span::from_ps(latency),
        loss: 0.0,
    });
    let links = links.collect();
    GraphSpec { nodes: places.iter().map(node).collect(), links, host: None, source: "clos".to_owned() }
}

/// Routers of a grid with `hosts` each; dimension d has rate `100 + d` Gbps. Innermost dimension first.
pub fn grid_graph(sizes: &[u32], wrap: &[bool], hosts: u32) -> GraphSpec {
    let routers: u32 = sizes.iter().product();
    let mut nodes = Vec::new();
    let mut links = Vec::new();
    for router in 0..routers {
        nodes.push(GraphNode { name: format!("r{router}"), kind: NodeKind::Switch, tier: None });
    }
    for host in 0..routers * hosts {
        nodes.push(GraphNode { name: format!("h{host}"), kind: NodeKind::Host, tier: None });
        links.push((routers + host, host / hosts, 400));
    }
    let mut stride = 1;
    for (axis, &size) in sizes.iter().enumerate() {
        for router in 0..routers {
            let at = router / stride % size;
            let next = if at + 1 < size { router + stride } else { router - at * stride };
            if at + 1 < size || wrap[axis] {
                links.push((router, next, 100 + axis as u64));
            }
        }
        stride *= size;
    }
    let link = |(a, b, gbps): (u32, u32, u64)| GraphLink {
        a,
        b,
        rate: BitRate::from_gbps(gbps),
        latency: Span::from_ns(10),
        loss: 0.0,
    };
    GraphSpec { nodes, links: links.into_iter().map(link).collect(), host: None, source: "grid".to_owned() }
}

/// A stream of numbers for shuffles.
pub struct Stream(pub u64);

impl Stream {
    pub fn below(&mut self, limit: usize) -> usize {
        // SplitMix64 (Steele, Lea, Flood, OOPSLA'14).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }

    fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

/// The same graph with nodes and links in another order and ends of links swapped at random.
pub fn shuffled(graph: &GraphSpec, seed: u64) -> GraphSpec {
    let mut stream = Stream(seed);
    let order = stream.order(graph.nodes.len());
    let mut number = vec![0u32; order.len()];
    for (new, &old) in order.iter().enumerate() {
        number[old] = new as u32;
    }
    let links = stream.order(graph.links.len()).into_iter().map(|old| {
        let link = graph.links[old];
        let (a, b) = (number[link.a as usize], number[link.b as usize]);
        let (a, b) = if stream.below(2) == 0 { (a, b) } else { (b, a) };
        GraphLink { a, b, ..link }
    });
    let links = links.collect();
    GraphSpec { nodes: order.iter().map(|&old| graph.nodes[old].clone()).collect(), links, ..graph.clone() }
}
