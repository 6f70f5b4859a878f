//! Topologies written for other programs, read into a [`GraphSpec`] (htsim's: into a [`ClosSpec`]).
//!
//! Every importer is a function from a text to a checked graph; nothing is read from disk here. Comments and blank
//! lines are skipped where the format has them; an error tells file, line and, where one word is at fault, column (in
//! JSON, where lines mean little, the path of the value). Formats that leave out rates or latencies take them from
//! [`Defaults`]; what neither gives is an error that names the link.
//!
//! Sources: networkx's GraphML and node-link documents; csg-htsim's `.topo` reader; the HPCC and SimAI forks of ns-3;
//! ASTRA-sim's analytical backends; Slurm's `topology.conf(5)`; `ibnetdiscover(8)`; Alibaba's cluster trace of 2023
//! (Cao et al., "Crux", SIGCOMM'24).

mod astra;
mod attributes;
mod edge_list;
mod format;
mod graphml;
mod htsim;
mod infiniband;
mod locations;
mod node_link;
mod ns3;
mod slurm;
mod text;

pub use self::format::Format;
use crate::graph::{Defaults, GraphError, GraphProblem, GraphSpec, Place};
use crate::spec::ClosSpec;

/// What a file held.
#[derive(Clone, Debug, PartialEq)]
pub enum Imported {
    /// Node by node.
    Graph(GraphSpec),
    /// A Clos by its sizes.
    Clos(ClosSpec),
}

/// The format of `text`, by what it holds; `file` is for the message.
///
/// # Errors
/// [`GraphProblem::UnknownFormat`].
pub fn detect(file: &str, text: &str) -> Result<Format, GraphError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let start = text.trim_start();
    if start.starts_with('<') {
        return Ok(Format::GraphMl);
    }
    if start.starts_with('{') {
        return Ok(Format::NodeLink);
    }
    // `ibnetdiscover` begins with comments that name it; its records are told by `vendid=` or `Switch <ports> "S-`.
    if text::raw_lines(text).take(200).any(|line| infiniband::is_record(line.text)) {
        return Ok(Format::InfiniBand);
    }
    let mut lines = text::lines(text);
    let first = lines.next().map_or("", |line| line.text.trim());
    let lower = first.to_ascii_lowercase();
    let word = lower.split([' ', '\t', '=', ':']).next().unwrap_or("");
    let format = match word {
        "nodes" | "tiers" | "podsize" if !first.contains([',', ':']) => Some(Format::Htsim),
        "switchname" | "nodename" => Some(Format::Slurm),
        "topology" | "npus_count" | "bandwidth" | "latency" if first.contains(':') => Some(Format::AstraSim),
        _ if edge_list::is_header(first) => Some(Format::EdgeList),
        _ if locations::is_header(first) => Some(Format::Locations),
        _ if first.split_whitespace().take(3).filter(|word| word.parse::<u32>().is_ok()).count() == 3 => {
            Some(Format::Ns3)
        }
        _ => None,
    };
    let unknown = || GraphError::new(file, Place::File, GraphProblem::UnknownFormat);
    format.ok_or_else(unknown)
}

/// Reads `text`, which stands in `file` (for messages and as the graph's source).
///
/// # Errors
/// [`GraphError`] with place and hint: not of the format, or no sound graph.
pub fn import(format: Format, file: &str, text: &str, defaults: &Defaults) -> Result<Imported, GraphError> {
    let read = match format {
        Format::Htsim => return htsim::read(file, text).map(Imported::Clos),
        Format::EdgeList => edge_list::read,
        Format::GraphMl => graphml::read,
        Format::NodeLink => node_link::read,
        Format::Ns3 => ns3::read,
        Format::AstraSim => astra::read,
        Format::Slurm => slurm::read,
        Format::InfiniBand => infiniband::read,
        Format::Locations => locations::read,
    };
    read(file, text, defaults).map(Imported::Graph)
}
