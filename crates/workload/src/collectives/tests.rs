//! Every algorithm against a slow executor that follows which contributions each member holds, and against the closed
//! forms of rounds and bytes.

use windtunnel_kernel::Bytes;

use super::parts::{Part, Sink, log2_ceil, share};
use super::*;
use Algorithm as A;
use CollectiveKind as K;

fn sizes() -> impl Iterator<Item = u32> {
    (1..=33).chain([64])
}

fn spec(kind: K, algorithm: A, bytes: u64) -> CollectiveSpec {
    CollectiveSpec { algorithm, ..CollectiveSpec::new(kind, Bytes::new(bytes)) }
}

/// The messages of one member in one round with their contents.
#[derive(Default)]
struct Contents {
    sends: Vec<(u32, Part)>,
    receives: Vec<(u32, Part)>,
}

impl Sink for Contents {
    fn send(&mut self, to: u32, part: Part) {
        self.sends.push((to, part));
    }
    fn receive(&mut self, from: u32, part: Part) {
        self.receives.push((from, part));
    }
}

fn blocks_of(part: Part) -> impl Iterator<Item = usize> {
    (0..u64::from(part.count))
        .map(move |j| ((u64::from(part.first) + u64::from(part.step) * j) % u64::from(part.blocks)) as usize)
}

/// All rounds of all members of a lane; checks that every send has its receive and that no pair has two in a round.
fn matched_rounds(plan: &Plan, lane: u32) -> Vec<Vec<Round>> {
    let n = plan.members();
    let rounds: Vec<Vec<Round>> = (0..plan.rounds(lane))
        .map(|round| {
            (0..n)
                .map(|index| {
                    let mut out = Round::new();
                    plan.round(index, lane, round, &mut out);
                    out
                })
                .collect()
        })
        .collect();
    for (number, round) in rounds.iter().enumerate() {
        let mut sent = Vec::new();
        let mut received = Vec::new();
        for (index, messages) in (0..n).zip(round) {
            sent.extend(messages.sends.iter().map(|&(to, bytes)| (index, to, bytes)));
            received.extend(messages.receives.iter().map(|&(from, bytes)| (from, index, bytes)));
        }
        sent.sort_unstable();
        received.sort_unstable();
        assert_eq!(sent, received, "{plan:?} lane {lane} round {number}");
        assert!(sent.windows(2).all(|pair| (pair[0].0, pair[0].1) != (pair[1].0, pair[1].1)));
        assert!(sent.iter().all(|&(from, to, bytes)| from != to && to < n && bytes > 0));
    }
    rounds
}

/// Bytes sent by each member.
fn sent_by_each(plan: &Plan) -> Vec<u64> {
    let mut totals = vec![0; plan.members() as usize];
    for lane in 0..plan.lanes() {
        for round in matched_rounds(plan, lane) {
            for (total, messages) in totals.iter_mut().zip(&round) {
                *total += messages.sends.iter().map(|&(_, bytes)| bytes).sum::<u64>();
            }
        }
    }
    totals
}

