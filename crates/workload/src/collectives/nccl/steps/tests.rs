//! The steps executed on sets of contributions, and their bytes against closed forms.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use windtunnel_kernel::Bytes;

use super::*;
use crate::collectives::nccl::hosts::dgx_h100;
use crate::collectives::nccl::{Hardware, Settings};

/// Any machine: what is tested does not depend on it.
fn hardware() -> Hardware {
    Hardware { scale_up_sums: false, ..dgx_h100() }
}

struct Case {
    kind: CollectiveKind,
    algorithm: Algorithm,
    protocol: Protocol,
    channels: u32,
    domains: u32,
    ranks: u32,
    bytes: u64,
    chunk: Option<u64>,
    matrix: Option<Arc<[u64]>>,
}

impl Case {
    fn steps(&self) -> Steps {
        let (hardware, settings) = (hardware(), Settings::default());
        let layout = Layout { domains: self.domains, ranks: self.ranks, ranks_per_process: 1 };
        let communicator = Communicator { hardware: &hardware, layout, settings: &settings };
        let spec = CollectiveSpec {
            matrix: self.matrix.clone(),
            ..CollectiveSpec::new(self.kind, Bytes::new(self.bytes))
        };
        let choice = Choice { algorithm: self.algorithm, protocol: self.protocol, channels: self.channels };
        Steps::new(&spec, &communicator, choice, self.chunk).expect("an algorithm of messages")
    }
}

/// Whose contributions a byte is the sum of (four bits for each rank: how often), and which byte of whose buffer it was.
type Value = Option<(u64, u64)>;

/// Runs all ranks of a channel, each lane in its order and messages in theirs; what each rank has in the end.
fn execute(steps: &Steps, state: &mut [Vec<Value>]) {
    for channel in 0..steps.channels() {
        let mut lanes: BTreeMap<(u32, u32), VecDeque<Step>> = BTreeMap::new();
        for index in 0..steps.members() + steps.switches() {
            steps.each(index, channel, &mut |step| {
                lanes.entry((index, step.lane)).or_default().push_back(step);
            });
        }
        let mut wires: BTreeMap<(u32, u32, u32), VecDeque<Vec<Value>>> = BTreeMap::new();
        loop {
            let mut moved = false;
            for (&(index, _), waiting) in &mut lanes {
                let arrived = |step: &mut Step| {
                    let wire = |from: &u32| wires.get(&(*from, index, step.take));
                    step.from.iter().all(|from| wire(from).is_some_and(|wire| !wire.is_empty()))
                };
                if let Some(step) = waiting.pop_front_if(arrived) {
                    moved = true;
                    let places: Vec<u64> =
                        step.ranges.iter().flat_map(|&(first, bytes)| first..first + bytes).collect();
                    let own = |place: &u64| state[index as usize][*place as usize];
                    let mut parts: Vec<Vec<Value>> = step
                        .from
                        .iter()
                        .map(|from| wires.get_mut(&(*from, index, step.take)).unwrap().pop_front().unwrap())
                        .collect();
                    if step.from.is_empty() || step.reduce {
                        parts.push(places.iter().map(own).collect());
                    }
                    let mut result = parts.pop().unwrap();
                    for part in parts {
                        assert_eq!(part.len(), places.len(), "a message has the bytes of its step");
                        for (sum, more) in result.iter_mut().zip(part) {
                            let ((a, place), (b, other)) = (sum.unwrap(), more.unwrap());
                            assert_eq!(place, other, "only equal places are summed");
                            *sum = Some((a + b, place));
                        }
                    }
                    if step.keep {
                        for (place, &value) in places.iter().zip(&result) {
                            state[index as usize][*place as usize] = value;
                        }
                    }
                    for &to in &step.to {
                        wires.entry((index, to, step.pass)).or_default().push_back(result.clone());
                    }
                }
            }
            if !moved {
                break;
            }
        }
        assert!(lanes.values().all(VecDeque::is_empty), "nobody waits for ever");
        assert!(wires.values().all(VecDeque::is_empty), "every message is taken");
    }
}

fn one(rank: u32) -> u64 {
    1 << (4 * rank)
}

