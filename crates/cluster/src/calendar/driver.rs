//! The calendar at work: which groups change, and when the next change is.

mod forming;
mod writes;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{CalendarTime, EndpointId, Span};

use super::carry::{self, Departed, Instant};
use super::order::Order;
use super::progress::{Rate, Work};
use super::timeline::Timeline;
use super::{Episode, EpisodeRunner, Histories, JobHistory, JobRequest, Reached, Resident, Settings, Worked};
use crate::cluster::{Change, Cluster, ClusterError, FaultRecord, JobId, Machine};
use crate::life::{Segment, UNKNOWN};
use crate::scheduler::Scheduler;
use crate::view::View;

/// A running job and its part in its group's present episode.
struct Entry {
    id: JobId,
    placement: Vec<EndpointId>,
    /// It loads its data; its work is the requests of that.
    loading: bool,
    /// Number of the episode; [`NONE`] before its first.
    episode: u32,
    /// When that began.
    epoch: u64,
    /// Work left then.
    left: Work,
    /// What it does when from then on.
    segment: Segment,
    rate: Rate,
    /// When it ends, or works, if its group does not change.
    end: u64,
    /// Begins of its iterations, as far back as a rerun may go, once it has been settled; the last is of the present one.
    marks: Vec<Instant>,
    /// Work left then.
    due: Work,
    /// When it next begins a write that its neighbours notice; [`u64::MAX`] if it does not.
    write: u64,
    /// When it is with its neighbours again, of a job that is apart while it writes; [`u64::MAX`] of others.
    resumes: u64,
}

/// Rounds after which the runner is told how far the calendar is though nothing has changed.
const QUIET: u32 = 64;

/// No episode.
const NONE: u32 = u32::MAX;

/// An episode that goes on.
#[derive(Clone, Copy)]
struct Live {
    began: u64,
    /// How many jobs it has.
    jobs: usize,
    /// When its group came about, and how often that was simulated since.
    formed: u64,
    looks: u64,
    /// When what was seen of it is not good any more.
    expires: u64,
}

pub(super) struct Calendar<'a> {
    requests: &'a [JobRequest],
    settings: &'a Settings<'a>,
    given: &'a [usize],
    cluster: Cluster<'a>,
    /// In the order in which they started.
    running: Vec<Entry>,
    /// Of each job that does not run, in order of submission.
    left: Vec<Work>,
    /// What was left as its last finished checkpoint began.
    left_safe: Vec<Work>,
    /// What suspended jobs have left to load, on the GPUs in whose memory they are.
    half_loaded: FxHashMap<JobId, (Vec<EndpointId>, Work)>,
    /// Changes of the fabric that the runner knows of.
    fabric: u64,
    faults: Vec<FaultRecord>,
    histories: Vec<JobHistory>,
    /// Jobs that have ended.
    ended: u64,
    episodes: u32,
    live: BTreeMap<u32, Live>,
    /// What jobs that are off their episodes did there, by episode.
    worked: BTreeMap<u32, Vec<Worked>>,
    /// Jobs that have left each episode, or one before it.
    departed: BTreeMap<u32, Vec<Departed>>,
    timeline: Timeline,
}

impl<'a> Calendar<'a> {
    pub(super) fn new(
        requests: &'a [JobRequest],
        settings: &'a Settings<'a>,
        order: &'a Order,
        machine: &'a Machine<'a>,
    ) -> Self {
        let left: Vec<Work> =
            order.given.iter().map(|&job| Work::iterations(requests[job].iterations)).collect();
        Self {
            requests,
            settings,
            given: &order.given,
            cluster: Cluster::new(&order.jobs, machine),
            running: Vec::new(),
            left_safe: left.clone(),
            left,
            half_loaded: FxHashMap::default(),
            fabric: 0,
            faults: Vec::new(),
            histories: vec![JobHistory::default(); requests.len()],
            ended: 0,
            episodes: 0,
            live: BTreeMap::new(),
            worked: BTreeMap::new(),
            departed: BTreeMap::new(),
            timeline: Timeline::default(),
        }
    }

