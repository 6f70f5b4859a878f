//! TCP NewReno: RFC 5681 (slow start, congestion avoidance), RFC 6582 (fast recovery), RFC 6928 (ten packets at first),
//! RFC 3168 (a mark counts as a loss).
//!
//! Slow start (W < ssthresh): W grows by what is acknowledged; congestion avoidance: by one packet per window. A loss found
//! by 3 later packets begins fast recovery, once per window: ssthresh = max(flight/2, 2 packets) (RFC 5681 eq. 4), W =
//! ssthresh, held until every packet sent before has arrived (RFC 6582's full acknowledgement); a retransmission that is lost again is a
//! second one (RFC 5681 §4.3). A time-out: ssthresh likewise, but for data that a time-out has sent again before, which leaves it
//! (§3.1), W one packet, and slow start. The first slow start ends by HyStart++ (RFC 9406). A window of which less than half is in
//! flight, because there is no more to send or the port sends no faster, does not grow (RFC 7661 §4.3).
//!
//! **In this engine's terms.** Its bytes in flight leave out what arrived out of order and what is lost, which is the
//! `pipe` of RFC 6675; so the window need not be inflated by duplicate acknowledgements and deflated by partial ones, and
//! several packets of a window are sent again in one round trip.

use windtunnel_kernel::Span;

use super::tcp::{Episode, Expiries, HyStart, Rto};
use super::{Ack, Endpoint, Loss, LossKind, PathFacts, Plain, Recovery};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewReno {
    /// First window in packets.
    pub initial: u32,
    /// Largest window (the receiver's) in bandwidth–delay products.
    pub largest: f64,
    /// What becomes of losses.
    pub recovery: Recovery,
    /// Smallest retransmission time-out.
    pub least_timeout: Span,
}

impl Default for NewReno {
    /// 10 packets at first, at most 8 bandwidth–delay products; losses by time, as TCPs of today; 1 ms, as data centres set what
    /// RFC 6298 has at 1 s.
    fn default() -> Self {
        Self { initial: 10, largest: 8.0, recovery: Recovery::Rack, least_timeout: Span::from_us(1_000) }
    }
}

/// State of a queue pair; windows in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewRenoFlow {
    window: f64,
    threshold: f64,
    largest: f64,
    /// Bytes in flight before the last acknowledgement.
    flight: f64,
    packet: f32,
    episode: Episode,
    expiries: Expiries,
    rto: Rto,
    start: HyStart,
}

impl NewRenoFlow {
    fn reduce(&mut self) {
        let packet = f64::from(self.packet);
        self.threshold = (self.flight / 2.0).max(2.0 * packet);
        self.window = self.threshold;
    }
}

super::built_in::built_in! {
    NewReno: "TCP NewReno: window by loss", recovery: recovery, timeout: least_timeout,
    parameters: {
        "initial_packets" => Count(initial), "first window in packets";
        "max_window" => Positive(largest), "largest window in bandwidth–delay products";
    }
}

impl Endpoint for NewReno {
    type Flow = NewRenoFlow;
    type Peer = ();
    type Uses = Plain;
    const NAME: &'static str = "newreno";

    fn recovery(&self) -> Recovery {
        self.recovery
    }

    fn open(&self, path: &PathFacts) -> NewRenoFlow {
        let packet = f64::from(path.mtu);
        NewRenoFlow {
            window: packet * f64::from(self.initial),
            threshold: f64::INFINITY,
            largest: (path.bdp as f64 * self.largest).max(packet),
            flight: 0.0,
            packet: path.mtu as f32,
            episode: Episode::default(),
            expiries: Expiries::default(),
            rto: Rto::new(path),
            start: HyStart::new(path),
        }
    }

    #[inline]
    fn window(&self, flow: &NewRenoFlow) -> u64 {
        flow.window as u64
    }

    fn on_ack(&self, flow: &mut NewRenoFlow, ack: &Ack) {
        flow.episode.acknowledged(ack.expected);
        let bytes = ack.bytes as f64;
        flow.flight = ack.in_flight as f64 + bytes;
        if ack.bytes > 0 {
            flow.rto.sample(ack.rtt);
        }
        if ack.marked > 0 && flow.episode.begins(ack.expected.saturating_sub(1), ack.next) {
            flow.reduce();
        }
        if flow.episode.active {
            return;
        }
        let first = flow.threshold.is_infinite();
        let share = if first { flow.start.heard(ack) } else { Some(1.0) };
        if share.is_none() {
            flow.threshold = flow.window;
        }
        if 2.0 * flow.flight < flow.window {
            return;
        }
        let packet = f64::from(flow.packet);
        flow.window += match share {
            Some(share) if flow.window < flow.threshold => share * bytes,
            _ => packet * bytes / flow.window,
        };
        flow.window = flow.window.min(flow.largest);
    }

    fn on_loss(&self, flow: &mut NewRenoFlow, loss: &Loss) {
        match loss.kind {
            LossKind::Gap if flow.episode.begins(loss.sequence, loss.next) || loss.again => flow.reduce(),
            LossKind::Timeout if loss.bytes > 0 => {
                if flow.expiries.is_first(loss.sequence, loss.next) {
                    // What was sent and is not acknowledged: FlightSize.
                    let sent = f64::from(loss.next - loss.sequence) * f64::from(flow.packet);
                    flow.flight = sent.min(flow.window);
                    flow.reduce();
                }
                flow.window = f64::from(flow.packet);
                flow.episode.forget(loss.next);
                flow.rto.expired();
            }
            LossKind::Gap | LossKind::Timeout => {}
        }
    }

