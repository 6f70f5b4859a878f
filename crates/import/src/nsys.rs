//! Nsight Systems exports (`nsys export -t sqlite`): kernels, copies, calls of the runtime and NVTX ranges of NCCL.
//!
//! Tables exist lazily and columns come and go with versions, so what is not there is taken as empty. Each process with kernels on a
//! device is a rank. NCCL annotates its calls with NVTX ranges whose payload (`payload`) has the communicator's hash, sizes, roots and
//! other ranks. Members of a communicator are the ranks that name its hash, in the places that they had when it was made, or where that
//! is not recorded in order. An export without blobs has no payload: kernels of NCCL then keep their recorded time, and a note says
//! how to export.

mod payload;
mod steps;

use std::collections::BTreeMap;

use windtunnel_kernel::registry::Entry;

use crate::coverage::{Coverage, Treatment};
use crate::draft::Draft;
use crate::error::ImportError;
use crate::input::Input;
use crate::kineto::{self, Annotation, DeviceOp, HostCall, HostKind, SyncRecord, Trace, host_kind};
use crate::sqlite::Database;
use crate::{Options, Reader};
use payload::{Said, Schemas};

/// Nsight Systems.
pub struct Nsys;

impl Reader for Nsys {
    fn entry(&self) -> &'static Entry {
        const {
            &Entry::new(
                "nsys",
                "Nsight Systems exports in SQLite (nsys export -t sqlite --include-blobs=true)",
            )
        }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        head.starts_with(b"SQLite format 3\0")
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let (mut traces, mut made) = (Vec::new(), Vec::new());
        for input in inputs {
            let database = Database::open(input)?;
            if !database.has("CUPTI_ACTIVITY_KIND_KERNEL") {
                return Err(ImportError::new(&input.name, "the table `CUPTI_ACTIVITY_KIND_KERNEL`", "an SQLite file without it")
                    .hint("profile with `nsys profile -t cuda,nvtx` and export with `nsys export -t sqlite --include-blobs=true`"));
            }
            let before = traces.len();
            read_export(&input.name, &database, &mut traces, &mut made, coverage)?;
            if traces.len() == before {
                return Err(ImportError::new(&input.name, "at least one kernel", "none"));
            }
        }
        for (rank, trace) in (0..).zip(&mut traces) {
            trace.rank = Some(rank);
            trace.world = None;
        }
        let communicators = communicators(&traces, &made);
        for trace in &mut traces {
            trace.communicators.clone_from(&communicators);
        }
        coverage.count(
            "rank",
            Treatment::Guessed,
            "an export does not say which: the order of devices and files",
            0,
            0,
        );
        kineto::assemble(traces, &[], inputs[0].name.clone(), coverage)
    }
}

/// Newest major version of the schema whose tables are known: that of Nsight Systems 2021 to 2026.
const NEWEST: u32 = 3;

fn read_export(
    file: &str,
    database: &Database<'_>,
    traces: &mut Vec<Trace>,
    made: &mut Vec<Vec<Made>>,
    coverage: &mut Coverage,
) -> Result<(), ImportError> {
    let mut strings: BTreeMap<i64, String> = BTreeMap::new();
    database.rows("StringIds", &["id", "value"], |row| {
        if let (Some(id), Some(text)) = (row[0].int(), row[1].text()) {
            strings.insert(id, text.to_owned());
        }
    })?;
    let (mut blobs, mut version) = (true, String::new());
    database.rows("META_DATA_EXPORT", &["name", "value"], |row| match row[0].text() {
        Some("EXPORT_PARAM_INCLUDE_BLOBS") => blobs = row[1].text() == Some("true"),
        Some("EXPORT_SCHEMA_VERSION") => row[1].text().unwrap_or_default().clone_into(&mut version),
        _ => {}
    })?;
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major > NEWEST) {
        let expected = format!("an export of schema version up to {NEWEST}");
        return Err(ImportError::new(file, expected, format!("`EXPORT_SCHEMA_VERSION` {version}"))
            .hint("a newer Nsight Systems wrote it: export with one of 2026 or before"));
    }
    let mut exports = Export { by_process: BTreeMap::new(), strings, made: BTreeMap::new() };
    exports.device(database, "CUPTI_ACTIVITY_KIND_KERNEL", Some("shortName"), "")?;
    exports.device(database, "CUPTI_ACTIVITY_KIND_MEMCPY", None, "copy of memory")?;
    exports.device(database, "CUPTI_ACTIVITY_KIND_MEMSET", None, "set of memory")?;
    exports.host(database)?;
    exports.syncs(database, coverage)?;
    exports.ranges(database, coverage)?;
    let communicates =
        exports.by_process.values().any(|(trace, _)| trace.names.iter().any(|name| name.starts_with("nccl")));
    if !blobs && communicates {
        coverage.note(format!(
            "{file}: exported without blobs, so sizes of NCCL's calls are not in it: export with `nsys export -t sqlite --include-blobs=true`"
        ));
    }
    for (process, (mut trace, _)) in exports.by_process {
        count(&trace, coverage);
        if trace.device.is_empty() {
            continue;
        }
        made.push(exports.made.remove(&process).unwrap_or_default());
        file.clone_into(&mut trace.file);
        trace.device.sort_by_key(|op| (op.start, op.end, op.correlation));
        trace.host.sort_by_key(|call| (call.start, call.end, call.correlation));
        trace.annotations.sort_by_key(|annotation| (annotation.start, annotation.end));
        trace.nsight = true;
        traces.push(trace);
    }
    Ok(())
}

