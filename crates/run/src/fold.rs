//! Folding: data-parallel replicas that are equal by symmetry are simulated once (docs/architecture.md, Folding).
//!
//! A job folds along its data-parallel dimension when its replicas fall into few *classes*, of which each computes, communicates
//! and waits exactly as its first replica does. That is so when
//!
//! - no computation varies, no NIC is slow and nothing has failed;
//! - no path inside the fabric is ever a bottleneck: the load balancer is `ideal`, or `spray` on a Clos that is not
//!   oversubscribed at any tier (each switch then has at least the capacity upwards of the NICs below it, and equal
//!   parts never exceed it);
//! - every pair of neighbours in a group inside a replica (tensor, context, expert, pipeline) has a path of the same
//!   class and latency in every replica of the class, and no two replicas share a NIC;
//! - every collective with members in several replicas runs coupled, or as rings that do: a group keeps the edges of all members,
//!   only its joins are those of the simulated ones.
//!
//! Where a pipeline crosses leaf groups in some replicas only, there are several classes: 48 pipelines of 8 hosts, 48 hosts apart, in
//! leaf groups of 64 have three. Their members come to collectives of all replicas at instants of their own, and these start with the last.
//!
//! The folded run routes as on an ideal fabric. A test proves it equal to `fold: off`.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{EndpointId, NicId, RankId, Span};
use windtunnel_plan::Plan;
use windtunnel_plan::jobs::Work;
use windtunnel_topology::{LoadBalancer, PathClass, Route, TierSummary, Topology};
use windtunnel_workload::OpKind;
use windtunnel_workload::collectives::{self, Form};

/// What is simulated of a job.
#[derive(Clone, Debug)]
pub(crate) struct Folded {
    /// Whether each rank is.
    pub simulated: Arc<[bool]>,
    /// How many replicas one stands for: the mean of its classes, rounded down.
    pub factor: u64,
}

/// Folds a job's `work`, placed at `placement`, under `balancer`; `None` if its replicas are not equal.
pub(crate) fn fold(
    plan: &Plan,
    work: &Work,
    placement: &[EndpointId],
    balancer: LoadBalancer,
) -> Option<Folded> {
    let first = &work.first_replica;
    let unlike = !plan.slow_links.is_empty() || plan.fabric.kinds.differ();
    if first.is_empty() || unlike || plan.fabric.faults.is_some() {
        return None;
    }
    let topology = &*plan.fabric.topology;
    if !never_shares(topology, balancer) {
        return None;
    }
    let kept = first_of_classes(work, placement, topology);
    let simulated: Vec<bool> = (0..first.len() as u32)
        .map(|rank| kept.binary_search(&replica_of(work, RankId(rank))).is_ok())
        .collect();
    let ranks = simulated.iter().filter(|kept| **kept).count();
    let factor = (first.len() / ranks) as u64;
    let symmetric = factor > 1 && coupled_across(work, &simulated) && own_nics(work, placement, topology);
    symmetric.then(|| Folded { simulated: simulated.into(), factor })
}

/// Whether no link beyond the NICs can be a bottleneck.
fn never_shares(topology: &Topology, balancer: LoadBalancer) -> bool {
    match balancer {
        LoadBalancer::Ideal => true,
        LoadBalancer::Spray => {
            topology.shape_name() == "clos" && !topology.summary().tiers.iter().any(TierSummary::narrows)
        }
        LoadBalancer::Ecmp | LoadBalancer::DestinationModulo => false,
    }
}

