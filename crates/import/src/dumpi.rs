//! DUMPI traces (SST, magic `ff aa dd DUMPI`): binary, big-endian, one file a rank.
//!
//! A body of calls: function (16 bits), mask (8), thread (16, mask bit 6), times of CPU and wall (bits 2 and 3: seconds in 16
//! and nanoseconds in 32 bits, start and end), performance counters (bit 7), arguments. No length is stored, so a call whose
//! arguments are not known here ends the reading. The last 64-bit numbers of the file are offsets of its sections. Functions
//! have the order of MPI-1's index; sizes of types: the predefined ones by number, others by the calls that made them.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use windtunnel_kernel::registry::Entry;
use windtunnel_workload::collectives::CollectiveKind;

use crate::bytes::Bytes;
use crate::coverage::{Coverage, Verdict};
use crate::draft::Draft;
use crate::error::ImportError;
use crate::input::Input;
use crate::mpi::{Envelope, Said, Script, Tags};
use crate::{Options, Reader};

/// DUMPI traces.
pub struct Dumpi;

const MAGIC: [u8; 8] = [0xff, 0xaa, 0xdd, b'D', b'U', b'M', b'P', b'I'];
const WORLD: u16 = 2;
const SELF: u16 = 3;

/// Function numbers and arguments: `i` int, `d` type, `c` communicator, `g` group, `o` operation, `r` request, `I`, `R`,
/// `D` arrays of those, `s` statuses, `a` texts by count, `x` 8 bits, `?` the rest if the first argument is the root's rank.
const FUNCTIONS: [(u16, &str); 72] = [
    (0, "idiic"),
    (1, "idiics"),
    (2, "sdi"),
    (3, "idiic"),
    (4, "idiic"),
    (5, "idiic"),
    (6, "i"),
    (7, "i"),
    (8, "idiicr"),
    (9, "idiicr"),
    (10, "idiicr"),
    (11, "idiicr"),
    (12, "idiicr"),
    (13, "rs"),
    (14, "ris"),
    (15, "r"),
    (16, "iRis"),
    (17, "iRiis"),
    (18, "iRs"),
    (19, "iRis"),
    (20, "iRiIs"),
    (21, "iRiIs"),
    (22, "iicis"),
    (23, "iics"),
    (24, "r"),
    (25, "si"),
    (26, "idiicr"),
    (27, "idiicr"),
    (28, "idiicr"),
    (29, "idiicr"),
    (30, "idiicr"),
    (31, "r"),
    (32, "iR"),
    (33, "idiiidiics"),
    (35, "idd"),
    (36, "iiidd"),
    (43, "di"),
    (46, "d"),
    (47, "d"),
    (52, "c"),
    (53, "idic"),
    (54, "iidic?id"),
    (55, "iiidic?II!d"),
    (56, "iidic?id"),
    (57, "iididic?II"),
    (58, "ididc"),
    (59, "iidIIdc"),
    (60, "ididc"),
    (61, "iIIdIIdc"),
    (62, "idoic"),
    (63, "io"),
    (64, "o"),
    (65, "idoc"),
    (66, "iIdoc"),
    (67, "idoc"),
    (68, "gi"),
    (69, "gi"),
    (70, "giIgI"),
    (71, "ggx"),
    (72, "cg"),
    (76, "giIg"),
    (77, "giIg"),
    (80, "g"),
    (81, "ci"),
    (82, "ci"),
    (83, "ccx"),
    (84, "cc"),
    (85, "cgc"),
    (86, "ciic"),
    (87, "c"),
    (124, "ia"),
    (125, ""),
];

/// Arguments of a call.
#[derive(Default)]
struct Call {
    function: u16,
    start: i64,
    end: i64,
    numbers: Vec<i64>,
    arrays: Vec<Vec<i64>>,
}

