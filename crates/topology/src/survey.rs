//! A topology looked at from above: its cables by kind, how far apart hosts are, and by how many paths.

use std::collections::BTreeMap;

use windtunnel_kernel::{BitRate, EndpointId, NicId, RandomStream};

use crate::faults::Forwarder;
use crate::link::{LinkId, LinkTier};
use crate::paths::Paths;
use crate::topology::Topology;

/// Cables of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cables {
    /// Where they stand: `nic`, `leaf-up`, `dimension0`, `global`, …
    pub tier: String,
    /// Of each; 0 where unknown.
    pub length_mm: u64,
    /// Of each, per direction.
    pub rate: BitRate,
    /// How many, in all planes.
    pub count: u64,
}

/// What a cable is called by where it stands, the same for both directions.
pub fn cable_tier(tier: LinkTier) -> String {
    match tier {
        LinkTier::NicUp | LinkTier::NicDown => "nic".to_owned(),
        LinkTier::Up(tier) | LinkTier::Down(tier) => LinkTier::Up(tier).name().into_owned(),
        other => other.name().into_owned(),
    }
}

/// All cables of the fabric by kind: NICs' first, then as the links are numbered.
pub fn cables(topology: &Topology) -> Vec<Cables> {
    let mut kinds: BTreeMap<(LinkTier, u64, BitRate), u64> = BTreeMap::new();
    for link in (0..topology.link_count() as u32).map(LinkId) {
        let tier = match topology.link(link) {
            known if matches!(known.tier, LinkTier::ScaleUpOut | LinkTier::ScaleUpIn) => continue,
            known => known.tier,
        };
        // A cable is counted at the lower of its two links.
        if link < topology.reverse(link) {
            let tier = match tier {
                LinkTier::NicDown => LinkTier::NicUp,
                LinkTier::Down(tier) => LinkTier::Up(tier),
                other => other,
            };
            *kinds.entry((tier, topology.cable_length_mm(link), topology.link(link).rate)).or_default() += 1;
        }
    }
    let cables = |((tier, length_mm, rate), count)| Cables { tier: cable_tier(tier), length_mm, rate, count };
    kinds.into_iter().map(cables).collect()
}

/// Distances and paths between hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Distances {
    /// Pairs looked at, those that nothing joins not counted.
    pub pairs: u64,
    /// Whether they are all pairs of hosts.
    pub exhaustive: bool,
    /// Pairs that nothing joins.
    pub cut_off: u64,
    /// Switches that a packet passes: mean and most.
    pub mean_switches: f64,
    /// See above.
    pub max_switches: u32,
    /// Shortest legal paths of a pair, all planes together: fewest, mean, most.
    pub min_paths: f64,
    /// See above.
    pub mean_paths: f64,
    /// See above.
    pub max_paths: f64,
}

/// Ports that counting paths may look at.
const WORK: u64 = 1 << 24;

/// Follows all paths between the first NICs of hosts: of all ordered pairs if they are at most `pairs`, else of as many
/// drawn ones, or fewer where a pair has very many paths. `None` for fewer than two hosts.
pub fn distances(forwarder: &mut Forwarder, pairs: u64, seed: u64) -> Option<Distances> {
    let topology = forwarder.topology().clone();
    let hosts = u64::from(topology.hosts());
    if hosts < 2 {
        return None;
    }
    let all = hosts * (hosts - 1);
    let exhaustive = all <= pairs;
    let mut draws = RandomStream::new(seed, "distances", 0);
    let mut pair = |index: u64| {
        let (from, to) = if exhaustive {
            (index / (hosts - 1), index % (hosts - 1))
        } else {
            (draws.below(hosts), draws.below(hosts - 1))
        };
        (from, if to < from { to } else { to + 1 })
    };
    let (mut work, mut count, mut cut_off, mut longest) = (0, 0, 0, 0);
    let (mut switches, mut least, mut sum, mut most) = (0u64, f64::INFINITY, 0.0, 0.0f64);
    let mut looked = 0;
    for index in 0..all.min(pairs) {
        if work > WORK && !exhaustive {
            break;
        }
        looked += 1;
        let (from, to) = pair(index);
        let nic = |host: u64| topology.nic(EndpointId(host as u32 * topology.endpoints_per_host()), NicId(0));
        let (from, to) = (nic(from), nic(to));
        let (mut paths, mut passed) = (0.0, 0);
        for plane in 0..topology.planes() {
            let found = Paths::between(forwarder, from, to, plane);
            work += found.work();
            if found.reach.forwards() {
                paths += found.count();
                passed = passed.max(found.switches());
            }
        }
        if paths == 0.0 {
            cut_off += 1;
            continue;
        }
        count += 1;
        switches += u64::from(passed);
        longest = longest.max(passed);
        (least, sum, most) = (least.min(paths), sum + paths, most.max(paths));
    }
    let mean = |sum: f64| if count == 0 { 0.0 } else { sum / count as f64 };
    Some(Distances {
        pairs: count,
        exhaustive: exhaustive && looked == all,
        cut_off,
        mean_switches: mean(switches as f64),
        max_switches: longest,
        min_paths: if count == 0 { 0.0 } else { least },
        mean_paths: mean(sum),
        max_paths: most,
    })
}
