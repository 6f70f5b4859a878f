//! NSCC, the sender-side congestion control of Ultra Ethernet: "Ultra Ethernet Specification v1.0", §3.6.13, whose two
//! signals, marks and queueing delay d = RTT − base RTT, give four cases:
//!
//! | marked | d | change |
//! |---|---|---|
//! | no | below the target | proportional increase: Σ bytes · α · (target − d) |
//! | no | at or above it | fair increase: Σ bytes · fi |
//! | yes | below | none: the queue is already falling |
//! | yes | at or above | multiplicative decrease, once per base RTT, by γ (d̄ − target)/d̄, at most half |
//!
//! Increases are summed and applied every 8 packets or base RTT as W ← W + Σ/W (+ η each base RTT). An idle path, with no
//! delay for a whole window, grows fast. *Quick adapt*: at the end of each base RTT + target in which something was lost
//! or d passed 4 targets and less than an eighth of the largest window arrived, the window becomes what arrived.
//!
//! Constants scale from a network of 100 Gbps and 12 µs: a = BDP / 150 KB, b = target / 12 µs; fi = 5 packets · a,
//! α = 4 packets · a · b / target, η = 0.15 packets · a, γ = 0.8; target = 0.75 base RTT. Delays in µs.

use windtunnel_kernel::{Span, Time};

use super::mixed::Mixed;
use super::patience::Patience;
use super::recent::Recent;
use super::{
    Ack, Answer, Arrived, Endpoint, Loss, LossKind, Nack, PathChoice, PathFacts, Plain, Recovery, Word,
};

/// Bandwidth–delay product of the network that the constants are given for.
const REFERENCE_BDP: f64 = 150_000.0;
/// Its round trip in µs.
const REFERENCE_RTT: f64 = 12.0;
/// Weight of the newest delay in the mean.
const DELAY_GAIN: f64 = 0.0125;
/// Decrease.
const GAMMA: f64 = 0.8;
/// Packets after which increases are applied.
const APPLY_EVERY: f64 = 8.0;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nscc {
    /// Largest window, also the first, in bandwidth–delay products; with 1 or more, at least the whole packets that fill the
    /// path.
    pub largest: f64,
    /// Target queueing delay in base RTTs.
    pub target: f64,
    /// α in packets · a · b / target, fi and η in packets · a.
    pub proportional: f64,
    /// See `proportional`.
    pub fair: f64,
    /// See `proportional`.
    pub eta: f64,
    /// Whether fair increase comes on top of proportional increase.
    pub fair_always: bool,
    /// Whether the law goes by the last acknowledgement or by the median of the last eight ([`Recent`]).
    pub feedback: Word,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Silence after which packets are sent again: this and 6 full queues, or base RTTs if that is more.
    pub timeout: Span,
}

impl Default for Nscc {
    /// 1.5 bandwidth–delay products, 0.75 base RTT, 15 µs.
    fn default() -> Self {
        Self {
            largest: 1.5,
            target: 0.75,
            proportional: 4.0,
            fair: 5.0,
            eta: 0.15,
            fair_always: false,
            feedback: FEEDBACK,
            recovery: Recovery::TIMER,
            timeout: Span::from_us(15),
        }
    }
}

/// What a law by delay may go by.
pub(super) const FEEDBACK: Word = Word { at: 0, of: &["last", "median"], expected: "`last` or `median`" };

/// State of a queue pair. Times and delays are in µs but for the instants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NsccFlow {
    window: f64,
    largest: f64,
    packet: f64,
    base_rtt: Span,
    target: f64,
    mean_delay: f64,
    /// a.
    scale: f64,
    increase: f64,
    received: f64,
    applied: Time,
    decreased: Time,
    /// Bytes that arrived without delay in a row.
    undelayed: f64,
    fast: bool,
    /// End of the stretch that quick adapt looks at; zero before the first.
    stretch: Time,
    achieved: f64,
    lost: bool,
    /// Bytes of the old window still to come, whose marks and losses are ignored.
    ignore: f64,
    patience: Patience,
    paths: Mixed,
    recent: Recent,
}

