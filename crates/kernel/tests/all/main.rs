//! The kernel from outside: executors and processes.

mod executor;
mod parallel;
mod phold;