    pub(super) fn into_histories(mut self) -> Histories {
        // What still runs has done something too.
        for mut entry in std::mem::take(&mut self.running) {
            self.settle(&mut entry);
        }
        for (place, &job) in self.given.iter().enumerate() {
            let id = JobId(place as u32);
            self.histories[job].submit = self.cluster.submitted_at(id);
            self.histories[job].time = self.cluster.job_time(id);
        }
        self.timeline.until(self.cluster.now(), self.cluster.gpu_states());
        let end = CalendarTime::from_ns(self.cluster.now());
        let tallies = self.settings.upkeep.map(|_| self.cluster.tallies().collect());
        let mut stays = self.cluster.take_stays();
        stays.append(&mut self.cluster.open_stays());
        Histories {
            jobs: self.histories,
            given: self.given.to_vec(),
            gpu_time: self.cluster.gpu_time(),
            faults: self.faults,
            tallies: tallies.unwrap_or_default(),
            end,
            timeline: self.timeline,
            stays,
        }
    }

    /// What the jobs at work have done by `now`, in jobs: the part of the time that each is expected to take in all.
    fn under_way(&self, now: u64) -> f64 {
        let working = self.running.iter().filter(|entry| !entry.loading && entry.end < u64::MAX);
        let part = |entry: &Entry| {
            let began = self.cluster.first_start(entry.id)?.ns();
            let (done, all) = (now.saturating_sub(began), entry.end.saturating_sub(began));
            (all > 0).then(|| done as f64 / all as f64)
        };
        working.filter_map(part).map(|part| part.min(1.0)).sum()
    }

    /// Goes from change to change until all jobs have ended, or enough.
    pub(super) fn run<R: EpisodeRunner>(
        &mut self,
        scheduler: &mut dyn Scheduler,
        runner: &mut R,
    ) -> Result<(), R::Error> {
        self.cluster.check_room()?;
        self.cluster.keep_stays();
        self.advance(0, scheduler);
        self.admit(scheduler)?;
        let enough = self.settings.ends.unwrap_or(u64::MAX).min(self.requests.len() as u64);
        let (mut changed, mut rounds) = (true, 0u32);
        while self.ended < enough {
            if changed {
                let event = self.next_event(scheduler);
                self.renew(event, runner)?;
            }
            rounds = rounds.wrapping_add(1);
            // Faults of idle GPUs change no group; they may be many.
            if changed || rounds.is_multiple_of(QUIET) {
                let now = CalendarTime::from_ns(self.cluster.now());
                let under_way = self.under_way(now.ns());
                runner.reached(Reached { now, ended: self.ended, jobs: enough, under_way })?;
            }
            let end = self.running.iter().map(|entry| entry.end).min();
            let event = self.next_event(scheduler);
            let writes = self.running.iter().map(|entry| entry.write.min(entry.resumes));
            let expiry = self.live.values().map(|live| live.expires).chain(writes).min();
            let next = end.into_iter().chain(event).chain(expiry).min();
            let Some(now) = next.filter(|&now| now < u64::MAX) else {
                // Nothing will ever happen.
                if let Some(entry) = self.running.iter().find(|entry| entry.loading) {
                    return Err(ClusterError::NoData { job: entry.id }.into());
                }
                if !self.running.is_empty() {
                    self.cluster.check_time(u64::MAX)?;
                }
                let Some(job) = self.cluster.queue().head() else { break };
                return Err(ClusterError::Starved { job, scheduler: scheduler.name() }.into());
            };
            self.cluster.check_time(now)?;
            self.advance(now, scheduler);
            changed = end == Some(now);
            if changed {
                self.finish();
            }
            changed |= self.admit(scheduler)?;
            changed |= self.cluster.fabric_changes() != self.fabric || expiry == Some(now);
        }
        for (episode, Live { began, .. }) in std::mem::take(&mut self.live) {
            self.ended(episode, began, runner)?;
        }
        Ok(())
    }

    /// Tells `runner` how long an episode lasted that began then.
    fn ended<R: EpisodeRunner>(&mut self, episode: u32, began: u64, runner: &mut R) -> Result<(), R::Error> {
        let now = self.cluster.now();
        let mut worked = self.worked.remove(&episode).unwrap_or_default();
        for entry in self.running.iter().filter(|entry| entry.episode == episode && !entry.loading) {
            let (net, _) = Rate::net(now - entry.epoch, &entry.segment);
            let done = entry.left.0 - entry.left.less(entry.rate.done_by(net)).0;
            worked.push(self.did(entry, net, done));
        }
        runner.lasted(episode, Span::from_ns(now - began), &worked)
    }

