//! What a module of the switches is shown of ports, queues and packets, and what it may answer.

use windtunnel_kernel::{BitRate, Span, Time};

use super::Own;

/// The egress port at which a stage is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagePort {
    /// Its number among all ports of the network.
    pub port: u32,
    /// Its switch.
    pub switch: u32,
    /// Its rate.
    pub rate: BitRate,
    /// As a packet joins: now. As one leaves: when its transmission begins.
    pub now: Time,
    /// Bytes that wait there, and those of the packet in service, the packet in hand not counted.
    pub held: u32,
}

/// The packet that it is asked about: data, or a probe of an endpoint's own in any lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagePacket {
    /// Bytes on the wire.
    pub wire: u16,
    /// The data queue that it is in, or is to join; 0 where ports have one.
    pub queue: u8,
    /// Whether it carries a mark.
    pub marked: bool,
    /// How long it has waited in this queue.
    pub waited: Span,
    /// Time since its transmission at the sender began.
    pub age: Span,
    /// What it says, if it is a probe of an endpoint's own; else it is data.
    pub own: Option<Own>,
}

/// A data queue that may start its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageQueue {
    /// Which.
    pub queue: u8,
    /// Bytes that wait in it.
    pub held: u32,
    /// Bytes of its first packet.
    pub wire: u16,
    /// How long that has waited.
    pub waited: Span,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StageVerdict {
    /// It goes on.
    #[default]
    Keep,
    /// It goes on with a mark.
    Mark,
    /// It is dropped.
    Drop,
    /// It is cut to its header, which goes on as a control packet; as it leaves a queue it is dropped instead. Only transports
    /// that are made for it mend what is cut.
    Trim,
    /// It joins another data queue, where ports have several; as it leaves a queue it is kept.
    Queue(u8),
    /// A probe says this from now on, and goes on; data are kept.
    Write(u32),
}

/// The switch at which a balancer is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancerSwitch {
    /// Its number.
    pub switch: u32,
    /// Now.
    pub now: Time,
}

/// The packet that it is asked about, data or control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancerPacket {
    /// Of its queue pair and direction: the same for all its packets.
    pub flow: u64,
    /// Place among the data packets of its queue pair; what else it means with control packets.
    pub sequence: u32,
    /// Bytes on the wire.
    pub wire: u16,
    /// Whether it waits in the control class.
    pub control: bool,
    /// Whether it carries a mark.
    pub marked: bool,
    /// 64 random bits, of this packet at this switch.
    pub draw: u64,
}

/// A port that it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalancerPort {
    /// Its number among all ports of the network.
    pub port: u32,
    /// Its rate.
    pub rate: BitRate,
    /// Bytes that wait there, and those of the packet in service.
    pub held: u32,
}
