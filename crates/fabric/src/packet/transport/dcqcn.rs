//! DCQCN: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM'15, §3.
//!
//! **Notification point** (receiver). The first marked packet is answered by a CNP at once; then, for windows of N µs one
//! after another, a CNP ends each window in which a packet was marked, until one passes without. The engine has no timer
//! at receivers: the end of a window is seen at the first packet after it.
//!
//! **Reaction point** (sender). On a CNP (eq. 1): R_T ← R_C, R_C ← R_C (1 − α/2), α ← (1 − g) α + g; the timer and the
//! byte counter begin anew. Each K µs without one (eq. 2): α ← (1 − g) α. Each T µs, and each B bytes sent, an increase,
//! i being the larger and j the smaller count of those since the CNP:
//!
//! | stage | | |
//! |---|---|---|
//! | fast recovery | i < F | R_C ← (R_T + R_C)/2 (eq. 3) |
//! | additive increase | otherwise | R_T ← R_T + R_AI, then as above (eq. 4) |
//! | hyper increase | j ≥ F | R_T ← R_T + R_HAI, then as above |
//!
//! **Scaling.** The paper's values are for 40 Gbps: R_AI = 40 Mbps, B = 10 MB. Rates and bytes are kept as shares of the
//! line rate (1/1000, and 2 ms of it) and times as they are, so that with n flows on a link the share of marked *time*,
//! not of packets, and thus the depth of its queue in µs, are those of 40 Gbps at any speed. The adapters' default
//! R_HAI = 10 R_AI (`rpg_hai_rate`, `rpg_ai_rate`) and the smallest rate, 100 Mbps at 100 Gbps in the simulator of HPCC
//! (Li et al., SIGCOMM'19), are scaled likewise.
//!
//! **Target.** Each CNP of eq. 1 brings R_T down to R_C, so that a train of them, one for each N while a queue drains, leaves nothing
//! to recover to: 32 senders of an incast end near the smallest rate and climb from there by R_AI. Adapters let one keep R_T where no
//! timer has run out since the CNP before (`clamp_tgt_rate` off, their default; so has the simulator of HPCC): fast recovery then
//! leads back to the rate from before the train.
//!
//! **Silence.** The time without acknowledgement after which a sender goes back is at least 4 times the last round trip
//! seen, as RFC 6298 lets a time-out follow the path. With a fixed time and a queue that is longer than it, every sender
//! would send all that it has under way again and again, nothing new would arrive, and the queue would never drain.
//!
//! **No events.** Nothing but the next transmission depends on α and R_C: timers that have passed are made up for, in
//! order, when one begins. A transmission already paced keeps its time.

use windtunnel_kernel::{Span, Time, math};

use super::{Ack, Answer, Arrived, Endpoint, PathFacts, Plain, Recovery, patience};

/// Round trips of silence.
pub(super) const PATIENCE: u64 = 4;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dcqcn {
    /// N: a receiver sends at most one CNP for each.
    pub cnp_interval: Span,
    /// g.
    pub gain: f64,
    /// K: time without CNP after which α decays.
    pub alpha_interval: Span,
    /// T.
    pub increase_timer: Span,
    /// B, as time at line rate.
    pub byte_counter: Span,
    /// F.
    pub stages: u32,
    /// R_AI as a share of the line rate.
    pub additive: f64,
    /// R_HAI likewise.
    pub hyper: f64,
    /// Smallest R_C likewise.
    pub least: f64,
    /// Whether every CNP brings R_T down to R_C, as in the paper; without, only one before which a timer has run out.
    pub clamp_target: bool,
    /// Bytes in flight in bandwidth–delay products; infinite in the paper.
    pub window: f64,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Silence after which packets are sent again; at least 4 round trips.
    pub timeout: Span,
}

impl Default for Dcqcn {
    /// The paper's values (N = 50 µs, K = T = 55 µs, g = 1/256, F = 5, the rest scaled as above); go-back-N; 1 ms.
    fn default() -> Self {
        Self {
            cnp_interval: Span::from_us(50),
            gain: 1.0 / 256.0,
            alpha_interval: Span::from_us(55),
            increase_timer: Span::from_us(55),
            byte_counter: Span::from_us(2_000),
            stages: 5,
            additive: 1e-3,
            hyper: 1e-2,
            least: 1e-3,
            clamp_target: true,
            window: f64::INFINITY,
            recovery: Recovery::GoBackN,
            timeout: Span::from_us(1_000),
        }
    }
}

