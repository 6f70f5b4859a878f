//! One Kineto file: what of it matters to a replay, event by event.
//!
//! Kineto writes Chrome's trace format: `traceEvents` with complete events (`ph` X), times in µs as decimals. What the GPU
//! did has a `stream` and the `correlation` of the call that launched it (MetadataFieldCatalog.h of libkineto names the
//! arguments of collectives). Everything else is counted and let go, so memory grows with kernels and launches alone.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::calls::{Arguments, Dims, PgConfig};
use super::time::nanoseconds;
use crate::coverage::{Amount, Coverage, Treatment};
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::json::Elements;

/// An operation of the device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceOp {
    /// Its stream, an index into [`Trace::streams`].
    pub stream: u32,
    pub start: i64,
    pub end: i64,
    /// The call that launched it; negative where it is not said.
    pub correlation: i64,
    /// Index into [`Trace::names`].
    pub name: u32,
    /// Index into [`Trace::arguments`], of a collective that says what it is.
    pub arguments: Option<u32>,
    pub copy: bool,
}

/// What a call of the host means to the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// Launches what has its correlation.
    Launch,
    /// Waits for one stream; which one may be said by a `cuda_sync` event.
    StreamSync,
    /// Waits for an event.
    EventSync,
    /// Waits for all streams.
    DeviceSync,
    /// Makes a stream wait.
    StreamWait,
    /// Marks a place of a stream.
    Record,
    /// A boundary of a step; index into [`Trace::steps`], and whether it is the end.
    Step(u32, bool),
}

/// A call of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    pub kind: HostKind,
    pub start: i64,
    pub end: i64,
    pub thread: u32,
    pub correlation: i64,
}

/// A `cuda_sync` event: which stream waited for which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncRecord {
    pub correlation: i64,
    pub stream: Option<u32>,
    pub waited: Option<u32>,
    pub record: Option<i64>,
}

/// An annotation of a collective on the host (`nccl:all_reduce`), with the shape of its input.
#[derive(Clone, Debug)]
pub(crate) struct Annotation {
    pub name: u32,
    pub start: i64,
    pub end: i64,
    pub thread: u32,
    pub dims: Option<Dims>,
}

/// A file.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub file: String,
    pub rank: Option<u32>,
    pub world: Option<u32>,
    pub groups: Vec<PgConfig>,
    pub device: Vec<DeviceOp>,
    pub host: Vec<HostCall>,
    pub syncs: Vec<SyncRecord>,
    pub annotations: Vec<Annotation>,
    pub steps: Vec<(String, i64, i64)>,
    pub names: Vec<String>,
    pub arguments: Vec<Arguments>,
    pub streams: Vec<(String, i64)>,
    pub threads: Vec<String>,
    pub events: u64,
    /// First and last instant of anything with a length.
    pub span: Option<(i64, i64)>,
}

