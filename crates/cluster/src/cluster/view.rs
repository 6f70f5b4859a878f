//! What schedulers and drivers see of a cluster.

use windtunnel_kernel::CalendarTime;

use super::{Cluster, Debts, Job, JobId, JobTime, NEVER, Place, Queue, Running};
use crate::free::FreeSet;
use crate::life::Segment;
use crate::placement::Locality;

impl<'a> Cluster<'a> {
    /// The present in nanoseconds.
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// A job as it was submitted.
    pub fn job(&self, job: JobId) -> &'a Job {
        &self.jobs[job.0 as usize]
    }

    /// Waiting jobs.
    pub const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Running jobs, in no particular order.
    pub fn running(&self) -> &[Running] {
        &self.running
    }

    /// A running job; `None` if it does not run.
    pub fn running_job(&self, job: JobId) -> Option<&Running> {
        match self.status[job.0 as usize].place {
            Place::Running(place) => Some(&self.running[place as usize]),
            _ => None,
        }
    }

    /// Whether a job waits.
    pub fn waits(&self, job: JobId) -> bool {
        matches!(self.status[job.0 as usize].place, Place::Waiting(_))
    }

    /// Free GPUs of each region.
    pub fn regions(&self) -> &[FreeSet] {
        &self.regions
    }

    /// Free GPUs of all regions.
    pub fn free(&self) -> u32 {
        self.regions.iter().map(FreeSet::count).sum()
    }

    /// Whether `job` fits as soon as enough GPUs are free, wherever they are.
    pub fn fits_by_count(&self, job: JobId) -> bool {
        let job = self.job(job);
        job.locality == Locality::Anywhere
            && self.machine.placements[usize::from(job.placement)].fits_by_count()
    }

    /// Whether all jobs do.
    pub const fn all_fit_by_count(&self) -> bool {
        self.by_count
    }

    /// Whether the placement of `job` gives GPUs that are free and enough for certain.
    pub fn trusts_placement(&self, job: JobId) -> bool {
        self.placement_of(job).is_trusted()
    }

    /// GPUs of jobs that have ended or were interrupted, with the instant from which on they can be given away, in order of it.
    pub fn on_their_way(&self) -> impl Iterator<Item = (u64, &Running)> + '_ {
        self.releases.iter().map(|(at, _, running)| (*at, running))
    }

    /// When a job was submitted: later than it asked to be where the queue was full.
    pub fn submitted_at(&self, job: JobId) -> Option<CalendarTime> {
        let at = self.status[job.0 as usize].submitted;
        (at != NEVER).then_some(CalendarTime(at))
    }

    /// When a job that was submitted should have ended, in nanoseconds; `None`: whenever it does.
    pub fn deadline_of(&self, job: JobId) -> Option<u64> {
        let within = Some(self.job(job).deadline).filter(|&within| within < u64::MAX)?;
        Some(self.submitted_at(job)?.0.saturating_add(within))
    }

    /// Free GPUs on hosts that are not wholly free.
    pub fn broken_free(&self) -> u64 {
        let whole = |free: &FreeSet| free.bucket(free.per_host()).len() as u64 * u64::from(free.per_host());
        self.regions.iter().map(|free| u64::from(free.count()) - whole(free)).sum()
    }

    /// When a job first got GPUs.
    pub fn first_start(&self, job: JobId) -> Option<CalendarTime> {
        let start = self.status[job.0 as usize].first_start;
        (start != NEVER).then_some(CalendarTime(start))
    }

    /// When a running job got the GPUs that it has.
    pub fn started(&self, job: JobId) -> u64 {
        self.status[job.0 as usize].start
    }

    /// Times that a job was started.
    pub fn starts(&self, job: JobId) -> u32 {
        self.status[job.0 as usize].starts
    }

    /// Nanoseconds of work that a job has done before its last start and that count.
    pub fn done(&self, job: JobId) -> u64 {
        self.status[job.0 as usize].done
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
        let status = &self.status[job.0 as usize];
        JobTime {
            lost: status.lost,
            checkpoint: status.checkpoint,
            stops: status.starts.saturating_sub(1 + status.interruptions),
            interruptions: status.interruptions,
        }
    }

    /// Nanoseconds from a start now until the job's GPUs can be given away again, as a scheduler expects.
    pub fn expected_hold(&self, job: JobId) -> u64 {
        let status = &self.status[job.0 as usize];
        let debts = match status.place {
            Place::Waiting(debts) | Place::Away(debts) => debts,
            _ => Debts::NONE,
        };
        let segment = self.opening(job, debts, None);
        let left = self.job(job).estimate.saturating_sub(status.done).max(1);
        segment.time_for(left).saturating_add(self.machine.reaction_delay.ns_ceil())
    }

    /// When the GPUs of a running job can be given away again, as a scheduler expects; in the past if it is overdue.
    pub fn expected_release(&self, job: JobId) -> u64 {
        let status = &self.status[job.0 as usize];
        let left = self.job(job).estimate.saturating_sub(status.done).max(1);
        let Some(segment) = self.segment(job) else { return self.now };
        let span = segment.time_for(self.time_on_its_gpus(job, left));
        segment.begin.saturating_add(span).saturating_add(self.machine.reaction_delay.ns_ceil())
    }
}
