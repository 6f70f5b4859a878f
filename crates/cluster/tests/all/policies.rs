//! Schedulers that stop jobs, on logs small enough to follow by hand.

use crate::common::{self, assert_conserved, job, machine, run, scheduler};
use windtunnel_cluster::by_duration::{Ended, Observer, RunError, run as run_by_duration};
use windtunnel_cluster::cluster::{ClusterError, Job, JobId, Machine, Running, View};
use windtunnel_cluster::placement::Locality;
use windtunnel_cluster::scheduler::{Decision, Options, Scheduler, by_name};
use windtunnel_kernel::{EndpointId, RandomStream, Span};

fn with_priority(job: Job, priority: i32) -> Job {
    Job { priority, ..job }
}

fn durations(jobs: &[Job]) -> Vec<u64> {
    jobs.iter().map(|job| job.estimate).collect()
}

#[test]
fn a_higher_priority_stops_the_latest_of_the_lowest() {
    let mut machine = machine(8, 8);
    machine.lives = common::restarting(3);
    let jobs = [
        with_priority(job(0, 3, 100), 1),
        with_priority(job(0, 2, 100), 0),
        with_priority(job(5, 3, 100), 0),
        // Needs 4: the job of time 5 gives 3, the other of priority 0 gives 2.
        with_priority(job(10, 4, 20), 2),
    ];
    let (found, replayed) = run("priority", &jobs, &machine);
    assert_eq!(found[3], (10, 30));
    assert_eq!(found[0], (0, 100));
    // One GPU stays free from 10 to 30, which the second, at the head of the rest, cannot use.
    assert_eq!(found[1], (0, 30 + 3 + 90));
    assert_eq!(found[2], (5, 30 + 3 + 95));
    assert_eq!(replayed.gpu_time.restart, 3 * 2 + 3 * 3);
    assert_conserved(replayed.gpu_time, replayed.end, &jobs, &durations(&jobs), 8);
}

/// On one GPU, where all jobs are there from the start, no order makes the latest job less late (Jackson's rule, 1955).
#[test]
fn the_earliest_deadline_first_is_least_late() {
    let late = |jobs: &[Job], name: &str| {
        let (ended, _) = run(name, jobs, &machine(1, 1));
        let due = |(job, &(_, finish)): (&Job, &(u64, u64))| finish as i64 - job.deadline as i64;
        jobs.iter().zip(&ended).map(due).max().expect("there are jobs")
    };
    let mut better = 0;
    for seed in 0..40 {
        let mut stream = RandomStream::new(seed, "deadlines", 0);
        let mut up_to = |most: u64| 1 + stream.below(most);
        let jobs: Vec<Job> = (0..6).map(|_| Job { deadline: up_to(300), ..job(0, 1, up_to(100)) }).collect();
        let edf = late(&jobs, "edf");
        better += u32::from(edf < late(&jobs, "fcfs"));
        // Every order, as that in which they are submitted.
        let mut order: Vec<usize> = (0..6).collect();
        let mut least = i64::MAX;
        permutations(&mut order, 0, &mut |order| {
            let (mut now, mut worst) = (0, i64::MIN);
            for &job in order {
                now += jobs[job].estimate as i64;
                worst = worst.max(now - jobs[job].deadline as i64);
            }
            least = least.min(worst);
        });
        assert_eq!(edf, least, "seed {seed}");
    }
    assert!(better > 20, "{better}");
    // One without a deadline comes last.
    let jobs = [job(0, 1, 10), Job { deadline: 50, ..job(0, 1, 10) }, Job { deadline: 40, ..job(0, 1, 10) }];
    let ends: Vec<u64> = run("edf", &jobs, &machine(1, 1)).0.iter().map(|&(_, finish)| finish).collect();
    assert_eq!(ends, [30, 20, 10]);
}

fn permutations(order: &mut Vec<usize>, from: usize, each: &mut dyn FnMut(&[usize])) {
    if from == order.len() {
        each(order);
    }
    for place in from..order.len() {
        order.swap(from, place);
        permutations(order, from + 1, each);
        order.swap(from, place);
    }
}

#[test]
fn rows_of_the_matrix_take_turns() {
    let machine = machine(8, 8);
    let options = Options { endpoints: 8, slice: Span::from_ns(10), rows: 2 };
    let jobs = [job(0, 8, 30), job(0, 8, 30), job(0, 4, 5)];
    struct Finish(Vec<(u32, u64)>);
    impl Observer for Finish {
        fn ended(&mut self, ended: &Ended) -> Result<(), String> {
            self.0.push((ended.job.0, ended.finish.ns()));
            Ok(())
        }
    }
    let mut finish = Finish(Vec::new());
    let mut gang = by_name("gang", &options).expect("it exists");
    let replayed = run_by_duration(&jobs, &durations(&jobs), &machine, gang.as_mut(), &mut finish).unwrap();
    // Ten by ten in turn. The third finds room when the first has ended at 50, in a row of its own beside the second's.
    assert_eq!(finish.0, [(0, 50), (1, 60), (2, 65)]);
    assert_conserved(replayed.gpu_time, replayed.end, &jobs, &durations(&jobs), 8);
}

