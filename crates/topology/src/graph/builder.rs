//! A graph as an importer grows it, each node and link with its place in the file.
//!
//! Nodes are numbered as they come. What can be wrong with one node or link is found when it is added, what can be
//! wrong with the whole in [`GraphBuilder::finish`].

use rustc_hash::FxHashMap;
use windtunnel_kernel::{BitRate, Span, nearest};

use super::error::{GraphError, GraphProblem, Place};
use super::spec::{Adjacency, GraphLink, GraphNode, GraphSpec, MOST_LINKS, NodeKind};

/// What the caller knows that a file does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Defaults {
    /// Of every link without a rate.
    pub rate: Option<BitRate>,
    /// Of every link without a latency.
    pub latency: Option<Span>,
}

/// What a file says of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub(crate) struct Cable {
    pub(crate) rate: Option<BitRate>,
    pub(crate) latency: Option<Span>,
    pub(crate) loss: f64,
}

/// Whether a format may name a pair of nodes more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeats {
    /// Each time is one more cable.
    Parallel,
    /// It is a slip; with a hint on how the format says parallel cables, if it can.
    Refused(Option<&'static str>),
}

pub(crate) struct GraphBuilder<'a> {
    spec: GraphSpec,
    defaults: &'a Defaults,
    /// `None` where the file says nothing.
    kinds: Vec<Option<NodeKind>>,
    by_name: FxHashMap<String, u32>,
    node_places: Vec<Place>,
    /// Where the first of the links between two nodes is.
    pairs: FxHashMap<(u32, u32), u32>,
    link_places: Vec<Place>,
}

impl<'a> GraphBuilder<'a> {
    pub(crate) fn new(file: &str, defaults: &'a Defaults) -> Self {
        Self {
            spec: GraphSpec { source: file.to_owned(), ..GraphSpec::default() },
            defaults,
            kinds: Vec::new(),
            by_name: FxHashMap::default(),
            node_places: Vec::new(),
            pairs: FxHashMap::default(),
            link_places: Vec::new(),
        }
    }

    pub(crate) fn fail(&self, place: Place, problem: impl Into<Box<GraphProblem>>) -> GraphError {
        GraphError::new(&self.spec.source, place, problem)
    }

    pub(crate) fn name(&self, node: u32) -> &str {
        &self.spec.nodes[node as usize].name
    }

