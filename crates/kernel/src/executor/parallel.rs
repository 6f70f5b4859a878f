//! All processes at once, on several threads.
//!
//! **Life cycle.** The caller's thread leads; the others are started for the run and joined before it returns
//! ([`Parallel`]), or kept for the next one ([`Crew`](super::Crew)). A window: each thread takes the mail of the last window for its processes, lets them advance to the horizon, leaves their mail
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
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::balance;
use super::barrier::Barrier;
use super::inbox::Inbox;
use super::mailbox::Mailboxes;
use super::process::{
    Control, End, Envelope, ExecutorError, Outbox, Outcome, Process, Progress, homes, window_end,
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
    pub(super) together: bool,
    /// Of each process.
    owners: Vec<u32>,
    /// Of each process.
    loads: Vec<u64>,
    pub(super) statistics: RunStatistics,
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
        control: impl FnMut(&Progress) -> Control,
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
        control: impl FnMut(&Progress) -> Control,
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
        control: impl FnMut(&Progress) -> Control,
    ) -> Result<Outcome, ExecutorError>
    where
        P: Process + Send,
        P::Message: Send,
    {
        let homes = homes(processes)?;
        self.deal(processes.len(), threads);
        let shared = Arc::new(Shared::new(processes.iter_mut().collect(), &self.owners, threads));
        let mut leader = Leader::new(&shared, homes, lookahead);
        std::thread::scope(|scope| {
            for thread in 1..threads {
                let mut worker = leader.worker(thread);
                scope.spawn(move || worker.serve());
            }
            // Sends the workers home, also when the control panics, so that the scope can join them.
            let _home = SendHome(&shared);
            shared.barrier.gather();
            leader.run(self, until, control)
        })
    }

    /// Deals the processes out, unless that has been done.
    pub(super) fn deal(&mut self, processes: usize, threads: usize) {
        if self.owners.len() != processes || self.owners.iter().any(|&owner| owner as usize >= threads) {
            self.owners = balance::first_deal(processes, threads);
            self.loads = vec![0; processes];
        }
        self.statistics
            .threads
            .resize(threads.max(self.statistics.threads.len()), ThreadStatistics::default());
    }

    /// Thread of each process.
    pub(super) fn owners(&self) -> &[u32] {
        &self.owners
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
    /// Put back all processes and forget the mail, after a failure.
    Abort,
    /// Go home.
    Quit,
}

impl Report {
    /// Of the thread so far.
    fn statistics(&self) -> ThreadStatistics {
        ThreadStatistics {
            events: self.handled.load(Relaxed),
            busy: Duration::from_nanos(self.busy.load(Relaxed)),
            waiting: Duration::from_nanos(self.waiting.load(Relaxed)),
        }
    }
}

/// What a thread leaves for the leader, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Report {
    earliest: AtomicU64,
    events: AtomicU64,
    mail: AtomicU64,
    /// Events, nanoseconds in processes and mail, and at the barrier, so far.
    handled: AtomicU64,
    busy: AtomicU64,
    waiting: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

/// What all threads see. The barrier orders the relaxed atomics.
pub(super) struct Shared<P: Process> {
    pub(super) barrier: Barrier,
    command: AtomicU8,
    horizon: AtomicU64,
    window: AtomicU64,
    reports: Vec<Report>,
    mailboxes: Mailboxes<Envelope<P::Message>>,
    /// Processes that no thread holds.
    pub(super) pool: Vec<Mutex<Option<P>>>,
    /// Thread of each process.
    owners: Vec<AtomicU32>,
    /// Events and mail of each process since the last look; written just before one.
    loads: Vec<AtomicU64>,
}

