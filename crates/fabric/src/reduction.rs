//! Reduction in the network: the tree of switches that sums what its members send up and sends the sum down, and how many
//! reductions a switch takes at once.
//!
//! SHARP (Graham et al., "Scalable hierarchical aggregation protocol (SHArP): a hardware architecture for efficient data
//! reduction", COMHPC 2016; "Scalable hierarchical aggregation and reduction protocol (SHARP) streaming-aggregation hardware
//! design and evaluation", ISC 2020) sums in the switches of a tree: each member sends its vector once and receives the sum
//! once. A switch has few places to sum in: [`ReductionSettings::slots`], cut into equal parts for so many reductions under
//! way.
//!
//! **The tree** of a group is a pure function of the topology, what has failed, the members and the entropy: the union of the
//! ways from the first member's switch to the others', all by one hash, so that they part only on the way down. In a Clos
//! this is a tree with the common switch at its root. Where something has failed the ways may not form one; then the next
//! hash is tried, up to 64 of them.
//!
//! **Failure modes.** [`Tree::new`] returns `None` where no hash gives a tree; whoever asks lets the group never end, as a
//! message that nothing joins.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{BitRate, EndpointId, NicId, Span};
use windtunnel_topology::{Forwarder, LinkId, Peer, SwitchId, Target, Topology};

/// Hashes that are tried for a tree.
const TRIES: u64 = 64;

/// What switches can sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReductionSettings {
    /// Segments (one packet's payload each) that a switch can hold sums of. SwitchML uses 512 at 100 Gbps (Sapio et al.,
    /// NSDI 2021, section 3.6).
    pub slots: u32,
    /// Reductions that a switch takes at once; each has an equal part of the slots. Others wait for one to end.
    pub operations: u32,
    /// From the last contribution to a segment, at the end of the pipeline, to its sum in the egress queue.
    pub latency: Span,
    /// Sums that a switch makes, in bits of payload per second; no limit if left out.
    pub rate: Option<BitRate>,
}

impl Default for ReductionSettings {
    /// 512 slots for 4 reductions, 250 ns, no limit of the rate.
    fn default() -> Self {
        Self { slots: 512, operations: 4, latency: Span::from_ps(250_000), rate: None }
    }
}

impl ReductionSettings {
    /// Segments that a member may have under way.
    pub const fn window(&self) -> u32 {
        self.slots / self.operations
    }
}

/// Where a packet goes down from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// To a node of the tree.
    Node(u32),
    /// To a member.
    Member(u32),
}

/// A switch of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// Which.
    pub switch: SwitchId,
    /// Egress port towards the root, the node there and the place among its children; none at the root.
    pub parent: Option<(u32, u32, u32)>,
    /// Egress ports down and what they lead to, by port.
    pub children: Vec<(u32, Below)>,
}

/// A member at its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeMember {
    /// NIC, counted over all hosts.
    pub nic: u32,
    /// Node that it is cabled to, and its place among that node's children.
    pub node: u32,
    /// See `node`.
    pub child: u32,
}

/// A reduction tree: see the module page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Copy of the fabric in which it stands.
    pub plane: u32,
    /// Its switches, in the order in which they were met.
    pub nodes: Vec<TreeNode>,
    /// Its members, in the group's order.
    pub members: Vec<TreeMember>,
}

/// The next hop of all of a tree's ways.
type NextHop<'a> = dyn FnMut(SwitchId, &Target, u64) -> Option<u32> + 'a;

