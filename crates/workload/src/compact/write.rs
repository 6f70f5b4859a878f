//! Writer of the compact form.

use std::io::{self, Write};
use std::path::Path;

use windtunnel_kernel::RankId;
use windtunnel_kernel::registry::Listed;

use super::{CompactError, MAGIC, VERSION};
use crate::collectives::{CollectiveKind, CollectiveSpec};
use crate::goal::ByRank;
use crate::output::write_beside;
use crate::program::Edges;
use crate::{Dimension, OpKind, Peer, Program, Workload};

/// zstd's level: slower ones gain a few percent.
const LEVEL: i32 = 12;

/// Writes `workload` to `path`.
///
/// # Errors
/// What the operating system says; `path` is untouched then.
pub fn write(workload: &Workload, path: impl AsRef<Path>) -> Result<(), CompactError> {
    let path = path.as_ref();
    write_beside(path, |output| encode(workload, output)).map_err(|error| CompactError {
        path: path.to_owned(),
        byte: None,
        message: error.to_string(),
    })
}

/// Writes `workload` to any output.
///
/// # Errors
/// Those of `output`.
pub fn encode(workload: &Workload, output: &mut dyn Write) -> io::Result<()> {
    let mut packed = begin(output)?;
    let mut head = Column::default();
    head.number(workload.communicators.len() as u64);
    for communicator in &workload.communicators {
        head.text(&communicator.name);
        head.number(communicator.ranks.len() as u64);
        let mut last = 0;
        for rank in &communicator.ranks {
            head.signed(i64::from(rank.0) - last);
            last = i64::from(rank.0);
        }
    }
    head.number(workload.programs.len() as u64);
    packed.write_all(&head.0)?;
    for program in &workload.programs {
        write_program(program, &mut packed)?;
    }
    let mut ranks = Column::default();
    ranks.number(workload.ranks() as u64);
    for &program in &workload.program_of {
        ranks.number(u64::from(program));
    }
    for rank in 0..workload.ranks() {
        let bound = workload.binding_offsets[rank] as usize..workload.binding_offsets[rank + 1] as usize;
        ranks.number(bound.len() as u64);
        for binding in &workload.bindings[bound] {
            ranks.number(u64::from(binding.communicator));
            ranks.number(u64::from(binding.index));
        }
    }
    packed.write_all(&ranks.0)?;
    packed.finish()?;
    Ok(())
}

/// Writes programs that are made one after another, of messages between ranks.
///
/// # Errors
/// What the operating system says; `path` is untouched then.
pub fn write_by_rank(source: &dyn ByRank, path: impl AsRef<Path>) -> Result<(), CompactError> {
    let path = path.as_ref();
    let encode = |output: &mut dyn Write| {
        let mut packed = begin(output)?;
        let mut head = Column::default();
        head.number(0);
        head.number(source.ranks() as u64);
        packed.write_all(&head.0)?;
        for rank in (0..source.ranks() as u32).map(RankId) {
            write_program(&source.made(rank).program, &mut packed)?;
        }
        let mut ranks = Column::default();
        ranks.number(source.ranks() as u64);
        (0..source.ranks() as u64).for_each(|program| ranks.number(program));
        (0..source.ranks()).for_each(|_| ranks.number(0));
        packed.write_all(&ranks.0)?;
        packed.finish().map(drop)
    };
    write_beside(path, encode).map_err(|error| CompactError {
        path: path.to_owned(),
        byte: None,
        message: error.to_string(),
    })
}

fn begin(output: &mut dyn Write) -> io::Result<zstd::Encoder<'_, &mut dyn Write>> {
    output.write_all(&MAGIC)?;
    output.write_all(&[VERSION])?;
    let mut packed = zstd::Encoder::new(output, LEVEL)?;
    packed.long_distance_matching(true)?;
    packed.window_log(27)?;
    Ok(packed)
}

