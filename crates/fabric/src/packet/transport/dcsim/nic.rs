//! A NIC port under DCSIM: SIMs in the order in which they leave, whose turn it is, and what is due when.
//!
//! SIMs that have left are kept in order of time. Two marks go over them: DATA leave as the first passes (RTT_max, or a fraction of it,
//! after their SIM), and SIMs without an answer are given up as the second does (RTT_max after). So both need no more than a queue.

use std::collections::VecDeque;
use std::slice::from_ref;

use prefetch_index::prefetch_index;
use rustc_hash::FxHashMap;
use windtunnel_kernel::Time;
use windtunnel_kernel::random::combine;

use super::counts::Counts;
use super::flow::{Flow, Peer};
use super::watch::Watch;
use super::{BLIND, DATA, DATA_ACK, Dcsim, SIM, SIM_ACK, times};
use crate::packet::transport::dispatch::{
    Heard, Joined, Landed, Load, NicFacts, Note, Outbox, Parcel, Sent, Tally,
};

/// Nothing is due.
const NEVER: u64 = u64::MAX;

/// Fewest DATA that have left which are looked through before any is due.
const LOOK: usize = 256;

/// No packet.
const NONE: u32 = u32::MAX;

/// A SIM, from its place in the SIM line on. A port has hundreds under way, so there is as little of each as can be.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// When its first bit left; [`NEVER`] while it waits in the SIM line.
    left: u64,
    flow: u32,
    /// The first packet bound to it that has not left, or how many were promised; others are in [`DcsimNic::more`].
    bound: u32,
    promised: u32,
    path: u16,
    answered: bool,
}

/// See the module page.
#[derive(Clone, Debug, Default)]
pub struct DcsimNic {
    key: u64,
    draws: u64,
    /// The next that is drawn: what it is for is brought from memory meanwhile.
    drawn: u64,
    /// RTT_max by this host's clock, from a SIM to its DATA, to the end of a DATA's time, and to a DATA-ACK at the latest.
    rtt: u64,
    wait: u64,
    data_timeout: u64,
    ack_delay: u64,
    most: u32,
    flows: Vec<Flow>,
    peers: Vec<Peer>,
    /// Collectives: flows that want a SIM, by turns; and the collectives that have one.
    rings: Vec<VecDeque<u32>>,
    turns: VecDeque<u32>,
    groups: FxHashMap<u64, u32>,
    probes: VecDeque<Probe>,
    /// The number of the first of them, and how many from there on the first mark has passed.
    first: u32,
    passed: usize,
    /// Packets bound to SIMs, by their numbers, where one stands for several: but for the first of each.
    more: FxHashMap<u32, Vec<u32>>,
    /// SIMs that wait in the SIM line.
    queued: u32,
    /// Paths of SIMs that are under way: a bit for each.
    taken: Vec<u64>,
    /// DATA that have left: when they are overdue, whose, which.
    watched: VecDeque<(u64, u32, u32)>,
    /// So many of them are looked through.
    look: usize,
    /// When DATA are to be answered at the latest, and whose.
    owed: VecDeque<(u64, u32)>,
    /// Something has begun now.
    begun: Option<u64>,
    /// When anything is due, [`NEVER`] if nothing is. It is asked for after every call, and only [`DcsimNic::tick`] puts it off.
    due: u64,
    counts: Counts,
    watch: Option<Box<Watch>>,
}

impl DcsimNic {
    pub(super) fn open(&mut self, dcsim: &Dcsim, facts: &NicFacts) {
        self.key = combine(combine(facts.seed, 0x6463_7369_6d00), u64::from(facts.port));
        self.draw();
        let fabric = &facts.fabric;
        let rtt = dcsim.rtt(fabric);
        let drawn = self.draw() as f64 / u64::MAX as f64;
        let clock = 1.0 + dcsim.drift_ppm * 1e-6 * (2.0 * drawn - 1.0);
        self.rtt = times(rtt, clock);
        self.wait = if dcsim.asynchronous { 0 } else { times(rtt, clock * dcsim.fraction) };
        self.data_timeout = times(rtt, dcsim.data_timeout).max(dcsim.timeout.ps());
        self.ack_delay = times(fabric.propagation, dcsim.data_ack_delay);
        self.most = dcsim.sims(fabric);
        self.taken = vec![0; 1 << 10];
        self.due = NEVER;
        self.look = LOOK;
        if dcsim.watched_host == Some(facts.port + 1) {
            self.watch = Some(Box::default());
        }
    }

