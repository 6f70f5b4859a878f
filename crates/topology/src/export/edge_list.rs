//! CSV with a header: one row a cable, or as many parallel ones as `count` says.

use std::fmt::Write;

use rustc_hash::FxHashMap;

use super::units;
use crate::graph::GraphSpec;

/// The graph as an edge list. Nodes are numbered anew by who reads it, as they come; equal parallel cables stand in one
/// row; parallel cables that differ, which an edge list cannot tell from a slip, are refused.
///
/// # Errors
/// [`crate::GraphError`] for parallel cables of different properties.
pub fn edge_list(graph: &GraphSpec) -> Result<String, crate::GraphError> {
    let mut rows: Vec<(usize, u32)> = Vec::new();
    let mut row_of: FxHashMap<(u32, u32), usize> = FxHashMap::default();
    for (number, link) in graph.links.iter().enumerate() {
        let pair = (link.a.min(link.b), link.a.max(link.b));
        let Some(&row) = row_of.get(&pair) else {
            row_of.insert(pair, rows.len());
            rows.push((number, 1));
            continue;
        };
        let first = &graph.links[rows[row].0];
        if (first.rate, first.latency, first.loss) != (link.rate, link.latency, link.loss) {
            let name = |node: u32| &graph.nodes[node as usize].name;
            let what = format!(
                "expected parallel links to be equal in an edge list, found different ones between `{}` and `{}`",
                name(link.a),
                name(link.b)
            );
            return Err(super::cannot(&graph.source, what, Some("GraphML keeps them apart")));
        }
        rows[row].1 += 1;
    }
    let lossy = graph.links.iter().any(|link| link.loss != 0.0);
    let parallel = rows.iter().any(|&(_, count)| count > 1);
    let tiers = graph.nodes.iter().any(|node| node.tier.is_some());
    let mut text = String::from("src,dst,src_kind,dst_kind");
    for (name, used) in
        [(",src_tier,dst_tier", tiers), (",rate,latency", true), (",loss", lossy), (",count", parallel)]
    {
        if used {
            text.push_str(name);
        }
    }
    text.push('\n');
    for (number, count) in rows {
        let link = &graph.links[number];
        let (a, b) = (&graph.nodes[link.a as usize], &graph.nodes[link.b as usize]);
        let _ = write!(text, "{},{},{},{}", field(&a.name), field(&b.name), a.kind.name(), b.kind.name());
        if tiers {
            let tier = |tier: Option<u8>| tier.map(|tier| tier.to_string()).unwrap_or_default();
            let _ = write!(text, ",{},{}", tier(a.tier), tier(b.tier));
        }
        let _ = write!(text, ",{},{}", units::rate(link.rate, " "), units::time(link.latency, " "));
        if lossy {
            let _ = write!(text, ",{}", link.loss);
        }
        if parallel {
            let _ = write!(text, ",{count}");
        }
        text.push('\n');
    }
    Ok(text)
}

/// A text as a field: quoted where it must be (RFC 4180), and where a reader would take it for a comment.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) || text.starts_with('#') || text.trim() != text {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
