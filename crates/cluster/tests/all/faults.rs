//! Faults, checkpoints, spares and maintenance against closed forms, a clock, and laws of conservation.

use crate::common::{Kept, SECOND, job, machine, scheduler};
use windtunnel_cluster::by_duration::{Ended, Outcome, run as run_by_duration};
use windtunnel_cluster::cluster::{Cluster, Job, Machine, Reason, View};
use windtunnel_cluster::faults::{
    Class, Component, KnownFault, Leave, Lifetime, Maintenance, Plant, Process, Repair, Spares, Upkeep,
};
use windtunnel_cluster::life::{Checkpoint, Every, Life, Lives, Sizes};
use windtunnel_kernel::{EndpointId, RandomStream, Span, math};

const HOUR: u64 = 3_600 * SECOND;

/// Hosts on leaves of two, each GPU with a NIC and a cable of its own; switch number i is leaf i.
struct Pairs {
    hosts: u32,
    per_host: u32,
}

impl Plant for Pairs {
    fn count(&self, class: Class) -> u32 {
        match class {
            Class::Host => self.hosts,
            Class::Switch | Class::Rack => self.hosts.div_ceil(2),
            Class::Pod => 1,
            _ => self.hosts * self.per_host,
        }
    }

    fn gpus(&self, component: Component, to: &mut Vec<EndpointId>) {
        let (index, per_host) = (component.index, self.per_host);
        let range = match component.class {
            Class::Host => index * per_host..(index + 1) * per_host,
            Class::Rack => 2 * index * per_host..(2 * (index + 1)).min(self.hosts) * per_host,
            Class::Pod => 0..self.hosts * per_host,
            Class::Cable | Class::Switch => 0..0,
            _ => index..index + 1,
        };
        to.extend(range.map(EndpointId));
    }

    fn cut_off(&self, out: &[Component]) -> Vec<EndpointId> {
        let cut = |gpu: &EndpointId| {
            out.iter().any(|component| match component.class {
                Class::Switch => gpu.0 / self.per_host / 2 == component.index,
                _ => gpu.0 == component.index,
            })
        };
        (0..self.hosts * self.per_host).map(EndpointId).filter(cut).collect()
    }
}

fn nothing(plant: &Pairs) -> Upkeep<'_> {
    let (processes, known, maintenance) = (Vec::new(), Vec::new(), Vec::new());
    Upkeep { plant, processes, known, maintenance, spares: Spares::default() }
}

fn with<'a>(upkeep: &'a Upkeep<'a>, life: Life) -> Machine<'a> {
    let plant = (upkeep.plant.count(Class::Gpu), upkeep.plant.count(Class::Host));
    let mut machine: Machine<'a> = machine(plant.0, plant.0 / plant.1);
    machine.lives = Lives::Same(life);
    machine.upkeep = Some(upkeep);
    machine
}

fn every(ns: u64, write: u64, restart: u64) -> Life {
    Life { checkpoint: Some(Checkpoint { every: Every::Time(ns), write }), restart, ..Life::default() }
}

fn run(name: &str, jobs: &[Job], machine: &Machine<'_>) -> (Vec<Ended>, Outcome) {
    let durations: Vec<u64> = jobs.iter().map(|job| job.estimate).collect();
    let (mut kept, mut scheduler) = (Kept::default(), scheduler(name, machine));
    let replayed = run_by_duration(jobs, &durations, machine, scheduler.as_mut(), &mut kept)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    (kept.0.into_iter().map(|ended| ended.expect("every job ends")).collect(), replayed)
}

fn at(at: u64, class: Class, index: u32, repair: u64) -> KnownFault {
    KnownFault { at, component: Component { class, index }, repair }
}

/// Mean and standard error.
fn estimate(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (count - 1.0);
    (mean, math::sqrt(variance / count))
}

/// Times of a job of `segments` intervals of `every` on 8 GPUs of this mean time between faults, by seed.
fn times(segments: u64, every_ns: u64, write: u64, restart: u64, mtbf: f64, runs: u64) -> Vec<f64> {
    let plant = Pairs { hosts: 1, per_host: 8 };
    let lifetime = Lifetime::Exponential { mean: mtbf };
    let process = Process { class: Class::Gpu, count: 8, number: 0, lifetime, repair: Repair::Fixed(0) };
    let upkeep = Upkeep { processes: vec![process], ..nothing(&plant) };
    let jobs = [job(0, 8, segments * every_ns)];
    let of = |seed: u64| {
        let mut machine = with(&upkeep, every(every_ns, write, restart));
        machine.seed = seed;
        run("fcfs", &jobs, &machine).0[0].finish.ns() as f64
    };
    (0..runs).map(of).collect()
}

/// Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), equation 9: with a
/// mean time M between faults of the job, a stretch of length L (work and write) takes M·e^(R/M)·(e^(L/M) − 1). Here the last
/// stretch has no write.
#[test]
fn checkpoints_and_restarts_cost_what_daly_says() {
    let cases = [
        // (intervals, interval, write, restart, mean time between a GPU's faults)
        (40, 600 * SECOND, 30 * SECOND, 120 * SECOND, 8 * 2 * HOUR),
        (20, 1_800 * SECOND, 60 * SECOND, 300 * SECOND, 8 * HOUR),
        (100, 120 * SECOND, 20 * SECOND, 0, 8 * 3 * HOUR),
    ];
    for (segments, interval, write, restart, mtbf) in cases {
        let times = times(segments, interval, write, restart, mtbf as f64, 2_000);
        let (mean, error) = estimate(&times);
        let m = mtbf as f64 / 8.0;
        let stretch = |length: f64| m * math::exp(restart as f64 / m) * (math::exp(length / m) - 1.0);
        let expected = (segments - 1) as f64 * stretch((interval + write) as f64) + stretch(interval as f64);
        // 99%.
        assert!((mean - expected).abs() < 2.576 * error, "{mean:e} ± {error:e}, expected {expected:e}");
        assert!(error / mean < 0.01, "the interval says something");
    }
}

#[test]
fn the_best_interval_is_where_daly_puts_it() {
    // Equation 37 of the same paper for write δ < 2M.
    let (write, m) = (60.0 * SECOND as f64, 2.0 * HOUR as f64);
    let x = write / (2.0 * m);
    let best = math::sqrt(2.0 * write * m) * (1.0 + math::sqrt(x) / 3.0 + x / 9.0) - write;
    let work = 48.0 * HOUR as f64;
    let waste = |interval: f64| {
        let segments = (work / interval).round() as u64;
        let interval = (work / segments as f64) as u64;
        let times = times(segments, interval, 60 * SECOND, 60 * SECOND, 8.0 * m, 600);
        let (mean, error) = estimate(&times);
        (mean / (segments * interval) as f64 - 1.0, error / (segments * interval) as f64)
    };
    let (at_best, error) = waste(best);
    for factor in [0.35, 2.8] {
        let (other, its) = waste(best * factor);
        assert!(at_best + 3.0 * (error + its) < other, "{at_best} at the best, {other} at {factor} of it");
    }
}

#[test]
fn an_interrupted_job_goes_back_to_its_last_finished_checkpoint() {
    let plant = Pairs { hosts: 1, per_host: 2 };
    // Work 100, write 10. Faults at 205 (in the second write, after 200 of work) and at 250.
    let known = vec![at(205, Class::Gpu, 0, 0), at(250, Class::Software, 1, 0)];
    let upkeep = Upkeep { known, ..nothing(&plant) };
    let machine = with(&upkeep, every(100, 10, 7));
    let (ended, replayed) = run("fcfs", &[job(0, 2, 250)], &machine);
    // At 205: 195 done, 100 kept. On at 212 with 100 done. At 250: 38 done since, lost. On at 257: 100, write, 50.
    assert_eq!(ended[0].finish.ns(), 257 + 100 + 10 + 50);
    let time = replayed.gpu_time;
    assert_eq!((time.lost, time.restart, time.checkpoint), (2 * (95 + 38), 2 * 14, 2 * (10 + 10)));
    assert_eq!(time.useful(), 2 * 250);
    assert_eq!((ended[0].time.interruptions, ended[0].time.stops()), (2, 0));
    assert_eq!(ended[0].time.lost, 95 + 38 + 14);
    let tally = |class| {
        replayed.tallies.iter().find(|(reason, _)| *reason == Reason::Fault(class)).expect("all are").1
    };
    assert_eq!((tally(Class::Gpu).lost, tally(Class::Software).lost), (2 * 95, 2 * 38));
}

