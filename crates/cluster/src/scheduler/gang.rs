//! Gang scheduling (Ousterhout, "Scheduling techniques for concurrent systems", ICDCS 1982): a matrix of time slices by
//! GPUs. A job has its GPUs in one row, and all of it runs while the row has its slice; rows go round in turn. In a
//! slice, jobs of other rows run beside the row's own where all their GPUs are idle as it begins (the paper's alternates).
//!
//! A job enters the first row with legal GPUs for it, a new one if there is none and the matrix is not full, and waits
//! otherwise, first come, first served. Stopped jobs stay in memory: going on costs nothing. With one row there are no
//! slices. A slice costs a look at each job of the matrix.
//!
//! GPUs that go out of service take the jobs that are in their memory with them: these leave the matrix, go back to their last
//! checkpoint and enter again where they find room. No row has such GPUs until they are back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use windtunnel_kernel::{EndpointId, Span};

use super::policy::{Absence, BuiltIn, Decision, Scheduler};
use crate::free::FreeSet;
use crate::view::{JobId, Running, View};

pub(super) const GANG: BuiltIn = BuiltIn {
    knows_elastic: false,
    ..BuiltIn::new("gang", "time slices: rows of Ousterhout's matrix run in turn", |options| {
        Box::new(Gang::new(options.slice, options.rows))
    })
};

/// A row of the matrix.
#[derive(Clone, Debug)]
struct Row {
    /// What no job of the row has.
    free: FreeSet,
    jobs: BTreeSet<JobId>,
}

/// The gang scheduler.
#[derive(Clone, Debug)]
pub struct Gang {
    slice: u64,
    most_rows: usize,
    rows: Vec<Row>,
    /// Row whose slice it is.
    current: usize,
    slice_end: u64,
    /// Row and GPUs of each job in the matrix.
    cells: FxHashMap<JobId, (u64, Vec<EndpointId>)>,
    /// Name of each row, which keeps while others vanish.
    names: Vec<u64>,
    next_name: u64,
    /// Jobs without a row.
    outside: BTreeSet<JobId>,
    /// The matrix has no room for the first of those.
    full: bool,
    /// GPUs came free or jobs came in: jobs of the matrix may go on.
    holes: bool,
    /// A job of the current row does not run: its GPUs were still on their way from one that had ended.
    short: bool,
    /// Jobs that came into the matrix and have not been looked at.
    entered: Vec<JobId>,
    agenda: VecDeque<Decision>,
    /// The job that is being stopped.
    suspending: Option<JobId>,
    /// GPUs that are out of service, and when they are back as far as is known.
    out: BTreeMap<EndpointId, u64>,
}

impl Gang {
    /// Slices of this length, and at most so many rows.
    pub fn new(slice: Span, rows: u32) -> Self {
        Self {
            slice: slice.ns_ceil().max(1),
            most_rows: rows.max(1) as usize,
            rows: Vec::new(),
            current: 0,
            slice_end: 0,
            cells: FxHashMap::default(),
            names: Vec::new(),
            next_name: 0,
            outside: BTreeSet::new(),
            full: false,
            holes: false,
            short: false,
            entered: Vec::new(),
            agenda: VecDeque::new(),
            suspending: None,
            out: BTreeMap::new(),
        }
    }

    fn row(&self, name: u64) -> usize {
        self.names.binary_search(&name).expect("a job's row exists")
    }

    /// Takes jobs into the matrix.
    fn enter(&mut self, cluster: &dyn View) {
        while let Some(&job) = self.outside.first() {
            let rows = self.rows.len();
            let order = (0..rows).map(|step| (self.current + step) % rows);
            let found =
                order.into_iter().find_map(|row| Some((row, cluster.place_on(job, &self.rows[row].free)?)));
            let (row, placement) = match found {
                Some(found) => found,
                None if rows < self.most_rows => {
                    let mut free = cluster.empty_region(0);
                    self.out.keys().for_each(|&gpu| free.take(&[gpu]));
                    let Some(placement) = cluster.place_on(job, &free) else { break };
                    self.rows.push(Row { free, jobs: BTreeSet::new() });
                    self.names.push(self.next_name);
                    self.next_name += 1;
                    (rows, placement)
                }
                None => break,
            };
            self.outside.remove(&job);
            self.rows[row].free.take(&placement);
            self.rows[row].jobs.insert(job);
            self.cells.insert(job, (self.names[row], placement));
            self.entered.push(job);
            self.holes = true;
        }
        self.full = true;
    }

