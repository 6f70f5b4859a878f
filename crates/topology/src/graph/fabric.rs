//! An explicit graph as a fabric: switches and ports in arrays, next hops from tables.
//!
//! Switches, hosts and NICs are numbered in the order of the graph's nodes and of each host's cables; the ports of a
//! switch are its cables in the order of the file. Hosts do not forward; every path between switches is legal, so the
//! equal-cost ports are those of a breadth-first search over switches. All hosts must have as many cables, one for each
//! NIC, and NIC i of any two hosts must be able to meet: senders and receivers use NICs of one number.
//!
//! Memory: 20 bytes a directed port, the names, the distinct kinds of cable, and the tables (see `tables`).

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use windtunnel_kernel::{BitRate, Span};

use super::cut;
use super::error::{GraphError, GraphProblem, Place};
use super::spec::{Adjacency, GraphLink, GraphSpec, NodeKind};
use super::tables::{self, Tables};
use crate::hosts::Hosts;
use crate::link::{LinkTier, PathClass};
use crate::port::PortSet;
use crate::shape::{Cable, Coordinates, Far, Shape, Site};
use crate::spec::{HostSpec, ScaleUpSpec};

pub(super) const NONE: u32 = u32::MAX;

/// What a port's cable leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Switch { switch: u32, port: u32 },
    Nic(u32),
}

#[derive(Clone, Debug)]
struct Port {
    end: End,
    /// Among the kinds of cable.
    kind: u32,
    /// Number of the link that leaves it; [`NONE`] towards a NIC.
    link: u32,
}

/// See the module page.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    /// First port of every switch, and one more.
    first: Vec<u32>,
    ports: Vec<Port>,
    kinds: Vec<Cable>,
    /// By link between switches: its port, counted over all switches.
    sources: Vec<u32>,
    /// By NIC: switch and port.
    attachments: Vec<(u32, u32)>,
    nics_per_host: u32,
    names: Vec<String>,
    /// Hops to the nearest host, less one.
    tiers: Vec<u8>,
    /// By host: number of its rack and place there.
    sites: Vec<(u32, u32)>,
    /// By rack: its hosts.
    racks: Vec<Vec<u32>>,
    tables: Tables,
}

/// Pairs of a switch and a switch with NICs at most: time and memory of the tables grow with them.
const MOST_PAIRS: u64 = 1 << 30;

/// Switches and their neighbours: what is searched. Four bytes a port, so that a search stays in the cache.
pub(super) struct Switches<'a> {
    first: &'a [u32],
    /// Far end of every port; [`NONE`] if that is a NIC.
    next: Vec<u32>,
}

impl<'a> Switches<'a> {
    fn new(first: &'a [u32], ports: &[Port]) -> Self {
        let next = |port: &Port| match port.end {
            End::Switch { switch, .. } => switch,
            End::Nic(_) => NONE,
        };
        Self { first, next: ports.iter().map(next).collect() }
    }

