//! Who hears what happens to jobs and GPUs, as it happens, whichever driver moves the clock.

use windtunnel_kernel::{CalendarTime, EndpointId};

use super::{Change, Cluster, FaultRecord, JobId, View};

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

impl Cluster<'_> {
    pub(super) fn notify(&self, happening: Happening<'_>) {
        if let Some(listener) = self.machine.listener {
            listener.hears(CalendarTime::from_ns(self.now), happening);
        }
    }

    /// Notes a change for the driver, and tells of it.
    pub(super) fn change(&mut self, change: Change) {
        self.changes.push(change);
        match change {
            Change::Started(job) => {
                if let Some(running) = self.running_job(job) {
                    self.notify(Happening::Started(job, &running.placement));
                }
            }
            Change::Stopped(job) => self.notify(Happening::Stopped(job)),
            Change::Suspended(job) => self.notify(Happening::Suspended(job)),
            Change::Interrupted(job) => self.notify(Happening::Interrupted(job)),
        }
    }

    pub(super) fn notify_of_faults(&self, from: usize) {
        if self.machine.listener.is_some() {
            self.log.since(from).iter().for_each(|record| self.notify(Happening::Out(record)));
        }
    }
}
