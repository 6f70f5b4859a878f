//! Where every GPU-nanosecond went, in integers.
//!
//! Between two changes the number of GPUs in each state is constant; [`Ledger::until`] adds it times the time that
//! passed. Every GPU is in one state, so the sums are the GPUs times the time, exactly.

use crate::life::Parts;

/// GPU-nanoseconds by what the GPUs did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuTime {
    /// Given to jobs, overheads included.
    pub busy: u128,
    /// Free, and nothing waited that could have used them; on their way from one job to the next; or spare.
    pub idle: u128,
    /// Free while the head of the queue would fit the free total, but no legal placement exists.
    pub stranded: u128,
    /// Out of order, or cut off by what is.
    pub failed: u128,
    /// Kept free for maintenance.
    pub draining: u128,
    /// Part of `busy`: jobs waited for their data.
    pub loading: u128,
    /// Part of `busy`: checkpoints were written.
    pub checkpoint: u128,
    /// Part of `busy`: jobs that had been stopped or interrupted got going again.
    pub restart: u128,
    /// Part of `busy`: work that an interruption undid.
    pub lost: u128,
}

impl GpuTime {
    /// All states together.
    pub const fn total(&self) -> u128 {
        self.busy + self.idle + self.stranded + self.failed + self.draining
    }

    /// Work that was kept.
    pub const fn useful(&self) -> u128 {
        self.busy - self.loading - self.checkpoint - self.restart - self.lost
    }
}

/// What became of a job's time on GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTime {
    /// Nanoseconds of work undone, and of restarts.
    pub lost: u64,
    /// Nanoseconds of checkpoints.
    pub checkpoint: u64,
    /// Times that it was started.
    pub starts: u32,
    /// Times that it lost its GPUs.
    pub interruptions: u32,
}

impl JobTime {
    /// Names in results of [`Self::seconds`].
    pub const NAMES: [&str; 2] = ["lost_s", "checkpoint_s"];

    /// Seconds of what is lost, and of checkpoints.
    pub fn seconds(&self) -> [f64; 2] {
        [self.lost, self.checkpoint].map(|ns| ns as f64 / 1e9)
    }

    /// Times that the scheduler stopped it, or that it moved out of the way of maintenance, and went on again.
    pub const fn stops(&self) -> u32 {
        self.starts.saturating_sub(1 + self.interruptions)
    }

    /// It spent time so.
    pub(super) const fn spend(&mut self, parts: &Parts) {
        self.lost += parts.restart;
        self.checkpoint += parts.checkpoint;
    }
}

/// Counts GPU-nanoseconds as time passes.
#[derive(Clone, Debug)]
pub struct Ledger {
    time: GpuTime,
    now: u64,
    gpus: u64,
    busy: u64,
    failed: u64,
    draining: u64,
    /// Free GPUs that are stranded now.
    stranded: u64,
}

impl Ledger {
    /// `gpus` idle from 0 on.
    pub fn new(gpus: u64) -> Self {
        Self { time: GpuTime::default(), now: 0, gpus, busy: 0, failed: 0, draining: 0, stranded: 0 }
    }

    /// Nothing changes until `now`.
    pub fn until(&mut self, now: u64) {
        let passed = u128::from(now - self.now);
        if passed > 0 {
            let taken = self.busy + self.stranded + self.failed + self.draining;
            self.time.busy += passed * u128::from(self.busy);
            self.time.stranded += passed * u128::from(self.stranded);
            self.time.failed += passed * u128::from(self.failed);
            self.time.draining += passed * u128::from(self.draining);
            self.time.idle += passed * u128::from(self.gpus - taken);
            self.now = now;
        }
    }

    /// `gpus` are given to a job now.
    pub const fn occupy(&mut self, gpus: u64) {
        self.busy += gpus;
    }

    /// A job has done with `gpus` now.
    pub const fn vacate(&mut self, gpus: u64) {
        self.busy -= gpus;
    }

    /// From now on `gpus` of the free ones are stranded.
    pub const fn strand(&mut self, gpus: u64) {
        self.stranded = gpus;
    }

    /// GPUs without a job that are out of order, and that are kept free for maintenance, from now on.
    pub const fn out(&mut self, failed: u64, draining: u64) {
        self.failed = failed;
        self.draining = draining;
        // Until the next decision, nobody knows of which free ones that holds.
        self.stranded = 0;
    }

    /// `gpus` of a job spent their time so.
    pub fn spend(&mut self, parts: &Parts, gpus: u64) {
        let gpus = u128::from(gpus);
        self.time.loading += u128::from(parts.loading) * gpus;
        self.time.checkpoint += u128::from(parts.checkpoint) * gpus;
        self.time.restart += u128::from(parts.restart) * gpus;
    }

    /// `gpu_ns` of work are undone.
    pub const fn lose(&mut self, gpu_ns: u128) {
        self.time.lost += gpu_ns;
    }

    /// What has been counted.
    pub const fn time(&self) -> GpuTime {
        self.time
    }
}
