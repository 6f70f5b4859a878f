//! What the shapes are made of, as it is written.

use schemars::JsonSchema;
use serde::Deserialize;
use windtunnel_topology::import::Format;

use super::{SheetChoice, no_length, one, unity};
use crate::schema::Name;
use crate::schema::quantity::{Duration, Length, Rate};

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

impl ClosTier {
    /// A tier that does not block, of single links of length 0 that lose nothing, as it is without the other keys.
    pub const fn new(ports_down: u32, rate: Rate) -> Self {
        Self {
            ports_down,
            oversubscription: unity(),
            rate,
            length: no_length(),
            bundle: one(),
            switch_latency: None,
            loss: 0.0,
        }
    }
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
    /// What its hosts have that those of `topology.host` have not, such as GPUs of another generation.
    #[serde(default)]
    pub host: Option<BuildingHost>,
}

/// How the hosts of a building differ from `topology.host`, from which all else is taken.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BuildingHost {
    /// GPU data sheet, as in `topology.host.gpu`: kernels, memory and links between GPUs are as it says.
    pub gpu: Option<SheetChoice>,
    /// The links between the GPUs of a host; from the data sheet of `gpu` if left out.
    pub scale_up: Option<BuildingLinks>,
}

/// The links between the GPUs of a host, where a building has others.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BuildingLinks {
    /// Rate of a GPU in each direction.
    pub rate: Option<Rate>,
    /// Latency between two GPUs.
    pub latency: Option<Duration>,
    /// Whether their switches sum what GPUs send.
    pub reduction: Option<bool>,
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
