//! A NIC port of [`ExpressPass`]: its queue pairs, the credits that it sends and spends, and algorithm 1.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use windtunnel_kernel::random::combine;

use super::{CONTROL, CREDIT, CREDITS, DATA, ExpressPass, NACK, REQUEST, STOP};
use crate::packet::transport::dispatch::{Load, Note, Outbox, Parcel};
use crate::packet::transport::tokens::Received;

/// Weight of the newest round trip in the mean.
pub(super) const NEWEST: f64 = 0.2;

/// A queue pair that sends.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    pub(super) una: u32,
    pub(super) next: u32,
    pub(super) limit: u32,
    /// What is to be sent again.
    pub(super) again: VecDeque<u32>,
    pub(super) heard: u64,
    /// When it last said that it has nothing more; `None` while it has.
    pub(super) stopped: Option<u64>,
    pub(super) watched: bool,
}

/// A queue pair that receives.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    pub(super) got: Received,
    /// Whether credits are sent, their rate in credits a picosecond, w, and whether the rate rose the last time.
    pub(super) on: bool,
    pub(super) rate: f64,
    pub(super) w: f64,
    pub(super) rose: bool,
    /// The next credit, and those that have been sent and not been spent, with their times.
    pub(super) credit: u32,
    pub(super) sent: VecDeque<(u32, u64)>,
    /// Mean round trip; when the rate was last changed; credits that were spent or dropped since, and those dropped.
    pub(super) rtt: f64,
    pub(super) changed: u64,
    pub(super) known: u32,
    pub(super) dropped: u32,
    /// The number of its credits' event; others are stale.
    pub(super) event: u32,
    pub(super) heard: u64,
    pub(super) watched: bool,
}

/// A NIC port.
#[derive(Clone, Debug, Default)]
pub struct ExpressPassNic {
    /// Most credits a picosecond.
    pub(super) most: f64,
    pub(super) patience: u64,
    pub(super) paths: u32,
    pub(super) turn: u32,
    pub(super) seed: u64,
    pub(super) flows: Vec<Flow>,
    pub(super) peers: Vec<Peer>,
    /// When the next credit of a queue pair is due.
    pub(super) clock: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// When a queue pair is looked at: whether it receives.
    pub(super) watch: VecDeque<(u64, u32, bool)>,
    pub(super) credits: u64,
    pub(super) spent: u64,
    pub(super) wasted: u64,
    pub(super) missed: u64,
    pub(super) asked_again: u64,
}

impl ExpressPassNic {
    pub(super) fn path(&mut self) -> u16 {
        self.turn = self.turn.wrapping_add(1);
        (self.turn & (self.paths - 1)) as u16
    }

    pub(super) fn note(&mut self, flow: u32, back: bool, note: Note, out: &mut Outbox) {
        let path = self.path();
        let line = if note.kind == CREDIT { CREDITS } else { CONTROL };
        out.send(Parcel { flow, back, load: Load::Note(note), line, path, rank: 0 });
    }

    /// Asks for credits.
    pub(super) fn request(&mut self, number: u32, now: u64, out: &mut Outbox) {
        let flow = &mut self.flows[number as usize];
        flow.stopped = None;
        let note = Note { kind: REQUEST, a: flow.limit, ..Note::default() };
        if !std::mem::replace(&mut flow.watched, true) {
            self.watch.push_back((now + self.patience, number, false));
        }
        self.note(number, false, note, out);
    }

    /// A credit has come to a sender.
    pub(super) fn spend(&mut self, number: u32, credit: u32, now: u64, out: &mut Outbox) {
        let flow = &mut self.flows[number as usize];
        flow.heard = now;
        let sequence = loop {
            match flow.again.pop_front() {
                Some(sequence) if sequence < flow.una => {}
                Some(sequence) => break Some(sequence),
                None if flow.next < flow.limit => {
                    flow.next += 1;
                    break Some(flow.next - 1);
                }
                None => break None,
            }
        };
        if let Some(sequence) = sequence {
            self.spent += 1;
            let path = self.path();
            let load = Load::Data(sequence);
            out.send(Parcel { flow: number, back: false, load, line: DATA, path, rank: credit });
        } else {
            self.wasted += 1;
        }
        let flow = &mut self.flows[number as usize];
        let more = flow.next < flow.limit || !flow.again.is_empty();
        // Once, and again where credits go on coming for long.
        if !more && flow.stopped.is_none_or(|at| at + self.patience <= now) {
            flow.stopped = Some(now);
            let note = Note { kind: STOP, a: flow.limit, ..Note::default() };
            self.note(number, false, note, out);
        }
    }

    /// Sends a credit, and says when the next one is due.
    pub(super) fn credit(&mut self, pass: &ExpressPass, number: u32, now: u64, out: &mut Outbox) {
        let peer = &mut self.peers[number as usize];
        let credit = peer.credit;
        peer.credit += 1;
        peer.sent.push_back((credit, now));
        let draw = combine(combine(self.seed, u64::from(number)), u64::from(credit)) >> 11;
        let part = draw as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
        let gap = ((1.0 + pass.jitter * part) / peer.rate).round().max(1.0) as u64;
        peer.event += 1;
        self.clock.push(Reverse((now + gap, number, peer.event)));
        self.credits += 1;
        self.note(number, true, Note { kind: CREDIT, a: credit, ..Note::default() }, out);
    }

