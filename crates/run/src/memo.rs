//! Which episodes have been simulated before.
//!
//! An episode (flow fidelity, without variation) is a function of its jobs' workloads, placements, phases and
//! numbers (the last because load balancers hash them), as long as no job ends in it earlier than before. For a single
//! job whose GPUs leave the load balancer no choice (one host, or one leaf of hosts with one NIC each) only the pattern
//! of the placement counts. `memo: symmetric` takes patterns over leaves and pods for any group of several jobs.
//!
//! How far an episode is simulated depends on how long it will last too, and on how old its jobs are. One that was simulated
//! further than another one would be holds that one: its first iterations are the same.
//!
//! Life cycle: one memo a run, emptied when the fabric changes. A key holds several results where jobs had other numbers of
//! iterations left, or where more was needed than was known.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_cluster::calendar::{Episode, EpisodeJob};
use windtunnel_kernel::{CalendarTime, EndpointId, NicId};
use windtunnel_plan::Plan;
use windtunnel_plan::jobs::JobPlan;
use windtunnel_plan::settings::{Fidelity, MemoName};
use windtunnel_workload::Workload;

use super::judge::{Judge, Judgement};
use super::recorder::Iteration;
use super::simulated::Simulated;
use super::variation::variation;

/// An episode as it was simulated, without its place in the calendar.
pub(crate) struct Known {
    /// Iterations by job, counted from the episode's start and from 0.
    pub seen: Vec<Vec<Iteration>>,
    begun: Vec<u64>,
    /// Iterations that each job had left.
    left: Vec<u64>,
    /// How far it was simulated: iterations of the slowest job, with the first.
    until: u64,
    /// Links beyond scale-up domains that carried anything, with their mean bytes per second.
    pub used: Arc<[(u32, f64)]>,
}

impl Known {
    /// Of `simulated`, an episode of `jobs`.
    pub(crate) fn of(simulated: &Simulated, jobs: &[EpisodeJob]) -> Self {
        let relative = |(iterations, job): (&Vec<Iteration>, &EpisodeJob)| {
            let one = |iteration: &Iteration| Iteration {
                number: iteration.number - job.done_before,
                start_ps: iteration.start_ps - simulated.origin.ps,
                finish_ps: iteration.finish_ps - simulated.origin.ps,
                reused: true,
                ..*iteration
            };
            iterations.iter().map(one).collect()
        };
        Self {
            seen: simulated.seen.iter().zip(jobs).map(relative).collect(),
            begun: simulated.begun.clone(),
            left: jobs.iter().map(|job| job.left).collect(),
            until: simulated.until,
            used: simulated.used.clone(),
        }
    }

    /// Whether `jobs` would have done the same: none has fewer or more iterations where that could be seen.
    fn holds_for(&self, jobs: &[EpisodeJob]) -> bool {
        let of = self.left.iter().zip(&self.begun).zip(jobs);
        of.into_iter().all(|((&left, &begun), job)| left == job.left || left.min(job.left) > begun)
    }

    /// What simulating `episode` would come to, at first until its jobs have done `iterations`; `None`: it would go further.
    fn judge(&self, judge: &Judge, episode: &Episode, iterations: u64) -> Option<Judgement> {
        if !Judge::is_asked(episode) {
            return Some(Judgement::of_all(&self.seen));
        }
        let mut until = iterations;
        loop {
            let judgement = judge.judge(episode, &self.seen, 0, until);
            if judgement.is_some() {
                return judgement;
            }
            until = judge.after(until).filter(|&next| next <= self.until)?;
        }
    }

    /// Mean iteration of a job after the first, in picoseconds.
    pub(crate) fn mean(&self, job: usize) -> Option<f64> {
        mean(&self.seen[job])
    }
}

/// Episodes by what their results depend on.
pub(crate) struct Memo<'a> {
    plan: &'a Plan,
    judge: Judge,
    /// Number of each job's workload, among the distinct ones.
    workloads: Vec<u64>,
    known: FxHashMap<Vec<u64>, Vec<Arc<Known>>>,
    remembers: bool,
    /// Whether hosts of one kind of place are alike: nothing is slow or has failed.
    alike: bool,
}

