//! Swift: Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter", SIGCOMM'20.
//!
//! For each acknowledgement with delay d (algorithm 1; w in packets):
//!
//! * d < target: w ← w + ai · acked / w, or w + ai · acked below one packet;
//! * otherwise, at most once per round trip: w ← w · max(1 − β (d − target)/d, 1 − max_mdf).
//!
//! A loss found by later packets, or a timeout, takes max_mdf at most once per round trip; the fifth timeout in a row sets
//! the smallest window. Below one packet, packets are d / w apart.
//!
//! Target: base + hops · ħ + flow scaling, the last being α/√w + β' between 0 and `range`, with
//! α = range / (1/√min − 1/√max) and β' = −α/√max, for windows from `min` to `max` packets.
//!
//! **Ours.** The fabric's delay only: hosts add none that varies, so the end-host window never binds. The paper's
//! base target is one number for a data centre; here it is the path's own base RTT, known when a queue pair is opened,
//! and ħ is a number of full packets at its rate, so that both follow link speeds (100 Gbps–1.6 Tbps) and distances.

use windtunnel_kernel::{Span, Time, math};

use super::nscc::FEEDBACK;
use super::recent::Recent;
use super::{Ack, Endpoint, Loss, LossKind, PathFacts, Plain, Recovery, Word, patience};

/// Timeouts in a row that set the smallest window.
const RESET_AFTER: u32 = 5;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Swift {
    /// Packets added to the window each round trip.
    pub increase: f64,
    /// β.
    pub beta: f64,
    /// Largest decrease.
    pub max_decrease: f64,
    /// Target without hops and flow scaling, in base RTTs.
    pub base: f64,
    /// ħ: full packets of queue allowed for each link of the way there.
    pub per_hop: f64,
    /// Largest flow scaling, in base RTTs.
    pub range: f64,
    /// Windows over which the target is scaled, in packets.
    pub scaled: [f64; 2],
    /// Smallest window in packets.
    pub least: f64,
    /// First window in bandwidth–delay products.
    pub initial: f64,
    /// Largest window in bandwidth–delay products.
    pub largest: f64,
    /// Whether it goes by the last delay or by the median of the last eight.
    pub feedback: Word,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Silence after which packets are sent again; at least 4 base RTTs.
    pub timeout: Span,
}

impl Default for Swift {
    /// ai = 1, β = 0.8, max_mdf = 0.5; base RTT and 8 packets a hop; scaling by at most one base RTT for windows of 0.1 to
    /// 100 packets; 0.01 packets to 8 bandwidth–delay products, one at first; selective recovery; 1 ms.
    fn default() -> Self {
        Self {
            increase: 1.0,
            beta: 0.8,
            max_decrease: 0.5,
            base: 1.0,
            per_hop: 8.0,
            range: 1.0,
            scaled: [0.1, 100.0],
            least: 0.01,
            initial: 1.0,
            largest: 8.0,
            feedback: FEEDBACK,
            recovery: Recovery::Selective { reorder: 3 },
            timeout: Span::from_us(1_000),
        }
    }
}

/// State of a queue pair. The window is in packets, delays in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwiftFlow {
    /// Packets that may be in flight.
    pub window: f64,
    largest: f64,
    /// Target without flow scaling.
    base: f64,
    /// Flow scaling: at most, α.
    range: f32,
    slope: f32,
    packet: f32,
    timeouts: u32,
    /// Last delay seen.
    rtt: Span,
    decreased: Time,
    timeout: Span,
    recent: Recent,
}

impl Swift {
    /// Delay that is aimed at.
    pub fn target(&self, flow: &SwiftFlow) -> Span {
        let root = |window: f64| 1.0 / math::sqrt(window);
        let scaling = f64::from(flow.slope) * (root(flow.window) - root(self.scaled[1]));
        Span::from_ps((flow.base + scaling.clamp(0.0, f64::from(flow.range))) as u64)
    }

