//! TCP NewReno: RFC 5681 (slow start, congestion avoidance), RFC 6582 (fast recovery), RFC 6928 (ten packets at first),
//! RFC 3168 (a mark counts as a loss).
//!
//! Slow start (W < ssthresh): W grows by what is acknowledged; congestion avoidance: by one packet per window. A loss found
//! by 3 later packets begins fast recovery, once per window: ssthresh = max(flight/2, 2 packets) (RFC 5681 eq. 4), W =
//! ssthresh, held until every packet sent before has arrived (RFC 6582's full acknowledgement). A time-out: ssthresh
//! likewise, W one packet, and slow start.
//!
//! **In this engine's terms.** Its bytes in flight leave out what arrived out of order and what is lost, which is the
//! `pipe` of RFC 6675; so the window need not be inflated by duplicate acknowledgements and deflated by partial ones, and
//! several packets of a window are sent again in one round trip.

use windtunnel_kernel::Span;

use super::tcp::{Episode, Rto};
use super::{Ack, Loss, LossKind, PathFacts, Recovery, Transport};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewReno {
    /// First window in packets.
    pub initial: u32,
    /// Largest window (the receiver's) in bandwidth–delay products.
    pub largest: f64,
    /// Later packets that show a loss.
    pub reorder: u32,
    /// Smallest retransmission time-out.
    pub least_timeout: Span,
}

impl Default for NewReno {
    /// 10 packets at first, at most 8 bandwidth–delay products; 3; 1 ms, as data centres set what RFC 6298 has at 1 s.
    fn default() -> Self {
        Self { initial: 10, largest: 8.0, reorder: 3, least_timeout: Span::from_us(1_000) }
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
    rto: Rto,
}

impl NewRenoFlow {
    fn reduce(&mut self) {
        let packet = f64::from(self.packet);
        self.threshold = (self.flight / 2.0).max(2.0 * packet);
        self.window = self.threshold;
    }
}

impl Transport for NewReno {
    type Flow = NewRenoFlow;
    type Peer = ();
    const NAME: &'static str = "newreno";

    fn recovery(&self) -> Recovery {
        Recovery::Selective { reorder: self.reorder }
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
            rto: Rto::new(path),
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
        let packet = f64::from(flow.packet);
        flow.window += if flow.window < flow.threshold { bytes } else { packet * bytes / flow.window };
        flow.window = flow.window.min(flow.largest);
    }

    fn on_loss(&self, flow: &mut NewRenoFlow, loss: &Loss) {
        match loss.kind {
            LossKind::Gap if flow.episode.begins(loss.sequence, loss.next) => flow.reduce(),
            LossKind::Timeout if loss.bytes > 0 => {
                flow.flight = loss.bytes as f64;
                flow.reduce();
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
    use windtunnel_kernel::Time;

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
        let loss = Loss { now: Time::ZERO, kind: LossKind::Timeout, sequence: 0, next: 10, bytes: 40_000 };
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
}
