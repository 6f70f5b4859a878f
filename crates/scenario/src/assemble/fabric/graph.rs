//! Topologies from files of other programs.

use std::path::Path;

use windtunnel_topology::graph::{Recognised, recognise};
use windtunnel_topology::import::{Format, Imported, detect, import};
use windtunnel_topology::{Defaults, GraphError, HostSpec, TopologySpec};

use super::place::Place;
use super::shape::list;
use crate::error::{InputError, nearest};
use crate::schema::GraphFile;
use crate::sheets;

/// Reads the file that `given` names. A Clos or torus that hides in it is routed by rule; what is inside a host is
/// `host`, or else what the file says.
pub(super) fn read(
    given: &GraphFile,
    host: Option<HostSpec>,
    place: &Place,
    base: &Path,
) -> Result<TopologySpec, InputError> {
    let path = base.join(&given.file);
    let text = sheets::read(&path, &place.at("graph.file"))?;
    let file = path.display().to_string();
    let format = match given.format.as_deref() {
        None => detect(&file, &text).map_err(|error| fault(&error))?,
        Some(name) => Format::from_name(name).ok_or_else(|| unknown(name, place))?,
    };
    let defaults =
        Defaults { rate: given.rate.map(|rate| rate.0), latency: given.latency.map(|latency| latency.0) };
    let mut graph = match import(format, &file, &text, &defaults).map_err(|error| fault(&error))? {
        Imported::Graph(graph) => graph,
        Imported::Clos(mut clos) => {
            clos.host = host.unwrap_or(clos.host);
            return Ok(TopologySpec::Clos(clos));
        }
    };
    graph.host = host.or(graph.host);
    Ok(match recognise(&graph) {
        Some(Recognised::Clos(clos, _)) => TopologySpec::Clos(clos),
        Some(Recognised::Torus(torus, _)) => TopologySpec::Torus(torus),
        None => TopologySpec::Graph(graph),
    })
}

fn unknown(name: &str, place: &Place) -> InputError {
    let known = Format::ALL.map(Format::name);
    let message = format!("no format `{name}`, expected one of {}", list(known.into_iter()));
    let error = InputError::new(place.at("graph.format"), message);
    match nearest(name, known) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error,
    }
}

/// An error with its place in the imported file.
fn fault(error: &GraphError) -> InputError {
    let fault = InputError::new(error.place(), error.to_string());
    match error.hint() {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}
