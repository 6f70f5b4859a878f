//! Readers of recordings, seen from outside.

mod bad_input;
mod chakra;
mod formats;
mod fuzz;
mod inspector;
mod kineto;
mod mpi;
mod recorded;
mod small;
mod traced;
