//! How long a message of NCCL is on its way between two hosts, from the topology.

use rustc_hash::FxHashMap;
use windtunnel_kernel::{EndpointId, NicId, Span};
use windtunnel_topology::{LoadBalancer, Route, Topology};
use windtunnel_workload::collectives::nccl::Sites;

use super::context::Context;
use crate::schema::ClosTier;

/// Beyond so long a way through a topology of another shape than a Clos it matters which hosts a hop joins: 1 km of cable each way.
const LONG: Span = Span::from_us(10);

/// Switches with hosts between which ways are looked up at most.
const SWITCHES: usize = 512;

/// Time between the NICs of two hosts, seconds: up to two levels of a Clos, the longest way through another shape. [`sites`] say more
/// where they are known.
pub(super) fn wire(context: &Context<'_>) -> f64 {
    let tiers = &context.scenario.topology.tiers;
    if tiers.is_empty() {
        return context.fabric.topology.summary().diameter_latency.seconds();
    }
    through(tiers)
}

/// Where each scale-up domain stands, and how far it is from one place to another as the fabric has it: in which building, whose hosts
/// have the wire of its own tiers between them; in shapes without buildings and tiers at which switch, if ways are long and switches
/// few. `None` of others.
pub(super) fn sites(context: &Context<'_>) -> Option<Sites> {
    let topology = &context.fabric.topology;
    let written = &context.scenario.topology;
    if topology.building_name(0).is_some() {
        let place = |domain| {
            let name = topology.building_name(topology.nic(domain, NicId(0)));
            written.buildings.iter().position(|building| Some(building.name.as_str()) == name)
        };
        let place = |domain| place(domain).expect("hosts stand in the buildings that are listed");
        let inside = |place: usize, _| Span::from_seconds_ceil(through(&written.buildings[place].tiers));
        return Some(between(topology, written.buildings.len(), place, inside));
    }
    if !written.tiers.is_empty() || topology.summary().diameter_latency <= LONG {
        return None;
    }
    let switch = |domain| topology.attachment(topology.nic(domain, NicId(0)), 0).0;
    let mut numbers = FxHashMap::default();
    for domain in domains(topology) {
        let next = numbers.len();
        numbers.entry(switch(domain)).or_insert(next);
        if numbers.len() > SWITCHES {
            return None;
        }
    }
    // Up to the switch and down again.
    let inside = |_, domain| {
        let link = topology.link(topology.nic_link(topology.nic(domain, NicId(0)), 0));
        link.latency + link.propagation
    };
    Some(between(topology, numbers.len(), |domain| numbers[&switch(domain)], inside))
}

/// The first endpoint of each scale-up domain.
pub(super) fn domains(topology: &Topology) -> impl Iterator<Item = EndpointId> {
    let size = topology.scale_up_size();
    (0..topology.endpoints().div_ceil(size)).map(move |domain| EndpointId(domain * size))
}

/// Sites of so many places, by the way between the domains that come first at each; `inside` gives the wire at one.
fn between(
    topology: &Topology,
    count: usize,
    place: impl Fn(EndpointId) -> usize,
    inside: impl Fn(usize, EndpointId) -> Span,
) -> Sites {
    let mut firsts = vec![None; count];
    let mut of_domain = Vec::new();
    for domain in domains(topology) {
        let at = place(domain);
        firsts[at].get_or_insert(domain);
        of_domain.push(at as u32);
    }
    let mut route = Route::new();
    let mut wires = Vec::with_capacity(count * count);
    for (a, &from) in firsts.iter().enumerate() {
        for (b, &to) in firsts.iter().enumerate() {
            wires.push(match (from, to) {
                (Some(from), Some(_)) if a == b => inside(a, from),
                (Some(from), Some(to)) => {
                    topology.route(LoadBalancer::Ecmp, 0, from, to, NicId(0), 0, &mut route);
                    route.latency
                }
                // No domain begins there.
                _ => Span::ZERO,
            });
        }
    }
    Sites::new(of_domain, wires)
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
