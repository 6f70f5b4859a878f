//! Domains that stand in several buildings: how long a hop between two of them is on its way.
//!
//! Life cycle: whoever knows the topology makes [`Sites`] once; a group's [`Wires`] follow from where its ranks stand, when the
//! group is resolved. Without sites every hop has the wire of the [`super::Hardware`].
//! Invariants: a group inside a building has that building's wire and no other, however far the next building is; wires
//! grow with every distance.

use serde::Deserialize;
use windtunnel_kernel::RankId;
use windtunnel_kernel::Span;

/// Time between two hosts' NICs as the hops of a group meet it, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(from = "f64")]
pub struct Wires {
    /// Mean over the edges of the ring that leave a domain: what goes round passes all of them.
    pub ring: f64,
    /// Mean over the levels of the longest way from the root of a tree to a leaf.
    pub tree: f64,
    /// Between the two members that are farthest from each other.
    pub far: f64,
}

impl From<f64> for Wires {
    /// The same wherever two hosts stand.
    fn from(wire: f64) -> Self {
        Self { ring: wire, tree: wire, far: wire }
    }
}

/// [`Wires`] as specifications have them, which are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Distances {
    /// See [`Wires::ring`].
    pub ring: Span,
    /// See [`Wires::tree`].
    pub tree: Span,
    /// See [`Wires::far`].
    pub far: Span,
}

impl From<Distances> for Wires {
    fn from(distances: Distances) -> Self {
        Self { ring: distances.ring.seconds(), tree: distances.tree.seconds(), far: distances.far.seconds() }
    }
}

/// Which scale-up domain stands where, and how far it is from one site to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites {
    /// Site of every scale-up domain.
    of_domain: Vec<u32>,
    /// How many sites.
    count: usize,
    /// From site to site, the sites' own on the diagonal.
    wires: Vec<Span>,
}

impl Sites {
    /// `of_domain` gives the site of each scale-up domain; `wires` the time between the NICs of a host at site i and of one at
    /// site j at `i * sites + j`, one row for every site that `of_domain` names.
    ///
    /// # Panics
    /// If `wires` is no square, or a domain stands beyond it.
    pub fn new(of_domain: Vec<u32>, wires: Vec<Span>) -> Self {
        let count = wires.len().isqrt();
        assert_eq!(count * count, wires.len(), "a row of wires for every site");
        assert!(of_domain.iter().all(|&site| (site as usize) < count), "every domain stands at a site");
        Self { of_domain, count, wires }
    }

    fn wire(&self, a: u32, b: u32) -> Span {
        self.wires[a as usize * self.count + b as usize]
    }

    /// What the hops of a group are on their way whose ranks stand in the scale-up domains that `home` says.
    pub fn distances(&self, group: &[RankId], home: impl Fn(RankId) -> u32) -> Distances {
        // The first ranks of stretches that share a domain: what rings and trees join over the network.
        let heads: Vec<u32> = group
            .chunk_by(|&a, &b| home(a) == home(b))
            .map(|stretch| self.of_domain[home(stretch[0]) as usize])
            .collect();
        let first = heads.first().copied().unwrap_or(0);
        if heads.iter().all(|&site| site == first) {
            let own = self.wire(first, first);
            return Distances { ring: own, tree: own, far: own };
        }
        let mut found: Vec<u32> = heads.clone();
        found.sort_unstable();
        found.dedup();
        let far = found.iter().flat_map(|&a| found.iter().map(move |&b| self.wire(a, b))).max();
        let ring: u64 =
            (0..heads.len()).map(|at| self.wire(heads[at], heads[(at + 1) % heads.len()]).ps()).sum();
        Distances {
            ring: Span::from_ps(ring.div_ceil(heads.len() as u64)),
            tree: self.tree(&heads),
            far: far.unwrap_or(Span::ZERO),
        }
    }

