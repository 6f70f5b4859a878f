//! Links, routes and the words for them.

use std::borrow::Cow;
use std::fmt;

use crate::port::SwitchId;
use smallvec::SmallVec;
use windtunnel_kernel::{BitRate, EndpointId, Span, define_id};

define_id! {
    /// A directed link, dense from 0: a cable is two.
    pub struct LinkId;
}

/// Where a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkTier {
    /// From a GPU into its scale-up domain.
    ScaleUpOut,
    /// From a scale-up domain to a GPU.
    ScaleUpIn,
    /// From a NIC to its leaf.
    NicUp,
    /// From a leaf to a NIC.
    NicDown,
    /// From a switch of this tier to the next tier; `Up(0)` leaves a leaf.
    Up(u8),
    /// From the next tier to a switch of this tier; `Down(0)` enters a leaf.
    Down(u8),
    /// Between routers of one group of a dragonfly.
    Local,
    /// Between groups of a dragonfly.
    Global,
    /// Along a dimension of a torus, mesh, full mesh or board, and between a BCube server and its switch of a level.
    Dimension(u8),
    /// Between buildings.
    CrossBuilding,
    /// Of an imported graph.
    Graph,
}

impl LinkTier {
    /// `scale-up-out`, `nic-up`, `leaf-up`, `tier1-up`, …
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::ScaleUpOut => "scale-up-out",
            Self::ScaleUpIn => "scale-up-in",
            Self::NicUp => "nic-up",
            Self::NicDown => "nic-down",
            Self::Up(0) => "leaf-up",
            Self::Down(0) => "leaf-down",
            Self::Up(1) => "tier1-up",
            Self::Down(1) => "tier1-down",
            Self::Local => "local",
            Self::Global => "global",
            Self::CrossBuilding => "cross-building",
            Self::Graph => "graph",
            Self::Dimension(dimension) => return Cow::Owned(format!("dimension{dimension}")),
            Self::Up(tier) => return Cow::Owned(format!("tier{tier}-up")),
            Self::Down(tier) => return Cow::Owned(format!("tier{tier}-down")),
        })
    }
}

/// A directed link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Of this direction.
    pub rate: BitRate,
    /// Propagation, and the pipeline delay of the switch at the far end.
    pub latency: Span,
    /// Propagation alone.
    pub propagation: Span,
    /// Share of packets that it loses at random, 0 to 1.
    pub loss: f64,
    /// Where it stands.
    pub tier: LinkTier,
}

/// How far apart two endpoints are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathClass {
    /// The same endpoint.
    Local,
    /// The same scale-up domain.
    ScaleUp,
    /// One switch apart.
    SameLeaf,
    /// Joined by a tier-1 switch: the same pod, in two tiers the whole fabric.
    SamePod,
    /// Joined by a switch above tier 1.
    Beyond,
    /// In different buildings.
    OtherBuilding,
}

impl PathClass {
    /// All, from near to far.
    pub const ALL: [Self; 6] =
        [Self::Local, Self::ScaleUp, Self::SameLeaf, Self::SamePod, Self::Beyond, Self::OtherBuilding];

    /// `local`, `scale-up`, `same-leaf`, `same-pod`, `beyond`, `other-building`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::ScaleUp => "scale-up",
            Self::SameLeaf => "same-leaf",
            Self::SamePod => "same-pod",
            Self::Beyond => "beyond",
            Self::OtherBuilding => "other-building",
        }
    }
}

windtunnel_kernel::named! {
    /// How a flow chooses among equal-cost paths.
    #[derive(Default, Hash)]
    pub enum LoadBalancer: "load balancer of flows" {
        #[default]
        Ecmp = "ecmp", "one hash of the flow at every switch";
        /// A uniform all-to-all loads all links of a full tree alike. The plane is the sum of hosts and NICs of both ends, mod planes.
        DestinationModulo = "destination_modulo", "the destination's number decides (D-mod-k)";
        Spray = "spray", "equal parts over all shortest paths, as a fluid";
        /// The latency is that of the real path.
        Ideal = "ideal", "a fabric that never blocks: only the NICs' own links are used";
    }
}

/// The way of a flow. Kept by the caller and filled again and again, so that routing need not allocate.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Links with the share of the flow's rate that each carries, 1 on a single path. From the sender to the receiver;
    /// of several paths: tier by tier.
    pub links: SmallVec<[(LinkId, f64); 8]>,
    /// Sum of the links' latencies on any one path.
    pub latency: Span,
    /// How far it leads.
    pub class: PathClass,
}

impl Default for Route {
    fn default() -> Self {
        Self { links: SmallVec::new(), latency: Span::ZERO, class: PathClass::Local }
    }
}

impl Route {
    /// An empty route: from an endpoint to itself.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds another route between the same ends, over which as much goes as over each of those before.
    pub fn join(&mut self, other: &Self) {
        self.latency = self.latency.max(other.latency);
        self.class = self.class.max(other.class);
        self.links.extend_from_slice(&other.links);
    }

    /// Gives each of so many [joined](Self::join) routes an equal part; links in their order, each once.
    pub fn divide(&mut self, routes: u32) {
        self.links.sort_by_key(|&(link, _)| link);
        self.links.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        self.links.iter_mut().for_each(|(_, share)| *share /= f64::from(routes));
    }
}

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A GPU.
    Gpu(EndpointId),
    /// The switch of a scale-up domain, counted over all hosts.
    ScaleUp(u32),
    /// A NIC, counted over all hosts, host-major.
    Nic(u32),
    /// A switch of the fabric.
    Switch(SwitchId),
}

impl fmt::Display for LinkTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl fmt::Display for PathClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for LoadBalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
