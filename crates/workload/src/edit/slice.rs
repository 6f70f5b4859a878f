//! Iterations cut out of a recorded workload.
//!
//! A step is marked by two operations, `NAME begin` and `NAME end`. What stands between them in the order of operations, which is that
//! of the recording, is kept; what was before counts as done. A collective of which some members' parts lie outside is left out on all.

use rustc_hash::FxHashMap;
use windtunnel_kernel::RankId;

use crate::{CommSlot, OpKind, Program, ProgramBuilder, Workload};

/// Why nothing can be cut out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// A rank has no such mark.
    #[error("expected an operation `{mark}` on every rank, found none on rank {rank}")]
    NoMark {
        /// The label.
        mark: String,
        /// Where it is missing.
        rank: u32,
    },
    /// The end comes first.
    #[error("expected `{first}` before `{last}`, found it behind on rank {rank}")]
    Backwards {
        /// Step to begin with.
        first: String,
        /// Step to end with.
        last: String,
        /// Where.
        rank: u32,
    },
    /// Operations of a rank do not repeat.
    #[error("expected operations that repeat over more than half of every rank, found none on rank {rank}")]
    NoRepetition {
        /// Which.
        rank: u32,
    },
    /// Ranks repeat their operations differently often.
    #[error(
        "expected as many repetitions on all ranks, found {count} on rank {first} and {other} on rank {rank}"
    )]
    Disagree {
        /// The rank with the fewest.
        first: u32,
        /// Its repetitions.
        count: usize,
        /// Another rank.
        rank: u32,
        /// Its repetitions, no multiple of those.
        other: usize,
    },
    /// There are not as many iterations.
    #[error("expected iterations from 0 to {}, found {first} to {last}", count - 1)]
    NoIteration {
        /// The first that is asked for.
        first: usize,
        /// The last that is asked for.
        last: usize,
        /// How many there are.
        count: usize,
    },
    /// A message is sent within the cut and received outside, or the other way round.
    #[error(
        "expected messages that are sent and received within the iterations, found one across the cut on rank {rank}"
    )]
    Across {
        /// The receiver.
        rank: u32,
    },
}

/// The steps that rank 0 marks, in order.
pub fn steps(workload: &Workload) -> Vec<String> {
    if workload.ranks() == 0 {
        return Vec::new();
    }
    let program = workload.program(RankId(0));
    let labels = program.ops.iter().map(|op| program.labels[op.label as usize].as_str());
    labels.filter_map(|label| label.strip_suffix(" begin")).map(str::to_owned).collect()
}

/// Cuts the steps from `first` to `last` out; returns them, and how many collectives were left out.
///
/// # Errors
/// [`SliceError`] where a rank has no such step.
pub fn slice(workload: &Workload, first: &str, last: &str) -> Result<(Workload, u64), SliceError> {
    let (begin, end) = (format!("{first} begin"), format!("{last} end"));
    let mut kept: Vec<Option<(usize, usize)>> = vec![None; workload.programs.len()];
    for rank in 0..workload.ranks() as u32 {
        let program = workload.program(RankId(rank));
        let place = &mut kept[workload.program_of[rank as usize] as usize];
        if place.is_some() || program.ops.is_empty() {
            continue;
        }
        let find = |mark: &str| {
            let found = program.ops.iter().position(|op| program.labels[op.label as usize] == mark);
            found.ok_or_else(|| SliceError::NoMark { mark: mark.to_owned(), rank })
        };
        let (from, to) = (find(&begin)?, find(&end)?);
        if to < from {
            return Err(SliceError::Backwards { first: first.to_owned(), last: last.to_owned(), rank });
        }
        *place = Some((from, to));
    }
    Ok(cut(workload, &kept))
}

