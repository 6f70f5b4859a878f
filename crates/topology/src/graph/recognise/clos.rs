//! A folded Clos in a graph: [`crate::ClosSpec`]'s formula (see `crate::clos`) fitted and proven.
//!
//! The tier of a switch is its distance from the hosts. A block of tier t + 1 is a connected set of switches of tiers
//! t and t + 1 with the blocks below contracted. Along one chain of blocks from a leaf to the top, the upper neighbours
//! of switch w are numbered w + width · c; from the top these numbers then follow downwards, since an upper switch W is
//! joined to switch W mod width of every block below. Blocks are ordered such that the one that is not full is last.
//! Planes are the connected parts of the switches without the hosts. With rails, the leaves of a group must fill whole
//! blocks or fit into one: a group that straddles two blocks is not found.

use std::cmp::Reverse;

use windtunnel_kernel::{BitRate, Span};

use super::{Kind, Uniform, propagation};
use crate::graph::spec::{Adjacency, GraphSpec, NodeKind};
use crate::spec::{ClosSpec, HostSpec, ScaleUpSpec, Tier};

/// What a node of the graph is in the Clos.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClosPlace {
    /// A host by its number.
    Host(u32),
    /// A switch by its address.
    Switch {
        /// Copy of the fabric.
        plane: u32,
        /// From 0, the leaves.
        tier: u8,
        /// Which block of its tier.
        block: u32,
        /// Which switch of its tier in the block.
        index: u32,
    },
}

/// What every node of the graph is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosMap {
    /// By node number.
    pub places: Vec<ClosPlace>,
}

const NONE: u32 = u32::MAX;

/// `8-ary fat tree`, `3-tier clos, 2 planes`.
pub(super) fn describe(spec: &ClosSpec) -> String {
    if let [leaf, agg, core] = spec.tiers[..] {
        let k = core.ports_down;
        let tree = ClosSpec::fat_tree(k, core.rate);
        let ports = tree
            .tiers
            .iter()
            .zip([leaf, agg, core])
            .all(|(a, b)| (a.ports_down, a.rate) == (b.ports_down, b.rate));
        let full = spec.tiers.iter().all(|tier| tier.bundle == 1 && tier.oversubscription == 1.0);
        if ports && full && spec.hosts == tree.hosts && spec.host.nics == 1 && spec.planes == 1 {
            return format!("{k}-ary fat tree");
        }
    }
    let planes = if spec.planes > 1 { format!(", {} planes", spec.planes) } else { String::new() };
    let rails = if spec.host.rails { ", rails" } else { "" };
    match spec.tiers.len() {
        1 => format!("star{rails}{planes}"),
        2 => format!("leaf-spine{rails}{planes}"),
        tiers => format!("{tiers}-tier clos{rails}{planes}"),
    }
}

/// The Clos that a graph is, or `None`. Of what [`ClosSpec`] says and a graph does not, switch delays are zero (they are
/// part of the cables' latency) and a host has one GPU, unless the graph says what is inside.
pub fn recognise_clos(graph: &GraphSpec) -> Option<(ClosSpec, ClosMap)> {
    let adjacency = Adjacency::new(graph.nodes.len(), &graph.links);
    let tiers = tiers(graph, &adjacency)?;
    let plane_of = planes(graph, &adjacency);
    let planes = plane_of.iter().filter(|&&plane| plane != NONE).max()? + 1;
    let hosts: Vec<u32> = (0..graph.nodes.len() as u32).filter(|&node| is_host(graph, node)).collect();
    let mut places = vec![ClosPlace::Host(NONE); graph.nodes.len()];
    // The order of hosts that leaves are sorted by: first of the file, then of plane 0.
    let mut rank: Vec<u32> = (0..graph.nodes.len() as u32).collect();
    let mut common: Option<Sizes> = None;
    for plane in 0..planes {
        let fabric = Fabric { graph, adjacency: &adjacency, tiers: &tiers, plane_of: &plane_of, plane };
        let (sizes, layout) = fabric.fit(&rank)?;
        match &common {
            None => {
                for (&host, number) in hosts.iter().zip(fabric.number_hosts(&hosts, &sizes, &layout, &rank)?)
                {
                    places[host as usize] = ClosPlace::Host(number);
                    rank[host as usize] = number;
                }
                common = Some(sizes.clone());
            }
            Some(first) if *first != sizes => return None,
            Some(_) => {}
        }
        fabric.prove(&sizes, &layout, &rank)?;
        for node in fabric.switches() {
            let (block, index) = (layout.block[node as usize], layout.index[node as usize]);
            places[node as usize] =
                ClosPlace::Switch { plane, tier: tiers[node as usize] as u8, block, index };
        }
    }
    let sizes = common?;
    let spec = sizes.spec(graph, hosts.len() as u32, planes)?;
    Some((spec, ClosMap { places }))
}

