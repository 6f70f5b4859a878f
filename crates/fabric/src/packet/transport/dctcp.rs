//! DCTCP: Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM'10; RFC 8257.
//!
//! Once per window of packets, with F the share of its acknowledged packets that were marked: α ← (1 − g) α + g F
//! (eq. 1). The first mark, and then the first about a packet sent after the last cut: W ← W (1 − α/2) (eq. 2; RFC 8257
//! §3.3: at most once per window, at once). Otherwise the window grows as TCP's: by what is acknowledged in slow start,
//! by one packet per window after. A loss halves it, by the same rule.
//!
//! The windows that α is taken over and those of cuts begin at different packets: marks come in runs of one round trip,
//! which lie across two of the former, and would cut twice.

use windtunnel_kernel::Span;

use super::tcp::Episode;
use super::{Ack, Endpoint, Loss, LossKind, PathFacts, Plain, Recovery, patience};

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
    /// One reduction per window.
    episode: Episode,
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

super::built_in::built_in! {
    Dctcp: "window by the share of marked packets", recovery: recovery, timeout: timeout,
    parameters: {
        "g" => Part(gain), "weight of the newest window in α";
        "initial_window" => Positive(initial), "first window in bandwidth–delay products";
        "max_window" => Positive(largest), "largest window in bandwidth–delay products";
    }
}

impl Endpoint for Dctcp {
    type Flow = DctcpFlow;
    type Peer = ();
    type Uses = Plain;
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
            episode: Episode::default(),
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
            if flow.episode.begins(ack.expected.saturating_sub(1), ack.next) {
                flow.cut(1.0 - flow.alpha / 2.0);
            }
        } else {
            let bytes = ack.bytes as f64;
            let step = if flow.slow_start { bytes } else { f64::from(flow.packet) * bytes / flow.window };
            flow.window = (flow.window + step).min(flow.largest);
        }
        if ack.expected >= flow.end && flow.packets > 0 {
            let share = f64::from(flow.marked) / f64::from(flow.packets);
            flow.alpha += self.gain * (share - flow.alpha);
            (flow.packets, flow.marked, flow.end) = (0, 0, ack.next);
        }
    }

    fn on_loss(&self, flow: &mut DctcpFlow, loss: &Loss) {
        match loss.kind {
            LossKind::Timeout => {
                flow.window = f64::from(flow.packet);
                flow.slow_start = true;
                flow.episode.forget(loss.next);
            }
            LossKind::Gap if flow.episode.begins(loss.sequence, loss.next) => flow.cut(0.5),
            LossKind::Gap => {}
        }
    }

    fn timeout(&self, flow: &DctcpFlow) -> Span {
        flow.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, gap, path};
    use super::*;

    /// 31.25 packets of 4,000 B; α begins at 1.
    #[test]
    fn a_run_of_marks_cuts_once_and_alpha_follows_their_share() {
        let dctcp = Dctcp::default();
        let mut flow = dctcp.open(&path(100, 10));
        let heard = |flow: &mut DctcpFlow, expected: u32, next: u32, marked: u32| {
            dctcp.on_ack(flow, &Ack { expected, next, ..ack(100, 10, 4, marked) });
        };
        heard(&mut flow, 4, 36, 4);
        assert_eq!(
            (flow.window, flow.alpha),
            (62_500.0, 1.0),
            "half, at once; all of the first window was marked"
        );
        heard(&mut flow, 8, 36, 2);
        heard(&mut flow, 36, 50, 2);
        assert_eq!(
            (flow.window, flow.alpha),
            (62_500.0, 1.0 - 0.5 / 16.0),
            "no second cut; half were marked"
        );
        heard(&mut flow, 40, 54, 0);
        let grown = 62_500.0 + 4_000.0 * 16_000.0 / 62_500.0;
        assert_eq!(flow.window, grown, "a quarter of the window: a quarter of a packet");
        heard(&mut flow, 44, 58, 1);
        assert_eq!(flow.window, grown * (1.0 - (1.0 - 0.5 / 16.0) / 2.0));
        let window = flow.window;
        dctcp.on_loss(&mut flow, &gap(50, 60));
        assert_eq!(flow.window, window, "of the same window");
        dctcp.on_loss(&mut flow, &gap(58, 60));
        assert_eq!(flow.window, window / 2.0);
    }
}