impl NsccFlow {
    /// Bytes that may be in flight.
    pub fn window(&self) -> f64 {
        self.window
    }

    fn clamp(&mut self) {
        self.window = self.window.clamp(self.packet, self.largest);
    }

    /// Whether quick adapt answers this signal, or it is one of congestion in the old window.
    fn adapts(&mut self, now: Time, delay: f64, congested: bool, in_flight: u64) -> bool {
        let over = (self.ignore > 0.0 && congested) || self.quick_adapt(now, delay, in_flight);
        if over {
            (self.increase, self.received) = (0.0, 0.0);
        }
        over
    }

    fn quick_adapt(&mut self, now: Time, delay: f64, in_flight: u64) -> bool {
        if now <= self.stretch {
            return false;
        }
        let bad = self.lost || delay > 4.0 * self.target;
        let adapt = self.stretch != Time::ZERO && bad && self.achieved < self.largest / 8.0;
        if adapt {
            self.window = self.window.min(self.achieved);
            self.clamp();
            self.ignore = in_flight as f64;
            self.increase = 0.0;
        }
        self.lost = false;
        self.achieved = 0.0;
        self.stretch = now + self.base_rtt + micros(self.target);
        adapt
    }
}

fn micros(us: f64) -> Span {
    Span::from_ps((us * 1e6) as u64)
}

super::built_in::built_in! {
    Nscc: "Ultra Ethernet's NSCC: window by marks and delay", recovery: recovery, timeout: timeout,
    law: "nscc",
    parameters: {
        "max_window" => Positive(largest), "largest window, also the first, in bandwidth–delay products";
        "target_delay" => Positive(target), "queueing delay that is aimed at, in base round trips";
        "proportional_increase" => Any(proportional), "α in packets · a · b / target";
        "fair_increase" => Any(fair), "fi in packets · a";
        "eta" => Any(eta), "η in packets · a";
        "fair_always" => Flag(fair_always), "whether fair increase comes on top of proportional increase";
        "feedback" => Word(feedback), "what the law goes by: the last acknowledgement, or the median of the last eight";
    }
}