/// Runs the plan on sets of contributions, one set per member and block, and checks what each member ends with.
fn check_data_flow(plan: &Plan, bytes: u64) {
    let n = plan.members() as usize;
    let all = u64::MAX >> (64 - n);
    for lane in 0..plan.lanes() {
        let rounds = matched_rounds(plan, lane);
        let lane_bytes = share(bytes, plan.lanes(), lane);
        let contents: Vec<Vec<Contents>> = (0..plan.rounds(lane))
            .map(|round| {
                (0..n as u32)
                    .map(|index| {
                        let mut contents = Contents::default();
                        plan.emit(index, lane, round, &mut contents);
                        contents
                    })
                    .collect()
            })
            .collect();
        let parts = || contents.iter().flatten().flat_map(|c| c.sends.iter().map(|&(_, part)| part));
        let met = (0..plan.rounds(lane)).find_map(|round| {
            (plan.algorithm() == A::InNetwork).then(|| plan.meeting_of(0, round)).flatten()
        });
        let blocks = parts().next().or(met.map(|(_, part)| part)).map_or(1, |part| part.blocks) as usize;
        assert!(parts().all(|part| part.blocks as usize == blocks));
        // Several rings cut each member's share.
        let of = |block: usize| if plan.algorithm() == A::MultiRing { block / (blocks / n) } else { block };
        let start = |index: usize, block: usize| match plan.kind() {
            K::AllGather => u64::from(index == of(block) || n == 1) << index,
            K::Broadcast { root } => u64::from(index as u32 == root) << root,
            _ => 1 << index,
        };
        let mut holds: Vec<Vec<u64>> =
            (0..n).map(|index| (0..blocks).map(|block| start(index, block)).collect()).collect();
        // What was held after each round: a round sees only rounds that are complete when it may start.
        let mut history = vec![holds.clone()];
        for (number, round) in contents.iter().enumerate() {
            let seen = &history[(number + 1).saturating_sub(plan.depth(lane) as usize)];
            for (index, messages) in round.iter().enumerate() {
                for &(from, part) in &messages.receives {
                    let sent = round[from as usize].sends.iter();
                    let sent: Vec<Part> =
                        sent.filter(|&&(to, _)| to as usize == index).map(|&(_, part)| part).collect();
                    let from_it = messages.receives.iter().filter(|&&(peer, _)| peer == from);
                    let awaited: Vec<Part> = from_it.map(|&(_, part)| part).collect();
                    assert_eq!(sent.len(), awaited.len());
                    assert!(sent.contains(&part), "{plan:?} round {number} at {index}: {sent:?} {awaited:?}");
                    let size: u64 = awaited.iter().map(|part| part.bytes(lane_bytes)).sum();
                    let weighed = rounds[number][index].receives.iter().find(|&&(peer, _)| peer == from);
                    assert_eq!(weighed.map_or(0, |&(_, bytes)| bytes), size);
                    for block in blocks_of(part) {
                        let incoming = seen[from as usize][block];
                        let held = &mut holds[index][block];
                        // What is complete replaces; so does the half that the odd one of a folded pair has reduced.
                        let folded = plan.algorithm() == A::Recursive && !plan.members().is_power_of_two();
                        let complete =
                            plan.kind() == K::AllReduce || folded && plan.kind() == K::ReduceScatter;
                        let handed_over = folded && plan.kind() == K::AllReduce && number == 1;
                        let copy = complete && incoming == all || handed_over && *held & !incoming == 0;
                        assert!(incoming != 0, "{plan:?} round {number}: {from} sends what it lacks");
                        assert!(copy || *held & incoming == 0, "{plan:?} round {number}: counted twice");
                        *held |= incoming;
                    }
                }
            }
            for index in 0..n as u32 {
                let met = (plan.algorithm() == A::InNetwork).then(|| plan.meeting_of(index, number as u32));
                let Some((meeting, part)) = met.flatten() else { continue };
                assert!(meeting.members().any(|member| member == index));
                assert!(round[index as usize].sends.is_empty());
                for block in blocks_of(part) {
                    let sum: u64 = meeting.members().map(|member| seen[member as usize][block]).sum();
                    assert_eq!(sum, all, "{plan:?}: each contribution is summed once");
                    holds[index as usize][block] = sum;
                }
            }
            history.push(holds.clone());
        }
        for (index, held) in holds.iter().enumerate() {
            for (block, &contributions) in held.iter().enumerate() {
                let wanted = match plan.kind() {
                    K::AllReduce => all,
                    K::ReduceScatter if of(block) == index => all,
                    K::Reduce { root } if root as usize == index => all,
                    K::AllGather => 1 << of(block),
                    K::Broadcast { root } => 1 << root,
                    _ => continue,
                };
                assert_eq!(contributions, wanted, "{plan:?}: block {block} at {index}");
            }
        }
    }
}

