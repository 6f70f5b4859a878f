//! `summary.json`: every key of docs/results.md, in its order. What is unknown is null, never absent.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};
use windtunnel_cluster::calendar::NORMAL_95;
use windtunnel_cluster::cluster::JobTime;
use windtunnel_cluster::explain::Breakdown;
use windtunnel_fabric::packet::transport::Tally;
use windtunnel_fabric::packet::{BackgroundUse, Counters, Delivery, PortReport, Reordering};
use windtunnel_fabric::reroute::Rerouter;
use windtunnel_kernel::{CalendarTime, Span, Time};
use windtunnel_plan::evidence::EvidenceRow;
use windtunnel_plan::inputs::Input;
use windtunnel_plan::jobs::{JobPlan, ModelFacts};
use windtunnel_plan::origin::Origin;
use windtunnel_topology::{Node, Topology};
use windtunnel_workload::Dimension;

use super::cluster;
use super::exchanged::ExchangeSummary;
use super::recorder::Iteration;
use crate::table::{Batch, Column};

/// Picoseconds as seconds.
pub(crate) fn seconds(ps: u64) -> f64 {
    windtunnel_kernel::Span::from_ps(ps).seconds()
}

/// Part of a mean that a calendar of whole nanoseconds may make.
const ROUNDED: f64 = 1e-6;

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// All iterations are done.
    Finished,
    /// The run ended before.
    Interrupted,
    /// The run ended before it got GPUs.
    Waiting,
}

impl JobState {
    const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
            Self::Waiting => "waiting",
        }
    }
}

/// A job's part of the summary.
pub(crate) struct JobSummary<'a> {
    /// What it is.
    pub job_plan: &'a JobPlan,
    /// How it ended.
    pub state: JobState,
    /// Mean peak rate of its GPUs in FLOP/s; 0 if it trains no model.
    pub peak_flops: f64,
    /// Its simulated iterations.
    pub iterations: &'a [Iteration],
    /// Mean iteration time on an ideal fabric, in picoseconds.
    pub ideal_ps: Option<u64>,
    /// When it was submitted; `None` if the run ended before.
    pub submit: Option<CalendarTime>,
    /// When it started.
    pub start: Option<CalendarTime>,
    /// When it ended.
    pub finish: Option<CalendarTime>,
    /// Stops and interruptions, and what they cost.
    pub time: JobTime,
    /// Variance of its time by what was not simulated, in square nanoseconds.
    pub variance: f64,
    /// Nanoseconds in which it did iterations.
    pub worked_ns: u64,
    /// Iterations that it did and nothing undid.
    pub done: f64,
    /// Iterations that interruptions undid.
    pub undone: f64,
}

/// The value at quantile `q` of a sorted list, by nearest rank.
pub(crate) fn quantile<T: Copy>(sorted: &[T], q: f64) -> Option<T> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The same of a list of lengths and weights.
fn weighted_quantile(sorted: &[(u64, f64)], q: f64) -> Option<u64> {
    let total: f64 = sorted.iter().map(|&(_, weight)| weight).sum();
    let mut sum = 0.0;
    let reaches = |&&(_, weight): &&(u64, f64)| {
        sum += weight;
        // Sums of weights round.
        sum >= q * total * (1.0 - 1e-12)
    };
    sorted.iter().find(reaches).or(sorted.last()).map(|&(span, _)| span)
}

