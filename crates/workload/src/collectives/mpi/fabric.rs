//! Fabrics as MPI's patterns load them: switches in leaves and groups with a placement, or a torus.

use serde::Deserialize;

use super::algorithms::{Pattern, bine_distance};

/// Where ranks are and what joins them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fabric {
    /// Hosts on leaf switches, leaves in groups.
    Switches {
        /// Host of every rank.
        hosts: Vec<u32>,
        /// Leaf of every host.
        leaves: Vec<u32>,
        /// Group of every host.
        groups: Vec<u32>,
        /// What a host's ranks send together over one port, bytes per second.
        host_rate: f64,
        /// Ports over which a message is spread that is not sent unasked.
        #[serde(default = "one")]
        rails: f64,
        /// What leaves a leaf upwards, bytes per second.
        leaf_rate: f64,
        /// What two groups exchange one way, all paths together, bytes per second.
        group_rate: f64,
        /// What a host's memory moves, bytes per second.
        memory_rate: f64,
        /// Seconds inside a host, a leaf, a group, and beyond.
        latencies: [f64; 4],
        /// Leaves of the job that other jobs send over, too.
        #[serde(default)]
        exposed: f64,
        /// Whether the job has hosts on most leaves of the machine.
        #[serde(default)]
        wide: bool,
    },
    /// A torus, ranks in order with the last dimension fastest.
    Torus {
        /// Its sides.
        sides: Vec<u32>,
        /// Longest side of the machine itself: longer ones are folded into blocks, as wide as they are long, whose links
        /// between neighbouring folds share what goes far.
        straight: u32,
        /// Rate of a link one way, bytes per second.
        link_rate: f64,
        /// Seconds of a hop.
        hop: f64,
    },
}

const fn one() -> f64 {
    1.0
}

/// What a pattern asks of a fabric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Seconds of wire and switches on the longest path.
    pub latency: f64,
    /// The same on average over the messages.
    pub usual: f64,
    /// Part of the messages that leave their host.
    pub away: f64,
    /// Seconds a byte sent by one rank alone takes on its own link; 0 if it stays in its host.
    pub single: f64,
    /// Seconds a byte sent by every rank takes on the busiest network link; 0 if none is used.
    pub network: f64,
    /// The same beyond the hosts' own links.
    pub beyond: f64,
    /// The same in a host's memory, for messages that stay there.
    pub memory: f64,
    /// Whether a message stays in its host.
    pub stays: bool,
}

impl Fabric {
    /// Ranks.
    pub fn ranks(&self) -> usize {
        match self {
            Self::Switches { hosts, .. } => hosts.len(),
            Self::Torus { sides, .. } => sides.iter().map(|&side| side as usize).product(),
        }
    }

    /// Sides of the torus; one row of all ranks elsewhere.
    pub fn sides(&self) -> Vec<u32> {
        match self {
            Self::Switches { hosts, .. } => vec![hosts.len() as u32],
            Self::Torus { sides, .. } => sides.clone(),
        }
    }

    /// Leaves that other jobs send over, too.
    pub fn exposed(&self) -> f64 {
        match self {
            Self::Switches { exposed, .. } => *exposed,
            Self::Torus { .. } => 0.0,
        }
    }

    /// Ports of a message that is not sent unasked.
    pub fn rails(&self) -> f64 {
        match self {
            Self::Switches { rails, .. } => *rails,
            Self::Torus { .. } => 1.0,
        }
    }

    /// Whether the job has hosts on most leaves of the machine.
    pub fn wide(&self) -> bool {
        matches!(self, Self::Switches { wide: true, .. })
    }

    /// Ranks of the fullest host.
    pub fn together(&self) -> f64 {
        match self {
            Self::Switches { hosts, .. } => {
                let mut ranks = vec![0u32; hosts.iter().max().map_or(0, |&most| most as usize + 1)];
                for &host in hosts {
                    ranks[host as usize] += 1;
                }
                f64::from(ranks.into_iter().max().unwrap_or(1))
            }
            Self::Torus { .. } => 1.0,
        }
    }

