//! Next hops on a fabric whose parts may have failed.

use std::sync::Arc;

use windtunnel_kernel::{EndpointId, NicId};

use super::cache::{Cache, Step};
use super::dead::Dead;
use super::field::Way;
use crate::any_shape::each;
use crate::choose::{choose_hashed, choose_plane, choose_weighted_hashed};
use crate::link::{LinkId, LoadBalancer, Route};
use crate::port::{Itinerary, PortSet, SwitchId, Target};
use crate::shape::Shape;
use crate::topology::Topology;

windtunnel_kernel::named! {
    /// What becomes of a pair without a legal path.
    #[derive(Default, Hash)]
    pub enum Detour: "detour" {
        #[default]
        Allow = "allow", "they go any way there is, and are counted";
        Forbid = "forbid", "they are unreachable; a message between them ends the run";
    }
}

/// How a fabric copes with faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Policy {
    /// Without a legal path.
    pub detour: Detour,
    /// Whether equal-cost ports are chosen in proportion to the paths that survive behind them (weighted ECMP).
    pub weighted: bool,
}

/// How well a packet can be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// Along a shortest legal path.
    Legal,
    /// Only by a detour that the rule does not know.
    Detour,
    /// Its next hops are dead, and the fabric does not know yet.
    Blackhole,
    /// Not at all, or only by a detour that is forbidden.
    Unreachable,
}

impl Reach {
    /// Whether a packet gets on.
    pub const fn forwards(self) -> bool {
        matches!(self, Self::Legal | Self::Detour)
    }

    /// `legal`, `detour`, `blackhole`, `unreachable`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Legal => "legal",
            Self::Detour => "detour",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
        }
    }
}

/// The next hop of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The port it leaves by.
    pub port: u32,
    /// What it carries from here on.
    pub itinerary: Itinerary,
    /// [`Reach::Legal`] or [`Reach::Detour`].
    pub reach: Reach,
}

/// Routing for one user of a topology, faults included. See the module page.
#[derive(Clone, Debug)]
pub struct Forwarder {
    topology: Arc<Topology>,
    overlay: Overlay,
}

/// What a forwarder keeps beside the topology.
#[derive(Clone, Debug)]
struct Overlay {
    policy: Policy,
    /// What failed.
    actual: Dead,
    /// What everybody knows of.
    known: Dead,
    converged: bool,
    cache: Cache,
    /// Reused from one question to the next.
    ports: PortSet,
    weights: Vec<u64>,
}

impl Forwarder {
    /// Of a fabric without faults.
    pub fn new(topology: Arc<Topology>, policy: Policy) -> Self {
        let overlay = Overlay {
            policy,
            actual: Dead::default(),
            known: Dead::default(),
            converged: true,
            cache: Cache::default(),
            ports: PortSet::new(),
            weights: Vec::new(),
        };
        Self { topology, overlay }
    }

