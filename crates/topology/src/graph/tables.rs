//! Next hops by table, for graphs without a formula.
//!
//! Breadth-first searches over switches from every *leaf* (a switch with NICs), 64 at once: all hosts of a leaf share
//! its entry.
//! Leaves are numbered such that those two hops apart are neighbours (the pods of a Clos, the routers of a row), so that
//! the entries of a switch are few runs of leaves with the same ports; each run is stored by its first leaf and the
//! number of its set of ports. Sets are stored once for all switches, as runs of consecutive ports, and so are whole
//! tables of switches that have the same one. The least hop counts alone decide; every next switch is one hop nearer,
//! so that no packet loops.
//!
//! Memory: 8 bytes a run. A look-up is a binary search among the runs of the switch.

use rustc_hash::{FxHashMap, FxHashSet};

use super::fabric::{NONE, Switches};
use crate::port::PortSet;

/// Leaves from `leaf` on, up to the next run, by the ports of `set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    leaf: u32,
    set: u32,
}

/// The set of no ports: the switch itself, or a leaf in another part.
const EMPTY: u32 = 0;

#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// Number of every switch among the leaves; [`NONE`] for others.
    leaf_of: Vec<u32>,
    /// Table of every switch.
    table_of: Vec<u32>,
    /// First run of every table, and one more.
    first_run: Vec<u32>,
    runs: Vec<Run>,
    /// First (port, count) of every set, and one more.
    first_ports: Vec<u32>,
    ports: Vec<(u32, u32)>,
    diameter: u32,
}

/// Sets of ports, each once.
struct Sets {
    first: Vec<u32>,
    ports: Vec<(u32, u32)>,
    known: FxHashMap<Vec<(u32, u32)>, u32>,
}

impl Sets {
    fn new() -> Self {
        // The empty set is number 0.
        let known = FxHashMap::from_iter([(Vec::new(), EMPTY)]);
        Self { first: vec![0, 0], ports: Vec::new(), known }
    }

    fn number(&mut self, runs: &[(u32, u32)]) -> u32 {
        if let Some(&set) = self.known.get(runs) {
            return set;
        }
        let set = self.first.len() as u32 - 1;
        self.ports.extend_from_slice(runs);
        self.first.push(self.ports.len() as u32);
        self.known.insert(runs.to_vec(), set);
        set
    }
}

impl Tables {
    /// Of a fabric and its switches with NICs.
    pub(super) fn build(switches: &Switches<'_>, leaves: &[u32]) -> Self {
        let count = switches.count() as usize;
        let order = order(switches, leaves);
        let mut leaf_of = vec![NONE; count];
        for (number, &leaf) in order.iter().enumerate() {
            leaf_of[leaf as usize] = number as u32;
        }
        let mut sets = Sets::new();
        let mut rows: Vec<Vec<Run>> = vec![Vec::new(); count];
        let mut diameter = 0;
        for (batch, leaves) in order.chunks(BATCH).enumerate() {
            let levels = Levels::search(switches, leaves);
            diameter = diameter.max(levels.farthest(&order));
            for at in 0..count as u32 {
                // Leaves that are not reached, and the switch itself, have no ports.
                let mut set_of = [EMPTY; BATCH];
                for (leaves, runs) in levels.nearer(switches, at) {
                    let set = sets.number(&runs);
                    for leaf in bits(leaves) {
                        set_of[leaf as usize] = set;
                    }
                }
                let row = &mut rows[at as usize];
                for (leaf, &set) in (batch as u32 * BATCH as u32..).zip(&set_of[..leaves.len()]) {
                    if row.last().is_none_or(|run| run.set != set) {
                        row.push(Run { leaf, set });
                    }
                }
            }
        }
        let (mut table_of, mut first_run, mut all) = (Vec::with_capacity(count), vec![0u32], Vec::new());
        let mut known: FxHashMap<Vec<Run>, u32> = FxHashMap::default();
        for row in rows {
            let next = known.len() as u32;
            let table = *known.entry(row).or_insert_with_key(|row| {
                all.extend_from_slice(row);
                first_run.push(all.len() as u32);
                next
            });
            table_of.push(table);
        }
        all.shrink_to_fit();
        Self { leaf_of, table_of, first_run, runs: all, first_ports: sets.first, ports: sets.ports, diameter }
    }

