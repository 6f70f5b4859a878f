//! What a group carries from one episode into the next.
//!
//! An episode that lasts for many iterations of its jobs is simulated from anywhere: the jobs enter at drawn phases, and what a
//! change cuts off an iteration is a small part of it. Where a group changes every few iterations of its slowest job that part is
//! what decides: a job of 100 ms beside jobs of 40 ms that come and go has no iteration between two changes. There an
//! episode begins with a [`Rerun`]: the simulation starts where the longest of the present iterations began, every job
//! enters at the first begin of an iteration since then, those that have left do again what they did, and the change comes
//! where it came. So nothing is apportioned: an iteration takes what it takes through all changes that it sees.
//!
//! Life cycle: [`mark`] notes begins of iterations whenever an entry is settled; [`rerun`] makes an episode of them; a job that
//! leaves is kept as [`Departed`] with the episode that it left, and with those that come after it, while its time is redone.
//!
//! Invariant: `Entry::left` is the work left at the last of `Entry::marks` while the entry is carried, and at the episode's
//! start else. Failure mode: what is under way inside the network at the start of a rerun, of jobs in shorter iterations, is
//! not known and begins with their next iteration.

use windtunnel_kernel::{CalendarTime, Span, Time};

use super::progress::{Rate, Work};
use super::{EpisodeJob, Rerun};

/// Iterations that come before the present one in a rerun.
const WARM_UP: usize = 4;

/// How far back begins of iterations are kept, in the longest of them: the present one, [`WARM_UP`] more, and as much for
/// iterations that took longer than their mean.
const KEPT: i128 = 2 * (1 + WARM_UP as i128);

/// The instant from which on begins are kept at `now` nanoseconds, where iterations take no longer than `longest`.
pub(super) fn kept_since(now: u64, longest: Span) -> Instant {
    CalendarTime::from_ns(now).exact_ps() - KEPT * i128::from(longest.ps())
}

/// Picoseconds of the calendar. A rerun may begin before it, by less than an iteration.
pub(super) type Instant = i128;

/// A job that has left its group.
#[derive(Clone)]
pub(super) struct Departed {
    /// Without its times.
    job: EpisodeJob,
    /// Begins of its iterations, and the end of the last.
    marks: Vec<Instant>,
    end: Instant,
}

impl Departed {
    /// `job` at `end`, when it has done all but `left` of `total` iterations, and was `begun` in the one after the last of `marks`.
    pub(super) fn new(job: EpisodeJob, marks: Vec<Instant>, end: Instant, mean: Span) -> Option<Self> {
        let mut marks = marks;
        let last = *marks.last()?;
        // One that was cut in its second half counts.
        if end - last > i128::from(mean.ps()) / 2 {
            marks.push(end);
        }
        (marks.len() > 1).then_some(Self { job, marks, end })
    }

    /// Whether `other` is the same stay of the same job.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let of = |departed: &Self| (departed.job.job, departed.job.loading, departed.end);
        of(self) == of(other)
    }

    /// Whether it was there after `since`.
    pub(super) fn is_after(&self, since: Instant) -> bool {
        self.end > since
    }

    /// The begin of its last iteration, if it has one after `since` that began before.
    fn straddles(&self, since: Instant) -> Option<Instant> {
        let begins = &self.marks[..self.marks.len() - 1];
        let last = *begins.last()?;
        (last < since && self.end > since).then_some(last)
    }

    /// As it enters a rerun from `since` on.
    fn member(&self, since: Instant) -> Option<EpisodeJob> {
        let first = self.marks.partition_point(|&mark| mark < since);
        let left = (self.marks.len() - 1).checked_sub(first).filter(|&left| left > 0)? as u64;
        let start = time(self.marks[first] - since);
        let done_before = self.job.done_before.saturating_sub(left);
        Some(EpisodeJob { start, left, done_before, ..self.job.clone() })
    }
}

fn time(ps: Instant) -> Time {
    Time::from_ps(u64::try_from(ps).unwrap_or(0))
}

/// Adds to `marks` where iterations began within `net` nanoseconds of work of an episode that began at `epoch`, `elapsed`
/// nanoseconds ago, and forgets those long before `since`. The work left at the last, of `left` at the reference of `rate`; `None`
/// if the job has not begun to work.
pub(super) fn mark(
    marks: &mut Vec<Instant>,
    rate: &Rate,
    (epoch, elapsed, net): (u64, u64, u64),
    left: Work,
    since: Instant,
) -> Option<Work> {
    // Writes on the way are taken to have come before the present iteration.
    let shift = CalendarTime::from_ns(elapsed - net).exact_ps();
    let origin = CalendarTime::from_ns(epoch).exact_ps() + shift;
    if shift > 0 {
        marks.clear();
    }
    let first = if marks.is_empty() { rate.redone() } else { rate.redone() + 1 };
    let known = rate.boundaries(net, first, since - origin, left, |begin| marks.push(origin + begin));
    if known.is_none() {
        marks.clear();
    }
    let last = marks.len().saturating_sub(1);
    let old = if shift > 0 { last } else { marks.partition_point(|&mark| mark < since).min(last) };
    marks.drain(..old);
    known
}

