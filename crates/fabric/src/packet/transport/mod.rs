//! Transports behind one trait.
//!
//! **Who does what.** The engine owns sequence numbers, segmentation, bytes in flight, acknowledgements, retransmission and
//! its timer, for every transport alike, by the kind of [`Recovery`] that the transport names. A [`Transport`] is the rest:
//! how much may be in flight, how fast packets follow one another, what an acknowledgement, a loss or a notification
//! changes, and what the receiver answers beside acknowledgements. It is a type parameter of the engine: calls are
//! resolved when the engine is compiled.
//!
//! **Calls.** For a queue pair, in order of time: [`Transport::open`] once at each end; at the sender
//! [`Transport::on_send`] as a transmission begins, then [`Transport::window`] and [`Transport::gap`] before the next;
//! [`Transport::on_ack`] for each acknowledgement (it may answer for several packets), [`Transport::on_loss`] for each
//! loss detected, [`Transport::on_notify`] for each notification; [`Transport::on_timer`] when the time that
//! [`Transport::timer`] last named has come. At the receiver [`Transport::on_data`] for every data packet that arrives.
//!
//! **State.** A value of the transport holds its parameters, the same for all queue pairs; [`Transport::Flow`] and
//! [`Transport::Peer`] hold what differs, and should stay within 64 bytes: every acknowledgement touches them.
//!
//! **More of the engine**, for those whose constants ask: with [`Transport::TELEMETRY`] acknowledgements bring what each hop
//! told the packet that caused them ([`Transport::on_hops`]); with [`Transport::CREDITED`] a queue pair sends no more than
//! its receiver grants ([`Credit`], [`Transport::unasked`]); [`Transport::TRIMMED`] refuses fabrics that drop. Where
//! switches trim, [`Transport::on_nack`] is called for each packet that arrived without its payload.

mod around;
mod balanced;
mod cubic;
mod dcqcn;
mod dctcp;
mod eqds;
mod hpcc;
mod mixed;
mod mprdma;
mod ndp;
mod newreno;
mod none;
mod nscc;
mod patience;
mod rccc;
mod staged;
mod steered;
mod swift;
mod tcp;

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{BitRate, Span, Time};

pub use around::Around;
pub use balanced::{Balanced, BalancerPacket, BalancerPort, BalancerSwitch, Balancing, SwitchBalancer};
pub use cubic::{Cubic, CubicFlow};
pub use dcqcn::{Dcqcn, DcqcnFlow, DcqcnPeer};
pub use dctcp::{Dctcp, DctcpFlow};
pub use eqds::{Eqds, EqdsFlow};
pub use hpcc::{Hpcc, HpccFlow};
pub use mprdma::{MpRdma, MpRdmaFlow};
pub use ndp::{Ndp, NdpFlow};
pub use newreno::{NewReno, NewRenoFlow};
pub use none::NoTransport;
pub use nscc::{Nscc, NsccFlow};
pub use rccc::{Rccc, RcccFlow};
pub use staged::{StagePacket, StagePort, StageQueue, StageVerdict, Staged, Staging, SwitchStage};
pub use steered::{Choosing, PathChooser, Steered};
pub use swift::{Swift, SwiftFlow};

pub use super::telemetry::Hop;

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

/// What a sprayed packet's path number is chosen from: see [`Transport::path`].
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
    /// Which.
    pub sequence: u32,
    /// Next new packet of the sender.
    pub next: u32,
    /// Bytes on the wire that were sent.
    pub bytes: u64,
    /// Its path number.
    pub path: u16,
    /// Whether the header was marked before it was trimmed.
    pub echo: bool,
    /// Whether it was trimmed at the port that leads to its receiver.
    pub last_hop: bool,
    /// Bytes still in flight, without it.
    pub in_flight: u64,
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
}

/// What a receiver answers beside the acknowledgements that are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Acknowledge at once.
    pub acknowledge: bool,
    /// Send a notification: see [`Transport::on_notify`].
    pub notify: bool,
}

