//! Next hops on a fabric whose parts may have failed.

use std::sync::Arc;

use windtunnel_kernel::{EndpointId, NicId};

use super::cache::{Cache, Step};
use super::dead::Dead;
use super::field::Way;
use crate::choose::{choose_hashed, choose_weighted_hashed, flow_hash};
use crate::link::{LinkId, LoadBalancer, Route};
use crate::port::{Itinerary, PortSet, SwitchId, Target};
use crate::shape::{Shape, each};
use crate::topology::{PLANE, Topology};

/// What becomes of a pair without a legal path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Detour {
    /// It takes an illegal one, if there is any.
    #[default]
    Allow,
    /// It is unreachable.
    Forbid,
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
pub enum Verdict {
    /// Along a shortest legal path.
    Legal,
    /// Only by a detour that the rule does not know.
    Detour,
    /// Its next hops are dead, and the fabric does not know yet.
    Blackhole,
    /// Not at all, or only by a detour that is forbidden.
    Unreachable,
}

impl Verdict {
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
    /// [`Verdict::Legal`] or [`Verdict::Detour`].
    pub verdict: Verdict,
}

/// Routing for one user of a topology, faults included. See the module page.
#[derive(Clone, Debug)]
pub struct Forwarder {
    topology: Arc<Topology>,
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
        Self {
            topology,
            policy,
            actual: Dead::default(),
            known: Dead::default(),
            converged: true,
            cache: Cache::default(),
            ports: PortSet::new(),
            weights: Vec::new(),
        }
    }

    /// The fabric.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Whether nothing has failed, and everybody knows.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.converged && self.known.is_empty()
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
        self.converged &= !self.actual.set_switch(&self.topology, switch, true);
    }

    /// A failed switch works again.
    pub fn recover_switch(&mut self, switch: SwitchId) {
        self.converged &= !self.actual.set_switch(&self.topology, switch, false);
    }

    fn set_cable(&mut self, link: LinkId, failed: bool) {
        self.converged &= !self.actual.set_cable(&self.topology, link, failed);
    }

    /// From here on everybody knows what has failed and what has recovered.
    pub fn converge(&mut self) {
        if !self.converged {
            self.known = self.actual.clone();
            self.converged = true;
            self.cache = Cache::default();
        }
    }

    /// Whether packets on a link are lost: its cable or the switch at an end failed.
    pub fn is_dead(&self, link: LinkId) -> bool {
        let topology = &self.topology;
        let ends = topology.link_ends(link);
        let failed = |node| matches!(node, crate::Node::Switch(switch) if self.actual.switch(switch.0));
        self.actual.cable(topology, link) || failed(ends.0) || failed(ends.1)
    }

    /// Failed cables, each by the lower of its two links, in order.
    pub fn failed_cables(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.actual.cables()
    }

    /// Failed switches in order.
    pub fn failed_switches(&self) -> impl Iterator<Item = SwitchId> + '_ {
        self.actual.switches()
    }

    /// The ports of `at` that are equally good for a packet, written over `ports`; [`Topology::equal_cost`] with
    /// faults. Returns also what the packet carries from here on.
    pub fn equal_cost(
        &mut self,
        at: SwitchId,
        to: &Target,
        itinerary: Itinerary,
        ports: &mut PortSet,
    ) -> (Verdict, Itinerary) {
        if self.is_whole() {
            return (Verdict::Legal, self.topology.equal_cost(at, to, itinerary, ports));
        }
        let mut itinerary = if itinerary.waypoint() == Some(at) { Itinerary::DIRECT } else { itinerary };
        if let Some(waypoint) = itinerary.waypoint() {
            // A waypoint that cannot be reached by the rule is left out.
            let verdict = self.towards(at, waypoint.0, ports);
            if verdict == Verdict::Legal {
                return (verdict, itinerary);
            }
            itinerary = Itinerary::DIRECT;
        }
        ports.clear();
        if at == to.switch {
            ports.push(to.port);
            let alive = !self.nic_is_dead(&self.actual, to.nic, to.plane);
            return (if alive { Verdict::Legal } else { Verdict::Unreachable }, itinerary);
        }
        (self.towards(at, to.switch.0, ports), itinerary)
    }

    /// The next hop of a packet of a flow of the given [`flow_hash`]; [`Topology::next_hop`] with faults.
    ///
    /// # Errors
    /// [`Verdict::Blackhole`] or [`Verdict::Unreachable`] where there is none.
    #[inline]
    pub fn next_hop(
        &mut self,
        at: SwitchId,
        to: &Target,
        itinerary: Itinerary,
        flow_hash: u64,
    ) -> Result<Hop, Verdict> {
        if self.is_whole() {
            let (port, itinerary) = self.topology.next_hop(at, to, itinerary, flow_hash);
            return Ok(Hop { port, itinerary, verdict: Verdict::Legal });
        }
        if let Some(hop) = self.by_field(at, to, itinerary, flow_hash) {
            return Ok(hop);
        }
        let mut ports = std::mem::take(&mut self.ports);
        let (verdict, itinerary) = self.equal_cost(at, to, itinerary, &mut ports);
        let hop = if verdict.forwards() {
            Ok(Hop { port: self.choose(at, &ports, flow_hash), itinerary, verdict })
        } else {
            Err(verdict)
        };
        self.ports = ports;
        hop
    }

    /// What [`Self::equal_cost`] and the choice come to where a field has the answer: without a copy of the set.
    #[inline]
    fn by_field(&self, at: SwitchId, to: &Target, itinerary: Itinerary, flow_hash: u64) -> Option<Hop> {
        if !self.converged || each!(&self.topology.shape, shape => shape.repairs_by_rule()) {
            return None;
        }
        let itinerary = if itinerary.waypoint() == Some(at) { Itinerary::DIRECT } else { itinerary };
        let goal = itinerary.waypoint().unwrap_or(to.switch);
        let step = if at == goal { None } else { self.cache.get(at.0, goal.0) }?;
        let verdict = match step.way {
            Way::Legal => Verdict::Legal,
            // No detour leads to a waypoint.
            Way::Detour if self.policy.detour == Detour::Allow && itinerary == Itinerary::DIRECT => {
                Verdict::Detour
            }
            Way::Detour | Way::None => return None,
        };
        let index = choose_hashed(flow_hash, u64::from(at.0), step.ports.len());
        Some(Hop { port: step.ports.nth(index), itinerary, verdict })
    }

    /// Among the ports found last.
    fn choose(&self, at: SwitchId, ports: &PortSet, flow_hash: u64) -> u32 {
        let index = if self.weights.len() == ports.len() as usize {
            choose_weighted_hashed(flow_hash, u64::from(at.0), &self.weights)
        } else {
            choose_hashed(flow_hash, u64::from(at.0), ports.len())
        };
        ports.nth(index)
    }

    /// Weights of the ports that [`Self::equal_cost`] found last, as running sums; empty where all are equal.
    pub fn weights(&self) -> &[u64] {
        &self.weights
    }

    /// Equal-cost ports from a switch to another.
    fn towards(&mut self, at: SwitchId, to: u32, ports: &mut PortSet) -> Verdict {
        ports.clear();
        self.weights.clear();
        let Self { topology, policy, known, cache, weights, .. } = self;
        let weights = policy.weighted.then_some(weights);
        let verdict = each!(&topology.shape, shape => {
            Known { shape, dead: known, detour: policy.detour }.surviving(cache, (at.0, to), ports, weights)
        });
        if self.converged || !verdict.forwards() || ports.iter().all(|port| !self.actual.port(at.0, port)) {
            return verdict;
        }
        // The neighbours of a fault know of it before the others do.
        self.weights.clear();
        ports.retain(|port| !self.actual.port(at.0, port));
        if ports.is_empty() { Verdict::Blackhole } else { verdict }
    }

    fn nic_is_dead(&self, dead: &Dead, nic: u32, plane: u32) -> bool {
        let topology = &self.topology;
        dead.cable(topology, topology.nic_link(nic, plane))
            || dead.switch(topology.attachment(nic, plane).0.0)
    }

    /// The plane that a flow takes: of those in which both NICs' cables live, one that needs no detour if there is one.
    /// `None` if there is no plane at all.
    pub fn plane(&mut self, from: u32, to: u32, flow_hash: u64) -> Option<u32> {
        let topology = Arc::clone(&self.topology);
        if self.is_whole() {
            return Some(topology.plane(flow_hash));
        }
        let mut best = (Verdict::Blackhole, PortSet::new());
        let mut ports = PortSet::new();
        for plane in 0..topology.planes() {
            if [from, to].iter().any(|&nic| self.nic_is_dead(&self.known, nic, plane)) {
                continue;
            }
            let target = topology.target(to, plane);
            let first = topology.attachment(from, plane).0;
            let (verdict, _) = self.equal_cost(first, &target, Itinerary::DIRECT, &mut ports);
            if verdict < best.0 {
                best = (verdict, PortSet::one(plane));
            } else if verdict == best.0 && verdict.forwards() {
                best.1.push(plane);
            }
        }
        let planes = best.1;
        (!planes.is_empty()).then(|| planes.nth(choose_hashed(flow_hash, PLANE, planes.len())))
    }

    /// [`Topology::route`] with faults. Where a fabric has any, every balancer but [`LoadBalancer::Spray`] chooses as
    /// [`LoadBalancer::Ecmp`] does among what is left.
    ///
    /// # Errors
    /// The worst [`Verdict`] on the way where the route does not arrive; `route` is then empty.
    pub fn route(
        &mut self,
        balancer: LoadBalancer,
        seed: u64,
        from: EndpointId,
        to: EndpointId,
        nic: NicId,
        entropy: u32,
        route: &mut Route,
    ) -> Result<Verdict, Verdict> {
        let topology = Arc::clone(&self.topology);
        if self.is_whole() || balancer == LoadBalancer::Ideal {
            topology.route(balancer, seed, from, to, nic, entropy, route);
            return Ok(Verdict::Legal);
        }
        if topology.inside(from, to, route) {
            return Ok(Verdict::Legal);
        }
        let (from, to) = (topology.nic(from, nic), topology.nic(to, nic));
        let hash = flow_hash(seed, u64::from(from), u64::from(to), entropy);
        route.latency = windtunnel_kernel::Span::ZERO;
        let Some(plane) = self.plane(from, to, hash) else {
            return Err(Verdict::Unreachable);
        };
        let verdict = each!(&topology.shape, shape => {
            crate::walk::Walk { shape, edge: &topology.edge }.around(self, balancer, (from, to, plane), hash, route)
        });
        if verdict.is_err() {
            route.links.clear();
        }
        verdict
    }
}

