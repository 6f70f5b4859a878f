//! Names of the links that a message or collective takes, for people.

use std::cell::RefCell;

use windtunnel_kernel::{EndpointId, NicId, RankId};
use windtunnel_topology::{Forwarder, LoadBalancer, Route, Topology};
use windtunnel_workload::collectives::Plan;
use windtunnel_workload::replay::Replay;
use windtunnel_workload::{OpKind, Operation};

/// Looks up the links of an operation as the flow model routes it.
#[derive(Clone)]
pub(crate) struct PathNames<'a> {
    topology: &'a Topology,
    /// Around what has failed.
    faults: Option<RefCell<Forwarder>>,
    balancer: LoadBalancer,
    seed: u64,
}

impl<'a> PathNames<'a> {
    /// On `topology`, around what `faults` knows to be out.
    pub(crate) fn new(
        topology: &'a Topology,
        faults: Option<Forwarder>,
        balancer: LoadBalancer,
        seed: u64,
    ) -> Self {
        Self { topology, faults: faults.map(RefCell::new), balancer, seed }
    }

    /// The links that `op` of `rank` waits for: those of its message, or of the edge that leads into the rank in a coupled
    /// collective; joined by `; `, empty where the path is not one.
    pub(crate) fn of(
        &self,
        replay: &Replay,
        placement: &[EndpointId],
        rank: RankId,
        op: &Operation,
    ) -> String {
        let workload = replay.workload();
        let (from, entropy) = match op.kind {
            OpKind::Receive { peer: Some(peer), .. } => {
                let from = workload.resolve(rank, peer);
                // The sender names the same group, or none.
                (from, replay.message_entropy(rank, peer))
            }
            OpKind::Collective { comm, spec, .. } => {
                let binding = workload.binding(rank, comm);
                let ranks = &workload.communicators[binding.communicator as usize].ranks;
                let spec = &workload.program(rank).specs[spec as usize];
                let shape = Plan::new(spec, ranks.len() as u32).ok().and_then(|job_plan| job_plan.coupled());
                let into =
                    shape.and_then(|shape| shape.edges.into_iter().find(|(_, to, _)| *to == binding.index));
                let Some((from, ..)) = into else { return String::new() };
                (ranks[from as usize], replay.collective_entropy(binding.communicator))
            }
            _ => return String::new(),
        };
        let mut route = Route::new();
        let (from, to) = (placement[from.0 as usize], placement[rank.0 as usize]);
        match &self.faults {
            None => self.topology.route(self.balancer, self.seed, from, to, NicId(0), entropy, &mut route),
            // Without a path there are no links to name.
            Some(faults) => {
                let mut forwarder = faults.borrow_mut();
                let _ = forwarder.route(self.balancer, self.seed, from, to, NicId(0), entropy, &mut route);
            }
        }
        let names: Vec<String> =
            route.links.iter().take(16).map(|&(link, _)| self.topology.link_name(link)).collect();
        names.join("; ")
    }
}