/// Counts what is not counted as programs are built.
fn count(trace: &Trace, coverage: &mut Coverage) {
    let alone = trace.device.is_empty();
    for call in &trace.host {
        let (kind, why) = match call.kind {
            HostKind::StreamWait => ("call that makes a stream wait", ""),
            HostKind::Record => ("record of an event", ""),
            _ if alone => ("call of the host", "of a process that used no device: not replayed"),
            _ => continue,
        };
        let treatment = if alone { Treatment::Dropped } else { Treatment::Mapped };
        coverage.count(kind, treatment, why, 0, (call.end - call.start) as u64);
    }
}

/// A communicator as a rank made it: hash, ranks, own place.
type Made = (u64, u32, u32);

/// Ranks that name a communicator, and the places that they say they have.
type Places = BTreeMap<u32, Option<u32>>;

/// Members of all communicators of which all members are known, by hash.
fn communicators(traces: &[Trace], made: &[Vec<Made>]) -> BTreeMap<u64, Vec<u32>> {
    // Of each hash how many ranks it has, where that is said, and who names it.
    let mut found: BTreeMap<u64, (Option<u32>, Places)> = BTreeMap::new();
    for ((rank, trace), made) in (0u32..).zip(traces).zip(made) {
        for hash in trace.annotations.iter().filter_map(|annotation| annotation.payload?.communicator) {
            found.entry(hash).or_default().1.entry(rank).or_insert(None);
        }
        for &(hash, ranks, place) in made {
            let (size, members) = found.entry(hash).or_default();
            *size = Some(ranks);
            members.insert(rank, Some(place));
        }
    }
    let known = found.into_iter().filter_map(|(hash, (size, members))| {
        let several = members.len() > 1 && size.is_none_or(|size| size as usize == members.len());
        let placed: Option<BTreeMap<u32, u32>> =
            members.iter().map(|(&rank, &place)| Some((place?, rank))).collect();
        let ranks = match placed.filter(|placed| placed.len() == members.len()) {
            Some(placed) => placed.into_values().collect(),
            None => members.into_keys().collect(),
        };
        several.then_some((hash, ranks))
    });
    known.collect()
}

/// A trace, and the numbers of its streams by device and stream.
type Process = (Trace, BTreeMap<(i64, i64), u32>);

struct Export {
    /// By process: its trace, and numbers of its streams.
    by_process: BTreeMap<i64, Process>,
    strings: BTreeMap<i64, String>,
    /// Communicators that each process made.
    made: BTreeMap<i64, Vec<Made>>,
}

/// NCCL's name of its own call; PyTorch's `nccl:all_reduce` is a range around it.
fn nccl_call(text: &str) -> Option<&str> {
    text.strip_prefix("nccl").filter(|call| call.starts_with(|first: char| first.is_ascii_uppercase()))
}

/// The process part of a serialised id: its low 24 bits are the thread.
fn process(id: Option<i64>) -> i64 {
    id.unwrap_or(0) >> 24
}

impl Export {
    fn trace(&mut self, process: i64) -> &mut Process {
        self.by_process.entry(process).or_default()
    }

    fn name(trace: &mut Trace, text: &str) -> u32 {
        let known = trace.names.iter().position(|known| known == text);
        known.unwrap_or_else(|| {
            trace.names.push(text.to_owned());
            trace.names.len() - 1
        }) as u32
    }

    fn stream((trace, streams): &mut Process, device: i64, stream: i64) -> u32 {
        *streams.entry((device, stream)).or_insert_with(|| {
            trace.streams.push((device.to_string(), stream));
            trace.streams.len() as u32 - 1
        })
    }

    fn span(trace: &mut Trace, start: i64, end: i64) {
        let (first, last) = trace.span.unwrap_or((start, end));
        trace.span = Some((first.min(start), last.max(end)));
    }

    fn device(
        &mut self,
        database: &Database<'_>,
        table: &str,
        name: Option<&str>,
        fixed: &str,
    ) -> Result<(), ImportError> {
        let columns =
            ["start", "end", "deviceId", "streamId", "correlationId", "globalPid", name.unwrap_or("bytes")];
        database.rows(table, &columns, |row| {
            let number = |at: usize| row[at].int();
            let (Some(start), Some(end)) = (number(0), number(1)) else { return };
            let text = match name {
                Some(_) => number(6)
                    .and_then(|id| self.strings.get(&id))
                    .cloned()
                    .unwrap_or_else(|| "kernel".to_owned()),
                None => fixed.to_owned(),
            };
            // Old exports have no process: devices stand for them.
            let owner = number(5).map_or(number(2).unwrap_or(0), |id| process(Some(id)));
            let entry = self.trace(owner);
            let stream = Self::stream(entry, number(2).unwrap_or(0), number(3).unwrap_or(0));
            let label = Self::name(&mut entry.0, &text);
            Self::span(&mut entry.0, start, end);
            entry.0.device.push(DeviceOp {
                stream,
                start,
                end: end.max(start),
                correlation: number(4).unwrap_or(-1),
                name: label,
                arguments: None,
                copy: name.is_none(),
                bytes: if name.is_none() { number(6).unwrap_or(0).max(0) as u64 } else { 0 },
            });
        })
    }

