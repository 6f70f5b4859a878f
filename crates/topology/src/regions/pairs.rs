//! Which buildings lead to which, and by how many of their top switches.

use std::collections::VecDeque;

use super::{Building, Entry};
use crate::error::TopologyError;

/// For every ordered pair of buildings.
#[derive(Clone, Debug)]
pub(super) struct BuildingPairs {
    buildings: usize,
    /// Cables between buildings on the way.
    distance: Vec<u32>,
    /// Top switches, from the first on, with a cable that leads on.
    tops: Vec<u32>,
}

impl BuildingPairs {
    pub(super) fn new(buildings: &[Building], entries: &[Entry]) -> Result<Self, TopologyError> {
        let count = buildings.len();
        let mut pairs =
            Self { buildings: count, distance: vec![u32::MAX; count * count], tops: vec![0; count * count] };
        for to in 0..count {
            pairs.search(buildings, to)?;
        }
        for (from, building) in buildings.iter().enumerate() {
            for to in 0..count {
                let nearer = building.exits.iter().filter(|exit| pairs.is_nearer(from, exit.to as usize, to));
                let cables = nearer.map(|exit| entries[exit.entry as usize].count).max().unwrap_or(0);
                pairs.tops[from * count + to] = cables.min(building.tops.1);
            }
        }
        pairs.check_transit(buildings, entries)?;
        Ok(pairs)
    }

    /// Distances to a building, breadth first.
    fn search(&mut self, buildings: &[Building], to: usize) -> Result<(), TopologyError> {
        self.distance[to * self.buildings + to] = 0;
        let mut queue = VecDeque::from([to]);
        while let Some(near) = queue.pop_front() {
            for exit in &buildings[near].exits {
                let far = exit.to as usize * self.buildings + to;
                if self.distance[far] == u32::MAX {
                    self.distance[far] = self.distance(near, to) + 1;
                    queue.push_back(exit.to as usize);
                }
            }
        }
        match (0..self.buildings).find(|&from| self.distance(from, to) == u32::MAX) {
            Some(from) => {
                let [from, to] = [from, to].map(|building| buildings[building].name.clone());
                Err(TopologyError::NotJoined { from, to })
            }
            None => Ok(()),
        }
    }

    /// Every top switch that a cable arrives at must have one on.
    fn check_transit(&self, buildings: &[Building], entries: &[Entry]) -> Result<(), TopologyError> {
        for (from, building) in buildings.iter().enumerate() {
            for exit in &building.exits {
                let through = exit.to as usize;
                let arriving = entries[exit.entry as usize].count.min(buildings[through].tops.1);
                for to in (0..self.buildings).filter(|&to| to != through && self.is_nearer(from, through, to))
                {
                    let leaving = self.tops(through, to);
                    if leaving < arriving {
                        let [from, through, to] =
                            [from, through, to].map(|index| buildings[index].name.clone());
                        let entry = exit.entry as usize;
                        return Err(TopologyError::Transit { entry, from, through, to, arriving, leaving });
                    }
                }
            }
        }
        Ok(())
    }

    /// Cables between buildings on the way.
    #[inline]
    pub(super) fn distance(&self, from: usize, to: usize) -> u32 {
        self.distance[from * self.buildings + to]
    }

    /// Top switches of `from`, from the first on, with a cable that leads on.
    #[inline]
    pub(super) fn tops(&self, from: usize, to: usize) -> u32 {
        self.tops[from * self.buildings + to]
    }

    /// Whether `by`, next to `from`, is on a shortest way.
    #[inline]
    pub(super) fn is_nearer(&self, from: usize, by: usize, to: usize) -> bool {
        // Both are finite once all buildings are joined.
        self.distance(by, to).wrapping_add(1) == self.distance(from, to)
    }
}
