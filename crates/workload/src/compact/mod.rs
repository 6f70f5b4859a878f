//! The compact form of a workload (`.wtw`): everything that a [`Workload`](crate::Workload) has, in columns, packed by zstd.
//!
//! Layout: the magic `WTWL`, a version byte, then one zstd stream. In it: labels, communicators, programs, ranks. A program's
//! operations are columns (kinds, streams, dimensions, labels, durations, …), each with its length in bytes before it, numbers in
//! groups of seven bits; edges are distances, nearly all of them 1. What repeats, iteration after iteration or rank after rank,
//! repeats in every column, which is what zstd finds; ranks that do the same share one program as in memory.
//!
//! Failure modes: a [`CompactError`] with the byte of the unpacked stream. No announced count is believed before its bytes are there,
//! and an operation, edge or member that does not exist is refused.

mod read;
mod write;

use std::fmt;
use std::path::PathBuf;

pub use read::{read, read_from};
pub use write::{encode, write, write_by_rank};

/// How a file begins.
pub const MAGIC: [u8; 4] = *b"WTWL";
const VERSION: u8 = 1;

/// Why a file cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactError {
    /// The file.
    pub path: PathBuf,
    /// Place in the unpacked stream; `None` where the file itself cannot be opened or written.
    pub byte: Option<u64>,
    /// What was expected and found.
    pub message: String,
}

impl fmt::Display for CompactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(byte) = self.byte {
            write!(f, "unpacked byte {byte}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for CompactError {}

#[cfg(test)]
mod tests;
