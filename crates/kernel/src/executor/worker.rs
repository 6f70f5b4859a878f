//! One thread of a run: it holds processes, and does what the leader says after each barrier.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::balance;
use super::inbox::Inbox;
use super::process::{Outbox, Process};
use super::shared::{Command, Failure, Shared};
use super::statistics::{ThreadStatistics, now};
use crate::queue::EventKey;
use crate::units::Time;

/// A process in the hands of a thread.
struct Held<P> {
    number: u32,
    process: P,
    next: Time,
    /// Events and mail since the last look.
    load: u64,
}

/// A thread and the processes it holds.
pub(super) struct Worker<P: Process> {
    pub(super) shared: Arc<Shared<P>>,
    thread: usize,
    /// In the order of their numbers; the same order finds the same failure first.
    held: Vec<Held<P>>,
    pub(super) outbox: Outbox<P::Message>,
    inbox: Inbox<P::Message>,
    /// The process whose turn it is.
    turn: u32,
    /// Whether processes have been dealt since this thread last looked.
    dealt: bool,
    statistics: ThreadStatistics,
    pub(super) last: Instant,
}

impl<P: Process> Worker<P> {
    pub(super) fn new(shared: Arc<Shared<P>>, thread: usize, outbox: Outbox<P::Message>) -> Self {
        Self {
            shared,
            thread,
            held: Vec::new(),
            outbox,
            inbox: Inbox::new(),
            turn: 0,
            dealt: true,
            statistics: ThreadStatistics::default(),
            last: now(),
        }
    }

    /// Obeys the leader until it is sent home.
    pub(super) fn serve(&mut self) {
        let mut resting = true;
        for round in 0.. {
            self.shared.barrier.arrive();
            self.shared.barrier.wait(round);
            let command = self.shared.command();
            if command == Command::Quit {
                return;
            }
            if resting {
                // Between runs nobody waits for work.
                self.last = now();
            }
            self.book_waiting();
            self.obey(command);
            self.book_busy();
            resting = matches!(command, Command::End | Command::Abort);
        }
    }

    pub(super) fn obey(&mut self, command: Command) {
        let done = catch_unwind(AssertUnwindSafe(|| match command {
            Command::Window => self.window(),
            Command::End => {
                let taken = self.take_mail(self.shared.window.load(Relaxed));
                self.put_back(true);
                taken
            }
            Command::Redeal => {
                self.put_back(false);
                Ok(())
            }
            Command::Abort => {
                self.put_back(true);
                Ok(())
            }
            Command::Quit => Ok(()),
        }));
        let failure = match done {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(payload) => Failure::Panic(self.turn, payload),
        };
        let report = &self.shared.reports[self.thread];
        *report.failure.lock().expect("nothing panics under this mutex") = Some(failure);
        report.failed.store(true, Relaxed);
    }

    /// One window of the processes held.
    fn window(&mut self) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        let window = shared.window.load(Relaxed);
        let horizon = Time::from_ps(shared.horizon.load(Relaxed));
        self.pick_up();
        self.take_mail(window)?;
        let (mut events, mut earliest) = (0, Time::NEVER);
        for held in &mut self.held {
            if held.next < horizon {
                self.turn = held.number;
                let handled = self
                    .outbox
                    .turn(held.number, &mut held.process, held.next, horizon)
                    .map_err(|error| Failure::Wrong(held.number, error))?;
                held.next = held.process.next_time();
                held.load += handled;
                events += handled;
            }
            earliest = earliest.min(held.next);
        }
        let (mail, arrival) = self.outbox.posted();
        shared.mailboxes.put(window, self.thread, self.outbox.mail());
        if balance::due(window + 1) {
            for held in &mut self.held {
                shared.loads[held.number as usize].store(std::mem::take(&mut held.load), Relaxed);
            }
        }
        self.statistics.events += events;
        let report = &shared.reports[self.thread];
        report.earliest.store(earliest.min(arrival).ps(), Relaxed);
        report.events.store(events, Relaxed);
        report.handled.store(self.statistics.events, Relaxed);
        report.mail.store(mail, Relaxed);
        Ok(())
    }

    /// Hands the mail of the window before `window` to the processes held.
    fn take_mail(&mut self, window: u64) -> Result<(), Failure> {
        let Some(window) = window.checked_sub(1) else { return Ok(()) };
        let mut repeated = None;
        for held in &mut self.held {
            self.turn = held.number;
            self.shared.mailboxes.take(window, held.number as usize, |mail| self.inbox.collect(mail));
            match self.inbox.deliver(&mut held.process) {
                Ok(0) => {}
                Ok(count) => {
                    held.load += count;
                    held.next = held.process.next_time();
                }
                Err(key) => repeated = Some(repeated.map_or(key, |first: EventKey| first.min(key))),
            }
        }
        repeated.map_or(Ok(()), |key| Err(Failure::Repeated(key)))
    }

    /// Takes the processes dealt to this thread out of the pool, after a new deal.
    fn pick_up(&mut self) {
        if !std::mem::take(&mut self.dealt) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        for ((number, owner), place) in (0..).zip(&shared.owners).zip(&shared.pool) {
            if owner.load(Relaxed) as usize != self.thread {
                continue;
            }
            // Those held already are not in the pool.
            if let Some(mut process) = place.lock().expect("nothing panics under this mutex").take() {
                self.turn = number;
                let next = process.next_time();
                self.held.push(Held { number, process, next, load: 0 });
            }
        }
        self.held.sort_by_key(|held| held.number);
    }

    /// Puts the processes dealt to others, or all, into the pool.
    fn put_back(&mut self, all: bool) {
        self.dealt = true;
        let shared = Arc::clone(&self.shared);
        let lost = |held: &mut Held<P>| {
            all || shared.owners[held.number as usize].load(Relaxed) as usize != self.thread
        };
        for held in self.held.extract_if(.., lost) {
            let place = &shared.pool[held.number as usize];
            *place.lock().expect("nothing panics under this mutex") = Some(held.process);
        }
    }

    /// Books the time since the last look as waiting.
    pub(super) fn book_waiting(&mut self) {
        let now = now();
        self.statistics.waiting += now - self.last;
        self.last = now;
        self.shared.reports[self.thread].waiting.store(self.statistics.waiting.as_nanos() as u64, Relaxed);
    }

    /// Books the time since the last look as busy.
    pub(super) fn book_busy(&mut self) {
        let now = now();
        self.statistics.busy += now - self.last;
        self.last = now;
        self.shared.reports[self.thread].busy.store(self.statistics.busy.as_nanos() as u64, Relaxed);
    }
}
