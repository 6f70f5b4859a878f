//! Rounds against closed forms, loads against counts by hand.

use super::algorithms::{Pattern, bine_distance, phases};
use super::*;

fn switches(hosts: u32, per_leaf: u32, per_group: u32) -> Fabric {
    Fabric::Switches {
        hosts: (0..hosts).collect(),
        leaves: (0..hosts).map(|host| host / per_leaf).collect(),
        groups: (0..hosts).map(|host| host / per_group).collect(),
        host_rate: 10e9,
        leaf_rate: 20e9,
        group_rate: 40e9,
        memory_rate: 1e18,
        latencies: [0.0, 1e-6, 2e-6, 3e-6],
        rails: 1.0,
        exposed: 0.0,
        wide: false,
    }
}

fn free() -> Constants {
    Constants {
        latency: 1e-6,
        message: 0.0,
        eager: 1e18,
        share: 1.0,
        share_fabric: 1.0,
        reduction: 1e18,
        reduction_memory: 1e18,
        copy: 1e18,
        fresh: 1e18,
        inside: 1e18,
        rendezvous: 0.0,
        ..Constants::default()
    }
}

fn ask(collective: Collective, algorithm: Algorithm, bytes: f64) -> Question {
    Question { collective, algorithm, bytes, segment: 0.0, ports: 1, permute: false, announced: false }
}

#[test]
fn every_algorithm_moves_the_bytes_of_its_definition() {
    let sent = |collective, algorithm, n| -> f64 {
        let all = phases(collective, algorithm, 1.0, &[n]).expect("defined");
        all.iter().map(|phase| phase.rounds * phase.bytes).sum()
    };
    for n in [4u32, 64, 1024] {
        let part = f64::from(n - 1) / f64::from(n);
        for algorithm in [Algorithm::Ring, Algorithm::Rabenseifner, Algorithm::Bine] {
            assert!((sent(Collective::AllReduce, algorithm, n) - 2.0 * part).abs() < 1e-12);
        }
        for algorithm in [
            Algorithm::Ring,
            Algorithm::NeighbourExchange,
            Algorithm::RecursiveDoubling,
            Algorithm::Bruck,
            Algorithm::Sparbit,
            Algorithm::Bine,
        ] {
            assert!((sent(Collective::AllGather, algorithm, n) - part).abs() < 1e-12, "{algorithm:?} {n}");
        }
        let levels = f64::from(n.ilog2());
        assert_eq!(sent(Collective::AllReduce, Algorithm::RecursiveDoubling, n), levels);
        assert_eq!(sent(Collective::AllToAll, Algorithm::Bruck, n), levels / 2.0);
    }
    assert!(phases(Collective::Gather, Algorithm::Ring, 1.0, &[4]).is_err());
}

#[test]
fn bine_partners_are_those_of_the_paper() {
    // Distances 1, -1, 3, -5, 11, -21 (arXiv:2508.17311); partners choose each other.
    assert_eq!((0..6).map(bine_distance).collect::<Vec<_>>(), [1, -1, 3, -5, 11, -21]);
    // All 64 ranks of 64 hosts, 8 a leaf: the first and the last rank of a leaf have theirs in the next.
    let load = switches(64, 8, 64).load(Pattern::Bine(1), 1);
    assert_eq!((load.latency, load.beyond), (2e-6, 2.0 / 20e9));
}

#[test]
fn loads_count_the_messages_on_the_busiest_link() {
    let fabric = switches(16, 4, 8);
    // Distance 1 stays in pairs inside a leaf; distance 4 takes all four hosts of a leaf up; 8 all eight of a group.
    assert_eq!(fabric.load(Pattern::Bit(0), 1).beyond, 0.0);
    assert_eq!(fabric.load(Pattern::Bit(2), 1).beyond, 4.0 / 20e9);
    let far = fabric.load(Pattern::Bit(3), 1);
    assert_eq!((far.latency, far.beyond), (3e-6, 8.0 / 40e9));
    assert_eq!(far.network, 1.0 / 10e9);
}

