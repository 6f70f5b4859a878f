//! Episodes on a fabric: the shard, its watching, and what is kept of it.

use std::sync::Arc;

use windtunnel_cluster::calendar::{Certainty, Episode, EpisodeJob};
use windtunnel_cluster::shard::{Shard, ShardJob};
use windtunnel_cluster::variation::Variation;
use windtunnel_fabric::flow::CompletionTimes;
use windtunnel_fabric::packet::PacketModel;
use windtunnel_fabric::reroute::{CutOff, SharedRerouter, lock};
use windtunnel_kernel::{CalendarTime, EndpointId, Span, Time};
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, InputError, Why};
use windtunnel_plan::jobs::JobPlan;
use windtunnel_plan::settings::{ExchangeName, Fidelity, FlowsTable, Fold};
use windtunnel_topology::{Detour, Forwarder, LinkId, LoadBalancer, Node};
use windtunnel_workload::collectives::OneByOne;
use windtunnel_workload::replay::{Coupling, Exchanges};

use super::RunOptions;
use super::clock::Origin;
use super::drive::{FlowRows, Observed, Outcome, Watch, drive};
use super::fold::{self, Folded};
use super::network;
use super::paths::PathNames;
use super::recorder::{Held, Iteration, Recorder, Watched};
use super::stuck::{Lost, stuck_failure};
use super::summary::{FlowSummary, NetworkSummary};
use super::usage;
use super::verdict::Judge;
use crate::table::{Batch, ProgressSink, TableSink};

/// Steps of a packet network, each up to some thousand events, between two looks at the clock.
const PACKET_STEPS: u64 = 1 << 4;

/// Why a run stops.
pub enum Stop {
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

/// What episodes cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Simulations.
    pub simulated: u64,
    /// Solves of the max-min system.
    pub solves: u64,
    /// Flows: messages, coupled groups, and the flows of exchanges.
    pub flows: u64,
}

/// What is kept of a run's episodes.
pub struct Record {
    /// Iterations by job.
    pub iterations: Vec<Vec<Iteration>>,
    /// First start of each job.
    pub started: Vec<Option<CalendarTime>>,
    /// Events handled.
    pub events: u64,
    /// Data packets and control packets sent over a link.
    pub packet_hops: Option<(u64, u64)>,
    /// Most replicas that one simulated replica stood for.
    pub fold: u64,
    /// How far the simulation came.
    pub simulated_ns: u64,
    /// Counters.
    pub network: NetworkSummary,
    /// Completion times of the last episode.
    pub flows: FlowSummary,
    /// What it cost.
    pub counts: Counts,
}

impl Record {
    /// Of `jobs`, empty.
    pub fn new(jobs: usize) -> Self {
        Self {
            iterations: vec![Vec::new(); jobs],
            started: vec![None; jobs],
            events: 0,
            packet_hops: None,
            fold: 1,
            simulated_ns: 0,
            network: NetworkSummary::default(),
            flows: FlowSummary::default(),
            counts: Counts::default(),
        }
    }

    /// Adds what a simulation at flow fidelity, recorded apart, came to.
    pub fn add(&mut self, other: Self) {
        let sum = |kept: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *kept = Some(kept.unwrap_or(0) + more);
            }
        };
        self.events += other.events;
        self.fold = self.fold.max(other.fold);
        self.simulated_ns = self.simulated_ns.max(other.simulated_ns);
        self.counts.simulated += other.counts.simulated;
        self.counts.solves += other.counts.solves;
        self.counts.flows += other.counts.flows;
        self.flows = other.flows;
        let (network, more) = (&mut self.network, other.network);
        sum(&mut network.simulated_messages, more.simulated_messages);
        sum(&mut network.simulated_bytes, more.simulated_bytes);
        if let Some(exchanges) = &more.exchanges {
            network.add_exchanges(exchanges);
        }
        network.links_most_loaded = more.links_most_loaded;
        if more.detoured_pairs > network.detoured_pairs {
            (network.detoured_pairs, network.detoured) = (more.detoured_pairs, more.detoured);
        }
    }
}