fn all(n: u32) -> u64 {
    (0..n).map(one).sum()
}

/// Every kind on every layout, few and odd bytes among them, more channels than bytes too.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (domains, ranks) in
        [(1, 2), (1, 5), (2, 1), (3, 1), (5, 1), (8, 1), (2, 2), (2, 4), (3, 2), (4, 4), (5, 3)]
    {
        for bytes in [1, 7, 64, 1_000, 4_099] {
            for (channels, chunk) in [(1, Some(64)), (3, Some(48)), (4, None)] {
                let root = (domains * ranks) / 2;
                let kinds = [
                    (CollectiveKind::AllReduce, Algorithm::Ring),
                    (CollectiveKind::AllReduce, Algorithm::Tree),
                    (CollectiveKind::AllGather, Algorithm::Ring),
                    (CollectiveKind::ReduceScatter, Algorithm::Ring),
                    (CollectiveKind::Broadcast { root }, Algorithm::Ring),
                    (CollectiveKind::Reduce { root }, Algorithm::Ring),
                    (CollectiveKind::AllToAll, Algorithm::PointToPoint),
                    (CollectiveKind::AllGather, Algorithm::Pat),
                    (CollectiveKind::ReduceScatter, Algorithm::Pat),
                    (CollectiveKind::AllReduce, Algorithm::Nvls),
                    (CollectiveKind::AllGather, Algorithm::Nvls),
                    (CollectiveKind::ReduceScatter, Algorithm::Nvls),
                    (CollectiveKind::AllReduce, Algorithm::NvlsTree),
                    (CollectiveKind::AllReduce, Algorithm::CollnetDirect),
                    (CollectiveKind::AllReduce, Algorithm::CollnetChain),
                ];
                for (kind, algorithm) in kinds {
                    let fits = match algorithm {
                        Algorithm::Pat => ranks == 1,
                        Algorithm::Nvls => domains == 1,
                        _ => !algorithm.sums_in_switches() || domains > 1,
                    };
                    if !fits {
                        continue;
                    }
                    let protocol = Protocol::Simple;
                    cases.push(Case {
                        kind,
                        algorithm,
                        protocol,
                        channels,
                        domains,
                        ranks,
                        bytes,
                        chunk,
                        matrix: None,
                    });
                }
            }
        }
    }
    cases
}

#[test]
fn every_rank_ends_with_what_the_collective_computes() {
    for case in cases() {
        let steps = case.steps();
        let (n, bytes) = (steps.members(), case.bytes);
        let told =
            format!("{:?} {:?} of {bytes} B, {}x{}", case.kind, case.algorithm, case.domains, case.ranks);
        let share = |rank: u32| cut(bytes, n, rank);
        let owner = |place: u64| (0..n).find(|&rank| place < share(rank).0 + share(rank).1).unwrap();
        let initial = |rank: u32, place: u64| match case.kind {
            _ if place >= bytes => None,
            CollectiveKind::AllGather => (owner(place) == rank).then(|| (one(rank), place)),
            CollectiveKind::Broadcast { root } => (rank == root).then(|| (one(rank), place)),
            _ => Some((one(rank), place)),
        };
        let room = 2 * bytes + u64::from(n);
        let mut state: Vec<Vec<Value>> =
            (0..n).map(|rank| (0..room).map(|place| initial(rank, place)).collect()).collect();
        execute(&steps, &mut state);
        for (rank, state) in (0..n).zip(&state) {
            for place in 0..bytes {
                let expected = match case.kind {
                    CollectiveKind::AllReduce => Some(all(n)),
                    CollectiveKind::AllGather => Some(one(owner(place))),
                    CollectiveKind::ReduceScatter => (owner(place) == rank).then(|| all(n)),
                    CollectiveKind::Broadcast { root } => Some(one(root)),
                    CollectiveKind::Reduce { root } => (rank == root).then(|| all(n)),
                    _ => None,
                };
                if let Some(expected) = expected {
                    assert_eq!(
                        state[place as usize],
                        Some((expected, place)),
                        "{told}: rank {rank}, byte {place}"
                    );
                }
            }
            if case.kind == CollectiveKind::AllToAll {
                for from in (0..n).filter(|&from| from != rank) {
                    let (first, length) = share(rank);
                    let output = bytes + u64::from(from) * bytes.div_ceil(u64::from(n));
                    for place in 0..length {
                        let found = state[(output + place) as usize];
                        assert_eq!(found, Some((one(from), first + place)), "{told}: {from} to {rank}");
                    }
                }
            }
        }
    }
}

