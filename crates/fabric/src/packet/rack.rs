//! Losses by time: RACK-TLP (RFC 8985), for packets that take many paths and for retransmissions that are lost again.
//!
//! A transmission is lost when one that began later has arrived and its own acknowledgement is overdue by more than the
//! reordering window (§6.2 step 5): now ≥ its start + RTT of the latest transmission known to have arrived + window. Since every
//! transmission has its own start, one that is lost again is found in the same way.
//!
//! **The window** (§6.2 step 4) is `factor` quarters of the least round trip, at most the smoothed one; none while nothing has come out
//! of order and a loss is being mended or three packets beyond a gap have arrived. `factor` grows by one for each round trip in
//! which the receiver told of a copy, that is of a packet sent again in vain, and falls back after [`PERSISTS`] losses without.
//!
//! **Many paths.** Where every packet takes its own path, later ones overtake it by what queues differ in, which is as much as a round
//! trip: the RFC's quarter is for the mild reordering of the Internet, and it lets the window grow. There `factor` begins at
//! [`SPREAD`], the whole least round trip, and the bound is twice the smoothed one: a loss is found a round trip later, and next to
//! nothing is sent in vain.
//!
//! **Several planes.** Queues of planes that a sender takes in turn differ by as much as a port may hold, for as long as they do: nothing
//! evens them out. Where ports trim, that is known, and the window is never less (`slack`): what is later than that is not in a queue.
//!
//! **A tail** (§7) shows no later arrivals. When two smoothed round trips have brought nothing, and a quarter of a time-out (stacks have
//! ticks of a clock for it, which keep queues that have just grown from being probed), the last packet is sent once more, as a
//! probe, so that its acknowledgement shows what is missing. A probe that arrives and is no copy has mended a loss, and is told to
//! the transport as one (§7.4.2).
//!
//! **In this engine's terms.** Acknowledgements bring back when the transmission that caused them began, so that those of copies are
//! told apart without the RFC's §6.2 step 2; of several packets that one answers it is the last to arrive that counts.

use std::collections::VecDeque;

use super::message::Arrivals;

/// Losses for which a window that has grown stays so (RFC 8985: `reo_wnd_persist`).
const PERSISTS: u32 = 16;
/// Quarters of the least round trip that the window begins with where packets take many paths.
const SPREAD: u32 = 4;
/// Packets beyond a gap that show it without a window (`DupThresh`).
const SHOWN: u32 = 3;
/// A tail is silent for this part of a time-out at least before it is probed.
pub(super) const PATIENCE: u64 = 4;

/// What a sending half keeps of its transmissions.
#[derive(Clone, Debug)]
pub(super) struct Rack {
    /// Starts and packets of the transmissions under way, in order of both: NIC ports of several planes begin some at one instant. Those that
    /// are known to have arrived may still be among them.
    pub sent: VecDeque<(u64, u32)>,
    /// Start of the latest transmission known to have arrived, and its round trip (`RACK.xmit_ts`, `RACK.rtt`).
    latest: u64,
    rtt: u64,
    /// Least and smoothed round trip.
    least: u64,
    smoothed: u64,
    /// Next new packet when a loss was last found: it is mended once all before has arrived.
    pub recover: u32,
    /// When a loss was last told to the transport as one that counts.
    found: u64,
    /// One more than the highest packet that was sent again.
    resent: u32,
    /// See the page above.
    factor: u32,
    persists: u32,
    /// Next new packet when the window last grew.
    grown: u32,
    /// Whether packets take many paths.
    spreads: bool,
    /// Time by which queues of planes may differ.
    slack: u64,
    /// Whether a packet has come after one sent later.
    reordered: bool,
    /// Whether [`SHOWN`] packets beyond a gap were told of.
    shown: bool,
    /// Whether a round trip was seen.
    sampled: bool,
    /// Start of the last transmission.
    last: u64,
    /// When the probe's transmission began; [`u64::MAX`]: none is out. And whether the tail has had its one.
    pub probe: u64,
    pub probed: bool,
}

