//! A global scheduler in the manner of MAST (Choudhury et al., "MAST: Global scheduling of ML training across
//! geo-distributed datacenters at hyperscale", OSDI 2024).
//!
//! *Temporal and spatial decisions are apart.* One queue for all regions says who is next: by priority, then by
//! submission; a job that has to wait does not block the others (up to [`REACH`] are looked at), but the first one that
//! waits has a reservation in the region that will have room for it first, and later jobs enter that region only if
//! they are gone by then or need what it leaves over. Where a job goes, the regions bid for: the tightest one with legal
//! GPUs wins.
//!
//! *Low priorities make room.* If no region has legal GPUs, the one that has to stop the fewest GPUs of lower priorities
//! gives way, be it for want of GPUs or because the free ones are stranded. Stopped jobs are next in line for what is
//! free elsewhere: they move.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

use rustc_hash::FxHashMap;

use super::policy::{Absence, BuiltIn, Decision, Scheduler};
use super::priority::Victims;
use super::profile::Profile;
use crate::view::{JobId, Running, View};

pub(super) const MAST: BuiltIn = BuiltIn {
    knows_regions: true,
    ..BuiltIn::new(
        "mast",
        "regions share one queue by priority; low priorities are delayed, stopped and moved to make room",
        |_| Box::new(Mast::new()),
    )
};

/// Waiting jobs that a pass looks at.
pub(super) const REACH: u32 = 128;

type Turn = (Reverse<i32>, JobId);

/// What is known of a region.
#[derive(Clone, Debug)]
struct Book {
    profile: Profile,
    running: Victims,
    until: FxHashMap<JobId, u64>,
}

/// A pass through the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    now: u64,
    after: Option<Turn>,
    looked: u32,
    /// The first job that has to wait, and the region that is kept for it.
    reserved: Option<(JobId, usize)>,
}

/// The MAST-like scheduler.
#[derive(Clone, Debug, Default)]
pub struct Mast {
    waiting: BTreeSet<Turn>,
    books: Vec<Book>,
    pass: Pass,
    agenda: VecDeque<Decision>,
}

impl Mast {
    /// Nothing waits.
    pub fn new() -> Self {
        Self::default()
    }

    fn turn(job: JobId, cluster: &dyn View) -> Turn {
        (Reverse(cluster.job(job).priority), job)
    }

    fn open_books(&mut self, cluster: &dyn View) {
        if self.books.is_empty() {
            let book = |total| Book {
                profile: Profile::new(total),
                running: Victims::default(),
                until: FxHashMap::default(),
            };
            self.books = cluster.regions().iter().map(|free| book(free.total())).collect();
        }
    }

    /// When the region kept for `job` has room for it, and what it leaves over then.
    fn shadow(&self, job: JobId, region: usize, cluster: &dyn View) -> (u64, i64) {
        let (now, gpus) = (cluster.now(), i64::from(cluster.job(job).gpus));
        let profile = &self.books[region].profile;
        // With enough free but stranded, nothing can be said until something ends.
        let wanted = gpus.max(profile.at(now) + 1);
        let from = profile.first_with(now, wanted).unwrap_or(now);
        (from, profile.at(from) - gpus)
    }

    /// The tightest region with legal GPUs that `job` may enter now.
    fn bid(&self, job: JobId, cluster: &dyn View) -> Option<Decision> {
        let gpus = cluster.job(job).gpus;
        let mut bids: Vec<(u32, u32)> = (0u32..)
            .zip(cluster.regions())
            .filter(|(_, free)| free.count() >= gpus)
            .map(|(region, free)| (free.count() - gpus, region))
            .collect();
        bids.sort_unstable();
        bids.into_iter().find_map(|(_, region)| {
            if let Some((kept_for, kept)) = self.pass.reserved
                && kept == region as usize
            {
                let (shadow, extra) = self.shadow(kept_for, kept, cluster);
                if cluster.now() + cluster.expected_hold(job) > shadow && i64::from(gpus) > extra {
                    return None;
                }
            }
            let placement = cluster.place(job, region)?;
            Some(Decision::StartOn { job, placement, region })
        })
    }

