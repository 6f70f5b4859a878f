//! The fabrics that are measured.

use windtunnel_kernel::{BitRate, Span};
use windtunnel_topology::{
    BCubeSpec, BuildingSpec, CableSpec, ClosSpec, CrossSpec, DEFAULT_PROPAGATION_PS_PER_M, Dimension,
    DirectSpec, DragonflyPlusSpec, DragonflyRouting, DragonflySpec, FullMeshSpec, HammingMeshSpec, HostSpec,
    MeshRouting, RegionsSpec, Tier, TopologySpec, TorusRouting, TorusSpec,
};

const RATE: BitRate = BitRate::from_gbps(400);
const CABLE: CableSpec = CableSpec::new(RATE);

/// Hosts of one GPU under three tiers.
pub fn clos(hosts: u32, ports: [u32; 3]) -> TopologySpec {
    let tiers = ports.map(|ports| Tier::new(ports, RATE)).to_vec();
    TopologySpec::Clos(ClosSpec::new(hosts, HostSpec::new(1, 1, RATE), tiers))
}

/// Hosts of 8 GPUs on 8 rails under three tiers.
pub fn rails(hosts: u32, ports: [u32; 3]) -> TopologySpec {
    let tiers = ports.map(|ports| Tier::new(ports, RATE)).to_vec();
    TopologySpec::Clos(ClosSpec::new(hosts, HostSpec { rails: true, ..HostSpec::new(8, 8, RATE) }, tiers))
}

fn dimensions(sizes: &[u32], wrap: bool) -> Vec<Dimension> {
    sizes.iter().map(|&size| Dimension { size, wrap, links: 1, cable: CABLE }).collect()
}

pub fn torus(sizes: &[u32], routing: TorusRouting) -> TopologySpec {
    let dimensions = dimensions(sizes, true);
    TopologySpec::Torus(TorusSpec { direct: DirectSpec::new(RATE), dimensions, routing })
}

pub fn mesh(sizes: &[u32], hosts: u32, routing: MeshRouting) -> TopologySpec {
    let dimensions = dimensions(sizes, false);
    TopologySpec::FullMesh(FullMeshSpec { direct: direct(hosts), dimensions, routing })
}

fn direct(hosts_per_router: u32) -> DirectSpec {
    DirectSpec { hosts_per_router, ..DirectSpec::new(RATE) }
}

/// Groups, routers, global links and hosts of a router.
pub fn dragonfly(
    [groups, routers, global_links, hosts]: [u32; 4],
    routing: DragonflyRouting,
) -> TopologySpec {
    let (direct, local, global) = (direct(hosts), CABLE, CABLE);
    TopologySpec::Dragonfly(DragonflySpec { direct, groups, routers, global_links, local, global, routing })
}

/// Groups, leaves, spines, global links of a spine, hosts of a leaf.
pub fn plus([groups, leaves, spines, global_links, hosts]: [u32; 5]) -> TopologySpec {
    let (direct, local, global) = (direct(hosts), CABLE, CABLE);
    let routing = DragonflyRouting::Minimal;
    let spec = DragonflyPlusSpec { direct, groups, leaves, spines, global_links, local, global, routing };
    TopologySpec::DragonflyPlus(spec)
}

pub fn bcube(ports: u32, levels: u32) -> TopologySpec {
    let direct = DirectSpec::new(RATE);
    TopologySpec::BCube(BCubeSpec { direct, ports, levels, cable: CABLE, switch_latency: Span::ZERO })
}

pub fn hammingmesh(board: u32, boards: u32) -> TopologySpec {
    TopologySpec::HammingMesh(HammingMeshSpec {
        direct: DirectSpec::new(RATE),
        board: [board; 2],
        boards: [boards; 2],
        board_cable: CABLE,
        switch_cable: CABLE,
        switch_latency: Span::ZERO,
    })
}

/// Buildings of `hosts` hosts of `host` under three tiers, each pair joined by `count` cables.
pub fn buildings(number: u32, hosts: u32, host: HostSpec, ports: [u32; 3], count: u32) -> TopologySpec {
    let building = |number: u32| BuildingSpec {
        name: format!("building{number}"),
        region: 0,
        hosts,
        tiers: ports.map(|ports| Tier::new(ports, RATE)).to_vec(),
        scale_up: None,
    };
    let pairs = (0..number).flat_map(|a| (0..a).map(move |b| [b, a]));
    TopologySpec::Regions(RegionsSpec {
        host,
        buildings: (0..number).map(building).collect(),
        cross: pairs.map(|between| CrossSpec { between, count, cable: CABLE }).collect(),
        propagation_ps_per_m: DEFAULT_PROPAGATION_PS_PER_M,
    })
}

/// A host of 8 GPUs on 8 rails.
pub fn railed() -> HostSpec {
    HostSpec { rails: true, ..HostSpec::new(8, 8, RATE) }
}
