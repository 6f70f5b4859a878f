//! Traces of `libwindtunnel-mpi.so` (`tracers/mpi`), one file a rank: MPI programs of one's own.
//!
//! A file is `WTMPI\0\0` and the version, the rank and the size of the world, and records: operation, gap, length, number of arguments,
//! arguments; all numbers are LEB128, arguments zigzag. `tracers/mpi/trace.h` says what the arguments of each operation are.
//!
//! Gaps are computation. Tests without success are none: their time is left out. Communicators are known by their members and by how
//! many of the same members were made before, which is the same on all of them. Files count from instants of their own; each says when
//! all left one barrier, so that it can be told who came last to a collective.

use std::collections::BTreeMap;

use windtunnel_kernel::registry::Entry;
use windtunnel_workload::collectives::CollectiveKind;

use crate::assemble::{believable, ranks_text};
use crate::bytes::Bytes;
use crate::coverage::{Coverage, Treatment};
use crate::draft::Draft;
use crate::error::ImportError;
use crate::input::Input;
use crate::mpi::{Envelope, Said, Script, Tags};
use crate::{Options, Reader};

/// Traces of our own tracer.
pub struct MpiTracer;

const MAGIC: &[u8] = b"WTMPI\0\0";
const VERSION: u8 = 1;
const NOBODY: i64 = -2;

impl Reader for MpiTracer {
    fn entry(&self) -> &'static Entry {
        const { &Entry::new("mpi", "MPI programs traced by libwindtunnel-mpi.so, one file a rank") }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        head.starts_with(MAGIC)
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let mut draft = Draft { source: inputs[0].name.clone(), ..Draft::default() };
        let mut tags = Tags::default();
        let mut world = None;
        for input in inputs {
            let all = input.whole()?;
            let mut bytes = Bytes::new(&input.name, &all);
            let (rank, size) = header(&mut bytes)?;
            let expected = *world.get_or_insert(size);
            if size != expected {
                return Err(bytes
                    .fault(format!("{expected} ranks, as the files before say"), size.to_string())
                    .hint("these files are of several runs: give those of one"));
            }
            if draft.ranks.contains_key(&rank) {
                return Err(ImportError::new(&input.name, "one file a rank", format!("rank {rank} again")));
            }
            let mut trace = Trace {
                script: Script::new(rank, &mut tags),
                draft: &mut draft,
                communicators: BTreeMap::new(),
                made: BTreeMap::new(),
                now: 0,
                shared: None,
            };
            while !trace.record(&mut bytes, size, coverage)? {}
            let program = trace.script.finish(coverage);
            draft.ranks.insert(rank, program.of_file(&input.name));
        }
        let world = world.unwrap_or(0);
        let lacking: Vec<u32> = (0..world).filter(|rank| !draft.ranks.contains_key(rank)).collect();
        if !lacking.is_empty() {
            let found = format!("{} files (missing: {})", draft.ranks.len(), ranks_text(&lacking));
            return Err(ImportError::new(&draft.source, format!("a file of each of {world} ranks"), found)
                .hint("each rank writes `windtunnel-mpi.RANK.wtm` into its own host's folder: copy them together"));
        }
        draft.world = Some(world);
        Ok(draft)
    }
}

fn header(bytes: &mut Bytes<'_>) -> Result<(u32, u32), ImportError> {
    let magic = bytes.take(MAGIC.len() as u64)?;
    if magic != MAGIC {
        return Err(bytes.fault("the magic `WTMPI`", "something else"));
    }
    let version = bytes.u8()?;
    if version != VERSION {
        return Err(bytes
            .fault(format!("version {VERSION} of the tracer's format"), format!("version {version}"))
            .hint("the tracer and `windtunnel` are of different releases: build `tracers/mpi` of this one"));
    }
    let (rank, size) = (bytes.varint()?, bytes.varint()?);
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let size = believable(number(size), bytes.file)?;
    if number(rank) >= size {
        return Err(bytes.fault(format!("a rank below {size}"), rank.to_string()));
    }
    Ok((number(rank), size))
}

struct Trace<'a, 'b> {
    script: Script<'a>,
    draft: &'b mut Draft,
    /// By number: name and members.
    communicators: BTreeMap<i64, (String, Vec<u32>)>,
    /// How many were made, by members.
    made: BTreeMap<Vec<u32>, u32>,
    /// End of the record before, in ns since the first.
    now: i64,
    /// The instant that all share, on the same clock.
    shared: Option<i64>,
}

/// A record's arguments, with what stands for one that is not there.
struct Arguments(Vec<i64>);

impl Arguments {
    fn at(&self, index: usize) -> i64 {
        self.0.get(index).copied().unwrap_or(0)
    }

    fn bytes(&self, index: usize) -> u64 {
        u64::try_from(self.at(index)).unwrap_or(0)
    }

    fn from(&self, index: usize) -> &[i64] {
        self.0.get(index..).unwrap_or(&[])
    }
}

