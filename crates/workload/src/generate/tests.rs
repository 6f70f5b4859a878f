//! Programs executed on a machine of the plainest kind, against schedules timed apart and figures worked by hand.

mod launches;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use proptest::prelude::*;
use rustc_hash::FxHashMap;
use windtunnel_kernel::{Bytes, RankId, Span, Time};

use super::*;
use crate::collectives::{CollectiveKind, CollectiveSpec};
use crate::program::OpKind;
use crate::replay::{Replay, ReplayOptions};
use crate::schedules::{ActionKind, Costs, ScheduleName, ScheduleSettings, timed};

/// What communication costs: a collective from its last arrival on, a message from its send on.
struct Prices<'a> {
    collective: &'a dyn Fn(&CollectiveSpec, Dimension) -> u64,
    message: &'a dyn Fn(RankId, RankId) -> u64,
}

const FREE: Prices = Prices { collective: &|_, _| 0, message: &|_, _| 0 };

/// Start and end of every operation of every rank.
struct Run {
    ops: Vec<Vec<(Time, Time)>>,
    makespan: u64,
}

/// Executes one step: computation serialises per stream in order of readiness, messages and collectives overlap freely.
/// Panics if something never runs.
fn execute(workload: &Workload, prices: &Prices) -> Run {
    let ranks = workload.ranks();
    let mut left: Vec<Vec<u32>> =
        (0..ranks).map(|rank| workload.program(RankId(rank as u32)).prerequisites.clone()).collect();
    let mut ops: Vec<Vec<(Time, Time)>> =
        left.iter().map(|ops| vec![(Time::NEVER, Time::NEVER); ops.len()]).collect();
    // (time, end before ready, rank, op, is end)
    let mut events: BinaryHeap<Reverse<(Time, bool, u32, u32)>> = BinaryHeap::new();
    for (rank, left) in left.iter().enumerate() {
        for (op, &count) in left.iter().enumerate() {
            if count == 0 {
                events.push(Reverse((Time::ZERO, true, rank as u32, op as u32)));
            }
        }
    }
    let mut free = vec![[Time::ZERO; 8]; ranks];
    let mut arrived: FxHashMap<(u32, u32), Vec<(u32, u32)>> = FxHashMap::default();
    let mut sent: FxHashMap<(u32, u32, u64), VecDeque<Time>> = FxHashMap::default();
    let mut posted: FxHashMap<(u32, u32, u64), VecDeque<(Time, u32)>> = FxHashMap::default();
    while let Some(Reverse((now, starts, rank, op))) = events.pop() {
        let (id, program) = (RankId(rank), workload.program(RankId(rank)));
        if !starts {
            for &next in program.requires.of(op) {
                let left = &mut left[rank as usize][next as usize];
                *left -= 1;
                if *left == 0 {
                    events.push(Reverse((now, true, rank, next)));
                }
            }
            continue;
        }
        let mut end = |rank: u32, op: u32, start: Time, end: Time| {
            ops[rank as usize][op as usize] = (start, end);
            events.push(Reverse((end, false, rank, op)));
        };
        match program.ops[op as usize].kind {
            OpKind::Calc { duration, stream } => {
                let clock = &mut free[rank as usize][usize::from(stream.0)];
                let start = now.max(*clock);
                *clock = start + duration;
                end(rank, op, start, *clock);
                for &next in program.irequires.of(op) {
                    let left = &mut left[rank as usize][next as usize];
                    *left -= 1;
                    if *left == 0 {
                        events.push(Reverse((start, true, rank, next)));
                    }
                }
            }
            OpKind::Send { peer, tag, .. } => {
                let to = workload.resolve(id, peer);
                let arrival = now + Span::from_ps((prices.message)(id, to));
                end(rank, op, now, now);
                let key = (rank, to.0, tag.0);
                match posted.entry(key).or_default().pop_front() {
                    Some((time, receive)) => end(to.0, receive, time, arrival.max(time)),
                    None => sent.entry(key).or_default().push_back(arrival),
                }
            }
            OpKind::Receive { peer, tag, .. } => {
                let from = workload.resolve(id, peer.unwrap());
                let key = (from.0, rank, tag.unwrap().0);
                match sent.entry(key).or_default().pop_front() {
                    Some(arrival) => end(rank, op, now, arrival.max(now)),
                    None => posted.entry(key).or_default().push_back((now, op)),
                }
            }
            OpKind::Collective { comm, spec, sequence, .. } => {
                let communicator = workload.binding(id, comm).communicator;
                let members = workload.communicators[communicator as usize].ranks.len();
                let waiting = arrived.entry((communicator, sequence)).or_default();
                waiting.push((rank, op));
                if waiting.len() == members {
                    let spec = &program.specs[spec as usize];
                    let dimension = program.ops[op as usize].dimension;
                    for &(member, op) in waiting.iter() {
                        let theirs = workload.program(RankId(member));
                        let OpKind::Collective { spec: other, .. } = theirs.ops[op as usize].kind else {
                            panic!()
                        };
                        assert_eq!(&theirs.specs[other as usize], spec, "members disagree");
                        end(member, op, now, now + Span::from_ps((prices.collective)(spec, dimension)));
                    }
                }
            }
        }
    }
    let mut makespan = Time::ZERO;
    for (rank, ops) in ops.iter().enumerate() {
        for (op, &(_, end)) in ops.iter().enumerate() {
            let kind = workload.program(RankId(rank as u32)).ops[op].kind;
            assert!(end != Time::NEVER, "rank {rank} is stuck at operation {op}: {kind:?}");
            makespan = makespan.max(end);
        }
    }
    Run { ops, makespan: makespan.ps() }
}

