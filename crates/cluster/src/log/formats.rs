//! The formats: which columns each has and what they mean.
//!
//! Sources: Philly as ElasticFlow's artefact condenses it (timestamp, duration, num_gpus, gpu_time, cluster); Alibaba's
//! cluster-trace-gpu-v2020 (`pai_task_table`; its header is a file of its own), -v2023 and -v2025; Acme (InternLM,
//! `trace_*.csv`); Helios (`cluster_log.csv`); the Standard Workload Format 2.2 (Feitelson's archive); Slurm's
//! `sacct --parsable2`. Column lists are from their READMEs.

use std::io::BufRead;

use csv::{ByteRecord, ReaderBuilder};

use super::error::LogError;
use super::facts::Said;
use super::row::{Fault, Found, Read, Row, Take, What, found, zeros};
use super::swf::swf;
use super::time::{elapsed, instant, seconds};

/// How a log is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Leave out rows with holes, and count them.
    pub lenient: bool,
    /// Leave out jobs that still ran as the log was written, and count them among those that never ran to an end.
    pub leave_running: bool,
}

windtunnel_kernel::named! {
    /// A published format of job logs.
    pub enum Format: "format" {
        Philly = "philly", "Microsoft's Philly, condensed to a row per job";
        Alibaba2020 = "alibaba-2020", "Alibaba PAI 2020: pai_task_table";
        Alibaba2023 = "alibaba-2023", "Alibaba 2023: openb_pod_list";
        Alibaba2025 = "alibaba-2025", "Alibaba 2025: instances of recommendation services";
        Acme = "acme", "Shanghai AI Laboratory's Acme: trace_seren, trace_kalos";
        Helios = "helios", "SenseTime's Helios: cluster_log";
        Swf = "swf", "Standard Workload Format; a processor stands for a GPU";
        Slurm = "slurm", "Slurm: sacct --parsable2";
    }
}

impl Format {
    /// Its columns; none if they may be any.
    const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Philly => &["timestamp", "duration", "num_gpus", "gpu_time", "cluster"],
            Self::Alibaba2020 => &[
                "job_name",
                "task_name",
                "inst_num",
                "status",
                "start_time",
                "end_time",
                "plan_cpu",
                "plan_mem",
                "plan_gpu",
                "gpu_type",
            ],
            Self::Alibaba2023 => &[
                "name",
                "cpu_milli",
                "memory_mib",
                "num_gpu",
                "gpu_milli",
                "gpu_spec",
                "qos",
                "pod_phase",
                "creation_time",
                "deletion_time",
                "scheduled_time",
            ],
            Self::Alibaba2025 => &[
                "instance_sn",
                "role",
                "app_name",
                "cpu_request",
                "cpu_limit",
                "gpu_request",
                "gpu_limit",
                "rdma_request",
                "rdma_limit",
                "memory_request",
                "memory_limit",
                "disk_request",
                "disk_limit",
                "max_instance_per_node",
                "creation_time",
                "scheduled_time",
                "deletion_time",
            ],
            Self::Acme => &[
                "job_id",
                "user",
                "node_num",
                "gpu_num",
                "cpu_num",
                "mem_per_pod_GB",
                "shared_mem_per_pod",
                "type",
                "state",
                "submit_time",
                "start_time",
                "end_time",
                "fail_time",
                "stop_time",
                "duration",
                "queue",
                "gpu_time",
            ],
            Self::Helios => &[
                "job_id",
                "user",
                "vc",
                "gpu_num",
                "cpu_num",
                "node_num",
                "state",
                "submit_time",
                "start_time",
                "end_time",
                "duration",
                "queue",
            ],
            Self::Swf | Self::Slurm => &[],
        }
    }

    /// Columns that it cannot do without.
    const fn needed(self) -> &'static [&'static str] {
        match self {
            Self::Philly => &["timestamp", "duration", "num_gpus"],
            Self::Alibaba2020 => &["inst_num", "start_time", "end_time", "plan_gpu"],
            Self::Alibaba2023 => &["num_gpu", "creation_time", "scheduled_time", "deletion_time"],
            Self::Alibaba2025 => &["gpu_request", "creation_time", "scheduled_time", "deletion_time"],
            Self::Acme | Self::Helios => &["gpu_num", "submit_time", "duration"],
            Self::Swf => &[],
            Self::Slurm => &["JobID", "Submit", "AllocTRES"],
        }
    }
}