    /// The longest way from the root of NCCL's first tree of all heads to a leaf, over the levels that the closed form counts.
    fn tree(&self, heads: &[u32]) -> Span {
        let n = heads.len();
        let levels = n.next_power_of_two().ilog2();
        let mut ways = vec![0; n];
        let mut longest = 0;
        // Everyone hangs on one whose lowest bit is higher.
        for bit in (0..levels).rev() {
            for at in (1 << bit..n).step_by(2 << bit) {
                let above = parent(at, n).unwrap_or(0);
                ways[at] = ways[above] + self.wire(heads[at], heads[above]).ps();
                longest = longest.max(ways[at]);
            }
        }
        Span::from_ps(longest.div_ceil(u64::from(levels.max(1))))
    }
}

/// Above whom `at` hangs in a binary tree of `n` whose leaves are the odd numbers and whose root is 0: with its lowest bit cleared
/// and the next one set, or not set where that would be beyond the last (Sanders, Speck, Träff 2009, "Two-tree algorithms for full
/// bandwidth broadcast, reduction and scan", section 3, which NCCL's trees follow).
fn parent(at: usize, n: usize) -> Option<usize> {
    if at == 0 {
        return None;
    }
    let bit = 1 << at.trailing_zeros();
    let above = (at ^ bit) | (bit << 1);
    Some(if above < n { above } else { at ^ bit })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: [u64; 2] = [1_000, 2_000];
    const FAR: u64 = 1_000_000;

    /// Two buildings of `each` hosts.
    fn two(each: u32, far: u64) -> Sites {
        let wires = [NEAR[0], far, far, NEAR[1]].map(Span::from_ns).to_vec();
        Sites::new((0..2 * each).map(|host| host / each).collect(), wires)
    }

    fn of(sites: &Sites, hosts: &[u32]) -> Distances {
        let group: Vec<RankId> = hosts.iter().map(|&host| RankId(host)).collect();
        sites.distances(&group, |rank| rank.0)
    }

    #[test]
    fn a_group_inside_a_building_knows_nothing_of_the_other() {
        for far in [5_000, FAR, 1_000_000_000] {
            let sites = two(8, far);
            for (hosts, own) in [([0, 1, 2, 5], NEAR[0]), ([8, 11, 12, 15], NEAR[1])] {
                let own = Span::from_ns(own);
                assert_eq!(of(&sites, &hosts), Distances { ring: own, tree: own, far: own });
            }
        }
    }

    #[test]
    fn a_ring_over_two_buildings_leaves_each_once() {
        let sites = two(8, FAR);
        let hosts: Vec<u32> = (0..16).collect();
        // 7 edges inside either building, one there and one back.
        let sum = 7 * (NEAR[0] + NEAR[1]) + 2 * FAR;
        assert_eq!(of(&sites, &hosts).ring, Span::from_ps(sum * 1_000 / 16));
        assert_eq!(of(&sites, &hosts).far, Span::from_ns(FAR));
        // Hosts in turn from either building: every edge is a long one.
        let in_turn: Vec<u32> = (0..16).map(|at| at / 2 + at % 2 * 8).collect();
        let far = Span::from_ns(FAR);
        assert_eq!(of(&sites, &in_turn).ring, far);
    }

    #[test]
    fn a_tree_in_order_passes_once_from_building_to_building() {
        let sites = two(8, FAR);
        let hosts: Vec<u32> = (0..16).collect();
        let tree = of(&sites, &hosts).tree.ps() * 4;
        // From 0 to 8 into the other building, and back to 4 for what is below 8: at most two long edges of four.
        assert!(tree >= FAR * 1_000 && tree <= (2 * FAR + 2 * NEAR[1]) * 1_000, "{tree}");
    }

    #[test]
    fn parents_make_a_tree_as_deep_as_its_levels() {
        for n in 1..200 {
            let mut children = vec![0; n];
            for at in 0..n {
                let (mut up, mut depth) = (at, 0);
                while let Some(parent) = parent(up, n) {
                    (up, depth) = (parent, depth + 1);
                }
                assert_eq!(up, 0);
                assert!(depth <= n.next_power_of_two().ilog2(), "{at} of {n}: {depth}");
                if let Some(parent) = parent(at, n) {
                    children[parent] += 1;
                }
            }
            assert!(children.iter().all(|&count| count <= 2));
        }
    }
}
