//! The links between NICs and the fabric: one each way for every NIC and plane.

use windtunnel_kernel::Id;

use crate::error::TopologyError;
use crate::hosts::Hosts;
use crate::link::LinkId;

/// Numbers of the links at the edge, and where those of the fabric begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// NICs of a host.
    pub(crate) nics_per_host: u32,
    /// NICs of all hosts.
    pub(crate) nics: u32,
    /// Copies of the switch fabric.
    pub(crate) planes: u32,
    /// First link from a NIC.
    up: u32,
    /// First link to a NIC.
    down: u32,
    /// First link between switches.
    pub(crate) fabric: u32,
}

impl Edge {
    /// Numbers the links after those inside the hosts.
    pub(crate) fn new(hosts: &Hosts, planes: u32) -> Result<Self, TopologyError> {
        // Hosts have checked that NICs fit 31 bits.
        let nics = hosts.count * hosts.nics;
        let (up, ports) = (hosts.link_count(), u64::from(nics) * u64::from(planes));
        let end = u64::from(up) + 2 * ports;
        let too_large = |_| TopologyError::TooLarge { what: "links", limit: 1 << 32, found: end };
        let fabric = u32::try_from(end).map_err(too_large)?;
        Ok(Self { nics_per_host: hosts.nics, nics, planes, up, down: up + ports as u32, fabric })
    }

    #[inline]
    pub(crate) fn up(&self, nic: u32, plane: u32) -> LinkId {
        LinkId(self.up + nic * self.planes + plane)
    }

    #[inline]
    pub(crate) fn down(&self, nic: u32, plane: u32) -> LinkId {
        LinkId(self.down + nic * self.planes + plane)
    }

    /// The NIC and plane of a link at the edge, and whether it leaves the NIC; `None` for another link.
    pub(crate) fn part(&self, link: LinkId) -> Option<(u32, u32, bool)> {
        let outwards = link.0 < self.down;
        let first = if outwards { self.up } else { self.down };
        let index = link.0.checked_sub(first)?;
        (link.0 < self.fabric).then(|| (index / self.planes, index % self.planes, outwards))
    }

    /// A link between switches by its number among them.
    #[inline]
    pub(crate) fn between(&self, link: u32) -> LinkId {
        LinkId::from_index((self.fabric + link) as usize)
    }

    /// One more than the last link, if it can be numbered.
    pub(crate) fn end(&self, fabric_links: u64) -> Result<u32, TopologyError> {
        let end = u64::from(self.fabric).saturating_add(fabric_links);
        u32::try_from(end).map_err(|_| TopologyError::TooLarge { what: "links", limit: 1 << 32, found: end })
    }
}