    /// Appends the equal-cost ports of `at` towards `to`; `false` if `to` is no leaf.
    #[inline]
    pub(super) fn ports(&self, at: u32, to: u32, ports: &mut PortSet) -> bool {
        let leaf = self.leaf_of[to as usize];
        if leaf == NONE {
            return false;
        }
        let table = self.table_of[at as usize] as usize;
        let runs = &self.runs[self.first_run[table] as usize..self.first_run[table + 1] as usize];
        let run = runs[runs.partition_point(|run| run.leaf <= leaf) - 1];
        let set = run.set as usize;
        let range = self.first_ports[set] as usize..self.first_ports[set + 1] as usize;
        for &(first, count) in &self.ports[range] {
            ports.push_run(first, count);
        }
        true
    }

    /// Hops between the farthest leaves.
    pub(super) fn diameter(&self) -> u32 {
        self.diameter
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let Self { leaf_of, table_of, first_run, runs, first_ports, ports, diameter: _ } = self;
        [leaf_of, table_of, first_run, first_ports].iter().map(|list| list.len() * 4).sum::<usize>()
            + size_of_val(runs.as_slice())
            + size_of_val(ports.as_slice())
    }
}

/// Appends the equal-cost ports of `at` towards a switch that is no leaf, by a search of its own.
pub(super) fn search(switches: &Switches<'_>, at: u32, to: u32, ports: &mut PortSet) {
    for (_, runs) in Levels::search(switches, &[to]).nearer(switches, at) {
        for (first, count) in runs {
            ports.push_run(first, count);
        }
    }
}

/// Leaves that are searched from at once: the bits of a word.
const BATCH: usize = 64;

/// Numbers of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros());
        word &= word.wrapping_sub(1);
        bit
    })
}

/// Breadth-first searches from up to [`BATCH`] switches together: of every number of hops and every switch, a bit for
/// each of those that it is so far from.
struct Levels {
    exactly: Vec<Vec<u64>>,
}

/// Consecutive ports: the first and how many.
type Ports = Vec<(u32, u32)>;

impl Levels {
    fn search(switches: &Switches<'_>, from: &[u32]) -> Self {
        let mut first = vec![0u64; switches.count() as usize];
        for (bit, &switch) in from.iter().enumerate() {
            first[switch as usize] |= 1 << bit;
        }
        let mut seen = first.clone();
        let mut exactly = vec![first];
        loop {
            let last = exactly.last().expect("the first is there");
            let reach = |at: u32| {
                let around = switches.next(at).fold(0, |word, (_, next)| word | last[next as usize]);
                around & !seen[at as usize]
            };
            let next: Vec<u64> = (0..switches.count()).map(reach).collect();
            if next.iter().all(|&word| word == 0) {
                return Self { exactly };
            }
            for (seen, next) in seen.iter_mut().zip(&next) {
                *seen |= next;
            }
            exactly.push(next);
        }
    }

    /// Most hops to any of `leaves`.
    fn farthest(&self, leaves: &[u32]) -> u32 {
        let reached = |level: &&Vec<u64>| leaves.iter().any(|&leaf| level[leaf as usize] != 0);
        (self.exactly.len() - 1 - self.exactly.iter().rev().take_while(|level| !reached(level)).count())
            as u32
    }

    /// The ports of `at` whose far end is one hop nearer, with the leaves for which they are these.
    fn nearer(&self, switches: &Switches<'_>, at: u32) -> Vec<(u64, Ports)> {
        let mut all = Vec::new();
        for pair in self.exactly.windows(2) {
            let here = pair[1][at as usize];
            if here == 0 {
                continue;
            }
            // Leaves with the same ports so far; every port splits some.
            let mut groups: Vec<(u64, Ports)> = vec![(here, Vec::new())];
            for (port, next) in switches.next(at) {
                let through = pair[0][next as usize] & here;
                if through == 0 {
                    continue;
                }
                for index in 0..groups.len() {
                    let (leaves, ports) = &mut groups[index];
                    let with = *leaves & through;
                    if with == 0 {
                        continue;
                    }
                    let without = (*leaves & !through, ports.clone());
                    *leaves = with;
                    match ports.last_mut() {
                        Some((first, count)) if *first + *count == port => *count += 1,
                        _ => ports.push((port, 1)),
                    }
                    if without.0 != 0 {
                        groups.push(without);
                    }
                }
            }
            all.append(&mut groups);
        }
        all
    }
}