impl Tree {
    /// The tree of `members`, each by its NIC of number 0, around what `forwarder` says has failed.
    pub fn new(
        topology: &Topology,
        forwarder: Option<&mut Forwarder>,
        seed: u64,
        members: &[EndpointId],
        entropy: u32,
    ) -> Option<Self> {
        let nics: Vec<u32> = members.iter().map(|&member| topology.nic(member, NicId(0))).collect();
        let first = combine(combine(seed, u64::from(entropy)), 0x7265_6475);
        match forwarder {
            None => {
                let mut hop = |at: SwitchId, to: &Target, hash: u64| {
                    let itinerary = topology.enter(at, to, hash, |_| 0);
                    Some(topology.next_hop(at, to, itinerary, hash).0)
                };
                (0..TRIES).find_map(|n| Self::by(topology, &nics, combine(first, n), &mut hop))
            }
            Some(forwarder) => {
                let dead = forwarder.clone();
                let mut hop = |at: SwitchId, to: &Target, hash: u64| {
                    let itinerary = forwarder.enter(at, to, hash, |_| 0);
                    forwarder.next_hop(at, to, itinerary, hash).ok().map(|hop| hop.port)
                };
                let works = |tree: &Self| !tree.links(topology).iter().any(|&link| dead.is_dead(link));
                (0..TRIES).find_map(|n| Self::by(topology, &nics, combine(first, n), &mut hop).filter(works))
            }
        }
    }

    fn by(topology: &Topology, nics: &[u32], hash: u64, hop: &mut NextHop<'_>) -> Option<Self> {
        let plane = topology.plane(hash);
        let mut tree = Self { plane, nodes: Vec::new(), members: Vec::new() };
        let mut known: FxHashMap<SwitchId, u32> = FxHashMap::default();
        let mut node_of = |switch: SwitchId, nodes: &mut Vec<TreeNode>| {
            *known.entry(switch).or_insert_with(|| {
                nodes.push(TreeNode { switch, parent: None, children: Vec::new() });
                nodes.len() as u32 - 1
            })
        };
        let start = topology.target(*nics.first()?, plane).switch;
        for &nic in nics {
            let target = topology.target(nic, plane);
            let (mut at, mut node) = (start, node_of(start, &mut tree.nodes));
            while at != target.switch {
                let port = hop(at, &target, hash)?;
                let Some(Peer::Switch { switch: next, port: back }) = topology.peer(at, port) else {
                    return None;
                };
                let there = node_of(next, &mut tree.nodes);
                let (low, high, edge) = match topology.tier(at).cmp(&topology.tier(next)) {
                    std::cmp::Ordering::Less => (node, there, (port, back)),
                    std::cmp::Ordering::Greater => (there, node, (back, port)),
                    std::cmp::Ordering::Equal => return None,
                };
                match tree.nodes[low as usize].parent {
                    // The place among the children is the port until all of them are known.
                    None => tree.nodes[low as usize].parent = Some((edge.0, high, edge.1)),
                    Some(found) if found == (edge.0, high, edge.1) => {}
                    Some(_) => return None,
                }
                (at, node) = (next, there);
            }
            tree.members.push(TreeMember { nic, node, child: 0 });
        }
        tree.number_children(topology)
    }

    /// Gives every child its place; `None` unless all nodes hang on one root.
    fn number_children(mut self, topology: &Topology) -> Option<Self> {
        let roots = self.nodes.iter().filter(|node| node.parent.is_none()).count();
        if roots != 1 {
            return None;
        }
        for low in 0..self.nodes.len() {
            if let Some((_, high, port)) = self.nodes[low].parent {
                self.nodes[high as usize].children.push((port, Below::Node(low as u32)));
            }
        }
        for (number, member) in (0..).zip(&self.members) {
            let port = topology.target(member.nic, self.plane).port;
            self.nodes[member.node as usize].children.push((port, Below::Member(number)));
        }
        for node in 0..self.nodes.len() {
            // Stable: members on one NIC keep their order.
            self.nodes[node].children.sort_by_key(|&(port, _)| port);
            for place in 0..self.nodes[node].children.len() {
                match self.nodes[node].children[place].1 {
                    Below::Node(low) => {
                        let parent = self.nodes[low as usize].parent.as_mut().expect("a child has a parent");
                        parent.2 = place as u32;
                    }
                    Below::Member(number) => self.members[number as usize].child = place as u32,
                }
            }
        }
        Some(self)
    }