/// Whether every collective with simulated and other members has a coupled form.
fn coupled_across(work: &Work, simulated: &[bool]) -> bool {
    let workload = &work.workload;
    let mixed: Vec<bool> = workload
        .communicators
        .iter()
        .map(|group| {
            let kept = group.ranks.iter().filter(|rank| simulated[rank.0 as usize]).count();
            kept > 0 && kept < group.ranks.len()
        })
        .collect();
    let kept = (0..simulated.len() as u32).map(RankId).filter(|rank| simulated[rank.0 as usize]);
    let mut checked = Vec::new();
    for rank in kept {
        let program = workload.program(rank);
        for op in &program.ops {
            let OpKind::Collective { comm, spec, .. } = op.kind else { continue };
            let communicator = workload.binding(rank, comm).communicator as usize;
            if !mixed[communicator] {
                continue;
            }
            let size = workload.communicators[communicator].ranks.len() as u32;
            let key = (workload.program_of[rank.0 as usize], spec, size);
            if checked.contains(&key) {
                continue;
            }
            checked.push(key);
            let spec = &program.specs[spec as usize];
            let coupled = collectives::Plan::new(spec, size).is_ok_and(|steps| {
                steps.is_empty() || steps.coupled().is_some() || steps.by_rings().is_some()
            });
            if spec.form == Form::Steps || !coupled {
                return false;
            }
        }
    }
    true
}

/// Class and latency of the path between two GPUs on an ideal fabric.
fn path(topology: &Topology, from: EndpointId, to: EndpointId) -> (PathClass, Span) {
    let mut route = Route::new();
    topology.route(LoadBalancer::Ideal, 0, from, to, NicId(0), 0, &mut route);
    (route.class, route.latency)
}

/// The names of the first replica of each class, in ascending order: neighbours inside the replicas of a class, and those who stand
/// alike in neighbouring domains (to whom several rings lead), are as far apart as those of its first one.
fn first_of_classes(work: &Work, placement: &[EndpointId], topology: &Topology) -> Vec<u32> {
    let first = &work.first_replica;
    let place = |rank: RankId| placement[rank.0 as usize];
    let domain = |rank: RankId| place(rank).0 / topology.scale_up_size().max(1);
    let mut paths: FxHashMap<(PathClass, Span), u32> = FxHashMap::default();
    let mut looks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for rank in 0..first.len() as u32 {
        looks.entry(replica_of(work, RankId(rank))).or_default();
    }
    for group in &work.workload.communicators {
        let ranks = &group.ranks;
        let Some(&leader) = ranks.first() else { continue };
        let replica = replica_of(work, leader);
        if ranks.iter().any(|&rank| replica_of(work, rank) != replica) {
            continue;
        }
        let look = looks.entry(replica).or_default();
        let mirrored = ranks.iter().map(|rank| first[rank.0 as usize].0);
        let together = ranks.iter().take_while(|&&rank| domain(rank) == domain(ranks[0])).count();
        look.extend(mirrored.chain([together as u32]));
        for (i, next) in (0..ranks.len()).flat_map(|i| [(i, i + 1), (i, i + together)]) {
            let (from, to) = (place(ranks[i]), place(ranks[next % ranks.len()]));
            for path in [path(topology, from, to), path(topology, to, from)] {
                let fresh = paths.len() as u32;
                look.push(*paths.entry(path).or_insert(fresh));
            }
        }
    }
    let mut classes: FxHashMap<&[u32], u32> = FxHashMap::default();
    for (&replica, look) in &looks {
        classes.entry(look).or_insert(replica);
    }
    let mut kept: Vec<u32> = classes.into_values().collect();
    kept.sort_unstable();
    kept
}

/// Whether no NIC serves two replicas.
fn own_nics(work: &Work, placement: &[EndpointId], topology: &Topology) -> bool {
    if topology.hosts() < 2 {
        return true;
    }
    let nic = |(rank, &at): (u32, &EndpointId)| (topology.nic(at, NicId(0)), RankId(rank));
    let mut nics: Vec<(u32, RankId)> = (0u32..).zip(placement).map(nic).collect();
    nics.sort_unstable();
    nics.windows(2)
        .all(|pair| pair[0].0 != pair[1].0 || replica_of(work, pair[0].1) == replica_of(work, pair[1].1))
}

/// A name for the replica of `rank`: how far it stands from its twin in the first one.
fn replica_of(work: &Work, rank: RankId) -> u32 {
    rank.0 - work.first_replica[rank.0 as usize].0
}