#[test]
fn times_are_those_of_the_textbook() {
    let fabric = switches(4, 4, 4);
    let bytes = 4e6;
    let time = |collective, algorithm| {
        ask(collective, algorithm, bytes).times(&fabric, &[free()]).expect("defined")[0]
    };
    // Thakur, Rabenseifner, Gropp 2005: 2 (p-1) α + 2 n β (p-1)/p, and 2 log p α + the same.
    let (alpha, beta) = (2e-6, 1.0 / 10e9);
    let moved = 2.0 * bytes * beta * 0.75;
    assert!((time(Collective::AllReduce, Algorithm::Ring) - (6.0 * alpha + moved)).abs() < 1e-9);
    assert!((time(Collective::AllReduce, Algorithm::Rabenseifner) - (4.0 * alpha + moved)).abs() < 1e-9);
    let doubling = 2.0 * (alpha + bytes * beta);
    assert!((time(Collective::AllReduce, Algorithm::RecursiveDoubling) - doubling).abs() < 1e-9);
    // A reduction of 1 GB/s beside: a whole vector in each of two rounds.
    let reducing = Constants { reduction: 1e9, reduction_memory: 1e9, ..free() };
    let with = ask(Collective::AllReduce, Algorithm::RecursiveDoubling, bytes).times(&fabric, &[reducing]);
    assert!((with.expect("defined")[0] - doubling - 8e-3).abs() < 1e-9);
}

#[test]
fn a_torus_shares_links_along_its_sides() {
    let fabric = Fabric::Torus { sides: vec![8, 8, 8], straight: 24, link_rate: 6.8e9, hop: 1e-7 };
    assert_eq!(fabric.ranks(), 512);
    // Bine: distances 1, 1, 3 in every dimension; 3 apart, three messages share the links of both ways.
    let shared = |fabric: &Fabric, ports| -> Vec<f64> {
        (0..9).map(|k| (fabric.load(Pattern::Bine(k), ports).beyond * 6.8e11).round() / 100.0).collect()
    };
    assert_eq!(shared(&fabric, 1), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5, 1.5, 1.5]);
    assert_eq!(shared(&fabric, 6), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0]);
    // Recursive doubling: 1, 2, and 4, half the side and so both ways round.
    let shared: Vec<f64> = (0..9).map(|k| (fabric.load(Pattern::Bit(k), 1).beyond * 6.8e9).round()).collect();
    assert_eq!(shared, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
    // Three ports carry a third each along sides of their own. Six send the mirror image too: where partners are 3 apart
    // three messages then share a link, 15 loads of a sixth against 10.5 whole ones.
    let free = [Constants { post: 0.0, ..free() }];
    let one = ask(Collective::AllReduce, Algorithm::BineWhole, 1e9);
    let time = |ports| Question { ports, ..one.clone() }.times(&fabric, &free).expect("defined")[0];
    assert!((time(1) / time(3) - 3.0).abs() < 0.01);
    assert!((time(1) / time(6) - 10.5 / 2.5).abs() < 0.01);
    // On sides of two both ways are one link: six ports carry what three do.
    let small = Fabric::Torus { sides: vec![2, 2, 2], straight: 24, link_rate: 6.8e9, hop: 1e-7 };
    let time = |ports| Question { ports, ..one.clone() }.times(&small, &free).expect("defined")[0];
    assert!((time(3) / time(6) - 1.0).abs() < 0.01);
    // Whole vectors that are reduced to a root are served port by port.
    let reduced = ask(Collective::Reduce, Algorithm::BineWhole, 1e9);
    let time = |ports| Question { ports, ..reduced.clone() }.times(&fabric, &free).expect("defined")[0];
    assert!((time(1) / time(6) - 1.0).abs() < 0.01);
}

