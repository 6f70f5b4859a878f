//! Routing by rule, measured beside breadth-first tables: `cargo bench -p windtunnel-topology --bench rules`.
//!
//! Set-up is from the spec to the first next hop with a state of 32 B for every directed link allocated and written.
//! Hops are those of paths between random pairs, collected beforehand; each figure adds up the fastest of several rounds
//! for every 8,192 of them, so that a machine at work on something else does not count. "Cold" is the first round after a
//! fault, in which fields of next hops are searched.

#![allow(clippy::disallowed_methods, reason = "a benchmark is about the wall clock")]

mod shapes;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use windtunnel_kernel::memory::{self, CountingAllocator};
use windtunnel_kernel::{BitRate, EndpointId, NicId, RandomStream};
use windtunnel_topology::{
    DragonflyRouting, Forwarder, HostSpec, Itinerary, LoadBalancer, MeshRouting, Peer, Policy, Route,
    SwitchId, Tables, Target, Topology, TopologySpec, TorusRouting, flow_hash,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const PAIRS: u32 = 1 << 16;
const ROUNDS: usize = 7;

fn main() {
    println!("{:<44} {:>9} {:>9} {:>10} {:>8}", "set-up", "endpoints", "links", "time", "memory");
    set_up("fat tree of three tiers", &shapes::clos(65_536, [32, 32, 64]));
    set_up("Clos of three tiers, rails", &shapes::rails(131_072, [64, 64, 256]));
    let minimal = DragonflyRouting::Minimal;
    set_up("dragonfly 911 x 48, h = 24", &shapes::dragonfly([911, 48, 24, 24], minimal));
    set_up("dragonfly+ 1025 x (32 + 32), h = 32", &shapes::plus([1_025, 32, 32, 32, 32]));
    set_up("torus 128 x 128 x 64", &shapes::torus(&[128, 128, 64], TorusRouting::DimensionOrder));
    set_up("full mesh 32 x 32 x 32, 32 hosts", &shapes::mesh(&[32, 32, 32], 32, MeshRouting::Minimal));
    set_up("bcube of 32 ports, 4 levels", &shapes::bcube(32, 4));
    set_up("hammingmesh, 4 x 4 in 256 x 256", &shapes::hammingmesh(4, 256));
    let buildings = shapes::buildings(8, 16_384, shapes::railed(), [64, 32, 64], 4_096);
    set_up("8 buildings of Clos, rails", &buildings);

    println!(
        "\n{:<44} {:>9} {:>8} {:>9} {:>9} {:>9} {:>8}",
        "ns per next hop", "endpoints", "whole", "1% failed", "weighted", "cold", "memory"
    );
    hops("fat tree", shapes::clos(65_536, [32, 32, 64]));
    hops("torus, dimension order", shapes::torus(&[16, 16, 16], TorusRouting::DimensionOrder));
    hops("torus, minimal adaptive", shapes::torus(&[16, 16, 16], TorusRouting::MinimalAdaptive));
    hops("dragonfly 65 x 16, h = 4, 4 hosts", shapes::dragonfly([65, 16, 4, 4], minimal));
    hops("dragonfly 256 x 16, h = 16", shapes::dragonfly([256, 16, 16, 1], minimal));
    hops("the same, UGAL-L", shapes::dragonfly([256, 16, 16, 1], DragonflyRouting::UgalL));
    hops("the same, Valiant", shapes::dragonfly([256, 16, 16, 1], DragonflyRouting::Valiant));
    hops("dragonfly+ 65 x (8 + 8), h = 8, 8 hosts", shapes::plus([65, 8, 8, 8, 8]));
    hops("full mesh 16 x 16 x 16, 16 hosts", shapes::mesh(&[16, 16, 16], 16, MeshRouting::Minimal));
    hops("the same, one detour", shapes::mesh(&[16, 16, 16], 16, MeshRouting::OneDetour));
    hops("bcube of 8 ports, 4 levels", shapes::bcube(8, 4));
    hops("hammingmesh, 4 x 4 in 16 x 16", shapes::hammingmesh(4, 16));
    let host = HostSpec::new(1, 1, BitRate::from_gbps(400));
    hops("4 buildings of Clos", shapes::buildings(4, 16_384, host, [32, 32, 16], 2_048));

    ring("ring over a fat tree of 65,536 hosts", &shapes::clos(65_536, [32, 32, 64]));
}

fn best(rounds: usize, round: impl FnMut() -> f64) -> f64 {
    std::iter::repeat_with(round).take(rounds).fold(f64::INFINITY, f64::min)
}

/// Megabytes at peak since `memory::reset_peak`.
fn megabytes() -> u64 {
    memory::peak() >> 20
}

fn set_up(name: &str, spec: &TopologySpec) {
    memory::reset_peak();
    let (mut endpoints, mut links) = (0, 0);
    let seconds = best(3, || {
        let start = Instant::now();
        let topology = Topology::new(black_box(spec)).expect("a valid spec");
        let state: Vec<[u64; 4]> = (0..topology.link_count() as u64).map(|link| [link; 4]).collect();
        let target = topology.target(topology.nics() - 1, 0);
        let hop = topology.next_hop(topology.attachment(0, 0).0, &target, Itinerary::DIRECT, 1);
        black_box((hop, &state));
        (endpoints, links) = (topology.endpoints(), topology.link_count());
        start.elapsed().as_secs_f64()
    });
    println!("{name:<44} {endpoints:>9} {links:>9} {:>7.1} ms {:>5} MB", seconds * 1e3, megabytes());
}

/// What a switch is asked.
struct Question {
    at: SwitchId,
    to: Target,
    itinerary: Itinerary,
    hash: u64,
}

/// All hops of paths between random pairs.
fn questions(forwarder: &mut Forwarder) -> Vec<Question> {
    let topology = Arc::clone(forwarder.topology());
    let mut draws = RandomStream::new(1, "pairs", 0);
    let mut questions = Vec::new();
    for entropy in 0..PAIRS {
        let [from, to] = [(); 2].map(|()| draws.below(u64::from(topology.nics())) as u32);
        let hash = flow_hash(1, u64::from(from), u64::from(to), entropy);
        let plane = topology.plane(hash);
        let (mut at, target) = (topology.attachment(from, plane).0, topology.target(to, plane));
        let mut itinerary = topology.enter(at, &target, hash, |_| 0);
        loop {
            questions.push(Question { at, to: target, itinerary, hash });
            let Ok(hop) = forwarder.next_hop(at, &target, itinerary, hash) else { break };
            itinerary = hop.itinerary;
            let Some(Peer::Switch { switch, .. }) = topology.peer(at, hop.port) else { break };
            at = switch;
        }
    }
    questions
}

fn ask(forwarder: &mut Forwarder, questions: &[Question]) -> f64 {
    let start = Instant::now();
    for question in questions {
        black_box(forwarder.next_hop(question.at, &question.to, question.itinerary, question.hash)).ok();
    }
    start.elapsed().as_nanos() as f64
}

fn hops(name: &str, spec: TopologySpec) {
    let topology = Arc::new(Topology::new(&spec).expect("a valid spec"));
    let time = |weighted: bool, percent: u64| {
        memory::reset_peak();
        let mut forwarder = Forwarder::new(Arc::clone(&topology), Policy { weighted, ..Policy::default() });
        break_some(&mut forwarder, percent);
        let start = Instant::now();
        let questions = questions(&mut forwarder);
        let cold = start.elapsed().as_nanos() as f64 / questions.len() as f64;
        let warm: f64 =
            questions.chunks(8_192).map(|chunk| best(ROUNDS, || ask(&mut forwarder, chunk))).sum();
        (warm / questions.len() as f64, cold, megabytes())
    };
    let (whole, ..) = time(false, 0);
    let (broken, cold, memory) = time(false, 1);
    let (weighted, ..) = time(true, 1);
    println!(
        "{name:<44} {:>9} {whole:>8.1} {broken:>9.1} {weighted:>9.1} {cold:>9.0} {memory:>5} MB",
        topology.endpoints()
    );
}

/// Fails a share of the cables between switches, and lets everybody know.
fn break_some(forwarder: &mut Forwarder, percent: u64) {
    let topology = Arc::clone(forwarder.topology());
    let mut draws = RandomStream::new(1, "faults", 0);
    for switch in (0..topology.switches()).map(SwitchId) {
        for port in 0..topology.ports(switch) {
            let Some(Peer::Switch { switch: far, .. }) = topology.peer(switch, port) else { continue };
            if switch < far && draws.below(100) < percent {
                forwarder.fail_cable(topology.out_link(switch, port).expect("cabled"));
            }
        }
    }
    forwarder.converge();
}

/// A switch on the way to a NIC, and the hash of the flow, which a packet carries.
type Step = (SwitchId, u32, u64);

/// Another flow's hash in each round, so that no choice is made twice.
const fn reseed(hash: u64, round: u32) -> u64 {
    hash.wrapping_add((round as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// 75 million look-ups of a ring in random order, by rule and by tables, and one step of it as whole routes.
fn ring(name: &str, spec: &TopologySpec) {
    const LOOKUPS: usize = 75_000_000;
    let topology = Topology::new(spec).expect("a valid spec");
    let mut order: Vec<u32> = (0..topology.nics()).collect();
    let mut draws = RandomStream::new(1, "ring placement", 0);
    for last in (1..order.len()).rev() {
        order.swap(last, draws.below(last as u64 + 1) as usize);
    }
    let neighbours: Vec<(u32, u32)> =
        order.iter().copied().zip(order.iter().copied().cycle().skip(1)).collect();
    let mut route = Route::new();
    let step = best(ROUNDS, || {
        let start = Instant::now();
        for &(from, to) in &neighbours {
            let (from, to) = (EndpointId(from), EndpointId(to));
            topology.route(LoadBalancer::Ecmp, 1, from, to, NicId(0), 0, &mut route);
            black_box(&route);
        }
        start.elapsed().as_secs_f64()
    });
    println!("\n{name}: one step, {} paths, {:.2} ms", neighbours.len(), step * 1e3);
    let mut questions = Vec::new();
    for &(from, to) in &neighbours {
        let (hash, target) = (flow_hash(1, u64::from(from), u64::from(to), 0), topology.target(to, 0));
        let mut at = topology.attachment(from, 0).0;
        loop {
            questions.push((at, to, hash));
            let (port, _) = topology.next_hop(at, &target, Itinerary::DIRECT, hash);
            let Some(Peer::Switch { switch, .. }) = topology.peer(at, port) else { break };
            at = switch;
        }
    }
    let time = |look_up: &dyn Fn(&[Step], u32)| {
        let start = Instant::now();
        let (mut left, mut round) = (LOOKUPS, 0);
        while left > 0 {
            let part = &questions[..questions.len().min(left)];
            look_up(part, round);
            (left, round) = (left - part.len(), round + 1);
        }
        start.elapsed().as_secs_f64()
    };
    let by_rule = time(&|part, round| {
        for &(at, to, hash) in part {
            let target = topology.target(to, 0);
            black_box(topology.next_hop(at, &target, Itinerary::DIRECT, reseed(hash, round)));
        }
    });
    println!("{LOOKUPS} look-ups by rule: {by_rule:.2} s");
    memory::reset_peak();
    let start = Instant::now();
    let tables = Tables::build(&topology);
    let built = start.elapsed().as_secs_f64();
    println!("breadth-first tables: set-up {built:.2} s, {} MB", megabytes());
    let by_table = time(&|part, round| {
        for &(at, to, hash) in part {
            black_box(tables.next_hop(at, &topology.target(to, 0), reseed(hash, round)));
        }
    });
    println!("{LOOKUPS} look-ups by table: {by_table:.2} s");
}
