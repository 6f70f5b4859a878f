//! Workloads whose programs are made one after another, because all of them together would not fit into memory.

use std::path::Path;

use windtunnel_kernel::RankId;

use super::{GoalError, write_binary, write_text};
use crate::output::write_beside;
use crate::{Peer, Program};

/// A rank's program: messages alone, whose peers are ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// What it does.
    pub program: Program,
    /// Sizes of its receives, in order.
    pub receive_sizes: Vec<u64>,
}

/// Who makes programs. The same rank's is the same whenever it is asked for.
pub trait ByRank {
    /// Number of ranks.
    fn ranks(&self) -> usize;
    /// The program of `rank`.
    fn made(&self, rank: RankId) -> Made;
}

/// Writes GOAL to `path`: text if that ends in `.goal`, else binary; compressed if it ends in `.gz`.
///
/// # Errors
/// What the operating system says; `path` is untouched then.
pub fn write_by_rank(source: &dyn ByRank, path: impl AsRef<Path>) -> Result<(), GoalError> {
    let path = path.as_ref();
    let plain = path.to_string_lossy();
    let plain = Path::new(plain.strip_suffix(".gz").unwrap_or(&plain));
    let text = plain.extension().is_some_and(|extension| extension == "goal");
    write_beside(path, |output| {
        if text {
            write_text::encode_by_rank(source, output)
        } else {
            write_binary::encode_by_rank(source, output)
        }
    })
    .map_err(|error| GoalError::io(path, &error))
}

/// Peers are ranks here.
pub(super) fn own_peer(peer: Peer) -> u32 {
    match peer {
        Peer::Rank(rank) => rank.0,
        Peer::Member(..) => unreachable!("a program by itself has no communicators"),
    }
}
