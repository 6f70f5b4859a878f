//! The packet engine on any number of threads: one [`Engine`] for the whole fabric, or one for each of several processes.
//!
//! **Life cycle.** Between runs the caller's thread owns everything: it opens queue pairs (a half in the process of each
//! NIC), hands messages over, and reads counters. [`Engines::run`] lets all processes advance in windows, on the threads of
//! a [`Crew`], and ends with the window in which a message completed: the caller may act on a completion from `reaction`
//! after it on, and no window is longer than that, so nothing it does comes too late.
//!
//! **Invariants.** Results do not depend on threads or on the partition: event keys, draws and names know nothing of
//! either; completions come in the order (time, port that brought the last packet); a place is used again only when
//! nothing refers to it, and nothing depends on when. Paths that are worked out ahead are laid down in all processes at
//! the same places.
//!
//! **Failure modes.** Without a reaction delay a completion may have consequences at once, so there is one process. A
//! process that broke the lookahead would end the run with a panic that names it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::executor::{Control, Crew, End, Process, RunStatistics};
use windtunnel_kernel::{Bytes, Span, Time};
use windtunnel_topology::{Forwarder, LinkId, Topology};

use super::dispatch::Delivery;
use super::engine::{Completion, Engine, OpenRequest, QueuePair};
use super::pfc::Pauses;
use super::reduce::RunSpec;
use super::reorder::Reordering;
use super::sample::QueueSample;
use super::settings::{PacketError, PacketSettings};
use super::statistics::{PauseCounters, PortCounters, PortReport};
use super::totals::Counters;
use super::transport::{Tally, Transport};

/// NICs, switches and packets in one process or several. See the module page.
#[derive(Debug)]
pub struct Engines<T: Transport> {
    parts: Parts<T>,
}

#[derive(Debug)]
enum Parts<T: Transport> {
    One(Box<Engine<T>>),
    Many(Box<Many<T>>),
}

