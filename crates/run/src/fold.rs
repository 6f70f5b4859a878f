//! Folding: data-parallel replicas that are equal by symmetry are simulated once (docs/architecture.md, Folding).
//!
//! A job folds along its data-parallel dimension when every replica computes, communicates and waits exactly as the
//! first one does. That is so when
//!
//! - no computation varies, no NIC is slow and nothing has failed;
//! - no path inside the fabric is ever a bottleneck: the load balancer is `ideal`, or `spray` on a Clos that is not
//!   oversubscribed at any tier (each switch then has at least the capacity upwards of the NICs below it, and equal
//!   parts never exceed it);
//! - every pair of neighbours in a group inside a replica (tensor, context, expert, pipeline) has a path of the same
//!   class and latency in every replica, and no two replicas share a NIC;
//! - every collective with members in several replicas runs coupled, or as rings that do: a group keeps the edges of all members,
//!   only its joins are those of the simulated ones.
//!
//! The folded run routes as on an ideal fabric. A test proves it equal to `fold: off`.

use std::sync::Arc;

use windtunnel_kernel::{EndpointId, NicId, RankId, Span};
use windtunnel_plan::Plan;
use windtunnel_plan::jobs::Work;
use windtunnel_topology::{LoadBalancer, PathClass, Route, Topology};
use windtunnel_workload::OpKind;
use windtunnel_workload::collectives::{self, Form};

/// What is simulated of a job.
#[derive(Clone, Debug)]
pub struct Folded {
    /// Whether each rank is.
    pub simulated: Arc<[bool]>,
    /// How many replicas one stands for.
    pub factor: u64,
}

/// Folds a job's `work`, placed at `placement`, under `balancer`; `None` if its replicas are not equal.
pub fn fold(plan: &Plan, work: &Work, placement: &[EndpointId], balancer: LoadBalancer) -> Option<Folded> {
    let first = &work.first_replica;
    if first.is_empty() || !plan.slow_links.is_empty() || plan.fabric.faults.is_some() {
        return None;
    }
    let simulated: Vec<bool> = (0u32..).zip(first).map(|(rank, of)| RankId(rank) == *of).collect();
    let kept = simulated.iter().filter(|kept| **kept).count();
    let factor = first.len() as u64 / kept as u64;
    let topology = &*plan.fabric.topology;
    let symmetric = factor > 1
        && never_shares(topology, balancer)
        && coupled_across(work, &simulated)
        && alike_inside(work, placement, topology)
        && own_nics(work, placement, topology);
    symmetric.then(|| Folded { simulated: simulated.into(), factor })
}

/// Whether no link beyond the NICs can be a bottleneck.
fn never_shares(topology: &Topology, balancer: LoadBalancer) -> bool {
    match balancer {
        LoadBalancer::Ideal => true,
        LoadBalancer::Spray => {
            topology.shape_name() == "clos"
                && topology.summary().tiers.iter().all(|tier| tier.oversubscription.unwrap_or(1.0) <= 1.0)
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

/// Whether neighbours inside a replica, and those who stand alike in neighbouring domains (to whom several rings lead), are as
/// far apart as those of the first one.
fn alike_inside(work: &Work, placement: &[EndpointId], topology: &Topology) -> bool {
    let first = &work.first_replica;
    let place = |rank: RankId| placement[rank.0 as usize];
    work.workload.communicators.iter().all(|group| {
        let ranks = &group.ranks;
        let mirrored: Vec<RankId> = ranks.iter().map(|rank| first[rank.0 as usize]).collect();
        let inside = mirrored.iter().enumerate().all(|(i, rank)| !mirrored[..i].contains(rank));
        if !inside {
            return true;
        }
        let domain = |rank: RankId| place(rank).0 / topology.scale_up_size().max(1);
        let together = ranks.iter().take_while(|&&rank| domain(rank) == domain(ranks[0])).count();
        (0..ranks.len()).flat_map(|i| [(i, i + 1), (i, i + together)]).all(|(i, next)| {
            let next = next % ranks.len();
            let there = path(topology, place(ranks[i]), place(ranks[next]));
            let back = path(topology, place(ranks[next]), place(ranks[i]));
            there == path(topology, place(mirrored[i]), place(mirrored[next]))
                && back == path(topology, place(mirrored[next]), place(mirrored[i]))
        })
    })
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
