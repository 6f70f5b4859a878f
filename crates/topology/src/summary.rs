//! A topology in numbers.

use windtunnel_kernel::{BitRate, Span};

/// What a topology amounts to.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologySummary {
    /// Name of the shape: `clos`.
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
