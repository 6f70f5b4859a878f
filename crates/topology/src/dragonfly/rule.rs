//! The minimal rule of a dragonfly, by intersections of ranges of copies.

use std::ops::Range;

use smallvec::smallvec;
use windtunnel_kernel::{BitRate, Span};

use super::channels::{Holders, common};
use super::waypoint::waypoint;
use super::{Dragonfly, alone, rate};
use crate::choose::choose_hashed;
use crate::faults::Dead;
use crate::link::{LinkTier, PathClass};
use crate::port::PortSet;
use crate::shape::{Cable, Coordinates, Far, Shape, Site};
use crate::spec::DragonflyRouting;

/// A router taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    group: u32,
    router: u32,
}

/// The shortest legal ways from a router into another group.
struct Ways {
    /// Of the destination's group, and of the own group as seen from there.
    offset: u32,
    /// Copies on neighbours, to be reached by a local hop.
    via: Range<u32>,
    neighbours: Holders,
    /// Copies on the router itself.
    own: Range<u32>,
}

impl Ways {
    #[inline]
    fn len(&self) -> u32 {
        self.neighbours.count + self.own.end - self.own.start
    }
}

impl Dragonfly {
    #[inline]
    fn at(&self, switch: u32) -> At {
        let (group, router) = self.routers.split(switch);
        At { group, router }
    }

    /// Ports of a router to NICs: the first ones.
    #[inline]
    fn nics(&self) -> u32 {
        self.direct.nics.get()
    }

    #[inline]
    fn number(&self, group: u32, router: u32) -> u32 {
        group * self.routers.get() + router
    }

    /// Local ports of a router.
    #[inline]
    fn local_ports(&self) -> u32 {
        self.routers.get() - 1
    }

    /// The first global port.
    #[inline]
    fn first_global(&self) -> u32 {
        self.nics() + self.local_ports()
    }

    /// The port of a router of a group to another of the same.
    #[inline]
    fn local_port(&self, router: u32, to: u32) -> u32 {
        self.nics() + to - u32::from(to > router)
    }

    /// The port of channel `channel`, which is one of the router's.
    #[inline]
    fn global_port(&self, router: u32, channel: u32) -> u32 {
        self.first_global() + channel - router * self.channels.ports
    }

    /// The channel of a port; `None` for a port within the group or to a NIC.
    #[inline]
    fn channel(&self, router: u32, port: u32) -> Option<u32> {
        Some(port.checked_sub(self.first_global())? + router * self.channels.ports)
    }

    /// Copies of the cable between two groups that are on a router of the one, and on a router of the other.
    #[inline]
    fn copies(&self, at: At, to: At) -> (u32, Range<u32>, Range<u32>) {
        let offset = self.channels.offset(at.group, to.group);
        let own = self.channels.on(at.router, offset);
        (offset, own, self.channels.on(to.router, self.channels.back(offset)))
    }

    #[inline]
    fn ways(&self, at: At, to: At) -> Ways {
        let (offset, own, landing) = self.copies(at, to);
        let straight = common(&own, &landing);
        let (via, own) = if !straight.is_empty() {
            (0..0, straight)
        } else if !own.is_empty() || !landing.is_empty() {
            // None of those that land on the destination is an own one.
            (landing, own)
        } else {
            (self.channels.all(), own)
        };
        Ways { offset, neighbours: self.channels.holders_of(offset, via.clone()), via, own }
    }

    /// Port number `index` of the ways.
    #[inline]
    fn port(&self, at: At, ways: &Ways, index: u32) -> u32 {
        if index < ways.neighbours.count {
            return self.local_port(at.router, ways.neighbours.nth(index));
        }
        let copy = ways.own.start + index - ways.neighbours.count;
        self.global_port(at.router, self.channels.channel(ways.offset, copy))
    }

    /// Hops of the shortest legal paths.
    #[inline]
    fn hops(&self, from: u32, to: u32) -> u32 {
        let (at, to) = (self.at(from), self.at(to));
        if at.group == to.group {
            return u32::from(at != to);
        }
        let (_, own, landing) = self.copies(at, to);
        if !common(&own, &landing).is_empty() {
            1
        } else if !own.is_empty() || !landing.is_empty() {
            2
        } else {
            3
        }
    }
}