/// The leaves, those that are joined by chains of at most two hops together.
fn order(switches: &Switches<'_>, leaves: &[u32]) -> Vec<u32> {
    let is_leaf: FxHashSet<u32> = leaves.iter().copied().collect();
    let mut seen = vec![false; switches.count() as usize];
    // A switch in the middle need be opened once only.
    let mut opened = vec![false; switches.count() as usize];
    let mut order = Vec::with_capacity(leaves.len());
    for &first in leaves {
        if std::mem::replace(&mut seen[first as usize], true) {
            continue;
        }
        let mut at = order.len();
        order.push(first);
        while at < order.len() {
            let leaf = order[at];
            at += 1;
            for (_, middle) in switches.next(leaf) {
                if std::mem::replace(&mut opened[middle as usize], true) {
                    continue;
                }
                let around = switches.next(middle).map(|(_, next)| next);
                for next in around.chain([middle]) {
                    if is_leaf.contains(&next) && !std::mem::replace(&mut seen[next as usize], true) {
                        order.push(next);
                    }
                }
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::{BitRate, RandomStream, Span};

    use crate::graph::{Graph, GraphLink, GraphNode, GraphSpec, NodeKind, host_spec};
    use crate::hosts::Hosts;

    /// A k-ary fat tree, cores first, so that nothing rests on the order of nodes.
    fn fat_tree(k: u32) -> GraphSpec {
        let half = k / 2;
        let (cores, in_tier) = (half * half, half * k);
        let kinds = [(cores + 2 * in_tier, NodeKind::Switch), (half * half * k, NodeKind::Host)];
        let nodes = kinds.into_iter().flat_map(|(count, kind)| {
            (0..count).map(move |number| GraphNode { name: format!("{kind:?}{number}"), kind, tier: None })
        });
        let mut ends = Vec::new();
        for pod in 0..k {
            for agg in 0..half {
                let upper = cores + pod * half + agg;
                ends.extend((0..half).map(|core| (upper, agg * half + core)));
                ends.extend((0..half).map(|leaf| (cores + in_tier + pod * half + leaf, upper)));
            }
        }
        let leaves = cores + in_tier;
        ends.extend((0..half * half * k).map(|host| (leaves + in_tier + host, leaves + host / half)));
        let link = |(a, b)| GraphLink { a, b, rate: BitRate::from_gbps(400), latency: Span::ZERO, loss: 0.0 };
        let links = ends.into_iter().map(link).collect();
        GraphSpec { nodes: nodes.collect(), links, host: None, source: "fat tree".to_owned() }
    }

    fn table_bytes(spec: &GraphSpec) -> usize {
        let (count, inside) = host_spec(spec).expect("even hosts");
        assert_eq!(count, 8_192);
        let hosts = Hosts::new(count, &inside).expect("hosts");
        Graph::new(spec, &hosts).expect("a sound graph").table_bytes()
    }

    /// Where an entry of two bytes for every switch and host would take 21 MB.
    #[test]
    fn tables_of_a_fat_tree_are_small_in_any_order() {
        let ordered = fat_tree(32);
        let mut draws = RandomStream::new(1, "shuffle", 0);
        let (nodes, links) = (draws.permutation(ordered.nodes.len()), draws.permutation(ordered.links.len()));
        let mut shuffled = ordered.clone();
        for (old, &new) in nodes.iter().enumerate() {
            shuffled.nodes[new as usize] = ordered.nodes[old].clone();
        }
        for (old, &new) in links.iter().enumerate() {
            let link = ordered.links[old];
            let (a, b) = (nodes[link.a as usize], nodes[link.b as usize]);
            shuffled.links[new as usize] = GraphLink { a, b, ..link };
        }
        let bytes = [table_bytes(&ordered), table_bytes(&shuffled)];
        println!(
            "tables of 8,192 hosts and 1,280 switches: {} bytes in order, {} shuffled",
            bytes[0], bytes[1]
        );
        assert!(bytes[0] < 50_000 && bytes[1] < 1_000_000, "{bytes:?}");
    }
}