#[test]
fn spares_take_over_and_are_given_back() {
    let plant = Pairs { hosts: 3, per_host: 2 };
    let fault = at(100, Class::Gpu, 1, 1_000);
    let finish = |hosts: u32, delay: u64| {
        let known = vec![fault, at(150, Class::Host, 2, 10)];
        let upkeep = Upkeep { known, spares: Spares { hosts, delay }, ..nothing(&plant) };
        let jobs = [job(0, 4, 400), job(1, 2, 5_000)];
        let (ended, replayed) = run("fcfs", &jobs, &with(&upkeep, Life::default()));
        assert_eq!(replayed.gpu_time.total(), u128::from(replayed.end.ns()) * 6);
        (ended[0].finish.ns(), ended[1].start.ns())
    };
    // Without a spare the first job, interrupted at 100, finds room once host 2, which the second one loses at 150, is back.
    assert_eq!(finish(0, 0), (160 + 400, 1));
    // A hot one takes over at once: and host 2, which has no spare any more, fails under the first job at 150.
    assert_eq!(finish(1, 0), (160 + 400, 560));
    assert_eq!(finish(1, 30), (160 + 400, 560));
    assert_eq!(finish(1, 90), (190 + 400, 590));
}

#[test]
fn a_repaired_host_is_the_spare_of_the_next() {
    let plant = Pairs { hosts: 3, per_host: 2 };
    // Host 0 at 100 until 200: host 2 takes over. Host 1 at 300: host 0 does. Host 0 at 350: none is left.
    let known =
        vec![at(100, Class::Gpu, 0, 100), at(300, Class::Host, 1, 10_000), at(350, Class::Gpu, 1, 20)];
    let upkeep = Upkeep { known, spares: Spares { hosts: 1, delay: 0 }, ..nothing(&plant) };
    let machine = with(&upkeep, Life::default());
    let (ended, replayed) = run("fcfs", &[job(0, 4, 500)], &machine);
    assert_eq!((ended[0].finish.ns(), ended[0].time.interruptions), (370 + 500, 3));
    // The failed GPUs: host 0 whole while it is replaced, host 1 to the end, one GPU for 20.
    assert_eq!(replayed.gpu_time.failed, 2 * 100 + 2 * (870 - 300) + 20);
}

#[test]
fn a_cut_off_leaf_fails_and_one_that_is_drained_drains() {
    let plant = Pairs { hosts: 4, per_host: 2 };
    let switch = Component { class: Class::Switch, index: 0 };
    let jobs = [job(0, 4, 300), job(0, 4, 300)];
    let upkeep = Upkeep { known: vec![at(100, Class::Switch, 1, 50)], ..nothing(&plant) };
    let (ended, replayed) = run("fcfs", &jobs, &with(&upkeep, Life::default()));
    assert_eq!((ended[0].finish.ns(), ended[1].finish.ns()), (300, 150 + 300));
    assert_eq!((replayed.gpu_time.failed, replayed.gpu_time.lost), (4 * 50, 4 * 100));
    let window = |leave, notice| Maintenance { component: switch, at: 100, lasts: 1_000, notice, leave };
    let drained = |leave, notice| {
        let upkeep = Upkeep { maintenance: vec![window(leave, notice)], ..nothing(&plant) };
        let (ended, replayed) = run("fcfs", &jobs, &with(&upkeep, every(1_000, 20, 5)));
        assert_eq!(replayed.gpu_time.total(), u128::from(replayed.end.ns()) * 8);
        assert_eq!(replayed.gpu_time.failed, 0);
        (ended[0].finish.ns(), replayed.gpu_time.lost, replayed.gpu_time.draining)
    };
    // Stopped at 100 with nothing written: on at 300, when the other job has ended; pays its restart and begins anew.
    assert_eq!(drained(Leave::Stopped, 0), (300 + 5 + 300, 4 * 100, 4 * (605 - 100)));
    // Moved at 60 with its work in a checkpoint.
    assert_eq!(drained(Leave::Migrated, 40), (300 + 20 + 5 + 240, 0, 4 * (565 - 60)));
}