    fn decrease(&self, flow: &mut SwiftFlow, now: Time, factor: f64) {
        if now.since(flow.decreased) >= flow.rtt {
            flow.window = (flow.window * factor.max(1.0 - self.max_decrease)).max(self.least);
            flow.decreased = now;
        }
    }
}

super::built_in::built_in! {
    Swift: "window by delay", recovery: recovery, timeout: timeout,
    parameters: {
        "ai" => Positive(increase), "packets added to the window each round trip";
        "beta" => Part(beta), "β: share of the delay beyond the target that is taken off";
        "max_mdf" => Part(max_decrease), "largest decrease, as a share of the window";
        "base_target" => Positive(base), "target without hops and flow scaling, in base round trips";
        "hop_scaling" => Any(per_hop), "ħ: full packets of queue allowed for each link of the way there";
        "fs_range" => Any(range), "largest flow scaling, in base round trips";
        "fs_min_window" => Positive(scaled[0]), "smallest window over which the target is scaled, in packets";
        "fs_max_window" => Positive(scaled[1]), "largest window over which the target is scaled, in packets";
        "min_window" => Part(least), "smallest window in packets";
        "initial_window" => Positive(initial), "first window in bandwidth–delay products";
        "max_window" => Positive(largest), "largest window in bandwidth–delay products";
        "feedback" => Word(feedback), "what the law goes by: the last acknowledgement, or the median of the last eight";
    }
    check: |swift| {
        if swift.scaled[0] < swift.scaled[1] {
            return Ok(());
        }
        let message = format!("expected less than `fs_max_window`: {}", swift.scaled[1]);
        Err(super::Unfit { key: "fs_min_window", message })
    },
}

