//! `windtunnel workload regroup`: other hosts for the same GPUs.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;
use windtunnel_kernel::{BitRate, Span};
use windtunnel_plan::error::{Failure, InputError};
use windtunnel_workload::collectives::Algorithm;
use windtunnel_workload::edit::{self, Grouping, Inside, Placing};
use windtunnel_workload::{OpKind, Workload, lower};

use super::{Accounts, open, refused, written};
use crate::api::import::{named, write};

/// What is asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    file: PathBuf,
    out: PathBuf,
    /// GPUs of a rank in `file`.
    from: u32,
    /// Streams of a GPU there.
    streams: Option<u32>,
    /// GPUs of each host afterwards, in place of `into` and `placing`.
    groups: Option<Vec<Vec<u32>>>,
    /// GPUs of a host afterwards.
    into: u32,
    placing: Option<String>,
    seed: u64,
    /// Whether a GPU stays a rank of its own.
    ranks: bool,
    nics: Option<u8>,
    /// Whether messages inside take no time.
    drop: bool,
    rate_bps: u64,
    latency_ps: u64,
    algorithm: Option<String>,
}

/// Most GPUs of a workload.
const MOST: u64 = 1 << 24;

pub(super) fn regroup(request: &Request, accounts: &mut Accounts) -> Result<serde_json::Value, Failure> {
    let place = request.file.display().to_string();
    let wrong = |option: &str, message: String| Failure::Input(InputError::new(option, message));
    let algorithm: Option<Algorithm> = named("--algorithm", request.algorithm.as_deref())?;
    if request.from == 0 || request.into == 0 || request.nics == Some(0) || request.streams == Some(0) {
        return Err(wrong("workload regroup", "expected numbers from 1, found `0`".to_owned()));
    }
    if request.rate_bps == 0 {
        return Err(wrong("--rate", "expected a rate above 0".to_owned()));
    }
    let workload = open(&request.file, accounts)?;
    let gpus = workload.ranks() as u64 * u64::from(request.from);
    if gpus > MOST {
        return Err(wrong("--from", format!("expected at most {MOST} GPUs in all, found {gpus}")));
    }
    let gpus = gpus as u32;
    let nodes = match &request.groups {
        Some(groups) => groups.clone(),
        None => nodes(request, gpus)?,
    };
    if request.ranks {
        if request.from != 1 {
            let message = format!("expected a GPU a rank, found `--from {}`", request.from);
            return Err(wrong("--form ranks", message));
        }
        let changed =
            edit::regroup_ranks(&workload, &nodes).map_err(|error| refused(place, error.to_string()))?;
        write(&changed, &request.out)?;
        let mut answer = written(&changed, &request.out);
        answer["hosts"] = json!(nodes.len());
        return Ok(answer);
    }
    let calls = |workload: &Workload| -> u64 {
        let of = |program: &u32| {
            let ops = &workload.programs[*program as usize].ops;
            ops.iter().filter(|op| matches!(op.kind, OpKind::Collective { .. })).count() as u64
        };
        workload.program_of.iter().map(of).sum()
    };
    let collectives = calls(&workload);
    let messages = lower::to_messages(&workload, |spec| {
        if let Some(algorithm) = algorithm {
            spec.algorithm = algorithm;
        }
    })
    .map_err(|error| refused(&place, error.to_string()))?;
    let inside = if request.drop {
        Inside::Drop
    } else {
        let rate = BitRate::from_bps(request.rate_bps);
        Inside::Copy { rate, latency: Span::from_ps(request.latency_ps) }
    };
    let grouping =
        Grouping { from: request.from, streams: request.streams, nodes, nics: request.nics, inside };
    let (changed, account) =
        edit::regroup(&messages, &grouping).map_err(|error| refused(&place, error.to_string()))?;
    write(&changed, &request.out)?;
    let mut answer = written(&changed, &request.out);
    answer["hosts"] = json!(changed.ranks());
    answer["gpus"] = json!(gpus);
    answer["calls_of_collectives_as_messages"] = json!(collectives);
    answer["messages_between"] = json!(account.messages_between);
    answer["bytes_between"] = json!(account.bytes_between);
    answer["messages_inside"] = json!(account.messages_inside);
    answer["bytes_inside"] = json!(account.bytes_inside);
    answer["edges_as_messages"] = json!(account.edges_as_messages);
    answer["wildcards_named"] = json!(account.wildcards);
    Ok(answer)
}

/// Hosts of so many GPUs, filled as the placing says.
fn nodes(request: &Request, gpus: u32) -> Result<Vec<Vec<u32>>, Failure> {
    let into = request.into;
    if !gpus.is_multiple_of(into) {
        let error = InputError::new("--into", format!("expected a divisor of {gpus} GPUs, found `{into}`"));
        return Err(Failure::Input(error.hint("`--groups '0-2;3-7'` says of each host which GPUs it has")));
    }
    let placing: Placing = named("--placing", request.placing.as_deref())?.unwrap_or_default();
    let order = match placing {
        Placing::Packed => (0..gpus).collect(),
        Placing::Random => edit::shuffled(gpus as usize, request.seed),
        // Host h has every GPU that is h beyond a multiple of the hosts.
        Placing::RoundRobin => {
            let hosts = gpus / into;
            (0..gpus).map(|at| at / into + at % into * hosts).collect::<Vec<u32>>()
        }
    };
    Ok(order.chunks(into as usize).map(<[u32]>::to_vec).collect())
}
