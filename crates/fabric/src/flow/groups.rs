//! Coupled groups, reductions and exchanges: edges that are routed once, and what they load together.
//!
//! **Invariant.** `links` of a group is in the order of links, each once: the shares of a link are summed in the order of the
//! edges, so a group's load is a function of its edges alone.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{Bytes, EndpointId, NicId, Span};
use windtunnel_topology::PathClass;

use super::flow_network::FlowNetwork;
use super::settings::FlowSettings;
use crate::model::CoupledId;
use crate::reduction::Tree;
use crate::reroute;

/// Links whose fullness differs by less are equally full: sums of shares are rounded.
pub(super) const SAME_SHARE: f64 = 1e-9;

/// Pairs of an exchange that are one flow.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub links: Vec<(u32, f64)>,
    pub class: PathClass,
    /// Pairs whose bytes it carries.
    pub pairs: u64,
}

/// Edges routed once.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Of an exchange: its flows, which share no rate; then `links` is what they load together.
    pub parts: Vec<Part>,
    /// Of an exchange: the flows from NIC to NIC and inside domains for which `parts` stand.
    pub flows: u64,
    /// Of an exchange in step: how many of its messages from one domain to another have which latency.
    pub stands_for: Vec<(u64, Span)>,
    /// Links in order with the sum of weight × share over the edges.
    pub links: Vec<(u32, f64)>,
    /// The heaviest edge counts as one flow.
    pub weight: f64,
    /// Of an edge, in the mean by weight.
    pub latency: Span,
    /// Seconds for each bit of a step by which the busiest link is busier than an edge is in the mean: as long does what
    /// goes round wait for that link, and latencies pass meanwhile.
    pub queued: f64,
    pub class: PathClass,
    /// Nothing joins the ends of an edge.
    pub severed: bool,
    /// What it was prepared from, where routes may change.
    pub(super) origin: Option<Box<Origin>>,
    /// Of a reduction: its tree, and the least rate at which its switches let it go on, in bits of payload per second.
    pub tree: Option<(Arc<Tree>, f64)>,
    pub edges: u32,
    pub total_weight: u64,
    pub ends: (EndpointId, EndpointId),
}

/// What a group was prepared from, and its entropy.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Edges(Vec<(EndpointId, EndpointId, u32)>, u32),
    Reduction(Vec<EndpointId>, u32),
    Exchange(Vec<EndpointId>, u32),
}

/// What the edges of a group come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub latency: Span,
    pub class: PathClass,
    pub severed: bool,
}

impl Default for Way {
    fn default() -> Self {
        Self { latency: Span::ZERO, class: PathClass::Local, severed: false }
    }
}

impl FlowNetwork {
    /// The rate at which the switches of a tree let a reduction go on, in bits of payload per second: a window of segments in
    /// a round trip, or what they can sum.
    fn reduction_rate(&self, round_trip: Span) -> f64 {
        let FlowSettings { mtu, header, reduction, .. } = self.settings;
        let window = u64::from(reduction.window()) * (mtu.get() - header.get()) * 8;
        let by_window = window as f64 / round_trip.seconds().max(1e-12);
        reduction.rate.map_or(by_window, |rate| by_window.min(rate.bps() as f64))
    }

    /// How much longer a reduction of `bytes` takes than its links alone would ask for, because its switches hold it back;
    /// nothing for other groups.
    pub(super) fn held_back(&self, group: CoupledId, bytes: Bytes) -> Span {
        let group = &self.groups[group.0 as usize];
        let Some((_, rate)) = group.tree else { return Span::ZERO };
        let volume = self.wire_bytes(bytes, group.class) as f64 * 8.0;
        let seconds = |&(link, load): &(u32, f64)| load * volume / self.rates[link as usize];
        let by_links = group.links.iter().map(seconds).fold(0.0, f64::max);
        let by_switches = bytes.get() as f64 * 8.0 / rate;
        Span::from_seconds_ceil((by_switches - by_links).max(0.0))
    }

    /// Seconds that a bit takes which loads `links` so, on an idle fabric.
    pub(super) fn seconds_a_bit(&self, links: impl Iterator<Item = (u32, f64)>) -> f64 {
        links.map(|(link, load)| load / self.rates[link as usize]).fold(0.0, f64::max)
    }

