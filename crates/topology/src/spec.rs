//! What a topology is built from: plain values, already in base units. The scenario crate reads them from YAML.

use windtunnel_kernel::{BitRate, Span};

/// Propagation in fibre and copper: 5 ns a metre (refractive index 1.5).
pub const DEFAULT_PROPAGATION_PS_PER_M: u64 = 5_000;

/// A shape with its sizes.
#[derive(Clone, Debug, PartialEq)]
pub enum TopologySpec {
    /// Leaves, spines and so on: a folded Clos network of any number of tiers.
    Clos(ClosSpec),
    /// An n-dimensional torus or mesh.
    Torus(TorusSpec),
    /// Groups of routers, fully meshed within and joined by global cables.
    Dragonfly(DragonflySpec),
    /// Groups of leaves and spines, joined by global cables between the spines.
    DragonflyPlus(DragonflyPlusSpec),
    /// An explicit graph, imported from a file; routed by tables.
    Graph(crate::graph::GraphSpec),
    /// Servers that forward, and switches in levels.
    BCube(BCubeSpec),
    /// Boards in rows and columns joined by switches.
    HammingMesh(HammingMeshSpec),
    /// A full mesh in every dimension: HyperX, UB-Mesh.
    FullMesh(FullMeshSpec),
    /// Buildings, each with its own Clos, joined at the top.
    Regions(RegionsSpec),
}

/// A folded Clos network.
///
/// A switch of tier i has `tiers[i].ports_down` ports downwards, at the rate of its tier, and as many uplinks, at the
/// rate of the next tier, as its oversubscription asks for. A block of tier 0 is a leaf; a block of tier i + 1 (of
/// tier 1: a pod) joins `tiers[i+1].ports_down / bundle` blocks of tier i such that every switch at the top of a lower
/// block has `bundle` links to each of its own group of switches in tier i + 1.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosSpec {
    /// Number of hosts, packed from the first port on; ports beyond them stay unused.
    pub hosts: u32,
    /// Every host.
    pub host: HostSpec,
    /// From the leaves up; at least one.
    pub tiers: Vec<Tier>,
    /// Copies of the switch fabric; every NIC has one port of 1/planes of its rate into each.
    pub planes: u32,
    /// Propagation delay in picoseconds per metre.
    pub propagation_ps_per_m: u64,
}

/// A kind of cable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CableSpec {
    /// Per direction.
    pub rate: BitRate,
    /// In millimetres.
    pub length_mm: u64,
    /// Share of packets lost at random, 0 to 1.
    pub loss: f64,
}

impl CableSpec {
    /// A cable of length 0 that loses nothing.
    pub const fn new(rate: BitRate) -> Self {
        Self { rate, length_mm: 0, loss: 0.0 }
    }
}

/// What the shapes without tiers have in common: hosts hang on routers, evenly and in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectSpec {
    /// Every host. `rails` must be false: all NICs of a host hang on its router.
    pub host: HostSpec,
    /// Hosts of a router (of a dragonfly+ of a leaf).
    pub hosts_per_router: u32,
    /// Between a NIC and its router.
    pub nic: CableSpec,
    /// Pipeline delay of a router.
    pub router_latency: Span,
    /// Propagation delay in picoseconds per metre.
    pub propagation_ps_per_m: u64,
}

impl DirectSpec {
    /// One host of one GPU and one NIC a router, cables of length 0 and routers without delay.
    pub const fn new(rate: BitRate) -> Self {
        Self {
            host: HostSpec::new(1, 1, rate),
            hosts_per_router: 1,
            nic: CableSpec::new(rate),
            router_latency: Span::ZERO,
            propagation_ps_per_m: DEFAULT_PROPAGATION_PS_PER_M,
        }
    }
}

/// A dimension of a torus, mesh or full mesh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dimension {
    /// Routers along it; at least 1.
    pub size: u32,
    /// Of a torus: whether the last is joined to the first. Means nothing in a full mesh.
    pub wrap: bool,
    /// Parallel cables between neighbours; at least 1.
    pub links: u32,
    /// Each of them.
    pub cable: CableSpec,
}

