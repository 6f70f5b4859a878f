//! Graphs written for other programs: GraphML, edge list, htsim `.topo`, ns-3 text.
//!
//! What [`crate::import`] reads of an export is the graph that was exported, but for what a format has no place for:
//! names and tiers in ns-3 text, everything but the sizes in htsim's. What a format cannot express is an error, never
//! left out silently.

mod edge_list;
mod graphml;
mod htsim;
mod ns3;
mod units;

pub use edge_list::edge_list;
pub use graphml::graphml;
pub use htsim::{htsim, htsim_clos};
pub use ns3::ns3;

use crate::graph::{GraphError, GraphProblem, Place};

/// A topology that a format cannot express.
fn cannot(file: &str, what: String, hint: Option<&str>) -> GraphError {
    let problem = GraphProblem::Unsupported { what, hint: hint.map(str::to_owned) };
    GraphError::new(file, Place::File, problem)
}