    fn host(&mut self, database: &Database<'_>) -> Result<(), ImportError> {
        database.rows(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            &["start", "end", "globalTid", "correlationId", "nameId"],
            |row| {
                let (Some(start), Some(end), thread) = (row[0].int(), row[1].int(), row[2].int()) else {
                    return;
                };
                let text = row[4].int().and_then(|id| self.strings.get(&id)).cloned().unwrap_or_default();
                // `cudaLaunchKernel_v7000`: the version is no part of the name.
                let plain = text.split("_v").next().unwrap_or(&text);
                let kind = host_kind(plain);
                let (trace, _) = self.trace(process(thread));
                Self::span(trace, start, end);
                let thread = (thread.unwrap_or(0) & 0xff_ffff) as u32;
                trace.host.push(HostCall {
                    kind,
                    start,
                    end: end.max(start),
                    thread,
                    correlation: row[3].int().unwrap_or(-1),
                });
            },
        )
    }

    fn syncs(&mut self, database: &Database<'_>, coverage: &mut Coverage) -> Result<(), ImportError> {
        // Kinds of wait: 1 event, 2 stream waits for event, 3 stream, 4 context.
        database.rows(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
            &["deviceId", "streamId", "correlationId", "globalPid", "syncType"],
            |row| {
                coverage.count("cuda_sync", Treatment::Mapped, "dependencies between streams", 0, 0);
                let entry = self.trace(process(row[3].int()));
                let stream = row[1].int().filter(|&stream| (0..i64::from(u32::MAX)).contains(&stream));
                if row[4].int() != Some(3) {
                    return;
                }
                let stream = stream.map(|stream| Self::stream(entry, row[0].int().unwrap_or(0), stream));
                let correlation = row[2].int().unwrap_or(-1);
                entry.0.syncs.push(SyncRecord { correlation, stream, waited: None, record: None });
            },
        )
    }

    fn ranges(&mut self, database: &Database<'_>, coverage: &mut Coverage) -> Result<(), ImportError> {
        let columns = ["start", "end", "text", "textId", "globalTid", "binaryData", "domainId"];
        let schemas = Schemas::read(database)?;
        let mut others = crate::coverage::Amount::default();
        let mut marked: BTreeMap<i64, Vec<(String, i64, i64, u32)>> = BTreeMap::new();
        database.rows("NVTX_EVENTS", &columns, |row| {
            let text = row[2].text().map(str::to_owned);
            let text = text
                .or_else(|| row[3].int().and_then(|id| self.strings.get(&id)).cloned())
                .unwrap_or_default();
            if let (Some(start), Some(end), true) = (row[0].int(), row[1].int(), steps::is_step(&text)) {
                let thread = (row[4].int().unwrap_or(0) & 0xff_ffff) as u32;
                marked.entry(process(row[4].int())).or_default().push((text, start, end.max(start), thread));
                return;
            }
            let (Some(start), Some(end), Some(call)) = (row[0].int(), row[1].int(), nccl_call(&text)) else {
                let length = row[1].int().unwrap_or(0).saturating_sub(row[0].int().unwrap_or(0));
                others.operations += 1;
                others.nanoseconds = others.nanoseconds.saturating_add(if row[1].int().is_some() {
                    length.max(0) as u64
                } else {
                    0
                });
                return;
            };
            let owner = process(row[4].int());
            let mut payload = None;
            match schemas.decode(&row[5], row[6].int(), call) {
                Some(Said::Call(said)) => payload = Some(said),
                Some(Said::Made { communicator, ranks, place }) => {
                    self.made.entry(owner).or_default().push((communicator, ranks, place));
                }
                None => {}
            }
            let (trace, _) = self.trace(owner);
            let name = Self::name(trace, &format!("nccl:{call}"));
            let thread = (row[4].int().unwrap_or(0) & 0xff_ffff) as u32;
            trace.annotations.push(Annotation { name, start, end, thread, dims: None, peer: None, payload });
            coverage.count(
                "annotation of a collective",
                Treatment::Mapped,
                "says sizes, where the export has blobs",
                0,
                0,
            );
        })?;
        coverage.add("annotation (NVTX)", Treatment::Mapped, kineto::INSIDE, others);
        for (owner, ranges) in marked {
            steps::mark(&mut self.trace(owner).0, ranges, coverage);
        }
        Ok(())
    }
}