    /// Its links: each member's to its leaf and back, each node's to the one above and back. A member's stand once for each
    /// member on a NIC.
    pub fn links(&self, topology: &Topology) -> Vec<LinkId> {
        let up = self.members.iter().map(|member| topology.nic_link(member.nic, self.plane));
        let inner = self.nodes.iter().filter_map(|node| topology.out_link(node.switch, node.parent?.0));
        up.chain(inner).flat_map(|link| [link, topology.reverse(link)]).collect()
    }

    /// Latency of the links from a member to the root, the longest of all members', and how many switches sum on that way.
    pub fn climb(&self, topology: &Topology) -> (Span, u32) {
        let of = |member: &TreeMember| {
            let mut latency = topology.link(topology.nic_link(member.nic, self.plane)).latency;
            let (mut switches, mut at) = (1, member.node);
            while let Some((port, above, _)) = self.nodes[at as usize].parent {
                let link = topology.out_link(self.nodes[at as usize].switch, port).expect("a cable");
                latency += topology.link(link).latency;
                (switches, at) = (switches + 1, above);
            }
            (latency, switches)
        };
        self.members.iter().map(of).max().unwrap_or_default()
    }

    /// Latency of the links from the root to a member, the longest of all members'.
    pub fn descent(&self, topology: &Topology) -> Span {
        let of = |member: &TreeMember| {
            let down = topology.reverse(topology.nic_link(member.nic, self.plane));
            let (mut latency, mut at) = (topology.link(down).latency, member.node);
            while let Some((port, above, _)) = self.nodes[at as usize].parent {
                let link = topology.out_link(self.nodes[at as usize].switch, port).expect("a cable");
                latency += topology.link(topology.reverse(link)).latency;
                at = above;
            }
            latency
        };
        self.members.iter().map(of).max().unwrap_or_default()
    }
}

/// Reductions under way in each switch, and those that wait for their turn. One that waits keeps later ones off its switches.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    under_way: FxHashMap<SwitchId, u32>,
    waiting: VecDeque<(u32, Arc<Tree>)>,
}

impl Turns {
    /// Run `run` asks for its turn at all switches of its tree; whether it has it.
    pub fn enter(&mut self, run: u32, tree: &Arc<Tree>, operations: u32) -> bool {
        let blocked = self.waiting.iter().any(|(_, other)| overlap(other, tree));
        if blocked || !self.take(tree, operations) {
            self.waiting.push_back((run, Arc::clone(tree)));
            return false;
        }
        true
    }

    /// A run on `tree` has ended; appends those whose turn comes.
    pub fn leave(&mut self, tree: &Tree, operations: u32, next: &mut Vec<u32>) {
        for node in &tree.nodes {
            let count = self.under_way.get_mut(&node.switch).expect("a run under way is counted");
            *count -= 1;
        }
        let mut still: VecDeque<(u32, Arc<Tree>)> = VecDeque::new();
        for (run, tree) in std::mem::take(&mut self.waiting) {
            let blocked = still.iter().any(|(_, other)| overlap(other, &tree));
            if !blocked && self.take(&tree, operations) {
                next.push(run);
            } else {
                still.push_back((run, tree));
            }
        }
        self.waiting = still;
    }

    /// Runs that wait for their turn and never will have it; those are returned.
    pub fn forget(&mut self, goes: impl Fn(u32) -> bool) -> Vec<u32> {
        let (gone, still) = std::mem::take(&mut self.waiting).into_iter().partition(|(run, _)| goes(*run));
        self.waiting = still;
        let gone: VecDeque<(u32, Arc<Tree>)> = gone;
        gone.into_iter().map(|(run, _)| run).collect()
    }

    fn take(&mut self, tree: &Tree, operations: u32) -> bool {
        let full = |node: &TreeNode| self.under_way.get(&node.switch).is_some_and(|&n| n >= operations);
        if tree.nodes.iter().any(full) {
            return false;
        }
        for node in &tree.nodes {
            *self.under_way.entry(node.switch).or_insert(0) += 1;
        }
        true
    }
}

