//! A network as an explicit graph, and what makes one sound.

use windtunnel_kernel::{BitRate, Span};

use super::error::{GraphError, GraphProblem, Place};
use crate::spec::HostSpec;

/// A network given node by node and cable by cable.
///
/// A host's cables, in the order of `links`, are the ports of its NICs; a host never forwards. What a file does not say
/// (GPUs, scale-up network) is in `host`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct GraphSpec {
    /// Hosts and switches; a node's number is its place here.
    pub nodes: Vec<GraphNode>,
    /// Cables.
    pub links: Vec<GraphLink>,
    /// What is inside every host, where the file says so (SimAI); `None` leaves it to the scenario.
    pub host: Option<HostSpec>,
    /// Where it came from: a file name.
    pub source: String,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    /// An end of traffic, which does not forward.
    Host,
    /// Forwards.
    Switch,
}

/// A host or a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphNode {
    /// Unique.
    pub name: String,
    /// Host or switch.
    pub kind: NodeKind,
    /// Tier of a switch, leaves are 0, where the file tells; a hint for drawing, nothing is derived from it.
    pub tier: Option<u8>,
}

/// One cable: two directed links, equal in both directions. Parallel cables are several entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GraphLink {
    /// Node at one end.
    pub a: u32,
    /// Node at the other.
    pub b: u32,
    /// Of each direction.
    pub rate: BitRate,
    /// Of each direction: propagation, and half the pipeline delay of every switch at an end. Every switch on a path
    /// has exactly two of the path's cables, so that paths between hosts have their exact latency.
    pub latency: Span,
    /// Probability that a packet is lost, in [0, 1).
    pub loss: f64,
}

impl NodeKind {
    /// `host`, `switch`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Switch => "switch",
        }
    }
}

/// The cables at every node, as a flat table.
#[derive(Clone, Debug)]
pub(crate) struct Adjacency {
    first: Vec<u32>,
    /// (neighbour, cable), by cable number within a node.
    entries: Vec<(u32, u32)>,
}

