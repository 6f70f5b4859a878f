//! The receiving half of a NIC port of [`Sird`]: who gets credit, and how large each sender's bucket is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use super::{ACK, ASKED, CREDIT, CSN, Sird, part};
use crate::packet::message::Arrivals;
use crate::packet::transport::dispatch::{FabricFacts, Landed, Note, Tally};

/// A bucket that one signal changes, as DCTCP changes its window (Alizadeh et al., SIGCOMM 2010, equations 1 and 2).
#[derive(Clone, Copy, Debug)]
struct Bucket {
    packets: f64,
    alpha: f64,
    seen: u32,
    signals: u32,
}

impl Bucket {
    /// A packet has come, with a signal or without.
    fn hear(&mut self, signal: bool, g: f64, least: f64, most: f64) {
        self.seen += 1;
        self.signals += u32::from(signal);
        if f64::from(self.seen) < self.packets {
            return;
        }
        let share = f64::from(self.signals) / f64::from(self.seen);
        self.alpha += g * (share - self.alpha);
        let next =
            if self.signals > 0 { self.packets * (1.0 - self.alpha / 2.0) } else { self.packets + 1.0 };
        self.packets = next.clamp(least, most);
        (self.seen, self.signals) = (0, 0);
    }
}

/// A sender.
#[derive(Clone, Copy, Debug)]
struct Sender {
    /// Credit that is out, in packets.
    out: u32,
    host: Bucket,
    network: Bucket,
}

impl Sender {
    fn may_have(&self) -> bool {
        f64::from(self.out + 1) <= self.host.packets.min(self.network.packets)
    }
}

/// A message that wants credit.
#[derive(Clone, Debug)]
struct Message {
    first: u32,
    /// Packets that have not arrived.
    left: u32,
    /// The first packet that no credit has named, and those whose credit was taken back.
    next: u32,
    again: VecDeque<u32>,
    /// Packets named by credit that is out.
    named: VecDeque<u32>,
    /// Its place among those that want more.
    ticket: u64,
    heard: u64,
}

/// A queue pair that receives, with its messages by their ends.
#[derive(Clone, Debug, Default)]
struct Peer {
    sender: u32,
    expected: u32,
    beyond: Arrivals,
    messages: BTreeMap<u32, Message>,
    gone: bool,
}

impl Peer {
    fn has(&self, sequence: u32) -> bool {
        sequence < self.expected || self.beyond.has(sequence)
    }
}

/// See the module page.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbox {
    /// B, the largest and least bucket, g.
    most: u32,
    bdp: f64,
    least: f64,
    g: f64,
    in_turn: bool,
    /// Time between credits, and silence after which credit is taken back.
    slot: u64,
    patience: u64,
    senders: Vec<Sender>,
    by_port: FxHashMap<u32, u32>,
    peers: Vec<Peer>,
    /// Messages that want more: what is left or their turn, queue pair, end.
    wanted: BTreeSet<(u64, u32, u32)>,
    turn: u64,
    /// Credit that is out; when the next may go; whether that is waited for.
    out: u32,
    free: u64,
    waits: bool,
    watch: VecDeque<(u64, u32, u32)>,
    credits: u64,
    taken_back: u64,
    most_out: u64,
    least_bucket: u64,
}

impl Inbox {
    pub(super) fn open(&mut self, sird: &Sird, fabric: &FabricFacts) {
        let bdp = sird.bdp(fabric);
        self.most = sird.most_credit(fabric);
        self.bdp = f64::from(bdp.max(1));
        self.least = f64::from(part(sird.least_bucket, bdp).max(1));
        self.g = sird.g;
        self.in_turn = sird.receiver_policy.at == 1;
        self.slot = ((fabric.packet_time().ps() as f64 / sird.pace).round() as u64).max(1);
        self.patience = sird.timeout.ps();
        self.least_bucket = u64::from(bdp);
    }

    pub(super) fn add_peer(&mut self, port: u32) {
        let new = self.senders.len() as u32;
        let sender = *self.by_port.entry(port).or_insert(new);
        if sender == new {
            let bucket = Bucket { packets: self.bdp, alpha: 1.0, seen: 0, signals: 0 };
            self.senders.push(Sender { out: 0, host: bucket, network: bucket });
        }
        self.peers.push(Peer { sender, ..Peer::default() });
    }