    fn timeout(&self, flow: &NewRenoFlow) -> Span {
        flow.rto.span(self.least_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, gap, path};
    use super::*;

    #[test]
    fn slow_start_halving_and_one_packet_per_window() {
        let reno = NewReno::default();
        let mut flow = reno.open(&path(100, 10));
        assert_eq!(reno.window(&flow), 40_000);
        let heard = |flow: &mut NewRenoFlow, expected: u32, next: u32, marked: u32| {
            let sent = u64::from(next - expected) * 4_000;
            reno.on_ack(flow, &Ack { expected, next, in_flight: sent, ..ack(100, 10, 4, marked) });
        };
        heard(&mut flow, 4, 14, 0);
        heard(&mut flow, 8, 22, 0);
        assert_eq!(reno.window(&flow), 72_000, "doubled for what was acknowledged");
        // 18 packets were in flight: half is 9.
        reno.on_loss(&mut flow, &gap(9, 22));
        assert_eq!((reno.window(&flow), flow.threshold), (36_000, 36_000.0));
        reno.on_loss(&mut flow, &gap(12, 23));
        heard(&mut flow, 21, 24, 0);
        assert_eq!(reno.window(&flow), 36_000, "held while packets of the old window are out, and cut once");
        heard(&mut flow, 24, 33, 0);
        assert_eq!(reno.window(&flow), 36_000 + 4_000 * 16 / 36, "4 of 9 packets: four ninths of one");
        // A mark is a loss: 13 packets in flight.
        heard(&mut flow, 28, 37, 1);
        assert_eq!(reno.window(&flow), 26_000);
        heard(&mut flow, 32, 41, 4);
        assert_eq!(reno.window(&flow), 26_000, "once per window");
    }

    #[test]
    fn a_time_out_begins_again() {
        let reno = NewReno::default();
        let mut flow = reno.open(&path(100, 10));
        let loss = Loss { kind: LossKind::Timeout, ..gap(0, 10) };
        reno.on_loss(&mut flow, &loss);
        assert_eq!(
            (reno.window(&flow), flow.threshold, reno.timeout(&flow)),
            (4_000, 20_000.0, Span::from_us(2_000))
        );
        reno.on_ack(&mut flow, &Ack { expected: 4, next: 10, in_flight: 0, ..ack(3_000, 10, 4, 0) });
        assert_eq!(
            (reno.window(&flow), reno.timeout(&flow)),
            (20_000, Span::from_us(1_000)),
            "slow start at once"
        );
    }

    /// RFC 5681 §3.1 (ssthresh is held while a time-out sends again what one has sent again before) and equation 4 (FlightSize is all
    /// that is sent and not acknowledged, lost or not).
    #[test]
    fn repeated_time_outs_hold_the_threshold() {
        let reno = NewReno::default();
        let mut flow = reno.open(&path(100, 10));
        flow.window = 400_000.0;
        let silent = |sequence, next, bytes| Loss { kind: LossKind::Timeout, bytes, ..gap(sequence, next) };
        reno.on_loss(&mut flow, &silent(100, 200, 8_000));
        assert_eq!((reno.window(&flow), flow.threshold), (4_000, 200_000.0), "half of 100 packets");
        reno.on_loss(&mut flow, &silent(100, 200, 4_000));
        reno.on_loss(&mut flow, &silent(150, 200, 4_000));
        assert_eq!((reno.window(&flow), flow.threshold), (4_000, 200_000.0));
        assert_eq!(reno.timeout(&flow), Span::from_us(8_000), "doubled each time (RFC 6298 §5.5)");
        flow.window = 100_000.0;
        reno.on_loss(&mut flow, &silent(200, 225, 100_000));
        assert_eq!(flow.threshold, 50_000.0, "new data");
    }

    /// RFC 5681 §4.3: a retransmission that is lost is a second indication of congestion.
    #[test]
    fn a_lost_retransmission_halves_again() {
        let reno = NewReno::default();
        let mut flow = reno.open(&path(100, 10));
        (flow.window, flow.flight) = (400_000.0, 400_000.0);
        reno.on_loss(&mut flow, &gap(10, 100));
        flow.flight = 200_000.0;
        reno.on_loss(&mut flow, &gap(12, 100));
        assert_eq!(reno.window(&flow), 200_000, "of the same window");
        reno.on_loss(&mut flow, &Loss { again: true, ..gap(10, 120) });
        assert_eq!(reno.window(&flow), 100_000);
    }

    /// RFC 7661 §4.3: with less than half of the window in flight it is not known to be right, and does not grow.
    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let reno = NewReno::default();
        let mut flow = reno.open(&path(100, 10));
        let grown = |flow: &mut NewRenoFlow, in_flight: u64| {
            let before = flow.window;
            reno.on_ack(flow, &Ack { expected: 0, in_flight, ..ack(100, 10, 1, 0) });
            flow.window - before
        };
        assert_eq!(
            (grown(&mut flow, 12_000), grown(&mut flow, 16_000)),
            (0.0, 4_000.0),
            "of 10 packets 4 and 5"
        );
        flow.threshold = 1.0;
        assert_eq!(grown(&mut flow, 12_000), 0.0);
        assert!(grown(&mut flow, 20_000) > 0.0, "congestion avoidance");
    }
}