fn write_program(program: &Program, output: &mut impl Write) -> io::Result<()> {
    let mut head = Column::default();
    head.number(program.labels.len() as u64);
    for label in &program.labels {
        head.text(label);
    }
    head.number(program.specs.len() as u64);
    for spec in &program.specs {
        specification(spec, &mut head);
    }
    head.number(program.ops.len() as u64);
    // Durations of recordings are whole nanoseconds.
    let whole = program
        .ops
        .iter()
        .all(|op| !matches!(op.kind, OpKind::Calc { duration, .. } if duration.ps() % 1_000 != 0));
    let unit = if whole { 1_000 } else { 1 };
    head.number(unit);
    output.write_all(&head.0)?;
    let mut columns: [Column; 8] = Default::default();
    let [kinds, streams, dimensions, labels, durations, peers, sizes, tags] = &mut columns;
    for op in &program.ops {
        dimensions.number(Dimension::ALL.iter().position(|known| *known == op.dimension).unwrap_or(0) as u64);
        labels.number(u64::from(op.label));
        let mut head = |kind: u8, stream: u8| {
            kinds.0.push(kind);
            streams.0.push(stream);
        };
        let mut peer = |peer: Option<Peer>| match peer {
            None => peers.number(0),
            Some(Peer::Rank(rank)) => {
                peers.number(1);
                peers.number(u64::from(rank.0));
            }
            Some(Peer::Member(slot, index)) => {
                peers.number(2);
                peers.number(u64::from(slot.0));
                peers.number(u64::from(index));
            }
        };
        match op.kind {
            OpKind::Calc { duration, stream } => {
                head(0, stream.0);
                durations.number(duration.ps() / unit);
            }
            OpKind::Send { peer: to, bytes, tag, stream, nic } => {
                head(1, stream.0);
                peer(Some(to));
                sizes.number(bytes.get());
                tags.number(tag.0);
                tags.number(u64::from(nic.0));
            }
            OpKind::Receive { peer: from, tag, stream } => {
                head(2, stream.0);
                peer(from);
                tags.number(tag.map_or(0, |tag| tag.0 + 1));
            }
            OpKind::Collective { comm, spec, sequence, stream } => {
                head(3, stream.0);
                sizes.number(u64::from(comm.0));
                sizes.number(u64::from(spec));
                tags.number(u64::from(sequence));
            }
        }
    }
    for column in &columns {
        column.write(output)?;
    }
    for edges in [&program.requires, &program.irequires] {
        write_edges(edges, program.ops.len() as u32, output)?;
    }
    Ok(())
}

/// Edges by source: how many, and how far each target is.
fn write_edges(edges: &Edges, operations: u32, output: &mut impl Write) -> io::Result<()> {
    let (mut counts, mut distances) = (Column::default(), Column::default());
    if !edges.is_empty() {
        for source in 0..operations {
            let targets = edges.of(source);
            counts.number(targets.len() as u64);
            for &target in targets {
                distances.signed(i64::from(target) - i64::from(source));
            }
        }
    }
    counts.write(output)?;
    distances.write(output)
}

fn specification(spec: &CollectiveSpec, column: &mut Column) {
    column.text(spec.kind.entry().name);
    let root = if let CollectiveKind::Broadcast { root } | CollectiveKind::Reduce { root } = spec.kind {
        root
    } else {
        0
    };
    column.number(u64::from(root));
    column.text(spec.algorithm.name());
    column.text(spec.form.name());
    column.number(spec.bytes.get());
    column.number(u64::from(spec.outstanding));
    column.number(u64::from(spec.domain));
    let matrix = spec.matrix.as_deref().unwrap_or_default();
    column.number(matrix.len() as u64);
    for &bytes in matrix {
        column.number(bytes);
    }
}

/// Numbers one behind the other.
#[derive(Default)]
struct Column(Vec<u8>);

impl Column {
    /// Groups of seven bits, the lowest first.
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Zigzag: small whether positive or negative.
    fn signed(&mut self, value: i64) {
        self.number(((value << 1) ^ (value >> 63)) as u64);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn write(&self, output: &mut impl Write) -> io::Result<()> {
        let mut length = Self::default();
        length.number(self.0.len() as u64);
        output.write_all(&length.0)?;
        output.write_all(&self.0)
    }
}
