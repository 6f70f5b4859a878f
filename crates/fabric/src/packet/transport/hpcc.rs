//! HPCC: Li et al., "HPCC: High Precision Congestion Control", SIGCOMM'19, algorithm 1.
//!
//! Each acknowledgement brings what every link i of the way said of its queue, bytes sent and time (in-band telemetry). With
//! what it said before, over an interval τ,
//!
//! u = max over i of min(qlenᵢ, qlenᵢ') / (Bᵢ T) + (txBytesᵢ − txBytesᵢ') / (τ Bᵢ)
//!
//! is the bytes in flight over that link in shares of Bᵢ T; U ← (1 − τ/T) U + τ/T · u, τ at most T. Then, with W_c the
//! reference window, updated once per window of packets:
//!
//! | | window | with an update |
//! |---|---|---|
//! | U ≥ η, or after `stages` increases | W = W_c / (U/η) + W_AI | no increases so far, W_c = W |
//! | otherwise | W = W_c + W_AI | one increase more, W_c = W |
//!
//! Packets are paced at R = W / T. T is the base RTT, W at most and at first its bandwidth–delay product. Where the hops that
//! speak have changed, what they say is only remembered.

use windtunnel_kernel::Span;

use super::{Ack, Answer, Arrived, Endpoint, Hop, Loss, LossKind, PathFacts, Recovery, Told, patience};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hpcc {
    /// η: share of links that may be in use.
    pub target: f64,
    /// maxStage: increases in a row.
    pub stages: u32,
    /// N in W_AI = W_init (1 − η) / N: flows that may share a link without a standing queue.
    pub flows: f64,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Silence after which packets are sent again; at least 4 base RTTs.
    pub timeout: Span,
}

impl Default for Hpcc {
    /// The paper's η = 0.95, maxStage = 5; N = 100 flows; go-back-N, as adapters of its day; 1 ms.
    fn default() -> Self {
        Self {
            target: 0.95,
            stages: 5,
            flows: 100.0,
            recovery: Recovery::GoBackN,
            timeout: Span::from_us(1_000),
        }
    }
}

/// State of a queue pair. Windows in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HpccFlow {
    window: f64,
    /// W_c.
    reference: f64,
    /// U.
    used: f64,
    largest: f64,
    /// W_AI.
    increase: f64,
    packet: f64,
    /// T.
    rtt: Span,
    timeout: Span,
    /// incStage.
    stage: u32,
    /// lastUpdateSeq.
    update: u32,
}

impl HpccFlow {
    /// U: bytes in flight over the busiest link, in shares of what it carries in a base RTT.
    pub fn utilisation(&self) -> f64 {
        self.used
    }

    /// MeasureInflight.
    fn measure(&mut self, before: &[Hop], hops: &[Hop]) {
        let rtt = self.rtt.ps() as f64;
        let (mut most, mut over) = (0.0, rtt);
        for (then, now) in before.iter().zip(hops) {
            let interval = now.at.since(then.at).ps() as f64;
            if interval <= 0.0 {
                continue;
            }
            // Bytes of the link in a picosecond.
            let rate = now.rate.bps() as f64 / 8e12;
            let sent = (now.sent - then.sent) as f64 / interval;
            let used = f64::from(now.queue.min(then.queue)) / (rate * rtt) + sent / rate;
            if used > most {
                (most, over) = (used, interval);
            }
        }
        let weight = over.min(rtt) / rtt;
        self.used = (1.0 - weight) * self.used + weight * most;
    }
}

impl Hpcc {
    /// ComputeWind.
    fn adjust(&self, flow: &mut HpccFlow, update: bool) {
        let multiplicative = flow.used >= self.target || flow.stage >= self.stages;
        let base = if multiplicative { flow.reference / (flow.used / self.target) } else { flow.reference };
        flow.window = (base + flow.increase).clamp(flow.packet, flow.largest);
        if update {
            flow.stage = if multiplicative { 0 } else { flow.stage + 1 };
            flow.reference = flow.window;
        }
    }
}

/// Whether both speak of the same ports.
fn same(before: &[Hop], hops: &[Hop]) -> bool {
    before.len() == hops.len() && before.iter().zip(hops).all(|(one, other)| one.port == other.port)
}

super::built_in::built_in! {
    Hpcc: "window by telemetry of every hop", recovery: recovery, timeout: timeout,
    parameters: {
        "eta" => Part(target), "η: share of links that may be in use";
        "max_stage" => Count(stages), "maxStage: increases in a row";
        "flows" => Positive(flows), "N in W_AI = W_init (1 − η)/N: flows that may share a link without a standing queue";
    }
}

