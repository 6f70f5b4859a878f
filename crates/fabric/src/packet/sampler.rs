//! Samples of queues that wait to be taken, and when the next are due. [`sample`](super::sample) takes them.

use windtunnel_kernel::Time;
use windtunnel_topology::LinkId;

/// A port at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSample {
    /// When.
    pub at: Time,
    /// The link that leaves it.
    pub link: LinkId,
    /// Bytes that it holds, the packet in service whole; a NIC's wait in their queue pairs, and are not counted.
    pub bytes: u32,
    /// Bytes of the packets whose transmission has begun since the sample before.
    pub sent: u64,
}

/// When the next samples are due, and those not yet taken.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    /// `u64::MAX`: never.
    pub due: u64,
    pub every: u64,
    /// Bytes sent up to the sample before, by port.
    pub sent: Vec<u64>,
    /// With their ports.
    pub found: Vec<(u32, QueueSample)>,
}

impl Sampler {
    pub(super) fn new(every: Option<u64>, ports: u32) -> Self {
        let (due, ports) = every.map_or((u64::MAX, 0), |every| (every, ports));
        Self { due, every: every.unwrap_or(1), sent: vec![0; ports as usize], found: Vec::new() }
    }
}