impl Endpoint for Nscc {
    type Flow = NsccFlow;
    type Peer = ();
    type Uses = Plain;
    const NAME: &'static str = "uec";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> NsccFlow {
        let (bdp, packet) = (path.bdp as f64, f64::from(path.mtu));
        // A window counts whole packets: 1.5 times 1.2 of them would be one. Where data go both ways, an acknowledgement waits for
        // one of them at each hop.
        let packets = path.bdp.div_ceil(u64::from(path.mtu)) + u64::from(path.hops);
        let filling = (packets * u64::from(path.mtu)) as f64;
        let least = if self.largest < 1.0 { packet } else { filling.max(packet) };
        let largest = (bdp * self.largest).max(least);
        let base = path.base_rtt.ps() as f64 / 1e6;
        NsccFlow {
            window: largest,
            largest,
            packet,
            base_rtt: path.base_rtt,
            target: base * self.target,
            mean_delay: 0.0,
            scale: bdp / REFERENCE_BDP,
            increase: 0.0,
            received: 0.0,
            applied: Time::ZERO,
            decreased: Time::ZERO,
            undelayed: 0.0,
            fast: false,
            stretch: Time::ZERO,
            achieved: 0.0,
            lost: false,
            ignore: 0.0,
            patience: Patience::new(self.timeout, path),
            paths: Mixed::default(),
            recent: Recent::default(),
        }
    }

    #[inline]
    fn path(&self, flow: &mut NsccFlow, choice: &PathChoice) -> Option<u16> {
        Some(flow.paths.next(choice))
    }

    #[inline]
    fn window(&self, flow: &NsccFlow) -> u64 {
        flow.window as u64
    }

    fn on_ack(&self, flow: &mut NsccFlow, ack: &Ack) {
        flow.paths.acknowledged(ack);
        flow.patience.heard(ack.rtt);
        let median = self.feedback.at != FEEDBACK.at;
        let (rtt, echo) = if median { flow.recent.median(ack.rtt, ack.echo) } else { (ack.rtt, ack.echo) };
        let ack = &Ack { rtt, echo, ..*ack };
        let delay = ack.rtt.ps().saturating_sub(flow.base_rtt.ps()) as f64 / 1e6;
        let bytes = ack.bytes as f64;
        flow.achieved += bytes;
        flow.received += bytes;
        // A delay without a mark is a queue already gone, and counts as little.
        let base = flow.base_rtt.ps() as f64 / 1e6;
        let seen = if !ack.echo && delay > flow.target { base * 0.25 } else { delay };
        flow.mean_delay += DELAY_GAIN * (seen - flow.mean_delay);
        flow.ignore -= bytes;
        if flow.adapts(ack.now, delay, ack.echo, ack.in_flight) {
            return;
        }
        if !ack.echo && delay < flow.target {
            if delay < base * 0.1 {
                flow.undelayed += bytes;
                flow.fast |= flow.undelayed > flow.window;
            } else {
                (flow.undelayed, flow.fast) = (0.0, false);
            }
            if flow.fast {
                flow.window += bytes * 0.25 * flow.scale;
            } else {
                let alpha = self.proportional * flow.packet * flow.scale / REFERENCE_RTT;
                flow.increase += bytes * alpha * (flow.target - delay);
                if self.fair_always {
                    flow.increase += bytes * self.fair * flow.packet * flow.scale;
                }
            }
        } else {
            (flow.undelayed, flow.fast) = (0.0, false);
            if !ack.echo {
                flow.increase += bytes * self.fair * flow.packet * flow.scale;
            } else if delay >= flow.target
                && flow.mean_delay > flow.target
                && ack.now.since(flow.decreased) > flow.base_rtt
            {
                let share = GAMMA * (flow.mean_delay - flow.target) / flow.mean_delay;
                flow.window *= (1.0 - share).max(0.5);
                flow.decreased = ack.now;
            }
        }
        let due = ack.now.since(flow.applied) > flow.base_rtt;
        if due || flow.received > APPLY_EVERY * flow.packet {
            flow.window += flow.increase / flow.window;
            if due {
                flow.window += self.eta * flow.packet * flow.scale;
                flow.applied = ack.now;
            }
            (flow.increase, flow.received) = (0.0, 0.0);
        }
        flow.clamp();
    }

    fn on_loss(&self, flow: &mut NsccFlow, loss: &Loss) {
        flow.lost = true;
        if loss.kind == LossKind::Timeout {
            flow.window -= loss.bytes as f64;
            flow.clamp();
            flow.quick_adapt(loss.now, 0.0, 0);
        }
    }

    fn on_nack(&self, flow: &mut NsccFlow, nack: &Nack) {
        flow.paths.trimmed(nack);
        let base = flow.base_rtt.ps() as f64 / 1e6;
        flow.mean_delay += DELAY_GAIN * (base - flow.mean_delay);
        flow.lost = true;
        let bytes = nack.bytes as f64;
        flow.ignore -= bytes;
        if !flow.adapts(nack.now, 0.0, true, nack.in_flight) {
            flow.window -= bytes;
            flow.clamp();
        }
    }

    fn timeout(&self, flow: &NsccFlow) -> Span {
        flow.patience.timeout()
    }

    /// Marked packets are acknowledged at once.
    #[inline]
    fn on_data(&self, (): &mut (), data: &Arrived) -> Answer {
        Answer { acknowledge: data.marked, notify: false }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, path};
    use super::*;

    /// 100 Gbps and 12 µs, the network that the constants are given for: a = b = 1, target 9 µs, largest window 225 KB.
    fn opened() -> (Nscc, NsccFlow) {
        let nscc = Nscc::default();
        let mut flow = nscc.open(&path(100, 12));
        assert_eq!((flow.scale, flow.target, flow.largest), (1.0, 9.0, 225_000.0));
        flow.window = 100_000.0;
        flow.applied = Time::from_ps(100_000_000);
        (nscc, flow)
    }

    /// The window after an acknowledgement of `packets` of 4,000 B, marked or not, that were `delay_us` late, 101 µs after the start,
    /// and what is summed for later.
    fn after((nscc, mut flow): (Nscc, NsccFlow), packets: u32, delay_us: u64, marked: bool) -> (f64, f64) {
        // The mean that decreases go by is where the delay has long been.
        flow.mean_delay = delay_us as f64;
        nscc.on_ack(&mut flow, &ack(101, 12 + delay_us, packets, u32::from(marked)));
        (flow.window, flow.increase)
    }

    /// The four cases of the table in the head, by hand.
    #[test]
    fn marks_and_delay_give_four_cases() {
        // Proportional: bytes · α (target − d), α = 4 packets / 12 µs; at 3 µs 8,000 B · 1333.3 · 6.
        let (window, sum) = after(opened(), 2, 3, false);
        assert_eq!(window, 100_000.0);
        assert!((sum - 8_000.0 * 4.0 * 4_000.0 / 12.0 * 6.0).abs() < 1e-3, "{sum}");
        // At the target nothing is left of it; from there on fair: bytes · 5 packets.
        let (_, below) = after(opened(), 2, 8, false);
        assert!((below - 8_000.0 * 4.0 * 4_000.0 / 12.0).abs() < 1e-3, "{below}");
        for delay in [9, 20] {
            assert_eq!(after(opened(), 2, delay, false), (100_000.0, 8_000.0 * 5.0 * 4_000.0), "{delay} µs");
        }
        // Marked and below: nothing.
        assert_eq!(after(opened(), 2, 3, true), (100_000.0, 0.0));
        assert_eq!(after(opened(), 2, 8, true), (100_000.0, 0.0));
        // Marked and above: γ (d̄ − target)/d̄, and at most half.
        for (delay, left) in [(10, 1.0 - 0.8 * 0.1), (12, 0.8), (18, 0.6), (30, 0.5)] {
            let (window, sum) = after(opened(), 2, delay, true);
            assert!((window - 100_000.0 * left).abs() < 200.0 && sum == 0.0, "{delay} µs: {window}");
        }
        // Once a base round trip.
        let (nscc, mut flow) = opened();
        flow.mean_delay = 18.0;
        for at in [101, 105, 112] {
            nscc.on_ack(&mut flow, &ack(at, 30, 2, 1));
        }
        assert!((flow.window - 60_000.0).abs() < 200.0, "{}", flow.window);
        nscc.on_ack(&mut flow, &ack(114, 30, 2, 1));
        // And η, as a base round trip has passed since it was last applied.
        assert!((flow.window - 36_600.0).abs() < 200.0, "{}", flow.window);
    }

    /// Σ/W after 8 packets, and η = 0.15 packets once a base round trip.
    #[test]
    fn increases_are_applied_together() {
        let (nscc, mut flow) = opened();
        for round in 1..=9 {
            nscc.on_ack(&mut flow, &ack(100 + round, 15, 1, 0));
            let expected =
                if round < 9 { 100_000.0 } else { 100_000.0 + 9.0 * 4_000.0 * 8_000.0 / 100_000.0 };
            assert!((flow.window - expected).abs() < 1e-6, "{round}: {}", flow.window);
        }
        nscc.on_ack(&mut flow, &ack(113, 12 + 20, 1, 1));
        assert_eq!(flow.applied, Time::from_ps(113_000_000));
    }

    /// A path of 1.2 packets is filled by two, not by 1.5 times 1.2 packets, which is one, and a packet at each hop.
    #[test]
    fn the_largest_window_holds_whole_packets() {
        let short = PathFacts { bdp: 4_800, ..path(100, 1) };
        assert_eq!(Nscc::default().open(&short).largest, 24_000.0, "and four at the hops");
        assert_eq!(Nscc { largest: 0.5, ..Nscc::default() }.open(&short).largest, 4_000.0, "as asked");
        assert_eq!(Nscc::default().open(&path(100, 12)).largest, 225_000.0);
    }
}
