//! Which entities share a process.
//!
//! Nodes (hosts, switches, …) joined by an edge of zero delay or of a delay below the threshold ζ share a process: a
//! short edge would make every window short. What such edges join is an *atom*. Atoms are then grouped into as many
//! processes as are wanted.
//!
//! **The choice of ζ**, if it is not set: among the delays found, the largest that leaves at least as many atoms as
//! processes are wanted, none heavier than a thread's fair share; a larger one would leave a thread without work, a
//! smaller one would only shorten the windows. If there is none, the largest of those whose heaviest atom is lightest.
//!
//! **Grouping.** A process grows from the lowest node that has none, always by the neighbouring atom that has most edges
//! into it less those elsewhere (greedy graph growing; Karypis and Kumar, "A fast and high quality multilevel scheme for
//! partitioning irregular graphs", SIAM J. Sci. Comput. 20(1), 1998), to its share of the weight left. Then a few passes
//! move atoms to the neighbouring process with which they share more edges, where the balance allows it.
//!
//! The result is a function of the arguments alone, and results of a run do not depend on it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::units::Span;

/// Processes per thread: enough to level out a load that drifts, few enough that most events stay inside.
const GRAIN: usize = 4;

/// Passes over all atoms after the growth.
const PASSES: usize = 4;

/// Two nodes that can act on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// One node.
    pub a: u32,
    /// The other.
    pub b: u32,
    /// Least time from one to the other.
    pub delay: Span,
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOptions {
    /// Threads that are to share the weight.
    pub threads: usize,
    /// Processes, at most.
    pub processes: usize,
    /// ζ, if set.
    pub threshold: Option<Span>,
    /// No lookahead above it (the reaction delay of a cluster).
    pub longest_lookahead: Span,
}

impl PartitionOptions {
    /// One process for one thread, [`GRAIN`] for each of several; ζ chosen; no limit to the lookahead.
    pub fn for_threads(threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            processes: if threads <= 1 { 1 } else { threads * GRAIN },
            threshold: None,
            longest_lookahead: Span::MAX,
        }
    }
}

/// Nodes spread over processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Process of each node; processes are numbered by their lowest node.
    pub process: Vec<u32>,
    /// Weight of each process.
    pub weights: Vec<u64>,
    /// Least delay between two processes, at most the longest allowed; `Span::MAX` where nothing joins any two.
    pub lookahead: Span,
    /// ζ: nodes joined by a shorter edge share a process.
    pub threshold: Span,
    /// Groups of nodes that ζ joins.
    pub atoms: usize,
}

/// Spreads nodes with `weights`, joined by `edges`, over processes.
///
/// # Panics
/// If an edge names a node that does not exist.
pub fn partition(weights: &[u64], edges: &[Edge], options: &PartitionOptions) -> Partition {
    let mut sorted: Vec<Edge> = edges.to_vec();
    sorted.sort_by_key(|edge| edge.delay);
    let threshold = options.threshold.unwrap_or_else(|| choose_threshold(weights, &sorted, options));
    let mut union = Union::new(weights);
    for edge in sorted.iter().take_while(|edge| joined(edge.delay, threshold)) {
        union.join(edge.a, edge.b);
    }
    let (atom, atoms) = number(weights.len(), |node| union.root(node));
    let graph = Graph::new(&atom, atoms, weights, edges);
    let mut group = graph.grow(options.processes.clamp(1, atoms.max(1)));
    graph.refine(&mut group);
    let (process, processes) = number(weights.len(), |node| group[atom[node as usize] as usize]);
    let mut sums = vec![0; processes];
    for (&process, weight) in process.iter().zip(weights) {
        sums[process as usize] += weight;
    }
    let between = |edge: &&Edge| process[edge.a as usize] != process[edge.b as usize];
    let lookahead =
        sorted.iter().find(between).map_or(Span::MAX, |edge| edge.delay.min(options.longest_lookahead));
    Partition { process, weights: sums, lookahead, threshold, atoms }
}

/// Whether nodes joined by an edge of `delay` share a process.
fn joined(delay: Span, threshold: Span) -> bool {
    delay == Span::ZERO || delay < threshold
}

/// See the module page. `sorted` are the edges by delay.
fn choose_threshold(weights: &[u64], sorted: &[Edge], options: &PartitionOptions) -> Span {
    let total: u64 = weights.iter().sum();
    let share = total.div_ceil(options.threads.max(1) as u64);
    let mut union = Union::new(weights);
    // Where no edge reaches ζ, nothing is cut by any.
    let (mut chosen, mut fallback) = (None, None);
    let mut consider = |threshold: Span, union: &Union| {
        if union.sets >= options.processes && union.heaviest <= share {
            chosen = Some(threshold);
        }
        if fallback.is_none_or(|(heaviest, _)| union.heaviest <= heaviest) {
            fallback = Some((union.heaviest, threshold));
        }
    };
    for edge in sorted.chunk_by(|a, b| a.delay == b.delay) {
        if edge[0].delay > Span::ZERO {
            consider(edge[0].delay, &union);
        }
        for edge in edge {
            union.join(edge.a, edge.b);
        }
    }
    // Parts that nothing joins.
    consider(Span::MAX, &union);
    chosen.or(fallback.map(|(_, threshold)| threshold)).unwrap_or(Span::MAX)
}

