//! What a queue pair's two halves do: see [`Endpoint`] and the page of the [module](super).

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{BitRate, Span, Time};

use super::{Hop, Probe, Probed, Replied, Reply, State, Uses};

/// What an endpoint keeps of a pair of NICs.
pub type MemoryOf<E> = <<E as Endpoint>::Uses as Uses>::Memory;

/// How lost packets are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Not at all.
    None,
    /// The receiver takes packets in order only; on one out of order it asks for the first missing one, and the sender
    /// goes back to it.
    GoBackN,
    /// The receiver takes packets in any order and says which; the sender sends again what is missing once `reorder`
    /// later packets have arrived, or by its timer.
    Selective {
        /// Later packets that show a loss.
        reorder: u32,
    },
    /// The receiver takes packets in any order and says which; the sender sends again what is overdue by more than a reordering
    /// window once something sent later has arrived (RFC 8985), a retransmission like any other.
    Rack,
}

impl Recovery {
    /// Losses show by NACKs and by time-outs alone: for packets that are sprayed, of which later ones show nothing, over switches
    /// that trim.
    pub const TIMER: Self = Self::Selective { reorder: u32::MAX };
}

/// What is known of a queue pair's path when it is opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathFacts {
    /// Of the sender's NIC port.
    pub rate: BitRate,
    /// A full packet there and its acknowledgement back on an idle path.
    pub base_rtt: Span,
    /// Bytes that fill the path for one `base_rtt` at `rate`, rounded up.
    pub bdp: u64,
    /// Size of a full packet.
    pub mtu: u32,
    /// Links of the way there.
    pub hops: u32,
    /// Planes that the queue pair takes; the other facts are of one.
    pub planes: u32,
    /// What a data packet waits for at most at any one port of the way there that holds all that it may alone; `None` where a
    /// port has no limit.
    pub queue: Option<Span>,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack {
    /// When it came.
    pub now: Time,
    /// Bytes on the wire that have newly arrived.
    pub bytes: u64,
    /// Data packets that it answers.
    pub packets: u32,
    /// Of them marked.
    pub marked: u32,
    /// Next packet that the receiver expects.
    pub expected: u32,
    /// Next new packet of the sender.
    pub next: u32,
    /// From the start of transmission of the packet that caused it.
    pub rtt: Span,
    /// Whether that packet was marked.
    pub echo: bool,
    /// Path number of that packet.
    pub path: u16,
    /// Plane by which it came back.
    pub plane: u32,
    /// Bytes still in flight.
    pub in_flight: u64,
}

/// How a loss showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossKind {
    /// Later packets arrived, or the receiver asked.
    Gap,
    /// Nothing was heard for long.
    Timeout,
}

/// A loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When it was found.
    pub now: Time,
    /// How.
    pub kind: LossKind,
    /// First packet missing; of gaps that show by time the last.
    pub sequence: u32,
    /// Next new packet of the sender.
    pub next: u32,
    /// Bytes taken for lost.
    pub bytes: u64,
    /// Whether it was sent after the loss before was told of: one of two indications (RFC 5681 §4.3). Known where losses show by
    /// time ([`Recovery::Rack`]).
    pub again: bool,
}

/// A data packet at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// When.
    pub now: Time,
    /// Which.
    pub sequence: u32,
    /// Bytes on the wire.
    pub wire: u16,
    /// Congestion experienced.
    pub marked: bool,
    /// Whether an earlier one is missing.
    pub out_of_order: bool,
}

/// What a sprayed packet's path number is chosen from: see [`Endpoint::path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChoice {
    /// When the packet's transmission begins.
    pub now: Time,
    /// Packets that the queue pair has sent so far, modulo 2^32.
    pub round: u32,
    /// Path numbers are below this, a power of two up to 65,536.
    pub paths: u32,
    /// Of the queue pair: the same for all its packets, and of no other.
    pub hash: u64,
    /// The plane that it takes.
    pub plane: u32,
}

impl PathChoice {
    /// Path number of the place `turn` in an order that takes every number once before any again, and differs from one
    /// round to the next.
    #[inline]
    pub fn in_turn(&self, turn: u32) -> u16 {
        let (lap, place) = (turn / self.paths, turn % self.paths);
        (place ^ (combine(self.hash, u64::from(lap)) as u32 & (self.paths - 1))) as u16
    }
}

/// A packet that arrived without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack {
    /// When that was heard.
    pub now: Time,
    /// When its transmission began.
    pub sent: Time,
    /// Which.
    pub sequence: u32,
    /// Next new packet of the sender.
    pub next: u32,
    /// Bytes on the wire that were sent.
    pub bytes: u64,
    /// Its path number.
    pub path: u16,
    /// Plane by which that was heard.
    pub plane: u32,
    /// Whether the header was marked before it was trimmed.
    pub echo: bool,
    /// Whether it was trimmed at the port that leads to its receiver.
    pub last_hop: bool,
    /// Bytes still in flight, without it.
    pub in_flight: u64,
}

