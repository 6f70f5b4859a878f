//! The receiving half of a NIC port of [`Homa`]: which messages there are, and what is granted to them.
//!
//! **Messages.** A packet says where its message ends and nothing more. A message begins where the one before it ends, as far as that one is
//! known; a packet of one that was not known divides what was taken for one message.
//!
//! **Invariants.** Of a message no more than RTTbytes are granted and have not arrived. `wanted` holds the messages that are not granted to
//! their ends, by what is left of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::Homa;
use super::levels::{Levels, Sizes};
use super::nic::{ACK, GRANT, RESEND};
use crate::packet::message::Arrivals;
use crate::packet::transport::dispatch::{Landed, Note, Tally};

/// Runs of missing packets that a time-out asks for.
const MOST_RUNS: usize = 16;

/// A message that is received.
#[derive(Clone, Copy, Debug)]
struct In {
    first: u32,
    /// Packets that have not arrived; 0 of one that is whole.
    left: u32,
    granted: u32,
    level: u8,
    heard: u64,
}

/// A queue pair that receives, with its messages by their ends.
#[derive(Clone, Debug, Default)]
struct Peer {
    sender: u32,
    /// All messages below are whole.
    base: u32,
    expected: u32,
    beyond: Arrivals,
    messages: BTreeMap<u32, In>,
    gone: bool,
}

impl Peer {
    fn has(&self, sequence: u32) -> bool {
        sequence < self.expected || self.beyond.has(sequence)
    }

    /// Packets of a range that have not arrived.
    fn missing(&self, first: u32, end: u32) -> u32 {
        if first >= self.beyond.end.max(self.expected) {
            return end - first;
        }
        (first..end).filter(|&sequence| !self.has(sequence)).count() as u32
    }
}

/// What is to be told to the sender of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub flow: u32,
    pub note: Note,
}

/// See the module page.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    rtt: u32,
    patience: u64,
    levels: Levels,
    sizes: Sizes,
    peers: Vec<Peer>,
    /// Packets left, queue pair, end.
    wanted: BTreeSet<(u32, u32, u32)>,
    watch: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Kept for its allocation.
    pub told: Vec<Told>,
    served: Vec<u32>,
    grants: u64,
    resends: u64,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            rtt: 1,
            patience: 0,
            levels: Levels::even(1),
            sizes: Sizes::default(),
            peers: Vec::new(),
            wanted: BTreeSet::new(),
            watch: BinaryHeap::new(),
            told: Vec::new(),
            served: Vec::new(),
            grants: 0,
            resends: 0,
        }
    }
}

impl Inbox {
    pub(super) fn open(&mut self, homa: &Homa, rtt: u32) {
        self.rtt = rtt;
        self.patience = homa.timeout.ps();
        self.levels = Levels::even(homa.unscheduled_levels.unwrap_or(1) as u8);
    }

    pub(super) fn add_peer(&mut self, sender: u32) {
        self.peers.push(Peer { sender, ..Peer::default() });
    }

    pub(super) fn abandon(&mut self, flow: u32) {
        let peer = &mut self.peers[flow as usize];
        peer.gone = true;
        for (end, message) in std::mem::take(&mut peer.messages) {
            self.wanted.remove(&(message.left, flow, end));
        }
    }

    /// A sender has not sent yet what was asked for.
    pub(super) fn busy(&mut self, flow: u32, end: u32, now: u64) {
        if let Some(message) = self.peers[flow as usize].messages.get_mut(&end) {
            message.heard = now;
        }
    }

    /// Puts down a message, or changes it.
    fn put(&mut self, flow: u32, end: u32, message: In) {
        let before = self.peers[flow as usize].messages.insert(end, message);
        if let Some(before) = before {
            self.wanted.remove(&(before.left, flow, end));
        } else {
            self.watch.push(Reverse((message.heard + self.patience, flow, end)));
        }
        if message.left > 0 && message.granted < end {
            self.wanted.insert((message.left, flow, end));
        }
    }

    /// The message that ends at `end`, of which packet `sequence` has come; made if it is new. And the end of one that turns out to be whole.
    fn find(&mut self, flow: u32, sequence: u32, end: u32, now: u64) -> (In, Option<u32>) {
        let peer = &self.peers[flow as usize];
        if let Some(&known) = peer.messages.get(&end) {
            return (known, None);
        }
        let next = peer.messages.range(end..).next().map(|(&end, &message)| (end, message));
        let before = peer.messages.range(..=sequence).next_back().map_or(peer.base, |(&end, _)| end);
        let fresh = |peer: &Peer, first: u32, end: u32, granted: u32| In {
            first,
            left: peer.missing(first, end),
            granted: granted.max(first.saturating_add(self.rtt)).min(end),
            level: 0,
            heard: now,
        };
        match next {
            // What was taken for one message is two.
            Some((last, whole)) if whole.first < end => {
                let one = fresh(peer, whole.first, end, whole.granted);
                let other = fresh(peer, end, last, whole.granted);
                self.put(flow, last, other);
                self.put(flow, end, one);
                (one, (other.left == 0).then_some(last))
            }
            _ => {
                let message = fresh(peer, before, end, 0);
                self.put(flow, end, message);
                (message, None)
            }
        }
    }

