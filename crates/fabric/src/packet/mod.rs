//! The packet model: NICs, switches and transports, every packet followed in integer picoseconds.
//!
//! `docs/packet-model.md` is the design. [`PacketNetwork`] is the [`Network`](crate::Network) that a
//! [`Host`](crate::host::Host) drives; it keeps traffic inside scale-up domains in flow form and hands the rest to an
//! [`Engine`], which owns ports, switches, NICs, queue pairs and packets and runs the events.
//!
//! **Life cycle of a packet.** A queue pair makes it when its NIC port is free ([`nic`]); it is serialised and stands on
//! the cable; its port's event hands it to the switch at the far end ([`switch`]), which routes, admits, marks and
//! queues it; the last port's event hands it to the receiving half of its queue pair ([`receive`]), which may answer with
//! a control packet that goes the same way back to the sending half ([`send`], and [`recover`] for what is lost).
//!
//! **Invariants.** A port is advanced to t before anything of it is read or changed at t. What waits at a port joined it
//! while it was busy, so the next service begins exactly when the one before ends. Bytes held by a switch are at least the
//! sum over its ports of what they hold, and equal it after a refresh. Every packet in the slab is on exactly one list.
//!
//! **Failure modes.** Settings that cannot work are [`PacketError`]s. A packet that finds no room is dropped and counted;
//! without recovery its message never completes, and the run ends with the message named as stuck.

mod abandon;
mod account;
mod adaptive;
mod background;
mod balance;
mod border;
mod buffer;
mod choice;
mod counters;
mod credit;
mod crossing;
mod desks;
mod dispatch;
mod ears;
mod engine;
mod engines;
mod error;
mod events;
mod fabric;
mod foresight;
mod grants;
mod handles;
mod hear;
mod impair;
mod lead;
mod legs;
mod line_ports;
mod lines;
mod link;
mod many;
mod marks;
mod memory;
mod message;
mod meter;
mod model;
mod nic;
mod nic_port;
mod opening;
mod overdue;
mod packet_network;
mod packets;
mod pair_series;
mod pairs;
mod pauses;
mod pfc;
mod planes;
mod port;
mod probes;
mod pull;
mod queue_ports;
mod queue_settings;
mod queue_setup;
mod queues;
mod rack;
mod receive;
mod receiver;
mod recover;
mod reduce;
mod reorder;
mod restore;
mod restraint;
mod sample;
mod sampler;
mod send;
mod sender;
mod settings;
mod stage;
mod statistics;
mod switch;
mod telemetry;
mod timeline;
mod told;
mod totals;
pub mod transport;
mod watch_settings;

pub use background::{Background, BackgroundUse, Partners, Sizes, SizesError};
pub use choice::TransportChoice;
pub use counters::Counters;
pub use desks::Delivery;
pub use ears::{CapturedPacket, Fate};
pub use engine::Engine;
pub use engines::{Engines, Spread};
pub use error::PacketError;
pub use handles::{Completion, OpenRequest, QueuePair};
pub(crate) use impair::links_of;
pub use impair::{FabricPart, GilbertElliott, Impairments, PartChange, PartState, Share};
pub use marks::{EcnSettings, MarkAt};
pub use model::NetworkOf;
pub use packet_network::{PacketNetwork, PacketNetworkError, too_long};
pub use pair_series::PairSample;
pub use queue_settings::{
    Color, ColorProfile, Discipline, DropProfile, MOST_QUEUES, Meter, PfcSettings, Pull, QueueSettings,
    Shaper, Xoff, Xon,
};
pub use reorder::Reordering;
pub use sampler::QueueSample;
pub use settings::{
    Balancer, BufferSettings, ChosenRoute, Forwarding, PacketSettings, ParallelSettings, TrimSettings,
};
pub use statistics::PortReport;
pub use timeline::MOST_PORTS;
pub use watch_settings::{CaptureSettings, WatchSettings};
