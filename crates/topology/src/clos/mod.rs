//! Folded Clos networks of any number of tiers, as a formula.
//!
//! A *block* of tier 0 is a leaf. A block of tier i + 1 holds `radix` blocks of tier i, each with `width_i` switches at
//! its top, and `width_{i+1} = width_i · parents_i` switches of its own: switch w at the top of every lower block is
//! joined to the switches w + `width_i` · c, c in `0..parents_i`, by `bundle` links each. The top tier is one block.
//! So a switch is (tier, block, index), its parents and children follow by arithmetic, and the blocks that hold a leaf
//! are quotients of the leaf's number. This is the extended generalised fat tree (Öhring et al., IPPS'95) with
//! parallel links.
//!
//! Uplink port q of a switch leads to parent c = q mod `parents` over parallel link q / `parents`. Cables are stored
//! nowhere: cable (plane, block, index, q) of the stage above tier i has number
//! ((plane · blocks + block) · `width_i` + index) · uplinks + q, which counts its link up from `Stage::up` and its link
//! down from `Stage::down`.

mod hop;
mod part;
mod path;
mod rule;
mod summary;
mod survive;

use windtunnel_kernel::{BitRate, Span};

use crate::divide::Divisor;
use crate::edge::Edge;
use crate::error::TopologyError;
use crate::hosts::Hosts;
use crate::spec::{ClosSpec, Tier};

pub use hop::SwitchRule;
pub(crate) use part::Ascent;

/// The switches of one tier, of all planes.
#[derive(Clone, Debug)]
struct Level {
    /// Blocks in a plane.
    blocks: u32,
    /// Switches of a block at this tier.
    width: Divisor,
    /// Leaves below a block.
    leaves: Divisor,
    /// Switches in a plane.
    switches: u32,
    /// Number of the first switch.
    first_switch: u32,
    /// Ports down of a switch, used or not.
    ports_down: u32,
    /// Of a link below.
    rate: BitRate,
    /// Of a cable below.
    propagation: Span,
    loss: f64,
    length_mm: u64,
    /// Pipeline delay.
    delay: Span,
}

/// The links between tier i and tier i + 1.
#[derive(Clone, Debug)]
struct Stage {
    /// Uplinks of a lower switch.
    uplinks: Divisor,
    /// Upper switches that a lower switch is joined to.
    parents: Divisor,
    /// Parallel links to each of them: uplinks / parents.
    bundle: u32,
    /// Lower blocks in an upper block.
    radix: Divisor,
    /// First link up.
    up: u32,
    /// First link down.
    down: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Clos {
    planes: u32,
    nics_per_host: u32,
    per_host: Divisor,
    rails: bool,
    /// Hosts that share a leaf (rails: a group of leaves).
    group: Divisor,
    edge: Edge,
    /// Links between switches.
    links: u32,
    levels: Vec<Level>,
    /// One less than levels.
    stages: Vec<Stage>,
    /// Of a path that turns at a tier.
    latencies: Vec<Span>,
}

impl Clos {
    /// The rules of `spec`, whose hosts are `hosts`.
    pub(crate) fn new(spec: &ClosSpec, hosts: &Hosts) -> Result<Self, TopologyError> {
        check_sizes(spec)?;
        let edge = Edge::new(hosts, spec.planes)?;
        let nic_rate = spec.tiers[0].rate;
        if !nic_rate.bps().is_multiple_of(u64::from(spec.planes)) {
            return Err(TopologyError::Planes { rate: nic_rate, planes: spec.planes });
        }
        let port_rate = BitRate::from_bps(nic_rate.bps() / u64::from(spec.planes));
        let joints = joints(spec, port_rate)?;
        let propagations = propagations(spec)?;

        let rooms = spec.tiers[1..].iter().map(|tier| u64::from(tier.ports_down / tier.bundle));
        let leaves_fit = rooms.fold(1u64, u64::saturating_mul);
        let group = hosts_per_group(spec)?;
        let leaves_per_group = if spec.host.rails { spec.host.nics } else { 1 };
        let groups_fit = leaves_fit / u64::from(leaves_per_group);
        if groups_fit == 0 {
            return Err(TopologyError::Rails { rails: leaves_per_group, leaves: leaves_fit });
        }
        let fit = groups_fit.saturating_mul(u64::from(group));
        if u64::from(spec.hosts) > fit {
            return Err(TopologyError::TooManyHosts { hosts: spec.hosts, fit });
        }

        let mut numbers = Numbers { edge, next: 0 };
        let mut levels: Vec<Level> = Vec::with_capacity(spec.tiers.len());
        let mut stages = Vec::with_capacity(joints.len());
        // Leaves fit 32 bits: there is at most one per NIC.
        let mut blocks = spec.hosts.div_ceil(group) * leaves_per_group;
        let (mut width, mut leaves, mut first_switch) = (1u32, 1u32, 0u32);
        for (index, tier) in spec.tiers.iter().enumerate() {
            let switches = u64::from(blocks) * u64::from(width);
            let end = u64::from(first_switch) + switches.saturating_mul(u64::from(spec.planes));
            let too_large = TopologyError::TooLarge { what: "switches", limit: 1 << 32, found: end };
            let end = u32::try_from(end).map_err(|_| too_large)?;
            let switches = switches as u32;
            levels.push(Level {
                blocks,
                width: Divisor::new(width),
                leaves: Divisor::new(leaves),
                switches,
                first_switch,
                ports_down: tier.ports_down,
                rate: if index == 0 { port_rate } else { tier.rate },
                propagation: propagations[index],
                loss: tier.loss,
                length_mm: tier.length_mm,
                delay: tier.switch_latency,
            });
            first_switch = end;
            let Some(&Joint { uplinks, parents, bundle }) = joints.get(index) else { break };
            let links = (u64::from(switches) * u64::from(uplinks)).saturating_mul(u64::from(spec.planes));
            let radix = spec.tiers[index + 1].ports_down / bundle;
            stages.push(Stage {
                uplinks: Divisor::new(uplinks),
                parents: Divisor::new(parents),
                bundle,
                radix: Divisor::new(radix),
                up: numbers.take(links)?,
                down: numbers.take(links)?,
            });
            blocks = blocks.div_ceil(radix);
            // Bounded: every switch of a block is the end of one of the links counted above.
            width *= parents;
            // A block of more leaves than can exist holds them all.
            leaves = leaves.saturating_mul(radix);
        }
        let latencies = (0..levels.len()).map(|turn| path_latency(&levels[..=turn])).collect();
        Ok(Self {
            planes: spec.planes,
            nics_per_host: spec.host.nics,
            per_host: Divisor::new(spec.host.nics),
            rails: spec.host.rails,
            group: Divisor::new(group),
            edge,
            links: numbers.next,
            levels,
            stages,
            latencies,
        })
    }

