//! What every shape must hold, checked against searches over the fabric as its ports show it.
//!
//! A shape's rule is given a second time, as an automaton over the hops of a path ([`Legality`]): slow, obvious and

//! written from the definition. Everything else (symmetry, dense ids, addresses, shortest sets, faults, loops) follows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use windtunnel_kernel::{EndpointId, NicId, RandomStream};
use windtunnel_topology::{
    Detour, Forwarder, Itinerary, LinkId, LoadBalancer, Node, Peer, Policy, PortSet, Reach, Route, SwitchId,
    Target, Topology, flow_hash,
};

/// The legal paths of a rule: from a state of the packet (0 where it enters) a hop leads to another state, or is not
/// legal.
pub type Legality<'a> = &'a dyn Fn(&Topology, u32, Hop) -> Option<u32>;

/// One hop between switches, on the way to `to`.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    pub at: SwitchId,
    pub next: SwitchId,
    pub to: SwitchId,
}

/// Any hop is legal: what a detour may do.
#[allow(clippy::unnecessary_wraps, reason = "the signature of a `Legality`")]
pub fn anything(_: &Topology, _: u32, _: Hop) -> Option<u32> {
    Some(0)
}

/// Switches next to `at` over cables that live, by port.
fn neighbours(topology: &Topology, dead: &BTreeSet<LinkId>, at: SwitchId) -> Vec<(u32, SwitchId)> {
    let next = |port| match topology.peer(at, port) {
        Some(Peer::Switch { switch, .. }) => {
            let link = topology.out_link(at, port).expect("a cabled port has a link");
            (!dead.contains(&link)).then_some((port, switch))
        }
        _ => None,
    };
    (0..topology.ports(at)).filter_map(next).collect()
}

/// Ports that begin a shortest legal path from `at` to `to`, and its length; by breadth-first search over pairs of
/// switch and state.
pub fn search(
    topology: &Topology,
    legal: Legality,
    dead: &BTreeSet<LinkId>,
    at: SwitchId,
    to: SwitchId,
) -> Option<(BTreeSet<u32>, u32)> {
    // The first ports of all shortest ways to a (switch, state), by level.
    let mut reached: BTreeMap<(SwitchId, u32), (u32, BTreeSet<u32>)> = BTreeMap::new();
    let mut queue = VecDeque::from([(at, 0)]);
    reached.insert((at, 0), (0, BTreeSet::new()));
    let mut best: Option<(BTreeSet<u32>, u32)> = None;
    while let Some((switch, state)) = queue.pop_front() {
        let (length, firsts) = reached[&(switch, state)].clone();
        if best.as_ref().is_some_and(|&(_, shortest)| length > shortest) {
            break;
        }
        if switch == to {
            best.get_or_insert_with(|| (BTreeSet::new(), length)).0.extend(firsts);
            continue;
        }
        for (port, next) in neighbours(topology, dead, switch) {
            let Some(state) = legal(topology, state, Hop { at: switch, next, to }) else { continue };
            let firsts = if length == 0 { BTreeSet::from([port]) } else { firsts.clone() };
            match reached.get_mut(&(next, state)) {
                None => {
                    reached.insert((next, state), (length + 1, firsts));
                    queue.push_back((next, state));
                }
                Some((known, ports)) if *known == length + 1 => ports.extend(firsts),
                Some(_) => {}
            }
        }
    }
    best
}

/// Switches that NICs hang on, one target each.
pub fn targets(topology: &Topology) -> BTreeMap<SwitchId, Target> {
    let each = |nic| (0..topology.planes()).map(move |plane| topology.target(nic, plane));
    (0..topology.nics()).flat_map(each).map(|target| (target.switch, target)).collect()
}

