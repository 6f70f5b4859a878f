//! PyTorch's Kineto traces: one file a rank, with or without execution traces beside them.
//!
//! Ranks are read in parallel. What a file says of its rank decides which it is; clocks of ranks are compared by the ends of
//! collectives, which all members leave together.

mod build;
mod calls;
mod communication;
mod cpu;
mod events;
mod merged;
mod nccl;
mod time;
mod trace;

use std::collections::BTreeMap;

use rayon::prelude::*;

pub(crate) use build::short;
pub(crate) use calls::element_bytes;
pub(crate) use communication::kind_of;
pub(crate) use events::{INSIDE, host_kind};
pub(crate) use time::nanoseconds;
pub(crate) use trace::{Annotation, DeviceOp, HostCall, HostKind, Payload, SyncRecord, Trace};

use crate::assemble::believable;
use crate::coverage::{Amount, Coverage, Treatment};
use crate::draft::Draft;
use crate::error::ImportError;
use crate::execution_trace::{self, ExecutionTrace, Logged};
use crate::input::Input;
use crate::{Options, Reader};
use communication::Caller;
use windtunnel_kernel::registry::Entry;

/// Kineto traces.
pub struct Kineto;

/// No recording has an instant further from 1970 than 73 years, so that differences of instants fit.
pub(crate) const LATEST: u64 = 1 << 61;

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
    let world = world(&traces);
    let mut draft = Draft { world: Some(world), source, ..Draft::default() };
    align_clocks(&mut traces, coverage);
    let seen = traces.iter().any(|trace| trace.span.is_some());
    let origin = traces.iter().filter_map(|trace| trace.span.map(|(first, _)| first)).min().unwrap_or(0);
    let logged = pair(&traces, logs, coverage);
    for (trace, logged) in traces.into_iter().zip(logged) {
        let rank = trace.rank.unwrap_or(0);
        if trace.device.is_empty() {
            for call in trace.host.iter().filter(|call| call.counts()) {
                let length = (call.end - call.start) as u64;
                let why = "nothing of its device was recorded: its rank is not replayed";
                coverage.count("call of the host", Treatment::Dropped, why, 0, length);
            }
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
        let found = if seen { "operators of the host alone" } else { "no event" };
        return Err(ImportError::new(&draft.source, "kernels, or collectives of a CPU", found)
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
            coverage.count("rank", Treatment::Guessed, why, 0, 0);
            trace.rank = Some(if several { index } else { 0 });
        }
        believable(world(std::slice::from_ref(trace)), &trace.file)?;
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
    let said = |trace: &Trace| Some((trace.world?, trace.file.clone()));
    let worlds: Vec<(u32, String)> = traces.iter().filter_map(said).collect();
    if let Some((world, file)) = worlds.iter().find(|(world, _)| *world != worlds[0].0) {
        let found = format!("{world} here, and {} in {}", worlds[0].0, worlds[0].1);
        return Err(ImportError::new(file, "as many ranks (`world_size`) as in the other traces", found)
            .hint("these are files of several runs: give those of one"));
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

/// A collective of an execution trace in the account.
const LOGGED: &str = "collective of an execution trace";

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
            let amount = Amount { operations: log.calls.len() as u64, ..Amount::default() };
            let (treatment, why) = if fits {
                (Treatment::Mapped, "says sizes of kernels")
            } else {
                (Treatment::Dropped, "not of the same step as the trace: not used")
            };
            coverage.add(LOGGED, treatment, why, amount);
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
        let operations = logs.iter().map(|log| log.calls.len() as u64).sum();
        let why = "which trace it belongs to is not known: not used";
        coverage.add(LOGGED, Treatment::Dropped, why, Amount { operations, ..Amount::default() });
        coverage.note(format!(
            "{} execution traces beside {} traces: which belongs to which is not known, so they are not used",
            logs.len(),
            traces.len()
        ));
    }
    all
}

/// Moves ranks whose clocks disagree, by the median distance of the ends of collectives that they share with ranks whose clocks are known.
fn align_clocks(traces: &mut [Trace], coverage: &mut Coverage) {
    let mut left: Vec<(&mut Trace, Ends)> = traces
        .iter_mut()
        .map(|trace| {
            let ends = ends(trace);
            (trace, ends)
        })
        .collect();
    if left.len() < 2 {
        return;
    }
    let mut known: Ends = left.remove(0).1;
    // Ranks of other stages of a pipeline may share a group with a rank that shares one with the first.
    while let Some(at) = left.iter().position(|(_, own)| own.keys().any(|group| known.contains_key(group))) {
        let (trace, mut own) = left.remove(at);
        let mut apart: Vec<i64> = Vec::new();
        for (group, ends) in &own {
            let reference = known.get(group).into_iter().flatten();
            apart.extend(ends.iter().zip(reference).map(|(own, reference)| own.saturating_sub(*reference)));
        }
        apart.sort_unstable();
        let shift = apart[apart.len() / 2];
        if shift.saturating_abs() > CLOCKS {
            coverage.count(
                "clock of a rank",
                Treatment::Approximated,
                "set by the ends of collectives",
                0,
                shift.unsigned_abs(),
            );
            trace.shift(shift.saturating_neg());
            own.values_mut().flatten().for_each(|end| *end = end.saturating_sub(shift));
        }
        for (group, ends) in own {
            known.entry(group).or_insert(ends);
        }
    }
    if !left.is_empty() {
        let ranks: Vec<u32> = left.iter().filter_map(|(trace, _)| trace.rank).collect();
        coverage.note(format!(
            "no collective ties the clocks of {} to those of others: they are taken as they are",
            crate::assemble::ranks_text(&ranks)
        ));
    }
}

/// When a rank's collectives ended, by group; those of kernels that do not say theirs under no name.
type Ends = BTreeMap<String, Vec<i64>>;

fn ends(trace: &Trace) -> Ends {
    let mut ends = Ends::new();
    for op in &trace.device {
        let group = match op.arguments {
            Some(said) => {
                let said = &trace.arguments[said as usize];
                format!("{:?} {:?}", said.group_name, said.group_ranks)
            }
            None if NCCL.iter().any(|part| trace.names[op.name as usize].contains(part)) => String::new(),
            None => continue,
        };
        ends.entry(group).or_default().push(op.end);
    }
    ends
}

/// Parts of the names of NCCL's kernels.
const NCCL: [&str; 2] = ["ncclKernel", "ncclDevKernel"];
