//! Credit that receivers grant: one scheduler for each NIC port, which all its queue pairs share.
//!
//! **Life cycle.** A sender begins with what its transport lets it send unasked. Data packets, whole or trimmed, raise what
//! their queue pair wants ([`Demand`]); one that wants more than it was granted stands on the ring of its NIC port. While
//! the ring is not empty the port grants [`Credit::quantum`] bytes to the next queue pair by a PULL, which leaves as a control
//! packet, and as much later as these bytes take at the port's rate times [`Credit::share`] it grants the next. PULLs say
//! what was granted in all, so one that is lost or overtaken costs nothing that the next does not make good.
//!
//! With [`Demand::Arrivals`] each packet is answered by credit for another, so that as much goes round as was sent unasked. When all
//! has arrived that a sender had, what it is still to be granted is put by: a sender that had begun its next message by then gets it
//! with the first packet of that, one that had not begins anew with what it may send unasked, and says so.
//!
//! A sender that says how much it has left ([`Demand::Backlog`]) counts on what it may send unasked, which ends with the first
//! sign of its receiver: lest it then has data and no credit and no way to say so, it asks for a packet more than it was granted
//! for as long as it has any left. With [`Credit::idle`] a port that nobody wants anything of goes on to grant to those who did, up
//! to a window each, until all has arrived that they had.
//!
//! **Invariants.** A port grants nothing before the time that its last grant takes has passed: whatever its queue pairs
//! want, credit comes at no more than its share of the link. A queue pair is on at most one ring, and only once. Grants depend
//! on the order of arrivals at the port alone; a port's event has the port's number in its key.
//!
//! **Failure modes.** A sender whose demand is lost on the way (the only packets in the network are dropped, not trimmed) has
//! no credit and is due none; when its time-out has passed without a sign of progress, it sends one packet unasked. Nor does
//! it learn of credit if the last PULLs are lost: the receiver has granted all that was asked for and would say nothing more,
//! so it answers such a packet by a PULL that grants nothing new.

use std::slice::from_ref;

use prefetch_index::prefetch_index;
use windtunnel_kernel::random::combine;

use super::packets::{Kind, NONE, Packet, flag};
use super::port::List;
use super::restraint::{Restrained, Seen};
use super::transport::{Credit, Demand};

/// What a sending half may spend.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Purse {
    /// Bytes that may be sent; the last packet may take it below zero.
    credit: i64,
    /// All that was granted, as far as is known.
    granted: u64,
    /// All that it has asked for, with [`Demand::Backlog`], and bytes that it was told had been trimmed: what the receiver
    /// has been asked for besides.
    asked: u64,
    trimmed: u64,
    /// Bytes on the wire of what has not been sent.
    backlog: u64,
    /// What may be sent unasked, and the most that may be saved where no idle credit comes.
    unasked: u64,
    /// One more than the last packet that was sent as the final one.
    ended: u32,
    /// How often it has begun anew with what it may send unasked, which packets say with [`Demand::Arrivals`].
    begun: u32,
    /// Whether it spends what nobody has granted.
    speculating: bool,
    /// Packets in a row sent for want of credit.
    rescues: u8,
}

/// What a receiving half has granted.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct Account {
    /// What packets asked for, or the bytes of those that arrived.
    asked: u64,
    /// Bytes that were trimmed.
    trimmed: u64,
    granted: u64,
    /// Next on each ring, and whether it is on it.
    after: [u32; 2],
    on: [bool; 2],
    /// What may be granted to it beyond its demand.
    most_idle: u64,
    /// Whether all has arrived that its sender had.
    over: bool,
    /// With [`Demand::Arrivals`], what was still to be granted when all had arrived: the sender may have had more on its way
    /// already, and needs it then, or begins anew.
    put_by: u64,
    /// How often the sender has begun anew, as far as is known.
    begun: u32,
}

/// The ring of those that want credit.
const WANTS: usize = 0;
/// The ring of those that want no more and are granted some while nobody does.
pub(super) const IDLE: usize = 1;

impl Account {
    /// Bytes to be granted.
    fn wanted(&self) -> u64 {
        (self.asked + self.trimmed).saturating_sub(self.granted)
    }

    /// The ring on which it belongs.
    fn ring(&self) -> Option<usize> {
        if self.wanted() > 0 {
            return Some(WANTS);
        }
        let may_idle = !self.over && self.granted < self.asked + self.trimmed + self.most_idle;
        may_idle.then_some(IDLE)
    }
}

/// The scheduler of a NIC port.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Pacer {
    /// Queue pairs that stand for a grant.
    rings: [List; 2],
    /// No grant before.
    next: u64,
    /// When its event is due.
    due: u64,
    /// Picoseconds that a byte of credit takes.
    per_byte: f64,
    /// What congestion of the fabric leaves of it.
    restrained: Option<Restrained>,
}

