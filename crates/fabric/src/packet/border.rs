//! What an engine that is one process of several knows of the others, and the loads that it has for them.
//!
//! [`crossing`](super::crossing) says what becomes of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::packets::Packet;
use super::receiver::Feedback;
use super::telemetry::Hop;

/// What joins an engine to the other processes.
#[derive(Clone, Debug)]
pub(super) struct Crossing {
    /// Which process it is.
    pub number: u32,
    /// Process of each NIC, then of each switch.
    pub homes: Arc<[u32]>,
    /// Away ports that have something waiting.
    pub waiting: Vec<u32>,
    /// Of them those whose turn has come, while they are started; kept for its allocation.
    pub due: Vec<u32>,
    /// When the first of them may start it.
    pub next: u64,
    /// Process of the far end of each port.
    pub fars: Vec<u32>,
    /// Packets that have left in this window, by process.
    pub loads: Vec<Load>,
    /// Loads emptied.
    pub spare: Vec<Load>,
    /// Packets that have left ever.
    pub left: u64,
    /// When pauses that began here may have lasted too long, and at which port. What is paused for ever all processes know
    /// together: the caller looks ([`Engine::long_paused`](super::engine::Engine::long_paused)).
    pub checks: BinaryHeap<Reverse<(u64, u32)>>,
    /// Packets dropped here, by the process of the half that counts them.
    pub gone: Vec<(u32, Gone)>,
    pub first_done: Arc<AtomicU64>,
}

impl Crossing {
    /// Process of a NIC.
    pub(super) fn home(&self, nic: u32) -> u32 {
        self.homes[nic as usize]
    }

    /// Something has happened that the caller must know of: a message has completed, or a queue pair given up. The run ends
    /// with this window.
    pub(super) fn calls(&self, now: u64) {
        self.first_done.fetch_min(now, Relaxed);
    }
}

/// A packet that is no more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    /// The half it went to.
    pub half: u32,
    /// Whether that is a sending half.
    pub back: bool,
    /// Whether it was an endpoint's own, which nobody waits for.
    pub own: bool,
}

/// Packets that leave for a process in a window.
#[derive(Clone, Debug)]
pub struct Load {
    /// The packets: `next_time` of each is when it reaches the far end of the port that `next` names.
    pub(super) parcels: Vec<Packet>,
    /// Of the acknowledgements among them, in their order.
    pub(super) feedbacks: Vec<Feedback>,
    /// Of all of them, where telemetry is kept.
    pub(super) hops: Vec<Vec<Hop>>,
    /// Pauses and resumes: when each is heeded, at which port, and its name.
    pub(super) frames: Vec<(u64, u32, u32)>,
    /// When the first of all arrives, and the least time that any is on its way.
    pub(super) first: u64,
    pub(super) least: u64,
}

impl Load {
    pub(super) const fn new() -> Self {
        Self {
            parcels: Vec::new(),
            feedbacks: Vec::new(),
            hops: Vec::new(),
            frames: Vec::new(),
            first: u64::MAX,
            least: u64::MAX,
        }
    }
}
