//! In which order waiting jobs are started.

/// A job that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Index of the job.
    pub job: usize,
    /// GPUs that it needs.
    pub gpus: usize,
}

/// Chooses which waiting jobs start now.
pub trait Scheduler: Send {
    /// Name in a scenario.
    fn name(&self) -> &'static str;
    /// Positions in `queue` (in order of submission) of the jobs to start, given `free` GPUs.
    fn pick(&mut self, queue: &[Waiting], free: usize) -> Vec<usize>;
}

/// First come, first served: the head of the queue blocks the rest.
#[derive(Clone, Copy, Debug)]
pub struct Fcfs;

impl Scheduler for Fcfs {
    fn name(&self) -> &'static str {
        "fcfs"
    }

    fn pick(&mut self, queue: &[Waiting], mut free: usize) -> Vec<usize> {
        let fits = |waiting: &&Waiting| {
            let fits = waiting.gpus <= free;
            if fits {
                free -= waiting.gpus;
            }
            fits
        };
        (0..queue.iter().take_while(fits).count()).collect()
    }
}

/// Names of the built-in schedulers.
pub const SCHEDULERS: [&str; 1] = ["fcfs"];

/// The scheduler named `name`.
pub fn by_name(name: &str) -> Option<Box<dyn Scheduler>> {
    (name == "fcfs").then(|| Box::new(Fcfs) as Box<dyn Scheduler>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_the_queue_blocks_the_rest() {
        let queue: Vec<Waiting> =
            [4, 2, 8, 1].iter().enumerate().map(|(job, &gpus)| Waiting { job, gpus }).collect();
        assert_eq!(Fcfs.pick(&queue, 10), vec![0, 1]);
        assert_eq!(Fcfs.pick(&queue, 15), vec![0, 1, 2, 3]);
        assert!(Fcfs.pick(&queue, 3).is_empty());
    }
}
