//! Reader of the compact form.

use std::io::Read;
use std::path::Path;

use rustc_hash::FxHashMap;
use windtunnel_kernel::registry::Listed;
use windtunnel_kernel::{Bytes, NicId, RankId, Span, StreamId, Tag};

use super::{CompactError, MAGIC, VERSION};
use crate::collectives::{CollectiveKind, CollectiveSpec, neighbours};
use crate::program::{Binding, Communicator, Edges};
use crate::{CommSlot, Dimension, OpKind, Operation, Peer, Program, Workload};

/// Reads a file. Where a collective leaves `domain` at 1, it is what its communicator has on scale-up domains of `gpus` that ranks
/// fill in order, as in hand-written workloads.
///
/// # Errors
/// [`CompactError`].
pub fn read(path: impl AsRef<Path>, gpus: u32) -> Result<Workload, CompactError> {
    let path = path.as_ref();
    let file = std::fs::File::open(path).map_err(|error| CompactError {
        path: path.to_owned(),
        byte: None,
        message: error.to_string(),
    })?;
    read_from(std::io::BufReader::with_capacity(1 << 17, file), path, gpus)
}

/// The same of a stream; `path` names it in errors.
///
/// # Errors
/// [`CompactError`].
pub fn read_from(mut input: impl Read, path: &Path, gpus: u32) -> Result<Workload, CompactError> {
    let fail = |message: String| CompactError { path: path.to_owned(), byte: Some(0), message };
    let mut head = [0; 5];
    input.read_exact(&mut head).map_err(|error| fail(format!("expected a workload, found {error}")))?;
    if head[..4] != MAGIC {
        return Err(fail("expected `WTWL` at the beginning, found something else".to_owned()));
    }
    if head[4] != VERSION {
        return Err(fail(format!("expected version {VERSION}, found {}", head[4])));
    }
    let packed = zstd::Decoder::new(input).map_err(|error| fail(error.to_string()))?;
    let mut stream = Stream { input: packed, path, byte: 0 };
    let mut workload = Workload::default();
    for _ in 0..stream.number()? {
        let name = stream.text()?;
        let mut ranks = Vec::new();
        let mut last = 0i64;
        for _ in 0..stream.number()? {
            last = last.wrapping_add(stream.signed()?);
            let rank = u32::try_from(last).map_err(|_| stream.fault("a rank", last))?;
            ranks.push(RankId(rank));
        }
        workload.communicators.push(Communicator { name, ranks });
    }
    for _ in 0..stream.number()? {
        let program = program(&mut stream)?;
        workload.programs.push(program);
    }
    ranks(&mut stream, &mut workload)?;
    check(&stream, &workload)?;
    domains(&mut workload, gpus);
    Ok(workload)
}

fn ranks(stream: &mut Stream<'_, impl Read>, workload: &mut Workload) -> Result<(), CompactError> {
    let ranks = stream.number()?;
    for _ in 0..ranks {
        let program = stream.below(workload.programs.len() as u64, "a program")?;
        workload.program_of.push(program as u32);
    }
    workload.binding_offsets.push(0);
    for _ in 0..ranks {
        for _ in 0..stream.number()? {
            let communicator = stream.below(workload.communicators.len() as u64, "a communicator")?;
            let members = workload.communicators[communicator as usize].ranks.len() as u64;
            let index = stream.below(members, "a member")?;
            workload.bindings.push(Binding { communicator: communicator as u32, index: index as u32 });
        }
        workload.binding_offsets.push(workload.bindings.len() as u32);
    }
    Ok(())
}