    pub(super) fn count(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    /// (port, next switch) of every port to a switch.
    pub(super) fn next(&self, switch: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let range = self.first[switch as usize] as usize..self.first[switch as usize + 1] as usize;
        (0..).zip(&self.next[range]).filter(|&(_, &next)| next != NONE).map(|(port, &next)| (port, next))
    }
}

/// What is inside the hosts of a graph: what it says, or one GPU with all cables as its NICs.
///
/// # Errors
/// [`GraphError`] if hosts have different numbers of cables, or others than the graph's host has NICs.
pub(crate) fn host_spec(spec: &GraphSpec) -> Result<(u32, HostSpec), GraphError> {
    let mut cables = vec![0u32; spec.nodes.len()];
    for link in &spec.links {
        cables[link.a as usize] += 1;
        cables[link.b as usize] += 1;
    }
    let mut hosts = (0..spec.nodes.len()).filter(|&node| spec.nodes[node].kind == NodeKind::Host);
    let fail = |problem: GraphProblem| GraphError::new(&spec.source, Place::File, problem);
    let first =
        hosts.clone().next().ok_or_else(|| fail(GraphProblem::NoHosts { switches: spec.nodes.len() }))?;
    let nics = spec.host.map_or(cables[first], |host| host.nics);
    if let Some(other) = hosts.find(|&host| cables[host] != nics) {
        let (name, found) = (spec.nodes[other].name.clone(), cables[other]);
        let due = match spec.host {
            Some(_) => "NICs of a host".to_owned(),
            None => format!("links of `{}`", spec.nodes[first].name),
        };
        return Err(fail(GraphProblem::UnevenHosts { name, found, nics, due }));
    }
    let count = spec.host_count() as u32;
    let rate = BitRate::ZERO;
    let scale_up = ScaleUpSpec { size: Some(1), rate, latency: Span::ZERO };
    Ok((count, spec.host.unwrap_or(HostSpec { gpus: 1, nics, rails: false, scale_up })))
}

impl Graph {
    /// The fabric of a graph whose hosts are `hosts`.
    ///
    /// # Errors
    /// [`GraphError`] if the graph is not sound, a host is cabled to a host, or NICs of one number cannot all meet.
    pub(crate) fn new(spec: &GraphSpec, hosts: &Hosts) -> Result<Self, GraphError> {
        spec.check()?;
        let fail = |problem: GraphProblem| GraphError::new(&spec.source, Place::File, problem);
        let adjacency = Adjacency::new(spec.nodes.len(), &spec.links);
        // Numbers of switches and hosts, each in the order of nodes.
        let mut numbers = Vec::with_capacity(spec.nodes.len());
        let (mut switches, mut host_count) = (0u32, 0u32);
        for node in &spec.nodes {
            let next = if node.kind == NodeKind::Host { &mut host_count } else { &mut switches };
            numbers.push(*next);
            *next += 1;
        }
        let is_host = |node: u32| spec.nodes[node as usize].kind == NodeKind::Host;
        for link in &spec.links {
            if is_host(link.a) && is_host(link.b) {
                let name = |node: u32| &spec.nodes[node as usize].name;
                let what = format!(
                    "expected a switch at one end of every link, found `{}` -- `{}` between hosts, which do not forward",
                    name(link.a),
                    name(link.b)
                );
                let hint = Some("give a host that forwards a switch of its own".to_owned());
                return Err(fail(GraphProblem::Unsupported { what, hint }));
            }
        }
        let switch_nodes = || (0..spec.nodes.len() as u32).filter(|&node| !is_host(node));
        let mut first = vec![0u32];
        for node in switch_nodes() {
            first.push(first[first.len() - 1] + adjacency.of(node).len() as u32);
        }
        // Port of each cable at either end, then NICs by the order of a host's cables.
        let mut port_at = vec![[NONE; 2]; spec.links.len()];
        let mut nic_of = vec![NONE; spec.links.len()];
        let nics_per_host = hosts.nics;
        for node in 0..spec.nodes.len() as u32 {
            for (place, &(_, cable)) in adjacency.of(node).iter().enumerate() {
                if is_host(node) {
                    nic_of[cable as usize] = numbers[node as usize] * nics_per_host + place as u32;
                } else {
                    let end = usize::from(spec.links[cable as usize].b == node);
                    port_at[cable as usize][end] = place as u32;
                }
            }
        }
        let mut kinds = Kinds::default();
        let mut ports = Vec::with_capacity(first[first.len() - 1] as usize);
        let mut sources = Vec::new();
        let mut attachments = vec![(NONE, NONE); (host_count * nics_per_host) as usize];
        for node in switch_nodes() {
            for (place, &(next, cable)) in adjacency.of(node).iter().enumerate() {
                let link = &spec.links[cable as usize];
                let kind = kinds.number(link);
                let nic = nic_of[cable as usize];
                if nic == NONE {
                    let port = port_at[cable as usize][usize::from(link.b != node)];
                    let end = End::Switch { switch: numbers[next as usize], port };
                    let link = sources.len() as u32;
                    sources.push(ports.len() as u32);
                    ports.push(Port { end, kind, link });
                } else {
                    attachments[nic as usize] = (numbers[node as usize], place as u32);
                    ports.push(Port { end: End::Nic(nic), kind, link: NONE });
                }
            }
        }
        let names = switch_nodes().map(|node| spec.nodes[node as usize].name.clone()).collect();
        let (tiers, sites, racks, tables) = {
            let view = Switches::new(&first, &ports);
            let part = parts(&view);
            check_nics(spec, &attachments, nics_per_host, &part)
                .map_err(|problem| GraphError::new(&spec.source, Place::File, problem))?;
            let leaves = leaves(&attachments);
            let pairs = u64::from(view.count()) * leaves.len() as u64;
            if pairs > MOST_PAIRS {
                let what = "pairs of a switch and a leaf, for each of which ways are looked for,";
                return Err(fail(GraphProblem::TooLarge { what, limit: MOST_PAIRS, found: pairs }));
            }
            let (sites, racks) = sites(&attachments, nics_per_host, &leaves, view.count());
            (tiers(&view, &leaves), sites, racks, Tables::build(&view, &leaves))
        };
        Ok(Self {
            first,
            ports,
            kinds: kinds.list,
            sources,
            attachments,
            nics_per_host,
            names,
            tiers,
            sites,
            racks,
            tables,
        })
    }

