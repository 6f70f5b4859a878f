//! A run with a clock that somebody else moves.
//!
//! Life cycle: a [`Gate`] is given to a run ([`RunOptions::gate`](crate::RunOptions)) that another thread simulates. The run stops where its
//! calendar would go beyond the instant that was allowed, and goes on once more is. What happened meanwhile is kept until it is
//! taken. A gate that is dropped by its holder without a word would leave the run waiting: [`Gate::open`] lets it go to its end,
//! [`Gate::close`] has it stop with what there is.
//!
//! Invariants: between two calls of [`Gate::advance`] nothing happens in the run, and everything before [`State::next`] has happened; no
//! result depends on where a run was held. Failure modes: none of its own; a run that fails ends, and its caller is told.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windtunnel_cluster::cluster::{Happening, JobId, Listener};
use windtunnel_kernel::CalendarTime;
use windtunnel_plan::Plan;

/// What has happened to a job or to a part of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// When.
    pub at: CalendarTime,
    /// `submitted`, `started`, `stopped`, `suspended`, `interrupted`, `ended` or `fault`.
    pub what: &'static str,
    /// The job; of a fault the first that it interrupted.
    pub job: Option<String>,
    /// GPUs that the job has, or that the fault took out.
    pub gpus: Option<u64>,
    /// The part that failed or is drained.
    pub component: Option<String>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The last instant at which something happened.
    pub now: CalendarTime,
    /// The next one, if the run is held before it.
    pub next: Option<CalendarTime>,
    /// Whether the run has ended.
    pub ended: bool,
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    /// How far the run may go.
    until: CalendarTime,
    /// How many more instants it may go to, beyond that.
    steps: u64,
    closed: bool,
    notices: Vec<Notice>,
}

/// Holds a run where it is told to.
#[derive(Debug, Default)]
pub struct Gate {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Gate {
    /// Lets the run go on to all that happens until `until`.
    pub fn advance(&self, until: CalendarTime) {
        let mut inner = self.lock();
        inner.until = inner.until.max(until);
        self.changed.notify_all();
    }

    /// Lets the run go on to the next instant at which anything happens.
    pub fn step(&self) {
        let mut inner = self.lock();
        inner.steps += 1;
        if let Some(next) = inner.state.next {
            inner.until = inner.until.max(next);
            inner.steps = 0;
        }
        self.changed.notify_all();
    }

    /// Lets the run go on to its end.
    pub fn open(&self) {
        self.advance(CalendarTime::NEVER);
    }

    /// Has the run stop where it stands.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Whether the run is to stop.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until the run is held, or has ended, or for as long as `patience`; how far it is then, and whether it does wait.
    pub fn wait(&self, patience: Duration) -> (State, bool) {
        let waits = |inner: &mut Inner| !is_still(inner);
        let (inner, _) = self
            .changed
            .wait_timeout_while(self.lock(), patience, waits)
            .unwrap_or_else(PoisonError::into_inner);
        (inner.state, is_still(&inner))
    }

    /// What has happened since the last call.
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut self.lock().notices)
    }

    /// The run has ended, however.
    pub fn end(&self) {
        let mut inner = self.lock();
        (inner.state.next, inner.state.ended) = (None, true);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nothing goes on: the run has ended, or may go no further.
fn is_still(inner: &Inner) -> bool {
    inner.state.ended || inner.state.next.is_some_and(|next| next > inner.until && !inner.closed)
}

/// What a calendar tells its gate, with jobs and parts by their names.
pub(crate) struct Told<'a> {
    pub plan: &'a Plan,
    pub gate: &'a Gate,
    /// Name of a job.
    pub name: &'a dyn Fn(JobId) -> String,
}

impl Listener for Told<'_> {
    fn goes_to(&self, now: CalendarTime) {
        let mut inner = self.gate.lock();
        if inner.steps > 0 {
            inner.steps -= 1;
            inner.until = inner.until.max(now);
        }
        inner.state.next = Some(now);
        self.gate.changed.notify_all();
        let waits = |inner: &mut Inner| now > inner.until && !inner.closed;
        let mut inner = self.gate.changed.wait_while(inner, waits).unwrap_or_else(PoisonError::into_inner);
        inner.state = State { now, next: None, ended: false };
    }

    fn hears(&self, at: CalendarTime, happening: Happening<'_>) {
        let of = |what, job: JobId, gpus| {
            let job = Some((self.name)(job));
            Notice { at, what, job, gpus, component: None }
        };
        let notice = match happening {
            Happening::Submitted(job) => of("submitted", job, None),
            Happening::Started(job, placement) => of("started", job, Some(placement.len() as u64)),
            Happening::Stopped(job) => of("stopped", job, None),
            Happening::Suspended(job) => of("suspended", job, None),
            Happening::Interrupted(job) => of("interrupted", job, None),
            Happening::Ended(job) => of("ended", job, None),
            Happening::Out(record) => {
                let plant = self.plan.upkeep.as_ref().map(|upkeep| &upkeep.plant);
                let component = plant.map(|plant| plant.name(record.component));
                let job = record.job.map(|job| (self.name)(job));
                Notice { at, what: "fault", job, gpus: Some(u64::from(record.gpus)), component }
            }
        };
        self.gate.lock().notices.push(notice);
    }
}
