//! The packet engine on any number of threads: one [`Engine`] for the whole fabric, or one for each of several processes.
//!
//! **Life cycle.** Between runs the caller's thread owns everything: it opens queue pairs (a half in the process of each
//! NIC), hands messages over, and reads counters. [`Engines::run`] lets all processes advance in windows, on the threads of
//! a [`Crew`](windtunnel_kernel::executor::Crew), and ends with the window in which a message completed: the caller may act on a completion from `reaction`
//! after it on, and no window is longer than that, so nothing it does comes too late.
//!
//! **Invariants.** Results do not depend on threads or on the partition: event keys, draws and names know nothing of
//! either; completions come in the order (time, port that brought the last packet); a place is used again only when
//! nothing refers to it, and nothing depends on when. Paths that are worked out ahead are laid down in all processes at
//! the same places.
//!
//! **Failure modes.** Without a reaction delay a completion may have consequences at once, so there is one process. A
//! process that broke the lookahead would end the run with a panic that names it.

use std::sync::Arc;

use windtunnel_kernel::executor::{Process, RunStatistics};
use windtunnel_kernel::{Bytes, Span, Time};
use windtunnel_topology::{Forwarder, Topology};

use super::ears::{CapturedPacket, Record};
use super::engine::Engine;
use super::error::PacketError;
use super::handles::{Completion, OpenRequest, QueuePair};
use super::many::Many;
use super::pair_series::{PairSample, PairSeries};
use super::reduce::RunSpec;
use super::sampler::QueueSample;
use super::settings::PacketSettings;
use super::transport::Transport;

/// NICs, switches and packets in one process or several. See the module page.
#[derive(Debug)]
pub struct Engines<T: Transport> {
    pub(super) parts: Parts<T>,
    /// Queue pairs over time.
    series: PairSeries,
    /// Captured packets handed out.
    captured: u64,
    /// Captured by processes of which each had not reached the limit, but all together had.
    beyond: u64,
}

#[derive(Debug)]
pub(super) enum Parts<T: Transport> {
    One(Box<Engine<T>>),
    Many(Box<Many<T>>),
}

/// How a network is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Processes.
    pub processes: usize,
    /// ζ: what a shorter cable joins shares a process.
    pub threshold: Span,
    /// Least delay of a cable between two processes, or the reaction if that is shorter: no window is longer.
    pub lookahead: Span,
}

impl<T: Transport> Engines<T> {
    /// An idle network at time zero. What follows from a completion begins `reaction` after it or later;
    /// `Span::MAX` where nothing does.
    ///
    /// # Errors
    /// [`PacketError`] for settings that cannot work on this topology.
    pub fn new(
        topology: Arc<Topology>,
        settings: PacketSettings,
        transport: T,
        reaction: Span,
    ) -> Result<Self, PacketError> {
        let parallel = settings.parallel;
        let engine = Engine::new(topology, settings, transport)?;
        let alone = parallel.processes.unwrap_or(parallel.threads) <= 1 || reaction == Span::ZERO;
        let partition = (!alone).then(|| engine.partition(&parallel));
        let Some(partition) = partition.filter(|partition| partition.weights.len() > 1) else {
            return Ok(Self::of(Parts::One(Box::new(engine))));
        };
        let many = Many::new(&engine, partition, parallel.threads, reaction);
        Ok(Self::of(Parts::Many(Box::new(many))))
    }

    fn of(parts: Parts<T>) -> Self {
        Self { parts, series: PairSeries::default(), captured: 0, beyond: 0 }
    }

    /// See [`Engine::reroute`].
    #[must_use]
    pub fn rerouted(mut self, forwarder: &Forwarder) -> Self {
        self.each(|engine| engine.reroute(forwarder.clone()));
        self
    }

    /// Has packets go where `forwarder` says from `at` on, an instant that has not been reached; what it says is out goes down, with
    /// what is on it.
    pub fn lead_from(&mut self, at: Time, forwarder: &Forwarder) {
        self.each(|engine| engine.lead_from(at, forwarder));
        if let Parts::Many(many) = &mut self.parts {
            many.next = None;
        }
    }