    /// A SIM or DATA has arrived.
    pub(super) fn watch(&mut self, now: Time, data: bool) {
        if let Some(watch) = &mut self.watch {
            watch.note(now.ps(), data);
        }
    }

    #[inline]
    fn draw(&mut self) -> u64 {
        self.draws += 1;
        let drawn = std::mem::replace(&mut self.drawn, combine(self.key, self.draws));
        prefetch_index(&self.taken, usize::from(self.drawn as u16 >> 6));
        drawn
    }

    /// What the arrival of `load` will be about is brought from memory.
    #[inline]
    pub(super) fn foresee(&self, flow: u32, back: bool, load: &Load) {
        match load {
            Load::Data(_) => prefetch_index(&self.peers, flow as usize),
            Load::Note(note) if back => {
                let place = note.a.wrapping_sub(self.first) as usize;
                if note.kind == SIM_ACK
                    && let Some(probe) = self.probes.get(place)
                {
                    prefetch_index(from_ref(probe), 0);
                }
                prefetch_index(&self.flows, flow as usize);
            }
            Load::Note(_) => {}
        }
    }

    /// The same of the next SIM.
    #[inline]
    fn foresee_turn(&self, out: &mut Outbox) {
        let ring = self.turns.front().and_then(|&group| self.rings.get(group as usize));
        if let Some(&number) = ring.and_then(VecDeque::front) {
            prefetch_index(&self.flows, number as usize);
            out.soon(number, false);
        }
    }

    /// The same of what is due next.
    #[inline]
    fn foresee_due(&self, out: &mut Outbox) {
        // These were fetched calls ago.
        for (place, data) in [(self.passed, true), (self.passed + 1, false)] {
            if let Some(probe) = self.probes.get(place) {
                out.soon(probe.flow, data);
            }
        }
        if let Some(probe) = self.probes.get(self.passed + 3) {
            prefetch_index(from_ref(probe), 0);
        }
        if let Some(probe) = self.probes.front() {
            prefetch_index(&self.taken, usize::from(probe.path >> 6));
        }
    }

    pub(super) fn add_flow(&mut self) {
        self.flows.push(Flow::default());
    }

    pub(super) fn add_peer(&mut self) {
        self.peers.push(Peer::default());
    }

    pub(super) fn abandon(&mut self, flow: u32, back: bool) {
        if back {
            self.peers[flow as usize].pending = 0;
        } else {
            self.flows[flow as usize].give_up();
        }
    }

    pub(super) fn message(&mut self, dcsim: &Dcsim, message: &Joined, out: &mut Outbox) {
        let next = self.rings.len() as u32;
        let group = *self.groups.entry(message.group).or_insert(next);
        if group == next {
            self.rings.push(VecDeque::new());
        }
        let flow = &mut self.flows[message.flow as usize];
        flow.group = group;
        let alone = flow.is_empty();
        flow.join(message.packets);
        if alone && dcsim.blind_packets.is_some_and(|most| message.packets <= most) {
            flow.skip(message.first, message.packets);
            self.counts.blind += u64::from(message.packets);
            for sequence in message.first..message.first + message.packets {
                let path = self.draw() as u16;
                out.send(parcel(message.flow, Load::Data(sequence), BLIND, path));
            }
            return;
        }
        // SIMs are not chosen before all that begins now is known.
        self.begun = Some(message.now.ps());
        self.expect(message.now.ps());
        self.ring(dcsim, message.flow, dcsim.shuffle);
    }

