//! Parameters of transports that follow from the fabric where a scenario does not write them, and what they must fit.

use windtunnel_fabric::balancers::{SOURCE, SPRAY};
use windtunnel_fabric::packet::transport::{Endpoint, Mrc, Rccc};
use windtunnel_kernel::math::gcd;
use windtunnel_plan::error::InputError;
use windtunnel_plan::fabric::FabricParts;

use super::transport::law_of;
use crate::schema::Network;

/// Share of credit over the oversubscription that receivers keep granting where the fabric is congested, as in uet-htsim.
const KEPT: f64 = 0.75;

/// The network with what follows from the fabric; `None` where nothing does.
///
/// # Errors
/// [`InputError`] where entropy values do not fit the fabric.
pub(super) fn implied(
    network: &Network,
    fabric: &FabricParts,
    source: &str,
) -> Result<Option<Network>, InputError> {
    match law_of(network) {
        Rccc::NAME => Ok(restrained(network, fabric)),
        Mrc::NAME => entropy(network, fabric, source).map(Some),
        _ => Ok(None),
    }
}

/// Receivers that grant credit at their own rate heed marks where the fabric is oversubscribed, unless the scenario says how far.
fn restrained(network: &Network, fabric: &FabricParts) -> Option<Network> {
    let ratio: f64 =
        fabric.topology.summary().tiers.iter().filter_map(|tier| tier.oversubscription).product();
    (ratio > 1.0).then(|| with(network, "least_rate", KEPT / ratio))
}

/// Entropy values: as many as there are paths at most, 128 at most where the scenario says nothing. Without trimming NSCC aims at a whole
/// round trip (Ultra Ethernet 1.0).
fn entropy(network: &Network, fabric: &FabricParts, source: &str) -> Result<Network, InputError> {
    let balancer = network.load_balancer.of;
    if balancer != &SPRAY && balancer != &SOURCE {
        let message = format!(
            "`mrc` chooses the path of every packet, but `{}` leaves that to others",
            balancer.entry.name
        );
        return Err(InputError::new(format!("{source}: network.load_balancer"), message)
            .hint("set `load_balancer: source`, or `spray`"));
    }
    let planes = fabric.topology.planes();
    let tiers = fabric.topology.summary().tiers;
    let ways = tiers.iter().filter(|tier| tier.oversubscription.is_some());
    // Numbers that are equal modulo it take the same port of every switch.
    let distinct = ways.fold(1, |all: u64, tier| lcm(all, u64::from(tier.ports_up.max(1)))).max(1);
    let most = u64::from(planes) * distinct.min(u64::from(network.paths));
    let written = network.parameters.get("evs").and_then(serde_json::Value::as_u64);
    if let Some(evs) = written {
        let place = || format!("{source}: network.parameters.evs");
        if evs > most {
            let message = format!(
                "{evs} entropy values, but there are {most} paths: {planes} planes with {distinct} paths each and `network.paths` of {}",
                network.paths
            );
            return Err(InputError::new(place(), message).hint(format!("at most {most}")));
        }
        if evs % u64::from(planes) != 0 || !(evs / u64::from(planes)).is_power_of_two() {
            let message = format!("{evs} entropy values on {planes} planes, expected a power of two on each");
            return Err(InputError::new(place(), message).hint(format!("{planes} times 1, 2, 4, …")));
        }
    }
    let each = (u64::from(Mrc::default().evs) / u64::from(planes)).max(1).min(most / u64::from(planes));
    let usual = u64::from(planes) * (1 << each.ilog2());
    let network = with(network, "evs", usual);
    Ok(if network.trimming.is_none() { with(&network, "target_delay", 1.0) } else { network })
}

/// A network with a parameter, unless the scenario writes it.
fn with(network: &Network, key: &str, value: impl Into<serde_json::Value>) -> Network {
    let mut network = network.clone();
    network.parameters.entry(key.to_owned()).or_insert_with(|| value.into());
    network
}

fn lcm(a: u64, b: u64) -> u64 {
    a / gcd(a, b) * b
}

#[cfg(test)]
mod tests {
    #[test]
    fn least_common_multiples() {
        assert_eq!([(1, 5), (4, 6), (64, 64), (8, 2)].map(|(a, b)| super::lcm(a, b)), [5, 12, 64, 8]);
    }
}
