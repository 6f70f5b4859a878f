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

use windtunnel_kernel::{BitRate, Span};

use crate::direct::{Direct, cable, largest};
use crate::divide::Divisor;
use crate::error::TopologyError;
use crate::hosts::Hosts;
use crate::shape::Cable;
use crate::spec::{CableSpec, DirectSpec, DragonflyRouting, DragonflySpec};
use channels::Channels;
pub(crate) use plus::DragonflyPlus;

#[derive(Clone, Debug)]
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
    /// Checks the sizes of `spec`; its hosts.
    pub(crate) fn hosts(spec: &DragonflySpec) -> Result<Hosts, TopologyError> {
        let &DragonflySpec { ref direct, groups, routers, global_links, .. } = spec;
        check_sizes(direct, &[("groups", groups), ("routers", routers)])?;
        Channels::new(groups, ("routers", routers), global_links)?;
        let hosts = |groups: u32, routers: u32| {
            let channels = Channels::new(groups, ("routers", routers), global_links).ok()?;
            let (locals, globals) = counts(&channels, routers);
            Direct::hosts(direct, u64::from(groups) * u64::from(routers), locals.saturating_add(globals))
                .ok()?
        };
        // What is wrong with a host is said before what is wrong with their number.
        Hosts::new(1, &direct.host)?;
        hosts(groups, routers).ok_or_else(|| {
            let found = u64::from(groups) * u64::from(routers);
            let fits: [Size; 2] = [
                ("groups", groups, &|groups| hosts(groups, routers).is_some()),
                ("routers", routers, &|routers| hosts(1, routers).is_some()),
            ];
            oversize(found.saturating_mul(u64::from(direct.hosts_per_router)), &fits)
        })
    }

    /// The rules of `spec`, whose hosts [`Self::hosts`] has given.
    pub(crate) fn new(spec: &DragonflySpec, hosts: &Hosts) -> Result<Self, TopologyError> {
        let &DragonflySpec { groups, routers, global_links, .. } = spec;
        let channels = Channels::new(groups, ("routers", routers), global_links)?;
        let direct = Direct::new(&spec.direct, hosts)?;
        let (locals, globals) = counts(&channels, routers);
        let local = cable_if(routers > 1, &spec.local, &spec.direct, "local")?;
        let global = cable_if(channels.copies > 0, &spec.global, &spec.direct, "global")?;
        check_latency(&direct, &local, &global)?;
        Ok(Self {
            direct,
            routers: Divisor::new(routers),
            neighbours: Divisor::new((routers - 1).max(1)),
            channels,
            // Both have been counted among the links of the hosts' fabric: they fit 32 bits.
            locals: locals as u32,
            links: (locals + globals) as u32,
            local,
            global,
            routing: spec.routing,
        })
    }
}

/// Directed links within groups, and between them.
fn counts(channels: &Channels, routers: u32) -> (u64, u64) {
    let all = u64::from(channels.groups) * u64::from(routers);
    (all.saturating_mul(u64::from(routers - 1)), u64::from(channels.groups) * u64::from(channels.cabled))
}

/// Checks what must be at least 1.
fn check_sizes(direct: &DirectSpec, sizes: &[(&str, u32)]) -> Result<(), TopologyError> {
    match sizes.iter().find(|&&(_, size)| size == 0) {
        Some(&(path, _)) => Err(TopologyError::Zero { path: path.to_owned() }),
        None => Direct::check(direct),
    }
}

/// A size of a spec, and whether it would fit with another value.
type Size<'a> = (&'static str, u32, &'a dyn Fn(u32) -> bool);

/// Too many hosts or links: about the first of `sizes` that is to blame, which is the one that can be lowered enough.
fn oversize(found: u64, sizes: &[Size]) -> TopologyError {
    let &(path, size, fits) = sizes.iter().find(|(_, _, fits)| fits(1)).unwrap_or(&sizes[sizes.len() - 1]);
    TopologyError::Oversize { path: path.to_owned(), found, fit: largest(size, fits) }
}

/// A cable of the spec; where there are none of its kind it need not have a rate.
fn cable_if(used: bool, spec: &CableSpec, direct: &DirectSpec, path: &str) -> Result<Cable, TopologyError> {
    let none = CableSpec::new(BitRate::from_bps(1));
    cable(if used { spec } else { &none }, direct, path)
}

/// The longest paths by rule are two legs of Valiant's.
fn check_latency(direct: &Direct, local: &Cable, global: &Cable) -> Result<(), TopologyError> {
    // The sum of two delays that were checked one by one may still be too long for 64 bits.
    let hop = |cable: &Cable| Span::from_ps(cable.propagation.ps().saturating_add(direct.delay.ps()));
    let kinds = [("local", local, 4), ("global", global, 2)];
    direct.check_latency(
        kinds.into_iter().map(|(path, cable, count)| (path.to_owned(), cable.length_mm, hop(cable), count)),
    )
}

/// What the NICs of some routers can send.
fn rate(direct: &Direct, routers: u32) -> u128 {
    u128::from(routers) * u128::from(direct.nics.get()) * u128::from(direct.nic.rate.bps())
}

/// What the NICs of a single router can send each other by halves: there is no cut.
fn alone(direct: &Direct) -> BitRate {
    BitRate::from_bps(u64::try_from(rate(direct, 1) / 2).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What drops nothing keeps nothing on the heap: a dragonfly of any size takes as much memory as the smallest.
    #[test]
    fn memory_does_not_grow() {
        fn flat<T>() -> usize {
            assert!(!std::mem::needs_drop::<T>());
            size_of::<T>()
        }
        assert!(flat::<Dragonfly>() < 400, "{}", flat::<Dragonfly>());
        assert!(flat::<DragonflyPlus>() < 400, "{}", flat::<DragonflyPlus>());
    }
}
