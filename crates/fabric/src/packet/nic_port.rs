//! What is kept of a NIC port beside its [`Port`](super::port::Port): whose turn it is to send, and what starts later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pull::Ready;

/// The queue pairs of a NIC port: what is asked whenever something may be sent in one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct NicPort {
    /// Those that may send, in the order of their turns.
    pub ready: Ready,
    /// Those that may send later: when, what they are called, which. Where a pace has changed since, another entry has the
    /// new time.
    pub paced: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Nothing on the ring may start before.
    pub since: u64,
    /// When the earliest wake-up is due.
    pub wake: u64,
    /// Messages to come: when, in which order they were handed over, which.
    pub starts: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Sending halves opened here, and messages handed over, ever.
    pub opened: u32,
    pub handed: u32,
    /// Whether the ring has its turn before contributions to reductions.
    pub yields: bool,
    /// When a pause last ended: what waits on the port's own list does not start before.
    pub resumed: u64,
}

impl Default for NicPort {
    fn default() -> Self {
        Self {
            ready: Ready::default(),
            paced: BinaryHeap::new(),
            starts: BinaryHeap::new(),
            opened: 0,
            handed: 0,
            since: 0,
            wake: u64::MAX,
            yields: false,
            resumed: 0,
        }
    }
}

impl NicPort {
    /// Notes that the port is to be woken at `at`; whether nothing wakes it before.
    pub(super) fn asks_to_wake(&mut self, at: u64) -> bool {
        let asks = self.wake > at;
        if asks {
            self.wake = at;
        }
        asks
    }
}
