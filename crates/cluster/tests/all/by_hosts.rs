//! Backfill where jobs need whole hosts, one leaf or one pod: every start against slow and obvious references that place by
//! hosts, and the promise itself, that no waiting head is ever delayed, against what became of every job.

use std::path::Path;

use crate::common::{self, Kept, machine, scheduler};
use windtunnel_cluster::by_duration::{Ended, Observer, run as run_by_duration};
use windtunnel_cluster::cluster::{Job, Machine, Stay};
use windtunnel_cluster::free::Locator;
use windtunnel_cluster::log::{Format, ReadOptions, read};
use windtunnel_cluster::placement::{Locality, PLACEMENTS, Placement};
use windtunnel_kernel::{RandomStream, Span, math};

/// Two hosts a leaf, two leaves a pod.
struct Pairs;

impl Locator for Pairs {
    fn leaf(&self, host: u32) -> u32 {
        host / 2
    }

    fn pod(&self, host: u32) -> u32 {
        host / 4
    }
}

/// A job of the reference.
#[derive(Clone, Copy, Debug)]
struct Plain {
    submit: u64,
    gpus: u32,
    duration: u64,
    estimate: u64,
    locality: Locality,
}

/// GPUs by host.
type Taken = Vec<(usize, u32)>;

/// Best fit over some hosts: while none has enough the fullest, then the tightest that does; the first of equal ones.
fn fill(free: &[u32], hosts: &[usize], gpus: u32) -> Option<Taken> {
    let mut unused: Vec<usize> = hosts.iter().copied().filter(|&host| free[host] > 0).collect();
    let (mut left, mut taken) = (gpus, Taken::new());
    while left > 0 {
        let tight = unused.iter().copied().filter(|&h| free[h] >= left).min_by_key(|&h| (free[h], h));
        let fullest = || unused.iter().copied().min_by_key(|&h| (std::cmp::Reverse(free[h]), h));
        let host = tight.or_else(fullest)?;
        let count = free[host].min(left);
        taken.push((host, count));
        left -= count;
        unused.retain(|&other| other != host);
    }
    Some(taken)
}

/// Where a job of `gpus` goes among `free` GPUs of hosts of `per_host`, if anywhere.
fn place(free: &[u32], per_host: u32, gpus: u32, locality: Locality) -> Option<Taken> {
    let all: Vec<usize> = (0..free.len()).collect();
    let group = |size: usize| {
        let sum = |hosts: &&[usize]| hosts.iter().map(|&host| free[host]).sum::<u32>();
        all.chunks(size).filter(|hosts| sum(hosts) >= gpus).min_by_key(|hosts| (sum(hosts), hosts[0]))
    };
    match locality {
        Locality::Anywhere => fill(free, &all, gpus),
        // Whole hosts, and the rest on one.
        Locality::FewestHosts => {
            let whole = |taken: &Taken| taken[..taken.len() - 1].iter().all(|&(_, count)| count == per_host);
            fill(free, &all, gpus).filter(whole)
        }
        Locality::Leaf => fill(free, group(2)?, gpus),
        Locality::Pod => fill(free, group(4)?, gpus),
    }
}

fn less(free: &[u32], taken: &Taken) -> Vec<u32> {
    let mut less = free.to_vec();
    for &(host, count) in taken {
        less[host] -= count;
    }
    less
}

fn more(free: &[u32], taken: &Taken) -> Vec<u32> {
    let mut more = free.to_vec();
    for &(host, count) in taken {
        more[host] += count;
    }
    more
}

