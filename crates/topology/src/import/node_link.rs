//! Node-link JSON, as networkx writes it: `{"directed", "multigraph", "graph", "nodes": [{"id", …}], "edges": [{"source",
//! "target", …}]}`; the list of edges is called `links` before networkx 3.4.
//!
//! Nodes and links have the properties of GraphML's; ids are texts or whole numbers.

use serde_json::{Map, Value};

use super::attributes::{LINK_KEYS, LinkAttributes, Links, kind, tier};
use super::text::{Source, Word};
use crate::graph::{Defaults, GraphBuilder, GraphError, GraphProblem, GraphSpec, Place};

pub(super) fn read(file: &str, text: &str, defaults: &Defaults) -> Result<GraphSpec, GraphError> {
    let source = Source { file };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let document: Value = serde_json::from_str(text).map_err(|error| {
        let place = Place::Line { line: error.line() as u32, column: error.column() as u32 };
        // The place is told apart: cut the reader's own ` at line 3 column 7`.
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        source.syntax(place, "JSON", &format!("an error: {message}"))
    })?;
    let Value::Object(document) = document else {
        return Err(source.syntax(Place::File, "an object with `nodes` and `edges`", "another value"));
    };
    let flag = |key: &str| match document.get(key) {
        None | Some(Value::Bool(false)) => Ok(false),
        Some(Value::Bool(true)) => Ok(true),
        Some(other) => {
            Err(source.syntax(Place::File, &format!("`{key}` to be `true` or `false`"), &shown(other)))
        }
    };
    let (directed, parallel) = (flag("directed")?, flag("multigraph")?);
    let list = |keys: &[&str]| match keys.iter().find_map(|key| document.get(*key)) {
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(source.syntax(Place::File, &format!("a list `{}`", keys[0]), &shown(other))),
        None => {
            let (key, within) = (keys[0].to_owned(), "in the document".to_owned());
            Err(source.fail(Place::File, GraphProblem::MissingKey { key, within }))
        }
    };
    let edges = if document.contains_key("edges") { "edges" } else { "links" };

    let mut graph = GraphBuilder::new(file, defaults);
    for (index, node) in list(&["nodes"])?.iter().enumerate() {
        let place = |key| Place::Item { list: "nodes", index: index as u32, key };
        let node = object(source, node, place(""))?;
        let name = id(source, node, "id", place("id"))?;
        let text = |key: &str| node.get(key).map(shown).unwrap_or_default();
        let its_kind = kind(source, Word { text: &text("kind"), place: place("kind") })?;
        let its_tier = tier(source, Word { text: &text("tier"), place: place("tier") })?;
        graph.declare(&name, its_kind, its_tier, place("id"))?;
    }
    let mut links = Links::default();
    for (index, edge) in list(&["edges", "links"])?.iter().enumerate() {
        let place = |key| Place::Item { list: edges, index: index as u32, key };
        let edge = object(source, edge, place(""))?;
        let end = |key| {
            let name = id(source, edge, key, place(key))?;
            graph.known(&name, place(key))
        };
        let ends = (end("source")?, end("target")?);
        let mut attributes = LinkAttributes::default();
        for key in LINK_KEYS {
            let Some(value) = edge.get(key).filter(|value| !value.is_null()) else { continue };
            attributes.set(source, key, Word { text: &shown(value), place: place(key) })?;
        }
        links.add(&mut graph, ends, attributes, directed, parallel, place(""))?;
    }
    links.finish(&graph)?;
    graph.finish()
}

fn object<'v>(
    source: Source<'_>,
    value: &'v Value,
    place: Place,
) -> Result<&'v Map<String, Value>, GraphError> {
    value.as_object().ok_or_else(|| source.syntax(place, "an object", &shown(value)))
}

fn id(source: Source<'_>, map: &Map<String, Value>, key: &str, place: Place) -> Result<String, GraphError> {
    match map.get(key) {
        Some(Value::String(name)) => Ok(name.clone()),
        Some(Value::Number(number)) if number.is_u64() || number.is_i64() => Ok(number.to_string()),
        Some(other) => Err(source.syntax(place, "an id, a text or a whole number", &shown(other))),
        None => {
            let (key, within) = (key.to_owned(), "here".to_owned());
            Err(source.fail(place, GraphProblem::MissingKey { key, within }))
        }
    }
}

/// A text as it is, anything else as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