impl Record {
    /// Adds what a packet network came to by `now`, in an episode of `span`; rows of its links.
    pub fn add_packets(
        &mut self,
        packet: &mut dyn PacketModel,
        plan: &Plan,
        episode: u32,
        now: Time,
        span: Span,
    ) -> Batch {
        let topology = &plan.fabric.topology;
        packet.catch_up(now);
        self.network.add_packets(&packet.totals(), packet.queueing());
        self.network.add_reordering(&packet.reordering());
        self.network.add_pauses(&packet.port_reports(), topology);
        if let Some(tally) = packet.tally() {
            self.network.add_tally(&tally, &packet.deliveries());
        }
        if let Some(background) = packet.background() {
            self.network.add_background(background);
        }
        if plan.network.spreads() {
            self.network.path_unevenness = usage::unevenness(packet, topology);
        }
        let (links, loads) = usage::ports(packet, topology, episode, span);
        self.network.links_most_loaded = loads;
        links
    }

    /// Adds what simulating a packet network took, once nothing of it is left to simulate.
    pub fn add_packet_work(&mut self, packet: &dyn PacketModel, options: &RunOptions) {
        if let (Some(digests), Some(digest)) = (&options.digests, packet.digest()) {
            digests.lock().expect("no holder panics").found.push(digest);
        }
        let (data, control) = packet.packet_hops();
        let before = self.packet_hops.unwrap_or_default();
        self.packet_hops = Some((before.0 + data, before.1 + control));
        self.events += packet.totals().events;
    }

    /// Adds the messages of a network, and keeps their completion times.
    pub fn add_delivered(&mut self, (times, messages, bytes): (&CompletionTimes, u64, u64)) {
        let seconds = |span: Option<Span>| span.map(Span::seconds);
        self.flows = FlowSummary {
            count: times.count(),
            fct_mean_s: times.mean_seconds(),
            fct_p50_s: seconds(times.percentile(50)),
            fct_p99_s: seconds(times.percentile(99)),
            fct_max_s: seconds(times.max()),
        };
        let network = &mut self.network;
        network.simulated_messages = Some(network.simulated_messages.unwrap_or(0) + messages);
        network.simulated_bytes = Some(network.simulated_bytes.unwrap_or(0) + bytes);
    }
}

/// Why a packet network cannot go on, if it cannot.
pub fn packet_trouble(plan: &Plan, packet: &dyn PacketModel) -> Option<Failure> {
    let cycle = packet.pause_cycle();
    if !cycle.is_empty() {
        return Some(cycle_failure(plan, &cycle));
    }
    packet.silent_pair().map(|pair| silent_failure(plan, pair))
}

/// What a simulation saw.
pub struct Simulated {
    /// Its beginning.
    pub origin: Origin,
    /// Iterations by job of the episode.
    pub seen: Vec<Vec<Iteration>>,
    /// Rows of them.
    pub held: Vec<Held>,
    /// Iterations that some rank of each job has begun.
    pub begun: Vec<u64>,
    /// How far it went: iterations of the slowest job, with the first.
    pub until: u64,
    /// For how long what was seen of each job is good; `None`: however long.
    pub certainty: Vec<Certainty>,
    /// Links beyond scale-up domains that carried anything, in order, with their mean bytes per second.
    pub used: Arc<[(u32, f64)]>,
    /// Whether the progress sink stopped it.
    pub cancelled: bool,
}

