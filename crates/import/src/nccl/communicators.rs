//! Whose rank is whose: processes are the same over communicators by host and process number.
//!
//! Ranks of a communicator are not ranks of the job. Where one communicator has all processes, its numbers are taken for them. Where
//! none has (tensor parallelism alone is left of a job whose other messages were small), processes are numbered by host and process,
//! if of each communicator all members are there; else the lines may be of several jobs, and are refused.

use std::collections::{BTreeMap, BTreeSet};

use super::records::{Process, Record, Records};
use crate::coverage::{Amount, Coverage, Treatment};
use crate::error::ImportError;

/// Why a record has no place among the ranks.
pub(super) const WHY: &str =
    "not all members of its communicator are known as ranks: whose rank is whose is not recorded";

/// A communicator as its records have it: size, and the process of each rank.
struct Communicator<'a> {
    name: u32,
    size: u32,
    processes: BTreeMap<u32, Option<&'a Process>>,
}

/// The ranks of a job.
pub(super) struct Job {
    pub(super) world: u32,
    /// By communicator: its place among them, and its members as ranks.
    communicators: BTreeMap<u32, (usize, Vec<u32>)>,
}

impl Job {
    /// Where a record's communicator stands, and its members.
    pub(super) fn members(&self, record: &Record) -> Option<(usize, &[u32])> {
        self.communicators.get(&record.communicator).map(|(place, members)| (*place, &members[..]))
    }

    /// The rank that a record is of.
    pub(super) fn rank(&self, record: &Record) -> Option<u32> {
        self.members(record)?.1.get(record.rank as usize).copied()
    }

    pub(super) fn of(records: &Records, source: &str, coverage: &mut Coverage) -> Result<Self, ImportError> {
        let known = communicators(records);
        let largest = known.values().map(|communicator| communicator.size).max().unwrap_or(0);
        let largest = crate::assemble::believable(largest, source)?;
        let processes: BTreeSet<&Process> = known
            .values()
            .flat_map(|communicator| communicator.processes.values().copied().flatten())
            .collect();
        let biggest: Vec<&str> =
            known.iter().filter(|(_, own)| own.size == largest).map(|(name, _)| *name).collect();
        // A communicator whose ranks are those of the job: one that has all processes, or the only one of its size.
        let whole =
            known.iter().find(|(_, own)| own.size == largest && own.is_whole() && own.has(&processes));
        let whole = whole.map(|(name, _)| *name);
        let only = || (biggest.len() == 1 && processes.len() <= largest as usize).then(|| biggest[0]);
        if let Some(world) = whole.or_else(only) {
            // A process of several GPUs has several ranks: which of them another communicator means is not recorded.
            let own = &known[world].processes;
            let once = |of: &&Process| own.values().flatten().filter(|process| *process == of).count() == 1;
            let ranks: BTreeMap<&Process, u32> = own
                .iter()
                .filter_map(|(&rank, process)| Some(((*process)?, rank)))
                .filter(|(process, _)| once(process))
                .collect();
            return Ok(Self::placed(&known, largest, Some(world), &ranks));
        }
        let complete = !processes.is_empty() && known.values().all(Communicator::is_whole);
        if !complete {
            let names = biggest.join(", ");
            let found = if biggest.len() == 1 {
                format!(
                    "{} processes, and {largest} ranks in the largest communicator, {names}",
                    processes.len()
                )
            } else {
                format!("{} communicators of {largest} ranks: {names}", biggest.len())
            };
            let expected = "one communicator of all ranks, whose numbers are those of the job, or all members of every one, with host and process";
            return Err(ImportError::new(source, expected, found)
                .hint("these lines are of several jobs, or files of some processes are missing: give all files of one job"));
        }
        let mut order: Vec<&Process> = processes.into_iter().collect();
        order.sort_by_key(|process| (crate::input::natural(&process.0), process.1));
        let why = "no communicator has all: numbered by host and process";
        let amount = Amount { operations: order.len() as u64, ..Amount::default() };
        coverage.add("rank", Treatment::Guessed, why, amount);
        let world = crate::assemble::believable(u32::try_from(order.len()).unwrap_or(u32::MAX), source)?;
        let ranks = order.into_iter().zip(0..).collect();
        Ok(Self::placed(&known, world, None, &ranks))
    }

    /// The communicators of whose members all are known; that of the world in any case.
    fn placed(known: &Known<'_>, world: u32, whole: Option<&str>, ranks: &BTreeMap<&Process, u32>) -> Self {
        let mut communicators = BTreeMap::new();
        // That of the world first, so that its stream is the same with others and without.
        let others = known.keys().copied().filter(|name| Some(*name) != whole);
        for name in whole.into_iter().chain(others) {
            let own = &known[name];
            let members: Option<Vec<u32>> = if Some(name) == whole {
                Some((0..world).collect())
            } else if own.is_whole() {
                own.processes.values().map(|process| ranks.get(&(*process)?).copied()).collect()
            } else {
                None
            };
            if let Some(members) = members {
                communicators.insert(own.name, (communicators.len(), members));
            }
        }
        Self { world, communicators }
    }
}

impl<'a> Communicator<'a> {
    /// Whether each rank's process is known, and each is another.
    fn is_whole(&self) -> bool {
        let mut seen: BTreeSet<&'a Process> = BTreeSet::new();
        self.processes.len() == self.size as usize
            && self.processes.values().all(|process| process.is_some_and(|process| seen.insert(process)))
    }

    fn has(&self, processes: &BTreeSet<&Process>) -> bool {
        self.processes.values().flatten().count() == processes.len()
    }
}

/// All communicators by name.
type Known<'a> = BTreeMap<&'a str, Communicator<'a>>;

/// A rank that several processes claim has none: its process is not known.
fn communicators(records: &Records) -> Known<'_> {
    let mut known = Known::new();
    for record in &records.list {
        let own = known.entry(records.text(record.communicator)).or_insert_with(|| Communicator {
            name: record.communicator,
            size: record.ranks,
            processes: BTreeMap::new(),
        });
        own.size = own.size.max(record.ranks);
        let process = records.process_of(record);
        let first = own.processes.entry(record.rank).or_insert(process);
        if *first != process {
            *first = None;
        }
    }
    known
}
