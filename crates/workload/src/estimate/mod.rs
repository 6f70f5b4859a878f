//! The cost model: what an iteration of a layout takes, without a simulation.
//!
//! It is algorithm 1 of Li et al. 2026 (ScaleAcross Explorer, section 6.1) made general: kernels begin when their parents have ended
//! and their stream is free. The graph is that of the generator; what is added up are the same computations, and each exchange
//! takes what the caller says it takes, which asks the same library and the same links as a simulation.
//!
//! Life cycle: a [`Schedule`](crate::schedules::Schedule) becomes a [`Course`], the passes of all pipeline ranks in one line in an
//! order in which parents come first; a stage's lists become a [`StagePrice`] ([`pass`]); [`Sheet`]s hold the prices of several
//! layouts that share a course, which runs them side by side.
//!
//! Invariants: pure functions; the ranks of a stage do the same at the same time, so one stands for all; a rank's exchanges with
//! its data-parallel peers queue behind one another beside its passes; messages of a rank in one direction leave one after the
//! other. Where exchanges of several pipeline ranks share a link they are followed over time ([`fluid`]); where parameters are gathered
//! throughout a step, with all passes ([`crowded`]), and with their exchanges of tensor, context and expert parallelism where those meet
//! others on links ([`inside`]). What is left out: that those meet the data-parallel exchanges of a step that gathers its parameters once.
//! Failure modes: those of the generator, for lists that do not fit.

mod course;
mod crowded;
pub mod fluid;
mod inside;
pub mod pass;
mod shares;
#[cfg(test)]
mod tests;

pub use course::{Course, Ends, Gathering, LANES, Lane, Reducing, Scratch, Sheet, Side, Times};
pub use crowded::Crowded;
pub use fluid::{Leaving, Part, drained};
pub use pass::{Hosted, StagePrice, Tolls, pair, price};
pub use shares::{Class, Of, Shares};
