//! XPlane files of JAX and XLA (`.xplane.pb`): planes of devices, lines of streams, events with names by number.
//!
//! What is kept: each device is a rank, each of its streams a stream, each event an operation at its recorded distance from the one
//! before. The file has no dependencies between streams and no sizes of collectives, so those keep their recorded time.
//!
//! A GPU's streams are lines `Stream #N(…)`. A TPU computes in its line `XLA Ops`; `Async XLA Ops` has the copies and collectives that
//! are under way meanwhile. Other lines that the profiler names repeat these in coarser or finer parts (its schema of planes).

use std::collections::BTreeMap;

use windtunnel_kernel::registry::Entry;
use windtunnel_kernel::{Span, StreamId};
use windtunnel_workload::Dimension;

use crate::bytes::Bytes;
use crate::coverage::{Amount, Coverage, Treatment};
use crate::draft::{Draft, RankDraft, Work};
use crate::error::ImportError;
use crate::input::Input;
use crate::{Options, Reader};

/// XPlane.
pub struct XPlane;

#[derive(Default)]
struct Plane {
    name: String,
    lines: Vec<Line>,
    names: BTreeMap<u64, String>,
}

#[derive(Default)]
struct Line {
    name: String,
    start_ns: u64,
    /// (name, offset in ps, length in ps).
    events: Vec<(u64, u64, u64)>,
}

impl Reader for XPlane {
    fn entry(&self) -> &'static Entry {
        const { &Entry::new("xplane", "XPlane profiles of JAX and XLA (.xplane.pb): kernels and their order") }
    }

    fn detects(&self, head: &[u8], name: &str) -> bool {
        name.strip_suffix(".gz").unwrap_or(name).ends_with(".xplane.pb") && !head.is_empty()
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let mut draft = Draft { source: inputs[0].name.clone(), ..Draft::default() };
        let mut number = 0;
        for input in inputs {
            let bytes = input.whole()?;
            let mut fields = Bytes::new(&input.name, &bytes);
            let mut devices = Vec::new();
            while let Some(field) = fields.field()? {
                if field.number != 1 {
                    continue;
                }
                let plane = plane(&input.name, field.value.bytes())?;
                let events: u64 = plane.lines.iter().map(|line| line.events.len() as u64).sum();
                match device(&plane.name).filter(|_| events > 0) {
                    Some(device) => devices.push((device, plane)),
                    None => {
                        let amount = Amount { operations: events, ..Amount::default() };
                        let kind = if plane.name.starts_with("/device:") {
                            "event beside the devices"
                        } else {
                            "event of the host"
                        };
                        let why = "its plane is no device of its own: the gaps that it leaves are kept";
                        coverage.add(kind, Treatment::Approximated, why, amount);
                    }
                }
            }
            // The order of planes is not that of devices.
            devices.sort_by_key(|(device, _)| *device);
            for (device, plane) in &devices {
                let program = program(plane, device.0 == TPU, coverage).of_file(&input.name);
                draft.ranks.insert(number, program);
                number += 1;
            }
        }
        if number > 1 {
            let why = "the recording does not say which rank a device is: by file and number of the device";
            coverage.add(
                "rank",
                Treatment::Guessed,
                why,
                Amount { operations: u64::from(number), ..Amount::default() },
            );
        }
        if number == 0 {
            return Err(ImportError::new(&draft.source, "a plane `/device:…` with events", "none")
                .hint("trace with the device's tracer on (`jax.profiler.trace` on a GPU or TPU)"));
        }
        coverage.note("XPlane has no dependencies between streams: each stream keeps its own times");
        draft.world = Some(number);
        Ok(draft)
    }
}

/// Kinds of devices, in the order of their ranks.
const GPU: u8 = 0;
const TPU: u8 = 1;
const OTHER: u8 = 2;

/// The kind and number of the device that a plane is. `/device:CUSTOM:…` (Megascale's transfers, say) and `/device:TPU:0 SparseCore 1`
/// are none of their own.
fn device(name: &str) -> Option<(u8, u64)> {
    let (kind, number) = name.strip_prefix("/device:")?.rsplit_once(':')?;
    let number = number.trim().parse().ok()?;
    match kind {
        "GPU" => Some((GPU, number)),
        "TPU" => Some((TPU, number)),
        _ if kind.starts_with("CUSTOM") => None,
        _ => Some((OTHER, number)),
    }
}

fn plane(file: &str, message: &[u8]) -> Result<Plane, ImportError> {
    let mut plane = Plane::default();
    let mut fields = Bytes::new(file, message);
    while let Some(field) = fields.field()? {
        match field.number {
            2 => plane.name = field.value.text(),
            3 => plane.lines.push(line(file, field.value.bytes())?),
            4 => {
                let (mut key, mut name) = (0, String::new());
                let mut entry = Bytes::new(file, field.value.bytes());
                while let Some(field) = entry.field()? {
                    match field.number {
                        1 => key = field.value.number(),
                        2 => {
                            let mut metadata = Bytes::new(file, field.value.bytes());
                            while let Some(field) = metadata.field()? {
                                if field.number == 2 {
                                    name = field.value.text();
                                }
                            }
                        }
                        _ => {}
                    }
                }
                plane.names.insert(key, name);
            }
            _ => {}
        }
    }
    Ok(plane)
}

