//! Tori, BCubes and HammingMeshes: set-up at a million endpoints with a state for every directed port, next hops over
//! random pairs, and the same with 1% of the cables failed and a warm cache:
//! `cargo bench -p windtunnel-topology --bench shapes_torus`.

#![allow(clippy::disallowed_methods, reason = "a benchmark is about the wall clock")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use windtunnel_kernel::{BitRate, RandomStream, Span};
use windtunnel_topology::{
    BCubeSpec, CableSpec, Dimension, DirectSpec, Forwarder, HammingMeshSpec, Itinerary, Peer, Policy,
    SwitchId, Target, Topology, TopologySpec, TorusRouting, TorusSpec, flow_hash,
};

const PAIRS: usize = 1 << 16;
const ROUNDS: usize = 7;
const RATE: BitRate = BitRate::from_gbps(400);

fn main() {
    println!("{:<34} {:>9} {:>10} {:>9} {:>8}", "set-up", "endpoints", "ports", "time", "peak RSS");
    for (name, spec) in [
        ("torus 128 x 128 x 64", torus([128, 128, 64], TorusRouting::DimensionOrder)),
        ("bcube of 32 ports, 4 levels", bcube(32, 4)),
        ("hammingmesh, 4 x 4 in 256 x 256", hammingmesh(4, 256)),
    ] {
        set_up(name, &spec);
    }
    println!("\n{:<34} {:>9} {:>9} {:>11}", "next hop", "endpoints", "whole", "1% failed");
    for (name, spec) in [
        ("torus, dimension order", torus([16, 16, 16], TorusRouting::DimensionOrder)),
        ("torus, adaptive", torus([16, 16, 16], TorusRouting::MinimalAdaptive)),
        ("torus, dimension order", torus([64, 32, 32], TorusRouting::DimensionOrder)),
        ("torus, adaptive", torus([64, 32, 32], TorusRouting::MinimalAdaptive)),
        ("bcube", bcube(8, 4)),
        ("bcube", bcube(16, 4)),
        ("hammingmesh", hammingmesh(4, 16)),
        ("hammingmesh", hammingmesh(4, 64)),
    ] {
        hops(name, &spec);
    }
    println!("\npeak RSS {} MB", peak_rss_mb().map_or("?".to_owned(), |mb| mb.to_string()));
}

fn torus(sizes: [u32; 3], routing: TorusRouting) -> TopologySpec {
    let cable = CableSpec::new(RATE);
    let dimension = |size| Dimension { size, wrap: true, links: 1, cable };
    let dimensions = sizes.map(dimension).to_vec();
    TopologySpec::Torus(TorusSpec { direct: DirectSpec::new(RATE), dimensions, routing })
}

fn bcube(ports: u32, levels: u32) -> TopologySpec {
    let (direct, cable) = (DirectSpec::new(RATE), CableSpec::new(RATE));
    TopologySpec::BCube(BCubeSpec { direct, ports, levels, cable, switch_latency: Span::ZERO })
}

fn hammingmesh(board: u32, boards: u32) -> TopologySpec {
    let cable = CableSpec::new(RATE);
    TopologySpec::HammingMesh(HammingMeshSpec {
        direct: DirectSpec::new(RATE),
        board: [board; 2],
        boards: [boards; 2],
        board_cable: cable,
        switch_cable: cable,
        switch_latency: Span::ZERO,
    })
}