/// What everybody knows of a fabric.
struct Known<'a, S> {
    shape: &'a S,
    dead: &'a Dead,
    detour: Detour,
}

impl<S: Shape> Known<'_, S> {
    /// Equal-cost ports from a switch to another over what lives, and their weights as running sums.
    #[inline]
    fn surviving(
        &self,
        cache: &mut Cache,
        (at, to): (u32, u32),
        ports: &mut PortSet,
        weights: Option<&mut Vec<u64>>,
    ) -> Verdict {
        let shape = self.shape;
        let by_rule = shape.repairs_by_rule();
        // A field lists the same ports in the same order as the rule does where that holds.
        if !by_rule && let Some(step) = cache.get(at, to) {
            return self.take(step, ports);
        }
        if self.dead.is_empty() || shape.is_clear(self.dead, at, to) {
            shape.shortest(at, to, ports);
            return Verdict::Legal;
        }
        if by_rule && self.by_rule((at, to), ports, weights) {
            return Verdict::Legal;
        }
        if by_rule && self.detour == Detour::Forbid {
            return Verdict::Unreachable;
        }
        cache.build(shape, self.dead, to);
        self.take(cache.get(at, to).expect("a field has just been built"), ports)
    }

    /// Whether arithmetic finds a port.
    fn by_rule(&self, (at, to): (u32, u32), ports: &mut PortSet, mut weights: Option<&mut Vec<u64>>) -> bool {
        self.shape.surviving(self.dead, at, to, ports, weights.as_deref_mut());
        let mut sum = 0;
        for weight in weights.into_iter().flatten() {
            sum += *weight;
            *weight = sum;
        }
        !ports.is_empty()
    }

    /// What a field says.
    #[inline]
    fn take(&self, step: &Step, ports: &mut PortSet) -> Verdict {
        ports.copy(&step.ports);
        match step.way {
            Way::Legal => Verdict::Legal,
            Way::Detour if self.detour == Detour::Allow => Verdict::Detour,
            Way::Detour | Way::None => Verdict::Unreachable,
        }
    }
}
