//! What schedulers and drivers see of a cluster.

use windtunnel_kernel::{CalendarTime, EndpointId};

use super::machine::empty_region;
use super::{Cluster, Job, JobId, JobTime, NEVER, Place, Queue, Running, View};
use crate::free::FreeSet;
use crate::life::{Debts, Segment};
use crate::placement::{Locality, Need};

impl View for Cluster<'_> {
    fn now(&self) -> u64 {
        self.now
    }

    fn job(&self, job: JobId) -> &Job {
        &self.jobs[job.0 as usize]
    }

    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn running(&self) -> &[Running] {
        &self.running
    }

    fn running_job(&self, job: JobId) -> Option<&Running> {
        match self.status[job.0 as usize].place {
            Place::Running(place) => Some(&self.running[place as usize]),
            _ => None,
        }
    }

    fn waits(&self, job: JobId) -> bool {
        matches!(self.status[job.0 as usize].place, Place::Waiting(_))
    }

    fn regions(&self) -> &[FreeSet] {
        &self.regions
    }

    fn free(&self) -> u32 {
        self.regions.iter().map(FreeSet::count).sum()
    }

    fn fits_by_count(&self, job: JobId) -> bool {
        let job = self.job(job);
        job.locality == Locality::Anywhere
            && self.machine.placements[usize::from(job.placement)].fits_by_count()
    }

    fn all_fit_by_count(&self) -> bool {
        self.by_count
    }

    fn trusts_placement(&self, job: JobId) -> bool {
        self.placement_of(job).is_trusted()
    }

    fn on_their_way(&self) -> Box<dyn Iterator<Item = (u64, &Running)> + '_> {
        Box::new(self.releases.iter().map(|(at, _, running)| (*at, running)))
    }

    fn submitted_at(&self, job: JobId) -> Option<CalendarTime> {
        let at = self.status[job.0 as usize].submitted;
        (at != NEVER).then_some(CalendarTime::from_ns(at))
    }

    fn deadline_of(&self, job: JobId) -> Option<u64> {
        let within = Some(self.job(job).deadline).filter(|&within| within < u64::MAX)?;
        Some(self.submitted_at(job)?.ns().saturating_add(within))
    }

    fn started(&self, job: JobId) -> u64 {
        self.status[job.0 as usize].start
    }

    fn done(&self, job: JobId) -> u64 {
        self.status[job.0 as usize].done
    }

    fn expected_hold(&self, job: JobId) -> u64 {
        let status = &self.status[job.0 as usize];
        let debts = match status.place {
            Place::Waiting(debts) | Place::Away(debts) => debts,
            _ => Debts::NONE,
        };
        let segment = self.opening(job, debts, None);
        let left = self.job(job).estimate.saturating_sub(status.done).max(1);
        segment.time_for(left).saturating_add(self.machine.reaction_delay.ns_ceil())
    }

    fn expected_release(&self, job: JobId) -> u64 {
        let status = &self.status[job.0 as usize];
        let left = self.job(job).estimate.saturating_sub(status.done).max(1);
        let Some(segment) = self.segment(job) else { return self.now };
        let span = segment.time_for(self.time_on_its_gpus(job, left));
        segment.begin.saturating_add(span).saturating_add(self.machine.reaction_delay.ns_ceil())
    }

    fn place(&self, job: JobId, region: u32) -> Option<Vec<EndpointId>> {
        self.place_on(job, &self.regions[region as usize])
    }

    fn place_on(&self, job: JobId, free: &FreeSet) -> Option<Vec<EndpointId>> {
        let Job { gpus, locality, placement, .. } = *self.job(job);
        let key = self.placement_key(job);
        self.machine.placements[usize::from(placement)].place(free, Need { gpus, locality, key })
    }

    fn empty_region(&self, region: u32) -> FreeSet {
        empty_region(self.machine, self.grouped, region)
    }

    fn given_back_by(&self, running: &Running) -> Vec<EndpointId> {
        let stays =
            |gpu: &EndpointId| self.outages.as_ref().is_none_or(|outages| outages.of(*gpu).is_in_service());
        running.placement.iter().copied().filter(stays).collect()
    }
}

impl Cluster<'_> {
    /// Free GPUs on hosts that are not wholly free.
    pub fn broken_free(&self) -> u64 {
        let whole = |free: &FreeSet| free.bucket(free.per_host()).len() as u64 * u64::from(free.per_host());
        self.regions.iter().map(|free| u64::from(free.count()) - whole(free)).sum()
    }

    /// When a job first got GPUs.
    pub fn first_start(&self, job: JobId) -> Option<CalendarTime> {
        let start = self.status[job.0 as usize].first_start;
        (start != NEVER).then_some(CalendarTime::from_ns(start))
    }

    /// Times that a job was started.
    pub fn starts(&self, job: JobId) -> u32 {
        self.status[job.0 as usize].time.starts
    }

    /// What a running job does when, from its last start (or [`Self::replan`]) on; `None` if it does not run.
    pub fn segment(&self, job: JobId) -> Option<&Segment> {
        match self.status[job.0 as usize].place {
            Place::Running(place) => Some(&self.segments[place as usize]),
            _ => None,
        }
    }

    /// What became of a job's time so far.
    pub fn job_time(&self, job: JobId) -> JobTime {
        self.status[job.0 as usize].time
    }
}
