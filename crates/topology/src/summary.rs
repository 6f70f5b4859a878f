//! A topology in numbers.

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
    /// Ports down of a switch.
    pub ports_down: u32,
    /// Ports up of a switch; 0 at the top.
    pub ports_up: u32,
    /// Of a link below.
    pub rate_down: BitRate,
    /// Of a link above; `None` at the top.
    pub rate_up: Option<BitRate>,
    /// Directed links below this tier.
    pub links: u64,
    /// Ports down, of all switches, with a cable.
    pub ports_down_used: u64,
    /// Ports down, of all switches, without one.
    pub ports_down_unused: u64,
    /// Rate down over rate up of a switch with all ports in use; `None` at the top.
    pub oversubscription: Option<f64>,
}

/// Counts a fabric whose shape has no formula for it, port by port.
pub(crate) fn count<S: Shape>(shape: &S, hosts: &Hosts, edge: &Edge) -> TopologySummary {
    struct Tier {
        switches: u64,
        /// Of one switch, at most: towards NICs and switches, and all.
        nics: u32,
        switch_ports: u32,
        ports: u64,
        cabled: u64,
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
                nics: 0,
                switch_ports: 0,
                ports: 0,
                cabled: 0,
                rate_down: BitRate(0),
                rate_up: None,
            });
        }
        let counts = &mut tiers[tier];
        let (mut nics, mut switch_ports) = (0, 0);
        for port in 0..shape.ports(switch) {
            let Some(far) = shape.peer(switch, port) else { continue };
            let Cable { rate, propagation, .. } = shape.cable(switch, port);
            match far {
                Far::Nic { .. } => {
                    nics += 1;
                    counts.rate_down = counts.rate_down.max(rate);
                }
                Far::Switch { switch, .. } => {
                    switch_ports += 1;
                    counts.rate_up = counts.rate_up.max(Some(rate));
                    slowest = slowest.max(propagation + shape.delay(switch));
                }
            }
        }
        counts.switches += 1;
        counts.nics = counts.nics.max(nics);
        counts.switch_ports = counts.switch_ports.max(switch_ports);
        counts.ports += u64::from(shape.ports(switch));
        counts.cabled += u64::from(nics + switch_ports);
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
                ports_down: counts.nics,
                ports_up: counts.switch_ports,
                rate_down: counts.rate_down,
                rate_up: counts.rate_up,
                links: 2 * counts.cabled,
                ports_down_used: counts.cabled,
                ports_down_unused: counts.ports - counts.cabled,
                oversubscription: None,
            })
            .collect(),
    }
}