fn calc(ps: u64) -> Piece {
    Piece::Calc { duration: Span::from_ps(ps), label: "layer" }
}

fn exchange(axis: Dimension, kind: CollectiveKind, bytes: u64, overlap: Overlap) -> Piece {
    Piece::Collective { axis, kind, bytes: Bytes::new(bytes), routing: None, label: "exchange", overlap }
}

/// A stage of `layers` units: F = I = W = `cost` a layer, 100 B of parameters and 200 B of gradients a layer.
fn stage(layers: u32, cost: u64) -> ChunkWork {
    let forward = (0..layers).flat_map(|unit| [calc(cost), Piece::UnitDone(unit)]).collect();
    let backward = |ps| (0..layers).rev().flat_map(|unit| [calc(ps), Piece::UnitDone(unit)]).collect();
    ChunkWork {
        forward,
        backward: backward(2 * cost),
        backward_input: backward(cost),
        backward_weight: backward(cost),
        parameter_bytes: vec![Bytes::new(100); layers as usize],
        gradient_bytes: vec![Bytes::new(200); layers as usize],
        send_bytes: Bytes::new(64),
        ..ChunkWork::default()
    }
}

fn stages(count: u32, layers: u32, cost: u64) -> Vec<ChunkWork> {
    (0..count).map(|_| stage(layers, cost)).collect()
}

/// Bytes named by the collectives of `kind` in `dimension` and their number, on one rank.
fn named(program: &Program, dimension: Dimension, kind: CollectiveKind) -> (u64, usize) {
    let of = |op: &crate::Operation| match op.kind {
        OpKind::Collective { spec, .. } if op.dimension == dimension => {
            Some(&program.specs[spec as usize]).filter(|spec| spec.kind == kind).map(|spec| spec.bytes.get())
        }
        _ => None,
    };
    (program.ops.iter().filter_map(of).sum(), program.ops.iter().filter_map(of).count())
}

fn sends(program: &Program) -> (u64, usize) {
    let of = |op: &crate::Operation| match op.kind {
        OpKind::Send { bytes, .. } => Some(bytes.get()),
        _ => None,
    };
    (program.ops.iter().filter_map(of).sum(), program.ops.iter().filter_map(of).count())
}

#[test]
fn free_communication_gives_the_makespan_of_the_schedule() {
    for name in ScheduleName::ALL {
        for receive_ahead in [0, 1, 3] {
            let layout = Layout {
                pp: 4,
                microbatches: 8,
                schedule: ScheduleSettings::new(name),
                receive_ahead,
                ..Layout::default()
            };
            let schedule = Schedule::new(&layout.schedule, 4, 8).unwrap();
            let generated = generate(&layout, &stages(schedule.placement.stages(), 1, 10)).unwrap();
            let ten = Costs::new(Span::from_ps(10), Span::from_ps(10), Span::from_ps(10));
            let timed = timed::execute(&schedule, |_| ten, |_, _| Span::ZERO).unwrap().makespan.ps();
            let makespan = execute(&generated.workload, &FREE).makespan;
            if name.overlaps() {
                // Members of a pair start as soon as their own input is there.
                let work = if name == ScheduleName::DualPipe { 240 } else { 480 };
                assert!(makespan <= timed && makespan >= work, "{makespan} {timed}");
            } else {
                assert_eq!(makespan, timed, "{name} {receive_ahead}");
            }
        }
    }
    // Megatron's interleaved example: 9/48 over the ideal.
    let schedule = ScheduleSettings::new(ScheduleName::Interleaved);
    let layout = Layout { pp: 4, microbatches: 8, schedule, ..Layout::default() };
    assert_eq!(execute(&generate(&layout, &stages(8, 1, 1)).unwrap().workload, &FREE).makespan, 57);
}

