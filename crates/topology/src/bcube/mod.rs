//! BCube: servers that forward, and levels of switches that join servers differing in one digit (Guo et al., SIGCOMM'09).
//!
//! A server is a string of `levels` digits below `ports`, digit 0 varying fastest in its number. A switch of level l
//! is such a string without digit l; it joins the servers that have its other digits, its port j leading to the one
//! whose digit l is j. Ports of a server: port l leads to its switch of level l; then come its NICs. All ports have a
//! cable, so links are dense: server · levels + l from servers to switches, then switch · ports + j back.
//!
//! Forwarders are numbered servers first, then the switches level by level. Each host is a server and its NICs hang on
//! the server's own forwarder. Switches have no NICs and never originate anything.
//!
//! Legal paths: minimal. Every correction of a digit in which the ends differ is two hops, server → switch → server,
//! and sets the digit to the destination's; the corrections come in any order (the paper's BCubeRouting takes one of
//! these orders, its parallel paths begin with different ones). A repair that needs other digits is a detour.

mod rule;

use smallvec::SmallVec;
use windtunnel_kernel::Span;

use crate::direct::{Direct, cable, largest};
use crate::divide::Divisor;
use crate::error::TopologyError;
use crate::hosts::Hosts;
use crate::shape::Cable;
use crate::spec::BCubeSpec;

/// See the module page.
#[derive(Clone, Debug)]
pub(crate) struct BCube {
    direct: Direct,
    /// Of a switch, n.
    ports: Divisor,
    /// Of switches.
    levels: Divisor,
    /// n^l for every level l.
    strides: SmallVec<[Divisor; 8]>,
    /// Switches of a level.
    width: Divisor,
    cable: Cable,
    switch_delay: Span,
}

/// A forwarder taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Server(u32),
    Switch {
        level: u32,
        /// Within its level.
        index: u32,
    },
}

impl BCube {
    /// Checks the sizes of `spec`; its hosts.
    pub(crate) fn hosts(spec: &BCubeSpec) -> Result<Hosts, TopologyError> {
        Direct::check(&spec.direct)?;
        if spec.direct.hosts_per_router != 1 {
            let found = spec.direct.hosts_per_router;
            return Err(TopologyError::HostsPerNode { node: "server", found });
        }
        if spec.ports < 2 {
            return Err(TopologyError::Least { path: "ports".to_owned(), least: 2, found: spec.ports });
        }
        if spec.levels == 0 {
            return Err(TopologyError::Zero { path: "levels".to_owned() });
        }
        // At least two ports: no more than 31 levels are of interest.
        let servers = |levels: u32| u64::from(spec.ports).saturating_pow(levels.min(64));
        let hosts = |levels| {
            let links = servers(levels).saturating_mul(2 * u64::from(levels));
            Direct::hosts(&spec.direct, servers(levels), links)
        };
        if let Some(hosts) = hosts(spec.levels)? {
            return Ok(hosts);
        }
        Err(TopologyError::Oversize {
            path: "levels".to_owned(),
            found: servers(spec.levels),
            fit: largest(spec.levels, |levels| matches!(hosts(levels), Ok(Some(_)))),
        })
    }

    /// The rules of `spec`, whose hosts [`Self::hosts`] has given.
    pub(crate) fn new(spec: &BCubeSpec, hosts: &Hosts) -> Result<Self, TopologyError> {
        let direct = Direct::new(&spec.direct, hosts)?;
        let bcube = Self {
            ports: Divisor::new(spec.ports),
            levels: Divisor::new(spec.levels),
            strides: (0..spec.levels).map(|level| Divisor::new(spec.ports.pow(level))).collect(),
            width: Divisor::new(direct.routers / spec.ports),
            cable: cable(&spec.cable, &spec.direct, "cable")?,
            switch_delay: spec.switch_latency,
            direct,
        };
        let delays = bcube.direct.delay.ps().saturating_add(spec.switch_latency.ps());
        let hop = Span::from_ps(delays.saturating_add(bcube.cable.propagation.ps().saturating_mul(2)));
        let hops = [("cable".to_owned(), spec.cable.length_mm, hop, u64::from(spec.levels))];
        bcube.direct.check_latency(hops.into_iter())?;
        Ok(bcube)
    }

    #[inline]
    fn at(&self, switch: u32) -> At {
        match switch.checked_sub(self.direct.routers) {
            None => At::Server(switch),
            Some(switch) => {
                let (level, index) = self.width.split(switch);
                At::Switch { level, index }
            }
        }
    }

    /// Digit `level` of a server.
    #[inline]
    fn digit(&self, server: u32, level: u32) -> u32 {
        self.ports.remainder(self.strides[level as usize].quotient(server))
    }

    /// The server of a switch that has a digit.
    #[inline]
    fn server(&self, level: u32, index: u32, digit: u32) -> u32 {
        let stride = self.strides[level as usize];
        let (high, low) = stride.split(index);
        (high * self.ports.get() + digit) * stride.get() + low
    }

    /// The number of the switch of a level that a server hangs on, and its port.
    #[inline]
    fn switch(&self, level: u32, server: u32) -> (u32, u32) {
        let stride = self.strides[level as usize];
        let (rest, low) = stride.split(server);
        let (high, digit) = self.ports.split(rest);
        (self.direct.routers + level * self.width.get() + high * stride.get() + low, digit)
    }

    /// The levels in whose digits two servers differ, a bit each.
    #[inline]
    fn corrections(&self, mut a: u32, mut b: u32) -> u64 {
        let mut levels = 0;
        for level in 0..self.levels.get() {
            let ((rest_a, x), (rest_b, y)) = (self.ports.split(a), self.ports.split(b));
            levels |= u64::from(x != y) << level;
            (a, b) = (rest_a, rest_b);
        }
        levels
    }
}