impl JobSummary<'_> {
    /// Nanoseconds by which it missed its deadline; `None` if it had none, or has not ended.
    fn late(&self) -> Option<u64> {
        cluster::late(self.submit?.ns(), self.finish?.ns(), self.job_plan.deadline)
    }

    /// As JSON.
    pub(crate) fn to_json(&self) -> Value {
        let counted: Vec<&Iteration> = self.iterations.iter().filter(|one| one.weight > 0.0).collect();
        let alike = counted.iter().all(|one| one.weight == 1.0);
        let weights: f64 = counted.iter().map(|one| one.weight).sum();
        let raw_mean_of = |of: &dyn Fn(&Iteration) -> u128| {
            let first = of(counted.first()?);
            let sum = if alike {
                counted.iter().map(|one| of(one)).sum::<u128>() as f64 / weights
            } else {
                // What is the same in all stays what it is.
                let more = |one: &&Iteration| one.weight * (of(one) as f64 - first as f64);
                first as f64 + counted.iter().map(more).sum::<f64>() / weights
            };
            Some(sum / 1e12)
        };
        // An iteration that several episodes tell of has another length in each: the mean is that of the time all took.
        let (did, worked) = (self.done + self.undone, self.worked_ns as f64 / 1e9);
        let told = raw_mean_of(&|one| u128::from(one.span_ps())).filter(|&told| told > 0.0);
        let scale =
            told.filter(|_| self.finish.is_some() && did > 0.0).map_or(1.0, |told| worked / did / told);
        let rounded = ROUNDED.max(2e-9 / worked);
        let scale = if (scale - 1.0).abs() < rounded { 1.0 } else { scale };
        let mean_of = |of: &dyn Fn(&Iteration) -> u128| raw_mean_of(of).map(|mean| mean * scale);
        let mean = |of: &dyn Fn(&Iteration) -> u64| mean_of(&|one| u128::from(of(one)));
        let whole = counted.iter().filter(|one| one.whole);
        let mut spans: Vec<(u64, f64)> = whole.map(|one| (one.span_ps(), one.weight)).collect();
        spans.sort_by_key(|&(span, _)| span);
        let iteration_time = mean(&|iteration| iteration.span_ps());
        // An elastic job has more GPUs at times than at others.
        let gpu_time = mean_of(&|one| u128::from(one.span_ps()) * u128::from(one.ranks)).filter(|t| *t > 0.0);
        let explained = counted.iter().all(|iteration| iteration.breakdown.is_some());
        let part = |of: &dyn Fn(&Breakdown) -> u64| {
            mean(&|iteration| iteration.breakdown.as_ref().map_or(0, of)).filter(|_| explained)
        };
        let exposed: Map<String, Value> = Dimension::ALL
            .into_iter()
            .map(|dimension| {
                let value = part(&|breakdown| breakdown.exposed[dimension as usize]);
                (dimension.name().to_owned(), json!(value))
            })
            .collect();
        let model = self.job_plan.model.as_ref();
        let rate = |per_iteration: f64| iteration_time.filter(|t| *t > 0.0).map(|t| per_iteration / t);
        let calendar = |time: Option<CalendarTime>| time.map(|time| time.ns() as f64 / 1e9);
        // Of a job whose iterations were all disturbed on their way no more is known than the mean.
        let quantile = |q: f64| weighted_quantile(&spans, q).map(seconds).or(iteration_time);
        let took = self.start.zip(self.finish).map(|(start, finish)| finish.ns() - start.ns());
        let mut summary = json!({
            "name": self.job_plan.name,
            "state": self.state.name(),
            "line": self.job_plan.line,
            "log": self.job_plan.origin.to_json(),
            "ranks": self.job_plan.ranks(),
            "operations": self.job_plan.work.workload.operations(),
            "iterations": self.job_plan.iterations,
            "simulated_iterations": self.iterations.iter().filter(|one| !one.reused && one.ended).count(),
            "iteration_time_s": {
                "mean": iteration_time,
                "p50": quantile(0.5),
                "p99": quantile(0.99),
                "max": quantile(1.0),
            },
            "undone_iterations": self.undone,
            "outside_iterations_s": took.map(|took| took.saturating_sub(self.worked_ns) as f64 / 1e9),
            "compute_s": part(&|breakdown| breakdown.compute),
            "exposed_communication_s": part(&|breakdown| breakdown.exposed.iter().sum()),
            "exposed_s": exposed,
            "bubble_s": part(&|breakdown| breakdown.bubble),
            "straggler_s": part(&|breakdown| breakdown.straggler),
            "host_s": part(&|breakdown| breakdown.host),
            "ideal_iteration_time_s": self.ideal_ps.map(seconds),
            "tokens_per_s": model.and_then(|model| rate(model.tokens as f64)),
            "expected_error": model.map(|model| model.expected_error.clone()),
            "samples_per_s": self.job_plan.samples.and_then(|samples| rate(samples as f64)),
            "mfu": model.and_then(|model| gpu_time.map(|time| model.flops / (self.peak_flops * time))),
            "memory_bytes_per_gpu": model.map(ModelFacts::memory_total),
            "memory": model.map(|model| model.memory.clone()),
            "warnings": self.job_plan.warnings,
            "submit_s": calendar(self.submit),
            "start_s": calendar(self.start),
            "finish_s": calendar(self.finish),
            "time_band_s": took.map(|_| NORMAL_95 * self.variance.sqrt() / 1e9),
            "late_s": self.late().map(|ns| ns as f64 / 1e9),
        });
        for (name, seconds) in JobTime::NAMES.into_iter().zip(self.time.seconds()) {
            summary[name] = json!(seconds);
        }
        summary["interruptions"] = json!(self.time.interruptions);
        summary["preemptions"] = json!(self.time.stops());
        summary
    }
}