/// Data that each member, switches among them, sends to each.
fn traffic(steps: &Steps) -> BTreeMap<(u32, u32), u64> {
    let mut bytes_of = BTreeMap::new();
    for index in 0..steps.members() + steps.switches() {
        for channel in 0..steps.channels() {
            steps.each(index, channel, &mut |step| {
                for &to in &step.to {
                    *bytes_of.entry((index, to)).or_default() += step.bytes();
                }
            });
        }
    }
    bytes_of
}

fn sent(bytes_of: &BTreeMap<(u32, u32), u64>, rank: u32) -> u64 {
    bytes_of.iter().filter(|((from, _), _)| *from == rank).map(|(_, bytes)| bytes).sum()
}

#[test]
fn bytes_are_those_of_closed_forms() {
    let case = |kind, algorithm, domains, ranks, bytes| Case {
        kind,
        algorithm,
        protocol: Protocol::Simple,
        channels: 8,
        domains,
        ranks,
        bytes,
        chunk: None,
        matrix: None,
    };
    for (domains, ranks) in [(1, 8), (4, 1), (4, 8), (3, 4)] {
        let n = domains * ranks;
        let bytes = 960 * 1024 * u64::from(n);
        let share = bytes / u64::from(n);
        let each = |kind, algorithm, expected: u64| {
            let bytes_of = traffic(&case(kind, algorithm, domains, ranks, bytes).steps());
            for rank in 0..n {
                assert_eq!(sent(&bytes_of, rank), expected, "{kind:?} {algorithm:?} {domains}x{ranks}");
            }
            bytes_of
        };
        // A ring: 2 (n - 1) / n of the buffer from every rank, (n - 1) / n where one half of that is done.
        let ring = each(CollectiveKind::AllReduce, Algorithm::Ring, 2 * u64::from(n - 1) * share);
        each(CollectiveKind::AllGather, Algorithm::Ring, u64::from(n - 1) * share);
        each(CollectiveKind::ReduceScatter, Algorithm::Ring, u64::from(n - 1) * share);
        each(CollectiveKind::AllToAll, Algorithm::PointToPoint, u64::from(n - 1) * share);
        if ranks == 1 {
            each(CollectiveKind::AllGather, Algorithm::Pat, u64::from(n - 1) * share);
            each(CollectiveKind::ReduceScatter, Algorithm::Pat, u64::from(n - 1) * share);
        }
        let between = |bytes_of: &BTreeMap<(u32, u32), u64>, domain: u32| -> u64 {
            let leaves = |(from, to): &(u32, u32)| from / ranks == domain && to / ranks != domain;
            bytes_of.iter().filter(|(pair, _)| leaves(pair)).map(|(_, bytes)| bytes).sum()
        };
        // A domain sends over its NICs what one rank of the ring does, each of its members an equal part.
        if domains > 1 {
            for domain in 0..domains {
                assert_eq!(between(&ring, domain), 2 * u64::from(n - 1) * share);
            }
        }
        // A broadcast goes over every edge of its chain once.
        let bytes_of = traffic(
            &case(CollectiveKind::Broadcast { root: 1 }, Algorithm::Ring, domains, ranks, bytes).steps(),
        );
        assert_eq!(bytes_of.values().sum::<u64>(), u64::from(n - 1) * bytes);
        // A tree carries the buffer up and down each of its n - 1 edges, over both trees together.
        let tree = traffic(&case(CollectiveKind::AllReduce, Algorithm::Tree, domains, ranks, bytes).steps());
        assert_eq!(tree.values().sum::<u64>(), 2 * u64::from(n - 1) * bytes);
        let crossing: u64 = (0..domains).map(|domain| between(&tree, domain)).sum();
        assert_eq!(crossing, 2 * u64::from(domains - 1) * bytes);
        // Double binary trees: no domain sends more than twice the buffer, up and down, and to spare.
        for domain in 0..domains {
            assert!(between(&tree, domain) <= 2 * bytes, "{domain}");
        }
    }
}

