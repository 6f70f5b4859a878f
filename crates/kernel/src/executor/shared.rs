//! What the threads of a run share: processes between two holders, orders of the leader, and reports to it.
//!
//! The barrier orders all of it: who writes is alone with what it writes until the barrier has been passed, so the atomics
//! are relaxed.

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::barrier::Barrier;
use super::mailbox::Mailboxes;
use super::process::{Envelope, ExecutorError, Process};
use super::statistics::ThreadStatistics;
use crate::queue::EventKey;
use crate::units::Time;

/// Looks at the barrier's flag before a thread sleeps, some tens of microseconds.
const SPINS: u32 = 2_000;

/// Why a thread could not end its window, in the order in which the sequential executor would have found it.
pub(super) enum Failure {
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
pub(super) enum Command {
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

/// What a thread leaves for the leader, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Report {
    pub(super) earliest: AtomicU64,
    pub(super) events: AtomicU64,
    pub(super) mail: AtomicU64,
    /// Events, nanoseconds in processes and mail, and at the barrier, so far.
    pub(super) handled: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(super) waiting: AtomicU64,
    pub(super) failed: AtomicBool,
    pub(super) failure: Mutex<Option<Failure>>,
}

impl Report {
    /// Of the thread so far.
    pub(super) fn statistics(&self) -> ThreadStatistics {
        ThreadStatistics {
            events: self.handled.load(Relaxed),
            busy: Duration::from_nanos(self.busy.load(Relaxed)),
            waiting: Duration::from_nanos(self.waiting.load(Relaxed)),
        }
    }
}

/// What all threads see. The barrier orders the relaxed atomics.
pub(super) struct Shared<P: Process> {
    pub(super) barrier: Barrier,
    command: AtomicU8,
    pub(super) horizon: AtomicU64,
    pub(super) window: AtomicU64,
    pub(super) reports: Vec<Report>,
    pub(super) mailboxes: Mailboxes<Envelope<P::Message>>,
    /// Processes that no thread holds.
    pub(super) pool: Vec<Mutex<Option<P>>>,
    /// Thread of each process.
    pub(super) owners: Vec<AtomicU32>,
    /// Events and mail of each process since the last look; written just before one.
    pub(super) loads: Vec<AtomicU64>,
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

    pub(super) fn release(&self, command: Command) {
        self.command.store(command as u8, Relaxed);
        self.barrier.release();
    }

    pub(super) fn command(&self) -> Command {
        match self.command.load(Relaxed) {
            0 => Command::Window,
            1 => Command::Redeal,
            2 => Command::End,
            3 => Command::Abort,
            _ => Command::Quit,
        }
    }

    /// The time of the earliest event of all processes, which lie in the pool.
    pub(super) fn earliest(&self) -> Time {
        let next = |place: &Mutex<Option<P>>| {
            place.lock().expect("nothing panics under this mutex").as_mut().map(Process::next_time)
        };
        self.pool.iter().filter_map(next).min().unwrap_or(Time::NEVER)
    }

    /// The failure that comes first.
    pub(super) fn failure(&self) -> Option<Failure> {
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
