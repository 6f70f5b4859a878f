//! Logical processes and their executors.