    /// The fabric.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Whether nothing has failed, and everybody knows.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.overlay.converged && self.overlay.known.is_empty()
    }

    /// How it copes with faults.
    pub fn policy(&self) -> Policy {
        self.overlay.policy
    }

    /// Whether everybody knows what has failed.
    pub fn is_converged(&self) -> bool {
        self.overlay.converged
    }

    /// Both directions of a link's cable fail. Links inside hosts do not.
    pub fn fail_cable(&mut self, link: LinkId) {
        self.set_cable(link, true);
    }

    /// A failed cable works again.
    pub fn recover_cable(&mut self, link: LinkId) {
        self.set_cable(link, false);
    }

    /// A switch fails with all its ports.
    pub fn fail_switch(&mut self, switch: SwitchId) {
        self.overlay.converged &= !self.overlay.actual.set_switch(&self.topology, switch, true);
    }

    /// A failed switch works again.
    pub fn recover_switch(&mut self, switch: SwitchId) {
        self.overlay.converged &= !self.overlay.actual.set_switch(&self.topology, switch, false);
    }

    fn set_cable(&mut self, link: LinkId, failed: bool) {
        self.overlay.converged &= !self.overlay.actual.set_cable(&self.topology, link, failed);
    }

    /// From here on everybody knows what has failed and what has recovered.
    pub fn converge(&mut self) {
        let overlay = &mut self.overlay;
        if !overlay.converged {
            overlay.known = overlay.actual.clone();
            each!(&self.topology.shape, shape => overlay.known.count(shape));
            overlay.converged = true;
            overlay.cache = Cache::default();
        }
    }

    /// Whether packets on a link are lost: its cable or the switch at an end failed.
    pub fn is_dead(&self, link: LinkId) -> bool {
        let (topology, actual) = (&self.topology, &self.overlay.actual);
        let ends = topology.link_ends(link);
        let failed = |node| matches!(node, crate::Node::Switch(switch) if actual.switch(switch.0));
        actual.cable(topology, link) || failed(ends.0) || failed(ends.1)
    }

    /// Failed cables, each by the lower of its two links, in order.
    pub fn failed_cables(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.overlay.actual.cables()
    }

    /// Failed switches in order.
    pub fn failed_switches(&self) -> impl Iterator<Item = SwitchId> + '_ {
        self.overlay.actual.switches()
    }

    /// Where a packet that enters the fabric at `from` must go first; [`Topology::enter`] with faults. A waypoint from
    /// which no legal path leads on is left out, so that a pair with a legal path is never led off it.
    #[inline]
    pub fn enter(
        &mut self,
        from: SwitchId,
        to: &Target,
        flow_hash: u64,
        queue: impl Fn(u32) -> u64,
    ) -> Itinerary {
        let itinerary = self.topology.enter(from, to, flow_hash, queue);
        self.passable(to, itinerary)
    }

    /// The itinerary if a legal path leads from its waypoint to the destination, else the direct one.
    pub(crate) fn passable(&mut self, to: &Target, itinerary: Itinerary) -> Itinerary {
        let Some(waypoint) = itinerary.waypoint() else { return itinerary };
        if self.is_whole() || waypoint == to.switch {
            return itinerary;
        }
        let mut ports = PortSet::new();
        let (reach, _) = self.equal_cost(waypoint, to, Itinerary::DIRECT, &mut ports);
        if reach == Reach::Legal { itinerary } else { Itinerary::DIRECT }
    }

    /// The ports of `at` that are equally good for a packet, written over `ports`; [`Topology::equal_cost`] with
    /// faults. Returns also what the packet carries from here on.
    pub fn equal_cost(
        &mut self,
        at: SwitchId,
        to: &Target,
        itinerary: Itinerary,
        ports: &mut PortSet,
    ) -> (Reach, Itinerary) {
        if self.is_whole() {
            self.overlay.weights.clear();
            let itinerary = self.topology.equal_cost(at, to, itinerary, ports);
            let (goal, known) = (itinerary.waypoint().unwrap_or(to.switch).0, &self.overlay.known);
            let legal =
                at.0 == goal || each!(&self.topology.shape, shape => shape.is_clear(known, at.0, goal));
            let reach = match self.overlay.policy.detour {
                _ if legal => Reach::Legal,
                Detour::Allow => Reach::Detour,
                Detour::Forbid => Reach::Unreachable,
            };
            return (reach, itinerary);
        }
        each!(&self.topology.shape, shape => self.overlay.equal_cost(shape, at, to, itinerary, ports))
    }

    /// The next hop of a packet of a flow of the given [`flow_hash`](crate::flow_hash); [`Topology::next_hop`] with faults.
    ///
    /// # Errors
    /// [`Reach::Blackhole`] or [`Reach::Unreachable`] where there is none.
    #[inline]
    pub fn next_hop(
        &mut self,
        at: SwitchId,
        to: &Target,
        itinerary: Itinerary,
        flow_hash: u64,
    ) -> Result<Hop, Reach> {
        if self.is_whole() {
            let (port, itinerary) = self.topology.next_hop(at, to, itinerary, flow_hash);
            return Ok(Hop { port, itinerary, reach: Reach::Legal });
        }
        each!(&self.topology.shape, shape => self.overlay.next_hop(shape, at, to, itinerary, flow_hash))
    }

    /// Weights of the ports that [`Self::equal_cost`] found last, as running sums; empty where all are equal.
    pub fn weights(&self) -> &[u64] {
        &self.overlay.weights
    }

    /// The plane that a flow takes: of those in which both NICs' cables live, one that needs no detour if there is one.
    /// `None` if there is no plane at all.
    pub fn plane(&mut self, from: u32, to: u32, flow_hash: u64) -> Option<u32> {
        if self.is_whole() {
            return Some(self.topology.plane(flow_hash));
        }
        let planes = self.planes(from, to);
        (!planes.is_empty()).then(|| planes.nth(choose_plane(flow_hash, planes.len())))
    }

    /// The planes in which both NICs' cables live: those that need no detour if there are any, else the others.
    fn planes(&mut self, from: u32, to: u32) -> PortSet {
        let mut best = (Reach::Blackhole, PortSet::new());
        let mut ports = PortSet::new();
        for plane in 0..self.topology.planes() {
            let (first, port) = self.topology.attachment(from, plane);
            let target = self.topology.target(to, plane);
            let known = &self.overlay.known;
            if known.port(first.0, port) || known.port(target.switch.0, target.port) {
                continue;
            }
            let (reach, _) = self.equal_cost(first, &target, Itinerary::DIRECT, &mut ports);
            if reach < best.0 {
                best = (reach, PortSet::one(plane));
            } else if reach == best.0 && reach.forwards() {
                best.1.push(plane);
            }
        }
        best.1
    }

    /// [`Topology::route`] with faults. Where a fabric has any, every balancer but [`LoadBalancer::Spray`] chooses as
    /// [`LoadBalancer::Ecmp`] does among what is left. That one takes equal parts of all that is left, of all planes too.
    ///
    /// # Errors
    /// The worst [`Reach`] on the way where the route does not arrive; `route` is then empty.
    pub fn route(
        &mut self,
        balancer: LoadBalancer,
        seed: u64,
        from: EndpointId,
        to: EndpointId,
        nic: NicId,
        entropy: u32,
        route: &mut Route,
    ) -> Result<Reach, Reach> {
        let topology = Arc::clone(&self.topology);
        if self.is_whole() || balancer == LoadBalancer::Ideal {
            topology.route(balancer, seed, from, to, nic, entropy, route);
            return Ok(Reach::Legal);
        }
        if topology.inside(from, to, route) {
            return Ok(Reach::Legal);
        }
        let (from, to) = (topology.nic(from, nic), topology.nic(to, nic));
        let hash = topology.flow_hash(seed, from, to, entropy);
        route.latency = windtunnel_kernel::Span::ZERO;
        if balancer == LoadBalancer::Spray && topology.planes() > 1 {
            return self.spread(from, to, hash, route);
        }
        let Some(plane) = self.plane(from, to, hash) else {
            return Err(Reach::Unreachable);
        };
        let reach = each!(&topology.shape, shape => {
            crate::walk::Walk { shape, edge: &topology.edge }.around(self, balancer, (from, to, plane), hash, route)
        });
        if reach.is_err() {
            route.links.clear();
        }
        reach
    }

    /// Equal parts of all planes that are left.
    fn spread(&mut self, from: u32, to: u32, hash: u64, route: &mut Route) -> Result<Reach, Reach> {
        let topology = Arc::clone(&self.topology);
        let (mut found, mut worst, mut failed) = (Vec::new(), Reach::Legal, Reach::Unreachable);
        for plane in self.planes(from, to).iter() {
            let mut part = Route::new();
            part.latency = windtunnel_kernel::Span::ZERO;
            let reach = each!(&topology.shape, shape => {
                crate::walk::Walk { shape, edge: &topology.edge }
                    .around(self, LoadBalancer::Spray, (from, to, plane), hash, &mut part)
            });
            match reach {
                Ok(reach) => {
                    worst = worst.max(reach);
                    found.push(part);
                }
                Err(reach) => failed = reach,
            }
        }
        if found.is_empty() {
            route.links.clear();
            return Err(failed);
        }
        let share = 1.0 / found.len() as f64;
        for part in found {
            (route.class, route.latency) = (part.class, route.latency.max(part.latency));
            route.links.extend(part.links.into_iter().map(|(link, of)| (link, of * share)));
        }
        Ok(worst)
    }
}

