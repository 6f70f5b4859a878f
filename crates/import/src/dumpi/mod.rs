//! DUMPI traces (SST, magic `ff aa dd DUMPI`): binary, big-endian, one file a rank.
//!
//! A body of calls: function (16 bits), mask (8), thread (16, mask bit 6), times of CPU and wall (bits 2 and 3: seconds in 16
//! and nanoseconds in 32 bits, start and end), performance counters (bit 7), arguments. No length is stored, so a call whose
//! arguments are not known here ends the reading. The last 64-bit numbers of the file are offsets of its sections. Functions
//! have the order of MPI-1's index; sizes of types: the predefined ones by number, others by the calls that made them.

mod calls;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use windtunnel_kernel::registry::Entry;
use windtunnel_workload::collectives::CollectiveKind;

use crate::coverage::{Coverage, Treatment};
use crate::draft::Draft;
use crate::error::ImportError;
use crate::input::Input;
use crate::mpi::{Envelope, Said, Script, Tags};
use crate::{Options, Reader};
use calls::{Call, MAGIC, each};

/// DUMPI traces.
pub struct Dumpi;

const WORLD: u16 = 2;
const SELF: u16 = 3;

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
                coverage.count("file beside the trace", Treatment::Mapped, "about the run, not of it", 0, 0);
            }
        }
        let mut draft = Draft { source: inputs[0].name.clone(), ..Draft::default() };
        if files.is_empty() {
            return Err(ImportError::new(
                &draft.source,
                "at least one DUMPI trace (magic `ff aa dd DUMPI`)",
                "none",
            ));
        }
        let mut splits = Splits::default();
        let mut ranks = Vec::with_capacity(files.len());
        let mut world = files.len() as u32;
        for (index, input) in (0u32..).zip(&files) {
            let bytes = input.whole()?;
            // The program has asked who it is among how many; else the order of the files says it.
            let (mut rank, mut split) = (index, Vec::new());
            each(&input.name, &bytes, |call| match (call.function, &call.numbers[..]) {
                (81, &[communicator, size]) if communicator == i64::from(WORLD) => {
                    world = world.max(u32::try_from(size).unwrap_or(0));
                }
                (82, &[communicator, own]) if communicator == i64::from(WORLD) => {
                    rank = u32::try_from(own).unwrap_or(index);
                }
                (86, &[parent, color, key, ..]) => split.push((parent, color, key)),
                _ => {}
            })?;
            for (parent, color, key) in split {
                splits.0.entry((rank, parent)).or_default().push((color, key));
            }
            if ranks.contains(&rank) {
                return Err(ImportError::new(&input.name, "one trace a rank", format!("rank {rank} again"))
                    .hint("where the files are of several programs, `--only TEXT` takes those whose name has TEXT"));
            }
            ranks.push(rank);
        }
        let world = crate::assemble::believable(world, &draft.source)?;
        draft.world = Some(world);
        let mut tags = Tags::default();
        for (&rank, input) in ranks.iter().zip(&files) {
            let bytes = input.whole()?;
            let mut state = State {
                rank,
                communicators: BTreeMap::new(),
                groups: BTreeMap::new(),
                types: BTreeMap::new(),
                persistent: FxHashMap::default(),
                grids: BTreeMap::new(),
                split: BTreeMap::new(),
            };
            state.communicators.insert(WORLD, ("MPI_COMM_WORLD".to_owned(), (0..world).collect()));
            state.communicators.insert(SELF, ("MPI_COMM_SELF".to_owned(), vec![rank]));
            let mut script = Script::new(rank, &mut tags);
            each(&input.name, &bytes, |call| {
                state.replay(call, &splits, &mut script, &mut draft, coverage);
            })?;
            let program = script.finish(coverage);
            draft.ranks.insert(rank, program.of_file(&input.name));
        }
        Ok(draft)
    }
}

/// Calls of `MPI_Comm_split`: (rank, which, parent) with colour and key.
#[derive(Default)]
struct Splits(BTreeMap<(u32, i64), Vec<(i64, i64)>>);

impl Splits {
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
    /// Extents of communicators that are grids.
    grids: BTreeMap<u16, Vec<usize>>,
    /// How often each communicator was split.
    split: BTreeMap<i64, usize>,
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
                        Treatment::Guessed,
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

