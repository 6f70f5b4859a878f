//! Jobs from logs: the published formats of clusters' job traces, read row by row.
//!
//! A log gives for each job when it was submitted, how many GPUs it had, how long it ran, and perhaps what was expected
//! and how important it was; that is what [`crate::cluster`] goes by, so logs are read here and not beside the workloads,
//! which are operations. Files may be under gzip. Rows are read one at a time; what stays is [`LoggedJob`], 40 bytes.
//!
//! A row with a hole (no time, no end) or a value that is none is refused with file and line; if
//! [`ReadOptions::lenient`], it is left out and counted by reason. Rows that are no jobs of a GPU cluster are always left
//! out, and counted: jobs without GPUs, jobs that never ran, steps of jobs. Of those that are jobs, what a reader of results has
//! to know is counted too ([`Remarks`]), and kept is what the log says of each beside its size and times ([`Facts`]).

mod error;
mod facts;
mod formats;
mod row;
mod scale;
pub mod shape;
mod swf;
mod time;

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::MultiGzDecoder;

pub use error::LogError;
pub use facts::{Fact, Facts, Said};
pub use formats::{Format, ReadOptions};
pub use scale::Scale;
pub use time::date;
pub use windtunnel_kernel::encoding::not_utf8;

use row::{Fault, Found, Row};

/// A job of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedJob {
    /// Nanoseconds from the first submission of the log.
    pub submit: u64,
    /// Nanoseconds that it ran, at least 1.
    pub duration: u64,
    /// Nanoseconds that it asked for, if the log says so.
    pub estimate: Option<u64>,
    /// GPUs, at least 1.
    pub gpus: u32,
    /// Higher is more important.
    pub priority: i32,
    /// Line of the log; 0 if the job is drawn.
    pub line: u32,
}

/// Rows that are not among the jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// (what was wrong, how many, the first line), in order of the first lines.
    pub faults: Vec<(String, u64, u64)>,
    /// Jobs without GPUs.
    pub without_gpus: u64,
    /// Jobs that were cancelled, or failed, before they ran, and those whose run time the log does not know.
    pub never_ran: u64,
    /// Jobs that still ran as the log was written, where these are left out.
    pub running: u64,
    /// Rows of steps of jobs, which are part of them.
    pub steps: u64,
}

/// What is remarkable about jobs of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// Jobs that still ran as the log was written: they are taken to run for as long as they had.
    pub running: u64,
    /// Jobs that ran for longer than they had asked for.
    pub beyond_limit: u64,
    /// The longest time by which one did, in nanoseconds.
    pub most_beyond: u64,
    /// Rows with fields behind those of the format, which are not read.
    pub appended: u64,
}

impl Skipped {
    /// Rows left out for what was wrong with them.
    pub fn faulty(&self) -> u64 {
        self.faults.iter().map(|(_, count, _)| count).sum()
    }

    fn note(&mut self, fault: String, line: u64) {
        match self.faults.iter_mut().find(|(known, ..)| *known == fault) {
            Some((_, count, _)) => *count += 1,
            None => self.faults.push((fault, 1, line)),
        }
    }
}

/// A log that has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobLog {
    /// Jobs in order of submission, of equal ones in that of the log; the first is submitted at 0.
    pub jobs: Vec<LoggedJob>,
    /// What is known of each, in the same order.
    pub facts: Facts,
    /// What is not among them.
    pub skipped: Skipped,
    /// What is remarkable about them.
    pub remarks: Remarks,
}

const LENIENT: &str = "\n\nhint: `lenient: true` (or `--lenient`) leaves such rows out and counts them";

/// Reads a log.
///
/// # Errors
/// [`LogError`] with file and line.
pub fn read(path: &Path, format: Format, options: ReadOptions) -> Result<JobLog, LogError> {
    let file = path.display().to_string();
    let failed = |error| LogError::File { file: file.clone(), error };
    let mut input = BufReader::with_capacity(1 << 16, File::open(path).map_err(failed)?);
    let zipped = input.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
    if zipped {
        read_from(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(input)), &file, format, options)
    } else {
        read_from(input, &file, format, options)
    }
}

/// Reads a log from `input`; `file` is its name for messages.
///
/// # Errors
/// [`LogError`] with file and line.
pub fn read_from(
    mut input: impl BufRead,
    file: &str,
    format: Format,
    options: ReadOptions,
) -> Result<JobLog, LogError> {
    let begin = input.fill_buf().map_err(|error| LogError::File { file: file.to_owned(), error })?;
    if let Some((what, hint)) = not_utf8(begin) {
        return Err(LogError::Encoding { file: file.to_owned(), what, hint });
    }
    let mut found: Vec<(Found, Fact)> = Vec::new();
    let (mut facts, mut skipped, mut remarks) = (Facts::default(), Skipped::default(), Remarks::default());
    let mut take = |line: u64, row: Result<Row, Fault>, said: Said<'_>| match row {
        Ok(Row::Job(job)) if job.gpus == 0 => {
            skipped.without_gpus += 1;
            Ok(())
        }
        Ok(Row::Job(job)) if job.running && options.leave_running => {
            skipped.running += 1;
            Ok(())
        }
        Ok(Row::Job(job)) => {
            remarks.running += u64::from(job.running);
            remarks.appended += u64::from(job.appended);
            let beyond = job.estimate.map_or(0, |asked| job.duration.saturating_sub(asked));
            remarks.beyond_limit += u64::from(beyond > 0);
            remarks.most_beyond = remarks.most_beyond.max(beyond);
            found.push((Found { line: line as u32, ..job }, facts.fact(said, job.submitted())));
            Ok(())
        }
        Ok(Row::NeverRan) => {
            skipped.never_ran += 1;
            Ok(())
        }
        Ok(Row::Step) => {
            skipped.steps += 1;
            Ok(())
        }
        Err(fault) if options.lenient && !fault.fatal => {
            skipped.note(fault.kind(), line);
            Ok(())
        }
        Err(fault) => {
            let hint = if fault.fatal { fault.hint.clone() } else { LENIENT.to_owned() };
            Err(LogError::Row { file: file.to_owned(), line, fault: fault.to_string(), hint })
        }
    };
    formats::rows(input, file, format, options, &mut take)?;
    if found.is_empty() {
        let left_out = skipped.to_string();
        let without = if left_out.is_empty() { left_out } else { format!("; left out: {left_out}") };
        return Err(LogError::Empty { file: file.to_owned(), without });
    }
    found.sort_by_key(|(job, _)| job.submit);
    let first = found[0].0.submit;
    let job = |(found, _): &(Found, Fact)| LoggedJob {
        submit: (found.submit - first) as u64,
        duration: found.duration.max(1),
        estimate: found.estimate,
        gpus: found.gpus,
        priority: found.priority,
        line: found.line,
    };
    let jobs = found.iter().map(job).collect();
    facts.set(found.into_iter().map(|(_, fact)| fact).collect());
    Ok(JobLog { jobs, facts, skipped, remarks })
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = self
            .faults
            .iter()
            .map(|(fault, count, line)| format!("{count} x {fault} (first in line {line})"));
        let counts = [
            (self.without_gpus, "without GPUs"),
            (self.never_ran, "that never ran"),
            (self.running, "that still ran"),
            (self.steps, "steps of jobs"),
        ];
        let others =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        f.write_str(&faults.chain(others).collect::<Vec<_>>().join(", "))
    }
}
