//! Readers of recordings, seen from outside.

mod account;
mod bad_input;
mod chakra;
mod flight_recorder;
mod formats;
mod fuzz;
mod inspector;
mod kineto;
mod kineto_events;
mod kineto_ranks;
mod mpi;
mod nccl_profiler;
mod nsys;
mod recorded;
mod small;
mod traced;
