//! The calendar of a cluster whose jobs' durations a fabric tells: they run in episodes.
//!
//! The driver of [`Cluster`](crate::cluster::Cluster) at the fidelities with a network, and of single jobs at all.
//! The running jobs fall into groups that share no link ([`EpisodeRunner::groups`]); a group's episode begins when the
//! group changes and lasts until it changes again, so a job that ends elsewhere costs it nothing. The runner simulates a
//! group for a few iterations; from the mean of those after the warm-up the calendar knows when each of its jobs ends.
//! Work left is kept in 2^-64 iterations, so the same changes give the same times whatever the machine. Calendar times
//! round up to a nanosecond.
//!
//! A job that loads its data over the network takes part in episodes too, with requests in place of iterations: it shares
//! links with those that work, and its rate is theirs to slow. Its work begins, in an episode of its own group, with the last
//! of its data.
//!
//! Other loading, restarts and checkpoints pause a job in an episode ([`crate::life`]); what its pause leaves free others do not
//! notice, as an episode's rates are those of jobs that work. An interrupted job goes back to the work that it had done as
//! its last finished checkpoint began. A fault in the fabric begins an episode anew.
//!
//! A job alone is a cluster with one job and goes the same way; if its iterations fit into one episode, nothing is
//! extrapolated.
//!
//! **Phases.** In a group of several jobs each enters at a phase of its iteration drawn for (seed, group, job): the same group
//! is simulated alike wherever it comes about, and another one does not repeat its errors. It is a device of the simulation:
//! while it lasts the job goes on at its mean.
//!
//! **How long an episode may stand.** The mean of a few iterations is off by something, and the longer the episode that it
//! stands for, the more of its jobs' time is off by that ([`steady`]). So the runner is told how long an episode will last as
//! far as the calendar knows, and tells for how long what it saw is good. A group that outlasts that is simulated anew, at
//! other phases, for as long again as it has lasted.

mod carry;
mod driver;
mod entries;
mod episode;
mod history;
mod order;
mod progress;
mod request;
pub mod steady;
pub mod timeline;

use self::driver::Calendar;
pub use self::episode::{
    Certainty, Episode, EpisodeJob, EpisodeJobResult, EpisodeRunner, Reached, Rerun, Resident, Worked,
};
pub use self::history::{Done, Histories, JobHistory};
pub use self::order::{Order, in_order, order};
pub use self::progress::{NORMAL_95, lasting, nearest};
pub use self::request::{JobRequest, Settings};
use crate::scheduler::Scheduler;

