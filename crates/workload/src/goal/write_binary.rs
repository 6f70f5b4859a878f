//! Writer of GOAL's binary form; the layout is described at its [reader](super::binary).
//!
//! A first pass over the programs counts, so that the jump table stands before the blocks and the file is written once,
//! front to back. The bytes are those of LogGOPSim's `txt2bin` for the same operations.

use std::io::{self, Write};
use std::path::Path;

use windtunnel_kernel::RankId;

use super::binary::{HEADER, NODE, OFFSET_BASE};
use super::error::GoalError;
use super::matching::Matcher;
use super::{ByRank, MAGIC, WILDCARD};
use crate::output::write_beside;
use crate::{OpKind, Peer, Program, Workload};

/// Writes `workload` in the binary form to `path`, compressed if that ends in `.gz`.
///
/// Durations that are no whole nanoseconds are rounded up.
///
/// # Errors
/// [`GoalError`]: a collective, a tag beyond 32 bits, or what the operating system says. `path` is untouched then.
pub fn write_binary(workload: &Workload, path: impl AsRef<Path>) -> Result<(), GoalError> {
    let path = path.as_ref();
    super::check_expressible(workload, path)?;
    write_beside(path, |output| encode_binary(workload, output)).map_err(|error| GoalError::io(path, &error))
}

/// Writes the binary form to any output.
///
/// # Errors
/// Those of `output`, and [`io::ErrorKind::Unsupported`] for a workload that GOAL cannot express.
pub fn encode_binary(workload: &Workload, output: &mut dyn Write) -> io::Result<()> {
    super::check_expressible(workload, Path::new("output")).map_err(io::Error::other)?;
    let sizes: Vec<u64> = workload.programs.iter().map(block_size).collect();
    let (mut highest_stream, mut highest_nic) = (0, 0);
    for program in &workload.programs {
        highest(program, &mut highest_stream, &mut highest_nic);
    }
    output.write_all(&MAGIC.to_le_bytes())?;
    output.write_all(&(workload.ranks() as u32).to_le_bytes())?;
    output.write_all(&[highest_stream, highest_nic])?;
    let mut at = HEADER - OFFSET_BASE + 16 * workload.ranks() as u64;
    for &program in &workload.program_of {
        output.write_all(&at.to_le_bytes())?;
        at += sizes[program as usize];
        output.write_all(&at.to_le_bytes())?;
    }
    let matcher = Matcher::new(workload);
    for rank in (0..workload.ranks() as u32).map(RankId) {
        let peer = |peer| workload.resolve(rank, peer).0;
        write_block(workload.program(rank), &peer, matcher.receive_sizes(rank), output)?;
    }
    Ok(())
}

/// The same of programs that are made one after another, twice each: to know how long each is, and to write it.
pub(super) fn encode_by_rank(source: &dyn ByRank, output: &mut dyn Write) -> io::Result<()> {
    let (mut highest_stream, mut highest_nic) = (0, 0);
    let mut sizes = Vec::with_capacity(source.ranks());
    for rank in (0..source.ranks() as u32).map(RankId) {
        let program = source.made(rank).program;
        sizes.push(block_size(&program));
        highest(&program, &mut highest_stream, &mut highest_nic);
    }
    output.write_all(&MAGIC.to_le_bytes())?;
    output.write_all(&(source.ranks() as u32).to_le_bytes())?;
    output.write_all(&[highest_stream, highest_nic])?;
    let mut at = HEADER - OFFSET_BASE + 16 * source.ranks() as u64;
    for size in sizes {
        output.write_all(&at.to_le_bytes())?;
        at += size;
        output.write_all(&at.to_le_bytes())?;
    }
    for rank in (0..source.ranks() as u32).map(RankId) {
        let made = source.made(rank);
        write_block(&made.program, &super::by_rank::own_peer, made.receive_sizes.into_iter(), output)?;
    }
    Ok(())
}

fn highest(program: &Program, highest_stream: &mut u8, highest_nic: &mut u8) {
    for op in &program.ops {
        let (stream, nic) = match op.kind {
            OpKind::Calc { stream, .. } | OpKind::Receive { stream, .. } => (stream.0, 0),
            OpKind::Send { stream, nic, .. } => (stream.0, nic.0),
            OpKind::Collective { .. } => unreachable!("refused by check_expressible"),
        };
        *highest_stream = stream.max(*highest_stream);
        *highest_nic = nic.max(*highest_nic);
    }
}

fn roots(program: &Program) -> impl Iterator<Item = u32> {
    (0..).zip(&program.prerequisites).filter(|&(_, &count)| count == 0).map(|(op, _)| op)
}

fn block_size(program: &Program) -> u64 {
    let edges = program.requires.len() + program.irequires.len();
    (8 + 4 * roots(program).count() + NODE * program.ops.len() + 4 * edges) as u64
}

fn write_block(
    program: &Program,
    peer: &dyn Fn(Peer) -> u32,
    mut sizes: impl Iterator<Item = u64>,
    output: &mut dyn Write,
) -> io::Result<()> {
    output.write_all(&(program.ops.len() as u32).to_le_bytes())?;
    output.write_all(&(roots(program).count() as u32).to_le_bytes())?;
    for root in roots(program) {
        output.write_all(&root.to_le_bytes())?;
    }
    let mut first = 0u32;
    for (index, op) in (0u32..).zip(&program.ops) {
        let tag = |tag: Option<windtunnel_kernel::Tag>| tag.map_or(WILDCARD, |tag| tag.0 as u32);
        let (kind, peer, size, tag, stream, nic) = match op.kind {
            OpKind::Send { peer: to, bytes, tag: t, stream, nic } => {
                (1, peer(to), bytes.get(), tag(Some(t)), stream.0, nic.0)
            }
            OpKind::Receive { peer: from, tag: t, stream } => {
                (2, from.map_or(WILDCARD, peer), sizes.next().unwrap_or(0), tag(t), stream.0, 0)
            }
            OpKind::Calc { duration, stream } => (3, 0, duration.ns_ceil(), 0, stream.0, 0),
            OpKind::Collective { .. } => unreachable!("refused by check_expressible"),
        };
        let (requires, irequires) = (program.requires.of(index).len(), program.irequires.of(index).len());
        let mut node = [0; NODE];
        node[0..4].copy_from_slice(&program.prerequisites[index as usize].to_le_bytes());
        node[4] = kind;
        node[5..9].copy_from_slice(&peer.to_le_bytes());
        node[9..17].copy_from_slice(&size.to_le_bytes());
        node[17..21].copy_from_slice(&tag.to_le_bytes());
        node[21] = stream;
        node[22] = nic;
        for (field, count) in [(23, requires), (31, irequires)] {
            node[field..field + 4].copy_from_slice(&(count as u32).to_le_bytes());
            node[field + 4..field + 8].copy_from_slice(&first.to_le_bytes());
            first += count as u32;
        }
        output.write_all(&node)?;
    }
    for source in 0..program.ops.len() as u32 {
        for target in program.requires.of(source).iter().chain(program.irequires.of(source)) {
            output.write_all(&target.to_le_bytes())?;
        }
    }
    Ok(())
}