impl Trace {
    /// Moves its clock.
    pub(crate) fn shift(&mut self, by: i64) {
        let move_by = |time: &mut i64| *time = time.saturating_add(by);
        for op in &mut self.device {
            move_by(&mut op.start);
            move_by(&mut op.end);
        }
        for call in &mut self.host {
            move_by(&mut call.start);
            move_by(&mut call.end);
        }
        for annotation in &mut self.annotations {
            move_by(&mut annotation.start);
            move_by(&mut annotation.end);
        }
        for (_, start, end) in &mut self.steps {
            move_by(start);
            move_by(end);
        }
        if let Some((first, last)) = &mut self.span {
            move_by(first);
            move_by(last);
        }
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    ph: Cow<'a, str>,
    #[serde(borrow, default)]
    cat: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pid: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tid: Option<&'a RawValue>,
    #[serde(borrow, default)]
    ts: Option<&'a RawValue>,
    #[serde(borrow, default)]
    dur: Option<&'a RawValue>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

/// Distributed facts at the top of a file.
#[derive(Deserialize, Default)]
struct Distributed {
    rank: Option<u32>,
    world_size: Option<u32>,
    #[serde(default)]
    pg_config: Vec<PgConfig>,
}

/// Counts by (category, treatment, reason), cheaper than the coverage's own for events that are let go.
#[derive(Default)]
struct Tally(Vec<((String, Treatment, &'static str), Amount)>);

impl Tally {
    fn count(&mut self, kind: &str, treatment: Treatment, reason: &'static str, nanoseconds: i64) {
        let found =
            self.0.iter_mut().find(|((of, with, why), _)| of == kind && *with == treatment && *why == reason);
        let amount = if let Some((_, amount)) = found {
            amount
        } else {
            self.0.push(((kind.to_owned(), treatment, reason), Amount::default()));
            &mut self.0.last_mut().expect("just added").1
        };
        amount.operations += 1;
        amount.nanoseconds = amount.nanoseconds.saturating_add(nanoseconds.max(0) as u64);
    }
}

struct Interner(FxHashMap<String, u32>);

impl Interner {
    fn get(&mut self, text: &str, list: &mut Vec<String>) -> u32 {
        if let Some(&index) = self.0.get(text) {
            return index;
        }
        let index = list.len() as u32;
        list.push(text.to_owned());
        self.0.insert(text.to_owned(), index);
        index
    }
}

/// Reads one file.
///
/// # Errors
/// [`ImportError`]: no trace of this kind, damaged, or cut.
pub(crate) fn read(input: &Input, coverage: &mut Coverage) -> Result<Trace, ImportError> {
    let mut elements = Elements::new(input.open()?, &input.name, "traceEvents");
    let mut trace = Trace { file: input.name.clone(), ..Trace::default() };
    let mut reader = Reader {
        names: Interner(FxHashMap::default()),
        threads: Interner(FxHashMap::default()),
        streams: FxHashMap::default(),
        tally: Tally::default(),
        ranks: Vec::new(),
        processes: Vec::new(),
    };
    while let Some((byte, element)) = elements.element()? {
        let event: Event<'_> = serde_json::from_slice(element).map_err(|error| {
            ImportError::new(&input.name, "a trace event", error.to_string()).at(Place::Byte(byte))
        })?;
        trace.events += 1;
        reader.event(&event, &mut trace).map_err(|(expected, found)| {
            ImportError::new(&input.name, expected, found).at(Place::Byte(byte))
        })?;
    }
    if !elements.found {
        return Err(ImportError::new(&input.name, "`traceEvents`", "a JSON document without it")
            .hint("`windtunnel import --detect FILE` says what it is"));
    }
    if let Some(text) = elements.member("schemaVersion")
        && text != b"1"
    {
        let found = format!("`schemaVersion` {}", String::from_utf8_lossy(&text[..text.len().min(40)]));
        return Err(ImportError::new(&input.name, "a Kineto trace of schema version 1", found)
            .hint("a newer profiler wrote it: what its events mean is not known here"));
    }
    if let Some(text) = elements.member("distributedInfo") {
        let info: Distributed = serde_json::from_slice(text).map_err(|error| {
            ImportError::new(&input.name, "`distributedInfo` with rank and world_size", error.to_string())
        })?;
        (trace.rank, trace.world, trace.groups) = (info.rank, info.world_size, info.pg_config);
    }
    if trace.device.is_empty() {
        collectives_of_the_cpu(&mut trace);
    }
    // One process has one rank; a merged trace would give its kernels to the wrong one.
    reader.ranks.sort_unstable();
    reader.ranks.dedup();
    if reader.ranks.len() > 1 {
        return Err(ImportError::new(
            &input.name,
            "the trace of one rank",
            format!("collectives of ranks {:?}", reader.ranks),
        )
        .hint("this file was merged from several: give the files that it was made of"));
    }
    let mut devices: Vec<&str> = trace.streams.iter().map(|(device, _)| device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    if reader.processes.len() > 1 && devices.len() > 1 {
        let found = format!("launches of {} processes on {} devices", reader.processes.len(), devices.len());
        return Err(ImportError::new(&input.name, "the trace of one rank", found)
            .hint("this file was merged from several: give the files that it was made of"));
    }
    trace.device.shrink_to_fit();
    // Places of events matter to waits that name them alone.
    if trace.syncs.iter().all(|sync| sync.record.is_none()) {
        trace.host.retain(|call| call.kind != HostKind::Record);
    }
    trace.host.shrink_to_fit();
    trace.device.sort_by_key(|op| (op.start, op.end, op.correlation));
    trace.host.sort_by_key(|call| (call.start, call.end, call.correlation));
    trace.annotations.sort_by_key(|annotation| (annotation.start, annotation.end));
    for ((kind, treatment, reason), amount) in reader.tally.0 {
        coverage.add(&kind, treatment, reason, amount);
    }
    Ok(trace)
}

/// Where no device ran, annotated collectives (gloo's) are the operations, a stream for each thread.
fn collectives_of_the_cpu(trace: &mut Trace) {
    let size = u64::from(trace.world.unwrap_or(1));
    let annotations = std::mem::take(&mut trace.annotations);
    for annotation in annotations {
        let name = trace.names[annotation.name as usize].clone();
        // NCCL's are launches of kernels that were not recorded.
        let Some(dims) = annotation.dims.as_ref().filter(|_| !name.starts_with("nccl:")) else { continue };
        let bytes = dims.elements.saturating_mul(dims.element_bytes);
        let call = name.split_once(':').map_or(name.clone(), |(_, call)| call.to_owned());
        trace.arguments.push(Arguments {
            collective: Some(call),
            dtype: Some("byte".to_owned()),
            sent: Some(bytes),
            received: Some(bytes),
            group_name: Some("world".to_owned()),
            group_size: Some(size),
            ..Arguments::default()
        });
        let stream = ("cpu".to_owned(), i64::from(annotation.thread));
        let known = trace.streams.iter().position(|known| *known == stream);
        let stream = known.unwrap_or_else(|| {
            trace.streams.push(stream);
            trace.streams.len() - 1
        });
        trace.device.push(DeviceOp {
            stream: stream as u32,
            start: annotation.start,
            end: annotation.end,
            correlation: -1,
            name: annotation.name,
            arguments: Some(trace.arguments.len() as u32 - 1),
            copy: false,
        });
    }
}

struct Reader {
    names: Interner,
    threads: Interner,
    streams: FxHashMap<(String, i64), u32>,
    tally: Tally,
    /// Ranks that collectives name as their own.
    ranks: Vec<i64>,
    /// Processes that launch.
    processes: Vec<String>,
}

const INSIDE: &str = "inside the host's time between two launches";
const REPEATS: &str = "repeats what correlations say, or is for people";

impl Reader {
    fn event(&mut self, event: &Event<'_>, trace: &mut Trace) -> Result<(), (String, String)> {
        let category = event.cat.as_deref().unwrap_or("");
        if event.ph != "X" {
            let kind = if category.is_empty() { "metadata" } else { category };
            self.tally.count(&format!("{kind} ({})", event.ph), Treatment::Mapped, REPEATS, 0);
            return Ok(());
        }
        let name = event.name.as_deref().unwrap_or("");
        let time = |raw: Option<&RawValue>, key: &str| {
            raw.map_or(Some(0), |raw| nanoseconds(raw.get())).ok_or_else(|| {
                (
                    format!("`{key}` in microseconds"),
                    raw.map_or("nothing".to_owned(), |raw| format!("`{}`", raw.get())),
                )
            })
        };
        let start = time(event.ts, "ts")?;
        let length = time(event.dur, "dur")?;
        if length < 0 {
            let found = event.dur.map_or("", RawValue::get);
            return Err(("a duration `dur` of at least 0".to_owned(), format!("`{found}` of `{name}`")));
        }
        let end = start
            .checked_add(length)
            .filter(|end| end.unsigned_abs() <= super::LATEST && start.unsigned_abs() <= super::LATEST);
        let end = end.ok_or_else(|| {
            let found = event.ts.map_or("", RawValue::get);
            ("a time `ts` within 73 years of 1970".to_owned(), format!("`{found}` of `{name}`"))
        })?;
        if !matches!(category, "Trace" | "overhead") {
            let (first, last) = trace.span.unwrap_or((start, end));
            trace.span = Some((first.min(start), last.max(end)));
        }
        match category {
            "kernel" | "Kernel" | "gpu_memcpy" | "gpu_memset" | "mtia_ccp_events" | "Memcpy" | "Memset" => {
                let arguments = Arguments::parse(event.args);
                let stream = arguments
                    .stream
                    .or_else(|| event.tid.and_then(|tid| tid.get().parse().ok()))
                    .unwrap_or(-1);
                let device = event.pid.map_or("", RawValue::get).to_owned();
                if let Some(rank) = arguments.rank {
                    self.ranks.push(rank);
                }
                let correlation = arguments.correlation.unwrap_or(-1);
                let called = arguments.collective.is_some().then(|| {
                    trace.arguments.push(arguments);
                    trace.arguments.len() as u32 - 1
                });
                let op = DeviceOp {
                    stream: self.stream(device, stream, trace),
                    start,
                    end,
                    correlation,
                    name: self.names.get(name, &mut trace.names),
                    arguments: called,
                    copy: !matches!(category, "kernel" | "Kernel"),
                };
                trace.device.push(op);
            }
            "cuda_runtime" | "cuda_driver" | "mtia_runtime" | "privateuse1_runtime" | "Runtime" => {
                let kind = host_kind(name);
                if kind == HostKind::Launch && asks_only(name) {
                    self.tally.count("call that launches nothing", Treatment::Mapped, INSIDE, length);
                    return Ok(());
                }
                let process = event.pid.map_or("", RawValue::get);
                if !self.processes.iter().any(|known| known == process) {
                    self.processes.push(process.to_owned());
                }
                let arguments = Arguments::parse(event.args);
                let thread = self.thread(event, trace);
                let correlation = arguments.correlation.unwrap_or(-1);
                trace.host.push(HostCall { kind, start, end, thread, correlation });
            }
            "cuda_sync" => {
                let arguments = Arguments::parse(event.args);
                let device = event.pid.map_or("", RawValue::get).to_owned();
                let known =
                    |stream: Option<i64>| stream.filter(|&stream| (0..i64::from(u32::MAX)).contains(&stream));
                let stream = known(arguments.stream).map(|stream| self.stream(device.clone(), stream, trace));
                let waited = known(arguments.wait_on_stream).map(|stream| self.stream(device, stream, trace));
                let correlation = arguments.correlation.unwrap_or(-1);
                let record = arguments.wait_on_record.filter(|&record| record >= 0);
                trace.syncs.push(SyncRecord { correlation, stream, waited, record });
                self.tally.count(category, Treatment::Mapped, "dependencies between streams", 0);
            }
            "user_annotation" if name.starts_with("ProfilerStep#") => {
                trace.steps.push((name.to_owned(), start, end));
                let step = trace.steps.len() as u32 - 1;
                let thread = self.thread(event, trace);
                for (at, is_end) in [(start, false), (end, true)] {
                    let kind = HostKind::Step(step, is_end);
                    trace.host.push(HostCall { kind, start: at, end: at, thread, correlation: -1 });
                }
                self.tally.count("step", Treatment::Mapped, "marks at its begin and end", length);
            }
            "user_annotation" | "cpu_op" if is_collective(name) => {
                let dims = Arguments::parse_dims(event.args);
                let annotation = Annotation {
                    name: self.names.get(name, &mut trace.names),
                    start,
                    end,
                    thread: self.thread(event, trace),
                    dims,
                };
                trace.annotations.push(annotation);
                self.tally.count(
                    "annotation of a collective",
                    Treatment::Mapped,
                    "says sizes where a kernel does not",
                    length,
                );
            }
            "Trace" | "gpu_user_annotation" | "overhead" => {
                self.tally.count(category, Treatment::Mapped, REPEATS, 0);
            }
            _ => self.tally.count(category, Treatment::Mapped, INSIDE, length),
        }
        Ok(())
    }

    fn thread(&mut self, event: &Event<'_>, trace: &mut Trace) -> u32 {
        self.threads.get(event.tid.map_or("", RawValue::get), &mut trace.threads)
    }

    fn stream(&mut self, device: String, stream: i64, trace: &mut Trace) -> u32 {
        let key = (device, stream);
        if let Some(&known) = self.streams.get(&key) {
            return known;
        }
        let index = trace.streams.len() as u32;
        trace.streams.push(key.clone());
        self.streams.insert(key, index);
        index
    }
}

/// `nccl:all_reduce`, `gloo:broadcast` and the like.
fn is_collective(name: &str) -> bool {
    ["nccl:", "gloo:", "mpi:", "ucc:"].iter().any(|prefix| name.starts_with(prefix))
}

/// Calls that only ask or set something; there are more of them than of launches.
fn asks_only(name: &str) -> bool {
    ["Get", "Query", "IsCapturing", "Occupancy", "SetAttribute", "PeekAtLastError"]
        .iter()
        .any(|part| name.contains(part))
}

/// What a call of CUDA's or HIP's runtime means. Calls that do nothing on a stream are launches of nothing.
pub(crate) fn host_kind(name: &str) -> HostKind {
    let call =
        name.strip_prefix("cuda").or_else(|| name.strip_prefix("hip")).or_else(|| name.strip_prefix("cu"));
    match call.unwrap_or(name) {
        "StreamSynchronize" | "StreamSynchronize_ptsz" => HostKind::StreamSync,
        "EventSynchronize" => HostKind::EventSync,
        "DeviceSynchronize" | "CtxSynchronize" => HostKind::DeviceSync,
        "StreamWaitEvent" => HostKind::StreamWait,
        "EventRecord" | "EventRecordWithFlags" => HostKind::Record,
        _ => HostKind::Launch,
    }
}
