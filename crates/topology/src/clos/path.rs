//! Paths: up to the lowest tier that holds both leaves, then down.

use super::Clos;
use crate::choose::{choose_hashed, choose_plane};
use crate::link::{LoadBalancer, PathClass, Route};
use crate::topology::Request;

/// Both ends of a path.
struct Ends {
    /// NICs, counted over all hosts.
    from: u32,
    to: u32,
    from_leaf: u32,
    to_leaf: u32,
    /// The receiving NIC in the order of leaves and their ports.
    to_position: u32,
    /// Tier at which the path turns.
    turn: usize,
}

/// How a single path chooses.
trait Choice {
    /// Among the planes.
    fn plane(&self, planes: u32) -> u32;
    /// Among the `uplinks` of `switch`, in the stage above its tier.
    fn up(&self, clos: &Clos, stage: usize, switch: u64) -> u32;
    /// Among the parallel links down from `switch` to the block of the destination.
    fn down(&self, clos: &Clos, stage: usize, switch: u64) -> u32;
}

/// A draw at every switch.
struct Hashed(u64);

impl Choice for Hashed {
    #[inline]
    fn plane(&self, planes: u32) -> u32 {
        if planes == 1 { 0 } else { choose_plane(self.0, planes) }
    }

    #[inline]
    fn up(&self, clos: &Clos, stage: usize, switch: u64) -> u32 {
        choose_hashed(self.0, switch, clos.stages[stage].uplinks.get())
    }

    #[inline]
    fn down(&self, clos: &Clos, stage: usize, switch: u64) -> u32 {
        let bundle = clos.stages[stage].bundle;
        if bundle == 1 { 0 } else { choose_hashed(self.0, switch, bundle) }
    }
}

/// D-mod-k: the digits of the destination's position, in the mixed radix of the parents of each tier, so that all
/// paths to a destination meet at one top switch (of its plane) and destinations spread evenly.
struct Modulo {
    /// Hosts and NICs of both ends added up: every source meets all planes alike, and so does every destination, also
    /// among NICs of the same rail.
    sum: u32,
    position: u32,
}

impl Modulo {
    /// floor(position / product of lower parents) mod uplinks; the product is the width of the tier.
    #[inline]
    fn uplink(&self, clos: &Clos, stage: usize) -> u32 {
        clos.stages[stage].uplinks.remainder(clos.levels[stage].width.quotient(self.position))
    }
}

impl Choice for Modulo {
    #[inline]
    fn plane(&self, planes: u32) -> u32 {
        if planes == 1 { 0 } else { self.sum % planes }
    }

    #[inline]
    fn up(&self, clos: &Clos, stage: usize, _switch: u64) -> u32 {
        self.uplink(clos, stage)
    }

    #[inline]
    fn down(&self, clos: &Clos, stage: usize, _switch: u64) -> u32 {
        clos.stages[stage].parents.quotient(self.uplink(clos, stage))
    }
}

impl Clos {
    #[inline]
    fn ends(&self, from: (u32, u32), to: (u32, u32)) -> Ends {
        let ((from_leaf, _), (to_leaf, to_port)) = (self.port(from), self.port(to));
        Ends {
            from: from.0 * self.nics_per_host + from.1,
            to: to.0 * self.nics_per_host + to.1,
            from_leaf,
            to_leaf,
            // Below the number of NIC ports of all leaves, some of which may be unused: wraps harmlessly.
            to_position: to_leaf.wrapping_mul(self.leaf_ports()).wrapping_add(to_port),
            turn: self.turn(from_leaf, to_leaf),
        }
    }