/// What a sending half has learnt: see [`Endpoint::remember`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum News<'a> {
    /// It was opened.
    Opened(&'a PathFacts),
    /// An acknowledgement has come.
    Acked(&'a Ack),
    /// A packet was trimmed.
    Trimmed(&'a Nack),
    /// Something was lost.
    Lost(&'a Loss),
    /// A reply has come.
    Replied(&'a Replied),
}

/// What raises what a queue pair wants from its receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// Each packet that arrives, whole or trimmed, wants to be followed by another; a packet costs a full one. Once all
    /// has arrived that the sender had, nothing is wanted.
    #[default]
    Arrivals,
    /// Each packet says how many bytes its sender has still to send, up to what it sends unasked; a trimmed one wants
    /// itself in addition. Packets cost their bytes.
    Backlog,
}

/// What an endpoint needs of switches: it is refused where the settings do not give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Packets for which there is no room are trimmed, not dropped.
    Trimming,
}

/// How the receivers of a transport grant credit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Credit {
    /// Bytes that a PULL grants at most.
    pub quantum: u32,
    /// All grants of a NIC port together, as a share of its rate.
    pub share: f64,
    /// What they answer.
    pub demand: Demand,
    /// Whether what is sent unasked goes on after the receiver was heard of.
    pub keeps_unasked: bool,
    /// Whether a NIC port that nobody wants anything of grants to those who did before, up to what a sender may send unasked.
    pub idle: bool,
    /// By what NIC ports grant less where the fabric is congested.
    pub restraint: Option<Restraint>,
}

/// How receivers answer congestion within the fabric: by what arrives at a NIC port marked or trimmed, all that it grants falls and
/// rises between a least share and its whole ([`Credit::share`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restraint {
    /// Least share.
    pub least: f64,
    /// Mean time from one adjustment to the next.
    pub interval: Span,
    /// Mean share of marked packets above which the rate falls, by `decrease` times what is above it.
    pub target: f64,
    /// What is added otherwise.
    pub increase: f64,
    /// See `target`.
    pub decrease: f64,
    /// Whether the share of packets trimmed before the last hop is taken off too, and increases double from one to the next where
    /// nothing was marked.
    pub heeds_trims: bool,
}

/// What a receiver answers beside the acknowledgements that are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Acknowledge at once.
    pub acknowledge: bool,
    /// Send a notification: see [`Endpoint::on_notify`].
    pub notify: bool,
}

