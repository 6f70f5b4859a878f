//! The calendar's episodes: each is simulated or remembered, stays open until the calendar knows how long it lasted, and then
//! becomes rows and sums.
//!
//! What was simulated before comes from the [`Memo`]. Several episodes of one instant are shared out to threads
//! ([`super::threads`]). Which jobs can meet stands in `footprints.rs`, and how long iterations take without a network in
//! `lengths.rs`.

mod footprints;
mod lengths;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use windtunnel_cluster::calendar::{
    Certainty, Episode, EpisodeJob, EpisodeJobResult, EpisodeRunner, Reached, Resident, Worked, lasting,
    nearest,
};
use windtunnel_cluster::faults::Component;
use windtunnel_kernel::{CalendarTime, EndpointId, Span, Time};
use windtunnel_plan::Plan;
use windtunnel_plan::error::Failure;
use windtunnel_plan::settings::Fidelity;
use windtunnel_workload::Workload;

use super::RunOptions;
use super::clock::Origin;
use super::drive::Pace;
use super::episode::{Simulator, Stop, begin};
use super::ideal::IdealTimes;
use super::judge::Judgement;
use super::memo::{Known, Memo};
use super::record::Record;
use super::recorder::{Held, Iteration, together, weigh};
use super::simulated::Simulated;
use super::subscriber::{self, Event, Over, Subscriber};
use super::threads::{Clocked, simulate};
use crate::table::{ProgressSink, TableSink};

/// An episode that goes on.
struct Open {
    start: CalendarTime,
    /// When its simulation began: before it, with a rerun.
    simulated: CalendarTime,
    /// Whether it has a rerun.
    rerun: bool,
    /// When it began in its simulation, which had to gather it first.
    gathered: Span,
    /// When the last of its jobs had entered that, from its origin.
    entered: Time,
    members: Vec<OpenJob>,
    iterations: Vec<Vec<Iteration>>,
    held: Vec<Held>,
    used: Arc<[(u32, f64)]>,
}

/// A job of it.
struct OpenJob {
    /// Which; `None` for one that loads, of which nothing is kept.
    job: Option<usize>,
    /// When it goes on, from the episode's start.
    paused: Span,
    /// How many of the iterations were over before the one that was under way as the episode began.
    redone: usize,
    /// Whether it was in the midst of that.
    goes_on: bool,
}

/// Simulates the calendar's episodes at the scenario's fidelity.
pub(crate) struct FabricRunner<'a> {
    simulator: Simulator<'a>,
    ideal: &'a IdealTimes<'a>,
    memo: Memo<'a>,
    /// Links beyond scale-up domains of each job on its GPUs, by (job, starts, whether it loads).
    footprints: FxHashMap<(usize, u32, bool), Arc<[u32]>>,
    /// Mean iteration time alone on the fabric, of each job in its last place.
    alone: FxHashMap<usize, f64>,
    /// Iterations at job fidelity on hosts that differ, by workload, placement and instant.
    on_hosts: FxHashMap<(*const Workload, Vec<EndpointId>, u64), Span>,
    open: BTreeMap<u32, Open>,
    /// How much of an iteration each job had done as its last episode ended.
    tails: Vec<f64>,
    /// Who hears of the episodes.
    subscribers: &'a mut [&'a mut dyn Subscriber],
    begun: u64,
    hits: u64,
    footprint_runs: u64,
    reached: Reached,
    pace: Pace,
}

