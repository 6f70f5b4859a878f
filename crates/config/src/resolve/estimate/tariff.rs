//! What exchanges of a layout take on a fabric: the library's closed form, and the links that its groups share.
//!
//! A collective passes what the library says that comes before its bytes, and then sends them over links whose load follows from
//! where its ranks are: the ways of all edges are laid as the flow model lays them, and the link that takes longest for a bit sets
//! the pace. Groups of one pipeline rank send at the same time; those of all ranks together where they do so throughout a step.
//!
//! Where packets are sprayed, what lies between two switches is the same for all edges from the NICs of one to the NICs of the other: it is
//! laid once, for all that these edges send, and kept for other layouts ([`Between`]).

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use super::lie::{Group, Lie, groups};
use rustc_hash::FxHashMap;
use windtunnel_fabric::coding::{Coding, wire_bytes};
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Bytes, EndpointId, NicId, RankId, Span};
use windtunnel_plan::kinds::GpuKinds;
use windtunnel_topology::{LinkId, LoadBalancer, PathClass, Route, Topology};
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::dispatcher::Routing;
use windtunnel_workload::collectives::nccl::{Distances, Library};
use windtunnel_workload::collectives::{Algorithm, CollectiveKind, CollectiveSpec, Plan};
use windtunnel_workload::estimate::{Class, Of, Part, Shares, Side, Tolls};
use windtunnel_workload::generate::{Coordinates, Grid, Groups, Layout, Role};
use windtunnel_workload::schedules::Placement;

/// Pairs of an exchange's members whose ways are laid at most; beyond, the first groups stand for all.
const PAIRS: usize = 1 << 18;

/// How messages become bytes on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    pub mtu: Bytes,
    pub header: Bytes,
    pub coding: Option<Coding>,
}

impl Wire {
    /// Of a message of `payload` bytes over a path of `class`, as flows count them.
    fn bytes(self, payload: u64, class: PathClass) -> u64 {
        if class > PathClass::ScaleUp {
            wire_bytes(payload, self.mtu, self.header, self.coding)
        } else {
            payload
        }
    }
}

/// The fabric as flows see it.
pub(super) struct Ways<'a> {
    pub topology: &'a Topology,
    pub balancer: LoadBalancer,
    pub seed: u64,
    /// Links slower than the topology says, with the part of their rate that they have.
    pub slow: &'a FxHashMap<LinkId, f64>,
    pub nic_latency: Span,
    pub wire: Wire,
    pub between: &'a RefCell<Between>,
    /// Speeds of GPUs relative to their sheet; none where all run as it says.
    pub speeds: &'a [f64],
    /// Kinds of GPUs.
    pub gpus: &'a GpuKinds,
}

/// What lies between two switches where packets are sprayed, of as many pairs as there is room for.
#[derive(Default)]
pub(super) struct Between {
    known: FxHashMap<(u32, u32), Rc<Way>>,
    /// Links of all that is known.
    links: usize,
}

/// Links that are kept at most, of 16 bytes each.
const KEPT: usize = 1 << 24;

/// The way between the switches of two NICs, without the NICs' own links.
struct Way {
    links: Vec<(u32, f64)>,
    latency: f64,
    class: PathClass,
}

