//! BBR, version 1: Cardwell et al., draft-cardwell-iccrg-bbr-congestion-control-00 (2017), "BBR: Congestion-Based Congestion Control",
//! ACM Queue 14(5), 2016; what `tcp_bbr` of Linux does.
//!
//! A model of the path, from acknowledgements (§4.1): BtlBw, the largest delivery rate of the last 10 rounds, and RTprop, the least
//! round trip of the last 10 s. Packets are paced at pacing_gain · BtlBw (§4.2.1), and cwnd_gain · BtlBw · RTprop + 3 quanta may be in
//! flight (§4.2.3). Losses and marks are no signs of congestion. Four states (§4.3):
//!
//! * *Startup*: both gains 2/ln 2, until BtlBw has grown by less than a quarter in each of three rounds;
//! * *Drain*: paced at ln 2/2 until no more than BtlBw · RTprop is in flight;
//! * *ProbeBW*: cwnd_gain 2, pacing gains 5/4, 3/4 and six of 1, an RTprop each: the first lasts until so much is in flight or something
//!   is lost, the second ends once BtlBw · RTprop is; which comes first is drawn among all but 3/4;
//! * *ProbeRTT*: once RTprop is 10 s old, 4 packets in flight for 200 ms and a round.
//!
//! The first round of a recovery keeps what is in flight (§4.2.3.4); the window from before comes back when it is over. A time-out
//! leaves one packet. What was sent when there was nothing more to send measures the sender and not the path: such samples count only
//! where they are above BtlBw (§4.1.2.4).
//!
//! **Ours.** The delivery rate (draft-cheng-iccrg-delivery-rate-estimation) takes what had arrived when the packet that is
//! acknowledged was sent from checkpoints a sixteenth of a round trip apart, not from the packet. The first pacing rate is from the idle
//! path's round trip, where Linux takes 1 ms before it has measured any. NICs pace packet by packet: a quantum is a packet, where `quantum`, the time
//! of what Linux hands over at once (1 ms, at most 64 KiB), is not set.

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Span, Time};

use super::tcp::{Episode, Rto};
use super::{Ack, Endpoint, Loss, LossKind, PathFacts, Plain, Recovery};

/// Pacing gains of ProbeBW.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Growth of BtlBw, and rounds without it, that show a full pipe.
const FULL: (f64, u8) = (1.25, 3);
/// Packets of the smallest window but after a time-out, and of ProbeRTT.
const LEAST: u64 = 4;
/// Bytes of the largest quantum.
const MOST_AT_ONCE: f64 = 65_536.0;
/// Checkpoints of what has arrived, and how many of them a round trip has.
const KEPT: usize = 32;
const A_ROUND: u64 = 16;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bbr {
    /// Gain of Startup.
    pub high_gain: f64,
    /// Gain of the window in ProbeBW.
    pub window_gain: f64,
    /// Rounds that BtlBw is the largest rate of.
    pub rounds: u32,
    /// How long RTprop holds.
    pub rtt_window: Span,
    /// How long ProbeRTT lasts.
    pub probe_rtt: Span,
    /// Time of what is sent at once; `None`: a packet.
    pub quantum: Option<Span>,
    /// First window in packets.
    pub initial: u32,
    /// Largest window (the receiver's) in bandwidth–delay products of the NIC's rate.
    pub largest: f64,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Smallest retransmission time-out.
    pub least_timeout: Span,
}

