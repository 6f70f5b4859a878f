//! What the tests of replays share: a machine, and what became of each job.

use windtunnel_cluster::by_duration::{Ended, Observer, Outcome, run as run_by_duration};
use windtunnel_cluster::cluster::{GpuTime, Job, Machine};
use windtunnel_cluster::life::{Life, Lives};
use windtunnel_cluster::placement::{Locality, Packed};
use windtunnel_cluster::scheduler::{self, Options, Scheduler};
use windtunnel_kernel::{CalendarTime, Span};

pub const SECOND: u64 = 1_000_000_000;

/// Keeps every job's end, by job.
#[derive(Default)]
pub struct Kept(pub Vec<Option<Ended>>);

impl Observer for Kept {
    fn ended(&mut self, ended: &Ended) -> Result<(), String> {
        let index = ended.job.0 as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        assert!(self.0[index].replace(*ended).is_none(), "job {index} ends once");
        Ok(())
    }
}

pub fn machine(gpus: u32, per_host: u32) -> Machine<'static> {
    Machine {
        endpoints: gpus,
        endpoints_per_host: per_host,
        storage: &[],
        regions: 1,
        reaction_delay: Span::ZERO,
        lives: Lives::default(),
        upkeep: None,
        seed: 1,
        queue: None,
        placements: vec![&Packed],
        locator: None,
        listener: None,
    }
}

/// Every job pays this when it goes on.
pub fn restarting(ns: u64) -> Lives {
    Lives::Same(Life { restart: ns, ..Life::default() })
}

pub fn job(submit: u64, gpus: u32, duration: u64) -> Job {
    Job {
        submit: CalendarTime::from_ns(submit),
        estimate: duration,
        deadline: u64::MAX,
        gpus,
        priority: 0,
        locality: Locality::Anywhere,
        placement: 0,
    }
}

pub fn scheduler(name: &str, machine: &Machine<'_>) -> Box<dyn Scheduler> {
    let options = Options { endpoints: machine.endpoints, slice: Span::from_ns(7), rows: 4 };
    scheduler::by_name(name, &options).expect("the scheduler exists")
}

/// Start and finish of every job, when each takes its estimate.
pub fn run(name: &str, jobs: &[Job], machine: &Machine<'_>) -> (Vec<(u64, u64)>, Outcome) {
    let durations: Vec<u64> = jobs.iter().map(|job| job.estimate).collect();
    run_for(name, jobs, &durations, machine)
}

/// Start and finish of every job.
pub fn run_for(
    name: &str,
    jobs: &[Job],
    durations: &[u64],
    machine: &Machine<'_>,
) -> (Vec<(u64, u64)>, Outcome) {
    let mut kept = Kept::default();
    let mut scheduler = scheduler(name, machine);
    let replayed = run_by_duration(jobs, durations, machine, scheduler.as_mut(), &mut kept)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(replayed.complete && replayed.ended == jobs.len() as u64);
    let of = |ended: Option<Ended>| {
        let ended = ended.expect("every job ends");
        (ended.start.ns(), ended.finish.ns())
    };
    (kept.0.into_iter().map(of).collect(), replayed)
}

/// Every GPU-nanosecond is counted once, and work done is work asked.
pub fn assert_conserved(time: GpuTime, end: CalendarTime, jobs: &[Job], durations: &[u64], gpus: u32) {
    assert_eq!(time.total(), u128::from(end.ns()) * u128::from(gpus));
    let asked: u128 =
        jobs.iter().zip(durations).map(|(job, &ns)| u128::from(ns) * u128::from(job.gpus)).sum();
    assert_eq!(time.useful(), asked);
}