fn overlap(one: &Tree, other: &Tree) -> bool {
    one.nodes.iter().any(|node| other.nodes.iter().any(|known| known.switch == node.switch))
}

#[cfg(test)]
mod tests {
    use windtunnel_topology::{ClosSpec, Policy, TopologySpec};

    use super::*;

    fn fat_tree() -> Topology {
        let spec = ClosSpec::fat_tree(8, BitRate::from_gbps(400));
        Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree")
    }

    fn tree(topology: &Topology, members: impl Iterator<Item = u32>, entropy: u32) -> Tree {
        let members: Vec<EndpointId> = members.map(EndpointId).collect();
        Tree::new(topology, None, 7, &members, entropy).expect("a tree")
    }

    /// All members of 128 hosts: 32 leaves, an aggregation switch in each of 8 pods, one core.
    #[test]
    fn a_tree_has_one_switch_a_pod_and_one_root() {
        let topology = fat_tree();
        let whole = tree(&topology, 0..128, 0);
        let of_tier = |tier| whole.nodes.iter().filter(|node| topology.tier(node.switch) == tier).count();
        assert_eq!([of_tier(0), of_tier(1), of_tier(2)], [32, 8, 1]);
        assert_eq!(whole.climb(&topology).1, 3);
        // Each member and each switch but the root has a cable up: both directions are used once.
        let mut links = whole.links(&topology);
        assert_eq!(links.len(), 2 * (128 + 32 + 8));
        links.sort_unstable();
        links.dedup();
        assert_eq!(links.len(), 2 * (128 + 32 + 8));
    }

    #[test]
    fn a_leaf_is_the_root_of_its_own_hosts_and_entropy_spreads_roots() {
        let topology = fat_tree();
        assert_eq!(tree(&topology, 4..8, 0).nodes.len(), 1);
        assert_eq!(tree(&topology, 0..16, 0).nodes.len(), 5, "a pod: 4 leaves and one above");
        let mut roots: Vec<SwitchId> = (0..64)
            .map(|entropy| tree(&topology, (0..128).step_by(4), entropy))
            .map(|tree| tree.nodes.iter().find(|node| node.parent.is_none()).expect("a root").switch)
            .collect();
        roots.sort_unstable();
        roots.dedup();
        assert!(roots.len() >= 12, "64 groups use {} of 16 cores", roots.len());
    }

    #[test]
    fn a_tree_leads_around_what_has_failed() {
        let topology = Arc::new(fat_tree());
        let members: Vec<EndpointId> = (0..128).map(EndpointId).collect();
        let whole = Tree::new(&topology, None, 7, &members, 0).expect("a tree");
        let mut forwarder = Forwarder::new(topology.clone(), Policy::default());
        for node in whole.nodes.iter().filter(|node| topology.tier(node.switch) > 0).take(3) {
            let (port, _) = node.children[0];
            forwarder.fail_cable(topology.out_link(node.switch, port).expect("a cable"));
        }
        let dead = forwarder.clone();
        let other = Tree::new(&topology, Some(&mut forwarder), 7, &members, 0).expect("another tree");
        assert!(other.links(&topology).iter().all(|&link| !dead.is_dead(link)) && other != whole);
    }

    #[test]
    fn runs_wait_for_their_turn_in_order() {
        let topology = fat_tree();
        let [low, high] = [tree(&topology, 0..4, 0), tree(&topology, 0..8, 0)].map(Arc::new);
        let other = Arc::new(tree(&topology, 64..68, 0));
        let mut turns = Turns::default();
        assert!(turns.enter(0, &low, 1) && !turns.enter(1, &high, 1) && turns.enter(2, &other, 1));
        assert!(!turns.enter(3, &low, 1), "it comes after one that waits for the same switch");
        let mut next = Vec::new();
        turns.leave(&low, 1, &mut next);
        assert_eq!(next, [1]);
        turns.leave(&high, 1, &mut next);
        assert_eq!(next, [1, 3]);
    }
}
