//! A topology in the formats of other programs.

use serde_json::{Value, json};
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_topology::export::{edge_list, graphml, htsim, htsim_clos, ns3};
use windtunnel_topology::{GraphError, GraphSpec, Topology, TopologySpec};

/// Formats that can be written.
const FORMATS: [&str; 4] = ["graphml", "csv", "topo", "ns3"];

/// The topology as text.
pub(super) fn export(
    format: &str,
    spec: &TopologySpec,
    topology: &Topology,
    source: &str,
) -> Result<Value, InputError> {
    let graph = || GraphSpec::unrolled(topology);
    let text = match (format, spec) {
        ("graphml", _) => Ok(graphml(&graph())),
        ("csv", _) => edge_list(&graph()),
        ("topo", TopologySpec::Clos(clos)) => htsim_clos(clos, source),
        ("topo", _) => htsim(&graph()),
        ("ns3", _) => ns3(&graph()),
        _ => {
            let message = format!("expected one of `{}`, found `{format}`", FORMATS.join("`, `"));
            let error = InputError::new("export", message);
            return Err(match nearest(format, FORMATS) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error,
            });
        }
    };
    let text = text.map_err(|error: GraphError| {
        let fault = InputError::new(source, error.to_string());
        match error.hint() {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    })?;
    Ok(json!({ "format": format, "text": text }))
}
