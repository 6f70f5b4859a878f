//! Where the time of an iteration went.
//!
//! The walk starts at the last operation of the rank that ends the iteration and goes backwards *on that rank*. Time in
//! which the rank computes is compute, whatever else goes on beside it: communication is exposed only where nothing
//! hides it. A gap between computations is explained by what the later one waited for, from an operation to the one that
//! released it, until the gap's beginning. Every picosecond is booked once:
//!
//! - a wait for a message: up to the instant at which its sender began to send, bubble (a pipeline stage that has not
//!   yet sent because of the schedule); after it, exposed communication of the message's dimension;
//! - a wait in a collective: up to the arrival of its last member, straggler; after it, exposed communication;
//! - anything else (kernels that the host had not launched yet, overheads, a send held by its rendezvous): host.
//!
//! The segments are contiguous and in integer picoseconds, so they sum to the iteration time exactly (tested). A wait
//! for a peer stays on the waiting rank: following the message to its sender would turn every bubble into the sender's
//! computation and hide it.

use windtunnel_kernel::{RankId, Time};
use windtunnel_workload::program::HOST_STREAM;
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
            let span = (segment.finish - segment.start).ps();
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
    let n = program.ops.len() as u32;
    let busy = busy_intervals(program, &record);
    let mut path = Path { segments: Vec::new(), at: end, begin };
    let mut op = (0..n).rev().max_by_key(|&op| record(op).finish).unwrap_or(ITERATION_START);
    while path.at > begin {
        let next = busy.partition_point(|interval| interval.finish < path.at);
        if let Some(interval) = busy.get(next).filter(|interval| interval.start < path.at) {
            path.back_to(interval.start, Category::Compute, interval.op);
            op = record(interval.op).cause;
            continue;
        }
        let gap = next.checked_sub(1).map_or(begin, |before| busy[before].finish).max(begin);
        let Some(operation) = program.ops.get(op as usize) else {
            path.back_to(gap, Category::Host, ITERATION_START);
            continue;
        };
        let now = record(op);
        path.back_to(now.finish.max(gap), Category::Host, op);
        match operation.kind {
            OpKind::Calc { stream: HOST_STREAM, .. } => path.back_to(now.remote.max(gap), Category::Host, op),
            OpKind::Calc { .. } => {}
            OpKind::Receive { .. } => {
                path.back_to(now.remote.max(now.ready).max(gap), Category::Exposed(operation.dimension), op);
                path.back_to(now.ready.max(gap), Category::Bubble, op);
            }
            OpKind::Collective { .. } => {
                path.back_to(now.remote.max(now.ready).max(gap), Category::Exposed(operation.dimension), op);
                path.back_to(now.ready.max(gap), Category::Straggler, op);
            }
            OpKind::Send { .. } => path.back_to(now.ready.max(gap), Category::Host, op),
        }
        if path.at > gap {
            op = now.cause;
        }
    }
    path.segments.reverse();
    path.segments
}

/// A stretch in which the rank computes.
#[derive(Clone, Copy, Debug)]
struct Busy {
    start: Time,
    finish: Time,
    op: u32,
}

