//! Conservative backfill (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001): each job is given a reservation when it comes,
//! at the first time from which its GPUs stay free for as long as it holds them, and none of the earlier ones moves.
//!
//! While estimates are right, reservations never change: the future only fills up, and a job finds no earlier place than one
//! before it did that needed no more GPUs and no more time. [`Floors`] remembers those, so that a search begins where
//! there may be room and not in the present.
//!
//! That is a matter of numbers where a number of free GPUs says whether a job fits. Where it does not for some job (whole hosts, one
//! leaf), reservations are numbers of GPUs of hosts ([`ByHosts`]).
//!
//! With wrong estimates they do change. A job that ends early makes all waiting jobs move up in order of
//! submission ("compression"), which costs a question for each; a job that is overdue, or whose reservation finds no
//! legal GPUs, makes those after it late: they start in order of submission as soon as they can.

use rustc_hash::FxHashMap;

use super::conservative_hosts::ByHosts;
use super::policy::{Absence, BuiltIn, Decision, Scheduler};
use super::profile::Profile;
use super::turns::Turns;
use crate::view::{JobId, Running, View};

/// Where searches began to find room: by GPUs, and by holding time in quarters of octaves.
#[derive(Clone, Debug, Default)]
pub(super) struct Floors {
    /// (GPUs, a tree of prefix maxima over holding times), by GPUs.
    sizes: Vec<(u32, Vec<u64>)>,
}

impl Floors {
    const BUCKETS: usize = 256;

    /// Times of a bucket are longer than those of all before it.
    fn bucket(hold: u64) -> usize {
        let octave = hold.max(4).ilog2();
        (octave * 4) as usize + (hold.max(4) >> (octave - 2) & 3) as usize
    }

    /// A job of `gpus` that holds them for `hold` has found room at `start` and not before.
    pub(super) fn raise(&mut self, gpus: u32, hold: u64, start: u64) {
        let place = self.sizes.partition_point(|&(size, _)| size < gpus);
        if self.sizes.get(place).is_none_or(|&(size, _)| size != gpus) {
            self.sizes.insert(place, (gpus, vec![0; Self::BUCKETS + 1]));
        }
        let tree = &mut self.sizes[place].1;
        let mut at = Self::bucket(hold) + 1;
        while at <= Self::BUCKETS {
            tree[at] = tree[at].max(start);
            at += at & at.wrapping_neg();
        }
    }

    /// Before this, there is no room for `gpus` over `hold`.
    pub(super) fn of(&self, gpus: u32, hold: u64) -> u64 {
        let mut floor = 0;
        for (_, tree) in self.sizes.iter().take_while(|&&(size, _)| size <= gpus) {
            // Those of the same bucket may be longer.
            let mut at = Self::bucket(hold);
            while at > 0 {
                floor = floor.max(tree[at]);
                at &= at - 1;
            }
        }
        floor
    }
}

pub(super) const CONSERVATIVE: BuiltIn = BuiltIn::new(
    "conservative",
    "each job has a reservation when it comes; others go before if they delay none",
    |options| Box::new(Conservative::new(options.endpoints)),
);

/// The conservative backfill scheduler.
#[derive(Clone, Debug)]
pub enum Conservative {
    /// On so many GPUs, before the first job.
    Idle(u32),
    /// By numbers.
    ByCount(ByCount),
    /// By hosts.
    ByHosts(ByHosts),
}

impl Conservative {
    /// On `endpoints` GPUs.
    pub const fn new(endpoints: u32) -> Self {
        Self::Idle(endpoints)
    }

    fn books(&mut self, cluster: &dyn View) -> &mut dyn Scheduler {
        if let Self::Idle(endpoints) = *self {
            *self = if cluster.all_fit_by_count() {
                Self::ByCount(ByCount::new(endpoints))
            } else {
                Self::ByHosts(ByHosts::new(cluster))
            };
        }
        match self {
            Self::Idle(_) => unreachable!("the books were just opened"),
            Self::ByCount(books) => books,
            Self::ByHosts(books) => books,
        }
    }
}

impl Scheduler for Conservative {
    fn name(&self) -> &'static str {
        CONSERVATIVE.entry.name
    }

    fn queued(&mut self, job: JobId, cluster: &dyn View) {
        self.books(cluster).queued(job, cluster);
    }

    fn started(&mut self, job: JobId, cluster: &dyn View) {
        self.books(cluster).started(job, cluster);
    }

    fn released(&mut self, job: JobId, running: &Running, cluster: &dyn View) {
        self.books(cluster).released(job, running, cluster);
    }

    fn lost(&mut self, absence: &Absence, cluster: &dyn View) {
        self.books(cluster).lost(absence, cluster);
    }

    fn regained(&mut self, absence: &Absence, cluster: &dyn View) {
        self.books(cluster).regained(absence, cluster);
    }

    fn decide(&mut self, cluster: &dyn View) -> Option<Decision> {
        self.books(cluster).decide(cluster)
    }

    fn refused(&mut self, job: JobId, cluster: &dyn View) {
        self.books(cluster).refused(job, cluster);
    }

    fn wakes(&self, cluster: &dyn View) -> Option<u64> {
        match self {
            Self::Idle(_) => None,
            Self::ByCount(books) => books.wakes(cluster),
            Self::ByHosts(books) => books.wakes(cluster),
        }
    }
}

