//! Paths that hosts choose, by name.

use windtunnel_fabric::packet::ChosenRoute;
use windtunnel_plan::error::InputError;
use windtunnel_topology::{Names, Topology};

use super::fabric::faults::{self, Part};
use crate::schema::{Fidelity, RouteRule, Scenario};

/// The paths that the scenario names, link by link.
///
/// # Errors
/// [`InputError`] for a NIC or switch that there is not, switches that no cable joins, and fidelities without paths of
/// packets.
pub(super) fn routes(
    scenario: &Scenario,
    topology: &Topology,
    source: &str,
) -> Result<Vec<ChosenRoute>, InputError> {
    let written = &scenario.network.routes;
    if written.is_empty() {
        return Ok(Vec::new());
    }
    let names = Names::new(topology);
    let rules = written.iter().enumerate();
    let routes: Vec<ChosenRoute> =
        rules.map(|(index, rule)| route(rule, index, &names, topology, source)).collect::<Result<_, _>>()?;
    // A wrong name is told as one at every fidelity.
    if scenario.fidelity != Fidelity::Packet {
        let message = format!("chosen for packets, found `fidelity: {}`", scenario.fidelity.name());
        let error = InputError::new(format!("{source}: network.routes"), message);
        return Err(error.hint("`fidelity: packet`"));
    }
    Ok(routes)
}

fn route(
    rule: &RouteRule,
    index: usize,
    names: &Names<'_>,
    topology: &Topology,
    source: &str,
) -> Result<ChosenRoute, InputError> {
    let at = |key: &str| format!("{source}: network.routes[{index}].{key}");
    let nic = |key: &str, name: &str| {
        names.nic(name.trim()).ok_or_else(|| {
            let (hosts, nics) = (topology.hosts(), topology.nics_per_host());
            InputError::new(at(key), format!("no NIC `{name}`"))
                .hint(format!("there are {hosts} hosts with {nics} each, such as `host0/nic0`"))
        })
    };
    let (from, to) = (nic("from", &rule.from)?, nic("to", &rule.to)?);
    let on_the_way: Vec<&str> = std::iter::once(&rule.from)
        .chain(&rule.via)
        .chain(std::iter::once(&rule.to))
        .map(|name| name.trim())
        .collect();
    let mut links = Vec::with_capacity(on_the_way.len() - 1);
    for (hop, pair) in on_the_way.windows(2).enumerate() {
        let name = format!("{} -> {}", pair[0], pair[1]);
        let place = || at(&format!("via[{}]", hop.min(rule.via.len().saturating_sub(1))));
        match faults::parts(&[name], topology, |_| place())?.first() {
            Some(Part::Cable(link)) => links.push(*link),
            _ => unreachable!("a text with an arrow is a link"),
        }
    }
    Ok(ChosenRoute { from, to, links })
}
