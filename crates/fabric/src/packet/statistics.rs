//! What a port counts.

use windtunnel_kernel::Span;
use windtunnel_topology::LinkId;

/// Counters of a port: one cache line beside its hot state.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct PortCounters {
    /// Data packets sent.
    pub packets: u64,
    /// Bytes of all packets sent.
    pub bytes: u64,
    /// Time from joining the queue to the start of transmission, over data packets.
    pub waited: u64,
    /// Bytes × time held, from joining to the end of transmission, in units of 2^10 byte-picoseconds.
    pub held: u64,
    pub control: u64,
    pub marks: u32,
    pub drops: u32,
    /// Most bytes ever held.
    pub deepest: u32,
    /// Of them control packets.
    pub control_drops: u32,
    /// Data packets cut to their headers.
    pub trims: u32,
    /// Bytes of control packets among those that wait now: here because here is room.
    pub headers: u32,
}

/// What pauses did to a port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PauseCounters {
    pub pauses: u64,
    /// Time, of several queues at once the sum.
    pub paused: u64,
    /// Packets that the watchdog dropped.
    pub dropped: u64,
}

impl PauseCounters {
    /// Adds what another process counted.
    pub(super) fn add(&mut self, other: Self) {
        self.pauses += other.pauses;
        self.paused += other.paused;
        self.dropped += other.dropped;
    }
}

/// What a port saw in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortReport {
    /// The link that leaves it.
    pub link: LinkId,
    /// Data packets sent.
    pub data_packets: u64,
    /// Control packets sent.
    pub control_packets: u64,
    /// Bytes of all packets sent.
    pub bytes: u64,
    /// Data packets marked.
    pub marks: u64,
    /// Packets refused for lack of room, or lost on the cable.
    pub drops: u64,
    /// Data packets cut to their headers for lack of room.
    pub trims: u64,
    /// Most bytes ever held.
    pub max_depth: u64,
    /// Bytes held, averaged over the time asked for.
    pub mean_depth: f64,
    /// Time from joining the queue to the start of transmission, over data packets.
    pub queueing: Span,
    /// Times that a queue of it was paused.
    pub pauses: u64,
    /// Time that queues of it were paused; of several at once, the sum.
    pub paused: Span,
    /// Packets that were dropped because a pause lasted too long.
    pub watchdog_drops: u64,
}

impl PortCounters {
    pub(super) const NEW: Self = Self {
        packets: 0,
        bytes: 0,
        waited: 0,
        held: 0,
        control: 0,
        marks: 0,
        drops: 0,
        deepest: 0,
        control_drops: 0,
        trims: 0,
        headers: 0,
    };

    /// Adds what the far end's process, or the port's, counted.
    pub(super) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.waited += other.waited;
        self.held += other.held;
        self.control += other.control;
        self.marks += other.marks;
        self.drops += other.drops;
        self.deepest = self.deepest.max(other.deepest);
        self.control_drops += other.control_drops;
        self.trims += other.trims;
    }

    pub(super) fn report(&self, link: LinkId, span: Span) -> PortReport {
        let mean_depth = if span == Span::ZERO { 0.0 } else { self.held as f64 * 1_024.0 / span.ps() as f64 };
        PortReport {
            link,
            data_packets: self.packets,
            control_packets: self.control,
            bytes: self.bytes,
            marks: u64::from(self.marks),
            drops: u64::from(self.drops),
            trims: u64::from(self.trims),
            max_depth: u64::from(self.deepest),
            mean_depth,
            queueing: Span::from_ps(self.waited),
            pauses: 0,
            paused: Span::ZERO,
            watchdog_drops: 0,
        }
    }
}
