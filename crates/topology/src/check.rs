//! Proofs by looking: wiring, numbers and addresses of a topology, and the routes that its rule gives, against a
//! breadth-first search over its legal hops.
//!
//! Everything is asked through the public functions; the search shares no code with the rules, nor with the fields that
//! faults are routed by. Up to the [`Limits`] everything is looked at, beyond them a seeded sample; the report says which.

use std::collections::VecDeque;
use std::sync::Arc;

use windtunnel_kernel::RandomStream;

use crate::any_shape::each;
use crate::faults::{Detour, Forwarder, Reach};
use crate::link::{LinkId, Node};
use crate::port::{Itinerary, Peer, PortSet, SwitchId};
use crate::shape::Shape;
use crate::topology::Topology;

/// Failures that a report names.
const NAMED: usize = 8;

/// How much is looked at before samples are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ports, links and addresses.
    pub parts: u64,
    /// Pairs of switches with NICs.
    pub pairs: u64,
    /// Ports that searches may look at, which bounds the destinations of a sample.
    pub work: u64,
    /// Of the samples.
    pub seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { parts: 1 << 22, pairs: 10_000, work: 1 << 28, seed: 1 }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// `wiring`, `links`, `addresses`, `loop-free`, `shortest`, `waypoints`.
    pub name: &'static str,
    /// Whether all was compared.
    pub exhaustive: bool,
    /// How much was compared.
    pub compared: u64,
    /// What was compared.
    pub what: &'static str,
    /// How many of them failed.
    pub failed: u64,
    /// The first failures, as sentences.
    pub failures: Vec<String>,
}

impl Report {
    const fn new(name: &'static str, what: &'static str, exhaustive: bool) -> Self {
        Self { name, exhaustive, compared: 0, what, failed: 0, failures: Vec::new() }
    }

    /// Whether nothing failed.
    pub const fn ok(&self) -> bool {
        self.failed == 0
    }

    fn compare(&mut self, holds: bool, failure: impl FnOnce() -> String) {
        self.compared += 1;
        if !holds {
            self.failed += 1;
            if self.failures.len() < NAMED {
                self.failures.push(failure());
            }
        }
    }
}

/// What becomes of the pairs of switches with NICs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    /// All that were looked at.
    pub compared: u64,
    /// Joined by a legal path.
    pub legal: u64,
    /// Joined by a detour only.
    pub detour: u64,
    /// Not joined.
    pub unreachable: u64,
    /// Lost until the fabric converges.
    pub blackhole: u64,
    /// The first that only a detour joins.
    pub detoured: Vec<(SwitchId, SwitchId)>,
    /// The first that nothing joins.
    pub cut_off: Vec<(SwitchId, SwitchId)>,
}

/// All checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// In the order in which they were made.
    pub reports: Vec<Report>,
    /// See there.
    pub pairs: Pairs,
}

impl Check {
    /// Whether nothing failed.
    pub fn ok(&self) -> bool {
        self.reports.iter().all(Report::ok)
    }
}

/// Checks a topology, and its routes with the faults of `forwarder`. With local repair ([`Forwarder::converge`] not
/// called) routes are checked for loops only.
pub fn check(forwarder: &mut Forwarder, limits: &Limits) -> Check {
    let topology = Arc::clone(forwarder.topology());
    let mut reports = vec![wiring(&topology, limits), links(&topology, limits), addresses(&topology, limits)];
    let (routes, pairs) = routes(forwarder, limits);
    reports.extend(routes);
    Check { reports, pairs }
}

/// All of `0..count` if they are at most `limit`, else as many draws; and whether it is all.
fn some(count: u64, limit: u64, seed: u64, name: &'static str) -> (Box<dyn Iterator<Item = u64>>, bool) {
    if count <= limit {
        return (Box::new(0..count), true);
    }
    let mut draws = RandomStream::new(seed, name, 0);
    (Box::new((0..limit).map(move |_| draws.below(count))), false)
}

fn name(topology: &Topology, switch: SwitchId) -> String {
    topology.node_name(Node::Switch(switch))
}