impl Reader for Dumpi {
    fn entry(&self) -> &'static Entry {
        const { &Entry::new("dumpi", "DUMPI MPI traces of SST (binary), one file a rank") }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        head.starts_with(&MAGIC)
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let mut files = Vec::new();
        for input in inputs {
            // The text beside a trace (`.meta`, `.map`) says who ran it and is not needed.
            if input.head(8)?.starts_with(&MAGIC) {
                files.push(input);
            } else {
                coverage.count("file beside the trace", Verdict::Mapped, "about the run, not of it", 0, 0);
            }
        }
        let world = files.len() as u32;
        let mut draft = Draft { source: inputs[0].name.clone(), world: Some(world), ..Draft::default() };
        if files.is_empty() {
            return Err(ImportError::new(
                &draft.source,
                "at least one DUMPI trace (magic `ff aa dd DUMPI`)",
                "none",
            ));
        }
        let mut splits = Splits::default();
        for (rank, input) in (0..).zip(&files) {
            let bytes = input.whole()?;
            each(&input.name, &bytes, |call| {
                if call.function == 86 {
                    splits.note(rank, call);
                }
            })?;
        }
        let mut tags = Tags::default();
        for (rank, input) in (0..).zip(&files) {
            let bytes = input.whole()?;
            let mut state = State {
                rank,
                communicators: BTreeMap::new(),
                groups: BTreeMap::new(),
                types: BTreeMap::new(),
                persistent: FxHashMap::default(),
                split: 0,
            };
            state.communicators.insert(WORLD, ("MPI_COMM_WORLD".to_owned(), (0..world).collect()));
            state.communicators.insert(SELF, ("MPI_COMM_SELF".to_owned(), vec![rank]));
            let mut script = Script::new(rank, &mut tags);
            each(&input.name, &bytes, |call| {
                state.replay(call, &splits, &mut script, &mut draft, coverage);
            })?;
            let program = script.rank;
            draft.ranks.insert(rank, program);
        }
        Ok(draft)
    }
}

/// Goes through the calls of a file.
fn each(file: &str, all: &[u8], mut visit: impl FnMut(&Call)) -> Result<(), ImportError> {
    let mut bytes = Bytes::new(file, all);
    if bytes.take(8)? != MAGIC {
        return Err(bytes.fault("the magic `ff aa dd DUMPI`", "something else"));
    }
    // Offsets of keyval, footer, body and header, from the end.
    let length = all.len() as u64;
    let offset = |from_end: u64| -> Result<u64, ImportError> {
        let mut tail = Bytes::new(file, all);
        tail.seek(
            length
                .checked_sub(from_end)
                .ok_or_else(|| ImportError::cut(file, length, "the index of sections"))?,
        )?;
        tail.u64_be()
    };
    let (body, header) = (offset(24)?, offset(32)?);
    if header > length || body < 8 || body >= header {
        return Err(ImportError::cut(file, length, "an index of sections at the end"));
    }
    bytes.seek(header)?;
    let version = bytes.array::<3>()?;
    bytes.seek(body)?;
    bytes.take(8)?;
    while bytes.place() + 2 < header {
        let function = bytes.u16_be()?;
        let Some(&(_, arguments)) = FUNCTIONS.iter().find(|(number, _)| *number == function) else {
            if bytes.place() + 8 >= header {
                break;
            }
            let found = format!("function {function}, whose arguments are not known here");
            return Err(bytes
                .fault("a call of MPI that is modelled", found)
                .hint("calls carry no length: what follows cannot be read"));
        };
        let call = call(&mut bytes, function, arguments, version)?;
        visit(&call);
    }
    Ok(())
}

fn call(
    bytes: &mut Bytes<'_>,
    function: u16,
    arguments: &str,
    version: [u8; 3],
) -> Result<Call, ImportError> {
    let mut call = Call { function, ..Call::default() };
    let mask = bytes.u8()?;
    if mask & 0x40 != 0 {
        bytes.u16_be()?;
    }
    // The wall clock is the last that was stored.
    for bit in [4, 8] {
        if mask & bit != 0 {
            let mut time = || -> Result<i64, ImportError> {
                let seconds = i64::from(bytes.u16_be()?);
                Ok(seconds * 1_000_000_000 + i64::from(bytes.u32_be()?))
            };
            (call.start, call.end) = (time()?, time()?);
        }
    }
    if mask & 0x80 != 0 {
        let counters = u64::from(bytes.u8()?);
        bytes.take(counters * 16)?;
    }
    let mut skip = false;
    for kind in arguments.chars() {
        if skip && kind != '!' {
            continue;
        }
        match kind {
            'i' | 'r' => call.numbers.push(i64::from(bytes.u32_be()? as i32)),
            'd' | 'c' | 'g' => call.numbers.push(i64::from(bytes.u16_be()?)),
            'o' | 'x' => call.numbers.push(i64::from(bytes.u8()?)),
            'I' | 'R' => {
                let length = u64::from(bytes.u32_be()?);
                let part = bytes.take(length.saturating_mul(4))?;
                let number =
                    |part: &[u8]| i64::from(i32::from_be_bytes([part[0], part[1], part[2], part[3]]));
                call.arrays.push(part.chunks_exact(4).map(number).collect());
            }
            's' if mask & 3 != 0 => {
                let length = u64::from(bytes.u32_be()?);
                let size = if version >= [0, 6, 3] { 14 } else { 10 };
                bytes.take(length.saturating_mul(size))?;
            }
            'a' => {
                let count = call.numbers.last().copied().unwrap_or(0).max(0);
                for _ in 0..count {
                    let length = u64::from(bytes.u32_be()?);
                    bytes.take(length)?;
                }
            }
            // The root has more: its rank is the first argument, the root stands before the communicator.
            '?' => skip = call.numbers.len() < 2 || call.numbers[0] != call.numbers[call.numbers.len() - 2],
            '!' => skip = false,
            _ => {}
        }
    }
    Ok(call)
}

