//! One job alone on an ideal fabric, and the mean of its iterations there.

use std::sync::Arc;

use windtunnel_cluster::calendar::{Episode, EpisodeJob, lasting};
use windtunnel_cluster::shard::{IterationEnd, Observer, Shard, ShardJob};
use windtunnel_cluster::variation::Variation;
use windtunnel_fabric::Fabric;
use windtunnel_kernel::{EndpointId, RankId, Span, Time};
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, InputError};
use windtunnel_plan::jobs::{JobPlan, Work};
use windtunnel_plan::settings::Fidelity;
use windtunnel_topology::{LinkId, LoadBalancer};
use windtunnel_workload::replay::Replay;

use crate::drive::Pace;
use crate::judge::Judge;
use crate::recorder::Iteration;
use crate::stage::{coupling, exchanges};
use crate::stuck::stuck_failure;
use crate::{RunOptions, fold, model};

/// Hears what part is done, simulated seconds and events; `false` stops it.
pub(super) type Watch<'a> = dyn FnMut(f64, f64, u64) -> bool + 'a;

/// Remembers iterations.
#[derive(Default)]
struct Seen(Vec<Iteration>);

impl Observer for Seen {
    fn rank_iteration(&mut self, _: usize, _: RankId, _: u64, _: &Replay) {}

    fn iteration(&mut self, _: usize, end: &IterationEnd, _: &Replay) {
        self.0.push(Iteration::of(end));
    }
}

/// Mean time of an iteration; `None` of a job that has none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took(pub Option<Span>);

/// A job on an ideal fabric.
pub(crate) struct On<'a> {
    /// Its index.
    pub job: usize,
    /// What it does on as many GPUs as it has.
    pub work: &'a Arc<Work>,
    /// These.
    pub placement: &'a [EndpointId],
    /// How its GPUs differ.
    pub variation: &'a Variation,
    /// Links that run at a part of their rate.
    pub slow: &'a [(LinkId, f64)],
    /// How its messages go.
    pub form: Flows,
}

/// How messages become flows of the ideal fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flows {
    /// As at flow fidelity.
    Same,
    /// One by one, as packets go.
    Steps,
    /// The same, and their latency comes before they share links: what is on its way for longer meets less of the rest.
    StepsLate,
    /// No flows: each message has its NICs for itself, one after the other.
    Turns,
}

