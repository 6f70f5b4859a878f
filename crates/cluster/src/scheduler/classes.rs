//! Waiting jobs by how many GPUs they need and where, to find the first in line that fits without a look at the others.
//!
//! A class holds the jobs of one kind in order of submission under a tournament tree of their holding times, so "the
//! first after position p that holds its GPUs no longer than d" costs a walk down the tree. Kinds are few; of the
//! classes that fit the first candidate in line wins.

use rustc_hash::FxHashMap;

use crate::placement::Locality;
use crate::view::{JobId, View};

/// What tells whether a job fits: jobs of one kind all do or none does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    /// GPUs that it needs.
    pub gpus: u32,
    /// How close together.
    pub locality: Locality,
    /// Its placement.
    pub placement: u8,
}

impl Kind {
    /// Of `job`.
    pub(super) fn of(job: JobId, cluster: &dyn View) -> Self {
        let job = cluster.job(job);
        Self { gpus: job.gpus, locality: job.locality, placement: job.placement }
    }
}

const GONE: u64 = u64::MAX;

/// Jobs of one kind.
#[derive(Clone, Debug, Default)]
struct Class {
    /// In order; those that left stay until the next rebuild.
    jobs: Vec<JobId>,
    /// Root at 1, leaves from `width` on: the least holding time below.
    least: Vec<u64>,
    width: usize,
    live: usize,
}

impl Class {
    fn insert(&mut self, job: JobId, hold: u64) {
        let place = self.jobs.partition_point(|&known| known < job);
        let known = self.jobs.get(place) == Some(&job);
        // A place of its own is left by a job that comes back before it was forgotten.
        if known || (place == self.jobs.len() && place < self.width) {
            if !known {
                self.jobs.push(job);
            }
            self.set(place, hold);
        } else {
            self.rebuild(Some((job, hold)));
        }
        self.live += 1;
    }

    fn remove(&mut self, job: JobId) {
        let place = self.jobs.binary_search(&job).expect("the job waits in its class");
        self.set(place, GONE);
        self.live -= 1;
    }

    fn set(&mut self, place: usize, hold: u64) {
        let mut at = self.width + place;
        self.least[at] = hold;
        while at > 1 {
            at /= 2;
            let least = self.least[2 * at].min(self.least[2 * at + 1]);
            if self.least[at] == least {
                return;
            }
            self.least[at] = least;
        }
    }

    /// Forgets the jobs that left, and lets in one more, wherever it belongs.
    fn rebuild(&mut self, more: Option<(JobId, u64)>) {
        let leaves = &self.least[self.width.min(self.least.len())..];
        let mut live: Vec<(JobId, u64)> =
            self.jobs.iter().copied().zip(leaves.iter().copied()).filter(|&(_, hold)| hold != GONE).collect();
        if let Some(entry) = more {
            live.insert(live.partition_point(|&(job, _)| job < entry.0), entry);
        }
        self.width = (2 * live.len()).next_power_of_two().max(16);
        self.least = vec![GONE; 2 * self.width];
        self.jobs.clear();
        for (place, (job, hold)) in live.into_iter().enumerate() {
            self.jobs.push(job);
            self.least[self.width + place] = hold;
        }
        for at in (1..self.width).rev() {
            self.least[at] = self.least[2 * at].min(self.least[2 * at + 1]);
        }
    }

    /// The first job from `from` on that holds its GPUs for at most `hold`.
    fn first(&self, from: JobId, hold: u64) -> Option<JobId> {
        if self.live == 0 || self.least[1] > hold.min(GONE - 1) {
            return None;
        }
        let hold = hold.min(GONE - 1);
        let place = self.jobs.partition_point(|&job| job < from);
        if place >= self.jobs.len() {
            return None;
        }
        let mut at = self.width + place;
        // Up until a subtree to the right has one, then down.
        while self.least[at] > hold {
            while at & 1 == 1 {
                at /= 2;
                if at <= 1 {
                    return None;
                }
            }
            at += 1;
        }
        while at < self.width {
            at *= 2;
            if self.least[at] > hold {
                at += 1;
            }
        }
        Some(self.jobs[at - self.width])
    }
}

