//! Paths by rule against paths by search: a graph is built in the open, switch by switch and cable by cable, and its
//! shortest legal (up, then down) paths are found breadth first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use windtunnel_kernel::{BitRate, EndpointId, Id, NicId, Span};
use windtunnel_topology::{
    ClosSpec, HostSpec, LinkId, LoadBalancer, PathClass, Route, ScaleUpSpec, Tier, Topology, TopologySpec,
};

struct Edge {
    from: usize,
    to: usize,
    up: bool,
    name: String,
    rate: u64,
}

/// The explicit network: NICs, switches and directed links, by name.
#[derive(Default)]
struct Graph {
    names: Vec<String>,
    numbers: BTreeMap<String, usize>,
    edges: Vec<Edge>,
}

impl Graph {
    fn node(&mut self, name: &str) -> usize {
        *self.numbers.entry(name.to_owned()).or_insert_with(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }

    fn cable(&mut self, lower: &str, upper: &str, suffix: &str, rate: u64) {
        let (from, to) = (self.node(lower), self.node(upper));
        self.edges.push(Edge { from, to, up: true, name: format!("{lower} -> {upper}{suffix}"), rate });
        self.edges.push(Edge {
            from: to,
            to: from,
            up: false,
            name: format!("{upper} -> {lower}{suffix}"),
            rate,
        });
    }

    /// Plugs everything together as the module page of `ClosSpec` says, by lists of names.
    fn build(spec: &ClosSpec) -> Self {
        let mut graph = Self::default();
        let (hosts, nics, tiers) = (spec.hosts, spec.host.nics, &spec.tiers);
        for plane in 0..spec.planes {
            let prefix = if spec.planes > 1 { format!("plane{plane}/") } else { String::new() };
            let rate = tiers[0].rate.bps() / u64::from(spec.planes);
            let per_leaf = if spec.host.rails { tiers[0].ports_down } else { tiers[0].ports_down / nics };
            let mut blocks: Vec<Vec<String>> = Vec::new();
            for host in 0..hosts {
                let group = host / per_leaf;
                for nic in 0..nics {
                    let leaf = if spec.host.rails {
                        format!("{prefix}leaf{group}.{nic}")
                    } else {
                        format!("{prefix}leaf{group}")
                    };
                    graph.cable(&format!("host{host}/nic{nic}"), &leaf, "", rate);
                    if !blocks.contains(&vec![leaf.clone()]) {
                        blocks.push(vec![leaf]);
                    }
                }
            }
            let mut rate_down = rate as f64;
            for tier in 1..tiers.len() {
                let (lower, upper) = (&tiers[tier - 1], &tiers[tier]);
                let (bundle, rate_up) = (upper.bundle, upper.rate.bps());
                let uplinks =
                    f64::from(lower.ports_down) * rate_down / (lower.oversubscription * rate_up as f64);
                let parents = uplinks.round() as usize / bundle as usize;
                let radix = (upper.ports_down / bundle) as usize;
                let mut next = Vec::new();
                for (number, children) in blocks.chunks(radix).enumerate() {
                    let width = children[0].len();
                    let top: Vec<String> = (0..width * parents)
                        .map(|index| match tier {
                            _ if tier + 1 == tiers.len() => format!("{prefix}spine{index}"),
                            1 => format!("{prefix}agg{number}.{index}"),
                            _ => format!("{prefix}tier{tier}-{number}.{index}"),
                        })
                        .collect();
                    for (index, switch) in top.iter().enumerate() {
                        for child in children {
                            for parallel in 0..bundle {
                                let suffix = if bundle > 1 { format!(" #{parallel}") } else { String::new() };
                                graph.cable(&child[index % width], switch, &suffix, rate_up);
                            }
                        }
                    }
                    next.push(top);
                }
                blocks = next;
                rate_down = rate_up as f64;
            }
            assert_eq!(blocks.len(), 1, "the top tier is one block");
        }
        graph
    }

    /// Distances over legal moves, from (forward) or to (backward) a node, of every (node, has descended).
    fn distances(&self, start: usize, forward: bool) -> Vec<[Option<u32>; 2]> {
        let mut distance = vec![[None; 2]; self.names.len()];
        let mut queue = VecDeque::new();
        if forward {
            distance[start][0] = Some(0);
            queue.push_back((start, 0));
        } else {
            distance[start] = [Some(0); 2];
            queue.extend([(start, 0), (start, 1)]);
        }
        while let Some((node, phase)) = queue.pop_front() {
            for edge in &self.edges {
                let (here, there) = if forward { (edge.from, edge.to) } else { (edge.to, edge.from) };
                // A move up keeps phase 0, a move down leads from either phase into 1.
                let phases: &[usize] = match (edge.up, phase) {
                    (true, 0) => &[0],
                    (false, 1) if !forward => &[0, 1],
                    (false, _) if forward => &[1],
                    _ => &[],
                };
                for &next in phases {
                    if here == node && distance[there][next].is_none() {
                        distance[there][next] = Some(distance[node][phase].unwrap() + 1);
                        queue.push_back((there, next));
                    }
                }
            }
        }
        distance
    }

    /// Length of the shortest legal paths, and the names of all links on any of them.
    fn shortest(&self, from: usize, to: usize) -> (u32, BTreeSet<&str>) {
        let (ahead, behind) = (self.distances(from, true), self.distances(to, false));
        let length = ahead[to].iter().flatten().min().copied().expect("a connected network");
        let on_path = |edge: &&Edge| {
            let after = usize::from(!edge.up);
            let phases = if edge.up { 0..1 } else { 0..2 };
            phases.into_iter().any(|before| {
                matches!((ahead[edge.from][before], behind[edge.to][after]),
                    (Some(a), Some(b)) if a + 1 + b == length)
            })
        };
        (length, self.edges.iter().filter(on_path).map(|edge| edge.name.as_str()).collect())
    }
}

fn spec() -> impl Strategy<Value = ClosSpec> {
    // Per tier: radix, parents, bundle, rate in units of 12 Gbps (divisible by up to four planes).
    let tier = (1..=3u32, 1..=3u32, 1..=2u32, 1..=3u64);
    let host = (1..=2u32, 0..4usize, any::<bool>(), any::<bool>());
    (prop::collection::vec(tier, 1..=4), host, 1..=3u32, 1..=100u32).prop_filter_map(
        "the fabric holds no host",
        |(sizes, (gpus, nics, rails, scale_up), planes, percent)| {
            let nics = [1, gpus, 2 * gpus, 4 * gpus][nics];
            let rails = rails && sizes.len() > 1;
            let leaf_ports = sizes[0].0 * if rails { 1 } else { nics };
            let rate = |index: usize| 12_000_000_000 * sizes[index].3;
            let tiers: Vec<Tier> = (0..sizes.len())
                .map(|index| {
                    let (radix, _, bundle, _) = sizes[index];
                    let bundle = if index == 0 { 1 } else { bundle };
                    let ports_down = if index == 0 { leaf_ports } else { radix * bundle };
                    let rate_down = rate(index) / if index == 0 { u64::from(planes) } else { 1 };
                    let oversubscription = sizes.get(index + 1).map_or(1.0, |&(_, parents, bundle, _)| {
                        let up = f64::from(parents * bundle) * rate(index + 1) as f64;
                        f64::from(ports_down) * rate_down as f64 / up
                    });
                    Tier {
                        ports_down,
                        oversubscription,
                        rate: BitRate::from_bps(rate(index)),
                        length_mm: 1_000 + 700 * index as u64,
                        bundle,
                        switch_latency: Span::from_ns(100 + index as u64),
                        loss: 0.001 * index as f64,
                    }
                })
                .collect();
            let leaves: u32 = sizes[1..].iter().map(|size| size.0).product();
            let groups = if rails { leaves / nics } else { leaves };
            let fit = groups * sizes[0].0;
            let size = if scale_up { gpus } else { 1 };
            let scale_up =
                ScaleUpSpec { size: Some(size), rate: BitRate::from_gbps(900), latency: Span::from_ns(500) };
            (fit > 0).then(|| ClosSpec {
                hosts: (fit * percent).div_ceil(100),
                host: HostSpec { gpus, nics, rails, scale_up },
                tiers,
                planes,
                propagation_ps_per_m: 5_000,
            })
        },
    )
}

fn names(topology: &Topology, route: &Route) -> Vec<String> {
    route.links.iter().map(|&(link, _)| topology.link_name(link)).collect()
}

/// What leaves a node equals what enters it, the ends apart.
fn assert_conserved(topology: &Topology, route: &Route) {
    let mut balance = BTreeMap::new();
    for &(link, share) in &route.links {
        let (from, to) = topology.link_ends(link);
        *balance.entry(from).or_insert(0.0) -= share;
        *balance.entry(to).or_insert(0.0) += share;
    }
    let mut ends: Vec<f64> = balance.into_values().filter(|sum: &f64| sum.abs() > 1e-12).collect();
    ends.sort_by(f64::total_cmp);
    // A pair that shares a NIC closes a circle.
    assert!(
        ends.is_empty() || ends.len() == 2 && (ends[0] + 1.0).abs() < 1e-12 && (ends[1] - 1.0).abs() < 1e-12,
        "{ends:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn rule_and_search_agree(spec in spec(), picks: [(u16, u16, u8, u32); 6], seed: u64) {
        let topology = Topology::new(&TopologySpec::Clos(spec.clone())).unwrap();
        let mut graph = Graph::build(&spec);

        // The same links, each once, dense, of the same rate; names are unique.
        let links: Vec<LinkId> = (0..topology.link_count()).map(LinkId::from_index).collect();
        let scale_up = if topology.scale_up_size() > 1 { 2 * topology.endpoints() as usize } else { 0 };
        let found: BTreeMap<String, u64> =
            links[scale_up..].iter().map(|&link| (topology.link_name(link), topology.link(link).rate.bps())).collect();
        let expected: BTreeMap<String, u64> =
            graph.edges.iter().map(|edge| (edge.name.clone(), edge.rate)).collect();
        prop_assert_eq!(expected.len(), graph.edges.len());
        prop_assert_eq!(&found, &expected);
        let all: BTreeSet<String> = links.iter().map(|&link| topology.link_name(link)).collect();
        prop_assert_eq!(all.len(), links.len());

        let per_host = topology.endpoints_per_host();
        for (from, to, nic, entropy) in picks {
            let (from, to) = (u32::from(from) % topology.endpoints(), u32::from(to) % topology.endpoints());
            let (a, b) = (EndpointId(from), EndpointId(to));
            let mut route = Route::new();
            let mut way = |balancer| {
                topology.route(balancer, seed, a, b, NicId(nic), entropy, &mut route);
                route.clone()
            };
            if from == to {
                prop_assert_eq!(way(LoadBalancer::Ecmp), Route::new());
                continue;
            }
            if from / per_host == to / per_host && topology.scale_up_size() > 1 {
                let route = way(LoadBalancer::Ecmp);
                let host = from / per_host;
                let (out, into) = (from % per_host, to % per_host);
                prop_assert_eq!(names(&topology, &route), [
                    format!("host{host}/gpu{out} -> host{host}/scale-up"),
                    format!("host{host}/scale-up -> host{host}/gpu{into}"),
                ]);
                prop_assert_eq!((route.latency, route.class), (Span::from_ns(500), PathClass::ScaleUp));
                continue;
            }
            let own = (spec.host.nics / per_host).max(1);
            prop_assert_eq!(topology.nics_per_endpoint(), own);
            let nic_name = |endpoint: u32| {
                let gpu = endpoint % per_host;
                format!("host{}/nic{}", endpoint / per_host, gpu * spec.host.nics / per_host + u32::from(nic) % own)
            };
            let (first, last) = (graph.node(&nic_name(from)), graph.node(&nic_name(to)));
            // Two endpoints with one NIC turn at its leaf, which a search from a node to itself does not see.
            let (length, expected) = if first == last {
                let own = |edge: &&Edge| edge.from == first || edge.to == first;
                (2, graph.edges.iter().filter(own).map(|edge| edge.name.as_str()).collect())
            } else {
                graph.shortest(first, last)
            };

            let spray = way(LoadBalancer::Spray);
            let sprayed = names(&topology, &spray);
            prop_assert_eq!(sprayed.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected.clone());
            prop_assert_eq!(sprayed.len(), expected.len(), "every link once");
            assert_conserved(&topology, &spray);
            let class = match length {
                2 => PathClass::SameLeaf,
                4 => PathClass::SamePod,
                _ => PathClass::Beyond,
            };
            if u32::from(nic) % own == 0 {
                prop_assert_eq!(topology.path_class(a, b), class);
            }
            for balancer in [LoadBalancer::Ecmp, LoadBalancer::DestinationModulo] {
                let route = way(balancer);
                prop_assert_eq!(route.links.len(), length as usize);
                prop_assert!(names(&topology, &route).iter().all(|name| expected.contains(name.as_str())));
                for pair in route.links.windows(2) {
                    prop_assert_eq!(topology.link_ends(pair[0].0).1, topology.link_ends(pair[1].0).0);
                }
                let latency: Span = route.links.iter().map(|&(link, _)| topology.link(link).latency).sum();
                prop_assert_eq!((route.latency, route.class), (latency, class));
                prop_assert!(route.links.iter().all(|&(_, share)| share == 1.0));
                prop_assert_eq!(spray.latency, latency);
            }
            let ideal = way(LoadBalancer::Ideal);
            prop_assert_eq!((ideal.latency, ideal.class), (spray.latency, class));
            prop_assert_eq!(ideal.links.len(), 2 * spec.planes as usize);
            let ends = [spray.links[..spec.planes as usize].to_vec(),
                spray.links[spray.links.len() - spec.planes as usize..].to_vec()].concat();
            prop_assert_eq!(ideal.links.to_vec(), ends);
        }
    }
}

/// Every equal-cost link is found by some entropy, planes and parallel links included.
#[test]
fn hashing_reaches_every_shortest_path() {
    let rate = BitRate::from_gbps(400);
    let mut tiers = vec![Tier::new(4, rate), Tier::new(4, rate), Tier::new(8, rate)];
    (tiers[1].bundle, tiers[2].bundle) = (2, 2);
    tiers[0].rate = BitRate::from_gbps(800);
    let mut spec = ClosSpec::new(16, HostSpec::new(1, 1, rate), tiers);
    spec.planes = 2;
    let topology = Topology::new(&TopologySpec::Clos(spec)).unwrap();
    let (from, to) = (EndpointId(1), EndpointId(14));
    let mut route = Route::new();
    topology.route(LoadBalancer::Spray, 1, from, to, NicId(0), 0, &mut route);
    let all: BTreeMap<LinkId, f64> = route.links.iter().copied().collect();
    let mut counts: BTreeMap<LinkId, u32> = BTreeMap::new();
    let flows = 20_000;
    for entropy in 0..flows {
        topology.route(LoadBalancer::Ecmp, 1, from, to, NicId(0), entropy, &mut route);
        for &(link, _) in &route.links {
            *counts.entry(link).or_default() += 1;
        }
    }
    assert_eq!(counts.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>());
    for (link, share) in all {
        let expected = share * f64::from(flows);
        let found = f64::from(counts[&link]);
        assert!((found - expected).abs() < 6.0 * expected.sqrt(), "{link:?}: {found} of {expected}");
    }
}
