//! Elastic jobs: fewer GPUs than asked where there are no more, and slower in proportion; more once nobody waits.
//!
//! After the scheduler has decided all that it wants, three rules, in this order: a head of the queue that is elastic starts on
//! what there is, if that is enough for it; for a head that is short of GPUs, running elastic jobs give some up, the latest started
//! first, if that suffices and the scheduler lets them; with an empty queue, elastic jobs take what is free, in order of submission, if they end sooner for
//! it. To change its size a job writes a checkpoint, and restarts: it pays as one that is stopped and moves.
//!
//! A job whose work can be laid out over some numbers of GPUs only goes from one of those to another ([`Sizes`]), and gives up a
//! few more than are missed.
//!
//! Work is conserved: a job asked for w on n GPUs takes w·n/m on m. It is kept in nanoseconds of the n GPUs, so each stretch on
//! others rounds away less than one.

use windtunnel_kernel::EndpointId;

use super::{Cluster, JobId, Running, View};
use crate::life::{Life, Sizes};
use crate::placement::Need;
use crate::scheduler::Scheduler;

/// What a job that runs on `has` GPUs and was asked for `asked` does in `ns`, in time of the latter.
pub(super) const fn done_in(ns: u64, has: u64, asked: u64) -> u64 {
    if has == asked { ns } else { (ns as u128 * has as u128 / asked as u128) as u64 }
}

/// How long such a job takes for what takes `ns` on those that were asked for.
pub(super) const fn time_for(ns: u64, has: u64, asked: u64) -> u64 {
    if has == asked { ns } else { (ns as u128 * asked as u128).div_ceil(has as u128) as u64 }
}