#[test]
fn messages_take_their_latency_and_hide_behind_other_passes() {
    for (name, run_length) in
        [(ScheduleName::DoraPp, Some(4)), (ScheduleName::DoraPp, Some(8)), (ScheduleName::Zbv, None)]
    {
        let schedule = ScheduleSettings { run_length, ..ScheduleSettings::new(name) };
        let layout = Layout { pp: 4, microbatches: 8, schedule, receive_ahead: 99, ..Layout::default() };
        let generated = generate(&layout, &stages(8, 1, 100)).unwrap();
        let latency = |a: u32, b: u32| if (a < 2) == (b < 2) { 5 } else { 400 };
        let prices = Prices { message: &|a, b| latency(a.0, b.0), ..FREE };
        let hundred = Costs::new(Span::from_ps(100), Span::from_ps(100), Span::from_ps(100));
        let timed =
            timed::execute(&generated.schedule, |_| hundred, |a, b| Span::from_ps(latency(a, b))).unwrap();
        assert_eq!(execute(&generated.workload, &prices).makespan, timed.makespan.ps());
    }
}

#[test]
fn passes_run_in_the_order_of_the_schedule() {
    for name in ScheduleName::ALL {
        let layout = Layout {
            pp: 4,
            dp: 2,
            zero: 3,
            microbatches: 8,
            schedule: ScheduleSettings::new(name),
            ..Layout::default()
        };
        let placed = Schedule::new(&layout.schedule, 4, 8).unwrap().placement.stages();
        let generated = generate(&layout, &stages(placed, 2, 10)).unwrap();
        let prices = Prices { collective: &|_, _| 7, message: &|_, _| 3 };
        let run = execute(&generated.workload, &prices);
        for rank in 0..8u32 {
            let program = generated.workload.program(RankId(rank));
            let pipeline = generated.grid.coordinates(RankId(rank)).pp;
            // The span of each pass, from its computations.
            let mut spans: Vec<(String, Time, Time)> = Vec::new();
            for (op, &(start, end)) in program.ops.iter().zip(&run.ops[rank as usize]) {
                let OpKind::Calc { .. } = op.kind else { continue };
                let label = program.labels[op.label as usize].split(' ').next().unwrap().to_owned();
                match spans.iter_mut().find(|(known, ..)| *known == label) {
                    Some(span) => (span.1, span.2) = (span.1.min(start), span.2.max(end)),
                    None => spans.push((label, start, end)),
                }
            }
            let mut before = Time::ZERO;
            let mut paired = false;
            for action in generated.schedule.actions(pipeline) {
                let (_, start, end) = spans
                    .iter()
                    .find(|(label, ..)| *label == action.to_string())
                    .expect("every pass computes");
                if !paired {
                    assert!(*start >= before, "{name} rank {rank} {action} starts early");
                    before = *end;
                }
                before = before.max(*end);
                paired = action.paired;
            }
        }
    }
}

#[test]
fn buckets_of_ddp_hide_behind_the_backward() {
    // Four layers, F 10 and B 20 each, one micro-batch; a bucket a layer costs `cost` to reduce, larger ones in proportion.
    let layout = Layout { dp: 4, bucket_bytes: Bytes::new(200), ..Layout::default() };
    let generated = generate(&layout, &stages(1, 4, 10)).unwrap();
    let program = &generated.workload.programs[0];
    assert_eq!(named(program, Dimension::Dp, CollectiveKind::AllReduce), (800, 4));
    let run = |layout: &Layout, cost: u64| {
        let collective = move |spec: &CollectiveSpec, _| spec.bytes.get() * cost / 200;
        let prices = Prices { collective: &collective, ..FREE };
        execute(&generate(layout, &stages(1, 4, 10)).unwrap().workload, &prices).makespan
    };
    // Only the last bucket shows: 40 + 80 + 15.
    assert_eq!(run(&layout, 15), 135);
    // At 30 a bucket the reductions are the longer chain from the first bucket on: 40 + 20 + 4 · 30.
    assert_eq!(run(&layout, 30), 180);
    // One bucket for all hides nothing.
    assert_eq!(run(&Layout { bucket_bytes: Bytes::new(1 << 30), ..layout.clone() }, 15), 40 + 80 + 60);
    // With more micro-batches only the last one reduces.
    assert_eq!(run(&Layout { microbatches: 3, ..layout }, 15), 3 * 120 + 15);
}

