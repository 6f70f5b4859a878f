//! The fabric and what its hosts are made of.

use std::sync::Arc;

use windtunnel_kernel::{BitRate, Span};
use windtunnel_topology::{Detour, Forwarder, LinkId, Policy, Topology};
use windtunnel_workload::model::sheets::{GpuSheet, NicSheet};

/// A fabric with what its hosts are made of.
#[derive(Clone, Debug)]
pub struct FabricParts {
    /// The shape.
    pub topology: Arc<Topology>,
    /// Routing around what has failed; `None` if nothing has.
    pub faults: Option<Forwarder>,
    /// What becomes of pairs without a legal path.
    pub detour: Detour,
    /// How switches cope with what fails.
    pub policy: Policy,
    /// The GPUs' sheet, if one is named.
    pub gpu: Option<Arc<GpuSheet>>,
    /// The NICs' sheet, if one is named.
    pub nic: Option<Arc<NicSheet>>,
    /// Time a stream is held per message.
    pub overhead: Span,
    /// Time a NIC is held per message.
    pub gap: Span,
    /// Latency of both hosts' NICs and of what joins them to their hosts, added to the path's.
    pub nic_latency: Span,
    /// What a NIC and its host hand over at most; `None`: as much as the NIC sends.
    pub bus: Option<BitRate>,
    /// Whether switches of scale-up domains sum.
    pub scale_up_reduces: bool,
}

impl FabricParts {
    /// Links of NICs that are faster than what joins these to their hosts, with the part of their rate that is of use.
    pub fn bus_links(&self) -> impl Iterator<Item = (LinkId, f64)> {
        let (topology, planes) = (&self.topology, self.topology.planes());
        let share = move |link: LinkId| {
            let rate = topology.link(link).rate.bps() as f64 * f64::from(planes);
            self.bus.map_or(1.0, |bus| bus.bps() as f64 / rate)
        };
        let nics = if self.bus.is_some() { topology.nics() } else { 0 };
        let up = (0..nics).flat_map(move |nic| (0..planes).map(move |plane| topology.nic_link(nic, plane)));
        let links = up.flat_map(move |link| [link, topology.reverse(link)]);
        links.map(move |link| (link, share(link))).filter(|&(_, share)| share < 1.0)
    }
}
