//! When an episode has been simulated for long enough, and for how long what was seen is good.
//!
//! A pure function of the episode and of the iterations seen, looked at in stages: until the slowest job has done so many, then
//! so many more. An episode that was simulated further than another one needs holds that one's stages too, which is how the
//! [memo](super::memo) takes one for the other.

use windtunnel_cluster::calendar::steady::Enough;
use windtunnel_cluster::calendar::{Certainty, Episode, EpisodeJob};
use windtunnel_kernel::Span;
use windtunnel_plan::Plan;
use windtunnel_plan::settings::Episodes;

use super::recorder::Iteration;

/// What the scenario asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge {
    enough: Enough,
}

/// Iterations of its slowest job below which a group carries what is unfinished from an episode to the next: a change cuts an
/// iteration somewhere, and what it drops is no more than half of it in the mean.
pub(crate) fn carry_below(episodes: &Episodes) -> u64 {
    const MOST: f64 = 1e6;
    (1.0 / episodes.tolerance).clamp(1.0, MOST).ceil() as u64
}

/// Of an episode, as far as it was seen.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    /// How many iterations of each job count.
    pub counts: Vec<usize>,
    /// How well the mean of these iterations is known, by job.
    pub certainty: Vec<Certainty>,
}

impl Judge {
    /// Of a scenario.
    pub(crate) fn of(plan: &Plan) -> Self {
        let episodes = &plan.cluster.episodes;
        let most = episodes.max_iterations.max(episodes.iterations);
        Self { enough: Enough { batch: episodes.iterations.max(1), tolerance: episodes.tolerance, most } }
    }

    /// Whether it decides how far `episode` is simulated: requests of a load alone come two by two, and are no sample of anything.
    pub(crate) fn is_asked(episode: &Episode) -> bool {
        !matches!(episode.jobs.as_slice(), [job] if job.loading)
    }

    /// The stage after `until`, in iterations of the slowest job with the first; `None`: that is as far as it goes.
    pub(crate) fn after(&self, until: u64) -> Option<u64> {
        let most = u64::from(self.enough.most) + 1;
        (until < most).then(|| (until + u64::from(self.enough.batch)).min(most))
    }

    /// Judges `episode` by its iterations `seen` up to the stage `until`, times counted from `origin_ps`; `None`: more are
    /// needed, and may be had.
    pub(crate) fn judge(
        &self,
        episode: &Episode,
        seen: &[Vec<Iteration>],
        origin_ps: u64,
        until: u64,
    ) -> Option<Judgement> {
        let counts = stage(&episode.jobs, seen, until);
        let entered_ps = origin_ps + episode.entered().ps();
        let begin_ps = origin_ps.saturating_add(episode.gathered().ps());
        let one = |((job, iterations), &count): ((&EpisodeJob, &Vec<Iteration>), &usize)| {
            let mut one = Seen::of(&self.enough, job, &iterations[..count], entered_ps);
            if episode.rerun.is_some() {
                one.goes_on_until(iterations[..count].last(), begin_ps);
            }
            one
        };
        let all: Vec<Seen> = episode.jobs.iter().zip(seen).zip(&counts).map(one).collect();
        if episode.rerun.is_some()
            && let Some(known) = known_for(episode, seen, &counts, origin_ps)
            && known >= episode.horizon
        {
            let good_for = Some(known).filter(|known| known.ps() < u64::MAX);
            let certainty = all.iter().map(|seen| Certainty { good_for, error: seen.spread }).collect();
            return Some(Judgement { counts, certainty });
        }
        // The first of its jobs that ends ends it.
        let lasts = all.iter().map(|seen| seen.ends_in).fold(episode.horizon, Span::min);
        let good =
            |seen: &Seen| seen.error.map_or(Span::ZERO, |error| self.enough.good_for(error, seen.life));
        let known = if self.enough.tolerance >= 1.0 {
            // A rerun begins with a look at one iteration, which is not what was asked for.
            until > u64::from(self.enough.batch)
        } else {
            all.iter().all(|seen| good(seen) >= lasts)
        };
        if !known && self.after(until).is_some() {
            return None;
        }
        let for_ever = |span: &Span| span.ps() < u64::MAX && self.enough.tolerance < 1.0;
        let good_for = |seen: &Seen| Some(good(seen).max(lasts)).filter(for_ever);
        let of = |seen: &Seen| Certainty { good_for: good_for(seen), error: seen.spread };
        Some(Judgement { counts, certainty: all.iter().map(of).collect() })
    }
}

