//! The rule of BCube, and its wiring.

use smallvec::smallvec;
use windtunnel_kernel::{BitRate, Span};

use super::{At, BCube};
use crate::choose::choose_hashed;
use crate::faults::Dead;
use crate::link::{LinkTier, PathClass};
use crate::port::{PortSet, nth_bit};
use crate::racks::Racks;
use crate::shape::{Cable, Coordinates, Far, Shape, Site};

impl Shape for BCube {
    fn name(&self) -> &'static str {
        "bcube"
    }

    fn switches(&self) -> u32 {
        self.direct.routers + self.levels.get() * self.width.get()
    }

    fn ports(&self, switch: u32) -> u32 {
        match self.at(switch) {
            At::Server(_) => self.levels.get() + self.direct.nics.get(),
            At::Switch { .. } => self.ports.get(),
        }
    }

    #[inline]
    fn peer(&self, switch: u32, port: u32) -> Option<Far> {
        Some(match self.at(switch) {
            At::Server(server) => match port.checked_sub(self.levels.get()) {
                None => {
                    let (switch, port) = self.switch(port, server);
                    Far::Switch { switch, port }
                }
                Some(index) => Far::Nic { nic: self.direct.nic(server, index), plane: 0 },
            },
            At::Switch { level, index } => {
                Far::Switch { switch: self.server(level, index, port), port: level }
            }
        })
    }

    #[inline]
    fn attachment(&self, nic: u32, _plane: u32) -> (u32, u32) {
        let (server, index) = self.direct.place(nic);
        (server, self.levels.get() + index)
    }

    fn cable(&self, switch: u32, port: u32) -> Cable {
        match self.at(switch) {
            At::Server(_) if port >= self.levels.get() => self.direct.nic,
            _ => self.cable,
        }
    }

    fn link_tier(&self, switch: u32, port: u32) -> LinkTier {
        match self.at(switch) {
            At::Server(_) if port >= self.levels.get() => LinkTier::NicDown,
            At::Server(_) => LinkTier::Dimension(port as u8),
            At::Switch { level, .. } => LinkTier::Dimension(level as u8),
        }
    }

    fn delay(&self, switch: u32) -> Span {
        match self.at(switch) {
            At::Server(_) => self.direct.delay,
            At::Switch { .. } => self.switch_delay,
        }
    }

    fn fabric_links(&self) -> u32 {
        2 * self.direct.routers * self.levels.get()
    }

    fn link(&self, switch: u32, port: u32) -> u32 {
        match self.at(switch) {
            At::Server(server) => server * self.levels.get() + port,
            At::Switch { .. } => {
                let up = self.direct.routers * self.levels.get();
                up + (switch - self.direct.routers) * self.ports.get() + port
            }
        }
    }

    fn link_source(&self, link: u32) -> (u32, u32) {
        match link.checked_sub(self.direct.routers * self.levels.get()) {
            None => self.levels.split(link),
            Some(down) => {
                let (switch, port) = self.ports.split(down);
                (self.direct.routers + switch, port)
            }
        }
    }

    fn parallel(&self, _switch: u32, _port: u32) -> Option<u32> {
        None
    }

    #[inline]
    fn shortest(&self, at: u32, to: u32, ports: &mut PortSet) {
        match self.at(at) {
            At::Server(server) => {
                let mut levels = self.corrections(server, to);
                while levels != 0 {
                    ports.push(levels.trailing_zeros());
                    levels &= levels - 1;
                }
            }
            At::Switch { level, .. } => ports.push(self.digit(to, level)),
        }
    }

    #[inline]
    fn pick(&self, at: u32, to: u32, flow_hash: u64) -> u32 {
        match self.at(at) {
            At::Server(server) => {
                let mut levels = self.corrections(server, to);
                let index = choose_hashed(flow_hash, u64::from(at), levels.count_ones());
                if self.levels.get() <= 4 {
                    return nth_bit::<4>(levels, index);
                }
                (0..index).for_each(|_| levels &= levels - 1);
                levels.trailing_zeros()
            }
            At::Switch { level, .. } => self.digit(to, level),
        }
    }

    fn may_follow(&self, at: u32, port: u32, to: u32) -> bool {
        match self.at(at) {
            At::Server(server) => self.digit(server, port) != self.digit(to, port),
            At::Switch { level, .. } => port == self.digit(to, level),
        }
    }

    fn waypoint(&self, _from: u32, _to: u32, _hash: u64, _queue: impl Fn(u32) -> u64) -> Option<u32> {
        None
    }

    fn leaves_shortest(&self) -> bool {
        false
    }

    fn is_clear(&self, dead: &Dead, at: u32, to: u32) -> bool {
        let from = match self.at(at) {
            At::Server(server) => server,
            // The one way goes on from the server with the destination's digit.
            At::Switch { level, index } => {
                let digit = self.digit(to, level);
                if dead.port(at, digit) {
                    return false;
                }
                self.server(level, index, digit)
            }
        };
        // Every dead cable has a dead port on a server: the servers on the paths have each digit of either end.
        let between = |server: u32| {
            (0..self.levels.get()).all(|level| {
                let digit = self.digit(server, level);
                digit == self.digit(from, level) || digit == self.digit(to, level)
            })
        };
        !dead.rows().any(|(switch, _)| {
            switch < self.direct.routers
                && between(switch)
                && (0..self.levels.get()).any(|level| {
                    // Used from this server on, or into it.
                    self.digit(from, level) != self.digit(to, level) && dead.port(switch, level)
                })
        })
    }

    /// One switch apart, two, more.
    fn class(&self, a: u32, b: u32) -> PathClass {
        match self.corrections(a, b).count_ones() {
            0 | 1 => PathClass::SameLeaf,
            2 => PathClass::SamePod,
            _ => PathClass::Beyond,
        }
    }

    fn tier(&self, switch: u32) -> u8 {
        match self.at(switch) {
            At::Server(_) => 0,
            At::Switch { level, .. } => level as u8 + 1,
        }
    }

    fn tier_name(&self, tier: u8) -> String {
        match tier {
            0 => "server".to_owned(),
            tier => format!("level{}", tier - 1),
        }
    }

    /// `server13`, and of level 1 `level1-5`.
    fn switch_name(&self, switch: u32) -> String {
        match self.at(switch) {
            At::Server(server) => format!("server{server}"),
            At::Switch { level, index } => format!("level{level}-{index}"),
        }
    }

    fn axes(&self) -> Vec<String> {
        ["tier", "index"].map(str::to_owned).to_vec()
    }

    fn coordinates(&self, switch: u32) -> Coordinates {
        match self.at(switch) {
            At::Server(server) => smallvec![0, server],
            At::Switch { level, index } => smallvec![level + 1, index],
        }
    }

    fn switch_at(&self, coordinates: &[u32]) -> Option<u32> {
        let &[tier, index] = coordinates else { return None };
        match tier.checked_sub(1) {
            None => (index < self.direct.routers).then_some(index),
            Some(level) => (level < self.levels.get() && index < self.width.get())
                .then(|| self.direct.routers + level * self.width.get() + index),
        }
    }

    /// A rack is the servers of a switch of level 0, a pod those of a BCube of two levels.
    fn site(&self, host: u32) -> Site {
        self.racks().site(host)
    }

    fn host_at(&self, site: Site) -> Option<u32> {
        self.racks().host(site)
    }

    /// Cut between the lower and the upper values of the last digit: every switch of that level carries half of its
    /// ports' rate. With odd `ports` the servers of the middle value are cut at the next digit, and so on: always the
    /// rate of one cable for every server of a half.
    fn bisection(&self) -> BitRate {
        self.direct.bisection(u128::from(self.direct.routers / 2) * u128::from(self.cable.rate.bps()))
    }

    fn diameter(&self) -> u32 {
        2 * self.levels.get()
    }
}

impl BCube {
    /// Racks are the servers on one switch of the lowest level.
    fn racks(&self) -> Racks {
        Racks { count: self.width.get(), hosts: self.ports, per_pod: self.ports }
    }
}
