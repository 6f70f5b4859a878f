//! A NIC port under [dcPIM](super): its rounds of matching as receiver and sender, its tokens, and what it knows of flows.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use windtunnel_kernel::random::combine;

use super::super::dispatch::{Load, Note, Outbox, Parcel};
use super::super::tokens::Received;
use super::DcPim;

pub(super) const RTS: u8 = 0;

pub(super) const REQUEST: u8 = 1;

pub(super) const GRANT: u8 = 2;

pub(super) const ACCEPT: u8 = 3;

pub(super) const TOKEN: u8 = 4;

pub(super) const ACK: u8 = 5;

/// Priority of tokens of prompt channels, and how many priorities tokens have.
pub(super) const PROMPT: u8 = 7;

pub(super) const LEVELS: usize = 8;

/// A flow that is sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    pub(super) una: u32,
    pub(super) limit: u32,
    /// Packets of its last message: its priority at ports goes by them.
    pub(super) size: u32,
    pub(super) heard: u64,
    pub(super) watched: bool,
}

/// A flow that is received.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// Its sender, by number among those that this port has heard of.
    pub(super) mate: u32,
    pub(super) got: Received,
    /// Until when it is short, or waits for what it has been given.
    pub(super) sleeps: u64,
    pub(super) listed: bool,
}

/// A sender that is matched: channels of the epoch, and its token clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Match {
    pub(super) mate: u32,
    pub(super) channels: u32,
    pub(super) priority: u8,
    /// Until when its tokens are good.
    pub(super) good: u64,
    /// The next token; `u64::MAX`: data or `until` wakes it.
    pub(super) next: u64,
    pub(super) until: u64,
}

/// Who asks, grants or accepts: flow, what is left of it, channels, prompt ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) flow: u32,
    pub(super) left: u32,
    pub(super) channels: u32,
    pub(super) prompt: u32,
}

/// A NIC port.
#[derive(Clone, Debug, Default)]
pub struct DcPimNic {
    pub(super) key: u64,
    pub(super) draws: u64,
    pub(super) slot: u64,
    pub(super) round: u64,
    pub(super) matching: u64,
    pub(super) phase: u64,
    pub(super) rounds: u64,
    pub(super) channels: u32,
    pub(super) per_channel: u32,
    pub(super) short: u32,
    pub(super) window: u32,
    pub(super) resend: u64,
    pub(super) window_timeout: u64,
    /// Token slots left to packets that need no token.
    pub(super) hold: u32,
    pub(super) slack: u64,
    pub(super) patience: u64,
    pub(super) paths: u32,
    pub(super) turn: u32,
    pub(super) flows: Vec<Flow>,
    pub(super) peers: Vec<Peer>,
    /// Peers with something missing.
    pub(super) listed: Vec<u32>,
    /// The same by sender, and the numbers of senders.
    pub(super) mates: Vec<Vec<u32>>,
    pub(super) mate_of: FxHashMap<u32, u32>,
    /// Used again from round to round: which request is a sender's, plus one.
    pub(super) asks: Vec<u32>,
    pub(super) watch: VecDeque<(u64, u32)>,
    /// The receiver's next round, from the first of all.
    pub(super) next_round: Option<u64>,
    pub(super) present: Vec<Match>,
    pub(super) coming: Vec<Match>,
    pub(super) grants: Vec<Offer>,
    /// The sender's: requests of which round, and channels accepted for the epoch being matched and the one before.
    pub(super) requests: Vec<Offer>,
    pub(super) asked: u64,
    pub(super) used: [u32; 2],
    pub(super) used_epoch: u64,
    /// Tokens by priority: until when, flow, packet, number.
    pub(super) tokens: [VecDeque<(u64, u32, u32, u32)>; LEVELS],
    pub(super) counts: [u64; 2],
}

impl DcPimNic {
    pub(super) fn draw(&mut self) -> u64 {
        self.draws += 1;
        combine(self.key, self.draws)
    }

    pub(super) fn path(&mut self) -> u16 {
        self.turn = self.turn.wrapping_add(1);
        (self.turn & (self.paths - 1)) as u16
    }