fn program(stream: &mut Stream<'_, impl Read>) -> Result<Program, CompactError> {
    let mut program = Program::default();
    for _ in 0..stream.number()? {
        program.labels.push(stream.text()?);
    }
    for _ in 0..stream.number()? {
        program.specs.push(specification(stream)?);
    }
    let operations = stream.number()?;
    let unit = stream.number()?;
    if !matches!(unit, 1 | 1_000) {
        return Err(stream.fault("a unit of 1 or 1,000 ps", unit));
    }
    let mut columns = Vec::with_capacity(8);
    for _ in 0..8 {
        columns.push(stream.column()?);
    }
    let mut columns = columns.into_iter().map(|bytes| Column { bytes, at: 0 });
    let mut next = || columns.next().expect("eight of them");
    let (mut kinds, mut streams, mut dimensions, mut labels) = (next(), next(), next(), next());
    let (mut durations, mut peers, mut sizes, mut tags) = (next(), next(), next(), next());
    let short = || stream.fault("as many entries in a column as there are operations", "fewer");
    if kinds.bytes.len() as u64 != operations || streams.bytes.len() as u64 != operations {
        return Err(short());
    }
    for _ in 0..operations {
        let stream_id = StreamId(streams.byte().ok_or_else(short)?);
        let dimension = dimensions.number().ok_or_else(short)? as usize;
        let dimension =
            *Dimension::ALL.get(dimension).ok_or_else(|| stream.fault("a dimension", dimension))?;
        let label =
            labels.number().filter(|&label| label < program.labels.len() as u64).ok_or_else(short)? as u32;
        let mut peer = || -> Option<Option<Peer>> {
            Some(match peers.number()? {
                0 => None,
                1 => Some(Peer::Rank(RankId(u32::try_from(peers.number()?).ok()?))),
                _ => {
                    let slot = CommSlot(u16::try_from(peers.number()?).ok()?);
                    Some(Peer::Member(slot, u32::try_from(peers.number()?).ok()?))
                }
            })
        };
        let kind = match kinds.byte().ok_or_else(short)? {
            0 => {
                let duration =
                    durations.number().and_then(|value| value.checked_mul(unit)).ok_or_else(short)?;
                OpKind::Calc { duration: Span::from_ps(duration), stream: stream_id }
            }
            1 => OpKind::Send {
                peer: peer().flatten().ok_or_else(short)?,
                bytes: Bytes::new(sizes.number().ok_or_else(short)?),
                tag: Tag(tags.number().ok_or_else(short)?),
                stream: stream_id,
                nic: NicId(tags.number().ok_or_else(short)? as u8),
            },
            2 => OpKind::Receive {
                peer: peer().ok_or_else(short)?,
                tag: tags.number().ok_or_else(short)?.checked_sub(1).map(Tag),
                stream: stream_id,
            },
            3 => OpKind::Collective {
                comm: CommSlot(sizes.number().ok_or_else(short)? as u16),
                spec: sizes.number().filter(|&spec| spec < program.specs.len() as u64).ok_or_else(short)?
                    as u32,
                sequence: tags.number().ok_or_else(short)? as u32,
                stream: stream_id,
            },
            other => return Err(stream.fault("an operation's kind from 0 to 3", other)),
        };
        program.ops.push(Operation { kind, dimension, label });
    }
    program.prerequisites = vec![0; program.ops.len()];
    program.requires = edges(stream, &mut program.prerequisites)?;
    program.irequires = edges(stream, &mut program.prerequisites)?;
    program.check_acyclic().map_err(|error| stream.fault("operations without a cycle", error))?;
    Ok(program)
}

fn edges(stream: &mut Stream<'_, impl Read>, prerequisites: &mut [u32]) -> Result<Edges, CompactError> {
    let (counts, distances) = (stream.column()?, stream.column()?);
    if counts.is_empty() {
        return Ok(Edges::default());
    }
    let (mut counts, mut distances) = (Column { bytes: counts, at: 0 }, Column { bytes: distances, at: 0 });
    let mut offsets = vec![0u32];
    let mut targets = Vec::new();
    let bad = || stream.fault("edges between operations", "one to an operation that does not exist");
    for source in 0..prerequisites.len() as i64 {
        for _ in 0..counts.number().ok_or_else(bad)? {
            let coded = distances.number().ok_or_else(bad)?;
            let distance = (coded >> 1) as i64 ^ -((coded & 1) as i64);
            let target = usize::try_from(source.wrapping_add(distance))
                .ok()
                .filter(|&target| target < prerequisites.len());
            let target = target.ok_or_else(bad)?;
            prerequisites[target] += 1;
            targets.push(target as u32);
        }
        offsets.push(targets.len() as u32);
    }
    Ok(Edges::from_rows(offsets, targets))
}

