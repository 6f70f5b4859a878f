//! DCTCP: Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM'10; RFC 8257.
//!
//! Once per window of packets, with F the share of its acknowledged packets that were marked: α ← (1 − g) α + g F
//! (eq. 1), and if F > 0, W ← W (1 − α/2) (eq. 2); otherwise the window grows as TCP's: by what is acknowledged in slow
//! start, by one packet per window after. A loss halves it, once per window.

use windtunnel_kernel::Span;

use super::{Ack, Loss, LossKind, PathFacts, Recovery, Transport, patience};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dctcp {
    /// Weight of the newest window in α; 1/16 in the paper (§3.4).
    pub gain: f64,
    /// First window in bandwidth–delay products.
    pub initial: f64,
    /// Largest window in bandwidth–delay products.
    pub largest: f64,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Silence after which packets are sent again; at least 4 base RTTs.
    pub timeout: Span,
}

impl Default for Dctcp {
    /// g = 1/16; a first window of one bandwidth–delay product, as RDMA NICs start at line rate; at most 8 of them;
    /// selective recovery after 3 later packets; 1 ms.
    fn default() -> Self {
        Self {
            gain: 1.0 / 16.0,
            initial: 1.0,
            largest: 8.0,
            recovery: Recovery::Selective { reorder: 3 },
            timeout: Span::from_us(1_000),
        }
    }
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DctcpFlow {
    window: f64,
    largest: f64,
    /// α.
    pub alpha: f64,
    packet: f32,
    slow_start: bool,
    /// The window of packets under observation ends before this one.
    end: u32,
    packets: u32,
    marked: u32,
    timeout: Span,
}

impl DctcpFlow {
    fn cut(&mut self, factor: f64) {
        self.slow_start = false;
        self.window = (self.window * factor).max(f64::from(self.packet));
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> f64 {
        self.window
    }
}

impl Transport for Dctcp {
    type Flow = DctcpFlow;
    type Peer = ();
    const NAME: &'static str = "dctcp";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> DctcpFlow {
        let (bdp, packet) = (path.bdp as f64, f64::from(path.mtu));
        DctcpFlow {
            window: (bdp * self.initial).max(packet),
            largest: (bdp * self.largest).max(packet),
            alpha: 1.0,
            packet: path.mtu as f32,
            slow_start: true,
            end: 0,
            packets: 0,
            marked: 0,
            timeout: patience(self.timeout, path),
        }
    }

    #[inline]
    fn window(&self, flow: &DctcpFlow) -> u64 {
        flow.window as u64
    }

    fn on_ack(&self, flow: &mut DctcpFlow, ack: &Ack) {
        flow.packets += ack.packets;
        flow.marked += ack.marked;
        if ack.marked > 0 {
            flow.slow_start = false;
        } else {
            let bytes = ack.bytes as f64;
            let step = if flow.slow_start { bytes } else { f64::from(flow.packet) * bytes / flow.window };
            flow.window = (flow.window + step).min(flow.largest);
        }
        if ack.expected >= flow.end && flow.packets > 0 {
            let share = f64::from(flow.marked) / f64::from(flow.packets);
            flow.alpha += self.gain * (share - flow.alpha);
            if flow.marked > 0 {
                flow.cut(1.0 - flow.alpha / 2.0);
            }
            (flow.packets, flow.marked, flow.end) = (0, 0, ack.next);
        }
    }

    fn on_loss(&self, flow: &mut DctcpFlow, loss: &Loss) {
        match loss.kind {
            LossKind::Timeout => {
                flow.window = f64::from(flow.packet);
                flow.slow_start = true;
            }
            LossKind::Gap if loss.sequence >= flow.end || flow.slow_start => {
                flow.cut(0.5);
                flow.end = loss.next;
                (flow.packets, flow.marked) = (0, 0);
            }
            LossKind::Gap => {}
        }
    }

    fn timeout(&self, flow: &DctcpFlow) -> Span {
        flow.timeout
    }
}
