//! Packets of an endpoint's own: probes, requests, tokens. What they mean the endpoint alone knows.
//!
//! A sending half sends a [`Probe`] to its receiving half, by a path number and in a lane that it chooses; the receiving half answers
//! by a [`Reply`], or sends one of itself after a data packet. Nothing of the engine waits for either, sends one again, or counts it
//! in a window. They are counted in [`Counters::probes`](crate::packet::Counters::probes) as they are sent.

use windtunnel_kernel::{Span, Time};

/// Where a probe waits at each port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Among control packets, before all data: it learns of the way, and hardly of its queues.
    #[default]
    Control,
    /// In its queue pair's data queue: it waits as a data packet would, may be marked, and is dropped where there is no room.
    Data,
}

/// From a sending half to its receiving half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// What it is, by the endpoint's own numbers.
    pub kind: u8,
    /// What it says.
    pub value: u32,
    /// Path number, where the path is not fixed.
    pub path: u16,
    /// Plane, where the queue pair spreads over planes; modulo their number.
    pub plane: u32,
    /// Bytes on the wire, at least those of a control packet.
    pub bytes: u16,
    /// Where it waits.
    pub lane: Lane,
}

/// What a probe says, to switches that ask: see [`StagePacket::own`](super::StagePacket::own).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// What it is, by the endpoint's own numbers.
    pub kind: u8,
    /// What it says.
    pub value: u32,
}

/// A probe at its receiving half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// When.
    pub now: Time,
    /// When it was handed to its NIC.
    pub sent: Time,
    /// What it is.
    pub kind: u8,
    /// What it says, or what switches have made of that.
    pub value: u32,
    /// Its path number.
    pub path: u16,
    /// Whether it was marked.
    pub marked: bool,
}

/// From a receiving half to its sending half. It waits among control packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// What it is, by the endpoint's own numbers.
    pub kind: u8,
    /// What it says.
    pub value: u32,
    /// Bytes on the wire, at least those of a control packet.
    pub bytes: u16,
}

/// A reply at the sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replied {
    /// When.
    pub now: Time,
    /// What it is.
    pub kind: u8,
    /// What it says.
    pub value: u32,
    /// From when the packet that caused it, a probe or a data packet, was sent.
    pub rtt: Span,
    /// Path number of that packet.
    pub path: u16,
    /// Plane by which it came.
    pub plane: u32,
    /// Whether that packet was marked.
    pub echo: bool,
}
