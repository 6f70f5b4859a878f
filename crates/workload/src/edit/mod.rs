//! What is done to a workload before it runs: [`scale()`] computation and sizes, [`rescale()`] computation to another GPU, [`slice()`]
//! iterations out of it, [`slice_repeats()`] where it marks none, [`place()`] several side by side, [`share()`] ranks among them,
//! [`regroup()`] GPUs to other hosts, [`tell()`] what it consists of.
//!
//! Invariants: members of a communicator name the same collectives in the same order afterwards, as before; dependencies stay
//! acyclic, because operations and edges are only taken away, lengthened or put in front ([`regroup()`] asks).

mod gpu;
mod place;
mod regroup;
mod repeats;
mod scale;
mod shared;
mod slice;
mod tell;
#[cfg(test)]
mod tests;

pub use gpu::{Class, Rescaled, class_of, rescale};
pub use place::{Part, Placing, place, shuffled};
pub use regroup::{Grouping, Inside, RegroupError, Regrouped, regroup, regroup_ranks};
pub use repeats::{Repeats, repeats, slice_repeats};
pub use scale::{Scale, scale};
pub use shared::{SharedError, share};
pub use slice::{SliceError, slice, steps};
pub use tell::{Collected, Told, matrix, tell};