/// Peers are symmetric, links dense and named apart, addresses inverted.
pub fn check_wiring(topology: &Topology) {
    let mut seen = vec![false; topology.link_count()];
    let mut names = BTreeSet::new();
    for switch in (0..topology.switches()).map(SwitchId) {
        let coordinates = topology.coordinates(switch);
        assert_eq!(coordinates.len(), topology.axes().len());
        assert_eq!(topology.switch_at(&coordinates), Some(switch), "{coordinates:?}");
        for port in 0..topology.ports(switch) {
            let name = topology.node_name(Node::Switch(switch));
            let Some(peer) = topology.peer(switch, port) else {
                assert_eq!(topology.out_link(switch, port), None, "{name} port {port}");
                continue;
            };
            let link = topology.out_link(switch, port).expect("a cabled port has a link");
            assert_eq!(topology.link_source(link), Some((switch, port)), "{name} port {port}");
            assert!(
                !std::mem::replace(&mut seen[link.0 as usize], true),
                "{name} port {port}: {link:?} twice"
            );
            let reverse = topology.reverse(link);
            assert_eq!(topology.reverse(reverse), link);
            assert_eq!(topology.link(reverse).rate, topology.link(link).rate);
            let ends = topology.link_ends(link);
            assert_eq!(topology.link_ends(reverse), (ends.1, ends.0));
            match peer {
                Peer::Switch { switch: far, port: back } => {
                    assert_eq!(
                        topology.peer(far, back),
                        Some(Peer::Switch { switch, port }),
                        "{name} port {port}"
                    );
                    assert_eq!(topology.out_link(far, back), Some(reverse));
                    assert_eq!(ends, (Node::Switch(switch), Node::Switch(far)));
                }
                Peer::Nic { nic, plane } => {
                    assert_eq!(topology.attachment(nic, plane), (switch, port));
                    assert_eq!(reverse, topology.nic_link(nic, plane));
                    seen[reverse.0 as usize] = true;
                }
            }
        }
    }
    let inside = if topology.scale_up_size() > 1 { 2 * topology.endpoints() as usize } else { 0 };
    let fabric: Vec<usize> = (inside..topology.link_count()).filter(|&link| seen[link]).collect();
    for &link in &fabric {
        let name = topology.link_name(LinkId(link as u32));
        assert!(names.insert(name.clone()), "{name} twice");
    }
    for nic in 0..topology.nics() {
        assert_eq!(topology.nic_at(topology.address(nic)), Some(nic), "{:?}", topology.address(nic));
        for plane in 0..topology.planes() {
            let (switch, port) = topology.attachment(nic, plane);
            assert_eq!(topology.peer(switch, port), Some(Peer::Nic { nic, plane }));
        }
    }
}

/// Every link has a cable: the numbers of links have no gaps. For shapes that promise it; after [`check_wiring`].
pub fn check_dense(topology: &Topology) {
    let mut links = if topology.scale_up_size() > 1 { 2 * topology.endpoints() as usize } else { 0 };
    for switch in (0..topology.switches()).map(SwitchId) {
        for port in 0..topology.ports(switch) {
            // A NIC's port counts for both directions.
            links += match topology.peer(switch, port) {
                None => 0,
                Some(Peer::Switch { .. }) => 1,
                Some(Peer::Nic { .. }) => 2,
            };
        }
    }
    assert_eq!(topology.link_count(), links);
}

/// Steps between all pairs of switches over any cable, by breadth-first search; `u32::MAX` where there is no way.
pub fn distances(topology: &Topology) -> Vec<Vec<u32>> {
    let none = BTreeSet::new();
    let from = |at: u32| {
        let mut steps = vec![u32::MAX; topology.switches() as usize];
        let mut queue = VecDeque::from([SwitchId(at)]);
        steps[at as usize] = 0;
        while let Some(near) = queue.pop_front() {
            for (_, far) in neighbours(topology, &none, near) {
                if steps[far.0 as usize] == u32::MAX {
                    steps[far.0 as usize] = steps[near.0 as usize] + 1;
                    queue.push_back(far);
                }
            }
        }
        steps
    };
    (0..topology.switches()).map(from).collect()
}

/// Hops between switches of the longest of the shortest legal paths between two NICs.
pub fn longest(topology: &Topology, legal: Legality) -> u32 {
    let (ends, none) = (targets(topology), BTreeSet::new());
    let length = |from, to| search(topology, legal, &none, from, to).map_or(0, |(_, length)| length);
    ends.keys().flat_map(|&from| ends.keys().map(move |&to| length(from, to))).max().unwrap_or(0)
}