    /// What `entry` did in its episode, in which it went on for `net` nanoseconds and did `done` in 2^-64 iterations.
    fn did(&self, entry: &Entry, net: u64, done: u128) -> Worked {
        let job = self.given[entry.id.0 as usize];
        let iterations = |work: u128| work as f64 / Work::ONE as f64;
        // That is rounded to where it ends.
        let left = entry.left.0.saturating_sub(done);
        let due = entry.rate.boundaries(net, u64::MAX, 0, entry.left, |_| ());
        let begun = due.map_or(0, |due| due.0.saturating_sub(left));
        Worked { job, span: Span::from_ns(net), iterations: iterations(done), begun: iterations(begun) }
    }

    /// The next arrival, release, or instant at which the scheduler wants to be asked.
    fn next_event(&self, scheduler: &dyn Scheduler) -> Option<u64> {
        let wake = scheduler.wakes(&self.cluster).filter(|&at| at > self.cluster.now());
        let waits = wake.is_some() || !self.cluster.is_stuck();
        self.cluster.next_event().into_iter().chain(wake).min().filter(|_| waits)
    }

    fn advance(&mut self, now: u64, scheduler: &mut dyn Scheduler) {
        self.cluster.advance(now, scheduler);
        self.faults.extend(self.cluster.take_faults());
        self.timeline.until(now, self.cluster.gpu_states());
    }

    /// Lets the scheduler decide; whether the running set has changed.
    fn admit(&mut self, scheduler: &mut dyn Scheduler) -> Result<bool, ClusterError> {
        let changes = self.cluster.decide(scheduler)?.to_vec();
        for &change in &changes {
            match change {
                Change::Started(id) => self.started(id),
                Change::Stopped(id) | Change::Suspended(id) | Change::Interrupted(id) => {
                    if let Some(place) = self.running.iter().position(|entry| entry.id == id) {
                        let mut entry = self.running.remove(place);
                        self.settle(&mut entry);
                        self.depart(&entry);
                        if entry.loading && matches!(change, Change::Suspended(_)) {
                            self.half_loaded.insert(id, (entry.placement, entry.left));
                            continue;
                        }
                    }
                    self.half_loaded.remove(&id);
                    let (left, safe) = (&mut self.left[id.0 as usize], &mut self.left_safe[id.0 as usize]);
                    match change {
                        Change::Stopped(_) => *safe = *left,
                        Change::Interrupted(_) => {
                            let JobHistory { done, undone, .. } =
                                &mut self.histories[self.given[id.0 as usize]];
                            // What is simulated again may come out slower than it did first.
                            let kept = (*safe).max(*left);
                            done.undo(kept.0 - left.0, undone);
                            (*safe, *left) = (kept, kept);
                        }
                        _ => {}
                    }
                }
            }
        }
        let (waiting, running) = (self.cluster.queue().len() as u64, self.running.len() as u64);
        self.timeline.jobs(waiting, running, self.cluster.broken_free());
        Ok(!changes.is_empty())
    }

    fn started(&mut self, id: JobId) {
        // One that was stopped again within the instant has no GPUs.
        let Some(running) = self.cluster.running_job(id) else { return };
        if self.running.iter().any(|entry| entry.id == id) {
            return;
        }
        let (job, placement) = (self.given[id.0 as usize], running.placement.clone());
        self.histories[job].start = self.cluster.first_start(id);
        let segment = *self.cluster.segment(id).expect("it runs");
        let loads = self.requests[job].loads.filter(|_| segment.pause.loading > 0);
        let half = self.half_loaded.remove(&id).filter(|(there, _)| *there == placement);
        let left = match loads {
            Some(requests) => half.map_or(Work::iterations(requests), |(_, left)| left),
            None => self.left[id.0 as usize],
        };
        self.running.push(Entry {
            id,
            placement,
            loading: loads.is_some(),
            episode: NONE,
            epoch: self.cluster.now(),
            left,
            segment,
            rate: Rate::default(),
            end: u64::MAX,
            marks: Vec::new(),
            due: left,
            write: u64::MAX,
            resumes: u64::MAX,
        });
    }

    /// How long an iteration of `entry` takes, as far as that is known.
    fn mean(&self, entry: &Entry) -> Span {
        match entry.rate.mean {
            Span::ZERO if entry.loading => Span::ZERO,
            Span::ZERO => self.requests[self.given[entry.id.0 as usize]].ideal_iteration,
            mean => mean,
        }
    }