impl Ways<'_> {
    fn lay(&self, from: RankId, to: RankId, entropy: u32, route: &mut Route) -> Span {
        // Jobs are placed packed, from the first GPU on.
        let (from, to) = (EndpointId(from.0), EndpointId(to.0));
        self.topology.route(self.balancer, self.seed, from, to, NicId(0), entropy, route);
        self.spread(from, to, entropy, route);
        if route.class > PathClass::ScaleUp { route.latency + self.nic_latency } else { route.latency }
    }

    /// Adds the ways by the other NICs of the GPUs, in equal parts, as a run's flows go.
    fn spread(&self, from: EndpointId, to: EndpointId, entropy: u32, route: &mut Route) {
        let nics = self.topology.nics_per_endpoint();
        if nics < 2 || route.class <= PathClass::ScaleUp {
            return;
        }
        let mut other = Route::new();
        for nic in 1..nics {
            self.topology.route(self.balancer, self.seed, from, to, NicId(nic as u8), entropy, &mut other);
            route.join(&other);
        }
        route.divide(nics);
    }

    /// The switches of two ranks' NICs and the links of these, where what lies between is the same for all NICs of the two switches.
    fn apart(&self, from: RankId, to: RankId) -> Option<([u32; 2], [LinkId; 2])> {
        let topology = self.topology;
        let same = matches!(topology.shape_name(), "clos" | "regions")
            && topology.planes() == 1
            && topology.nics_per_endpoint() == 1;
        let (from, to) = (EndpointId(from.0), EndpointId(to.0));
        if !same
            || self.balancer != LoadBalancer::Spray
            || topology.path_class(from, to) <= PathClass::ScaleUp
        {
            return None;
        }
        let nics = [topology.nic(from, NicId(0)), topology.nic(to, NicId(0))];
        let links = [topology.nic_link(nics[0], 0), topology.reverse(topology.nic_link(nics[1], 0))];
        Some((nics.map(|nic| topology.attachment(nic, 0).0.0), links))
    }

    /// What lies between two switches, of which `from` and `to` have NICs.
    fn between(&self, switches: (u32, u32), (from, to): (RankId, RankId), route: &mut Route) -> Rc<Way> {
        if let Some(known) = self.between.borrow().known.get(&switches) {
            return Rc::clone(known);
        }
        let latency = self.lay(from, to, 0, route).ps() as f64;
        let own = self.apart(from, to).map(|(_, links)| links);
        let inner = route.links.iter().filter(|(link, _)| own.is_none_or(|own| !own.contains(link)));
        let links: Vec<(u32, f64)> = inner.map(|&(link, share)| (link.0, share)).collect();
        let way = Rc::new(Way { links, latency, class: route.class });
        let mut between = self.between.borrow_mut();
        if between.links + way.links.len() <= KEPT {
            between.links += way.links.len();
            between.known.insert(switches, Rc::clone(&way));
        }
        way
    }

    fn rate(&self, link: LinkId) -> f64 {
        self.topology.link(link).rate.bps() as f64 * self.slow.get(&link).copied().unwrap_or(1.0)
    }
}

/// What links carry of edges that send together.
#[derive(Default)]
struct Load {
    links: FxHashMap<u32, f64>,
    latency: f64,
    weight: f64,
    heaviest: f64,
    longest: f64,
    class: Option<PathClass>,
    /// Weights of edges between two switches that have not been laid, and one of these edges.
    apart: FxHashMap<(u32, u32), (f64, (RankId, RankId))>,
}

impl Load {
    /// What of it each link is busy with, in picoseconds for a bit, as a class that takes `bit` for one.
    fn class(&self, ways: &Ways<'_>, bit: f64) -> Class {
        let busy = |(&link, load): (&u32, &f64)| (link, load / ways.rate(LinkId(link)) * 1e12);
        let links = self.links.iter().map(busy).collect();
        Class { bit, flow: 1.0 / self.heaviest.max(f64::MIN_POSITIVE), links }
    }

    /// Adds what another has.
    #[expect(clippy::iter_over_hash_type, reason = "each goes to its own sum")]
    fn join(&mut self, other: &Self) {
        for (&link, load) in &other.links {
            *self.links.entry(link).or_default() += load;
        }
        self.latency += other.latency;
        self.weight += other.weight;
        self.longest = self.longest.max(other.longest);
        self.class = self.class.max(other.class);
    }

    fn edge(
        &mut self,
        ways: &Ways<'_>,
        route: &mut Route,
        (from, to): (RankId, RankId),
        weight: f64,
        entropy: u32,
    ) {
        if let Some(([a, b], links)) = ways.apart(from, to) {
            self.apart.entry((a, b)).or_insert((0.0, (from, to))).0 += weight;
            self.weight += weight;
            self.heaviest = self.heaviest.max(weight);
            for link in links {
                *self.links.entry(link.0).or_default() += weight;
            }
            return;
        }
        let latency = ways.lay(from, to, entropy, route).ps() as f64;
        self.latency += latency * weight;
        self.longest = self.longest.max(latency);
        self.weight += weight;
        self.heaviest = self.heaviest.max(weight);
        self.class = self.class.max(Some(route.class));
        for &(link, share) in &route.links {
            *self.links.entry(link.0).or_default() += share * weight;
        }
    }

