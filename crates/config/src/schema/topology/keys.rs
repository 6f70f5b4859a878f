//! Which keys belong to which shapes.

use ShapeName::{
    BCube, Clos, Dragonfly, DragonflyPlus, FatTree, FullMesh, Graph, HammingMesh, Mesh, Regions, Torus,
};

use windtunnel_topology::ShapeName;

use super::TopologyFile;

/// A key that not every shape has.
pub struct ShapeKey {
    /// Its name.
    pub name: &'static str,
    /// Whether a file gives it.
    pub given: fn(&TopologyFile) -> bool,
    /// The shapes in which it has a meaning.
    pub shapes: &'static [ShapeName],
}

const fn key(name: &'static str, given: fn(&TopologyFile) -> bool, shapes: &'static [ShapeName]) -> ShapeKey {
    ShapeKey { name, given, shapes }
}

/// In the order of the schema; `host`, `switch`, `failed`, `detour` and `weighted` are everybody's.
pub const KEYS: &[ShapeKey] = &[
    key("hosts", |file| file.hosts.is_some(), &[Clos, FatTree]),
    key("tiers", |file| !file.tiers.is_empty(), &[Clos]),
    key("planes", |file| file.planes.is_some(), &[Clos]),
    key("k", |file| file.k.is_some(), &[FatTree]),
    key("rate", |file| file.rate.is_some(), &[FatTree]),
    key("length", |file| file.length.is_some(), &[FatTree]),
    key("lengths", |file| !file.lengths.is_empty(), &[FatTree]),
    key("dimensions", |file| !file.dimensions.is_empty(), &[Torus, Mesh, FullMesh]),
    key(
        "hosts_per_router",
        |file| file.hosts_per_router.is_some(),
        &[Torus, Mesh, FullMesh, Dragonfly, DragonflyPlus],
    ),
    key(
        "nic_link",
        |file| file.nic_link.is_some(),
        &[Torus, Mesh, FullMesh, Dragonfly, DragonflyPlus, BCube, HammingMesh],
    ),
    key("routing", |file| file.routing.is_some(), &[Torus, Mesh, FullMesh, Dragonfly, DragonflyPlus]),
    key("groups", |file| file.groups.is_some(), &[Dragonfly, DragonflyPlus]),
    key("routers", |file| file.routers.is_some(), &[Dragonfly]),
    key("leaves", |file| file.leaves.is_some(), &[DragonflyPlus]),
    key("spines", |file| file.spines.is_some(), &[DragonflyPlus]),
    key("global_links", |file| file.global_links.is_some(), &[Dragonfly, DragonflyPlus]),
    key("local", |file| file.local.is_some(), &[Dragonfly, DragonflyPlus]),
    key("global", |file| file.global.is_some(), &[Dragonfly, DragonflyPlus]),
    key("ports", |file| file.ports.is_some(), &[BCube]),
    key("levels", |file| file.levels.is_some(), &[BCube]),
    key("link", |file| file.link.is_some(), &[BCube]),
    key("board", |file| file.board.is_some(), &[HammingMesh]),
    key("boards", |file| file.boards.is_some(), &[HammingMesh]),
    key("board_link", |file| file.board_link.is_some(), &[HammingMesh]),
    key("switch_link", |file| file.switch_link.is_some(), &[HammingMesh]),
    key("buildings", |file| !file.buildings.is_empty(), &[Regions]),
    key("cross", |file| !file.cross.is_empty(), &[Regions]),
    key("graph", |file| file.graph.is_some(), &[Graph]),
];
