//! Months of jobs whose durations are known: no network, one event per submission, end and release.
//!
//! The driver of [`Cluster`] at job fidelity. It knows when a running job will end, keeps those instants in a heap, and
//! goes from one to the next; what costs time beyond that is the scheduler. A stopped job's instant stays in the heap
//! and is recognised when it comes out. State is bounded by the jobs (some 100 bytes each); what became of a job leaves
//! through the [`Observer`] as it ends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use windtunnel_kernel::CalendarTime;

use crate::calendar::timeline::Timeline;
use crate::cluster::{Change, Cluster, ClusterError, FaultRecord, GpuTime, Job, JobId, JobTime, Machine};
use crate::cluster::{Reason, Stay, Tally};
use crate::scheduler::Scheduler;
use crate::view::View;

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub job: JobId,
    /// When it was submitted.
    pub submit: CalendarTime,
    /// When it first got GPUs.
    pub start: CalendarTime,
    /// When it ended.
    pub finish: CalendarTime,
    /// Stops and interruptions on the way, and what they cost.
    pub time: JobTime,
}

/// Hears of a run.
pub trait Observer {
    /// A job has ended; jobs are told in order of their ends, and of submission within an instant.
    ///
    /// # Errors
    /// What stops the run.
    fn ended(&mut self, ended: &Ended) -> Result<(), String>;

    /// A fault has begun, or maintenance.
    ///
    /// # Errors
    /// What stops the run.
    fn fault(&mut self, record: &FaultRecord) -> Result<(), String> {
        let _ = record;
        Ok(())
    }

    /// Whether it wants to hear of stays.
    fn wants_stays(&self) -> bool {
        false
    }

    /// A job was on these GPUs; told when it leaves them, in no order within an instant, or at the end.
    ///
    /// # Errors
    /// What stops the run.
    fn stay(&mut self, stay: &Stay) -> Result<(), String> {
        let _ = stay;
        Ok(())
    }

    /// How far it is, every few thousand events; `false` stops it.
    fn progress(&mut self, ended: u64, now: CalendarTime, events: u64) -> bool {
        let _ = (ended, now, events);
        true
    }
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// GPU-time until the end.
    pub gpu_time: GpuTime,
    /// The end: of the last job, or where it was stopped.
    pub end: CalendarTime,
    /// What faults of each kind did; empty if nothing can fail.
    pub tallies: Vec<(Reason, Tally)>,
    /// Jobs that ended.
    pub ended: u64,
    /// Instants at which something happened.
    pub events: u64,
    /// Whether it came to its end.
    pub complete: bool,
    /// The cluster over time.
    pub timeline: Timeline,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The cluster cannot go on.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The observer cannot.
    #[error("{0}")]
    Observer(String),
}

/// Events between two calls of [`Observer::progress`]: few, because a scheduler of a user's own may take milliseconds for each.
const PACE: u64 = 1 << 6;

/// Runs `jobs`, in order of submission, each for its part of `durations` (nanoseconds, at least 1), to their end.
///
/// # Errors
/// [`RunError`].
pub fn run(
    jobs: &[Job],
    durations: &[u64],
    machine: &Machine<'_>,
    scheduler: &mut dyn Scheduler,
    observer: &mut dyn Observer,
) -> Result<Outcome, RunError> {
    let mut cluster = Cluster::new(jobs, machine);
    cluster.check_room()?;
    if observer.wants_stays() {
        cluster.keep_stays();
    }
    let mut timeline = Timeline::default();
    let mut ends: BinaryHeap<Reverse<(u64, JobId, u32)>> = BinaryHeap::new();
    let (mut ended, mut events, mut complete) = (0u64, 0u64, true);
    while ended < jobs.len() as u64 {
        // Ends of jobs that were stopped meanwhile are no events.
        while ends.peek().is_some_and(|&Reverse((_, job, start))| {
            cluster.running_job(job).is_none() || cluster.starts(job) != start
        }) {
            ends.pop();
        }
        let wake = scheduler.wakes(&cluster).filter(|&at| at > cluster.now());
        let end = ends.peek().map(|&Reverse((at, ..))| at);
        let next = cluster.next_event().into_iter().chain(end).chain(wake).min();
        let Some(now) = next.filter(|_| wake.is_some() || !cluster.is_stuck()) else {
            let waits = cluster.queue().head().expect("a job that has not ended waits");
            return Err(ClusterError::Starved { job: waits, scheduler: scheduler.name() }.into());
        };
        cluster.check_time(now)?;
        events += 1;
        cluster.advance(now, scheduler);
        timeline.until(now, cluster.gpu_states());
        for record in cluster.take_faults() {
            observer.fault(&record).map_err(RunError::Observer)?;
        }
        while let Some(&Reverse((at, job, start))) = ends.peek().filter(|Reverse((at, ..))| *at <= now) {
            ends.pop();
            if cluster.running_job(job).is_none() || cluster.starts(job) != start {
                continue;
            }
            cluster.end(job);
            ended += 1;
            let start = cluster.first_start(job).expect("it ran");
            let submit = cluster.submitted_at(job).expect("it was");
            let row =
                Ended { job, submit, start, finish: CalendarTime::from_ns(at), time: cluster.job_time(job) };
            observer.ended(&row).map_err(RunError::Observer)?;
        }
        let starts = cluster.decide(scheduler)?.iter().filter_map(|change| match change {
            Change::Started(job) => Some(*job),
            Change::Stopped(_) | Change::Suspended(_) | Change::Interrupted(_) => None,
        });
        // A job may have been stopped again within the instant.
        let starts: smallvec::SmallVec<[JobId; 8]> = starts.collect();
        for job in starts {
            if let Some(segment) = cluster.segment(job) {
                let left = cluster.time_on_its_gpus(job, durations[job.0 as usize] - cluster.done(job));
                ends.push(Reverse((now.saturating_add(segment.time_for(left)), job, cluster.starts(job))));
            }
        }
        let (waiting, running) = (cluster.queue().len() as u64, cluster.running().len() as u64);
        timeline.jobs(waiting, running, cluster.broken_free());
        for stay in cluster.take_stays() {
            observer.stay(&stay).map_err(RunError::Observer)?;
        }
        if events.is_multiple_of(PACE) && !observer.progress(ended, CalendarTime::from_ns(now), events) {
            complete = false;
            break;
        }
    }
    let open = if observer.wants_stays() { cluster.open_stays() } else { Vec::new() };
    for stay in open {
        observer.stay(&stay).map_err(RunError::Observer)?;
    }
    let end = CalendarTime::from_ns(cluster.now());
    let tallies = if machine.upkeep.is_some() { cluster.tallies().collect() } else { Vec::new() };
    Ok(Outcome { gpu_time: cluster.gpu_time(), end, tallies, ended, events, complete, timeline })
}
