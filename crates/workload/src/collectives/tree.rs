//! Two complementary binary trees, each with half of the data, pipelined in chunks (Sanders, Speck, Träff, "Two-tree
//! algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 2009; the trees of NCCL 2.4).
//!
//! Both trees hang by one edge from the root; the others form an in-order binary tree (parent by bit arithmetic). In the
//! second tree they are mirrored (n odd) or shifted by one (n even), so an inner node of one tree is a leaf of the other
//! and every link carries the same. Lane t is tree t.
//!
//! Rounds are those of a synchronous pipeline: with D = ⌈log2 n⌉ the depth of the tree and w the rounds in flight, a node
//! at depth d sends chunk k up in round k + w(D − d) and down in round k + wd, wD rounds later in an all-reduce. There a
//! parent and a child wait for each other's messages, and w > 1 keeps their latency from adding to every chunk.

use windtunnel_kernel::registry::Entry;

use super::CollectiveKind;
use super::method::{Arrangement, Method, Rings};
use super::parts::{Part, Round, Sink, back, log2_ceil, share};
use super::plan::{CoupledShape, Plan, chunks};
use super::traffic::Traffic;

/// What flows through the trees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Down from the root.
    Broadcast,
    /// Up to the root.
    Reduce,
    /// Up, then down.
    AllReduce,
}

/// Chunks in flight on an edge of an all-reduce; NCCL's buffers hold 8.
const WINDOW: u32 = 4;

impl Flow {
    /// Rounds for `chunks` chunks.
    pub(super) fn rounds(self, n: u32, chunks: u32) -> u32 {
        let hops = if self == Self::AllReduce { 2 * log2_ceil(n) } else { log2_ceil(n) };
        chunks + self.window() * (hops - 1)
    }

    /// Rounds in flight: an edge that carries chunks one way only hides its latency by itself.
    pub(super) fn window(self) -> u32 {
        if self == Self::AllReduce { WINDOW } else { 1 }
    }
}

/// Place of the node that stands `place` after the root, in tree `lane`.
fn to_tree(n: u32, lane: u32, place: u32) -> u32 {
    match (lane, place) {
        (0, _) | (_, 0) => place,
        _ if n % 2 == 1 => n - place,
        (_, 1) => n - 1,
        _ => place - 1,
    }
}

/// Inverse of [`to_tree`].
fn from_tree(n: u32, lane: u32, node: u32) -> u32 {
    match (lane, node) {
        (0, _) | (_, 0) => node,
        _ if n % 2 == 1 => n - node,
        _ if node == n - 1 => 1,
        _ => node + 1,
    }
}

/// Parent of `node` in the tree whose root is 0.
fn parent(n: u32, node: u32) -> u32 {
    let bit = node & node.wrapping_neg();
    let up = (node ^ bit) | (bit << 1);
    if up < n { up } else { node ^ bit }
}

fn children(n: u32, node: u32) -> [Option<u32>; 2] {
    if node == 0 {
        return [(n > 1).then(|| 1 << (log2_ceil(n) - 1)), None];
    }
    let below = (node & node.wrapping_neg()) >> 1;
    let mut right = below;
    while right > 0 && node + right >= n {
        right >>= 1;
    }
    [(below > 0).then(|| node - below), (right > 0).then(|| node + right)]
}

/// Whom `index` hangs on in tree `lane` of n whose root is 0, and who hang on it.
pub(super) fn relatives(n: u32, lane: u32, index: u32) -> (Option<u32>, [Option<u32>; 2]) {
    let node = to_tree(n, lane, index);
    let name = |node| from_tree(n, lane, node);
    ((node != 0).then(|| name(parent(n, node))), children(n, node).map(|child| child.map(name)))
}

fn depth(n: u32, mut node: u32) -> u32 {
    let mut depth = 0;
    while node != 0 {
        node = parent(n, node);
        depth += 1;
    }
    depth
}