/// A running job as [`rerun`] takes it.
pub(super) struct Member<'a> {
    /// As it would enter an episode that begins now, after its pause.
    pub(super) job: EpisodeJob,
    /// Begins of its iterations; empty if it enters now.
    pub(super) marks: &'a [Instant],
}

/// When a job whose iterations began at `marks` enters: some before the present, as ranks that run ahead of others, and messages in
/// queues, need a few to come to where they were.
fn warmed(marks: &[Instant]) -> Option<Instant> {
    marks.get(marks.len().checked_sub(1)?.saturating_sub(WARM_UP)).copied()
}

/// The rerun of an episode of `members` that begins at `now`, and those as they enter it; `gone` were there too.
pub(super) fn rerun(now: u64, members: Vec<Member<'_>>, gone: &[Departed]) -> (Vec<EpisodeJob>, Rerun) {
    let now = CalendarTime::from_ns(now).exact_ps();
    let begin = members.iter().filter_map(|member| warmed(member.marks)).min().unwrap_or(now);
    // A long iteration of a job that is gone reaches into the time that is redone, too.
    let since = gone.iter().filter_map(|gone| gone.straddles(begin)).fold(begin, Instant::min);
    // Calendars are of whole nanoseconds, and begin at 0.
    let since = since.div_euclid(1_000).max(0) * 1_000;
    let before = Span::from_ps(time(now - since).ps());
    let enter = |member: Member<'_>| {
        let Member { job, marks } = member;
        let Some(&last) = marks.last() else {
            let start = job.start + before;
            return EpisodeJob { start, phase: before, boundary: start, ..job };
        };
        let first = marks.partition_point(|&mark| mark < since).min(marks.len() - 1);
        let redone = (marks.len() - 1 - first) as u64;
        let start = time(marks[first] - since);
        EpisodeJob {
            start,
            phase: Span::from_ps(start.ps()),
            left: job.left + redone,
            done_before: job.done_before.saturating_sub(redone),
            redone,
            boundary: time(last - since),
            ..job
        }
    };
    let jobs = members.into_iter().map(enter).collect();
    let gone = gone.iter().filter_map(|gone| gone.member(since)).collect();
    (jobs, Rerun { before, gone })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(left: u64) -> EpisodeJob {
        EpisodeJob {
            job: 0,
            placement: Vec::new(),
            start: Time::ZERO,
            phase: Span::ZERO,
            left,
            done_before: 100 - left,
            loading: false,
            age: Span::ZERO,
            redone: 0,
            boundary: Time::ZERO,
        }
    }

    /// A long iteration since 1,000 ns after one since 500, a short job in its fourth since 950, one that has just come, and two that are gone.
    #[test]
    fn everyone_enters_at_the_begin_of_an_iteration() {
        let ns = |all: &[i128]| all.iter().map(|at| at * 1_000).collect::<Vec<_>>();
        let (long, short) = (ns(&[500, 1_000]), ns(&[950, 1_050, 1_150, 1_250]));
        let gone = |marks: &[i128], end: i128| {
            Departed::new(job(70), ns(marks), end * 1_000, Span::from_ps(100_000))
        };
        let gone: Vec<Departed> = [gone(&[1_010, 1_060, 1_110], 1_110), gone(&[300, 400], 400)]
            .into_iter()
            .map(|gone| gone.expect("it did something"))
            .collect();
        let members = vec![
            Member { job: job(10), marks: &long },
            Member { job: job(20), marks: &short },
            Member { job: job(30), marks: &[] },
        ];
        let (jobs, rerun) = rerun(1_300, members, &gone);
        assert_eq!(rerun.before, Span::from_ps(800_000));
        let of =
            |job: &EpisodeJob| (job.start.ps(), job.left, job.redone, job.done_before, job.boundary.ps());
        assert_eq!(of(&jobs[0]), (0, 11, 1, 89, 500_000));
        assert_eq!(of(&jobs[1]), (450_000, 23, 3, 77, 750_000));
        assert_eq!(of(&jobs[2]), (800_000, 30, 0, 70, 800_000));
        // The other one had left before.
        assert_eq!(
            rerun.gone.iter().map(|gone| (gone.start.ps(), gone.left)).collect::<Vec<_>>(),
            [(510_000, 2)]
        );
    }
}
