//! What a process is, what processes tell each other, and how a run ends.

use std::sync::Arc;

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
///
/// Processes lie side by side in a slice and are written by different threads: give the type `#[repr(align(128))]`, or
/// neighbours share a cache line and both wait for it at every event (measured: two threads were slower than one).
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

/// A process on loan to a run.
impl<P: Process> Process for &mut P {
    type Message = P::Message;

    fn entities(&self) -> Vec<u32> {
        (**self).entities()
    }

    fn next_time(&mut self) -> Time {
        (**self).next_time()
    }

    fn advance(&mut self, horizon: Time, outbox: &mut Outbox<Self::Message>) -> u64 {
        (**self).advance(horizon, outbox)
    }

    fn receive(&mut self, envelope: Envelope<Self::Message>) {
        (**self).receive(envelope);
    }
}

/// A process that is handed from thread to thread without being moved.
impl<P: Process> Process for Box<P> {
    type Message = P::Message;

    fn entities(&self) -> Vec<u32> {
        (**self).entities()
    }

    fn next_time(&mut self) -> Time {
        (**self).next_time()
    }

    fn advance(&mut self, horizon: Time, outbox: &mut Outbox<Self::Message>) -> u64 {
        (**self).advance(horizon, outbox)
    }

    fn receive(&mut self, envelope: Envelope<Self::Message>) {
        (**self).receive(envelope);
    }
}

/// Where a process leaves its mail. A thread has one for all processes it holds.
#[derive(Debug)]
pub struct Outbox<M> {
    /// Process of every entity.
    homes: Arc<[u32]>,
    /// The process whose turn it is.
    process: u32,
    lookahead: Span,
    /// By receiving process.
    mail: Vec<Vec<Envelope<M>>>,
    posted: u64,
    /// Earliest arrival of the mail posted.
    earliest: Time,
    error: Option<ExecutorError>,
}

impl<M> Outbox<M> {
    pub(super) fn new(homes: Arc<[u32]>, processes: usize, lookahead: Span) -> Self {
        let mail = std::iter::repeat_with(Vec::new).take(processes).collect();
        Self { homes, process: 0, lookahead, mail, posted: 0, earliest: Time::NEVER, error: None }
    }

    /// Another outbox for the same processes.
    pub(super) fn fresh(&self) -> Self {
        Self::new(Arc::clone(&self.homes), self.mail.len(), self.lookahead)
    }

    /// Posts mail at the instant `now` of its sender. Returns what the sender must handle itself: mail whose receiver
    /// lives in the same process, which may be as soon as it likes.
    ///
    /// A violation (see [`ExecutorError`]) ends the run after this window.
    #[inline]
    #[must_use = "mail to the own process is handed back"]
    pub fn post(&mut self, now: Time, envelope: Envelope<M>) -> Option<Envelope<M>> {
        let key = envelope.key;
        let Some(&home) = self.homes.get(key.receiver as usize) else {
            self.fail(ExecutorError::UnknownReceiver { key });
            return None;
        };
        if home == self.process {
            return Some(envelope);
        }
        if home == NOBODY {
            self.fail(ExecutorError::UnknownReceiver { key });
        } else if key.time.since(now) < self.lookahead || key.time < now {
            self.fail(ExecutorError::Lookahead { key, sent: now, lookahead: self.lookahead });
        } else {
            self.mail[home as usize].push(envelope);
            self.posted += 1;
            self.earliest = self.earliest.min(key.time);
        }
        None
    }

    /// Keeps the first violation.
    #[cold]
    fn fail(&mut self, error: ExecutorError) {
        self.error.get_or_insert(error);
    }

    /// Lets `process` handle its events before `horizon` and returns how many it did.
    pub(super) fn turn<P: Process<Message = M>>(
        &mut self,
        number: u32,
        process: &mut P,
        next: Time,
        horizon: Time,
    ) -> Result<u64, ExecutorError> {
        self.process = number;
        let handled = process.advance(horizon, self);
        match self.error.take() {
            Some(error) => Err(error),
            None if handled == 0 => Err(ExecutorError::Stalled { process: number as usize, next, horizon }),
            None => Ok(handled),
        }
    }

    /// The mail posted since the last call, by receiving process, to be taken out by the caller.
    pub(super) fn mail(&mut self) -> &mut [Vec<Envelope<M>>] {
        &mut self.mail
    }

    /// How much mail was posted since the last call, and its earliest arrival.
    pub(super) fn posted(&mut self) -> (u64, Time) {
        (std::mem::take(&mut self.posted), std::mem::replace(&mut self.earliest, Time::NEVER))
    }
}

/// No process.
const NOBODY: u32 = u32::MAX;

/// The process of every entity.
pub(super) fn homes<P: Process>(processes: &[P]) -> Result<Arc<[u32]>, ExecutorError> {
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
    Ok(homes.into())
}

/// The end of the window that begins at `earliest`; time that does not fit has no end.
pub(super) fn window_end(earliest: Time, lookahead: Span) -> Time {
    Time::from_ps(earliest.ps().saturating_add(lookahead.ps()))
}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
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
pub enum Control {
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
    /// [`Control::Cancel`].
    Cancelled,
}

impl End {
    /// Whether a run to `until` is over when the earliest event is at `earliest`.
    pub(super) fn before(earliest: Time, until: Time) -> Option<Self> {
        match earliest {
            Time::NEVER => Some(Self::Idle),
            _ if earliest >= until => Some(Self::Stop),
            _ => None,
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why.
    pub end: End,
    /// How far it came.
    pub progress: Progress,
}
