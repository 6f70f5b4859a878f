//! What a run is asked to look at: queue pairs over time, and packets. [`ears`](super::ears) hear of it.

use windtunnel_kernel::Span;
use windtunnel_topology::LinkId;

/// Queue pairs to look at over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSettings {
    /// From one look to the next.
    pub every: Span,
    /// Sending and receiving NIC; each queue pair between the two is watched.
    pub pairs: Vec<[u32; 2]>,
}

impl WatchSettings {
    /// Least time between two looks: about what a packet of a few hundred bytes takes on the fastest links.
    pub const LEAST: Span = Span::from_ps(1_000);
}

/// Packets to keep a record of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureSettings {
    /// Sending and receiving NIC: packets of queue pairs between the two, there and back, on every link.
    pub pairs: Vec<[u32; 2]>,
    /// Links: every packet on them.
    pub links: Vec<LinkId>,
    /// Records kept at most.
    pub limit: u64,
}