    /// Lays what has only been counted.
    fn settle(&mut self, ways: &Ways<'_>, route: &mut Route) {
        let mut apart: Vec<_> = std::mem::take(&mut self.apart).into_iter().collect();
        apart.sort_unstable_by_key(|&(switches, _)| switches);
        for (switches, (weight, edge)) in apart {
            let way = ways.between(switches, edge, route);
            self.latency += way.latency * weight;
            self.longest = self.longest.max(way.latency);
            self.class = self.class.max(Some(way.class));
            for &(link, share) in &way.links {
                *self.links.entry(link).or_default() += share * weight;
            }
        }
    }

    /// Picoseconds for each bit that an edge of weight 1 sends.
    #[expect(clippy::iter_over_hash_type, reason = "a maximum has no order")]
    fn per_bit(&self, ways: &Ways<'_>) -> f64 {
        let mut most = 0.0f64;
        for (&link, load) in &self.links {
            most = most.max(load / ways.rate(LinkId(link)));
        }
        most * 1e12
    }

    fn mean_latency(&self) -> f64 {
        if self.weight > 0.0 { self.latency / self.weight } else { 0.0 }
    }
}

/// How the groups of a role exchange.
#[derive(Clone, Debug)]
pub(super) struct Tariff {
    n: u32,
    domain: u32,
    distances: Option<Distances>,
    library: Option<Library>,
    class: PathClass,
    latency: f64,
    /// Of rings, of one pipeline rank's groups and of all.
    ring: [f64; 2],
    /// Of exchanges between all members, likewise.
    pairs: [f64; 2],
    wire: Wire,
    known: RefCell<FxHashMap<Asked, [Part; 2]>>,
}

/// A collective, its bytes and the routing of its tokens.
type Asked = (CollectiveKind, u64, Option<Routing>);

impl Tariff {
    /// Times of a collective: beside those of its own pipeline rank, and beside all.
    fn times(&self, kind: CollectiveKind, bytes: u64, routing: Option<Routing>) -> [Part; 2] {
        if self.n < 2 || bytes == 0 {
            return [Part::default(); 2];
        }
        if let Some(&known) = self.known.borrow().get(&(kind, bytes, routing)) {
            return known;
        }
        let found = self.computed(kind, bytes, routing);
        self.known.borrow_mut().insert((kind, bytes, routing), found);
        found
    }

    fn computed(&self, kind: CollectiveKind, bytes: u64, routing: Option<Routing>) -> [Part; 2] {
        let spec = CollectiveSpec {
            domain: self.domain,
            distances: self.distances,
            library: self.library.clone(),
            routing,
            ..CollectiveSpec::new(kind, Bytes::new(bytes))
        };
        let wire = |payload: u64| self.wire.bytes(payload, self.class) as f64 * 8.0;
        let cost = self.library.as_ref().and_then(|library| library.0.cost_of(&spec, self.n));
        if let Some(cost) = cost {
            let (payload, rates) = match cost.algorithm {
                Algorithm::Direct => (cost.edge, self.pairs),
                _ => (cost.edge, self.ring),
            };
            let latency = (cost.before.ps() as f64).max(self.latency);
            return rates.map(|rate| Part { latency, work: wire(payload) * rate });
        }
        // By steps that nobody has closed: as a ring, and two levels of it where there are two.
        let Ok(plan) = Plan::new(&spec, self.n) else { return [Part::default(); 2] };
        if let Some(coupled) = plan.coupled() {
            let latency = f64::from(coupled.steps) * self.latency;
            return self.ring.map(|rate| Part { latency, work: wire(coupled.bytes) * rate });
        }
        let rounds = f64::from(plan.rounds(0)) / f64::from(plan.depth(0).max(1));
        let sent = match kind {
            CollectiveKind::AllReduce => 2 * bytes,
            _ => bytes,
        };
        let rates = if plan.is_exchange() { self.pairs } else { self.ring };
        let sent = if plan.is_exchange() { bytes / u64::from(self.n) } else { sent };
        rates.map(|rate| Part { latency: rounds * self.latency, work: wire(sent) * rate })
    }
}

