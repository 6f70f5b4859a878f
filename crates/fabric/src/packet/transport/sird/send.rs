//! The sending half of a NIC port of [`Sird`]: what leaves unasked, and which credit is spent next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use super::{ASKED, CSN, REQUEST, Sird, part};
use crate::packet::transport::dispatch::{FabricFacts, Joined, Note, Outbox, Tally};

/// A message that is sent.
#[derive(Clone, Debug)]
struct Message {
    first: u32,
    /// The next packet that leaves unasked, and where these end.
    next: u32,
    unasked: u32,
    /// Packets that credit names.
    credit: VecDeque<u32>,
    /// Packets that credit has named, once each.
    named: u32,
    heard: u64,
}

/// A queue pair that sends, with its messages by their ends.
#[derive(Clone, Debug)]
struct Flow {
    receiver: u32,
    una: u32,
    messages: BTreeMap<u32, Message>,
}

/// See the module page.
#[derive(Clone, Debug, Default)]
pub(super) struct Outgoing {
    bdp: u32,
    longest: u32,
    threshold: u32,
    fair: f64,
    alone: bool,
    patience: u64,
    flows: Vec<Flow>,
    /// Messages that have something to send unasked, in the order in which they came.
    unasked: VecDeque<(u32, u32)>,
    /// Messages that hold credit, by what is left of them; and by receiver, in the order of its last turn. How many receivers have some.
    ready: BTreeSet<(u32, u32, u32)>,
    round: VecDeque<u32>,
    by_receiver: BTreeMap<u32, BTreeSet<(u32, u32)>>,
    receivers: u32,
    /// Credit held, in packets, and what is due to the round.
    held: u32,
    share: f64,
    watch: BinaryHeap<Reverse<(u64, u32, u32)>>,
    sent_unasked: u64,
    sent_asked: u64,
    congested: u64,
    most_held: u64,
    requests: u64,
}

impl Outgoing {
    pub(super) fn open(&mut self, sird: &Sird, fabric: &FabricFacts) {
        self.bdp = sird.bdp(fabric);
        self.longest = part(sird.unscheduled_threshold, self.bdp);
        self.threshold = part(sird.sender_threshold, self.bdp);
        self.fair = sird.sender_fair;
        self.alone = sird.csn_alone;
        self.patience = sird.timeout.ps();
    }

    pub(super) fn add_flow(&mut self, receiver: u32) {
        self.flows.push(Flow { receiver, una: 0, messages: BTreeMap::new() });
    }

    pub(super) fn abandon(&mut self, number: u32) {
        let ends: Vec<u32> = self.flows[number as usize].messages.keys().copied().collect();
        for end in ends {
            self.forget(number, end);
        }
    }

    /// Left of a message: what orders it among those that hold credit.
    fn left(end: u32, message: &Message) -> u32 {
        end - message.first - message.named + message.credit.len() as u32
    }

    fn forget(&mut self, number: u32, end: u32) {
        self.strike(number, end);
        if let Some(message) = self.flows[number as usize].messages.remove(&end) {
            self.held -= message.credit.len() as u32;
        }
    }

    /// Takes a message off the lists of those that hold credit.
    fn strike(&mut self, number: u32, end: u32) {
        let flow = &self.flows[number as usize];
        let Some(message) = flow.messages.get(&end) else { return };
        if self.ready.remove(&(Self::left(end, message), number, end))
            && let Some(own) = self.by_receiver.get_mut(&flow.receiver)
        {
            own.remove(&(number, end));
            self.receivers -= u32::from(own.is_empty());
        }
    }

    /// Puts a message that holds credit on the lists.
    fn enlist(&mut self, number: u32, end: u32) {
        let flow = &self.flows[number as usize];
        let Some(message) = flow.messages.get(&end).filter(|message| !message.credit.is_empty()) else {
            return;
        };
        self.ready.insert((Self::left(end, message), number, end));
        let round = &mut self.round;
        let own = self.by_receiver.entry(flow.receiver).or_insert_with(|| {
            round.push_back(flow.receiver);
            BTreeSet::new()
        });
        self.receivers += u32::from(own.is_empty());
        own.insert((number, end));
    }