impl On<'_> {
    /// Mean iteration of all that the job does, from as many as an episode would see of it, if it ends any; `None` if the run was
    /// stopped.
    ///
    /// # Errors
    /// [`Failure`] at job fidelity, when operations never end.
    pub(crate) fn time(
        &self,
        plan: &Plan,
        options: &RunOptions,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Took>, Failure> {
        let spec = model::spec_of(plan, std::iter::once(self.work));
        if self.form == Flows::Turns {
            return self.on(model::in_turn(plan, spec), plan, options, watch);
        }
        let fabric = model::ideal(plan, spec, self.slow, self.form == Flows::StepsLate)?;
        self.on(fabric, plan, options, watch)
    }

    fn on<F: Fabric>(
        &self,
        fabric: F,
        plan: &Plan,
        options: &RunOptions,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Took>, Failure> {
        let Self { job, work, placement, variation, slow, form } = *self;
        let job_plan = &plan.jobs[job];
        let endpoints = plan.fabric.topology.endpoints();
        let mut shard = Shard::new(fabric, endpoints, variation, Seen::default());
        let folded =
            Some(placement).filter(|_| variation.is_none() && slow.is_empty() && form == Flows::Same);
        let folded = folded.and_then(|placement| fold::fold(plan, work, placement, LoadBalancer::Ideal));
        let left = counted(plan, job_plan);
        let member = EpisodeJob {
            job,
            placement: placement.to_vec(),
            start: Time::ZERO,
            phase: Span::ZERO,
            left,
            done_before: 0,
            loading: false,
            age: Span::ZERO,
            redone: 0,
            boundary: Time::ZERO,
        };
        let entering = ShardJob {
            number: job as u64,
            workload: work.workload_at(&plan.fabric.kinds, placement),
            own: placement.len(),
            placement: placement.into(),
            iterations: left,
            redone: 0,
            awaited: true,
            start: Time::ZERO,
            done_before: 0,
            simulated: folded.map_or_else(|| Arc::from([]), |folded| folded.simulated),
        };
        let topology = &plan.fabric.topology;
        shard.domains(topology.scale_up_size(), topology.shape_name() != "clos");
        // Whatever the fidelity: this network is one of flows, and the job is alone on it.
        shard.exchange(exchanges(plan, form == Flows::Same));
        shard.connect(plan.network.connections);
        if form != Flows::Same {
            shard.couple(coupling(plan, placement));
        }
        shard.enter(entering).map_err(|error| InputError::new(&options.source, error.to_string()))?;
        shard.keep_rings_coupled();
        let judge = Judge::of(plan);
        let episode = Episode { number: 0, jobs: vec![member], horizon: Span::MAX, rerun: None };
        let mut until = u64::from(plan.cluster.episodes.iterations) + 1;
        let mut pace = Pace::new();
        loop {
            shard.stop_after(until);
            while shard.handle(1 << 14) {
                if pace.due() {
                    let seconds = (shard.fabric().now() - Time::ZERO).seconds();
                    if !watch(shard.progress(), seconds, shard.fabric().events()) {
                        return Ok(None);
                    }
                }
            }
            if !shard.satisfied() {
                break;
            }
            let seen = std::slice::from_ref(&shard.observer().0);
            let enough = judge.judge(&episode, seen, 0, until).is_some();
            match judge.after(until).filter(|_| !enough) {
                Some(next) => until = next,
                None => break,
            }
        }
        // A job that gets stuck is told by the run itself, with the operations at fault; job fidelity has no other run.
        if plan.fidelity == Fidelity::Job && !shard.satisfied() {
            let beyond = shard.is_beyond();
            return Err(stuck_failure(&[&job_plan.name], &shard.stuck(), beyond, None));
        }
        Ok(Some(Took(mean_of(&shard.observer().0, left, disturbed(plan, job_plan)))))
    }
}

/// More iterations than count for what they begin with.
const MANY: u64 = 1 << 40;

/// Over how many iterations a job's are averaged: as many as it does. How many fit into a time that it is to last is what is to be
/// found out, and jobs of a source differ in nothing else.
pub(super) fn counted(plan: &Plan, job_plan: &JobPlan) -> u64 {
    let source = plan.is_drawn();
    if source || job_plan.lasts.is_some() { MANY } else { job_plan.iterations }
}

/// Whether a network is simulated anew in the midst of a job, as where it meets others or writes checkpoints.
fn disturbed(plan: &Plan, job_plan: &JobPlan) -> bool {
    let anew = plan.jobs.len() > 1 || job_plan.life.saves() || plan.upkeep.is_some();
    anew && plan.fidelity != Fidelity::Job
}

/// Mean of `left` iterations that begin with those `seen`, the others at the pace that a run would take from these; rounded down. Of
/// a job that may be `disturbed` the least of that, of the first so many, and of the pace.
fn mean_of(seen: &[Iteration], left: u64, disturbed: bool) -> Option<Span> {
    let ends: Vec<Time> = seen.iter().map(|iteration| Time::from_ps(iteration.finish_ps)).collect();
    let last = ends.last()?.ps();
    let first = lasting(&ends, Time::ZERO);
    let (pace, of) = (last - seen[first].start_ps, (ends.len() - first) as u64);
    let rest = u128::from(left - ends.len() as u64) * u128::from(pace) / u128::from(of);
    let mean = ((u128::from(last) + rest) / u128::from(left)) as u64;
    if !disturbed {
        return Some(Span::from_ps(mean));
    }
    let firsts = (1..).zip(&ends).map(|(count, end)| end.ps() / count).min()?;
    Some(Span::from_ps(mean.min(firsts).min(pace / of)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_begins_anew_may_do_what_is_shortest_more_often() {
        let mut finish_ps = 0;
        let of = |(number, span): (u64, u64)| {
            let start_ps = finish_ps;
            finish_ps += span;
            Iteration::plain(number, start_ps, finish_ps)
        };
        let seen: Vec<Iteration> = (0..).zip([50, 70, 80]).map(of).collect();
        assert_eq!(mean_of(&seen, 3, false), Some(Span::from_ps(200 / 3)));
        // Seven more at 75.
        assert_eq!(mean_of(&seen, 10, false), Some(Span::from_ps(725 / 10)));
        assert_eq!(mean_of(&seen, 10, true), Some(Span::from_ps(50)));
        assert_eq!(mean_of(&[], 1, true), None);
    }
}