    /// Puts a flow that wants a SIM in its collective's ring; at a drawn place if `anywhere`.
    fn ring(&mut self, dcsim: &Dcsim, number: u32, anywhere: bool) {
        let flow = &mut self.flows[number as usize];
        if flow.ringed || !flow.wants_sim(dcsim.data_per_sim) {
            return;
        }
        flow.ringed = true;
        let group = flow.group;
        let len = self.rings[group as usize].len() as u64;
        let place = if anywhere { (self.draw() % (len + 1)) as usize } else { len as usize };
        self.rings[group as usize].insert(place, number);
        if len == 0 {
            self.turns.push_back(group);
        }
    }

    /// Fills the SIM line: collectives by turns, then flows of each (§2.4, step 1).
    fn refill(&mut self, dcsim: &Dcsim, out: &mut Outbox) {
        while self.queued < self.most {
            let Some(group) = self.turns.pop_front() else { break };
            let ring = &mut self.rings[group as usize];
            let number = ring.pop_front();
            if !ring.is_empty() {
                self.turns.push_back(group);
            }
            let Some(number) = number else { continue };
            let flow = &mut self.flows[number as usize];
            flow.ringed = false;
            if !flow.wants_sim(dcsim.data_per_sim) {
                continue;
            }
            flow.sims += 1;
            self.ring(dcsim, number, false);
            let path = self.free_path();
            let id = self.first.wrapping_add(self.probes.len() as u32);
            self.probes.push_back(Probe {
                flow: number,
                path,
                left: NEVER,
                answered: false,
                bound: NONE,
                promised: 0,
            });
            self.queued += 1;
            out.send(parcel(number, Load::Note(Note { kind: SIM, a: id, b: 0, c: 0 }), SIM, path));
        }
        self.foresee_turn(out);
    }

    /// A path number that no SIM under way has.
    fn free_path(&mut self) -> u16 {
        let mut path = self.draw() as u16;
        for _ in 0..64 {
            if self.taken[usize::from(path >> 6)] >> (path & 63) & 1 == 0 {
                break;
            }
            path = self.draw() as u16;
        }
        self.taken[usize::from(path >> 6)] |= 1 << (path & 63);
        path
    }

    pub(super) fn sent(&mut self, dcsim: &Dcsim, sent: &Sent, out: &mut Outbox) {
        let now = sent.now.ps();
        match sent.load {
            Load::Data(sequence) => {
                self.counts.left += 1;
                self.watched.push_back((now + self.data_timeout, sent.flow, sequence));
                self.expect(now + self.data_timeout);
            }
            Load::Note(Note { kind: SIM, a, .. }) => {
                let place = a.wrapping_sub(self.first) as usize;
                if let Some(probe) = self.probes.get_mut(place) {
                    probe.left = now;
                    self.counts.sims += 1;
                    self.queued -= 1;
                    if place <= self.passed {
                        self.expect(now + self.wait);
                    }
                    if place == 0 {
                        self.expect(now + self.rtt);
                    }
                }
                self.refill(dcsim, out);
            }
            Load::Note(_) => {}
        }
    }

    /// A SIM has arrived: it is answered at once.
    pub(super) fn answer_sim(&mut self, heard: &Heard, out: &mut Outbox) {
        self.counts.sims_arrived += 1;
        let note = Note { kind: SIM_ACK, ..heard.note };
        let path = self.draw() as u16;
        out.send(Parcel { back: true, ..parcel(heard.flow, Load::Note(note), SIM_ACK, path) });
    }