/// Keeps operations `kept` of each program (first and last), all where nothing is said; and how many collectives were left out.
pub(super) fn cut(workload: &Workload, kept: &[Option<(usize, usize)>]) -> (Workload, u64) {
    let whole = sequences(workload, kept);
    let mut left_out = 0;
    let mut cut = workload.clone();
    for (index, program) in cut.programs.iter_mut().enumerate() {
        if let Some(range) = kept[index] {
            *program = cut_program(program, range, &whole[index], &mut left_out);
        }
    }
    (cut, left_out)
}

/// Sequence numbers: the first, and the one behind the last.
type Range = (u32, u32);

/// Of each program and slot the sequence numbers (first, behind the last) that all members keep.
fn sequences(workload: &Workload, kept: &[Option<(usize, usize)>]) -> Vec<FxHashMap<CommSlot, Range>> {
    let mut own: Vec<FxHashMap<CommSlot, Range>> = workload
        .programs
        .iter()
        .zip(kept)
        .map(|(program, range)| {
            let mut slots: FxHashMap<CommSlot, Range> = FxHashMap::default();
            let (from, to) = range.unwrap_or((1, 0));
            for (place, op) in program.ops.iter().enumerate() {
                if let OpKind::Collective { comm, sequence, .. } = op.kind {
                    let range = slots.entry(comm).or_insert((u32::MAX, 0));
                    if (from..=to).contains(&place) {
                        *range = (range.0.min(sequence), range.1.max(sequence + 1));
                    }
                }
            }
            slots
        })
        .collect();
    // Programs of one communicator agree on the least; a program of several communicators on the least of all.
    loop {
        let mut of_communicator: Vec<Range> = vec![(0, u32::MAX); workload.communicators.len()];
        let mut each = |visit: &mut dyn FnMut(&mut Range, &mut Range)| {
            for rank in 0..workload.ranks() {
                let index = workload.program_of[rank] as usize;
                for slot in 0..workload.binding_offsets[rank + 1] - workload.binding_offsets[rank] {
                    let slot = CommSlot(slot as u16);
                    let group = workload.binding(RankId(rank as u32), slot).communicator as usize;
                    if let Some(range) = own[index].get_mut(&slot) {
                        visit(range, &mut of_communicator[group]);
                    }
                }
            }
        };
        each(&mut |range, common| *common = (common.0.max(range.0), common.1.min(range.1)));
        let mut changed = false;
        each(&mut |range, common| {
            let least = (common.0.max(range.0), common.1.min(range.1));
            changed |= least != *range;
            *range = least;
        });
        if !changed {
            return own;
        }
    }
}

fn cut_program(
    program: &Program,
    (from, to): (usize, usize),
    whole: &FxHashMap<CommSlot, Range>,
    left_out: &mut u64,
) -> Program {
    let mut builder = ProgramBuilder::new();
    let labels: Vec<u32> = program.labels.iter().map(|label| builder.label(label)).collect();
    let mut index_of: Vec<Option<u32>> = vec![None; program.ops.len()];
    for (place, op) in program.ops.iter().enumerate().take(to + 1).skip(from) {
        let label = labels[op.label as usize];
        index_of[place] = match op.kind {
            OpKind::Collective { comm, spec, sequence, stream } => {
                let (first, behind) = whole.get(&comm).copied().unwrap_or((0, 0));
                if (first..behind).contains(&sequence) {
                    let spec = program.specs[spec as usize].clone();
                    Some(builder.collective(comm, spec, op.dimension, stream, label))
                } else {
                    *left_out += 1;
                    None
                }
            }
            kind => Some(builder.push(kind, op.dimension, label)),
        };
    }
    for source in from..=to {
        for (edges, started) in [(&program.requires, false), (&program.irequires, true)] {
            for &target in edges.of(source as u32) {
                if let (Some(source), Some(target)) = (index_of[source], index_of[target as usize]) {
                    if started { builder.irequires(target, source) } else { builder.requires(target, source) }
                }
            }
        }
    }
    builder.finish().expect("a part of a graph without cycles has none")
}