fn line(file: &str, message: &[u8]) -> Result<Line, ImportError> {
    let mut line = Line::default();
    let mut fields = Bytes::new(file, message);
    while let Some(field) = fields.field()? {
        match field.number {
            2 => line.name = field.value.text(),
            3 => line.start_ns = field.value.number(),
            4 => {
                let (mut name, mut offset, mut length) = (0, 0, 0);
                let mut event = Bytes::new(file, field.value.bytes());
                while let Some(field) = event.field()? {
                    match field.number {
                        1 => name = field.value.number(),
                        2 => offset = field.value.number(),
                        3 => length = field.value.number(),
                        _ => {}
                    }
                }
                line.events.push((name, offset, length));
            }
            _ => {}
        }
    }
    Ok(line)
}

/// Lines that repeat others in a coarser or finer form, by how their names begin.
const SUMMARIES: [&str; 14] = [
    "Steps",
    "XLA Modules",
    "XLA Ops",
    "Async XLA Ops",
    "XLA TraceMe",
    "Framework",
    "TensorFlow",
    "Launch Stats",
    "Source code",
    "Host Offload Ops",
    "Sparse Core",
    "Tensor Core Sync Flag",
    "_counters_",
    "Scope range",
];

/// What stands for a device's work where its own lines are not there, the best first.
const INSTEAD: [&str; 3] = ["XLA Ops", "Framework Ops", "XLA Modules"];

/// Words in names of communication.
const COMMUNICATION: [&str; 8] = [
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
    "nccl",
    "rccl",
];

/// The lines that are a device's work; with each, why it is guessed to be.
fn streams(plane: &Plane, tpu: bool) -> Vec<(&Line, Option<&'static str>)> {
    let filled = || plane.lines.iter().filter(|line| !line.events.is_empty());
    let named = |name: &'static str| filled().filter(move |line| line.name == name);
    if tpu && named("XLA Ops").next().is_some() {
        return named("XLA Ops").chain(named("Async XLA Ops")).map(|line| (line, None)).collect();
    }
    let is_summary = |line: &Line| SUMMARIES.iter().any(|known| line.name.starts_with(known));
    let real: Vec<_> = filled()
        .filter(|line| !is_summary(line) && !tpu)
        .map(|line| {
            let known = line.name.starts_with("Stream");
            (line, (!known).then_some("of a line whose name is not known: taken for a stream"))
        })
        .collect();
    if !real.is_empty() {
        return real;
    }
    let instead = INSTEAD.into_iter().find(|name| named(name).next().is_some());
    let why = "of a summary: the lines of its device's own work are not in the trace";
    instead.into_iter().flat_map(named).map(|line| (line, Some(why))).collect()
}

fn program(plane: &Plane, tpu: bool, coverage: &mut Coverage) -> RankDraft {
    let mut rank = RankDraft::new();
    let streams = streams(plane, tpu);
    for line in &plane.lines {
        if !streams.iter().any(|(stream, _)| std::ptr::eq(*stream, line)) {
            let amount = Amount { operations: line.events.len() as u64, ..Amount::default() };
            let why = "repeats what the streams have";
            coverage.add("event of a summary line", Treatment::Mapped, why, amount);
        }
    }
    let start = |line: &Line, offset: u64| line.start_ns.saturating_mul(1_000).saturating_add(offset);
    let starts = streams.iter().flat_map(|(line, _)| line.events.iter().map(|event| start(line, event.1)));
    let origin = starts.min().unwrap_or(0);
    for (number, (line, guessed)) in streams.iter().enumerate() {
        let stream = StreamId(number.min(200) as u8 + u8::from(number >= 6));
        let mut events = line.events.clone();
        events.sort_unstable_by_key(|&(_, offset, length)| (offset, length));
        let (mut last, mut clock): (Option<u32>, u64) = (None, origin);
        for (name, offset, length) in events {
            let begin = start(line, offset);
            let overlap = begin < clock;
            let gap = begin.saturating_sub(clock);
            let end = begin.saturating_add(length).max(clock);
            let text = plane.names.get(&name).map_or("", String::as_str);
            let lower = text.to_ascii_lowercase();
            let (treatment, why) = match guessed {
                _ if COMMUNICATION.iter().any(|word| lower.contains(word)) => {
                    (Treatment::Approximated, "communication without a size: its recorded time stays")
                }
                Some(why) => (Treatment::Guessed, *why),
                None if overlap => {
                    (Treatment::Approximated, "overlaps the one before on its line: put behind it")
                }
                None => (Treatment::Mapped, ""),
            };
            coverage.count("kernel", treatment, why, 0, length / 1_000);
            let label = rank.label(&crate::kineto::short(text));
            let span = gap.saturating_add(end.saturating_sub(begin.max(clock)));
            let index =
                rank.push(Work::Calc(Span::from_ps(span)), stream, label, Dimension::Other, last.as_slice());
            (last, clock) = (Some(index), end);
        }
    }
    rank
}
