//! Schedulers against slow and obvious ones: every job's start, on thousands of small random logs.

use crate::common::{self, assert_conserved, job, machine, run, run_for};
use windtunnel_cluster::cluster::Job;
use windtunnel_kernel::RandomStream;

/// A job of the reference.
#[derive(Clone, Copy)]
struct Plain {
    submit: u64,
    gpus: u32,
    /// How long it runs.
    duration: u64,
    /// How long it is expected to.
    estimate: u64,
}

/// From the time, the queue, the running jobs with their starts and the free GPUs: who starts.
type Pick<'a> = dyn Fn(u64, &[usize], &[(usize, u64)], u32) -> Vec<usize> + 'a;

/// Goes through time one unit after the other; whenever a job came or ended looks at everything.
fn by_ticks(jobs: &[Plain], gpus: u32, pick: &Pick<'_>) -> Vec<u64> {
    let mut starts: Vec<Option<u64>> = vec![None; jobs.len()];
    let mut now = 0;
    while starts.iter().any(Option::is_none) {
        let running: Vec<(usize, u64)> = (0..jobs.len())
            .filter_map(|j| starts[j].map(|start| (j, start)))
            .filter(|&(j, start)| start + jobs[j].duration > now)
            .collect();
        let busy: u32 = running.iter().map(|&(j, _)| jobs[j].gpus).sum();
        let queue: Vec<usize> =
            (0..jobs.len()).filter(|&j| starts[j].is_none() && jobs[j].submit <= now).collect();
        let came = jobs.iter().any(|job| job.submit == now);
        let ended = (0..jobs.len()).any(|j| starts[j].is_some_and(|start| start + jobs[j].duration == now));
        if came || ended {
            for j in pick(now, &queue, &running, gpus - busy) {
                starts[j] = Some(now);
            }
        }
        now += 1;
    }
    starts.into_iter().flatten().collect()
}

fn fcfs(jobs: &[Plain], gpus: u32) -> Vec<u64> {
    by_ticks(jobs, gpus, &|_, queue, _, mut free| {
        let mut picked = Vec::new();
        for &j in queue {
            if jobs[j].gpus > free {
                break;
            }
            free -= jobs[j].gpus;
            picked.push(j);
        }
        picked
    })
}

fn first_fit(jobs: &[Plain], gpus: u32) -> Vec<u64> {
    by_ticks(jobs, gpus, &|_, queue, _, mut free| {
        let mut picked = Vec::new();
        for &j in queue {
            if jobs[j].gpus <= free {
                free -= jobs[j].gpus;
                picked.push(j);
            }
        }
        picked
    })
}

fn sjf(jobs: &[Plain], gpus: u32) -> Vec<u64> {
    by_ticks(jobs, gpus, &|_, queue, _, mut free| {
        let mut order = queue.to_vec();
        order.sort_by_key(|&j| (jobs[j].estimate, j));
        let mut picked = Vec::new();
        for j in order {
            if jobs[j].gpus > free {
                break;
            }
            free -= jobs[j].gpus;
            picked.push(j);
        }
        picked
    })
}

/// EASY as its paper tells it: start the head while it fits; then find when the head will fit, and let through, in order,
/// who is gone by then or needs no more than what is left over then.
fn easy(jobs: &[Plain], gpus: u32) -> Vec<u64> {
    by_ticks(jobs, gpus, &|now, queue, running, mut free| {
        let mut picked = Vec::new();
        // (expected end, GPUs); an overdue job may end at any moment.
        let mut ends: Vec<(u64, u32)> =
            running.iter().map(|&(j, start)| ((start + jobs[j].estimate).max(now), jobs[j].gpus)).collect();
        let mut rest = queue;
        while let [head, others @ ..] = rest {
            if jobs[*head].gpus > free {
                break;
            }
            free -= jobs[*head].gpus;
            ends.push((now + jobs[*head].estimate, jobs[*head].gpus));
            picked.push(*head);
            rest = others;
        }
        let [head, others @ ..] = rest else { return picked };
        ends.sort_unstable();
        let (mut then, mut shadow) = (free, now);
        for &(end, gpus) in &ends {
            if then >= jobs[*head].gpus && end > shadow {
                break;
            }
            then += gpus;
            shadow = end;
        }
        let mut extra = then - jobs[*head].gpus;
        for &j in others {
            let gone = now + jobs[j].estimate <= shadow;
            if jobs[j].gpus <= free && (gone || jobs[j].gpus <= extra) {
                free -= jobs[j].gpus;
                if !gone {
                    extra -= jobs[j].gpus;
                }
                picked.push(j);
            }
        }
        picked
    })
}