    pub(super) fn note(&mut self, flow: u32, back: bool, note: Note, out: &mut Outbox) {
        let path = self.path();
        out.send(Parcel { flow, back, load: Load::Note(note), line: 0, path, rank: 0 });
    }

    /// When round `number` begins.
    pub(super) fn begins(&self, number: u64) -> u64 {
        number / self.rounds * self.phase + number % self.rounds * self.round
    }

    /// The first round that begins at `now` or later.
    pub(super) fn round_from(&self, now: u64) -> u64 {
        let epoch = now / self.phase;
        let within = (now % self.phase).div_ceil(self.round).min(self.rounds);
        epoch * self.rounds + within
    }

    /// The number of a sender, by its port.
    pub(super) fn mate(&mut self, from: u32) -> u32 {
        let next = self.mates.len() as u32;
        let mate = *self.mate_of.entry(from).or_insert(next);
        if mate == next {
            self.mates.push(Vec::new());
            self.asks.push(0);
        }
        mate
    }

    /// The flow of a sender that is nearest to its end, of those that may have tokens; else from when on one may, or never.
    pub(super) fn nearest(&self, mate: u32, now: u64) -> Result<u32, u64> {
        let (mut best, mut wake) = (None, u64::MAX);
        for &flow in &self.mates[mate as usize] {
            let peer = &self.peers[flow as usize];
            let left = peer.got.left();
            if left == 0 {
                continue;
            }
            if peer.sleeps > now {
                wake = wake.min(peer.sleeps);
            } else if best.is_none_or(|(least, _)| left < least) {
                best = Some((left, flow));
            }
        }
        best.map(|(_, flow)| flow).ok_or(wake)
    }

    /// Tokens that a match may have out.
    pub(super) fn window_of(&self, each: &Match) -> u32 {
        (self.window * each.channels / self.channels).max(1)
    }

    pub(super) fn list(&mut self, number: u32, now: u64) {
        let peer = &mut self.peers[number as usize];
        if peer.got.left() > 0 && !std::mem::replace(&mut peer.listed, true) {
            let mate = peer.mate;
            self.listed.push(number);
            self.mates[mate as usize].push(number);
            // A match of its sender that had nothing to do goes on.
            for each in self.present.iter_mut().filter(|each| each.mate == mate && each.next == u64::MAX) {
                (each.next, each.until) = (now, u64::MAX);
            }
        }
        if self.next_round.is_none() && !self.listed.is_empty() {
            self.next_round = Some(self.round_from(now));
        }
    }

    /// Orders offers: by what is left in the first rounds, at random later.
    pub(super) fn order(&mut self, offers: &mut [Offer], round: u64, sorted: u32) {
        if round % self.rounds < u64::from(sorted) {
            offers.sort_by_key(|offer| offer.left);
        } else {
            for last in (1..offers.len()).rev() {
                offers.swap(last, (self.draw() % (last as u64 + 1)) as usize);
            }
        }
    }

    /// Channels that the receiver has matched to a sender, and all of them.
    pub(super) fn matched(matches: &[Match], mate: Option<u32>) -> u32 {
        let asked = |each: &&Match| mate.is_none_or(|mate| each.mate == mate);
        matches.iter().filter(asked).map(|each| each.channels).sum()
    }

    /// What the receiver does as a round begins.
    pub(super) fn begin_round(&mut self, dcpim: &DcPim, number: u64, out: &mut Outbox) {
        let now = self.begins(number);
        if number > 0 {
            self.accept(dcpim, number - 1, now, out);
        }
        if number.is_multiple_of(self.rounds) {
            self.turn_epoch(now);
        }
        let Self { listed, peers, mates, .. } = self;
        listed.retain(|&each| {
            let peer = &mut peers[each as usize];
            peer.listed = peer.got.left() > 0;
            if !peer.listed {
                mates[peer.mate as usize].retain(|&other| other != each);
            }
            peer.listed
        });
        if self.listed.is_empty() && self.present.is_empty() && self.coming.is_empty() {
            self.next_round = None;
            return;
        }
        self.next_round = Some(number + 1);
        self.request(number, now, out);
    }