/// Calls of `MPI_Comm_split`: (rank, which, parent) with colour and key.
#[derive(Default)]
struct Splits(BTreeMap<(u32, i64), Vec<(i64, i64)>>);

impl Splits {
    fn note(&mut self, rank: u32, call: &Call) {
        if let [parent, color, key, ..] = call.numbers[..] {
            self.0.entry((rank, parent)).or_default().push((color, key));
        }
    }

    /// The members of `rank`'s part of the `nth` split of a communicator: equal colour, in order of key and rank.
    fn members(&self, rank: u32, parent: i64, nth: usize, of: &[u32]) -> Vec<u32> {
        let of_rank = |rank: u32| self.0.get(&(rank, parent)).and_then(|list| list.get(nth)).copied();
        let Some((color, _)) = of_rank(rank) else { return vec![rank] };
        let mut members: Vec<(i64, u32)> = of
            .iter()
            .filter_map(|&other| of_rank(other).filter(|said| said.0 == color).map(|said| (said.1, other)))
            .collect();
        members.sort_unstable();
        members.into_iter().map(|(_, rank)| rank).collect()
    }
}

struct State {
    rank: u32,
    communicators: BTreeMap<u16, (String, Vec<u32>)>,
    groups: BTreeMap<u16, Vec<u32>>,
    types: BTreeMap<u16, u64>,
    /// Persistent requests: (send, peer, tag, communicator, bytes).
    persistent: FxHashMap<i64, (bool, i64, i64, u16, u64)>,
    split: usize,
}

impl State {
    /// Bytes of a type; that of a type whose making was not seen is taken as 1.
    fn size(&self, datatype: i64, coverage: &mut Coverage) -> u64 {
        match datatype {
            2..=5 | 19 => 1,
            7 | 8 => 2,
            6 | 9 | 10 | 13 => 4,
            11 | 12 | 14 | 16 | 17 | 18 | 22 | 26 => 8,
            23 | 24 | 15 => 16,
            _ => {
                let known = self.types.get(&(datatype as u16)).copied();
                if known.is_none() {
                    coverage.count(
                        "type of data",
                        Verdict::Guessed,
                        "how it was made is not in the trace: one byte an element",
                        0,
                        0,
                    );
                }
                known.unwrap_or(1)
            }
        }
    }

    fn members(&self, communicator: i64) -> Option<&(String, Vec<u32>)> {
        self.communicators.get(&(communicator as u16))
    }

    /// A rank of a communicator as one of the world.
    fn peer(&self, communicator: i64, rank: i64) -> Option<u32> {
        let (_, members) = self.members(communicator)?;
        members.get(usize::try_from(rank).ok()?).copied()
    }

