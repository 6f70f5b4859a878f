//! LogGOPS: a network without contention, where a message arrives L after it departs.
//!
//! `Host<Latency>` is the message fidelity: what costs time (o, g, G, O, S) is in the host model, and only L is here.
//! Bandwidth is modelled at the ends alone, which is what LogGP says of a network of full bisection.
//!
//! **Coupled groups** take the closed form of the lock-step execution ([`lock_step`]), the slowest member
//! setting the pace: for rings whose members have equal edges it equals the step-by-step run to the picosecond.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use windtunnel_kernel::queue::{EventQueue, Sequenced};
use windtunnel_kernel::{Bytes, EndpointId, IndexVec, NicId, Span, Time};
use windtunnel_topology::{LoadBalancer, Route, Topology};

use crate::account::{Account, FlowRecord};
use crate::host::{Costs, LogGops, lock_step};
use crate::observations::Observations;
use crate::{Arrival, CoupledId, Departure, Network, Received};

/// The message model: see the module page.
#[derive(Clone, Debug)]
pub struct Latency {
    costs: Costs,
    /// Of each prepared group, the costs and weights of its members' edges, members that are alike once.
    groups: IndexVec<CoupledId, Vec<Vec<(LogGops, u64)>>>,
    arrivals: EventQueue<Arrival, Sequenced>,
    number: u64,
    observed: Option<Box<Observed>>,
}

/// What is kept of a network that is [observed](Latency::observed).
#[derive(Clone, Debug)]
struct Observed {
    account: Account,
    topology: Arc<Topology>,
    /// Endpoints of a scale-up domain.
    domain: u32,
    /// Where routes are laid for records.
    route: Route,
}

impl Observed {
    /// The record of a message that its receiver has taken in; the fabric says how far it went.
    fn record(&mut self, message: &Received) {
        let Self { account, topology, route, .. } = self;
        account.record(|| {
            let &Received { from, to, bytes, start, finish, class } = message;
            topology.route(LoadBalancer::Ecmp, 0, from, to, NicId(0), 0, route);
            let hops = route.links.len() as u16;
            let (source, destination, path) = (from, to, topology.path_class(from, to));
            FlowRecord { source, destination, edges: 1, bytes, start, finish, class, path, hops }
        });
    }
}

impl Latency {
    /// With the latencies of `costs`; the host model is to be given the same costs.
    pub fn new(costs: Costs) -> Self {
        Self { costs, groups: IndexVec::new(), arrivals: EventQueue::new(), number: 0, observed: None }
    }

    /// With an account of the messages that receivers take in on `topology`, and a record of each if `records`. The edges of
    /// coupled groups are not counted. Completion times are from the start of the send to the last byte's arrival, the
    /// receiver's hold included.
    #[must_use]
    pub fn observed(self, records: bool, topology: Arc<Topology>) -> Self {
        let domain = topology.scale_up_size().max(1);
        let observed = Observed { account: Account::new(records), topology, domain, route: Route::new() };
        Self { observed: Some(Box::new(observed)), ..self }
    }

    /// Time of a member with these edges, of which a unit one carries `bytes`: a part of it in each of the `steps`, or, of an
    /// exchange with no fewer edges than steps, all of it in one of them.
    fn member_span(&self, edges: &[(LogGops, u64)], bytes: Bytes, steps: u32) -> Span {
        let receiver = self.costs.receiver();
        let messages = |edges: &[(LogGops, u64)], share: u64| -> Vec<(LogGops, Bytes)> {
            edges.iter().map(|&(costs, weight)| (costs, Bytes::new(share * weight))).collect()
        };
        if steps == 0 {
            return Span::ZERO;
        }
        let rounds = steps as usize;
        if edges.len() < rounds {
            return lock_step(&messages(edges, bytes.get().div_ceil(rounds as u64)), steps, receiver);
        }
        // Inside a domain all edges are of one class, so whole rounds are alike.
        let each = edges.len().div_ceil(rounds);
        let (whole, rest) = edges.split_at(edges.len() / each * each);
        let full = lock_step(&messages(&whole[..each], bytes.get()), (whole.len() / each) as u32, receiver);
        full + lock_step(&messages(rest, bytes.get()), 1, receiver)
    }

    fn arrive(&mut self, time: Time, arrival: Arrival) {
        self.arrivals.push(Sequenced { time, number: self.number }, arrival);
        self.number += 1;
    }
}

