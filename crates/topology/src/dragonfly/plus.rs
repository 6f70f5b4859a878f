//! Dragonfly+: every group is a two-level Clos, whose spines have the global cables.
//!
//! Leaves come first: leaf l of group G is switch G · leaves + l, spine s is number G · spines + s after all leaves.
//! Ports of a leaf: to NICs, then to the spines of its group in order. Ports of a spine: to the leaves of its group,
//! then its h global channels, wired over the spines as [`super::channels`] says.
//!
//! Links: from leaf L to spine s number L · spines + s; then from spine S to leaf l, S · leaves + l; then the global
//! ones, channel j of group G being G · cabled + j. Channels without a cable come last in a group: no number is left out.
//!
//! The legal paths are up, at most one global link, down: leaf, spine, leaf within a group; leaf, spine, spine, leaf
//! between two, over any spine that has a cable to the destination's group. Spines without one are not used. (Should a
//! packet stand on one after faults have been repaired, it goes down to any leaf and from there by the rule.) So all
//! legal paths between two leaves are equally long, and with faults the shortest are those whose cables all live: this
//! is answered by arithmetic on the dead ports.
//!
//! Source: Shpiner, Haramaty, Eliad, Zdornov, Gafni, Zahavi, "Dragonfly+: low cost topology for scaling datacenters",
//! HiPINEB'17.

use smallvec::smallvec;
use windtunnel_kernel::{BitRate, Span};

use super::channels::{Channels, Holders};
use super::waypoint::waypoint;
use super::{Size, alone, cable_if, check_latency, oversize, rate};
use crate::choose::choose_hashed;
use crate::direct::Direct;
use crate::divide::Divisor;
use crate::error::TopologyError;
use crate::faults::Dead;
use crate::hosts::Hosts;
use crate::link::{LinkTier, PathClass};
use crate::port::PortSet;
use crate::shape::{Cable, Coordinates, Far, Shape, Site};
use crate::spec::{DragonflyPlusSpec, DragonflyRouting};

#[derive(Clone, Debug)]
pub(crate) struct DragonflyPlus {
    direct: Direct,
    leaves: Divisor,
    spines: Divisor,
    channels: Channels,
    /// Leaves of all groups.
    first_spine: u32,
    /// Links up; as many down follow.
    ups: u32,
    links: u32,
    local: Cable,
    global: Cable,
    routing: DragonflyRouting,
}

/// Directed links from leaves up, and between groups.
fn counts(channels: &Channels, leaves: u32, spines: u32) -> (u64, u64) {
    let all = u64::from(channels.groups) * u64::from(leaves);
    (all.saturating_mul(u64::from(spines)), u64::from(channels.groups) * u64::from(channels.cabled))
}

/// A switch taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Leaf { group: u32, leaf: u32 },
    Spine { group: u32, spine: u32 },
}

/// Equal-cost ports: number i of `count` is `first` + i, or leads to holder i.
enum Ways {
    Run { first: u32, count: u32 },
    Up(Holders),
    Global { first: u32, step: u32, count: u32 },
}

impl DragonflyPlus {
    /// Checks the sizes of `spec`; its hosts.
    pub(crate) fn hosts(spec: &DragonflyPlusSpec) -> Result<Hosts, TopologyError> {
        let &DragonflyPlusSpec { ref direct, groups, leaves, spines, global_links, .. } = spec;
        super::check_sizes(direct, &[("groups", groups), ("leaves", leaves), ("spines", spines)])?;
        Channels::new(groups, ("spines", spines), global_links)?;
        let hosts = |groups: u32, leaves: u32, spines: u32| {
            let channels = Channels::new(groups, ("spines", spines), global_links).ok()?;
            let all = u64::from(groups) * u64::from(leaves);
            let (ups, globals) = counts(&channels, leaves, spines);
            Direct::hosts(direct, all, ups.saturating_mul(2).saturating_add(globals)).ok()?
        };
        // What is wrong with a host is said before what is wrong with their number.
        Hosts::new(1, &direct.host)?;
        hosts(groups, leaves, spines).ok_or_else(|| {
            let found = u64::from(groups) * u64::from(leaves);
            let fits: [Size; 3] = [
                ("groups", groups, &|groups| hosts(groups, leaves, spines).is_some()),
                ("leaves", leaves, &|leaves| hosts(1, leaves, spines).is_some()),
                ("spines", spines, &|spines| hosts(1, 1, spines).is_some()),
            ];
            oversize(found.saturating_mul(u64::from(direct.hosts_per_router)), &fits)
        })
    }

