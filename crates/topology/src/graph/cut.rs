//! The least cut between two halves of the hosts, as a maximum flow (Dinic, 1970): the rate that one half can send to the
//! other, if paths could be chosen freely.

use std::collections::VecDeque;

use windtunnel_kernel::BitRate;

struct Arc {
    to: u32,
    /// What is left, in bit/s; the arc back has the next number, or the one before.
    left: u128,
}

struct Network {
    arcs: Vec<Arc>,
    /// Arcs of every node.
    of: Vec<Vec<u32>>,
    level: Vec<u32>,
    next: Vec<u32>,
}

/// The cut between the hosts of the first half and the others: `nics` are (in the first half, switch, rate), `cables`
/// directed links between switches.
pub(super) fn between_halves(
    switches: u32,
    nics: impl Iterator<Item = (bool, u32, BitRate)>,
    cables: impl Iterator<Item = (u32, u32, BitRate)>,
) -> BitRate {
    let (source, sink) = (switches, switches + 1);
    let nodes = switches as usize + 2;
    let mut network =
        Network { arcs: Vec::new(), of: vec![Vec::new(); nodes], level: Vec::new(), next: vec![0; nodes] };
    // The cables of one half at a switch are one arc.
    let mut ends = vec![[0u128; 2]; switches as usize];
    nics.for_each(|(first, switch, rate)| {
        ends[switch as usize][usize::from(!first)] += u128::from(rate.bps());
    });
    for (switch, [first, second]) in ends.into_iter().enumerate() {
        network.join(source, switch as u32, first);
        network.join(switch as u32, sink, second);
    }
    cables.for_each(|(from, to, rate)| network.join(from, to, u128::from(rate.bps())));
    BitRate::from_bps(u64::try_from(network.flow(source, sink)).unwrap_or(u64::MAX))
}

impl Network {
    fn join(&mut self, from: u32, to: u32, rate: u128) {
        if rate == 0 {
            return;
        }
        for (at, to, left) in [(from, to, rate), (to, from, 0)] {
            self.of[at as usize].push(self.arcs.len() as u32);
            self.arcs.push(Arc { to, left });
        }
    }

    fn flow(&mut self, source: u32, sink: u32) -> u128 {
        let mut flow = 0;
        while self.levels(source, sink) {
            self.next.fill(0);
            loop {
                let more = self.push(source, sink);
                if more == 0 {
                    break;
                }
                flow += more;
            }
        }
        flow
    }

    /// Hops from the source over arcs with something left; whether the sink is reached.
    fn levels(&mut self, source: u32, sink: u32) -> bool {
        self.level = vec![u32::MAX; self.of.len()];
        self.level[source as usize] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(at) = queue.pop_front() {
            for &arc in &self.of[at as usize] {
                let Arc { to, left } = self.arcs[arc as usize];
                if left > 0 && self.level[to as usize] == u32::MAX {
                    self.level[to as usize] = self.level[at as usize] + 1;
                    queue.push_back(to);
                }
            }
        }
        self.level[sink as usize] != u32::MAX
    }

    /// Sends what it can along one path of rising levels.
    fn push(&mut self, source: u32, sink: u32) -> u128 {
        let mut path: Vec<u32> = Vec::new();
        let mut at = source;
        while at != sink {
            let position = self.next[at as usize] as usize;
            if let Some(&arc) = self.of[at as usize].get(position) {
                let Arc { to, left } = self.arcs[arc as usize];
                if left > 0 && self.level[to as usize] == self.level[at as usize] + 1 {
                    path.push(arc);
                    at = to;
                } else {
                    self.next[at as usize] += 1;
                }
                continue;
            }
            // A dead end: back, and never here again.
            let Some(arc) = path.pop() else { return 0 };
            at = self.arcs[arc as usize ^ 1].to;
            self.next[at as usize] += 1;
        }
        let least = path.iter().map(|&arc| self.arcs[arc as usize].left).min().unwrap_or(0);
        for arc in path {
            self.arcs[arc as usize].left -= least;
            self.arcs[arc as usize ^ 1].left += least;
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bottleneck_is_found_wherever_it_is() {
        let rate = |gbps: u64| BitRate::from_gbps(gbps);
        let cut = |nic: u64, cable: u64| {
            let nics =
                [(true, 0, rate(nic)), (true, 0, rate(nic)), (false, 2, rate(nic)), (false, 2, rate(nic))];
            // Two ways from switch 0 to switch 2, one by way of switch 1.
            let pairs = [(0, 2), (0, 1), (1, 2)];
            let cables = pairs.into_iter().flat_map(|(a, b)| [(a, b, rate(cable)), (b, a, rate(cable))]);
            between_halves(3, nics.into_iter(), cables)
        };
        assert_eq!(cut(100, 60), rate(120));
        assert_eq!(cut(100, 400), rate(200));
        // Both halves at one switch need no cable.
        assert_eq!(
            between_halves(1, [(true, 0, rate(5)), (false, 0, rate(3))].into_iter(), [].into_iter()),
            rate(3)
        );
    }
}
