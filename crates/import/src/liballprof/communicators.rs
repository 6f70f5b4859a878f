//! Members of communicators: ranks in a trace are those of their communicator, and its id is the process's own.
//!
//! Members are those that a recorded `MPI_Comm_split` gave it, or the ranks that name its id where each place in it is named once. Where
//! neither says it they are not known. A communicator as large as the world is taken for it.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use super::line::{Id, LineOf};

/// `MPI_COMM_WORLD` of MPICH, whose -1 is nobody and -2 any source; elsewhere it is the other way round.
const MPICH_WORLD: u64 = 0x4400_0000;

/// A split: colour, key, and what the trace has for the new communicator.
#[derive(Clone, Copy)]
struct Split {
    parent: Id,
    color: i64,
    key: i64,
    new: Option<u64>,
}

/// What all ranks say of their communicators.
#[derive(Default)]
pub(super) struct Communicators {
    pub(super) world: u32,
    pub(super) mpich: bool,
    /// (place, rank) by (id, size).
    named: BTreeMap<(u64, u32), BTreeSet<(u32, u32)>>,
    /// By rank.
    splits: BTreeMap<u32, Vec<Split>>,
    found: FxHashMap<(u32, Id), Option<Vec<u32>>>,
}

impl Communicators {
    pub(super) fn of(world: u32) -> Self {
        Self { world, ..Self::default() }
    }

    pub(super) fn see(&mut self, rank: u32, line: &LineOf<'_>) {
        let Some(place) = line.place_of_communicator() else { return };
        let Ok(id) = line.communicator(place) else { return };
        self.mpich |= id.handle == MPICH_WORLD;
        self.named.entry((id.handle, id.size)).or_default().insert((id.rank, rank));
        if line.fields[0] == "MPI_Comm_split"
            && let (Ok(color), Ok(key)) = (line.number(3, "a colour"), line.number(4, "a key"))
        {
            let new = line.number(5, "a communicator").ok().and_then(|new| u64::try_from(new).ok());
            self.splits.entry(rank).or_default().push(Split { parent: id, color, key, new });
        }
    }

    /// Members of a communicator that `rank` names, if they are known.
    pub(super) fn members(&mut self, rank: u32, id: Id) -> Option<Vec<u32>> {
        if let Some(found) = self.found.get(&(rank, id)) {
            return found.clone();
        }
        let found = self.find(rank, id, 0);
        self.found.insert((rank, id), found.clone());
        found
    }

    fn find(&self, rank: u32, id: Id, depth: u32) -> Option<Vec<u32>> {
        if id.size == 1 {
            return Some(vec![rank]);
        }
        let fits = |members: &Vec<u32>| {
            members.len() == id.size as usize && members.get(id.rank as usize) == Some(&rank)
        };
        let made = |named: bool| -> Vec<Vec<u32>> {
            let splits = self.splits.get(&rank).map_or(&[][..], Vec::as_slice);
            let own = splits.iter().enumerate().filter(|(_, split)| !named || split.new == Some(id.handle));
            own.filter_map(|(at, _)| self.split(rank, at, depth)).filter(|members| fits(members)).collect()
        };
        if depth < 8
            && id.size != self.world
            && let Some(members) = made(true).pop()
        {
            return Some(members);
        }
        if let Some(named) = self.named.get(&(id.handle, id.size)) {
            let ranks: BTreeSet<u32> = named.iter().map(|&(_, rank)| rank).collect();
            let places = named.iter().zip(0..).all(|(&(place, _), at)| place == at);
            if places && named.len() == id.size as usize && ranks.len() == named.len() {
                return Some(named.iter().map(|&(_, rank)| rank).collect());
            }
        }
        if id.size == self.world {
            return Some((0..self.world).collect());
        }
        let all = if depth < 8 { made(false) } else { Vec::new() };
        all.first().filter(|first| all.iter().all(|other| other == *first)).cloned()
    }

    /// The members of the part of `rank` in its split number `at`.
    fn split(&self, rank: u32, at: usize, depth: u32) -> Option<Vec<u32>> {
        let split = self.splits.get(&rank)?.get(at)?;
        let parent = self.find(rank, split.parent, depth + 1)?;
        // Of the world ids may differ by rank; of its parts the members have one id if any.
        let same = |other: &Split| {
            other.parent.size == split.parent.size
                && (split.parent.size == self.world || other.parent.handle == split.parent.handle)
        };
        let nth = self.splits[&rank][..at].iter().filter(|other| same(other)).count();
        let mut members: Vec<(i64, usize, u32)> = Vec::new();
        for (place, &member) in parent.iter().enumerate() {
            let theirs = self.splits.get(&member)?.iter().filter(|other| same(other)).nth(nth)?;
            if theirs.color == split.color {
                members.push((theirs.key, place, member));
            }
        }
        members.sort_unstable();
        Some(members.into_iter().map(|(_, _, member)| member).collect())
    }
}

/// Of tests whose outcome the trace does not have (it has the address of the flag), those that must have found their requests done:
/// the last before the request is begun anew, if no wait came between.
#[derive(Default)]
pub(super) struct Tests {
    open: FxHashMap<u64, u64>,
    pub(super) done: FxHashSet<u64>,
}

impl Tests {
    pub(super) fn see(&mut self, line: &LineOf<'_>) {
        let Some(call) = line.fields[0].strip_prefix("MPI_") else { return };
        let request = |at: usize| line.fields.get(at)?.split(',').next()?.parse::<u64>().ok();
        let begun = match call {
            "Test" | "Testall" | "Testany" | "Testsome" => {
                if let Some(request) = request(if call == "Test" { 2 } else { 3 }) {
                    self.open.insert(request, line.line);
                }
                return;
            }
            "Wait" | "Waitall" | "Waitany" | "Waitsome" => {
                if let Some(request) = request(if call == "Wait" { 2 } else { 3 }) {
                    self.open.remove(&request);
                }
                return;
            }
            "Start" => request(2),
            "Startall" => request(3),
            _ if call.starts_with('I') => line.fields.len().checked_sub(2).and_then(request),
            _ => None,
        };
        self.done.extend(begun.and_then(|request| self.open.remove(&request)));
    }

    pub(super) fn end(&mut self) {
        self.done.extend(self.open.drain().map(|(_, line)| line));
    }
}