#[test]
fn gradients_reduced_late_hide_behind_nothing() {
    let layout =
        Layout { dp: 4, bucket_bytes: Bytes::new(200), overlap_gradients: false, ..Layout::default() };
    let collective = |spec: &CollectiveSpec, _| spec.bytes.get() * 15 / 200;
    let prices = Prices { collective: &collective, ..FREE };
    let makespan = |layout: &Layout| {
        let generated = generate(layout, &stages(1, 4, 10)).unwrap();
        assert_eq!(
            named(&generated.workload.programs[0], Dimension::Dp, CollectiveKind::AllReduce),
            (800, 1)
        );
        execute(&generated.workload, &prices).makespan
    };
    assert_eq!(makespan(&layout), 40 + 80 + 60);
    assert_eq!(makespan(&Layout { microbatches: 3, ..layout.clone() }), 3 * 120 + 60);
    // One reduction a chunk of an interleaved pipeline.
    let mut interleaved = Layout { pp: 2, microbatches: 2, ..layout.clone() };
    interleaved.schedule = ScheduleSettings::new(ScheduleName::Interleaved);
    let generated = generate(&interleaved, &stages(4, 4, 10)).unwrap();
    assert_eq!(named(&generated.workload.programs[0], Dimension::Dp, CollectiveKind::AllReduce), (1600, 2));
    let refused = generate(&Layout { zero: 3, ..layout }, &stages(1, 4, 10)).unwrap_err();
    assert!(refused.to_string().starts_with("`overlap_gradients: false` with `zero: 3`"), "{refused}");
}

#[test]
fn zero_1_reduces_then_gathers_before_the_first_forward() {
    let layout = Layout { dp: 4, zero: 1, bucket_bytes: Bytes::new(200), ..Layout::default() };
    let mut work = stages(1, 4, 10);
    work[0].optimiser = Span::from_ps(3);
    let generated = generate(&layout, &work).unwrap();
    let program = &generated.workload.programs[0];
    // Parameters: 4 × 100 B in two buckets; gradients: 4 × 200 B in four.
    assert_eq!(named(program, Dimension::Dp, CollectiveKind::AllGather), (400, 2));
    assert_eq!(named(program, Dimension::Dp, CollectiveKind::ReduceScatter), (800, 4));
    let prices = Prices { collective: &|_, _| 15, ..FREE };
    // Gather 15, forward 40 (the second gather hides), backward 80, last reduction 15, optimiser 3.
    assert_eq!(execute(&generated.workload, &prices).makespan, 15 + 40 + 80 + 15 + 3);
}

#[test]
fn fsdp_prefetches_and_resharding_decides_what_is_gathered() {
    let layout = Layout { dp: 8, zero: 3, microbatches: 2, ..Layout::default() };
    let gathered = |layout: &Layout| {
        let generated = generate(layout, &stages(1, 4, 10)).unwrap();
        let program = &generated.workload.programs[0];
        let gathers = named(program, Dimension::Dp, CollectiveKind::AllGather);
        let scatters = named(program, Dimension::Dp, CollectiveKind::ReduceScatter);
        let prices = Prices { collective: &|_, _| 4, ..FREE };
        (gathers, scatters, execute(&generated.workload, &prices).makespan)
    };
    // Gather before each forward and each backward of each micro-batch; gradients once.
    let (gathers, scatters, makespan) = gathered(&layout);
    assert_eq!((gathers, scatters), ((4 * 2 * 2 * 100, 16), (800, 4)));
    // First gather and last reduction show; 2 × 120 of computation hides the rest.
    assert_eq!(makespan, 4 + 240 + 4);
    // Without prefetch each of the 16 gathers shows; a reduction before a gather shows as well (one communicator).
    let (_, _, makespan) = gathered(&Layout { prefetch: 0, ..layout.clone() });
    assert_eq!(makespan, 240 + 16 * 4 + 4 * 4);
    let (gathers, ..) = gathered(&Layout { reshard: Reshard::Never, ..layout.clone() });
    assert_eq!(gathers, (400, 4));
    let (_, scatters, _) = gathered(&Layout { reduce: GradientReduce::EveryMicrobatch, ..layout.clone() });
    assert_eq!(scatters, (1600, 8));
    // Breadth-first runs gather a chunk once a run: 2 chunks × forward and backward × 4 layers.
    let schedule = ScheduleSettings { run_length: Some(8), ..ScheduleSettings::new(ScheduleName::DoraPp) };
    let piped = Layout { pp: 4, microbatches: 8, schedule, reshard: Reshard::PerRun, ..layout };
    let generated = generate(&piped, &stages(8, 4, 10)).unwrap();
    for program in &generated.workload.programs {
        assert_eq!(named(program, Dimension::Dp, CollectiveKind::AllGather), (2 * 2 * 4 * 100, 16));
    }
    let all = generate(&Layout { reshard: Reshard::PerPass, ..piped }, &stages(8, 4, 10)).unwrap();
    let passes = 2 * 8 * 2 * 4;
    assert_eq!(
        named(&all.workload.programs[0], Dimension::Dp, CollectiveKind::AllGather),
        (passes * 100, 128)
    );
}

