//! GOAL, the schedule format of LogGOPSim and ATLAHS (Hoefler, Siebert, Lumsdaine, "Group Operation Assembly Language",
//! ICPP'09; Hoefler, Schneider, Lumsdaine, "LogGOPSim", HPDC'10): text and binary, both ways.
//!
//! Life cycle: [`open`] looks at the first bytes (gzip, binary, else text) and reads the file as a stream into a
//! [`Workload`] with one [`Program`](crate::Program) per rank; [`check()`] and [`stats()`] look at it, [`merge()`] puts several
//! side by side, [`write_text()`] and [`write_binary()`] write beside the target and rename. A file that is read is never
//! modified.
//!
//! Meaning: times are whole nanoseconds (picoseconds inside, rounded up on writing), sizes bytes, `cpu` a stream, `nic` a
//! NIC, `-1` any source or any tag. A receive's own size and NIC are read and dropped: a message has its sender's. On
//! writing, a receive gets the size of the send it would match in program order. Labels live in the text alone;
//! [`ReadOptions::labels`] keeps them.
//!
//! Failure modes: every refusal is a [`GoalError`] with its place (line and column, or byte offset) as data. Arbitrary
//! bytes never panic, and memory is bounded by the input: no announced count is believed before the bytes are there.

mod binary;
mod by_rank;
mod check;
mod cursor;
mod error;
mod labels;
mod matching;
mod merge;
mod stats;
mod text;
mod write_binary;
mod write_text;

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::read::MultiGzDecoder;

pub use binary::read_binary;
pub use by_rank::{ByRank, Made, write_by_rank};
pub use check::{Check, Unmatched, check};
pub use error::{CycleStep, GoalError, GoalErrorKind, OperationFault, Place};
pub(crate) use matching::Matcher;
pub use merge::{MergeError, merge};
pub use stats::{Stats, stats};
pub use text::read_text;
pub use write_binary::{encode_binary, write_binary};
pub use write_text::{encode_text, write_text};

use crate::{OpKind, Workload};
use windtunnel_kernel::RankId;
use windtunnel_kernel::encoding::not_utf8;

/// Any source or any tag in the binary form.
const WILDCARD: u32 = u32::MAX;
/// Longest calc: 200 days, the longest span of network time.
const LONGEST_CALC_NS: u64 = 200 * 86_400 * 1_000_000_000;
/// First bytes of a binary file, little-endian.
const MAGIC: u64 = 4223;
/// What LogGOPSim leaves in a file that it has used up.
const MAGIC_INVALIDATED: u64 = 2342;

/// What to keep while reading.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// Keep the labels of a text file as the operations' labels (they cost more memory than the operations).
    pub labels: bool,
}

/// Reads a GOAL file: text or binary, either of them perhaps compressed by gzip.
///
/// # Errors
/// [`GoalError`] with its place in the file.
pub fn open(path: impl AsRef<Path>) -> Result<Workload, GoalError> {
    open_with(path, ReadOptions::default())
}

/// As [`open`], with options.
///
/// # Errors
/// [`GoalError`] with its place in the file.
pub fn open_with(path: impl AsRef<Path>, options: ReadOptions) -> Result<Workload, GoalError> {
    let path = path.as_ref();
    let mut file = File::open(path).map_err(|error| GoalError::io(path, &error))?;
    let head = head(&mut file, path)?;
    file.seek(SeekFrom::Start(0)).map_err(|error| GoalError::io(path, &error))?;
    match sniff(&head) {
        Form::Text => read_text(file, path, options),
        Form::Binary => read_binary(file, path),
        Form::Gzip => read_gzip(BufReader::with_capacity(1 << 17, file), path, options),
        Form::Other(name) => Err(GoalError::new(path, Place::Byte(0), GoalErrorKind::Compression(name))),
        Form::Encoded(what, hint) => {
            Err(GoalError::new(path, Place::File, GoalErrorKind::Encoding(what, hint)))
        }
    }
}

/// As [`open`] for bytes in memory; `path` names them in errors.
///
/// # Errors
/// [`GoalError`] with its place in the bytes.
pub fn parse(bytes: &[u8], path: &Path, options: ReadOptions) -> Result<Workload, GoalError> {
    match sniff(&bytes[..bytes.len().min(8)]) {
        Form::Text => read_text(bytes, path, options),
        Form::Binary => read_binary(Cursor::new(bytes), path),
        Form::Gzip => read_gzip(bytes, path, options),
        Form::Other(name) => Err(GoalError::new(path, Place::Byte(0), GoalErrorKind::Compression(name))),
        Form::Encoded(what, hint) => {
            Err(GoalError::new(path, Place::File, GoalErrorKind::Encoding(what, hint)))
        }
    }
}

