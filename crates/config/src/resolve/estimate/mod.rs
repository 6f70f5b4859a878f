//! Prices of many layouts of one job, without a run.
//!
//! An [`Estimator`] is made of a scenario: topology, sheets and libraries are resolved once, as a run resolves them. Each
//! [`Choice`] says what of the job is different; it is laid out as a run lays it out, refused in the same words, and priced by the
//! [cost model](windtunnel_workload::estimate). What layouts share is worked out once: chunks of equal layers, groups of equal
//! shape, schedules of equal size, which run side by side.
//!
//! GPUs may be slower than their sheet, hosts and buildings apart (`variation.speeds`): replicas have equal batches, so the slowest GPU
//! of a pipeline rank sets its pace, and layers can be shared out by the paces of the ranks ([`balance`]).
//!
//! Invariants: an answer depends on the scenario and its choice alone, not on the others, whatever their order and numbers of GPUs
//! (the slowest of more GPUs is slower, so layouts share kernels only on as many). The job is alone, packed from the first
//! GPU on. Where a pipeline works through many micro-batches, two shorter steps tell what one more round takes.
//! Failure modes: `InputError` for the scenario; a choice that does not fit is an answer with its reason.

mod balance;
mod choice;
mod chunk_prices;
mod courses;
mod laid;
mod layouts;
mod lie;
mod memory;
mod prepared;
mod tariff;

pub use self::choice::{Answer, Choice, Depth};
pub use self::layouts::Estimator;
