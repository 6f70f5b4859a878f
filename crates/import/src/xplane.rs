//! XPlane files of JAX and XLA (`.xplane.pb`): planes of devices, lines of streams, events with names by number.
//!
//! What is kept: each device is a rank, each of its streams a stream, each event an operation at its recorded distance from the one
//! before. The file has no dependencies between streams and no sizes of collectives, so those keep their recorded time.

use std::collections::BTreeMap;

use windtunnel_kernel::registry::Entry;
use windtunnel_kernel::{Span, StreamId};
use windtunnel_workload::Dimension;

use crate::bytes::Bytes;
use crate::coverage::{Coverage, Treatment};
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
            while let Some(field) = fields.field()? {
                if field.number != 1 {
                    continue;
                }
                let plane = plane(&input.name, field.value.bytes())?;
                let events: u64 = plane.lines.iter().map(|line| line.events.len() as u64).sum();
                if !plane.name.starts_with("/device:") || events == 0 {
                    let amount = crate::coverage::Amount { operations: events, ..Default::default() };
                    coverage.add(
                        "event of the host",
                        Treatment::Approximated,
                        "its plane is no device: the gaps that it leaves are kept",
                        amount,
                    );
                    continue;
                }
                draft.ranks.insert(number, program(&plane, coverage).of_file(&input.name));
                number += 1;
            }
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

/// Lines that repeat others in a coarser or finer form.
fn is_summary(name: &str) -> bool {
    ["XLA Modules", "Steps", "XLA TraceMe", "Framework", "Source code", "TensorFlow", "XLA Ops"]
        .iter()
        .any(|known| name.starts_with(known))
}

fn program(plane: &Plane, coverage: &mut Coverage) -> RankDraft {
    let mut rank = RankDraft::new();
    let streams: Vec<&Line> = {
        let real: Vec<&Line> =
            plane.lines.iter().filter(|line| !is_summary(&line.name) && !line.events.is_empty()).collect();
        // A TPU has no streams: its line `XLA Ops` is what it does.
        if real.is_empty() {
            plane.lines.iter().filter(|line| line.name == "XLA Ops").collect()
        } else {
            real
        }
    };
    for line in &plane.lines {
        if !streams.iter().any(|stream| std::ptr::eq(*stream, line)) {
            let amount =
                crate::coverage::Amount { operations: line.events.len() as u64, ..Default::default() };
            coverage.add(
                "event of a summary line",
                Treatment::Mapped,
                "repeats what the streams have",
                amount,
            );
        }
    }
    let start = |line: &Line, offset: u64| line.start_ns.saturating_mul(1_000).saturating_add(offset);
    let origin = streams
        .iter()
        .flat_map(|line| line.events.iter().map(|event| start(line, event.1)))
        .min()
        .unwrap_or(0);
    for (number, line) in streams.iter().enumerate() {
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
            let communicates = [
                "all-reduce",
                "all-gather",
                "reduce-scatter",
                "all-to-all",
                "collective-permute",
                "nccl",
                "rccl",
            ]
            .iter()
            .any(|word| lower.contains(word));
            let (treatment, why) = match () {
                () if communicates => {
                    (Treatment::Approximated, "communication without a size: its recorded time stays")
                }
                () if overlap => {
                    (Treatment::Approximated, "overlaps the one before on its line: put behind it")
                }
                () => (Treatment::Mapped, ""),
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