impl Judgement {
    /// All that was `seen` counts, for good.
    pub(crate) fn of_all(seen: &[Vec<Iteration>]) -> Self {
        Self {
            counts: seen.iter().map(Vec::len).collect(),
            certainty: vec![Certainty::default(); seen.len()],
        }
    }
}

/// What was seen of a job.
struct Seen {
    /// Of its mean iteration; 0 if it ended, `None` if nothing can be said. An iteration ends with its last rank. While the others
    /// run ahead of that one or fall back to it their own pace is another, and which of the two will last is not known: by as
    /// much the mean may be off too, as of a flow that shares its first link with a faster one until that is done.
    error: Option<f64>,
    /// The same of a job that ends too: iterations of many like these.
    spread: Option<f64>,
    /// When it ends if the episode lasts, from the episode's start.
    ends_in: Span,
    /// From its first start to then.
    life: Span,
}

impl Seen {
    fn of(enough: &Enough, job: &EpisodeJob, iterations: &[Iteration], entered_ps: u64) -> Self {
        let first = iterations.partition_point(|iteration| iteration.start_ps < entered_ps).max(1);
        let steady = iterations.get(first..).unwrap_or_default();
        let mean = match steady {
            [] => iterations.last().map_or(0, Iteration::span_ps),
            [first, ..] => (steady[steady.len() - 1].finish_ps - first.start_ps) / steady.len() as u64,
        };
        let drift = |last: &Iteration| {
            // `first` is 1 or more.
            let lags = last.lag_ps.abs_diff(iterations[first - 1].lag_ps);
            lags as f64 / (mean.max(1) as f64 * steady.len() as f64)
        };
        let spread = enough.error(steady.iter().map(|iteration| Span::from_ps(iteration.span_ps())));
        let spread = spread.map(|error| error + steady.last().map_or(0.0, drift));
        let error = if iterations.len() as u64 >= job.left { Some(0.0) } else { spread };
        let ends_in =
            Span::from_ps(job.pause().ps().saturating_add(mean.saturating_mul(job.left - job.redone)));
        Self { error, spread, ends_in, life: Span::from_ps(job.age.ps().saturating_add(ends_in.ps())) }
    }

    /// In a rerun a job may come later than it came, and lasts to the end of what was seen of it at least: iterations of no
    /// length, which do nothing, would otherwise have it end at once, and the episode with it, again and again.
    fn goes_on_until(&mut self, last: Option<&Iteration>, begin_ps: u64) {
        let least = last.map_or(0, |last| last.finish_ps.saturating_sub(begin_ps));
        self.ends_in = self.ends_in.max(Span::from_ps(least));
    }
}

/// How long `episode` may last before its jobs come beyond what was `seen` of them; `None` if they are beyond it at once.
fn known_for(episode: &Episode, seen: &[Vec<Iteration>], counts: &[usize], origin_ps: u64) -> Option<Span> {
    let begin_ps = origin_ps.saturating_add(episode.gathered().ps());
    let jobs = episode.jobs.iter().zip(seen).zip(counts);
    let going = jobs.filter(|&((job, _), &count)| (count as u64) < job.left);
    let ends = going.map(|((_, seen), &count)| seen[..count].last().map_or(0, |last| last.finish_ps));
    ends.min().map_or(Some(Span::MAX), |end| end.checked_sub(begin_ps).map(Span::from_ps))
}

