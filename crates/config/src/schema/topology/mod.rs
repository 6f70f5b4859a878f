//! The fabric as it is written: the keys of all shapes side by side, so that a key in the wrong shape can be told from
//! one that does not exist ([`keys`]).

mod host;
mod keys;
mod shapes;

pub use host::{Host, NicBus, Rails, ScaleUp, SheetChoice};
pub use keys::{KEYS, ShapeKey};
use schemars::JsonSchema;
use serde::Deserialize;
pub use shapes::{
    Building, BuildingHost, BuildingLinks, CableKind, ClosTier, CrossLinks, GraphFile, MeshDimension,
};
use windtunnel_topology::{DEFAULT_PROPAGATION_PS_PER_M, Detour, Routing, ShapeName};

use super::name::Name;
use super::quantity::{Duration, Length, Rate};

/// A fabric: a shape with its keys, or `file` alone.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TopologyFile {
    /// A file whose root is a topology, relative to the scenario's folder; no other key beside it.
    pub file: Option<String>,
    /// Which shape. It decides which of the keys below have a meaning; another one is an error.
    pub shape: Option<Name<ShapeName>>,
    /// `clos`, `fat-tree`: number of hosts; a fat tree is full if it is left out.
    pub hosts: Option<u32>,
    /// `clos`: tiers from the hosts upwards.
    pub tiers: Vec<ClosTier>,
    /// The hosts.
    pub host: Option<Host>,
    /// `clos`: copies of the switch fabric; each NIC has one port on every plane at an equal part of its rate.
    pub planes: Option<u32>,
    /// `fat-tree`: ports of a switch, an even number; k^3/4 NICs fit.
    pub k: Option<u32>,
    /// `fat-tree`: rate of every link.
    pub rate: Option<Rate>,
    /// `fat-tree`: length of every cable.
    pub length: Option<Length>,
    /// `fat-tree`: lengths of the cables below edge, aggregation and core switches, instead of `length`.
    pub lengths: Vec<Length>,
    /// `torus`, `mesh`, `full-mesh`: dimensions; the last varies fastest in the numbers of routers.
    pub dimensions: Vec<MeshDimension>,
    /// `torus`, `mesh`, `full-mesh`, `dragonfly`, `dragonfly-plus`: hosts of a router (of a leaf), 1 if left out.
    pub hosts_per_router: Option<u32>,
    /// Shapes without tiers: the cables between NICs and routers. If left out: the rate of the NIC's data sheet (of a
    /// `bcube` server and a `hamming-mesh` accelerator of all their ports) and no length.
    pub nic_link: Option<CableKind>,
    /// `torus`, `mesh`: `dimension-order` or `minimal-adaptive`. `full-mesh`: `minimal` or `one-detour`. `dragonfly`,
    /// `dragonfly-plus`: `minimal`, `valiant` or `ugal-l`. The first of each if left out.
    pub routing: Option<Name<Routing>>,
    /// `dragonfly`, `dragonfly-plus`: number of groups.
    pub groups: Option<u32>,
    /// `dragonfly`: routers of a group.
    pub routers: Option<u32>,
    /// `dragonfly-plus`: leaves of a group.
    pub leaves: Option<u32>,
    /// `dragonfly-plus`: spines of a group.
    pub spines: Option<u32>,
    /// `dragonfly`, `dragonfly-plus`: cables to other groups of a router (of a spine).
    pub global_links: Option<u32>,
    /// `dragonfly`, `dragonfly-plus`: cables inside a group.
    pub local: Option<CableKind>,
    /// `dragonfly`, `dragonfly-plus`: cables between groups.
    pub global: Option<CableKind>,
    /// `bcube`: ports of a switch, n.
    pub ports: Option<u32>,
    /// `bcube`: levels of switches, which are the ports of a server: n^levels servers.
    pub levels: Option<u32>,
    /// `bcube`: cables between servers and switches.
    pub link: Option<CableKind>,
    /// `hamming-mesh`: rows and columns of accelerators of a board.
    pub board: Option<[u32; 2]>,
    /// `hamming-mesh`: rows and columns of boards.
    pub boards: Option<[u32; 2]>,
    /// `hamming-mesh`: cables between neighbours of a board.
    pub board_link: Option<CableKind>,
    /// `hamming-mesh`: cables between the edges of boards and the switches of rows and columns.
    pub switch_link: Option<CableKind>,
    /// `regions`: the buildings, in the order of their hosts.
    pub buildings: Vec<Building>,
    /// `regions`: the cables between buildings.
    pub cross: Vec<CrossLinks>,
    /// `graph`: a file with nodes and links.
    pub graph: Option<GraphFile>,
    /// Switch constants.
    pub switch: SwitchSettings,
    /// Cables and switches that have failed, and everybody knows: `leaf0 -> spine1` (both directions), `spine0`.
    pub failed: Vec<String>,
    /// What becomes of pairs that the routing can no longer join.
    pub detour: Name<Detour>,
    /// Whether flows are spread over equal paths in proportion to what failures have left of them (weighted ECMP).
    pub weighted: bool,
}

const fn one() -> u32 {
    1
}

const fn unity() -> f64 {
    1.0
}

const fn no_length() -> Length {
    Length(0)
}

/// Switch constants.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchSettings {
    /// Time through a switch without queueing.
    pub latency: Duration,
    /// Propagation delay per metre of cable.
    pub delay_per_metre: Duration,
    /// Sheet of all switches, by which `windtunnel topology` prices them; the cheapest that fits each if left out.
    pub model: Option<String>,
}

impl Default for SwitchSettings {
    fn default() -> Self {
        Self {
            latency: Duration(windtunnel_kernel::Span::from_ns(500)),
            delay_per_metre: Duration(windtunnel_kernel::Span::from_ps(DEFAULT_PROPAGATION_PS_PER_M)),
            model: None,
        }
    }
}
