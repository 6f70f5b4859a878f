//! NDP: Handley et al., "Re-architecting datacenter networks and stacks for low latency and high performance", SIGCOMM'17.
//!
//! A sender pushes its first window blindly (§3.2). Switches with short queues trim what they cannot hold (§3.1), so the
//! receiver hears of every packet: it acknowledges whole ones, answers headers by a NACK, and for each adds a pull to the
//! queue of its NIC port. Pulls leave at the rate at which full packets fill the receiver's link, shared fairly by its
//! flows. A pull lets the sender transmit one packet: one to be sent again if there is any, else a new one.
//!
//! Packets are sprayed over all paths in turn, in an order that changes each round (§3.1.1): use it with
//! [`Spray`](crate::packet::Balancer::Spray).
//!
//! **As far as it goes.** Headers go before data strictly (the paper's 10:1 keeps an incast of hundreds from starving data).
//! A header that finds no room is dropped, not returned to its sender; the time-out then mends it. Penalties for paths that
//! trim more than others (§3.2.3) are not modelled.

use windtunnel_kernel::Span;

use super::{Ack, Answer, Arrived, Credit, Credited, Endpoint, Nack, Need, PathFacts, Recovery, patience};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ndp {
    /// First window in bandwidth–delay products, of an idle path; a packet for each of its hops comes on top, behind which
    /// a pull may have to wait on its way back.
    pub initial: f64,
    /// First window in packets, instead.
    pub packets: Option<u32>,
    /// Pulls at this share of the rate at which full packets fill the link.
    pub share: f64,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Silence after which packets are sent again; at least 4 base RTTs.
    pub timeout: Span,
}

impl Default for Ndp {
    /// One bandwidth–delay product, rounded up to packets, and one for each hop; pulls at the link's rate; 1 ms.
    fn default() -> Self {
        Self {
            initial: 1.0,
            packets: None,
            share: 1.0,
            recovery: Recovery::TIMER,
            timeout: Span::from_us(1_000),
        }
    }
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NdpFlow {
    first: u64,
    timeout: Span,
}

super::built_in::built_in! {
    Ndp: "trimmed packets, pulled by the receiver", recovery: recovery, timeout: timeout,
    parameters: {
        "initial_window" => Positive(initial), "first window in bandwidth–delay products; a packet a hop comes on top";
        "initial_packets" => Packets(packets), "first window in packets, instead";
        "pull_rate" => Part(share), "pulls, as a share of the rate at which full packets fill the link";
    }
}

impl Endpoint for Ndp {
    type Flow = NdpFlow;
    type Peer = ();
    type Uses = Credited;
    const NAME: &'static str = "ndp";

    fn needs(&self) -> &'static [Need] {
        &[Need::Trimming]
    }

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> NdpFlow {
        let mtu = u64::from(path.mtu);
        let bytes = (path.bdp as f64 * self.initial) as u64;
        let filling = || bytes.div_ceil(mtu) + u64::from(path.hops);
        let packets = self.packets.map_or_else(filling, u64::from).max(1);
        NdpFlow { first: packets * mtu, timeout: patience(self.timeout, path) }
    }

    #[inline]
    fn window(&self, _: &NdpFlow) -> u64 {
        u64::MAX
    }

    #[inline]
    fn on_ack(&self, _: &mut NdpFlow, _: &Ack) {}

    #[inline]
    fn on_nack(&self, _: &mut NdpFlow, _: &Nack) {}

    fn credit(&self, mtu: u32) -> Credit {
        Credit { quantum: mtu, share: self.share, keeps_unasked: true, ..Credit::default() }
    }

    fn unasked(&self, flow: &NdpFlow) -> u64 {
        flow.first
    }

    fn timeout(&self, flow: &NdpFlow) -> Span {
        flow.timeout
    }

    /// Every packet is acknowledged.
    #[inline]
    fn on_data(&self, (): &mut (), _: &Arrived) -> Answer {
        Answer { acknowledge: true, notify: false }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;

    #[test]
    fn the_first_window_is_whole_packets() {
        let flow = Ndp::default().open(&path(100, 10));
        assert_eq!(flow.first, 36 * 4_000, "125,000 B are 31.25 packets, and four hops");
        let flow = Ndp { packets: Some(15), ..Ndp::default() }.open(&path(100, 10));
        assert_eq!(Ndp::default().unasked(&flow), 60_000);
    }
}
