//! What a Clos network amounts to.

use windtunnel_kernel::{BitRate, Span};

use super::Clos;
use crate::hosts::Hosts;
use crate::shape::Shape;
use crate::summary::{TierSummary, TopologySummary};

impl Clos {
    /// Counts of every tier.
    pub(crate) fn tier_summaries(&self) -> Vec<TierSummary> {
        let planes = u64::from(self.planes);
        let tier = |(index, level): (usize, &super::Level)| {
            let up = self.stages.get(index);
            let below = match index.checked_sub(1) {
                None => u64::from(self.edge.nics),
                Some(lower) => {
                    u64::from(self.levels[lower].switches) * u64::from(self.stages[lower].uplinks.get())
                }
            };
            let (switches, cables) = (u64::from(level.switches) * planes, below * planes);
            let (rate_down, ports_up) = (level.rate, up.map_or(0, |stage| stage.uplinks.get()));
            let rate_up = up.map(|_| self.levels[index + 1].rate);
            let rate = |ports: u32, rate: BitRate| f64::from(ports) * rate.bps() as f64;
            let tier = TierSummary {
                tier: index as u8,
                name: self.tier_name(index as u8),
                switches,
                ports_down: level.ports_down,
                ports_up,
                rate_down,
                rate_up,
                links: 2 * cables,
                ports_down_used: cables,
                ports_down_unused: switches * u64::from(level.ports_down) - cables,
                oversubscription: None,
            };
            tier.with_rates(rate(level.ports_down, rate_down), rate(ports_up, rate_up.unwrap_or_default()))
        };
        self.levels.iter().enumerate().map(tier).collect()
    }

    pub(crate) fn summary(&self, hosts: &Hosts) -> TopologySummary {
        let tiers = self.tier_summaries();
        let reach = self.reach(hosts);
        let (diameter_links, diameter_latency) = match reach {
            Some(turn) => (2 * turn as u32 + 2, self.latencies[turn]),
            None if hosts.domain.get() > 1 => (2, hosts.scale_up().1),
            None => (0, Span::ZERO),
        };
        // Half of the traffic of every half crosses every stage up to the turn, and none above.
        let narrowest = tiers
            .iter()
            .take(if hosts.count > 1 { reach.map_or(0, |turn| turn + 1) } else { 0 })
            .map(|tier| u128::from(tier.links / 2) * u128::from(tier.rate_down.bps()))
            .min()
            .unwrap_or(0);
        TopologySummary {
            shape: "clos",
            hosts: hosts.count,
            endpoints: hosts.endpoints(),
            nics: self.edge.nics,
            planes: self.planes,
            scale_up_size: hosts.domain.get(),
            switches: tiers.iter().map(|tier| tier.switches).sum(),
            links: u64::from(self.edge.fabric) + u64::from(self.links),
            tiers,
            bisection: BitRate::from_bps(u64::try_from(narrowest / 2).unwrap_or(u64::MAX)),
            diameter_links,
            diameter_latency,
        }
    }

    /// The highest tier at which a path between two endpoints turns; `None` if no two need the fabric.
    fn reach(&self, hosts: &Hosts) -> Option<usize> {
        if hosts.count == 1 && hosts.domains_per_host() == 1 {
            return None;
        }
        // A NIC talks to those that other GPUs know by the same number. Leaves are numbered in the order of hosts and
        // NICs, so the first and the last of them are the farthest apart.
        let (own, last_gpu) = (hosts.nics_per_gpu.get(), hosts.gpus.get() - 1);
        let farthest = |nic: u32| {
            let first = self.port((0, hosts.nic(0, nic as u8))).0;
            let last = self.port((hosts.count - 1, hosts.nic(last_gpu, nic as u8))).0;
            self.turn(first, last)
        };
        (0..own.min(1 << 8)).map(farthest).max()
    }
}
