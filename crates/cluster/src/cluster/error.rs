//! Why a cluster cannot go on.

use windtunnel_kernel::EndpointId;

use super::JobId;
use crate::placement::Locality;

/// Why a cluster cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// A job waits for its data, and nothing will join it to them.
    #[error("job {job} waits for its data for ever: its storage hosts are cut off")]
    NoData {
        /// Which.
        job: JobId,
    },
    /// A job waits, and nothing will happen any more.
    #[error(
        "job {job} waits for ever: scheduler `{scheduler}` does not start it though nothing else happens"
    )]
    Starved {
        /// The first of those that wait.
        job: JobId,
        /// The scheduler's name.
        scheduler: &'static str,
    },
    /// A job finds no legal GPUs even if all are free.
    #[error("job {job} needs {gpus} GPUs (`{}`), more than the cluster can give it", locality.name())]
    NoRoom {
        /// The job.
        job: JobId,
        /// GPUs that it needs.
        gpus: u32,
        /// How close together.
        locality: Locality,
    },
    /// The job to start does not wait.
    #[error("scheduler `{scheduler}` starts job {job}, which does not wait")]
    NotWaiting {
        /// The scheduler's name.
        scheduler: &'static str,
        /// The job.
        job: JobId,
    },
    /// The job to stop does not run.
    #[error("scheduler `{scheduler}` stops job {job}, which does not run")]
    NotRunning {
        /// The scheduler's name.
        scheduler: &'static str,
        /// The job.
        job: JobId,
    },
    /// The region does not exist.
    #[error("scheduler `{scheduler}` starts job {job} in region {region}, expected less than {regions}")]
    NoRegion {
        /// The scheduler's name.
        scheduler: &'static str,
        /// The job.
        job: JobId,
        /// Where it was to start.
        region: u32,
        /// Number of regions.
        regions: usize,
    },
    /// A scheduler or placement of a user's own failed.
    #[error("{0}")]
    Policy(String),
    /// A placement gives a GPU that is not free, or twice.
    #[error("placement `{placement}` gives job {job} GPU {gpu}, which is not free or given twice")]
    GivenTaken {
        /// The placement's name.
        placement: &'static str,
        /// The job.
        job: JobId,
        /// The GPU.
        gpu: EndpointId,
    },
    /// A placement gives not as many GPUs as the job needs.
    #[error("placement `{placement}` gives job {job} {found} GPUs, expected {expected}")]
    GivenCount {
        /// The placement's name.
        placement: &'static str,
        /// The job.
        job: JobId,
        /// GPUs given.
        found: usize,
        /// GPUs needed.
        expected: u32,
    },
    /// A GPU is not free.
    #[error("scheduler `{scheduler}` starts job {job} on GPU {gpu}, which is not free")]
    Taken {
        /// The scheduler's name.
        scheduler: &'static str,
        /// The job.
        job: JobId,
        /// The GPU.
        gpu: EndpointId,
    },
    /// Not as many GPUs as the job needs.
    #[error("scheduler `{scheduler}` starts job {job} on {found} GPUs, expected {expected}")]
    WrongCount {
        /// The scheduler's name.
        scheduler: &'static str,
        /// The job.
        job: JobId,
        /// GPUs given.
        found: usize,
        /// GPUs needed.
        expected: u32,
    },
    /// A job is not over when the calendar is.
    #[error("job {job} goes on beyond the 292 years that the calendar counts")]
    Outlasts {
        /// Which.
        job: JobId,
    },
    /// A job gets nowhere.
    #[error("job {job} was interrupted {times} times in a row before it had written a checkpoint")]
    Hopeless {
        /// The job.
        job: JobId,
        /// How often.
        times: u32,
    },
}

impl ClusterError {
    /// The job that the message names, as `job N`.
    pub const fn job(&self) -> Option<JobId> {
        match self {
            Self::NoData { job }
            | Self::Starved { job, .. }
            | Self::NoRoom { job, .. }
            | Self::NotWaiting { job, .. }
            | Self::NotRunning { job, .. }
            | Self::NoRegion { job, .. }
            | Self::GivenTaken { job, .. }
            | Self::GivenCount { job, .. }
            | Self::Taken { job, .. }
            | Self::WrongCount { job, .. }
            | Self::Outlasts { job }
            | Self::Hopeless { job, .. } => Some(*job),
            Self::Policy(_) => None,
        }
    }
}
