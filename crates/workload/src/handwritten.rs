//! Workloads written by hand: JSON lines.