/// How many iterations of each job belong to the stage `until`: that many, or all there are, and those that had ended before
/// the last job had done so many.
fn stage(jobs: &[EpisodeJob], seen: &[Vec<Iteration>], until: u64) -> Vec<usize> {
    let least = |job: &EpisodeJob| job.left.min(until + job.redone) as usize;
    let ends = jobs.iter().zip(seen).map(|(job, iterations)| iterations[least(job) - 1].finish_ps);
    let end = ends.max().unwrap_or(0);
    let count = |(job, iterations): (&EpisodeJob, &Vec<Iteration>)| {
        least(job).max(iterations.partition_point(|iteration| iteration.finish_ps < end))
    };
    jobs.iter().zip(seen).map(count).collect()
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::{RandomStream, Time};

    use super::*;

    fn judge() -> Judge {
        Judge { enough: Enough { batch: 3, tolerance: 0.02, most: 400 } }
    }

    /// Two jobs of 1,000 iterations.
    fn two(horizon: Span, age: Span) -> Episode {
        let job = |job| EpisodeJob {
            job,
            placement: Vec::new(),
            start: Time::ZERO,
            phase: Span::ZERO,
            left: 1_000,
            done_before: 0,
            loading: false,
            age,
            redone: 0,
            boundary: Time::ZERO,
        };
        Episode { number: 0, jobs: vec![job(0), job(1)], horizon, rerun: None }
    }

    fn seen(seed: u64, until_ps: u64) -> Vec<Vec<Iteration>> {
        let of = |(job, length): (u64, u64)| {
            let mut random = RandomStream::new(seed, "iterations", job);
            let (mut iterations, mut finish_ps) = (Vec::new(), 0);
            while finish_ps < until_ps {
                let start_ps = finish_ps;
                finish_ps += length * 8 / 10 + random.below(length * 4 / 10);
                let number = iterations.len() as u64;
                iterations.push(Iteration::plain(number, start_ps, finish_ps));
            }
            iterations
        };
        [(0, 10_000), (1, 7_000)].map(of).to_vec()
    }

    /// Iterations with which `judge` is content, by stage.
    fn needs(episode: &Episode, seen: &[Vec<Iteration>]) -> (u64, Judgement) {
        let mut until = 4;
        loop {
            if let Some(judgement) = judge().judge(episode, seen, 0, until) {
                return (until, judgement);
            }
            until = judge().after(until).expect("it is content at the last stage");
        }
    }

    #[test]
    fn the_larger_the_part_of_a_jobs_time_the_more_is_simulated() {
        let (mut short, mut long, mut old) = (0, 0, 0);
        for seed in 0..20 {
            let seen = seen(seed, 6_000_000);
            // A fiftieth of the time of jobs that are as old as they will be, and their first half.
            short += needs(&two(Span::from_ps(200_000), Span::from_ps(5_000_000)), &seen).0;
            old += needs(&two(Span::from_ps(5_000_000), Span::from_ps(95_000_000)), &seen).0;
            long += needs(&two(Span::from_ps(5_000_000), Span::ZERO), &seen).0;
        }
        assert!(2 * short < long && 2 * old < long, "{short} {old} {long}");
    }

    #[test]
    fn what_is_good_is_good_for_the_episode_at_least() {
        for seed in 0..20 {
            let episode = two(Span::from_ps(1_000_000), Span::ZERO);
            let (_, judgement) = needs(&episode, &seen(seed, 6_000_000));
            assert!(
                judgement.certainty.iter().filter_map(|of| of.good_for).all(|good| good >= episode.horizon),
                "{judgement:?}"
            );
        }
    }

    /// So that an episode that was simulated further can stand for one that would not be.
    #[test]
    fn a_stage_does_not_depend_on_what_was_simulated_after_it() {
        let episode = two(Span::from_ps(3_000_000), Span::ZERO);
        for seed in 0..20 {
            let far = seen(seed, 6_000_000);
            let (until, judgement) = needs(&episode, &far);
            let near: Vec<Vec<Iteration>> =
                far.iter().zip(&judgement.counts).map(|(all, &count)| all[..count].to_vec()).collect();
            let again = needs(&episode, &near);
            assert_eq!(
                (until, &judgement.counts, &judgement.certainty),
                (again.0, &again.1.counts, &again.1.certainty)
            );
            // All that had ended by then, and nothing after.
            let end = near.iter().map(|near| near[near.len() - 1].finish_ps).max().unwrap();
            for (all, near) in far.iter().zip(&near) {
                assert!(all[near.len()].finish_ps >= end);
            }
        }
    }

    /// Ten equal iterations after the first, in each of which the last rank falls back by a fifth of it more.
    #[test]
    fn ranks_that_drift_apart_make_the_mean_uncertain() {
        let episode = two(Span::MAX, Span::ZERO);
        let error = |lag_ps: u64| {
            let of = |n: u64| Iteration {
                lag_ps: n * lag_ps,
                ..Iteration::plain(n, n * 10_000, (n + 1) * 10_000)
            };
            let iterations: Vec<Iteration> = (0..11).map(of).collect();
            Seen::of(&judge().enough, &episode.jobs[0], &iterations, 0).error.expect("there are enough")
        };
        assert!((error(2_000) - error(0) - 0.2).abs() < 1e-12, "{} {}", error(2_000), error(0));
    }

    #[test]
    fn a_tolerance_of_one_never_asks_for_more() {
        let judge = Judge { enough: Enough { tolerance: 1.0, ..judge().enough } };
        let judgement = judge.judge(&two(Span::MAX, Span::ZERO), &seen(1, 6_000_000), 0, 4).unwrap();
        assert!(judgement.certainty.iter().all(|of| of.good_for.is_none()));
        assert_eq!(judgement.counts[0], 4);
        // Nor is it content with fewer than were asked for, where a rerun looks at one first.
        for until in 1..4 {
            assert!(judge.judge(&two(Span::MAX, Span::ZERO), &seen(1, 6_000_000), 0, until).is_none());
        }
    }
}