/// State of a reaction point. Rates are shares of the line rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcqcnFlow {
    /// R_C.
    pub rate: f64,
    /// R_T.
    pub target: f64,
    /// α at the last CNP.
    pub alpha: f64,
    /// Picoseconds of a byte at line rate.
    per_byte: f32,
    /// Bytes that fill the path.
    bdp: f32,
    /// When the last CNP came; [`Time::NEVER`] before the first.
    cnp: Time,
    /// Bytes sent since the byte counter began anew.
    sent: u64,
    time_stage: u32,
    byte_stage: u32,
    /// Of the last packet that was answered.
    rtt: Span,
    timeout: Span,
}

/// State of a notification point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DcqcnPeer {
    /// End of the window under observation.
    end: Time,
    /// Whether a packet of it was marked.
    seen: bool,
}

impl DcqcnFlow {
    fn is_steady(&self) -> bool {
        self.rate >= 1.0 && self.target >= 1.0
    }
}

impl Dcqcn {
    fn increase(&self, flow: &mut DcqcnFlow) {
        let (more, less) = (flow.time_stage.max(flow.byte_stage), flow.time_stage.min(flow.byte_stage));
        if less >= self.stages {
            flow.target += self.hyper;
        } else if more >= self.stages {
            flow.target += self.additive;
        }
        flow.target = flow.target.min(1.0);
        flow.rate = f64::midpoint(flow.target, flow.rate);
    }

    /// Makes up for the timers that have passed by `now`.
    fn advance(&self, flow: &mut DcqcnFlow, now: Time) {
        if flow.cnp == Time::NEVER {
            return;
        }
        let passed =
            u32::try_from(now.since(flow.cnp).ps() / self.increase_timer.ps().max(1)).unwrap_or(u32::MAX);
        while flow.time_stage < passed && !flow.is_steady() {
            self.increase(flow);
            flow.time_stage += 1;
        }
        flow.time_stage = flow.time_stage.max(passed);
    }
}

super::built_in::built_in! {
    Dcqcn: "RoCEv2's rate control by marks", recovery: recovery, timeout: timeout,
    parameters: {
        "cnp_interval" => Time(cnp_interval), "N: time between notifications of a receiver";
        "alpha_interval" => Time(alpha_interval), "K: time without a notification after which α decays";
        "increase_timer" => Time(increase_timer), "T: time between increases";
        "byte_counter" => Time(byte_counter), "B: bytes between increases, as time at line rate";
        "g" => Part(gain), "weight of a notification in α";
        "f" => Count(stages), "F: increases by time or by bytes before the rate goes beyond the old one";
        "r_ai" => Part(additive), "R_AI: additive increase, as a share of the line rate";
        "r_hai" => Part(hyper), "R_HAI: hyper increase, as a share of the line rate";
        "min_rate" => Part(least), "smallest rate, as a share of the line rate";
        "clamp_target" => Flag(clamp_target), "whether every notification brings R_T down to R_C";
        "max_window" => Positive(window), "bytes in flight at most, in bandwidth–delay products";
    }
}