#[test]
fn jobs_of_other_rows_fill_what_a_slice_leaves_idle() {
    let options = Options { endpoints: 8, slice: Span::from_ns(10), rows: 4 };
    let machine = machine(8, 8);
    // Rows: {6 GPUs}, {4 GPUs, 4 GPUs}. In the first row's slice neither of the second fits beside it.
    let jobs = [job(0, 6, 20), job(0, 4, 20), job(0, 4, 20), job(0, 2, 40)];
    struct Nothing;
    impl Observer for Nothing {
        fn ended(&mut self, _: &Ended) -> Result<(), String> {
            Ok(())
        }
    }
    let mut gang = by_name("gang", &options).expect("it exists");
    let replayed = run_by_duration(&jobs, &durations(&jobs), &machine, gang.as_mut(), &mut Nothing).unwrap();
    // 6 x 20 + 2 x 4 x 20 + 2 x 40 = 360 GPU-ns; all eight are busy until the first two rows are through.
    assert_eq!(replayed.gpu_time.busy, 360);
    assert!(replayed.end.ns() <= 60, "{}", replayed.end.ns());
}

#[test]
fn low_priorities_move_where_they_strand_nobody() {
    let mut machine = machine(16, 8);
    machine.regions = 2;
    machine.lives = common::restarting(1);
    let jobs = [
        job(0, 6, 10),
        // Not beside the first.
        job(1, 6, 10),
        // Beside it.
        job(2, 2, 100),
        job(3, 2, 100),
        // 12 GPUs are free, six in each region.
        with_priority(job(20, 8, 50), 1),
    ];
    let (found, replayed) = run("mast", &jobs, &machine);
    assert_eq!(found[4], (20, 70));
    // One of the two moved over to the other at once, and paid its restart.
    let mut ends = [found[2].1, found[3].1];
    ends.sort_unstable();
    assert!(ends == [102, 104] || ends == [103, 103], "{ends:?}");
    assert_eq!(replayed.gpu_time.restart, 2);
    assert_eq!(replayed.gpu_time.stranded, 0);
    // Without priorities nobody makes room, and what is free is stranded.
    let equal = jobs.map(|job| with_priority(job, 0));
    let (found, replayed) = run("mast", &equal, &machine);
    assert_eq!(found[4].0, 102);
    assert_eq!(replayed.gpu_time.stranded, (102 - 20) * 12);
}

#[test]
fn whole_hosts_strand_what_is_left_of_others() {
    let machine = machine(8, 4);
    let whole = |job: Job| Job { locality: Locality::FewestHosts, ..job };
    let jobs = [whole(job(0, 3, 10)), whole(job(0, 3, 20)), whole(job(0, 2, 5))];
    let (found, replayed) = run("fcfs", &jobs, &machine);
    // One GPU free on each host until the first ends.
    assert_eq!(found, [(0, 10), (0, 20), (10, 15)]);
    assert_eq!(replayed.gpu_time.stranded, 2 * 10);
    assert_conserved(replayed.gpu_time, replayed.end, &jobs, &durations(&jobs), 8);
}

#[test]
fn a_job_that_fits_nowhere_is_refused_before_anything_runs() {
    let machine = machine(8, 4);
    let jobs = [job(0, 1, 1), job(0, 9, 1)];
    struct Never;
    impl Observer for Never {
        fn ended(&mut self, _: &Ended) -> Result<(), String> {
            panic!("nothing runs")
        }
    }
    let mut fcfs = scheduler("fcfs", &machine);
    let error = run_by_duration(&jobs, &durations(&jobs), &machine, fcfs.as_mut(), &mut Never).unwrap_err();
    let no_room = ClusterError::NoRoom { job: JobId(1), gpus: 9, locality: Locality::Anywhere };
    assert_eq!(error, RunError::Cluster(no_room));
}

/// A scheduler of somebody's own, with a fault.
struct Faulty(Vec<Decision>);

impl Scheduler for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn queued(&mut self, _: JobId, _: &dyn View) {}

    fn started(&mut self, _: JobId, _: &dyn View) {}

    fn released(&mut self, _: JobId, _: &Running, _: &dyn View) {}

    fn decide(&mut self, _: &dyn View) -> Option<Decision> {
        self.0.pop()
    }

    fn refused(&mut self, _: JobId, _: &dyn View) {}
}

#[test]
fn decisions_that_make_no_sense_are_told() {
    let machine: Machine<'_> = machine(4, 4);
    let jobs = [job(0, 2, 10), job(0, 2, 10)];
    let on = |job: u32, gpus: &[u32]| Decision::StartOn {
        job: JobId(job),
        placement: gpus.iter().map(|&gpu| EndpointId(gpu)).collect(),
        region: 0,
    };
    let cases = [
        (vec![Decision::Start { job: JobId(0), region: 0 }; 2], "starts job 0, which does not wait"),
        (vec![Decision::Start { job: JobId(7), region: 0 }], "starts job 7, which does not wait"),
        (
            vec![Decision::Start { job: JobId(0), region: 1 }],
            "starts job 0 in region 1, expected less than 1",
        ),
        (vec![Decision::Preempt { job: JobId(1) }], "stops job 1, which does not run"),
        (vec![on(1, &[1, 2]), on(0, &[0, 1])], "starts job 1 on GPU 1, which is not free"),
        (vec![on(0, &[3, 3])], "starts job 0 on GPU 3, which is not free"),
        (vec![on(0, &[3, 4])], "starts job 0 on GPU 4, which is not free"),
        (vec![on(0, &[3])], "starts job 0 on 1 GPUs, expected 2"),
        (vec![], "waits for ever"),
    ];
    struct Nothing;
    impl Observer for Nothing {
        fn ended(&mut self, _: &Ended) -> Result<(), String> {
            Ok(())
        }
    }
    for (decisions, message) in cases {
        let error = run_by_duration(&jobs, &durations(&jobs), &machine, &mut Faulty(decisions), &mut Nothing)
            .unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}
