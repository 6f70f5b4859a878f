//! All processes at once, on several threads.
//!
//! **Life cycle.** The caller's thread leads; the others are started for the run and joined before it returns. A window:
//! each thread takes the mail of the last window for its processes, lets them advance to the horizon, leaves their mail
//! in boxes and the earliest time it knows of (of events and of mail posted) in its report, and meets the others at the
//! barrier. There the leader, alone, takes the minimum, asks the control, now and then deals the processes anew, and
//! sets the next horizon. One barrier a window.
//!
//! **Invariants.** A process is held by one thread at a time: it lies in a pool between two holders. Mail is sorted by
//! key before a process receives it, so neither threads nor deals can be seen in a result; windows, events, mail and
//! the progress told are those of [`Sequential`].
//!
//! **Failure modes.** The error is the one that [`Sequential`] reports, of the lowest process in the earliest window. A
//! panic of a process is carried to the caller, by the same order; a panic of the control ends the threads first.
//! Mail with a repeated key is found one window later, after one more call of the control.

use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::balance;
use super::barrier::Barrier;
use super::inbox::Inbox;
use super::mailbox::Mailboxes;
use super::process::{
    End, Envelope, ExecutorError, Outbox, Outcome, Process, Progress, Verdict, homes, window_end,
};
use super::sequential::Sequential;
use super::statistics::{RunStatistics, ThreadStatistics};
use crate::queue::EventKey;
use crate::units::{Span, Time};

/// Looks at the barrier's flag before a thread sleeps, some tens of microseconds.
const SPINS: u32 = 2_000;

/// Runs processes on several threads. It remembers loads and statistics from one run of the same processes to the next.
#[derive(Clone, Debug)]
pub struct Parallel {
    threads: NonZeroUsize,
    /// Of each process.
    owners: Vec<u32>,
    /// Of each process.
    loads: Vec<u64>,
    statistics: RunStatistics,
}

impl Parallel {
    /// An executor with `threads` threads, of which the caller's is one.
    pub fn new(threads: NonZeroUsize) -> Self {
        Self { threads, owners: Vec::new(), loads: Vec::new(), statistics: RunStatistics::default() }
    }

    /// What all runs so far cost.
    pub fn statistics(&self) -> &RunStatistics {
        &self.statistics
    }

    /// Runs `processes` as [`Sequential::run`] does; `control` is asked on the caller's thread.
    ///
    /// # Errors
    /// As [`Sequential::run`].
    ///
    /// # Panics
    /// With the panic of a process or of `control`.
    pub fn run<P>(
        &mut self,
        processes: &mut [P],
        lookahead: Span,
        until: Time,
        control: impl FnMut(&Progress) -> Verdict,
    ) -> Result<Outcome, ExecutorError>
    where
        P: Process + Send,
        P::Message: Send,
    {
        let threads = self.threads.get().min(processes.len()).max(1);
        self.statistics
            .threads
            .resize(threads.max(self.statistics.threads.len()), ThreadStatistics::default());
        let start = now();
        let result = if threads == 1 {
            self.run_alone(processes, lookahead, until, control)
        } else if lookahead == Span::ZERO {
            Err(ExecutorError::NoLookahead { processes: processes.len() })
        } else {
            self.run_threads(threads, processes, lookahead, until, control)
        };
        self.statistics.elapsed += start.elapsed();
        result
    }

    fn run_alone<P: Process>(
        &mut self,
        processes: &mut [P],
        lookahead: Span,
        until: Time,
        control: impl FnMut(&Progress) -> Verdict,
    ) -> Result<Outcome, ExecutorError> {
        let start = now();
        let outcome = Sequential::run(processes, lookahead, until, control)?;
        let thread = ThreadStatistics {
            events: outcome.progress.events,
            busy: start.elapsed(),
            waiting: Duration::ZERO,
        };
        self.count(&outcome.progress, outcome.progress.events, &[thread]);
        Ok(outcome)
    }

