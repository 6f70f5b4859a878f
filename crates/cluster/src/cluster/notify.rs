//! How the cluster tells its [`Listener`](super::Listener) what happens.

use windtunnel_kernel::CalendarTime;

use super::{Change, Cluster, Happening, View};

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