impl<P: Process> Shared<P> {
    pub(super) fn new(processes: Vec<P>, owners: &[u32], threads: usize) -> Self {
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
            pool: processes.into_iter().map(|process| Mutex::new(Some(process))).collect(),
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
            3 => Command::Abort,
            _ => Command::Quit,
        }
    }

    /// The time of the earliest event of all processes, which lie in the pool.
    fn earliest(&self) -> Time {
        let next = |place: &Mutex<Option<P>>| {
            place.lock().expect("nothing panics under this mutex").as_mut().map(Process::next_time)
        };
        self.pool.iter().filter_map(next).min().unwrap_or(Time::NEVER)
    }

    /// The failure that comes first.
    fn failure(&self) -> Option<Failure> {
        let take = |report: &Report| report.failure.lock().expect("nothing panics under this mutex").take();
        self.reports.iter().filter_map(take).min_by_key(Failure::rank)
    }
}

/// Sends the workers, who are at the barrier, home when the leader is done, or unwinds.
pub(super) struct SendHome<'s, P: Process>(pub(super) &'s Shared<P>);

impl<P: Process> Drop for SendHome<'_, P> {
    fn drop(&mut self) {
        self.0.release(Command::Quit);
    }
}

/// The caller's thread, from run to run. Between two runs the workers are gathered at the barrier and all processes lie
/// in the pool.
pub(super) struct Leader<P: Process> {
    own: Worker<P>,
    lookahead: Span,
    /// Windows of all runs.
    windows: u64,
    /// Looks left until the others are called back; 0 while all work together.
    pause: u64,
    /// Looks of the next pause.
    patience: u64,
    /// Work of all threads at the last look, the time that runs have taken since, and when that was last added to.
    busy: Duration,
    time: Duration,
    since: Instant,
}

/// Looks of the longest pause.
const LONGEST_PAUSE: u64 = 64;

impl<P: Process> Leader<P> {
    pub(super) fn new(shared: &Arc<Shared<P>>, homes: Arc<[u32]>, lookahead: Span) -> Self {
        let outbox = Outbox::new(homes, shared.pool.len(), lookahead);
        Self {
            own: Worker::new(Arc::clone(shared), 0, outbox),
            lookahead,
            windows: 0,
            pause: 0,
            patience: 1,
            busy: Duration::ZERO,
            time: Duration::ZERO,
            since: now(),
        }
    }

    /// Another thread's part.
    pub(super) fn worker(&self, thread: usize) -> Worker<P> {
        Worker::new(Arc::clone(&self.own.shared), thread, self.own.outbox.fresh())
    }

    /// A run: see [`Parallel::run`].
    pub(super) fn run(
        &mut self,
        balance: &mut Parallel,
        until: Time,
        control: impl FnMut(&Progress) -> Control,
    ) -> Result<Outcome, ExecutorError> {
        self.since = now();
        self.own.last = self.since;
        let before: Vec<ThreadStatistics> = self.own.shared.reports.iter().map(Report::statistics).collect();
        let mut tally = Tally::default();
        let end = self.lead(balance, until, control, &mut tally);
        self.time += self.since.elapsed();
        let threads = self.own.shared.reports.iter().zip(before);
        let threads: Vec<ThreadStatistics> =
            threads.map(|(report, before)| report.statistics().since(before)).collect();
        balance.statistics.redeals += tally.redeals;
        balance.statistics.windows_alone += tally.windows_alone;
        balance.count(&tally.progress, tally.critical_events, &threads);
        match self.own.shared.failure() {
            None => Ok(Outcome { end: end.expect("a run ends or fails"), progress: tally.progress }),
            Some(Failure::Repeated(key)) => Err(ExecutorError::RepeatedKey { key }),
            Some(Failure::Wrong(_, error)) => Err(error),
            Some(Failure::Panic(_, payload)) => resume_unwind(payload),
        }
    }