/// Purses, accounts and schedulers; empty where no transport asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Credits {
    scheme: Credit,
    purses: Vec<Purse>,
    accounts: Vec<Account>,
    pacers: Vec<Pacer>,
}

/// Picoseconds that a sender waits at least for its turn to be granted credit; twice as long each time in a row.
const TURN: u64 = 1_000_000_000;

/// More than any sender will ever send unasked, so that sums with it fit in 63 bits.
pub(super) const MOST: u64 = 1 << 62;

/// Sets the draws of restraint apart from others.
const RESTRAINT: u64 = 0x6772_616e_7473;

/// Bytes of the unit in which packets say what their sender asks for, modulo 2^32 units.
pub(super) const UNIT: u64 = 256;

impl Credits {
    /// Schedulers of NIC ports whose rates, in bits a second, are given.
    pub(super) fn new(scheme: Credit, rates: impl Iterator<Item = u64>, seed: u64) -> Self {
        let pacer = |(port, rate): (u64, u64)| Pacer {
            rings: [List::EMPTY; 2],
            next: 0,
            due: u64::MAX,
            per_byte: 8e12 / (rate as f64 * scheme.share),
            restrained: scheme.restraint.map(|rule| Restrained::new(&rule, combine(seed ^ RESTRAINT, port))),
        };
        Self { scheme, pacers: (0..).zip(rates).map(pacer).collect(), ..Self::default() }
    }

    /// A data packet has arrived at NIC port `p`.
    #[inline]
    pub(super) fn saw(&mut self, p: u32, packet: &Packet, now: u64) {
        let Some(rule) = &self.scheme.restraint else { return };
        if let Some(port) = &mut self.pacers[p as usize].restrained {
            port.saw(
                rule,
                now,
                Seen {
                    marked: packet.flags & flag::MARKED != 0,
                    trimmed: packet.kind == Kind::Trimmed,
                    last_hop: packet.flags & flag::LAST_HOP != 0,
                },
            );
        }
    }

    /// Has what a sending half may spend brought from memory.
    #[inline]
    pub(super) fn prefetch_purse(&self, flow: u32) {
        prefetch_index(&self.purses, flow as usize);
    }

    /// Has the scheduler of NIC port `p` brought from memory.
    #[inline]
    pub(super) fn prefetch_pacer(&self, p: u32) {
        if let Some(pacer) = self.pacers.get(p as usize) {
            prefetch_index(from_ref(&pacer.due), 0);
            prefetch_index(from_ref(&pacer.restrained), 0);
        }
    }

    /// Has what a receiving half was granted brought from memory.
    #[inline]
    pub(super) fn prefetch_account(&self, flow: u32) {
        prefetch_index(&self.accounts, flow as usize);
    }

    /// The receiving half whose turn it is at NIC port `p`.
    #[inline]
    pub(super) fn next(&self, p: u32) -> Option<u32> {
        let [wants, idle] = self.pacers.get(p as usize)?.rings;
        [wants, idle].iter().find(|ring| !ring.is_empty()).map(|ring| ring.head)
    }

    /// Whether ports that nobody wants anything of grant credit.
    pub(super) fn grants_idle(&self) -> bool {
        self.scheme.idle
    }

    /// A new sending half.
    pub(super) fn open_sender(&mut self, flow: u32, unasked: u64) {
        let unasked = unasked.min(MOST);
        let places = self.purses.len().max(flow as usize + 1);
        self.purses.resize(places, Purse::default());
        self.purses[flow as usize] =
            Purse { credit: unasked as i64, unasked, speculating: true, ..Purse::default() };
    }

    /// A new receiving half, to which no more than `most_idle` is granted beyond its demand. A predecessor in its place may still
    /// stand on a ring, of which it is then the next to leave.
    pub(super) fn open_receiver(&mut self, flow: u32, most_idle: u64) {
        let places = self.accounts.len().max(flow as usize + 1);
        self.accounts.resize(places, Account::default());
        let (account, most_idle) = (&mut self.accounts[flow as usize], most_idle.min(MOST));
        *account = Account { after: account.after, on: account.on, most_idle, ..Account::default() };
    }

    /// Whether a receiving half is still to be granted something.
    pub(super) fn is_queued(&self, flow: u32) -> bool {
        self.accounts[flow as usize].on.contains(&true)
    }