#[test]
fn switches_that_sum_save_what_they_are_said_to() {
    let case = |kind, algorithm, domains: u32, ranks: u32, bytes| {
        let protocol = Protocol::Simple;
        Case { kind, algorithm, protocol, channels: 8, domains, ranks, bytes, chunk: None, matrix: None }
            .steps()
    };
    let ways = |steps: &Steps, rank: u32| {
        let bytes_of = traffic(steps);
        let out = sent(&bytes_of, rank);
        let back = bytes_of.iter().filter(|((_, to), _)| *to == rank).map(|(_, bytes)| bytes).sum::<u64>();
        (out, back)
    };
    for n in [2u32, 4, 8] {
        // Whole loops of every head and channel, so that no head has less than another.
        let bytes = u64::from(n) * 8 * (1 << 20);
        let share = bytes / u64::from(n);
        for rank in 0..n {
            // The buffer goes out once to be summed and a share once for all; a share's sum and all results come back.
            let all_reduce = case(CollectiveKind::AllReduce, Algorithm::Nvls, 1, n, bytes);
            assert_eq!(ways(&all_reduce, rank), (bytes + share, bytes + share));
            let gather = case(CollectiveKind::AllGather, Algorithm::Nvls, 1, n, bytes);
            assert_eq!(ways(&gather, rank), (share, bytes));
            let scatter = case(CollectiveKind::ReduceScatter, Algorithm::Nvls, 1, n, bytes);
            assert_eq!(ways(&scatter, rank), (bytes, share));
        }
    }
    for (domains, ranks) in [(2u32, 4u32), (4, 8), (3, 2), (5, 1)] {
        let (n, bytes) = (domains * ranks, 8 * u64::from(ranks) * (1 << 20));
        let between = |steps: &Steps| -> u64 {
            let crosses = |(from, to): &(u32, u32)| {
                let place = |member: u32| if member < n { Some(member / ranks) } else { None };
                *from < n && *to < n && place(*from) != place(*to)
            };
            traffic(steps).iter().filter(|(pair, _)| crosses(pair)).map(|(_, bytes)| bytes).sum()
        };
        // A tree of domains: the buffer up and down each of its edges, whatever the ranks of a domain.
        let tree = case(CollectiveKind::AllReduce, Algorithm::NvlsTree, domains, ranks, bytes);
        assert_eq!(between(&tree), 2 * u64::from(domains - 1) * bytes);
        // To the network's switches the buffer goes once from each domain, and comes back once, however many domains there are.
        for algorithm in [Algorithm::CollnetDirect, Algorithm::CollnetChain] {
            let steps = case(CollectiveKind::AllReduce, algorithm, domains, ranks, bytes);
            let bytes_of = traffic(&steps);
            let (mut up, mut down) = (vec![0; domains as usize], vec![0; domains as usize]);
            for (&(from, to), bytes) in &bytes_of {
                if to == n {
                    up[(from / ranks) as usize] += bytes;
                }
                if from == n {
                    down[(to / ranks) as usize] += bytes;
                }
            }
            assert_eq!((&up, &down), (&vec![bytes; domains as usize], &vec![bytes; domains as usize]));
            assert_eq!(between(&steps), 0);
            // Inside a domain a chain carries it over each of its links both ways, and so does the direct exchange of all.
            let inside: u64 =
                bytes_of.iter().filter(|((from, to), _)| *from < n && *to < n).map(|(_, bytes)| bytes).sum();
            assert_eq!(inside, u64::from(domains) * 2 * u64::from(ranks - 1) * bytes);
        }
    }
}