impl Endpoint for Dcqcn {
    type Flow = DcqcnFlow;
    type Peer = DcqcnPeer;
    type Uses = Plain;
    const NAME: &'static str = "dcqcn";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> DcqcnFlow {
        DcqcnFlow {
            rate: 1.0,
            target: 1.0,
            alpha: 1.0,
            per_byte: (8e12 / path.rate.bps() as f64) as f32,
            bdp: path.bdp as f32,
            cnp: Time::NEVER,
            sent: 0,
            time_stage: 0,
            byte_stage: 0,
            rtt: path.base_rtt,
            timeout: patience(self.timeout, path),
        }
    }

    #[inline]
    fn window(&self, flow: &DcqcnFlow) -> u64 {
        (f64::from(flow.bdp) * self.window) as u64
    }

    /// At line rate the port itself is the pace.
    #[inline]
    fn gap(&self, flow: &DcqcnFlow, wire: u16) -> Span {
        if flow.rate >= 1.0 {
            return Span::ZERO;
        }
        Span::from_ps((f64::from(wire) * f64::from(flow.per_byte) / flow.rate) as u64)
    }

    fn on_send(&self, flow: &mut DcqcnFlow, now: Time, wire: u16) {
        if flow.cnp == Time::NEVER {
            return;
        }
        self.advance(flow, now);
        flow.sent += u64::from(wire);
        if flow.sent as f64 * f64::from(flow.per_byte) >= self.byte_counter.ps() as f64 {
            flow.sent = 0;
            self.increase(flow);
            flow.byte_stage = flow.byte_stage.saturating_add(1);
        }
    }

    #[inline]
    fn on_ack(&self, flow: &mut DcqcnFlow, ack: &Ack) {
        flow.rtt = ack.rtt;
    }

    fn on_notify(&self, flow: &mut DcqcnFlow, now: Time) {
        self.advance(flow, now);
        if flow.cnp != Time::NEVER {
            let silent = now.since(flow.cnp).ps() / self.alpha_interval.ps().max(1);
            flow.alpha *= math::pow(1.0 - self.gain, silent as f64);
        }
        if self.clamp_target || flow.time_stage > 0 {
            flow.target = flow.rate;
        }
        flow.rate = (flow.rate * (1.0 - flow.alpha / 2.0)).max(self.least);
        flow.alpha = (1.0 - self.gain) * flow.alpha + self.gain;
        flow.cnp = now;
        (flow.sent, flow.time_stage, flow.byte_stage) = (0, 0, 0);
    }

    fn timeout(&self, flow: &DcqcnFlow) -> Span {
        flow.timeout.max(flow.rtt * PATIENCE)
    }

    fn on_data(&self, peer: &mut DcqcnPeer, data: &Arrived) -> Answer {
        let over = data.now >= peer.end;
        // What was seen in a window that ended longer ago than another lasts belongs to a burst long past.
        let due = over && peer.seen && data.now < peer.end + self.cnp_interval;
        let notify = due || (over && data.marked);
        if due {
            (peer.end, peer.seen) = (peer.end + self.cnp_interval, data.marked);
        } else if over {
            peer.seen = false;
            if data.marked {
                peer.end = data.now + self.cnp_interval;
            }
        } else {
            peer.seen |= data.marked;
        }
        Answer { acknowledge: false, notify }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, path};
    use super::*;

    const US: u64 = 1_000_000;

    fn notified(dcqcn: &Dcqcn, at_us: u64, flow: &mut DcqcnFlow) {
        dcqcn.on_notify(flow, Time::from_ps(at_us * US));
    }

    /// Eq. 1 and 2 by hand: α is 1 until it decays, and a CNP halves at first.
    #[test]
    fn a_cnp_cuts_by_half_of_alpha() {
        let dcqcn = Dcqcn::default();
        let mut flow = dcqcn.open(&path(100, 10));
        assert_eq!((dcqcn.gap(&flow, 4_000), dcqcn.window(&flow)), (Span::ZERO, u64::MAX));
        notified(&dcqcn, 0, &mut flow);
        assert_eq!((flow.rate, flow.target, flow.alpha), (0.5, 1.0, 1.0));
        assert_eq!(dcqcn.gap(&flow, 4_000), Span::from_ps(640_000), "4,000 B at 50 Gbps");
        // 54 µs later nothing has passed.
        notified(&dcqcn, 54, &mut flow);
        assert_eq!((flow.rate, flow.target, flow.alpha), (0.25, 0.5, 1.0));
        // Another 120 µs: two timers of 55 µs, and α has decayed twice before the cut.
        notified(&dcqcn, 174, &mut flow);
        let decayed = (255.0 / 256.0) * (255.0 / 256.0);
        let rate = 0.5 - 0.25 / 4.0;
        assert!(
            (flow.target - rate).abs() < 1e-15 && (flow.rate - rate * (1.0 - decayed / 2.0)).abs() < 1e-12
        );
        assert!((flow.alpha - (decayed * 255.0 + 1.0) / 256.0).abs() < 1e-12);
    }

    /// A train of CNPs that leaves no timer time to run out: by the paper R_T follows R_C down, by adapters' default it stays, and five
    /// timers later the rate is nearly what it was. Once a timer has run out the next CNP brings R_T down in both.
    #[test]
    fn a_train_of_cnps_keeps_the_target_where_it_is_not_clamped() {
        for (clamp_target, kept, recovered) in [(true, 0.125, 0.123), (false, 1.0, 0.97)] {
            let dcqcn = Dcqcn { clamp_target, ..Dcqcn::default() };
            let mut flow = dcqcn.open(&path(100, 10));
            for at in [0, 50, 100, 150] {
                notified(&dcqcn, at, &mut flow);
            }
            assert_eq!((flow.rate, flow.target), (0.0625, kept));
            dcqcn.advance(&mut flow, Time::from_ps((150 + 5 * 55) * US));
            assert!(flow.rate > recovered && flow.rate <= kept, "{}", flow.rate);
            let before = flow.rate;
            notified(&dcqcn, 150 + 5 * 55, &mut flow);
            assert_eq!(flow.target, before, "a timer has run out");
        }
    }

    /// Five halvings of the distance, then 1/1000 a timer: eq. 3 and 4.
    #[test]
    fn the_timer_recovers_then_adds() {
        let dcqcn = Dcqcn::default();
        let mut flow = dcqcn.open(&path(100, 10));
        notified(&dcqcn, 0, &mut flow);
        notified(&dcqcn, 1, &mut flow);
        let (mut target, mut rate): (f64, f64) = (0.5, 0.25);
        for event in 1..=8_u64 {
            dcqcn.advance(&mut flow, Time::from_ps((1 + 55 * event) * US - 1));
            assert_eq!(flow.rate, rate, "not before its time");
            if event > 5 {
                target += 0.001;
            }
            rate = f64::midpoint(target, rate);
            dcqcn.advance(&mut flow, Time::from_ps((1 + 55 * event) * US));
            assert!(
                (flow.rate - rate).abs() < 1e-15 && (flow.target - target).abs() < 1e-15,
                "event {event}"
            );
        }
        // All at once is the same as one by one, and line rate is the end.
        let mut other = dcqcn.open(&path(100, 10));
        notified(&dcqcn, 0, &mut other);
        notified(&dcqcn, 1, &mut other);
        dcqcn.advance(&mut other, Time::from_ps(441 * US));
        assert_eq!(other, flow);
        dcqcn.advance(&mut other, Time::from_ps(10_000_000 * US));
        assert_eq!((other.rate, other.target), (1.0, 1.0));
    }

    /// 25 MB at 100 Gbps last 2 ms: bytes alone recover and add; with the timer beyond F as well the step is R_HAI.
    #[test]
    fn bytes_count_like_time_and_both_together_hyper_increase() {
        let dcqcn = Dcqcn::default();
        let mut flow = dcqcn.open(&path(100, 10));
        notified(&dcqcn, 0, &mut flow);
        notified(&dcqcn, 0, &mut flow);
        let send = |flow: &mut DcqcnFlow, us: u64| {
            (0..500).for_each(|_| dcqcn.on_send(flow, Time::from_ps(us * US), 50_000));
        };
        send(&mut flow, 0);
        assert_eq!((flow.byte_stage, flow.rate), (1, 0.375));
        (0..4).for_each(|_| send(&mut flow, 0));
        assert_eq!((flow.byte_stage, flow.target), (5, 0.5));
        send(&mut flow, 0);
        assert!((flow.target - 0.501).abs() < 1e-15, "additive");
        dcqcn.advance(&mut flow, Time::from_ps(5 * 55 * US));
        assert!((flow.target - 0.506).abs() < 1e-12, "five timers, each adds as the bytes are beyond F");
        send(&mut flow, 5 * 55);
        assert!((flow.target - 0.516).abs() < 1e-12, "hyper");
    }

    #[test]
    fn patience_follows_the_round_trip() {
        let dcqcn = Dcqcn::default();
        let mut flow = dcqcn.open(&path(100, 10));
        assert_eq!(dcqcn.timeout(&flow), Span::from_us(1_000));
        dcqcn.on_ack(&mut flow, &ack(1, 250, 4, 0));
        assert_eq!(dcqcn.timeout(&flow), Span::from_us(1_000), "4 round trips");
        dcqcn.on_ack(&mut flow, &ack(2, 3_000, 4, 0));
        assert_eq!(dcqcn.timeout(&flow), Span::from_us(12_000));
        assert_eq!(dcqcn.timeout(&dcqcn.open(&path(100, 10_000))), Span::from_us(40_000), "before the first");
    }

    #[test]
    fn a_receiver_notifies_once_per_window() {
        let dcqcn = Dcqcn::default();
        let mut peer = DcqcnPeer::default();
        let mut arrives = |us: u64, marked: bool| {
            let data = Arrived {
                now: Time::from_ps(us * US),
                sequence: 0,
                wire: 4_160,
                marked,
                out_of_order: false,
            };
            dcqcn.on_data(&mut peer, &data).notify
        };
        assert!(!arrives(1, false));
        assert!(arrives(10, true), "the first at once");
        assert!(!arrives(11, true) && !arrives(59, false), "within 50 µs none");
        assert!(arrives(61, false), "the window to 60 had a mark");
        assert!(!arrives(109, false) && !arrives(111, false), "the window to 110 had none");
        assert!(arrives(112, true), "then the next mark at once");
        assert!(!arrives(113, true) && !arrives(400, false), "an old burst is forgotten");
    }
}
