//! Full meshes of up to eight dimensions, as a formula: HyperX, flattened butterfly, UB-Mesh.
//!
//! A router is a string of digits, one per dimension, the last varying fastest in its number. Routers whose addresses
//! differ in one digit alone are joined by the `links` parallel cables of that dimension; so a dimension of n routers is
//! a full mesh, and a dimension of one has no cable.
//!
//! Ports of a router: dimension by dimension, in it by the digit y that they lead to (a router's own digit is left out:
//! group y, or y - 1 behind it), in it by parallel cable; then the NICs. Every port has a cable: the link that leaves
//! port p of router r towards a router has number r · (ports towards routers) + p.
//!
//! Legal paths: one hop in every dimension in which the ends differ, in any order. With one detour a packet first goes,
//! where it enters, to a third router of one of these dimensions: the flow's hash draws uniformly among the direct way
//! and all such routers; the next hops are again in the dimensions that differ.
//!
//! Sources: Ahn, Binkert, Davis, McLaren, Schreiber, "HyperX: topology, routing, and packaging of efficient large-scale
//! networks" (SC'09); Kim, Dally, Abts, "Flattened butterfly" (ISCA'07); Liao et al., "UB-Mesh: a hierarchically
//! localized nD-FullMesh datacenter network architecture" (2025), whose all-path routing takes the detours.

mod cut;
mod rule;
mod survive;

use smallvec::SmallVec;
use windtunnel_kernel::Span;

use crate::direct::{Direct, cable, grid_hosts};
use crate::divide::Divisor;
use crate::error::TopologyError;
use crate::grid::{self, Digit};
use crate::hosts::Hosts;
use crate::shape::Cable;
use crate::spec::{Dimension, FullMeshSpec, MeshRouting};

/// Dimensions there may be: repairs look at all 2^n corners between two routers.
const MOST_DIMENSIONS: usize = 8;

/// A dimension.
#[derive(Clone, Debug)]
struct Axis {
    place: Digit,
    /// Parallel cables.
    links: Divisor,
    /// Its first port.
    first_port: u32,
    cable: Cable,
}

/// See the module page.
#[derive(Clone, Debug)]
pub(crate) struct FullMesh {
    direct: Direct,
    axes: Vec<Axis>,
    /// Ports towards routers; those of the NICs come after them.
    fabric_ports: Divisor,
    detours: bool,
    /// Routers of the last two dimensions.
    plane: Divisor,
}

/// What corrects one digit.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Dimension.
    axis: u32,
    /// First of its parallel ports.
    first: u32,
    links: u32,
    /// To be added to a router's number, wrapping.
    delta: u32,
}

/// The digits in which two routers differ, from the first dimension on.
type Steps = SmallVec<[Step; MOST_DIMENSIONS]>;

impl FullMesh {
    /// Checks the sizes of `spec`; its hosts.
    pub(crate) fn hosts(spec: &FullMeshSpec) -> Result<Hosts, TopologyError> {
        Direct::check(&spec.direct)?;
        if spec.dimensions.is_empty() {
            return Err(TopologyError::Zero { path: "dimensions".to_owned() });
        }
        let (found, limit) = (spec.dimensions.len() as u64, MOST_DIMENSIONS as u64 + 1);
        if found >= limit {
            return Err(TopologyError::TooLarge { what: "dimensions", limit, found });
        }
        for (index, dimension) in spec.dimensions.iter().enumerate() {
            for (name, value) in [("size", dimension.size), ("links", dimension.links)] {
                if value == 0 {
                    return Err(TopologyError::Zero { path: format!("dimensions[{index}].{name}") });
                }
            }
        }
        let hosts = |dimensions: &[Dimension]| {
            let (routers, ports) = counts(dimensions);
            Direct::hosts(&spec.direct, routers, routers.saturating_mul(ports))
        };
        grid_hosts(&spec.direct, &spec.dimensions, counts(&spec.dimensions).0, hosts)
    }

