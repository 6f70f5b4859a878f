//! PyTorch's Kineto traces: one file a rank, with or without execution traces beside them.
//!
//! Ranks are read in parallel. What a file says of its rank decides which it is; clocks of ranks are compared by the ends of
//! collectives, which all members leave together.

mod build;
mod calls;
mod communication;
mod events;
mod time;

use rayon::prelude::*;

pub(crate) use build::short;
pub(crate) use calls::Dims;
pub(crate) use calls::element_bytes;
pub(crate) use communication::kind_of;
pub(crate) use events::{Annotation, DeviceOp, HostCall, SyncRecord, Trace, host_kind};
pub(crate) use time::nanoseconds;

use crate::coverage::{Coverage, Verdict};
use crate::draft::Draft;
use crate::error::ImportError;
use crate::execution_trace::{self, ExecutionTrace, Logged};
use crate::input::Input;
use crate::{Options, Reader};
use communication::Caller;
use windtunnel_kernel::registry::Entry;

/// Kineto traces.
pub struct Kineto;

/// Clocks further apart than this are set by collectives.
const CLOCKS: i64 = 1_000_000;

impl Reader for Kineto {
    fn entry(&self) -> &'static Entry {
        const {
            &Entry::new(
                "kineto",
                "PyTorch profiler (Kineto) traces, Chrome JSON, with or without execution traces",
            )
        }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        let json = head.iter().find(|byte| !byte.is_ascii_whitespace());
        let has = |needle: &[u8]| memchr::memmem::find(head, needle).is_some();
        let members = [
            "traceEvents",
            "deviceProperties",
            "distributedInfo",
            "schemaVersion",
            "cupti_version",
            "roctracer_version",
        ];
        let trace = members.iter().any(|member| has(format!("\"{member}\"").as_bytes()));
        // Execution traces are read beside traces, and refused alone with what to do.
        let log = has(b"\"schema\"") && (has(b"\"nodes\"") || has(b"\"start_ts\""));
        matches!(json, Some(b'{')) && (trace || log)
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let mut traces = Vec::new();
        let mut logs = Vec::new();
        let read: Vec<Result<(File, Coverage), ImportError>> = inputs.par_iter().map(read_one).collect();
        for result in read {
            let (file, part) = result?;
            coverage.merge(part);
            match file {
                File::Trace(trace) => traces.push(*trace),
                File::Log(log) => logs.push(log),
            }
        }
        let source = inputs.first().map_or(String::new(), |input| input.name.clone());
        if traces.is_empty() {
            return Err(ImportError::new(
                source,
                "at least one Kineto trace",
                "execution traces alone, which have no times",
            )
            .hint("record the profiler's trace with them, or convert both with Chakra's converter"));
        }
        assemble(traces, &logs, source, coverage)
    }
}

/// Makes programs of traces of ranks, with execution traces beside them.
pub(crate) fn assemble(
    mut traces: Vec<Trace>,
    logs: &[ExecutionTrace],
    source: String,
    coverage: &mut Coverage,
) -> Result<Draft, ImportError> {
    number(&mut traces, coverage)?;
    let world = crate::assemble::believable(world(&traces), &source)?;
    let mut draft = Draft { world: Some(world), source, ..Draft::default() };
    align_clocks(&mut traces, coverage);
    let origin = traces.iter().filter_map(|trace| trace.span.map(|(first, _)| first)).min().unwrap_or(0);
    let logged = pair(&traces, logs, coverage);
    for (trace, logged) in traces.into_iter().zip(logged) {
        let rank = trace.rank.unwrap_or(0);
        if trace.device.is_empty() {
            continue;
        }
        for (name, start, end) in &trace.steps {
            coverage.span(rank, name, (end - start).max(0) as u64);
        }
        let mut caller = Caller::new(&trace, rank, world, logged);
        let program = build::build(&trace, origin, &mut caller, &mut draft, coverage);
        draft.ranks.insert(rank, program.of_file(&trace.file));
    }
    if draft.ranks.is_empty() {
        return Err(ImportError::new(
            &draft.source,
            "kernels, or collectives of a CPU",
            "operators of the host alone",
        )
        .hint("record with `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`"));
    }
    Ok(draft)
}

enum File {
    Trace(Box<Trace>),
    Log(ExecutionTrace),
}