/// A row per job of what its part of the summary says; what is null there is NaN here.
pub(crate) fn jobs_table(jobs: &[Value]) -> Batch {
    let texts = |key: &str| {
        Column::Text(jobs.iter().map(|job| job[key].as_str().unwrap_or_default().to_owned()).collect())
    };
    let counts = |key: &str| Column::U64(jobs.iter().map(|job| job[key].as_u64().unwrap_or(0)).collect());
    let figures = |of: &dyn Fn(&Value) -> Option<f64>| {
        Column::F64(jobs.iter().map(|job| of(job).unwrap_or(f64::NAN)).collect())
    };
    let named = |key: &'static str| figures(&|job| job[key].as_f64());
    let mut batch = Batch::default()
        .with("job", texts("name"))
        .with("state", texts("state"))
        .with("line", counts("line"))
        .with("ranks", counts("ranks"))
        .with("iterations", counts("iterations"))
        .with("simulated_iterations", counts("simulated_iterations"))
        .with("iteration_time_s", figures(&|job| job["iteration_time_s"]["mean"].as_f64()))
        .with("compute_s", named("compute_s"));
    const EXPOSED: [&str; 6] =
        ["exposed_tp_s", "exposed_cp_s", "exposed_ep_s", "exposed_pp_s", "exposed_dp_s", "exposed_other_s"];
    for (column, dimension) in EXPOSED.into_iter().zip(Dimension::ALL) {
        batch = batch.with(column, figures(&|job| job["exposed_s"][dimension.name()].as_f64()));
    }
    const REST: [&str; 11] = [
        "bubble_s",
        "straggler_s",
        "host_s",
        "tokens_per_s",
        "samples_per_s",
        "mfu",
        "memory_bytes_per_gpu",
        "submit_s",
        "start_s",
        "finish_s",
        "late_s",
    ];
    for key in REST.into_iter().chain(JobTime::NAMES) {
        batch = batch.with(key, named(key));
    }
    batch = batch.with("interruptions", counts("interruptions")).with("preemptions", counts("preemptions"));
    for name in Origin::NAMES {
        batch = batch.with(name, Column::known(jobs.iter().map(|job| job["log"][name].as_str())));
    }
    batch
}