    /// Bytes on the heap of the tables alone.
    #[cfg(test)]
    pub(crate) fn table_bytes(&self) -> usize {
        self.tables.bytes()
    }

    /// (port, next switch) of every port to a switch.
    fn next(&self, switch: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let range = self.first[switch as usize] as usize..self.first[switch as usize + 1] as usize;
        (0..).zip(&self.ports[range]).filter_map(|(port, at)| match at.end {
            End::Switch { switch, .. } => Some((port, switch)),
            End::Nic(_) => None,
        })
    }

    #[inline]
    fn port(&self, switch: u32, port: u32) -> &Port {
        &self.ports[(self.first[switch as usize] + port) as usize]
    }
}

/// Distinct kinds of cable.
#[derive(Default)]
struct Kinds {
    list: Vec<Cable>,
    known: FxHashMap<(u64, u64, u64), u32>,
}

impl Kinds {
    fn number(&mut self, link: &GraphLink) -> u32 {
        let key = (link.rate.bps(), link.latency.ps(), link.loss.to_bits());
        *self.known.entry(key).or_insert_with(|| {
            // Latencies of a file need not be those of a length.
            self.list.push(Cable {
                rate: link.rate,
                propagation: link.latency,
                loss: link.loss,
                length_mm: 0,
            });
            self.list.len() as u32 - 1
        })
    }
}

/// Connected part of every switch, without the hosts.
fn parts(switches: &Switches<'_>) -> Vec<u32> {
    let mut part = vec![NONE; switches.count() as usize];
    let mut queue = Vec::new();
    for first in 0..switches.count() {
        if part[first as usize] != NONE {
            continue;
        }
        part[first as usize] = first;
        queue.push(first);
        while let Some(at) = queue.pop() {
            for (_, next) in switches.next(at) {
                if part[next as usize] == NONE {
                    part[next as usize] = first;
                    queue.push(next);
                }
            }
        }
    }
    part
}

/// NICs of one number must be in one part: a packet never changes its rail inside a host.
fn check_nics(
    spec: &GraphSpec,
    attachments: &[(u32, u32)],
    nics_per_host: u32,
    part: &[u32],
) -> Result<(), Box<GraphProblem>> {
    let part_of = |nic: usize| part[attachments[nic].0 as usize];
    let per_host = nics_per_host as usize;
    let Some(lost) = (0..attachments.len()).find(|&nic| part_of(nic) != part_of(nic % per_host)) else {
        return Ok(());
    };
    let mut hosts = spec.nodes.iter().filter(|node| node.kind == NodeKind::Host);
    let first = hosts.next().map_or("", |node| &node.name);
    let other = hosts.nth((lost / per_host).saturating_sub(1)).map_or("", |node| &node.name);
    let what = format!(
        "expected switches that join link {number} of `{first}` and of `{other}`, found none: without the hosts they \
         are in different parts",
        number = lost % per_host
    );
    let hint = "hosts do not forward: list the links of every host in the order of its planes or rails";
    Err(GraphProblem::Unsupported { what, hint: Some(hint.to_owned()) }.into())
}

/// Switches with a NIC, by their first NIC.
fn leaves(attachments: &[(u32, u32)]) -> Vec<u32> {
    let mut seen = rustc_hash::FxHashSet::default();
    attachments.iter().map(|&(switch, _)| switch).filter(|&switch| seen.insert(switch)).collect()
}

/// Racks are the leaves of first NICs.
fn sites(
    attachments: &[(u32, u32)],
    nics_per_host: u32,
    leaves: &[u32],
    switches: u32,
) -> (Vec<(u32, u32)>, Vec<Vec<u32>>) {
    let mut rack_of = vec![NONE; switches as usize];
    let mut racks: Vec<Vec<u32>> = Vec::new();
    let mut sites = Vec::new();
    debug_assert!(!leaves.is_empty());
    for (host, &(leaf, _)) in attachments.iter().step_by(nics_per_host as usize).enumerate() {
        let rack = &mut rack_of[leaf as usize];
        if *rack == NONE {
            *rack = racks.len() as u32;
            racks.push(Vec::new());
        }
        let hosts = &mut racks[*rack as usize];
        sites.push((*rack, hosts.len() as u32));
        hosts.push(host as u32);
    }
    (sites, racks)
}

/// Hops from the nearest leaf, at most 255.
fn tiers(switches: &Switches<'_>, leaves: &[u32]) -> Vec<u8> {
    let mut tiers = vec![u8::MAX; switches.count() as usize];
    let mut front = leaves.to_vec();
    for &leaf in leaves {
        tiers[leaf as usize] = 0;
    }
    for tier in 1..u8::MAX {
        let mut next = Vec::new();
        for &at in &front {
            for (_, upper) in switches.next(at) {
                if tiers[upper as usize] == u8::MAX {
                    tiers[upper as usize] = tier;
                    next.push(upper);
                }
            }
        }
        front = next;
    }
    tiers
}

impl Shape for Graph {
    fn name(&self) -> &'static str {
        "graph"
    }

