//! The one public type: a cluster's hosts and the fabric between them.

use windtunnel_kernel::{EndpointId, NicId, Span};

use crate::any_shape::{AnyShape, each};
use crate::bcube::BCube;
use crate::choose::choose_plane;
use crate::clos::{Clos, SwitchRule};
use crate::dragonfly::{Dragonfly, DragonflyPlus};
use crate::edge::Edge;
use crate::error::TopologyError;
use crate::graph::{self, Graph};
use crate::hamming::HammingMesh;
use crate::hash::EcmpHash;
use crate::hosts::Hosts;
use crate::link::{Link, LinkId, LinkTier, LoadBalancer, Node, PathClass, Route};
use crate::mesh::FullMesh;
use crate::port::{Itinerary, Peer, PortSet, SwitchId, Target};
use crate::regions::Regions;
use crate::shape::{Cable, Coordinates, Far, Shape, Site};
use crate::spec::TopologySpec;
use crate::summary::{self, TopologySummary};
use crate::torus::Torus;
use crate::walk::Walk;

/// A pair of NICs to be joined and what the load balancer may know of the flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) balancer: LoadBalancer,
    pub(crate) seed: u64,
    /// Host and NIC within it.
    pub(crate) from: (u32, u32),
    pub(crate) to: (u32, u32),
    pub(crate) entropy: u32,
    pub(crate) hash: EcmpHash,
}

/// The hierarchical address of a NIC: region, building, pod, rack, host in the rack, NIC in the host. In shapes without
/// one of the levels its digit is 0; pods and racks are counted within their building.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostAddress {
    /// Several buildings near each other.
    pub region: u32,
    /// Of the region.
    pub building: u32,
    /// The hosts that need no switch above tier 1, a group of a dragonfly, a plane of a torus.
    pub pod: u32,
    /// The hosts on one switch, or with rails on one group of leaves.
    pub rack: u32,
    /// Within the rack.
    pub host: u32,
    /// Within the host.
    pub nic: u32,
}

/// A cluster: hosts, scale-up domains, NICs, switches and links, all by rule.
///
/// ```
/// use windtunnel_kernel::{BitRate, EndpointId, NicId};
/// use windtunnel_topology::{ClosSpec, LoadBalancer, Route, Topology, TopologySpec};
///
/// let spec = ClosSpec::fat_tree(4, BitRate::from_gbps(100));
/// let topology = Topology::new(&TopologySpec::Clos(spec))?;
/// let mut route = Route::new();
/// topology.route(LoadBalancer::DestinationModulo, 1, EndpointId(0), EndpointId(13), NicId(0), 0, &mut route);
/// let names: Vec<String> = route.links.iter().map(|&(link, _)| topology.link_name(link)).collect();
/// assert_eq!(names[..3], ["host0/nic0 -> leaf0", "leaf0 -> agg0.1", "agg0.1 -> spine1"]);
/// assert_eq!(names[3..], ["spine1 -> agg3.1", "agg3.1 -> leaf6", "leaf6 -> host13/nic0"]);
/// # Ok::<(), windtunnel_topology::TopologyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) hosts: Hosts,
    pub(crate) edge: Edge,
    pub(crate) shape: AnyShape,
    pub(crate) hash: EcmpHash,
    links: u32,
}

