//! The next episode of a group: who is in it, at what phase, and whether it begins with a rerun.

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{CalendarTime, Span, Time};

use super::super::carry::{self, Departed, Instant, Member};
use super::super::{Episode, EpisodeJob, JobHistory, entries};
use super::{Calendar, Entry, Live, NONE};
use crate::view::View;

/// Has `entry` stand at the begin of the iteration that is under way, which it goes through again.
fn rewind(entry: &mut Entry, history: &mut JobHistory) {
    let (gpus, due, left) = (entry.placement.len(), entry.due.0, entry.left.0);
    history.done.take(gpus, due.saturating_sub(left));
    history.done.add(gpus, left.saturating_sub(due));
    entry.left = entry.due;
}

impl Calendar<'_> {
    /// A new episode of `group`, places in `running`, which comes after another one of it if it has outlasted that; in `next`
    /// nanoseconds something happens.
    pub(super) fn begin(&mut self, group: &[usize], before: Option<Live>, next: u64) -> Episode {
        let (number, now) = (self.episodes, self.cluster.now());
        self.episodes += 1;
        let (formed, looks) = match before {
            Some(before) if before.expires <= now => (before.formed, before.looks + 1),
            // A job of it writes, as it did before.
            Some(before) => (now, before.looks),
            None => (now, 0),
        };
        let gone = self.company(group);
        let known = group.iter().map(|&place| &self.running[place]).filter(|entry| entry.episode != NONE);
        let lasted = known.map(|entry| now - entry.epoch).min().unwrap_or(u64::MAX);
        let live = Live { began: now, jobs: group.len(), formed, looks, expires: u64::MAX };
        self.live.insert(number, live);
        // What did not end it so far may not do so in future either.
        let horizon = Span::from_ns(next.max(now - formed));
        for &place in group {
            let mut entry = self.running.remove(place);
            self.settle(&mut entry);
            let segment = self.cluster.segment(entry.id).expect("it runs").split(now).1;
            self.running.insert(place, Entry { segment, epoch: now, episode: number, ..entry });
        }
        let next = group.iter().map(|&place| self.until_write(place)).fold(next, u64::min);
        let carries = self.carries(group, !gone.is_empty(), lasted, next);
        let horizon = horizon.min(Span::from_ns(next.max(now - formed)));
        if carries {
            return self.carried(number, group, gone, horizon);
        }
        for &place in group {
            let entry = &mut self.running[place];
            entry.marks.clear();
            let (mean, job) = (entry.rate.mean, self.given[entry.id.0 as usize]);
            if before.is_none() && mean > Span::ZERO && !entry.loading {
                // Which part of its iteration is cut nobody knows; what others may have done to that is what it takes longer.
                let longer = mean.ps().saturating_sub(self.requests[job].ideal_iteration.ps()) as f64 / 1e3;
                self.histories[job].variance += longer * longer / 12.0;
            }
        }
        let name = |entry: &Entry| self.given[entry.id.0 as usize] as u64 * 2 + u64::from(entry.loading);
        let names = group.iter().map(|&place| name(&self.running[place]));
        let names = names.fold(looks, combine);
        let shared = (group.len() > 1).then_some(names);
        let mut jobs: Vec<EpisodeJob> =
            group.iter().map(|&place| self.as_member(&self.running[place])).collect();
        if let Some(group) = shared.filter(|_| self.settings.draw_phases) {
            let ideal = |job: usize| self.requests[job].ideal_iteration;
            entries::draw(self.settings.seed, group, &mut jobs, ideal);
        }
        Episode { number, jobs, horizon, rerun: None }
    }

    /// Jobs that have left the episodes of `group` and may have shared the present iterations of its jobs.
    pub(super) fn company(&self, group: &[usize]) -> Vec<Departed> {
        let before: std::collections::BTreeSet<u32> =
            group.iter().map(|&place| self.running[place].episode).collect();
        let longest = group.iter().map(|&place| self.mean(&self.running[place])).fold(Span::ZERO, Span::max);
        let since = carry::kept_since(self.cluster.now(), longest);
        let mut known: Vec<Departed> = Vec::new();
        for gone in before.iter().filter_map(|episode| self.departed.get(episode)).flatten() {
            // Groups that part and meet again have the same one from both sides.
            if gone.is_after(since) && !known.iter().any(|known| known.is_same(gone)) {
                known.push(gone.clone());
            }
        }
        known
    }

    /// Whether the next episode of `group`, from which others are `gone` and to which something happens in `next` nanoseconds, or
    /// its last one, is too short for what is cut off its iterations to make no difference.
    pub(super) fn carries(&self, group: &[usize], gone: bool, lasted: u64, next: u64) -> bool {
        let alone = group.len() == 1 && !gone;
        let entries = || group.iter().map(|&place| &self.running[place]);
        // GPUs that load are in requests of their own, some ahead of others: nothing is in step that could be gone through again.
        if self.settings.carry_below == 0 || alone || entries().all(|entry| entry.loading) {
            return false;
        }
        let now = self.cluster.now();
        let longest = entries().map(|entry| self.mean(entry)).fold(Span::ZERO, Span::max).ns_ceil();
        let left = |entry: &Entry| match entry.end {
            u64::MAX => entry.left.time_at(self.mean(entry)),
            end => end.saturating_sub(now),
        };
        let lasts = entries().map(left).chain([next]).min().unwrap_or(u64::MAX);
        lasts.min(lasted) < longest.saturating_mul(self.settings.carry_below)
    }

    /// Episode `number` of `group`, all settled, that begins with a rerun.
    pub(super) fn carried(
        &mut self,
        number: u32,
        group: &[usize],
        mut gone: Vec<Departed>,
        horizon: Span,
    ) -> Episode {
        // Two nanoseconds: an instant of the calendar, rounded up.
        const NOW: Instant = 2_000;
        let now = CalendarTime::from_ns(self.cluster.now()).exact_ps();
        for &place in group {
            let entry = &mut self.running[place];
            let begun = entry.marks.last().map_or(Instant::MAX, |mark| now - mark);
            if begun <= NOW {
                rewind(entry, &mut self.histories[self.given[entry.id.0 as usize]]);
            }
            if entry.segment.pause.total() > 0 && !entry.marks.is_empty() {
                // It goes on once that is over; what it did before was there.
                let marks = std::mem::take(&mut entry.marks);
                let (mean, job) = (self.mean(&self.running[place]), self.as_member(&self.running[place]));
                gone.extend(Departed::new(job, marks, now, mean));
            }
            let entry = &mut self.running[place];
            if !entry.marks.is_empty() {
                rewind(entry, &mut self.histories[self.given[entry.id.0 as usize]]);
            }
        }
        let member = |&place: &usize| {
            let entry = &self.running[place];
            Member { job: self.as_member(entry), marks: &entry.marks }
        };
        let members = group.iter().map(member).collect();
        let (jobs, rerun) = carry::rerun(self.cluster.now(), members, &gone);
        if !gone.is_empty() {
            self.departed.insert(number, gone);
        }
        Episode { number, jobs, horizon, rerun: Some(rerun) }
    }

    /// As a member of an episode, that enters once its pause is over.
    pub(super) fn as_member(&self, entry: &Entry) -> EpisodeJob {
        let index = self.given[entry.id.0 as usize];
        let started = self.cluster.first_start(entry.id).map_or(0, |start| self.cluster.now() - start.ns());
        let age = Span::from_ns(started);
        let job = &self.requests[index];
        let left = entry.left.ceil();
        if let Some(requests) = job.loads.filter(|_| entry.loading) {
            return EpisodeJob {
                job: index,
                placement: entry.placement.clone(),
                start: Time::ZERO,
                phase: Span::ZERO,
                left,
                done_before: requests - left,
                loading: true,
                age,
                redone: 0,
                boundary: Time::ZERO,
            };
        }
        EpisodeJob {
            job: index,
            placement: entry.placement.clone(),
            start: CalendarTime::from_ns(entry.segment.pause.total()).network_time(),
            phase: Span::ZERO,
            left,
            done_before: job.iterations - left,
            loading: false,
            age,
            redone: 0,
            boundary: Time::ZERO,
        }
    }
}