    /// Seconds a byte reduced by every rank takes in the busiest host's memory: two read, one written.
    pub fn reduction(&self) -> f64 {
        match self {
            Self::Switches { memory_rate, .. } => 3.0 * self.together() / memory_rate,
            Self::Torus { .. } => 0.0,
        }
    }

    /// The load of `pattern` where every message is spread over `ports` interfaces.
    pub fn load(&self, pattern: Pattern, ports: u32) -> Load {
        match self {
            Self::Switches {
                hosts,
                leaves,
                groups,
                host_rate,
                leaf_rate,
                group_rate,
                memory_rate,
                latencies,
                ..
            } => {
                let rates = [*host_rate, *leaf_rate, *group_rate, *memory_rate];
                switches(hosts, leaves, groups, rates, *latencies, pattern)
            }
            Self::Torus { sides, straight, link_rate, hop } => {
                torus(sides, (*straight).max(1), *link_rate, *hop, ports, pattern)
            }
        }
    }
}

/// The rank to which `rank` of `n` sends.
fn target(pattern: Pattern, rank: u32, n: u32) -> Option<u32> {
    let power = 1u32 << n.ilog2();
    match pattern {
        Pattern::Shift(d) => Some((rank + d) % n),
        Pattern::Bit(k) => (rank < power).then(|| rank ^ (1 << k)).filter(|&to| to < n),
        Pattern::Bine(k) => (rank < power).then(|| bine(rank, k, power)),
        Pattern::BineEven(k) => Some(bine(rank, k, n)),
        Pattern::Fold => (rank >= power).then(|| rank - power),
        Pattern::All | Pattern::Root => None,
    }
}

/// The partner of `rank` in step `k` of a Bine tree around `n` ranks.
fn bine(rank: u32, k: u32, n: u32) -> u32 {
    let distance = bine_distance(k);
    let step = if rank.is_multiple_of(2) { distance } else { -distance };
    (i64::from(rank) + step).rem_euclid(i64::from(n)) as u32
}

fn switches(
    hosts: &[u32],
    leaves: &[u32],
    groups: &[u32],
    rates: [f64; 4],
    latencies: [f64; 4],
    pattern: Pattern,
) -> Load {
    let n = hosts.len() as u32;
    let [host_rate, leaf_rate, group_rate, memory_rate] = rates;
    let count = |of: &[u32]| of.iter().max().map_or(0, |&most| most as usize + 1);
    let (host_count, leaf_count, group_count) = (count(hosts), count(leaves), count(groups));
    let mut sent = vec![0.0; host_count];
    let mut kept = vec![0.0; host_count];
    let mut up = vec![0.0; leaf_count];
    let mut across = vec![0.0; group_count * group_count];
    let mut farthest = 0;
    let (mut delay, mut messages, mut leaving) = (0.0, 0.0, 0.0);
    let mut carry = |from: u32, to: u32, weight: f64| {
        let (a, b) = (hosts[from as usize] as usize, hosts[to as usize] as usize);
        let class = if a == b {
            0
        } else if leaves[a] == leaves[b] {
            1
        } else if groups[a] == groups[b] {
            2
        } else {
            3
        };
        farthest = farthest.max(class);
        delay += weight * latencies[class];
        messages += weight;
        if class >= 1 {
            leaving += weight;
        }
        if class >= 1 {
            sent[a] += weight;
        } else {
            kept[a] += weight;
        }
        if class >= 2 {
            up[leaves[a] as usize] += weight;
        }
        if class >= 3 {
            across[groups[a] as usize * group_count + groups[b] as usize] += weight;
        }
    };
    match pattern {
        // Everyone with everyone: the bytes of a rank spread over all others.
        Pattern::All => {
            let weight = 1.0 / f64::from(n - 1);
            let stride = (n / 512).max(1);
            for from in (0..n).step_by(stride as usize) {
                for to in 0..n {
                    if from != to {
                        carry(from, to, weight * f64::from(stride));
                    }
                }
            }
        }
        Pattern::Root => {
            for to in 1..n {
                carry(0, to, 1.0 / f64::from(n - 1));
            }
        }
        _ => {
            for from in 0..n {
                if let Some(to) = target(pattern, from, n).filter(|&to| to != from) {
                    carry(from, to, 1.0);
                }
            }
        }
    }
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    let beyond = (most(&up) / leaf_rate).max(most(&across) / group_rate);
    Load {
        latency: latencies[farthest],
        usual: if messages > 0.0 { delay / messages } else { 0.0 },
        away: if messages > 0.0 { leaving / messages } else { 0.0 },
        single: if leaving > 0.0 { 1.0 / host_rate } else { 0.0 },
        network: most(&sent) / host_rate,
        beyond,
        memory: 2.0 * most(&kept) / memory_rate,
        stays: most(&kept) > 0.0,
    }
}

