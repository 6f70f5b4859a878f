//! GOAL text and binary files.
