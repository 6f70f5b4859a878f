//! dcPIM: Cai, Arashloo and Agarwal, "dcPIM: near-optimal proactive datacenter transport", SIGCOMM 2022.
//!
//! **Matching.** Time goes in epochs, which all hosts know. While the data of an epoch flows, hosts match for the next one in `rounds` rounds
//! of β control round trips (§3.2, §3.3). In each a receiver asks senders for as many of its `channels` as their flows can fill, half a round
//! later a sender grants what it has free, and as the next begins the receiver accepts. In the first round both prefer what is nearest to its
//! end, later they draw. A channel that is idle in the present epoch may be used at once, by the lowest priority (a prompt one).
//!
//! **Data.** In its epoch a receiver gives each matched flow a token every channels / c packet times, while less than a window is out. Flows
//! of at most a bandwidth–delay product are sent at once; what they lose is asked for as a long flow is. Ports know priorities by the
//! size of flows.
//!
//! **As far as it goes.** Clocks agree. A sender whose grants are accepted twice over shares its port.

use std::collections::VecDeque;

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Span, Time};

use super::Recovery;
use super::dispatch::{
    Dispatcher, Dispatching, FabricFacts, FlowFacts, Heard, Joined, Landed, Line, LinePort, Lines, Load,
    NicFacts, Note, Outbox, Parcel, Tally,
};
use crate::packet::message::Arrivals;

const RTS: u8 = 0;
const REQUEST: u8 = 1;
const GRANT: u8 = 2;
const ACCEPT: u8 = 3;
const TOKEN: u8 = 4;
const ACK: u8 = 5;

/// Priority of tokens of prompt channels, and how many priorities tokens have.
const PROMPT: u8 = 7;
const LEVELS: usize = 8;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcPim {
    /// Rounds of a matching.
    pub rounds: u32,
    /// A round in control round trips.
    pub beta: f64,
    /// The data phase in matchings, at least 1.
    pub alpha: f64,
    /// Channels of a host.
    pub channels: u32,
    /// Rounds that go by what is left of flows; later ones draw.
    pub sorted_rounds: u32,
    /// Flows of at most so many bandwidth–delay products are sent at once.
    pub initial: f64,
    /// Whether one of just that size is not.
    pub strict: bool,
    /// Tokens out without data, in bandwidth–delay products, for all channels together.
    pub window: f64,
    /// From the last token of a pass to tokens for what is missing, in bandwidth–delay products of packet times.
    pub resend: f64,
    /// For how long a full window waits, likewise.
    pub window_timeout: f64,
    /// Bytes that a port keeps waiting, where `network.buffers` is not given.
    pub port_buffer: u32,
    /// No say: losses are mended as above.
    pub recovery: Recovery,
    /// From an announcement to the next where nothing is heard.
    pub timeout: Span,
}

impl Default for DcPim {
    fn default() -> Self {
        Self {
            rounds: 4,
            beta: 1.3,
            alpha: 1.0,
            channels: 4,
            sorted_rounds: 1,
            initial: 1.0,
            strict: false,
            window: 1.0,
            resend: 1.0,
            window_timeout: 1.1,
            port_buffer: 500_000,
            recovery: Recovery::TIMER,
            timeout: Span::from_us(1_000),
        }
    }
}

super::built_in::built_in! {
    DcPim: "hosts match senders with receivers for the epoch to come (dcPIM)", recovery: recovery, timeout: timeout,
    parameters: {
        "rounds" => Count(rounds), "rounds of a matching";
        "beta" => Positive(beta), "a round in control round trips";
        "alpha" => Positive(alpha), "the data phase in matchings, at least 1";
        "channels" => Count(channels), "channels of a host";
        "sorted_rounds" => Count(sorted_rounds), "rounds that go by what is left of flows";
        "initial_tokens" => Positive(initial), "flows of so many bandwidth–delay products are sent at once";
        "strict" => Flag(strict), "whether a flow of just that size is not";
        "token_window" => Positive(window), "tokens out without data, in bandwidth–delay products";
        "resend" => Positive(resend), "from a pass to the next over what is missing, in bandwidth–delay products";
        "window_timeout" => Positive(window_timeout), "for how long a full window waits, in bandwidth–delay products";
        "port_buffer" => Count(port_buffer), "bytes of a port's buffer where `network.buffers` is not given";
    }
}