fn is_host(graph: &GraphSpec, node: u32) -> bool {
    graph.nodes[node as usize].kind == NodeKind::Host
}

/// Distance of switches from the nearest host, less one; hosts have [`NONE`]. `None` if a cable joins neither a host and
/// a leaf nor neighbouring tiers.
fn tiers(graph: &GraphSpec, adjacency: &Adjacency) -> Option<Vec<u32>> {
    let mut tiers = vec![NONE; graph.nodes.len()];
    let mut level: Vec<u32> = Vec::new();
    for link in &graph.links {
        match (is_host(graph, link.a), is_host(graph, link.b)) {
            (true, true) => return None,
            (false, false) => {}
            (host_first, _) => {
                let leaf = if host_first { link.b } else { link.a };
                if std::mem::replace(&mut tiers[leaf as usize], 0) == NONE {
                    level.push(leaf);
                }
            }
        }
    }
    let mut tier = 0;
    while !level.is_empty() {
        tier += 1;
        let mut next = Vec::new();
        for &node in &level {
            for &(upper, _) in adjacency.of(node) {
                if !is_host(graph, upper) && tiers[upper as usize] == NONE {
                    tiers[upper as usize] = tier;
                    next.push(upper);
                }
            }
        }
        level = next;
    }
    let fits = graph.links.iter().all(|link| {
        let (a, b) = (tiers[link.a as usize], tiers[link.b as usize]);
        a == NONE || b == NONE || a.abs_diff(b) == 1
    });
    // 8-bit tiers, as in the formula.
    (fits && tier <= 255).then_some(tiers)
}

/// Which connected part of the switches each switch is in, by first appearance.
fn planes(graph: &GraphSpec, adjacency: &Adjacency) -> Vec<u32> {
    let mut plane_of = vec![NONE; graph.nodes.len()];
    let mut plane = 0;
    let mut queue = Vec::new();
    for first in 0..graph.nodes.len() as u32 {
        if is_host(graph, first) || plane_of[first as usize] != NONE {
            continue;
        }
        plane_of[first as usize] = plane;
        queue.push(first);
        while let Some(node) = queue.pop() {
            for &(next, _) in adjacency.of(node) {
                if !is_host(graph, next) && plane_of[next as usize] == NONE {
                    plane_of[next as usize] = plane;
                    queue.push(next);
                }
            }
        }
        plane += 1;
    }
    plane_of
}

/// The numbers of one plane.
#[derive(Clone, Debug, PartialEq)]
struct Sizes {
    /// NICs of a host in this plane, and whether each has its own leaf.
    nics: u32,
    rails: bool,
    /// Hosts that share a leaf (rails: a group of leaves).
    group: u32,
    /// From tier 0; of tier 0 unused.
    radix: Vec<u32>,
    /// Links between a lower switch and an upper one, by upper tier; of tier 0: 1.
    bundle: Vec<u32>,
    /// Upper neighbours of a switch, by lower tier.
    parents: Vec<u32>,
    /// Switches of a block.
    width: Vec<u32>,
    /// Of the cables below each tier.
    cables: Vec<Kind>,
}

/// Block and index of every switch of one plane.
struct Layout {
    block: Vec<u32>,
    index: Vec<u32>,
}

