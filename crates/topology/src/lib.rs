//! Shapes of clusters: hosts with their scale-up domains and NICs, and the switch fabric between them, by rule.
//!
//! A shape is a formula, not a graph. From the address of a node it computes neighbours, the set of equal-cost ports
//! towards a destination and the links of a path; nothing is stored per host, link or destination, so a topology of a
//! million endpoints takes as much memory as one of two. What stands here knows neither time's passing nor events:
//! rates and latencies of links are given, who shares them when is the business of `fabric`.
//!
//! Life cycle: a [`TopologySpec`] is checked by [`Topology::new`], which either returns a [`TopologyError`] with the
//! place and a hint, or a topology whose every method is total on its own ids.
//!
//! Invariants: directed links are dense, `0..link_count`; the links of a route join end to end, climb and then descend
//! (up, then down: no loop, no deadlock); all shortest paths between two NICs have the same latency; the choice among
//! equal-cost ports is the pure function [`choose()`].
//!
//! Sources: folded Clos as extended generalised fat tree (Öhring, Ibel, Das, Kumar, "On generalized fat trees",
//! IPPS'95); destination-modulo routing (Zahavi, "D-Mod-K routing providing non-blocking traffic for shift permutations
//! on real life fat trees", 2010); k-ary fat tree (Al-Fares, Loukissas, Vahdat, SIGCOMM'08); rails and planes (Qian et
//! al., "Alibaba HPN: a data center network for large language model training", SIGCOMM'24).

#![warn(unreachable_pub)]

mod any_shape;
mod bcube;
mod check;
mod choose;
mod clos;
mod direct;
mod divide;
mod dragonfly;
mod edge;
mod error;
pub mod export;
mod faults;
pub mod graph;
mod grid;
mod hamming;
mod hash;
mod hosts;
pub mod import;
mod link;
mod mesh;
mod names;
mod paths;
mod port;
mod racks;
mod regions;
mod shape;
mod spec;
mod summary;
mod survey;
mod tables;
mod topology;
mod torus;
mod walk;

pub use check::{Check, Limits, Pairs, Report, check};
pub use choose::{choose, choose_hashed, choose_weighted, choose_weighted_hashed, flow_hash};
pub use clos::SwitchRule;
pub use error::TopologyError;
pub use faults::{Detour, Forwarder, Hop, Policy, Reach};
pub use graph::{Defaults, GraphError, GraphLink, GraphNode, GraphSpec, NodeKind};
pub use hash::{EcmpHash, HashFamily, crc16, crc32, numbered};
pub use link::{Link, LinkId, LinkTier, LoadBalancer, Node, PathClass, Route};
pub use names::{Names, NoLink};
pub use paths::{Paths, Stop};
pub use port::{Itinerary, Peer, PortSet, SwitchId, Target};
pub use shape::Coordinates;
pub use spec::{
    BCubeSpec, BuildingSpec, CableSpec, ClosSpec, CrossSpec, DEFAULT_PROPAGATION_PS_PER_M, Dimension,
    DirectSpec, DragonflyPlusSpec, DragonflyRouting, DragonflySpec, FullMeshSpec, HammingMeshSpec, HostSpec,
    MeshRouting, RegionsSpec, Routing, ScaleUpSpec, ShapeName, Tier, TopologySpec, TorusRouting, TorusSpec,
};
pub use summary::{TierSummary, TopologySummary};
pub use survey::{Cables, Distances, cable_tier, cables, distances};
pub use tables::Tables;
pub use topology::{HostAddress, Topology};