    fn switches(&self) -> u32 {
        self.names.len() as u32
    }

    fn ports(&self, switch: u32) -> u32 {
        self.first[switch as usize + 1] - self.first[switch as usize]
    }

    fn peer(&self, switch: u32, port: u32) -> Option<Far> {
        Some(match self.port(switch, port).end {
            End::Switch { switch, port } => Far::Switch { switch, port },
            End::Nic(nic) => Far::Nic { nic, plane: 0 },
        })
    }

    #[inline]
    fn attachment(&self, nic: u32, _plane: u32) -> (u32, u32) {
        self.attachments[nic as usize]
    }

    fn cable(&self, switch: u32, port: u32) -> Cable {
        self.kinds[self.port(switch, port).kind as usize]
    }

    fn link_tier(&self, switch: u32, port: u32) -> LinkTier {
        match self.port(switch, port).end {
            End::Switch { .. } => LinkTier::Graph,
            End::Nic(_) => LinkTier::NicDown,
        }
    }

    fn delay(&self, _switch: u32) -> Span {
        // Part of the cables' latency.
        Span::ZERO
    }

    fn fabric_links(&self) -> u32 {
        self.sources.len() as u32
    }

    fn link(&self, switch: u32, port: u32) -> u32 {
        self.port(switch, port).link
    }

