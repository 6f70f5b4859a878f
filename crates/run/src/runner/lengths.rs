//! How long iterations take where no network is simulated (job fidelity).

use std::ops::Range;
use std::sync::Arc;

use windtunnel_cluster::calendar::{Episode, EpisodeJob};
use windtunnel_cluster::variation::Variation;
use windtunnel_kernel::{CalendarTime, EndpointId, Span};
use windtunnel_plan::error::{Failure, Why};

use super::FabricRunner;
use crate::episode::{Simulator, Stop};
use crate::ideal::{Flows, On};
use crate::recorder::Iteration;
use crate::variation::with_speeds;

impl FabricRunner<'_> {
    /// Refuses iterations that are too long to be counted in picoseconds.
    pub(super) fn check_span(&self, episode: &Episode, seen: &[Vec<Iteration>]) -> Result<(), Stop> {
        let long = |seen: &Vec<Iteration>| seen.last().is_some_and(|last| last.finish_ps == u64::MAX);
        let Some((job, seen)) = episode.jobs.iter().zip(seen).find(|(_, seen)| long(seen)) else {
            return Ok(());
        };
        let name = &self.simulator.plan.jobs[job.job].name;
        let message = format!(
            "the first {} iterations of job `{name}` take more than 213 days, the longest that is counted in \
             picoseconds\n\nhint: is a rate or a size mistyped? Else cut the job into shorter iterations",
            seen.len()
        );
        Err(Stop::Failed(Failure::Run(Why::Horizon, message)))
    }

    /// Job fidelity: a given duration, or iterations as long as alone on an ideal fabric, on the hosts that a job has if any of
    /// them differs from what is written of all.
    pub(super) fn without_network(
        &mut self,
        start: CalendarTime,
        jobs: &[EpisodeJob],
        iterations: u64,
    ) -> Result<Vec<Vec<Iteration>>, Stop> {
        let mut all = Vec::with_capacity(jobs.len());
        for job in jobs {
            let span = self.span_without_network(start, job)?;
            let origin = self.origin(start);
            let at = |number: u64| origin.ps.saturating_add((job.start + span * number).ps());
            let one = |number: u64| Iteration {
                number: job.done_before + number,
                start_ps: at(number),
                finish_ps: at(number + 1),
                lag_ps: 0,
                ranks: job.placement.len() as u32,
                critical_rank: 0,
                breakdown: None,
                reused: false,
                weight: 1.0,
                ended: true,
                whole: true,
            };
            all.push((0..iterations.min(job.left)).map(one).collect());
        }
        Ok(all)
    }

    /// An iteration of a job at job fidelity, in an episode that begins at `start`.
    fn span_without_network(&mut self, start: CalendarTime, job: &EpisodeJob) -> Result<Span, Stop> {
        let plan = self.simulator.plan;
        let job_plan = &plan.jobs[job.job];
        let span = match job_plan.duration {
            Some(duration) => Span::from_ps(duration.ps().div_ceil(job_plan.iterations)),
            None if self.differs(&job.placement) => return self.span_on(start, job),
            None => self.ideal.of_job(job.job).unwrap_or(Span::ZERO),
        };
        // An elastic job on fewer or more GPUs than it asked for.
        let (asked, has) = (job_plan.ranks() as u128, job.placement.len() as u128);
        Ok(Span::from_ps(u64::try_from((u128::from(span.ps()) * asked).div_ceil(has)).unwrap_or(u64::MAX)))
    }

    /// Whether a GPU or NIC of a placement has another speed than is written of all.
    fn differs(&self, placement: &[EndpointId]) -> bool {
        let plan = self.simulator.plan;
        let per_host = plan.fabric.topology.endpoints_per_host();
        let on = |gpu: &EndpointId, hosts: &Range<u32>| hosts.contains(&(gpu.0 / per_host));
        let is = |gpu: &EndpointId, own: Option<u32>| own.is_none_or(|own| gpu.0 % per_host == own);
        let slow =
            |gpu: &EndpointId| plan.speeds.iter().any(|rule| on(gpu, &rule.hosts) && is(gpu, rule.gpu));
        let behind = |gpu: &EndpointId| plan.slow_nics.iter().any(|hosts| on(gpu, hosts));
        let other = |gpu: &EndpointId| plan.fabric.kinds.of(*gpu) != 0;
        placement.iter().any(|gpu| slow(gpu) || behind(gpu) || other(gpu))
    }

    /// An iteration alone on an ideal fabric, on the hosts that a job has; of a speed that changes later nothing is known yet.
    fn span_on(&mut self, start: CalendarTime, job: &EpisodeJob) -> Result<Span, Stop> {
        let Simulator { plan, options, progress, .. } = &mut self.simulator;
        let (plan, options) = (*plan, *options);
        let work = plan.jobs[job.job].work_of(job.placement.len());
        let changes = plan.speeds.iter().any(|rule| rule.from.is_some());
        let key = (Arc::as_ptr(&work.workload), job.placement.clone(), if changes { start.ns() } else { 0 });
        if let Some(&span) = self.on_hosts.get(&key) {
            return Ok(span);
        }
        let variation = with_speeds(plan, start, Variation::none());
        let (placement, slow) = (job.placement.as_slice(), plan.slow_links.as_slice());
        let on = On { job: job.job, work, placement, variation: &variation, slow, form: Flows::Same };
        let mut watch = |_: f64, simulated, events| progress.progress(None, simulated, events);
        let span = on.time(plan, options, &mut watch)?.and_then(|took| took.0).ok_or(Stop::Cancelled)?;
        self.on_hosts.insert(key, span);
        Ok(span)
    }
}
