//! The cluster's side of a run: its scheduler, where hosts stand, and what became of its GPUs.

use serde_json::{Map, Value, json};
use windtunnel_cluster::calendar::timeline::{Bin, Timeline};
use windtunnel_cluster::cluster::{GpuTime, JobTime, Reason, Tally};
use windtunnel_cluster::scheduler::{self, Options, Scheduler};
use windtunnel_plan::Plan;
use windtunnel_plan::origin::LogAccount;

use super::periods::{Cause, Period};
use super::summary::quantile;
use crate::table::{Batch, Column};

/// The scheduler that the program brings along, or that the scenario names.
pub(crate) fn scheduler(plan: &Plan) -> Box<dyn Scheduler> {
    let cluster = &plan.cluster;
    let options = Options { endpoints: computing(plan), slice: cluster.slice, rows: cluster.slice_rows };
    if let Some(own) = plan.modules.make_scheduler() {
        return own;
    }
    scheduler::by_name(&cluster.scheduler, &options).expect("the plan was made with a known name")
}

/// GPUs that jobs may get.
pub(crate) fn computing(plan: &Plan) -> u32 {
    let topology = &plan.fabric.topology;
    topology.endpoints() - plan.storage_hosts.len() as u32 * topology.endpoints_per_host()
}

/// What became of the cluster's GPUs and jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterUse {
    /// GPU-time by state.
    pub gpu_time: GpuTime,
    /// End of the last job, in nanoseconds.
    pub makespan_ns: u64,
    /// Jobs submitted, or to be.
    pub jobs: u64,
    /// From submission to the first start of each job that ended, in nanoseconds.
    pub waiting: Vec<u64>,
    /// From submission to end over the time it would have taken without waiting, of each job of which that is known.
    pub slowdowns: Vec<f64>,
    /// Times that a job was stopped.
    pub preemptions: u64,
    /// Of the jobs that ended and had a deadline: how many nanoseconds after it each did, 0 if before.
    pub late: Vec<u64>,
    /// What faults of each kind did; empty if nothing can fail.
    pub tallies: Vec<(Reason, Tally)>,
    /// What became of the rows of the log; `None` if there is none.
    pub log: Option<LogAccount>,
    /// What episodes cost; null without a network.
    pub episodes: Value,
    /// Periods of congestion and their sum; null without a network.
    pub congestion: Value,
    /// Part of the free GPUs that stand on hosts which are not wholly free.
    pub fragmentation: Option<f64>,
    /// Samples of the jobs that ended, and their GPU-nanoseconds.
    pub samples: f64,
    /// See above.
    pub sampled_gpu_ns: u128,
}

impl ClusterUse {
    /// Enters a job that ended; `alone` is the time that it takes without waiting, `late` how long after its deadline it ended.
    pub(crate) fn ended(
        &mut self,
        [submit, start, finish]: [u64; 3],
        alone: Option<u64>,
        late: Option<u64>,
        time: JobTime,
    ) {
        self.waiting.push(start - submit);
        self.late.extend(late);
        if let Some(alone) = alone.filter(|&alone| alone > 0) {
            self.slowdowns.push(slowdown(submit, finish, alone));
        }
        self.preemptions += u64::from(time.stops());
    }

    /// Enters what the timeline says.
    pub(crate) fn over_time(&mut self, timeline: &Timeline) {
        let (_, bins) = timeline.bins();
        let (broken, free) = bins.iter().fold((0, 0), |(broken, free), bin| {
            (broken + bin.broken, free + bin.gpu_time.idle + bin.gpu_time.stranded)
        });
        self.fragmentation = (free > 0).then(|| (broken as f64 / free as f64).min(1.0));
    }

    /// Enters periods of congestion.
    pub(crate) fn congested(&mut self, periods: &[Period]) {
        let seconds = |of: &dyn Fn(&&Period) -> bool| {
            let ns: u128 =
                periods.iter().filter(of).map(|period| u128::from(period.until - period.from)).sum();
            ns as f64 / 1e9
        };
        self.congestion = json!({
            "periods": periods.len(),
            "job_seconds": seconds(&|_| true),
            "by_other_jobs_s": seconds(&|period| period.cause != Cause::Own),
        });
    }

