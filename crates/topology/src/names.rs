//! From the name of a node or link back to its number.
//!
//! Names are made by rule, but not taken apart by one: an index of the names of all switches is made once, where
//! somebody asks by name at all.

use rustc_hash::FxHashMap;

use crate::link::LinkId;
use crate::port::{Peer, SwitchId};
use crate::topology::Topology;

/// Finds nodes and links by the names that [`Topology::node_name`] and [`Topology::link_name`] give them.
#[derive(Debug)]
pub struct Names<'a> {
    topology: &'a Topology,
    switches: FxHashMap<String, SwitchId>,
}

/// An end of a link, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Switch(SwitchId),
    Nic(u32),
}

/// Why there is no link of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoLink {
    /// The text is not two names.
    Unreadable,
    /// There is no node of this name.
    NoNode(String),
    /// The nodes are not joined, or not by so many cables; the links of the first node.
    NotJoined(Vec<LinkId>),
}

impl<'a> Names<'a> {
    /// The names of a topology's switches, found once.
    pub fn new(topology: &'a Topology) -> Self {
        let switches = (0..topology.switches()).map(SwitchId);
        Self { topology, switches: switches.map(|switch| (name(topology, switch), switch)).collect() }
    }

    /// The switch of a name.
    pub fn switch(&self, name: &str) -> Option<SwitchId> {
        self.switches.get(name).copied()
    }

    /// Names of all switches, in the order of their numbers.
    pub fn switches(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.topology.switches()).map(|switch| name(self.topology, SwitchId(switch)))
    }

    /// The NIC `host3/nic2`, counted over all hosts.
    pub fn nic(&self, name: &str) -> Option<u32> {
        let (host, nic) = name.strip_prefix("host")?.split_once("/nic")?;
        let (host, nic) = (number(host)?, number(nic)?);
        let fits = host < self.topology.hosts() && nic < self.topology.nics_per_host();
        fits.then(|| host * self.topology.nics_per_host() + nic)
    }

    fn end(&self, name: &str) -> Option<End> {
        self.nic(name).map(End::Nic).or_else(|| self.switch(name).map(End::Switch))
    }

    /// The link of a name: `leaf0 -> spine5`, of parallel cables `leaf0 -> spine5 #1`. Between a NIC and a switch of a
    /// fabric with planes the names alone decide.
    ///
    /// # Errors
    /// [`NoLink`] with what there is instead.
    pub fn link(&self, text: &str) -> Result<LinkId, NoLink> {
        let (from, to) = text.split_once("->").ok_or(NoLink::Unreadable)?;
        let (to, parallel) = match to.split_once('#') {
            Some((to, index)) => (to, Some(number(index.trim()).ok_or(NoLink::Unreadable)?)),
            None => (to, None),
        };
        let (from, to) = (from.trim(), to.trim());
        let node = |name: &str| self.end(name).ok_or_else(|| NoLink::NoNode(name.to_owned()));
        let (from, to) = (node(from)?, node(to)?);
        let topology = self.topology;
        let (links, wanted): (Vec<LinkId>, Vec<LinkId>) = match (from, to) {
            (End::Nic(nic), _) => {
                let planes = 0..topology.planes();
                let up =
                    planes.map(|plane| (topology.attachment(nic, plane).0, topology.nic_link(nic, plane)));
                let all: Vec<(SwitchId, LinkId)> = up.collect();
                let wanted = all.iter().filter(|(switch, _)| to == End::Switch(*switch)).map(|pair| pair.1);
                (all.iter().map(|pair| pair.1).collect(), wanted.collect())
            }
            (End::Switch(at), _) => {
                let leaves = |port| Some((topology.peer(at, port)?, topology.out_link(at, port)?));
                let all: Vec<(Peer, LinkId)> = (0..topology.ports(at)).filter_map(leaves).collect();
                let same = |peer: &Peer| match *peer {
                    Peer::Switch { switch, .. } => to == End::Switch(switch),
                    Peer::Nic { nic, .. } => to == End::Nic(nic),
                };
                let wanted = all.iter().filter(|(peer, _)| same(peer)).map(|pair| pair.1).collect();
                (all.into_iter().map(|pair| pair.1).collect(), wanted)
            }
        };
        // Of several, the number behind `#` is part of the name.
        let suffix = parallel.map(|index| format!(" #{index}"));
        let chosen = match &suffix {
            Some(suffix) => {
                wanted.into_iter().find(|&link| topology.link_name(link).ends_with(suffix.as_str()))
            }
            None => wanted.first().copied(),
        };
        chosen.ok_or(NoLink::NotJoined(links))
    }
}

fn name(topology: &Topology, switch: SwitchId) -> String {
    topology.node_name(crate::link::Node::Switch(switch))
}

/// A number without sign or leading zeroes, as names have it.
fn number(text: &str) -> Option<u32> {
    let plain = text == "0" || !text.starts_with(['0', '+']);
    if plain { text.parse().ok() } else { None }
}