/// What an acknowledgement tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// When the transmission that caused it began.
    pub stamp: u64,
    /// First packet missing before it, and one more than the highest that had arrived.
    pub una: u32,
    pub end: u32,
    /// Packets beyond a gap.
    pub beyond: u32,
    /// Whether a packet came that had come before.
    pub copied: bool,
    /// Whether anything else came.
    pub news: bool,
}

impl Rack {
    /// Of a queue pair whose idle path takes `base` there and back, whose packets take many paths if it `spreads`, and whose planes' queues
    /// differ by `slack` at most, all in ps.
    pub(super) fn new(base: u64, spreads: bool, slack: u64) -> Self {
        Self {
            sent: VecDeque::new(),
            latest: 0,
            rtt: base,
            least: base,
            smoothed: base,
            recover: 0,
            found: 0,
            resent: 0,
            factor: if spreads { SPREAD } else { 1 },
            persists: 0,
            grown: 0,
            spreads,
            slack,
            reordered: spreads,
            shown: false,
            sampled: false,
            last: 0,
            probe: u64::MAX,
            probed: false,
        }
    }

    /// A transmission begins, of a packet that may have been sent before. Whether it is the probe.
    #[inline]
    pub(super) fn sends(&mut self, start: u64, sequence: u32, again: bool) -> bool {
        let sent = (start, sequence);
        if self.sent.back().is_none_or(|last| *last < sent) {
            self.sent.push_back(sent);
        } else {
            let place = self.sent.partition_point(|other| *other < sent);
            self.sent.insert(place, sent);
        }
        self.last = self.last.max(start);
        if !again {
            return false;
        }
        self.resent = self.resent.max(sequence + 1);
        let probes = self.probed && self.probe == u64::MAX - 1;
        if probes {
            self.probe = start;
        }
        probes
    }

    /// The transmission of packet `sequence` that began at `start` has come to nothing. Whether it was under way.
    pub(super) fn strike(&mut self, start: u64, sequence: u32) -> bool {
        let Ok(place) = self.sent.binary_search(&(start, sequence)) else { return false };
        self.sent.remove(place);
        true
    }

    /// All that was under way is taken for lost.
    pub(super) fn clear(&mut self) {
        self.sent.clear();
        (self.probe, self.probed) = (u64::MAX, true);
    }

    /// The reordering window, with `una` the first packet missing.
    fn window(&self, una: u32) -> u64 {
        if !self.reordered && (una < self.recover || self.shown) {
            return 0;
        }
        let most = if self.spreads { 2 * self.smoothed } else { self.smoothed };
        (self.least / 4 * u64::from(self.factor)).min(most).max(self.slack)
    }

    /// An acknowledgement has come at `now`. Whether the probe has mended a loss.
    pub(super) fn heard(&mut self, now: u64, told: &Told, next: u32) -> bool {
        let rtt = now - told.stamp;
        self.smoothed = if self.sampled { self.smoothed - self.smoothed / 8 + rtt / 8 } else { rtt };
        self.least = self.least.min(rtt);
        self.sampled = true;
        if told.stamp >= self.latest {
            (self.latest, self.rtt) = (told.stamp, rtt);
        }
        // The gap was filled by a packet that was sent once.
        self.reordered |= told.news && told.end > told.una && told.una >= self.resent;
        self.shown = told.beyond >= SHOWN;
        if told.copied {
            self.reordered = true;
            if told.una >= self.grown {
                (self.factor, self.grown) = (self.factor + 1, next);
            }
            self.persists = PERSISTS;
        }
        let mended = told.stamp == self.probe && !told.copied;
        if told.stamp == self.probe {
            self.probe = u64::MAX;
        }
        self.probed &= !told.news;
        mended
    }

