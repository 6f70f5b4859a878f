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

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::balance;
use super::process::{Control, End, ExecutorError, Outbox, Outcome, Process, Progress, homes, window_end};
use super::sequential::Sequential;
use super::shared::{Command, Failure, Report, SendHome, Shared};
use super::statistics::{RunStatistics, ThreadStatistics, now};
use super::worker::Worker;
use crate::units::{Span, Time};

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