impl Default for Bbr {
    /// 2/ln 2, 2, 10 rounds, 10 s, 200 ms (§4.3, §4.1); the rest as [`NewReno`](super::NewReno).
    fn default() -> Self {
        Self {
            high_gain: 2.0 / std::f64::consts::LN_2,
            window_gain: 2.0,
            rounds: 10,
            rtt_window: Span::from_us(10_000_000),
            probe_rtt: Span::from_us(200_000),
            quantum: None,
            initial: 10,
            largest: 8.0,
            recovery: Recovery::Rack,
            least_timeout: Span::from_us(1_000),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// What had arrived at an instant, and whether the sender had nothing more to send then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checkpoint {
    at: Time,
    delivered: u64,
    limited: bool,
}

/// The largest rate of some rounds: the three best of them, each later than the one before (Nichols' windowed filter).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Largest([(u32, f64); 3]);

impl Largest {
    /// Hears of `rate` in `round`; all of them that are `window` rounds old are forgotten.
    fn hear(&mut self, round: u32, rate: f64, window: u32) {
        let new = (round, rate);
        let [best, second, third] = &mut self.0;
        if rate >= best.1 || round.wrapping_sub(third.0) > window {
            self.0 = [new; 3];
            return;
        }
        if rate >= second.1 {
            (*second, *third) = (new, new);
        } else if rate >= third.1 {
            *third = new;
        }
        let age = round.wrapping_sub(best.0);
        if age > window {
            (*best, *second, *third) = (*second, *third, new);
            if round.wrapping_sub(best.0) > window {
                (*best, *second) = (*second, *third);
            }
        } else if second.0 == best.0 && age > window / 4 {
            // A quarter of the window has gone without a better one: a second best of its second quarter, and so on.
            (*second, *third) = (new, new);
        } else if third.0 == second.0 && age > window / 2 {
            *third = new;
        }
    }

    fn get(&self) -> f64 {
        self.0[0].1
    }
}

/// State of a queue pair. Rates are in bytes a second on the wire, windows in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BbrFlow {
    mode: Mode,
    pacing_gain: f64,
    window_gain: f64,
    /// BtlBw.
    bandwidth: Largest,
    /// RTprop, and when it was last seen.
    rtprop: Span,
    seen: Time,
    pacing: f64,
    window: f64,
    /// Window before a recovery or ProbeRTT.
    saved: f64,
    largest: f64,
    packet: f64,
    delivered: u64,
    flight: u64,
    /// Bytes of messages that have not been sent, short of their headers.
    waiting: u64,
    /// Until so much has arrived, samples measure the sender; 0: no more.
    limited_until: u64,
    checkpoints: [Checkpoint; KEPT],
    /// How many there have been.
    count: usize,
    round: u32,
    /// What had arrived when the round began.
    round_from: u64,
    full_bandwidth: f64,
    full_rounds: u8,
    filled: bool,
    phase: usize,
    phase_from: Time,
    lost: bool,
    idle: bool,
    /// When ProbeRTT ends, once little enough is in flight.
    probed: Option<Time>,
    probed_round: bool,
    episode: Episode,
    /// Whether the first round of a recovery goes on.
    conserves: bool,
    /// After a time-out: the next new packet then.
    expired: Option<u32>,
    rto: Rto,
}

/// What an acknowledgement tells of the path.
#[derive(Clone, Copy)]
struct Sample {
    rate: f64,
    limited: bool,
    /// What had arrived when the packet was sent.
    before: u64,
}

impl BbrFlow {
    /// BtlBw · RTprop, times a gain.
    fn product(&self, gain: f64) -> f64 {
        let bandwidth = self.bandwidth.get();
        if bandwidth == 0.0 { self.window } else { gain * bandwidth * self.rtprop.seconds() }
    }

    fn least(&self) -> f64 {
        LEAST as f64 * self.packet
    }

    /// Remembers what has arrived, unless it did a short time before.
    fn check(&mut self, now: Time, apart: Span) {
        if self.count > 0 {
            let last = self.checkpoints[(self.count - 1) % KEPT];
            if now.since(last.at) < apart {
                return;
            }
        }
        self.checkpoints[self.count % KEPT] =
            Checkpoint { at: now, delivered: self.delivered, limited: self.limited_until > 0 };
        self.count += 1;
    }

    /// The last checkpoint up to `sent`, or the oldest.
    fn at(&self, sent: Time) -> Option<Checkpoint> {
        let oldest = self.count.saturating_sub(KEPT);
        let known = (oldest..self.count).map(|number| self.checkpoints[number % KEPT]);
        known.clone().rev().find(|checkpoint| checkpoint.at <= sent).or_else(|| known.clone().next())
    }

