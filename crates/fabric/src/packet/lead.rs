//! What leads packets: paths worked out ahead, switches' rules, balancers, and ways around what has failed.
//!
//! **Invariant.** Where a packet and its switch alone decide the next hop, nothing leads packets around what has failed:
//! [`Lead::lead_by`] ends the one as it begins the other.

use rustc_hash::FxHashMap;
use windtunnel_topology::{Forwarder, SwitchId, SwitchRule, Target, Topology};

use super::balance::Balance;
use super::buffer::Switch;
use super::packets::{NONE, Packet, flag};
use super::port::Far;
use super::settings::Balancer;

/// See the module page.
#[derive(Clone, Debug)]
pub(super) struct Lead {
    /// Next hops where something has failed.
    pub forwarder: Option<Forwarder>,
    /// Of every switch, where the topology has them; else none.
    pub rules: Vec<SwitchRule>,
    /// Whether a packet and the switch alone decide its next hop.
    simple: bool,
    pub paths: Paths,
    pub balance: Balance,
}

impl Lead {
    /// Of a fabric where `forwarder`, if there is one, leads around what has failed.
    pub(super) fn new(topology: &Topology, balancer: Balancer, forwarder: Option<Forwarder>) -> Self {
        let rules: Vec<SwitchRule> =
            (0..topology.switches()).map_while(|number| topology.switch_rule(SwitchId(number))).collect();
        let simple = !rules.is_empty()
            && forwarder.is_none()
            && !balancer.sees_ports()
            && !matches!(balancer, Balancer::Flowlet { .. });
        Self { forwarder, rules, simple, paths: Paths::default(), balance: Balance::default() }
    }

    /// Packets go where `forwarder` says.
    pub(super) fn lead_by(&mut self, forwarder: Forwarder) {
        self.forwarder = Some(forwarder);
        self.simple = false;
    }

    /// What decides the next hop of a packet as it goes on a cable, with the fabric's switches and targets.
    #[inline]
    pub(super) fn ways<'a>(&'a self, switches: &'a [Switch], targets: &'a [Target]) -> Ways<'a> {
        let rules = if self.simple { &self.rules[..] } else { &[] };
        Ways { paths: &self.paths, rules, switches, targets }
    }
}

/// Egress ports of paths worked out ahead, one after another; equal lengths use places again.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    ports: Vec<u32>,
    free: FxHashMap<u32, Vec<u32>>,
}

impl Paths {
    /// Lays down a path; its place.
    pub(super) fn insert(&mut self, path: &[u32]) -> u32 {
        if let Some(place) = self.free.get_mut(&(path.len() as u32)).and_then(Vec::pop) {
            self.ports[place as usize..place as usize + path.len()].copy_from_slice(path);
            return place;
        }
        self.ports.extend_from_slice(path);
        (self.ports.len() - path.len()) as u32
    }

    fn release(&mut self, place: u32, len: u32) {
        self.free.entry(len).or_default().push(place);
    }

    /// Takes the paths at `place` and `back` up again, of these lengths; none if there are none.
    pub(super) fn take_up(&mut self, place: Option<u64>, back: u64, [len, len_back]: [u32; 2]) {
        if let Some(place) = place {
            self.release(place as u32, len);
            self.release(back as u32, len_back);
        }
    }
}

impl std::ops::Index<u32> for Paths {
    type Output = u32;

    #[inline]
    fn index(&self, place: u32) -> &u32 {
        &self.ports[place as usize]
    }
}

/// What leads packets where nothing but the packet and the switch decide: paths worked out ahead, and switches' rules.
#[derive(Clone, Copy)]
pub(super) struct Ways<'a> {
    pub paths: &'a Paths,
    /// None where more decides.
    pub rules: &'a [SwitchRule],
    pub switches: &'a [Switch],
    pub targets: &'a [Target],
}

impl Ways<'_> {
    /// The port by which a packet will leave the switch at the far end of its cable, if that is known already.
    #[expect(clippy::inline_always, reason = "once a hop, and a call costs as much")]
    #[inline(always)]
    pub(super) fn onwards(&self, packet: &mut Packet, far: Far) -> u32 {
        let Some(switch) = far.as_switch() else { return NONE };
        if packet.flags & (flag::ROUTED | flag::REDUCED) != 0 {
            if packet.flags & flag::REDUCED != 0 {
                return NONE;
            }
            let place = packet.hash as u32;
            packet.hash += 1;
            return self.paths[place];
        }
        let Some(rule) = self.rules.get(switch as usize) else { return NONE };
        let hop = rule.next_hop(&self.targets[packet.to as usize], packet.hash);
        self.switches[switch as usize].first + hop
    }
}