/// Simulates one episode after the other.
pub struct Simulator<'a> {
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
    pub fn run(
        &mut self,
        start: CalendarTime,
        episode: &Episode,
        iterations: u64,
    ) -> Result<Simulated, Stop> {
        self.episode = episode.number;
        let start = begin(start, episode);
        let jobs = episode.jobs.as_slice();
        let plan = self.plan;
        let gone = episode.replay.iter().flat_map(|replay| &replay.gone);
        let works = jobs.iter().chain(gone).map(|job| plan.jobs[job.job].work_of(job.placement.len()));
        let spec = network::spec_of(plan, works);
        let records = plan.results.flows != FlowsTable::None;
        match plan.fidelity {
            Fidelity::Job => unreachable!("job fidelity simulates no network"),
            Fidelity::Message => {
                let rerouter = network::rerouter(self.faults.as_ref());
                let rerouter = rerouter.as_ref();
                let fabric = network::message(plan, spec, records, rerouter);
                self.simulate(fabric, start, episode, iterations, None, rerouter)
            }
            Fidelity::Packet if let Some(backend) = &plan.network.backend => {
                let library = self.options.library.clone().expect("loaded before the first episode");
                let fabric = network::backend(plan, spec, library, backend, &self.options.source, records)?;
                self.simulate(fabric, start, episode, iterations, None, None)
            }
            Fidelity::Packet => {
                let rerouter = network::rerouter(self.faults.as_ref());
                let rerouter = rerouter.as_ref();
                let mut fabric = network::packet(
                    plan,
                    spec,
                    &self.options.source,
                    records,
                    rerouter,
                    start.network_time(),
                    self.options.threads,
                )?;
                if let Some(digests) = &self.options.digests {
                    fabric.network_mut().keep_digest(&digests.lock().expect("no holder panics").next());
                }
                self.simulate(fabric, start, episode, iterations, None, rerouter)
            }
            Fidelity::Flow => {
                let balancer = plan.network.balancer;
                let folded = match jobs {
                    [job]
                        if plan.fold == Fold::Auto
                            && episode.replay.is_none()
                            && !job.loading
                            && self.faults.is_none()
                            && plan.troubles.impairments.changes.is_empty()
                            && variation(plan, start).is_none() =>
                    {
                        fold::fold(
                            plan,
                            plan.jobs[job.job].work_of(job.placement.len()),
                            &job.placement,
                            balancer,
                        )
                    }
                    _ => None,
                };
                let balancer = if folded.is_some() { LoadBalancer::Ideal } else { balancer };
                let impairments = plan.troubles.impairments.clone().since(start.network_time());
                let rerouter = network::moving_rerouter(plan, self.faults.as_ref());
                let rerouter = rerouter.as_ref();
                let mut fabric = network::flow(plan, spec, balancer, true, records, rerouter)?;
                impairments.check().map_err(|error| {
                    InputError::new(format!("{}: impairments", self.options.source), error.to_string())
                })?;
                fabric.network_mut().change(&impairments);
                self.simulate(fabric, start, episode, iterations, folded, rerouter)
            }
        }
    }

    fn simulate<F: Observed>(
        &mut self,
        fabric: F,
        start: CalendarTime,
        episode: &Episode,
        iterations: u64,
        folded: Option<Folded>,
        rerouter: Option<&SharedRerouter>,
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
        let balancer = plan.network.balancer;
        let names = PathNames::new(&plan.fabric.topology, self.faults.clone(), balancer, plan.seed);
        let mut recorder = Recorder::new(&plan.jobs, names, self.sink, origin, &mut seen, &mut held, !drawn);
        let gone = episode.replay.as_ref().map_or(&[][..], |replay| &replay.gone);
        // Those who were there before come first, as others may be on their GPUs now.
        for job in gone {
            let ranks = Vec::new();
            recorder.enter(Watched {
                ranks,
                operations_of: u64::MAX,
                ..watch(job, &plan.jobs[job.job], 1, self.episode)
            });
        }
        for job in jobs {
            let mut watched = watch(job, &plan.jobs[job.job], iterations, self.episode);
            if episode.replay.is_some() {
                // Instants are those of the calendar.
                watched.phase = Span::ZERO;
            }
            recorder.enter(watched);
        }
        let endpoints = plan.fabric.topology.endpoints();
        let mut shard = Shard::new(fabric, endpoints, &variation, recorder);
        match plan.fidelity {
            Fidelity::Packet => shard.pause_every(PACKET_STEPS),
            Fidelity::Message => shard.tune(Arc::new(OneByOne)),
            _ => {}
        }
        shard.exchange(exchanges(plan, gone.len() + jobs.len()));
        let judged = Judge::is_asked(episode);
        for (job, awaited) in
            gone.iter().zip(std::iter::repeat(false)).chain(jobs.iter().zip(std::iter::repeat(true)))
        {
            let job_plan = &plan.jobs[job.job];
            shard.couple(coupling(plan, &job.placement));
            let taken = shard_job(plan, job);
            let shard_job = ShardJob {
                iterations: if judged || episode.replay.is_some() {
                    job.left
                } else {
                    job.left.min(iterations)
                },
                awaited,
                // A load that is gone through again may take longer than it took, and its job does not wait for it.
                own: if job.loading && !awaited { 0 } else { taken.own },
                simulated: simulated.clone(),
                ..taken
            };
            shard.enter(shard_job).map_err(|error| {
                let place = format!("{}: job `{}`", self.options.source, job_plan.name);
                InputError::new(place, error.to_string())
            })?;
        }
        // With a replay the next change is near: as far as that, if it is known, and to the end of everyone's iteration.
        let mut until = if judged && episode.replay.is_some() { 1 } else { iterations };
        shard.stop_after(until);
        if plan.fidelity == Fidelity::Flow {
            shard.keep_rings_coupled();
        }
        let topology = &plan.fabric.topology;
        let events = self.record.events;
        let cut_off = || rerouter.and_then(|rerouter| lock(rerouter).cut_off());
        let sample_every = plan.results.queues;
        let watch = Watch { origin, events_before: events, topology, sample_every, cut_off: &cut_off };
        let judge = Judge::of(plan);
        let first = gone.len();
        let (outcome, verdict) = loop {
            let flows = FlowRows::of(plan, self.flow_rows);
            let (outcome, rows) = drive(&mut shard, &watch, self.progress, flows);
            self.flow_rows += rows;
            if !judged || !matches!(outcome, Outcome::Dry) || !shard.satisfied() {
                break (outcome, None);
            }
            let verdict = judge.judge(episode, &shard.observer().iterations()[first..], origin.ps, until);
            let (None, Some(next)) = (&verdict, judge.after(until)) else { break (outcome, verdict) };
            until = next;
            shard.stop_after(until);
        };
        self.record.events += shard.fabric().events();
        let end = shard.fabric().now();
        self.record.simulated_ns = start.0.saturating_add(Span(end.0).ns_ceil());
        // What networks carried is that of the jobs' time. Behind it come acknowledgements, what is sent again though it has
        // arrived, and timers that nobody waits for.
        // A job's end may be known before the clock gets there.
        let ends = (first..first + jobs.len()).filter_map(|job| shard.finished(job));
        let span = Span(ends.fold(end, Time::max).0);
        let mut used = Vec::new();
        if let Some(flow) = shard.fabric_mut().flow_network() {
            used = usage::rates(flow, topology, span);
            if !drawn {
                let (links, loads) = usage::links(flow, topology, self.episode, span);
                self.record.network.links_most_loaded = loads;
                shard.observer_mut().rows("links", links);
            }
        }
        if let Some(packet) = shard.fabric_mut().packet_network() {
            let links = self.record.add_packets(packet, plan, self.episode, end, span);
            shard.observer_mut().rows("links", links);
        }
        // Whether anything is left over is known once all is done; a job cut in mid-iteration leaves messages under way.
        let complete = shard.satisfied();
        let all_done = jobs.len() == 1 && gone.is_empty() && jobs[0].left <= until + jobs[0].replayed;
        if all_done {
            shard.drain();
        }
        if let Some(fault) = shard.fabric().fault() {
            return Err(Stop::Failed(Failure::Run(Why::Model, fault.to_owned())));
        }
        let stuck = if all_done || !complete { shard.stuck() } else { Vec::new() };
        let beyond = (!complete || !stuck.is_empty()) && shard.is_beyond();
        if let Some(flow) = shard.fabric_mut().flow_network() {
            self.record.counts.solves += flow.solves();
            self.record.counts.flows += flow.messages() + flow.coupled_runs() + flow.exchange_flows();
        }
        let (mut trouble, mut lost) = (None, None);
        if let Some(packet) = shard.fabric_mut().packet_network() {
            self.record.add_packet_work(packet, self.options);
            trouble = packet_trouble(plan, packet);
            lost = Lost::of(plan, packet);
        }
        if let Some(delivered) = shard.fabric_mut().delivered() {
            self.record.add_delivered(delivered);
        }
        if let Some(rerouter) = rerouter {
            self.record.network.add_detours(&lock(rerouter), topology);
        }
        if merges(plan) {
            for job in first..first + jobs.len() {
                self.record.network.add_exchanges(&(&shard.exchanged(job)).into());
            }
        }
        let begun = (first..first + jobs.len()).map(|job| shard.begun(job)).collect();
        if let Some(failure) = shard.observer_mut().failure() {
            return Err(Stop::Failed(Failure::sink(failure.to_owned())));
        }
        drop(shard);
        if let Some(pair) = cut_off() {
            return Err(Stop::Failed(cut_off_failure(plan, pair)));
        }
        if let Some(failure) = trouble {
            return Err(Stop::Failed(failure));
        }
        let cancelled = match outcome {
            Outcome::Cancelled => true,
            Outcome::Dry if !complete || !stuck.is_empty() => {
                let names: Vec<&str> =
                    gone.iter().chain(jobs).map(|job| plan.jobs[job.job].name.as_str()).collect();
                return Err(Stop::Failed(stuck_failure(&names, &stuck, beyond, lost.as_ref())));
            }
            Outcome::Failed(message) => return Err(Stop::Failed(Failure::Run(Why::Model, message))),
            Outcome::Dry => false,
        };
        self.record.counts.simulated += 1;
        let mut certainty = vec![Certainty::default(); jobs.len()];
        seen.drain(..first);
        held.retain(|held: &Held| held.of.0 >= first);
        if let Some(verdict) = verdict {
            for (iterations, &count) in seen.iter_mut().zip(&verdict.counts) {
                iterations.truncate(count);
            }
            held.retain(|held: &Held| {
                let job = held.of.0 - first;
                (jobs[job].replayed..verdict.counts[job] as u64).contains(&held.of.1)
            });
            certainty = verdict.certainty;
        }
        Ok(Simulated { origin, seen, held, begun, until, certainty, used: used.into(), cancelled })
    }
}

