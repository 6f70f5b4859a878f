//! What a scheduler sees of a cluster, and the names that both use: jobs, and where they run.
//!
//! A [`View`] only tells. The [`Cluster`](crate::cluster::Cluster) is the view of a run, and a test may have one of its own. A
//! scheduler knows the view and nothing behind it, so what it decides can only be carried out by whoever asked.

use windtunnel_kernel::{CalendarTime, EndpointId, define_id};

use crate::free::FreeSet;
use crate::placement::Locality;
use crate::queue::Queue;

define_id! {
    /// A job, by its place in the order of submission.
    pub struct JobId;
}

/// A job as it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// When it is submitted.
    pub submit: CalendarTime,
    /// Nanoseconds that a scheduler expects it to run, at least 1.
    pub estimate: u64,
    /// Nanoseconds from its submission in which it should have ended; [`u64::MAX`]: whenever it does.
    pub deadline: u64,
    /// GPUs that it needs, at least 1.
    pub gpus: u32,
    /// Higher goes first, where the scheduler looks at it.
    pub priority: i32,
    /// How close together its GPUs must be.
    pub locality: Locality,
    /// Index of its placement in [`Machine::placements`](crate::cluster::Machine::placements).
    pub placement: u8,
}

/// A running job.
#[derive(Clone, Debug)]
pub struct Running {
    /// Which.
    pub job: JobId,
    /// GPU of each rank.
    pub placement: Vec<EndpointId>,
    /// The region it runs in.
    pub region: u32,
}

/// A cluster as a scheduler sees it: see the module page.
pub trait View {
    /// The present in nanoseconds.
    fn now(&self) -> u64;
    /// A job as it was submitted.
    fn job(&self, job: JobId) -> &Job;
    /// Waiting jobs.
    fn queue(&self) -> &Queue;
    /// Running jobs, in no particular order.
    fn running(&self) -> &[Running];
    /// A running job; `None` if it does not run.
    fn running_job(&self, job: JobId) -> Option<&Running>;
    /// Whether a job waits.
    fn waits(&self, job: JobId) -> bool;
    /// Free GPUs of each region.
    fn regions(&self) -> &[FreeSet];
    /// Free GPUs of all regions.
    fn free(&self) -> u32;
    /// Whether `job` fits as soon as enough GPUs are free, wherever they are.
    fn fits_by_count(&self, job: JobId) -> bool;
    /// Whether all jobs do.
    fn all_fit_by_count(&self) -> bool;
    /// Whether the placement of `job` gives GPUs that are free and enough for certain.
    fn trusts_placement(&self, job: JobId) -> bool;
    /// GPUs of jobs that have ended or were interrupted, with the instant from which on they can be given away, in order of it.
    fn on_their_way(&self) -> Box<dyn Iterator<Item = (u64, &Running)> + '_>;
    /// When a job was submitted: later than it asked to be where the queue was full.
    fn submitted_at(&self, job: JobId) -> Option<CalendarTime>;
    /// When a job that was submitted should have ended, in nanoseconds; `None`: whenever it does.
    fn deadline_of(&self, job: JobId) -> Option<u64>;
    /// When a running job got the GPUs that it has.
    fn started(&self, job: JobId) -> u64;
    /// Nanoseconds of work that a job has done before its last start and that count.
    fn done(&self, job: JobId) -> u64;
    /// Nanoseconds from a start now until the job's GPUs can be given away again, as a scheduler expects.
    fn expected_hold(&self, job: JobId) -> u64;
    /// When the GPUs of a running job can be given away again, as a scheduler expects; in the past if it is overdue.
    fn expected_release(&self, job: JobId) -> u64;
    /// GPUs for `job` in `region` by its placement; `None` if no choice is legal.
    fn place(&self, job: JobId, region: u32) -> Option<Vec<EndpointId>>;
    /// GPUs for `job` among those free in a set of the scheduler's own.
    fn place_on(&self, job: JobId, free: &FreeSet) -> Option<Vec<EndpointId>>;
    /// A region with all its GPUs free.
    fn empty_region(&self, region: u32) -> FreeSet;
    /// Those of a job's GPUs that come free as it is stopped: others are out of service by now.
    fn given_back_by(&self, running: &Running) -> Vec<EndpointId>;
}
