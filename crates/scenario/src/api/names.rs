//! `windtunnel list KIND`.

use windtunnel_cluster::log::Format;
use windtunnel_config::schema::ShapeName;
use windtunnel_config::sheets;
use windtunnel_fabric::packet::TransportChoice;
use windtunnel_kernel::registry::Listed;
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::modules::{Kind, Modules};
use windtunnel_workload::collectives::{Algorithm, CollectiveKind};
use windtunnel_workload::schedules::ScheduleName;

use super::Failure;

/// Every collective.
const KINDS: [CollectiveKind; 8] = [
    CollectiveKind::AllReduce,
    CollectiveKind::AllGather,
    CollectiveKind::ReduceScatter,
    CollectiveKind::Broadcast { root: 0 },
    CollectiveKind::Reduce { root: 0 },
    CollectiveKind::AllToAll,
    CollectiveKind::AllToAllV,
    CollectiveKind::Barrier,
];

/// Kinds of things that have names.
pub const fn name_kinds() -> [&'static str; 19] {
    [
        "fidelities",
        "transports",
        "topologies",
        "load-balancers",
        "disciplines",
        "modules",
        "collectives",
        "algorithms",
        "schedules",
        "schedulers",
        "placements",
        "logs",
        "gpus",
        "nics",
        "switches",
        "optics",
        "models",
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
            let known = TransportChoice::NAMES
                .into_iter()
                .filter(|name| own.transports().all(|(registered, _)| registered != *name))
                .map(|name| (name, transport(name)));
            registered.chain(known).map(|(name, line)| (name.to_owned(), line.to_owned())).collect()
        }
        "topologies" => ShapeName::ALL
            .into_iter()
            .map(|shape| (shape.name().to_owned(), shape.summary().to_owned()))
            .collect(),
        "load-balancers" => pairs(&[
            ("ecmp", "a hash of the flow at each switch"),
            ("destination_modulo", "the up port is the destination modulo the number of ports (D-mod-k)"),
            (
                "spray",
                "packets go round path numbers, or as a path chooser says; flows, equal parts over all shortest paths",
            ),
            ("flowlet", "a switch draws a new path after a pause in a flow (LetFlow)"),
            ("adaptive", "each packet takes the least loaded port, or as a balancer of the switches says"),
            ("reps", "the sender uses path numbers again whose packets came through unmarked"),
            ("ideal", "no path inside the fabric is ever shared"),
        ]),
        "disciplines" => pairs(&[
            ("fifo", "the queue whose first packet came first"),
            ("strict", "the queue listed first"),
            ("wrr", "turns of `weight` packets"),
            ("dwrr", "turns of `weight` full packets' bytes (deficit round robin)"),
        ]),
        "modules" => Kind::ALL
            .into_iter()
            .flat_map(|kind| own.of(kind).map(move |(name, line)| (kind, name, line)))
            .map(|(kind, name, line)| (name.to_owned(), format!("network.{}: {line}", kind.key())))
            .collect(),
        "collectives" => KINDS.iter().map(|kind| (kind.name().to_owned(), algorithms_of(*kind))).collect(),
        "algorithms" => Algorithm::ALL
            .iter()
            .map(|algorithm| (algorithm.name().to_owned(), kinds_of(*algorithm)))
            .collect(),
        "schedules" => ScheduleName::ALL
            .iter()
            .map(|name| {
                let split = if name.splits_backward() {
                    "input and weight gradients apart"
                } else {
                    "fused backward"
                };
                (name.name().to_owned(), split.to_owned())
            })
            .collect(),
        "schedulers" => <&windtunnel_cluster::scheduler::BuiltIn>::lines(),
        "placements" => <&windtunnel_cluster::placement::BuiltIn>::lines(),
        "logs" => Format::lines(),
        "gpus" | "nics" | "switches" | "optics" | "models" | "jobs" | "faults" => sheets::names(kind)
            .into_iter()
            .map(|name| (name.to_owned(), format!("data/{kind}/{name}")))
            .collect(),
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

/// A line about a transport of ours.
fn transport(name: &str) -> &'static str {
    match name {
        "none" => "line rate, or a fixed window",
        "dcqcn" => "RoCEv2's rate control by marks",
        "dctcp" => "window by the share of marked packets",
        "swift" => "window by delay",
        "newreno" => "TCP NewReno: window by loss",
        "cubic" => "TCP CUBIC: window by loss and time",
        "mprdma" => "window by marks, packet by packet over many paths",
        "uec" => "Ultra Ethernet's NSCC: window by marks and delay",
        "rccc" => "Ultra Ethernet's credits of the receiver",
        "hpcc" => "window by telemetry of every hop",
        "ndp" => "trimmed packets, pulled by the receiver",
        "eqds" => "credits of the receiver over many paths",
        _ => "",
    }
}

fn algorithms_of(kind: CollectiveKind) -> String {
    let names: Vec<&str> = kind.algorithms().iter().map(|algorithm| algorithm.name()).collect();
    format!("by {}", names.join(", "))
}

fn kinds_of(algorithm: Algorithm) -> String {
    let kinds: Vec<&str> =
        KINDS.iter().filter(|kind| kind.algorithms().contains(&algorithm)).map(|kind| kind.name()).collect();
    if kinds.is_empty() { "chosen by size".to_owned() } else { format!("for {}", kinds.join(", ")) }
}
