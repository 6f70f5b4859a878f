//! EASY backfill (Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995): first come, first served, and the head of the
//! queue has a reservation: the *shadow* time at which it will find GPUs, and the *extra* ones that it leaves over
//! then. Another job goes before if it fits now and either gives its GPUs back by the shadow time or is content with the
//! extra ones. Ends are those that estimates promise; a job that is overdue may end at any moment.
//!
//! Where a number of free GPUs says whether the head fits, both are numbers. Where it does not (whole hosts, one leaf), the head
//! has a [`Reservation`] of GPUs: a job that would not have gone by then goes before if its placement leaves the head legal
//! ones, or finds some beside those that the head would get. Either way the head starts no later than it could have as it became
//! the head, if jobs end when they are expected to and nothing fails.
//!
//! A pass goes through the queue once: what did not fit before does not fit after another start. A job is found by
//! [`Classes`], the shadow by [`Profile`]; neither looks at every job.

use rustc_hash::{FxHashMap, FxHashSet};
use windtunnel_kernel::EndpointId;

use super::classes::{Classes, Kind};
use super::policy::{Absence, BuiltIn, Decision, Scheduler};
use super::profile::Profile;
use super::reservation::{Absences, Reservation};
use crate::view::{JobId, Running, View};

pub(super) const EASY: BuiltIn = BuiltIn::new(
    "easy",
    "first come, first served; others go before if they do not delay the head (EASY backfill)",
    |options| Box::new(Easy::new(options.endpoints)),
);

/// The EASY scheduler.
#[derive(Clone, Debug)]
pub struct Easy {
    waiting: Classes,
    /// Free GPUs from now on, if nothing more is started.
    profile: Profile,
    /// Expected release of each running job.
    until: FxHashMap<JobId, u64>,
    /// What is out.
    absences: Absences,
    /// Of the head, where it is one of GPUs.
    reservation: Option<Reservation>,
    pass: Pass,
}

/// How far a pass through the queue has come; it begins anew when the clock moves.
#[derive(Clone, Debug, Default)]
struct Pass {
    now: u64,
    /// Where to look on; 0 is before the first job.
    from: JobId,
    /// The head has no legal GPUs now.
    blocked: Option<JobId>,
    /// Kinds of jobs that find no legal GPUs.
    closed: FxHashSet<Kind>,
    /// Kinds of jobs that would be in the head's way.
    in_the_way: FxHashSet<Kind>,
}

impl Pass {
    fn at(now: u64) -> Self {
        Self { now, ..Self::default() }
    }
}

impl Easy {
    /// On `endpoints` GPUs.
    pub fn new(endpoints: u32) -> Self {
        Self {
            waiting: Classes::new(),
            profile: Profile::new(endpoints),
            until: FxHashMap::default(),
            absences: Absences::default(),
            reservation: None,
            pass: Pass::default(),
        }
    }

    /// The next job to go before `head`, for which numbers speak.
    fn by_count(&mut self, head: JobId, free: u32, cluster: &dyn View) -> Option<Decision> {
        let (now, gpus) = (cluster.now(), i64::from(cluster.job(head).gpus));
        let shadow = self.profile.first_with(now, gpus).unwrap_or(now);
        let extra = (self.profile.at(shadow) - gpus).max(0) as u32;
        let closed = &self.pass.closed;
        let most = |kind: Kind| {
            let open = closed.is_empty() || !closed.contains(&kind);
            open.then_some(if kind.gpus <= extra { u64::MAX } else { shadow - now })
        };
        let job = self.waiting.first(self.pass.from.max(JobId(head.0 + 1)), free, most)?;
        self.pass.from = JobId(job.0 + 1);
        Some(Decision::Start { job, region: 0 })
    }

    /// The same for one that has a reservation of GPUs.
    fn by_gpus(&mut self, head: JobId, free: u32, cluster: &dyn View) -> Option<Decision> {
        let now = cluster.now();
        if !self.reservation.as_ref().is_some_and(|reservation| reservation.holds(head, now)) {
            self.reservation = Reservation::of(head, &self.absences, cluster);
        }
        let reservation = self.reservation.as_mut()?;
        let (within, extra) = (reservation.at - now, reservation.extra(cluster));
        let mut from = self.pass.from.max(JobId(head.0 + 1));
        loop {
            let (closed, in_the_way) = (&self.pass.closed, &self.pass.in_the_way);
            let most = |kind: Kind| {
                let short = kind.gpus > extra || in_the_way.contains(&kind);
                (!closed.contains(&kind)).then_some(if short { within } else { u64::MAX })
            };
            let job = self.waiting.first(from, free, most)?;
            from = JobId(job.0 + 1);
            self.pass.from = from;
            // What another job of the same kind is refused, this one is too, unless a user's own placement says so.
            let (kind, trusted) = (Kind::of(job, cluster), cluster.trusts_placement(job));
            let Some(placement) = cluster.place(job, 0) else {
                if trusted {
                    self.pass.closed.insert(kind);
                }
                continue;
            };
            let goes = cluster.expected_hold(job) <= within;
            if goes || !(trusted || are_distinct_and_free(&placement, cluster)) {
                // The cluster says what is wrong with a placement.
                return Some(Decision::Start { job, region: 0 });
            }
            if reservation.beside(&placement, cluster).is_some() {
                return Some(Decision::Start { job, region: 0 });
            }
            if !trusted {
                continue;
            }
            let others = reservation.others(&cluster.regions()[0]);
            if let Some(placement) = cluster.place_on(job, &others)
                && reservation.beside(&placement, cluster).is_some()
            {
                return Some(Decision::StartOn { job, placement, region: 0 });
            }
            self.pass.in_the_way.insert(kind);
        }
    }
}

