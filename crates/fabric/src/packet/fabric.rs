//! Ports, switches and the kinds of links: what carries packets.
//!
//! Ports are numbered NICs' first (nic · planes + plane), then switch by switch; a directed link is the port that it leaves.
//!
//! **Invariants.** What a switch holds changes together with what its port holds ([`Fabric::hold`]). Kinds are few, and ports refer to
//! them by number; one that changes its rate gets another number.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{BitRate, Bytes, Span};
use windtunnel_topology::{LinkId, Node, Peer, SwitchId, Target, Topology};

use super::buffer::Switch;
use super::error::PacketError;
use super::impair::{PartState, links_of};
use super::link::{LinkFacts, LinkKind};
use super::packets::NONE;
use super::port::{Far, Port};
use super::settings::{Forwarding, PacketSettings};
use super::statistics::PortCounters;
use super::timeline::MOST_PORTS;
use super::transport::PathFacts;

/// See the module page.
#[derive(Clone, Debug)]
pub(super) struct Fabric {
    pub topology: Arc<Topology>,
    pub kinds: Vec<LinkKind>,
    pub ports: Vec<Port>,
    pub switches: Vec<Switch>,
    /// Where packets to a NIC port leave the fabric.
    pub targets: Vec<Target>,
}

/// Kinds of the links whose rate is to change, by the change's number and link.
pub(super) type Changed = FxHashMap<(usize, LinkId), u16>;

/// Collects the kinds of links; there are few.
struct Kinds<'a> {
    settings: &'a PacketSettings,
    facts: Vec<(u64, u64, bool, u64, [bool; 2], bool)>,
    found: Vec<LinkKind>,
}

impl Kinds<'_> {
    fn of(&mut self, facts: &LinkFacts) -> u16 {
        let queue = [facts.of_switch, facts.marks];
        let key =
            (facts.rate.bps(), facts.delay, facts.cut_through, facts.loss.to_bits(), queue, facts.impaired);
        if let Some(place) = self.facts.iter().rposition(|known| *known == key) {
            return place as u16;
        }
        self.facts.push(key);
        self.found.push(LinkKind::new(facts, self.settings));
        u16::try_from(self.found.len() - 1).expect("fewer than 2^16 kinds of links")
    }
}

impl Fabric {
    /// The idle fabric of a topology, and the kinds of links whose rate is to change.
    pub(super) fn new(
        topology: Arc<Topology>,
        settings: &PacketSettings,
    ) -> Result<(Self, Changed), PacketError> {
        let nic_ports = topology.nics() * topology.planes();
        if topology.link_count() >= MOST_PORTS {
            return Err(PacketError::Ports { found: topology.link_count() });
        }
        let mut switches = Vec::with_capacity(topology.switches() as usize);
        let mut next = nic_ports;
        for number in 0..topology.switches() {
            let count = topology.ports(SwitchId(number));
            let tier = topology.tier(SwitchId(number));
            switches.push(Switch::new(next, count, tier, &settings.buffers)?);
            next += count;
        }
        let mut fabric = Self {
            topology,
            kinds: Vec::new(),
            ports: Vec::with_capacity(next as usize),
            switches,
            targets: Vec::with_capacity(nic_ports as usize),
        };
        let changed = fabric.build(settings);
        Ok((fabric, changed))
    }