    #[inline]
    pub(crate) fn route(&self, request: &Request, route: &mut Route) {
        let ends = self.ends(request.from, request.to);
        (route.latency, route.class) = (self.latencies[ends.turn], class(ends.turn));
        match request.balancer {
            LoadBalancer::Ecmp => {
                let hash = request.hash.flow_hash(
                    request.seed,
                    u64::from(ends.from),
                    u64::from(ends.to),
                    request.entropy,
                );
                self.single(&ends, &Hashed(hash), route);
            }
            LoadBalancer::DestinationModulo => {
                let ((a, b), (c, d)) = (request.from, request.to);
                // Hosts and NICs are below 2^31; where a sum of four wraps it is still a function of both ends.
                let sum = (a + b).wrapping_add(c + d);
                let choice = Modulo { sum, position: ends.to_position };
                self.single(&ends, &choice, route);
            }
            LoadBalancer::Spray => self.spread(&ends, ends.turn, route),
            LoadBalancer::Ideal => self.spread(&ends, 0, route),
        }
    }

    /// Switch `index` of the block of `leaf` at `tier`, counted over its tier in all planes.
    #[inline]
    fn switch(&self, tier: usize, plane: u32, leaf: u32, index: u32) -> u32 {
        let level = &self.levels[tier];
        plane * level.switches + level.leaves.quotient(leaf) * level.width.get() + index
    }

    /// One path.
    #[inline]
    fn single(&self, ends: &Ends, choice: &impl Choice, route: &mut Route) {
        let plane = choice.plane(self.planes);
        route.links.push((self.edge.up(ends.from, plane), 1.0));
        let mut index = 0;
        for tier in 0..ends.turn {
            let (level, stage) = (&self.levels[tier], &self.stages[tier]);
            let switch = self.switch(tier, plane, ends.from_leaf, index);
            let port = choice.up(self, tier, u64::from(level.first_switch + switch));
            route.links.push((self.edge.between(stage.up + switch * stage.uplinks.get() + port), 1.0));
            index += level.width.get() * stage.parents.remainder(port);
        }
        for tier in (0..ends.turn).rev() {
            let (level, stage) = (&self.levels[tier], &self.stages[tier]);
            let above = self.switch(tier + 1, plane, ends.to_leaf, index);
            let parallel = choice.down(self, tier, u64::from(self.levels[tier + 1].first_switch + above));
            let (parent, below) = level.width.split(index);
            index = below;
            let port = parent + stage.parents.get() * parallel;
            let switch = self.switch(tier, plane, ends.to_leaf, index);
            route.links.push((self.edge.between(stage.down + switch * stage.uplinks.get() + port), 1.0));
        }
        route.links.push((self.edge.down(ends.to, plane), 1.0));
    }

    /// All shortest paths, below tier `turn`, in equal parts: every switch that the flow passes at a tier carries as
    /// much as the others, on each of its uplinks as much as on the others; and the way down mirrors the way up.
    fn spread(&self, ends: &Ends, turn: usize, route: &mut Route) {
        let part = 1.0 / f64::from(self.planes);
        for plane in 0..self.planes {
            route.links.push((self.edge.up(ends.from, plane), part));
        }
        for tier in 0..turn {
            self.spread_stage(tier, ends.from_leaf, self.stages[tier].up, route);
        }
        for tier in (0..turn).rev() {
            self.spread_stage(tier, ends.to_leaf, self.stages[tier].down, route);
        }
        for plane in 0..self.planes {
            route.links.push((self.edge.down(ends.to, plane), part));
        }
    }

    /// All links between tier `tier` and the next of the block of `leaf`; they are numbered one after another.
    fn spread_stage(&self, tier: usize, leaf: u32, first: u32, route: &mut Route) {
        let links = self.levels[tier].width.get() * self.stages[tier].uplinks.get();
        let part = 1.0 / (f64::from(self.planes) * f64::from(links));
        for plane in 0..self.planes {
            let start = first + self.switch(tier, plane, leaf, 0) * self.stages[tier].uplinks.get();
            route.links.extend((start..start + links).map(|link| (self.edge.between(link), part)));
        }
    }
}

#[inline]
pub(super) const fn class(turn: usize) -> PathClass {
    match turn {
        0 => PathClass::SameLeaf,
        1 => PathClass::SamePod,
        _ => PathClass::Beyond,
    }
}