    /// A packet is paid for. What it says that its sender asks for, and its flags: whether the credit is used up, and that
    /// after a time-out.
    pub(super) fn spend(&mut self, flow: u32, mtu: u64, sent: &Spent) -> (u32, u8) {
        let purse = &mut self.purses[flow as usize];
        if sent.fresh {
            purse.backlog -= u64::from(sent.wire);
        }
        match self.scheme.demand {
            Demand::Arrivals => purse.credit -= mtu as i64,
            Demand::Backlog => {
                purse.credit -= i64::from(sent.wire);
                let left = (purse.backlog.min(purse.unasked) + sent.again) as i64;
                let mut short = left - purse.credit;
                if purse.speculating && left > 0 {
                    short = short.max(mtu as i64);
                }
                // What was trimmed the receiver has counted itself. Who has enough asks for nothing, nor for idle credit.
                if short > 0 {
                    let asked = purse.granted as i64 + short - purse.trimmed as i64;
                    purse.asked = purse.asked.max(asked.max(0) as u64);
                }
            }
        }
        if sent.last {
            purse.ended = sent.sequence + 1;
        }
        let empty = if purse.rescues > 0 { flag::ASKS | flag::RESCUES } else { flag::ASKS };
        let asked = match self.scheme.demand {
            Demand::Arrivals => purse.begun,
            Demand::Backlog => purse.asked.div_ceil(UNIT) as u32,
        };
        (asked, if purse.credit <= 0 { empty } else { 0 })
    }

    /// The receiver was heard of: what nobody has granted is no longer spent, unless the scheme lets it.
    pub(super) fn heard(&mut self, flow: u32) {
        let purse = &mut self.purses[flow as usize];
        if purse.speculating {
            purse.speculating = false;
            if !self.scheme.keeps_unasked {
                purse.credit = purse.credit.min(0);
            }
        }
    }

    /// The sender has something to send and nothing on its way. It begins anew if it has no credit for it and none is due to it
    /// either: `next` is its next new packet.
    pub(super) fn restart(&mut self, flow: u32, next: u32) {
        let purse = &mut self.purses[flow as usize];
        if self.scheme.idle && purse.credit >= purse.backlog.clamp(1, purse.unasked.max(1)) as i64 {
            return;
        }
        let due = match self.scheme.demand {
            Demand::Arrivals => purse.ended < next,
            Demand::Backlog => purse.asked + purse.trimmed > purse.granted,
        };
        if !due {
            purse.credit = purse.credit.max(purse.unasked as i64);
            purse.speculating = true;
            purse.begun = purse.begun.wrapping_add(1);
        }
    }

    /// The sender was told that a full packet of `mtu` bytes had been trimmed.
    pub(super) fn nacked(&mut self, flow: u32, mtu: u64) {
        self.heard(flow);
        self.purses[flow as usize].trimmed += mtu;
    }

    /// After a time-out one packet goes out, whatever the credit.
    pub(super) fn rescue(&mut self, flow: u32) {
        let purse = &mut self.purses[flow as usize];
        purse.credit = purse.credit.max(1);
        purse.rescues = purse.rescues.saturating_add(1);
    }

    /// A PULL has come that says `granted`.
    pub(super) fn fill(&mut self, flow: u32, granted: u64) {
        self.heard(flow);
        let purse = &mut self.purses[flow as usize];
        if granted > purse.granted {
            purse.credit += (granted - purse.granted) as i64;
            // Idle credit is bounded where it is granted: a window beyond what was asked for, which is a window at most.
            if !self.scheme.idle {
                purse.credit = purse.credit.min(purse.unasked as i64);
            }
            purse.granted = granted;
            purse.rescues = 0;
        }
    }

    /// Whether a sending half has nothing to spend.
    #[inline]
    pub(super) fn is_broke(&self, flow: u32) -> bool {
        self.purses[flow as usize].credit <= 0
    }

    /// A sending half has so many bytes on the wire more to send.
    pub(super) fn owe(&mut self, flow: u32, bytes: u64) {
        self.purses[flow as usize].backlog += bytes;
    }

    /// A sending half has nothing to send any more.
    pub(super) fn owe_nothing(&mut self, flow: u32) {
        self.purses[flow as usize].backlog = 0;
    }

    /// A data packet has arrived at NIC port `p`, whole or `trimmed` and not known before. One that its sender sent for want of
    /// credit, though all that it asks for was granted, is told once more of what was: that, if so.
    pub(super) fn want(&mut self, packet: &Packet, p: u32, trimmed: bool, mtu: u64) -> Option<u64> {
        let Packet { flow, detail: asked, .. } = *packet;
        let Self { scheme, accounts, pacers, .. } = self;
        let account = &mut accounts[flow as usize];
        account.over = false;
        match scheme.demand {
            Demand::Arrivals => {
                let put_by = std::mem::take(&mut account.put_by);
                let anew = asked.wrapping_sub(account.begun);
                let goes_on = anew == 0 || anew > u32::MAX / 2;
                account.asked += mtu + if goes_on { put_by } else { 0 };
                if !goes_on {
                    account.begun = asked;
                }
            }
            Demand::Backlog => {
                let more = asked.wrapping_sub((account.asked / UNIT) as u32);
                if more < 1 << 31 {
                    account.asked += u64::from(more) * UNIT;
                }
                account.trimmed += if trimmed { mtu } else { 0 };
            }
        }
        if account.wanted() > 0 {
            pacers[p as usize].stand(flow, accounts);
            return None;
        }
        let rescues = packet.kind == Kind::Data && packet.flags & flag::RESCUES != 0;
        rescues.then_some(account.granted)
    }

