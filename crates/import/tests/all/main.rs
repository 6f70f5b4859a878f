//! Readers of recordings, seen from outside.

mod bad_input;
mod fuzz;
mod kineto;
mod recorded;
mod small;
mod traced;