/// The least rate between two halves of the given switches (of an odd number: one more in one of them), each other
/// switch on whichever side is cheaper: over all ways to halve them. Up to 16 of them.
pub fn narrowest_cut(topology: &Topology, housed: &[SwitchId]) -> u64 {
    let side = |half: u32, switch: SwitchId| {
        housed.iter().position(|&other| other == switch).map(|place| half >> place & 1 == 1)
    };
    let cut = |half: u32| {
        let mut sum = 0;
        for switch in (0..topology.switches()).map(SwitchId) {
            let own = side(half, switch);
            let mut rates = [0, 0];
            for port in 0..topology.ports(switch) {
                let Some(Peer::Switch { switch: far, .. }) = topology.peer(switch, port) else { continue };
                let rate = topology.link(topology.out_link(switch, port).expect("cabled")).rate.bps();
                if let Some(far) = side(half, far) {
                    rates[usize::from(far)] += rate;
                }
            }
            // What leaves the half, and what would cross a switch that is in neither.
            sum += match own {
                Some(true) => rates[0],
                Some(false) => 0,
                None => rates[0].min(rates[1]),
            };
        }
        sum
    };
    let count = housed.len() as u32;
    (0..1u32 << count).filter(|half| half.count_ones() == count / 2).map(cut).min().unwrap_or(0)
}

/// How flows spread over `n` ports: every count within 5 standard deviations of the binomial's mean.
pub fn check_spread(topology: &Topology, at: SwitchId, to: &Target, n: u32) {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    let flows = 4_000u32;
    for entropy in 0..flows {
        let (port, _) = topology.next_hop(at, to, Itinerary::DIRECT, flow_hash(9, 1, 2, entropy));
        *counts.entry(port).or_default() += 1;
    }
    let (mean, p) = (f64::from(flows) / f64::from(n), 1.0 / f64::from(n));
    let deviation = (f64::from(flows) * p * (1.0 - p)).sqrt();
    assert_eq!(counts.len() as u32, n);
    for (port, count) in counts {
        assert!((f64::from(count) - mean).abs() <= 5.0 * deviation, "{count} of {mean} take port {port}");
    }
}

/// The equal-cost sets are those of the search, from every switch of the plane that a packet may be at.
pub fn check_rule(topology: &Topology, legal: Legality) {
    let mut ports = PortSet::new();
    let none = BTreeSet::new();
    for (&to, target) in &targets(topology) {
        for at in (0..topology.switches()).map(SwitchId) {
            let expected = search(topology, legal, &none, at, to);
            if at == to {
                topology.equal_cost(at, target, Itinerary::DIRECT, &mut ports);
                assert_eq!(ports.iter().collect::<Vec<_>>(), [target.port]);
                continue;
            }
            // Another plane's switch.
            let Some((expected, _)) = expected else { continue };
            topology.equal_cost(at, target, Itinerary::DIRECT, &mut ports);
            let found: BTreeSet<u32> = ports.iter().collect();
            let name = |switch| topology.node_name(Node::Switch(switch));
            assert_eq!(found, expected, "{} towards {}", name(at), name(to));
            assert!(found.iter().copied().eq(ports.iter()), "in ascending order, no port twice: {ports:?}");
            let hash = flow_hash(1, u64::from(at.0), u64::from(target.nic), 0);
            let (port, _) = topology.next_hop(at, target, Itinerary::DIRECT, hash);
            assert!(expected.contains(&port));
        }
    }
}

/// Every route arrives without meeting a switch twice on a leg, its links join, and its latency is their sum.
pub fn check_routes(topology: &Topology, pairs: u64) {
    let mut draws = RandomStream::new(3, "pairs", 0);
    let mut route = Route::new();
    for entropy in 0..pairs as u32 {
        let mut draw = || EndpointId(draws.below(u64::from(topology.endpoints())) as u32);
        let (from, to) = (draw(), draw());
        for balancer in [LoadBalancer::Ecmp, LoadBalancer::DestinationModulo] {
            topology.route(balancer, 7, from, to, NicId(0), entropy, &mut route);
            if route.links.is_empty() {
                assert_eq!(from, to);
                continue;
            }
            let links: Vec<LinkId> = route.links.iter().map(|&(link, _)| link).collect();
            for pair in links.windows(2) {
                assert_eq!(topology.link_ends(pair[0]).1, topology.link_ends(pair[1]).0);
            }
            let latency = links.iter().map(|&link| topology.link(link).latency).sum();
            assert_eq!(route.latency, latency);
        }
        // A fluid: what enters leaves, at every switch.
        topology.route(LoadBalancer::Spray, 7, from, to, NicId(0), entropy, &mut route);
        conserved(topology, &route);
    }
}

