//! GraphML, as networkx, igraph and yEd write it.
//!
//! Read of nodes: `kind` (`host` or `switch`) and `tier`; of edges: `rate`, `latency` or `length`, `loss`, `count`, each
//! with its unit; other attributes are drawing. Defaults of `<key>` count. Edges with an `id` may be parallel (networkx
//! writes ids for multigraphs alone); of a directed graph both directions must be there and equal. Nested graphs,
//! hyperedges and ports are not read.

use roxmltree::{Document, Node};
use rustc_hash::FxHashMap;

use super::attributes::{LinkAttributes, Links, kind, tier};
use super::text::{Source, Word};
use crate::graph::{Defaults, GraphBuilder, GraphError, GraphProblem, GraphSpec, Place};

/// A declared attribute.
struct Key<'a> {
    /// `node`, `edge`, `all`, …
    of: &'a str,
    name: &'a str,
    default: Option<Word<'a>>,
}

struct Reader<'a, 'input> {
    source: Source<'a>,
    document: &'a Document<'input>,
    /// Where each line begins: the parser's own look-up of a place reads the text from its beginning.
    lines: Vec<usize>,
    keys: Vec<Key<'a>>,
    by_id: FxHashMap<&'a str, usize>,
}

pub(super) fn read(file: &str, text: &str, defaults: &Defaults) -> Result<GraphSpec, GraphError> {
    let source = Source { file };
    let options = roxmltree::ParsingOptions { allow_dtd: false, ..Default::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        let at = error.pos();
        // The place is told apart: cut the parser's own ` at 3:7`.
        let message = error.to_string();
        let message = message.rsplit_once(" at ").map_or(message.as_str(), |(message, _)| message);
        source.syntax(Place::Line { line: at.row, column: at.col }, "XML", &format!("an error: {message}"))
    })?;
    let lines =
        std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1)).collect();
    let mut reader =
        Reader { source, document: &document, lines, keys: Vec::new(), by_id: FxHashMap::default() };
    reader.read(file, defaults)
}

impl<'a, 'input> Reader<'a, 'input> {
    fn place(&self, node: Node<'_, '_>) -> Place {
        let at = node.range().start;
        let line = self.lines.partition_point(|&start| start <= at);
        let before = &self.document.input_text()[self.lines[line - 1]..at];
        Place::Line { line: line as u32, column: before.chars().count() as u32 + 1 }
    }

    fn need(&self, node: Node<'a, 'input>, key: &str) -> Result<&'a str, GraphError> {
        node.attribute(key).ok_or_else(|| {
            let (key, within) = (key.to_owned(), format!("in `<{}>`", node.tag_name().name()));
            self.source.fail(self.place(node), GraphProblem::MissingKey { key, within })
        })
    }

    fn read(&mut self, file: &str, defaults: &Defaults) -> Result<GraphSpec, GraphError> {
        let root = self.document.root_element();
        if root.tag_name().name() != "graphml" {
            let found = format!("`<{}>`", root.tag_name().name());
            return Err(self.source.syntax(self.place(root), "`<graphml>`", &found));
        }
        for key in elements(root, "key") {
            let Some(name) = key.attribute("attr.name") else { continue };
            let default = elements(key, "default").next().map(|node| self.word(node));
            let id = self.need(key, "id")?;
            self.by_id.insert(id, self.keys.len());
            self.keys.push(Key { of: key.attribute("for").unwrap_or("all"), name, default });
        }
        let mut graphs = elements(root, "graph");
        let Some(graph) = graphs.next() else {
            return Err(self.source.syntax(self.place(root), "a `<graph>`", "none"));
        };
        if let Some(second) = graphs.next() {
            return Err(self.source.syntax(self.place(second), "one `<graph>`", "another"));
        }
        let directed = graph.attribute("edgedefault") == Some("directed");

        let mut builder = GraphBuilder::new(file, defaults);
        for node in elements(graph, "node") {
            if let Some(nested) = elements(node, "graph").next() {
                return Err(self.source.syntax(self.place(nested), "a flat graph", "a graph in a node"));
            }
            let (mut its_kind, mut its_tier) = (None, None);
            for (name, value) in self.data(node, "node")? {
                match name {
                    "kind" => its_kind = kind(self.source, value)?,
                    "tier" => its_tier = tier(self.source, value)?,
                    _ => {}
                }
            }
            builder.declare(self.need(node, "id")?, its_kind, its_tier, self.place(node))?;
        }
        let mut links = Links::default();
        for edge in elements(graph, "edge") {
            let place = self.place(edge);
            let ends = (
                builder.known(self.need(edge, "source")?, place)?,
                builder.known(self.need(edge, "target")?, place)?,
            );
            let mut attributes = LinkAttributes::default();
            for (name, value) in self.data(edge, "edge")? {
                attributes.set(self.source, name, value)?;
            }
            let directed = edge.attribute("directed").map_or(directed, |value| value == "true");
            let parallel = edge.attribute("id").is_some();
            links.add(&mut builder, ends, attributes, directed, parallel, place)?;
        }
        links.finish(&builder)?;
        builder.finish()
    }

    fn word(&self, node: Node<'a, 'input>) -> Word<'a> {
        Word { text: node.text().unwrap_or("").trim(), place: self.place(node) }
    }

    /// The attributes of a node or edge by name: its own, then the defaults of those it does not have.
    fn data(&self, node: Node<'a, 'input>, of: &str) -> Result<Vec<(&'a str, Word<'a>)>, GraphError> {
        let mut own = vec![None; self.keys.len()];
        for data in elements(node, "data") {
            let id = self.need(data, "key")?;
            let Some(&key) = self.by_id.get(id) else { continue };
            own[key] = Some(self.word(data));
        }
        let values = self.keys.iter().zip(own).filter_map(|(key, own)| {
            let default = if key.of == of || key.of == "all" { key.default } else { None };
            Some((key.name, own.or(default)?))
        });
        Ok(values.collect())
    }
}

/// Child elements of a name, whatever their namespace: some writers leave it out.
fn elements<'a, 'input: 'a>(
    parent: Node<'a, 'input>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    parent.children().filter(move |node| node.is_element() && node.tag_name().name() == name)
}
