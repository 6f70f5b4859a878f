//! Episodes on a fabric: what is simulated of each, and what came of it.

use std::sync::Arc;

use windtunnel_cluster::calendar::{Certainty, Episode, EpisodeJob};
use windtunnel_cluster::shard::ShardJob;
use windtunnel_fabric::Fabric;
use windtunnel_kernel::{CalendarTime, Span, Time};
use windtunnel_plan::Plan;
use windtunnel_plan::error::Failure;
use windtunnel_plan::settings::{Fidelity, FlowsTable, Fold};
use windtunnel_topology::Forwarder;

use super::RunOptions;
use super::clock::Origin;
use super::drive::{FlowRows, Outcome, Watch, drive};
use super::fold::{self, Folded};
use super::judge::{Judge, Judgement};
use super::model::{self, Opening};
use super::paths::PathNames;
use super::record::Record;
use super::recorder::{Held, Recorder, Watched};
use super::simulated::Simulated;
use super::stage::{Stage, shard_job, watch};
use super::usage;
use super::variation::variation;
use crate::table::{ProgressSink, TableSink};

/// Why a run stops.
pub(crate) enum Stop {
    /// The progress sink said so.
    Cancelled,
    /// Something is wrong.
    Failed(Failure),
}

impl<T: Into<Failure>> From<T> for Stop {
    fn from(failure: T) -> Self {
        Self::Failed(failure.into())
    }
}

/// Simulates one episode after the other.
pub(crate) struct Simulator<'a> {
    /// The scenario.
    pub plan: &'a Plan,
    /// What the caller asked for.
    pub options: &'a RunOptions,
    /// Where rows go.
    pub sink: &'a mut dyn TableSink,
    /// Who is told how far it is.
    pub progress: &'a mut dyn ProgressSink,
    /// What is counted.
    pub record: Record,
    /// Rows of flows written.
    pub flow_rows: u64,
    /// Number of the present episode.
    pub episode: u32,
    /// Routing around what is out; `None` if nothing is.
    pub faults: Option<Forwarder>,
}

