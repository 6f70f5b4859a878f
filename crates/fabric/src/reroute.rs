//! Routes on a fabric with failed cables and switches, and an account of what the faults did to pairs.
//!
//! A network model that has a [`Rerouter`] asks it instead of the topology. It keeps the pairs that only a detour joins,
//! and the first that nothing joins: a message between those never arrives, and whoever runs the model ends the run
//! with [`Rerouter::cut_off`]. A fabric without faults has no rerouter and pays nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashSet;
use windtunnel_kernel::{EndpointId, NicId};
use windtunnel_topology::{Forwarder, LoadBalancer, Reach, Route};

/// Pairs that are named.
const NAMED: usize = 8;

/// A pair that no path joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutOff {
    /// Sender.
    pub from: EndpointId,
    /// Receiver.
    pub to: EndpointId,
    /// What becomes of its packets.
    pub reach: Reach,
}

/// See the module page.
#[derive(Clone, Debug)]
pub struct Rerouter {
    forwarder: Forwarder,
    detoured: FxHashSet<(EndpointId, EndpointId)>,
    /// The first of them.
    named: Vec<(EndpointId, EndpointId)>,
    cut_off: Option<CutOff>,
}

/// A rerouter that a network shares with who runs it.
pub type SharedRerouter = Arc<Mutex<Rerouter>>;

impl Rerouter {
    /// Routes as `forwarder` does.
    pub fn new(forwarder: Forwarder) -> Self {
        Self { forwarder, detoured: FxHashSet::default(), named: Vec::new(), cut_off: None }
    }

    /// To be shared.
    pub fn shared(forwarder: Forwarder) -> SharedRerouter {
        Arc::new(Mutex::new(Self::new(forwarder)))
    }

    /// What it routes by.
    pub fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }

    /// What it routes by, to change what has failed.
    pub fn forwarder_mut(&mut self) -> &mut Forwarder {
        &mut self.forwarder
    }

    /// [`Forwarder::route`], entered in the account; `None` if nothing joins the pair, and `route` is then empty.
    pub fn route(
        &mut self,
        balancer: LoadBalancer,
        seed: u64,
        from: EndpointId,
        to: EndpointId,
        nic: NicId,
        entropy: u32,
        route: &mut Route,
    ) -> Option<Reach> {
        match self.forwarder.route(balancer, seed, from, to, nic, entropy, route) {
            Ok(reach) => {
                if reach == Reach::Detour && self.detoured.insert((from, to)) && self.named.len() < NAMED {
                    self.named.push((from, to));
                }
                Some(reach)
            }
            Err(reach) => {
                self.cut_off.get_or_insert(CutOff { from, to, reach });
                None
            }
        }
    }

    /// Pairs that went by a detour.
    pub fn detoured(&self) -> usize {
        self.detoured.len()
    }

    /// The first of them, in the order in which they were asked for.
    pub fn first_detoured(&self) -> &[(EndpointId, EndpointId)] {
        &self.named
    }

    /// The first pair that nothing joins.
    pub fn cut_off(&self) -> Option<CutOff> {
        self.cut_off
    }
}

/// Locks a shared rerouter. Its data is consistent between any two statements, so a panic elsewhere does not matter.
pub fn lock(shared: &SharedRerouter) -> MutexGuard<'_, Rerouter> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
