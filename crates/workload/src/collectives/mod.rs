//! Collectives as pure functions: (specification, group size, own index, lane, round) → messages of that round.
//!
//! Nothing is expanded ahead: a rank holds one round counter per lane. A *lane* is a sequence of rounds; lanes advance
//! independently. In a lane, up to `depth` rounds are in flight: round r starts when all rounds up to r − depth are
//! complete (their receives arrived, their sends done locally). Dependent algorithms (ring, recursive) have depth 1;
//! direct ones have the number of outstanding messages.
//!
//! Life cycle: a [`CollectiveSpec`] is what an operation names; [`Plan::new`] resolves it for a group (algorithm, chunks,
//! depth) and [`Plan::round`] answers for any rank and round in O(log n), without a table.
//! Invariants: a send of round r in lane l has its receive in round r of lane l at the peer, with the same bytes, and
//! there is at most one message from a to b in a round of a lane; a buffer is cut into blocks that differ by at most one
//! byte and sum to it exactly; no message is empty (a barrier's signal has one byte).
//! Failure modes: [`CollectiveError`] when an algorithm does not compute a kind, or does not fit the group.

mod algorithm;
mod all_to_all;
mod binomial;
mod bruck;
mod dispatch;
pub mod dispatcher;
mod hierarchical;
mod in_network;
mod kind;
mod method;
pub mod mpi;
mod multi_ring;
pub mod nccl;
mod parts;
mod pat;
mod plan;
mod recursive;
mod ring;
mod spec;
#[cfg(test)]
mod tests;
mod traffic;
mod tree;
mod tuner;

pub use algorithm::Algorithm;
pub use kind::{CollectiveKind, Whole};
pub use method::Rings;
pub use parts::{Meeting, Round};
pub use plan::{CollectiveError, CoupledShape, MAX_LANES, Plan};
pub use spec::{CollectiveSpec, Form, neighbours, neighbours_at};
pub use traffic::Traffic;
pub use tuner::{OneByOne, SizeRule, Tuner};
