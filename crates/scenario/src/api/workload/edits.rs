//! `windtunnel workload scale|slice|merge`: longer computation, iterations, several workloads in one.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;
use windtunnel_kernel::Span;
use windtunnel_plan::error::{Failure, InputError};
use windtunnel_workload::Workload;
use windtunnel_workload::edit::{self, Part, Placing, Scale, SliceError};
use windtunnel_workload::goal::MergeError;

use super::{Accounts, open, refused, seconds, written};
use crate::api::import::{named, write};

/// Factors of computation and payloads.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scaling {
    file: PathBuf,
    out: PathBuf,
    compute: Vec<(String, f64)>,
    bytes: f64,
    /// Of products, and of what memory bounds, where `compute` has no rule.
    gpu: Option<(f64, f64)>,
}

/// Steps, by the marks of the first and the last, or by their numbers where the workload repeats.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slicing {
    file: PathBuf,
    out: PathBuf,
    #[serde(default)]
    steps: Option<(String, String)>,
    #[serde(default)]
    repeats: Option<(usize, usize)>,
}

/// Workloads and where they stand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Merging {
    /// File, first rank (after the one before if left out), start in ps.
    parts: Vec<(PathBuf, Option<u32>, u64)>,
    out: PathBuf,
    placing: Option<String>,
    seed: u64,
    /// Whether several may stand on one rank.
    #[serde(default)]
    shared: bool,
}

pub(super) fn scale(request: &Scaling, accounts: &mut Accounts) -> Result<serde_json::Value, Failure> {
    let Scaling { file, out, compute, bytes, gpu } = request;
    let of_gpu = gpu.iter().flat_map(|(products, memory)| [*products, *memory]);
    let factors = compute.iter().map(|(_, factor)| *factor).chain([*bytes]).chain(of_gpu);
    if let Some(bad) =
        factors.into_iter().find(|factor| !(factor.is_finite() && *factor >= 0.0 && *factor <= 1e6))
    {
        return Err(refused("workload scale", format!("expected factors from 0 to 1e6, found `{bad}`")));
    }
    let mut workload = open(file, accounts)?;
    let rules = Scale { compute: compute.clone(), bytes: *bytes };
    let rescaled = gpu.map(|(products, memory)| edit::rescale(&mut workload, products, memory, &rules));
    let changed = edit::scale(&mut workload, &rules);
    if let Some(((pattern, _), _)) = compute.iter().zip(&changed).find(|(_, changed)| **changed == 0) {
        let error = InputError::new("--compute", format!("no computation is called `{pattern}`"));
        return Err(Failure::Input(error.hint("`windtunnel workload stats FILE` lists them")));
    }
    write(&workload, out)?;
    let mut answer = written(&workload, out);
    answer["changed"] = json!(changed);
    if let Some(rescaled) = rescaled {
        let row = |row: &edit::Rescaled| json!({"class": row.class.name(), "factor": row.factor, "count": row.count, "time_s": seconds(row.before)});
        answer["classes"] = rescaled.iter().map(row).collect();
    }
    Ok(answer)
}

pub(super) fn slice(request: &Slicing, accounts: &mut Accounts) -> Result<serde_json::Value, Failure> {
    let Slicing { file, out, steps, repeats } = request;
    let workload = open(file, accounts)?;
    let known = edit::steps(&workload);
    let fail = |error: SliceError| {
        let message = InputError::new(file.display().to_string(), error.to_string());
        Failure::Input(message.hint(hint(&error, &known)))
    };
    let (cut, left_out, found): (Workload, _, _) = match (steps, repeats) {
        (Some((first, last)), None) => {
            let (cut, left_out) = edit::slice(&workload, first, last).map_err(fail)?;
            (cut, left_out, None)
        }
        (None, Some((first, last))) => {
            let (cut, left_out, found) = edit::slice_repeats(&workload, *first, *last).map_err(fail)?;
            (cut, left_out, Some(found))
        }
        _ => return Err(refused("workload slice", "expected either steps or repetitions")),
    };
    write(&cut, out)?;
    let mut answer = written(&cut, out);
    answer["collectives_left_out"] = json!(left_out);
    if let Some(found) = found {
        answer["repeats"] = json!({
            "before": found.before, "period": found.period, "count": found.count, "behind": found.behind,
        });
    }
    Ok(answer)
}

fn hint(error: &SliceError, known: &[String]) -> String {
    match error {
        SliceError::NoMark { .. } | SliceError::Backwards { .. } if known.is_empty() => {
            "it marks no steps; `--repeats 0` cuts the first iteration out where its operations repeat"
                .to_owned()
        }
        SliceError::NoRepetition { .. } | SliceError::Disagree { .. } if known.is_empty() => {
            "operations are alike by kind, label, bytes and other end".to_owned()
        }
        SliceError::NoIteration { .. } => "the first has the number 0".to_owned(),
        SliceError::Across { .. } => "take more iterations, or all of them".to_owned(),
        _ => format!("it has `{}`", known.join("`, `")),
    }
}

pub(super) fn merge(request: Merging, accounts: &mut Accounts) -> Result<serde_json::Value, Failure> {
    let Merging { parts, out, placing, seed, shared } = request;
    let placing: Placing = named("--placing", placing.as_deref())?.unwrap_or_default();
    if shared && placing != Placing::Packed {
        let error = InputError::new(
            "--placing",
            format!("expected `packed` with `--shared`, found `{}`", placing.name()),
        );
        return Err(Failure::Input(error.hint("`FILE@RANK` says where each begins")));
    }
    let mut next = 0u32;
    let mut jobs = Vec::with_capacity(parts.len());
    let names: Vec<String> = parts.iter().map(|(file, _, _)| file.display().to_string()).collect();
    for (file, from, start) in parts {
        let workload = open(&file, accounts)?;
        let from = from.unwrap_or(next);
        next = from.saturating_add(workload.ranks() as u32);
        jobs.push(Part { workload, from, start: Span::from_ps(start) });
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let merged = if shared {
        edit::share(jobs).map_err(|error| refused("workload merge", error.told(&names)))?
    } else {
        edit::place(jobs, placing, seed).map_err(|error| {
            let told = InputError::new("workload merge", error.told(&names));
            Failure::Input(match error {
                MergeError::Overlap { .. } => told.hint("`--shared` has them run beside each other there"),
                _ => told,
            })
        })?
    };
    write(&merged, &out)?;
    Ok(written(&merged, &out))
}