fn read_one(input: &Input) -> Result<(File, Coverage), ImportError> {
    let mut coverage = Coverage::default();
    let head = input.head(1 << 16)?;
    let log = memchr::memmem::find(&head, b"\"schema\"").is_some()
        && memchr::memmem::find(&head, b"\"traceEvents\"").is_none();
    let file = if log {
        File::Log(execution_trace::read(input, &mut coverage)?)
    } else {
        File::Trace(Box::new(events::read(input, &mut coverage)?))
    };
    Ok((file, coverage))
}

/// Gives each trace its rank.
fn number(traces: &mut [Trace], coverage: &mut Coverage) -> Result<(), ImportError> {
    let several = traces.len() > 1;
    for (index, trace) in (0u32..).zip(traces.iter_mut()) {
        if trace.rank.is_none() {
            let why = if several {
                "its file does not say which: the order of the files"
            } else {
                "its file does not say which: 0"
            };
            coverage.count("rank", Verdict::Guessed, why, 0, 0);
            trace.rank = Some(if several { index } else { 0 });
        }
    }
    traces.sort_by_key(|trace| trace.rank);
    if let Some(pair) = traces.windows(2).find(|pair| pair[0].rank == pair[1].rank) {
        let rank = pair[0].rank.unwrap_or(0);
        return Err(ImportError::new(
            &pair[1].file,
            "one trace a rank",
            format!("rank {rank} again, as in {}", pair[0].file),
        )
        .hint("give the files of one profiled step, one a rank"));
    }
    Ok(())
}

fn world(traces: &[Trace]) -> u32 {
    let said = traces.iter().filter_map(|trace| trace.world).max().unwrap_or(0);
    let groups =
        traces.iter().flat_map(|trace| &trace.groups).flat_map(|group| group.ranks.iter().copied()).max();
    let last = traces.iter().filter_map(|trace| trace.rank).max().unwrap_or(0);
    said.max(last.saturating_add(1)).max(groups.map_or(0, |rank| rank.saturating_add(1)))
}

/// Pairs execution traces with traces (in order, or by process), and their collectives with annotations.
fn pair<'a>(
    traces: &[Trace],
    logs: &'a [ExecutionTrace],
    coverage: &mut Coverage,
) -> Vec<Vec<Option<&'a Logged>>> {
    let mut all = Vec::with_capacity(traces.len());
    for (index, trace) in traces.iter().enumerate() {
        let log = if logs.len() == traces.len() { logs.get(index) } else { None };
        let mut of = vec![None; trace.annotations.len()];
        if let Some(log) = log {
            let kind = |annotation: &Annotation| {
                let name = &trace.names[annotation.name as usize];
                kind_of(name.split_once(':').map_or(name.as_str(), |(_, call)| call))
            };
            let fits = log.calls.len() == trace.annotations.len()
                && log.calls.iter().zip(&trace.annotations).all(|(call, annotation)| {
                    kind_of(call.name.trim_start_matches("nccl:")) == kind(annotation)
                });
            if fits {
                for (place, call) in of.iter_mut().zip(&log.calls) {
                    *place = Some(call);
                }
            } else {
                coverage.note(format!(
                    "{}: {} collectives, {} in {}: not of the same step, so it is not used",
                    log.file,
                    log.calls.len(),
                    trace.annotations.len(),
                    trace.file
                ));
            }
        }
        all.push(of);
    }
    if !logs.is_empty() && logs.len() != traces.len() {
        coverage.note(format!(
            "{} execution traces beside {} traces: which belongs to which is not known, so they are not used",
            logs.len(),
            traces.len()
        ));
    }
    all
}

/// Moves ranks whose clocks disagree, by the median distance of the ends of annotated or described collectives.
fn align_clocks(traces: &mut [Trace], coverage: &mut Coverage) {
    let ends = |trace: &Trace| -> Vec<i64> {
        let of = |op: &&events::DeviceOp| {
            trace.names[op.name as usize].contains("ncclKernel")
                || trace.names[op.name as usize].contains("ncclDevKernel")
        };
        trace.device.iter().filter(of).map(|op| op.end).collect()
    };
    let Some((first, others)) = traces.split_first_mut() else { return };
    let reference = ends(first);
    for trace in others {
        let own = ends(trace);
        if own.is_empty() || own.len() != reference.len() {
            continue;
        }
        let mut apart: Vec<i64> =
            own.iter().zip(&reference).map(|(own, reference)| own - reference).collect();
        apart.sort_unstable();
        let shift = apart[apart.len() / 2];
        if shift.abs() > CLOCKS {
            coverage.count(
                "clock of a rank",
                Verdict::Approximated,
                "set by the ends of collectives",
                0,
                shift.unsigned_abs(),
            );
            trace.shift(-shift);
        }
    }
}