/// EASY as its paper tells it, on hosts. Whenever a job came or ended: the head starts while it finds a place; then find
/// when it will, and let through, in order, who is gone by then or leaves it a place; where its own place would not, one
/// beside the head's.
fn easy(jobs: &[Plain], hosts: usize, per_host: u32) -> Vec<u64> {
    let mut starts: Vec<Option<u64>> = vec![None; jobs.len()];
    let mut held: Vec<Taken> = vec![Taken::new(); jobs.len()];
    let mut free = vec![per_host; hosts];
    let mut now = 0;
    while starts.iter().any(Option::is_none) {
        let ended = |j: usize| starts[j].is_some_and(|start| start + jobs[j].duration == now);
        let ends: Vec<usize> = (0..jobs.len()).filter(|&j| ended(j)).collect();
        for &j in &ends {
            free = more(&free, &held[j]);
        }
        if !ends.is_empty() || jobs.iter().any(|job| job.submit == now) {
            let queue: Vec<usize> =
                (0..jobs.len()).filter(|&j| starts[j].is_none() && jobs[j].submit <= now).collect();
            let mut rest = queue.as_slice();
            while let [head, others @ ..] = rest {
                let Some(taken) = place(&free, per_host, jobs[*head].gpus, jobs[*head].locality) else {
                    break;
                };
                free = less(&free, &taken);
                (starts[*head], held[*head]) = (Some(now), taken);
                rest = others;
            }
            if let [head, others @ ..] = rest {
                let for_head = |free: &[u32]| place(free, per_host, jobs[*head].gpus, jobs[*head].locality);
                let runs = |j: &usize| starts[*j].is_some_and(|start| start + jobs[*j].duration > now);
                let mut coming: Vec<(u64, usize)> = (0..jobs.len())
                    .filter(runs)
                    .map(|j| ((starts[j].unwrap() + jobs[j].estimate).max(now), j))
                    .collect();
                coming.sort_unstable();
                let (mut then, mut shadow) = (free.clone(), now);
                for (index, &(end, j)) in coming.iter().enumerate() {
                    then = more(&then, &held[j]);
                    shadow = end;
                    let last = coming.get(index + 1).is_none_or(|&(next, _)| next > end);
                    if last && for_head(&then).is_some() {
                        break;
                    }
                }
                for &j in others {
                    let Some(mut taken) = place(&free, per_host, jobs[j].gpus, jobs[j].locality) else {
                        continue;
                    };
                    if now + jobs[j].estimate > shadow {
                        if for_head(&less(&then, &taken)).is_none() {
                            let mut beside = free.clone();
                            for (host, count) in for_head(&then).expect("it fits then") {
                                beside[host] = beside[host].min(then[host] - count);
                            }
                            let other = place(&beside, per_host, jobs[j].gpus, jobs[j].locality);
                            let Some(other) = other else { continue };
                            if for_head(&less(&then, &other)).is_none() {
                                continue;
                            }
                            taken = other;
                        }
                        then = less(&then, &taken);
                    }
                    free = less(&free, &taken);
                    (starts[j], held[j]) = (Some(now), taken);
                }
            }
        }
        now += 1;
    }
    starts.into_iter().flatten().collect()
}

/// Conservative backfill on hosts: each job in turn takes the first stretch in which enough stays free on hosts that suit
/// it; whenever one ends before it was expected to, all that wait look again, in turn, between the others' places.
fn conservative(jobs: &[Plain], hosts: usize, per_host: u32) -> Vec<u64> {
    let mut spans: Vec<Option<(u64, u64, Taken)>> = vec![None; jobs.len()];
    let mut starts: Vec<Option<u64>> = vec![None; jobs.len()];
    let reserve = |spans: &mut Vec<Option<(u64, u64, Taken)>>, j: usize, now: u64| {
        spans[j] = None;
        let free_at = |t: u64| {
            let mut free = vec![per_host; hosts];
            for (_, _, taken) in spans.iter().flatten().filter(|(from, to, _)| *from <= t && t < *to) {
                free = less(&free, taken);
            }
            free
        };
        let found = (now..u64::MAX).find_map(|start| {
            let mut least = vec![per_host; hosts];
            for t in start..start + jobs[j].estimate {
                least = least.iter().zip(free_at(t)).map(|(&a, b)| a.min(b)).collect();
            }
            Some((start, place(&least, per_host, jobs[j].gpus, jobs[j].locality)?))
        });
        let (start, taken) = found.expect("in the end all are free");
        spans[j] = Some((start, start + jobs[j].estimate, taken));
    };
    let mut now = 0;
    while starts.iter().any(Option::is_none) {
        (0..jobs.len()).filter(|&j| jobs[j].submit == now).for_each(|j| reserve(&mut spans, j, now));
        let ends = |j: &usize| starts[*j].is_some_and(|start| start + jobs[*j].duration == now);
        for j in (0..jobs.len()).filter(ends).collect::<Vec<_>>() {
            if spans[j].take().is_some_and(|(_, end, _)| end > now) {
                let waits = |k: &usize| starts[*k].is_none() && jobs[*k].submit <= now;
                (0..jobs.len()).filter(waits).for_each(|k| reserve(&mut spans, k, now));
            }
        }
        for j in 0..jobs.len() {
            if starts[j].is_none() && spans[j].as_ref().is_some_and(|(start, ..)| *start <= now) {
                starts[j] = Some(now);
            }
        }
        now += 1;
    }
    starts.into_iter().flatten().collect()
}