/// Ports of all switches if they are at most `limit`, else of drawn ones.
fn wiring(topology: &Topology, limits: &Limits) -> Report {
    let switches = u64::from(topology.switches());
    let all: u64 = if switches <= limits.parts {
        (0..topology.switches()).map(|switch| u64::from(topology.ports(SwitchId(switch)))).sum()
    } else {
        u64::MAX
    };
    let exhaustive = all <= limits.parts;
    let what = "ports: the far port's far port is the port itself, over a cable that is the same both ways";
    let mut report = Report::new("wiring", what, exhaustive);
    let mut look = |switch: SwitchId, port: u32| {
        let Some(peer) = topology.peer(switch, port) else { return };
        let back = match peer {
            Peer::Switch { switch: far, port } => match topology.peer(far, port) {
                Some(Peer::Switch { switch, port }) => Some((switch, port)),
                _ => None,
            },
            Peer::Nic { nic, plane } => Some(topology.attachment(nic, plane)),
        };
        let alike = topology.out_link(switch, port).is_some_and(|link| {
            let (there, back) = (topology.link(link), topology.link(topology.reverse(link)));
            there.rate == back.rate && there.propagation == back.propagation && there.loss == back.loss
        });
        report.compare(back == Some((switch, port)) && alike, || {
            format!(
                "port {port} of `{}` leads to {peer:?}, which leads back to {back:?}",
                name(topology, switch)
            )
        });
    };
    if exhaustive {
        for switch in (0..topology.switches()).map(SwitchId) {
            (0..topology.ports(switch)).for_each(|port| look(switch, port));
        }
    } else {
        let mut draws = RandomStream::new(limits.seed, "check wiring", 0);
        for _ in 0..limits.parts {
            let switch = SwitchId(draws.below(switches) as u32);
            let ports = u64::from(topology.ports(switch));
            if ports > 0 {
                look(switch, draws.below(ports) as u32);
            }
        }
    }
    report
}

fn links(topology: &Topology, limits: &Limits) -> Report {
    let (links, exhaustive) = some(topology.link_count() as u64, limits.parts, limits.seed, "check links");
    let what = "links: the port they leave has their number, and their reverse swaps their ends";
    let mut report = Report::new("links", what, exhaustive);
    for link in links.map(|link| LinkId(link as u32)) {
        let back = topology.reverse(link);
        let (from, to) = topology.link_ends(link);
        let swapped =
            topology.reverse(back) == link && topology.link_ends(back) == (to, from) && back != link;
        let source = topology.link_source(link);
        let numbered = source.is_none_or(|(switch, port)| topology.out_link(switch, port) == Some(link));
        report.compare(swapped && numbered, || {
            format!("`{}` ({link:?}) leaves {source:?}, its reverse is {back:?}", topology.link_name(link))
        });
    }
    report
}

fn addresses(topology: &Topology, limits: &Limits) -> Report {
    let (nics, all_nics) = some(u64::from(topology.nics()), limits.parts, limits.seed, "check NICs");
    let (switches, all_switches) =
        some(u64::from(topology.switches()), limits.parts, limits.seed, "check switches");
    let what = "NICs and switches: found again by their address";
    let mut report = Report::new("addresses", what, all_nics && all_switches);
    for nic in nics.map(|nic| nic as u32) {
        let address = topology.address(nic);
        let found = topology.nic_at(address);
        report.compare(found == Some(nic), || {
            format!("`{}` has {address:?}, where there is NIC {found:?}", topology.node_name(Node::Nic(nic)))
        });
    }
    for switch in switches.map(|switch| SwitchId(switch as u32)) {
        let coordinates = topology.coordinates(switch);
        let found = topology.switch_at(&coordinates);
        report.compare(found == Some(switch), || {
            format!("`{}` has {coordinates:?}, where there is {found:?}", name(topology, switch))
        });
    }
    report
}

/// A destination with the sources that are looked at, in the order in which they were drawn.
struct Batch {
    plane: u32,
    to: SwitchId,
    /// A NIC that hangs on it.
    nic: u32,
    from: Vec<SwitchId>,
}