    /// A SIM-ACK has come: it binds the first packets that wait.
    pub(super) fn sim_acked(&mut self, dcsim: &Dcsim, heard: &Heard, out: &mut Outbox) {
        let place = heard.note.a.wrapping_sub(self.first) as usize;
        let now = heard.now.ps();
        let Some(probe) = self.probes.get_mut(place) else {
            self.counts.late += 1;
            if dcsim.late_sim_acks && self.flows[heard.flow as usize].waiting() > 0 {
                self.bind_late_ack(heard, out);
            }
            return;
        };
        let left = probe.left;
        if left == NEVER {
            return;
        }
        probe.answered = true;
        self.counts.sims_answered += 1;
        self.counts.longest = self.counts.longest.max(now - left);
        let number = probe.flow;
        let flow = &mut self.flows[number as usize];
        flow.sims -= 1;
        let mut count = 0;
        for _ in 0..dcsim.data_per_sim {
            if dcsim.binds_late {
                let promised = u32::from(flow.promise());
                probe.promised += promised;
                count += u64::from(promised);
            } else if let Some(sequence) = flow.bind() {
                count += 1;
                if probe.bound == NONE {
                    probe.bound = sequence;
                } else {
                    self.more.entry(heard.note.a).or_default().push(sequence);
                }
            }
        }
        self.counts.bound += count;
        self.counts.unused += u64::from(count == 0);
        if now >= left + self.wait {
            self.release(place, out);
        }
        self.ring(dcsim, number, false);
        self.refill(dcsim, out);
    }

    /// A SIM-ACK after its SIM was given up binds a packet all the same, which leaves at once by that path.
    fn bind_late_ack(&mut self, heard: &Heard, out: &mut Outbox) {
        if let Some(sequence) = self.flows[heard.flow as usize].bind() {
            self.counts.bound += 1;
            out.send(parcel(heard.flow, Load::Data(sequence), DATA, heard.path));
        }
    }

    /// What is bound to a SIM leaves by its path.
    fn release(&mut self, place: usize, out: &mut Outbox) {
        let probe = &mut self.probes[place];
        let flow = &mut self.flows[probe.flow as usize];
        let mut send = |sequence| out.send(parcel(probe.flow, Load::Data(sequence), DATA, probe.path));
        for _ in 0..std::mem::take(&mut probe.promised) {
            if let Some(sequence) = flow.keep_promise() {
                send(sequence);
            }
        }
        let bound = std::mem::replace(&mut probe.bound, NONE);
        if bound != NONE {
            send(bound);
        }
        if !self.more.is_empty() {
            let number = self.first.wrapping_add(place as u32);
            self.more.remove(&number).into_iter().flatten().for_each(send);
        }
    }

    /// A DATA-ACK has come.
    pub(super) fn data_acked(&mut self, heard: &Heard, out: &mut Outbox) {
        let Note { a, b, c, .. } = heard.note;
        if let Some(una) = self.flows[heard.flow as usize].acknowledge(a, b, c) {
            out.arrived(heard.flow, una);
        }
    }

    /// A DATA has arrived.
    pub(super) fn landed(&mut self, dcsim: &Dcsim, data: &Landed, out: &mut Outbox) {
        self.watch(data.now, true);
        let peer = &mut self.peers[data.flow as usize];
        (peer.expected, peer.base, peer.bits) = (data.expected, data.base, data.bits);
        peer.pending += 1;
        if peer.pending >= dcsim.data_ack_every || data.whole || !data.fresh {
            self.acknowledge(data.flow, out);
        } else if peer.pending == 1 {
            peer.due = data.now.ps() + self.ack_delay;
            let due = peer.due;
            self.owed.push_back((due, data.flow));
            self.expect(due);
        }
    }

    fn acknowledge(&mut self, flow: u32, out: &mut Outbox) {
        self.counts.data_acks += 1;
        let path = self.draw() as u16;
        let peer = &mut self.peers[flow as usize];
        peer.pending = 0;
        let note = Note { kind: DATA_ACK, a: peer.expected, b: peer.base, c: peer.bits };
        out.send(Parcel { back: true, ..parcel(flow, Load::Note(note), DATA_ACK, path) });
    }

    /// When anything is due.
    #[inline]
    pub(super) fn due(&self) -> Option<Time> {
        (self.due != NEVER).then(|| Time::from_ps(self.due))
    }

