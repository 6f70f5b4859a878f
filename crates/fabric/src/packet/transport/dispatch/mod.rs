//! Transports that schedule a NIC port as a whole: which of its queue pairs sends what, and when.
//!
//! An [`Endpoint`] sees one queue pair. A transport whose receivers grant tokens by remaining size, whose hosts match senders with receivers, or
//! that probes for whichever flow's turn it is, needs to see all of a port. That is a [`Dispatcher`].
//!
//! **Who does what.** The engine cuts messages into packets, carries packets, keeps what has arrived, and reports messages that are whole.
//! The dispatcher decides which packet of which queue pair leaves, sends [`Note`]s of its own, mends losses, and says how ports keep what
//! waits ([`Lines`]). Windows, acknowledgements, time-outs and turns of the engine are not used.
//!
//! **Calls.** [`Dispatcher::open_nic`] once for each NIC port; [`Dispatcher::open`] and [`Dispatcher::accept`] once for each queue pair, at its
//! sending and its receiving port; [`Dispatcher::on_message`] as a message is handed over. Then [`Dispatcher::on_note`] and
//! [`Dispatcher::on_data`] for what arrives, [`Dispatcher::on_sent`] as each transmission of the port begins, [`Dispatcher::next`] when the
//! port is free and nothing waits that may start, and [`Dispatcher::on_timer`] at the instant that [`Dispatcher::timer`] last named.
//! What a call wants sent it puts into its [`Outbox`].
//!
//! **Names.** Queue pairs are numbered at each port in the order in which they were opened there, those that send and those that receive
//! apart. Nothing that a dispatcher sees depends on processes or threads, so what it decides does not either.
//!
//! **Failure modes.** A dispatcher that never sends a message's packets leaves the message stuck, and the run says which. A port whose
//! timer goes on for [`SILENCE`] while nothing reaches it ends the run, with the sender and the receiver named.

mod lines;

use std::fmt::Debug;

use windtunnel_kernel::{BitRate, Span, Time};

pub use lines::{Bucket, Line, LinePort, Lines, MOST_LINES, Order};

use super::{Absent, Ack, Endpoint, Feature, PathFacts, Plain, Present, Recovery, State};

/// Time without any arrival after which a port with a timer is taken for cut off.
pub const SILENCE: Span = Span::from_us(200_000);

/// What is known of the fabric: the same for all NIC ports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FabricFacts {
    /// Line rate of a NIC port.
    pub rate: BitRate,
    /// Bytes of a full data packet on the wire, of its header, and of a note.
    pub mtu: u32,
    /// See above.
    pub header: u32,
    /// See above.
    pub control: u32,
    /// Largest sum of the delays of all cables and pipelines there and back, over pairs of NICs.
    pub propagation: Span,
    /// Most links from one NIC to another.
    pub hops: u32,
    /// Bytes that a port of a switch may hold, the packet on the wire left out; `None` where the settings do not say.
    pub buffer: Option<u32>,
    /// Path numbers: a power of two.
    pub paths: u32,
    /// How many priorities `network.queues` sets up; 0 where it is not given.
    pub priorities: u32,
    /// NIC ports of the fabric.
    pub nic_ports: u32,
}

impl FabricFacts {
    /// Time of a full packet at line rate.
    pub fn packet_time(&self) -> Span {
        self.rate.serialise(windtunnel_kernel::Bytes::new(u64::from(self.mtu)))
    }

    /// Full packets that cover the propagation round trip at line rate, rounded half up, and at least one.
    pub fn bdp_packets(&self) -> u32 {
        let bits = u128::from(self.propagation.ps()) * u128::from(self.rate.bps()) / 1_000_000_000_000;
        let packet = u128::from(self.mtu) * 8;
        (((2 * bits + packet) / (2 * packet)) as u32).max(1)
    }

    /// Full packets that a port sends from the first bit of one until what its arrival asks for (a note back) lets another leave, over the
    /// longest path of idle links that store packets whole: a sender that may have so many out is never idle.
    pub fn loop_packets(&self) -> u32 {
        let note = self.rate.serialise(windtunnel_kernel::Bytes::new(u64::from(self.control)));
        let packet = self.packet_time().ps().max(1);
        let around = self.propagation.ps() + u64::from(self.hops) * (packet + note.ps());
        u32::try_from(around.div_ceil(packet)).unwrap_or(u32::MAX)
    }
}

/// A NIC port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NicFacts {
    /// Its number, over all NICs.
    pub port: u32,
    /// The run's seed.
    pub seed: u64,
    /// What is the same for all.
    pub fabric: FabricFacts,
}

/// A queue pair at one of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowFacts {
    /// Its number at this port.
    pub flow: u32,
    /// The other NIC port.
    pub peer: u32,
}

/// A message that has been handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// When.
    pub now: Time,
    /// The queue pair that sends it.
    pub flow: u32,
    /// Its first packet, and how many there are.
    pub first: u32,
    /// See above.
    pub packets: u32,
    /// Messages of one communicator, or of one job, and of one traffic class have one number.
    pub group: u64,
}

