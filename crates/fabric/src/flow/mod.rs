//! Weighted max-min.