impl Shape for Dragonfly {
    fn name(&self) -> &'static str {
        "dragonfly"
    }

    fn switches(&self) -> u32 {
        self.direct.routers
    }

    fn ports(&self, _switch: u32) -> u32 {
        self.first_global() + self.channels.ports
    }

    #[inline]
    fn peer(&self, switch: u32, port: u32) -> Option<Far> {
        let Some(local) = port.checked_sub(self.nics()) else {
            return Some(Far::Nic { nic: self.direct.nic(switch, port), plane: 0 });
        };
        let At { group, router } = self.at(switch);
        let Some(channel) = self.channel(router, port) else {
            let far = local + u32::from(local >= router);
            return Some(Far::Switch { switch: self.number(group, far), port: self.local_port(far, router) });
        };
        let (group, channel) = self.channels.far(group, channel)?;
        let (router, port) = self.channels.place(channel);
        Some(Far::Switch { switch: self.number(group, router), port: self.first_global() + port })
    }

    #[inline]
    fn attachment(&self, nic: u32, _plane: u32) -> (u32, u32) {
        self.direct.place(nic)
    }

    #[inline]
    fn cable(&self, _switch: u32, port: u32) -> Cable {
        if port < self.nics() {
            self.direct.nic
        } else if port < self.first_global() {
            self.local
        } else {
            self.global
        }
    }

    fn link_tier(&self, _switch: u32, port: u32) -> LinkTier {
        if port < self.nics() {
            LinkTier::NicDown
        } else if port < self.first_global() {
            LinkTier::Local
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
        let At { group, router } = self.at(switch);
        match self.channel(router, port) {
            Some(channel) => self.locals + group * self.channels.cabled + channel,
            None => switch * self.local_ports() + port - self.nics(),
        }
    }

    fn link_source(&self, link: u32) -> (u32, u32) {
        let Some(global) = link.checked_sub(self.locals) else {
            let (switch, local) = self.neighbours.split(link);
            return (switch, self.nics() + local);
        };
        let (group, channel) = (global / self.channels.cabled, global % self.channels.cabled);
        let (router, port) = self.channels.place(channel);
        (self.number(group, router), self.first_global() + port)
    }

    fn parallel(&self, switch: u32, port: u32) -> Option<u32> {
        let At { group, router } = self.at(switch);
        self.channels.parallel(group, self.channel(router, port)?)
    }

    #[inline]
    fn shortest(&self, at: u32, to: u32, ports: &mut PortSet) {
        let (at, to) = (self.at(at), self.at(to));
        if at.group == to.group {
            ports.push(self.local_port(at.router, to.router));
            return;
        }
        let ways = self.ways(at, to);
        (0..ways.len()).for_each(|index| ports.push(self.port(at, &ways, index)));
    }

    /// As the default, without listing the set.
    #[inline]
    fn pick(&self, at: u32, to: u32, flow_hash: u64) -> u32 {
        let (from, to) = (self.at(at), self.at(to));
        if from.group == to.group {
            return self.local_port(from.router, to.router);
        }
        let ways = self.ways(from, to);
        self.port(from, &ways, choose_hashed(flow_hash, u64::from(at), ways.len()))
    }

    #[inline]
    fn may_follow(&self, at: u32, port: u32, to: u32) -> bool {
        let (at, to) = (self.at(at), self.at(to));
        match self.channel(at.router, port) {
            None => true,
            Some(channel) => {
                at.group != to.group
                    && self.channels.offset_of(channel) == self.channels.offset(at.group, to.group)
            }
        }
    }

    #[inline]
    fn waypoint(&self, from: u32, to: u32, hash: u64, queue: impl Fn(u32) -> u64) -> Option<u32> {
        let hops = |from, to| self.hops(from, to);
        waypoint(self, self.routing, self.direct.routers, (from, to, hash), hops, queue)
    }

    fn leaves_shortest(&self) -> bool {
        self.routing != DragonflyRouting::Minimal
    }

    /// Exact: looks at the three cables of every copy on the way.
    #[inline]
    fn is_clear(&self, dead: &Dead, at: u32, to: u32) -> bool {
        let (from, goal) = (self.at(at), self.at(to));
        // Both ends of a cable know that it is dead, so cables next to the ends are looked up there.
        let local = |router: At, far: u32| {
            router.router == far
                || !dead.port(self.number(router.group, router.router), self.local_port(router.router, far))
        };
        if from.group == goal.group {
            return local(from, goal.router);
        }
        let ways = self.ways(from, goal);
        let back = self.channels.back(ways.offset);
        let alive = |copy: u32| {
            let channel = self.channels.channel(ways.offset, copy);
            let (router, port) = self.channels.place(channel);
            let landing = self.channels.holder(self.channels.channel(back, copy));
            local(from, router)
                && local(goal, landing)
                && !dead.port(self.number(from.group, router), self.first_global() + port)
        };
        ways.own.clone().all(alive) && ways.via.clone().all(alive)
    }

    fn class(&self, a: u32, b: u32) -> PathClass {
        if a == b {
            PathClass::SameLeaf
        } else if self.at(a).group == self.at(b).group {
            PathClass::SamePod
        } else {
            PathClass::Beyond
        }
    }

    fn tier(&self, _switch: u32) -> u8 {
        0
    }

    fn tier_name(&self, _tier: u8) -> String {
        "router".to_owned()
    }

    /// `router3.5`: group and router.
    fn switch_name(&self, switch: u32) -> String {
        let At { group, router } = self.at(switch);
        format!("router{group}.{router}")
    }

    fn axes(&self) -> Vec<String> {
        ["group", "router"].map(str::to_owned).to_vec()
    }

    fn coordinates(&self, switch: u32) -> Coordinates {
        let At { group, router } = self.at(switch);
        smallvec![group, router]
    }

    fn switch_at(&self, coordinates: &[u32]) -> Option<u32> {
        let &[group, router] = coordinates else { return None };
        (group < self.channels.groups && router < self.routers.get()).then(|| self.number(group, router))
    }

    fn site(&self, host: u32) -> Site {
        self.direct.racks(self.routers).site(host)
    }

    fn host_at(&self, place: Site) -> Option<u32> {
        self.direct.racks(self.routers).host(place)
    }

    /// Between halves of the groups (of an odd number one half has a group more): their NICs, or the global cables
    /// between them. Of a single group: between halves of its routers.
    fn bisection(&self) -> BitRate {
        let (groups, routers) = (self.channels.groups, self.routers.get());
        let halves = |n: u32| u128::from(n / 2) * u128::from(n.div_ceil(2));
        let (senders, cut) = match (groups, routers) {
            (1, 1) => return alone(&self.direct),
            (1, _) => (routers / 2, halves(routers) * u128::from(self.local.rate.bps())),
            _ => {
                let cables = halves(groups) * u128::from(self.channels.copies);
                (groups / 2 * routers, cables * u128::from(self.global.rate.bps()))
            }
        };
        self.direct.bisection(cut.min(rate(&self.direct, senders)))
    }

    fn diameter(&self) -> u32 {
        let (channels, routers) = (&self.channels, self.routers.get());
        if channels.groups == 1 {
            return u32::from(routers > 1);
        }
        let mut longest = 1;
        for offset in 0..channels.groups - 1 {
            let back = channels.back(offset);
            let holders = |offset| channels.holders_of(offset, channels.all()).count;
            if holders(offset) < routers && holders(back) < routers {
                return 3;
            }
            // Pairs of routers that have a cable between them.
            let ends = |copy| {
                let holder = |offset| channels.holder(channels.channel(offset, copy));
                (holder(offset), holder(back))
            };
            let joined = channels.all().filter(|&copy| copy == 0 || ends(copy) != ends(copy - 1)).count();
            if (joined as u64) < u64::from(routers) * u64::from(routers) {
                longest = 2;
            }
        }
        longest
    }
}
