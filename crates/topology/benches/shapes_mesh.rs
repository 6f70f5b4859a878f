//! Set-up of full meshes and regions at a million endpoints: `cargo bench -p windtunnel-topology --bench shapes_mesh`.
//!
//! From the spec to the first next hop, with a state of 32 B for every directed link allocated and written.

#![allow(clippy::disallowed_methods, reason = "a benchmark is about the wall clock")]

use std::hint::black_box;
use std::time::Instant;

use windtunnel_kernel::BitRate;
use windtunnel_topology::{
    BuildingSpec, CableSpec, CrossSpec, DEFAULT_PROPAGATION_PS_PER_M, Dimension, DirectSpec, FullMeshSpec,
    HostSpec, Itinerary, MeshRouting, RegionsSpec, Tier, Topology, TopologySpec, flow_hash,
};

const RATE: BitRate = BitRate::from_gbps(400);

fn main() {
    println!("{:<34} {:>9} {:>10} {:>10}", "1,048,576 endpoints", "links", "set-up", "with state");
    report("full mesh 16 x 16 x 64, 8 x 8 GPUs", &mesh());
    report("8 buildings of Clos, 8 rails", &regions());
}

fn report(name: &str, spec: &TopologySpec) {
    let (mut rules, mut whole, mut links) = (f64::INFINITY, f64::INFINITY, 0);
    for _ in 0..5 {
        let start = Instant::now();
        let topology = Topology::new(black_box(spec)).expect("a valid spec");
        rules = rules.min(start.elapsed().as_secs_f64());
        let state: Vec<[u64; 4]> = (0..topology.link_count() as u64).map(|link| [link; 4]).collect();
        let (from, to) = (0, topology.nics() - 1);
        let at = topology.attachment(from, 0).0;
        let hash = flow_hash(1, u64::from(from), u64::from(to), 0);
        black_box((topology.next_hop(at, &topology.target(to, 0), Itinerary::DIRECT, hash), &state));
        whole = whole.min(start.elapsed().as_secs_f64());
        links = topology.link_count();
    }
    println!("{name:<34} {links:>9} {:>7.1} us {:>7.1} ms", rules * 1e6, whole * 1e3);
}

fn mesh() -> TopologySpec {
    let cable = CableSpec::new(RATE);
    let dimensions = [16, 16, 64].map(|size| Dimension { size, wrap: false, links: 1, cable }).to_vec();
    let host = HostSpec::new(8, 8, RATE);
    let direct = DirectSpec { host, hosts_per_router: 8, ..DirectSpec::new(RATE) };
    TopologySpec::FullMesh(FullMeshSpec { direct, dimensions, routing: MeshRouting::Minimal })
}

fn regions() -> TopologySpec {
    let building = |number: u32| BuildingSpec {
        name: format!("building{number}"),
        region: number / 4,
        hosts: 16_384,
        tiers: [64, 32, 64].map(|ports| Tier::new(ports, RATE)).to_vec(),
    };
    let pairs = (0..8).flat_map(|a| (0..a).map(move |b| [b, a]));
    TopologySpec::Regions(RegionsSpec {
        host: HostSpec { rails: true, ..HostSpec::new(8, 8, RATE) },
        buildings: (0..8).map(building).collect(),
        cross: pairs
            .map(|between| CrossSpec { between, count: 4_096, cable: CableSpec::new(RATE) })
            .collect(),
        propagation_ps_per_m: DEFAULT_PROPAGATION_PS_PER_M,
    })
}
