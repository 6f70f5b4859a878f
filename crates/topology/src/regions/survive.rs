//! The rule of regions with faults, by arithmetic on the dead ports.
//!
//! From a switch there is one way up to each top switch that it reaches, and one down from each top switch to the leaf,
//! up to parallel cables; between them lie the cables between buildings. So the surviving paths are counted by trying
//! the ways up digit by digit, at the top the cables that lead on, and behind each the way down. Where only their being
//! there matters the first path found is enough, which makes a hop cost some hundred nanoseconds; weights count all.

use super::{Crossing, Regions};
use crate::clos::Ascent;
use crate::faults::{Dead, DeadPart};
use crate::port::PortSet;

/// Paths are counted up to this, so that the sum over all ports of a switch fits 64 bits.
const MANY: u64 = 1 << 32;

/// The way to a leaf of another building.
struct Journey<'a> {
    regions: &'a Regions,
    dead: &'a Dead,
    /// Building and leaf.
    to: (usize, u32),
    /// Paths that are enough.
    enough: u64,
}

impl Journey<'_> {
    fn part(&self, building: usize) -> DeadPart<'_> {
        self.regions.part(self.dead, building)
    }

    /// Calls `found` with every living port of a top switch over which paths lead on, and the number of these, until it
    /// says that they are enough.
    fn cross(&self, building: usize, top: u32, mut found: impl FnMut(u32, u64) -> bool) {
        let regions = self.regions;
        let own = &regions.buildings[building];
        let dead = self.part(building);
        let nearer = |to: u32| regions.pairs.is_nearer(building, to as usize, self.to.0);
        for exit in own.exits.iter().filter(|exit| nearer(exit.to)) {
            let entry = &regions.entries[exit.entry as usize];
            for place in 0..regions.cables_at(building, exit, top) {
                let port = exit.first_port + place;
                if dead.bits(own.tops.0 + top, port, 1) != 0 {
                    continue;
                }
                let landing = regions.landing(&Crossing { exit, entry, cable: top + own.tops.1 * place });
                let paths = if landing.building == self.to.0 {
                    let clos = &regions.buildings[landing.building].clos;
                    clos.descents(self.part(landing.building), landing.top, self.to.1)
                } else {
                    self.crossings(landing.building, landing.top)
                };
                if paths > 0 && found(port, paths.min(self.enough)) {
                    return;
                }
            }
        }
    }

    /// Paths that lead on from a top switch.
    fn crossings(&self, building: usize, top: u32) -> u64 {
        let mut sum = 0;
        self.cross(building, top, |_, paths| {
            sum += paths;
            sum >= self.enough
        });
        sum.min(self.enough)
    }
}

impl Regions {
    /// Dead ports of a building.
    #[inline]
    pub(super) fn part<'a>(&self, dead: &'a Dead, building: usize) -> DeadPart<'a> {
        dead.part(self.first_switches[building], self.buildings[building].tally + 1)
    }

    /// See [`crate::shape::Shape::tally`]: for every building whether it has a dead port, and what its Clos counts.
    pub(super) fn dead_tally(&self, dead: &Dead) -> Vec<u32> {
        let mut tally = Vec::new();
        let ends = self.first_switches[1..].iter().copied().chain([self.switches]);
        for ((building, &first), end) in self.buildings.iter().zip(&self.first_switches).zip(ends) {
            let any = (first..end).any(|switch| dead.row(switch).iter().any(|&word| word != 0));
            debug_assert_eq!(tally.len(), building.tally);
            tally.push(u32::from(any));
            tally.extend(building.clos.dead_tally(dead, first));
        }
        tally
    }

    /// Whether no port of a building is known to be dead.
    #[inline]
    pub(super) fn is_whole(&self, dead: &Dead, building: usize) -> bool {
        dead.part(0, self.buildings[building].tally).tally.first() == Some(&0)
    }

    /// See [`crate::shape::Shape::surviving`], for switches of different buildings.
    pub(super) fn surviving_between(
        &self,
        dead: &Dead,
        (building, at): (usize, u32),
        (far, to): (usize, u32),
        ports: &mut PortSet,
        weights: Option<&mut Vec<u64>>,
    ) {
        let enough = if weights.is_some() { MANY } else { 1 };
        let journey = Journey { regions: self, dead, to: (far, to), enough };
        let mut none = Vec::new();
        let weights = weights.unwrap_or(&mut none);
        let mut push = |port, paths| {
            ports.push(port);
            weights.push(paths);
        };
        match self.top(building, at) {
            Some(top) => journey.cross(building, top, |port, paths| {
                push(port, paths);
                false
            }),
            None => Ascent {
                clos: &self.buildings[building].clos,
                dead: self.part(dead, building),
                reach: self.pairs.tops(building, far),
                enough,
                beyond: |top| journey.crossings(building, top),
            }
            .ports(at, push),
        }
    }
}