#[test]
fn hsdp_sums_shards_across_replicas() {
    let layout = Layout { dp: 8, cp: 2, replicate: 2, zero: 3, ..Layout::default() };
    let generated = generate(&layout, &stages(1, 4, 10)).unwrap();
    let program = &generated.workload.programs[0];
    assert_eq!(named(program, Dimension::Dp, CollectiveKind::ReduceScatter), (800, 4));
    // A replica has 8 ranks (cp 2 × dp 4): slices of 25 B.
    assert_eq!(named(program, Dimension::Dp, CollectiveKind::AllReduce), (100, 4));
    let sizes: Vec<_> = generated.groups.iter().map(|set| (set.role.name(), set.count, set.size)).collect();
    assert_eq!(sizes, [("dp", 2, 8), ("replicate", 8, 2)]);
    execute(&generated.workload, &FREE);
}

#[test]
fn experts_are_reduced_over_the_expert_data_group() {
    let layout = Layout { ep: 4, cp: 2, dp: 3, zero: 1, ..Layout::default() };
    let mut work = stages(1, 2, 10);
    work[0].expert_parameter_bytes = vec![Bytes::ZERO, Bytes::new(1000)];
    work[0].expert_gradient_bytes = vec![Bytes::ZERO, Bytes::new(2000)];
    let generated = generate(&layout, &work).unwrap();
    let sizes: Vec<_> = generated.groups.iter().map(|set| (set.role.name(), set.count, set.size)).collect();
    assert_eq!(sizes, [("dp", 1, 24), ("expert-dp", 4, 6)]);
    let program = &generated.workload.programs[0];
    assert_eq!(named(program, Dimension::Dp, CollectiveKind::ReduceScatter), (2400, 2));
    assert_eq!(named(program, Dimension::Dp, CollectiveKind::AllGather), (1200, 2));
    execute(&generated.workload, &FREE);
}

/// One pass over one stage with tp 2: the time of the given forward pieces.
fn forward_time(pieces: Vec<Piece>, layout: Layout, cost_per_byte: u64) -> u64 {
    let work = ChunkWork { forward: pieces, backward: vec![calc(0)], ..ChunkWork::default() };
    let generated = generate(&Layout { tp: 2, ep: 2, ..layout }, &[work]).unwrap();
    let collective = move |spec: &CollectiveSpec, _| spec.bytes.get() * cost_per_byte;
    execute(&generated.workload, &Prices { collective: &collective, ..FREE }).makespan
}

#[test]
fn overlap_is_what_the_pieces_say() {
    let gather = |overlap| exchange(Dimension::Tp, CollectiveKind::AllGather, 8, overlap);
    let scatter = |overlap| exchange(Dimension::Tp, CollectiveKind::ReduceScatter, 8, overlap);
    let time = |pieces| forward_time(pieces, Layout::default(), 1);
    let none = Overlap::None;
    let (next, previous) = (Overlap::WithNext { chunks: 4 }, Overlap::WithPrevious { chunks: 4 });
    assert_eq!(time(vec![gather(none), calc(12), scatter(none)]), 28);
    // The first chunk of 2 shows, then 4 parts of 3 hide the rest.
    assert_eq!(time(vec![gather(next), calc(12)]), 14);
    assert_eq!(time(vec![calc(12), scatter(previous)]), 14);
    // Both exchanges share a communicator: gather chunks at 2, 4, 6, 8; scatters queue behind them.
    assert_eq!(time(vec![gather(next), calc(12), scatter(previous)]), 16);
    // Shorter computation: the exchange is the chain, and the last part shows.
    assert_eq!(time(vec![gather(next), calc(4)]), 9);
    let slow = Layout { overlap_slowdown: 0.5, ..Layout::default() };
    assert_eq!(forward_time(vec![gather(next), calc(12)], slow, 1), 20);
    let shared = |wait: bool| {
        let send = exchange(Dimension::Ep, CollectiveKind::AllToAll, 20, Overlap::Async(1));
        let mut pieces = vec![calc(5), send, calc(12)];
        pieces.extend(wait.then_some(Piece::Wait(1)));
        pieces.push(calc(3));
        time(pieces)
    };
    // Expert exchange of 20 beside 12 of shared expert, then 3; without the wait the pass ends with the exchange.
    assert_eq!((shared(true), shared(false)), (5 + 20 + 3, 5 + 20));
}