/// Counters of the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct NetworkSummary {
    /// Messages that jobs sent in the whole run, those of collectives as by steps, of the iterations that count.
    pub messages: Option<u64>,
    /// Their payload.
    pub bytes_delivered: Option<u64>,
    /// Messages of iterations that interruptions undid.
    pub undone_messages: Option<u64>,
    /// Their payload.
    pub undone_bytes: Option<u64>,
    /// Messages that were simulated one by one.
    pub simulated_messages: Option<u64>,
    /// Payload that was simulated, that of coupled groups included.
    pub simulated_bytes: Option<u64>,
    /// All-to-alls under `network.exchange: auto`; null where there is none (flow fidelity).
    pub exchanges: Option<ExchangeSummary>,
    /// Packet fidelity only.
    pub packets_delivered: Option<u64>,
    /// Packet fidelity only.
    pub packets_dropped: Option<u64>,
    /// Of them control packets; packet fidelity only.
    pub control_packets_dropped: Option<u64>,
    /// Packet fidelity only.
    pub loss_rate: Option<f64>,
    /// Packet fidelity only.
    pub ecn_marked: Option<u64>,
    /// Packet fidelity only.
    pub pfc_pause_s: Option<f64>,
    /// The same by tier of the links that were paused; packet fidelity only.
    pub pfc_pause_by_tier_s: Option<BTreeMap<String, f64>>,
    /// Pauses of queues; packet fidelity only.
    pub pfc_pauses: Option<u64>,
    /// Packet fidelity only.
    pub retransmissions: Option<u64>,
    /// Times that a queue pair took silence for loss; packet fidelity only.
    pub timeouts: Option<u64>,
    /// For how long these waited altogether; packet fidelity only.
    pub timeout_wait_s: Option<f64>,
    /// Packet fidelity only.
    pub mean_queueing_delay_s: Option<f64>,
    /// Packet fidelity only.
    pub reordered_packets: Option<u64>,
    /// Packets and bytes that queue pairs held out of order; packet fidelity only.
    pub reorder_buffers: Option<ReorderBuffers>,
    /// Of the packets dropped those that were on a link that went down, waited for it, or met it; packet fidelity only.
    pub link_down: Option<u64>,
    /// Of them those lost on a cable that works; packet fidelity only.
    pub corrupted: Option<u64>,
    /// Packets cut to their headers for lack of room; packet fidelity only.
    pub packets_trimmed: Option<u64>,
    /// What a transport that schedules whole NIC ports has counted, and what arrived in each 10 µs; null for others.
    pub transport: Option<TransportSummary>,
    /// Traffic that no job waits for; null where there is none.
    pub background: Option<BackgroundSummary>,
    /// How much fuller the fullest uplink of a switch is than its mean, at the most uneven switch; where packets or queue
    /// pairs of a message take several paths (packet fidelity).
    pub path_unevenness: Option<f64>,
    /// Pairs of GPUs that only a detour joins, of those that sent; null where nothing has failed.
    pub detoured_pairs: Option<u64>,
    /// The first of them, by name.
    pub detoured: Vec<[String; 2]>,
    /// Packets that a capture left out, which a warning tells.
    #[serde(skip)]
    pub uncaptured: u64,
    /// The most loaded links, first the most.
    pub links_most_loaded: Vec<LinkLoad>,
    /// Time that data packets waited in queues, and how many they were.
    #[serde(skip)]
    pub queueing_s: f64,
    /// See above.
    #[serde(skip)]
    pub queued_packets: u64,
}

/// Intervals of which deliveries are told, from the start of the network on.
const TOLD: usize = 1_000;

/// What a transport that schedules whole NIC ports has counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct TransportSummary {
    /// Figures by names that are the transport's own, or end in `_ps`, `_lost`, `_sent`, `_arrived` as for all of them.
    pub figures: BTreeMap<String, u64>,
    /// Of the first 1,000 intervals of 10 µs of the last episode: bytes that had not arrived before, data packets, those that came after a
    /// later one of their queue pair, and the sum of their delays in picoseconds.
    pub deliveries: Vec<[u64; 4]>,
}

