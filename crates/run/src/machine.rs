//! What the machine that simulates says of itself: wall time, processor time, memory. None of it influences a result.

use std::time::{Duration, Instant};

/// A stopwatch for wall and processor time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

impl Stopwatch {
    /// Starts it.
    #[allow(clippy::disallowed_methods, reason = "a run is reported with its wall time")]
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: process_time() }
    }

    /// Seconds of wall time since the start.
    pub fn wall_seconds(&self) -> f64 {
        self.wall.elapsed().as_secs_f64()
    }

    /// Seconds of processor time of all threads since the start.
    pub fn cpu_seconds(&self) -> f64 {
        process_time().saturating_sub(self.cpu).as_secs_f64()
    }
}

fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Peak resident set of the process in bytes; 0 where the system does not say.
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