#[test]
fn operations_and_bytes_of_a_tensor_parallel_pipeline() {
    // Two exchanges a pass as Megatron's sequence parallelism has them, forward and backward.
    let work = || {
        let pass = |ps| {
            vec![
                exchange(Dimension::Tp, CollectiveKind::AllGather, 1000, Overlap::None),
                calc(ps),
                calc(ps),
                exchange(Dimension::Tp, CollectiveKind::ReduceScatter, 1000, Overlap::None),
                Piece::UnitDone(0),
            ]
        };
        ChunkWork { forward: pass(1), backward: pass(2), ..stage(1, 1) }
    };
    let layout = Layout {
        tp: 2,
        pp: 4,
        dp: 2,
        zero: 1,
        microbatches: 8,
        schedule: ScheduleSettings::new(ScheduleName::Interleaved),
        clip: Clip::PerAxis,
        tied_embedding: Some(Bytes::new(77)),
        domain: 4,
        ..Layout::default()
    };
    let generated = generate(&layout, &(0..8).map(|_| work()).collect::<Vec<_>>()).unwrap();
    assert_eq!((generated.workload.ranks(), generated.workload.programs.len()), (16, 4));
    for (rank, program) in generated.workload.programs.iter().enumerate() {
        // 2 chunks × 8 micro-batches × (F + B).
        assert_eq!(named(program, Dimension::Tp, CollectiveKind::AllGather), (32_000, 32));
        assert_eq!(named(program, Dimension::Tp, CollectiveKind::ReduceScatter), (32_000, 32));
        let calcs = program.ops.iter().filter(|op| matches!(op.kind, OpKind::Calc { .. })).count();
        assert_eq!(calcs, 32);
        // Stage 0 has no gradient to send, stage 7 no activation.
        let expected = 32 - u64::from(rank == 0 || rank == 3) * 8;
        assert_eq!(sends(program), (64 * expected, expected as usize), "rank {rank}");
        let (tied, _) = named(program, Dimension::Pp, CollectiveKind::AllReduce);
        assert_eq!(tied, 4 + if rank == 0 || rank == 3 { 77 } else { 0 });
        // Buckets: one gather and one reduction a chunk, and the norm.
        assert_eq!(named(program, Dimension::Dp, CollectiveKind::AllGather), (200, 2));
        assert_eq!(named(program, Dimension::Dp, CollectiveKind::ReduceScatter), (400, 2));
        assert_eq!(named(program, Dimension::Dp, CollectiveKind::AllReduce), (4, 1));
    }
    let tp = generated.groups.iter().find(|set| set.role == Role::Tp).unwrap();
    assert_eq!((tp.count, tp.size, tp.domain), (8, 2, 2));
    execute(&generated.workload, &FREE);
}

#[test]
fn two_directions_share_the_gradients_of_a_stage() {
    let layout = Layout {
        pp: 4,
        dp: 2,
        zero: 1,
        microbatches: 8,
        schedule: ScheduleSettings::new(ScheduleName::DualPipe),
        order: [Axis::Dp, Axis::Tp, Axis::Cp, Axis::Ep, Axis::Pp],
        ..Layout::default()
    };
    let generated = generate(&layout, &stages(4, 2, 10)).unwrap();
    let dp: Vec<_> =
        generated.workload.communicators.iter().filter(|comm| comm.name.starts_with("dp")).collect();
    // Stages 0 and 3 live on pipeline ranks 0 and 3 (job ranks 0, 1, 6, 7); each has its own communicator.
    let of = |ranks: [u32; 4]| dp.iter().filter(|comm| comm.ranks == ranks.map(RankId)).count();
    assert_eq!((dp.len(), of([0, 1, 6, 7]), of([2, 3, 4, 5])), (4, 2, 2));
    execute(&generated.workload, &Prices { collective: &|_, _| 5, message: &|_, _| 1 });
}

