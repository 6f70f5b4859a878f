//! LogGOPS: a network without contention, where a message arrives L after it departs.
//!
//! `Host<Latency>` is the message fidelity: what costs time (o, g, G, O, S) is in the host model, and only L is here.
//! Bandwidth is modelled at the ends alone, which is what LogGP says of a network of full bisection.
//!
//! **Coupled groups** take the closed form of the lock-step execution ([`lock_step`]), the slowest member
//! setting the pace: for rings whose members have equal edges it equals the step-by-step run to the picosecond.

use rustc_hash::FxHashMap;
use windtunnel_kernel::queue::{EventQueue, Sequenced};
use windtunnel_kernel::{Bytes, EndpointId, IndexVec, Span, Time};

use crate::flow::CompletionTimes;
use crate::host::{Costs, LogGops, lock_step};
use crate::{Arrival, CoupledId, Departure, Network, Received};

/// The message model: see the module page.
#[derive(Clone, Debug)]
pub struct Latency {
    costs: Costs,
    /// Of each prepared group, the costs and weights of its members' edges, members that are alike once.
    groups: IndexVec<CoupledId, Vec<Vec<(LogGops, u64)>>>,
    arrivals: EventQueue<Arrival, Sequenced>,
    number: u64,
    account: Option<Box<Account>>,
}

/// What was delivered, for networks that are [observed](Latency::observed).
#[derive(Clone, Debug, Default)]
pub struct Account {
    records: Option<Vec<Received>>,
    /// Endpoints of a scale-up domain.
    domain: u32,
    messages: u64,
    bytes: u64,
    times: CompletionTimes,
}

impl Account {
    /// Messages taken in by their receivers; the edges of coupled groups are not counted.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Their payload.
    pub fn bytes_delivered(&self) -> u64 {
        self.bytes
    }

    /// Of messages between scale-up domains, from the start of the send to the last byte's arrival, the receiver's hold included.
    pub fn completion_times(&self) -> &CompletionTimes {
        &self.times
    }

    /// Moves the records so far to the end of `records`.
    pub fn take_records(&mut self, records: &mut Vec<Received>) {
        if let Some(kept) = &mut self.records {
            records.append(kept);
        }
    }
}

impl Latency {
    /// With the latencies of `costs`; the host model is to be given the same costs.
    pub fn new(costs: Costs) -> Self {
        Self { costs, groups: IndexVec::new(), arrivals: EventQueue::new(), number: 0, account: None }
    }

    /// With an account of what is delivered in scale-up domains of `domain` endpoints and between them, and a record of each
    /// message if `records`.
    pub fn observed(self, records: bool, domain: u32) -> Self {
        let account =
            Account { records: records.then(Vec::new), domain: domain.max(1), ..Account::default() };
        Self { account: Some(Box::new(account)), ..self }
    }

    /// What was delivered, if it is observed.
    pub fn account_mut(&mut self) -> Option<&mut Account> {
        self.account.as_deref_mut()
    }

    /// Time of a member with these edges, of which a unit one carries `bytes`: a part of it in each of the `steps`, or, of an
    /// exchange with no fewer edges than steps, all of it in one of them.
    fn member_span(&self, edges: &[(LogGops, u64)], bytes: Bytes, steps: u32) -> Span {
        let receiver = self.costs.receiver();
        let messages = |edges: &[(LogGops, u64)], share: u64| -> Vec<(LogGops, Bytes)> {
            edges.iter().map(|&(costs, weight)| (costs, Bytes(share * weight))).collect()
        };
        if steps == 0 {
            return Span::ZERO;
        }
        let rounds = steps as usize;
        if edges.len() < rounds {
            return lock_step(&messages(edges, bytes.0.div_ceil(rounds as u64)), steps, receiver);
        }
        // Inside a domain all edges are of one class, so whole rounds are alike.
        let each = edges.len().div_ceil(rounds);
        let (whole, rest) = edges.split_at(edges.len() / each * each);
        let full = lock_step(&messages(&whole[..each], bytes.0), (whole.len() / each) as u32, receiver);
        full + lock_step(&messages(rest, bytes.0), 1, receiver)
    }

    fn arrive(&mut self, time: Time, arrival: Arrival) {
        self.arrivals.push(Sequenced { time, number: self.number }, arrival);
        self.number += 1;
    }
}

impl Network for Latency {
    #[inline]
    fn received(&mut self, message: &Received) {
        if let Some(account) = &mut self.account {
            account.messages += 1;
            account.bytes += message.bytes.0;
            if message.from.0 / account.domain != message.to.0 / account.domain {
                account.times.add(message.finish - message.start);
            }
            if let Some(records) = &mut account.records {
                records.push(*message);
            }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_kernel::{Id, NicId};

    /// The network by itself: a message arrives L after its departure, earlier ones first.
    #[test]
    fn messages_arrive_after_the_latency() {
        let costs = Costs::uniform(LogGops { latency: Span(700), ..LogGops::default() });
        let mut network = Latency::new(costs);
        for (message, at) in [(0, 50), (1, 10)] {
            network.depart(
                Time(at),
                Departure {
                    message,
                    from: EndpointId::from_index(0),
                    to: EndpointId::from_index(1),
                    nic: NicId(0),
                    bytes: Bytes(1),
                    class: 0,
                    entropy: 0,
                    line: 0,
                },
            );
        }
        let mut arrivals = Vec::new();
        assert_eq!(network.next_time(), Time(710));
        network.advance(Time(710), &mut arrivals);
        assert_eq!(arrivals, [Arrival::Message { message: 1 }]);
        assert_eq!(network.next_time(), Time(750));
    }
}