/// Numbers what `of` tells apart by its lowest node; returns the number of each node, and how many there are.
fn number(nodes: usize, mut of: impl FnMut(u32) -> u32) -> (Vec<u32>, usize) {
    let mut numbers = vec![u32::MAX; nodes];
    let mut count = 0;
    let numbered = (0..nodes as u32).map(|node| {
        let number = &mut numbers[of(node) as usize];
        if *number == u32::MAX {
            *number = count;
            count += 1;
        }
        *number
    });
    let numbered: Vec<u32> = numbered.collect();
    (numbered, count as usize)
}

/// Disjoint sets with weights.
struct Union {
    parents: Vec<u32>,
    weights: Vec<u64>,
    sets: usize,
    heaviest: u64,
}

impl Union {
    fn new(weights: &[u64]) -> Self {
        Self {
            parents: (0..weights.len() as u32).collect(),
            weights: weights.to_vec(),
            sets: weights.len(),
            heaviest: weights.iter().copied().max().unwrap_or(0),
        }
    }

    fn root(&mut self, mut node: u32) -> u32 {
        while self.parents[node as usize] != node {
            let up = self.parents[self.parents[node as usize] as usize];
            self.parents[node as usize] = up;
            node = up;
        }
        node
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            let (low, high) = (a.min(b), a.max(b));
            self.parents[high as usize] = low;
            self.weights[low as usize] += self.weights[high as usize];
            self.heaviest = self.heaviest.max(self.weights[low as usize]);
            self.sets -= 1;
        }
    }
}

/// Atoms and the edges between them.
struct Graph {
    weights: Vec<u64>,
    /// Neighbours of atom a are `neighbours[starts[a]..starts[a + 1]]`, one per edge.
    starts: Vec<usize>,
    neighbours: Vec<u32>,
}

/// No group.
const NONE: u32 = u32::MAX;

impl Graph {
    fn new(atom: &[u32], atoms: usize, node_weights: &[u64], edges: &[Edge]) -> Self {
        let mut weights = vec![0; atoms];
        for (&atom, weight) in atom.iter().zip(node_weights) {
            weights[atom as usize] += weight;
        }
        let ends = || {
            edges
                .iter()
                .map(|edge| (atom[edge.a as usize], atom[edge.b as usize]))
                .filter(|(a, b)| a != b)
                .flat_map(|(a, b)| [(a, b), (b, a)])
        };
        let mut starts = vec![0; atoms + 1];
        ends().for_each(|(from, _)| starts[from as usize + 1] += 1);
        for i in 0..atoms {
            starts[i + 1] += starts[i];
        }
        let (mut next, mut neighbours) = (starts.clone(), vec![0; starts[atoms]]);
        for (from, to) in ends() {
            neighbours[next[from as usize]] = to;
            next[from as usize] += 1;
        }
        Self { weights, starts, neighbours }
    }

    fn neighbours(&self, atom: u32) -> &[u32] {
        &self.neighbours[self.starts[atom as usize]..self.starts[atom as usize + 1]]
    }

    /// Grows `count` groups one after another; returns the group of each atom.
    fn grow(&self, count: usize) -> Vec<u32> {
        let atoms = self.weights.len();
        let mut group = vec![NONE; atoms];
        let mut left: u64 = self.weights.iter().sum();
        // Edges of each atom into the group that grows.
        let mut inside = vec![0i64; atoms];
        let mut seed = 0;
        for number in 0..count {
            let (mut weight, share) = (0, left / (count - number) as u64);
            let mut frontier: BinaryHeap<(i64, Reverse<u32>)> = BinaryHeap::new();
            let mut touched = Vec::new();
            loop {
                let atom = if let Some((gain, Reverse(atom))) = frontier.pop() {
                    // A gain that has changed since lies further up again.
                    if group[atom as usize] != NONE || gain != self.gain(atom, &inside) {
                        continue;
                    }
                    atom
                } else {
                    while seed < atoms && group[seed] != NONE {
                        seed += 1;
                    }
                    if seed == atoms {
                        break;
                    }
                    seed as u32
                };
                // To the nearer side of its share; the last takes the rest.
                let added = self.weights[atom as usize];
                if weight > 0 && number + 1 < count && weight + added / 2 > share {
                    break;
                }
                group[atom as usize] = number as u32;
                weight += added;
                for &neighbour in self.neighbours(atom) {
                    if group[neighbour as usize] == NONE {
                        inside[neighbour as usize] += 1;
                        touched.push(neighbour);
                        frontier.push((self.gain(neighbour, &inside), Reverse(neighbour)));
                    }
                }
            }
            left -= weight;
            for atom in touched {
                inside[atom as usize] = 0;
            }
        }
        group
    }

