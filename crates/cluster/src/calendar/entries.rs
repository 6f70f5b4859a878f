//! When the jobs of a group enter its simulation.
//!
//! Jobs that meet were at some point of their iterations when they met, and the simulation can only begin iterations. So each
//! enters after a drawn part of its own, its *phase*. Where a group has jobs of long and of short iterations that is not
//! enough: before a job of 100 ms had entered, one of 1 ms would have done 50 iterations without it, perhaps all it has. So
//! jobs enter by the length of their iterations: those within a factor of [`ALIKE`] of the longest first, each after its phase;
//! once they all have, at a point drawn within the longest of their iterations, the next shorter ones, and so on. A job
//! then does at most [`ALIKE`] iterations without one that is there as well, and meets longer iterations anywhere.
//!
//! A phase orders the simulation and costs nothing: the episode begins when the last of them is over
//! ([`Rate`](super::progress::Rate)).

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{RandomStream, Span};

use super::EpisodeJob;

/// How many times as long iterations may be and count as alike.
const ALIKE: u64 = 2;

/// Draws phases for the `jobs` of the group named `group`, whose iterations take as long as `ideal` says of a job's index; what
/// loads data enters with the last of them.
pub(super) fn draw(seed: u64, group: u64, jobs: &mut [EpisodeJob], ideal: impl Fn(usize) -> Span) {
    let mut order: Vec<(u64, usize)> = (0..jobs.len())
        .filter(|&at| !jobs[at].loading)
        .map(|at| (ideal(jobs[at].job).ps().max(1), at))
        .collect();
    // Of equal ones the first stays first.
    order.sort_by_key(|&(span, _)| std::cmp::Reverse(span));
    let below = |name: &str, span: u64, job: usize| {
        RandomStream::new(seed, name, combine(group, job as u64)).below(span)
    };
    let (mut longest, mut base, mut last) = (order.first().map_or(1, |&(span, _)| span), 0, 0);
    for (span, at) in order {
        let job = jobs[at].job;
        if span.saturating_mul(ALIKE) < longest {
            base = last + below("episode-entry", longest, job);
            longest = span;
        }
        let phase = base + below("episode-phase", span, job);
        last = last.max(phase);
        put_off(&mut jobs[at], phase);
    }
    jobs.iter_mut().filter(|job| job.loading).for_each(|job| put_off(job, last));
}

fn put_off(job: &mut EpisodeJob, phase: u64) {
    (job.phase, job.start) = (Span::from_ps(phase), job.start + Span::from_ps(phase));
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::Time;

    use super::*;

    fn job(job: usize, loading: bool) -> EpisodeJob {
        let (start, phase, age) = (Time::from_ps(7), Span::ZERO, Span::ZERO);
        let (placement, redone, boundary) = (Vec::new(), 0, start);
        EpisodeJob { job, placement, start, phase, left: 100, done_before: 0, loading, age, redone, boundary }
    }

    fn phases(seed: u64, spans: &[u64]) -> Vec<u64> {
        let mut jobs: Vec<EpisodeJob> = (0..spans.len()).map(|number| job(number, false)).collect();
        draw(seed, 3, &mut jobs, |number| Span::from_ps(spans[number]));
        jobs.iter().map(|job| job.phase.ps()).collect()
    }

    #[test]
    fn no_job_is_alone_for_more_than_two_of_its_iterations() {
        let mut random = RandomStream::new(1, "groups", 0);
        for seed in 0..2_000 {
            let mut span = || {
                let digits = 1 + random.below(30);
                1 + random.below(1 << digits)
            };
            let spans: Vec<u64> = (0..=seed % 7).map(|_| span()).collect();
            let phases = phases(seed, &spans);
            for (&span, &phase) in spans.iter().zip(&phases) {
                let longer = spans.iter().zip(&phases).filter(|&(&other, _)| other >= span);
                let met = longer.map(|(_, &phase)| phase).max().expect("itself");
                assert!(met.saturating_sub(phase) < ALIKE * span, "{spans:?} {phases:?}");
            }
            // No group takes long to gather.
            assert!(
                phases.iter().max() < spans.iter().max().map(|span| 4 * span).as_ref(),
                "{spans:?} {phases:?}"
            );
        }
    }

    /// Over seeds, in tenths of the long iteration.
    #[test]
    fn a_short_job_meets_a_long_one_anywhere() {
        let mut tenths = [0_u32; 10];
        for seed in 0..4_000 {
            let phases = phases(seed, &[1_000_000, 1_000]);
            let within = phases[1] - phases[0];
            assert!(within < 1_001_000);
            tenths[(within / 100_000).min(9) as usize] += 1;
        }
        // 400 each, with a standard deviation of 19.
        assert!(tenths.iter().all(|&count| (310..=490).contains(&count)), "{tenths:?}");
    }

    #[test]
    fn what_loads_enters_with_the_last() {
        let mut jobs = [job(0, true), job(1, false), job(2, false)];
        draw(1, 3, &mut jobs, |number| Span::from_ps([1, 1_000_000, 10][number]));
        assert_eq!(jobs[0].phase, jobs[2].phase);
        assert!(jobs.iter().all(|job| job.start == Time::from_ps(7) + job.phase));
    }
}