    fn replay(
        &mut self,
        call: &Call,
        splits: &Splits,
        script: &mut Script<'_>,
        draft: &mut Draft,
        coverage: &mut Coverage,
    ) {
        script.call(call.start, call.end, coverage);
        let n = &call.numbers;
        let at = |index: usize| n.get(index).copied().unwrap_or(0);
        let length = (call.end - call.start).max(0) as u64;
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        match call.function {
            0 | 3..=5 | 8..=11 => {
                let bytes = count(at(0)).saturating_mul(self.size(at(1), coverage));
                let (name, _) = self.members(at(4)).cloned().unwrap_or_default();
                let to =
                    Envelope { communicator: &name, peer: self.peer(at(4), at(2)), tag: Some(at(3)), bytes };
                script.send(&to, (call.function >= 8).then(|| at(5)), coverage);
            }
            1 | 12 => {
                let bytes = count(at(0)).saturating_mul(self.size(at(1), coverage));
                let (name, _) = self.members(at(4)).cloned().unwrap_or_default();
                let peer = self.peer(at(4), at(2));
                let from =
                    Envelope { communicator: &name, peer, tag: Some(at(3)).filter(|tag| *tag >= 0), bytes };
                script.receive(&from, (call.function == 12).then(|| at(5)), coverage);
            }
            26..=30 => {
                let bytes = count(at(0)).saturating_mul(self.size(at(1), coverage));
                self.persistent.insert(at(5), (call.function != 30, at(2), at(3), at(4) as u16, bytes));
            }
            31 | 32 => {
                let started = if call.function == 31 {
                    vec![at(0)]
                } else {
                    call.arrays.first().cloned().unwrap_or_default()
                };
                for request in started {
                    let Some(&(sends, peer, tag, communicator, bytes)) = self.persistent.get(&request) else {
                        continue;
                    };
                    let (name, _) = self.members(i64::from(communicator)).cloned().unwrap_or_default();
                    let peer = self.peer(i64::from(communicator), peer);
                    let envelope =
                        Envelope { communicator: &name, peer, tag: Some(tag).filter(|tag| *tag >= 0), bytes };
                    if sends {
                        script.send(&envelope, Some(request), coverage);
                    } else {
                        script.receive(&envelope, Some(request), coverage);
                    }
                }
            }
            13 => script.wait(&[at(0)], coverage),
            // A test that has found its request done is a wait for it.
            14 if at(1) != 0 => script.wait(&[at(0)], coverage),
            18 => script.wait(call.arrays.first().map_or(&[], Vec::as_slice), coverage),
            16 => {
                let found =
                    usize::try_from(at(1)).ok().and_then(|index| call.arrays.first()?.get(index)).copied();
                script.wait(found.as_slice(), coverage);
            }
            19 if at(1) != 0 => script.wait(call.arrays.first().map_or(&[], Vec::as_slice), coverage),
            20 | 21 => {
                let [requests, indices] = &call.arrays[..] else { return };
                let done =
                    indices.iter().filter_map(|&index| requests.get(usize::try_from(index).ok()?)).copied();
                script.wait(&done.collect::<Vec<_>>(), coverage);
            }
            33 => {
                let (name, _) = self.members(at(8)).cloned().unwrap_or_default();
                let sent = count(at(0)).saturating_mul(self.size(at(1), coverage));
                let taken = count(at(4)).saturating_mul(self.size(at(5), coverage));
                let to = Envelope {
                    communicator: &name,
                    peer: self.peer(at(8), at(2)),
                    tag: Some(at(3)),
                    bytes: sent,
                };
                let from = Envelope {
                    communicator: &name,
                    peer: self.peer(at(8), at(6)),
                    tag: Some(at(7)).filter(|tag| *tag >= 0),
                    bytes: taken,
                };
                script.send(&to, Some(i64::MIN), coverage);
                script.receive(&from, Some(i64::MIN + 1), coverage);
                script.wait(&[i64::MIN, i64::MIN + 1], coverage);
            }
            35 => {
                let size = count(at(0)).saturating_mul(self.size(at(1), coverage));
                self.types.insert(at(2) as u16, size);
            }
            36 => {
                let size =
                    count(at(0)).saturating_mul(count(at(1))).saturating_mul(self.size(at(3), coverage));
                self.types.insert(at(4) as u16, size);
            }
            43 => drop(self.types.insert(at(0) as u16, count(at(1)))),
            52..=62 | 65..=67 => self.collective(call, length, script, draft, coverage),
            72 => {
                let members = self.members(at(0)).map(|(_, ranks)| ranks.clone()).unwrap_or_default();
                self.groups.insert(at(1) as u16, members);
            }
            76 | 77 => {
                let of = self.groups.get(&(at(0) as u16)).cloned().unwrap_or_default();
                let list: Vec<usize> = call
                    .arrays
                    .first()
                    .into_iter()
                    .flatten()
                    .filter_map(|&index| usize::try_from(index).ok())
                    .collect();
                let members = if call.function == 76 {
                    list.iter().filter_map(|&index| of.get(index).copied()).collect()
                } else {
                    (0..of.len()).filter(|index| !list.contains(index)).map(|index| of[index]).collect()
                };
                self.groups.insert(at(2) as u16, members);
            }
            84 => {
                let (name, members) = self.members(at(0)).cloned().unwrap_or_default();
                self.communicators.insert(at(1) as u16, (format!("{name}'"), members));
            }
            85 => {
                let members = self.groups.get(&(at(1) as u16)).cloned().unwrap_or_default();
                if members.contains(&self.rank) {
                    let name = format!("of {}", crate::assemble::ranks_text(&members));
                    self.communicators.insert(at(2) as u16, (name, members));
                }
            }
            86 => {
                let parent = self.members(at(0)).map(|(_, ranks)| ranks.clone()).unwrap_or_default();
                let members = splits.members(self.rank, at(0), self.split, &parent);
                self.split += usize::from(at(0) == i64::from(WORLD));
                let name = format!("split of {}", crate::assemble::ranks_text(&members));
                self.communicators.insert(at(3) as u16, (name, members));
            }
            _ => {
                coverage.count(
                    "other calls",
                    Verdict::Mapped,
                    "no communication: their time is computation",
                    0,
                    length,
                );
                script.compute(length, coverage);
            }
        }
    }

