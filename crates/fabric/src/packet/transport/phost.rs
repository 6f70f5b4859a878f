//! pHost: Gao et al., "pHost: distributed near-optimal datacenter transport over commodity network fabric", CoNEXT 2015.
//!
//! **Life of a packet.** A sender announces a flow (RTS). The receiver gives one token per packet time of its port, to the flow that has the
//! fewest packets left (§3.2). A token names a packet and is good for 1.5 packet times; when its port is free, a sender serves the flow with
//! the fewest packets left among those with a token. A flow of at most a bandwidth–delay product has tokens for all of it from the start.
//!
//! **Free tokens** (as in the simulator that dcPIM is compared in) are good for as many packet times as there are, and those of a token.
//! They count as given: the flow is given no more for twice that long. From an announcement on, a receiver gives nobody a token for as many
//! slots as the flow has free tokens; the number is the receiver's, and another announcement sets it anew. So of many short flows at once
//! it leaves slots to one, not to all of them: their senders can use only few of the tokens before they lapse.
//!
//! **Window.** A receiver stops giving tokens to a flow of which `window` are out without data. It then waits for `window_timeout` after the
//! last one; data that arrives meanwhile does not wake it (as in the simulator that dcPIM is compared in). So a flow alone has one window of
//! tokens each window and `window_timeout`, where the window is less than what a round trip holds.
//!
//! **Losses** are mended by the receiver: when it has given a token for each packet, it waits for `resend`, and gives tokens for what is missing.

use std::collections::VecDeque;

use windtunnel_kernel::{Span, Time};

use super::Recovery;
use super::dispatch::{
    Dispatcher, Dispatching, FabricFacts, FlowFacts, Heard, Joined, Landed, Line, LinePort, Lines, Load,
    NicFacts, Note, Outbox, Parcel, Tally,
};
use super::tokens::Received;

const RTS: u8 = 0;
const TOKEN: u8 = 1;
const ACK: u8 = 2;

/// Parameters. Times are in packet times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PHost {
    /// Flows of at most so many bandwidth–delay products have tokens for all packets at the start.
    pub initial: f64,
    /// Whether one of just that size has none.
    pub strict: bool,
    /// Tokens out without data, in bandwidth–delay products.
    pub window: f64,
    /// For how long a token is good.
    pub token_timeout: f64,
    /// From the last token of a flow to tokens for what is missing; a bandwidth–delay product and 2.
    pub resend: Option<u32>,
    /// From the last token of a flow whose window is full to the next; three bandwidth–delay products and 4.
    pub window_timeout: Option<u32>,
    /// Bytes that a port keeps waiting, where `network.buffers` is not given.
    pub port_buffer: u32,
    /// No say: losses are mended as above.
    pub recovery: Recovery,
    /// From an announcement to the next where nothing is heard.
    pub timeout: Span,
}

impl Default for PHost {
    fn default() -> Self {
        Self {
            initial: 1.0,
            strict: false,
            window: 1.0,
            token_timeout: 1.5,
            resend: None,
            window_timeout: None,
            port_buffer: 500_000,
            recovery: Recovery::TIMER,
            timeout: Span::from_us(1_000),
        }
    }
}

super::built_in::built_in! {
    PHost: "receivers give tokens, one each packet time, to the flow nearest to its end (pHost)", recovery: recovery, timeout: timeout,
    parameters: {
        "initial_tokens" => Positive(initial), "flows of so many bandwidth–delay products have tokens at the start";
        "strict" => Flag(strict), "whether a flow of just that size has none";
        "token_window" => Positive(window), "tokens out without data, in bandwidth–delay products";
        "token_timeout" => Positive(token_timeout), "packet times for which a token is good";
        "resend" => Packets(resend), "packet times to tokens for what is missing; left out: a bandwidth–delay product and 2";
        "window_timeout" => Packets(window_timeout), "packet times for which a full window waits; left out: three of them and 4";
        "port_buffer" => Count(port_buffer), "bytes of a port's buffer where `network.buffers` is not given";
    }
}

