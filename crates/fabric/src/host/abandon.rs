//! Endpoints that stop in mid-run: what they do, what they wait for and what is on its way between them is gone at once. So is
//! what else belongs to the same caller, at endpoints where others go on.
//!
//! An operation stands in exactly one place: a line, a matcher, the network, or the queue of events. From the first three it is
//! taken; in the queue, and in the lines of endpoints that go on, it stays, marked, until its event comes up. Lines of the
//! endpoints that stop are dissolved, so their clocks may go back to the present; those of NICs that others share stay as they are,
//! with what was handed to them.

use windtunnel_kernel::{EndpointId, Time};

use super::matcher::Matcher;
use super::operations::{NONE, State};
use super::{Arrival, Host, Ticket};
use crate::{Fabric, Network};

impl<N: Network> Host<N> {
    /// From `at` on, not before the clock nor beyond the next event, `endpoints` do nothing, and nothing is left at others of the
    /// requests whose tickets are `gone`. Apart from these, they have no message with others.
    ///
    /// # Panics
    /// If events before `at` have not been handled, or the network [cannot](Network::abandon).
    pub fn abandon(&mut self, at: Time, endpoints: &[EndpointId], gone: &dyn Fn(Ticket) -> bool) {
        self.advance_to(at);
        let mut goes = vec![false; self.spec.endpoints as usize];
        for endpoint in endpoints {
            goes[endpoint.0 as usize] = true;
        }
        let (operations, runs) = (&self.operations, &self.runs);
        let of = |arrival: Arrival| match arrival {
            Arrival::Message { message } => (operations[message].endpoint, operations[message].ticket),
            Arrival::Coupled { run } => (runs[run as usize].leader, runs[run as usize].ticket),
        };
        let stops = |(endpoint, ticket): (EndpointId, Ticket)| goes[endpoint.0 as usize] || gone(ticket);
        let taken = self.network.abandon(&|arrival| stops(of(arrival)));
        for arrival in taken.expect("a network off which jobs may go") {
            match arrival {
                Arrival::Message { message } => self.operations.release(message),
                Arrival::Coupled { run } => self.free_runs.push(run),
            }
        }
        self.network_next = None;
        // Slots that are free already are written anew when they are used.
        for run in self.runs.iter_mut().filter(|run| stops((run.leader, run.ticket))) {
            run.gone = true;
        }
        for &endpoint in endpoints {
            let operations = &mut self.operations;
            self.waiting.clear(endpoint, |operation| operations.release(operation));
            let matcher = &mut self.matchers[endpoint.0 as usize];
            *matcher = Matcher::default();
            if self.wildcards {
                matcher.expect_wildcards();
            }
            let (streams, nics) = (usize::from(self.spec.streams), usize::from(self.spec.nics));
            let index = endpoint.0 as usize;
            self.stream_free[index * streams..(index + 1) * streams].fill(self.now);
            self.send_free[index * nics..(index + 1) * nics].fill(self.now);
            self.receive_free[index * nics..(index + 1) * nics].fill(self.now);
        }
        let mut left = Vec::new();
        for id in 0..self.operations.slots().len() as u32 {
            let operation = &mut self.operations[id];
            if !stops((operation.endpoint, operation.ticket)) {
                continue;
            }
            let at = match operation.state {
                State::Free | State::Gone => continue,
                State::Calc | State::Send | State::Message | State::Receive => {
                    operation.state = State::Gone;
                    continue;
                }
                State::Posted => operation.endpoint,
                State::Unexpected => EndpointId(operation.peer),
            };
            self.operations.release(id);
            if !goes[at.0 as usize] {
                left.push(at);
            }
        }
        left.sort_unstable();
        left.dedup();
        for endpoint in left {
            self.match_anew(endpoint);
        }
    }

    /// Some of what waited at `endpoint` to be matched is gone: what is left of it keeps its order.
    fn match_anew(&mut self, endpoint: EndpointId) {
        let mut matcher = Matcher::default();
        if self.wildcards {
            matcher.expect_wildcards();
        }
        let slots = self.operations.slots().iter().zip(0u32..);
        let waits = slots.filter(|(operation, _)| match operation.state {
            State::Posted => operation.endpoint == endpoint,
            State::Unexpected => operation.peer == endpoint.0,
            _ => false,
        });
        let mut waits: Vec<(u64, u32)> = waits.map(|(operation, id)| (operation.number, id)).collect();
        waits.sort_unstable();
        for (_, id) in waits {
            self.operations[id].next = NONE;
            let posted = self.operations[id].state == State::Posted;
            let operations = &mut self.operations;
            let met = if posted { matcher.post(id, operations) } else { matcher.arrive(id, operations) };
            debug_assert_eq!(met, None, "two that match would have met before");
        }
        self.matchers[endpoint.0 as usize] = matcher;
    }

    /// Moves the clock to `at`, before which nothing happens.
    ///
    /// # Panics
    /// If something does.
    pub fn advance_to(&mut self, at: Time) {
        assert!(self.now <= at && at <= self.next_time(), "events before {at} have not been handled");
        if at > self.now {
            while self.run_network(at, at) < at {}
            self.now = at;
        }
    }
}
