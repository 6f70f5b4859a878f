//! Hosts: which GPU an endpoint is, which NIC it uses, and the scale-up network inside.
//!
//! Endpoints and NICs are counted host-major. NIC k of GPU g is NIC g · nics / gpus + k of its host; with fewer NICs
//! than GPUs, neighbouring GPUs share one. Links: `0..endpoints` leave the GPUs, the next as many enter them; a domain
//! of one GPU has none.

use windtunnel_kernel::{BitRate, EndpointId, Span};

use crate::divide::Divisor;
use crate::error::TopologyError;
use crate::link::{Link, LinkId, LinkTier, Node};
use crate::spec::HostSpec;

/// Where an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) host: u32,
    pub(crate) gpu: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    pub(crate) count: u32,
    pub(crate) gpus: Divisor,
    pub(crate) nics: u32,
    pub(crate) nics_per_gpu: Divisor,
    gpus_per_nic: Divisor,
    pub(crate) domain: Divisor,
    rate: BitRate,
    latency: Span,
    /// Endpoints whose scale-up links are others: up to which one, with rate and latency, ascending; none where all are alike.
    apart: Box<[(u32, BitRate, Span)]>,
}

impl Hosts {
    pub(crate) fn new(count: u32, spec: &HostSpec) -> Result<Self, TopologyError> {
        let HostSpec { gpus, nics, scale_up, .. } = *spec;
        let size = scale_up.size.unwrap_or(gpus);
        for (path, value) in
            [("hosts", count), ("host.gpus", gpus), ("host.nics", nics), ("host.scale_up.size", size)]
        {
            if value == 0 {
                return Err(TopologyError::Zero { path: path.to_owned() });
            }
        }
        if size > 1 && scale_up.rate.bps() == 0 {
            return Err(TopologyError::Zero { path: "host.scale_up.rate".to_owned() });
        }
        if nics % gpus != 0 && gpus % nics != 0 {
            return Err(TopologyError::Nics { gpus, nics });
        }
        if gpus % size != 0 && size % gpus != 0 {
            return Err(TopologyError::ScaleUp { gpus, size });
        }
        // Two links an endpoint must fit 32 bits too.
        let endpoints = u64::from(count).saturating_mul(u64::from(gpus.max(nics)));
        if endpoints >= 1 << 31 {
            return Err(TopologyError::TooLarge { what: "endpoints", limit: 1 << 31, found: endpoints });
        }
        Ok(Self {
            count,
            gpus: Divisor::new(gpus),
            nics,
            nics_per_gpu: Divisor::new((nics / gpus).max(1)),
            gpus_per_nic: Divisor::new((gpus / nics).max(1)),
            domain: Divisor::new(size),
            rate: scale_up.rate,
            latency: scale_up.latency,
            apart: Box::default(),
        })
    }

    /// The same, whose scale-up links are as `groups` say of so many hosts each, one after the other.
    pub(crate) fn with_scale_ups(self, groups: impl IntoIterator<Item = (u32, BitRate, Span)>) -> Self {
        let mut until = 0;
        let ends = |(hosts, rate, latency)| {
            until += hosts * self.gpus.get();
            (until, rate, latency)
        };
        let apart: Box<[_]> = groups.into_iter().map(ends).collect();
        Self { apart, ..self }
    }

    /// Rate and latency of the scale-up link of most GPUs.
    pub(crate) fn scale_up(&self) -> (BitRate, Span) {
        (self.rate, self.latency)
    }

    /// Those of a GPU's.
    #[inline]
    pub(crate) fn scale_up_of(&self, endpoint: EndpointId) -> (BitRate, Span) {
        if self.apart.is_empty() {
            return self.scale_up();
        }
        let at = self.apart.partition_point(|&(until, ..)| until <= endpoint.0);
        self.apart.get(at).map_or(self.scale_up(), |&(_, rate, latency)| (rate, latency))
    }