/// Hands the rows of a log to `take`.
pub(super) fn rows(
    input: impl BufRead,
    file: &str,
    format: Format,
    options: ReadOptions,
    take: &mut Take<'_>,
) -> Result<(), LogError> {
    if format == Format::Swf {
        return swf(input, file, take);
    }
    let delimiter = if format == Format::Slurm { b'|' } else { b',' };
    // Lines end in a newline, whatever stands before it: only so are those of DOS files counted as they come.
    // Slurm quotes nothing: a name that begins with a quotation mark is a name.
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .terminator(csv::Terminator::Any(b'\n'))
        .delimiter(delimiter)
        .quoting(format != Format::Slurm)
        .from_reader(input);
    let mut record = ByteRecord::new();
    let mut names: Option<Names> = None;
    loop {
        match reader.read_byte_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => {
                return Err(LogError::File { file: file.to_owned(), error: std::io::Error::other(error) });
            }
        }
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() == 1 && record[0].trim_ascii().is_empty() {
            continue;
        }
        if record.iter().any(|cell| cell.contains(&b'\n')) {
            let what = "a quoted value goes on beyond the end of the line".to_owned();
            let fault = Fault::of("", What::Text(what)).fatal();
            return take(line, Err(fault.hint("is a quotation mark not closed?")), Said::default());
        }
        if record.as_slice().contains(&0) {
            take(line, Err(zeros()), Said::default())?;
            continue;
        }
        match &names {
            Some(names) => take(line, names.job(format, &record), names.said(format, &record))?,
            None => match Names::of(format, &record, options) {
                Ok((found, header)) => {
                    if !header {
                        take(line, found.job(format, &record), found.said(format, &record))?;
                    }
                    names = Some(found);
                }
                Err(fault) => take(line, Err(fault), Said::default())?,
            },
        }
    }
}

/// Where each column is.
struct Names {
    columns: Vec<String>,
}

impl Names {
    /// From the first row; whether that is a header.
    fn of(format: Format, first: &ByteRecord, options: ReadOptions) -> Result<(Self, bool), Fault> {
        let columns: Vec<String> = first
            .iter()
            .map(|cell| String::from_utf8_lossy(cell).trim().trim_start_matches('\u{feff}').to_owned())
            .collect();
        let expected = format.columns();
        // Alibaba's tables of 2020 come without their header.
        let headless = format == Format::Alibaba2020
            && !columns.iter().any(|name| format.needed().contains(&name.as_str()));
        if headless {
            let columns = expected.iter().map(|&name| name.to_owned()).collect();
            return Ok((Self { columns }, false));
        }
        if let Some(missing) =
            format.needed().iter().find(|needed| !columns.iter().any(|name| name == *needed))
        {
            let fault = Fault::of(missing, What::NoColumn { found: columns.join("`, `") }).fatal();
            return Err(fault.hint(format!("is the log of another format than `{}`?", format.name())));
        }
        let unknown = columns.iter().find(|name| !expected.is_empty() && !expected.contains(&name.as_str()));
        if let Some(unknown) = unknown.filter(|_| !options.lenient) {
            let fault = Fault::of(unknown, What::Unknown { expected: expected.join("`, `") }).fatal();
            return Err(fault.hint("`lenient: true` (or `--lenient`) looks past it"));
        }
        Ok((Self { columns }, true))
    }

    fn said<'a>(&'a self, format: Format, record: &'a ByteRecord) -> Said<'a> {
        Cells { names: self, record }.said(format)
    }

    fn job(&self, format: Format, record: &ByteRecord) -> Read {
        // What stands behind a comma too many may be taken for another column's.
        if record.iter().skip(self.columns.len()).any(|cell| !cell.trim_ascii().is_empty()) {
            let fields = self.columns.len().to_string();
            return Err(Fault::of(&fields, What::Fields { found: record.len() }));
        }
        let cells = Cells { names: self, record };
        let read = match format {
            Format::Philly => cells.philly(),
            Format::Alibaba2020 => cells.alibaba_2020(),
            Format::Alibaba2023 => cells.alibaba("num_gpu"),
            Format::Alibaba2025 => cells.alibaba("gpu_request"),
            Format::Acme | Format::Helios => cells.sensetime(),
            Format::Slurm => cells.slurm(),
            Format::Swf => unreachable!("read line by line"),
        };
        // A row that was cut off has not said how many GPUs it has, or how it ended.
        if read.is_ok() && record.len() < self.columns.len() {
            let fields = self.columns.len().to_string();
            return Err(Fault::of(&fields, What::Fields { found: record.len() }));
        }
        read
    }
}