/// An n-dimensional torus or mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct TorusSpec {
    /// Routers and their hosts.
    pub direct: DirectSpec,
    /// The last one varies fastest in the numbers of routers.
    pub dimensions: Vec<Dimension>,
    /// Which paths are legal.
    pub routing: TorusRouting,
}

windtunnel_kernel::named! {
    /// A shape by the name that a scenario gives it.
    pub enum ShapeName: "shape" {
        Clos = "clos", "folded Clos of any number of tiers, with rails, planes and bundles";
        FatTree = "fat-tree", "fat tree of switches with k ports: a Clos of three tiers";
        Torus = "torus", "torus of any number of dimensions, wrap-around per dimension";
        Mesh = "mesh", "mesh of any number of dimensions";
        FullMesh = "full-mesh" | "hyperx" | "ub-mesh", "full mesh in every dimension (HyperX, UB-Mesh)";
        Dragonfly = "dragonfly", "groups of routers joined in pairs, each group a full mesh";
        DragonflyPlus = "dragonfly-plus", "groups of leaves and spines, joined in pairs by their spines";
        BCube = "bcube", "servers that forward, switches in levels";
        HammingMesh = "hamming-mesh", "boards of accelerators, rows and columns of boards joined by switches";
        Regions = "regions", "buildings, each a Clos, joined by long cables";
        Graph = "graph", "nodes and links from a file";
    }
}

windtunnel_kernel::named! {
    /// Which paths are legal, by the name that a scenario gives it; each shape has some of them.
    pub enum Routing: "routing" {
        DimensionOrder = "dimension-order", "the first dimension in which the ends differ first, the shorter way round";
        MinimalAdaptive = "minimal-adaptive", "any path of least length";
        Minimal = "minimal", "the shortest paths";
        OneDetour = "one-detour", "paths by way of one more router at the start too (UB-Mesh's all-path routing)";
        Valiant = "valiant", "by way of a router drawn for each flow";
        UgalL = "ugal-l", "minimal or Valiant, by the queues of the first router";
    }
}

/// Legal paths in a torus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TorusRouting {
    /// The first dimension in which the ends differ first, the shorter way round; of two equal ways the ascending one.
    #[default]
    DimensionOrder,
    /// Any path of least length.
    MinimalAdaptive,
}

impl TorusRouting {
    /// By their names, the usual one first.
    pub const NAMED: &'static [(Routing, Self)] =
        &[(Routing::DimensionOrder, Self::DimensionOrder), (Routing::MinimalAdaptive, Self::MinimalAdaptive)];
}

/// A full mesh in every dimension: HyperX (Ahn et al., SC'09), UB-Mesh, flattened butterfly.
#[derive(Clone, Debug, PartialEq)]
pub struct FullMeshSpec {
    /// Routers and their hosts.
    pub direct: DirectSpec,
    /// The last one varies fastest in the numbers of routers.
    pub dimensions: Vec<Dimension>,
    /// Which paths are legal.
    pub routing: MeshRouting,
}

/// Legal paths in a full mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum MeshRouting {
    /// One hop in every dimension in which the ends differ, in any order.
    #[default]
    Minimal,
    /// One hop more: at the first router a packet may go by way of any third router of one dimension in which the ends
    /// differ (UB-Mesh's all-path routing).
    OneDetour,
}

impl MeshRouting {
    /// By their names, the usual one first.
    pub const NAMED: &'static [(Routing, Self)] =
        &[(Routing::Minimal, Self::Minimal), (Routing::OneDetour, Self::OneDetour)];
}