    pub(super) fn message(&mut self, joined: &Joined, told: &mut Vec<(u32, bool, Note)>) {
        let (first, end, now) = (joined.first, joined.first + joined.packets, joined.now.ps());
        let short = joined.packets <= self.longest;
        let unasked = if short { end.min(first + self.bdp) } else { first };
        let message = Message { first, next: first, unasked, credit: VecDeque::new(), named: 0, heard: now };
        self.flows[joined.flow as usize].messages.insert(end, message);
        self.watch.push(Reverse((now + self.patience, joined.flow, end)));
        if unasked > first {
            self.unasked.push_back((joined.flow, end));
        }
        if unasked < end {
            self.requests += 1;
            told.push((joined.flow, false, Note { kind: REQUEST, a: unasked, b: end, c: 0 }));
        }
    }

    /// A credit has come.
    pub(super) fn credited(&mut self, number: u32, sequence: u32, end: u32, now: u64) {
        self.strike(number, end);
        let Some(message) = self.flows[number as usize].messages.get_mut(&end) else { return };
        message.heard = now;
        message.credit.push_back(sequence);
        message.named = (message.named + 1).min(end - message.first);
        self.held += 1;
        self.most_held = self.most_held.max(u64::from(self.held));
        self.enlist(number, end);
    }

    /// All below `below`, and the message that ends at `end`, have arrived.
    pub(super) fn arrived(&mut self, number: u32, below: u32, end: u32, out: &mut Outbox) {
        let messages = &self.flows[number as usize].messages;
        let whole: Vec<u32> = messages.range(..=below).map(|(&end, _)| end).chain([end]).collect();
        for end in whole {
            self.forget(number, end);
        }
        let flow = &mut self.flows[number as usize];
        if below > flow.una {
            flow.una = below;
            out.arrived(number, below);
        }
    }

    /// The message whose credit is spent now.
    fn choose(&mut self) -> Option<(u32, u32)> {
        self.share += self.fair;
        if self.share >= 1.0 {
            self.share -= 1.0;
            while let Some(receiver) = self.round.pop_front() {
                if let Some(&first) = self.by_receiver.get(&receiver).and_then(BTreeSet::first) {
                    self.round.push_back(receiver);
                    return Some(first);
                }
                self.by_receiver.remove(&receiver);
            }
        }
        self.ready.first().map(|&(_, number, end)| (number, end))
    }

    /// The packet that leaves now, with what is written into it.
    pub(super) fn next(&mut self, now: u64) -> Option<(u32, u32, u32)> {
        while let Some(&(number, end)) = self.unasked.front() {
            if let Some(message) = self.flows[number as usize].messages.get_mut(&end)
                && message.next < message.unasked
            {
                message.heard = now;
                message.next += 1;
                self.sent_unasked += 1;
                return Some((number, message.next - 1, end));
            }
            self.unasked.pop_front();
        }
        if self.ready.is_empty() {
            return None;
        }
        let (number, end) = self.choose()?;
        let congested = self.held > self.threshold && (self.alone || self.receivers > 1);
        self.strike(number, end);
        let message = self.flows[number as usize].messages.get_mut(&end)?;
        let sequence = message.credit.pop_front()?;
        message.heard = now;
        self.held -= 1;
        self.sent_asked += 1;
        self.congested += u64::from(congested);
        self.enlist(number, end);
        Some((number, sequence, end | ASKED | if congested { CSN } else { 0 }))
    }

    pub(super) fn due(&self) -> Option<u64> {
        self.watch.peek().map(|&Reverse((due, ..))| due)
    }

    /// A message of which nothing was heard for long asks for credit, for what its receiver has not got.
    pub(super) fn tick(&mut self, now: u64, told: &mut Vec<(u32, bool, Note)>) {
        while let Some(&Reverse((due, number, end))) = self.watch.peek()
            && due <= now
        {
            self.watch.pop();
            let Some(message) = self.flows[number as usize].messages.get_mut(&end) else { continue };
            let busy = message.next < message.unasked || !message.credit.is_empty();
            if busy || message.heard + self.patience > now {
                let later = if busy { now } else { message.heard } + self.patience;
                self.watch.push(Reverse((later, number, end)));
                continue;
            }
            message.heard = now;
            self.requests += 1;
            told.push((number, false, Note { kind: REQUEST, a: message.first, b: end, c: 0 }));
            self.watch.push(Reverse((now + self.patience, number, end)));
        }
    }

    pub(super) fn tell(&self, tally: &mut Tally) {
        tally.add("sent_unasked", self.sent_unasked);
        tally.add("sent_on_credit", self.sent_asked);
        tally.add("sent_congested", self.congested);
        tally.add("requests_sent", self.requests);
        tally.raise("credit_held_most", self.most_held);
    }
}
