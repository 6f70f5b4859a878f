//! A NIC port of [`Homa`]: what it sends, and by which notes it speaks with others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::ops::Range;

use windtunnel_kernel::Time;

use super::Homa;
use super::levels::Levels;
use super::receive::{Inbox, Told};
use crate::packet::transport::dispatch::{
    Heard, Joined, Landed, Load, NicFacts, Note, Outbox, Parcel, Tally,
};

/// Receiver's: packets below `a` of the message that ends at `b` may leave; `c` has their priority and the levels.
pub(super) const GRANT: u8 = 0;
/// Receiver's: the message that ends at `b` is whole, all below `a` has arrived; `c` has the levels.
pub(super) const ACK: u8 = 1;
/// Receiver's: packets from `a` to before `b` of the message that ends at `c`'s low half are missing; the high half is a priority.
pub(super) const RESEND: u8 = 2;
/// Sender's: what was asked for has not been sent yet, of the message that ends at `b`.
pub(super) const BUSY: u8 = 3;

/// Times the patience of a sender doubles.
const MOST_TURNS: u32 = 5;

/// A message that is sent.
#[derive(Clone, Debug)]
struct Out {
    first: u32,
    /// The next packet to be sent for the first time, and where grants end.
    next: u32,
    granted: u32,
    /// What is to be sent again.
    again: VecDeque<u32>,
    /// Priority of what is granted.
    level: u8,
    /// When anything was last heard of it or sent, and how often its first packet was sent in vain.
    heard: u64,
    turns: u32,
}

impl Out {
    fn may_send(&self) -> bool {
        self.next < self.granted || !self.again.is_empty()
    }
}

/// A queue pair that sends, with its messages by their ends.
#[derive(Clone, Debug)]
struct Flow {
    una: u32,
    levels: Levels,
    messages: BTreeMap<u32, Out>,
}

/// See the module page.
#[derive(Clone, Debug, Default)]
pub struct HomaNic {
    rtt: u32,
    patience: u64,
    paths: u32,
    turn: u32,
    flows: Vec<Flow>,
    /// Messages that may send: packets left to send, queue pair, end.
    ready: BTreeSet<(u32, u32, u32)>,
    watch: BinaryHeap<Reverse<(u64, u32, u32)>>,
    pub(super) inbox: Inbox,
    unasked: u64,
    asked: u64,
    again: u64,
    busy: u64,
    reminders: u64,
}

/// The place of a message among those that may send.
fn place(flow: u32, end: u32, message: &Out) -> (u32, u32, u32) {
    (end - message.next + message.again.len() as u32, flow, end)
}

impl HomaNic {
    pub(super) fn open(&mut self, homa: &Homa, facts: &NicFacts) {
        self.rtt = homa.rtt(&facts.fabric);
        self.patience = homa.timeout.ps();
        self.paths = facts.fabric.paths;
        self.turn = facts.port.wrapping_mul(7);
        self.inbox.open(homa, self.rtt);
    }

    pub(super) fn add_flow(&mut self, homa: &Homa) {
        let levels = Levels::even(homa.unscheduled_levels.unwrap_or(1) as u8);
        self.flows.push(Flow { una: 0, levels, messages: BTreeMap::new() });
    }

    fn path(&mut self) -> u16 {
        self.turn = self.turn.wrapping_add(1);
        (self.turn & (self.paths - 1)) as u16
    }

    pub(super) fn note(&mut self, flow: u32, back: bool, note: Note, out: &mut Outbox) {
        let path = self.path();
        out.send(Parcel { flow, back, load: Load::Note(note), line: 0, path, rank: 0 });
    }

    pub(super) fn abandon(&mut self, number: u32) {
        for (end, message) in std::mem::take(&mut self.flows[number as usize].messages) {
            self.ready.remove(&place(number, end, &message));
        }
    }

    pub(super) fn message(&mut self, joined: &Joined) {
        let end = joined.first + joined.packets;
        let message = Out {
            first: joined.first,
            next: joined.first,
            granted: joined.first + joined.packets.min(self.rtt),
            again: VecDeque::new(),
            level: 0,
            heard: joined.now.ps(),
            turns: 0,
        };
        self.ready.insert(place(joined.flow, end, &message));
        self.flows[joined.flow as usize].messages.insert(end, message);
        self.watch.push(Reverse((joined.now.ps() + self.patience, joined.flow, end)));
    }

    /// Changes a message that is sent, if there is one that ends at `end`, and finds it its place again.
    fn change<R>(&mut self, number: u32, end: u32, now: u64, what: impl FnOnce(&mut Out) -> R) -> Option<R> {
        let message = self.flows[number as usize].messages.get_mut(&end)?;
        self.ready.remove(&place(number, end, message));
        message.heard = now;
        let result = what(message);
        if message.may_send() {
            self.ready.insert(place(number, end, message));
        }
        Some(result)
    }

