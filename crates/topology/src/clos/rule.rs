//! The rule of a Clos network: up, then down.
//!
//! A switch's ports are those down (port child · bundle + parallel; of a leaf its NIC ports), then its uplinks (port
//! `ports_down` + q, q mod parents being the parent). From a switch whose block holds the destination's leaf the one
//! way down is shortest; from any other, all uplinks are equal.

use smallvec::smallvec;
use windtunnel_kernel::{BitRate, Span};

use super::path::class;
use super::{Clos, Level, Stage};
use crate::choose::choose_hashed;
use crate::faults::Dead;
use crate::link::{LinkTier, PathClass};
use crate::port::PortSet;
use crate::shape::{Cable, Coordinates, Far, Shape, Site};

/// A switch taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) tier: usize,
    pub(super) plane: u32,
    pub(super) block: u32,
    pub(super) index: u32,
}

impl Clos {
    #[inline]
    pub(super) fn at(&self, switch: u32) -> At {
        let mut tier = self.levels.len() - 1;
        while self.levels[tier].first_switch > switch {
            tier -= 1;
        }
        let level = &self.levels[tier];
        let in_tier = switch - level.first_switch;
        // Divisions by the switches of a plane are for several planes only.
        let (plane, in_plane) = if self.planes == 1 {
            (0, in_tier)
        } else {
            (in_tier / level.switches, in_tier % level.switches)
        };
        let (block, index) = level.width.split(in_plane);
        At { tier, plane, block, index }
    }

    #[inline]
    pub(super) fn number(&self, at: At) -> u32 {
        let level = &self.levels[at.tier];
        level.first_switch + at.plane * level.switches + at.block * level.width.get() + at.index
    }

    /// The leaf of a switch of tier 0, within its plane.
    #[inline]
    pub(super) fn leaf(&self, switch: u32) -> u32 {
        if self.planes == 1 { switch } else { switch % self.levels[0].switches }
    }

    /// The block of a tier that holds a leaf.
    #[inline]
    pub(super) fn block_of(&self, tier: usize, leaf: u32) -> u32 {
        self.levels[tier].leaves.quotient(leaf)
    }

    /// Ports down of a switch, used or not.
    #[inline]
    pub(super) fn ports_down(&self, tier: usize) -> u32 {
        self.levels[tier].ports_down
    }

    /// The lower switch of a port down of a switch above the leaves, and its uplink.
    fn child(&self, at: At, port: u32) -> Option<(At, u32)> {
        let tier = at.tier - 1;
        let (level, stage) = (&self.levels[tier], &self.stages[tier]);
        let (child, parallel) = (port / stage.bundle, port % stage.bundle);
        let block = at.block * stage.radix.get() + child;
        let (parent, index) = level.width.split(at.index);
        let uplink = parent + stage.parents.get() * parallel;
        (child < stage.radix.get() && block < level.blocks)
            .then_some((At { tier, block, index, ..at }, uplink))
    }

    /// The upper switch of an uplink, and its port down.
    fn parent(&self, at: At, uplink: u32) -> (At, u32) {
        let (level, stage) = (&self.levels[at.tier], &self.stages[at.tier]);
        let (parallel, parent) = stage.parents.split(uplink);
        let (block, child) = stage.radix.split(at.block);
        let upper = At { tier: at.tier + 1, block, index: at.index + level.width.get() * parent, ..at };
        (upper, child * stage.bundle + parallel)
    }

    /// Ports that begin the shortest paths from a switch to a leaf: the first and how many.
    #[inline]
    pub(crate) fn equal_ports(&self, at: u32, to: u32) -> (u32, u32) {
        let (at, leaf) = (self.at(at), self.leaf(to));
        if self.block_of(at.tier, leaf) == at.block {
            let stage = &self.stages[at.tier - 1];
            let child = self.block_of(at.tier - 1, leaf) - at.block * stage.radix.get();
            (child * stage.bundle, stage.bundle)
        } else {
            (self.ports_down(at.tier), self.stages[at.tier].uplinks.get())
        }
    }

    /// The NIC on a port of a leaf.
    fn nic(&self, leaf: u32, port: u32) -> Option<u32> {
        let per_host = self.nics_per_host;
        let (host, nic) = if self.rails {
            (leaf / per_host * self.group.get() + port, leaf % per_host)
        } else {
            (leaf * self.group.get() + port / per_host, port % per_host)
        };
        (port < self.leaf_ports() && host < self.edge.nics / per_host).then(|| host * per_host + nic)
    }

    /// Cable number of an uplink within its stage.
    #[inline]
    fn uplink(&self, at: At, uplink: u32) -> u32 {
        let (level, stage) = (&self.levels[at.tier], &self.stages[at.tier]);
        let in_tier = at.plane * level.switches + at.block * level.width.get() + at.index;
        in_tier * stage.uplinks.get() + uplink
    }
}

