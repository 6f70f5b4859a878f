//! Logical processes, and the executor that runs them one after another.
//!
//! A model is split into processes. Each owns entities (hosts, switches, …), their state and their events; nothing is
//! shared. What an entity does to one of another process is *mail*: an event with a key, which arrives at least the
//! lookahead after it was sent. Time advances in conservative windows (Chandy and Misra 1979; windowed as in
//! Nicol, "The cost of conservative synchronization in parallel discrete event simulations", JACM 40(2), 1993): with m
//! the earliest event of all processes, none can receive mail before m + lookahead, so every process may handle its
//! events before this horizon on its own, in any order of processes or at once. Between windows all mail is sorted by
//! its key and handed over.
//!
//! **Life cycle.** [`Sequential::run`] runs until a stop time, which is not reached itself: a cluster event at T acts
//! before network events at T. It may be called again with a later stop; processes keep their events in between.
//!
//! **Invariants.** The order of events is the tuple (time, class, receiving entity, sending entity, the sender's own
//! count), [`EventKey`]; none of it knows processes, so results depend neither on how entities are spread over processes
//! nor on the order of these. A single process sees no windows: its horizon is the stop time.
//!
//! **Failure modes** are those of a wrong model, and end the run with an [`ExecutorError`] instead of a wrong result:
//! mail sooner than the lookahead, to an entity of nobody, or with a key used twice; an entity of two processes; a
//! process that handles nothing although it has an event before the horizon; no lookahead among several processes.
//!
//! A parallel executor differs only in who calls [`Process::advance`]: threads, each for the processes it holds.

use crate::queue::EventKey;
use crate::units::{Span, Time};

/// An event for another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<M> {
    /// When, for whom, from whom.
    pub key: EventKey,
    /// What.
    pub message: M,
}

/// A part of a model with its own events.
pub trait Process {
    /// What processes tell each other.
    type Message;

    /// The entities that live here, asked once at the start of a run. Entities are counted densely from 0 over all
    /// processes.
    fn entities(&self) -> Vec<u32>;

    /// Time of the earliest event, [`Time::NEVER`] if there is none.
    fn next_time(&mut self) -> Time;

    /// Handles events before `horizon` in the order of their keys, including those it makes for itself meanwhile, and
    /// returns how many. It may stop early, after at least one, to let the run be watched; it is called again.
    fn advance(&mut self, horizon: Time, outbox: &mut Outbox<Self::Message>) -> u64;

    /// Takes mail into its own events. Mail comes in the order of keys, none of it before a horizon already handled.
    fn receive(&mut self, envelope: Envelope<Self::Message>);
}

/// Where a process leaves its mail.
#[derive(Debug)]
pub struct Outbox<M> {
    /// Process of every entity.
    homes: Vec<u32>,
    /// The process whose turn it is.
    process: u32,
    lookahead: Span,
    mail: Vec<Envelope<M>>,
    error: Option<ExecutorError>,
}

impl<M> Outbox<M> {
    /// Posts mail at the instant `now` of its sender. Returns what the sender must handle itself: mail whose receiver
    /// lives in the same process, which may be as soon as it likes.
    ///
    /// A violation (see [`ExecutorError`]) ends the run after this window.
    #[must_use = "mail to the own process is handed back"]
    pub fn post(&mut self, now: Time, envelope: Envelope<M>) -> Option<Envelope<M>> {
        let key = envelope.key;
        match self.homes.get(key.receiver as usize) {
            Some(&home) if home == self.process => return Some(envelope),
            Some(&home) if home != NOBODY => {}
            _ => {
                self.fail(ExecutorError::UnknownReceiver { key });
                return None;
            }
        }
        if key.time.since(now) < self.lookahead || key.time < now {
            self.fail(ExecutorError::Lookahead { key, sent: now, lookahead: self.lookahead });
            return None;
        }
        self.mail.push(envelope);
        None
    }

    /// Keeps the first violation.
    fn fail(&mut self, error: ExecutorError) {
        self.error.get_or_insert(error);
    }
}

/// No process.
const NOBODY: u32 = u32::MAX;

/// What a model did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorError {
    /// Several processes without a lookahead could never advance.
    #[error("expected a lookahead above zero among {processes} processes, found 0 ps")]
    NoLookahead {
        /// How many.
        processes: usize,
    },
    /// Mail that would arrive too soon.
    #[error(
        "expected mail from entity {} at least {lookahead} after it was sent at {sent}, found arrival at entity {} at {}",
        key.sender, key.receiver, key.time
    )]
    Lookahead {
        /// Of the mail.
        key: EventKey,
        /// When it was posted.
        sent: Time,
        /// The promise.
        lookahead: Span,
    },
    /// Mail to an entity that lives nowhere.
    #[error("expected a receiver that lives in a process, found entity {} in mail from entity {}", key.receiver, key.sender)]
    UnknownReceiver {
        /// Of the mail.
        key: EventKey,
    },
    /// Two pieces of mail with one key.
    #[error("expected a new count for each event of entity {}, found {} twice at {}", key.sender, key.count, key.time)]
    RepeatedKey {
        /// Of both.
        key: EventKey,
    },
    /// An entity of two processes.
    #[error("expected an entity to live in one process, found entity {entity} in {first} and {second}")]
    SharedEntity {
        /// Which.
        entity: u32,
        /// The lower process.
        first: u32,
        /// The higher process.
        second: u32,
    },
    /// A process that does not advance.
    #[error(
        "expected process {process} to handle its event at {next} before the horizon {horizon}, found none handled"
    )]
    Stalled {
        /// Which.
        process: usize,
        /// Its next event.
        next: Time,
        /// The end of the window.
        horizon: Time,
    },
}