/// Runs `jobs` to their end; if the runner stops on the way, as far as it came, with the reason.
pub fn run<R: EpisodeRunner>(
    jobs: &[JobRequest],
    settings: &Settings<'_>,
    scheduler: &mut dyn Scheduler,
    runner: &mut R,
) -> (Histories, Result<(), R::Error>) {
    let (order, machine) = order(jobs, settings);
    let mut calendar = Calendar::new(jobs, settings, &order, &machine);
    let outcome = calendar.run(scheduler, runner);
    (calendar.into_histories(), outcome)
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::{CalendarTime, Span};

    use super::*;
    use crate::cluster::ClusterError;
    use crate::life::Life;
    use crate::placement::{Locality, Packed};
    use crate::scheduler::Ordered;

    /// Each job takes its own fixed time per iteration, times the number of jobs that run.
    struct Fixed(Vec<Span>);

    impl EpisodeRunner for Fixed {
        type Error = ClusterError;

        fn run(
            &mut self,
            _: CalendarTime,
            episodes: &[Episode],
            iterations: u64,
        ) -> Result<Vec<Vec<EpisodeJobResult>>, Self::Error> {
            let of = |episode: &Episode| {
                let count = episode.jobs.len() as u64;
                let result = |job: &EpisodeJob| {
                    let span = self.0[job.job] * count;
                    let ends = (1..=iterations.min(job.left)).map(|i| job.start + span * i);
                    EpisodeJobResult { ends: ends.collect(), certainty: Certainty::default() }
                };
                episode.jobs.iter().map(result).collect()
            };
            Ok(episodes.iter().map(of).collect())
        }

        fn lasted(&mut self, _: u32, _: Span, _: &[Worked]) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    fn job(gpus: usize, iterations: u64, submit_ns: u64) -> JobRequest {
        JobRequest {
            gpus,
            iterations,
            submit: CalendarTime::from_ns(submit_ns),
            placement: &Packed,
            ideal_iteration: Span::from_us(1),
            estimate: Span::from_us(iterations),
            deadline: u64::MAX,
            priority: 0,
            locality: Locality::Anywhere,
            life: Life::default(),
            loads: None,
        }
    }

    fn ran(jobs: &[JobRequest], spans: Vec<Span>, settings: &Settings<'_>) -> Vec<JobHistory> {
        let (histories, outcome) = run(jobs, settings, &mut Ordered::fcfs(), &mut Fixed(spans));
        outcome.unwrap();
        histories.jobs
    }

    fn settings() -> Settings<'static> {
        Settings {
            endpoints: 8,
            endpoints_per_host: 8,
            storage: &[],
            episode_iterations: 3,
            draw_phases: false,
            carry_below: 0,
            iterates: false,
            reaction_delay: Span::from_us(1_000),
            upkeep: None,
            regions: 1,
            locator: None,
            seed: 1,
            queue: None,
            ends: None,
            listener: None,
        }
    }

    #[test]
    fn what_is_undone_was_done_last() {
        let (mut done, mut undone) = (Done::default(), Done::default());
        done.add(4, 10);
        done.add(8, 5);
        done.undo(7, &mut undone);
        assert_eq!(done.parts().collect::<Vec<_>>(), [(4, 8), (8, 0)]);
        assert_eq!(undone.parts().collect::<Vec<_>>(), [(8, 5), (4, 2)]);
        assert_eq!((done.total(), undone.total()), (8, 7));
    }

    #[test]
    fn what_a_job_did_is_all_of_it() {
        let jobs = [job(4, 100, 0), job(4, 7, 333)];
        for history in ran(&jobs, vec![Span::from_ps(7_000_003), Span::from_ps(11)], &settings()) {
            let (start, finish) = (history.start.unwrap().ns(), history.finish.unwrap().ns());
            let iterations = history.done.total();
            assert!(iterations == 100 << 64 || iterations == 7 << 64, "{iterations}");
            assert_eq!((history.worked, history.undone.total()), (finish - start, 0));
        }
    }

    #[test]
    fn a_part_is_known_before_the_first_job_ends() {
        let reached = |ended, under_way| Reached { now: CalendarTime::ZERO, ended, jobs: 4, under_way };
        // Eight simulations begin or end a job, and one is in hand.
        assert!((reached(0, 0.0).part(0.5) - 0.5 / 9.0).abs() < 1e-12);
        assert_eq!(reached(0, 1.0).part(0.0), 0.25);
        assert!((reached(2, 1.0).part(1.0) - (0.75 + 0.25 / 5.0)).abs() < 1e-12);
        assert_eq!(reached(4, 0.0).part(1.0), 1.0);
    }

    #[test]
    fn one_job_that_fits_an_episode_is_not_extrapolated() {
        let histories = ran(&[job(8, 3, 0)], vec![Span::from_us(2)], &settings());
        assert_eq!(
            (histories[0].finish, histories[0].extrapolated),
            (Some(CalendarTime::from_ns(6_000)), false)
        );
        let histories = ran(&[job(8, 1_000_000, 5)], vec![Span::from_us(2)], &settings());
        assert_eq!(
            (histories[0].finish, histories[0].extrapolated),
            (Some(CalendarTime::from_ns(2_000_000_005)), true)
        );
    }

    #[test]
    fn jobs_that_share_slow_each_other_until_one_ends() {
        let spans = vec![Span::from_us(10), Span::from_us(10)];
        let jobs = [job(4, 100, 0), job(4, 300, 0)];
        let histories = ran(&jobs, spans, &settings());
        // Both at 20 us until the first has done 100; the other has 200 left, at 10 us.
        assert_eq!(histories[0].finish, Some(CalendarTime::from_ns(2_000_000)));
        assert_eq!(histories[1].finish, Some(CalendarTime::from_ns(2_000_000 + 2_000_000)));
    }

    #[test]
    fn a_job_waits_for_its_gpus_and_starts_after_the_reaction_delay() {
        let spans = vec![Span::from_us(10), Span::from_us(10)];
        let jobs = [job(8, 10, 0), job(8, 10, 50)];
        let histories = ran(&jobs, spans, &settings());
        assert_eq!(histories[1].start, Some(CalendarTime::from_ns(100_000 + 1_000_000)));
        assert_eq!(histories[1].finish, Some(CalendarTime::from_ns(1_100_000 + 100_000)));
    }

    #[test]
    fn work_is_conserved_across_a_change() {
        let spans = vec![Span::from_us(7), Span::from_us(7)];
        let jobs = [job(4, 1_000, 0), job(4, 10, 3_333_333)];
        let histories = ran(&jobs, spans, &settings());
        // Alone 7 us an iteration, together 14 us while the second job lasts.
        assert_eq!(histories[1].finish, Some(CalendarTime::from_ns(3_333_333 + 140_000)));
        let total = 7_000_000 + 70_000;
        let finish = histories[0].finish.expect("it ends").ns();
        assert!((total..=total + 2).contains(&finish), "{finish} {total}");
    }

    /// Jobs meet if their numbers are equal modulo 2; counts how often each was simulated.
    struct ByParity(Vec<u32>);

    impl EpisodeRunner for ByParity {
        type Error = ClusterError;

        fn groups(&mut self, residents: &[Resident<'_>]) -> Result<Vec<Vec<usize>>, Self::Error> {
            let of = |parity| {
                let places = (0..residents.len()).filter(|&place| residents[place].job % 2 == parity);
                places.collect::<Vec<_>>()
            };
            let mut groups: Vec<Vec<usize>> = (0..2).map(of).filter(|group| !group.is_empty()).collect();
            groups.sort();
            Ok(groups)
        }

        fn run(
            &mut self,
            start: CalendarTime,
            episodes: &[Episode],
            iterations: u64,
        ) -> Result<Vec<Vec<EpisodeJobResult>>, Self::Error> {
            for job in episodes.iter().flat_map(|episode| &episode.jobs) {
                self.0[job.job] += 1;
            }
            Fixed(vec![Span::from_us(10); self.0.len()]).run(start, episodes, iterations)
        }

        fn lasted(&mut self, _: u32, _: Span, _: &[Worked]) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    #[test]
    fn a_group_without_a_change_goes_on_in_its_episode() {
        let jobs = [job(2, 100, 0), job(2, 1_000, 0), job(2, 50, 100_000), job(2, 10, 3_000_000)];
        let mut runner = ByParity(vec![0; 4]);
        let (histories, outcome) = run(&jobs, &settings(), &mut Ordered::fcfs(), &mut runner);
        outcome.unwrap();
        // 0 alone for 10 of its iterations, then with 2 until that has done its 50, then alone.
        let finish = |job: usize| histories.jobs[job].finish.expect("it ends").ns();
        assert_eq!([finish(2), finish(0)], [100_000 + 50 * 20_000, 100_000 + 50 * 20_000 + 40 * 10_000]);
        // 1 alone for 300 iterations, with 3 for 10 of each, alone again.
        assert_eq!([finish(3), finish(1)], [3_200_000, 10_100_000]);
        assert_eq!(runner.0, [3, 3, 1, 1]);
        assert_eq!(histories.end, CalendarTime::from_ns(10_100_000));
        assert_eq!(histories.gpu_time.total(), 8 * 10_100_000);
    }

    #[test]
    fn a_queue_is_kept_filled_and_the_run_ends_when_enough_jobs_have() {
        let jobs: Vec<JobRequest> = (0..6).map(|_| job(8, 10, 0)).collect();
        let settings = Settings { queue: Some(1), ends: Some(3), ..settings() };
        let (histories, outcome) =
            run(&jobs, &settings, &mut Ordered::fcfs(), &mut Fixed(vec![Span::from_us(10); 6]));
        outcome.unwrap();
        let submits: Vec<Option<u64>> =
            histories.jobs.iter().map(|job| job.submit.map(windtunnel_kernel::CalendarTime::ns)).collect();
        // The next comes as one starts: at the start, and a reaction delay after each end.
        assert_eq!(submits, [Some(0), Some(0), Some(1_100_000), Some(2_200_000), None, None]);
        assert_eq!(histories.end, CalendarTime::from_ns(2_300_000));
        assert_eq!(histories.jobs.iter().filter(|job| job.finish.is_some()).count(), 3);
    }

    /// What was seen of two jobs that meet is good for 100 us; notes start, horizon and phases of each simulation.
    #[derive(Default)]
    struct Forgetful(Vec<(u64, Span, Vec<Span>)>);

    impl EpisodeRunner for Forgetful {
        type Error = ClusterError;

        fn run(
            &mut self,
            start: CalendarTime,
            episodes: &[Episode],
            iterations: u64,
        ) -> Result<Vec<Vec<EpisodeJobResult>>, Self::Error> {
            for Episode { jobs, horizon, .. } in episodes {
                self.0.push((start.ns(), *horizon, jobs.iter().map(|job| job.phase).collect()));
            }
            let mut results = Fixed(vec![Span::from_us(10); 9]).run(start, episodes, iterations)?;
            for result in results.iter_mut().filter(|jobs| jobs.len() > 1).flatten() {
                result.certainty.good_for = Some(Span::from_us(100));
            }
            Ok(results)
        }

        fn lasted(&mut self, _: u32, _: Span, _: &[Worked]) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    #[test]
    fn a_group_is_seen_anew_once_what_was_seen_of_it_is_not_good_any_more() {
        // Two that run for 260 us, and two that come meanwhile and wait.
        let jobs = [job(4, 13, 0), job(4, 13, 0), job(8, 1, 50_000), job(8, 1, 160_000)];
        let mut runner = Forgetful::default();
        let settings = Settings { draw_phases: true, ..settings() };
        let (histories, outcome) = run(&jobs, &settings, &mut Ordered::fcfs(), &mut runner);
        outcome.unwrap();
        assert_eq!(histories.jobs[1].finish, Some(CalendarTime::from_ns(260_000)));
        let pairs: Vec<_> = runner.0.iter().filter(|(.., phases)| phases.len() == 2).collect();
        // The next submission ends it as far as is known; later it is taken to last as long again as it has, or to the next event.
        let known: Vec<(u64, Span)> = pairs.iter().map(|&&(start, horizon, _)| (start, horizon)).collect();
        let for_ever = Span::MAX;
        assert_eq!(known, [(0, Span::from_us(50)), (100_000, Span::from_us(100)), (200_000, for_ever)]);
        assert!(pairs[0].2 != pairs[1].2 && pairs[1].2 != pairs[2].2, "{pairs:?}");
    }

    /// A phase orders the simulation and costs nothing.
    #[test]
    fn phases_cost_no_time() {
        let spans = vec![Span::from_us(10), Span::from_us(10)];
        let jobs = [job(4, 100, 0), job(4, 100, 0)]
            .map(|job| JobRequest { ideal_iteration: Span::from_us(20), ..job });
        let histories = ran(&jobs, spans, &Settings { draw_phases: true, ..settings() });
        for history in histories {
            assert_eq!(history.finish, Some(CalendarTime::from_ns(2_000_000)));
        }
    }
}
