//! Readers of recordings, seen from outside.

mod account;
mod bad_input;
mod flight_recorder;
mod fuzz;
mod kineto;
mod kineto_events;
mod kineto_ranks;
mod nsys;
mod recorded;
mod small;
mod traced;