/// What jobs run for, beside what is expected.
#[derive(Clone, Copy, PartialEq)]
enum Estimates {
    Exact,
    TooLong,
    Any,
}

/// Jobs of one locality, or of any.
fn log(
    seed: u64,
    hosts: usize,
    per_host: u32,
    locality: Option<Locality>,
    estimates: Estimates,
) -> Vec<Plain> {
    let mut stream = RandomStream::new(seed, "by-hosts", 0);
    let mut submit = 0;
    (0..4 + stream.below(26))
        .map(|_| {
            submit += stream.below(4) * stream.below(4);
            let duration = 1 + stream.below(20);
            let estimate = match estimates {
                Estimates::Exact => duration,
                Estimates::TooLong => duration + stream.below(9),
                Estimates::Any => 1 + stream.below(25),
            };
            let locality = locality.unwrap_or_else(|| Locality::ALL[stream.below(4) as usize]);
            let most = match locality {
                Locality::Leaf => 2,
                Locality::Pod => hosts.min(4),
                _ => hosts,
            };
            let most = if stream.below(3) == 0 { most as u32 * per_host } else { per_host };
            Plain { submit, gpus: 1 + stream.below(u64::from(most)) as u32, duration, estimate, locality }
        })
        .collect()
}

fn as_jobs(plain: &[Plain]) -> (Vec<Job>, Vec<u64>) {
    let job = |plain: &Plain| Job {
        locality: plain.locality,
        ..common::job(plain.submit, plain.gpus, plain.estimate)
    };
    (plain.iter().map(job).collect(), plain.iter().map(|plain| plain.duration).collect())
}

fn on_pairs(hosts: usize, per_host: u32) -> Machine<'static> {
    Machine { locator: Some(&Pairs), ..machine(hosts as u32 * per_host, per_host) }
}

type Reference<'a> = dyn Fn(&[Plain], usize, u32) -> Vec<u64> + 'a;

fn compare(name: &str, logs: u64, estimates: Estimates, reference: &Reference<'_>) {
    let mut waited = 0;
    for seed in 0..logs {
        let (hosts, per_host) = [(4, 2), (4, 4), (6, 8)][(seed % 3) as usize];
        let locality = Locality::ALL.into_iter().cycle().nth(seed as usize / 3).filter(|_| seed % 5 > 0);
        let plain = log(seed, hosts, per_host, locality, estimates);
        // Where all may be anywhere, numbers are reserved and not hosts: see `reference.rs`.
        if name == "conservative" && plain.iter().all(|job| job.locality == Locality::Anywhere) {
            continue;
        }
        let (jobs, durations) = as_jobs(&plain);
        let (found, _) = common::run_for(name, &jobs, &durations, &on_pairs(hosts, per_host));
        let starts: Vec<u64> = found.iter().map(|&(start, _)| start).collect();
        assert_eq!(starts, reference(&plain, hosts, per_host), "{name}, log {seed}: {plain:?}");
        waited += starts.iter().zip(&plain).filter(|(start, job)| **start > job.submit).count();
    }
    assert!(waited > logs as usize, "{waited} jobs waited");
}

#[test]
fn easy_starts_every_job_when_a_reference_on_hosts_does() {
    compare("easy", 6_000, Estimates::Exact, &easy);
}