    /// Keeps all threads at work even where one alone would be faster; to measure what threads cost.
    #[must_use]
    pub fn keep_together(self) -> Self {
        match self.parts {
            Parts::Many(mut many) => {
                many.crew = many.crew.keep_together();
                Self { parts: Parts::Many(many), ..self }
            }
            one @ Parts::One(_) => Self { parts: one, ..self },
        }
    }

    /// How the network is spread; `None` in one process.
    pub fn spread(&self) -> Option<Spread> {
        match &self.parts {
            Parts::One(_) => None,
            Parts::Many(many) => Some(Spread {
                processes: many.crew.processes(),
                threshold: many.threshold,
                lookahead: many.lookahead,
            }),
        }
    }

    /// What runs cost; `None` in one process.
    pub fn statistics(&self) -> Option<&RunStatistics> {
        match &self.parts {
            Parts::One(_) => None,
            Parts::Many(many) => Some(many.crew.statistics()),
        }
    }

    /// Opens a queue pair, at `now`.
    pub fn open(&mut self, now: Time, request: &OpenRequest<'_>) -> QueuePair {
        self.open_on(now, request, None)
    }

    /// [`Self::open`] on a plane of the NIC: see [`Engine::open_on`].
    pub fn open_on(&mut self, now: Time, request: &OpenRequest<'_>, wish: Option<u32>) -> QueuePair {
        match &mut self.parts {
            Parts::One(engine) => {
                let next = engine.next_time();
                engine.timeline.reach(now.min(next).ps());
                engine.open_on(request, wish)
            }
            Parts::Many(many) => many.open(now, request, wish),
        }
    }

    /// See [`Engine::set_aside`].
    pub fn set_aside(&mut self, pair: QueuePair) {
        match &mut self.parts {
            Parts::One(engine) => engine.set_aside(pair),
            Parts::Many(many) => {
                let [from, to] = pair.homes.map(|home| home as usize);
                many.crew.process(from).pairs.set_sender_aside(pair.sender);
                many.crew.process(to).pairs.set_receiver_aside(pair.receiver);
            }
        }
    }

    /// See [`Engine::classify`].
    pub fn classify(&mut self, pair: QueuePair, class: u8) {
        match &mut self.parts {
            Parts::One(engine) => engine.classify(pair, class),
            Parts::Many(many) => many.crew.process(pair.homes[0] as usize).classify(pair, class),
        }
    }

    /// See [`Engine::queue_of_class`].
    pub fn queue_of_class(&self, class: u8) -> u8 {
        match &self.parts {
            Parts::One(engine) => engine.queue_of_class(class),
            Parts::Many(many) => many.crew.process(0).queue_of_class(class),
        }
    }

    /// See [`Engine::lane_of_class`].
    pub fn lane_of_class(&self, class: u8) -> u8 {
        match &self.parts {
            Parts::One(engine) => engine.lane_of_class(class),
            Parts::Many(many) => many.crew.process(0).lane_of_class(class),
        }
    }

    /// See [`Engine::take_samples`].
    pub fn take_samples(&mut self, samples: &mut Vec<QueueSample>) {
        match &mut self.parts {
            Parts::One(engine) => engine.take_samples(samples),
            Parts::Many(many) => many.take_samples(samples),
        }
    }

    /// Appends what queue pairs looked like at the instants before the last event, by time and then by their numbers.
    pub fn take_pair_samples(&mut self, samples: &mut Vec<PairSample>) {
        let clock = match &self.parts {
            Parts::One(engine) => engine.now().ps(),
            Parts::Many(many) => many.agree(),
        };
        let mut parts = Vec::new();
        self.each(|engine| engine.take_parts_before(clock, &mut parts));
        self.series.join(parts, samples);
    }

