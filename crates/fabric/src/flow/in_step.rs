//! Exchanges whose messages have one rate, so that one flow stands for all of them.
//!
//! **Why it is the same.** All messages of an exchange are as long and begin at once. At a common rate some links are full first; a
//! message over a full link cannot gain but from one that is no faster, so if every message crosses one, the common rate is
//! the max-min fair one ([`super::groups`], Bertsekas and Gallager 1992, §6.5.2). They then end together, and one flow with the links'
//! multiplicities ends with them. Each of them counts as a flow where somebody else's flow comes to a link, as it would by itself; but
//! what holds one of them back then holds all of them back.

use rustc_hash::FxHashMap;
use windtunnel_kernel::{EndpointId, Span};
use windtunnel_topology::PathClass;

use super::flow_network::FlowNetwork;
use super::groups::{Group, Part, SAME_SHARE, Way};
use crate::model::InStep;

impl FlowNetwork {
    /// See [`crate::Fabric::prepare_in_step`].
    pub(super) fn group_in_step(&mut self, members: &[EndpointId], entropy: u32) -> Option<InStep> {
        if self.changes.are_to_come() {
            return None;
        }
        let mut way = Way::default();
        let mut load: FxHashMap<u32, f64> = FxHashMap::default();
        // Of the messages to each member the longest way.
        let mut latest: Vec<Option<Span>> = vec![None; members.len()];
        let mut between_messages: FxHashMap<Span, u64> = FxHashMap::default();
        self.each_between(members, entropy, &mut way, |to, network, latency| {
            latest[to] = latest[to].max(Some(latency));
            *between_messages.entry(latency).or_insert(0) += 1;
            for &(link, share) in &network.route.links {
                *load.entry(link.0).or_insert(0.0) += share;
            }
        });
        let mut links: Vec<(u32, f64)> = load.into_iter().collect();
        links.sort_unstable_by_key(|&(link, _)| link);
        let between = self.seconds_a_bit(links.iter().copied());
        if way.severed || between == 0.0 {
            return None;
        }
        let full =
            |&(link, load): &(u32, f64)| load / self.rates[link as usize] >= between * (1.0 - SAME_SHARE);
        let full: Vec<u32> = links.iter().filter(|link| full(link)).map(|&(link, _)| link).collect();
        let mut one_rate = true;
        self.each_between(members, entropy, &mut Way::default(), |_, network, _| {
            one_rate &= network.route.links.iter().any(|(link, _)| full.binary_search(&link.0).is_ok());
        });
        let mut parts = vec![Part { links, class: way.class, pairs: 1 }];
        let inside = self.lay_inside(members, entropy, &mut parts, &mut way);
        // Headers make what goes between domains longer still.
        let inside_ends_later =
            inside.iter().any(|&(_, bit, latency)| bit > between || latency > way.latency);
        if !one_rate || inside_ends_later {
            return None;
        }
        // Several domains: everybody hears from another one.
        let longest = latest.iter().copied().max().flatten()?;
        let shortest = latest.iter().copied().min().flatten()?;
        let mut links: Vec<(u32, f64)> = parts.iter().flat_map(|part| part.links.iter().copied()).collect();
        links.sort_by_key(|&(link, _)| link);
        let mut messages: Vec<(u64, Span)> =
            between_messages.into_iter().map(|(latency, count)| (count, latency)).collect();
        messages.sort_unstable();
        let all = members.len() as u64 * (members.len() as u64 - 1);
        let group = Group {
            edges: u32::try_from(all).unwrap_or(u32::MAX),
            flows: 0,
            stands_for: messages,
            parts,
            origin: None,
            tree: None,
            links,
            weight: 1.0,
            latency: way.latency,
            queued: 0.0,
            class: way.class.max(PathClass::ScaleUp),
            severed: false,
            total_weight: all,
            ends: (members[0], members[members.len() - 1]),
        };
        self.groups.push(group);
        let id = crate::CoupledId(self.groups.len() as u32 - 1);
        Some(InStep { group: id, spread: longest - shortest })
    }

    /// Lays the route of each message between two domains: told are the receiver's index, the network with the route, and the
    /// way's latency.
    fn each_between(
        &mut self,
        members: &[EndpointId],
        entropy: u32,
        way: &mut Way,
        mut see: impl FnMut(usize, &Self, Span),
    ) {
        for &from in members {
            for (index, &to) in members.iter().enumerate() {
                if self.domain(from) != self.domain(to) {
                    self.lay_edge(from, to, entropy, way);
                    see(index, self, self.route_latency());
                }
            }
        }
    }
}