    /// Leads a run to its end; `None` after a failure.
    fn lead(
        &mut self,
        balance: &mut Parallel,
        until: Time,
        mut control: impl FnMut(&Progress) -> Control,
        tally: &mut Tally,
    ) -> Option<End> {
        let mut earliest = self.own.shared.earliest();
        loop {
            tally.progress.time = earliest.min(until);
            let mut end = End::before(earliest, until);
            if end.is_some() && tally.progress.windows == 0 {
                return end;
            }
            if end.is_none() && tally.progress.windows > 0 && control(&tally.progress) == Control::Cancel {
                end = Some(End::Cancelled);
            }
            self.own.shared.window.store(self.windows, Relaxed);
            if end.is_some() {
                self.round(Command::End);
                return end;
            }
            if self.windows > 0 && balance::due(self.windows) {
                self.look(balance, tally);
            }
            self.own.shared.horizon.store(window_end(earliest, self.lookahead).min(until).ps(), Relaxed);
            tally.progress.windows += 1;
            self.windows += 1;
            tally.windows_alone += u64::from(self.pause > 0);
            self.round(Command::Window);
            earliest = self.collect(tally);
            if self.own.shared.reports.iter().any(|report| report.failed.load(Relaxed)) {
                self.round(Command::Abort);
                return None;
            }
        }
    }

    /// Lets all threads do `command`, this one included, and waits for them. In a pause the others sleep at the barrier,
    /// where they have arrived, and hold nothing.
    fn round(&mut self, command: Command) {
        let together = self.pause == 0 || command == Command::Redeal;
        if together {
            self.own.shared.release(command);
        }
        self.own.book_waiting();
        self.own.obey(command);
        self.own.book_busy();
        if together {
            self.own.shared.barrier.gather();
        }
    }

    /// Sums up the reports of a window and returns the earliest time of events and mail.
    fn collect(&self, tally: &mut Tally) -> Time {
        let (mut earliest, mut most) = (Time::NEVER, 0);
        let working = if self.pause == 0 { self.own.shared.reports.len() } else { 1 };
        for report in &self.own.shared.reports[..working] {
            let events = report.events.load(Relaxed);
            earliest = earliest.min(Time::from_ps(report.earliest.load(Relaxed)));
            most = most.max(events);
            tally.progress.events += events;
            tally.progress.mail += report.mail.load(Relaxed);
        }
        tally.critical_events += most;
        earliest
    }

    /// Looks at loads and times: deals the processes anew if the threads are uneven, and goes on alone for a while if
    /// that is faster, as where windows hold a few events, or where somebody else has the cores.
    fn look(&mut self, balance: &mut Parallel, tally: &mut Tally) {
        let shared = Arc::clone(&self.own.shared);
        let busy = |report: &Report| Duration::from_nanos(report.busy.load(Relaxed));
        let busy: Duration = shared.reports.iter().map(busy).sum();
        let (time, work) = (self.time + self.since.elapsed(), busy.saturating_sub(self.busy));
        let threads = shared.reports.len();
        for (load, fresh) in balance.loads.iter_mut().zip(&shared.loads) {
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
            tally.redeals += 1;
            moved = true;
        }
        if moved {
            for (shared, &owner) in shared.owners.iter().zip(&balance.owners) {
                shared.store(if self.pause == 0 { owner } else { 0 }, Relaxed);
            }
            self.round(Command::Redeal);
        }
        self.busy = busy;
        (self.time, self.since) = (Duration::ZERO, now());
    }
}

/// What a run adds to the statistics.
#[derive(Default)]
struct Tally {
    progress: Progress,
    critical_events: u64,
    redeals: u64,
    windows_alone: u64,
}

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
    shared: Arc<Shared<P>>,
    thread: usize,
    /// In the order of their numbers; the same order finds the same failure first.
    held: Vec<Held<P>>,
    outbox: Outbox<P::Message>,
    inbox: Inbox<P::Message>,
    /// The process whose turn it is.
    turn: u32,
    /// Whether processes have been dealt since this thread last looked.
    dealt: bool,
    statistics: ThreadStatistics,
    last: Instant,
}

impl<P: Process> Worker<P> {
    fn new(shared: Arc<Shared<P>>, thread: usize, outbox: Outbox<P::Message>) -> Self {
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

    fn obey(&mut self, command: Command) {
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
    fn book_waiting(&mut self) {
        let now = now();
        self.statistics.waiting += now - self.last;
        self.last = now;
        self.shared.reports[self.thread].waiting.store(self.statistics.waiting.as_nanos() as u64, Relaxed);
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
pub(super) fn now() -> Instant {
    Instant::now()
}