impl<'a> FabricRunner<'a> {
    /// Nothing simulated so far.
    pub(crate) fn new(
        plan: &'a Plan,
        options: &'a RunOptions,
        ideal: &'a IdealTimes<'a>,
        sink: &'a mut dyn TableSink,
        progress: &'a mut dyn ProgressSink,
        subscribers: &'a mut [&'a mut dyn Subscriber],
    ) -> Self {
        let record = Record::new(plan.jobs.len());
        let faults = plan.fabric.faults.clone();
        let simulator = Simulator { plan, options, sink, progress, record, flow_rows: 0, episode: 0, faults };
        Self {
            simulator,
            ideal,
            memo: Memo::new(plan),
            footprints: FxHashMap::default(),
            alone: FxHashMap::default(),
            on_hosts: FxHashMap::default(),
            open: BTreeMap::new(),
            tails: vec![0.0; plan.jobs.len()],
            subscribers,
            begun: 0,
            hits: 0,
            footprint_runs: 0,
            reached: Reached {
                now: CalendarTime::ZERO,
                ended: 0,
                jobs: plan.jobs.len() as u64,
                under_way: 0.0,
            },
            pace: Pace::new(),
        }
    }

    /// Takes back what the last episode of `job` told of an iteration that did not end in it.
    fn forget_tail(&mut self, job: usize) {
        let mut tail = std::mem::take(&mut self.tails[job]);
        for iteration in self.simulator.record.iterations[job].iter_mut().rev() {
            let part = tail.min(iteration.weight);
            iteration.weight -= part;
            tail -= part;
            if tail <= 0.0 {
                break;
            }
        }
    }

    /// What was kept, and what the summary says of episodes. Those that a stopped run left open end where it stood.
    ///
    /// # Errors
    /// A sink that refuses rows.
    pub(crate) fn finish(mut self, now: CalendarTime) -> Result<(Record, Value), Failure> {
        for episode in self.open.keys().copied().collect::<Vec<_>>() {
            let began = self.open[&episode].start.ns();
            let span = Span::from_ns(now.ns().saturating_sub(began));
            match self.lasted(episode, span, &[]) {
                Err(Stop::Failed(failure)) => return Err(failure),
                Ok(()) | Err(Stop::Cancelled) => {}
            }
        }
        let counts = self.simulator.record.counts;
        let episodes = json!({
            "begun": self.begun,
            "simulated": counts.simulated,
            "of_a_job_alone": self.footprint_runs,
            "memo": self.memo.name(),
            "memo_hits": self.hits,
            "solves": counts.solves,
            "flows": counts.flows,
        });
        Ok((self.simulator.record, episodes))
    }

    fn tell(&mut self, event: &Event<'_>) {
        for subscriber in &mut *self.subscribers {
            subscriber.hear(event);
        }
    }

    /// Where what begins at `start` counts its picoseconds from. Job fidelity has no rows in them.
    fn origin(&self, start: CalendarTime) -> Origin {
        match self.simulator.plan.fidelity {
            Fidelity::Job => Origin::at(start),
            _ => Origin::of(start),
        }
    }

    /// Simulates episodes, or takes them from the memo.
    fn simulated(
        &mut self,
        start: CalendarTime,
        episodes: &[Episode],
        iterations: u64,
    ) -> Result<Vec<Vec<EpisodeJobResult>>, Stop> {
        for job in episodes.iter().flat_map(|episode| &episode.jobs) {
            self.simulator.record.started[job.job].get_or_insert(start);
        }
        self.begun += episodes.len() as u64;
        if self.simulator.plan.fidelity == Fidelity::Job {
            let mut results = Vec::with_capacity(episodes.len());
            for episode in episodes {
                let seen = self.without_network(start, &episode.jobs, iterations)?;
                let certainty = vec![Certainty::default(); seen.len()];
                self.check_span(episode, &seen)?;
                results.push(ends(&seen, &certainty, self.origin(start).ps));
                self.open(start, episode, seen, Vec::new(), Arc::from([]));
            }
            return Ok(results);
        }
        let keys: Vec<Vec<u64>> = episodes.iter().map(|episode| self.memo.key(&episode.jobs)).collect();
        // Of episodes that are alike the first is simulated.
        let mut fresh: FxHashMap<&[u64], usize> = FxHashMap::default();
        let mut missing = Vec::new();
        for (index, episode) in episodes.iter().enumerate() {
            // No other one comes about as a rerun does.
            if self.memo.remembers() && episode.rerun.is_none() {
                let alike = fresh.get(keys[index].as_slice());
                let same = |&other: &usize| {
                    let needs = |job: &EpisodeJob| (job.left, job.age);
                    let other = &episodes[other];
                    other.horizon == episode.horizon
                        && other.jobs.iter().map(needs).eq(episode.jobs.iter().map(needs))
                };
                let known = self.memo.find(&keys[index], episode, iterations);
                if known.is_some() || alike.is_some_and(same) {
                    continue;
                }
                fresh.insert(&keys[index], index);
            }
            missing.push(index);
        }
        let run: Vec<&Episode> = missing.iter().map(|&index| &episodes[index]).collect();
        let simulated = simulate(&mut self.simulator, self.reached, start, &run, iterations)?;
        // Episodes are compared with it. Whoever stops the waiting is asked again at the end.
        self.ideal.settle(self.simulator.progress);
        let mut results: Vec<Option<Vec<EpisodeJobResult>>> = vec![None; episodes.len()];
        let mut cancelled = false;
        for (&index, simulated) in missing.iter().zip(simulated) {
            let episode = &episodes[index];
            cancelled |= simulated.cancelled;
            if self.memo.remembers() && episode.rerun.is_none() && !simulated.cancelled {
                let known = Known::of(&simulated, &episode.jobs);
                self.memo.keep(keys[index].clone(), Arc::new(known));
            }
            let Simulated { seen, held, used, origin, certainty, .. } = simulated;
            results[index] = Some(ends(&seen, &certainty, origin.ps));
            self.open(start, episode, seen, held, used);
        }
        if cancelled {
            // What it saw of its jobs is kept to the end.
            for index in missing {
                self.lasted(episodes[index].number, Span::MAX, &[])?;
            }
            return Err(Stop::Cancelled);
        }
        for (index, episode) in episodes.iter().enumerate() {
            if results[index].is_some() {
                continue;
            }
            self.hits += 1;
            let known = self.memo.find(&keys[index], episode, iterations);
            let (known, Judgement { counts, certainty }) = known.expect("one like it was just simulated");
            let origin = self.origin(start).ps;
            let shifted = |((iterations, count), job): ((&Vec<Iteration>, usize), &EpisodeJob)| {
                let one = |iteration: &Iteration| Iteration {
                    number: job.done_before + iteration.number,
                    start_ps: origin + iteration.start_ps,
                    finish_ps: origin + iteration.finish_ps,
                    ..*iteration
                };
                iterations[..count].iter().map(one).collect()
            };
            let seen: Vec<Vec<Iteration>> =
                known.seen.iter().zip(counts).zip(&episode.jobs).map(shifted).collect();
            results[index] = Some(ends(&seen, &certainty, origin));
            // Links of a pattern are another job's.
            let elsewhere = episode.jobs.len() == 1 && self.memo.pattern(&episode.jobs[0]).is_some();
            let used = if elsewhere { Arc::from([]) } else { known.used.clone() };
            self.open(start, episode, seen, Vec::new(), used);
        }
        Ok(results.into_iter().map(|result| result.expect("simulated or known")).collect())
    }

    fn open(
        &mut self,
        start: CalendarTime,
        episode: &Episode,
        iterations: Vec<Vec<Iteration>>,
        held: Vec<Held>,
        used: Arc<[(u32, f64)]>,
    ) {
        let simulated = begin(start, episode);
        let origin_ps = self.origin(simulated).ps;
        let alone = |job: usize| self.alone.get(&job).copied();
        let known = subscriber::Known {
            number: episode.number,
            jobs: &episode.jobs,
            iterations: &iterations,
            entered_ps: episode.rerun.as_ref().map(|_| origin_ps.saturating_add(episode.entered().ps())),
            alone: &alone,
        };
        for subscriber in &mut *self.subscribers {
            subscriber.hear(&Event::Known(&known));
        }
        let member = |(job, seen): (&EpisodeJob, &Vec<Iteration>)| {
            let ends: Vec<Time> = seen.iter().map(|seen| Time::from_ps(seen.finish_ps - origin_ps)).collect();
            OpenJob {
                job: (!job.loading).then_some(job.job),
                paused: job.pause(),
                redone: if episode.rerun.is_some() { nearest(job, &ends) } else { 0 },
                goes_on: episode.rerun.is_some() && job.boundary < Time::ZERO + episode.gathered(),
            }
        };
        let members = episode.jobs.iter().zip(&iterations).map(member).collect();
        let (gathered, entered) = (episode.gathered(), episode.entered());
        let rerun = episode.rerun.is_some();
        let open = Open { start, simulated, rerun, gathered, entered, members, iterations, held, used };
        self.open.insert(episode.number, open);
    }
}