crate::dispatched!(DcPim);

/// A flow that is sent.
#[derive(Clone, Debug, Default)]
struct Flow {
    una: u32,
    limit: u32,
    /// Packets of its last message: its priority at ports goes by them.
    size: u32,
    heard: u64,
    watched: bool,
}

/// A flow that is received.
#[derive(Clone, Debug, Default)]
struct Peer {
    from: u32,
    limit: u32,
    arrived: u32,
    expected: u32,
    beyond: Arrivals,
    given: u32,
    seen: u32,
    at: u32,
    /// Until when it is short, or waits for what it has been given.
    sleeps: u64,
    listed: bool,
}

impl Peer {
    /// Packets to come: none where a message was given up after more had arrived than it still is.
    fn left(&self) -> u32 {
        self.limit.saturating_sub(self.arrived)
    }
}

/// A flow that is matched: channels of the epoch, and its token clock.
#[derive(Clone, Copy, Debug)]
struct Match {
    flow: u32,
    channels: u32,
    priority: u8,
    /// Until when its tokens are good.
    good: u64,
    /// The next token; `u64::MAX`: data or `until` wakes it.
    next: u64,
    until: u64,
}

/// Who asks, grants or accepts: flow, what is left of it, channels, prompt ones.
#[derive(Clone, Copy, Debug)]
struct Offer {
    flow: u32,
    left: u32,
    channels: u32,
    prompt: u32,
}

/// A NIC port.
#[derive(Clone, Debug, Default)]
pub struct DcPimNic {
    key: u64,
    draws: u64,
    slot: u64,
    round: u64,
    matching: u64,
    phase: u64,
    rounds: u64,
    channels: u32,
    per_channel: u32,
    short: u32,
    window: u32,
    resend: u64,
    window_timeout: u64,
    slack: u64,
    patience: u64,
    paths: u32,
    turn: u32,
    flows: Vec<Flow>,
    peers: Vec<Peer>,
    /// Peers with something missing.
    listed: Vec<u32>,
    watch: VecDeque<(u64, u32)>,
    /// The receiver's next round, from the first of all.
    next_round: Option<u64>,
    present: Vec<Match>,
    coming: Vec<Match>,
    grants: Vec<Offer>,
    /// The sender's: requests of which round, and channels accepted for the epoch being matched and the one before.
    requests: Vec<Offer>,
    asked: u64,
    used: [u32; 2],
    used_epoch: u64,
    /// Tokens by priority: until when, flow, packet, number.
    tokens: [VecDeque<(u64, u32, u32, u32)>; LEVELS],
    counts: [u64; 2],
}

impl DcPimNic {
    fn draw(&mut self) -> u64 {
        self.draws += 1;
        combine(self.key, self.draws)
    }

    fn path(&mut self) -> u16 {
        self.turn = self.turn.wrapping_add(1);
        (self.turn & (self.paths - 1)) as u16
    }

    fn note(&mut self, flow: u32, back: bool, note: Note, out: &mut Outbox) {
        let path = self.path();
        out.send(Parcel { flow, back, load: Load::Note(note), line: 0, path, rank: 0 });
    }

    /// When round `number` begins.
    fn begins(&self, number: u64) -> u64 {
        number / self.rounds * self.phase + number % self.rounds * self.round
    }

    /// The first round that begins at `now` or later.
    fn round_from(&self, now: u64) -> u64 {
        let epoch = now / self.phase;
        let within = (now % self.phase).div_ceil(self.round).min(self.rounds);
        epoch * self.rounds + within
    }

    fn list(&mut self, number: u32, now: u64) {
        let peer = &mut self.peers[number as usize];
        if peer.left() > 0 && !std::mem::replace(&mut peer.listed, true) {
            self.listed.push(number);
        }
        if self.next_round.is_none() && !self.listed.is_empty() {
            self.next_round = Some(self.round_from(now));
        }
    }