    /// Takes a job out of the matrix.
    fn leave(&mut self, job: JobId) {
        let Some((name, placement)) = self.cells.remove(&job) else { return };
        let row = self.row(name);
        for gpu in placement.iter().filter(|gpu| !self.out.contains_key(gpu)) {
            self.rows[row].free.give(&[*gpu]);
        }
        self.rows[row].jobs.remove(&job);
        self.full = false;
        self.holes = true;
    }

    /// Gives rows back what is in service again by `now`.
    fn take_back(&mut self, now: u64) {
        let back: Vec<EndpointId> =
            self.out.iter().filter(|&(_, &until)| until <= now).map(|(&gpu, _)| gpu).collect();
        for gpu in back {
            self.out.remove(&gpu);
            self.rows.iter_mut().for_each(|row| row.free.give(&[gpu]));
            self.full = false;
            self.holes = true;
        }
    }

    /// Forgets rows without jobs; the next one takes over from a current one.
    fn drop_empty(&mut self) {
        let mut row = 0;
        while row < self.rows.len() {
            if !self.rows[row].jobs.is_empty() {
                row += 1;
                continue;
            }
            self.rows.remove(row);
            self.names.remove(row);
            if row < self.current {
                self.current -= 1;
            }
            // A new row has its turn, or the last one has all turns from now on.
            if row == self.current || self.rows.len() == 1 {
                self.slice_end = 0;
            }
        }
        if self.current >= self.rows.len() {
            self.current = 0;
        }
    }

    /// Jobs of the matrix: those of the current row first, then those of the rows after it.
    fn in_turn(&self) -> impl Iterator<Item = JobId> + '_ {
        let rows = self.rows.len();
        (0..rows).flat_map(move |step| self.rows[(self.current + step) % rows].jobs.iter().copied())
    }

    /// Plans what has to stop and start so that the current row runs, and others beside it.
    fn plan(&mut self, cluster: &dyn View, stop_others: bool) {
        let mut free = cluster.regions()[0].clone();
        let mut keep = FxHashSet::default();
        let mut starts = Vec::new();
        if stop_others {
            cluster.running().iter().for_each(|running| free.give(&cluster.given_back_by(running)));
        } else {
            // Only those in the way of the current row's jobs stop.
            let own = &self.rows[self.current];
            let waiting = own.jobs.iter().filter(|&&job| cluster.waits(job));
            let needed: FxHashSet<EndpointId> =
                waiting.flat_map(|job| self.cells[job].1.iter().copied()).collect();
            for running in cluster.running() {
                if running.placement.iter().any(|gpu| needed.contains(gpu)) {
                    free.give(&cluster.given_back_by(running));
                } else {
                    keep.insert(running.job);
                }
            }
        }
        for job in self.in_turn() {
            let placement = &self.cells[&job].1;
            if keep.contains(&job) || !free.are_free(placement) {
                continue;
            }
            free.take(placement);
            keep.insert(job);
            if cluster.waits(job) {
                starts.push(Decision::StartOn { job, placement: placement.clone(), region: 0 });
            }
        }
        let mut stops: Vec<JobId> =
            cluster.running().iter().map(|running| running.job).filter(|job| !keep.contains(job)).collect();
        stops.sort_unstable();
        self.short = self.rows[self.current].jobs.iter().any(|job| !keep.contains(job));
        self.agenda.extend(stops.into_iter().map(|job| Decision::Suspend { job }));
        self.agenda.extend(starts);
    }
}

