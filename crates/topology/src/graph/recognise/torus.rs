//! A torus or mesh of any number of dimensions in a graph of routers with hosts.
//!
//! Three facts of a grid suffice. Two neighbours of a router in different dimensions have exactly two common neighbours,
//! itself and the far corner of their square. Two on one line have only the router itself, but on a ring of three, where
//! they are neighbours, and on a ring of four, which is the product of two lines of two. So the lines through one
//! router of least degree (a corner, if there is one) can be walked, the far corner of every square of known routers is
//! the next one to get coordinates, and rings of four are found as pairs of lines of two.

use super::{Kind, Uniform, propagation};
use crate::graph::host_spec;
use crate::graph::spec::{Adjacency, GraphSpec, NodeKind};
use crate::spec::{Dimension, DirectSpec, TorusRouting, TorusSpec};
use windtunnel_kernel::Span;

/// What every node of the graph is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorusMap {
    /// By node number. Of a router: its number. Of a host: its number, hosts of a router being in the order of nodes.
    pub numbers: Vec<u32>,
}

const NONE: u32 = u32::MAX;

/// `4 x 4 x 2 torus`, `8 x 8 mesh`, `ring of 16`; if only some dimensions are rings: `4 (ring) x 2 torus`.
pub(super) fn describe(spec: &TorusSpec) -> String {
    let sizes: Vec<String> = spec.dimensions.iter().map(|dimension| dimension.size.to_string()).collect();
    if spec.dimensions.iter().all(|dimension| dimension.wrap) {
        return match &sizes[..] {
            [size] => format!("ring of {size}"),
            _ => format!("{} torus", sizes.join(" x ")),
        };
    }
    if !spec.dimensions.iter().any(|dimension| dimension.wrap) {
        return format!("{} mesh", sizes.join(" x "));
    }
    let mark = |dimension: &Dimension| {
        if dimension.wrap { format!("{} (ring)", dimension.size) } else { dimension.size.to_string() }
    };
    let marked: Vec<String> = spec.dimensions.iter().map(mark).collect();
    format!("{} torus", marked.join(" x "))
}

/// One dimension while it is found.
struct Axis {
    /// Routers on the line through the origin, which is the first.
    line: Vec<u32>,
    wrap: bool,
}

/// Routers and their distinct neighbours.
struct Routers {
    nodes: Vec<u32>,
    /// Neighbours by router number, sorted, with the number of cables.
    next: Vec<Vec<(u32, u32)>>,
}

/// The torus or mesh that a graph is, or `None`. The same graph can be two grids: a hypercube of 16 is found as a torus
/// of 4 x 4. Routers are numbered from one of least degree, first dimension outermost; the routing is the default, by
/// the order of dimensions, which a graph does not tell; a router's delay is part of its cables' latency.
pub fn recognise_torus(graph: &GraphSpec) -> Option<(TorusSpec, TorusMap)> {
    let adjacency = Adjacency::new(graph.nodes.len(), &graph.links);
    let routers = Routers::new(graph, &adjacency);
    let count = routers.nodes.len();
    if count < 2 {
        return None;
    }
    // Innermost dimension first here, last in the spec.
    let axes = routers.axes()?;
    let sizes: Vec<u32> = axes.iter().map(|axis| axis.line.len() as u32).collect();
    if sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size as usize))? != count {
        return None;
    }
    let number = routers.coordinates(&axes, &sizes)?;
    let wrap: Vec<bool> = axes.iter().map(|axis| axis.wrap).collect();
    let cables = routers.prove(graph, &number, &sizes, &wrap)?;
    let (found, number) = join_pairs(&sizes, &wrap, &cables, &number);
    let (hosts_per_router, nic, numbers) = hosts(graph, &adjacency, &routers, &number)?;
    let (_, host) = host_spec(graph).ok()?;
    let latencies = found.iter().map(|axis| axis.cable.latency).chain([nic.latency]);
    let (propagation_ps_per_m, length) = propagation(latencies);
    let dimension = |axis: &FoundAxis| Dimension {
        size: axis.size,
        wrap: axis.wrap,
        links: axis.links,
        cable: axis.cable.spec(&length),
    };
    let spec = TorusSpec {
        direct: DirectSpec {
            host,
            hosts_per_router,
            nic: nic.spec(&length),
            router_latency: Span::ZERO,
            propagation_ps_per_m,
        },
        dimensions: found.iter().rev().map(dimension).collect(),
        routing: TorusRouting::default(),
    };
    Some((spec, TorusMap { numbers }))
}

