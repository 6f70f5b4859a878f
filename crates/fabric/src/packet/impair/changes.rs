//! What changes in mid-run: what has not happened yet, and which links a part has.

use rustc_hash::FxHashMap;
use windtunnel_topology::{Forwarder, LinkId, Topology};

use super::FabricPart;
use super::loss::Chain;

/// Links that are impaired, and what is to change.
#[derive(Clone, Debug, Default)]
pub(in crate::packet) struct Changes {
    /// Of the links that lose packets by a model of their own, by port.
    pub(super) chains: FxHashMap<u32, Vec<Chain>>,
    /// What has not happened yet.
    pub(super) steps: Vec<Option<Step>>,
    /// When the last change happens.
    pub last: u64,
}

/// What happens at an instant.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A part goes down (`true`) or comes up.
    Turn(FabricPart, bool),
    /// Ports get another kind of link.
    Kinds(Vec<(u32, u16)>),
    /// Every switch knows what is down.
    Converge,
    /// All that a forwarder says is out goes down, all else comes up, and packets go where it says.
    Lead(Box<Forwarder>),
}

/// Both directions of a part's cables.
pub(crate) fn links_of(topology: &Topology, part: FabricPart) -> Vec<LinkId> {
    match part {
        FabricPart::Cable(link) => vec![link, topology.reverse(link)],
        FabricPart::Switch(switch) => {
            let out = (0..topology.ports(switch)).filter_map(|port| topology.out_link(switch, port));
            out.flat_map(|link| [link, topology.reverse(link)]).collect()
        }
    }
}