/// See the module page.
pub trait Endpoint: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// State of a sending half.
    type Flow: Clone + std::fmt::Debug + Send + Sync;
    /// State of a receiving half.
    type Peer: State;
    /// What it asks of the engine beside the calls below: [`Plain`](super::Plain) for nothing.
    type Uses: Uses;

    /// Its name in a scenario.
    const NAME: &'static str;

    /// What it needs of switches, beside what its [`Uses`] imply.
    fn needs(&self) -> &'static [Need] {
        &[]
    }

    /// How losses are mended.
    fn recovery(&self) -> Recovery;

    /// Whether what it does rests on acknowledgements.
    fn is_answered(&self) -> bool {
        true
    }

    /// A new queue pair.
    fn open(&self, path: &PathFacts) -> Self::Flow;

    /// Bytes that may be in flight. One packet may always be.
    fn window(&self, flow: &Self::Flow) -> u64;

    /// Packets from the first not acknowledged to the last sent that a queue pair may have, beside what the setting lets it.
    #[inline]
    fn tracked(&self, flow: &Self::Flow) -> u32 {
        let _ = flow;
        u32::MAX
    }

    /// Time-outs in a row after which a queue pair gives up, where nothing is to change any more.
    fn retries(&self) -> u8 {
        64
    }

    /// From the start of a transmission of `wire` bytes to the earliest start of the next of this queue pair, on the same plane where
    /// it takes several; zero paces nothing.
    #[inline]
    fn gap(&self, flow: &Self::Flow, wire: u16) -> Span {
        let _ = (flow, wire);
        Span::ZERO
    }

    /// A transmission begins.
    #[inline]
    fn on_send(&self, flow: &mut Self::Flow, now: Time, wire: u16) {
        let _ = (flow, now, wire);
    }

    /// Path number of the next packet where packets are sprayed ([`Balancer::Spray`](crate::packet::Balancer::Spray)), by
    /// what [`Ack::path`] and [`Ack::echo`] told before; `None`: the next in turn. Asked once for each packet, before
    /// [`Self::on_send`].
    #[inline]
    fn path(&self, flow: &mut Self::Flow, choice: &PathChoice) -> Option<u16> {
        let _ = (flow, choice);
        None
    }

    /// Whether nothing may be sent now, not even the first packet of a message: until a probe is answered, say. Whatever ends that
    /// is a call of this endpoint's, its timer or a reply.
    #[inline]
    fn holds(&self, flow: &Self::Flow) -> bool {
        let _ = flow;
        false
    }

    /// A message of `bytes` has joined the queue pair.
    #[inline]
    fn on_message(&self, flow: &mut Self::Flow, now: Time, bytes: u64) {
        let _ = (flow, now, bytes);
    }

    /// A packet of its own that the sending half wants to send now ([`Uses::Probes`]). Asked until there is none, whenever
    /// [`Self::timer`] is asked.
    #[inline]
    fn probe(&self, flow: &mut Self::Flow, now: Time) -> Option<Probe> {
        let _ = (flow, now);
        None
    }

    /// A probe has reached the receiving half; what that answers.
    #[inline]
    fn on_probe(&self, peer: &mut Self::Peer, probe: &Probed) -> Option<Reply> {
        let _ = (peer, probe);
        None
    }

    /// What the receiving half sends of its own after a data packet, of which [`Self::on_data`] has been told ([`Uses::Probes`]).
    #[inline]
    fn reply(&self, peer: &mut Self::Peer, data: &Arrived) -> Option<Reply> {
        let _ = (peer, data);
        None
    }

    /// A reply has come.
    #[inline]
    fn on_reply(&self, flow: &mut Self::Flow, reply: &Replied) {
        let _ = (flow, reply);
    }

    /// What is kept of the pair of NICs and what the queue pair knows may learn from each other ([`Uses::Memory`]): called after
    /// [`Self::open`], [`Self::on_ack`], [`Self::on_nack`], [`Self::on_loss`] and [`Self::on_reply`].
    #[inline]
    fn remember(&self, memory: &mut MemoryOf<Self>, flow: &mut Self::Flow, news: &News<'_>) {
        let _ = (memory, flow, news);
    }

    /// [`Self::path`], by what is kept of the pair of NICs, where something is.
    #[inline]
    fn path_by(
        &self,
        memory: &mut MemoryOf<Self>,
        flow: &mut Self::Flow,
        choice: &PathChoice,
    ) -> Option<u16> {
        let _ = memory;
        self.path(flow, choice)
    }

    /// Whether the queue pair sends on a plane whose port is free now ([`Uses::Planes`]). One that is refused is asked for again
    /// when the queue pair has heard something or its timer was due; the last one that could send is not refused while nothing is under way.
    #[inline]
    fn takes_plane(&self, memory: &mut MemoryOf<Self>, flow: &mut Self::Flow, plane: u32, now: Time) -> bool {
        let _ = (memory, flow, plane, now);
        true
    }

    /// An acknowledgement has come.
    fn on_ack(&self, flow: &mut Self::Flow, ack: &Ack);

    /// What each hop told the packet that caused `ack`, and what another packet was told before. Called before
    /// [`Self::on_ack`].
    #[inline]
    fn on_hops(&self, flow: &mut Self::Flow, ack: &Ack, before: &[Hop], hops: &[Hop]) {
        let _ = (flow, ack, before, hops);
    }

    /// A packet was trimmed; it will be sent again. By default as a loss that later packets have shown.
    #[inline]
    fn on_nack(&self, flow: &mut Self::Flow, nack: &Nack) {
        let Nack { now, sequence, next, bytes, .. } = *nack;
        self.on_loss(flow, &Loss { now, kind: LossKind::Gap, sequence, next, bytes, again: false });
    }

    /// How receivers grant credit when a full packet has `mtu` bytes.
    fn credit(&self, mtu: u32) -> Credit {
        let _ = mtu;
        Credit::default()
    }

    /// Bytes that a queue pair may send before any credit has come, and the most credit it saves.
    fn unasked(&self, flow: &Self::Flow) -> u64 {
        let _ = flow;
        0
    }

    /// Something was lost.
    #[inline]
    fn on_loss(&self, flow: &mut Self::Flow, loss: &Loss) {
        let _ = (flow, loss);
    }

    /// The receiver sent a notification (DCQCN's CNP).
    #[inline]
    fn on_notify(&self, flow: &mut Self::Flow, now: Time) {
        let _ = (flow, now);
    }

    /// Silence after which everything in flight is taken for lost.
    fn timeout(&self, flow: &Self::Flow) -> Span;

    /// When [`Self::on_timer`] is to be called next. Asked after every call that tells of something: [`Self::on_message`], and what
    /// comes back or does not; not after [`Self::on_send`] and [`Self::path`]. A prober with nothing to send is not called.
    #[inline]
    fn timer(&self, flow: &Self::Flow) -> Option<Time> {
        let _ = flow;
        None
    }

    /// The time has come.
    #[inline]
    fn on_timer(&self, flow: &mut Self::Flow, now: Time) {
        let _ = (flow, now);
    }

    /// A data packet has reached the receiver.
    #[inline]
    fn on_data(&self, peer: &mut Self::Peer, data: &Arrived) -> Answer {
        let _ = (peer, data);
        Answer::default()
    }
}