crate::dispatched!(PHost);

/// A flow that is sent.
#[derive(Clone, Debug, Default)]
struct Flow {
    una: u32,
    limit: u32,
    /// What the last token said.
    remaining: u32,
    /// Until when each token is good, its packet, its number.
    tokens: VecDeque<(u64, u32, u32)>,
    active: bool,
    heard: u64,
    watched: bool,
    /// The number of the next free token.
    numbered: u32,
}

/// A flow that is received.
#[derive(Clone, Debug, Default)]
struct Peer {
    got: Received,
    /// How many tokens are due before a pause.
    goal: u32,
    last: u64,
    sleeps: u64,
    listed: bool,
}

/// A NIC port.
#[derive(Clone, Debug, Default)]
pub struct PHostNic {
    slot: u64,
    initial: u32,
    window: u32,
    resend: u64,
    window_timeout: u64,
    good: u64,
    patience: u64,
    paths: u32,
    turn: u32,
    flows: Vec<Flow>,
    active: Vec<u32>,
    watch: VecDeque<(u64, u32)>,
    peers: Vec<Peer>,
    listed: Vec<u32>,
    /// When the next slot for a token is; `None` while nobody wants one.
    next_token: Option<u64>,
    /// No slot is before.
    next_slot: u64,
    /// Slots left to packets that need no token.
    hold: u32,
    tokens: u64,
    expired: u64,
}

impl PHostNic {
    fn path(&mut self) -> u16 {
        self.turn = self.turn.wrapping_add(1);
        (self.turn & (self.paths - 1)) as u16
    }

    fn note(&mut self, flow: u32, back: bool, note: Note, out: &mut Outbox) {
        let path = self.path();
        out.send(Parcel { flow, back, load: Load::Note(note), line: 0, path, rank: 0 });
    }

    /// Announces a flow, the last `free` packets of which have free tokens.
    fn announce(&mut self, number: u32, free: u32, now: u64, out: &mut Outbox) {
        let flow = &self.flows[number as usize];
        let note = Note { kind: RTS, a: flow.limit, b: flow.una, c: u64::from(free) };
        self.note(number, false, note, out);
        if !std::mem::replace(&mut self.flows[number as usize].watched, true) {
            self.watch.push_back((now + self.patience, number));
        }
    }

    /// The token clock: one slot.
    fn give(&mut self, now: u64, out: &mut Outbox) {
        if self.hold > 0 {
            self.hold -= 1;
            self.next_slot = now + self.slot;
            self.next_token = Some(self.next_slot);
            return;
        }
        self.listed.retain(|&number| {
            let peer = &mut self.peers[number as usize];
            peer.listed = peer.got.arrived < peer.got.limit;
            peer.listed
        });
        let (mut best, mut wake) = (None, u64::MAX);
        for &number in &self.listed {
            let peer = &mut self.peers[number as usize];
            if peer.sleeps > now {
                wake = wake.min(peer.sleeps);
                continue;
            }
            if peer.got.out() >= self.window {
                let until = peer.last + self.window_timeout;
                if until > now {
                    wake = wake.min(until);
                    continue;
                }
                // One more.
                peer.got.seen = peer.got.given + 1 - self.window;
            }
            let left = peer.got.limit - peer.got.arrived;
            if best.is_none_or(|(least, _)| left <= least) {
                best = Some((left, number));
            }
        }
        let Some((left, number)) = best else {
            self.next_token = (wake < u64::MAX).then_some(wake);
            return;
        };
        self.next_slot = now + self.slot;
        self.next_token = Some(self.next_slot);
        let peer = &mut self.peers[number as usize];
        if peer.got.given >= peer.goal {
            // A pause is over: what is missing now is asked for again.
            peer.goal = peer.got.given + left;
        }
        let from = peer.got.at;
        let got = &peer.got;
        let Some(sequence) = got.missing(from..got.limit).or_else(|| got.missing(got.expected..from)) else {
            return;
        };
        peer.got.at = sequence + 1;
        peer.last = now;
        let note = Note { kind: TOKEN, a: sequence, b: peer.got.given, c: u64::from(left) };
        peer.got.given += 1;
        if peer.got.given >= peer.goal {
            peer.sleeps = now + self.resend;
        }
        self.tokens += 1;
        self.note(number, true, note, out);
    }

