//! Writer of GOAL text: `l0`, `l1`, … in program order, then the dependencies of the rank.
//!
//! Dependencies stand behind all operations of their rank, prerequisite by prerequisite, so that reading the text back
//! gives the same edges in the same order and tools that want a label defined before its use are content.

use std::io::{self, Write};
use std::path::Path;

use windtunnel_kernel::RankId;

use super::ByRank;
use super::error::GoalError;
use super::matching::Matcher;
use crate::output::write_beside;
use crate::{OpKind, Peer, Program, Workload};

/// Writes `workload` as GOAL text to `path`, compressed if that ends in `.gz`.
///
/// Durations that are no whole nanoseconds are rounded up.
///
/// # Errors
/// [`GoalError`]: a collective, a tag beyond 32 bits, or what the operating system says. `path` is untouched then.
pub fn write_text(workload: &Workload, path: impl AsRef<Path>) -> Result<(), GoalError> {
    let path = path.as_ref();
    super::check_expressible(workload, path)?;
    write_beside(path, |output| encode_text(workload, output)).map_err(|error| GoalError::io(path, &error))
}

/// Writes the text to any output.
///
/// # Errors
/// Those of `output`, and [`io::ErrorKind::Unsupported`] for a workload that GOAL cannot express.
pub fn encode_text(workload: &Workload, output: &mut dyn Write) -> io::Result<()> {
    super::check_expressible(workload, Path::new("output")).map_err(io::Error::other)?;
    let matcher = Matcher::new(workload);
    let mut line = Line::default();
    line.text("num_ranks ").number(workload.ranks() as u64).text("\n");
    for rank in (0..workload.ranks() as u32).map(RankId) {
        let peer = |peer| workload.resolve(rank, peer).0;
        write_rank(rank, workload.program(rank), &peer, matcher.receive_sizes(rank), &mut line, output)?;
    }
    output.write_all(&line.bytes)
}

/// The same of programs that are made one after another.
pub(super) fn encode_by_rank(source: &dyn ByRank, output: &mut dyn Write) -> io::Result<()> {
    let mut line = Line::default();
    line.text("num_ranks ").number(source.ranks() as u64).text("\n");
    for rank in (0..source.ranks() as u32).map(RankId) {
        let made = source.made(rank);
        let sizes = made.receive_sizes.into_iter();
        write_rank(rank, &made.program, &super::by_rank::own_peer, sizes, &mut line, output)?;
    }
    output.write_all(&line.bytes)
}

fn write_rank(
    rank: RankId,
    program: &Program,
    peer_of: &dyn Fn(Peer) -> u32,
    mut sizes: impl Iterator<Item = u64>,
    line: &mut Line,
    output: &mut dyn Write,
) -> io::Result<()> {
    line.text("\nrank ").number(u64::from(rank.0)).text(" {\n");
    for (index, op) in (0u64..).zip(&program.ops) {
        line.text("l").number(index);
        match op.kind {
            OpKind::Calc { duration, stream } => {
                line.text(": calc ").number(duration.ns_ceil()).option(" cpu ", stream.0);
            }
            OpKind::Send { peer, bytes, tag, stream, nic } => {
                line.text(": send ").number(bytes.get()).text("b to ");
                line.number(u64::from(peer_of(peer))).text(" tag ").number(tag.0);
                line.option(" cpu ", stream.0).option(" nic ", nic.0);
            }
            OpKind::Receive { peer, tag, stream } => {
                line.text(": recv ").number(sizes.next().unwrap_or(0)).text("b from ");
                match peer {
                    Some(peer) => line.number(u64::from(peer_of(peer))),
                    None => line.text("-1"),
                };
                match tag {
                    Some(tag) => line.text(" tag ").number(tag.0),
                    None => line.text(" tag -1"),
                };
                line.option(" cpu ", stream.0);
            }
            OpKind::Collective { .. } => unreachable!("refused by check_expressible"),
        }
        line.text("\n").flush_if_long(output)?;
    }
    for (edges, relation) in [(&program.requires, " requires l"), (&program.irequires, " irequires l")] {
        for source in 0..program.ops.len() as u32 {
            for &target in edges.of(source) {
                line.text("l").number(u64::from(target)).text(relation).number(u64::from(source)).text("\n");
            }
            line.flush_if_long(output)?;
        }
    }
    line.text("}\n");
    Ok(())
}

/// Text on its way out. Formatting by hand is several times faster than `write!`, and files have 10^8 lines.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
}

impl Line {
    fn text(&mut self, text: &str) -> &mut Self {
        self.bytes.extend_from_slice(text.as_bytes());
        self
    }

    fn number(&mut self, mut value: u64) -> &mut Self {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(&digits[at..]);
        self
    }

    /// An option that is left out at its default 0.
    fn option(&mut self, name: &str, value: u8) -> &mut Self {
        if value == 0 { self } else { self.text(name).number(u64::from(value)) }
    }

    fn flush_if_long(&mut self, output: &mut dyn Write) -> io::Result<()> {
        if self.bytes.len() >= 1 << 16 {
            output.write_all(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}