    fn build(&mut self, settings: &PacketSettings) -> Changed {
        let topology = self.topology.clone();
        let mut kinds = Kinds { settings, facts: Vec::new(), found: Vec::new() };
        // Where a switch may pass packets on from their header: it must not have a port that could run dry.
        let cut = settings.forwarding == Forwarding::CutThrough;
        let fastest = |switch: u32| {
            let switch = SwitchId(switch);
            let links = (0..topology.ports(switch)).filter_map(|port| topology.out_link(switch, port));
            links.map(|link| topology.link(link).rate).max()
        };
        let fastest: Vec<_> = if cut { (0..topology.switches()).map(fastest).collect() } else { Vec::new() };
        let mut slow = settings.slow_links.clone();
        slow.sort_by_key(|&(link, _)| link);
        let part = |link: LinkId| -> f64 {
            let first = slow.partition_point(|&(other, _)| other < link);
            slow[first..].iter().take_while(|&&(other, _)| other == link).map(|&(_, part)| part).product()
        };
        let impairments = &settings.impairments;
        let turned = impairments.changes.iter().filter(|change| !matches!(change.state, PartState::Rate(_)));
        let mut impaired: Vec<LinkId> = turned.flat_map(|change| links_of(&topology, change.part)).collect();
        impaired.extend(impairments.losses.iter().map(|&(link, _)| link));
        impaired.sort_unstable();
        let mut kind_of = |id: LinkId, far: Far, of_switch: bool, share: f64| {
            let link = topology.link(id);
            let rate = match part(id) * share {
                1.0 => link.rate,
                part => BitRate::from_bps(((link.rate.bps() as f64 * part) as u64).max(1)),
            };
            let cut_through =
                far.as_switch().is_some_and(|switch| cut && fastest[switch as usize] <= Some(rate));
            let impaired = impaired.binary_search(&id).is_ok();
            kinds.of(&LinkFacts {
                rate,
                delay: link.latency.ps(),
                cut_through,
                loss: link.loss,
                of_switch,
                marks: of_switch && (settings.ecn_on.is_empty() || settings.ecn_on.contains(&link.tier)),
                impaired,
            })
        };
        let planes = topology.planes();
        for nic in 0..topology.nics() {
            for plane in 0..planes {
                let target = topology.target(nic, plane);
                let far = Far::switch(target.switch.0);
                self.ports.push(Port::new(
                    far,
                    NONE,
                    kind_of(topology.nic_link(nic, plane), far, false, 1.0),
                ));
                self.targets.push(target);
            }
        }
        for number in 0..topology.switches() {
            let switch = SwitchId(number);
            for port in 0..topology.ports(switch) {
                let far = match topology.peer(switch, port) {
                    Some(Peer::Switch { switch, .. }) => Far::switch(switch.0),
                    Some(Peer::Nic { .. }) | None => Far::nic(),
                };
                let kind = topology.out_link(switch, port).map_or(0, |link| kind_of(link, far, true, 1.0));
                self.ports.push(Port::new(far, number, kind));
            }
        }
        let mut changed = Changed::default();
        for (number, change) in impairments.changes.iter().enumerate() {
            let PartState::Rate(share) = change.state else { continue };
            for link in links_of(&topology, change.part) {
                let (from, to) = topology.link_ends(link);
                let far = match to {
                    Node::Switch(SwitchId(switch)) => Far::switch(switch),
                    _ => Far::nic(),
                };
                changed.insert((number, link), kind_of(link, far, matches!(from, Node::Switch(_)), share));
            }
        }
        self.kinds = kinds.found;
        changed
    }

    /// The kind of the link that leaves port `p`.
    #[inline]
    pub(super) fn kind(&self, p: u32) -> &LinkKind {
        &self.kinds[usize::from(self.ports[p as usize].kind)]
    }

    /// Whether port `p` is a switch's.
    #[inline]
    pub(super) fn is_of_switch(&self, p: u32) -> bool {
        self.ports[p as usize].owner != NONE
    }

    /// The ports of a switch.
    pub(super) fn ports_of(&self, switch: u32) -> Range<u32> {
        let Switch { first, count, .. } = self.switches[switch as usize];
        first..first + count
    }

    /// Ports of NICs.
    pub(super) fn nic_ports(&self) -> u32 {
        self.targets.len() as u32
    }

    /// The NIC that a NIC port belongs to.
    pub(super) fn nic_of(&self, nic_port: u32) -> u32 {
        nic_port / self.topology.planes()
    }

    /// The switch to which a NIC port leads.
    pub(super) fn leaf(&self, nic_port: u32) -> u32 {
        self.ports[nic_port as usize].far.as_switch().expect("a NIC's cable leads to a switch")
    }

    /// Sets what a port holds, and its switch with it.
    #[inline]
    pub(super) fn hold(&mut self, p: u32, held: u32) {
        let port = &mut self.ports[p as usize];
        let before = std::mem::replace(&mut port.held, held);
        if let Some(switch) = self.switches.get_mut(port.owner as usize)
            && switch.is_limited()
        {
            switch.change(before, held);
        }
    }

    /// The link that leaves a port.
    pub(super) fn link_of(&self, port: u32) -> LinkId {
        let owner = self.ports[port as usize].owner;
        if owner == NONE {
            let planes = self.topology.planes();
            return self.topology.nic_link(port / planes, port % planes);
        }
        let local = port - self.switches[owner as usize].first;
        self.topology.out_link(SwitchId(owner), local).expect("a port with a cable")
    }