#[test]
fn chunks_of_switches_shrink_with_the_buffer() {
    let longest = |algorithm, domains, bytes| {
        let steps = Case {
            kind: CollectiveKind::AllReduce,
            algorithm,
            protocol: Protocol::Simple,
            channels: 16,
            domains,
            ranks: 8,
            bytes,
            chunk: None,
            matrix: None,
        };
        let mut longest = 0;
        steps.steps().each(0, 0, &mut |step| longest = longest.max(step.bytes()));
        longest
    };
    // 16 channels and 8 heads: 128 KiB from 64 times 16 MiB on, then 64, 32 and 16 KiB.
    for (bytes, chunk) in [(1 << 30, 128), (1 << 29, 64), (1 << 24, 32), (1 << 22, 16)] {
        assert_eq!(longest(Algorithm::Nvls, 1, bytes), chunk << 10, "{bytes}");
    }
    assert_eq!(longest(Algorithm::NvlsTree, 2, 1 << 30), 128 << 10);
    assert_eq!(longest(Algorithm::NvlsTree, 4, 1 << 30), 64 << 10);
    assert_eq!(longest(Algorithm::CollnetDirect, 2, 1 << 34), 512 << 10);
    // A chain of 8 wants 64 chunks a channel for each of its ranks to keep 128 KiB, 8 to keep 64 KiB.
    assert_eq!(longest(Algorithm::CollnetChain, 2, 1 << 24), 64 << 10);
    assert_eq!(longest(Algorithm::CollnetChain, 2, 1 << 22), 32 << 10);
}

#[test]
fn sizes_that_differ_arrive_where_they_belong() {
    let n = 4u32;
    let matrix: Vec<u64> = (0..16).map(|pair| u64::from(pair as u32 * 37 % 11) * 5).collect();
    let case = Case {
        kind: CollectiveKind::AllToAllV,
        algorithm: Algorithm::PointToPoint,
        protocol: Protocol::Simple,
        channels: 2,
        domains: 2,
        ranks: 2,
        bytes: 0,
        chunk: Some(16),
        matrix: Some(matrix.clone().into()),
    };
    let steps = case.steps();
    let bytes_of = traffic(&steps);
    for (from, to) in (0..n).flat_map(|from| (0..n).map(move |to| (from, to))).filter(|(from, to)| from != to)
    {
        let expected = matrix[(from * n + to) as usize];
        assert_eq!(bytes_of.get(&(from, to)).copied().unwrap_or(0), expected);
    }
    let room = 4 * matrix.iter().sum::<u64>();
    let mut state: Vec<Vec<Value>> =
        (0..n).map(|rank| (0..room).map(|place| Some((one(rank), place))).collect()).collect();
    execute(&steps, &mut state);
}

#[test]
fn messages_are_slices_and_protocols_have_their_flags() {
    let case = |protocol, bytes| Case {
        kind: CollectiveKind::AllReduce,
        algorithm: Algorithm::Ring,
        protocol,
        channels: 1,
        domains: 1,
        ranks: 2,
        bytes,
        chunk: None,
        matrix: None,
    };
    let sizes = |protocol, bytes| -> Vec<u64> {
        let steps = case(protocol, 64 << 20).steps();
        steps.messages(bytes).map(|data| steps.on_the_wire(data)).collect()
    };
    // Simple: a chunk of four steps of 512 KiB goes in two slices; a short one in slices of 32 KiB at least.
    assert_eq!(sizes(Protocol::Simple, 2 << 20), [1 << 20, 1 << 20]);
    assert_eq!(sizes(Protocol::Simple, 40_000), [32_768, 7_232]);
    assert_eq!(sizes(Protocol::Simple, 100), [100]);
    // LL doubles, in lines of 16 bytes; LL128 has 120 of 128.
    assert_eq!(sizes(Protocol::LL, 32 << 10), [64 << 10]);
    assert_eq!(sizes(Protocol::LL, 9), [32]);
    assert_eq!(sizes(Protocol::LL128, 1_200), [1_280]);
    assert_eq!(sizes(Protocol::LL128, 121), [256]);
    assert_eq!(case(Protocol::Simple, 1).steps().slots(0, 1), 4);
    assert_eq!(case(Protocol::LL, 1).steps().slots(0, 1), 8);
    let steps = case(Protocol::Simple, 64 << 20).steps();
    let mut longest = 0;
    steps.each(0, 0, &mut |step| longest = longest.max(step.bytes()));
    assert_eq!(longest, 2 << 20);
}
