//! What a topology is built from: plain values, already in base units. The scenario crate reads them from YAML.

use windtunnel_kernel::{BitRate, Span};

/// Propagation in fibre and copper: 5 ns a metre (refractive index 1.5).
pub const DEFAULT_PROPAGATION_PS_PER_M: u64 = 5_000;

/// A shape with its sizes.
#[derive(Clone, Debug, PartialEq)]
pub enum TopologySpec {
    /// Leaves, spines and so on: a folded Clos network of any number of tiers.
    Clos(ClosSpec),
}

/// A folded Clos network.
///
/// A switch of tier i has `tiers[i].ports_down` ports downwards, at the rate of its tier, and as many uplinks, at the
/// rate of the next tier, as its oversubscription asks for. A block of tier 0 is a leaf; a block of tier i + 1 (of
/// tier 1: a pod) joins `tiers[i+1].ports_down / bundle` blocks of tier i such that every switch at the top of a lower
/// block has `bundle` links to each of its own group of switches in tier i + 1.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosSpec {
    /// Number of hosts, packed from the first port on; ports beyond them stay unused.
    pub hosts: u32,
    /// Every host.
    pub host: HostSpec,
    /// From the leaves up; at least one.
    pub tiers: Vec<Tier>,
    /// Copies of the switch fabric; every NIC has one port of 1/planes of its rate into each.
    pub planes: u32,
    /// Propagation delay in picoseconds per metre.
    pub propagation_ps_per_m: u64,
}

/// What is inside a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostSpec {
    /// GPUs, each an endpoint.
    pub gpus: u32,
    /// NICs: a multiple of `gpus`, or a divisor of it (then GPUs share a NIC).
    pub nics: u32,
    /// Rail-optimised: NIC i of every host of a group goes to the group's leaf i. Otherwise all go to one leaf.
    pub rails: bool,
    /// The network between the GPUs.
    pub scale_up: ScaleUpSpec,
}

/// A scale-up domain: GPUs joined by `NVLink` or the like through a switch that never blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleUpSpec {
    /// GPUs in a domain; `None` is all of a host. Must divide `gpus`; 1 means that there is no such network.
    pub size: Option<u32>,
    /// Of one GPU, per direction.
    pub rate: BitRate,
    /// From GPU to GPU.
    pub latency: Span,
}

/// One tier of switches, with the links below it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// Ports towards the hosts. Of the top tier: a capacity, not all need be used. Of tier 0: NIC ports, which with
    /// rails are one of every host.
    pub ports_down: u32,
    /// Total rate down over total rate up of a switch; 1 does not block. The top tier has no uplinks: 1.
    pub oversubscription: f64,
    /// Of a link below this tier, per direction. Of tier 0: of a NIC, all its planes together.
    pub rate: BitRate,
    /// Of a cable below this tier, in millimetres.
    pub length_mm: u64,
    /// Parallel links between a lower switch and a switch of this tier; 1 in tier 0.
    pub bundle: u32,
    /// Pipeline delay of a switch of this tier.
    pub switch_latency: Span,
}

impl HostSpec {
    /// A host of `gpus` GPUs and `nics` NICs, not rail-optimised, whose GPUs form one scale-up domain of `rate` a GPU
    /// and no latency.
    pub const fn new(gpus: u32, nics: u32, rate: BitRate) -> Self {
        Self { gpus, nics, rails: false, scale_up: ScaleUpSpec { size: None, rate, latency: Span::ZERO } }
    }
}

impl Tier {
    /// A tier that does not block, of single links of length 0 and switches without delay.
    pub const fn new(ports_down: u32, rate: BitRate) -> Self {
        Self { ports_down, oversubscription: 1.0, rate, length_mm: 0, bundle: 1, switch_latency: Span::ZERO }
    }
}

impl ClosSpec {
    /// A single plane of `tiers` under `hosts` hosts.
    pub fn new(hosts: u32, host: HostSpec, tiers: Vec<Tier>) -> Self {
        Self { hosts, host, tiers, planes: 1, propagation_ps_per_m: DEFAULT_PROPAGATION_PS_PER_M }
    }

    /// The full k-ary fat tree (Al-Fares, Loukissas, Vahdat, SIGCOMM'08): k^3/4 hosts of one GPU and one NIC, all links
    /// of `rate`; `k` must be even.
    pub fn fat_tree(k: u32, rate: BitRate) -> Self {
        let tiers = [k / 2, k / 2, k].map(|ports| Tier::new(ports, rate)).to_vec();
        Self::new(k / 2 * (k / 2) * k, HostSpec::new(1, 1, rate), tiers)
    }
}
