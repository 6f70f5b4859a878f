//! The bottom floor of Windtunnel: time, units, ids, random streams, event queues, logical processes and their
//! executors. It knows nothing of networks, workloads or clusters.
//!
//! Everything here is deterministic: no clock, no global state, no platform mathematics.

#![warn(unreachable_pub)]

pub mod digest;
pub mod encoding;
pub mod executor;
pub mod ids;
pub mod math;
pub mod memory;
mod nearest;
pub mod partition;
pub mod queue;
pub mod random;
pub mod registry;
pub mod units;

pub use ids::{EndpointId, Id, IndexVec, NicId, RankId, StreamId, Tag};
pub use nearest::nearest;
pub use random::{RandomStream, mix64};
pub use units::{BitRate, Bytes, CalendarTime, Span, Time};
