//! CUBIC: RFC 9438.
//!
//! With t the time since congestion avoidance began, windows in packets, β = 0.7, C = 0.4 packets/s³:
//! W_cubic(t) = C (t − K)³ + W_max, K = ∛((W_max − W_epoch)/C) (§4.2). For each acknowledgement of n packets
//!
//! * W_est ← W_est + a n/W with a = 3 (1 − β)/(1 + β), 1 once W_est has reached the window before the reduction (§4.3);
//! * if W_cubic(t) < W_est: W ← W_est (§4.3);
//! * otherwise W ← W + n (target − W)/W, target being W_cubic(t + RTT) held within W and 1.5 W (§4.2, 4.4, 4.5).
//!
//! A loss or a mark, once per window: ssthresh = W = β W (§4.6), and W_max = W before, or W (1 + β)/2 if that is
//! below the last W_max: fast convergence (§4.7). A retransmission that is lost again is a second loss (RFC 5681 §4.3). A time-out:
//! ssthresh likewise, but for data that a time-out has sent again before (RFC 5681 §3.1), one packet, slow start, and then K = 0
//! (§4.8). The first slow start ends by HyStart++ (§4.10, RFC 9406). A window of which less than half is in flight does not grow
//! (RFC 7661 §4.3), and t leaves that time out (§4.2, §5.8). In data centres round trips are short beside K and it is W_est that rules: C is a matter of seconds.

use windtunnel_kernel::{Span, Time, math};

use super::tcp::{Episode, Expiries, HyStart, Rto};
use super::{Ack, Endpoint, Loss, LossKind, PathFacts, Plain, Recovery};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cubic {
    /// C in packets/s³.
    pub c: f64,
    /// β.
    pub beta: f64,
    /// First window in packets.
    pub initial: u32,
    /// Largest window (the receiver's) in bandwidth–delay products.
    pub largest: f64,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Smallest retransmission time-out.
    pub least_timeout: Span,
}

impl Default for Cubic {
    /// C = 0.4, β = 0.7 (RFC 9438 §4.6, §5); the rest as [`NewReno`](super::NewReno).
    fn default() -> Self {
        Self {
            c: 0.4,
            beta: 0.7,
            initial: 10,
            largest: 8.0,
            recovery: Recovery::Rack,
            least_timeout: Span::from_us(1_000),
        }
    }
}

/// State of a queue pair; windows in packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubicFlow {
    window: f64,
    estimate: f64,
    threshold: f64,
    /// W_max.
    plateau: f64,
    /// Window before the last reduction.
    prior: f32,
    /// K in seconds.
    k: f32,
    largest: f32,
    packet: f32,
    /// When congestion avoidance began; [`Time::NEVER`]: not since the last reduction.
    epoch: Time,
    episode: Episode,
    expiries: Expiries,
    rto: Rto,
    start: HyStart,
    /// When the last acknowledgement came.
    heard: Time,
    timed_out: bool,
}

impl Cubic {
    fn reduce(&self, flow: &mut CubicFlow) {
        let before = flow.window;
        flow.plateau = if before < flow.plateau { before * (1.0 + self.beta) / 2.0 } else { before };
        flow.prior = before as f32;
        flow.window = (before * self.beta).max(2.0);
        flow.threshold = flow.window;
        flow.epoch = Time::NEVER;
    }

    fn begin_epoch(&self, flow: &mut CubicFlow, now: Time) {
        if flow.timed_out || flow.plateau < flow.window {
            flow.plateau = flow.window;
        }
        let above = (flow.plateau - flow.window) / self.c;
        flow.k = if above > 0.0 { math::pow(above, 1.0 / 3.0) as f32 } else { 0.0 };
        flow.estimate = flow.window;
        flow.epoch = now;
        flow.timed_out = false;
    }

    /// W_cubic at `seconds` after the epoch's beginning.
    fn curve(&self, flow: &CubicFlow, seconds: f64) -> f64 {
        let t = seconds - f64::from(flow.k);
        self.c * t * t * t + flow.plateau
    }

    fn avoid_congestion(&self, flow: &mut CubicFlow, ack: &Ack, acked: f64) {
        if flow.epoch == Time::NEVER {
            self.begin_epoch(flow, ack.now);
        }
        let reached = flow.estimate >= f64::from(flow.prior);
        let a = if reached { 1.0 } else { 3.0 * (1.0 - self.beta) / (1.0 + self.beta) };
        flow.estimate += a * acked / flow.window;
        let t = ack.now.since(flow.epoch).seconds();
        if self.curve(flow, t) < flow.estimate {
            flow.window = flow.window.max(flow.estimate);
        } else {
            let target = self.curve(flow, t + ack.rtt.seconds()).clamp(flow.window, 1.5 * flow.window);
            flow.window += acked * (target - flow.window) / flow.window;
        }
    }
}

