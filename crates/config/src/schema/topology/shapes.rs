//! What the shapes are made of, as it is written.

use schemars::JsonSchema;
use serde::Deserialize;
use windtunnel_topology::Detour;
use windtunnel_topology::import::Format;

use super::{no_length, one, unity};
use crate::schema::Name;
use crate::schema::quantity::{Duration, Length, Rate};

/// Which shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShapeName {
    /// Folded Clos of any number of tiers.
    Clos,
    /// The k-ary fat tree: a Clos of three tiers of equal switches.
    FatTree,
    /// n-dimensional, with wrap-around.
    Torus,
    /// A torus without wrap-around.
    Mesh,
    /// A full mesh in every dimension (also `hyperx`, `ub-mesh`).
    #[serde(alias = "hyperx", alias = "ub-mesh")]
    FullMesh,
    /// Groups of routers, each group a full mesh, joined in pairs.
    Dragonfly,
    /// Groups that are leaf-spine networks, joined in pairs by their spines.
    DragonflyPlus,
    /// Servers that forward, switches in levels.
    #[serde(rename = "bcube")]
    BCube,
    /// Boards of accelerators in a mesh, rows and columns of boards joined by switches.
    HammingMesh,
    /// Buildings, each a Clos, joined by long cables.
    Regions,
    /// Nodes and links from a file.
    Graph,
}

impl ShapeName {
    /// All.
    pub const ALL: [Self; 11] = [
        Self::Clos,
        Self::FatTree,
        Self::Torus,
        Self::Mesh,
        Self::FullMesh,
        Self::Dragonfly,
        Self::DragonflyPlus,
        Self::BCube,
        Self::HammingMesh,
        Self::Regions,
        Self::Graph,
    ];

    /// The key's value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clos => "clos",
            Self::FatTree => "fat-tree",
            Self::Torus => "torus",
            Self::Mesh => "mesh",
            Self::FullMesh => "full-mesh",
            Self::Dragonfly => "dragonfly",
            Self::DragonflyPlus => "dragonfly-plus",
            Self::BCube => "bcube",
            Self::HammingMesh => "hamming-mesh",
            Self::Regions => "regions",
            Self::Graph => "graph",
        }
    }

    /// What it is, in a line.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Clos => "folded Clos of any number of tiers, with rails, planes and bundles",
            Self::FatTree => "k-ary fat tree: a Clos of three tiers of equal switches",
            Self::Torus => "n-dimensional torus, wrap-around per dimension",
            Self::Mesh => "n-dimensional mesh",
            Self::FullMesh => "full mesh in every dimension (HyperX, UB-Mesh)",
            Self::Dragonfly => "groups of routers joined in pairs, each group a full mesh",
            Self::DragonflyPlus => "groups of leaves and spines, joined in pairs by their spines",
            Self::BCube => "servers that forward, switches in levels",
            Self::HammingMesh => "boards of accelerators, rows and columns of boards joined by switches",
            Self::Regions => "buildings, each a Clos, joined by long cables",
            Self::Graph => "nodes and links from a file",
        }
    }
}

/// Which paths are legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingName {
    /// The first dimension in which the ends differ first, the shorter way round.
    DimensionOrder,
    /// Any path of least length.
    MinimalAdaptive,
    /// The shortest paths.
    Minimal,
    /// Paths by way of one more router at the start too (UB-Mesh's all-path routing).
    OneDetour,
    /// By way of a router drawn for each flow.
    Valiant,
    /// Minimal or Valiant, by the queues of the first router.
    UgalL,
}

impl RoutingName {
    /// The key's value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DimensionOrder => "dimension-order",
            Self::MinimalAdaptive => "minimal-adaptive",
            Self::Minimal => "minimal",
            Self::OneDetour => "one-detour",
            Self::Valiant => "valiant",
            Self::UgalL => "ugal-l",
        }
    }
}

/// What becomes of pairs that the routing can no longer join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DetourName {
    /// They go any way there is, and are counted.
    #[default]
    Allow,
    /// They are unreachable; a message between them ends the run.
    Forbid,
}

impl DetourName {
    /// The topology's word for it.
    pub const fn policy(self) -> Detour {
        match self {
            Self::Allow => Detour::Allow,
            Self::Forbid => Detour::Forbid,
        }
    }
}

/// One tier of a Clos; its rate and length are of the links below its switches.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClosTier {
    /// Ports of a switch towards the hosts; at the first tier hosts (with rails) or NICs per leaf.
    pub ports_down: u32,
    /// Capacity below over capacity above a switch; 1 is non-blocking. Has no meaning at the top tier.
    #[serde(default = "unity")]
    pub oversubscription: f64,
    /// Rate of the links below.
    pub rate: Rate,
    /// Cable length of the links below.
    #[serde(default = "no_length")]
    pub length: Length,
    /// Parallel links between a switch and each switch above.
    #[serde(default = "one")]
    pub bundle: u32,
    /// Time through a switch of this tier; `switch.latency` if left out.
    #[serde(default)]
    pub switch_latency: Option<Duration>,
    /// Share of packets lost at random on a link below (packet fidelity).
    #[serde(default)]
    pub loss: f64,
}

/// A kind of cable.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CableKind {
    /// Rate in each direction.
    pub rate: Rate,
    /// Length.
    #[serde(default = "no_length")]
    pub length: Length,
    /// Share of packets lost at random (packet fidelity).
    #[serde(default)]
    pub loss: f64,
}

/// A dimension of a torus, mesh or full mesh, with its cables.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeshDimension {
    /// Routers along it.
    pub size: u32,
    /// Whether the last is joined to the first: `true` in a torus, `false` in a mesh. Has no meaning in a full mesh.
    #[serde(default)]
    pub wrap: Option<bool>,
    /// Parallel cables between neighbours.
    #[serde(default = "one")]
    pub links: u32,
    /// Rate of each in each direction.
    pub rate: Rate,
    /// Length of each.
    #[serde(default = "no_length")]
    pub length: Length,
    /// Share of packets lost at random (packet fidelity).
    #[serde(default)]
    pub loss: f64,
}

/// A building of regions.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Building {
    /// Name; begins the names of its switches.
    pub name: String,
    /// Buildings of one region are near each other; all are in one region if left out.
    #[serde(default)]
    pub region: Option<String>,
    /// Number of hosts.
    pub hosts: u32,
    /// Tiers from the hosts (RTSW) up to the switches with the cables to other buildings (ATSW).
    pub tiers: Vec<ClosTier>,
}

/// The cables between two buildings.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CrossLinks {
    /// Names of the two.
    pub between: [String; 2],
    /// How many cables.
    pub count: u32,
    /// Rate of each in each direction.
    pub rate: Rate,
    /// Length of each.
    #[serde(default = "no_length")]
    pub length: Length,
    /// Share of packets lost at random (packet fidelity).
    #[serde(default)]
    pub loss: f64,
}

/// A graph from a file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphFile {
    /// The file, relative to the folder of this one.
    pub file: String,
    /// Its format; known by its name and contents if left out.
    #[serde(default)]
    #[schemars(with = "Option<Name<Format>>")]
    pub format: Option<String>,
    /// Rate of links for which the file names none.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Latency of links for which the file names none.
    #[serde(default)]
    pub latency: Option<Duration>,
}
