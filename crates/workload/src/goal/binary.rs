//! Reader of GOAL's binary form.
//!
//! All little-endian and packed. Header: u64 magic 4223, u32 ranks, u8 highest stream, u8 highest NIC. Then per rank a
//! u64 start and a u64 end (exclusive) of its block, both relative to byte 8. A block: u32 operations, u32 roots; the
//! roots (u32 each); the operations (39 bytes each: u32 prerequisites, u8 type, u32 peer, u64 size, u32 tag, u8 stream,
//! u8 NIC, u32 count and u32 first of the `requires` dependents, u32 count and u32 first of the `irequires` dependents);
//! the appendix of edges (u32 each: the dependent).
//!
//! The reader goes through a block once, front to back, in pieces; nothing is allocated per operation. Counts are
//! believed only after the block's length allows them, so a damaged file cannot ask for memory.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use windtunnel_kernel::{Bytes, NicId, RankId, Span, StreamId, Tag};

use super::error::{GoalError, GoalErrorKind as Kind, OperationFault as Fault, Place};
use super::{LONGEST_CALC_NS, MAGIC, MAGIC_INVALIDATED, WILDCARD};
use crate::program::{Edges, ProgramError};
use crate::{Dimension, OpKind, Operation, Peer, Program, Workload};

/// Bytes of the header.
pub(super) const HEADER: u64 = 14;
/// Jump-table offsets count from here.
pub(super) const OFFSET_BASE: u64 = 8;
/// Bytes of an operation.
pub(super) const NODE: usize = 39;
/// Bytes read at once: a whole number of operations and of edges.
const PIECE: usize = NODE * 4 * 1680;

/// Reads a GOAL binary. `path` names it in errors.
///
/// # Errors
/// [`GoalError`] with a byte offset.
pub fn read_binary(input: impl Read + Seek, path: &Path) -> Result<Workload, GoalError> {
    let mut reader = Reader::new(input, path)?;
    let header = reader.header()?;
    let blocks = reader.jump_table(&header)?;
    let mut programs = Vec::with_capacity(blocks.len());
    for (rank, &block) in blocks.iter().enumerate() {
        programs.push(reader.block(rank as u32, block, &header)?);
    }
    Ok(Workload::from_programs(programs))
}

struct Header {
    ranks: u32,
    highest_stream: u8,
    highest_nic: u8,
}

/// Start and end of a rank's block, from the start of the file.
#[derive(Clone, Copy)]
struct Block {
    start: u64,
    end: u64,
}