    pub(crate) fn nodes(&self) -> usize {
        self.spec.nodes.len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Where a node was first mentioned.
    pub(crate) fn place_of(&self, node: u32) -> Place {
        self.node_places[node as usize]
    }

    /// A node that must be new.
    pub(crate) fn declare(
        &mut self,
        name: &str,
        kind: Option<NodeKind>,
        tier: Option<u8>,
        place: Place,
    ) -> Result<u32, GraphError> {
        if let Some(first) = self.find(name) {
            let first = self.place_of(first);
            return Err(self.fail(place, GraphProblem::DuplicateNode { name: name.to_owned(), first }));
        }
        self.mention(name, kind, tier, place)
    }

    /// A node that may be known: what was open about it is filled in, what differs is an error.
    pub(crate) fn mention(
        &mut self,
        name: &str,
        kind: Option<NodeKind>,
        tier: Option<u8>,
        place: Place,
    ) -> Result<u32, GraphError> {
        if let Some(node) = self.find(name) {
            let (was, tier_was) = (self.kinds[node as usize], self.spec.nodes[node as usize].tier);
            let differs = |key: &str, was: String, is: String| GraphProblem::Mismatch {
                key: key.to_owned(),
                expected: format!("{was} for `{name}` as before"),
                found: is,
                hint: None,
            };
            if let (Some(was), Some(is)) = (was, kind)
                && was != is
            {
                let quoted = |kind: NodeKind| format!("`{}`", kind.name());
                return Err(self.fail(place, differs("kind", quoted(was), quoted(is))));
            }
            if let (Some(was), Some(is)) = (tier_was, tier)
                && was != is
            {
                return Err(self.fail(place, differs("tier", was.to_string(), is.to_string())));
            }
            self.kinds[node as usize] = was.or(kind);
            self.spec.nodes[node as usize].tier = tier_was.or(tier);
            return Ok(node);
        }
        if name.is_empty() {
            let (expected, found) = ("a node name".to_owned(), "an empty one".to_owned());
            return Err(self.fail(place, GraphProblem::Syntax { expected, found }));
        }
        let node = self.spec.nodes.len() as u32;
        if self.spec.nodes.len() >= MOST_LINKS {
            let found = self.spec.nodes.len() as u64 + 1;
            return Err(
                self.fail(place, GraphProblem::TooLarge { what: "nodes", limit: MOST_LINKS as u64, found })
            );
        }
        let kind_now = kind.unwrap_or(NodeKind::Switch);
        self.spec.nodes.push(GraphNode { name: name.to_owned(), kind: kind_now, tier });
        self.kinds.push(kind);
        self.by_name.insert(name.to_owned(), node);
        self.node_places.push(place);
        Ok(node)
    }

    /// A node that must be known, with the nearest name if it is not.
    pub(crate) fn known(&self, name: &str, place: Place) -> Result<u32, GraphError> {
        self.find(name).ok_or_else(|| {
            let names = self.spec.nodes.iter().map(|node| node.name.as_str());
            let nearest = nearest(name, names).map(str::to_owned);
            self.fail(
                place,
                GraphProblem::UnknownNode { name: name.to_owned(), nodes: self.nodes(), nearest },
            )
        })
    }

    /// The first link between two nodes, if there is one, and where.
    pub(crate) fn between(&self, a: u32, b: u32) -> Option<(GraphLink, Place)> {
        let link = *self.pairs.get(&(a.min(b), a.max(b)))? as usize;
        Some((self.spec.links[link], self.link_places[link]))
    }

    /// `count` parallel cables.
    pub(crate) fn link(
        &mut self,
        (a, b): (u32, u32),
        cable: Cable,
        count: u32,
        repeats: Repeats,
        place: Place,
    ) -> Result<(), GraphError> {
        let missing =
            |what| GraphProblem::Missing { what, a: self.name(a).to_owned(), b: self.name(b).to_owned() };
        let rate = cable.rate.or(self.defaults.rate).ok_or_else(|| self.fail(place, missing("rate")))?;
        let latency =
            cable.latency.or(self.defaults.latency).ok_or_else(|| self.fail(place, missing("latency")))?;
        let link = GraphLink { a, b, rate, latency, loss: cable.loss };
        self.spec.check_link(&link).map_err(|problem| self.fail(place, problem))?;
        if let (Repeats::Refused(hint), Some((_, first))) = (repeats, self.between(a, b)) {
            let (a, b) = (self.name(a).to_owned(), self.name(b).to_owned());
            return Err(self.fail(place, GraphProblem::DuplicateLink { a, b, first, hint }));
        }
        let found = self.spec.links.len() as u64 + u64::from(count);
        if found > MOST_LINKS as u64 {
            return Err(
                self.fail(place, GraphProblem::TooLarge { what: "links", limit: MOST_LINKS as u64, found })
            );
        }
        let first = self.spec.links.len() as u32;
        self.pairs.entry((a.min(b), a.max(b))).or_insert(first);
        self.spec.links.extend(std::iter::repeat_n(link, count as usize));
        self.link_places.extend(std::iter::repeat_n(place, count as usize));
        Ok(())
    }

    /// The graph, if it is sound. Where the file says of no node what it is, those with a single neighbour are hosts;
    /// where it says it of some, the others are switches.
    pub(crate) fn finish(mut self) -> Result<GraphSpec, GraphError> {
        if self.kinds.iter().all(Option::is_none) {
            let adjacency = Adjacency::new(self.spec.nodes.len(), &self.spec.links);
            for (number, node) in self.spec.nodes.iter_mut().enumerate() {
                let ports = adjacency.of(number as u32);
                let single =
                    ports.first().is_some_and(|(first, _)| ports.iter().all(|(next, _)| next == first));
                node.kind = if single { NodeKind::Host } else { NodeKind::Switch };
            }
        } else {
            for (node, kind) in self.spec.nodes.iter_mut().zip(&self.kinds) {
                node.kind = kind.unwrap_or(NodeKind::Switch);
            }
        }
        self.spec.check_whole().map_err(|(node, problem)| {
            self.fail(node.map_or(Place::File, |node| self.place_of(node)), problem)
        })?;
        Ok(self.spec)
    }
}
