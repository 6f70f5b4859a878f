//! Cost of a replay alone: `cargo bench -p windtunnel-workload --bench replay`.
//!
//! The machine is null: it ends every request as soon as it is asked, in the order of asking. What remains is the
//! replay's own work and memory traffic.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the wall clock")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use windtunnel_kernel::{Bytes, RankId, Span, StreamId, Tag, Time};
use windtunnel_workload::collectives::{Algorithm, CollectiveKind, CollectiveSpec, Form, Plan, Round};
use windtunnel_workload::machine::{Join, Machine, Meet, Outgoing, Token};
use windtunnel_workload::program::{
    Binding, CommSlot, Communicator, Dimension, Program, ProgramBuilder, Workload,
};
use windtunnel_workload::replay::{Replay, ReplayOptions};

/// Ends everything at once.
#[derive(Default)]
struct Null {
    queue: VecDeque<(Time, RankId, Token)>,
}

impl Machine for Null {
    fn calc(&mut self, ready: Time, rank: RankId, token: Token, _: StreamId, duration: Span) {
        self.queue.push_back((ready + duration, rank, token));
    }
    fn send(&mut self, ready: Time, rank: RankId, token: Token, _: Outgoing) {
        self.queue.push_back((ready + Span::from_ps(1), rank, token));
    }
    fn post_receive(
        &mut self,
        ready: Time,
        rank: RankId,
        token: Token,
        _: StreamId,
        _: Option<RankId>,
        _: Option<Tag>,
    ) {
        self.queue.push_back((ready + Span::from_ps(1), rank, token));
    }
    fn join(&mut self, ready: Time, rank: RankId, token: Token, _: Join) {
        self.queue.push_back((ready + Span::from_ps(1), rank, token));
    }
    fn meet(&mut self, ready: Time, rank: RankId, token: Token, _: Meet) {
        self.queue.push_back((ready + Span::from_ps(1), rank, token));
    }
}

/// A chain on one stream with a side branch every fourth operation, as a layer's computation and communication make it.
fn chain(length: u32, communicates: bool) -> Program {
    let mut builder = ProgramBuilder::new();
    let spec = CollectiveSpec {
        algorithm: Algorithm::Ring,
        form: Form::Coupled,
        ..CollectiveSpec::new(CollectiveKind::AllReduce, Bytes::new(1 << 20))
    };
    let (mut last, mut side) = (None, None);
    for number in 0..length {
        let op = if communicates && number % 4 == 3 {
            builder.collective(CommSlot(0), spec.clone(), Dimension::Tp, StreamId(1), 0)
        } else {
            builder.calc(Span::from_ps(1_000 + u64::from(number)), StreamId(0), 0)
        };
        if let Some(last) = last {
            builder.requires(op, last);
        }
        if number % 4 == 0 {
            if let Some(side) = side {
                builder.requires(op, side);
            }
            side = last;
        }
        last = Some(op);
    }
    builder.finish().expect("a chain has no cycle")
}

fn replay_chains(name: &str, ranks: u32, length: u32, communicates: bool, iterations: u32) {
    let mut workload =
        Workload { programs: (0..16).map(|_| chain(length, communicates)).collect(), ..Workload::default() };
    for rank in 0..ranks {
        let binding = Binding { communicator: rank / 8, index: rank % 8 };
        workload.add_rank(rank / 8 % 16, &[binding]);
    }
    for first in (0..ranks).step_by(8) {
        let members = (first..first + 8).map(RankId).collect();
        workload.communicators.push(Communicator { name: format!("tp[{}]", first / 8), ranks: members });
    }
    let operations = workload.operations() * u64::from(iterations);
    let start = Instant::now();
    let mut replay = Replay::new(Arc::new(workload), &ReplayOptions::default()).expect("valid");
    let prepared = start.elapsed();
    let mut machine = Null::default();
    let start = Instant::now();
    for _ in 0..iterations {
        for rank in 0..ranks {
            replay.begin(RankId(rank), replay.iteration_finish(RankId(rank)), &mut machine);
        }
        while let Some((at, rank, token)) = machine.queue.pop_front() {
            replay.finished(rank, token, at, at, &mut machine);
        }
        assert_eq!(replay.running(), 0);
    }
    let took = start.elapsed().as_secs_f64();
    println!(
        "{name}: {operations} operations in {took:.2} s, {:.1} ns each (prepared in {:.3} s)",
        took * 1e9 / operations as f64,
        prepared.as_secs_f64()
    );
}