/// The cells of a row by column.
struct Cells<'a> {
    names: &'a Names,
    record: &'a ByteRecord,
}

impl<'a> Cells<'a> {
    /// What the column holds; `None` if it is empty or says that nothing is known.
    fn known(&self, column: &str) -> Option<&'a str> {
        let place = self.names.columns.iter().position(|name| name == column)?;
        let text = std::str::from_utf8(self.record.get(place)?).ok()?.trim();
        (!matches!(text, "" | "nan" | "NaN" | "None" | "NULL" | "null" | "Unknown" | "N/A")).then_some(text)
    }

    fn cell(&self, column: &str) -> Result<&'a str, Fault> {
        self.known(column).ok_or_else(|| Fault::of(column, What::Missing))
    }

    fn parsed<T>(
        &self,
        column: &str,
        expected: &'static str,
        parse: fn(&str) -> Option<T>,
    ) -> Result<T, Fault> {
        let text = self.cell(column)?;
        parse(text).ok_or_else(|| Fault::of(column, What::NoValue { expected, found: text.to_owned() }))
    }

    fn instant(&self, column: &str) -> Result<i64, Fault> {
        self.parsed(column, "an instant", instant)
    }

    fn gpus(&self, column: &str) -> Result<u32, Fault> {
        self.parsed(column, "a number of GPUs", whole)
    }

    /// A span in seconds that is not negative.
    fn span(&self, column: &str) -> Result<u64, Fault> {
        self.parsed(column, "a time in seconds of at least 0", |text| u64::try_from(seconds(text)?).ok())
    }

    /// The time between two columns.
    fn between(&self, start: &str, end: &str) -> Result<u64, Fault> {
        let (from, to) = (self.instant(start)?, self.instant(end)?);
        let found = || What::Backwards {
            start: self.known(start).unwrap_or_default().to_owned(),
            end: self.known(end).unwrap_or_default().to_owned(),
        };
        u64::try_from(to - from).map_err(|_| Fault::of(end, found()))
    }

    fn philly(&self) -> Read {
        job(self.instant("timestamp")?, self.span("duration")?, self.gpus("num_gpus")?)
    }

    /// A task of `inst_num` instances, each with a percentage of a GPU; the log has no other submission than its start.
    fn alibaba_2020(&self) -> Read {
        // Parameter servers and the like have no GPU at all.
        let percent = match self.known("plan_gpu") {
            Some(_) => self.span("plan_gpu")?,
            None => 0,
        };
        let instances = u64::from(self.gpus("inst_num")?);
        let gpus = (u128::from(percent) * u128::from(instances)).div_ceil(100_000_000_000);
        let gpus = u32::try_from(gpus)
            .map_err(|_| Fault::of("", What::Text(format!("{gpus} GPUs are too many"))))?;
        job(self.instant("start_time")?, self.between("start_time", "end_time")?, gpus)
    }

    fn alibaba(&self, gpus: &str) -> Read {
        let count = self.gpus(gpus)?;
        if count == 0 {
            return job(0, 0, 0);
        }
        let priority = match self.known("qos") {
            Some("LS") => 3,
            Some("Guaranteed") => 2,
            Some("Burstable") => 1,
            _ => 0,
        };
        let submit = self.instant("creation_time")?;
        let found = found(submit, self.between("scheduled_time", "deletion_time")?, count);
        Ok(Row::Job(Found { priority, ..found }))
    }

    /// Helios, and Acme of the same house.
    fn sensetime(&self) -> Read {
        let gpus = self.gpus("gpu_num")?;
        if gpus == 0 {
            return job(0, 0, 0);
        }
        let found = found(self.instant("submit_time")?, self.span("duration")?, gpus);
        Ok(Row::Job(Found { running: still_runs(self.known("state")), ..found }))
    }

    fn slurm(&self) -> Read {
        // A step of a job is part of it.
        if self.cell("JobID")?.contains('.') {
            return Ok(Row::Step);
        }
        let gpus = match self.known("AllocTRES").or_else(|| self.known("ReqTRES")) {
            Some(resources) => trackable(resources).ok_or_else(|| {
                let found = resources.to_owned();
                Fault::of("AllocTRES", What::NoValue { expected: "resources such as `gres/gpu=8`", found })
            })?,
            None => 0,
        };
        if gpus == 0 {
            return job(0, 0, 0);
        }
        let state = self.known("State");
        // It waits still, whatever `Elapsed` says.
        if state.is_some_and(|state| matches!(word(state), "PENDING" | "PD" | "REQUEUE_HOLD" | "CONFIGURING"))
        {
            return Ok(Row::NeverRan);
        }
        let nanoseconds = |column: &str| self.parsed(column, "a time such as `1-02:03:04`", elapsed);
        let duration = if self.known("ElapsedRaw").is_some() {
            self.span("ElapsedRaw")?
        } else if self.known("Elapsed").is_some() {
            u64::try_from(nanoseconds("Elapsed")?).unwrap_or(0)
        } else {
            self.between("Start", "End")?
        };
        // Cancelled as it waited, it has asked for GPUs and got none: it has no time, rather than one of 0.
        if duration == 0 && self.known("AllocTRES").is_none() {
            return Ok(Row::NeverRan);
        }
        let limited = !matches!(self.known("Timelimit"), None | Some("UNLIMITED" | "Partition_Limit"));
        let estimate = if limited { u64::try_from(nanoseconds("Timelimit")?).ok() } else { None };
        let priority = match self.known("Priority") {
            Some(_) => self.parsed("Priority", "a whole number", |text| text.parse().ok())?,
            None => 0,
        };
        let found = found(self.instant("Submit")?, duration, gpus);
        Ok(Row::Job(Found { estimate, priority, running: still_runs(state), ..found }))
    }

    /// Whose the job is, where it was queued, and how it ended.
    fn said(&self, format: Format) -> Said<'a> {
        let known = |column: &str| self.known(column);
        match format {
            Format::Philly => Said { partition: known("cluster"), ..Said::default() },
            Format::Alibaba2020 => Said { state: known("status"), ..Said::default() },
            Format::Alibaba2023 => Said { queue: known("qos"), state: known("pod_phase"), ..Said::default() },
            Format::Alibaba2025 => Said { account: known("app_name"), ..Said::default() },
            // Its `queue`, as that of Helios, is a time.
            Format::Acme => Said { user: known("user"), state: known("state"), ..Said::default() },
            Format::Helios => {
                Said { user: known("user"), partition: known("vc"), state: known("state"), ..Said::default() }
            }
            Format::Slurm => Said {
                user: known("User"),
                account: known("Account"),
                partition: known("Partition"),
                queue: known("QOS"),
                // `CANCELLED by 1000` is a state like any other.
                state: known("State").map(word),
            },
            Format::Swf => Said::default(),
        }
    }
}