    /// All that the sender had has arrived: nothing follows it.
    pub(super) fn satisfied(&mut self, flow: u32) {
        let account = &mut self.accounts[flow as usize];
        account.over = true;
        if self.scheme.demand == Demand::Arrivals {
            account.put_by += account.asked.saturating_sub(account.granted);
            account.asked = account.granted;
        }
    }

    /// When NIC port `p` may grant, if somebody wants it and its event is not due yet: from now on it is.
    pub(super) fn arm(&mut self, p: u32, now: u64) -> Option<u64> {
        let pacer = &mut self.pacers[p as usize];
        if pacer.due != u64::MAX || pacer.rings.iter().all(|ring| ring.is_empty()) {
            return None;
        }
        pacer.due = pacer.next.max(now);
        Some(pacer.due)
    }

    /// What NIC port `p` grants now, if its event is due and somebody is to have anything.
    pub(super) fn grant(&mut self, p: u32, now: u64, mtu: u64) -> Option<Granted> {
        let Self { scheme, accounts, pacers, .. } = self;
        let pacer = &mut pacers[p as usize];
        if pacer.due != now {
            return None;
        }
        pacer.due = u64::MAX;
        let (flow, bytes) = pacer.take(accounts, scheme, mtu)?;
        let share = match (&mut pacer.restrained, &scheme.restraint) {
            (Some(port), Some(rule)) => {
                port.advance(rule, now);
                port.rate
            }
            _ => 1.0,
        };
        pacer.next = now + (bytes as f64 * pacer.per_byte / share).ceil() as u64;
        Some(Granted { flow, bytes, all: accounts[flow as usize].granted })
    }

    /// A receiving half wants nothing more.
    pub(super) fn forgo(&mut self, flow: u32) {
        let account = &mut self.accounts[flow as usize];
        (account.asked, account.trimmed, account.put_by, account.over) = (account.granted, 0, 0, true);
    }

    /// How long to wait for a sign of life when `usual` is the time-out of packets on their way. Without credit and with
    /// nothing in flight it is the turn that is waited for, in an incast for long: only the loss of a PULL ends that wait.
    pub(super) fn patience(&self, flow: u32, in_flight: u64, usual: u64) -> u64 {
        let purse = &self.purses[flow as usize];
        if purse.credit > 0 || in_flight > 0 { usual } else { usual.max(TURN) << purse.rescues.min(16) }
    }
}

/// A grant.
pub(super) struct Granted {
    /// The receiving half that it is for.
    pub flow: u32,
    pub bytes: u64,
    /// All that was granted to it.
    pub all: u64,
}

/// A packet that is being sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub sequence: u32,
    pub wire: u16,
    /// Whether it was never sent.
    pub fresh: bool,
    /// Whether nothing is left to send.
    pub last: bool,
    /// Bytes that wait to be sent again.
    pub again: u64,
}

impl Pacer {
    /// Puts a queue pair at the end of the ring on which it belongs, if it is not there.
    fn stand(&mut self, flow: u32, accounts: &mut [Account]) {
        let account = &mut accounts[flow as usize];
        let Some(ring) = account.ring().filter(|&ring| !account.on[ring]) else { return };
        (account.after[ring], account.on[ring]) = (NONE, true);
        self.rings[ring].append(flow, |before| accounts[before as usize].after[ring] = flow);
    }

    /// Takes the next queue pair to be granted credit, and how much; `None` if nobody is.
    fn take(&mut self, accounts: &mut [Account], scheme: &Credit, mtu: u64) -> Option<(u32, u64)> {
        for ring in [WANTS, IDLE] {
            while !self.rings[ring].is_empty() {
                let flow = self.rings[ring].head;
                let account = &mut accounts[flow as usize];
                self.rings[ring].head = account.after[ring];
                account.on[ring] = false;
                if account.ring() != Some(ring) {
                    continue;
                }
                let most = u64::from(scheme.quantum);
                // Whole packets, lest PULLs be for a few bytes each.
                let grant =
                    if ring == WANTS { account.wanted().next_multiple_of(mtu).min(most) } else { most };
                account.granted += grant;
                self.stand(flow, accounts);
                return Some((flow, grant));
            }
        }
        None
    }
}
