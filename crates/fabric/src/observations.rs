//! What a network of any model saw, as one value: [`Network::observe`](crate::Network::observe) fills it, and whoever writes
//! rows and summaries reads it without knowing the model.
//!
//! A part that a model does not have is empty or `None`: flows have no packets, and only packets have queues. What is
//! asked again tells totals again, not what was added since.

use windtunnel_kernel::Span;
use windtunnel_kernel::digest::EventDigest;
use windtunnel_topology::LinkId;

use crate::account::Delivered;
use crate::packet::transport::Tally;
use crate::packet::{BackgroundUse, Counters, Delivery, PortReport, Reordering};

/// See the module page.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// What arrived; `None` if the network keeps no account.
    pub delivered: Option<Delivered>,
    /// What links carried; `None` if they are not observed, or counted port by port (see `packets`).
    pub links: Option<LinkBytes>,
    /// What packets came to; `None` where there are none.
    pub packets: Option<Box<PacketUse>>,
    /// What simulating it took.
    pub work: Work,
    /// Why the network cannot go on, or brings no more of what is awaited.
    pub trouble: Option<Trouble>,
}

/// Bytes that links carried over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkBytes {
    /// Width of the bins.
    pub width: Span,
    /// The links with traffic, in their order.
    pub links: Vec<LinkUsage>,
}

/// What a link carried.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkUsage {
    /// Which.
    pub link: LinkId,
    /// Wire bytes over the whole run.
    pub bytes: f64,
    /// Wire bytes in each bin; later ones are empty.
    pub bins: Vec<f64>,
}

/// What packets came to.
#[derive(Clone, Debug, Default)]
pub struct PacketUse {
    /// Totals.
    pub totals: Counters,
    /// Sum over data packets of the time between joining a queue and the start of transmission.
    pub queueing: Span,
    /// What each port with traffic saw, by link.
    pub ports: Vec<PortReport>,
    /// What queue pairs held out of order.
    pub reordering: Reordering,
    /// What background traffic came to, if there is any.
    pub background: Option<BackgroundUse>,
    /// What a dispatcher counted, by its own names; `None` without one.
    pub tally: Option<Tally>,
    /// What arrived under a dispatcher, by intervals of 10 µs.
    pub deliveries: Vec<Delivery>,
    /// Packets that a capture left out because its limit was reached.
    pub uncaptured: u64,
}

/// What simulating a network took.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Events inside the network.
    pub events: u64,
    /// Data packets and control packets sent over a link, over all links; `None` where there are no packets.
    pub packet_hops: Option<(u64, u64)>,
    /// Solves of the max-min system.
    pub solves: u64,
    /// Flows: messages, coupled groups, and the flows of exchanges.
    pub flows: u64,
    /// The digest of its events, if one is [kept](crate::Network::keep_digest).
    pub digest: Option<EventDigest>,
}

/// Why a network cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Something went wrong inside: in words.
    Fault(String),
    /// Links whose pauses wait for one another.
    PauseCycle(Vec<LinkId>),
    /// NICs of a queue pair that has heard nothing for too long: sender and receiver.
    SilentPair([u32; 2]),
    /// A packet of a message that somebody waits for was dropped, and nothing sends it again. All else goes on.
    LostForGood,
}
