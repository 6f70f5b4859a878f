//! The trait of schedulers, what they decide and are told, and how those that come along are described.

use windtunnel_kernel::registry::Entry;
use windtunnel_kernel::{EndpointId, Span};

use crate::view::{JobId, Running, View};

/// What a scheduler wants done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start a waiting job in a region, on GPUs that its placement chooses.
    Start {
        /// Which.
        job: JobId,
        /// Where; 0 if there is only one.
        region: u32,
    },
    /// Start a waiting job on these GPUs.
    StartOn {
        /// Which.
        job: JobId,
        /// GPU of each rank, all free and of the region.
        placement: Vec<EndpointId>,
        /// Where.
        region: u32,
    },
    /// Stop a running job; it keeps the work that it has done, and pays a restart when it goes on.
    Preempt {
        /// Which.
        job: JobId,
    },
    /// Stop a running job that stays in its GPUs' memory: it can go on without a restart, on the same GPUs.
    Suspend {
        /// Which.
        job: JobId,
    },
}

/// GPUs that are out of service for a while: failed, drained, or kept as spares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    /// Their region.
    pub region: u32,
    /// From when on, at the earliest now.
    pub from: u64,
    /// Until when, as far as is known; `u64::MAX`: for good.
    pub until: u64,
    /// Which.
    pub gpus: Vec<EndpointId>,
}

/// Decides which jobs run.
pub trait Scheduler: Send {
    /// Name in a scenario.
    fn name(&self) -> &'static str;

    /// `job` waits: it was submitted, or stopped.
    fn queued(&mut self, job: JobId, cluster: &dyn View);

    /// `job` has got GPUs.
    fn started(&mut self, job: JobId, cluster: &dyn View);

    /// The GPUs of `job`, which has ended or was stopped, can be given away.
    fn released(&mut self, job: JobId, running: &Running, cluster: &dyn View);

    /// Free GPUs, or those of a job that was just released, are gone for a while; told again if it gets longer. They come
    /// back at the end without a word unless [`Self::regained`] says so.
    fn lost(&mut self, absence: &Absence, cluster: &dyn View) {
        let _ = (absence, cluster);
    }

    /// GPUs will come back at the begin of this part of an `absence` that was told, perhaps now, and not at its end.
    fn regained(&mut self, absence: &Absence, cluster: &dyn View) {
        let _ = (absence, cluster);
    }

    /// What is to be done now; asked again after each decision, until there is none.
    fn decide(&mut self, cluster: &dyn View) -> Option<Decision>;

    /// There are no legal GPUs for the job that was just to start.
    fn refused(&mut self, job: JobId, cluster: &dyn View);

    /// The waiting job whose turn is next, for which free GPUs may be stranded.
    fn head(&self, cluster: &dyn View) -> Option<JobId> {
        cluster.queue().head()
    }

    /// Whether `giver`, a running elastic job, may be made smaller so that `head` can start.
    fn may_shrink(&self, giver: JobId, head: JobId, cluster: &dyn View) -> bool {
        let _ = (giver, head, cluster);
        true
    }

    /// What went wrong in it, once something has: the run ends there. For schedulers that are not of this program.
    fn failure(&self) -> Option<String> {
        None
    }

    /// When it wants to be asked even if nothing happens.
    fn wakes(&self, cluster: &dyn View) -> Option<u64> {
        let _ = cluster;
        None
    }
}

/// What a scheduler may be told by a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// GPUs of the cluster.
    pub endpoints: u32,
    /// Length of a time slice.
    pub slice: Span,
    /// Rows of the gang scheduler's matrix.
    pub rows: u32,
}

/// A scheduler that comes along: what is said of it, what it can do, and how it is made. It stands in the scheduler's own file.
#[derive(Debug)]
pub struct BuiltIn {
    /// Its name and a line about it.
    pub entry: Entry,
    /// Whether it can do with jobs that get more or fewer GPUs than they asked for.
    pub knows_elastic: bool,
    /// Whether it works with several regions.
    pub knows_regions: bool,
    /// Makes it.
    pub make: fn(&Options) -> Box<dyn Scheduler>,
}

impl BuiltIn {
    /// One that knows elastic jobs and a single region, as most do.
    pub(super) const fn new(
        name: &'static str,
        summary: &'static str,
        make: fn(&Options) -> Box<dyn Scheduler>,
    ) -> Self {
        Self { entry: Entry::new(name, summary), knows_elastic: true, knows_regions: false, make }
    }
}
