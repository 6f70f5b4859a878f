//! Which jobs can meet: the links that each uses, and the groups that follow.
//!
//! The paths of a job's messages are a function of the job and its GPUs, not of its neighbours (flow fidelity). So a job uses
//! the links that it used when it was simulated alone, and jobs without a common link, taken transitively, are simulated
//! apart. A job inside one scale-up domain uses none.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_cluster::calendar::{Episode, EpisodeJob, Resident};
use windtunnel_kernel::{CalendarTime, EndpointId, NicId, Span, Time};
use windtunnel_plan::settings::Fidelity;
use windtunnel_topology::{LoadBalancer, Route};

use super::FabricRunner;
use crate::episode::Stop;
use crate::judge::Judgement;
use crate::memo::Known;
use crate::threads::simulate;

impl FabricRunner<'_> {
    /// Links of residents that have not been looked at yet.
    fn look(&mut self, residents: &[Resident<'_>]) -> Result<(), Stop> {
        let plan = self.simulator.plan;
        let domain = plan.fabric.topology.scale_up_size().max(1);
        let mut episodes = Vec::new();
        let mut starts = Vec::new();
        for resident in residents {
            let key = (resident.job, resident.starts, resident.loading);
            if self.footprints.contains_key(&key) {
                continue;
            }
            let first = resident.placement[0].0 / domain;
            if !resident.loading && resident.placement.iter().all(|gpu| gpu.0 / domain == first) {
                self.footprints.insert(key, Arc::from([]));
                continue;
            }
            let (placement, job, loading) = (resident.placement.to_vec(), resident.job, resident.loading);
            let job_plan = &plan.jobs[job];
            let requests = job_plan.work.load.as_ref().filter(|_| loading).map(|load| load.requests);
            let left = requests.unwrap_or(job_plan.iterations);
            let (start, phase) = (Time::ZERO, Span::ZERO);
            let (age, done_before, redone, boundary) = (Span::ZERO, 0, 0, start);
            let job = EpisodeJob {
                job,
                placement,
                start,
                phase,
                left,
                done_before,
                loading,
                age,
                redone,
                boundary,
            };
            // No time rests on its mean so far.
            let (jobs, horizon, rerun) = (vec![job], Span::ZERO, None);
            episodes.push(Episode { number: u32::MAX, jobs, horizon, rerun });
            starts.push(key);
        }
        // One iteration shows the paths; where its time is of use, as many as an episode has.
        let iterations = plan.cluster.episodes.iterations;
        let iterations = if self.memo.remembers() { u64::from(iterations) + 1 } else { 1 };
        let unknown: Vec<usize> = (0..episodes.len())
            .filter(|&index| !self.memo.remembers() || self.memo_of(&episodes[index], iterations).is_none())
            .collect();
        let run: Vec<&Episode> = unknown.iter().map(|&index| &episodes[index]).collect();
        let seen = simulate(&mut self.simulator, self.reached, CalendarTime::ZERO, &run, iterations)?;
        let mut fresh: FxHashMap<usize, Arc<Known>> = FxHashMap::default();
        for (&index, simulated) in unknown.iter().zip(&seen) {
            if simulated.cancelled {
                return Err(Stop::Cancelled);
            }
            self.footprint_runs += 1;
            let jobs = &episodes[index].jobs;
            let known = Arc::new(Known::of(simulated, jobs));
            if self.memo.remembers() {
                self.memo.keep(self.memo.key(jobs), known.clone());
            }
            fresh.insert(index, known);
        }
        for (index, key) in starts.into_iter().enumerate() {
            let jobs = &episodes[index].jobs;
            let before = || self.memo_of(&episodes[index], iterations).map(|(known, _)| known);
            let known = fresh.get(&index).cloned().or_else(before);
            let known = known.expect("it was simulated or known");
            // A pattern's links are another job's; it shares none that are not its hosts' alone.
            let used = if fresh.contains_key(&index) || self.memo.pattern(&jobs[0]).is_none() {
                known.used.iter().map(|&(link, _)| link).collect()
            } else {
                self.host_links(&jobs[0].placement)
            };
            self.footprints.insert(key, used);
            if let Some(mean) = known.mean(0).filter(|_| !jobs[0].loading) {
                self.alone.insert(key.0, mean);
            }
        }
        Ok(())
    }

    /// What the memo knows of an episode.
    fn memo_of(&self, episode: &Episode, iterations: u64) -> Option<(Arc<Known>, Judgement)> {
        self.memo.find(&self.memo.key(&episode.jobs), episode, iterations)
    }

    /// The links between the NICs of `placement` and their leaves.
    fn host_links(&self, placement: &[EndpointId]) -> Arc<[u32]> {
        let topology = &self.simulator.plan.fabric.topology;
        let own = 0..topology.nics_per_endpoint();
        let nics =
            placement.iter().flat_map(|&gpu| own.clone().map(move |nic| topology.nic(gpu, NicId(nic as u8))));
        let mut links: Vec<u32> = nics
            .flat_map(|nic| {
                let up = topology.nic_link(nic, 0);
                [up.0, topology.reverse(up).0]
            })
            .collect();
        links.sort_unstable();
        links.dedup();
        links.into()
    }

    /// Splits jobs into groups that share no link.
    pub(super) fn meeting(&mut self, residents: &[Resident<'_>]) -> Result<Vec<Vec<usize>>, Stop> {
        if self.simulator.plan.fidelity != Fidelity::Flow || residents.len() == 1 {
            return Ok(vec![(0..residents.len()).collect()]);
        }
        self.look(residents)?;
        // Each place's group, by its first member, with paths halved on the way.
        let mut first: Vec<usize> = (0..residents.len()).collect();
        fn root(first: &mut [usize], mut place: usize) -> usize {
            while first[place] != place {
                first[place] = first[first[place]];
                place = first[place];
            }
            place
        }
        let mut user: FxHashMap<u32, usize> = FxHashMap::default();
        for (place, resident) in residents.iter().enumerate() {
            for &link in self.footprints[&(resident.job, resident.starts, resident.loading)].iter() {
                let other = *user.entry(link).or_insert(place);
                let (a, b) = (root(&mut first, place), root(&mut first, other));
                first[a.max(b)] = a.min(b);
            }
        }
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); residents.len()];
        for place in 0..residents.len() {
            groups[root(&mut first, place)].push(place);
        }
        groups.retain(|group| !group.is_empty());
        Ok(groups)
    }

    /// Whether a job that loads has no way to some of its data.
    pub(super) fn is_severed(&self, resident: &Resident<'_>) -> bool {
        let job_plan = &self.simulator.plan.jobs[resident.job];
        let load = job_plan.work_of(resident.placement.len()).load.as_ref();
        let (Some(faults), Some(load)) = (&self.simulator.faults, load.filter(|_| resident.loading)) else {
            return false;
        };
        let (mut forwarder, mut route) = (faults.clone(), Route::new());
        let seed = self.simulator.plan.seed;
        load.flows(resident.placement).any(|(from, to)| {
            [(from, to), (to, from)].into_iter().any(|(from, to)| {
                forwarder.route(LoadBalancer::Ecmp, seed, from, to, NicId(0), 0, &mut route).is_err()
            })
        })
    }

    /// Whether nothing moves in an episode: its job is cut off from its data.
    pub(super) fn stands(&self, episode: &Episode) -> bool {
        let [job] = episode.jobs.as_slice() else { return false };
        let EpisodeJob { job, loading, ref placement, .. } = *job;
        self.is_severed(&Resident { job, starts: 0, placement, loading })
    }
}