    /// The rules of `spec`, whose hosts [`Self::hosts`] has given.
    pub(crate) fn new(spec: &FullMeshSpec, hosts: &Hosts) -> Result<Self, TopologyError> {
        let direct = Direct::new(&spec.direct, hosts)?;
        let mut axes = Vec::with_capacity(spec.dimensions.len());
        // Routers and their ports were counted with the hosts.
        let (mut stride, mut fabric_ports) = (direct.routers, 0);
        for (index, dimension) in spec.dimensions.iter().enumerate() {
            stride /= dimension.size;
            axes.push(Axis {
                place: Digit { size: Divisor::new(dimension.size), stride: Divisor::new(stride) },
                links: Divisor::new(dimension.links),
                first_port: fabric_ports,
                cable: cable(&dimension.cable, &spec.direct, &format!("dimensions[{index}].cable"))?,
            });
            fabric_ports += (dimension.size - 1) * dimension.links;
        }
        let detours = spec.routing == MeshRouting::OneDetour;
        direct.check_latency(axes.iter().enumerate().map(|(index, axis)| {
            // The sum of two delays that were checked one by one may still be too long for 64 bits.
            let hop = Span::from_ps(axis.cable.propagation.ps().saturating_add(direct.delay.ps()));
            // Any dimension may be the one with the detour.
            (format!("dimensions[{index}].cable"), axis.cable.length_mm, hop, 1 + u64::from(detours))
        }))?;
        let fabric_ports = Divisor::new(fabric_ports.max(1));
        Ok(Self {
            direct,
            axes,
            fabric_ports,
            detours,
            plane: grid::plane(spec.dimensions.iter().map(|dimension| dimension.size)),
        })
    }

    /// The digits in which `to` differs from `at`.
    #[inline]
    fn steps(&self, at: u32, to: u32) -> Steps {
        let mut steps = Steps::new();
        let (mut rest_at, mut rest_to) = (at, to);
        for (number, axis) in self.axes.iter().enumerate() {
            let (own, goal);
            (own, rest_at) = axis.place.stride.split(rest_at);
            (goal, rest_to) = axis.place.stride.split(rest_to);
            if own != goal {
                steps.push(Step {
                    axis: number as u32,
                    first: axis.port(own, goal),
                    links: axis.links.get(),
                    delta: goal.wrapping_sub(own).wrapping_mul(axis.place.stride.get()),
                });
            }
        }
        steps
    }

    /// The dimension of a port towards a router, the digits of this router and of the next, and which of the parallel
    /// cables it is.
    fn port(&self, router: u32, port: u32) -> (usize, u32, u32, u32) {
        let number = self.axes.partition_point(|axis| axis.first_port <= port) - 1;
        let axis = &self.axes[number];
        let (group, parallel) = axis.links.split(port - axis.first_port);
        let own = axis.place.of(router);
        (number, own, group + u32::from(group >= own), parallel)
    }

    /// The end of a port towards a router.
    #[inline]
    fn is_fabric(&self, port: u32) -> bool {
        port < self.fabric_ports()
    }

    /// Ports towards routers.
    #[inline]
    fn fabric_ports(&self) -> u32 {
        // A divisor is at least 1: a mesh of one router has no such port.
        if self.direct.routers == 1 { 0 } else { self.fabric_ports.get() }
    }

    /// The dimensions, outermost first.
    fn digits(&self) -> impl ExactSizeIterator<Item = Digit> + '_ {
        self.axes.iter().map(|axis| axis.place)
    }
}

/// Routers, and ports of each towards others, of valid dimensions.
fn counts(dimensions: &[Dimension]) -> (u64, u64) {
    let routers = dimensions.iter().map(|dimension| u64::from(dimension.size)).fold(1, u64::saturating_mul);
    let ports = dimensions.iter().map(|dimension| u64::from(dimension.size - 1) * u64::from(dimension.links));
    (routers, ports.fold(0, u64::saturating_add))
}

impl Axis {
    /// The first of the parallel ports from a router of digit `own` to another digit.
    #[inline]
    fn port(&self, own: u32, goal: u32) -> u32 {
        self.first_port + (goal - u32::from(goal > own)) * self.links.get()
    }

    /// The router with another digit.
    #[inline]
    fn with(&self, router: u32, own: u32, goal: u32) -> u32 {
        router.wrapping_add(goal.wrapping_sub(own).wrapping_mul(self.place.stride.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{CableSpec, DirectSpec};
    use windtunnel_kernel::BitRate;

    /// Bytes on the heap. Every field is named: one that grows with the cluster cannot slip in unnoticed.
    #[test]
    fn memory_does_not_grow_with_hosts() {
        let rate = BitRate::from_gbps(400);
        let heap = |size| {
            let dimension = Dimension { size, wrap: false, links: 1, cable: CableSpec::new(rate) };
            let spec = FullMeshSpec {
                direct: DirectSpec::new(rate),
                dimensions: vec![dimension; 4],
                routing: MeshRouting::Minimal,
            };
            let hosts = FullMesh::hosts(&spec).expect("valid sizes");
            let mesh = FullMesh::new(&spec, &hosts).expect("a valid spec");
            let FullMesh { direct: Direct { .. }, axes, fabric_ports: _, detours: _, plane: _ } = &mesh;
            size_of_val(axes.as_slice())
        };
        assert_eq!(heap(2), heap(16));
        assert!(heap(16) < 1024, "{}", heap(16));
    }
}