impl Topology {
    /// Checks `spec` and works out its rules: a few numbers per tier.
    ///
    /// # Errors
    /// [`TopologyError`] for a spec that is inconsistent or describes too small a fabric.
    pub fn new(spec: &TopologySpec) -> Result<Self, TopologyError> {
        let (hosts, planes, shape) = match spec {
            TopologySpec::Clos(spec) => {
                let hosts = Hosts::new(spec.hosts, &spec.host)?;
                let shape = AnyShape::Clos(Clos::new(spec, &hosts)?);
                (hosts, spec.planes, shape)
            }
            TopologySpec::Torus(spec) => {
                let hosts = Torus::hosts(spec)?;
                let shape = AnyShape::Torus(Torus::new(spec, &hosts)?);
                (hosts, 1, shape)
            }
            TopologySpec::Dragonfly(spec) => {
                let hosts = Dragonfly::hosts(spec)?;
                let shape = AnyShape::Dragonfly(Dragonfly::new(spec, &hosts)?);
                (hosts, 1, shape)
            }
            TopologySpec::DragonflyPlus(spec) => {
                let hosts = DragonflyPlus::hosts(spec)?;
                let shape = AnyShape::DragonflyPlus(DragonflyPlus::new(spec, &hosts)?);
                (hosts, 1, shape)
            }
            TopologySpec::Graph(spec) => {
                let (count, inside) = graph::host_spec(spec)?;
                let hosts = Hosts::new(count, &inside)?;
                let shape = AnyShape::Graph(Box::new(Graph::new(spec, &hosts)?));
                (hosts, 1, shape)
            }
            TopologySpec::BCube(spec) => {
                let hosts = BCube::hosts(spec)?;
                let shape = AnyShape::BCube(BCube::new(spec, &hosts)?);
                (hosts, 1, shape)
            }
            TopologySpec::HammingMesh(spec) => {
                let hosts = HammingMesh::hosts(spec)?;
                let shape = AnyShape::HammingMesh(HammingMesh::new(spec, &hosts)?);
                (hosts, 1, shape)
            }
            TopologySpec::FullMesh(spec) => {
                let hosts = FullMesh::hosts(spec)?;
                let shape = AnyShape::FullMesh(FullMesh::new(spec, &hosts)?);
                (hosts, 1, shape)
            }
            TopologySpec::Regions(spec) => {
                let hosts = Regions::hosts(spec)?;
                let shape = AnyShape::Regions(Regions::new(spec, &hosts)?);
                (hosts, 1, shape)
            }
        };
        let edge = Edge::new(&hosts, planes)?;
        let links = edge.end(u64::from(each!(&shape, shape => shape.fabric_links())))?;
        Ok(Self { hosts, edge, shape, hash: EcmpHash::default(), links })
    }

    /// The same with switches that hash by `hash`, for [`LoadBalancer::Ecmp`].
    #[must_use]
    pub fn with_hash(self, hash: EcmpHash) -> Self {
        Self { hash, ..self }
    }

    /// What its switches hash by.
    pub fn hash(&self) -> EcmpHash {
        self.hash
    }

    /// What all switches of a route share of their choices, for NICs counted over all hosts and the entropy of a queue pair.
    #[inline]
    pub fn flow_hash(&self, seed: u64, from: u32, to: u32, entropy: u32) -> u64 {
        self.hash.flow_hash(seed, u64::from(from), u64::from(to), entropy)
    }

