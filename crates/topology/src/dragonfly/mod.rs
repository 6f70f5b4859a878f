//! Dragonflies, as a formula: groups of routers in a full mesh, joined by global cables; and dragonfly+, whose groups
//! are leaves and spines ([`plus`]).
//!
//! A router is (group, router): number group · a + router. Its ports are those to NICs, then those to the other routers
//! of its group in order, itself left out (a - 1), then its global channels (h), wired as [`channels`] says.
//!
//! Links: the local one from port l of a router has number router · (a - 1) + l; after them all global ones, channel j
//! of group G has number G · cabled + j. Channels without a cable come last in a group, so that no number is left out.
//!
//! The legal paths of the rule have at most one global link: local* global? local*. Between groups the shortest are
//!
//! - of 1 hop over a cable between the very routers, if there is one,
//! - otherwise of 2 hops over any own cable to the group, or over a neighbour's that lands on the destination,
//! - otherwise of 3 hops over any cable to the group.
//!
//! Invariants: a packet leaves its group over at most one global link a leg, and in the destination's group only
//! local hops are legal, so a legal path cannot come back; every router has a path to every other in a whole fabric.
//! Failure modes: with faults a path may be longer than 3 hops, always with a single global link; the field of
//! `faults` finds it.
//!
//! Sources: Kim, Dally, Scott, Abts, "Technology-driven, highly-scalable dragonfly topology", ISCA'08; the consecutive
//! arrangement: Camarero, Vallejo, Beivide, "Topological characterization of Hamming and dragonfly networks and its
//! implications on routing", TACO 2014.

mod channels;
mod plus;
mod rule;
mod waypoint;

use crate::direct::{self, Direct};
use crate::divide::Divisor;
use crate::edge::Edge;
use crate::error::TopologyError;
use crate::hosts::Hosts;
use crate::shape::Cable;
use crate::spec::{CableSpec, DragonflyRouting, DragonflySpec};
use channels::Channels;
pub(crate) use plus::DragonflyPlus;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Dragonfly {
    direct: Direct,
    /// a.
    routers: Divisor,
    /// a - 1; of none 1.
    neighbours: Divisor,
    channels: Channels,
    /// Links within groups, which come first.
    locals: u32,
    links: u32,
    local: Cable,
    global: Cable,
    routing: DragonflyRouting,
}

impl Dragonfly {
    /// The hosts of `spec`.
    pub(crate) fn hosts(spec: &DragonflySpec) -> Result<Hosts, TopologyError> {
        sizes(&[("groups", spec.groups), ("routers", spec.routers)])?;
        Direct::hosts(&spec.direct, u64::from(spec.groups) * u64::from(spec.routers))
    }

    /// The rules of `spec`, whose hosts are `hosts`.
    pub(crate) fn new(spec: &DragonflySpec, hosts: &Hosts) -> Result<Self, TopologyError> {
        let &DragonflySpec { ref direct, groups, routers, global_links, .. } = spec;
        let channels = Channels::new(groups, ("routers", routers), global_links)?;
        // Their product fits 31 bits: there are at least as many hosts.
        let locals = u64::from(groups * routers) * u64::from(routers - 1);
        let links = locals + u64::from(groups) * u64::from(channels.cabled);
        Edge::new(hosts, 1)?.end(links)?;
        ports(&[direct.hosts_per_router.saturating_mul(hosts.nics), routers - 1, global_links])?;
        let per_m = direct.propagation_ps_per_m;
        let edge = Direct::new(direct, hosts)?;
        let (local, global) = cables((&spec.local, routers > 1), (&spec.global, channels.copies > 0), per_m)?;
        // Two legs of Valiant's.
        direct::check_path(&[
            ("nic.length", edge.nic.propagation, 2),
            ("local.length", local.propagation, 4),
            ("global.length", global.propagation, 2),
            ("router_latency", edge.delay, 7),
        ])?;
        Ok(Self {
            direct: edge,
            routers: Divisor::new(routers),
            neighbours: Divisor::new((routers - 1).max(1)),
            channels,
            locals: locals as u32,
            links: links as u32,
            local,
            global,
            routing: spec.routing,
        })
    }
}

/// Checks sizes that must be at least 1.
fn sizes(sizes: &[(&str, u32)]) -> Result<(), TopologyError> {
    match sizes.iter().find(|&&(_, size)| size == 0) {
        Some(&(path, _)) => Err(TopologyError::Zero { path: path.to_owned() }),
        None => Ok(()),
    }
}

/// Checks that the ports of a switch can be numbered.
fn ports(ports: &[u32]) -> Result<(), TopologyError> {
    let (limit, found) = (1 << 32, ports.iter().copied().map(u64::from).sum());
    if found < limit { Ok(()) } else { Err(TopologyError::TooLarge { what: "ports", limit, found }) }
}

/// Local and global cables; those that there are none of need no rate.
fn cables(
    local: (&CableSpec, bool),
    global: (&CableSpec, bool),
    propagation_ps_per_m: u64,
) -> Result<(Cable, Cable), TopologyError> {
    let none = CableSpec::new(windtunnel_kernel::BitRate(1));
    let cable =
        |(spec, used), path| direct::cable(if used { spec } else { &none }, path, propagation_ps_per_m);
    Ok((cable(local, "local")?, cable(global, "global")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is `Copy` keeps nothing on the heap: a dragonfly of any size takes as much memory as the smallest.
    #[test]
    fn memory_does_not_grow() {
        fn flat<T: Copy>() -> usize {
            size_of::<T>()
        }
        assert!(flat::<Dragonfly>() < 400, "{}", flat::<Dragonfly>());
        assert!(flat::<DragonflyPlus>() < 400, "{}", flat::<DragonflyPlus>());
    }
}