/// When the simulation of `episode` begins, which itself does at `start`.
pub fn begin(start: CalendarTime, episode: &Episode) -> CalendarTime {
    let before = episode.replay.as_ref().map_or(0, |replay| replay.before.0 / 1_000);
    CalendarTime(start.0 - before)
}

/// How hosts differ, with its instants counted from the episode's start.
pub fn variation(plan: &Plan, start: CalendarTime) -> Variation {
    with_speeds(plan, start, Variation::new(plan.seed, plan.noise.clone()))
}

/// `variation`, with what the scenario says of the speeds and clocks of its hosts.
pub fn with_speeds(plan: &Plan, start: CalendarTime, mut variation: Variation) -> Variation {
    let topology = &plan.fabric.topology;
    let per_host = topology.endpoints_per_host();
    for rule in &plan.speeds {
        let from = rule.from.map_or(0, |from| from.0.saturating_sub(start.network_time().0));
        let hosts = rule.host.map_or(0..topology.hosts(), |host| host..host + 1);
        for host in hosts {
            let gpus = rule.gpu.map_or(0..per_host, |gpu| gpu..gpu + 1);
            for gpu in gpus {
                let endpoint = EndpointId(host * per_host + gpu);
                variation.set_speed(topology.endpoints(), endpoint, Time(from), rule.speed);
            }
        }
    }
    for &(host, fast) in &plan.troubles.drift {
        for endpoint in (host * per_host..(host + 1) * per_host).map(EndpointId) {
            variation.set_clock(topology.endpoints(), endpoint, 1.0 + fast as f64 / 1e9);
        }
    }
    variation
}