    fn run_threads<P>(
        &mut self,
        threads: usize,
        processes: &mut [P],
        lookahead: Span,
        until: Time,
        control: impl FnMut(&Progress) -> Verdict,
    ) -> Result<Outcome, ExecutorError>
    where
        P: Process + Send,
        P::Message: Send,
    {
        let count = processes.len();
        let outbox = Outbox::new(homes(processes)?, count, lookahead);
        let earliest = processes.iter_mut().map(Process::next_time).min().unwrap_or(Time::NEVER);
        if let Some(end) = End::before(earliest, until) {
            return Ok(Outcome {
                end,
                progress: Progress { time: earliest.min(until), ..Progress::default() },
            });
        }
        if self.owners.len() != count || self.owners.iter().any(|&owner| owner as usize >= threads) {
            self.owners = balance::first_deal(count, threads);
            self.loads = vec![0; count];
        }
        let shared = Shared::new(processes, &self.owners, threads);
        let mut leader = Leader {
            shared: &shared,
            control,
            lookahead,
            until,
            progress: Progress::default(),
            critical_events: 0,
            redeals: 0,
            balance: self,
        };
        let ended = std::thread::scope(|scope| {
            let workers: Vec<_> = (1..threads)
                .map(|thread| {
                    let mut worker = Worker::new(&shared, thread, outbox.fresh());
                    scope.spawn(move || worker.serve())
                })
                .collect();
            let mut own = Worker::new(&shared, 0, outbox);
            let end = {
                let _stop = StopOnUnwind(&shared);
                leader.lead(&mut own, earliest)
            };
            let mut threads = vec![own.statistics];
            threads.extend(workers.into_iter().map(|worker| worker.join().expect("workers catch panics")));
            (end, threads)
        });
        let (progress, critical, redeals) = (leader.progress, leader.critical_events, leader.redeals);
        let (end, threads) = ended;
        self.statistics.redeals += redeals;
        self.count(&progress, critical, &threads);
        match shared.failure() {
            None => Ok(Outcome { end: end.expect("a run ends or fails"), progress }),
            Some(Failure::Repeated(key)) => Err(ExecutorError::RepeatedKey { key }),
            Some(Failure::Wrong(_, error)) => Err(error),
            Some(Failure::Panic(_, payload)) => resume_unwind(payload),
        }
    }

    fn count(&mut self, progress: &Progress, critical_events: u64, threads: &[ThreadStatistics]) {
        let statistics = &mut self.statistics;
        statistics.windows += progress.windows;
        statistics.events += progress.events;
        statistics.mail += progress.mail;
        statistics.critical_events += critical_events;
        for (sum, thread) in statistics.threads.iter_mut().zip(threads) {
            sum.events += thread.events;
            sum.busy += thread.busy;
            sum.waiting += thread.waiting;
        }
    }
}

/// Why a thread could not end its window, in the order in which the sequential executor would have found it.
enum Failure {
    /// In the mail of the window before.
    Repeated(EventKey),
    /// Of a process.
    Wrong(u32, ExecutorError),
    /// Of a process.
    Panic(u32, Box<dyn Any + Send>),
}

impl Failure {
    fn rank(&self) -> (bool, EventKey, u32) {
        match *self {
            Self::Repeated(key) => (false, key, 0),
            Self::Wrong(process, _) | Self::Panic(process, _) => (true, EventKey::default(), process),
        }
    }
}

/// What the threads do after the barrier.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Command {
    /// Take mail and advance to the horizon.
    Window,
    /// Put back the processes that another thread is to have.
    Redeal,
    /// Take mail and end.
    End,
    /// End at once.
    Abort,
}

/// What a thread leaves for the leader, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Report {
    earliest: AtomicU64,
    events: AtomicU64,
    mail: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

/// What all threads see. The barrier orders the relaxed atomics.
struct Shared<'a, P: Process> {
    barrier: Barrier,
    command: AtomicU8,
    horizon: AtomicU64,
    window: AtomicU64,
    reports: Vec<Report>,
    mailboxes: Mailboxes<Envelope<P::Message>>,
    /// Processes that no thread holds.
    pool: Vec<Mutex<Option<&'a mut P>>>,
    /// Thread of each process.
    owners: Vec<AtomicU32>,
    /// Events and mail of each process since the last look; written just before one.
    loads: Vec<AtomicU64>,
}

impl<'a, P: Process> Shared<'a, P> {
    fn new(processes: &'a mut [P], owners: &[u32], threads: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            barrier: Barrier::new(threads - 1, if threads > cores { 0 } else { SPINS }),
            command: AtomicU8::new(Command::Window as u8),
            horizon: AtomicU64::new(0),
            window: AtomicU64::new(0),
            reports: std::iter::repeat_with(Report::default).take(threads).collect(),
            mailboxes: Mailboxes::new(threads, processes.len()),
            owners: owners.iter().map(|&owner| AtomicU32::new(owner)).collect(),
            loads: owners.iter().map(|_| AtomicU64::new(0)).collect(),
            pool: processes.iter_mut().map(|process| Mutex::new(Some(process))).collect(),
        }
    }

    fn release(&self, command: Command) {
        self.command.store(command as u8, Relaxed);
        self.barrier.release();
    }

    fn command(&self) -> Command {
        match self.command.load(Relaxed) {
            0 => Command::Window,
            1 => Command::Redeal,
            2 => Command::End,
            _ => Command::Abort,
        }
    }

    /// The failure that comes first.
    fn failure(&self) -> Option<Failure> {
        let take = |report: &Report| report.failure.lock().expect("nothing panics under this mutex").take();
        self.reports.iter().filter_map(take).min_by_key(Failure::rank)
    }
}

