//! Names and values of the properties of nodes and links, the same in CSV, GraphML and JSON.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use windtunnel_kernel::nearest;

use super::text::{Source, Word};
use crate::graph::{Cable, GraphBuilder, GraphError, GraphProblem, NodeKind, Place, Repeats};

/// Properties of a link; a cable's latency is given as a time or as a length.
pub(super) const LINK_KEYS: [&str; 5] = ["rate", "latency", "length", "loss", "count"];

/// Most parallel cables of one link: a slip of the pen must not cost the machine's memory.
const MOST_PARALLEL: u32 = 1 << 16;

/// What a link's properties say so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LinkAttributes {
    pub(super) cable: Cable,
    pub(super) count: u32,
}

impl Default for LinkAttributes {
    fn default() -> Self {
        Self { cable: Cable::default(), count: 1 }
    }
}

impl LinkAttributes {
    /// Takes `key`, one of [`LINK_KEYS`]; `false` if it is another. An empty value counts as none.
    pub(super) fn set(&mut self, source: Source<'_>, key: &str, value: Word<'_>) -> Result<bool, GraphError> {
        let value = Word { text: value.text.trim(), ..value };
        if value.text.is_empty() {
            return Ok(LINK_KEYS.contains(&key));
        }
        match key {
            "rate" => self.cable.rate = Some(source.rate(key, value)?),
            "latency" | "length" if self.cable.latency.is_some() => {
                return Err(source.syntax(value.place, "either `latency` or `length`", "both"));
            }
            "latency" => self.cable.latency = Some(source.time(key, value)?),
            "length" => self.cable.latency = Some(source.length(key, value)?),
            "loss" => self.cable.loss = source.loss(value)?,
            "count" => {
                self.count = source.positive(key, value)?;
                if self.count > MOST_PARALLEL {
                    let (limit, found) = (u64::from(MOST_PARALLEL), u64::from(self.count));
                    let problem = GraphProblem::TooLarge { what: "parallel links", limit, found };
                    return Err(source.fail(value.place, problem));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

pub(super) fn kind(source: Source<'_>, value: Word<'_>) -> Result<Option<NodeKind>, GraphError> {
    match value.text.trim() {
        "" => Ok(None),
        "host" => Ok(Some(NodeKind::Host)),
        "switch" => Ok(Some(NodeKind::Switch)),
        other => Err(source.syntax(value.place, "a kind, `host` or `switch`", &format!("`{other}`"))),
    }
}

pub(super) fn tier(source: Source<'_>, value: Word<'_>) -> Result<Option<u8>, GraphError> {
    let text = value.text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| source.syntax(value.place, "a tier, 0 to 255", &format!("`{text}`")))
}

/// A key that a format does not have.
pub(super) fn unknown_key(source: Source<'_>, key: Word<'_>, known: &[&str]) -> GraphError {
    let near = nearest(key.text, known.iter().copied()).map(str::to_owned);
    let list: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let problem =
        GraphProblem::UnknownKey { found: key.text.to_owned(), known: list.join(", "), nearest: near };
    source.fail(key.place, problem)
}

/// Links of a document that may be directed and may be a multigraph.
///
/// A cable is two directed links: in a directed graph each link waits for the one back, and only a pair is a cable.
#[derive(Default)]
pub(super) struct Links {
    /// Of directed links in the order of the file: ends, properties, place, and whether the one back has come.
    list: Vec<((u32, u32), LinkAttributes, Place, bool)>,
    /// By ends: those of the list whose one back has not come, in order.
    waiting: FxHashMap<(u32, u32), VecDeque<usize>>,
}

impl Links {
    pub(super) fn add(
        &mut self,
        graph: &mut GraphBuilder<'_>,
        (a, b): (u32, u32),
        attributes: LinkAttributes,
        directed: bool,
        parallel: bool,
        place: Place,
    ) -> Result<(), GraphError> {
        let hint = "several parallel cables are one link with a `count`, or a multigraph";
        let mut ends = (a, b);
        if directed {
            let Some(back) = self.waiting.get_mut(&(b, a)).and_then(VecDeque::pop_front) else {
                let waiting = self.waiting.entry((a, b)).or_default();
                if let Some(&first) = waiting.front().filter(|_| !parallel) {
                    let (a, b) = (graph.name(a).to_owned(), graph.name(b).to_owned());
                    let first = self.list[first].2;
                    let problem = GraphProblem::DuplicateLink { a, b, first, hint: Some(hint) };
                    return Err(graph.fail(place, problem));
                }
                waiting.push_back(self.list.len());
                self.list.push(((a, b), attributes, place, false));
                return Ok(());
            };
            self.list[back].3 = true;
            let there = self.list[back].1;
            if there != attributes {
                let (a, b) = (graph.name(b).to_owned(), graph.name(a).to_owned());
                let (what, there, back) = difference(&there, &attributes);
                return Err(graph.fail(place, GraphProblem::Asymmetric { what, a, b, there, back }));
            }
            ends = (b, a);
        }
        let repeats = if parallel { Repeats::Parallel } else { Repeats::Refused(Some(hint)) };
        graph.link(ends, attributes.cable, attributes.count, repeats, place)
    }

    /// Fails if a link waits in vain.
    pub(super) fn finish(self, graph: &GraphBuilder<'_>) -> Result<(), GraphError> {
        let Some(&((from, to), _, place, _)) = self.list.iter().find(|link| !link.3) else { return Ok(()) };
        let (from, to) = (graph.name(from).to_owned(), graph.name(to).to_owned());
        Err(graph.fail(place, GraphProblem::OneWay { from, to }))
    }
}

/// The first property in which two differ.
fn difference(there: &LinkAttributes, back: &LinkAttributes) -> (&'static str, String, String) {
    let text =
        |value: Option<u64>, unit: &str| value.map_or("none".to_owned(), |value| format!("{value} {unit}"));
    let rate = |link: &LinkAttributes| text(link.cable.rate.map(windtunnel_kernel::BitRate::bps), "bps");
    let latency = |link: &LinkAttributes| text(link.cable.latency.map(windtunnel_kernel::Span::ps), "ps");
    if there.cable.rate != back.cable.rate {
        ("rate", rate(there), rate(back))
    } else if there.cable.latency != back.cable.latency {
        ("latency", latency(there), latency(back))
    } else if there.cable.loss != back.cable.loss {
        ("loss", there.cable.loss.to_string(), back.cable.loss.to_string())
    } else {
        ("count", there.count.to_string(), back.count.to_string())
    }
}
