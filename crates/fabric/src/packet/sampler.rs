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

/// Instants at which something is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rhythm {
    /// The next; `u64::MAX`: never.
    pub due: u64,
    every: u64,
}

impl Rhythm {
    fn new(every: Option<u64>) -> Self {
        Self { due: every.unwrap_or(u64::MAX), every: every.unwrap_or(1) }
    }

    /// The next instant; if all was `quiet` at this one, the last before `time`, up to which nothing happens.
    pub(super) fn go_on(&mut self, quiet: bool, time: u64) {
        self.due += self.every;
        if quiet && self.due < time {
            self.due = (time - 1) / self.every * self.every;
        }
    }
}

/// When the next samples are due, and those not yet taken.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    /// The earlier of both.
    pub due: u64,
    /// Of ports, and of queue pairs.
    pub ports: Rhythm,
    pub pairs: Rhythm,
    /// Bytes sent up to the sample before, by port.
    pub sent: Vec<u64>,
    /// With their ports.
    pub found: Vec<(u32, QueueSample)>,
}

impl Sampler {
    /// Of so many ports every so often, and of queue pairs.
    pub(super) fn new(every: Option<u64>, ports: u32, pairs: Option<u64>) -> Self {
        let counted = if every.is_some() { ports as usize } else { 0 };
        let (ports, pairs) = (Rhythm::new(every), Rhythm::new(pairs));
        Self { due: ports.due.min(pairs.due), ports, pairs, sent: vec![0; counted], found: Vec::new() }
    }
}
