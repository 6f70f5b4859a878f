//! A stage: a shard over the plan's network, set up, asked and read in one way, whether it holds an episode or a whole run.
//!
//! Life cycle: [`Stage::set`] opens the network, [`Stage::enter`] puts jobs on it, whoever drives it moves its shard, and
//! [`Stage::traffic`] and [`Stage::end`] put what it saw into the run's [`Record`]. What went wrong is told by
//! [`Stage::failure`], or, where no event is left and jobs are not done, by [`Stage::stuck`].

use std::sync::Arc;

use windtunnel_cluster::calendar::EpisodeJob;
use windtunnel_cluster::shard::{Shard, ShardJob};
use windtunnel_cluster::variation::Variation;
use windtunnel_fabric::reroute::{CutOff, SharedRerouter, lock};
use windtunnel_fabric::{Network, Observations};
use windtunnel_kernel::{EndpointId, Span, Time};
use windtunnel_plan::Plan;
use windtunnel_plan::error::{Failure, InputError};
use windtunnel_plan::settings::{ExchangeName, Fidelity};
use windtunnel_workload::collectives::OneByOne;
use windtunnel_workload::replay::{Coupling, Exchanges};

use super::RunOptions;
use super::model::{self, Hosts, Opened};
use super::record::Record;
use super::recorder::{Recorder, Watched};
use super::stuck::{Lost, stuck_failure};
use super::trouble::{cut_off_failure, trouble_failure};

/// Steps of a packet network, each up to some thousand events, between two looks at the clock.
const PACKET_STEPS: u64 = 1 << 4;

/// See the module page.
pub(crate) struct Stage<'a> {
    plan: &'a Plan,
    options: &'a RunOptions,
    /// The hosts with the jobs on them.
    pub shard: Shard<'a, Hosts, Recorder<'a>>,
    /// Who knows the ways around what has failed, if anything has or will.
    pub rerouter: Option<SharedRerouter>,
}

impl<'a> Stage<'a> {
    /// No job so far; `jobs` of them may meet.
    pub(crate) fn set(
        plan: &'a Plan,
        options: &'a RunOptions,
        opened: Opened,
        variation: &'a Variation,
        recorder: Recorder<'a>,
        jobs: usize,
    ) -> Self {
        let Opened { hosts, rerouter } = opened;
        let mut shard = Shard::new(hosts, plan.fabric.topology.endpoints(), variation, recorder);
        match plan.fidelity {
            Fidelity::Packet => shard.pause_every(PACKET_STEPS),
            Fidelity::Message => shard.tune(Arc::new(OneByOne)),
            Fidelity::Flow => shard.keep_rings_coupled(),
            Fidelity::Job => {}
        }
        shard.exchange(exchanges(plan, merges(plan) && jobs == 1));
        shard.connect(plan.network.connections);
        let topology = &plan.fabric.topology;
        shard.domains(topology.scale_up_size(), topology.shape_name() != "clos");
        Self { plan, options, shard, rerouter }
    }

    /// Puts a job on the shard, as `taken` says of it; its place there.
    ///
    /// # Errors
    /// [`InputError`] for a workload that contradicts itself.
    pub(crate) fn enter(&mut self, job: &EpisodeJob, taken: ShardJob) -> Result<usize, InputError> {
        self.shard.couple(coupling(self.plan, &job.placement));
        self.shard.enter(taken).map_err(|error| {
            let place = format!("{}: job `{}`", self.options.source, self.plan.jobs[job.job].name);
            InputError::new(place, error.to_string())
        })
    }

    /// The network.
    pub(crate) fn network(&mut self) -> &mut dyn Network {
        &mut **self.shard.fabric_mut().network_mut()
    }

    /// What the network saw until `at`.
    pub(crate) fn observe(&mut self, at: Time) -> Observations {
        self.network().observe(at)
    }

    /// A pair that nothing joins, once there is one.
    pub(crate) fn cut_off(&self) -> Option<CutOff> {
        self.rerouter.as_ref().and_then(|rerouter| lock(rerouter).cut_off())
    }

