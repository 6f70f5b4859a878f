//! Where every GPU-nanosecond went, in integers.
//!
//! Between two changes the number of GPUs in each state is constant; [`Ledger::until`] adds it times the time that
//! passed. Every GPU is in one state, so the sums are the GPUs times the time, exactly.

/// GPU-nanoseconds by what the GPUs did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuTime {
    /// Given to jobs, overheads included.
    pub busy: u128,
    /// Free, and nothing waited that could have used them; or on their way from one job to the next.
    pub idle: u128,
    /// Free while the head of the queue would fit the free total, but no legal placement exists.
    pub stranded: u128,
    /// Out of order.
    pub failed: u128,
    /// Kept free for maintenance.
    pub draining: u128,
    /// Part of `busy`: restarts, and work that was done again.
    pub lost: u128,
}

impl GpuTime {
    /// All states together.
    pub const fn total(&self) -> u128 {
        self.busy + self.idle + self.stranded + self.failed + self.draining
    }
}

/// Counts GPU-nanoseconds as time passes.
#[derive(Clone, Debug)]
pub struct Ledger {
    time: GpuTime,
    now: u64,
    gpus: u64,
    busy: u64,
    /// Free GPUs that are stranded now.
    stranded: u64,
}

impl Ledger {
    /// `gpus` idle from 0 on.
    pub const fn new(gpus: u64) -> Self {
        let time = GpuTime { busy: 0, idle: 0, stranded: 0, failed: 0, draining: 0, lost: 0 };
        Self { time, now: 0, gpus, busy: 0, stranded: 0 }
    }

    /// Nothing changes until `now`.
    pub fn until(&mut self, now: u64) {
        let passed = u128::from(now - self.now);
        if passed > 0 {
            self.time.busy += passed * u128::from(self.busy);
            self.time.stranded += passed * u128::from(self.stranded);
            self.time.idle += passed * u128::from(self.gpus - self.busy - self.stranded);
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

    /// `gpu_ns` of what was busy was lost.
    pub const fn lose(&mut self, gpu_ns: u128) {
        self.time.lost += gpu_ns;
    }

    /// What has been counted.
    pub const fn time(&self) -> GpuTime {
        self.time
    }
}