/// A job at work, or one that loads its data, as a shard takes it: from the beginning to the end.
pub fn shard_job(plan: &Plan, job: &EpisodeJob) -> ShardJob {
    let mut placement = job.placement.clone();
    let own = placement.len();
    let work = plan.jobs[job.job].work_of(own);
    let (mut number, mut workload) = (job.job as u64, &work.workload);
    if let Some(load) = work.load.as_ref().filter(|_| job.loading) {
        // Other messages than the job's.
        number += plan.jobs.len() as u64;
        workload = &load.workload;
        placement.extend_from_slice(&load.storage);
    }
    ShardJob {
        number,
        workload: workload.clone(),
        placement: placement.into(),
        own,
        iterations: job.left,
        replayed: job.replayed,
        awaited: true,
        start: job.start,
        done_before: job.done_before,
        simulated: [].into(),
    }
}

/// What is kept of a job in `episode`.
pub fn watch(job: &EpisodeJob, job_plan: &JobPlan, iterations: u64, episode: u32) -> Watched {
    let work = job_plan.work_of(job.placement.len());
    let mut ranks = vec![false; work.ranks()];
    for rank in &work.watched {
        ranks[rank.0 as usize] = true;
    }
    if let Some(load) = work.load.as_ref().filter(|_| job.loading) {
        ranks = vec![false; load.workload.ranks()];
    }
    Watched {
        job: job.job,
        episode,
        work: work.clone(),
        loading: job.loading,
        phase: job.phase,
        placement: job.placement.clone(),
        done_before: job.done_before,
        operations_of: job.left.min(iterations) - 1,
        ranks,
    }
}

