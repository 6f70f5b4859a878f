//! The sending half of a queue pair as data: what it has sent, what it knows to have arrived, what it has to send again.

use std::slice::from_ref;

use prefetch_index::prefetch_index;

use super::balance::Recycler;
use super::message::Arrivals;
use super::packets::flag;
use super::queue_settings::Color;
use super::rack::Rack;
use super::settings::Balancer;

/// What a queue pair does at its NIC port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has nothing to send.
    #[default]
    Idle,
    /// It is on the ring.
    Ready,
    /// Its pacing lets it wait.
    Paced,
    /// Its window is full.
    Blocked,
    /// Its queue is paused.
    Parked,
}

/// The sending half. Four cache lines, then what the transport keeps: see [`Self::prefetch`].
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Sender<F> {
    /// Its NIC port, and the other's.
    pub port: u32,
    pub to: u32,
    /// The receiving half.
    pub peer_slot: u32,
    /// What it is called at its NIC port: how many were opened there before.
    pub name: u32,
    /// First packet not known to have arrived, next new one, and one more than the last there is.
    pub una: u32,
    pub next: u32,
    pub limit: u32,
    /// Packets to be sent again, but for those known to have arrived.
    pub again: u32,
    pub again_end: u32,
    /// Messages: the one being sent, the first not acknowledged, the last.
    pub sending: u32,
    pub oldest: u32,
    pub last: u32,
    /// Next on its NIC port's ring.
    pub after: u32,
    /// Packets sent, for path numbers.
    pub round: u32,
    /// Data packets sent, and control packets that are no more: see [`Engine::is_silent`](super::Engine::is_silent).
    pub data_sent: u32,
    pub control_gone: u32,

    /// Bytes sent, those that the receiver has counted, and those taken for lost.
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    /// Last sign of progress, and silence allowed from there.
    pub heard: u64,
    /// Earliest start of the next packet.
    pub eligible: u64,
    /// From the last packet's transmission to there, and the packet's size.
    pub gap: u64,
    /// When the transport's timer is due, and when silence is looked for.
    pub timer: u64,
    pub watch: u64,

    /// What is hashed with the path number, or the place of its path.
    pub hash: u64,
    /// Arrived beyond `una`.
    pub beyond: Arrivals,
    /// Path numbers to be used again, if the balancer is REPS.
    pub recycler: Option<Box<Recycler>>,
    pub last_wire: u16,
    /// Packets sent since the last that asked for an answer.
    pub unasked: u16,
    pub turn: Turn,
    pub flags: u8,
    /// Data queue of its packets, and their color.
    pub queue: u8,
    pub color: Color,
    pub keep: bool,
    /// Whether the last packet sent is answered at once.
    pub asked: bool,
    /// Used once, and done.
    pub retired: bool,
    /// Nobody waits for what it sends.
    pub aside: bool,
    /// Times in a row that nothing was heard.
    pub silent: u8,

    /// Single packets to be sent again besides.
    pub resend: Resend,
    /// Packets before this one were sent at `checked` or earlier, but for `resent`.
    pub checkpoint: u32,
    /// Bytes of copies that the receiver has told of, modulo 2^32.
    pub copied: u32,
    pub checked: u64,
    /// What its host's clock is behind the whole picoseconds counted.
    pub rest: u64,

    pub cc: F,
    pub resent: Vec<u32>,
    /// What is under way, if losses show by time.
    pub rack: Option<Box<Rack>>,
}