/// Partners along one dimension at a time, dimensions in turn; a ring runs along neighbours.
///
/// Of several ports each works along another dimension. Ports beyond the number of dimensions send the mirror image along
/// the same ones: where a tree's ranks already send both ways they meet the others' messages there, and on a side of two
/// both ways are one link.
fn torus(sides: &[u32], straight: u32, link_rate: f64, hop: f64, ports: u32, pattern: Pattern) -> Load {
    let longest = sides.iter().copied().max().unwrap_or(1);
    let along = (f64::from(ports) / sides.len() as f64).max(1.0);
    // What the ports of one rank put on its own link: both ways of a side of two are one.
    let own = |side: u32| if side == 2 { along } else { 1.0 };
    let (distance, alone, shared) = match pattern {
        Pattern::Shift(d) if d <= 1 => (1, own(longest), 1.0),
        Pattern::Bit(k) | Pattern::Bine(k) | Pattern::BineEven(k) => {
            let (side, step) = dimension(sides, k);
            let lanes = (f64::from(side) / f64::from(straight)).sqrt().max(1.0);
            let (far, shared) = if matches!(pattern, Pattern::Bit(_)) {
                let far = 1u32 << step;
                // Partners half a side away are as near either way.
                let met = if 2 * far >= side { f64::from(far) / 2.0 } else { f64::from(far) };
                (far, met.max(along * met / 2.0))
            } else {
                let far = (bine_distance(step).unsigned_abs() as u32).min(side / 2).max(1);
                // Even ranks go one way and odd ones the other: half of those in reach share a link.
                (far, along * f64::from(far) / 2.0)
            };
            (far, own(side), shared / lanes)
        }
        Pattern::Shift(d) => {
            let members: u32 = sides.iter().product();
            (d.min(longest / 2).max(1), 1.0, f64::from(d.min(members / 2)) / 2.0)
        }
        Pattern::All => (longest / 2, 1.0, f64::from(longest) / 8.0 * sides.len() as f64),
        Pattern::Root | Pattern::Fold => (longest / 2, 1.0, 1.0),
    };
    let latency = f64::from(distance) * hop;
    Load {
        latency,
        usual: latency,
        away: 1.0,
        single: alone / link_rate,
        network: alone / link_rate,
        beyond: shared.max(1.0) / link_rate,
        memory: 0.0,
        stays: false,
    }
}

/// The side of step `k` of a tree and the step within it: dimensions take turns while they have steps left.
fn dimension(sides: &[u32], k: u32) -> (u32, u32) {
    let mut left: Vec<u32> = sides.iter().map(|side| side.ilog2()).collect();
    let (mut at, mut step) = (0, 0);
    for _ in 0..=k {
        if left.iter().all(|&left| left == 0) {
            break;
        }
        while left[at % sides.len()] == 0 {
            at += 1;
        }
        let chosen = at % sides.len();
        step = sides[chosen].ilog2() - left[chosen];
        left[chosen] -= 1;
        at = chosen + 1;
    }
    (sides[(at + sides.len() - 1) % sides.len()], step)
}