#[test]
fn segments_of_a_tree_follow_one_another_down_a_torus() {
    let fabric = Fabric::Torus { sides: vec![2, 2, 2], straight: 24, link_rate: 6.8e9, hop: 0.0 };
    let constants = [Constants { segment: 1e-6, split: 0.0, ..free() }];
    let time = |collective, algorithm, segment| {
        let asked = Question { segment, ..ask(collective, algorithm, 8e6) };
        asked.times(&fabric, &constants).expect("defined")[0]
    };
    // A thousand segments: once for a broadcast, in each of three rounds of a reduction.
    let more = |collective, algorithm| time(collective, algorithm, 8e3) - time(collective, algorithm, 0.0);
    assert!((more(Collective::Broadcast, Algorithm::Bine) - 1e-3).abs() < 1e-9);
    assert!((more(Collective::Reduce, Algorithm::BineWhole) - 3e-3).abs() < 1e-9);
}

#[test]
fn rings_take_the_mean_of_their_links_and_other_jobs_delay_every_round() {
    let Fabric::Switches { hosts, leaves, groups, .. } = switches(16, 4, 8) else { panic!("switches") };
    let placed = |exposed| Fabric::Switches {
        hosts: hosts.clone(),
        leaves: leaves.clone(),
        groups: groups.clone(),
        host_rate: 10e9,
        leaf_rate: 1e18,
        group_rate: 1e18,
        memory_rate: 1e18,
        latencies: [0.0, 1e-6, 2e-6, 3e-6],
        rails: 1.0,
        exposed,
        wide: false,
    };
    let constants = [Constants { disturbance: 0.1e-6, ..free() }];
    let time = |exposed, algorithm| {
        ask(Collective::AllGather, algorithm, 16.0).times(&placed(exposed), &constants).expect("defined")[0]
    };
    // 12 of 16 links stay in a leaf, 2 in a group, 2 do not; 15 rounds, each a microsecond besides.
    let mean = (12.0 * 1e-6 + 2.0 * 2e-6 + 2.0 * 3e-6) / 16.0;
    assert!((time(0.0, Algorithm::Ring) - 15.0 * (1e-6 + mean)).abs() < 1e-7);
    let delayed = time(4.0, Algorithm::Ring) - time(0.0, Algorithm::Ring);
    assert!((delayed - 15.0 * 0.4e-6).abs() < 1e-12);
    let delayed = time(4.0, Algorithm::RecursiveDoubling) - time(0.0, Algorithm::RecursiveDoubling);
    assert!((delayed - 4.0 * 0.4e-6).abs() < 1e-12);
}

#[test]
fn long_buffers_are_filled_page_by_page() {
    let fabric = switches(4, 4, 4);
    let constants = Constants { fresh: 1e9, copy: 2e9, ..free() };
    let costs = |collective, algorithm, bytes, segment| {
        let asked = Question { segment, ..ask(collective, algorithm, bytes) };
        let both = asked
            .times(&fabric, &[constants.clone(), Constants { fresh: 1e18, copy: 1e18, ..constants.clone() }]);
        let both = both.expect("defined");
        both[0] - both[1]
    };
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    // Open MPI and libbine: whole vectors are exchanged from a copy of the caller's in a buffer, 64 MiB of it mapped anew.
    let (short, long) = (8_388_608.0, 67_108_864.0);
    near(costs(Collective::AllReduce, Algorithm::RecursiveDoubling, long, 0.0), long / 1e9);
    near(costs(Collective::AllReduce, Algorithm::RecursiveDoubling, short, 0.0), short / 2e9);
    // Rabenseifner's copies into the caller's result and receives half a vector; segments need no such buffer.
    near(costs(Collective::AllReduce, Algorithm::Rabenseifner, long, 0.0), long / 2e9 + long / 2.0 / 1e9);
    near(costs(Collective::AllReduce, Algorithm::Bine, long, 4096.0), long / 2e9);
    near(costs(Collective::AllReduce, Algorithm::Ring, long, 0.0), long / 2e9);
    // A reduce-scatter copies the vector and receives half of it; an all-gather lands where it is wanted.
    near(costs(Collective::ReduceScatter, Algorithm::RecursiveHalving, long, 0.0), 1.5 * long / 1e9);
    near(costs(Collective::AllGather, Algorithm::RecursiveDoubling, long, 0.0), 0.0);
    // What is received is not copied.
    near(costs(Collective::Gather, Algorithm::Binomial, short, 0.0), 0.0);
}

