//! Where the time of an iteration went.
//!
//! The walk starts at the last operation of the rank that ends the iteration and goes backwards *on that rank*: from an
//! operation to the one that released it, or to the one that held its stream. Every picosecond is booked once:
//!
//! - a computation: compute;
//! - a wait for a message: up to the instant at which its sender began to send, bubble (a pipeline stage that has not
//!   yet sent because of the schedule); after it, exposed communication of the message's dimension;
//! - a wait in a collective: up to the arrival of its last member, straggler; after it, exposed communication;
//! - anything else (overheads, a send held by its rendezvous): host.
//!
//! The segments are contiguous and in integer picoseconds, so they sum to the iteration time exactly (tested). A wait
//! for a peer stays on the waiting rank: following the message to its sender would turn every bubble into the sender's
//! computation and hide it.

use windtunnel_kernel::{RankId, Time};
use windtunnel_workload::replay::{ITERATION_START, OpRecord};
use windtunnel_workload::{Dimension, OpKind, Program};

/// What a stretch of time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Computation.
    Compute,
    /// Communication that nothing hid.
    Exposed(Dimension),
    /// Waiting for a pipeline stage that had not yet sent.
    Bubble,
    /// Waiting for a late member of a collective.
    Straggler,
    /// Overheads of the host.
    Host,
}

impl Category {
    /// Its name in the results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Exposed(dimension) => dimension.name(),
            Self::Bubble => "bubble",
            Self::Straggler => "straggler",
            Self::Host => "host",
        }
    }
}

/// A stretch of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What it was spent on.
    pub category: Category,
    /// Operation of the rank's program; [`ITERATION_START`] where none is to blame.
    pub op: u32,
    /// From.
    pub start: Time,
    /// To.
    pub finish: Time,
}

/// Picoseconds of an iteration by category; they sum to its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Computation.
    pub compute: u64,
    /// Exposed communication in the order of [`Dimension::ALL`].
    pub exposed: [u64; 6],
    /// Pipeline bubble.
    pub bubble: u64,
    /// Stragglers.
    pub straggler: u64,
    /// Host.
    pub host: u64,
}

impl Breakdown {
    /// The sum by category of `path`.
    pub fn of(path: &[Segment]) -> Self {
        let mut sum = Self::default();
        for segment in path {
            let span = (segment.finish - segment.start).0;
            match segment.category {
                Category::Compute => sum.compute += span,
                Category::Exposed(dimension) => sum.exposed[dimension as usize] += span,
                Category::Bubble => sum.bubble += span,
                Category::Straggler => sum.straggler += span,
                Category::Host => sum.host += span,
            }
        }
        sum
    }

    /// All picoseconds.
    pub fn total(&self) -> u64 {
        self.compute + self.exposed.iter().sum::<u64>() + self.bubble + self.straggler + self.host
    }
}

/// Walks an iteration of one rank backwards from its last operation and returns the stretches between the rank's start
/// of the iteration and its end, in time order.
///
/// `record(op)` gives an operation's times: `ready` is when its last prerequisite ended, `remote` the start of a
/// computation, the sender's start for a receive, the last arrival for a collective.
pub fn walk(program: &Program, begin: Time, end: Time, record: impl Fn(u32) -> OpRecord) -> Vec<Segment> {
    let mut path = Path { segments: Vec::new(), at: end, begin };
    let n = program.ops.len() as u32;
    let mut op = (0..n).rev().max_by_key(|&op| record(op).finish).unwrap_or(ITERATION_START);
    // Computations by end, to find the one that held a stream.
    let mut by_finish: Vec<(Time, u32)> = (0..n)
        .filter(|&op| matches!(program.ops[op as usize].kind, OpKind::Calc { .. }))
        .map(|op| (record(op).finish, op))
        .collect();
    by_finish.sort_unstable();
    // Each step goes to an operation that was released or started earlier, so the walk is no longer than the program;
    // the bound guards against records that contradict each other.
    for _ in 0..=2 * n {
        if path.at <= begin || op == ITERATION_START {
            break;
        }
        let now = record(op);
        let operation = program.ops[op as usize];
        path.back_to(now.finish, Category::Host, op);
        op = match operation.kind {
            OpKind::Calc { stream, .. } => {
                path.back_to(now.remote, Category::Compute, op);
                if now.remote > now.ready {
                    holder(program, &by_finish, now.remote, stream, op).unwrap_or_else(|| {
                        path.back_to(now.ready, Category::Host, op);
                        now.cause
                    })
                } else {
                    now.cause
                }
            }
            OpKind::Receive { .. } | OpKind::Collective { .. } => {
                let waiting = match operation.kind {
                    OpKind::Receive { .. } => Category::Bubble,
                    _ => Category::Straggler,
                };
                path.back_to(now.remote.max(now.ready), Category::Exposed(operation.dimension), op);
                path.back_to(now.ready, waiting, op);
                now.cause
            }
            OpKind::Send { .. } => {
                path.back_to(now.ready, Category::Host, op);
                now.cause
            }
        };
    }
    path.back_to(begin, Category::Host, ITERATION_START);
    path.segments.reverse();
    path.segments
}

/// The computation on `stream` that ended at `at`, other than `not`.
fn holder(
    program: &Program,
    by_finish: &[(Time, u32)],
    at: Time,
    stream: windtunnel_kernel::StreamId,
    not: u32,
) -> Option<u32> {
    let from = by_finish.partition_point(|&(finish, _)| finish < at);
    by_finish[from..].iter().take_while(|&&(finish, _)| finish == at).map(|&(_, op)| op).find(|&op| {
        let same = matches!(program.ops[op as usize].kind, OpKind::Calc { stream: other, .. } if other == stream);
        same && op != not
    })
}

/// The path so far, latest stretch first.
struct Path {
    segments: Vec<Segment>,
    at: Time,
    begin: Time,
}

impl Path {
    /// Books the time back to `to` (not before the iteration's begin) under `category`.
    fn back_to(&mut self, to: Time, category: Category, op: u32) {
        let to = to.max(self.begin);
        if to < self.at {
            self.segments.push(Segment { category, op, start: to, finish: self.at });
            self.at = to;
        }
    }
}

/// Cuts away what of `path` lies before `boundary`.
pub fn clip(path: &mut Vec<Segment>, boundary: Time) {
    path.retain(|segment| segment.finish > boundary);
    if let Some(first) = path.first_mut() {
        first.start = first.start.max(boundary);
    }
}

/// The critical path of an iteration of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticalPath {
    /// The rank that ended the iteration (the lowest of several).
    pub rank: RankId,
    /// Stretches in time order; they cover the iteration.
    pub segments: Vec<Segment>,
}
