//! What is kept of the receiving half of a queue pair, and of the acknowledgements on their way.
//!
//! [`receive`](super::receive) is what happens there.

use std::slice::from_ref;

use prefetch_index::prefetch_index;
use windtunnel_kernel::Time;

use super::message::{Arrivals, Incoming, NO_MESSAGE, Slots};
use super::packets::NONE;
use super::reorder::{Held, Reordering};

/// The receiving half. Three cache lines where its transport keeps little: see [`Self::prefetch`].
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Receiver<P> {
    /// What is hashed on the way back, or the place of that path.
    pub hash: u64,
    /// Bytes that have arrived (with go-back-N: in order).
    pub received: u64,
    /// Of them those of copies, modulo 2^32.
    pub copied: u32,
    /// Next packet without a gap.
    pub expected: u32,
    /// Its NIC port, and the sender's.
    pub port: u32,
    pub to: u32,
    /// Messages not reported: the first and the last; and how many packets there were up to the end of the first,
    /// `u32::MAX` if there is none. Messages of a queue pair lie one after the other, so it is whole when everything
    /// before its last packet of data has arrived.
    pub delivering: u32,
    last: u32,
    pub whole_at: u32,
    /// Packets of the messages reported.
    pub reported: u32,
    /// The sending half.
    pub peer_slot: u32,
    /// Data packets that are no more, and control packets sent: see [`Engine::is_silent`](super::engine::Engine::is_silent).
    pub data_gone: u32,
    pub control_sent: u32,
    /// Data packets not yet answered, and those marked.
    pub pending: u16,
    pub marked: u16,
    /// The gap already asked for, with go-back-N.
    pub asked: u32,
    /// The lowest and the highest packet that arrived out of order since the last acknowledgement; none if that is lower.
    pub low: u32,
    pub high: u32,

    pub beyond: Arrivals,
    /// One more than the last packet that the sender has called its final one.
    pub ended: u32,
    /// One more than the last packet of which anything has arrived, where credit is granted.
    pub seen: u32,
    /// Switches on the ways there and back.
    pub lengths: [u32; 2],
    pub flags: u8,
    /// Nobody waits for what it receives.
    pub aside: bool,

    pub held: Held,
    pub peer: P,
}

impl<P: Default> Receiver<P> {
    pub(super) fn new(port: u32, to: u32, hash: u64, flags: u8, lengths: [u32; 2]) -> Self {
        Self {
            peer: P::default(),
            hash,
            received: 0,
            copied: 0,
            expected: 0,
            port,
            to,
            delivering: NO_MESSAGE,
            last: NO_MESSAGE,
            whole_at: u32::MAX,
            reported: 0,
            peer_slot: NONE,
            data_gone: 0,
            control_sent: 0,
            pending: 0,
            marked: 0,
            asked: NONE,
            low: u32::MAX,
            high: 0,
            ended: 0,
            seen: 0,
            flags,
            aside: false,
            lengths,
            beyond: Arrivals::default(),
            held: Held::default(),
        }
    }
}

impl<P> Receiver<P> {
    /// Whether `sequence` and what arrived out of order since the last acknowledgement span more than half of what one can tell.
    #[inline]
    pub(super) fn overflows(&self, sequence: u32) -> bool {
        self.low <= self.high && self.high.max(sequence) - self.low.min(sequence) >= u64::BITS
    }

    /// What the next acknowledgement tells of packets out of order: a first one, and a bit for it and each of the 127 after it.
    ///
    /// It tells of all that arrived since the last acknowledgement, and of as much before it as there is room for: what an
    /// acknowledgement that was lost has told, the next ones tell again. What came since the last one spans at most
    /// [half of it](Self::overflows), so the loss of one acknowledgement alone hides nothing.
    pub(super) fn told(&mut self) -> (u32, u128) {
        let any = self.low <= self.high;
        let base =
            if any { self.high.saturating_sub(u128::BITS - 1).max(self.expected) } else { self.expected };
        (self.low, self.high) = (u32::MAX, 0);
        (base, self.beyond.bits(base))
    }

    /// What is hashed on the way back or the place of that path, the sender's NIC port, and what packets are flagged with.
    pub(super) const fn address(&self) -> (u64, u32, u8) {
        (self.hash, self.to, self.flags)
    }