impl Cluster<'_> {
    /// How long a running job takes on its GPUs for what takes `work` on as many as were asked for.
    pub fn time_on_its_gpus(&self, job: JobId, work: u64) -> u64 {
        let has = self.running_job(job).map_or(0, |running| running.placement.len() as u64);
        if has == 0 { work } else { time_for(work, has, u64::from(self.job(job).gpus)) }
    }

    /// Carries out the rules of the module page; whether the scheduler is to be asked again.
    pub(super) fn stretch(&mut self, scheduler: &mut dyn Scheduler) -> bool {
        match scheduler.head(self) {
            Some(head) if self.waits(head) => {
                self.start_smaller(head, scheduler) || self.shrink_for(head, scheduler)
            }
            Some(_) => false,
            None => {
                self.grow(scheduler);
                false
            }
        }
    }

    fn life(&self, job: JobId) -> &Life {
        self.machine.lives.of(job.0 as usize)
    }

    /// Legal GPUs for `job`, `gpus` of them, in a region.
    fn place_some(&self, job: JobId, gpus: u32, region: u32) -> Option<Vec<EndpointId>> {
        let known = self.job(job);
        let need = Need { gpus, locality: known.locality, key: self.placement_key(job) };
        self.machine.placements[usize::from(known.placement)].place(&self.regions[region as usize], need)
    }

    fn start_smaller(&mut self, head: JobId, scheduler: &mut dyn Scheduler) -> bool {
        let Some(sizes) = self.life(head).elastic.clone() else { return false };
        // The region with the most free GPUs first.
        let mut regions: Vec<(std::cmp::Reverse<u32>, u32)> = self
            .regions
            .iter()
            .zip(0..)
            .map(|(free, region)| (std::cmp::Reverse(free.count()), region))
            .collect();
        regions.sort_unstable();
        for (std::cmp::Reverse(free), region) in regions {
            // Sizes in between are tried where placements refuse the largest.
            let mut next = sizes.up_to(self.job(head).gpus.min(free));
            while let Some(size) = next {
                if let Some(placement) = self.place_some(head, size, region) {
                    self.start(head, Running { job: head, placement, region }, scheduler);
                    return true;
                }
                next = sizes.after(size);
            }
        }
        false
    }

    fn shrink_for(&mut self, head: JobId, scheduler: &mut dyn Scheduler) -> bool {
        let wanted = self.life(head).elastic.as_ref().map_or(self.job(head).gpus, Sizes::least);
        // The region that is short of the fewest.
        let mut regions: Vec<(u32, u32)> = (0..self.regions.len() as u32)
            .map(|region| (wanted.saturating_sub(self.regions[region as usize].count()), region))
            .filter(|&(short, region)| short > 0 && self.regions[region as usize].total() >= wanted)
            .collect();
        regions.sort_unstable();
        regions.into_iter().any(|(short, region)| self.shrink_in(region, head, short, scheduler))
    }

    /// Has jobs of a region give up `short` GPUs for `head`, if they have as many to give.
    fn shrink_in(&mut self, region: u32, head: JobId, mut short: u32, scheduler: &mut dyn Scheduler) -> bool {
        let mut givers: Vec<(u64, JobId, u32)> = Vec::new();
        for running in self.running.iter().filter(|running| running.region == region) {
            if let Some(sizes) = &self.life(running.job).elastic
                && scheduler.may_shrink(running.job, head, self)
            {
                let spare = (running.placement.len() as u32).saturating_sub(sizes.least());
                // What fails or is drained meanwhile does not come back.
                if spare > 0 && self.given_back_by(running).len() == running.placement.len() {
                    givers.push((self.started(running.job), running.job, spare));
                }
            }
        }
        if givers.iter().map(|&(.., spare)| u64::from(spare)).sum::<u64>() < u64::from(short) {
            return false;
        }
        givers.sort_unstable_by_key(|&(started, job, _)| (std::cmp::Reverse(started), job));
        for (_, job, spare) in givers {
            let has = self.running_job(job).map_or(0, |running| running.placement.len() as u32);
            let sizes = self.life(job).elastic.as_ref();
            let size = sizes.and_then(|sizes| sizes.up_to(has - spare.min(short))).expect("as much is spare");
            if self.resize(job, size, scheduler) {
                short = short.saturating_sub(has - size);
            }
            if short == 0 {
                break;
            }
        }
        short == 0
    }

    fn grow(&mut self, scheduler: &mut dyn Scheduler) {
        if self.free() == 0 {
            return;
        }
        let is_elastic = |job: &JobId| self.life(*job).elastic.is_some();
        let mut elastic: Vec<JobId> =
            self.running.iter().map(|running| running.job).filter(is_elastic).collect();
        elastic.sort_unstable();
        for job in elastic {
            let Some(running) = self.running_job(job) else { continue };
            let (has, asked) = (running.placement.len() as u32, self.job(job).gpus);
            let free = self.regions[running.region as usize].count();
            let (segment, life) = (*self.segment(job).expect("it runs"), self.life(job));
            let within = self.given_back_by(running).len() as u32 + free;
            let Some(size) = life.elastic.as_ref().and_then(|sizes| sizes.up_to(within)) else { continue };
            if size <= has {
                continue;
            }
            let state = segment.at(self.now);
            let did = done_in(state.parts.work, u64::from(has), u64::from(asked));
            let left = self.job(job).estimate.saturating_sub(self.done(job) + did).max(1);
            let stays = state.pause.total() + time_for(left, u64::from(has), u64::from(asked));
            let pays = life.restart + life.migration + life.write();
            let moves = pays.saturating_add(time_for(left, u64::from(size), u64::from(asked)));
            if moves < stays {
                self.resize(job, size, scheduler);
            }
        }
    }

    /// Stops a running job and starts it on `size` GPUs, or again on as many as it had if none of that number are legal;
    /// whether it has that size now.
    fn resize(&mut self, job: JobId, size: u32, scheduler: &mut dyn Scheduler) -> bool {
        let Some(before) = self.running_job(job).cloned() else { return false };
        if self.stop(job, true, scheduler).is_err() {
            return false;
        }
        let region = before.region;
        let (placement, resized) = match self.place_some(job, size, region) {
            Some(placement) => (placement, true),
            None => (before.placement, false),
        };
        if self.regions[region as usize].are_free(&placement) {
            self.start(job, Running { job, placement, region }, scheduler);
        }
        resized
    }
}
