//! The rule of a torus, and its wiring.

use windtunnel_kernel::Span;

use super::{Axis, Torus, Turn};
use crate::choose::choose_hashed;
use crate::faults::Dead;
use crate::grid;
use crate::link::LinkTier;
use crate::port::{PortSet, nth_bit};
use crate::shape::{Cable, Far, Shape};

impl Torus {
    /// Appends the ports of an axis that begin a shortest way from digit x to another, y.
    #[inline]
    fn push(&self, axis: &Axis, (x, y): (u32, u32), ports: &mut PortSet) {
        let (up, down) = axis.ways(x, y);
        let links = axis.links.get();
        if up {
            ports.push_run(axis.group(true), links);
        }
        // Of two equal ways dimension order takes the one up.
        if down && (self.adaptive || !up) {
            ports.push_run(axis.group(false), links);
        }
    }

    /// Whether the routers on the one path of dimension order have no dead port along it.
    fn path_is_clear(&self, dead: &Dead, mut at: u32, to: u32) -> bool {
        for axis in &self.axes {
            let (mut x, y) = (axis.place.of(at), axis.place.of(to));
            if x == y {
                continue;
            }
            let up = axis.ways(x, y).0;
            let group = axis.group(up);
            while x != y {
                let row = dead.row(at);
                if !row.is_empty() && (group..group + axis.links.get()).any(|port| dead.port(at, port)) {
                    return false;
                }
                let next = axis.next(x, up).expect("a shortest way stays in the line");
                (at, x) = (axis.with(at, x, next), next);
            }
        }
        true
    }

    /// Whether a router lies on a shortest path.
    fn is_between(&self, at: u32, to: u32, router: u32) -> bool {
        self.axes.iter().all(|axis| {
            let (x, y, middle) = (axis.place.of(at), axis.place.of(to), axis.place.of(router));
            axis.distance(x, middle) + axis.distance(middle, y) == axis.distance(x, y)
        })
    }
}

