//! Endpoints that stop in mid-run: what they do, what they wait for and what is on its way between them is gone at once.
//!
//! An operation stands in exactly one place: a line, a matcher, the network, or the queue of events. From the first three it is
//! taken; in the queue it stays, marked, until its event comes up. Lines of the endpoints are dissolved, so their clocks may go
//! back to the present.

use windtunnel_kernel::{EndpointId, Time};

use super::matcher::Matcher;
use super::operations::State;
use super::{Arrival, Fabric, Host};
use crate::model::Abandon;

impl<N: Abandon> Host<N> {
    /// From `at` on, not before the clock nor beyond the next event, `endpoints` do nothing. They have no message with others.
    ///
    /// # Panics
    /// If events before `at` have not been handled.
    pub fn abandon(&mut self, at: Time, endpoints: &[EndpointId]) {
        self.advance_to(at);
        let mut goes = vec![false; self.spec.endpoints as usize];
        for endpoint in endpoints {
            goes[endpoint.0 as usize] = true;
        }
        let (operations, runs) = (&self.operations, &self.runs);
        let of = |arrival: Arrival| match arrival {
            Arrival::Message { message } => operations[message].endpoint,
            Arrival::Coupled { run } => runs[run as usize].leader,
        };
        for arrival in self.network.abandon(&|arrival| goes[of(arrival).0 as usize]) {
            match arrival {
                Arrival::Message { message } => self.operations.release(message),
                Arrival::Coupled { run } => self.free_runs.push(run),
            }
        }
        self.network_next = None;
        // Slots that are free already are written anew when they are used.
        for run in self.runs.iter_mut().filter(|run| goes[run.leader.0 as usize]) {
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
        for id in 0..self.operations.slots().len() as u32 {
            let operation = &mut self.operations[id];
            if !goes[operation.endpoint.0 as usize] {
                continue;
            }
            match operation.state {
                State::Free | State::Gone => {}
                State::Posted | State::Unexpected => self.operations.release(id),
                State::Calc | State::Send | State::Message | State::Receive => operation.state = State::Gone,
            }
        }
    }

    /// Moves the clock to `at`, before which nothing happens.
    ///
    /// # Panics
    /// If something does.
    pub fn advance_to(&mut self, at: Time) {
        assert!(self.now <= at && at <= self.next_time(), "events before {at} have not been handled");
        if at > self.now {
            self.run_network(at, at);
            self.now = at;
        }
    }
}
