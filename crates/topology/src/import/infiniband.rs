//! What `ibnetdiscover` prints.
//!
//! A record begins with `Switch ports "S-guid"`, `Ca ports "H-guid"` or `Rt ports "R-guid"` and its description after
//! `#`; each port that is up follows as `[port] "S-guid"[port] # "description" lid 4 4xHDR`, with the port's own guid
//! after an end that is no switch. The two ends of a cable are two lines, which must agree; a port of a node that has no
//! record of its own is read as well, so that a partial listing is complete.
//!
//! A channel adapter whose description is `name HCA-1` or `name mlx5_0` is a NIC of host `name`; adapters of one host
//! are one node. Switches are named by their description where it is theirs alone, otherwise with their guid. The rate
//! is lanes × the data rate of a lane; latencies are not in the listing.

use rustc_hash::FxHashMap;
use windtunnel_kernel::BitRate;

use super::text::{Line, Source, raw_lines};
use crate::graph::{
    Cable, Defaults, GraphBuilder, GraphError, GraphProblem, GraphSpec, NodeKind, Place, Repeats,
};

/// Bits of data per second and lane: the signalling rate less its line code, as InfiniBand's releases give it.
const LANES: [(&str, u64); 9] = [
    ("SDR", 2_000_000_000),
    ("DDR", 4_000_000_000),
    ("QDR", 8_000_000_000),
    ("FDR10", 10_000_000_000),
    ("FDR", 13_636_363_636),
    ("EDR", 25_000_000_000),
    ("HDR", 50_000_000_000),
    ("NDR", 100_000_000_000),
    ("XDR", 200_000_000_000),
];

/// Whether a line is the beginning of a record or of what precedes one.
pub(super) fn is_record(line: &str) -> bool {
    line.starts_with("vendid=") || header(line).is_some()
}

/// A node named in quotes: its guid with the letter of its type.
struct Node<'a> {
    guid: &'a str,
    description: &'a str,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Port<'a> {
    guid: &'a str,
    port: u32,
}

struct Cabled<'a> {
    from: Port<'a>,
    to: Port<'a>,
    rate: Option<BitRate>,
    place: Place,
}

/// `"guid"` of the line `Switch 36 "S-…" …`.
fn header(line: &str) -> Option<&str> {
    let kind = line.split_whitespace().next()?;
    if !matches!(kind, "Switch" | "Ca" | "Rt") {
        return None;
    }
    let guid = line.split('"').nth(1)?;
    matches!(guid.as_bytes(), [b'S' | b'H' | b'R', b'-', ..]).then_some(guid)
}

pub(super) fn read(file: &str, text: &str, defaults: &Defaults) -> Result<GraphSpec, GraphError> {
    let source = Source { file };
    let mut nodes: Vec<Node<'_>> = Vec::new();
    let mut number_of: FxHashMap<&str, usize> = FxHashMap::default();
    let mut cables = Vec::new();
    let mut current = None;
    for line in raw_lines(text) {
        let trimmed = line.text.trim();
        if let Some(guid) = header(trimmed) {
            let description = quoted(trimmed, 3).unwrap_or("");
            if let Some(&known) = number_of.get(guid) {
                if nodes[known].place == Place::File {
                    nodes[known].place = line.place();
                } else {
                    let (name, first) = (guid.to_owned(), nodes[known].place);
                    return Err(source.fail(line.place(), GraphProblem::DuplicateNode { name, first }));
                }
                nodes[known].description = description;
            } else {
                number_of.insert(guid, nodes.len());
                nodes.push(Node { guid, description, place: line.place() });
            }
            current = Some(guid);
        } else if trimmed.starts_with('[') {
            let Some(from) = current else {
                return Err(source.syntax(
                    line.place(),
                    "a record before its ports",
                    &format!("`{trimmed}`"),
                ));
            };
            let (cable, description) = port_line(source, line, from)?;
            let to = cable.to.guid;
            if !number_of.contains_key(to) {
                number_of.insert(to, nodes.len());
                nodes.push(Node { guid: to, description, place: Place::File });
            }
            cables.push(cable);
        }
        // Other lines are comments and attributes: vendid=, devid=, sysimgguid=, switchguid=, caguid=, DR path.
    }
    build(file, defaults, &nodes, &number_of, &cables)
}

/// The text between the `index`th quotation mark, from 0, and the next, an odd number.
fn quoted(line: &str, index: usize) -> Option<&str> {
    line.split('"').nth(index)
}

/// `[1]  "H-…"[1](…)   # "name HCA-1" lid 4 4xHDR`, and in a record of an adapter `[1](…)  "S-…"[7]  # …`.
fn port_line<'a>(
    source: Source<'_>,
    line: Line<'a>,
    from: &'a str,
) -> Result<(Cabled<'a>, &'a str), GraphError> {
    let text = line.text.trim();
    let fail = || source.syntax(line.place(), "a port such as `[1] \"S-guid\"[2]`", &format!("`{text}`"));
    let bracket = |text: &str| text.strip_prefix('[')?.split_once(']')?.0.trim().parse::<u32>().ok();
    let port = bracket(text).ok_or_else(fail)?;
    let guid = quoted(text, 1).ok_or_else(fail)?;
    if !matches!(guid.as_bytes(), [b'S' | b'H' | b'R', b'-', ..]) {
        return Err(fail());
    }
    let after = text.splitn(3, '"').nth(2).ok_or_else(fail)?;
    let to = Port { guid, port: bracket(after).ok_or_else(fail)? };
    let comment = after.split_once('#').map_or("", |(_, comment)| comment);
    let description = quoted(comment, 1).unwrap_or("");
    // The last word is the rate, such as 4xHDR; older listings have none.
    let word = comment.rsplit(|c: char| c.is_whitespace()).find(|word| !word.is_empty()).unwrap_or("");
    let rate = match word.split_once('x') {
        Some((lanes, speed)) if lanes.bytes().all(|b| b.is_ascii_digit()) && !lanes.is_empty() => {
            Some(rate_of(source, line, lanes, speed)?)
        }
        _ => None,
    };
    Ok((Cabled { from: Port { guid: from, port }, to, rate, place: line.place() }, description))
}

