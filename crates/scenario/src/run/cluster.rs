//! The cluster's side of a run: its scheduler, where hosts stand, and what became of its GPUs.

use serde_json::{Map, Value, json};
use windtunnel_cluster::cluster::{GpuTime, JobTime, Reason, Tally};
use windtunnel_cluster::scheduler::{self, Options, Scheduler};

use super::summary::quantile;
use crate::assemble::Assembled;

/// The scheduler that the scenario names.
pub fn scheduler(assembled: &Assembled) -> Box<dyn Scheduler> {
    let cluster = &assembled.scenario.cluster;
    let options = Options {
        endpoints: assembled.fabric.topology.endpoints(),
        slice: cluster.slice.0,
        rows: cluster.slice_rows,
    };
    scheduler::by_name(&cluster.scheduler, &options).expect("assembling has checked the name")
}

/// What became of the cluster's GPUs and jobs.
#[derive(Clone, Debug, Default)]
pub struct ClusterUse {
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
    /// What faults of each kind did; empty if nothing can fail.
    pub tallies: Vec<(Reason, Tally)>,
    /// Rows of the log that are no jobs; null if there is no log.
    pub skipped: Value,
}

impl ClusterUse {
    /// Enters a job that ended; `alone` is the time that it takes without waiting.
    pub fn ended(&mut self, submit: u64, start: u64, finish: u64, alone: Option<u64>, time: JobTime) {
        self.waiting.push(start - submit);
        if let Some(alone) = alone.filter(|&alone| alone > 0) {
            self.slowdowns.push(slowdown(submit, finish, alone));
        }
        self.preemptions += u64::from(time.stops);
    }

    /// As JSON.
    pub fn into_json(mut self) -> Value {
        self.waiting.sort_unstable();
        self.slowdowns.sort_by(f64::total_cmp);
        let time = self.gpu_time;
        let seconds = |ns: u128| ns as f64 / 1e9;
        let ratio = |part: u128, whole: u128| (whole > 0).then(|| part as f64 / whole as f64);
        let finished = self.waiting.len();
        let mean_wait = (finished > 0)
            .then(|| seconds(self.waiting.iter().map(|&ns| u128::from(ns)).sum::<u128>()) / finished as f64);
        let wait = |q: f64| quantile(&self.waiting, q).map(|ns| ns as f64 / 1e9);
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
            "preemptions": self.preemptions,
            "lost_gpu_s": seconds(time.lost + time.restart),
            "interruptions": self.tallies.iter().map(|(_, tally)| tally.interruptions).sum::<u64>(),
            "faults": causes(&self.tallies),
            "skipped": self.skipped,
        })
    }
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

/// Time from submission to end over the time that the job takes alone.
pub fn slowdown(submit: u64, finish: u64, alone: u64) -> f64 {
    (finish - submit) as f64 / alone as f64
}