    /// All below `below`, and the message that ends at `end`, have arrived.
    fn arrived(&mut self, number: u32, below: u32, end: u32, out: &mut Outbox) {
        let flow = &mut self.flows[number as usize];
        let whole: Vec<u32> = flow.messages.range(..=below).map(|(&end, _)| end).chain([end]).collect();
        for end in whole {
            if let Some(message) = flow.messages.remove(&end) {
                self.ready.remove(&place(number, end, &message));
            }
        }
        if below > flow.una {
            flow.una = below;
            out.arrived(number, below);
        }
    }

    pub(super) fn heard(&mut self, heard: &Heard, out: &mut Outbox) {
        let Note { kind, a, b, c } = heard.note;
        let now = heard.now.ps();
        match kind {
            GRANT => {
                self.flows[heard.flow as usize].levels = Levels::unpacked(c);
                self.change(heard.flow, b, now, |message| {
                    message.granted = message.granted.max(a.min(b));
                    message.level = (c >> 56) as u8;
                });
            }
            ACK => {
                self.flows[heard.flow as usize].levels = Levels::unpacked(c);
                self.arrived(heard.flow, a, b, out);
            }
            RESEND => self.resend(heard.flow, a..b, c, now, out),
            _ => self.inbox.busy(heard.flow, b, now),
        }
    }

    /// A receiver misses some packets, which may belong to messages that it does not know of.
    fn resend(&mut self, number: u32, missing: Range<u32>, c: u64, now: u64, out: &mut Outbox) {
        let (asked, level) = (c as u32, (c >> 32) as u8);
        let messages = &self.flows[number as usize].messages;
        let ends: Vec<u32> = messages
            .range(missing.start + 1..)
            .take_while(|(_, m)| m.first < missing.end)
            .map(|(&end, _)| end)
            .collect();
        let mut waits = false;
        for end in ends {
            let found = self.change(number, end, now, |message| {
                message.level = level;
                message.granted = message.granted.max(missing.end.min(end));
                let sent = missing.start.max(message.first)..missing.end.min(message.next);
                let before = message.again.len();
                for sequence in sent {
                    if !message.again.contains(&sequence) {
                        message.again.push_back(sequence);
                    }
                }
                (message.again.len() - before) as u64
            });
            let count = found.unwrap_or(0);
            self.again += count;
            waits |= count == 0;
        }
        if waits {
            self.busy += 1;
            self.note(number, false, Note { kind: BUSY, a: 0, b: asked, c: 0 }, out);
        }
    }

    /// The packet that leaves now: of the message that has the least left to send.
    pub(super) fn next(&mut self, now: Time) -> Option<Parcel> {
        let &(_, number, end) = self.ready.first()?;
        let path = self.path();
        let (rtt, levels) = (self.rtt, self.flows[number as usize].levels);
        let (sequence, level, unasked) = self.change(number, end, now.ps(), |message| {
            let sequence = message.again.pop_front().unwrap_or_else(|| {
                message.next += 1;
                message.next - 1
            });
            let unasked = sequence - message.first < rtt;
            (sequence, if unasked { levels.of(end - message.first) } else { message.level }, unasked)
        })?;
        *(if unasked { &mut self.unasked } else { &mut self.asked }) += 1;
        Some(Parcel { flow: number, back: false, load: Load::Data(sequence), line: level, path, rank: end })
    }

    pub(super) fn landed(&mut self, homa: &Homa, data: &Landed, out: &mut Outbox) {
        let mut told = std::mem::take(&mut self.inbox.told);
        self.inbox.landed(homa, data, &mut told);
        self.tell_all(&mut told, out);
    }

    fn tell_all(&mut self, told: &mut Vec<Told>, out: &mut Outbox) {
        for Told { flow, note } in told.drain(..) {
            self.note(flow, true, note, out);
        }
        self.inbox.told = std::mem::take(told);
    }

    pub(super) fn due(&self) -> Option<Time> {
        let own = self.watch.peek().map(|&Reverse((due, ..))| due);
        [own, self.inbox.due()].into_iter().flatten().min().map(Time::from_ps)
    }

    pub(super) fn tick(&mut self, now: Time, out: &mut Outbox) {
        let now = now.ps();
        let mut told = std::mem::take(&mut self.inbox.told);
        self.inbox.tick(now, &mut told);
        self.tell_all(&mut told, out);
        while let Some(&Reverse((due, number, end))) = self.watch.peek()
            && due <= now
        {
            self.watch.pop();
            let Some(message) = self.flows[number as usize].messages.get_mut(&end) else { continue };
            let quiet = message.heard + (self.patience << message.turns);
            if quiet > now || message.may_send() {
                let later = if message.may_send() { now + self.patience } else { quiet };
                self.watch.push(Reverse((later, number, end)));
                continue;
            }
            self.reminders += 1;
            message.turns = (message.turns + 1).min(MOST_TURNS);
            let later = now + (self.patience << message.turns);
            self.change(number, end, now, |message| message.again.push_back(message.first));
            self.watch.push(Reverse((later, number, end)));
        }
    }

    pub(super) fn tell(&self, tally: &mut Tally) {
        tally.add("sent_unasked", self.unasked);
        tally.add("sent_granted", self.asked);
        tally.add("sent_again", self.again);
        tally.add("busy_sent", self.busy);
        tally.add("reminders_sent", self.reminders);
        self.inbox.tell(tally);
    }
}
