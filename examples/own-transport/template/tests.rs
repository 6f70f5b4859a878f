//! What the transport does in whole runs.

mod aimd;
mod ask;
