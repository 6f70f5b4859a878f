//! What the shapes without tiers have in common: hosts hang on forwarders evenly and in order.
//!
//! Host h hangs on forwarder h / `hosts_per_router`; the NICs of a forwarder have consecutive ports, host by host, from
//! a first one that the shape says. There is one plane.

use windtunnel_kernel::{BitRate, Span};

use crate::divide::Divisor;
use crate::edge::Edge;
use crate::error::TopologyError;
use crate::hosts::Hosts;
use crate::racks::Racks;
use crate::shape::Cable;
use crate::spec::{CableSpec, Dimension, DirectSpec};

/// Paths must take less than 200 days, the longest span of network time.
pub(crate) const LONGEST_PS: u128 = 200 * 86_400 * windtunnel_kernel::units::PS_PER_SECOND as u128;

/// Forwarders and the hosts on them.
#[derive(Clone, Debug)]
pub(crate) struct Direct {
    /// Forwarders with hosts.
    pub(crate) routers: u32,
    pub(crate) hosts_per_router: Divisor,
    /// NICs of a forwarder.
    pub(crate) nics: Divisor,
    /// Between a NIC and its forwarder.
    pub(crate) nic: Cable,
    /// Of a forwarder.
    pub(crate) delay: Span,
}

impl Direct {
    /// Checks what does not depend on the shape's sizes.
    pub(crate) fn check(spec: &DirectSpec) -> Result<(), TopologyError> {
        if spec.hosts_per_router == 0 {
            return Err(TopologyError::Zero { path: "hosts_per_router".to_owned() });
        }
        if spec.host.rails {
            return Err(TopologyError::DirectRails);
        }
        Ok(())
    }

    /// Hosts of `routers` forwarders, whose links are `fabric_links` in all; `None` if there are not ids enough for
    /// them.
    pub(crate) fn hosts(
        spec: &DirectSpec,
        routers: u64,
        fabric_links: u64,
    ) -> Result<Option<Hosts>, TopologyError> {
        // What is wrong with a host is said first: a single one is never too many.
        Hosts::new(1, &spec.host)?;
        let count = u32::try_from(routers.saturating_mul(u64::from(spec.hosts_per_router)));
        let Some(hosts) = count.ok().and_then(|count| Hosts::new(count, &spec.host).ok()) else {
            return Ok(None);
        };
        let fits = Edge::new(&hosts, 1).and_then(|edge| edge.end(fabric_links)).is_ok();
        Ok(fits.then_some(hosts))
    }

    /// For `hosts` that [`Self::hosts`] has accepted.
    pub(crate) fn new(spec: &DirectSpec, hosts: &Hosts) -> Result<Self, TopologyError> {
        Ok(Self {
            routers: hosts.count / spec.hosts_per_router,
            hosts_per_router: Divisor::new(spec.hosts_per_router),
            nics: Divisor::new(spec.hosts_per_router * spec.host.nics),
            nic: cable(&spec.nic, spec, "nic")?,
            delay: spec.router_latency,
        })
    }

    /// Every forwarder a rack, `per_pod` of them a pod.
    pub(crate) fn racks(&self, per_pod: Divisor) -> Racks {
        Racks { count: self.routers, hosts: self.hosts_per_router, per_pod }
    }

    /// The forwarder of a NIC, and its number there.
    #[inline]
    pub(crate) fn place(&self, nic: u32) -> (u32, u32) {
        self.nics.split(nic)
    }

    /// The NIC of a number on a forwarder.
    #[inline]
    pub(crate) fn nic(&self, router: u32, index: u32) -> u32 {
        router * self.nics.get() + index
    }

    /// What the NICs of half of the forwarders can send: no bisection is above it.
    pub(crate) fn half(&self) -> u128 {
        u128::from(self.routers / 2) * u128::from(self.nics.get()) * u128::from(self.nic.rate.bps())
    }

    /// A rate no larger than [`Self::half`] and than can be written.
    pub(crate) fn bisection(&self, cut: u128) -> BitRate {
        BitRate::from_bps(u64::try_from(cut.min(self.half())).unwrap_or(u64::MAX))
    }

    /// Checks the latency of the longest path: NIC cables, a forwarder, and `hops` times what `path` describes.
    pub(crate) fn check_latency(
        &self,
        hops: impl Iterator<Item = (String, u64, Span, u64)>,
    ) -> Result<(), TopologyError> {
        let mut total = 2 * u128::from(self.nic.propagation.ps()) + u128::from(self.delay.ps());
        let whole = ("nic".to_owned(), self.nic.length_mm, self.delay, 0);
        for (path, length_mm, hop, count) in std::iter::once(whole).chain(hops) {
            total += u128::from(hop.ps()) * u128::from(count);
            if total >= LONGEST_PS {
                return Err(TopologyError::LongPaths { path, length_mm, hop });
            }
        }
        Ok(())
    }
}

/// A cable of a direct shape, whose place in the spec is `path`.
pub(crate) fn cable(spec: &CableSpec, direct: &DirectSpec, path: &str) -> Result<Cable, TopologyError> {
    cable_at(spec, direct.propagation_ps_per_m, path)
}

/// A cable whose place in the spec is `path`.
pub(crate) fn cable_at(
    spec: &CableSpec,
    propagation_ps_per_m: u64,
    path: &str,
) -> Result<Cable, TopologyError> {
    if spec.rate.bps() == 0 {
        return Err(TopologyError::Zero { path: format!("{path}.rate") });
    }
    if !(0.0..=1.0).contains(&spec.loss) {
        return Err(TopologyError::Loss { path: format!("{path}.loss"), found: spec.loss });
    }
    let delay = (u128::from(spec.length_mm) * u128::from(propagation_ps_per_m)).div_ceil(1_000);
    if delay >= LONGEST_PS {
        let (path, length_mm) = (path.to_owned(), spec.length_mm);
        return Err(TopologyError::LongPaths { path, length_mm, hop: Span::MAX });
    }
    Ok(Cable {
        rate: spec.rate,
        propagation: Span::from_ps(delay as u64),
        loss: spec.loss,
        length_mm: spec.length_mm,
    })
}

/// The hosts of a grid of `dimensions`, by `hosts`, which gives none where there are too many of anything. The refusal names
/// the largest dimension (of several the first) with the largest size of it that fits; `routers` is how many there are in all.
pub(crate) fn grid_hosts(
    spec: &DirectSpec,
    dimensions: &[Dimension],
    routers: u64,
    hosts: impl Fn(&[Dimension]) -> Result<Option<Hosts>, TopologyError>,
) -> Result<Hosts, TopologyError> {
    if let Some(hosts) = hosts(dimensions)? {
        return Ok(hosts);
    }
    let sizes = dimensions.iter().map(|dimension| dimension.size).enumerate();
    // The last of equal ones wins, so from the end.
    let (index, size) = sizes.rev().max_by_key(|&(_, size)| size).expect("at least one");
    let fits = |size| {
        let mut dimensions = dimensions.to_vec();
        dimensions[index].size = size;
        matches!(hosts(&dimensions), Ok(Some(_)))
    };
    Err(TopologyError::Oversize {
        path: format!("dimensions[{index}].size"),
        found: routers.saturating_mul(u64::from(spec.hosts_per_router)),
        fit: largest(size, fits),
    })
}

/// The largest size below `found` that `fits`, at least 1.
pub(crate) fn largest(found: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (1, found.max(1));
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}