/// Whether a user's own placement gave GPUs that can be taken.
fn are_distinct_and_free(placement: &[EndpointId], cluster: &dyn View) -> bool {
    let distinct: FxHashSet<EndpointId> = placement.iter().copied().collect();
    distinct.len() == placement.len() && cluster.regions()[0].are_free(placement)
}

impl Scheduler for Easy {
    fn name(&self) -> &'static str {
        EASY.entry.name
    }

    fn queued(&mut self, job: JobId, cluster: &dyn View) {
        self.waiting.insert(job, Kind::of(job, cluster), cluster.expected_hold(job));
    }

    fn started(&mut self, job: JobId, cluster: &dyn View) {
        self.waiting.remove(job, Kind::of(job, cluster));
        let release = cluster.expected_release(job);
        // An elastic job may have got others.
        let placement = cluster.running_job(job).map_or(&[][..], |running| &running.placement);
        self.profile.add(cluster.now(), release, -(placement.len() as i64));
        self.until.insert(job, release);
        // Best fit is another host now, perhaps not in the way.
        self.pass.in_the_way.clear();
        if let Some(reservation) = &mut self.reservation
            && !(reservation.holds(cluster.queue().head().unwrap_or(job), cluster.now())
                && reservation.started(placement, release, cluster))
        {
            self.reservation = None;
        }
    }

    fn released(&mut self, job: JobId, running: &Running, cluster: &dyn View) {
        let until = self.until.remove(&job).expect("it ran");
        if until > cluster.now() {
            self.profile.add(cluster.now(), until, running.placement.len() as i64);
        }
        if until != cluster.now() {
            self.reservation = None;
        }
        self.pass = Pass::default();
    }

    fn lost(&mut self, absence: &Absence, _: &dyn View) {
        self.profile.add(absence.from, absence.until, -(absence.gpus.len() as i64));
        self.absences.lost(absence);
        self.reservation = None;
    }

    fn regained(&mut self, absence: &Absence, cluster: &dyn View) {
        if absence.until > absence.from {
            self.profile.add(absence.from, absence.until, absence.gpus.len() as i64);
        }
        self.absences.regained(absence, cluster.now());
        self.reservation = None;
        self.pass = Pass::default();
    }

    fn decide(&mut self, cluster: &dyn View) -> Option<Decision> {
        let head = cluster.queue().head()?;
        if self.pass.now != cluster.now() {
            self.profile.advance(cluster.now());
            self.pass = Pass::at(cluster.now());
        }
        let free = cluster.free();
        if free == 0 {
            return None;
        }
        if cluster.job(head).gpus <= free && self.pass.blocked != Some(head) {
            return Some(Decision::Start { job: head, region: 0 });
        }
        if cluster.fits_by_count(head) {
            self.by_count(head, free, cluster)
        } else {
            self.by_gpus(head, free, cluster)
        }
    }

    fn refused(&mut self, job: JobId, cluster: &dyn View) {
        if cluster.queue().head() == Some(job) {
            self.pass.blocked = Some(job);
        } else if cluster.trusts_placement(job) {
            self.pass.closed.insert(Kind::of(job, cluster));
        }
    }
}

pub(super) const FIRST_FIT: BuiltIn =
    BuiltIn::new("first-fit", "the first job of the queue that fits; a large one may wait forever", |_| {
        Box::new(FirstFit::new())
    });

/// The first job of the queue that fits is started, whoever waits before it.
#[derive(Clone, Debug, Default)]
pub struct FirstFit {
    waiting: Classes,
    pass: Pass,
}

impl FirstFit {
    /// Nothing waits.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Scheduler for FirstFit {
    fn name(&self) -> &'static str {
        FIRST_FIT.entry.name
    }

    fn queued(&mut self, job: JobId, cluster: &dyn View) {
        self.waiting.insert(job, Kind::of(job, cluster), 0);
    }

    fn started(&mut self, job: JobId, cluster: &dyn View) {
        self.waiting.remove(job, Kind::of(job, cluster));
    }

    fn released(&mut self, _: JobId, _: &Running, _: &dyn View) {
        self.pass = Pass::default();
    }

    fn regained(&mut self, _: &Absence, _: &dyn View) {
        self.pass = Pass::default();
    }

    fn decide(&mut self, cluster: &dyn View) -> Option<Decision> {
        if self.pass.now != cluster.now() {
            self.pass = Pass::at(cluster.now());
        }
        let free = cluster.free();
        let closed = &self.pass.closed;
        let most = |kind: Kind| (closed.is_empty() || !closed.contains(&kind)).then_some(0);
        let job = self.waiting.first(self.pass.from, free, most)?;
        self.pass.from = JobId(job.0 + 1);
        Some(Decision::Start { job, region: 0 })
    }

    fn refused(&mut self, job: JobId, cluster: &dyn View) {
        if cluster.trusts_placement(job) {
            self.pass.closed.insert(Kind::of(job, cluster));
        }
    }
}