    fn list(&mut self, number: u32, now: u64) {
        let peer = &mut self.peers[number as usize];
        if peer.got.arrived < peer.got.limit && !std::mem::replace(&mut peer.listed, true) {
            self.listed.push(number);
            let first = self.next_slot.max(now);
            self.next_token = Some(self.next_token.map_or(first, |at| at.min(first)));
        }
    }
}

impl Dispatcher for PHost {
    type Used = Dispatching;
    type Nic = PHostNic;
    const NAME: &'static str = "phost";
    const SPRAYS: bool = true;

    fn lines(&self, port: &LinePort, fabric: &FabricFacts) -> Lines {
        let shared = (!port.nic).then(|| fabric.buffer.unwrap_or(self.port_buffer));
        Lines { lines: vec![Line::default(); 2], shared }
    }

    fn open_nic(&self, nic: &mut PHostNic, facts: &NicFacts) {
        let fabric = &facts.fabric;
        let bdp = fabric.bdp_packets();
        nic.slot = fabric.packet_time().ps();
        nic.initial = (f64::from(bdp) * self.initial) as u32;
        nic.window = ((f64::from(bdp) * self.window) as u32).max(1);
        nic.resend = u64::from(self.resend.unwrap_or(bdp + 2)) * nic.slot;
        nic.window_timeout = u64::from(self.window_timeout.unwrap_or(3 * bdp + 4)) * nic.slot;
        nic.good = (nic.slot as f64 * self.token_timeout) as u64;
        nic.patience = self.timeout.ps();
        nic.paths = fabric.paths;
        nic.turn = facts.port.wrapping_mul(7);
    }

    fn open(&self, nic: &mut PHostNic, _: &FlowFacts) {
        nic.flows.push(Flow::default());
    }

    fn accept(&self, nic: &mut PHostNic, _: &FlowFacts) {
        nic.peers.push(Peer::default());
    }

    fn abandon(&self, nic: &mut PHostNic, flow: u32, back: bool) {
        if back {
            let peer = &mut nic.peers[flow as usize];
            peer.got.arrived = peer.got.limit;
        } else {
            let flow = &mut nic.flows[flow as usize];
            flow.una = flow.limit;
            flow.tokens.clear();
        }
    }

    fn on_message(&self, nic: &mut PHostNic, message: &Joined, out: &mut Outbox) {
        let now = message.now.ps();
        let flow = &mut nic.flows[message.flow as usize];
        flow.limit += message.packets;
        flow.heard = now;
        let short = message.packets < nic.initial || message.packets == nic.initial && !self.strict;
        if short {
            let good = now + u64::from(message.packets) * nic.slot + nic.good;
            flow.remaining = message.packets;
            for sequence in message.first..message.first + message.packets {
                flow.tokens.push_back((good, sequence, flow.numbered));
                flow.numbered += 1;
            }
            if !std::mem::replace(&mut flow.active, true) {
                nic.active.push(message.flow);
            }
        }
        nic.announce(message.flow, if short { message.packets } else { 0 }, now, out);
    }