/// Switches with NICs by plane, each with the first of its NICs.
fn attached(topology: &Topology) -> Vec<Vec<(SwitchId, u32)>> {
    let mut seen = vec![false; topology.switches() as usize];
    let mut of_plane = |plane| {
        let mut found = Vec::new();
        for nic in 0..topology.nics() {
            let switch = topology.attachment(nic, plane).0;
            if !std::mem::replace(&mut seen[switch.0 as usize], true) {
                found.push((switch, nic));
            }
        }
        found
    };
    (0..topology.planes()).map(&mut of_plane).collect()
}

/// All pairs, or drawn ones: as many destinations as there is work for, and equally many sources of each.
fn batches(topology: &Topology, limits: &Limits) -> (Vec<Batch>, bool) {
    let planes = attached(topology);
    let all: u64 = planes.iter().map(|of| of.len() as u64 * (of.len() as u64).saturating_sub(1)).sum();
    if all <= limits.pairs {
        let every = |(plane, of): (u32, &Vec<(SwitchId, u32)>)| -> Vec<Batch> {
            let batch = |&(to, nic): &(SwitchId, u32)| Batch {
                plane,
                to,
                nic,
                from: of.iter().map(|pair| pair.0).filter(|&from| from != to).collect(),
            };
            of.iter().map(batch).collect()
        };
        return ((0..).zip(&planes).flat_map(every).collect(), true);
    }
    let ports: u64 = (0..topology.switches()).map(|switch| u64::from(topology.ports(SwitchId(switch)))).sum();
    let destinations = (limits.work / ports.max(1)).clamp(1, limits.pairs.max(1));
    let sources = limits.pairs.div_ceil(destinations);
    let mut draws = RandomStream::new(limits.seed, "check pairs", 0);
    let mut batch = |_| {
        let plane = draws.below(u64::from(topology.planes())) as u32;
        let of = &planes[plane as usize];
        let (to, nic) = of[draws.below(of.len() as u64) as usize];
        let draw = |_| of[draws.below(of.len() as u64) as usize].0;
        let from: Vec<SwitchId> = (0..sources).map(draw).filter(|&from| from != to).collect();
        Batch { plane, to, nic, from }
    };
    ((0..destinations).map(&mut batch).collect(), false)
}

/// What the search found for a destination.
struct Search {
    /// Legal hops that are left, by switch; `u32::MAX` without a legal path.
    legal: Vec<u32>,
    /// Whether living cables of any kind lead there.
    joined: Vec<bool>,
}

/// Searches from the destination over the cables that live: first over hops that are legal in the direction of travel,
/// then over any.
fn search(forwarder: &Forwarder, to: SwitchId) -> Search {
    let topology = forwarder.topology();
    let switches = topology.switches() as usize;
    let whole = forwarder.failed_cables().next().is_none() && forwarder.failed_switches().next().is_none();
    let neighbours = |at: SwitchId| {
        (0..topology.ports(at)).filter_map(move |port| match topology.peer(at, port) {
            Some(Peer::Switch { switch, port: back }) => {
                let link = topology.out_link(switch, back)?;
                (whole || !forwarder.is_dead(link)).then_some((switch, back))
            }
            _ => None,
        })
    };
    let mut legal = vec![u32::MAX; switches];
    let mut queue = VecDeque::from([to]);
    let failed = forwarder.failed_switches().any(|switch| switch == to);
    if failed {
        return Search { joined: vec![false; switches], legal };
    }
    legal[to.0 as usize] = 0;
    while let Some(at) = queue.pop_front() {
        for (before, port) in neighbours(at) {
            let unseen = legal[before.0 as usize] == u32::MAX;
            if unseen && each!(&topology.shape, shape => shape.may_follow(before.0, port, to.0)) {
                legal[before.0 as usize] = legal[at.0 as usize] + 1;
                queue.push_back(before);
            }
        }
    }
    if whole {
        return Search { joined: legal.iter().map(|&hops| hops != u32::MAX).collect(), legal };
    }
    let mut joined = vec![false; switches];
    joined[to.0 as usize] = true;
    queue.push_back(to);
    while let Some(at) = queue.pop_front() {
        for (before, _) in neighbours(at) {
            if !std::mem::replace(&mut joined[before.0 as usize], true) {
                queue.push_back(before);
            }
        }
    }
    Search { legal, joined }
}