/// Sends the workers home when the control panics, so that the scope can join them.
struct StopOnUnwind<'s, 'a, P: Process>(&'s Shared<'a, P>);

impl<P: Process> Drop for StopOnUnwind<'_, '_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.release(Command::Abort);
        }
    }
}

/// The caller's thread between windows.
struct Leader<'s, 'a, P: Process, C> {
    shared: &'s Shared<'a, P>,
    control: C,
    lookahead: Span,
    until: Time,
    progress: Progress,
    critical_events: u64,
    redeals: u64,
    balance: &'s mut Parallel,
}

impl<P: Process, C: FnMut(&Progress) -> Verdict> Leader<'_, '_, P, C> {
    /// Leads the run to its end; `None` after a failure.
    fn lead(&mut self, own: &mut Worker<'_, '_, P>, mut earliest: Time) -> Option<End> {
        self.shared.barrier.gather();
        loop {
            self.progress.time = earliest.min(self.until);
            let mut end = End::before(earliest, self.until);
            if end.is_none() && self.progress.windows > 0 && (self.control)(&self.progress) == Verdict::Cancel
            {
                end = Some(End::Cancelled);
            }
            if end.is_some() {
                self.round(own, Command::End);
                return end;
            }
            if self.progress.windows > 0 && balance::due(self.progress.windows) && self.redeal() {
                self.round(own, Command::Redeal);
            }
            self.shared.horizon.store(window_end(earliest, self.lookahead).min(self.until).0, Relaxed);
            self.shared.window.store(self.progress.windows, Relaxed);
            self.progress.windows += 1;
            self.round(own, Command::Window);
            earliest = self.collect();
            if self.shared.reports.iter().any(|report| report.failed.load(Relaxed)) {
                self.shared.release(Command::Abort);
                return None;
            }
        }
    }

    /// Lets all threads do `command`, this one included, and waits for them; nobody comes back from an end.
    fn round(&self, own: &mut Worker<'_, '_, P>, command: Command) {
        self.shared.release(command);
        own.book_waiting();
        own.obey(command);
        own.book_busy();
        if command != Command::End {
            self.shared.barrier.gather();
        }
    }

    /// Sums up the reports of a window and returns the earliest time of events and mail.
    fn collect(&mut self) -> Time {
        let (mut earliest, mut most) = (Time::NEVER, 0);
        for report in &self.shared.reports {
            let events = report.events.load(Relaxed);
            earliest = earliest.min(Time(report.earliest.load(Relaxed)));
            most = most.max(events);
            self.progress.events += events;
            self.progress.mail += report.mail.load(Relaxed);
        }
        self.critical_events += most;
        earliest
    }

    /// Looks at the loads; whether processes are to change hands.
    fn redeal(&mut self) -> bool {
        let Parallel { owners, loads, .. } = &mut *self.balance;
        for (load, fresh) in loads.iter_mut().zip(&self.shared.loads) {
            *load = *load / 2 + fresh.load(Relaxed);
        }
        let Some(better) = balance::redeal(loads, owners, self.shared.reports.len()) else { return false };
        for (shared, &owner) in self.shared.owners.iter().zip(&better) {
            shared.store(owner, Relaxed);
        }
        *owners = better;
        self.redeals += 1;
        true
    }
}

/// A process in the hands of a thread.
struct Held<'a, P> {
    number: u32,
    process: &'a mut P,
    next: Time,
    /// Events and mail since the last look.
    load: u64,
}

/// A thread and the processes it holds.
struct Worker<'s, 'a, P: Process> {
    shared: &'s Shared<'a, P>,
    thread: usize,
    /// In the order of their numbers; the same order finds the same failure first.
    held: Vec<Held<'a, P>>,
    outbox: Outbox<P::Message>,
    inbox: Inbox<P::Message>,
    /// The process whose turn it is.
    turn: u32,
    /// Windows taken part in; the mail of the last is yet to be taken.
    windows: u64,
    /// Whether processes have been dealt since this thread last looked.
    dealt: bool,
    statistics: ThreadStatistics,
    last: Instant,
}