/// What queue pairs held out of order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ReorderBuffers {
    /// Queue pairs.
    pub queue_pairs: u64,
    /// Most packets that one held at once.
    pub max_packets: u64,
    /// Most bytes.
    pub max_bytes: u64,
    /// Most packets that half of them held, as the next power of two less one.
    pub p50_packets: u64,
    /// That 99% of them held.
    pub p99_packets: u64,
    /// Of all episodes.
    #[serde(skip)]
    pub sum: Reordering,
}

/// Traffic that no job waits for. Counts are sums over episodes, times those of the last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct BackgroundSummary {
    /// Flows begun.
    pub begun: u64,
    /// Flows whose last byte has arrived.
    pub arrived: u64,
    /// Payload of these.
    pub bytes: u64,
    /// Wire bytes of the flows begun over what the NICs that send could have sent meanwhile.
    pub load: f64,
    /// Mean completion time.
    pub fct_mean_s: Option<f64>,
    /// Median.
    pub fct_p50_s: Option<f64>,
    /// 99th percentile.
    pub fct_p99_s: Option<f64>,
    /// The longest.
    pub fct_max_s: Option<f64>,
}

impl NetworkSummary {
    /// Adds an episode's background traffic.
    pub(crate) fn add_background(&mut self, used: &BackgroundUse) {
        let (times, could) =
            (&used.completion, used.rate as f64 / 8.0 * used.until.since(Time::ZERO).seconds());
        let seconds = |span: Option<Span>| span.map(Span::seconds);
        let before = self.background.take();
        let sum = |of: &dyn Fn(&BackgroundSummary) -> u64| before.as_ref().map_or(0, of);
        self.background = Some(BackgroundSummary {
            begun: sum(&|known| known.begun) + used.begun,
            arrived: sum(&|known| known.arrived) + times.count(),
            bytes: sum(&|known| known.bytes) + used.bytes,
            load: if could > 0.0 { used.wire as f64 / could } else { 0.0 },
            fct_mean_s: times.mean_seconds(),
            fct_p50_s: seconds(times.percentile(50)),
            fct_p99_s: seconds(times.percentile(99)),
            fct_max_s: seconds(times.max()),
        });
    }

    /// Adds what an episode's queue pairs held out of order.
    pub(crate) fn add_reordering(&mut self, reordering: &Reordering) {
        let mut sum = self.reorder_buffers.take().map_or_else(Reordering::default, |known| known.sum);
        sum.merge(reordering);
        self.reorder_buffers = Some(ReorderBuffers {
            queue_pairs: sum.queue_pairs.iter().sum(),
            max_packets: sum.most_packets,
            max_bytes: sum.most_bytes,
            p50_packets: sum.percentile(50),
            p99_packets: sum.percentile(99),
            sum,
        });
    }
}

impl NetworkSummary {
    /// Adds what a transport that schedules whole NIC ports came to in an episode.
    pub(crate) fn add_tally(&mut self, tally: &Tally, deliveries: &[Delivery]) {
        let summary = self.transport.get_or_insert_default();
        let mut sum = Tally::default();
        sum.merge(tally);
        for (name, value) in sum.figures() {
            let kept = summary.figures.entry(name.to_owned()).or_default();
            *kept = if sum.is_most(name) { value.max(*kept) } else { *kept + value };
        }
        let row = |each: &Delivery| [each.bytes, each.packets, each.late, each.delay];
        summary.deliveries = deliveries.iter().take(TOLD).map(row).collect();
    }