impl Endpoint for Hpcc {
    type Flow = HpccFlow;
    type Peer = ();
    type Uses = Told;
    const NAME: &'static str = "hpcc";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> HpccFlow {
        let largest = path.bdp.max(u64::from(path.mtu)) as f64;
        HpccFlow {
            window: largest,
            reference: largest,
            used: 0.0,
            largest,
            increase: largest * (1.0 - self.target) / self.flows,
            packet: f64::from(path.mtu),
            rtt: path.base_rtt,
            timeout: patience(self.timeout, path),
            stage: 0,
            update: 0,
        }
    }

    /// A packet may begin while fewer bytes than W are in flight, so that windows of a few packets need not be whole ones.
    #[inline]
    fn window(&self, flow: &HpccFlow) -> u64 {
        (flow.window + flow.packet) as u64 - 1
    }

    /// At the largest window the port itself is the pace.
    #[inline]
    fn gap(&self, flow: &HpccFlow, wire: u16) -> Span {
        if flow.window >= flow.largest {
            return Span::ZERO;
        }
        Span::from_ps((f64::from(wire) * flow.rtt.ps() as f64 / flow.window) as u64)
    }

    fn on_hops(&self, flow: &mut HpccFlow, ack: &Ack, before: &[Hop], hops: &[Hop]) {
        if !same(before, hops) || hops.is_empty() {
            return;
        }
        flow.measure(before, hops);
        let update = ack.expected > flow.update;
        self.adjust(flow, update);
        if update {
            flow.update = ack.next;
        }
    }

    #[inline]
    fn on_ack(&self, _: &mut HpccFlow, _: &Ack) {}

    /// Receivers acknowledge every packet, as the paper's do: a window of a few packets would else be sent and waited for.
    #[inline]
    fn on_data(&self, (): &mut (), _: &Arrived) -> Answer {
        Answer { acknowledge: true, ..Answer::default() }
    }

    fn on_loss(&self, flow: &mut HpccFlow, loss: &Loss) {
        if loss.kind == LossKind::Timeout && loss.bytes > 0 {
            (flow.window, flow.reference, flow.stage) = (flow.packet, flow.packet, 0);
        }
    }

    fn timeout(&self, flow: &HpccFlow) -> Span {
        flow.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, path};
    use super::*;
    use windtunnel_kernel::{BitRate, Time};

    const US: u64 = 1_000_000;

    /// 100 Gbps: 12,500 B a µs; a window of 10 µs is 125,000 B.
    fn hop(port: u32, at_us: u64, sent: u64, queue: u32) -> Hop {
        Hop { port, queue, sent, at: Time::from_ps(at_us * US), rate: BitRate::from_gbps(100) }
    }

    #[test]
    fn the_busiest_link_counts() {
        let hpcc = Hpcc::default();
        let mut flow = hpcc.open(&path(100, 10));
        assert!(flow.window == 125_000.0 && (flow.increase - 62.5).abs() < 1e-9);
        // First hop: half its rate, no queue. Second: all its rate, and 25,000 B stay: 1 + 0.2.
        let before = [hop(0, 100, 0, 0), hop(1, 100, 0, 40_000)];
        let after = [hop(0, 105, 31_250, 0), hop(1, 105, 62_500, 25_000)];
        flow.measure(&before, &after);
        assert!((flow.used - 0.5 * 1.2).abs() < 1e-12, "τ is half of T: {}", flow.used);
        flow.used = 1.0;
        flow.measure(&before, &[hop(0, 130, 0, 0), hop(1, 130, 187_500, 0)]);
        assert!((flow.used - 0.5).abs() < 1e-12, "beyond T the past does not count: {}", flow.used);
    }

    #[test]
    fn windows_follow_the_reference_and_that_once_a_window() {
        let hpcc = Hpcc::default();
        let mut flow = hpcc.open(&path(100, 10));
        flow.used = 1.9;
        hpcc.adjust(&mut flow, true);
        assert!((flow.window - 62_562.5).abs() < 1e-9 && flow.reference == flow.window);
        hpcc.adjust(&mut flow, false);
        hpcc.adjust(&mut flow, false);
        assert!((flow.window - (62_562.5 / 2.0 + 62.5)).abs() < 1e-9, "not compounded");
        flow.used = 0.5;
        let reference = flow.reference;
        (0..5).for_each(|_| hpcc.adjust(&mut flow, true));
        assert!((flow.reference - reference - 5.0 * 62.5).abs() < 1e-6 && flow.stage == 5);
        hpcc.adjust(&mut flow, true);
        let probed = (reference + 5.0 * 62.5) * 0.95 / 0.5 + 62.5;
        assert!((flow.window - probed).abs() < 1e-6 && flow.stage == 0, "after five increases it multiplies");
        assert_eq!(hpcc.gap(&flow, 4_000).ps(), (4_000.0 * 1e7 / flow.window) as u64);
    }

    #[test]
    fn other_hops_than_before_are_only_remembered() {
        let hpcc = Hpcc::default();
        let mut flow = hpcc.open(&path(100, 10));
        let start = flow;
        hpcc.on_hops(&mut flow, &ack(20, 10, 1, 0), &[], &[hop(0, 10, 9, 9)]);
        hpcc.on_hops(&mut flow, &ack(20, 10, 1, 0), &[hop(0, 5, 0, 0)], &[hop(1, 10, 9, 9)]);
        assert_eq!(flow, start);
        hpcc.on_hops(&mut flow, &ack(20, 10, 1, 0), &[hop(1, 5, 0, 0)], &[hop(1, 10, 62_500, 0)]);
        assert!(flow.used > 0.0 && flow.update == 1);
    }
}
