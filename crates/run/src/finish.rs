//! The end of a run: what became of its jobs, cluster and network, as tables and as the summary.

use serde_json::Value;
use windtunnel_cluster::calendar::Histories;
use windtunnel_cluster::cluster::JobId;
use windtunnel_kernel::{CalendarTime, EndpointId, Span, memory};
use windtunnel_plan::Plan;
use windtunnel_plan::error::Failure;
use windtunnel_plan::evidence::EvidenceRow;
use windtunnel_plan::jobs::JobPlan;
use windtunnel_plan::settings::Fidelity;
use windtunnel_plan::stream::JobStream;

use super::cluster::{self, ClusterUse};
use super::heat::{self, Heat};
use super::ideal::IdealTimes;
use super::periods::Period;
use super::placements::Placements;
use super::record::Record;
use super::summary::{self, FlowSummary, JobState, JobSummary, NetworkSummary, RunFigures};
use super::{RunOptions, faults, machine, payload, stream};
use crate::table::{Column, ProgressSink, TableSink};

/// A run that is over, or was stopped.
pub(crate) struct Ended<'a> {
    /// What was run.
    pub plan: &'a Plan,
    /// What the caller asked for.
    pub options: &'a RunOptions,
    /// Iteration times on an ideal fabric.
    pub ideal: &'a IdealTimes<'a>,
    /// What became of the jobs and of the cluster.
    pub histories: Histories,
    /// What was kept of the simulations.
    pub record: Record,
    /// Whether it was stopped.
    pub cancelled: bool,
    /// The least that an iteration of each job takes where nothing is shared.
    pub least: Vec<Option<Span>>,
}

/// What subscribers heard of the episodes.
pub(crate) struct Observed {
    /// As in the summary.
    pub episodes: Value,
    /// Links over time.
    pub heat: Heat,
    /// Periods of congestion.
    pub congestion: Vec<Period>,
}

impl Ended<'_> {
    /// Hands its tables to the sink; `summary.json`.
    ///
    /// # Errors
    /// A sink that refuses rows.
    pub(crate) fn tell(
        mut self,
        observed: Option<Observed>,
        sink: &mut dyn TableSink,
    ) -> Result<Value, Failure> {
        let plan = self.plan;
        let jobs = self.jobs();
        let mut rows = |table, rows| sink.rows(table, rows).map_err(Failure::sink);
        rows("jobs", summary::jobs_table(&jobs))?;
        let name = |job: JobId| plan.jobs[self.histories.given[job.0 as usize]].name.clone();
        if let Some(upkeep) = &plan.upkeep
            && let Some(faults) = faults::batch(&self.histories.faults, &upkeep.plant, &name)
        {
            rows("faults", faults)?;
        }
        let mut usage = self.usage(jobs.len() as u64);
        let several = plan.jobs.len() > 1;
        if several {
            rows("usage", cluster::usage_rows(&self.histories.timeline, cluster::computing(plan)))?;
            let mut placements = Placements::of_all(plan.fabric.topology.endpoints_per_host());
            self.histories.stays.iter().for_each(|stay| placements.add(stay, &name));
            rows("placements", placements.batch(Column::Text))?;
        }
        if let Some(Observed { episodes, heat, congestion }) = observed {
            usage.episodes = episodes;
            usage.congested(&congestion);
            if several && plan.fidelity == Fidelity::Flow {
                self.record.network.links_most_loaded = heat.most_loaded(&plan.fabric.topology);
                rows("heat", heat.rows(&plan.fabric.topology))?;
                rows("congestion", heat::congestion_rows(&congestion, &plan.jobs))?;
            }
        }
        if plan.fidelity != Fidelity::Job {
            self.count_payload();
        }
        let record = &self.record;
        let figures = RunFigures {
            partial: self.cancelled,
            fold: record.fold,
            simulated_ns: self.end().ns(),
            events: record.events,
            packet_hops: record.packet_hops,
            ..figures(plan, self.options)
        };
        // Jobs of a source are rows of their table.
        let jobs = if plan.is_drawn() { Vec::new() } else { jobs };
        let evidence = evidence(plan, self.options);
        Ok(summary::summary(&figures, jobs, &record.network, &record.flows, usage.into_json(), &evidence))
    }

    /// The last instant that was simulated.
    fn end(&self) -> CalendarTime {
        let end = self.histories.end;
        if self.cancelled { CalendarTime::from_ns(self.record.simulated_ns).max(end) } else { end }
    }

    /// What became of each job; of those that were never submitted only where there is one.
    fn jobs(&self) -> Vec<Value> {
        let Self { plan, histories, record, least, .. } = self;
        let only = plan.jobs.len() == 1;
        let bounded = plan.source.as_ref().is_some_and(|source| source.queue.is_some());
        plan.jobs
            .iter()
            .zip(&histories.jobs)
            .enumerate()
            .filter(|(_, (_, history))| history.submit.is_some() || only)
            .map(|(job, (job_plan, history))| {
                let start = history.start.or(record.started[job]);
                JobSummary {
                    job_plan,
                    peak_flops: job_plan
                        .model
                        .as_ref()
                        .map_or(0.0, |model| model.peak_at(&plan.fabric.kinds, self.first_place(job))),
                    state: match (history.finish, start) {
                        (Some(_), _) => JobState::Finished,
                        (None, Some(_)) => JobState::Interrupted,
                        (None, None) if only => JobState::Interrupted,
                        (None, None) => JobState::Waiting,
                    },
                    iterations: &record.iterations[job],
                    ideal_ps: least[job].map(windtunnel_kernel::Span::ps),
                    submit: history.submit.or_else(|| (!bounded).then_some(job_plan.submit)),
                    start,
                    finish: history.finish,
                    time: history.time,
                    variance: history.variance,
                    worked_ns: history.worked,
                    done: history.done.total() as f64 / (1_u128 << 64) as f64,
                    undone: history.undone.total() as f64 / (1_u128 << 64) as f64,
                }
                .to_json()
            })
            .collect()
    }

    /// The GPUs that a job had first; none before it starts.
    fn first_place(&self, job: usize) -> &[EndpointId] {
        let given = &self.histories.given;
        let stay = self.histories.stays.iter().find(|stay| given[stay.job.0 as usize] == job);
        stay.map_or(&[], |stay| stay.placement.as_slice())
    }

    /// What became of the cluster's GPUs and jobs.
    fn usage(&self, jobs: u64) -> ClusterUse {
        let Self { plan, ideal, histories, .. } = self;
        let ended = histories.jobs.iter().filter_map(|history| history.finish).max();
        let mut usage = ClusterUse {
            gpu_time: histories.gpu_time,
            makespan_ns: ended.unwrap_or(self.end()).ns(),
            jobs,
            tallies: histories.tallies.clone(),
            log: plan.log.clone(),
            ..ClusterUse::default()
        };
        for (job, history) in histories.jobs.iter().enumerate() {
            if let (Some(submit), Some(start), Some(finish)) = (history.submit, history.start, history.finish)
            {
                let job_plan = &plan.jobs[job];
                let alone = alone(job_plan, ideal, job).map(Span::ns_ceil);
                let late = cluster::late(submit.ns(), finish.ns(), job_plan.deadline);
                usage.ended([submit.ns(), start.ns(), finish.ns()], alone, late, history.time);
                usage.samples +=
                    job_plan.samples.map_or(0.0, |samples| samples as f64 * job_plan.iterations as f64);
            }
        }
        for stay in &histories.stays {
            let job = histories.given[stay.job.0 as usize];
            if histories.jobs[job].finish.is_some() {
                let until = stay.until.unwrap_or(histories.end.ns());
                usage.sampled_gpu_ns += u128::from(until - stay.start) * stay.placement.len() as u128;
            }
        }
        usage.over_time(&histories.timeline);
        usage
    }

    /// Messages and payload of the iterations that count, and of those that were undone.
    fn count_payload(&mut self) {
        let iterations = self.cancelled.then_some(self.record.iterations.as_slice());
        let sent = payload::of(self.plan, &self.histories.jobs, iterations);
        let count = |count: u128| Some(u64::try_from(count).unwrap_or(u64::MAX));
        let network = &mut self.record.network;
        (network.messages, network.bytes_delivered) = (count(sent.kept.messages), count(sent.kept.bytes));
        (network.undone_messages, network.undone_bytes) =
            (count(sent.undone.messages), count(sent.undone.bytes));
    }
}

