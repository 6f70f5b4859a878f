//! Tori and meshes of any number of dimensions, each with or without wrap, as a formula.
//!
//! A router is a string of digits, one per dimension, the last varying fastest in its number. In a dimension of three
//! or more its neighbours are one digit up and one down, `links` parallel cables each, with wrap modulo the size. In a
//! dimension of two there is one neighbour, wrap or not; in one of one, none.
//!
//! Ports of a router: dimension by dimension the cables up (digit x to x + 1), then those down; a dimension of two has
//! one group of ports, one of one has none; then the NICs. In a mesh the ports out of the ends have no cable: the gap
//! is in the ports alone. Links are numbered without gaps, dimension by dimension, first all up, then all down: cable k
//! between digit x and x + 1 of a line has number (lower router, its digits counted as if the dimension had only as
//! many positions as there are steps) · links + k.
//!
//! Legal paths: dimension order goes the shorter way round in the first dimension in which the ends differ (of two
//! equal ways up), then in the next: one path, up to parallel cables. Minimal-adaptive goes any path of least length.
//! Sources: Dally, Seitz, "Deadlock-free message routing in multiprocessor interconnection networks" (IEEE ToC 1987)
//! for dimension order; Dally, Towles, "Principles and Practices of Interconnection Networks" (2004), chapter 5 for
//! tori, their bisection and their diameter. A simulator has queues enough: virtual channels are not modelled.

mod cut;
mod rule;

use windtunnel_kernel::Span;

use crate::direct::{Direct, cable, grid_hosts};
use crate::divide::Divisor;
use crate::error::TopologyError;
use crate::grid::{self, Digit};
use crate::hosts::Hosts;
use crate::shape::Cable;
use crate::spec::{Dimension, TorusRouting, TorusSpec};

/// A dimension.
#[derive(Clone, Debug)]
struct Axis {
    place: Digit,
    /// Whether there are two ways round: wrap, and a size of three or more.
    ring: bool,
    /// Parallel cables.
    links: Divisor,
    /// Positions of a line from which a cable leads up.
    steps: Divisor,
    /// First port.
    first_port: u32,
    /// Ports up and ports down, as bits; 0 where they do not fit 64.
    up_ports: u64,
    down_ports: u64,
    /// First link up.
    up: u32,
    /// First link down.
    down: u32,
    cable: Cable,
}

/// See the module page.
#[derive(Clone, Debug)]
pub(crate) struct Torus {
    direct: Direct,
    axes: Vec<Axis>,
    /// Ports before those of the NICs.
    fabric_ports: u32,
    links: u32,
    adaptive: bool,
    /// Routers of a plane: of the last two dimensions.
    plane: Divisor,
}

/// Positions of a line from which a cable leads up.
const fn steps(dimension: &Dimension) -> u32 {
    if dimension.wrap && dimension.size > 2 { dimension.size } else { dimension.size - 1 }
}

/// Routers, directed links and ports towards routers, of valid dimensions.
fn counts(dimensions: &[Dimension]) -> (u64, u64, u64) {
    let product = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(1, u64::saturating_mul);
    let routers = product(&mut dimensions.iter().map(|dimension| u64::from(dimension.size)));
    let (mut links, mut ports) = (0u64, 0u64);
    for dimension in dimensions {
        let lines = routers / u64::from(dimension.size);
        let cables =
            product(&mut [lines, u64::from(steps(dimension)), u64::from(dimension.links)].into_iter());
        links = links.saturating_add(cables.saturating_mul(2));
        ports += u64::from(dimension.size.min(3) - 1) * u64::from(dimension.links);
    }
    (routers, links, ports)
}

impl Torus {
    /// Checks the sizes of `spec`; its hosts.
    pub(crate) fn hosts(spec: &TorusSpec) -> Result<Hosts, TopologyError> {
        Direct::check(&spec.direct)?;
        let zero = |path: String| Err(TopologyError::Zero { path });
        if spec.dimensions.is_empty() {
            return zero("dimensions".to_owned());
        }
        // Dimensions have 8-bit numbers.
        let found = spec.dimensions.len() as u64;
        if found >= 1 << 8 {
            return Err(TopologyError::TooLarge { what: "dimensions", limit: 1 << 8, found });
        }
        for (index, dimension) in spec.dimensions.iter().enumerate() {
            for (name, value) in [("size", dimension.size), ("links", dimension.links)] {
                if value == 0 {
                    return zero(format!("dimensions[{index}].{name}"));
                }
            }
        }
        let hosts = |dimensions: &[Dimension]| {
            let (routers, links, ports) = counts(dimensions);
            // Only a torus too large in links has so many ports.
            let links = if ports < 1 << 31 { links } else { u64::MAX };
            Direct::hosts(&spec.direct, routers, links)
        };
        grid_hosts(&spec.direct, &spec.dimensions, counts(&spec.dimensions).0, hosts)
    }