    /// The leaf of a NIC of a host, and its port there.
    #[inline]
    fn port(&self, (host, nic): (u32, u32)) -> (u32, u32) {
        let (group, member) = self.group.split(host);
        if self.rails {
            (group * self.nics_per_host + nic, member)
        } else {
            (group, member * self.nics_per_host + nic)
        }
    }

    /// NIC ports of a leaf that hosts can use.
    #[inline]
    fn leaf_ports(&self) -> u32 {
        if self.rails { self.group.get() } else { self.group.get() * self.nics_per_host }
    }

    /// The lowest tier at which a block holds both leaves.
    #[inline]
    fn turn(&self, a: u32, b: u32) -> usize {
        let mut tier = 0;
        // The top tier is a single block, so the walk ends there.
        while self.levels[tier].leaves.quotient(a) != self.levels[tier].leaves.quotient(b) {
            tier += 1;
        }
        tier
    }
}

/// Hands out dense numbers of links between switches.
struct Numbers {
    edge: Edge,
    next: u32,
}

impl Numbers {
    fn take(&mut self, count: u64) -> Result<u32, TopologyError> {
        let first = self.next;
        let end = u64::from(first).saturating_add(count);
        self.edge.end(end)?;
        self.next = end as u32;
        Ok(first)
    }
}

/// How the switches of a tier are joined to the next.
#[derive(Clone, Copy)]
struct Joint {
    uplinks: u32,
    parents: u32,
    bundle: u32,
}

fn check_sizes(spec: &ClosSpec) -> Result<(), TopologyError> {
    let zero = |path: String| Err(TopologyError::Zero { path });
    if spec.tiers.is_empty() {
        return zero("tiers".to_owned());
    }
    if spec.planes == 0 {
        return zero("planes".to_owned());
    }
    for (index, tier) in spec.tiers.iter().enumerate() {
        for (name, is_zero) in [
            ("ports_down", tier.ports_down == 0),
            ("rate", tier.rate.bps() == 0),
            ("bundle", tier.bundle == 0),
        ] {
            if is_zero {
                return zero(format!("tiers[{index}].{name}"));
            }
        }
        if !(tier.oversubscription.is_finite() && tier.oversubscription > 0.0) {
            return Err(TopologyError::Oversubscription { tier: index, found: tier.oversubscription });
        }
        if !(0.0..=1.0).contains(&tier.loss) {
            return Err(TopologyError::Loss { path: format!("tiers[{index}].loss"), found: tier.loss });
        }
    }
    let top = spec.tiers.len() - 1;
    if spec.tiers[top].oversubscription != 1.0 {
        return Err(TopologyError::TopOversubscription {
            tier: top,
            found: spec.tiers[top].oversubscription,
        });
    }
    if spec.tiers[0].bundle != 1 {
        return Err(TopologyError::NicBundle { found: spec.tiers[0].bundle });
    }
    // Tiers have 8-bit numbers; an absurd count is refused before it costs memory.
    if spec.tiers.len() > usize::from(u8::MAX) {
        return Err(TopologyError::TooLarge { what: "tiers", limit: 1 << 8, found: spec.tiers.len() as u64 });
    }
    Ok(())
}

/// Uplinks of every tier but the top: ports_down · rate / (oversubscription · rate of the next tier).
fn joints(spec: &ClosSpec, port_rate: BitRate) -> Result<Vec<Joint>, TopologyError> {
    let joint = |(index, pair): (usize, &[Tier])| {
        let (lower, upper) = (&pair[0], &pair[1]);
        let rate_down = if index == 0 { port_rate } else { lower.rate };
        let down = f64::from(lower.ports_down) * rate_down.bps() as f64;
        let exact = down / (lower.oversubscription * upper.rate.bps() as f64);
        let whole = exact.round();
        // Ratios such as 4/3 are not exact in binary: allow for their rounding, not for a mistake.
        if whole < 1.0 || whole > f64::from(u32::MAX) || (exact - whole).abs() > 1e-6 * whole {
            return Err(TopologyError::Uplinks {
                tier: index,
                uplinks: exact,
                ports_down: lower.ports_down,
                rate_down,
                oversubscription: lower.oversubscription,
                rate_up: upper.rate,
            });
        }
        let (uplinks, bundle) = (whole as u32, upper.bundle);
        for (side, ports) in
            [("uplinks of a switch of the tier below", uplinks), ("ports down of a switch", upper.ports_down)]
        {
            if ports % bundle != 0 {
                return Err(TopologyError::Bundle { tier: index + 1, side, ports, bundle });
            }
        }
        Ok(Joint { uplinks, parents: uplinks / bundle, bundle })
    };
    spec.tiers.windows(2).enumerate().map(joint).collect()
}

/// Hosts that share a leaf, or with rails a group of leaves.
fn hosts_per_group(spec: &ClosSpec) -> Result<u32, TopologyError> {
    let (nics, ports_down) = (spec.host.nics, spec.tiers[0].ports_down);
    if spec.host.rails {
        return Ok(ports_down);
    }
    if ports_down < nics {
        return Err(TopologyError::SmallLeaf { nics, ports_down });
    }
    Ok(ports_down / nics)
}

/// Propagation delay of the cables below every tier; a path through all of them must take less than 200 days, the
/// longest span of network time.
fn propagations(spec: &ClosSpec) -> Result<Vec<Span>, TopologyError> {
    const LONGEST_PS: u128 = 200 * 86_400 * windtunnel_kernel::units::PS_PER_SECOND as u128;
    let mut path = 0;
    let delay = |(index, tier): (usize, &Tier)| {
        let cable = (u128::from(tier.length_mm) * u128::from(spec.propagation_ps_per_m)).div_ceil(1_000);
        path += 2 * (cable + u128::from(tier.switch_latency.ps()));
        if path >= LONGEST_PS {
            return Err(TopologyError::Latency {
                tier: index,
                length_mm: tier.length_mm,
                delay: tier.switch_latency,
            });
        }
        Ok(Span::from_ps(cable as u64))
    };
    spec.tiers.iter().enumerate().map(delay).collect()
}

/// Latency of a path that turns at the last of `levels`: every cable twice, every switch below the turn twice, the
/// switch at the turn once.
fn path_latency(levels: &[Level]) -> Span {
    let there_and_back: Span = levels.iter().map(|level| (level.propagation + level.delay) * 2).sum();
    there_and_back - levels.last().map_or(Span::ZERO, |turn| turn.delay)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::HostSpec;

    /// Bytes on the heap. Every field is named: one that grows with the cluster cannot slip in unnoticed.
    fn heap(clos: &Clos) -> usize {
        let Clos { planes: _, nics_per_host: _, per_host: _, rails: _, group: _, edge: _, links: _, .. } =
            clos;
        let Clos { levels, stages, latencies, .. } = clos;
        size_of_val(levels.as_slice()) + size_of_val(stages.as_slice()) + size_of_val(latencies.as_slice())
    }

    #[test]
    fn memory_does_not_grow_with_hosts() {
        let rate = BitRate::from_gbps(400);
        let build = |hosts, ports: [u32; 3]| {
            let tiers = ports.map(|ports| Tier::new(ports, rate)).to_vec();
            let host = HostSpec::new(1, 1, rate);
            let inside = Hosts::new(hosts, &host).expect("valid hosts");
            Clos::new(&ClosSpec::new(hosts, host, tiers), &inside).expect("a valid spec")
        };
        let (small, large) = (build(16, [2, 2, 4]), build(65_536, [32, 32, 64]));
        assert_eq!(large.levels.iter().map(|level| level.blocks).collect::<Vec<_>>(), [2048, 64, 1]);
        assert_eq!(heap(&small), heap(&large));
        assert!(heap(&large) < 1024, "{}", heap(&large));
    }
}