/// A packet of a dispatcher's own: what it says is its own affair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// What it is, below 32.
    pub kind: u8,
    /// What it says.
    pub a: u32,
    /// See above.
    pub b: u32,
    /// See above.
    pub c: u64,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The packet of this number of the queue pair, which is one of its sending port.
    Data(u32),
    /// A note of the size of a control packet.
    Note(Note),
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// The queue pair: by the number that it has among those that send here, or with `back` among those that receive.
    pub flow: u32,
    /// From the receiving port to the sending one.
    pub back: bool,
    /// What it carries.
    pub load: Load,
    /// The line in which it waits at every port.
    pub line: u8,
    /// Path number.
    pub path: u16,
    /// Place in a line of [`Order::Least`]: the least goes first.
    pub rank: u32,
}

/// A note that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// When.
    pub now: Time,
    /// The queue pair: with `back` among those that send here, otherwise among those that receive.
    pub flow: u32,
    /// It comes from the receiving port.
    pub back: bool,
    /// What it says.
    pub note: Note,
    /// Path number by which it came.
    pub path: u16,
    /// Whether it was marked.
    pub marked: bool,
}

/// A data packet that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// When.
    pub now: Time,
    /// The queue pair, among those that receive here.
    pub flow: u32,
    /// Its number.
    pub sequence: u32,
    /// What was written into it.
    pub rank: u32,
    /// Whether it had not arrived before.
    pub fresh: bool,
    /// All packets below this one have arrived.
    pub expected: u32,
    /// Of those after it a bit for each of 64 from `base` on, up to the highest that has arrived.
    pub base: u32,
    /// See above.
    pub bits: u64,
    /// Whether a message became whole by it.
    pub whole: bool,
    /// Whether it was marked.
    pub marked: bool,
    /// Path number by which it came.
    pub path: u16,
}

/// A transmission that begins at the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When.
    pub now: Time,
    /// As in [`Parcel`].
    pub flow: u32,
    /// As in [`Parcel`].
    pub back: bool,
    /// What it carries.
    pub load: Load,
    /// Path number.
    pub path: u16,
}

/// What a call wants done.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    pub(in crate::packet) parcels: Vec<Parcel>,
    pub(in crate::packet) known: Vec<(u32, u32)>,
    pub(in crate::packet) soon: Vec<(u32, bool)>,
}

impl Outbox {
    /// Sends a packet: it joins its line at the NIC port.
    #[inline]
    pub fn send(&mut self, parcel: Parcel) {
        self.parcels.push(parcel);
    }

    /// Something is likely to be sent from the sending half of `flow` before long: what is kept of it may be brought from memory. With
    /// `data`, what is kept of its message too, which is found by the former: so that is asked for a call before.
    #[inline]
    pub fn soon(&mut self, flow: u32, data: bool) {
        self.soon.push((flow, data));
    }

    /// All packets below `below` of a queue pair that sends are known to have arrived.
    #[inline]
    pub fn arrived(&mut self, flow: u32, below: u32) {
        self.known.push((flow, below));
    }
}

/// What a dispatcher counted, by names of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally(Vec<(&'static str, u64, bool)>);

impl Tally {
    /// Adds to the figure `name`.
    pub fn add(&mut self, name: &'static str, value: u64) {
        match self.0.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, sum, _)) => *sum += value,
            None => self.0.push((name, value, false)),
        }
    }

    /// Raises the figure `name` to `value`.
    pub fn raise(&mut self, name: &'static str, value: u64) {
        match self.0.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, most, _)) => *most = (*most).max(value),
            None => self.0.push((name, value, true)),
        }
    }

    /// Adds what another process counted.
    pub fn merge(&mut self, other: &Self) {
        for &(name, value, most) in &other.0 {
            if most { self.raise(name, value) } else { self.add(name, value) }
        }
    }

    /// Whether the figure of a name is the most of all, not their sum.
    pub fn is_most(&self, name: &str) -> bool {
        self.0.iter().any(|&(known, _, most)| known == name && most)
    }

    /// Names and figures, in the order in which they came.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|&(name, value, _)| (name, value))
    }

    /// The figure of a name; 0 where nobody counted it.
    pub fn get(&self, name: &str) -> u64 {
        self.figures().find(|(known, _)| *known == name).map_or(0, |(_, value)| value)
    }
}

