//! GraphML that networkx, igraph, Gephi and yEd read.

use std::fmt::Write;

use super::units;
use crate::graph::GraphSpec;

/// The graph as GraphML. Every cable is an edge of its own, with an id, so that parallel ones are kept.
pub fn graphml(graph: &GraphSpec) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    text.push_str("<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n");
    let keys = [
        ("node", "kind", "string"),
        ("node", "tier", "int"),
        ("edge", "rate", "string"),
        ("edge", "latency", "string"),
        ("edge", "loss", "double"),
    ];
    for (of, name, kind) in keys {
        let _ =
            writeln!(text, "  <key id=\"{name}\" for=\"{of}\" attr.name=\"{name}\" attr.type=\"{kind}\"/>");
    }
    text.push_str("  <graph edgedefault=\"undirected\">\n");
    for node in &graph.nodes {
        let _ = write!(
            text,
            "    <node id=\"{}\"><data key=\"kind\">{}</data>",
            escaped(&node.name),
            node.kind.name()
        );
        if let Some(tier) = node.tier {
            let _ = write!(text, "<data key=\"tier\">{tier}</data>");
        }
        text.push_str("</node>\n");
    }
    for (number, link) in graph.links.iter().enumerate() {
        let name = |node: u32| escaped(&graph.nodes[node as usize].name);
        let _ = write!(
            text,
            "    <edge id=\"{number}\" source=\"{}\" target=\"{}\"><data key=\"rate\">{}</data><data \
             key=\"latency\">{}</data>",
            name(link.a),
            name(link.b),
            units::rate(link.rate, " "),
            units::time(link.latency, " ")
        );
        if link.loss != 0.0 {
            let _ = write!(text, "<data key=\"loss\">{}</data>", link.loss);
        }
        text.push_str("</edge>\n");
    }
    text.push_str("  </graph>\n</graphml>\n");
    text
}

/// A text as an attribute's value; line breaks and tabs, which a reader would turn into spaces, as references.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\r' | '\t' => {
                let _ = write!(out, "&#{};", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out
}
