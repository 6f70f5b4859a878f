//! `windtunnel list KIND`.

use windtunnel_cluster::log::Format;
use windtunnel_config::resolve::sources::Source;
use windtunnel_config::sheets;
use windtunnel_fabric::balancers::Balancing;
use windtunnel_fabric::packet::{Discipline, TransportChoice};
use windtunnel_kernel::registry::Listed;
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::modules::{Kind, Modules};
use windtunnel_topology::ShapeName;
use windtunnel_workload::collectives::{Algorithm, CollectiveKind};
use windtunnel_workload::schedules::ScheduleName;

use super::Failure;

/// Kinds of things that have names.
pub const fn name_kinds() -> [&'static str; 22] {
    [
        "fidelities",
        "transports",
        "parameters",
        "topologies",
        "load-balancers",
        "disciplines",
        "modules",
        "collectives",
        "algorithms",
        "schedules",
        "schedulers",
        "placements",
        "workloads",
        "logs",
        "gpus",
        "nics",
        "switches",
        "optics",
        "models",
        "frameworks",
        "jobs",
        "faults",
    ]
}

/// Names of `kind` with one line each; what a program brings along comes first.
///
/// # Errors
/// [`Failure::Input`] with the kinds there are.
pub fn names(kind: &str, own: &Modules) -> Result<Vec<(String, String)>, Failure> {
    let pairs =
        |list: &[(&str, &str)]| list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    Ok(match kind {
        "fidelities" => pairs(&[
            ("job", "no network: durations given, or iterations of the ideal fabric's time"),
            ("message", "LogGOPS: latency, overhead and gap per class of path, exact matching"),
            ("flow", "weighted max-min sharing of directed links"),
            ("packet", "every packet: queues, marks, losses, transports"),
        ]),
        "transports" => {
            let registered = own.transports();
            let known = TransportChoice::ENTRIES
                .into_iter()
                .filter(|entry| own.transports().all(|(registered, _)| registered != entry.name))
                .map(|entry| (entry.name, entry.summary));
            registered.chain(known).map(|(name, line)| (name.to_owned(), line.to_owned())).collect()
        }
        "parameters" => parameters(),
        "topologies" => ShapeName::lines(),
        "load-balancers" => <&Balancing>::lines(),
        "disciplines" => Discipline::lines(),
        "modules" => Kind::ALL
            .into_iter()
            .flat_map(|kind| own.of(kind).map(move |(name, line)| (kind, name, line)))
            .map(|(kind, name, line)| (name.to_owned(), format!("network.{}: {line}", kind.key())))
            .collect(),
        "collectives" => {
            CollectiveKind::ALL.iter().map(|kind| (kind.name().to_owned(), algorithms_of(*kind))).collect()
        }
        "algorithms" => Algorithm::ALL
            .iter()
            .map(|algorithm| (algorithm.name().to_owned(), kinds_of(*algorithm)))
            .collect(),
        "schedules" => ScheduleName::lines(),
        "schedulers" => <&windtunnel_cluster::scheduler::BuiltIn>::lines(),
        "placements" => <&windtunnel_cluster::placement::BuiltIn>::lines(),
        "workloads" => <&Source>::lines(),
        "logs" => Format::lines(),
        "gpus" | "nics" | "switches" | "optics" | "models" | "frameworks" | "jobs" | "faults" => {
            sheets::names(kind)
                .into_iter()
                .map(|name| (name.to_owned(), format!("data/{kind}/{name}")))
                .collect()
        }
        _ => {
            let error = InputError::new("", format!("no kind of name: `{kind}`"));
            let hint = match nearest(kind, name_kinds()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("one of `{}`", name_kinds().join("`, `")),
            };
            return Err(Failure::Input(error.hint(hint)));
        }
    })
}

/// The parameters of the built-in transports, `dctcp.g`: what each may be, its default, and what it is.
fn parameters() -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for (mut transport, entry) in TransportChoice::all().into_iter().zip(TransportChoice::ENTRIES) {
        for parameter in transport.parameters() {
            let Some(place) = transport.place(parameter.key) else { continue };
            let line = format!("{}; {}, default {}", parameter.summary, place.expected(), place.shown());
            lines.push((format!("{}.{}", entry.name, parameter.key), line));
        }
    }
    lines
}

fn algorithms_of(kind: CollectiveKind) -> String {
    let names: Vec<&str> = kind.algorithms().iter().map(|algorithm| algorithm.name()).collect();
    format!("by {}", names.join(", "))
}

fn kinds_of(algorithm: Algorithm) -> String {
    let kinds: Vec<&str> = CollectiveKind::ALL
        .iter()
        .filter(|kind| kind.algorithms().contains(&algorithm))
        .map(|kind| kind.name())
        .collect();
    if kinds.is_empty() { "chosen by size".to_owned() } else { format!("for {}", kinds.join(", ")) }
}