#[test]
fn easy_agrees_on_hosts_where_estimates_are_wrong() {
    compare("easy", 3_000, Estimates::TooLong, &easy);
    compare("easy", 3_000, Estimates::Any, &easy);
}

#[test]
fn conservative_starts_every_job_when_a_reference_on_hosts_does() {
    compare("conservative", 1_500, Estimates::Exact, &conservative);
}

#[test]
fn conservative_moves_jobs_up_on_hosts_as_the_reference_does() {
    compare("conservative", 500, Estimates::TooLong, &conservative);
}

/// Every stay and end.
#[derive(Default)]
struct Stays(Kept, Vec<Stay>);

impl Observer for Stays {
    fn ended(&mut self, ended: &Ended) -> Result<(), String> {
        self.0.ended(ended)
    }

    fn wants_stays(&self) -> bool {
        true
    }

    fn stay(&mut self, stay: &Stay) -> Result<(), String> {
        self.1.push(stay.clone());
        Ok(())
    }
}

/// (waiting heads, of which delayed) under EASY: started after the first instant at which they would have found a place as they
/// became the head, had nothing come after them. A job is the head once all before it have started.
fn delayed(jobs: &[Job], durations: &[u64], machine: &Machine<'_>) -> (usize, Vec<usize>) {
    let mut stays = Stays::default();
    let mut easy = scheduler("easy", machine);
    run_by_duration(jobs, durations, machine, easy.as_mut(), &mut stays).expect("it ends");
    let per_host = machine.endpoints_per_host;
    let mut on: Vec<Taken> = vec![Taken::new(); jobs.len()];
    for stay in &stays.1 {
        for gpu in &stay.placement {
            on[stay.job.0 as usize].push(((gpu.0 / per_host) as usize, 1));
        }
    }
    let ended: Vec<Ended> = stays.0.0.iter().map(|ended| ended.expect("it ends")).collect();
    let (mut waiting, mut late, mut before) = (0, Vec::new(), 0);
    for (j, job) in jobs.iter().enumerate() {
        let (at, start) = (job.submit.ns().max(before), ended[j].start.ns());
        before = before.max(start);
        if start == at {
            continue;
        }
        waiting += 1;
        // Who has GPUs as it becomes the head: not those after it that start in the same instant.
        let has = |k: usize| {
            let begun = ended[k].start.ns() < at || (ended[k].start.ns() == at && k < j);
            k != j && begun && ended[k].finish.ns() > at
        };
        let mut free = vec![per_host; (machine.endpoints / per_host) as usize];
        let mut ends: Vec<(u64, usize)> = Vec::new();
        for k in (0..jobs.len()).filter(|&k| has(k)) {
            free = less(&free, &on[k]);
            ends.push((ended[k].finish.ns(), k));
        }
        ends.sort_unstable();
        for (end, k) in ends {
            free = more(&free, &on[k]);
            if place(&free, per_host, job.gpus, job.locality).is_some() {
                if start > end {
                    late.push(j);
                }
                break;
            }
        }
    }
    (waiting, late)
}

/// Whatever the placement, as long as it finds GPUs whenever there are legal ones.
fn complete() -> impl Iterator<Item = &'static dyn Placement> {
    PLACEMENTS.into_iter().map(|built_in| built_in.placement).filter(|placement| placement.fits_by_count())
}

#[test]
fn no_waiting_head_is_ever_delayed() {
    assert_eq!(complete().count(), 4);
    let mut heads = 0;
    for placement in complete() {
        for seed in 0..400 {
            let (hosts, per_host) = [(4, 2), (4, 4), (8, 8)][(seed % 3) as usize];
            let locality = Locality::ALL.into_iter().cycle().nth(seed as usize / 3).filter(|_| seed % 5 > 0);
            let plain = log(seed, hosts, per_host, locality, Estimates::Exact);
            let (jobs, durations) = as_jobs(&plain);
            let machine = Machine { placements: vec![placement], ..on_pairs(hosts, per_host) };
            let (waiting, late) = delayed(&jobs, &durations, &machine);
            assert!(late.is_empty(), "{} log {seed}: {late:?} of {plain:?}", placement.name());
            heads += waiting;
        }
    }
    assert!(heads > 3_000, "{heads}");
}