    /// Adds what an episode's packets came to; `queueing` is the time that all its data packets waited in queues.
    pub(crate) fn add_packets(&mut self, totals: &Counters, queueing: Span) {
        let sum = |kept: &mut Option<u64>, more: u64| *kept = Some(kept.unwrap_or(0) + more);
        sum(&mut self.pfc_pauses, totals.pauses);
        sum(&mut self.packets_delivered, totals.data_packets + totals.acknowledgements + totals.notices);
        sum(&mut self.packets_dropped, totals.drops);
        sum(&mut self.control_packets_dropped, totals.control_drops);
        sum(&mut self.link_down, totals.link_down);
        sum(&mut self.corrupted, totals.corrupted);
        sum(&mut self.packets_trimmed, totals.trims);
        sum(&mut self.ecn_marked, totals.marks);
        sum(&mut self.retransmissions, totals.retransmissions);
        sum(&mut self.timeouts, totals.timeouts);
        let waited = self.timeout_wait_s.unwrap_or(0.0) + Span::from_ps(totals.silence).seconds();
        self.timeout_wait_s = Some(waited);
        sum(&mut self.reordered_packets, totals.reordered);
        let (delivered, dropped) = (self.packets_delivered.unwrap_or(0), self.packets_dropped.unwrap_or(0));
        self.loss_rate = Some(dropped as f64 / (delivered + dropped).max(1) as f64);
        self.queueing_s += queueing.seconds();
        self.queued_packets += totals.data_packets;
        self.mean_queueing_delay_s = Some(self.queueing_s / self.queued_packets.max(1) as f64);
    }
}

/// Packets sent again, for each that was dropped or trimmed, from which it is told.
const IN_VAIN: u64 = 10;
/// Data packets for each one sent again, below which it is told.
const RARE: u64 = 1_000;
/// Part of the jobs' time from which waiting for time-outs is told.
const WAITED: f64 = 0.1;
/// One data packet dropped of so many that were sent, from which it is told.
const COLLAPSED: u64 = 10;

impl NetworkSummary {
    /// What a user should know before trusting the times: packets sent again though nothing like as many were lost, a share
    /// of them dropped at which no transport gets on, and time-outs that last for much of the `seconds` that jobs' iterations took which
    /// were simulated.
    pub(crate) fn warnings(&self, seconds: f64) -> Vec<String> {
        let again = self.retransmissions.unwrap_or(0);
        let (dropped, trimmed) = (self.packets_dropped.unwrap_or(0), self.packets_trimmed.unwrap_or(0));
        let arrived = self.queued_packets;
        let mut warnings = Vec::new();
        if again > IN_VAIN * (dropped + trimmed) && again * RARE > arrived {
            let share = 100.0 * again as f64 / arrived.max(1) as f64;
            warnings.push(format!(
                "network: {again} data packets were sent again ({share:.1}% of those that arrived), but {dropped} were dropped and {trimmed} \
                 trimmed: most were sent again in vain, and the times are those of that traffic too; where packets overtake one another, \
                 `network.recovery: rack` waits for them; where queues are longer than the time-out, `network.timeout` does"
            ));
        }
        let lost = dropped - self.control_packets_dropped.unwrap_or(0).min(dropped);
        if lost * COLLAPSED > arrived + lost {
            let share = 100.0 * lost as f64 / (arrived + lost) as f64;
            warnings.push(format!(
                "network: {lost} data packets were dropped ({share:.0}% of those that were sent), and the times are those of a \
                 network in collapse; larger `network.buffers`, `network.trimming`, `network.pfc`, or a `network.transport` that holds back \
                 where links inside the fabric are slower than NICs, change that"
            ));
        }
        if self.uncaptured > 0 {
            warnings.push(format!(
                "results.packets: the limit was reached, and {} packets more were not captured; a larger `limit`, or fewer `pairs` and links, \
                 shows them",
                self.uncaptured
            ));
        }
        let (silent, waited_s) = (self.timeouts.unwrap_or(0), self.timeout_wait_s.unwrap_or(0.0));
        if silent > 0 && dropped > 0 && waited_s > WAITED * seconds {
            let each = Span::from_ps((waited_s / silent as f64 * 1e12) as u64);
            warnings.push(format!(
                "network: {silent} times a queue pair found only by a time-out, after {each} on average, that packets had \
                 been dropped ({dropped} in all); iterations of {seconds:.3e} s were simulated, so these waits may make much \
                 of their times; a shorter `network.timeout`, `network.trimming` or larger `network.buffers` change that"
            ));
        }
        warnings
    }
}