    pub(super) fn abandon(&mut self, flow: u32) {
        let ends: Vec<u32> = self.peers[flow as usize].messages.keys().copied().collect();
        for end in ends {
            self.forget(flow, end);
        }
        self.peers[flow as usize].gone = true;
    }

    /// Forgets a message, with the credit that is out for it.
    fn forget(&mut self, flow: u32, end: u32) {
        let peer = &mut self.peers[flow as usize];
        if let Some(message) = peer.messages.remove(&end) {
            self.wanted.remove(&(message.ticket, flow, end));
            let out = message.named.len() as u32;
            self.out -= out;
            self.senders[peer.sender as usize].out -= out;
        }
    }

    /// Puts a message where its turn is, if it wants more.
    fn enlist(&mut self, flow: u32, end: u32) {
        let in_turn = self.in_turn;
        let Some(message) = self.peers[flow as usize].messages.get_mut(&end) else { return };
        self.wanted.remove(&(message.ticket, flow, end));
        if message.next < end || !message.again.is_empty() {
            if !in_turn {
                message.ticket = u64::from(message.left);
            }
            self.wanted.insert((message.ticket, flow, end));
        }
    }

    /// A sender wants credit for packets from `a` to before `end`.
    pub(super) fn asked(&mut self, flow: u32, a: u32, end: u32, now: u64, told: &mut Vec<(u32, bool, Note)>) {
        let peer = &mut self.peers[flow as usize];
        if peer.gone || peer.messages.contains_key(&end) {
            return;
        }
        let fresh = a >= peer.beyond.end.max(peer.expected);
        let left =
            if fresh { end - a } else { (a..end).filter(|&sequence| !peer.has(sequence)).count() as u32 };
        if left == 0 {
            let note = Note { kind: ACK, a: peer.expected, b: end, c: 0 };
            told.push((flow, true, note));
            return;
        }
        let (again, named) = (VecDeque::new(), VecDeque::new());
        let message = Message { first: a, left, next: a, again, named, ticket: self.turn, heard: now };
        peer.messages.insert(end, message);
        self.watch.push_back((now + self.patience, flow, end));
        self.enlist(flow, end);
        self.give(now, told);
    }

    pub(super) fn landed(&mut self, data: &Landed, told: &mut Vec<(u32, bool, Note)>) {
        let (flow, end, now) = (data.flow, data.rank & (ASKED - 1), data.now.ps());
        let peer = &mut self.peers[flow as usize];
        if peer.gone {
            return;
        }
        let sender = &mut self.senders[peer.sender as usize];
        sender.host.hear(data.rank & CSN != 0, self.g, self.least, self.bdp);
        sender.network.hear(data.marked, self.g, self.least, self.bdp);
        self.least_bucket = self.least_bucket.min(sender.host.packets.min(sender.network.packets) as u64);
        if data.fresh {
            if data.sequence >= peer.expected {
                peer.beyond.mark(peer.expected, data.sequence);
            }
            peer.beyond.clear_range(peer.expected, data.expected.min(peer.beyond.end));
            peer.expected = data.expected;
        }
        let mut whole = data.whole || !data.fresh && data.sequence < data.expected;
        if let Some(message) = peer.messages.get_mut(&end)
            && data.sequence >= message.first
        {
            message.heard = now;
            if let Some(at) = message.named.iter().position(|&named| named == data.sequence) {
                message.named.remove(at);
                self.out -= 1;
                sender.out -= 1;
            }
            message.left -= u32::from(data.fresh);
            if message.left == 0 {
                whole = true;
                self.forget(flow, end);
            } else {
                self.enlist(flow, end);
            }
        }
        if whole {
            let peer = &self.peers[flow as usize];
            let is_whole = !peer.messages.contains_key(&end);
            let b = if is_whole && end <= peer.expected { end } else { 0 };
            told.push((flow, true, Note { kind: ACK, a: peer.expected, b, c: 0 }));
        }
        self.give(now, told);
    }

