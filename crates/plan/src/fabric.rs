//! The fabric and what its hosts are made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use windtunnel_kernel::{BitRate, Span};
use windtunnel_topology::{Detour, Forwarder, LinkId, Policy, Topology};
use windtunnel_workload::model::sheets::{GpuSheet, NicSheet};

use crate::kinds::GpuKinds;

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
    /// The GPUs' sheet, if one is named; of several kinds the first.
    pub gpu: Option<Arc<GpuSheet>>,
    /// The kinds of GPUs, which buildings may differ in.
    pub kinds: GpuKinds,
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
    /// What arrives of `rate` behind what joins NICs to their hosts.
    pub fn handed_over(&self, rate: BitRate) -> BitRate {
        self.bus.map_or(rate, |bus| bus.min(rate))
    }

    /// All links that run at a part of their rate, each once, in order: the product of what slows it down on its own, as `slowed`
    /// says it, if what joins a NIC to its host is not slower still.
    pub fn slow_links(&self, slowed: impl IntoIterator<Item = (LinkId, f64)>) -> Vec<(LinkId, f64)> {
        let mut parts: BTreeMap<LinkId, f64> = BTreeMap::new();
        for (link, part) in slowed {
            *parts.entry(link).or_insert(1.0) *= part;
        }
        for (link, share) in self.bus_links() {
            let part = parts.entry(link).or_insert(1.0);
            *part = part.min(share);
        }
        parts.into_iter().collect()
    }

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