/// Tariffs of a layout's groups.
#[derive(Debug)]
pub(super) struct Tariffs {
    roles: FxHashMap<Role, Tariff>,
    /// The same of groups of pipeline ranks that lie likewise; none where GPUs are alike.
    by_lie: FxHashMap<(Role, Lie), Tariff>,
    /// By pipeline rank: messages to the one after and to the one before, picoseconds a bit, latency, class.
    sides: Vec<[(f64, f64, PathClass); 2]>,
    wire: Wire,
    /// GPUs of each pipeline rank; none where all are alike and run as their sheet says.
    pub groups: Vec<Vec<Group>>,
    /// How exchanges of pipeline ranks share links.
    pub shares: Shares,
    classes: Vec<Class>,
    close: OnceCell<Shares>,
}

/// Tariffs of a stage by where it lies.
pub(super) struct At<'a> {
    tariffs: &'a Tariffs,
    lie: Lie,
}

impl At<'_> {
    fn of(&self, role: Role) -> Option<&Tariff> {
        let role = named(role);
        self.tariffs.by_lie.get(&(role, self.lie)).or_else(|| self.tariffs.roles.get(&role))
    }
}

impl Tolls for At<'_> {
    fn toll(&self, role: Role, kind: CollectiveKind, bytes: Bytes, routing: Option<Routing>) -> f64 {
        // Passes of all pipeline ranks exchange at the same time.
        self.of(role).map_or(0.0, |tariff| tariff.times(kind, bytes.get(), routing)[1].alone())
    }

    fn part(&self, role: Role, kind: CollectiveKind, bytes: Bytes) -> Part {
        self.of(role).map_or(Part::default(), |tariff| tariff.times(kind, bytes.get(), None)[0])
    }

    fn inside(&self, role: Role, kind: CollectiveKind, bytes: Bytes, routing: Option<Routing>) -> Part {
        self.of(role).map_or(Part::default(), |tariff| tariff.times(kind, bytes.get(), routing)[0])
    }
}

/// The role whose tariff stands for that of `role`.
fn named(role: Role) -> Role {
    match role {
        Role::Shard(_) | Role::Data => Role::Shard(0),
        Role::ExpertShard(_) => Role::ExpertShard(0),
        other => other,
    }
}