/// One collective by steps, every message ended in the order of asking.
fn replay_steps(name: &str, spec: CollectiveSpec, n: u32) {
    let mut builder = ProgramBuilder::new();
    builder.collective(CommSlot(0), spec, Dimension::Dp, StreamId(0), 0);
    let mut workload =
        Workload { programs: vec![builder.finish().expect("one operation")], ..Workload::default() };
    for index in 0..n {
        workload.add_rank(0, &[Binding { communicator: 0, index }]);
    }
    workload
        .communicators
        .push(Communicator { name: "world".to_owned(), ranks: (0..n).map(RankId).collect() });
    let mut replay = Replay::new(Arc::new(workload), &ReplayOptions::default()).expect("valid");
    let mut machine = Null::default();
    let start = Instant::now();
    for rank in 0..n {
        replay.begin(RankId(rank), Time::ZERO, &mut machine);
    }
    let mut messages = 0u64;
    while let Some((at, rank, token)) = machine.queue.pop_front() {
        messages += 1;
        replay.finished(rank, token, at, at, &mut machine);
    }
    assert_eq!(replay.running(), 0);
    let took = start.elapsed().as_secs_f64();
    println!(
        "{name}: {messages} sends and receives in {took:.2} s, {:.1} ns each",
        took * 1e9 / messages as f64
    );
}

fn plan_rounds(name: &str, spec: &CollectiveSpec, n: u32) {
    let plan = Plan::new(spec, n).expect("valid");
    let mut out = Round::new();
    let (mut rounds, mut bytes) = (0u64, 0u64);
    let start = Instant::now();
    for index in (0..n).step_by(64) {
        for lane in 0..plan.lanes() {
            for round in 0..plan.rounds(lane) {
                plan.round(index, lane, round, &mut out);
                rounds += 1;
                bytes += out.sends.iter().map(|&(_, bytes)| bytes).sum::<u64>();
            }
        }
    }
    let took = start.elapsed().as_secs_f64();
    println!("{name}: {:.1} ns a round ({rounds} rounds, {bytes} B)", took * 1e9 / rounds as f64);
}

fn main() {
    let spec = |kind, algorithm, bytes| CollectiveSpec {
        algorithm,
        form: Form::Steps,
        ..CollectiveSpec::new(kind, Bytes::new(bytes))
    };
    replay_chains("computations, 16,384 ranks x 2,500", 16_384, 2_500, false, 1);
    replay_chains("a quarter coupled collectives", 16_384, 2_500, true, 1);
    replay_chains("8 iterations of 1,024 ranks x 2,500", 1_024, 2_500, true, 8);
    let direct = spec(CollectiveKind::AllToAll, Algorithm::Direct, 1 << 30);
    let ring = spec(CollectiveKind::AllReduce, Algorithm::Ring, 1 << 30);
    let tree = spec(CollectiveKind::AllReduce, Algorithm::DoubleBinaryTree, 1 << 30);
    replay_steps("direct all-to-all by steps, 2,048 ranks", direct.clone(), 2_048);
    replay_steps("ring all-reduce by steps, 1,024 ranks", ring.clone(), 1_024);
    replay_steps("double binary tree by steps, 1,024 ranks", tree.clone(), 1_024);
    plan_rounds("plan: direct all-to-all of 16,384", &direct, 16_384);
    plan_rounds("plan: ring all-reduce of 16,384", &ring, 16_384);
    plan_rounds("plan: double binary tree of 16,384", &tree, 16_384);
}
