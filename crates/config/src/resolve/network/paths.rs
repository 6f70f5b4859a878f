//! What packets take the scenario's load balancer for.

use windtunnel_fabric::balancers;
use windtunnel_fabric::packet::Balancer;

use crate::schema::Network;

/// What packets take the scenario's load balancer for; `None` for one that is no choice among real paths.
pub(super) fn packet_balancer(network: &Network) -> Option<Balancer> {
    let around = balancers::Around { paths: network.paths, gap: network.flowlet_gap.0 };
    network.load_balancer.of.packets.map(|make| make(around))
}