/// Months of a cluster of 26 hosts of 8, as HPC2N's: powers of two and odd sizes, minutes to days, submitted in bursts.
fn like_hpc2n(seed: u64) -> Vec<Plain> {
    let mut stream = RandomStream::new(seed, "hpc2n", 0);
    let mut submit = 0;
    (0..1_500)
        .map(|_| {
            submit +=
                if stream.below(3) > 0 { stream.below(60) } else { (stream.exponential() * 5_400.0) as u64 };
            let gpus = [1, 2, 4, 6, 8, 8, 8, 12, 16, 20, 30, 32, 40, 64, 100][stream.below(15) as usize];
            let duration = (math::exp(8.0 + 1.7 * stream.normal()) as u64).clamp(1, 432_000);
            Plain { submit, gpus, duration, estimate: duration, locality: Locality::FewestHosts }
        })
        .collect()
}

#[test]
fn nor_is_one_in_months_like_those_of_a_real_cluster() {
    let mut heads = 0;
    for seed in 0..4 {
        let (jobs, durations) = as_jobs(&like_hpc2n(seed));
        let (waiting, late) = delayed(&jobs, &durations, &machine(26 * 8, 8));
        assert!(late.is_empty(), "log {seed}: {} of {waiting} heads are delayed", late.len());
        heads += waiting;
    }
    assert!(heads > 1_000, "{heads}");
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn nor_in_the_log_itself() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/jobs/alea_hpc2n.swf.gz");
    let log = read(Path::new(path), Format::Swf, ReadOptions::default()).expect("it can be read");
    for hosts in [26, 34] {
        let logged = log.jobs.iter().filter(|job| job.gpus <= hosts * 8);
        let (jobs, durations): (Vec<Job>, Vec<u64>) = logged
            .map(|job| {
                let known = common::job(job.submit, job.gpus, job.duration);
                (Job { locality: Locality::FewestHosts, ..known }, job.duration)
            })
            .unzip();
        let (waiting, late) = delayed(&jobs, &durations, &machine(hosts * 8, 8));
        assert!(
            late.is_empty() && waiting > 300,
            "{} of {waiting} heads are delayed on {hosts} hosts",
            late.len()
        );
    }
}

#[test]
fn a_job_goes_beside_the_hosts_that_the_head_will_get() {
    let whole = |submit, gpus, duration| Job {
        locality: Locality::FewestHosts,
        ..common::job(submit, gpus, duration)
    };
    let jobs = [
        // A GPU of the first host until 10, and one of the second until 20.
        whole(0, 1, 10),
        whole(0, 1, 1),
        whole(0, 1, 20),
        // The head: the first host is whole again at 10. Two GPUs are free all the time.
        whole(1, 2, 5),
        // Best fit is the first host, in the head's way.
        whole(2, 1, 100),
    ];
    let (found, replayed) = common::run("easy", &jobs, &machine(4, 2));
    assert_eq!(found, [(0, 10), (0, 1), (0, 20), (10, 15), (2, 102)]);
    // Both, until one of them is taken.
    assert_eq!(replayed.gpu_time.stranded, 2);
}

#[test]
fn every_placement_ends_every_job_on_hosts() {
    let plain: Vec<Plain> = like_hpc2n(9).into_iter().take(300).collect();
    let (jobs, durations) = as_jobs(&plain);
    for name in ["easy", "conservative"] {
        for placement in PLACEMENTS.map(|built_in| built_in.placement) {
            let machine =
                Machine { placements: vec![placement], reaction_delay: Span::from_ns(3), ..on_pairs(26, 8) };
            let (found, replayed) = common::run_for(name, &jobs, &durations, &machine);
            common::assert_conserved(replayed.gpu_time, replayed.end, &jobs, &durations, 26 * 8);
            assert_eq!(found.len(), jobs.len());
        }
    }
}