impl Overlay {
    fn equal_cost<S: Shape>(
        &mut self,
        shape: &S,
        at: SwitchId,
        to: &Target,
        itinerary: Itinerary,
        ports: &mut PortSet,
    ) -> (Reach, Itinerary) {
        let itinerary = if itinerary.waypoint() == Some(at) { Itinerary::DIRECT } else { itinerary };
        if let Some(waypoint) = itinerary.waypoint() {
            // A waypoint that cannot be reached by the rule is left out.
            let reach = self.towards(shape, at.0, waypoint.0, ports);
            if reach == Reach::Legal {
                return (reach, itinerary);
            }
        }
        if at == to.switch {
            ports.clear();
            self.weights.clear();
            ports.push(to.port);
            let dead = self.actual.port(at.0, to.port);
            return (if dead { Reach::Unreachable } else { Reach::Legal }, Itinerary::DIRECT);
        }
        (self.towards(shape, at.0, to.switch.0, ports), Itinerary::DIRECT)
    }

    #[inline]
    fn next_hop<S: Shape>(
        &mut self,
        shape: &S,
        at: SwitchId,
        to: &Target,
        itinerary: Itinerary,
        flow_hash: u64,
    ) -> Result<Hop, Reach> {
        let itinerary = if itinerary.waypoint() == Some(at) { Itinerary::DIRECT } else { itinerary };
        let goal = itinerary.waypoint().unwrap_or(to.switch);
        let step = if at != goal {
            self.step(shape, at.0, goal.0, flow_hash)
        } else if self.actual.port(at.0, to.port) {
            Err(Reach::Unreachable)
        } else {
            Ok((to.port, Reach::Legal))
        };
        match step {
            Ok((port, reach)) if reach == Reach::Legal || goal == to.switch => {
                Ok(Hop { port, itinerary, reach })
            }
            // A waypoint that cannot be reached by the rule is left out.
            _ if goal != to.switch => self.next_hop(shape, at, to, Itinerary::DIRECT, flow_hash),
            Ok(_) => unreachable!("taken above"),
            Err(reach) => Err(reach),
        }
    }

