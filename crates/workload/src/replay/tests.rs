//! Replays over an ideal machine: every message takes latency + bytes × rate whatever else is under way, so the closed
//! forms of the literature hold to the picosecond.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use windtunnel_kernel::{Bytes, NicId, Span, StreamId};

use super::*;
use crate::collectives::{Algorithm, CollectiveKind, CollectiveSpec, Form};
use crate::machine::Meet;
use crate::program::{Binding, Communicator, Dimension, ProgramBuilder};

const LATENCY: u64 = 1_000_000;
const PER_BYTE: u64 = 20;
const STREAM: StreamId = StreamId(0);
const SLOT: CommSlot = CommSlot(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Notice {
    at: Time,
    number: u64,
    rank: RankId,
    token: Token,
    /// `None`: it started.
    remote: Option<Time>,
}

#[derive(Clone, Copy)]
struct Posted {
    rank: RankId,
    token: Token,
    ready: Time,
    source: Option<RankId>,
    tag: Option<Tag>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    from: RankId,
    to: RankId,
    token: Token,
    ready: Time,
    bytes: u64,
    tag: Tag,
    entropy: u32,
}

/// No contention, no overhead; with `rendezvous` a send ends only with its receive.
#[derive(Default)]
struct Ideal {
    queue: BinaryHeap<Reverse<Notice>>,
    count: u64,
    posted: VecDeque<Posted>,
    unexpected: VecDeque<Sent>,
    rendezvous: bool,
    /// A rank whose messages get lost.
    mute: Option<RankId>,
    joined: Vec<(Join, RankId, Token, Time)>,
    met: Vec<(Meet, RankId, Token, Time)>,
    /// Everything asked, in order.
    log: Vec<(RankId, Token)>,
    sent: Vec<Sent>,
}

impl Ideal {
    fn tell(&mut self, at: Time, rank: RankId, token: Token, remote: Option<Time>) {
        self.queue.push(Reverse(Notice { at, number: self.count, rank, token, remote }));
        self.count += 1;
    }

    fn deliver(&mut self, message: Sent, receive: Posted) {
        let wire = Span::from_ps(message.bytes * PER_BYTE);
        let start = if self.rendezvous { message.ready.max(receive.ready) } else { message.ready };
        let arrival = start + Span::from_ps(LATENCY) + wire;
        self.tell(arrival.max(receive.ready), receive.rank, receive.token, Some(message.ready));
        if self.rendezvous {
            self.tell(start + wire, message.from, message.token, Some(start + wire));
        }
    }
}

impl Machine for Ideal {
    fn calc(&mut self, ready: Time, rank: RankId, token: Token, _: StreamId, duration: Span) {
        self.log.push((rank, token));
        self.tell(ready, rank, token, None);
        self.tell(ready + duration, rank, token, Some(ready + duration));
    }

    fn send(&mut self, ready: Time, rank: RankId, token: Token, message: Outgoing) {
        self.log.push((rank, token));
        self.tell(ready, rank, token, None);
        let Outgoing { to, bytes, tag, entropy, .. } = message;
        let sent = Sent { from: rank, to, token, ready, bytes: bytes.get(), tag, entropy };
        self.sent.push(sent);
        if !self.rendezvous {
            let end = ready + Span::from_ps(bytes.get() * PER_BYTE);
            self.tell(end, rank, token, Some(end));
        }
        if self.mute == Some(rank) {
            return;
        }
        let fits = |post: &Posted| {
            post.rank == to
                && post.source.is_none_or(|source| source == rank)
                && post.tag.is_none_or(|wanted| wanted == tag)
        };
        match self.posted.iter().position(fits) {
            Some(at) => {
                let post = self.posted.remove(at).unwrap();
                self.deliver(sent, post);
            }
            None => self.unexpected.push_back(sent),
        }
    }

    fn post_receive(
        &mut self,
        ready: Time,
        rank: RankId,
        token: Token,
        _: StreamId,
        source: Option<RankId>,
        tag: Option<Tag>,
    ) {
        self.log.push((rank, token));
        self.tell(ready, rank, token, None);
        let post = Posted { rank, token, ready, source, tag };
        let fits = |sent: &Sent| {
            sent.to == rank
                && source.is_none_or(|source| source == sent.from)
                && tag.is_none_or(|tag| tag == sent.tag)
        };
        match self.unexpected.iter().position(fits) {
            Some(at) => {
                let sent = self.unexpected.remove(at).unwrap();
                self.deliver(sent, post);
            }
            None => self.posted.push_back(post),
        }
    }

    fn join(&mut self, ready: Time, rank: RankId, token: Token, join: Join) {
        self.log.push((rank, token));
        self.joined.push((join, rank, token, ready));
    }

    /// Ends steps × latency and its bytes after the last member has come.
    fn meet(&mut self, ready: Time, rank: RankId, token: Token, meet: Meet) {
        self.log.push((rank, token));
        self.met.push((meet, rank, token, ready));
        let same = |entry: &(Meet, RankId, Token, Time)| entry.0 == meet;
        if self.met.iter().filter(|entry| same(entry)).count() == meet.meeting.count as usize {
            let members: Vec<_> = self.met.extract_if(.., |entry| same(entry)).collect();
            let start = members.iter().map(|&(.., ready)| ready).max().unwrap();
            let time = Span::from_ps(u64::from(meet.meeting.steps) * LATENCY + meet.meeting.bytes * PER_BYTE);
            for (_, rank, token, _) in members {
                self.tell(start + time, rank, token, Some(start));
            }
        }
    }
}

/// Runs what is under way until the machine runs dry; coupled groups take steps × latency + bytes × rate.
fn drain(replay: &mut Replay, machine: &mut Ideal) {
    loop {
        if let Some(&(join, ..)) = machine.joined.first() {
            let same =
                |entry: &Join| (entry.communicator, entry.sequence) == (join.communicator, join.sequence);
            let plan = replay.plan(&join).clone();
            let group: Vec<_> = machine.joined.iter().filter(|(entry, ..)| same(entry)).copied().collect();
            if group.len() == plan.members() as usize {
                machine.joined.retain(|(entry, ..)| !same(entry));
                let shape = plan.coupled().unwrap();
                let start = group.iter().map(|&(.., ready)| ready).max().unwrap();
                let time = Span::from_ps(u64::from(shape.steps) * LATENCY + shape.bytes * PER_BYTE);
                for (_, rank, token, _) in group {
                    machine.tell(start + time, rank, token, Some(start));
                }
            }
        }
        let Some(Reverse(notice)) = machine.queue.pop() else { return };
        match notice.remote {
            None => replay.started(notice.rank, notice.token, notice.at, machine),
            Some(remote) => {
                replay.finished(notice.rank, notice.token, notice.at, remote, machine);
            }
        }
    }
}

/// `n` ranks of one program in one communicator.
fn group(program: Program, n: u32) -> Workload {
    let mut workload = Workload { programs: vec![program], ..Workload::default() };
    for index in 0..n {
        workload.add_rank(0, &[Binding { communicator: 0, index }]);
    }
    workload
        .communicators
        .push(Communicator { name: "world".to_owned(), ranks: (0..n).map(RankId).collect() });
    workload
}

fn steps(kind: CollectiveKind, algorithm: Algorithm, bytes: u64) -> CollectiveSpec {
    CollectiveSpec { algorithm, form: Form::Steps, ..CollectiveSpec::new(kind, Bytes::new(bytes)) }
}

fn one_collective(spec: CollectiveSpec) -> Program {
    let mut builder = ProgramBuilder::new();
    builder.collective(SLOT, spec, Dimension::Dp, STREAM, 0);
    builder.finish().unwrap()
}

fn replay(workload: Workload) -> Replay {
    Replay::new(Arc::new(workload), &ReplayOptions::default()).unwrap()
}

/// Time of a collective in which all ranks start at 0.
fn time_of(spec: CollectiveSpec, n: u32) -> Vec<u64> {
    let mut replay = replay(group(one_collective(spec), n));
    let mut machine = Ideal::default();
    for rank in 0..n {
        replay.begin(RankId(rank), Time::ZERO, &mut machine);
    }
    drain(&mut replay, &mut machine);
    assert_eq!(replay.stuck(), []);
    assert!(machine.posted.is_empty() && machine.unexpected.is_empty());
    (0..n).map(|rank| replay.record(RankId(rank), 0).finish.ps()).collect()
}

#[test]
fn collectives_take_their_closed_forms_on_an_ideal_fabric() {
    use {Algorithm as A, CollectiveKind as K};
    // α + β·b for a message of b bytes.
    let message = |bytes: u64| LATENCY + bytes * PER_BYTE;
    for n in [2u32, 3, 4, 5, 8, 16, 33] {
        let wide = u64::from(n);
        let block = 3_000;
        let bytes = block * wide;
        let all = |spec, expected: u64| assert_eq!(time_of(spec, n), vec![expected; n as usize], "n = {n}");
        let last =
            |spec, expected: u64| assert_eq!(time_of(spec, n).into_iter().max(), Some(expected), "n = {n}");
        all(steps(K::AllReduce, A::Ring, bytes), 2 * (wide - 1) * message(block));
        all(steps(K::AllGather, A::Ring, bytes), (wide - 1) * message(block));
        all(steps(K::ReduceScatter, A::Ring, bytes), (wide - 1) * message(block));
        all(steps(K::AllToAll, A::Pairwise, bytes), (wide - 1) * message(block));
        for outstanding in [1, 2, 64] {
            let spec = CollectiveSpec { outstanding, ..steps(K::AllToAll, A::Direct, bytes) };
            all(spec, (wide - 1).div_ceil(u64::from(outstanding)) * message(block));
        }
        let levels = u64::from(n.next_power_of_two().ilog2());
        if n.is_power_of_two() {
            last(steps(K::Broadcast { root: 1 }, A::Binomial, bytes), levels * message(bytes));
            last(steps(K::Reduce { root: 1 }, A::Binomial, bytes), levels * message(bytes));
        }
        last(steps(K::Barrier, A::Auto, 0), levels * message(1));
        // Σ over rounds: ⌈log2 n⌉ α + (n − 1)/n · β · bytes.
        let gather = levels * LATENCY + (wide - 1) * block * PER_BYTE;
        all(steps(K::AllGather, A::Bruck, bytes), gather);
        last(steps(K::AllGather, A::Pat, bytes), gather);
        // Pipelines of C chunks over h hops: h α + (C + h − 1) β for a chunk, whose latencies overlap.
        let (chunk, half) = ((512 << 10) * PER_BYTE, 4 * (512 << 10));
        let pipeline = |hops: u64| hops * LATENCY + (4 + hops - 1) * chunk;
        for root in [0, n - 1] {
            last(steps(K::Broadcast { root }, A::Ring, half), pipeline(wide - 1));
            last(steps(K::Reduce { root }, A::Ring, half), pipeline(wide - 1));
            last(steps(K::Broadcast { root }, A::DoubleBinaryTree, 2 * half), pipeline(levels));
            last(steps(K::Reduce { root }, A::DoubleBinaryTree, 2 * half), pipeline(levels));
        }
        // Up and down both trees, all chunks in flight.
        last(steps(K::AllReduce, A::DoubleBinaryTree, 2 * half), 2 * levels * (LATENCY + chunk));
        // Rabenseifner: 2 (log2 p α + (p − 1)/p β bytes), and when folded two halves before and the whole after.
        let (core, bytes) = (1 << n.ilog2(), 64_000);
        let folded = if n.is_power_of_two() { 0 } else { 2 * message(bytes / 2) + message(bytes) };
        let halving = 2 * (u64::from(n.ilog2()) * LATENCY + (core - 1) * (bytes / core) * PER_BYTE);
        last(steps(K::AllReduce, A::Recursive, bytes), halving + folded);
    }
    let spec = CollectiveSpec { domain: 4, ..steps(K::AllReduce, A::Hierarchical, 16_000_000) };
    // 16 ranks in 4 domains: 3 + 3 rounds of 4 MB inside, a ring of 1 MB blocks between.
    assert_eq!(time_of(spec, 16), vec![6 * message(4_000_000) + 6 * message(1_000_000); 16]);
    assert_eq!(time_of(steps(K::AllReduce, A::Ring, 5), 1), [0]);
    assert_eq!(time_of(steps(K::AllReduce, A::Ring, 0), 4), [0; 4]);
}

#[test]
fn coupled_and_step_forms_agree_on_an_ideal_fabric() {
    use {Algorithm as A, CollectiveKind as K};
    for (kind, algorithm, domain) in [
        (K::AllReduce, A::Ring, 1),
        (K::AllGather, A::Ring, 1),
        (K::Broadcast { root: 2 }, A::Ring, 1),
        (K::Reduce { root: 2 }, A::Ring, 1),
        (K::AllReduce, A::Hierarchical, 3),
        (K::AllReduce, A::Hierarchical, 2),
        (K::AllGather, A::Hierarchical, 2),
        (K::ReduceScatter, A::Hierarchical, 2),
    ] {
        let n = if domain == 2 { 6 } else { 3 };
        let spec = CollectiveSpec { domain, ..steps(kind, algorithm, 96 << 20) };
        let by_steps = time_of(spec.clone(), n).into_iter().max().unwrap();
        let coupled = time_of(CollectiveSpec { form: Form::Coupled, ..spec }, n);
        assert!(
            coupled.iter().all(|&time| time.abs_diff(by_steps) * 100 <= by_steps),
            "{coupled:?} {by_steps}"
        );
    }
}

#[test]
fn a_late_rank_is_booked_as_waiting_for_it() {
    for form in [Form::Steps, Form::Coupled] {
        let mut builder = ProgramBuilder::new();
        let spec = CollectiveSpec { form, ..steps(CollectiveKind::AllReduce, Algorithm::Ring, 4_000) };
        builder.collective(SLOT, spec, Dimension::Dp, STREAM, 0);
        let mut replay = replay(group(builder.finish().unwrap(), 4));
        let mut machine = Ideal::default();
        for (rank, at) in [0, 0, 7_000_000, 0].into_iter().enumerate() {
            replay.begin(RankId(rank as u32), Time::from_ps(at), &mut machine);
        }
        drain(&mut replay, &mut machine);
        let step = LATENCY + 1_000 * PER_BYTE;
        let mut last = Time::ZERO;
        for rank in 0..4 {
            let record = replay.record(RankId(rank), 0);
            let waited = record.remote.since(record.ready).ps();
            if rank == 2 {
                assert!(waited < 4 * step, "{form:?} {waited}");
            } else {
                assert_eq!(waited, 7_000_000, "rank {rank} {form:?}");
            }
            last = last.max(record.finish);
        }
        // The block that the late rank starts takes three hops to be summed and three to be spread.
        assert_eq!(last, Time::from_ps(7_000_000 + 6 * step), "{form:?}");
    }
}

#[test]
fn dependencies_release_at_the_latest_end_or_start() {
    let mut builder = ProgramBuilder::new();
    let long = builder.calc(Span::from_ps(500), STREAM, 0);
    let short = builder.calc(Span::from_ps(200), STREAM, 0);
    let after_both = builder.calc(Span::from_ps(10), STREAM, 0);
    let with_long = builder.calc(Span::from_ps(30), STREAM, 0);
    let with_last = builder.calc(Span::from_ps(1), STREAM, 0);
    builder.requires(after_both, long);
    builder.requires(after_both, short);
    builder.irequires(with_long, long);
    builder.irequires(with_last, after_both);
    builder.requires(with_last, with_long);
    let mut replay = replay(Workload::from_programs(vec![builder.finish().unwrap()]));
    let mut machine = Ideal::default();
    assert!(!replay.begin(RankId(0), Time::from_ps(1_000), &mut machine));
    drain(&mut replay, &mut machine);
    let record = |op| {
        let record = replay.record(RankId(0), op);
        (record.ready.ps(), record.finish.ps(), record.cause)
    };
    assert_eq!(record(long), (1_000, 1_500, ITERATION_START));
    assert_eq!(record(after_both), (1_500, 1_510, long));
    assert_eq!(record(with_long), (1_000, 1_030, long));
    assert_eq!(record(with_last), (1_500, 1_501, after_both));
    assert_eq!(
        (replay.iteration_start(RankId(0)).ps(), replay.iteration_finish(RankId(0)).ps()),
        (1_000, 1_510)
    );
    assert_eq!((replay.iterations_done(RankId(0)), replay.running()), (1, 0));
}

#[test]
fn operations_released_together_are_submitted_sends_first() {
    let mut builder = ProgramBuilder::new();
    let calc = |builder: &mut ProgramBuilder| builder.calc(Span::from_ps(1), STREAM, 0);
    let send = |builder: &mut ProgramBuilder| {
        let kind = OpKind::Send {
            peer: Peer::Rank(RankId(0)),
            bytes: Bytes::new(1),
            tag: Tag(1),
            stream: STREAM,
            nic: NicId(0),
        };
        builder.push(kind, Dimension::Other, 0)
    };
    let receive = |builder: &mut ProgramBuilder| {
        let kind = OpKind::Receive { peer: None, tag: None, stream: STREAM };
        builder.push(kind, Dimension::Other, 0)
    };
    // At the start and after operation 0, in the order calc, receive, send, send.
    let roots = [calc(&mut builder), receive(&mut builder), send(&mut builder), send(&mut builder)];
    let later = [calc(&mut builder), receive(&mut builder), send(&mut builder), calc(&mut builder)];
    for op in later.into_iter().rev() {
        builder.requires(op, roots[0]);
    }
    let mut replay = replay(Workload::from_programs(vec![builder.finish().unwrap()]));
    let mut machine = Ideal::default();
    replay.begin(RankId(0), Time::ZERO, &mut machine);
    drain(&mut replay, &mut machine);
    let order: Vec<u32> = machine.log.iter().map(|&(_, token)| token.0).collect();
    assert_eq!(order, [2, 3, 1, 0, 6, 5, 4, 7]);
}

/// A step: compute, all-reduce, and a message round the ring of ranks.
fn training_step(form: Form) -> Program {
    let mut builder = ProgramBuilder::new();
    let compute = builder.calc(Span::from_ps(5_000_000), STREAM, 0);
    let spec = CollectiveSpec { form, ..steps(CollectiveKind::AllReduce, Algorithm::Ring, 6_000) };
    let reduce = builder.collective(SLOT, spec.clone(), Dimension::Dp, STREAM, 0);
    let again = builder.collective(SLOT, spec, Dimension::Dp, STREAM, 0);
    builder.requires(reduce, compute);
    builder.requires(again, compute);
    builder.finish().unwrap()
}

#[test]
fn iterations_repeat_and_ranks_may_run_ahead() {
    for form in [Form::Steps, Form::Coupled] {
        let mut replay = replay(group(training_step(form), 3));
        let mut machine = Ideal::default();
        let mut starts = [0; 3];
        let iteration = 5_000_000 + 4 * (LATENCY + 2_000 * PER_BYTE);
        for round in 0..5u64 {
            // Another rank begins first each time, and at another instant.
            for turn in 0..3 {
                let rank = (turn + round as usize) % 3;
                replay.begin(RankId(rank as u32), Time::from_ps(starts[rank]), &mut machine);
            }
            drain(&mut replay, &mut machine);
            for (rank, start) in starts.iter_mut().enumerate() {
                let rank = RankId(rank as u32);
                assert_eq!(replay.iterations_done(rank), round as u32 + 1);
                *start = replay.iteration_finish(rank).ps();
                assert_eq!(*start, iteration * (round + 1));
            }
        }
        assert_eq!(replay.stuck(), []);
        // Windows are reused: two collectives of three ranks at a time.
        assert!(replay.collectives.slots.len() <= 6);
    }
}

/// Switches sum what all have sent: the last member's arrival, the latency and one vector; in domains of two, the half of it
/// between rings of two rounds.
#[test]
fn members_of_a_reduction_by_switches_wait_for_the_last() {
    for (domain, expected) in [(1, LATENCY + 6_000 * PER_BYTE), (2, 3 * (LATENCY + 3_000 * PER_BYTE))] {
        let spec = CollectiveSpec { domain, ..steps(CollectiveKind::AllReduce, Algorithm::InNetwork, 6_000) };
        let mut replay = replay(group(one_collective(spec), 4));
        let mut machine = Ideal::default();
        for iteration in 1..=2u64 {
            let late = 9_000_000 * iteration;
            for rank in 0..4 {
                let at = if rank < 2 { late } else { replay.iteration_finish(RankId(rank)).ps() };
                replay.begin(RankId(rank), Time::from_ps(at), &mut machine);
            }
            drain(&mut replay, &mut machine);
            for rank in (0..4).map(RankId) {
                assert_eq!(replay.iteration_finish(rank), Time::from_ps(late + expected), "domain {domain}");
            }
            // A member that came in time waited for the late one.
            let OpRecord { ready, remote, .. } = replay.record(RankId(3), 0);
            assert!(domain == 2 || remote == Time::from_ps(late), "{ready} to {remote}");
        }
    }
}

#[test]
fn tags_of_concurrent_collectives_never_meet() {
    let mut replay = replay(group(training_step(Form::Steps), 3));
    let mut machine = Ideal::default();
    for _ in 0..2 {
        for rank in 0..3 {
            let at = replay.iteration_finish(RankId(rank));
            replay.begin(RankId(rank), at, &mut machine);
        }
        drain(&mut replay, &mut machine);
    }
    // 2 iterations × 2 collectives × 4 rounds × 3 ranks, each (sender, tag) once, all with the communicator's entropy.
    let mut keys: Vec<_> = machine.sent.iter().map(|sent| (sent.from, sent.tag)).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((machine.sent.len(), keys.len()), (48, 48));
    assert!(machine.sent.iter().all(|sent| sent.entropy == machine.sent[0].entropy && sent.tag.0 >> 63 == 1));
}

#[test]
fn a_joined_collective_can_be_sent_back_to_run_by_steps() {
    let spec = CollectiveSpec::new(CollectiveKind::AllReduce, Bytes::new(4_000));
    let spec = CollectiveSpec { algorithm: Algorithm::Ring, ..spec };
    let mut replay = replay(group(one_collective(spec), 4));
    let mut machine = Ideal::default();
    for rank in 0..4 {
        replay.begin(RankId(rank), Time::from_ps(u64::from(rank)), &mut machine);
    }
    for (_, rank, token, _) in std::mem::take(&mut machine.joined) {
        replay.run_by_steps(rank, token, Time::from_ps(3), &mut machine);
    }
    drain(&mut replay, &mut machine);
    for rank in 0..4 {
        let record = replay.record(RankId(rank), 0);
        assert_eq!(record.finish, Time::from_ps(3 + 6 * (LATENCY + 1_000 * PER_BYTE)));
    }
}

#[test]
fn coupling_can_be_confined() {
    let joins = |coupling, domain| {
        let spec = CollectiveSpec::new(CollectiveKind::AllReduce, Bytes::new(4_000));
        let spec = CollectiveSpec { algorithm: Algorithm::Ring, domain, ..spec };
        let options = ReplayOptions { coupling, ..ReplayOptions::default() };
        let mut replay = Replay::new(Arc::new(group(one_collective(spec), 4)), &options).unwrap();
        let mut machine = Ideal::default();
        replay.begin(RankId(0), Time::ZERO, &mut machine);
        machine.joined.len()
    };
    assert_eq!(joins(Coupling::Anywhere, 1), 1);
    assert_eq!(joins(Coupling::InsideDomain, 1), 0);
    assert_eq!(joins(Coupling::InsideDomain, 4), 1);
    assert_eq!(joins(Coupling::Never, 4), 0);
}

#[test]
fn forks_share_the_workload_and_nothing_else() {
    let mut left = replay(group(training_step(Form::Steps), 3));
    let mut right = left.fork();
    let mut machine = Ideal::default();
    left.begin(RankId(0), Time::ZERO, &mut machine);
    assert!(left.is_running(RankId(0)) && !right.is_running(RankId(0)));
    right.begin(RankId(1), Time::ZERO, &mut machine);
    assert_eq!((left.running(), right.running()), (1, 1));
    assert!(right.ranks[0].ops.is_empty());
}

#[test]
fn an_empty_iteration_ends_at_once() {
    let mut replay = replay(Workload::from_programs(vec![Program::default()]));
    assert!(replay.begin(RankId(0), Time::from_ps(9), &mut Ideal::default()));
    assert_eq!(
        (replay.iterations_done(RankId(0)), replay.iteration_finish(RankId(0))),
        (1, Time::from_ps(9))
    );
}

#[test]
fn what_is_stuck_is_named() {
    let message = |builder: &mut ProgramBuilder, to: Option<u32>, from: Option<u32>, label: &str| {
        let label = builder.label(label);
        let kind = match to {
            Some(to) => OpKind::Send {
                peer: Peer::Rank(RankId(to)),
                bytes: Bytes::new(100),
                tag: Tag(7),
                stream: STREAM,
                nic: NicId(0),
            },
            None => OpKind::Receive {
                peer: from.map(|from| Peer::Rank(RankId(from))),
                tag: Some(Tag(8)),
                stream: STREAM,
            },
        };
        builder.push(kind, Dimension::Other, label)
    };
    let mut first = ProgramBuilder::new();
    let sent = message(&mut first, Some(1), None, "activations");
    let never = first.calc(Span::from_ps(1), STREAM, 0);
    first.requires(never, sent);
    let spec = steps(CollectiveKind::AllReduce, Algorithm::Ring, 1_000);
    first.collective(SLOT, spec.clone(), Dimension::Dp, STREAM, 0);
    let mut second = ProgramBuilder::new();
    let received = message(&mut second, None, Some(0), "");
    let reduced = second.collective(SLOT, spec, Dimension::Dp, STREAM, 0);
    second.requires(reduced, received);
    let mut workload = group(first.finish().unwrap(), 2);
    workload.programs.push(second.finish().unwrap());
    workload.program_of[1] = 1;
    let mut replay = replay(workload);
    let mut machine = Ideal { rendezvous: true, ..Ideal::default() };
    for rank in 0..2 {
        replay.begin(RankId(rank), Time::ZERO, &mut machine);
    }
    drain(&mut replay, &mut machine);
    let stuck: Vec<String> = replay
        .stuck()
        .into_iter()
        .map(|op| format!("{}:{} `{}` {}", op.rank, op.operation, op.label, op.waits_for))
        .collect();
    assert_eq!(
        stuck,
        [
            "0:0 `activations` a receive by rank 1 with tag 7",
            "0:2 `` rank 1 in collective 0 of `world`",
            "1:0 `` a message from rank 0 with tag 8",
        ]
    );
}

#[test]
fn a_stuck_collective_names_members_or_rounds() {
    let waits = |replay: &Replay| -> Vec<String> {
        replay.stuck().into_iter().map(|op| format!("{}: {}", op.rank, op.waits_for)).collect()
    };
    // All have come, but rank 1's messages get lost: rank 2 never ends round 0, so rank 0 misses its round 1 and rank 1
    // that of rank 0's round 2.
    let spec = steps(CollectiveKind::AllReduce, Algorithm::Ring, 4_000);
    let mut lossy = replay(group(one_collective(spec.clone()), 3));
    let mut machine = Ideal { mute: Some(RankId(1)), ..Ideal::default() };
    for rank in 0..3 {
        lossy.begin(RankId(rank), Time::ZERO, &mut machine);
    }
    drain(&mut lossy, &mut machine);
    assert_eq!(
        waits(&lossy),
        [
            "0: collective 0 of `world`: round 1 (from 2; to 1)",
            "1: collective 0 of `world`: round 2 (from 0; to 2)",
            "2: collective 0 of `world`: round 0 (from 1; to 0)",
        ]
    );
    // Some have not come, by steps or coupled; more than eight are counted.
    for form in [Form::Steps, Form::Coupled] {
        let spec = CollectiveSpec { form, ..spec.clone() };
        let mut absent = replay(group(one_collective(spec), 12));
        let mut machine = Ideal::default();
        absent.begin(RankId(3), Time::ZERO, &mut machine);
        drain(&mut absent, &mut machine);
        assert_eq!(waits(&absent), ["3: ranks 0, 1, 2, 4, 5, 6, 7, 8 and 3 more in collective 0 of `world`"]);
    }
}

#[test]
fn disagreement_is_found_before_anything_runs() {
    let ring = |bytes| steps(CollectiveKind::AllReduce, Algorithm::Ring, bytes);
    let error =
        |workload| Replay::new(Arc::new(workload), &ReplayOptions::default()).unwrap_err().to_string();
    let mut workload = group(one_collective(ring(8)), 3);
    workload.programs.push(one_collective(ring(9)));
    workload.program_of[2] = 1;
    assert_eq!(
        error(workload.clone()),
        "ranks 0 and 2 disagree on collective 0 of communicator `world`: all-reduce of 8 B (ring, form Steps, \
         outstanding 64, domain 1) against all-reduce of 9 B (ring, form Steps, outstanding 64, domain 1)"
    );
    workload.programs[1] = Program::default();
    assert_eq!(
        error(workload.clone()),
        "ranks 0 and 2 disagree on collective 0 of communicator `world`: all-reduce of 8 B (ring, form Steps, \
         outstanding 64, domain 1) against no collective"
    );
    workload.program_of[2] = 2;
    assert_eq!(error(workload.clone()), "rank 2 runs program 2, but there are 2 programs");
    workload.program_of[2] = 0;
    workload.bindings[2].index = 1;
    assert_eq!(error(workload.clone()), "rank 2 binds slot 0 as member 1 of communicator 0, which it is not");
    workload.binding_offsets[3] = 2;
    assert_eq!(error(workload), "rank 2 uses communicator slot 0, but binds 0");

    let mut builder = ProgramBuilder::new();
    let label = builder.label("grads");
    let kind = OpKind::Receive { peer: Some(Peer::Member(SLOT, 3)), tag: None, stream: STREAM };
    builder.push(kind, Dimension::Other, label);
    assert_eq!(
        error(group(builder.finish().unwrap(), 3)),
        "operation 0 (`grads`) of rank 0 names member 3 of `world`, but there are 3"
    );
    let coupled =
        CollectiveSpec { form: Form::Coupled, ..steps(CollectiveKind::AllReduce, Algorithm::Recursive, 8) };
    assert_eq!(
        error(group(one_collective(coupled), 4)),
        "communicator `world`: all-reduce by `recursive` cannot run coupled: its edges do not advance together\n\n\
         hint: use form `auto` or `steps`"
    );
    let mut program = one_collective(ring(8));
    program.ops.push(program.ops[0]);
    program.prerequisites.push(0);
    assert_eq!(
        error(group(program, 2)),
        "collectives of slot 0 in program 0 must be numbered from 0 on: number 0 of 2"
    );
    let mut builder = ProgramBuilder::new();
    builder.collective(SLOT, ring(8), Dimension::Dp, STREAM, 0);
    builder.collective(CommSlot(1), ring(8), Dimension::Dp, STREAM, 0);
    let mut workload = Workload { programs: vec![builder.finish().unwrap()], ..Workload::default() };
    workload.add_rank(0, &[Binding { communicator: 0, index: 0 }; 2]);
    workload.communicators.push(Communicator { name: "world".to_owned(), ranks: vec![RankId(0)] });
    assert_eq!(error(workload), "rank 0 runs collectives on communicator `world` through two slots");
}

#[test]
fn state_is_32_bytes_an_operation() {
    assert_eq!(size_of::<OpState>(), 32);
}