impl<'a> Memo<'a> {
    /// Empty.
    pub(crate) fn new(plan: &'a Plan) -> Self {
        let mut numbers: FxHashMap<*const Workload, u64> = FxHashMap::default();
        let number = |job_plan: &JobPlan| {
            let next = numbers.len() as u64;
            *numbers.entry(Arc::as_ptr(&job_plan.work.workload)).or_insert(next)
        };
        let workloads = plan.jobs.iter().map(number).collect();
        let remembers = plan.fidelity == Fidelity::Flow
            && plan.cluster.episodes.memo != MemoName::Off
            && plan.jobs.len() > 1
            && variation(plan, CalendarTime::ZERO).is_none();
        let alike = alike(plan);
        Self { plan, judge: Judge::of(plan), workloads, known: FxHashMap::default(), remembers, alike }
    }

    /// Whether anything is kept.
    pub(crate) fn remembers(&self) -> bool {
        self.remembers
    }

    /// As the summary names it.
    pub(crate) fn name(&self) -> &'static str {
        match self.plan.cluster.episodes.memo {
            _ if !self.remembers => "off",
            MemoName::Exact => "exact",
            // Groups that lie alike over buildings may lie on other GPUs.
            MemoName::Symmetric if self.plan.fabric.kinds.differ() => "exact",
            MemoName::Symmetric => "symmetric",
            MemoName::Off => "off",
        }
    }

    /// Forgets all: paths are others now. `faulty`: something has failed.
    pub(crate) fn clear(&mut self, faulty: bool) {
        self.known.clear();
        self.alike = !faulty && alike(self.plan);
    }

    /// Keeps what came of an episode.
    pub(crate) fn keep(&mut self, key: Vec<u64>, known: Arc<Known>) {
        self.known.entry(key).or_default().push(known);
    }

    /// What the result of an episode depends on.
    pub(crate) fn key(&self, jobs: &[EpisodeJob]) -> Vec<u64> {
        if let [job] = jobs
            && let Some(pattern) = self.pattern(job)
        {
            let mut key = vec![u64::MAX, self.workloads[job.job], job.start.ps()];
            key.extend(pattern);
            return key;
        }
        let symmetric = self.name() == "symmetric";
        if symmetric && jobs.len() > 1 {
            let mut key = vec![u64::MAX - 1];
            let mut names = Names::default();
            for job in jobs {
                // What jobs of one workload load may differ.
                let what = if job.loading { u64::MAX - job.job as u64 } else { self.workloads[job.job] };
                key.extend([what, job.left.min(1_000), job.placement.len() as u64]);
                key.extend(job.placement.iter().map(|&gpu| names.of(self.plan, gpu)));
            }
            return key;
        }
        exact_key(jobs)
    }

    /// The pattern of a job's placement that leaves the load balancer no choice, where all hosts are alike.
    pub(crate) fn pattern(&self, job: &EpisodeJob) -> Option<Vec<u64>> {
        let (topology, placement) = (&self.plan.fabric.topology, &job.placement);
        // Storage hosts are elsewhere.
        if !self.alike || job.loading {
            return None;
        }
        let per_host = topology.endpoints_per_host();
        let host = |gpu: &EndpointId| gpu.0 / per_host;
        let first = host(placement.first()?);
        let one_host = placement.iter().all(|gpu| host(gpu) == first);
        let rack = |gpu: &EndpointId| {
            let address = topology.address(topology.nic(*gpu, NicId(0)));
            (address.region, address.building, address.pod, address.rack)
        };
        let one_leaf = || {
            topology.nics_per_host() == 1
                && topology.planes() == 1
                && topology.shape_name() == "clos"
                && placement.iter().all(|gpu| rack(gpu) == rack(&placement[0]))
        };
        if !one_host && !one_leaf() {
            return None;
        }
        let mut hosts: Vec<u32> = Vec::new();
        let place = |gpu: &EndpointId| {
            let known = hosts.iter().position(|&known| known == host(gpu));
            let number = known.unwrap_or_else(|| {
                hosts.push(host(gpu));
                hosts.len() - 1
            });
            number as u64 * u64::from(per_host) + u64::from(gpu.0 % per_host)
        };
        Some(placement.iter().map(place).collect())
    }

    /// What is known of an episode with this key, as far as its jobs have iterations left, and what of that it comes to if its
    /// jobs do `iterations` at first.
    pub(crate) fn find(
        &self,
        key: &[u64],
        episode: &Episode,
        iterations: u64,
    ) -> Option<(Arc<Known>, Judgement)> {
        let known = self.known.get(key)?.iter().filter(|known| known.holds_for(&episode.jobs));
        known.into_iter().find_map(|known| {
            let judgement = known.judge(&self.judge, episode, iterations)?;
            Some((known.clone(), judgement))
        })
    }
}

