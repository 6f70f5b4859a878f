//! Topologies from files of other programs.

use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use windtunnel_kernel::encoding::not_utf8;
use windtunnel_kernel::registry::Listed;
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::inputs::Inputs;
use windtunnel_topology::graph::{GraphProblem, Recognised, recognise};
use windtunnel_topology::import::{Format, Imported, detect, import};
use windtunnel_topology::{Defaults, GraphError, HostSpec, TopologySpec};

use super::place::Place;
use crate::resolve::names::list;
use crate::schema::GraphFile;
use crate::sheets;

/// Reads the file that `given` names. A Clos or torus that hides in it is routed by rule; what is inside a host is
/// `host`, or else what the file says.
pub(super) fn read(
    given: &GraphFile,
    host: Option<HostSpec>,
    place: &Place,
    base: &Inputs,
) -> Result<TopologySpec, InputError> {
    let path = base.join(&given.file);
    let text = text(&path, &place.at("graph.file"))?;
    let file = path.display().to_string();
    let format = match given.format.as_deref() {
        None => detect(&file, &text).map_err(|error| fault(&error))?,
        Some(name) => Format::by_name(name).ok_or_else(|| unknown(name, place))?,
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

/// Most bytes that a compressed file may unpack to: a slip or a bomb must not cost the machine's memory.
const MOST_BYTES: u64 = 4 << 30;

/// The text of a file, which may be compressed by gzip.
fn text(path: &Path, place: &str) -> Result<String, InputError> {
    sheets::present(path, place)?;
    let fault = |what: &str| InputError::new(place, format!("cannot read `{}`: {what}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| fault(&error.to_string()))?;
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        let mut input = MultiGzDecoder::new(bytes.as_slice()).take(MOST_BYTES + 1);
        input.read_to_end(&mut plain).map_err(|error| fault(&format!("gzip: {error}")))?;
        if plain.len() as u64 > MOST_BYTES {
            return Err(fault("it unpacks to more than 4 GiB"));
        }
        plain
    } else {
        bytes
    };
    if std::str::from_utf8(&bytes).is_err() && not_utf8(&bytes).is_none() {
        return Err(fault("it is neither text in UTF-8 nor such text under gzip"));
    }
    sheets::in_utf8(bytes, fault)
}

fn unknown(name: &str, place: &Place) -> InputError {
    let known = Format::ALL.map(Format::name);
    let message = format!("no format `{name}`, expected one of {}", list(known, "and"));
    let error = InputError::new(place.at("graph.format"), message);
    match nearest(name, known) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error,
    }
}

/// An error with its place in the imported file.
fn fault(error: &GraphError) -> InputError {
    let fault = InputError::new(error.place(), error.to_string());
    // Where the scenario says what the file does not.
    let hint = match *error.problem {
        GraphProblem::Missing { what: "rate", .. } => {
            Some("the file does not say it: add a default to `graph`, such as `rate: 400 Gbps`".to_owned())
        }
        GraphProblem::Missing { .. } => {
            Some("the file does not say it: add a default to `graph`, such as `latency: 500 ns`".to_owned())
        }
        GraphProblem::UnknownFormat => {
            let formats = list(Format::ALL.map(Format::name), "and");
            Some(format!("name it with `format` in `graph`, one of {formats}"))
        }
        _ => error.hint(),
    };
    match hint {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}