    /// The same of a source: -1 is any, and below it nobody (MPI_PROC_NULL), for which the rank itself stands.
    fn source(&self, communicator: i64, rank: i64) -> Option<u32> {
        if rank < -1 { Some(self.rank) } else { self.peer(communicator, rank) }
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
                let peer = self.source(at(4), at(2));
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
                    let peer = if sends {
                        self.peer(i64::from(communicator), peer)
                    } else {
                        self.source(i64::from(communicator), peer)
                    };
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
                    peer: self.source(at(8), at(6)),
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
            36 | 37 => {
                let size =
                    count(at(0)).saturating_mul(count(at(1))).saturating_mul(self.size(at(3), coverage));
                self.types.insert(at(4) as u16, size);
            }
            38..=40 => {
                // Lengths of blocks, of one type or of one each.
                let lengths = call.arrays.first().cloned().unwrap_or_default();
                let types = call.arrays.get(2).cloned().unwrap_or_else(|| vec![at(1); lengths.len()]);
                let parts = lengths.iter().zip(&types);
                let size = parts.fold(0u64, |sum, (&length, &of)| {
                    sum.saturating_add(count(length).saturating_mul(self.size(of, coverage)))
                });
                self.types.insert(n.last().copied().unwrap_or(0) as u16, size);
            }
            99 => {
                let dims: Vec<usize> =
                    call.arrays.first().into_iter().flatten().map(|&dim| dim.max(0) as usize).collect();
                let size =
                    dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim)).unwrap_or(0);
                let (name, members) = self.members(at(0)).cloned().unwrap_or_default();
                if size > 0 && size <= members.len() {
                    let new = n.last().copied().unwrap_or(0) as u16;
                    self.communicators.insert(new, (format!("{name} grid"), members[..size].to_vec()));
                    self.grids.insert(new, dims);
                }
            }
            111 => {
                let keep: Vec<bool> =
                    call.arrays.first().into_iter().flatten().map(|&kept| kept != 0).collect();
                if let (Some(dims), Some((name, members))) =
                    (self.grids.get(&(at(1) as u16)), self.members(at(1)).cloned())
                {
                    let part = subgrid(dims, &keep, &members, self.rank);
                    let name = format!("{name} {}", crate::assemble::ranks_text(&part));
                    self.communicators.insert(n.last().copied().unwrap_or(0) as u16, (name, part));
                }
            }
            34 => {
                let (name, _) = self.members(at(6)).cloned().unwrap_or_default();
                let bytes = count(at(0)).saturating_mul(self.size(at(1), coverage));
                let to =
                    Envelope { communicator: &name, peer: self.peer(at(6), at(2)), tag: Some(at(3)), bytes };
                let tag = Some(at(5)).filter(|tag| *tag >= 0);
                let from = Envelope { communicator: &name, peer: self.source(at(6), at(4)), tag, bytes };
                script.send(&to, Some(i64::MIN), coverage);
                script.receive(&from, Some(i64::MIN + 1), coverage);
                script.wait(&[i64::MIN, i64::MIN + 1], coverage);
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
                let nth = self.split.entry(at(0)).or_insert(0);
                let members = splits.members(self.rank, at(0), *nth, &parent);
                *nth += 1;
                let name = format!("split of {}", crate::assemble::ranks_text(&members));
                self.communicators.insert(at(3) as u16, (name, members));
            }
            _ => {
                coverage.count(
                    "other calls",
                    Treatment::Mapped,
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
        let root = |rank: i64| u32::try_from(rank).unwrap_or(u32::MAX);
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
                Treatment::Dropped,
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
        script.collective(draft, &name, &ranks, Said { splits, ..Said::new(kind, bytes, length) }, coverage);
    }
}

/// The members of a grid (row-major) that share with `rank` the places in all directions that are not kept.
fn subgrid(dims: &[usize], keep: &[bool], members: &[u32], rank: u32) -> Vec<u32> {
    let place = |mut at: usize| {
        let mut places = vec![0; dims.len()];
        for (place, &dim) in places.iter_mut().zip(dims).rev() {
            (*place, at) = (at % dim.max(1), at / dim.max(1));
        }
        places
    };
    let Some(own) = members.iter().position(|&member| member == rank).map(place) else { return vec![rank] };
    let alike = |other: &Vec<usize>| {
        own.iter()
            .zip(other)
            .zip(keep.iter().chain(std::iter::repeat(&false)))
            .all(|((own, other), kept)| *kept || own == other)
    };
    let all = members.iter().enumerate().filter(|&(at, _)| alike(&place(at)));
    all.map(|(_, &member)| member).collect()
}

#[cfg(test)]
mod tests {
    use super::subgrid;

    #[test]
    fn rows_and_columns_of_a_grid() {
        let members: Vec<u32> = (10..16).collect();
        assert_eq!(subgrid(&[2, 3], &[false, true], &members, 14), [13, 14, 15]);
        assert_eq!(subgrid(&[2, 3], &[true, false], &members, 14), [11, 14]);
        assert_eq!(subgrid(&[2, 3], &[true, true], &members, 14), members);
        assert_eq!(subgrid(&[2, 3], &[], &members, 12), [12]);
    }
}
