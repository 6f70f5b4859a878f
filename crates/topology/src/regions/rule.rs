//! The rule of regions: up, over the cables between buildings, down.

use smallvec::smallvec;
use windtunnel_kernel::math::gcd;
use windtunnel_kernel::{BitRate, Span};

use super::{Crossing, Regions};
use crate::choose::choose_hashed;
use crate::faults::Dead;
use crate::link::{LinkTier, PathClass};
use crate::port::PortSet;
use crate::shape::{Cable, Coordinates, Far, Shape, Site};

/// Buildings up to which all splits in two groups are looked at.
const SPLIT_BUILDINGS: usize = 16;

impl Regions {
    /// The cable of a port, if it leads to another building.
    fn crossing_of(&self, switch: u32, port: u32) -> Option<Crossing<'_>> {
        let (building, local) = self.building(switch);
        self.crossing(building, self.top(building, local)?, port)
    }

    /// Whether a port is for cables to other buildings.
    fn is_cross(&self, building: usize, local: u32, port: u32) -> bool {
        let own = &self.buildings[building];
        local >= own.tops.0 && port >= own.clos.top_ports()
    }

    /// Whether a path of the rule to another building comes by a switch.
    fn leads_on(&self, building: usize, local: u32, far: usize) -> bool {
        let reach = self.pairs.tops(building, far);
        match self.top(building, local) {
            Some(top) => top < reach,
            None => self.buildings[building].clos.uplinks_towards(local, reach).digits > 0,
        }
    }

    /// Rate between two groups of buildings.
    fn rate_between(&self, is_left: impl Fn(u32) -> bool) -> u128 {
        let parted = |between: [u32; 2]| is_left(between[0]) != is_left(between[1]);
        let entries = self.entries.iter().filter(|entry| parted(entry.between));
        entries.map(|entry| u128::from(entry.count) * u128::from(entry.cable.rate.bps())).sum()
    }

    /// The longest way over cables between buildings, with the switches that they arrive at.
    fn crossing_latency(&self, from: usize, to: usize) -> Span {
        let exits = self.buildings[from].exits.iter();
        let nearer = exits.filter(|exit| self.pairs.is_nearer(from, exit.to as usize, to));
        let latency = |exit: &super::Exit| {
            let cable = self.entries[exit.entry as usize].cable;
            cable.propagation + self.top_delay(exit.to) + self.crossing_latency(exit.to as usize, to)
        };
        nearer.map(latency).max().unwrap_or_default()
    }
}

