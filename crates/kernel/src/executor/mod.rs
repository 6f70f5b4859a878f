//! Logical processes, and the executors that run them: one after another, or on several threads.
//!
//! A model is split into processes. Each owns entities (hosts, switches, …), their state and their events; nothing is
//! shared. What an entity does to one of another process is *mail*: an event with a key, which arrives at least the
//! lookahead after it was sent. Time advances in conservative windows (Chandy and Misra 1979; windowed as in
//! Nicol, "The cost of conservative synchronization in parallel discrete event simulations", JACM 40(2), 1993): with m
//! the earliest event of all processes, none can receive mail before m + lookahead, so every process may handle its
//! events before this horizon on its own, in any order of processes or at once. Between windows all mail is sorted by
//! its key and handed over.
//!
//! **Life cycle.** A run goes on until a stop time, which is not reached itself: a cluster event at T acts
//! before network events at T. It may be called again with a later stop; processes keep their events in between.
//!
//! **Invariants.** The order of events is the tuple (time, class, receiving entity, sending entity, the sender's own
//! count), [`EventKey`](crate::queue::EventKey); none of it knows processes, so results depend neither on how entities are spread over processes
//! nor on the order of these. A single process sees no windows: its horizon is the stop time.
//!
//! **Failure modes** are those of a wrong model, and end the run with an [`ExecutorError`] instead of a wrong result:
//! mail sooner than the lookahead, to an entity of nobody, or with a key used twice; an entity of two processes; a
//! process that handles nothing although it has an event before the horizon; no lookahead among several processes.
//!
//! [`Sequential`] and [`Parallel`] differ only in who calls [`Process::advance`]: one thread, or several, each for the
//! processes it holds. Outcome, progress and errors are the same.

//!
//! [`Parallel`] borrows its processes for a run and starts its threads anew each time; a [`Crew`] owns its processes and
//! keeps its threads, for models that are run in many short steps.

mod balance;
#[cfg(loom)]
pub mod barrier;
#[cfg(not(loom))]
#[expect(unreachable_pub, reason = "tests under the model checker reach it")]
mod barrier;
mod crew;
mod inbox;
#[cfg(loom)]
pub mod mailbox;
#[cfg(not(loom))]
#[expect(unreachable_pub, reason = "tests under the model checker reach it")]
mod mailbox;
mod parallel;
mod process;
mod sequential;
mod shared;
mod statistics;
mod worker;

pub use crew::{Crew, Loan};
pub use parallel::Parallel;
pub use process::{Control, End, Envelope, ExecutorError, Outbox, Outcome, Process, Progress};
pub use sequential::Sequential;
pub use statistics::{RunStatistics, ThreadStatistics};
