//! Conservative backfill with reservations of hosts.
//!
//! A job is reserved numbers of GPUs of hosts, which its placement chooses among what stays free on each for as long as it
//! holds them, and gets GPUs of those hosts when its time has come. So what it waits for is what it can use, and no job that
//! comes later takes it away. A job whose hosts are held up by one that is overdue, or are out, takes what its placement
//! finds instead; the others find new places then, in order of submission.

use rustc_hash::FxHashMap;
use windtunnel_kernel::EndpointId;

use super::conservative::{CONSERVATIVE, Floors};
use super::host_profile::{HostProfile, OnHosts};
use super::policy::{Absence, Decision, Scheduler};
use super::turns::Turns;
use crate::free::FreeSet;
use crate::placement::Locality;
use crate::view::{JobId, Running, View};

/// What is taken off for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    start: u64,
    end: u64,
    /// In the order in which it fills them.
    gpus: OnHosts,
}

/// Reservations of hosts. See the module page.
#[derive(Clone, Debug)]
pub struct ByHosts {
    /// Free GPUs from now on, with running jobs and reservations taken off.
    profile: HostProfile,
    per_host: u32,
    held: FxHashMap<JobId, Held>,
    turns: Turns,
    /// Of jobs of equal locality and placement: for others a larger job may find room where a smaller one does not.
    floors: FxHashMap<(Locality, u8), Floors>,
}

impl ByHosts {
    /// On the hosts of an empty `cluster`.
    pub(super) fn new(cluster: &dyn View) -> Self {
        let all = cluster.empty_region(0);
        let free = (0..all.host_count()).map(|host| all.free_on(host) as i32).collect();
        Self {
            profile: HostProfile::new(free),
            per_host: all.per_host(),
            held: FxHashMap::default(),
            turns: Turns::new(),
            floors: FxHashMap::default(),
        }
    }

    /// GPUs by host, in the order of their first ranks.
    fn on_hosts(&self, gpus: &[EndpointId]) -> OnHosts {
        let mut hosts: OnHosts = Vec::new();
        let mut places: FxHashMap<u32, usize> = FxHashMap::default();
        for gpu in gpus {
            let host = gpu.0 / self.per_host;
            let place = *places.entry(host).or_insert_with(|| {
                hosts.push((host, 0));
                hosts.len() - 1
            });
            hosts[place].1 += 1;
        }
        hosts
    }

    fn reserve(&mut self, job: JobId, cluster: &dyn View) {
        let (known, hold) = (cluster.job(job), cluster.expected_hold(job));
        let kind = (known.locality, known.placement);
        let floor = self.floors.get(&kind).map_or(0, |floors| floors.of(known.gpus, hold));
        let found = self.profile.earliest(cluster.now().max(floor), hold, |free| fits(job, free, cluster));
        let (start, free) = found;
        self.floors.entry(kind).or_default().raise(known.gpus, hold, start);
        // With too much out for good, there is no room at all until some comes back.
        let end = start.saturating_add(hold);
        let mut gpus = OnHosts::new();
        if end > start {
            let placement = cluster.place_on(job, &free_set(&free, cluster));
            gpus = self.on_hosts(&placement.unwrap_or_default());
            self.profile.add(start, end, &gpus, false);
        }
        self.held.insert(job, Held { start, end, gpus });
        self.turns.reserve(start, job);
    }

    /// Gives back what is left of a job's reservation.
    fn forget(&mut self, job: JobId, now: u64) -> Option<Held> {
        let held = self.held.remove(&job)?;
        if held.end > held.start.max(now) {
            self.profile.add(held.start.max(now), held.end, &held.gpus, true);
            // There is room where there was none.
            self.floors.clear();
        }
        Some(held)
    }

    /// Moves reservations up, in order of submission; and those for which there is no room any more, out of the way.
    fn compress(&mut self, cluster: &dyn View) {
        for job in self.turns.give_up() {
            self.forget(job, cluster.now());
            self.reserve(job, cluster);
        }
    }

    /// GPUs of the hosts that are reserved for `job`, if they are free.
    fn on_reserved(&self, job: JobId, cluster: &dyn View) -> Option<Vec<EndpointId>> {
        let (free, held) = (&cluster.regions()[0], self.held.get(&job)?);
        if held.gpus.is_empty() || held.gpus.iter().any(|&(host, count)| free.free_on(host) < count) {
            return None;
        }
        let mut placement = Vec::new();
        held.gpus.iter().for_each(|&(host, count)| free.append(host, count, &mut placement));
        if cluster.job(job).locality == Locality::Anywhere && !cluster.fits_by_count(job) {
            // It matters which GPUs of a host these are.
            let hosts: Vec<u32> = held.gpus.iter().map(|&(host, _)| host).collect();
            return cluster.place_on(job, &free.part(&hosts));
        }
        Some(placement)
    }
}