/// Several processes.
#[derive(Debug)]
struct Many<T: Transport> {
    crew: Crew<Box<Engine<T>>>,
    /// Least time from a completion to what it causes.
    reaction: Span,
    lookahead: Span,
    threshold: Span,
    clock: Time,
    /// Of the earliest event, unless something was handed over or handled since.
    next: Option<Time>,
    /// Time of the first completion since this was last reset.
    first_done: Arc<AtomicU64>,
    fresh: Vec<(u32, Completion)>,
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
    /// `Span(u64::MAX)` where nothing does.
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
            return Ok(Self { parts: Parts::One(Box::new(engine)) });
        };
        let homes: Arc<[u32]> = partition.process.into();
        let first_done = Arc::new(AtomicU64::new(u64::MAX));
        let engines = (0..partition.weights.len() as u32).map(|number| {
            let mut own = Box::new(engine.clone());
            own.settle_in(number, &homes, &first_done);
            own
        });
        let lookahead = partition.lookahead.min(reaction);
        let threads = NonZeroUsize::new(parallel.threads).unwrap_or(NonZeroUsize::MIN);
        let crew = Crew::new(engines.collect(), lookahead, threads).expect(JOINED);
        let many = Many {
            crew,
            reaction,
            lookahead,
            threshold: partition.threshold,
            clock: Time::ZERO,
            next: None,
            first_done,
            fresh: Vec::new(),
        };
        Ok(Self { parts: Parts::Many(Box::new(many)) })
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
                Self { parts: Parts::Many(many) }
            }
            one @ Parts::One(_) => Self { parts: one },
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
                engine.timeline.reach(now.min(next).0);
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

    /// See [`Engine::is_hopeless`].
    pub fn is_hopeless(&self) -> bool {
        let mut hopeless = false;
        self.look(|engine| hopeless |= engine.is_hopeless());
        hopeless
    }

    /// See [`Engine::has_lost_for_good`].
    pub fn has_lost_for_good(&self) -> bool {
        let mut lost = false;
        self.look(|engine| lost |= engine.has_lost_for_good());
        lost
    }

    /// See [`Engine::silent_pair`]; of several the one with the lowest NICs.
    pub fn silent_pair(&self) -> Option<[u32; 2]> {
        let mut first: Option<[u32; 2]> = None;
        self.look(|engine| {
            if let Some(pair) = engine.silent_pair() {
                first = Some(first.map_or(pair, |known| known.min(pair)));
            }
        });
        first
    }

    /// See [`Engine::reordering`].
    pub fn reordering(&self) -> Reordering {
        let mut sum = Reordering::default();
        self.look(|engine| sum.merge(&engine.reordering()));
        sum
    }

    /// See [`Engine::paused`].
    pub fn paused(&self) -> Span {
        let mut sum = Span::ZERO;
        if let Parts::Many(many) = &self.parts {
            many.agree();
        }
        self.look(|engine| sum += engine.paused());
        sum
    }

    /// See [`Engine::pause_cycle`].
    pub fn pause_cycle(&self) -> Vec<LinkId> {
        let mut cycle = Vec::new();
        self.look(|engine| cycle.append(&mut engine.pause_cycle()));
        cycle
    }

    /// See [`Engine::take_samples`].
    pub fn take_samples(&mut self, samples: &mut Vec<QueueSample>) {
        match &mut self.parts {
            Parts::One(engine) => engine.take_samples(samples),
            Parts::Many(many) => many.take_samples(samples),
        }
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

    /// Totals so far.
    pub fn totals(&self) -> Counters {
        let mut totals = Counters::default();
        self.look(|engine| totals.add(&engine.totals()));
        totals
    }

    /// What dispatchers counted; `None` where there are none.
    pub fn tally(&self) -> Option<Tally> {
        let mut sum: Option<Tally> = None;
        self.look(|engine| {
            if let Some(tally) = engine.tally() {
                sum.get_or_insert_default().merge(&tally);
            }
        });
        sum
    }

    /// What arrived, by intervals of 10 µs; empty where there is no dispatcher.
    pub fn deliveries(&self) -> Vec<Delivery> {
        let mut sum: Vec<Delivery> = Vec::new();
        self.look(|engine| {
            let deliveries = engine.deliveries().unwrap_or_default();
            sum.resize(sum.len().max(deliveries.len()), Delivery::default());
            for (sum, more) in sum.iter_mut().zip(deliveries) {
                sum.add(more);
            }
        });
        sum
    }

    /// Packets that went from one process to another so far.
    pub fn crossings(&self) -> u64 {
        let mut sum = 0;
        self.look(|engine| sum += engine.crossing.as_ref().map_or(0, |crossing| crossing.left));
        sum
    }

    /// Packets in the network, but for those that have just left a process.
    pub fn packets_live(&self) -> u32 {
        let mut live = 0;
        self.look(|engine| live += engine.packets_live());
        live
    }

    /// Data packets and control packets sent over a link, over all links.
    pub fn packet_hops(&self) -> (u64, u64) {
        let mut hops = (0, 0);
        self.look(|engine| {
            let (data, control) = engine.packet_hops();
            hops = (hops.0 + data, hops.1 + control);
        });
        hops
    }

    /// Sum over data packets of the time between joining a queue and the start of transmission.
    pub fn queueing(&self) -> Span {
        let mut sum = Span::ZERO;
        self.look(|engine| sum += engine.queueing());
        sum
    }

    /// What each port with traffic saw until the last [`Self::catch_up`] or event, by link.
    pub fn port_reports(&self) -> Vec<PortReport> {
        match &self.parts {
            Parts::One(engine) => engine.port_reports(),
            Parts::Many(many) => {
                many.agree();
                let mut sums: Vec<(PortCounters, PauseCounters)> = Vec::new();
                many.each(|engine| {
                    sums.resize(engine.fabric.ports.len(), (PortCounters::NEW, PauseCounters::default()));
                    for (p, (counters, pauses)) in (0..).zip(&mut sums) {
                        counters.add(&engine.counted(p));
                        pauses.add(engine.paused_at(p));
                    }
                });
                many.crew.process(0).reports_of(|port| sums[port as usize])
            }
        }
    }

    /// Messages that have not arrived: the caller's names, in no order that means anything.
    pub fn unfinished(&self) -> Vec<u64> {
        let mut tokens = Vec::new();
        self.look(|engine| tokens.append(&mut engine.unfinished()));
        tokens
    }

    /// Keeps a digest of the events of `focus`'s span from now on.
    pub fn keep_digest(&mut self, focus: &EventDigest) {
        self.each(|engine| engine.account.keep_digest(focus));
    }

    /// The digest kept, of all processes.
    pub fn digest(&self) -> Option<EventDigest> {
        let mut sum: Option<EventDigest> = None;
        self.look(|engine| match (&mut sum, engine.account.digest()) {
            (Some(sum), Some(own)) => sum.merge(own),
            (none @ None, Some(own)) => *none = Some(own.clone()),
            (_, None) => {}
        });
        sum
    }

    fn each(&mut self, mut what: impl FnMut(&mut Engine<T>)) {
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

/// Why a crew takes a partition.
const JOINED: &str = "a partition cuts no cable without delay and homes every port once";

impl<T: Transport> Many<T> {
    fn each(&self, mut what: impl FnMut(&mut Engine<T>)) {
        for number in 0..self.crew.processes() {
            what(&mut self.crew.process(number));
        }
    }

    fn next_time(&mut self) -> Time {
        if let Some(next) = self.next {
            return next;
        }
        let mut earliest = self.first_check();
        self.each(|engine| earliest = earliest.min(Process::next_time(engine)));
        *self.next.insert(earliest)
    }

    /// Brings the clocks of all processes to that of the last event of any; which is that.
    fn agree(&self) -> u64 {
        let mut clock = 0;
        self.each(|engine| clock = clock.max(engine.timeline.now()));
        self.each(|engine| engine.timeline.reach(clock));
        clock
    }

    /// Appends the samples of instants before the last event.
    fn take_samples(&self, samples: &mut Vec<QueueSample>) {
        let (clock, mut found) = (self.agree(), Vec::new());
        self.each(|engine| engine.take_samples_before(clock, &mut found));
        found.sort_by_key(|&(p, sample)| (sample.at, p));
        samples.extend(found.into_iter().map(|(_, sample)| sample));
    }

    /// When it is due for the first time to look whether pauses can end.
    fn first_check(&self) -> Time {
        let mut first = u64::MAX;
        self.each(|engine| first = first.min(engine.first_check()));
        Time(first)
    }

    /// Everything up to `now` has been handled: ends the run if pauses that have lasted for long wait for one another.
    fn check_pauses(&self, now: Time) {
        let mut long = Vec::new();
        self.each(|engine| long.push(engine.long_paused(now.0)));
        if long.iter().all(Vec::is_empty) {
            return;
        }
        let mut known = Pauses::default();
        self.each(|engine| known.add(engine.pauses()));
        let cycle = known.cycle();
        if !cycle.is_empty() {
            self.crew.process(0).queues.end_by(cycle);
            return;
        }
        for (number, ports) in long.into_iter().enumerate() {
            let mut engine = self.crew.process(number);
            let due = now.0 + engine.queues.patience().unwrap_or(0);
            for p in ports {
                engine.check_later(due, p);
            }
        }
    }

    /// Process of a NIC.
    fn home(&self, nic: u32) -> usize {
        let engine = self.crew.process(0);
        engine.home(nic * engine.fabric.topology.planes()) as usize
    }

    fn open(&mut self, now: Time, request: &OpenRequest<'_>, wish: Option<u32>) -> QueuePair {
        let homes = [self.home(request.from), self.home(request.to)];
        let mut first = self.crew.process(homes[0]);
        if first.pairs.is_to_settle() {
            drop(first);
            self.settle(homes[0]);
            first = self.crew.process(homes[0]);
        }
        let mut plan = first.plan(request, wish);
        let starts = plan.ports.map(|[port, _]| first.home_of_switch(first.fabric.leaf(port)) as usize);
        drop(first);
        for way in [0, 1] {
            // The queues that a way may depend on are those of its first switch.
            self.crew.process(starts[way]).find_way(&mut plan, request, way, now.0);
        }
        let mut places = plan.hashes;
        if plan.fixed {
            self.each(|engine| places = engine.lay(&plan));
        }
        let sender = self.crew.process(homes[0]).open_sender(&plan, places);
        let receiver = self.crew.process(homes[1]).open_receiver(&plan, places);
        self.crew.process(homes[0]).pairs.introduce(sender, receiver);
        self.crew.process(homes[1]).pairs.meet(receiver, sender);
        QueuePair { sender, receiver, homes: homes.map(|home| home as u32) }
    }

    /// Frees the places of queue pairs with senders in process `home` that are done and have nothing left anywhere.
    #[cold]
    fn settle(&self, home: usize) {
        for number in 0..self.crew.processes() {
            let gone = self.crew.process(number).take_gone();
            for (home, gone) in gone {
                self.crew.process(home as usize).count_gone(gone);
            }
        }
        let mut retired = self.crew.process(home).pairs.take_retired();
        retired.retain(|&QueuePair { sender, receiver, homes }| {
            let other = homes[1] as usize;
            let sent_and_gone = self.crew.process(home).pairs.sent_and_gone(sender);
            let silent = self.crew.process(other).is_silent(receiver, sent_and_gone);
            if silent {
                let place = self.crew.process(home).pairs.close_sender(sender);
                let (back, lengths) = self.crew.process(other).close_receiver(receiver);
                self.each(|engine| engine.lead.paths.take_up(place, back, lengths));
            }
            !silent
        });
        self.crew.process(home).pairs.put_retired(retired);
    }

    fn run(&mut self, limit: Time, budget: u64, done: &mut Vec<Completion>) -> Time {
        self.first_done.store(u64::MAX, Relaxed);
        // Pauses are looked at between windows, and those that begin now no sooner than their patience allows.
        let patience = self.crew.process(0).queues.patience();
        let begun = self.next_time().max(self.clock);
        let check = self.first_check().min(patience.map_or(Time::NEVER, |patience| begun + Span(patience)));
        let (whole, limit) = (limit, limit.min(check));
        let first_done = Arc::clone(&self.first_done);
        let until = Time(limit.0.saturating_add(1));
        let outcome = self.crew.run(until, |progress| {
            let completed = first_done.load(Relaxed) != u64::MAX;
            if completed || progress.events >= budget { Control::Cancel } else { Control::Continue }
        });
        let outcome = outcome.unwrap_or_else(|error| panic!("a process broke a rule: {error}"));
        let mut fresh = std::mem::take(&mut self.fresh);
        let first = self.first_done.load(Relaxed);
        let mut last = 0;
        self.each(|engine| last = last.max(engine.timeline.now()));
        let reached = match outcome.end {
            // Everything before is handled; but nobody has seen what the first completion causes.
            _ if first != u64::MAX => {
                let before = Time(first.saturating_add(self.reaction.0) - 1);
                Time(outcome.progress.time.0 - 1).min(before).min(limit)
            }
            End::Cancelled => Time(outcome.progress.time.0 - 1),
            End::Idle if self.first_check() == Time::NEVER && whole >= Time::HORIZON => Time(last),
            End::Idle if self.first_check() == Time::NEVER => whole,
            End::Idle | End::Stop => limit,
        };
        if self.first_check() <= reached {
            self.check_pauses(reached);
        }
        let mut halted = false;
        self.each(|engine| {
            fresh.extend(engine.account.news());
            halted |= engine.has_halted();
        });
        // One that has given up ends the run of all.
        self.next = halted.then_some(Time::NEVER);
        // Stable: of one packet's completions, all of one process, the order is kept.
        fresh.sort_by_key(|&(port, completion)| (completion.at, port));
        done.extend(fresh.drain(..).map(|(_, completion)| completion));
        self.fresh = fresh;
        self.clock = self.clock.max(reached);
        self.clock
    }
}

#[cfg(test)]
mod tests {
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
            Engines::new(topology, settings, Dctcp::default(), Span(u64::MAX)).expect("settings that work");
        engines.keep_digest(focus);
        for from in 0..16 {
            let request =
                OpenRequest { from, to: (from + 5) % 16, entropy: 0, keep: false, route: [&[], &[]] };
            let pair = engines.open(Time::ZERO, &request);
            engines.send(Time::ZERO, pair, Bytes(500_000), u64::from(from));
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
                    due = Some(Time(engine.fabric.ports[p].reaches));
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
            for at in [Time(3_000_000), Time(9_123_456)] {
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
