//! How ports keep what waits, where a [`Dispatcher`](super::Dispatcher) says so: lines of strict priority in place of the settings' queues.

use windtunnel_kernel::{BitRate, Span};

/// Most lines of a port.
pub const MOST_LINES: usize = 8;

/// A port whose lines are to be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePort {
    /// Rate of its cable.
    pub rate: BitRate,
    /// Whether it is a NIC's.
    pub nic: bool,
}

/// A token bucket: a packet costs a token, which it has as it starts. It is full at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Time in which a token comes.
    pub interval: Span,
    /// Most tokens, at least 1.
    pub depth: u32,
}

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Packets that may wait in it; those beyond are dropped.
    pub packets: u32,
    /// Bytes that may wait in it.
    pub bytes: u32,
    /// What its packets wait for beside their turn.
    pub bucket: Option<Bucket>,
    /// Bytes waiting above which a packet is marked as it joins, itself included.
    pub mark_above: u32,
    /// In which order its packets go.
    pub order: Order,
}

impl Default for Line {
    /// Any number of packets, first come first served.
    fn default() -> Self {
        Self { packets: u32::MAX, bytes: u32::MAX, bucket: None, mark_above: u32::MAX, order: Order::Come }
    }
}

/// The order of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they came.
    #[default]
    Come,
    /// The first packet that waits of the queue pair whose packet has the least rank (pFabric: Alizadeh et al., SIGCOMM 2013, §4.2).
    Least,
}

/// The lines of a port, the highest priority first; a transmission that has begun is not stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// At most [`MOST_LINES`].
    pub lines: Vec<Line>,
    /// Bytes that may wait in all of them together; the packet on the wire is not counted. `None`: no limit.
    pub shared: Option<u32>,
}