#[test]
fn exchanges_of_a_pair_hide_behind_the_other_member() {
    let pass = |ps| vec![exchange(Dimension::Tp, CollectiveKind::AllGather, 8, Overlap::None), calc(ps)];
    let halves = |ps: u64| [pass(ps / 2), pass(ps / 2)].concat();
    let work = ChunkWork {
        forward: halves(20),
        backward: halves(40),
        backward_input: halves(20),
        backward_weight: vec![calc(20)],
        ..ChunkWork::default()
    };
    let schedule = ScheduleSettings::new(ScheduleName::DualPipe);
    let layout = Layout { tp: 2, pp: 2, microbatches: 32, schedule, ..Layout::default() };
    let generated = generate(&layout, &[work.clone(), work]).unwrap();
    let prices = Prices { collective: &|_, _| 4, ..FREE };
    let makespan = execute(&generated.workload, &prices).makespan;
    // In line a micro-batch takes 60 of computation and 16 of exchanges; in a pair the exchanges hide.
    let (computation, exchanges) = (32 * 60, 32 * 16);
    assert!(makespan > computation && makespan < computation + exchanges / 3, "{makespan}");
}

#[test]
fn a_split_backward_costs_its_overhead() {
    let schedule = ScheduleSettings { split_overhead: 0.5, ..ScheduleSettings::new(ScheduleName::ZbH1) };
    let layout = Layout { microbatches: 4, schedule, ..Layout::default() };
    let generated = generate(&layout, &stages(1, 1, 10)).unwrap();
    assert_eq!(execute(&generated.workload, &FREE).makespan, 4 * (10 + 15 + 15));
}

#[test]
fn what_does_not_fit_is_refused() {
    let refuse = |layout: Layout, work: &[ChunkWork]| generate(&layout, work).unwrap_err().to_string();
    let base = Layout::default();
    assert_eq!(refuse(Layout { tp: 0, ..base.clone() }, &[]), "`tp` is 0\n\nhint: 1 leaves a dimension out");
    let order = [Axis::Tp, Axis::Tp, Axis::Ep, Axis::Dp, Axis::Pp];
    assert_eq!(
        refuse(Layout { order, ..base.clone() }, &[]),
        "`order: [tp, tp, ep, dp, pp]` does not name `cp`\n\nhint: it names tp, cp, ep, pp and dp once each, innermost first"
    );
    assert!(refuse(Layout { zero: 4, ..base.clone() }, &[]).starts_with("`zero: 4` is not a ZeRO stage"));
    assert_eq!(
        refuse(Layout { dp: 6, zero: 3, replicate: 4, ..base.clone() }, &[]),
        "`replicate: 4` does not divide `dp: 6`\n\nhint: each replica shards over dp / replicate ranks"
    );
    assert!(refuse(Layout { dp: 4, replicate: 2, ..base.clone() }, &[]).contains("which shards nothing"));
    assert_eq!(
        refuse(Layout { dp: 1 << 20, tp: 64, ..base.clone() }, &[]),
        "tp · cp · ep · pp · dp = 67108864 ranks, more than 16777216"
    );
    assert_eq!(refuse(base.clone(), &[]), "0 stages were described, the schedule places 1");
    let zb = Layout { schedule: ScheduleSettings::new(ScheduleName::ZbH1), ..base.clone() };
    let fused = ChunkWork { backward_weight: Vec::new(), ..stage(1, 1) };
    assert_eq!(
        refuse(zb, &[fused]),
        "stage 0 has no pieces for its `backward_weight` pass, which schedule `zb-h1` runs"
    );
    let with = |piece| ChunkWork { forward: vec![piece], ..stage(1, 1) };
    let odd = exchange(Dimension::Pp, CollectiveKind::AllReduce, 1, Overlap::None);
    assert!(
        refuse(base.clone(), &[with(odd)])
            .starts_with("the `forward` pass of stage 0 names a collective over `pp`")
    );
    let sized = exchange(Dimension::Tp, CollectiveKind::AllToAllV, 1, Overlap::None);
    let pair = Layout { tp: 2, ..base.clone() };
    assert!(refuse(pair, &[with(sized)]).contains("all-to-all-v"));
    assert!(
        refuse(Layout { microbatches: 2_000_000, ..base.clone() }, &[stage(1, 1)]).contains("message tag")
    );
    assert_eq!(
        base.microbatches_of(10, 3).unwrap_err().to_string(),
        "a global batch of 10 is not a multiple of micro_batch · ep · dp = 3 · 1\n\nhint: every replica takes the same \
         number of micro-batches"
    );
    assert_eq!(Layout { ep: 2, dp: 4, ..base }.microbatches_of(512, 2), Ok(32));
}

