//! All equally good paths between two NICs at once, as the switches on them.

use rustc_hash::FxHashMap;

use crate::faults::{Forwarder, Reach};
use crate::port::{Itinerary, Peer, PortSet, SwitchId};

/// A switch on the way, and its equal-cost ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Stop {
    /// Which.
    pub switch: SwitchId,
    /// How well it can forward.
    pub reach: Reach,
    /// Hops between switches that are left from here, on the longest of the paths.
    pub hops: u32,
    /// Paths from here on; exact up to 2^53.
    pub paths: f64,
    /// Part of all packets that passes here, if every switch splits by weight.
    pub share: f64,
    /// Its equal-cost ports: port, weight, and the stop it leads to (`None`: the NIC).
    pub ports: Vec<(u32, u64, Option<usize>)>,
}

/// The equally good paths between two NICs in a plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Paths {
    /// The worst of the stops'.
    pub reach: Reach,
    /// In an order in which every switch comes after all that lead to it; the first is the sender's.
    pub stops: Vec<Stop>,
}

/// A switch whose ports are being followed: port, weight and next switch of each, and how many are done.
type Open = (SwitchId, Reach, Vec<(u32, u64, Option<SwitchId>)>, usize);

impl Paths {
    /// All paths that packets from NIC `from` to NIC `to` may take in `plane`, those on purpose longer than the shortest
    /// (by way of a waypoint) not among them.
    ///
    /// # Panics
    /// If next hops form a loop, which they never do.
    pub fn between(forwarder: &mut Forwarder, from: u32, to: u32, plane: u32) -> Self {
        let topology = forwarder.topology().clone();
        let target = topology.target(to, plane);
        let first = topology.attachment(from, plane).0;
        // Depth first: a switch is numbered once all behind it are, so the reverse of the numbers is an order from the
        // sender on.
        let mut done: FxHashMap<SwitchId, Option<usize>> = FxHashMap::default();
        let mut stops: Vec<Stop> = Vec::new();
        let mut stack: Vec<Open> = Vec::new();
        let mut ports = PortSet::new();
        let mut open = |forwarder: &mut Forwarder, at: SwitchId| {
            let (reach, _) = forwarder.equal_cost(at, &target, Itinerary::DIRECT, &mut ports);
            if !reach.forwards() {
                return (at, reach, Vec::new(), 0);
            }
            let sums = forwarder.weights();
            let weight = |index: usize| match sums.get(index) {
                Some(sum) => sum - if index == 0 { 0 } else { sums[index - 1] },
                None => 1,
            };
            let next = |port| match topology.peer(at, port) {
                Some(Peer::Switch { switch, .. }) => Some(switch),
                _ => None,
            };
            let weighted = sums.len() == ports.len() as usize;
            let of = |(index, port)| (port, if weighted { weight(index) } else { 1 }, next(port));
            (at, reach, ports.iter().enumerate().map(of).collect(), 0)
        };
        done.insert(first, None);
        stack.push(open(forwarder, first));
        while let Some((at, reach, links, visited)) = stack.last_mut() {
            if let Some(&(_, _, next)) = links.get(*visited) {
                *visited += 1;
                let Some(next) = next else { continue };
                match done.get(&next) {
                    None => {
                        done.insert(next, None);
                        let entry = open(forwarder, next);
                        stack.push(entry);
                    }
                    Some(Some(_)) => {}
                    Some(None) => panic!("next hops of a pair form a loop at {next:?}"),
                }
                continue;
            }
            let (mut hops, mut paths) = (0, 0.0);
            let ports: Vec<(u32, u64, Option<usize>)> = links
                .iter()
                .map(|&(port, weight, next)| {
                    let next = next.map(|next| done[&next].expect("all behind it are numbered"));
                    match next {
                        None => paths += 1.0,
                        Some(next) => {
                            paths += stops[next].paths;
                            hops = hops.max(stops[next].hops + 1);
                        }
                    }
                    (port, weight, next)
                })
                .collect();
            done.insert(*at, Some(stops.len()));
            stops.push(Stop { switch: *at, reach: *reach, hops, paths, share: 0.0, ports });
            stack.pop();
        }
        let reach = stops.iter().map(|stop| stop.reach).max().unwrap_or(Reach::Unreachable);
        stops.reverse();
        let last = stops.len() - 1;
        for (_, _, next) in stops.iter_mut().flat_map(|stop| &mut stop.ports) {
            *next = next.map(|next| last - next);
        }
        stops[0].share = 1.0;
        for index in 0..stops.len() {
            let ports = std::mem::take(&mut stops[index].ports);
            let sum: u64 = ports.iter().map(|(_, weight, _)| weight).sum();
            for &(_, weight, next) in &ports {
                if let Some(next) = next {
                    stops[next].share += stops[index].share * weight as f64 / sum as f64;
                }
            }
            stops[index].ports = ports;
        }
        Self { reach, stops }
    }

    /// How many there are; 0 where the pair cannot be joined.
    pub fn count(&self) -> f64 {
        self.stops[0].paths
    }

    /// Switches that a packet passes, on the longest of them.
    pub fn switches(&self) -> u32 {
        self.stops[0].hops + 1
    }

    /// Ports asked for, a measure of the work done.
    pub fn work(&self) -> u64 {
        self.stops.iter().map(|stop| 1 + stop.ports.len() as u64).sum()
    }
}