    /// Whether a port has a cable, as every NIC's does.
    pub(super) fn has_link(&self, port: u32) -> bool {
        let owner = self.ports[port as usize].owner;
        owner == NONE || {
            let local = port - self.switches[owner as usize].first;
            self.topology.out_link(SwitchId(owner), local).is_some()
        }
    }

    /// The port that a link leaves; `None` inside hosts.
    pub(super) fn port_of(&self, link: LinkId) -> Option<u32> {
        if let Some((SwitchId(switch), port)) = self.topology.link_source(link) {
            return Some(self.switches[switch as usize].first + port);
        }
        let Node::Nic(nic) = self.topology.link_ends(link).0 else { return None };
        let planes = self.topology.planes();
        let plane = (0..planes).find(|&plane| self.topology.nic_link(nic, plane) == link)?;
        Some(nic * planes + plane)
    }

    /// The port of the same cable at the far end; [`NONE`] without a cable.
    pub(super) fn reverse(&self, p: u32) -> u32 {
        let owner = self.ports[p as usize].owner;
        if owner == NONE {
            let target = &self.targets[p as usize];
            return self.switches[target.switch.0 as usize].first + target.port;
        }
        let port = p - self.switches[owner as usize].first;
        match self.topology.peer(SwitchId(owner), port) {
            Some(Peer::Switch { switch, port }) => self.switches[switch.0 as usize].first + port,
            Some(Peer::Nic { nic, plane }) => nic * self.topology.planes() + plane,
            None => NONE,
        }
    }

    /// Egress ports of the links of a path, the first of which leaves a NIC.
    pub(super) fn along(&self, links: &[LinkId]) -> Vec<u32> {
        let port = |&link: &LinkId| {
            let (switch, port) = self.topology.link_source(link)?;
            Some(self.switches[switch.0 as usize].first + port)
        };
        links[1..].iter().filter_map(port).collect()
    }

    /// What is known of a path from NIC port `port` over `path`, and of the way back, with packets and control packets of these sizes.
    pub(super) fn facts(
        &self,
        [mtu, control]: [u16; 2],
        port: u32,
        path: &[u32],
        port_back: u32,
        back: &[u32],
    ) -> PathFacts {
        let unloaded = |first: u32, rest: &[u32], wire: u16| {
            let hops = std::iter::once(first).chain(rest.iter().copied());
            let mut last = (0, 0);
            for hop in hops {
                let kind = self.kind(hop);
                let start = last.0;
                let end = start + kind.serialise(wire);
                last = (kind.reaches(start, end, wire), end + kind.delay);
            }
            last.1
        };
        let base_rtt = unloaded(port, path, mtu) + unloaded(port_back, back, control);
        let rate = self.kind(port).rate;
        let bits = u128::from(base_rtt) * u128::from(rate.bps());
        PathFacts {
            rate,
            base_rtt: Span::from_ps(base_rtt),
            bdp: bits.div_ceil(8_000_000_000_000) as u64,
            mtu: u32::from(mtu),
            hops: 1 + path.len() as u32,
            planes: 1,
            queue: path
                .iter()
                .map(|&p| self.longest_wait(p))
                .try_fold(Span::ZERO, |most, wait| Some(most.max(wait?))),
        }
    }

    /// What a data packet waits for at a switch's port that holds all the data that it may alone: until it trims, else by the
    /// dynamic threshold.
    fn longest_wait(&self, p: u32) -> Option<Span> {
        let kind = self.kind(p);
        let limit = self.switches[self.ports[p as usize].owner as usize].most_alone();
        let trim = Some(u64::from(kind.trim)).filter(|_| kind.trim != u32::MAX);
        let bytes = limit.into_iter().chain(trim).min()?;
        Some(kind.rate.serialise(Bytes::new(bytes)))
    }

    /// What a port has counted by `at`.
    pub(super) fn counted(&self, p: u32, at: u64) -> PortCounters {
        self.ports[p as usize].counted_by(at, self.kind(p))
    }

    /// Data packets and control packets sent over a link, over all links.
    pub(super) fn packet_hops(&self) -> (u64, u64) {
        self.ports.iter().fold((0, 0), |(data, control), port| {
            (data + port.counters.packets, control + port.counters.control)
        })
    }

    /// Sum over data packets of the time between joining a queue and the start of transmission.
    pub(super) fn queueing(&self) -> Span {
        Span::from_ps(self.ports.iter().map(|port| port.counters.waited).sum())
    }
}