    fn sample(&mut self, ack: &Ack) -> Option<Sample> {
        let sent = Time::from_ps(ack.now.ps().saturating_sub(ack.rtt.ps()));
        let before = self.at(sent)?;
        self.delivered += ack.bytes;
        if self.delivered > self.limited_until {
            self.limited_until = 0;
        }
        if self.waiting == 0 {
            self.limited_until = (self.delivered + ack.in_flight).max(1);
        }
        let took = ack.now.since(before.at).seconds();
        if took <= 0.0 {
            return None;
        }
        let rate = (self.delivered - before.delivered) as f64 / took;
        Some(Sample { rate, limited: before.limited, before: before.delivered })
    }

    fn next_phase(&mut self, now: Time) {
        self.phase = (self.phase + 1) % CYCLE.len();
        self.phase_from = now;
        self.pacing_gain = CYCLE[self.phase];
    }

    fn save(&mut self) {
        let whole = !self.episode.active && self.expired.is_none() && self.mode != Mode::ProbeRtt;
        self.saved = if whole { self.window } else { self.saved.max(self.window) };
    }

    fn set_pacing(&mut self) {
        let rate = self.pacing_gain * self.bandwidth.get();
        if rate > 0.0 && (self.filled || rate > self.pacing) {
            self.pacing = rate;
        }
    }
}

impl Bbr {
    fn quantum(&self, flow: &BbrFlow) -> f64 {
        (flow.pacing * self.quantum.unwrap_or(Span::ZERO).seconds()).min(MOST_AT_ONCE).max(flow.packet)
    }

    /// What may be in flight by the model.
    fn target(&self, flow: &BbrFlow, gain: f64) -> f64 {
        flow.product(gain) + 3.0 * self.quantum(flow)
    }

    fn enter_startup(&self, flow: &mut BbrFlow) {
        flow.mode = Mode::Startup;
        (flow.pacing_gain, flow.window_gain) = (self.high_gain, self.high_gain);
    }

    fn enter_probe_bw(&self, flow: &mut BbrFlow, now: Time, next: u32) {
        flow.mode = Mode::ProbeBw;
        flow.window_gain = self.window_gain;
        // All but 3/4, by what differs between queue pairs and is the same in each run.
        let drawn = combine(now.ps(), u64::from(next)) % (CYCLE.len() as u64 - 1);
        flow.phase = CYCLE.len() - 1 - drawn as usize;
        flow.next_phase(now);
    }

    fn phase_is_over(&self, flow: &BbrFlow, now: Time, flight_before: f64) -> bool {
        let long = now.since(flow.phase_from) > flow.rtprop;
        if flow.pacing_gain > 1.0 {
            long && (flow.lost || flight_before >= self.target(flow, flow.pacing_gain))
        } else if flow.pacing_gain < 1.0 {
            long || flight_before <= self.target(flow, 1.0)
        } else {
            long
        }
    }

    /// Whether a round begins with this acknowledgement.
    fn update_model(&self, flow: &mut BbrFlow, sample: Option<Sample>) -> bool {
        let Some(sample) = sample else { return false };
        let begins = sample.before >= flow.round_from;
        if begins {
            flow.round_from = flow.delivered;
            flow.round = flow.round.wrapping_add(1);
        }
        if sample.rate >= flow.bandwidth.get() || !sample.limited {
            flow.bandwidth.hear(flow.round, sample.rate, self.rounds);
        }
        if begins && !flow.filled && !sample.limited {
            if flow.bandwidth.get() >= flow.full_bandwidth * FULL.0 {
                (flow.full_bandwidth, flow.full_rounds) = (flow.bandwidth.get(), 0);
            } else {
                flow.full_rounds += 1;
                flow.filled = flow.full_rounds >= FULL.1;
            }
        }
        begins
    }

    fn check_drain(&self, flow: &mut BbrFlow, ack: &Ack) {
        if flow.mode == Mode::Startup && flow.filled {
            flow.mode = Mode::Drain;
            (flow.pacing_gain, flow.window_gain) = (1.0 / self.high_gain, self.high_gain);
        }
        if flow.mode == Mode::Drain && ack.in_flight as f64 <= self.target(flow, 1.0) {
            self.enter_probe_bw(flow, ack.now, ack.next);
        }
    }