    fn link_source(&self, link: u32) -> (u32, u32) {
        let port = self.sources[link as usize];
        // Of switches without ports, which begin where the next one does, the last.
        let switch = self.first.partition_point(|&first| first <= port) as u32 - 1;
        (switch, port - self.first[switch as usize])
    }

    fn parallel(&self, switch: u32, port: u32) -> Option<u32> {
        let End::Switch { switch: peer, .. } = self.port(switch, port).end else { return None };
        let same: SmallVec<[u32; 8]> =
            self.next(switch).filter(|&(_, next)| next == peer).map(|(port, _)| port).collect();
        let index = same.iter().position(|&other| other == port)?;
        (same.len() > 1).then_some(index as u32)
    }

    #[inline]
    fn shortest(&self, at: u32, to: u32, ports: &mut PortSet) {
        if !self.tables.ports(at, to, ports) {
            // No NIC is there, so that no table leads there.
            tables::search(&Switches::new(&self.first, &self.ports), at, to, ports);
        }
    }

    fn may_follow(&self, at: u32, port: u32, _to: u32) -> bool {
        matches!(self.port(at, port).end, End::Switch { .. })
    }

    fn waypoint(&self, _from: u32, _to: u32, _hash: u64, _queue: impl Fn(u32) -> u64) -> Option<u32> {
        None
    }

    fn leaves_shortest(&self) -> bool {
        false
    }

    /// One hop between switches or two is near.
    fn class(&self, a: u32, b: u32) -> PathClass {
        if a == b {
            return PathClass::SameLeaf;
        }
        let mut ports = PortSet::new();
        self.shortest(a, b, &mut ports);
        let near = ports.iter().take(1).any(|port| match self.port(a, port).end {
            End::Switch { switch, .. } => switch == b || self.next(switch).any(|(_, next)| next == b),
            End::Nic(_) => false,
        });
        if near { PathClass::SamePod } else { PathClass::Beyond }
    }

    fn tier(&self, switch: u32) -> u8 {
        self.tiers[switch as usize]
    }

    fn tier_name(&self, tier: u8) -> String {
        if tier == 0 { "leaf".to_owned() } else { format!("tier{tier}") }
    }

    fn switch_name(&self, switch: u32) -> String {
        self.names[switch as usize].clone()
    }

    fn axes(&self) -> Vec<String> {
        vec!["switch".to_owned()]
    }

    fn coordinates(&self, switch: u32) -> Coordinates {
        Coordinates::from_slice(&[switch])
    }

    fn switch_at(&self, coordinates: &[u32]) -> Option<u32> {
        match *coordinates {
            [switch] if switch < self.switches() => Some(switch),
            _ => None,
        }
    }

    fn site(&self, host: u32) -> Site {
        let (rack, slot) = self.sites[host as usize];
        Site { rack, slot, ..Site::default() }
    }

    fn host_at(&self, site: Site) -> Option<u32> {
        let flat = Site { rack: 0, slot: 0, ..site } == Site::default();
        let host = self.racks.get(site.rack as usize)?.get(site.slot as usize).copied();
        host.filter(|_| flat)
    }

    /// The least cut between the first half of the hosts and the second, in their order.
    fn bisection(&self) -> BitRate {
        let hosts = self.sites.len() as u32;
        let nics = self.attachments.iter().enumerate().map(|(nic, &(switch, port))| {
            let host = nic as u32 / self.nics_per_host;
            (host < hosts / 2, switch, self.cable(switch, port).rate)
        });
        let cables = (0..self.sources.len() as u32).map(|link| {
            let (switch, port) = self.link_source(link);
            let End::Switch { switch: next, .. } = self.port(switch, port).end else {
                unreachable!("links between switches end at switches")
            };
            (switch, next, self.cable(switch, port).rate)
        });
        cut::between_halves(self.switches(), nics, cables)
    }

    fn diameter(&self) -> u32 {
        self.tables.diameter()
    }
}