    /// Appends the packets captured up to `until`, an instant up to which everything has been handled, in the order of time; how many
    /// were left out so far because the limit is reached.
    pub fn take_captured(&mut self, until: Time, captured: &mut Vec<CapturedPacket>) -> u64 {
        let (mut records, mut left_out, mut limit) = (Vec::new(), 0, 0);
        self.each(|engine| {
            left_out += engine.take_records_by(until.ps(), &mut records);
            limit = engine.settings.capture.as_ref().map_or(0, |capture| capture.limit);
        });
        records.sort_by_key(Record::order);
        let room = (limit - self.captured).min(records.len() as u64);
        self.beyond += records.len() as u64 - room;
        self.captured += room;
        records.truncate(room as usize);
        self.look(|engine| {
            if engine.is_first() {
                captured.extend(records.iter().map(|record| record.on(engine.fabric.link_of(record.port))));
            }
        });
        left_out + self.beyond
    }

    /// Packets left out of what was captured so far.
    pub fn uncaptured(&self) -> u64 {
        let mut sum = self.beyond;
        self.look(|engine| {
            let capture = engine.account.ears.as_ref().and_then(|ears| ears.capture.as_ref());
            sum += capture.map_or(0, |capture| capture.left_out);
        });
        sum
    }

    /// A reduction begins at `at`, not before the clock.
    pub(super) fn begin_reduction(&mut self, at: Time, spec: &RunSpec) {
        self.each(|engine| engine.begin_reduction(at, spec.clone()));
        if let Parts::Many(many) = &mut self.parts {
            many.next = many.next.map(|next| next.min(at));
        }
    }

    /// The run at `slot` has ended.
    pub(super) fn end_reduction(&mut self, slot: u32) {
        self.each(|engine| engine.end_reduction(slot));
    }

    /// Links from the sender to the receiver of an open queue pair.
    pub fn links(&self, pair: QueuePair) -> u32 {
        match &self.parts {
            Parts::One(engine) => engine.links(pair),
            Parts::Many(many) => many.crew.process(pair.homes[1] as usize).links(pair),
        }
    }

    /// Hands a message of `bytes` over to a queue pair at `at`, not before the clock; `token` comes back in its
    /// [`Completion`].
    pub fn send(&mut self, at: Time, pair: QueuePair, bytes: Bytes, token: u64) {
        match &mut self.parts {
            Parts::One(engine) => engine.send(at, pair, bytes, token),
            Parts::Many(many) => {
                let [from, to] = pair.homes.map(|home| home as usize);
                let mut receiver = many.crew.process(to);
                let message = receiver.incoming_of(at, bytes, token);
                receiver.pairs.expect(pair.receiver, message);
                drop(receiver);
                many.crew.process(from).hand_over(at, pair.sender, &message);
                many.next = many.next.map(|next| next.min(at));
            }
        }
    }

    /// Time of the next event, [`Time::NEVER`] if there is none.
    pub fn next_time(&mut self) -> Time {
        match &mut self.parts {
            Parts::One(engine) => engine.next_time(),
            Parts::Many(many) => many.next_time(),
        }
    }

    /// Handles events up to `limit`, about `budget`, until messages have completed; these are appended. Returns the
    /// instant reached: everything up to it has been handled, and what is handed over next must not come before it.
    pub fn run(&mut self, limit: Time, budget: u64, done: &mut Vec<Completion>) -> Time {
        match &mut self.parts {
            Parts::One(engine) => engine.run(limit, budget, done),
            Parts::Many(many) => many.run(limit, budget, done),
        }
    }

    /// Makes counters exact at `at`, an instant that has been reached: without it they may lack what has been sent since
    /// a port was last looked at.
    pub fn catch_up(&mut self, at: Time) {
        self.each(|engine| engine.catch_up(at));
    }

    pub(super) fn each(&mut self, mut what: impl FnMut(&mut Engine<T>)) {
        match &mut self.parts {
            Parts::One(engine) => what(engine),
            Parts::Many(many) => many.each(what),
        }
    }