fn specification(stream: &mut Stream<'_, impl Read>) -> Result<CollectiveSpec, CompactError> {
    let name = stream.text()?;
    let mut kind = CollectiveKind::by_name(&name).ok_or_else(|| stream.fault("a collective", &name))?;
    let given = stream.number()? as u32;
    if let CollectiveKind::Broadcast { root } | CollectiveKind::Reduce { root } = &mut kind {
        *root = given;
    }
    let (algorithm, form) = (stream.text()?, stream.text()?);
    let mut spec = CollectiveSpec::new(kind, Bytes::new(stream.number()?));
    spec.algorithm = Listed::by_name(&algorithm).ok_or_else(|| stream.fault("an algorithm", &algorithm))?;
    spec.form = Listed::by_name(&form).ok_or_else(|| stream.fault("a form", &form))?;
    spec.outstanding = stream.positive()?;
    spec.domain = stream.positive()?;
    let mut matrix = Vec::new();
    for _ in 0..stream.number()? {
        matrix.push(stream.number()?);
    }
    if (kind == CollectiveKind::AllToAllV) == matrix.is_empty() {
        return Err(stream.fault("a matrix for an all-to-all-v, and for nothing else", matrix.len()));
    }
    spec.matrix = (!matrix.is_empty()).then(|| matrix.into());
    Ok(spec)
}

/// What ranks and programs say of each other: slots that are bound, peers and members that exist, sizes of matrices and roots.
fn check(stream: &Stream<'_, impl Read>, workload: &Workload) -> Result<(), CompactError> {
    let ranks = workload.ranks();
    if let Some(rank) =
        workload.communicators.iter().flat_map(|group| &group.ranks).find(|rank| rank.0 as usize >= ranks)
    {
        return Err(stream.fault("members below the number of ranks", rank.0));
    }
    for rank in (0..ranks as u32).map(RankId) {
        let bound = workload.binding_offsets[rank.0 as usize + 1] - workload.binding_offsets[rank.0 as usize];
        let program = workload.program(rank);
        for op in &program.ops {
            let slot_of = |slot: CommSlot| {
                (u32::from(slot.0) < bound).then(|| workload.binding(rank, slot).communicator as usize)
            };
            let known = match op.kind {
                OpKind::Calc { .. } | OpKind::Receive { peer: None, .. } => true,
                OpKind::Send { peer, .. } | OpKind::Receive { peer: Some(peer), .. } => match peer {
                    Peer::Rank(other) => (other.0 as usize) < ranks,
                    Peer::Member(slot, index) => slot_of(slot)
                        .is_some_and(|group| (index as usize) < workload.communicators[group].ranks.len()),
                },
                OpKind::Collective { comm, spec, .. } => slot_of(comm).is_some_and(|group| {
                    let (spec, n) =
                        (&program.specs[spec as usize], workload.communicators[group].ranks.len());
                    let root = match spec.kind {
                        CollectiveKind::Broadcast { root } | CollectiveKind::Reduce { root } => root as usize,
                        _ => 0,
                    };
                    root < n
                        && spec.matrix.as_ref().is_none_or(|matrix| Some(matrix.len()) == n.checked_mul(n))
                }),
            };
            if !known {
                return Err(stream.fault(
                    "peers, communicators and roots that exist",
                    format!("{:?} on rank {}", op.kind, rank.0),
                ));
            }
        }
    }
    Ok(())
}