/// A dragonfly (Kim, Dally, Scott, Abts, ISCA'08).
#[derive(Clone, Debug, PartialEq)]
pub struct DragonflySpec {
    /// Routers and their hosts (p = hosts · NICs).
    pub direct: DirectSpec,
    /// Groups, g; at most a · h + 1.
    pub groups: u32,
    /// Routers of a group, a: a full mesh.
    pub routers: u32,
    /// Global cables of a router, h.
    pub global_links: u32,
    /// Between routers of a group.
    pub local: CableSpec,
    /// Between groups.
    pub global: CableSpec,
    /// Which paths are legal.
    pub routing: DragonflyRouting,
}

/// A dragonfly+ (Shpiner et al., HiPINEB'17): each group is a two-level Clos whose spines have the global cables.
#[derive(Clone, Debug, PartialEq)]
pub struct DragonflyPlusSpec {
    /// Leaves and their hosts.
    pub direct: DirectSpec,
    /// Groups; at most spines · global_links + 1.
    pub groups: u32,
    /// Leaves of a group.
    pub leaves: u32,
    /// Spines of a group, each joined to every leaf.
    pub spines: u32,
    /// Global cables of a spine.
    pub global_links: u32,
    /// Between leaves and spines.
    pub local: CableSpec,
    /// Between groups.
    pub global: CableSpec,
    /// Which paths are legal.
    pub routing: DragonflyRouting,
}

/// Legal paths in a dragonfly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DragonflyRouting {
    /// At most one global link.
    #[default]
    Minimal,
    /// By way of a router drawn for the flow, each leg minimal.
    Valiant,
    /// Minimal or Valiant, whichever has less waiting at the first router times its length (UGAL-L).
    UgalL,
}

impl DragonflyRouting {
    /// By their names, the usual one first.
    pub const NAMED: &'static [(Routing, Self)] = &[
        (Routing::Minimal, Self::Minimal),
        (Routing::Valiant, Self::Valiant),
        (Routing::UgalL, Self::UgalL),
    ];
}

/// A BCube (Guo et al., SIGCOMM'09): servers forward, switches of n ports stand in levels. Every host is a server whose
/// NIC hangs on its own forwarder.
#[derive(Clone, Debug, PartialEq)]
pub struct BCubeSpec {
    /// Servers; `hosts_per_router` must be 1, `router_latency` is that of a server.
    pub direct: DirectSpec,
    /// Ports of a switch, n.
    pub ports: u32,
    /// Levels of switches, k + 1: ports of a server. Servers: n^levels.
    pub levels: u32,
    /// Between servers and switches.
    pub cable: CableSpec,
    /// Pipeline delay of a switch.
    pub switch_latency: Span,
}

/// A HammingMesh (Hoefler et al., SC'22): boards of a · b accelerators in a 2-D mesh; the rows of accelerators of all
/// boards in a row of boards are joined by one switch, and columns likewise.
#[derive(Clone, Debug, PartialEq)]
pub struct HammingMeshSpec {
    /// Accelerators; `hosts_per_router` must be 1.
    pub direct: DirectSpec,
    /// Rows and columns of accelerators of a board.
    pub board: [u32; 2],
    /// Rows and columns of boards.
    pub boards: [u32; 2],
    /// Between neighbours of a board.
    pub board_cable: CableSpec,
    /// Between the edges of boards and the switches of rows and columns.
    pub switch_cable: CableSpec,
    /// Pipeline delay of a switch.
    pub switch_latency: Span,
}

/// Buildings, each with its own Clos, joined by cables between their top switches.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionsSpec {
    /// Every host of every building.
    pub host: HostSpec,
    /// In the order of their hosts.
    pub buildings: Vec<BuildingSpec>,
    /// At most one entry for a pair of buildings.
    pub cross: Vec<CrossSpec>,
    /// Propagation delay in picoseconds per metre.
    pub propagation_ps_per_m: u64,
}