super::built_in::built_in! {
    Cubic: "TCP CUBIC: window by loss and time", recovery: recovery, timeout: least_timeout,
    parameters: {
        "c" => Positive(c), "C in packets/s³";
        "beta" => Part(beta), "β: share of the window that a loss leaves";
        "initial_packets" => Count(initial), "first window in packets";
        "max_window" => Positive(largest), "largest window in bandwidth–delay products";
    }
}

impl Endpoint for Cubic {
    type Flow = CubicFlow;
    type Peer = ();
    type Uses = Plain;
    const NAME: &'static str = "cubic";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> CubicFlow {
        CubicFlow {
            window: f64::from(self.initial),
            estimate: 0.0,
            threshold: f64::INFINITY,
            plateau: 0.0,
            prior: 0.0,
            k: 0.0,
            largest: (path.bdp as f64 * self.largest / f64::from(path.mtu)).max(1.0) as f32,
            packet: path.mtu as f32,
            epoch: Time::NEVER,
            episode: Episode::default(),
            expiries: Expiries::default(),
            rto: Rto::new(path),
            start: HyStart::new(path),
            heard: Time::ZERO,
            timed_out: false,
        }
    }

    #[inline]
    fn window(&self, flow: &CubicFlow) -> u64 {
        (flow.window * f64::from(flow.packet)) as u64
    }

    fn on_ack(&self, flow: &mut CubicFlow, ack: &Ack) {
        flow.episode.acknowledged(ack.expected);
        if ack.bytes > 0 {
            flow.rto.sample(ack.rtt);
        }
        if ack.marked > 0 && flow.episode.begins(ack.expected.saturating_sub(1), ack.next) {
            self.reduce(flow);
        }
        if flow.episode.active {
            return;
        }
        let first = flow.threshold.is_infinite();
        let share = if first { flow.start.heard(ack) } else { Some(1.0) };
        if share.is_none() {
            flow.threshold = flow.window;
        }
        let packet = f64::from(flow.packet);
        let (acked, flight) = (ack.bytes as f64 / packet, (ack.in_flight + ack.bytes) as f64 / packet);
        let before = std::mem::replace(&mut flow.heard, ack.now);
        if 2.0 * flight < flow.window {
            if flow.epoch != Time::NEVER {
                flow.epoch = flow.epoch + ack.now.since(before.max(flow.epoch));
            }
            return;
        }
        match share {
            Some(share) if flow.window < flow.threshold => flow.window += share * acked,
            _ => self.avoid_congestion(flow, ack, acked),
        }
        flow.window = flow.window.min(f64::from(flow.largest));
    }

    fn on_loss(&self, flow: &mut CubicFlow, loss: &Loss) {
        match loss.kind {
            LossKind::Gap if flow.episode.begins(loss.sequence, loss.next) || loss.again => self.reduce(flow),
            LossKind::Timeout if loss.bytes > 0 => {
                if flow.expiries.is_first(loss.sequence, loss.next) {
                    self.reduce(flow);
                }
                flow.window = 1.0;
                flow.timed_out = true;
                flow.episode.forget(loss.next);
                flow.rto.expired();
            }
            LossKind::Gap | LossKind::Timeout => {}
        }
    }

    fn timeout(&self, flow: &CubicFlow) -> Span {
        flow.rto.span(self.least_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, gap, path};
    use super::*;

    fn cut_from(cubic: &Cubic, window: f64) -> CubicFlow {
        let mut flow = cubic.open(&path(100, 10_000));
        flow.window = window;
        cubic.on_loss(&mut flow, &gap(0, 1));
        flow
    }

    /// W_max = 100, cut to 70: K = ∛(30/0.4) = ∛75 s; at 0 the curve is at 70, at K at 100, at 2 K at 130.
    #[test]
    fn the_curve_passes_through_the_cut_and_the_plateau() {
        let cubic = Cubic::default();
        let mut flow = cut_from(&cubic, 100.0);
        assert_eq!((flow.window, flow.plateau, flow.threshold), (70.0, 100.0, 70.0));
        cubic.begin_epoch(&mut flow, Time::ZERO);
        let k = f64::from(flow.k);
        assert!((k * k * k - 75.0).abs() < 1e-4);
        for (seconds, window) in [(0.0, 70.0), (k, 100.0), (2.0 * k, 130.0)] {
            assert!((cubic.curve(&flow, seconds) - window).abs() < 1e-4);
        }
    }

    /// Round trips of 10 ms: W_est gains 9/17 packets per window, of 70 packets; at 5 s the curve is far above and the step
    /// is n (target − W)/W with the target at most half above.
    #[test]
    fn the_window_follows_the_larger_of_estimate_and_curve() {
        let cubic = Cubic::default();
        let mut flow = cut_from(&cubic, 100.0);
        let at = |us: u64| Ack { expected: 5, next: 5, in_flight: 500_000, ..ack(us, 10_000, 7, 0) };
        cubic.on_ack(&mut flow, &at(1_000_000));
        assert!((flow.estimate - (70.0 + 9.0 / 17.0 / 10.0)).abs() < 1e-12);
        assert_eq!(flow.window, flow.estimate, "the curve is still at 70");
        let window = flow.window;
        let target = cubic.curve(&flow, 5.01);
        assert!(target < 1.5 * window && cubic.curve(&flow, 5.0) > window + 9.0);
        cubic.on_ack(&mut flow, &at(6_000_000));
        assert!((flow.window - (window + 7.0 * (target - window) / window)).abs() < 1e-9);
        let window = flow.window;
        cubic.on_ack(&mut flow, &at(60_000_000));
        assert!((flow.window - (window + 3.5)).abs() < 1e-9, "half above");
    }

    #[test]
    fn fast_convergence_and_time_outs() {
        let cubic = Cubic::default();
        let mut flow = cut_from(&cubic, 100.0);
        cubic.on_loss(&mut flow, &gap(1, 2));
        assert!((flow.plateau - 70.0 * 0.85).abs() < 1e-12, "lower than the last: make room");
        let loss = Loss { kind: LossKind::Timeout, ..gap(2, 3) };
        flow.window = 100.0;
        cubic.on_loss(&mut flow, &loss);
        assert_eq!((flow.window, flow.threshold), (1.0, 70.0));
        cubic.on_ack(&mut flow, &Ack { expected: 9, next: 9, ..ack(10, 10, 69, 0) });
        assert_eq!(flow.window, 70.0, "slow start");
        cubic.on_ack(&mut flow, &Ack { expected: 9, next: 9, in_flight: 276_000, ..ack(20, 10, 1, 0) });
        assert_eq!((flow.k, flow.plateau), (0.0, 70.0));
    }

    /// RFC 5681 §3.1: ssthresh is set once for what a time-out sends again, however often that times out.
    #[test]
    fn repeated_time_outs_hold_the_threshold() {
        let cubic = Cubic::default();
        let mut flow = cut_from(&cubic, 100.0);
        flow.window = 100.0;
        let silent = |sequence, next| Loss { kind: LossKind::Timeout, ..gap(sequence, next) };
        cubic.on_loss(&mut flow, &silent(10, 110));
        cubic.on_loss(&mut flow, &silent(10, 110));
        cubic.on_loss(&mut flow, &silent(40, 110));
        assert_eq!((flow.window, flow.threshold), (1.0, 70.0));
        flow.window = 50.0;
        cubic.on_loss(&mut flow, &silent(110, 160));
        assert_eq!((flow.window, flow.threshold), (1.0, 35.0), "new data");
    }

    /// RFC 9438 §4.2: a sender that has less to send than W neither grows nor lets t run.
    #[test]
    fn a_window_that_is_not_used_neither_grows_nor_ages() {
        let cubic = Cubic::default();
        let (mut used, mut idle) = (cut_from(&cubic, 100.0), cut_from(&cubic, 100.0));
        let at = |ms: u64, in_flight: u64| Ack {
            expected: 5,
            next: 5,
            in_flight,
            ..ack(ms * 1_000, 10_000, 4, 0)
        };
        for flow in [&mut used, &mut idle] {
            cubic.on_ack(flow, &at(1_000, 264_000));
        }
        // 30 packets of 70 for five seconds, an acknowledgement each 10 ms.
        let before = idle;
        (1..=500).for_each(|step| cubic.on_ack(&mut idle, &at(1_000 + 10 * step, 104_000)));
        assert_eq!((idle.window, idle.estimate), (before.window, before.estimate));
        cubic.on_ack(&mut used, &at(1_010, 264_000));
        cubic.on_ack(&mut idle, &at(6_010, 264_000));
        assert!((idle.window - used.window).abs() < 1e-9, "{} {}", idle.window, used.window);
    }
}
