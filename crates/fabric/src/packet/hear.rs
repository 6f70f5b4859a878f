//! What an engine tells those who listen: see [`ears`](super::ears).

use super::ears::{Ears, Facts, Fate, Noted, Part, Record, Seen, Sent};
use super::engine::{Engine, PairPlan};
use super::handles::QueuePair;
use super::packets::{Kind, flag};
use super::telemetry::Telemetry;
use super::timeline::Key;
use super::transport::{Endpoint, Recovery, Transport};

/// A new round trip counts as much in the smoothed one (RFC 6298 §2.3: alpha is 1/8).
const GAIN: u64 = 8;

impl<T: Transport> Engine<T> {
    /// A packet has reached the far end of port `p`; on a cable that loses packets it may be lost yet, and is heard of later.
    #[cold]
    pub(super) fn hear(&mut self, p: u32, id: u32, now: u64) {
        if let Some(digest) = self.account.ears.as_mut().and_then(|ears| ears.digest.as_mut()) {
            digest.record(Key::told_of_port(now, p), self.packets[id].digest());
        }
        if !self.fabric.kind(p).fragile {
            self.hear_of(p, id, now);
        }
    }

    /// A packet has reached the far end of port `p` and goes on.
    #[cold]
    pub(super) fn hear_of(&mut self, p: u32, id: u32, now: u64) {
        let packet = self.packets[id];
        let Some(pair) = self.capture(p, id, now, Fate::Passed) else { return };
        if self.fabric.ports[p as usize].far.as_switch().is_some() {
            return;
        }
        let in_order_only = !Self::is_dispatched() && self.endpoint.recovery() == Recovery::GoBackN;
        let records = self.telemetry.get().map_or(0, |telemetry: &Telemetry| telemetry.wire_of(id));
        let Some(noted) = self.noted(pair) else { return };
        match packet.kind {
            Kind::Data => {
                let sequence = packet.sequence;
                let receiver = &self.pairs.receivers[packet.flow as usize];
                let early = sequence > receiver.expected;
                let fresh = sequence == receiver.expected
                    || early && !in_order_only && !receiver.beyond.has(sequence);
                let bytes = u64::from(packet.wire) - records;
                let payload = if fresh { bytes.saturating_sub(self.settings.header.get()) } else { 0 };
                let delay = now - packet.stamp;
                let noted = self.noted_mut(pair).expect("it has just been found");
                noted.seen.receiver.arrived += bytes;
                noted.seen.receiver.delivered += payload;
                noted.seen.receiver.delay = Some(delay);
            }
            Kind::Ack => {
                let rtt = now - packet.stamp;
                let smoothed = noted.seen.sender.smoothed;
                let smoothed = smoothed.map_or(rtt, |old| old - old / GAIN + rtt / GAIN);
                let noted = self.noted_mut(pair).expect("it has just been found");
                (noted.seen.sender.rtt, noted.seen.sender.smoothed) = (Some(rtt), Some(smoothed));
            }
            _ => {}
        }
    }

    /// A packet is lost at port `p`.
    pub(super) fn hear_loss(&mut self, p: u32, id: u32) {
        if self.account.ears.is_none() {
            return;
        }
        let (now, packet) = (self.timeline.now(), self.packets[id]);
        if let Some(pair) = self.capture(p, id, now, Fate::Dropped)
            && packet.kind == Kind::Data
        {
            let records = self.telemetry.get().map_or(0, |telemetry: &Telemetry| telemetry.wire_of(id));
            if let Some(noted) = self.noted_mut(pair) {
                noted.seen.lost += u64::from(packet.wire) - records;
            }
        }
    }

    /// The payload of a packet is cut at port `p`: what is left of it is no data that arrives.
    pub(super) fn hear_trim(&mut self, p: u32, id: u32, now: u64) {
        if self.account.ears.is_none() {
            return;
        }
        let records = self.telemetry.get().map_or(0, |telemetry: &Telemetry| telemetry.wire_of(id));
        let wire = u64::from(self.packets[id].wire) - records;
        if let Some(pair) = self.capture(p, id, now, Fate::Trimmed)
            && let Some(noted) = self.noted_mut(pair)
        {
            noted.seen.lost += wire;
        }
    }

