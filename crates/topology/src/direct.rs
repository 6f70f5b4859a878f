//! Hosts on routers: what the shapes without tiers have in common.
//!
//! Hosts hang on routers (of a dragonfly+ on leaves) evenly and in order, with all their NICs: ports `0..nics` of router
//! r lead to the NICs of the hosts r · `hosts_per_router` and on, host by host.

use windtunnel_kernel::{BitRate, Span};

use crate::divide::Divisor;
use crate::error::TopologyError;
use crate::hosts::Hosts;
use crate::shape::{Cable, Site};
use crate::spec::{CableSpec, DirectSpec};

/// The edge of a shape whose hosts hang on routers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct {
    routers: u32,
    hosts_per_router: Divisor,
    /// Of a router: its ports to NICs.
    nics: Divisor,
    /// Between a NIC and its router.
    pub(crate) nic: Cable,
    /// Pipeline delay of a router.
    pub(crate) delay: Span,
}

impl Direct {
    /// The hosts on `routers` routers.
    pub(crate) fn hosts(spec: &DirectSpec, routers: u64) -> Result<Hosts, TopologyError> {
        if spec.hosts_per_router == 0 {
            return Err(TopologyError::Zero { path: "hosts_per_router".to_owned() });
        }
        if spec.host.rails {
            return Err(TopologyError::NoRails);
        }
        let hosts = routers.saturating_mul(u64::from(spec.hosts_per_router));
        let too_large = TopologyError::TooLarge { what: "endpoints", limit: 1 << 31, found: hosts };
        Hosts::new(u32::try_from(hosts).map_err(|_| too_large)?, &spec.host)
    }

    /// The edge of `hosts`, which [`Self::hosts`] gave.
    pub(crate) fn new(spec: &DirectSpec, hosts: &Hosts) -> Result<Self, TopologyError> {
        Ok(Self {
            routers: hosts.count / spec.hosts_per_router,
            hosts_per_router: Divisor::new(spec.hosts_per_router),
            // NICs of all hosts fit 31 bits.
            nics: Divisor::new(spec.hosts_per_router * hosts.nics),
            nic: cable(&spec.nic, "nic", spec.propagation_ps_per_m)?,
            delay: spec.router_latency,
        })
    }

    pub(crate) fn routers(&self) -> u32 {
        self.routers
    }

    /// Ports of a router that NICs hang on: `0..nics`.
    #[inline]
    pub(crate) fn nics(&self) -> u32 {
        self.nics.get()
    }

    /// Router and port of a NIC.
    #[inline]
    pub(crate) fn attachment(&self, nic: u32) -> (u32, u32) {
        self.nics.split(nic)
    }

    /// The NIC on a port of a router.
    #[inline]
    pub(crate) fn nic_on(&self, router: u32, port: u32) -> u32 {
        router * self.nics.get() + port
    }

    /// Router of a host, and its place there.
    pub(crate) fn place(&self, host: u32) -> (u32, u32) {
        self.hosts_per_router.split(host)
    }

    /// The host of a place on a router; `None` if there is none.
    pub(crate) fn host(&self, site: Site) -> Option<u32> {
        let exists = site.rack < self.routers && site.slot < self.hosts_per_router.get();
        exists.then(|| site.rack * self.hosts_per_router.get() + site.slot)
    }

    /// Rate of all NICs of `routers` routers.
    pub(crate) fn rate(&self, routers: u32) -> u128 {
        u128::from(routers) * u128::from(self.nics.get()) * u128::from(self.nic.rate.0)
    }
}

/// A cable of a spec, whose place is `path`.
pub(crate) fn cable(
    spec: &CableSpec,
    path: &'static str,
    propagation_ps_per_m: u64,
) -> Result<Cable, TopologyError> {
    if spec.rate == BitRate(0) {
        return Err(TopologyError::Zero { path: format!("{path}.rate") });
    }
    if !(0.0..=1.0).contains(&spec.loss) {
        return Err(TopologyError::Loss { path: format!("{path}.loss"), found: spec.loss });
    }
    let delay = (u128::from(spec.length_mm) * u128::from(propagation_ps_per_m)).div_ceil(1_000);
    let too_long = TopologyError::TooLong { path: format!("{path}.length") };
    let propagation = u64::try_from(delay).ok().filter(|&delay| u128::from(delay) < LONGEST_PS);
    Ok(Cable {
        rate: spec.rate,
        propagation: Span(propagation.ok_or(too_long)?),
        loss: spec.loss,
        length_mm: spec.length_mm,
    })
}

/// The longest span of network time: 200 days.
const LONGEST_PS: u128 = 200 * 86_400 * windtunnel_kernel::units::PS_PER_SECOND as u128;

/// Checks that a path on which every delay is met so many times takes less than 200 days. The error is about the place
/// with the largest part.
pub(crate) fn check_path(parts: &[(&'static str, Span, u64)]) -> Result<(), TopologyError> {
    let part = |&(_, delay, times): &(&'static str, Span, u64)| u128::from(delay.0) * u128::from(times);
    let largest = parts.iter().max_by_key(|&each| part(each));
    match largest {
        Some(&(path, ..)) if parts.iter().map(part).sum::<u128>() >= LONGEST_PS => {
            Err(TopologyError::TooLong { path: path.to_owned() })
        }
        _ => Ok(()),
    }
}