/// The first word of a state.
fn word(state: &str) -> &str {
    state.split_ascii_whitespace().next().unwrap_or(state)
}

/// Whether a job with this state had not ended as the log was written.
fn still_runs(state: Option<&str>) -> bool {
    state.is_some_and(|state| {
        matches!(
            word(state).to_ascii_uppercase().as_str(),
            "RUNNING" | "R" | "SUSPENDED" | "COMPLETING" | "STOPPED" | "RESIZING"
        )
    })
}

#[allow(clippy::unnecessary_wraps, reason = "the last step of readers that may fail")]
fn job(submit: i64, duration: u64, gpus: u32) -> Read {
    Ok(Row::Job(found(submit, duration, gpus)))
}

/// A whole number, perhaps written as `8.0`.
fn whole(text: &str) -> Option<u32> {
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}

/// GPUs among Slurm's trackable resources: `billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,node=1`.
fn trackable(text: &str) -> Option<u32> {
    let (mut total, mut typed) = (None, 0);
    for resource in text.split(',') {
        let (name, count) = resource.split_once('=')?;
        if name == "gres/gpu" {
            total = Some(count.parse().ok()?);
        } else if name.starts_with("gres/gpu:") {
            typed += count.parse::<u32>().ok()?;
        }
    }
    Some(total.unwrap_or(typed))
}