    /// When a SIM left, if it has.
    fn left(&self, place: usize) -> Option<u64> {
        self.probes.get(place).map(|probe| probe.left).filter(|&left| left != NEVER)
    }

    /// Something is due at `at`.
    fn expect(&mut self, at: u64) {
        self.due = self.due.min(at);
    }

    /// When the first of all that is expected is due.
    fn earliest(&self) -> u64 {
        [
            self.begun,
            self.left(self.passed).map(|left| left + self.wait),
            self.left(0).map(|left| left + self.rtt),
            self.watched.front().map(|&(due, ..)| due),
            self.owed.front().map(|&(due, _)| due),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(NEVER)
    }

    /// Something is due.
    pub(super) fn tick(&mut self, dcsim: &Dcsim, now: Time, out: &mut Outbox) {
        let now = now.ps();
        self.begun = None;
        while let Some(left) = self.left(self.passed)
            && left + self.wait <= now
        {
            self.release(self.passed, out);
            self.passed += 1;
        }
        while let Some(left) = self.left(0)
            && left + self.rtt <= now
        {
            self.retire(dcsim);
        }
        self.look_at_watched(dcsim, now);
        self.look_at_owed(now, out);
        self.refill(dcsim, out);
        self.due = self.earliest();
        self.foresee_due(out);
    }

    /// DATA that are overdue. Those before the first that is neither are forgotten too, where the first is due or there are twice as many
    /// as there were then: what is kept is what is under way, and hardly any DATA has a time of its own to be looked at.
    fn look_at_watched(&mut self, dcsim: &Dcsim, now: u64) {
        if self.watched.len() < self.look && self.watched.front().is_none_or(|&(due, ..)| due > now) {
            return;
        }
        while let Some(&(due, number, sequence)) = self.watched.front() {
            let flow = &mut self.flows[number as usize];
            if due > now && flow.awaits(sequence) {
                break;
            }
            self.watched.pop_front();
            if flow.is_overdue(sequence) {
                self.counts.overdue += 1;
                self.ring(dcsim, number, false);
            }
        }
        self.look = (2 * self.watched.len()).max(LOOK);
    }

    /// DATA that are to be answered now, and likewise those after them that have been.
    fn look_at_owed(&mut self, now: u64, out: &mut Outbox) {
        if self.owed.front().is_none_or(|&(due, _)| due > now) {
            return;
        }
        while let Some(&(due, flow)) = self.owed.front() {
            let peer = &self.peers[flow as usize];
            let owes = peer.pending > 0 && peer.due == due;
            if due > now && owes {
                return;
            }
            self.owed.pop_front();
            if owes {
                self.acknowledge(flow, out);
            }
        }
    }

    /// RTT_max has passed since the first SIM.
    fn retire(&mut self, dcsim: &Dcsim) {
        let Some(probe) = self.probes.pop_front() else { return };
        self.first = self.first.wrapping_add(1);
        self.passed = self.passed.saturating_sub(1);
        self.taken[usize::from(probe.path >> 6)] &= !(1 << (probe.path & 63));
        if !probe.answered {
            self.counts.sims_given_up += 1;
            self.flows[probe.flow as usize].sims -= 1;
            self.ring(dcsim, probe.flow, false);
        }
    }

    pub(super) fn tell(&self, tally: &mut Tally) {
        self.counts.tell(tally);
        tally.raise("rtt_max_ps", self.rtt);
        if let Some((correlation, lag)) = self.watch.as_ref().and_then(|watch| watch.best(2 * self.rtt)) {
            tally.raise("watched_correlation_ppm", (correlation.max(0.0) * 1e6) as u64);
            tally.raise("watched_lag_ps", lag);
        }
    }
}

/// From the sending port.
fn parcel(flow: u32, load: Load, line: u8, path: u16) -> Parcel {
    Parcel { flow, back: false, load, line, path, rank: 0 }
}