    /// Those that there are, in the order of their hosts.
    pub(crate) fn scale_ups(&self) -> Vec<(BitRate, Span)> {
        if self.apart.is_empty() {
            return vec![self.scale_up()];
        }
        let mut found = Vec::new();
        for &(_, rate, latency) in &self.apart {
            if !found.contains(&(rate, latency)) {
                found.push((rate, latency));
            }
        }
        found
    }

    pub(crate) fn endpoints(&self) -> u32 {
        self.count * self.gpus.get()
    }

    /// Scale-up domains of a host; 1 also where a domain spans several hosts.
    pub(crate) fn domains_per_host(&self) -> u32 {
        (self.gpus.get() / self.domain.get()).max(1)
    }

    /// Hosts of a scale-up domain, at least 1.
    pub(crate) fn hosts_per_domain(&self) -> u32 {
        (self.domain.get() / self.gpus.get()).max(1)
    }

    /// Scale-up links; the links of the fabric come after them.
    pub(crate) fn link_count(&self) -> u32 {
        if self.domain.get() > 1 { 2 * self.endpoints() } else { 0 }
    }

    #[inline]
    pub(crate) fn place(&self, endpoint: EndpointId) -> Place {
        debug_assert!(endpoint.0 < self.endpoints(), "{endpoint:?} of {}", self.endpoints());
        let (host, gpu) = self.gpus.split(endpoint.0);
        Place { host, gpu }
    }

    /// The NIC, within its host, that a GPU calls `nic` (modulo those it has).
    #[inline]
    pub(crate) fn nic(&self, gpu: u32, nic: u8) -> u32 {
        self.gpus_per_nic.quotient(gpu) * self.nics_per_gpu.get()
            + self.nics_per_gpu.remainder(u32::from(nic))
    }

    /// Domains are counted over all hosts: their size divides a host's GPUs or is a multiple of them.
    #[inline]
    pub(crate) fn same_domain(&self, a: EndpointId, b: EndpointId) -> bool {
        self.domain.quotient(a.0) == self.domain.quotient(b.0)
    }

    #[inline]
    pub(crate) fn out_link(endpoint: EndpointId) -> LinkId {
        LinkId(endpoint.0)
    }

    #[inline]
    pub(crate) fn in_link(&self, endpoint: EndpointId) -> LinkId {
        LinkId(self.endpoints() + endpoint.0)
    }

    /// The same GPU's link the other way.
    pub(crate) fn reverse(&self, link: LinkId) -> LinkId {
        let endpoints = self.endpoints();
        LinkId(if link.0 < endpoints { link.0 + endpoints } else { link.0 - endpoints })
    }

    /// `host3/scale-up`, of several in a host `host3/scale-up1`, over several hosts `rack0/scale-up`.
    pub(crate) fn domain_name(&self, domain: u32) -> String {
        let per_host = self.domains_per_host();
        if self.hosts_per_domain() > 1 {
            return format!("rack{domain}/scale-up");
        }
        let (host, index) = (domain / per_host, domain % per_host);
        if per_host == 1 { format!("host{host}/scale-up") } else { format!("host{host}/scale-up{index}") }
    }

    /// A scale-up link: the way out takes the latency of the domain, the way in none.
    pub(crate) fn link(&self, link: LinkId) -> Link {
        let out = link.0 < self.endpoints();
        let (rate, latency) = self.scale_up_of(EndpointId(link.0 % self.endpoints()));
        let (latency, tier) =
            if out { (latency, LinkTier::ScaleUpOut) } else { (Span::ZERO, LinkTier::ScaleUpIn) };
        Link { rate, latency, propagation: latency, loss: 0.0, tier }
    }

    pub(crate) fn link_ends(&self, link: LinkId) -> (Node, Node) {
        let (inwards, endpoint) = (link.0 / self.endpoints(), link.0 % self.endpoints());
        let ends = (Node::Gpu(EndpointId(endpoint)), Node::ScaleUp(self.domain.quotient(endpoint)));
        if inwards == 0 { ends } else { (ends.1, ends.0) }
    }
}