struct Reader<'a, R> {
    input: R,
    path: &'a Path,
    length: u64,
    /// Position of `input`.
    at: u64,
    buffer: Vec<u8>,
    /// Bytes of `buffer` read and not yet handed out.
    pending: std::ops::Range<usize>,
    /// First `requires` and `irequires` dependent of each operation of the block.
    firsts: Vec<[u32; 2]>,
    counts: Vec<[u32; 2]>,
    appendix: Vec<u32>,
    roots: Vec<u32>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl<'a, R: Read + Seek> Reader<'a, R> {
    fn new(mut input: R, path: &'a Path) -> Result<Self, GoalError> {
        let length = input
            .seek(SeekFrom::End(0))
            .and_then(|length| input.seek(SeekFrom::Start(0)).map(|_| length))
            .map_err(|error| GoalError::io(path, &error))?;
        Ok(Self {
            input,
            path,
            length,
            at: 0,
            buffer: vec![0; PIECE],
            pending: 0..0,
            firsts: Vec::new(),
            counts: Vec::new(),
            appendix: Vec::new(),
            roots: Vec::new(),
        })
    }

    #[cold]
    fn fail(&self, offset: u64, kind: Kind) -> GoalError {
        GoalError::new(self.path, Place::Byte(offset), kind)
    }

    /// Position of the next byte handed out.
    fn position(&self) -> u64 {
        self.at - self.pending.len() as u64
    }

    /// Goes to `offset`; what is buffered stays where that is ahead.
    fn go_to(&mut self, offset: u64) -> Result<(), GoalError> {
        let ahead = offset.checked_sub(self.position());
        if let Some(ahead) = ahead
            && ahead <= self.pending.len() as u64
        {
            self.pending.start += ahead as usize;
            return Ok(());
        }
        self.pending = 0..0;
        self.at =
            self.input.seek(SeekFrom::Start(offset)).map_err(|error| GoalError::io(self.path, &error))?;
        Ok(())
    }

    /// The next bytes: a whole number of `unit`, at least one and at most `want` bytes. The file is long enough.
    fn next(&mut self, unit: usize, want: u64) -> Result<std::ops::Range<usize>, GoalError> {
        let want = want.min(PIECE as u64) as usize;
        if self.pending.len() < unit {
            self.buffer.copy_within(self.pending.clone(), 0);
            self.pending = 0..self.pending.len();
            while self.pending.end < unit {
                match self.input.read(&mut self.buffer[self.pending.end..]) {
                    Ok(0) => {
                        let kind = Kind::Io("the file became shorter while it was read".to_owned());
                        return Err(self.fail(self.at, kind));
                    }
                    Ok(read) => {
                        self.pending.end += read;
                        self.at += read as u64;
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(super::read_failure(self.path, &error)),
                }
            }
        }
        let available = self.pending.len().min(want) / unit * unit;
        let range = self.pending.start..self.pending.start + available;
        self.pending.start = range.end;
        Ok(range)
    }

    fn header(&mut self) -> Result<Header, GoalError> {
        let length = self.length;
        let truncated = |needs, what| Kind::TruncatedBinary { what, needs, length };
        if length < 8 {
            return Err(self.fail(0, truncated(8, "the magic number")));
        }
        let magic = self.next(8, 8)?;
        match u64_at(&self.buffer, magic.start) {
            MAGIC => {}
            MAGIC_INVALIDATED => return Err(self.fail(0, Kind::Invalidated)),
            found => return Err(self.fail(0, Kind::WrongMagic { found })),
        }
        if length < HEADER {
            return Err(self.fail(8, truncated(HEADER, "the header")));
        }
        let rest = self.next(6, 6)?;
        let bytes = &self.buffer[rest];
        let header = Header { ranks: u32_at(bytes, 0), highest_stream: bytes[4], highest_nic: bytes[5] };
        if header.ranks == 0 {
            return Err(self.fail(8, Kind::NoRanks));
        }
        let needs = HEADER + 16 * u64::from(header.ranks);
        if length < needs {
            return Err(self.fail(8, truncated(needs, "the jump table")));
        }
        Ok(header)
    }

    /// Blocks of all ranks, inside the file and apart from each other.
    fn jump_table(&mut self, header: &Header) -> Result<Vec<Block>, GoalError> {
        let first = HEADER + 16 * u64::from(header.ranks);
        let mut blocks = Vec::with_capacity(header.ranks as usize);
        while blocks.len() < header.ranks as usize {
            let range = self.next(16, first - self.position())?;
            for entry in self.buffer[range].chunks_exact(16) {
                let (start, end) = (u64_at(entry, 0), u64_at(entry, 8));
                // A relative offset that overflows is out of range as well.
                let block =
                    Block { start: start.saturating_add(OFFSET_BASE), end: end.saturating_add(OFFSET_BASE) };
                blocks.push(block);
            }
        }
        for (rank, block) in (0..).zip(&blocks) {
            let Block { start, end } = *block;
            if start < first || end < start || end > self.length {
                let length = self.length;
                let kind = Kind::BlockOutOfRange { rank, start, end, first, length };
                return Err(self.fail(HEADER + 16 * u64::from(rank), kind));
            }
        }
        let mut order: Vec<u32> = (0..header.ranks).collect();
        order.sort_by_key(|&rank| blocks[rank as usize].start);
        for pair in order.windows(2) {
            let (one, other) = (pair[0], pair[1]);
            if blocks[one as usize].end > blocks[other as usize].start {
                let kind = Kind::BlocksOverlap { first: one, second: other };
                return Err(self.fail(HEADER + 16 * u64::from(other), kind));
            }
        }
        Ok(blocks)
    }

    fn block(&mut self, rank: u32, block: Block, header: &Header) -> Result<Program, GoalError> {
        let length = block.end - block.start;
        let too_small = |nodes, roots, needs| Kind::BlockTooSmall { rank, length, nodes, roots, needs };
        if length < 8 {
            return Err(self.fail(block.start, too_small(0, 0, 8)));
        }
        self.go_to(block.start)?;
        let counts = self.next(8, 8)?;
        let (nodes, roots) = (u32_at(&self.buffer, counts.start), u32_at(&self.buffer, counts.start + 4));
        let nodes_at = block.start + 8 + 4 * u64::from(roots);
        let edges_at = nodes_at + NODE as u64 * u64::from(nodes);
        if edges_at > block.end {
            return Err(self.fail(block.start, too_small(nodes, roots, edges_at - block.start)));
        }
        let appendix_bytes = block.end - edges_at;
        if !appendix_bytes.is_multiple_of(4) {
            return Err(self.fail(edges_at, Kind::PartialEdge { rank, bytes: appendix_bytes % 4 }));
        }
        let edges = appendix_bytes / 4;

        let mut list = std::mem::take(&mut self.roots);
        self.read_words(&mut list, u64::from(roots))?;
        self.roots = list;
        let (ops, stated) = self.operations(rank, nodes, edges, header)?;
        let mut list = std::mem::take(&mut self.appendix);
        self.read_words(&mut list, edges)?;
        self.appendix = list;
        let program = self.program(rank, ops, nodes_at, edges_at)?;
        self.check_prerequisites(rank, &program, &stated, block.start + 8)?;
        Ok(program)
    }

    fn read_words(&mut self, words: &mut Vec<u32>, count: u64) -> Result<(), GoalError> {
        words.clear();
        words.reserve(count as usize);
        while (words.len() as u64) < count {
            let range = self.next(4, 4 * (count - words.len() as u64))?;
            let bytes = &self.buffer[range];
            words.extend(bytes.chunks_exact(4).map(|word| u32_at(word, 0)));
        }
        Ok(())
    }

    /// The operations and the prerequisites they state; leaves their edges' places in `firsts` and `counts`.
    fn operations(
        &mut self,
        rank: u32,
        nodes: u32,
        edges: u64,
        header: &Header,
    ) -> Result<(Vec<Operation>, Vec<u32>), GoalError> {
        let n = nodes as usize;
        let mut ops = Vec::with_capacity(n);
        let mut stated = Vec::with_capacity(n);
        self.firsts.clear();
        self.counts.clear();
        let mut claimed = 0;
        while ops.len() < n {
            let at = self.position();
            let range = self.next(NODE, NODE as u64 * (n - ops.len()) as u64)?;
            for (index, node) in self.buffer[range].as_chunks::<NODE>().0.iter().enumerate() {
                let operation = ops.len() as u32;
                match decode(node, header, edges, &mut claimed) {
                    Ok(kind) => ops.push(Operation { kind, dimension: Dimension::Other, label: 0 }),
                    Err((field, reason)) => {
                        let kind = Kind::BadOperation { rank, operation, reason };
                        return Err(GoalError::new(
                            self.path,
                            Place::Byte(at + (index * NODE + field) as u64),
                            kind,
                        ));
                    }
                }
                stated.push(u32_at(node, 0));
                self.counts.push([u32_at(node, 23), u32_at(node, 31)]);
                self.firsts.push([u32_at(node, 27), u32_at(node, 35)]);
            }
        }
        Ok((ops, stated))
    }

    /// Puts operations and edges together and refuses a cycle.
    fn program(
        &self,
        rank: u32,
        ops: Vec<Operation>,
        nodes_at: u64,
        edges_at: u64,
    ) -> Result<Program, GoalError> {
        let nodes = ops.len() as u32;
        if let Some(edge) = self.appendix.iter().position(|&target| target >= nodes) {
            let (edge, target) = (edge as u32, self.appendix[edge]);
            let kind = Kind::EdgeOutOfRange { rank, edge, target, nodes };
            return Err(self.fail(edges_at + 4 * u64::from(edge), kind));
        }
        let mut prerequisites = vec![0; ops.len()];
        let mut backward = false;
        let mut rows = |which: usize| {
            let total: u64 = self.counts.iter().map(|counts| u64::from(counts[which])).sum();
            if total == 0 {
                return Edges::default();
            }
            let mut offsets = Vec::with_capacity(ops.len() + 1);
            let mut targets = Vec::with_capacity(total as usize);
            offsets.push(0);
            for (source, (counts, firsts)) in (0..).zip(self.counts.iter().zip(&self.firsts)) {
                let (count, first) = (counts[which] as usize, firsts[which] as usize);
                // An operation without dependents may state any first edge.
                if count > 0 {
                    for &target in &self.appendix[first..first + count] {
                        targets.push(target);
                        prerequisites[target as usize] += 1;
                        backward |= target <= source;
                    }
                }
                offsets.push(targets.len() as u32);
            }
            Edges::from_rows(offsets, targets)
        };
        let requires = rows(0);
        let irequires = rows(1);
        let program = Program {
            ops,
            requires,
            irequires,
            prerequisites,
            specs: Vec::new(),
            labels: vec![String::new()],
        };
        // An edge to a later operation cannot close a cycle.
        if backward && let Err(ProgramError::Cycle(mut operations)) = program.check_acyclic() {
            operations.reverse();
            let offset = nodes_at + NODE as u64 * u64::from(operations[0]);
            return Err(self.fail(offset, Kind::BinaryCycle { rank, operations }));
        }
        Ok(program)
    }

    /// The counters and the roots repeat what the edges say; a file in which they differ is damaged, and other tools
    /// would run it wrongly.
    fn check_prerequisites(
        &self,
        rank: u32,
        program: &Program,
        stated: &[u32],
        roots_at: u64,
    ) -> Result<(), GoalError> {
        let counted = &program.prerequisites;
        let nodes_at = roots_at + 4 * self.roots.len() as u64;
        if let Some(at) = (0..stated.len()).find(|&at| stated[at] != counted[at]) {
            let reason = Fault::Prerequisites { stated: stated[at], counted: counted[at] };
            let kind = Kind::BadOperation { rank, operation: at as u32, reason };
            return Err(self.fail(nodes_at + (at * NODE) as u64, kind));
        }
        for (position, &root) in (0u32..).zip(&self.roots) {
            let reason = match counted.get(root as usize) {
                None => "does not exist",
                Some(0) => continue,
                Some(_) => "has prerequisites",
            };
            let kind = Kind::BadRoot { rank, position, root, reason };
            return Err(self.fail(roots_at + 4 * u64::from(position), kind));
        }
        let found = counted.iter().filter(|&&count| count == 0).count() as u32;
        let mut sorted = self.roots.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() as u32 != found || self.roots.len() != sorted.len() {
            let listed = self.roots.len() as u32;
            return Err(self.fail(roots_at - 4, Kind::RootCount { rank, listed, found }));
        }
        Ok(())
    }
}

/// What an operation does; or the faulty field's offset in it and the fault. `claimed` counts the edges of all.
#[inline]
fn decode(
    node: &[u8; NODE],
    header: &Header,
    edges: u64,
    claimed: &mut u64,
) -> Result<OpKind, (usize, Fault)> {
    let (peer, size, tag) = (u32_at(node, 5), u64_at(node, 9), u32_at(node, 17));
    let (cpu, nic) = (node[21], node[22]);
    if cpu > header.highest_stream {
        return Err((21, Fault::Stream { cpu, largest: header.highest_stream }));
    }
    if nic > header.highest_nic {
        return Err((22, Fault::Nic { nic, largest: header.highest_nic }));
    }
    for field in [23, 31] {
        let (count, first) = (u32_at(node, field), u32_at(node, field + 4));
        let end = u64::from(first) + u64::from(count);
        if count > 0 && end > edges {
            return Err((field, Fault::Edges { first, end, edges }));
        }
        *claimed += u64::from(count);
        if *claimed > edges {
            return Err((field, Fault::SharedEdges { edges }));
        }
    }
    let stream = StreamId(cpu);
    let known = |peer: u32| {
        let ranks = header.ranks;
        if peer < ranks { Ok(Peer::Rank(RankId(peer))) } else { Err((5, Fault::Peer { peer, ranks })) }
    };
    match node[4] {
        1 if tag == WILDCARD => Err((17, Fault::SendTag)),
        1 => Ok(OpKind::Send {
            peer: known(peer)?,
            bytes: Bytes::new(size),
            tag: Tag(u64::from(tag)),
            stream,
            nic: NicId(nic),
        }),
        2 => Ok(OpKind::Receive {
            peer: if peer == WILDCARD { None } else { Some(known(peer)?) },
            tag: (tag != WILDCARD).then(|| Tag(u64::from(tag))),
            stream,
        }),
        3 if size > LONGEST_CALC_NS => Err((9, Fault::Calc(size))),
        3 => Ok(OpKind::Calc { duration: Span::from_ns(size), stream }),
        other => Err((4, Fault::Type(other))),
    }
}