/// The figures of any run, as if nothing had been simulated.
fn figures(plan: &Plan, options: &RunOptions) -> RunFigures {
    RunFigures {
        scenario: plan.name.clone(),
        sha256: options.sha256.clone(),
        inputs: options.inputs.clone(),
        seed: plan.seed,
        fidelity: plan.fidelity.name(),
        partial: false,
        fold: 1,
        simulated_ns: 0,
        wall_time_s: options.watch.wall_seconds(),
        cpu_time_s: options.watch.cpu_seconds(),
        events: 0,
        packet_hops: None,
        peak_memory_bytes: memory::peak(),
        peak_rss_bytes: machine::peak_rss_bytes(),
    }
}

/// What the results rest on.
fn evidence(plan: &Plan, options: &RunOptions) -> Vec<EvidenceRow> {
    let mut evidence = plan.evidence.clone();
    if let (Some(library), Some(backend)) = (&options.library, &plan.network.backend) {
        let file = format!("`{}`", backend.written);
        evidence.add(&format!("network model {}", library.name()), "given", &file);
    }
    evidence.rows().to_vec()
}

/// How long a job takes where nothing waits and nothing is shared, if that is known.
pub(crate) fn alone(job_plan: &JobPlan, ideal: &IdealTimes<'_>, job: usize) -> Option<Span> {
    let iterations =
        || ideal.of_job(job).and_then(|span| span.ps().checked_mul(job_plan.iterations)).map(Span::from_ps);
    job_plan.duration.or_else(iterations)
}

/// Runs the jobs of a log, or of the shape of one.
///
/// # Errors
/// What stops the run, and a sink that refuses rows.
pub(crate) fn by_duration(
    plan: &Plan,
    stream: &JobStream,
    options: &RunOptions,
    sink: &mut dyn TableSink,
    progress: &mut dyn ProgressSink,
) -> Result<Value, Failure> {
    let streamed = stream::run(plan, stream, options, sink, progress)?;
    let figures = RunFigures {
        partial: !streamed.outcome.complete,
        simulated_ns: streamed.outcome.end.ns(),
        events: streamed.outcome.events,
        ..figures(plan, options)
    };
    Ok(summary::summary(
        &figures,
        Vec::new(),
        &NetworkSummary::default(),
        &FlowSummary::default(),
        streamed.usage.into_json(),
        &evidence(plan, options),
    ))
}
