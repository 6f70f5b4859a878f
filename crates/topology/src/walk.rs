//! Routes of shapes without a formula for whole paths: switch by switch.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use windtunnel_kernel::Span;

use crate::choose::choose_plane;
use crate::edge::Edge;
use crate::faults::{Forwarder, Reach};
use crate::link::{LinkId, LoadBalancer, Route};
use crate::port::{Itinerary, PortSet, SwitchId, Target};
use crate::shape::{Far, Shape};
use crate::topology::Request;

/// Both ends of a route within one plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// NICs, counted over all hosts.
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) plane: u32,
    /// Their switches.
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// A route is laid link by link over `route`.
pub(crate) struct Walk<'a, S> {
    pub(crate) shape: &'a S,
    pub(crate) edge: &'a Edge,
}

impl<S: Shape> Walk<'_, S> {
    pub(crate) fn ends(&self, from: u32, to: u32, plane: u32) -> Ends {
        let (first, last) = (self.shape.attachment(from, plane).0, self.shape.attachment(to, plane).0);
        Ends { from, to, plane, first, last }
    }

    /// The route of `request`, over an empty one.
    pub(crate) fn route(&self, request: &Request, route: &mut Route) {
        let nic = |(host, nic): (u32, u32)| host * self.edge.nics_per_host + nic;
        let (from, to) = (nic(request.from), nic(request.to));
        let hash = request.hash.flow_hash(request.seed, u64::from(from), u64::from(to), request.entropy);
        let planes = self.edge.planes;
        route.latency = Span::ZERO;
        let hashed = |at: u32, goal: u32| self.shape.pick(at, goal, hash);
        let by_destination = |at: u32, goal: u32| {
            let mut ports = PortSet::new();
            self.shape.shortest(at, goal, &mut ports);
            ports.nth(to % ports.len())
        };
        match request.balancer {
            LoadBalancer::Ecmp => {
                let plane = if planes == 1 { 0 } else { choose_plane(hash, planes) };
                self.single(&self.ends(from, to, plane), hash, hashed, route);
            }
            LoadBalancer::DestinationModulo => {
                let ((a, b), (c, d)) = (request.from, request.to);
                let plane = (a + b).wrapping_add(c + d) % planes;
                self.single(&self.ends(from, to, plane), hash, by_destination, route);
            }
            LoadBalancer::Spray => {
                (0..planes).for_each(|plane| self.spread(&self.ends(from, to, plane), hash, route));
            }
            LoadBalancer::Ideal => {
                let mut path = Route::new();
                self.single(&self.ends(from, to, 0), hash, hashed, &mut path);
                (route.latency, route.class) = (path.latency, path.class);
                let part = 1.0 / f64::from(planes);
                route.links.extend((0..planes).map(|plane| (self.edge.up(from, plane), part)));
                route.links.extend((0..planes).map(|plane| (self.edge.down(to, plane), part)));
            }
        }
    }

    /// The legs of a path: to the waypoint, if the rule takes one, and to the last switch.
    fn legs(&self, ends: &Ends, hash: u64) -> [u32; 2] {
        if ends.first == ends.last || !self.shape.leaves_shortest() {
            return [ends.last; 2];
        }
        [self.shape.waypoint(ends.first, ends.last, hash, |_| 0).unwrap_or(ends.last), ends.last]
    }

    /// One path, each port given by `pick` from the switch and the end of the leg.
    fn single(&self, ends: &Ends, hash: u64, pick: impl Fn(u32, u32) -> u32, route: &mut Route) {
        let shape = self.shape;
        route.class = shape.class(ends.first, ends.last);
        route.links.push((self.edge.up(ends.from, ends.plane), 1.0));
        let mut latency = self.entrance(ends);
        let mut at = ends.first;
        for goal in self.legs(ends, hash) {
            while at != goal {
                let port = pick(at, goal);
                let Some(Far::Switch { switch: next, .. }) = shape.peer(at, port) else {
                    unreachable!("a next hop leads to a switch")
                };
                route.links.push((self.edge.between(shape.link(at, port)), 1.0));
                latency += shape.cable(at, port).propagation + shape.delay(next);
                at = next;
            }
        }
        route.links.push((self.edge.down(ends.to, ends.plane), 1.0));
        route.latency = latency + self.exit(ends);
    }

    /// Latency from the NIC through the first switch.
    pub(crate) fn entrance(&self, ends: &Ends) -> Span {
        let (switch, port) = self.shape.attachment(ends.from, ends.plane);
        self.shape.cable(switch, port).propagation + self.shape.delay(switch)
    }

    /// Latency from the last switch to the NIC.
    pub(crate) fn exit(&self, ends: &Ends) -> Span {
        let (switch, port) = self.shape.attachment(ends.to, ends.plane);
        self.shape.cable(switch, port).propagation
    }

    /// All shortest paths of one plane in equal parts: every switch splits what it gets evenly over its ports. The
    /// latency is that of the slowest path, for the last byte waits for it.
    fn spread(&self, ends: &Ends, hash: u64, route: &mut Route) {
        let shape = self.shape;
        let part = 1.0 / f64::from(self.edge.planes);
        route.class = shape.class(ends.first, ends.last);
        route.links.push((self.edge.up(ends.from, ends.plane), part));
        // Switches at the same distance from the goal, in the order in which they were reached.
        let mut front = vec![(ends.first, part, self.entrance(ends))];
        let mut ports = PortSet::new();
        for goal in self.legs(ends, hash) {
            while front.iter().any(|&(at, ..)| at != goal) {
                let mut next: Vec<(u32, f64, Span)> = Vec::new();
                for (at, share, latency) in front {
                    ports.clear();
                    shape.shortest(at, goal, &mut ports);
                    let share = share / f64::from(ports.len());
                    for port in ports.iter() {
                        let Some(Far::Switch { switch, .. }) = shape.peer(at, port) else {
                            unreachable!("a next hop leads to a switch")
                        };
                        route.links.push((self.edge.between(shape.link(at, port)), share));
                        let latency = latency + shape.cable(at, port).propagation + shape.delay(switch);
                        match next.iter_mut().find(|(known, ..)| *known == switch) {
                            Some((_, sum, longest)) => {
                                *sum += share;
                                *longest = (*longest).max(latency);
                            }
                            None => next.push((switch, share, latency)),
                        }
                    }
                }
                front = next;
            }
        }
        route.links.push((self.edge.down(ends.to, ends.plane), part));
        let slowest = front.iter().map(|&(.., latency)| latency).max().unwrap_or_default();
        route.latency = route.latency.max(slowest + self.exit(ends));
    }

    /// The route from a NIC to another in a plane, with faults; over an empty one.
    pub(crate) fn around(
        &self,
        forwarder: &mut Forwarder,
        balancer: LoadBalancer,
        (from, to, plane): (u32, u32, u32),
        hash: u64,
        route: &mut Route,
    ) -> Result<Reach, Reach> {
        let shape = self.shape;
        let ends = self.ends(from, to, plane);
        let (last, port) = shape.attachment(to, plane);
        let target = Target { nic: to, plane, switch: SwitchId(last), port };
        let via = self.legs(&ends, hash)[0];
        let itinerary = if via == ends.last { Itinerary::DIRECT } else { Itinerary::via(SwitchId(via)) };
        let itinerary = forwarder.passable(&target, itinerary);
        route.class = shape.class(ends.first, ends.last);
        route.links.push((self.edge.up(from, plane), 1.0));
        let worst = if balancer == LoadBalancer::Spray {
            self.spread_around(forwarder, (&ends, &target), itinerary, route)?
        } else {
            let (mut at, mut itinerary, mut worst) = (ends.first, itinerary, Reach::Legal);
            let mut latency = self.entrance(&ends);
            while at != last || itinerary.waypoint().is_some_and(|waypoint| waypoint.0 != at) {
                let hop = forwarder.next_hop(SwitchId(at), &target, itinerary, hash)?;
                (itinerary, worst) = (hop.itinerary, worst.max(hop.reach));
                if at == last && itinerary == Itinerary::DIRECT {
                    // It passed its destination on the way to a waypoint that can no longer be reached.
                    break;
                }
                let (next, link, span) = self.step(at, hop.port);
                route.links.push((link, 1.0));
                latency += span;
                at = next;
            }
            route.latency = latency + self.exit(&ends);
            worst
        };
        route.links.push((self.edge.down(to, plane), 1.0));
        Ok(worst)
    }

    /// The next switch, the link to it and its latency.
    fn step(&self, at: u32, port: u32) -> (u32, LinkId, Span) {
        let Some(Far::Switch { switch, .. }) = self.shape.peer(at, port) else {
            unreachable!("a next hop leads to a switch")
        };
        let span = self.shape.cable(at, port).propagation + self.shape.delay(switch);
        (switch, self.edge.between(self.shape.link(at, port)), span)
    }

    /// All equally good paths in equal parts. With faults they may differ in length, so the switches on them are first
    /// collected, then visited in an order in which every one comes after all that lead to it.
    fn spread_around(
        &self,
        forwarder: &mut Forwarder,
        (ends, target): (&Ends, &Target),
        itinerary: Itinerary,
        route: &mut Route,
    ) -> Result<Reach, Reach> {
        struct Stop {
            next: Vec<(LinkId, (u32, Itinerary), Span)>,
            waiting: u32,
            share: f64,
            latency: Span,
        }
        let start = (ends.first, itinerary);
        let mut stops: IndexMap<(u32, Itinerary), Stop, FxBuildHasher> = IndexMap::default();
        let stop = || Stop { next: Vec::new(), waiting: 0, share: 0.0, latency: Span::ZERO };
        stops.insert(start, stop());
        let (mut visited, mut worst, mut ports) = (0, Reach::Legal, PortSet::new());
        while visited < stops.len() {
            let (&(at, itinerary), _) = stops.get_index(visited).expect("visited in order");
            let arrived =
                at == target.switch.0 && itinerary.waypoint().is_none_or(|waypoint| waypoint.0 == at);
            if !arrived {
                let (reach, itinerary) = forwarder.equal_cost(SwitchId(at), target, itinerary, &mut ports);
                if !reach.forwards() {
                    return Err(reach);
                }
                worst = worst.max(reach);
                if at == target.switch.0 && itinerary == Itinerary::DIRECT {
                    // Its waypoint can no longer be reached: it has arrived.
                    ports.clear();
                }
                for port in ports.iter() {
                    let (next, link, span) = self.step(at, port);
                    stops.entry((next, itinerary)).or_insert_with(stop).waiting += 1;
                    stops[visited].next.push((link, (next, itinerary), span));
                }
            }
            visited += 1;
        }
        stops[0].share = 1.0;
        stops[0].latency = self.entrance(ends);
        let mut ready = vec![0];
        while let Some(index) = ready.pop() {
            let (share, latency) = (stops[index].share, stops[index].latency);
            let next = std::mem::take(&mut stops[index].next);
            let part = share / next.len() as f64;
            if next.is_empty() {
                route.latency = route.latency.max(latency + self.exit(ends));
            }
            for (link, key, span) in next {
                route.links.push((link, part));
                let (index, _, stop) = stops.get_full_mut(&key).expect("collected above");
                stop.share += part;
                stop.latency = stop.latency.max(latency + span);
                stop.waiting -= 1;
                if stop.waiting == 0 {
                    ready.push(index);
                }
            }
        }
        Ok(worst)
    }
}