fn rate_of(source: Source<'_>, line: Line<'_>, lanes: &str, speed: &str) -> Result<BitRate, GraphError> {
    let fail = || {
        let known: Vec<&str> = LANES.iter().map(|(name, _)| *name).collect();
        let expected = format!("a width and a speed such as `4xHDR`, of {}", known.join(", "));
        source.syntax(line.place(), &expected, &format!("`{lanes}x{speed}`"))
    };
    let (_, lane) = LANES.iter().find(|(name, _)| *name == speed).ok_or_else(fail)?;
    let lanes: u64 = lanes.parse().ok().filter(|lanes| (1..=64).contains(lanes)).ok_or_else(fail)?;
    Ok(BitRate::from_bps(lane * lanes))
}

/// The host of an adapter's description: what stands before ` HCA-1`, ` mlx5_0` and the like.
fn host_name(description: &str) -> Option<&str> {
    let (host, adapter) = description.rsplit_once(' ')?;
    let lower = adapter.to_ascii_lowercase();
    let known = ["hca-", "mlx", "mthca", "qib", "hfi", "ib"].iter().any(|prefix| lower.starts_with(prefix));
    // Some listings quote the host: `'node1' HCA-1`.
    (known && !host.is_empty()).then(|| host.trim_matches(['\'', '`']))
}

fn build(
    file: &str,
    defaults: &Defaults,
    nodes: &[Node<'_>],
    number_of: &FxHashMap<&str, usize>,
    cables: &[Cabled<'_>],
) -> Result<GraphSpec, GraphError> {
    let source = Source { file };
    let mut uses: FxHashMap<&str, u32> = FxHashMap::default();
    for node in nodes.iter().filter(|node| !node.guid.starts_with('H')) {
        *uses.entry(node.description).or_default() += 1;
    }
    // An adapter with no cable is a spare: a host may have others that are up.
    let mut cabled = vec![false; nodes.len()];
    for cable in cables {
        cabled[number_of[cable.from.guid]] = true;
        cabled[number_of[cable.to.guid]] = true;
    }
    let mut graph = GraphBuilder::new(file, defaults);
    let mut graph_node = Vec::with_capacity(nodes.len());
    for (node, cabled) in nodes.iter().zip(cabled) {
        if !cabled {
            graph_node.push(u32::MAX);
            continue;
        }
        graph_node.push(if node.guid.starts_with('H') {
            let name = host_name(node.description).unwrap_or(node.guid);
            graph.mention(name, Some(NodeKind::Host), None, node.place)?
        } else if node.description.is_empty() {
            graph.declare(node.guid, Some(NodeKind::Switch), None, node.place)?
        } else if uses[node.description] > 1 {
            let name = format!("{} {}", node.description, node.guid);
            graph.declare(&name, Some(NodeKind::Switch), None, node.place)?
        } else {
            graph.declare(node.description, Some(NodeKind::Switch), None, node.place)?
        });
    }
    // By port: what is plugged in there, so that the second listing of a cable is known.
    let mut plugged: FxHashMap<Port<'_>, (Port<'_>, Option<BitRate>)> = FxHashMap::default();
    for cable in cables {
        if let Some(&(from, rate)) = plugged.get(&cable.from) {
            let name = |port: Port<'_>| format!("{}[{}]", port.guid, port.port);
            if from != cable.to {
                let problem = GraphProblem::Mismatch {
                    key: name(cable.from),
                    expected: format!("cabled to `{}` as before", name(from)),
                    found: format!("`{}`", name(cable.to)),
                    hint: None,
                };
                return Err(source.fail(cable.place, problem));
            }
            if let (Some(there), Some(back)) = (rate, cable.rate)
                && there != back
            {
                let (a, b) = (name(from), name(cable.from));
                let text = |rate: BitRate| format!("{} Gbps", rate.bps() as f64 / 1e9);
                let (there, back) = (text(there), text(back));
                let problem = GraphProblem::Asymmetric { what: "rate", a, b, there, back };
                return Err(source.fail(cable.place, problem));
            }
            // Listed from its other end before.
            continue;
        }
        if let Some((other, _)) = plugged.get(&cable.to)
            && *other != cable.from
        {
            let name = |port: Port<'_>| format!("{}[{}]", port.guid, port.port);
            let problem = GraphProblem::Mismatch {
                key: name(cable.to),
                expected: format!("cabled to `{}` as before", name(*other)),
                found: format!("`{}`", name(cable.from)),
                hint: None,
            };
            return Err(source.fail(cable.place, problem));
        }
        plugged.insert(cable.from, (cable.to, cable.rate));
        plugged.insert(cable.to, (cable.from, cable.rate));
        let ends = (graph_node[number_of[cable.from.guid]], graph_node[number_of[cable.to.guid]]);
        let properties = Cable { rate: cable.rate, ..Cable::default() };
        graph.link(ends, properties, 1, Repeats::Parallel, cable.place)?;
    }
    graph.finish()
}
