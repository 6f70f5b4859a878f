//! Waiting jobs in order of submission: joined at the end, left anywhere, in constant time.
//!
//! Jobs are numbered in that order, so a job that comes back after an interruption goes before the fresh ones that were
//! submitted after it; the few that do are kept in an ordered set beside the list.

use std::collections::BTreeSet;

use crate::view::JobId;

const NONE: u32 = u32::MAX;

/// The queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// (before, after) of each job in the list of fresh ones.
    links: Vec<(u32, u32)>,
    first: u32,
    last: u32,
    /// Jobs that came back.
    back: BTreeSet<u32>,
    len: usize,
}

impl Queue {
    /// An empty queue for jobs 0 to `jobs` - 1.
    pub fn new(jobs: usize) -> Self {
        Self { links: vec![(NONE, NONE); jobs], first: NONE, last: NONE, back: BTreeSet::new(), len: 0 }
    }

    /// Number of waiting jobs.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `job` is submitted; all that were before have lower numbers.
    pub fn join(&mut self, job: JobId) {
        self.links[job.0 as usize] = (self.last, NONE);
        match self.last {
            NONE => self.first = job.0,
            last => self.links[last as usize].1 = job.0,
        }
        self.last = job.0;
        self.len += 1;
    }

    /// `job` waits again.
    pub fn rejoin(&mut self, job: JobId) {
        self.back.insert(job.0);
        self.len += 1;
    }

    /// `job`, which waits, waits no longer.
    pub fn leave(&mut self, job: JobId) {
        self.len -= 1;
        if self.back.remove(&job.0) {
            return;
        }
        let (before, after) = self.links[job.0 as usize];
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].1 = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].0 = before,
        }
    }

    /// The job that has waited longest.
    pub fn head(&self) -> Option<JobId> {
        self.iter().next()
    }

    /// All in order of submission.
    pub fn iter(&self) -> impl Iterator<Item = JobId> + '_ {
        let next = |job: u32| (job != NONE).then_some(job);
        let mut fresh =
            std::iter::successors(next(self.first), move |&job| next(self.links[job as usize].1)).peekable();
        let mut back = self.back.iter().copied().peekable();
        std::iter::from_fn(move || match (fresh.peek(), back.peek()) {
            (Some(a), Some(b)) if b < a => back.next(),
            (Some(_), _) => fresh.next(),
            (None, _) => back.next(),
        })
        .map(JobId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_of_submission_whoever_leaves_or_comes_back() {
        let mut queue = Queue::new(6);
        (0..5).for_each(|job| queue.join(JobId(job)));
        for job in [0, 2, 4] {
            queue.leave(JobId(job));
        }
        queue.rejoin(JobId(2));
        queue.join(JobId(5));
        let order: Vec<u32> = queue.iter().map(|job| job.0).collect();
        assert_eq!((order, queue.len()), (vec![1, 2, 3, 5], 4));
        queue.leave(JobId(2));
        queue.leave(JobId(1));
        assert_eq!((queue.head(), queue.len()), (Some(JobId(3)), 2));
        queue.leave(JobId(3));
        queue.leave(JobId(5));
        assert!(queue.is_empty() && queue.head().is_none());
    }
}
