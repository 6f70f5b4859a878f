//! What the flow model is told, and what is refused.

use windtunnel_kernel::{Bytes, Span};
use windtunnel_topology::LoadBalancer;

use super::system::CapacityError;
use crate::coding::Coding;
use crate::reduction::ReductionSettings;
use crate::wire;

/// How messages become flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowSettings {
    /// Choice among equal-cost paths.
    pub balancer: LoadBalancer,
    /// Seed of that choice.
    pub seed: u64,
    /// Size of a full packet, its header included.
    pub mtu: Bytes,
    /// Header of a packet.
    pub header: Bytes,
    /// Parity that is sent beside the data.
    pub coding: Option<Coding>,
    /// Latency of both NICs of a path together, added beyond the scale-up domain.
    pub nic_latency: Span,
    /// What switches can sum.
    pub reduction: ReductionSettings,
    /// Nobody but one job sends: an exchange whose flows have one rate when it runs by itself may be one flow. Another job's
    /// flow on one of its links would hold all of it back.
    pub alone: bool,
    /// NICs of its GPU over which a message spreads in equal parts, the first of them the one that it names; at least 1.
    pub nics: u8,
    /// Messages pay the latency of their path before they share its links, as bytes do on the last of them; else after, as on the
    /// first.
    pub latency_first: bool,
    /// Keep bytes and utilisation of links.
    pub observe_links: bool,
    /// Keep a record of each flow until it is taken.
    pub records: bool,
}

impl FlowSettings {
    /// Of the links inside scale-up domains, beside a model that has the others.
    pub fn inside(seed: u64, mtu: Bytes, header: Bytes, records: bool) -> Self {
        Self { seed, mtu, header, records, ..Self::default() }
    }
}

impl Default for FlowSettings {
    /// ECMP with seed 0, [packets](wire) as usual, nothing kept.
    fn default() -> Self {
        Self {
            balancer: LoadBalancer::Ecmp,
            seed: 0,
            mtu: wire::MTU,
            header: wire::HEADER,
            coding: None,
            nic_latency: Span::ZERO,
            reduction: ReductionSettings::default(),
            alone: false,
            nics: 1,
            latency_first: false,
            observe_links: false,
            records: false,
        }
    }
}

/// Why there is no network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FlowNetworkError {
    /// No room for payload.
    #[error("`mtu` is {} B, expected more than `header`: {} B", mtu.get(), header.get())]
    Mtu {
        /// The packet.
        mtu: Bytes,
        /// Its header.
        header: Bytes,
    },
    /// A link without capacity.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
}
