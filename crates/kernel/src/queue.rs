//! Event order and event queue.
