//! One Kineto file: what of it matters to a replay, event by event.
//!
//! Kineto writes Chrome's trace format: `traceEvents` with complete events (`ph` X), times in µs as decimals. What the GPU
//! did has a `stream` and the `correlation` of the call that launched it (MetadataFieldCatalog.h of libkineto names the
//! arguments of collectives). Everything else is counted and let go, so memory grows with kernels and launches alone.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::calls::{Arguments, PgConfig, with_words_for_numbers};
use super::time::nanoseconds;
use super::trace::{Annotation, DeviceOp, HostCall, HostKind, SyncRecord, Trace};
use super::{cpu, merged};
use crate::coverage::{Amount, Coverage, Treatment};
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::json::Elements;

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
        processes: Vec::new(),
    };
    while let Some((byte, element)) = elements.element()? {
        let mended;
        let event = serde_json::from_slice::<Event<'_>>(element);
        let event = match event {
            Ok(event) => Ok(event),
            // Python writes `NaN` and `Infinity`, which JSON does not know.
            Err(error) => match with_words_for_numbers(element) {
                Some(text) => {
                    mended = text;
                    serde_json::from_slice(&mended)
                }
                None => Err(error),
            },
        };
        let event = event.map_err(|error| {
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
        cpu::collectives(&mut trace);
    }
    let (treatment, why) = if trace.device.is_empty() {
        (Treatment::Dropped, "the kernels that it launches were not recorded")
    } else {
        (Treatment::Mapped, "says sizes where a kernel does not")
    };
    for annotation in &trace.annotations {
        let length = annotation.end - annotation.start;
        reader.tally.count("annotation of a collective", treatment, why, length);
    }
    merged::refuse(&elements.members, &trace, &reader.processes)?;
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

struct Reader {
    names: Interner,
    threads: Interner,
    streams: FxHashMap<(String, i64), u32>,
    tally: Tally,
    /// Processes that launch.
    processes: Vec<String>,
}

pub(crate) const INSIDE: &str = "inside the host's time between two launches";
const REPEATS: &str = "repeats what correlations say, or is for people";
const UNKNOWN: &str = "what events of this category are is not known: not used";
const PARTS: &str = "an event in two parts: not used";

impl Reader {
    fn event(&mut self, event: &Event<'_>, trace: &mut Trace) -> Result<(), (String, String)> {
        let category = event.cat.as_deref().unwrap_or("");
        if event.ph != "X" {
            let kind = if category.is_empty() { "metadata" } else { category };
            // Flows, metadata, counters and instants; a begin or an end is half of something that took time.
            let (treatment, why) = match &*event.ph {
                "B" | "E" | "b" | "e" | "" => (Treatment::Dropped, PARTS),
                _ => (Treatment::Mapped, REPEATS),
            };
            self.tally.count(&format!("{kind} ({})", event.ph), treatment, why, 0);
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
                let correlation = arguments.correlation.unwrap_or(-1);
                let bytes = arguments.bytes.unwrap_or(0);
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
                    bytes,
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
                match kind {
                    HostKind::StreamWait => {
                        self.tally.count("call that makes a stream wait", Treatment::Mapped, "", length);
                    }
                    HostKind::Record => {
                        self.tally.count("record of an event", Treatment::Mapped, "", length);
                    }
                    _ => {}
                }
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
                    peer: Arguments::parse_peer(event.args),
                    payload: None,
                };
                trace.annotations.push(annotation);
            }
            "Trace" | "gpu_user_annotation" | "overhead" => {
                self.tally.count(category, Treatment::Mapped, REPEATS, 0);
            }
            "cpu_op"
            | "user_annotation"
            | "python_function"
            | "Operator"
            | "cpu_instant_event"
            | "external_correlation"
            | "cuda_profiler_range"
            | "glow_runtime"
            | "mtia_insight" => {
                self.tally.count(category, Treatment::Mapped, INSIDE, length);
            }
            "" => self.tally.count("event of no category", Treatment::Dropped, UNKNOWN, length),
            _ => self.tally.count(category, Treatment::Dropped, UNKNOWN, length),
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