/// Shares in equal shares out at every switch of a sprayed route, and 1 arrives.
pub fn conserved(topology: &Topology, route: &Route) {
    let mut balance: BTreeMap<Node, f64> = BTreeMap::new();
    let mut arrived = 0.0;
    for &(link, share) in &route.links {
        let (from, to) = topology.link_ends(link);
        *balance.entry(from).or_default() -= share;
        *balance.entry(to).or_default() += share;
        if matches!(to, Node::Nic(_) | Node::Gpu(_)) {
            arrived += share;
        }
    }
    if !route.links.is_empty() {
        assert!((arrived - 1.0).abs() < 1e-9, "{arrived} arrives");
    }
    for (node, rest) in balance {
        let end = matches!(node, Node::Nic(_) | Node::Gpu(_));
        assert!(end || rest.abs() < 1e-9, "{} keeps {rest}", topology.node_name(node));
    }
}

/// Fails each cable between switches with the given chance, and some switches that no NIC hangs on; returns the dead
/// links.
pub fn break_some(forwarder: &mut Forwarder, draws: &mut RandomStream, percent: u64) -> BTreeSet<LinkId> {
    let topology = Arc::clone(forwarder.topology());
    let mut dead = BTreeSet::new();
    let housed: BTreeSet<SwitchId> = targets(&topology).into_keys().collect();
    for switch in (0..topology.switches()).map(SwitchId) {
        let all = draws.below(400) < percent && !housed.contains(&switch);
        if all {
            forwarder.fail_switch(switch);
        }
        for port in 0..topology.ports(switch) {
            let Some(Peer::Switch { .. }) = topology.peer(switch, port) else { continue };
            let link = topology.out_link(switch, port).expect("cabled");
            let one = link < topology.reverse(link) && draws.below(100) < percent;
            if one {
                forwarder.fail_cable(link);
            }
            if one || all {
                dead.extend([link, topology.reverse(link)]);
            }
        }
    }
    dead
}

/// Links between switches are dead where their cable failed or a switch at either end did, and nowhere else: also those out
/// of a switch that failed, on which nothing is sent any more.
fn check_dead(forwarder: &Forwarder, dead: &BTreeSet<LinkId>) {
    let topology = forwarder.topology();
    for switch in (0..topology.switches()).map(SwitchId) {
        for port in 0..topology.ports(switch) {
            let Some(Peer::Switch { .. }) = topology.peer(switch, port) else { continue };
            let link = topology.out_link(switch, port).expect("cabled");
            assert_eq!(forwarder.is_dead(link), dead.contains(&link), "{}", topology.link_name(link));
        }
    }
}

/// A packet is sent by a waypoint only if a legal path leads on from it, and to the same one as in a whole fabric.
fn check_waypoints(forwarder: &mut Forwarder, legal: Legality, dead: &BTreeSet<LinkId>, seed: u64) {
    let topology = Arc::clone(forwarder.topology());
    let targets = targets(&topology);
    for (&from, start) in &targets {
        for (&to, target) in targets.iter().filter(|(_, target)| target.plane == start.plane) {
            for entropy in 0..4 {
                let hash = flow_hash(seed, u64::from(start.nic), u64::from(target.nic), entropy);
                let whole = topology.enter(from, target, hash, |_| 0);
                let found = forwarder.enter(from, target, hash, |_| 0);
                let leads = |waypoint| search(&topology, legal, dead, waypoint, to).is_some();
                let expected = match whole.waypoint() {
                    Some(waypoint) if !leads(waypoint) => Itinerary::DIRECT,
                    _ => whole,
                };
                let name = |switch| topology.node_name(Node::Switch(switch));
                assert_eq!(found, expected, "{} to {} without {dead:?}", name(from), name(to));
            }
        }
    }
}

