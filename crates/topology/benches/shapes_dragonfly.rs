//! Dragonfly and dragonfly+: set-up at a million endpoints with a state for every directed port, next hops over the hops
//! of paths between random pairs, and the same with 1% of the cables failed and a warm cache:
//! `cargo bench -p windtunnel-topology --bench shapes_dragonfly`.

#![allow(clippy::disallowed_methods, reason = "a benchmark is about the wall clock")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use windtunnel_kernel::{BitRate, RandomStream};
use windtunnel_topology::{
    CableSpec, DirectSpec, DragonflyPlusSpec, DragonflyRouting, DragonflySpec, Forwarder, Itinerary, Peer,
    Policy, SwitchId, Target, Topology, TopologySpec, flow_hash,
};

const PAIRS: u32 = 1 << 16;
const ROUNDS: usize = 7;
const RATE: BitRate = BitRate::from_gbps(400);

fn main() {
    use DragonflyRouting::{Minimal, UgalL, Valiant};
    println!("{:<40} {:>9} {:>10} {:>9} {:>8}", "set-up", "endpoints", "ports", "time", "peak RSS");
    // Nearly balanced (a = 2 p = 2 h), and a dragonfly+ of 64-port switches.
    set_up("dragonfly 911 x 48, h = 24", &dragonfly([911, 48, 24, 24], Minimal));
    set_up("dragonfly+ 1025 x (32 + 32), h = 32", &plus([1_025, 32, 32, 32, 32], Minimal));
    println!(
        "\n{:<40} {:>9} {:>8} {:>9} {:>11} {:>9} {:>8}",
        "ns/next hop", "endpoints", "whole", "1% failed", "(cold)", "entering", "peak RSS"
    );
    for (name, routing) in [("minimal", Minimal), ("Valiant", Valiant), ("UGAL-L", UgalL)] {
        hops(&format!("dragonfly 256 x 16, h = 16, {name}"), &dragonfly([256, 16, 16, 1], routing));
    }
    hops("dragonfly 65 x 16, h = 4 (4 NICs)", &dragonfly([65, 16, 4, 4], Minimal));
    hops("dragonfly 256 x 16, h = 16 (16 NICs)", &dragonfly([256, 16, 16, 16], Minimal));
    for (name, routing) in [("minimal", Minimal), ("Valiant", Valiant)] {
        hops(&format!("dragonfly+ 257 x (16 + 16), h = 16, {name}"), &plus([257, 16, 16, 16, 16], routing));
    }
}

fn direct(hosts_per_router: u32) -> DirectSpec {
    DirectSpec { hosts_per_router, ..DirectSpec::new(RATE) }
}

fn dragonfly([groups, routers, global_links, hosts]: [u32; 4], routing: DragonflyRouting) -> TopologySpec {
    let (direct, cable) = (direct(hosts), CableSpec::new(RATE));
    TopologySpec::Dragonfly(DragonflySpec {
        direct,
        groups,
        routers,
        global_links,
        local: cable,
        global: cable,
        routing,
    })
}

fn plus([groups, leaves, spines, global_links, hosts]: [u32; 5], routing: DragonflyRouting) -> TopologySpec {
    let (direct, cable) = (direct(hosts), CableSpec::new(RATE));
    TopologySpec::DragonflyPlus(DragonflyPlusSpec {
        direct,
        groups,
        leaves,
        spines,
        global_links,
        local: cable,
        global: cable,
        routing,
    })
}