#[test]
fn nothing_is_placed_where_notice_was_given() {
    let plant = Pairs { hosts: 2, per_host: 2 };
    let component = Component { class: Class::Host, index: 0 };
    let window = Maintenance { component, at: 500, lasts: 100, notice: 400, leave: Leave::Stopped };
    let upkeep = Upkeep { maintenance: vec![window], ..nothing(&plant) };
    let jobs = [job(0, 2, 200), job(0, 2, 50), job(150, 2, 100), job(210, 2, 10)];
    let (ended, _) = run("fcfs", &jobs, &with(&upkeep, Life::default()));
    let starts: Vec<u64> = ended.iter().map(|ended| ended.start.ns()).collect();
    // The first runs out the notice; from then on host 1 is all there is.
    assert_eq!(starts, [0, 0, 150, 250]);
}

#[test]
fn moving_costs_where_the_gpus_are_others_and_loading_where_the_data_are_not() {
    let plant = Pairs { hosts: 2, per_host: 1 };
    let component = Component { class: Class::Gpu, index: 0 };
    let window = Maintenance { component, at: 100, lasts: 10, notice: 0, leave: Leave::Migrated };
    let upkeep = Upkeep { maintenance: vec![window], ..nothing(&plant) };
    let life = Life { migration: 30, loading: 40, restart: 2, ..Life::default() };
    let (ended, replayed) = run("fcfs", &[job(0, 1, 200)], &with(&upkeep, life.clone()));
    assert_eq!((ended[0].finish.ns(), ended[0].time.stops()), (40 + 200 + 2 + 30, 1));
    assert_eq!((replayed.gpu_time.loading, replayed.gpu_time.restart), (40, 32));
    let near = Life { data_region: Some(0), ..life };
    assert_eq!(run("fcfs", &[job(0, 1, 200)], &with(&upkeep, near)).0[0].finish.ns(), 200 + 2 + 30);
}

#[test]
fn a_job_that_never_gets_to_a_checkpoint_is_given_up() {
    let plant = Pairs { hosts: 1, per_host: 8 };
    let lifetime = Lifetime::Exponential { mean: 100.0 };
    let process = Process { class: Class::Gpu, count: 8, number: 0, lifetime, repair: Repair::Fixed(1) };
    let upkeep = Upkeep { processes: vec![process], ..nothing(&plant) };
    let machine = with(&upkeep, Life::default());
    let jobs = [job(0, 8, HOUR)];
    let error =
        run_by_duration(&jobs, &[HOUR], &machine, scheduler("fcfs", &machine).as_mut(), &mut Kept::default())
            .expect_err("it cannot end");
    assert_eq!(
        error.to_string(),
        "job 0 was interrupted 10000 times in a row before it had written a checkpoint"
    );
}