    /// Takes from what is under way the packets that are lost at `now`, and says when the next one will be if nothing is heard.
    pub(super) fn find(&mut self, now: u64, una: u32, beyond: &Arrivals, lost: &mut Vec<(u64, u32)>) -> u64 {
        let wait = self.rtt + self.window(una);
        while let Some(&(start, sequence)) = self.sent.front() {
            let arrived = sequence < una || beyond.has(sequence);
            if !arrived {
                if start >= self.latest {
                    return u64::MAX;
                }
                if start + wait > now {
                    return start + wait;
                }
                lost.push((start, sequence));
            }
            self.sent.pop_front();
        }
        u64::MAX
    }

    /// These were found to be lost, with `next` the next new packet. Whether one was sent again after the loss before was told of, and
    /// none was sent for the first time after that.
    pub(super) fn finds(&mut self, now: u64, lost: &[(u64, u32)], next: u32) -> bool {
        let news = lost.iter().any(|&(_, sequence)| sequence >= self.recover);
        let again = !news && lost.iter().any(|&(start, _)| start >= self.found);
        if news {
            self.recover = next;
            self.persists = self.persists.saturating_sub(1);
            if self.persists == 0 {
                self.factor = if self.spreads { SPREAD } else { 1 };
            }
        }
        if news || again {
            self.found = now;
        }
        again
    }