impl Network for Latency {
    #[inline]
    fn received(&mut self, message: &Received) {
        if let Some(observed) = &mut self.observed {
            let outside = message.from.0 / observed.domain != message.to.0 / observed.domain;
            observed.account.message(message.bytes, outside.then(|| message.finish - message.start));
            observed.record(message);
        }
    }

    #[inline]
    fn known_arrival(&self, at: Time, departure: &Departure) -> Option<Time> {
        Some(at + self.costs.of(departure.from, departure.to).latency)
    }

    fn depart(&mut self, at: Time, departure: Departure) {
        let time = at + self.costs.of(departure.from, departure.to).latency;
        self.arrive(time, Arrival::Message { message: departure.message });
    }

    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], _entropy: u32) -> CoupledId {
        let mut members: FxHashMap<EndpointId, Vec<(usize, u64)>> = FxHashMap::default();
        for &(from, to, weight) in edges.iter().filter(|edge| edge.2 > 0) {
            members.entry(from).or_default().push((self.costs.class(from, to), u64::from(weight)));
        }
        let mut kinds: Vec<Vec<(usize, u64)>> = Vec::new();
        for &(from, ..) in edges {
            // Looked up in the order of the edges, and each once.
            let Some(mut edges) = members.remove(&from) else { continue };
            // The members of an exchange name their peers in another order each.
            edges.sort_unstable_by(|a, b| b.cmp(a));
            if !kinds.contains(&edges) {
                kinds.push(edges);
            }
        }
        let costs = |(class, weight): (usize, u64)| (*self.costs.of_class(class), weight);
        self.groups.push(kinds.into_iter().map(|edges| edges.into_iter().map(costs).collect()).collect())
    }

    /// As long as one message of the vector between the first member and the one furthest from it: up to the switches that
    /// sum and down again is such a way.
    fn prepare_reduction(&mut self, members: &[EndpointId], _entropy: u32) -> CoupledId {
        let mut classes: Vec<usize> =
            members[1..].iter().map(|&to| self.costs.class(members[0], to)).collect();
        classes.sort_unstable();
        classes.dedup();
        let one = |class| vec![(*self.costs.of_class(class), 1)];
        self.groups.push(classes.into_iter().map(one).collect())
    }

    fn start_coupled(&mut self, at: Time, run: u32, group: CoupledId, bytes: Bytes, steps: u32, _class: u8) {
        let span = self.coupled_span(group, bytes, steps);
        self.arrive(at + span, Arrival::Coupled { run });
    }

    fn coupled_span(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span {
        let members = self.groups.get(group).map_or(&[][..], Vec::as_slice);
        members.iter().map(|edges| self.member_span(edges, bytes, steps)).max().unwrap_or(Span::ZERO)
    }

    fn next_time(&mut self) -> Time {
        self.arrivals.peek().map_or(Time::NEVER, |key| key.time)
    }

    fn advance(&mut self, to: Time, arrivals: &mut Vec<Arrival>) {
        while self.arrivals.peek().is_some_and(|key| key.time <= to) {
            arrivals.extend(self.arrivals.pop().map(|item| item.1));
        }
    }

    fn observe(&mut self, _: Time) -> Observations {
        let delivered = self.observed.as_ref().map(|observed| observed.account.delivered().clone());
        Observations { delivered, ..Observations::default() }
    }

    fn take_records(&mut self, records: &mut Vec<FlowRecord>) {
        if let Some(observed) = &mut self.observed {
            observed.account.take_records(records);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_kernel::{Id, NicId};

    /// The network by itself: a message arrives L after its departure, earlier ones first.
    #[test]
    fn messages_arrive_after_the_latency() {
        let costs = Costs::uniform(LogGops { latency: Span::from_ps(700), ..LogGops::default() });
        let mut network = Latency::new(costs);
        for (message, at) in [(0, 50), (1, 10)] {
            network.depart(
                Time::from_ps(at),
                Departure {
                    message,
                    from: EndpointId::from_index(0),
                    to: EndpointId::from_index(1),
                    nic: NicId(0),
                    bytes: Bytes::new(1),
                    class: 0,
                    entropy: 0,
                    line: 0,
                },
            );
        }
        let mut arrivals = Vec::new();
        assert_eq!(network.next_time(), Time::from_ps(710));
        network.advance(Time::from_ps(710), &mut arrivals);
        assert_eq!(arrivals, [Arrival::Message { message: 1 }]);
        assert_eq!(network.next_time(), Time::from_ps(750));
    }
}