/// Conservative backfill on an array of time: each job in turn takes the first stretch that is free.
fn conservative(jobs: &[Plain], gpus: u32) -> Vec<u64> {
    let mut free = vec![gpus; 1];
    jobs.iter()
        .map(|job| {
            let mut start = job.submit as usize;
            loop {
                let end = start + job.duration as usize;
                if free.len() < end {
                    free.resize(end, gpus);
                }
                match (start..end).rev().find(|&t| free[t] < job.gpus) {
                    Some(t) => start = t + 1,
                    None => break,
                }
            }
            free[start..start + job.duration as usize].iter_mut().for_each(|f| *f -= job.gpus);
            start as u64
        })
        .collect()
}

fn log(seed: u64, gpus: u32, exact: bool) -> Vec<Plain> {
    let mut stream = RandomStream::new(seed, "log", 0);
    let count = 1 + stream.below(30);
    let mut submit = 0;
    (0..count)
        .map(|_| {
            submit += stream.below(4) * stream.below(4);
            let duration = 1 + stream.below(20);
            let estimate = if exact { duration } else { 1 + stream.below(25) };
            let width = if stream.below(3) == 0 { gpus } else { gpus.div_ceil(3) };
            Plain { submit, gpus: 1 + stream.below(u64::from(width)) as u32, duration, estimate }
        })
        .collect()
}

fn compare(name: &str, logs: u64, exact: bool, reference: &dyn Fn(&[Plain], u32) -> Vec<u64>) {
    for seed in 0..logs {
        let gpus = [4, 7, 16][(seed % 3) as usize];
        let plain = log(seed, gpus, exact);
        let jobs: Vec<Job> =
            plain.iter().map(|plain| job(plain.submit, plain.gpus, plain.estimate)).collect();
        let durations: Vec<u64> = plain.iter().map(|plain| plain.duration).collect();
        let machine = machine(gpus, 1);
        let (found, replayed) = run_for(name, &jobs, &durations, &machine);
        let starts: Vec<u64> = found.iter().map(|&(start, _)| start).collect();
        assert_eq!(starts, reference(&plain, gpus), "{name}, log {seed} on {gpus} GPUs");
        for ((start, finish), duration) in found.iter().zip(&durations) {
            assert_eq!(finish - start, *duration);
        }
        assert_conserved(replayed.gpu_time, replayed.end, &jobs, &durations, gpus);
    }
}

#[test]
fn fcfs_starts_every_job_when_the_reference_does() {
    compare("fcfs", 10_000, true, &fcfs);
}

#[test]
fn easy_starts_every_job_when_the_reference_does() {
    compare("easy", 10_000, true, &easy);
}

#[test]
fn easy_agrees_where_estimates_are_wrong() {
    compare("easy", 3_000, false, &easy);
}

#[test]
fn conservative_starts_every_job_when_the_reference_does() {
    compare("conservative", 5_000, true, &conservative);
}

#[test]
fn first_fit_and_shortest_first_do_too() {
    compare("first-fit", 2_000, true, &first_fit);
    compare("sjf", 2_000, true, &sjf);
}