/// Whether `job` finds legal GPUs among `free` ones of each host.
fn fits(job: JobId, free: &[i32], cluster: &dyn View) -> bool {
    let known = cluster.job(job);
    let (gpus, per_host) = (i64::from(known.gpus), cluster.regions()[0].per_host() as i32);
    let count: i64 = free.iter().map(|&free| i64::from(free.max(0))).sum();
    if count < gpus {
        return false;
    }
    if known.locality == Locality::FewestHosts {
        let (whole, rest) = (gpus / i64::from(per_host), (gpus % i64::from(per_host)) as i32);
        let full = free.iter().filter(|&&free| free >= per_host).count() as i64;
        let has_rest =
            || rest == 0 || full > whole || free.iter().any(|free| (rest..per_host).contains(free));
        return full >= whole && has_rest();
    }
    cluster.fits_by_count(job) || cluster.place_on(job, &free_set(free, cluster)).is_some()
}

/// A set in which each host has so many free GPUs.
fn free_set(free: &[i32], cluster: &dyn View) -> FreeSet {
    let mut set = cluster.empty_region(0);
    let mut taken = Vec::new();
    for (host, &free) in (0..).zip(free) {
        let has = set.free_on(host);
        let busy = has - (free.max(0) as u32).min(has);
        // From the last on: a host's first GPUs are given first.
        let gpus = (0..set.per_host()).rev().filter(|&gpu| set.is_free(host, gpu));
        taken.extend(gpus.take(busy as usize).map(|gpu| set.endpoint(host, gpu)));
    }
    set.take(&taken);
    set
}

impl Scheduler for ByHosts {
    fn name(&self) -> &'static str {
        CONSERVATIVE.entry.name
    }

    fn queued(&mut self, job: JobId, cluster: &dyn View) {
        self.profile.advance(cluster.now());
        self.reserve(job, cluster);
    }

    fn started(&mut self, job: JobId, cluster: &dyn View) {
        let now = cluster.now();
        let running = cluster.running_job(job).map_or(&[][..], |running| &running.placement);
        let has = Held { start: now, end: cluster.expected_release(job), gpus: self.on_hosts(running) };
        let was = self.held.get(&job).cloned();
        // An elastic job goes before its time, or gets others than it asked for.
        let before = self.turns.started(job, was.as_ref().map(|was| was.start));
        if was.as_ref() == Some(&has) {
            return;
        }
        self.forget(job, now);
        if has.end > now {
            self.profile.add(now, has.end, &has.gpus, false);
        }
        // Later than reserved, longer, or on other hosts: in the way of others, perhaps.
        let within = was.is_some_and(|was| was.start == now && was.end >= has.end && was.gpus == has.gpus);
        self.held.insert(job, has);
        if before || !within {
            self.floors.clear();
            self.compress(cluster);
        }
    }

    fn released(&mut self, job: JobId, _: &Running, cluster: &dyn View) {
        self.profile.advance(cluster.now());
        let held = self.forget(job, cluster.now());
        if held.is_some_and(|held| held.end > cluster.now()) {
            self.compress(cluster);
        }
        self.turns.look_again(cluster.now());
    }

    fn lost(&mut self, absence: &Absence, cluster: &dyn View) {
        self.profile.advance(cluster.now());
        let gpus = self.on_hosts(&absence.gpus);
        self.profile.add(absence.from, absence.until, &gpus, false);
        self.floors.clear();
        self.compress(cluster);
    }

    fn regained(&mut self, absence: &Absence, cluster: &dyn View) {
        if absence.until > absence.from {
            self.profile.advance(cluster.now());
            let gpus = self.on_hosts(&absence.gpus);
            self.profile.add(absence.from, absence.until, &gpus, true);
            self.floors.clear();
            self.compress(cluster);
        }
        self.turns.look_again(cluster.now());
    }

    fn decide(&mut self, cluster: &dyn View) -> Option<Decision> {
        let job = self.turns.next(cluster)?;
        Some(match self.on_reserved(job, cluster) {
            Some(placement) if cluster.trusts_placement(job) => {
                Decision::StartOn { job, placement, region: 0 }
            }
            _ => Decision::Start { job, region: 0 },
        })
    }

    fn refused(&mut self, _: JobId, _: &dyn View) {}

    fn wakes(&self, _: &dyn View) -> Option<u64> {
        self.turns.first()
    }
}
