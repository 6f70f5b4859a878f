//! What an engine counts of everything at once.

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events handled: arrivals of packets anywhere, starts, timers, grants and pauses, but none that only keep a port
    /// going.
    pub events: u64,
    /// Data packets that arrived, also those not wanted.
    pub data_packets: u64,
    /// Acknowledgements that arrived.
    pub acknowledgements: u64,
    /// Other control packets that arrived: notifications, NACKs, PULLs, the headers of packets that were trimmed, and packets of
    /// endpoints' own.
    pub notices: u64,
    /// Packets refused for lack of room or lost on a cable.
    pub drops: u64,
    /// Of them control packets: acknowledgements, notifications, PULLs, headers of packets that were trimmed before, and endpoints' own
    /// but those in data queues.
    pub control_drops: u64,
    /// Of all those lost on a cable that works.
    pub corrupted: u64,
    /// Of all those that were on a link that went down, waited for it, or met it.
    pub link_down: u64,
    /// Data packets cut to their headers for lack of room.
    pub trims: u64,
    /// PULLs that receivers sent, and the bytes that these granted.
    pub grants: u64,
    /// See `grants`.
    pub credit: u64,
    /// Data packets marked.
    pub marks: u64,
    /// Data packets sent again.
    pub retransmissions: u64,
    /// Data packets that arrived before an earlier one.
    pub reordered: u64,
    /// Times that silence was taken for loss.
    pub timeouts: u64,
    /// How long was waited for these altogether, in ps.
    pub silence: u64,
    /// Payload of messages completed.
    pub bytes_delivered: u64,
    /// Times that a queue of a port was paused.
    pub pauses: u64,
    /// Packets of endpoints' own that were sent, probes and replies: see [`Probe`](super::transport::Probe).
    pub probes: u64,
}

impl Counters {
    /// Silence of `waited` ps was taken for loss.
    pub(super) fn time_out(&mut self, waited: u64) {
        self.timeouts += 1;
        self.silence = self.silence.saturating_add(waited);
    }

    /// Adds those of another process.
    pub(super) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.data_packets += other.data_packets;
        self.acknowledgements += other.acknowledgements;
        self.notices += other.notices;
        self.drops += other.drops;
        self.control_drops += other.control_drops;
        self.corrupted += other.corrupted;
        self.link_down += other.link_down;
        self.trims += other.trims;
        self.grants += other.grants;
        self.credit += other.credit;
        self.marks += other.marks;
        self.retransmissions += other.retransmissions;
        self.reordered += other.reordered;
        self.timeouts += other.timeouts;
        self.silence = self.silence.saturating_add(other.silence);
        self.bytes_delivered += other.bytes_delivered;
        self.pauses += other.pauses;
        self.probes += other.probes;
    }
}