impl Shape for Torus {
    fn name(&self) -> &'static str {
        "torus"
    }

    fn switches(&self) -> u32 {
        self.direct.routers
    }

    fn ports(&self, _switch: u32) -> u32 {
        self.fabric_ports + self.direct.nics.get()
    }

    #[inline]
    fn peer(&self, switch: u32, port: u32) -> Option<Far> {
        if let Some(index) = port.checked_sub(self.fabric_ports) {
            return Some(Far::Nic { nic: self.direct.nic(switch, index), plane: 0 });
        }
        let Turn { axis, digit, up, parallel, .. } = self.port(switch, port);
        let next = axis.next(digit, up)?;
        Some(Far::Switch { switch: axis.with(switch, digit, next), port: axis.group(!up) + parallel })
    }

    #[inline]
    fn attachment(&self, nic: u32, _plane: u32) -> (u32, u32) {
        let (router, index) = self.direct.place(nic);
        (router, self.fabric_ports + index)
    }

    fn cable(&self, switch: u32, port: u32) -> Cable {
        if port < self.fabric_ports { self.port(switch, port).axis.cable } else { self.direct.nic }
    }

    fn link_tier(&self, switch: u32, port: u32) -> LinkTier {
        if port < self.fabric_ports {
            LinkTier::Dimension(self.port(switch, port).number as u8)
        } else {
            LinkTier::NicDown
        }
    }

    fn delay(&self, _switch: u32) -> Span {
        self.direct.delay
    }

    fn fabric_links(&self) -> u32 {
        self.links
    }

    fn link(&self, switch: u32, port: u32) -> u32 {
        let Turn { axis, digit, up, parallel, .. } = self.port(switch, port);
        let low = if up { digit } else { axis.next(digit, false).expect("a port with a cable") };
        // The router below the cable, with as many positions in a line as there are steps.
        let (outer, inner) = axis.place.stride.split(switch);
        let line = axis.place.size.quotient(outer) * axis.steps.get() + low;
        let cable = (line * axis.place.stride.get() + inner) * axis.links.get() + parallel;
        cable + if up { axis.up } else { axis.down }
    }

    fn link_source(&self, link: u32) -> (u32, u32) {
        // Dimensions are numbered in order, those of size 1 are empty: the last that begins at or before the link.
        let axis = &self.axes[self.axes.partition_point(|axis| axis.up <= link) - 1];
        let up = link < axis.down;
        let (rest, parallel) = axis.links.split(link - if up { axis.up } else { axis.down });
        let (line, inner) = axis.place.stride.split(rest);
        let (line, low) = axis.steps.split(line);
        let digit = if up { low } else { axis.next(low, true).expect("a step of the line") };
        let router = (line * axis.place.size.get() + digit) * axis.place.stride.get() + inner;
        (router, axis.group(up) + parallel)
    }

    fn parallel(&self, switch: u32, port: u32) -> Option<u32> {
        let Turn { axis, parallel, .. } = self.port(switch, port);
        (axis.links.get() > 1).then_some(parallel)
    }

    #[inline]
    fn shortest(&self, at: u32, to: u32, ports: &mut PortSet) {
        for axis in &self.axes {
            let (x, y) = (axis.place.of(at), axis.place.of(to));
            if x != y {
                self.push(axis, (x, y), ports);
                if !self.adaptive {
                    return;
                }
            }
        }
    }

    /// Without a set of ports: in dimension order the way is single, and up to 64 ports are the bits of a word.
    #[inline]
    fn pick(&self, at: u32, to: u32, flow_hash: u64) -> u32 {
        let choose = |n| if n == 1 { 0 } else { choose_hashed(flow_hash, u64::from(at), n) };
        if !self.adaptive {
            for axis in &self.axes {
                let (x, y) = (axis.place.of(at), axis.place.of(to));
                if x != y {
                    return axis.group(axis.ways(x, y).0) + choose(axis.links.get());
                }
            }
            unreachable!("a router is not the one that it sends to")
        }
        if self.fabric_ports > 64 {
            let mut ports = PortSet::new();
            self.shortest(at, to, &mut ports);
            return ports.nth(choose(ports.len()));
        }
        let (mut ports, mut rest_at, mut rest_to) = (0u64, at, to);
        for axis in self.axes.iter().rev() {
            // From the last digit on: one division each.
            let ((outer_at, x), (outer_to, y)) =
                (axis.place.size.split(rest_at), axis.place.size.split(rest_to));
            (rest_at, rest_to) = (outer_at, outer_to);
            // Both or neither of them without a branch that the next pair takes the other way.
            let (up, down) = axis.ways(x, y);
            let differ = u64::from(x != y);
            ports |= (u64::from(up) * differ * axis.up_ports) | (u64::from(down) * differ * axis.down_ports);
        }
        let index = choose_hashed(flow_hash, u64::from(at), ports.count_ones());
        if self.fabric_ports <= 8 {
            return nth_bit::<8>(ports, index);
        }
        (0..index).for_each(|_| ports &= ports - 1);
        ports.trailing_zeros()
    }

    fn may_follow(&self, at: u32, port: u32, to: u32) -> bool {
        let Turn { number, axis, digit: x, up, .. } = self.port(at, port);
        let y = axis.place.of(to);
        if x == y {
            return false;
        }
        let ways = axis.ways(x, y);
        if self.adaptive {
            return if up { ways.0 } else { ways.1 };
        }
        up == ways.0 && self.axes[..number].iter().all(|axis| axis.place.of(at) == axis.place.of(to))
    }

    fn waypoint(&self, _from: u32, _to: u32, _hash: u64, _queue: impl Fn(u32) -> u64) -> Option<u32> {
        None
    }

    fn leaves_shortest(&self) -> bool {
        false
    }

    fn is_clear(&self, dead: &Dead, at: u32, to: u32) -> bool {
        if !self.adaptive {
            return self.path_is_clear(dead, at, to);
        }
        let mut ports = PortSet::new();
        !dead.rows().any(|(switch, _)| {
            if switch == to || !self.is_between(at, to, switch) {
                return false;
            }
            ports.clear();
            self.shortest(switch, to, &mut ports);
            ports.iter().any(|port| dead.port(switch, port))
        })
    }

    grid::names_and_places!();

    fn diameter(&self) -> u32 {
        self.axes.iter().map(Axis::farthest).sum()
    }
}
