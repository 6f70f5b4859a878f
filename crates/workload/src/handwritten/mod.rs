//! Workloads written by hand: JSON lines, one operation a line, as Arcadia's users state a job's DAG (§4, figure 25).
//!
//! ```json
//! {"windtunnel_workload": 1, "ranks": 4}
//! {"communicator": "pair", "groups": [[0, 1], [2, 3]]}
//! {"id": "gemm", "compute": "120 us"}
//! {"id": "sum", "collective": "all_reduce", "communicator": "pair", "bytes": "64 MiB", "stream": 1, "after": ["gemm"]}
//! {"rank": 0, "id": "out", "send": {"to": 3, "bytes": "1 MiB", "tag": 7}, "after": ["sum"]}
//! {"rank": 3, "id": "in", "receive": {"from": 0, "tag": 7}}
//! ```
//!
//! The first line is the header. A communicator has `ranks` (one group) or `groups` (a rank is in at most one); `world`
//! is predefined. An operation has exactly one of `compute`, `collective`, `send`, `receive`, and may have `rank` or
//! `ranks` (a list of numbers and `"first-last"` ranges, or `"all"`; left out: all ranks, for a collective all members),
//! `id`, `after` and `after_start` (ids that must have ended or started), `stream`, `dimension` (`tp`, `cp`, `ep`, `pp`,
//! `dp`, `other`) and `label` (left out: the id). Ids belong to a rank and may be used before they are defined. Times and
//! sizes carry units. Any line may have a `comment`.
//!
//! Invariants of what [`read`] returns: dependencies are acyclic, peers and members exist, and all members of a
//! communicator name the same collectives in the same order. Ranks with the same operations share a
//! [`Program`](crate::Program). Failure: a [`HandwrittenError`] with line and column; nothing panics.

mod draft;
mod fields;
mod write;

use std::fmt;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use windtunnel_kernel::encoding::not_utf8;

pub use write::{encode, write};

use crate::Workload;

/// Most ranks a file may ask for.
const MOST_RANKS: u64 = 1 << 24;

/// What is wrong with a hand-written workload, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandwrittenError {
    /// The file, or the name of the stream.
    pub path: PathBuf,
    /// Line from 1; 0 if the file could not be read.
    pub line: u64,
    /// Column in bytes, from 1; 0 if the file could not be read.
    pub column: u64,
    /// What was expected and found.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

impl fmt::Display for HandwrittenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        write!(f, " {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for HandwrittenError {}

/// An error inside a line; the path is added where the file is known.
#[derive(Debug)]
struct Fault {
    line: u64,
    column: u64,
    message: String,
    hint: Option<String>,
}

impl Fault {
    fn new(line: u64, column: u64, message: impl Into<String>) -> Self {
        Self { line, column, message: message.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With `did you mean` if there is a near name.
    fn near(self, nearest: Option<&str>) -> Self {
        match nearest {
            Some(name) => self.hint(format!("did you mean `{name}`?")),
            None => self,
        }
    }

    fn at(self, path: &Path) -> HandwrittenError {
        let Self { line, column, message, hint } = self;
        HandwrittenError { path: path.to_owned(), line, column, message, hint }
    }
}

/// Reads a file. Where a collective's line leaves out `domain`, it is what its communicator has on scale-up domains of `gpus`
/// that ranks fill in order.
///
/// # Errors
/// [`HandwrittenError`].
pub fn read(path: impl AsRef<Path>, gpus: u32) -> Result<Workload, HandwrittenError> {
    let path = path.as_ref();
    let file = std::fs::File::open(path).map_err(|error| Fault::new(0, 0, error.to_string()).at(path))?;
    read_from(std::io::BufReader::with_capacity(1 << 17, file), path, gpus)
}

/// The same of a stream; `path` names it in errors.
///
/// # Errors
/// [`HandwrittenError`].
pub fn read_from(mut input: impl BufRead, path: &Path, gpus: u32) -> Result<Workload, HandwrittenError> {
    let mut draft = draft::Draft::new(gpus);
    let mut bytes = Vec::new();
    let mut line = 0;
    let begin = input.fill_buf().map_err(|error| Fault::new(0, 0, error.to_string()).at(path))?;
    if let Some((what, hint)) = not_utf8(begin) {
        return Err(Fault::new(0, 0, what).hint(hint).at(path));
    }
    loop {
        bytes.clear();
        let read = input
            .read_until(b'\n', &mut bytes)
            .map_err(|error| Fault::new(0, 0, error.to_string()).at(path))?;
        if read == 0 {
            break;
        }
        line += 1;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            Fault::new(line, error.valid_up_to() as u64 + 1, "the text is not UTF-8").at(path)
        })?;
        if !text.trim().is_empty() {
            draft.line(text, line).map_err(|fault| fault.at(path))?;
        }
    }
    draft.finish(line).map_err(|fault| fault.at(path))
}