impl<F> Sender<F> {
    /// Has it brought from memory: what an acknowledgement and the next packet touch.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_index(from_ref(&self.port), 0);
        prefetch_index(from_ref(&self.sent), 0);
        prefetch_index(from_ref(&self.hash), 0);
        prefetch_index(from_ref(&self.resend), 0);
        prefetch_index(from_ref(&self.cc), 0);
        // And its end.
        prefetch_index(from_ref(&self.resent), 0);
    }

    /// The same where a dispatcher knows the rest.
    #[inline]
    pub(super) fn prefetch_front(&self) {
        prefetch_index(from_ref(&self.port), 0);
        prefetch_index(from_ref(&self.sent), 0);
        prefetch_index(from_ref(&self.hash), 0);
    }

    /// What packets by a path number are led by.
    pub(super) fn hash_of(&self, path: u16, balancer: Balancer) -> u64 {
        if self.flags & flag::ROUTED == 0 && balancer.numbers() {
            return balancer.path_hash(self.hash, path);
        }
        self.hash
    }

    /// A leg of this half, which has just been opened, at another NIC port: it has a turn there, and nothing to send of its own.
    pub(super) fn leg(&self, port: u32) -> Self
    where
        F: Clone,
    {
        Self { port, turn: Turn::Idle, retired: true, recycler: None, rack: None, ..self.clone() }
    }

    /// Whether there is anything to send.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.again < self.again_end || self.next < self.limit || self.resend.count > 0
    }

    /// The same, once what has arrived meanwhile is struck from what is to be sent again.
    #[inline]
    pub(super) fn finds_more(&mut self) -> bool {
        while self.again < self.again_end && (self.again < self.una || self.beyond.has(self.again)) {
            self.again += 1;
        }
        while self.resend.count > 0 {
            let sequence = self.resend.first();
            if sequence >= self.una && !self.beyond.has(sequence) {
                break;
            }
            self.resend.take(sequence);
        }
        self.has_more()
    }

    /// Earliest start of the next packet by the pace that holds from `now` on: of what was left to wait, the same part.
    #[inline]
    pub(super) fn repace(&mut self, now: u64, gap: impl FnOnce(&F, u16) -> u64) -> u64 {
        if self.eligible > now {
            let gap = gap(&self.cc, self.last_wire);
            let left = u128::from(self.eligible - now) * u128::from(gap) / u128::from(self.gap.max(1));
            (self.eligible, self.gap) = (now + left as u64, gap);
        }
        self.eligible.max(now)
    }

    /// Whether it waits for this instant.
    #[inline]
    pub(super) fn is_paced_to(&self, instant: u64, name: u32) -> bool {
        self.turn == Turn::Paced && self.eligible == instant && self.name == name
    }

    /// Whether it has something to send, and nothing on its way.
    #[inline]
    pub(super) fn is_idle_with_more(&self) -> bool {
        self.una == self.next && self.has_more()
    }

    /// The receiver has given a sign of life.
    #[inline]
    pub(super) fn heard(&mut self, now: u64) {
        self.heard = now;
    }

    /// Whether anything is to be sent again.
    #[inline]
    pub(super) fn resends(&self) -> bool {
        self.again < self.again_end || self.resend.count > 0
    }

    /// Whether `sequence` is to be sent again.
    #[inline]
    pub(super) fn is_pending(&self, sequence: u32) -> bool {
        (self.again..self.again_end).contains(&sequence) || self.resend.has(sequence)
    }

    #[inline]
    pub(super) fn in_flight(&self) -> u64 {
        self.sent.saturating_sub(self.received + self.lost)
    }
}

/// A set of packets to be sent again.
#[derive(Clone, Debug, Default)]
pub(super) struct Resend {
    pub marked: Arrivals,
    /// Packets in it.
    pub count: u32,
    /// No packet of it is before this one.
    pub from: u32,
}

impl Resend {
    /// Whether `sequence`, which is not before `base`, was not in it.
    pub(super) fn add(&mut self, base: u32, sequence: u32) -> bool {
        if self.count == 0 {
            (self.marked.end, self.from) = (0, sequence);
        }
        let new = self.marked.mark(base.min(self.from), sequence);
        self.count += u32::from(new);
        self.from = self.from.min(sequence);
        new
    }

    pub(super) fn has(&self, sequence: u32) -> bool {
        self.count > 0 && self.marked.has(sequence)
    }

    /// The lowest of a set that is not empty.
    pub(super) fn first(&mut self) -> u32 {
        while !self.marked.has(self.from) {
            self.from += 1;
        }
        self.from
    }

    pub(super) fn take(&mut self, sequence: u32) {
        self.marked.clear(sequence);
        self.count -= 1;
    }

    pub(super) fn clear(&mut self) {
        while self.count > 0 {
            let sequence = self.first();
            self.take(sequence);
        }
    }
}