#[test]
fn reductions_and_gathers_end_with_what_they_promise() {
    for n in sizes() {
        for kind in [K::AllReduce, K::AllGather, K::ReduceScatter] {
            for &algorithm in kind.algorithms() {
                let domains: Vec<u32> = match algorithm {
                    // It holds what it sends in as many blocks as a domain has members.
                    A::MultiRing => (1..=n.min(16)).filter(|&domain| n.is_multiple_of(domain)).collect(),
                    A::Hierarchical | A::InNetwork => {
                        (1..=n).filter(|&domain| n.is_multiple_of(domain)).collect()
                    }
                    _ => vec![1],
                };
                for domain in domains {
                    let windows: &[u32] = if algorithm == A::Direct { &[1, 3, 64] } else { &[64] };
                    // Small enough for empty blocks, uneven, many chunks (and a ring between domains).
                    for bytes in [1, 7 * u64::from(n) + 3, (64 << 20) + 5] {
                        for &outstanding in windows {
                            let spec = CollectiveSpec { outstanding, domain, ..spec(kind, algorithm, bytes) };
                            let plan = Plan::new(&spec, n).unwrap();
                            assert_eq!(plan.is_empty(), n == 1);
                            check_data_flow(&plan, bytes);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn rooted_collectives_end_with_what_they_promise() {
    for n in sizes() {
        for root in 0..n {
            for kind in [K::Broadcast { root }, K::Reduce { root }] {
                for &algorithm in kind.algorithms() {
                    for bytes in [1, (5 << 20) + 1] {
                        let plan = Plan::new(&spec(kind, algorithm, bytes), n).unwrap();
                        check_data_flow(&plan, bytes);
                    }
                }
            }
        }
    }
}

/// Blocks (source, destination) travel by each algorithm's own rule; every message must have exactly their bytes.
fn check_exchange(plan: &Plan, domain: u32, size: impl Fn(u32, u32) -> u64) {
    let n = plan.members();
    let pairs = || (0..n).flat_map(|source| (0..n).map(move |to| (source, to)));
    // Where each block is, and the round in which it came there.
    let mut place: Vec<(u32, i64)> = pairs().map(|(source, _)| (source, i64::MIN / 2)).collect();
    let depth = i64::from(plan.depth(0));
    for (number, round) in matched_rounds(plan, 0).into_iter().enumerate() {
        let mut moves = Vec::new();
        for (index, messages) in (0..n).zip(&round) {
            for to in 0..n {
                let carried = |source: u32, target: u32, at: u32| match plan.algorithm() {
                    _ if at != index || to == index || target == index => false,
                    A::Bruck => {
                        to == (index + (1 << number)) % n && ((target + n - index) % n) >> number & 1 == 1
                    }
                    A::Hierarchical if to / domain == index / domain => {
                        source == index && target % domain == to % domain && number < domain as usize
                    }
                    A::Hierarchical => target == to,
                    _ => source == index && target == to,
                };
                let sent = messages.sends.iter().find(|&&(peer, _)| peer == to).map(|&(_, bytes)| bytes);
                if sent.is_none() && plan.algorithm() != A::Bruck {
                    continue;
                }
                let blocks: Vec<(u32, u32)> = pairs()
                    .filter(|&(source, target)| {
                        carried(source, target, place[(source * n + target) as usize].0)
                    })
                    .collect();
                let bytes: u64 = blocks.iter().map(|&(source, target)| size(source, target)).sum();
                assert_eq!(sent.unwrap_or(0), bytes, "{plan:?} round {number}: {index} to {to}");
                for (source, target) in blocks {
                    let at = (source * n + target) as usize;
                    assert!(place[at].1 <= number as i64 - depth, "{plan:?}: sent before it came");
                    moves.push((at, to));
                }
            }
        }
        for (at, to) in moves {
            place[at] = (to, number as i64);
        }
    }
    for (source, target) in pairs() {
        let there = place[(source * n + target) as usize].0 == target;
        assert!(there || size(source, target) == 0, "{plan:?}: {source} to {target} did not arrive");
    }
}

#[test]
fn exchanges_bring_every_block_home() {
    for n in sizes() {
        for &algorithm in K::AllToAll.algorithms() {
            for domain in (1..=n).filter(|&d| n.is_multiple_of(d) && (d == 1 || algorithm == A::Hierarchical))
            {
                for outstanding in [1, 4, 64] {
                    let bytes = 1000 * u64::from(n) + u64::from(n / 2);
                    let spec = CollectiveSpec { outstanding, domain, ..spec(K::AllToAll, algorithm, bytes) };
                    let plan = Plan::new(&spec, n).unwrap();
                    check_exchange(&plan, domain, |_, to| share(bytes, n, to));
                    if algorithm == A::Bruck {
                        continue;
                    }
                    let matrix: Vec<u64> = (0..u64::from(n * n)).map(|at| at * 7919 % 13 * 100).collect();
                    let spec =
                        CollectiveSpec { kind: K::AllToAllV, matrix: Some(matrix.clone().into()), ..spec };
                    let plan = Plan::new(&spec, n).unwrap();
                    check_exchange(&plan, domain, |from, to| matrix[(from * n + to) as usize]);
                }
            }
        }
    }
}

#[test]
fn a_barrier_hears_from_everybody() {
    for n in sizes() {
        let plan = Plan::new(&CollectiveSpec::new(K::Barrier, Bytes::ZERO), n).unwrap();
        assert_eq!(plan.rounds(0), log2_ceil(n));
        let mut heard: Vec<u64> = (0..n).map(|index| 1 << index).collect();
        for round in matched_rounds(&plan, 0) {
            let before = heard.clone();
            for (index, messages) in round.iter().enumerate() {
                for &(from, bytes) in &messages.receives {
                    assert_eq!(bytes, 1);
                    heard[index] |= before[from as usize];
                }
            }
        }
        assert!(heard.iter().all(|&set| set == u64::MAX >> (64 - n)));
    }
}

#[test]
fn rounds_equal_their_closed_forms() {
    let rounds = |kind, algorithm, n, domain| {
        let spec = CollectiveSpec { domain, ..spec(kind, algorithm, 64 << 20) };
        Plan::new(&spec, n).unwrap().rounds(0)
    };
    for n in sizes().skip(1) {
        let levels = log2_ceil(n);
        let folded = 2 * u32::from(!n.is_power_of_two());
        assert_eq!(rounds(K::AllReduce, A::Ring, n, 1), 2 * (n - 1));
        assert_eq!(rounds(K::AllGather, A::Ring, n, 1), n - 1);
        assert_eq!(rounds(K::ReduceScatter, A::Ring, n, 1), n - 1);
        // Thakur et al. 2005, §4.5: two halves in, the whole out.
        let halves = 3 * u32::from(!n.is_power_of_two());
        assert_eq!(rounds(K::AllReduce, A::Recursive, n, 1), 2 * n.ilog2() + halves);
        assert_eq!(rounds(K::AllGather, A::Recursive, n, 1), n.ilog2() + folded);
        assert_eq!(rounds(K::AllGather, A::Bruck, n, 1), levels);
        assert_eq!(rounds(K::AllGather, A::Pat, n, 1), levels);
        assert_eq!(rounds(K::ReduceScatter, A::Pat, n, 1), levels);
        assert_eq!(rounds(K::AllToAll, A::Pairwise, n, 1), n - 1);
        assert_eq!(rounds(K::AllToAll, A::Bruck, n, 1), levels);
        assert_eq!(rounds(K::Broadcast { root: 0 }, A::Binomial, n, 1), levels);
        // 64 MiB are 128 chunks of 512 KiB, 64 in each tree.
        assert_eq!(rounds(K::Broadcast { root: 0 }, A::Ring, n, 1), 128 + n - 2);
        assert_eq!(rounds(K::Broadcast { root: 0 }, A::DoubleBinaryTree, n, 1), 64 + levels - 1);
        assert_eq!(rounds(K::AllReduce, A::DoubleBinaryTree, n, 1), 64 + 4 * (2 * levels - 1));
        if n.is_multiple_of(4) {
            assert_eq!(rounds(K::AllReduce, A::Hierarchical, n, 4), 2 * 3 + 2 * (n / 4 - 1));
            assert_eq!(rounds(K::AllGather, A::Hierarchical, n, 4), 3 + n / 4 - 1);
        }
    }
}

#[test]
fn bytes_equal_their_closed_forms() {
    for n in sizes().skip(1) {
        let wide = u64::from(n);
        // A multiple of every divisor in play: shares are equal and the forms exact.
        let bytes = wide * 64 * 1024;
        let block = bytes / wide;
        let of = |kind, algorithm| sent_by_each(&Plan::new(&spec(kind, algorithm, bytes), n).unwrap());
        let everyone = |sent: Vec<u64>, each: u64| assert_eq!(sent, vec![each; n as usize], "n = {n}");
        everyone(of(K::AllReduce, A::Ring), 2 * (wide - 1) * block);
        for kind in [K::AllGather, K::ReduceScatter] {
            for algorithm in [A::Ring, A::Pat, A::Direct] {
                everyone(of(kind, algorithm), (wide - 1) * block);
            }
        }
        everyone(of(K::AllGather, A::Bruck), (wide - 1) * block);
        everyone(of(K::AllToAll, A::Direct), (wide - 1) * block);
        everyone(of(K::AllToAll, A::Pairwise), (wide - 1) * block);
        if n.is_power_of_two() {
            everyone(of(K::AllReduce, A::Recursive), 2 * (wide - 1) * block);
            everyone(of(K::AllGather, A::Recursive), (wide - 1) * block);
            everyone(of(K::ReduceScatter, A::Recursive), (wide - 1) * block);
            everyone(of(K::AllToAll, A::Bruck), u64::from(n.ilog2()) * bytes / 2);
        }
        // A tree has n − 1 edges, each crossed once (an all-reduce: twice).
        for algorithm in [A::Ring, A::Binomial, A::DoubleBinaryTree] {
            let total: u64 = of(K::Broadcast { root: n / 2 }, algorithm).iter().sum();
            assert_eq!(total, (wide - 1) * bytes);
        }
        let trees = of(K::AllReduce, A::DoubleBinaryTree);
        assert_eq!(trees.iter().sum::<u64>(), 2 * (wide - 1) * bytes);
        assert!(trees.iter().all(|&sent| sent <= 2 * bytes));
        for domain in (1..=n).filter(|&domain| n.is_multiple_of(domain)) {
            let spec = CollectiveSpec { domain, ..spec(K::AllReduce, A::Hierarchical, bytes) };
            everyone(sent_by_each(&Plan::new(&spec, n).unwrap()), 2 * (wide - 1) * block);
        }
    }
}

#[test]
fn a_plan_of_16384_members_is_a_few_words() {
    let n = 16_384;
    let plan = Plan::new(&spec(K::AllToAll, A::Direct, 16_384 << 20), n).unwrap();
    assert!(size_of::<Plan>() <= 96);
    assert_eq!((plan.rounds(0), plan.depth(0)), (n - 1, 64));
    let mut out = Round::new();
    plan.round(5, 0, n - 2, &mut out);
    assert_eq!((&out.sends[..], &out.receives[..]), (&[(4, 1 << 20)][..], &[(6, 1 << 20)][..]));
    assert!(!out.sends.spilled() && !out.receives.spilled());
}

#[test]
fn coupled_shapes_exist_where_edges_advance_together() {
    let shape = |kind, algorithm, n, domain, bytes| {
        Plan::new(&CollectiveSpec { domain, ..spec(kind, algorithm, bytes) }, n).unwrap().coupled()
    };
    let ring = shape(K::AllReduce, A::Ring, 4, 1, 4000).unwrap();
    assert_eq!(ring.edges, [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 0, 1)]);
    assert_eq!((ring.bytes, ring.steps), (6000, 6));
    let chain = shape(K::Broadcast { root: 2 }, A::Ring, 3, 1, 64 << 20).unwrap();
    assert_eq!((&chain.edges[..], chain.bytes, chain.steps), (&[(2, 0, 1), (0, 1, 1)][..], 64 << 20, 2));
    let chain = shape(K::Reduce { root: 2 }, A::Ring, 3, 1, 64 << 20).unwrap();
    assert_eq!(chain.edges, [(0, 1, 1), (1, 2, 1)]);
    assert_eq!(shape(K::Broadcast { root: 0 }, A::Ring, 64, 1, 64 << 20), None);
    let direct = shape(K::AllToAll, A::Direct, 8, 8, 8000).unwrap();
    assert_eq!((direct.edges.len(), direct.bytes, direct.steps), (56, 1000, 1));
    assert_eq!(shape(K::AllToAll, A::Pairwise, 8, 8, 8000).unwrap().steps, 7);
    assert_eq!(shape(K::AllToAll, A::Direct, 8, 4, 8000), None);
    assert_eq!(shape(K::AllReduce, A::Recursive, 8, 8, 8000), None);
    assert_eq!(shape(K::AllReduce, A::Hierarchical, 8, 4, 8000), None);
    assert_eq!(shape(K::AllReduce, A::Hierarchical, 8, 8, 8000).unwrap().steps, 14);
    // Two domains of two: a ring leaves each by either member, and each of its edges carries 6/4 of half the buffer.
    let rings = shape(K::AllReduce, A::MultiRing, 4, 2, 4000).unwrap();
    assert_eq!(rings.edges[..4], [(1, 3, 1), (2, 0, 1), (0, 2, 1), (3, 1, 1)]);
    assert_eq!(rings.edges[4..], [(0, 1, 1), (1, 0, 1), (2, 3, 1), (3, 2, 1)]);
    assert_eq!((rings.bytes, rings.steps), (3000, 6));
    assert_eq!(shape(K::AllReduce, A::MultiRing, 4, 4, 4000), shape(K::AllReduce, A::Ring, 4, 1, 4000));
}

/// Between hosts a member's link carries its vector once, inside a domain of m (m + 1) / m times, and with both only an m-th
/// goes between hosts.
#[test]
fn switches_sum_what_members_send_once() {
    let plan = |n, domain| {
        let spec = CollectiveSpec { domain, ..spec(K::AllReduce, A::InNetwork, 8_000) };
        Plan::new(&spec, n).unwrap()
    };
    let between = plan(16, 1);
    assert_eq!((between.rounds(0), between.coupled()), (1, None));
    let all = Meeting { first: 0, stride: 1, count: 16, bytes: 8_000, steps: 1, ring: false };
    assert_eq!(between.meeting(3, 0), Some(all));
    let inside = Meeting { count: 8, bytes: 9_000, steps: 2, ring: true, ..all };
    assert_eq!(plan(8, 8).meeting(5, 0), Some(inside));
    let both = plan(32, 8);
    assert_eq!(both.rounds(0), 7 + 1 + 7);
    let column = Meeting { first: 5, stride: 8, count: 4, bytes: 1_000, steps: 1, ring: false };
    assert_eq!((both.meeting(13, 7), both.meeting(13, 6)), (Some(column), None));
}

/// Each ring of two levels as one meeting: it carries what the messages of its steps do, in as many steps.
#[test]
fn rings_of_two_levels_carry_what_their_messages_do() {
    for (kind, meetings) in [(K::AllReduce, 3), (K::AllGather, 2), (K::ReduceScatter, 2)] {
        for (n, domain) in [(6, 2), (12, 4), (24, 8), (10, 5)] {
            let bytes = 5_040 << 20;
            let spec = CollectiveSpec { domain, ..spec(kind, A::Hierarchical, bytes) };
            let messages = Plan::new(&spec, n).unwrap();
            let rings = messages.clone().by_rings().unwrap();
            assert_eq!((rings.rounds(0), rings.algorithm(), rings.kind()), (meetings, A::Hierarchical, kind));
            for index in 0..n {
                let (mut sent, mut steps, mut carried) = (0, 0, 0);
                let mut round = Round::new();
                for number in 0..messages.rounds(0) {
                    assert_eq!(messages.meeting(index, number), None);
                    messages.round(index, 0, number, &mut round);
                    sent += round.sends.iter().map(|send| send.1).sum::<u64>();
                }
                for number in 0..rings.rounds(0) {
                    rings.round(index, 0, number, &mut round);
                    assert!(round.is_empty());
                    let meeting = rings.meeting(index, number).unwrap();
                    assert!(meeting.ring && meeting.members().any(|member| member == index));
                    let neighbours = meeting.members().all(|member| member / domain == index / domain);
                    let alike = meeting.members().all(|member| member % domain == index % domain);
                    assert!(if meeting.count == domain { neighbours } else { alike }, "{meeting:?}");
                    carried += meeting.bytes;
                    steps += meeting.steps;
                }
                assert_eq!((carried, steps), (sent, messages.rounds(0)), "{kind:?} {n} {domain} {index}");
            }
        }
    }
    // Halving and doubling between domains has no ring there, a single domain has one anyway.
    let with = |domain, bytes| CollectiveSpec { domain, ..spec(K::AllReduce, A::Hierarchical, bytes) };
    assert_eq!(Plan::new(&with(2, 1_000), 8).unwrap().by_rings(), None);
    assert_eq!(Plan::new(&with(8, 1 << 30), 8).unwrap().by_rings(), None);
    assert_eq!(Plan::new(&spec(K::AllReduce, A::Ring, 1 << 30), 8).unwrap().by_rings(), None);
}

#[test]
fn the_size_rule_computes_what_is_asked_and_can_be_replaced() {
    for n in sizes() {
        for domain in [1, 2, 8] {
            for shift in [0, 10, 17, 24, 34] {
                for kind in [K::AllReduce, K::AllGather, K::ReduceScatter, K::AllToAll, K::Barrier] {
                    let spec = CollectiveSpec { domain, ..spec(kind, A::Auto, 1 << shift) };
                    let plan = Plan::new(&spec, n).unwrap();
                    assert!(kind.algorithms().contains(&plan.algorithm()));
                }
            }
        }
    }
    struct AlwaysRing;
    impl Tuner for AlwaysRing {
        fn choose(&self, _: &CollectiveSpec, _: u32) -> Algorithm {
            A::Ring
        }
    }
    let small = CollectiveSpec::new(K::AllReduce, Bytes::new(8));
    assert_eq!(Plan::new(&small, 4).unwrap().algorithm(), A::Recursive);
    assert_eq!(Plan::with_tuner(&small, 4, &AlwaysRing).unwrap().algorithm(), A::Ring);
}

#[test]
fn errors_name_what_fits() {
    let error = |spec: CollectiveSpec, n| Plan::new(&spec, n).unwrap_err().to_string();
    assert_eq!(
        error(spec(K::AllGather, A::Binomial, 8), 4),
        "`binomial` does not compute all-gather, expected one of `ring`, `recursive`, `bruck`, `pat`, `direct`, \
         `multi_ring`, `hierarchical`"
    );
    assert_eq!(
        error(CollectiveSpec { domain: 4, ..spec(K::AllReduce, A::Hierarchical, 8) }, 6),
        "all-reduce by `hierarchical` needs a group of whole scale-up domains: 6 members, 4 a domain\n\n\
         hint: use `ring` or another of `ring`, `double_binary_tree`, `recursive`, `multi_ring`, `hierarchical`, `in_network`"
    );
    assert_eq!(
        error(spec(K::Reduce { root: 4 }, A::Auto, 8), 4),
        "the root of a reduce must be a member: index 4 of 4"
    );
    assert_eq!(
        error(spec(K::AllToAllV, A::Auto, 0), 4),
        "an all-to-all-v of 4 members needs 16 sizes, found 0"
    );
    assert_eq!(
        error(CollectiveSpec { outstanding: 0, ..spec(K::AllToAll, A::Direct, 8) }, 4),
        "`outstanding` must be at least 1"
    );
    assert_eq!(error(spec(K::Barrier, A::Auto, 0), 0), "the size of a group must be at least 1");
}