    /// Notes where its iterations began.
    fn mark(&self, entry: &mut Entry, net: u64) {
        if self.settings.carry_below == 0 {
            return;
        }
        let now = self.cluster.now();
        let longest = self.running.iter().map(|entry| self.mean(entry)).fold(self.mean(entry), Span::max);
        let since = carry::kept_since(now, longest);
        let clock = (entry.epoch, now - entry.epoch, net);
        let mut marks = std::mem::take(&mut entry.marks);
        entry.due = carry::mark(&mut marks, &entry.rate, clock, entry.left, since).unwrap_or(entry.left);
        entry.marks = marks;
    }

    /// Remembers `entry`, which leaves its group and has been settled, for those who stay.
    fn depart(&mut self, entry: &Entry) {
        if self.live.get(&entry.episode).is_none_or(|live| live.jobs < 2) {
            return;
        }
        let end = CalendarTime::from_ns(self.cluster.now()).exact_ps();
        let job = self.as_member(entry);
        let departed = Departed::new(job, entry.marks.clone(), end, self.mean(entry));
        self.departed.entry(entry.episode).or_default().extend(departed);
    }

    /// Takes what `entry` has done by now off its work.
    fn settle(&mut self, entry: &mut Entry) {
        if entry.episode == NONE {
            return;
        }
        let (id, elapsed) = (entry.id.0 as usize, self.cluster.now() - entry.epoch);
        if entry.loading {
            // Of one that waits for the fabric nothing has come.
            if entry.end < u64::MAX {
                self.mark(entry, elapsed);
                let left = entry.left.less(entry.rate.done_by(elapsed));
                self.note_loaded(entry, entry.left.0 - left.0);
                entry.left = left;
            }
            return;
        }
        let (mut net, safe) = Rate::net(elapsed, &entry.segment);
        if entry.end == self.cluster.now() {
            // It makes no write that is due as it ends.
            net = entry.rate.net_of(entry.left);
        }
        if let Some(safe) = safe {
            self.left_safe[id] = entry.left.less(entry.rate.done_by(safe));
        }
        self.mark(entry, net);
        let left = entry.left.less(entry.rate.done_by(net));
        let done = entry.left.0 - left.0;
        let job = self.given[id];
        // Of an episode that is over the runner knows.
        if self.live.contains_key(&entry.episode) {
            let did = self.did(entry, net, done);
            self.worked.entry(entry.episode).or_default().push(did);
        }
        entry.left = left;
        self.left[id] = left;
        let history = &mut self.histories[job];
        history.worked += net.saturating_sub(entry.segment.pause.total());
        history.done.add(entry.placement.len(), done);
        history.extrapolated |= entry.rate.is_extrapolated(net);
        history.variance += entry.rate.variance(net, self.requests[job].ideal_iteration);
    }

    /// Takes note of requests for its data that `entry` has done, in 2^-64.
    fn note_loaded(&mut self, entry: &Entry, work: u128) {
        let history = &mut self.histories[self.given[entry.id.0 as usize]];
        history.loaded.add(entry.placement.len(), work);
    }

    /// Ends the jobs whose time has come; those that have loaded their data go to work.
    fn finish(&mut self) {
        let now = self.cluster.now();
        // What fails at this instant goes first.
        let due = |entry: &Entry| entry.end == now && self.cluster.running_job(entry.id).is_some();
        let (ended, running): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(&mut self.running).into_iter().partition(|entry| due(entry) && !entry.loading);
        let mut running = running;
        for entry in running.iter_mut().filter(|entry| entry.loading && entry.end == now) {
            if self.cluster.running_job(entry.id).is_none() {
                continue;
            }
            self.settle(entry);
            let history = &mut self.histories[self.given[entry.id.0 as usize]];
            history.loaded.add(entry.placement.len(), entry.left.0);
            self.depart(entry);
            self.cluster.reload(entry.id, 0);
            (entry.loading, entry.episode, entry.epoch) = (false, NONE, now);
            entry.left = self.left[entry.id.0 as usize];
            (entry.rate, entry.marks) = (Rate::default(), Vec::new());
            entry.segment = *self.cluster.segment(entry.id).expect("it runs");
            entry.end = u64::MAX;
        }
        self.running = running;
        for mut entry in ended {
            self.settle(&mut entry);
            self.depart(&entry);
            let job = self.given[entry.id.0 as usize];
            let began = self.cluster.first_start(entry.id).map_or(now, windtunnel_kernel::CalendarTime::ns);
            let variance = self.variance_of_writes(job, now - began);
            let history = &mut self.histories[job];
            history.variance += variance;
            history.finish = Some(CalendarTime::from_ns(now));
            // What is left is of roundings.
            history.done.add(entry.placement.len(), entry.left.0);
            self.cluster.end(entry.id);
            self.ended += 1;
        }
    }

