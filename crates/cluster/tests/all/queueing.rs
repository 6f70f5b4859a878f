//! Queueing theory: waiting times of M/M/c and M/G/1 within their confidence intervals, by batch means.

use crate::common::{SECOND, job, machine, run};
use windtunnel_cluster::cluster::Job;
use windtunnel_kernel::{RandomStream, math};

const JOBS: usize = 400_000;
const BATCHES: usize = 40;

/// A service time in seconds.
type Draw = fn(&mut RandomStream) -> f64;

fn poisson(rate: f64, duration: impl Fn(&mut RandomStream) -> f64, seed: u64) -> Vec<Job> {
    let mut stream = RandomStream::new(seed, "queue", 0);
    let mut now = 0.0;
    (0..JOBS)
        .map(|_| {
            now += stream.exponential() / rate;
            let seconds = duration(&mut stream);
            job((now * SECOND as f64) as u64, 1, ((seconds * SECOND as f64) as u64).max(1))
        })
        .collect()
}

/// Mean wait in seconds, and the half width of its 99.9% confidence interval from batch means.
fn wait(jobs: &[Job], servers: u32, scheduler: &str) -> (f64, f64) {
    let (found, _) = run(scheduler, jobs, &machine(servers, servers));
    let waits: Vec<f64> = found
        .iter()
        .zip(jobs)
        .map(|(&(start, _), job)| (start - job.submit.ns()) as f64 / SECOND as f64)
        .skip(JOBS / 20)
        .collect();
    let batch = waits.len() / BATCHES;
    let means: Vec<f64> =
        waits.chunks_exact(batch).map(|batch| batch.iter().sum::<f64>() / batch.len() as f64).collect();
    let mean = means.iter().sum::<f64>() / means.len() as f64;
    let variance = means.iter().map(|m| (m - mean) * (m - mean)).sum::<f64>() / (means.len() - 1) as f64;
    // Student's t with 39 degrees of freedom at 99.95%.
    (mean, 3.56 * math::sqrt(variance / means.len() as f64))
}

fn assert_within(found: (f64, f64), expected: f64, what: &str) {
    let (mean, half) = found;
    assert!((mean - expected).abs() < half, "{what}: {mean} ± {half}, expected {expected}");
    assert!(half < 0.2 * expected, "{what}: an interval of {half} says nothing of {expected}");
}

/// Erlang's C formula: the mean wait of M/M/c.
fn erlang_wait(rate: f64, service: f64, servers: u32) -> f64 {
    let load = rate / service;
    let (mut term, mut sum) = (1.0, 0.0);
    for k in 0..servers {
        sum += term;
        term *= load / f64::from(k + 1);
    }
    let rho = load / f64::from(servers);
    let tail = term / (1.0 - rho);
    let waits = tail / (sum + tail);
    waits / (f64::from(servers) * service - rate)
}

#[test]
fn m_m_c_waits_as_erlang_says() {
    for (servers, rho, seed) in [(1, 0.7, 1), (4, 0.8, 2), (16, 0.85, 3)] {
        let rate = rho * f64::from(servers);
        let jobs = poisson(rate, RandomStream::exponential, seed);
        for scheduler in ["fcfs", "easy", "conservative"] {
            let found = wait(&jobs, servers, scheduler);
            assert_within(found, erlang_wait(rate, 1.0, servers), &format!("{scheduler}, c = {servers}"));
        }
    }
}

#[test]
fn m_g_1_waits_as_pollaczek_and_khinchine_say() {
    // W = λ E[S²] / 2 (1 - ρ), for constant, uniform and two-valued service of mean 1.
    let cases: [(&str, f64, Draw); 3] = [
        ("constant", 1.0, |_| 1.0),
        ("uniform", 4.0 / 3.0, |stream| 2.0 * stream.uniform()),
        ("two values", 0.9 * 0.25 + 0.1 * 5.5 * 5.5, |stream| if stream.uniform() < 0.9 { 0.5 } else { 5.5 }),
    ];
    for (name, second_moment, duration) in cases {
        let rho = 0.7;
        let jobs = poisson(rho, duration, 4);
        assert_within(wait(&jobs, 1, "fcfs"), rho * second_moment / (2.0 * (1.0 - rho)), name);
    }
}

/// Non-preemptive shortest job first on M/G/1 (Conway, Maxwell, Miller 1967): the wait of a job of length x is
/// λ E[S²] / 2 (1 - λ ∫₀ˣ t dF)²; two lengths make two classes.
#[test]
fn shortest_job_first_waits_as_two_priority_classes() {
    let (rho, short, long) = (0.7, 0.5, 5.5);
    let jobs = poisson(rho, |stream| if stream.uniform() < 0.9 { 0.5 } else { 5.5 }, 5);
    let residual = rho * (0.9 * short * short + 0.1 * long * long) / 2.0;
    let short_load = rho * 0.9 * short;
    let of_short = residual / (1.0 - short_load);
    let of_long = residual / ((1.0 - short_load) * (1.0 - rho));
    assert_within(wait(&jobs, 1, "sjf"), 0.9 * of_short + 0.1 * of_long, "sjf");
}
