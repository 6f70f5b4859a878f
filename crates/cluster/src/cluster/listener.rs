//! Who hears what happens to jobs and GPUs, as it happens, whichever driver moves the clock.

use windtunnel_kernel::{CalendarTime, EndpointId};

use super::{FaultRecord, JobId};

/// What happens at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening<'a> {
    /// The job waits from now on.
    Submitted(JobId),
    /// The job has these GPUs.
    Started(JobId, &'a [EndpointId]),
    /// The job was stopped and waits again; it keeps its work in a checkpoint.
    Stopped(JobId),
    /// The job was stopped and waits again; it keeps its work in the memory of its GPUs.
    Suspended(JobId),
    /// The job lost its GPUs, and goes back to its last checkpoint.
    Interrupted(JobId),
    /// The job has ended.
    Ended(JobId),
    /// Something failed, or its maintenance began. What it did to jobs comes before.
    Out(&'a FaultRecord),
}

/// Hears what happens. It is asked nothing, so no result depends on it.
pub trait Listener {
    /// All before `now` has happened, and the clock goes there next. Who wants to look at the run as it stands waits in here.
    fn goes_to(&self, now: CalendarTime);

    /// `happening` happens at `now`.
    fn hears(&self, now: CalendarTime, happening: Happening<'_>);
}