fn cut_off_failure(plan: &Plan, pair: CutOff) -> Failure {
    let topology = &plan.fabric.topology;
    let name = |endpoint| topology.node_name(Node::Gpu(endpoint));
    let (from, to) = (name(pair.from), name(pair.to));
    let hint = match plan.fabric.detour {
        Detour::Forbid => "`detour: allow` takes any way there is, or let less fail".to_owned(),
        Detour::Allow => "no way is left at all: let less fail".to_owned(),
    };
    Failure::Run(
        Why::CutOff,
        format!("no path from `{from}` to `{to}` is left by what has `failed`\n\nhint: {hint}"),
    )
}

/// Links named of a cycle of pauses.
const LINKS: usize = 12;

fn cycle_failure(plan: &Plan, cycle: &[LinkId]) -> Failure {
    let topology = &plan.fabric.topology;
    let line = |&link: &LinkId| format!("\n  {}", topology.link_name(link));
    let lines: String = cycle.iter().take(LINKS).map(line).collect();
    let more = cycle.len().saturating_sub(LINKS);
    let more = if more > 0 { format!("\n  … and {more} more") } else { String::new() };
    Failure::Run(
        Why::PauseCycle,
        format!(
            "the run cannot go on: {} links are paused by `pfc`, each until the next one moves, the last until the first \
         does{lines}{more}\n\nhint: a routing without cycles (up and down in a tree, virtual queues in a ring) has no \
         such pauses; `pfc: {{watchdog: 100 ms}}` drops what waits too long",
            cycle.len()
        ),
    )
}

fn silent_failure(plan: &Plan, [from, to]: [u32; 2]) -> Failure {
    let topology = &plan.fabric.topology;
    let (from, to) = (topology.node_name(Node::Nic(from)), topology.node_name(Node::Nic(to)));
    Failure::Run(
        Why::Silent,
        format!(
            "the run cannot go on: a queue pair from `{from}` to `{to}` has heard nothing for 64 time-outs in a row\n\nhint: \
         is a link on its way down for good (`impairments.down` without `until`), or does one lose everything?"
        ),
    )
}

/// Whether all-to-alls may be merged.
pub fn merges(plan: &Plan) -> bool {
    plan.network.exchange == ExchangeName::Auto && plan.fidelity == Fidelity::Flow
}

/// How all-to-alls run where so many jobs may meet.
pub fn exchanges(plan: &Plan, jobs: usize) -> Exchanges {
    match plan.network.exchange {
        ExchangeName::Hosts => Exchanges::Whole,
        ExchangeName::Auto if merges(plan) && jobs == 1 => Exchanges::InStep,
        ExchangeName::Auto | ExchangeName::Messages => Exchanges::ByMessage,
    }
}

/// Where collectives of a job on `placement` may run coupled.
pub fn coupling(plan: &Plan, placement: &[EndpointId]) -> Coupling {
    let topology = &plan.fabric.topology;
    let alone_at_its_nic = plan.network.message.loggops.is_some() || !network::shares_nics(topology);
    match plan.fidelity {
        Fidelity::Job | Fidelity::Flow => Coupling::default(),
        Fidelity::Message if alone_at_its_nic => Coupling::ExceptSeveralRings,
        // Messages of several groups queue one by one where they meet.
        Fidelity::Message | Fidelity::Packet => {
            if fills_domains(placement, topology.scale_up_size()) {
                Coupling::InsideDomain
            } else {
                Coupling::Never
            }
        }
    }
}

/// Whether ranks that the workload takes for neighbours in a scale-up domain of `size` GPUs stand in one: a job that was
/// spread, or got what was left of several hosts, has messages where others have a coupled group.
fn fills_domains(placement: &[EndpointId], size: u32) -> bool {
    let size = size.max(1);
    placement.chunks(size as usize).all(|block| block.iter().all(|gpu| gpu.0 / size == block[0].0 / size))
}