    pub(super) fn landed(&mut self, homa: &Homa, data: &Landed, told: &mut Vec<Told>) {
        let (flow, end, now) = (data.flow, data.rank, data.now.ps());
        let peer = &mut self.peers[flow as usize];
        if peer.gone {
            return;
        }
        let is_whole = |peer: &Peer| {
            end <= peer.base || peer.messages.get(&end).is_some_and(|message| message.left == 0)
        };
        if !data.fresh {
            if is_whole(peer) {
                self.acknowledge(flow, end, told);
            }
            return;
        }
        // The message is looked up as it was before, then this packet is counted in it.
        let (mut message, whole) = self.find(flow, data.sequence, end, now);
        let peer = &mut self.peers[flow as usize];
        if data.sequence >= peer.expected {
            peer.beyond.mark(peer.expected, data.sequence);
        }
        peer.beyond.clear_range(peer.expected, data.expected.min(peer.beyond.end));
        peer.expected = data.expected;
        message.left -= 1;
        message.heard = now;
        self.put(flow, end, message);
        self.finish(flow);
        if let Some(end) = whole {
            self.acknowledge(flow, end, told);
        }
        if message.left == 0 {
            let packets = end - message.first;
            if self.sizes.count(packets, packets.min(self.rtt), homa.measure_every) {
                self.levels = self.sizes.levels(homa.levels, homa.unscheduled_levels);
            }
            self.acknowledge(flow, end, told);
        }
        self.grant(homa, told);
    }

    /// Forgets whole messages before which all are whole.
    fn finish(&mut self, flow: u32) {
        let peer = &mut self.peers[flow as usize];
        while let Some(first) = peer.messages.first_entry()
            && first.get().left == 0
        {
            peer.base = first.remove_entry().0;
        }
    }

    fn acknowledge(&self, flow: u32, end: u32, told: &mut Vec<Told>) {
        let a = self.peers[flow as usize].expected;
        told.push(Told { flow, note: Note { kind: ACK, a, b: end, c: self.levels.packed() } });
    }

    /// Grants to the messages with the least left, so that RTTbytes of each are on their way.
    fn grant(&mut self, homa: &Homa, told: &mut Vec<Told>) {
        let unasked = u32::from(self.levels.count);
        let scheduled = homa.levels - unasked;
        let degree = homa.overcommitment.unwrap_or(scheduled) as usize;
        let mut served = std::mem::take(&mut self.served);
        let mut chosen: smallvec::SmallVec<[(u32, u32); 8]> = smallvec::SmallVec::new();
        for &(_, flow, end) in &self.wanted {
            let sender = self.peers[flow as usize].sender;
            if homa.one_per_sender && served.contains(&sender) {
                continue;
            }
            served.push(sender);
            chosen.push((flow, end));
            if chosen.len() == degree {
                break;
            }
        }
        served.clear();
        self.served = served;
        // The lowest priorities, the message with the least left the highest of them (§3.4).
        let lowest = homa.levels.saturating_sub(chosen.len() as u32).max(unasked);
        for (place, &(flow, end)) in (0u32..).zip(&chosen) {
            let Some(&message) = self.peers[flow as usize].messages.get(&end) else { continue };
            let got = end - message.first - message.left;
            let granted = message.first.saturating_add(got).saturating_add(self.rtt).min(end);
            if granted <= message.granted {
                continue;
            }
            let level = (lowest + place).min(homa.levels - 1) as u8;
            self.put(flow, end, In { granted, level, ..message });
            self.grants += 1;
            let c = self.levels.packed() | u64::from(level) << 56;
            told.push(Told { flow, note: Note { kind: GRANT, a: granted, b: end, c } });
        }
    }

    pub(super) fn due(&self) -> Option<u64> {
        self.watch.peek().map(|&Reverse((due, ..))| due)
    }

    /// Asks for what was granted and has not come for long.
    pub(super) fn tick(&mut self, now: u64, told: &mut Vec<Told>) {
        while let Some(&Reverse((due, flow, end))) = self.watch.peek()
            && due <= now
        {
            self.watch.pop();
            let peer = &mut self.peers[flow as usize];
            let Some(&message) = peer.messages.get(&end) else { continue };
            if message.left == 0 {
                continue;
            }
            if message.heard + self.patience > now {
                self.watch.push(Reverse((message.heard + self.patience, flow, end)));
                continue;
            }
            let (mut at, mut runs) = (message.first, 0);
            while runs < MOST_RUNS
                && let Some(from) = (at..message.granted).find(|&sequence| !peer.has(sequence))
            {
                at = (from..message.granted).find(|&sequence| peer.has(sequence)).unwrap_or(message.granted);
                let c = u64::from(end) | u64::from(message.level) << 32;
                told.push(Told { flow, note: Note { kind: RESEND, a: from, b: at, c } });
                runs += 1;
            }
            self.resends += runs as u64;
            if let Some(message) = peer.messages.get_mut(&end) {
                message.heard = now;
            }
            self.watch.push(Reverse((now + self.patience, flow, end)));
        }
    }

    pub(super) fn tell(&self, tally: &mut Tally) {
        tally.add("grants_sent", self.grants);
        tally.add("resends_sent", self.resends);
        tally.raise("unscheduled_levels", u64::from(self.levels.count));
    }
}