    /// Stops that give `job` legal GPUs in a region, the fewest GPUs over all regions, and then its start.
    fn make_room(&mut self, job: JobId, cluster: &dyn View) -> bool {
        let known = cluster.job(job);
        let mut best: Option<(u32, Vec<Decision>)> = None;
        for (region, free) in cluster.regions().iter().enumerate() {
            let below = self.books[region].running.gpus_below(known.priority);
            if below == 0 || u64::from(free.count()) + below < u64::from(known.gpus) {
                continue;
            }
            let mut after = free.clone();
            let (mut stopped, mut plan) = (0, Vec::new());
            for victim in self.books[region].running.all_below(known.priority) {
                // One that has ended already gives its GPUs back by itself.
                let Some(running) = cluster.running_job(victim) else { continue };
                after.give(&cluster.given_back_by(running));
                stopped += running.placement.len() as u32;
                plan.push(Decision::Preempt { job: victim });
                if best.as_ref().is_some_and(|(fewest, _)| stopped >= *fewest) {
                    break;
                }
                if after.count() >= known.gpus
                    && let Some(placement) = cluster.place_on(job, &after)
                {
                    plan.push(Decision::StartOn { job, placement, region: region as u32 });
                    best = Some((stopped, plan));
                    break;
                }
            }
        }
        let found = best.is_some();
        self.agenda.extend(best.into_iter().flat_map(|(_, plan)| plan));
        found
    }
}

impl Scheduler for Mast {
    fn name(&self) -> &'static str {
        MAST.entry.name
    }

    fn queued(&mut self, job: JobId, cluster: &dyn View) {
        self.open_books(cluster);
        self.waiting.insert(Self::turn(job, cluster));
    }

    fn started(&mut self, job: JobId, cluster: &dyn View) {
        self.waiting.remove(&Self::turn(job, cluster));
        let running = cluster.running_job(job).expect("it has just started");
        let book = &mut self.books[running.region as usize];
        let release = cluster.expected_release(job);
        book.profile.advance(cluster.now());
        book.profile.add(cluster.now(), release, -(running.placement.len() as i64));
        book.until.insert(job, release);
        book.running.insert(job, cluster);
    }

    fn released(&mut self, job: JobId, running: &Running, cluster: &dyn View) {
        let book = &mut self.books[running.region as usize];
        book.running.remove(job, cluster);
        let until = book.until.remove(&job).expect("it ran in the region");
        if until > cluster.now() {
            book.profile.add(cluster.now(), until, running.placement.len() as i64);
        }
        if self.agenda.is_empty() {
            self.pass = Pass::default();
        }
    }

    fn lost(&mut self, absence: &Absence, cluster: &dyn View) {
        self.open_books(cluster);
        let profile = &mut self.books[absence.region as usize].profile;
        profile.add(absence.from, absence.until, -(absence.gpus.len() as i64));
    }

    fn regained(&mut self, absence: &Absence, _: &dyn View) {
        if absence.until > absence.from {
            let profile = &mut self.books[absence.region as usize].profile;
            profile.add(absence.from, absence.until, absence.gpus.len() as i64);
        }
        self.pass = Pass::default();
    }

    fn decide(&mut self, cluster: &dyn View) -> Option<Decision> {
        if let Some(decision) = self.agenda.pop_front() {
            if self.agenda.is_empty() {
                self.pass = Pass::default();
            }
            return Some(decision);
        }
        if self.pass.now != cluster.now() {
            self.pass = Pass { now: cluster.now(), ..Pass::default() };
        }
        while self.pass.looked < REACH {
            let from = self.pass.after.map_or(Bound::Unbounded, Bound::Excluded);
            let &turn = self.waiting.range((from, Bound::Unbounded)).next()?;
            let job = turn.1;
            if let Some(start) = self.bid(job, cluster) {
                return Some(start);
            }
            if self.make_room(job, cluster) {
                return self.agenda.pop_front();
            }
            if self.pass.reserved.is_none() {
                let gpus = cluster.job(job).gpus;
                let able = (0..self.books.len()).filter(|&region| cluster.regions()[region].total() >= gpus);
                let region = able.min_by_key(|&region| (self.shadow(job, region, cluster).0, region));
                self.pass.reserved = region.map(|region| (job, region));
            }
            if cluster.free() == 0 && turn.0 >= self.lowest() {
                return None;
            }
            self.pass.after = Some(turn);
            self.pass.looked += 1;
        }
        None
    }

    fn refused(&mut self, _: JobId, _: &dyn View) {}

    fn head(&self, _: &dyn View) -> Option<JobId> {
        self.waiting.first().map(|&(_, job)| job)
    }

    fn may_shrink(&self, giver: JobId, head: JobId, cluster: &dyn View) -> bool {
        cluster.job(giver).priority <= cluster.job(head).priority
    }
}

impl Mast {
    /// The lowest priority that runs: nobody of it or below can make room by stopping others.
    fn lowest(&self) -> Reverse<i32> {
        Reverse(self.books.iter().filter_map(|book| book.running.lowest()).min().unwrap_or(i32::MAX))
    }
}
