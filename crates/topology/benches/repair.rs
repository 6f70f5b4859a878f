//! A next hop on a whole and on a broken fabric: `cargo bench -p windtunnel-topology --bench repair`.
//!
//! The hops of paths between random pairs are collected beforehand; each figure adds up the fastest of several rounds for
//! every 8,192 of them.

#![allow(clippy::disallowed_methods, reason = "a benchmark is about the wall clock")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use windtunnel_kernel::{BitRate, RandomStream};
use windtunnel_topology::{
    BuildingSpec, CableSpec, ClosSpec, CrossSpec, DEFAULT_PROPAGATION_PS_PER_M, Dimension, DirectSpec,
    Forwarder, FullMeshSpec, HostSpec, Itinerary, MeshRouting, Peer, Policy, RegionsSpec, SwitchId, Target,
    Tier, Topology, TopologySpec, flow_hash,
};

const PAIRS: u32 = 1 << 16;
const ROUNDS: usize = 9;
const RATE: BitRate = BitRate::from_gbps(400);

fn main() {
    println!(
        "{:<42} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "ns/next hop", "whole", "one dead", "1% dead", "weighted", "converge"
    );
    let tiers = [32, 32, 64].map(|ports| Tier::new(ports, RATE)).to_vec();
    report(
        "fat tree, 65,536 hosts",
        TopologySpec::Clos(ClosSpec::new(65_536, HostSpec::new(1, 1, RATE), tiers)),
    );
    for (name, routing) in [("minimal", MeshRouting::Minimal), ("one detour", MeshRouting::OneDetour)] {
        report(&format!("full mesh 16^3, 65,536 hosts, {name}"), mesh(&[16, 16, 16], 16, routing));
    }
    report("4 buildings of Clos, 65,536 hosts", regions());
}

fn regions() -> TopologySpec {
    let building = |number: u32| BuildingSpec {
        name: format!("building{number}"),
        region: 0,
        hosts: 16_384,
        tiers: [32, 32, 16].map(|ports| Tier::new(ports, RATE)).to_vec(),
    };
    let pairs = (0..4).flat_map(|a| (0..a).map(move |b| [b, a]));
    TopologySpec::Regions(RegionsSpec {
        host: HostSpec::new(1, 1, RATE),
        buildings: (0..4).map(building).collect(),
        cross: pairs
            .map(|between| CrossSpec { between, count: 2_048, cable: CableSpec::new(RATE) })
            .collect(),
        propagation_ps_per_m: DEFAULT_PROPAGATION_PS_PER_M,
    })
}

fn mesh(sizes: &[u32], hosts_per_router: u32, routing: MeshRouting) -> TopologySpec {
    let cable = CableSpec::new(RATE);
    let dimensions = sizes.iter().map(|&size| Dimension { size, wrap: false, links: 1, cable }).collect();
    let direct = DirectSpec { hosts_per_router, ..DirectSpec::new(RATE) };
    TopologySpec::FullMesh(FullMeshSpec { direct, dimensions, routing })
}

struct Question {
    at: SwitchId,
    to: Target,
    itinerary: Itinerary,
    hash: u64,
}

fn report(name: &str, spec: TopologySpec) {
    let topology = Arc::new(Topology::new(&spec).expect("a valid spec"));
    let mut whole = Forwarder::new(Arc::clone(&topology), Policy::default());
    let mut one = whole.clone();
    break_some(&mut one, u64::MAX);
    one.converge();
    let mut broken = whole.clone();
    break_some(&mut broken, 100);
    let start = Instant::now();
    broken.converge();
    let converge = start.elapsed().as_nanos() as f64 / 1e6;
    let mut weighted = Forwarder::new(Arc::clone(&topology), Policy { weighted: true, ..Policy::default() });
    break_some(&mut weighted, 100);
    weighted.converge();
    let figures = [&mut whole, &mut one, &mut broken, &mut weighted].map(time);
    println!(
        "{name:<42} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {converge:>6.2} ms",
        figures[0], figures[1], figures[2], figures[3]
    );
}

/// Fails one cable between switches in `of`, and at least one.
fn break_some(forwarder: &mut Forwarder, of: u64) {
    let topology = Arc::clone(forwarder.topology());
    let mut draws = RandomStream::new(1, "faults", 0);
    for switch in (0..topology.switches()).map(SwitchId) {
        for port in 0..topology.ports(switch) {
            let Some(Peer::Switch { switch: far, .. }) = topology.peer(switch, port) else { continue };
            if switch < far && draws.below(of) == 0 || forwarder.is_whole() {
                forwarder.fail_cable(topology.out_link(switch, port).expect("cabled"));
            }
        }
    }
}

fn time(forwarder: &mut Forwarder) -> f64 {
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
    let best = |chunk: &[Question]| {
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for question in chunk {
                black_box(forwarder.next_hop(question.at, &question.to, question.itinerary, question.hash))
                    .ok();
            }
            best = best.min(start.elapsed().as_nanos() as f64);
        }
        best
    };
    // Short spans, so that the fastest of them are not those of a machine at work on something else; long enough that
    // what one asks is out of the nearest cache when it is asked again.
    questions.chunks(8_192).map(best).sum::<f64>() / questions.len() as f64
}