#[test]
fn any_even_number_of_ranks_gathers_in_a_logarithm_of_rounds() {
    for n in [6u32, 10, 200, 254] {
        let rounds = n.next_power_of_two().ilog2() as usize;
        for algorithm in [Algorithm::Sparbit, Algorithm::BineBlocksEven] {
            let found = phases(Collective::AllGather, algorithm, f64::from(n), &[n]).expect("defined");
            // A rank has its own block and gets each of the others once, a message each.
            assert_eq!(found.len(), rounds);
            assert_eq!(found.iter().map(|phase| phase.bytes).sum::<f64>(), f64::from(n - 1));
            assert_eq!(found.iter().map(|phase| phase.messages).sum::<f64>(), f64::from(n - 1));
        }
        // Bine partners choose each other around any even number (arXiv:2508.17311).
        let ranks: Vec<i64> = (0..i64::from(n)).collect();
        for step in 0..rounds as u32 {
            let partner = |rank: i64| {
                let distance = bine_distance(step);
                (rank + if rank % 2 == 0 { distance } else { -distance }).rem_euclid(i64::from(n))
            };
            assert!(ranks.iter().all(|&rank| partner(partner(rank)) == rank));
        }
    }
    // Sparbit sends one block half way round and half of them to the next rank.
    let found = phases(Collective::AllGather, Algorithm::Sparbit, 8.0, &[8]).expect("defined");
    let pairs: Vec<_> = found.iter().map(|phase| (phase.pattern, phase.bytes)).collect();
    assert_eq!(pairs, [(Pattern::Shift(4), 1.0), (Pattern::Shift(2), 2.0), (Pattern::Shift(1), 4.0)]);
}

#[test]
fn long_messages_take_all_rails() {
    let with = |ports, most_leaves| {
        let mut fabric = switches(4, 4, 4);
        if let Fabric::Switches { rails, wide, .. } = &mut fabric {
            (*rails, *wide) = (ports, most_leaves);
        }
        fabric
    };
    let constants = Constants { eager: 1e3, share: 0.5, share_wide: 0.25, ..free() };
    let rate = |fabric: &Fabric, bytes: f64| {
        let time = |bytes| {
            ask(Collective::AllGather, Algorithm::Ring, bytes)
                .times(fabric, std::slice::from_ref(&constants))
                .expect("defined")[0]
        };
        // Three blocks of a fourth.
        0.75 * bytes / (time(bytes) - 3.0 * 2e-6)
    };
    let near =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    near(rate(&with(1.0, false), 2e6), 0.5 * 10e9);
    near(rate(&with(2.0, false), 2e3), 0.5 * 10e9);
    near(rate(&with(2.0, false), 2e6), 0.5 * 20e9);
    near(rate(&with(2.0, true), 2e6), 0.25 * 20e9);
}

#[test]
fn trees_on_a_torus_pass_messages_on() {
    let fabric = Fabric::Torus { sides: vec![2, 2, 2], straight: 24, link_rate: 1e18, hop: 0.0 };
    let constants = [Constants { forward: 0.25e-6, post: 3e-6, split: 0.0, ..free() }];
    let time = |collective, announced, ports| {
        let asked = Question { ports, announced, ..ask(collective, Algorithm::Bine, 8.0) };
        asked.times(&fabric, &constants).expect("defined")[0]
    };
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    // Three rounds: the first is begun, two pass on; further ports post once.
    near(time(Collective::Broadcast, false, 1), 1.5e-6);
    near(time(Collective::Broadcast, false, 3), 1.5e-6 + 2.0 * 3e-6);
    near(time(Collective::Scatter, false, 1), 1.5e-6);
    // Where receivers announce themselves every round hears of them first, and an exchange waits for both ways.
    near(time(Collective::Broadcast, true, 1), 6e-6);
    near(time(Collective::AllGather, false, 1), 3e-6);
}

#[test]
fn too_few_ranks_are_refused() {
    let error = ask(Collective::AllReduce, Algorithm::Ring, 1.0)
        .times(&switches(1, 1, 1), &[free()])
        .expect_err("nobody to talk to");
    assert_eq!(error.to_string(), "expected at least 2 ranks, found 1");
}