    /// The rules of `spec`, whose hosts [`Self::hosts`] has given.
    pub(crate) fn new(spec: &DragonflyPlusSpec, hosts: &Hosts) -> Result<Self, TopologyError> {
        let &DragonflyPlusSpec { groups, leaves, spines, global_links, .. } = spec;
        let channels = Channels::new(groups, ("spines", spines), global_links)?;
        let direct = Direct::new(&spec.direct, hosts)?;
        let (ups, globals) = counts(&channels, leaves, spines);
        let local = cable_if(true, &spec.local, &spec.direct, "local")?;
        let global = cable_if(channels.copies > 0, &spec.global, &spec.direct, "global")?;
        check_latency(&direct, &local, &global)?;
        Ok(Self {
            // All that is counted here is fewer than the links of the hosts' fabric: it fits 32 bits.
            first_spine: groups * leaves,
            ups: ups as u32,
            links: (2 * ups + globals) as u32,
            direct,
            leaves: Divisor::new(leaves),
            spines: Divisor::new(spines),
            channels,
            local,
            global,
            routing: spec.routing,
        })
    }

    #[inline]
    fn at(&self, switch: u32) -> At {
        match switch.checked_sub(self.first_spine) {
            None => {
                let (group, leaf) = self.leaves.split(switch);
                At::Leaf { group, leaf }
            }
            Some(index) => {
                let (group, spine) = self.spines.split(index);
                At::Spine { group, spine }
            }
        }
    }

    /// Ports of a leaf to NICs: the first ones.
    #[inline]
    fn nics(&self) -> u32 {
        self.direct.nics.get()
    }

    #[inline]
    fn leaf(&self, group: u32, leaf: u32) -> u32 {
        group * self.leaves.get() + leaf
    }

    #[inline]
    fn spine(&self, group: u32, spine: u32) -> u32 {
        self.first_spine + group * self.spines.get() + spine
    }

    /// The port of a leaf to a spine.
    #[inline]
    fn up(&self, spine: u32) -> u32 {
        self.nics() + spine
    }

    /// The channel of a spine's port; `None` of one down.
    #[inline]
    fn channel(&self, spine: u32, port: u32) -> Option<u32> {
        Some(port.checked_sub(self.leaves.get())? + spine * self.channels.ports)
    }

    /// The port of a spine's channel.
    #[inline]
    fn global_port(&self, spine: u32, channel: u32) -> u32 {
        self.leaves.get() + channel - spine * self.channels.ports
    }

    #[inline]
    fn ways(&self, at: At, to: u32) -> Ways {
        let (goal, to_leaf) = self.leaves.split(to);
        match at {
            At::Leaf { group, .. } if group == goal => {
                Ways::Run { first: self.up(0), count: self.spines.get() }
            }
            At::Leaf { group, .. } => {
                let offset = self.channels.offset(group, goal);
                Ways::Up(self.channels.holders_of(offset, self.channels.all()))
            }
            At::Spine { group, .. } if group == goal => Ways::Run { first: to_leaf, count: 1 },
            At::Spine { group, spine } => {
                let offset = self.channels.offset(group, goal);
                let own = self.channels.on(spine, offset);
                if own.is_empty() {
                    return Ways::Run { first: 0, count: self.leaves.get() };
                }
                let first = self.global_port(spine, self.channels.channel(offset, own.start));
                Ways::Global { first, step: self.channels.groups - 1, count: own.end - own.start }
            }
        }
    }