    /// The choice among [`Self::towards`], which is spared where arithmetic finds the port alone.
    #[inline]
    fn step<S: Shape>(&mut self, shape: &S, at: u32, to: u32, flow_hash: u64) -> Result<(u32, Reach), Reach> {
        // Neighbours of a fault may know more than the others do.
        if self.converged || self.actual.row(at).is_empty() {
            let by_rule = shape.repairs_by_rule();
            // What a field says is taken without a copy of the set.
            if !by_rule && let Some(step) = self.cache.get(at, to) {
                let reach = self.policy.reach(step.way);
                let index = || choose_hashed(flow_hash, u64::from(at), step.ports.len());
                return if reach.forwards() { Ok((step.ports.nth(index()), reach)) } else { Err(reach) };
            }
            if shape.is_clear(&self.known, at, to) {
                return Ok((shape.pick(at, to, flow_hash), Reach::Legal));
            }
            if by_rule
                && !self.policy.weighted
                && let Some(port) = shape.pick_surviving(&self.known, at, to, flow_hash)
            {
                return Ok((port, Reach::Legal));
            }
        }
        self.step_among(shape, at, to, flow_hash)
    }

    fn step_among<S: Shape>(
        &mut self,
        shape: &S,
        at: u32,
        to: u32,
        flow_hash: u64,
    ) -> Result<(u32, Reach), Reach> {
        let mut ports = std::mem::take(&mut self.ports);
        let reach = self.towards(shape, at, to, &mut ports);
        let choice = reach.forwards().then(|| {
            let index = if self.weights.is_empty() {
                choose_hashed(flow_hash, u64::from(at), ports.len())
            } else {
                choose_weighted_hashed(flow_hash, u64::from(at), &self.weights)
            };
            (ports.nth(index), reach)
        });
        self.ports = ports;
        choice.ok_or(reach)
    }

    /// Equal-cost ports from a switch to another, and their weights.
    fn towards<S: Shape>(&mut self, shape: &S, at: u32, to: u32, ports: &mut PortSet) -> Reach {
        ports.clear();
        self.weights.clear();
        let reach = self.surviving(shape, at, to, ports);
        let lives = |port: &u32| !self.actual.port(at, *port);
        if self.converged || !reach.forwards() || ports.iter().all(|port| lives(&port)) {
            return reach;
        }
        // The neighbours of a fault know of it before the others do.
        if !self.weights.is_empty() {
            let mut below = 0;
            let mut sum = 0;
            let mut kept = Vec::new();
            for (port, &upto) in ports.iter().zip(&self.weights) {
                if lives(&port) {
                    sum += upto - below;
                    kept.push(sum);
                }
                below = upto;
            }
            self.weights = kept;
        }
        ports.retain(|port| lives(&port));
        if ports.is_empty() { Reach::Blackhole } else { reach }
    }

    /// By what everybody knows.
    fn surviving<S: Shape>(&mut self, shape: &S, at: u32, to: u32, ports: &mut PortSet) -> Reach {
        let by_rule = shape.repairs_by_rule();
        // A field lists the same ports in the same order as the rule does where that holds.
        if !by_rule && let Some(step) = self.cache.get(at, to) {
            return self.policy.take(step, ports);
        }
        if shape.is_clear(&self.known, at, to) {
            shape.shortest(at, to, ports);
            return Reach::Legal;
        }
        if by_rule {
            let weights = self.policy.weighted.then_some(&mut self.weights);
            shape.surviving(&self.known, at, to, ports, weights);
            let mut sum = 0;
            for weight in &mut self.weights {
                sum += *weight;
                *weight = sum;
            }
            if !ports.is_empty() {
                return Reach::Legal;
            }
            if self.policy.detour == Detour::Forbid {
                return Reach::Unreachable;
            }
        }
        self.cache.build(shape, &self.known, to);
        self.policy.take(self.cache.get(at, to).expect("a field has just been built"), ports)
    }
}

impl Policy {
    /// What a field says.
    fn take(self, step: &Step, ports: &mut PortSet) -> Reach {
        ports.copy(&step.ports);
        self.reach(step.way)
    }

    #[inline]
    fn reach(self, way: Way) -> Reach {
        match way {
            Way::Legal => Reach::Legal,
            Way::Detour if self.detour == Detour::Allow => Reach::Detour,
            Way::Detour | Way::None => Reach::Unreachable,
        }
    }
}
