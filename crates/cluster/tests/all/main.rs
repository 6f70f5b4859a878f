//! Schedulers, faults, logs and the calendar from outside.

mod by_hosts;
mod common;
mod faults;
mod logs;
mod over_time;
mod policies;
mod preemption;
mod queueing;
mod reference;
