//! RCCC, the receiver-credit congestion control of Ultra Ethernet ("Ultra Ethernet Specification v1.0", §3.6.14).
//!
//! Senders say how much they have to send, up to a largest window of 1.5 bandwidth–delay products, which they may also send
//! unasked until they hear of the receiver; the receiver's NIC port grants 4 packets' worth of credit at a time, round robin,
//! at 0.99 of its rate, and goes on where nobody asks for more, up to a window each. Trimmed packets are answered by a NACK and paid for on top of the demand. Path numbers are chosen as
//! with the sender's control ([`Nscc`](super::Nscc)).
//!
//! Where a fabric is oversubscribed the receiver's link is not what is short, and credit at its rate overruns the fabric. With a least
//! rate below 1 each receiver lowers all that it grants by the marks that come to it from within the fabric ([`Restraint`]); ports
//! that lead to hosts should not mark then (`network.ecn_on`). Rule and constants are those of uet-htsim (40ccb05,
//! `OversubscribedCC`), which takes 0.75 over the oversubscription for the least rate.

use windtunnel_kernel::Span;

use super::eqds::Begun;
use super::mixed::Mixed;
use super::patience::Patience;
use super::{
    Ack, Answer, Arrived, Credit, Credited, Demand, Endpoint, Nack, PathChoice, PathFacts, Recovery,
    Restraint,
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
    /// Least share of that where the fabric is congested; 1: receivers heed no marks.
    pub least: f64,
    /// Mean time between adjustments to congestion of the fabric.
    pub interval: Span,
    /// Mean share of marks above which credit falls.
    pub target: f64,
    /// What is added to the share of credit otherwise.
    pub increase: f64,
    /// By what part of the marks above the target credit falls.
    pub decrease: f64,
    /// Whether packets trimmed before the last hop count.
    pub heeds_trims: bool,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Silence after which packets are sent again: this and 6 full queues, or base RTTs if that is more.
    pub timeout: Span,
}

impl Default for Rccc {
    /// 1.5 bandwidth–delay products, 4 packets, 0.99 of the link, no heed of marks, 15 µs.
    fn default() -> Self {
        Self {
            largest: 1.5,
            packets: 4,
            share: 0.99,
            least: 1.0,
            interval: Span::from_us(12),
            target: 0.3,
            increase: 0.01,
            decrease: 0.5,
            heeds_trims: true,
            recovery: Recovery::TIMER,
            timeout: Span::from_us(15),
        }
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
        "least_rate" => Part(least), "least share of that where the fabric marks; 1: receivers heed no marks";
        "adjust_interval" => Time(interval), "mean time between adjustments of credit to the fabric's marks";
        "mark_target" => Part(target), "mean share of marks above which credit falls";
        "rate_increase" => Part(increase), "what is added to the share of credit otherwise";
        "rate_decrease" => Part(decrease), "part of the marks above the target by which credit falls";
        "heeds_trims" => Flag(heeds_trims), "whether packets trimmed before the last hop lower credit too";
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
        let restraint = (self.least < 1.0).then_some(Restraint {
            least: self.least,
            interval: self.interval,
            target: self.target,
            increase: self.increase,
            decrease: self.decrease,
            heeds_trims: self.heeds_trims,
        });
        Credit {
            quantum,
            share: self.share,
            demand: Demand::Backlog,
            idle: true,
            restraint,
            ..Credit::default()
        }
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