/// Conservative backfill where jobs end before they are expected to: after each such end all waiting jobs, in order of
/// submission, look for an earlier place between the others' reservations.
fn compressing(jobs: &[Plain], gpus: u32) -> Vec<u64> {
    let mut spans: Vec<Option<(u64, u64)>> = vec![None; jobs.len()];
    let mut starts: Vec<Option<u64>> = vec![None; jobs.len()];
    let reserve = |spans: &mut [Option<(u64, u64)>], j: usize, now: u64| {
        spans[j] = None;
        let used = |t: u64| -> u32 {
            let at = |(span, job): (&Option<(u64, u64)>, &Plain)| {
                span.filter(|&(from, to)| from <= t && t < to).map_or(0, |_| job.gpus)
            };
            spans.iter().zip(jobs).map(at).sum()
        };
        let fits = |start: &u64| (*start..start + jobs[j].estimate).all(|t| used(t) + jobs[j].gpus <= gpus);
        let start = (now..u64::MAX).find(fits).expect("in the end all are free");
        spans[j] = Some((start, start + jobs[j].estimate));
    };
    let mut now = 0;
    while starts.iter().any(Option::is_none) {
        (0..jobs.len()).filter(|&j| jobs[j].submit == now).for_each(|j| reserve(&mut spans, j, now));
        let ends = |j: &usize| starts[*j].is_some_and(|start| start + jobs[*j].duration == now);
        for j in (0..jobs.len()).filter(ends).collect::<Vec<_>>() {
            if spans[j].take().is_some_and(|(_, end)| end > now) {
                let waits = |k: &usize| starts[*k].is_none() && jobs[*k].submit <= now;
                (0..jobs.len()).filter(waits).for_each(|k| reserve(&mut spans, k, now));
            }
        }
        for j in 0..jobs.len() {
            if starts[j].is_none() && spans[j].is_some_and(|(start, _)| start <= now) {
                starts[j] = Some(now);
            }
        }
        now += 1;
    }
    starts.into_iter().flatten().collect()
}

#[test]
fn conservative_moves_jobs_up_as_the_reference_does() {
    for seed in 0..600 {
        let gpus = [4, 7, 16][(seed % 3) as usize];
        let mut plain = log(seed, gpus, false);
        for job in &mut plain {
            job.estimate = job.duration + job.estimate % 9;
        }
        let jobs: Vec<Job> =
            plain.iter().map(|plain| job(plain.submit, plain.gpus, plain.estimate)).collect();
        let durations: Vec<u64> = plain.iter().map(|plain| plain.duration).collect();
        let (found, _) = run_for("conservative", &jobs, &durations, &machine(gpus, 1));
        let starts: Vec<u64> = found.iter().map(|&(start, _)| start).collect();
        assert_eq!(starts, compressing(&plain, gpus), "log {seed} on {gpus} GPUs");
    }
}

#[test]
fn every_scheduler_ends_every_job_and_conserves_gpu_time() {
    for name in windtunnel_cluster::scheduler::SCHEDULERS.map(|built_in| built_in.entry.name) {
        for seed in 0..300 {
            let mut machine = machine(16, 4);
            machine.lives = common::restarting(seed % 3);
            machine.reaction_delay = windtunnel_kernel::Span::from_ns(seed % 2);
            machine.regions = if name == "mast" { 1 + seed as u32 % 3 } else { 1 };
            let mut stream = RandomStream::new(seed, "mixed", 0);
            let mut submit = 0;
            let jobs: Vec<Job> = (0..40)
                .map(|_| {
                    submit += stream.below(6);
                    let most = if name == "mast" && machine.regions > 1 { 4 } else { 12 };
                    let gpus = 1 + stream.below(most) as u32;
                    let mut job = job(submit, gpus, 1 + stream.below(30));
                    job.priority = stream.below(3) as i32;
                    job.locality = windtunnel_cluster::placement::Locality::ALL[stream.below(2) as usize];
                    job
                })
                .collect();
            let durations: Vec<u64> = jobs.iter().map(|job| job.estimate).collect();
            let (found, replayed) = run(name, &jobs, &machine);
            assert_conserved(replayed.gpu_time, replayed.end, &jobs, &durations, 16);
            for ((start, finish), job) in found.iter().zip(&jobs) {
                assert!(*start >= job.submit.ns() && finish - start >= job.estimate, "{name} {seed}");
            }
        }
    }
}