/// Arguments that each operation has at least, by number.
const LEAST: [u64; 12] = [0, 1, 1, 4, 4, 5, 5, 7, 2, 5, 1, 0];

impl Trace<'_, '_> {
    /// One record; true at the end of the program.
    fn record(
        &mut self,
        bytes: &mut Bytes<'_>,
        world: u32,
        coverage: &mut Coverage,
    ) -> Result<bool, ImportError> {
        if bytes.is_empty() {
            return Err(ImportError::cut(bytes.file, bytes.place(), "`MPI_Finalize`"));
        }
        let operation = bytes.varint()?;
        let least = usize::try_from(operation).ok().and_then(|at| LEAST.get(at)).filter(|_| operation > 0);
        let Some(&least) = least else {
            return Err(bytes.fault("an operation of the tracer (1 to 11)", operation.to_string()));
        };
        let time = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let (gap, length) = (time(bytes.varint()?), time(bytes.varint()?));
        let count = bytes.varint()?;
        if count < least {
            return Err(bytes
                .fault(format!("at least {least} arguments of operation {operation}"), count.to_string()));
        }
        let mut arguments = Vec::new();
        for _ in 0..count {
            let value = bytes.varint()?;
            arguments.push((value >> 1) as i64 ^ -((value & 1) as i64));
        }
        let arguments = Arguments(arguments);
        let start = self.now.saturating_add(gap);
        let end = start.saturating_add(length);
        if end == i64::MAX {
            return Err(bytes.fault("times of a program", "more than 292 years"));
        }
        self.now = end;
        match operation {
            1 => {
                self.communicator(&arguments, world, bytes)?;
                return Ok(false);
            }
            2 => {
                self.shared = Some(arguments.at(0));
                self.script.start_at(end);
                coverage.count("other calls", Treatment::Mapped, "begin and end of MPI", 0, 0);
                return Ok(false);
            }
            _ => {}
        }
        // Time in tests that found nothing is waiting.
        let polled = if operation == 8 { arguments.at(1).clamp(0, gap) } else { 0 };
        if polled > 0 {
            let polls = crate::coverage::Amount {
                operations: arguments.bytes(0),
                bytes: 0,
                nanoseconds: polled as u64,
            };
            coverage.add("test without success", Treatment::Mapped, "waiting, as the wait behind it", polls);
        }
        self.script.call(start.saturating_sub(polled), start.saturating_sub(polled), coverage);
        self.script.skip_to(end);
        match operation {
            3 | 5 => {
                let to = self.envelope(&arguments, 0, 1, bytes)?;
                self.script.send(&to.envelope(), (operation == 5).then(|| arguments.at(4)), coverage);
            }
            4 | 6 => {
                let from = self.envelope(&arguments, 0, 1, bytes)?;
                let request = (operation == 6).then(|| arguments.at(4));
                self.script.receive(&from.source(self.script.number), request, coverage);
            }
            7 => {
                let to = self.envelope(&arguments, 0, 1, bytes)?;
                let from = self.envelope(&arguments, 0, 4, bytes)?;
                let number = self.script.number;
                self.script.send(&to.envelope(), Some(i64::MIN), coverage);
                self.script.receive(&from.source(number), Some(i64::MIN + 1), coverage);
                self.script.wait(&[i64::MIN, i64::MIN + 1], coverage);
            }
            8 => self.script.wait(arguments.from(2), coverage),
            9 => self.collective(&arguments, start, length, bytes, coverage)?,
            10 => self.other(&arguments, length, coverage),
            _ => {
                coverage.count("other calls", Treatment::Mapped, "begin and end of MPI", 0, 0);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn communicator(
        &mut self,
        arguments: &Arguments,
        world: u32,
        bytes: &Bytes<'_>,
    ) -> Result<(), ImportError> {
        let members = arguments.from(1).iter().map(|&rank| {
            u32::try_from(rank)
                .ok()
                .filter(|&rank| rank < world)
                .ok_or_else(|| bytes.fault(format!("a member below {world}"), rank.to_string()))
        });
        let members: Vec<u32> = members.collect::<Result<_, _>>()?;
        let mut sorted = members.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(bytes.fault("members of a communicator, each once", ranks_text(&sorted)));
        }
        let before = self.made.entry(members.clone()).or_insert(0);
        let name = match (members.len() as u32 == world, *before) {
            (true, 0) => "MPI_COMM_WORLD".to_owned(),
            (_, 0) => ranks_text(&members),
            (_, before) => format!("{} ({before})", ranks_text(&members)),
        };
        *before += 1;
        self.communicators.insert(arguments.at(0), (name, members));
        Ok(())
    }

    fn known(&self, id: i64, bytes: &Bytes<'_>) -> Result<(&str, &[u32]), ImportError> {
        let known = self.communicators.get(&id).map(|(name, members)| (&**name, &**members));
        known.ok_or_else(|| bytes.fault("a communicator that was written down before", id.to_string()))
    }

    /// What stands from `at` on: peer, tag, bytes.
    fn envelope(
        &self,
        arguments: &Arguments,
        communicator: usize,
        at: usize,
        bytes: &Bytes<'_>,
    ) -> Result<Side, ImportError> {
        let (name, members) = self.known(arguments.at(communicator), bytes)?;
        let peer = arguments.at(at);
        let rank = usize::try_from(peer).ok().and_then(|peer| members.get(peer)).copied();
        if rank.is_none() && peer >= 0 && !members.is_empty() {
            let expected = format!("a rank below {} of communicator `{name}`", members.len());
            return Err(bytes.fault(expected, peer.to_string()));
        }
        let tag = Some(arguments.at(at + 1)).filter(|&tag| tag >= 0);
        // Of an intercommunicator the members are not known: what goes there is not modelled.
        let nobody = peer == NOBODY || members.is_empty();
        Ok(Side { communicator: name.to_owned(), rank, nobody, tag, bytes: arguments.bytes(at + 2) })
    }

    fn collective(
        &mut self,
        arguments: &Arguments,
        start: i64,
        length: i64,
        bytes: &Bytes<'_>,
        coverage: &mut Coverage,
    ) -> Result<(), ImportError> {
        let (name, members) = self.known(arguments.at(1), bytes)?;
        let (name, members) = (name.to_owned(), members.to_vec());
        let (root, payload) = (arguments.at(2), arguments.bytes(3));
        let length = length.unsigned_abs();
        if members.is_empty() {
            let why = "between two groups: not modelled, its time stays";
            coverage.count("collective", Treatment::Dropped, why, payload, length);
            self.script.compute(length, coverage);
            return Ok(());
        }
        let Some(&root_rank) = usize::try_from(root).ok().and_then(|root| members.get(root)) else {
            return Err(bytes.fault(format!("a root below {}", members.len()), root.to_string()));
        };
        let root = root as u32;
        let splits: Vec<u64> =
            arguments.from(5).iter().map(|&part| u64::try_from(part).unwrap_or(0)).collect();
        let kind = match arguments.at(0) {
            1 => CollectiveKind::Barrier,
            2 => CollectiveKind::Broadcast { root },
            3 => CollectiveKind::Reduce { root },
            4 | 10 => CollectiveKind::AllReduce,
            kind @ (5 | 6) => {
                let parts = if splits.len() == members.len() { splits } else { vec![payload] };
                self.script.rooted(&name, &members, root_rank, &parts, kind == 5, coverage);
                return Ok(());
            }
            7 => CollectiveKind::AllGather,
            8 => CollectiveKind::AllToAll,
            9 => CollectiveKind::ReduceScatter,
            other => return Err(bytes.fault("a kind of collective (1 to 10)", other.to_string())),
        };
        let came = self.shared.map(|shared| start.saturating_sub(shared));
        let splits = Some(splits).filter(|splits| splits.len() == members.len());
        let as_another = (arguments.at(0) == 10).then_some("a scan, as an all-reduce");
        let said = Said { splits, came, as_another, ..Said::new(kind, payload, length) };
        let request = Some(arguments.at(4)).filter(|&request| request != 0);
        self.script.begin_collective(self.draft, &name, &members, said, request, coverage);
        Ok(())
    }

    fn other(&mut self, arguments: &Arguments, length: i64, coverage: &mut Coverage) {
        let letters = arguments.from(1).iter().take(64).filter_map(|&letter| u8::try_from(letter).ok());
        let name: String = letters
            .filter(|letter| letter.is_ascii_alphanumeric() || *letter == b'_')
            .map(char::from)
            .collect();
        let (treatment, why) =
            if name.starts_with("Comm_") || name.ends_with("create") || name.contains("art_") {
                (Treatment::Approximated, "making a communicator: its recorded time stays")
            } else if name.starts_with("File_") {
                (Treatment::Dropped, "access to a file: its recorded time stays")
            } else {
                (Treatment::Dropped, "one-sided communication is not modelled: its recorded time stays")
            };
        let length = length.unsigned_abs();
        coverage.count(&format!("call of MPI_{name}"), treatment, why, arguments.bytes(0), length);
        self.script.compute(length, coverage);
    }
}

/// One side of a message.
struct Side {
    communicator: String,
    rank: Option<u32>,
    nobody: bool,
    tag: Option<i64>,
    bytes: u64,
}

impl Side {
    fn envelope(&self) -> Envelope<'_> {
        Envelope { communicator: &self.communicator, peer: self.rank, tag: self.tag, bytes: self.bytes }
    }

    /// As a source: none is any, and nobody is the rank itself.
    fn source(&self, own: u32) -> Envelope<'_> {
        Envelope { peer: if self.nobody { Some(own) } else { self.rank }, ..self.envelope() }
    }
}