/// A building.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildingSpec {
    /// Its name, unique; begins the names of its switches.
    pub name: String,
    /// Buildings of one region are near each other.
    pub region: u32,
    /// Hosts in it.
    pub hosts: u32,
    /// From the leaves (RTSW) up to those with the cross-building links (ATSW).
    pub tiers: Vec<Tier>,
    /// Rate of a GPU's scale-up link per direction, and latency from GPU to GPU, where they are not those of
    /// [`RegionsSpec::host`].
    pub scale_up: Option<(BitRate, Span)>,
}

/// The cables between two buildings. Cable i joins the top switches i mod n and i mod m of the two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossSpec {
    /// Numbers of the buildings.
    pub between: [u32; 2],
    /// How many.
    pub count: u32,
    /// Each of them.
    pub cable: CableSpec,
}

/// What is inside a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostSpec {
    /// GPUs, each an endpoint.
    pub gpus: u32,
    /// NICs: a multiple of `gpus`, or a divisor of it (then GPUs share a NIC).
    pub nics: u32,
    /// Rail-optimised: NIC i of every host of a group goes to the group's leaf i. Otherwise all go to one leaf.
    pub rails: bool,
    /// The network between the GPUs.
    pub scale_up: ScaleUpSpec,
}

/// A scale-up domain: GPUs joined by `NVLink` or the like through a switch that never blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleUpSpec {
    /// GPUs in a domain; `None` is all of a host. Must divide `gpus`; 1 means that there is no such network.
    pub size: Option<u32>,
    /// Of one GPU, per direction.
    pub rate: BitRate,
    /// From GPU to GPU.
    pub latency: Span,
}

/// One tier of switches, with the links below it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// Ports towards the hosts. Of the top tier: a capacity, not all need be used. Of tier 0: NIC ports, which with
    /// rails are one of every host.
    pub ports_down: u32,
    /// Total rate down over total rate up of a switch; 1 does not block. The top tier has no uplinks: 1.
    pub oversubscription: f64,
    /// Of a link below this tier, per direction. Of tier 0: of a NIC, all its planes together.
    pub rate: BitRate,
    /// Of a cable below this tier, in millimetres.
    pub length_mm: u64,
    /// Parallel links between a lower switch and a switch of this tier; 1 in tier 0.
    pub bundle: u32,
    /// Pipeline delay of a switch of this tier.
    pub switch_latency: Span,
    /// Probability that a packet is lost on a cable below this tier, in each direction, in [0, 1].
    pub loss: f64,
}

impl HostSpec {
    /// A host of `gpus` GPUs and `nics` NICs, not rail-optimised, whose GPUs form one scale-up domain of `rate` a GPU
    /// and no latency.
    pub const fn new(gpus: u32, nics: u32, rate: BitRate) -> Self {
        Self { gpus, nics, rails: false, scale_up: ScaleUpSpec { size: None, rate, latency: Span::ZERO } }
    }
}

impl Tier {
    /// A tier that does not block, of single links of length 0 that lose nothing, and switches without delay.
    pub const fn new(ports_down: u32, rate: BitRate) -> Self {
        let (length_mm, bundle, switch_latency) = (0, 1, Span::ZERO);
        Self { ports_down, oversubscription: 1.0, rate, length_mm, bundle, switch_latency, loss: 0.0 }
    }
}

impl ClosSpec {
    /// A single plane of `tiers` under `hosts` hosts.
    pub fn new(hosts: u32, host: HostSpec, tiers: Vec<Tier>) -> Self {
        Self { hosts, host, tiers, planes: 1, propagation_ps_per_m: DEFAULT_PROPAGATION_PS_PER_M }
    }

    /// The full k-ary fat tree (Al-Fares, Loukissas, Vahdat, SIGCOMM'08): k^3/4 hosts of one GPU and one NIC, all links
    /// of `rate`; `k` must be even.
    pub fn fat_tree(k: u32, rate: BitRate) -> Self {
        let tiers = [k / 2, k / 2, k].map(|ports| Tier::new(ports, rate)).to_vec();
        Self::new(k / 2 * (k / 2) * k, HostSpec::new(1, 1, rate), tiers)
    }
}