struct Fabric<'a> {
    graph: &'a GraphSpec,
    adjacency: &'a Adjacency,
    tiers: &'a [u32],
    plane_of: &'a [u32],
    plane: u32,
}

/// The blocks of one tier while they are found.
struct Blocks {
    /// Switches at the top of each.
    switches: Vec<Vec<u32>>,
    /// Blocks of the tier below in each; of tier 0 none.
    children: Vec<Vec<u32>>,
}

impl Fabric<'_> {
    fn switches(&self) -> impl Iterator<Item = u32> {
        (0..self.graph.nodes.len() as u32).filter(|&node| self.plane_of[node as usize] == self.plane)
    }

    /// Neighbours of a switch one tier up (`up`) or down, with repetitions, sorted.
    fn next_tier(&self, node: u32, up: bool) -> Vec<u32> {
        let tier = self.tiers[node as usize];
        let wanted = if up { tier + 1 } else { tier.wrapping_sub(1) };
        let next = self.adjacency.of(node).iter().map(|&(next, _)| next);
        let mut next: Vec<u32> =
            next.filter(|&next| self.tiers[next as usize] == wanted && !is_host(self.graph, next)).collect();
        next.sort_unstable();
        next
    }

    /// The leaves of a host's NICs in this plane, in the order of its cables.
    fn leaves_of(&self, host: u32) -> Vec<u32> {
        let next = self.adjacency.of(host).iter().map(|&(next, _)| next);
        next.filter(|&next| self.plane_of[next as usize] == self.plane).collect()
    }

    /// Sizes and coordinates that the plane must have if it is a Clos.
    fn fit(&self, rank: &[u32]) -> Option<(Sizes, Layout)> {
        let graph = self.graph;
        let top = self.switches().map(|node| self.tiers[node as usize]).max()?;
        if top == NONE {
            return None;
        }
        let nodes = graph.nodes.len();
        let (nics, rails) = self.nics()?;
        // Blocks, from the leaves up.
        let mut block_of = vec![NONE; nodes];
        let leaves: Vec<u32> = self.switches().filter(|&node| self.tiers[node as usize] == 0).collect();
        for (number, &leaf) in leaves.iter().enumerate() {
            block_of[leaf as usize] = number as u32;
        }
        let children = vec![Vec::new(); leaves.len()];
        let mut tiers = vec![Blocks { switches: leaves.iter().map(|&leaf| vec![leaf]).collect(), children }];
        let (mut radix, mut bundle, mut parents, mut width) = (vec![1], vec![1], Vec::new(), vec![1u32]);
        for tier in 1..=top {
            let lower = tiers.last().expect("tier 0 is there");
            let (up, links) = self.uplinks(lower)?;
            let upper = self.blocks_above(lower, &mut block_of);
            radix.push(upper.children.iter().map(Vec::len).max()? as u32);
            bundle.push(links);
            parents.push(up);
            width.push(width[tier as usize - 1].checked_mul(up)?);
            if upper.switches.iter().any(|switches| switches.len() as u32 != width[tier as usize]) {
                return None;
            }
            tiers.push(upper);
        }
        if tiers.last()?.switches.len() != 1 {
            return None;
        }
        let index = self.indices(&tiers, &width)?;
        let block = self.number_blocks(&tiers, rank)?;
        let hosts_on = |leaf: u32| self.hosts_on(leaf).len() as u32;
        let group = leaves.iter().map(|&leaf| hosts_on(leaf)).max()?;
        let cables = self.cables(top)?;
        let sizes = Sizes { nics, rails, group, radix, bundle, parents, width, cables };
        Some((sizes, Layout { block, index }))
    }

    /// NICs of every host in this plane, and whether they go to different leaves.
    fn nics(&self) -> Option<(u32, bool)> {
        let mut common = None;
        for host in (0..self.graph.nodes.len() as u32).filter(|&node| is_host(self.graph, node)) {
            let mut leaves = self.leaves_of(host);
            let nics = leaves.len() as u32;
            leaves.sort_unstable();
            leaves.dedup();
            let rails = match leaves.len() as u32 {
                1 => false,
                distinct if distinct == nics => true,
                _ => return None,
            };
            if *common.get_or_insert((nics, rails)) != (nics, rails) {
                return None;
            }
        }
        common
    }

    /// Hosts on a leaf, once each, in the order of its cables.
    fn hosts_on(&self, leaf: u32) -> Vec<u32> {
        let next = self.adjacency.of(leaf).iter().map(|&(next, _)| next);
        let mut hosts: Vec<u32> = next.filter(|&next| is_host(self.graph, next)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// Upper neighbours of every switch at the top of the blocks, and the links to each of them.
    fn uplinks(&self, lower: &Blocks) -> Option<(u32, u32)> {
        let mut common = None;
        for &switch in lower.switches.iter().flatten() {
            let uppers = self.next_tier(switch, true);
            let mut runs = uppers.chunk_by(|a, b| a == b).map(<[u32]>::len);
            let bundle = runs.next()?;
            let parents = 1 + runs.clone().count();
            if runs.any(|run| run != bundle) || *common.get_or_insert((parents, bundle)) != (parents, bundle)
            {
                return None;
            }
        }
        common.map(|(parents, bundle)| (parents as u32, bundle as u32))
    }

    /// Blocks of the next tier: what is joined through it.
    fn blocks_above(&self, lower: &Blocks, block_of: &mut [u32]) -> Blocks {
        let mut blocks = Blocks { switches: Vec::new(), children: Vec::new() };
        let mut seen = vec![false; lower.switches.len()];
        for first in 0..lower.switches.len() as u32 {
            if std::mem::replace(&mut seen[first as usize], true) {
                continue;
            }
            let number = blocks.switches.len() as u32;
            let (mut switches, mut children, mut queue) = (Vec::new(), Vec::new(), vec![first]);
            while let Some(child) = queue.pop() {
                children.push(child);
                for &switch in &lower.switches[child as usize] {
                    for upper in self.next_tier(switch, true) {
                        if block_of[upper as usize] != NONE {
                            continue;
                        }
                        block_of[upper as usize] = number;
                        switches.push(upper);
                        for below in self.next_tier(upper, false) {
                            let other = block_of[below as usize];
                            if !std::mem::replace(&mut seen[other as usize], true) {
                                queue.push(other);
                            }
                        }
                    }
                }
            }
            blocks.switches.push(switches);
            blocks.children.push(children);
        }
        blocks
    }

    /// Index of every switch in its block.
    fn indices(&self, tiers: &[Blocks], width: &[u32]) -> Option<Vec<u32>> {
        let mut index = vec![NONE; self.graph.nodes.len()];
        // One chain, from its leaf up.
        let mut chain = vec![0u32];
        for tier in tiers[1..].iter().rev() {
            chain.push(*tier.children[*chain.last()? as usize].first()?);
        }
        chain.reverse();
        index[tiers[0].switches[chain[0] as usize][0] as usize] = 0;
        for (tier, &block) in chain.iter().enumerate().take(tiers.len() - 1) {
            for &switch in &tiers[tier].switches[block as usize] {
                let mut uppers = self.next_tier(switch, true);
                uppers.dedup();
                let w = index[switch as usize];
                for (c, upper) in uppers.into_iter().enumerate() {
                    if std::mem::replace(&mut index[upper as usize], w + width[tier] * c as u32) != NONE {
                        return None;
                    }
                }
            }
        }
        // All the others, from the top down.
        for (tier, blocks) in tiers.iter().enumerate().rev().skip(1) {
            for &switch in blocks.switches.iter().flatten() {
                let upper = *self.next_tier(switch, true).first()?;
                index[switch as usize] = index[upper as usize] % width[tier];
            }
        }
        Some(index)
    }

    /// Number of every switch's block: full ones first, then by their first host and its cable.
    fn number_blocks(&self, tiers: &[Blocks], rank: &[u32]) -> Option<Vec<u32>> {
        // (hosts, first host, which of its cables), by tier and block.
        let mut keys: Vec<Vec<(u32, u32, u32)>> = Vec::new();
        for (tier, blocks) in tiers.iter().enumerate() {
            let mut of_tier = Vec::with_capacity(blocks.switches.len());
            for (switches, children) in blocks.switches.iter().zip(&blocks.children) {
                of_tier.push(if tier == 0 {
                    let hosts = self.hosts_on(switches[0]);
                    let first = *hosts.iter().min_by_key(|&&host| rank[host as usize])?;
                    let cable = self.leaves_of(first).iter().position(|&leaf| leaf == switches[0])?;
                    (hosts.len() as u32, rank[first as usize], cable as u32)
                } else {
                    let below = children.iter().map(|&child| keys[tier - 1][child as usize]);
                    let (hosts, first) = below
                        .fold((0, (NONE, NONE)), |(sum, first), (hosts, host, cable)| {
                            (sum + hosts, first.min((host, cable)))
                        });
                    (hosts, first.0, first.1)
                });
            }
            keys.push(of_tier);
        }
        let mut block = vec![NONE; self.graph.nodes.len()];
        let mut order = vec![0u32];
        for tier in (0..tiers.len()).rev() {
            for (number, &found) in order.iter().enumerate() {
                for &switch in &tiers[tier].switches[found as usize] {
                    block[switch as usize] = number as u32;
                }
            }
            let mut below = Vec::new();
            for &found in &order {
                let mut children = tiers[tier].children[found as usize].clone();
                children.sort_unstable_by_key(|&child| {
                    let (hosts, first, cable) = keys[tier - 1][child as usize];
                    (Reverse(hosts), first, cable)
                });
                below.append(&mut children);
            }
            order = below;
        }
        Some(block)
    }

    /// The kind of the cables below every tier of this plane.
    fn cables(&self, top: u32) -> Option<Vec<Kind>> {
        let mut kinds = vec![Uniform::default(); top as usize + 1];
        for link in &self.graph.links {
            let switch = if is_host(self.graph, link.a) { link.b } else { link.a };
            if self.plane_of[switch as usize] != self.plane {
                continue;
            }
            // A host's cable is below tier 0, which wraps around to it.
            let tier =
                [link.a, link.b].map(|end| self.tiers[end as usize]).into_iter().filter(|&tier| tier != NONE);
            let tier = tier.max()?;
            if !kinds[tier as usize].agrees(link) {
                return None;
            }
        }
        kinds.into_iter().map(|kind| kind.0).collect()
    }

    /// Numbers of `hosts`, leaf by leaf.
    fn number_hosts(&self, hosts: &[u32], sizes: &Sizes, layout: &Layout, rank: &[u32]) -> Option<Vec<u32>> {
        let leaves_per_group = if sizes.rails { sizes.nics } else { 1 };
        let mut order: Vec<(u32, u32, usize)> = Vec::with_capacity(hosts.len());
        for (position, &host) in hosts.iter().enumerate() {
            let leaf = *self.leaves_of(host).first()?;
            order.push((layout.block[leaf as usize] / leaves_per_group, rank[host as usize], position));
        }
        order.sort_unstable();
        let mut numbers = vec![NONE; hosts.len()];
        for (number, &(.., position)) in order.iter().enumerate() {
            numbers[position] = number as u32;
        }
        Some(numbers)
    }

    /// Checks every cable of the plane against the formula; `number` is the hosts' numbers.
    fn prove(&self, sizes: &Sizes, layout: &Layout, number: &[u32]) -> Option<()> {
        let Layout { block, index } = layout;
        // Every (block, index) of a tier once.
        let mut seen: Vec<Vec<bool>> = Vec::new();
        let top = sizes.width.len() - 1;
        let mut blocks = vec![0u32; top + 1];
        for node in self.switches() {
            let tier = self.tiers[node as usize] as usize;
            blocks[tier] = blocks[tier].max(block[node as usize] + 1);
        }
        for (tier, &blocks) in blocks.iter().enumerate() {
            seen.push(vec![false; blocks as usize * sizes.width[tier] as usize]);
        }
        for node in self.switches() {
            let tier = self.tiers[node as usize] as usize;
            let slot =
                block[node as usize] as usize * sizes.width[tier] as usize + index[node as usize] as usize;
            if index[node as usize] >= sizes.width[tier] || std::mem::replace(&mut seen[tier][slot], true) {
                return None;
            }
        }
        if seen.iter().flatten().any(|&seen| !seen) {
            return None;
        }
        // As many blocks as the formula makes.
        let hosts = self.graph.host_count() as u32;
        let leaves_per_group = if sizes.rails { sizes.nics } else { 1 };
        let mut due = hosts.div_ceil(sizes.group).checked_mul(leaves_per_group)?;
        for (tier, &blocks) in blocks.iter().enumerate() {
            if tier > 0 {
                due = due.div_ceil(sizes.radix[tier]);
            }
            if blocks != due {
                return None;
            }
        }
        // The number of a switch's upper neighbours and of the links to each has been checked: all are the right ones.
        for link in &self.graph.links {
            let ends = [link.a, link.b];
            let Some(&host) = ends.iter().find(|&&end| is_host(self.graph, end)) else {
                if self.plane_of[link.a as usize] != self.plane {
                    continue;
                }
                let below = |end: &u32| self.tiers[*end as usize];
                let (lower, upper) =
                    if below(&link.a) < below(&link.b) { (link.a, link.b) } else { (link.b, link.a) };
                let tier = below(&lower) as usize;
                let right = block[upper as usize] == block[lower as usize] / sizes.radix[tier + 1]
                    && index[upper as usize] % sizes.width[tier] == index[lower as usize];
                if !right {
                    return None;
                }
                continue;
            };
            let leaf = if host == link.a { link.b } else { link.a };
            if self.plane_of[leaf as usize] == self.plane
                && block[leaf as usize] / leaves_per_group != number[host as usize] / sizes.group
            {
                return None;
            }
        }
        // Where it matters which GPU a NIC is of, NIC k of a host is on the k-th leaf of its group.
        if sizes.rails && self.graph.host.is_some() {
            for host in (0..self.graph.nodes.len() as u32).filter(|&node| is_host(self.graph, node)) {
                let leaves = self.leaves_of(host);
                let in_order =
                    leaves.iter().zip(0..).all(|(&leaf, nic)| block[leaf as usize] % sizes.nics == nic);
                if !in_order {
                    return None;
                }
            }
        }
        Some(())
    }
}

impl Sizes {
    fn spec(&self, graph: &GraphSpec, hosts: u32, planes: u32) -> Option<ClosSpec> {
        let (propagation_ps_per_m, length) = propagation(self.cables.iter().map(|kind| kind.latency));
        let mut tiers = Vec::with_capacity(self.width.len());
        for (tier, &Kind { rate, latency, loss }) in self.cables.iter().enumerate() {
            let ports_down = match tier {
                0 if self.rails => self.group,
                0 => self.group.checked_mul(self.nics)?,
                _ => self.radix[tier].checked_mul(self.bundle[tier])?,
            };
            let mut spec = Tier::new(ports_down, rate);
            spec.bundle = self.bundle[tier];
            spec.length_mm = length(latency);
            spec.loss = loss;
            if let Some(above) = self.cables.get(tier + 1) {
                let uplinks = f64::from(self.parents[tier] * self.bundle[tier + 1]);
                spec.oversubscription =
                    f64::from(ports_down) * rate.bps() as f64 / (uplinks * above.rate.bps() as f64);
            }
            tiers.push(spec);
        }
        // A NIC has one port into every plane.
        tiers[0].rate = BitRate::from_bps(tiers[0].rate.bps().checked_mul(u64::from(planes))?);
        let host = match graph.host {
            Some(host) if host.nics == self.nics * planes => {
                HostSpec { nics: self.nics, rails: self.rails, ..host }
            }
            Some(_) => return None,
            None => HostSpec {
                gpus: 1,
                nics: self.nics,
                rails: self.rails,
                scale_up: ScaleUpSpec { size: None, rate: tiers[0].rate, latency: Span::ZERO },
            },
        };
        Some(ClosSpec { hosts, host, tiers, planes, propagation_ps_per_m })
    }
}