impl Routers {
    fn new(graph: &GraphSpec, adjacency: &Adjacency) -> Self {
        let is_switch = |node: &u32| graph.nodes[*node as usize].kind == NodeKind::Switch;
        let nodes: Vec<u32> = (0..graph.nodes.len() as u32).filter(is_switch).collect();
        let mut router_of = vec![NONE; graph.nodes.len()];
        for (router, &node) in nodes.iter().enumerate() {
            router_of[node as usize] = router as u32;
        }
        let mut next = Vec::with_capacity(nodes.len());
        for &node in &nodes {
            let routers = adjacency.of(node).iter().map(|&(next, _)| router_of[next as usize]);
            let mut routers: Vec<u32> = routers.filter(|&router| router != NONE).collect();
            routers.sort_unstable();
            next.push(routers.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32)).collect());
        }
        Self { nodes, next }
    }

    fn neighbours(&self, router: u32) -> impl Iterator<Item = u32> {
        self.next[router as usize].iter().map(|&(next, _)| next)
    }

    fn adjacent(&self, a: u32, b: u32) -> bool {
        self.next[a as usize].binary_search_by_key(&b, |&(next, _)| next).is_ok()
    }

    /// Whether two routers have the neighbour `only` in common and no other.
    fn meet_only_in(&self, a: u32, b: u32, only: u32) -> bool {
        a != b && self.neighbours(a).all(|next| self.adjacent(next, b) == (next == only))
    }

    /// The lines through a router of least degree.
    fn axes(&self) -> Option<Vec<Axis>> {
        let degree = |router: &u32| self.next[*router as usize].len();
        let origin = (0..self.nodes.len() as u32).min_by_key(|router| (degree(router), *router))?;
        // Beyond 31 lines of two there are more routers than ids.
        if degree(&origin) > 64 {
            return None;
        }
        let mut open: Vec<u32> = self.neighbours(origin).collect();
        let mut axes = Vec::new();
        while !open.is_empty() {
            let first = open.remove(0);
            let partner = open
                .iter()
                .position(|&other| self.adjacent(first, other))
                .or_else(|| open.iter().position(|&other| self.meet_only_in(first, other, origin)));
            let last = partner.map(|position| open.remove(position));
            axes.push(self.walk(origin, first, last)?);
        }
        Some(axes)
    }

    /// The line that begins `origin`, `first` and, if it is a ring, comes back through `last`.
    fn walk(&self, origin: u32, first: u32, last: Option<u32>) -> Option<Axis> {
        let mut line = vec![origin, first];
        if let Some(last) = last
            && self.adjacent(first, last)
        {
            line.push(last);
            return Some(Axis { line, wrap: true });
        }
        let (mut before, mut at) = (origin, first);
        loop {
            let straight = |next: &u32| {
                *next != before && self.meet_only_in(before, *next, at) && !self.adjacent(before, *next)
            };
            let mut ahead = self.neighbours(at).filter(straight);
            let next = ahead.next();
            if ahead.next().is_some() || line.len() > self.nodes.len() {
                return None;
            }
            match next {
                // A ring ends where it began.
                Some(next) if next == origin => {
                    return (last == Some(at)).then_some(Axis { line, wrap: true });
                }
                Some(next) => {
                    line.push(next);
                    (before, at) = (at, next);
                }
                None => return last.is_none().then_some(Axis { line, wrap: false }),
            }
        }
    }

    /// Number of every router, square by square.
    fn coordinates(&self, axes: &[Axis], sizes: &[u32]) -> Option<Vec<u32>> {
        let strides = strides(sizes);
        let mut at = vec![NONE; self.nodes.len()];
        let mut number = vec![NONE; self.nodes.len()];
        for index in 0..self.nodes.len() as u32 {
            let coordinate = |axis: usize| index / strides[axis] % sizes[axis];
            let mut off_origin = (0..sizes.len()).filter(|&axis| coordinate(axis) > 0);
            let router = match (off_origin.next(), off_origin.next()) {
                (None, _) => axes[0].line[0],
                (Some(axis), None) => axes[axis].line[(index / strides[axis]) as usize],
                (Some(i), Some(j)) => {
                    let behind = |stride: u32| at[(index - stride) as usize];
                    let (a, b, corner) =
                        (behind(strides[i]), behind(strides[j]), behind(strides[i] + strides[j]));
                    let mut far = self.neighbours(a).filter(|&next| next != corner && self.adjacent(next, b));
                    let router = far.next()?;
                    if far.next().is_some() {
                        return None;
                    }
                    router
                }
            };
            if number[router as usize] != NONE {
                return None;
            }
            number[router as usize] = index;
            at[index as usize] = router;
        }
        Some(number)
    }

    /// Checks every cable; kind and number of parallel cables of every dimension.
    fn prove(
        &self,
        graph: &GraphSpec,
        number: &[u32],
        sizes: &[u32],
        wrap: &[bool],
    ) -> Option<Vec<(Kind, u32)>> {
        let strides = strides(sizes);
        // The dimension that a cable between two numbers is in.
        let axis_of = |a: u32, b: u32| {
            let (low, high) = (a.min(b), a.max(b));
            (0..sizes.len()).find(|&axis| {
                let coordinate = |number: u32| number / strides[axis] % sizes[axis];
                let (from, to) = (coordinate(low), coordinate(high));
                // From high to low by this dimension alone.
                let along = from != to && from.abs_diff(to) * strides[axis] == high - low;
                along && (from.abs_diff(to) == 1 || (wrap[axis] && from.abs_diff(to) == sizes[axis] - 1))
            })
        };
        let mut cables: Vec<Option<u32>> = vec![None; sizes.len()];
        for (router, next) in self.next.iter().enumerate() {
            let due = |axis: usize| {
                let coordinate = number[router] / strides[axis] % sizes[axis];
                let ends = u32::from(coordinate == 0) + u32::from(coordinate == sizes[axis] - 1);
                if wrap[axis] { 2 } else { 2 - ends }
            };
            if next.len() as u32 != (0..sizes.len()).map(due).sum::<u32>() {
                return None;
            }
            for &(other, parallel) in next {
                let axis = axis_of(number[router], number[other as usize])?;
                if *cables[axis].get_or_insert(parallel) != parallel {
                    return None;
                }
            }
        }
        let mut router_of = vec![NONE; graph.nodes.len()];
        for (router, &node) in self.nodes.iter().enumerate() {
            router_of[node as usize] = router as u32;
        }
        let mut kinds = vec![Uniform::default(); sizes.len()];
        for link in &graph.links {
            let (a, b) = (router_of[link.a as usize], router_of[link.b as usize]);
            if a != NONE && b != NONE {
                let axis = axis_of(number[a as usize], number[b as usize])?;
                if !kinds[axis].agrees(link) {
                    return None;
                }
            }
        }
        kinds.into_iter().zip(cables).map(|(kind, cables)| Some((kind.0?, cables?))).collect()
    }
}