impl Tariffs {
    /// Of `layout` with stages at `placement`; `libraries` by dimension.
    pub(super) fn new(
        layout: &Layout,
        placement: Placement,
        libraries: &[Option<Library>; Dimension::ALL.len()],
        ways: &Ways<'_>,
    ) -> Self {
        let grid = Grid::new(layout);
        let lying = groups(layout.pp, &grid, ways.speeds, ways.gpus);
        let lies = Lie::all(&lying, ways.gpus);
        let (mut roles, mut by_lie) = (FxHashMap::default(), FxHashMap::default());
        let all = [
            (Role::Tp, Dimension::Tp),
            (Role::Cp, Dimension::Cp),
            (Role::Ep, Dimension::Ep),
            (Role::Shard(0), Dimension::Dp),
            (Role::ExpertShard(0), Dimension::Dp),
            (Role::Replicate, Dimension::Dp),
            (Role::Tied, Dimension::Pp),
            (Role::Pp, Dimension::Pp),
            (Role::World, Dimension::Other),
        ];
        let mut classes = vec![Class::default(); Of::ALL.len() * layout.pp as usize];
        for (number, (role, dimension)) in all.into_iter().enumerate() {
            if role.size(layout, placement) < 2 {
                continue;
            }
            let library = libraries[dimension as usize].clone();
            let groups = Groups::new(role, layout, &grid, placement);
            let all = |_: &[RankId]| true;
            let (tariff, loads) = tariff(&groups, number as u64, &grid, library.clone(), ways, &all);
            let bit_of = |tariff: &Tariff| if role == Role::Ep { tariff.pairs[0] } else { tariff.ring[0] };
            // What a bit takes the ranks of each set of kinds that wait for it longest.
            let mut bits: FxHashMap<u64, f64> = FxHashMap::default();
            for &lie in &lies {
                let own = |members: &[RankId]| lie.has(members, &grid, &lying, ways.gpus);
                if !groups.members.iter().any(|members| own(members)) {
                    continue;
                }
                let (found, _) = self::tariff(&groups, number as u64, &grid, library.clone(), ways, &own);
                let longest = bits.entry(lie.kinds).or_default();
                *longest = longest.max(bit_of(&found));
                by_lie.insert((role, lie), found);
            }
            let of = match role {
                Role::Shard(_) => Some(Of::Shard),
                Role::ExpertShard(_) => Some(Of::Expert),
                Role::Replicate => Some(Of::Across),
                Role::Tp => Some(Of::Tp),
                Role::Cp => Some(Of::Cp),
                Role::Ep => Some(Of::Ep),
                _ => None,
            };
            let bit_at = |rank: usize| {
                let own = lying.get(rank).and_then(|groups| bits.get(&Lie::kinds_of(groups)));
                own.copied().unwrap_or(bit_of(&tariff))
            };
            for (rank, load) in loads.iter().enumerate().filter(|(_, load)| load.weight > 0.0) {
                if let Some(of) = of {
                    classes[of.class(rank as u32, layout.pp) as usize] = load.class(ways, bit_at(rank));
                }
            }
            roles.insert(role, tariff);
        }
        let sides = sides(layout, &grid, ways, &mut classes);
        let shares = Shares::new(layout.pp, &classes);
        Self { roles, by_lie, sides, wire: ways.wire, groups: lying, shares, classes, close: OnceCell::new() }
    }

    /// The GPUs on which `stage` is computed; none where all are alike and run as their sheet says.
    pub(super) fn at_stage(&self, placement: Placement, stage: u32) -> Vec<Group> {
        if self.groups.is_empty() {
            return Vec::new();
        }
        placement
            .holders(stage)
            .iter()
            .flat_map(|&(rank, _)| self.groups[rank as usize].iter().copied())
            .collect()
    }

    /// What exchanges of stages take that lie so.
    pub(super) const fn at(&self, lie: Lie) -> At<'_> {
        At { tariffs: self, lie }
    }

    /// How exchanges share links, those inside passes among them.
    pub(super) fn close(&self) -> &Shares {
        if self.shares.meets() {
            return &self.shares;
        }
        self.close.get_or_init(|| Shares::close(self.sides.len() as u32, &self.classes))
    }

    /// What messages of `payload` take from `rank` to the one after, and to the one before.
    pub(super) fn sides(&self, rank: u32, payload: Bytes) -> [Side; 2] {
        self.sides[rank as usize].map(|(per_bit, latency, class)| Side {
            busy: self.wire.bytes(payload.get(), class) as f64 * 8.0 * per_bit,
            latency,
        })
    }
}