/// Whatever fails, is drained or replaced: every GPU-nanosecond is counted once, and work kept is work asked.
#[test]
fn nothing_is_lost_but_what_is_counted_as_lost() {
    let (mut failed, mut draining, mut lost) = (0, 0, 0);
    for seed in 0..1_500u64 {
        let mut stream = RandomStream::new(seed, "fault-scenarios", 0);
        let mut up_to = |most: u64| stream.below(most + 1);
        let plant = Pairs { hosts: 4 + up_to(4) as u32, per_host: 1 + up_to(3) as u32 };
        let classes = Class::ALL.into_iter().filter(|_| up_to(2) == 0).collect::<Vec<_>>();
        let process = |class: Class| {
            let mean = (2_000 + up_to(20_000)) as f64 * f64::from(plant.count(class)) / 4.0;
            let lifetime = match up_to(1) {
                0 => Lifetime::Exponential { mean },
                _ => Lifetime::weibull(mean, 0.7),
            };
            let repair = match up_to(2) {
                0 => Repair::Fixed(up_to(300)),
                1 => Repair::Exponential { mean: 200.0 },
                _ => Repair::log_normal(200.0, 1.0),
            };
            Process { class, count: plant.count(class), number: 0, lifetime, repair }
        };
        let processes = classes.into_iter().map(process).collect();
        let windows = up_to(3);
        let window = |index: u64| Maintenance {
            component: match up_to(2) {
                0 => Component { class: Class::Switch, index: index as u32 % plant.hosts.div_ceil(2) },
                1 => Component { class: Class::Gpu, index: up_to(3) as u32 },
                _ => Component { class: Class::Host, index: up_to(3) as u32 },
            },
            at: index * 3_000 + up_to(1_000),
            lasts: 1 + up_to(1_500),
            notice: up_to(400),
            leave: if up_to(1) == 0 { Leave::Stopped } else { Leave::Migrated },
        };
        let maintenance = (0..windows).map(window).collect();
        let spares = Spares { hosts: up_to(2) as u32, delay: up_to(1) * 50 };
        let upkeep = Upkeep { plant: &plant, processes, known: Vec::new(), maintenance, spares };
        let name =
            ["fcfs", "first-fit", "sjf", "smallest", "easy", "conservative", "priority", "mast", "gang"]
                [up_to(8) as usize];
        let most = u64::from((plant.hosts - spares.hosts) * plant.per_host);
        let mut submit = 0;
        let jobs: Vec<Job> = (0..5 + up_to(25))
            .map(|_| {
                submit += up_to(300);
                let largest = most.min(1 + up_to(most));
                let gpus = 1 + up_to(largest - 1) as u32;
                Job { priority: up_to(3) as i32, ..job(submit, gpus, 1 + up_to(800)) }
            })
            .collect();
        let durations: Vec<u64> = jobs.iter().map(|job| job.estimate).collect();
        let (interval, write) = (20 + up_to(100), up_to(20));
        let life = Life {
            restart: up_to(10),
            migration: up_to(1) * 5,
            loading: up_to(1) * 7,
            ..every(interval, write, 0)
        };
        let mut machine = with(&upkeep, life);
        machine.reaction_delay = Span::from_ns(up_to(1) * 3);
        machine.seed = seed;
        let (ended, replayed) = run(name, &jobs, &machine);
        let time = replayed.gpu_time;
        let gpus = plant.hosts * plant.per_host;
        assert_eq!(time.total(), u128::from(replayed.end.ns()) * u128::from(gpus), "{name}, seed {seed}");
        let asked: u128 =
            jobs.iter().zip(&durations).map(|(job, &ns)| u128::from(ns) * u128::from(job.gpus)).sum();
        assert_eq!(time.useful(), asked, "{name}, seed {seed}");
        let by_cause: u128 = replayed.tallies.iter().map(|(_, tally)| tally.lost).sum();
        assert_eq!(by_cause, time.lost, "{name}, seed {seed}");
        let hit: u64 = ended.iter().map(|ended| u64::from(ended.time.interruptions)).sum();
        let told: u64 = replayed.tallies.iter().map(|(_, tally)| tally.interruptions).sum();
        assert!(hit <= told, "jobs that moved count too");
        (failed, draining, lost) = (failed + time.failed, draining + time.draining, lost + time.lost);
    }
    assert!(failed > 0 && draining > 0 && lost > 0);
}

#[test]
fn what_is_out_is_not_given_away() {
    let plant = Pairs { hosts: 2, per_host: 4 };
    let upkeep = Upkeep { known: vec![at(10, Class::Gpu, 2, 100)], ..nothing(&plant) };
    let machine = with(&upkeep, Life::default());
    let jobs = [job(0, 1, 1_000)];
    let (mut cluster, mut scheduler) = (Cluster::new(&jobs, &machine), scheduler("fcfs", &machine));
    for (now, free) in [(0, 7), (10, 6), (110, 7)] {
        cluster.advance(now, scheduler.as_mut());
        cluster.decide(scheduler.as_mut()).expect("it makes sense");
        assert_eq!(cluster.free(), free, "at {now}");
        assert_eq!(cluster.regions()[0].are_free(&[EndpointId(2)]), now != 10);
    }
}

/// Five hosts of one GPU in a line, cable i from host i to host i + 1; what is apart from the longest piece is cut off.
struct Line;

impl Plant for Line {
    fn count(&self, _: Class) -> u32 {
        5
    }

    fn gpus(&self, _: Component, _: &mut Vec<EndpointId>) {}

    fn cut_off(&self, out: &[Component]) -> Vec<EndpointId> {
        let piece = |gpu: u32| out.iter().filter(|cable| cable.index < gpu).count();
        let length = |of: usize| (0..5).filter(|&gpu| piece(gpu) == of).count();
        let longest = (0..=out.len()).rev().max_by_key(|&of| length(of)).expect("there is one");
        (0..5).filter(|&gpu| piece(gpu) != longest).map(EndpointId).collect()
    }
}

