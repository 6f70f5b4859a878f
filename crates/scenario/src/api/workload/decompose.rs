//! `windtunnel workload decompose`: collectives as the messages and reductions that NCCL makes of them.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;
use windtunnel_kernel::BitRate;
use windtunnel_plan::error::{Failure, InputError};
use windtunnel_workload::decompose::{Decomposition, Rules};
use windtunnel_workload::goal::ByRank;
use windtunnel_workload::{compact, goal};

use super::refused;
use crate::api::{Planned, RunRequest};

/// What is asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// The workload's name in messages.
    file: PathBuf,
    out: PathBuf,
    /// A scenario whose only job is the workload, on the system whose tuner decides.
    scenario: String,
    /// The folder of its relative paths.
    base: PathBuf,
    chunk: Option<u64>,
    reduce_bps: Option<u64>,
    launch: bool,
    /// Whether ranks stand for switches that sum.
    switches: bool,
}

pub(super) fn decompose(request: &Request) -> Result<serde_json::Value, Failure> {
    let (place, out) = (request.file.display().to_string(), request.out.display().to_string());
    if request.chunk == Some(0) || request.reduce_bps == Some(0) {
        return Err(refused("workload decompose", "expected sizes and rates above 0"));
    }
    let ends_in =
        |name: &str, end: &str| Path::new(name).extension().is_some_and(|extension| extension == end);
    let plain = out.strip_suffix(".gz").unwrap_or(&out);
    let (is_goal, is_compact) = (ends_in(plain, "goal") || ends_in(plain, "bin"), ends_in(&out, "wtw"));
    if !is_goal && !is_compact {
        let error = InputError::new(out, "expected a name that ends in `.goal`, `.bin` or `.wtw`");
        return Err(Failure::Input(
            error.hint("these are written rank by rank; `workload convert` makes others of them"),
        ));
    }
    let planned = Planned::of(RunRequest {
        text: request.scenario.clone(),
        source: "decompose".to_owned(),
        base: request.base.clone(),
        ..RunRequest::default()
    })
    .map_err(Failure::Input)?;
    let workload = &planned.plan().jobs[0].work.workload;
    let rules = Rules {
        chunk: request.chunk,
        reduce: request.reduce_bps.map(BitRate::from_bps),
        launch: request.launch,
        switches: request.switches,
    };
    let made = Decomposition::new(workload, rules).map_err(|error| refused(place, error.to_string()))?;
    if is_goal {
        goal::check_tags(workload, &request.out)
            .and_then(|()| goal::write_by_rank(&made, &request.out))
            .map_err(|error| refused("", error.to_string()))?;
    } else {
        compact::write_by_rank(&made, &request.out).map_err(|error| refused("", error.to_string()))?;
    }
    let rows: Vec<_> = made
        .rows()
        .iter()
        .map(|(row, count)| {
            json!({
                "collective": row.kind, "bytes": row.bytes, "members": row.members, "algorithm": row.algorithm,
                "protocol": row.protocol, "channels": row.channels, "count": count, "instead_of_switches": row.instead,
            })
        })
        .collect();
    let answer = json!({
        "file": out,
        "ranks": made.ranks(),
        "ranks_of_nvlink_switches": made.switches().of_domains(),
        "ranks_of_network_switches": made.switches().of_network(),
        "operations": made.written(),
        "collectives": rows,
    });
    Ok(answer)
}