    /// Gives a credit, if it is time for one, there is one to give, and somebody may have it.
    fn give(&mut self, now: u64, told: &mut Vec<(u32, bool, Note)>) {
        if now < self.free {
            self.waits = !self.wanted.is_empty();
            return;
        }
        self.waits = false;
        if self.out >= self.most {
            return;
        }
        let may = |&&(_, flow, _): &&(u64, u32, u32)| {
            self.senders[self.peers[flow as usize].sender as usize].may_have()
        };
        let Some(&(_, flow, end)) = self.wanted.iter().find(may) else { return };
        let peer = &mut self.peers[flow as usize];
        let Some(message) = peer.messages.get_mut(&end) else { return };
        let expected = peer.expected;
        let beyond = &peer.beyond;
        let has = |sequence: u32| sequence < expected || beyond.has(sequence);
        let sequence = loop {
            match message.again.pop_front() {
                Some(sequence) if has(sequence) => {}
                Some(sequence) => break Some(sequence),
                None if message.next < end => {
                    message.next += 1;
                    if !has(message.next - 1) {
                        break Some(message.next - 1);
                    }
                }
                None => break None,
            }
        };
        if let Some(sequence) = sequence {
            message.named.push_back(sequence);
            self.senders[peer.sender as usize].out += 1;
            self.out += 1;
            self.most_out = self.most_out.max(u64::from(self.out));
            self.credits += 1;
            self.free = now + self.slot;
            told.push((flow, true, Note { kind: CREDIT, a: sequence, b: end, c: 0 }));
        }
        self.turn += 1;
        if self.in_turn {
            // Behind all others.
            let old = message.ticket;
            message.ticket = self.turn;
            self.wanted.remove(&(old, flow, end));
        }
        self.enlist(flow, end);
        self.waits = !self.wanted.is_empty();
    }

    pub(super) fn due(&self) -> Option<u64> {
        let watch = self.watch.front().map(|&(due, ..)| due);
        [self.waits.then_some(self.free), watch].into_iter().flatten().min()
    }

    pub(super) fn tick(&mut self, now: u64, told: &mut Vec<(u32, bool, Note)>) {
        while let Some(&(due, flow, end)) = self.watch.front()
            && due <= now
        {
            self.watch.pop_front();
            let peer = &mut self.peers[flow as usize];
            let Some(message) = peer.messages.get_mut(&end) else { continue };
            self.watch.push_back((now + self.patience, flow, end));
            if message.heard + self.patience > now || message.named.is_empty() {
                continue;
            }
            // Nothing came of it: it is taken back, and given again.
            let lost = message.named.len() as u32;
            message.again.extend(message.named.drain(..));
            self.out -= lost;
            self.senders[peer.sender as usize].out -= lost;
            self.taken_back += u64::from(lost);
            self.enlist(flow, end);
        }
        self.give(now, told);
    }

    pub(super) fn tell(&self, tally: &mut Tally) {
        tally.add("credits_sent", self.credits);
        tally.add("credits_taken_back", self.taken_back);
        tally.raise("credit_out_most", self.most_out);
        tally.raise("credit_limit", u64::from(self.most));
        // The least is told as what it is short of the first bucket.
        tally.raise("bucket_cut_most", self.bdp as u64 - self.least_bucket.min(self.bdp as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DCTCP's rule: a packet more for each bucketful without a signal, half of α less for one with, within bounds.
    #[test]
    fn a_bucket_follows_its_signal() {
        let mut bucket = Bucket { packets: 8.0, alpha: 1.0, seen: 0, signals: 0 };
        let fill = |bucket: &mut Bucket, signals: u32| {
            for place in 0..bucket.packets.ceil() as u32 {
                bucket.hear(place < signals, 0.5, 1.0, 10.0);
            }
            (bucket.packets, bucket.alpha)
        };
        assert_eq!(fill(&mut bucket, 0), (9.0, 0.5));
        assert_eq!(fill(&mut bucket, 0), (10.0, 0.25));
        assert_eq!(fill(&mut bucket, 0), (10.0, 0.125));
        // Half of ten packets bear one: α = (0.125 + 0.5)/2.
        assert_eq!(fill(&mut bucket, 5), (10.0 * (1.0 - 0.3125 / 2.0), 0.3125));
        for _ in 0..40 {
            fill(&mut bucket, 99);
        }
        assert_eq!(bucket.packets, 1.0, "the least");
    }
}
