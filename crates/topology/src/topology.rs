//! The one public type: a cluster's hosts and the fabric between them.

use windtunnel_kernel::{EndpointId, NicId, Span};

use crate::clos::Clos;
use crate::error::TopologyError;
use crate::hosts::Hosts;
use crate::link::{Link, LinkId, LoadBalancer, Node, PathClass, Route, SwitchAddress};
use crate::spec::TopologySpec;
use crate::summary::TopologySummary;

/// A pair of NICs to be joined and what the load balancer may know of the flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) balancer: LoadBalancer,
    pub(crate) seed: u64,
    /// Host and NIC within it.
    pub(crate) from: (u32, u32),
    pub(crate) to: (u32, u32),
    pub(crate) entropy: u32,
}

/// The switch fabric. Shapes are told apart by a branch, not by a table of functions, so that a route is inlined.
#[derive(Clone, Debug)]
enum Shape {
    Clos(Clos),
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
    hosts: Hosts,
    shape: Shape,
}

impl Topology {
    /// Checks `spec` and works out its rules: a few numbers per tier.
    ///
    /// # Errors
    /// [`TopologyError`] for a spec that is inconsistent or describes too small a fabric.
    pub fn new(spec: &TopologySpec) -> Result<Self, TopologyError> {
        let TopologySpec::Clos(clos) = spec;
        let hosts = Hosts::new(clos.hosts, &clos.host)?;
        let shape = Shape::Clos(Clos::new(clos, hosts.link_count())?);
        Ok(Self { hosts, shape })
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

    /// NICs that a GPU may use, at least 1; GPUs may share them.
    pub fn nics_per_endpoint(&self) -> u32 {
        self.hosts.nics_per_gpu.get()
    }

    /// GPUs of a scale-up domain; 1 if there is none.
    pub fn scale_up_size(&self) -> u32 {
        self.hosts.domain.get()
    }

    /// Number of directed links, ids `0..link_count`.
    pub fn link_count(&self) -> usize {
        let Shape::Clos(clos) = &self.shape;
        clos.end_link() as usize
    }

    /// The link of an id.
    pub fn link(&self, link: LinkId) -> Link {
        debug_assert!((link.0 as usize) < self.link_count(), "{link:?} of {}", self.link_count());
        let Shape::Clos(clos) = &self.shape;
        if link.0 < self.hosts.link_count() { self.hosts.link(link) } else { clos.link(link) }
    }

    /// Where a link begins and where it ends.
    pub fn link_ends(&self, link: LinkId) -> (Node, Node) {
        debug_assert!((link.0 as usize) < self.link_count(), "{link:?} of {}", self.link_count());
        let Shape::Clos(clos) = &self.shape;
        if link.0 < self.hosts.link_count() {
            self.hosts.link_ends(link)
        } else {
            let (from, to, _) = clos.link_ends(link);
            (from, to)
        }
    }

    /// A readable name, unique among links: `host3/nic2 -> leaf0.2`, `leaf0.2 -> spine5`, of parallel links
    /// `leaf0 -> spine5 #1`.
    pub fn link_name(&self, link: LinkId) -> String {
        let Shape::Clos(clos) = &self.shape;
        if link.0 < self.hosts.link_count() {
            let (from, to) = self.hosts.link_ends(link);
            return format!("{} -> {}", self.node_name(from), self.node_name(to));
        }
        let (from, to, parallel) = clos.link_ends(link);
        let suffix = parallel.map(|index| format!(" #{index}")).unwrap_or_default();
        format!("{} -> {}{suffix}", self.node_name(from), self.node_name(to))
    }

    /// A readable name, unique among nodes: `host3/gpu1`, `host3/nic2`, `leaf0.2` (group and rail), `spine5`.
    pub fn node_name(&self, node: Node) -> String {
        let Shape::Clos(clos) = &self.shape;
        match node {
            Node::Gpu(endpoint) => {
                let place = self.hosts.place(endpoint);
                format!("host{}/gpu{}", place.host, place.gpu)
            }
            Node::ScaleUp(domain) => {
                let per_host = self.hosts.domains_per_host();
                let (host, index) = (domain / per_host, domain % per_host);
                if per_host == 1 {
                    format!("host{host}/scale-up")
                } else {
                    format!("host{host}/scale-up{index}")
                }
            }
            Node::Nic(nic) => format!("host{}/nic{}", nic / self.hosts.nics, nic % self.hosts.nics),
            Node::Switch(address) => clos.switch_name(address),
        }
    }

    /// A dense number of a switch, `0..switches`: what [`crate::choose`] takes. `None` for an address that is none.
    pub fn switch_number(&self, switch: SwitchAddress) -> Option<u64> {
        let Shape::Clos(clos) = &self.shape;
        clos.switch_number(switch)
    }

    /// How far apart two endpoints are by their first NICs.
    pub fn path_class(&self, from: EndpointId, to: EndpointId) -> PathClass {
        if from == to {
            return PathClass::Local;
        }
        let (a, b) = (self.hosts.place(from), self.hosts.place(to));
        if self.hosts.same_domain(a, b) {
            return PathClass::ScaleUp;
        }
        let Shape::Clos(clos) = &self.shape;
        clos.path_class((a.host, self.hosts.nic(a.gpu, 0)), (b.host, self.hosts.nic(b.gpu, 0)))
    }

    /// The way from one endpoint to another, written over `route`: a pure function of its arguments.
    ///
    /// `nic` is one of the sender's NICs (taken modulo [`Self::nics_per_endpoint`]); the receiver takes it on its NIC of
    /// the same number. `seed` and `entropy` matter to [`LoadBalancer::Ecmp`] alone. Allocates only where a route has
    /// more than 8 links: spraying, or more than four tiers.
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
        route.links.clear();
        if from == to {
            (route.latency, route.class) = (Span::ZERO, PathClass::Local);
            return;
        }
        let (a, b) = (self.hosts.place(from), self.hosts.place(to));
        if self.hosts.same_domain(a, b) {
            route.links.push((Hosts::out_link(from), 1.0));
            route.links.push((self.hosts.in_link(to), 1.0));
            (route.latency, route.class) = (self.hosts.latency, PathClass::ScaleUp);
            return;
        }
        let request = Request {
            balancer,
            seed,
            from: (a.host, self.hosts.nic(a.gpu, nic.0)),
            to: (b.host, self.hosts.nic(b.gpu, nic.0)),
            entropy,
        };
        let Shape::Clos(clos) = &self.shape;
        clos.route(&request, route);
    }

    /// Sizes, rates and distances.
    pub fn summary(&self) -> TopologySummary {
        let Shape::Clos(clos) = &self.shape;
        clos.summary(&self.hosts)
    }
}