    fn noted(&self, pair: u32) -> Option<&Noted> {
        self.account.ears.as_ref()?.pairs.as_ref()?.noted.get(&pair).filter(|noted| noted.watched)
    }

    fn noted_mut(&mut self, pair: u32) -> Option<&mut Noted> {
        self.account.ears.as_mut()?.pairs.as_mut()?.noted.get_mut(&pair).filter(|noted| noted.watched)
    }

    /// Keeps a record of a packet at port `p` if that is asked for; its queue pair if it is noted.
    fn capture(&mut self, p: u32, id: u32, now: u64, fate: Fate) -> Option<u32> {
        let packet = self.packets[id];
        let reduced = packet.flags & flag::REDUCED != 0;
        let half = (self.home(packet.to), packet.flow, packet.kind.goes_back());
        let Ears { pairs, capture, .. } = &mut **self.account.ears.as_mut()?;
        let pairs = pairs.as_ref()?;
        let pair = if reduced { None } else { pairs.of(half) };
        let noted = pair.and_then(|pair| pairs.noted.get(&pair));
        if let Some(capture) = capture
            && (capture.links.get(p as usize) == Some(&true) || noted.is_some_and(|noted| noted.captured))
        {
            let nics = noted.map(|noted| {
                let [from, to] = noted.nics;
                if packet.kind.goes_back() { [to, from] } else { [from, to] }
            });
            capture.take(Record { at: now, port: p, fate, pair, nics, packet: Facts::of(&packet) });
        }
        pair
    }

    /// A queue pair has been opened.
    pub(super) fn note_pair(&mut self, pair: QueuePair, plan: &PairPlan) {
        if self.account.ears.as_ref().is_none_or(|ears| ears.pairs.is_none()) {
            return;
        }
        let ports = plan.ports[0];
        let own = |&&p: &&u32| self.owns(p);
        let path = plan.fixed.then(|| plan.paths[0].iter().filter(own).copied().collect());
        let QueuePair { sender, receiver, homes } = pair;
        let nics = ports.map(|port| self.fabric.nic_of(port));
        let noted = Noted { ports, nics, homes, sender, receiver, path, ..Noted::default() };
        if let Some(pairs) = self.account.ears.as_mut().and_then(|ears| ears.pairs.as_mut()) {
            pairs.note(noted);
        }
    }

    /// A queue pair has closed whose sending half had this place in this process.
    pub(super) fn forget_pair(&mut self, sender: [u32; 2]) {
        let Some(number) = self.pair_of(sender) else { return };
        // What it had come to stays to be told: its place is another's from now on.
        if sender[0] == self.number() {
            self.look_at_sender(number);
        }
        if let Some(pairs) = self.account.ears.as_mut().and_then(|ears| ears.pairs.as_mut()) {
            pairs.close(sender);
        }
    }

    fn pair_of(&self, [home, sender]: [u32; 2]) -> Option<u32> {
        self.account.ears.as_ref()?.pairs.as_ref()?.of((home, sender, true))
    }

    /// The number of this process.
    fn number(&self) -> u32 {
        self.crossing.as_ref().map_or(0, |crossing| crossing.number)
    }

