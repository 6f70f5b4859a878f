//! When jobs write checkpoints, and which of their neighbours notice.
//!
//! A write that takes more than a sliver of a job's time changes its group as it begins, at the end of the iteration in which it is due,
//! and as it ends; while it lasts for many iterations of others the job is a group of its own. Shorter writes are a closed form of the
//! job's time ([`Segment`]). Nothing is written in a last iteration.

use windtunnel_kernel::Span;

use super::super::progress::{NORMAL_95, Work};
use super::{Calendar, Entry, NONE};
use crate::life::{Checkpoint, Every, Segment};
use crate::view::View;

/// Writes that take less than one in so many of what a cut iteration may be of an episode are no change of the group: neighbours could
/// be faster by that part of their time at most, and each change costs some iterations of all of them.
const SLIVERS: u64 = 2;

/// Nanoseconds that the begin of an iteration may be rounded by.
const ROUNDED: u64 = 2;

impl Calendar<'_> {
    /// Takes jobs out of their groups that write for so long that many iterations of others end meanwhile: these go on without them,
    /// and meet them again when the write is over. The places of those jobs, and of all others.
    pub(super) fn set_apart(&mut self) -> (Vec<usize>, Vec<usize>) {
        let now = self.cluster.now();
        let longest = self.running.iter().map(|entry| self.mean(entry)).fold(Span::ZERO, Span::max).ns_ceil();
        let limit = longest.saturating_mul(self.settings.carry_below);
        let (mut apart, mut together) = (Vec::new(), Vec::new());
        for place in 0..self.running.len() {
            let segment = self.cluster.segment(self.running[place].id).expect("it runs").split(now).1;
            let entry = &mut self.running[place];
            entry.resumes = u64::MAX;
            if limit == 0 || entry.loading || segment.pause.checkpoint == 0 || segment.pause.total() <= limit
            {
                together.push(place);
                continue;
            }
            entry.resumes = now.saturating_add(segment.pause.total());
            apart.push(place);
            if self.live.get(&entry.episode).is_some_and(|live| live.jobs > 1) {
                let mut entry = self.running.remove(place);
                self.settle(&mut entry);
                self.depart(&entry);
                self.running.insert(place, Entry { segment, epoch: now, episode: NONE, ..entry });
            }
        }
        (apart, together)
    }

    /// Tells the cluster when a job writes whose checkpoints are due after so many iterations.
    pub(super) fn plan(&mut self, place: usize) {
        let told = self.tells(place);
        let entry = &mut self.running[place];
        entry.write = u64::MAX;
        let id = entry.id.0 as usize;
        let life = &self.requests[self.given[id]].life;
        let Some(Checkpoint { every, .. }) = life.checkpoint else { return };
        let Every::Iterations(count) = every else {
            if told {
                self.tell(place);
            } else if self.settings.iterates {
                self.leave_out_last(place);
            }
            return;
        };
        let pause = entry.segment.pause;
        // A write under way keeps all that is done.
        let since = if pause.checkpoint > 0 { 0 } else { self.left_safe[id].0.saturating_sub(entry.left.0) };
        let due = Work(Work::iterations(count).0.saturating_sub(since).max(1));
        let first = entry.rate.time_for(due).saturating_sub(pause.total());
        let every = (entry.rate.mean * count).ns_ceil();
        self.cluster.replan(entry.id, first, every);
        entry.segment = *self.cluster.segment(entry.id).expect("it runs");
        if told && due < entry.left {
            entry.write = self.cluster.now().saturating_add(pause.total()).saturating_add(first.max(1));
        }
    }

    /// What writes add to the variance of a job's time, in square nanoseconds, once it has taken `took` of them: one may decide in which
    /// iteration a write is due, and so how many there are.
    pub(super) fn variance_of_writes(&self, job: usize, took: u64) -> f64 {
        match self.requests[job].life.checkpoint {
            Some(Checkpoint { every: Every::Time(every), write }) if took >= every => {
                let off = write as f64 / NORMAL_95;
                off * off
            }
            _ => 0.0,
        }
    }

    /// Whether others notice when a job writes its checkpoints: it has company, and that is more than a sliver of its time.
    pub(super) fn tells(&self, place: usize) -> bool {
        let entry = &self.running[place];
        let Segment { every, write, .. } = entry.segment;
        let sliver = self.settings.carry_below.saturating_mul(SLIVERS);
        self.live.get(&entry.episode).is_some_and(|live| live.jobs > 1)
            && !entry.loading
            && u128::from(write) * u128::from(sliver) > u128::from(every) + u128::from(write)
    }

    /// Has a job write its next checkpoint as the iteration ends in which it is due, and its group notice.
    pub(super) fn tell(&mut self, place: usize) {
        let entry = &mut self.running[place];
        let Segment { pause, first, every, .. } = entry.segment;
        let due = pause.total().saturating_add(first);
        let (at, work) = entry.rate.end_after(due);
        if due == u64::MAX || work >= entry.left {
            // None comes after the last iteration.
            self.cluster.replan(entry.id, u64::MAX, every);
        } else {
            self.cluster.replan(entry.id, at.saturating_sub(pause.total()), every);
            entry.write = self.cluster.now().saturating_add(at);
        }
        entry.segment = *self.cluster.segment(entry.id).expect("it runs");
    }

    /// Has a job write nothing in its last iteration, as none that is told comes after that: where a write is due in it, plans are made
    /// again as it begins.
    fn leave_out_last(&mut self, place: usize) {
        let entry = &mut self.running[place];
        let Segment { pause, every, write, .. } = entry.segment;
        let worked = |work: Work| entry.rate.time_for(work).saturating_sub(pause.total());
        let last = worked(Work(entry.left.0.saturating_sub(Work::ONE)));
        if last <= ROUNDED {
            self.cluster.replan(entry.id, u64::MAX, every);
            entry.segment = *self.cluster.segment(entry.id).expect("it runs");
            return;
        }
        let before = entry.segment.writes_before(last);
        if entry.segment.writes_before(worked(entry.left)) > before {
            let written = before.saturating_mul(write);
            let at = pause.total().saturating_add(last).saturating_add(written).max(1);
            entry.write = self.cluster.now().saturating_add(at);
        }
    }

    /// Nanoseconds until a job begins a write that its neighbours notice, as far as that is known before it is simulated.
    pub(super) fn until_write(&self, place: usize) -> u64 {
        let Segment { pause, first, .. } = self.running[place].segment;
        if self.tells(place) { pause.total().saturating_add(first) } else { u64::MAX }
    }
}
