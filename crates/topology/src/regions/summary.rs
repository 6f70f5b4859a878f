//! Tiers of all buildings together: those of their Clos networks added up, and above each building's top the cables to
//! other buildings.

use windtunnel_kernel::BitRate;

use super::{Building, Regions};
use crate::shape::Shape;
use crate::summary::TierSummary;

/// Rates of all cables below and above the switches of a tier.
#[derive(Clone, Copy, Default)]
struct Capacity {
    down: u128,
    up: u128,
}

impl Regions {
    /// The building of a host.
    pub(crate) fn building_name(&self, host: u32) -> &str {
        let building = self.buildings.partition_point(|building| building.first_host <= host) - 1;
        &self.buildings[building].name
    }

    /// Counts of every tier, from the lowest; ports and rates are the most that a building has.
    pub(crate) fn tier_summaries(&self) -> Vec<TierSummary> {
        let mut tiers: Vec<(TierSummary, Capacity)> = Vec::new();
        for building in &self.buildings {
            let mut own = building.clos.tier_summaries();
            let top = own.pop().expect("a Clos has a tier");
            let inner = own.into_iter().map(|tier| {
                let switches = u128::from(tier.switches);
                let rate = |ports: u32, rate: BitRate| switches * u128::from(ports) * u128::from(rate.bps());
                let down = rate(tier.ports_down, tier.rate_down);
                let up = rate(tier.ports_up, tier.rate_up.unwrap_or_default());
                (tier, Capacity { down, up })
            });
            for (tier, capacity) in inner.chain([self.with_cross(building, top)]) {
                add(&mut tiers, tier, capacity);
            }
        }
        let finish = |(tier, Capacity { down, up }): (TierSummary, Capacity)| {
            TierSummary { name: self.tier_name(tier.tier), ..tier }.with_rates(down as f64, up as f64)
        };
        tiers.into_iter().map(finish).collect()
    }

    /// The top tier of a building with its cables to others.
    fn with_cross(&self, building: &Building, mut top: TierSummary) -> (TierSummary, Capacity) {
        let cables = building.exits.iter().map(|exit| &self.entries[exit.entry as usize]);
        let up =
            cables.clone().map(|entry| u128::from(entry.count) * u128::from(entry.cable.rate.bps())).sum();
        let down = u128::from(top.ports_down_used) * u128::from(top.rate_down.bps());
        top.ports_up = cables.clone().map(|entry| entry.count.div_ceil(building.tops.1)).sum();
        top.rate_up = cables.map(|entry| entry.cable.rate).max();
        (top, Capacity { down, up })
    }
}

/// Adds a building's tier to those of the buildings before it.
fn add(tiers: &mut Vec<(TierSummary, Capacity)>, tier: TierSummary, capacity: Capacity) {
    let Some((all, sum)) = tiers.get_mut(usize::from(tier.tier)) else {
        // Tiers of a building come in order, so this is the next.
        tiers.push((tier, capacity));
        return;
    };
    all.switches += tier.switches;
    all.ports_down = all.ports_down.max(tier.ports_down);
    all.ports_up = all.ports_up.max(tier.ports_up);
    all.rate_down = all.rate_down.max(tier.rate_down);
    all.rate_up = all.rate_up.max(tier.rate_up);
    all.links += tier.links;
    all.ports_down_used += tier.ports_down_used;
    all.ports_down_unused += tier.ports_down_unused;
    sum.down += capacity.down;
    sum.up += capacity.up;
}
