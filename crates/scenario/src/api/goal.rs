//! `windtunnel goal check|stats|convert|merge|run`.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use windtunnel_cluster::shard::{IterationEnd, Observer, Shard, ShardJob};
use windtunnel_cluster::variation::Variation;
use windtunnel_fabric::host::{Costs, Host, LogGops, Receiver};
use windtunnel_fabric::message::Latency;
use windtunnel_kernel::{Bytes, EndpointId, RankId, Span, Time};
use windtunnel_plan::error::Failure;
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_run::host_spec;
use windtunnel_workload::Workload;
use windtunnel_workload::goal::{self, ReadOptions};
use windtunnel_workload::replay::{Replay, StuckOperation};

fn open(path: &Path) -> Result<Workload, Failure> {
    goal::open(path).map_err(|error| goal_error(&error))
}

fn goal_error(error: &goal::GoalError) -> Failure {
    Failure::Input(InputError::new("", error.to_string()))
}

/// Sends and receives without a partner, as JSON: `complete`, `sends`, `receives`, `matched`, `unmatched[]`.
///
/// # Errors
/// [`Failure::Input`] when the file cannot be read.
pub fn check(path: &Path) -> Result<String, Failure> {
    let found = goal::check(&open(path)?);
    let unmatched: Vec<String> = found.unmatched.iter().map(ToString::to_string).collect();
    Ok(json!({
        "complete": found.is_complete(),
        "sends": found.sends,
        "receives": found.receives,
        "matched": found.matched,
        "unmatched": unmatched,
    })
    .to_string())
}

/// Counts, as JSON.
///
/// # Errors
/// [`Failure::Input`] when the file cannot be read.
pub fn stats(path: &Path) -> Result<String, Failure> {
    let stats = goal::stats(&open(path)?);
    Ok(json!({
        "ranks": stats.ranks,
        "idle_ranks": stats.idle_ranks,
        "operations": stats.operations,
        "sends": stats.sends,
        "receives": stats.receives,
        "any_source": stats.any_source,
        "any_tag": stats.any_tag,
        "calcs": stats.calcs,
        "requires": stats.requires,
        "irequires": stats.irequires,
        "roots": stats.roots,
        "bytes": stats.bytes.get(),
        "largest_message": stats.largest_message.get(),
        "cpus": stats.cpus,
        "nics": stats.nics,
        "calc_ns": stats.calc.ns_ceil(),
        "critical_path_ns": stats.critical_path.ns_ceil(),
    })
    .to_string())
}

pub(super) fn is_binary(target: &Path) -> bool {
    target.extension().is_some_and(|extension| extension == "bin")
}

pub(super) fn write(workload: &Workload, target: &Path) -> Result<(), Failure> {
    let written = if is_binary(target) {
        goal::write_binary(workload, target)
    } else {
        goal::write_text(workload, target)
    };
    written.map_err(|error| goal_error(&error))
}

/// Writes `source` in the format that `target`'s extension asks for: `.bin` is binary, anything else text.
///
/// # Errors
/// [`Failure::Input`] when a file cannot be read or written.
pub fn convert(source: &Path, target: &Path) -> Result<(), Failure> {
    write(&open(source)?, target)
}

/// Puts jobs side by side on one set of ranks; each source is a path, or `path@rank` to say where its rank 0 goes (after
/// the one before if left out).
///
/// # Errors
/// [`Failure::Input`] when a file cannot be read or written, or two jobs stand on one rank.
pub fn merge(sources: &[String], target: &Path) -> Result<(), Failure> {
    let mut jobs: Vec<(Workload, u32)> = Vec::new();
    let mut next: u32 = 0;
    for source in sources {
        let (path, at) = match source.rsplit_once('@') {
            Some((path, rank)) if !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit()) => {
                let at: u32 = rank.parse().map_err(|_| {
                    let message = format!("expected a rank of at most {}, found `{rank}`", u32::MAX - 1);
                    InputError::new(format!("goal merge {source}"), message)
                })?;
                (path, at)
            }
            _ => (source.as_str(), next),
        };
        let workload = open(path.as_ref())?;
        next = at.saturating_add(workload.ranks() as u32);
        jobs.push((workload, at));
    }
    let names: Vec<&str> = sources.iter().map(String::as_str).collect();
    let merged = goal::merge(&jobs)
        .map_err(|error| Failure::Input(InputError::new("goal merge", error.told(&names))))?;
    write(&merged, target)
}