    /// Algorithm 1, for a round trip.
    pub(super) fn adjust(&mut self, pass: &ExpressPass, number: u32, now: u64) {
        let peer = &mut self.peers[number as usize];
        if peer.known == 0 || (now - peer.changed) as f64 <= peer.rtt {
            return;
        }
        let loss = f64::from(peer.dropped) / f64::from(peer.known);
        let most = self.most * (1.0 + pass.target_loss);
        if loss <= pass.target_loss {
            if peer.rose {
                peer.w = f64::midpoint(peer.w, pass.w_max);
            }
            peer.rate = (1.0 - peer.w) * peer.rate + peer.w * most;
        } else {
            peer.rate *= (1.0 - loss) * (1.0 + pass.target_loss);
            peer.w = (peer.w / 2.0).max(pass.w_min);
        }
        peer.rose = loss <= pass.target_loss;
        peer.rate = peer.rate.max((pass.least_rate / peer.rtt).min(self.most));
        (peer.known, peer.dropped, peer.changed) = (0, 0, now);
    }

    /// Begins to send credits.
    pub(super) fn start(&mut self, pass: &ExpressPass, number: u32, now: u64, out: &mut Outbox) {
        let most = self.most;
        let peer = &mut self.peers[number as usize];
        if !peer.on {
            (peer.on, peer.rate, peer.w, peer.rose) = (true, pass.initial_rate * most, pass.w_init, false);
            (peer.changed, peer.known, peer.dropped) = (now, 0, 0);
            // What is still under way of an earlier turn is no sign of this one's rate.
            peer.sent.clear();
            self.credit(pass, number, now, out);
        }
    }

    pub(super) fn watch_peer(&mut self, number: u32, now: u64) {
        let peer = &mut self.peers[number as usize];
        if peer.got.left() > 0 && !std::mem::replace(&mut peer.watched, true) {
            self.watch.push_back((now + self.patience, number, true));
        }
    }

    /// Looks at a queue pair that has been silent.
    pub(super) fn look(&mut self, number: u32, receives: bool, now: u64, out: &mut Outbox) {
        let patience = self.patience;
        if receives {
            let peer = &mut self.peers[number as usize];
            peer.watched = peer.got.left() > 0;
            if !peer.watched {
                return;
            }
            self.watch.push_back((now + patience, number, true));
            if peer.heard + patience > now {
                return;
            }
            let base = peer.got.expected;
            let c = (0..u64::BITS).filter(|&bit| peer.got.beyond.has(base + bit)).map(|bit| 1 << bit).sum();
            self.asked_again += 1;
            self.note(number, true, Note { kind: NACK, a: base, b: base, c }, out);
            return;
        }
        let flow = &mut self.flows[number as usize];
        flow.watched = flow.una < flow.limit;
        if !flow.watched {
            return;
        }
        self.watch.push_back((now + patience, number, false));
        if flow.heard + patience <= now {
            self.asked_again += 1;
            self.request(number, now, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port whose most is a credit each 1,000 ps, with one queue pair that has measured a round trip of 10,000 ps.
    fn nic() -> ExpressPassNic {
        let peer = Peer { on: true, rate: 1.0 / 16_000.0, w: 1.0 / 16.0, rtt: 10_000.0, ..Peer::default() };
        ExpressPassNic { most: 1e-3, peers: vec![peer], ..ExpressPassNic::default() }
    }

    fn round(nic: &mut ExpressPassNic, now: u64, known: u32, dropped: u32) -> (f64, f64) {
        (nic.peers[0].known, nic.peers[0].dropped) = (known, dropped);
        nic.adjust(&ExpressPass::default(), 0, now);
        (nic.peers[0].rate * 1e3, nic.peers[0].w)
    }

    /// Algorithm 1 by hand: the first increase with w as it is, the second with w halfway to w_max, a decrease by what was lost.
    #[test]
    fn rates_follow_algorithm_1() {
        let mut nic = nic();
        let near = |(rate, w): (f64, f64), expected: (f64, f64)| {
            assert!((rate - expected.0).abs() < 1e-9 && (w - expected.1).abs() < 1e-12, "{rate}, {w}");
        };
        // Nothing within a round trip, and nothing without a credit that is known of.
        near(round(&mut nic, 10_000, 10, 0), (0.0625, 0.0625));
        near(round(&mut nic, 20_000, 0, 0), (0.0625, 0.0625));
        let first = 0.9375 * 0.0625 + 0.0625 * 1.1;
        near(round(&mut nic, 30_001, 10, 1), (first, 0.0625));
        let second = (1.0 - 0.28125) * first + 0.28125 * 1.1;
        near(round(&mut nic, 50_000, 10, 0), (second, 0.28125));
        near(round(&mut nic, 70_000, 10, 4), (second * 0.6 * 1.1, 0.140625));
        // After a decrease w stays for one increase; and no rate is below a credit a round trip.
        let fourth = (1.0 - 0.140625) * second * 0.66 + 0.140625 * 1.1;
        near(round(&mut nic, 90_000, 10, 0), (fourth, 0.140625));
        near(round(&mut nic, 110_000, 100, 99), (0.1, 0.0703125));
    }
}