/// Seconds of the iterations that were simulated, of all jobs.
fn simulated_s(jobs: &[Value]) -> f64 {
    let of =
        |job: &Value| Some(job["iteration_time_s"]["mean"].as_f64()? * job["simulated_iterations"].as_f64()?);
    jobs.iter().filter_map(of).sum()
}

impl NetworkSummary {
    /// Adds the time that each port was paused in an episode.
    pub(crate) fn add_pauses(&mut self, reports: &[PortReport], topology: &Topology) {
        let tiers = self.pfc_pause_by_tier_s.get_or_insert_with(BTreeMap::new);
        for report in reports.iter().filter(|report| report.pauses > 0) {
            let tier = topology.link(report.link).tier.name().into_owned();
            *tiers.entry(tier).or_insert(0.0) += report.paused.seconds();
        }
        self.pfc_pause_s = Some(tiers.values().fold(0.0, |sum, seconds| sum + seconds));
    }

    /// Enters the detours of an episode. What has failed does not change, so episodes see the same pairs again: the
    /// count is the largest of any one.
    pub(crate) fn add_detours(&mut self, account: &Rerouter, topology: &Topology) {
        let found = account.detoured() as u64;
        if self.detoured_pairs.is_none_or(|known| found > known) {
            self.detoured_pairs = Some(found);
            let name = |endpoint| topology.node_name(Node::Gpu(endpoint));
            let pairs = account.first_detoured().iter();
            self.detoured = pairs.map(|&(from, to)| [name(from), name(to)]).collect();
        }
    }
}

/// Load of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LinkLoad {
    /// Its name.
    pub name: String,
    /// Its tier.
    pub tier: String,
    /// Mean utilisation over the simulated time.
    pub utilisation: f64,
    /// Wire bytes carried.
    pub bytes: u64,
}

/// Completion times of flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct FlowSummary {
    /// Number of flows.
    pub count: u64,
    /// Mean.
    pub fct_mean_s: Option<f64>,
    /// Median.
    pub fct_p50_s: Option<f64>,
    /// 99th percentile.
    pub fct_p99_s: Option<f64>,
    /// Maximum.
    pub fct_max_s: Option<f64>,
}

/// The run's own figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunFigures {
    /// Name of the scenario.
    pub scenario: String,
    /// SHA-256 of the scenario's text, overrides and inputs, in hex.
    pub sha256: String,
    /// The files and sheets that it names.
    pub inputs: Vec<Input>,
    /// Seed.
    pub seed: u64,
    /// Fidelity.
    pub fidelity: &'static str,
    /// Whether the run was stopped.
    pub partial: bool,
    /// How many replicas one simulated replica stands for.
    pub fold: u64,
    /// Simulated time in nanoseconds of the calendar.
    pub simulated_ns: u64,
    /// Wall time.
    pub wall_time_s: f64,
    /// Processor time.
    pub cpu_time_s: f64,
    /// Events handled.
    pub events: u64,
    /// Data packets and control packets sent over a link (packet fidelity).
    pub packet_hops: Option<(u64, u64)>,
    /// Peak of the engine's own allocations.
    pub peak_memory_bytes: u64,
    /// Peak of the process.
    pub peak_rss_bytes: u64,
}

