//! Preemption against a slow and obvious reference: who is stopped when, and every start and end, on thousands of small
//! random logs.

use crate::common::{self, assert_conserved, machine, restarting, run};
use windtunnel_cluster::cluster::Job;
use windtunnel_kernel::RandomStream;

/// A job of the reference and how far it has come.
#[derive(Clone, Debug)]
struct Plain {
    submit: u64,
    gpus: u32,
    work: u64,
    priority: i32,
    /// Work done before its present start.
    done: u64,
    /// Since when it runs, and what it pays first.
    runs: Option<(u64, u64)>,
    first: Option<u64>,
    finish: Option<u64>,
    stops: u32,
}

impl Plain {
    fn end(&self) -> Option<u64> {
        self.runs.map(|(start, pays)| start + pays + self.work - self.done)
    }
}

/// Goes through time one unit after the other. The waiting job of highest priority, of these the first submitted, starts if it
/// fits; if stopping jobs of lower priority makes room for it, those stop: one after the other until there is, each time
/// the lowest priority's latest started, of equal ones the first submitted. Else it blocks all others.
fn by_ticks(jobs: &mut [Plain], gpus: u32, restart: u64) {
    let mut now = 0;
    while jobs.iter().any(|job| job.finish.is_none()) {
        for job in jobs.iter_mut().filter(|job| job.end() == Some(now)) {
            (job.finish, job.runs) = (Some(now), None);
        }
        loop {
            let waits = |job: &Plain| job.submit <= now && job.finish.is_none() && job.runs.is_none();
            let waiting = (0..jobs.len()).filter(|&j| waits(&jobs[j]));
            let Some(head) = waiting.min_by_key(|&j| (-jobs[j].priority, j)) else { break };
            let free = |jobs: &[Plain]| {
                gpus - jobs.iter().filter(|job| job.runs.is_some()).map(|job| job.gpus).sum::<u32>()
            };
            let lower: Vec<usize> = (0..jobs.len())
                .filter(|&j| jobs[j].runs.is_some() && jobs[j].priority < jobs[head].priority)
                .collect();
            let most = free(jobs) + lower.iter().map(|&j| jobs[j].gpus).sum::<u32>();
            if most < jobs[head].gpus {
                break;
            }
            while free(jobs) < jobs[head].gpus {
                let latest = |j: &usize| (jobs[*j].priority, std::cmp::Reverse(jobs[*j].runs.unwrap().0), *j);
                let running = lower.iter().copied().filter(|&j| jobs[j].runs.is_some());
                let victim = running.min_by_key(latest).expect("together they have enough");
                let (start, pays) = jobs[victim].runs.take().unwrap();
                jobs[victim].done += (now - start).saturating_sub(pays);
                jobs[victim].stops += 1;
            }
            let pays = if jobs[head].stops > 0 { restart } else { 0 };
            jobs[head].runs = Some((now, pays));
            jobs[head].first.get_or_insert(now);
        }
        now += 1;
    }
}

fn log(seed: u64, gpus: u32) -> Vec<Plain> {
    let mut stream = RandomStream::new(seed, "preemption", 0);
    let mut submit = 0;
    (0..3 + stream.below(17))
        .map(|_| {
            submit += stream.below(4) * stream.below(3);
            let width = if stream.below(3) == 0 { gpus } else { gpus.div_ceil(3) };
            Plain {
                submit,
                gpus: 1 + stream.below(u64::from(width)) as u32,
                work: 1 + stream.below(20),
                priority: stream.below(4) as i32,
                done: 0,
                runs: None,
                first: None,
                finish: None,
                stops: 0,
            }
        })
        .collect()
}

#[test]
fn priority_stops_whom_the_reference_stops() {
    let (mut stopped, mut spared) = (0, 0);
    for seed in 0..8_000 {
        let (gpus, restart) = ([4, 7, 16][(seed % 3) as usize], seed % 4);
        let mut plain = log(seed, gpus);
        let job = |plain: &Plain| Job {
            priority: plain.priority,
            ..common::job(plain.submit, plain.gpus, plain.work)
        };
        let jobs: Vec<Job> = plain.iter().map(job).collect();
        let mut machine = machine(gpus, 1);
        machine.lives = restarting(restart);
        let (found, replayed) = run("priority", &jobs, &machine);
        by_ticks(&mut plain, gpus, restart);
        let expected: Vec<(u64, u64)> =
            plain.iter().map(|job| (job.first.expect("it ran"), job.finish.expect("it ended"))).collect();
        assert_eq!(found, expected, "log {seed} on {gpus} GPUs, restart {restart}: {plain:?}");
        let durations: Vec<u64> = plain.iter().map(|job| job.work).collect();
        assert_conserved(replayed.gpu_time, replayed.end, &jobs, &durations, gpus);
        let stops: u32 = plain.iter().map(|job| job.stops).sum();
        stopped += stops;
        // The order matters where jobs of lower priority go on.
        spared += u32::from(stops > 0 && plain.iter().any(|job| job.stops == 0 && job.priority == 0));
    }
    assert!(stopped > 8_000 && spared > 2_000, "{stopped} stops, {spared} logs in which some go on");
}

#[test]
fn the_lowest_priority_and_the_latest_start_go_first_and_no_more_than_need_be() {
    let of = |submit, gpus, priority| Job { priority, ..common::job(submit, gpus, 100) };
    // (jobs before, who is stopped by a job of 3 GPUs and priority 5 at 10).
    let cases: [(&[Job], &[usize]); 4] = [
        (&[of(0, 3, 0), of(5, 3, 0), of(6, 2, 1)], &[1]),
        (&[of(0, 3, 0), of(5, 3, 1), of(6, 2, 1)], &[0]),
        (&[of(0, 3, 1), of(5, 1, 0), of(6, 4, 0)], &[2]),
        (&[of(0, 4, 1), of(5, 2, 0), of(6, 2, 1)], &[1, 2]),
    ];
    for name in ["priority", "mast"] {
        for (before, stopped) in cases {
            let mut jobs = before.to_vec();
            jobs.push(of(10, 3, 5));
            let (found, _) = run(name, &jobs, &machine(8, 8));
            let undisturbed = |&(j, job): &(usize, &Job)| found[j].1 > job.submit.ns() + 100;
            let late: Vec<usize> = before.iter().enumerate().filter(undisturbed).map(|(j, _)| j).collect();
            assert_eq!((late.as_slice(), found[before.len()]), (stopped, (10, 110)), "{name} {before:?}");
        }
    }
}