/// Cable 1 leaves the pieces 01 and 234, cable 3 besides 01, 23 and 4, of which the first is the longest.
#[test]
fn what_fails_may_end_a_cut_and_what_is_repaired_begin_one() {
    let cables = |repairs: [u64; 2]| Upkeep {
        plant: &Line,
        processes: Vec::new(),
        known: vec![at(10, Class::Cable, 1, repairs[0]), at(20, Class::Cable, 3, repairs[1])],
        maintenance: Vec::new(),
        spares: Spares::default(),
    };
    for (repairs, expected) in
        [([30, 50], [(10, 3), (20, 2), (40, 4), (70, 5)]), ([90, 50], [(10, 3), (20, 2), (70, 3), (100, 5)])]
    {
        let upkeep = cables(repairs);
        let machine = with(&upkeep, Life::default());
        let jobs = [job(200, 1, 1_000)];
        let (mut cluster, mut scheduler) = (Cluster::new(&jobs, &machine), scheduler("fcfs", &machine));
        for (now, free) in expected {
            cluster.advance(now, scheduler.as_mut());
            cluster.decide(scheduler.as_mut()).expect("it makes sense");
            assert_eq!(cluster.free(), free, "at {now}");
        }
    }
    // On 01, which is cut off from 70 to 100 by what is repaired then.
    let upkeep = cables([90, 50]);
    let (ended, replayed) = run("fcfs", &[job(30, 2, 100)], &with(&upkeep, Life::default()));
    assert_eq!((ended[0].finish.ns(), ended[0].time.interruptions), (130, 0));
    assert_eq!((replayed.gpu_time.failed, replayed.gpu_time.total()), (2 * 10 + 3 * 50, 5 * 130));
}

/// Of three hosts the last one's cable is out until 60, and its leaf from 20 to 65: schedulers hear that it takes until then.
#[test]
fn what_is_cut_off_twice_is_gone_until_both_are_repaired() {
    let plant = Pairs { hosts: 3, per_host: 1 };
    let known = vec![at(10, Class::Cable, 2, 50), at(20, Class::Switch, 1, 45)];
    let upkeep = Upkeep { known, ..nothing(&plant) };
    for name in ["fcfs", "easy", "conservative", "priority", "mast", "gang"] {
        let (ended, replayed) = run(name, &[job(0, 3, 30)], &with(&upkeep, Life::default()));
        assert_eq!((ended[0].finish.ns(), ended[0].time.interruptions), (95, 1), "{name}");
        assert_eq!(replayed.gpu_time.failed, 55, "{name}");
    }
}

/// Two jobs take turns on the two GPUs of a host; a fault in the slice of the one undoes the work of both, and software's only that of
/// the one that runs.
#[test]
fn a_fault_takes_what_is_in_the_memory_of_gpus() {
    let plant = Pairs { hosts: 1, per_host: 2 };
    let jobs = [job(0, 2, 20), job(0, 2, 20)];
    let with_fault = |class| {
        // Slices of 7: the first job until 7, the second until 14, the first until 21.
        let upkeep = Upkeep { known: vec![at(16, class, 0, 5)], ..nothing(&plant) };
        let (ended, replayed) = run("gang", &jobs, &with(&upkeep, Life::default()));
        assert_eq!(replayed.gpu_time.total(), u128::from(replayed.end.ns()) * 2);
        assert_eq!(replayed.gpu_time.useful(), 2 * 40);
        let hits: Vec<u32> = ended.iter().map(|ended| ended.time.interruptions).collect();
        (replayed.gpu_time.lost, replayed.gpu_time.failed, hits)
    };
    assert_eq!(with_fault(Class::Gpu), (2 * (9 + 7), 5, vec![1, 1]));
    assert_eq!(with_fault(Class::Software), (2 * 9, 0, vec![1, 0]));
}

