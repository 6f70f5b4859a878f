//! The cluster over time, and who was where, against what is known of the jobs and of the whole.

use crate::common::{Kept, job, machine, restarting, scheduler};
use windtunnel_cluster::by_duration::{Ended, Observer, Outcome, run as run_by_duration};
use windtunnel_cluster::cluster::{Job, Stay};
use windtunnel_kernel::{RandomStream, Span};

#[derive(Default)]
struct Watching {
    kept: Kept,
    stays: Vec<Stay>,
}

impl Observer for Watching {
    fn ended(&mut self, ended: &Ended) -> Result<(), String> {
        self.kept.ended(ended)
    }

    fn wants_stays(&self) -> bool {
        true
    }

    fn stay(&mut self, stay: &Stay) -> Result<(), String> {
        self.stays.push(stay.clone());
        Ok(())
    }
}

const GPUS: u32 = 16;

/// Random jobs on four hosts of four GPUs under the scheduler `name`, some `unit` nanoseconds long; those that it stops pay.
fn drawn(name: &str, seed: u64, unit: u64) -> (Vec<Job>, Watching, Outcome) {
    let mut stream = RandomStream::new(seed, "over-time", 0);
    let mut up_to = |most: u64| stream.below(most + 1);
    let mut submit = 0;
    let jobs: Vec<Job> = (0..60)
        .map(|_| {
            submit += up_to(40 * unit);
            let gpus = 1 + up_to(u64::from(GPUS) - 1) as u32;
            Job { priority: up_to(2) as i32, ..job(submit, gpus, 1 + up_to(90 * unit)) }
        })
        .collect();
    let durations: Vec<u64> = jobs.iter().map(|job| job.estimate).collect();
    let mut machine = machine(GPUS, 4);
    machine.lives = restarting(3);
    machine.reaction_delay = Span::from_ns(up_to(1) * 5);
    let mut watching = Watching::default();
    let replayed =
        run_by_duration(&jobs, &durations, &machine, scheduler(name, &machine).as_mut(), &mut watching);
    (jobs, watching, replayed.unwrap_or_else(|error| panic!("{name}: {error}")))
}

#[test]
fn stays_are_what_is_busy_and_never_two_on_a_gpu() {
    let mut stays = 0;
    for (index, name) in ["fcfs", "easy", "conservative", "priority", "gang", "mast"].into_iter().enumerate()
    {
        for seed in 0..40 {
            let (jobs, watching, replayed) = drawn(name, 100 * index as u64 + seed, 1);
            let until = |stay: &Stay| stay.until.expect("all jobs have ended");
            let busy: u128 = watching
                .stays
                .iter()
                .map(|stay| u128::from(until(stay) - stay.start) * stay.placement.len() as u128)
                .sum();
            assert_eq!(busy, replayed.gpu_time.busy, "{name}, seed {seed}");
            let mut by_gpu: Vec<(u32, u64, u64)> = Vec::new();
            for stay in &watching.stays {
                assert_eq!(stay.placement.len() as u32, jobs[stay.job.0 as usize].gpus);
                by_gpu.extend(stay.placement.iter().map(|gpu| (gpu.0, stay.start, until(stay))));
            }
            by_gpu.sort_unstable();
            let apart = by_gpu.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1);
            assert!(apart, "{name}, seed {seed}");
            let last = |job: u32| watching.stays.iter().rev().find(|stay| stay.job.0 == job).map(until);
            for (job, ended) in watching.kept.0.iter().enumerate() {
                let ended = ended.expect("all have");
                assert_eq!(last(job as u32), Some(ended.finish.ns()), "{name}, seed {seed}");
            }
            stays += watching.stays.len() - jobs.len();
        }
    }
    assert!(stays > 1_000, "jobs are stopped too: {stays}");
}

/// Little's law, without its expectations: what waits and runs, summed over time, is what jobs wait and run.
#[test]
fn bins_sum_to_what_jobs_waited_and_ran() {
    for (index, name) in ["fcfs", "sjf", "easy", "conservative"].into_iter().enumerate() {
        for seed in 0..40 {
            let (jobs, watching, replayed) = drawn(name, 1_000 + 100 * index as u64 + seed, 1_000_000);
            let (_, bins) = replayed.timeline.bins();
            let sum = |of: &dyn Fn(&windtunnel_cluster::calendar::timeline::Bin) -> u128| {
                bins.iter().map(of).sum::<u128>()
            };
            let ended: Vec<Ended> = watching.kept.0.iter().map(|ended| ended.expect("all have")).collect();
            let waited: u128 = ended.iter().map(|of| u128::from(of.start.ns() - of.submit.ns())).sum();
            assert_eq!(sum(&|bin| bin.waiting), waited, "{name}, seed {seed}");
            let ran: u128 = ended.iter().map(|of| u128::from(of.finish.ns() - of.start.ns())).sum();
            assert_eq!(sum(&|bin| bin.running), ran, "{name}, seed {seed}");
            let time = replayed.gpu_time;
            assert_eq!(sum(&|bin| bin.gpu_time.busy), time.busy);
            assert_eq!(sum(&|bin| bin.gpu_time.stranded), time.stranded);
            assert_eq!(sum(&|bin| bin.gpu_time.idle), time.idle);
            assert_eq!(replayed.timeline.end(), replayed.end.ns());
            assert!(jobs.iter().all(|job| job.submit.ns() <= replayed.end.ns()));
        }
    }
}