impl Simulator<'_> {
    /// Simulates `episode`, which begins at `start`, until each of its jobs has done `iterations` or all it has left, and further where jobs
    /// meet and more have to be seen.
    ///
    /// # Errors
    /// What stops the run.
    pub(crate) fn run(
        &mut self,
        start: CalendarTime,
        episode: &Episode,
        iterations: u64,
    ) -> Result<Simulated, Stop> {
        self.episode = episode.number;
        let start = begin(start, episode);
        let plan = self.plan;
        let folded = self.folded(start, episode);
        let gone = episode.rerun.iter().flat_map(|rerun| &rerun.gone);
        let works = episode.jobs.iter().chain(gone);
        let works = works.map(|job| plan.jobs[job.job].work_of(job.placement.len()));
        let opening = Opening {
            spec: model::spec_of(plan, works),
            start,
            faults: self.faults.as_ref(),
            changes: false,
            records: plan.results.flows != FlowsTable::None,
            folded: folded.is_some(),
        };
        let opened = model::open(plan, self.options, &opening)?;
        self.simulate(opened, start, episode, iterations, folded)
    }

    /// Which replicas stand for all of them, where the only job of an episode is the same for each by symmetry.
    fn folded(&self, start: CalendarTime, episode: &Episode) -> Option<Folded> {
        let plan = self.plan;
        let [job] = episode.jobs.as_slice() else { return None };
        let alike = plan.fidelity == Fidelity::Flow
            && plan.fold == Fold::Auto
            && episode.rerun.is_none()
            && !job.loading
            && self.faults.is_none()
            && plan.troubles.impairments.changes.is_empty()
            && variation(plan, start).is_none();
        let work = plan.jobs[job.job].work_of(job.placement.len());
        alike.then(|| fold::fold(plan, work, &job.placement, plan.network.balancer))?
    }

    fn simulate(
        &mut self,
        opened: model::Opened,
        start: CalendarTime,
        episode: &Episode,
        iterations: u64,
        folded: Option<Folded>,
    ) -> Result<Simulated, Stop> {
        let (plan, jobs) = (self.plan, episode.jobs.as_slice());
        let variation = variation(plan, start);
        let simulated: Arc<[bool]> = match folded {
            Some(folded) => {
                self.record.fold = self.record.fold.max(folded.factor);
                folded.simulated
            }
            None => Arc::from([]),
        };
        let origin = Origin::of(start);
        let (mut seen, mut held) = (Vec::new(), Vec::new());
        let drawn = plan.is_drawn();
        let names =
            PathNames::new(&plan.fabric.topology, self.faults.clone(), plan.network.balancer, plan.seed);
        let mut recorder = Recorder::new(&plan.jobs, names, self.sink, origin, &mut seen, &mut held, !drawn);
        let gone = episode.rerun.as_ref().map_or(&[][..], |rerun| &rerun.gone);
        // Those who were there before come first, as others may be on their GPUs now.
        let all = || gone.iter().map(|job| (job, false)).chain(jobs.iter().map(|job| (job, true)));
        for (job, awaited) in all() {
            recorder.enter(watched(plan, job, episode, awaited, iterations));
        }
        let mut stage = Stage::set(plan, self.options, opened, &variation, recorder, gone.len() + jobs.len());
        let judged = Judge::is_asked(episode);
        for (job, awaited) in all() {
            let taken = shard_job(plan, job);
            let whole = judged || episode.rerun.is_some();
            let taken = ShardJob {
                iterations: if whole { job.left } else { job.left.min(iterations) },
                awaited,
                // A load that is gone through again may take longer than it took, and its job does not wait for it.
                own: if job.loading && !awaited { 0 } else { taken.own },
                simulated: simulated.clone(),
                ..taken
            };
            stage.enter(job, taken)?;
        }
        let (first, places) = (gone.len(), gone.len()..gone.len() + jobs.len());
        let watch = Watch { plan, origin, events_before: self.record.events };
        let flows = FlowRows::of(plan, self.flow_rows);
        let seen_enough = SeenEnough { episode, first, iterations };
        let (outcome, judgement, until) =
            seen_enough.drive(&mut stage, &watch, self.progress, flows, &mut self.flow_rows);
        self.record.events += stage.shard.fabric().events();
        let end = stage.shard.fabric().now();
        self.record.simulated_ns = start.ns().saturating_add(Span::from_ps(end.ps()).ns_ceil());
        // What networks carried is that of the jobs' time. Behind it come acknowledgements, what is sent again though it has
        // arrived, and timers that nobody waits for.
        // A job's end may be known before the clock gets there.
        let ends = places.clone().filter_map(|job| stage.shard.finished(job));
        let span = Span::from_ps(ends.fold(end, Time::max).ps());
        let mut network = stage.observe(end);
        // What a rerun goes through again was told of the episodes before.
        let from = if episode.rerun.is_some() { episode.gathered().min(span) } else { Span::ZERO };
        let topology = &plan.fabric.topology;
        let used = network.links.as_ref().map(|links| usage::rates(links, topology, from, span));
        stage.traffic(&network, &mut self.record, self.episode, span, !drawn);
        // Whether anything is left over is known once all is done; a job cut in mid-iteration leaves messages under way.
        let complete = stage.shard.satisfied();
        let all_done = jobs.len() == 1 && gone.is_empty() && jobs[0].left <= until + jobs[0].redone;
        if all_done {
            stage.shard.drain();
            let end = stage.shard.fabric().now();
            network = stage.observe(end);
        }
        let stuck = if all_done || !complete {
            let names: Vec<&str> = all().map(|(job, _)| plan.jobs[job.job].name.as_str()).collect();
            stage.stuck(&network, &names, complete)
        } else {
            None
        };
        stage.end(&network, &mut self.record, places.clone());
        let begun = places.map(|job| stage.shard.begun(job)).collect();
        if let Some(failure) = stage.shard.observer_mut().failure() {
            return Err(Stop::Failed(Failure::sink(failure.to_owned())));
        }
        let trouble = stage.failure(&network);
        drop(stage);
        if let Some(failure) = trouble {
            return Err(Stop::Failed(failure));
        }
        let cancelled = match outcome {
            Outcome::Cancelled => true,
            Outcome::Failed(failure) => return Err(Stop::Failed(failure)),
            Outcome::Dry => match stuck {
                Some(failure) => return Err(Stop::Failed(failure)),
                None => false,
            },
        };
        self.record.counts.simulated += 1;
        let mut certainty = vec![Certainty::default(); jobs.len()];
        seen.drain(..first);
        held.retain(|held: &Held| held.of.0 >= first);
        if let Some(judgement) = judgement {
            for (iterations, &count) in seen.iter_mut().zip(&judgement.counts) {
                iterations.truncate(count);
            }
            held.retain(|held: &Held| {
                let job = held.of.0 - first;
                (jobs[job].redone..judgement.counts[job] as u64).contains(&held.of.1)
            });
            certainty = judgement.certainty;
        }
        let used = used.unwrap_or_default().into();
        Ok(Simulated { origin, seen, held, begun, until, certainty, used, cancelled })
    }
}