fn strides(sizes: &[u32]) -> Vec<u32> {
    let mut stride = 1;
    let next = |size: &u32| {
        let this = stride;
        stride *= size;
        this
    };
    sizes.iter().map(next).collect()
}

/// A dimension as it is in the spec.
struct FoundAxis {
    size: u32,
    wrap: bool,
    links: u32,
    cable: Kind,
}

/// Pairs of lines of two with equal cables become rings of four; dimensions, and the numbers of routers.
fn join_pairs(
    sizes: &[u32],
    wrap: &[bool],
    cables: &[(Kind, u32)],
    number: &[u32],
) -> (Vec<FoundAxis>, Vec<u32>) {
    let old_strides = strides(sizes);
    // Each new dimension with the old ones it is made of.
    let mut made: Vec<(usize, Option<usize>)> = Vec::new();
    let mut taken = vec![false; sizes.len()];
    for axis in 0..sizes.len() {
        if taken[axis] {
            continue;
        }
        let partner = (axis + 1..sizes.len()).find(|&other| {
            !taken[other] && sizes[axis] == 2 && sizes[other] == 2 && cables[axis] == cables[other]
        });
        if let Some(other) = partner {
            taken[other] = true;
        }
        made.push((axis, partner));
    }
    let found: Vec<FoundAxis> = made
        .iter()
        .map(|&(axis, partner)| FoundAxis {
            size: if partner.is_some() { 4 } else { sizes[axis] },
            wrap: partner.is_some() || wrap[axis],
            links: cables[axis].1,
            cable: cables[axis].0,
        })
        .collect();
    let new_strides = strides(&found.iter().map(|axis| axis.size).collect::<Vec<_>>());
    let renumber = |&old: &u32| {
        let coordinate = |axis: usize| old / old_strides[axis] % sizes[axis];
        let along = |&(axis, partner): &(usize, Option<usize>)| match partner {
            None => coordinate(axis),
            // Around the square: 00, 10, 11, 01.
            Some(other) => match (coordinate(axis), coordinate(other)) {
                (0, 0) => 0,
                (1, 0) => 1,
                (1, 1) => 2,
                _ => 3,
            },
        };
        made.iter().zip(&new_strides).map(|(of, stride)| along(of) * stride).sum()
    };
    (found, number.iter().map(renumber).collect())
}

/// Hosts of every router, their cables, and the numbers of all nodes.
fn hosts(
    graph: &GraphSpec,
    adjacency: &Adjacency,
    routers: &Routers,
    number: &[u32],
) -> Option<(u32, Kind, Vec<u32>)> {
    let mut numbers = vec![NONE; graph.nodes.len()];
    let mut kind = Uniform::default();
    let mut per_router = None;
    for (router, &node) in routers.nodes.iter().enumerate() {
        numbers[node as usize] = number[router];
        let is_host = |next: &u32| graph.nodes[*next as usize].kind == NodeKind::Host;
        let next = adjacency.of(node).iter().map(|&(next, _)| next);
        let mut hosts: Vec<u32> = next.filter(is_host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let count = hosts.len() as u32;
        if *per_router.get_or_insert(count) != count {
            return None;
        }
        for (place, &host) in hosts.iter().enumerate() {
            // All cables of a host lead to its one router.
            for &(at, cable) in adjacency.of(host) {
                if at != node || !kind.agrees(&graph.links[cable as usize]) {
                    return None;
                }
            }
            numbers[host as usize] = number[router].checked_mul(count)? + place as u32;
        }
    }
    // Every host has been seen: none hangs on another host.
    if numbers.contains(&NONE) {
        return None;
    }
    Some((per_router?, kind.0?, numbers))
}