    /// Edges of `atom` into the growing group less those elsewhere.
    fn gain(&self, atom: u32, inside: &[i64]) -> i64 {
        2 * inside[atom as usize] - self.neighbours(atom).len() as i64
    }

    /// Moves atoms to the neighbouring group with which they share most edges, if it stays within a twentieth of its
    /// share.
    fn refine(&self, group: &mut [u32]) {
        let count = group.iter().map(|&group| group as usize + 1).max().unwrap_or(0);
        let mut weights = vec![0u64; count];
        for (&group, weight) in group.iter().zip(&self.weights) {
            weights[group as usize] += weight;
        }
        let share = weights.iter().sum::<u64>().div_ceil(count.max(1) as u64);
        let most = share + share / 20;
        let mut shared = vec![0u32; count];
        for _ in 0..PASSES {
            let mut moved = false;
            for atom in 0..group.len() {
                let (own, weight) = (group[atom], self.weights[atom]);
                let neighbours = self.neighbours(atom as u32);
                for &neighbour in neighbours {
                    shared[group[neighbour as usize] as usize] += 1;
                }
                let best = neighbours
                    .iter()
                    .map(|&neighbour| group[neighbour as usize])
                    .filter(|&other| other == own || weights[other as usize] + weight <= most)
                    .max_by_key(|&other| (shared[other as usize], other == own, Reverse(other)));
                if let Some(best) = best.filter(|&best| shared[best as usize] > shared[own as usize]) {
                    weights[own as usize] -= weight;
                    weights[best as usize] += weight;
                    group[atom] = best;
                    moved = true;
                }
                for &neighbour in neighbours {
                    // The atom itself is none of its neighbours, so their groups are as counted.
                    shared[group[neighbour as usize] as usize] = 0;
                }
            }
            if !moved {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edge(a: u32, b: u32, delay: u64) -> Edge {
        Edge { a, b, delay: Span::from_ps(delay) }
    }

    fn options(threads: usize, processes: usize) -> PartitionOptions {
        PartitionOptions { processes, ..PartitionOptions::for_threads(threads) }
    }

    /// k-ary fat tree: hosts, edge switches, aggregation switches, cores; returns weights, edges and the pod of each node.
    fn fat_tree(k: u32, host_delay: u64, delay: u64) -> (Vec<u64>, Vec<Edge>, Vec<Option<u32>>) {
        let half = k / 2;
        let (hosts, switches) = (k * half * half, k * half);
        let (edges_at, aggs_at, cores_at) = (hosts, hosts + switches, hosts + 2 * switches);
        let mut edges = Vec::new();
        for host in 0..hosts {
            edges.push(edge(host, edges_at + host / half, host_delay));
        }
        for pod in 0..k {
            for i in 0..half {
                for j in 0..half {
                    edges.push(edge(edges_at + pod * half + i, aggs_at + pod * half + j, delay));
                    edges.push(edge(aggs_at + pod * half + i, cores_at + i * half + j, delay));
                }
            }
        }
        let nodes = cores_at + half * half;
        let pod = |node: u32| match node {
            _ if node < edges_at => Some(node / (half * half)),
            _ if node < cores_at => Some((node - edges_at) % switches / half),
            _ => None,
        };
        (vec![10; nodes as usize], edges, (0..nodes).map(pod).collect())
    }

    #[test]
    fn a_threshold_keeps_short_edges_inside() {
        // Two regions of two buildings of two hosts; 1 us, 10 us, 1 ms.
        let edges = [
            edge(0, 1, 1),
            edge(2, 3, 1),
            edge(4, 5, 1),
            edge(6, 7, 1),
            edge(1, 2, 10),
            edge(5, 6, 10),
            edge(3, 4, 1000),
        ];
        let found = partition(&[1; 8], &edges, &options(2, 2));
        assert_eq!((found.process, found.lookahead), (vec![0, 0, 0, 0, 1, 1, 1, 1], Span::from_ps(1000)));
        assert_eq!((found.threshold, found.atoms), (Span::from_ps(1000), 2));
        let found = partition(&[1; 8], &edges, &options(2, 4));
        assert_eq!((found.process, found.lookahead), (vec![0, 0, 1, 1, 2, 2, 3, 3], Span::from_ps(10)));
        // As set, though it leaves one atom only.
        let set = PartitionOptions { threshold: Some(Span::from_ps(1001)), ..options(2, 4) };
        let found = partition(&[1; 8], &edges, &set);
        assert_eq!((found.weights, found.lookahead), (vec![8], Span::MAX));
        let limited = PartitionOptions { longest_lookahead: Span::from_ps(50), ..options(2, 2) };
        assert_eq!(partition(&[1; 8], &edges, &limited).lookahead, Span::from_ps(50));
        // A heavy building moves the cut.
        let found = partition(&[9, 9, 9, 9, 1, 1, 1, 1], &edges, &options(2, 2));
        assert_eq!(found.threshold, Span::from_ps(10));
    }

    #[test]
    fn one_thread_gets_one_process() {
        let (weights, edges, _) = fat_tree(4, 1000, 1000);
        let found = partition(&weights, &edges, &PartitionOptions::for_threads(1));
        assert_eq!(found.weights.len(), 1);
        assert_eq!(partition(&[], &[], &PartitionOptions::for_threads(4)).process, []);
    }

    #[test]
    fn a_fat_tree_falls_into_its_pods() {
        let (weights, edges, pods) = fat_tree(8, 1000, 1000);
        let found = partition(&weights, &edges, &options(2, 8));
        assert_eq!(found.lookahead, Span::from_ps(1000));
        assert_eq!(found.weights.len(), 8);
        let (low, high) = (found.weights.iter().min().unwrap(), found.weights.iter().max().unwrap());
        assert!(high * 10 <= low * 13, "{:?}", found.weights);
        let cut = edges.iter().filter(|e| found.process[e.a as usize] != found.process[e.b as usize]).count();
        // Of 384 edges the 128 to the cores are cut by pods, less those to the pod of each core.
        assert!(cut <= 140, "{cut}");
        let inside = pods.iter().zip(&found.process).filter(|(pod, _)| pod.is_some()).collect::<Vec<_>>();
        let split = inside.windows(2).filter(|w| w[0].0 == w[1].0 && w[0].1 != w[1].1).count();
        assert!(split <= 12, "{split} of {}", inside.len());
    }

    proptest! {
        #[test]
        fn a_partition_keeps_its_promises(
            weights in prop::collection::vec(0..100u64, 1..60),
            raw in prop::collection::vec((any::<u32>(), any::<u32>(), prop_oneof![Just(0), 1..5u64, Just(1_000)]), 0..150),
            threads in 1..5usize,
            processes in 1..12usize,
            set in prop::option::of(0..1_100u64),
        ) {
            let nodes = weights.len() as u32;
            let edges: Vec<Edge> = raw.iter().map(|&(a, b, delay)| edge(a % nodes, b % nodes, delay)).collect();
            let options = PartitionOptions { threshold: set.map(Span::from_ps), ..options(threads, processes) };
            let found = partition(&weights, &edges, &options);
            prop_assert_eq!(&found, &partition(&weights, &edges, &options));
            prop_assert_eq!(found.process.len(), weights.len());
            prop_assert!(found.weights.len() <= processes && found.weights.len() <= found.atoms);
            prop_assert_eq!(found.weights.iter().sum::<u64>(), weights.iter().sum::<u64>());
            let mut seen = 0;
            for &process in &found.process {
                prop_assert!(process <= seen, "numbered by the lowest node");
                seen = seen.max(process + 1);
            }
            prop_assert_eq!(seen as usize, found.weights.len());
            let between: Vec<u64> = edges
                .iter()
                .filter(|e| found.process[e.a as usize] != found.process[e.b as usize])
                .map(|e| e.delay.ps())
                .collect();
            prop_assert_eq!(found.lookahead.ps(), between.iter().copied().min().unwrap_or(u64::MAX));
            prop_assert!(found.lookahead > Span::ZERO && (between.is_empty() || found.lookahead >= found.threshold));
            if let Some(set) = set {
                prop_assert_eq!(found.threshold, Span::from_ps(set));
            } else {
                // No larger delay would have done: the slow way, by every delay.
                let share = weights.iter().sum::<u64>().div_ceil(threads as u64);
                let fits = |threshold: u64| {
                    let mut union = Union::new(&weights);
                    edges.iter().filter(|e| joined(e.delay, Span::from_ps(threshold))).for_each(|e| union.join(e.a, e.b));
                    union.sets >= processes && union.heaviest <= share
                };
                let delays = edges.iter().map(|e| e.delay.ps()).filter(|&delay| delay > 0).chain([u64::MAX]);
                let largest = delays.filter(|&delay| fits(delay)).max();
                if let Some(largest) = largest {
                    prop_assert_eq!(found.threshold, Span::from_ps(largest));
                }
            }
        }
    }
}