impl Shape for Clos {
    fn name(&self) -> &'static str {
        "clos"
    }

    fn switches(&self) -> u32 {
        let top = self.levels.last().expect("a Clos has a tier");
        top.first_switch + self.planes * top.switches
    }

    fn ports(&self, switch: u32) -> u32 {
        let tier = self.at(switch).tier;
        self.ports_down(tier) + self.stages.get(tier).map_or(0, |stage| stage.uplinks.get())
    }

    fn peer(&self, switch: u32, port: u32) -> Option<Far> {
        let at = self.at(switch);
        match port.checked_sub(self.ports_down(at.tier)) {
            Some(uplink) => {
                let (upper, port) = self.parent(at, uplink);
                Some(Far::Switch { switch: self.number(upper), port })
            }
            None if at.tier == 0 => self.nic(at.block, port).map(|nic| Far::Nic { nic, plane: at.plane }),
            None => {
                let (lower, uplink) = self.child(at, port)?;
                let port = self.ports_down(lower.tier) + uplink;
                Some(Far::Switch { switch: self.number(lower), port })
            }
        }
    }

    #[inline]
    fn attachment(&self, nic: u32, plane: u32) -> (u32, u32) {
        let (leaf, port) = self.port(self.per_host.split(nic));
        (plane * self.levels[0].switches + leaf, port)
    }

    fn cable(&self, switch: u32, port: u32) -> Cable {
        let tier = self.at(switch).tier;
        let Level { rate, propagation, loss, length_mm, .. } =
            self.levels[tier + usize::from(port >= self.ports_down(tier))];
        Cable { rate, propagation, loss, length_mm }
    }

    fn link_tier(&self, switch: u32, port: u32) -> LinkTier {
        match self.at(switch).tier {
            tier if port >= self.ports_down(tier) => LinkTier::Up(tier as u8),
            0 => LinkTier::NicDown,
            tier => LinkTier::Down(tier as u8 - 1),
        }
    }

    fn delay(&self, switch: u32) -> Span {
        self.levels[self.at(switch).tier].delay
    }

    fn fabric_links(&self) -> u32 {
        self.links
    }

    fn link(&self, switch: u32, port: u32) -> u32 {
        let at = self.at(switch);
        match port.checked_sub(self.ports_down(at.tier)) {
            Some(uplink) => self.stages[at.tier].up + self.uplink(at, uplink),
            None => {
                let (lower, uplink) = self.child(at, port).expect("a port with a cable");
                self.stages[lower.tier].down + self.uplink(lower, uplink)
            }
        }
    }

    fn link_source(&self, link: u32) -> (u32, u32) {
        // Stages are numbered in order: the last one that begins at or before the link holds it.
        let tier = self.stages.partition_point(|stage| stage.up <= link) - 1;
        let (level, stage) = (&self.levels[tier], &self.stages[tier]);
        let Stage { up, down, .. } = *stage;
        let (switch, uplink) = stage.uplinks.split(link - if link < down { up } else { down });
        let lower = self.at(level.first_switch + switch);
        if link < down {
            return (self.number(lower), self.ports_down(tier) + uplink);
        }
        let (upper, port) = self.parent(lower, uplink);
        (self.number(upper), port)
    }

    fn parallel(&self, switch: u32, port: u32) -> Option<u32> {
        let tier = self.at(switch).tier;
        let (stage, number) = match port.checked_sub(self.ports_down(tier)) {
            Some(uplink) => (tier, uplink / self.stages[tier].parents.get()),
            None => (tier.checked_sub(1)?, port % self.stages[tier - 1].bundle),
        };
        (self.stages[stage].bundle > 1).then_some(number)
    }

    #[inline]
    fn shortest(&self, at: u32, to: u32, ports: &mut PortSet) {
        let (first, count) = self.equal_ports(at, to);
        ports.push_run(first, count);
    }

    #[inline]
    fn pick(&self, at: u32, to: u32, flow_hash: u64) -> u32 {
        let (first, count) = self.equal_ports(at, to);
        if count == 1 { first } else { first + choose_hashed(flow_hash, u64::from(at), count) }
    }

    fn may_follow(&self, at: u32, port: u32, to: u32) -> bool {
        let at = self.at(at);
        port >= self.ports_down(at.tier)
            || self
                .child(at, port)
                .is_some_and(|(lower, _)| self.block_of(lower.tier, self.leaf(to)) == lower.block)
    }

    fn waypoint(&self, _from: u32, _to: u32, _hash: u64, _queue: impl Fn(u32) -> u64) -> Option<u32> {
        None
    }

    fn leaves_shortest(&self) -> bool {
        false
    }

    #[inline]
    fn repairs_by_rule(&self) -> bool {
        true
    }

    fn tally(&self, dead: &Dead) -> Vec<u32> {
        self.dead_tally(dead, 0)
    }

    fn surviving(&self, dead: &Dead, at: u32, to: u32, ports: &mut PortSet, weights: Option<&mut Vec<u64>>) {
        self.surviving_ports(dead.part(0, 0), at, to, ports, weights);
    }

    #[inline]
    fn pick_surviving(&self, dead: &Dead, at: u32, to: u32, flow_hash: u64) -> Option<u32> {
        self.pick_surviving_by(dead.part(0, 0), at, to, |n| choose_hashed(flow_hash, u64::from(at), n))
    }

    fn class(&self, a: u32, b: u32) -> PathClass {
        class(self.turn(self.leaf(a), self.leaf(b)))
    }

    fn tier(&self, switch: u32) -> u8 {
        self.at(switch).tier as u8
    }

    fn tier_name(&self, tier: u8) -> String {
        match usize::from(tier) {
            0 => "leaf".to_owned(),
            top if top + 1 == self.levels.len() => "spine".to_owned(),
            1 => "agg".to_owned(),
            tier => format!("tier{tier}"),
        }
    }

    /// `leaf5`, with rails `leaf{group}.{rail}`; at the top `spine5`; between them `agg{pod}.{index}` and
    /// `tier2-{block}.{index}`; with several planes after `plane0/`.
    fn switch_name(&self, switch: u32) -> String {
        let At { tier, plane, block, index } = self.at(switch);
        let name = match tier {
            0 if self.rails => format!("leaf{}.{}", block / self.nics_per_host, block % self.nics_per_host),
            0 => format!("leaf{block}"),
            top if top + 1 == self.levels.len() => format!("spine{index}"),
            1 => format!("agg{block}.{index}"),
            tier => format!("tier{tier}-{block}.{index}"),
        };
        if self.planes > 1 { format!("plane{plane}/{name}") } else { name }
    }

    fn axes(&self) -> Vec<String> {
        ["plane", "tier", "block", "index"].map(str::to_owned).to_vec()
    }

    fn coordinates(&self, switch: u32) -> Coordinates {
        let At { tier, plane, block, index } = self.at(switch);
        smallvec![plane, tier as u32, block, index]
    }

    fn switch_at(&self, coordinates: &[u32]) -> Option<u32> {
        let &[plane, tier, block, index] = coordinates else { return None };
        let level = self.levels.get(tier as usize)?;
        let valid = plane < self.planes && block < level.blocks && index < level.width.get();
        valid.then(|| self.number(At { tier: tier as usize, plane, block, index }))
    }

    fn site(&self, host: u32) -> Site {
        let (rack, slot) = self.group.split(host);
        Site { pod: self.pod(rack), rack, slot, ..Site::default() }
    }

    fn host_at(&self, site: Site) -> Option<u32> {
        let host = u64::from(site.rack) * u64::from(self.group.get()) + u64::from(site.slot);
        let host = u32::try_from(host).ok()?;
        (host < self.edge.nics / self.nics_per_host && self.site(host) == site).then_some(host)
    }

    fn bisection(&self) -> BitRate {
        {
            // Half of the traffic of every half crosses every stage up to the turn that the farthest hosts need.
            let turn = self.diameter() as usize / 2;
            let below = |tier: usize| {
                let cables = match tier.checked_sub(1) {
                    None => u64::from(self.edge.nics),
                    Some(lower) => {
                        u64::from(self.levels[lower].switches) * u64::from(self.stages[lower].uplinks.get())
                    }
                };
                u128::from(cables) * u128::from(self.planes) * u128::from(self.levels[tier].rate.bps())
            };
            let narrowest = (0..=turn).map(below).min().unwrap_or(0);
            BitRate::from_bps(u64::try_from(narrowest / 2).unwrap_or(u64::MAX))
        }
    }

    fn diameter(&self) -> u32 {
        let hosts = self.edge.nics / self.nics_per_host;
        let first = (0..self.nics_per_host).map(|nic| self.port((0, nic)).0);
        let last = (0..self.nics_per_host).map(|nic| self.port((hosts - 1, nic)).0);
        let turns = first.flat_map(|a| last.clone().map(move |b| self.turn(a, b)));
        2 * turns.max().unwrap_or(0) as u32
    }
}

impl Clos {
    /// The block of tier 1 of a group of hosts: its pod. With rails the group's first leaf tells.
    fn pod(&self, group: u32) -> u32 {
        let leaf = if self.rails { group * self.nics_per_host } else { group };
        if self.levels.len() > 1 { self.block_of(1, leaf) } else { 0 }
    }
}
