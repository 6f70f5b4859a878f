//! MP-RDMA: Lu et al., "Multi-Path Transport for RDMA in Datacenters", NSDI'18.
//!
//! One window over all paths, adjusted for each packet acknowledged: W ← W + 1/W if it was not marked,
//! W ← W − 1/2 if it was, in packets. Losses show when packets Δ later have arrived: the paper's
//! out-of-order aware path selection keeps reordering within it.
//!
//! **As far as it goes.** The paper sends the next packet on the path of the unmarked acknowledgement that clocks it; here
//! the balancer chooses paths, and with [`Spray`](crate::packet::Balancer::Spray) every packet has its own, so that all
//! paths are used evenly, congested or not. A loss halves the window once per window, as DCTCP's does; the paper leaves it
//! to its recovery mode. An acknowledgement of several packets counts for each.

use windtunnel_kernel::Span;

use super::tcp::Episode;
use super::{Ack, Endpoint, Loss, LossKind, PathFacts, Plain, Recovery, patience};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MpRdma {
    /// First window in bandwidth–delay products.
    pub initial: f64,
    /// Largest window in bandwidth–delay products.
    pub largest: f64,
    /// What becomes of losses; the paper's Δ is 64 packets.
    pub recovery: Recovery,
    /// Silence after which packets are sent again; at least 4 base RTTs.
    pub timeout: Span,
}

impl Default for MpRdma {
    /// One bandwidth–delay product at first, at most 8; 64 packets, the paper's bitmap; 1 ms.
    fn default() -> Self {
        Self {
            initial: 1.0,
            largest: 8.0,
            recovery: Recovery::Selective { reorder: 64 },
            timeout: Span::from_us(1_000),
        }
    }
}

/// State of a queue pair; windows in packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MpRdmaFlow {
    window: f64,
    largest: f64,
    packet: f32,
    episode: Episode,
    timeout: Span,
}

super::built_in::built_in! {
    MpRdma: "window by marks, packet by packet over many paths", recovery: recovery, timeout: timeout,
    parameters: {
        "initial_window" => Positive(initial), "first window in bandwidth–delay products";
        "max_window" => Positive(largest), "largest window in bandwidth–delay products";
    }
}

impl Endpoint for MpRdma {
    type Flow = MpRdmaFlow;
    type Peer = ();
    type Uses = Plain;
    const NAME: &'static str = "mprdma";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> MpRdmaFlow {
        let packets = path.bdp as f64 / f64::from(path.mtu);
        MpRdmaFlow {
            window: (packets * self.initial).max(1.0),
            largest: (packets * self.largest).max(1.0),
            packet: path.mtu as f32,
            episode: Episode::default(),
            timeout: patience(self.timeout, path),
        }
    }

    #[inline]
    fn window(&self, flow: &MpRdmaFlow) -> u64 {
        (flow.window * f64::from(flow.packet)) as u64
    }

    fn on_ack(&self, flow: &mut MpRdmaFlow, ack: &Ack) {
        let clean = f64::from(ack.packets.saturating_sub(ack.marked));
        let window = flow.window + clean / flow.window - f64::from(ack.marked) / 2.0;
        flow.window = window.clamp(1.0, flow.largest);
    }

    fn on_loss(&self, flow: &mut MpRdmaFlow, loss: &Loss) {
        match loss.kind {
            LossKind::Gap if flow.episode.begins(loss.sequence, loss.next) => {
                flow.window = (flow.window / 2.0).max(1.0);
            }
            LossKind::Timeout if loss.bytes > 0 => {
                flow.window = 1.0;
                flow.episode.forget(loss.next);
            }
            LossKind::Gap | LossKind::Timeout => {}
        }
    }

    fn timeout(&self, flow: &MpRdmaFlow) -> Span {
        flow.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, gap, path};
    use super::*;

    #[test]
    fn every_packet_adjusts_the_window() {
        let mprdma = MpRdma::default();
        let mut flow = mprdma.open(&path(100, 10));
        assert_eq!((flow.window, mprdma.window(&flow)), (31.25, 125_000));
        flow.window = 20.0;
        mprdma.on_ack(&mut flow, &ack(10, 10, 1, 0));
        assert_eq!(flow.window, 20.05);
        flow.window = 20.0;
        mprdma.on_ack(&mut flow, &ack(10, 10, 4, 3));
        assert_eq!(flow.window, 20.05 - 1.5);
        // Half of the packets marked, 1/W each way: it stands where p/2 = (1 − p)/W.
        flow.window = 2.0;
        mprdma.on_ack(&mut flow, &ack(10, 10, 2, 1));
        assert_eq!(flow.window, 2.0);
        (0..9).for_each(|_| mprdma.on_ack(&mut flow, &ack(10, 10, 1, 1)));
        assert_eq!(flow.window, 1.0);
    }

    #[test]
    fn losses_halve_once_per_window() {
        let mprdma = MpRdma::default();
        let mut flow = mprdma.open(&path(100, 10));
        flow.window = 20.0;
        mprdma.on_loss(&mut flow, &gap(3, 30));
        mprdma.on_loss(&mut flow, &gap(7, 31));
        assert_eq!(flow.window, 10.0);
        mprdma.on_loss(&mut flow, &Loss { kind: LossKind::Timeout, ..gap(7, 31) });
        assert_eq!(flow.window, 1.0);
    }
}
