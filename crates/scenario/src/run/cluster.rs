//! The cluster's side of a run: its scheduler, where hosts stand, and what became of its GPUs.

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use windtunnel_cluster::cluster::GpuTime;
use windtunnel_cluster::free::Locator;
use windtunnel_cluster::scheduler::{self, Options, Scheduler};
use windtunnel_topology::Topology;

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

/// The racks and pods of a topology.
pub struct Places {
    leaves: Vec<u32>,
    pods: Vec<u32>,
}

impl Places {
    /// Of each host, by its first NIC.
    pub fn of(topology: &Topology) -> Self {
        let (mut racks, mut areas) = (FxHashMap::default(), FxHashMap::default());
        let (mut leaves, mut pods) = (Vec::new(), Vec::new());
        for host in 0..topology.hosts() {
            let address = topology.address(host * topology.nics_per_host());
            let area = (address.region, address.building, address.pod);
            let number = areas.len() as u32;
            pods.push(*areas.entry(area).or_insert(number));
            let number = racks.len() as u32;
            leaves.push(*racks.entry((area, address.rack)).or_insert(number));
        }
        Self { leaves, pods }
    }
}

impl Locator for Places {
    fn leaf(&self, host: u32) -> u32 {
        self.leaves[host as usize]
    }

    fn pod(&self, host: u32) -> u32 {
        self.pods[host as usize]
    }
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
    /// Rows of the log that are no jobs; null if there is no log.
    pub skipped: Value,
}

impl ClusterUse {
    /// Enters a job that ended; `alone` is the time that it takes without waiting.
    pub fn ended(&mut self, submit: u64, start: u64, finish: u64, alone: Option<u64>, stops: u32) {
        self.waiting.push(start - submit);
        if let Some(alone) = alone.filter(|&alone| alone > 0) {
            self.slowdowns.push(slowdown(submit, finish, alone));
        }
        self.preemptions += u64::from(stops);
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
            "waiting_s": {"mean": mean_wait, "p50": wait(0.5), "p99": wait(0.99)},
            "makespan_s": self.makespan_ns as f64 / 1e9,
            "goodput": ratio(time.busy - time.lost, time.busy),
            "jobs": self.jobs,
            "finished": finished,
            "slowdown": {"mean": mean_slowdown, "p50": quantile(slowdowns, 0.5), "p99": quantile(slowdowns, 0.99)},
            "preemptions": self.preemptions,
            "lost_gpu_s": seconds(time.lost),
            "skipped": self.skipped,
        })
    }
}

/// Time from submission to end over the time that the job takes alone.
pub fn slowdown(submit: u64, finish: u64, alone: u64) -> f64 {
    (finish - submit) as f64 / alone as f64
}
