//! What becomes of members that meet: they advance together, or each goes by steps or message by message.

use std::cmp::Reverse;

use windtunnel_fabric::{Fabric, Notice};
use windtunnel_kernel::Time;

use super::exchanges::Course;
use super::groups::{Coupled, ask, start_group, start_meeting};
use super::running::{Observer, Running};
use super::{COUPLED, Shard};
use crate::coupler::Member;

/// Members of a group that are looked ahead as it ends: what they need is some of these on its way.
const FORESEEN: usize = 4;

impl<F: Fabric, O: Observer> Shard<'_, F, O> {
    /// Hands complete groups to the fabric, or tells their members to run by steps where they came too far apart.
    pub(super) fn start_groups(&mut self, job: usize) {
        let mut complete = std::mem::take(&mut self.complete);
        for group in complete.drain(..) {
            let join = match group.what {
                Coupled::Join(join) => join,
                Coupled::Meet(meet) => {
                    start_meeting(&mut self.fabric, &mut self.jobs[job], job, group, &meet);
                    continue;
                }
                Coupled::Came(join) => {
                    match ask(&mut self.fabric, &mut self.jobs[job], job, group, &join) {
                        Course::Whole(..) | Course::Wait(None) => {}
                        Course::Wait(Some(until)) => {
                            let stamp = self.jobs[job].coupler.stamp(group.run);
                            self.timers.push(Reverse((until, job, group.run, stamp)));
                        }
                        Course::ByMessage => self.break_up(job, group.run, self.fabric.now()),
                    }
                    continue;
                }
                Coupled::Late(member) => {
                    self.by_steps(job, member, self.fabric.now());
                    continue;
                }
            };
            if start_group(&mut self.fabric, &mut self.jobs[job], job, group, join, self.rings) {
                continue;
            }
            let mut members = Vec::new();
            self.jobs[job].coupler.close(group.run, &mut members);
            for member in members {
                self.by_steps(job, member, self.fabric.now());
            }
        }
        // What the steps completed meanwhile has been handled inside; keep the allocation.
        if self.complete.is_empty() {
            self.complete = complete;
        }
    }

    /// Lets those who have come to a run go message by message, not before `now`.
    pub(super) fn break_up(&mut self, job: usize, run: u32, now: Time) {
        let Running { coupler, exchanges, .. } = &mut self.jobs[job];
        let mut members = Vec::new();
        if coupler.stamp(run) == 0 {
            // All had come.
            coupler.close(run, &mut members);
        } else {
            coupler.break_up(run, &mut members);
        }
        for member in &members {
            exchanges.waited(member.rank, now.since(member.ready));
        }
        for member in members {
            self.by_steps(job, member, now);
        }
    }

    /// Lets a member go by steps, not before `now`.
    fn by_steps(&mut self, job: usize, member: Member, now: Time) {
        let Member { rank, token, ready } = member;
        let at = ready.max(now);
        if self.with(job, rank, |replay, machine| replay.run_by_steps(rank, token, at, machine)) {
            self.go_on(job, rank);
        }
    }

    pub(super) fn coupled_end(&mut self, notice: &Notice) {
        let job = ((notice.ticket.0 & !COUPLED) >> 32) as usize;
        let run = notice.ticket.0 as u32;
        let mut members = std::mem::take(&mut self.members);
        let start = self.jobs[job].coupler.start(run);
        self.jobs[job].coupler.close(run, &mut members);
        self.jobs[job].exchanges.ended(run, &members, notice.at);
        for (place, &Member { rank, token, .. }) in members.iter().enumerate() {
            if let Some(later) = members.get(place + FORESEEN) {
                self.jobs[job].replay.foresee(later.rank, later.token);
            }
            if self.with(job, rank, |replay, machine| replay.finished(rank, token, notice.at, start, machine))
            {
                self.go_on(job, rank);
            }
        }
        self.members = members;
    }
}
