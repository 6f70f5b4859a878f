//! How long a message of NCCL is on its way between two hosts, from the topology.

use windtunnel_kernel::{EndpointId, NicId, Span};
use windtunnel_topology::{LoadBalancer, Route};
use windtunnel_workload::collectives::nccl::Sites;

use super::context::Context;
use crate::schema::ClosTier;

/// Time between the NICs of two hosts, seconds: up to two levels of a Clos, the longest way through another shape. Where hosts
/// stand in several buildings, [`sites`] say more.
pub(super) fn wire(context: &Context<'_>) -> f64 {
    let tiers = &context.scenario.topology.tiers;
    if tiers.is_empty() {
        return context.fabric.topology.summary().diameter_latency.seconds();
    }
    through(tiers)
}

/// In which building each scale-up domain stands: from one to another the way has the latency that the fabric gives it, inside it is
/// the wire of the building's own tiers. `None` of shapes without buildings.
pub(super) fn sites(context: &Context<'_>) -> Option<Sites> {
    let topology = &context.fabric.topology;
    topology.building_name(0)?;
    let buildings = &context.scenario.topology.buildings;
    let size = topology.scale_up_size();
    let building = |endpoint: EndpointId| {
        let name = topology.building_name(topology.nic(endpoint, NicId(0)));
        buildings.iter().position(|building| Some(building.name.as_str()) == name)
    };
    let mut firsts = vec![None; buildings.len()];
    let mut of_domain = Vec::new();
    for domain in 0..topology.endpoints().div_ceil(size) {
        let first = EndpointId(domain * size);
        let at = building(first).expect("hosts stand in the buildings that are listed");
        firsts[at].get_or_insert(first);
        of_domain.push(at as u32);
    }
    let mut route = Route::new();
    let mut wires = Vec::with_capacity(firsts.len() * firsts.len());
    for (a, &from) in firsts.iter().enumerate() {
        for (b, &to) in firsts.iter().enumerate() {
            wires.push(match (from, to) {
                _ if a == b => Span::from_seconds_ceil(through(&buildings[a].tiers)),
                (Some(from), Some(to)) => {
                    topology.route(LoadBalancer::Ecmp, 0, from, to, NicId(0), 0, &mut route);
                    route.latency
                }
                // No domain begins there.
                _ => Span::ZERO,
            });
        }
    }
    Some(Sites::new(of_domain, wires))
}

/// What is passed between two hosts' NICs: up to two levels of tiers, seconds.
fn through(tiers: &[ClosTier]) -> f64 {
    /// Of light in a metre of cable, and of a switch: what the constants were fitted with.
    const METRE: f64 = 5e-9;
    const SWITCH: f64 = 300e-9;
    let passed = tiers.len().min(2);
    let cables: f64 = tiers.iter().take(passed).map(|tier| tier.length.0 as f64 * 1e-3).sum();
    2.0 * cables * METRE + (2 * passed - 1) as f64 * SWITCH
}
