//! Several processes, each an [`Engine`] with a part of the fabric, that advance together on the threads of a crew.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use windtunnel_kernel::executor::{Control, Crew, End, Process};
use windtunnel_kernel::partition::Partition;
use windtunnel_kernel::{Span, Time};

use super::engine::Engine;
use super::handles::{Completion, OpenRequest, QueuePair};
use super::pauses::Pauses;
use super::sampler::QueueSample;
use super::transport::Transport;

/// Why a crew takes a partition.
const JOINED: &str = "a partition cuts no cable without delay and homes every port once";

/// Several processes.
#[derive(Debug)]
pub(super) struct Many<T: Transport> {
    pub crew: Crew<Box<Engine<T>>>,
    /// Least time from a completion to what it causes.
    reaction: Span,
    pub lookahead: Span,
    pub threshold: Span,
    clock: Time,
    /// Of the earliest event, unless something was handed over or handled since.
    pub next: Option<Time>,
    /// Time of the first completion since this was last reset.
    first_done: Arc<AtomicU64>,
    fresh: Vec<(u32, Completion)>,
}

impl<T: Transport> Many<T> {
    /// Spreads an idle engine by `partition`; what follows from a completion begins `reaction` after it or later.
    pub(super) fn new(engine: &Engine<T>, partition: Partition, threads: usize, reaction: Span) -> Self {
        let homes: Arc<[u32]> = partition.process.into();
        let first_done = Arc::new(AtomicU64::new(u64::MAX));
        let engines = (0..partition.weights.len() as u32).map(|number| {
            let mut own = Box::new(engine.clone());
            own.settle_in(number, &homes, &first_done);
            own
        });
        let lookahead = partition.lookahead.min(reaction);
        let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
        let crew = Crew::new(engines.collect(), lookahead, threads).expect(JOINED);
        Self {
            crew,
            reaction,
            lookahead,
            threshold: partition.threshold,
            clock: Time::ZERO,
            next: None,
            first_done,
            fresh: Vec::new(),
        }
    }

    pub(super) fn each(&self, mut what: impl FnMut(&mut Engine<T>)) {
        for number in 0..self.crew.processes() {
            what(&mut self.crew.process(number));
        }
    }

    pub(super) fn next_time(&mut self) -> Time {
        if let Some(next) = self.next {
            return next;
        }
        let mut earliest = self.first_check();
        self.each(|engine| earliest = earliest.min(Process::next_time(engine)));
        *self.next.insert(earliest)
    }

    /// Brings the clocks of all processes to that of the last event of any; which is that.
    pub(super) fn agree(&self) -> u64 {
        let mut clock = 0;
        self.each(|engine| clock = clock.max(engine.timeline.now()));
        self.each(|engine| engine.timeline.reach(clock));
        clock
    }

    /// Appends the samples of instants before the last event.
    pub(super) fn take_samples(&self, samples: &mut Vec<QueueSample>) {
        let (clock, mut found) = (self.agree(), Vec::new());
        self.each(|engine| engine.take_samples_before(clock, &mut found));
        found.sort_by_key(|&(p, sample)| (sample.at, p));
        samples.extend(found.into_iter().map(|(_, sample)| sample));
    }

    /// When it is due for the first time to look whether pauses can end.
    fn first_check(&self) -> Time {
        let mut first = u64::MAX;
        self.each(|engine| first = first.min(engine.first_check()));
        Time::from_ps(first)
    }

    /// Everything up to `now` has been handled: ends the run if pauses that have lasted for long wait for one another.
    fn check_pauses(&self, now: Time) {
        let mut long = Vec::new();
        self.each(|engine| long.push(engine.long_paused(now.ps())));
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
            let due = now.ps() + engine.queues.patience().unwrap_or(0);
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

    pub(super) fn open(&mut self, now: Time, request: &OpenRequest<'_>, wish: Option<u32>) -> QueuePair {
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
            self.crew.process(starts[way]).find_way(&mut plan, request, way, now.ps());
        }
        let mut places = plan.hashes;
        if plan.fixed {
            self.each(|engine| places = engine.lay(&plan));
        }
        let sender = self.crew.process(homes[0]).open_sender(&plan, places);
        let receiver = self.crew.process(homes[1]).open_receiver(&plan, places);
        self.crew.process(homes[0]).pairs.introduce(sender, receiver);
        self.crew.process(homes[1]).pairs.meet(receiver, sender);
        let pair = QueuePair { sender, receiver, homes: homes.map(|home| home as u32) };
        if self.crew.process(0).account.ears.is_some() {
            self.each(|engine| engine.note_pair(pair, &plan));
        }
        pair
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
                self.each(|engine| {
                    engine.lead.paths.take_up(place, back, lengths);
                    engine.forget_pair([home as u32, sender]);
                });
            }
            !silent
        });
        self.crew.process(home).pairs.put_retired(retired);
    }

    pub(super) fn run(&mut self, limit: Time, budget: u64, done: &mut Vec<Completion>) -> Time {
        self.first_done.store(u64::MAX, Relaxed);
        // Pauses are looked at between windows, and those that begin now no sooner than their patience allows.
        let patience = self.crew.process(0).queues.patience();
        let begun = self.next_time().max(self.clock);
        let check =
            self.first_check().min(patience.map_or(Time::NEVER, |patience| begun + Span::from_ps(patience)));
        let (whole, limit) = (limit, limit.min(check));
        let first_done = Arc::clone(&self.first_done);
        let until = Time::from_ps(limit.ps().saturating_add(1));
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
                let before = Time::from_ps(first.saturating_add(self.reaction.ps()) - 1);
                Time::from_ps(outcome.progress.time.ps() - 1).min(before).min(limit)
            }
            End::Cancelled => Time::from_ps(outcome.progress.time.ps() - 1),
            End::Idle if self.first_check() == Time::NEVER && whole >= Time::HORIZON => Time::from_ps(last),
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
