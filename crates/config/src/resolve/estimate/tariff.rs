//! What exchanges of a layout take on a fabric: the library's closed form, and the links that its groups share.
//!
//! A collective passes what the library says that comes before its bytes, and then sends them over links whose load follows from
//! where its ranks are: the ways of all edges are laid as the flow model lays them, and the link that takes longest for a bit sets
//! the pace. Groups of one pipeline rank send at the same time; those of all ranks together where they do so throughout a step.

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Bytes, EndpointId, NicId, RankId, Span};
use windtunnel_topology::{LinkId, LoadBalancer, PathClass, Route, Topology};
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::dispatcher::Routing;
use windtunnel_workload::collectives::nccl::Library;
use windtunnel_workload::collectives::{Algorithm, CollectiveKind, CollectiveSpec, Plan};
use windtunnel_workload::estimate::{Class, Of, Part, Shares, Side, Tolls};
use windtunnel_workload::generate::{Coordinates, Grid, Groups, Layout, Role};
use windtunnel_workload::schedules::Placement;

/// Pairs of an exchange's members whose ways are laid at most; beyond, the first groups stand for all.
const PAIRS: usize = 1 << 18;

/// The fabric as flows see it.
pub(super) struct Ways<'a> {
    pub topology: &'a Topology,
    pub balancer: LoadBalancer,
    pub seed: u64,
    /// Links slower than the topology says, with the part of their rate that they have.
    pub slow: &'a FxHashMap<LinkId, f64>,
    pub nic_latency: Span,
    pub mtu: u64,
    pub header: u64,
}

impl Ways<'_> {
    fn lay(&self, from: RankId, to: RankId, entropy: u32, route: &mut Route) -> Span {
        // Jobs are placed packed, from the first GPU on.
        let (from, to) = (EndpointId(from.0), EndpointId(to.0));
        self.topology.route(self.balancer, self.seed, from, to, NicId(0), entropy, route);
        if route.class > PathClass::ScaleUp { route.latency + self.nic_latency } else { route.latency }
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
    library: Option<Library>,
    class: PathClass,
    latency: f64,
    /// Of rings, of one pipeline rank's groups and of all.
    ring: [f64; 2],
    /// Of exchanges between all members, likewise.
    pairs: [f64; 2],
    mtu: (u64, u64),
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
            library: self.library.clone(),
            routing,
            ..CollectiveSpec::new(kind, Bytes::new(bytes))
        };
        let wire = |payload: u64| {
            let packets = payload.div_ceil(self.mtu.0 - self.mtu.1);
            (payload + if self.class > PathClass::ScaleUp { packets * self.mtu.1 } else { 0 }) as f64 * 8.0
        };
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
    /// By pipeline rank: messages to the one after and to the one before, picoseconds a bit, latency, class.
    sides: Vec<[(f64, f64, PathClass); 2]>,
    mtu: (u64, u64),
    /// How exchanges of pipeline ranks share links.
    pub shares: Shares,
}

impl Tolls for Tariffs {
    fn toll(&self, role: Role, kind: CollectiveKind, bytes: Bytes, routing: Option<Routing>) -> f64 {
        // Passes of all pipeline ranks exchange at the same time.
        self.roles.get(&named(role)).map_or(0.0, |tariff| tariff.times(kind, bytes.get(), routing)[1].alone())
    }

    fn part(&self, role: Role, kind: CollectiveKind, bytes: Bytes) -> Part {
        self.roles
            .get(&named(role))
            .map_or(Part::default(), |tariff| tariff.times(kind, bytes.get(), None)[0])
    }

    fn meets(&self) -> bool {
        self.shares.meets()
    }

    fn inside(&self, role: Role, kind: CollectiveKind, bytes: Bytes, routing: Option<Routing>) -> Part {
        self.roles
            .get(&named(role))
            .map_or(Part::default(), |tariff| tariff.times(kind, bytes.get(), routing)[0])
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
        let mut roles = FxHashMap::default();
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
            let (tariff, loads) = tariff(&groups, number as u64, &grid, library, ways);
            let of = match role {
                Role::Shard(_) => Some(Of::Shard),
                Role::ExpertShard(_) => Some(Of::Expert),
                Role::Replicate => Some(Of::Across),
                Role::Tp => Some(Of::Tp),
                Role::Cp => Some(Of::Cp),
                Role::Ep => Some(Of::Ep),
                _ => None,
            };
            let bit = if role == Role::Ep { tariff.pairs[0] } else { tariff.ring[0] };
            for (rank, load) in loads.iter().enumerate().filter(|(_, load)| load.weight > 0.0) {
                if let Some(of) = of {
                    classes[of.class(rank as u32, layout.pp) as usize] = load.class(ways, bit);
                }
            }
            roles.insert(role, tariff);
        }
        let sides = sides(layout, &grid, ways, &mut classes);
        Self { roles, sides, mtu: (ways.mtu, ways.header), shares: Shares::new(layout.pp, &classes) }
    }

    /// What messages of `payload` take from `rank` to the one after, and to the one before.
    pub(super) fn sides(&self, rank: u32, payload: Bytes) -> [Side; 2] {
        self.sides[rank as usize].map(|(per_bit, latency, class)| {
            let packets = payload.get().div_ceil(self.mtu.0 - self.mtu.1);
            let wire = payload.get() + if class > PathClass::ScaleUp { packets * self.mtu.1 } else { 0 };
            Side { busy: wire as f64 * 8.0 * per_bit, latency }
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
) -> (Tariff, Vec<Load>) {
    let n = groups.members[0].len() as u32;
    let domain = groups.domain.clamp(1, n);
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
    for (index, members) in groups.members.iter().enumerate() {
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
    for load in &loads {
        all.join(load);
    }
    let mut pairs_all = Load::default();
    let mut pairs: Vec<Load> = Vec::new();
    if groups.role == Role::Ep {
        pairs.resize_with(loads.len().max(1), Load::default);
        let most = PAIRS / (n as usize * n as usize).max(1);
        for (index, members) in groups.members.iter().enumerate().take(most.max(1)) {
            let own = &mut pairs[stage(members)];
            for &from in members {
                for &to in members.iter().filter(|&&to| to != from) {
                    own.edge(ways, &mut route, (from, to), 1.0, entropy(index));
                }
            }
        }
        for load in &pairs {
            pairs_all.join(load);
        }
    }
    let tariff = Tariff {
        n,
        domain,
        library,
        class: all.class.unwrap_or(PathClass::Local),
        latency: all.mean_latency(),
        ring: [loads[0].per_bit(ways), all.per_bit(ways)],
        pairs: [pairs.first().map_or(0.0, |own| own.per_bit(ways)), pairs_all.per_bit(ways)],
        mtu: (ways.mtu, ways.header),
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
        let bit = load.per_bit(ways);
        classes[of.class(rank, pp) as usize] = load.class(ways, bit);
        (bit, load.longest, load.class.unwrap_or(PathClass::Local))
    };
    (0..pp)
        .map(|rank| [side(rank, (rank + 1) % pp, Of::Up), side(rank, (rank + pp - 1) % pp, Of::Down)])
        .collect()
}