    /// Number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts.count
    }

    /// Number of GPUs, ids `0..endpoints`.
    pub fn endpoints(&self) -> u32 {
        self.hosts.endpoints()
    }

    /// GPUs of a host.
    pub fn endpoints_per_host(&self) -> u32 {
        self.hosts.gpus.get()
    }

    /// NICs of a host.
    pub fn nics_per_host(&self) -> u32 {
        self.hosts.nics
    }

    /// NICs of all hosts, counted host-major.
    pub fn nics(&self) -> u32 {
        self.edge.nics
    }

    /// NICs that a GPU may use, at least 1; GPUs may share them.
    pub fn nics_per_endpoint(&self) -> u32 {
        self.hosts.nics_per_gpu.get()
    }

    /// The NIC, counted over all hosts, that an endpoint calls `nic` (taken modulo those it has).
    #[inline]
    pub fn nic(&self, endpoint: EndpointId, nic: NicId) -> u32 {
        let place = self.hosts.place(endpoint);
        place.host * self.hosts.nics + self.hosts.nic(place.gpu, nic.0)
    }

    /// Copies of the switch fabric; every NIC has one port into each.
    pub fn planes(&self) -> u32 {
        self.edge.planes
    }

    /// GPUs of a scale-up domain; 1 if there is none.
    pub fn scale_up_size(&self) -> u32 {
        self.hosts.domain.get()
    }

    /// Rate of a GPU's scale-up link in each direction, and its latency.
    pub fn scale_up(&self) -> (windtunnel_kernel::BitRate, Span) {
        self.hosts.scale_up()
    }

    /// The same of one GPU, which differs between buildings whose hosts do.
    pub fn scale_up_of(&self, endpoint: EndpointId) -> (windtunnel_kernel::BitRate, Span) {
        self.hosts.scale_up_of(endpoint)
    }

    /// The rates and latencies of scale-up links that there are, in the order of their hosts.
    pub fn scale_ups(&self) -> Vec<(windtunnel_kernel::BitRate, Span)> {
        self.hosts.scale_ups()
    }

    /// Name of the shape: `clos`, `torus`, …
    pub fn shape_name(&self) -> &'static str {
        each!(&self.shape, shape => shape.name())
    }

    /// Number of directed links, ids `0..link_count`.
    pub fn link_count(&self) -> usize {
        self.links as usize
    }

    /// Switches of all planes, ids `0..switches`.
    pub fn switches(&self) -> u32 {
        each!(&self.shape, shape => shape.switches())
    }

    /// Ports of a switch, cabled or not.
    #[inline]
    pub fn ports(&self, switch: SwitchId) -> u32 {
        each!(&self.shape, shape => shape.ports(switch.0))
    }

    /// What a port is cabled to; `None` without a cable.
    #[inline]
    pub fn peer(&self, switch: SwitchId, port: u32) -> Option<Peer> {
        Some(match each!(&self.shape, shape => shape.peer(switch.0, port))? {
            Far::Switch { switch, port } => Peer::Switch { switch: SwitchId(switch), port },
            Far::Nic { nic, plane } => Peer::Nic { nic, plane },
        })
    }

    /// The switch and port that a NIC is cabled to in a plane.
    #[inline]
    pub fn attachment(&self, nic: u32, plane: u32) -> (SwitchId, u32) {
        let (switch, port) = each!(&self.shape, shape => shape.attachment(nic, plane));
        (SwitchId(switch), port)
    }

    /// The link from a NIC into a plane.
    #[inline]
    pub fn nic_link(&self, nic: u32, plane: u32) -> LinkId {
        self.edge.up(nic, plane)
    }

    /// The link that leaves a port; `None` without a cable.
    #[inline]
    pub fn out_link(&self, switch: SwitchId, port: u32) -> Option<LinkId> {
        each!(&self.shape, shape => match shape.peer(switch.0, port)? {
            Far::Switch { .. } => Some(self.edge.between(shape.link(switch.0, port))),
            Far::Nic { nic, plane } => Some(self.edge.down(nic, plane)),
        })
    }

    /// The other direction of a link's cable; of a scale-up link the GPU's other one.
    pub fn reverse(&self, link: LinkId) -> LinkId {
        if link.0 < self.hosts.link_count() {
            return self.hosts.reverse(link);
        }
        if let Some((nic, plane, outwards)) = self.edge.part(link) {
            return if outwards { self.edge.down(nic, plane) } else { self.edge.up(nic, plane) };
        }
        each!(&self.shape, shape => {
            let (switch, port) = shape.link_source(link.0 - self.edge.fabric);
            match shape.peer(switch, port) {
                Some(Far::Switch { switch, port }) => self.edge.between(shape.link(switch, port)),
                _ => link,
            }
        })
    }

    /// The switch port that a link leaves; `None` where it leaves a NIC or a GPU.
    pub fn link_source(&self, link: LinkId) -> Option<(SwitchId, u32)> {
        if link.0 < self.hosts.link_count() {
            return None;
        }
        let (switch, port) = match self.edge.part(link) {
            Some((_, _, true)) => return None,
            Some((nic, plane, false)) => each!(&self.shape, shape => shape.attachment(nic, plane)),
            None => each!(&self.shape, shape => shape.link_source(link.0 - self.edge.fabric)),
        };
        Some((SwitchId(switch), port))
    }

    /// The link of an id.
    pub fn link(&self, link: LinkId) -> Link {
        debug_assert!((link.0 as usize) < self.link_count(), "{link:?} of {}", self.link_count());
        if link.0 < self.hosts.link_count() {
            return self.hosts.link(link);
        }
        each!(&self.shape, shape => {
            let (cable, tier, far) = match self.edge.part(link) {
                Some((nic, plane, outwards)) => {
                    let (switch, port) = shape.attachment(nic, plane);
                    let tier = if outwards { LinkTier::NicUp } else { LinkTier::NicDown };
                    (shape.cable(switch, port), tier, outwards.then_some(switch))
                }
                None => {
                    let (switch, port) = shape.link_source(link.0 - self.edge.fabric);
                    let far = match shape.peer(switch, port) {
                        Some(Far::Switch { switch, .. }) => Some(switch),
                        _ => None,
                    };
                    (shape.cable(switch, port), shape.link_tier(switch, port), far)
                }
            };
            let Cable { rate, propagation, loss, .. } = cable;
            let delay = far.map_or(Span::ZERO, |switch| shape.delay(switch));
            Link { rate, latency: propagation + delay, propagation, loss, tier }
        })
    }

    /// Length of a link's cable in millimetres; 0 where it has none or it is unknown.
    pub fn cable_length_mm(&self, link: LinkId) -> u64 {
        if link.0 < self.hosts.link_count() {
            return 0;
        }
        each!(&self.shape, shape => {
            let (switch, port) = match self.edge.part(link) {
                Some((nic, plane, _)) => shape.attachment(nic, plane),
                None => shape.link_source(link.0 - self.edge.fabric),
            };
            shape.cable(switch, port).length_mm
        })
    }

    /// Pipeline delay of a switch.
    pub fn switch_delay(&self, switch: SwitchId) -> Span {
        each!(&self.shape, shape => shape.delay(switch.0))
    }

    /// Where a link begins and where it ends.
    pub fn link_ends(&self, link: LinkId) -> (Node, Node) {
        debug_assert!((link.0 as usize) < self.link_count(), "{link:?} of {}", self.link_count());
        if link.0 < self.hosts.link_count() {
            return self.hosts.link_ends(link);
        }
        each!(&self.shape, shape => match self.edge.part(link) {
            Some((nic, plane, outwards)) => {
                let ends = (Node::Nic(nic), Node::Switch(SwitchId(shape.attachment(nic, plane).0)));
                if outwards { ends } else { (ends.1, ends.0) }
            }
            None => {
                let (switch, port) = shape.link_source(link.0 - self.edge.fabric);
                let far = match shape.peer(switch, port) {
                    Some(Far::Switch { switch, .. }) => Node::Switch(SwitchId(switch)),
                    Some(Far::Nic { nic, .. }) => Node::Nic(nic),
                    None => Node::Switch(SwitchId(switch)),
                };
                (Node::Switch(SwitchId(switch)), far)
            }
        })
    }

    /// A readable name, unique among links: `host3/nic2 -> leaf0.2`, `leaf0.2 -> spine5`, of parallel links
    /// `leaf0 -> spine5 #1`.
    pub fn link_name(&self, link: LinkId) -> String {
        let (from, to) = self.link_ends(link);
        let parallel = match (from, to, self.link_source(link)) {
            (Node::Switch(_), Node::Switch(_), Some((switch, port))) => {
                each!(&self.shape, shape => shape.parallel(switch.0, port))
            }
            _ => None,
        };
        let suffix = parallel.map(|index| format!(" #{index}")).unwrap_or_default();
        format!("{} -> {}{suffix}", self.node_name(from), self.node_name(to))
    }

    /// A readable name, unique among nodes: `host3/gpu1`, `host3/nic2`, `leaf0.2` (group and rail), `spine5`.
    pub fn node_name(&self, node: Node) -> String {
        match node {
            Node::Gpu(endpoint) => {
                let place = self.hosts.place(endpoint);
                format!("host{}/gpu{}", place.host, place.gpu)
            }
            Node::ScaleUp(domain) => self.hosts.domain_name(domain),
            Node::Nic(nic) => format!("host{}/nic{}", nic / self.hosts.nics, nic % self.hosts.nics),
            Node::Switch(switch) => each!(&self.shape, shape => shape.switch_name(switch.0)),
        }
    }

    /// What the digits of [`Self::coordinates`] stand for, outermost first.
    pub fn axes(&self) -> Vec<String> {
        each!(&self.shape, shape => shape.axes())
    }

    /// The hierarchical address of a switch.
    pub fn coordinates(&self, switch: SwitchId) -> Coordinates {
        each!(&self.shape, shape => shape.coordinates(switch.0))
    }

    /// The switch of an address; `None` for an address that is none.
    pub fn switch_at(&self, coordinates: &[u32]) -> Option<SwitchId> {
        each!(&self.shape, shape => shape.switch_at(coordinates)).map(SwitchId)
    }

    /// Tier of a switch, from 0 at the hosts; shapes without tiers have one.
    pub fn tier(&self, switch: SwitchId) -> u8 {
        each!(&self.shape, shape => shape.tier(switch.0))
    }

    /// What switches of a tier are called: `leaf`, `spine`, `router`, …
    pub fn tier_name(&self, tier: u8) -> String {
        each!(&self.shape, shape => shape.tier_name(tier))
    }

    /// The hierarchical address of a NIC.
    pub fn address(&self, nic: u32) -> HostAddress {
        let (host, nic) = (nic / self.hosts.nics, nic % self.hosts.nics);
        let Site { region, building, pod, rack, slot } = each!(&self.shape, shape => shape.site(host));
        HostAddress { region, building, pod, rack, host: slot, nic }
    }

    /// The building of a NIC by name; `None` in shapes whose buildings have none.
    pub fn building_name(&self, nic: u32) -> Option<&str> {
        match &self.shape {
            AnyShape::Regions(regions) => Some(regions.building_name(nic / self.hosts.nics)),
            _ => None,
        }
    }

    /// The NIC of an address; `None` for an address that is none.
    pub fn nic_at(&self, address: HostAddress) -> Option<u32> {
        let HostAddress { region, building, pod, rack, host: slot, nic } = address;
        let site = Site { region, building, pod, rack, slot };
        let host = each!(&self.shape, shape => shape.host_at(site))?;
        (nic < self.hosts.nics).then(|| host * self.hosts.nics + nic)
    }

    /// How far apart two endpoints are by their first NICs.
    pub fn path_class(&self, from: EndpointId, to: EndpointId) -> PathClass {
        if from == to {
            return PathClass::Local;
        }
        if self.hosts.same_domain(from, to) {
            return PathClass::ScaleUp;
        }
        let switch = |endpoint| self.attachment(self.nic(endpoint, NicId(0)), 0).0.0;
        each!(&self.shape, shape => shape.class(switch(from), switch(to)))
    }

    /// Where a packet to a NIC is to go in a plane.
    #[inline]
    pub fn target(&self, nic: u32, plane: u32) -> Target {
        let (switch, port) = self.attachment(nic, plane);
        Target { nic, plane, switch, port }
    }

    /// The plane that a flow of the given [`flow_hash`](crate::flow_hash) takes.
    #[inline]
    pub fn plane(&self, flow_hash: u64) -> u32 {
        if self.edge.planes == 1 { 0 } else { choose_plane(flow_hash, self.edge.planes) }
    }

    /// Where a packet that enters the fabric at `from` must go first. `queue` tells the bytes that wait at a port of
    /// `from`; only rules that adapt to load ask.
    #[inline]
    pub fn enter(
        &self,
        from: SwitchId,
        to: &Target,
        flow_hash: u64,
        queue: impl Fn(u32) -> u64,
    ) -> Itinerary {
        if from == to.switch {
            return Itinerary::DIRECT;
        }
        let waypoint = each!(&self.shape, shape => shape.waypoint(from.0, to.switch.0, flow_hash, queue));
        waypoint.map_or(Itinerary::DIRECT, |switch| Itinerary::via(SwitchId(switch)))
    }

    /// The ports of `at` that are equally good for a packet: the first hops of all shortest legal paths, written over
    /// `ports`. Returns what the packet carries from here on.
    #[inline]
    pub fn equal_cost(
        &self,
        at: SwitchId,
        to: &Target,
        itinerary: Itinerary,
        ports: &mut PortSet,
    ) -> Itinerary {
        ports.clear();
        let itinerary = if itinerary.waypoint() == Some(at) { Itinerary::DIRECT } else { itinerary };
        let goal = itinerary.waypoint().unwrap_or(to.switch);
        if at == goal {
            ports.push(to.port);
        } else {
            each!(&self.shape, shape => shape.shortest(at.0, goal.0, ports));
        }
        itinerary
    }

    /// The port that a packet of a flow of the given [`flow_hash`](crate::flow_hash) takes at `at`, and what it
    /// carries from there on: [`crate::choose()`] among [`Self::equal_cost`].
    #[inline]
    pub fn next_hop(
        &self,
        at: SwitchId,
        to: &Target,
        itinerary: Itinerary,
        flow_hash: u64,
    ) -> (u32, Itinerary) {
        let itinerary = if itinerary.waypoint() == Some(at) { Itinerary::DIRECT } else { itinerary };
        let goal = itinerary.waypoint().unwrap_or(to.switch);
        if at == goal {
            return (to.port, itinerary);
        }
        let port = each!(&self.shape, shape => shape.pick(at.0, goal.0, flow_hash));
        (port, itinerary)
    }

    /// [`Self::next_hop`] from `at` on, with what depends on `at` alone worked out; `None` for shapes without such a form.
    /// Where there is one, packets carry nothing ([`Itinerary::DIRECT`]).
    pub fn switch_rule(&self, at: SwitchId) -> Option<SwitchRule> {
        match &self.shape {
            AnyShape::Clos(clos) => Some(clos.switch_rule(at.0)),
            _ => None,
        }
    }

    /// The way from one endpoint to another, written over `route`: a pure function of its arguments.
    ///
    /// `nic` is one of the sender's NICs (taken modulo [`Self::nics_per_endpoint`]); the receiver takes it on its NIC of
    /// the same number. `seed` and `entropy` matter to [`LoadBalancer::Ecmp`] alone, and to rules that take detours.
    /// Allocates only where a route has more than 8 links: spraying, or long paths.
    #[inline]
    pub fn route(
        &self,
        balancer: LoadBalancer,
        seed: u64,
        from: EndpointId,
        to: EndpointId,
        nic: NicId,
        entropy: u32,
        route: &mut Route,
    ) {
        if self.inside(from, to, route) {
            return;
        }
        let (a, b) = (self.hosts.place(from), self.hosts.place(to));
        let request = Request {
            balancer,
            seed,
            from: (a.host, self.hosts.nic(a.gpu, nic.0)),
            to: (b.host, self.hosts.nic(b.gpu, nic.0)),
            entropy,
            hash: self.hash,
        };
        // Only some shapes have a formula for whole paths.
        if let AnyShape::Clos(clos) = &self.shape {
            return clos.route(&request, route);
        }
        each!(&self.shape, shape => Walk { shape, edge: &self.edge }.route(&request, route));
    }

    /// The route of two endpoints that need no NIC; `false` if they need one. Leaves `route` empty then.
    #[inline]
    pub(crate) fn inside(&self, from: EndpointId, to: EndpointId, route: &mut Route) -> bool {
        route.links.clear();
        if from == to {
            (route.latency, route.class) = (Span::ZERO, PathClass::Local);
            return true;
        }
        if self.hosts.same_domain(from, to) {
            route.links.push((Hosts::out_link(from), 1.0));
            route.links.push((self.hosts.in_link(to), 1.0));
            (route.latency, route.class) = (self.hosts.scale_up_of(from).1, PathClass::ScaleUp);
            return true;
        }
        false
    }

    /// Sizes, rates and distances.
    pub fn summary(&self) -> TopologySummary {
        // Only some shapes have a formula for their counts.
        if let AnyShape::Clos(clos) = &self.shape {
            return clos.summary(&self.hosts);
        }
        let mut counted = each!(&self.shape, shape => summary::count(shape, &self.hosts, &self.edge));
        if let AnyShape::Regions(regions) = &self.shape {
            counted.tiers = regions.tier_summaries();
        }
        counted
    }
}
