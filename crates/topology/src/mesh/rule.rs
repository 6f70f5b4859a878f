//! The rule of a full mesh: one hop in every dimension that differs, in any order.

use windtunnel_kernel::Span;

use super::{FullMesh, MOST_DIMENSIONS};
use crate::choose::choose_hashed;
use crate::faults::Dead;
use crate::grid;
use crate::link::LinkTier;
use crate::port::PortSet;
use crate::shape::{Cable, Far, Shape};

/// What draws a detour, in place of a switch number: that the next draw at the same router is another.
const DETOUR: u64 = u64::MAX - 1;

impl Shape for FullMesh {
    fn name(&self) -> &'static str {
        "full-mesh"
    }

    fn switches(&self) -> u32 {
        self.direct.routers
    }

    fn ports(&self, _switch: u32) -> u32 {
        self.fabric_ports() + self.direct.nics.get()
    }

    fn peer(&self, switch: u32, port: u32) -> Option<Far> {
        if !self.is_fabric(port) {
            let nic = self.direct.nic(switch, port - self.fabric_ports());
            return Some(Far::Nic { nic, plane: 0 });
        }
        let (number, own, goal, parallel) = self.port(switch, port);
        let axis = &self.axes[number];
        Some(Far::Switch { switch: axis.with(switch, own, goal), port: axis.port(goal, own) + parallel })
    }

    #[inline]
    fn attachment(&self, nic: u32, _plane: u32) -> (u32, u32) {
        let (router, index) = self.direct.place(nic);
        (router, self.fabric_ports() + index)
    }

    fn cable(&self, switch: u32, port: u32) -> Cable {
        if self.is_fabric(port) { self.axes[self.port(switch, port).0].cable } else { self.direct.nic }
    }

    fn link_tier(&self, switch: u32, port: u32) -> LinkTier {
        if self.is_fabric(port) {
            LinkTier::Dimension(self.port(switch, port).0 as u8)
        } else {
            LinkTier::NicDown
        }
    }

    #[inline]
    fn delay(&self, _switch: u32) -> Span {
        self.direct.delay
    }

    fn fabric_links(&self) -> u32 {
        self.direct.routers * self.fabric_ports()
    }

    #[inline]
    fn link(&self, switch: u32, port: u32) -> u32 {
        switch * self.fabric_ports() + port
    }

    fn link_source(&self, link: u32) -> (u32, u32) {
        self.fabric_ports.split(link)
    }

    fn parallel(&self, switch: u32, port: u32) -> Option<u32> {
        if !self.is_fabric(port) {
            return None;
        }
        let (number, .., parallel) = self.port(switch, port);
        (self.axes[number].links.get() > 1).then_some(parallel)
    }

    #[inline]
    fn shortest(&self, at: u32, to: u32, ports: &mut PortSet) {
        for step in self.steps(at, to) {
            ports.push_run(step.first, step.links);
        }
    }

    #[inline]
    fn pick(&self, at: u32, to: u32, flow_hash: u64) -> u32 {
        // Which digits differ is as good as random: no branch asks.
        let (mut first, mut links) = ([0; MOST_DIMENSIONS], [0; MOST_DIMENSIONS]);
        let (mut rest_at, mut rest_to, mut count) = (at, to, 0);
        for ((axis, first), links) in self.axes.iter().zip(&mut first).zip(&mut links) {
            let (own, goal);
            (own, rest_at) = axis.place.stride.split(rest_at);
            (goal, rest_to) = axis.place.stride.split(rest_to);
            *first = axis.port(own, goal);
            *links = if own == goal { 0 } else { axis.links.get() };
            count += *links;
        }
        let (mut left, mut port) = (choose_hashed(flow_hash, u64::from(at), count), 0);
        for (&first, &links) in first.iter().zip(&links).take(self.axes.len()) {
            port = if left < links { first + left } else { port };
            // Below 0, and so beyond all that follow, once the port is found.
            left = left.wrapping_sub(links);
        }
        port
    }

    fn may_follow(&self, at: u32, port: u32, to: u32) -> bool {
        let (number, _, goal, _) = self.port(at, port);
        goal == self.axes[number].place.of(to)
    }

    fn waypoint(&self, from: u32, to: u32, hash: u64, _queue: impl Fn(u32) -> u64) -> Option<u32> {
        if !self.detours {
            return None;
        }
        let steps = self.steps(from, to);
        let thirds = |axis: u32| self.axes[axis as usize].place.size.get() - 2;
        let ways = 1 + steps.iter().map(|step| thirds(step.axis)).sum::<u32>();
        let mut left = choose_hashed(hash, DETOUR, ways).checked_sub(1)?;
        for step in &steps {
            let count = thirds(step.axis);
            if left < count {
                let axis = &self.axes[step.axis as usize];
                let (own, goal) = (axis.place.of(from), axis.place.of(to));
                // The digit number `left` of those that are neither end's.
                let mut third = left + u32::from(left >= own.min(goal));
                third += u32::from(third >= own.max(goal));
                return Some(axis.with(from, own, third));
            }
            left -= count;
        }
        unreachable!("a choice is below the number of ways")
    }

    fn leaves_shortest(&self) -> bool {
        self.detours
    }

    #[inline]
    fn repairs_by_rule(&self) -> bool {
        true
    }

    fn surviving(&self, dead: &Dead, at: u32, to: u32, ports: &mut PortSet, weights: Option<&mut Vec<u64>>) {
        self.surviving_ports(dead, at, to, ports, weights);
    }

    #[inline]
    fn is_clear(&self, dead: &Dead, at: u32, to: u32) -> bool {
        dead.is_empty() || self.no_dead_corner(dead, at, to)
    }

    grid::names_and_places!();

    fn diameter(&self) -> u32 {
        self.axes.iter().filter(|axis| axis.place.size.get() > 1).count() as u32
    }

    fn longest(&self, _slowest: Span) -> Span {
        let wide = self.axes.iter().filter(|axis| axis.place.size.get() > 1);
        wide.map(|axis| axis.cable.propagation + self.direct.delay).sum()
    }
}
