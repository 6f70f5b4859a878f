//! Job mode: a million jobs on 16,384 GPUs, shaped like a log. `cargo bench -p windtunnel-cluster --bench replay --
//! LOG.csv [COUNT] [LOAD] [SCHEDULER…]` with a Philly log prints seconds, and bytes at the peak, for each scheduler;
//! COUNT 0 replays the log itself on 512 GPUs. `fewest-hosts` among the schedulers has every job ask for whole hosts.
//!
//! Jobs are eight times as wide as the log's, up to 1,024 GPUs, and last a day at most: with its long tails a load is not
//! reached before the last job is submitted, and nobody waits.

use std::path::Path;
use std::time::Instant;

use windtunnel_cluster::by_duration::{Ended, Observer, run as run_by_duration};
use windtunnel_cluster::cluster::{Job, Machine};
use windtunnel_cluster::life::Lives;
use windtunnel_cluster::log::shape::Shape;
use windtunnel_cluster::log::{Format, ReadOptions, Scale, read};
use windtunnel_cluster::placement::{Locality, Packed};
use windtunnel_cluster::scheduler::{self, Options, SCHEDULERS};
use windtunnel_kernel::{CalendarTime, Span, memory};

#[global_allocator]
static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;

struct Starts(Vec<(u32, u64)>);

impl Observer for Starts {
    fn ended(&mut self, ended: &Ended) -> Result<(), String> {
        self.0.push((ended.job.0, ended.start.ns()));
        Ok(())
    }
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures the wall clock")]
fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let Some(log) = arguments.first() else {
        println!("replay: no log given, nothing measured");
        return;
    };
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<f64>().ok());
    let (count, load) = (number(1).unwrap_or(1e6) as usize, number(2).unwrap_or(0.9));
    let mut names: Vec<&str> = arguments.iter().skip(3).map(String::as_str).collect();
    let whole = names.contains(&"fewest-hosts");
    names.retain(|name| *name != "fewest-hosts");
    let locality = if whole { Locality::FewestHosts } else { Locality::Anywhere };
    let began = Instant::now();
    let logged = read(Path::new(log), Format::Philly, ReadOptions::default()).expect("the log can be read");
    println!("read {} jobs in {:.2?}", logged.jobs.len(), began.elapsed());
    let (logged, endpoints) = if count == 0 {
        (logged.jobs, 512)
    } else {
        let began = Instant::now();
        let shape = Shape::fit(&logged.jobs).expect("there are many");
        let mut drawn = shape.draw(count, 1).expect("they come within 584 years");
        let day = 86_400_000_000_000;
        let scale = Scale {
            gpus: 8.0,
            max_gpus: Some(1_024),
            max_duration: day,
            load: Some(load),
            ..Scale::default()
        };
        scale.apply(&mut drawn, 16_384);
        println!("drew {count} jobs in {:.2?}", began.elapsed());
        (drawn, 16_384)
    };
    let job = |logged: &windtunnel_cluster::log::LoggedJob| Job {
        submit: CalendarTime::from_ns(logged.submit),
        estimate: logged.duration,
        deadline: u64::MAX,
        gpus: logged.gpus,
        priority: 0,
        locality,
        placement: 0,
    };
    let jobs: Vec<Job> = logged.iter().map(job).collect();
    let durations: Vec<u64> = logged.iter().map(|logged| logged.duration).collect();
    drop(logged);
    let machine = Machine {
        endpoints,
        endpoints_per_host: 8,
        storage: &[],
        regions: 1,
        reaction_delay: Span::from_us(1_000),
        lives: Lives::default(),
        upkeep: None,
        seed: 1,
        queue: None,
        placements: vec![&Packed],
        locator: None,
        listener: None,
    };
    let options = Options { endpoints, slice: Span::from_us(600_000_000), rows: 4 };
    let all = SCHEDULERS.map(|built_in| built_in.entry.name);
    for name in all.into_iter().filter(|name| names.is_empty() || names.contains(name)) {
        memory::reset_peak();
        let mut scheduler = scheduler::by_name(name, &options).expect("it is a built-in one");
        let mut starts = Starts(Vec::with_capacity(jobs.len()));
        let began = Instant::now();
        let replayed =
            run_by_duration(&jobs, &durations, &machine, scheduler.as_mut(), &mut starts).expect("it ends");
        let seconds = began.elapsed().as_secs_f64();
        let waited: u128 =
            starts.0.iter().map(|&(job, start)| u128::from(start - jobs[job as usize].submit.ns())).sum();
        let used = replayed.gpu_time.busy as f64 / replayed.gpu_time.total() as f64;
        println!(
            "{name:>13}: {seconds:7.2} s, {:>5} MB, {} events, utilisation {used:.3}, mean wait {:.0} s",
            memory::peak() / 1_000_000,
            replayed.events,
            waited as f64 / jobs.len() as f64 / 1e9,
        );
    }
}