/// Round `round` of lane `lane`.
pub(super) fn round(
    flow: Flow,
    n: u32,
    root: u32,
    chunks: u32,
    index: u32,
    lane: u32,
    round: u32,
    sink: &mut impl Sink,
) {
    let node = to_tree(n, lane, back(index, root, n));
    let height = log2_ceil(n);
    let depth = depth(n, node);
    let index_of = |node| (from_tree(n, lane, node) + root) % n;
    // The chunk that moves in this round over an edge whose chunk 0 has `hops` hops behind it.
    let chunk = |hops: u32| {
        let chunk = round.checked_sub(flow.window() * hops).filter(|&k| k < chunks);
        chunk.map(|k| Part::one(k, chunks))
    };
    if flow != Flow::Broadcast {
        if node != 0
            && let Some(part) = chunk(height - depth)
        {
            sink.send(index_of(parent(n, node)), part);
        }
        for child in children(n, node).into_iter().flatten() {
            if let Some(part) = chunk(height - depth - 1) {
                sink.receive(index_of(child), part);
            }
        }
    }
    if flow != Flow::Reduce {
        let start = if flow == Flow::AllReduce { height } else { 0 };
        for child in children(n, node).into_iter().flatten() {
            if let Some(part) = chunk(start + depth) {
                sink.send(index_of(child), part);
            }
        }
        if node != 0
            && let Some(part) = chunk(start + depth - 1)
        {
            sink.receive(index_of(parent(n, node)), part);
        }
    }
}

/// What flows for a kind.
fn flow(kind: CollectiveKind) -> Flow {
    match kind {
        CollectiveKind::Broadcast { .. } => Flow::Broadcast,
        CollectiveKind::Reduce { .. } => Flow::Reduce,
        _ => Flow::AllReduce,
    }
}

/// Two trees, each with half of the data.
pub(super) struct DoubleBinaryTree;

impl Method for DoubleBinaryTree {
    const ENTRY: Entry = Entry::new(
        "double_binary_tree",
        "two complementary binary trees, each with half of the data, pipelined in chunks",
    );
    const KINDS: &'static [CollectiveKind] = &[
        CollectiveKind::AllReduce,
        CollectiveKind::Broadcast { root: 0 },
        CollectiveKind::Reduce { root: 0 },
    ];
    const RINGS: Rings = Rings::None;
    const WHOLE_DOMAINS: bool = false;
    const IN_TURN: bool = false;
    const SUMS: bool = false;

    fn settle(_: &mut Plan) {}

    fn rounds(plan: &Plan, _: u32) -> Arrangement {
        let chunks = chunks(plan.bytes().div_ceil(2));
        let flow = flow(plan.kind());
        Arrangement { lanes: 2, rounds: flow.rounds(plan.members(), chunks), depth: flow.window(), chunks }
    }

    fn emit(plan: &Plan, index: u32, lane: u32, turn: u32, sink: &mut impl Sink) {
        let root = match plan.kind() {
            CollectiveKind::Broadcast { root } | CollectiveKind::Reduce { root } => root,
            _ => 0,
        };
        round(flow(plan.kind()), plan.members(), root, plan.chunks(), index, lane, turn, sink);
    }

    fn exchange(_: &Plan, _: u32, _: u32, _: &mut Round) {}

    fn coupled(_: &Plan) -> Option<CoupledShape> {
        None
    }

    fn traffic(plan: &Plan) -> Option<Traffic> {
        let ways = if plan.kind() == CollectiveKind::AllReduce { 2 } else { 1 };
        let n = u128::from(plan.members());
        let lane = |lane| {
            let bytes = share(plan.bytes(), plan.lanes(), lane);
            let messages = u64::from(plan.chunks()).min(bytes);
            Traffic { messages: messages.into(), bytes: bytes.into() } * (ways * (n - 1))
        };
        Some((0..plan.lanes()).map(lane).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_trees_of_logarithmic_depth() {
        for n in 2..200 {
            let mut parents = vec![0; n as usize];
            for node in 0..n {
                for child in children(n, node).into_iter().flatten() {
                    assert_eq!(parent(n, child), node, "{child} under {node} of {n}");
                    parents[child as usize] += 1;
                }
            }
            assert!(parents[0] == 0 && parents[1..].iter().all(|&count| count == 1));
            assert_eq!((0..n).map(|node| depth(n, node)).max(), Some(log2_ceil(n)));
        }
    }

    #[test]
    fn an_inner_node_of_one_tree_is_a_leaf_of_the_other() {
        let inner = |n, node| children(n, node).iter().flatten().count() > 0;
        for n in 2..200 {
            for place in 1..n {
                assert_eq!(from_tree(n, 1, to_tree(n, 1, place)), place);
                assert!(
                    !(inner(n, to_tree(n, 0, place)) && inner(n, to_tree(n, 1, place))),
                    "{place} of {n}"
                );
            }
        }
    }
}