impl EpisodeRunner for FabricRunner<'_> {
    type Error = Stop;

    fn groups(&mut self, residents: &[Resident<'_>]) -> Result<Vec<Vec<usize>>, Stop> {
        // Without a network jobs do not meet.
        if self.simulator.plan.fidelity == Fidelity::Job {
            return Ok((0..residents.len()).map(|place| vec![place]).collect());
        }
        // Those that are cut off from their data wait for the fabric, each alone.
        let waits: Vec<bool> = residents.iter().map(|resident| self.is_severed(resident)).collect();
        let moving: Vec<Resident<'_>> = residents
            .iter()
            .zip(&waits)
            .filter(|(_, waits)| !**waits)
            .map(|(&resident, _)| resident)
            .collect();
        let mut groups = if moving.is_empty() { Vec::new() } else { self.meeting(&moving)? };
        if moving.len() < residents.len() {
            let places: Vec<usize> = (0..residents.len()).filter(|&place| !waits[place]).collect();
            groups.iter_mut().flatten().for_each(|place| *place = places[*place]);
            groups.extend((0..residents.len()).filter(|&place| waits[place]).map(|place| vec![place]));
            groups.sort_unstable();
        }
        Ok(groups)
    }

    fn run(
        &mut self,
        start: CalendarTime,
        episodes: &[Episode],
        iterations: u64,
    ) -> Result<Vec<Vec<EpisodeJobResult>>, Stop> {
        let stands: Vec<bool> = episodes.iter().map(|episode| self.stands(episode)).collect();
        if !stands.contains(&true) {
            return self.simulated(start, episodes, iterations);
        }
        let moving: Vec<Episode> = episodes
            .iter()
            .zip(&stands)
            .filter(|(_, stands)| !**stands)
            .map(|(episode, _)| episode.clone())
            .collect();
        let mut results = self.simulated(start, &moving, iterations)?.into_iter();
        let of = |&stands: &bool| {
            if stands { vec![EpisodeJobResult::default()] } else { results.next().expect("it was simulated") }
        };
        Ok(stands.iter().map(of).collect())
    }

    fn lasted(&mut self, episode: u32, span: Span, worked: &[Worked]) -> Result<(), Stop> {
        let Some(open) = self.open.remove(&episode) else { return Ok(()) };
        let origin = self.origin(open.simulated);
        // The rows of a rerun tell when it was, those of others leave out the phases.
        let told_ps = if open.rerun { open.gathered.ps() } else { 0 };
        let until_ps = origin.ps.saturating_add(span.ps()).saturating_add(told_ps);
        let until = open.start.ns().saturating_add(span.ns_ceil());
        if span.ps() < u64::MAX {
            let over = Over { number: episode, from: open.start.ns(), until, used: &open.used };
            self.tell(&Event::Over(&over));
        }
        let mut last = 0;
        // The simulation had to gather the group first, or to go through what was.
        let begin_ps = origin.ps.saturating_add(open.gathered.ps());
        for (member, mut iterations) in open.members.into_iter().zip(open.iterations) {
            let Some(end) = iterations.last() else { continue };
            let all_ps = end.finish_ps;
            let did = worked.iter().find(|did| member.job == Some(did.job));
            let went_on = did.map_or(span, |did| did.span);
            let until_ps = if span.ps() < u64::MAX { begin_ps.saturating_add(went_on.ps()) } else { all_ps };
            let ended = iterations.partition_point(|iteration| iteration.finish_ps <= until_ps);
            last = iterations[..ended].last().map_or(last, |iteration| last.max(iteration.finish_ps));
            let Some(job) = member.job else { continue };
            let ends: Vec<Time> =
                iterations.iter().map(|one| Time::from_ps(one.finish_ps - origin.ps)).collect();
            let mut from_ps = begin_ps.saturating_add(member.paused.ps());
            if member.goes_on {
                // Of the iteration under way all is told here.
                let present = iterations.get(member.redone);
                from_ps = present.map_or(all_ps, |present| present.start_ps);
                self.forget_tail(job);
            }
            weigh(
                &mut iterations,
                from_ps..until_ps,
                lasting(&ends, open.entered).max(member.redone.min(ends.len() - 1)),
                did.map(|did| did.iterations),
            );
            // What comes after never happened.
            let begun = iterations.partition_point(|iteration| iteration.start_ps < until_ps);
            iterations.truncate(begun.max(ended));
            let mut number = 0;
            iterations.retain(|one| {
                number += 1;
                number > member.redone || one.weight > 0.0
            });
            self.tails[job] = did.map_or(0.0, |did| did.begun);
            self.simulator.record.iterations[job].append(&mut iterations);
        }
        let record = &mut self.simulator.record;
        let last = origin.calendar_ns(last.saturating_sub(open.gathered.ps()));
        record.simulated_ns = record.simulated_ns.max(last);
        let standing = open.held.into_iter().filter(|held| held.finish_ps <= until_ps);
        for (table, batch) in together(standing) {
            self.simulator.sink.rows(table, batch).map_err(|message| Stop::Failed(Failure::sink(message)))?;
        }
        Ok(())
    }

    fn fabric(&mut self, out: &[Component]) {
        let plan = self.simulator.plan;
        let Some(upkeep) = &plan.upkeep else { return };
        self.simulator.faults = if out.is_empty() || upkeep.plant.is_bare() {
            plan.fabric.faults.clone()
        } else {
            let mut forwarder = upkeep.plant.forwarder(out);
            forwarder.converge();
            Some(forwarder)
        };
        // Paths are others now, and so is what they come to.
        self.memo.clear(self.simulator.faults.is_some());
        self.footprints.clear();
        self.alone.clear();
    }

    fn reached(&mut self, reached: Reached) -> Result<(), Stop> {
        self.reached = reached;
        if self.simulator.options.gate.as_ref().is_some_and(|gate| gate.is_closed()) {
            return Err(Stop::Cancelled);
        }
        // Of one job that nothing interrupts its simulation tells.
        let plan = self.simulator.plan;
        let many = plan.is_drawn() || reached.jobs > 1 || plan.upkeep.is_some();
        if !many || !self.pace.due() {
            return Ok(());
        }
        let events = self.simulator.record.events;
        let mut clock = Clocked { inner: self.simulator.progress, reached, events };
        if clock.progress(None, 0.0, 0) { Ok(()) } else { Err(Stop::Cancelled) }
    }
}