/// After random faults: converged, the sets equal those of the search wherever a legal path is left; where none is, a
/// detour leads there if any path does, and is refused if forbidden. With local repair packets arrive or are lost, and
/// never loop. What recovers is as before.
pub fn check_faults(topology: &Arc<Topology>, legal: Legality, seed: u64, percent: u64) {
    let mut draws = RandomStream::new(seed, "faults", 0);
    for (detour, weighted) in [(Detour::Allow, false), (Detour::Forbid, true)] {
        let mut forwarder = Forwarder::new(Arc::clone(topology), Policy { detour, weighted });
        let dead = break_some(&mut forwarder, &mut draws, percent);
        check_loops(&mut forwarder, seed, true);
        forwarder.converge();
        check_loops(&mut forwarder, seed + 1, false);
        check_dead(&forwarder, &dead);
        check_waypoints(&mut forwarder, legal, &dead, seed);
        let mut ports = PortSet::new();
        for (&to, target) in &targets(topology) {
            for at in (0..topology.switches()).map(SwitchId).filter(|&at| at != to) {
                // A packet is never at a failed switch, nor in another plane.
                let other_plane = search(topology, &anything, &BTreeSet::new(), at, to).is_none();
                if other_plane || forwarder.failed_switches().any(|failed| failed == at) {
                    continue;
                }
                let name = |switch| topology.node_name(Node::Switch(switch));
                let what = || format!("{} towards {} without {dead:?}", name(at), name(to));
                let (reach, _) = forwarder.equal_cost(at, target, Itinerary::DIRECT, &mut ports);
                let found: BTreeSet<u32> = ports.iter().collect();
                match search(topology, legal, &dead, at, to) {
                    Some((expected, _)) => {
                        assert_eq!((reach, found), (Reach::Legal, expected), "{}", what());
                        let weights = forwarder.weights();
                        assert!(weights.is_empty() || weights.len() == ports.len() as usize);
                        assert!(weights.first().is_none_or(|&first| first > 0));
                        assert!(weights.windows(2).all(|pair| pair[0] < pair[1]), "{weights:?}");
                    }
                    None => {
                        let joined = search(topology, &anything, &dead, at, to).is_some();
                        let expected = match detour {
                            Detour::Allow if joined => Reach::Detour,
                            _ => Reach::Unreachable,
                        };
                        assert_eq!(reach, expected, "{}", what());
                    }
                }
            }
        }
        // All works again.
        let failed: Vec<_> = forwarder.failed_switches().collect();
        for switch in failed {
            forwarder.recover_switch(switch);
        }
        let failed: Vec<_> = forwarder.failed_cables().collect();
        for cable in failed {
            forwarder.recover_cable(cable);
        }
        forwarder.converge();
        assert!(forwarder.is_whole());
    }
}

/// Follows packets hop by hop from every NIC's switch to every other.
fn check_loops(forwarder: &mut Forwarder, entropy: u64, local: bool) {
    let topology = Arc::clone(forwarder.topology());
    let targets = targets(&topology);
    for (&from, start) in &targets {
        for (&to, target) in &targets {
            if start.plane != target.plane {
                continue;
            }
            let hash = flow_hash(5, u64::from(start.nic), u64::from(target.nic), entropy as u32);
            let mut itinerary = topology.enter(from, target, hash, |_| 0);
            let (mut at, mut seen) = (from, BTreeSet::new());
            while at != to || itinerary.waypoint().is_some_and(|waypoint| waypoint != at) {
                // A waypoint begins a new leg.
                assert!(seen.insert((at, itinerary)), "{} comes back", topology.node_name(Node::Switch(at)));
                match forwarder.next_hop(at, target, itinerary, hash) {
                    Ok(hop) => {
                        itinerary = hop.itinerary;
                        if at == to && itinerary == Itinerary::DIRECT {
                            // Its waypoint can no longer be reached: it has arrived.
                            break;
                        }
                        let link = topology.out_link(at, hop.port).expect("a next hop has a cable");
                        assert!(!forwarder.is_dead(link), "{} is dead", topology.link_name(link));
                        let Some(Peer::Switch { switch, .. }) = topology.peer(at, hop.port) else {
                            panic!("a next hop leads to a switch");
                        };
                        at = switch;
                    }
                    Err(reach) => {
                        assert!(local || reach == Reach::Unreachable, "{reach:?}");
                        break;
                    }
                }
            }
        }
    }
}