fn read_gzip(input: impl Read, path: &Path, options: ReadOptions) -> Result<Workload, GoalError> {
    let mut input = MultiGzDecoder::new(input);
    let head = head(&mut input, path)?;
    match sniff(&head) {
        Form::Text => read_text(head.chain(input), path, options),
        Form::Binary => {
            // The jump table points anywhere, so the whole is unpacked; it is smaller than the workload it becomes.
            let mut bytes = head.clone();
            input.read_to_end(&mut bytes).map_err(|error| read_failure(path, &error))?;
            read_binary(Cursor::new(bytes), path)
        }
        Form::Gzip => Err(GoalError::new(path, Place::Byte(0), GoalErrorKind::Compression("gzip twice"))),
        Form::Other(name) => Err(GoalError::new(path, Place::Byte(0), GoalErrorKind::Compression(name))),
        Form::Encoded(what, hint) => {
            Err(GoalError::new(path, Place::File, GoalErrorKind::Encoding(what, hint)))
        }
    }
}

/// The first bytes, at most eight.
fn head(input: &mut impl Read, path: &Path) -> Result<Vec<u8>, GoalError> {
    let mut head = Vec::with_capacity(8);
    input.take(8).read_to_end(&mut head).map_err(|error| read_failure(path, &error))?;
    Ok(head)
}

/// An error of the input stream; the decoder reports damage as one too.
fn read_failure(path: &Path, error: &std::io::Error) -> GoalError {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    if matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof) {
        return GoalError::new(path, Place::File, GoalErrorKind::Gzip(error.to_string()));
    }
    GoalError::io(path, error)
}

enum Form {
    Text,
    Binary,
    Gzip,
    Other(&'static str),
    /// What it is, and what to do.
    Encoded(&'static str, &'static str),
}

fn sniff(head: &[u8]) -> Form {
    match head {
        [0x1f, 0x8b, ..] => Form::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Form::Other("zstd"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Form::Other("xz"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Form::Other("bzip2"),
        _ => match not_utf8(head) {
            Some((what, hint)) => Form::Encoded(what, hint),
            // No text holds a zero byte; a binary's magic number is mostly zeros.
            None if head.contains(&0) => Form::Binary,
            None => Form::Text,
        },
    }
}

/// Refuses what GOAL cannot express, and names it.
fn check_expressible(workload: &Workload, path: &Path) -> Result<(), GoalError> {
    check_operations(workload, path, false)
}

/// Refuses tags that GOAL cannot express, of a workload whose collectives become messages.
///
/// # Errors
/// [`GoalError`] with the rank and its operation.
pub fn check_tags(workload: &Workload, path: &Path) -> Result<(), GoalError> {
    check_operations(workload, path, true)
}

/// Refuses tags that GOAL cannot express, and collectives unless they become messages.
fn check_operations(workload: &Workload, path: &Path, collectives: bool) -> Result<(), GoalError> {
    let fail = |kind| Err(GoalError::new(path, Place::File, kind));
    let mut checked = vec![false; workload.programs.len()];
    for rank in 0..workload.ranks() as u32 {
        let index = workload.program_of[rank as usize] as usize;
        if std::mem::replace(&mut checked[index], true) {
            continue;
        }
        let program = workload.program(RankId(rank));
        for (operation, op) in (0..).zip(&program.ops) {
            match op.kind {
                OpKind::Send { tag, .. } | OpKind::Receive { tag: Some(tag), .. }
                    if tag.0 >= u64::from(WILDCARD) =>
                {
                    return fail(GoalErrorKind::TagTooLarge { rank, operation, tag: tag.0 });
                }
                OpKind::Collective { spec, .. } if !collectives => {
                    let spec = &program.specs[spec as usize];
                    let collective = format!("{:?} of {} bytes", spec.kind, spec.bytes.get());
                    return fail(GoalErrorKind::Collective { rank, operation, collective });
                }
                _ => {}
            }
        }
    }
    Ok(())
}