#[test]
fn elastic_jobs_shrink_grow_and_start_smaller() {
    let plant = Pairs { hosts: 1, per_host: 8 };
    let known = |faults: &[KnownFault]| Upkeep { known: faults.to_vec(), ..nothing(&plant) };
    let with_lives = |upkeep: &Upkeep<'_>, restart: u64, jobs: &[Job]| {
        let mut machine = with(upkeep, Life::default());
        let elastic = Life { elastic: Some(Sizes::Between(2, 8)), restart, ..Life::default() };
        machine.lives = Lives::Each(
            (0..jobs.len()).map(|job| if job == 0 { elastic.clone() } else { Life::default() }).collect(),
        );
        let (ended, replayed) = run("easy", jobs, &machine);
        assert_eq!(replayed.gpu_time.total(), u128::from(replayed.end.ns()) * 8);
        (ended.iter().map(|ended| ended.finish.ns()).collect::<Vec<_>>(), replayed.gpu_time)
    };
    let whole = known(&[]);
    // Alone for 50, on 4 GPUs for 30 while the other has 4, and on 8 again for what is left of 100 at 65.
    let jobs = [job(0, 8, 100), job(50, 4, 30)];
    let (ends, time) = with_lives(&whole, 0, &jobs);
    assert_eq!((ends, time.useful()), (vec![80 + 35, 80], 8 * 100 + 4 * 30));
    // With a restart of 40 it shrinks, as the other waits, but 40 + 35 is no gain over 70 when that has ended.
    let (ends, time) = with_lives(&whole, 40, &[job(0, 8, 100), job(50, 4, 70)]);
    assert_eq!((ends, time.restart), (vec![50 + 40 + 100, 120], 4 * 40));
    // Six GPUs at the start, for the other came first: 60 on 4 do the work of 30.
    let (ends, _) = with_lives(
        &whole,
        0,
        &[job(10, 8, 100), job(0, 4, 70)]
            .map(|j| Job { submit: windtunnel_kernel::CalendarTime::from_ns(10), ..j }),
    );
    assert_eq!(ends[0], 10 + 70 + 65);
    // Of eight GPUs one fails at 30: 30 done and lost, then 100 on 7 until it is back; growing restarts nothing.
    let broken = known(&[at(30, Class::Gpu, 0, 35)]);
    let (ends, time) = with_lives(&broken, 0, &[job(0, 8, 100)]);
    // From 30 to 65 on 7 GPUs: 30 and a rest of the work, rounded down; then all eight.
    assert_eq!((ends, time.lost, time.failed), (vec![65 + 70], 8 * 30, 35));
}

/// Elastic or not, what is worked is what was asked for, but for a nanosecond of a job's GPUs each time that its size changes.
#[test]
fn elastic_work_is_conserved() {
    let mut resized = 0;
    for seed in 0..800u64 {
        let mut stream = RandomStream::new(seed, "elastic-scenarios", 0);
        let mut up_to = |most: u64| stream.below(most + 1);
        let plant = Pairs { hosts: 4, per_host: 4 };
        let lifetime = Lifetime::Exponential { mean: 30_000.0 };
        let process =
            Process { class: Class::Gpu, count: 16, number: 0, lifetime, repair: Repair::Fixed(200) };
        let upkeep = Upkeep { processes: vec![process], ..nothing(&plant) };
        let (mut submit, mut lives, mut jobs) = (0, Vec::new(), Vec::new());
        for _ in 0..20 {
            submit += up_to(200);
            let gpus = 1 + up_to(11) as u32;
            jobs.push(Job { priority: up_to(2) as i32, ..job(submit, gpus, 100 + up_to(600)) });
            let (least, most) = (1 + gpus / 3, (gpus + 4).min(16));
            let elastic = match up_to(3) {
                0 => Some(Sizes::Between(least, most)),
                // Every third number, the one asked for among them.
                1 => Some(Sizes::Only((least..=most).filter(|n| n % 3 == gpus % 3).collect())),
                _ => None,
            };
            lives.push(Life { elastic, ..every(50 + up_to(100), up_to(10), up_to(10)) });
        }
        let mut machine = with(&upkeep, Life::default());
        (machine.lives, machine.seed) = (Lives::Each(lives), seed);
        let names = ["fcfs", "first-fit", "sjf", "smallest", "easy", "conservative", "priority", "mast"];
        let name = names[up_to(7) as usize];
        let (ended, replayed) = run(name, &jobs, &machine);
        let time = replayed.gpu_time;
        assert_eq!(time.total(), u128::from(replayed.end.ns()) * 16, "{name}, seed {seed}");
        let asked: i128 = jobs.iter().map(|job| i128::from(job.estimate) * i128::from(job.gpus)).sum();
        let starts: i128 = ended.iter().map(|e| i128::from(1 + e.time.stops() + e.time.interruptions)).sum();
        let off = (time.useful() as i128 - asked).abs();
        assert!(off <= starts * 2 * 16, "{name}, seed {seed}: {off} after {starts} starts");
        resized += ended.iter().map(|ended| ended.time.stops()).sum::<u32>();
    }
    assert!(resized > 800, "{resized}");
}