/// How a job of `episode` is recorded; of one that is not `awaited`, one iteration and no operations.
fn watched(plan: &Plan, job: &EpisodeJob, episode: &Episode, awaited: bool, iterations: u64) -> Watched {
    let mut watched = watch(plan, job, if awaited { iterations } else { 1 }, episode.number);
    if !awaited {
        (watched.ranks, watched.operations_of) = (Vec::new(), u64::MAX);
    } else if episode.rerun.is_some() {
        // Instants are those of the calendar.
        watched.phase = Span::ZERO;
    }
    watched
}

/// How far an episode is simulated.
struct SeenEnough<'a> {
    episode: &'a Episode,
    /// Its jobs stand behind so many others.
    first: usize,
    /// What is to be seen at first.
    iterations: u64,
}

impl SeenEnough<'_> {
    /// Drives the stage until enough of the episode's jobs has been seen: how that ended, what was judged, and how many iterations of
    /// the slowest job it took. Rows of flows written are added to `rows`.
    fn drive(
        &self,
        stage: &mut Stage<'_>,
        watch: &Watch<'_>,
        progress: &mut dyn ProgressSink,
        mut flows: FlowRows,
        rows: &mut u64,
    ) -> (Outcome, Option<Judgement>, u64) {
        let (episode, judged) = (self.episode, Judge::is_asked(self.episode));
        // With a rerun the next change is near: as far as that, if it is known, and to the end of everyone's iteration.
        let mut until = if judged && episode.rerun.is_some() { 1 } else { self.iterations };
        let judge = Judge::of(watch.plan);
        loop {
            stage.shard.stop_after(until);
            let outcome = drive(stage, watch, progress, &mut flows);
            *rows = flows.written();
            if !judged || !matches!(outcome, Outcome::Dry) || !stage.shard.satisfied() {
                return (outcome, None, until);
            }
            let seen = &stage.shard.observer().iterations()[self.first..];
            let judgement = judge.judge(episode, seen, watch.origin.ps, until);
            let (None, Some(next)) = (&judgement, judge.after(until)) else {
                return (outcome, judgement, until);
            };
            until = next;
        }
    }
}

/// When the simulation of `episode` begins, which itself does at `start`.
pub(crate) fn begin(start: CalendarTime, episode: &Episode) -> CalendarTime {
    let before = episode.rerun.as_ref().map_or(0, |rerun| rerun.before.ns_exact());
    CalendarTime::from_ns(start.ns() - before)
}