    fn update_rtprop(&self, flow: &mut BbrFlow, ack: &Ack, begins: bool) {
        let expired = ack.now.since(flow.seen) > self.rtt_window;
        if ack.bytes > 0 && (ack.rtt <= flow.rtprop || expired) {
            (flow.rtprop, flow.seen) = (ack.rtt, ack.now);
        }
        if flow.mode != Mode::ProbeRtt {
            if expired && !flow.idle {
                flow.mode = Mode::ProbeRtt;
                (flow.pacing_gain, flow.window_gain) = (1.0, 1.0);
                flow.save();
                flow.probed = None;
            }
        } else if let Some(until) = flow.probed {
            flow.probed_round |= begins;
            if flow.probed_round && ack.now > until {
                flow.seen = ack.now;
                flow.window = flow.window.max(flow.saved);
                if flow.filled {
                    self.enter_probe_bw(flow, ack.now, ack.next);
                } else {
                    self.enter_startup(flow);
                }
            }
        } else if ack.in_flight as f64 <= flow.least() {
            flow.probed = Some(ack.now + self.probe_rtt);
            flow.probed_round = false;
            flow.round_from = flow.delivered;
        }
        if flow.mode == Mode::ProbeRtt {
            flow.limited_until = (flow.delivered + ack.in_flight).max(1);
        }
        flow.idle = false;
    }

    fn set_window(&self, flow: &mut BbrFlow, ack: &Ack) {
        let acked = ack.bytes as f64;
        if flow.conserves {
            flow.window = flow.window.max(ack.in_flight as f64 + acked);
        } else {
            let target = self.target(flow, flow.window_gain);
            if flow.filled {
                flow.window = (flow.window + acked).min(target);
            } else if flow.window < target || flow.delivered < u64::from(self.initial) * flow.packet as u64 {
                flow.window += acked;
            }
            // A time-out leaves one packet, of which acknowledgements make more.
            if flow.expired.is_none() {
                flow.window = flow.window.max(flow.least());
            }
        }
        if flow.mode == Mode::ProbeRtt {
            flow.window = flow.window.min(flow.least());
        }
        flow.window = flow.window.min(flow.largest);
    }
}

super::built_in::built_in! {
    Bbr: "TCP BBR: rate and window by a model of the path", recovery: recovery, timeout: least_timeout,
    parameters: {
        "high_gain" => Positive(high_gain), "gain of Startup";
        "cwnd_gain" => Positive(window_gain), "window in products of bandwidth and round trip";
        "bandwidth_rounds" => Count(rounds), "rounds that the bandwidth is the largest delivery rate of";
        "min_rtt_window" => Time(rtt_window), "how long the least round trip holds before it is measured anew";
        "probe_rtt" => Time(probe_rtt), "how long that takes";
        "quantum" => Given(quantum), "time of what is sent at once, at most 64 KiB and at least a packet; none: a packet";
        "initial_packets" => Count(initial), "first window in packets";
        "max_window" => Positive(largest), "largest window in bandwidth–delay products";
    }
}

impl Endpoint for Bbr {
    type Flow = BbrFlow;
    type Peer = ();
    type Uses = Plain;
    const NAME: &'static str = "bbr";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> BbrFlow {
        let packet = f64::from(path.mtu);
        let window = f64::from(self.initial) * packet;
        BbrFlow {
            mode: Mode::Startup,
            pacing_gain: self.high_gain,
            window_gain: self.high_gain,
            bandwidth: Largest::default(),
            // Any that is measured is less, or as much.
            rtprop: Span::MAX,
            seen: Time::ZERO,
            pacing: self.high_gain * window / path.base_rtt.seconds().max(1e-12),
            window,
            saved: 0.0,
            largest: (path.bdp as f64 * self.largest).max(packet),
            packet,
            delivered: 0,
            flight: 0,
            waiting: 0,
            limited_until: 0,
            checkpoints: [Checkpoint { at: Time::ZERO, delivered: 0, limited: false }; KEPT],
            count: 0,
            round: 0,
            round_from: 0,
            full_bandwidth: 0.0,
            full_rounds: 0,
            filled: false,
            phase: 0,
            phase_from: Time::ZERO,
            lost: false,
            idle: false,
            probed: None,
            probed_round: false,
            episode: Episode::default(),
            conserves: false,
            expired: None,
            rto: Rto::new(path),
        }
    }