    /// Looks at all queue pairs that are watched, at `at`; whether all were quiet.
    pub(super) fn sample_pairs(&mut self, at: u64) -> bool {
        let watched = |ears: &Ears| {
            let pairs = ears.pairs.as_ref()?;
            Some(pairs.noted.iter().filter(|(_, pair)| pair.watched).map(|(&n, _)| n).collect())
        };
        let numbers: Vec<u32> = self.account.ears.as_deref().and_then(watched).unwrap_or_default();
        let (process, mut quiet) = (self.number(), true);
        for number in numbers {
            let Some(noted) = self.noted(number) else { continue };
            let (closed, own, port) = (noted.closed, noted.homes[0] == process, noted.ports[0]);
            let path = noted.path.clone();
            if own && !closed {
                self.settle_port(port, at);
                self.look_at_sender(number);
            }
            let queue = path.map(|path| {
                path.iter().fold(0, |sum, &p| {
                    self.settle_port(p, at);
                    let port = &self.fabric.ports[p as usize];
                    let held =
                        if self.queues.on || Self::has_lines() || port.free_at > at { port.held } else { 0 };
                    sum + u64::from(held)
                })
            });
            let Some(noted) = self.noted_mut(number) else { continue };
            noted.seen.queue = queue;
            let Noted { seen, told, nics, .. } = *noted;
            noted.told = seen;
            quiet &= seen == told && !seen.sender.active && queue.unwrap_or(0) == 0;
            let Some(pairs) = self.account.ears.as_mut().and_then(|ears| ears.pairs.as_mut()) else {
                continue;
            };
            if seen != told || seen.sender.active {
                let Seen { sender, receiver, lost, queue } = seen;
                pairs.parts.push(Part {
                    at,
                    pair: number,
                    process,
                    nics,
                    sender: (sender.active || sender != told.sender).then_some(sender),
                    receiver: (receiver != told.receiver).then_some(receiver),
                    lost,
                    queue,
                });
            }
            if closed {
                pairs.noted.remove(&number);
            }
        }
        quiet
    }

    /// Writes down what the sending half of a watched queue pair has come to.
    fn look_at_sender(&mut self, number: u32) {
        let Some(noted) = self.noted(number) else { return };
        let slot = noted.sender;
        let Sent { rtt, smoothed, .. } = noted.seen.sender;
        let sender = &self.pairs.senders[slot as usize];
        let told = !Self::is_dispatched() && self.settings.acknowledges();
        let some = |bytes: u64| Some(bytes).filter(|&bytes| bytes < u64::MAX && !Self::is_dispatched());
        let gap = self.endpoint.gap(&sender.cc, self.settings.mtu.get() as u16).ps();
        let legs = self.pairs.legs(slot) as u128;
        let paced = gap > 0 && !Self::is_dispatched();
        let bits = u128::from(self.settings.mtu.get()) * 8 * 1_000_000_000_000 * legs;
        let line = u64::from(legs as u32) * self.fabric.kind(sender.port).rate.bps();
        let seen = Sent {
            window: some(self.endpoint.window(&sender.cc)),
            // A pace is kept as a whole number of picoseconds.
            rate: paced.then(|| ((bits / u128::from(gap)) as u64).min(line)),
            in_flight: told.then(|| sender.in_flight()),
            bytes: sender.sent,
            rtt,
            smoothed,
            active: !sender.retired && (sender.una < sender.limit || told && sender.in_flight() > 0),
        };
        if let Some(noted) = self.noted_mut(number) {
            noted.seen.sender = seen;
        }
    }

    /// Appends what has been seen of queue pairs before `clock`.
    pub(super) fn take_parts_before(&mut self, clock: u64, parts: &mut Vec<Part>) {
        self.sample_before(clock);
        let Some(pairs) = self.account.ears.as_mut().and_then(|ears| ears.pairs.as_mut()) else { return };
        let ripe = pairs.parts.partition_point(|part| part.at < clock);
        parts.extend(pairs.parts.drain(..ripe));
    }

    /// Appends the records of packets up to `until`, and adds those of which none was kept.
    pub(super) fn take_records_by(&mut self, until: u64, records: &mut Vec<Record>) -> u64 {
        let Some(capture) = self.account.ears.as_mut().and_then(|ears| ears.capture.as_mut()) else {
            return 0;
        };
        let (now, later) =
            std::mem::take(&mut capture.records).into_iter().partition(|record: &Record| record.at <= until);
        capture.records = later;
        records.extend::<Vec<Record>>(now);
        capture.left_out
    }
}
