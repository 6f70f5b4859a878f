//! `windtunnel list KIND`.

use windtunnel_workload::collectives::{Algorithm, CollectiveKind};
use windtunnel_workload::schedules::ScheduleName;

use super::Failure;
use crate::error::{InputError, nearest};
use crate::schema::ShapeName;
use crate::sheets;

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
pub const fn name_kinds() -> [&'static str; 13] {
    [
        "fidelities",
        "topologies",
        "load-balancers",
        "collectives",
        "algorithms",
        "schedules",
        "schedulers",
        "placements",
        "gpus",
        "nics",
        "switches",
        "optics",
        "models",
    ]
}

/// Names of `kind` with one line each.
///
/// # Errors
/// [`Failure::Input`] with the kinds there are.
pub fn names(kind: &str) -> Result<Vec<(String, String)>, Failure> {
    let pairs =
        |list: &[(&str, &str)]| list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    Ok(match kind {
        "fidelities" => pairs(&[
            ("job", "no network: durations given, or iterations of the ideal fabric's time"),
            ("message", "LogGOPS: latency, overhead and gap per class of path, exact matching"),
            ("flow", "weighted max-min sharing of directed links"),
        ]),
        "topologies" => ShapeName::ALL
            .into_iter()
            .map(|shape| (shape.name().to_owned(), shape.summary().to_owned()))
            .collect(),
        "load-balancers" => pairs(&[
            ("ecmp", "a hash of the flow at each switch"),
            ("destination_modulo", "the up port is the destination modulo the number of ports (D-mod-k)"),
            ("spray", "equal parts over all shortest paths"),
            ("ideal", "no path inside the fabric is ever shared"),
        ]),
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
        "schedulers" => pairs(&[("fcfs", "first come, first served; the head of the queue blocks the rest")]),
        "placements" => pairs(&[
            ("packed", "the first free GPUs in order: neighbouring ranks share a host"),
            ("spread", "one GPU of each host in turn"),
        ]),
        "gpus" | "nics" | "switches" | "optics" | "models" => sheets::names(kind)
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

fn algorithms_of(kind: CollectiveKind) -> String {
    let names: Vec<&str> = kind.algorithms().iter().map(|algorithm| algorithm.name()).collect();
    format!("by {}", names.join(", "))
}

fn kinds_of(algorithm: Algorithm) -> String {
    let kinds: Vec<&str> =
        KINDS.iter().filter(|kind| kind.algorithms().contains(&algorithm)).map(|kind| kind.name()).collect();
    if kinds.is_empty() { "chosen by size".to_owned() } else { format!("for {}", kinds.join(", ")) }
}