/// Disjoint stretches of computation in time order; where streams overlap, each instant is given to one operation.
fn busy_intervals(program: &Program, record: &impl Fn(u32) -> OpRecord) -> Vec<Busy> {
    let calcs = (0..program.ops.len() as u32)
        .filter(|&op| {
            matches!(program.ops[op as usize].kind, OpKind::Calc { stream, .. } if stream != HOST_STREAM)
        })
        .map(|op| Busy { start: record(op).remote, finish: record(op).finish, op });
    let mut all: Vec<Busy> = calcs.filter(|busy| busy.start < busy.finish).collect();
    all.sort_unstable_by_key(|busy| (busy.start, busy.finish, busy.op));
    let mut covered = Time::ZERO;
    all.retain_mut(|busy| {
        busy.start = busy.start.max(covered);
        covered = covered.max(busy.finish);
        busy.start < busy.finish
    });
    all
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

#[cfg(test)]
mod tests {
    use windtunnel_kernel::{Bytes, NicId, Span, StreamId, Tag};
    use windtunnel_workload::collectives::{CollectiveKind, CollectiveSpec};
    use windtunnel_workload::{CommSlot, Peer, ProgramBuilder};

    use super::*;

    fn receive(builder: &mut ProgramBuilder) -> u32 {
        let peer = Some(Peer::Rank(RankId(1)));
        builder.push(OpKind::Receive { peer, tag: Some(Tag(0)), stream: StreamId(4) }, Dimension::Pp, 0)
    }

    fn record(ready: u64, remote: u64, finish: u64, cause: u32) -> OpRecord {
        OpRecord {
            ready: Time::from_ps(ready),
            finish: Time::from_ps(finish),
            remote: Time::from_ps(remote),
            cause,
        }
    }

    #[test]
    fn a_receive_posted_early_is_booked_only_where_nothing_computes() {
        // calc 0-10, receive posted at 0 and sent at 14, arrived at 20; calc 20-30.
        let mut builder = ProgramBuilder::new();
        let first = builder.calc(Span::from_ps(10), StreamId(0), 0);
        let wait = receive(&mut builder);
        let second = builder.calc(Span::from_ps(10), StreamId(0), 0);
        builder.requires(second, first);
        builder.requires(second, wait);
        let program = builder.finish().unwrap();
        let records =
            [record(0, 0, 10, ITERATION_START), record(0, 14, 20, ITERATION_START), record(20, 20, 30, wait)];
        let path = walk(&program, Time::ZERO, Time::from_ps(30), |op| records[op as usize]);
        let sum = Breakdown::of(&path);
        assert_eq!((sum.compute, sum.bubble, sum.exposed[Dimension::Pp as usize]), (20, 4, 6));
        assert_eq!(sum.total(), 30);
    }

    /// Ready at 10, the last member comes at 17, all have it at 30.
    #[test]
    fn waiting_for_the_last_member_of_a_collective_is_straggler_and_what_follows_is_exposed() {
        let mut builder = ProgramBuilder::new();
        let first = builder.calc(Span::from_ps(10), StreamId(0), 0);
        let spec = CollectiveSpec::new(CollectiveKind::AllReduce, Bytes::new(1));
        let reduce = builder.collective(CommSlot(0), spec, Dimension::Dp, StreamId(4), 0);
        builder.requires(reduce, first);
        let program = builder.finish().unwrap();
        let records = [record(0, 0, 10, ITERATION_START), record(10, 17, 30, first)];
        let path = walk(&program, Time::ZERO, Time::from_ps(30), |op| records[op as usize]);
        let sum = Breakdown::of(&path);
        assert_eq!((sum.compute, sum.straggler, sum.exposed[Dimension::Dp as usize]), (10, 7, 13));
        assert_eq!((sum.bubble, sum.host, sum.total()), (0, 0, 30));
    }

    #[test]
    fn hidden_communication_is_not_exposed_and_the_rest_of_the_gap_is_host() {
        // A send from 0 to 25 (rendezvous) beside a calc 0-10; nothing else until 30, which a second send ends.
        let mut builder = ProgramBuilder::new();
        builder.calc(Span::from_ps(10), StreamId(0), 0);
        let kind = OpKind::Send {
            peer: Peer::Rank(RankId(1)),
            bytes: Bytes::new(1),
            tag: Tag(0),
            stream: StreamId(4),
            nic: NicId(0),
        };
        let send = builder.push(kind, Dimension::Pp, 0);
        let program = builder.finish().unwrap();
        let records = [record(0, 0, 10, ITERATION_START), record(0, 0, 25, ITERATION_START)];
        let path = walk(&program, Time::ZERO, Time::from_ps(30), |op| records[op as usize]);
        assert_eq!(path.len(), 3);
        assert_eq!((path[1].op, path[1].category), (send, Category::Host));
        assert_eq!((Breakdown::of(&path).compute, Breakdown::of(&path).host), (10, 20));
    }

    #[test]
    fn waiting_for_a_launch_is_host() {
        // Launches 0-10 and 10-25; computations begin with them: 0-4 and 10-20; the pass ends with the second launch.
        let mut builder = ProgramBuilder::new();
        let launches = [
            builder.calc(Span::from_ps(10), HOST_STREAM, 0),
            builder.calc(Span::from_ps(15), HOST_STREAM, 0),
        ];
        let calcs =
            [builder.calc(Span::from_ps(4), StreamId(0), 0), builder.calc(Span::from_ps(10), StreamId(0), 0)];
        builder.requires(launches[1], launches[0]);
        builder.requires(calcs[1], calcs[0]);
        for (calc, launch) in calcs.into_iter().zip(launches) {
            builder.irequires(calc, launch);
        }
        let program = builder.finish().unwrap();
        let records = [
            record(0, 0, 10, ITERATION_START),
            record(10, 10, 25, launches[0]),
            record(0, 0, 4, launches[0]),
            record(10, 10, 20, launches[1]),
        ];
        let path = walk(&program, Time::ZERO, Time::from_ps(25), |op| records[op as usize]);
        assert_eq!((Breakdown::of(&path).compute, Breakdown::of(&path).host), (14, 11));
    }

    #[test]
    fn streams_that_overlap_count_once() {
        let mut builder = ProgramBuilder::new();
        builder.calc(Span::from_ps(10), StreamId(0), 0);
        builder.calc(Span::from_ps(10), StreamId(1), 0);
        let program = builder.finish().unwrap();
        let records = [record(0, 0, 10, ITERATION_START), record(0, 5, 15, ITERATION_START)];
        let mut path = walk(&program, Time::ZERO, Time::from_ps(15), |op| records[op as usize]);
        assert_eq!(Breakdown::of(&path).compute, 15);
        clip(&mut path, Time::from_ps(7));
        assert_eq!(Breakdown::of(&path).total(), 8);
    }
}