/// From spec to first hop, with 32 bytes for every directed port allocated and written.
fn set_up(name: &str, spec: &TopologySpec) {
    /// Its link, its peer, and what an engine would keep: bytes waiting, bytes sent, free again at.
    type Port = [u64; 4];
    let (mut ports, mut endpoints) = (0, 0);
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
            let (link, peer) = (topology.nic_link(nic, 0).0, topology.attachment(nic, 0).0.0);
            state.push([u64::from(link), u64::from(peer), 0, 0]);
        }
        let target = topology.target(topology.nics() - 1, 0);
        black_box(topology.next_hop(topology.attachment(0, 0).0, &target, Itinerary::DIRECT, 1));
        (ports, endpoints) = (state.len(), topology.endpoints());
        black_box(&state);
        start.elapsed().as_secs_f64()
    });
    println!("{name:<40} {endpoints:>9} {ports:>10} {time:>7.3} s {:>5} MB", peak_rss_mb());
}

struct Question {
    at: SwitchId,
    to: Target,
    itinerary: Itinerary,
    hash: u64,
}

/// What packets between random pairs ask on their way, at every switch but the last.
fn questions(topology: &Topology, pairs: u32) -> Vec<Question> {
    let mut draws = RandomStream::new(1, "pairs", u64::from(topology.endpoints()));
    let mut questions = Vec::new();
    for entropy in 0..pairs {
        let [from, to] = [(); 2].map(|()| draws.below(u64::from(topology.nics())) as u32);
        let hash = flow_hash(1, u64::from(from), u64::from(to), entropy);
        let (mut at, to) = (topology.attachment(from, 0).0, topology.target(to, 0));
        let mut itinerary = topology.enter(at, &to, hash, |port| u64::from(port) * 500);
        while at != to.switch || itinerary.waypoint().is_some_and(|waypoint| waypoint != at) {
            questions.push(Question { at, to, itinerary, hash });
            let (port, next) = topology.next_hop(at, &to, itinerary, hash);
            let Some(Peer::Switch { switch, .. }) = topology.peer(at, port) else {
                unreachable!("a next hop leads to a switch")
            };
            (at, itinerary) = (switch, next);
        }
    }
    questions
}

fn hops(name: &str, spec: &TopologySpec) {
    let topology = Arc::new(Topology::new(spec).expect("a valid spec"));
    let asked = questions(&topology, PAIRS);
    let per = |start: Instant| start.elapsed().as_nanos() as f64 / asked.len() as f64;
    let whole = best(ROUNDS, || {
        let start = Instant::now();
        for Question { at, to, itinerary, hash } in &asked {
            black_box(topology.next_hop(*at, to, *itinerary, *hash));
        }
        per(start)
    });
    let entering = best(ROUNDS, || {
        let start = Instant::now();
        for Question { at, to, hash, .. } in &asked {
            black_box(topology.enter(*at, to, *hash, |port| u64::from(port) * 500));
        }
        per(start)
    });
    let mut forwarder = Forwarder::new(Arc::clone(&topology), Policy::default());
    let mut draws = RandomStream::new(2, "faults", 0);
    for switch in (0..topology.switches()).map(SwitchId) {
        for port in 0..topology.ports(switch) {
            let Some(Peer::Switch { switch: far, .. }) = topology.peer(switch, port) else { continue };
            if switch < far && draws.below(100) == 0 {
                forwarder.fail_cable(topology.out_link(switch, port).expect("cabled"));
            }
        }
    }
    forwarder.converge();
    let mut round = || {
        let start = Instant::now();
        for Question { at, to, itinerary, hash } in &asked {
            let _ = black_box(forwarder.next_hop(*at, to, *itinerary, *hash));
        }
        per(start)
    };
    let cold = round();
    let warm = best(ROUNDS, round);
    println!(
        "{name:<40} {:>9} {whole:>8.1} {warm:>9.1} {cold:>11.1} {entering:>9.1} {:>5} MB",
        topology.endpoints(),
        peak_rss_mb()
    );
}

fn best(rounds: usize, round: impl FnMut() -> f64) -> f64 {
    std::iter::repeat_with(round).take(rounds).fold(f64::INFINITY, f64::min)
}

/// The process's peak so far, where the system tells.
fn peak_rss_mb() -> String {
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    };
    peak().map_or("?".to_owned(), |kb| (kb / 1024).to_string())
}