    /// The rules of `spec`, whose hosts [`Self::hosts`] has given.
    pub(crate) fn new(spec: &TorusSpec, hosts: &Hosts) -> Result<Self, TopologyError> {
        let direct = Direct::new(&spec.direct, hosts)?;
        let mut axes = Vec::with_capacity(spec.dimensions.len());
        let (mut stride, mut fabric_ports, mut links) = (direct.routers, 0, 0);
        for (index, dimension) in spec.dimensions.iter().enumerate() {
            stride /= dimension.size;
            let steps = steps(dimension);
            let one_way = direct.routers / dimension.size * steps * dimension.links;
            let group = |number: u32| {
                let first = fabric_ports + number * dimension.links;
                // Ports beyond 64 are not among the bits: no set then uses them.
                (first..first + dimension.links).take(64).filter_map(|port| 1u64.checked_shl(port)).sum()
            };
            axes.push(Axis {
                place: Digit { size: Divisor::new(dimension.size), stride: Divisor::new(stride) },
                ring: steps == dimension.size,
                links: Divisor::new(dimension.links),
                steps: Divisor::new(steps.max(1)),
                first_port: fabric_ports,
                up_ports: group(0),
                down_ports: group(u32::from(dimension.size > 2)),
                up: links,
                down: links + one_way,
                cable: cable(&dimension.cable, &spec.direct, &format!("dimensions[{index}].cable"))?,
            });
            fabric_ports += (dimension.size.min(3) - 1) * dimension.links;
            links += 2 * one_way;
        }
        let torus = Self {
            direct,
            axes,
            fabric_ports,
            links,
            adaptive: spec.routing == TorusRouting::MinimalAdaptive,
            plane: grid::plane(spec.dimensions.iter().map(|dimension| dimension.size)),
        };
        torus.direct.check_latency(torus.axes.iter().enumerate().map(|(index, axis)| {
            // The sum of two delays that were checked one by one may still be too long for 64 bits.
            let hop = Span::from_ps(axis.cable.propagation.ps().saturating_add(torus.direct.delay.ps()));
            (format!("dimensions[{index}].cable"), axis.cable.length_mm, hop, u64::from(axis.farthest()))
        }))?;
        Ok(torus)
    }

    /// The dimension of a port towards a router, whether it leads up from digit x, and which of the parallel cables it
    /// has.
    #[inline]
    fn port(&self, router: u32, port: u32) -> Turn<'_> {
        let number = self.axes.partition_point(|axis| axis.first_port <= port) - 1;
        let axis = &self.axes[number];
        let (group, parallel) = axis.links.split(port - axis.first_port);
        let digit = axis.place.of(router);
        let up = if axis.place.size.get() == 2 { digit == 0 } else { group == 0 };
        Turn { number, axis, digit, up, parallel }
    }

    /// The dimensions, outermost first.
    fn digits(&self) -> impl ExactSizeIterator<Item = Digit> + '_ {
        self.axes.iter().map(|axis| axis.place)
    }
}

/// A port taken apart.
struct Turn<'a> {
    /// Of the dimension.
    number: usize,
    axis: &'a Axis,
    /// Of the router.
    digit: u32,
    up: bool,
    parallel: u32,
}

impl Axis {
    /// Ports up, or down.
    #[inline]
    fn group(&self, up: bool) -> u32 {
        let second = !up && self.place.size.get() > 2;
        self.first_port + if second { self.links.get() } else { 0 }
    }

    /// Whether a shortest way from digit x to digit y ≠ x begins up, and whether one begins down.
    #[inline]
    fn ways(&self, x: u32, y: u32) -> (bool, bool) {
        if !self.ring {
            return (y > x, y < x);
        }
        let size = self.place.size.get();
        // Modulo the size: one of the two has wrapped round 32 bits. A branch would be mispredicted half of the time.
        let ahead = y.wrapping_sub(x).min(y.wrapping_sub(x).wrapping_add(size));
        (2 * ahead <= size, 2 * ahead >= size)
    }

    /// Steps between two digits.
    #[inline]
    fn distance(&self, x: u32, y: u32) -> u32 {
        let direct = x.abs_diff(y);
        if self.ring { direct.min(self.place.size.get() - direct) } else { direct }
    }

    /// Steps between the digits that are farthest apart.
    fn farthest(&self) -> u32 {
        if self.ring { self.place.size.get() / 2 } else { self.place.size.get() - 1 }
    }

    /// The digit one up or down; `None` beyond an end.
    #[inline]
    fn next(&self, digit: u32, up: bool) -> Option<u32> {
        let last = self.place.size.get() - 1;
        match (up, self.ring) {
            (true, _) if digit < last => Some(digit + 1),
            (true, true) => Some(0),
            (false, _) if digit > 0 => Some(digit - 1),
            (false, true) => Some(last),
            _ => None,
        }
    }

    /// The router with another digit.
    #[inline]
    fn with(&self, router: u32, digit: u32, next: u32) -> u32 {
        router.wrapping_add(next.wrapping_sub(digit).wrapping_mul(self.place.stride.get()))
    }
}