    /// When the tail is probed, if nothing is heard; `heard`: when something last was, `timeout`: that of the transport.
    pub(super) fn probes_at(&self, heard: u64, timeout: u64) -> u64 {
        if self.probed || !self.sampled {
            u64::MAX
        } else {
            heard.max(self.last) + (2 * self.smoothed).max(timeout / PATIENCE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets 0 to `count` − 1, `apart` from one another, over a path of `base`.
    fn sent(count: u32, apart: u64, base: u64, spreads: bool) -> Rack {
        let mut rack = Rack::new(base, spreads, 0);
        for sequence in 0..count {
            rack.sends(u64::from(sequence) * apart, sequence, false);
        }
        rack
    }

    /// Hears at `now` of `arrived`, which the packet sent at `stamp` caused; packets lost, and when the next one is.
    fn hear(rack: &mut Rack, now: u64, stamp: u64, una: u32, arrived: &[u32]) -> (Vec<u32>, u64) {
        let mut beyond = Arrivals::default();
        for &sequence in arrived {
            beyond.mark(una, sequence);
        }
        let told = Told { stamp, una, end: 0, beyond: arrived.len() as u32, copied: false, news: true };
        rack.heard(now, &told, 100);
        let mut lost = Vec::new();
        let due = rack.find(now, una, &beyond, &mut lost);
        (lost.into_iter().map(|(_, sequence)| sequence).collect(), due)
    }

    /// RFC 8985 §6.2: with nothing out of order yet, one or two packets beyond a gap leave a quarter of the least round trip; three
    /// leave nothing.
    #[test]
    fn a_gap_is_a_loss_at_once_or_after_a_quarter() {
        let mut rack = sent(10, 10, 1_000, false);
        assert_eq!(hear(&mut rack, 1_010, 10, 0, &[1]), (vec![], 1_000 + 250), "packet 0 was sent at 0");
        assert_eq!(hear(&mut rack, 1_020, 20, 0, &[1, 2]), (vec![], 1_250));
        assert_eq!(hear(&mut rack, 1_030, 30, 0, &[1, 2, 3]), (vec![0], u64::MAX));
        assert_eq!(rack.sent.front(), Some(&(40, 4)));
    }

    /// Where packets take many paths the window is a round trip, and later arrivals leave what was sent after them alone.
    #[test]
    fn many_paths_have_a_round_trip_of_patience() {
        let mut rack = sent(10, 10, 1_000, true);
        assert_eq!(hear(&mut rack, 1_050, 50, 0, &[1, 2, 3, 4, 5]), (vec![], 2_000));
        assert_eq!(rack.find(1_999, 0, &Arrivals::default(), &mut Vec::new()), 2_000);
        let mut lost = Vec::new();
        let due = rack.find(2_020, 0, &Arrivals::default(), &mut lost);
        assert_eq!((lost, due), (vec![(0, 0), (10, 1), (20, 2)], 2_030), "each in its time");
    }

    /// Planes whose queues differ by 4,000 leave as much patience, and no more.
    #[test]
    fn planes_have_the_patience_of_a_queue() {
        let mut rack = Rack::new(1_000, true, 4_000);
        (0..10).for_each(|sequence| _ = rack.sends(u64::from(sequence) * 10, sequence, false));
        assert_eq!(hear(&mut rack, 1_050, 50, 0, &[1, 2, 3, 4, 5]), (vec![], 5_000));
        let mut lost = Vec::new();
        rack.find(5_000, 0, &Arrivals::default(), &mut lost);
        assert_eq!(lost, [(0, 0)]);
    }

    /// A retransmission has a start of its own: what was sent after it shows that it is lost too, and what was sent before does not.
    #[test]
    fn a_retransmission_is_lost_like_any_other() {
        let mut rack = sent(8, 10, 1_000, false);
        assert_eq!(hear(&mut rack, 1_030, 30, 0, &[1, 2, 3]).0, [0]);
        assert!(!rack.finds(1_030, &[(0, 0)], 8));
        rack.sends(1_030, 0, true);
        rack.sends(1_040, 8, false);
        assert_eq!(hear(&mut rack, 1_070, 70, 0, &[1, 2, 3, 4, 5, 6, 7]), (vec![], u64::MAX));
        assert_eq!(hear(&mut rack, 2_040, 1_040, 0, &[1, 2, 3, 4, 5, 6, 7, 8]).0, [0]);
        assert!(rack.finds(2_040, &[(1_030, 0)], 9), "sent after the loss before was told of");
    }

    /// A copy widens the window by a quarter, once for a round trip of packets, and 16 losses without one narrow it again.
    #[test]
    fn copies_widen_the_window() {
        let mut rack = sent(4, 10, 1_000, false);
        let told = |una, copied| Told { stamp: 0, una, end: 0, beyond: 0, copied, news: true };
        for (una, next, factor) in [(0, 50, 2), (40, 90, 2), (50, 99, 3)] {
            rack.heard(1_000, &told(una, true), next);
            assert_eq!(rack.factor, factor);
        }
        assert_eq!(rack.window(100), 750);
        for loss in 0..15 {
            rack.finds(0, &[(0, 100 + loss)], 101 + loss);
        }
        assert_eq!(rack.window(200), 750);
        rack.finds(0, &[(0, 200)], 201);
        assert_eq!(rack.window(201), 250);
        rack.factor = 40;
        assert_eq!(rack.window(201), 1_000, "at most the smoothed round trip");
    }

    /// What came to nothing is not under way any more.
    #[test]
    fn a_trimmed_packet_is_struck_by_its_start() {
        let mut rack = sent(4, 10, 1_000, true);
        assert!(rack.strike(20, 2) && !rack.strike(20, 2) && !rack.strike(25, 2));
        assert_eq!(rack.sent, [(0, 0), (10, 1), (30, 3)]);
    }

    /// Eight ports begin a packet each at one instant: the one that was trimmed is struck and no other; they may begin in any order.
    #[test]
    fn of_packets_that_begin_together_the_trimmed_one_is_struck() {
        let mut rack = Rack::new(1_000, true, 0);
        for sequence in [0, 3, 1, 2, 7, 5, 6, 4] {
            rack.sends(50, sequence, false);
        }
        rack.sends(40, 8, false);
        assert!(rack.strike(50, 5) && !rack.strike(50, 5));
        assert_eq!(rack.sent, [(40, 8), (50, 0), (50, 1), (50, 2), (50, 3), (50, 4), (50, 6), (50, 7)]);
        assert_eq!(rack.last, 50);
    }
}
