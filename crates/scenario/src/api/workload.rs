//! `windtunnel workload stats|convert|scale|slice|merge|regroup|decompose`: workloads of any form in, workloads of any form out.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;
use windtunnel_kernel::Span;
use windtunnel_plan::error::{Failure, InputError};
use windtunnel_workload::edit;
use windtunnel_workload::goal::{self, ReadOptions};
use windtunnel_workload::{Workload, compact, handwritten};

use super::import::{detected, kinds, recorded, write};

mod decompose;
mod edits;
mod regroup;

/// What a hand-written workload has at its begin.
const HEADER: &str = "\"windtunnel_workload\"";

/// What is asked.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
enum Request {
    /// Whether a file or folder is a recording, which is to be imported, and no workload.
    Recording {
        file: PathBuf,
    },
    Stats {
        file: PathBuf,
        #[serde(default)]
        matrix: bool,
    },
    Convert {
        file: PathBuf,
        out: PathBuf,
    },
    Scale(edits::Scaling),
    Slice(edits::Slicing),
    Merge(edits::Merging),
    Regroup(regroup::Request),
    Decompose(decompose::Request),
}

fn refused(place: impl Into<String>, message: impl Into<String>) -> Failure {
    Failure::Input(InputError::new(place, message))
}

/// Accounts of the recordings that were read on the way.
type Accounts = Vec<serde_json::Value>;

/// Reads a workload of any form, by the name of its file, or of recordings, by what they begin with.
fn open(path: &Path, accounts: &mut Accounts) -> Result<Workload, Failure> {
    if !is_workload(path)? {
        if let Some(read) = recorded(path)? {
            accounts.push(read.account);
            return Ok(read.workload);
        }
        let (expected, hint) = if path.is_dir() {
            ("expected a folder of recordings", "where it holds workloads, give one file of them".to_owned())
        } else {
            (
                "expected a recording of a known kind, or a name that ends in `.wtw`, `.jsonl`, `.goal` or `.bin`",
                format!("the kinds are `{}`", kinds().join("`, `")),
            )
        };
        return Err(Failure::Input(InputError::new(path.display().to_string(), expected).hint(hint)));
    }
    match form(path).as_deref() {
        Some("wtw") => compact::read(path, 1).map_err(|error| refused("", error.to_string())),
        Some("goal" | "bin") => goal::open_with(path, ReadOptions { labels: true })
            .map_err(|error| refused("", error.to_string())),
        _ => handwritten::read(path, 1).map_err(|error| refused("", error.to_string())),
    }
}

/// What the name of a file ends in, without `.gz`.
fn form(path: &Path) -> Option<String> {
    let plain = path.to_string_lossy();
    let plain = Path::new(plain.strip_suffix(".gz").unwrap_or(&plain)).extension()?;
    Some(plain.to_string_lossy().into_owned())
}

/// Whether a path is a workload's by its name, and no recording by what it begins with.
fn is_workload(path: &Path) -> Result<bool, Failure> {
    if path.is_dir() {
        return Ok(false);
    }
    match form(path).as_deref() {
        Some("wtw" | "goal") => Ok(true),
        // Recordings have these names too: DUMPI's, and the Inspector's.
        Some("bin" | "jsonl") => Ok(!is_recording(path)?),
        _ => Ok(false),
    }
}

/// Whether a file named as a workload is a recording.
fn is_recording(path: &Path) -> Result<bool, Failure> {
    let Ok(mut file) = std::fs::File::open(path) else { return Ok(false) };
    let mut head = Vec::new();
    // What cannot be read is told by who reads it as a workload.
    let read = (&mut file).take(1 << 12).read_to_end(&mut head);
    let own = head.windows(HEADER.len()).any(|window| window == HEADER.as_bytes());
    Ok(read.is_ok() && !own && detected(path)?)
}

/// Does what `request` (JSON: `do` and its arguments) says; the answer is JSON.
///
/// # Errors
/// [`Failure::Input`] when a file cannot be read or written, or the request not be carried out.
pub fn edit(request: &str) -> Result<String, Failure> {
    let request: Request =
        serde_json::from_str(request).map_err(|error| refused("workload", error.to_string()))?;
    let mut accounts = Accounts::new();
    let mut answer = carry_out(request, &mut accounts)?;
    if !accounts.is_empty() {
        answer["recordings"] = json!(accounts);
    }
    Ok(answer.to_string())
}

fn carry_out(request: Request, accounts: &mut Accounts) -> Result<serde_json::Value, Failure> {
    match request {
        Request::Recording { file } => Ok(json!({"recording": !is_workload(&file)?})),
        Request::Stats { file, matrix } => stats(&open(&file, accounts)?, matrix),
        Request::Convert { file, out } => {
            let workload = open(&file, accounts)?;
            write(&workload, &out)?;
            Ok(written(&workload, &out))
        }
        Request::Scale(request) => edits::scale(&request, accounts),
        Request::Slice(request) => edits::slice(&request, accounts),
        Request::Merge(request) => edits::merge(request, accounts),
        Request::Regroup(request) => regroup::regroup(&request, accounts),
        Request::Decompose(request) => decompose::decompose(&request),
    }
}

fn written(workload: &Workload, out: &Path) -> serde_json::Value {
    json!({
        "file": out.display().to_string(),
        "ranks": workload.ranks(),
        "operations": workload.operations(),
        "communicators": workload.communicators.len(),
    })
}

fn stats(workload: &Workload, with_matrix: bool) -> Result<serde_json::Value, Failure> {
    let (counts, told) = (goal::stats(workload), edit::tell(workload));
    let collectives: Vec<_> = told
        .collectives
        .iter()
        .map(|row| {
            json!({
                "collective": row.kind, "dimension": row.dimension, "members": row.members, "count": row.count, "bytes": row.bytes,
            })
        })
        .collect();
    let computation: Vec<_> = told
        .computation
        .iter()
        .map(|(label, count, sum)| json!({"computation": label, "count": count, "time_s": seconds(*sum)}))
        .collect();
    let streams: Vec<_> = told
        .streams
        .iter()
        .map(|(stream, busy)| json!({"stream": stream, "busy_s": seconds(*busy)}))
        .collect();
    let bytes = counts.bytes.get();
    let mut answer = json!({
        "ranks": counts.ranks,
        "idle_ranks": counts.idle_ranks,
        "programs": workload.programs.len(),
        "communicators": workload.communicators.len(),
        "operations": counts.operations,
        "computations": counts.calcs,
        "calls_of_collectives": counts.collectives,
        "sends": counts.sends,
        "receives": counts.receives,
        "sent_bytes": bytes,
        "longest_chain_s": seconds(counts.critical_path),
        "steps": edit::steps(workload),
        "collectives": collectives,
        "streams": streams,
        "computation": computation,
    });
    if with_matrix {
        let matrix = edit::matrix(workload).map_err(|error| refused("workload stats", error.to_string()))?;
        answer["matrix_bytes"] = json!(matrix.chunks(workload.ranks().max(1)).collect::<Vec<_>>());
    }
    Ok(answer)
}

fn seconds(span: Span) -> f64 {
    span.ps() as f64 * 1e-12
}