/// How far a run is, told between windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// All events before this time have been handled.
    pub time: Time,
    /// Events handled in this run.
    pub events: u64,
    /// Mail handed over in this run.
    pub mail: u64,
    /// Windows of this run.
    pub windows: u64,
}

/// The answer to a [`Progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Continue,
    /// End the run here; the processes are whole and may be run on.
    Cancel,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// No process has an event left.
    Idle,
    /// The next event is at or after the stop time.
    Stop,
    /// [`Verdict::Cancel`].
    Cancelled,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why.
    pub end: End,
    /// How far it came.
    pub progress: Progress,
}

/// Runs all processes on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequential;

impl Sequential {
    /// Runs `processes` until all events before `until` have been handled. `lookahead` is the least delay of mail
    /// between any two; `control` is asked after every window.
    ///
    /// # Errors
    /// [`ExecutorError`] where the model breaks a rule; it must not be run on then.
    pub fn run<P: Process>(
        processes: &mut [P],
        lookahead: Span,
        until: Time,
        mut control: impl FnMut(&Progress) -> Verdict,
    ) -> Result<Outcome, ExecutorError> {
        if processes.len() > 1 && lookahead == Span::ZERO {
            return Err(ExecutorError::NoLookahead { processes: processes.len() });
        }
        let homes = homes(processes)?;
        let mut outbox = Outbox { homes, process: 0, lookahead, mail: Vec::new(), error: None };
        let mut progress = Progress { time: Time::ZERO, events: 0, mail: 0, windows: 0 };
        loop {
            let earliest = processes.iter_mut().map(Process::next_time).min().unwrap_or(Time::NEVER);
            // Nothing can be sent, and so nothing arrive, before the earliest event.
            progress.time = earliest.min(until);
            if earliest >= until || earliest == Time::NEVER {
                let end = if earliest == Time::NEVER { End::Idle } else { End::Stop };
                return Ok(Outcome { end, progress });
            }
            if progress.windows > 0 && control(&progress) == Verdict::Cancel {
                return Ok(Outcome { end: End::Cancelled, progress });
            }
            let horizon =
                if processes.len() == 1 { until } else { window_end(earliest, lookahead).min(until) };
            progress.windows += 1;
            for (number, process) in processes.iter_mut().enumerate() {
                let next = process.next_time();
                if next >= horizon {
                    continue;
                }
                outbox.process = number as u32;
                let handled = process.advance(horizon, &mut outbox);
                if let Some(error) = outbox.error {
                    return Err(error);
                }
                if handled == 0 {
                    return Err(ExecutorError::Stalled { process: number, next, horizon });
                }
                progress.events += handled;
            }
            progress.mail += deliver(&mut outbox, processes)?;
        }
    }
}

/// The end of the window that begins at `earliest`; time that does not fit has no end.
fn window_end(earliest: Time, lookahead: Span) -> Time {
    Time(earliest.0.saturating_add(lookahead.0))
}

/// Hands over all mail in the order of keys and returns how much it was.
fn deliver<P: Process>(outbox: &mut Outbox<P::Message>, processes: &mut [P]) -> Result<u64, ExecutorError> {
    // Stable, but keys are unique: the order does not depend on which process posted first.
    outbox.mail.sort_by_key(|envelope| envelope.key);
    if let Some(pair) = outbox.mail.windows(2).find(|pair| pair[0].key == pair[1].key) {
        return Err(ExecutorError::RepeatedKey { key: pair[0].key });
    }
    let count = outbox.mail.len() as u64;
    for envelope in outbox.mail.drain(..) {
        processes[outbox.homes[envelope.key.receiver as usize] as usize].receive(envelope);
    }
    Ok(count)
}

/// The process of every entity.
fn homes<P: Process>(processes: &[P]) -> Result<Vec<u32>, ExecutorError> {
    let mut homes = Vec::new();
    for (number, process) in (0u32..).zip(processes) {
        for entity in process.entities() {
            let index = entity as usize;
            if index >= homes.len() {
                homes.resize(index + 1, NOBODY);
            }
            if homes[index] != NOBODY {
                return Err(ExecutorError::SharedEntity { entity, first: homes[index], second: number });
            }
            homes[index] = number;
        }
    }
    Ok(homes)
}