    /// Records what links and packets carried in `episode`, whose jobs took `span`. Flows tell their loads only if `loads`.
    pub(crate) fn traffic(
        &mut self,
        seen: &Observations,
        record: &mut Record,
        episode: u32,
        span: Span,
        loads: bool,
    ) {
        let links = record.add_traffic(seen, self.plan, episode, span, loads);
        self.shard.observer_mut().rows("links", links);
    }

    /// Records what is known once nothing is left to simulate: what it took, what arrived, detours, and the all-to-alls of
    /// the jobs at `places`.
    pub(crate) fn end(&self, seen: &Observations, record: &mut Record, places: std::ops::Range<usize>) {
        record.add_end(seen, self.options);
        if let Some(rerouter) = &self.rerouter {
            record.network.add_detours(&lock(rerouter), &self.plan.fabric.topology);
        }
        if merges(self.plan) {
            for place in places {
                record.network.add_exchanges(&(&self.shard.exchanged(place)).into());
            }
        }
    }

    /// Why the run cannot go on, if it cannot.
    pub(crate) fn failure(&self, seen: &Observations) -> Option<Failure> {
        if let Some(pair) = self.cut_off() {
            return Some(cut_off_failure(self.plan, pair));
        }
        trouble_failure(self.plan, seen.trouble.as_ref()?)
    }

    /// What is said where no event is left and the jobs with these `names` are not done; `None` if all of them are.
    pub(crate) fn stuck(&mut self, seen: &Observations, names: &[&str], complete: bool) -> Option<Failure> {
        let stuck = self.shard.stuck();
        if complete && stuck.is_empty() {
            return None;
        }
        let beyond = self.shard.is_beyond();
        Some(stuck_failure(names, &stuck, beyond, Lost::of(self.plan, seen).as_ref()))
    }
}

/// A job at work, or one that loads its data, as a shard takes it: from the beginning to the end.
pub(crate) fn shard_job(plan: &Plan, job: &EpisodeJob) -> ShardJob {
    let mut placement = job.placement.clone();
    let own = placement.len();
    let work = plan.jobs[job.job].work_of(own);
    let (mut number, mut workload) = (job.job as u64, work.workload_at(&plan.fabric.kinds, &job.placement));
    if let Some(load) = work.load.as_ref().filter(|_| job.loading) {
        // Other messages than the job's.
        number += plan.jobs.len() as u64;
        workload = load.workload.clone();
        placement.extend_from_slice(&load.storage);
    }
    ShardJob {
        number,
        workload,
        placement: placement.into(),
        own,
        iterations: job.left,
        redone: job.redone,
        awaited: true,
        start: job.start,
        done_before: job.done_before,
        simulated: [].into(),
    }
}

/// What is kept of a job in `episode`.
pub(crate) fn watch(plan: &Plan, job: &EpisodeJob, iterations: u64, episode: u32) -> Watched {
    let work = plan.jobs[job.job].work_of(job.placement.len());
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
        work: work.at(&plan.fabric.kinds, &job.placement),
        loading: job.loading,
        phase: job.phase,
        placement: job.placement.clone(),
        done_before: job.done_before,
        operations_of: job.left.min(iterations) - 1,
        ranks,
    }
}

/// Whether all-to-alls may be merged.
fn merges(plan: &Plan) -> bool {
    plan.network.exchange == ExchangeName::Auto && plan.fidelity == Fidelity::Flow
}

/// How all-to-alls run; `in_step` where flows carry them and no other job can meet theirs.
pub(crate) fn exchanges(plan: &Plan, in_step: bool) -> Exchanges {
    match plan.network.exchange {
        ExchangeName::Hosts => Exchanges::Whole,
        ExchangeName::Auto if in_step => Exchanges::InStep,
        ExchangeName::Auto | ExchangeName::Messages => Exchanges::ByMessage,
    }
}

/// Where collectives of a job on `placement` may run coupled.
pub(crate) fn coupling(plan: &Plan, placement: &[EndpointId]) -> Coupling {
    let topology = &plan.fabric.topology;
    let alone_at_its_nic = plan.network.message.loggops.is_some() || !model::shares_nics(topology);
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