    #[inline]
    fn port(&self, ways: &Ways, index: u32) -> u32 {
        match ways {
            Ways::Run { first, .. } => first + index,
            Ways::Up(holders) => self.up(holders.nth(index)),
            Ways::Global { first, step, .. } => first + index * step,
        }
    }

    /// Hops between two leaves.
    #[inline]
    fn hops(&self, from: u32, to: u32) -> u32 {
        if from == to {
            0
        } else if self.leaves.quotient(from) == self.leaves.quotient(to) {
            2
        } else {
            3
        }
    }

    /// Living legal paths from a switch over one of its ports, which begins a shortest one in a whole fabric.
    fn paths(&self, dead: &Dead, at: At, port: u32, to: u32) -> u64 {
        let (goal, to_leaf) = self.leaves.split(to);
        match at {
            At::Leaf { group, leaf } => {
                let spine = port - self.nics();
                if dead.port(self.leaf(group, leaf), port) {
                    return 0;
                }
                let up = At::Spine { group, spine };
                match self.ways(up, to) {
                    Ways::Run { first, count: 1 } if group == goal => self.paths(dead, up, first, to),
                    Ways::Global { first, step, count } => {
                        (0..count).map(|index| self.paths(dead, up, first + index * step, to)).sum()
                    }
                    Ways::Run { .. } | Ways::Up(_) => 0,
                }
            }
            At::Spine { group, spine } => {
                if dead.port(self.spine(group, spine), port) {
                    return 0;
                }
                match self.channel(spine, port) {
                    // The far spine's cable down, looked up at its lower end.
                    Some(channel) => {
                        let (_, back) = self.channels.far(group, channel).expect("a way has a cable");
                        let landing = self.up(self.channels.holder(back));
                        u64::from(!dead.port(self.leaf(goal, to_leaf), landing))
                    }
                    None if group == goal => 1,
                    None => {
                        let mut ports = PortSet::new();
                        let from = At::Leaf { group, leaf: port };
                        self.list(from, to, &mut ports);
                        ports.iter().map(|port| self.paths(dead, from, port, to)).sum()
                    }
                }
            }
        }
    }

    #[inline]
    fn list(&self, at: At, to: u32, ports: &mut PortSet) {
        match self.ways(at, to) {
            Ways::Run { first, count } => ports.push_run(first, count),
            Ways::Up(holders) => holders.iter().for_each(|spine| ports.push(self.up(spine))),
            Ways::Global { first, step, count } => {
                (0..count).for_each(|index| ports.push(first + index * step));
            }
        }
    }
}

impl Ways {
    #[inline]
    fn len(&self) -> u32 {
        match self {
            Self::Run { count, .. } | Self::Global { count, .. } => *count,
            Self::Up(holders) => holders.count,
        }
    }
}