    /// What a run of `steps` steps takes beyond the time of its bytes on the busiest link.
    ///
    /// A ring is as fast as its slowest cycle (Baccelli, Cohen, Olsder, Quadrat, Synchronization and Linearity, 1992,
    /// section 2.5): that link, again and again, or the whole way round, on which each block pays every edge's latency and time.
    /// So a step costs the edges' mean latency, but for what blocks wait for that link anyway; the last one is paid in full.
    pub(super) fn step_latency(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span {
        let Some(further) = u64::from(steps).checked_sub(1) else { return Span::ZERO };
        let edges = &self.groups[group.0 as usize];
        let bits = self.wire_bytes(bytes, edges.class) as f64 * 8.0 / f64::from(steps);
        let queued = (edges.queued * bits * 1e12) as u64;
        edges.latency + Span::from_ps(edges.latency.ps().saturating_sub(queued)) * further
    }

    /// Routes all groups anew, after paths have changed.
    pub(super) fn lay_groups(&mut self) {
        for number in 0..self.groups.len() {
            let Some(origin) = self.groups[number].origin.take() else { continue };
            let laid = match &*origin {
                Origin::Edges(edges, entropy) => self.lay_edges(edges, *entropy),
                Origin::Reduction(members, entropy) => self.lay_tree(members, *entropy),
                Origin::Exchange(members, entropy) => self.lay_exchange(members, *entropy),
            };
            // A run under way keeps its turns at the switches where it began.
            let tree = self.groups[number].tree.take();
            let known = &mut self.groups[number];
            *known = Group { origin: Some(origin), ..laid };
            if tree.is_some() {
                known.tree = tree;
            }
        }
    }

    /// Lays the route of an edge over `self.route`, which becomes part of a group's way.
    pub(super) fn lay_edge(&mut self, from: EndpointId, to: EndpointId, entropy: u32, way: &mut Way) {
        way.severed |= !self.lay(from, to, NicId(0), entropy);
        way.latency = way.latency.max(self.route_latency());
        way.class = way.class.max(self.route.class);
    }

    /// The links of a coupled group's edges.
    fn lay_edges(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> Group {
        let (mut links, mut way) = (Vec::new(), Way::default());
        let (mut latencies, mut total_weight, mut alone) = (0u128, 0, 0.0);
        for &(from, to, weight) in edges {
            self.lay_edge(from, to, entropy, &mut way);
            latencies += u128::from(self.route_latency().ps()) * u128::from(weight);
            total_weight += u64::from(weight);
            alone += f64::from(weight)
                * self.seconds_a_bit(self.route.links.iter().map(|&(link, share)| (link.0, share)));
            if weight > 0 {
                links.extend(
                    self.route.links.iter().map(|&(link, share)| (link.0, share * f64::from(weight))),
                );
            }
        }
        let heaviest = edges.iter().map(|&(.., weight)| weight).max().unwrap_or(0).max(1);
        let links = summed(links);
        let busiest = self.seconds_a_bit(links.iter().copied());
        Group {
            parts: Vec::new(),
            flows: 0,
            stands_for: Vec::new(),
            links,
            queued: (busiest - alone / total_weight.max(1) as f64).max(0.0),
            weight: 1.0 / f64::from(heaviest),
            // What goes round passes edge after edge, each as often as its weight says.
            latency: Span::from_ps(latencies.div_ceil(u128::from(total_weight.max(1))) as u64),
            class: way.class,
            severed: way.severed,
            origin: None,
            tree: None,
            edges: edges.len() as u32,
            total_weight,
            ends: edges.first().map_or_else(Default::default, |&(from, to, _)| (from, to)),
        }
    }

    /// The links of a reduction's tree.
    fn lay_tree(&mut self, members: &[EndpointId], entropy: u32) -> Group {
        let (topology, seed) = (&self.topology, self.settings.seed);
        let tree = match &self.rerouter {
            None => Tree::new(topology, None, seed, members, entropy),
            Some(rerouter) => {
                let mut forwarder = reroute::lock(rerouter).forwarder().clone();
                Tree::new(topology, Some(&mut forwarder), seed, members, entropy)
            }
        };
        let severed = tree.is_none();
        let tree = tree.unwrap_or_default();
        let links = summed(tree.links(topology).iter().map(|link| (link.0, 1.0)).collect());
        let sums = self.settings.reduction;
        let (up, switches) = tree.climb(topology);
        let trip = up + sums.latency * u64::from(switches) + tree.descent(topology);
        // A segment goes through every link whole.
        let full = self.settings.mtu.get() as f64 * 8.0;
        let packet = links.iter().map(|&(link, _)| full / self.rates[link as usize]).fold(0.0, f64::max);
        let packets = Span::from_seconds_ceil(packet * f64::from(2 * switches));
        let rate = self.reduction_rate(trip + packets);
        let latency = trip + self.settings.nic_latency;
        Group {
            parts: Vec::new(),
            flows: 0,
            stands_for: Vec::new(),
            links,
            weight: 1.0,
            latency,
            queued: 0.0,
            class: PathClass::Beyond,
            severed,
            origin: None,
            tree: Some((Arc::new(tree), rate)),
            edges: members.len() as u32,
            total_weight: members.len() as u64,
            ends: (members[0], members[members.len() - 1]),
        }
    }

    /// The flows of an exchange. Where routes may change they are as many, in the same order, whatever the routes: what is left
    /// of each goes on by itself.
    fn lay_exchange(&mut self, members: &[EndpointId], entropy: u32) -> Group {
        let topology = Arc::clone(&self.topology);
        let mut nics: Vec<(u32, EndpointId, u64)> = Vec::new();
        let mut place: FxHashMap<u32, usize> = FxHashMap::default();
        for &member in members {
            let nic = topology.nic(member, NicId(0));
            let at = *place.entry(nic).or_insert(nics.len());
            match nics.get_mut(at) {
                Some((.., count)) => *count += 1,
                None => nics.push((nic, member, 1)),
            }
        }
        let (mut parts, mut way) = (Vec::new(), Way::default());
        for &(_, from, senders) in &nics {
            for &(_, to, receivers) in &nics {
                if self.domain(from) == self.domain(to) {
                    continue;
                }
                self.lay_edge(from, to, entropy, &mut way);
                let links = self.route.links.iter().map(|&(link, share)| (link.0, share)).collect();
                parts.push(Part { links, class: self.route.class, pairs: senders * receivers });
            }
        }
        let between = parts.len();
        if self.settings.alone
            && !self.changes.are_to_come()
            && let Some(one) = in_step(&parts, &self.rates)
        {
            parts = vec![one];
        }
        let joined = between - parts.len();
        self.lay_inside(members, entropy, &mut parts, &mut way);
        let loads = parts
            .iter()
            .flat_map(|part| part.links.iter().map(|&(link, share)| (link, share * part.pairs as f64)));
        let links = summed(loads.collect());
        let members = members.len() as u64;
        Group {
            edges: parts.len() as u32,
            flows: (parts.len() + joined) as u64,
            stands_for: Vec::new(),
            parts,
            origin: None,
            tree: None,
            links,
            weight: 1.0,
            latency: way.latency,
            queued: 0.0,
            class: way.class,
            severed: way.severed,
            total_weight: members * members.saturating_sub(1),
            ends: nics.first().zip(nics.last()).map_or_else(Default::default, |(a, b)| (a.1, b.1)),
        }
    }

    /// Adds what an exchange has inside domains: there pairs share the ports evenly and are one flow, that of a pair, with
    /// multiplicities. Of each domain: its messages, the seconds that a bit of each takes, and their latency.
    pub(super) fn lay_inside(
        &mut self,
        members: &[EndpointId],
        entropy: u32,
        parts: &mut Vec<Part>,
        way: &mut Way,
    ) -> Vec<(u64, f64, Span)> {
        let mut inside: Vec<(u32, EndpointId)> =
            members.iter().map(|&member| (self.domain(member), member)).collect();
        inside.sort_unstable();
        let mut messages = Vec::new();
        for group in inside.chunk_by(|a, b| a.0 == b.0).filter(|group| group.len() > 1) {
            let mut links = Vec::new();
            for &(_, from) in group {
                for &(_, to) in group.iter().filter(|&&(_, to)| to != from) {
                    self.lay_edge(from, to, entropy, way);
                    links.extend(self.route.links.iter().map(|&(link, share)| (link.0, share)));
                }
            }
            let links = summed(links);
            if !links.is_empty() {
                let (count, bit) = (group.len() as u64, self.seconds_a_bit(links.iter().copied()));
                messages.push((count * (count - 1), bit, self.route_latency()));
                parts.push(Part { links, class: PathClass::ScaleUp, pairs: 1 });
            }
        }
        messages
    }

    /// The scale-up domain of an endpoint, or its NIC if it has none.
    pub(super) fn domain(&self, member: EndpointId) -> u32 {
        let size = self.topology.scale_up_size();
        if size > 1 { member.0 / size } else { self.topology.nic(member, NicId(0)) }
    }

    /// Each edge leaves by its sender's first NIC.
    pub(super) fn group_of_edges(
        &mut self,
        edges: &[(EndpointId, EndpointId, u32)],
        entropy: u32,
    ) -> CoupledId {
        let group = self.lay_edges(edges, entropy);
        self.keep(group, || Origin::Edges(edges.to_vec(), entropy))
    }

    /// The links of the tree, each with one vector up and the sum down.
    pub(super) fn group_of_tree(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        let group = self.lay_tree(members, entropy);
        self.keep(group, || Origin::Reduction(members.to_vec(), entropy))
    }

    /// The flows of members that share a NIC go by its first member's.
    pub(super) fn group_of_exchange(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        let group = self.lay_exchange(members, entropy);
        self.keep(group, || Origin::Exchange(members.to_vec(), entropy))
    }

    /// Keeps a group, and what it was prepared from where routes may change.
    pub(super) fn keep(&mut self, group: Group, origin: impl FnOnce() -> Origin) -> CoupledId {
        let origin = self.changes.are_to_come().then(|| Box::new(origin()));
        self.groups.push(Group { origin, ..group });
        CoupledId(self.groups.len() as u32 - 1)
    }
}

/// The shares of each link summed up, in the order in which they come.
pub(super) fn summed(mut links: Vec<(u32, f64)>) -> Vec<(u32, f64)> {
    // Stable, so that the shares of a link are summed in that order.
    links.sort_by_key(|&(link, _)| link);
    links.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    links.shrink_to_fit();
    links
}

/// One flow for `parts` that alone on these links have one rate, with the links' multiplicities; `None` if they may differ.
///
/// At the common rate at which the first links are full, a flow over a full link cannot gain but from one that is no
/// faster. If every flow crosses one, the common rate is the max-min fair one (Bertsekas and Gallager 1992, §6.5.2).
fn in_step(parts: &[Part], rates: &[f64]) -> Option<Part> {
    let first = parts.first()?;
    if parts.iter().any(|part| part.pairs != first.pairs) {
        return None;
    }
    let links = summed(parts.iter().flat_map(|part| part.links.iter().copied()).collect());
    let fullness = |&(link, multiplicity): &(u32, f64)| multiplicity / rates[link as usize];
    let fullest = links.iter().map(fullness).fold(0.0, f64::max);
    let full: Vec<u32> = links
        .iter()
        .filter(|link| fullness(link) >= fullest * (1.0 - SAME_SHARE))
        .map(|&(link, _)| link)
        .collect();
    let stopped = |part: &Part| part.links.iter().any(|(link, _)| full.binary_search(link).is_ok());
    let class = parts.iter().map(|part| part.class).max()?;
    parts.iter().all(stopped).then_some(Part { links, class, pairs: first.pairs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(links: &[(u32, f64)], pairs: u64) -> Part {
        Part { links: links.to_vec(), class: PathClass::SameLeaf, pairs }
    }

    #[test]
    fn flows_in_step_are_one() {
        // Three NICs, each to both others: links 0 to 2 up, 3 to 5 down, and a wide link 6 that all cross.
        let rates = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 8.0];
        let exchange = |pairs: &dyn Fn(u32, u32) -> u64| -> Vec<Part> {
            (0..3)
                .flat_map(|from| (0..3).filter(move |&to| to != from).map(move |to| (from, to)))
                .map(|(from, to)| part(&[(from, 1.0), (3 + to, 1.0), (6, 1.0)], pairs(from, to)))
                .collect()
        };
        let one = in_step(&exchange(&|_, _| 4), &rates).expect("all NICs are equally full");
        let expected = [(0, 2.0), (1, 2.0), (2, 2.0), (3, 2.0), (4, 2.0), (5, 2.0), (6, 6.0)];
        assert_eq!((one.links, one.pairs), (expected.to_vec(), 4));
        // More members behind a NIC: other volumes.
        assert!(in_step(&exchange(&|from, to| u64::from(from + to)), &rates).is_none());
        // A slow NIC: the flows past it have more for themselves.
        let slow = [1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 8.0];
        assert!(in_step(&exchange(&|_, _| 4), &slow).is_none());
        // A narrow link in the middle holds all back alike, however unequal the NICs.
        let narrow = [1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 0.5];
        assert!(in_step(&exchange(&|_, _| 4), &narrow).is_some());
        assert!(in_step(&[], &rates).is_none());
    }
}
