//! The network description of ASTRA-sim's analytical backends: YAML with one entry a dimension in `topology` (`Ring`,
//! `FullyConnected`, `Switch`), `npus_count`, `bandwidth` and `latency`; the first dimension is the innermost.
//!
//! Bandwidth is called GB/s but is 2^30 B/s; latency is of a link, in ns, so that a switch costs two. NPUs forward from
//! one dimension to the next and around rings, which hosts do not: an NPU becomes a host and a router of its own, joined
//! by a cable without latency at the sum of the rates of the NPU's links. Only a single `Switch` needs none.

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};
use windtunnel_kernel::{BitRate, Span, nearest};

use super::text::Source;
use crate::graph::{
    Cable, Defaults, GraphBuilder, GraphError, GraphProblem, GraphSpec, NodeKind, Place, Repeats,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    topology: Vec<Spanned<String>>,
    npus_count: Vec<Spanned<u32>>,
    bandwidth: Vec<Spanned<f64>>,
    latency: Vec<Spanned<f64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Ring,
    FullyConnected,
    Switch,
}

struct Dimension {
    block: Block,
    npus: u32,
    cable: Cable,
}

fn place(at: &Location) -> Place {
    Place::Line { line: at.line() as u32, column: at.column() as u32 }
}

pub(super) fn read(file: &str, text: &str, defaults: &Defaults) -> Result<GraphSpec, GraphError> {
    let source = Source { file };
    let document: Document = serde_saphyr::from_str(text).map_err(|error| {
        let plain = error.without_snippet();
        let at = plain.location().map_or(Place::File, |at| place(&at));
        let message = plain.to_string();
        let found = message.lines().next().unwrap_or_default();
        let expected = "`topology`, `npus_count`, `bandwidth` and `latency`, a list each";
        source.syntax(at, expected, &format!("an error: {found}"))
    })?;
    let dimensions = dimensions(source, &document)?;
    let total =
        dimensions.iter().fold(1u64, |product, dimension| product.saturating_mul(u64::from(dimension.npus)));
    if total > 1 << 21 {
        return Err(
            source.fail(Place::File, GraphProblem::TooLarge { what: "NPUs", limit: 1 << 21, found: total })
        );
    }
    let meshes = dimensions.iter().filter(|dimension| dimension.block == Block::FullyConnected);
    let links: u64 = meshes.map(|dimension| total * u64::from(dimension.npus - 1) / 2).sum();
    if links > 1 << 24 {
        let problem = GraphProblem::TooLarge { what: "links", limit: 1 << 24, found: links };
        return Err(source.fail(Place::File, problem));
    }
    let total = total as u32;
    let mut graph = GraphBuilder::new(file, defaults);
    let single_switch = matches!(dimensions[..], [Dimension { block: Block::Switch, .. }]);
    for npu in 0..total {
        graph.declare(&format!("npu{npu}"), Some(NodeKind::Host), None, Place::File)?;
    }
    if !single_switch {
        let ports = |dimension: &Dimension| match (dimension.block, dimension.npus) {
            (_, 1) => 0,
            (Block::Switch, _) | (_, 2) => 1,
            (Block::Ring, _) => 2,
            (Block::FullyConnected, npus) => u64::from(npus) - 1,
        };
        let rate_of = |dimension: &Dimension| dimension.cable.rate.map_or(0, windtunnel_kernel::BitRate::bps);
        let sum = dimensions.iter().fold(0u64, |sum, dimension| {
            sum.saturating_add(ports(dimension).saturating_mul(rate_of(dimension)))
        });
        let own = Cable { rate: Some(BitRate::from_bps(sum.max(1))), latency: Some(Span::ZERO), loss: 0.0 };
        for npu in 0..total {
            let router =
                graph.declare(&format!("npu{npu}/router"), Some(NodeKind::Switch), None, Place::File)?;
            graph.link((npu, router), own, 1, Repeats::Parallel, Place::File)?;
        }
    }
    let first = if single_switch { 0 } else { total };
    let mut stride = 1;
    for (number, dimension) in dimensions.iter().enumerate() {
        for base in (0..total).filter(|npu| npu / stride % dimension.npus == 0) {
            let member = |index: u32| first + base + index * stride;
            let group = (base / (stride * dimension.npus)) * stride + base % stride;
            join(&mut graph, dimension, member, &format!("dimension{number}/switch{group}"))?;
        }
        stride *= dimension.npus;
    }
    graph.finish()
}