    /// Orders offers: by what is left in the first rounds, at random later.
    fn order(&mut self, offers: &mut [Offer], round: u64, sorted: u32) {
        if round % self.rounds < u64::from(sorted) {
            offers.sort_by_key(|offer| offer.left);
        } else {
            for last in (1..offers.len()).rev() {
                offers.swap(last, (self.draw() % (last as u64 + 1)) as usize);
            }
        }
    }

    /// Channels that the receiver has matched to a flow, and all of them.
    fn matched(matches: &[Match], flow: Option<u32>) -> u32 {
        matches
            .iter()
            .filter(|each| flow.is_none_or(|flow| each.flow == flow))
            .map(|each| each.channels)
            .sum()
    }

    /// What the receiver does as a round begins.
    fn begin_round(&mut self, dcpim: &DcPim, number: u64, out: &mut Outbox) {
        let now = self.begins(number);
        if number > 0 {
            self.accept(dcpim, number - 1, now, out);
        }
        if number.is_multiple_of(self.rounds) {
            self.turn_epoch(now);
        }
        self.listed.retain(|&each| {
            let peer = &mut self.peers[each as usize];
            peer.listed = peer.left() > 0;
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
    fn accept(&mut self, dcpim: &DcPim, number: u64, now: u64, out: &mut Outbox) {
        let mut grants = std::mem::take(&mut self.grants);
        self.order(&mut grants, number, dcpim.sorted_rounds);
        let epoch = number / self.rounds;
        for Offer { flow, channels, prompt, .. } in grants {
            let free = self.channels - Self::matched(&self.coming, None).min(self.channels);
            let channels = channels.min(free);
            if channels == 0 || self.peers[flow as usize].left() == 0 {
                continue;
            }
            let busy = Self::matched(&self.present, None).min(self.channels);
            let prompt = prompt.min(self.channels - busy).min(channels);
            let good = |epoch: u64| epoch * self.phase + self.matching + self.slack;
            self.coming.push(Match {
                flow,
                channels,
                priority: 0,
                good: good(epoch + 1),
                next: u64::MAX,
                until: u64::MAX,
            });
            if prompt > 0 {
                // A prompt channel ends with the matching, and what is late then has lost its turn.
                let good = good(epoch) - self.slack;
                self.present.push(Match {
                    flow,
                    channels: prompt,
                    priority: PROMPT,
                    good,
                    next: now,
                    until: u64::MAX,
                });
            }
            let note = Note { kind: ACCEPT, a: channels, b: prompt, c: number };
            self.note(flow, true, note, out);
        }
    }

    /// The matches of an epoch end, and those of the next begin.
    fn turn_epoch(&mut self, now: u64) {
        self.present.clear();
        let mut coming = std::mem::take(&mut self.coming);
        coming.sort_by_key(|each| self.peers[each.flow as usize].left());
        let mut before = 0;
        for mut each in coming {
            // Several grants of one flow make one match.
            if let Some(known) = self.present.iter_mut().find(|known| known.flow == each.flow) {
                known.channels += each.channels;
                before += each.channels;
                continue;
            }
            each.priority = (2 + before).min(u32::from(PROMPT) - 1) as u8;
            before += each.channels;
            each.next = now;
            // Each epoch has a window of its own: what is out of the last one may have lost its turn.
            let peer = &mut self.peers[each.flow as usize];
            peer.seen = peer.given;
            self.present.push(each);
        }
    }

    /// The receiver asks the senders of what is missing.
    fn request(&mut self, number: u64, now: u64, out: &mut Outbox) {
        let free = self.channels - Self::matched(&self.coming, None).min(self.channels);
        let idle = self.channels - Self::matched(&self.present, None).min(self.channels);
        if free == 0 {
            return;
        }
        let mut chosen: Vec<u32> = Vec::new();
        // Of each sender the flow nearest to its end.
        for &each in &self.listed {
            let peer = &self.peers[each as usize];
            if peer.sleeps > now && peer.given == 0 {
                continue;
            }
            match chosen.iter_mut().find(|other| self.peers[**other as usize].from == peer.from) {
                Some(other) if self.peers[*other as usize].left() > peer.left() => *other = each,
                Some(_) => {}
                None => chosen.push(each),
            }
        }
        for flow in chosen {
            let left = self.peers[flow as usize].left();
            let has = Self::matched(&self.present, Some(flow)) + Self::matched(&self.coming, Some(flow));
            let need = left.div_ceil(self.per_channel).saturating_sub(has).min(free);
            if need > 0 {
                let note =
                    Note { kind: REQUEST, a: need, b: left, c: number << 8 | u64::from(need.min(idle)) };
                self.note(flow, true, note, out);
            }
        }
    }

    /// The sender grants what it has free to those that asked in a round.
    fn grant(&mut self, dcpim: &DcPim, out: &mut Outbox) {
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
    fn shift(&mut self, epoch: u64) {
        if epoch > self.used_epoch {
            let before = if epoch == self.used_epoch + 1 { self.used[0] } else { 0 };
            (self.used, self.used_epoch) = ([0, before], epoch);
        }
    }

    /// Tokens of the matches whose turn has come.
    fn give(&mut self, now: u64, out: &mut Outbox) {
        for place in 0..self.present.len() {
            let each = self.present[place];
            if each.next > now && each.until > now {
                continue;
            }
            let window = (self.window * each.channels / self.channels).max(1);
            let (slot, channels) = (self.slot, self.channels);
            let peer = &mut self.peers[each.flow as usize];
            let out_now = peer.given.saturating_sub(peer.seen);
            if peer.left() == 0 {
                (self.present[place].next, self.present[place].until) = (u64::MAX, u64::MAX);
                continue;
            }
            if peer.sleeps > now {
                (self.present[place].next, self.present[place].until) = (u64::MAX, peer.sleeps);
                continue;
            }
            if out_now > window {
                if each.until <= now {
                    peer.seen = peer.given - window;
                } else {
                    (self.present[place].next, self.present[place].until) =
                        (u64::MAX, now + self.window_timeout);
                    continue;
                }
            }
            let missing = |at: &u32| *at >= peer.expected && !peer.beyond.has(*at);
            let Some(sequence) = (peer.at..peer.limit).find(missing) else {
                // A pass is over.
                peer.at = peer.expected;
                peer.sleeps = now + self.resend;
                (self.present[place].next, self.present[place].until) = (u64::MAX, peer.sleeps);
                continue;
            };
            peer.at = sequence + 1;
            let (token, good) = (peer.given, each.good);
            peer.given += 1;
            self.present[place].next = now + slot * u64::from(channels) / u64::from(each.channels.max(1));
            self.present[place].until = u64::MAX;
            let note = Note { kind: TOKEN, a: sequence, b: token, c: good << 4 | u64::from(each.priority) };
            self.counts[0] += 1;
            self.note(each.flow, true, note, out);
        }
    }

    fn announce(&mut self, number: u32, now: u64, free: bool, out: &mut Outbox) {
        let flow = &mut self.flows[number as usize];
        let watched = std::mem::replace(&mut flow.watched, true);
        let note = Note { kind: RTS, a: flow.limit, b: flow.size, c: u64::from(free) };
        self.note(number, false, note, out);
        if !watched {
            self.watch.push_back((now + self.patience, number));
        }
    }

    /// When the sender answers those that asked.
    fn answers(&self) -> Option<u64> {
        (!self.requests.is_empty()).then(|| self.begins(self.asked) + self.round / 2)
    }
}

impl Dispatcher for DcPim {
    type Used = Dispatching;
    type Nic = DcPimNic;
    const NAME: &'static str = "dcpim";

    fn check(&self, _: &FabricFacts) -> Result<(), String> {
        if self.alpha < 1.0 {
            return Err(format!(
                "`alpha` is {}, expected at least 1: the next matching begins with the data phase",
                self.alpha
            ));
        }
        Ok(())
    }

    fn lines(&self, port: &LinePort, fabric: &FabricFacts) -> Lines {
        let shared = (!port.nic).then(|| fabric.buffer.unwrap_or(self.port_buffer));
        Lines { lines: vec![Line::default(); 7], shared }
    }

    fn open_nic(&self, nic: &mut DcPimNic, facts: &NicFacts) {
        let fabric = &facts.fabric;
        let bdp = f64::from(fabric.bdp_packets());
        nic.key = combine(combine(facts.seed, 0x6463_7069_6d00), u64::from(facts.port));
        nic.slot = fabric.packet_time().ps();
        let control = fabric.rate.serialise(windtunnel_kernel::Bytes::new(u64::from(fabric.control))).ps();
        let trip = fabric.propagation.ps() + u64::from(2 * fabric.hops) * control;
        nic.round = ((trip as f64 * self.beta).round() as u64).max(1);
        nic.rounds = u64::from(self.rounds);
        nic.matching = nic.rounds * nic.round;
        nic.phase = (nic.matching as f64 * self.alpha).round() as u64;
        nic.channels = self.channels;
        nic.per_channel = ((nic.phase / nic.slot.max(1)) as u32 / self.channels).max(1);
        nic.short = (bdp * self.initial) as u32;
        nic.window = ((bdp * self.window) as u32).max(1);
        nic.resend = (bdp * self.resend * nic.slot as f64) as u64;
        nic.window_timeout = (bdp * self.window_timeout * nic.slot as f64) as u64;
        nic.slack = trip / 2 + u64::from(self.channels) * nic.slot;
        nic.patience = self.timeout.ps();
        nic.paths = fabric.paths;
        nic.turn = facts.port.wrapping_mul(7);
    }

    fn open(&self, nic: &mut DcPimNic, _: &FlowFacts) {
        nic.flows.push(Flow::default());
    }

    fn accept(&self, nic: &mut DcPimNic, facts: &FlowFacts) {
        nic.peers.push(Peer { from: facts.peer, ..Peer::default() });
    }

    fn abandon(&self, nic: &mut DcPimNic, flow: u32, back: bool) {
        if back {
            let peer = &mut nic.peers[flow as usize];
            peer.arrived = peer.limit;
        } else {
            let flow = &mut nic.flows[flow as usize];
            flow.una = flow.limit;
        }
    }

    fn on_message(&self, nic: &mut DcPimNic, message: &Joined, out: &mut Outbox) {
        let now = message.now.ps();
        let flow = &mut nic.flows[message.flow as usize];
        flow.limit += message.packets;
        (flow.size, flow.heard) = (message.packets, now);
        let short = message.packets < nic.short || message.packets == nic.short && !self.strict;
        if short {
            for sequence in message.first..message.first + message.packets {
                nic.tokens[1].push_back((u64::MAX, message.flow, sequence, 0));
            }
        }
        nic.announce(message.flow, now, short, out);
    }

    fn on_note(&self, nic: &mut DcPimNic, heard: &Heard, out: &mut Outbox) {
        let Note { kind, a, b, c } = heard.note;
        let now = heard.now.ps();
        let (number, few) = (c >> 8, (c & 255) as u32);
        match kind {
            RTS => {
                let short = u64::from(b) * nic.slot + nic.resend;
                let peer = &mut nic.peers[heard.flow as usize];
                if a > peer.limit {
                    peer.limit = a;
                    // What is sent at once is asked for when it should have come.
                    peer.sleeps = if c == 1 { now + short } else { 0 };
                }
                nic.list(heard.flow, now);
            }
            REQUEST => {
                // A request of an older round than another is late.
                if nic.requests.is_empty() || number > nic.asked {
                    nic.requests.clear();
                    nic.asked = number;
                }
                if number == nic.asked && now <= nic.begins(number) + nic.round / 2 {
                    nic.requests.push(Offer { flow: heard.flow, left: b, channels: a, prompt: few });
                }
            }
            GRANT => {
                if nic.next_round == Some(number + 1) {
                    nic.grants.push(Offer { flow: heard.flow, left: b, channels: a, prompt: few });
                }
            }
            ACCEPT => {
                let epoch = c / nic.rounds;
                if epoch == nic.used_epoch {
                    nic.used[0] += a;
                    nic.used[1] += b;
                } else if epoch + 1 == nic.used_epoch {
                    nic.used[1] += a;
                }
            }
            TOKEN => {
                nic.flows[heard.flow as usize].heard = now;
                let priority = (c & 15) as usize;
                nic.tokens[priority.min(LEVELS - 1)].push_back((c >> 4, heard.flow, a, b));
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

    fn on_data(&self, nic: &mut DcPimNic, data: &Landed, out: &mut Outbox) {
        let peer = &mut nic.peers[data.flow as usize];
        if data.fresh {
            peer.arrived += 1;
            if data.sequence >= data.expected {
                peer.beyond.mark(peer.expected, data.sequence);
            }
            peer.beyond.clear_range(peer.expected, data.expected.min(peer.beyond.end));
            peer.expected = data.expected;
            // Data may come before what announces it.
            peer.limit = peer.limit.max(data.sequence + 1);
        }
        peer.seen = peer.seen.max(data.rank);
        if data.whole || !data.fresh {
            nic.note(data.flow, true, Note { kind: ACK, a: data.expected, ..Note::default() }, out);
        }
        let window = |each: &Match| (nic.window * each.channels / nic.channels).max(1);
        let peer = &nic.peers[data.flow as usize];
        let (left, free) = (peer.left(), peer.given.saturating_sub(peer.seen));
        if left == 0 {
            nic.present.retain(|each| each.flow != data.flow);
            nic.coming.retain(|each| each.flow != data.flow);
        } else if peer.sleeps <= data.now.ps()
            && let Some(place) =
                nic.present.iter().position(|each| each.flow == data.flow && each.next == u64::MAX)
            && free <= window(&nic.present[place])
        {
            (nic.present[place].next, nic.present[place].until) = (data.now.ps(), u64::MAX);
        }
    }

    fn next(&self, nic: &mut DcPimNic, now: Time, _: &mut Outbox) -> Option<Parcel> {
        let now = now.ps();
        for level in 0..LEVELS {
            while let Some((good, number, sequence, token)) = nic.tokens[level].pop_front() {
                let flow = &nic.flows[number as usize];
                if good < now {
                    nic.counts[1] += 1;
                    continue;
                }
                if sequence < flow.una || flow.una >= flow.limit {
                    continue;
                }
                // 7 packets, 49, 343 and so on.
                let line = 1 + (0..5).take_while(|&power| flow.size > 7u32.pow(power + 1)).count() as u8;
                let path = nic.path();
                let rank = if level == 1 { 0 } else { token + 1 };
                return Some(Parcel {
                    flow: number,
                    back: false,
                    load: Load::Data(sequence),
                    line,
                    path,
                    rank,
                });
            }
        }
        None
    }

    fn timer(&self, nic: &DcPimNic) -> Option<Time> {
        let tokens =
            nic.present.iter().map(|each| each.next.min(each.until)).filter(|&at| at < u64::MAX).min();
        let round = nic.next_round.map(|number| nic.begins(number));
        let watch = nic.watch.front().map(|&(due, _)| due);
        [tokens, round, nic.answers(), watch].into_iter().flatten().min().map(Time::from_ps)
    }

    fn on_timer(&self, nic: &mut DcPimNic, now: Time, out: &mut Outbox) {
        let now = now.ps();
        if nic.answers().is_some_and(|at| at <= now) {
            nic.grant(self, out);
        }
        while let Some(number) = nic.next_round
            && nic.begins(number) <= now
        {
            nic.begin_round(self, number, out);
        }
        nic.give(now, out);
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
                nic.announce(number, now, false, out);
            }
        }
    }

    fn tell(&self, nic: &DcPimNic, tally: &mut Tally) {
        tally.add("tokens_sent", nic.counts[0]);
        tally.add("tokens_expired", nic.counts[1]);
    }
}