/// Reservations of numbers of GPUs.
#[derive(Clone, Debug)]
pub struct ByCount {
    /// Free GPUs from now on, with running jobs and reservations taken off.
    profile: Profile,
    /// (start, end, GPUs) of what is taken off for a job.
    spans: FxHashMap<JobId, (u64, u64, i64)>,
    turns: Turns,
    floors: Floors,
}

impl ByCount {
    fn new(endpoints: u32) -> Self {
        Self {
            profile: Profile::new(endpoints),
            spans: FxHashMap::default(),
            turns: Turns::new(),
            floors: Floors::default(),
        }
    }

    fn reserve(&mut self, job: JobId, cluster: &dyn View) {
        let (gpus, hold) = (i64::from(cluster.job(job).gpus), cluster.expected_hold(job));
        let from = cluster.now().max(self.floors.of(gpus as u32, hold));
        let start = self.profile.earliest(from, gpus, hold);
        self.floors.raise(gpus as u32, hold, start);
        // With too much out for good, there is no room at all until some comes back.
        let end = start.saturating_add(hold);
        if end > start {
            self.profile.add(start, end, -gpus);
        }
        self.spans.insert(job, (start, end, gpus));
        self.turns.reserve(start, job);
    }

    /// Gives back what is left of a job's span.
    fn forget(&mut self, job: JobId, now: u64) -> Option<u64> {
        let (start, end, gpus) = self.spans.remove(&job)?;
        if end > start.max(now) {
            self.profile.add(start.max(now), end, gpus);
            // There is room where there was none.
            self.floors = Floors::default();
        }
        Some(end)
    }

    /// Moves reservations up, in order of submission.
    fn compress(&mut self, cluster: &dyn View) {
        for job in self.turns.give_up() {
            self.forget(job, cluster.now());
            self.reserve(job, cluster);
        }
    }
}

impl Scheduler for ByCount {
    fn name(&self) -> &'static str {
        CONSERVATIVE.entry.name
    }

    fn queued(&mut self, job: JobId, cluster: &dyn View) {
        self.profile.advance(cluster.now());
        self.reserve(job, cluster);
    }

    fn started(&mut self, job: JobId, cluster: &dyn View) {
        let (now, release) = (cluster.now(), cluster.expected_release(job));
        let has = cluster.running_job(job).map_or(0, |running| running.placement.len() as i64);
        let span = self.spans.get(&job).copied();
        // An elastic job goes before its time, or gets others than it asked for.
        let before = self.turns.started(job, span.map(|(start, ..)| start));
        if span != Some((now, release, has)) {
            // Later than reserved, or that.
            self.forget(job, now);
            self.profile.add(now, release, -has);
            self.spans.insert(job, (now, release, has));
        }
        if before || span.is_some_and(|(.., gpus)| gpus != has) {
            self.floors = Floors::default();
            self.compress(cluster);
        }
    }

    fn released(&mut self, job: JobId, _: &Running, cluster: &dyn View) {
        self.profile.advance(cluster.now());
        let end = self.forget(job, cluster.now());
        if end.is_some_and(|end| end > cluster.now()) {
            self.compress(cluster);
        }
        self.turns.look_again(cluster.now());
    }

    fn lost(&mut self, absence: &Absence, cluster: &dyn View) {
        self.profile.advance(cluster.now());
        self.profile.add(absence.from, absence.until, -(absence.gpus.len() as i64));
    }

    fn regained(&mut self, absence: &Absence, cluster: &dyn View) {
        if absence.until > absence.from {
            self.profile.advance(cluster.now());
            self.profile.add(absence.from, absence.until, absence.gpus.len() as i64);
            self.floors = Floors::default();
            self.compress(cluster);
        }
        self.turns.look_again(cluster.now());
    }

    fn decide(&mut self, cluster: &dyn View) -> Option<Decision> {
        self.turns.next(cluster).map(|job| Decision::Start { job, region: 0 })
    }

    fn refused(&mut self, _: JobId, _: &dyn View) {}

    fn wakes(&self, _: &dyn View) -> Option<u64> {
        self.turns.first()
    }
}