    /// The receiver accepts the grants of round `number`.
    pub(super) fn accept(&mut self, dcpim: &DcPim, number: u64, now: u64, out: &mut Outbox) {
        let mut grants = std::mem::take(&mut self.grants);
        self.order(&mut grants, number, dcpim.sorted_rounds);
        let epoch = number / self.rounds;
        for Offer { flow, channels, prompt, .. } in grants {
            let free = self.channels - Self::matched(&self.coming, None).min(self.channels);
            let channels = channels.min(free);
            let mate = self.peers[flow as usize].mate;
            let done = |&flow: &u32| self.peers[flow as usize].got.left() == 0;
            if channels == 0 || self.mates[mate as usize].iter().all(done) {
                continue;
            }
            let busy = Self::matched(&self.present, None).min(self.channels);
            let prompt = prompt.min(self.channels - busy).min(channels);
            let good = |epoch: u64| epoch * self.phase + self.matching + self.slack;
            self.coming.push(Match {
                mate,
                channels,
                priority: 0,
                good: good(epoch + 1),
                next: u64::MAX,
                until: u64::MAX,
            });
            if prompt > 0 {
                // A prompt channel ends with the matching, and what is late then has lost its turn.
                let good = good(epoch) - self.slack;
                let of_it = |each: &&mut Match| each.mate == mate && each.priority == PROMPT;
                if let Some(known) = self.present.iter_mut().find(of_it) {
                    (known.channels, known.next, known.until) = (known.channels + prompt, now, u64::MAX);
                } else {
                    let (priority, next, until) = (PROMPT, now, u64::MAX);
                    self.present.push(Match { mate, channels: prompt, priority, good, next, until });
                }
            }
            let note = Note { kind: ACCEPT, a: channels, b: prompt, c: number };
            self.note(flow, true, note, out);
        }
    }

    /// The matches of an epoch end, and those of the next begin.
    pub(super) fn turn_epoch(&mut self, now: u64) {
        self.present.clear();
        let mut coming = std::mem::take(&mut self.coming);
        let left = |flow: &u32| self.peers[*flow as usize].got.left();
        coming.sort_by_cached_key(|each| self.mates[each.mate as usize].iter().map(left).min());
        let mut before = 0;
        for mut each in coming {
            // Several grants of one sender make one match.
            if let Some(known) = self.present.iter_mut().find(|known| known.mate == each.mate) {
                known.channels += each.channels;
                before += each.channels;
                continue;
            }
            each.priority = (2 + before).min(u32::from(PROMPT) - 1) as u8;
            before += each.channels;
            each.next = now;
            // Each epoch has a window of its own: what is out of the last one may have lost its turn.
            for &flow in &self.mates[each.mate as usize] {
                let got = &mut self.peers[flow as usize].got;
                got.seen = got.given;
            }
            self.present.push(each);
        }
    }

    /// The receiver asks the senders of what is missing.
    pub(super) fn request(&mut self, number: u64, now: u64, out: &mut Outbox) {
        let free = self.channels - Self::matched(&self.coming, None).min(self.channels);
        let idle = self.channels - Self::matched(&self.present, None).min(self.channels);
        if free == 0 {
            return;
        }
        let mut chosen: Vec<u32> = Vec::new();
        // Of each sender the flow nearest to its end.
        for &each in &self.listed {
            let peer = &self.peers[each as usize];
            if peer.sleeps > now {
                continue;
            }
            let place = &mut self.asks[peer.mate as usize];
            if *place == 0 {
                chosen.push(each);
                *place = chosen.len() as u32;
            } else {
                let other = &mut chosen[*place as usize - 1];
                if self.peers[*other as usize].got.left() > peer.got.left() {
                    *other = each;
                }
            }
        }
        for flow in chosen {
            let (left, mate) = (self.peers[flow as usize].got.left(), self.peers[flow as usize].mate);
            self.asks[mate as usize] = 0;
            let has = Self::matched(&self.present, Some(mate)) + Self::matched(&self.coming, Some(mate));
            let need = left.div_ceil(self.per_channel).saturating_sub(has).min(free);
            if need > 0 {
                let note =
                    Note { kind: REQUEST, a: need, b: left, c: number << 8 | u64::from(need.min(idle)) };
                self.note(flow, true, note, out);
            }
        }
    }

