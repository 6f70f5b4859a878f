//! What an engine is asked for and what it hands out: queue pairs to open, open ones, and messages that have arrived.

use windtunnel_kernel::{Bytes, Time};
use windtunnel_topology::LinkId;

/// Between which NICs a queue pair is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRequest<'a> {
    /// Sender, counted over all hosts.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// What the load balancer hashes.
    pub entropy: u32,
    /// Whether it stays open for more messages; otherwise it closes after its first.
    pub keep: bool,
    /// The links to take there and back, chosen by the host; empty: the balancer chooses.
    pub route: [&'a [LinkId]; 2],
}

/// An open queue pair: where its halves lie. Places are used again after it has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueuePair {
    pub(super) sender: u32,
    pub(super) receiver: u32,
    /// Processes of the two.
    pub(super) homes: [u32; 2],
}

/// A message whose last byte has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The caller's name for it.
    pub token: u64,
    /// When.
    pub at: Time,
    /// When it was handed over.
    pub start: Time,
    /// Payload.
    pub bytes: Bytes,
}