/// See the module page.
pub trait Dispatcher: Clone + Debug + Send + Sync + 'static {
    /// [`Present`]; [`Undispatched`] alone is absent.
    type Used: Feature;
    /// State of a NIC port.
    type Nic: State;

    /// Its name in a scenario.
    const NAME: &'static str;

    /// Whether it draws the path of each packet itself, which switches have to keep to.
    const DRAWS_PATHS: bool = false;

    /// Whether its packets take paths of their own one by one, as it was published, where the scenario does not say how paths are chosen.
    const SPRAYS: bool = false;

    /// Whether it has a [`Self::next`]. Without one a port where nothing waits that may start is not woken up to ask.
    const PULLS: bool = true;

    /// Whether what goes back takes the links of what comes, the other way: each queue pair has one path then, whatever the path numbers.
    #[inline]
    fn is_symmetric(&self) -> bool {
        false
    }

    /// # Errors
    /// A line for a setting that cannot work on this fabric: its key, what was found and what was expected.
    fn check(&self, fabric: &FabricFacts) -> Result<(), String> {
        let _ = fabric;
        Ok(())
    }

    /// How a port keeps what waits. Every port has the same number of lines.
    fn lines(&self, port: &LinePort, fabric: &FabricFacts) -> Lines;

    /// A NIC port, before all else.
    fn open_nic(&self, nic: &mut Self::Nic, facts: &NicFacts);

    /// A queue pair that will send here.
    fn open(&self, nic: &mut Self::Nic, facts: &FlowFacts);

    /// A queue pair that will receive here.
    fn accept(&self, nic: &mut Self::Nic, facts: &FlowFacts);

    /// A queue pair that sends here, or with `back` one that receives here, is given up, with all its messages.
    fn abandon(&self, nic: &mut Self::Nic, flow: u32, back: bool);

    /// A message has been handed over.
    fn on_message(&self, nic: &mut Self::Nic, message: &Joined, out: &mut Outbox);

    /// `load` is about to arrive, a note or a data packet of the queue pair `flow` as in [`Heard`]: what it will be about may be brought
    /// from memory.
    #[inline]
    fn foresee(&self, nic: &Self::Nic, flow: u32, back: bool, load: &Load) {
        let _ = (nic, flow, back, load);
    }

    /// A note has arrived.
    fn on_note(&self, nic: &mut Self::Nic, heard: &Heard, out: &mut Outbox);

    /// A data packet has arrived.
    fn on_data(&self, nic: &mut Self::Nic, data: &Landed, out: &mut Outbox);

    /// A transmission of the port begins.
    #[inline]
    fn on_sent(&self, nic: &mut Self::Nic, sent: &Sent, out: &mut Outbox) {
        let _ = (nic, sent, out);
    }

    /// What leaves now, past all lines: the port is free, and nothing waits at it that may start.
    #[inline]
    fn next(&self, nic: &mut Self::Nic, now: Time, out: &mut Outbox) -> Option<Parcel> {
        let _ = (nic, now, out);
        None
    }

    /// When [`Self::on_timer`] is to be called next. Asked after every call.
    #[inline]
    fn timer(&self, nic: &Self::Nic) -> Option<Time> {
        let _ = nic;
        None
    }

    /// The time has come.
    #[inline]
    fn on_timer(&self, nic: &mut Self::Nic, now: Time, out: &mut Outbox) {
        let _ = (nic, now, out);
    }

    /// Adds what a NIC port has counted.
    fn tell(&self, nic: &Self::Nic, tally: &mut Tally) {
        let _ = (nic, tally);
    }
}

/// NIC ports go by their queue pairs: what an [`Endpoint`] by itself has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undispatched;

impl Dispatcher for Undispatched {
    type Used = Absent;
    type Nic = ();
    const NAME: &'static str = "";

    fn lines(&self, _: &LinePort, _: &FabricFacts) -> Lines {
        Lines::default()
    }

    fn open_nic(&self, (): &mut (), _: &NicFacts) {}

    fn open(&self, (): &mut (), _: &FlowFacts) {}

    fn accept(&self, (): &mut (), _: &FlowFacts) {}

    fn abandon(&self, (): &mut (), _: u32, _: bool) {}

    fn on_message(&self, (): &mut (), _: &Joined, _: &mut Outbox) {}

    fn on_note(&self, (): &mut (), _: &Heard, _: &mut Outbox) {}

    fn on_data(&self, (): &mut (), _: &Landed, _: &mut Outbox) {}
}

/// The endpoint of transports that a dispatcher leads: it has no say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Led;

impl Endpoint for Led {
    type Flow = ();
    type Peer = ();
    type Uses = Plain;
    const NAME: &'static str = "dispatched";

    fn recovery(&self) -> Recovery {
        // Nothing is taken for lost for good: the dispatcher sends it again.
        Recovery::TIMER
    }

    fn open(&self, _: &PathFacts) {}

    fn window(&self, (): &()) -> u64 {
        0
    }

    fn on_ack(&self, (): &mut (), _: &Ack) {}

    fn timeout(&self, (): &()) -> Span {
        SILENCE
    }
}

/// Makes a type that is a [`Dispatcher`] a transport.
#[macro_export]
macro_rules! dispatched {
    ($type:ty) => {
        impl $crate::packet::transport::Transport for $type {
            type Endpoint = $crate::packet::transport::Led;
            type Policy = $crate::packet::transport::Unasked;
            type Dispatcher = Self;

            const NAME: &'static str = <Self as $crate::packet::transport::Dispatcher>::NAME;

            fn parts(self) -> (Self::Endpoint, Self::Policy, Self) {
                ($crate::packet::transport::Led, $crate::packet::transport::Unasked, self)
            }

            fn endpoint(&self) -> &Self::Endpoint {
                &$crate::packet::transport::Led
            }
        }
    };
}

/// What all dispatchers say of [`Dispatcher::Used`].
pub type Dispatching = Present;