    fn collective(
        &self,
        call: &Call,
        length: u64,
        script: &mut Script<'_>,
        draft: &mut Draft,
        coverage: &mut Coverage,
    ) {
        let n = &call.numbers;
        let at = |index: usize| n.get(index).copied().unwrap_or(0);
        let mut size = |count: i64, datatype: i64| {
            u64::try_from(count).unwrap_or(0).saturating_mul(self.size(datatype, coverage))
        };
        let root = |rank: i64| rank.max(0) as u32;
        let array = |index: usize| call.arrays.get(index).map_or(&[][..], Vec::as_slice);
        // Where the communicator stands among the numbers.
        let (kind, bytes, communicator) = match call.function {
            52 => (CollectiveKind::Barrier, 0, at(0)),
            53 => (CollectiveKind::Broadcast { root: root(at(2)) }, size(at(0), at(1)), at(3)),
            54..=57 => {
                let (own, communicator, rooted) = match call.function {
                    54 | 56 => (size(at(1), at(2)), at(4), at(3)),
                    55 => (size(at(2), at(3)), at(5), at(4)),
                    _ => (size(at(3), at(4)), at(6), at(5)),
                };
                let Some((name, ranks)) = self.members(communicator).cloned() else { return };
                let parts: Vec<u64> = if call.function == 57 && !array(0).is_empty() {
                    let one = size(1, at(2));
                    array(0)
                        .iter()
                        .map(|&count| u64::try_from(count).unwrap_or(0).saturating_mul(one))
                        .collect()
                } else {
                    vec![own]
                };
                let root = self.peer(communicator, rooted).unwrap_or(0);
                script.rooted(&name, &ranks, root, &parts, matches!(call.function, 54 | 55), coverage);
                return;
            }
            58 => (CollectiveKind::AllGather, size(at(0), at(1)), at(4)),
            59 => {
                let whole = array(0).iter().fold(0i64, |sum, count| sum.saturating_add(*count));
                (CollectiveKind::AllGather, size(whole, at(3)), at(4))
            }
            60 => (CollectiveKind::AllToAll, size(at(0), at(1)), at(4)),
            61 => {
                let whole = array(0).iter().fold(0i64, |sum, count| sum.saturating_add(*count));
                (CollectiveKind::AllToAll, size(whole, at(1)), at(3))
            }
            62 => (CollectiveKind::Reduce { root: root(at(3)) }, size(at(0), at(1)), at(4)),
            66 => {
                let whole = array(0).iter().fold(0i64, |sum, count| sum.saturating_add(*count));
                (CollectiveKind::ReduceScatter, size(whole, at(1)), at(3))
            }
            // An all-reduce; a scan passes as much as an all-reduce, and takes about as long.
            _ => (CollectiveKind::AllReduce, size(at(0), at(1)), at(3)),
        };
        let Some((name, ranks)) = self.members(communicator).cloned() else {
            coverage.count(
                "collective",
                Verdict::Dropped,
                "its communicator is not known: its time stays",
                bytes,
                length,
            );
            script.compute(length, coverage);
            return;
        };
        let members = ranks.len() as u64;
        let bytes = if matches!(call.function, 58 | 60) { bytes.saturating_mul(members) } else { bytes };
        let splits = (call.function == 61).then(|| {
            let one = self.size(at(1), coverage);
            array(0).iter().map(|&count| u64::try_from(count).unwrap_or(0).saturating_mul(one)).collect()
        });
        script.collective(draft, &name, &ranks, Said { kind, bytes, splits, nanoseconds: length }, coverage);
    }
}
