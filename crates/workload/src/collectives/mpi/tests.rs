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
        ..Constants::default()
    }
}

fn ask(collective: Collective, algorithm: Algorithm, bytes: f64) -> Question {
    Question { collective, algorithm, bytes, segment: 0.0, ports: 1, permute: false }
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
    // Bine: distances 1, 1, 3 in every dimension; 3 apart, two messages share a link.
    let shared: Vec<f64> =
        (0..9).map(|k| (fabric.load(Pattern::Bine(k), 1).beyond * 6.8e9).round()).collect();
    assert_eq!(shared, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    // Recursive doubling: 1, 2, and 4, half the side and so both ways round.
    let shared: Vec<f64> = (0..9).map(|k| (fabric.load(Pattern::Bit(k), 1).beyond * 6.8e9).round()).collect();
    assert_eq!(shared, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
    // Three ports carry a third each along sides of their own. Six send the mirror image too: where partners are 3 apart
    // three messages then share a link instead of two, 15 loads of a sixth against 12 whole ones.
    let free = [Constants { post: 0.0, ..free() }];
    let one = ask(Collective::AllReduce, Algorithm::BineWhole, 1e9);
    let time = |ports| Question { ports, ..one.clone() }.times(&fabric, &free).expect("defined")[0];
    assert!((time(1) / time(3) - 3.0).abs() < 0.01);
    assert!((time(1) / time(6) - 12.0 / 2.5).abs() < 0.01);
}

#[test]
fn too_few_ranks_are_refused() {
    let error = ask(Collective::AllReduce, Algorithm::Ring, 1.0)
        .times(&switches(1, 1, 1), &[free()])
        .expect_err("nobody to talk to");
    assert_eq!(error.to_string(), "expected at least 2 ranks, found 1");
}
