//! Which waiting jobs start, and which running ones have to stop.
//!
//! A scheduler is told what happens and asked for decisions, one at a time, until it has no more: after each the
//! cluster has changed, and it sees so (its [`View`](crate::view::View) answers for the queue, the running jobs with their expected ends, and
//! what is free). It keeps what it needs to decide quickly up to date itself, so that an event costs what it changes.
//!
//! Failure modes: a job that the placement cannot place although enough is free; the scheduler hears
//! [`Scheduler::refused`] and has to decide on something else, or nothing, or it would be asked forever.

mod classes;
mod conservative;
mod conservative_hosts;
mod easy;
mod gang;
mod host_profile;
mod mast;
mod ordered;
mod policy;
mod priority;
mod profile;
mod reservation;
mod turns;

use windtunnel_kernel::registry::Listed;

pub use conservative::{ByCount, Conservative};
pub use conservative_hosts::ByHosts;
pub use easy::{Easy, FirstFit};
pub use gang::Gang;
pub use mast::Mast;
pub use ordered::Ordered;
pub use policy::{Absence, BuiltIn, Decision, Options, Scheduler};
pub use priority::Priority;
pub use profile::Profile;

/// The schedulers that come along, in the order in which they are listed.
pub const SCHEDULERS: [&BuiltIn; 10] = [
    &ordered::FCFS,
    &easy::FIRST_FIT,
    &ordered::SJF,
    &ordered::SMALLEST,
    &ordered::EDF,
    &easy::EASY,
    &conservative::CONSERVATIVE,
    &priority::PRIORITY,
    &gang::GANG,
    &mast::MAST,
];

windtunnel_kernel::table! { BuiltIn: "scheduler", SCHEDULERS }

/// The scheduler named `name`.
pub fn by_name(name: &str, options: &Options) -> Option<Box<dyn Scheduler>> {
    <&BuiltIn>::by_name(name).map(|built_in| (built_in.make)(options))
}