    /// As JSON.
    pub(crate) fn into_json(mut self) -> Value {
        self.waiting.sort_unstable();
        self.slowdowns.sort_by(f64::total_cmp);
        let time = self.gpu_time;
        let seconds = |ns: u128| ns as f64 / 1e9;
        let ratio = |part: u128, whole: u128| (whole > 0).then(|| part as f64 / whole as f64);
        let finished = self.waiting.len();
        let mean_wait = (finished > 0)
            .then(|| seconds(self.waiting.iter().map(|&ns| u128::from(ns)).sum::<u128>()) / finished as f64);
        let wait = |q: f64| quantile(&self.waiting, q).map(|ns| ns as f64 / 1e9);
        self.late.sort_unstable();
        let slowdowns = &self.slowdowns;
        let mean_slowdown =
            (!slowdowns.is_empty()).then(|| slowdowns.iter().sum::<f64>() / slowdowns.len() as f64);
        json!({
            "utilisation": ratio(time.busy, time.total()),
            "gpu_seconds": {
                "busy": seconds(time.busy),
                "idle": seconds(time.idle),
                "stranded": seconds(time.stranded),
                "failed": seconds(time.failed),
                "draining": seconds(time.draining),
            },
            "busy_gpu_seconds": {
                "work": seconds(time.useful()),
                "loading": seconds(time.loading),
                "checkpoint": seconds(time.checkpoint),
                "restart": seconds(time.restart),
                "lost": seconds(time.lost),
            },
            "waiting_s": {"mean": mean_wait, "p50": wait(0.5), "p99": wait(0.99)},
            "makespan_s": self.makespan_ns as f64 / 1e9,
            "goodput": ratio(time.useful(), time.busy),
            "jobs": self.jobs,
            "finished": finished,
            "slowdown": {"mean": mean_slowdown, "p50": quantile(slowdowns, 0.5), "p99": quantile(slowdowns, 0.99)},
            "deadlines": deadlines(&self.late),
            "preemptions": self.preemptions,
            "lost_gpu_s": seconds(time.lost + time.restart),
            "interruptions": self.tallies.iter().map(|(_, tally)| tally.interruptions).sum::<u64>(),
            "faults": causes(&self.tallies),
            "skipped": self.log.as_ref().map(LogAccount::skipped),
            "log": self.log.as_ref().map(LogAccount::to_json),
            "fragmentation": self.fragmentation,
            "samples_per_s_per_gpu": (self.samples > 0.0).then(|| self.samples / (self.sampled_gpu_ns as f64 / 1e9)),
            "episodes": self.episodes,
            "congestion": self.congestion,
        })
    }
}

/// How many deadlines were met, and how late the others were; null if no job that ended had one.
fn deadlines(late: &[u64]) -> Value {
    if late.is_empty() {
        return Value::Null;
    }
    let missed = &late[late.partition_point(|&ns| ns == 0)..];
    let seconds = |ns: u64| ns as f64 / 1e9;
    let sum: u128 = missed.iter().map(|&ns| u128::from(ns)).sum();
    let mean = (!missed.is_empty()).then(|| sum as f64 / 1e9 / missed.len() as f64);
    json!({
        "jobs": late.len(),
        "missed": missed.len(),
        "late_s": {"mean": mean, "p50": quantile(missed, 0.5).map(seconds), "max": missed.last().copied().map(seconds)},
    })
}

/// How many nanoseconds after its deadline a job ended that should have within `within` of its submission; `None`: it had none.
pub(crate) fn late(submit: u64, finish: u64, within: u64) -> Option<u64> {
    (within < u64::MAX).then(|| (finish - submit).saturating_sub(within))
}

/// What each kind of fault did, by its name; null if nothing can fail.
fn causes(tallies: &[(Reason, Tally)]) -> Value {
    let entry = |(reason, tally): &(Reason, Tally)| {
        let entry = json!({
            "count": tally.faults,
            "interruptions": tally.interruptions,
            "lost_gpu_s": tally.lost as f64 / 1e9,
        });
        (reason.name().to_owned(), entry)
    };
    if tallies.is_empty() { Value::Null } else { tallies.iter().map(entry).collect::<Map<_, _>>().into() }
}

/// Rows of the table `usage`: the cluster over time, in bins.
pub(crate) fn usage_rows(timeline: &Timeline, endpoints: u32) -> Batch {
    let (width, bins) = timeline.bins();
    let span = |bin: usize| {
        let from = bin as u64 * width;
        timeline.end().min(from + width) - from
    };
    let part = |of: &dyn Fn(&Bin) -> u128| {
        let values = bins.iter().enumerate();
        let of = |(index, bin): (usize, &Bin)| {
            of(bin) as f64 / (span(index) as f64 * f64::from(endpoints)).max(1.0)
        };
        Column::F64(values.map(of).collect())
    };
    let mean = |of: &dyn Fn(&Bin) -> u128| {
        let values = bins.iter().enumerate();
        Column::F64(values.map(|(index, bin)| of(bin) as f64 / (span(index) as f64).max(1.0)).collect())
    };
    let from = |bin: usize| bin as f64 * width as f64 / 1e9;
    Batch::default()
        .with("from_s", Column::F64((0..bins.len()).map(from).collect()))
        .with("span_s", Column::F64((0..bins.len()).map(|bin| span(bin) as f64 / 1e9).collect()))
        .with("busy", part(&|bin| bin.gpu_time.busy))
        .with("idle", part(&|bin| bin.gpu_time.idle))
        .with("stranded", part(&|bin| bin.gpu_time.stranded))
        .with("failed", part(&|bin| bin.gpu_time.failed))
        .with("draining", part(&|bin| bin.gpu_time.draining))
        .with("fragmented", part(&|bin| bin.broken))
        .with("waiting_jobs", mean(&|bin| bin.waiting))
        .with("running_jobs", mean(&|bin| bin.running))
}

/// Time from submission to end over the time that the job takes alone.
pub(crate) fn slowdown(submit: u64, finish: u64, alone: u64) -> f64 {
    (finish - submit) as f64 / alone as f64
}