/// The tariff of a role's groups, and what the groups of each pipeline rank load.
fn tariff(
    groups: &Groups,
    number: u64,
    grid: &Grid,
    library: Option<Library>,
    ways: &Ways<'_>,
    own: &dyn Fn(&[RankId]) -> bool,
) -> (Tariff, Vec<Load>) {
    let n = groups.members[0].len() as u32;
    let domain = groups.domain.clamp(1, n);
    // The group that has the longest way sets the pace.
    let size = ways.topology.scale_up_size();
    let library = library.map(|library| {
        let Some(kinds) = &library.0.kinds else { return library };
        let members = groups.members.iter().filter(|members| own(members)).flatten();
        library.among(kinds.among(members.map(|rank| rank.0 / size)))
    });
    let sites = library.as_ref().and_then(|library| library.0.sites.as_ref());
    let distances = sites.and_then(|sites| {
        let of = |members: &Vec<RankId>| sites.distances(members, |rank| rank.0 / size);
        groups
            .members
            .iter()
            .filter(|members| own(members))
            .map(of)
            .max_by_key(|found| (found.far, found.ring))
    });
    // Which ring it is does not depend on the size.
    let mut spec = CollectiveSpec {
        domain,
        library: library.clone(),
        ..CollectiveSpec::new(CollectiveKind::AllGather, Bytes::new(1 << 26))
    };
    let plan = |spec: &CollectiveSpec| Plan::new(spec, n).ok().and_then(|plan| plan.coupled());
    let shape = plan(&spec).or_else(|| {
        spec.algorithm = Algorithm::Ring;
        plan(&spec)
    });
    let edges = shape.map_or_else(Vec::new, |shape| shape.edges);
    let stage = |members: &[RankId]| grid.coordinates(members[0]).pp as usize;
    let entropy = |index: usize| combine(combine(combine(0, number), index as u64), 0) as u32;
    let mut route = Route::new();
    let mut loads: Vec<Load> = Vec::new();
    for (index, members) in groups.members.iter().enumerate().filter(|(_, members)| own(members)) {
        let stage = stage(members);
        if loads.len() <= stage {
            loads.resize_with(stage + 1, Load::default);
        }
        for &(from, to, weight) in &edges {
            let edge = (members[from as usize], members[to as usize]);
            loads[stage].edge(ways, &mut route, edge, f64::from(weight), entropy(index));
        }
    }
    let mut all = Load::default();
    for load in &mut loads {
        load.settle(ways, &mut route);
        all.join(load);
    }
    let mut pairs_all = Load::default();
    let mut pairs: Vec<Load> = Vec::new();
    if groups.role == Role::Ep {
        pairs.resize_with(loads.len().max(1), Load::default);
        let most = PAIRS / (n as usize * n as usize).max(1);
        let some = groups.members.iter().enumerate().filter(|(_, members)| own(members));
        for (index, members) in some.take(most.max(1)) {
            let own = &mut pairs[stage(members)];
            for &from in members {
                for &to in members.iter().filter(|&&to| to != from) {
                    own.edge(ways, &mut route, (from, to), 1.0, entropy(index));
                }
            }
        }
        for load in &mut pairs {
            load.settle(ways, &mut route);
            pairs_all.join(load);
        }
    }
    // Of the first pipeline rank whose groups are asked for.
    fn first(loads: &[Load]) -> Option<&Load> {
        loads.iter().find(|load| load.weight > 0.0).or(loads.first())
    }
    let tariff = Tariff {
        n,
        domain,
        distances,
        library,
        class: all.class.unwrap_or(PathClass::Local),
        latency: all.mean_latency(),
        ring: [first(&loads).map_or(0.0, |own| own.per_bit(ways)), all.per_bit(ways)],
        pairs: [first(&pairs).map_or(0.0, |own| own.per_bit(ways)), pairs_all.per_bit(ways)],
        wire: ways.wire,
        known: RefCell::default(),
    };
    // What experts exchange goes between all of them.
    (tariff, if pairs.is_empty() { loads } else { pairs })
}