/// Ports of `at` that begin a shortest legal path, by the search.
fn expected(forwarder: &Forwarder, found: &Search, at: SwitchId, to: SwitchId) -> Vec<u32> {
    let topology = forwarder.topology();
    let hops = found.legal[at.0 as usize];
    let begins = |&port: &u32| match topology.peer(at, port) {
        Some(Peer::Switch { switch, .. }) => {
            let living = topology.out_link(at, port).is_some_and(|link| !forwarder.is_dead(link));
            let nearer = found.legal[switch.0 as usize].saturating_add(1) == hops;
            living && nearer && each!(&topology.shape, shape => shape.may_follow(at.0, port, to.0))
        }
        _ => false,
    };
    (0..topology.ports(at)).filter(begins).collect()
}

fn routes(forwarder: &mut Forwarder, limits: &Limits) -> (Vec<Report>, Pairs) {
    let topology = Arc::clone(forwarder.topology());
    let (batches, exhaustive) = batches(&topology, limits);
    let mut loops = Report::new(
        "loop-free",
        "pairs of switches with NICs: equal-cost ports followed to the end meet no switch twice",
        exhaustive,
    );
    let mut shortest = Report::new(
        "shortest",
        "switches on the way: equal-cost ports against a breadth-first search over legal hops",
        exhaustive,
    );
    let mut waypoints =
        Report::new("waypoints", "pairs that go by a waypoint: each leg ends where it should", exhaustive);
    let mut pairs = Pairs::default();
    let unmet = Met { number: 0, done: false, worst: Reach::Legal };
    let mut met = vec![unmet; topology.switches() as usize];
    for (number, batch) in (1u32..).zip(&batches) {
        let found = search(forwarder, batch.to);
        let target = topology.target(batch.nic, batch.plane);
        for &from in &batch.from {
            let mut looks = Looks { number, met: &mut met, found: &found, shortest: &mut shortest };
            let (reach, looped) = looks.follow(forwarder, from, &target);
            loops.compare(looped.is_none(), || {
                let (from, to) = (name(&topology, from), name(&topology, batch.to));
                format!("a packet from `{from}` to `{to}` comes back to `{}`", looped.unwrap_or_default())
            });
            pairs.compared += 1;
            let pair = (from, batch.to);
            let list = match reach {
                Reach::Legal => {
                    pairs.legal += 1;
                    None
                }
                Reach::Detour => {
                    pairs.detour += 1;
                    Some(&mut pairs.detoured)
                }
                Reach::Blackhole => {
                    pairs.blackhole += 1;
                    Some(&mut pairs.cut_off)
                }
                Reach::Unreachable => {
                    pairs.unreachable += 1;
                    Some(&mut pairs.cut_off)
                }
            };
            if let Some(list) = list.filter(|list| list.len() < NAMED) {
                list.push(pair);
            }
            if reach.forwards() {
                by_waypoint(forwarder, from, &target, pairs.compared, &mut waypoints);
            }
        }
    }
    let mut reports = vec![loops, shortest];
    if waypoints.compared > 0 {
        reports.push(waypoints);
    }
    (reports, pairs)
}

/// A switch on the way to a destination.
#[derive(Clone, Copy)]
struct Met {
    /// The destination for which it was met, from 1.
    number: u32,
    /// Whether all behind it is followed.
    done: bool,
    /// Of it and all behind it.
    worst: Reach,
}

/// What following routes to one destination looks at.
struct Looks<'a> {
    number: u32,
    met: &'a mut [Met],
    found: &'a Search,
    shortest: &'a mut Report,
}

