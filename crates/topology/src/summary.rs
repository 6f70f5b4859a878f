//! A topology in numbers.

use windtunnel_kernel::math::gcd;
use windtunnel_kernel::{BitRate, Span};

use crate::edge::Edge;
use crate::hosts::Hosts;
use crate::shape::{Cable, Far, Shape};

/// What a topology amounts to.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologySummary {
    /// Name of the shape: `clos`, `torus`, …
    pub shape: &'static str,
    /// Hosts.
    pub hosts: u32,
    /// GPUs.
    pub endpoints: u32,
    /// NICs of all hosts.
    pub nics: u32,
    /// Copies of the switch fabric.
    pub planes: u32,
    /// GPUs of a scale-up domain.
    pub scale_up_size: u32,
    /// Switches of all tiers and planes, those of scale-up domains not counted.
    pub switches: u64,
    /// Directed links, scale-up links included.
    pub links: u64,
    /// From the leaves up.
    pub tiers: Vec<TierSummary>,
    /// What one half of the hosts can send to the other at most, per direction: half of the rate of the narrowest
    /// stage that it must cross. 0 for a single host.
    pub bisection: BitRate,
    /// Links of the longest of the paths between two endpoints.
    pub diameter_links: u32,
    /// Its latency.
    pub diameter_latency: Span,
}

/// A tier of switches, and the links below it, in all planes.
#[derive(Clone, Debug, PartialEq)]
pub struct TierSummary {
    /// From 0, the leaves.
    pub tier: u8,
    /// `leaf`, `agg`, `tier2`, …, `spine`.
    pub name: String,
    /// Switches of all planes.
    pub switches: u64,
    /// Ports down of a switch: to NICs and lower tiers.
    pub ports_down: u32,
    /// Ports up of a switch, those to its own tier among them (in regions to other buildings); 0 at the top.
    pub ports_up: u32,
    /// Of a link below.
    pub rate_down: BitRate,
    /// Of a link above; `None` at the top.
    pub rate_up: Option<BitRate>,
    /// Directed links below this tier.
    pub links: u64,
    /// Ports down, of all switches, with a cable; of shapes other than Clos and regions, ports both down and up.
    pub ports_down_used: u64,
    /// Likewise, without one.
    pub ports_down_unused: u64,
    /// Rate down over rate up of a switch with all ports in use; `None` at the top. At the top of regions that of the
    /// cables down over that of the cables to other buildings.
    pub oversubscription: Option<f64>,
}

impl TopologySummary {
    /// How many times as much leaves the hosts as passes the top of the fabric: the oversubscription of all tiers together, 1 in
    /// shapes that have none.
    pub fn narrowing(&self) -> f64 {
        self.tiers.iter().filter_map(|tier| tier.oversubscription).product()
    }

    /// Ways up that the numbers of paths tell apart: numbers that are equal modulo it take the same port up of every switch. 1
    /// in shapes without oversubscription.
    pub fn distinct_ways(&self) -> u64 {
        let ways = self.tiers.iter().filter(|tier| tier.oversubscription.is_some());
        ways.fold(1, |all: u64, tier| lcm(all, u64::from(tier.ports_up.max(1))))
    }
}

impl TierSummary {
    /// Whether more comes into its switches from below than they can pass on, with all ports in use.
    pub fn narrows(&self) -> bool {
        self.oversubscription.is_some_and(|ratio| ratio > 1.0)
    }

    /// With what its cables `down` and `up` carry together, in bits per second, of one switch or of all; none go up from the top.
    pub(crate) fn with_rates(self, down: f64, up: f64) -> Self {
        Self { oversubscription: (up > 0.0).then(|| down / up), ..self }
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    a / gcd(a, b) * b
}

/// Counts a fabric whose shape has no formula for it, port by port.
pub(crate) fn count<S: Shape>(shape: &S, hosts: &Hosts, edge: &Edge) -> TopologySummary {
    struct Tier {
        switches: u64,
        /// Of one switch, at most.
        ports_down: u32,
        ports_up: u32,
        /// Of all.
        ports: u64,
        down: u64,
        up: u64,
        rate_down: BitRate,
        rate_up: Option<BitRate>,
    }
    let mut tiers: Vec<Tier> = Vec::new();
    let mut slowest = Span::ZERO;
    for switch in 0..shape.switches() {
        let tier = usize::from(shape.tier(switch));
        while tiers.len() <= tier {
            tiers.push(Tier {
                switches: 0,
                ports_down: 0,
                ports_up: 0,
                ports: 0,
                down: 0,
                up: 0,
                rate_down: BitRate::ZERO,
                rate_up: None,
            });
        }
        let counts = &mut tiers[tier];
        let (mut down, mut up) = (0, 0);
        for port in 0..shape.ports(switch) {
            let Some(far) = shape.peer(switch, port) else { continue };
            let Cable { rate, propagation, .. } = shape.cable(switch, port);
            let below = match far {
                Far::Nic { .. } => true,
                Far::Switch { switch, .. } => {
                    slowest = slowest.max(propagation + shape.delay(switch));
                    usize::from(shape.tier(switch)) < tier
                }
            };
            if below {
                down += 1;
                counts.rate_down = counts.rate_down.max(rate);
            } else {
                up += 1;
                counts.rate_up = counts.rate_up.max(Some(rate));
            }
        }
        counts.switches += 1;
        counts.ports_down = counts.ports_down.max(down);
        counts.ports_up = counts.ports_up.max(up);
        counts.ports += u64::from(shape.ports(switch));
        counts.down += u64::from(down);
        counts.up += u64::from(up);
    }
    let links = u64::from(edge.fabric) + u64::from(shape.fabric_links());
    let alone = hosts.count == 1 && hosts.domains_per_host() == 1;
    let (attached, port) = shape.attachment(0, 0);
    let edges = shape.cable(attached, port).propagation * 2 + shape.delay(attached);
    TopologySummary {
        shape: shape.name(),
        hosts: hosts.count,
        endpoints: hosts.endpoints(),
        nics: edge.nics,
        planes: edge.planes,
        scale_up_size: hosts.domain.get(),
        switches: u64::from(shape.switches()),
        links,
        bisection: shape.bisection(),
        diameter_links: if alone { 0 } else { shape.diameter() + 2 },
        diameter_latency: if alone { Span::ZERO } else { edges + shape.longest(slowest) },
        tiers: tiers
            .iter()
            .enumerate()
            .map(|(tier, counts)| TierSummary {
                tier: tier as u8,
                name: shape.tier_name(tier as u8),
                switches: counts.switches,
                ports_down: counts.ports_down,
                ports_up: counts.ports_up,
                rate_down: counts.rate_down,
                rate_up: counts.rate_up,
                links: 2 * counts.down,
                ports_down_used: counts.down + counts.up,
                ports_down_unused: counts.ports - counts.down - counts.up,
                oversubscription: None,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn least_common_multiples() {
        assert_eq!([(1, 5), (4, 6), (64, 64), (8, 2)].map(|(a, b)| super::lcm(a, b)), [5, 12, 64, 8]);
    }
}