/// The links of one group of a dimension.
fn join(
    graph: &mut GraphBuilder<'_>,
    dimension: &Dimension,
    member: impl Fn(u32) -> u32,
    switch: &str,
) -> Result<(), GraphError> {
    let Dimension { block, npus, cable } = *dimension;
    let link =
        |graph: &mut GraphBuilder<'_>, ends| graph.link(ends, cable, 1, Repeats::Parallel, Place::File);
    match block {
        _ if npus == 1 => {}
        Block::Ring => {
            for index in 1..npus {
                link(graph, (member(index - 1), member(index)))?;
            }
            if npus > 2 {
                link(graph, (member(npus - 1), member(0)))?;
            }
        }
        Block::FullyConnected => {
            for high in 1..npus {
                for low in 0..high {
                    link(graph, (member(low), member(high)))?;
                }
            }
        }
        Block::Switch => {
            let switch = graph.declare(switch, Some(NodeKind::Switch), None, Place::File)?;
            for index in 0..npus {
                link(graph, (member(index), switch))?;
            }
        }
    }
    Ok(())
}

fn dimensions(source: Source<'_>, document: &Document) -> Result<Vec<Dimension>, GraphError> {
    let count = document.topology.len();
    let lengths = [
        ("npus_count", document.npus_count.len()),
        ("bandwidth", document.bandwidth.len()),
        ("latency", document.latency.len()),
    ];
    for (key, found) in lengths {
        if found != count || count == 0 {
            let expected = format!("one entry for each of the {} dimensions of `topology`", count.max(1));
            let (key, found) = (key.to_owned(), found.to_string());
            return Err(source.fail(Place::File, GraphProblem::Mismatch { key, expected, found, hint: None }));
        }
    }
    let mut dimensions = Vec::with_capacity(count);
    for index in 0..count {
        let name = &document.topology[index];
        let block = match name.value.as_str() {
            "Ring" => Block::Ring,
            "FullyConnected" => Block::FullyConnected,
            "Switch" => Block::Switch,
            other => {
                let known = "`Ring`, `FullyConnected`, `Switch`".to_owned();
                let blocks = ["Ring", "FullyConnected", "Switch"];
                let nearest = nearest(other, blocks).map(str::to_owned);
                let problem = GraphProblem::UnknownKey { found: other.to_owned(), known, nearest };
                return Err(source.fail(place(&name.referenced), problem));
            }
        };
        let npus = &document.npus_count[index];
        if npus.value == 0 {
            return Err(source.syntax(place(&npus.referenced), "at least 1 NPU", "`0`"));
        }
        let bandwidth = &document.bandwidth[index];
        let rate = bandwidth.value * 8.0 * f64::from(1 << 30);
        if !(1.0..1e18).contains(&rate) {
            let found = format!("`{}`", bandwidth.value);
            return Err(source.syntax(place(&bandwidth.referenced), "a bandwidth above 0 GB/s", &found));
        }
        let latency = &document.latency[index];
        if !(0.0..1e15).contains(&latency.value) {
            let found = format!("`{}`", latency.value);
            return Err(source.syntax(place(&latency.referenced), "a latency of at least 0 ns", &found));
        }
        let cable = Cable {
            rate: Some(BitRate::from_bps(rate.round() as u64)),
            latency: Some(Span::from_ps((latency.value * 1e3).round() as u64)),
            loss: 0.0,
        };
        dimensions.push(Dimension { block, npus: npus.value, cable });
    }
    Ok(dimensions)
}