impl Shape for DragonflyPlus {
    fn name(&self) -> &'static str {
        "dragonfly+"
    }

    fn switches(&self) -> u32 {
        self.first_spine + self.channels.groups * self.spines.get()
    }

    #[inline]
    fn ports(&self, switch: u32) -> u32 {
        if switch < self.first_spine {
            self.nics() + self.spines.get()
        } else {
            self.leaves.get() + self.channels.ports
        }
    }

    #[inline]
    fn peer(&self, switch: u32, port: u32) -> Option<Far> {
        Some(match self.at(switch) {
            At::Leaf { group, leaf } => match port.checked_sub(self.nics()) {
                None => Far::Nic { nic: self.direct.nic(switch, port), plane: 0 },
                Some(spine) => Far::Switch { switch: self.spine(group, spine), port: leaf },
            },
            At::Spine { group, spine } => match self.channel(spine, port) {
                None => Far::Switch { switch: self.leaf(group, port), port: self.up(spine) },
                Some(channel) => {
                    let (group, channel) = self.channels.far(group, channel)?;
                    let (spine, port) = self.channels.place(channel);
                    Far::Switch { switch: self.spine(group, spine), port: self.leaves.get() + port }
                }
            },
        })
    }

    #[inline]
    fn attachment(&self, nic: u32, _plane: u32) -> (u32, u32) {
        self.direct.place(nic)
    }

    #[inline]
    fn cable(&self, switch: u32, port: u32) -> Cable {
        match self.link_tier(switch, port) {
            LinkTier::NicDown => self.direct.nic,
            LinkTier::Global => self.global,
            _ => self.local,
        }
    }

    #[inline]
    fn link_tier(&self, switch: u32, port: u32) -> LinkTier {
        if switch < self.first_spine {
            if port < self.nics() { LinkTier::NicDown } else { LinkTier::Up(0) }
        } else if port < self.leaves.get() {
            LinkTier::Down(0)
        } else {
            LinkTier::Global
        }
    }

    #[inline]
    fn delay(&self, _switch: u32) -> Span {
        self.direct.delay
    }

    fn fabric_links(&self) -> u32 {
        self.links
    }

    #[inline]
    fn link(&self, switch: u32, port: u32) -> u32 {
        match self.at(switch) {
            At::Leaf { .. } => switch * self.spines.get() + port - self.nics(),
            At::Spine { group, spine } => match self.channel(spine, port) {
                None => self.ups + (switch - self.first_spine) * self.leaves.get() + port,
                Some(channel) => 2 * self.ups + group * self.channels.cabled + channel,
            },
        }
    }

    fn link_source(&self, link: u32) -> (u32, u32) {
        let Some(down) = link.checked_sub(self.ups) else {
            let (leaf, spine) = self.spines.split(link);
            return (leaf, self.up(spine));
        };
        let Some(global) = down.checked_sub(self.ups) else {
            let (spine, leaf) = self.leaves.split(down);
            return (self.first_spine + spine, leaf);
        };
        let (group, channel) = (global / self.channels.cabled, global % self.channels.cabled);
        let (spine, port) = self.channels.place(channel);
        (self.spine(group, spine), self.leaves.get() + port)
    }

    fn parallel(&self, switch: u32, port: u32) -> Option<u32> {
        let At::Spine { group, spine } = self.at(switch) else { return None };
        self.channels.parallel(group, self.channel(spine, port)?)
    }

    #[inline]
    fn shortest(&self, at: u32, to: u32, ports: &mut PortSet) {
        self.list(self.at(at), to, ports);
    }

    /// As the default, without listing the set.
    #[inline]
    fn pick(&self, at: u32, to: u32, flow_hash: u64) -> u32 {
        let ways = self.ways(self.at(at), to);
        self.port(&ways, choose_hashed(flow_hash, u64::from(at), ways.len()))
    }

    #[inline]
    fn may_follow(&self, at: u32, port: u32, to: u32) -> bool {
        let (goal, to_leaf) = self.leaves.split(to);
        match self.at(at) {
            At::Leaf { group, .. } if group == goal => true,
            At::Leaf { group, .. } => {
                let spine = port - self.nics();
                !self.channels.on(spine, self.channels.offset(group, goal)).is_empty()
            }
            At::Spine { group, .. } if group == goal => port == to_leaf,
            At::Spine { group, spine } => {
                let offset = self.channels.offset(group, goal);
                match self.channel(spine, port) {
                    Some(channel) => self.channels.offset_of(channel) == offset,
                    None => self.channels.on(spine, offset).is_empty(),
                }
            }
        }
    }

    #[inline]
    fn waypoint(&self, from: u32, to: u32, hash: u64, queue: impl Fn(u32) -> u64) -> Option<u32> {
        let hops = |from, to| self.hops(from, to);
        waypoint(self, self.routing, self.first_spine, (from, to, hash), hops, queue)
    }

    fn leaves_shortest(&self) -> bool {
        self.routing != DragonflyRouting::Minimal
    }

    fn repairs_by_rule(&self) -> bool {
        true
    }

    /// All legal paths to a leaf from one switch are equally long, so those that live are the shortest.
    fn surviving(
        &self,
        dead: &Dead,
        at: u32,
        to: u32,
        ports: &mut PortSet,
        mut weights: Option<&mut Vec<u64>>,
    ) {
        let from = self.at(at);
        let ways = self.ways(from, to);
        for port in (0..ways.len()).map(|index| self.port(&ways, index)) {
            let paths = self.paths(dead, from, port, to);
            if paths > 0 {
                ports.push(port);
                if let Some(weights) = weights.as_deref_mut() {
                    weights.push(paths);
                }
            }
        }
    }

    fn class(&self, a: u32, b: u32) -> PathClass {
        match self.hops(a, b) {
            0 => PathClass::SameLeaf,
            2 => PathClass::SamePod,
            _ => PathClass::Beyond,
        }
    }

    fn tier(&self, switch: u32) -> u8 {
        u8::from(switch >= self.first_spine)
    }

    fn tier_name(&self, tier: u8) -> String {
        if tier == 0 { "leaf" } else { "spine" }.to_owned()
    }

    /// `leaf3.5`, `spine3.2`: group and leaf or spine.
    fn switch_name(&self, switch: u32) -> String {
        match self.at(switch) {
            At::Leaf { group, leaf } => format!("leaf{group}.{leaf}"),
            At::Spine { group, spine } => format!("spine{group}.{spine}"),
        }
    }

    fn axes(&self) -> Vec<String> {
        ["group", "tier", "index"].map(str::to_owned).to_vec()
    }

    fn coordinates(&self, switch: u32) -> Coordinates {
        match self.at(switch) {
            At::Leaf { group, leaf } => smallvec![group, 0, leaf],
            At::Spine { group, spine } => smallvec![group, 1, spine],
        }
    }

    fn switch_at(&self, coordinates: &[u32]) -> Option<u32> {
        let &[group, tier, index] = coordinates else { return None };
        if group >= self.channels.groups {
            return None;
        }
        match tier {
            0 => (index < self.leaves.get()).then(|| self.leaf(group, index)),
            1 => (index < self.spines.get()).then(|| self.spine(group, index)),
            _ => None,
        }
    }

    fn site(&self, host: u32) -> Site {
        self.direct.racks(self.leaves).site(host)
    }

    fn host_at(&self, place: Site) -> Option<u32> {
        self.direct.racks(self.leaves).host(place)
    }

    /// Between halves of the groups (of an odd number one half has a group more): their NICs, their cables between
    /// leaves and spines, or the global cables between them. Of a single group: between halves of its leaves.
    fn bisection(&self) -> BitRate {
        let (groups, leaves) = (self.channels.groups, self.leaves.get());
        let halves = u128::from(groups / 2) * u128::from(groups.div_ceil(2));
        let (senders, cut) = match (groups, leaves) {
            (1, 1) => return alone(&self.direct),
            (1, _) => (leaves / 2, u128::MAX),
            _ => {
                let cables = halves * u128::from(self.channels.copies);
                (groups / 2 * leaves, cables * u128::from(self.global.rate.bps()))
            }
        };
        let ups = u128::from(senders) * u128::from(self.spines.get()) * u128::from(self.local.rate.bps());
        self.direct.bisection(cut.min(ups).min(rate(&self.direct, senders)))
    }

    fn diameter(&self) -> u32 {
        match (self.channels.groups, self.leaves.get()) {
            (1, 1) => 0,
            (1, _) => 2,
            _ => 3,
        }
    }
}