impl Scheduler for Gang {
    fn name(&self) -> &'static str {
        GANG.entry.name
    }

    fn queued(&mut self, job: JobId, _: &dyn View) {
        if self.cells.contains_key(&job) {
            // Interrupted, on GPUs that still work: it need not wait for the next slice.
            if self.suspending.take() != Some(job) {
                self.entered.push(job);
                self.holes = true;
            }
        } else {
            self.outside.insert(job);
            self.full &= self.outside.first() != Some(&job);
        }
    }

    fn started(&mut self, _: JobId, _: &dyn View) {}

    fn released(&mut self, job: JobId, _: &Running, cluster: &dyn View) {
        if cluster.waits(job) {
            return;
        }
        self.leave(job);
    }

    fn lost(&mut self, absence: &Absence, cluster: &dyn View) {
        let fresh: FxHashSet<EndpointId> =
            absence.gpus.iter().copied().filter(|gpu| !self.out.contains_key(gpu)).collect();
        let in_memory = self.in_turn().filter(|job| self.cells[job].1.iter().any(|gpu| fresh.contains(gpu)));
        // What has a job that runs is told of once it has it no longer.
        let evicted: Vec<JobId> = in_memory.filter(|job| cluster.waits(*job)).collect();
        for &job in &evicted {
            self.leave(job);
            self.outside.insert(job);
        }
        for &gpu in &absence.gpus {
            if self.out.insert(gpu, absence.until).is_none() {
                self.rows.iter_mut().for_each(|row| row.free.take(&[gpu]));
            }
        }
        self.agenda
            .retain(|planned| !matches!(planned, Decision::StartOn { job, .. } if evicted.contains(job)));
    }

    fn regained(&mut self, absence: &Absence, cluster: &dyn View) {
        for gpu in &absence.gpus {
            if let Some(until) = self.out.get_mut(gpu) {
                *until = absence.from;
            }
        }
        self.take_back(cluster.now());
    }

    fn decide(&mut self, cluster: &dyn View) -> Option<Decision> {
        if self.agenda.is_empty() {
            self.plan_ahead(cluster);
        }
        let next = self.agenda.pop_front();
        if let Some(Decision::Suspend { job }) = next {
            self.suspending = Some(job);
        }
        next
    }

    fn refused(&mut self, _: JobId, _: &dyn View) {}

    fn head(&self, _: &dyn View) -> Option<JobId> {
        self.outside.first().copied()
    }

    fn wakes(&self, _: &dyn View) -> Option<u64> {
        (self.rows.len() > 1).then_some(self.slice_end)
    }
}

impl Gang {
    /// Fills the agenda, if there is anything to be done.
    fn plan_ahead(&mut self, cluster: &dyn View) {
        self.take_back(cluster.now());
        self.drop_empty();
        if !self.full {
            self.enter(cluster);
        }
        if self.rows.is_empty() {
            return;
        }
        let now = cluster.now();
        if self.slice_end <= now {
            // A row that vanished leaves its turn to the next, which is at its place now.
            if self.slice_end != 0 {
                self.current = (self.current + 1) % self.rows.len();
            }
            self.slice_end = now + self.slice;
            self.holes = false;
            self.entered.clear();
            self.plan(cluster, true);
        } else if std::mem::take(&mut self.holes) {
            let free = &cluster.regions()[0];
            let entered = std::mem::take(&mut self.entered);
            let own = &self.rows[self.current].jobs;
            let in_the_way = |job: &JobId| own.contains(job) && !free.are_free(&self.cells[job].1);
            if self.short || entered.iter().any(in_the_way) {
                self.plan(cluster, false);
            } else {
                let mut free = free.clone();
                for job in entered {
                    let placement = self.cells[&job].1.clone();
                    if free.are_free(&placement) {
                        free.take(&placement);
                        self.agenda.push_back(Decision::StartOn { job, placement, region: 0 });
                    }
                }
            }
        }
    }
}