    /// The sender grants what it has free to those that asked in a round.
    pub(super) fn grant(&mut self, dcpim: &DcPim, out: &mut Outbox) {
        let mut requests = std::mem::take(&mut self.requests);
        let number = self.asked;
        let epoch = number / self.rounds;
        self.shift(epoch);
        self.order(&mut requests, number, dcpim.sorted_rounds);
        let mut free = self.channels.saturating_sub(self.used[0]);
        let mut idle = self.channels.saturating_sub(self.used[1]);
        for Offer { flow, left, channels, prompt } in requests {
            let channels = channels.min(free);
            if channels == 0 || self.flows[flow as usize].una >= self.flows[flow as usize].limit {
                continue;
            }
            let prompt = prompt.min(idle).min(channels);
            (free, idle) = (free - channels, idle - prompt);
            let note = Note { kind: GRANT, a: channels, b: left, c: number << 8 | u64::from(prompt) };
            self.note(flow, false, note, out);
        }
    }

    /// Counts for the epoch being matched begin.
    pub(super) fn shift(&mut self, epoch: u64) {
        if epoch > self.used_epoch {
            let before = if epoch == self.used_epoch + 1 { self.used[0] } else { 0 };
            (self.used, self.used_epoch) = ([0, before], epoch);
        }
    }

    /// Tokens of the matches whose turn has come.
    pub(super) fn give(&mut self, now: u64, out: &mut Outbox) {
        for place in 0..self.present.len() {
            let each = self.present[place];
            if each.next > now && each.until > now {
                continue;
            }
            let window = self.window_of(&each);
            let pause = self.slot * u64::from(self.channels) / u64::from(each.channels.max(1));
            if self.hold > 0 {
                self.hold -= 1;
                (self.present[place].next, self.present[place].until) = (now + pause, u64::MAX);
                continue;
            }
            let flow = match self.nearest(each.mate, now) {
                Ok(flow) => flow,
                Err(wake) => {
                    (self.present[place].next, self.present[place].until) = (u64::MAX, wake);
                    continue;
                }
            };
            let peer = &mut self.peers[flow as usize];
            if peer.got.out() > window {
                if each.until <= now {
                    peer.got.seen = peer.got.given - window;
                } else {
                    (self.present[place].next, self.present[place].until) =
                        (u64::MAX, now + self.window_timeout);
                    continue;
                }
            }
            let Some(sequence) = peer.got.missing(peer.got.at..peer.got.limit) else {
                // A pass is over.
                peer.got.at = peer.got.expected;
                peer.sleeps = now + self.resend;
                (self.present[place].next, self.present[place].until) = (now + pause, u64::MAX);
                continue;
            };
            peer.got.at = sequence + 1;
            let (token, good) = (peer.got.given, each.good);
            peer.got.given += 1;
            self.present[place].next = now + pause;
            self.present[place].until = u64::MAX;
            let note = Note { kind: TOKEN, a: sequence, b: token, c: good << 4 | u64::from(each.priority) };
            self.counts[0] += 1;
            self.note(flow, true, note, out);
        }
    }

    pub(super) fn announce(&mut self, number: u32, now: u64, free: bool, out: &mut Outbox) {
        let flow = &mut self.flows[number as usize];
        let watched = std::mem::replace(&mut flow.watched, true);
        let note = Note { kind: RTS, a: flow.limit, b: flow.size, c: u64::from(free) };
        self.note(number, false, note, out);
        if !watched {
            self.watch.push_back((now + self.patience, number));
        }
    }

    /// When the sender answers those that asked.
    pub(super) fn answers(&self) -> Option<u64> {
        (!self.requests.is_empty()).then(|| self.begins(self.asked) + self.round / 2)
    }
}