fn ends(seen: &[Vec<Iteration>], certainty: &[Certainty], origin_ps: u64) -> Vec<EpisodeJobResult> {
    let of = |(iterations, &certainty): (&Vec<Iteration>, &Certainty)| EpisodeJobResult {
        ends: iterations.iter().map(|iteration| Time::from_ps(iteration.finish_ps - origin_ps)).collect(),
        certainty,
    };
    seen.iter().zip(certainty).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iterations(lengths_us: &[u64]) -> Vec<Iteration> {
        let mut finish_ps = 7_000_000;
        let of = |(number, &us): (u64, &u64)| {
            let start_ps = finish_ps;
            finish_ps += us * 1_000_000;
            Iteration::plain(number, start_ps, finish_ps)
        };
        (0..).zip(lengths_us).map(of).collect()
    }

    /// Weights of iterations of these lengths, simulated from 7 us on, of which the job did `done` between two instants.
    fn weights(lengths_us: &[u64], worked_us: [f64; 2], done: f64) -> Vec<f64> {
        let mut iterations = iterations(lengths_us);
        let [from, until] = worked_us.map(|us| (us * 1e6) as u64);
        weigh(&mut iterations, from..until, 2, Some(done));
        let (mut sum, mut weights) = (0.0, 0.0);
        for one in &iterations {
            sum += one.weight * one.span_ps() as f64;
            weights += one.weight;
        }
        // The calendar rounds ends up to a nanosecond.
        assert!((sum - (until - from) as f64).abs() < 1_000.0, "{sum}");
        assert!((weights - done).abs() < 1e-6, "{weights}");
        iterations.iter().map(|one| (one.weight * 1e6).round() / 1e6).collect()
    }

    /// The first takes longer, another job enters in the second.
    #[test]
    fn what_was_simulated_stands_for_itself_and_the_last_for_the_rest() {
        let lengths = [3, 3, 1, 2];
        assert_eq!(weights(&lengths, [7.0, 16.0], 4.0), [1.0, 1.0, 1.0, 1.0]);
        // Twenty more at 1.5 us.
        assert_eq!(weights(&lengths, [7.0, 46.0], 24.0), [1.0, 1.0, 11.0, 11.0]);
        // There are no more: the job ended, rounded up.
        assert_eq!(weights(&lengths, [7.0, 16.0009], 4.0), [1.0, 1.0, 1.0, 1.0]);
        // But it began before it was to: what it did then does not count, and is done again.
        assert_eq!(weights(&lengths, [8.5, 17.5], 4.5), [0.5, 1.0, 1.5, 1.5]);
        // From the midst of the first, which was begun to gather the others, to the midst of the second.
        assert_eq!(weights(&lengths, [9.0, 12.0], 1.0), [0.333333, 0.666667, 0.0, 0.0]);
        // From beyond all that was simulated.
        assert_eq!(weights(&lengths, [19.0, 22.0], 2.0), [0.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn an_iteration_is_whole_if_it_was_done_from_begin_to_end() {
        let mut seen = iterations(&[3, 3, 1]);
        weigh(&mut seen, 8_000_000..13_500_000, 1, None);
        assert_eq!(seen.iter().map(|one| one.whole).collect::<Vec<_>>(), [false, true, false]);
    }
}