/// Sets the domains of collectives that leave them open. Equal on all members: by the name of the communicator.
fn domains(workload: &mut Workload, gpus: u32) {
    let mut names: FxHashMap<&str, Vec<&[RankId]>> = FxHashMap::default();
    for communicator in &workload.communicators {
        names.entry(&communicator.name).or_default().push(&communicator.ranks);
    }
    let of_name = |name: &str| names.get(name).map_or(1, |groups| neighbours(groups.iter().copied(), gpus));
    let mut seen = vec![false; workload.programs.len()];
    let mut named: Vec<(usize, usize, u32)> = Vec::new();
    for rank in (0..workload.ranks() as u32).map(RankId) {
        let index = workload.program_of[rank.0 as usize] as usize;
        if std::mem::replace(&mut seen[index], true) {
            continue;
        }
        for (place, op) in workload.programs[index].ops.iter().enumerate() {
            if let OpKind::Collective { comm, .. } = op.kind {
                let group = workload.binding(rank, comm).communicator as usize;
                named.push((index, place, of_name(&workload.communicators[group].name)));
            }
        }
    }
    // One specification may serve several communicators: it is doubled where their domains differ.
    let mut doubled: FxHashMap<(usize, u32, u32), u32> = FxHashMap::default();
    for (index, place, domain) in named {
        let program = &mut workload.programs[index];
        let OpKind::Collective { spec, .. } = &mut program.ops[place].kind else { continue };
        if program.specs[*spec as usize].domain == 1 && domain > 1 {
            let specs = &mut program.specs;
            *spec = *doubled.entry((index, *spec, domain)).or_insert_with(|| {
                let own = CollectiveSpec { domain, ..specs[*spec as usize].clone() };
                specs.push(own);
                specs.len() as u32 - 1
            });
        }
    }
}

/// The unpacked stream.
struct Stream<'a, R> {
    input: R,
    path: &'a Path,
    byte: u64,
}

impl<R: Read> Stream<'_, R> {
    fn fault(&self, expected: &str, found: impl std::fmt::Display) -> CompactError {
        let message = format!("expected {expected}, found {found}");
        CompactError { path: self.path.to_owned(), byte: Some(self.byte), message }
    }

    fn number(&mut self) -> Result<u64, CompactError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.input.read_exact(&mut byte).map_err(|error| self.fault("a number", error))?;
            self.byte += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.fault("a number of at most 64 bits", "a longer one"))
    }

    fn signed(&mut self) -> Result<i64, CompactError> {
        let coded = self.number()?;
        Ok((coded >> 1) as i64 ^ -((coded & 1) as i64))
    }

    fn below(&mut self, limit: u64, what: &str) -> Result<u64, CompactError> {
        let value = self.number()?;
        if value < limit { Ok(value) } else { Err(self.fault(&format!("{what} below {limit}"), value)) }
    }

    fn positive(&mut self) -> Result<u32, CompactError> {
        let value = self.number()?;
        u32::try_from(value)
            .ok()
            .filter(|&value| value > 0)
            .ok_or_else(|| self.fault("a positive number of 32 bits", value))
    }

    fn text(&mut self) -> Result<String, CompactError> {
        let bytes = self.column()?;
        String::from_utf8(bytes).map_err(|error| self.fault("UTF-8", error))
    }

    /// Bytes with their length before them.
    fn column(&mut self) -> Result<Vec<u8>, CompactError> {
        let length = self.number()?;
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(length).read_to_end(&mut bytes);
        let read = read.map_err(|error| self.fault("a column", error))? as u64;
        self.byte += read;
        if read == length { Ok(bytes) } else { Err(self.fault(&format!("{length} bytes"), read)) }
    }
}

struct Column {
    bytes: Vec<u8>,
    at: usize,
}

impl Column {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}