/// From spec to first hop, with 32 bytes for every directed port allocated and written.
fn set_up(name: &str, spec: &TopologySpec) {
    /// Its link, its peer, and what an engine would keep: bytes waiting, bytes sent, free again at.
    type Port = [u64; 4];
    let mut ports = 0;
    let mut endpoints = 0;
    let time = best(3, || {
        let start = Instant::now();
        let topology = Topology::new(spec).expect("a valid spec");
        let mut state: Vec<Port> = Vec::with_capacity(topology.link_count());
        for switch in (0..topology.switches()).map(SwitchId) {
            for port in 0..topology.ports(switch) {
                let Some(peer) = topology.peer(switch, port) else { continue };
                let link = topology.out_link(switch, port).expect("cabled").0;
                let peer = match peer {
                    Peer::Switch { switch, .. } => switch.0,
                    Peer::Nic { nic, .. } => nic,
                };
                state.push([u64::from(link), u64::from(peer), 0, 0]);
            }
        }
        for nic in 0..topology.nics() {
            let link = topology.nic_link(nic, 0).0;
            let peer = topology.attachment(nic, 0).0.0;
            state.push([u64::from(link), u64::from(peer), 0, 0]);
        }
        let target = topology.target(topology.nics() - 1, 0);
        black_box(topology.next_hop(topology.attachment(0, 0).0, &target, Itinerary::DIRECT, 1));
        (ports, endpoints) = (state.len(), topology.endpoints());
        black_box(&state);
        start.elapsed().as_secs_f64()
    });
    let rss = peak_rss_mb().map_or("?".to_owned(), |mb| mb.to_string());
    println!("{name:<34} {endpoints:>9} {ports:>10} {time:>7.3} s {rss:>5} MB");
}

/// Nanoseconds per hop: single hops from random switches to random destinations, no hop depending on another.
fn hops(name: &str, spec: &TopologySpec) {
    let topology = Arc::new(Topology::new(spec).expect("a valid spec"));
    let mut draws = RandomStream::new(1, "pairs", u64::from(topology.endpoints()));
    let mut draw = || draws.below(u64::from(topology.nics())) as u32;
    let mut pairs: Vec<(SwitchId, Target, u64)> = Vec::new();
    while pairs.len() < PAIRS {
        let (from, to) = (draw(), draw());
        let (at, target) = (topology.attachment(from, 0).0, topology.target(to, 0));
        if at != target.switch {
            pairs.push((at, target, flow_hash(1, u64::from(from), u64::from(to), 0)));
        }
    }
    let whole = time(&pairs, |(at, target, hash)| {
        black_box(topology.next_hop(*at, target, Itinerary::DIRECT, *hash));
    });
    print!("{name:<34} {:>9} {whole:>6.1} ns", topology.endpoints());
    // A field for each of 65,536 destinations is not what a cache is for.
    if topology.switches() > 10_000 {
        println!();
        return;
    }
    let mut forwarder = Forwarder::new(Arc::clone(&topology), Policy::default());
    for switch in (0..topology.switches()).map(SwitchId) {
        for port in 0..topology.ports(switch) {
            if let Some(Peer::Switch { .. }) = topology.peer(switch, port) {
                let link = topology.out_link(switch, port).expect("cabled");
                if link < topology.reverse(link) && draws.below(100) == 0 {
                    forwarder.fail_cable(link);
                }
            }
        }
    }
    forwarder.converge();
    let hop = |(at, target, hash): &(SwitchId, Target, u64)| {
        let _ = black_box(forwarder.next_hop(*at, target, Itinerary::DIRECT, *hash));
    };
    // The first round of all builds the fields.
    let failed = time(&pairs, hop);
    println!(" {failed:>8.1} ns");
}

/// Nanoseconds of `work` on an item: of each thousand the fastest of several rounds, so that a busy machine counts for
/// little.
fn time<T>(items: &[T], mut work: impl FnMut(&T)) -> f64 {
    let slices: Vec<&[T]> = items.chunks(1 << 10).collect();
    let mut fastest = vec![u128::MAX; slices.len()];
    for _ in 0..ROUNDS {
        for (slice, fastest) in slices.iter().zip(&mut fastest) {
            let start = Instant::now();
            slice.iter().for_each(&mut work);
            *fastest = start.elapsed().as_nanos().min(*fastest);
        }
    }
    fastest.iter().sum::<u128>() as f64 / items.len() as f64
}

fn best(rounds: usize, round: impl FnMut() -> f64) -> f64 {
    std::iter::repeat_with(round).take(rounds).fold(f64::INFINITY, f64::min)
}

/// The process's peak so far, where the system tells.
fn peak_rss_mb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kb| kb / 1024)
}