impl Shape for Regions {
    fn name(&self) -> &'static str {
        "regions"
    }

    fn switches(&self) -> u32 {
        self.switches
    }

    fn ports(&self, switch: u32) -> u32 {
        let (building, local) = self.building(switch);
        let own = &self.buildings[building];
        if local >= own.tops.0 { own.top_ports } else { own.clos.ports(local) }
    }

    fn peer(&self, switch: u32, port: u32) -> Option<Far> {
        let (building, local) = self.building(switch);
        if self.is_cross(building, local, port) {
            let landing = self.landing(&self.crossing_of(switch, port)?);
            let switch = self.first_switches[landing.building] + self.buildings[landing.building].tops.0;
            return Some(Far::Switch { switch: switch + landing.top, port: landing.port });
        }
        Some(match self.buildings[building].clos.peer(local, port)? {
            Far::Switch { switch, port } => {
                Far::Switch { switch: self.first_switches[building] + switch, port }
            }
            Far::Nic { nic, plane } => Far::Nic { nic: self.first_nics[building] + nic, plane },
        })
    }

    #[inline]
    fn attachment(&self, nic: u32, plane: u32) -> (u32, u32) {
        let building = self.first_nics.partition_point(|&first| first <= nic) - 1;
        let (leaf, port) = self.buildings[building].clos.attachment(nic - self.first_nics[building], plane);
        (self.first_switches[building] + leaf, port)
    }

    fn cable(&self, switch: u32, port: u32) -> Cable {
        if let Some(crossing) = self.crossing_of(switch, port) {
            return crossing.entry.cable;
        }
        let (building, local) = self.building(switch);
        self.buildings[building].clos.cable(local, port)
    }

    fn link_tier(&self, switch: u32, port: u32) -> LinkTier {
        let (building, local) = self.building(switch);
        if self.is_cross(building, local, port) {
            return LinkTier::CrossBuilding;
        }
        self.buildings[building].clos.link_tier(local, port)
    }

    fn delay(&self, switch: u32) -> Span {
        let (building, local) = self.building(switch);
        self.buildings[building].clos.delay(local)
    }

    fn fabric_links(&self) -> u32 {
        self.links
    }

    fn link(&self, switch: u32, port: u32) -> u32 {
        if let Some(Crossing { exit, entry, cable }) = self.crossing_of(switch, port) {
            return entry.first_link + exit.side * entry.count + cable;
        }
        let (building, local) = self.building(switch);
        let own = &self.buildings[building];
        own.first_link + own.clos.link(local, port)
    }

    fn link_source(&self, link: u32) -> (u32, u32) {
        if link < self.first_cross {
            let building = self.buildings.partition_point(|building| building.first_link <= link) - 1;
            let own = &self.buildings[building];
            let (local, port) = own.clos.link_source(link - own.first_link);
            return (self.first_switches[building] + local, port);
        }
        let number = self.entries.partition_point(|entry| entry.first_link <= link) - 1;
        let entry = &self.entries[number];
        let (side, cable) =
            ((link - entry.first_link) / entry.count, (link - entry.first_link) % entry.count);
        let building = entry.between[side as usize] as usize;
        let own = &self.buildings[building];
        let exit = &own.exits[entry.exits[side as usize] as usize];
        let switch = self.first_switches[building] + own.tops.0 + cable % own.tops.1;
        (switch, exit.first_port + cable / own.tops.1)
    }

    /// Cables between the same two top switches are as far apart as the least common multiple of their counts.
    fn parallel(&self, switch: u32, port: u32) -> Option<u32> {
        if let Some(Crossing { entry, cable, .. }) = self.crossing_of(switch, port) {
            let [n, m] = entry.between.map(|building| u64::from(self.buildings[building as usize].tops.1));
            let period = n / gcd(n, m) * m;
            let several = u64::from(cable) % period + period < u64::from(entry.count);
            return several.then(|| (u64::from(cable) / period) as u32);
        }
        let (building, local) = self.building(switch);
        self.buildings[building].clos.parallel(local, port)
    }

    fn shortest(&self, at: u32, to: u32, ports: &mut PortSet) {
        let ((building, local), (far, goal)) = (self.building(at), self.building(to));
        let own = &self.buildings[building];
        if building == far {
            own.clos.shortest(local, goal, ports);
        } else if !self.leads_on(building, local, far) {
            // Where no path of the rule comes by: back to where one does. Below a leaf is none.
            ports.push_run(0, own.clos.children(local));
        } else if let Some(top) = self.top(building, local) {
            let nearer = |to: u32| self.pairs.is_nearer(building, to as usize, far);
            for exit in own.exits.iter().filter(|exit| nearer(exit.to)) {
                ports.push_run(exit.first_port, self.cables_at(building, exit, top));
            }
        } else {
            let uplinks = own.clos.uplinks_towards(local, self.pairs.tops(building, far));
            for parallel in 0..uplinks.bundle {
                ports.push_run(uplinks.first + parallel * uplinks.parents, uplinks.digits);
            }
        }
    }

    #[inline]
    fn pick(&self, at: u32, to: u32, flow_hash: u64) -> u32 {
        let ((building, local), (far, goal)) = (self.building(at), self.building(to));
        let own = &self.buildings[building];
        let draw = |n| if n == 1 { 0 } else { choose_hashed(flow_hash, u64::from(at), n) };
        if building == far {
            let (first, count) = own.clos.equal_ports(local, goal);
            first + draw(count)
        } else {
            if local < own.tops.0 {
                let uplinks = own.clos.uplinks_towards(local, self.pairs.tops(building, far));
                if uplinks.digits > 0 {
                    return uplinks.nth(draw(uplinks.len()));
                }
            }
            let mut ports = PortSet::new();
            self.shortest(at, to, &mut ports);
            ports.nth(draw(ports.len()))
        }
    }

    fn may_follow(&self, at: u32, port: u32, to: u32) -> bool {
        let ((building, local), (far, goal)) = (self.building(at), self.building(to));
        let own = &self.buildings[building];
        let cross = self.is_cross(building, local, port);
        if building == far {
            return !cross && own.clos.may_follow(local, port, goal);
        }
        if local >= own.tops.0 {
            let crossing = self.crossing_of(at, port);
            return crossing
                .is_some_and(|crossing| self.pairs.is_nearer(building, crossing.exit.to as usize, far));
        }
        let uplinks = own.clos.uplinks_towards(local, self.pairs.tops(building, far));
        port.checked_sub(uplinks.first).is_some_and(|uplink| uplink % uplinks.parents < uplinks.digits)
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
        self.dead_tally(dead)
    }

    fn surviving(&self, dead: &Dead, at: u32, to: u32, ports: &mut PortSet, weights: Option<&mut Vec<u64>>) {
        let (here, there) = (self.building(at), self.building(to));
        if here.0 == there.0 {
            let part = self.part(dead, here.0);
            self.buildings[here.0].clos.surviving_ports(part, here.1, there.1, ports, weights);
        } else {
            self.surviving_between(dead, here, there, ports, weights);
        }
    }

    #[inline]
    fn pick_surviving(&self, dead: &Dead, at: u32, to: u32, flow_hash: u64) -> Option<u32> {
        let ((building, local), (far, goal)) = (self.building(at), self.building(to));
        let draw = |n| choose_hashed(flow_hash, u64::from(at), n);
        if building == far {
            let part = self.part(dead, building);
            return self.buildings[building].clos.pick_surviving_by(part, local, goal, draw);
        }
        let mut ports = PortSet::new();
        self.surviving_between(dead, (building, local), (far, goal), &mut ports, None);
        (!ports.is_empty()).then(|| ports.nth(draw(ports.len())))
    }

    /// A path of one building stays in it; one over cables between two buildings meets no third. Switches that no path
    /// to the other building climbs over are not clear: nothing leads on from them.
    fn is_clear(&self, dead: &Dead, at: u32, to: u32) -> bool {
        let ((building, local), (far, _)) = (self.building(at), self.building(to));
        let whole = |building| self.is_whole(dead, building);
        if building == far {
            return dead.is_empty() || whole(building);
        }
        let direct = self.pairs.distance(building, far) == 1;
        let whole = || whole(building) && whole(far) && (direct || (0..self.buildings.len()).all(whole));
        self.leads_on(building, local, far) && (dead.is_empty() || whole())
    }

    fn class(&self, a: u32, b: u32) -> PathClass {
        let ((building, a), (far, b)) = (self.building(a), self.building(b));
        if building == far { self.buildings[building].clos.class(a, b) } else { PathClass::OtherBuilding }
    }

    fn tier(&self, switch: u32) -> u8 {
        let (building, local) = self.building(switch);
        self.buildings[building].clos.tier(local)
    }

    /// As the building with the most tiers calls them.
    fn tier_name(&self, tier: u8) -> String {
        let tallest = self.buildings.iter().max_by_key(|building| building.clos.tiers());
        tallest.expect("there is a building").clos.tier_name(tier)
    }

    /// `east/leaf0`.
    fn switch_name(&self, switch: u32) -> String {
        let (building, local) = self.building(switch);
        let own = &self.buildings[building];
        format!("{}/{}", own.name, own.clos.switch_name(local))
    }

    fn axes(&self) -> Vec<String> {
        ["building", "tier", "block", "index"].map(str::to_owned).to_vec()
    }

    fn coordinates(&self, switch: u32) -> Coordinates {
        let (building, local) = self.building(switch);
        let mut coordinates = self.buildings[building].clos.coordinates(local);
        coordinates[0] = building as u32;
        coordinates
    }

    fn switch_at(&self, coordinates: &[u32]) -> Option<u32> {
        let &[building, tier, block, index] = coordinates else { return None };
        let local: Coordinates = smallvec![0, tier, block, index];
        let own = self.buildings.get(building as usize)?;
        Some(self.first_switches[building as usize] + own.clos.switch_at(&local)?)
    }

    fn site(&self, host: u32) -> Site {
        let building = self.buildings.partition_point(|building| building.first_host <= host) - 1;
        let own = &self.buildings[building];
        Site { region: own.region, building: own.number, ..own.clos.site(host - own.first_host) }
    }

    fn host_at(&self, site: Site) -> Option<u32> {
        let here =
            |building: &&super::Building| (building.region, building.number) == (site.region, site.building);
        let own = self.buildings.iter().find(here)?;
        Some(own.first_host + own.clos.host_at(Site { region: 0, building: 0, ..site })?)
    }

    /// Of one building that of its Clos. Of several, the cables between two groups of buildings: of the splits whose
    /// hosts are as nearly halves as can be, the least; of more than 16 buildings only those in their order are split.
    fn bisection(&self) -> BitRate {
        let count = self.buildings.len();
        if count == 1 {
            return self.buildings[0].clos.bisection();
        }
        let all: u64 = self.buildings.iter().map(|building| u64::from(building.hosts)).sum();
        let cut = |is_left: &dyn Fn(u32) -> bool| {
            let left = self.buildings.iter().enumerate().filter(|&(building, _)| is_left(building as u32));
            let hosts: u64 = left.map(|(_, building)| u64::from(building.hosts)).sum();
            (hosts.abs_diff(all - hosts), self.rate_between(is_left))
        };
        let least = if count <= SPLIT_BUILDINGS {
            (1..1u32 << (count - 1)).map(|set| cut(&|building| set >> building & 1 == 1)).min()
        } else {
            (1..count as u32).map(|end| cut(&|building| building < end)).min()
        };
        BitRate::from_bps(u64::try_from(least.map_or(0, |(_, rate)| rate)).unwrap_or(u64::MAX))
    }

    fn diameter(&self) -> u32 {
        let height = |building: usize| self.buildings[building].clos.tiers() as u32 - 1;
        let count = self.buildings.len();
        let pairs =
            (0..count).flat_map(|from| (0..count).filter(move |&to| to != from).map(move |to| (from, to)));
        let between = pairs.map(|(from, to)| height(from) + self.pairs.distance(from, to) + height(to));
        between.chain(self.buildings.iter().map(|building| building.clos.diameter())).max().unwrap_or(0)
    }

    fn longest(&self, _slowest: Span) -> Span {
        let ends = |building: usize| {
            let clos = &self.buildings[building].clos;
            clos.climb_and_descent(clos.tiers() - 1)
        };
        let count = self.buildings.len();
        let pairs =
            (0..count).flat_map(|from| (0..count).filter(move |&to| to != from).map(move |to| (from, to)));
        let between = pairs.map(|(from, to)| ends(from).0 + self.crossing_latency(from, to) + ends(to).1);
        let inside = self.buildings.iter().map(|building| {
            let (climb, descent) = building.clos.climb_and_descent(building.clos.diameter() as usize / 2);
            climb + descent
        });
        between.chain(inside).max().unwrap_or_default()
    }
}
