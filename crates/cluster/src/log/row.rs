//! What a row of a log is, and what can be wrong with one.

use std::fmt;

use super::error::LogError;
use super::facts::Said;

/// A job as its row gives it, in nanoseconds of the log's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub submit: i64,
    pub duration: u64,
    pub estimate: Option<u64>,
    pub gpus: u32,
    pub priority: i32,
    pub line: u32,
    /// It still ran as the log was written.
    pub running: bool,
    /// Its row has fields that the format does not know.
    pub appended: bool,
    /// From 1970-01-01 to the begin of the log's clock, where the log says so.
    pub epoch: Option<i64>,
}

/// Instants from here on, in nanoseconds, count from 1970 and not from a begin of the log's own: 1985-11-05.
pub(super) const CALENDAR: i64 = 500_000_000_000_000_000;

impl Found {
    /// When it was submitted by the calendar, in nanoseconds from 1970, if the log says so.
    pub(super) const fn submitted(&self) -> Option<i64> {
        match self.epoch {
            Some(epoch) => epoch.checked_add(self.submit),
            None if self.submit >= CALENDAR => Some(self.submit),
            None => None,
        }
    }
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly every row is a job")]
pub(super) enum Row {
    Job(Found),
    /// A job that was cancelled, or failed, before it ran, or of which nobody knows for how long it did.
    NeverRan,
    /// A step of a job.
    Step,
}

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    column: String,
    what: What,
    /// Whether the whole log cannot be read.
    pub fatal: bool,
    pub hint: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Missing,
    NoValue { expected: &'static str, found: String },
    Backwards { start: String, end: String },
    NoColumn { found: String },
    Unknown { expected: String },
    Fields { found: usize },
    Text(String),
}

impl Fault {
    pub(super) fn of(column: &str, what: What) -> Self {
        Self { column: column.to_owned(), what, fatal: false, hint: String::new() }
    }

    pub(super) fn fatal(self) -> Self {
        Self { fatal: true, ..self }
    }

    pub(super) fn hint(self, hint: impl fmt::Display) -> Self {
        Self { hint: format!("\n\nhint: {hint}"), ..self }
    }

    /// The fault without what is of this row alone, to count it.
    pub(super) fn kind(&self) -> String {
        match &self.what {
            What::NoValue { expected, .. } => format!("`{}` is not {expected}", self.column),
            What::Backwards { .. } => format!("`{}` lies before its start", self.column),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = &self.column;
        match &self.what {
            What::Missing => write!(f, "`{column}` is missing"),
            What::NoValue { expected, found } => {
                write!(f, "`{column}`: expected {expected}, found `{found}`")
            }
            What::Backwards { start, end } => write!(f, "`{column}` ({end}) lies before its start ({start})"),
            What::NoColumn { found } => write!(f, "there is no column `{column}`, found `{found}`"),
            What::Unknown { expected } => write!(f, "unknown column `{column}`, expected `{expected}`"),
            What::Fields { found } => write!(f, "expected {column} fields, found {found}"),
            What::Text(text) => f.write_str(text),
        }
    }
}

/// A row, or what is wrong with it.
pub(super) type Read = Result<Row, Fault>;
/// Takes a row with its line, and what else it says.
pub(super) type Take<'a> = dyn FnMut(u64, Read, Said<'_>) -> Result<(), LogError> + 'a;

/// A row of a file of which a part was never written.
pub(super) fn zeros() -> Fault {
    Fault::of("", What::Text("the row holds bytes of value 0, expected text: is the file whole?".to_owned()))
}

/// A job of which nothing else is known.
pub(super) const fn found(submit: i64, duration: u64, gpus: u32) -> Found {
    Found {
        submit,
        duration,
        estimate: None,
        gpus,
        priority: 0,
        line: 0,
        running: false,
        appended: false,
        epoch: None,
    }
}
