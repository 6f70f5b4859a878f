//! EQDS: Olteanu et al., "An edge-queued datagram service for all datacenter traffic", NSDI'22.
//!
//! Receivers admit traffic: senders say with each packet how much they have to send, up to a largest window, and the credit
//! scheduler of the receiver's NIC port grants one packet after another to those with demand, round robin, a little below
//! the link's rate. A sender without credit begins by speculating one window, until it hears of the receiver; what is left
//! then of that window is forfeit. Trimmed packets are answered by a NACK, and are paid for on top of the demand.
//!
//! A path number that was marked, or on which a packet was trimmed, is left out once when its turn comes.
//!
//! **As far as it goes.** Trimmed packets are granted in the turn of their queue pair; the authors' simulator serves those
//! first. Idle credit goes to those who asked for some before and have not sent all they had; a queue pair that has fallen idle
//! speculates again.

use windtunnel_kernel::Span;

use super::mixed::Mixed;
use super::{
    Ack, Answer, Arrived, Credit, Credited, Demand, Endpoint, Nack, PathChoice, PathFacts, Recovery, patience,
};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eqds {
    /// Largest window, also the first, in bandwidth–delay products.
    pub largest: f64,
    /// The same in packets, instead.
    pub packets: Option<u32>,
    /// Credit as a share of the link's rate.
    pub share: f64,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Silence after which packets are sent again; at least 4 base RTTs.
    pub timeout: Span,
}

impl Default for Eqds {
    /// 1.5 bandwidth–delay products, 0.99 of the link, 1 ms.
    fn default() -> Self {
        Self {
            largest: 1.5,
            packets: None,
            share: 0.99,
            recovery: Recovery::TIMER,
            timeout: Span::from_us(1_000),
        }
    }
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EqdsFlow {
    window: u64,
    timeout: Span,
    paths: Mixed,
}

/// State of a receiving half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun(bool);

impl Begun {
    /// The first packet and marked ones are acknowledged at once.
    #[inline]
    pub(super) fn answer(&mut self, data: &Arrived) -> Answer {
        let first = !std::mem::replace(&mut self.0, true);
        Answer { acknowledge: first || data.marked, notify: false }
    }
}

super::built_in::built_in! {
    Eqds: "credits of the receiver over many paths", recovery: recovery, timeout: timeout,
    parameters: {
        "initial_window" => Positive(largest), "largest window, also the first, in bandwidth–delay products";
        "initial_packets" => Packets(packets), "the same in packets, instead";
        "credit_rate" => Part(share), "credit as a share of the link's rate";
    }
}

impl Endpoint for Eqds {
    type Flow = EqdsFlow;
    type Peer = Begun;
    type Uses = Credited;
    const NAME: &'static str = "eqds";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> EqdsFlow {
        let packets = self.packets.map(|packets| u64::from(packets) * u64::from(path.mtu));
        let window = packets.unwrap_or((path.bdp as f64 * self.largest) as u64);
        EqdsFlow {
            window: window.max(u64::from(path.mtu)),
            timeout: patience(self.timeout, path),
            paths: Mixed::default(),
        }
    }

    #[inline]
    fn window(&self, _: &EqdsFlow) -> u64 {
        u64::MAX
    }

    #[inline]
    fn path(&self, flow: &mut EqdsFlow, choice: &PathChoice) -> Option<u16> {
        Some(flow.paths.in_turn(choice, true))
    }

    #[inline]
    fn on_ack(&self, flow: &mut EqdsFlow, ack: &Ack) {
        if ack.echo {
            flow.paths.penalise(ack.path, 1, 1);
        }
    }

    fn on_nack(&self, flow: &mut EqdsFlow, nack: &Nack) {
        flow.paths.penalise(nack.path, 1, 1);
    }

    fn credit(&self, mtu: u32) -> Credit {
        Credit { quantum: mtu, share: self.share, demand: Demand::Backlog, idle: true, ..Credit::default() }
    }

    fn unasked(&self, flow: &EqdsFlow) -> u64 {
        flow.window
    }

    fn timeout(&self, flow: &EqdsFlow) -> Span {
        flow.timeout
    }

    #[inline]
    fn on_data(&self, peer: &mut Begun, data: &Arrived) -> Answer {
        peer.answer(data)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, path};
    use super::*;

    #[test]
    fn a_marked_path_is_left_out_once() {
        let eqds = Eqds::default();
        let mut flow = eqds.open(&path(100, 10));
        assert_eq!(eqds.unasked(&flow), 187_500);
        let choice = PathChoice { now: windtunnel_kernel::Time::ZERO, round: 0, paths: 8, hash: 3, plane: 0 };
        let marked = Ack { path: 5, ..ack(10, 10, 4, 4) };
        eqds.on_ack(&mut flow, &marked);
        eqds.on_ack(&mut flow, &marked);
        let taken: Vec<u16> = (0..15).map(|_| eqds.path(&mut flow, &choice).expect("one")).collect();
        assert_eq!(taken.iter().filter(|&&path| path == 5).count(), 1, "{taken:?}");
    }
}
