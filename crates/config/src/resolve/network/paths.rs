//! What packets take the scenario's load balancer for.

use windtunnel_fabric::balancers;
use windtunnel_fabric::packet::{Balancer, TransportChoice};
use windtunnel_plan::error::InputError;
use windtunnel_plan::network_plan::Chosen;

use crate::schema::Network;

/// What packets take the scenario's load balancer for; `None` for one that is no choice among real paths.
pub(super) fn packet_balancer(network: &Network) -> Option<Balancer> {
    let around = balancers::Around { paths: network.paths, gap: network.flowlet_gap.0 };
    network.load_balancer.of.packets.map(|make| make(around))
}

/// The same beside `transport`: one that was published to send each packet by a path of its own, or that draws paths itself,
/// goes by path numbers where the scenario names no balancer. By the default, ECMP, all packets of a flow would take one way,
/// around failed cables and switches too.
pub(super) fn beside(network: &Network, transport: &Chosen) -> Balancer {
    if !network.load_balancer.given && known(transport).is_some_and(|known| known.sprays()) {
        return Balancer::Spray { paths: network.paths };
    }
    packet_balancer(network).unwrap_or_default()
}

fn draws_paths(transport: &Chosen) -> bool {
    known(transport).is_some_and(|known| known.draws_paths())
}

/// The built-in transport, if it is one.
fn known(transport: &Chosen) -> Option<TransportChoice> {
    TransportChoice::by_name(&transport.name).filter(|_| !transport.own)
}

/// Refuses a load balancer that the scenario names beside a transport that draws paths itself, which packets would have to keep to.
///
/// # Errors
/// [`InputError`] for one that does not go by path numbers.
pub(super) fn keep_to(network: &Network, transport: &Chosen, source: &str) -> Result<(), InputError> {
    let name = transport.name.as_str();
    if !draws_paths(transport)
        || !network.load_balancer.given
        || packet_balancer(network).is_none_or(Balancer::numbers)
    {
        return Ok(());
    }
    let balancer = network.load_balancer.of.entry.name;
    let message =
        format!("`{name}` draws a path for each packet itself, which `{balancer}` would not keep to");
    Err(InputError::new(format!("{source}: network.load_balancer"), message)
        .hint("leave `load_balancer` out, or set `load_balancer: spray`"))
}

/// Warns that the transport which the scenario names is not simulated where no packets are.
pub fn unsimulated(network: &Network, fidelity: &str) -> Option<String> {
    let (key, name) = match (&network.congestion, &network.transport) {
        (Some(law), _) => ("congestion", law),
        (None, name) => ("transport", name.as_ref()?),
    };
    Some(format!(
        "network.{key}: `{name}` is not simulated at `{fidelity}` fidelity, which has neither its losses nor its queues nor its rates; \
         `fidelity: packet` has them"
    ))
}
