//! Tables: columns as a run hands them out, and folders of Parquet files that keep them.
//!
//! Life cycle: rows come in batches ([`Folder::add`]) and gather in a *group* of each table; a group that is full is encoded and goes
//! to the table's open *part* file; a part that is full gets its footer, and the next one begins. [`Folder::close`] writes what is
//! left. Memory is bounded by one group a table.
//!
//! Invariants: where a group or a part ends depends on the rows alone, and so does every byte: the same rows leave the same files,
//! however they were cut into batches. A table that never had a row has one part without rows, for its columns.
//!
//! Failure modes: a file that cannot be written ([`TableError::Write`], with the system's error), batches of a table that are not
//! alike ([`TableError::Unlike`]). After either the folder is not to be used: whoever made it removes it.
//!
//! The format is Apache Parquet with pages of version 1, as its specification has it (`parquet-format`, `README.md`,
//! `Encodings.md`, `LogicalTypes.md`, `parquet.thrift`): every column may be null, numbers are plain, texts of which many are equal
//! have a dictionary, pages are compressed by Zstandard. A crate that does the same takes minutes to compile; this is a writer for
//! four kinds of columns and nothing else, and [`read()`] takes back what it wrote.

#![warn(unreachable_pub)]

mod column;
mod encode;
mod file;
mod folder;
mod gathered;
mod read;
mod thrift;

pub use column::Column;
pub use folder::{Folder, Limits, TableError};
pub use read::{Values, read};