impl<'s, 'a, P: Process> Worker<'s, 'a, P> {
    fn new(shared: &'s Shared<'a, P>, thread: usize, outbox: Outbox<P::Message>) -> Self {
        Self {
            shared,
            thread,
            held: Vec::new(),
            outbox,
            inbox: Inbox::new(),
            turn: 0,
            windows: 0,
            dealt: true,
            statistics: ThreadStatistics::default(),
            last: now(),
        }
    }

    /// Obeys the leader until the end of the run.
    fn serve(&mut self) -> ThreadStatistics {
        for round in 0.. {
            self.shared.barrier.arrive();
            self.shared.barrier.wait(round);
            let command = self.shared.command();
            self.book_waiting();
            self.obey(command);
            self.book_busy();
            if matches!(command, Command::End | Command::Abort) {
                break;
            }
        }
        self.statistics
    }

    fn obey(&mut self, command: Command) {
        let done = catch_unwind(AssertUnwindSafe(|| match command {
            Command::Window => self.window(),
            Command::End => self.take_mail(),
            Command::Redeal => {
                self.put_back();
                Ok(())
            }
            Command::Abort => Ok(()),
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
        let shared = self.shared;
        let window = shared.window.load(Relaxed);
        let horizon = Time(shared.horizon.load(Relaxed));
        self.pick_up();
        self.take_mail()?;
        let (mut events, mut earliest) = (0, Time::NEVER);
        for held in &mut self.held {
            if held.next < horizon {
                self.turn = held.number;
                let handled = self
                    .outbox
                    .turn(held.number, held.process, held.next, horizon)
                    .map_err(|error| Failure::Wrong(held.number, error))?;
                held.next = held.process.next_time();
                held.load += handled;
                events += handled;
            }
            earliest = earliest.min(held.next);
        }
        let (mail, arrival) = self.outbox.posted();
        shared.mailboxes.put(window, self.thread, self.outbox.mail());
        self.windows = window + 1;
        if balance::due(self.windows) {
            for held in &mut self.held {
                shared.loads[held.number as usize].store(std::mem::take(&mut held.load), Relaxed);
            }
        }
        self.statistics.events += events;
        let report = &shared.reports[self.thread];
        report.earliest.store(earliest.min(arrival).0, Relaxed);
        report.events.store(events, Relaxed);
        report.mail.store(mail, Relaxed);
        Ok(())
    }

    /// Hands the mail of the last window to the processes held.
    fn take_mail(&mut self) -> Result<(), Failure> {
        let Some(window) = self.windows.checked_sub(1) else { return Ok(()) };
        let mut repeated = None;
        for held in &mut self.held {
            self.turn = held.number;
            self.shared.mailboxes.take(window, held.number as usize, |mail| self.inbox.collect(mail));
            match self.inbox.deliver(held.process) {
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
        let shared = self.shared;
        for ((number, owner), place) in (0..).zip(&shared.owners).zip(&shared.pool) {
            if owner.load(Relaxed) as usize != self.thread {
                continue;
            }
            // Those held already are not in the pool.
            if let Some(process) = place.lock().expect("nothing panics under this mutex").take() {
                self.turn = number;
                let next = process.next_time();
                self.held.push(Held { number, process, next, load: 0 });
            }
        }
        self.held.sort_by_key(|held| held.number);
    }

    /// Puts the processes dealt to others into the pool.
    fn put_back(&mut self) {
        self.dealt = true;
        let shared = self.shared;
        let lost =
            |held: &mut Held<P>| shared.owners[held.number as usize].load(Relaxed) as usize != self.thread;
        for held in self.held.extract_if(.., lost) {
            let place = &shared.pool[held.number as usize];
            *place.lock().expect("nothing panics under this mutex") = Some(held.process);
        }
    }

    /// Books the time since the last look as waiting.
    fn book_waiting(&mut self) {
        let now = now();
        self.statistics.waiting += now - self.last;
        self.last = now;
    }

    /// Books the time since the last look as busy.
    fn book_busy(&mut self) {
        let now = now();
        self.statistics.busy += now - self.last;
        self.last = now;
    }
}

#[allow(clippy::disallowed_methods, reason = "statistics tell the wall clock; no result depends on it")]
fn now() -> Instant {
    Instant::now()
}