    /// Takes in packet `sequence` of `wire` bytes, in any order, where a full one has `full`: whether it had not arrived before, and whether
    /// an earlier one is missing.
    pub(super) fn file(&mut self, sequence: u32, wire: u16, full: u16) -> (bool, bool) {
        if sequence < self.expected {
            return (false, false);
        }
        if sequence > self.expected {
            let new = self.beyond.mark(self.expected, sequence);
            if new {
                self.held.take(sequence, wire, full);
            }
            return (new, true);
        }
        self.expected += 1;
        while self.beyond.has(self.expected) {
            self.beyond.clear(self.expected);
            self.held.give(self.expected, full);
            self.expected += 1;
        }
        (true, false)
    }

    /// A bit for each of the 64 packets from `base` on, at least the first missing, that has arrived.
    pub(super) fn beyond_from(&self, base: u32) -> u64 {
        self.beyond.word_at(base)
    }

    /// The first packet that is missing, and whether a message is whole that has not been reported.
    pub(super) const fn progress(&self) -> (u32, bool) {
        (self.expected, self.expected >= self.whole_at)
    }

    /// Has it brought from memory.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_index(from_ref(&self.hash), 0);
        prefetch_index(from_ref(&self.beyond), 0);
        prefetch_index(from_ref(&self.held), 0);
    }

    /// The first message that it awaits.
    pub(super) const fn first_awaited(&self) -> u32 {
        self.delivering
    }

    /// Awaits the message `id`, which starts at `start`, after those that start no later.
    pub(super) fn expect(&mut self, id: u32, start: Time, messages: &mut Slots<Incoming>) {
        let mut before = NO_MESSAGE;
        if self.delivering != NO_MESSAGE {
            let last = self.last;
            if messages[last].start <= start {
                before = last;
            } else {
                let mut next = self.delivering;
                while messages[next].start <= start {
                    (before, next) = (next, messages[next].next);
                }
            }
        }
        let next = match before {
            NO_MESSAGE => std::mem::replace(&mut self.delivering, id),
            before => std::mem::replace(&mut messages[before].next, id),
        };
        messages[id].next = next;
        if next == NO_MESSAGE {
            self.last = id;
        }
        self.whole_at = self.reported + messages[self.delivering].needed;
    }

    /// Its own NIC port.
    pub(super) const fn at(&self) -> u32 {
        self.port
    }

    /// The sender's NIC port.
    pub(super) const fn sends_to(&self) -> u32 {
        self.to
    }

    /// Awaits nothing from now on; the first message that it awaited.
    pub(super) fn forget(&mut self) -> u32 {
        let first = self.delivering;
        (self.delivering, self.last, self.whole_at, self.aside) = (NO_MESSAGE, NO_MESSAGE, u32::MAX, true);
        first
    }

    /// What it held out of order is counted.
    pub(super) fn count_held(&self, reordering: &mut Reordering) {
        reordering.add(&self.held);
    }

    /// Gives up what it holds; the place of its path, and the lengths of both.
    pub(super) fn close(&mut self, reordering: &mut Reordering) -> (u64, [u32; 2]) {
        reordering.add(&std::mem::take(&mut self.held));
        self.beyond = Arrivals::default();
        (self.hash, self.lengths)
    }
}

/// What an acknowledgement carries beside the next packet expected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Feedback {
    /// Bytes that have arrived at the receiver in all.
    pub received: u64,
    /// Of them those of copies, modulo 2^32.
    pub copied: u32,
    /// Packets arrived out of order, from `base` on.
    pub bits: u128,
    pub base: u32,
    /// Data packets that it answers, and those marked.
    pub packets: u16,
    pub marked: u16,
    /// Whether the packet that caused it was marked.
    pub echo: bool,
    /// Whether it asks for the packet expected.
    pub asks: bool,
}

/// Feedback on its way; places are used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Feedbacks {
    slots: Vec<Feedback>,
    free: Vec<u32>,
}

impl Feedbacks {
    #[inline]
    pub(super) fn insert(&mut self, feedback: Feedback) -> u32 {
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = feedback;
            return id;
        }
        self.slots.push(feedback);
        self.slots.len() as u32 - 1
    }

    /// Has one brought from memory, if there is one.
    #[inline]
    pub(super) fn prefetch(&self, id: u32) {
        prefetch_index(&self.slots, id as usize);
    }

    #[inline]
    pub(super) fn take(&mut self, id: u32) -> Feedback {
        self.free.push(id);
        self.slots[id as usize]
    }

    pub(super) fn release(&mut self, id: u32) {
        self.free.push(id);
    }
}