impl Adjacency {
    /// Of nodes `0..nodes`; self links and ends beyond `nodes` must have been refused.
    pub(crate) fn new(nodes: usize, links: &[GraphLink]) -> Self {
        let mut first = vec![0u32; nodes + 1];
        for link in links {
            first[link.a as usize + 1] += 1;
            first[link.b as usize + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let mut next = first.clone();
        let mut entries = vec![(0, 0); links.len() * 2];
        for (number, link) in links.iter().enumerate() {
            for (from, to) in [(link.a, link.b), (link.b, link.a)] {
                entries[next[from as usize] as usize] = (to, number as u32);
                next[from as usize] += 1;
            }
        }
        Self { first, entries }
    }

    /// (neighbour, cable) of every cable at `node`.
    pub(crate) fn of(&self, node: u32) -> &[(u32, u32)] {
        &self.entries[self.first[node as usize] as usize..self.first[node as usize + 1] as usize]
    }
}

/// Most cables a graph may have: a directed link is a 31-bit number.
pub(crate) const MOST_LINKS: usize = 1 << 30;

impl GraphSpec {
    /// Number of hosts.
    pub fn host_count(&self) -> usize {
        self.nodes.iter().filter(|node| node.kind == NodeKind::Host).count()
    }

    /// Number of switches.
    pub fn switch_count(&self) -> usize {
        self.nodes.len() - self.host_count()
    }

    /// Checks a graph that was not read from a file by this crate's importers (those check as they read).
    ///
    /// # Errors
    /// [`GraphError`]: no hosts, an end that is no node, a self link, a zero rate, an impossible loss, a repeated name,
    /// a host without links, more than one part.
    pub fn check(&self) -> Result<(), GraphError> {
        let fail = |problem| GraphError::new(&self.source, Place::File, problem);
        if self.links.len() > MOST_LINKS {
            let found = self.links.len() as u64;
            return Err(fail(GraphProblem::TooLarge { what: "links", limit: MOST_LINKS as u64, found }));
        }
        let mut names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(fail(GraphProblem::DuplicateNode { name: pair[0].to_owned(), first: Place::File }));
        }
        for (index, link) in self.links.iter().enumerate() {
            let place = Place::Item { list: "links", index: index as u32, key: "" };
            self.check_link(link).map_err(|problem| GraphError {
                file: self.source.clone(),
                place,
                problem,
            })?;
        }
        self.check_whole().map_err(|(_, problem)| GraphError::new(&self.source, Place::File, problem))
    }

    /// What can be said of a link by itself.
    pub(crate) fn check_link(&self, link: &GraphLink) -> Result<(), Box<GraphProblem>> {
        for end in [link.a, link.b] {
            if end as usize >= self.nodes.len() {
                let nodes = self.nodes.len();
                return Err(GraphProblem::UnknownNode { name: end.to_string(), nodes, nearest: None }.into());
            }
        }
        let name = |node: u32| self.nodes[node as usize].name.clone();
        if link.a == link.b {
            return Err(GraphProblem::SelfLink { node: name(link.a) }.into());
        }
        if link.rate.bps() == 0 {
            return Err(GraphProblem::ZeroRate { a: name(link.a), b: name(link.b) }.into());
        }
        if !(0.0..1.0).contains(&link.loss) {
            return Err(GraphProblem::Loss { found: link.loss }.into());
        }
        Ok(())
    }

    /// What can be said only of the whole: hosts, and one part. With the node that a message is about.
    pub(crate) fn check_whole(&self) -> Result<(), (Option<u32>, Box<GraphProblem>)> {
        if self.host_count() == 0 {
            return Err((None, GraphProblem::NoHosts { switches: self.nodes.len() }.into()));
        }
        let adjacency = Adjacency::new(self.nodes.len(), &self.links);
        let bare =
            |node: &u32| self.nodes[*node as usize].kind == NodeKind::Host && adjacency.of(*node).is_empty();
        if let Some(node) = (0..self.nodes.len() as u32).find(bare) {
            let name = self.nodes[node as usize].name.clone();
            return Err((Some(node), GraphProblem::BareHost { name }.into()));
        }
        let parts = parts(&adjacency, self.nodes.len());
        if parts.len() > 1 {
            // The largest part and, of the others, the one that begins first in the file.
            let largest = parts.iter().max_by_key(|part| (part.size, std::cmp::Reverse(part.first)));
            let largest = *largest.expect("there is more than one part");
            let other = parts.iter().find(|part| part.first != largest.first).expect("a second part");
            let name = |node: u32| self.nodes[node as usize].name.clone();
            let problem = GraphProblem::Disconnected {
                parts: parts.len(),
                a: name(largest.first),
                a_size: largest.size,
                b: name(other.first),
                b_size: other.size,
            };
            return Err((Some(other.first), problem.into()));
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Part {
    /// Its first node.
    first: u32,
    size: usize,
}

/// The connected parts, by their first node.
fn parts(adjacency: &Adjacency, nodes: usize) -> Vec<Part> {
    let mut seen = vec![false; nodes];
    let mut parts = Vec::new();
    let mut queue = Vec::new();
    for first in 0..nodes as u32 {
        if std::mem::replace(&mut seen[first as usize], true) {
            continue;
        }
        queue.push(first);
        let mut size = 0;
        while let Some(node) = queue.pop() {
            size += 1;
            for &(next, _) in adjacency.of(node) {
                if !std::mem::replace(&mut seen[next as usize], true) {
                    queue.push(next);
                }
            }
        }
        parts.push(Part { first, size });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, kind: NodeKind) -> GraphNode {
        GraphNode { name: name.to_owned(), kind, tier: None }
    }

    fn link(a: u32, b: u32) -> GraphLink {
        GraphLink { a, b, rate: BitRate::from_gbps(100), latency: Span::from_ns(10), loss: 0.0 }
    }

    fn star() -> GraphSpec {
        let nodes = vec![node("h0", NodeKind::Host), node("h1", NodeKind::Host), node("s", NodeKind::Switch)];
        GraphSpec { nodes, links: vec![link(0, 2), link(1, 2)], host: None, source: "star.csv".to_owned() }
    }

    #[test]
    fn a_sound_graph_passes() {
        assert_eq!(star().check(), Ok(()));
        let mut parallel = star();
        parallel.links.push(link(0, 2));
        assert_eq!(parallel.check(), Ok(()));
    }

    #[test]
    fn every_fault_is_named() {
        let message = |change: &dyn Fn(&mut GraphSpec)| {
            let mut spec = star();
            change(&mut spec);
            let error = spec.check().unwrap_err();
            format!("{}: {error}", error.place())
        };
        assert_eq!(
            message(&|spec| spec.links[1].b = 7),
            "star.csv: links[1]: expected one of the 3 nodes, found `7`"
        );
        assert_eq!(
            message(&|spec| spec.links[0].b = 0),
            "star.csv: links[0]: expected a link between two nodes, found one from `h0` to itself"
        );
        assert_eq!(
            message(&|spec| spec.links[0].rate = BitRate::ZERO),
            "star.csv: links[0]: expected a rate above 0 between `h0` and `s`, found 0"
        );
        assert_eq!(
            message(&|spec| spec.links[0].loss = 1.5),
            "star.csv: links[0]: expected a loss in [0, 1), found 1.5"
        );
        assert_eq!(
            message(&|spec| spec.nodes[1].name = "s".to_owned()),
            "star.csv: expected every node once, found `s` twice"
        );
        assert_eq!(
            message(&|spec| spec.links.truncate(1)),
            "star.csv: expected a link at every host, found none at `h1`"
        );
        assert_eq!(
            message(&|spec| spec.nodes.iter_mut().for_each(|node| node.kind = NodeKind::Switch)),
            "star.csv: expected at least one host, found 3 switches only"
        );
    }

    #[test]
    fn parts_are_named_with_their_sizes() {
        let mut spec = star();
        spec.nodes.extend([node("t", NodeKind::Switch), node("h2", NodeKind::Host)]);
        spec.links.push(link(3, 4));
        let error = spec.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected one connected graph, found 2 parts: one of 3 nodes with `h0`, one of 2 nodes with `t`"
        );
        assert!(error.hint().is_some());
    }
}