/// Reads `L=2500,o=1500,g=1000,G=6,O=0,S=65535`: decimals in ns and ns per byte, S in bytes. What is left out is 0, S
/// 65,535.
///
/// # Errors
/// [`InputError`] naming the parameter.
pub fn loggops(text: &str) -> Result<LogGops, InputError> {
    let place = format!("--loggops {text}");
    let mut parameters = LogGops { eager_limit: Bytes::new(65_535), ..LogGops::default() };
    let mut seen = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or_else(|| {
            InputError::new(&place, format!("expected `NAME=VALUE`, found `{part}`"))
                .hint("for example `L=2500,o=1500,g=1000,G=6,O=0,S=65535`")
        })?;
        let (name, value) = (name.trim(), value.trim());
        // Integer picoseconds, and femtoseconds per byte: three and six decimals.
        let scaled = |digits: u32| {
            decimal(value, digits).ok_or_else(|| {
                InputError::new(&place, format!("expected a decimal number for `{name}`, found `{value}`"))
            })
        };
        match name {
            "L" => parameters.latency = Span::from_ps(scaled(3)?),
            "o" => parameters.overhead = Span::from_ps(scaled(3)?),
            "g" => parameters.gap = Span::from_ps(scaled(3)?),
            "G" => parameters.gap_per_byte = scaled(6)?,
            "O" => parameters.overhead_per_byte = scaled(6)?,
            "S" => parameters.eager_limit = Bytes::new(scaled(0)?),
            _ => {
                let error = InputError::new(
                    &place,
                    format!("unknown parameter `{name}`, expected L, o, g, G, O or S"),
                );
                return Err(match nearest(name, ["L", "o", "g", "G", "O", "S"]) {
                    Some(near) => error.hint(format!("did you mean `{near}`?")),
                    None => error,
                });
            }
        }
        if seen.contains(&name.to_owned()) {
            return Err(InputError::new(&place, format!("`{name}` is given twice")));
        }
        seen.push(name.to_owned());
    }
    Ok(parameters)
}

/// A decimal as an integer in units of 10^-`digits`, exactly; `None` if it is not one or has more decimals.
pub(crate) fn decimal(text: &str, digits: u32) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > digits as usize || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let padded = format!("{whole}{fraction:0<width$}", width = digits as usize);
    padded.bytes().all(|byte| byte.is_ascii_digit()).then(|| padded.parse().ok()).flatten()
}

/// Ignores everything.
struct Nobody;

impl Observer for Nobody {
    fn rank_iteration(&mut self, _: usize, _: RankId, _: u64, _: &Replay) {}
    fn iteration(&mut self, _: usize, _: &IterationEnd, _: &Replay) {}
}