    #[inline]
    fn window(&self, flow: &BbrFlow) -> u64 {
        flow.window as u64
    }

    #[inline]
    fn gap(&self, flow: &BbrFlow, wire: u16) -> Span {
        Span::from_ps((f64::from(wire) / flow.pacing * 1e12) as u64)
    }

    fn on_send(&self, flow: &mut BbrFlow, now: Time, wire: u16) {
        if flow.flight == 0 {
            // Nothing was on its way: what arrives from now on is counted from now (§4.1.2.2), and a pause shows no longer path.
            if flow.count == 0 {
                flow.seen = now;
            }
            flow.idle = flow.limited_until > 0;
            flow.count = 0;
            flow.check(now, Span::ZERO);
            if flow.idle && flow.mode == Mode::ProbeBw && flow.bandwidth.get() > 0.0 {
                flow.pacing = flow.bandwidth.get();
            }
        }
        flow.flight += u64::from(wire);
        flow.waiting = flow.waiting.saturating_sub(u64::from(wire));
    }

    fn on_message(&self, flow: &mut BbrFlow, _: Time, bytes: u64) {
        flow.waiting += bytes;
    }

    fn on_ack(&self, flow: &mut BbrFlow, ack: &Ack) {
        if ack.bytes > 0 {
            flow.rto.sample(ack.rtt);
        }
        let recovers = flow.episode.active;
        flow.episode.acknowledged(ack.expected);
        let mended = flow.expired.is_some_and(|next| ack.expected >= next);
        if mended {
            flow.expired = None;
        }
        if (recovers && !flow.episode.active && flow.expired.is_none()) || mended {
            flow.conserves = false;
            if flow.mode != Mode::ProbeRtt {
                flow.window = flow.window.max(flow.saved);
            }
        }
        let before = flow.flight.max(ack.in_flight + ack.bytes) as f64;
        flow.flight = ack.in_flight;
        let sample = flow.sample(ack);
        flow.check(ack.now, Span::from_ps(ack.rtt.ps() / A_ROUND));
        let begins = self.update_model(flow, sample);
        flow.conserves &= !begins;
        if flow.mode == Mode::ProbeBw && self.phase_is_over(flow, ack.now, before) {
            flow.next_phase(ack.now);
        }
        self.check_drain(flow, ack);
        self.update_rtprop(flow, ack, begins);
        flow.set_pacing();
        self.set_window(flow, ack);
        flow.lost = false;
    }

    fn on_loss(&self, flow: &mut BbrFlow, loss: &Loss) {
        flow.flight = flow.flight.saturating_sub(loss.bytes);
        flow.lost = true;
        match loss.kind {
            LossKind::Gap => {
                let new = {
                    let mut episode = flow.episode;
                    episode.begins(loss.sequence, loss.next)
                };
                if new {
                    flow.save();
                    flow.episode.begins(loss.sequence, loss.next);
                    flow.conserves = true;
                    flow.round_from = flow.delivered;
                    flow.window = (flow.flight as f64 + flow.packet).max(flow.packet);
                } else if !flow.conserves {
                    flow.window = (flow.window - loss.bytes as f64).max(flow.packet);
                }
            }
            LossKind::Timeout if loss.bytes > 0 => {
                flow.save();
                flow.window = flow.packet;
                flow.expired = Some(loss.next);
                flow.conserves = false;
                flow.episode.forget(loss.next);
                flow.rto.expired();
            }
            LossKind::Timeout => {}
        }
    }

    fn timeout(&self, flow: &BbrFlow) -> Span {
        flow.rto.span(self.least_timeout)
    }
}

#[cfg(test)]
mod tests;
