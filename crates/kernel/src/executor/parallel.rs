//! All processes at once, on several threads.
//!
//! **Life cycle.** The caller's thread leads; the others are started for the run and joined before it returns. A window:
//! each thread takes the mail of the last window for its processes, lets them advance to the horizon, leaves their mail
//! in boxes and the earliest time it knows of (of events and of mail posted) in its report, and meets the others at the
//! barrier. There the leader, alone, takes the minimum, asks the control, now and then deals the processes anew, and
//! sets the next horizon. One barrier a window. Where this takes longer than the work of all threads together, the leader
//! takes all processes and goes on without a barrier, for 1, 2, 4, … looks, and tries again.
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
    /// Whether the leader never goes on alone.
    together: bool,
    /// Of each process.
    owners: Vec<u32>,
    /// Of each process.
    loads: Vec<u64>,
    statistics: RunStatistics,
}

impl Parallel {
    /// An executor with `threads` threads, of which the caller's is one.
    pub fn new(threads: NonZeroUsize) -> Self {
        let statistics = RunStatistics::default();
        Self { threads, together: false, owners: Vec::new(), loads: Vec::new(), statistics }
    }

    /// Keeps all threads at work even where one alone would be faster; to measure what threads cost.
    #[must_use]
    pub fn keep_together(mut self) -> Self {
        self.together = true;
        self
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
            windows_alone: 0,
            pause: 0,
            patience: 1,
            busy: Duration::ZERO,
            looked: now(),
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
        let (progress, critical) = (leader.progress, leader.critical_events);
        let (redeals, windows_alone) = (leader.redeals, leader.windows_alone);
        let (end, threads) = ended;
        self.statistics.redeals += redeals;
        self.statistics.windows_alone += windows_alone;
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
    /// Nanoseconds in processes and mail, of the run so far.
    busy: AtomicU64,
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
    windows_alone: u64,
    /// Looks left until the others are called back; 0 while all work together.
    pause: u64,
    /// Looks of the next pause.
    patience: u64,
    /// Of all threads, and when, at the last look.
    busy: Duration,
    looked: Instant,
    balance: &'s mut Parallel,
}

/// Looks of the longest pause.
const LONGEST_PAUSE: u64 = 64;

impl<P: Process, C: FnMut(&Progress) -> Verdict> Leader<'_, '_, P, C> {
    /// Leads the run to its end; `None` after a failure.
    fn lead(&mut self, own: &mut Worker<'_, '_, P>, mut earliest: Time) -> Option<End> {
        self.shared.barrier.gather();
        self.looked = now();
        loop {
            self.progress.time = earliest.min(self.until);
            let mut end = End::before(earliest, self.until);
            if end.is_none() && self.progress.windows > 0 && (self.control)(&self.progress) == Verdict::Cancel
            {
                end = Some(End::Cancelled);
            }
            if end.is_some() {
                self.shared.window.store(self.progress.windows, Relaxed);
                self.round(own, Command::End);
                return end;
            }
            self.shared.window.store(self.progress.windows, Relaxed);
            if self.progress.windows > 0 && balance::due(self.progress.windows) {
                self.look(own);
            }
            self.shared.horizon.store(window_end(earliest, self.lookahead).min(self.until).0, Relaxed);
            self.progress.windows += 1;
            if self.pause == 0 {
                self.round(own, Command::Window);
            } else {
                // The others sleep at the barrier, where they have arrived.
                self.windows_alone += 1;
                own.book_waiting();
                own.obey(Command::Window);
                own.book_busy();
            }
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
        let working = if self.pause == 0 { self.shared.reports.len() } else { 1 };
        for report in &self.shared.reports[..working] {
            let events = report.events.load(Relaxed);
            earliest = earliest.min(Time(report.earliest.load(Relaxed)));
            most = most.max(events);
            self.progress.events += events;
            self.progress.mail += report.mail.load(Relaxed);
        }
        self.critical_events += most;
        earliest
    }

    /// Looks at loads and times: deals the processes anew if the threads are uneven, and goes on alone for a while if
    /// that is faster, as where windows hold a few events, or where somebody else has the cores.
    fn look(&mut self, own: &mut Worker<'_, '_, P>) {
        let busy = |report: &Report| Duration::from_nanos(report.busy.load(Relaxed));
        let busy: Duration = self.shared.reports.iter().map(busy).sum();
        let (time, work) = (self.looked.elapsed(), busy.saturating_sub(self.busy));
        let threads = self.shared.reports.len();
        let balance = &mut *self.balance;
        for (load, fresh) in balance.loads.iter_mut().zip(&self.shared.loads) {
            *load = *load / 2 + fresh.load(Relaxed);
        }
        let mut moved = false;
        if self.pause > 0 {
            self.pause -= 1;
            moved = self.pause == 0;
        } else if time > work && !balance.together {
            // One thread would have done the work of all sooner.
            self.pause = self.patience;
            self.patience = (2 * self.patience).min(LONGEST_PAUSE);
            moved = true;
        } else {
            self.patience = 1;
        }
        if self.pause == 0
            && let Some(better) = balance::redeal(&balance.loads, &balance.owners, threads)
        {
            balance.owners = better;
            self.redeals += 1;
            moved = true;
        }
        if moved {
            for (shared, &owner) in self.shared.owners.iter().zip(&balance.owners) {
                shared.store(if self.pause == 0 { owner } else { 0 }, Relaxed);
            }
            self.round(own, Command::Redeal);
        }
        self.busy = busy;
        self.looked = now();
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
            Command::End => self.take_mail(self.shared.window.load(Relaxed)),
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
        self.take_mail(window)?;
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
        if balance::due(window + 1) {
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

    /// Hands the mail of the window before `window` to the processes held.
    fn take_mail(&mut self, window: u64) -> Result<(), Failure> {
        let Some(window) = window.checked_sub(1) else { return Ok(()) };
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
        self.shared.reports[self.thread].busy.store(self.statistics.busy.as_nanos() as u64, Relaxed);
    }
}

#[allow(clippy::disallowed_methods, reason = "statistics tell the wall clock; no result depends on it")]
fn now() -> Instant {
    Instant::now()
}