/// Llama-3-405B on 16,384 GPUs: 128 stages of about a layer, TP8 PP16 (8 chunks) DP128, 16 micro-batches.
#[test]
fn a_job_of_16384_ranks_has_16_programs() {
    let mut pass = Vec::new();
    for label in ["attention", "mlp"] {
        pass.push(exchange(Dimension::Tp, CollectiveKind::AllGather, 1 << 28, Overlap::None));
        pass.push(Piece::Calc { duration: Span::from_ps(1_000_000), label });
        pass.push(exchange(Dimension::Tp, CollectiveKind::ReduceScatter, 1 << 28, Overlap::None));
    }
    pass.push(Piece::UnitDone(0));
    let work = ChunkWork { forward: pass.clone(), backward: pass, ..stage(1, 1) };
    let schedule = ScheduleSettings { chunks: Some(8), ..ScheduleSettings::new(ScheduleName::Interleaved) };
    let layout = Layout {
        tp: 8,
        pp: 16,
        dp: 128,
        zero: 2,
        microbatches: 16,
        schedule,
        clip: Clip::World,
        domain: 8,
        ..Layout::default()
    };
    let generated = generate(&layout, &vec![work; 128]).unwrap();
    assert_eq!((generated.workload.ranks(), generated.workload.programs.len()), (16_384, 16));
    for (rank, program) in generated.workload.programs.iter().enumerate() {
        // 256 passes of 6 pieces, a send and a receive each (none at the ends), 8 + 8 buckets, the norm.
        let ends = if rank == 0 || rank == 15 { 32 } else { 0 };
        assert_eq!(program.ops.len(), 256 * 8 - ends + 8 + 8 + 1, "program {rank}");
    }
    let sizes: Vec<_> = generated.groups.iter().map(|set| (set.role.name(), set.size, set.domain)).collect();
    assert_eq!(sizes, [("dp", 128, 1), ("tp", 8, 8), ("pp", 16, 1), ("world", 16_384, 8)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever the schedule, sharding and mapping: everything runs, members agree, and communication only adds time.
    #[test]
    fn everything_runs(
        name in 0..8usize, zero in 0..4u8, degrees in [1..3u32, 1..3u32, 1..3u32], dp in 1..5u32, pp in 1..5u32,
        m in 1..13u32, replicate in 1..3u32, reshard in 0..3usize, every in any::<bool>(), clip in 0..3usize,
        prefetch in 0..4u32, bucket in 1..700u64, rotate in 0..5usize, tied in any::<bool>(),
    ) {
        let mut order = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp];
        order.rotate_left(rotate);
        let layout = Layout {
            tp: degrees[0], cp: degrees[1], ep: degrees[2], pp, dp: dp * replicate,
            replicate: if zero == 0 { 1 } else { replicate }, zero, order,
            schedule: ScheduleSettings::new(ScheduleName::ALL[name]), microbatches: m,
            bucket_bytes: Bytes::new(bucket), prefetch,
            reshard: [Reshard::Never, Reshard::PerRun, Reshard::PerPass][reshard],
            reduce: if every { GradientReduce::EveryMicrobatch } else { GradientReduce::LastMicrobatch },
            clip: [Clip::Off, Clip::PerAxis, Clip::World][clip],
            tied_embedding: tied.then_some(Bytes::new(5)),
            domain: 4,
            ..Layout::default()
        };
        let Ok(schedule) = Schedule::new(&layout.schedule, pp, m) else { return Ok(()) };
        let mut work = stages(schedule.placement.stages(), 3, 10);
        for stage in &mut work {
            stage.expert_gradient_bytes = vec![Bytes::new(30), Bytes::ZERO, Bytes::new(50)];
            stage.expert_parameter_bytes = vec![Bytes::new(20), Bytes::ZERO, Bytes::new(40)];
            let gather = exchange(Dimension::Tp, CollectiveKind::AllGather, 9, Overlap::WithNext { chunks: 2 });
            let issue = exchange(Dimension::Ep, CollectiveKind::AllToAll, 9, Overlap::Async(0));
            stage.forward.splice(0..0, [issue, gather]);
            stage.backward.insert(0, exchange(Dimension::Cp, CollectiveKind::AllGather, 9, Overlap::None));
        }
        let generated = generate(&layout, &work).unwrap();
        let prices = Prices { collective: &|_, _| 2, message: &|_, _| 1 };
        let costly = execute(&generated.workload, &prices).makespan;
        let passes = schedule.actions(0).iter().map(|action| match action.kind {
            ActionKind::Backward => 2, _ => 1,
        }).sum::<u64>();
        prop_assert!(costly >= passes * 30);
        let replay = Replay::new(std::sync::Arc::new(generated.workload), &ReplayOptions::default());
        prop_assert!(replay.is_ok(), "{:?}", replay.err());
    }
}