    fn on_note(&self, nic: &mut PHostNic, heard: &Heard, out: &mut Outbox) {
        let Note { kind, a, b, c } = heard.note;
        let now = heard.now.ps();
        match kind {
            RTS => {
                let peer = &mut nic.peers[heard.flow as usize];
                if a > peer.got.limit {
                    let (added, free) = (a - peer.got.limit, c as u32);
                    peer.goal += added;
                    peer.got.limit = a;
                    peer.sleeps = 0;
                    if free > 0 {
                        peer.got.given += free;
                        peer.got.at = a;
                        peer.last = now;
                        if peer.got.given >= peer.goal {
                            peer.sleeps = now + 2 * u64::from(free) * nic.slot;
                        }
                    }
                    nic.hold = free;
                } else if peer.got.left() == 0 {
                    // Announced again though all of it is here: what told so was lost.
                    let note = Note { kind: ACK, a: peer.got.expected, ..Note::default() };
                    nic.note(heard.flow, true, note, out);
                }
                nic.list(heard.flow, now);
            }
            TOKEN => {
                let flow = &mut nic.flows[heard.flow as usize];
                flow.heard = now;
                flow.remaining = c as u32;
                flow.numbered = flow.numbered.max(b + 1);
                flow.tokens.push_back((now + nic.good, a, b));
                if !std::mem::replace(&mut flow.active, true) {
                    nic.active.push(heard.flow);
                }
            }
            _ => {
                let flow = &mut nic.flows[heard.flow as usize];
                flow.heard = now;
                if a > flow.una {
                    flow.una = a;
                    out.arrived(heard.flow, a);
                }
            }
        }
    }

    fn on_data(&self, nic: &mut PHostNic, data: &Landed, out: &mut Outbox) {
        let peer = &mut nic.peers[data.flow as usize];
        peer.got.take(data);
        // Free tokens are used before the announcement that tells of them.
        peer.got.given = peer.got.given.max(peer.got.seen);
        if data.whole || !data.fresh {
            let note = Note { kind: ACK, a: data.expected, ..Note::default() };
            nic.note(data.flow, true, note, out);
        }
    }

    fn next(&self, nic: &mut PHostNic, now: Time, _: &mut Outbox) -> Option<Parcel> {
        let now = now.ps();
        let (mut best, mut expired) = (None, 0);
        let PHostNic { active, flows, .. } = nic;
        active.retain(|&number| {
            let flow = &mut flows[number as usize];
            while let Some(&(good, sequence, _)) = flow.tokens.front()
                && (good < now || sequence < flow.una)
            {
                flow.tokens.pop_front();
                expired += 1;
            }
            flow.active = !flow.tokens.is_empty();
            if flow.active && best.is_none_or(|(least, _)| flow.remaining <= least) {
                best = Some((flow.remaining, number));
            }
            flow.active
        });
        nic.expired += expired;
        let (_, number) = best?;
        let path = nic.path();
        let (_, sequence, token) = nic.flows[number as usize].tokens.pop_front()?;
        Some(Parcel { flow: number, back: false, load: Load::Data(sequence), line: 1, path, rank: token + 1 })
    }

    fn timer(&self, nic: &PHostNic) -> Option<Time> {
        let watch = nic.watch.front().map(|&(due, _)| due);
        [nic.next_token, watch].into_iter().flatten().min().map(Time::from_ps)
    }

    fn on_timer(&self, nic: &mut PHostNic, now: Time, out: &mut Outbox) {
        let now = now.ps();
        if nic.next_token.is_some_and(|at| at <= now) {
            nic.give(now, out);
        }
        while let Some(&(due, number)) = nic.watch.front()
            && due <= now
        {
            nic.watch.pop_front();
            let flow = &mut nic.flows[number as usize];
            flow.watched = false;
            if flow.una >= flow.limit {
                continue;
            }
            if flow.heard + nic.patience > now {
                flow.watched = true;
                nic.watch.push_back((now + nic.patience, number));
            } else {
                nic.announce(number, 0, now, out);
            }
        }
    }

    fn tell(&self, nic: &PHostNic, tally: &mut Tally) {
        tally.add("tokens_sent", nic.tokens);
        tally.add("tokens_expired", nic.expired);
    }
}