/// Whether hosts of one kind of place are alike from the start on.
fn alike(plan: &Plan) -> bool {
    plan.fabric.faults.is_none() && plan.slow_links.is_empty() && !plan.fabric.kinds.differ()
}

/// Which jobs an episode has, whether they load, when they begin in it, and where they are.
fn exact_key(jobs: &[EpisodeJob]) -> Vec<u64> {
    let mut key = Vec::new();
    for job in jobs {
        key.extend([job.job as u64 * 2 + u64::from(job.loading), job.start.ps(), job.placement.len() as u64]);
        key.extend(job.placement.iter().map(|gpu| u64::from(gpu.0)));
    }
    key
}

/// Mean of the iterations after the first (of the only one if there is one), in picoseconds.
pub(crate) fn mean(iterations: &[Iteration]) -> Option<f64> {
    let [first, .., last] = iterations else {
        return iterations.first().map(|only| only.span_ps() as f64);
    };
    Some((last.finish_ps - first.finish_ps) as f64 / (iterations.len() - 1) as f64)
}

/// Hosts, leaves and pods by the order in which they are first seen.
#[derive(Default)]
pub(crate) struct Names {
    seen: [FxHashMap<(u64, u64), u64>; 3],
}

impl Names {
    /// A number for what can be told of a GPU's place from those of the GPUs before it.
    pub(crate) fn of(&mut self, plan: &Plan, gpu: EndpointId) -> u64 {
        let topology = &plan.fabric.topology;
        let address = topology.address(topology.nic(gpu, NicId(0)));
        let per_host = topology.endpoints_per_host();
        let area =
            u64::from(address.region) << 48 | u64::from(address.building) << 32 | u64::from(address.pod);
        let host = u64::from(gpu.0 / per_host);
        let mut number = |level: usize, name: (u64, u64)| {
            let next = self.seen[level].len() as u64;
            *self.seen[level].entry(name).or_insert(next)
        };
        let (pod, leaf) = (number(0, (area, 0)), number(1, (area, u64::from(address.rack))));
        pod << 48 | leaf << 32 | number(2, (host, 0)) << 8 | u64::from(gpu.0 % per_host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_kernel::{Span, Time};

    /// Whatever changes what an episode comes to changes its key, and what is only counted does not.
    #[test]
    fn episodes_of_one_key_are_alike() {
        let job = EpisodeJob {
            job: 1,
            placement: vec![EndpointId(4), EndpointId(5)],
            start: Time::from_ps(7),
            phase: Span::ZERO,
            left: 1_000,
            done_before: 0,
            loading: false,
            age: Span::ZERO,
            redone: 0,
            boundary: Time::ZERO,
        };
        let other = EpisodeJob { job: 2, placement: vec![EndpointId(0)], ..job.clone() };
        let key = |job: EpisodeJob| exact_key(&[job, other.clone()]);
        let others = [
            EpisodeJob { job: 0, ..job.clone() },
            EpisodeJob { placement: vec![EndpointId(5), EndpointId(4)], ..job.clone() },
            EpisodeJob { placement: vec![EndpointId(4)], ..job.clone() },
            EpisodeJob { start: Time::from_ps(8), ..job.clone() },
            EpisodeJob { loading: true, ..job.clone() },
        ];
        let mut keys: Vec<Vec<u64>> = others.into_iter().map(key).chain([key(job.clone())]).collect();
        assert_eq!(key(EpisodeJob { done_before: 9, left: 5, ..job }), keys[5]);
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 6);
    }
}