    /// Begins episodes for the groups that have changed, or of which too little was seen for as long as they last; `event` is the
    /// next thing that is known to happen.
    fn renew<R: EpisodeRunner>(&mut self, event: Option<u64>, runner: &mut R) -> Result<(), R::Error> {
        let now = self.cluster.now();
        let changes = self.cluster.fabric_changes();
        let anew = std::mem::replace(&mut self.fabric, changes) != changes;
        if anew {
            runner.fabric(&self.cluster.fabric_out());
        }
        let (apart, together) = self.set_apart();
        let mut residents: Vec<Resident<'_>> = Vec::with_capacity(self.running.len());
        residents.extend(together.iter().map(|&place| &self.running[place]).map(|entry| Resident {
            job: self.given[entry.id.0 as usize],
            starts: self.cluster.starts(entry.id),
            placement: &entry.placement,
            loading: entry.loading,
        }));
        let mut groups = if residents.is_empty() { Vec::new() } else { runner.groups(&residents)? };
        if !apart.is_empty() {
            groups.iter_mut().flatten().for_each(|place| *place = together[*place]);
            groups.extend(apart.into_iter().map(|place| vec![place]));
            groups.sort_unstable();
        }
        let present = |group: &[usize]| {
            let episode = self.running[group[0]].episode;
            let same = group.iter().all(|&place| self.running[place].episode == episode);
            self.live.get(&episode).filter(|live| !anew && same && live.jobs == group.len()).copied()
        };
        let writes = |group: &[usize]| group.iter().any(|&place| self.running[place].write <= now);
        let (kept, new): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|group| present(group).is_some_and(|live| live.expires > now) && !writes(group));
        let outlasted: Vec<Option<Live>> = new.iter().map(|group| present(group)).collect();
        let mut gone = std::mem::take(&mut self.live);
        for group in &kept {
            let episode = self.running[group[0]].episode;
            if let Some(entry) = gone.remove(&episode) {
                self.live.insert(episode, entry);
            }
        }
        for (episode, Live { began, .. }) in gone {
            self.ended(episode, began, runner)?;
        }
        // Who waits may start as soon as anyone ends, here or elsewhere.
        let waits = !self.cluster.queue().is_empty();
        let ends = self.running.iter().filter(|entry| waits && self.live.contains_key(&entry.episode));
        let ends = ends.map(|entry| entry.end).filter(|&end| end > now);
        let next = event.into_iter().chain(ends).min().map_or(u64::MAX, |at| at - now);
        let begin = |(group, before): (&Vec<usize>, &Option<Live>)| self.begin(group, *before, next);
        let episodes: Vec<Episode> = new.iter().zip(&outlasted).map(begin).collect();
        let live = &self.live;
        self.departed.retain(|episode, _| live.contains_key(episode));
        if episodes.is_empty() {
            return Ok(());
        }
        let iterations = u64::from(self.settings.episode_iterations) + 1;
        let seen = runner.run(CalendarTime::from_ns(now), &episodes, iterations)?;
        for ((group, episode), seen) in new.iter().zip(&episodes).zip(&seen) {
            let good_for = seen.iter().filter_map(|seen| seen.certainty.good_for).min();
            if let (Some(good_for), Some(live)) = (good_for, self.live.get_mut(&episode.number)) {
                live.expires = now.saturating_add(good_for.ns_ceil().max(1));
            }
            for ((&place, job), seen) in group.iter().zip(&episode.jobs).zip(seen) {
                let entry = &mut self.running[place];
                entry.rate = Rate::of(job, seen, episode);
                if entry.loading {
                    // Without a way to its data it waits for the next change.
                    let stands = seen.ends.is_empty();
                    entry.end =
                        if stands { u64::MAX } else { now.saturating_add(entry.rate.time_for(entry.left)) };
                    let left = if stands { UNKNOWN } else { entry.end - now };
                    self.cluster.reload(entry.id, left.clamp(1, UNKNOWN));
                    entry.segment = *self.cluster.segment(entry.id).expect("it runs");
                    continue;
                }
                self.plan(place);
                let entry = &mut self.running[place];
                entry.end = now.saturating_add(entry.rate.end_of(entry.left, &entry.segment));
            }
        }
        Ok(())
    }
}
