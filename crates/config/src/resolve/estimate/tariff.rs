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
use windtunnel_workload::estimate::{Side, Tolls};
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
    longest: f64,
    class: Option<PathClass>,
}

impl Load {
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
    known: RefCell<FxHashMap<Asked, [f64; 2]>>,
}

/// A collective, its bytes and the routing of its tokens.
type Asked = (CollectiveKind, u64, Option<Routing>);

impl Tariff {
    /// Times of a collective: beside those of its own pipeline rank, and beside all.
    fn times(&self, kind: CollectiveKind, bytes: u64, routing: Option<Routing>) -> [f64; 2] {
        if self.n < 2 || bytes == 0 {
            return [0.0; 2];
        }
        if let Some(&known) = self.known.borrow().get(&(kind, bytes, routing)) {
            return known;
        }
        let found = self.computed(kind, bytes, routing);
        self.known.borrow_mut().insert((kind, bytes, routing), found);
        found
    }

    fn computed(&self, kind: CollectiveKind, bytes: u64, routing: Option<Routing>) -> [f64; 2] {
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
            let before = (cost.before.ps() as f64).max(self.latency);
            return rates.map(|rate| before + wire(payload) * rate);
        }
        // By steps that nobody has closed: as a ring, and two levels of it where there are two.
        let Ok(plan) = Plan::new(&spec, self.n) else { return [0.0; 2] };
        if let Some(coupled) = plan.coupled() {
            let steps = f64::from(coupled.steps) * self.latency;
            return self.ring.map(|rate| steps + wire(coupled.bytes) * rate);
        }
        let rounds = f64::from(plan.rounds(0)) / f64::from(plan.depth(0).max(1));
        let sent = match kind {
            CollectiveKind::AllReduce => 2 * bytes,
            _ => bytes,
        };
        let rates = if plan.is_exchange() { self.pairs } else { self.ring };
        let sent = if plan.is_exchange() { bytes / u64::from(self.n) } else { sent };
        rates.map(|rate| rounds * self.latency + wire(sent) * rate)
    }
}

/// Tariffs of a layout's groups.
#[derive(Debug)]
pub(super) struct Tariffs {
    roles: FxHashMap<Role, Tariff>,
    /// By pipeline rank: messages to the one after and to the one before, picoseconds a bit, latency, class.
    sides: Vec<[(f64, f64, PathClass); 2]>,
    mtu: (u64, u64),
}

/// Tariffs for passes that reduce all the time, or only now and then.
pub(super) struct Rates<'a> {
    pub tariffs: &'a Tariffs,
    /// Whether data-parallel exchanges go on throughout a step.
    pub sharded: bool,
    /// How much of the others' such exchanges goes on at the same time then: none at 0, all of it at 1.
    pub together: f64,
}

impl Tolls for Rates<'_> {
    fn toll(&self, role: Role, kind: CollectiveKind, bytes: Bytes, routing: Option<Routing>) -> f64 {
        let role = match role {
            Role::Shard(_) | Role::Data => Role::Shard(0),
            Role::ExpertShard(_) => Role::ExpertShard(0),
            other => other,
        };
        let Some(tariff) = self.tariffs.roles.get(&role) else { return 0.0 };
        let data = matches!(role, Role::Shard(_) | Role::ExpertShard(_) | Role::Replicate);
        // Gathers at the start of a step are those of all ranks; gradients leave as one rank after the other ends.
        let together = match (data, self.sharded) {
            (false, _) => 1.0,
            (true, true) => self.together,
            (true, false) => f64::from(u8::from(kind == CollectiveKind::AllGather)),
        };
        let [alone, all] = tariff.times(kind, bytes.get(), routing);
        alone + (all - alone) * together
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
        for (number, (role, dimension)) in all.into_iter().enumerate() {
            if role.size(layout, placement) < 2 {
                continue;
            }
            let library = libraries[dimension as usize].clone();
            let groups = Groups::new(role, layout, &grid, placement);
            roles.insert(role, tariff(&groups, number as u64, &grid, library, ways));
        }
        Self { roles, sides: sides(layout, &grid, ways), mtu: (ways.mtu, ways.header) }
    }

    /// By how much data-parallel exchanges of all pipeline ranks at once are slower than those of one.
    pub(super) fn crowd(&self) -> f64 {
        let of = |role: &Role| match self.roles.get(role) {
            Some(tariff) if tariff.ring[0] > 0.0 => tariff.ring[1] / tariff.ring[0],
            _ => 1.0,
        };
        [Role::Shard(0), Role::ExpertShard(0), Role::Replicate].iter().map(of).fold(1.0, f64::max)
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

fn tariff(groups: &Groups, number: u64, grid: &Grid, library: Option<Library>, ways: &Ways<'_>) -> Tariff {
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
    let first_stage = |members: &[RankId]| grid.coordinates(members[0]).pp == 0;
    let entropy = |index: usize| combine(combine(combine(0, number), index as u64), 0) as u32;
    let mut route = Route::new();
    let (mut own, mut all) = (Load::default(), Load::default());
    for (index, members) in groups.members.iter().enumerate() {
        for &(from, to, weight) in &edges {
            let edge = (members[from as usize], members[to as usize]);
            all.edge(ways, &mut route, edge, f64::from(weight), entropy(index));
            if first_stage(members) {
                own.edge(ways, &mut route, edge, f64::from(weight), entropy(index));
            }
        }
    }
    let (mut pairs_own, mut pairs_all) = (Load::default(), Load::default());
    if groups.role == Role::Ep {
        let most = PAIRS / (n as usize * n as usize).max(1);
        for (index, members) in groups.members.iter().enumerate().take(most.max(1)) {
            for &from in members {
                for &to in members.iter().filter(|&&to| to != from) {
                    pairs_all.edge(ways, &mut route, (from, to), 1.0, entropy(index));
                    if first_stage(members) {
                        pairs_own.edge(ways, &mut route, (from, to), 1.0, entropy(index));
                    }
                }
            }
        }
    }
    Tariff {
        n,
        domain,
        library,
        class: all.class.unwrap_or(PathClass::Local),
        latency: all.mean_latency(),
        ring: [own.per_bit(ways), all.per_bit(ways)],
        pairs: [pairs_own.per_bit(ways), pairs_all.per_bit(ways)],
        mtu: (ways.mtu, ways.header),
        known: RefCell::default(),
    }
}

/// Messages between neighbouring pipeline ranks, those of all replicas at once.
fn sides(layout: &Layout, grid: &Grid, ways: &Ways<'_>) -> Vec<[(f64, f64, PathClass); 2]> {
    let pp = layout.pp;
    if pp < 2 {
        return vec![[(0.0, 0.0, PathClass::Local); 2]];
    }
    let mut route = Route::new();
    let mut side = |rank: u32, to: u32| {
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
        (load.per_bit(ways), load.longest, load.class.unwrap_or(PathClass::Local))
    };
    (0..pp).map(|rank| [side(rank, (rank + 1) % pp), side(rank, (rank + pp - 1) % pp)]).collect()
}