/// Messages between neighbouring pipeline ranks, those of all replicas at once.
fn sides(
    layout: &Layout,
    grid: &Grid,
    ways: &Ways<'_>,
    classes: &mut [Class],
) -> Vec<[(f64, f64, PathClass); 2]> {
    let pp = layout.pp;
    if pp < 2 {
        return vec![[(0.0, 0.0, PathClass::Local); 2]];
    }
    let mut route = Route::new();
    let mut side = |rank: u32, to: u32, of: Of| {
        let mut load = Load::default();
        for dp in 0..layout.dp {
            for ep in 0..layout.ep {
                for cp in 0..layout.cp {
                    for tp in 0..layout.tp {
                        let at = |pp| grid.rank(Coordinates { tp, cp, ep, pp, dp });
                        let pipeline = ((dp * layout.ep + ep) * layout.cp + cp) * layout.tp + tp;
                        let entropy = combine(combine(1, u64::from(pipeline)), u64::from(u32::MAX)) as u32;
                        load.edge(ways, &mut route, (at(rank), at(to)), 1.0, entropy);
                    }
                }
            }
        }
        load.settle(ways, &mut route);
        let bit = load.per_bit(ways);
        classes[of.class(rank, pp) as usize] = load.class(ways, bit);
        (bit, load.longest, load.class.unwrap_or(PathClass::Local))
    };
    (0..pp)
        .map(|rank| [side(rank, (rank + 1) % pp, Of::Up), side(rank, (rank + pp - 1) % pp, Of::Down)])
        .collect()
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::BitRate;
    use windtunnel_kernel::random::RandomStream;
    use windtunnel_topology::{
        BuildingSpec, CableSpec, CrossSpec, DEFAULT_PROPAGATION_PS_PER_M, HostSpec, RegionsSpec, Tier,
        TopologySpec,
    };

    use super::*;

    const RATE: BitRate = BitRate::from_gbps(400);

    /// Two buildings of two and three tiers, hosts of four GPUs with a NIC each.
    fn buildings() -> Topology {
        let building = |name: &str, ports: &[u32]| BuildingSpec {
            name: name.to_owned(),
            region: 0,
            hosts: 16,
            tiers: ports.iter().map(|&ports| Tier::new(ports, RATE)).collect(),
            scale_up: None,
        };
        let cable = CableSpec { length_mm: 3_000_000, ..CableSpec::new(RATE) };
        let spec = RegionsSpec {
            host: HostSpec::new(4, 4, RATE),
            buildings: vec![building("a", &[8, 8]), building("b", &[8, 4, 2])],
            cross: vec![CrossSpec { between: [0, 1], count: 6, cable }],
            propagation_ps_per_m: DEFAULT_PROPAGATION_PS_PER_M,
        };
        Topology::new(&TopologySpec::Regions(spec)).expect("two buildings")
    }

    /// What is laid between switches, for all edges at once, is what edges lay one by one.
    #[test]
    fn edges_between_two_switches_are_laid_as_one_by_one() {
        let topology = buildings();
        let (slow, between) = (FxHashMap::default(), RefCell::default());
        let nic_latency = Span::from_ns(600);
        let balancer = LoadBalancer::Spray;
        let ways = Ways {
            topology: &topology,
            balancer,
            seed: 1,
            slow: &slow,
            nic_latency,
            wire: Wire { mtu: Bytes::new(4150), header: Bytes::new(66), coding: None },
            between: &between,
            speeds: &[],
            gpus: &GpuKinds::default(),
        };
        let mut draws = RandomStream::new(7, "edges", 0);
        let mut route = Route::new();
        let (mut load, mut sums) = (Load::default(), FxHashMap::<u32, f64>::default());
        let (mut latency, mut longest, mut class) = (0.0, 0.0f64, None);
        for _ in 0..500 {
            let [from, to] = [0; 2].map(|_: u32| RankId(draws.below(u64::from(topology.endpoints())) as u32));
            let weight = 1.0 + draws.below(3) as f64;
            load.edge(&ways, &mut route, (from, to), weight, 0);
            let alone = ways.lay(from, to, 0, &mut route).ps() as f64;
            (latency, longest) = (latency + alone * weight, longest.max(alone));
            class = class.max(Some(route.class));
            for &(link, share) in &route.links {
                *sums.entry(link.0).or_default() += share * weight;
            }
        }
        load.settle(&ways, &mut route);
        assert!(between.borrow().known.len() > 50);
        assert_eq!((load.longest, load.class), (longest, class));
        assert!((load.latency / latency - 1.0).abs() < 1e-9);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * (1.0 + b);
        assert_eq!(load.links.len(), sums.len());
        assert!(sums.iter().all(|(link, &sum)| near(load.links[link], sum)));
    }
}