/// All waiting jobs by kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    /// Kinds by their GPUs, each with the index of its class.
    kinds: Vec<(Kind, usize)>,
    by_kind: FxHashMap<Kind, usize>,
    all: Vec<Class>,
}

impl Classes {
    /// Nothing waits.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// `job` waits; it would hold its GPUs for `hold` nanoseconds.
    pub(super) fn insert(&mut self, job: JobId, kind: Kind, hold: u64) {
        let class = match self.by_kind.get(&kind) {
            Some(&class) => class,
            None => {
                let class = self.all.len();
                self.all.push(Class::default());
                self.by_kind.insert(kind, class);
                let place = self.kinds.partition_point(|&(known, _)| known.gpus < kind.gpus);
                self.kinds.insert(place, (kind, class));
                class
            }
        };
        self.all[class].insert(job, hold);
    }

    /// `job` waits no longer.
    pub(super) fn remove(&mut self, job: JobId, kind: Kind) {
        self.all[self.by_kind[&kind]].remove(job);
    }

    /// The first job from `from` on that needs at most `free` GPUs and holds them no longer than `most` says of its kind: for
    /// ever at `u64::MAX`, not at all at `None`.
    pub(super) fn first(&self, from: JobId, free: u32, most: impl Fn(Kind) -> Option<u64>) -> Option<JobId> {
        let fitting = self.kinds.iter().take_while(|&&(kind, _)| kind.gpus <= free);
        fitting.filter_map(|&(kind, class)| self.all[class].first(from, most(kind)?)).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use windtunnel_kernel::RandomStream;

    use super::*;

    fn kind(gpus: u32) -> Kind {
        Kind { gpus, locality: Locality::Anywhere, placement: 0 }
    }

    #[test]
    fn the_first_in_line_is_what_a_scan_finds() {
        let mut stream = RandomStream::new(1, "classes", 0);
        let (mut classes, mut plain) = (Classes::new(), BTreeMap::<JobId, (u32, u64)>::new());
        let (mut next, mut gone) = (0, Vec::new());
        for _ in 0..20_000 {
            let roll = stream.below(10);
            if roll < 5 {
                // Some come back at their old place.
                let job = match gone.pop() {
                    Some(job) if roll < 1 => job,
                    _ => {
                        next += 1;
                        JobId(next)
                    }
                };
                let (gpus, hold) = (1 << stream.below(5), stream.below(1_000));
                if let std::collections::btree_map::Entry::Vacant(entry) = plain.entry(job) {
                    entry.insert((gpus, hold));
                    classes.insert(job, kind(gpus), hold);
                }
            } else if let Some((&job, &(gpus, _))) =
                plain.range(JobId(stream.below(u64::from(next) + 1) as u32)..).next()
            {
                plain.remove(&job);
                classes.remove(job, kind(gpus));
                gone.push(job);
            }
            let from = JobId(stream.below(u64::from(next) + 1) as u32);
            let (free, hold, extra) = (stream.below(20) as u32, stream.below(200), stream.below(6) as u32);
            let slow = plain
                .range(from..)
                .find(|(_, (gpus, holds))| *gpus <= free && (*holds <= hold || *gpus <= extra))
                .map(|(&job, _)| job);
            let most = |kind: Kind| Some(if kind.gpus <= extra { GONE } else { hold });
            assert_eq!(classes.first(from, free, most), slow);
            // A kind that is closed is passed over, whatever its jobs hold.
            let open = plain.range(from..).find(|(_, (gpus, _))| *gpus <= free && *gpus != 4);
            let found = classes.first(from, free, |kind| (kind.gpus != 4).then_some(GONE));
            assert_eq!(found, open.map(|(&job, _)| job));
        }
    }
}
