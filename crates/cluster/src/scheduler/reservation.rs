//! What the head of the queue will get where a number of free GPUs does not say so: which GPUs, and when.
//!
//! Running jobs give theirs back when they are expected to, what is out comes back when it is, and after each such instant the
//! head's placement is asked. The first answer is its reservation. It stands until something happens that was not
//! expected: jobs that start beside it either have gone by then or leave the head legal GPUs, which its placement is asked too.

use std::collections::BTreeMap;

use windtunnel_kernel::EndpointId;

use super::policy::Absence;
use crate::free::FreeSet;
use crate::view::{JobId, View};

/// GPUs that are out, and until when as far as is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Absences(BTreeMap<EndpointId, u64>);

impl Absences {
    /// They are gone, or for longer than was known.
    pub(super) fn lost(&mut self, absence: &Absence) {
        self.0.extend(absence.gpus.iter().map(|&gpu| (gpu, absence.until)));
    }

    /// They come back at the begin of `absence`.
    pub(super) fn regained(&mut self, absence: &Absence, now: u64) {
        for &gpu in &absence.gpus {
            if absence.from > now {
                self.0.insert(gpu, absence.from);
            } else {
                self.0.remove(&gpu);
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u64, EndpointId)> + '_ {
        self.0.iter().map(|(&gpu, &until)| (until, gpu))
    }
}

/// The head's. See the module page.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    head: JobId,
    /// When it can start, if nothing unexpected happens.
    pub at: u64,
    /// What is free then, less what jobs have taken that will not have gone.
    free: FreeSet,
    /// Of that, what its placement would give it.
    kept: Vec<EndpointId>,
}

impl Reservation {
    /// The earliest for `head`; `None` if what it needs is out, and nobody knows for how long.
    pub(super) fn of(head: JobId, absences: &Absences, cluster: &dyn View) -> Option<Self> {
        let now = cluster.now();
        let running =
            cluster.running().iter().map(|running| (cluster.expected_release(running.job), running));
        let mut coming: Vec<(u64, Vec<EndpointId>)> = running
            .chain(cluster.on_their_way())
            .map(|(at, running)| (at.max(now), cluster.given_back_by(running)))
            .collect();
        coming.extend(
            absences.iter().filter(|&(at, _)| at < u64::MAX).map(|(at, gpu)| (at.max(now), vec![gpu])),
        );
        coming.sort_unstable();
        let gpus = cluster.job(head).gpus;
        let mut free = cluster.regions()[0].clone();
        let mut rest = coming.as_slice();
        while let [(at, _), ..] = rest {
            let at = *at;
            let together = rest.partition_point(|&(other, _)| other == at);
            rest[..together].iter().for_each(|(_, back)| free.give(back));
            rest = &rest[together..];
            if free.count() >= gpus
                && let Some(kept) = cluster.place_on(head, &free)
            {
                return Some(Self { head, at, free, kept });
            }
        }
        None
    }

    /// Whether it still is what `head` can expect.
    pub(super) fn holds(&self, head: JobId, now: u64) -> bool {
        self.head == head && now <= self.at
    }

    /// GPUs that will be free then and that the head needs not: jobs that need more are in its way.
    pub(super) fn extra(&self, cluster: &dyn View) -> u32 {
        self.free.count() - cluster.job(self.head).gpus
    }

    /// Where the head could start then if `placement` were taken until after that.
    pub(super) fn beside(&mut self, placement: &[EndpointId], cluster: &dyn View) -> Option<Vec<EndpointId>> {
        self.free.take(placement);
        let kept = cluster.place_on(self.head, &self.free);
        self.free.give(placement);
        kept
    }

    /// What is free `now` less what the head would need of it: of a host as many as will not come free besides.
    pub(super) fn others(&self, now: &FreeSet) -> FreeSet {
        let mut needs: BTreeMap<u32, u32> = BTreeMap::new();
        for gpu in &self.kept {
            *needs.entry(gpu.0 / now.per_host()).or_default() += 1;
        }
        let mut kept = Vec::new();
        for (host, gpus) in needs {
            let comes = self.free.free_on(host) - now.free_on(host);
            let needed = gpus.saturating_sub(comes) as usize;
            let free = (0..now.per_host()).filter(|&gpu| now.is_free(host, gpu));
            kept.extend(free.take(needed).map(|gpu| now.endpoint(host, gpu)));
        }
        let mut others = now.clone();
        others.take(&kept);
        others
    }

    /// A job has started on `placement`, which it will give back at `release`; whether the reservation still stands.
    pub(super) fn started(&mut self, placement: &[EndpointId], release: u64, cluster: &dyn View) -> bool {
        if release <= self.at {
            return true;
        }
        if !self.free.are_free(placement) {
            return false;
        }
        self.free.take(placement);
        match cluster.place_on(self.head, &self.free) {
            Some(kept) => {
                self.kept = kept;
                true
            }
            None => false,
        }
    }
}