/// Puts the summary together.
pub(crate) fn summary(
    figures: &RunFigures,
    jobs: Vec<Value>,
    network: &NetworkSummary,
    flows: &FlowSummary,
    cluster: Value,
    evidence: &[EvidenceRow],
) -> Value {
    let input = |(name, digest): &Input| json!({"name": name, "sha256": digest});
    let inputs: Vec<Value> = figures.inputs.iter().map(input).collect();
    let warnings = network.warnings(simulated_s(&jobs));
    json!({
        "windtunnel": env!("CARGO_PKG_VERSION"),
        "scenario": figures.scenario,
        "scenario_sha256": figures.sha256,
        "inputs": inputs,
        "seed": figures.seed,
        "fidelity": figures.fidelity,
        "partial": figures.partial,
        "fold": figures.fold,
        "simulated_time_s": figures.simulated_ns as f64 / 1e9,
        "wall_time_s": figures.wall_time_s,
        "cpu_time_s": figures.cpu_time_s,
        "events": figures.events,
        "packet_hops": figures.packet_hops.map(|(data, control)| data + control),
        "data_packet_hops": figures.packet_hops.map(|(data, _)| data),
        "peak_memory_bytes": figures.peak_memory_bytes,
        "peak_rss_bytes": figures.peak_rss_bytes,
        "jobs": jobs,
        "network": network,
        "flows": flows,
        "cluster": cluster,
        "evidence": evidence,
        "warnings": warnings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than ten for each that was dropped or trimmed, and more than one in a thousand; drops of more than a tenth.
    #[test]
    fn what_is_sent_again_in_vain_is_told_and_collapse() {
        let told = |retransmissions, drops, trims| {
            let totals =
                Counters { data_packets: 100_000, retransmissions, drops, trims, ..Counters::default() };
            let mut network = NetworkSummary::default();
            network.add_packets(&totals, Span::ZERO);
            network.warnings(1.0).len()
        };
        let cases = [
            (101, 0, 0, 1),
            (100, 0, 0, 0),
            (500, 50, 0, 0),
            (500, 30, 20, 0),
            (501, 50, 0, 1),
            (501, 20, 30, 1),
            // One of ten that were sent is dropped, and one more.
            (11_111, 11_111, 0, 0),
            (11_112, 11_112, 0, 1),
        ];
        for (again, drops, trims, expected) in cases {
            assert_eq!(told(again, drops, trims), expected, "{again} {drops} {trims}");
        }
        // Lost probes and acknowledgements are no lost data.
        let told = |drops, control_drops| {
            let totals = Counters { data_packets: 100_000, drops, control_drops, ..Counters::default() };
            let mut network = NetworkSummary::default();
            network.add_packets(&totals, Span::ZERO);
            assert_eq!(
                (network.packets_dropped, network.control_packets_dropped),
                (Some(drops), Some(control_drops))
            );
            network.warnings(1.0)
        };
        assert_eq!(told(20_000, 20_000), Vec::<String>::new());
        assert_eq!(told(20_000, 8_889), Vec::<String>::new());
        let [warning] = &told(20_000, 8_888)[..] else { panic!("one warning") };
        assert!(warning.starts_with("network: 11112 data packets were dropped (10% of those"), "{warning}");
        assert_eq!(NetworkSummary::default().warnings(1.0), Vec::<String>::new());
    }

    #[test]
    fn time_outs_that_last_for_much_of_the_time_are_told() {
        let told = |timeouts, us: u64, drops, seconds| {
            let silence = timeouts * us * 1_000_000;
            let totals = Counters { data_packets: 1_000, timeouts, silence, drops, ..Counters::default() };
            let mut network = NetworkSummary::default();
            network.add_packets(&totals, Span::ZERO);
            network.warnings(seconds)
        };
        assert_eq!(told(2, 1_000, 3, 0.021), Vec::<String>::new(), "less than a tenth");
        assert_eq!(told(2, 1_000, 0, 0.001), Vec::<String>::new(), "nothing was lost");
        let [warning] = &told(2, 1_000, 3, 0.019)[..] else { panic!("one warning") };
        assert!(
            warning
                .starts_with("network: 2 times a queue pair found only by a time-out, after 1 ms on average"),
            "{warning}"
        );
    }
}