    /// The process of that number.
    pub(super) fn at_home(&mut self, number: u32, what: impl FnOnce(&mut Engine<T>)) {
        match &mut self.parts {
            Parts::One(engine) => what(engine),
            Parts::Many(many) => {
                what(&mut many.crew.process(number as usize));
                // Its events may be others now.
                many.next = None;
            }
        }
    }

    pub(super) fn look(&self, mut what: impl FnMut(&Engine<T>)) {
        match &self.parts {
            Parts::One(engine) => what(engine),
            Parts::Many(many) => many.each(|engine| what(engine)),
        }
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::digest::EventDigest;
    use windtunnel_kernel::{BitRate, Bytes};
    use windtunnel_topology::{ClosSpec, TopologySpec};

    use super::super::packets::{NONE, flag};
    use super::super::port::List;
    use super::super::settings::ParallelSettings;
    use super::super::transport::Dctcp;
    use super::*;

    fn engines(parallel: ParallelSettings, focus: &EventDigest) -> Engines<Dctcp> {
        let mut spec = ClosSpec::fat_tree(4, BitRate::from_gbps(400));
        for tier in &mut spec.tiers {
            tier.length_mm = 100_000;
        }
        let topology = Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"));
        let settings = PacketSettings { parallel, ..PacketSettings::default() };
        let mut engines =
            Engines::new(topology, settings, Dctcp::default(), Span::MAX).expect("settings that work");
        engines.keep_digest(focus);
        for from in 0..16 {
            let request =
                OpenRequest { from, to: (from + 5) % 16, entropy: 0, keep: false, route: [&[], &[]] };
            let pair = engines.open(Time::ZERO, &request);
            engines.send(Time::ZERO, pair, Bytes::new(500_000), u64::from(from));
        }
        engines
    }

    /// Runs to the end; at `tampered` the next packet on the cable of the first switch port that has one is changed.
    /// Returns the digest and when that packet was due.
    fn run(
        parallel: ParallelSettings,
        focus: &EventDigest,
        tampered: Option<Time>,
    ) -> (EventDigest, Option<Time>) {
        let (mut engines, mut done, mut due) = (engines(parallel, focus), Vec::new(), None);
        if let Some(at) = tampered {
            while engines.run(at, u64::MAX, &mut done) < at {}
            engines.each(|engine| {
                let sending = |p: &usize| {
                    engine.fabric.ports[*p].owner != NONE
                        && engine.fabric.ports[*p].flight.head != List::EMPTY.head
                };
                if due.is_none()
                    && let Some(p) = (0..engine.fabric.ports.len()).find(sending)
                {
                    // It arrives when it would, with a mark that nobody has made.
                    due = Some(Time::from_ps(engine.fabric.ports[p].reaches));
                    let head = engine.fabric.ports[p].flight.head;
                    engine.packets[head].flags ^= flag::MARKED;
                }
            });
        }
        while engines.next_time() != Time::NEVER {
            engines.run(Time::NEVER, u64::MAX, &mut done);
        }
        assert_eq!(done.len(), 16);
        (engines.digest().expect("one is kept"), due)
    }

    /// A packet that differs is found, to the picosecond, whatever the partitions of the two runs.
    #[test]
    fn the_first_diverging_time_is_found() {
        let one = ParallelSettings::default();
        for (threads, processes) in [(1, Some(3)), (2, None)] {
            let many = ParallelSettings { threads, processes, threshold: None };
            for at in [Time::from_ps(3_000_000), Time::from_ps(9_123_456)] {
                let mut focus = EventDigest::new();
                let (found, due) = loop {
                    let (whole, _) = run(one, &focus, None);
                    let (late, due) = run(many, &focus, Some(at));
                    let found = whole.first_divergence(&late).expect("the runs differ");
                    if found.is_instant() {
                        break (found, due);
                    }
                    focus = EventDigest::on(&found);
                };
                assert_eq!(Some(found.from), due, "{many:?}");
            }
            let whole = EventDigest::new();
            assert_eq!(run(one, &whole, None).0.first_divergence(&run(many, &whole, None).0), None);
        }
    }
}
