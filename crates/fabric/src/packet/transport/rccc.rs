//! RCCC, the receiver-credit congestion control of Ultra Ethernet ("Ultra Ethernet Specification v1.0", §3.6.14).
//!
//! Senders say how much they have to send, up to a largest window of 1.5 bandwidth–delay products, which they may also send
//! unasked until they hear of the receiver; the receiver's NIC port grants 4 packets' worth of credit at a time, round robin,
//! at 0.99 of its rate, and goes on where nobody asks for more, up to a window each. Trimmed packets are answered by a NACK and paid for on top of the demand. Path numbers are chosen as
//! with the sender's control ([`Nscc`](super::Nscc)).

use windtunnel_kernel::Span;

use super::eqds::Begun;
use super::mixed::Mixed;
use super::patience::Patience;
use super::{
    Ack, Answer, Arrived, Credit, Credited, Demand, Endpoint, Nack, PathChoice, PathFacts, Recovery,
};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rccc {
    /// Largest window, also the first, in bandwidth–delay products.
    pub largest: f64,
    /// Packets' worth of credit in one grant.
    pub packets: u32,
    /// Credit as a share of the link's rate.
    pub share: f64,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Silence after which packets are sent again: this and 6 full queues, or base RTTs if that is more.
    pub timeout: Span,
}

impl Default for Rccc {
    /// 1.5 bandwidth–delay products, 4 packets, 0.99 of the link, 15 µs.
    fn default() -> Self {
        Self { largest: 1.5, packets: 4, share: 0.99, recovery: Recovery::TIMER, timeout: Span::from_us(15) }
    }
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RcccFlow {
    window: u64,
    patience: Patience,
    paths: Mixed,
}

super::built_in::built_in! {
    Rccc: "Ultra Ethernet's credits of the receiver", recovery: recovery, timeout: timeout,
    parameters: {
        "initial_window" => Positive(largest), "largest window, also the first, in bandwidth–delay products";
        "grant_packets" => Count(packets), "packets' worth of credit in one grant";
        "credit_rate" => Part(share), "credit as a share of the link's rate";
    }
}

impl Endpoint for Rccc {
    type Flow = RcccFlow;
    type Peer = Begun;
    type Uses = Credited;
    const NAME: &'static str = "rccc";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> RcccFlow {
        RcccFlow {
            window: ((path.bdp as f64 * self.largest) as u64).max(u64::from(path.mtu)),
            patience: Patience::new(self.timeout, path),
            paths: Mixed::default(),
        }
    }

    #[inline]
    fn window(&self, _: &RcccFlow) -> u64 {
        u64::MAX
    }

    #[inline]
    fn path(&self, flow: &mut RcccFlow, choice: &PathChoice) -> Option<u16> {
        Some(flow.paths.next(choice))
    }

    #[inline]
    fn on_ack(&self, flow: &mut RcccFlow, ack: &Ack) {
        flow.paths.acknowledged(ack);
        flow.patience.heard(ack.rtt);
    }

    fn on_nack(&self, flow: &mut RcccFlow, nack: &Nack) {
        flow.paths.trimmed(nack);
    }

    fn credit(&self, mtu: u32) -> Credit {
        let quantum = mtu.saturating_mul(self.packets);
        Credit { quantum, share: self.share, demand: Demand::Backlog, keeps_unasked: false, idle: true }
    }

    fn unasked(&self, flow: &RcccFlow) -> u64 {
        flow.window
    }

    fn timeout(&self, flow: &RcccFlow) -> Span {
        flow.patience.timeout()
    }

    #[inline]
    fn on_data(&self, peer: &mut Begun, data: &Arrived) -> Answer {
        peer.answer(data)
    }
}