impl Looks<'_> {
    /// Follows all equal-cost ports from a switch to the destination, those already followed for it not again. Returns
    /// the worst that may happen to a packet, and the name of a switch that is met again.
    fn follow(
        &mut self,
        forwarder: &mut Forwarder,
        from: SwitchId,
        target: &crate::Target,
    ) -> (Reach, Option<String>) {
        let topology = Arc::clone(forwarder.topology());
        let mut ports = PortSet::new();
        let mut looped = None;
        // Switches on the way with those still to be followed from them.
        let mut stack: Vec<(SwitchId, Vec<SwitchId>)> = Vec::new();
        let mut next = Some(from);
        loop {
            if let Some(at) = next.take() {
                let known = self.met[at.0 as usize];
                if known.number == self.number {
                    // On the stack, or followed before.
                    if !known.done {
                        looped = Some(name(&topology, at));
                    }
                    self.blame(&stack, known.worst);
                } else {
                    let (reach, _) = forwarder.equal_cost(at, target, Itinerary::DIRECT, &mut ports);
                    let arrived = at == target.switch;
                    if !arrived {
                        self.compare(forwarder, at, target.switch, reach, &ports);
                    }
                    let peers = ports.iter().filter_map(|port| match topology.peer(at, port) {
                        Some(Peer::Switch { switch, .. }) => Some(switch),
                        _ => None,
                    });
                    let on = if reach.forwards() && !arrived { peers.collect() } else { Vec::new() };
                    self.met[at.0 as usize] = Met { number: self.number, done: false, worst: reach };
                    stack.push((at, on));
                }
            }
            let Some((at, on)) = stack.last_mut() else { break };
            next = on.pop();
            if next.is_none() {
                let state = &mut self.met[at.0 as usize];
                state.done = true;
                let worst = state.worst;
                stack.pop();
                self.blame(&stack, worst);
            }
        }
        (self.met[from.0 as usize].worst, looped)
    }

    /// What may happen behind a switch may happen to a packet there.
    fn blame(&mut self, stack: &[(SwitchId, Vec<SwitchId>)], worst: Reach) {
        if let Some((at, _)) = stack.last() {
            let state = &mut self.met[at.0 as usize].worst;
            *state = worst.max(*state);
        }
    }

    /// The ports of one switch against the search. With local repair there is nothing to compare with.
    fn compare(&mut self, forwarder: &Forwarder, at: SwitchId, to: SwitchId, reach: Reach, ports: &PortSet) {
        if !forwarder.is_converged() {
            return;
        }
        let topology = forwarder.topology();
        let legal = self.found.legal[at.0 as usize] != u32::MAX;
        let detour = forwarder.policy().detour == Detour::Allow && self.found.joined[at.0 as usize];
        let due = match (legal, detour) {
            (true, _) => Reach::Legal,
            (false, true) => Reach::Detour,
            (false, false) => Reach::Unreachable,
        };
        let mut given: Vec<u32> = ports.iter().collect();
        given.sort_unstable();
        let expected = if legal { expected(forwarder, self.found, at, to) } else { given.clone() };
        let living = !reach.forwards()
            || given
                .iter()
                .all(|&port| topology.out_link(at, port).is_some_and(|link| !forwarder.is_dead(link)));
        let holds = reach == due && (!reach.forwards() || (given == expected && living));
        self.shortest.compare(holds, || {
            let (at, to) = (name(topology, at), name(topology, to));
            let (found, due) = (reach.name(), due.name());
            format!("`{at}` to `{to}`: {found} by ports {given:?}, the search finds {due} by {expected:?}")
        });
    }
}

/// A packet that takes a waypoint arrives there and then at its destination.
fn by_waypoint(
    forwarder: &mut Forwarder,
    from: SwitchId,
    target: &crate::Target,
    entropy: u64,
    report: &mut Report,
) {
    let topology = Arc::clone(forwarder.topology());
    let hash = crate::flow_hash(1, u64::from(from.0), u64::from(target.nic), entropy as u32);
    let mut itinerary = forwarder.enter(from, target, hash, |_| 0);
    let Some(waypoint) = itinerary.waypoint() else { return };
    let (mut at, mut left) = (from, 2 * topology.switches());
    let arrived = loop {
        if at == target.switch && itinerary.waypoint().is_none_or(|waypoint| waypoint == at) {
            break true;
        }
        let Some(fewer) = left.checked_sub(1) else { break false };
        left = fewer;
        let Ok(hop) = forwarder.next_hop(at, target, itinerary, hash) else { break false };
        itinerary = hop.itinerary;
        match topology.peer(at, hop.port) {
            Some(Peer::Switch { switch, .. }) => at = switch,
            _ => break false,
        }
    };
    report.compare(arrived || !forwarder.is_converged(), || {
        let names = [from, waypoint, target.switch, at].map(|switch| name(&topology, switch));
        let [from, waypoint, to, at] = names;
        format!("a packet from `{from}` to `{to}` by way of `{waypoint}` ends at `{at}`")
    });
}