/// See the module page.
pub trait Transport: Clone + std::fmt::Debug + Send + 'static {
    /// State of a sending half.
    type Flow: Copy + std::fmt::Debug + Send;
    /// State of a receiving half.
    type Peer: Copy + std::fmt::Debug + Default + Send;

    /// Its name in a scenario.
    const NAME: &'static str;

    /// Whether its receivers grant credit: see [`Self::credit`].
    const CREDITED: bool = false;

    /// Whether it works only where switches trim.
    const TRIMMED: bool = false;

    /// Whether its packets collect telemetry.
    const TELEMETRY: bool = false;

    /// Whether switches ask it about packets: see [`Staged`].
    const STAGED: bool = false;

    /// See [`SwitchStage::enqueue`].
    #[inline]
    fn stage_enqueue(&mut self, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        let _ = (port, packet);
        StageVerdict::Keep
    }

    /// See [`SwitchStage::dequeue`].
    #[inline]
    fn stage_dequeue(&mut self, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        let _ = (port, packet);
        StageVerdict::Keep
    }

    /// See [`SwitchStage::next`].
    #[inline]
    fn stage_next(&mut self, port: &StagePort, queues: &[StageQueue]) -> Option<usize> {
        let _ = (port, queues);
        None
    }

    /// Whether switches ask it which port a packet takes: see [`Balanced`].
    const BALANCED: bool = false;

    /// See [`SwitchBalancer::choose`].
    #[inline]
    fn balance(&mut self, switch: &BalancerSwitch, packet: &BalancerPacket, ports: &[BalancerPort]) -> usize {
        let _ = (switch, packet, ports);
        0
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

    /// From the start of a transmission of `wire` bytes to the earliest start of the next of this queue pair; zero paces
    /// nothing.
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

    /// When [`Self::on_timer`] is to be called next. Asked after every call that may change it.
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

/// Silence to wait for on a path: a setting, but never less than 4 round trips.
fn patience(least: Span, path: &PathFacts) -> Span {
    least.max(path.base_rtt * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of 4 links with packets of 4,000 B.
    pub(super) fn path(gbps: u64, rtt_us: u64) -> PathFacts {
        let bdp = gbps * rtt_us * 125;
        PathFacts {
            rate: BitRate::from_gbps(gbps),
            base_rtt: Span::from_us(rtt_us),
            bdp,
            mtu: 4_000,
            hops: 4,
            queue: None,
        }
    }

    /// Of `packets`, the last of them seen after `rtt_us`, at `at_us`.
    pub(super) fn ack(at_us: u64, rtt_us: u64, packets: u32, marked: u32) -> Ack {
        Ack {
            now: Time(at_us * 1_000_000),
            bytes: u64::from(packets) * 4_000,
            packets,
            marked,
            expected: packets,
            next: packets,
            rtt: Span::from_us(rtt_us),
            echo: marked > 0,
            path: 0,
            in_flight: 0,
        }
    }

    pub(super) fn gap(sequence: u32, next: u32) -> Loss {
        Loss { now: Time::ZERO, kind: LossKind::Gap, sequence, next, bytes: 4_000, again: false }
    }

    /// Defaults on 2 µs and on 10 ms, on 100 Gbps and on 1.6 Tbps: nothing is taken for lost within 4 round trips, and
    /// some window or pace lets the path be filled.
    #[test]
    fn defaults_scale() {
        fn holds<T: Transport>(transport: T) {
            for (gbps, rtt) in [(100, 2), (1_600, 2), (100, 10_000), (1_600, 10_000)] {
                let path = path(gbps, rtt);
                let mut flow = transport.open(&path);
                assert!(
                    transport.timeout(&flow).0 >= path.base_rtt.0 * 3,
                    "{} at {gbps} Gbps, {rtt} µs",
                    T::NAME
                );
                let rounds = 40 * (1 + path.bdp / 4_000 / 8);
                for round in 0..rounds.min(2_000_000) {
                    let now = 100 + round * rtt / 2;
                    let number = 4 * round as u32;
                    let heard = Ack {
                        expected: number,
                        next: number + 1,
                        in_flight: path.bdp,
                        ..ack(now, rtt, 4, 0)
                    };
                    transport.on_ack(&mut flow, &heard);
                }
                let window = transport.window(&flow);
                assert!(window >= path.bdp, "{} at {gbps} Gbps, {rtt} µs: {window} of {}", T::NAME, path.bdp);
                assert_eq!(transport.gap(&flow, 4_000), Span::ZERO);
            }
        }
        holds(Dcqcn::default());
        holds(Dctcp::default());
        holds(MpRdma::default());
        holds(NewReno::default());
        holds(Cubic::default());
        holds(Swift::default());
    }
}
