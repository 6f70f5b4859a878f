//! What rules replace: routing tables, computed breadth first.
//!
//! One search for every switch that a NIC hangs on, and for every switch a mask of the ports that lie on a shortest path
//! there. This is what packet simulators do at set-up, done well: hosts on one switch share an entry, masks instead of
//! lists, no search through hosts. It stands here to be measured beside the rules, and as a second opinion on them where
//! all shortest paths are legal.

use crate::choose::choose_hashed;
use crate::port::{Peer, SwitchId, Target};
use crate::topology::Topology;

/// Ports on shortest paths for every (switch, destination switch).
#[derive(Clone, Debug)]
pub struct Tables {
    /// Of each switch its number among those with NICs; `u32::MAX` without.
    destination: Vec<u32>,
    destinations: usize,
    /// Words of a mask.
    words: usize,
    /// Switch-major, as a switch's table lies in one place.
    masks: Vec<u64>,
}

impl Tables {
    /// Bytes that the masks take: words × 8 for every switch and destination.
    pub fn bytes(topology: &Topology) -> u64 {
        let (_, destinations) = destinations(topology);
        u64::from(topology.switches()) * destinations as u64 * words(topology) as u64 * 8
    }

    /// Searches the whole fabric.
    pub fn build(topology: &Topology) -> Self {
        let switches = topology.switches();
        let (destination, destinations) = destinations(topology);
        let words = words(topology);
        // Cables as (far switch, far port), switch by switch: a search should not pay for the formulas of the shape.
        let mut first = Vec::with_capacity(switches as usize + 1);
        let mut cables: Vec<(u32, u32)> = Vec::new();
        for switch in (0..switches).map(SwitchId) {
            first.push(cables.len());
            cables.extend((0..topology.ports(switch)).filter_map(
                |port| match topology.peer(switch, port)? {
                    Peer::Switch { switch, port } => Some((switch.0, port)),
                    Peer::Nic { .. } => None,
                },
            ));
        }
        first.push(cables.len());
        let mut masks = vec![0; switches as usize * destinations * words];
        let mut distance = vec![u32::MAX; switches as usize];
        let mut queue = Vec::with_capacity(switches as usize);
        for to in 0..switches {
            let column = destination[to as usize];
            if column == u32::MAX {
                continue;
            }
            distance.fill(u32::MAX);
            distance[to as usize] = 0;
            queue.clear();
            queue.push(to);
            let mut next = 0;
            while let Some(&near) = queue.get(next) {
                next += 1;
                let step = distance[near as usize] + 1;
                for &(far, port) in &cables[first[near as usize]..first[near as usize + 1]] {
                    if distance[far as usize] == u32::MAX {
                        distance[far as usize] = step;
                        queue.push(far);
                    }
                    if distance[far as usize] == step {
                        let row = (far as usize * destinations + column as usize) * words;
                        masks[row + port as usize / 64] |= 1 << (port % 64);
                    }
                }
            }
        }
        Self { destination, destinations, words, masks }
    }

    /// The port that a flow takes at a switch; as [`Topology::next_hop`].
    #[inline]
    pub fn next_hop(&self, at: SwitchId, to: &Target, flow_hash: u64) -> u32 {
        if at == to.switch {
            return to.port;
        }
        let column = self.destination[to.switch.0 as usize] as usize;
        let row = (at.0 as usize * self.destinations + column) * self.words;
        let mask = &self.masks[row..row + self.words];
        let count = mask.iter().map(|word| word.count_ones()).sum();
        let mut left = choose_hashed(flow_hash, u64::from(at.0), count);
        for (index, &word) in mask.iter().enumerate() {
            let ones = word.count_ones();
            if left < ones {
                let rest = (0..left).fold(word, |rest, _| rest & (rest - 1));
                return index as u32 * 64 + rest.trailing_zeros();
            }
            left -= ones;
        }
        unreachable!("the count is that of the mask")
    }
}

fn destinations(topology: &Topology) -> (Vec<u32>, usize) {
    let mut numbers = vec![u32::MAX; topology.switches() as usize];
    for nic in 0..topology.nics() {
        for plane in 0..topology.planes() {
            numbers[topology.attachment(nic, plane).0.0 as usize] = 0;
        }
    }
    let mut count = 0;
    for number in numbers.iter_mut().filter(|number| **number == 0) {
        *number = count;
        count += 1;
    }
    (numbers, count as usize)
}

fn words(topology: &Topology) -> usize {
    let ports = (0..topology.switches()).map(|switch| topology.ports(SwitchId(switch))).max();
    ports.unwrap_or(1).div_ceil(64) as usize
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::BitRate;

    use super::*;
    use crate::choose::flow_hash;
    use crate::port::Itinerary;
    use crate::spec::{ClosSpec, HostSpec, Tier, TopologySpec};

    #[test]
    fn tables_and_rules_choose_alike() {
        let rate = BitRate::from_gbps(400);
        let mut host = HostSpec::new(4, 4, rate);
        host.rails = true;
        let tiers = [4, 8, 8].map(|ports| Tier::new(ports, rate)).to_vec();
        let mut spec = ClosSpec::new(40, host, tiers);
        spec.planes = 2;
        spec.tiers[0].rate = BitRate::from_bps(2 * rate.bps());
        let topology = Topology::new(&TopologySpec::Clos(spec)).expect("a valid spec");
        let tables = Tables::build(&topology);
        assert_eq!(tables.masks.len() as u64 * 8, Tables::bytes(&topology));
        for (nic, entropy) in (0..topology.nics()).flat_map(|nic| (0..40).map(move |entropy| (nic, entropy)))
        {
            let hash = flow_hash(1, 0, u64::from(nic), entropy);
            let target = topology.target(nic, topology.plane(hash));
            let mut at = topology.attachment(0, target.plane).0;
            loop {
                let (port, _) = topology.next_hop(at, &target, Itinerary::DIRECT, hash);
                assert_eq!(tables.next_hop(at, &target, hash), port);
                match topology.peer(at, port).expect("a next hop has a cable") {
                    Peer::Switch { switch, .. } => at = switch,
                    Peer::Nic { nic: arrived, .. } => {
                        assert_eq!(arrived, nic);
                        break;
                    }
                }
            }
        }
    }
}