impl Endpoint for Swift {
    type Flow = SwiftFlow;
    type Peer = ();
    type Uses = Plain;
    const NAME: &'static str = "swift";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> SwiftFlow {
        let (packet, rtt) = (f64::from(path.mtu), path.base_rtt.ps() as f64);
        let packets = path.bdp as f64 / packet;
        let hop = self.per_hop * packet * 8e12 / path.rate.bps() as f64;
        let [min, max] = self.scaled.map(|window| 1.0 / math::sqrt(window));
        SwiftFlow {
            recent: Recent::default(),
            window: (packets * self.initial).max(1.0),
            largest: (packets * self.largest).max(1.0),
            base: rtt * self.base + hop * f64::from(path.hops),
            range: (rtt * self.range) as f32,
            slope: (rtt * self.range / (min - max)) as f32,
            packet: packet as f32,
            timeouts: 0,
            rtt: path.base_rtt,
            decreased: Time::ZERO,
            timeout: patience(self.timeout, path),
        }
    }

    #[inline]
    fn window(&self, flow: &SwiftFlow) -> u64 {
        (flow.window.max(1.0) * f64::from(flow.packet)) as u64
    }

    #[inline]
    fn gap(&self, flow: &SwiftFlow, _: u16) -> Span {
        if flow.window >= 1.0 {
            Span::ZERO
        } else {
            Span::from_ps((flow.rtt.ps() as f64 / flow.window) as u64)
        }
    }

    fn on_ack(&self, flow: &mut SwiftFlow, ack: &Ack) {
        flow.timeouts = 0;
        flow.rtt = ack.rtt;
        if self.feedback.at != FEEDBACK.at {
            flow.rtt = flow.recent.median(ack.rtt, ack.echo).0;
        }
        let (target, rtt) = (self.target(flow), flow.rtt);
        if rtt < target {
            let acked = ack.bytes as f64 / f64::from(flow.packet);
            flow.window += self.increase * acked / flow.window.max(1.0);
            flow.window = flow.window.min(flow.largest);
        } else {
            let excess = (rtt.ps() - target.ps()) as f64 / rtt.ps() as f64;
            self.decrease(flow, ack.now, 1.0 - self.beta * excess);
        }
    }

    fn on_loss(&self, flow: &mut SwiftFlow, loss: &Loss) {
        match loss.kind {
            // Packets further apart than a timeout are not lost.
            LossKind::Timeout if loss.bytes == 0 => {}
            LossKind::Timeout => {
                flow.timeouts += 1;
                if flow.timeouts >= RESET_AFTER {
                    (flow.window, flow.decreased) = (self.least, loss.now);
                } else {
                    self.decrease(flow, loss.now, 0.0);
                }
            }
            LossKind::Gap => self.decrease(flow, loss.now, 0.0),
        }
    }

    fn timeout(&self, flow: &SwiftFlow) -> Span {
        flow.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, path};
    use super::*;

    const US: u64 = 1_000_000;

    /// 100 Gbps, 4,000 B, 10 µs, 4 links: 10 µs + 4 · 8 · 0.32 µs; scaling 0 from 100 packets up, 10 µs at 0.1.
    #[test]
    fn the_target_grows_with_hops_and_with_the_number_of_flows() {
        let swift = Swift::default();
        let mut flow = swift.open(&path(100, 10));
        let mut target = |window: f64| {
            flow.window = window;
            swift.target(&flow).ps()
        };
        assert_eq!([target(1_000.0), target(100.0)], [20_240_000; 2]);
        assert!(target(0.1).abs_diff(30_240_000) < 10 && target(0.01) == target(0.1).max(30_240_000));
        // α = 10 / (1/√0.1 − 1/√100) µs = 3.2655 µs; at one packet α (1 − 0.1).
        assert!(target(1.0).abs_diff(20_240_000 + 2_938_988) < 100, "{}", target(1.0));
    }

    #[test]
    fn below_the_target_it_adds_and_above_it_takes_by_the_excess_once_a_round_trip() {
        let swift = Swift { range: 0.0, ..Swift::default() };
        let mut flow = swift.open(&path(100, 10));
        assert_eq!((flow.window, swift.window(&flow)), (31.25, 125_000));
        swift.on_ack(&mut flow, &ack(100, 12, 4, 0));
        assert!((flow.window - (31.25 + 4.0 / 31.25)).abs() < 1e-12);
        flow.window = 40.0;
        // Target 20.24 µs, delay 25.3 µs: the excess is a fifth, β of it 0.16.
        let late = Ack { rtt: Span::from_ps(25_300_000), ..ack(200, 0, 4, 0) };
        swift.on_ack(&mut flow, &late);
        assert!((flow.window - 33.6).abs() < 1e-9);
        swift.on_ack(&mut flow, &Ack { now: Time::from_ps(225 * US), ..late });
        assert!((flow.window - 33.6).abs() < 1e-9, "within the round trip");
        swift.on_ack(
            &mut flow,
            &Ack { now: Time::from_ps(2_224 * US), rtt: Span::from_ps(2_024_000_000), ..late },
        );
        assert!((flow.window - 16.8).abs() < 1e-9, "at most half");
    }

    #[test]
    fn below_one_packet_it_paces_and_timeouts_reset() {
        let swift = Swift::default();
        let mut flow = swift.open(&path(100, 10));
        flow.window = 0.25;
        assert_eq!((swift.window(&flow), swift.gap(&flow, 4_000)), (4_000, Span::from_ps(40 * US)));
        swift.on_ack(&mut flow, &ack(100, 12, 1, 0));
        assert_eq!((flow.window, swift.gap(&flow, 4_000)), (1.25, Span::ZERO), "ai for each acknowledged");
        let silent = |us: u64| Loss {
            now: Time::from_ps(us * US),
            kind: LossKind::Timeout,
            sequence: 0,
            next: 9,
            bytes: 4_000,
            again: false,
        };
        for n in 1..5 {
            swift.on_loss(&mut flow, &silent(1_000 * n));
        }
        assert_eq!(flow.window, 1.25 / 16.0);
        swift.on_loss(&mut flow, &silent(5_000));
        assert_eq!(flow.window, 0.01);
        swift.on_loss(&mut flow, &Loss { bytes: 0, ..silent(9_000) });
        assert_eq!(flow.timeouts, 5);
    }
}