/// Replays a GOAL file under LogGOPS: `finish_max`, `finish` (ns, rounded up), `finish_ps`, one per rank, and `stuck` when
/// operations remain.
///
/// # Errors
/// [`Failure::Input`] for a bad file or parameter. Operations that remain are no error here: the JSON lists them under
/// `stuck`.
pub fn run(path: &Path, parameters: &str, receiver: &str) -> Result<String, Failure> {
    let parameters = loggops(parameters).map_err(Failure::Input)?;
    let receiver = match receiver {
        "held" => Receiver::Held,
        "free" => Receiver::Free,
        _ => {
            let error =
                InputError::new("--receiver", format!("expected `held` or `free`, found `{receiver}`"));
            return Err(Failure::Input(error));
        }
    };
    let workload = open(path)?;
    let endpoints = workload.ranks() as u32;
    let costs = Costs::uniform(parameters).with_receiver(receiver);
    let spec = host_spec(&workload, endpoints);
    let fabric = Host::new(spec, costs.clone(), Latency::new(costs));
    let variation = Variation::none();
    let mut shard = Shard::new(fabric, endpoints, &variation, Nobody);
    let job = ShardJob {
        number: 0,
        workload: Arc::new(workload),
        placement: (0..endpoints).map(EndpointId).collect(),
        own: endpoints as usize,
        iterations: 1,
        redone: 0,
        awaited: true,
        start: Time::ZERO,
        done_before: 0,
        simulated: Arc::from([]),
    };
    shard
        .enter(job)
        .map_err(|error| Failure::Input(InputError::new(path.display().to_string(), error.to_string())))?;
    while shard.handle(1 << 16) {}
    shard.drain();
    let finish_ps: Vec<u64> = shard.fabric().finish_times().iter().map(|time| time.ps()).collect();
    if let Some(rank) = finish_ps.iter().position(|&ps| ps == Time::NEVER.ps()) {
        return Err(Failure::Input(InputError::new(
            path.display().to_string(),
            format!(
                "rank {rank} is at work for more than the 213 days that are 2^64 ps, the longest time there is"
            ),
        )));
    }
    let finish: Vec<u64> = finish_ps.iter().map(|&ps| Span::from_ps(ps).ns_ceil()).collect();
    let mut result = json!({
        "finish_max": finish.iter().max().copied().unwrap_or(0),
        "finish": finish,
        "finish_ps": finish_ps,
    });
    let stuck: Vec<StuckOperation> =
        shard.stuck().into_iter().flat_map(|(_, operations)| operations).collect();
    if !stuck.is_empty() {
        result["stuck"] = stuck_json(path, &stuck)?;
    }
    Ok(result.to_string())
}

/// Stuck operations with their labels. Labels are worth a second reading of the file only here: of a large trace they take
/// as much memory as its operations.
fn stuck_json(path: &Path, stuck: &[StuckOperation]) -> Result<Value, Failure> {
    let labelled = goal::open_with(path, ReadOptions { labels: true }).map_err(|error| goal_error(&error))?;
    let of = |operation: &StuckOperation| {
        let program = labelled.program(operation.rank);
        let op = program.ops.get(operation.operation as usize)?;
        program.labels.get(op.label as usize).filter(|label| !label.is_empty()).cloned()
    };
    let rows = stuck.iter().map(|operation| {
        json!({
            "rank": operation.rank.0,
            "operation": operation.operation,
            "label": of(operation),
            "waits_for": operation.waits_for,
        })
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal("0.02", 6), Some(20_000));
        assert_eq!(decimal("2500", 3), Some(2_500_000));
        assert_eq!(decimal("6.", 6), Some(6_000_000));
        assert_eq!(decimal("1.0000", 0), Some(1));
        for bad in ["", ".", "-1", "1e3", "0.0000001", "1.2.3"] {
            assert_eq!(decimal(bad, 6), None, "{bad}");
        }
    }

    #[test]
    fn a_rank_beyond_all_is_told_and_no_part_of_a_name() {
        let error = merge(&["a.goal@4294967296".to_owned()], Path::new("m.goal")).unwrap_err();
        let Failure::Input(error) = error else { panic!("{error:?}") };
        let expected =
            "goal merge a.goal@4294967296: expected a rank of at most 4294967294, found `4294967296`";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn parameters_left_out_are_zero_and_unknown_ones_are_named() {
        assert_eq!(loggops("L=1000,o=10,g=5,G=0.02").unwrap().gap_per_byte, 20_000);
        assert_eq!(loggops("L=1").unwrap().eager_limit, Bytes::new(65_535));
        let error = loggops("L=1,o=1,g=1,G=1,X=2").unwrap_err();
        assert!(error.message.starts_with("unknown parameter `X`"), "{error}");
    }
}
